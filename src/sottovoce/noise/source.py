# SPDX-License-Identifier: Apache-2.0
"""Whole numbers, drawn exactly: the one source of random bytes, and what is drawn from it without
rounding. Noise that is a real number is in continuous.py.

**Bytes** are the operating system's. Nothing is buffered, so a forked process can never repeat its
parent's bytes. There is no seed. Tests look through one private seam, ``_seam``; while it is
closed, which is always outside tests, bytes come from the operating system and integer noise from
OpenDP.

**Integer noise** (docs/theory/noise.md), discrete Laplace and discrete Gaussian, comes from
OpenDP's exact samplers (Canonne, Kamath and Steinke 2020, Algorithms 2 and 3): noise added to a
vector of zeros is noise. OpenDP keeps the scale as an exact rational and samples with rational
arithmetic; a scale that is a double is taken at its exact value.

**Coins and choices** (docs/theory/quantile.md, baselines.md): one of many by whole-number scores,
and whom to keep. A coin of bias exp(−gap/scale), or (e^ε − 1)/(e^t − 1), is thrown by comparing a
uniform real with that number: 64 bits decide nearly always, in vectorised doubles with their error
bounded; where they do not, more bits of the same uniform real are drawn and the bias is computed to
as many digits as it takes. So no probability is rounded and none underflows to zero: what has a
chance of e^(−1000) keeps it.

    permute and flip   throw every candidate's coin, take a uniform one among the heads
                       (McKenna and Sheldon 2020; equal to noisy max with exponential noise)
    exponential        take a uniform candidate, throw its coin, repeat until heads
    joint              several at once, by rejection (joint.py)
    kept               throw everybody's coin, of bias (e^ε − 1)/(e^t − 1)
    drawn              throw everybody's coin, of one bias that is a whole number of 2⁻³²

**The grid** (docs/theory/grid.md): values become whole numbers on a public grid, so that noise can
be added exactly. A grid is chosen from public numbers: bounds, how many rows there are, and the
budgets (through the noise they call for). Its step is a power of two.

No overflow, no value off the grid: let e be the exponent of the step, N = rint((high − low)·2^−e).
`integers` clips y to [low, high], subtracts low, multiplies by 2^−e and rounds to the nearest whole
number. Subtraction, multiplication by a power of two and rounding are non-decreasing in y also as
double arithmetic carries them out, so every result lies between the result for low, which is 0, and
the result for high, which is N; and e is chosen so that N ≤ 2^bits ≤ 2^32. Clipping comes first: a
value such as 1e308 divided by a small step would become infinite before anything could clip it.

**Logarithms, exponentials and roots to 384 bits** (docs/theory/noise.md, section on low bits), in
whole numbers: a number x is kept as a whole number near x·2^384. Doubles would do for the size of
noise, and not for its low bits: an answer is rounded to a public grid, and the noise in it must be
known much better than that grid. Decimals of Python's library have the same functions, and take ten
times as long.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cache, partial
from math import isqrt
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.errors import InvalidBounds, InvalidParameter

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
#: OpenDP's integers stop at 2^63. At this scale a draw that far out has probability below
#: exp(-2^18).
MAX_LAPLACE_SCALE = 2.0**45
#: As for Laplace noise; a Gaussian reaches 2^63 from here with probability below exp(-2^35).
MAX_GAUSSIAN_SCALE = 2.0**45
#: Below this a step would leave the doubles of full precision.
MIN_EXPONENT = -1000
#: An answer with continuous noise is rounded to this many bits less than the noise's standard
#: deviation.
ANSWER_BITS = 20

Scores = NDArray[np.int64]
Floats = NDArray[np.float64]
#: From a number of bits to two decimals that enclose bias·2^bits.
Enclosure = Callable[[int], tuple[Decimal, Decimal]]

#: Doubles give exp(−x) for x ≤ 45 with a relative error below 2^-44 (quotient 2^-51·45, exp 2^-52).
SLACK = 2.0**-44
#: How many candidates the exponential mechanism tries at once.
BLOCK = 4096
#: A declared step cuts the bounds into at most so many cells.
MOST_STEPS = 2**22
#: Rates at which people are drawn are whole numbers of 2^-RATE_BITS.
RATE_BITS = 32


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


def draw_laplace(scale: float, size: int = 1) -> list[int]:
    """Returns independent integers Z with P[Z=z] ∝ exp(−|z|/scale), exactly."""
    if not 0 < scale <= MAX_LAPLACE_SCALE:
        raise ValueError("the scale of integer noise lies between 0 and 2^45")
    opened = seam()
    if opened is None:
        return sample_opendp_laplace(scale, size)
    return opened.integers("laplace", scale, size)


def draw_gaussian(scale: float, size: int = 1) -> list[int]:
    """Returns independent integers Z with P[Z=z] ∝ exp(−z²/(2·scale²)), exactly."""
    if not 0 < scale <= MAX_GAUSSIAN_SCALE:
        raise ValueError("the scale of integer noise lies between 0 and 2^45")
    opened = seam()
    if opened is None:
        return sample_opendp_gaussian(scale, size)
    return opened.integers("gaussian", scale, size)


@cache
def _import_opendp() -> Any:
    # Not needed to plan. Its prelude would load scikit-learn, pandas and Polars, where installed.
    from opendp import domains, measurements, metrics, mod

    mod.enable_features("contrib")
    return domains, measurements, metrics


@cache
def _describe_integers(metric: str, kind: str) -> tuple[Any, Any]:
    """Returns OpenDP's domain of vectors of whole numbers, and a metric on it; both are constants,
    and to make them takes as long as to draw.
    """
    domains, _, metrics = _import_opendp()
    return domains.vector_domain(domains.atom_domain(T="i64")), getattr(metrics, metric)(T=kind)


def sample_opendp_laplace(scale: float, size: int) -> list[int]:
    """Returns independent integers Z with P[Z=z] ∝ exp(−|z|/scale)."""
    _, measurements, _ = _import_opendp()
    noise = measurements.make_laplace(*_describe_integers("l1_distance", "i64"), scale=float(scale))
    return list(noise(np.zeros(size, dtype=np.int64)))


def sample_opendp_gaussian(scale: float, size: int) -> list[int]:
    """Returns independent integers Z with P[Z=z] ∝ exp(−z²/(2·scale²))."""
    _, measurements, _ = _import_opendp()
    noise = measurements.make_gaussian(
        *_describe_integers("l2_distance", "f64"), scale=float(scale)
    )
    return list(noise(np.zeros(size, dtype=np.int64)))


def permute_and_flip(scores: Scores, scale: int) -> int:
    """Returns an index by permute-and-flip: scores that move by at most D each cost 2D/scale."""
    heads = np.flatnonzero(flip_coins(scores - scores.min(), scale))
    return int(heads[draw_below(len(heads))])


def exponential(scores: Scores, scale: int) -> int:
    """Returns index i with probability ∝ exp(−scores[i]/scale), exactly: moves of at most D cost
    2D/scale.
    """
    gaps = scores - scores.min()
    while True:
        tried = np.array([draw_below(len(gaps)) for _ in range(min(BLOCK, 4 * len(gaps)))])
        heads = np.flatnonzero(flip_coins(gaps[tried], scale))
        if len(heads):
            return int(tried[heads[0]])


def flip_coins(gaps: Scores, scale: int) -> NDArray[np.bool_]:
    """Returns independent booleans, True with probability exp(−gap/scale), exactly, for whole gaps
    ≥ 0.
    """
    # A gap beyond 2^10 scales is decided by the first 64 bits unless all of them are 0, so capping
    # is harmless.
    bias = np.exp(-np.minimum(gaps / float(scale), 2.0**10))
    return _flip_biased_coins(
        bias, gaps == 0, lambda i: partial(_enclose_exponential, int(gaps[i]), scale)
    )


def sample_by_budget(epsilon: units.Units, threshold: int) -> NDArray[np.bool_]:
    """Returns independent booleans, True with probability (e^ε − 1)/(e^t − 1), exactly, and 1 where
    ε ≥ t.

    Both are whole units of a billionth, ε ≥ 0 and t ≥ 1. A comparison ends with probability one: by
    Lindemann and Weierstrass the bias is irrational for 0 < ε < t, so enough bits tell it from the
    uniform real.
    """
    bias = compute_inclusion_probability(epsilon, threshold)
    return _flip_biased_coins(
        bias,
        epsilon >= threshold,
        lambda i: partial(_enclose_inclusion, int(epsilon[i]), threshold),
    )


def compute_inclusion_probability(epsilon: units.Units, threshold: int) -> Floats:
    """Returns (e^ε − 1)/(e^t − 1), at most 1, in doubles: a relative error below 2^-44 where it is
    above 2^-64.
    """
    # Written with negative exponents only, so that nothing overflows: e^(ε−t)·(1 − e^−ε)/(1 −
    # e^−t).
    capped = np.minimum(epsilon, threshold)
    ratio = np.expm1(-units.to_epsilon(capped)) / np.expm1(-units.to_epsilon(threshold))
    return np.asarray(np.exp(units.to_epsilon(capped - threshold)) * ratio, dtype=np.float64)


def sample_at_rate(people: int, rate: int) -> NDArray[np.bool_]:
    """Returns independent booleans, True with probability rate·2⁻³², exactly, for a whole rate up
    to 2³².
    """
    words = np.frombuffer(draw_bytes(4 * people), dtype="<u4")
    return np.asarray(words.astype(np.uint64) < np.uint64(rate), dtype=np.bool_)


def _flip_biased_coins(
    bias: Floats, certain: NDArray[np.bool_], enclosure: Callable[[int], Enclosure]
) -> NDArray[np.bool_]:
    """Returns independent booleans of biases given in doubles, and exactly by ``enclosure`` where
    these do not do.
    """
    draws = draw_words(len(bias))
    low = draws.astype(np.float64) * 2.0**-64
    heads = (low + 2.0**-64) * (1 + SLACK) <= bias * (1 - SLACK)
    tails = low * (1 - SLACK) >= np.maximum(bias * (1 + SLACK), 2.0**-1000)
    heads |= certain
    for i in np.flatnonzero(~heads & ~tails):
        heads[i] = resolve(enclosure(int(i)), int(draws[i]))
    return np.asarray(heads, dtype=np.bool_)


def resolve(enclosure: Enclosure, draw: int) -> bool:
    """Returns whether the uniform real whose first 64 bits are ``draw`` lies below the enclosed
    bias.
    """
    bits = 64
    while True:
        low, high = enclosure(bits)
        if Decimal(draw + 1) <= low:
            return True
        if Decimal(draw) >= high:
            return False
        draw = (draw << 64) | int(draw_words(1)[0])
        bits += 64


def _enclose_exponential(gap: int, scale: int, bits: int) -> tuple[Decimal, Decimal]:
    """Returns two decimals that enclose exp(−gap/scale)·2^bits, a few units in the last of those
    bits apart.
    """
    # Decimal's exp is correctly rounded, and rounding the quotient moves it by gap/scale units in
    # its last digit.
    digits = _count_digits(bits)
    exact = make_context(digits + len(str(gap // scale)) + len(str(scale)) + 6)
    quotient = exact.divide(Decimal(-gap), Decimal(scale))
    return _enclose_bias(exact, exact.exp(quotient), bits)


def _enclose_inclusion(epsilon: int, threshold: int, bits: int) -> tuple[Decimal, Decimal]:
    """Returns two decimals that enclose (e^ε − 1)/(e^t − 1)·2^bits, a few units in the last of
    those bits apart.
    """
    # ε and t are decimals of nine places, so only exp and what follows rounds; ε ≥ 1e-9, so e^ε − 1
    # loses nine digits.
    exact = make_context(_count_digits(bits) + 14)
    own, all_of = (
        exact.subtract(exact.exp(Decimal(u).scaleb(-9, exact)), 1) for u in (epsilon, threshold)
    )
    return _enclose_bias(exact, exact.divide(own, all_of), bits)


def _count_digits(bits: int) -> int:
    return 3 + bits // 3


def make_context(precision: int) -> Context:
    """Returns a context for decimals of so many digits: the default one has 28."""
    return Context(prec=precision, Emin=MIN_EMIN, Emax=MAX_EMAX)


def _enclose_bias(exact: Context, bias: Decimal, bits: int) -> tuple[Decimal, Decimal]:
    scaled = exact.multiply(bias, Decimal(1 << bits))
    margin = exact.power(Decimal(10), Decimal(-_count_digits(bits)))
    return exact.multiply(scaled, exact.subtract(1, margin)), exact.multiply(
        scaled, exact.add(1, margin)
    )


@dataclass(frozen=True)
class Grid:
    """Whole numbers 0 … cells that stand for low, low + step, …, with step = 2^exponent."""

    low: float
    high: float
    exponent: int
    cells: int

    @classmethod
    def cover(cls, low: float, high: float, bits: int) -> Grid:
        """Returns the finest grid over [low, high] with a power of two as step and at most 2^bits
        cells.
        """
        mantissa, power = math.frexp(high - low)
        exponent = max((power - 1 if mantissa == 0.5 else power) - bits, MIN_EXPONENT)
        cells = round(math.ldexp(high - low, -exponent))
        if cells < 1:
            raise InvalidBounds(
                "Bounds are closer together than numbers can tell.",
                "",
                "Change the unit of the column.",
                parameter="bounds",
            )
        return cls(low, high, exponent, cells)

    def integers(self, values: Floats) -> Floats:
        """Returns whole numbers in 0 … cells (as float64) for any finite values; see the proof
        above.
        """
        clipped = np.clip(values, self.low, self.high)
        clipped -= self.low
        clipped *= math.ldexp(1.0, -self.exponent)
        return np.asarray(np.rint(clipped, out=clipped), dtype=np.float64)

    @property
    def step(self) -> Fraction:
        """The exact distance between neighbouring points."""
        return power_of_two(self.exponent)

    def point(self, index: int) -> float:
        """Returns the double nearest to low + index·step, at most high."""
        return min(float(Fraction(self.low) + index * self.step), self.high)

    def to_dict(self) -> dict[str, Any]:
        """The grid as public JSON."""
        return {
            "low": self.low,
            "high": self.high,
            "step": math.ldexp(1.0, self.exponent),
            "cells": self.cells,
        }


@dataclass(frozen=True)
class SteppedGrid:
    """Whole numbers 0 … cells that stand for low, low + size, …, for a declared step.

    Subtraction of low, division by a positive number and rounding are non-decreasing in y as double
    arithmetic carries them out, so that every result lies between those for low and for high, 0 and
    cells.
    """

    low: float
    high: float
    size: float
    cells: int

    @classmethod
    def cover(cls, low: float, high: float, size: float) -> SteppedGrid:
        """Returns the grid over [low, high] with this step; refuses more than 2^22 cells."""
        steps = (high - low) / size
        if not 1 <= steps <= MOST_STEPS:
            raise InvalidParameter(
                "The step is wider than the bounds, or far too small for them.",
                f"There are between 1 and {MOST_STEPS} steps in the bounds.",
                "Pass the public step of the column, such as 1 for whole numbers.",
                parameter="step",
            )
        return cls(low, high, size, int(np.rint(steps)))

    def integers(self, values: Floats) -> Floats:
        """Returns whole numbers in 0 … cells (as float64) for any finite values."""
        clipped = np.clip(values, self.low, self.high)
        clipped -= self.low
        clipped /= self.size
        return np.asarray(np.rint(clipped, out=clipped), dtype=np.float64)

    @property
    def step(self) -> Fraction:
        """The exact distance between neighbouring points."""
        return Fraction(self.size)

    def point(self, index: int) -> float:
        """Returns the double nearest to low + index·step, at most high."""
        return min(float(Fraction(self.low) + index * self.step), self.high)

    def to_dict(self) -> dict[str, Any]:
        """The grid as public JSON."""
        return {"low": self.low, "high": self.high, "step": self.size, "cells": self.cells}


@dataclass(frozen=True)
class AnswerGrid:
    """Whole multiples of 2^exponent, to which numbers are rounded after continuous noise was added
    to them.
    """

    exponent: int

    @classmethod
    def below(cls, deviation: float) -> AnswerGrid:
        """Returns the grid for noise of this standard deviation: its step is at most 2^-20 of that,
        a power of two.
        """
        return cls(max(exponent_below(deviation) - ANSWER_BITS, MIN_EXPONENT))

    def nearest(self, values: Iterable[Any]) -> Floats:
        """Returns the multiples nearest to the values, which are taken exactly; beyond 2^53 steps
        in doubles.
        """
        step = power_of_two(self.exponent)
        return np.array([float(round(value / step) * step) for value in to_fractions(values)])

    def to_dict(self) -> dict[str, Any]:
        """The grid as public JSON."""
        return {"answer_step": math.ldexp(1.0, self.exponent)}


def power_of_two(exponent: int) -> Fraction:
    """Returns 2^exponent exactly."""
    return Fraction(2) ** exponent


def exponent_below(size: float) -> int:
    """Returns the largest e with 2^e ≤ size."""
    return math.frexp(size)[1] - 1


def snap_to_grid(value: Fraction, low: float, high: float, exponent: int) -> float:
    """Returns the multiple of 2^exponent nearest to value among those in [low, high] (which must
    hold one).
    """
    step = power_of_two(exponent)
    index = min(
        max(round(value / step), math.ceil(Fraction(low) / step)), math.floor(Fraction(high) / step)
    )
    return float(index * step)


@dataclass(frozen=True)
class MeanGrid:
    """Where values, statistic and answer live."""

    values: Grid
    shift: int
    answer_exponent: int

    def to_dict(self) -> dict[str, Any]:
        """The grid as public JSON; every possible answer is a multiple of answer_step."""
        return {
            **self.values.to_dict(),
            "shift": self.shift,
            "answer_step": math.ldexp(1.0, self.answer_exponent),
        }


@dataclass(frozen=True)
class QuantileGrid:
    """The points that can be answered."""

    points: Grid | SteppedGrid

    def to_dict(self) -> dict[str, Any]:
        """The grid as public JSON."""
        return self.points.to_dict()


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
