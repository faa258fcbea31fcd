# SPDX-License-Identifier: Apache-2.0
"""The two doors to OpenDP: noise added to a vector of zeros is noise.

OpenDP keeps the scale as an exact rational and samples with rational arithmetic on bytes of the
operating system; a scale that is a double is taken at its exact value.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def _opendp() -> Any:
    import opendp.prelude as dp  # half a second, and not needed to plan

    dp.enable_features("contrib")
    return dp


def laplace(scale: float, size: int) -> list[int]:
    """Returns independent integers Z with P[Z=z] ∝ exp(−|z|/scale)."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    return list(dp.m.make_laplace(*space, scale=float(scale))(np.zeros(size, dtype=np.int64)))


def gaussian(scale: float, size: int) -> list[int]:
    """Returns independent integers Z with P[Z=z] ∝ exp(−z²/(2·scale²))."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return list(dp.m.make_gaussian(*space, scale=float(scale))(np.zeros(size, dtype=np.int64)))
