# SPDX-License-Identifier: Apache-2.0
"""Gaussian noise to 2^-180 of its deviation, its tails included (docs/theory/noise.md, docs/theory/posterior.md).

A pair is a radius √(−2·ln U) times a uniform direction (Box and Muller 1958), the direction that of a uniform point
of a disc (Marsaglia and Bray 1964). No value is too far out to be drawn. What is computed from it is rounded to a
public grid: a guarantee that rests on it says arithmetic="floating".
"""

from __future__ import annotations

from math import isqrt

from sottovoce.noise import precise, source

#: A point of the disc that is closer to its middle would not tell its direction well enough: another is drawn.
MIDDLE_BITS = 64
#: Bytes of a coordinate of such a point.
SIDE = precise.BITS // 8


def standard(size: int) -> list[int]:
    """Returns independent N(0, 1) variables times 2^384, each wrong by less than 2^-180·(1 + its size)."""
    drawn: list[int] = []
    while len(drawn) < size:
        radius = precise.root(-2 * precise.log(*source.uniforms(1)[0]))
        x, y, length = _direction()
        drawn += [radius * x // length, radius * y // length]
    return drawn[:size]


def _direction() -> tuple[int, int, int]:
    """Returns a uniform point of a disc, not close to its middle, and its distance from there."""
    while True:
        drawn = source.random_bytes(2 * SIDE)
        # Odd numbers between −2^384 and 2^384: the middles of cells.
        x, y = (2 * int.from_bytes(half, "little") + 1 - precise.ONE for half in (drawn[:SIDE], drawn[SIDE:]))
        square = x * x + y * y
        if precise.ONE**2 >> MIDDLE_BITS <= square < precise.ONE**2:
            return x, y, isqrt(square)
