# SPDX-License-Identifier: Apache-2.0
"""Table, a released table as people want it: lines, a data frame, a picture, shares, comparisons.

Everything in it follows from the release alone, and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from importlib import import_module
from numbers import Integral
from typing import Any

import numpy as np

from sottovoce.arrays import Array
from sottovoce.data.cells import Cells
from sottovoce.errors import InvalidParameter
from sottovoce.estimators.table_mechanism import NoisyTable
from sottovoce.release import LEVEL, Intervals, Release, check_level
from sottovoce.svg import WhiskerBar, draw_whisker_bars
from sottovoce.units import format_count, format_percent, round_to_error
from sottovoce.wording import TOO_FEW, get_unit

#: Pictures and notebook views have so many lines; the largest cells are shown.
MOST_LINES = 60
#: What the value of a table is called, by the question that made it.
VALUE_NAMES = {
    "count": "count",
    "sum": "sum",
    "mean by group": "mean",
    "variance": "variance",
}


class Table:
    """The cells of a release with what they are called, their answers and their intervals.

    Parameters
    ----------
    release :
        of a count, or of a sum, mean or variance by groups.
    """

    def __init__(self, release: Release) -> None:
        self.release = release
        self.cells = Cells.from_dict(release.parameters["by"])
        self.name = VALUE_NAMES[release.question]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the cells are made of."""
        return tuple(axis.column for axis in self.cells.axes)

    @property
    def values(self) -> Array:
        """The answers in the order of the cells; NaN where there are too few rows to say."""
        told: dict[str, Any] = self.release.value  # type: ignore[assignment]
        return np.array(
            [math.nan if value is None else value for value in told[self.name]], dtype=np.float64
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.release == other.release

    def __hash__(self) -> int:
        return hash(self.release.certificate.plan_digest)

    def __len__(self) -> int:
        return self.cells.size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        return (
            f"<Table of {self.name} by {', '.join(self.columns) or 'a filter'}, {len(self)} cells>"
        )

    def rows(self, empty: bool = True) -> list[dict[str, Any]]:
        """Return a line for each cell.

        Parameters
        ----------
        empty : bool
            Whether cells whose answer is 0 are listed too.

        Returns
        -------
        list[dict[str, Any]]
            The label of each column; the answer, None where there are too few rows to say; low and
            high, the ends of its interval; too_few. A cell of rows outside the filter has that
            word for each column.
        """
        told: dict[str, Any] = self.release.value  # type: ignore[assignment]
        values = told[self.name]
        return self._make_lines(cell for cell, value in enumerate(values) if empty or value != 0)

    def _make_lines(self, cells: Iterable[int]) -> list[dict[str, Any]]:
        """Returns the lines of some cells: of a large table only what is shown is written out."""
        told: dict[str, Any] = self.release.value  # type: ignore[assignment]
        values = told[self.name]
        ends = self.release.intervals or {}
        lows = _get_part(ends, "low", self.name, len(values))
        highs = _get_part(ends, "high", self.name, len(values))
        others = [name for name in ("count", "missing", "sum", "mean") if name in told]
        lines = []
        for cell in cells:
            value = values[cell]
            line = self._label(cell)
            line |= {
                self.name: value,
                "low": lows[cell],
                "high": highs[cell],
                "too_few": value is None,
            }
            line |= {name: told[name][cell] for name in others if name != self.name}
            lines.append(line)
        return lines

    def _label(self, cell: int) -> dict[str, Any]:
        """The label of each column; of a filter alone, whether a row satisfies it."""
        labels = self.cells.labels(cell)
        if not self.columns:
            where: Any = self.cells.where  # there is a filter where there are no columns
            if cell == self.cells.outside_cell:
                return {"where": self.cells.outside_label}
            return {"where": str(where.text)}
        if cell == self.cells.outside_cell:
            return dict.fromkeys(self.columns, self.cells.outside_label)
        return dict(zip(self.columns, labels, strict=True))

    def share(self) -> list[dict[str, Any]]:
        """Return each cell's share of all rows, with its interval.

        Returns
        -------
        list[dict[str, Any]]
            Labels, share, low and high, each between 0 and 1.
        """
        told: dict[str, Any] = self.release.value  # type: ignore[assignment]
        rows = float(self.release.noise["rows"])
        ends = self.release.intervals or {}
        counts = told["count"]
        lows = _get_part(ends, "low", "count", len(counts))
        highs = _get_part(ends, "high", "count", len(counts))
        return [
            self._label(cell)
            | {
                "share": count / rows,
                "low": None if lows[cell] is None else lows[cell] / rows,
                "high": None if highs[cell] is None else highs[cell] / rows,
            }
            for cell, count in enumerate(counts)
        ]

    def percentages(self) -> list[tuple[str, str]]:
        """Return each cell's name and its percentage of all rows in words.

        Returns
        -------
        list[tuple[str, str]]
            Pairs of a name and a percentage.
        """
        return [
            (self.name_cell(cell), format_percent(line["share"]))
            for cell, line in enumerate(self.share())
        ]

    def name_cell(self, cell: int) -> str:
        """Return what a cell is called in one line."""
        return ", ".join(str(label) for label in self._label(cell).values())

    def find(self, **labels: str) -> list[int]:
        """Return the cells that have these labels; others are free.

        Parameters
        ----------
        **labels : str
            By column; a column whose name is no word is given in a dict with ``**``.

        Returns
        -------
        list[int]
            Numbers of cells.

        Raises
        ------
        InvalidParameter
            There is no such column or label.
        """
        return self._find(labels)

    def _find(self, labels: Mapping[Any, Any]) -> list[int]:
        known = {axis.column: axis.labels for axis in self.cells.axes}
        for name, label in labels.items():
            if name not in known or label not in known[name]:
                raise InvalidParameter(
                    f"There is no cell with {name} = {label!r}.",
                    f"Columns: {', '.join(known) or 'none'}; labels are those of rows().",
                    "Name a column and one of its labels.",
                    parameter="labels",
                )
        return [
            cell
            for cell in range(self.cells.size)
            if all(self._label(cell).get(name) == label for name, label in labels.items())
        ]

    def compare(self, one: Any, two: Any, level: float = LEVEL) -> dict[str, float | None]:
        """Return the difference of two cells, or of two groups of cells, with its interval.

        Parameters
        ----------
        one, two : dict[str, str] | int
            Labels by column, or the number of a cell; several cells are added where counts or sums
            are compared.
        level : float
            The probability with which the interval covers, at least.

        Returns
        -------
        dict[str, float | None]
            difference, low and high; None where one of the two has too few rows to say.

        Raises
        ------
        InvalidParameter
            A cell is unknown or in both, or several cells are given whose means do not add.
        """
        check_level(level)
        first = self._list_cells(one)
        second = self._list_cells(two)
        if set(first) & set(second):
            raise InvalidParameter(
                "The two groups have a cell in common.",
                "Only groups apart can be compared.",
                "Name two that share no cell.",
                parameter="two",
            )
        if self.name in ("mean", "variance"):
            return self._compare_ratios(first, second, level)
        return self._compare_totals(first, second, level)

    def _list_cells(self, group: Any) -> list[int]:
        if isinstance(group, dict):
            return self._find(group)
        # True is 1 to Python, and would be a mask to NumPy.
        numbered = isinstance(group, Integral) and not isinstance(group, bool)
        if numbered and 0 <= group < self.cells.size:
            return [int(group)]
        raise InvalidParameter(
            "A group is neither labels by column nor the number of a cell.",
            "",
            'Pass such as {"region": "north"}.',
            parameter="one",
        )

    def _compare_totals(
        self, first: list[int], second: list[int], level: float
    ) -> dict[str, float | None]:
        """Of counts from the joint law of all cells; of sums from the intervals of each."""
        values = self.values
        difference = float(values[first].sum() - values[second].sum())
        if self.name == "count":
            table = NoisyTable.of_release(self.release)
            shares = table.noisy[:, 0]
            apart = float(shares[first].sum() - shares[second].sum())
            low, high = _find_difference(table, level, apart, len(first) + len(second))
            return {
                "difference": difference,
                "low": min(low * table.rows, difference),
                "high": max(high * table.rows, difference),
            }
        low, high = self._combine_ends(first, second, level)
        return {"difference": difference, "low": low, "high": high}

    def _compare_ratios(
        self, first: list[int], second: list[int], level: float
    ) -> dict[str, float | None]:
        if len(first) != 1 or len(second) != 1:
            raise InvalidParameter(
                f"The {self.name} of several cells together is not in this release.",
                "Single cells can be compared.",
                "Name the label of every column.",
                parameter="one",
            )
        values = self.values[[first[0], second[0]]]
        if np.isnan(values).any():
            return {"difference": None, "low": None, "high": None}
        low, high = self._combine_ends(first, second, level)
        return {"difference": float(values[0] - values[1]), "low": low, "high": high}

    def _combine_ends(
        self, first: list[int], second: list[int], level: float
    ) -> tuple[float, float]:
        """All intervals hold at once with probability at least this level, whatever the
        dependence.
        """
        from sottovoce.estimators import load

        each = 1 - (1 - level) / (len(first) + len(second))
        intervals: Intervals = load(self.release)._find_intervals(each)
        low = intervals.low[self.name]  # type: ignore[call-overload, index]
        high = intervals.high[self.name]  # type: ignore[call-overload, index]
        lows = np.array([-math.inf if end is None else end for end in low])
        highs = np.array([math.inf if end is None else end for end in high])
        return (
            float(lows[first].sum() - highs[second].sum()),
            float(highs[first].sum() - lows[second].sum()),
        )

    def to_frame(self, kind: str = "pandas") -> Any:
        """Return the lines as a data frame.

        Parameters
        ----------
        kind : str
            "pandas" or "polars", whichever is installed.

        Returns
        -------
        Any
            The data frame.

        Raises
        ------
        InvalidParameter
            It is neither of the two.
        """
        lines = self.rows()
        columns = {name: [line[name] for line in lines] for name in lines[0]}
        if kind == "pandas":
            import pandas

            return pandas.DataFrame(columns)
        if kind == "polars":
            import polars

            return polars.DataFrame(columns)
        raise InvalidParameter(
            "There is no such kind of data frame.",
            'Kinds: "pandas", "polars".',
            "Choose one of them.",
            parameter="kind",
        )

    def to_svg(self) -> str:
        """Return a bar for each cell with its interval, as a picture that stands alone.

        Returns
        -------
        str
            SVG. Of a large table the largest cells are shown.
        """
        return draw_whisker_bars(self.title, self.make_bars(), alone=True)

    @property
    def title(self) -> str:
        """What is shown, in words."""
        of = f" of {self.release.column}" if self.release.column and self.name != "count" else ""
        by = f" by {' and '.join(self.columns)}" if self.columns else ""
        return f"The {self.name}{of}{by}"

    def make_bars(self) -> list[WhiskerBar]:
        """Return the cells as bars; of a large table the largest, in the order of the cells."""
        shown = self.list_notable_cells()
        if len(shown) > MOST_LINES:
            sizes = np.nan_to_num(np.abs(self.values))
            shown = sorted(sorted(shown, key=lambda cell: -sizes[cell])[:MOST_LINES])
        lines = self._make_lines(shown)
        return [self._make_bar(cell, line) for cell, line in zip(shown, lines, strict=True)]

    def list_notable_cells(self) -> list[int]:
        """Return the cells of declared values, and others that are clearly not empty.

        Returns
        -------
        list[int]
            Places in ``rows()``. Cells of unknown, missing and filtered values are left out where
            they are too few to say, or may hold nothing.
        """
        intervals = self.release.intervals or {}
        lows = _get_part(intervals, "low", self.name, len(self))
        highs = _get_part(intervals, "high", self.name, len(self))
        # Where nobody is, counts and sums are 0, and means and variances too few to say.
        empty_is_zero = self.name not in ("mean", "variance")
        return [
            cell
            for cell, (low, high) in enumerate(zip(lows, highs, strict=True))
            if self.cells.is_declared(cell)
            or (low is not None and not (empty_is_zero and low <= 0 <= high))
        ]

    def _make_bar(self, cell: int, line: dict[str, Any]) -> WhiskerBar:
        value = line[self.name]
        if value is None:
            return WhiskerBar(self.name_cell(cell), 0.0, TOO_FEW)
        low = line["low"]
        high = line["high"]
        if low is None or high is None:
            return WhiskerBar(self.name_cell(cell), value, f"{value:.4g}")
        width = max((high - low) / 2, 1e-300)
        told = f"{round_to_error(value, width)} {get_unit(self.release)}".rstrip()
        ends = f"{round_to_error(low, width)} to {round_to_error(high, width)}"
        return WhiskerBar(self.name_cell(cell), value, f"{told} ({ends})", low, high)

    def plot(self) -> Any:
        """Return a chart of Altair: a bar for each cell with its interval.

        Returns
        -------
        Any
            The chart, which a notebook shows, and which ``save`` writes.

        Raises
        ------
        InvalidParameter
            Altair is not installed.
        """
        try:
            altair: Any = import_module("altair")
        except ModuleNotFoundError:
            altair = None
        if altair is None:
            raise InvalidParameter(
                "Charts need a package that is not installed.",
                "Altair draws them.",
                "Install it with `pip install 'sottovoce[plots]'`, or use to_svg().",
            )
        lines = [
            {"cell": bar.name, self.name: bar.value, "low": bar.low, "high": bar.high}
            for bar in self.make_bars()
        ]
        chart = altair.Chart(altair.InlineData(values=lines))
        along = altair.X("cell:N", sort=None, title=" and ".join(self.columns) or None)
        bars = chart.mark_bar().encode(x=along, y=altair.Y(f"{self.name}:Q", title=self.title))
        whiskers = chart.mark_rule().encode(x=along, y="low:Q", y2="high:Q")
        return bars + whiskers

    def _repr_html_(self) -> str:
        """The view of a notebook."""
        names = [*self._label(0), self.name, "95 % interval"]
        body = []
        shown = self.list_notable_cells()[:MOST_LINES]
        for cell, line in zip(shown, self._make_lines(shown), strict=True):
            bar = self._make_bar(cell, line)
            value, _, ends = bar.words.partition(" (")
            if line["too_few"]:
                value, ends = TOO_FEW, ""
            entries = [*map(str, self._label(cell).values()), value, ends.rstrip(")")]
            body.append("".join(f"<td>{escape(entry)}</td>" for entry in entries))
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        more = ""
        if len(self) > len(shown):
            more = f"<p>{format_count(len(self) - len(shown), 'more cell')}: see rows().</p>"
        rows = "".join(f"<tr>{line}</tr>" for line in body)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"


def _get_part(ends: dict[str, Any], part: str, name: str, size: int) -> list[Any]:
    found = ends.get(part)
    if isinstance(found, dict) and name in found:
        return list(found[name])
    return [None] * size


def _find_difference(
    table: NoisyTable, level: float, apart: float, cells: int
) -> tuple[float, float]:
    """Returns the ends of the difference of two groups' shares, which have so many cells together:
    noise of all of them, and of sampling at most what two groups that share all rows have.
    """
    deviation = np.array([math.sqrt(table.people)])
    # Noise is symmetric, so that cells of the second group count as those of the first.
    signs = [1.0, -1.0] if cells == 2 else [1.0] * cells
    for _ in range(3):
        width = table.ratio * table.law.find_half_widths(level, deviation / table.ratio, *signs)
        # Var(1_a − 1_b) = p_a + p_b − (p_a − p_b)² ≤ 1 − (difference)².
        nearest = max(abs(apart) - float(width[0]), 0.0)
        deviation = np.array([math.sqrt(table.people * max(1 - nearest**2, 0.0))])
    reach = float(width[0]) + table.heaviest / 2
    return apart - reach, apart + reach
