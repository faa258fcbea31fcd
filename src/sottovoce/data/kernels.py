# SPDX-License-Identifier: Apache-2.0
"""Exact whole-number statistics of a batch of rows (docs/theory/grid.md).

Values become integers below 2^32 on a public grid, weights are integers below 2^42. Each is cut
into two limbs, values into 16 bits and weights into 21, so that over the at most 2^16 rows of a
piece every partial sum is below 2^(21+16+16) = 2^53: a float64 matrix product is then *exact* in
any order of summation, at the speed of doubles. Pieces are added as Python integers, which do not
overflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Floats
from sottovoce.data.engine import GroupLookup, as_floats
from sottovoce.errors import MissingValues

VALUE_BITS = 32
VALUE_LIMB = 16
WEIGHT_LIMB = 21
PIECE_ROWS = 2**16


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

    def pieces(self, batch: Any) -> Iterator[tuple[Floats, NDArray[np.int64]]]:
        """Yields integers and weights, at most 2^16 rows at a time; rows of people left out are not
        read.
        """
        for start in range(0, len(batch), PIECE_ROWS):
            piece = batch.slice(start, PIECE_ROWS)
            weights = self.weights.take(self.owner.kinds(piece))
            values = as_floats(piece.column(self.value))
            if not weights.all():
                values = values[weights > 0]
                weights = weights[weights > 0]
            yield self.grid.integers(fill_missing(values, self.missing)), weights


@dataclass(frozen=True, eq=False)
class WeightedSum(WeightedKernel):
    """Σ weight·integer over the rows."""

    def zero(self) -> int:
        """The sum over no rows."""
        return 0

    def __call__(self, batch: Any) -> int:
        """Returns the exact sum over the batch."""
        return sum(exact_dot(weights, integers) for integers, weights in self.pieces(batch))


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
    # einsum, because the threads of BLAS would compete with the engine's.
    ((hh, hl), (lh, ll)) = np.einsum("wi,vi->wv", W, V).astype(np.int64).tolist()
    return int((hh << (WEIGHT_LIMB + VALUE_LIMB)) + (hl << WEIGHT_LIMB) + (lh << VALUE_LIMB) + ll)


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
