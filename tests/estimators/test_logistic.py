"""Logistic regression: limits, laws, classes, public rows, manners, and what it refuses."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import sottovoce as sv
from sklearn_checks import every_check
from sottovoce import errors
from sottovoce.budgets import Budgets
from sottovoce.data.encoding import (
    MATRIX_COLUMN,
    CentredBox,
    ClassLabel,
    UnitBall,
    UnitBallReader,
)
from sottovoce.data.engine import GroupLookup, get_default_engine
from sottovoce.data.loss_kernels import SoftmaxTerms
from sottovoce.estimators.logistic_mechanism import (
    SLACK,
    NoisyObjective,
    PersonWeights,
    compute_prices,
    count_changed_problems,
    find_largest,
    list_binding,
)
from sottovoce.estimators.logistic_tuning import (
    BudgetScale,
    PublicRows,
    choose_with_public_rows,
    make_noise_directions,
)
from sottovoce.report.plan import SHORTENED_ROWS, describe_classifier
from sottovoce.schema import Classes
from sottovoce.solvers import newton

N = 1500
P = 3
RNG = np.random.default_rng(7)
X = RNG.uniform(-1, 1, (N, P))
Y = (X @ [2.0, -1.0, 0.5] + RNG.logistic(0, 0.3, N) > 0).astype(int)
KINDS = np.array(["low", "middle", "high"])[np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.4, 0.4])]
EPSILON = np.resize([0.1, 0.5, 2.0], N)
BOUNDS = sv.Bounds(features=(-1, 1))
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True).max()


def model(**options):
    return sv.LogisticRegression(**{"bounds": BOUNDS, **options})


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize(
    "options",
    [{}, {"classes": ("low", "middle", "high")}, {"neighbours": "labels"}, {"alpha": 0.05}],
    ids=str,
)
def test_the_coefficients_are_those_of_the_predictions(options, epsilon):
    """At every budget, for every row within the bounds, its corners too: the coefficients can be
    quoted.
    """
    fitted = model(**options).fit(X, KINDS if "classes" in options else Y, epsilon=epsilon)
    rows = np.vstack([X, np.array(np.meshgrid(*[[-1, 1]] * P)).reshape(P, -1).T])
    told = np.squeeze(fitted.intercept_ + rows @ fitted.coef_.T)
    assert fitted.decision_function(rows) == pytest.approx(told, rel=1e-12, abs=1e-12)
    likeliest = fitted.classes_[fitted.predict_proba(rows).argmax(axis=1)]
    assert np.mean(likeliest == fitted.predict(rows)) > 0.999  # even odds round either way


@pytest.mark.parametrize("several", [False, True])
def test_without_limit_budgets_give_scikit_learns_coefficients(several):
    """Nothing is cut, shrunk or capped any more: maximum likelihood, of all classes at once too."""
    rng = np.random.default_rng(3)
    features = np.column_stack([rng.uniform(20, 30, N), rng.exponential(2, N).clip(0, 40)])
    bounds = sv.Bounds(features=([0, 0], [100, 40]))
    odds = (features - [25, 2]) @ np.array([[0.5, 0.0, -0.3], [-0.8, 0.4, 0.0]])
    if several:
        labels = (odds + rng.gumbel(size=odds.shape)).argmax(axis=1)
        classes = (0, 1, 2)
    else:
        labels = (odds[:, 0] + rng.logistic(size=N) > 0.4).astype(int)
        classes = (0, 1)
    granted = np.resize([1e5, 3e5, 1e6], N)  # noise is a thousandth of what is allowed for
    fitted = sv.LogisticRegression(bounds=bounds, classes=classes).fit(
        features, labels, epsilon=granted
    )
    plain = LogisticRegression(C=1e9, tol=1e-10, max_iter=20000).fit(features, labels)
    assert fitted.coef_ == pytest.approx(plain.coef_, rel=0.01, abs=0.003)
    assert fitted.intercept_ == pytest.approx(plain.intercept_, rel=0.01, abs=0.05)
    assert fitted.release_.parameters["rows"]["kind"] == "box"


def test_doubling_every_budget_does_not_raise_the_error():
    """Means over 20 fits, of the same rows. Expected is a fall of two standard errors or more, so
    that a false alarm is eight above it: rarer than 1e-7, also by Student's law.
    """
    rng = np.random.default_rng(12)
    for width in (1.0, 0.3):
        features = width * rng.uniform(-1, 1, (800, 4))
        labels = (features @ [3, -2, 1, 0] / width + rng.logistic(size=800) > 0).astype(int)
        before = None
        for epsilon in (0.1, 0.2, 0.4, 0.8):
            wrong = [
                1 - model().fit(features, labels, epsilon=epsilon).score(features, labels)
                for _ in range(20)
            ]
            if before is not None:
                spread = np.hypot(np.std(wrong), np.std(before)) / np.sqrt(19)
                assert np.mean(wrong) <= np.mean(before) + 6 * spread + 0.005
            before = wrong


def test_association_makes_people_count_alike_and_the_open_ones_pay_less():
    granted = np.resize([0.05, 0.5, 5.0], 30_000)
    plans = [
        model(association=bound).plan(epsilon=granted, n_features=P)
        for bound in (None, 0.0, 0.2, 2.0)
    ]
    heaviest = [plan.weights.person.max() / plan.weights.total for plan in plans]
    assert heaviest[0] == heaviest[1] > heaviest[2] > heaviest[3]
    spent = [plan.charges[2] for plan in plans]
    assert spent[0] == spent[1] > spent[2] > spent[3]
    for plan in plans:
        assert np.all(plan.charges <= granted)
        assert plan.charges[0] == pytest.approx(0.05, rel=1e-6)
    assert plans[2].parameters["association"] == 0.2


FITS = 20


def test_association_protects_from_people_who_differ():
    """Who grants much has other odds: weights by budget answer for them, even ones for all."""
    rng = np.random.default_rng(6)
    n = 3000
    granted = np.resize([0.2, 0.5, 4.0], n)
    features = rng.uniform(-1, 1, (n, 12))
    shift = np.where(granted > 1, 1.0, -0.5)
    labels = (2 * features[:, 0] + shift + rng.logistic(size=n) > 0).astype(int)
    plain = LogisticRegression(C=1e9).fit(features, labels)
    errors = []
    for bound in (0.0, 1.0):
        # The mean of many fits: noise moves a single one by as much.
        fits = [
            model(association=bound).fit(features, labels, epsilon=granted).intercept_[0]
            for _ in range(FITS)
        ]
        errors.append(abs(np.mean(fits) - plain.intercept_[0]))
    assert errors[0] > 0.3
    assert errors[1] < 0.5 * errors[0]


def test_rows_that_are_pulled_in_are_told_of():
    small = model().fit(X, Y, epsilon=0.1).release_
    ample = model().fit(X, Y, epsilon=50.0).release_
    assert "pulled towards it in the fit" in small.explain()
    assert "pulled" not in ample.explain()
    assert small.parameters["rows"]["pulled"] is True
    assert small.parameters["threshold"] > 0
    assert ample.parameters["rows"]["kind"] == "box"


def test_rows_that_are_shortened_as_a_whole_are_told_of():
    few = model().plan(epsilon=1.0, rows=400, n_features=P)
    assert few.parameters["rows"]["whole"] is True
    assert few.parameters["rows"]["pulled"] is True
    assert SHORTENED_ROWS in describe_classifier(few)
    fitted = model().fit(X[:400], Y[:400], epsilon=1.0)
    assert "counted less in the fit" in fitted.release_.explain()
    several = model(classes=(0, 1, 2)).plan(epsilon=4.0, rows=400, n_features=P)
    assert "whole" not in several.parameters["rows"]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.floats(0.01, 10), st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_whole_rows_never_leave_the_ball_and_keep_their_side(p, radius, intercept, seed):
    rng = np.random.default_rng(seed)
    ball = UnitBall(np.zeros(p), np.full(p, 0.29), radius, intercept, 23, True)
    Z = rng.choice([-0.5, 0.0, 0.5, 0.3], (20, p)) * rng.choice([1.0, 0.1, 1 - 2**-30])
    rows = ball.rows(Z)
    assert (np.square(rows).sum(axis=1) <= 1).all()
    assert UnitBall.from_dict(ball.to_dict()).rows(Z).tolist() == rows.tolist()
    plane = rng.normal(size=p + 1)
    long = replace(ball, bits=None).rows(Z, cut=False)
    clear = np.abs(long @ plane) > 1e-5 * np.linalg.norm(long, axis=1)
    assert (np.sign(rows @ plane) == np.sign(long @ plane))[clear].all()
    if ball.shortens:  # as if the step were forgotten
        corner = replace(ball, bits=None).rows(np.full((1, p), 0.5), cut=False)
        assert np.square(corner).sum() > 1 - 1e-9


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 6), st.booleans(), st.integers(0, 2**32))
def test_rows_never_leave_the_box(p, intercept, seed):
    rng = np.random.default_rng(seed)
    box = CentredBox(p, intercept)
    Z = rng.choice([-0.5, 0.0, 0.5, 0.3], (20, p)) * rng.choice([1.0, 0.1, 1 - 2**-30])
    rows = box.rows(Z)
    assert rows.shape == (20, box.width)
    assert np.abs(rows).max(initial=0) <= 0.5
    assert np.array_equal(rows * 2**23, np.round(rows * 2**23))
    theta = rng.normal(size=box.width)
    constant, slopes = box.to_original_units(theta)
    assert rows @ theta == pytest.approx(constant + Z @ slopes, abs=1e-5)
    assert CentredBox.from_dict(box.to_dict()) == box


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
def test_large_budgets_find_scikit_learns_solution(alpha):
    found = model(bounds=sv.Bounds(norm=1.0), alpha=alpha, fit_intercept=False).fit(
        UNIT, Y, epsilon=1e6
    )
    plain = LogisticRegression(C=1 / (N * alpha), fit_intercept=False, tol=1e-10).fit(UNIT, Y)
    assert found.coef_ == pytest.approx(plain.coef_, abs=2e-3 / alpha * 1e-2)
    assert found.predict_proba(UNIT) == pytest.approx(plain.predict_proba(UNIT), abs=1e-3)
    assert found.intercept_ == [0.0]


def test_the_default_is_nearly_scikit_learns_where_there_is_plenty():
    found = model().fit(X, Y, epsilon=50.0)
    plain = LogisticRegression().fit(X, Y)
    assert found.score(X, Y) > plain.score(X, Y) - 0.01
    agreed = np.mean(found.predict(X) == plain.predict(X))
    assert agreed > 0.97


def test_weights_count_as_in_a_weighted_objective():
    """The minimiser without noise is that of SciPy, with weights as the plan tells them."""
    ask = model(bounds=sv.Bounds(norm=1.0), alpha=0.05, fit_intercept=False)
    found = ask.fit(UNIT, Y, epsilon=EPSILON * 1e5)
    plan = ask.plan(epsilon=EPSILON * 1e5, n_features=P)
    a = (plan.weights.row / plan.weights.total)[plan.budgets.codes]
    signs = 2 * Y - 1.0
    best = minimize(
        lambda w: a @ np.logaddexp(0, -signs * (UNIT @ w)) + 0.025 * w @ w, np.zeros(P), tol=1e-12
    )
    assert found.coef_[0] == pytest.approx(best.x, abs=2e-3)


# ---------------------------------------------------------------- laws


def test_equal_budgets_give_the_classical_mechanism():
    plan = model(alpha=1.0, accountant="exact").plan(epsilon=np.full(N, 0.5), n_features=P)
    assert plan.noise["rate"] == pytest.approx(N * 0.5 * (1 - SLACK))
    assert np.all(plan.weights.row == plan.weights.row[0])
    labels = model(alpha=1.0, neighbours="labels").plan(epsilon=np.full(N, 0.5), n_features=P)
    assert labels.noise["rate"] == pytest.approx(2 * N * 0.5 * (1 - SLACK))


def test_the_kappa_accountant_draws_less_noise():
    for alpha in (1e-3, 0.01, 0.1, 1.0, 10.0):
        rates = [
            model(alpha=alpha, accountant=a).plan(epsilon=EPSILON, n_features=P).noise["rate"]
            for a in ("kappa", "exact")
        ]
        assert rates[0] >= rates[1] * (1 - 1e-9)
    assert rates[0] > 1.7 * rates[1]


budgets = st.lists(st.floats(0.01, 50), min_size=2, max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    budgets,
    st.integers(0, 11),
    st.floats(1.01, 10),
    st.sampled_from(["kappa", "exact"]),
    st.integers(2, 4),
)
def test_charges_stay_within_grants_and_raising_one_grant_harms_nobody(
    granted, who, times, accountant, classes
):
    granted, who = np.array(granted), who % len(granted)
    rows = 1 + np.arange(len(granted)) % 3
    people = np.repeat(np.arange(len(granted)), rows)

    def plan(epsilon):
        ask = model(classes=tuple(range(classes)), accountant=accountant)
        return ask.plan(epsilon=dict(enumerate(epsilon.tolist())), groups=people, n_features=P)

    before = plan(granted)
    after = plan(np.where(np.arange(len(granted)) == who, granted * times, granted))
    assert np.all(before.charges <= granted)
    person_weight = [p.weights.person[p.budgets.codes] / p.weights.total for p in (before, after)]
    assert person_weight[1][who] >= person_weight[0][who] * (1 - 1e-9)
    others = np.arange(len(granted)) != who
    assert np.all(after.charges[others] <= granted[others])
    strictest = np.argmin(granted)
    assert before.charges[strictest] <= granted[strictest]


def test_the_people_who_decide_on_the_rate_decide_as_everybody_does():
    rng = np.random.default_rng(8)
    for unequal in (0.0, 0.3, 2.0):
        epsilon = np.exp(unequal * rng.normal(size=400))
        groups = np.repeat(np.arange(400), rng.integers(1, 9, 400))
        budgets = Budgets.of(dict(enumerate(epsilon.tolist())), groups)
        people = PersonWeights.of(budgets.kinds, 5, 2, labels_only=False)
        for ridge in (0.5, 0.05, 0.005):
            mechanism = NoisyObjective(CentredBox(4, True), np.full(5, ridge), "exact", 2, 0.1)

            def fits(rate, mechanism=mechanism, people=people):
                charged = mechanism.charge(people.person, people.ranks, rate)
                return bool(np.all(charged <= people.left))

            found = people._find_exact_rate(mechanism, people.left, 4 * people.total)
            assert found == find_largest(fits, 4 * people.total)
            assert len(list_binding(people.person, people.ranks, people.left)) < 100


def test_permuting_people_permutes_nothing_else():
    order = RNG.permutation(N)
    plan, permuted = (
        model().plan(epsilon=EPSILON, n_features=P),
        model().plan(epsilon=EPSILON[order], n_features=P),
    )
    assert permuted.charges == pytest.approx(plan.charges[order])
    assert permuted.noise == plan.noise


def test_weights_minimise_the_bound():
    """No other split of the same budgets has a smaller A·Σc² + 1/η² + B·(Σ|W − u|)², by a search
    that knows only this.
    """
    left = np.array([0.3, 1.0, 5.0, 40.0])
    rows = np.array([1, 3, 1, 2])
    people = np.array([4, 2, 3, 1])
    A, B = compute_prices(5, 2, False, 0.2)
    owners = np.repeat(np.arange(10), np.repeat(rows, people))
    kinds = Budgets.of(dict(enumerate(np.repeat(left, people).tolist())), owners).kinds
    found = PersonWeights.of(kinds, 5, 2, labels_only=False, association=0.2)
    even = found.kinds.rows / (found.kinds.people @ found.kinds.rows)

    def bound(u):
        W = u / (found.kinds.people @ u)
        squares = found.kinds.people @ (W * W / found.kinds.rows)
        moved = found.kinds.people @ np.abs(W - even)
        return A * squares + (W / found.left).max() ** 2 + B * moved**2

    at = found.person * found.total
    assert np.all(at <= found.left * (1 + 1e-9))
    rng = np.random.default_rng(0)
    for _ in range(3000):
        other = np.minimum(at * np.exp(0.2 * rng.normal(size=len(at))), found.left)
        assert bound(other) >= bound(at) * (1 - 1e-9)


def test_how_many_problems_somebody_can_change():
    rows = np.array([1, 2, 10])
    assert count_changed_problems(rows, 2, False).tolist() == [1, 1, 1]
    assert count_changed_problems(rows, 5, False).tolist() == [1, 1, 1]
    assert count_changed_problems(rows, 5, True).tolist() == [2, 4, 5]


def test_plans_and_promises_agree():
    for options in (
        {},
        {"classes": ("low", "middle", "high")},
        {"neighbours": "labels"},
        {"accountant": "exact"},
    ):
        if "classes" in options:
            y = KINDS
        else:
            y = Y
        plan = model(**options).plan(epsilon=EPSILON, n_features=P)
        fitted = model(**options).fit(X, y, epsilon=EPSILON)
        assert np.array_equal(plan.charges, fitted.guarantee_.epsilon)
        assert plan.digest == fitted.release_.certificate.plan_digest
        assert np.all(plan.charges <= EPSILON)
        assert plan.charges.min() > 0.9 * EPSILON.min()
        told = plan.describe() + fitted.release_.explain()
        assert "logistic regression" in told
        assert ("replace labels" in told) == ("neighbours" in options)


# ---------------------------------------------------------------- the way into the ball


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 6), st.floats(1e-6, 1e3), st.floats(0, 1), st.integers(0, 2**32))
def test_rows_never_leave_the_ball(p, radius, intercept, seed):
    rng = np.random.default_rng(seed)
    ball = UnitBall(
        rng.uniform(-0.5, 0.5, p), rng.uniform(1e-3, 0.5, p), radius, intercept, bits=23
    )
    if seed % 2:
        Z = rng.choice([-0.5, 0.0, 0.5], (50, p))
    else:
        Z = rng.uniform(-0.5, 0.5, (50, p))
    rows = ball.rows(Z)
    assert rows.shape == (50, ball.width)
    assert np.all(np.linalg.norm(rows.astype(np.longdouble), axis=1) <= 1)
    theta = rng.normal(size=ball.width)
    short = np.linalg.norm((Z - ball.middle) / ball.spread, axis=1) <= radius
    constant, slopes = ball.to_original_units(theta)
    on_the_grid = 2.0**-23 * np.abs(theta).sum() + 1e-9 * np.abs(slopes).sum()
    assert np.all(np.abs((rows @ theta) - (constant + Z @ slopes))[short] <= on_the_grid)
    assert np.array_equal(rows * 2**23, np.round(rows * 2**23))


def test_values_beyond_the_bounds_are_clipped():
    wild = X.copy()
    wild[::3] *= 1e9
    assert model().fit(wild, Y, epsilon=50.0).score(X, Y) > 0.8


# ---------------------------------------------------------------- classes


def test_several_classes_are_told_apart():
    fitted = model(classes=("low", "middle", "high")).fit(X, KINDS, epsilon=50.0)
    assert fitted.score(X, KINDS) > 0.75
    odds = fitted.decision_function(X)
    chance = fitted.predict_proba(X)
    assert odds.shape == chance.shape == (N, 3)
    assert chance.sum(axis=1) == pytest.approx(1)
    assert fitted.classes_.tolist() == ["low", "middle", "high"]
    assert list(fitted.release_.value["models"]) == ["low", "middle", "high"]
    assert np.array_equal(fitted.predict(X), fitted.classes_[odds.argmax(axis=1)])


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        (Y, {}),
        (Y.astype(bool), {}),
        (Y.astype(float), {"classes": (0, 1)}),
        (2 * Y - 1, {"bounds": sv.Bounds(features=(-1, 1), label=(-1, 1))}),
        (np.where(Y == 1, "ill", "well"), {"classes": ("well", "ill")}),
        (
            pd.Series(np.where(Y == 1, "ill", "well"), dtype="category"),
            {"classes": ["well", "ill"]},
        ),
        (pa.array(Y), {}),
        (pl.Series(Y), {}),
    ],
)
def test_every_kind_of_label_is_read(labels, options):
    fitted = model(**options).fit(X, labels, epsilon=50.0)
    assert np.mean((fitted.predict(X) == fitted.classes_[1]) == (Y == 1)) > 0.85


def test_classes_are_declared_and_never_read_off_the_labels():
    one_class = model().fit(X, np.ones(N), epsilon=1.0)
    assert one_class.classes_.tolist() == [0, 1]
    assert model(classes=(0, 1, 2)).fit(X, Y, epsilon=1.0).coef_.shape == (3, P)
    with pytest.raises(errors.InvalidData, match="none of the declared classes") as caught:
        model().fit(X, np.where(np.arange(N) == 5, 4711, Y), epsilon=1.0)
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_classes_come_from_what_was_declared():
    schema = sv.Schema.loads(
        'label = "d"\n[columns.d]\nkind = "factor"\nlevels = ["no", "yes"]\n'
        '[columns.x]\nkind = "number"\nlow = 0\nhigh = 1'
    )
    assert Classes.from_declaration(None, schema).values == ("no", "yes")
    assert Classes.from_declaration(None, sv.Bounds(label=(-1, 1))).values == (-1, 1)
    assert Classes.from_declaration(None, BOUNDS, ["b", "a", "b"]).values == ("a", "b")
    assert Classes.from_declaration((3, 4), schema).values == (3, 4)
    table = pd.DataFrame({"x": (X[:, 0] + 1) / 2})
    fitted = model(bounds=schema).fit(table, np.where(X[:, 0] > 0, "yes", "no"), epsilon=20.0)
    assert fitted.score(table, np.where(X[:, 0] > 0, "yes", "no")) > 0.9


@pytest.mark.parametrize("extended", [False, True])
def test_the_sums_of_several_classes_are_those_of_a_plain_formula(extended):
    rng = np.random.default_rng(4)
    rows = CentredBox(2, True).rows(rng.uniform(-0.5, 0.5, (500, 2)))
    codes = rng.integers(0, 3, 500)
    theta = np.round(rng.normal(size=9) * 8 * 2**20) / 2**20
    weights = np.array([0.5, 1.5]) / 500
    kinds = np.arange(500) % 2
    engine = get_default_engine().of_columns({MATRIX_COLUMN: rows, "y": codes, "kind": kinds})
    label = ClassLabel("y", Classes((0, 1, 2)), coded=True)
    point = theta
    if extended:
        point = newton.to_fractions(theta)
    kernel = SoftmaxTerms(
        reader=UnitBallReader(CentredBox(2, True), None),
        label=label,
        owner=GroupLookup("kind"),
        row_weights=weights,
        theta=point,
        extended=extended,
        classes=3,
    )
    value, pull, bend = kernel.floats(engine.fold(kernel))
    margins = rows @ theta.reshape(3, 3).T
    chances = softmax(margins, axis=1)
    v = weights[kinds]
    plain = ((np.eye(3)[codes] - chances) * v[:, None]).T @ rows
    assert pull.astype(float) == pytest.approx(plain.ravel(), abs=1e-14)
    if not extended:
        loss = logsumexp(margins, axis=1) - margins[np.arange(500), codes]
        assert value == pytest.approx(v @ loss)
        shape = np.einsum("nk,kl->nkl", chances, np.eye(3)) - np.einsum(
            "nk,nl->nkl", chances, chances
        )
        exact = np.einsum("n,nkl,nd,ne->kdle", v, shape, rows, rows).reshape(9, 9)
        assert bend == pytest.approx(exact, abs=1e-6)
        assert np.linalg.eigvalsh(bend).min() > -1e-15


def test_separable_data_have_an_answer():
    fitted = model(alpha=0.01).fit(X, (X[:, 0] > 0).astype(int), epsilon=100.0)
    assert np.isfinite(fitted.coef_).all()
    assert fitted.score(X, (X[:, 0] > 0).astype(int)) > 0.95


# ---------------------------------------------------------------- public rows, λ, bounds on the
# error


def test_public_rows_scale_and_choose_and_cost_nobody():
    """Columns that fill a thousandth of their bounds are lost without public rows, and found with
    them.
    """
    rng = np.random.default_rng(1)
    narrow = 0.3 + X / 1000
    fresh = rng.uniform(-1, 1, (60, P))
    public = (0.3 + fresh / 1000, (fresh @ [2.0, -1.0, 0.5] > 0).astype(int))
    # Without them one fit in 400 is right by luck, and four of seven with a chance below 1e-8.
    scores = [
        np.median([model(public=p).fit(narrow, Y, epsilon=0.5).score(narrow, Y) for _ in range(7)])
        for p in (None, public)
    ]
    assert scores[1] > scores[0] + 0.1
    plan = model(public=public).plan(epsilon=np.full(N, 0.5), n_features=P)
    assert 0 < plan.expected_error < 0.5
    assert "public rows" in plan.error.assumed
    assert plan.error_unit == "as a probability"
    assert plan.parameters["public_rows"] == 60
    assert np.all(plan.charges <= 0.5)
    again = model(public=public).plan(epsilon=np.full(N, 0.5), n_features=P)
    assert again.digest == plan.digest


def test_the_simulation_is_the_same_every_time_and_has_the_size_of_the_noise():
    assert np.array_equal(make_noise_directions(5), make_noise_directions(5))
    assert np.linalg.norm(make_noise_directions(5), axis=1) == pytest.approx(10)
    rows = PublicRows(X[:40] / 2, Y[:40].astype(float))
    assert choose_with_public_rows(
        BudgetScale(100.0, P, True), rows, None
    ) is choose_with_public_rows(
        BudgetScale(100.0, P, True), PublicRows(X[:40] / 2, Y[:40].astype(float)), None
    )


def test_a_weak_regularisation_is_refused_with_one_that_will_do():
    with pytest.raises(errors.WeakRegularisation, match="an alpha of") as caught:
        model(alpha=1e-6).fit(X[:20], Y[:20], epsilon=0.1)
    enough = caught.value.smallest
    assert np.isfinite(model(alpha=enough).fit(X[:20], Y[:20], epsilon=0.1).coef_).all()
    assert pickle.loads(pickle.dumps(caught.value)).smallest == enough
    assert isinstance(caught.value, errors.InvalidParameter)


def test_the_bound_on_the_error_has_the_corrected_constants():
    """β = 5, δ = δ' = 0.05, d = 30: μ = 23.3 and σ = 570, where the paper prints 53.1 and
    10,842.
    """
    plan = model(alpha=1.0, fit_intercept=False).plan(epsilon=np.full(400, 1.0), n_features=30)
    bound = plan.error_bound(delta=0.1, norm=5.0)
    mu = (bound - 569.75 / plan.noise["rate"]) / np.sqrt(1 / 400)
    assert mu == pytest.approx(23.3, abs=0.1)
    assert plan.error_bound(delta=0.01) > plan.error_bound(delta=0.1)
    with pytest.raises(errors.InvalidParameter):
        plan.error_bound(delta=0)
    with pytest.raises(errors.InvalidParameter):
        sv.Mean(bounds=(0, 1)).plan(epsilon=1.0, rows=10).error_bound()


def test_the_bound_on_the_error_holds():
    """Misclassified ≤ J(w)/ln 2 + bound, over many draws of rows and noise; at δ = 0.2 it may fail
    one time in five.
    """
    rng = np.random.default_rng(2)
    failures = 0
    ask = model(bounds=sv.Bounds(norm=1.0), alpha=0.5, fit_intercept=False)
    for _ in range(20):
        rows = rng.normal(size=(2200, P))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        labels = (rows[:, 0] + 0.2 * rng.normal(size=2200) > 0).astype(int)
        fitted = ask.fit(rows[:200], labels[:200], epsilon=2.0)
        plan = ask.plan(epsilon=np.full(200, 2.0), n_features=P)
        w = fitted.coef_[0]
        signs = 2 * labels - 1
        noise = 2 * np.sqrt(P * (P + 1)) / plan.noise["rate"]
        objective = (
            np.logaddexp(0, -signs[:200] * (rows[:200] @ w)).mean()
            + 0.25 * w @ w
            - noise * np.linalg.norm(w)
        )
        wrong = 1 - fitted.score(rows[200:], labels[200:])
        failures += wrong > objective / np.log(2) + plan.error_bound(delta=0.2)
    assert failures == 0


# ---------------------------------------------------------------- many rows a person, files of
# manners


def test_many_rows_a_person():
    people = np.arange(N) // 3
    fitted = model().fit(X, Y, epsilon=dict.fromkeys(range(N // 3), 3.0), groups=people)
    assert len(fitted.guarantee_.epsilon) == N // 3
    assert fitted.guarantee_.unit == "person"
    assert fitted.score(X, Y) > 0.7


def test_releases_and_pickles_predict_the_same():
    for options, labels in (({}, Y), ({"classes": ("low", "middle", "high")}, KINDS)):
        fitted = model(**options).fit(pd.DataFrame(X, columns=list("abc")), labels, epsilon=EPSILON)
        again = sv.LogisticRegression.from_release(sv.Release.from_json(fitted.release_.to_json()))
        for other in (again, pickle.loads(pickle.dumps(fitted))):
            assert np.array_equal(other.predict_proba(X), fitted.predict_proba(X))
            assert np.array_equal(other.predict(X), fitted.predict(X))
        assert not hasattr(clone(fitted), "coef_")
        assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(errors.InvalidRelease):
        sv.LogisticRegression.from_release(
            sv.Mean(bounds=(0, 1)).fit([0.1, 0.2], epsilon=1.0).release_
        )


@every_check
def test_scikit_learns_checks(check):
    check("LogisticRegression", model())


def test_pipelines_and_cross_validation_route_budgets():
    with sklearn.config_context(enable_metadata_routing=True):
        ask = model().set_fit_request(epsilon=True, groups=True)
        pipeline = make_pipeline(FunctionTransformer(), ask)
        given = {"epsilon": np.full(N, 20.0), "groups": np.arange(N)}
        assert pipeline.fit(X, Y, **given).score(X, Y) > 0.8
        assert cross_val_score(pipeline, X, Y, params=given, cv=2).min() > 0.8


def test_sessions_release_classifiers():
    session = sv.Session()
    people = [f"p{i}" for i in range(N)]
    session.grant(dict.fromkeys(people, 1.0))
    release = session.release(model(), X, Y, groups=people, epsilon=0.5, key="model")
    assert session.balance("p0") == pytest.approx(0.5, abs=1e-3)
    assert session.release(model(), X, Y, groups=people, epsilon=0.5, key="model") == release
    with pytest.raises(errors.KeyReused):
        session.release(model(public=(X[:9], Y[:9])), X, Y, groups=people, epsilon=0.5, key="model")
    with pytest.raises(
        errors.UnknownPeople
    ):  # what was granted about rows says nothing about labels alone
        session.release(model(neighbours="labels"), X, Y, groups=people, epsilon=0.1, key="labels")
    session.grant(dict.fromkeys(people, 1.0), neighbours="replace labels")
    session.release(model(neighbours="labels"), X, Y, groups=people, epsilon=0.1, key="labels")
    assert session.balance("p0", "pure epsilon, replace labels") == pytest.approx(0.9, abs=1e-3)
    session.verify()


def test_baselines_go_around_it():
    assert sv.Uniform(model()).fit(X, Y, epsilon=EPSILON).guarantee_.epsilon.max() <= 0.1
    sampled = sv.Sampled(model(), threshold="max", null=(np.zeros(P), 0)).fit(X, Y, epsilon=EPSILON)
    assert np.all(sampled.guarantee_.epsilon <= EPSILON)
    assert 0 <= sampled.score(X, Y) <= 1


def test_not_even_a_nan_of_somebody_left_out_counts():
    hole = X.copy()
    labels = Y.astype(float)
    grants = np.full(N, 5.0)
    hole[0] = np.nan
    labels[1] = 4711
    grants[:2] = 0.0
    fitted = model().fit(hole, labels, epsilon=sv.Budgets.of(grants, zero="leave out"))
    assert np.isfinite(fitted.coef_).all()
    assert fitted.guarantee_.units[:2].tolist() == [0, 0]


def test_one_whisper_does_not_set_the_noise_for_all():
    grants = np.full(N, 5.0)
    grants[0] = 1e-9
    assert model().fit(X, Y, epsilon=grants).score(X, Y) > 0.8


def test_nothing_unnoised_is_kept():
    fitted = model().fit(X, Y, epsilon=0.5)
    assert set(vars(fitted)) == set(fitted.get_params()) | {
        "release_",
        "guarantee_",
        "_recoding",
        "n_features_in_",
        "intercept_",
        "coef_",
        "classes_",
    }


BAD = {
    "no bounds": ({"bounds": None}, {}, errors.InvalidBounds),
    "no features": ({"bounds": sv.Bounds(label=(0, 1))}, {}, errors.InvalidBounds),
    "one class": ({"classes": ("a",)}, {}, errors.InvalidParameter),
    "one class twice": ({"classes": (1, 1.0)}, {}, errors.InvalidParameter),
    "unknown neighbours": ({"neighbours": "add"}, {}, errors.InvalidParameter),
    "unknown accountant": ({"accountant": "none"}, {}, errors.InvalidParameter),
    "alpha of zero": ({"alpha": 0}, {}, errors.InvalidParameter),
    "alpha of text": ({"alpha": "hush-4711"}, {}, errors.InvalidParameter),
    "public rows without labels": ({"public": X[:5]}, {}, errors.InvalidParameter),
    "public rows of another length": ({"public": (X[:5], Y[:4])}, {}, errors.UnequalLengths),
    "public rows with holes": (
        {"public": (np.full((5, P), np.nan), Y[:5] * 0 + [0, 1, 0, 1, 0])},
        {},
        errors.InvalidParameter,
    ),
    "public labels undeclared": (
        {"public": (X[:5], list("abcde")), "classes": (0, 1)},
        {},
        errors.InvalidData,
    ),
    "undeclared label": (
        {},
        {"y": np.where(np.arange(N) == 3, "hush-4711", "0")},
        errors.InvalidData,
    ),
    "NaN in the label": ({}, {"y": np.where(np.arange(N) == 3, np.nan, Y)}, errors.InvalidData),
    "NaN in a feature": ({}, {"X": np.where(X[5, 1] == X, np.nan, X)}, errors.MissingValues),
    "infinity in a feature": ({}, {"X": np.where(X[5, 1] == X, np.inf, X)}, errors.MissingValues),
    "text in a feature": ({}, {"X": np.array([["hush-4711"] * P] * N)}, errors.WrongType),
    "one column": ({}, {"X": X[:, 0]}, errors.InvalidData),
    "lengths differ": ({}, {"y": Y[:-1]}, errors.UnequalLengths),
    "groups differ": ({}, {"groups": ["a"] * 5}, errors.UnequalLengths),
    "zero ε": ({}, {"epsilon": 0}, errors.InvalidBudget),
    "one row": ({}, {"X": X[:1], "y": Y[:1]}, errors.TooFewRows),
    "a schema without classes": ({"bounds": sv.Schema()}, {}, errors.InvalidInput),
}


@pytest.mark.parametrize(("options", "data", "error"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_a_named_error(options, data, error):
    given = {"X": X, "y": Y, "epsilon": 0.5, "groups": None, **data}
    with pytest.raises(error) as caught:
        model(**options).fit(
            given["X"], given["y"], epsilon=given["epsilon"], groups=given["groups"]
        )
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("n", "epsilon", "groups"),
    [
        (3, 1.0, None),
        (2, 1.0, None),
        (50, 1e-9, None),
        (50, 1e-3, None),
        (50, 1.0, ["only"] * 50),
        (50, 1e5, None),
    ],
    ids=["few rows", "two rows", "tiny ε", "small ε", "one person with all the rows", "huge ε"],
)
@pytest.mark.parametrize(
    "options",
    [{}, {"classes": (0, 1, 2)}, {"neighbours": "labels"}, {"accountant": "exact"}],
    ids=str,
)
def test_odd_but_legal_input_gets_an_answer(options, n, epsilon, groups):
    constant = X[:n].copy()
    constant[:, 2] = 0.5
    fitted = model(**options).fit(constant, Y[:n], epsilon=epsilon, groups=groups)
    assert np.isfinite(fitted.predict_proba(X)).all()
    assert fitted.predict(X).shape == (N,)
