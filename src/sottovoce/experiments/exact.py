# SPDX-License-Identifier: Apache-2.0
"""The truth that printed numbers are held against (docs/theory/errata.md): exact losses, and moments without chance.

This file alone knows where in the library exact losses are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import audit

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gaussian:
    """Noise of covariance A⁻¹/γ on an estimate that one record moves by Δ in the norm of A."""

    sensitivity: float
    temperature: float

    @property
    def distance(self) -> float:
        """√γ·Δ, the move in standard deviations."""
        return math.sqrt(self.temperature) * self.sensitivity

    def epsilon(self, delta: float) -> float:
        """Returns the loss at δ."""
        return float(audit.gaussian_epsilon(self.distance, delta))

    def delta(self, epsilon: float) -> float:
        """Returns the true δ at ε."""
        return math.exp(float(audit.gaussian_log_delta(self.distance, epsilon)))


@dataclass(frozen=True)
class Posterior:
    """One posterior sample, seen by a record of leverage μ and residual a = √γ·|y − xᵀθ̂|, both without it."""

    leverage: float
    residual: float

    def epsilon(self, delta: float) -> float:
        """Returns the loss at δ, the worse of both directions."""
        return float(audit.posterior_epsilon(self.leverage, self.residual, delta))

    def delta(self, epsilon: float) -> float:
        """Returns the true δ at ε, the worse of both directions."""
        return math.exp(float(audit.posterior_log_delta(self.leverage, self.residual, epsilon)))


@dataclass(frozen=True, eq=False)
class Instance:
    """A data set, a record (x, y) to be added, and the ridge and temperature of one posterior sample."""

    X: Floats
    y: Floats
    x: Floats
    label: float
    ridge: float
    temperature: float

    @cached_property
    def _record(self) -> Any:
        return audit.leave_one_out(self.X, self.y, self.ridge).added(self.x[None, :], [self.label])

    @property
    def leverage(self) -> float:
        """μ = xᵀH⁻¹x without the record."""
        return float(self._record.leverage[0])

    @property
    def residual(self) -> float:
        """|y − xᵀθ̂| without the record."""
        return abs(float(self._record.residual[0]))

    @property
    def share(self) -> float:
        """μ' = xᵀH'⁻¹x with the record."""
        return float(self._record.share[0])

    @property
    def error(self) -> float:
        """|y − xᵀθ̂'| with the record."""
        return abs(float(self._record.error[0]))

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue of XᵀX."""
        return float(np.linalg.eigvalsh(self.X.T @ self.X)[0])

    @property
    def loss(self) -> Posterior:
        """What one posterior sample costs the record."""
        return Posterior(self.leverage, math.sqrt(self.temperature) * self.residual)


def group_privacy(epsilons: list[float], deltas: list[float]) -> tuple[float, float]:
    """Returns (Σε, δ̃) that hold in both directions."""
    return audit.group(epsilons, deltas)


def generalisation(epsilons: Floats, deltas: Floats, target: tuple[float, float]) -> float:
    """Returns a bound that holds for records z' which are equally likely, with (ε', δ'), and one target."""
    return audit.generalisation(epsilons, deltas, ([target[0]], [target[1]]))


def normal_mean(of: Callable[[Floats], float], dimension: int) -> float:
    """Returns E of(Z), Z standard normal, exactly if ``of`` is a polynomial of degree 3: the mean over ±√m·e_i."""
    corners = math.sqrt(dimension) * np.eye(dimension)
    return float(np.mean([of(sign * corner) for corner in corners for sign in (1.0, -1.0)]))
