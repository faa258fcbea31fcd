# SPDX-License-Identifier: Apache-2.0
"""Logarithms, exponentials and roots to 384 bits, in whole numbers (docs/theory/noise.md, section
on low bits).

A number x is kept as a whole number near x·2^384. Doubles would do for the size of noise, and not
for its low bits: an answer is rounded to a public grid, and the noise in it must be known much
better than that grid. Decimals of Python's library have the same functions, and take ten times as
long.

The one source of random bytes: the operating system's.

Nothing is buffered, so a forked process can never repeat its parent's bytes. There is no seed.
Tests look through one private seam, ``_seam``; while it is closed, which is always outside tests,
bytes come from the operating system and integer noise from OpenDP.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cache
from math import isqrt
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

#: A number x is kept as x·2^BITS.
BITS = 384
ONE = 1 << BITS
#: Work is done with some bits more. Exponentials are those of a 1024th part, squared ten times.
_WORK = BITS + 32
_HALVINGS = 10
_UNIT = 1 << _WORK
#: Arithmetic on long decimals, for what is computed from noise: more digits than any setting that
#: is allowed can lose.
DECIMALS = Context(prec=160, Emin=MIN_EMIN, Emax=MAX_EMAX)

#: Entries are Fraction or Decimal.
Reals = NDArray[np.object_]


def log(numerator: int, power: int) -> int:
    """Returns ln(numerator/2^power)·2^384 for a numerator > 0, with an error below 2."""
    excess = numerator.bit_length() - 1
    near_one = numerator << _WORK >> excess  # in [1, 2)
    # A double gives 50 bits of the logarithm; what is missing is that of a number within 2^-50 of
    # one.
    guess = int(math.ldexp(math.log(near_one / _UNIT), 60)) << (_WORK - 60)
    left = near_one * _exp_of_small(-guess) >> _WORK
    return (guess + _log_of_one_plus(left - _UNIT) + (excess - power) * _log_two()) >> (
        _WORK - BITS
    )


def exp(x: int) -> int:
    """Returns e^(x/2^384)·2^384, with an error below 2^-360 of it and of 1."""
    power, rest = divmod(x << (_WORK - BITS), _log_two())
    scaled = _exp_of_small(rest)
    if power >= 0:
        return scaled << power >> (_WORK - BITS)
    return scaled >> (_WORK - BITS - power)


def sqrt(x: int) -> int:
    """Returns √(x/2^384)·2^384, rounded down."""
    return isqrt(x << BITS)


def to_fractions(values: Iterable[Any]) -> list[Fraction]:
    """Returns doubles, long doubles, decimals or fractions as the rational numbers that they
    are.
    """
    return [Fraction(*value.as_integer_ratio()) for value in values]


def to_decimals(values: Any) -> Reals:
    """Returns an array of numbers as decimals, each rounded once to the digits of ``DECIMALS``."""
    array = np.asarray(values)
    numbers = [
        DECIMALS.divide(Decimal(x.numerator), Decimal(x.denominator))
        for x in to_fractions(array.ravel())
    ]
    return np.array(numbers, dtype=object).reshape(array.shape)


def _exp_of_small(x: int) -> int:
    """e^(x/2^work)·2^work for |x| ≤ 2^work: Taylor's series at x/1024, squared ten times."""
    x >>= _HALVINGS
    term = total = _UNIT
    k = 0
    while term not in (0, -1):  # shifting a negative number to the right ends at -1
        k += 1
        term = (term * x >> _WORK) // k
        total += term
    for _ in range(_HALVINGS):
        total = total * total >> _WORK
    return total


def _log_of_one_plus(x: int) -> int:
    """ln(1 + x/2^work)·2^work for small x: 2·atanh(x/(2 + x))."""
    ratio = (x << _WORK) // (2 * _UNIT + x)
    square = ratio * ratio >> _WORK
    power = ratio
    total = ratio
    k = 1
    while power not in (0, -1):
        power = power * square >> _WORK
        k += 2
        total += power // k
    return 2 * total


@cache
def _log_two() -> int:
    return 2 * _log_of_one_plus(_UNIT // 3) + _log_of_one_plus(_UNIT // 8)  # 2 = (4/3)²·9/8


class Seam(Protocol):
    """What a test puts in place of the operating system and of OpenDP's samplers."""

    def bytes(self, count: int) -> bytes:
        """Returns that many bytes."""

    def integers(self, law: str, scale: float, size: int) -> list[int]:
        """Returns integer noise of the law "laplace" or "gaussian"."""


_open_seam: ContextVar[Seam | None] = ContextVar("sottovoce_seam", default=None)


@contextmanager
def _seam(seam: Seam) -> Iterator[None]:
    """Replaces all randomness inside the block. For tests: what is drawn in it protects nobody."""
    token = _open_seam.set(seam)
    try:
        yield
    finally:
        _open_seam.reset(token)


def seam() -> Seam | None:
    """Returns the seam a test has opened, or None."""
    return _open_seam.get()


def draw_bytes(count: int) -> bytes:
    """Returns independent uniform bytes."""
    opened = seam()
    if opened is None:
        return os.urandom(count)
    return opened.bytes(count)


def draw_words(size: int) -> NDArray[np.uint64]:
    """Returns independent uniform integers in [0, 2^64)."""
    return np.frombuffer(draw_bytes(8 * size), dtype="<u8").astype(np.uint64)


def draw_below(bound: int) -> int:
    """Returns a uniform integer in [0, bound), exactly, by rejection."""
    width = (bound - 1).bit_length()
    while True:
        draw = int.from_bytes(draw_bytes((width + 7) // 8), "little") & ((1 << width) - 1)
        if draw < bound:
            return draw


class UniformReal(NamedTuple):
    """A uniform real of (0, 1), mantissa/2^power, known to a relative error below 2^-320, however
    close to 0.
    """

    mantissa: int
    power: int

    @property
    def fixed_point(self) -> int:
        """The same times 2^384, as a whole number."""
        return self.mantissa >> (self.power - BITS)


def draw_uniforms(size: int) -> list[UniformReal]:
    """Returns independent uniform reals: the middle of the cell of 2^-384 that each lies in, or of
    a smaller one.

    Smaller where fewer than 321 leading bits are known: then more are drawn, as often as it takes.
    """
    drawn = draw_bytes(BITS // 8 * size)
    each = BITS // 8
    return [
        _refine_uniform(int.from_bytes(drawn[at : at + each], "little"))
        for at in range(0, len(drawn), each)
    ]


def _refine_uniform(cell: int) -> UniformReal:
    power = BITS
    while not cell >> (BITS - 64):
        cell = cell << 64 | int(draw_words(1)[0])
        power += 64
    return UniformReal(2 * cell + 1, power + 1)
