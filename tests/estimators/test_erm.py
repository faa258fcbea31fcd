"""sv.ERM: the laws of personal budgets, optima that others find, scikit-learn's manners, refusals
before any charge.
"""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import sottovoce as sv
from seams import silent
from sklearn_checks import every_check
from sottovoce import Budgets, errors, estimator
from sottovoce.accounting import renyi
from sottovoce.estimators import erm_mechanism
from sottovoce.noise import source
from sottovoce.solvers import losses

rng0 = np.random.default_rng(0)
N = 1500
P = 3
X = rng0.random((N, P)) * [1, 10, 100]
ODDS = 5 * (X[:, 0] - 0.5) - 0.4 * (X[:, 1] - 5) + 0.3
CLASSES = np.where(rng0.random(N) < 1 / (1 + np.exp(-ODDS)), "yes", "no")
COST = 4 + 2 * X[:, 0] - 0.1 * X[:, 1] + rng0.normal(0, 0.1, N)
LIMITS = (np.zeros(P), np.array([1.0, 10.0, 100.0]))
BOUNDS = sv.Bounds(features=LIMITS, label=(2, 7))
EPSILON = np.repeat([0.1, 0.5, 2.0], 500)
OWNERS = np.arange(N) // 3
DELTA = 1e-5
KINDS = {
    "logistic": {"loss": "logistic", "classes": ("no", "yes")},
    "hinge": {"loss": "hinge", "classes": ("no", "yes"), "constraint": "box"},
    "squared": {"loss": "squared"},
    "huber": {"loss": "huber", "iterate": "last"},
    "sampled": {"loss": "logistic", "classes": ("no", "yes"), "sampling": 0.2, "steps": 30},
}
every_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())


def make(**options):
    return sv.ERM(**{"bounds": BOUNDS, "delta": DELTA, **options})


def label_of(options):
    if "classes" in options:
        return CLASSES
    return COST


# --- Laws -----------------------------------------------------------------------------------------


def test_equal_budgets_give_the_classical_noise():
    """One ε for n rows: σ of the gradient is L·√T·2/(n·μ), μ that of the Gaussian mechanism with
    (ε, δ).
    """
    for n, epsilon in ((100, 0.3), (12345, 3.0)):
        plan = make(loss="squared", steps=25, clip=0.5).plan(epsilon=epsilon, rows=n)
        mu = np.sqrt(2 * renyi.gaussian_rho(epsilon, DELTA) / 1e9)
        assert plan.noise["gradient_standard_deviation"] == pytest.approx(
            0.5 * 5 * 2 / (n * mu), rel=1e-6
        )
        assert plan.charges == pytest.approx(np.full(n, epsilon), rel=1e-4)


@every_kind
@pytest.mark.parametrize("groups", [None, OWNERS], ids=["rows", "people"])
def test_what_was_planned_is_what_was_spent_and_nobody_spends_more_than_granted(options, groups):
    if groups is None:
        granted = EPSILON
    else:
        granted = EPSILON[::3]
    if groups is not None:
        granted = granted.copy()
        granted[166] = EPSILON[498]
        granted[333] = EPSILON[999]
    if groups is None:
        epsilon = EPSILON
    else:
        epsilon = granted[groups]
    with silent():
        erm = make(**options).fit(X, label_of(options), epsilon=epsilon, groups=groups)
    plan = make(**options).plan(epsilon, groups, rows=N)
    assert np.array_equal(erm.guarantee_.epsilon, plan.charges)
    assert erm.release_.certificate.plan_digest == plan.digest
    assert np.all(plan.charges <= granted)
    assert plan.charges.min() == pytest.approx(
        0.1, rel=5e-3
    )  # the strictest gets theirs, and not the average
    assert plan.guarantee.delta == DELTA
    assert plan.guarantee.unit == ("row" if groups is None else "person")


def test_charges_stay_within_grants_in_whole_units_for_wild_budgets():
    epsilon = np.geomspace(1e-4, 50, 40)
    plan = make(loss="squared").plan(epsilon)
    worth = renyi.gaussian_rho(epsilon, DELTA)
    assert np.all(plan.guarantee.units <= worth)
    assert np.all(plan.charges <= epsilon)
    loud = plan.budgets.by_person(plan.weights.person) / plan.noise["integer_scale"]
    assert plan.guarantee.rho == pytest.approx(
        2 * plan.parameters["steps"] * loud**2, rel=1e-3, abs=1e-9
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(1e-3, 20), min_size=2, max_size=8), st.floats(1.01, 20), st.data())
def test_raising_one_budget_never_lowers_that_voice_nor_breaks_a_promise(epsilon, raised, data):
    who = data.draw(st.integers(0, len(epsilon) - 1))
    before = np.array(epsilon)
    after = np.array(epsilon)
    after[who] *= raised
    one, two = (make(loss="squared", steps=10).plan(e) for e in (before, after))
    person_weights = [
        p.budgets.by_person(p.weights.person)[who] / p.weights.total for p in (one, two)
    ]
    assert person_weights[1] >= person_weights[0] * (1 - 1e-6)
    assert np.all(two.charges <= after)


@every_kind
def test_permuting_people_permutes_nothing_else(options):
    if "sampling" in options:
        options = {**options, "sampling": 1.0}
    order = np.random.default_rng(5).permutation(N)
    epsilon = np.array([0.1, 0.5, 2.0])[OWNERS % 3]
    with silent():
        one = make(**options).fit(X, label_of(options), epsilon=epsilon, groups=OWNERS)
        two = make(**options).fit(
            X[order], label_of(options)[order], epsilon=epsilon[order], groups=OWNERS[order]
        )
    assert one.coef_ == pytest.approx(two.coef_, rel=1e-6)
    assert np.array_equal(one.guarantee_.epsilon, two.guarantee_.epsilon)


def test_the_expected_error_falls_when_everybody_grants_more_and_noise_shrinks_with_people():
    for options in KINDS.values():
        plans = [make(**options).plan(EPSILON[::25] * times) for times in (1, 2, 8)]
        errors_ = [plan.expected_error for plan in plans]
        assert errors_ == sorted(errors_, reverse=True)


def test_who_grants_nothing_is_not_read():
    epsilon = EPSILON.copy()
    epsilon[::10] = 0
    rows = X.copy()
    labels = COST.copy()
    rows[::10] = np.nan
    labels[::10] = np.inf
    budgets = Budgets.of(epsilon, zero="leave out")
    with silent():
        erm = make(loss="squared").fit(rows, labels, epsilon=budgets)
        again = make(loss="squared").fit(
            np.where(np.isnan(rows), 1e9, rows), np.nan_to_num(labels), epsilon=budgets
        )
    assert np.array_equal(erm.coef_, again.coef_)
    assert np.all(erm.guarantee_.epsilon[::10] == 0)


# --- Optima that others find ----------------------------------------------------------------------

PLENTY = {"epsilon": 1e6}
RECODED = np.column_stack([np.full(N, 0.5), X / LIMITS[1] - 0.5])


def risk_at(erm, loss, weights=None, y=None):
    intercept = float(np.ravel(erm.intercept_)[0])
    slopes = np.ravel(erm.coef_)
    values = loss.value(
        intercept + X @ slopes, np.where(CLASSES == "yes", 1.0, -1.0) if y is None else y
    )
    return float(np.average(values, weights=weights))


@pytest.mark.parametrize("constraint", ["ball", "box"])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_large_budgets_find_the_constrained_optimum(constraint, loss):
    signs = np.where(CLASSES == "yes", 1.0, -1.0)
    theta = cp.Variable(P + 1)
    margins = cp.multiply(signs, RECODED @ theta)
    if loss == "logistic":
        value = cp.logistic(-margins)
    else:
        value = cp.pos(1 - margins)
    if constraint == "ball":
        size = cp.norm2(theta)
    else:
        size = cp.norm_inf(theta)
    best = cp.Problem(cp.Minimize(cp.sum(value) / N), [size <= 2.0]).solve(solver=cp.CLARABEL)
    erm = make(
        loss=loss, classes=("no", "yes"), constraint=constraint, radius=2.0, clip=1.0, steps=400
    )
    with silent():
        erm.fit(X, CLASSES, **PLENTY)
    assert best * (1 - 1e-6) <= risk_at(erm, losses.LOSSES[loss]) <= best * 1.005
    inner = np.array(
        [2 * (float(erm.intercept_[0]) + erm.coef_[0] @ LIMITS[1] / 2), *(erm.coef_[0] * LIMITS[1])]
    )
    assert (np.linalg.norm(inner) if constraint == "ball" else np.abs(inner).max()) <= 2.0 * (
        1 + 1e-9
    )


def test_large_budgets_find_scikit_learns_logistic_regression():
    plain = LogisticRegression(C=np.inf, max_iter=5000, tol=1e-8).fit(X / LIMITS[1], CLASSES)
    erm = make(loss="logistic", classes=("no", "yes"), clip=1.0, steps=2000, radius=50.0).fit(
        X, CLASSES, **PLENTY
    )
    assert erm.coef_[0] * LIMITS[1] == pytest.approx(plain.coef_[0], abs=0.02)
    assert erm.predict_proba(X)[:, 1] == pytest.approx(
        plain.predict_proba(X / LIMITS[1])[:, 1], abs=0.01
    )
    assert erm.score(X, CLASSES) == pytest.approx(plain.score(X / LIMITS[1], CLASSES), abs=0.005)


def test_several_rows_a_person_give_the_weighted_optimum():
    """Rows of person l weigh W_l/s_l; with A → ∞ all rows weigh the same, with A = 0 people do."""
    counts = np.random.default_rng(1).integers(1, 9, 400)
    owner = np.repeat(np.arange(400), counts)[:N]
    plan = make(loss="squared", clip=2.0, steps=600).plan(1e6, owner)
    weights = (plan.budgets.by_person(plan.weights.row) / plan.weights.total)[owner]
    erm = make(loss="squared", clip=2.0, steps=600).fit(X, COST, epsilon=1e6, groups=owner)
    root = np.sqrt(weights)
    best = np.linalg.lstsq(RECODED * root[:, None], (COST - 4.5) / 2.5 * root, rcond=None)[0]
    assert erm.predict(X) == pytest.approx(4.5 + 2.5 * RECODED @ best, abs=0.02)


def test_modest_budgets_are_worth_something():
    for options, least in (
        (KINDS["logistic"], 0.65),
        (KINDS["hinge"], 0.65),
        (KINDS["squared"], 0.5),
        (KINDS["huber"], 0.5),
    ):
        assert (
            make(**options).fit(X, label_of(options), epsilon=EPSILON).score(X, label_of(options))
            > least
        )


class Quantile:
    """Somebody's own loss: the pinball loss of the 90 % quantile."""

    def value(self, prediction, label):
        return np.maximum(0.9 * (label - prediction), 0.1 * (prediction - label))

    def derivative(self, prediction, label):
        return np.where(label > prediction, -0.9, 0.1)


def test_a_loss_of_ones_own():
    erm = make(loss=Quantile(), steps=300, clip=0.9).fit(X, COST, epsilon=1e3)
    assert 0.85 <= np.mean(erm.predict(X) >= COST) <= 0.95
    assert erm.release_.parameters["loss"] == "Quantile"
    assert is_regressor(erm)


# --- Manners --------------------------------------------------------------------------------------


@every_check
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_scikit_learns_checks(check, loss):
    check("ERM", make(loss=loss))


@every_kind
def test_releases_pickles_and_clones(options):
    erm = make(**options).fit(X, label_of(options), epsilon=EPSILON)
    again = sv.ERM.from_release(sv.Release.from_json(erm.release_.to_json()))
    assert np.array_equal(again.predict(X), erm.predict(X))
    assert np.array_equal(pickle.loads(pickle.dumps(erm)).predict(X), erm.predict(X))
    assert not hasattr(clone(erm), "coef_")
    assert is_classifier(erm) == ("classes" in options)
    assert is_regressor(erm) == ("classes" not in options)
    assert hasattr(erm, "predict_proba") == (options["loss"] == "logistic")
    assert hasattr(erm, "decision_function") == ("classes" in options)
    if "classes" in options:
        assert np.array_equal(
            erm.predict(X), erm.classes_[(erm.decision_function(X) > 0).astype(int)]
        )
        assert erm.decision_function(X) == pytest.approx(
            float(erm.intercept_[0]) + X @ erm.coef_[0]
        )
    else:
        assert erm.predict(X) == pytest.approx(erm.intercept_ + X @ erm.coef_)


@every_kind
def test_plans_and_releases_never_name_an_epsilon_without_its_delta(options):
    erm = make(**options).fit(X, label_of(options), epsilon=EPSILON)
    plan = make(**options).plan(EPSILON)
    promise = json.loads(erm.release_.to_json())["guarantee"]
    assert promise["delta"] == DELTA
    assert promise["currency"] == ("epsilon, delta" if "sampling" in options else "zCDP rho")
    assert promise["epsilon"]["most"] <= 2.0
    for text in (plan.describe(), erm.release_.explain()):
        assert all(word in text for word in ("δ = 1e-05", "row", "replace", "exact arithmetic"))
        assert "pure ε" not in text
        assert ("ρ of zCDP" in text) == ("sampling" not in options)


def test_nothing_unnoised_is_kept():
    """Two data sets, the same noisy sums: the fitted objects are equal, byte by byte."""
    pickles = []
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    clock = type("Clock", (), {"now": staticmethod(lambda zone: noon)})
    for labels in (COST, COST[::-1]):
        with pytest.MonkeyPatch.context() as patch:
            from sottovoce.estimators.erm_mechanism import Descent

            patch.setattr(estimator, "datetime", clock)  # a release has its second

            patch.setattr(
                Descent, "exact_sum", lambda self, people, theta, chosen=None: np.ones(len(theta))
            )
            with silent():
                erm = make(loss="squared").fit(X, labels, epsilon=EPSILON)
        pickles.append(pickle.dumps(vars(erm)))
    assert pickles[0] == pickles[1]
    assert set(vars(erm)) - set(erm.get_params()) == {
        "release_",
        "guarantee_",
        "_recoding",
        "n_features_in_",
        "intercept_",
        "coef_",
    }


@pytest.mark.parametrize(
    "form",
    [
        np.asarray,
        pd.DataFrame,
        pl.DataFrame,
        list,
        lambda x: pa.table({f"c{j}": x[:, j] for j in range(P)}),
    ],
)
def test_every_kind_of_table_is_read(form):
    if form is list:
        data = X.tolist()
    else:
        data = form(X)
    with silent():
        erm = make(loss="squared", steps=20).fit(data, list(COST), epsilon=1.0)
        plain = make(loss="squared", steps=20).fit(X, COST, epsilon=1.0)
    assert np.array_equal(erm.coef_, plain.coef_)
    assert np.array_equal(erm.predict(data), plain.predict(X))


def test_a_schema_with_factors_and_classes():
    schema = sv.Schema.loads("""
        label = "bought"
        [columns.bought]
        kind = "factor"
        levels = ["no", "yes"]
        [columns.age]
        kind = "number"
        low = 0
        high = 1
        [columns.region]
        kind = "factor"
        levels = ["north", "south", "west"]
    """)
    table = pd.DataFrame(
        {"age": X[:, 0], "region": np.array(["north", "south", "west"])[np.arange(N) % 3]}
    )
    erm = sv.ERM(bounds=schema, delta=DELTA).fit(table, CLASSES, epsilon=3.0)
    assert erm.classes_.tolist() == ["no", "yes"]
    assert len(erm.coef_[0]) == 4
    assert erm.score(table, CLASSES) > 0.6


def test_pipelines_and_metadata_routing():
    with sklearn.config_context(enable_metadata_routing=True):
        erm = make(loss="squared").set_fit_request(epsilon=True, groups=True)
        pipe = make_pipeline(FunctionTransformer(), erm).fit(
            X, COST, epsilon=EPSILON, groups=np.arange(N)
        )
    assert pipe.predict(X).shape == (N,)
    assert len(pipe[-1].guarantee_.epsilon) == N


def test_progress_tells_the_number_of_steps_and_nothing_else(capsys):
    seen = []
    make(loss="squared", steps=7).fit(
        X, COST, epsilon=1.0, progress=lambda *told: seen.append(told)
    )
    assert seen == [(step,) for step in range(1, 8)]
    make(loss="squared", steps=7).fit(X, COST, epsilon=1.0, progress=True)
    told = capsys.readouterr()
    assert told.err == ""
    assert not any(word in told.out for word in ("loss", "gradient", "theta"))


def test_an_interrupted_fit_keeps_nothing():
    def interrupt(step):
        if step == 3:
            raise KeyboardInterrupt

    erm = make(loss="squared", steps=50)
    with pytest.raises(KeyboardInterrupt):
        erm.fit(X, COST, epsilon=1.0, progress=interrupt)
    assert set(vars(erm)) == set(erm.get_params())


def test_baselines_go_around_it():
    uniform = sv.Uniform(make(loss="squared")).fit(X, COST, epsilon=EPSILON)
    assert uniform.guarantee_.epsilon.max() <= 0.1
    assert uniform.predict(X).shape == (N,)
    limited = sv.Limited(make(loss="squared"), rows=2).fit(X, COST, epsilon=1.0, groups=OWNERS)
    assert np.all(limited.guarantee_.epsilon <= 1.0)
    assert limited.guarantee_.delta == DELTA
    session = sv.Session()
    session.grant(dict.fromkeys(OWNERS.tolist(), 1.0))
    with pytest.raises(errors.UnknownPeople):
        session.release(make(loss="squared"), X, COST, groups=OWNERS, epsilon=0.5, key="a")
    session.grant(dict.fromkeys(OWNERS.tolist(), 0.1), currency="zCDP rho")
    promised = session.release(
        make(loss="squared"), X, COST, groups=OWNERS, epsilon=0.5, key="a"
    ).guarantee["rho"]
    assert session.balance(OWNERS[0], "zCDP rho, replace") == pytest.approx(0.1 - promised["most"])
    assert session.balance(OWNERS[0]) == 1.0


# --- Refusals, before anything is charged or drawn ------------------------------------------------


class NoNoise:
    def bytes(self, count):
        raise AssertionError("randomness was drawn for a refused request")

    integers = bytes


def missing(values):
    return np.where(np.arange(N) == 7, np.nan, values)


PARAMETERS = {
    "an unknown loss": {"loss": "best"},
    "a loss without a derivative": {"loss": object()},
    "an unknown constraint": {"constraint": "cone"},
    "an unknown iterate": {"iterate": "first"},
    "no δ": {"delta": None},
    "δ of zero": {"delta": 0.0},
    "δ of one": {"delta": 1.0},
    "δ that is no number": {"delta": np.nan},
    "δ as text": {"delta": "small"},
    "a radius of zero": {"radius": 0},
    "an infinite radius": {"radius": np.inf},
    "a negative clip": {"clip": -1.0},
    "a clip that vanishes": {"clip": 1e-300},
    "no steps": {"steps": 0},
    "half a step": {"steps": 2.5},
    "too many steps": {"steps": 10**7},
    "a rate of zero": {"sampling": 0.0},
    "a rate above one": {"sampling": 1.5},
    "a rate as text": {"sampling": "half"},
    "a δ too small to be composed": {"sampling": 0.5, "delta": 1e-11},
}
INPUT = {
    "bounds missing": ({"bounds": None}, {}, errors.InvalidBounds),
    "bounds of features missing": ({"bounds": sv.Bounds(label=(2, 7))}, {}, errors.InvalidBounds),
    "bounds of the label missing": (
        {"bounds": sv.Bounds(features=LIMITS)},
        {},
        errors.InvalidBounds,
    ),
    "NaN in a feature": (
        {},
        {"X": np.column_stack([missing(X[:, 0]), X[:, 1:]])},
        errors.MissingValues,
    ),
    "infinity in a feature": ({}, {"X": np.where(X > 99, np.inf, X)}, errors.MissingValues),
    "NaN in the label": ({}, {"y": missing(COST)}, errors.MissingValues),
    "text in the label": ({}, {"y": CLASSES}, errors.WrongType),
    "too few labels": ({}, {"y": COST[1:]}, errors.UnequalLengths),
    "too few owners": ({}, {"groups": OWNERS[1:]}, errors.UnequalLengths),
    "one row": ({}, {"X": X[:1], "y": COST[:1], "epsilon": 1.0}, errors.TooFewRows),
    "zero ε": ({}, {"epsilon": 0.0}, errors.InvalidBudget),
    "negative ε": ({}, {"epsilon": -1.0}, errors.InvalidBudget),
    "no ε": ({}, {"epsilon": None}, errors.InvalidBudget),
    "nobody heard": ({"delta": 1e-12}, {"epsilon": 1e-6}, errors.InvalidBudget),
    "an undeclared class": (
        {"loss": "logistic", "classes": ("no", "perhaps")},
        {"y": CLASSES},
        errors.InvalidData,
    ),
    "one class": (
        {"loss": "logistic", "classes": ("no",)},
        {"y": CLASSES},
        errors.InvalidParameter,
    ),
    "three classes": (
        {"loss": "hinge", "classes": ("no", "yes", "so")},
        {"y": CLASSES},
        errors.InvalidParameter,
    ),
    "another number of columns": ({}, {"X": X[:, :2]}, errors.InvalidBounds),
}


@pytest.mark.parametrize("options", PARAMETERS.values(), ids=PARAMETERS.keys())
def test_bad_parameters_are_refused_with_a_way_out(options):
    with source._seam(NoNoise()), pytest.raises(errors.InvalidParameter) as caught:
        make(**{"loss": "squared", **options}).fit(X, COST, epsilon=1.0)
    assert caught.value.found
    assert caught.value.remedy


@pytest.mark.parametrize(("options", "given", "error"), INPUT.values(), ids=INPUT.keys())
def test_bad_input_is_refused_with_a_way_out_and_without_a_value(options, given, error):
    data = {"X": X, "y": COST, "epsilon": 1.0, **given}
    with source._seam(NoNoise()), pytest.raises(error) as caught:
        make(**{"loss": "squared", **options}).fit(**data)
    assert caught.value.found
    assert caught.value.remedy
    assert not any(str(number) in str(caught.value) for number in COST[:20])


def test_edges_get_an_answer():
    for epsilon in (0.01, 1e6):
        erm = make(loss="squared", steps=5).fit(X, COST, epsilon=epsilon)
        assert np.isfinite(erm.coef_).all()
        assert np.all(erm.guarantee_.epsilon <= epsilon)
    two = make(loss="squared", steps=5).fit(X[:2], COST[:2], epsilon=1.0, groups=["only", "only"])
    assert two.guarantee_.epsilon == pytest.approx([1.0], rel=1e-6)
    constant = sv.ERM(
        "squared", bounds=sv.Bounds(features=([3.0], [3.0]), label=(0, 1)), delta=DELTA
    )
    assert constant.fit(np.full((50, 1), 3.0), np.full(50, 0.25), epsilon=50.0).predict(
        [[3.0]]
    ).shape == (1,)
    beyond = make(loss="squared", steps=5).fit(X * 1e9, COST * 1e9, epsilon=1.0)
    assert np.isfinite(beyond.coef_).all()


def test_a_way_is_chosen_from_public_numbers_and_stops_where_noise_would_win():
    shape = losses.LogisticLoss.shape
    ways = [
        erm_mechanism.choose_schedule(shape, erm_mechanism.RowSizes(10), noise, None)
        for noise in (1.0, 0.1, 0.01, 0.001)
    ]
    lengths = [way.steps * way.stride for way in ways]
    assert lengths == sorted(lengths)
    assert all(erm_mechanism.MIN_STEPS <= way.steps <= erm_mechanism.MAX_STEPS for way in ways)
    assert erm_mechanism.count_sampled_steps(0.5) == erm_mechanism.MIN_SAMPLED_STEPS
    assert erm_mechanism.count_sampled_steps(1e-6) == erm_mechanism.MAX_SAMPLED_STEPS
