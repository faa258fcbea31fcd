"""Steps that a schema declares, and the whole distribution, through every way to ask."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import sottovoce as sv
from sottovoce import errors
from sottovoce.estimators import list_questions
from sottovoce.estimators.report_file import parse_questions
from sottovoce.estimators.sql import read_statement
from sottovoce.schema import Column, decode_column, encode_column
from sottovoce.web.question_form import write_toml

SCHEMA = sv.Schema({"visits": Column("number", 0, 20, step=1)}, label="visits")
PLAIN = sv.Schema({"visits": Column("number", 0, 20)}, label="visits")
TABLE = pa.table({"visits": np.arange(4000) % 8 + 0.0})


def test_a_declared_step_is_the_step_of_the_answers():
    asked = sv.Quantile([0.1, 0.5, 0.9], SCHEMA).fit(TABLE, column="visits", epsilon=1.0)
    assert asked.release_.parameters["step"] == 1.0
    assert asked.release_.grid["step"] == 1.0
    assert asked.value_.tolist() == [0, 3, 7] or np.all(asked.value_ % 1 == 0)
    plain = sv.Quantile([0.1, 0.5, 0.9], PLAIN).plan(epsilon=1.0, rows=4000)
    assert "step" not in plain.parameters


def test_what_is_given_goes_before_what_is_declared():
    plans = {
        step: sv.Quantile(0.5, SCHEMA, step=step).plan(epsilon=1.0, rows=4000) for step in (2, 5)
    }
    assert {step: plan.grid.to_dict()["step"] for step, plan in plans.items()} == {2: 2.0, 5: 5.0}
    by_cells = sv.Quantile(0.5, SCHEMA, cells=1000).plan(epsilon=1.0, rows=4000)
    assert "step" not in by_cells.parameters


def test_a_step_that_is_finer_than_any_grid_changes_nothing():
    fine = replace(SCHEMA, columns={"visits": Column("number", 0, 20, step=1e-9)})
    one = sv.Quantile(0.5, fine).plan(epsilon=1.0, rows=4000)
    assert one.digest == sv.Quantile(0.5, PLAIN).plan(epsilon=1.0, rows=4000).digest


@pytest.mark.parametrize("step", [0, -1, float("nan"), float("inf"), 21, "1", True])
def test_what_is_no_step_is_refused(step):
    with pytest.raises(errors.InvalidSchema):
        Column("number", 0, 20, step=step)
    if isinstance(step, int) and not isinstance(step, bool):
        with pytest.raises(errors.InvalidSchema):
            sv.Schema.loads(f"[columns.visits]\nlow = 0\nhigh = 20\nstep = {step}\n")


def test_only_numbers_have_steps():
    with pytest.raises(errors.InvalidSchema):
        sv.Schema.loads('[columns.g]\nlevels = ["a", "b"]\nstep = 1\n')


def test_a_step_is_written_and_read_again():
    again = sv.Schema.loads(write_toml(SCHEMA))
    assert again.columns["visits"].step == 1.0
    column = SCHEMA.columns["visits"]
    assert decode_column(json.loads(json.dumps(encode_column(column)))) == column
    assert "step" not in encode_column(PLAIN.columns["visits"])
    assert "# step =" in sv.Schema.draft([("visits", "number")])


def test_sql_and_reports_know_the_step():
    report = read_statement("SELECT MEDIAN(visits) AS middle FROM t", SCHEMA)
    plan = report.plan(epsilon=1.0, rows=4000)
    assert plan.parts["middle"].parameters["step"] == 1.0


def test_the_whole_distribution_can_be_asked_for_in_a_file_of_questions():
    text = '[questions."how often"]\nask = "quantile"\ncolumn = "visits"\nq = "all"\n'
    asked = parse_questions(text)
    report = sv.Report(asked.questions, SCHEMA).fit(TABLE, epsilon=1.0)
    curve = report.parts_["how often"]
    assert len(curve.value_) > 12
    # The values are 0 to 7, each as often: errors of ranks are below .01, and gaps .012 wide.
    assert abs(curve.cdf(3.5) - 0.5) < 0.05
    assert curve.cdf(3.999) == curve.cdf(3) == curve.cdf(3.0 - 1e-12) > curve.cdf(2.9)
    share, low, high = curve.cdf([3.5], level=0.95)
    assert low[0] < share[0] < high[0]
    assert (curve.cdf(-1), curve.cdf(20), curve.cdf(25)) == (0.0, 1.0, 1.0)
    with pytest.raises(errors.InvalidParameter, match="how often"):
        parse_questions(text.replace('"all"', '"most"'))


def test_the_registry_offers_the_word():
    (q,) = [one for one in list_questions()["quantile"].parameters if one.name == "q"]
    assert [q.accepts(value) for value in ("all", "most", 0.5, [0.5, "all"], ["all"])] == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert 'Or write "all".' in q.describe_limits()


def test_many_quantiles_are_told_in_few_words():
    curve = sv.Quantile("all", SCHEMA).fit(TABLE, column="visits", epsilon=3.0)
    words = curve.release_.explain()
    more = len(curve.value_) - 9
    assert words.count(f"; and {more} more") == 2
    assert "(the median)" in words
    assert "at most" in words
    assert len(words) < 3000
    few = sv.Quantile([0.25, 0.75], SCHEMA).fit(TABLE, column="visits", epsilon=3.0)
    assert "more" not in few.release_.explain().partition("Promise")[0]
