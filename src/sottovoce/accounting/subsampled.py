# SPDX-License-Identifier: Apache-2.0
"""What sampled people lose to Gaussian noise, by privacy loss distributions (docs/theory/erm.md,
theorem 2).

In each of T steps a person takes part with probability q and then moves a sum by at most K; noise
has the standard deviation σ. Neighbours by replacement are dominated, step by step, by (1−q)·N(0,
σ²) + q·N(±K, σ²), for every dimension. dp-accounting composes that pair; this is the one file that
imports it, and only when it is used.

    symbol   name
    q        rate
    K/σ      weight; ε grows with it, so a table of loudnesses is safe if they are rounded up
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from sottovoce.accounting.renyi import LATTICE_EPSILON, gaussian_epsilon
from sottovoce.arrays import Floats
from sottovoce.errors import InvalidParameter

#: Privacy losses are rounded to this share of the ε that is looked for; the rounding is always
#: upwards.
FINENESS = 1e-3
#: No distribution has more points, so that a composition takes a part of a second.
MOST_POINTS = 2e5
#: This share of δ pays for noise being drawn on a lattice and for the rounding of the transforms
#: behind a composition.
SPARE_DELTA = 1e-3
#: Below, the rounding of the transforms is no longer small beside δ.
SMALLEST_DELTA = 1e-9
#: A weight is good if its ε lies this close below the grant.
CLOSE = 2e-3
#: Nobody takes part heavier: where δ alone covers being drawn at all, no weight would be too much.
MAX_SENSITIVITY = 6.0
#: Up to this many different amounts are each looked for; more are rounded to a table of so many.
MOST_EXACT = 12
TABLE_SIZE = 64


@cache
def _dp_accounting() -> Any:
    try:
        return import_module("dp_accounting"), import_module(
            "dp_accounting.pld.privacy_loss_distribution"
        )
    except ImportError:
        pass
    raise InvalidParameter(
        "What sampled people lose is counted by a package that is not installed.",
        "Sampling needs dp-accounting; everything else does not.",
        "Install sottovoce[accounting], or leave sampling out.",
        parameter="sampling",
    )


@dataclass(frozen=True, eq=False)
class SampledSteps:
    """T steps in each of which a person takes part with probability q, read at one δ."""

    rate: float
    steps: int
    delta: float
    _known: dict[float, float] = field(default_factory=dict, repr=False)

    def epsilon_of(self, row_weights: Floats) -> Floats:
        """Return an ε at δ, entry by entry, that covers people of this weight."""
        values, where = np.unique(row_weights, return_inverse=True)
        participating = values[values > 0]
        if len(participating) <= MOST_EXACT:
            points = participating
        else:
            points = _space_logarithmically(participating[0], participating[-1])
        known = np.array([self._epsilon_at(float(point)) for point in points])
        covered = known[
            np.searchsorted(points, participating)
        ]  # the next point up; the last one is the heaviest
        return np.asarray(
            np.concatenate([np.zeros(len(values) - len(participating)), covered])[where]
        )

    def sensitivity_of(self, epsilon: Floats) -> Floats:
        """Return a weight, entry by entry, whose ε at δ is at most the one given, and 0 where
        there is none.
        """
        values, where = np.unique(epsilon, return_inverse=True)
        if len(values) <= MOST_EXACT:
            return np.array([self._search_sensitivity(float(value)) for value in values])[where]
        least = self._search_sensitivity(float(values[values > LATTICE_EPSILON][0]))
        most = self._search_sensitivity(float(values[-1]))
        points = _space_logarithmically(least, most)
        known = np.maximum.accumulate([self._epsilon_at(float(point)) for point in points])
        covered = np.searchsorted(known, values, side="right")
        return np.concatenate([[0.0], points])[covered][where]

    def _epsilon_at(self, row_weights: float) -> float:
        """Return ε at δ for one weight; looked at coarsely first, to know how finely to look."""
        if row_weights not in self._known:
            guess = self._estimate_epsilon(row_weights)
            finest = 2 * row_weights * (row_weights + 16) / MOST_POINTS
            for _ in range(3):
                found = self._compose_steps(row_weights, max(min(FINENESS * guess, 1.0), finest))
                smaller = max(found, guess / 100, self._spread(row_weights))
                if smaller >= guess / 2:
                    break
                guess = smaller
            self._known[row_weights] = found + LATTICE_EPSILON
        return self._known[row_weights]

    def _estimate_epsilon(self, row_weights: float) -> float:
        """ε in the limit of many steps, where the loss is Gaussian.

        At least the loss's own spread.
        """
        mu = 2 * self.rate * math.sqrt(self.steps * math.expm1(min(row_weights**2, 20.0)))
        return max(float(gaussian_epsilon(mu**2 / 2, self.delta)), self._spread(row_weights))

    def _spread(self, row_weights: float) -> float:
        return 2 * self.rate * row_weights * math.sqrt(self.steps)

    def _compose_steps(self, row_weights: float, fineness: float) -> float:
        package, distributions = _dp_accounting()
        one = distributions.from_gaussian_mechanism(
            standard_deviation=1 / row_weights,
            sampling_prob=self.rate,
            value_discretization_interval=fineness,
            neighboring_relation=package.NeighboringRelation.REPLACE_ONE,
        )
        return float(
            one.self_compose(self.steps).get_epsilon_for_delta(self.delta * (1 - SPARE_DELTA))
        )

    def _search_sensitivity(self, epsilon: float) -> float:
        """Return a weight with ε in (1 − CLOSE, 1] of the one given: secants of log ε in log
        weight, bracketed.
        """
        if epsilon <= 2 * LATTICE_EPSILON:
            return 0.0
        low, high = self._bracket(epsilon)
        for _ in range(60):
            if high / low < 1 + CLOSE / 4 or self._epsilon_at(low) >= epsilon * (1 - CLOSE):
                break
            middle = self._interpolate(low, high, epsilon * (1 - CLOSE / 2))
            if self._epsilon_at(middle) <= epsilon:
                low, high = (middle, high)
            else:
                low, high = (low, middle)
        return low

    def _bracket(self, epsilon: float) -> tuple[float, float]:
        point = min(epsilon / (10 * self.rate * math.sqrt(self.steps)), MAX_SENSITIVITY)
        while self._epsilon_at(point) > epsilon:
            point /= 2
        while 2 * point <= MAX_SENSITIVITY and self._epsilon_at(2 * point) <= epsilon:
            point *= 2
        return point, min(2 * point, MAX_SENSITIVITY)

    def _interpolate(self, low: float, high: float, epsilon: float) -> float:
        a = math.log(max(self._epsilon_at(low), 1e-12))
        b = math.log(self._epsilon_at(high))
        share = min(max((math.log(epsilon) - a) / max(b - a, 1e-12), 0.02), 0.98)
        return float(low * (high / low) ** share)


def _space_logarithmically(least: float, most: float) -> Floats:
    """Return loudnesses from the least to the most, evenly spaced in their logarithm.

    Both ends exact.
    """
    points = np.geomspace(least, most, TABLE_SIZE)
    points[0] = least
    points[-1] = most
    return points
