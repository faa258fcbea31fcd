"""Regression on rows of a declared length: rows are shortened to it, fits lie in the ball that it
makes, and nobody loses more than their budget (docs/theory/ball.md).
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import sottovoce as sv
from sottovoce import units
from sottovoce.data import feature_ball, regression_kernels
from sottovoce.data.encoding import Recoding
from sottovoce.data.engine import read_columns
from sottovoce.estimators import ridge_ball, ridge_descent, ridge_errors, ridge_objective
from sottovoce.estimators.erm import make_descent
from sottovoce.estimators.erm_mechanism import People

P = 3
NORM = 2.0
BOUNDS = sv.Bounds(norm=NORM, label=(-1, 1))
CHOICE = ridge_errors.StageParameters(
    expected=0.1, threshold=1.0, ridge=8.0, intercept_ridge=2.0, norm=(0.7, 0.1), rounded=P
)
TAU = 0.3
ONE_ROW = (np.repeat([0.1, 0.5, 2.0], [10, 12, 8]), None)
MANY = (
    np.repeat([0.1, 2.0, 0.5, 0.1, 2.0, 0.5], [1, 1, 4, 6, 9, 3]),
    np.repeat(list("abcdef"), [1, 1, 4, 6, 9, 3]),
)
every_people = pytest.mark.parametrize("people", [ONE_ROW, MANY], ids=["one row", "many rows"])
which_person = pytest.mark.parametrize(
    "which", [np.argmin, np.argmax], ids=["strictest", "loosest"]
)
#: As long as the norm, half as long, and far beyond it.
SURFACE = np.full(P, NORM / math.sqrt(P))
INSIDE = SURFACE / 2
BEYOND = 50 * SURFACE


def make_table(n, seed, norm=1.0, slopes=P):
    """Rows of one length, which explain most of the label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, slopes))
    X *= norm / np.linalg.norm(X, axis=1)[:, None]
    y = X @ np.linspace(0.6, -0.4, slopes) / norm + 0.1 + 0.05 * rng.normal(size=n)
    return X, np.clip(y, -1, 1)


# ---------------------------------------------------------------- rows


def test_longer_rows_are_shortened_and_keep_their_direction():
    recoding = sv.Ridge(bounds=BOUNDS)._make_recoding(P)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, P)) * 10.0 ** rng.uniform(-2, 200, 500)[:, None]
    X[:2] = [np.full(P, 1.7e308), np.zeros(P)]
    Z = recoding.encode(X)
    lengths = np.array([math.hypot(*map(float, row)) for row in Z])
    assert lengths.max() <= 0.5 * (1 + 1e-15)
    long = np.array([math.hypot(*(row / np.abs(row).max())) for row in X[2:]])
    long = np.r_[np.inf, 0.0, long * np.abs(X[2:]).max(axis=1)] > NORM
    assert np.allclose(lengths[long], 0.5, rtol=1e-14)
    assert (Z[~long] == X[~long] / (2 * NORM)).all()
    with np.errstate(over="ignore"):
        scaled = X[long] / np.abs(X[long]).max(axis=1)[:, None]
    assert np.allclose(Z[long] / np.abs(Z[long]).max(axis=1)[:, None], scaled, rtol=1e-14)


def test_a_row_is_shortened_alike_wherever_it_stands():
    recoding = sv.Ridge(bounds=BOUNDS)._make_recoding(P)
    X = 5 * np.random.default_rng(1).normal(size=(300, P))
    whole = recoding.encode(X)
    assert (recoding.encode(np.asfortranarray(X)) == whole).all()
    assert (np.vstack([recoding.encode(X[i : i + 1]) for i in range(300)]) == whole).all()


def test_predictions_shorten_rows_as_the_fit_does():
    X, y = make_table(800, 2)
    ridge = sv.Ridge(bounds=sv.Bounds(norm=1.0, label=(-1, 1))).fit(X, y, epsilon=1.0)
    assert np.allclose(ridge.predict(7 * X), ridge.predict(X), rtol=1e-12)
    again = sv.load(sv.Release.from_json(ridge.release_.to_json()))
    assert (again.predict(7 * X) == ridge.predict(7 * X)).all()
    wide, same = ridge.interval(0.9, 7 * X[:5]), ridge.interval(0.9, X[:5])
    assert np.allclose(wide, same, rtol=1e-9)


def read_matrix(rows):
    """Recoded rows, as a method reads them."""
    (batch,) = read_columns(rows.engine, rows.features.columns).to_batches()
    return np.asarray(rows.features.matrix(batch))


def test_rows_of_a_table_elsewhere_are_shortened_too(tmp_path):
    X, y = make_table(50, 3)
    frame = pd.DataFrame({"a": 9 * X[:, 0], "b": 9 * X[:, 1], "c": 9 * X[:, 2], "y": y})
    frame.to_parquet(tmp_path / "table.parquet")
    bounds = sv.Bounds(features=(-np.ones(P), np.ones(P)), norm=1.0, label=(-1, 1))
    ridge = sv.Ridge(bounds=bounds)
    far = ridge._read_rows(str(tmp_path / "table.parquet"), "y", 1.0, None)
    near = ridge.read_arrays(frame[list("abc")], y, epsilon=1.0, groups=None)
    first, second = (read_matrix(rows) for rows in (far, near))
    assert np.allclose(first, second, atol=2.0**-24)
    assert np.linalg.norm(first, axis=1).max() <= 0.5 * (1 + 1e-15)


def test_infinite_rows_are_refused():
    X, y = make_table(50, 4)
    X[7, 1] = np.inf
    with pytest.raises(sv.errors.InvalidData):
        sv.Ridge(bounds=BOUNDS).fit(X, y, epsilon=1.0)


# ---------------------------------------------------------------- what a norm says beside a box


def describe(**declared):
    bounds = sv.Bounds(label=(-1, 1), **declared)
    return sv.Ridge(bounds=bounds)._make_recoding(P)


def test_a_norm_that_no_row_reaches_changes_nothing():
    box = describe(features=(-1, 1))
    assert describe(features=(-1, 1), norm=1.8).to_dict() == box.to_dict()
    alone = sv.Ridge(bounds=sv.Bounds(norm=1.0, label=(-1, 1))).plan(
        epsilon=np.ones(300), n_features=1
    )
    same = sv.Ridge(bounds=sv.Bounds(features=(-1, 1), label=(-1, 1)))
    assert alone.digest == same.plan(epsilon=np.ones(300), n_features=1).digest


def test_the_ball_serves_where_every_column_may_fill_it():
    assert describe(norm=1.0).fills_ball
    assert describe(features=(-3, 3), norm=1.0).to_dict() == describe(norm=1.0).to_dict()
    narrow = describe(features=([-1, 0, -1], [1, 1, 9]), norm=1.0)
    assert narrow.norm == 1.0
    assert not narrow.fills_ball
    assert [(f.low, f.high) for f in narrow.features] == [(-1, 1), (0, 1), (-1, 1)]
    assert Recoding.from_dict(json.loads(json.dumps(narrow.to_dict()))) == narrow


def test_other_questions_read_a_norm_as_before():
    for model in (
        sv.ERM("squared", bounds=BOUNDS, delta=1e-6),
        sv.PosteriorSample(4.0, 6.0, BOUNDS),
    ):
        plan = model.plan(epsilon=np.ones(300), n_features=P)
        assert "norm" not in plan.parameters["features"][0]


# ---------------------------------------------------------------- what a fit loses


def owners(people):
    if people[1] is None:
        return np.arange(len(people[0]))
    return people[1]


def list_pairs(people, owner):
    """Tables that differ in one owner's rows: everybody aligned on the surface, within and beyond,
    with pulls against each other and with curvature, and random ones.
    """
    rng = np.random.default_rng(0)
    n = len(people[0])
    mine = owners(people) == owner
    for place, first, second in [
        (SURFACE, (SURFACE, -1.0), (SURFACE, 1.0)),
        (SURFACE, (SURFACE, -0.2), (SURFACE, 1.0)),
        (SURFACE, (INSIDE, -1.0), (BEYOND, 1.0)),
        (BEYOND, (BEYOND, -0.2), (BEYOND, 1.0)),
        (BEYOND, (-BEYOND, 1.0), (BEYOND, -1.0)),
    ]:
        tables = []
        for where, label in (first, second):
            X = np.tile(place, (n, 1))
            y = np.ones(n)
            X[mine] = where
            y[mine] = label
            tables.append((X, y))
        yield tables
    for _ in range(4):
        one = [NORM * rng.normal(size=(n, P)), rng.uniform(-1, 1, n)]
        two = [part.copy() for part in one]
        two[0][mine] = NORM * rng.normal(size=(mine.sum(), P))
        two[1][mine] = rng.uniform(-1, 1, mine.sum())
        yield one, two


def capture_problem(table, people):
    """The problem that a fit in the declared ball is about to solve."""
    ridge = sv.Ridge(bounds=BOUNDS)
    rows = ridge.read_arrays(*table, epsilon=people[0], groups=people[1])
    seen = []

    def caught(problem, tolerance, guess):
        seen.append(problem)
        return problem.centre

    ball = ridge_ball.find_declared_ball(rows.features.recoding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ridge_objective.newton, "minimise", caught)
        fit = ridge_objective.StagedFit(rows, rows.budgets, "soft")
        fit.slopes(1.0, TAU, CHOICE, np.zeros(P + 1), ball)
    return seen[0]


def compute_log_density(problem, theta):
    _, pull, bend = problem.terms(theta, False)
    b = (pull - problem.ridge * (theta - problem.centre)) / TAU
    a = abs(b[0])
    m = float(np.linalg.norm(b[1:]))
    size = max(0.7 * a + 0.3 * m, 0.1 * a + 0.9 * m)  # N(b), written down once more
    return -size + np.linalg.slogdet(bend + np.diag(problem.ridge))[1]


def measure_loss(people, owner):
    rng = np.random.default_rng(1)
    points = [rng.normal(0, s, P + 1) for s in (0.01, 0.1, 0.5, 2) for _ in range(5)]
    worst = 0.0
    for one, two in list_pairs(people, owner):
        first, second = (capture_problem(table, people) for table in (one, two))
        for theta in (np.zeros(P + 1), *points):
            apart = compute_log_density(first, theta) - compute_log_density(second, theta)
            worst = max(worst, abs(apart))
    return worst


@every_people
@which_person
def test_a_fit_in_the_declared_ball_loses_no_more_than_the_budget(people, which):
    owner = owners(people)[which(people[0])]
    epsilon = people[0][owners(people) == owner][0]
    measured = measure_loss(people, owner)
    assert measured <= epsilon
    assert measured >= 0.99 * epsilon * (1 - ridge_objective.SLACK)


def is_caught():
    return any(measure_loss(ONE_ROW, owner) > ONE_ROW[0][owner] for owner in (0, 29))


def test_rows_that_are_not_shortened_are_caught(monkeypatch):
    """The ball cuts once more what comes in too long; without that cut, too, a person loses more
    than their budget.
    """
    monkeypatch.setattr(Recoding, "shorten", lambda self, raw: raw)
    assert not is_caught()
    monkeypatch.setattr(feature_ball, "measure_lengths", lambda rows: np.zeros(len(rows)))
    assert is_caught()


def test_a_ball_that_is_smaller_than_the_norm_without_a_cut_is_caught(monkeypatch):
    """Noise for half of the length that rows have."""
    monkeypatch.setattr(ridge_ball, "DECLARED_RADIUS", 0.25)
    assert not is_caught()
    monkeypatch.setattr(feature_ball, "measure_lengths", lambda rows: np.zeros(len(rows)))
    assert is_caught()


def test_rows_of_the_ball_are_inside_exactly():
    recoding = sv.Ridge(bounds=BOUNDS)._make_recoding(P)
    ball = ridge_ball.find_declared_ball(recoding)
    X = NORM * np.random.default_rng(2).normal(size=(300, P))
    _, rows = ball.scale_rows(recoding.encode(X))
    for row in rows:
        assert sum(Fraction(side) ** 2 for side in row) <= Fraction(1, 4)


def test_candidates_for_a_bought_radius_end_where_the_declared_ball_does():
    ball = ridge_ball.find_declared_ball(sv.Ridge(bounds=BOUNDS)._make_recoding(P))
    centre = np.array([0.1, -0.2, 0.0])
    radii = ridge_ball.list_radii(centre, ball)
    assert radii[-1] == pytest.approx(0.5 + np.linalg.norm(centre), rel=1e-6)
    assert radii[-1] < ridge_ball.list_radii(centre)[-1]


# ---------------------------------------------------------------- descent


def measure_steps(people, owner):
    """Returns T·(most that an owner's rows move a sum)²/(2σ²), over rows at, within and beyond the
    norm, labels and places of θ, and what they are charged, in ρ.
    """
    ridge = sv.Ridge(bounds=BOUNDS, method="descent", delta=1e-6)
    mine = owners(people) == owner
    plan = ridge.plan(people[0], groups=people[1], n_features=P)
    descent = make_descent(ridge_descent.make_descent(ridge, 1.0), plan)
    tables = []
    for where in (SURFACE, -SURFACE, INSIDE, BEYOND, -BEYOND):
        for label in (-1.0, 1.0):
            X = np.where(mine[:, None], where, INSIDE)
            y = np.where(mine, label, 0.5)
            rows = ridge.read_arrays(X, y, epsilon=people[0], groups=people[1])
            tables.append(People.of(rows, plan.budgets, plan.weights))
    most = 0.0
    for theta in (np.zeros(P + 1), np.full(P + 1, 3.0), np.full(P + 1, -3.0)):
        found = [descent.exact_sum(one, theta) for one in tables]
        most = max(most, *(float(np.linalg.norm(a - b)) for a in found for b in found))
    place = int(np.flatnonzero(mine)[0])
    spent = units.to_epsilon(plan.guarantee.spent[plan.budgets.row_codes()[place]])
    return descent.steps * most**2 / (2 * descent.scale**2), float(spent)


@every_people
@which_person
def test_nobody_moves_the_steps_by_more_than_was_charged(people, which, monkeypatch):
    """Whether rows are shortened or not: gradients are clipped whatever rows are."""
    owner = owners(people)[which(people[0])]
    spent, charged = measure_steps(people, owner)
    assert 0.9 * charged < spent <= charged * (1 + 1e-9)
    monkeypatch.setattr(Recoding, "shorten", lambda self, raw: raw)
    assert measure_steps(people, owner)[0] <= charged * (1 + 1e-9)


@pytest.mark.parametrize("place", [0, 29], ids=["strictest", "loosest"])
def test_gradients_that_rely_on_the_norm_alone_are_caught(place, monkeypatch):
    def unclipped(gradients, weight, clip):
        return np.trunc(gradients * (weight / clip)[:, None])

    monkeypatch.setattr(regression_kernels, "clip_gradients", unclipped)
    spent, charged = measure_steps(ONE_ROW, place)
    assert spent > 1.5 * charged


def test_steps_are_as_long_as_rows_of_the_ball_allow():
    told, untold = (
        sv.Ridge(bounds=bounds, method="descent", delta=1e-6).plan(np.ones(500), n_features=12)
        for bounds in (BOUNDS, sv.Bounds(features=(-NORM, NORM), label=(-1, 1)))
    )
    assert told.parameters["clip"] < untold.parameters["clip"]
    assert told.parameters["stride"] > untold.parameters["stride"]
    assert told.expected_error < untold.expected_error
    assert told.parameters["features"][0]["norm"] == NORM


def test_a_descent_with_a_shorter_constant_finds_the_same_model():
    """With ε = 100 predictions lay .0161 from those of least squares, give or take .00002."""
    X, y = make_table(2000, 10)
    y = np.clip(y + 0.3, -1, 1)
    bounds = sv.Bounds(norm=1.0, label=(-1, 1))
    ridge = sv.Ridge(bounds=bounds, method="descent", delta=1e-6).fit(X, y, epsilon=100.0)
    assert ridge.release_.parameters["constant"] == 0.25
    rows = np.c_[np.ones(2000), X]
    plain = rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    assert np.sqrt(np.mean((ridge.predict(X) - plain) ** 2)) < 0.05
    ends = ridge.interval(0.95)
    low, high = ends["intercept"]
    assert low < ridge.intercept_ < high


@pytest.mark.parametrize(
    ("people", "epsilon", "method"),
    [(300, 0.01, "objective"), (500, 1.0, "descent"), (20_000, 1.0, "objective")],
)
def test_the_plan_takes_what_knows_the_norm(people, epsilon, method):
    plan = sv.Ridge(bounds=BOUNDS, delta=1e-6).plan(epsilon, rows=people, n_features=12)
    assert plan.parameters["method"] == method
    only = sv.Ridge(bounds=BOUNDS, method="adassp", delta=1e-6)
    assert only.plan(epsilon, rows=people, n_features=12).parameters["method"] == "adassp"


@pytest.mark.parametrize("method", ["descent", "adassp", "objective-gaussian"])
def test_releases_at_a_delta_are_read_back_and_audited(method):
    X, y = make_table(400, 9)
    bounds = sv.Bounds(norm=1.0, label=(-1, 1))
    ridge = sv.Ridge(bounds=bounds, method=method, delta=1e-6).fit(3 * X, y, epsilon=1.0)
    release = sv.Release.from_json(ridge.release_.to_json())
    again = sv.load(release)
    assert (again.predict(3 * X) == ridge.predict(3 * X)).all()
    low, high = again.interval(0.95)["x0"]
    assert low < again.coef_[0] < high
    lost = sv.audit.per_instance(release, 3 * X, y, epsilon=1.0)
    assert (np.asarray(lost.epsilon) > 0).all()
    assert (np.asarray(lost.epsilon) <= np.asarray(lost.promised)).all()


# ---------------------------------------------------------------- plan, release, audit


def test_the_plan_buys_no_ball_and_expects_less_error():
    told, untold = (
        sv.Ridge(bounds=bounds).plan(epsilon=np.full(1200, 0.5), n_features=10)
        for bounds in (BOUNDS, sv.Bounds(features=(-NORM, NORM), label=(-1, 1)))
    )
    for course in told.parameters["stages"]:
        assert course["in_declared_ball"]
        purposes = [part["purpose"] for part in course["parts"]]
        assert ridge_ball.CENTRE not in purposes
        assert sum(part["share"] for part in course["parts"]) == pytest.approx(1.0)
    assert told.expected_error < untold.expected_error
    assert told.parameters["features"][0]["norm"] == NORM
    assert "in_declared_ball" not in str(untold.parameters)
    robust = sv.Ridge(bounds=BOUNDS, loss="robust").plan(epsilon=np.full(1200, 0.5), n_features=10)
    assert "in_declared_ball" not in str(robust.parameters)


@pytest.mark.parametrize("epsilon", [0.25, 1.0], ids=["a guessed scale", "a bought scale"])
def test_a_release_tells_its_norm_and_is_audited(epsilon):
    X, y = make_table(900, 5)
    people = np.arange(900) // 3
    granted = {person: epsilon * (0.5, 1.0, 4.0)[person % 3] for person in range(300)}
    ridge = sv.Ridge(bounds=sv.Bounds(norm=1.0, label=(-1, 1)))
    ridge.fit(3 * X, y, epsilon=granted, groups=people)
    release = sv.Release.from_json(ridge.release_.to_json())
    assert release.parameters["features"][0]["norm"] == 1.0
    assert release.estimator["bounds"]["norm"] == 1.0
    assert sv.load(release).bounds == sv.Bounds(norm=1.0, label=(-1, 1))
    assert any(stage.get("ball", {}).get("radius") == 0.5 for stage in release.value["stages"])
    found = sv.audit.per_instance(release, 3 * X, y, epsilon=granted, groups=people, delta=1e-6)
    lost = np.asarray(found.epsilon)
    assert (lost <= np.asarray(found.promised) + 1e-9).all()
    assert lost.max() > 0.01 * epsilon
    mine = sv.audit.mine(release, (3 * X[0], y[0]), weight=granted[0])
    assert mine.epsilon > 0


def test_a_release_of_a_version_that_read_a_norm_as_a_box_is_still_one():
    X, y = make_table(400, 6)
    box = sv.Ridge(bounds=sv.Bounds(features=(-1, 1), label=(-1, 1))).fit(X, y, epsilon=1.0)
    old = replace(box.release_, estimator={"bounds": {"norm": 1.0, "label": [-1.0, 1.0]}})
    loaded = sv.load(old)
    assert loaded.bounds.norm is None
    assert (loaded.predict(3 * X) == box.predict(3 * X)).all()
    lost = sv.audit.per_instance(old, X, y, epsilon=1.0, delta=1e-6)
    assert (np.asarray(lost.epsilon) <= 1.0 + 1e-9).all()


def test_with_unlimited_budgets_coefficients_are_those_of_least_squares():
    X, y = make_table(500, 7)
    ridge = sv.Ridge(bounds=sv.Bounds(norm=1.0, label=(-1, 1))).fit(X, y, epsilon=1e5)
    plain = np.linalg.lstsq(np.c_[np.ones(500), X], y, rcond=None)[0]
    assert np.r_[ridge.intercept_, ridge.coef_] == pytest.approx(plain, rel=0.01, abs=2e-3)


@pytest.mark.parametrize("method", ["statistics", "output", "output-tight"])
def test_other_methods_shorten_rows(method):
    """Rows three times as long as the norm are read as those of its length."""
    X, y = make_table(400, 8)
    ridge = sv.Ridge(bounds=sv.Bounds(norm=1.0, label=(-1, 1)), method=method)
    near, far = (ridge.read_arrays(rows, y, epsilon=1.0, groups=None) for rows in (X, 3 * X))
    assert np.allclose(read_matrix(near), read_matrix(far), atol=2.0**-24)
    told = ridge.fit(3 * X, y, epsilon=1.0).release_.parameters["features"][0]
    assert told["norm"] == 1.0


def test_a_norm_that_no_row_within_the_bounds_keeps_is_refused():
    bounds = sv.Bounds(features=(2, 3), norm=1.0, label=(-1, 1))
    with pytest.raises(sv.errors.InvalidBounds, match="longer than the norm"):
        sv.Ridge(bounds=bounds).plan(epsilon=1.0, rows=100, n_features=2)
    bounds = sv.Bounds(features=(0.5, 3), norm=1.0, label=(-1, 1))
    assert sv.Ridge(bounds=bounds).plan(epsilon=1.0, rows=100, n_features=2)


@pytest.mark.parametrize("norm", [0, -1.0, float("nan"), float("inf"), 1e300, 1e-300, True, "1"])
def test_a_norm_with_which_doubles_cannot_calculate_is_refused(norm):
    with pytest.raises(sv.errors.InvalidBounds) as refused:
        sv.Bounds(norm=norm, label=(-1, 1))
    assert refused.value.parameter == "norm"
