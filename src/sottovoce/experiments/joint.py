# SPDX-License-Identifier: Apache-2.0
"""The exact δ of AdaOPS's joint release (λ̃_min, θ̃) for one column, by quadrature (docs/theory/errata.md).

Given λ̃ both data sets give θ̃ a normal law, so the inner integral is closed; the outer one runs over λ̃.

    symbol      name
    λ̃           noisy, the smallest eigenvalue with its noise
    ℓ           log-ratio of the two densities of λ̃; θ̃ has ε − ℓ left
    α, β, ζ     log-ratio of the two laws of θ̃ less what is left: αθ² + βθ + ζ
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sottovoce.experiments.as_printed import AdaOps

Floats = NDArray[np.float64]

#: Beyond so many standard deviations of λ̃ nothing is integrated: it has probability 10⁻³².
REACH = 12.0
PANELS, NODES = 48, 16


class Side(NamedTuple):
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


def neighbours(algorithm: AdaOps, square: float, rows: int, grown: AdaOps | None = None) -> tuple[Side, Side]:
    """Returns ``rows`` rows (c, 1), c² = ``square``, without and with the record (1, −1).

    With it, ``grown`` is the algorithm: the same where the size of the data is public, another n where it is not.
    """
    gram, pull = rows * square, rows * math.sqrt(square)
    return Side(algorithm, gram, pull), Side(grown or algorithm, gram + 1, pull - 1)


def joint_delta(without: Side, present: Side, panels: int = PANELS) -> tuple[float, float]:
    """Returns the exact δ of (λ̃, θ̃) at the ε that was asked for, when the record is added and when it is removed."""
    return _one_way(without, present, panels), _one_way(present, without, panels)


def _one_way(first: Side, second: Side, panels: int) -> float:
    scale, epsilon = first.algorithm.noise_scale, first.algorithm.epsilon
    noisy, weights = _nodes(first.gram, scale, (first.kink, second.kink), panels)
    density = np.exp(-(((noisy - first.gram) / scale) ** 2) / 2) / (scale * math.sqrt(2 * math.pi))
    loss = ((noisy - second.gram) ** 2 - (noisy - first.gram) ** 2) / (2 * scale**2)
    return float(weights @ (density * hockey_stick(first.compute_law(noisy), second.compute_law(noisy), epsilon - loss)))


def _nodes(centre: float, scale: float, kinks: tuple[float, ...], panels: int) -> tuple[Floats, Floats]:
    """Gauss–Legendre on panels, which end where the integrand has a kink."""
    low, high = centre - REACH * scale, centre + REACH * scale
    edges = np.unique(np.clip([*np.linspace(low, high, panels + 1), *kinks], low, high))
    x, w = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(edges)[:, None] / 2
    return ((edges[:-1, None] + half) + half * x).ravel(), (half * w).ravel()


def hockey_stick(first: tuple[Floats, Floats], second: tuple[Floats, Floats], epsilon: Floats) -> Floats:
    """Returns ∫(p − e^ε·q)₊ for normal laws p, q of different variances, ε of any sign."""
    (m1, v1), (m2, v2) = first, second
    alpha, beta = (1 / v2 - 1 / v1) / 2, m1 / v1 - m2 / v2
    zeta = (m2**2 / v2 - m1**2 / v1 + np.log(v2 / v1)) / 2 - epsilon
    root = beta**2 - 4 * alpha * zeta
    half, middle = np.sqrt(np.maximum(root, 0.0)) / (2 * np.abs(alpha)), -beta / (2 * alpha)
    ends = [((middle - half - m) / np.sqrt(v), (middle + half - m) / np.sqrt(v)) for m, v in (first, second)]
    p, q = (np.where(alpha > 0, _beyond(*end), _between(*end)) for end in ends)
    return np.asarray(p - np.exp(epsilon) * q)


def _between(low: Floats, high: Floats) -> Floats:
    """P(low < Z < high), taken from the nearer tail."""
    return np.asarray(np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low)))


def _beyond(low: Floats, high: Floats) -> Floats:
    """P(Z < low or Z > high)."""
    return np.asarray(ndtr(low) + ndtr(-high))


def marginal_delta(without: Side, present: Side, nodes: int = 4001) -> tuple[float, float]:
    """Returns the δ of θ̃ alone, λ̃ kept secret, when the record is added and when it is removed."""
    laws = [_mixture(side) for side in (without, present)]
    low = min(float((m - REACH * np.sqrt(v)).min()) for m, v, _ in laws)
    high = max(float((m + REACH * np.sqrt(v)).max()) for m, v, _ in laws)
    theta = np.linspace(low, high, nodes)
    p, q = (np.exp(-((theta[:, None] - m) ** 2) / (2 * v)) @ (w / np.sqrt(2 * math.pi * v)) for m, v, w in laws)
    step, times = theta[1] - theta[0], math.exp(without.algorithm.epsilon)
    return float(step * np.maximum(p - times * q, 0.0).sum()), float(step * np.maximum(q - times * p, 0.0).sum())


def _mixture(side: Side) -> tuple[Floats, Floats, Floats]:
    """Means, variances and weights of θ̃ over the nodes of λ̃ that are likely enough."""
    scale = side.algorithm.noise_scale
    noisy, weights = _nodes(side.gram, scale, (side.kink,), PANELS // 4)
    weights = weights * np.exp(-(((noisy - side.gram) / scale) ** 2) / 2) / (scale * math.sqrt(2 * math.pi))
    return *side.compute_law(noisy), weights
