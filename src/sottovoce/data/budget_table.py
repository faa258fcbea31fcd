# SPDX-License-Identifier: Apache-2.0
"""Budgets that live apart from the rows: in a table of their own with one line a person, or in a
mapping.

They are read once, as public as budgets are, and matched with the people of the census. Somebody
with rows and without a line is refused, and nobody is told who it is; a line of somebody without
rows is no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sottovoce import units
from sottovoce.arrays import Array
from sottovoce.budgets import read_amounts_by_person
from sottovoce.data.engine import (
    DEFAULT_TEXT_FORMAT,
    Engine,
    GroupLookup,
    NameIndex,
    TextFormat,
    as_array,
    has_nameless,
    open_engine,
    require_columns,
)
from sottovoce.errors import (
    DuplicatePeople,
    InvalidParameter,
    TooFewRows,
    UnknownPeople,
)

#: What the column of budgets is called where nobody says so.
DEFAULT_BUDGET_COLUMN = "epsilon"


@dataclass(frozen=True, eq=False)
class Grants:
    """Who allows how much, in units; each person once."""

    people: Array  # whole numbers, or text in an object array
    granted: units.Units

    @classmethod
    def of_mapping(cls, budgets: Mapping[Any, float]) -> Grants:
        """From a mapping from person to ε."""
        names, granted = read_amounts_by_person(budgets, units.round_down)
        whole = all(
            isinstance(name, int | np.integer) and -(2**63) <= name < 2**63 for name in names
        )
        if whole:
            people = np.array(names, dtype=np.int64)
        else:
            people = _to_text(names)
        return cls(people, granted)

    @classmethod
    def of_table(
        cls, engine: Engine, person: str, budget: str, tiers: Mapping[str, float] | None = None
    ) -> Grants:
        """From a column of people and a column of their budgets, or tiers."""
        require_columns(engine, person=person, budget=budget)
        lines = engine.fold(_Lines(person, budget, tiers or None))
        if not lines:
            raise TooFewRows(
                "The table of budgets is empty.",
                "",
                "Write a line for each person.",
                parameter="budgets",
            )
        people, granted = (np.concatenate(arrays) for arrays in zip(*lines, strict=True))
        return cls(people, granted)

    @classmethod
    def from_source(
        cls,
        table: Any,
        person: str | None,
        budget: str | None,
        tiers: Mapping[str, float] | None,
        engine: str | None,
        text: TextFormat = DEFAULT_TEXT_FORMAT,
    ) -> Grants:
        """From a table wherever it lives; a column of budgets that is not named is looked for in
        the header.
        """
        if person is None:
            raise no_owners_error()
        header = open_engine(table, engine, text=text)
        require_columns(header, person=person)
        column = find_budget_column(header, person, budget)
        return cls.of_table(
            open_engine(table, engine, () if tiers else (column,), text=text), person, column, tiers
        )

    def to_mapping(self) -> dict[Any, float]:
        """Returns everybody's ε by person."""
        return dict(zip(self.people.tolist(), units.to_epsilon(self.granted).tolist(), strict=True))

    def of(self, people: Array) -> units.Units:
        """Returns what each of these people grants, in their order."""
        own = self.people
        asked = people
        if (own.dtype.kind in "iu") != (
            asked.dtype.kind in "iu"
        ):  # 7 in one table is "7" in another, such as a CSV
            own = _to_text(own)
            asked = _to_text(asked)
        order = np.argsort(own, kind="stable")
        own = own[order]
        if np.any(own[1:] == own[:-1]):
            raise DuplicatePeople(
                "A person is listed twice.",
                "Everybody has one ε.",
                "Keep one line a person.",
                parameter="budgets",
            )
        place = np.minimum(np.searchsorted(own, asked), len(own) - 1)
        if not len(own) or not np.array_equal(own[place], asked):
            raise UnknownPeople(
                "A row belongs to somebody without a budget.",
                "Everybody whose rows are used has set an ε.",
                "Add the missing budgets, or leave those rows out.",
                parameter="budgets",
            )
        return np.asarray(self.granted[order][place], dtype=np.int64)


def no_owners_error() -> InvalidParameter:
    """What is said where budgets live elsewhere and rows have no owners."""
    return InvalidParameter(
        "Budgets are given by person, but the rows do not say whose they are.",
        "Budgets that live elsewhere are matched with the people of the table.",
        "Name the column of people.",
        parameter="person",
    )


def find_budget_column(engine: Engine, person: str, said: str | None) -> str:
    """Returns the column of budgets: the one that was said, the usual one, or the only one besides
    the people's.
    """
    others = [name for name in engine.columns() if name != person]
    for name in (said, DEFAULT_BUDGET_COLUMN):
        if name in others:
            return str(name)
    if len(others) != 1:
        raise InvalidParameter(
            "It is not clear which column of the table of budgets holds them.",
            f"It has a column {person!r} of people, and one {DEFAULT_BUDGET_COLUMN!r}, or one "
            "column besides.",
            f"Call it {DEFAULT_BUDGET_COLUMN!r}, or keep these two columns only.",
            parameter="budgets",
        )
    return others[0]


@dataclass(frozen=True, eq=False)
class _Lines:
    """Reads people and what they grant."""

    person: str
    budget: str
    tiers: Mapping[str, float] | None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.person, self.budget)

    def zero(self) -> list[tuple[Array, units.Units]]:
        return []

    def __call__(self, batch: Any) -> list[tuple[Array, units.Units]]:
        people = batch.column(self.person)
        if has_nameless(people):
            raise UnknownPeople(
                "A budget is nobody's.",
                "Every line names a person.",
                "Fill the column in.",
                parameter="budgets",
            )
        return [(_read_names(people), self._read_grants(batch))]

    def _read_grants(self, batch: Any) -> units.Units:
        if self.tiers is None:
            return units.round_down(as_array(batch.column(self.budget)))
        place = GroupLookup(self.budget, NameIndex(list(self.tiers))).kinds(batch)
        return units.round_down(list(self.tiers.values()))[place]


def _read_names(column: Any) -> Array:
    if pa.types.is_integer(column.type):
        return as_array(column).astype(np.int64)
    return _to_text(
        as_array(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)
    )


def _to_text(people: Array | list[Any]) -> Array:
    if isinstance(people, list):
        names = people
    else:
        names = people.tolist()
    return np.array([str(person) for person in names], dtype=object)
