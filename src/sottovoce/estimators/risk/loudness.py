# SPDX-License-Identifier: Apache-2.0
"""How loud each person may be heard under Gaussian noise, and what it costs them (docs/theory/erm.md).

A person's loudness is K_l/σ: how far, in standard deviations of the noise, they can move the sum of one step. Two
accounts say which loudness a grant (ε_l, δ) allows: `Everybody`, where all take part in every step, and
`Drawn`, where everybody takes part in a step with probability q.

    symbol      name
    m_l         single, the loudness that the grant would allow if all T steps were one
    m_l/(q√T)   the loudness in each step
    P_l, σ      weights.person, scale: whole numbers with P_l/σ ≤ m_l/(q√T) for everybody
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.budgets import Budgets, Kinds
from sottovoce.conversion import LATTICE_DELTA, LATTICE_EPSILON, gaussian_rho
from sottovoce.errors import InvalidBudget
from sottovoce.estimators.risk.descent import LARGEST_TOTAL
from sottovoce.guarantee import Guarantee
from sottovoce.solvers.accounting import SampledSteps
from sottovoce.weights import Weights

Floats = NDArray[np.float64]

#: Noise is scaled to at most this, far from the end of the sampler's whole numbers.
SCALE_BITS = 43
#: Loudness, as whole numbers, for the weights; its unit does not matter.
LOUD_UNITS = 2.0**40


class Account(Protocol):
    """Turns grants into loudness, and loudness into what was spent."""

    def single_step_sensitivity(self, granted: units.Units) -> Floats:
        """Returns m_l for each grant."""

    def per_step_sensitivity(self, single: Floats, steps: int) -> Floats:
        """Returns the loudness in each of so many steps."""

    def guarantee(self, budgets: Budgets, loudness: Floats, steps: int) -> Guarantee:
        """The promise to kinds of people who are this loud in each of so many steps."""


@dataclass(frozen=True)
class Everybody:
    """All take part in every step: ρ_l = T·(2K_l)²/(2σ²), by docs/theory/erm.md (3)."""

    delta: float

    def single_step_sensitivity(self, granted: units.Units) -> Floats:
        """Returns √(ρ/2), with ρ the most that (ε, δ) allows Gaussian noise."""
        return np.asarray(np.sqrt(units.epsilon(self._rho(granted)) / 2), dtype=np.float64)

    def per_step_sensitivity(self, single: Floats, steps: int) -> Floats:
        """Returns m/√T."""
        return single / math.sqrt(steps)

    def guarantee(self, budgets: Budgets, loudness: Floats, steps: int) -> Guarantee:
        """ρ = 2T·loudness², read at δ; rounded up, and never above what the grant is worth."""
        spent = units.within(units.charge(2 * steps * loudness**2), self._rho(budgets.kinds.epsilon))
        return replace(Guarantee.of(budgets, spent), currency="zCDP rho", delta=self.delta, gaussian=True)

    def _rho(self, granted: units.Units) -> units.Units:
        values, where = np.unique(granted, return_inverse=True)
        return gaussian_rho(units.epsilon(values), self.delta)[where]


@dataclass(frozen=True)
class Drawn:
    """Everybody takes part in a step with probability q: ε at δ by composition, docs/theory/erm.md (5)."""

    account: SampledSteps

    def single_step_sensitivity(self, granted: units.Units) -> Floats:
        """Returns q·√T times the loudness that (ε, δ) allows."""
        return self.account.sensitivity_of(units.epsilon(granted)) * self._factor

    def per_step_sensitivity(self, single: Floats, steps: int) -> Floats:
        """Returns m/(q√T)."""
        return single / self._factor

    def guarantee(self, budgets: Budgets, loudness: Floats, steps: int) -> Guarantee:
        """ε at δ; rounded up, and never above the grant, which covers everybody's loudness."""
        spent = np.minimum(units.charge(self.account.epsilon_of(loudness)), budgets.kinds.epsilon)
        return replace(Guarantee.of(budgets, spent), currency="epsilon, delta", delta=self.account.delta)

    @property
    def _factor(self) -> float:
        return self.account.rate * math.sqrt(self.account.steps)


def loud_kinds(kinds: Kinds, loudness: Floats) -> Kinds:
    """Returns the kinds with their loudness, as whole numbers, in the place of ε."""
    most = float(loudness.max(initial=0.0))
    if not most > 0:
        raise InvalidBudget(
            "Nobody grants enough to be heard at this δ.",
            "What (ε, δ) allows is counted in billionths of ρ, and nobody has one.",
            "Wait for larger grants, or choose a larger δ.",
        )
    return Kinds(np.floor(loudness / most * LOUD_UNITS).astype(np.int64), kinds.rows, kinds.people)


def whole_weights(kinds: Kinds, voices: Floats, loudness: Floats, least: float) -> tuple[Weights, float]:
    """Returns whole-number weights and σ ≥ ``least``, a whole number, with P_l/σ ≤ loudness for everybody heard.

    ``voices`` are the weights of rows, the largest 1. All weights together are at most 2^52, and σ at most 2^44.
    """
    person = voices * kinds.rows
    noise = float(np.divide(person, loudness, out=np.zeros_like(person), where=loudness > 0).max())
    bits = math.floor(min(math.log2(LARGEST_TOTAL / float(person @ kinds.people)), SCALE_BITS - math.log2(noise)))
    row = np.floor(np.where(loudness > 0, voices, 0.0) * 2.0**bits).astype(np.int64)
    weights = Weights.from_integers(loud_kinds(kinds, loudness), row)
    sums = np.divide(weights.person, loudness, out=np.zeros_like(person), where=loudness > 0)
    return weights, float(max(math.ceil(float(sums.max()) * (1 + 2.0**-45)), math.ceil(least)))


def least_scale(coordinates: int, epsilon: float, delta: float) -> float:
    """Returns a σ from which on noise on a lattice is covered by what `conversion` sets aside (lemma 3)."""
    tail = math.log(2 / (LATTICE_DELTA * delta)) + epsilon
    radius = math.sqrt(coordinates) * (1 + 1e-3) + math.sqrt(2 * tail)
    return math.sqrt((coordinates / 24 + radius**2 / 8) / (LATTICE_EPSILON / 2)) + 1e3
