"""A small part of SQL as questions; everything else is refused by the name of its clause."""

from __future__ import annotations

import sys
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce.errors import InvalidParameter, SottovoceError
from sottovoce.estimators.sql import name_table, read_statement
from sottovoce.schema import Column

SCHEMA = sv.Schema(
    {
        "age": Column("number", 0.0, 100.0, edges=(0.0, 40.0, 100.0)),
        "cost": Column("number", 0.0, 1000.0),
        "region": Column("factor", levels=("north", "south")),
        "visited": Column("date", low="2024-01-01", high="2024-12-31"),
        "odd `name": Column("number", 0.0, 1.0),
    }
)


def read(text: str, table: str | None = "patients") -> sv.Report:
    return read_statement(text, SCHEMA, table)


def test_a_statement_becomes_questions():
    report = read(
        "SELECT region, COUNT(*), AVG(cost) AS mean_cost, sum(Cost) FROM patients "
        "WHERE age > 40 AND NOT (region IN ('north') OR cost IS NULL) GROUP BY region"
    )
    assert list(report.questions) == ["COUNT(*)", "mean_cost", "SUM(Cost)"]
    mean, column = report.questions["mean_cost"]
    assert (type(mean), column, mean.by) == (sv.Mean, "cost", ["region"])
    assert mean.where == "(age > 40) and (not ((region in ['north']) or (cost is missing)))"
    report.validate()


@pytest.mark.parametrize(
    ("where", "filter_"),
    [
        ("40 < age", "age > 40"),
        ("age BETWEEN 1 AND -2.5", "(age >= 1 and age <= -2.5)"),
        ("region = 'it''s'", "region == 'it''s'"),
        ("visited >= DATE '2024-02-01'", "visited >= 2024-02-01"),
        ("visited >= '2024-02-01'", "visited >= 2024-02-01"),
        ("age <> 3", "age != 3"),
        ("cost IS NOT NULL", "not (cost is missing)"),
        ('"odd `name" < 1', "`odd ``name` < 1"),
    ],
)
def test_conditions_become_filters(where, filter_):
    question = read(f"SELECT COUNT(*) FROM patients WHERE {where}").questions["COUNT(*)"]
    assert question.where == filter_


def test_periods_bins_quantiles_and_counts_of_answers():
    report = read(
        "SELECT date_trunc('month', visited), COUNT(cost) FROM patients "
        "GROUP BY date_trunc('month', visited), age"
    )
    question = report.questions["COUNT(cost)"]
    assert question.by == ["visited:month", "age"]
    assert question.where == "cost is not missing"
    several = read(
        "SELECT MEDIAN(cost), QUANTILE(age, 0.9) q, "
        "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY age) AS low, VAR_SAMP(cost) FROM patients"
    ).questions
    assert [one.q for one, _ in list(several.values())[:3]] == [0.5, 0.9, 0.25]
    assert isinstance(several["VARIANCE(cost)"][0], sv.Variance)


def test_one_in_the_place_of_a_star_and_the_variance_of_all_rows():
    asked = read("SELECT COUNT(1) AS people, VAR_POP(cost) AS spread FROM patients").questions
    assert (type(asked["people"]), asked["people"].where) == (sv.Count, None)
    assert isinstance(asked["spread"][0], sv.Variance)


def test_groups_may_be_called_as_select_calls_them():
    text = (
        "SELECT date_trunc('month', visited) AS m, region r, COUNT(*) FROM patients GROUP BY m, r"
    )
    assert read(text).questions["COUNT(*)"].by == ["visited:month", "region"]
    with pytest.raises(InvalidParameter, match="not grouped by"):  # columns of the table come first
        read("SELECT cost AS region, COUNT(*) FROM patients GROUP BY region")


REFUSED = {
    "SELECT * FROM patients": "SELECT \\*",
    "SELECT age FROM patients": "not grouped by",
    "SELECT region, COUNT(*) FROM patients": "not grouped by",
    "SELECT region FROM patients GROUP BY region": "no aggregate",
    "SELECT COUNT(DISTINCT age) FROM patients": "COUNT\\(DISTINCT",
    "SELECT AVG(DISTINCT age) FROM patients": "AVG",
    "SELECT VAR_POP(weight) FROM patients": "VAR_POP.*'weight'",
    "SELECT COUNT(NULL) FROM patients": "COUNT",
    "SELECT COUNT(*) AS n FROM patients GROUP BY n": "GROUP BY",
    "SELECT AVG(cost + 1) FROM patients": "AVG",
    "SELECT AVG(cost) + 1 FROM patients": "no aggregate",
    "SELECT STDDEV(cost) FROM patients": "STDDEV",
    "SELECT MAX(cost) FROM patients": "MAX",
    "SELECT COUNT(*) FROM patients ORDER BY 1": "ORDER BY",
    "SELECT COUNT(*) FROM patients LIMIT 1": "LIMIT",
    "SELECT COUNT(*) FROM patients HAVING COUNT(*) > 1": "HAVING",
    "SELECT DISTINCT COUNT(*) FROM patients": "DISTINCT",
    "SELECT COUNT(*) FROM patients, others": "JOIN",
    "SELECT COUNT(*) FROM patients JOIN o ON true": "JOIN",
    "SELECT COUNT(*) FROM (SELECT 1)": "FROM",
    "SELECT COUNT(*) FROM other": "FROM.*'other'",
    "SELECT COUNT(*) FROM a.patients": "FROM",
    "SELECT COUNT(*) FROM 'file.csv'": "FROM",
    "SELECT COUNT(*)": "FROM",
    "WITH x AS (SELECT 1) SELECT COUNT(*) FROM patients": "WITH",
    "SELECT COUNT(*) FROM patients UNION SELECT COUNT(*) FROM patients": "one SELECT",
    "SELECT COUNT(*) FROM patients; DROP TABLE patients": "one SELECT",
    "DROP TABLE patients": "one SELECT",
    "SELECT COUNT(*) OVER () FROM patients": "WINDOW",
    "SELECT COUNT(*) FILTER (WHERE age > 3) FROM patients": "FILTER",
    "SELECT COUNT(*) FROM patients WHERE age > cost": "WHERE",
    "SELECT COUNT(*) FROM patients WHERE age > (SELECT 1)": "WHERE",
    "SELECT COUNT(*) FROM patients WHERE region LIKE 'n%'": "WHERE.*LIKE",
    "SELECT COUNT(*) FROM patients WHERE age IN (SELECT 1)": "IN",
    "SELECT COUNT(*) FROM patients WHERE weight > 3": "'weight'",
    "SELECT COUNT(*) FROM patients WHERE true": "WHERE",
    "SELECT COUNT(*) FROM patients GROUP BY ROLLUP (region)": "GROUP BY",
    "SELECT COUNT(*) FROM patients GROUP BY 1": "GROUP BY",
    "SELECT COUNT(*) FROM patients GROUP BY ALL": "GROUP BY",
    "SELECT COUNT(*) FROM patients GROUP BY region, region": "twice",
    "SELECT COUNT(*) FROM patients GROUP BY CASE WHEN age > 3 THEN 1 END": "GROUP BY",
    "SELECT COUNT(*) FROM patients GROUP BY date_trunc('hour', visited)": "date_trunc",
    "SELECT MEDIAN(cost) FROM patients WHERE age > 3": "QUANTILE",
    "SELECT region, MEDIAN(cost) FROM patients GROUP BY region": "QUANTILE",
    "SELECT QUANTILE(cost, 2) FROM patients": "QUANTILE",
    "SELECT QUANTILE(cost, age) FROM patients": "QUANTILE",
    "SELECT COUNT(*), COUNT(*) FROM patients": "one name",
    "SELECT COUNT(*) FROM patients TABLESAMPLE 10 PERCENT": "FROM|SAMPLE",
    "SELECT COUNT(*) FROM patients WHERE ((((": "parsed",
    "": "the statement",
    "SELECT " + "(" * 4000 + ")": "the statement",
    "x" * 6000: "the statement",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:60])
def test_the_rest_is_refused_by_the_name_of_its_clause(text):
    with pytest.raises(InvalidParameter, match=REFUSED[text]) as refusal:
        read(text)
    assert refusal.value.parameter == "statement"


def test_the_answer_is_that_of_the_questions():
    place = np.arange(2000)
    table = pa.table(
        {
            "age": place % 100 * 1.0,
            "cost": place % 7 * 100.0,
            "region": np.array(["north", "south"])[place % 2],
        }
    )
    fitted = read(
        "SELECT region, COUNT(*) AS n, AVG(cost) AS c FROM patients WHERE age < 50 GROUP BY region"
    ).fit(table, epsilon=1e4)
    inside = table.filter(pa.compute.less(table["age"], 50))
    for name, row in zip(("north", "south"), range(2), strict=True):
        own = inside.filter(pa.compute.equal(inside["region"], name))
        assert fitted.value_["n"][row] == pytest.approx(len(own), abs=1)
        mean = pa.compute.mean(own["cost"]).as_py()
        assert fitted.value_["c"][row] == pytest.approx(mean, abs=2)


def test_a_database_is_asked_for_the_table_after_from():
    assert name_table("SELECT COUNT(*) FROM claims", "h.duckdb") == "h.duckdb#claims"
    assert name_table("SELECT COUNT(*) FROM claims", "h.duckdb#claims") == "h.duckdb#claims"
    assert name_table("SELECT COUNT(*) FROM claims", "claims.csv") == "claims.csv"


def test_without_the_package_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(InvalidParameter, match=r"sottovoce\[sql\]"):
        read("SELECT COUNT(*) FROM patients")


TEXT = """SELECT FROM WHERE GROUP BY COUNT AVG SUM MEDIAN QUANTILE AND OR NOT IN IS NULL BETWEEN
DATE CASE WHEN THEN END HAVING ORDER LIMIT JOIN ON UNION WITH AS OVER DISTINCT date_trunc WITHIN
CAST '2024-01-01' 'north' 'month' "age" age cost region patients visited 1 -2 0.5 1e999 é ε
( ) * , . ; = < > <> <= :: [ ] { } ' " ` -- /* */ \\ $ @ ? % || -> => ~ \x00"""
WORDS = TEXT.split()


@given(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join))
@settings(deadline=None, max_examples=300)
def test_no_words_end_outside_our_errors(text):
    with suppress(SottovoceError):
        read(text).validate()


@given(
    st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join),
    st.sampled_from(["WHERE {}", "GROUP BY {}", ", {}", "WHERE age > 3 AND ({})", "AS {}"]),
)
@settings(deadline=None, max_examples=300)
def test_no_tail_ends_outside_our_errors(text, form):
    clause = form.format(text)
    with suppress(SottovoceError):
        read(f"SELECT COUNT(*) FROM patients {clause}").validate()


@given(st.text(max_size=300))
@settings(deadline=None, max_examples=200)
def test_no_text_ends_outside_our_errors(text):
    with suppress(SottovoceError):
        read(text).validate()
