"""The expected error, told before the data, is right: measured / predicted within a tenth.

5,000 releases of fresh data a case. The relative standard error of a root mean square over them is
at most 1.6 % for Laplace noise (kurtosis 6), so a tenth is six of them: a false alarm in 1e8 cases.
"""

from __future__ import annotations

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.estimator import load_column, refuse_invalid_rows
from sottovoce.estimators.mean import estimate_clipped_noise

RELEASES = 5000

rng0 = np.random.default_rng(3)
SHAPES = {
    "equal": (np.full(200, 0.5), None),
    "tiers": (np.repeat([0.05, 0.3, 1.0], [70, 85, 45]), None),
    "heavy-tailed": (np.minimum(rng0.lognormal(-1.5, 1.2, 200), 5), None),
    "many rows a person": (
        np.repeat(rng0.choice([0.1, 0.5, 2.0], 60), np.r_[[1] * 30, [4] * 20, [12] * 10]),
        np.repeat(np.arange(60), np.r_[[1] * 30, [4] * 20, [12] * 10]),
    ),
}

#: One of them every time, the others by `make test-long`.
OFTEN = ("many rows a person",)
every_shape = pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, id=name, marks=() if name in OFTEN else pytest.mark.long)
        for name, shape in SHAPES.items()
    ],
)


def root_mean_square(question, epsilon, groups, draw, error) -> tuple[float, float]:
    """Returns the root mean square of error(values, answer) over releases of fresh values, and what
    was expected.
    """
    rng = np.random.default_rng(11)
    budgets = sv.Budgets.of(epsilon, groups)
    plan = question.plan_for(budgets)
    errors = []
    for _ in range(RELEASES):
        values = draw(rng, len(epsilon))
        rows = load_column(values, epsilon=budgets, groups=None)
        errors.append(error(values, question.release_under(plan, rows).value))
    refuse_invalid_rows(question, plan, rows)
    return float(np.sqrt(np.mean(np.square(errors)))), plan.expected_error


def from_the_plain_mean(values, answer) -> float:
    return answer - values.mean()


def from_the_rank(q):
    """How far q lies outside of the plain ranks of an answer, [F(t−), F(t)]."""

    def distance(values, answer) -> float:
        below = np.mean(values < answer[0])
        at_or_below = np.mean(values <= answer[0])
        return max(below - q, q - at_or_below, 0.0)

    return distance


@every_shape
def test_the_expected_error_of_a_mean_is_right(shape):
    """Coin flips, whose spread is half the range, against the plain mean of the same flips."""
    question = sv.Mean(bounds=(0, 1), spread=0.5)
    flips = lambda rng, n: rng.integers(0, 2, n).astype(float)  # noqa: E731
    measured, expected = root_mean_square(question, *shape, flips, from_the_plain_mean)
    assert 0.9 <= measured / expected <= 1.1


@pytest.mark.long
def test_the_expected_error_of_a_mean_is_right_with_a_public_spread():
    question = sv.Mean(bounds=(0, 1), spread=12**-0.5)
    shape = SHAPES["tiers"]
    measured, expected = root_mean_square(
        question, *shape, lambda rng, n: rng.random(n), from_the_plain_mean
    )
    assert 0.9 <= measured / expected <= 1.1


def test_equal_budgets_leave_nothing_but_noise():
    """Everybody weighs the same then, so the answer misses the plain mean by its noise and by
    nothing else.
    """
    (error,) = sv.Mean(bounds=(0, 100), interval_share=0).plan(epsilon=0.5, rows=300).errors
    assert error.sampling == pytest.approx(0, abs=1e-9)
    assert error.total == pytest.approx(error.noise)
    assert error.noise == pytest.approx(
        np.sqrt(2) * 100 / (300 * 0.5), rel=0.02
    )  # clipped, near the ends
    assert "Assumed" not in error.describe()


@pytest.mark.parametrize("noise", [0.01, 0.3, 2.0, 1e6])
def test_noise_on_a_clipped_mean_is_what_integration_gives(noise):
    """Means anywhere in [0, 1], Laplace noise, answers clipped to [0, 1]."""
    means, ranks = np.meshgrid((np.arange(400) + 0.5) / 400, (np.arange(4000) + 0.5) / 4000)
    drawn = noise * np.sign(ranks - 0.5) * -np.log1p(-np.abs(2 * ranks - 1))
    clipped = np.clip(means + drawn, 0, 1) - means
    assert estimate_clipped_noise(noise, 1.0) == pytest.approx(
        np.sqrt(np.mean(clipped**2)), rel=2e-3
    )


@pytest.mark.parametrize(("q", "limit"), [(0.5, 1 / 12), (0.01, (0.99**3 + 0.01**3) / 3)])
def test_with_hardly_any_budget_the_rank_is_anywhere(q, limit):
    expected = sv.Quantile(q=q, bounds=(0, 1)).plan(epsilon=1e-9, rows=10**6).expected_error
    assert expected == pytest.approx(np.sqrt(limit), rel=0.01)


@every_shape
@pytest.mark.parametrize("q", [pytest.param(0.5, marks=pytest.mark.long), 0.2])
def test_the_expected_rank_error_of_a_quantile_is_right(shape, q):
    """Values spread evenly over the bounds; the rank of an answer is counted among the same
    values.
    """
    question = sv.Quantile(q=q, bounds=(0, 1))
    measured, expected = root_mean_square(
        question, *shape, lambda rng, n: rng.random(n), from_the_rank(q)
    )
    assert 0.9 <= measured / expected <= 1.1
