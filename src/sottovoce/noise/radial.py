# SPDX-License-Identifier: Apache-2.0
"""Radial (K-norm) noise: density ∝ exp(−‖b‖_K) for the ℓ2 norm and for box norms (docs/theory/noise.md).

Either a radius Gamma(d) times a point of the boundary of K by *cone* measure, or a radius Gamma(d+1)
times a uniform point of the *solid* body K; mixing the two is a silent error. For the sphere cone and
surface measure agree, for a box they do not, hence the solid body there. Drawn in doubles: a guarantee
that rests on this noise says arithmetic="floating".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from sottovoce.noise import source

Floats = NDArray[np.float64]


def gamma(shape: int) -> float:
    """Returns a Gamma(shape, 1) variable for a whole-number shape, as a sum of exponentials."""
    return float(-np.log(source.uniforms(shape)).sum())


def l2(rate: float, dimension: int) -> Floats:
    """Returns b with density ∝ exp(−rate·‖b‖₂): radius Gamma(d)/rate, direction uniform on the sphere."""
    normal = ndtri(source.uniforms(dimension))
    return np.asarray(gamma(dimension) / rate * normal / np.linalg.norm(normal), dtype=np.float64)


def between(slopes: int, a1: float, a2: float) -> Floats:
    """Returns (b₀, b₁ … b_p) with density ∝ exp(−N(b)), N = max(α₁|b₀| + (1−α₁)m, α₂|b₀| + (1−α₂)m), m = max_j |b_j|.

    The ratio t = |b₀|/m has density ∝ n(t)^−(p+1) with n(t) = max(α₁t + 1−α₁, α₂t + 1−α₂), two power laws
    that meet at t = 1; then m is Gamma(p+1)/n(t), and the slopes are uniform on the surface of the cube of
    radius m. Without slopes b₀ is Laplace. Needs 0 < α₁ ≤ 1 and 0 ≤ α₂ ≤ α₁, α₂ < 1.
    """
    signs = np.where(source.uniforms(slopes + 1) < 0.5, -1.0, 1.0)
    if slopes == 0:
        return np.asarray(signs * gamma(1), dtype=np.float64)
    t = _ratio(slopes, a1, a2)
    m = gamma(slopes + 1) / max(a1 * t + 1 - a1, a2 * t + 1 - a2)
    sizes = source.uniforms(slopes) * m
    sizes[source.below(slopes)] = m
    return np.asarray(signs * np.concatenate([[t * m], sizes]), dtype=np.float64)


def _ratio(p: int, a1: float, a2: float) -> float:
    """Returns t by inversion; both integrals are multiplied by (1−α₂)^p so that nothing overflows."""
    below_one = (1 - (1 - a2) ** p) / (a2 * p) if a2 > 0 else 1.0
    above_one = (1 - a2) ** p / (a1 * p)
    which, u = source.uniforms(2)
    if which < below_one / (below_one + above_one):
        reached = -np.log1p(-u * (1 - (1 - a2) ** p)) / p
        return float((1 - a2) * np.expm1(reached) / a2) if a2 > 0 else float(u)
    return float((u ** (-1 / p) - (1 - a1)) / a1)


def box(half_widths: ArrayLike) -> Floats:
    """Returns b with density ∝ exp(−max_j |b_j|/half_widths_j): Gamma(d+1) times a uniform point of the box."""
    widths = np.atleast_1d(np.asarray(half_widths, dtype=np.float64))
    point = (2 * source.uniforms(len(widths)) - 1) * widths
    return np.asarray(gamma(len(widths) + 1) * point, dtype=np.float64)
