# SPDX-License-Identifier: Apache-2.0
"""A public linear map of private labels, released with discrete noise on whole numbers (docs/theory/labels.md).

symbol            name
K, d×n            grid.map, whole numbers; C = K·2^grid.map_exponent is the map
z_i in 0 … N      labels on a grid (grid.values), N = grid.values.cells
S = K·z           the exact statistic; ⌊S/2^t⌋ after the shift by t bits
D_l               reach: how far K·z moves in the ℓ1 norm with the labels of person l, a cell each
b                 scale of the discrete Laplace noise, in shifted units
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.budgets import Budgets
from sottovoce.noise import laplace
from sottovoce.noise.grid import Grid, exponent_below, power_of_two
from sottovoce.plan import Plan, Theorem
from sottovoce.solvers.sensitivity import entrywise_norms, norms
from sottovoce.statistics import PIECE, as_array, as_floats, exact_dot
from sottovoce.table import Floats

Integers = NDArray[np.int64]

#: Entries of the map are whole numbers of at most this many bits, and nobody's add up to 2^53: doubles count them.
MAP_BITS, SUM_BITS = 42, 52
#: Labels are rounded to at least 2^20 cells, and to 2^-7 of the noise where that is finer.
MIN_BITS, MAX_BITS, SPARE_BITS = 20, 32, 7
#: The statistic is shifted until the noise has about this scale: fine steps, and far from int64's end.
SCALE_BITS = 40
#: Answers are multiples of a power of two below a thousandth of the noise.
ANSWER_BITS = 10

THEOREM = Theorem(
    "Public linear map of labels with Laplace noise: each person l loses at most (D_l·N/2^t + d)/b about their "
    "labels, and nothing is promised about features (pure ε, replace)",
    "docs/theory/labels.md",
)


@dataclass(frozen=True, eq=False)
class MapGrid:
    """Where labels, map, statistic and answer live."""

    values: Grid
    map: Integers
    map_exponent: int
    shift: int
    answer_exponent: int

    def to_dict(self) -> dict[str, Any]:
        """The grid as public JSON; of the map its fingerprint."""
        return {
            **self.values.to_dict(),
            "map_step": math.ldexp(1.0, self.map_exponent),
            "map_sha256": hashlib.sha256(np.ascontiguousarray(self.map).data).hexdigest(),
            "shift": self.shift,
            "answer_step": math.ldexp(1.0, self.answer_exponent),
        }


def whole_numbers(C: Floats, owner: Integers) -> tuple[Integers, int]:
    """Returns K and e with C ≈ K·2^e, |K_ji| ≤ 2^42, and Σ|K_ji| < 2^53 over the rows of each person."""
    order, starts = _together(owner)
    largest = math.frexp(float(np.abs(C).max()))[1]  # below 2^largest
    fullest = math.frexp(float(entrywise_norms(C.T[order], starts).max()))[1]
    exponent = max(largest - MAP_BITS, fullest - SUM_BITS)
    return np.rint(np.ldexp(C, -exponent)).astype(np.int64), exponent


def reach(K: Integers, owner: Integers, sensitivity: str) -> tuple[Integers, NDArray[np.bool_]]:
    """Returns D_l = max ‖K_l·δ‖₁ over |δ_i| ≤ 1 or a whole number above it, and who has it exactly.

    K is that of `whole_numbers`, so doubles hold every sum exactly. "entrywise" is Σ|K_ji| for everybody.
    """
    order, starts = _together(owner)
    rows = K.T[order].astype(np.float64)
    if sensitivity == "entrywise":
        return entrywise_norms(rows, starts).astype(np.int64), np.zeros(len(starts), dtype=bool)
    upper, exact = norms(rows, starts)
    return np.ceil(upper).astype(np.int64), exact


def _together(owner: Integers) -> tuple[Integers, Integers]:
    """Returns an order in which everybody's rows lie together, and where each person's begin."""
    order = np.argsort(owner, kind="stable")
    return order, np.flatnonzero(np.diff(owner[order], prepend=-1))


@dataclass(frozen=True, eq=False)
class Calibration:
    """The noise, what it protects from, and what it costs everybody."""

    grid: MapGrid
    scale: float  # b
    loudest: int  # a whole number with D_l·10⁹/granted ≤ loudest for everybody
    charges: units.Units
    noise: float  # scale of the noise on a coefficient, in units of the label


def calibrated(K: Integers, exponent: int, D: Integers, budgets: Budgets, low: float, high: float) -> Calibration:
    """Returns grid, noise scale and charges such that everybody's loss (D_l·N/2^t + κd)/b is within their grant.

    Shifting a coordinate by t bits moves the difference of two neighbouring statistics by less than 1, so that
    of all d by less than d, hence κd (κ = 1 if t > 0); b covers it for the smallest ε.
    """
    granted = budgets.kinds.epsilon
    heard = D > 0
    ratio = float((D[heard] / granted[heard]).max())
    loudest = math.ceil(ratio * units.NANO * (1 + 2.0**-48))  # the factor covers the roundings of the quotient
    widest = float(np.abs(K).astype(np.float64).sum(axis=1).max())
    bits = math.ceil(math.log2(widest / loudest)) + SPARE_BITS
    values = Grid.cover(low, high, min(max(bits, MIN_BITS), MAX_BITS))
    sensitivity = loudest * values.cells  # the statistic moves by at most this much times ε_l
    shift = max(sensitivity.bit_length() - SCALE_BITS, 0)
    rounding = len(K) if shift else 0
    scale = -(-sensitivity // 2**shift) + -(-rounding * units.NANO // int(granted[heard].min()))
    moved = np.where(heard, D * (values.cells / 2.0**shift) + rounding, 0.0)
    charges = units.within(units.charge(moved / scale), granted)
    noise = scale * 2.0**shift * float(values.step) * 2.0**exponent
    coarsest = exponent_below(math.ulp(max(abs(low), abs(high)) * widest * 2.0**exponent)) + 1
    answer = max(exponent_below(noise * 2.0**-ANSWER_BITS), coarsest)
    return Calibration(MapGrid(values, K, exponent, shift, answer), float(scale), loudest, charges, noise)


@dataclass(frozen=True, eq=False)
class MapSums:
    """S = K·z, exactly; ``row`` is the column that says which column of K a row of the batch belongs to."""

    value: str
    row: str
    grid: MapGrid

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return (self.value, self.row)

    def zero(self) -> NDArray[Any]:
        """The sums over no rows, as Python integers."""
        return np.zeros(len(self.grid.map), dtype=object)

    def __call__(self, batch: Any) -> NDArray[Any]:
        """Returns the sums over the batch; labels that the map does not hear are not read."""
        K = self.grid.map[:, as_array(batch.column(self.row))]
        heard = K.any(axis=0)
        z = self.grid.values.integers(as_floats(batch.column(self.value))[heard])
        return np.array(exact_products(K[:, heard], z), dtype=object)


def exact_products(K: Integers, z: Floats) -> list[int]:
    """Returns Σ_i K_ji·z_i for every j, exactly, for |K_ji| ≤ 2^42 and whole z_i in 0 … 2^32."""
    return [sum(_signed_dots(row, z)) for row in K]


def _signed_dots(row: Integers, z: Floats) -> Iterator[int]:
    for first in range(0, len(z), PIECE):
        k, part = row[first : first + PIECE], z[first : first + PIECE]
        yield exact_dot(np.maximum(k, 0), part) - exact_dot(np.maximum(-k, 0), part)


def published(plan: Plan, statistic: NDArray[Any]) -> list[float]:
    """Returns the noisy coefficients: 2^e·(K·(lo, …, lo) + step·(2^t·(⌊S/2^t⌋ + Z) + (2^t − 1)/2)), snapped."""
    grid: MapGrid = plan.grid
    unit, step = power_of_two(grid.map_exponent), power_of_two(grid.answer_exponent)
    middle = Fraction(2**grid.shift - 1, 2)  # the shift rounds down; on average by this much
    base = exact_products(grid.map, np.ones(grid.map.shape[1]))
    noise = laplace.draw(plan.noise["integer_scale"], len(statistic))
    answers = []
    for lows, S, z in zip(base, statistic, noise, strict=True):
        moved = (((int(S) >> grid.shift) + z) << grid.shift) + middle
        value = unit * (lows * Fraction(grid.values.low) + moved * grid.values.step)
        answers.append(float(round(value / step) * step))
    return answers


def in_words(sensitivity: str, exact: Any, held: int) -> str:
    """Says how people's reach was found."""
    if sensitivity == "entrywise":
        return "entrywise sensitivity, as published"
    told = (
        "exact sensitivity" if exact.all() else f"exact sensitivity of {int(exact.sum())} of {len(exact)}, else a bound"
    )
    return told if not held else f"{told}; the map was sought with {held} of them held by an upper bound of it"
