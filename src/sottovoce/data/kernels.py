# SPDX-License-Identifier: Apache-2.0
"""Exact whole-number statistics of a batch of rows (docs/theory/grid.md).

Values become integers below 2^32 on a public grid, weights are integers below 2^42. Each is cut
into two limbs, values into 16 bits and weights into 21, so that over the at most 2^16 rows of a
piece every partial sum is below 2^(21+16+16) = 2^53: a float64 matrix product is then *exact* in
any order of summation, at the speed of doubles. Pieces are added as Python integers, which do not
overflow. Where people are of few kinds, integers are added up by kind first, below 2^(32+16), and
each sum is weighted once.

A database may group the rows before a kernel sees them. A kernel that allows it has
``make_grouping``, which says by what, and ``of_groups``, which takes a batch of groups: the keys
under the names of their columns, and the columns named below. One entry stands for all of a group
that the kernel cannot tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Array, Floats
from sottovoce.data.engine import ArrayBatch, GroupLookup, as_floats, cut_batch
from sottovoce.errors import MissingValues, ReleaseFailed

VALUE_BITS = 32
VALUE_LIMB = 16
WEIGHT_LIMB = 21
PIECE_ROWS = 2**16
#: Up to so many kinds, a sum by kind takes half as long as a product with everybody's weight.
FEW_KINDS = 256
#: The column of kinds that two kernels share.
SHARED_KIND = "kind of the owner"


class Quantiser(Protocol):
    """A public grid: clips and rounds values to integers 0 … cells (as float64)."""

    @property
    def cells(self) -> int:
        """The largest integer."""

    def integers(self, values: Floats) -> Floats:
        """Returns whole numbers in 0 … cells, whatever finite values come in."""


@dataclass(frozen=True, eq=False)
class WeightedKernel:
    """What both statistics below read: a column on a grid, and the whole-number weight of each
    row.
    """

    value: str
    grid: Quantiser
    owner: GroupLookup
    weights: NDArray[np.int64]  # of one row, by kind
    missing: float | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return (self.value, *self.owner.columns)

    def zero(self) -> Any:
        """The answer for no rows."""
        raise NotImplementedError

    def __call__(self, batch: Any) -> Any:
        """Returns the exact answer for this batch."""
        raise NotImplementedError

    def pieces(self, batch: Any) -> Iterator[tuple[Floats, NDArray[np.int64]]]:
        """Yields integers and weights, at most 2^16 rows at a time; rows of people left out are not
        read.
        """
        for piece in cut_batch(batch, PIECE_ROWS):
            weights = look_up(self.weights, self.owner.kinds(piece))
            values = as_floats(piece.column(self.value))
            if not weights.all():
                values = values[weights > 0]
                weights = weights[weights > 0]
            yield self.grid.integers(fill_missing(values, self.missing)), weights

    def add_up(self, batch: Any, measure: Callable[[Floats], Floats]) -> int:
        """Returns Σ weight·measure(integer) exactly, for measures in [0, 2^32]."""
        if len(self.weights) > FEW_KINDS:
            return sum(exact_dot(weights, measure(each)) for each, weights in self.pieces(batch))
        total = 0
        everybody = bool(self.weights.all())
        for piece in cut_batch(batch, PIECE_ROWS):
            kinds = self.owner.kinds(piece)
            values = as_floats(piece.column(self.value))
            # Whoever is left out counts 0 times, and must not matter where they hold no number.
            if not (everybody or np.isfinite(values).all()):
                taking_part = look_up(self.weights, kinds) > 0
                kinds = kinds[taking_part]
                values = values[taking_part]
            integers = self.grid.integers(fill_missing(values, self.missing))
            total += weigh_kinds(self.weights, kinds, measure(integers))
        return total


@dataclass(frozen=True, eq=False)
class WeightedSum(WeightedKernel):
    """Σ weight·integer over the rows."""

    def zero(self) -> int:
        """The sum over no rows."""
        return 0

    def __call__(self, batch: Any) -> int:
        """Returns the exact sum over the batch."""
        return self.add_up(batch, lambda integers: integers)


@dataclass(frozen=True, eq=False)
class WeightedSquares(WeightedKernel):
    """Σ weight·(2·integer − cells)² over the rows: squares around the middle of the grid, of at
    most 2^16 cells.
    """

    def zero(self) -> int:
        """The sum over no rows."""
        return 0

    def __call__(self, batch: Any) -> int:
        """Returns the exact sum over the batch."""
        return self.add_up(batch, self._square)

    def _square(self, integers: Floats) -> Floats:
        around = 2 * integers
        around -= self.grid.cells
        around *= around
        return around


@dataclass(frozen=True, eq=False)
class PartPair:
    """Two parts of an answer that add up side by side."""

    first: Any
    second: Any

    def __add__(self, other: PartPair) -> PartPair:
        return PartPair(self.first + other.first, self.second + other.second)


@dataclass(frozen=True, eq=False)
class KernelPair:
    """Two kernels over the same rows, which are read once."""

    first: WeightedKernel
    second: WeightedKernel

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return self.first.columns

    def zero(self) -> PartPair:
        """The answers for no rows."""
        return PartPair(self.first.zero(), self.second.zero())

    def __call__(self, batch: Any) -> PartPair:
        """Returns both exact answers over the batch."""
        first = self.first
        second = self.second
        if first.owner is second.owner and first.owner.column != SHARED_KIND:
            # Whose each row is takes longer to find than what is summed.
            columns = {
                first.value: batch.column(first.value),
                SHARED_KIND: first.owner.kinds(batch),
            }
            columns[second.value] = batch.column(second.value)
            batch = ArrayBatch(columns, len(batch))
            first = replace(first, owner=GroupLookup(SHARED_KIND))
            second = replace(second, owner=GroupLookup(SHARED_KIND))
        return PartPair(first(batch), second(batch))


@dataclass(frozen=True, eq=False)
class WeightedHistogram(WeightedKernel):
    """Σ weight over the rows of each integer 0 … cells; the total of all weights must be below
    2^62.
    """

    def zero(self) -> NDArray[np.int64]:
        """The histogram of no rows."""
        return np.zeros(self.grid.cells + 1, dtype=np.int64)

    def __call__(self, batch: Any) -> NDArray[np.int64]:
        """Returns the exact weight in each cell."""
        total = self.zero()
        for integers, weights in self.pieces(batch):
            np.add.at(total, integers.astype(np.int64), weights)
        return total


@dataclass(frozen=True)
class ColumnScan:
    """Nothing but that the columns can be read: a text file is parsed, and a cell that is no number
    is found before anybody is charged.
    """

    columns: tuple[str, ...]

    def zero(self) -> int:
        """No rows, nothing."""
        return 0

    def __call__(self, batch: Any) -> int:
        """Returns nothing."""
        return 0


@dataclass(frozen=True, eq=False)
class HasInvalidValues:
    """Whether the rows hold anything that the declaration does not allow: said as yes or no, never
    where.
    """

    value: str
    owner: GroupLookup
    participating: NDArray[np.bool_]  # by kind; rows of people left out are not read
    missing: float | None = None

    @cached_property
    def everybody(self) -> bool:
        """Whether nobody is left out."""
        return bool(self.participating.all())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        if self.everybody:
            return (self.value,)
        return (self.value, *self.owner.columns)

    def zero(self) -> int:
        """No rows, nothing unfit."""
        return 0

    def __call__(self, batch: Any) -> int:
        """Returns 1 if a value is infinite, or is missing while no public constant stands for
        it.
        """
        values = as_floats(batch.column(self.value))
        if not self.everybody:
            values = values[self.participating[self.owner.kinds(batch)]]
        if self.missing is not None:
            return int(np.isinf(values).any())
        return int(not np.isfinite(values).all())


def exact_dot(weights: NDArray[np.int64], integers: Floats) -> int:
    """Returns Σ weights·integers exactly, for at most 2^16 weights in [0, 2^42] and integers in [0,
    2^32].
    """
    # The limit 2^42 itself has a high limb of 2^21 and a low limb of 0, and likewise 2^32, so both
    # are allowed: a sum of 2^16 products of high limbs is then 2^53, still a double.
    W = np.empty((2, len(weights)))
    np.right_shift(weights, WEIGHT_LIMB, out=W[0], casting="unsafe")
    np.bitwise_and(weights, 2**WEIGHT_LIMB - 1, out=W[1], casting="unsafe")
    V = np.empty((2, len(integers)))
    np.floor(np.multiply(integers, 2.0**-VALUE_LIMB, out=V[0]), out=V[0])
    np.subtract(integers, np.multiply(V[0], 2.0**VALUE_LIMB, out=V[1]), out=V[1])
    ((hh, hl), (lh, ll)) = (W @ V.T).astype(np.int64).tolist()
    return int((hh << (WEIGHT_LIMB + VALUE_LIMB)) + (hl << WEIGHT_LIMB) + (lh << VALUE_LIMB) + ll)


def weigh_kinds(weights: NDArray[np.int64], kinds: Array, integers: Floats) -> int:
    """Returns Σ weights[kind]·integer exactly, for at most 2^16 integers in [0, 2^32]; refuses
    what is no whole number.
    """
    if kinds.dtype.kind not in "iu" or (len(kinds) and int(kinds.min()) < 0):
        raise ReleaseFailed()
    sums = np.bincount(kinds, weights=integers, minlength=len(weights))  # below 2^48, so exact
    if len(sums) > len(weights) or not (sums == np.floor(sums)).all():
        raise ReleaseFailed()
    return sum(weight * int(part) for weight, part in zip(weights.tolist(), sums, strict=True))


def look_up(table: Array, places: Array) -> Array:
    """Returns the table's entries at these places, all of which must be in it."""
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) < len(table):
        raise ReleaseFailed()
    # They are looked at already: to take them without another look is twice as fast.
    return table.take(places, mode="clip")


def fill_missing(values: Floats, missing: float | None) -> Floats:
    """Returns values with the public constant in place of missing ones; what is still not finite is
    refused.
    """
    if missing is not None:
        values = np.where(np.isnan(values), missing, values)
    if not np.isfinite(values).all():
        raise invalid_values_error()
    return values


def invalid_values_error() -> MissingValues:
    """The refusal of values that are missing or infinite; it tells neither where nor how many."""
    return MissingValues(
        "The data has missing or infinite values.",
        "Every value must be a finite number, or a public constant must stand for missing ones.",
        "Declare a constant for them (missing), chosen without looking; dropping rows would "
        "change public counts.",
        parameter="missing",
    )


@dataclass(frozen=True)
class GroupKey:
    """A column by which a database may group rows before a kernel sees them.

    ``by`` is "value", or "day" for dates, or "points" for numbers: rows whose numbers lie on the
    same side of each of the ``points`` are one group, and any number of theirs stands for them.
    """

    column: str
    by: str = "value"
    points: tuple[float, ...] = ()


@dataclass(frozen=True)
class GroupedSum:
    """A column of numbers that a database may put on a grid and sum by group."""

    column: str
    low: float
    high: float
    exponent: int
    with_squares: bool = False


@dataclass(frozen=True)
class Grouping:
    """How rows may be grouped before a kernel sees them: the keys, and what is summed beside the
    count of rows.
    """

    keys: tuple[GroupKey, ...]
    summed: GroupedSum | None = None


#: The columns of a batch of groups, besides the keys: rows, those with a value, and the sums of
#: their integers and of the squares of these, each in two parts of 32 bits.
GROUP_ROWS = "rows in the group"
GROUP_VALUES = "values in the group"
GROUP_SUMS = (("upper sum", "lower sum"), ("upper squares", "lower squares"))
#: Bits of the lower part.
GROUP_BITS = 32
