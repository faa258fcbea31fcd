"""Baselines around whole tables: who is heard, what is charged, and which totals come out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import sottovoce as sv
from seams import seeded, silent
from sottovoce import errors
from sottovoce.estimators import baselines, count

ROWS = 600
BY = {"g": ["a", "b"]}
TABLE = pa.table({"g": ["a", "b", "b"] * 200, "y": np.linspace(0, 1, ROWS)})
EPSILON = np.where(np.arange(ROWS) % 4 == 0, 0.2, 1.0)
QUESTIONS = {
    "count": lambda: sv.Count(by=BY),
    "sum": lambda: sv.Sum((0, 1), by=BY),
    "mean": lambda: sv.Mean((0, 1), by=BY),
    "variance": lambda: sv.Variance((0, 1), by=BY),
}


def fit(baseline, name, table=TABLE, **more):
    column = {} if name == "count" else {"column": "y"}
    return baseline.fit(table, epsilon=EPSILON, **column, **more)


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("form", ["arrow", "pandas", "polars"])
def test_a_threshold_hears_those_above_it_and_answers_about_all_rows(name, form):
    import polars as pl

    forms = {"arrow": TABLE, "pandas": TABLE.to_pandas(), "polars": pl.from_arrow(TABLE)}
    with silent():
        found = fit(sv.Threshold(QUESTIONS[name](), threshold=1.0), name, forms[form])
    kept = TABLE.to_pandas()[EPSILON >= 1.0].groupby("g").y
    truth = {
        "count": kept.count() * ROWS / 450,
        "sum": kept.sum() * ROWS / 450,
        "mean": kept.mean(),
        "variance": kept.var(ddof=0),
    }[name]
    assert found.value_[:2] == pytest.approx(truth.to_numpy(), rel=2e-2)
    assert found.guarantee_.epsilon.max() <= 1.0
    assert not found.guarantee_.epsilon[EPSILON < 1.0].any()
    low, high = found.interval(0.95)[name][0]
    assert low <= found.value_[0] <= high
    assert sum(found.release_.value["count"]) == pytest.approx(ROWS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_is_planned_is_what_is_released(name):
    column = {} if name == "count" else {"column": "y"}
    for baseline in (
        sv.Uniform(QUESTIONS[name]()),
        sv.Threshold(QUESTIONS[name](), threshold=1.0),
        sv.Limited(QUESTIONS[name](), rows=2),
    ):
        people = np.repeat(np.arange(ROWS // 4), 4)
        owners = {"groups": people} if isinstance(baseline, sv.Limited) else {}
        epsilon = 0.5 if owners else EPSILON
        plan = baseline.plan(epsilon=epsilon, **owners)
        made = baseline.fit(TABLE, epsilon=epsilon, **owners, **column)
        assert made.release_.expected_error == pytest.approx(plan.expected_error)
        # By name, equal budgets are kept once for all rows.
        assert made.guarantee_.epsilon.max() == pytest.approx(plan.charges.max(), rel=1e-9)
        assert made.guarantee_.epsilon.min() == pytest.approx(plan.charges.min(), rel=1e-9)


def test_limited_keeps_some_rows_of_each_and_scales_totals():
    people = np.repeat(np.arange(ROWS // 4), 4)
    with silent():
        found = sv.Limited(sv.Count(by=BY), rows=2).fit(TABLE, epsilon=1.0, groups=people)
    assert found.value_.sum() == pytest.approx(ROWS)
    assert found.guarantee_.epsilon.max() <= 1.0


def capture(monkeypatch, table):
    seen = []
    original = count.draw_noisy_values

    def spy(plan, slots):
        seen.append((plan, [int(slot) for slot in slots]))
        return original(plan, slots)

    monkeypatch.setattr(count, "draw_noisy_values", spy)
    with seeded(1):
        found = sv.Threshold(sv.Count(by=BY), threshold=1.0).fit(table, epsilon=EPSILON)
    monkeypatch.setattr(count, "draw_noisy_values", original)
    ((plan, slots),) = seen
    return found, plan, slots


def measure_loss(monkeypatch, row):
    """The exact loss of one row's owner to a count that sums to zero, and their charge."""
    g = TABLE["g"].to_pylist()
    other = [*g[:row], "b" if g[row] == "a" else "a", *g[row + 1 :]]
    found, plan, one = capture(monkeypatch, TABLE)
    _, _, two = capture(monkeypatch, TABLE.set_column(0, "g", pa.array(other)))
    apart = sum(abs(a - b) for a, b in zip(one, two, strict=True))
    return apart / (2 * plan.noise["integer_scale"]), float(found.guarantee_.epsilon[row])


def test_the_strictest_lose_nothing_and_the_loosest_what_they_are_charged(monkeypatch):
    loss, charge = measure_loss(monkeypatch, 0)  # who grants less than the threshold
    assert loss == charge == 0
    loss, charge = measure_loss(monkeypatch, 1)
    assert 0.99 * charge <= loss <= charge


def test_a_threshold_that_reads_everybody_is_caught(monkeypatch):
    monkeypatch.setattr(
        baselines, "_find_places_above", lambda budgets, t: np.arange(len(budgets.row_codes()))
    )
    loss, charge = measure_loss(monkeypatch, 0)
    assert loss > charge


@pytest.mark.long
def test_measured_errors_of_a_threshold_are_as_planned():
    """Errors are those of seeds; 300 tables leave 4 % of chance, of which six are a quarter."""
    rng = np.random.default_rng(4)
    asked = sv.Threshold(sv.Count(by=BY), threshold=1.0)
    plan = asked.plan(epsilon=EPSILON)
    squares = []
    for _ in range(300):
        inside = rng.random(ROWS) < 0.5
        with seeded(int(rng.integers(2**32))):
            told = asked.fit(pa.table({"g": np.where(inside, "a", "b")}), epsilon=EPSILON).value_
        squares.append((told[0] - inside.sum()) ** 2)
    assert np.sqrt(np.mean(squares)) == pytest.approx(plan.expected_error, rel=0.25)


@pytest.mark.parametrize("name", QUESTIONS)
def test_null_records_have_no_cell(name):
    asked = sv.Sampled(QUESTIONS[name]())
    column = {} if name == "count" else {"column": "y"}
    for call in (
        lambda: asked.fit(TABLE, epsilon=EPSILON, **column),
        lambda: asked.plan(epsilon=EPSILON),
    ):
        with pytest.raises(errors.InvalidParameter) as refusal:
            call()
        assert refusal.value.parameter == "estimator"
