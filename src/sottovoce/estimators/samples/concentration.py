# SPDX-License-Identifier: Apache-2.0
"""What a person of some weight loses to one sample of a posterior (docs/theory/posterior.md).

Public numbers alone. A person of weight W_l, where everybody together weighs S, changes the law of one sample from
N(θ̂, H⁻¹/γ), H ⪰ h·I, no more than one row of leverage W_l/h with a residual R_l would:

    μ = W_l/h,    a = √(γW_l)·R_l,      into the exact profile (one row) or into Rényi's curve (several)

    symbol     name
    W_l, S     weight, total
    h          floor           on the eigenvalues of H; λ where that is fixed
    R_l        residual        1 + ½√((S−W)/h) at a fixed λ, 1 + √((S−W)/h) where λ answers to the data
    σ₁         spread          of the noise on the smallest eigenvalue
    δ₃         missed          the probability that the floor is missed
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sottovoce.conversion import zcdp_epsilon
from sottovoce.noise.grid import ANSWER_BITS
from sottovoce.solvers import profiles, renyi

Floats = NDArray[np.float64]

#: Below this δ the exact ε grows with any leverage, else up to the golden ratio (theorem 5 of per-instance.md).
STEADY, GOLDEN = 0.19, (1 + math.sqrt(5)) / 2
#: Orders are sought on so many grids, each around the best of the last one; the first goes from −34 to FARTHEST.
LEVELS, GRID, STEP, START = 4, np.arange(-10, 11), 2.4, -10.0
#: What LAPACK's smallest eigenvalue of a matrix of at most 1,024 columns may be wrong by, as a part of its trace.
EIGENVALUE_ERROR = 2.0**-40
#: Closer to the end of the finite orders 1 − (α−1)μ would lose digits; orders closer to 1 would lose α − 1.
FARTHEST, SMALLEST = 14.0, 1e-9


class Account(Protocol):
    """What a person of some weight loses."""

    @property
    def floor(self) -> float:
        """h."""

    def epsilon(self, weight: Floats, total: float, single: NDArray[np.bool_]) -> Floats:
        """Returns ε, entry by entry, for people of these weights who own a single row, or several."""


@dataclass(frozen=True)
class Fixed:
    """λ = h is a public number: Theorem 1."""

    gamma: float
    floor: float
    delta: float

    def epsilon(self, weight: Floats, total: float, single: NDArray[np.bool_]) -> Floats:
        """ε of one sample at δ."""
        others = np.maximum(total - weight, 0.0)
        longest = np.where(others >= self.floor, np.sqrt(others / self.floor) / 2, others / (others + self.floor))
        return _sample(weight / self.floor, np.sqrt(self.gamma * weight) * (1 + longest), self.delta, single)


@dataclass(frozen=True)
class Adaptive:
    """λ answers to a noisy smallest eigenvalue: Theorem 2, both releases counted by Rényi's divergence."""

    gamma: float
    floor: float
    delta: float
    spread: float

    #: The share of δ that δ₃ is.
    missing = 1 / 10

    @property
    def failure_delta(self) -> float:
        """δ₃."""
        return self.delta * self.missing

    def epsilon(self, weight: Floats, total: float, single: NDArray[np.bool_]) -> Floats:
        """ε of both releases at δ − δ₃."""
        mu, a = self._get_leverage_and_residual(weight, total)
        return _renyi_epsilon(mu, a, self._bound_distance(weight, total) ** 2 / 2, self.delta - self.failure_delta)

    def eigenvalue(self, distance: Floats) -> Floats:
        """ε of the noisy eigenvalue by itself, for people who can move it by so many times σ₁."""
        return zcdp_epsilon(distance**2 / 2, self.delta - self.failure_delta)

    def margin(self, loudest: float, total: float) -> float:
        """Returns what must be added to the floor so that it is missed with probability δ₃ at most.

        W_max + σ₁z, half a step of the grid that λ̃ is rounded to, and the error of the computed eigenvalue.
        """
        rounded = self.spread * 2.0 ** -(ANSWER_BITS + 1) + EIGENVALUE_ERROR * total
        return loudest - self.spread * float(ndtri(self.failure_delta)) + rounded

    def _bound_distance(self, weight: Floats, total: float) -> Floats:
        """How far somebody moves the eigenvalue as it is computed, at most, in units of σ₁."""
        return np.asarray((weight + 2 * EIGENVALUE_ERROR * total) / self.spread, dtype=np.float64)

    def _get_leverage_and_residual(self, weight: Floats, total: float) -> tuple[Floats, Floats]:
        longest = np.sqrt(np.maximum(total - weight, 0.0) / self.floor)
        return weight / self.floor, np.sqrt(self.gamma * weight) * (1 + longest)


@dataclass(frozen=True)
class Simple(Adaptive):
    """The same with the ε of each release by itself, added up: Theorem 3."""

    missing = 1 / 3

    def epsilon(self, weight: Floats, total: float, single: NDArray[np.bool_]) -> Floats:
        """ε₁ and ε₂, each at half of δ − δ₃."""
        sample = _sample(*self._get_leverage_and_residual(weight, total), self._each, single)
        return np.asarray(self.eigenvalue(self._bound_distance(weight, total)) + sample, dtype=np.float64)

    def eigenvalue(self, distance: Floats) -> Floats:
        """The exact ε of Gaussian noise."""
        return profiles.gaussian_epsilon(distance, self._each)

    @property
    def _each(self) -> float:
        return (self.delta - self.failure_delta) / 2


def _sample(mu: Floats, a: Floats, delta: float, single: NDArray[np.bool_]) -> Floats:
    """Returns ε of one posterior sample: the exact one where it grows with the leverage, else Rényi's bound."""
    grows = (mu > 0) & ((mu <= GOLDEN) | (delta < STEADY))
    mu, a, exact = np.broadcast_arrays(mu, a, single & grows)
    found = np.zeros(mu.shape)
    if exact.any():
        found[exact] = profiles.posterior_epsilon(mu[exact], a[exact], delta)
    if not exact.all():
        found[~exact] = _renyi_epsilon(mu[~exact], a[~exact], np.zeros(int((~exact).sum())), delta)
    return found


def _renyi_epsilon(mu: Floats, a: Floats, rho: Floats, delta: float) -> Floats:
    """Returns the least ε at δ over orders α of the curve αρ + D_α(μ, a), which is finite for (α − 1)μ < 1.

    (α − 1)μ = 1/(1 + e^−x), and x is sought on finer and finer grids; whatever order is found gives a bound.
    """
    heard = np.where(mu > 0, mu, 1.0)
    centre, step = np.full((len(heard), 1), START), STEP
    for _ in range(LEVELS):
        x = np.minimum(centre + step * GRID, FARTHEST)
        alpha = np.maximum(1 + 1 / (heard[:, None] * (1 + np.exp(-x))), 1 + SMALLEST)
        curve = rho[:, None] * alpha + renyi.posterior(heard, a, alpha)
        bound = renyi.epsilon(curve[..., None], delta, alpha[..., None])
        centre = np.take_along_axis(x, bound.argmin(axis=1)[:, None], axis=1)
        step *= 2 / len(GRID)
    return np.where(mu > 0, bound.min(axis=1), 0.0)
