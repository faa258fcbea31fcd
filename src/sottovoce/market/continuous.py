# SPDX-License-Identifier: Apache-2.0
"""The optimum without limits and without a grid of totals, in one sort: for comparison with the published rule.

At the total η only the n cheapest sell, n falling as η grows, and the least value is (docs/theory/market.md, Theorem 2)

    γη·mean_n + √(μ²/n − γ²η²·var_n) + σ/η      while   ‖(Ψ_n − Ψ_j)_{j<n}‖ < μ/(γη) ≤ ‖(Ψ_{n+1} − Ψ_j)_{j≤n}‖

with at most one local minimum for each n. Uncapped optima buy ε of ten and more from a few: Market has caps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sottovoce.errors import InvalidParameter
from sottovoce.market.prior import Floats

#: Halvings of an interval, and the smallest total that is looked at.
HALVINGS, SMALLEST = 80, 1e-12


def continuous(virtual: ArrayLike, mu: float, sigma: float, trade_off: float) -> tuple[Floats, float]:
    """Returns the ε ≥ 0 that minimise (μ‖ε‖ + σ)/Σε + γΣΨε, and the least value.

    >>> epsilon, value = continuous([1.0, 1.0], mu=0.5, sigma=2.0, trade_off=1.0)
    >>> [round(e, 6) for e in epsilon.tolist()]
    [0.707107, 0.707107]
    """
    psi = np.asarray(virtual, dtype=np.float64).ravel()
    if not (psi.size and np.all(np.isfinite(psi)) and psi.min() > 0 and min(mu, sigma, trade_off) > 0):
        raise InvalidParameter(
            "A virtual cost or a constant of the buyer is not positive.", "", "Pass positive, finite numbers."
        )
    pieces = _Pieces.of(np.sort(psi), mu, sigma, trade_off).select_promising()
    eta = pieces.find_minima()
    value = pieces.value(eta)
    best = int(np.argmin(value))
    return float(eta[best]) * pieces.weights(psi, best, float(eta[best])), float(value[best])


@dataclass(frozen=True, eq=False)
class _Pieces:
    """For every n: the n cheapest sell at totals between low and high; s is γη throughout."""

    n: NDArray[np.int64]
    mean: Floats
    var: Floats
    low: Floats
    high: Floats
    mu: float
    sigma: float
    gamma: float

    @classmethod
    def of(cls, psi: Floats, mu: float, sigma: float, gamma: float) -> _Pieces:
        n, above = np.arange(1, len(psi) + 1), psi - psi[0]
        s1, s2 = np.cumsum(above), np.cumsum(above**2)
        mean, var = s1 / n, np.maximum(s2 / n - (s1 / n) ** 2, 0.0)
        reach = np.maximum.accumulate(np.sqrt(np.maximum(n * above**2 - 2 * above * s1 + s2, 0.0)))
        # Where nothing limits a total from above, it is past the minimum of σ/η + γη·mean.
        most = np.maximum(4 * np.sqrt(sigma / (gamma * (mean + psi[0]))), 2 * mu / (gamma * max(reach[-1], 1e-9)))
        with np.errstate(divide="ignore"):
            edges = np.minimum(mu / gamma / reach, most.max())
        return cls(n, mean + psi[0], var, np.append(edges[1:], SMALLEST), edges, mu, sigma, gamma)

    def select_promising(self) -> _Pieces:
        """Returns the pieces that may hold the minimum: all but σ/η grows with η."""
        start, some = self.value(self.low), self.low < self.high
        least = start - self.sigma / self.low + self.sigma / self.high
        kept = some & (least <= start[some].min())
        return replace(self, **{name: getattr(self, name)[kept] for name in ("n", "mean", "var", "low", "high")})

    def find_minima(self) -> Floats:
        """Returns the first local minimum of each piece, or where its slope is largest."""
        peak = _last(self._is_steeper, self.low, self.high)
        return _last(lambda eta: self._compute_slope(eta) < 0, self.low, peak)

    def value(self, eta: Floats) -> Floats:
        """Returns the least value at a total of each piece."""
        return np.asarray(self.gamma * eta * self.mean + self._compute_root(eta) + self.sigma / eta)

    def weights(self, psi: Floats, piece: int, eta: float) -> Floats:
        """Returns a in the order of psi, at a total of a piece."""
        n, s = int(self.n[piece]), self.gamma * eta
        tilt = s / (n * math.sqrt(max(self.mu**2 / n - s**2 * self.var[piece], 1e-300)))
        weights = np.maximum(1 / n - tilt * (psi - self.mean[piece]), 0.0)
        weights[np.argsort(psi, kind="stable")[n:]] = 0.0
        return np.asarray(weights / weights.sum())

    def _compute_root(self, eta: Floats) -> Any:
        return np.sqrt(np.maximum(self.mu**2 / self.n - (self.gamma * eta) ** 2 * self.var, 1e-300))

    def _compute_slope(self, eta: Floats) -> Any:
        """η² times the derivative: rises up to one point, then falls."""
        bend = self.gamma**2 * eta**3 * self.var / self._compute_root(eta)
        return self.gamma * self.mean * eta**2 - bend - self.sigma

    def _is_steeper(self, eta: Floats) -> Any:
        y2 = np.minimum((self.gamma * eta) ** 2 * self.var * self.n / self.mu**2, 1 - 1e-15)
        bend = self.gamma * eta * self.var * np.sqrt(self.n) / self.mu
        return 2 * self.mean > bend * (3 - 2 * y2) / (1 - y2) ** 1.5


def _last(holds: Callable[[Floats], Any], low: Floats, high: Floats) -> Floats:
    """Returns the point up to which a condition holds, entry by entry; it holds up to one point and not beyond."""
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        yes = holds(middle)
        low, high = np.where(yes, middle, low), np.where(yes, high, middle)
    return np.asarray(np.sqrt(low * high))
