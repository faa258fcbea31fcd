# SPDX-License-Identifier: Apache-2.0
"""Discrete Laplace noise on integers, by OpenDP's exact sampler (Canonne, Kamath and Steinke 2020, Algorithm 2)."""

from __future__ import annotations

from sottovoce.noise import opendp_samplers, source

#: OpenDP's integers stop at 2^63. At this scale a draw that far out has probability below exp(-2^18).
MAX_SCALE = 2.0**45


def draw(scale: float, size: int = 1) -> list[int]:
    """Returns independent integers Z with P[Z=z] ∝ exp(−|z|/scale), exactly."""
    if not 0 < scale <= MAX_SCALE:
        raise ValueError("the scale of integer noise lies between 0 and 2^45")
    opened = source.seam()
    return opendp_samplers.laplace(scale, size) if opened is None else opened.integers("laplace", scale, size)
