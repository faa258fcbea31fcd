# SPDX-License-Identifier: Apache-2.0
"""Exact whole-number sums by cell: of weights, of values, of squares and of products.

The rows of a cell may have any weights below 2^42, and values are integers up to 2^32 on a public
grid. Both are cut into limbs as in kernels.py, so that sums over a piece of rows are exact as
doubles; a cell's sum over all rows is kept as two whole numbers, high·2^60 + low, with the carry
taken at every addition. It holds sums up to 2^122: nothing wraps. Where kinds of owners are few,
rows are first counted by cell and kind, and weights are multiplied once a batch.

A row without a value (null or NaN) is in its cell all the same: its weight is kept beside the
weight of those with one, so that "of those who have a value" and the share that is missing are both
known. Values beyond the bounds, infinite ones too, are clipped by the grid.

Tables of very many cells come back from a batch with the cells that occur in it alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Array, Floats, Integers
from sottovoce.data.cells import Cells
from sottovoce.data.engine import GroupLookup, NameIndex, as_array, as_floats
from sottovoce.data.kernels import (
    GROUP_BITS,
    GROUP_ROWS,
    GROUP_SUMS,
    GROUP_VALUES,
    PIECE_ROWS,
    VALUE_LIMB,
    WEIGHT_LIMB,
    GroupedSum,
    Grouping,
    GroupKey,
    Quantiser,
)
from sottovoce.errors import InvalidParameter

#: A row's weight, and all weights of a table together, stay at or below these.
WEIGHT_BITS = 42
TOTAL_BITS = 62
#: Sums are kept in two digits, the lower one of so many bits.
DIGIT_BITS = 60
#: Rows are counted by cell and kind if there are no more pairs than this.
FEW_PAIRS = 2**16
#: A batch tells the cells that occur in it alone if there are more than this.
DENSE_CELLS = 2**16
#: A database groups numbers by at most so many points, and owners by at most so many names.
MAX_POINTS = 64
MAX_OWNERS = 1000
#: Squares and products are of integers up to this, so that they are at most 2^32.
MAX_FACTOR = 2**16


@dataclass(frozen=True, eq=False)
class CellKernel:
    """What all of them read: the cell of each row, and its whole-number weight."""

    cells: Cells
    owner: GroupLookup
    weights: NDArray[np.int64]  # of one row, by kind; all rows together at most 2^62

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights)
        if weights.size and not 0 <= weights.min() <= weights.max() <= 2**WEIGHT_BITS:
            raise InvalidParameter(
                "A weight is negative, or larger than sums are exact for.",
                f"Weights are whole numbers up to 2^{WEIGHT_BITS}.",
                "Scale the weights.",
                parameter="weights",
            )

    def make_grouping(self) -> Grouping | None:
        """Returns how a database may group rows first, None where that would help nobody."""
        keys = make_group_keys(self.cells, self.owner)
        if keys is None or self.value_columns:
            return None
        return Grouping(keys)

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The columns of numbers that are summed."""
        return ()

    @property
    def word_columns(self) -> tuple[str, ...]:
        """The columns of text that may come as dictionaries, because few words are expected."""
        words = [*self.cells.text_columns]
        if isinstance(self.owner.keys, NameIndex) and self.owner.count_keys() <= MAX_OWNERS:
            words += self.owner.columns
        return tuple(name for name in dict.fromkeys(words) if name not in self.value_columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((*self.cells.columns, *self.value_columns, *self.owner.columns)))


def make_group_keys(cells: Cells, owner: GroupLookup) -> tuple[GroupKey, ...] | None:
    """Returns the columns to group by, such that all rows of a group have one cell and one kind of
    owner; None where there may be too many groups.
    """
    keys: dict[str, GroupKey] = {}
    for key in (*cells.list_group_keys(), *(GroupKey(name) for name in owner.columns)):
        known = keys.setdefault(key.column, key)
        if known.by != key.by:  # read in two ways
            return None
        points = sorted({*known.points, *key.points})
        keys[key.column] = replace(key, points=tuple(points))
    many = any(len(key.points) > MAX_POINTS for key in keys.values())
    if many or (owner.column is not None and owner.count_keys() > MAX_OWNERS):
        return None
    return tuple(keys.values())


def check_total(weights: NDArray[np.int64], rows: Integers) -> None:
    """Refuses weights by kind, with so many rows of each, that together exceed what whole numbers
    of 64 bits hold.
    """
    total = sum(int(w) * int(n) for w, n in zip(weights, rows, strict=True))
    if total > 2**TOTAL_BITS:
        raise InvalidParameter(
            "The weights of all rows together are larger than sums are exact for.",
            f"Together they are at most 2^{TOTAL_BITS}.",
            "Scale the weights.",
            parameter="weights",
        )


@dataclass(frozen=True, eq=False)
class CellWeights(CellKernel):
    """Σ weight over the rows of each cell, which is exact while all weights are at most 2^62."""

    def zero(self) -> NDArray[np.int64]:
        """The weights of no rows."""
        return np.zeros(self.cells.size, dtype=np.int64)

    def __call__(self, batch: Any) -> NDArray[np.int64]:
        """Returns the exact weight in each cell."""
        kinds = self.owner.kinds(batch)
        return add_weights(self.cells.codes(batch), self.cells.size, self.weights, kinds)

    def of_groups(self, batch: Any) -> NDArray[np.int64]:
        """Returns the exact weight in each cell, from groups of rows."""
        rows = as_array(batch.column(GROUP_ROWS)).astype(np.int64, copy=False)
        total = self.zero()
        weights = self.weights.take(self.owner.kinds(batch))
        np.add.at(total, self.cells.codes(batch), rows * weights)
        return total


def add_weights(
    codes: Integers, size: int, weights: NDArray[np.int64], kinds: Array
) -> NDArray[np.int64]:
    """Returns Σ weight by cell, for at most 2^18 rows."""
    if len(weights) == 1:
        return np.asarray(np.bincount(codes, minlength=size) * weights[0], dtype=np.int64)
    if size * len(weights) <= FEW_PAIRS:
        counts = _count_pairs(codes, size, kinds, len(weights))
        return np.asarray(counts @ weights, dtype=np.int64)
    rows = weights.take(kinds)
    # The sums of limbs are below 2^(21+18), so they are exact as doubles.
    high = np.bincount(codes, rows >> WEIGHT_LIMB, minlength=size)
    low = np.bincount(codes, rows & (2**WEIGHT_LIMB - 1), minlength=size)
    return (high.astype(np.int64) << WEIGHT_LIMB) + low.astype(np.int64)


def _count_pairs(codes: Integers, size: int, kinds: Array, count: int) -> Integers:
    pairs = codes * count + kinds
    return np.bincount(pairs, minlength=size * count).reshape(size, count)


@dataclass(eq=False)
class CellTotals:
    """Exact sums by cell, which add in place."""

    weights: NDArray[np.int64]  # of rows with a value
    missing: NDArray[np.int64]  # of rows without one
    high: NDArray[np.int64]  # a line a summed number: high·2^60 + low
    low: NDArray[np.int64]
    size: int
    cells: Integers | None = None  # which cells these are, each once; None: all of them

    def __add__(self, other: CellTotals) -> CellTotals:
        if self.cells is not None:
            self = self.to_dense()
        at: Any = slice(None) if other.cells is None else other.cells
        self.weights[at] += other.weights
        self.missing[at] += other.missing
        low = self.low[:, at] + other.low
        self.high[:, at] += other.high + (low >> DIGIT_BITS)
        self.low[:, at] = low & (2**DIGIT_BITS - 1)
        return self

    def to_dense(self) -> CellTotals:
        """Returns the totals of all cells."""
        return make_zero_totals(self.size, len(self.low)) + self

    def get_line(self, line: int) -> Array:
        """Returns one summed number by cell, as Python integers."""
        return np.asarray((self.high[line].astype(object) << DIGIT_BITS) + self.low[line])

    @property
    def sums(self) -> Array:
        """Σ weight·integer by cell, as Python integers."""
        return self.get_line(0)

    @property
    def squares(self) -> Array:
        """Σ weight·integer² by cell, as Python integers, where they were asked for."""
        return self.get_line(1)


def make_zero_totals(size: int, lines: int) -> CellTotals:
    """Returns the totals of no rows."""
    return CellTotals(
        np.zeros(size, dtype=np.int64),
        np.zeros(size, dtype=np.int64),
        np.zeros((lines, size), dtype=np.int64),
        np.zeros((lines, size), dtype=np.int64),
        size,
    )


@dataclass(frozen=True, eq=False)
class CellSums(CellKernel):
    """Σ weight, Σ weight·integer and, if asked, Σ weight·integer² by cell, of rows with a value."""

    value: str
    grid: Quantiser
    with_squares: bool = False
    missing: float | None = None  # the public constant that stands for missing values, if any

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.with_squares:
            _refuse_fine_grid(self.grid)

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The column of numbers."""
        return (self.value,)

    @property
    def lines(self) -> int:
        """How many numbers are summed."""
        return 1 + self.with_squares

    def zero(self) -> CellTotals:
        """The totals of no rows."""
        return make_zero_totals(self.cells.size, self.lines)

    def __call__(self, batch: Any) -> CellTotals:
        """Returns the exact totals of the batch."""
        numbers = as_floats(batch.column(self.value))
        absent = np.isnan(numbers)
        if self.missing is not None:
            numbers = np.where(absent, self.missing, numbers)
            absent = np.zeros(len(numbers), dtype=np.bool_)
        integers = self.grid.integers(np.where(absent, self.grid_low, numbers))
        lines = [integers]
        if self.with_squares:
            lines.append(integers * integers)
        return add_totals(self, batch, lines, absent)

    def make_grouping(self) -> Grouping | None:
        """Returns how a database may group and sum rows first; None where it cannot."""
        keys = make_group_keys(self.cells, self.owner)
        known = all(hasattr(self.grid, name) for name in ("low", "high", "exponent"))
        shared = keys is not None and any(key.column == self.value for key in keys)
        if keys is None or not known or shared or self.missing is not None:
            return None
        grid: Any = self.grid
        summed = GroupedSum(self.value, grid.low, grid.high, grid.exponent, self.with_squares)
        return Grouping(keys, summed)

    def of_groups(self, batch: Any) -> CellTotals:
        """Returns the exact totals, from groups of rows and their sums."""
        codes = self.cells.codes(batch)
        weights = self.weights.take(self.owner.kinds(batch))
        rows = as_array(batch.column(GROUP_ROWS)).astype(np.int64, copy=False)
        values = as_array(batch.column(GROUP_VALUES)).astype(np.int64, copy=False)
        totals = self.zero()
        np.add.at(totals.weights, codes, values * weights)
        np.add.at(totals.missing, codes, (rows - values) * weights)
        for line in range(self.lines):
            limbs = [
                (term, place + shift)
                for name, shift in zip(GROUP_SUMS[line], (GROUP_BITS, 0), strict=True)
                for term, place in _add_limbs(
                    codes, self.cells.size, weights, as_floats(batch.column(name))
                )
            ]
            totals.high[line], totals.low[line] = to_digits(limbs)
        return totals

    @property
    def grid_low(self) -> float:
        """A number that the grid has, for rows whose number does not count."""
        return float(getattr(self.grid, "low", 0.0))


@dataclass(frozen=True, eq=False)
class CellProducts(CellKernel):
    """Σ weight·z_j and Σ weight·z_j·z_k by cell, of several numbers z on grids of up to 2^16 cells,
    over the rows that have all of them.
    """

    values: tuple[str, ...]
    grids: tuple[Quantiser, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        for grid in self.grids:
            _refuse_fine_grid(grid)

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The columns of numbers."""
        return self.values

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The products that are summed, each once."""
        return list(combinations_with_replacement(range(len(self.values)), 2))

    def zero(self) -> CellTotals:
        """The totals of no rows."""
        return make_zero_totals(self.cells.size, len(self.values) + len(self.pairs))

    def __call__(self, batch: Any) -> CellTotals:
        """Returns the exact totals of the batch."""
        raw = [as_floats(batch.column(name)) for name in self.values]
        absent = np.any([np.isnan(numbers) for numbers in raw], axis=0)
        whole = [
            grid.integers(np.where(absent, getattr(grid, "low", 0.0), numbers))
            for grid, numbers in zip(self.grids, raw, strict=True)
        ]
        return add_totals(
            self, batch, [*whole, *(whole[j] * whole[k] for j, k in self.pairs)], absent
        )

    def to_matrix(self, totals: CellTotals) -> tuple[Array, Array]:
        """Returns Σ weight·z, a line a cell, and Σ weight·zzᵀ, a matrix a cell, as Python
        integers.
        """
        count = len(self.values)
        sums = np.array([totals.get_line(j) for j in range(count)], dtype=object).T
        products = np.zeros((totals.size, count, count), dtype=object)
        for line, (j, k) in enumerate(self.pairs, start=count):
            products[:, j, k] = products[:, k, j] = totals.get_line(line)
        return sums, products


def _refuse_fine_grid(grid: Quantiser) -> None:
    if grid.cells > MAX_FACTOR:
        raise InvalidParameter(
            "The grid is finer than squares and products are exact for.",
            f"It has at most {MAX_FACTOR:,} cells.",
            "Take a coarser grid.",
            parameter="grid",
        )


def add_totals(
    kernel: CellKernel, batch: Any, lines: list[Floats], absent: NDArray[np.bool_]
) -> CellTotals:
    """Returns the totals of a batch from the integers of its rows."""
    codes = kernel.cells.codes(batch)
    kinds = kernel.owner.kinds(batch)
    size = kernel.cells.size
    present: Integers | None = None
    if size > DENSE_CELLS:
        present, codes = np.unique(codes, return_inverse=True)
        size = len(present)
    weights = kernel.weights
    if absent.any():
        missing = add_weights(codes[absent], size, weights, kinds[absent])
        kept = ~absent
        codes = codes[kept]
        kinds = kinds[kept]
        lines = [numbers[kept] for numbers in lines]
    else:
        missing = np.zeros(size, dtype=np.int64)
    counted = add_weights(codes, size, weights, kinds)
    if size * len(weights) <= FEW_PAIRS:
        digits = [_sum_pairs(codes, size, weights, kinds, numbers) for numbers in lines]
    else:
        rows = weights.take(kinds)
        digits = [_sum_limbs(codes, size, rows, numbers) for numbers in lines]
    high = np.array([one for one, _ in digits], dtype=np.int64).reshape(len(lines), size)
    low = np.array([two for _, two in digits], dtype=np.int64).reshape(len(lines), size)
    return CellTotals(counted, missing, high, low, kernel.cells.size, present)


def _sum_pairs(
    codes: Integers, size: int, weights: NDArray[np.int64], kinds: Array, numbers: Floats
) -> tuple[Integers, Integers]:
    """Returns Σ weight·number by cell: numbers are added by cell and kind first."""
    count = len(weights)
    # At most 2^18 numbers of at most 2^32 are below 2^50, which is exact.
    sums = np.bincount(codes * count + kinds, numbers, minlength=size * count)
    table = sums.reshape(size, count).astype(np.int64)
    terms = []
    half = 25
    for place, part in ((half, table >> half), (0, table & (2**half - 1))):
        terms.append((part @ (weights >> WEIGHT_LIMB), place + WEIGHT_LIMB))
        terms.append((part @ (weights & (2**WEIGHT_LIMB - 1)), place))
    return to_digits(terms)


def _sum_limbs(
    codes: Integers, size: int, rows: NDArray[np.int64], numbers: Floats
) -> tuple[Integers, Integers]:
    """Returns Σ weight·number by cell as two digits."""
    return to_digits(_add_limbs(codes, size, rows, numbers))


def _add_limbs(
    codes: Integers, size: int, rows: NDArray[np.int64], numbers: Floats
) -> list[tuple[Integers, int]]:
    """Returns Σ weight·number by cell, limb by limb over pieces of 2^16 rows (kernels.py), each
    with its place.
    """
    limbs = np.zeros((4, size), dtype=np.int64)
    for at in range(0, len(codes), PIECE_ROWS):
        piece = slice(at, at + PIECE_ROWS)
        weight_high = rows[piece] >> WEIGHT_LIMB
        weight_low = rows[piece] & (2**WEIGHT_LIMB - 1)
        value_high = np.floor(numbers[piece] * 2.0**-VALUE_LIMB)
        value_low = numbers[piece] - value_high * 2.0**VALUE_LIMB
        products = (
            weight_high * value_high,
            weight_high * value_low,
            weight_low * value_high,
            weight_low * value_low,
        )
        for place, product in enumerate(products):
            limbs[place] += np.bincount(codes[piece], product, minlength=size).astype(np.int64)
    places = (WEIGHT_LIMB + VALUE_LIMB, WEIGHT_LIMB, VALUE_LIMB, 0)
    return list(zip(limbs, places, strict=True))


def to_digits(terms: list[tuple[Integers, int]]) -> tuple[Integers, Integers]:
    """Returns Σ term·2^place as high·2^60 + low, for up to seven terms below 2^62 at places below
    60, and others at higher ones.
    """
    high = np.zeros_like(terms[0][0])
    low = np.zeros_like(terms[0][0])
    for term, place in terms:
        if place >= DIGIT_BITS:
            high += term << (place - DIGIT_BITS)
            continue
        high += term >> (DIGIT_BITS - place)
        low += (term & (2 ** (DIGIT_BITS - place) - 1)) << place
    return high + (low >> DIGIT_BITS), low & (2**DIGIT_BITS - 1)
