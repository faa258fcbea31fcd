# SPDX-License-Identifier: Apache-2.0
"""The fit of a classifier with noise in its objective, and what can be said about its error beforehand.

symbol   name
Φ, a     rows of the unit ball, and their weights, which add up to one
b        density ∝ exp(−η_n‖b‖/2)
ν        output noise, density ∝ exp(−ε_out·√λ‖ν‖/(2t)): covers what the solver left undone (docs/theory/solver.md)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaincinv, ndtr

from sottovoce.bounds import between
from sottovoce.budgets import Budgets
from sottovoce.engine import Engine, Rows, in_memory
from sottovoce.errors import InvalidParameter
from sottovoce.estimators.classification.settings import Setting
from sottovoce.estimators.classification.voices import Voices
from sottovoce.features import MATRIX, InBall
from sottovoce.noise import radial
from sottovoce.noise.grid import AnswerGrid
from sottovoce.plan import ASSOCIATION, ExpectedError, inequality
from sottovoce.recoding import GRID_BITS, UnitBall
from sottovoce.solvers import newton
from sottovoce.statistics import Owner
from sottovoce.terms import LogisticTerms, Read
from sottovoce.weights import Weights

Floats = NDArray[np.float64]

#: Solver tolerance of the gradient; what is left is covered by noise paid from the slack.
TOLERANCE = 1e-15
#: What is assumed for the expected error: how far log-odds spread, and how much the log-likelihood of a row bends.
LOG_ODDS, CURVATURE, NODES = 2.0, 0.15, 40
#: From this many rows on a first guess comes from a sixteenth of them, and never from many more than so many.
MANY, SAMPLED, ROUGHLY = 2**16, 1 / 16, 1e-3
#: Multiples of it are spread evenly over [0, 1).
GOLDEN = (math.sqrt(5) - 1) / 2
#: Columns of the rows that a first guess comes from.
VALUE, KIND = "value", "kind"


@dataclass(frozen=True, eq=False)
class Problems:
    """The problems of one release: the same rows and weights, one class after the other."""

    rows: Rows
    ball: UnitBall
    voices: Voices
    ridge: float
    rate: float

    def fit_class(self, positive: int) -> Floats:
        """Returns the noisy minimiser for one class against the others, on the public grid; fresh noise each time."""
        d, ridge = self.ball.width, self.ridge
        problem = newton.Problem(
            terms=_over(self.rows.engine, self._make_kernel(positive)),
            ridge=np.full(d, ridge),
            centre=np.zeros(d),
            tilt=radial.l2(self.rate / 2, d).astype(np.float64),
            smoothness=1 / (4 * ridge),
            pull=1 / math.sqrt(ridge),
            error=rounding(self.voices, ridge),
        )
        theta = newton.minimise(problem, tolerance(self.voices, ridge), self._find_start(problem, positive))
        rate = 1 / output_scale(self.voices, ridge, self.rate)
        return answer_grid(d, ridge, self.rate).nearest(radial.cover(theta, rate, np.ones(d)))

    def _make_kernel(self, positive: int) -> LogisticTerms:
        reader = self.rows.features
        return LogisticTerms(
            reader=reader if isinstance(reader, InBall) else InBall(self.ball, reader.recoding, reader),
            label=self.rows.label,
            owner=self.rows.owner,
            loudness=self.voices.row,
            positive=positive,
            theta=np.zeros(self.ball.width),
        )

    def _find_start(self, problem: newton.Problem, positive: int) -> Floats | None:
        """Where Newton begins: at the minimiser of a part of the rows, where there are many."""
        rows = n_rows(self.voices)
        if rows < MANY:
            return None
        rate = min(SAMPLED, MANY / rows)
        kernel = replace(self._make_kernel(positive), loudness=self.voices.row / rate)
        chosen = self.rows.engine.fold(Sample(kernel, rate))
        v, phi, y = (np.concatenate(column) for column in zip(*chosen, strict=True))
        if not 0.5 < len(v) / (rate * rows) < 2:  # few different rows, so that the choice between them was unlucky
            return None
        engine = in_memory().of_columns({MATRIX: phi, VALUE: np.where(y > 0, positive, -1.0), KIND: np.arange(len(v))})
        label = replace(self.rows.label, column=VALUE, coded=True)
        reader = InBall(self.ball, self.rows.features.recoding)
        few = replace(kernel, reader=reader, label=label, owner=Owner(KIND), loudness=v)
        return newton.near(replace(problem, terms=_over(engine, few)), negligible=ROUGHLY)


@dataclass(frozen=True, eq=False)
class Sample:
    """Some of the rows that a kernel reads, at this rate, for a first guess; its content decides, not its place."""

    kernel: LogisticTerms
    rate: float

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return self.kernel.columns

    def zero(self) -> list[Read]:
        """No rows."""
        return []

    def __call__(self, batch: Any) -> list[Read]:
        """Returns the chosen rows of the batch."""
        return [self._select_rows(*self.kernel.read(batch))]

    def _select_rows(self, v: Floats, phi: Floats, y: Floats) -> Read:
        # Entries are on a grid, so their sum is exact in any order; the golden section scatters it over [0, 1).
        scattered = phi @ np.full(phi.shape[1], 2.0**GRID_BITS) * GOLDEN
        chosen = scattered - np.floor(scattered) < self.rate
        return v[chosen], phi[chosen], y[chosen]


def _over(engine: Engine, kernel: LogisticTerms) -> Callable[[Any, bool], tuple[float, Any, Any]]:
    """The terms of a problem over the rows of an engine."""

    def terms(theta: Any, extended: bool) -> tuple[float, Any, Any]:
        at = replace(kernel, theta=theta, extended=extended)
        return at.floats(engine.fold(at))

    return terms


def n_rows(voices: Voices) -> int:
    """The number of rows, which is public."""
    return int(voices.kinds.rows @ voices.kinds.people)


def rounding(voices: Voices, ridge: float) -> float:
    """Returns what the exact gradient may be wrong by, in the norm of Λ⁻¹, whatever the data, b and w."""
    return newton.rounding(n_rows(voices), voices.coordinates, 1.0) / math.sqrt(ridge)


def tolerance(voices: Voices, ridge: float) -> float:
    """Returns t, the distance to the minimiser, in the norm of Λ, that the solver reaches; a public number."""
    return newton.tolerance(rounding(voices, ridge), least=TOLERANCE / math.sqrt(ridge))


def largest_norm(tilt: float, ridge: float) -> float:
    """Returns what ‖w‖ cannot exceed at the minimiser where ‖b‖ = tilt: J(w) ≤ J(0) gives ½λ‖w‖² ≤ ln 2 + ‖b‖‖w‖."""
    return (tilt + math.sqrt(tilt**2 + 2 * ridge * math.log(2))) / ridge


def output_scale(voices: Voices, ridge: float, rate: float) -> float:
    """Returns 2t/(ε_out·√λ): the density of ν is ∝ exp(−‖ν‖/scale); t holds the solver's error and b's rounding."""
    distance = tolerance(voices, ridge) + rounding_of_tilt(voices.coordinates, ridge, rate)
    return 2 * distance / (voices.slack * math.sqrt(ridge))


def rounding_of_tilt(d: int, ridge: float, rate: float) -> float:
    """Returns what rounding b to doubles moves the minimiser by at most, in the norm of Λ, but with chance e^−500."""
    return 2.0**-53 * (2 / rate) * radial.never_exceeded(d) / math.sqrt(ridge)


def answer_grid(d: int, ridge: float, rate: float) -> AnswerGrid:
    """Returns the grid of w: noise moves a coordinate by at least that of b, 2√(d+1)/η, over λ + ¼."""
    return AnswerGrid.below(2 * math.sqrt(d + 1) / (rate * (ridge + 0.25)))


def output_noise(voices: Voices, ridge: float, rate: float) -> float:
    """Returns the root mean square length of ν."""
    d = voices.coordinates
    return math.sqrt(d * (d + 1)) * output_scale(voices, ridge, rate)


def expected_error(setting: Setting, rate: float, budgets: Budgets, weights: Weights) -> ExpectedError:
    """Returns what predicted probabilities are expected to miss of those of maximum likelihood.

    Log-odds of maximum likelihood are taken to spread by LOG_ODDS. A row of the ball spreads by 1/d in each of d
    directions, where the log-likelihood bends by CURVATURE: a direction is stiff by CURVATURE/d + λ.
    """
    d = setting.ball.width
    stiff = CURVATURE / d + setting.ridge
    kept = min(setting.stretch * CURVATURE / d / stiff, 1.0)
    noise = setting.stretch * 2 * math.sqrt(d + 1) / (rate * stiff)
    squares, moved = inequality(budgets, weights)
    sampling = kept * math.sqrt(d * squares / CURVATURE)
    assumed = f"Assumed: log-odds of maximum likelihood spread by {LOG_ODDS:g}."
    if setting.expected is not None:
        assumed += f" In a simulation on the public rows {setting.expected:.1%} of them were misclassified."
    return ExpectedError(
        classical="the probabilities of maximum likelihood, over its rows",
        unit="as a probability",
        noise=probability_error(1.0, noise),
        sampling=probability_error(1.0, sampling),
        shrinkage=math.hypot(probability_error(kept, 0.0), probability_error(1.0, LOG_ODDS * cut_rows(setting.ball))),
        bias=ASSOCIATION / 2 * moved,
        assumed=assumed,
    )


def cut_rows(ball: UnitBall) -> float:
    """Returns how much log-odds change, relative to their size, because rows longer than the radius are cut to it.

    The squared length of a row of p columns that fill their bounds evenly has mean p and variance .8p in units of their
    spreads, so lengths vary by √(.2/p) of themselves. Cut to one length, rows lose that variation.
    """
    p = len(ball.spread)
    return math.sqrt(0.2 / p) * float(ndtr((math.sqrt(p) - ball.radius) / math.sqrt(0.2))) if p else 0.0


def probability_error(kept: float, noise: float) -> float:
    """Returns the root mean square difference of probabilities whose log-odds are f, and kept·f + noise."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(NODES)
    mass = mass / mass.sum()
    f = LOG_ODDS * nodes[:, None]
    apart = expit(f) - expit(kept * f + noise * nodes[None, :])
    return math.sqrt(float(mass @ apart**2 @ mass))


def error_bound(delta: float = 0.05, norm: float | None = None, *, voices: Voices, ridge: float, rate: float) -> float:
    """Returns μ‖a‖ + σ/η: with probability 1 − δ over rows and noise, every w of this norm misclassifies at most
    J(w)/ln 2 plus this, J the noisy objective; without a norm, one that the released w certainly has.
    """
    if not between(delta, 0, 1) or (norm is not None and not between(norm, 0, math.inf)):
        raise InvalidParameter(
            "δ is not between 0 and 1, or the norm is not positive.", "", "Pass delta=0.05, and a public norm or none."
        )
    delta = float(delta)
    q = float(gammaincinv(voices.coordinates, 1 - delta / 2))
    beta = float(norm or 0) or largest_norm(2 * q / rate, ridge) + q * output_scale(voices, ridge, rate)
    mu = beta / math.log(2) * (2 + math.sqrt(math.log(2 / delta) / 2))
    return mu * math.sqrt(voices.weights.concentration) + 2 * beta * q / (rate * math.log(2))
