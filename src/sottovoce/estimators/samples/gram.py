# SPDX-License-Identifier: Apache-2.0
"""Weighted sums of squares over rows of the unit ball, and one draw from the posterior that they make.

How rows and labels come to length 1 at most is public (docs/theory/posterior.md, section 1). With an intercept, numbers
are centred in their bounds and φ = (1, v)/√(1 + r²), r the largest possible ‖v‖; without one nothing is centred.

    symbol   name
    φ, y     a row of the unit ball, and its label in [−1, 1]
    w        weight of a row, by kind
    H        Σ wφφᵀ + λI
    θ̂        H⁻¹Σ wφy
    L        lower triangular, H = LLᵀ; L⁻ᵀz has covariance H⁻¹
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.bounds import Interval
from sottovoce.engine import Rows
from sottovoce.features import InBall, Label, Reader
from sottovoce.noise import normal, precise
from sottovoce.noise.precise import Reals
from sottovoce.recoding import Feature, Recoding, UnitBall, contrasts
from sottovoce.statistics import Owner
from sottovoce.table import Array
from sottovoce.terms import BLOCK, PIECE, whole

Floats = NDArray[np.float64]

#: Entries of a row, times the root of its weight, have two limbs of so many bits: over the 2^13 rows of a piece every
#: partial sum of their products is at most 2^(20+20+13) = 2^53, and a product in doubles is exact in any order.
BITS = 20


def ball_of(recoding: Recoding, norm: float | None, fit_intercept: bool) -> UnitBall:
    """Returns the public way of recoded rows into the unit ball."""
    columns = [f for f in recoding.features if f.width]
    if norm is not None:  # rows as they are, shortened to the norm
        middle, spread = zip(*(_uncentred(f, 1.0) for f in columns), strict=True)
        return UnitBall(np.concatenate(middle), np.concatenate(spread), norm, math.sqrt(0.5) * fit_intercept)
    sides = [(np.zeros(f.width), np.full(f.width, 0.5)) if fit_intercept else _uncentred(f, _size(f)) for f in columns]
    longest = math.sqrt(sum(_longest(f) ** 2 for f in columns))
    return UnitBall(
        np.concatenate([np.empty(0), *(middle for middle, _ in sides)]),
        np.concatenate([np.empty(0), *(spread for _, spread in sides)]),
        max(longest, 1.0),
        1 / math.sqrt(1 + longest**2) if fit_intercept else 0.0,
    )


def _uncentred(feature: Feature, size: float) -> tuple[Floats, Floats]:
    """The middle and spread in z that stand for x/size; a factor's contrasts are centred anyway."""
    if feature.levels:
        return np.zeros(feature.width), np.full(feature.width, 0.5)
    width = feature.high - feature.low
    return np.array([-(feature.low + feature.high) / (2 * width)]), np.array([size / width])


def _size(feature: Feature) -> float:
    return max(abs(feature.low), abs(feature.high))


def _longest(feature: Feature) -> float:
    """What a feature adds to ‖v‖ at most: 1 for a number, a little more for a factor of many levels."""
    return 2 * float(np.linalg.norm(contrasts(len(feature.levels)), axis=1).max()) if feature.levels else 1.0


def shortened(raw: Floats, norm: float) -> Floats:
    """Returns rows with those that are longer than ``norm`` scaled back to it; rows that are not finite stay."""
    largest = np.abs(raw).max(axis=1, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0)
    rows, units = raw.copy(), raw[usable] / largest[usable, None]
    length = np.linalg.norm(units, axis=1)
    long = length > norm / largest[usable]
    rows[np.flatnonzero(usable)[long]] = units[long] * (norm / length[long])[:, None]
    return rows


def label_scale(label: Interval, fit_intercept: bool) -> tuple[float, float]:
    """Returns the middle and half-range by which labels come into [−1, 1]; without an intercept not centred."""
    low, high = label
    return ((low + high) / 2, (high - low) / 2) if fit_intercept else (0.0, max(abs(low), abs(high)))


@dataclass(frozen=True, eq=False)
class Gram:
    """Σ w(φ, y)(φ, y)ᵀ over the rows, the same whole numbers in whatever order, batches and partitions they come.

    What is cut off, 2⁻⁴⁰ of the loudest at most, makes rows and labels shorter: theorems hold for what is left.
    """

    reader: Reader
    label: Label
    owner: Owner
    weights: Floats  # of one row, by kind
    scale: tuple[float, float]  # middle and half-range of the label

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> Array:
        """Sums over no rows."""
        return np.zeros((2 * self.reader.width + 2, 2 * self.reader.width + 2), dtype=object)

    def __call__(self, batch: Any) -> Array:
        """Returns the sums over the batch as Python's integers; ``decimals`` reads them."""
        return sum((self._sum_block(batch.slice(at, BLOCK)) for at in range(0, len(batch), BLOCK)), start=self.zero())

    def _sum_block(self, batch: Any) -> Array:
        """A cacheful of rows at a time."""
        total = np.zeros(self.zero().shape, dtype=np.int64)
        for at in range(0, len(batch), PIECE):
            total += self._sum_piece(batch.slice(at, PIECE))
        return total.astype(object)

    def _sum_piece(self, batch: Any) -> NDArray[np.int64]:
        w = self.weights[self.owner.kinds(batch)]
        heard = w > 0  # rows of people left out are not read
        root = np.sqrt(w[heard] * math.ldexp(1.0, 2 * BITS - self._exponent))
        rooted = root[:, None] * np.column_stack([self.reader.matrix(batch)[heard], self._read_labels(batch)[heard]])
        high = np.trunc(rooted)
        limbs = np.hstack([high, np.trunc((rooted - high) * 2.0**BITS)])  # towards zero, which makes no row longer
        return whole(limbs.T @ limbs)

    def decimals(self, sums: Array) -> Reals:
        """Returns the sums over all rows, with more digits than they have."""
        d = self.reader.width + 1
        crossed = sums[:d, d:] + sums[d:, :d]
        total = (sums[:d, :d] << (2 * BITS)) + (crossed << BITS) + sums[d:, d:]
        unit = Decimal(math.ldexp(1.0, self._exponent - 4 * BITS))
        with localcontext(precise.DECIMALS):
            return np.array([Decimal(int(entry)) * unit for entry in total.ravel()], dtype=object).reshape(d, d)

    @cached_property
    def _exponent(self) -> int:
        """No row weighs 2 to this."""
        return math.frexp(float(self.weights.max()))[1]

    def _read_labels(self, batch: Any) -> Floats:
        (middle, half), label = self.scale, self.label
        values = (label.low + label.high) / 2 + (label.high - label.low) / 2 * label.values(batch)
        return np.clip((values - middle) / half, -1.0, 1.0)


def sums(rows: Rows, ball: UnitBall, weights: Floats, scale: tuple[float, float]) -> tuple[Reals, Reals]:
    """Returns Σ wφφᵀ and Σ wφy, as decimals that no rounding has reached."""
    reader = rows.features if isinstance(rows.features, InBall) else InBall(ball, rows.features.recoding, rows.features)
    kernel = Gram(reader, rows.label, rows.owner, weights, scale)
    total = kernel.decimals(rows.engine.fold(kernel))
    return total[:-1, :-1], total[:-1, -1]


def sample(gram: Any, cross: Any, ridge: float, gamma: float) -> Reals:
    """Returns one draw from N(θ̂, H⁻¹/γ), H = gram + ridge·I, θ̂ = H⁻¹·cross, to some 100 digits."""
    with localcontext(precise.DECIMALS):
        L = cholesky(precise.decimals(gram) + np.diag([Decimal(ridge)] * len(cross)))
        noise = np.array([Decimal(z) / precise.ONE for z in normal.standard(len(cross))], dtype=object)
        whitened = solve_lower(L, precise.decimals(cross)) + noise / Decimal(gamma).sqrt()
        return solve_lower(L[::-1, ::-1].T, whitened[::-1])[::-1]


def cholesky(H: Reals) -> Reals:
    """Returns the lower triangular L with H = LLᵀ, for decimals."""
    L = np.full(H.shape, Decimal(0), dtype=object)
    for j in range(len(H)):
        column = H[j:, j] - L[j:, :j] @ L[j, :j]
        L[j:, j] = column / column[0].sqrt()
    return L


def solve_lower(L: Reals, b: Reals) -> Reals:
    """Returns x with Lx = b for a lower triangular L of decimals."""
    x = b.copy()
    for j in range(len(b)):
        x[j] = (b[j] - L[j, :j] @ x[:j]) / L[j, j]
    return x


def noisy_smallest(gram: Any, spread: float) -> Fraction:
    """Returns λ_min(gram), as doubles give it, and spread·N(0, 1), added exactly."""
    smallest = float(np.linalg.eigvalsh(np.asarray(gram, dtype=np.float64))[0])
    return Fraction(smallest) + Fraction(spread) * Fraction(normal.standard(1)[0], precise.ONE)


def lacking(noisy: Any, floor: float, margin: float) -> Any:
    """Returns λ_n, what is added so that no eigenvalue lies below the floor: max(0, floor + margin − λ̃)."""
    return np.maximum(0.0, floor + margin - noisy)
