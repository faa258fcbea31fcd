# SPDX-License-Identifier: Apache-2.0
"""The public proxy of a regression's expected error, which chooses its parameters before data is read.

In units of the label's squared scale s², for p recoded slopes with second moment C and threshold τ = k·s:

    L = Σ_j avg_C [(Λ²ψ/p + C·N + .4κV₂C²)/(κVC + Λ)²] + (Λ₀²m₂ + C₀N₀ + .4κV₂C₀²)/(κVC₀ + Λ₀)²

    V, V₂    Σv and Σv² over rows            κ       erf(k/√2), the share of rows inside the threshold
    N, N₀    second moments of the noise     ψ, m₂   assumed size of slopes and of the intercept
A planning number, good for on/off decisions and within a factor of three; never an accuracy promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.integrate import quad

#: Regularisation in 97 steps a quarter of a power of two apart; a coarser grid chooses badly.
RIDGES = 2.0 ** np.linspace(-1, 23, 97)
#: Thresholds in units of the label's scale, with a small penalty for the bias of the narrow ones.
THRESHOLDS = ((0.75, 0.010), (1.0, 0.007), (1.5, 0.003), (2.5, 0.001))
#: How far such a threshold draws the fit from the mean to the median, in units of the scale: where labels are skewed as
#: those of a gamma law of shape 4, and where they are as skewed as exponential ones (docs/theory/errors.md).
SKEWED = {0.75: (0.15, 0.47), 1.0: (0.13, 0.43), 1.5: (0.09, 0.32), 2.0: (0.05, 0.23), 2.5: (0.025, 0.16)}
#: Noise norms max(α₁a + (1−α₁)m, α₂a + (1−α₂)m) between joint (1, 0) and separate (α, α) intercept noise.
NORMS = (
    (1.0, 0.0),
    *((a, a) for a in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)),
    *((1.0, a) for a in (0.05, 0.1, 0.2, 0.3)),
    *((a, 0.0) for a in (0.3, 0.5, 0.7)),
)
#: Second moments that a recoded feature may have: spread evenly, bunched, nearly constant.
MOMENTS = (1 / 12, 1 / 30, 1 / 100)
INTERCEPT = 1 / 4  # the squared intercept column


@dataclass(frozen=True)
class Choice:
    """The parameters of one stage and the proxy's value for them."""

    expected: float  # L, in units of s²
    threshold: float  # k
    ridge: float
    intercept_ridge: float
    norm: tuple[float, float]


@dataclass(frozen=True)
class Terms:
    """The terms of L, in units of s²."""

    noise: float
    sampling: float
    shrinkage: float


def regularity(slopes: int, ridge: float, intercept_ridge: float) -> float:
    """Returns H = Σ_j h_j²/Λ_j for p slopes and the intercept, all of half-width ½."""
    return slopes / (4 * ridge) + 1 / (4 * intercept_ridge)


@cache
def best(slopes: int, total: float, squares: float, intercept_size: float, slope_size: float) -> Choice:
    """Returns the choice with the smallest proxy among all grids, subject to H ≤ ½."""
    candidates = [
        _best_of(slopes, total, squares, intercept_size, slope_size, k, penalty, norm)
        for k, penalty in THRESHOLDS
        for norm in NORMS
    ]
    return min(candidates, key=lambda choice: choice.expected)


def _best_of(
    p: int, V: float, V2: float, m2: float, psi: float, k: float, penalty: float, norm: tuple[float, float]
) -> Choice:
    kappa, grid = math.erf(k / math.sqrt(2)), RIDGES
    N0, N = (k * k * moment for moment in noise_moments(p, *norm))
    slope = p * np.mean(
        [(grid**2 * psi / p + C * N + 0.4 * kappa * V2 * C * C) / (kappa * V * C + grid) ** 2 for C in MOMENTS], axis=0
    )
    intercept = _intercept(grid, m2, N0, kappa, V, V2)
    total = np.where(p / (4 * grid[:, None]) + 1 / (4 * grid) <= 0.5, slope[:, None] + intercept, np.inf)
    i, j = np.unravel_index(int(np.argmin(total)), total.shape)
    return Choice(float(total[i, j]) + penalty, k, float(grid[i]), float(grid[j]), norm)


def parts(slopes: int, total: float, squares: float, intercept_size: float, slope_size: float, choice: Choice) -> Terms:
    """Returns L by its terms, for a choice: of slopes and intercept, or of a constant only (an infinite ridge)."""
    p, V, V2, k = slopes, total, squares, choice.threshold
    kappa, C0 = math.erf(k / math.sqrt(2)), INTERCEPT
    constant = math.isinf(choice.ridge)
    N0, N = (2.0, 0.0) if constant else noise_moments(p, *choice.norm)
    stiff = (kappa * V * C0 + choice.intercept_ridge) ** 2
    terms = np.array([C0 * N0 * k * k, 0.4 * kappa * V2 * C0 * C0, choice.intercept_ridge**2 * intercept_size]) / stiff
    if not constant:
        columns = [
            np.array([C * N * k * k, 0.4 * kappa * V2 * C * C, choice.ridge**2 * slope_size / p])
            / (kappa * V * C + choice.ridge) ** 2
            for C in MOMENTS
        ]
        terms = terms + p * np.mean(columns, axis=0)
    return Terms(*map(float, terms))


def best_constant(total: float, squares: float, intercept_size: float, threshold: float) -> Choice:
    """Returns the best intercept ridge when only a constant is fitted (its noise is Laplace)."""
    grid = RIDGES[RIDGES >= 0.5]
    expected = _intercept(grid, intercept_size, 2 * threshold**2, math.erf(threshold / math.sqrt(2)), total, squares)
    j = int(np.argmin(expected))
    return Choice(float(expected[j]), threshold, math.inf, float(grid[j]), (1.0, 0.0))


def _intercept(grid: np.ndarray, m2: float, N0: float, kappa: float, V: float, V2: float) -> np.ndarray:
    C0 = INTERCEPT
    return (grid**2 * m2 + C0 * N0 + 0.4 * kappa * V2 * C0 * C0) / (kappa * V * C0 + grid) ** 2


@cache
def noise_moments(slopes: int, a1: float, a2: float) -> tuple[float, float]:
    """Returns E b₀² and E b_j² in units of (2hτ)², by quadrature over the ratio t = |b₀|/max|b_j|."""
    p = slopes

    def n(t: float) -> float:
        return max(a1 * t + 1 - a1, a2 * t + 1 - a2)

    def integral(power: float, t_power: int) -> float:
        inner = quad(lambda t: t**t_power * n(t) ** -power, 0, 1)[0]
        outer = quad(lambda u: u ** (-t_power - 2) * n(1 / u) ** -power, 0, 1)[0]
        return float(inner + outer)

    mass = integral(p + 1, 0)
    scale = (p + 1) * (p + 2) / mass
    return scale * integral(p + 3, 2), scale * integral(p + 3, 0) * (p + 2) / (3 * p)
