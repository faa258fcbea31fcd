"""Counts, sums, means and variances by group: formulas, cells, intervals, what is shown.

Statistical comparisons state how rarely they fail by chance; most of what is here draws no noise.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import binom

import sottovoce as sv
from seams import Seeded, seeded, silent
from sottovoce import errors
from sottovoce.estimators import table_law
from sottovoce.estimators.table_law import (
    NoiseLaw,
    project_on_simplex,
)
from sottovoce.estimators.table_mechanism import NoisyTable
from sottovoce.report.release import draw_answer, make_release_headline

RNG = np.random.default_rng(3)
ROWS = 600
REGION = RNG.choice(["north", "south"], ROWS)
AGE = RNG.integers(0, 100, ROWS).astype(float)
COST = RNG.gamma(2.0, 100.0, ROWS)
TABLE = pa.table({"region": REGION, "age": AGE, "cost": COST})
BY = {"region": ["north", "south"]}
SCHEMA = sv.Schema.loads(
    """
[columns.region]
kind = "factor"
levels = ["north", "south"]
[columns.age]
kind = "number"
low = 0
high = 100
edges = [0, 50, 100]
[columns.cost]
kind = "number"
low = 0
high = 1000
"""
)


# ------------------------------------------------------------------ the answers without noise


def test_without_noise_a_table_is_the_groupby():
    with silent():
        found = sv.Count(by=["region", "age"], schema=SCHEMA).fit(TABLE, epsilon=0.7)
    frame = TABLE.to_pandas()
    for line in found.table_.rows():
        inside = {"[0, 50)": frame.age < 50, "[50, 100]": frame.age >= 50}
        wanted = 0
        if line["age"] in inside:
            wanted = int((inside[line["age"]] & (frame.region == line["region"])).sum())
        assert line["count"] == pytest.approx(wanted, abs=1e-6)


def test_without_noise_sums_means_and_variances_are_those_of_pandas():
    frame = TABLE.to_pandas()
    grouped = frame.groupby("region").cost
    with silent():
        means = sv.Mean((0, 1000), by=BY).fit(TABLE, column="cost", epsilon=50.0)
        sums = sv.Sum((0, 1000), by=BY).fit(TABLE, column="cost", epsilon=50.0)
        spread = sv.Variance((0, 1000), by=BY).fit(TABLE, column="cost", epsilon=50.0)
    clipped = frame.assign(cost=frame.cost.clip(0, 1000)).groupby("region").cost
    # Values are rounded to a grid far below the noise, of squares a coarser one.
    assert means.value_[:2] == pytest.approx(clipped.mean().to_numpy(), rel=1e-4)
    assert sums.value_[:2] == pytest.approx(clipped.sum().to_numpy(), rel=1e-4)
    assert spread.value_[:2] == pytest.approx(clipped.var(ddof=0).to_numpy(), rel=2e-2)
    assert np.isnan(means.value_[2:]).all()
    assert grouped.count().sum() == ROWS


def test_without_noise_a_covariance_is_that_of_numpy():
    table = pa.table({"a": AGE, "b": np.clip(AGE * 5 + COST, 0, 1500)})
    with silent():
        found = sv.Covariance({"a": (0, 100), "b": (0, 1500)}).fit(table, epsilon=50.0)
    both = np.array([table["a"].to_numpy(), table["b"].to_numpy()])
    assert found.covariance_ == pytest.approx(np.cov(both, bias=True), rel=2e-2)
    assert found.correlation_ == pytest.approx(np.corrcoef(both), rel=2e-2)
    assert found.mean_ == pytest.approx(both.mean(axis=1), rel=1e-2)


def test_rows_without_a_value_are_counted_and_left_out_of_the_mean():
    cost = COST.copy()
    cost[::3] = np.nan
    table = TABLE.set_column(2, "cost", pa.array(cost))
    with silent():
        found = sv.Mean((0, 1000), by=BY).fit(table, column="cost", epsilon=50.0)
    lines = found.table_.rows()[:2]
    answered = table.to_pandas().dropna().groupby("region").cost
    assert [line["mean"] for line in lines] == pytest.approx(answered.mean().tolist(), rel=1e-3)
    assert [line["count"] for line in lines] == pytest.approx(answered.count().tolist(), abs=0.1)
    assert sum(line["missing"] for line in lines) == pytest.approx(200, abs=0.2)


def test_unknown_levels_and_missing_ones_have_cells_and_a_filter_has_an_outside():
    odd = pa.table({"g": ["a", "b", 'un"known', None, "", "a"] * 50, "x": [1.0, 2.0, 3.0] * 100})
    with silent():
        found = sv.Count(by={"g": ["a", "b"]}).fit(odd, epsilon=1.0)
        schema = sv.Schema.loads('[columns.x]\nkind = "number"\nlow = 0\nhigh = 5\n')
        part = sv.Count(where="x > 1.5", schema=schema).fit(odd, epsilon=1.0)
    assert found.value_ == pytest.approx([100, 50, 50, 100], abs=1e-6)
    assert [line["where"] for line in part.table_] == ["x > 1.5", "outside"]
    assert part.value_ == pytest.approx([200, 100], abs=1e-6)
    assert part.table_.share()[0]["share"] == pytest.approx(2 / 3)


# ------------------------------------------------------------------ what it costs


def test_the_number_of_rows_is_exact_and_free():
    count = sv.Count().fit(TABLE, epsilon=0.3)
    assert count.value_ == ROWS
    assert not count.guarantee_.epsilon.any()
    assert "public" in count.plan(epsilon=0.3, rows=10).describe()


def test_a_session_charges_a_table_once_and_all_rows_not_at_all():
    session = sv.Session()
    people = [f"p{i % 100}" for i in range(ROWS)]
    session.grant(dict.fromkeys(set(people), 1.0))
    frame = TABLE.to_pandas()
    session.release(sv.Count(), frame, groups=people, key="all", epsilon=0.5)
    assert session.balance("p1") == 1.0
    made = session.release(sv.Count(by=BY), frame, groups=people, key="by", epsilon=0.5)
    assert session.balance("p1") == pytest.approx(0.5)
    again = session.release(sv.Count(by=BY), frame, groups=people, key="by", epsilon=0.5)
    assert again.to_json() == made.to_json()
    with pytest.raises(errors.KeyReused):
        session.release(
            sv.Count(by=BY, where="region == 'north'", schema=SCHEMA),
            frame,
            groups=people,
            key="by",
            epsilon=0.5,
        )


def test_more_cells_cost_nobody_more_and_many_rows_cost_what_one_does():
    few = sv.Count(by=BY).plan(epsilon=[0.1, 1.0] * 50)
    many = sv.Count(by={"region": [f"r{i}" for i in range(1000)]}).plan(epsilon=[0.1, 1.0] * 50)
    assert few.charges.max() <= 1.0
    assert many.charges.max() <= 1.0
    several = sv.Count(by=BY).plan(epsilon=0.5, groups=np.repeat(np.arange(20), 9))
    assert several.charges == pytest.approx(np.full(20, 0.5), rel=1e-5)


def test_tables_by_names_arrays_and_files_make_one_plan(tmp_path):
    frame = TABLE.to_pandas().assign(eps=np.where(AGE > 50, 0.2, 1.0))
    frame.to_csv(tmp_path / "t.csv", index=False)
    asked = sv.Mean(SCHEMA, by="region")
    digests = set()
    for data in (frame, pl.from_pandas(frame), pa.table(frame), tmp_path / "t.csv"):
        with seeded(1):
            found = asked.fit(data, column="cost", epsilon="eps")
        digests.add(found.release_.certificate.plan_digest)
        assert found.release_.column == "cost"
    with seeded(1):
        arrays = asked.fit(frame, column="cost", epsilon=frame.eps.to_numpy())
    digests.add(arrays.release_.certificate.plan_digest)
    assert len(digests) == 1


# ------------------------------------------------------------------ after the noise


def test_projection_is_nearest_and_moves_no_table_that_fits():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = rng.normal(0.2, 0.5, 7)
        nearest = project_on_simplex(values)
        assert nearest.min() >= 0
        assert nearest.sum() == pytest.approx(1)
        for _ in range(20):
            other = rng.dirichlet(np.ones(7))
            assert np.sum((values - nearest) ** 2) <= np.sum((values - other) ** 2) + 1e-12
    fits = rng.dirichlet(np.ones(9))
    assert project_on_simplex(fits) == pytest.approx(fits)
    assert project_on_simplex(np.array([-3.0, -5.0])).tolist() == [1.0, 0.0]


def test_counts_are_not_negative_and_sum_to_the_rows():
    for _ in range(5):
        found = sv.Count(by={"region": ["north", "south", "east", "west"]}).fit(TABLE, epsilon=0.02)
        assert found.value_.min() >= 0
        assert found.value_.sum() == pytest.approx(ROWS)


def test_a_group_of_few_rows_is_too_few_to_say():
    groups = np.where(np.arange(ROWS) < 3, "north", "south")
    table = TABLE.set_column(0, "region", pa.array(groups))
    with silent():
        found = sv.Mean((0, 1000), by=BY).fit(table, column="cost", epsilon=0.5)
    first, second = found.table_.rows()[:2]
    assert first["too_few"]
    assert first["mean"] is None
    assert not second["too_few"]
    assert "too few to say" in found.release_.explain()
    assert found.release_.noise["too_few_below"] > 3


# ------------------------------------------------------------------ intervals


@pytest.mark.parametrize("slots", [2, 3, 7, 40, 100])
@pytest.mark.parametrize("coefficients", [(1.0,), (1.0, 1.0), (0.6, -1.4)])
def test_half_widths_are_those_of_the_noise(slots, coefficients):
    """Among 6,000 draws a law of this level misses at most so often with probability 1 − 1e-9.
    Two slots that sum to zero have no noise together.
    """
    law = NoiseLaw.choose(slots)
    drawn = Seeded(slots)
    if law.sums_to_zero:
        noise = np.array([drawn.integers("zero sum", 1e6, slots) for _ in range(6000)]) / 1e6
    else:
        noise = np.array(drawn.integers("laplace", 2e6, 12_000)).reshape(6000, 2) / 1e6
    combined = noise[:, : len(coefficients)] @ np.array(coefficients)
    moved = combined + np.random.default_rng(9).normal(0, 1.0, 6000)
    for values, deviation in ((combined, 0.0), (moved, 1.0)):
        (width,) = law.find_half_widths(0.9, np.array([deviation]), *coefficients)
        missed = int(np.sum(np.abs(values) > width))
        assert missed <= binom.isf(1e-9, 6000, 0.1)
        if deviation or law.compute_variance(*coefficients) > 1e-9:
            assert missed >= binom.ppf(1e-9, 6000, 0.08)  # not much too wide either
    variance = law.compute_variance(*coefficients)
    if law.sums_to_zero and variance > 1e-9:
        assert np.mean(combined**2) == pytest.approx(variance, rel=0.25)


def test_more_than_two_slots_take_a_law_that_reaches_further():
    law = NoiseLaw.choose(9)
    drawn = Seeded(5)
    noise = np.array([drawn.integers("zero sum", 1e6, 9) for _ in range(4000)]) / 1e6
    (width,) = law.find_half_widths(0.9, np.zeros(1), 0.4, -0.3, 0.2)
    missed = int(np.sum(np.abs(noise[:, :3] @ np.array([0.4, -0.3, 0.2])) > width))
    assert missed <= binom.isf(1e-9, 4000, 0.1)


@pytest.mark.parametrize(("epsilon", "share"), [(0.3, 0.5), (20.0, 0.02), (20.0, 0.3)])
def test_intervals_of_counts_and_means_cover_the_population(epsilon, share):
    """150 tables: fewer than the binomial law of the level allows with probability 1e-9."""
    rng = np.random.default_rng(12)
    covered = {"count": 0, "mean": 0}
    for _ in range(150):
        inside = rng.random(400) < share
        table = pa.table(
            {"g": np.where(inside, "a", "b"), "y": np.where(inside, rng.beta(2, 5, 400), 0.0)}
        )
        with seeded(int(rng.integers(2**32))):
            found = sv.Mean((0, 1), by={"g": ["a", "b"]}).fit(table, column="y", epsilon=epsilon)
        low, high = (found.release_.intervals[end] for end in ("low", "high"))
        covered["count"] += low["count"][0] <= 400 * share <= high["count"][0]
        covered["mean"] += low["mean"][0] is None or low["mean"][0] <= 2 / 7 <= high["mean"][0]
    assert min(covered.values()) >= binom.ppf(1e-9, 150, 0.95)


def test_two_groups_are_compared_with_an_interval_that_covers():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(80):
        table = pa.table({"region": np.where(rng.random(300) < 0.6, "north", "south")})
        with seeded(int(rng.integers(2**32))):
            found = sv.Count(by=BY).fit(table, epsilon=1.0)
        told = found.table_.compare({"region": "north"}, {"region": "south"})
        assert told["low"] <= told["difference"] <= told["high"]
        covered += told["low"] <= 300 * 0.2 <= told["high"]
    assert covered >= binom.ppf(1e-9, 80, 0.95)
    with pytest.raises(errors.InvalidParameter):
        found.table_.compare(0, 0)
    with pytest.raises(errors.InvalidParameter):
        found.table_.compare({"region": "west"}, 1)


def test_groups_of_several_cells_are_compared_by_the_joint_law_of_their_noise():
    """A right interval covers so few with probability 1e-9. Intervals of the cells, added up, are
    three times as wide as what is allowed here.
    """
    rng = np.random.default_rng(3)
    levels = ["a", "b", "c", "d", "e"]
    by = {"region": ["north", "south"], "kind": levels}
    covered = 0
    for _ in range(80):
        regions = np.where(rng.random(300) < 0.6, "north", "south")
        table = pa.table({"region": regions, "kind": rng.choice(levels, 300)})
        with seeded(int(rng.integers(2**32))):
            found = sv.Count(by=by).fit(table, epsilon=1.0)
        told = found.table_.compare({"region": "north"}, {"region": "south"})
        assert told["low"] <= told["difference"] <= told["high"]
        covered += told["low"] <= 300 * 0.2 <= told["high"]
        # Fourteen cells with noise of deviation √8 each, and as much sampling as there can be.
        assert told["high"] - told["low"] < 2 * 1.5 * 1.96 * np.hypot(np.sqrt(14 * 8), np.sqrt(300))
    assert covered >= binom.ppf(1e-9, 80, 0.95)


@pytest.mark.parametrize("count", [2, 3, 40])
def test_equal_laplace_numbers_add_up_to_their_law(count):
    """Each of eight frequencies is off by more than six deviations with probability 2e-9."""
    rng = np.random.default_rng(count)
    drawn = np.abs(rng.laplace(size=(20_000, count)).sum(axis=1))
    points = np.sqrt(2 * count) * np.linspace(0.25, 3.0, 8)
    survival = table_law._survive_equal(count, points)
    frequencies = (drawn[:, None] > points).mean(axis=0)
    deviations = np.sqrt(survival * (1 - survival) / 20_000)
    assert (np.abs(frequencies - survival) < 6 * deviations).all()
    wider = table_law._survive_equal(count, points / 1.1)
    assert (np.abs(frequencies - wider) > 6 * deviations).any()


# ------------------------------------------------------------------ what is shown


@pytest.mark.parametrize("question", [sv.Mean, sv.Sum])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_cell_of_undeclared_values_is_shown_where_it_is_not_empty(question, sign):
    regions = np.repeat(["north", "elsewhere"], 300)
    table = pa.table({"region": regions, "cost": np.full(600, sign * 5.0)})
    found = question(bounds=(-10, 10), by={"region": ["north"]})
    answer = found.fit(table, column="cost", epsilon=20.0).table_
    assert [answer.name_cell(cell) for cell in answer.list_notable_cells()][:2] == [
        "north",
        "other",
    ]


def test_a_table_is_lines_a_frame_a_picture_and_a_page():
    found = sv.Mean(SCHEMA, by=["region", "age"]).fit(TABLE, column="cost", epsilon=2.0)
    table = found.table_
    assert isinstance(table.to_frame(), pd.DataFrame)
    assert table.to_frame("polars").columns == list(table.to_frame().columns)
    assert list(table.to_frame().columns[:3]) == ["region", "age", "mean"]
    assert table.to_svg().startswith("<svg")
    # The eight undeclared and missing cells are empty; each is shown in one of some 200 releases.
    shown = table.list_notable_cells()
    assert {0, 1, 3, 4} <= set(shown)
    assert len(shown) < 12
    assert f"{12 - len(shown)} more cell" in table._repr_html_()
    page = draw_answer(found.release_)
    assert "<svg" in page
    assert make_release_headline(found.release_) == "The mean of 'cost' by 'region' and 'age'"
    with pytest.raises(errors.InvalidParameter):
        table.to_frame("excel")
    north = table.find(region="north")
    assert table.name_cell(north[0]) == "north, [0, 50)"


@pytest.mark.parametrize(
    "question",
    [
        lambda: sv.Count(by="region", schema=SCHEMA).fit(TABLE, epsilon=2.0),
        lambda: sv.Mean(SCHEMA, by="region").fit(TABLE, column="cost", epsilon=2.0),
        lambda: sv.Covariance(SCHEMA, columns=["age", "cost"]).fit(TABLE, epsilon=2.0),
    ],
    ids=["count", "mean by group", "covariance"],
)
def test_the_page_of_a_table_shows_noise_and_sampling_apart(question):
    page = draw_answer(question().release_)
    assert "noise alone" in page
    assert "sampling alone" in page


def test_levels_are_escaped_wherever_they_are_shown():
    nasty = '<script>"&'
    found = sv.Count(by={"g": [nasty, "b"]}).fit(pa.table({"g": [nasty, "b"] * 40}), epsilon=1.0)
    for shown in (found.table_.to_svg(), found.table_._repr_html_(), draw_answer(found.release_)):
        assert "<script>" not in shown
        assert "&lt;script&gt;" in shown
    assert sv.load(found.release_).table_ == found.table_


def test_altair_draws_the_same_cells():
    altair = pytest.importorskip("altair")
    found = sv.Count(by=BY).fit(TABLE, epsilon=1.0)
    chart = found.table_.plot()
    assert isinstance(chart, altair.LayerChart)
    assert "north" in json.dumps(chart.to_dict())


def test_a_release_is_loaded_with_its_cells_and_refused_when_it_is_broken():
    for asked in (
        sv.Count(by=BY),
        sv.Sum((0, 1000), by=BY),
        sv.Mean((0, 1000), by=BY),
        sv.Variance((0, 1000), by=BY),
    ):
        values = {} if isinstance(asked, sv.Count) else {"column": "cost"}
        found = asked.fit(TABLE, epsilon=1.0, **values)
        text = found.release_.to_json()
        again = type(asked).from_release(sv.Release.from_json(text))
        assert again.table_.rows() == found.table_.rows()
        assert again.interval(0.5) == found.interval(0.5)
        broken = json.loads(text)
        broken["value"]["noisy"] = broken["value"]["noisy"][1:]
        with pytest.raises(errors.InvalidRelease):
            sv.load(sv.Release.from_json(json.dumps(broken)))


def test_a_large_table_is_shown_in_part():
    found = sv.Count(by={"g": [f"l{k}" for k in range(3000)]}).fit(
        pa.table({"g": ["l7"] * 400}), epsilon=1.0
    )
    assert len(found.table_.make_bars()) == 60
    assert "more" in found.release_.explain()
    assert "more cells" in found.table_._repr_html_()
    assert len(found.table_.rows(empty=False)) < 3002
    table = NoisyTable.of_release(found.release_)
    assert not table.law.sums_to_zero
    assert math.isclose(found.value_.sum(), 400)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: sv.Count(by="region"), "by"),
        (lambda: sv.Count(by={"age": [50, 0]}), "by"),
        (lambda: sv.Count(where="nothing > 3", schema=SCHEMA), "where"),
        (lambda: sv.Count(by=BY, association=-1), "association"),
        (lambda: sv.Mean((0, 1000), by=BY, spread=-1), "spread"),
        (lambda: sv.Sum((5, 1), by=BY), "bounds"),
        (lambda: sv.Covariance({"age": (0, 100)}), "bounds"),
        (lambda: sv.Sum((-1e200, 1e200), by=BY), "bounds"),
        (lambda: sv.Mean((0, 1e300), by=BY), "bounds"),
        (lambda: sv.Variance((0, 1e100)), "bounds"),
        (lambda: sv.Covariance({"age": (0, 1e200), "cost": (0, 1)}), "bounds"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anybody_is_charged(make, parameter):
    with pytest.raises(errors.InvalidInput) as refusal:
        make().fit(TABLE, column=None if "age" in repr(make()) else "cost", epsilon=1.0)
    assert refusal.value.parameter == parameter


def test_budgets_near_nothing_are_planned_or_refused_and_never_break():
    for make in (
        lambda: sv.Count(by=BY),
        lambda: sv.Mean((0, 1000), by=BY),
        lambda: sv.Variance((0, 1000), by=BY),
        lambda: sv.Covariance({"age": (0, 100), "cost": (0, 1000)}),
    ):
        plan = make().plan(epsilon=1e-9, rows=50)
        assert plan.charges.max() <= 1e-9
        assert plan.weights.total > 0
        mixed = make().plan(epsilon=[1e-9, 1e6] * 20)
        assert mixed.charges.max() <= 1e6
        with pytest.raises(errors.InvalidBudget):
            make().plan(epsilon=1e-9, groups=np.repeat([0, 1], 4_000_000))


def test_every_engine_gives_the_same_table(tmp_path):
    """One seed, one digest: arrays, files and a database hold the same whole numbers."""
    duckdb = pytest.importorskip("duckdb")
    frame = TABLE.to_pandas().assign(eps=np.where(AGE > 50, 0.2, 1.0))
    frame.loc[::7, "cost"] = np.nan
    frame.loc[::11, "region"] = None
    frame.to_parquet(tmp_path / "t.parquet")
    relation = duckdb.sql(f"SELECT * FROM '{tmp_path / 't.parquet'}'")
    for asked, values in (
        (sv.Count(by=["region", "age"], where="age < 90", schema=SCHEMA), {}),
        (sv.Mean(SCHEMA, by="region"), {"column": "cost"}),
        (sv.Variance(SCHEMA, by="age"), {"column": "cost"}),
        (sv.Covariance(SCHEMA, columns=["age", "cost"]), {}),
    ):
        found = []
        for data in (frame, tmp_path / "t.parquet", relation):
            with seeded(4):
                found.append(asked.fit(data, epsilon="eps", **values).release_.value)
        assert found[0] == found[1] == found[2]


def test_a_level_that_is_called_outside_is_not_the_cell_outside_the_filter():
    table = pa.table({"place": ["outside", "inside"] * 50, "age": [30.0, 50.0, 70.0, 50.0] * 25})
    schema = sv.Schema.of({"place": ["inside", "outside"], "age": (0, 100)})
    found = sv.Count(by="place", where="age > 40", schema=schema).fit(table, epsilon=1e3)
    lines = {line["place"]: round(line["count"]) for line in found.table_.rows()}
    assert lines == {"inside": 50, "outside": 25, "other": 0, "missing": 0, "(outside)": 25}
    assert found.table_.find(place="outside") == [1]
    assert "(outside): 25" in found.release_.explain()


def test_a_covariance_takes_bounds_by_name():
    table = pd.DataFrame({"a": np.arange(100.0), "b": np.arange(100.0) ** 0.5})
    limits = {"a": (0, 100), "b": (0, 10)}
    named = sv.Covariance(sv.Bounds(features=limits))
    assert (
        named.plan(1.0, rows=100).parameters == sv.Covariance(limits).plan(1.0, rows=100).parameters
    )
    assert named.fit(table, epsilon=1e4).mean_ == pytest.approx(table.mean(), abs=0.1)
    with pytest.raises(errors.InvalidBounds, match="Fewer than two"):
        sv.Covariance(sv.Bounds(features=(0, 1))).validate()


def test_only_the_lines_that_are_shown_are_written_out(monkeypatch):
    table = pa.table({"age": np.arange(500.0)})
    shown = sv.Count(by={"age": range(501)}).fit(table, epsilon=1e3).table_
    written = []
    monkeypatch.setattr(shown, "_label", lambda cell: written.append(cell) or {"age": "an age"})
    for view in (shown.to_svg, shown._repr_html_):
        written.clear()
        assert view()
        assert len(set(written)) < 70
