# SPDX-License-Identifier: Apache-2.0
"""Gaussian noise in doubles, for posterior samples (docs/theory/posterior.md).

By inversion of uniform doubles, so no value lies beyond ±8.3. A guarantee that rests on it says
arithmetic="floating".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sottovoce.noise import source


def standard(size: int) -> NDArray[np.float64]:
    """Returns independent N(0, 1) variables, to the precision of doubles."""
    return np.asarray(ndtri(source.uniforms(size)), dtype=np.float64)
