# SPDX-License-Identifier: Apache-2.0
"""The census of a table: who is in it, with how many rows and which budget, read from public columns alone.

It reads the columns of people and of budgets and no other, batch by batch. Equal budgets are counted
together as long as there are few of them, so tiers cost no memory; a table in which everybody has
another budget costs eight bytes a person and a sort.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.budgets import Budgets, Kinds
from sottovoce.engine import Engine, require_columns
from sottovoce.errors import InconsistentBudget, InvalidParameter, TooFewRows, UnknownPeople, WrongType
from sottovoce.statistics import Owner, as_array
from sottovoce.table import Array

#: Up to this many different budgets are counted batch by batch; beyond, they are kept and sorted once.
FEW = 2**20


def take_census(
    engine: Engine,
    *,
    epsilon: float | None = None,
    budget: str | None = None,
    person: str | None = None,
    tiers: Mapping[str, float] | None = None,
) -> tuple[Budgets, Owner]:
    """Returns the budgets of everybody in the table, and how to find a row's owner among them.

    ``epsilon`` is one budget for all, ``budget`` the column with everybody's own; with ``tiers`` that
    column names a tier. Without ``person`` every row is somebody else's.
    """
    if (epsilon is None) == (budget is None):
        raise InvalidParameter(
            "Budgets are given twice, or not at all.",
            "Either one ε for everybody or a column with everybody's own is needed.",
            "Pass epsilon= or budget=, one of the two.",
        )
    require_columns(engine, budget, person)
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
        place = Owner(self.column, {name: i for i, name in enumerate(self.tiers)}).kinds(batch)
        return np.array(list(self.tiers.values()), dtype=np.int64)[place]


@dataclass(eq=False)
class _Tally:
    """Different budgets and how many rows have each; adds in place, and sorts when there is enough to sort."""

    values: list[units.Units] = field(default_factory=list)
    counts: list[NDArray[np.int64]] = field(default_factory=list)
    pending: int = 0
    many: bool = False

    def __add__(self, other: _Tally) -> _Tally:
        self.values += other.values
        self.counts += other.counts
        self.pending += other.pending
        if self.pending > FEW and not self.many:
            values, counts = self.merged()
            self.many = len(values) > FEW // 2
            self.values, self.counts, self.pending = [values], [counts], len(values)
        return self

    def merged(self) -> tuple[units.Units, NDArray[np.int64]]:
        values, counts = np.concatenate(self.values), np.concatenate(self.counts)
        self.values, self.counts = [], []  # the copies are all that is needed now
        if counts.max(initial=0) == 1:
            counts = np.empty(0, dtype=np.int64)
            values.sort()
        else:
            order = np.argsort(values)
            values, counts = values[order], counts[order]
        first = np.flatnonzero(np.r_[True, values[1:] != values[:-1]]) if len(values) else np.empty(0, dtype=np.int64)
        if not len(counts):
            return values[first], np.diff(np.r_[first, len(values)])
        return values[first], np.add.reduceat(counts, first)


@dataclass(frozen=True, eq=False)
class _CountBudgets:
    price: _Price

    @property
    def columns(self) -> tuple[str, ...]:
        return self.price.columns

    def zero(self) -> _Tally:
        return _Tally()

    def __call__(self, batch: Any) -> _Tally:
        values, counts = np.unique(self.price.of_rows(batch), return_counts=True)
        return _Tally([values], [counts.astype(np.uint32)], len(values))


def _by_row(engine: Engine, price: _Price) -> tuple[Budgets, Owner]:
    tally = engine.fold(_CountBudgets(price))
    if not tally.values:
        raise _empty()
    epsilon, people = tally.merged()
    if int(people.sum()) < 2:
        raise _empty()
    budgets = Budgets(Kinds(epsilon, np.broadcast_to(np.int64(1), epsilon.shape), people.astype(np.int64)), "row")
    if price.epsilon is not None:
        return budgets, Owner()
    if price.tiers is not None:
        return budgets, Owner(price.column, {name: int(np.searchsorted(epsilon, u)) for name, u in price.tiers.items()})
    return budgets, Owner(price.column, epsilon, as_units=True)


@dataclass(eq=False)
class _Members:
    """People as they come, a row each: ids and budgets of every batch."""

    ids: list[Any] = field(default_factory=list)
    granted: list[units.Units] = field(default_factory=list)
    rows: list[NDArray[np.int64]] = field(default_factory=list)

    def __add__(self, other: _Members) -> _Members:
        self.ids += other.ids
        self.granted += other.granted
        self.rows += other.rows
        return self


@dataclass(frozen=True, eq=False)
class _CountPeople:
    person: str
    price: _Price

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.person, *self.price.columns)))

    def zero(self) -> _Members:
        return _Members()

    def __call__(self, batch: Any) -> _Members:
        column = batch.column(self.person)
        if column.null_count:
            raise UnknownPeople(
                "A row has no owner.", "Every row belongs to one person.", "Fill the column of owners in."
            )
        granted = self.price.of_rows(batch)
        if pa.types.is_integer(column.type):
            people, first, owner, rows = np.unique(
                as_array(column).astype(np.int64), return_index=True, return_inverse=True, return_counts=True
            )
            names: Any = people
        else:
            names, first, owner, rows = _text(column)
        if not np.array_equal(granted[first][owner], granted):
            raise _two_budgets()
        return _Members([names], [granted[first]], [rows])


def _text(column: Any) -> tuple[Any, Array, Array, Array]:
    if not (
        pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_dictionary(column.type)
    ):
        raise WrongType(
            "The column of owners is neither whole numbers nor text.", "", "Name people by numbers or by text."
        )
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    owner = encoded.indices.to_numpy()
    present, first, owner, rows = np.unique(owner, return_index=True, return_inverse=True, return_counts=True)
    return encoded.dictionary.take(pa.array(present)).cast(pa.string()), first, owner, rows


def _by_person(engine: Engine, price: _Price, person: str) -> tuple[Budgets, Owner]:
    members = engine.fold(_CountPeople(person, price))
    if not members.ids:
        raise _empty()
    people, granted, rows, keys = _gathered(members)
    if int(rows.sum()) < 2:
        raise _empty()
    budgets = Budgets.counted(people, granted, rows)
    return budgets, Owner(person, keys, budgets.codes)


def _gathered(members: _Members) -> tuple[Array, units.Units, NDArray[np.int64], Array | Mapping[str, int]]:
    granted, rows = np.concatenate(members.granted), np.concatenate(members.rows)
    members.granted, members.rows = [], []
    if isinstance(members.ids[0], np.ndarray):
        ids = np.concatenate(members.ids)
        members.ids = []
        people, first, owner = np.unique(ids, return_index=True, return_inverse=True)
    else:
        encoded = pa.chunked_array(members.ids).combine_chunks().dictionary_encode()
        members.ids = []
        names = encoded.dictionary.to_numpy(zero_copy_only=False)
        order = np.argsort(names)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        people, owner = names[order], rank[encoded.indices.to_numpy()]
        first = np.empty(len(people), dtype=np.int64)
        first[owner[::-1]] = np.arange(len(owner))[::-1]
    if not np.array_equal(granted[first][owner], granted):
        raise _two_budgets()
    counts = np.bincount(owner, rows, len(people)).astype(np.int64)
    keys = people if people.dtype.kind == "i" else {name: place for place, name in enumerate(people.tolist())}
    return people, granted[first], counts, keys


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
