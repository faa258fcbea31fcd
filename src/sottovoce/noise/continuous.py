# SPDX-License-Identifier: Apache-2.0
"""Gaussian noise to 2^-180 of its deviation, its tails included (docs/theory/noise.md,
docs/theory/posterior.md).

A pair is a radius √(−2·ln U) times a uniform direction (Box and Muller 1958), the direction that of
a uniform point of a disc (Marsaglia and Bray 1964). No value is too far out to be drawn. What is
computed from it is rounded to a public grid: a guarantee that rests on it says
arithmetic="floating".

Radial (K-norm) noise: density ∝ exp(−‖b‖_K) for the ℓ2 norm and for box norms
(docs/theory/noise.md).

Either a radius Gamma(d) times a point of the boundary of K by *cone* measure, or a radius
Gamma(d+1) times a uniform point of the *solid* body K; mixing the two is a silent error. For the
sphere cone and surface measure agree, for a box they do not, hence the solid body there. Drawn to
2^-150 of its size; what is computed from it is rounded to a public grid, and a guarantee that rests
on it says arithmetic="floating".
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sottovoce.noise import source
from sottovoce.noise.source import BITS, ONE, AnswerGrid, Reals

#: A point of the disc that is closer to its middle would not tell its direction well enough:
#: another is drawn.
MIDDLE_BITS = 64
#: Bytes of a coordinate of such a point.
COORDINATE_BYTES = source.BITS // 8


def draw_standard_normals(size: int) -> list[int]:
    """Returns independent N(0, 1) variables times 2^384, each wrong by less than 2^-180·(1 + its
    size).
    """
    drawn: list[int] = []
    while len(drawn) < size:
        radius = source.sqrt(-2 * source.log(*source.draw_uniforms(1)[0]))
        x, y, length = _draw_point_in_disc()
        drawn += [radius * x // length, radius * y // length]
    return drawn[:size]


def _draw_point_in_disc() -> tuple[int, int, int]:
    """Returns a uniform point of a disc, not close to its middle, and its distance from there."""
    while True:
        drawn = source.draw_bytes(2 * COORDINATE_BYTES)
        # Odd numbers between −2^384 and 2^384: the middles of cells.
        x, y = (
            2 * int.from_bytes(half, "little") + 1 - source.ONE
            for half in (drawn[:COORDINATE_BYTES], drawn[COORDINATE_BYTES:])
        )
        square = x * x + y * y
        if source.ONE**2 >> MIDDLE_BITS <= square < source.ONE**2:
            return x, y, isqrt(square)


Floats = NDArray[np.float64]

#: A product of uniform numbers is cut to so many bits.
PRODUCT_BITS = 768
#: A vector of normal variables that is shorter than 2^-20 would not tell its direction well:
#: another is drawn.
SHORT_BITS = 20


def draw_gamma(shape: int) -> int:
    """Returns a Gamma(shape, 1) variable times 2^384, for a whole-number shape: −ln of a product of
    uniform reals.
    """
    product = 1
    power = 0
    for u in source.draw_uniforms(shape):
        product *= u.mantissa
        spare = max(product.bit_length() - PRODUCT_BITS, 0)
        product >>= spare
        power += u.power - spare
    return -source.log(product, power)


def draw_l2(rate: float, dimension: int) -> Reals:
    """Returns b with density ∝ exp(−rate·‖b‖₂): radius Gamma(d)/rate, direction uniform on the
    sphere.

    As fractions, each wrong by less than 2^-150 of the radius.
    """
    radius = draw_gamma(dimension)
    unit = 1 / (Fraction(rate) * ONE)
    if dimension == 1:
        return _to_reals([radius * sign for sign in _draw_signs(1)], unit)
    sides, length = _draw_direction(dimension)
    return _to_reals([radius * side // length for side in sides], unit)


def _draw_direction(dimension: int) -> tuple[list[int], int]:
    """Returns a vector of uniform direction, long enough to tell it well, and its length."""
    while True:
        sides = draw_standard_normals(dimension)
        length = isqrt(sum(side * side for side in sides))
        if length >> (BITS - SHORT_BITS):
            return sides, length


def add_output_noise(theta: Iterable[Any], rate: float, ridge: Any) -> Floats:
    """Returns θ + u/√Λ, u of density ∝ exp(−rate·‖u‖₂): an exact sum, rounded to 2^-20 of the scale
    of u.
    """
    roots = [Fraction(source.sqrt(int(Fraction(entry) * ONE)), ONE) for entry in ridge]
    moved = np.array(source.to_fractions(theta), dtype=object) + draw_l2(
        rate, len(roots)
    ) / np.array(roots, dtype=object)
    return AnswerGrid.below(1 / (rate * float(max(roots)))).nearest(moved)


def bound_gamma(shape: int) -> float:
    """Returns what a Gamma(shape) variable exceeds with probability below e^−500: E e^(G/2) =
    2^shape.
    """
    return 2.0 * shape + 1000.0


def draw_mixed_norm(slopes: int, a1: float, a2: float) -> Reals:
    """Returns (b₀, b₁ … b_p) with density ∝ exp(−N(b)), N = max(α₁|b₀| + (1−α₁)m, α₂|b₀| +
    (1−α₂)m), m = max_j |b_j|.

    The ratio t = |b₀|/m has density ∝ n(t)^−(p+1) with n(t) = max(α₁t + 1−α₁, α₂t + 1−α₂), two
    power laws that meet at t = 1; then m is Gamma(p+1)/n(t), and the slopes are uniform on the
    surface of the cube of radius m. Without slopes b₀ is Laplace. Needs 0 < α₁ ≤ 1 and 0 ≤ α₂ ≤ α₁,
    α₂ < 1.
    """
    signs = _draw_signs(slopes + 1)
    if slopes == 0:
        return _to_reals([signs[0] * draw_gamma(1)], Fraction(1, ONE))
    constant, m = _draw_sizes(slopes, a1, a2)
    sizes = [constant, *(u.fixed_point * m >> BITS for u in source.draw_uniforms(slopes))]
    sizes[1 + source.draw_below(slopes)] = m
    return _to_reals(
        [sign * size for sign, size in zip(signs, sizes, strict=True)], Fraction(1, ONE)
    )


def draw_rounded_norm(boxed: int, rounded: int, a1: float, a2: float) -> Reals:
    """Returns (b₀, b₁ … b_p) with the density of `draw_mixed_norm` for another m: the largest of
    |b₁| … |b_boxed| and of ‖(b_boxed+1 … b_p)‖₂, p = boxed + rounded.

    Slopes are m times a point of the surface of the product of a cube and a ball, by cone measure:
    a uniform point of the solid body over its own m. Needs rounded > 0.
    """
    (sign,) = _draw_signs(1)
    constant, m = _draw_sizes(boxed + rounded, a1, a2)
    while True:
        cube = [2 * u.fixed_point - ONE for u in source.draw_uniforms(boxed)]
        ball = _draw_point_in_ball(rounded)
        size = max([isqrt(sum(side * side for side in ball)), *map(abs, cube)])
        # The point of the surface does not depend on the size, so that its law stays.
        if size >> (BITS - SHORT_BITS):
            break
    slopes = [side * m // size for side in (*cube, *ball)]
    return _to_reals([sign * constant, *slopes], Fraction(1, ONE))


def _draw_sizes(slopes: int, a1: float, a2: float) -> tuple[int, int]:
    """Returns |b₀| and m times 2^384, for slopes whose surface of size m grows as m^(p−1)."""
    first, second = (int(Fraction(a) * ONE) for a in (a1, a2))
    t = _draw_ratio(slopes, a1, a2)
    n = max((a * t >> BITS) + ONE - a for a in (first, second))
    m = (draw_gamma(slopes + 1) << BITS) // n
    return t * m >> BITS, m


def _draw_ratio(p: int, a1: float, a2: float) -> int:
    """Returns t times 2^384, by inversion of one of the two power laws."""
    which, u = source.draw_uniforms(2)
    below_one, at_one = _compute_masses(p, a1, a2)
    if which.fixed_point >= below_one:
        first = int(Fraction(a1) * ONE)
        return ((_inverse_root(*u, p) - ONE + first) << BITS) // first
    if a2 == 0:
        return u.fixed_point
    second = int(Fraction(a2) * ONE)
    reached = u.mantissa + (((1 << u.power) - u.mantissa) * at_one >> BITS)  # u + (1 − u)(1 − α₂)^p
    return (_inverse_root(reached, u.power, p) - ONE) * (ONE - second) // second


def _inverse_root(numerator: int, power: int, p: int) -> int:
    """Returns x^(−1/p) times 2^384 for x = numerator/2^power."""
    return source.exp(-source.log(numerator, power) // p)


@cache
def _compute_masses(p: int, a1: float, a2: float) -> tuple[int, int]:
    """Returns the probability of t < 1, from both integrals times (1−α₂)^p, and (1−α₂)^p, each
    times 2^384.
    """
    first = Fraction(a1)
    second = Fraction(a2)
    at_one = (1 - second) ** p
    if second > 0:
        below = (1 - at_one) / (second * p)
    else:
        below = Fraction(1)
    return round(below / (below + at_one / (first * p)) * ONE), round(at_one * ONE)


def draw_box(half_widths: ArrayLike) -> Reals:
    """Returns b with density ∝ exp(−max_j |b_j|/half_widths_j): Gamma(d+1) times a uniform point of
    the box.
    """
    widths = source.to_fractions(np.atleast_1d(np.asarray(half_widths, dtype=np.float64)))
    radius = draw_gamma(len(widths) + 1)
    point = [radius * (2 * u.fixed_point - ONE) >> BITS for u in source.draw_uniforms(len(widths))]
    return np.array(
        [side * width / ONE for side, width in zip(point, widths, strict=True)], dtype=object
    )


def draw_columns(columns: int, size: int, share: float) -> Reals:
    """Returns (b₀, b₁ … b_p), each a vector of ``size`` numbers, with density ∝ exp(−α‖b₀‖ −
    (1−α)·max_j ‖b_j‖); share 0: without b₀.

    b₀ is radial noise of rate α; the others are Gamma(p·size + 1)/(1−α) times a uniform point of
    the product of p balls, the solid body.
    """
    first = [draw_l2(share, size)] if share > 0 else []
    if not columns:
        return np.array(first, dtype=object).reshape(len(first), size)
    radius = draw_gamma(columns * size + 1)
    unit = 1 / ((1 - Fraction(share)) * ONE)
    points = [
        _to_reals([radius * side >> BITS for side in _draw_point_in_ball(size)], unit)
        for _ in range(columns)
    ]
    return np.array([*first, *points], dtype=object)


def _draw_point_in_ball(size: int) -> list[int]:
    """Returns a uniform point of the unit ball times 2^384: a direction times U^(1/size)."""
    (u,) = source.draw_uniforms(1)
    if size == 1:
        return [sign * u.fixed_point for sign in _draw_signs(1)]
    reached = source.exp(source.log(u.mantissa, u.power) // size)
    sides, length = _draw_direction(size)
    return [reached * side // length for side in sides]


def _draw_signs(size: int) -> list[int]:
    return [1 - 2 * (byte & 1) for byte in source.draw_bytes(size)]


def _to_reals(numbers: list[int], unit: Fraction) -> Reals:
    return np.array([number * unit for number in numbers], dtype=object)
