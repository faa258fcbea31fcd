# SPDX-License-Identifier: Apache-2.0
"""Cells of a table: which rows are counted together, fixed by public words before a row is read.

    levels     a list of text: one cell each, then "other" for unknown levels and "missing" for no
               value
    edges      k rising numbers: k − 1 bins [low, high), the last one closed; values beyond them,
               infinite ones too, are in the bin at that end; then "missing"
    periods    days, weeks (ISO, from Monday), months, quarters or years that a declared range of
               days touches; dates beyond it are in the period at that end; then "missing"

Nothing about cells is read off the data. A schema may name levels that stand for unknown levels and
for missing values, and a number that stands for missing numbers: an axis then has no cell for them.
With a filter all rows outside it share one cell, the last one: a filter is a group, and its size is
private. Cells are numbered row by row, the last axis fastest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from itertools import pairwise
from numbers import Real
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Integers
from sottovoce.data.cell_columns import (
    NO_DAY,
    count_days,
    find_levels,
    number_periods,
    read_days,
    write_period,
)
from sottovoce.data.engine import as_floats
from sottovoce.data.kernels import GroupKey
from sottovoce.data.predicate import Predicate, find_constants
from sottovoce.errors import InvalidParameter, MissingColumn, SottovoceError, WrongType
from sottovoce.schema import (
    PERIODS,
    Column,
    Schema,
    check_edges,
    format_class,
    parse_day,
    quote_key,
)
from sottovoce.wording import OUTSIDE_CELL, find_free_label

#: No table has more cells.
MAX_CELLS = 10**7
#: The cells that every axis ends with.
OTHER = "other"
MISSING = "missing"
#: Kinds of columns, as engines name them, that an axis can be read of.
READABLE = {
    "levels": ("number", "text", "date", "other"),
    "edges": ("number",),
    "periods": ("text", "date"),
}


@dataclass(frozen=True)
class Axis:
    """One direction of a table: a column, and the cell of each of its values.

    >>> Axis("age", "edges", edges=(0.0, 18.0, 65.0)).labels
    ('[0, 18)', '[18, 65]', 'missing')
    """

    column: str
    kind: str  # levels, edges or periods
    levels: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()
    period: str | None = None
    first: str | None = None  # the declared range of days, as 2024-01-31
    last: str | None = None
    other: str | None = None  # the level that stands for unknown ones
    missing: str | float | None = None  # the level, or number, that stands for missing values

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The labels of the declared cells."""
        if self.kind == "levels":
            return self.levels
        if self.kind == "edges":
            return _write_bins(self.edges)
        return tuple(write_period(self.period, day) for day in self._starts)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of all cells, each once."""
        labels = list(self.values)
        if self.kind == "levels" and self.other is None:
            labels.append(find_free_label(OTHER, labels))
        if self.missing is None:
            labels.append(find_free_label(MISSING, labels))
        return tuple(labels)

    @property
    def size(self) -> int:
        """The number of cells, counted without naming them: there may be too many."""
        own_cells = (self.other_cell is not None) + (self.missing is None)
        return self._count_declared() + own_cells

    def _count_declared(self) -> int:
        if self.kind == "levels":
            return len(self.levels)
        if self.kind == "edges":
            return len(self.edges) - 1
        return len(self._starts)

    @property
    def other_cell(self) -> int | None:
        """The cell of unknown levels, if there is one of its own."""
        if self.kind == "levels" and self.other is None:
            return self._count_declared()
        return None

    @property
    def missing_cell(self) -> int | None:
        """The cell of missing values, if there is one of its own."""
        if self.missing is None:
            return self.size - 1
        return None

    def codes(self, batch: Any) -> Integers:
        """Returns the cell of each row of a batch."""
        column = batch.column(self.column)
        if self.kind == "levels":
            return find_levels(column, self.levels, self._other_code, self._missing_code)
        if self.kind == "edges":
            return self._find_bins(as_floats(column))
        return self._find_periods(read_days(column))

    @cached_property
    def _other_code(self) -> int:
        if self.other is None:
            return len(self.levels)
        return self.levels.index(self.other)

    @cached_property
    def _missing_code(self) -> int:
        if self.missing is None:
            return self.size - 1
        if self.kind == "levels":
            return self.levels.index(str(self.missing))
        return int(np.searchsorted(self._inner, float(self.missing), side="right"))

    @cached_property
    def _inner(self) -> NDArray[np.float64]:
        return np.array(self.edges[1:-1], dtype=np.float64)

    def _find_bins(self, numbers: NDArray[np.float64]) -> Integers:
        codes = np.searchsorted(self._inner, numbers, side="right")
        absent = np.isnan(numbers)
        if absent.any():
            codes[absent] = self._missing_code
        return codes.astype(np.int64, copy=False)

    def _find_periods(self, days: Integers) -> Integers:
        first = count_days(self.first)
        codes = self._codes_by_day.take(np.clip(days - first, 0, len(self._codes_by_day) - 1))
        absent = days == NO_DAY
        if absent.any():
            codes[absent] = self._missing_code
        return codes

    @cached_property
    def _codes_by_day(self) -> Integers:
        """The cell of each day of the declared range."""
        days = np.arange(count_days(self.first), count_days(self.last) + 1)
        numbers = number_periods(self.period, days)
        return np.asarray(numbers - numbers[0], dtype=np.int64)

    @cached_property
    def _starts(self) -> list[date]:
        """A day of each period, in order: the first one in the declared range."""
        codes = self._codes_by_day
        places = np.flatnonzero(np.diff(codes, prepend=-1))
        first = date.fromisoformat(str(self.first))
        return [first + timedelta(days=int(place)) for place in places]

    def to_dict(self) -> dict[str, Any]:
        """The axis as public JSON."""
        content: dict[str, Any] = {"column": self.column, "kind": self.kind}
        for name in ("levels", "edges"):
            if getattr(self, name):
                content[name] = list(getattr(self, name))
        if self.kind == "periods":
            content |= {"period": self.period, "from": self.first, "to": self.last}
        for name in ("other", "missing"):
            if getattr(self, name) is not None:
                content[name] = getattr(self, name)
        return {**content, "labels": list(self.labels)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Axis:
        """Reads an axis back from a release; a ValueError, KeyError or TypeError if it is none."""
        axis = make_axis(
            content["column"],
            kind=content["kind"],
            levels=tuple(content.get("levels", ())),
            edges=tuple(content.get("edges", ())),
            period=content.get("period"),
            first=content.get("from"),
            last=content.get("to"),
            other=content.get("other"),
            missing=content.get("missing"),
        )
        if list(axis.labels) != content["labels"]:
            raise ValueError  # whoever reads a release says so
        return axis


@dataclass(frozen=True)
class Cells:
    """The cells of a table: the product of its axes, and one for rows outside its filter."""

    axes: tuple[Axis, ...] = ()
    where: Predicate | None = None

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of cells along each axis."""
        return tuple(axis.size for axis in self.axes)

    @cached_property
    def size(self) -> int:
        """The number of cells, with the one outside the filter."""
        return math.prod(self.shape) + (self.where is not None)

    def is_declared(self, cell: int) -> bool:
        """Whether a cell has declared values alone: no unknown or missing ones, nor any outside."""
        if cell == self.outside_cell:
            return False
        return not any(
            place in (axis.other_cell, axis.missing_cell)
            for axis, place in zip(self.axes, self._find_places(cell), strict=True)
        )

    def _find_places(self, cell: int) -> list[int]:
        """Returns where a cell is along each axis.

        NumPy's unravel_index takes longer for a single cell, and tables have many.
        """
        places = []
        for size in reversed(self.shape):
            cell, place = divmod(cell, size)
            places.append(place)
        return places[::-1]

    @cached_property
    def outside_label(self) -> str:
        """What the cell of rows outside the filter is called: a word that no level has."""
        return find_free_label(OUTSIDE_CELL, [label for axis in self.axes for label in axis.labels])

    @property
    def outside_cell(self) -> int | None:
        """The cell of rows outside the filter, if there is a filter."""
        if self.where is None:
            return None
        return self.size - 1

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have, each once."""
        filtered = () if self.where is None else self.where.columns
        return tuple(dict.fromkeys((*(axis.column for axis in self.axes), *filtered)))

    @cached_property
    def number_columns(self) -> tuple[str, ...]:
        """Those that are read as numbers, which text files have to be told."""
        bins = tuple(axis.column for axis in self.axes if axis.kind == "edges")
        filtered = () if self.where is None else self.where.number_columns
        return tuple(dict.fromkeys((*bins, *filtered)))

    @cached_property
    def text_columns(self) -> tuple[str, ...]:
        """Those that are read as text in text files: levels and dates."""
        return tuple(name for name in self.columns if name not in self.number_columns)

    def codes(self, batch: Any) -> Integers:
        """Returns the cell of each row of a batch, 0 … size − 1."""
        if self.axes:
            codes = self.axes[0].codes(batch)
        else:
            codes = np.zeros(len(batch), dtype=np.int64)
        for axis in self.axes[1:]:
            codes = codes * axis.size + axis.codes(batch)
        if self.where is not None:
            codes = np.where(self.where.matches(batch), codes, self.size - 1)
        return codes

    def list_group_keys(self) -> tuple[GroupKey, ...]:
        """Returns the columns by which rows may be grouped without changing a cell."""
        keys = []
        for axis in self.axes:
            if axis.kind == "levels":
                keys.append(GroupKey(axis.column))
            elif axis.kind == "edges":
                keys.append(GroupKey(axis.column, "points", axis.edges[1:-1]))
            else:
                keys.append(GroupKey(axis.column, "day"))
        if self.where is not None:
            keys += self.where.list_group_keys()
        return tuple(keys)

    def labels(self, cell: int) -> tuple[str, ...]:
        """Returns what a cell is called, axis by axis; rows outside the filter have one word."""
        if not 0 <= cell < self.size:
            raise IndexError(cell)
        if cell == self.outside_cell:
            return (self.outside_label,)
        places = self._find_places(cell)
        return tuple(axis.labels[place] for axis, place in zip(self.axes, places, strict=True))

    def refuse_wrong_columns(self, kinds: Mapping[str, str]) -> None:
        """Refuses a table that lacks a column of the cells, or has one of another kind; both are
        public.
        """
        for parameter, names in (("by", [a.column for a in self.axes]), ("where", self.columns)):
            for name in names:
                if name not in kinds:
                    raise MissingColumn(
                        f"The table has no column {name!r}.",
                        f"Its columns are: {', '.join(kinds)}.",
                        "Name one of these.",
                        parameter=parameter,
                    )
        for axis in self.axes:
            if kinds[axis.column] not in READABLE[axis.kind]:
                raise _wrong_kind_error(axis.column, axis.kind, "by")
        if self.where is None:
            return
        for name, column in self.where.kinds.items():
            read_as = {"number": "edges", "date": "periods"}.get(column.kind, "levels")
            if kinds[name] not in READABLE[read_as]:
                raise _wrong_kind_error(name, read_as, "where")

    def to_dict(self) -> dict[str, Any]:
        """The cells as public JSON."""
        return {
            "axes": [axis.to_dict() for axis in self.axes],
            "where": None if self.where is None else self.where.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Cells:
        """Reads cells back from a release; a ValueError, KeyError or TypeError if they are none."""
        axes = tuple(map(Axis.from_dict, content["axes"]))
        if content["where"] is None:
            return cls(axes)
        return cls(axes, Predicate.from_dict(content["where"]))


def _wrong_kind_error(name: str, read_as: str, parameter: str) -> WrongType:
    needed = {
        "levels": "levels",
        "edges": "numbers",
        "periods": "dates, or text such as 2024-01-31",
    }
    return WrongType(
        f"The column {name!r} is of another kind than it is described.",
        f"It must hold {needed[read_as]}.",
        "Convert the column, or correct its description.",
        parameter=parameter,
    )


def make_cells(by: Any = None, where: Any = None, schema: Schema | None = None) -> Cells:
    """Return the cells that a question asks for.

    Parameters
    ----------
    by : str | Sequence[str] | Mapping, optional
        Columns that the schema describes, short forms of them ("visited:month", "age:0,18,65"), or
        a mapping from column to levels, edges, a period, or a period with its range.
    where : str, optional
        The filter.
    schema : Schema, optional
        The description of the table.

    Returns
    -------
    Cells
        The cells.

    Raises
    ------
    InvalidParameter
        A column has no public cells, or there are too many of them.
    """
    schema = schema or Schema()
    axes = tuple(_make_axis_of(name, how, schema) for name, how in _list_directions(by, schema))
    columns = [axis.column for axis in axes]
    if len(set(columns)) < len(columns):
        _refuse("One column is named twice.", "Each has one direction of the table.")
    if where is None or (isinstance(where, str) and not where.strip()):
        cells = Cells(axes)
    else:
        cells = Cells(axes, Predicate.parse(where, schema))
    _check_number_of_cells(cells.size)
    return cells


def _check_number_of_cells(size: int) -> None:
    if size > MAX_CELLS:
        _refuse(
            f"The table would have {size:,} cells.",
            f"Tables have up to {MAX_CELLS:,}.",
            "Take fewer columns, wider bins or longer periods.",
        )


def make_axis(column: str, **told: Any) -> Axis:
    """Returns an axis whose parts were checked.

    Raises
    ------
    InvalidParameter
        if levels repeat or are empty, or there are too many of them.
    InvalidBounds, InvalidSchema
        if edges do not rise, or days are none.
    """
    axis = Axis(column, **told)
    if axis.kind == "levels":
        _check_levels(axis)
    elif axis.kind == "edges":
        axis = Axis(column, **{**told, "edges": check_edges(axis.edges, "by")})
    elif axis.kind == "periods":
        first = parse_day(axis.first, "by")
        last = parse_day(axis.last, "by")
        if axis.period not in PERIODS or last < first:
            _refuse(
                f"The period of {column!r} is unknown, or its range ends before it begins.",
                f"Periods are: {', '.join(PERIODS)}.",
            )
        axis = Axis(column, **{**told, "first": first.isoformat(), "last": last.isoformat()})
    else:
        raise ValueError(axis.kind)
    return axis


def _check_levels(axis: Axis) -> None:
    known = all(isinstance(level, str) for level in axis.levels)
    if not axis.levels or not known or len(set(axis.levels)) < len(axis.levels):
        _refuse(
            f"The levels of {axis.column!r} are not different words.",
            "Each level has one cell.",
            "Name every level that can occur once, from public knowledge.",
        )
    if "" in axis.levels:
        _refuse(
            f"A level of {axis.column!r} is empty text.",
            "Empty text is a missing value, as it is in text files, and has the cell of these.",
            "Leave it out; missing = in the schema names a level that stands for it.",
        )
    for level in (axis.other, axis.missing):
        if level is not None and level not in axis.levels:
            raise ValueError(axis.column)  # only a release can say so


def _list_directions(by: Any, schema: Schema) -> list[tuple[str, Any]]:
    """Returns columns with what was said about each, None where nothing was."""
    if by is None:
        return []
    if isinstance(by, str):
        return [_split_short_form(by, schema)]
    if isinstance(by, Mapping):
        listed = list(by.items())
        if not all(isinstance(name, str) and name for name, _ in listed):
            _refuse("A column to count by is not named by text.")
        return [
            _split_short_form(name, schema) if how is None else (name, how) for name, how in listed
        ]
    try:
        names = list(by)
    except TypeError:
        names = [None]
    if not all(isinstance(name, str) and name for name in names):
        _refuse(
            "A column to count by is not named by text.",
            "by is the name of a column, several of them, or a mapping from columns to levels, "
            "edges or periods.",
        )
    return [_split_short_form(name, schema) for name in names]


def _split_short_form(text: str, schema: Schema) -> tuple[str, Any]:
    """Returns column and cells of texts like age, month, visited:month, age:0,18,65."""
    name, mark, rest = text.rpartition(":")
    if text in schema.columns or (not mark and text not in PERIODS):
        return text, None
    if not mark:
        return _find_date_column(text, schema), text
    first, _, last = rest.partition("..")
    if name.rpartition(":")[2] in PERIODS and last:
        name, _, period = name.rpartition(":")
        return name, {"period": period, "from": first, "to": last}
    if not name:
        _refuse("A column to count by has no name.", "Its name stands before the colon.")
    if rest in PERIODS:
        return name, rest
    parts = [part.strip() for part in rest.split(",")]
    numbers = [_to_number(part) for part in parts]
    described = schema.columns.get(name)
    if any(number is None for number in numbers) or _is_factor(described):
        return name, parts
    return name, numbers


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _to_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _find_date_column(period: str, schema: Schema) -> str:
    dates = [name for name, column in schema.columns.items() if column.kind == "date"]
    if len(dates) != 1:
        listed = ", ".join(dates) or "none"
        _refuse(
            f"It is not clear which column is counted by {period}.",
            f"Where a period stands alone the schema describes one column of dates; it has: "
            f"{listed}.",
            f'Write "column:{period}", or describe the column with kind = "date", low = '
            '"2024-01-01" and high = "2024-12-31".',
        )
    return dates[0]


def _is_factor(described: Column | None) -> bool:
    return described is not None and described.kind == "factor"


def _make_axis_of(name: str, how: Any, schema: Schema) -> Axis:
    described = schema.columns.get(name)
    if how is None:
        return _make_described_axis(name, described)
    if isinstance(how, str) and how not in PERIODS:
        _refuse(f"{how!r} is no period.", f"Periods are: {', '.join(PERIODS)}.")
    if isinstance(how, str | Mapping):
        return _make_period_axis(name, described, how)
    if isinstance(how, set | frozenset):
        _refuse(
            f"The cells of {name!r} are a set, which has no order.",
            "A table lists its cells in the order in which they are given.",
            "Pass a list.",
        )
    if hasattr(how, "__len__"):
        _check_number_of_cells(len(how))
    try:
        listed = list(how)
    except TypeError:
        listed = []
    if not listed:
        _refuse(
            f"Nothing says what the cells of {name!r} are.",
            "They are a list of levels, a list of edges, or a period.",
        )
    text = all(isinstance(part, str) for part in listed)
    numbers = all(isinstance(part, Real) and not isinstance(part, bool) for part in listed)
    if text or (numbers and _is_factor(described)):
        return _make_levels_axis(name, described, tuple(map(format_class, listed)))
    if not numbers:
        _refuse(
            f"The cells of {name!r} are neither all text nor all numbers.",
            "A list of text names levels, and a list of rising numbers edges of bins.",
            'Write levels as text; those of a column of truths such as "true" and "false".',
        )
    return _make_edges_axis(name, described, tuple(listed))


def _make_described_axis(name: str, described: Column | None) -> Axis:
    if described is not None and described.kind == "factor" and described.levels:
        return _make_levels_axis(name, described, described.levels)
    if described is not None and described.kind == "number" and described.edges:
        return _make_edges_axis(name, described, described.edges)
    if described is not None and described.kind == "date" and described.period is not None:
        return _make_period_axis(name, described, described.period)
    line = _suggest_line(name, described)
    _refuse(
        f"Nothing public says what the cells of {name!r} are.",
        "Cells are levels, edges or periods from public knowledge, and never read off the data.",
        f"Add this to the schema and fill it in:\n{line}\n",
    )


def _suggest_line(name: str, described: Column | None) -> str:
    """Returns what a schema lacks, ready to paste."""
    head = f"[columns.{quote_key(name)}]"
    if described is None or described.kind == "text":
        return f'{head}\nkind = "factor"\nlevels = ["first", "second"]'
    if described.kind == "factor":
        return f'{head}\nlevels = ["first", "second"]'
    if described.kind == "date":
        days = {"low": "2024-01-01", "high": "2024-12-31"}
        lacking = [name for name in days if getattr(described, name) is None]
        lines = [f'{name} = "{days[name]}"' for name in lacking]
        return "\n".join([head, *lines, 'period = "month"'])
    return f"{head}\nedges = [0, 10, 20]"


def _make_levels_axis(name: str, described: Column | None, levels: tuple[str, ...]) -> Axis:
    _refuse_strange_levels(name, described, levels)
    other = missing = None
    if described is not None and described.kind == "factor":
        unknown, absent = find_constants(described, levels)
        other = levels[unknown] if unknown < len(levels) else None
        missing = levels[absent] if absent < len(levels) else None
    return make_axis(name, kind="levels", levels=levels, other=other, missing=missing)


def _refuse_strange_levels(name: str, described: Column | None, levels: tuple[str, ...]) -> None:
    """Refuses words as cells of a column that is described as a date or as a number: all rows would
    be others.
    """
    if described is None or described.kind not in ("date", "number"):
        return
    if described.kind == "date":
        if not all(map(_is_day, levels)):
            _refuse(
                f"{name!r} is described as date, and its cells are neither a period nor days.",
                f"Periods are: {', '.join(PERIODS)}.",
                f'Write such as "{name}:month", or correct the schema.',
            )
        return
    if any(_to_number(level) is None for level in levels):
        _refuse(
            f"{name!r} is described as number, and its cells are words.",
            "Numbers have edges of bins in rising order, such as 0, 18, 65.",
            "Pass edges, or correct the schema.",
        )


def _make_edges_axis(name: str, described: Column | None, edges: tuple[float, ...]) -> Axis:
    if described is not None and described.kind in ("factor", "date"):
        _refuse(
            f"{name!r} is described as {described.kind}, and edges are for numbers.",
            "",
            "Pass levels or a period, or correct the schema.",
        )
    missing = None
    if described is not None and described.missing is not None:
        missing = described.missing_number
    return make_axis(name, kind="edges", edges=edges, missing=missing)


def _make_period_axis(name: str, described: Column | None, how: Any) -> Axis:
    told = {"period": how} if isinstance(how, str) else dict(how)
    if not set(told) <= {"period", "from", "to"}:
        _refuse(
            f"The period of {name!r} has entries that mean nothing.",
            'A period is one word, or {"period": "month", "from": "2024-01-01", "to": '
            '"2024-12-31"}.',
        )
    if described is not None and described.kind in ("factor", "number"):
        _refuse(
            f"{name!r} is described as {described.kind}, and periods are for dates.",
            "",
            "Pass levels or edges, or correct the schema.",
        )
    dates = described if described is not None and described.kind == "date" else Column("date")
    period = told.get("period", dates.period)
    first = told.get("from", dates.low)
    last = told.get("to", dates.high)
    if first is None or last is None or period is None:
        line = (
            f'[columns.{quote_key(name)}]\nkind = "date"\nlow = "2024-01-01"\n'
            f'high = "2024-12-31"\nperiod = "{period if period in PERIODS else "month"}"'
        )
        _refuse(
            f"Nothing public says which days {name!r} can have.",
            "Periods need a first and a last day, from public knowledge.",
            f"Add this to the schema and fill it in:\n{line}\n",
        )
    try:
        return make_axis(name, kind="periods", period=period, first=first, last=last)
    except SottovoceError as error:
        refusal = InvalidParameter(error.found, error.required, error.remedy, parameter="by")
    raise refusal


def _write_bins(edges: tuple[float, ...]) -> tuple[str, ...]:
    names = [format_class(edge) for edge in edges]
    inner = [f"[{low}, {high})" for low, high in pairwise(names[:-1])]
    return (*inner, f"[{names[-2]}, {names[-1]}]")


def _refuse(found: str, required: str = "", remedy: str = "Correct the cells.") -> NoReturn:
    raise InvalidParameter(found, required, remedy, parameter="by")
