"""Noise that sums to zero is what its obligation sentence says; wrong scales are rejected.

False alarms: counts and means are compared with exact ones at six standard errors: 2e-9 a
comparison of normal ones, and below 3e-7 for the most skewed of those here.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sottovoce.noise import source, zero_sum

SIGMAS = 6


def draw(scale: int, cells: int, size: int) -> np.ndarray:
    return np.array([zero_sum.draw_zero_sum(scale, cells) for _ in range(size)])


def list_law(scale: float, cells: int, reach: int) -> dict[tuple[int, ...], float]:
    """P of every vector that sums to zero with entries up to ``reach``, by its definition."""
    law = {}
    for head in itertools.product(range(-reach, reach + 1), repeat=cells - 1):
        z = (*head, -sum(head))
        law[z] = math.exp(-sum(map(abs, z)) / (2 * scale))
    total = sum(law.values())
    return {z: p / total for z, p in law.items()}


def count_off(drawn: np.ndarray, law: dict[tuple[int, ...], float]) -> float:
    """The largest number of standard errors by which a vector was drawn too often or too rarely."""
    found: dict[tuple[int, ...], int] = {}
    for z in map(tuple, drawn.tolist()):
        found[z] = found.get(z, 0) + 1
    n = len(drawn)
    worst = 0.0
    for z, p in law.items():
        if n * p >= 25:  # enough for a normal law of the count
            worst = max(worst, abs(found.get(z, 0) - n * p) / math.sqrt(n * p * (1 - p)))
    return worst


def length_off(drawn: np.ndarray, law: dict[tuple[int, ...], float]) -> float:
    """By how many standard errors the mean of ‖z‖₁ is off."""
    lengths = np.array([sum(map(abs, z)) for z in law])
    shares = np.array(list(law.values()))
    expected = shares @ lengths
    spread = math.sqrt(shares @ (lengths - expected) ** 2)
    found = np.abs(drawn).sum(axis=1).mean()
    return abs(found - expected) / (spread / math.sqrt(len(drawn)))


@pytest.mark.parametrize(
    ("cells", "scale", "reach"), [(2, 1, 40), (3, 1, 20), (3, 2, 30), (4, 1, 12)]
)
def test_every_vector_has_its_probability(cells, scale, reach):
    """ "Returns integers Z_1 … Z_cells that sum to zero, with P[Z=z] ∝ exp(−‖z‖₁/(2·scale)),
    exactly."
    """
    drawn = draw(scale, cells, 2_500)
    assert not drawn.sum(axis=1).any()
    # The counts of some hundred vectors: 6.5 standard errors keep false alarms below 1e-7.
    assert count_off(drawn, list_law(scale, cells, reach)) < 6.5
    assert length_off(drawn, list_law(scale, cells, reach)) < 6.5
    # Lengths tell the scale far better than any one count: by 14 standard errors and more.
    assert length_off(drawn, list_law(scale * 1.5, cells, reach)) > 6.5
    assert length_off(drawn, list_law(scale / 1.5, cells, reach)) > 6.5


def off_by(values: np.ndarray, expected: float) -> float:
    return abs(values.mean() - expected) / (values.std() / math.sqrt(len(values)))


@pytest.mark.parametrize(("cells", "size"), [(3, 1_500), (8, 2_600), (30, 800)])
def test_a_large_scale_has_the_variance_that_is_planned_with(cells, size):
    """Z = T·V with a length T, Gamma(K − 1), and a direction V that is independent of it, so that
    E Z² = E T²·E V². V is bounded, and lets E V² be known to half a hundredth; means of Z² itself,
    over their own standard errors, were beyond six with a chance of 4e-5.
    """
    scale = 2**40
    drawn = draw(scale, cells, size).astype(float) / scale
    assert np.array_equal(drawn.sum(axis=1), np.zeros(size))
    half = np.abs(drawn).sum(axis=1) / 2
    assert off_by(half, cells - 1) < SIGMAS  # T is Gamma(K − 1)
    if cells > 3:  # a Gamma law of so few draws is too wide to tell
        assert off_by(half, (cells - 1) * 1.1) > SIGMAS
        assert off_by(half, (cells - 1) / 1.1) > SIGMAS
    second = cells * (cells - 1)  # E T², and E T⁴ is as much times (K + 1)(K + 2)
    deviation = math.sqrt(second * ((cells + 1) * (cells + 2) - second))
    assert abs((half**2).mean() - second) < SIGMAS * deviation / math.sqrt(size)
    squares = (drawn**2).mean(axis=1) / half**2
    expected = zero_sum.compute_variance(cells) / second
    assert off_by(squares, expected) < SIGMAS
    assert off_by(squares, expected * 1.1) > SIGMAS
    assert off_by(squares, expected / 1.1) > SIGMAS
    assert off_by((half**2 - second) * (squares - expected), 0) < SIGMAS
    for place in (0, cells - 1):
        assert off_by(drawn[:, place], 0) < SIGMAS
        assert off_by(np.abs(drawn[:, place]) / half, 2 / cells) < SIGMAS


def test_two_and_three_cells_have_the_variances_of_one_number_and_of_a_hexagon():
    assert zero_sum.compute_variance(2) == 2.0
    assert zero_sum.compute_variance(3) == pytest.approx(10 / 3)
    # Independent noise of the same loss has twice the scale: 8, and 8·(1 − 1/K) once it is made
    # to sum to zero.
    for cells in range(2, 65):
        assert zero_sum.compute_variance(cells) < 8 * (1 - 1 / cells)


def test_the_loss_of_a_move_is_half_its_length_over_the_scale_and_no_less():
    """Exact, over all outputs within reach: moving one weight w from a cell to another loses w."""
    law = list_law(2.0, 3, 25)
    moved = (3, -3, 0)
    ratios = [
        math.log(p / law[other])
        for z, p in law.items()
        if (other := tuple(a - b for a, b in zip(z, moved, strict=True))) in law
    ]
    assert max(ratios) == pytest.approx(3 / 2.0)


@pytest.mark.parametrize(
    ("scale", "cells"), [(0, 3), (-1, 3), (2**46, 3), (1.5, 3), (4, 1), (8, 9), (2**40, 65)]
)
def test_what_cannot_be_drawn_is_refused(scale, cells):
    with pytest.raises(ValueError, match="scale"):
        zero_sum.draw_zero_sum(scale, cells)


def test_subsets_and_compositions_are_uniform():
    n = 4_000
    chosen = [tuple(sorted(zero_sum._choose(2, 4))) for _ in range(n)]
    for pair in itertools.combinations(range(4), 2):
        assert abs(chosen.count(pair) - n / 6) < SIGMAS * math.sqrt(n * 5 / 36)
    parts = [tuple(zero_sum._split(5, 3)) for _ in range(n)]
    ways = [w for w in itertools.product(range(1, 6), repeat=3) if sum(w) == 5]
    assert len(ways) == 6
    for way in ways:
        assert abs(parts.count(way) - n / 6) < SIGMAS * math.sqrt(n * 5 / 36)
    assert zero_sum._split(7, 1) == [7]


class Fixed:
    """A seam that answers with what it was asked for."""

    def integers(self, law, scale, size):
        return [law, scale, size]


def test_a_test_may_put_other_noise_in_its_place():
    with source._seam(Fixed()):
        assert zero_sum.draw_zero_sum(9, 3) == ["zero sum", 9.0, 3]
