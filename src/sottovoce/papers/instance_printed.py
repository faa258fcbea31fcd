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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from sottovoce.arrays import Floats


def lemma_4_as_printed(sensitivity: float, temperature: float, delta: float) -> float:
    """Returns ε = γΔ·√log(1.25/δ) for noise of covariance A⁻¹/γ (Lemma 4). Wrong, see errata: √γ
    and √2 belong.
    """
    return temperature * sensitivity * math.sqrt(math.log(1.25 / delta))


def equation_3_as_printed(sensitivity: float, delta: float) -> float:
    """Returns ε = √(∇ℓᵀH⁻¹AH⁻¹∇ℓ·log(1.25/δ)), the root of the form being Δ (3). Wrong, see errata:
    γ is missing.
    """
    return math.sqrt(sensitivity**2 * math.log(1.25 / delta))


def lemma_13_second_as_printed(hessian: Floats, gradient: Floats) -> Floats:
    """Returns θ̂ − θ̂' = −H⁻¹∇ℓ(θ̂', z), the second line of Lemma 13. Wrong, see errata: the sign
    is +.
    """
    return np.asarray(-np.linalg.solve(hessian, gradient))


def theorem_14_tail_as_printed(delta: float) -> float:
    """Returns √log(2/δ), the z with P(|Z| > z) ≤ δ in the proof of Theorem 14. Wrong, see errata:
    √2 is missing.
    """
    return math.sqrt(math.log(2 / delta))


def theorem_14_7_as_printed(
    leverage: float, residual: float, temperature: float, delta: float
) -> float:
    """Returns the ε of (7), Theorem 14. Wrong, see errata: the tail is too light, and one direction
    is missing.
    """
    mu = leverage
    log = math.log(2 / delta)
    centre = abs(-math.log1p(mu) + temperature * mu / (1 + mu) * residual**2) / 2
    return centre + mu / 2 * log + math.sqrt(temperature * mu * log) * abs(residual)


def theorem_14_8_as_printed(share: float, error: float, temperature: float, delta: float) -> float:
    """Returns the ε of (8), Theorem 14, "perfect" for rows of the data set. Wrong, see errata: a
    sign, and as (7).
    """
    mu = share
    log = math.log(2 / delta)
    centre = abs(-math.log1p(-mu) - temperature * mu / (1 - mu) * error**2) / 2
    return centre + mu / 2 * log + math.sqrt(temperature * mu * log) * abs(error)


def lemma_24_as_printed(delta: float) -> float:
    """Returns the t with P_p(|log p/p'| > t) = δ for p = N(0, ½), p' = N(0, 1): the ε of both laws
    by Lemma 24.

    Wrong, see errata: the tail is needed under p' too.
    """
    return float((ndtri(delta / 2) ** 2 / 2 - math.log(2)) / 2)


def remark_15_as_printed(leverage: float, error: float, temperature: float, delta: float) -> float:
    """Returns the ε of Remark 15, which mixes μ and e. Wrong, see errata: (7), which it simplifies,
    has r.
    """
    log = math.log(2 / delta)
    square = temperature * min(leverage, 1.0) * error**2 / 2
    return leverage / 2 * (1 + log) + square + math.sqrt(temperature * leverage * log) * abs(error)


def proposition_16_9_as_printed(
    residual: float, temperature: float, ridge: float, smallest: float, delta: float
) -> float:
    """Returns the ε of (9), Proposition 16: for all records with ‖x‖ ≤ 1. Wrong, see errata: no γ
    in the last term.
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
    """Returns the ε of (10), Proposition 16: differential privacy. Wrong, see errata: no γ in the
    last term.
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
    """Returns E‖θ̃ − θ₀‖² = σ²tr(H⁻¹)(1 + 1/γ) + λ²‖H⁻¹θ₀‖² (Proposition 16.3). Wrong, see errata:
    no σ² with 1/γ.
    """
    inverse = np.linalg.inv(gram + ridge * np.eye(len(gram)))
    bias = ridge**2 * float(np.sum((inverse @ theta) ** 2))
    return variance * float(np.trace(inverse)) * (1 + 1 / temperature) + bias


def optimisation_error_as_printed(columns: int, temperature: float) -> float:
    """Returns E F(θ̃) − F(θ̂) = d/γ (Proposition 16.4). Wrong, see errata: half of it."""
    return columns / temperature


def group_privacy_as_printed(
    epsilons: Sequence[float], deltas: Sequence[float]
) -> tuple[float, float]:
    """Returns (Σε, Σ_i δ_i·Π_{j<i} e^(ε_j)), for both lines of Fact 6.4. Wrong, see errata: j > i
    in the second.
    """
    before = np.cumsum(epsilons) - np.asarray(epsilons)
    return float(sum(epsilons)), float(np.asarray(deltas) @ np.exp(before))


def proposition_11_as_printed(
    chances: Floats, data: tuple[Floats, Floats], target: tuple[float, float]
) -> float:
    """Returns E[e^(ε'+ε'') − 1 + δ' + ε'δ''], z' from the data's law, one target z'' (Proposition
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
        """Returns (λ̃_min, θ̃) as 1 + d independent normals make them."""
        noisy = float(np.linalg.eigvalsh(X.T @ X)[0]) + self.noise_scale * float(normals[0])
        hessian = X.T @ X + float(self.ridge(np.asarray(noisy))) * np.eye(self.columns)
        noise = np.linalg.solve(np.linalg.cholesky(hessian).T, normals[1:])
        return noisy, np.asarray(
            np.linalg.solve(hessian, X.T @ y) + noise / math.sqrt(self.temperature)
        )


def ada_ops_as_printed(
    rows: int, columns: int, condition: float, epsilon: float, delta: float
) -> AdaOps:
    """Returns Algorithm 1 with its λ_n = min{0, n/(dκ) − λ̃_min + …}. Wrong, see errata: it never
    regularises.
    """
    return AdaOps(rows, columns, condition, epsilon, delta, np.minimum)


def ada_ops_as_printed_with_max(
    rows: int, columns: int, condition: float, epsilon: float, delta: float
) -> AdaOps:
    """Returns Algorithm 1 with max for min, as its proof reads. Wrong, see errata: (λ̃_min, θ̃)
    break the promise.
    """
    return AdaOps(rows, columns, condition, epsilon, delta, np.maximum)
