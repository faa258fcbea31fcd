# SPDX-License-Identifier: Apache-2.0
"""Values to whole numbers on a public grid, so that noise can be added exactly
(docs/theory/grid.md).

A grid is chosen from public numbers: bounds, how many rows there are, and the budgets (through the
noise they call for). Its step is a power of two.

**No overflow, no value off the grid.** Let e be the exponent of the step, N = rint((high −
low)·2^−e). `integers` clips y to [low, high], subtracts low, multiplies by 2^−e and rounds to the
nearest whole number. Subtraction, multiplication by a power of two and rounding are non-decreasing
in y also as double arithmetic carries them out, so every result lies between the result for low,
which is 0, and the result for high, which is N; and e is chosen so that N ≤ 2^bits ≤ 2^32. Clipping
comes first: a value such as 1e308 divided by a small step would become infinite before anything
could clip it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.errors import InvalidBounds
from sottovoce.noise import source

Floats = NDArray[np.float64]

#: Below this a step would leave the doubles of full precision.
MIN_EXPONENT = -1000
#: An answer with continuous noise is rounded to this many bits less than the noise's standard
#: deviation.
ANSWER_BITS = 20


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
        return np.array(
            [float(round(value / step) * step) for value in source.to_fractions(values)]
        )

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

    points: Grid

    def to_dict(self) -> dict[str, Any]:
        """The grid as public JSON."""
        return self.points.to_dict()
