# SPDX-License-Identifier: Apache-2.0
"""Budgets that live apart from the rows: in a table of their own with one line a person, or in a
mapping.

They are read once, as public as budgets are, and matched with the people of the census. Somebody
with rows and without a line is refused, and nobody is told who it is, or left out, if that is asked
for; a line of somebody without rows is no harm. The allocation of a market is known by its column
of payments: there whoever sold nothing, or is no seller, is left out unless refusal is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sottovoce import units
from sottovoce.arrays import Array, strip_formula_guard
from sottovoce.budgets import (
    SOLD_PROMISE,
    SupportsSale,
    nobody_sells_error,
    read_amounts_by_person,
)
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
#: What the column of people is called there, if not as in the table of rows: in the allocation of a
#: market, seller.
PERSON_COLUMNS = ("person", "seller")
#: The column by which the allocation of a market is known; names beside it are guarded against
#: spreadsheets.
PAYMENT_COLUMN = "payment"
#: What becomes of people without a line, or with ε = 0.
LEAVE_OUT_WORD = "leave-out"
REFUSE_WORD = "refuse"


@dataclass(frozen=True, eq=False)
class Grants:
    """Who allows how much, in units; each person once."""

    people: Array  # whole numbers, or text in an object array
    granted: units.Units
    leave_out: bool = False  # whether people without a line, or with ε = 0, are left out
    sold: tuple[str, str] | None = None  # what was sold, where it is the allocation of a market

    @classmethod
    def of_mapping(cls, budgets: Mapping[Any, float], unknown: str | None = None) -> Grants:
        """From a mapping from person to ε."""
        leave_out = unknown == LEAVE_OUT_WORD
        names, granted = read_amounts_by_person(
            budgets, lambda values: units.round_down(values, zero_allowed=leave_out)
        )
        whole = all(
            isinstance(name, int | np.integer) and -(2**63) <= name < 2**63 for name in names
        )
        if whole:
            people = np.array(names, dtype=np.int64)
        else:
            people = _to_text(names)
        return cls(people, granted, leave_out)

    @classmethod
    def of_sale(cls, sale: SupportsSale, unknown: str | None = None) -> Grants:
        """From the allocation of a market."""
        made = cls.of_mapping(sale.by_person(), LEAVE_OUT_WORD)
        return replace(made, leave_out=unknown != REFUSE_WORD, sold=sale.sold)

    @classmethod
    def of_table(
        cls,
        engine: Engine,
        person: str,
        budget: str,
        tiers: Mapping[str, float] | None = None,
        unknown: str | None = None,
    ) -> Grants:
        """From a column of people and a column of their budgets, or tiers."""
        require_columns(engine, person=person, budget=budget)
        allocated = is_allocation(engine, person, budget)
        leave_out = unknown == LEAVE_OUT_WORD or (allocated and unknown is None)
        lines = engine.fold(_Lines(person, budget, tiers or None, allocated or leave_out))
        if not lines:
            raise TooFewRows(
                "The table of budgets is empty.",
                "",
                "Write a line for each person.",
                parameter="budgets",
            )
        people, granted = (np.concatenate(arrays) for arrays in zip(*lines, strict=True))
        if allocated and people.dtype.kind not in "iu":
            people = np.array([strip_formula_guard(name) for name in people], dtype=object)
        return cls(people, granted, leave_out, SOLD_PROMISE if allocated else None)

    @classmethod
    def from_source(
        cls,
        table: Any,
        person: str | None,
        budget: str | None,
        tiers: Mapping[str, float] | None,
        engine: str | None,
        text: TextFormat = DEFAULT_TEXT_FORMAT,
        unknown: str | None = None,
    ) -> Grants:
        """From a table wherever it lives; a column of people that is called otherwise there, and
        one of budgets that is not named, are looked for in the header.
        """
        if person is None:
            raise no_owners_error()
        header = open_engine(table, engine, text=text)
        person = find_person_column(header, person)
        column = find_budget_column(header, person, budget)
        opened = open_engine(table, engine, () if tiers else (column,), text=text)
        return cls.of_table(opened, person, column, tiers, unknown)

    def to_budgets(self) -> Any:
        """Returns ε by person, for ``fit``: a mapping, or what leaves all others out."""
        if not self.leave_out:
            return self._list_by_person()
        return GrantsOfSome(self)

    def _list_by_person(self) -> dict[Any, float]:
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
        if not len(own):
            known = np.zeros(len(asked), dtype=bool)
        else:
            known = np.asarray(own[place] == asked, dtype=bool)
        if self.leave_out and len(own):
            granted = np.where(known, self.granted[order][place], 0).astype(np.int64)
            if not granted.any():
                raise nobody_sells_error()
            return granted
        if not known.all():
            raise UnknownPeople(
                "A row belongs to somebody without a budget.",
                "Everybody whose rows are used has set an ε.",
                "Add the missing budgets, or have people without one left out.",
                parameter="budgets",
            )
        return np.asarray(self.granted[order][place], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class GrantsOfSome:
    """A table of budgets that leaves out whoever has none there, such as the allocation of a
    market.
    """

    grants: Grants

    @property
    def sold(self) -> tuple[str, str] | None:
        """A currency and a neighbour relation, where it is an allocation."""
        return self.grants.sold

    @property
    def units(self) -> units.Units:
        """What each grants, in the order of the file."""
        return self.grants.granted

    def by_person(self) -> dict[Any, float]:
        """Return ε by person."""
        return self.grants._list_by_person()


def no_owners_error() -> InvalidParameter:
    """What is said where budgets live elsewhere and rows have no owners."""
    return InvalidParameter(
        "Budgets are given by person, but the rows do not say whose they are.",
        "Budgets that live elsewhere are matched with the people of the table.",
        "Name the column of people.",
        parameter="person",
    )


def is_allocation(engine: Engine, person: str, budget: str) -> bool:
    """Whether a table is the allocation of a market, which has a column of payments beside."""
    return PAYMENT_COLUMN in engine.columns() and PAYMENT_COLUMN not in (person, budget)


def find_person_column(engine: Engine, said: str) -> str:
    """Returns the column of people: the one that is called as in the table of rows, or the only one
    with a usual name.
    """
    there = engine.columns()
    usual = [name for name in PERSON_COLUMNS if name in there]
    if said not in there and len(usual) == 1:
        return usual[0]
    require_columns(engine, person=said)
    return said


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
    zero_allowed: bool = False

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
            return units.round_down(
                as_array(batch.column(self.budget)), zero_allowed=self.zero_allowed
            )
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
