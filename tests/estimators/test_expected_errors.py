"""On five tables that the project does not ship, the error is what the plan expected: measured /
planned.

Means and quantiles within 15 %, means whose spread nobody declared within a factor of two,
regressions between 1/3 and 3. Errors are against the classical
answer on the same table. What only the table knows is not in a plan; where that matters, the tests
below say by how much.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import sottovoce as sv
import tables
from sottovoce.data.kernels import WeightedHistogram, WeightedSum
from sottovoce.estimators import mean
from sottovoce.estimators.quantile import score_points

every_sheet = pytest.mark.parametrize("make", tables.SHEETS, ids=lambda make: make.__name__)
METHODS = ["objective", "statistics", "output-tight", "output"]


def row_shares(plan) -> np.ndarray:
    """The share of the weight that each row has."""
    return plan.weights.row[plan.budgets.row_codes()] / plan.weights.total


# --- Means ----------------------------------------------------------------------------------------


def measured_mean(question, values: np.ndarray, epsilon: np.ndarray) -> tuple[float, sv.Plan]:
    """4,000 releases about one order of the rows, and the weighted mean without noise over 500
    orders of them.

    Noise does not depend on the rows, so the two add up as squares. The relative standard error of
    the first is 1.8 % (Laplace noise has kurtosis 6); the second is the same every time.
    """
    rows = question.read_arrays(values, epsilon=epsilon, groups=None)
    budgets = rows.budgets
    plan = question.plan_for(budgets, rows)
    rng = np.random.default_rng(0)
    total = rows.engine.fold(
        WeightedSum(rows.value, plan.grid.values, rows.owner, plan.weights.row, None)
    )
    noise = np.array(mean.draw_noisy_values(plan, total, 4000)) - row_shares(plan) @ values
    moved = [row_shares(plan) @ rng.permutation(values) - values.mean() for _ in range(500)]
    return math.sqrt(np.mean(noise**2) + np.mean(np.square(moved))), plan


@every_sheet
@pytest.mark.parametrize(
    "budgets", [pytest.param("equal", marks=pytest.mark.long), "personal", "spread declared"]
)
def test_means_are_as_far_from_the_plain_mean_as_planned(make, budgets):
    sheet = make()
    if "declared" in budgets:
        spread = float(sheet.clipped.std())
    else:
        spread = None
    if budgets == "equal":
        epsilon = np.full(len(sheet.y), 0.5)
    else:
        epsilon = sheet.epsilon
    measured, plan = measured_mean(
        sv.Mean(bounds=sheet.label, spread=spread), sheet.clipped, epsilon
    )
    if budgets == "personal":  # a spread that nobody declared is off by what the spread is off
        assert 0.5 <= measured / plan.expected_error <= 2
    else:
        assert 0.85 <= measured / plan.expected_error <= 1.15


@every_sheet
def test_a_mean_whose_spread_nobody_declared_is_off_by_what_the_spread_is_off(make):
    """Budgets of .01 and 1, where unequal weights matter most. Only sampling is off, and in
    proportion.
    """
    sheet = make()
    epsilon = np.where(np.arange(len(sheet.y)) % 10 < 3, 0.01, 1.0)
    measured, plan = measured_mean(sv.Mean(bounds=sheet.label), sheet.clipped, epsilon)
    (error,) = plan.errors
    true = error.sampling * sheet.clipped.std() / ((sheet.label[1] - sheet.label[0]) / 10)
    assert 0.85 <= measured / math.hypot(error.noise, true) <= 1.15
    assert 0.7 <= measured / error.total <= 1.4


# --- Quantiles ------------------------------------------------------------------------------------

#: Continuous columns: many equal values, or a wide gap between them, only the table knows.
COLUMNS = {
    "wine, alcohol": (tables.wine, None),
    "wine, colour": (tables.wine, 8),
    "costs": (tables.costs, None),
    "visits, distance": (tables.visits, 1),
    "exams, final mark": (tables.exams, None),
}
SHARES = np.arange(1, 20) / 20
ORDERS = 10


def column(make, place):
    sheet = make()
    if place is None:
        return sheet.clipped, sheet.label, sheet.epsilon
    low, high = (float(side[place]) for side in sheet.features)
    return np.clip(sheet.X[:, place], low, high), (low, high), sheet.epsilon


def law(costs: np.ndarray) -> np.ndarray:
    """P[t] of permute-and-flip, p_t·∫₀¹ Π_{s≠t}(1 − v·p_s) dv; what is less likely than e^−30 is
    left out.
    """
    found = np.zeros(len(costs))
    near = np.flatnonzero(costs < costs.min() + 30)
    distinct, where, counts = np.unique(
        np.exp(costs.min() - costs[near]), return_inverse=True, return_counts=True
    )
    nodes, mass = np.polynomial.legendre.leggauss(12)
    edges = np.concatenate([[0.0], np.geomspace(1e-7, 1 - 1e-9, 40)])
    v = (edges[:-1, None] + np.diff(edges)[:, None] * (nodes + 1) / 2).ravel()
    heads = np.log1p(-np.outer(v, distinct))
    everything = heads @ counts
    weights = (np.diff(edges)[:, None] * mass / 2).ravel()
    likely = distinct * (weights @ np.exp(everything[:, None] - heads))
    assert likely @ counts == pytest.approx(1, abs=1e-6)
    found[near] = likely[where]
    return found


def rank_error(question, values: np.ndarray, epsilon: np.ndarray, q: float) -> tuple[float, float]:
    """Mean square of how far q is outside of the plain ranks of an answer, by the law of the
    choice; and as planned.

    Where weights differ, orders of the rows are drawn.
    """
    rng = np.random.default_rng(round(100 * q))
    found = []
    ordered = np.sort(values)
    for _ in range(1 if np.ptp(epsilon) == 0 else ORDERS):
        rows = question.read_arrays(rng.permutation(values), epsilon=epsilon, groups=None)
        budgets = rows.budgets
        plan = question.plan_for(budgets, rows)
        points = plan.grid.points
        histogram = rows.engine.fold(
            WeightedHistogram(rows.value, points, rows.owner, plan.weights.row, None)
        )
        likely = law(score_points(histogram, q) / (2.0 * plan.weights.loudest))
        answers = points.low + np.arange(points.cells + 1) * float(points.step)
        ranks = (
            np.searchsorted(ordered, answers, side) / len(values) for side in ("left", "right")
        )
        below, at_or_below = ranks
        distance = np.maximum(np.maximum(below - q, q - at_or_below), 0)
        found.append(float(likely @ distance**2))
    return float(np.mean(found)), float(plan.expected_error) ** 2


def pooled(make, place, epsilon=None, **options) -> float:
    """Measured / planned, root mean squares over nineteen quantiles."""
    values, bounds, own = column(make, place)
    if epsilon is None:
        granted = own
    else:
        granted = np.full(len(values), epsilon)
    pairs = [
        rank_error(sv.Quantile(q=float(q), bounds=bounds, **options), values, granted, float(q))
        for q in SHARES
    ]
    measured, planned = np.mean(pairs, axis=0)
    return math.sqrt(measured / planned)


@pytest.mark.parametrize("name", COLUMNS)
def test_quantiles_are_as_far_in_rank_as_planned(name):
    assert 0.85 <= pooled(*COLUMNS[name], 0.5) <= 1.15


@pytest.mark.parametrize(
    "name", [n if n == "costs" else pytest.param(n, marks=pytest.mark.long) for n in COLUMNS]
)
def test_quantiles_of_personal_budgets_are_as_far_in_rank_as_planned(name):
    assert 0.85 <= pooled(*COLUMNS[name]) <= 1.15


def test_many_equal_values_make_a_quantile_better_than_planned():
    """Counts, of which two thirds are zero: the choice falls on the classical answer itself, more
    so where their step is declared and no point lies between them.
    """
    assert pooled(tables.visits, None, 0.5, step=1) < 0.5
    assert pooled(tables.visits, None, 0.5) < 1


def test_a_wide_gap_between_values_makes_a_quantile_worse_than_planned():
    """Petals of three kinds of flowers, in millimetres: nothing public says that none has a width
    in between.
    """
    assert 1.15 < pooled(tables.iris, None, 0.5) < 3


# --- Regressions ----------------------------------------------------------------------------------


def measured_regression(question, sheet, releases: int) -> tuple[float, sv.Plan]:
    """Root mean square difference from the predictions of least squares, over rows and releases."""
    inside = np.clip(sheet.X, *sheet.features)
    classical = LinearRegression().fit(inside, sheet.clipped).predict(inside)
    rows = question.read_arrays(sheet.X, sheet.y, epsilon=sheet.epsilon, groups=None)
    budgets = rows.budgets
    plan = question.plan_for(budgets, rows)
    squares = []
    for _ in range(releases):
        value = question.release_under(plan, rows).value
        predicted = value["intercept"] + inside @ np.array(list(value["coefficients"].values()))
        squares.append(np.mean((predicted - classical) ** 2))
    return math.sqrt(np.mean(squares)), plan


@every_sheet
@pytest.mark.parametrize("method", METHODS)
def test_regressions_miss_least_squares_by_what_was_planned_within_a_factor_of_three(make, method):
    """Counts with many zeros and costs with a heavy tail are among them.

    Over tens of releases the ratio of the default method was .7 to 2.1, of the others .5 to 2.3.
    With as many releases as here the mean square is above nine times the plan, or below a ninth of
    it, with a probability below 1e-10: by Chernoff's bound with the moments of some hundreds.
    """
    sheet = make()
    if method != "objective":
        releases = 10
    elif len(sheet.y) < 1000:
        releases = 60
    else:
        releases = 40
    measured, plan = measured_regression(
        sv.Ridge(bounds=sheet.bounds, method=method), sheet, releases
    )
    assert 1 / 3 <= measured / plan.expected_error <= 3


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", [tables.costs, tables.exams], ids=["costs", "exams"])
@pytest.mark.parametrize("method", METHODS)
def test_the_same_on_tables_that_are_drawn_anew(make, method, seed):
    for n in (1000, 4000, 16_000):
        sheet = make(100 + seed, n)
        measured, plan = measured_regression(
            sv.Ridge(bounds=sheet.bounds, method=method), sheet, 20
        )
        assert 1 / 3 <= measured / plan.expected_error <= 3


# --- Classifiers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "releases"),
    [(tables.iris, 6), (tables.costs, 40), (tables.exams, 6)],
    ids=["iris", "costs", "exams"],
)
def test_probabilities_miss_maximum_likelihood_by_what_was_planned_within_a_factor_of_three(
    make, releases
):
    """Whether the label is above its median. Ratios of single fits were 1 to 3.1, .18 to .93 and
    .43 to 1.1; with so many of them that of costs is below a third with a probability below 1e-9
    (Chernoff), and the others' further away.
    """
    sheet = make()
    high = (sheet.y > np.median(sheet.y)).astype(int)
    inside = np.clip(sheet.X, *sheet.features)
    scaled = (inside - inside.mean(axis=0)) / inside.std(axis=0)
    classical = (
        LogisticRegression(C=1e4, max_iter=5000).fit(scaled, high).predict_proba(scaled)[:, 1]
    )
    question = sv.LogisticRegression(bounds=sv.Bounds(features=sheet.features), classes=[0, 1])
    plan = question.plan(epsilon=sheet.epsilon, n_features=sheet.X.shape[1])
    fits = [
        question.fit(sheet.X, high, epsilon=sheet.epsilon).predict_proba(sheet.X)[:, 1]
        for _ in range(releases)
    ]
    measured = math.sqrt(np.mean(np.square(np.array(fits) - classical)))
    assert 1 / 3 <= measured / plan.expected_error <= 3


# --- Baselines ------------------------------------------------------------------------------------


@every_sheet
def test_the_pull_of_null_records_is_expected(make):
    """What only coins and null records do; before, up to 1,030 times what was planned.

    Where a null record happens to lie at the mean it does nothing, which only the table knows:
    hence no lower bound.
    """
    sheet = make()
    for question in (
        sv.Sampled(sv.Mean(bounds=sheet.label)),
        sv.Sampled(sv.Quantile(bounds=sheet.label)),
    ):
        fits = [question.fit(sheet.y, epsilon=sheet.epsilon) for _ in range(5)]
        values = np.array([fit.value_ for fit in fits])
        if isinstance(question.estimator, sv.Mean):
            apart = values - sheet.clipped.mean()
        else:
            below, at = (
                (np.searchsorted(np.sort(sheet.clipped), values, side) / len(sheet.y))
                for side in ("left", "right")
            )
            apart = np.maximum(np.maximum(below - 0.5, 0.5 - at), 0)
        told = fits[0].release_
        assert math.sqrt(np.mean(apart**2)) <= 3 * told.expected_error
        assert told.expected_error == pytest.approx(
            question.plan(epsilon=sheet.epsilon).expected_error
        )


def test_rows_that_a_limit_leaves_out_are_missing_in_the_answer():
    """Two hundred people of fifty rows each, one heard: two hundred rows tell the mean no better
    than that.
    """
    values = np.random.default_rng(0).normal(
        0, 20, (200, 50)
    )  # a tenth of the range, as is assumed
    people = np.repeat(np.arange(200), 50)
    fits = [
        sv.Limited(sv.Mean(bounds=(-100, 100)), salt=str(k)).fit(
            values.ravel(), epsilon=50.0, groups=people
        )
        for k in range(40)
    ]
    measured = math.sqrt(np.mean([(fit.value_ - values.mean()) ** 2 for fit in fits]))
    assert 0.5 <= measured / fits[0].release_.expected_error <= 2
