"""Regressions through the origin of the features' and the label's own units."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import sottovoce as sv
from sottovoce import errors
from sottovoce.booking import encode_question

N = 4000
RNG = np.random.default_rng(0)
X = np.column_stack([RNG.uniform(2, 10, N), RNG.uniform(-1, 5, N)])
Y = 3 * X[:, 0] - 2 * X[:, 1] + 4 + RNG.normal(0, 1, N)
BOUNDS = sv.Bounds(features=([2.0, -1.0], [10.0, 5.0]), label=(0, 60))
METHODS = [
    {"method": "objective"},
    {"method": "objective", "loss": "robust"},
    {"method": "statistics"},
    {"method": "statistics", "rho": True},
    {"method": "output-tight", "alpha": 1e-4},
    {"method": "output", "alpha": 1e-3},
]
every_method = pytest.mark.parametrize(
    "options", METHODS, ids=lambda o: "-".join(str(v) for v in o.values())
)


def solve_plainly(columns, alpha: float) -> np.ndarray:
    """Ridge regression without an intercept, of features between −1 and 1, labels as they are."""
    size = np.array([10.0, 5.0])[columns]
    rows = X[:, columns] / size
    return np.linalg.solve(rows.T @ rows / N + alpha * np.eye(len(size)), rows.T @ Y / N) / size


@every_method
def test_large_budgets_find_least_squares_without_an_intercept(options):
    ridge = sv.Ridge(bounds=BOUNDS, fit_intercept=False, **options).fit(X, Y, epsilon=1e6)
    # coordinates of "output" are x/m, those of "output-tight" half of it
    alpha = options.get("alpha", 0.0) * (4 if options["method"] == "output-tight" else 1)
    assert ridge.coef_ == pytest.approx(solve_plainly([0, 1], alpha), abs=0.01)
    plain = LinearRegression(fit_intercept=False).fit(X, Y)
    if options == {"method": "objective"}:
        assert ridge.coef_ == pytest.approx(plain.coef_, abs=1e-4)
    assert ridge.coef_ == pytest.approx(np.linalg.lstsq(X, Y, rcond=None)[0], abs=0.05)
    assert ridge.intercept_ == 0.0
    assert ridge.predict(X) == pytest.approx(X @ ridge.coef_)


@every_method
def test_plans_promises_and_files_agree(options):
    epsilon = np.repeat([0.1, 0.5, 2.0], [1400, 1700, 900])
    asked = sv.Ridge(bounds=BOUNDS, fit_intercept=False, **options)
    plan = asked.plan(epsilon=epsilon)
    ridge = asked.fit(X, Y, epsilon=epsilon)
    spent = ridge.guarantee_.rho if options.get("rho") else ridge.guarantee_.epsilon
    assert np.array_equal(plan.charges, spent)
    assert np.all(spent <= epsilon)
    assert plan.digest == ridge.release_.certificate.plan_digest
    assert "without an intercept" in plan.describe()
    again = sv.Ridge.from_release(sv.Release.from_json(ridge.release_.to_json()))
    assert np.array_equal(again.predict(X), ridge.predict(X))
    assert again.interval() == ridge.interval()


@every_method
def test_intervals_know_that_there_is_no_intercept(options):
    ridge = sv.Ridge(bounds=BOUNDS, fit_intercept=False, **options).fit(X, Y, epsilon=1e5)
    limits = ridge.interval(0.99)
    assert limits["intercept"] == (0.0, 0.0)
    for name, coefficient in zip(("x0", "x1"), ridge.coef_, strict=True):
        low, high = limits[name]
        assert low < coefficient < high
    if "standard_errors" in ridge.release_.value:
        assert ridge.release_.value["standard_errors"][0] == 0.0
    low, high = ridge.interval(0.99, X=np.array([[2.0, 0.0]]))[0]
    assert low < 2.0 * ridge.coef_[0] < high


def test_refits_have_no_intercept_either():
    ridge = sv.Ridge(bounds=BOUNDS, method="statistics", fit_intercept=False)
    ridge.fit(X, Y, epsilon=1e6)
    again = ridge.refit(alpha=1e-9, columns=["x0"])
    assert again.intercept_ == 0.0
    assert again.coef_[0] == pytest.approx(solve_plainly([0], 0.0)[0], abs=1e-3)
    assert again.coef_[1] == 0.0


@pytest.mark.parametrize("method", ["objective", "statistics", "output-tight", "output"])
def test_audits_take_models_through_the_origin(method):
    few = slice(0, 200)
    ridge = sv.Ridge(bounds=BOUNDS, method=method, alpha=0.1, fit_intercept=False)
    ridge.fit(X[few], Y[few], epsilon=1.0)
    losses = sv.audit.per_instance(ridge, X[few], Y[few], epsilon=1.0)
    realised = np.abs(np.asarray(losses.epsilon))
    assert np.all(realised <= ridge.guarantee_.epsilon * (1 + 1e-9))
    read = sv.Release.from_json(ridge.release_.to_json())
    again = sv.audit.per_instance(read, X[few], Y[few], epsilon=1.0)
    assert np.array_equal(np.asarray(again.epsilon), np.asarray(losses.epsilon))


def test_a_feature_with_one_value_stands_for_an_intercept():
    bounds = sv.Bounds(features=([2.0, 1.0], [10.0, 1.0]), label=(0, 60))
    ridge = sv.Ridge(bounds=bounds, method="statistics", fit_intercept=False)
    ridge.fit(np.column_stack([X[:, 0], np.ones(N)]), Y, epsilon=1e6)
    slope, constant = np.polyfit(X[:, 0], Y, 1)
    assert ridge.coef_ == pytest.approx([slope, constant], abs=0.01)


@pytest.mark.parametrize(
    ("options", "features"),
    [
        ({}, (0, 0)),
        ({"loss": "huber"}, (0, 0)),
        ({"method": "statistics"}, (0, 0)),
        ({"method": "output-tight"}, (0, 0)),
        ({"method": "statistics", "fit_intercept": "no"}, (0, 1)),
    ],
)
def test_what_has_no_model_is_refused_before_anybody_is_charged(options, features):
    session = sv.Session()
    session.grant({str(i): 10.0 for i in range(N)})
    asked = sv.Ridge(
        bounds=sv.Bounds(features=features, label=(0, 60)),
        **{"fit_intercept": False, **options},
    )
    with pytest.raises(errors.InvalidParameter) as refused:
        session.release(
            asked, X, Y, epsilon=1.0, groups=np.arange(N).astype(str), key="through the origin"
        )
    assert refused.value.parameter == "fit_intercept"
    assert refused.value.remedy
    assert session.ledger.find("through the origin") is None
    with pytest.raises(errors.InvalidParameter):
        asked.plan(epsilon=[1.0] * 30, n_features=2)


@pytest.mark.parametrize("method", ["adassp", "descent", "objective-gaussian"])
def test_a_method_that_needs_an_intercept_is_refused_by_its_own_name(method):
    asked = sv.Ridge(bounds=BOUNDS, method=method, delta=1e-6, fit_intercept=False)
    with pytest.raises(errors.InvalidParameter, match=f"'{method}'") as refused:
        asked.plan(epsilon=[1.0] * 30)
    assert refused.value.parameter in {"fit_intercept", "method"}


def test_nothing_is_bought_for_intervals_through_the_origin():
    asked = sv.Ridge(bounds=BOUNDS, fit_intercept=False, interval_share=0.1)
    with pytest.raises(errors.InvalidParameter) as refused:
        asked.plan(epsilon=[1.0] * 30)
    assert refused.value.parameter == "interval_share"


@pytest.mark.parametrize("each", [0.01, 0.05, 0.2, 1.0, 100.0])
@pytest.mark.parametrize("loss", ["squared", "robust", "huber"])
@pytest.mark.parametrize("label_scale", [None, 20.0])
def test_stages_of_every_course_spend_the_whole_budget_and_no_more(each, loss, label_scale):
    asked = sv.Ridge(bounds=BOUNDS, fit_intercept=False, loss=loss, label_scale=label_scale)
    plan = asked.plan(epsilon=[each] * N)
    ridge = asked.fit(X, Y, epsilon=each)
    recorded = [stage["share"] for stage in ridge.release_.value["stages"]]
    assert sum(recorded) == pytest.approx(1.0, abs=1e-12)
    courses = [[part["share"] for part in one["parts"]] for one in plan.parameters["stages"]]
    assert any(recorded == pytest.approx(course) for course in courses)
    assert all(stage["regularity"] <= 0.5 + 1e-9 for stage in fits(ridge))
    assert all(len(stage["theta"]) == len(stage["penalty"]) == 2 for stage in fits(ridge))


def fits(ridge):
    return [stage for stage in ridge.release_.value["stages"] if "theta" in stage]


def test_everybody_can_bound_their_own_loss_through_the_origin():
    """The bound from published numbers is above what the curator finds, for every row."""
    few = slice(0, 300)
    ridge = sv.Ridge(bounds=BOUNDS, fit_intercept=False).fit(X[few], Y[few], epsilon=1.0)
    losses = np.asarray(sv.audit.per_instance(ridge, X[few], Y[few], epsilon=1.0).epsilon)
    for row in range(0, 300, 30):
        mine = sv.audit.mine(ridge.release_, (X[row], Y[row]))
        assert losses[row] <= mine.epsilon * (1 + 1e-9)


def test_requests_with_an_intercept_are_remembered_as_before():
    told = encode_question(sv.Ridge(bounds=BOUNDS, method="statistics"))
    assert "fit_intercept" not in told[1]
    other = encode_question(sv.Ridge(bounds=BOUNDS, method="statistics", fit_intercept=False))
    assert other[1]["fit_intercept"] is False
    plan = sv.Ridge(bounds=BOUNDS, method="statistics").plan(epsilon=[1.0] * 30)
    assert "fit_intercept" not in plan.parameters
