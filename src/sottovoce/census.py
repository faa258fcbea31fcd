# SPDX-License-Identifier: Apache-2.0
"""The census of a table: who is in it, with how many rows and which budget, read from public columns alone.

It reads the columns of people and of budgets and no other, batch by batch: once to count both, and, where
people are named by numbers, once more to see who granted what. Tiers cost no memory. Budgets that are all different,
and people named by numbers, cost eight bytes each, a few more while they are sorted and counted; people
named by text cost a Python string each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.budgets import Budgets, Kinds
from sottovoce.engine import Engine, require_columns
from sottovoce.errors import InconsistentBudget, InvalidParameter, TooFewRows, WrongType
from sottovoce.grants import Grants, nobody_named
from sottovoce.statistics import Owner, Places, as_array, places
from sottovoce.table import Array, has_nameless, nobody
from sottovoce.tally import Names, Tally, blocks


def take_census(
    engine: Engine,
    *,
    epsilon: float | None = None,
    budget: str | None = None,
    person: str | None = None,
    tiers: Mapping[str, float] | None = None,
    grants: Grants | None = None,
) -> tuple[Budgets, Owner]:
    """Returns the budgets of everybody in the table, and how to find a row's owner among them.

    ``epsilon`` is one budget for all, ``budget`` the column with everybody's own; with ``tiers`` that
    column names a tier. ``grants`` are budgets that live elsewhere, by person. Without ``person`` every
    row is somebody else's.
    """
    if (epsilon is not None) + (budget is not None) + (grants is not None) != 1:
        raise InvalidParameter(
            "Budgets are given twice, or not at all.",
            "Either one ε for everybody or a column with everybody's own is needed.",
            "Pass epsilon= or budget=, one of the two.",
        )
    require_columns(engine, budget, person)
    if grants is not None:
        return _by_grants(engine, grants, person)
    price = _Price(
        budget, epsilon, None if not tiers else dict(zip(tiers, units.grant(list(tiers.values())), strict=True))
    )
    if person is None:
        return _by_row(engine, price)
    return _by_person(engine, price, person)


@dataclass(frozen=True, eq=False)
class _Price:
    """How to read every row's budget, in units."""

    column: str | None
    epsilon: float | None
    tiers: Mapping[str, int] | None

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.column is None else (self.column,)

    def of_rows(self, batch: Any) -> units.Units:
        if self.epsilon is not None:
            return np.broadcast_to(units.grant(self.epsilon), (len(batch),))
        column = batch.column(self.column)
        if self.tiers is None:
            return units.grant(as_array(column))
        place = Owner(self.column, Places(list(self.tiers))).kinds(batch)
        return np.array(list(self.tiers.values()), dtype=np.int64)[place]


@dataclass(eq=False)
class _Register:
    """Who there is, and which budgets there are."""

    people: Tally | Names
    budgets: Tally

    def __add__(self, other: _Register) -> _Register:
        self.people += other.people  # type: ignore[operator]
        self.budgets += other.budgets
        return self


@dataclass(frozen=True, eq=False)
class _Count:
    price: _Price
    person: str | None = None
    text: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return _once(self.person, *self.price.columns)

    def zero(self) -> _Register:
        return _Register(Names() if self.text else Tally(), Tally())

    def __call__(self, batch: Any) -> _Register:
        granted = self.price.of_rows(batch)
        if self.person is None:
            return _Register(Tally(), Tally.of(granted))
        column = batch.column(self.person)
        if column.null_count or (self.text and has_nameless(column)):
            raise nobody()
        if self.text:
            return _Register(Names.of(column, granted), Tally())  # which keeps everybody's budget with the name
        return _Register(Tally.of(_whole(column)), Tally.of(granted))


def _once(*columns: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(column for column in columns if column is not None))


def _by_row(engine: Engine, price: _Price) -> tuple[Budgets, Owner]:
    epsilon, people = engine.fold(_Count(price)).budgets.collect_counts()
    if int(people.sum()) < 2:
        raise _empty()
    one = np.broadcast_to(np.int64(1), epsilon.shape)
    alone = people.max() == 1  # then one number is enough to say so
    budgets = Budgets(Kinds(epsilon, one, one if alone else people.astype(np.int64)), "row")
    if price.epsilon is not None:
        return budgets, Owner()
    if price.tiers is not None:
        codes = np.searchsorted(epsilon, list(price.tiers.values()))
        return budgets, Owner(price.column, Places(list(price.tiers)), codes)
    return budgets, Owner(price.column, epsilon, as_units=True)


def _whole(column: Any) -> NDArray[np.int64]:
    numbers = as_array(column)
    if numbers.dtype.kind not in "iu" or (
        numbers.dtype.kind == "u" and numbers.max(initial=0) > np.iinfo(np.int64).max
    ):
        raise WrongType(
            "The column of owners is neither whole numbers of 64 bits nor text.",
            "",
            "Name people by numbers or by text.",
        )
    return numbers.astype(np.int64, copy=False)


def _by_grants(engine: Engine, grants: Grants, person: str | None) -> tuple[Budgets, Owner]:
    if person is None:
        raise nobody_named()
    register = engine.fold(_Count(_Price(None, 1.0, None), person, _is_text(engine, person)))
    people, rows, *_ = register.people.collect_counts()
    _refuse_few(rows)
    return _by_budgets(person, people, rows, grants.of(people))


def _is_text(engine: Engine, person: str) -> bool:
    return engine.columns()[person] == "text"


def _by_person(engine: Engine, price: _Price, person: str) -> tuple[Budgets, Owner]:
    register = engine.fold(_Count(price, person, _is_text(engine, person)))
    if isinstance(register.people, Names):
        names, rows, granted = register.people.collect_counts()
        _refuse_few(rows)
        if register.people.contradicted:
            raise _two_budgets()
        return _by_budgets(person, names, rows, granted)
    people, rows = register.people.collect_counts()
    _refuse_few(rows)
    grants = _Grants(Owner(person, people), price, register.budgets.collect_counts()[0], len(people))
    # Where all grant the same there is nothing to look up.
    told = engine.fold(grants).codes if len(grants.budgets) > 1 else np.zeros(len(people), dtype=np.uint8)
    kinds, codes = _kinds(grants.budgets, told, rows)
    return Budgets(kinds, "person", codes, None, people), Owner(person, people, codes)


def _by_budgets(person: str, people: Array, rows: Array, granted: units.Units) -> tuple[Budgets, Owner]:
    budgets, told = np.unique(granted, return_inverse=True)
    kinds, codes = _kinds(budgets, told, rows)
    keys = people if people.dtype.kind == "i" else Places(people)
    return Budgets(kinds, "person", codes, None, people), Owner(person, keys, codes)


def _refuse_few(rows: Array) -> None:
    if int(rows.sum()) < 2:
        raise _empty()


@dataclass(eq=False)
class _Granted:
    """The place of people's budgets among the different ones: of everybody, or of the people at ``places``."""

    codes: Array
    nothing: int = 0  # the code of those who have not been met yet
    places: Array | None = None

    def __add__(self, other: _Granted) -> _Granted:
        if other.places is None:  # a worker's sum over its share: only those whom it met
            met = np.flatnonzero(other.codes != other.nothing)
            other = _Granted(other.codes[met], places=met)
        before = self.codes[other.places]
        self.codes[other.places] = other.codes
        once = np.array_equal(self.codes[other.places], other.codes)
        if not (once and np.all((before == self.nothing) | (before == other.codes))):
            raise _two_budgets()
        return self


@dataclass(frozen=True, eq=False)
class _Grants:
    owner: Owner
    price: _Price
    budgets: units.Units
    people: int

    @property
    def columns(self) -> tuple[str, ...]:
        return _once(*self.owner.columns, *self.price.columns)

    def zero(self) -> _Granted:
        nothing = len(self.budgets)
        return _Granted(np.full(self.people, nothing, dtype=np.min_scalar_type(nothing)), nothing)

    def __call__(self, batch: Any) -> _Granted:
        return _Granted(places(self.budgets, self.price.of_rows(batch)), places=self.owner.kinds(batch))


def _kinds(budgets: units.Units, codes: Array, rows: Array) -> tuple[Kinds, Array]:
    """Groups people of equal (ε, rows), and returns the groups and everybody's among them."""
    most = int(rows.max()) + 1
    tally = Tally()
    for block in blocks(len(codes)):
        tally += Tally.of(codes[block].astype(np.int64) * most + rows[block])
    pairs, people = tally.collect_counts()
    kinds = np.empty(len(codes), dtype=np.min_scalar_type(len(pairs) - 1))
    for block in blocks(len(codes)):
        kinds[block] = places(pairs, codes[block].astype(np.int64) * most + rows[block])
    which, count = np.divmod(pairs, most)
    return Kinds(budgets[which], count, people.astype(np.int64)), kinds


def _two_budgets() -> InconsistentBudget:
    return InconsistentBudget(
        "A person has two different budgets in two of their rows.",
        "A budget belongs to a person, not to a row.",
        "Give all rows of a person the same ε.",
    )


def _empty() -> TooFewRows:
    return TooFewRows(
        "The table is empty or has one row.",
        "A release is about at least two rows: the answer about one row is that row.",
        "Collect more rows before asking.",
    )
