# SPDX-License-Identifier: Apache-2.0
"""Exact weighted sums of products of features and label, and of residuals (docs/theory/moments.md).

Each coordinate of ẑ = (1, z, y), z doubled so that all lie in [−1, 1], becomes a whole number of at
most 2^13; weights are cut into limbs of 13 bits; over blocks of 2^13 rows every partial sum stays
below 2^(13+13+13+13) = 2^52, so the float64 matrix product is exact in any order, at the speed of
BLAS. Residuals are counted exactly too: a row's own does not depend on where the row stands
(loss_kernels.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Array
from sottovoce.budgets import BudgetGroups
from sottovoce.data.engine import Dataset
from sottovoce.data.kernels import GroupLookup
from sottovoce.data.loss_kernels import PIECE, compute_predictions, round_to_grid
from sottovoce.data.readers import Label, Reader
from sottovoce.errors import InvalidBudget
from sottovoce.weights import Weights

BITS = 13
UNIT = 2**BITS
BLOCK = 2**13
#: Weights fit one limb if nobody's is below this share of the loudest row's; else two limbs are
#: used.
ONE_LIMB = 1 / 64
#: Who grants less than this part of the mean ε is not heard.
USABLE_SHARE = 1e-6


@dataclass(frozen=True, eq=False)
class Products:
    """Σ weight·ẑẑᵀ over the rows, as Python integers in an object matrix."""

    reader: Reader
    label: Label
    owner: GroupLookup
    weights: NDArray[np.int64]  # of one row, by kind, below 2^26

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> Array:
        """Sums over no rows."""
        d = self.reader.width + 2
        return np.zeros((d, d), dtype=object)

    def __call__(self, batch: Any) -> Array:
        """Returns the exact sums over the batch, a cacheful of rows at a time."""
        d = self.reader.width + 2
        limbs = np.zeros(
            (2, d, d), dtype=np.int64
        )  # a batch has at most 2^18 rows: sums stay below 2^(52+5)
        for start in range(0, len(batch), BLOCK):
            self._add(batch.slice(start, BLOCK), limbs)
        high, low = limbs.astype(object)
        return np.asarray((high << BITS) + low)

    def _add(self, batch: Any, limbs: NDArray[np.int64]) -> None:
        weights = self.weights[self.owner.kinds(batch)]
        Z = self.reader.matrix(batch)
        y = self.label.values(batch)
        if (
            not weights.all()
        ):  # rows of people left out are not read: not even a NaN of theirs counts
            weights, Z, y = weights[weights > 0], Z[weights > 0], y[weights > 0]
        coordinates = to_whole_numbers(Z, y)
        for place, limb in enumerate((weights >> BITS, weights & (UNIT - 1))):
            if limb.any():
                limbs[place] += (coordinates.T @ (coordinates * limb[:, None])).astype(np.int64)


@dataclass(frozen=True, eq=False)
class ResidualHistogram:
    """Σ weight over rows whose residual y − φᵀθ falls in each cell of a public grid; exact whole
    numbers.
    """

    reader: Reader
    label: Label
    owner: GroupLookup
    weights: NDArray[np.int64]  # of one row, by kind; they must add up to less than 2^62
    grid: Any  # a statistics.Quantiser
    theta: NDArray[np.float64]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> NDArray[np.int64]:
        """The histogram of no rows."""
        return np.zeros(self.grid.cells + 1, dtype=np.int64)

    def __call__(self, batch: Any) -> NDArray[np.int64]:
        """Returns the exact weight in each cell."""
        weights = self.weights[self.owner.kinds(batch)]
        Z = self.reader.matrix(batch)
        heard = weights > 0
        fitted = [
            compute_predictions(round_to_grid(Z[at : at + PIECE]), self.theta)
            for at in range(0, len(Z), PIECE)
        ]
        residuals = self.label.values(batch) - np.concatenate([np.empty(0), *fitted])
        total = self.zero()
        np.add.at(total, self.grid.integers(residuals[heard]).astype(np.int64), weights[heard])
        return total


def to_whole_numbers(Z: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns ẑ = (1, 2z, y)·2^13 rounded to whole numbers, each within ±2^13 (as float64)."""
    # Laid out as Z is: to turn a matrix over costs more than all the rest.
    coordinates = np.empty((len(y), Z.shape[1] + 2), order="F" if Z.flags.f_contiguous else "C")
    coordinates[:, 0] = UNIT
    np.multiply(Z, 2.0 * UNIT, out=coordinates[:, 1:-1])
    np.multiply(y, UNIT, out=coordinates[:, -1])
    return np.asarray(np.rint(coordinates, out=coordinates), dtype=np.float64)


def make_proportional_weights(kinds: BudgetGroups) -> Weights:
    """Returns whole-number weights w ∝ ε, spread over a person's rows, in one or two limbs;
    whispers weigh nothing.
    """
    per_row = np.where(has_usable_budget(kinds), kinds.epsilon, 0) / kinds.rows
    loudest = per_row.max()
    if not loudest > 0:
        raise InvalidBudget(
            "Nobody grants anything.", "Somebody's ε must be above 0.", "Give people a positive ε."
        )
    quiet = per_row[per_row > 0].min() < ONE_LIMB * loudest
    if quiet:
        bits = 2 * BITS
    else:
        bits = BITS
    return Weights.from_integers(
        kinds, np.floor(per_row / loudest * (2**bits - 1)).astype(np.int64)
    )


def has_usable_budget(kinds: BudgetGroups) -> NDArray[np.bool_]:
    """Returns which kinds of people grant at least a millionth of the mean ε.

    Fewer than that could not be heard, but what covers rounding (solver_error, ε_out) must be paid
    by everybody who takes part, so one person at 1e-9 would set the noise for all.
    """
    mean = float((kinds.epsilon * kinds.people).sum() / kinds.people.sum())
    return np.asarray(kinds.epsilon > USABLE_SHARE * mean, dtype=np.bool_)


def sum_products(rows: Dataset, weights: Weights) -> Array:
    """Returns the matrix of exact sums for the rows of a question."""
    return rows.engine.fold(Products(rows.features, rows.label, rows.owner, weights.row))
