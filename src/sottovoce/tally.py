# SPDX-License-Identifier: Apache-2.0
"""Counting what comes batch by batch, in memory that grows with how much of it is different.

A Tally counts whole numbers (ids, budgets in units), a Names counts text, and keeps a number with each. Both
add in place, and both give the different ones in order and how often each came. Arrays as long as a table
are sorted and rewritten where they lie, a block at a time: a second array of that length is what a large
table cannot afford.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sottovoce.table import Array

Integers = NDArray[np.int64]

#: This many entries wait before they are counted.
FEW = 2**20
BLOCK = 2**20


def none() -> Integers:
    """No numbers."""
    return np.empty(0, dtype=np.int64)


@dataclass(eq=False)
class Tally:
    """Whole numbers and how often each came.

    Numbers wait in ``loose`` as they came. When there are enough they are sorted, and counted if that halves
    them at least; otherwise they wait on, since counts would then cost more memory than repetitions do.

    >>> values, counts = (Tally() + Tally.of(np.array([7, 5, 7])) + Tally.of(np.array([7]))).counted()
    >>> values.tolist(), counts.tolist()
    ([5, 7], [1, 3])
    """

    loose: Integers = field(default_factory=none)
    waiting: int = 0  # how many of the places in ``loose`` are taken
    limit: int = field(default_factory=lambda: FEW)
    values: Integers = field(default_factory=none)
    counts: Integers = field(default_factory=none)

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
        """Returns the different numbers in order, and how often each came; this uses the tally up."""
        loose = self.loose[: self.waiting]
        loose.sort()
        values, counts = run_lengths(loose)
        if not len(self.values):
            return values, counts
        self._count(values, counts)
        return self.values, self.counts

    def _buffer(self, numbers: Integers) -> None:
        needed = self.waiting + len(numbers)
        if needed > len(self.loose):
            # Doubled: the new half takes up memory only once it is written to.
            grown = np.empty(max(needed, 2 * len(self.loose), FEW), dtype=np.int64)
            grown[: self.waiting] = self.loose[: self.waiting]
            self.loose = grown
        self.loose[self.waiting : needed] = numbers
        self.waiting = needed

    def _flush(self) -> None:
        loose = self.loose[: self.waiting]
        loose.sort()
        if 2 * different(loose) > self.waiting:
            self.limit = 2 * self.waiting
            return
        self._count(*run_lengths(loose))
        self.waiting, self.limit = 0, max(FEW, 2 * len(self.values))

    def _count(self, values: Integers, counts: Array) -> None:
        if not len(self.values):
            self.values, self.counts = values, counts.astype(np.int64)
            return
        place = np.searchsorted(self.values, values)
        new = self.values.take(place, mode="clip") != values
        self.counts[place[~new]] += counts[~new]
        if new.any():
            self.values = np.insert(self.values, place[new], values[new])
            self.counts = np.insert(self.counts, place[new], counts[new])


@dataclass(eq=False)
class Names:
    """Text, how often each came, and the number that comes with it.

    >>> names = Names.of(pa.array(["b", "a", "b"]), np.array([5, 3, 5])) + Names.of(pa.array(["a"]), np.array([4]))
    >>> [column.tolist() for column in names.counted()], names.contradicted
    ([['a', 'b'], [2, 2], [3, 5]], True)
    """

    tables: list[pa.Table] = field(default_factory=list)
    contradicted: bool = False  # whether a name came with two numbers
    limit: int = field(default_factory=lambda: FEW)

    @classmethod
    def of(cls, column: Any, numbers: Array) -> Names:
        """The names in an Arrow column of text."""
        names = column.cast(pa.large_string()).dictionary_encode()
        place = names.indices.to_numpy()
        number = np.zeros(len(names.dictionary), dtype=np.int64)
        number[place] = numbers
        rows = np.bincount(place, minlength=len(number))
        table = pa.table({"name": names.dictionary, "rows": rows, "number": number})
        return cls([table], not np.array_equal(number[place], numbers))

    def __add__(self, other: Names) -> Names:
        self.tables += other.tables
        self.contradicted |= other.contradicted
        if sum(map(len, self.tables)) > self.limit:
            self._merge()
            self.limit = max(FEW, 2 * len(self.tables[0]))
        return self

    def collect_counts(self) -> tuple[Array, Array, Array]:
        """Returns the different names in order, how often each came, and with which number."""
        if not sum(map(len, self.tables)):
            return np.empty(0, dtype=object), none(), none()
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
            table = table.take(first).set_column(1, "rows", pa.array(np.add.reduceat(rows.to_numpy(), first)))
        self.tables = [table]


def blocks(length: int) -> Iterator[slice]:
    """Cuts a long array into slices."""
    return (slice(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


def different(ordered: Integers) -> int:
    """Returns how many different numbers a sorted array holds."""
    steps = (np.diff(ordered[block.start : block.stop + 1]) for block in blocks(len(ordered)))
    return sum(int(np.count_nonzero(step)) for step in steps) + min(len(ordered), 1)


def run_lengths(ordered: Integers) -> tuple[Integers, Array]:
    """Returns the different numbers of a sorted array, which it overwrites, and how often each came."""
    counts: Array = np.empty(len(ordered), dtype=np.uint8)
    found = 0
    for block in blocks(len(ordered)):
        numbers = ordered[block]
        begins = block.start == 0 or numbers[0] != ordered[block.start - 1]
        first = np.flatnonzero(np.r_[begins, numbers[1:] != numbers[:-1]])
        lengths = np.diff(np.r_[0, first, len(numbers)])
        if found:
            lengths[0] += counts[found - 1]  # the block begins with more of the last number
        counts = _wide_enough(counts, found, lengths)
        counts[max(found - 1, 0) : found + len(first)] = lengths[0 if found else 1 :]
        ordered[found : found + len(first)] = numbers[first]
        found += len(first)
    if 2 * found > len(ordered):
        return ordered[:found], counts[:found]
    return ordered[:found].copy(), counts[:found].copy()  # so that the long arrays can be given back


def _wide_enough(counts: Array, used: int, lengths: Integers) -> Array:
    # Most people have few rows: a byte each, until somebody has more.
    wide = np.min_scalar_type(lengths.max())
    if wide.itemsize <= counts.itemsize:
        return counts
    wider = np.empty(len(counts), dtype=wide)
    wider[:used] = counts[:used]
    return wider
