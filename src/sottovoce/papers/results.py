# SPDX-License-Identifier: Apache-2.0
"""What an experiment hands back: tables with ours beside what was printed, figures to draw, and
sentences.

Everything is a frozen value that survives a trip through JSON, so that a finished experiment is
kept and not computed again. A cell that is off by more than a tenth must have its reason:
`unexplained` lists those without.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Numbers = tuple[float | None, ...]
#: How far ours may be from print before a sentence must say why, and the stricter mark that is also
#: counted.
DEVIATION_LIMIT = 0.10
CLOSE_LIMIT = 0.05
#: Raised whenever what is stored changes its meaning, so that old files are not taken for new ones.
FORMAT = "sottovoce.outcome/1"


@dataclass(frozen=True)
class ResultColumn:
    """One quantity, line by line; ``published`` and ``falls_at`` are empty where there is nothing
    to compare with.

    ``falls_at`` is the share of our draws that lie below the published number.
    """

    name: str
    ours: Numbers
    published: Numbers = ()
    falls_at: Numbers = ()

    def ratios(self) -> Numbers:
        """Returns ours over published, line by line, None where one of them is missing.

        >>> ResultColumn("loss", (1.1, 2.0, None), (1.0, None, 3.0)).ratios()
        (1.1, None, None)
        """
        return tuple(
            ours / printed if ours is not None and printed else None
            for ours, printed in zip(
                self.ours, self.published or (None,) * len(self.ours), strict=True
            )
        )


@dataclass(frozen=True)
class Reason:
    """Why cells of a column differ from print: of all its lines, or of those with these labels."""

    column: str
    sentence: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResultTable:
    """Columns over the same lines, and the reasons for whatever is off."""

    title: str
    key: str
    lines: tuple[str, ...]
    columns: tuple[ResultColumn, ...]
    reasons: tuple[Reason, ...] = ()

    def ratios(self) -> list[float]:
        """Returns every ratio that there is."""
        return [ratio for column in self.columns for ratio in column.ratios() if ratio is not None]

    def find_deviations(self, limit: float = DEVIATION_LIMIT) -> list[tuple[str, str, float]]:
        """Returns column, line and ratio of every cell that is further from print than the
        limit.
        """
        return [
            (column.name, line, ratio)
            for column in self.columns
            for line, ratio in zip(self.lines, column.ratios(), strict=True)
            if ratio is not None and not is_within(ratio, limit)
        ]

    def find_unexplained(self) -> list[tuple[str, str, float]]:
        """Returns the cells that are off and for which no reason is given."""
        return [
            cell
            for cell in self.find_deviations()
            if not any(_covers(reason, cell) for reason in self.reasons)
        ]


@dataclass(frozen=True)
class Series:
    """One line, row of marks or band in a panel; ``role`` says whose it is and decides its
    colour.
    """

    name: str
    role: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    kind: Literal["line", "marks", "band"] = "line"
    top: tuple[float, ...] = ()


@dataclass(frozen=True)
class Panel:
    """Axes with series in them."""

    title: str
    x_name: str
    y_name: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = True


@dataclass(frozen=True)
class Figure:
    """Panels side by side under one title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Outcome:
    """All that an experiment found."""

    experiment: str
    size: str
    tables: tuple[ResultTable, ...] = ()
    figures: tuple[Figure, ...] = ()
    sentences: tuple[str, ...] = ()
    seconds: float = 0.0
    made_by: str = field(default="", compare=False)

    def find_unexplained(self) -> list[tuple[str, str, float]]:
        """Returns the cells of all tables that are off without a reason."""
        return [cell for table in self.tables for cell in table.find_unexplained()]

    def count_close(self) -> tuple[int, int, int]:
        """Returns how many cells can be compared, and how many of them are within 5 % and within 10
        %.
        """
        # Errata differ from print by their nature: they are not part of how well print was met.
        if self.experiment.endswith("/errata"):
            tables: tuple[ResultTable, ...] = ()
        else:
            tables = self.tables
        ratios = [ratio for table in tables for ratio in table.ratios()]
        return len(ratios), *(
            sum(is_within(ratio, limit) for ratio in ratios)
            for limit in (CLOSE_LIMIT, DEVIATION_LIMIT)
        )  # type: ignore[return-value]

    def to_json(self) -> str:
        """Returns the outcome as JSON text."""
        return (
            json.dumps(
                {"format": FORMAT, **asdict(self)}, ensure_ascii=False, allow_nan=False, indent=1
            )
            + "\n"
        )

    @classmethod
    def from_json(cls, text: str) -> Outcome | None:
        """Returns what `to_json` wrote; None for anything else, which is then computed again."""
        try:
            content = json.loads(text)
            if content.pop("format") == FORMAT:
                return _read_outcome(content)
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def is_within(ratio: float, limit: float) -> bool:
    """Says whether a ratio is 1 up to the limit, as a relative difference from print.

    >>> is_within(1.05, 0.05), is_within(0.94, 0.05), is_within(float("inf"), 0.05)
    (True, False, False)
    """
    return math.isfinite(ratio) and abs(ratio - 1) <= limit + 1e-12


def format_number(value: float | None, significant: int = 3) -> str:
    """Returns a number as papers print it, shortest first.

    >>> [format_number(value) for value in (0.0228, 218451658.7, None, 0, 1070, 5.73e-32)]
    ['0.0228', '2.18e8', '', '0', '1070', '5.73e-32']
    """
    if value is None:
        return ""
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, _, exponent = f"{value:.{significant - 1}e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    if abs(value) < 10**significant:
        return f"{float(f'{value:.{significant}g}'):.15g}"
    return f"{value:.0f}"


def format_percentile(value: float | None) -> str:
    """Returns the share of draws below as words.

    >>> [format_percentile(value) for value in (0.62, 0.0, 1.0, 0.003, None)]
    ['62 %', 'below all', 'above all', '0.3 %', '']
    """
    if value is None:
        return ""
    if 0.01 <= value <= 0.99:
        places = 0
    else:
        places = 1
    return {0.0: "below all", 1.0: "above all"}.get(value, f"{100 * value:.{places}f} %")


def _covers(reason: Reason, cell: tuple[str, str, float]) -> bool:
    column, line, _ = cell
    return reason.column == column and (not reason.lines or line in reason.lines)


def _read_outcome(content: dict[str, Any]) -> Outcome:
    fields: dict[str, Any] = {
        "tables": _read_all(content.pop("tables"), _read_table),
        "figures": _read_all(content.pop("figures"), _read_figure),
        "sentences": tuple(content.pop("sentences")),
    }
    return Outcome(**content, **fields)


def _read_table(content: dict[str, Any]) -> ResultTable:
    columns = _read_all(content.pop("columns"), lambda c: ResultColumn(**_make_tuples(c)))
    reasons = _read_all(content.pop("reasons"), lambda r: Reason(**_make_tuples(r)))
    return ResultTable(**_make_tuples(content), columns=columns, reasons=reasons)


def _read_figure(content: dict[str, Any]) -> Figure:
    return Figure(content["title"], _read_all(content["panels"], _read_panel))


def _read_panel(content: dict[str, Any]) -> Panel:
    return Panel(
        **{**content, "series": _read_all(content["series"], lambda s: Series(**_make_tuples(s)))}
    )


def _read_all(
    items: Iterable[dict[str, Any]], made: Callable[[dict[str, Any]], Any]
) -> tuple[Any, ...]:
    return tuple(made(item) for item in items)


def _make_tuples(content: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for name, value in content.items()
    }
