# SPDX-License-Identifier: Apache-2.0
"""Discrete Laplace noise on integers, by OpenDP's exact sampler (Canonne, Kamath and Steinke 2020,
Algorithm 2).

Discrete Gaussian noise on integers, by OpenDP's exact sampler (Canonne, Kamath and Steinke 2020,
Algorithm 3).

The two doors to OpenDP: noise added to a vector of zeros is noise.

OpenDP keeps the scale as an exact rational and samples with rational arithmetic on bytes of the
operating system; a scale that is a double is taken at its exact value.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from sottovoce.noise import source

#: OpenDP's integers stop at 2^63. At this scale a draw that far out has probability below
#: exp(-2^18).
MAX_LAPLACE_SCALE = 2.0**45


def draw_laplace(scale: float, size: int = 1) -> list[int]:
    """Returns independent integers Z with P[Z=z] ∝ exp(−|z|/scale), exactly."""
    if not 0 < scale <= MAX_LAPLACE_SCALE:
        raise ValueError("the scale of integer noise lies between 0 and 2^45")
    opened = source.seam()
    if opened is None:
        return sample_opendp_laplace(scale, size)
    return opened.integers("laplace", scale, size)


#: As for Laplace noise; a Gaussian reaches 2^63 from here with probability below exp(-2^35).
MAX_GAUSSIAN_SCALE = 2.0**45


def draw_gaussian(scale: float, size: int = 1) -> list[int]:
    """Returns independent integers Z with P[Z=z] ∝ exp(−z²/(2·scale²)), exactly."""
    if not 0 < scale <= MAX_GAUSSIAN_SCALE:
        raise ValueError("the scale of integer noise lies between 0 and 2^45")
    opened = source.seam()
    if opened is None:
        return sample_opendp_gaussian(scale, size)
    return opened.integers("gaussian", scale, size)


@cache
def _import_opendp() -> Any:
    import opendp.prelude as dp  # half a second, and not needed to plan

    dp.enable_features("contrib")
    return dp


def sample_opendp_laplace(scale: float, size: int) -> list[int]:
    """Returns independent integers Z with P[Z=z] ∝ exp(−|z|/scale)."""
    dp = _import_opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    return list(dp.m.make_laplace(*space, scale=float(scale))(np.zeros(size, dtype=np.int64)))


def sample_opendp_gaussian(scale: float, size: int) -> list[int]:
    """Returns independent integers Z with P[Z=z] ∝ exp(−z²/(2·scale²))."""
    dp = _import_opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return list(dp.m.make_gaussian(*space, scale=float(scale))(np.zeros(size, dtype=np.int64)))
