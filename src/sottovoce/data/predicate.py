# SPDX-License-Identifier: Apache-2.0
"""Predicate: which rows a question is about, as public text over described columns.

    filter      = all ("or" all)*
    all         = one ("and" one)*
    one         = "not" one | "(" filter ")" | column operator value | value operator column
                | column ["not"] "in" "[" value ("," value)* "]" | column "is" ["not"] "missing"
    operator    = "==" | "!=" | "<" | "<=" | ">" | ">="
    column      = letters, digits and _, or anything between `backquotes`
    value       = a number, 'text' or "text" (a quote inside is written twice), a date 2024-01-31

The parser is written by hand and knows nothing but this; no text is ever evaluated. ``not`` is
carried inwards when the text is read, so that what is left are comparisons, *and* and *or*: a row
with a missing value satisfies no comparison, whether or not ``not`` stands before it, as in SQL.
Constants that a schema declares for missing values and for unknown levels stand for them here too.
A filter is a group like others: how many rows satisfy it is private, and the rest has a cell.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sottovoce.data.cell_columns import EPOCH, MOST_WHOLE, NO_DAY, find_levels, is_text, read_days
from sottovoce.data.engine import as_floats
from sottovoce.data.kernels import GroupKey
from sottovoce.errors import InvalidParameter
from sottovoce.schema import (
    Column,
    Schema,
    decode_column,
    encode_column,
    format_class,
    quote_key,
)

Matches = NDArray[np.bool_]

#: No filter is longer, or nested more deeply.
MAX_LENGTH = 10_000
MAX_DEPTH = 50
#: A refusal quotes no more of it.
MOST_QUOTED = 40
#: Canonical text has brackets around every "and" inside an "or", and is longer and deeper by less
#: than this.
CANONICAL_FACTOR = 8

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPPOSITES = {
    "==": "!=",
    "!=": "==",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "in": "not in",
    "not in": "in",
    "is missing": "is not missing",
    "is not missing": "is missing",
}
#: What a comparison says when its sides are exchanged.
MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
WORDS = ("and", "or", "not", "in", "is", "missing")
SIGNS = {
    "a date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?![0-9])"),
    "a number": re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.])"),
    "text": re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""),
    "a quoted name": re.compile(r"`(?:[^`]|``)+`"),
    "a name": re.compile(r"[^\W\d]\w*"),
    "a sign": re.compile(r"==|!=|<=|>=|<|>|\(|\)|\[|\]|,"),
}
BLANK = re.compile(r"\s*")


@dataclass(frozen=True)
class Condition:
    """One comparison of a column with public values."""

    column: str
    operator: str
    values: tuple[Any, ...]  # numbers, text, or days as dates
    described: Column

    def negate(self) -> Condition:
        """Returns the opposite comparison; a missing value satisfies neither."""
        return replace(self, operator=OPPOSITES[self.operator])

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def kinds(self) -> dict[str, Column]:
        """What is declared of the column."""
        return {self.column: self.described}

    def list_group_keys(self) -> tuple[GroupKey, ...]:
        """Returns how rows may be grouped without changing whether they satisfy it."""
        if self.described.kind == "number":
            return (GroupKey(self.column, "points", self.values),)
        if self.described.kind == "date":
            return (GroupKey(self.column, "day"),)
        return (GroupKey(self.column),)

    def write(self) -> str:
        """Returns the canonical text."""
        name = write_name(self.column)
        if self.operator in ("in", "not in"):
            return f"{name} {self.operator} [{', '.join(map(write_value, self.values))}]"
        return " ".join([name, self.operator, *map(write_value, self.values)])

    def matches(self, batch: Any) -> Matches:
        """Returns which rows satisfy it."""
        column = batch.column(self.column)
        entries, present, values = self._read(column)
        if self.operator == "is missing":
            return ~present
        if self.operator == "is not missing":
            return present
        if self.operator == "in":
            return np.isin(entries, values) & present
        if self.operator == "not in":
            return ~np.isin(entries, values) & present
        return np.asarray(COMPARISONS[self.operator](entries, values[0]) & present)

    def _read(self, column: Any) -> tuple[Any, Matches, Any]:
        """Returns the entries as numbers, which of them are there, and the values likewise."""
        if self.described.kind == "number":
            numbers = as_floats(column)
            constant = self.described.missing_number
            if constant is not None:
                numbers = np.where(np.isnan(numbers), constant, numbers)
            return numbers, ~np.isnan(numbers), np.array(self.values, dtype=np.float64)
        if self.described.kind == "date":
            days = read_days(column)
            values = [(day - EPOCH).days for day in self.values]
            return days, days != NO_DAY, np.array(values, dtype=np.int64)
        # Only the values themselves have to be told apart in free text.
        levels = self.described.levels or tuple(dict.fromkeys(self.values))
        other, missing = find_constants(self.described, levels)
        if self.described.kind == "text" and not is_text(column.type):
            column = column.cast("string")
        codes = find_levels(column, levels, other, missing)
        values = [levels.index(value) for value in self.values]
        return codes, codes != len(levels) + 1, np.array(values, dtype=np.int64)


def find_constants(described: Column, levels: tuple[str, ...]) -> tuple[int, int]:
    """Returns the numbers that unknown levels and missing values get: of the declared constants,
    or the two numbers after the levels.
    """
    other = len(levels)
    missing = len(levels) + 1
    if described.other in levels:
        other = levels.index(str(described.other))
    if described.missing is not None and format_class(described.missing) in levels:
        missing = levels.index(format_class(described.missing))
    return other, missing


@dataclass(frozen=True)
class Combination:
    """Several conditions joined by *and* or by *or*."""

    word: str
    parts: tuple[Condition | Combination, ...]

    def negate(self) -> Combination:
        """Returns the opposite, with *not* carried to the comparisons."""
        other = {"and": "or", "or": "and"}[self.word]
        return Combination(other, tuple(part.negate() for part in self.parts))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, each once."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.columns))

    @property
    def kinds(self) -> dict[str, Column]:
        """What is declared of them."""
        return {name: column for part in self.parts for name, column in part.kinds.items()}

    def list_group_keys(self) -> tuple[GroupKey, ...]:
        """Returns how rows may be grouped without changing whether they satisfy it."""
        return tuple(key for part in self.parts for key in part.list_group_keys())

    def write(self) -> str:
        """Returns the canonical text."""
        texts = [
            f"({part.write()})" if isinstance(part, Combination) else part.write()
            for part in self.parts
        ]
        return f" {self.word} ".join(texts)

    def matches(self, batch: Any) -> Matches:
        """Returns which rows satisfy it."""
        first, *rest = self.parts
        found = first.matches(batch)
        for part in rest:
            if self.word == "and":
                found = found & part.matches(batch)
            else:
                found = found | part.matches(batch)
        return found


@dataclass(frozen=True)
class Predicate:
    """A filter that was read from text and checked against a schema.

    >>> ill = Column("factor", levels=("y", "n"))
    >>> schema = Schema(columns={"age": Column("number"), "ill": ill})
    >>> Predicate.parse("not (age > 40 or ill == 'y')", schema).text
    "age <= 40 and ill != 'y'"
    """

    tree: Condition | Combination

    @classmethod
    def parse(cls, text: Any, schema: Schema | None) -> Predicate:
        """Return the filter that a text writes.

        Parameters
        ----------
        text : str
            The text.
        schema : Schema, optional
            The description of its columns.

        Returns
        -------
        Predicate
            The filter.

        Raises
        ------
        InvalidParameter
            The text is no filter, or asks about a column or a level that is not described.
        """
        return cls(_Parser(text, schema or Schema()).parse())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are compared, each once."""
        return self.tree.columns

    @property
    def number_columns(self) -> tuple[str, ...]:
        """Those that hold numbers, which text files have to be told."""
        return tuple(name for name, column in self.kinds.items() if column.kind == "number")

    @property
    def kinds(self) -> dict[str, Column]:
        """What is declared of its columns."""
        return self.tree.kinds

    @cached_property
    def text(self) -> str:
        """The filter as canonical text."""
        return self.tree.write()

    def matches(self, batch: Any) -> Matches:
        """Returns which rows of a batch satisfy the filter."""
        return self.tree.matches(batch)

    def list_group_keys(self) -> tuple[GroupKey, ...]:
        """Returns the columns by which rows may be grouped without changing who satisfies it."""
        return self.tree.list_group_keys()

    def to_dict(self) -> dict[str, Any]:
        """The filter as public JSON."""
        kinds = {name: encode_column(column) for name, column in self.kinds.items()}
        return {"text": self.text, "columns": kinds}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Predicate:
        """Reads a filter back from a release."""
        columns = {name: decode_column(entry) for name, entry in content["columns"].items()}
        return cls(_Parser(content["text"], Schema(columns=columns), CANONICAL_FACTOR).parse())


def write_name(name: str) -> str:
    """Returns the name of a column as a filter writes it."""
    if SIGNS["a name"].fullmatch(name) and name.lower() not in WORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def write_value(value: Any) -> str:
    """Returns a number, a text or a day as a filter writes it."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if abs(value) < MOST_WHOLE:
        return format_class(value)
    return repr(value)


class _Parser:
    """Reads a filter sign by sign."""

    def __init__(self, text: Any, schema: Schema, factor: int = 1) -> None:
        if not isinstance(text, str) or len(text) > factor * MAX_LENGTH:
            _refuse("The filter is no text, or too long.", f"It has up to {MAX_LENGTH:,} signs.")
        self._schema = schema
        self._deepest = factor * MAX_DEPTH
        self._signs = _split_signs(text)
        self._at = 0

    def parse(self) -> Condition | Combination:
        """Returns the tree of the whole text."""
        tree = self._read_joined("or", 0)
        if self._peek() is not None:
            _refuse(
                f"The filter goes on {self._tell_place()}, after a whole condition.",
                "Conditions are joined by and, or.",
            )
        return tree

    def _tell_place(self) -> str:
        """Returns where reading has come to, in words."""
        there = self._peek()
        if there is None:
            return "at its end"
        return f"where it has {there[1][:MOST_QUOTED]!r}"

    def _peek(self) -> tuple[str, str] | None:
        if self._at < len(self._signs):
            return self._signs[self._at]
        return None

    def _take(self, *wanted: str) -> str | None:
        """Returns the next sign or word and goes on, if it is one of these."""
        there = self._peek()
        if there is None:
            return None
        kind, text = there
        word = text.lower() if kind == "a name" else text
        if kind in ("a name", "a sign") and word in wanted:
            self._at += 1
            return word
        return None

    def _require(self, *wanted: str) -> str:
        found = self._take(*wanted)
        if found is None:
            _refuse(
                f"The filter lacks {' or '.join(wanted)} {self._tell_place()}.",
                "A condition is a column, a comparison and a value, such as age > 40.",
            )
        return found

    def _read_joined(self, word: str, depth: int) -> Condition | Combination:
        """Reads conditions joined by ``or``, or by ``and``, which binds them more closely."""
        if depth > self._deepest:
            _refuse("The filter is nested too deeply.", f"It has up to {MAX_DEPTH} levels.")
        parts = [self._read_part(word, depth)]
        while self._take(word):
            parts.append(self._read_part(word, depth))
        if len(parts) == 1:
            return parts[0]
        flat = [
            each
            for part in parts
            for each in (
                part.parts if isinstance(part, Combination) and part.word == word else (part,)
            )
        ]
        return Combination(word, tuple(flat))

    def _read_part(self, word: str, depth: int) -> Condition | Combination:
        if word == "or":
            return self._read_joined("and", depth)
        if self._take("not"):
            if depth > self._deepest:
                _refuse("The filter is nested too deeply.", f"It has up to {MAX_DEPTH} levels.")
            return self._read_part(word, depth + 1).negate()
        if self._take("("):
            inside = self._read_joined("or", depth + 1)
            self._require(")")
            return inside
        return self._read_condition()

    def _read_condition(self) -> Condition:
        there = self._peek()
        if there is not None and there[0] in ("a number", "a date", "text"):
            value = self._read_literal()
            found = MIRRORED[self._require(*COMPARISONS)]
            name = self._read_name()
            return self._make(name, found, (value,))
        name = self._read_name()
        found = self._require(*COMPARISONS, "in", "not", "is")
        if found == "is":
            negated = self._take("not")
            self._require("missing")
            return self._make(name, "is not missing" if negated else "is missing", ())
        if found == "not":
            self._require("in")
            return self._make(name, "not in", self._read_list())
        if found == "in":
            return self._make(name, "in", self._read_list())
        return self._make(name, found, (self._read_literal(),))

    def _read_name(self) -> str:
        there = self._peek()
        if there is None or there[0] not in ("a name", "a quoted name"):
            _refuse(
                f"The filter lacks the name of a column {self._tell_place()}.",
                "Text stands in quotes, and names of columns do not.",
            )
        kind, text = there
        if kind == "a name" and text.lower() in WORDS:
            _refuse(
                f"The filter has {text!r} where the name of a column is expected.",
                "A column that is called so is written between backquotes.",
            )
        self._at += 1
        if kind == "a quoted name":
            return text[1:-1].replace("``", "`")
        return text

    def _read_list(self) -> tuple[Any, ...]:
        self._require("[")
        values = [self._read_literal()]
        while self._take(","):
            values.append(self._read_literal())
        self._require("]")
        return tuple(values)

    def _read_literal(self) -> Any:
        there = self._peek()
        if there is None or there[0] not in ("a number", "a date", "text"):
            _refuse(
                f"The filter lacks a value {self._tell_place()}.",
                "A value is a number, text in quotes, or a date such as 2024-01-31.",
            )
        self._at += 1
        kind, text = there
        if kind == "a date":
            return _parse_date(text)
        if kind == "text":
            return text[1:-1].replace(text[0] * 2, text[0])
        number = float(text)
        if not math.isfinite(number):
            _refuse("A number of the filter is too large.", "Numbers are finite.")
        return number

    def _make(self, name: str, found: str, values: tuple[Any, ...]) -> Condition:
        described = self._schema.columns.get(name)
        if described is None:
            known = ", ".join(self._schema.columns) or "none"
            _refuse(
                f"The filter asks about {name!r}, which the schema does not describe.",
                f"Columns of a filter are public by their description; described are: {known}.",
                f"Describe it under [columns.{quote_key(name)}] in the schema.",
            )
        values = tuple(_convert_value(name, described, found, value) for value in values)
        return Condition(name, found, values, described)


def _split_signs(text: str) -> list[tuple[str, str]]:
    """Returns the signs of a filter with their kinds."""
    signs = []
    at = _skip_blank(text, 0)
    while at < len(text):
        found = [(kind, pattern.match(text, at)) for kind, pattern in SIGNS.items()]
        kind, match = next((one for one in found if one[1]), ("", None))
        if match is None:
            _refuse(
                f"The filter has a sign that means nothing, at place {at + 1}.",
                "It has columns, == != < <= > >=, in [..], and, or, not, is missing, numbers, "
                "dates, and text in quotes, in which a quote is written twice.",
            )
        signs.append((kind, match.group()))
        at = _skip_blank(text, match.end())
    return signs


def _skip_blank(text: str, at: int) -> int:
    match = BLANK.match(text, at)
    return at if match is None else match.end()


def _parse_date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        pass  # raised below
    _refuse("A date of the filter is on no calendar.", "Dates are written like 2024-01-31.")


def _convert_value(name: str, described: Column, found: str, value: Any) -> Any:
    """Returns a value as its column compares it; refuses one of another kind."""
    kind = described.kind
    if kind == "number":
        if not isinstance(value, float):
            _refuse(f"{name!r} is a number, and is compared with something else.")
        return value
    if kind == "date":
        if isinstance(value, str):
            value = _parse_date(value)
        if not isinstance(value, date):
            _refuse(f"{name!r} is a date, and is compared with something else.")
        return value
    if found not in ("==", "!=", "in", "not in"):
        _refuse(
            f"{name!r} has no order in which {found} means something.",
            "Levels and text are compared by == and !=, or with in [..].",
        )
    if isinstance(value, date):
        value = value.isoformat()
    level = format_class(value)
    if not level:
        _refuse(
            f"{name!r} is compared with empty text.",
            "Empty text is a missing value, as it is in text files.",
            f"Write {write_name(name)} is missing.",
        )
    if kind == "factor" and level not in described.levels:
        listed = ", ".join(described.levels) or "none"
        _refuse(
            f"The filter names a level that {name!r} does not have.",
            f"Its declared levels are: {listed}.",
            f"Correct the level, or list it under [columns.{quote_key(name)}] in the schema.",
        )
    return level


def _refuse(found: str, required: str = "", remedy: str = "Correct the filter.") -> NoReturn:
    raise InvalidParameter(found, required, remedy, parameter="where")
