"""Posterior samples: limits, laws, the way into the ball, manners, and what they refuse."""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from decimal import Decimal, localcontext

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_triangular
from scipy.special import ndtri
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.linear_model import Ridge

import sottovoce as sv
from sklearn_checks import every_check
from sottovoce import errors
from sottovoce.estimators import posterior, posterior_mechanism
from sottovoce.estimators.posterior_mechanism import FixedRidgeAccountant
from sottovoce.noise import continuous, source

N = 400
P = 3
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, P))
X /= np.linalg.norm(X, axis=1, keepdims=True).max()
Y = np.clip(X @ [0.8, -0.5, 0.2] + 0.1 * RNG.normal(size=N), -1, 1)
EPSILON = np.resize([0.1, 0.5, 2.0], N)
BALL = sv.Bounds(norm=1.0, label=(-1, 1))


def fixed(**options):
    return sv.PosteriorSample(**{"gamma": 2.0, "alpha": 20.0, "bounds": BALL, **options})


def adaptive(**options):
    return sv.AdaptivePosteriorSample(**{"epsilon": 2.0, "bounds": BALL, **options})


both = pytest.mark.parametrize("make", [fixed, adaptive])


@contextmanager
def noiseless():
    """Gaussian noise is 0: only rounding to the public grid, at most 2⁻²¹ of the noise's deviation,
    is left.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(continuous, "draw_standard_normals", lambda size: [0] * size)
        yield


# ---------------------------------------------------------------- limits


def test_without_noise_it_is_the_ridge_solution():
    with noiseless():
        found = fixed(alpha=3.0).fit(X, Y)
    plain = Ridge(alpha=3.0, fit_intercept=False).fit(X, Y)
    half = 0.5001 * found.release_.grid["answer_step"]
    assert found.coef_ == pytest.approx(plain.coef_, abs=half)
    assert found.intercept_ == 0.0
    assert found.predict(X) == pytest.approx(plain.predict(X), abs=half * np.sqrt(P))


def test_a_concentrated_posterior_is_close_to_the_ridge_solution():
    found = fixed(gamma=4e6, alpha=3.0).fit(X, Y)  # 1e-3 is ten deviations of a coefficient
    assert found.coef_ == pytest.approx(
        Ridge(alpha=3.0, fit_intercept=False).fit(X, Y).coef_, abs=1e-3
    )
    assert found.guarantee_.epsilon.min() > 1000
    personal = fixed(gamma=1.0, alpha=3.0).fit(X, Y, epsilon=1e6)
    assert personal.coef_ == pytest.approx(
        Ridge(alpha=1e-9, fit_intercept=False).fit(X, Y).coef_, abs=0.1
    )


def test_weights_count_as_in_a_weighted_regression():
    with noiseless():
        found = fixed().fit(X, Y, epsilon=EPSILON)
    plan = fixed().plan(epsilon=EPSILON, n_features=P)
    w = (plan.weights.row * plan.parameters["weight_unit"])[plan.budgets.codes]
    plain = Ridge(alpha=20.0, fit_intercept=False).fit(X, Y, sample_weight=w)
    assert found.coef_ == pytest.approx(
        plain.coef_, abs=0.5001 * found.release_.grid["answer_step"]
    )


def test_the_adaptive_sample_does_not_regularise_where_nothing_is_missing():
    many = np.repeat(X, 60, axis=0)
    labels = np.repeat(Y, 60)
    with noiseless():
        found = adaptive(condition=20.0).fit(many, labels)
    assert found.regularisation_ == 0.0
    assert found.coef_ == pytest.approx(
        Ridge(alpha=1e-9, fit_intercept=False).fit(many, labels).coef_, abs=1e-6
    )
    poor = np.column_stack([many[:, 0], np.zeros(len(many))])
    with noiseless():
        assert adaptive().fit(poor, labels).regularisation_ > found.release_.noise["margin"]


# ---------------------------------------------------------------- the draw


def test_the_covariance_of_the_draw_is_that_of_the_posterior():
    """Each coordinate of √γ·Lᵀ(θ̃ − θ̂) is N(0, 1): two-sided, false alarms below 10⁻⁶, and L⁻¹ for
    L⁻ᵀ is caught.
    """
    H = np.array([[40.0, 30.0, 5.0], [30.0, 30.0, -3.0], [5.0, -3.0, 12.0]])
    L = np.linalg.cholesky(H)
    size = 4000
    limits = chi2.ppf([1e-7, 1 - 1e-7], size)

    def accepted(noise, gamma=3.0):
        squares = (gamma * (noise @ L) ** 2).sum(axis=0)
        return bool(np.all((squares > limits[0]) & (squares < limits[1])))

    right = np.array(
        [
            posterior_mechanism.draw_sample(H - 2 * np.eye(3), np.zeros(3), 2.0, 3.0).astype(float)
            for _ in range(size)
        ]
    )
    z = (
        (np.array(continuous.draw_standard_normals(3 * size), dtype=object) / source.ONE)
        .astype(float)
        .reshape(3, size)
    )
    lower = solve_triangular(L, z, lower=True).T / np.sqrt(3.0)  # L⁻¹z
    assert accepted(right)
    assert not accepted(lower)
    assert not accepted(right, gamma=3.0 * 1.21)
    assert not accepted(right, gamma=3.0 / 1.21)


@pytest.mark.parametrize("size", [1, 2, 5, 30])
def test_the_long_decimals_solve_what_they_say(size):
    """Against LAPACK, and against themselves: LLᵀ is H to 100 digits."""
    rng = np.random.default_rng(size)
    H = (lambda A: A @ A.T + np.eye(size))(rng.normal(size=(size, size)))
    b = rng.normal(size=size)
    with localcontext(source.DECIMALS):
        exact = source.to_decimals(H)
        L = posterior_mechanism.factorise_decimals(exact)
        assert max(abs(x) for x in (L @ L.T - exact).ravel()) < Decimal("1e-100")
        x = posterior_mechanism.solve_lower(L, source.to_decimals(b))
    assert L.astype(float) == pytest.approx(np.linalg.cholesky(H), rel=1e-9, abs=1e-12)
    assert x.astype(float) == pytest.approx(
        solve_triangular(np.linalg.cholesky(H), b, lower=True), rel=1e-9, abs=1e-9
    )


def test_the_regularisation_follows_from_the_published_eigenvalue():
    """λ_n = max(0, h + margin − λ̃) with the rounded λ̃, and the margin holds half a step of it and
    LAPACK's error.
    """
    found = adaptive().fit(X, Y)
    noise, spread = found.release_.noise, found.release_.noise["eigenvalue_standard_deviation"]
    step = found.release_.grid["eigenvalue_step"]
    assert found.noisy_eigenvalue_ == np.rint(found.noisy_eigenvalue_ / step) * step
    assert found.regularisation_ == max(
        0.0, noise["floor"] + noise["margin"] - found.noisy_eigenvalue_
    )
    plan = adaptive().plan(epsilon=2.0, rows=N, n_features=P)
    total = plan.weights.total * plan.parameters["weight_unit"]
    loudest = plan.weights.person.max() * plan.parameters["weight_unit"]
    missed = plan.parameters["delta"] * (1 - 2.0**-30) / 10
    without = loudest + spread * ndtri(1 - missed)
    assert noise["margin"] - without == pytest.approx(
        2.0**-21 * spread + 2.0**-40 * total, rel=1e-3
    )
    assert step / 2 <= 2.0**-21 * spread


@both
def test_a_delta_below_the_unit_of_the_books_is_refused(make):
    with pytest.raises(errors.InvalidParameter, match="δ is smaller than 1e-15") as caught:
        make(delta=0.9e-15).plan(epsilon=1.0, rows=N, n_features=P)
    assert "Take a δ of 1e-15 or more" in str(caught.value)
    assert make(delta=1e-15).plan(epsilon=1.0, rows=N, n_features=P).guarantee.delta == 1e-15


def test_what_could_not_be_computed_well_enough_is_refused_before_anything_is_read(monkeypatch):
    """The condition of 10³⁰ is far beyond what any ε below a billion allows, so the limit is
    lowered here.
    """
    with pytest.raises(errors.InvalidParameter, match="too many columns"):
        fixed().plan(epsilon=1.0, rows=N, n_features=1025)
    assert posterior.MOST_CONDITION == 1e30
    monkeypatch.setattr(posterior, "MOST_CONDITION", 10.0)
    with pytest.raises(errors.InvalidParameter, match="next to no regularisation"):
        fixed().plan(rows=N, n_features=P)


# ---------------------------------------------------------------- laws


@both
def test_equal_budgets_give_equal_weights(make):
    plan = make().plan(epsilon=np.full(N, 1.0), n_features=P)
    assert np.all(plan.weights.row == plan.weights.row[0])
    assert plan.charges == pytest.approx(1.0, rel=1e-4)


def test_weight_one_is_what_a_grant_of_its_price_buys():
    """The classical sample, all weights one, has a price; who grants that price gets weight one."""
    price = fixed().plan(rows=N, n_features=P).charges
    plan = fixed().plan(epsilon=price, n_features=P)
    assert plan.weights.row[0] * plan.parameters["weight_unit"] == pytest.approx(1.0, rel=1e-3)


def test_the_adaptive_sample_with_equal_budgets_has_the_classical_scales():
    """γ of the table in docs/theory/posterior.md; the printed ones are 0.103, 0.0411 and 0.0286."""
    for n, d, k, epsilon, simple, renyi in (
        (10_000, 10, 2.0, 1.0, 0.5318, 0.7361),
        (1000, 5, 2.0, 1.0, 0.1514, 0.2138),
        (100_000, 20, 3.0, 0.5, 0.1925, 0.2664),
    ):
        for calibration, gamma in (("simple", simple), ("renyi", renyi)):
            ask = adaptive(epsilon=epsilon, condition=k, calibration=calibration)
            noise = ask.plan(rows=n, n_features=d).noise
            assert noise["gamma"] == pytest.approx(gamma, rel=1e-3)
            assert noise["floor"] == pytest.approx(n / (d * k))


budgets = st.lists(st.floats(0.01, 50), min_size=2, max_size=10)


@both
@settings(max_examples=8, deadline=None)
@given(granted=budgets, who=st.integers(0, 9), times=st.floats(1.05, 10))
def test_charges_stay_within_grants_and_raising_one_grant_harms_nobody(make, granted, who, times):
    granted, who = np.array(granted), who % len(granted)
    people = np.repeat(np.arange(len(granted)), 1 + np.arange(len(granted)) % 3)

    def plan(epsilon):
        return make().plan(epsilon=dict(enumerate(epsilon.tolist())), groups=people, n_features=P)

    before = plan(granted)
    after = plan(np.where(np.arange(len(granted)) == who, granted * times, granted))
    for p, given_ in ((before, before.budgets), (after, after.budgets)):
        assert np.all(p.guarantee.units <= given_.by_person(given_.kinds.epsilon))
    shares = [p.weights.person[p.budgets.codes] / p.weights.total for p in (before, after)]
    assert shares[1][who] >= shares[0][who] * (1 - 1e-4)
    if (
        before.weights.person.max() < before.weights.total / 4
    ):  # nobody rules: then everybody's grant is used
        assert np.all(before.charges >= 0.99 * granted)
    if make is fixed:
        loud = [
            p.weights.person[p.budgets.codes] * p.parameters["weight_unit"] for p in (before, after)
        ]
        assert loud[1][who] >= loud[0][who] * (1 - 1e-4)
        assert np.all(
            loud[1] <= loud[0] * np.where(np.arange(len(granted)) == who, times**2 * 2, 1 + 1e-4)
        )


@both
def test_permuting_people_permutes_nothing_else(make):
    order = RNG.permutation(N)
    plan, permuted = (
        make().plan(epsilon=EPSILON, n_features=P),
        make().plan(epsilon=EPSILON[order], n_features=P),
    )
    assert np.array_equal(permuted.charges, plan.charges[order])
    assert permuted.noise == plan.noise
    with noiseless():
        one = make().fit(X, Y, epsilon=EPSILON)
        two = make().fit(X[order], Y[order], epsilon=EPSILON[order])
    assert two.coef_ == pytest.approx(one.coef_, rel=1e-9)


@both
@pytest.mark.parametrize(
    "options", [{}, {"fit_intercept": True}, {"bounds": sv.Bounds(features=(-1, 1), label=(-1, 1))}]
)
def test_what_was_planned_is_what_was_spent(make, options):
    ask = make(**options)
    plan = ask.plan(epsilon=EPSILON, n_features=P)
    fitted = clone(ask).fit(X, Y, epsilon=EPSILON)
    assert np.array_equal(plan.charges, fitted.guarantee_.epsilon)
    assert plan.digest == fitted.release_.certificate.plan_digest
    assert np.all(plan.charges <= EPSILON)
    told = plan.describe() + fitted.release_.explain()
    assert "zero out" in told
    assert "δ = 1e-06" in told
    assert "left out" in told
    assert plan.expected_error > 0


def test_the_expected_error_falls_when_everybody_grants_more():
    for make in (fixed, adaptive):
        errors_ = [
            make().plan(epsilon=EPSILON * times, n_features=P).expected_error for times in (1, 2, 4)
        ]
        assert errors_[0] > errors_[1] > errors_[2]


@both
def test_many_rows_a_person(make):
    people = np.arange(N) // 4
    fitted = make().fit(X, Y, epsilon=dict.fromkeys(range(N // 4), 1.0), groups=people)
    assert fitted.guarantee_.unit == "person"
    assert fitted.guarantee_.epsilon == pytest.approx(1.0, rel=1e-4)
    assert len(make().fit(X, Y, groups=people).guarantee_.epsilon) == N // 4
    alone = fixed().fit(X, Y).guarantee_.epsilon.max()
    assert fixed().fit(X, Y, groups=people).guarantee_.epsilon.min() > 2 * alone


def test_very_many_different_grants():
    granted = np.exp(np.random.default_rng(0).uniform(-3, 2, 5000))
    plan = fixed(alpha=50.0).plan(epsilon=granted, n_features=P)
    assert np.all(plan.charges <= granted)
    assert np.all(plan.charges >= 0.97 * granted)


def test_tiny_and_huge_grants_live_together():
    granted = np.array([1e-9, 1e-4, 1.0, 1e3] * 5)
    for make in (fixed, adaptive):
        plan = make().plan(epsilon=granted, n_features=P)
        assert np.all(plan.charges <= granted)
        assert np.all(plan.weights.row >= 0)


# ---------------------------------------------------------------- the way into the ball


def test_rows_beyond_the_norm_are_scaled_back_one_by_one():
    long = X.copy()
    long[::7] *= 50.0
    unit = X.copy()
    unit[::7] /= np.linalg.norm(X[::7], axis=1, keepdims=True)
    wild = np.where(np.arange(N) % 5 == 0, 30.0, Y)
    with noiseless():
        one = fixed().fit(long, wild)
        two = fixed().fit(unit, np.clip(wild, -1, 1))
    assert one.coef_ == pytest.approx(two.coef_, rel=1e-9)
    assert posterior_mechanism.shorten_rows(
        np.array([[3e200, 4e200], [0.0, 0.0]]), 1.0
    ) == pytest.approx(np.array([[0.6, 0.8], [0.0, 0.0]]))


@pytest.mark.parametrize(
    ("norm", "label"), [(5.0, (-1, 1)), (1.0, (-40, 40)), (0.3, (0, 7)), (2.0, (3, 9))]
)
def test_other_units_give_the_same_model_in_those_units(norm, label):
    size = max(abs(label[0]), abs(label[1]))
    y = np.clip(Y * size, *label)
    with noiseless():
        found = fixed(bounds=sv.Bounds(norm=norm, label=label)).fit(X * norm, y)
        plain = fixed().fit(X, y / size)
    assert found.coef_ == pytest.approx(plain.coef_ * size / norm, rel=1e-9)
    assert found.intercept_ == 0.0
    assert np.array_equal(found.guarantee_.epsilon, plain.guarantee_.epsilon)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(
    "bounds",
    [
        BALL,
        sv.Bounds(norm=4.0, label=(0, 9)),
        sv.Bounds(features=(-1, 1), label=(-1, 1)),
        sv.Bounds(features=([0, -5, 2], [1, 5, 30]), label=(-2, 5)),
        sv.Bounds(features=(-1, 1), norm=0.5, label=(-1, 1)),
    ],
    ids=["ball", "norm 4", "box", "odd box", "both"],
)
def test_no_row_is_longer_than_one_and_predictions_come_back(bounds, fit_intercept):
    rng = np.random.default_rng(5)
    raw = rng.normal(0, 8, (60, P))
    y = rng.normal(0, 20, 60)
    ask = fixed(bounds=bounds, fit_intercept=fit_intercept)
    rows = ask.read_arrays(raw, y, epsilon=None, groups=None)
    batch = next(iter(rows.engine._batches(("features",), ())))
    phi = rows.features.matrix(batch)
    assert np.all(np.linalg.norm(phi, axis=1) <= 1)
    assert np.linalg.norm(phi, axis=1).max() > 0.7
    assert phi.shape[1] == P + fit_intercept
    with noiseless():
        fitted = ask.fit(raw, y)
    theta = np.array(fitted.release_.value["theta"])
    inside = raw * 0.02
    if bounds.features is not None and bounds.norm is None:
        inside = np.clip(raw, *bounds.features)
    rows = ask.read_arrays(inside, y, epsilon=None, groups=None)
    phi = rows.features.matrix(next(iter(rows.engine._batches(("features",), ()))))
    middle, half = posterior_mechanism.get_label_scale(bounds.label, fit_intercept)
    expected = np.clip(middle + half * (phi @ theta), *bounds.label)
    assert fitted.predict(inside) == pytest.approx(expected, rel=1e-8, abs=1e-8)


def test_a_schema_with_a_factor():
    schema = sv.Schema.loads(
        'label = "y"\n[columns.y]\nkind = "number"\nlow = 0\nhigh = 10\nmissing = 5\n'
        '[columns.x]\nkind = "number"\nlow = 0\nhigh = 1\n'
        '[columns.f]\nkind = "factor"\nlevels = ["a", "b", "c"]'
    )
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.random(900), "f": rng.choice(["a", "b", "c", "other"], 900)})
    y = 2 + 3 * table["x"] + table["f"].map({"a": 0.0, "b": 2.0, "c": 4.0, "other": 2.0})
    y[0] = np.nan  # the schema declares what stands for it
    with noiseless():
        fitted = fixed(bounds=schema, alpha=1.0, fit_intercept=True).fit(table, y)
    assert fitted.score(table[1:], y[1:]) > 0.95
    assert list(fitted.release_.value["coefficients"]) == ["x", "f=a", "f=b", "f=c"]


# ---------------------------------------------------------------- promises


def test_a_zero_out_promise_never_adds_to_a_replace_one():
    one = fixed().fit(X, Y, epsilon=0.5).guarantee_
    assert (one.neighbours, one.currency, one.delta, one.arithmetic) == (
        "zero out",
        "epsilon, delta",
        1e-6,
        "floating",
    )
    twice = one + one
    assert twice.epsilon == pytest.approx(2 * one.epsilon)
    assert twice.delta == 2e-6
    for other in (
        sv.Ridge(bounds=sv.Bounds(features=(-1, 1), label=(-1, 1)))
        .fit(X, Y, epsilon=0.5)
        .guarantee_,
        sv.Ridge(bounds=sv.Bounds(features=(-1, 1), label=(-1, 1)), method="statistics")
        .plan(0.5, rows=N, n_features=P)
        .guarantee,
    ):
        with pytest.raises(errors.IncompatibleGuarantees):
            one + other
        with pytest.raises(errors.IncompatibleGuarantees):
            other + one
    with pytest.raises(errors.IncompatibleGuarantees):
        one.as_zcdp()


@both
def test_a_session_counts_both_epsilon_and_delta_in_accounts_of_their_own(make):
    session = sv.Session()
    people = [f"p{i}" for i in range(N)]
    session.grant(dict.fromkeys(people, 1.0))
    with pytest.raises(errors.InvalidParameter):  # what is left of a pure ε is no price for this
        session.release(make(), X, Y, groups=people, key="one")
    with pytest.raises(errors.UnknownPeople):
        session.release(make(), X, Y, groups=people, key="one", epsilon=0.5)
    session.grant(
        dict.fromkeys(people, 1.0), currency="epsilon, delta", neighbours="zero out", delta=1.5e-6
    )
    promise = session.release(make(), X, Y, groups=people, key="one", epsilon=0.5).guarantee
    assert session.balance("p0") == 1.0
    left = session.balance("p0", "delta, zero out")
    assert left == pytest.approx(1.5e-6 - promise["delta"], abs=1e-15)
    with pytest.raises(errors.BudgetExceeded):  # nobody has δ left for another, though ε is there
        session.release(make(), X, Y, groups=people, key="two", epsilon=0.1)
    session.verify()


# ---------------------------------------------------------------- what it refuses


@pytest.mark.parametrize("wrong", [0, 1, -1e-6, 2.0, None, float("nan"), "small"])
@both
def test_a_delta_must_lie_between_0_and_1(make, wrong):
    with pytest.raises(errors.InvalidParameter, match="δ"):
        make(delta=wrong).fit(X, Y)


@pytest.mark.parametrize("name", ["gamma", "alpha"])
@pytest.mark.parametrize("wrong", [0, 0.0, -1.0, float("inf"), float("nan"), None, "1"])
def test_without_regularisation_there_is_no_promise(name, wrong):
    with pytest.raises(errors.InvalidParameter, match="no promise"):
        fixed(**{name: wrong}).fit(X, Y)
    with pytest.raises(errors.InvalidParameter):
        fixed(**{name: wrong}).plan(rows=N, n_features=P)


def test_a_promise_beyond_all_meaning_is_refused():
    with pytest.raises(errors.InvalidParameter, match="billion"):
        fixed(gamma=1e12, alpha=0.01).fit(X, Y)


@pytest.mark.parametrize(
    "options",
    [
        {"calibration": "best"},
        {"condition": 0},
        {"share": 0},
        {"share": 1.0},
        {"floor": -1.0},
        {"floor": "h"},
    ],
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(errors.InvalidParameter):
        adaptive(**options).fit(X, Y)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("inf"), float("nan"), 1e9])
@both
def test_budgets_that_are_none_are_refused(make, wrong):
    with pytest.raises(errors.InvalidBudget):
        make().fit(X, Y, epsilon=wrong)
    with pytest.raises(errors.InvalidBudget):
        adaptive(epsilon=wrong).fit(X, Y)


@pytest.mark.parametrize("calibration", ["renyi", "simple"])
def test_a_floor_that_is_too_low_is_refused_with_one_that_will_do(calibration):
    ask = adaptive(epsilon=0.05, floor=1e-3, calibration=calibration)
    with pytest.raises(errors.WeakRegularisation, match="floor=") as caught:
        ask.fit(X, Y)
    enough = ask.set_params(floor=caught.value.smallest * 1.01).fit(X, Y)
    assert np.all(enough.guarantee_.epsilon <= 0.05)
    assert adaptive(epsilon=0.05, calibration=calibration).fit(X, Y).release_.noise[
        "floor"
    ] >= N / (2 * P)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@both
def test_missing_and_infinite_values_are_refused_and_not_repeated(make, bad):
    features = X.copy()
    labels = Y.copy()
    features[3, 1] = labels[5] = bad
    for data in ((features, Y), (X, labels)):
        with pytest.raises(errors.MissingValues):
            make().fit(*data)
    with pytest.raises(errors.MissingValues):
        make(bounds=sv.Bounds(features=(-1, 1), label=(-1, 1))).fit(features, Y)


def test_rows_of_people_left_out_are_not_read():
    features = X.copy()
    features[0] = np.nan
    left = sv.Budgets.of(np.r_[0.0, np.ones(N - 1)], zero="leave out")
    fitted = fixed().fit(features, Y, epsilon=left)
    assert fitted.guarantee_.epsilon[0] == 0
    assert np.isfinite(fitted.coef_).all()
    with pytest.raises(errors.InvalidBudget):
        fixed().fit(X, Y, epsilon=sv.Budgets.of(np.zeros(N), zero="leave out"))


@both
def test_bad_tables_are_refused(make):
    for bounds in (None, sv.Bounds(norm=1.0), sv.Bounds(label=(-1, 1)), (0, 1)):
        with pytest.raises(errors.InvalidBounds):
            make(bounds=bounds).fit(X, Y)
    with pytest.raises(errors.TooFewRows):
        make().fit(X[:1], Y[:1])
    with pytest.raises(errors.UnequalLengths):
        make().fit(X, Y[:-1])
    with pytest.raises(errors.WrongType):
        make().fit(X.astype(str), Y)
    with pytest.raises(errors.InvalidData):
        make(bounds=sv.Bounds(features=([2.0], [2.0]), label=(-1, 1))).fit(X[:, :1], Y)


# ---------------------------------------------------------------- manners


@both
def test_nothing_without_noise_is_kept(make):
    fitted = make(fit_intercept=True).fit(X, Y)
    allowed = {
        "release_",
        "guarantee_",
        "_recoding",
        "n_features_in_",
        "intercept_",
        "coef_",
        "noisy_eigenvalue_",
        "regularisation_",
    }
    assert set(vars(fitted)) <= allowed | set(fitted.get_params())
    with noiseless():
        plain = make(fit_intercept=True).fit(X, Y)
    text = fitted.release_.to_json() + repr(vars(fitted))
    secrets = [*plain.release_.value["theta"], *plain.coef_, plain.intercept_]
    if make is adaptive:
        secrets.append(plain.noisy_eigenvalue_)
    for secret in secrets:
        assert repr(float(secret))[:12] not in text  # ten digits or so: no accident


@both
def test_pickles_clones_and_releases(make):
    fitted = make().fit(X, Y)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert not hasattr(clone(fitted), "coef_")
    loaded = type(fitted).from_release(sv.Release.from_json(fitted.release_.to_json()))
    assert np.array_equal(loaded.predict(X), fitted.predict(X))
    assert loaded.get_params()["delta"] == fitted.delta
    with pytest.raises(errors.InvalidRelease):
        type(fitted).from_release(sv.Mean(bounds=(0, 1)).fit(Y, epsilon=1.0).release_)
    if isinstance(fitted, sv.AdaptivePosteriorSample):
        other = sv.PosteriorSample
    else:
        other = sv.AdaptivePosteriorSample
    with pytest.raises(errors.InvalidRelease):
        other.from_release(fitted.release_)


@both
def test_tables_with_names(make):
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    with noiseless():
        named = make().fit(table, pd.Series(Y))
        plain = make().fit(X, Y)
    assert named.coef_ == pytest.approx(plain.coef_)
    assert named.feature_names_in_.tolist() == ["a", "b", "c"]
    assert named.predict(table[["c", "a", "b"]]) == pytest.approx(plain.predict(X))
    assert make().fit(X, Y).score(X, Y) <= 1


@both
@every_check
def test_scikit_learns_checks(make, check):
    check(type(make()).__name__, make())


def test_metadata_routing_knows_epsilon_and_groups():
    with sklearn.config_context(enable_metadata_routing=True):
        routed = fixed().set_fit_request(epsilon=True, groups=True)
        assert routed.get_metadata_routing().fit.requests == {"epsilon": True, "groups": True}


def test_a_failure_after_the_data_were_touched_tells_nothing(monkeypatch):
    monkeypatch.setattr(posterior_mechanism, "draw_sample", lambda *a: 1 / 0)
    with pytest.raises(errors.ReleaseFailed) as caught:
        fixed().fit(X, Y)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_one_person_with_all_rows_and_one_person_heard():
    alone = posterior_mechanism.solve_personal_weights(
        sv.Budgets.of(1.0, groups=["a"] * 5).kinds, FixedRidgeAccountant(1.0, 2.0, 1e-6)
    )
    assert alone.charges[0] <= 10**9
    assert alone.total > 0
