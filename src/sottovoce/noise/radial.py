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


def box(half_widths: ArrayLike) -> Floats:
    """Returns b with density ∝ exp(−max_j |b_j|/half_widths_j): Gamma(d+1) times a uniform point of the box."""
    widths = np.atleast_1d(np.asarray(half_widths, dtype=np.float64))
    point = (2 * source.uniforms(len(widths)) - 1) * widths
    return np.asarray(gamma(len(widths) + 1) * point, dtype=np.float64)
