"""Baselines as questions that a ledger books: who is charged what, who is heard, and what an audit
finds.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import sottovoce as sv
from seams import seeded
from sottovoce import errors
from sottovoce.estimators import count
from sottovoce.estimators.baseline_questions import BaselineQuestion
from sottovoce.release import Release

PEOPLE = 120
RNG = np.random.default_rng(7)
X = RNG.uniform(-1, 1, (PEOPLE, 2))
Y = np.clip(X @ [0.5, -0.3] + 0.1 * RNG.normal(size=PEOPLE), -1, 1)
NAMES = [f"p{i:03d}" for i in range(PEOPLE)]
EPSILON = np.resize([0.2, 0.5, 1.0], PEOPLE)
GRANTS = dict(zip(NAMES, EPSILON.tolist(), strict=True))
BOX = sv.Bounds(features=(-1, 1), label=(-1, 1))
BY = {"g": ["a", "b"]}
TABLE = pa.table({"g": ["a", "b", "b"] * (PEOPLE // 3), "y": Y})
QUESTIONS = {
    "mean": (lambda: sv.Mean(bounds=(-1, 1)), (Y,)),
    "window": (lambda: sv.Mean(bounds=(-1, 1), scale="bought"), (Y,)),
    "quantile": (lambda: sv.Quantile(bounds=(-1, 1)), (Y,)),
    "several quantiles": (lambda: sv.Quantile([0.3, 0.7], bounds=(-1, 1)), (Y,)),
    "sum": (lambda: sv.Sum((-1, 1)), (Y,)),
    "variance": (lambda: sv.Variance((-1, 1)), (Y,)),
    "count": (lambda: sv.Count(by=BY), (TABLE,)),
    "mean by group": (lambda: sv.Mean((-1, 1), by=BY), (TABLE, "y")),
    "ridge": (lambda: sv.Ridge(bounds=BOX), (X, Y)),
    "statistics": (lambda: sv.Ridge(bounds=BOX, method="statistics"), (X, Y)),
    "output": (lambda: sv.Ridge(bounds=BOX, method="output"), (X, Y)),
    "adassp": (lambda: sv.Ridge(bounds=BOX, method="adassp", delta=1e-6), (X, Y)),
    "logistic": (lambda: sv.LogisticRegression(sv.Bounds(features=(-1, 1))), (X, Y > 0)),
    "descent": (
        lambda: sv.ERM("logistic", bounds=sv.Bounds(features=(-1, 1)), delta=1e-6, steps=5),
        (X, Y > 0),
    ),
    "labels": (lambda: sv.LabelPrivateRegression(bounds=(-1, 1)), (X, Y)),
    "posterior": (
        lambda: sv.PosteriorSample(4.0, 6.0, sv.Bounds(norm=2.0, label=(-1, 1))),
        (X, Y),
    ),
}
BASELINES = {
    "uniform": (sv.Uniform, np.full(PEOPLE, 0.2)),
    "threshold": (
        lambda est: sv.Threshold(est, threshold=0.5),
        np.where(EPSILON >= 0.5, 0.5, 0.0),
    ),
}


def open_session():
    session = sv.Session()
    session.grant(GRANTS)
    ample = dict.fromkeys(NAMES, 50.0)
    session.grant(ample, currency="zCDP rho")
    session.grant(ample, neighbours="replace labels")
    session.grant(ample, currency="epsilon, delta", neighbours="zero out", delta=1e-3)
    return session


def release(baseline, data, session=None, key="k"):
    own = open_session() if session is None else session
    return own.release(baseline, *data, groups=NAMES, epsilon=GRANTS, key=key)


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_is_booked_and_audited_from_its_release_alone(name, baseline):
    make, data = QUESTIONS[name]
    around, granted = BASELINES[baseline]
    session = open_session()
    made = release(around(make()), data, session)
    session.verify(made)
    read = Release.from_json(made.to_json())
    told = read.guarantee.get("epsilon", read.guarantee.get("rho"))
    assert told["most"] <= granted.max()
    assert f"ε = {granted.max():g}" in read.explain() or f"ε, {granted.max():g}" in read.explain()
    audit = sv.audit.per_instance(read, *data, epsilon=GRANTS, groups=NAMES)
    promised = np.asarray(audit.promised)
    assert (promised <= granted + 1e-12).all()
    assert (np.asarray(audit.epsilon) <= promised + 1e-9).all()
    assert not np.asarray(audit.epsilon)[granted == 0].any()
    assert type(sv.load(read)) is type(make())


def test_whoever_does_not_take_part_is_not_charged():
    session = open_session()
    release(sv.Threshold(sv.Mean(bounds=(-1, 1)), threshold=0.5), (Y,), session)
    left = [session.balance(name) for name in NAMES[:3]]
    assert left == pytest.approx([0.2, 0.0, 0.5])


def test_whoever_does_not_take_part_is_not_looked_at():
    values = np.where(EPSILON < 0.5, np.nan, Y)
    release(sv.Threshold(sv.Mean(bounds=(-1, 1)), threshold=0.5), (values,))
    with pytest.raises(errors.InvalidData):
        release(sv.Uniform(sv.Mean(bounds=(-1, 1))), (values,))


def test_it_is_the_question_itself_of_people_who_grant_that_much():
    lowered = np.where(EPSILON >= 0.5, 0.5, 0.0)
    budgets = sv.Budgets.of(dict(zip(NAMES, lowered, strict=True)), NAMES, zero="leave out")
    with seeded(3):
        direct = sv.Mean(bounds=(-1, 1)).fit(Y, epsilon=budgets)
    with seeded(3):
        made = release(sv.Threshold(sv.Mean(bounds=(-1, 1)), threshold=0.5), (Y,))
    assert made.value == direct.value_
    assert made.expected_error == pytest.approx(direct.release_.expected_error)
    assert made.intervals == direct.release_.intervals


@pytest.mark.parametrize("name", ["mean", "quantile", "sum", "variance", "count"])
def test_weights_of_zero_are_as_good_as_fewer_rows(name):
    asked = sv.Threshold(QUESTIONS[name][0](), threshold=0.5)
    fewer = asked.plan(EPSILON)
    zero = asked.to_question().plan_for(sv.Budgets.of(EPSILON))
    assert zero.noise["scale"] == pytest.approx(fewer.noise["scale"])
    assert zero.errors[0].total == pytest.approx(fewer.errors[0].total)
    assert zero.errors[0].bias == pytest.approx(fewer.errors[0].bias)


def test_a_key_stands_for_its_baseline_too():
    session = open_session()
    question = sv.Mean(bounds=(-1, 1))
    first = release(sv.Threshold(question, threshold=0.5), (Y,), session)
    assert release(sv.Threshold(question, threshold=0.5), (Y,), session) == first
    for other in (question, sv.Uniform(question), sv.Threshold(question, threshold=1.0)):
        with pytest.raises(errors.KeyReused):
            release(other, (Y,), session)


def test_baselines_that_pick_rows_are_no_questions():
    for other in (sv.Sampled(sv.Mean(bounds=(-1, 1))), sv.Limited(sv.Mean(bounds=(-1, 1)))):
        with pytest.raises(errors.InvalidParameter, match="pick rows"):
            release(other, (Y,))


def test_a_classifier_keeps_its_own_threshold():
    question = sv.LogisticRegression(sv.Bounds(features=(-1, 1)))
    budgets = sv.Budgets.of(np.full(int((EPSILON >= 0.5).sum()), 0.5))
    own = question.plan(budgets, n_features=2).parameters["threshold"]
    plan = sv.Threshold(question, threshold=0.5).plan(EPSILON, n_features=2)
    assert plan.parameters["threshold"] == own
    assert plan.parameters["baseline"]["epsilon"] == 0.5


def measure_loss(monkeypatch, row):
    """The exact loss of one person to a count that sums to zero, and what they are charged."""
    seen = []
    original = count.draw_noisy_values

    def spy(plan, slots):
        seen.append((plan.noise["integer_scale"], [int(slot) for slot in slots]))
        return original(plan, slots)

    groups = TABLE["g"].to_pylist()
    other = [*groups[:row], "b" if groups[row] == "a" else "a", *groups[row + 1 :]]
    monkeypatch.setattr(count, "draw_noisy_values", spy)
    asked = sv.Threshold(sv.Count(by=BY), threshold=0.5)
    for column in (groups, other):
        session = open_session()
        release(asked, (TABLE.set_column(0, "g", pa.array(column)),), session)
    monkeypatch.setattr(count, "draw_noisy_values", original)
    (scale, one), (_, two) = seen
    apart = sum(abs(a - b) for a, b in zip(one, two, strict=True))
    return apart / (2 * scale), GRANTS[NAMES[row]] - session.balance(NAMES[row])


def test_the_strictest_lose_nothing_and_the_loosest_what_they_are_charged(monkeypatch):
    loss, charge = measure_loss(monkeypatch, 0)
    assert loss == 0
    assert charge == pytest.approx(0)
    loss, charge = measure_loss(monkeypatch, 2)
    assert 0.99 * charge <= loss <= charge + 1e-12


def test_rows_that_are_read_under_the_own_grants_are_caught(monkeypatch):
    """Planted: the plan lowers grants, and the answer is made with everybody's own."""

    def release_under(self, plan, rows):
        own = self.estimator.plan_for(plan.budgets, rows)
        return self.estimator.release_under(own, rows)

    monkeypatch.setattr(BaselineQuestion, "release_under", release_under)
    loss, charge = measure_loss(monkeypatch, 0)
    assert loss > charge + 0.01
