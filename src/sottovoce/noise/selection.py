# SPDX-License-Identifier: Apache-2.0
"""Choosing one of many by whole-number scores, and whom to keep, exactly (docs/theory/quantile.md,
baselines.md).

A coin of bias exp(−gap/scale), or (e^ε − 1)/(e^t − 1), is thrown by comparing a uniform real with
that number: 64 bits decide nearly always, in vectorised doubles with their error bounded; where
they do not, more bits of the same uniform real are drawn and the bias is computed to as many digits
as it takes. So no probability is rounded and none underflows to zero: what has a chance of
e^(−1000) keeps it.

    permute and flip   throw every candidate's coin, take a uniform one among the heads
                       (McKenna and Sheldon 2020; equal to noisy max with exponential noise)
    exponential        take a uniform candidate, throw its coin, repeat until heads
    kept               throw everybody's coin, of bias (e^ε − 1)/(e^t − 1)
    drawn              throw everybody's coin, of one bias that is a whole number of 2⁻³²
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.noise import source

Scores = NDArray[np.int64]
Floats = NDArray[np.float64]
#: From a number of bits to two decimals that enclose bias·2^bits.
Enclosure = Callable[[int], tuple[Decimal, Decimal]]

#: Doubles give exp(−x) for x ≤ 45 with a relative error below 2^-44 (quotient 2^-51·45, exp 2^-52).
SLACK = 2.0**-44
#: How many candidates the exponential mechanism tries at once.
BLOCK = 4096
#: Rates at which people are drawn are whole numbers of 2^-RATE_BITS.
RATE_BITS = 32


def permute_and_flip(scores: Scores, scale: int) -> int:
    """Returns an index by permute-and-flip: scores that move by at most D each cost 2D/scale."""
    heads = np.flatnonzero(flip_coins(scores - scores.min(), scale))
    return int(heads[source.draw_below(len(heads))])


def exponential(scores: Scores, scale: int) -> int:
    """Returns index i with probability ∝ exp(−scores[i]/scale), exactly: moves of at most D cost
    2D/scale.
    """
    gaps = scores - scores.min()
    while True:
        tried = np.array([source.draw_below(len(gaps)) for _ in range(min(BLOCK, 4 * len(gaps)))])
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
    words = np.frombuffer(source.draw_bytes(4 * people), dtype="<u4")
    return np.asarray(words.astype(np.uint64) < np.uint64(rate), dtype=np.bool_)


def _flip_biased_coins(
    bias: Floats, certain: NDArray[np.bool_], enclosure: Callable[[int], Enclosure]
) -> NDArray[np.bool_]:
    """Returns independent booleans of biases given in doubles, and exactly by ``enclosure`` where
    these do not do.
    """
    draws = source.draw_words(len(bias))
    low = draws.astype(np.float64) * 2.0**-64
    heads = (low + 2.0**-64) * (1 + SLACK) <= bias * (1 - SLACK)
    tails = low * (1 - SLACK) >= np.maximum(bias * (1 + SLACK), 2.0**-1000)
    heads |= certain
    for i in np.flatnonzero(~heads & ~tails):
        heads[i] = _resolve(enclosure(int(i)), int(draws[i]))
    return np.asarray(heads, dtype=np.bool_)


def _resolve(enclosure: Enclosure, draw: int) -> bool:
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
        draw = (draw << 64) | int(source.draw_words(1)[0])
        bits += 64


def _enclose_exponential(gap: int, scale: int, bits: int) -> tuple[Decimal, Decimal]:
    """Returns two decimals that enclose exp(−gap/scale)·2^bits, a few units in the last of those
    bits apart.
    """
    # Decimal's exp is correctly rounded, and rounding the quotient moves it by gap/scale units in
    # its last digit.
    digits = _count_digits(bits)
    exact = _make_context(digits + len(str(gap // scale)) + len(str(scale)) + 6)
    quotient = exact.divide(Decimal(-gap), Decimal(scale))
    return _enclose_bias(exact, exact.exp(quotient), bits)


def _enclose_inclusion(epsilon: int, threshold: int, bits: int) -> tuple[Decimal, Decimal]:
    """Returns two decimals that enclose (e^ε − 1)/(e^t − 1)·2^bits, a few units in the last of
    those bits apart.
    """
    # ε and t are decimals of nine places, so only exp and what follows rounds; ε ≥ 1e-9, so e^ε − 1
    # loses nine digits.
    exact = _make_context(_count_digits(bits) + 14)
    own, all_of = (
        exact.subtract(exact.exp(Decimal(u).scaleb(-9, exact)), 1) for u in (epsilon, threshold)
    )
    return _enclose_bias(exact, exact.divide(own, all_of), bits)


def _count_digits(bits: int) -> int:
    return 3 + bits // 3


def _make_context(precision: int) -> Context:
    # All arithmetic goes through such a context: the default one has 28 digits.
    return Context(prec=precision, Emin=MIN_EMIN, Emax=MAX_EMAX)


def _enclose_bias(exact: Context, bias: Decimal, bits: int) -> tuple[Decimal, Decimal]:
    scaled = exact.multiply(bias, Decimal(1 << bits))
    margin = exact.power(Decimal(10), Decimal(-_count_digits(bits)))
    return exact.multiply(scaled, exact.subtract(1, margin)), exact.multiply(
        scaled, exact.add(1, margin)
    )
