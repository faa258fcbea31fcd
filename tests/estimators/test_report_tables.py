"""Tables of one report: counts that another table holds, and tables that agree."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import sottovoce as sv
from sottovoce.data.cells import Axis
from sottovoce.estimators.report_tables import CountTable, expect_variance, reconcile
from sottovoce.schema import Column

ROWS = 3000
SCHEMA = sv.Schema(
    {
        "age": Column("number", 0.0, 100.0, edges=(0.0, 40.0, 60.0, 100.0)),
        "cost": Column("number", 0.0, 1000.0),
        "region": Column("factor", levels=("north", "south", "west")),
        "smoker": Column("factor", levels=("no", "yes")),
    }
)
A = Axis("a", "levels", levels=("x", "y", "z"), other="x", missing="x")
B = Axis("b", "levels", levels=("u", "v"), other="u", missing="u")
C = Axis("c", "levels", levels=("p", "q", "r", "s"), other="p", missing="p")


def make_table() -> pa.Table:
    place = np.arange(ROWS)
    return pa.table(
        {
            "age": 20.0 + place % 60,
            "cost": 100.0 * (1 + np.cos(place)),
            "region": np.array(["north", "south", "west"])[place % 3],
            "smoker": np.array(["no", "yes"])[place % 2],
        }
    )


def fit(questions: dict, **given) -> sv.Report:
    return sv.Report(questions, SCHEMA, **given).fit(make_table(), epsilon=1.0)


def test_counts_come_with_means_of_the_same_cells():
    questions = {
        "how many": sv.Count(by="region"),
        "cost": (sv.Mean(by="region"), "cost"),
        "others": sv.Count(by="smoker"),
    }
    plan = sv.Report(questions, SCHEMA).plan(epsilon=1.0, rows=ROWS)
    assert plan.shares["how many"] == 0
    assert plan.parameters["questions"][0]["with"] == "cost"
    alone = sv.Count(by="region", schema=SCHEMA).plan(epsilon=plan.shares["cost"], rows=ROWS)
    assert plan.errors_by_question["how many"] > alone.expected_error  # more slots, more noise
    fitted = fit(questions)
    released = fitted.release_.parts
    assert released["how many"].question == "count"
    assert released["how many"].value["noisy"] == released["cost"].value["noisy"]
    assert sum(fitted.value_["how many"]) == pytest.approx(ROWS)
    again = sv.load(sv.Release.from_json(fitted.release_.to_json()))
    assert np.array_equal(again.value_["how many"], fitted.value_["how many"])
    low, high = np.array(fitted.interval()["how many"]["count"]).T
    assert np.all(low <= fitted.value_["how many"])
    assert np.all(fitted.value_["how many"] <= high)


def test_the_number_of_rows_is_public_and_costs_nothing():
    plan = sv.Report({"all": sv.Count(), "region": sv.Count(by="region")}, SCHEMA).plan(
        epsilon=1.0, rows=ROWS
    )
    assert plan.shares == {"all": 0.0, "region": 1.0}
    assert plan.errors_by_question["all"] == 0
    assert fit({"all": sv.Count()}).value_ == {"all": ROWS}


def test_other_filters_and_other_edges_have_tables_of_their_own():
    questions = {
        "one": sv.Count(by="region", where="age > 40"),
        "two": (sv.Mean(by="region"), "cost"),
        "three": sv.Count(by={"age": [0, 50, 100]}),
        "four": sv.Count(by="age"),
    }
    plan = sv.Report(questions, SCHEMA).plan(epsilon=1.0, rows=ROWS)
    assert all(share > 0 for share in plan.shares.values())


def test_overlapping_tables_agree_and_keep_the_total():
    fitted = fit(
        {
            "region": sv.Count(by="region"),
            "both": sv.Count(by=["region", "smoker"]),
            "smoker": sv.Count(by="smoker"),
            "age": sv.Count(by=["smoker", "age"]),
        }
    )
    value = {name: np.array(found) for name, found in fitted.value_.items()}
    both = value["both"].reshape(5, 4)
    age = value["age"].reshape(4, 4)
    near = pytest.approx
    assert both.sum(axis=1) == near(value["region"], abs=1e-6)
    assert both.sum(axis=0) == near(value["smoker"], abs=1e-6)
    assert age.sum(axis=1) == near(value["smoker"], abs=1e-6)
    for name, counts in value.items():
        assert counts.sum() == near(ROWS, abs=1e-6), name
        assert counts.min() >= 0, name
        ends = np.array(fitted.interval()[name]["count"])
        assert np.all((ends[:, 0] <= counts) & (counts <= ends[:, 1]))


def test_tables_inside_one_filter_agree():
    fitted = fit(
        {
            "region": sv.Count(by="region", where="age > 40"),
            "smoker": sv.Count(by="smoker", where="age > 40"),
            "all": sv.Count(where="age > 40"),
        }
    )
    inside = [np.sum(fitted.value_[name][:-1]) for name in ("region", "smoker", "all")]
    assert inside == pytest.approx([inside[0]] * 3, abs=1e-6)
    assert all(np.sum(counts) == pytest.approx(ROWS) for counts in fitted.value_.values())


def solve_by_least_squares(tables: dict[str, CountTable], axes: tuple[Axis, ...]) -> dict:
    """The same by one large system: a full table whose margins are near all tables, and sum to one.

    Σ_T ‖margin_T(x) − y_T‖²/σ_T² under Σx = 1; what is not determined is as small as can be.
    """
    shape = [len(axis.labels) for axis in axes]
    size = int(np.prod(shape))
    blocks = []
    wanted = []
    margins = {}
    for name, table in tables.items():
        own = [axes.index(axis) for axis in table.axes]
        places = np.ravel_multi_index(
            [np.unravel_index(np.arange(size), shape)[place] for place in own],
            [shape[place] for place in own],
        )
        matrix = np.zeros((table.shares.size, size))
        matrix[places, np.arange(size)] = 1
        margins[name] = matrix
        blocks.append(matrix / np.sqrt(table.variance))
        wanted.append(table.shares.ravel() / np.sqrt(table.variance))
    blocks.append(np.full((1, size), 1e7))  # the total, as good as fixed
    wanted.append(np.array([1e7]))
    x = np.linalg.lstsq(np.vstack(blocks), np.concatenate(wanted), rcond=None)[0]
    return {
        name: (matrix @ x).reshape(tables[name].shares.shape) for name, matrix in margins.items()
    }


def draw_tables(rng: np.random.Generator) -> dict[str, CountTable]:
    """Margins of one table, each with noise of its own that sums to zero."""
    full = rng.dirichlet(np.full(24, 30.0)).reshape(3, 2, 4)
    noisy = {}
    for name, axes, sizes, deviation in (
        ("ab", (A, B), (2,), 0.004),
        ("bc", (B, C), (0,), 0.002),
        ("ca", (C, A), (1,), 0.003),
        ("b", (B,), (0, 2), 0.001),
    ):
        margin = full.sum(axis=sizes)
        if name == "ca":
            margin = margin.T
        noise = deviation * rng.standard_normal(margin.shape)
        noisy[name] = CountTable(axes, margin + noise - noise.mean(), deviation**2)
    return noisy


def test_agreement_is_weighted_least_squares():
    rng = np.random.default_rng(3)
    for _ in range(5):
        tables = draw_tables(rng)
        agreed = reconcile(tables)
        expected = solve_by_least_squares(tables, (A, B, C))
        for name in tables:
            assert agreed[name] == pytest.approx(expected[name], abs=1e-7)


def test_agreement_lowers_the_error_and_never_moves_the_total():
    rng = np.random.default_rng(4)
    before = dict.fromkeys(("ab", "bc", "ca", "b"), 0.0)
    after = dict(before)
    for _ in range(200):
        full = rng.dirichlet(np.full(24, 30.0)).reshape(3, 2, 4)
        truth = {"ab": full.sum(2), "bc": full.sum(0), "ca": full.sum(1).T, "b": full.sum((0, 2))}
        tables = {}
        for name, table in draw_tables(rng).items():
            noise = np.sqrt(table.variance) * rng.standard_normal(truth[name].shape)
            shares = truth[name] + noise - noise.mean()
            tables[name] = CountTable(table.axes, shares, table.variance)
        agreed = reconcile(tables)
        for name in truth:
            assert agreed[name].sum() == pytest.approx(1.0)
            before[name] += float(np.sum((tables[name].shares - truth[name]) ** 2))
            after[name] += float(np.sum((agreed[name] - truth[name]) ** 2))
    assert all(after[name] < before[name] for name in before)
    assert after["ab"] < 0.8 * before["ab"]


def test_a_table_that_is_left_alone_is_as_its_question_makes_it():
    table = CountTable((A,), np.array([0.7, 0.4, -0.1]), 0.01)
    assert reconcile({"a": table})["a"] == pytest.approx(np.array([0.65, 0.35, 0.0]))


def test_noise_that_makes_cells_negative_still_agrees():
    rng = np.random.default_rng(6)
    for _ in range(50):
        tables = {
            name: CountTable(t.axes, t.shares + 0.05 * rng.standard_normal(t.shares.shape), 0.0025)
            for name, t in draw_tables(rng).items()
        }
        agreed = reconcile(tables)
        assert all(table.min() >= 0 for table in agreed.values())
        near = pytest.approx
        assert agreed["ab"].sum(axis=0) == near(agreed["b"], abs=1e-8)
        assert agreed["bc"].sum(axis=1) == near(agreed["b"], abs=1e-8)
        assert agreed["ab"].sum(axis=1) == near(agreed["ca"].sum(axis=0), abs=1e-8)
        assert agreed["bc"].sum(axis=0) == near(agreed["ca"].sum(axis=1), abs=1e-8)


def test_wanted_counts_are_priced_in_rows_although_another_table_answers():
    questions = {"how many": sv.Count(by="region"), "cost": (sv.Mean(by="region"), "cost")}
    report = sv.Report(questions, SCHEMA, wanted={"how many": 20.0})
    plan = report.plan(epsilon=1.0, rows=ROWS)
    assert plan.errors_by_question["how many"] == pytest.approx(20.0, rel=1e-3)
    assert plan.charges.max() < 1.0


def test_the_error_that_is_left_is_what_plans_expect():
    rng = np.random.default_rng(8)
    names = ("ab", "bc", "ca", "b")
    squares: dict[str, list] = {name: [] for name in names}
    for _ in range(1500):
        tables = {}
        for name, table in draw_tables(rng).items():
            noise = np.sqrt(table.variance) * rng.standard_normal(table.shares.shape)
            shares = 1 / table.shares.size + noise - noise.mean()
            tables[name] = CountTable(table.axes, shares, table.variance)
        for name, agreed in reconcile(tables).items():
            squares[name].append(np.mean((agreed - 1 / agreed.size) ** 2))
    for name in names:
        expected = expect_variance(tables, name, filtered=False)
        found = np.mean(squares[name])
        error = np.std(squares[name]) / np.sqrt(1500)
        assert abs(found - expected) < 6 * error, name  # a false alarm in 1e8 runs or fewer
