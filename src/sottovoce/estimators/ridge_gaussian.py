# SPDX-License-Identifier: Apache-2.0
"""Objective perturbation with Gaussian noise, for ε at a δ: what rows may weigh, and the noise
(docs/theory/gaussian-objective.md). The stages are those of ridge_objective.py.

Person l has the weight μ_l in a fit, the distance of two tables in deviations of its noise. With a
share of their budget that leaves E for it:

    one row     2·δ_G(μ_l; e) ≤ δ        e = E − log(1 + μ_l·H)
    several     P[χ_k > e/μ_l − μ_l/2] ≤ δ,  e = E − r·log(1 + μ_l·H/r)

δ_G is the curve of Gaussian noise, r the least of rows and coefficients, and k that of twice the
rows and coefficients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy  # whose parts are loaded where they are used

from sottovoce import units
from sottovoce.accounting.renyi import gaussian_delta
from sottovoce.arrays import Array, Floats
from sottovoce.budgets import BudgetGroups, has_usable_budget
from sottovoce.estimators.ridge_errors import StageParameters
from sottovoce.noise import continuous, source

#: The most that H may be is one of these: the larger, the less Λ holds back, and the more its
#: logarithm costs.
REGULARITIES = (1 / 8, 1 / 4, 1 / 2, 1.0)
#: There are at most so many fits of slopes, which share δ evenly.
MOST_FITS = 2
#: Doubles compute δ and the solution of an equation with a relative error far below this.
ROUNDING = 1e-9
HALVINGS = 60
#: Below this δ of Gaussian noise is a difference of numbers that doubles do not tell apart so well;
#: nobody with less has any weight.
LEAST_EPSILON = 1e-6
#: From so many different budgets on each is rounded down to so many bits before its weight is
#: computed; and the same for sums of weights, of which a plan asks many.
BUDGET_BITS = 12
PLANNED_BITS = 7
#: A standard normal number is larger than this with probability below e^−800.
MOST_DEVIATIONS = 40.0


@dataclass(frozen=True, eq=False)
class GaussianWeights:
    """What each kind of people weighs in a fit of slopes with Gaussian noise."""

    kinds: BudgetGroups
    slopes: int
    delta: float  # of all fits together
    slack: float  # the part of a share that pays for the solver's last digits

    def solve(self, epsilon: Floats, H: float) -> Floats:
        """Returns the weight of a person, by kind, where so much is left for one fit with this
        H.
        """
        few, where = group_alike(epsilon, self.kinds.rows, BUDGET_BITS)
        return find_distances(*few, self.slopes, self._share_delta(), H)[where]

    @cache  # noqa: B019 - lives as long as the plan or the fit that it is part of
    def add_up(self, share: float, H: float) -> tuple[float, float]:
        """Returns Σv and Σv² over rows, for this share of everybody's budget."""
        (epsilon, rows), people = self._alike
        left = share * (1 - self.slack) * epsilon
        person = find_distances(left, rows, self.slopes, self._share_delta(), H)
        return float(people @ person), float((people / rows) @ person**2)

    @cached_property
    def _alike(self) -> tuple[tuple[Floats, Floats], Floats]:
        """Different pairs of budget and rows, and how many people have them."""
        granted = units.to_epsilon(self.kinds.epsilon)
        few, where = group_alike(granted, self.kinds.rows, PLANNED_BITS)
        people = np.bincount(where, self.kinds.people.astype(np.float64), len(few[0]))
        return few, people.astype(np.float64)

    def _share_delta(self) -> float:
        taking_part = self.kinds.epsilon[has_usable_budget(self.kinds)]
        least = float(units.to_epsilon(taking_part).min(initial=np.inf))
        # What pays for the last digits multiplies δ by its own exponential, and is a part of the
        # least budget of those who take part.
        return self.delta / MOST_FITS * math.exp(-self.slack * least)


def group_alike(epsilon: Floats, rows: Array, bits: int) -> tuple[tuple[Floats, Floats], Array]:
    """Returns different pairs of budget and rows, and whose each is; where there are more than
    2^bits budgets they are rounded down to so many bits.
    """
    values, of_value = np.unique(epsilon, return_inverse=True)
    if len(values) > 2**bits:
        values, of_value = np.unique(round_down(epsilon, bits), return_inverse=True)
    sizes, of_size = np.unique(rows, return_inverse=True)
    pairs, where = np.unique(of_value * len(sizes) + of_size, return_inverse=True)
    few = values[pairs // len(sizes)], sizes[pairs % len(sizes)].astype(np.float64)
    return few, where


def round_down(epsilon: Floats, bits: int) -> Floats:
    """Returns the largest numbers of so many bits that are not above these."""
    mantissa, exponent = np.frexp(epsilon)
    return np.asarray(np.ldexp(np.floor(np.ldexp(mantissa, bits)), exponent - bits))


def find_distances(epsilon: Floats, rows: Floats, slopes: int, delta: float, H: float) -> Floats:
    """Returns the largest distance μ, by person, at which a fit is (ε, δ)-private; 0 without ε."""
    low = np.zeros(len(epsilon))
    high = np.sqrt(2 * np.maximum(epsilon, 0.0)) + 20.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        private = is_private(middle, epsilon, rows, slopes, delta, H)
        low = np.where(private, middle, low)
        high = np.where(private, high, middle)
    return np.asarray(low * (1 - ROUNDING), dtype=np.float64)


def is_private(
    mu: Floats, epsilon: Floats, rows: Floats, slopes: int, delta: float, H: float
) -> Any:
    """Returns whether a fit at distance μ > 0 is (ε, δ)-private by the theorem."""
    rank = np.minimum(rows, slopes + 1)
    left = epsilon - rank * np.log1p(mu * H / rank)
    positive = np.maximum(left, LEAST_EPSILON)
    target = delta * (1 - ROUNDING)
    # √(1 + e²) − 1, up to which δ grows faster than μ².
    convex = mu**2 <= 2 * positive**2 / (1 + np.hypot(1.0, positive))
    one = convex & (2 * gaussian_delta(mu, positive) <= target)
    far = np.maximum(positive / mu - mu / 2, 0.0)
    dimensions = np.minimum(2 * rows, slopes + 1)
    several = scipy.special.gammaincc(dimensions / 2, far**2 / 2) <= target
    return (left >= LEAST_EPSILON) & np.where(rows == 1, one, several)


def compute_deviations(slopes: int, choice: StageParameters) -> Floats:
    """Returns the standard deviations of b over τ, none too small, the intercept's first."""
    intercept, slope, _ = choice.compute_noise(slopes)
    deviations = np.sqrt(np.array([intercept, *[slope] * slopes])) * (1 + 1e-12)
    return np.asarray(deviations, dtype=np.float64)


def draw_noise(slopes: int, choice: StageParameters) -> Any:
    """Returns b over τ for a stage."""
    drawn = continuous.draw_standard_normals(slopes + 1)
    deviations = compute_deviations(slopes, choice)
    return np.array(
        [
            Fraction(z, source.ONE) * Fraction(float(s))
            for z, s in zip(drawn, deviations, strict=True)
        ],
        dtype=object,
    )


def bound_tilt_rounding(tau: float, slopes: int, choice: StageParameters, ridge: Floats) -> float:
    """Returns what rounding b to doubles moves the minimiser by at most, in the norm of Λ."""
    largest = tau * MOST_DEVIATIONS * compute_deviations(slopes, choice)
    return 2.0**-53 * float(np.sqrt(np.sum(largest**2 / ridge)))
