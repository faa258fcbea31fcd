"""The expected error, told before the data, is right: measured / predicted within a tenth.

5,000 releases of fresh data a case. The relative standard error of a root mean square over them is
at most 1.6 % for Laplace noise (kurtosis 6), so a tenth is six of them: a false alarm in 1e8 cases.
Of quantiles 10,000: their error is .96 of what is expected where people have many rows, and the
standard error of that is 1 %.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import sottovoce as sv
from sottovoce.estimator import load_column, refuse_invalid_rows
from sottovoce.estimators.mean import estimate_clipped_noise

RELEASES = 5000
RELEASES_OF_RANKS = 10_000

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


def root_mean_square(
    question, epsilon, groups, draw, error, releases=RELEASES
) -> tuple[float, float]:
    """Returns the root mean square of error(values, answer) over releases of fresh values, and what
    was expected.
    """
    rng = np.random.default_rng(11)
    budgets = sv.Budgets.of(epsilon, groups)
    plan = question.plan_for(budgets)
    errors = []
    for _ in range(releases):
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
        question, *shape, lambda rng, n: rng.random(n), from_the_rank(q), RELEASES_OF_RANKS
    )
    assert 0.9 <= measured / expected <= 1.1


#: Tiers .01, .2 and 1 whose means are .6, .5 and .4 of the range and whose values spread by .25:
#: the root mean square error of the answer, at most.
ALONG_WITH_BUDGETS = {300: 0.087, 3000: 0.046, 30_000: 0.0072, 300_000: 0.0008}


@pytest.mark.parametrize("n", ALONG_WITH_BUDGETS)
def test_a_mean_is_right_where_budgets_go_along_with_values(n):
    """Bias, sampling and noise of the default plan, from its weights, which are what is used."""
    counts = np.rint(np.array([0.34, 0.43, 0.23]) * n).astype(int)
    plan = sv.Mean(bounds=(0, 1)).plan(epsilon=np.repeat([0.01, 0.2, 1.0], counts))
    share = plan.weights.row[plan.budgets.row_codes()] / plan.weights.total
    middle = np.repeat([0.6, 0.5, 0.4], counts)
    bias = share @ middle - middle.mean()
    error = np.sqrt(bias**2 + 0.25**2 * (share**2).sum() + 2 * plan.noise["scale"] ** 2)
    assert error <= ALONG_WITH_BUDGETS[n]
    assert abs(bias) <= 5 * plan.errors[0].bias  # its tiers lie .1 apart, five times the default


@pytest.mark.parametrize(("n", "part"), [(200, 0.0), (700, None), (5000, 1.0)])
def test_an_association_that_nobody_guesses_counts_as_far_as_noise_does_not_hide_it(n, part):
    """Nothing up to one standard error of trusting weights, a fifth of the spread from three on."""
    epsilon = np.repeat([0.01, 0.2, 1.0], np.rint(np.array([0.34, 0.43, 0.23]) * n).astype(int))
    trusting = sv.Mean(bounds=(0, 1), association=0, interval_share=0).plan(epsilon=epsilon)
    share = trusting.weights.row[trusting.budgets.row_codes()] / trusting.weights.total
    error = np.sqrt(0.1**2 * (share**2).sum() + 2 * trusting.noise["scale"] ** 2)
    reach = 0.02 * np.abs(share - 1 / len(share)).sum() / error
    expected = np.clip((reach - 1) / 2, 0, 1)
    if part is None:
        assert 0.1 < expected < 0.9
    else:
        assert expected == part
    plan = sv.Mean(bounds=(0, 1)).plan(epsilon=epsilon)
    assert plan.parameters["association"] == pytest.approx(0.02 * expected, rel=1e-4, abs=1e-12)
    # the possible bias is told at a fifth of the spread, whatever the weights allow for
    row = plan.weights.row[plan.budgets.row_codes()] / plan.weights.total
    assert plan.errors[0].bias == pytest.approx(0.02 * np.abs(row - 1 / len(row)).sum())
    # and a plan at the association that was counted is the same plan
    again = sv.Mean(bounds=(0, 1), association=plan.parameters["association"]).plan(epsilon=epsilon)
    assert again.digest == plan.digest


def test_real_columns_have_at_most_six_tenths_of_the_error_with_half_the_range():
    """Breast cancer, 30 columns by three profiles; benchmarks/representative.py has more tables."""
    values = load_breast_cancer().data
    n = len(values)
    third = np.geomspace(0.1, 3, 12)[np.arange(n) % 12]
    tiers = np.array([0.01, 0.2, 1.0])
    profiles = [tiers[np.searchsorted([0.34, 0.77], np.arange(n) / n)]]
    profiles += [tiers[np.searchsorted([0.54, 0.91], np.arange(n) / n)], third]
    high = 10.0 ** np.ceil(np.log10(values.max(axis=0)))
    ratios = []
    for epsilon in profiles:
        plans = [
            sv.Mean(bounds=(0, 1)).plan(epsilon=epsilon),
            sv.Mean(bounds=(0, 1), spread=0.5, association=0, interval_share=0).plan(
                epsilon=epsilon
            ),
        ]
        errors = [
            (values.std(axis=0) / high) ** 2 * plan.weights.concentration
            + 2 * plan.noise["scale"] ** 2
            for plan in plans
        ]
        ratios.append(errors[0] / errors[1])
    assert np.exp(np.mean(np.log(ratios))) <= 0.60


def test_with_many_people_the_open_spend_less_and_the_plan_says_so():
    counts = [10_200, 12_900, 6900]
    plan = sv.Mean(bounds=(0, 1)).plan(epsilon=np.repeat([0.01, 0.2, 1.0], counts))
    assert plan.who_pays()[-1]["spent"] < 0.07
    assert plan.representative > 0.9
    assert plan.errors[0].representative == pytest.approx(plan.representative)
    told = plan.describe()
    assert "Those who grant most, ε = 1, spend" in told
    assert "Representative: 9" in told
    trusting = sv.Mean(bounds=(0, 1), association=0).plan(epsilon=np.repeat([0.01, 0.2, 1], counts))
    assert trusting.representative < 0.7
    assert trusting.expected_error < plan.expected_error
    assert trusting.errors[0].bias == 0


@pytest.mark.parametrize("question", [sv.Mean(bounds=(0, 1)), sv.Quantile(bounds=(0, 1))])
def test_without_limit_on_budgets_the_answer_is_the_classical_one(question):
    values = np.random.default_rng(0).random(501)
    fitted = question.fit(values, epsilon=np.where(np.arange(501) % 2, 1e4, 1e5))
    classical = {"Mean": values.mean(), "Quantile": np.median(values)}[type(question).__name__]
    assert fitted.value_ == pytest.approx(classical, abs=2e-3)


@pytest.mark.parametrize(
    ("question", "wrong"),
    [
        (sv.Mean, {"association": -0.1}),
        (sv.Mean, {"association": 1.1}),
        (sv.Mean, {"association": "much"}),
        (sv.Mean, {"interval_share": 0.95}),
        (sv.Mean, {"interval_share": -0.1}),
        (sv.Quantile, {"association": 1.5}),
        (sv.Quantile, {"association": [0.1, 0.2]}),
        (sv.Quantile, {"association": "much"}),
        (sv.Quantile, {"interval_share": np.nan}),
    ],
)
def test_guesses_that_are_impossible_are_refused(question, wrong):
    with pytest.raises(sv.errors.InvalidParameter) as refused:
        question(bounds=(0, 1), **wrong).fit([0.5] * 10, epsilon=1.0)
    assert refused.value.parameter == next(iter(wrong))
