"""The expected error, told before the data, is right: measured / predicted within a tenth.

5,000 releases of fresh data a case. The relative standard error of a root mean square over them is at
most 1.6 % for Laplace noise (kurtosis 6), so a tenth is six of them: a false alarm in 1e8 cases.
"""

from __future__ import annotations

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.question import refuse_unfit, rows_in_memory, run

RELEASES = 5000

rng0 = np.random.default_rng(3)
SHAPES = {
    "equal": (np.full(200, 0.5), None),
    "tiers": (np.repeat([0.05, 0.3, 1.0], [70, 85, 45]), None),
    "heavy-tailed": (np.minimum(rng0.lognormal(-1.5, 1.2, 200), 5), None),
    "many rows a person": (np.repeat(rng0.choice([0.1, 0.5, 2.0], 60), np.r_[[1] * 30, [4] * 20, [12] * 10]),
                           np.repeat(np.arange(60), np.r_[[1] * 30, [4] * 20, [12] * 10])),
}  # fmt: skip

#: One of them every time, the others by `make test-long`.
OFTEN = ("many rows a person",)
every_shape = pytest.mark.parametrize(
    "shape",
    [pytest.param(shape, id=name, marks=() if name in OFTEN else pytest.mark.long) for name, shape in SHAPES.items()],
)


def root_mean_square(question, epsilon, groups, draw, truth) -> tuple[float, float]:
    rng = np.random.default_rng(11)
    budgets = sv.Budgets.of(epsilon, groups)
    plan = question.plan_for(budgets)
    errors = []
    for _ in range(RELEASES):
        _, rows = rows_in_memory(draw(rng, len(epsilon)), epsilon=budgets, groups=None)
        errors.append(run(question, plan, rows).value - np.asarray(truth))
    refuse_unfit(question, plan, rows)
    return float(np.sqrt(np.mean(np.square(errors)))), plan.expected_error


@every_shape
def test_the_expected_error_of_a_mean_is_right(shape):
    """Coin flips: the default spread, half the range, is then the true one."""
    question = sv.Mean(bounds=(0, 1))
    measured, expected = root_mean_square(question, *shape, lambda rng, n: rng.integers(0, 2, n).astype(float), 0.5)
    assert 0.9 <= measured / expected <= 1.1


@pytest.mark.long
def test_the_expected_error_of_a_mean_is_right_with_a_public_spread():
    question = sv.Mean(bounds=(0, 1), spread=12**-0.5)
    shape = SHAPES["tiers"]
    measured, expected = root_mean_square(question, *shape, lambda rng, n: rng.random(n), 0.5)
    assert 0.9 <= measured / expected <= 1.1


@pytest.mark.parametrize(("q", "limit"), [(0.5, 1 / 12), (0.01, (0.99**3 + 0.01**3) / 3)])
def test_with_hardly_any_budget_the_rank_is_anywhere(q, limit):
    expected = sv.Quantile(q=q, bounds=(0, 1)).plan(epsilon=1e-9, rows=10**6).expected_error
    assert expected == pytest.approx(np.sqrt(limit), rel=0.01)


@every_shape
@pytest.mark.parametrize("q", [pytest.param(0.5, marks=pytest.mark.long), 0.2])
def test_the_expected_rank_error_of_a_quantile_is_right(shape, q):
    """Values spread evenly over the bounds: a value is its own rank."""
    question = sv.Quantile(q=q, bounds=(0, 1))
    measured, expected = root_mean_square(question, *shape, lambda rng, n: rng.random(n), [q])
    assert 0.9 <= measured / expected <= 1.1
