# SPDX-License-Identifier: Apache-2.0
"""Choosing one of many by whole-number scores, exactly (docs/theory/quantile.md).

A coin of bias exp(−gap/scale) is thrown by comparing a uniform real with that number: 64 bits decide
nearly always, in vectorised doubles with their error bounded; where they do not, more bits of the same
uniform real are drawn and the exponential is computed to as many digits as it takes. So no probability
is rounded and none underflows to zero: what has a chance of e^(−1000) keeps it.

    permute and flip   throw every candidate's coin, take a uniform one among the heads
                       (McKenna and Sheldon 2020; equal to noisy max with exponential noise)
    exponential        take a uniform candidate, throw its coin, repeat until heads
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

import numpy as np
from numpy.typing import NDArray

from sottovoce.noise import source

Scores = NDArray[np.int64]

#: Doubles give exp(−x) for x ≤ 45 with a relative error below 2^-44 (quotient 2^-51·45, exp 2^-52).
SLACK = 2.0**-44
#: How many candidates the exponential mechanism tries at once.
BLOCK = 4096


def permute_and_flip(scores: Scores, scale: int) -> int:
    """Returns an index by permute-and-flip: scores that move by at most D each cost 2D/scale."""
    heads = np.flatnonzero(coins(scores - scores.min(), scale))
    return int(heads[source.below(len(heads))])


def exponential(scores: Scores, scale: int) -> int:
    """Returns index i with probability ∝ exp(−scores[i]/scale), exactly: moves of at most D cost 2D/scale."""
    gaps = scores - scores.min()
    while True:
        tried = np.array([source.below(len(gaps)) for _ in range(min(BLOCK, 4 * len(gaps)))])
        heads = np.flatnonzero(coins(gaps[tried], scale))
        if len(heads):
            return int(tried[heads[0]])


def coins(gaps: Scores, scale: int) -> NDArray[np.bool_]:
    """Returns independent booleans, True with probability exp(−gap/scale), exactly, for whole gaps ≥ 0."""
    draws = source.words(len(gaps))
    # A gap beyond 2^10 scales is decided by the first 64 bits unless all of them are 0, so capping is harmless.
    bias = np.exp(-np.minimum(gaps / float(scale), 2.0**10))
    low = draws.astype(np.float64) * 2.0**-64
    heads = (low + 2.0**-64) * (1 + SLACK) <= bias * (1 - SLACK)
    tails = low * (1 - SLACK) >= np.maximum(bias * (1 + SLACK), 2.0**-1000)
    heads |= gaps == 0
    for i in np.flatnonzero(~heads & ~tails):
        heads[i] = _resolve(int(gaps[i]), scale, int(draws[i]))
    return np.asarray(heads, dtype=np.bool_)


def _resolve(gap: int, scale: int, draw: int) -> bool:
    """Returns whether the uniform real whose first 64 bits are ``draw`` lies below exp(−gap/scale)."""
    bits = 64
    while True:
        low, high = _bounds(gap, scale, bits)
        if Decimal(draw + 1) <= low:
            return True
        if Decimal(draw) >= high:
            return False
        draw = (draw << 64) | int(source.words(1)[0])
        bits += 64


def _bounds(gap: int, scale: int, bits: int) -> tuple[Decimal, Decimal]:
    """Returns two decimals that enclose exp(−gap/scale)·2^bits, a few units in the last of those bits apart."""
    # Decimal's exp is correctly rounded, and rounding the quotient moves it by gap/scale units in its last digit.
    # All arithmetic goes through this context: the default one has 28 digits.
    digits = 3 + bits // 3
    exact = Context(prec=digits + len(str(gap // scale)) + len(str(scale)) + 6, Emin=MIN_EMIN, Emax=MAX_EMAX)
    quotient = exact.divide(Decimal(-gap), Decimal(scale))
    scaled = exact.multiply(exact.exp(quotient), Decimal(1 << bits))
    margin = exact.power(Decimal(10), Decimal(-digits))
    return exact.multiply(scaled, exact.subtract(1, margin)), exact.multiply(scaled, exact.add(1, margin))
