"""Regression at a δ by gradient descent: the plan takes it where budgets are scarce, nobody's rows
move a step by more than what was charged, and releases are read back and audited.

Sums of gradients are exact whole numbers, so their sensitivity is audited without chance.
"""

from __future__ import annotations

import numpy as np
import pytest

import sottovoce as sv
from sottovoce import errors, units
from sottovoce.data import regression_kernels
from sottovoce.estimators import ridge_descent
from sottovoce.estimators.erm import make_descent
from sottovoce.estimators.erm_mechanism import FullBatchAccountant, People

N = 200
P = 5
DELTA = 1e-6
BOUNDS = sv.Bounds(features=(np.zeros(P), np.full(P, 2.0)), label=(-3, 5))
EPSILON = np.repeat([0.5, 2.0], N // 2)
OWNER = np.arange(N) // 2
RNG = np.random.default_rng(3)
X = RNG.random((N, P)) * 2
Y = RNG.uniform(-3, 5, N)


def make_ridge(**options) -> sv.Ridge:
    return sv.Ridge(bounds=BOUNDS, delta=DELTA, **options)


def measure_steps(row: int, groups) -> tuple[float, float]:
    """Returns T·(most that a person's rows move a sum)²/(2σ²), over corners of the box, labels and
    places of θ, and what they are charged, in ρ.
    """
    ridge = make_ridge(method="descent")
    mine = np.arange(N) == row if groups is None else groups == groups[row]
    plan = ridge.plan(EPSILON, groups=groups)
    descent = make_descent(ridge_descent.make_descent(ridge, 4.0), plan)
    people = []
    for corner in (0.0, 2.0):
        for label in (-3.0, 5.0):
            moved = np.where(mine[:, None], corner, X)
            own = np.where(mine, label, Y)
            rows = ridge.read_arrays(moved, own, epsilon=EPSILON, groups=groups)
            people.append(People.of(rows, plan.budgets, plan.weights))
    most = 0.0
    for theta in (np.zeros(P + 1), np.full(P + 1, 5.0), np.full(P + 1, -5.0)):
        found = [descent.exact_sum(one, theta) for one in people]
        most = max(most, *(float(np.linalg.norm(a - b)) for a in found for b in found))
    spent = plan.guarantee.spent[plan.budgets.row_codes()[row]]
    return descent.steps * most**2 / (2 * descent.scale**2), float(units.to_epsilon(spent))


@pytest.mark.parametrize("groups", [None, OWNER], ids=["rows", "people"])
@pytest.mark.parametrize("row", [0, N - 1], ids=["strictest", "loosest"])
def test_nobody_moves_the_steps_by_more_than_was_charged(row, groups):
    spent, charged = measure_steps(row, groups)
    assert 0.5 * charged < spent <= charged * (1 + 1e-9)


@pytest.mark.parametrize("row", [0, N - 1], ids=["strictest", "loosest"])
def test_a_clip_that_is_forgotten_is_caught(row, monkeypatch):
    def unclipped(gradients, weight, clip):
        return np.trunc(gradients * (weight / clip)[:, None])

    monkeypatch.setattr(regression_kernels, "clip_gradients", unclipped)
    spent, charged = measure_steps(row, None)
    assert spent > 1.5 * charged


def test_noise_for_zeroed_rows_instead_of_replaced_ones_is_caught(monkeypatch):
    right = FullBatchAccountant.per_step_sensitivity
    monkeypatch.setattr(
        FullBatchAccountant,
        "per_step_sensitivity",
        lambda self, single, steps: 2 * right(self, single, steps),
    )
    with pytest.raises(errors.BudgetExceeded):
        measure_steps(N - 1, None)


@pytest.mark.parametrize(
    ("people", "epsilon", "method"),
    [
        (300, 0.01, "objective"),
        (300, 1.0, "descent"),
        (1100, 1.0, "objective"),  # sums expect to miss less by a little, and are too hopeful
        (20_000, 1.0, "adassp"),
    ],
)
def test_the_plan_takes_the_descent_where_budgets_are_scarce_and_not_hopeless(
    people, epsilon, method
):
    bounds = sv.Bounds(features=(np.zeros(10), np.ones(10)), label=(0, 1))
    plan = sv.Ridge(bounds=bounds, delta=DELTA).plan(epsilon=epsilon, rows=people)
    assert plan.parameters["method"] == method


@pytest.mark.parametrize("options", [{"fit_intercept": False}, {"loss": "robust"}])
def test_what_a_descent_does_not_do_is_pure(options):
    assert make_ridge(**options).plan(np.ones(300)).guarantee.currency == "pure epsilon"


def test_the_promise_is_an_epsilon_at_delta_and_the_release_is_read_back_and_audited():
    ridge = make_ridge(association=0.2).fit(X, Y, epsilon=EPSILON, groups=OWNER)
    release = sv.Release.from_json(ridge.release_.to_json())
    assert release.parameters["method"] == "descent"
    assert (ridge.guarantee_.currency, ridge.guarantee_.delta) == ("zCDP rho", DELTA)
    assert ridge.guarantee_.arithmetic == "exact"
    assert (ridge.guarantee_.epsilon <= 2.0).all()
    again = sv.load(release)
    assert (again.predict(X) == ridge.predict(X)).all()
    assert again.association == 0.2
    with pytest.raises(errors.InvalidParameter):  # clipped means of several rows
        again.interval(0.95)
    lost = sv.audit.per_instance(release, X, Y, epsilon=EPSILON, groups=OWNER)
    assert (np.asarray(lost.epsilon) > 0).all()
    assert (np.asarray(lost.epsilon) <= np.asarray(lost.promised)).all()


def test_rows_that_are_people_have_intervals():
    ridge = make_ridge().fit(X, Y, epsilon=EPSILON)
    assert ridge.release_.parameters["method"] == "descent"
    low, high = ridge.interval(0.95)["x0"]
    assert low < ridge.coef_[0] < high


@pytest.mark.parametrize("options", [{"delta": None}, {"delta": None, "rho": True}])
def test_budgets_that_are_not_at_a_delta_are_refused(options):
    with pytest.raises(errors.InvalidParameter) as refused:
        sv.Ridge(bounds=BOUNDS, method="descent", **options).validate()
    assert refused.value.parameter == "delta"


def test_slopes_are_found_where_other_methods_answer_with_a_constant():
    """300 rows, 10 columns, ε = 1.2, labels that columns explain.

    Of 150 fits the least R² was .82, the mean .937 and the standard deviation .031: 0 is 30
    deviations away; without slopes, or with their signs turned round, it is at most 0.
    """
    rng = np.random.default_rng()
    Z = rng.random((300, 10))
    y = 0.5 + 0.45 * (Z[:, 0] - Z[:, 1]) + 0.01 * rng.normal(size=300)
    bounds = sv.Bounds(features=(np.zeros(10), np.ones(10)), label=(0, 1))
    ridge = sv.Ridge(bounds=bounds, delta=DELTA).fit(Z, y, epsilon=1.2)
    assert ridge.release_.parameters["method"] == "descent"
    assert ridge.score(Z, y) > 0
