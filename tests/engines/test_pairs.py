"""Pulls as pairs of doubles, against 300 bits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from sottovoce.data import pairs
from sottovoce.data.pairs import Pair, SoftPulls, add_exactly, clip_pairs, multiply_pairs

BITS = 300
COUNT = 400


def join(pair: Pair) -> list:
    """The numbers, as mpmath has them."""
    return [mpmath.mpf(a) + b for a, b in zip(pair.head.tolist(), pair.tail.tolist(), strict=True)]


def draw_residuals(t0: float, g: float) -> Pair:
    """Residuals within t0, a little and far beyond it, at it, and large ones."""
    rng = np.random.default_rng(1)
    head = np.concatenate(
        [
            (t0 + g) * rng.normal(size=COUNT),
            t0 + g * rng.exponential(size=COUNT) * rng.choice([1e-6, 1.0, 20.0], COUNT),
            [t0, -t0, np.nextafter(t0, 1), 0.0, 1.0, -60.0],
        ]
    )
    return Pair(head, head * rng.uniform(-(2.0**-53), 2.0**-53, len(head)))


def find_soft_error(t0: float, g: float) -> float:
    """The largest error of a pull, over τ."""
    residuals = draw_residuals(t0, g)
    found = SoftPulls(t0, g)(residuals)
    with mpmath.workprec(BITS):
        wrong = []
        for residual, pull in zip(join(residuals), join(found), strict=True):
            size = abs(residual)
            exact = residual
            if size > t0:
                E = mpmath.exp(-(size - t0) / g)
                exact = mpmath.sign(residual) * (mpmath.mpf(t0) + g - g * E)
            wrong.append(abs(pull - exact))
        return float(max(wrong) / (t0 + g))


@pytest.mark.parametrize("tau", [0.37, 2.0, 1e-12])
@pytest.mark.parametrize("H", [0.5, 0.495, 0.124, 2.0**-21])
def test_pulls_are_right_to_a_last_bit_of_64(tau, H):
    assert find_soft_error(tau * (1 - 2 * H), 2 * H * tau) <= 2.0**-65


def test_a_table_of_few_bits_is_caught(monkeypatch):
    """A planted bug: the tails of what is looked up are left out."""
    fine = pairs._get_fine_table()
    monkeypatch.setattr(pairs, "_get_fine_table", lambda: fine._replace(tails=0 * fine.tails))
    assert find_soft_error(0.1, 0.2) > 2.0**-40


def test_pulls_of_hubers_loss_are_cut():
    residuals = draw_residuals(0.3, 0.1)
    inside = np.abs(residuals.head) < 0.3
    found = clip_pairs(residuals, 0.3)
    assert found.head.tolist() == np.clip(residuals.head, -0.3, 0.3).tolist()
    assert found.tail.tolist() == np.where(inside, residuals.tail, 0.0).tolist()


def test_a_weight_times_a_pull_is_right():
    pulls = SoftPulls(0.1, 0.2)(draw_residuals(0.1, 0.2))
    weights = np.random.default_rng(2).exponential(size=len(pulls.head)) ** 4
    found = multiply_pairs(weights, pulls, -1)
    with mpmath.workprec(BITS):
        wrong = [
            abs(product - weight * pull) / weight
            for product, weight, pull in zip(
                join(found), weights.tolist(), join(pulls), strict=True
            )
        ]
        assert max(wrong) <= 2.0**-77


def test_sums_lose_nothing():
    rng = np.random.default_rng(3)
    a = rng.normal(size=COUNT)
    b = rng.normal(size=COUNT) * 10.0 ** rng.integers(-20, 20, COUNT)
    with mpmath.workprec(BITS):
        exact = [mpmath.mpf(x) + y for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        assert join(add_exactly(a, b)) == exact


def test_rows_are_bent_alike_wherever_they_stand():
    residuals = draw_residuals(0.1, 0.2)
    together = SoftPulls(0.1, 0.2)(residuals)
    for k in range(0, len(residuals.head), 37):
        alone = SoftPulls(0.1, 0.2)(Pair(residuals.head[k : k + 1], residuals.tail[k : k + 1]))
        assert (alone.head[0], alone.tail[0]) == (together.head[k], together.tail[k])
