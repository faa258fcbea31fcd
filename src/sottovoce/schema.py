# SPDX-License-Identifier: Apache-2.0
"""Public limits: Bounds of numbers, and Schema, the public description of a table.

Bounds are knowledge from outside the data: what a salary can be, not what the salaries are. Values
beyond them are clipped. Bounds read off the data would publish the richest person's income in the
noise scale, which is why nothing here ever looks at a value, and why a drafted schema leaves every
range blank.

The classes of a label, declared from public knowledge and never read off the labels.

Which classes occur is a fact about the data: a rare diagnosis that one person has would publish
that person. So classes are declared, and a label that is none of them is refused before anything is
charged.

    code      0, 1, … in the order of declaration; with two classes the second is the positive one
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sottovoce.arrays import Array, ColumnLike, Floats, is_missing, to_column
from sottovoce.errors import (
    InvalidBounds,
    InvalidData,
    InvalidParameter,
    InvalidSchema,
    MissingColumn,
)

Interval = tuple[float, float]


#: Positive parameters lie below this, and above one over it: their squares, and sums of them, are
#: still doubles.
MEASURE = 1e100
#: No more than this share buys an interval.
MOST_INTERVAL_SHARE = 0.9


@dataclass(frozen=True)
class Bounds:
    """Limits of features (a box, a norm, or both) and of the label, from public knowledge.

    Features have one pair for all, two arrays with a number for each, or a pair by the name of each
    column: a table is then read by these names, and a plain array in their order.

    >>> Bounds(features=([0, 18], [1, 99]), label=(0, 70_000)).label
    (0.0, 70000.0)
    >>> Bounds(features={"age": (18, 99), "bmi": (10, 60)}).names
    ('age', 'bmi')
    """

    features: tuple[ArrayLike, ArrayLike] | Mapping[str, Interval] | None = None
    label: Interval | None = None
    norm: float | None = None
    #: The columns that features were named by, None where they were not.
    names: tuple[str, ...] | None = field(init=False, default=None)

    def __repr__(self) -> str:
        """What is declared, and nothing else."""
        declared: dict[str, Any] = {
            "features": self.features,
            "label": self.label,
            "norm": self.norm,
        }
        if self.names is not None:
            declared["features"] = self.list_limits_by_name()
        elif self.box is not None:
            declared["features"] = tuple(np.asarray(end).tolist() for end in self.box)
        told = [f"{name}={value!r}" for name, value in declared.items() if value is not None]
        return f"Bounds({', '.join(told)})"

    def __post_init__(self) -> None:
        if self.label is not None:
            object.__setattr__(self, "label", to_interval(self.label))
        features: Any = self.features
        if isinstance(features, Mapping):
            features = _split_by_name(features)
            object.__setattr__(self, "names", tuple(self.features))  # type: ignore[arg-type]
        if features is not None:
            object.__setattr__(self, "features", _check_box(features))
        if self.norm is not None and (
            isinstance(self.norm, bool | np.bool_) or not is_measurable(self.norm)
        ):
            raise InvalidBounds(
                "The norm bound is not positive, or beyond what doubles can calculate with.",
                f"It must lie between {1 / MEASURE:g} and {MEASURE:g}.",
                "Pass a public bound on ‖x‖₂.",
                parameter="norm",
            )

    @property
    def box(self) -> tuple[ArrayLike, ArrayLike] | None:
        """The lows and the highs of the features, None where only a norm bounds them."""
        if self.features is None:
            return None
        low, high = self.features
        return low, high

    def list_limits_by_name(self) -> dict[str, list[float]]:
        """Return the limits of features that have names.

        Returns
        -------
        dict[str, list[float]]
            [low, high] by name; empty where features have no names.
        """
        if self.names is None or self.box is None:
            return {}
        low, high = (np.asarray(end, dtype=np.float64).tolist() for end in self.box)
        return {name: [one, other] for name, one, other in zip(self.names, low, high, strict=True)}


def is_between(value: object, low: float, high: float) -> bool:
    """Whether a parameter is a number strictly between two others."""
    if isinstance(value, Real):
        number = _to_float(value)
    else:
        number = math.nan
    return low < number < high


def is_measurable(value: object) -> bool:
    """Whether a parameter is a positive number with which doubles can still calculate."""
    return is_between(value, 1 / MEASURE, MEASURE)


def check_interval_share(share: Any) -> None:
    """Refuses what is no share that leaves something for the answer."""
    if share is None:
        return
    if not isinstance(share, int | float) or not 0 <= share <= MOST_INTERVAL_SHARE:
        raise InvalidParameter(
            "The share that buys the interval is not a share.",
            f"It lies between 0 and {MOST_INTERVAL_SHARE:g}.",
            "Pass a share such as 0.05, 0 to buy nothing, or nothing for what public numbers "
            "suggest.",
            parameter="interval_share",
        )


def check_flag(value: object, name: str) -> bool:
    """Returns a parameter that is true or false; refuses anything else."""
    if not isinstance(value, bool | np.bool_ | int):
        raise InvalidParameter(
            f"{name} is neither True nor False.", "", "Pass one of the two.", parameter=name
        )
    return bool(value)


def is_one_of(value: object, known: Collection[str]) -> bool:
    """Whether a parameter is one of these words."""
    return isinstance(value, str) and value in known


def _to_float(value: Any) -> float:
    """Returns a number as a double, NaN for what is none, and for one that is too large."""
    try:
        return float(value)
    except Exception:  # whatever somebody else's number raises
        return math.nan


def to_interval(bounds: BoundsLike | None) -> Interval:
    """Returns (low, high) of one column of numbers from a pair, or from the label of a Bounds or of
    a Schema.
    """
    if isinstance(bounds, Bounds):
        bounds = bounds.label
    if isinstance(bounds, Schema):
        return bounds.interval(bounds.require_label())
    if bounds is None:
        raise InvalidBounds(
            "No bounds are given.",
            "A lowest and a highest possible value must be declared from public knowledge.",
            "Give a lowest and a highest value, or a schema that has them; never take them from "
            "the data.",
            parameter="bounds",
        )
    try:
        low, high = (_to_float(limit) for limit in bounds)
    except Exception:  # what is no pair, in whatever way
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InvalidBounds(
            "Bounds are not two finite numbers.",
            "A lowest and a highest possible value must be declared from public knowledge.",
            "Give a lowest and a highest value, and never take them from the data.",
            parameter="bounds",
        )
    if low >= high or not 0 < (high - low) / 2 < math.inf:
        raise InvalidBounds(
            "Bounds are reversed, equal, or further apart than numbers reach.",
            "The lowest possible value must lie below the highest.",
            "Give the lowest value first, and then a higher one.",
            parameter="bounds",
        )
    return low, high


def _split_by_name(features: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Returns the lows and the highs of features that are declared by name."""
    pairs: list[Any] = []
    with suppress(Exception):  # what is no pair is refused below, without being quoted
        pairs = [(low, high) for low, high in features.values()]
    if not pairs or not all(isinstance(name, str) and name for name in features):
        raise InvalidBounds(
            "Bounds of features by name are not a pair of numbers for each column.",
            "Each feature needs a lowest and a highest possible value.",
            'Pass features={"age": (18, 99), ...}, one pair for each column.',
            parameter="bounds",
        )
    return [low for low, _ in pairs], [high for _, high in pairs]


def _check_box(
    features: tuple[ArrayLike, ArrayLike],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    try:
        masked = any(isinstance(limit, np.ma.MaskedArray) for limit in features)
        low, high = (np.asarray(limit, dtype=np.float64) for limit in features)
        shapes_agree = max(low.ndim, high.ndim) < 2 and (
            low.ndim == 0 or high.ndim == 0 or low.shape == high.shape
        )
        finite = bool(np.all(np.isfinite(low)) and np.all(np.isfinite(high)))
        valid = (
            shapes_agree
            and finite
            and not masked
            and bool(np.all(low <= high) and np.isfinite(high - low).all())
        )
    except Exception:  # what is no pair of limits, in whatever way
        valid = False
    if not valid:
        raise InvalidBounds(
            "Bounds of features are missing, reversed, not finite or of different lengths.",
            "Each feature needs a lowest and a highest possible value.",
            'Pass features=(low, high), two numbers or two arrays of equal length, or {"name": '
            "(low, high)} for each column.",
            parameter="bounds",
        )
    return low, high


@dataclass(frozen=True)
class Subject:
    """What a question is about, in public words: its column (of a model, the label), its table, and
    declared units.
    """

    column: str | None = None
    table: str | None = None
    units: Mapping[str, str] = field(default_factory=dict)  # by column


def set_table_name(subject: Subject, name: object) -> Subject:
    """Returns the subject with the table's name as the caller gives it, if they do."""
    if name is None:
        return subject
    if not isinstance(name, str) or not name or not name.isprintable():
        raise InvalidParameter(
            "The name of the table is not text on one line.",
            "It is printed in the release.",
            "Pass a few words.",
            parameter="name",
        )
    return replace(subject, table=name)


#: A day in text.
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
#: How long the cells of a table by date are.
PERIODS = ("day", "week", "month", "quarter", "year")


def _list_declared(described: Any, leave_out: str) -> str:
    """Returns the fields of a description that are not empty, as arguments after the first."""
    declared = [
        (part.name, getattr(described, part.name))
        for part in fields(described)
        if part.name != leave_out
    ]
    return "".join(f", {name}={value!r}" for name, value in declared if value not in (None, (), {}))


@dataclass(frozen=True)
class Column:
    """One column's public description: a number with a range, a factor with levels, a date with a
    first and a last day, or text.
    """

    kind: str
    low: float | str | None = None  # of a date: the first day, as 2024-01-31
    high: float | str | None = None
    levels: tuple[str, ...] = ()
    # the public constant that stands for a missing value; of a factor, one of its levels
    missing: float | str | None = None
    unit: str | None = None  # what its numbers count, such as EUR, for people who read an answer
    edges: tuple[float, ...] = ()  # of a number: where the bins of a table by it begin and end
    period: str | None = None  # of a date: how long the cells of a table by it are
    other: str | None = None  # of a factor: the level that stands for what is none of them
    step: float | None = None  # of a number: the distance of possible values, 1 for whole numbers

    def __repr__(self) -> str:
        """What is declared, and nothing else."""
        return f"Column({self.kind!r}{_list_declared(self, leave_out='kind')})"

    def __post_init__(self) -> None:
        if self.kind == "date":
            self._check_dates()
            return
        if self.kind == "factor":
            self._check_constants()
            return
        if self.edges:
            object.__setattr__(self, "edges", check_edges(self.edges, "schema.columns"))
        self._check_missing_number()
        self._check_step()

    @property
    def missing_number(self) -> float | None:
        """The number that stands for missing ones, None where there is none."""
        if self.kind == "factor" or self.missing is None:
            return None
        return float(self.missing)

    @property
    def is_feature(self) -> bool:
        """Whether a model can use it: text and dates are left out."""
        return self.kind in ("number", "factor")

    def _check_dates(self) -> None:
        for name in ("low", "high"):
            limit = getattr(self, name)
            if limit is not None:
                object.__setattr__(self, name, parse_day(limit, "schema.columns").isoformat())
        days = [limit for limit in (self.low, self.high) if limit is not None]
        known = self.period is None or is_one_of(self.period, PERIODS)
        if not known or days != sorted(days) or self.missing is not None:
            raise InvalidSchema(
                "The range or the period of a column of dates cannot be used.",
                f"low is a day that is not after high, and period one of {', '.join(PERIODS)}; "
                "a date that is missing has a cell of its own.",
                "Correct low, high and period, and leave missing out.",
                parameter="schema.columns",
            )

    def _check_constants(self) -> None:
        for level in (self.other, self.missing):
            # A number here meant nothing, and schemas with one keep opening.
            if isinstance(level, str) and level not in self.levels:
                raise InvalidSchema(
                    "What stands for other or for missing levels is none of the levels.",
                    "other and missing of a factor each name one of its levels.",
                    "Add it to the levels, or choose one of them, without looking at the values.",
                    parameter="schema.columns",
                )

    def _check_missing_number(self) -> None:
        low, constant, high = (
            None if limit is None else _to_float(limit)
            for limit in (self.low, self.missing, self.high)
        )
        text = any(isinstance(limit, str) for limit in (self.low, self.missing, self.high))
        if text and self.kind == "number":
            raise InvalidSchema(
                "The range of a number, or its constant for missing values, is text.",
                "low, high and missing of a number are numbers.",
                "Write them without quotes.",
                parameter="schema.columns",
            )
        if constant is not None and not (
            math.isfinite(constant)
            and not (low is not None and constant < low)
            and not (high is not None and high < constant)
        ):
            raise InvalidSchema(
                "A constant for missing values is not finite, or lies outside the range of its "
                "column.",
                "It stands for values, and these lie between low and high.",
                "Choose missing = between them, without looking at the values.",
                parameter="schema.columns",
            )

    def _check_step(self) -> None:
        if self.step is None:
            return
        width = math.inf
        if self.low is not None and self.high is not None:
            width = _to_float(self.high) - _to_float(self.low)
        if isinstance(self.step, bool) or not is_between(self.step, 0.0, math.inf):
            width = -math.inf
        if not _to_float(self.step) <= width:
            raise InvalidSchema(
                "The step of a column is not a positive number, or is wider than its range.",
                "Possible values are low, low + step, and so on.",
                "Write step = 1 for whole numbers, without looking at the values, or leave it out.",
                parameter="schema.columns",
            )
        object.__setattr__(self, "step", float(self.step))


COLUMN_KINDS = ("number", "factor", "date", "text")
#: Entries that came later: left out where a schema is recognised by its content, unless they are
#: given.
LATER_ENTRIES: dict[str, Any] = {"edges": (), "period": None, "other": None, "step": None}


def parse_day(value: Any, parameter: str) -> date:
    """Returns a day that was declared as a date, or as text like 2024-01-31; refuses others."""
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        if isinstance(value, str) and len(value) == len("2024-01-31"):
            return date.fromisoformat(value)
    except ValueError:
        pass  # raised below
    raise InvalidSchema(
        "A day is not written as a date.",
        "Days are written like 2024-01-31: year, month, day.",
        "Write it so.",
        parameter=parameter,
    )


def check_edges(edges: Any, parameter: str) -> tuple[float, ...]:
    """Returns edges of bins as numbers; refuses fewer than two, and numbers that do not rise."""
    try:
        numbers = tuple(_to_float(edge) for edge in edges)
    except TypeError:
        numbers = ()
    rising = all(low < high for low, high in pairwise(numbers))
    if len(numbers) < 2 or not rising or not all(map(math.isfinite, numbers)):
        raise InvalidBounds(
            "The edges of bins are not two or more finite numbers in rising order.",
            "Each bin reaches from one edge to the next.",
            "Sort the edges, and name each once, such as 0, 18, 65, 100.",
            parameter=parameter,
        )
    return numbers


@dataclass(frozen=True)
class Schema:
    """The public description of a table, kept in a TOML file beside it.

    >>> schema = Schema.loads('''
    ... person = "id"
    ... budget = "epsilon"
    ... label = "salary"
    ... [columns.salary]
    ... kind = "number"
    ... low = 0
    ... high = 200_000
    ... ''')
    >>> schema.interval("salary")
    (0.0, 200000.0)
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    person: str | None = None
    budget: str | None = None
    label: str | None = None
    tiers: Mapping[str, float] = field(default_factory=dict)
    name: str | None = None  # what the table is called in a release

    def __repr__(self) -> str:
        """What is declared, and nothing else."""
        return f"Schema({dict(self.columns)!r}{_list_declared(self, leave_out='columns')})"

    @property
    def units(self) -> dict[str, str]:
        """The declared units, by column."""
        return {name: column.unit for name, column in self.columns.items() if column.unit}

    def __post_init__(self) -> None:
        names = (self.person, self.budget, self.label)
        known = isinstance(self.columns, Mapping) and all(
            isinstance(name, str) and isinstance(column, Column)
            for name, column in self.columns.items()
        )
        priced = isinstance(self.tiers, Mapping) and all(
            isinstance(name, str) and is_between(price, 0, math.inf)
            for name, price in self.tiers.items()
        )
        if not (
            known
            and priced
            and all(name is None or (isinstance(name, str) and name) for name in names)
        ):
            raise InvalidSchema(
                "An entry of the schema is of the wrong kind.",
                "person, budget and label name columns; columns are described by name, and a "
                "tier's entry is its ε.",
                "Correct it; `sottovoce schema draft` shows the form.",
                parameter="schema",
            )

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema from a TOML file.

        Parameters
        ----------
        path : str | Path
            The file.

        Returns
        -------
        Schema
            The schema.

        Raises
        ------
        InvalidSchema
            The file cannot be read, or is not one.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            reason = error.strerror or "it cannot be read"
        except UnicodeDecodeError:
            reason = "it is not UTF-8 text"
        except (TypeError, ValueError):
            reason = "this is not a path"
        else:
            return cls.loads(text)
        raise InvalidSchema(
            f"The schema file cannot be opened: {reason}.",
            "",
            "Check its path.",
            parameter="schema",
        )

    @classmethod
    def loads(cls, text: str) -> Schema:
        """Read a schema from TOML text.

        Parameters
        ----------
        text : str
            The text.

        Returns
        -------
        Schema
            The schema.

        Raises
        ------
        InvalidSchema
            The text is not one.
        """
        reason = "it is not text"
        content = None
        try:
            if isinstance(text, str):
                content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            reason = str(error)
        except (RecursionError, ValueError, OverflowError):
            reason = "it is nested too deeply, or holds a number that is too large"
        if content is None:
            raise InvalidSchema(
                f"The schema is not TOML: {reason}.",
                "",
                "Start from `sottovoce schema draft`.",
                parameter="schema",
            )
        _refuse_wrong_types(content)
        columns = {
            name: _parse_column(name, entry) for name, entry in content.pop("columns", {}).items()
        }
        unknown = set(content) - {"person", "budget", "label", "tiers", "name"}
        if unknown:
            raise InvalidSchema(
                f"The schema has an entry {min(unknown)!r} that means nothing.",
                "Entries are name, person, budget, label, tiers and columns.",
                "Remove it or correct its name.",
                parameter="schema",
            )
        return cls(columns=columns, **content)

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Any],
        *,
        label: str | None = None,
        person: str | None = None,
        budget: str | None = None,
        tiers: Mapping[str, float] | None = None,
        name: str | None = None,
    ) -> Schema:
        """Return the schema of columns that are described shortly.

        >>> schema = Schema.of({"age": (18, 99), "smoker": ["no", "yes"]}, person="id")
        >>> schema.interval("age"), schema.columns["smoker"].levels
        ((18.0, 99.0), ('no', 'yes'))

        Parameters
        ----------
        columns : Mapping[str, Any]
            By name: two numbers, the ends of a range; two days, as dates or as text in a tuple
            such as ("2024-01-01", "2024-12-31"), the ends of a range of dates; a list of levels;
            or a Column.
        label, person, budget : str, optional
            The column that questions are about, that of people's names, and that of their ε.
        tiers : Mapping[str, float], optional
            The ε of each word in the column of budgets.
        name : str, optional
            What the table is called in a release.

        Returns
        -------
        Schema
            The schema.

        Raises
        ------
        InvalidSchema
            A column is described in another way.
        """
        if not isinstance(columns, Mapping):
            raise _short_form_error()
        described = {column: _describe_shortly(told) for column, told in columns.items()}
        return cls(described, person, budget, label, tiers or {}, name)

    def require_label(self) -> str:
        """Return the column that questions are about.

        Returns
        -------
        str
            Its name.

        Raises
        ------
        InvalidBounds
            The schema names none.
        """
        if self.label is None:
            raise InvalidBounds(
                "The schema does not say which column is the label.",
                "It is the column that questions are about.",
                'Add label = "..." to it.',
                parameter="schema.label",
            )
        return self.label

    def interval(self, column: str) -> Interval:
        """Return the declared range of a column of numbers.

        Parameters
        ----------
        column : str
            Its name.

        Returns
        -------
        Interval
            The lowest and the highest value.

        Raises
        ------
        InvalidSchema
            There is no such column, or its range was left blank.
        """
        entry = self.columns.get(column)
        if entry is None or entry.kind != "number" or entry.low is None or entry.high is None:
            raise InvalidSchema(
                f"The schema does not give the range of {column!r}.",
                "A number needs low and high, from public knowledge.",
                f"Fill in low and high under [columns.{column}].",
                parameter="schema.columns",
            )
        return to_interval((_to_float(entry.low), _to_float(entry.high)))

    @staticmethod
    def draft(types: Iterable[tuple[str, str]]) -> str:
        """Return TOML text for these columns, with every range left blank.

        Parameters
        ----------
        types : Iterable[tuple[str, str]]
            Names and kinds of columns.

        Returns
        -------
        str
            The text.
        """
        return _DRAFT_HEAD + "".join(_draft_column(name, kind) for name, kind in types)


#: Limits of one column, (low, high), or of features and label.
BoundsLike = Interval | Sequence[float] | Floats | Bounds | Schema


def _refuse_wrong_types(content: dict[str, Any]) -> None:
    tables = all(isinstance(content.get(name, {}), dict) for name in ("columns", "tiers"))
    names = all(
        isinstance(content.get(name, ""), str) for name in ("person", "budget", "label", "name")
    )
    prices = tables and all(isinstance(v, int | float) for v in content.get("tiers", {}).values())
    if not (tables and names and prices):
        raise InvalidSchema(
            "An entry of the schema is of the wrong kind.",
            "person, budget and label name columns, and name the table; [columns] and [tiers] are "
            "tables, and a tier's entry is its ε.",
            "Correct it; `sottovoce schema draft` shows the form.",
            parameter="schema",
        )


_DRAFT_HEAD = """\
# The public description of a table. Fill in what is blank from knowledge outside the data: what a
# value can be, not what the values are. Ranges are left blank on purpose: a range read off the data
# would publish its largest and smallest values.

# name = ""     # what the table is called in a release; else the name of its file
# person = ""   # the column that says whose row it is
# budget = ""   # the column with everybody's ε (or a tier; then list the tiers' ε under [tiers])
# label = ""    # the column that questions are about
"""


def _draft_column(name: str, kind: str) -> str:
    blanks = {
        "number": "# low =\n# high =\n# missing =   # a public constant for missing values\n"
        '# unit =   # what it counts, such as "EUR"\n'
        "# step =   # 1 if all its values are whole numbers\n",
        "factor": "# levels = []\n",
        "date": '# low =   # the first day, such as "2024-01-01"\n# high =   # the last day\n'
        '# period =   # of a table by it: "day", "week", "month", "quarter" or "year"\n',
    }
    return f'\n[columns.{quote_key(name)}]\nkind = "{kind}"\n{blanks.get(kind, "")}'


def quote_key(name: str) -> str:
    """Return the name of a column as TOML writes it after [columns."""
    if name.replace("_", "").replace("-", "").isalnum() and name.isascii():
        return name
    return quote_toml(name)


def quote_toml(text: str) -> str:
    """Return text in quotes as TOML reads it, whatever is in it."""
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{escaped}"'


def _short_form_error() -> InvalidSchema:
    return InvalidSchema(
        "A column is not described.",
        "It is two numbers, two days, a list of levels as text, or a Column, by its name.",
        'Pass such as {"age": (18, 99), "smoker": ["no", "yes"]}.',
        parameter="schema.columns",
    )


def _is_day(told: object) -> bool:
    """Whether text is a day as schemas write it, such as 2024-01-31."""
    return isinstance(told, str) and DAY.fullmatch(told) is not None


def _describe_shortly(told: Any) -> Column:
    if isinstance(told, Column):
        return told
    if not isinstance(told, list | tuple) or not told:
        raise _short_form_error()
    if isinstance(told, tuple) and len(told) == 2 and all(map(_is_day, told)):
        return Column("date", *told)
    if all(isinstance(one, str) for one in told):
        if len(set(told)) < len(told):
            raise _short_form_error()
        return Column("factor", levels=tuple(told))
    if len(told) != 2:
        raise _short_form_error()
    low, high = told
    if any(isinstance(end, bool) for end in told):
        raise _short_form_error()
    if all(isinstance(day, date) for day in told):
        return Column("date", low.isoformat()[:10], high.isoformat()[:10])
    if any(isinstance(end, date) for end in told):
        raise _short_form_error()
    return Column("number", *to_interval((low, high)))


def _parse_column(name: str, entry: Any) -> Column:
    try:
        listed = {word: tuple(entry.get(word, ())) for word in ("levels", "edges")}
        listed["levels"] = tuple(map(str, listed["levels"]))
        column = Column(**{"kind": _infer_kind(entry), **entry, **listed})
        known = isinstance(column.kind, str) and column.kind in COLUMN_KINDS
    except (TypeError, AttributeError):
        known = False
    if known:
        known = _has_known_entries(column)
    if not known:
        raise InvalidSchema(
            f"The column {name!r} is not described by known words.",
            f"A column has a kind ({', '.join(COLUMN_KINDS)}), which may be left out where levels, "
            "a period, or low and high tell it; a number also low, high, missing, unit, step and "
            "edges, a factor levels, other and missing, a date low, high and period.",
            "Correct its entry.",
            parameter="schema.columns",
        )
    return column


def _infer_kind(entry: dict[str, Any]) -> str | None:
    """The kind that a column's other entries leave no doubt about: levels, a period, or limits."""
    if "levels" in entry:
        return "factor"
    if "period" in entry or isinstance(entry.get("low"), str):
        return "date"
    if "low" in entry and "high" in entry:
        return "number"
    return None


def _has_known_entries(column: Column) -> bool:
    """Whether a column has entries of its own kind alone, and limits of a number are numbers."""
    if column.kind == "date":
        limits: tuple[Any, ...] = ()
    elif column.kind == "factor":
        limits = (column.low, column.high)
    else:
        limits = (column.low, column.high, column.missing)
    numbers = all(
        v is None or (isinstance(v, int | float) and math.isfinite(_to_float(v))) for v in limits
    )
    misplaced = (
        ((column.edges or column.step is not None) and column.kind != "number")
        or (column.period is not None and column.kind != "date")
        or (column.other is not None and column.kind != "factor")
    )
    return numbers and not misplaced and (column.unit is None or isinstance(column.unit, str))


#: What two classes are called where nobody says otherwise.
DEFAULT_CLASSES = (0, 1)


@dataclass(frozen=True)
class Classes:
    """The possible labels, in order; ``values`` are numbers or text.

    >>> Classes(("no", "yes")).codes(["yes", "no"]).tolist()
    [1.0, 0.0]
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2 or len(set(map(format_class, self.values))) < len(self.values):
            raise InvalidParameter(
                "Fewer than two different classes are declared.",
                "A label that can have one value only has nothing to predict.",
                "Pass classes=(first, second, …), all different.",
                parameter="classes",
            )

    @classmethod
    def from_declaration(
        cls,
        classes: ColumnLike | None = None,
        bounds: BoundsLike | None = None,
        public_labels: ColumnLike | None = None,
    ) -> Classes:
        """The classes as passed; else those of the schema, of public rows, the label's two bounds,
        or (0, 1).
        """
        if classes is not None:
            return cls(tuple(to_column(classes, "classes").tolist()))
        if isinstance(bounds, Schema):
            return cls(_read_levels(bounds))
        if public_labels is not None:
            return cls(tuple(sorted(set(to_column(public_labels, "public labels").tolist()))))
        if isinstance(bounds, Bounds) and bounds.label is not None:
            ends = bounds.label
        else:
            ends = DEFAULT_CLASSES
        return cls(tuple(int(end) if float(end).is_integer() else end for end in ends))

    @property
    def levels(self) -> tuple[str, ...]:
        """The classes as text, as they stand in a file."""
        return tuple(map(format_class, self.values))

    def find_codes(self, labels: ColumnLike) -> Floats:
        """Returns the number of each label's class, NaN for a label that is not declared."""
        given = to_column(labels, "labels")
        if given.dtype.kind in "buif":
            return self._find_number_codes(given)
        return self._find_text_codes(given)

    def codes(self, labels: ColumnLike) -> Floats:
        """Returns the number of each label's class; refuses a label that is not declared, without
        repeating it.
        """
        found = self.find_codes(labels)
        if np.isnan(found).any():
            raise undeclared_class_error(self)
        return found

    def decode(self, codes: Any) -> Array:
        """Returns the classes with these numbers."""
        return np.array(self.values)[np.asarray(codes, dtype=np.int64)]

    def _find_number_codes(self, given: Array) -> Floats:
        found = np.full(len(given), math.nan)
        for code, level in enumerate(self.levels):
            number = _parse_number(level)
            if number is not None:
                found[given == number] = code
        return found

    def _find_text_codes(self, given: Array) -> Floats:
        place = {level: float(code) for code, level in enumerate(self.levels)}
        found = [
            math.nan if is_missing(label) else place.get(format_class(label), math.nan)
            for label in given.tolist()
        ]
        return np.array(found, dtype=np.float64)


def undeclared_class_error(classes: Classes) -> InvalidData:
    """The refusal of a label that is none of the declared classes."""
    return InvalidData(
        "A label is none of the declared classes.",
        f"Declared are: {', '.join(classes.levels)}.",
        "Declare every class that can occur, from public knowledge, or correct the labels.",
        parameter="y",
    )


def format_class(value: object) -> str:
    """Returns a class as text; a number without a fraction is written without one, as 1.0 and 1 are
    one class.
    """
    if isinstance(value, bool | np.bool_):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _parse_number(level: str) -> float | None:
    try:
        return float(level)
    except ValueError:
        return None


def _read_levels(schema: Schema) -> tuple[str, ...]:
    if schema.label is None:
        entry = None
    else:
        entry = schema.columns.get(schema.label)
    if entry is None or entry.kind != "factor" or not entry.levels:
        raise InvalidBounds(
            "The schema does not list the classes of the label.",
            "A label to classify is a factor with levels.",
            'Add label = "…" and its levels to the schema, or pass classes=.',
            parameter="schema.label",
        )
    return tuple(entry.levels)


def choose_budget_column(schema: Schema, names: list[str] | None, epsilon: Any) -> str | None:
    """Returns the column of budgets of a table in memory: the one that was named, or the schema's
    where no ε is given.
    """
    if isinstance(epsilon, str) and names is not None:
        return epsilon
    if epsilon is not None or schema.budget is None:
        return None
    if names is None or schema.budget not in names:
        raise MissingColumn(
            f"The schema names a column of budgets, {schema.budget!r}, that this table does not "
            "have.",
            "Everybody's own ε is in that column.",
            "Pass a table that has it, or pass epsilon=.",
            parameter="epsilon",
        )
    return schema.budget


def no_label_error() -> InvalidSchema:
    """What is said where a model is asked for and no label is named."""
    return InvalidSchema(
        "There is no schema, or it does not say which column is the label.",
        "A model needs a label and features with their ranges or levels, from public knowledge.",
        'Write one with `sottovoce schema draft`, fill it in, and add label = "..." to it.',
        parameter="schema.label",
    )


def refuse_no_classes(label: str, described: Column | None) -> None:
    """Refuses a label that is no factor with two or more levels, all different."""
    if described is None or described.kind != "factor":
        levels: tuple[str, ...] = ()
    else:
        levels = described.levels
    if len(set(map(format_class, levels))) < max(len(levels), 2):
        raise InvalidSchema(
            f"The schema does not give {label!r} two or more levels, all different.",
            "A label to classify is a factor, and its levels are the classes that can occur, "
            "from public knowledge.",
            f'Write kind = "factor" and levels = ["...", "..."] under [columns.{label}].',
            parameter="schema.columns",
        )


def encode_bounds(bounds: Any, columns: Collection[str] = ()) -> Any:
    """Return declared bounds as a release holds them.

    Parameters
    ----------
    bounds :
        a pair, Bounds, or a Schema.
    columns :
        of a schema, the columns that are described: those that the release is about.

    Returns
    -------
    Any
        plain values for JSON; None where there are no bounds.
    """
    if bounds is None:
        return None
    if isinstance(bounds, Schema):
        described = {name: bounds.columns[name] for name in bounds.columns if name in columns}
        return {
            "label": bounds.label,
            "columns": {name: encode_column(column) for name, column in described.items()},
        }
    if isinstance(bounds, Bounds):
        content: dict[str, Any] = {}
        if bounds.names is not None:
            content["features"] = bounds.list_limits_by_name()
        elif bounds.box is not None:
            content["features"] = [np.asarray(limit).tolist() for limit in bounds.box]
        if bounds.label is not None:
            content["label"] = list(bounds.label)
        if bounds.norm is not None:
            content["norm"] = float(bounds.norm)
        return content
    return list(to_interval(bounds))


def encode_column(column: Column) -> dict[str, Any]:
    """Return what is declared of a column as a release holds it."""
    content: dict[str, Any] = {"kind": column.kind}
    for name in ("low", "high", "missing"):
        limit = getattr(column, name)
        if isinstance(limit, str):
            content[name] = limit
        elif limit is not None:
            content[name] = float(limit)
    for name in ("levels", "edges"):
        if getattr(column, name):
            content[name] = list(getattr(column, name))
    for name in ("period", "other", "step"):
        if getattr(column, name) is not None:
            content[name] = getattr(column, name)
    return content


def decode_bounds(content: Any) -> Any:
    """Return the bounds that a release holds; a ValueError or TypeError if they are none."""
    if content is None:
        return None
    if isinstance(content, list):
        return to_interval(content)
    if "columns" not in content:
        return Bounds(**content)
    columns = {name: decode_column(column) for name, column in content["columns"].items()}
    return Schema(columns=columns, label=content["label"])


def decode_column(content: Mapping[str, Any]) -> Column:
    """Return a column as a release holds it; a ValueError or TypeError if it is none."""
    listed = {word: tuple(content.get(word, ())) for word in ("levels", "edges")}
    return Column(**{**content, **listed})


def check_missing_constant(missing: Any, low: float, high: float) -> float | None:
    """Returns the constant that stands for missing values, or None; refuses what is no number
    between the bounds.
    """
    if missing is None:
        return None
    try:
        constant = float(missing)
    except Exception:  # what is no number, in whatever way
        constant = math.nan
    if not math.isfinite(constant):
        raise InvalidParameter(
            "What should stand for missing values is not a finite number.",
            "",
            "Choose a public constant, or none.",
            parameter="missing",
        )
    if not low <= constant <= high:
        raise InvalidParameter(
            "What should stand for missing values lies outside the bounds of a column.",
            "It stands for values, and these lie between the bounds.",
            "Choose a constant between them; columns with constants of their own are declared in "
            "a schema.",
            parameter="missing",
        )
    return constant
