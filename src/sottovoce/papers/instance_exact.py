# SPDX-License-Identifier: Apache-2.0
"""Formulas of "Per-instance Differential Privacy" exactly as they are printed there, to be compared
with what is true.

**Every one of them is wrong**, most in the dangerous direction (docs/theory/errata.md). The library
uses none of them.

    symbol    name
    Δ         sensitivity, ‖θ̂([Z, z]) − θ̂(Z)‖ in the norm of A
    γ, λ      temperature and ridge of the posterior, density ∝ exp(−γ/2·(‖y − Xθ‖² + λ‖θ‖²))
    μ, r      leverage xᵀH⁻¹x and residual y − xᵀθ̂, without the record
    μ', e     share xᵀH'⁻¹x and error y − xᵀθ̂', with it
    λ_min     smallest, the smallest eigenvalue of XᵀX
    n, d, κ   rows, columns, condition

The truth that printed numbers are held against (docs/theory/errata.md): exact losses, and
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from sottovoce import audit
from sottovoce.arrays import Floats


def lemma_4_as_printed(sensitivity: float, temperature: float, delta: float) -> float:
    """Return ε = γΔ·√log(1.25/δ) for noise of covariance A⁻¹/γ (Lemma 4).

    Wrong, see errata: √γ and √2 belong.
    """
    return temperature * sensitivity * math.sqrt(math.log(1.25 / delta))


def equation_3_as_printed(sensitivity: float, delta: float) -> float:
    """Return ε = √(∇ℓᵀH⁻¹AH⁻¹∇ℓ·log(1.25/δ)), the root of the form being Δ (3).

    Wrong, see errata: γ is missing.
    """
    return math.sqrt(sensitivity**2 * math.log(1.25 / delta))


def lemma_13_second_as_printed(hessian: Floats, gradient: Floats) -> Floats:
    """Return θ̂ − θ̂' = −H⁻¹∇ℓ(θ̂', z), the second line of Lemma 13.

    Wrong, see errata: the sign is +.
    """
    return np.asarray(-np.linalg.solve(hessian, gradient))


def theorem_14_tail_as_printed(delta: float) -> float:
    """Return √log(2/δ), the z with P(|Z| > z) ≤ δ in the proof of Theorem 14.

    Wrong, see errata: √2 is missing.
    """
    return math.sqrt(math.log(2 / delta))


def theorem_14_7_as_printed(
    leverage: float, residual: float, temperature: float, delta: float
) -> float:
    """Return the ε of (7), Theorem 14.

    Wrong, see errata: the tail is too light, and one direction is missing.
    """
    mu = leverage
    log = math.log(2 / delta)
    centre = abs(-math.log1p(mu) + temperature * mu / (1 + mu) * residual**2) / 2
    return centre + mu / 2 * log + math.sqrt(temperature * mu * log) * abs(residual)


def theorem_14_8_as_printed(share: float, error: float, temperature: float, delta: float) -> float:
    """Return the ε of (8), Theorem 14, "perfect" for rows of the data set.

    Wrong, see errata: a sign, and as (7).
    """
    mu = share
    log = math.log(2 / delta)
    centre = abs(-math.log1p(-mu) - temperature * mu / (1 - mu) * error**2) / 2
    return centre + mu / 2 * log + math.sqrt(temperature * mu * log) * abs(error)


def lemma_24_as_printed(delta: float) -> float:
    """Return the t with P_p(|log p/p'| > t) = δ for p = N(0, ½), p' = N(0, 1): the ε of both laws
    by Lemma 24.

    Wrong, see errata: the tail is needed under p' too.
    """
    return float((ndtri(delta / 2) ** 2 / 2 - math.log(2)) / 2)


def remark_15_as_printed(leverage: float, error: float, temperature: float, delta: float) -> float:
    """Return the ε of Remark 15, which mixes μ and e.

    Wrong, see errata: (7), which it simplifies, has r.
    """
    log = math.log(2 / delta)
    square = temperature * min(leverage, 1.0) * error**2 / 2
    return leverage / 2 * (1 + log) + square + math.sqrt(temperature * leverage * log) * abs(error)


def proposition_16_9_as_printed(
    residual: float, temperature: float, ridge: float, smallest: float, delta: float
) -> float:
    """Return the ε of (9), Proposition 16: for all records with ‖x‖ ≤ 1.

    Wrong, see errata: no γ in the last term.
    """
    floor = ridge + smallest
    log = math.log(2 / delta)
    first = math.sqrt(temperature * log / floor) * abs(residual)
    return (
        first
        + temperature * residual**2 / (2 * max(floor, 1.0))
        + temperature * (1 + log) / (2 * floor)
    )


def proposition_16_10_as_printed(
    rows: int, ridge: float, temperature: float, delta: float
) -> float:
    """Return the ε of (10), Proposition 16: differential privacy.

    Wrong, see errata: no γ in the last term.
    """
    both = 2 * (rows + ridge) * temperature
    log = math.log(2 / delta)
    return (
        math.sqrt(both * log / ridge**2)
        + both / (ridge * max(1.0, ridge))
        + temperature * (1 + log) / (2 * ridge)
    )


def efficiency_as_printed(
    gram: Floats, ridge: float, temperature: float, variance: float, theta: Floats
) -> float:
    """Return E‖θ̃ − θ₀‖² = σ²tr(H⁻¹)(1 + 1/γ) + λ²‖H⁻¹θ₀‖² (Proposition 16.3).

    Wrong, see errata: no σ² with 1/γ.
    """
    inverse = np.linalg.inv(gram + ridge * np.eye(len(gram)))
    bias = ridge**2 * float(np.sum((inverse @ theta) ** 2))
    return variance * float(np.trace(inverse)) * (1 + 1 / temperature) + bias


def optimisation_error_as_printed(columns: int, temperature: float) -> float:
    """Return E F(θ̃) − F(θ̂) = d/γ (Proposition 16.4). Wrong, see errata: half of it."""
    return columns / temperature


def group_privacy_as_printed(
    epsilons: Sequence[float], deltas: Sequence[float]
) -> tuple[float, float]:
    """Return (Σε, Σ_i δ_i·Π_{j<i} e^(ε_j)), for both lines of Fact 6.4.

    Wrong, see errata: j > i in the second.
    """
    before = np.cumsum(epsilons) - np.asarray(epsilons)
    return float(sum(epsilons)), float(np.asarray(deltas) @ np.exp(before))


def proposition_11_as_printed(
    chances: Floats, data: tuple[Floats, Floats], target: tuple[float, float]
) -> float:
    """Return E[e^(ε'+ε'') − 1 + δ' + ε'δ''], z' from the data's law, one target z'' (Proposition
    11).

    Wrong, see errata: the last term is e^(ε')δ''. ``chances`` are the law of z', ``data`` its (ε',
    δ').
    """
    (epsilon, delta) = data
    (epsilon_2, delta_2) = target
    return float(chances @ (np.expm1(epsilon + epsilon_2) + delta + epsilon * delta_2))


@dataclass(frozen=True)
class AdaOps:
    """Algorithm 1 for data of known size: what it adds to λ_min, and how it sets λ_n and γ_n."""

    rows: int
    columns: int
    condition: float
    epsilon: float
    delta: float
    choose: Callable[[float, Floats], Floats]

    @property
    def log(self) -> float:
        """log(4/δ)."""
        return math.log(4 / self.delta)

    @property
    def is_allowed(self) -> bool:
        """Whether κ is as the algorithm asks: 0 ≤ κ ≤ nε/(4d(1 + log(4/δ)))."""
        most = self.rows * self.epsilon / (4 * self.columns * (1 + self.log))
        return 0 <= self.condition <= most

    @property
    def floor(self) -> float:
        """n/(dκ), which the smallest eigenvalue is meant to reach."""
        return self.rows / (self.columns * self.condition)

    @property
    def noise_scale(self) -> float:
        """√log(4/δ)/(ε/2), the standard deviation of λ̃_min."""
        return math.sqrt(self.log) / (self.epsilon / 2)

    @property
    def temperature(self) -> float:
        """γ_n = min{nε²/(16κ²d²·log(4/δ)), nε/(8κ²d²)}."""
        square = (self.condition * self.columns) ** 2
        return min(
            self.rows * self.epsilon**2 / (16 * square * self.log),
            self.rows * self.epsilon / (8 * square),
        )

    @property
    def residual(self) -> float:
        """√(2dκ), which |y − xᵀθ̂| is said not to exceed (15)."""
        return math.sqrt(2 * self.columns * self.condition)

    def ridge(self, noisy: Floats) -> Floats:
        """λ_n for a noisy λ̃_min."""
        return self.choose(0.0, self.floor - noisy + self.log / (self.epsilon / 2))

    def release(self, X: Floats, y: Floats, normals: Floats) -> tuple[float, Floats]:
        """Return (λ̃_min, θ̃) as 1 + d independent normals make them."""
        noisy = float(np.linalg.eigvalsh(X.T @ X)[0]) + self.noise_scale * float(normals[0])
        hessian = X.T @ X + float(self.ridge(np.asarray(noisy))) * np.eye(self.columns)
        noise = np.linalg.solve(np.linalg.cholesky(hessian).T, normals[1:])
        return noisy, np.asarray(
            np.linalg.solve(hessian, X.T @ y) + noise / math.sqrt(self.temperature)
        )


def ada_ops_as_printed(
    rows: int, columns: int, condition: float, epsilon: float, delta: float
) -> AdaOps:
    """Return Algorithm 1 with its λ_n = min{0, n/(dκ) − λ̃_min + …}.

    Wrong, see errata: it never regularises.
    """
    return AdaOps(rows, columns, condition, epsilon, delta, np.minimum)


def ada_ops_as_printed_with_max(
    rows: int, columns: int, condition: float, epsilon: float, delta: float
) -> AdaOps:
    """Return Algorithm 1 with max for min, as its proof reads.

    Wrong, see errata: (λ̃_min, θ̃) break the promise.
    """
    return AdaOps(rows, columns, condition, epsilon, delta, np.maximum)


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
        """Return the loss at δ."""
        return float(audit.gaussian_epsilon(self.distance, delta))

    def delta(self, epsilon: float) -> float:
        """Return the true δ at ε."""
        return math.exp(float(audit.gaussian_log_delta(self.distance, epsilon)))


@dataclass(frozen=True)
class PosteriorLoss:
    """One posterior sample, seen by a record of leverage μ and residual a = √γ·|y − xᵀθ̂|, both
    without it.
    """

    leverage: float
    residual: float

    def epsilon(self, delta: float) -> float:
        """Return the loss at δ, the worse of both directions."""
        return float(audit.posterior_epsilon(self.leverage, self.residual, delta))

    def delta(self, epsilon: float) -> float:
        """Return the true δ at ε, the worse of both directions."""
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
    """Return (Σε, δ̃) that hold in both directions."""
    return audit.group(epsilons, deltas)


def bound_generalisation(epsilons: Floats, deltas: Floats, target: tuple[float, float]) -> float:
    """Return a bound that holds for records z' which are equally likely, with (ε', δ'), and one
    target.
    """
    return audit.generalisation(epsilons, deltas, ([target[0]], [target[1]]))


def compute_normal_mean(of: Callable[[Floats], float], dimension: int) -> float:
    """Return E of(Z), Z standard normal, exactly if ``of`` is a polynomial of degree 3: the mean
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
        """Return mean and variance of θ̃ given λ̃."""
        hessian = self.gram + self.algorithm.ridge(noisy)
        return self.pull / hessian, 1 / (self.algorithm.temperature * hessian)

    @property
    def kink(self) -> float:
        """The λ̃ from which on nothing is regularised."""
        return self.algorithm.floor + self.algorithm.log / (self.algorithm.epsilon / 2)


def make_neighbours(
    algorithm: AdaOps, square: float, rows: int, grown: AdaOps | None = None
) -> tuple[NeighbourSide, NeighbourSide]:
    """Return ``rows`` rows (c, 1), c² = ``square``, without and with the record (1, −1).

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
    """Return the exact δ of (λ̃, θ̃) at the ε that was asked for, when the record is added and
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
    """Return ∫(p − e^ε·q)₊ for normal laws p, q of different variances, ε of any sign."""
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
    """Return the δ of θ̃ alone, λ̃ kept secret, when the record is added and when it is removed."""
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
