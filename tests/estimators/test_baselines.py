"""Uniform, Threshold, Sampled, Limited and adapt: exact audits, planted bugs, manners, refusals."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import mpmath
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
import sklearn.pipeline
import sklearn.preprocessing
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import sottovoce as sv
from cases import HIGH, LOW, PEOPLE, every_people, strictest_and_loosest
from seams import Script, Silent, silent
from sklearn_checks import CHECKS
from sottovoce import errors
from sottovoce.budgets import Budgets
from sottovoce.estimators import baselines, mean
from sottovoce.estimators.baselines import (
    Limited,
    Sampled,
    Uniform,
    adapt,
    choose_rows,
    compute_threshold,
    find_best_threshold_in_hindsight,
)
from sottovoce.noise import source
from sottovoce.units import UNITS_PER_EPSILON

SIGMAS = 6


# The coin


def exact_chance(epsilon: int, threshold: int) -> mpmath.mpf:
    return min(
        mpmath.expm1(mpmath.mpf(epsilon) / UNITS_PER_EPSILON)
        / mpmath.expm1(mpmath.mpf(threshold) / UNITS_PER_EPSILON),
        mpmath.mpf(1),
    )


@settings(max_examples=300, deadline=None)
@given(
    threshold=st.one_of(st.integers(1, 10**15), st.integers(1, 3 * 10**9)),
    share=st.floats(0, 1),
    nudge=st.integers(-3, 3),
    more=st.integers(0, 2**64 - 1),
)
def test_a_coin_is_decided_as_an_infinitely_precise_uniform_would_decide_it(
    threshold, share, nudge, more
):
    """ "Returns independent booleans, True with probability (e^ε − 1)/(e^t − 1), exactly, and 1
    where ε ≥ t."
    """
    epsilon = max(1, int(threshold * share))
    with mpmath.workdps(800):
        bias = exact_chance(epsilon, threshold)
        word = min(max(int(mpmath.floor(bias * 2**64)) + nudge, 0), 2**64 - 1)
        rest = [more, (more * 6364136223846793005 + 1) % 2**64, *range(1, 30)]
        uniform = mpmath.mpf(sum(w << (64 * (len(rest) - i)) for i, w in enumerate([word, *rest])))
        expected = bool(uniform < bias * mpmath.mpf(2) ** (64 * (len(rest) + 1)))
    with source._seam(Script(word, *rest)):
        assert bool(source.sample_by_budget(np.array([epsilon]), threshold)[0]) == expected


@settings(max_examples=300, deadline=None)
@given(threshold=st.integers(1, 10**15), share=st.floats(0, 1))
def test_the_chance_in_doubles_is_as_exact_as_the_comparison_takes_it_to_be(threshold, share):
    """ "… in doubles: a relative error below 2^-44 where it is above 2^-64." """
    epsilon = int(threshold * share)
    chance = float(source.compute_inclusion_probability(np.array([epsilon]), threshold)[0])
    with mpmath.workdps(60):
        exact = exact_chance(epsilon, threshold)
        assert 0 <= chance <= 1
        assert exact < mpmath.mpf(2) ** -64 or abs(chance / exact - 1) < 2.0**-44


@pytest.mark.parametrize(
    ("epsilon", "threshold"),
    [(0.01, 0.2), (0.5, 1.0), (3.0, 3.1), (1e-9, 3e-9), (1.0, 1.0), (0.0, 1.0)],
)
def test_people_are_kept_as_often_as_promised_and_a_tenth_off_is_rejected(epsilon, threshold):
    n = 500_000  # a tenth is at least twelve standard deviations, so that both bounds can hold
    p = min(math.expm1(epsilon) / math.expm1(threshold), 1.0)
    kept = int(
        source.sample_by_budget(
            np.full(n, round(epsilon * UNITS_PER_EPSILON)), round(threshold * UNITS_PER_EPSILON)
        ).sum()
    )
    sigma = math.sqrt(n * p * (1 - p))
    assert abs(kept - n * p) <= SIGMAS * sigma
    if 0 < p < 1:
        assert abs(kept - n * min(p * 1.1, 1.0)) > SIGMAS * sigma
        assert abs(kept - n * p / 1.1) > SIGMAS * sigma


def test_budgets_of_thousands_neither_overflow_nor_round_a_chance_to_zero():
    huge = np.array([1000, 999, 1], dtype=np.int64) * UNITS_PER_EPSILON
    with np.errstate(all="raise", under="ignore"):
        assert source.compute_inclusion_probability(huge, 1000 * UNITS_PER_EPSILON)[
            :2
        ].tolist() == [
            1.0,
            pytest.approx(math.exp(-1)),
        ]
    with source._seam(
        Script(2**64 - 1, 0, 0, *[0] * 40)
    ):  # all-zero words: a chance of e^(−999) is still a chance
        assert source.sample_by_budget(huge, 1000 * UNITS_PER_EPSILON).tolist() == [
            True,
            True,
            True,
        ]


# Exact audits of Sampled around Mean


def answer_law(estimator, values, epsilon, groups, kept) -> tuple[float, float, float]:
    """Returns centre and scale of a mean's discrete Laplace law in whole numbers, and its scale in
    the column's.
    """
    seen = []
    seam = Silent()
    original = mean.draw_noisy_values

    def spy(plan, statistic, *rest):
        seen.append((plan, statistic))
        return original(plan, statistic, *rest)

    with pytest.MonkeyPatch.context() as patch, source._seam(seam):
        patch.setattr(mean, "draw_noisy_values", spy)
        if kept is not None:
            patch.setattr(baselines.source, "sample_by_budget", lambda e, t: np.asarray(kept))
        estimator.fit(values, epsilon=epsilon, groups=groups)
    ((plan, statistic),) = seen
    return statistic >> plan.grid.shift, seam.scales[0], plan.noise["scale"]


def largest_log_ratio(p: float, dropped, one, two) -> float:
    """The largest |log| of (1−p)·dropped + p·one over (1−p)·dropped + p·two; laws are (centre,
    scale) of Laplace noise.

    Beyond the outermost centre the ratio of laws of one scale is constant; between centres it is
    searched on a grid.
    """
    centres = [law[0] for law in (dropped, one, two)]
    reach = max(law[1] for law in (dropped, one, two))
    x = np.unique(
        np.r_[centres, np.linspace(min(centres) - 3 * reach, max(centres) + 3 * reach, 4001)]
    )

    def log_density(law):
        centre, scale = law
        return -np.abs(x - centre) / scale - np.log(2 * scale)

    rest = log_density(dropped) + (np.log1p(-p) if p < 1 else -np.inf)
    ratio = np.logaddexp(rest, np.log(p) + log_density(one)) - np.logaddexp(
        rest, np.log(p) + log_density(two)
    )
    return float(np.abs(ratio).max())


def chance(epsilon: float, threshold: float) -> float:
    with mpmath.workdps(40):
        return float(min(mpmath.expm1(epsilon) / mpmath.expm1(threshold), 1))


def coins_of_others(people: int) -> list[np.ndarray]:
    some = np.random.default_rng(1).random(people) < 0.5
    return [np.ones(people, bool), np.zeros(people, bool), some]


def audit(people, owner, threshold, null, law=None) -> tuple[float, float]:
    """Returns (largest exact loss of one owner over hard pairs and others' coins, the promise).

    The law of the answer is a mixture over the others' coins with weights that do not depend on the
    data, so it loses no more than the worst of its parts; and where all answers lie above all
    centres, every part has the same ratio.
    """
    estimator = Sampled(
        sv.Mean(bounds=(LOW, HIGH), interval_share=0), threshold=threshold, null=null
    )
    names = np.unique(people.owners)
    place = int(np.flatnonzero(names == owner)[0])
    budgets = Budgets.of(people.epsilon, people.groups)
    t = compute_threshold(threshold, budgets) / UNITS_PER_EPSILON
    p = chance(float(budgets.epsilon[place]), t)
    mine = people.owners == owner
    losses = []
    known: dict[bytes, tuple] = {}

    def find_law(values, kept):
        """The law of these values and coins, found once: pairs share their members."""
        key = values.tobytes() + kept.tobytes()
        if key not in known:
            known[key] = answer_law(estimator, values, people.epsilon, people.groups, kept)[:2]
        return known[key]

    law = law or find_law
    for one, two in ((LOW, HIGH), (HIGH, LOW), (-1e308, 1e308), (LOW, (LOW + HIGH) / 2)):
        for coins in coins_of_others(len(names)):
            first = np.full(len(mine), LOW)
            second = np.full(len(mine), LOW)
            first[mine] = one
            second[mine] = two
            present = coins.copy()
            absent = coins.copy()
            present[place] = True
            absent[place] = False
            losses.append(
                largest_log_ratio(p, law(first, absent), law(first, present), law(second, present))
            )
    promise = estimator.plan(epsilon=people.epsilon, groups=people.groups).charges[place]
    return max(losses), float(promise)


thresholds = pytest.mark.parametrize("threshold", ["max", "mean", 0.3, 5.0])
who = pytest.mark.parametrize("which", [0, 1], ids=["strictest", "loosest"])


@every_people
@thresholds
@who
@pytest.mark.parametrize("null", [None, LOW, HIGH])
def test_no_exact_loss_of_sampling_exceeds_the_promise(people, threshold, which, null):
    owner = strictest_and_loosest(people)[which]
    loss, promise = audit(people, owner, threshold, null)
    assert loss <= promise * (1 + 1e-9)
    assert promise <= people.epsilon[people.owners == owner][0]


@thresholds
@who
def test_the_worst_pair_comes_close_so_the_audit_can_fail(threshold, which):
    """With the null record at one end of the range, the three laws are as far apart as the theorem
    allows.
    """
    people = PEOPLE[0]
    loss, promise = audit(people, strictest_and_loosest(people)[which], threshold, LOW)
    assert loss >= 0.95 * promise


def test_the_middle_as_null_record_loses_less_than_is_promised():
    """It is only half a range away from anything, so the bound is not attained: see the theory
    page.
    """
    people = PEOPLE[0]
    loss, promise = audit(people, strictest_and_loosest(people)[0], "max", None)
    assert 0.3 * promise < loss < 0.5 * promise


# Planted bugs that the same audit must catch


def test_the_published_form_with_noise_by_the_number_sampled_overspends_and_is_caught():
    """Two people who are always kept and one who grants 0.01: dropped rows leave the table, noise
    is 1/(kt).
    """
    t = 0.2
    epsilon = np.array([0.01, t, t])
    people = replace(PEOPLE[0], epsilon=epsilon)

    def as_published(values, kept):
        kept = np.array([kept[0], True, True])
        centre, integer, scale = answer_law(
            sv.Mean(bounds=(LOW, HIGH)), values[kept], t, None, None
        )
        return (
            centre / integer * scale,
            scale,
        )  # numbers sampled differ, so laws are compared in units of the column

    overspent, promise = audit(people, 0, "max", LOW, law=as_published)
    repaired, _ = audit(people, 0, "max", LOW)
    assert repaired <= promise * (1 + 1e-9)
    assert overspent / promise == pytest.approx(1.375, abs=0.002)


def in_proportion(epsilon: float, threshold: float) -> float:
    return min(1.0, epsilon / threshold)


def half_as_often_again(epsilon: float, threshold: float) -> float:
    return min(1.0, 1.5 * math.expm1(epsilon) / math.expm1(threshold))


@pytest.mark.parametrize("wrong", [in_proportion, half_as_often_again])
def test_a_wrong_chance_is_caught(wrong, monkeypatch):
    people = PEOPLE[0]
    monkeypatch.setitem(globals(), "chance", wrong)
    loss, promise = audit(people, strictest_and_loosest(people)[0], "max", LOW)
    assert loss > promise * (1 + 1e-6)


def test_a_coin_for_each_row_instead_of_each_person_would_overspend():
    """Randomised response to "has this person a row with a 1?" is t-DP for people; coins for nine
    rows break it.
    """
    rows = 9
    t = 2.0
    epsilon = 0.1
    p = chance(epsilon, t)
    for seen, expected in ((p, 1.0), (1 - (1 - p) ** rows, 6.3)):
        assert math.log(1 + seen * math.expm1(t)) / epsilon == pytest.approx(expected, rel=0.01)


# An inner estimator that shows what it was given


SEEN: list[dict] = []


class Spy(RegressorMixin, BaseEstimator):
    """A regressor of somebody else: fit(X, y, epsilon, groups), no guarantee of its own; not
    private.
    """

    def __init__(self, bounds=sv.Bounds(features=(0, 1), label=(0, 1))):  # noqa: B008
        self.bounds = bounds

    def fit(self, X, y, epsilon=None, groups=None):
        SEEN.append({"X": X, "y": np.asarray(y), "epsilon": epsilon, "groups": groups})
        self.coef_ = np.array([0.25])
        self.n_features_in_ = np.shape(X)[1]
        return self

    def predict(self, X):
        return np.full(len(X), 0.5)


def spied_fit(baseline, X, y, epsilon, groups=None) -> dict:
    SEEN.clear()
    baseline.fit(X, y, epsilon=epsilon, groups=groups)
    (seen,) = SEEN
    return seen


@pytest.fixture
def nobody_kept(monkeypatch):
    monkeypatch.setattr(baselines.source, "sample_by_budget", lambda e, t: np.zeros(len(e), bool))


# Sampled


def test_an_empty_sample_answers_by_the_same_mechanism(nobody_kept):
    with silent():
        dropped = Sampled(sv.Mean(bounds=(0, 10))).fit(np.full(50, 9.0), epsilon=0.5)
    assert dropped.value_ == pytest.approx(5.0, abs=1e-3)
    with_everybody = Sampled(sv.Mean(bounds=(0, 10))).plan(epsilon=0.5, rows=50)
    assert dropped.release_.noise == with_everybody.noise
    assert dropped.release_.guarantee == with_everybody.promise


def test_nothing_tells_who_was_sampled(monkeypatch):
    """Everybody has the null record, so the answer is the same whoever is kept, and so must be
    every byte.
    """
    told = []
    for mask in (np.ones(40, bool), np.zeros(40, bool), np.arange(40) % 2 == 0):
        monkeypatch.setattr(baselines.source, "sample_by_budget", lambda e, t, mask=mask: mask)
        with silent():
            told.append(
                Sampled(sv.Mean(bounds=(0, 10))).fit(
                    np.full(40, 5.0), epsilon=np.linspace(0.1, 1, 40)
                )
            )
    assert len({pickle.dumps(fitted) for fitted in told}) == 1
    assert set(vars(told[0])) == {
        "estimator",
        "threshold",
        "null",
        "estimator_",
        "guarantee_",
        "release_",
    }


def test_people_and_not_rows_are_sampled():
    groups = np.repeat(np.arange(200), 3)
    values = np.ones(600)
    y = spied_fit(
        Sampled(Spy()),
        np.ones((600, 2)),
        values,
        dict.fromkeys(range(199), 0.5) | {199: 1.0},
        groups,
    )["y"]
    kept = y.reshape(200, 3) == 1.0
    assert np.array_equal(kept.all(axis=1), kept.any(axis=1))
    assert 0 < kept[:, 0].sum() < 200
    assert kept[-1].all()


def test_the_release_and_the_plan_tell_the_outer_promise():
    epsilon = np.array([0.1] * 30 + [2.0] * 10)
    fitted = Sampled(sv.Mean(bounds=(0, 10)), threshold=1.0).fit(np.full(40, 3.0), epsilon=epsilon)
    plan = fitted.plan(epsilon=epsilon)
    assert fitted.guarantee_.epsilon.tolist() == plan.charges.tolist() == [0.1] * 30 + [1.0] * 10
    assert fitted.release_.guarantee == fitted.guarantee_.summary()
    assert fitted.release_.guarantee["neighbours"] == "replace"
    assert fitted.release_.certificate.page == "docs/theory/baselines.md"
    assert fitted.release_.certificate.plan_digest == plan.digest
    assert sv.Release.from_json(fitted.release_.to_json()) == fitted.release_
    assert [round(line["voice"], 3) for line in plan.who_pays()] == [
        round(0.75 * chance(0.1, 1.0), 3),
        0.25,
    ]
    assert plan.noise == sv.Mean(bounds=(0, 10)).plan(epsilon=1.0, rows=40).noise


def test_promises_are_by_person_in_sorted_order_with_groups():
    groups = ["cy", "ada", "ben", "ada", "cy", "cy"]
    fitted = Sampled(sv.Mean(bounds=(0, 1))).fit(
        np.ones(6), epsilon={"ada": 1.0, "ben": 0.2, "cy": 0.3}, groups=groups
    )
    assert fitted.guarantee_.epsilon.tolist() == [1.0, 0.2, 0.3]
    assert (fitted.guarantee_.unit, fitted.guarantee_.people.tolist()) == (
        "person",
        ["ada", "ben", "cy"],
    )
    lines = fitted.plan(epsilon={"ada": 1.0, "ben": 0.2, "cy": 0.3}, groups=groups).who_pays()
    assert [(line["people"], line["rows"], line["spent"]) for line in lines] == [
        (1, 1, 0.2),
        (1, 3, 0.3),
        (1, 2, 1.0),
    ]


@pytest.mark.parametrize("threshold", ["max", "mean", 0.7])
def test_equal_budgets_keep_everybody_and_give_the_estimator_itself(threshold):
    values = np.linspace(0, 10, 30)
    with silent():
        plain = sv.Mean(bounds=(0, 10)).fit(values, epsilon=0.7)
    with silent():
        same = Sampled(sv.Mean(bounds=(0, 10)), threshold=threshold).fit(values, epsilon=0.7)
    assert same.value_ == plain.value_
    assert same.guarantee_.epsilon.tolist() == [0.7] * 30


@pytest.mark.parametrize(
    "question",
    [
        sv.Mean(bounds=(0, 10)),
        sv.Quantile(bounds=(0, 10)),
        sv.Quantile(q=[0.2, 0.8], bounds=(0, 10)),
    ],
)
@pytest.mark.parametrize("epsilon", [[1000.0, 1.0, 0.001], [1e6, 1e-9, 500.0]])
def test_huge_and_tiny_budgets_get_an_answer(question, epsilon):
    fitted = Sampled(question).fit(np.full(3, 4.0), epsilon=epsilon)
    assert np.all((fitted.value_ >= 0) & (fitted.value_ <= 10))
    assert fitted.guarantee_.epsilon.tolist() == epsilon


def test_the_mean_of_budgets_is_over_people_and_rounded_down():
    budgets = Budgets.of({"a": 0.1, "b": 0.2, "c": 0.2}, groups=["a"] * 7 + ["b", "c"])
    assert compute_threshold("mean", budgets) == 166_666_666
    assert compute_threshold("mean", Budgets.of(np.full(10**5, 1e6))) == 10**15
    fitted = Sampled(sv.Mean(bounds=(0, 1)), threshold="mean").fit(
        np.ones(3), epsilon=[0.1, 0.2, 0.9]
    )
    assert fitted.guarantee_.epsilon.tolist() == [0.1, 0.2, 0.4]


def test_somebody_who_grants_nothing_is_never_read():
    budgets = Budgets.of([0.0, 1.0, 1.0], zero="leave out")
    with silent():
        fitted = Sampled(sv.Mean(bounds=(0, 10))).fit([np.nan, 5.0, 5.0], epsilon=budgets)
    assert fitted.value_ == pytest.approx(5.0, abs=1e-3)
    assert fitted.guarantee_.epsilon.tolist() == [0.0, 1.0, 1.0]


FRAMES = {
    "numpy": lambda a, b: np.column_stack([a, b]),
    "list": lambda a, b: [list(row) for row in zip(a, b, strict=True)],
    "pandas": lambda a, b: pd.DataFrame({"a": a, "b": b}, index=range(5, 5 + len(a))),
    "polars": lambda a, b: pl.DataFrame({"a": a, "b": b}),
    "arrow": lambda a, b: pa.table({"a": a, "b": b}),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_a_dropped_person_becomes_the_middle_of_the_bounds_in_every_kind_of_table(
    frame, nobody_kept
):
    bounds = sv.Bounds(features=([0, 10], [1, 30]), label=(-4, 2))
    X = frame([1, 0, 1], [15.0, 20.0, 30.0])
    seen = spied_fit(Sampled(Spy(bounds)), X, [1.0, 2.0, -3.0], 1.0)
    assert seen["y"].tolist() == [-1.0] * 3
    assert isinstance(seen["X"], np.ndarray if isinstance(X, list) else type(X))
    if isinstance(X, pa.Table):
        cells = seen["X"].to_pandas()
    else:
        cells = seen["X"]
    assert np.array_equal(np.asarray(cells), [[0.5, 20.0]] * 3)
    if hasattr(X, "columns") and not isinstance(X, pa.Table):
        assert list(seen["X"].columns) == list(X.columns)


def test_the_null_record_can_be_given_and_a_ball_has_its_centre(nobody_kept):
    X = np.ones((3, 2))
    assert (
        spied_fit(Sampled(Spy(), null=([0.1, 0.2], 0.9)), X, [1, 0, 1], 1.0)["X"].tolist()
        == [[0.1, 0.2]] * 3
    )
    assert spied_fit(Sampled(Spy(), null=(0.3, 0.9)), X, [1, 0, 1], 1.0)["y"].tolist() == [0.9] * 3
    assert not spied_fit(Sampled(Spy(sv.Bounds(norm=1.0, label=(-1, 1)))), X, [1, 0, 1], 1.0)[
        "X"
    ].any()
    with silent():
        assert Sampled(sv.Mean(bounds=(0, 10)), null=2.0).fit(
            [9.0] * 9, epsilon=1e3
        ).value_ == pytest.approx(2, abs=1e-3)


SCHEMA = """
label = "cost"
[columns.cost]
kind = "number"
low = 0
high = 8
[columns.age]
kind = "number"
low = 20
high = 60
[columns.smoker]
kind = "factor"
levels = ["yes", "no"]
[columns.code]
kind = "factor"
levels = ["0", "1"]
[columns.flag]
kind = "factor"
levels = ["True", "False"]
"""
TABLE = {
    "smoker": ["yes", "no", "no"],
    "age": [30, 40, 50],
    "code": [0, 1, 1],
    "flag": [True, False, True],
}


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("kept", [True, False])
def test_a_schema_has_a_middle_too_and_no_level_of_a_factor(frame, kept, monkeypatch):
    monkeypatch.setattr(baselines.source, "sample_by_budget", lambda e, t: np.full(len(e), kept))
    seen = spied_fit(Sampled(Spy(sv.Schema.loads(SCHEMA))), frame(TABLE), [1.0, 2.0, 3.0], 1.0)
    columns = {name: list(seen["X"][name].to_numpy()) for name in TABLE}
    if kept:  # a factor becomes the text of its level, whatever it was coded by
        assert columns == {
            name: [v if name == "age" else str(v) for v in cells] for name, cells in TABLE.items()
        }
    else:
        assert columns == {
            "smoker": [""] * 3,
            "age": [40.0] * 3,
            "code": [""] * 3,
            "flag": [""] * 3,
        }
        assert seen["y"].tolist() == [4.0] * 3


class LabelSpy(Spy):
    """Features are public for it: only labels may be replaced."""

    def __init__(self, label_bounds=(0, 1)):
        self.label_bounds = label_bounds


def test_public_features_stay(nobody_kept):
    X = np.arange(6.0).reshape(3, 2)
    seen = spied_fit(Sampled(LabelSpy()), X, [1.0, 0.0, 1.0], 1.0)
    assert seen["X"] is X
    assert seen["y"].tolist() == [0.5] * 3
    assert (
        spied_fit(Sampled(LabelSpy(), null=0.25), X, [1.0, 0.0, 1.0], 1.0)["y"].tolist()
        == [0.25] * 3
    )


@settings(max_examples=300, deadline=None)
@given(st.floats(0.01, 3), st.floats(1.01, 5), st.floats(0, 0.3), st.tuples(*[st.floats(0, 1)] * 3))
def test_a_delta_inside_is_the_delta_outside(epsilon, times, delta, given_chances):
    """Three probabilities of an event that keep (t, δ) pairwise, with and without the person's own
    rows.
    """
    t = epsilon * times
    a, b, c = given_chances
    b = min(b, *(math.exp(t) * x + delta for x in (a, c)))
    p = math.expm1(epsilon) / math.expm1(t)
    here = (1 - p) * a + p * b
    there = (1 - p) * a + p * c
    assert here <= math.exp(epsilon) * there + p * delta + 1e-12


def test_an_estimator_with_a_delta_is_sampled_at_that_delta():
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    epsilon = np.resize([0.5, 1.0, 3.0], 300)
    inside = sv.ERM(bounds=sv.Bounds(features=(-1, 1)), delta=1e-5, steps=5)
    sampled = Sampled(inside, null=(np.zeros(2), 0)).fit(X, X[:, 0] > 0, epsilon=epsilon)
    assert np.array_equal(sampled.guarantee_.epsilon, epsilon)
    assert (sampled.guarantee_.currency, sampled.guarantee_.delta) == ("epsilon, delta", 1e-5)
    assert "δ = 1e-05" in sampled.release_.explain()


def test_rho_alone_and_more_than_the_threshold_are_not_sampled():
    class Gaussian(Spy):
        def fit(self, X, y, epsilon=None, groups=None):
            budgets = Budgets.of(epsilon, rows=len(y))
            self.guarantee_ = sv.Guarantee.of(budgets, budgets.kinds.epsilon).as_zcdp()
            return self

    class Overspending(Spy):
        def fit(self, X, y, epsilon=None, groups=None):
            budgets = Budgets.of(epsilon, rows=len(y))
            self.guarantee_ = sv.Guarantee.of(budgets, budgets.kinds.epsilon + 1)
            return self

    for inside in (Gaussian(), Overspending()):
        with pytest.raises(errors.IncompatibleGuarantees):
            Sampled(inside).fit(np.ones((3, 1)), np.ones(3), epsilon=1.0)


def test_after_the_coins_every_complaint_about_data_looks_the_same():
    class Picky(Spy):
        failure: Exception = ValueError("secret")

        def fit(self, X, y, epsilon=None, groups=None):
            raise self.failure

    told = set()
    for failure in (ValueError("secret"), errors.MissingValues("secret"), KeyError("secret")):
        Picky.failure = failure
        with pytest.raises(errors.ReleaseFailed) as caught:
            Sampled(Picky()).fit(np.ones((3, 1)), np.ones(3), epsilon=1.0)
        assert caught.value.__context__ is None
        told.add(str(caught.value))
    assert len(told) == 1
    Picky.failure = errors.InvalidParameter("A parameter.")
    with pytest.raises(errors.InvalidParameter):
        Sampled(Picky()).fit(np.ones((3, 1)), np.ones(3), epsilon=1.0)


def test_the_voices_of_a_plan_are_the_shares_that_are_heard_and_a_tenth_off_is_rejected():
    """Everybody at 1, the null record at 0: the answer is the share of the kept, up to a noise of
    1e-8.
    """
    n = 40_000  # of each: a tenth is fifteen standard deviations, so that both bounds can hold
    epsilon = np.repeat([700.0, 701.0], n)
    question = Sampled(sv.Mean(bounds=(0, 1)), null=0.0)
    share = sum(line["voice"] for line in question.plan(epsilon=epsilon).who_pays())
    answer = question.fit(np.ones(2 * n), epsilon=epsilon).value_
    sigma = math.sqrt(n * math.exp(-1) * (1 - math.exp(-1))) / (2 * n)
    assert share == pytest.approx((1 + math.exp(-1)) / 2, rel=1e-9)
    assert abs(answer - share) < SIGMAS * sigma
    assert abs(answer - (1 + 0.9 * math.exp(-1)) / 2) > SIGMAS * sigma


@pytest.mark.parametrize(
    "inside", [Limited(sv.Mean(bounds=(0, 1)), rows=2), Uniform(sv.Mean(bounds=(0, 1)))]
)
def test_baselines_go_around_baselines_also_for_people_with_many_rows(inside):
    groups = np.repeat(["a", "b", "c", "d"], [1, 2, 5, 5])
    budgets = {"a": 0.1, "b": 2.0, "c": 0.5, "d": 0.1}
    fitted = Sampled(inside).fit(np.ones(13), epsilon=budgets, groups=groups)
    plan = Sampled(inside).plan(epsilon=budgets, groups=groups)
    assert fitted.guarantee_.epsilon.tolist() == plan.charges.tolist() == [0.1, 2.0, 0.5, 0.1]
    assert fitted.release_.certificate.plan_digest == plan.digest
    assert [(line["people"], line["rows"]) for line in plan.who_pays()] == [(2, 6), (1, 5), (1, 2)]


def test_a_plan_needs_to_know_whose_each_row_is():
    streamed = replace(Budgets.of([0.1, 0.2]), codes=None)
    with pytest.raises(errors.InvalidParameter):
        Sampled(sv.Mean(bounds=(0, 1))).plan(streamed)


def test_an_estimator_whose_plan_asks_for_more_is_sampled_all_the_same():
    class Demanding(sv.Mean):
        def plan(self, design, epsilon, groups=None):
            raise AssertionError

    fitted = Sampled(Demanding(bounds=(0, 1))).fit(np.ones(4), epsilon=[0.1, 0.2, 0.3, 0.4])
    assert fitted.release_.guarantee == fitted.guarantee_.summary()
    assert fitted.release_.certificate.page == "docs/theory/baselines.md"


# Uniform


@every_people
def test_uniform_promises_everybody_the_minimum(people):
    uniform = Uniform(sv.Mean(bounds=(LOW, HIGH)))
    fitted = uniform.fit(
        np.full(len(people.epsilon), 3.0), epsilon=people.epsilon, groups=people.groups
    )
    smallest = people.epsilon.min()
    assert fitted.guarantee_.epsilon.max() <= smallest
    assert fitted.guarantee_.epsilon.max() == pytest.approx(smallest, rel=1e-4)
    if people.groups is None:
        assert fitted.guarantee_.epsilon == pytest.approx(smallest, rel=1e-4)
    assert np.array_equal(
        fitted.guarantee_.epsilon, fitted.plan(epsilon=people.epsilon, groups=people.groups).charges
    )
    classical = sv.Mean(bounds=(LOW, HIGH)).plan(
        epsilon=smallest, groups=people.groups, rows=len(people.epsilon)
    )
    assert fitted.release_.noise == classical.noise
    assert fitted.release_.certificate.plan_digest == classical.digest


def test_uniform_takes_an_estimator_without_a_guarantee_at_its_word():
    fitted = Uniform(Spy()).fit(
        np.ones((3, 1)), np.ones(3), epsilon={"a": 0.2, "b": 0.5}, groups=["b", "a", "b"]
    )
    assert SEEN[-1]["epsilon"] == 0.2
    assert SEEN[-1]["groups"].tolist() == ["b", "a", "b"]
    assert fitted.guarantee_.epsilon.tolist() == [0.2, 0.2]
    assert (fitted.guarantee_.arithmetic, fitted.guarantee_.neighbours) == ("floating", "replace")
    assert fitted.coef_.tolist() == [0.25]
    assert fitted.predict(np.ones((2, 1))).tolist() == [0.5, 0.5]
    assert fitted.score(np.ones((2, 1)), [0.0, 1.0]) == 0.0
    assert not hasattr(fitted, "release_")
    assert not hasattr(fitted, "plan")


# Limited


@settings(max_examples=50, deadline=None)
@given(
    owner=st.lists(st.integers(0, 6), min_size=1, max_size=60),
    most=st.integers(1, 5),
    salt=st.text(max_size=5),
)
def test_everybody_keeps_at_most_so_many_rows_and_as_many_as_there_are(owner, most, salt):
    """ "Returns the places, in order, of at most ``most`` rows of each owner, from places, owners
    and salt alone."
    """
    owner = np.array(owner)
    places = choose_rows(owner, most, salt)
    assert np.array_equal(places, np.unique(places))
    for person in np.unique(owner):
        assert np.sum(owner[places] == person) == min(most, np.sum(owner == person))
    assert np.array_equal(places, choose_rows(owner, most, salt))


def test_the_choice_does_not_depend_on_values_and_every_row_has_its_turn():
    groups = np.repeat(["a", "b"], [12, 3])
    X = np.arange(15.0)[:, None]
    first = spied_fit(Limited(Spy(), rows=4), X, np.zeros(15), 1.0, groups)["X"].ravel().tolist()
    again = (
        spied_fit(Limited(Spy(), rows=4), X, np.linspace(-9, 9, 15) ** 3, 1.0, groups)["X"]
        .ravel()
        .tolist()
    )
    assert first == again
    assert len(first) == 7
    turns = np.bincount(
        np.concatenate([choose_rows(np.zeros(12, int), 4, str(s)) for s in range(3000)]),
        minlength=12,
    )
    assert np.all(np.abs(turns - 1000) < SIGMAS * math.sqrt(3000 * (1 / 3) * (2 / 3)))


@every_people
def test_limited_keeps_everybodys_own_promise(people):
    values = np.linspace(LOW, HIGH, len(people.epsilon))
    fitted = Limited(sv.Mean(bounds=(LOW, HIGH)), rows=2).fit(
        values, epsilon=people.epsilon, groups=people.groups
    )
    granted = Budgets.of(people.epsilon, people.groups).epsilon
    assert len(fitted.guarantee_.epsilon) == len(granted)
    assert np.all(fitted.guarantee_.epsilon <= granted)
    plan = fitted.plan(epsilon=people.epsilon, groups=people.groups)
    assert np.array_equal(plan.charges, fitted.guarantee_.epsilon)
    assert plan.budgets.kinds.rows.max() <= 2
    assert fitted.release_.certificate.plan_digest == plan.digest


def test_a_row_that_is_not_chosen_is_not_read():
    groups = ["a"] * 10 + ["b"] * 10
    places = choose_rows(np.repeat([0, 1], 10), 3, "")
    values = np.full(20, np.nan)
    values[places] = 0.5
    assert (
        0
        <= Limited(sv.Mean(bounds=(0, 1)), rows=3).fit(values, epsilon=1.0, groups=groups).value_
        <= 1
    )


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_limited_takes_every_kind_of_table_and_passes_budgets_on(frame):
    X = frame(list(range(6)), [0.5] * 6)
    groups = ["a", "a", "a", "b", "c", "c"]
    seen = spied_fit(
        Limited(Spy(), rows=1), X, np.arange(6), {"a": 0.1, "b": 0.2, "c": 0.3}, groups
    )
    assert seen["epsilon"].tolist() == [0.1, 0.2, 0.3]
    assert seen["groups"].tolist() == ["a", "b", "c"]
    if isinstance(X, pa.Table):
        first = seen["X"].to_pandas()
    else:
        first = seen["X"]
    assert np.array_equal(np.asarray(first)[:, 0], seen["y"])
    assert spied_fit(Limited(Spy(), rows=1), X, np.arange(6), 0.7, groups)["epsilon"] == 0.7


def test_people_left_out_stay_left_out_when_limited():
    budgets = Budgets.of({"a": 0.0, "b": 1.0}, groups=["a"] * 3 + ["b"] * 3, zero="leave out")
    fitted = Limited(sv.Mean(bounds=(0, 1)), rows=2).fit(np.ones(6), epsilon=budgets)
    assert fitted.guarantee_.epsilon.tolist() == [0.0, pytest.approx(1.0)]
    with pytest.raises(errors.InvalidBudget):
        Uniform(sv.Mean(bounds=(0, 1))).fit(np.ones(6), epsilon=budgets)


# Somebody else's estimators


def toy(y, epsilon):
    """ε-DP in pure ε for one row replaced: the mean of numbers in [0, 1] with Laplace noise (in
    doubles: a toy).
    """
    return float(np.mean(y)) + np.random.default_rng().laplace(0, 1 / (len(y) * epsilon))


class Line:
    def __init__(self, slope):
        self.coef_ = slope

    def predict(self, X):
        return np.asarray(X)[:, 0] * self.coef_


HANDED: list[float] = []


def toy_line(X, y, epsilon):
    HANDED.append(epsilon)
    return Line(np.array([0.5]))


@pytest.mark.parametrize("around", [Uniform, Sampled])
def test_an_adapted_function_is_an_estimator_for_every_baseline(around):
    fitted = around(adapt(fit=toy, bounds=(0, 1))).fit(
        np.full(5000, 0.5), epsilon=[0.5] * 2500 + [2.0] * 2500
    )
    assert abs(fitted.value_ - 0.5) < 0.1
    assert fitted.guarantee_.epsilon[[0, -1]].tolist() == (
        [0.5, 0.5] if around is Uniform else [0.5, 2.0]
    )
    assert fitted.guarantee_.arithmetic == "floating"
    assert pickle.loads(pickle.dumps(fitted)).value_ == fitted.value_


def test_an_adapted_model_predicts_and_an_add_remove_one_gets_half():
    bounds = sv.Bounds(features=(0, 1), label=(0, 1))
    fitted = Uniform(adapt(toy_line, bounds=bounds, neighbours="add/remove")).fit(
        np.ones((3, 1)), np.ones(3), epsilon=[1.0, 0.3, 2.0]
    )
    assert HANDED[-1] == 0.15
    assert fitted.guarantee_.epsilon.tolist() == [0.3] * 3
    assert fitted.coef_.tolist() == [0.5]
    assert fitted.predict([[3.0]]).tolist() == [1.5]


def test_an_adapted_function_knows_one_row_a_person_and_limited_sees_to_it():
    names = ["cy", "ada", "ben"]
    fitted = Sampled(adapt(toy, bounds=(0, 1))).fit(
        [0.0, 1.0, 1.0], epsilon=[0.1, 2.0, 0.5], groups=names
    )
    assert fitted.guarantee_.epsilon.tolist() == [2.0, 0.5, 0.1]
    assert fitted.guarantee_.unit == "person"
    uniform = Uniform(adapt(toy)).fit([0.0, 1.0, 1.0], epsilon=[0.1, 2.0, 0.5], groups=names)
    assert (uniform.guarantee_.unit, uniform.guarantee_.people.tolist()) == (
        "person",
        sorted(names),
    )
    with pytest.raises(errors.InvalidParameter):
        Uniform(adapt(toy)).fit([0.0, 1.0, 1.0], epsilon=0.1, groups=["a", "a", "b"])
    limited = Limited(Sampled(adapt(toy, bounds=(0, 1))), rows=1)
    assert limited.fit(
        [0.0, 1.0, 1.0], epsilon={"a": 0.1, "b": 0.3}, groups=["a", "a", "b"]
    ).guarantee_.epsilon.tolist() == [0.1, 0.3]


def test_a_failing_function_tells_nothing():
    def broken(y, epsilon):
        raise RuntimeError(f"secret {y}")

    with pytest.raises(errors.ReleaseFailed) as caught:
        Uniform(adapt(broken)).fit([0.5, 0.7], epsilon=1.0)
    assert caught.value.__context__ is None


# Refusals


class NoNoise:
    def bytes(self, count):
        raise AssertionError("a coin was thrown for a refused request")

    def integers(self, law, scale, size):
        raise AssertionError("noise was drawn for a refused request")


MEAN = sv.Mean(bounds=(0, 1))
VALUES = np.linspace(0, 1, 6)
X6 = np.ones((6, 2))
EPS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
REFUSED = {
    "a word as threshold": (errors.InvalidParameter, Sampled(MEAN, threshold="median"), {}),
    "a number as text": (errors.InvalidParameter, Sampled(MEAN, threshold="0.5"), {}),
    "t = 0": (errors.InvalidParameter, Sampled(MEAN, threshold=0), {}),
    "t < 0": (errors.InvalidParameter, Sampled(MEAN, threshold=-0.5), {}),
    "t infinite": (errors.InvalidParameter, Sampled(MEAN, threshold=math.inf), {}),
    "t NaN": (errors.InvalidParameter, Sampled(MEAN, threshold=math.nan), {}),
    "t a list": (errors.InvalidParameter, Sampled(MEAN, threshold=[0.5]), {}),
    "t None": (errors.InvalidParameter, Sampled(MEAN, threshold=None), {}),
    "no rows": (errors.InvalidParameter, Limited(MEAN, rows=0), {}),
    "half a row": (errors.InvalidParameter, Limited(MEAN, rows=1.5), {}),
    "rows as text": (errors.InvalidParameter, Limited(MEAN, rows="2"), {}),
    "one person, one row left": (
        errors.TooFewRows,
        Limited(MEAN, rows=1),
        {"groups": ["a"] * 6, "epsilon": 1.0},
    ),
    "nothing inside": (errors.InvalidParameter, Uniform(), {}),
    "a class inside": (errors.InvalidParameter, Uniform(sv.Mean), {}),
    "no epsilon in fit": (
        errors.InvalidParameter,
        Sampled(LinearRegression()),
        {"X": X6, "y": VALUES},
    ),
    "not an estimator": (errors.InvalidParameter, Limited(3), {}),
    "two columns for one": (errors.InvalidParameter, Uniform(MEAN), {"y": VALUES}),
    "no data": (errors.WrongType, Uniform(MEAN), {"X": None}),
    "a number as data": (errors.WrongType, Sampled(MEAN), {"X": 3.0}),
    "text as data": (errors.WrongType, Sampled(MEAN), {"X": ["a"] * 6}),
    "NaN": (errors.MissingValues, Sampled(MEAN), {"X": [0, 1, np.nan, 0, 0, 0]}),
    "infinity": (
        errors.MissingValues,
        Sampled(sv.Mean(bounds=(0, 1), missing=0.5)),
        {"X": [0, 1, np.inf, 0, 0, 0]},
    ),
    "NaN among features": (
        errors.MissingValues,
        Sampled(Spy()),
        {"X": np.where(X6 == 1, np.nan, 1), "y": VALUES},
    ),
    "bounds missing": (errors.InvalidBounds, Sampled(sv.Mean()), {}),
    "bounds of features missing": (
        errors.InvalidBounds,
        Sampled(Spy(None)),
        {"X": X6, "y": VALUES},
    ),
    "a null record that is text": (errors.InvalidParameter, Sampled(MEAN, null="middle"), {}),
    "a null record that is NaN": (errors.InvalidParameter, Sampled(MEAN, null=math.nan), {}),
    "a null record that is no pair": (
        errors.InvalidParameter,
        Sampled(Spy(), null=0.5),
        {"X": X6, "y": VALUES},
    ),
    "a null record too long": (
        errors.InvalidParameter,
        Sampled(Spy(), null=([1, 2, 3], 0)),
        {"X": X6, "y": VALUES},
    ),
    "ε of another length": (errors.UnequalLengths, Sampled(MEAN), {"epsilon": EPS[:5]}),
    "groups of another length": (
        errors.UnequalLengths,
        Limited(MEAN),
        {"groups": ["a"] * 5, "epsilon": 1.0},
    ),
    "y of another length": (errors.UnequalLengths, Sampled(Spy()), {"X": X6, "y": VALUES[:5]}),
    "ε zero": (errors.InvalidBudget, Sampled(MEAN), {"epsilon": 0.0}),
    "no ε": (errors.InvalidBudget, Uniform(MEAN), {"epsilon": None}),
    "one row": (errors.TooFewRows, Sampled(MEAN), {"X": [0.5], "epsilon": [0.5]}),
    "neighbours unknown": (errors.InvalidParameter, Uniform(adapt(toy, neighbours="similar")), {}),
    "nothing to call": (errors.InvalidParameter, Uniform(adapt(None)), {}),
    "several ε for one that knows one": (errors.InvalidParameter, Limited(adapt(toy)), {}),
}


@pytest.mark.parametrize(("error", "baseline", "arguments"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_a_named_error_before_a_coin_is_thrown(error, baseline, arguments):
    with pytest.raises(error) as caught, source._seam(NoNoise()):
        baseline.fit(**{"X": VALUES, "epsilon": EPS, **arguments})
    assert caught.value.found
    assert caught.value.remedy


def test_a_classifier_needs_a_null_label_of_its_own():
    class Classifier(ClassifierMixin, Spy):
        pass

    with pytest.raises(errors.InvalidParameter):
        Sampled(Classifier()).fit(X6, VALUES, epsilon=EPS)
    spied_fit(Sampled(Classifier(), null=(0.5, 1.0)), X6, VALUES, EPS)


# Manners


BASELINES = [
    Uniform(MEAN),
    Sampled(MEAN),
    Limited(MEAN),
    Sampled(Limited(sv.Quantile(bounds=(0, 1)), rows=2)),
    adapt(toy),
]
NAMES = ["uniform", "sampled", "limited", "sampled limited", "adapted"]


@pytest.mark.parametrize("baseline", BASELINES, ids=NAMES)
@pytest.mark.parametrize(
    "check", CHECKS[1:], ids=lambda check: check.__name__
)  # they need an estimator inside
def test_scikit_learns_checks(baseline, check):
    check(type(baseline).__name__, baseline)


@pytest.mark.parametrize("baseline", BASELINES, ids=NAMES)
def test_clone_pickle_and_parameters(baseline):
    fitted = clone(baseline).fit(VALUES, epsilon=0.5)
    copy = clone(fitted)
    assert not hasattr(copy, "value_")
    assert repr(copy) == repr(baseline)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).value_, fitted.value_)


def test_parameters_of_the_estimator_inside_are_reached():
    baseline = Sampled(Limited(sv.Mean(bounds=(0, 1)), rows=2))
    assert baseline.get_params()["estimator__estimator__bounds"] == (0, 1)
    baseline.set_params(estimator__estimator__bounds=(0, 2), estimator__rows=3, threshold="mean")
    assert (baseline.estimator.estimator.bounds, baseline.estimator.rows, baseline.threshold) == (
        (0, 2),
        3,
        "mean",
    )


@pytest.mark.parametrize("baseline", [Uniform(Spy()), Sampled(Spy()), Limited(Spy())], ids=repr)
def test_budgets_and_owners_are_routed_through_a_pipeline(baseline):
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(baseline).set_fit_request(epsilon=True, groups=True)
        requests = routed.get_metadata_routing().fit.requests
        assert requests == {"epsilon": True, "groups": True, "column": None}
        pipeline = sklearn.pipeline.make_pipeline(
            sklearn.preprocessing.FunctionTransformer(), routed
        )
        pipeline.fit(
            np.ones((4, 1)), np.ones(4), epsilon={"a": 0.1, "b": 0.2}, groups=["a", "b", "b", "b"]
        )
        assert pipeline.predict(np.ones((2, 1))).tolist() == [0.5, 0.5]
    assert sklearn.base.is_regressor(baseline)


def test_before_fit_there_is_no_answer():
    unfitted = Sampled(Spy())
    with pytest.raises(NotFittedError):
        unfitted.predict(X6)
    assert not hasattr(Uniform(MEAN), "predict")
    assert not hasattr(unfitted, "coef_")
    with pytest.raises(NotFittedError):
        sklearn.utils.validation.check_is_fitted(unfitted)


def test_fitting_leaves_the_estimator_given_untouched_and_a_second_fit_forgets_the_first():
    inside = sv.Mean(bounds=(0, 1))
    baseline = Uniform(inside).fit(VALUES, epsilon=0.5)
    assert not hasattr(inside, "value_")
    baseline.set_params(estimator=Spy()).fit(X6, VALUES, epsilon=0.5)
    assert not hasattr(baseline, "release_")
    assert not hasattr(baseline, "value_")


# --- A threshold ----------------------------------------------------------------------------------


@pytest.mark.parametrize("people", PEOPLE, ids=repr)
@pytest.mark.parametrize("inside", [sv.Mean(bounds=(LOW, HIGH)), sv.Quantile(bounds=(LOW, HIGH))])
def test_above_a_threshold_all_pay_as_much_and_below_it_nobody_does(people, inside):
    budgets = Budgets.of(people.epsilon, people.groups)
    values = np.linspace(LOW, HIGH, len(people.epsilon))
    for t in np.unique(budgets.epsilon)[:-1]:  # one person alone is too few
        question = sv.Threshold(inside, threshold=float(t))
        plan = question.plan(people.epsilon, people.groups)
        fitted = question.fit(values, epsilon=people.epsilon, groups=people.groups)
        spent = fitted.guarantee_.epsilon
        assert np.array_equal(spent, plan.charges)
        assert np.all(spent <= budgets.epsilon)
        assert np.array_equal(spent > 0, budgets.epsilon >= t)
        assert fitted.release_.expected_error == pytest.approx(plan.expected_error)
        assert fitted.release_.parameters["threshold"] == t
        assert plan.weights.person[plan.budgets.kinds.epsilon < t * 1e9 - 1].sum() == 0


def test_rows_below_the_threshold_are_not_read():
    """NaN would be refused. Noise of a scale below .01 is beyond 1 with a chance of e^-100."""
    epsilon = np.array([0.1] * 50 + [50.0] * 50)
    values = np.where(epsilon < 25, np.nan, 3.0)
    question = sv.Threshold(sv.Mean(bounds=(0, 10)), threshold=25.0)
    assert question.plan(epsilon).noise["scale"] < 0.01
    assert abs(question.fit(values, epsilon=epsilon).value_ - 3) < 1


def test_without_a_threshold_it_is_the_one_with_the_least_noise():
    epsilon = np.repeat([0.01, 0.2, 1.0], [340, 600, 60])  # 10, 132 and 60 at once
    plans = {
        t: sv.Threshold(sv.Mean(bounds=(0, 1), interval_share=0), threshold=t).plan(epsilon)
        for t in (0.01, 0.2, 1.0, None)
    }
    noise = {t: plan.noise["scale"] for t, plan in plans.items()}
    assert noise[None] == min(noise.values()) == noise[0.2]
    assert plans[None].representative == pytest.approx(0.66)


@pytest.mark.parametrize("threshold", [5.0, -1, "max", "lowest", np.nan, []])
def test_a_threshold_that_nobody_grants_is_refused(threshold):
    with pytest.raises(errors.InvalidInput):
        sv.Threshold(sv.Mean(bounds=(0, 1)), threshold=threshold).fit([0.5] * 9, epsilon=1.0)


def test_the_best_threshold_in_hindsight_has_the_smallest_error():
    tried = {0.1: 3.0, 0.5: 1.0, 2.0: 2.0}
    assert find_best_threshold_in_hindsight(list(tried), tried.get) == (0.5, 1.0)
