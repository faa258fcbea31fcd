# SPDX-License-Identifier: Apache-2.0
"""The truth that printed numbers are held against (docs/theory/errata.md): exact losses, and
moments without chance.

This file alone knows where in the library exact losses are computed.

The exact δ of AdaOPS's joint release (λ̃_min, θ̃) for one column, by quadrature
(docs/theory/errata.md).

Given λ̃ both data sets give θ̃ a normal law, so the inner integral is closed; the outer one runs
over λ̃.

    symbol      name
    λ̃           noisy, the smallest eigenvalue with its noise
    ℓ           log-ratio of the two densities of λ̃; θ̃ has ε − ℓ left
    α, β, ζ     log-ratio of the two laws of θ̃ less what is left: αθ² + βθ + ζ
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from sottovoce import audit
from sottovoce.arrays import Floats
from sottovoce.papers.instance_printed import AdaOps


@dataclass(frozen=True)
class GaussianLoss:
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
class PosteriorLoss:
    """One posterior sample, seen by a record of leverage μ and residual a = √γ·|y − xᵀθ̂|, both
    without it.
    """

    leverage: float
    residual: float

    def epsilon(self, delta: float) -> float:
        """Returns the loss at δ, the worse of both directions."""
        return float(audit.posterior_epsilon(self.leverage, self.residual, delta))

    def delta(self, epsilon: float) -> float:
        """Returns the true δ at ε, the worse of both directions."""
        return math.exp(float(audit.posterior_log_delta(self.leverage, self.residual, epsilon)))


@dataclass(frozen=True, eq=False)
class RidgeInstance:
    """A data set, a record (x, y) to be added, and the ridge and temperature of one posterior
    sample.
    """

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
    def loss(self) -> PosteriorLoss:
        """What one posterior sample costs the record."""
        return PosteriorLoss(self.leverage, math.sqrt(self.temperature) * self.residual)


def compute_group_privacy(epsilons: list[float], deltas: list[float]) -> tuple[float, float]:
    """Returns (Σε, δ̃) that hold in both directions."""
    return audit.group(epsilons, deltas)


def bound_generalisation(epsilons: Floats, deltas: Floats, target: tuple[float, float]) -> float:
    """Returns a bound that holds for records z' which are equally likely, with (ε', δ'), and one
    target.
    """
    return audit.generalisation(epsilons, deltas, ([target[0]], [target[1]]))


def compute_normal_mean(of: Callable[[Floats], float], dimension: int) -> float:
    """Returns E of(Z), Z standard normal, exactly if ``of`` is a polynomial of degree 3: the mean
    over ±√m·e_i.
    """
    corners = math.sqrt(dimension) * np.eye(dimension)
    return float(np.mean([of(sign * corner) for corner in corners for sign in (1.0, -1.0)]))


#: Beyond so many standard deviations of λ̃ nothing is integrated: it has probability 10⁻³².
REACH = 12.0
PANELS = 48
NODES = 16


class NeighbourSide(NamedTuple):
    """What AdaOPS does to one of two neighbours, of which it sees Σx² and Σxy."""

    algorithm: AdaOps
    gram: float
    pull: float

    def compute_law(self, noisy: Floats) -> tuple[Floats, Floats]:
        """Returns mean and variance of θ̃ given λ̃."""
        hessian = self.gram + self.algorithm.ridge(noisy)
        return self.pull / hessian, 1 / (self.algorithm.temperature * hessian)

    @property
    def kink(self) -> float:
        """The λ̃ from which on nothing is regularised."""
        return self.algorithm.floor + self.algorithm.log / (self.algorithm.epsilon / 2)


def make_neighbours(
    algorithm: AdaOps, square: float, rows: int, grown: AdaOps | None = None
) -> tuple[NeighbourSide, NeighbourSide]:
    """Returns ``rows`` rows (c, 1), c² = ``square``, without and with the record (1, −1).

    With it, ``grown`` is the algorithm: the same where the size of the data is public, another n
    where it is not.
    """
    gram = rows * square
    pull = rows * math.sqrt(square)
    return NeighbourSide(algorithm, gram, pull), NeighbourSide(
        grown or algorithm, gram + 1, pull - 1
    )


def compute_joint_delta(
    without: NeighbourSide, present: NeighbourSide, panels: int = PANELS
) -> tuple[float, float]:
    """Returns the exact δ of (λ̃, θ̃) at the ε that was asked for, when the record is added and
    when it is removed.
    """
    return _integrate_one_way(without, present, panels), _integrate_one_way(
        present, without, panels
    )


def _integrate_one_way(first: NeighbourSide, second: NeighbourSide, panels: int) -> float:
    scale = first.algorithm.noise_scale
    epsilon = first.algorithm.epsilon
    noisy, weights = _make_nodes(first.gram, scale, (first.kink, second.kink), panels)
    density = np.exp(-(((noisy - first.gram) / scale) ** 2) / 2) / (scale * math.sqrt(2 * math.pi))
    loss = ((noisy - second.gram) ** 2 - (noisy - first.gram) ** 2) / (2 * scale**2)
    return float(
        weights
        @ (
            density
            * compute_hockey_stick(
                first.compute_law(noisy), second.compute_law(noisy), epsilon - loss
            )
        )
    )


def _make_nodes(
    centre: float, scale: float, kinks: tuple[float, ...], panels: int
) -> tuple[Floats, Floats]:
    """Gauss–Legendre on panels, which end where the integrand has a kink."""
    low = centre - REACH * scale
    high = centre + REACH * scale
    edges = np.unique(np.clip([*np.linspace(low, high, panels + 1), *kinks], low, high))
    x, w = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(edges)[:, None] / 2
    return ((edges[:-1, None] + half) + half * x).ravel(), (half * w).ravel()


def compute_hockey_stick(
    first: tuple[Floats, Floats], second: tuple[Floats, Floats], epsilon: Floats
) -> Floats:
    """Returns ∫(p − e^ε·q)₊ for normal laws p, q of different variances, ε of any sign."""
    (m1, v1) = first
    (m2, v2) = second
    alpha = (1 / v2 - 1 / v1) / 2
    beta = m1 / v1 - m2 / v2
    zeta = (m2**2 / v2 - m1**2 / v1 + np.log(v2 / v1)) / 2 - epsilon
    root = beta**2 - 4 * alpha * zeta
    half = np.sqrt(np.maximum(root, 0.0)) / (2 * np.abs(alpha))
    middle = -beta / (2 * alpha)
    ends = [
        ((middle - half - m) / np.sqrt(v), (middle + half - m) / np.sqrt(v))
        for m, v in (first, second)
    ]
    p, q = (np.where(alpha > 0, _compute_outside(*end), _compute_inside(*end)) for end in ends)
    return np.asarray(p - np.exp(epsilon) * q)


def _compute_inside(low: Floats, high: Floats) -> Floats:
    """P(low < Z < high), taken from the nearer tail."""
    return np.asarray(np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low)))


def _compute_outside(low: Floats, high: Floats) -> Floats:
    """P(Z < low or Z > high)."""
    return np.asarray(ndtr(low) + ndtr(-high))


def compute_marginal_delta(
    without: NeighbourSide, present: NeighbourSide, nodes: int = 4001
) -> tuple[float, float]:
    """Returns the δ of θ̃ alone, λ̃ kept secret, when the record is added and when it is
    removed.
    """
    laws = [_compute_mixture(side) for side in (without, present)]
    low = min(float((m - REACH * np.sqrt(v)).min()) for m, v, _ in laws)
    high = max(float((m + REACH * np.sqrt(v)).max()) for m, v, _ in laws)
    theta = np.linspace(low, high, nodes)
    p, q = (
        np.exp(-((theta[:, None] - m) ** 2) / (2 * v)) @ (w / np.sqrt(2 * math.pi * v))
        for m, v, w in laws
    )
    step = theta[1] - theta[0]
    times = math.exp(without.algorithm.epsilon)
    return float(step * np.maximum(p - times * q, 0.0).sum()), float(
        step * np.maximum(q - times * p, 0.0).sum()
    )


def _compute_mixture(side: NeighbourSide) -> tuple[Floats, Floats, Floats]:
    """Means, variances and weights of θ̃ over the nodes of λ̃ that are likely enough."""
    scale = side.algorithm.noise_scale
    noisy, weights = _make_nodes(side.gram, scale, (side.kink,), PANELS // 4)
    weights = (
        weights
        * np.exp(-(((noisy - side.gram) / scale) ** 2) / 2)
        / (scale * math.sqrt(2 * math.pi))
    )
    return *side.compute_law(noisy), weights
