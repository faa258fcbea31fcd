# SPDX-License-Identifier: Apache-2.0
"""The census of a table: who is in it, with how many rows and which budget, read from public
columns alone.

It reads the columns of people and of budgets and no other, batch by batch: once to count both, and,
where people are named by numbers, once more to see who granted what. Tiers cost no memory. Budgets
that are all different, and people named by numbers, cost eight bytes each, a few more while they
are sorted and counted; people named by text cost a Python string each.

Counting what comes batch by batch, in memory that grows with how much of it is different.

A Tally counts whole numbers (ids, budgets in units), a Names counts text, and keeps a number with
each. Both add in place, and both give the different ones in order and how often each came. Arrays
as long as a table are sorted and rewritten where they lie, a block at a time: a second array of
that length is what a large table cannot afford.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.arrays import Array, Integers, invalid_names_error, number_distinct, number_few
from sottovoce.budgets import BudgetGroups, Budgets
from sottovoce.data.budget_table import Grants, no_owners_error
from sottovoce.data.engine import (
    Engine,
    GroupLookup,
    NameIndex,
    as_array,
    find_positions,
    has_nameless,
    require_columns,
)
from sottovoce.errors import InconsistentBudget, InvalidParameter, TooFewRows, WrongType


def take_census(
    engine: Engine,
    *,
    epsilon: float | None = None,
    budget: str | None = None,
    person: str | None = None,
    tiers: Mapping[str, float] | None = None,
    grants: Grants | None = None,
) -> tuple[Budgets, GroupLookup]:
    """Returns the budgets of everybody in the table, and how to find a row's owner among them.

    ``epsilon`` is one budget for all, ``budget`` the column with everybody's own; with ``tiers``
    that column names a tier. ``grants`` are budgets that live elsewhere, by person. Without
    ``person`` every row is somebody else's.
    """
    if (epsilon is not None) + (budget is not None) + (grants is not None) != 1:
        raise InvalidParameter(
            "Budgets are given twice, or not at all.",
            "Either one ε for everybody or a column with everybody's own is needed.",
            "Pass epsilon= or budget=, one of the two.",
            parameter="epsilon",
        )
    require_columns(engine, budget=budget, person=person)
    if grants is not None:
        return _count_with_grants(engine, grants, person)
    price = _BudgetReader(
        budget,
        epsilon,
        None
        if not tiers
        else dict(zip(tiers, units.round_down(list(tiers.values())), strict=True)),
    )
    if person is None:
        return _count_by_row(engine, price)
    return _count_by_person(engine, price, person)


def scale_budgets(
    budgets: Budgets, owner: GroupLookup, share: float
) -> tuple[Budgets, GroupLookup]:
    """Returns the budgets of a release that may spend this share of them, rounded down."""
    if not 0 < share <= 1:
        raise InvalidParameter(
            "The share is not above 0 and up to 1.",
            "It is a part of what everybody grants.",
            "",
            parameter="share",
        )
    if share == 1:
        return budgets, owner
    granted = budgets.by_person(budgets.kinds.epsilon)
    lowered = budgets.with_grants((granted * share).astype(granted.dtype))
    return lowered, replace(owner, codes=lowered.codes)


@dataclass(frozen=True, eq=False)
class _BudgetReader:
    """How to read every row's budget, in units."""

    column: str | None
    epsilon: float | None
    tiers: Mapping[str, int] | None

    @property
    def columns(self) -> tuple[str, ...]:
        if self.column is None:
            return ()
        return (self.column,)

    def count_few(self, batch: Any) -> Tally | None:
        """Returns how often each budget comes where few differ; None elsewhere."""
        if self.epsilon is not None or self.tiers is not None:
            return None
        amounts = as_array(batch.column(self.column))
        if amounts.dtype.kind not in "iuf":
            return None
        few = number_few(amounts)
        if few is None:
            return None
        distinct, which = few
        granted, same = np.unique(units.round_down(distinct), return_inverse=True)
        counts = np.bincount(same, np.bincount(which, minlength=len(distinct)))
        return Tally(values=granted, counts=counts.astype(np.int64))

    def of_rows(self, batch: Any) -> units.Units:
        if self.epsilon is not None:
            return np.broadcast_to(units.round_down(self.epsilon), (len(batch),))
        column = batch.column(self.column)
        if self.tiers is None:
            return units.round_down(as_array(column))
        place = GroupLookup(self.column, NameIndex(list(self.tiers))).kinds(batch)
        return np.array(list(self.tiers.values()), dtype=np.int64)[place]


@dataclass(eq=False)
class _Register:
    """Who there is, and which budgets there are."""

    people: Tally | NameTally
    budgets: Tally

    def __add__(self, other: _Register) -> _Register:
        self.people += other.people  # type: ignore[operator]
        self.budgets += other.budgets
        return self


@dataclass(frozen=True, eq=False)
class _CountKernel:
    price: _BudgetReader
    person: str | None = None
    text: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return _list_distinct(self.person, *self.price.columns)

    def zero(self) -> _Register:
        return _Register(NameTally() if self.text else Tally(), Tally())

    def __call__(self, batch: Any) -> _Register:
        if self.person is None:
            few = self.price.count_few(batch)
            if few is not None:
                return _Register(Tally(), few)
        granted = self.price.of_rows(batch)
        if self.person is None:
            return _Register(Tally(), Tally.of(granted))
        column = batch.column(self.person)
        if column.null_count or (self.text and has_nameless(column)):
            raise invalid_names_error()
        if self.text:
            return _Register(
                NameTally.of(column, granted), Tally()
            )  # which keeps everybody's budget with the name
        return _Register(Tally.of(_to_int64(column)), Tally.of(granted))


def _list_distinct(*columns: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(column for column in columns if column is not None))


def _count_by_row(engine: Engine, price: _BudgetReader) -> tuple[Budgets, GroupLookup]:
    epsilon, people = engine.fold(_CountKernel(price)).budgets.collect_counts()
    if int(people.sum()) < 2:
        raise _too_few_rows_error()
    one = np.broadcast_to(np.int64(1), epsilon.shape)
    alone = people.max() == 1  # then one number is enough to say so
    budgets = Budgets(BudgetGroups(epsilon, one, one if alone else people.astype(np.int64)), "row")
    if price.epsilon is not None:
        return budgets, GroupLookup()
    if price.tiers is not None:
        codes = np.searchsorted(epsilon, list(price.tiers.values()))
        return budgets, GroupLookup(price.column, NameIndex(list(price.tiers)), codes)
    return budgets, GroupLookup(price.column, epsilon, as_units=True)


def _to_int64(column: Any) -> NDArray[np.int64]:
    numbers = as_array(column)
    if numbers.dtype.kind not in "iu" or (
        numbers.dtype.kind == "u" and numbers.max(initial=0) > np.iinfo(np.int64).max
    ):
        raise WrongType(
            "The column of owners is neither whole numbers of 64 bits nor text.",
            "",
            "Name people by numbers or by text.",
            parameter="person",
        )
    return numbers.astype(np.int64, copy=False)


def _count_with_grants(
    engine: Engine, grants: Grants, person: str | None
) -> tuple[Budgets, GroupLookup]:
    if person is None:
        raise no_owners_error()
    register = engine.fold(
        _CountKernel(_BudgetReader(None, 1.0, None), person, _is_text(engine, person))
    )
    people, rows, *_ = register.people.collect_counts()
    _refuse_few(rows)
    budgets, owner = _make_budgets(person, people, rows, grants.of(people))
    return replace(budgets, sold=grants.sold), owner


def _is_text(engine: Engine, person: str) -> bool:
    return engine.columns()[person] == "text"


def _count_by_person(
    engine: Engine, price: _BudgetReader, person: str
) -> tuple[Budgets, GroupLookup]:
    register = engine.fold(_CountKernel(price, person, _is_text(engine, person)))
    if isinstance(register.people, NameTally):
        names, rows, granted = register.people.collect_counts()
        _refuse_few(rows)
        if register.people.contradicted:
            raise _two_budgets_error()
        return _make_budgets(person, names, rows, granted)
    people, rows = register.people.collect_counts()
    _refuse_few(rows)
    grants = _BudgetCodeKernel(
        GroupLookup(person, people), price, register.budgets.collect_counts()[0], len(people)
    )
    # Where all grant the same there is nothing to look up.
    if len(grants.budgets) > 1:
        told = engine.fold(grants).codes
    else:
        told = np.zeros(len(people), dtype=np.uint8)
    kinds, codes = _group_people(grants.budgets, told, rows)
    return Budgets(kinds, "person", codes, None, people), GroupLookup(person, people, codes)


def _make_budgets(
    person: str, people: Array, rows: Array, granted: units.Units
) -> tuple[Budgets, GroupLookup]:
    budgets, told, _ = number_distinct(granted)
    kinds, codes = _group_people(budgets, told, rows)
    if people.dtype.kind == "i":
        keys: Array | NameIndex = people
    else:
        keys = NameIndex(people)
    return Budgets(kinds, "person", codes, None, people), GroupLookup(person, keys, codes)


def _refuse_few(rows: Array) -> None:
    if int(rows.sum()) < 2:
        raise _too_few_rows_error()


@dataclass(eq=False)
class _BudgetCodes:
    """The place of people's budgets among the different ones: of everybody, or of the people at
    ``places``.
    """

    codes: Array
    nothing: int = 0  # the code of those who have not been met yet
    places: Array | None = None

    def __add__(self, other: _BudgetCodes) -> _BudgetCodes:
        if other.places is None:  # a worker's sum over its share: only those whom it met
            met = np.flatnonzero(other.codes != other.nothing)
            other = _BudgetCodes(other.codes[met], places=met)
        before = self.codes[other.places]
        self.codes[other.places] = other.codes
        once = np.array_equal(self.codes[other.places], other.codes)
        if not (once and np.all((before == self.nothing) | (before == other.codes))):
            raise _two_budgets_error()
        return self


@dataclass(frozen=True, eq=False)
class _BudgetCodeKernel:
    owner: GroupLookup
    price: _BudgetReader
    budgets: units.Units
    people: int

    @property
    def columns(self) -> tuple[str, ...]:
        return _list_distinct(*self.owner.columns, *self.price.columns)

    def zero(self) -> _BudgetCodes:
        nothing = len(self.budgets)
        return _BudgetCodes(
            np.full(self.people, nothing, dtype=np.min_scalar_type(nothing)), nothing
        )

    def __call__(self, batch: Any) -> _BudgetCodes:
        return _BudgetCodes(
            find_positions(self.budgets, self.price.of_rows(batch)), places=self.owner.kinds(batch)
        )


def _group_people(budgets: units.Units, codes: Array, rows: Array) -> tuple[BudgetGroups, Array]:
    """Groups people of equal (ε, rows), and returns the groups and everybody's among them."""
    most = int(rows.max()) + 1
    tally = Tally()
    for block in split_blocks(len(codes)):
        tally += Tally.of(codes[block].astype(np.int64) * most + rows[block])
    pairs, people = tally.collect_counts()
    kinds = np.empty(len(codes), dtype=np.min_scalar_type(len(pairs) - 1))
    for block in split_blocks(len(codes)):
        kinds[block] = find_positions(pairs, codes[block].astype(np.int64) * most + rows[block])
    which, count = np.divmod(pairs, most)
    return BudgetGroups(budgets[which], count, people.astype(np.int64)), kinds


def _two_budgets_error() -> InconsistentBudget:
    return InconsistentBudget(
        "A person has two different budgets in two of their rows.",
        "A budget belongs to a person, not to a row.",
        "Give all rows of a person the same ε.",
        parameter="epsilon",
    )


def _too_few_rows_error() -> TooFewRows:
    return TooFewRows(
        "The table is empty or has one row.",
        "A release is about at least two rows: the answer about one row is that row.",
        "Collect more rows before asking.",
        parameter="table",
    )


#: This many entries wait before they are counted.
MIN_BUFFER = 2**20
BLOCK = 2**20


def make_empty() -> Integers:
    """No numbers."""
    return np.empty(0, dtype=np.int64)


@dataclass(eq=False)
class Tally:
    """Whole numbers and how often each came.

    Numbers wait in ``loose`` as they came. When there are enough they are sorted, and counted if
    that halves them at least; otherwise they wait on, since counts would then cost more memory than
    repetitions do.

    >>> tally = Tally() + Tally.of(np.array([7, 5, 7])) + Tally.of(np.array([7]))
    >>> values, counts = tally.collect_counts()
    >>> values.tolist(), counts.tolist()
    ([5, 7], [1, 3])
    """

    loose: Integers = field(default_factory=make_empty)
    waiting: int = 0  # how many of the places in ``loose`` are taken
    limit: int = field(default_factory=lambda: MIN_BUFFER)
    values: Integers = field(default_factory=make_empty)
    counts: Integers = field(default_factory=make_empty)

    @classmethod
    def of(cls, numbers: Integers) -> Tally:
        """The tally of these numbers, in a copy, because a tally sorts in place."""
        return cls(np.array(numbers), len(numbers))

    def __add__(self, other: Tally) -> Tally:
        self._buffer(other.loose[: other.waiting])
        self._count(other.values, other.counts)
        if self.waiting >= self.limit:
            self._flush()
        return self

    def collect_counts(self) -> tuple[Integers, Array]:
        """Returns the different numbers in order, and how often each came; this uses the tally
        up.
        """
        loose = self.loose[: self.waiting]
        loose.sort()
        values, counts = count_runs(loose)
        if not len(self.values):
            return values, counts
        self._count(values, counts)
        return self.values, self.counts

    def _buffer(self, numbers: Integers) -> None:
        needed = self.waiting + len(numbers)
        if needed > len(self.loose):
            # Doubled: the new half takes up memory only once it is written to.
            grown = np.empty(max(needed, 2 * len(self.loose), MIN_BUFFER), dtype=np.int64)
            grown[: self.waiting] = self.loose[: self.waiting]
            self.loose = grown
        self.loose[self.waiting : needed] = numbers
        self.waiting = needed

    def _flush(self) -> None:
        loose = self.loose[: self.waiting]
        loose.sort()
        if 2 * count_distinct(loose) > self.waiting:
            self.limit = 2 * self.waiting
            return
        self._count(*count_runs(loose))
        self.waiting, self.limit = 0, max(MIN_BUFFER, 2 * len(self.values))

    def _count(self, values: Integers, counts: Array) -> None:
        if not len(self.values):
            self.values = values
            self.counts = counts.astype(np.int64)
            return
        place = np.searchsorted(self.values, values)
        new = self.values.take(place, mode="clip") != values
        self.counts[place[~new]] += counts[~new]
        if new.any():
            self.values = np.insert(self.values, place[new], values[new])
            self.counts = np.insert(self.counts, place[new], counts[new])


@dataclass(eq=False)
class NameTally:
    """Text, how often each came, and the number that comes with it.

    >>> names = NameTally.of(pa.array(["b", "a", "b"]), np.array([5, 3, 5]))
    >>> names = names + NameTally.of(pa.array(["a"]), np.array([4]))
    >>> [column.tolist() for column in names.collect_counts()], names.contradicted
    ([['a', 'b'], [2, 2], [3, 5]], True)
    """

    tables: list[pa.Table] = field(default_factory=list)
    contradicted: bool = False  # whether a name came with two numbers
    limit: int = field(default_factory=lambda: MIN_BUFFER)

    @classmethod
    def of(cls, column: Any, numbers: Array) -> NameTally:
        """The names in an Arrow column of text."""
        names = column.cast(pa.large_string()).dictionary_encode()
        place = names.indices.to_numpy()
        number = np.zeros(len(names.dictionary), dtype=np.int64)
        number[place] = numbers
        rows = np.bincount(place, minlength=len(number))
        table = pa.table({"name": names.dictionary, "rows": rows, "number": number})
        return cls([table], not np.array_equal(number[place], numbers))

    def __add__(self, other: NameTally) -> NameTally:
        self.tables += other.tables
        self.contradicted |= other.contradicted
        if sum(map(len, self.tables)) > self.limit:
            self._merge()
            self.limit = max(MIN_BUFFER, 2 * len(self.tables[0]))
        return self

    def collect_counts(self) -> tuple[Array, Array, Array]:
        """Returns the different names in order, how often each came, and with which number."""
        if not sum(map(len, self.tables)):
            return np.empty(0, dtype=object), make_empty(), make_empty()
        self._merge()
        name, rows, number = self.tables[0].columns
        return name.to_numpy(), rows.to_numpy(), number.to_numpy()

    def _merge(self) -> None:
        """Puts one table in the place of all, with every name once and in order."""
        table = pa.concat_tables(self.tables).combine_chunks().sort_by("name")
        name, rows, number = table.columns
        new = pc.not_equal(name.slice(1), name.slice(0, len(name) - 1)).to_numpy()
        first = np.flatnonzero(np.r_[True, new])
        other = np.r_[False, number.to_numpy()[1:] != number.to_numpy()[:-1]]
        other[first] = False
        self.contradicted |= bool(other.any())
        if len(first) < len(table):
            table = table.take(first).set_column(
                1, "rows", pa.array(np.add.reduceat(rows.to_numpy(), first))
            )
        self.tables = [table]


def split_blocks(length: int) -> Iterator[slice]:
    """Cuts a long array into slices."""
    return (slice(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


def count_distinct(ordered: Integers) -> int:
    """Returns how many different numbers a sorted array holds."""
    steps = (np.diff(ordered[block.start : block.stop + 1]) for block in split_blocks(len(ordered)))
    return sum(int(np.count_nonzero(step)) for step in steps) + min(len(ordered), 1)


def count_runs(ordered: Integers) -> tuple[Integers, Array]:
    """Returns the different numbers of a sorted array, which it overwrites, and how often each
    came.
    """
    counts: Array = np.empty(len(ordered), dtype=np.uint8)
    found = 0
    for block in split_blocks(len(ordered)):
        numbers = ordered[block]
        begins = block.start == 0 or numbers[0] != ordered[block.start - 1]
        first = np.flatnonzero(np.r_[begins, numbers[1:] != numbers[:-1]])
        lengths = np.diff(np.r_[0, first, len(numbers)])
        if found:
            lengths[0] += counts[found - 1]  # the block begins with more of the last number
        counts = _widen_counts(counts, found, lengths)
        counts[max(found - 1, 0) : found + len(first)] = lengths[0 if found else 1 :]
        ordered[found : found + len(first)] = numbers[first]
        found += len(first)
    if 2 * found > len(ordered):
        return ordered[:found], counts[:found]
    return ordered[:found].copy(), counts[
        :found
    ].copy()  # so that the long arrays can be given back


def _widen_counts(counts: Array, used: int, lengths: Integers) -> Array:
    # Most people have few rows: a byte each, until somebody has more.
    wide = np.min_scalar_type(lengths.max())
    if wide.itemsize <= counts.itemsize:
        return counts
    wider = np.empty(len(counts), dtype=wide)
    wider[:used] = counts[:used]
    return wider
