"""Several questions on one budget: one plan, one charge, one release."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pytest

import sottovoce as sv
from sottovoce.budgets import Budgets
from sottovoce.errors import (
    InvalidInput,
    InvalidParameter,
    MissingColumn,
    MissingValues,
    ReleaseFailed,
)
from sottovoce.estimators.report_questions import list_questions
from sottovoce.schema import Column

PEOPLE = 600
GRANTS = np.repeat([0.1, 0.5, 1.0], PEOPLE // 3)
SECRET = 37.12345678912


def make_table(rows: int = PEOPLE) -> pa.Table:
    place = np.arange(rows)
    age = 20.0 + place % 60
    age[rows // 2] = SECRET
    return pa.table(
        {
            "id": [f"p{i}" for i in place],
            "eps": np.resize(GRANTS, rows),
            "age": age,
            "cost": 100.0 * (1 + np.cos(place)),
            "visits": place % 7 * 1.0,
        }
    )


def make_schema(ranges: dict, **others) -> sv.Schema:
    columns = {name: Column("number", *map(float, ends)) for name, ends in ranges.items()}
    return sv.Schema(columns, **others)


def make_report(**given) -> sv.Report:
    return sv.Report(
        {
            "mean age": (sv.Mean(bounds=(0, 100)), "age"),
            "median cost": (sv.Quantile(bounds=(0, 200)), "cost"),
            "quartiles": (sv.Quantile(q=[0.25, 0.75], bounds=(0, 200)), "cost"),
            "visits": (sv.Mean(bounds=(0, 10)), "visits"),
        },
        **given,
    )


def test_one_charge_is_the_sum_of_the_parts_and_at_most_the_budget():
    plan = make_report().plan(epsilon=GRANTS)
    parts = sum(part.guarantee.units for part in plan.parts.values())
    budgets = Budgets.of(GRANTS)
    assert np.array_equal(plan.guarantee.units, parts)
    assert np.all(plan.guarantee.units <= budgets.by_person(budgets.kinds.epsilon))
    assert sum(plan.shares.values()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("epsilon", [1.0, 0.3, 1 / 7, 1e-3])
def test_with_one_budget_for_all_the_charge_is_exactly_the_budget(epsilon):
    report = sv.Report(
        {
            "age": (sv.Mean(bounds=(0, 100)), "age"),
            "cost": (sv.Quantile(bounds=(0, 200)), "cost"),
            "visits": (sv.Mean(bounds=(0, 10)), "visits"),
        }
    )
    plan = report.plan(epsilon=epsilon, rows=PEOPLE)
    granted = int(Budgets.of(epsilon, rows=PEOPLE).kinds.epsilon[0])
    assert plan.guarantee.units.tolist() == [granted] * PEOPLE


def test_errors_are_equal_relative_to_how_far_values_are_taken_to_spread():
    plan = make_report().plan(epsilon=1.0, rows=5000)
    errors = plan.errors_by_question
    relative = [
        errors["mean age"] / 10,
        errors["visits"] / 1,
        errors["median cost"] * np.sqrt(12),
        errors["quartiles"] * np.sqrt(12),
    ]
    assert max(relative) / min(relative) < 1.02


def test_the_plan_is_what_is_charged_and_released():
    report = make_report()
    fitted = report.fit(make_table(), epsilon=GRANTS)
    plan = report.plan(epsilon=GRANTS)
    assert np.array_equal(plan.guarantee.units, fitted.guarantee_.units)
    assert fitted.release_.certificate.plan_digest == plan.digest
    assert list(fitted.release_.parts) == list(report.questions)
    assert fitted.release_.expected_error == pytest.approx(list(plan.errors_by_question.values()))


@pytest.mark.parametrize("form", ["arrow", "pandas", "polars", "csv", "duckdb"])
def test_every_form_of_table_is_read(form, tmp_path):
    import duckdb
    from pyarrow import csv

    table = make_table()
    csv.write_csv(table, tmp_path / "people.csv")
    forms = {
        "arrow": lambda: table,
        "pandas": table.to_pandas,
        "polars": lambda: __import__("polars").from_arrow(table),
        "csv": lambda: tmp_path / "people.csv",
        "duckdb": lambda: duckdb.from_arrow(table),
    }
    fitted = make_report().fit(forms[form](), epsilon="eps", groups="id")
    assert fitted.release_.guarantee["unit"] == "person"
    assert set(fitted.value_) == set(make_report().questions)
    assert isinstance(fitted.parts_["median cost"].value_, float)


def test_rows_are_read_three_times_whatever_is_asked(monkeypatch):
    from sottovoce.data.engines.arrow import ArrowEngine

    seen = []
    fold = ArrowEngine.fold
    monkeypatch.setattr(
        ArrowEngine, "fold", lambda self, kernel: (seen.append(kernel), fold(self, kernel))[1]
    )
    make_report().fit(make_table(), epsilon=GRANTS)
    assert len(seen) == 2  # in memory nobody is counted: values are checked, then answered


def test_questions_that_differ_in_the_middle_of_a_long_array_are_not_alike():
    rows = np.linspace(0, 1, 4000).reshape(-1, 2)
    others = rows.copy()
    others[1000] = 0.25
    bounds = sv.Bounds(features=(0, 1))
    asked = {
        name: (sv.LogisticRegression(bounds, classes=[0, 1], public=public), "smoker")
        for name, public in (("one", rows), ("two", others), ("one again", rows.copy()))
    }
    answered_by = [one.answered_by for one in list_questions(asked, None)]
    assert answered_by == ["one", "two", "one"]


def test_questions_that_are_alike_are_answered_once():
    report = sv.Report(
        {
            "one": (sv.Mean(bounds=(0, 100)), "age"),
            "two": (sv.Mean(bounds=(0, 100)), "age"),
            "another": (sv.Mean(bounds=(0, 100)), "visits"),
        }
    )
    plan = report.plan(epsilon=1.0, rows=PEOPLE)
    assert plan.shares["two"] == 0
    fitted = report.fit(make_table(), epsilon=1.0)
    assert fitted.value_["one"] == fitted.value_["two"] != fitted.value_["another"]
    assert fitted.guarantee_.epsilon.max() == 1.0


def test_wanted_errors_cost_no_more_than_they_need():
    wanted = {"mean age": 3.0, "median cost": 0.1, "quartiles": 0.1, "visits": 0.5}
    plan = make_report(wanted=wanted).plan(epsilon=1.0, rows=PEOPLE)
    assert plan.charges.max() < 1.0
    for name, most in wanted.items():
        assert 0.99 * most < plan.errors_by_question[name] <= most * (1 + 1e-9)
    some = make_report(wanted={"mean age": 3.0}).plan(epsilon=1.0, rows=PEOPLE)
    assert some.errors_by_question["mean age"] == pytest.approx(3.0, rel=1e-3)
    assert some.guarantee.units.max() >= 10**9 - 2  # but for the halves of the quartiles
    assert some.errors_by_question["visits"] < plan.errors_by_question["visits"]


def test_what_cannot_be_had_is_refused_before_anybody_is_charged():
    session = sv.Session()
    session.grant({f"p{i}": 1.0 for i in range(PEOPLE)})
    with pytest.raises(InvalidInput, match="cannot be had"):
        session.release(
            make_report(wanted={"mean age": 1e-6}),
            make_table(),
            groups="id",
            epsilon=0.5,
            key="too much",
        )
    assert session.balance("p0") == 1.0


@pytest.mark.parametrize(
    ("given", "parameter", "told"),
    [
        ({"shares": {"cost": 1}}, "shares", "some questions only"),
        ({"shares": {"cost": 1, "age": 1}, "wanted": {"age": 5}}, "shares", "together with wanted"),
        ({"shares": {"cost": 1, "age": 1, "people": 1}}, "shares", "'cost', 'age'. Those that are"),
        ({"shares": {"cost": 0, "age": 1}}, "shares", "not a finite number above 0"),
        ({"wanted": {"age": math.inf}}, "wanted", "not a finite number above 0"),
        ({"wanted": {"height": 1}}, "wanted", "questions that have an error"),
    ],
)
def test_shares_and_wanted_errors_that_cannot_be_are_refused_by_the_plan(given, parameter, told):
    groups = {"region": ["north", "south"]}
    asked = {
        "people": sv.Count(by=groups),
        "cost": (sv.Mean((0, 100), by=groups), "cost"),
        "age": (sv.Mean((0, 100)), "age"),
    }
    report = sv.Report(asked, **given)
    for refuse in (report.validate, lambda: report.plan(1.0, rows=100)):
        with pytest.raises(InvalidParameter, match=told) as refusal:
            refuse()
        assert refusal.value.parameter == parameter


def test_a_wanted_error_may_be_any_real_number():
    asked = {"age": (sv.Mean((0, 100)), "age")}
    plans = [sv.Report(asked, wanted={"age": n}).plan(1.0, rows=100) for n in (5, np.int64(5))]
    assert plans[0].charges.tolist() == plans[1].charges.tolist()


def test_given_shares_are_kept():
    shares = {"mean age": 2, "median cost": 1, "quartiles": 4, "visits": 1}
    plan = make_report(shares=shares).plan(epsilon=1.0, rows=PEOPLE)
    assert plan.shares == {
        "mean age": 0.25,
        "median cost": 0.125,
        "quartiles": 0.5,
        "visits": 0.125,
    }


BAD = {
    "nothing": ({}, {}, "no questions"),
    "a class": ({"a": sv.Mean}, {}, "'a'.*no estimator"),
    "a number": ({"a": 3}, {}, "'a'.*no estimator"),
    "a baseline": ({"a": sv.Uniform(sv.Mean(bounds=(0, 1)))}, {}, "'a'.*no estimator"),
    "a report": ({"a": sv.Report({})}, {}, "'a'.*no estimator"),
    "bad bounds": ({"a": (sv.Mean(bounds=(1, 0)), "age")}, {}, "'a'"),
    "no name": ({"": (sv.Mean(bounds=(0, 1)), "age")}, {}, "name of a question"),
    "a line": ({"a\nb": (sv.Mean(bounds=(0, 1)), "age")}, {}, "name of a question"),
    "wanted of another": (None, {"wanted": {"x": 1.0}}, "wanted names something else"),
    "wanted of nothing": (None, {"wanted": {"mean age": 0}}, "not a finite number above 0"),
    "wanted infinite": (
        None,
        {"wanted": {"mean age": float("inf")}},
        "not a finite number above 0",
    ),
    "some shares": (None, {"shares": {"mean age": 1}}, "some questions only"),
    "a negative share": (None, {"shares": {"mean age": -1}}, "not a finite number above 0"),
    "another currency": (
        {
            "a": (
                sv.PosteriorSample(
                    1.0, 1.0, make_schema({"u": (0, 1), "age": (0, 99)}, label="age")
                ),
                "age",
            )
        },
        {},
        "'a'.*pure ε",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_questions_are_refused_by_name(case):
    questions, given, match = BAD[case]
    if questions is None:
        questions = make_report().questions
    report = sv.Report(questions, **given)

    def plan():
        report.validate()
        report.plan(epsilon=1.0, rows=10)

    with pytest.raises(InvalidInput, match=match):
        plan()


def test_a_column_that_is_missing_and_values_that_are_name_their_question():
    report = make_report()
    with pytest.raises(MissingColumn):
        report.fit(make_table().drop_columns(["cost"]), epsilon=GRANTS)
    table = make_table().set_column(2, "age", pa.array([None] + [1.0] * (PEOPLE - 1)))
    with pytest.raises(MissingValues):
        report.fit(table, epsilon=GRANTS)


def test_a_schema_describes_what_questions_do_not():
    schema = make_schema(
        {"age": (0, 100), "visits": (0, 10), "cost": (0, 200)}, person="id", budget="eps"
    )
    report = sv.Report({"age": (sv.Mean(), "age"), "cost by others": (sv.Ridge(), "cost")}, schema)
    fitted = report.fit(make_table())
    assert fitted.parts_["cost by others"].predict(make_table()).shape == (PEOPLE,)
    assert fitted.guarantee_.unit == "person"
    assert np.all(fitted.guarantee_.epsilon <= GRANTS[np.argsort([f"p{i}" for i in range(PEOPLE)])])


def test_a_release_is_read_back_and_explained():
    fitted = make_report().fit(make_table(), epsilon="eps", groups="id")
    text = fitted.release_.to_json()
    again = sv.load(sv.Release.from_json(text))
    assert again.release_.to_json() == text
    for name, part in again.parts_.items():
        assert np.array_equal(np.ravel(part.value_), np.ravel(fitted.value_[name]))
    assert again.interval().keys() == fitted.interval().keys()
    told = fitted.release_.explain()
    assert all(name in told for name in fitted.value_)
    content = json.loads(text)
    part = content["value"]["answers"]["mean age"]
    assert {"value", "intervals", "expected_error", "column", "plan_digest"} <= set(part)


@pytest.mark.parametrize("harm", ["drop", "rename", "value", "extra"])
def test_a_release_that_was_changed_cannot_be_loaded(harm):
    content = json.loads(make_report().fit(make_table(), epsilon=GRANTS).release_.to_json())
    answers = content["value"]["answers"]
    if harm == "drop":
        answers.pop("visits")
    elif harm == "rename":
        answers["other"] = answers.pop("visits")
    elif harm == "value":
        answers["visits"]["value"] = "much"
    else:
        answers["visits"]["more"] = 1
    with pytest.raises(sv.errors.InvalidRelease):
        sv.load(sv.Release.from_json(json.dumps(content)))


def test_nothing_without_noise_is_kept():
    fitted = make_report().fit(make_table(), epsilon=GRANTS)
    import struct

    stored = pickle.dumps(fitted)
    assert struct.pack(">d", SECRET) not in stored
    assert struct.pack("<d", SECRET) not in stored
    assert str(SECRET) not in repr(fitted) + fitted.release_.to_json()


def test_a_session_charges_once_and_returns_the_same_bytes():
    session = sv.Session()
    session.grant({f"p{i}": 1.0 for i in range(PEOPLE)})
    table = make_table()
    first = session.release(make_report(), table, groups="id", epsilon=0.25, key="report")
    again = session.release(make_report(), table, groups="id", epsilon=0.25, key="report")
    assert first.to_json() == again.to_json()
    assert session.balance("p0") == pytest.approx(0.75, abs=1e-8)
    session.verify(first)
    with pytest.raises(sv.errors.KeyReused):
        session.release(
            make_report(wanted={"visits": 1.0}), table, groups="id", epsilon=0.25, key="report"
        )
    others = dict(make_report().questions) | {"visits": (sv.Mean(bounds=(0, 11)), "visits")}
    with pytest.raises(sv.errors.KeyReused):
        session.release(sv.Report(others), table, groups="id", epsilon=0.25, key="report")


def test_a_failure_in_the_middle_is_charged_once_and_says_nothing(monkeypatch):
    session = sv.Session()
    session.grant({f"p{i}": 1.0 for i in range(PEOPLE)})

    def fail(self, plan, rows):
        rows.engine.fold(sum)
        raise ValueError(SECRET)

    with monkeypatch.context() as broken:
        broken.setattr(sv.Quantile, "release_under", fail)
        with pytest.raises(ReleaseFailed) as failure:
            session.release(make_report(), make_table(), groups="id", epsilon=0.25, key="one")
    assert str(SECRET) not in str(failure.value)
    assert session.balance("p0") == pytest.approx(0.75, abs=1e-8)
    with pytest.raises(ReleaseFailed):  # the key is taken, and stays so
        session.release(make_report(), make_table(), groups="id", epsilon=0.25, key="one")
    assert session.balance("p0") == pytest.approx(0.75, abs=1e-8)
    session.release(make_report(), make_table(), groups="id", epsilon=0.25, key="two")
    assert session.balance("p0") == pytest.approx(0.5, abs=1e-8)
    session.verify()


def test_killed_in_the_middle_nothing_is_lost_or_spent_twice(tmp_path):
    program = textwrap.dedent("""
        import os, sys
        import sottovoce as sv
        import pyarrow as pa
        session = sv.Session(ledger=sys.argv[1])
        session.grant({f"p{i}": 1.0 for i in range(60)})
        table = pa.table({"id": [f"p{i}" for i in range(60)], "x": [1.0] * 60})
        report = sv.Report({
            "mean": (sv.Mean(bounds=(0, 9)), "x"), "median": (sv.Quantile(bounds=(0, 9)), "x")
        })
        sv.Quantile._compute_intervals = lambda *given: os._exit(9)  # after the first answer
        session.release(report, table, groups="id", epsilon=0.25, key="killed")
    """)
    books = f"sqlite:///{tmp_path}/books.db"
    done = subprocess.run([sys.executable, "-c", program, books], check=False)
    assert done.returncode == 9
    session = sv.Session(ledger=books)
    session.verify()
    assert session.balance("p0") == pytest.approx(0.75, abs=1e-8)
    table = pa.table({"id": [f"p{i}" for i in range(60)], "x": [1.0] * 60})
    report = sv.Report(
        {"mean": (sv.Mean(bounds=(0, 9)), "x"), "median": (sv.Quantile(bounds=(0, 9)), "x")}
    )
    with pytest.raises(ReleaseFailed):
        session.release(report, table, groups="id", epsilon=0.25, key="killed")
    session.release(report, table, groups="id", epsilon=0.25, key="again")
    assert session.balance("p0") == pytest.approx(0.5, abs=1e-8)
    session.verify()
