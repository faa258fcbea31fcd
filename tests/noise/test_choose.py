"""Exact coins and exact choices."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import log_law
from seams import Script
from sottovoce.noise import source

SIGMAS = 6


@pytest.mark.parametrize(
    ("gap", "scale"), [(0, 1), (1, 3), (5, 7), (10**17, 10**17), (3 * 10**18, 10**18)]
)
def test_coins_have_their_bias(gap, scale):
    """ "Returns independent booleans, True with probability exp(−gap/scale), exactly, for whole
    gaps ≥ 0."
    """
    n = 200_000
    p = math.exp(-gap / scale)
    heads = source.flip_coins(np.full(n, gap, dtype=np.int64), scale).sum()
    assert abs(heads - n * p) <= SIGMAS * math.sqrt(n * p * (1 - p))


@settings(max_examples=300, deadline=None)
@given(
    gap=st.integers(1, 2**62),
    scale=st.integers(1, 2**66),
    nudge=st.integers(-3, 3),
    more=st.integers(0, 2**64 - 1),
)
def test_a_coin_is_decided_as_an_infinitely_precise_uniform_would_decide_it(
    gap, scale, nudge, more
):
    """The hardest words, those next to the bias itself, against 400 digits of mpmath."""
    with mpmath.workdps(400):
        bias = mpmath.exp(-mpmath.mpf(gap) / scale)
        word = min(max(int(mpmath.floor(bias * 2**64)) + nudge, 0), 2**64 - 1)
        rest = [more, (more * 6364136223846793005 + 1) % 2**64, *range(60)]
        uniform = mpmath.mpf(sum(w << (64 * (len(rest) - i)) for i, w in enumerate([word, *rest])))
        uniform /= mpmath.mpf(2) ** (64 * (len(rest) + 1))
        expected = bool(uniform < bias)
    with source._seam(Script(word, *rest)):
        decided = bool(source.flip_coins(np.array([gap], dtype=np.int64), scale)[0])
    assert (
        decided == expected or abs(gap / scale) > 2500
    )  # beyond, the script would need more words than it has


def test_nothing_underflows_to_impossible():
    """A chance of e^(−1000), below the smallest double, is still a chance: all-zero words must give
    heads.
    """
    zeros = Script(*[0] * 60)
    with source._seam(zeros):
        assert source.flip_coins(np.array([1000], dtype=np.int64), 1)[0]
    assert math.exp(-1000) == 0.0


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
def test_choices_follow_their_law_and_reject_a_scale_off_by_a_tenth(mechanism):
    scores = np.array([0, 3, 7, 7, 20, 40], dtype=np.int64)
    scale = 10
    n = 100_000  # a scale off by a tenth is then some 250 ± 30 away: missed with P < 1e-8
    chosen = np.bincount([getattr(source, mechanism)(scores, scale) for _ in range(n)], minlength=6)
    assert distance(chosen, law(mechanism, scores, scale)) < 60  # chi-square, 5 degrees: P < 1e-11
    assert distance(chosen, law(mechanism, scores, scale * 1.1)) > 60
    assert distance(chosen, law(mechanism, scores, scale / 1.1)) > 60


def law(mechanism: str, scores: np.ndarray, scale: float) -> np.ndarray:
    p = np.exp(-scores / scale)
    if mechanism == "exponential":
        return p / p.sum()
    u, mass = np.polynomial.legendre.leggauss(20)
    u = (u + 1) / 2
    kept = 1 - np.outer(u, p)
    return p * ((mass / 2)[:, None] * kept.prod(axis=1)[:, None] / kept).sum(axis=0)


def distance(counts: np.ndarray, law: np.ndarray) -> float:
    expected = counts.sum() * law
    return float(((counts - expected) ** 2 / expected).sum())


def test_the_law_used_by_the_audits_sums_to_one():
    histogram = np.array([5, 0, 2, 9, 1, 0, 0, 4])
    assert np.exp(log_law(histogram, 0.5, 3.0)).sum() == pytest.approx(1, abs=1e-12)


def test_one_candidate_is_chosen_for_certain():
    assert source.permute_and_flip(np.array([7], dtype=np.int64), 1) == 0
    assert source.exponential(np.array([7], dtype=np.int64), 1) == 0
