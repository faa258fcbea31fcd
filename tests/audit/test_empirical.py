"""Measured losses: bounds that hold, the classic bug that is caught, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import sottovoce as sv
from sottovoce.audit import measured_losses as measured
from sottovoce.errors import Confidential, InvalidParameter
from sottovoce.noise import continuous, source
from sottovoce.schema import Column

VALUES = np.linspace(0, 1, 20)
X = np.random.default_rng(1).random((24, 2))
Y = X[:, 0]
BOX = sv.Bounds(features=(0, 1), label=(0, 1))
PLAIN = sv.Bounds(features=(0, 1))


class HalfNoise(sv.Mean):
    """A planted bug: half the noise that was planned."""

    def release_under(self, plan, rows):
        halved = {**plan.noise, "integer_scale": plan.noise["integer_scale"] / 2}
        return super().release_under(replace(plan, noise=halved), rows)


def test_the_mean_keeps_its_promise_and_is_measured_closely():
    """False-alarm rate 1e-6: a right mechanism is called wrong with probability 1 − confidence."""
    found = sv.audit.empirical(
        sv.Mean(bounds=(0, 1), interval_share=0),
        VALUES,
        epsilon=1.0,
        person=3,
        runs=500,
        confidence=1 - 1e-6,
    )
    assert not found.is_violation
    assert found.claimed == pytest.approx(1.0)
    assert "No violation" in found.explain()


def test_half_the_noise_is_caught_at_the_size_of_the_guide():
    """Missed with probability below 1e-6: with half the noise the odds are e², and 1,000 answers of
    each table tell .43 from .06 by many deviations.
    """
    told = []
    found = sv.audit.empirical(
        HalfNoise(bounds=(0, 1), interval_share=0),
        VALUES,
        epsilon=1.0,
        person=3,
        runs=4000,
        watch=lambda done, of: told.append((done, of)),
    )
    assert found.is_violation
    assert 1.0 < found.epsilon < 2.0
    assert "does not keep its promise" in found.explain()
    assert found.runs < 4000  # it stopped as soon as it was sure
    assert told[-1][0] == found.runs


def test_a_pair_of_ones_own_is_measured():
    other = VALUES.copy()
    other[5] = 1.0
    found = sv.audit.empirical(
        sv.Mean(bounds=(0, 1)), VALUES, other, epsilon=0.5, runs=500, confidence=1 - 1e-7
    )
    assert 0 <= found.epsilon <= found.claimed


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "data", "options"),
    [
        (lambda: sv.Quantile(q=0.5, bounds=(0, 1), cells=64), VALUES, {}),
        (lambda: sv.Ridge(BOX), (X, Y), {}),
        (lambda: sv.Ridge(BOX, method="statistics"), (X, Y), {}),
        (lambda: sv.Ridge(BOX, method="output-tight"), (X, Y), {}),
        (lambda: sv.LogisticRegression(PLAIN), (X, (Y > 0.5).astype(int)), {}),
        (lambda: sv.LabelPrivateRegression((0, 1)), (X, Y), {}),
        (lambda: sv.ERM("squared", bounds=BOX, delta=1e-5, steps=4), (X, Y), {"delta": 1e-5}),
        (lambda: sv.Uniform(sv.Mean(bounds=(0, 1))).estimator, VALUES, {}),
    ],
)
def test_every_estimator_is_measured_and_keeps_its_promise(make, data, options):
    grants = np.repeat(
        [0.5, 2.0], len(np.ravel(data[-1] if isinstance(data, tuple) else data)) // 2
    )
    for person in (0, len(grants) - 1):
        found = sv.audit.empirical(
            make(), data, epsilon=grants, person=person, runs=1000, confidence=1 - 1e-7, **options
        )
        assert not found.is_violation


@pytest.mark.long
@pytest.mark.parametrize("question", ["classifier", "regression"])
def test_half_the_noise_in_an_objective_is_caught(question, monkeypatch):
    """The guide's size for models: 24 rows, ε = 2, 4,000 runs."""
    if question == "classifier":
        drawn = continuous.draw_l2
        monkeypatch.setattr(continuous, "draw_l2", lambda *rest: drawn(*rest) / 2)
        model = sv.LogisticRegression(PLAIN, alpha=2.0)
        data = (X, (Y > 0.5).astype(int))
    else:
        mixed = continuous.draw_mixed_norm
        monkeypatch.setattr(continuous, "draw_mixed_norm", lambda *rest: mixed(*rest) / 2)
        model = sv.Ridge(BOX)
        data = (X, Y)
    found = sv.audit.empirical(model, data, epsilon=2.0, person=0, runs=4000)
    assert found.is_violation


def test_canaries_of_tables_with_factors_lie_in_corners():
    schema = sv.Schema(
        {
            "u": Column("number", 0.0, 1.0),
            "f": Column("factor", levels=("a", "b", "c")),
            "y": Column("number", 0.0, 1.0),
        },
        label="y",
    )
    table = pa.table({"u": X[:, 0], "f": ["a", "b", "c"] * 8})
    pairs = list(measured.list_canaries(sv.Ridge(schema), (table, Y), np.array([2, 3])))
    for pair in pairs:
        for X_, y_ in pair[:2]:
            assert X_.num_rows == 24
            assert y_.shape == (24,)
    assert pairs[0].first[0]["f"].to_pylist()[2:4] == ["c", "c"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "labels"),
    [
        (lambda: sv.LabelPrivateRegression((0, 1)), Y),
        (lambda: sv.LogisticRegression(PLAIN, neighbours="labels"), (Y > 0.5).astype(int)),
    ],
    ids=["regression", "classes"],
)
def test_where_features_are_public_labels_alone_are_exchanged(make, labels, monkeypatch):
    seen = []
    original = measured.list_canaries

    def watch(*given):
        seen.extend(original(*given))
        return iter(seen)

    monkeypatch.setattr(measured, "list_canaries", watch)
    sv.audit.empirical(make(), (X, labels), epsilon=1.0, person=3, runs=500)
    (pair,) = seen
    assert pair.first[0] is pair.second[0] is X
    assert np.flatnonzero(pair.first[1] != pair.second[1]).tolist() == [3]


@pytest.mark.long
def test_people_of_several_rows_in_a_table_with_factors():
    schema = sv.Schema(
        {
            "u": Column("number", 0.0, 1.0),
            "f": Column("factor", levels=("a", "b", "c")),
            "y": Column("number", 0.0, 1.0),
        },
        label="y",
    )
    table = pa.table({"u": X[:, 0], "f": ["a", "b", "c"] * 8})
    owners = np.repeat([f"p{i}" for i in range(12)], 2)
    found = sv.audit.empirical(
        sv.Ridge(schema, method="output-tight"),
        (table, Y),
        epsilon=1.0,
        groups=owners,
        person="p1",
        runs=500,
        confidence=1 - 1e-7,
    )
    assert found.claimed <= 1.0


GROUPS = {"g": ["a", "b"]}
TABLE = pa.table({"g": ["a", "b"] * 10, "y": VALUES})


class HalfCount(sv.Count):
    """A planted bug: half the noise that was planned."""

    def release_under(self, plan, rows):
        halved = {**plan.noise, "integer_scale": plan.noise["integer_scale"] // 2}
        return super().release_under(replace(plan, noise=halved), rows)


@pytest.mark.long
@pytest.mark.parametrize("kind", [sv.Count, HalfCount])
def test_a_table_by_groups_is_attacked(kind):
    """False-alarm rate 1e-7; half the noise is missed with probability below 1e-6: the odds are e⁴,
    and 2,000 answers of each table tell them from e² by many deviations.
    """
    other = TABLE.set_column(0, "g", pa.array(["b", "b", *["a", "b"] * 9]))
    runs = 4000 if kind is HalfCount else 500
    found = sv.audit.empirical(
        kind(by=GROUPS), TABLE, other, epsilon=2.0, runs=runs, confidence=1 - 1e-7
    )
    assert found.is_violation == (kind is HalfCount)
    assert 1.5 < found.claimed <= 2.0


@pytest.mark.parametrize(
    ("question", "data"),
    [
        (sv.Mean((0, 1), by=GROUPS), (TABLE, "y")),
        (sv.Report({"m": (sv.Mean(bounds=(0, 1)), "y"), "c": sv.Count(by=GROUPS)}), (TABLE,)),
    ],
)
def test_canaries_of_tables_differ_in_one_person_and_lie_in_other_groups(question, data):
    rows = measured._Runner(question, 1.0, None).read(data)
    pairs = list(measured.list_table_canaries(rows, data, np.array([3])))
    assert len(pairs) == 3
    for pair in pairs:
        assert measured._find_difference(pair.first, pair.second, None).tolist() == [3]
    assert pairs[1].first[0]["g"][3].as_py() == "a"
    assert pairs[1].second[0]["g"][3].as_py() == "b"
    assert pairs[0].second[0]["y"][3].as_py() == 1


def test_bounds_by_clopper_and_pearson():
    assert measured.bound_loss(0, 100, 0, 100, 1e-3, 0.0) == 0.0
    exact = measured.bound_loss(500, 1000, 50, 1000, 1e-3, 0.0)
    assert 0 < exact < math.log(10)
    assert measured.bound_loss(500, 1000, 50, 1000, 1e-3, 0.2) < exact
    # Coverage: of many pairs of coins whose odds are e, no bound may exceed 1 but for chance.
    rng = np.random.default_rng(0)
    hits = rng.binomial(400, 0.6, 3000)
    others = rng.binomial(400, 0.6 / math.e, 3000)
    bounds = [
        measured.bound_loss(int(a), 400, int(b), 400, 0.05, 0.0)
        for a, b in zip(hits, others, strict=True)
    ]
    assert np.mean(np.array(bounds) > 1) < 0.05


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"person": 99}, "not in the table"),
        ({"person": "ada"}, "not in the table"),
        ({"person": 0, "runs": 10}, "runs"),
        ({"person": 0, "confidence": 1.0}, "confidence"),
        ({"person": 0, "delta": -1}, "δ"),
        ({"neighbour": VALUES}, "exactly one person"),
        ({"neighbour": VALUES + 0.01}, "exactly one person"),
        ({"neighbour": VALUES[:5]}, "same rows"),
    ],
)
def test_what_cannot_be_measured_is_refused(options, word):
    with pytest.raises(InvalidParameter, match=word):
        sv.audit.empirical(sv.Mean(bounds=(0, 1)), VALUES, epsilon=1.0, **options)


def test_what_was_measured_is_confidential():
    import pickle

    found = measured.MeasuredLoss(0.1, 1.0, 500, 0.99, 0.0, "a number")
    with pytest.raises(Confidential):
        pickle.dumps(found)
    assert "0.1" not in repr(found)


def test_no_randomness_but_that_of_the_mechanism_is_used():
    """The search for an event is a function of the answers: nothing is drawn outside noise/."""

    class Fixed:
        def bytes(self, count):
            return b"\x55" * count

        def integers(self, law, scale, size):
            return [0] * size

    with source._seam(Fixed()):
        found = sv.audit.empirical(
            sv.Mean(bounds=(0, 1), interval_share=0), VALUES, epsilon=1.0, person=0, runs=500
        )
    assert found.is_violation  # no noise at all: every answer tells the tables apart
