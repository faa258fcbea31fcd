# SPDX-License-Identifier: Apache-2.0
"""The fit of a classifier with noise in its objective, and what can be said about its error beforehand.

symbol   name
Φ, a     rows of the unit ball, and their weights, which add up to one
b        density ∝ exp(−η_n‖b‖/2)
ν        output noise, density ∝ exp(−ε_out·√λ‖ν‖/(2t)): covers what the solver left undone (docs/theory/solver.md)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from sottovoce.engine import Rows
from sottovoce.errors import InvalidParameter, ReleaseFailed
from sottovoce.estimators.classification.settings import Setting
from sottovoce.estimators.classification.voices import Voices
from sottovoce.features import InBall
from sottovoce.noise import radial
from sottovoce.recoding import UnitBall
from sottovoce.solvers import newton
from sottovoce.terms import LogisticTerms

Floats = NDArray[np.float64]

#: Solver tolerance of the gradient; what is left is covered by noise paid from the slack.
TOLERANCE = 1e-15
#: A Gamma(d) variable exceeds d + √(2dx) + x with probability below e^(−x).
RARE = 40.0
#: From this many rows on a first guess comes from every sixteenth.
MANY, STRIDE, ROUGHLY = 2**16, 16, 1e-3


@dataclass(frozen=True, eq=False)
class Problems:
    """The problems of one release: the same rows and weights, one class after the other."""

    rows: Rows
    ball: UnitBall
    voices: Voices
    ridge: float
    rate: float

    def fitted(self, positive: int) -> Floats:
        """Returns the noisy minimiser for one class against the others; fresh noise each time."""
        d, ridge = self.ball.width, self.ridge
        problem = newton.Problem(
            terms=self._terms(positive),
            ridge=np.full(d, ridge),
            centre=np.zeros(d),
            tilt=radial.l2(self.rate / 2, d),
            smoothness=1 / (4 * ridge),
            pull=1 / math.sqrt(ridge),
            rounding=rounding(self.voices, ridge),
            threshold=1.0,
        )
        theta = newton.minimise(problem, tolerance(self.voices, ridge, self.rate), self._start(problem, positive))
        if theta is None:
            raise ReleaseFailed()
        return np.asarray(theta + radial.l2(1 / output_scale(self.voices, ridge, self.rate), d), dtype=np.float64)

    def _terms(self, positive: int, stride: int = 1) -> Any:
        reader = self.rows.features
        inside = reader if isinstance(reader, InBall) else InBall(self.ball, reader.recoding, reader)
        loudness = self.voices.row * stride

        def terms(theta: Any, extended: bool) -> tuple[float, Any, Any]:
            kernel = LogisticTerms(
                inside, self.rows.label, self.rows.owner, loudness, positive, theta, extended, stride
            )
            sums = self.rows.engine.fold(kernel)
            return sums.value, sums.gradient, sums.curvature

        return terms

    def _start(self, problem: newton.Problem, positive: int) -> Floats | None:
        """Where Newton begins: at the minimiser of a part of the rows, where there are many."""
        if n_rows(self.voices) < MANY:
            return None
        return newton.near(replace(problem, terms=self._terms(positive, STRIDE)), negligible=ROUGHLY)


def n_rows(voices: Voices) -> int:
    """The number of rows, which is public."""
    return int(voices.kinds.rows @ voices.kinds.people)


def rounding(voices: Voices, ridge: float) -> float:
    """Returns what the extended gradient may be wrong by, in the norm of Λ⁻¹, for each unit of 2 + ½Σ|θ_j|."""
    wide = max(1.0, (voices.coordinates + 4) / 80)  # a margin is a sum over coordinates
    return newton.rounding(n_rows(voices)) * wide / math.sqrt(ridge)


def tolerance(voices: Voices, ridge: float, rate: float) -> float:
    """Returns t, the distance to the minimiser, in the norm of Λ, that the solver certifies; a public number.

    It covers the rounding of a gradient at a w as long as the minimiser can be, where ‖b‖ is not larger than it
    is once in e^40 times, and half as much again.
    """
    d = voices.coordinates
    tilt = 2 / rate * (d + math.sqrt(2 * d * RARE) + RARE)
    longest = largest_norm(tilt, ridge)
    least = (TOLERANCE + 8 * newton.LONG_EPS * (tilt + ridge * longest)) / math.sqrt(ridge)
    return least + rounding(voices, ridge) * (3 + 0.75 * math.sqrt(d) * longest)


def largest_norm(tilt: float, ridge: float) -> float:
    """Returns what ‖w‖ cannot exceed at the minimiser where ‖b‖ = tilt: J(w) ≤ J(0) gives ½λ‖w‖² ≤ ln 2 + ‖b‖‖w‖."""
    return (tilt + math.sqrt(tilt**2 + 2 * ridge * math.log(2))) / ridge


def output_scale(voices: Voices, ridge: float, rate: float) -> float:
    """Returns 2t/(ε_out·√λ): the density of ν is ∝ exp(−‖ν‖/scale)."""
    return 2 * tolerance(voices, ridge, rate) / (voices.slack * math.sqrt(ridge))


def output_noise(voices: Voices, ridge: float, rate: float) -> float:
    """Returns the root mean square length of ν."""
    d = voices.coordinates
    return math.sqrt(d * (d + 1)) * output_scale(voices, ridge, rate)


def expected_error(setting: Setting, rate: float) -> tuple[float, str]:
    """Returns what a plan expects, and what that is: better with public rows."""
    if setting.expected is not None:
        return setting.expected, "share of rows misclassified, from a simulation on the public rows"
    d = setting.ball.width
    noise = 2 * math.sqrt(d + 1) / (rate * (setting.ridge + 1 / (4 * d)))
    return setting.stretch * noise, "root mean square of the noise in a row's log-odds; a planning number"


def error_bound(delta: float = 0.05, norm: float | None = None, *, voices: Voices, ridge: float, rate: float) -> float:
    """Returns μ‖a‖ + σ/η: with probability 1 − δ over rows and noise, every w of this norm misclassifies at most
    J(w)/ln 2 plus this, J the noisy objective; without a norm, one that the released w certainly has.
    """
    if not 0 < delta < 1 or (norm is not None and not norm > 0):
        raise InvalidParameter(
            "δ is not between 0 and 1, or the norm is not positive.", "", "Pass delta=0.05, and a public norm or none."
        )
    q = float(gammaincinv(voices.coordinates, 1 - delta / 2))
    beta = norm or largest_norm(2 * q / rate, ridge) + q * output_scale(voices, ridge, rate)
    mu = beta / math.log(2) * (2 + math.sqrt(math.log(2 / delta) / 2))
    return mu * math.sqrt(voices.weights.concentration) + 2 * beta * q / (rate * math.log(2))
