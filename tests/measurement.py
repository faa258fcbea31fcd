"""Losses measured from draws of the whole mechanism, with a bound that is right except with
probability 2e-8.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import beta

from cases import HIGH, LOW, captured, charge_of

DRAWS = 40_000
CONFIDENCE = 1e-8


def lower_bound_on_loss(first: np.ndarray, second: np.ndarray) -> float:
    """Returns a number that log P₁[E]/P₂[E] exceeds except with probability 2e-8, for the best
    one-sided event.
    """
    half = len(first) // 2
    thresholds = np.unique(
        np.quantile(np.r_[first[:half], second[:half]], np.linspace(0.01, 0.99, 99))
    )
    best = -np.inf
    event = (0.0, 1)
    for threshold in thresholds:
        for side in (1, -1):
            bound = _bound(*(side * x[:half] >= side * threshold for x in (first, second)))
            if bound > best:
                best = bound
                event = (threshold, side)
    threshold, side = event
    return _bound(*(side * x[half:] >= side * threshold for x in (first, second)))


def find_largest_bound(draws: int) -> float:
    """Returns what so many draws tell at most, however much is lost: of an event that always
    happens on one table and never on the other.
    """
    counted = draws - draws // 2
    return _bound(np.ones(counted, dtype=bool), np.zeros(counted, dtype=bool))


def _bound(first: np.ndarray, second: np.ndarray) -> float:
    (hits, n), (others, m) = ((int(x.sum()), len(x)) for x in (first, second))
    if hits:
        low = beta.ppf(CONFIDENCE, hits, n - hits + 1)
    else:
        low = 0.0
    if others < m:
        high = beta.ppf(1 - CONFIDENCE, others + 1, m - others)
    else:
        high = 1.0
    if low > 0:
        return float(np.log(low / high))
    return -np.inf


def drawn(case, capture, size=DRAWS) -> np.ndarray:
    """Returns answers for one captured statistic, drawn with the real noise."""
    if case.name == "mean":
        return np.array(case.module.draw_noisy_values(capture.plan, capture.statistic, size))
    return np.array(
        [
            case.module.draw_noisy_values(capture.plan, capture.statistic)[0]
            for _ in range(size // 4)
        ]
    )


def measured_loss(case, people, owner, draws=DRAWS) -> tuple[float, float]:
    mine = people.owners == owner
    first = np.full(len(mine), (LOW + HIGH) / 2)
    second = np.full(len(mine), (LOW + HIGH) / 2)
    first[mine] = LOW
    second[mine] = HIGH
    one, two = (captured(case, values, people.epsilon, people.groups) for values in (first, second))
    a = drawn(case, one, draws)
    b = drawn(case, two, draws)
    return max(lower_bound_on_loss(a, b), lower_bound_on_loss(b, a)), charge_of(one, people, owner)
