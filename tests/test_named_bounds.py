"""Bounds by the names of columns, and ranges of dates in short schemas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sottovoce as sv

NAMED = sv.Bounds(features={"age": (18, 99), "bmi": (10, 60)}, label=(0, 1000))
AGE = np.linspace(18, 99, 500)
BMI = np.tile(np.linspace(15, 45, 50), 10)
COST = 100 + 3 * AGE + 5 * BMI
#: The columns in another order, and one that is no feature.
TABLE = {"bmi": BMI, "cost": COST, "age": AGE, "epsilon": np.full(500, 1e5)}
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_are_found_by_name_whatever_their_order(kind):
    """Noise at ε = 1e5 moves a slope by 0.1 with probability far below 1e-6."""
    frame = FRAMES[kind](TABLE)
    model = sv.Ridge(NAMED).fit(frame, COST, epsilon=1e5)
    assert list(model.release_.value["coefficients"]) == ["age", "bmi"]
    assert model.coef_ == pytest.approx([3, 5], abs=0.1)
    assert model.predict(frame) == pytest.approx(COST, abs=5)
    by_name = sv.Ridge(NAMED).fit(frame, "cost", epsilon="epsilon")
    assert by_name.coef_ == pytest.approx([3, 5], abs=0.1)


def test_a_label_given_as_values_may_stay_in_a_table_whose_features_are_named():
    frame = pd.DataFrame(TABLE)
    model = sv.Ridge(NAMED).fit(frame, frame["cost"], epsilon="epsilon")
    assert model.coef_ == pytest.approx([3, 5], abs=0.1)


def test_an_array_has_the_columns_in_the_order_of_the_names():
    model = sv.Ridge(NAMED).fit(np.column_stack([AGE, BMI]), COST, epsilon=1e5)
    assert model.coef_ == pytest.approx([3, 5], abs=0.1)
    with pytest.raises(sv.errors.InvalidBounds, match="another number of features"):
        sv.Ridge(NAMED).fit(np.column_stack([AGE, BMI, BMI]), COST, epsilon=1.0)


def test_names_survive_the_release_and_the_repr():
    model = sv.Ridge(NAMED).fit(pd.DataFrame(TABLE), COST, epsilon=1e5)
    again = sv.load(sv.Release.from_json(model.release_.to_json()))
    frame = pd.DataFrame({"age": AGE[:3], "bmi": BMI[:3]})
    assert again.predict(frame) == pytest.approx(model.predict(frame))
    assert repr(NAMED) == (
        "Bounds(features={'age': [18.0, 99.0], 'bmi': [10.0, 60.0]}, label=(0.0, 1000.0))"
    )


def test_a_missing_column_is_named():
    with pytest.raises(sv.errors.MissingColumn, match="age"):
        sv.Ridge(NAMED).fit(pd.DataFrame({"bmi": BMI}), COST, epsilon=1.0)


@pytest.mark.parametrize(
    "wrong", [{}, {"age": 18}, {"age": (99, 18)}, {"age": (1, 2, 3)}, {7: (0, 1)}]
)
def test_what_is_no_pair_for_each_name_is_refused(wrong):
    with pytest.raises(sv.errors.InvalidBounds):
        sv.Bounds(features=wrong)


def test_a_plan_and_a_sampled_fit_take_named_bounds():
    frame = pd.DataFrame(TABLE)
    assert sv.Ridge(NAMED).plan(epsilon=1.0, rows=500).expected_error > 0
    sampled = sv.Sampled(sv.Ridge(NAMED)).fit(frame[["bmi", "age"]], COST, epsilon=1e4)
    assert np.isfinite(sampled.coef_).all()


def test_two_days_in_text_are_a_range_of_dates():
    schema = sv.Schema.of({"visited": ("2025-01-01", "2025-12-31")})
    assert schema.columns["visited"].kind == "date"
    listed = sv.Schema.of({"visited": ["2025-01-01", "2025-12-31"]})
    assert listed.columns["visited"].levels == ("2025-01-01", "2025-12-31")


def test_baselines_that_pick_rows_compare_with_no_other_weights():
    """Other weights of the inner plan have everybody at the threshold, which nobody granted."""
    epsilon = np.where(np.arange(2000) % 2, 0.1, 1.0)
    for around in (sv.Sampled, sv.Limited):
        told = around(sv.Mean((0, 1))).plan(epsilon=epsilon).describe()
        assert "would have an expected error" not in told


def test_counts_that_come_with_means_tell_the_sampling_of_whole_cells():
    """The count shares the slots of the mean, several to a cell."""
    rows = 3000
    table = pa.table({"g": np.where(np.arange(rows) % 3, "a", "b"), "y": np.linspace(0, 1, rows)})
    by = {"g": ["a", "b"]}
    asked = {"how many": sv.Count(by=by), "mean": (sv.Mean((0, 1), by=by), "y")}
    report = sv.Report(asked).fit(table, epsilon=1000.0)
    known = report.release_.parts["how many"].intervals["sampling"]["count"][0]
    # 1.96·√(n·p·(1 − p)), p = 2/3, which noise at ε = 1000 does not move by 1 %
    assert known == pytest.approx(1.96 * np.sqrt(rows * 2 / 9), rel=0.01)
