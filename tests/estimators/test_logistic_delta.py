"""Classifiers at a δ: the plan chooses Gaussian noise where it is the smaller, nobody's rows move a
step by more than what was charged, and it becomes the pure mechanism as budgets grow.

Sums of gradients are exact whole numbers, so their sensitivity is audited without chance.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import sottovoce as sv
from sottovoce import errors, units
from sottovoce.data import regression_kernels
from sottovoce.estimators import logistic_descent
from sottovoce.estimators.erm import make_descent
from sottovoce.estimators.erm_mechanism import People

N = 600
P = 12
DELTA = 1e-6
BOUNDS = sv.Bounds(features=(np.zeros(P), np.full(P, 2.0)))
EPSILON = np.repeat([1.0, 4.0], N // 2)
OWNER = np.arange(N) // 2
RNG = np.random.default_rng(3)
X = RNG.random((N, P)) * 2
Y = (RNG.random(N) < 0.5).astype(int)


def measure_steps(row: int, groups) -> tuple[float, float]:
    """Returns T·(most that a person's rows move a sum)²/(2σ²), over corners of the box, labels and
    places of θ, and what they are charged, in ρ.
    """
    model = sv.LogisticRegression(BOUNDS, delta=DELTA)
    epsilon = EPSILON
    mine = np.arange(N) == row if groups is None else groups == groups[row]
    plan = model.plan(epsilon, groups=groups)
    descent = make_descent(model._make_descent(), plan)
    sums = {}
    for corner in (0.0, 2.0):
        for label in (0, 1):
            moved = np.where(mine[:, None], corner, X)
            own = np.where(mine, label, Y)
            rows = model.read_arrays(moved, own, epsilon=epsilon, groups=groups)
            sums[corner, label] = (rows, People.of(rows, plan.budgets, plan.weights))
    most = 0.0
    for theta in (np.zeros(P + 1), np.full(P + 1, 50.0), np.full(P + 1, -50.0)):
        found = [descent.exact_sum(people, theta) for _, people in sums.values()]
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
    half = logistic_descent.FullBatchAccountant.per_step_sensitivity
    monkeypatch.setattr(
        logistic_descent.FullBatchAccountant,
        "per_step_sensitivity",
        lambda self, single, steps: 2 * half(self, single, steps),
    )
    with pytest.raises(errors.BudgetExceeded):
        measure_steps(N - 1, None)


def test_the_promise_is_an_epsilon_at_delta_within_every_grant():
    model = sv.LogisticRegression(BOUNDS, delta=DELTA).fit(X, Y, epsilon=EPSILON)
    guarantee = model.guarantee_
    assert (guarantee.currency, guarantee.neighbours) == ("zCDP rho", "replace")
    assert guarantee.delta == DELTA
    assert (guarantee.epsilon <= EPSILON).all()
    assert guarantee.arithmetic == "exact"


@pytest.mark.parametrize(
    ("people", "slopes", "epsilon", "gaussian"),
    [
        (2000, 30, 1.0, True),
        (400, 8, 1.0, True),
        (400, 30, 1.0, False),
        (2000, 3, 1.0, False),
        (400, 12, 1e4, False),
        (10**5, 30, 1.0, False),
    ],
)
def test_the_plan_chooses_by_public_numbers(people, slopes, epsilon, gaussian):
    bounds = sv.Bounds(features=(np.zeros(slopes), np.ones(slopes)))
    plan = sv.LogisticRegression(bounds, delta=DELTA).plan(np.full(people, epsilon))
    assert (plan.guarantee.currency == "zCDP rho") is gaussian
    assert plan.parameters["delta"] == DELTA


def test_without_delta_and_where_pure_is_chosen_the_mechanism_is_as_it_was():
    bounds = sv.Bounds(features=(np.zeros(3), np.ones(3)))
    pure = sv.LogisticRegression(bounds).plan(np.ones(400))
    chosen = sv.LogisticRegression(bounds, delta=DELTA).plan(np.ones(400))
    assert "delta" not in pure.parameters
    assert chosen.noise == pure.noise
    assert chosen.guarantee.currency == "pure epsilon"
    assert chosen.charges.tolist() == pure.charges.tolist()


@pytest.mark.parametrize(
    "options",
    [{"neighbours": "labels"}, {"classes": (0, 1, 2)}, {"alpha": 0.1}, {"fit_intercept": False}],
)
def test_what_a_descent_does_not_do_is_pure(options):
    plan = sv.LogisticRegression(BOUNDS, delta=DELTA, **options).plan(np.ones(1000))
    assert plan.guarantee.currency == "pure epsilon"


def test_a_release_is_read_back_and_audited():
    model = sv.LogisticRegression(BOUNDS, delta=DELTA).fit(X, Y, epsilon=EPSILON, groups=OWNER)
    release = sv.Release.from_json(model.release_.to_json())
    again = sv.load(release)
    assert (again.predict(X) == model.predict(X)).all()
    audit = sv.audit.per_instance(release, X, Y, epsilon=EPSILON, groups=OWNER)
    lost = np.asarray(audit.epsilon)
    assert (lost > 0).all()
    assert (lost <= np.asarray(audit.promised)).all()
    with pytest.raises(errors.InvalidParameter):
        model.interval()


def test_a_shuffled_table_gives_the_same_sums():
    """Rows of one person may lie anywhere."""
    model = sv.LogisticRegression(BOUNDS, delta=DELTA)
    order = np.random.default_rng(1).permutation(N)
    plan = model.plan(EPSILON, groups=OWNER)
    descent = make_descent(model._make_descent(), plan)
    sums = []
    for place in (np.arange(N), order):
        rows = model.read_arrays(X[place], Y[place], epsilon=EPSILON[place], groups=OWNER[place])
        people = People.of(rows, rows.budgets, plan.weights)
        sums.append(descent.exact_sum(people, np.ones(P + 1)))
    assert (sums[0] == sums[1]).all()


def test_many_columns_are_told_apart_where_pure_noise_does_not():
    """12 columns, 600 people, ε = 1: all columns go along with the class.

    On 200 tables the share of errors was .028, with a standard deviation of .010 and .055 at most:
    .3 is 26 deviations away. Signs turned round are at .97, as many away on the other side.
    """
    rng = np.random.default_rng()
    y = rng.integers(0, 2, 600)
    Z = np.clip(1 + 0.35 * (2 * y - 1)[:, None] + 0.5 * rng.normal(size=(600, P)), 0, 2)
    model = sv.LogisticRegression(BOUNDS, delta=DELTA).fit(Z, y, epsilon=1.0)
    assert model.score(Z, y) > 0.7


@pytest.mark.parametrize("delta", [0.0, -1e-6, 1.5, math.nan, "small"])
def test_what_is_no_delta_is_refused(delta):
    with pytest.raises(errors.InvalidParameter) as refused:
        sv.LogisticRegression(BOUNDS, delta=delta).validate()
    assert refused.value.parameter == "delta"
