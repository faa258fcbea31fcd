# SPDX-License-Identifier: Apache-2.0
"""Discrete Gaussian noise on integers, by OpenDP's exact sampler (Canonne, Kamath and Steinke 2020, Algorithm 3)."""

from __future__ import annotations

from sottovoce.noise import opendp_samplers, source

#: As for Laplace noise; a Gaussian reaches 2^63 from here with probability below exp(-2^35).
MAX_SCALE = 2.0**45


def draw(scale: float, size: int = 1) -> list[int]:
    """Returns independent integers Z with P[Z=z] ∝ exp(−z²/(2·scale²)), exactly."""
    if not 0 < scale <= MAX_SCALE:
        raise ValueError("the scale of integer noise lies between 0 and 2^45")
    opened = source.seam()
    return opendp_samplers.gaussian(scale, size) if opened is None else opened.integers("gaussian", scale, size)
