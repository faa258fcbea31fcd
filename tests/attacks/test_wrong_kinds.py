"""Columns of another kind than a question reads: refused by name, before anybody is charged.

The type of a column is public, and so is what a schema says of it. In a text file a cell that is no
number shows only when it is read, which happens before the charge, too.
"""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import sottovoce as sv
from sottovoce import errors

ROWS = 40
NUMBER = 'kind = "number"\nlow = 0\nhigh = 100\nedges = [0, 50, 100]\n'
FACTOR = 'kind = "factor"\nlevels = ["a", "b"]\n'
DATE = 'kind = "date"\nlow = "2024-01-01"\nhigh = "2024-12-31"\nperiod = "month"\n'
#: Columns that are not what is asked for, and cannot be taken for it.
WRONG = {
    "text": pa.array(["a", "b"] * (ROWS // 2)),
    "dates": pa.array([dt.date(2024, 1, 1)] * ROWS),
    "moments": pa.array([dt.datetime(2024, 1, 1)] * ROWS),
    "times": pa.array([dt.time(1)] * ROWS),
    "lists": pa.array([[1.0]] * ROWS),
    "records": pa.array([{"a": 1.0}] * ROWS),
    "bytes": pa.array([b"\xff"] * ROWS),
}
SUMS = {
    "mean by group": lambda: (sv.Mean(describe(NUMBER), by="g"), "v"),
    "sum": lambda: (sv.Sum(describe(NUMBER)), "v"),
    "sum by group": lambda: (sv.Sum(describe(NUMBER), by="g"), "v"),
    "variance": lambda: (sv.Variance(describe(NUMBER), by="g"), "v"),
    "covariance": lambda: (sv.Covariance(describe(NUMBER), columns=["v", "w"]), None),
    "report": lambda: (sv.Report({"it": (sv.Sum(), "v")}, describe(NUMBER)), None),
}
CELLS = {
    "bins": lambda: (sv.Count(by="v", schema=describe(NUMBER)), None),
    "filter": lambda: (sv.Count(where="v > 3", schema=describe(NUMBER)), None),
}
PERIODS = {
    "months": lambda: (sv.Count(by="v", schema=describe(DATE)), None),
    "filter by day": lambda: (sv.Count(where="v > 2024-02-01", schema=describe(DATE)), None),
}


def describe(column: str) -> sv.Schema:
    return sv.Schema.loads(
        f'person = "id"\nbudget = "epsilon"\n[columns.v]\n{column}'
        f"[columns.g]\n{FACTOR}[columns.w]\nlow = 0\nhigh = 1\n"
    )


def make_table(column) -> pa.Table:
    return pa.table(
        {
            "id": [f"p{i // 2}" for i in range(ROWS)],
            "epsilon": [1.0] * ROWS,
            "v": column,
            "g": ["a", "b"] * (ROWS // 2),
            "w": np.linspace(0, 1, ROWS),
        }
    )


def ask(question, table) -> tuple[str, float]:
    """Returns what becomes of a question, and what the first person has left of 2."""
    session = sv.Session()
    session.grant({f"p{i}": 2.0 for i in range(ROWS // 2)})
    asked, column = question()
    try:
        session.release(asked, table, column, key="it")
    except errors.SottovoceError as refusal:
        return type(refusal).__name__, session.balance("p0")
    return "answered", session.balance("p0")


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("question", [*SUMS, *CELLS])
def test_what_is_no_number_is_refused_before_the_charge(question, kind, tmp_path):
    table = make_table(WRONG[kind])
    parquet.write_table(table, tmp_path / "t.parquet")
    for place in (table, str(tmp_path / "t.parquet")):
        assert ask({**SUMS, **CELLS}[question], place) == ("WrongType", 2.0)


@pytest.mark.parametrize("kind", ["times", "lists", "records", "bytes"])
@pytest.mark.parametrize("question", PERIODS)
def test_what_is_no_date_is_refused_before_the_charge(question, kind):
    assert ask(PERIODS[question], make_table(WRONG[kind])) == ("WrongType", 2.0)


@pytest.mark.parametrize("question", [*SUMS, *CELLS])
def test_a_cell_of_a_text_file_that_is_no_number_is_refused_before_the_charge(question, tmp_path):
    right = [str(i) for i in range(ROWS)]
    wrong = [*right[:-1], "many"]
    for entries, told in ((right, "answered"), (wrong, "WrongType")):
        csv.write_csv(make_table(pa.array(entries)), tmp_path / f"{told}.csv")
        found, left = ask({**SUMS, **CELLS}[question], str(tmp_path / f"{told}.csv"))
        assert found == told
        assert (left == 2.0) == (told == "WrongType")


def test_lists_are_no_levels_and_bytes_are_others():
    question = sv.Count(by={"v": ["a", "b"]})
    with pytest.raises(errors.WrongType):
        question.fit(make_table(WRONG["lists"]), epsilon=1.0)
    told = question.fit(make_table(WRONG["bytes"]), epsilon=200.0).table_.rows()
    assert [round(line["count"]) for line in told] == [0, 0, ROWS, 0]


@pytest.mark.parametrize(
    "words", [("true", "false"), ("True", "False"), ("1", "0"), ("yes", "no"), ("T", "F")]
)
def test_truths_are_found_however_levels_spell_them(words):
    table = make_table(pa.array([True, True, True, None] * (ROWS // 4)))
    told = sv.Count(by={"v": list(words)}).fit(table, epsilon=200.0).table_.rows()
    assert [round(line["count"]) for line in told] == [30, 0, 0, 10]


@pytest.mark.parametrize("by", ["v:hour", {"v": ["hour"]}, {"v": ["2024-1-1"]}])
def test_words_are_no_cells_of_dates(by):
    with pytest.raises(errors.InvalidParameter, match="neither a period nor days"):
        sv.Count(by=by, schema=describe(DATE)).validate()


def test_days_and_numbers_may_be_levels():
    days = sv.Count(by={"v": ["2024-01-01"]}, schema=describe(DATE))
    told = days.fit(make_table(WRONG["dates"]), epsilon=200.0, groups="rows").table_.rows()
    assert round(told[0]["count"]) == ROWS
    numbers = sv.Count(by={"v": ["1", "2"]}, schema=describe(NUMBER))
    table = make_table(pa.array([1.0, 2.0] * (ROWS // 2)))
    told = numbers.fit(table, epsilon=200.0, groups="rows").table_.rows()
    assert [round(line["count"]) for line in told] == [20, 20, 0, 0]
    with pytest.raises(errors.InvalidParameter, match="its cells are words"):
        sv.Count(by={"v": ["young", "old"]}, schema=describe(NUMBER)).validate()


def test_groups_to_compare_that_are_no_labels_are_refused():
    counted = sv.Count(by={"g": ["a", "b"]}).fit(make_table(WRONG["text"]), epsilon=1.0)
    groups = [{"self": "a"}, {1: "a"}, {"g": 1}, "a", None, True, False, np.int64(9)]
    for one, two in pairwise([*groups, {"g": "a"}]):
        with pytest.raises(errors.InvalidParameter):
            counted.table_.compare(one, two)
    by_number = counted.table_.compare(np.int64(0), np.uint8(1))
    assert by_number == counted.table_.compare({"g": "a"}, {"g": "b"})


def test_truths_are_no_range_and_no_levels():
    with pytest.raises(errors.InvalidSchema, match="levels as text"):
        sv.Schema.of({"v": [False, True]})
    with pytest.raises(errors.InvalidParameter, match='"true" and "false"'):
        sv.Count(by={"v": [False, True]}).validate()


def test_what_has_no_columns_with_names_is_said_to_have_none():
    for table in ({"g": ["a"] * 9}, [{"g": "a"}] * 9, ["a"] * 9, np.zeros((9, 2))):
        with pytest.raises(errors.MissingColumn, match="columns have names"):
            sv.Count(by={"g": ["a"]}).fit(table, epsilon=1.0)


def test_several_columns_without_a_name_are_refused_with_what_to_pass():
    table = pd.DataFrame({"a": np.zeros(9), "b": np.zeros(9)})
    for question in (sv.Mean((0, 1)), sv.Sum((0, 1)), sv.Variance((0, 1))):
        with pytest.raises(errors.WrongType, match='column="cost"'):
            question.fit(table, epsilon=1.0)


def test_a_path_is_no_release():
    with pytest.raises(errors.InvalidRelease, match=r"sv\.Release\.load"):
        sv.load("release.json")


def test_cells_in_a_set_are_refused_because_a_set_has_no_order():
    with pytest.raises(errors.InvalidParameter, match="no order"):
        sv.Count(by={"g": {"a", "b"}}).validate()
