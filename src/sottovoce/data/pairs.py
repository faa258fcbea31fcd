# SPDX-License-Identifier: Apache-2.0
"""Numbers as unevaluated sums of two doubles, for the pulls of a certificate.

Long floats have 64 bits and take the processor some twenty times as long as doubles; a head and a
tail have a hundred, and take sums and products of doubles alone, so that bits are the same on every
processor. Heads of 26 bits multiply without an error; what is rounded is at most 2⁻²⁶ of them
(docs/theory/solver.md, section on rounding).

    symbol  name
    E       exp(−x), x = (a − t0)/g, of a row whose residual is a beyond t0
    K       x in whole multiples of 2⁻¹⁴; the rest of x is at most 2⁻¹⁵
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Floats

#: Bits of a head that is multiplied by another one without an error.
HEAD_BITS = 26
#: exp(−x) is looked up for multiples of 2^−5 and of 2^−14 of x.
COARSE_STEP_BITS = 5
FINE_STEP_BITS = 14
INDEX_BITS = FINE_STEP_BITS - COARSE_STEP_BITS
#: Beyond this x exp(−x) is below 2^−66 and taken to be as much.
LARGEST = 46
#: Bits of g that are multiplied by K, which has less than 20, without an error.
SCALE_BITS = 32
#: Bits after the point with which tables are computed.
TABLE_BITS = 160


class Pair(NamedTuple):
    """A number: head + tail, the tail at most a unit in the last place of the head or so."""

    head: Floats
    tail: Floats


def add_exactly(a: Floats, b: Floats) -> Pair:
    """Returns a + b, rounded, and what was rounded off, exactly (Knuth)."""
    total = a + b
    part = total - a
    lost = total - part
    np.subtract(a, lost, out=lost)
    np.subtract(b, part, out=part)
    lost += part
    return Pair(total, lost)


def cut_head(numbers: Floats, bits: int = HEAD_BITS) -> Pair:
    """Returns numbers rounded to so many bits of themselves, and the rest, exactly (Veltkamp)."""
    far = numbers * (2.0 ** (53 - bits) + 1.0)
    head = far - (far - numbers)
    return Pair(head, numbers - head)


def multiply_pairs(weights: Floats, pulls: Pair, top: int) -> Pair:
    """Returns weights times pulls below 2^top, wrong by at most 2^−76 of weight times 2^top."""
    weight = cut_head(weights)
    rounder = 1.5 * 2.0 ** (52 - HEAD_BITS + top)
    high = pulls.head + rounder
    high -= rounder
    low = pulls.head - high
    product = weight.head * high  # of 26 bits each: no rounding
    rest = weight.head * low
    rest += weight.tail * high
    low *= weight.tail
    rest += low
    rest += weights * pulls.tail
    head = product + rest
    product -= head
    product += rest
    return Pair(head, product)


class PowerTable(NamedTuple):
    """exp(−k·step) times a number, for each k, as heads of 26 bits and tails."""

    heads: Floats
    tails: Floats


def _make_table(step_bits: int, count: int) -> PowerTable:
    """Returns exp(−k·2^−step_bits), from whole numbers."""
    one = 1 << TABLE_BITS
    factor = one  # e^(−step), by its series
    term = one
    order = 1
    while term:
        term = (term >> step_bits) // order
        factor += term * (-1) ** order
        order += 1
    heads = np.empty(count)
    tails = np.empty(count)
    exact = one
    for k in range(count):
        drop = exact.bit_length() - HEAD_BITS
        head = (exact + (1 << (drop - 1))) >> drop
        heads[k] = head * 2.0 ** (drop - TABLE_BITS)
        tails[k] = (exact - (head << drop)) * 2.0**-TABLE_BITS
        exact = exact * factor >> TABLE_BITS
    return PowerTable(heads, tails)


@cache
def _get_coarse_table() -> PowerTable:
    return _make_table(COARSE_STEP_BITS, (LARGEST << COARSE_STEP_BITS) + 2)


@cache
def _get_fine_table() -> PowerTable:
    return _make_table(FINE_STEP_BITS, 1 << INDEX_BITS)


@cache
def _scale_table(g: float) -> PowerTable:
    """Returns g·exp(−k·2^−5), right to 2^−77 of itself."""
    coarse = _get_coarse_table()
    scale = cut_head(np.array(g))
    product = coarse.heads * scale.head
    rest = coarse.heads * scale.tail + coarse.tails * g
    total = add_exactly(product, rest)
    head = cut_head(total.head)
    return PowerTable(head.head, head.tail + total.tail)


class SoftPulls:
    """The pulls of the soft Huber loss, with t0 and g as doubles have them; g ≥ 2^−20·t0."""

    def __init__(self, t0: float, g: float) -> None:
        self.t0 = t0
        self.g = g
        self._most = add_exactly(np.array([t0]), np.array([g]))  # τ

    def __call__(self, residuals: Pair) -> Pair:
        """Returns ψ, wrong by at most 2^−64·τ."""
        size = np.abs(residuals.head)
        far = size >= self.t0
        count = np.count_nonzero(far)
        if not count:
            return residuals
        if 4 * count > 3 * len(far):
            head, tail = self._bend(residuals, size)
            if count == len(far):
                return Pair(head, tail)
            return Pair(np.where(far, head, residuals.head), np.where(far, tail, residuals.tail))
        which = np.flatnonzero(far)
        some = Pair(residuals.head[which], residuals.tail[which])
        bent = self._bend(some, size[which])
        head = residuals.head.copy()
        tail = residuals.tail.copy()
        head[which] = bent.head
        tail[which] = bent.tail
        return Pair(head, tail)

    def _bend(self, residuals: Pair, size: Floats) -> Pair:
        """Returns ±(τ − g·E), for residuals of a size beyond t0."""
        sign = np.copysign(1.0, residuals.head)
        over = size - self.t0
        rest = size - over
        rest -= self.t0  # what was rounded off, as size ≥ t0
        rest += sign * residuals.tail
        rest[over > LARGEST * self.g] = 0.0
        # Rows that are not beyond t0, or no numbers, are looked up as others and not used.
        np.fmin(over, LARGEST * self.g, out=over)
        np.fmax(over, 0.0, out=over)
        whole, left = self._reduce(over, rest)
        product, beside = self._look_up(whole)
        left *= product + beside
        beside += left
        np.negative(product, out=product)
        head, lost = add_exactly(self._most.head, product)
        lost += self._most.tail - beside
        head, tail = add_exactly(head, lost)
        head *= sign
        tail *= sign
        return Pair(head, tail)

    def _reduce(self, over: Floats, rest: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Returns K of (over + rest)/g, and exp(−what is left of it) − 1."""
        multiple = over * (2.0**FINE_STEP_BITS / self.g)
        np.rint(multiple, out=multiple)
        scale = cut_head(np.array(self.g * 2.0**-FINE_STEP_BITS), SCALE_BITS)
        over -= multiple * scale.head  # no rounding: both are near each other
        rest -= multiple * scale.tail
        over += rest
        over *= -1 / self.g
        left = over * (1 / 24)
        for factor in (1 / 6, 1 / 2, 1.0):
            left += factor
            left *= over
        return multiple.astype(np.int64), left

    def _look_up(self, whole: NDArray[np.int64]) -> Pair:
        """Returns g·exp(−K·2^−14), the head without rounding."""
        coarse = _scale_table(self.g)
        fine = _get_fine_table()
        place = whole >> INDEX_BITS
        index = whole & ((1 << INDEX_BITS) - 1)
        head = fine.heads.take(index)
        tail = fine.tails.take(index)
        first = coarse.heads.take(place)
        beside = first * tail
        tail += head
        tail *= coarse.tails.take(place)
        beside += tail
        first *= head
        return Pair(first, beside)


def clip_pairs(residuals: Pair, most: float) -> Pair:
    """Returns residuals cut at ± a number: the pulls of Huber's loss."""
    beyond = np.abs(residuals.head) >= most
    head = np.clip(residuals.head, -most, most)
    return Pair(head, np.where(beyond, 0.0, residuals.tail))
