"""sv.LabelPrivateRegression: nobody loses more than promised, answers are worth having, and manners
are kept.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from cases import HIGH, LOW, PEOPLE, strictest_and_loosest
from seams import Silent, silent
from sottovoce import Budgets, Release, Session, errors
from sottovoce.estimators import label_private
from sottovoce.estimators.label_private import LabelPrivateRegression
from sottovoce.noise import source
from sottovoce.solvers import label_map as solver

OPTIONS = [{"sensitivity": "exact"}, {"sensitivity": "entrywise"}, {"fit_intercept": False}]
every_option = pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda o: "-".join(map(str, o.values()))
)
every_people = pytest.mark.parametrize("people", PEOPLE, ids=repr)


def features(n, p=3, seed=4):
    return np.random.default_rng(seed).normal(size=(n, p))


def make(**options):
    return LabelPrivateRegression(label_bounds=(LOW, HIGH), **options)


@pytest.fixture(autouse=True)
def solved_once(monkeypatch):
    """Every audit asks for the same few maps again and again: each is solved once."""
    known: dict[Any, Any] = {}

    def cached(solve):
        def solved(*problem):
            key = (solve, *(np.asarray(part).tobytes() for part in problem))
            if key not in known:
                known[key] = solve(*problem)
            return known[key]

        return solved

    for name, solve in label_private.SOLVERS.items():
        monkeypatch.setitem(label_private.SOLVERS, name, cached(solve))


# --- Audits: what noise is added to, for neighbours chosen to be worst cases ----------------------


@dataclass(frozen=True)
class Captured:
    plan: Any
    statistic: Any
    scale: float
    draws: int


def captured(estimator, X, y, epsilon, groups=None) -> Captured:
    """Fits with the noise switched off and returns what the noise would have been added to."""
    seen: list[Any] = []
    original = label_private.draw_noisy_values

    class Counting(Silent):
        def integers(self, law, scale, size):
            assert law == "laplace"
            seen.append((scale, size))
            return super().integers(law, scale, size)

    def spy(plan, statistic):
        seen.append((plan, statistic))
        return original(plan, statistic)

    with pytest.MonkeyPatch.context() as patch, source._seam(Counting()):
        patch.setattr(label_private, "draw_noisy_values", spy)
        estimator.fit(X, y, epsilon=epsilon, groups=groups)
    (plan, statistic), (scale, size) = seen
    return Captured(plan, statistic, scale, size)


def exact_loss(one: Captured, two: Captured) -> Fraction:
    """Independent discrete Laplace laws of one scale: the largest log ratio is Σ_j
    |difference_j|/scale, exactly.
    """
    assert one.scale == two.scale
    assert one.draws == two.draws == len(one.statistic)
    shift = one.plan.grid.shift
    apart = (
        abs((int(a) >> shift) - (int(b) >> shift))
        for a, b in zip(one.statistic, two.statistic, strict=True)
    )
    return Fraction(sum(apart)) / Fraction(one.scale)


def worst_signs(K) -> np.ndarray:
    """Which labels to move up and which down, for the largest ‖K·δ‖₁: by trying, or greedily if
    there are many.
    """
    if K.shape[1] <= 12:
        every = np.array(list(product((-1, 1), repeat=K.shape[1])))
        return every[np.abs(K.astype(float) @ every.T).sum(axis=0).argmax()]
    best = np.ones(K.shape[1])
    for start in np.random.default_rng(0).choice([-1.0, 1.0], (200, K.shape[1])):
        delta = start
        last = None
        while last is None or not np.array_equal(delta, last):
            last = delta
            delta = np.where(np.where(K @ delta >= 0, 1, -1) @ K >= 0, 1.0, -1.0)
        best = max(best, delta, key=lambda x: np.abs(K @ x).sum())
    return best


def audit(options, people, owner, X=None) -> tuple[float, float]:
    """Returns (largest exact loss over hard neighbours, charge) of one owner."""
    if X is None:
        X = features(len(people.epsilon))
    mine = people.owners == owner
    plan = make(**options).plan(X, people.epsilon, people.groups)
    charge = plan.charges[int(np.flatnonzero(np.unique(people.owners) == owner)[0])]
    up = worst_signs(plan.grid.map[:, mine]) > 0
    losses = []
    for background in (
        np.full(len(X), LOW),
        np.linspace(LOW, HIGH, len(X)),
        np.where(np.arange(len(X)) % 2, LOW, HIGH),
    ):
        for low, high in ((LOW, HIGH), (-1e308, 1e308), (LOW, (LOW + HIGH) / 2)):
            first = background.copy()
            second = background.copy()
            first[mine] = np.where(up, high, low)
            second[mine] = np.where(up, low, high)
            one, two = (
                captured(make(**options), X, y, people.epsilon, people.groups)
                for y in (first, second)
            )
            losses.append(float(exact_loss(one, two)))
    return max(losses), float(charge)


@every_option
@every_people
@pytest.mark.parametrize("which", [0, 1], ids=["strictest", "loosest"])
def test_no_exact_loss_exceeds_the_charge_and_the_worst_comes_close(options, people, which):
    owner = strictest_and_loosest(people)[which]
    loss, charge = audit(options, people, owner)
    assert charge <= people.epsilon[people.owners == owner][0]
    assert loss <= charge
    if (
        options.get("sensitivity") != "entrywise" or people.groups is None
    ):  # entrywise is loose for several rows
        assert loss >= 0.99 * charge


def test_everybody_with_many_rows_is_within_their_charge():
    people = PEOPLE[1]
    for owner in np.unique(people.owners):
        loss, charge = audit({}, people, owner)
        assert 0.99 * charge <= loss <= charge


@pytest.mark.parametrize("bits", [2, 5])
def test_a_coarse_map_is_as_private_as_a_fine_one(bits, monkeypatch):
    monkeypatch.setattr(label_private, "MAP_BITS", bits)
    for owner in np.unique(PEOPLE[1].owners):
        loss, charge = audit({}, PEOPLE[1], owner)
        assert loss <= charge


def test_a_coarse_shift_is_covered(monkeypatch):
    monkeypatch.setattr(label_private, "SCALE_BITS", 3)
    for owner in np.unique(PEOPLE[1].owners):
        loss, charge = audit({}, PEOPLE[1], owner)
        assert loss <= charge


def test_a_bad_solver_costs_accuracy_and_no_privacy(monkeypatch):
    def least_squares(X, owner, epsilon, ratio):
        return replace(solver.solve_entrywise(X, owner, epsilon, ratio), map=np.linalg.pinv(X))

    monkeypatch.setitem(label_private.SOLVERS, "exact", least_squares)
    for owner in np.unique(PEOPLE[1].owners):
        loss, charge = audit({}, PEOPLE[1], owner)
        assert loss <= charge


def test_more_columns_than_signs_can_be_tried_for_have_a_bound_and_the_plan_says_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 14))
    groups = np.repeat(np.arange(6), 15)
    people = replace(
        PEOPLE[1], epsilon=np.repeat([0.5, 1.0, 1.0, 2.0, 2.0, 0.1], 15), groups=groups
    )
    plan = make().plan(X, people.epsilon, groups)
    assert "a bound" in plan.describe()
    assert plan.noise["certificate"]["held_by_a_bound"] == 6
    for owner in range(6):
        loss, charge = audit({}, people, owner, X)
        assert loss <= charge


# --- Planted bugs: the audit above must catch every one of them -----------------------------------


def caught(people=PEOPLE[1], **options) -> bool:
    """Whether the audit reports a loss above the charge for somebody, or the release breaks
    down.
    """
    for owner in np.unique(people.owners):
        try:
            loss, charge = audit(options, people, owner)
        except (errors.ReleaseFailed, AssertionError):
            return True
        if loss > charge:
            return True
    return False


def plant(monkeypatch, name, wrong):
    monkeypatch.setattr(label_private, name, wrong)


def test_nothing_is_caught_where_nothing_is_planted():
    assert not caught()


def test_the_largest_entry_instead_of_the_sum_is_caught(monkeypatch):
    def largest(K, owner, sensitivity):
        people = owner.max() + 1
        return np.array([np.abs(K[:, owner == person]).max() for person in range(people)]), np.ones(
            people, dtype=bool
        )

    plant(monkeypatch, "compute_reach", largest)
    assert caught()


def test_the_sensitivity_of_one_coefficient_instead_of_all_d_is_caught(monkeypatch):
    def one_coefficient(K, owner, sensitivity):
        people = owner.max() + 1
        sums = [np.abs(K[:, owner == person]).sum(axis=1).max() for person in range(people)]
        return np.array(sums), np.ones(people, dtype=bool)

    plant(monkeypatch, "compute_reach", one_coefficient)
    assert caught()


@pytest.mark.parametrize("people", PEOPLE[:2], ids=repr)
def test_noise_divided_by_one_and_a_half_is_caught(people, monkeypatch):
    original = label_private.calibrate_noise
    plant(
        monkeypatch,
        "calibrate_noise",
        lambda *given: replace(original(*given), scale=original(*given).scale / 1.5),
    )
    assert caught(people)


def test_people_mixed_up_are_caught(monkeypatch):
    original = label_private.compute_reach
    plant(
        monkeypatch,
        "compute_reach",
        lambda K, owner, sensitivity: tuple(x[::-1] for x in original(K, owner, sensitivity)),
    )
    assert caught()


def test_a_sensitivity_from_the_map_before_rounding_is_caught(monkeypatch):
    monkeypatch.setattr(label_private, "MAP_BITS", 3)
    original = label_private.round_map
    unrounded = []

    def remembering(C, owner):
        K, exponent = original(C, owner)
        unrounded.append(np.ldexp(C, -exponent))
        return K, exponent

    def before_rounding(K, owner, sensitivity):
        order, starts = label_private._sort_by_owner(owner)
        upper, exact = label_private.compute_norms(unrounded[-1].T[order], starts)
        return np.ceil(upper).astype(np.int64), exact

    plant(monkeypatch, "round_map", remembering)
    plant(monkeypatch, "compute_reach", before_rounding)
    assert caught()


def test_the_rounding_of_d_coordinates_forgotten_is_caught(monkeypatch):
    monkeypatch.setattr(label_private, "SCALE_BITS", 3)
    original = label_private.calibrate_noise

    def without_d(*given):
        found = original(*given)
        scale = -(-found.loudest * found.grid.values.cells // 2**found.grid.shift)
        return replace(found, scale=float(scale), charges=given[3].kinds.epsilon)

    plant(monkeypatch, "calibrate_noise", without_d)
    assert caught()


def test_labels_not_clipped_are_caught(monkeypatch):
    monkeypatch.setattr(
        label_private.Grid,
        "integers",
        lambda self, y: np.rint((y - self.low) * 2.0**-self.exponent),
    )
    assert caught(PEOPLE[0])


# --- Laws -----------------------------------------------------------------------------------------


@every_option
@every_people
def test_charges_never_exceed_grants_and_what_was_planned_is_what_was_spent(options, people):
    X = features(len(people.epsilon))
    plan = make(**options).plan(X, people.epsilon, people.groups)
    budgets = Budgets.of(people.epsilon, people.groups)
    assert np.all(plan.guarantee.units <= budgets.by_person(budgets.kinds.epsilon))
    fitted = make(**options).fit(X, np.linspace(LOW, HIGH, len(X)), people.epsilon, people.groups)
    assert np.array_equal(fitted.guarantee_.epsilon, plan.charges)
    assert fitted.release_.certificate.plan_digest == plan.digest
    assert plan.noise["certificate"]["gap"] <= solver.MAX_GAP
    variance = plan.parameters["noise_variance"]
    b = plan.noise["scale"]
    missed = variance * np.square(fitted.linear_map_).sum() + 2 * len(fitted.linear_map_) * b**2
    assert missed == pytest.approx(plan.noise["certificate"]["value"], rel=1e-5)


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 7.0, 1e5])
def test_equal_budgets_without_sampling_error_give_one_map_and_noise_in_proportion(epsilon):
    X = features(40)
    one, other = (make(noise_variance=0).plan(X, e) for e in (1.0, epsilon))
    assert other.noise["scale"] * epsilon == pytest.approx(one.noise["scale"], rel=1e-4)
    assert other.charges.max() == pytest.approx(epsilon, rel=1e-3)


@settings(max_examples=25, deadline=None)
@given(
    epsilon=st.lists(st.floats(1e-3, 20), min_size=8, max_size=12),
    raised=st.floats(1.01, 20),
    who=st.integers(0, 7),
    several=st.booleans(),
)
def test_raising_one_budget_harms_nobody(epsilon, raised, who, several):
    before = np.array(epsilon)
    after = before.copy()
    after[who] *= raised
    owner = np.repeat(np.arange(len(before)), 3 if several else 1)
    X = features(len(owner), 2)
    one, two = (make().plan(X, dict(enumerate(e)), owner) for e in (before, after))
    before_after = [plan.noise["certificate"]["value"] for plan in (one, two)]
    assert before_after[1] <= before_after[0] * (1 + solver.MAX_GAP) ** 2
    assert np.all(two.charges <= after)


def test_permuting_rows_permutes_nothing_else():
    people = PEOPLE[1]
    order = np.random.default_rng(5).permutation(24)
    X = features(24)
    y = np.linspace(LOW, HIGH, 24) ** 1.1
    with silent():
        one = make().fit(X, y, people.epsilon, people.groups)
        two = make().fit(X[order], y[order], people.epsilon[order], people.groups[order])
    assert two.coef_ == pytest.approx(one.coef_, abs=1e-6)
    assert two.guarantee_.epsilon == pytest.approx(one.guarantee_.epsilon, rel=1e-6)


@every_option
def test_the_map_inverts_the_design_and_labels_on_the_plane_come_back(options):
    """Also with bounds far from zero and without an intercept: the map is linear in the labels
    themselves.
    """
    X = np.abs(features(300)) + 1
    truth = np.array([0.7, 1.1, 0.4])
    y = X @ truth + (50.0 if options.get("fit_intercept", True) else 0.0)
    estimator = LabelPrivateRegression(label_bounds=(y.min() - 3, y.max() + 1), **options)
    with silent():
        estimator.fit(X, y, epsilon=1.0)
    if options.get("fit_intercept", True):
        tilde = np.column_stack([np.ones(300), X])
    else:
        tilde = X
    assert np.abs(estimator.linear_map_ @ tilde - np.eye(tilde.shape[1])).max() < 1e-9
    assert estimator.coef_ == pytest.approx(truth, abs=2e-3)
    assert estimator.predict(X) == pytest.approx(y, abs=1e-2)


def test_large_budgets_find_least_squares():
    X = features(500)
    rng = np.random.default_rng(0)
    y = np.clip(5 + X @ [0.5, -0.3, 0.2] + rng.normal(0, 0.1, 500), LOW, HIGH)
    plain = LinearRegression().fit(X, y)
    ours = make().fit(X, y, epsilon=1e6)
    assert ours.coef_ == pytest.approx(plain.coef_, abs=1e-4)
    assert ours.intercept_ == pytest.approx(plain.intercept_, abs=1e-4)
    assert ours.score(X, y) == pytest.approx(plain.score(X, y), abs=1e-4)


@every_option
@pytest.mark.parametrize(
    "people", [pytest.param(PEOPLE[0], marks=pytest.mark.long), PEOPLE[1]], ids=repr
)
def test_the_expected_error_is_right(options, people):
    """2,000 releases of fresh labels, each beside least squares on the same labels.

    The relative standard error is below 1.5 %, so a tenth is six of them.
    """
    X = features(len(people.epsilon))
    rng = np.random.default_rng(1)
    truth = np.array([0.2, -0.1, 0.3])
    middle = X @ truth + (5.0 if options.get("fit_intercept", True) else 0.0)
    bounds = (middle.min() - 2, middle.max() + 2)
    estimator = LabelPrivateRegression(label_bounds=bounds, noise_variance=0.25, **options)
    rows = estimator.read_arrays(X, middle, epsilon=people.epsilon, groups=people.groups)
    budgets = rows.budgets
    plan = estimator.plan_for(budgets, rows)
    if options.get("fit_intercept", True):
        design = np.column_stack([np.ones(len(X)), X])
    else:
        design = X
    squares = []
    for _ in range(2000):
        y = middle + rng.choice([-0.5, 0.5], len(X))
        z = plan.grid.values.integers(y)
        answer = label_private.draw_noisy_values(
            plan, np.array(label_private.multiply_exactly(plan.grid.map, z), dtype=object)
        )
        squares.append(
            np.mean(np.square(design @ (answer - np.linalg.lstsq(design, y, rcond=None)[0])))
        )
    assert 0.9 <= np.sqrt(np.mean(squares)) / plan.expected_error <= 1.1


def test_exact_products_are_python_integers():
    rng = np.random.default_rng(3)
    K = rng.integers(-(2**42), 2**42 + 1, (3, 70_000))
    z = rng.integers(0, 2**32 + 1, 70_000)
    assert label_private.multiply_exactly(K, z.astype(float)) == [
        sum(a * b for a, b in zip(row.tolist(), z.tolist(), strict=True)) for row in K
    ]


# --- Manners, releases, refusals ------------------------------------------------------------------


class Ready(LabelPrivateRegression):
    """With an ε and bounds of its own, so that scikit-learn's checks can fit it."""

    def __init__(
        self,
        label_bounds=(-1000, 1000),
        noise_variance=None,
        fit_intercept=True,
        sensitivity="exact",
    ):
        super().__init__(label_bounds, noise_variance, fit_intercept, sensitivity)

    def fit(self, X, y=None, epsilon=1000.0, groups=None):
        return super().fit(X, y, epsilon=epsilon, groups=groups)


OWN_WORDS = "refused, in the words of this house"
EXPECTED_FAILURES = dict.fromkeys(
    [
        "check_complex_data",
        "check_dtype_object",
        "check_estimator_sparse_tag",
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
        "check_estimators_empty_data_messages",
        "check_fit2d_1sample",
        "check_fit2d_predict1d",
        "check_requires_y_none",
    ],
    OWN_WORDS,
) | {"check_supervised_y_2d": "a table of one column is a column, without a warning"}


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks():
    with silent():
        results = check_estimator(
            Ready(), expected_failed_checks=EXPECTED_FAILURES, on_fail=None, on_skip=None
        )
    assert not [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    assert sum(r["status"] == "passed" for r in results) > 30


def test_clone_pickle_routing_and_pipelines():
    X = features(60)
    y = np.linspace(LOW, HIGH, 60)
    fitted = make().fit(X, y, epsilon=1.0)
    assert not hasattr(clone(fitted), "coef_")
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(X), fitted.predict(X))
    with sklearn.config_context(enable_metadata_routing=True):
        routed = make().set_fit_request(epsilon=True, groups=True)
        pipeline = make_pipeline(StandardScaler(), routed).fit(
            X, y, epsilon=1.0, groups=np.arange(60) // 2
        )
    assert pipeline.predict(X).shape == (60,)
    assert pipeline[-1].guarantee_.unit == "person"


@pytest.mark.parametrize(
    "table",
    [
        np.asarray,
        pd.DataFrame,
        pl.DataFrame,
        lambda x: x.tolist(),
        lambda x: pa.table({f"c{j}": x[:, j] for j in range(3)}),
    ],
)
def test_every_kind_of_table_is_read(table):
    X = features(80)
    y = np.linspace(LOW, HIGH, 80)
    with silent():
        plain = make().fit(X, y, epsilon=1.0)
        other = make().fit(table(X), list(y), epsilon=1.0)
    assert np.array_equal(other.coef_, plain.coef_)
    assert other.n_features_in_ == 3


def test_names_of_features_are_kept_and_checked():
    frame = pd.DataFrame(features(80), columns=list("abc"))
    fitted = make().fit(frame, np.linspace(LOW, HIGH, 80), epsilon=1.0)
    assert (
        fitted.feature_names_in_.tolist()
        == list(fitted.release_.value["coefficients"])
        == ["a", "b", "c"]
    )
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["b", "a", "c"]])


def test_a_release_says_that_only_labels_are_protected_and_reads_back():
    fitted = make().fit(features(80), np.linspace(LOW, HIGH, 80), epsilon=1.0)
    release = fitted.release_
    plan = make().plan(features(80), 1.0)
    assert "labels only" in release.parameters["protects"]
    assert "labels" in release.certificate.theorem
    assert "label-private" in plan.describe()
    assert Release.from_json(release.to_json()) == release
    assert "Intercept" in release.explain()
    assert fitted.guarantee_.arithmetic == "exact"
    assert all(
        (v / release.grid["answer_step"]).is_integer()
        for v in release.value["coefficients"].values()
    )


def test_a_promise_about_labels_says_so_and_enters_no_account_of_whole_rows():
    rng = np.random.default_rng(0)
    X = rng.random((60, 2))
    y = rng.random(60)
    groups = np.repeat(np.arange(20), 3)
    fitted = make().fit(X, y, epsilon=0.5, groups=groups)
    assert fitted.release_.guarantee["neighbours"] == "replace labels"
    assert "labels of each person, and of nothing else" in fitted.release_.explain()
    session = Session()
    session.grant(dict.fromkeys(range(20), 1.0))
    with pytest.raises(errors.UnknownPeople):
        session.release(make(), X, y, groups=groups, key="labels", epsilon=0.5)
    session.grant(dict.fromkeys(range(20), 1.0), neighbours="replace labels")
    session.release(make(), X, y, groups=groups, key="labels", epsilon=0.5)
    assert session.balance(0) == 1.0
    session.release(make(), X, y, groups=groups, key="all the rest")
    assert min(session.balance(who, "pure epsilon, replace labels") for who in range(20)) < 1e-6


def numbers_in(thing, seen) -> list:
    """Every number reachable from an object through attributes, containers and arrays."""
    if id(thing) in seen or isinstance(thing, bool | str | bytes | type(None)):
        return []
    seen.add(id(thing))
    if isinstance(thing, int | float | np.number):
        return [float(thing)]
    if isinstance(thing, np.ndarray):
        if thing.dtype.kind in "iuf":
            return thing.ravel().astype(float).tolist()
        return []
    if isinstance(thing, dict):
        inside = list(thing.values())
    elif isinstance(thing, list | tuple):
        inside = list(thing)
    else:
        inside = []
    return [
        n
        for part in (*inside, *getattr(thing, "__dict__", {}).values())
        for n in numbers_in(part, seen)
    ]


def test_nothing_unnoised_is_reachable_in_a_fitted_object():
    X = features(200)
    y = np.random.default_rng(0).uniform(LOW, HIGH, 200)
    fitted = make().fit(X, y, epsilon=0.2)
    assert set(vars(fitted)) == {
        *fitted.get_params(),
        "release_",
        "guarantee_",
        "linear_map_",
        "coef_",
        "intercept_",
        "n_features_in_",
    }
    statistic = captured(make(), X, y, 0.2).statistic
    exact = fitted.linear_map_ @ y
    forbidden = {
        f"{n:.9g}"
        for n in (*y, *exact, *map(float, statistic), *LinearRegression().fit(X, y).coef_)
    }
    for thing in (fitted, pickle.loads(pickle.dumps(fitted))):
        assert not {f"{n:.9g}" for n in numbers_in(thing, set())} & forbidden
    assert {f"{n:.9g}" for n in numbers_in([fitted, {"leak": exact}], set())} & forbidden


X0 = features(20)
Y0 = np.linspace(LOW, HIGH, 20)
REFUSED = {
    "no bounds": (LabelPrivateRegression(), X0, Y0, 1.0, errors.InvalidBounds),
    "reversed bounds": (LabelPrivateRegression((1, 0)), X0, Y0, 1.0, errors.InvalidBounds),
    "bounds beyond measure": (
        LabelPrivateRegression((0, 1e200)),
        X0,
        Y0,
        1.0,
        errors.InvalidBounds,
    ),
    "a negative variance": (make(noise_variance=-1), X0, Y0, 1.0, errors.InvalidParameter),
    "a variance above the range": (make(noise_variance=1e9), X0, Y0, 1.0, errors.InvalidParameter),
    "a variance that is none": (make(noise_variance=np.nan), X0, Y0, 1.0, errors.InvalidParameter),
    "an unknown sensitivity": (make(sensitivity="guess"), X0, Y0, 1.0, errors.InvalidParameter),
    "no ε": (make(), X0, Y0, None, errors.InvalidBudget),
    "ε of zero": (make(), X0, Y0, 0.0, errors.InvalidBudget),
    "ε of another length": (make(), X0, Y0, np.ones(19), errors.UnequalLengths),
    "ε by person without people": (make(), X0, Y0, {"a": 1.0}, errors.InvalidParameter),
    "a constant column besides the intercept": (
        make(),
        np.ones((20, 1)),
        Y0,
        1.0,
        errors.InvalidData,
    ),
    "a column twice": (make(), X0[:, [0, 1, 1]], Y0, 1.0, errors.InvalidData),
    "fewer rows than columns": (make(), X0[:3], Y0[:3], 1.0, errors.InvalidData),
    "one row": (make(), X0[:1], Y0[:1], 1.0, errors.TooFewRows),
    "no rows": (make(), X0[:0], Y0[:0], 1.0, errors.InvalidData),
    "no columns": (make(), X0[:, :0], Y0, 1.0, errors.InvalidData),
    "one dimension": (make(), X0[:, 0], Y0, 1.0, errors.WrongType),
    "text": (make(), np.full((20, 2), "a"), Y0, 1.0, errors.WrongType),
    "a missing feature": (make(), np.where(X0 > 1, np.nan, X0), Y0, 1.0, errors.MissingValues),
    "an infinite feature": (make(), np.where(X0 > 1, np.inf, X0), Y0, 1.0, errors.MissingValues),
    "a huge feature": (make(), X0 * 1e200, Y0, 1.0, errors.InvalidData),
    "a missing label": (make(), X0, np.where(Y0 > 9, np.nan, Y0), 1.0, errors.MissingValues),
    "an infinite label": (make(), X0, np.where(Y0 > 9, np.inf, Y0), 1.0, errors.MissingValues),
    "text as labels": (make(), X0, ["a"] * 20, 1.0, errors.WrongType),
    "labels of another length": (make(), X0, Y0[:19], 1.0, errors.UnequalLengths),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_before_anything_is_drawn_and_no_value_is_told(case, monkeypatch):
    estimator, X, y, epsilon, kind = case
    monkeypatch.setattr(
        label_private.source, "draw_laplace", lambda *_: pytest.fail("noise was drawn")
    )
    with pytest.raises(kind) as refusal:
        estimator.fit(X, y, epsilon=epsilon)
    told = str(refusal.value)
    assert not any(f"{v:.4g}" in told for v in np.asarray(Y0)[1:])
    assert not hasattr(estimator, "release_")


@pytest.mark.parametrize(
    ("epsilon", "groups"),
    [
        (1e-9, None),
        (1e6, None),
        (np.r_[1e-9, np.ones(19)], None),
        (np.geomspace(1e-6, 1e3, 20), None),
        (1.0, np.zeros(20)),
        ({"a": 0.5, "b": 2.0}, ["a"] * 19 + ["b"]),
        (0.3, np.arange(20)),
    ],
)
@every_option
def test_unusual_budgets_have_an_answer(epsilon, groups, options):
    fitted = make(**options).fit(X0, Y0, epsilon=epsilon, groups=groups)
    assert np.isfinite(fitted.predict(X0)).all()
    assert fitted.guarantee_.epsilon.max() > 0


def test_failures_after_labels_were_read_all_look_the_same(monkeypatch):
    monkeypatch.setattr(label_private, "multiply_exactly", lambda *_: 1 / 0)
    with pytest.raises(errors.ReleaseFailed) as failure:
        make().fit(X0, Y0, epsilon=1.0)
    assert failure.value.__cause__ is failure.value.__context__ is None
