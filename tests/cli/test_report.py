"""Reports and SQL at a terminal: plans, answers in every format, refusals before anybody pays."""

from __future__ import annotations

import csv
import io
import json

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv

from sottovoce.release import Release

SCHEMA = """\
name = "patients"
person = "id"
budget = "eps"
[columns.age]
kind = "number"
low = 0
high = 100
[columns.cost]
kind = "number"
low = 0
high = 500
[columns.region]
kind = "factor"
levels = ["=north", "south"]
"""
QUESTIONS = """\
[questions."regions"]
ask = "count"
by = ["region"]
[questions."cost by region"]
ask = "mean"
column = "cost"
by = ["region"]
[questions."+median"]
ask = "quantile"
column = "age"
"""


@pytest.fixture
def place(tmp_path):
    rows = np.arange(900)
    table = pa.table(
        {
            "id": [f"p{i}" for i in rows],
            "eps": np.resize([0.2, 1.0, 2.0], 900),
            "age": 20.0 + rows % 60,
            "cost": rows % 300 * 1.0,
            "region": np.array(["=north", "south"])[rows % 2],
        }
    )
    arrow_csv.write_csv(table, tmp_path / "patients.csv")
    base = duckdb.connect(str(tmp_path / "hospital.duckdb"))
    base.register("frame", table)
    base.execute("CREATE TABLE patients AS SELECT * FROM frame")
    base.close()
    (tmp_path / "s.toml").write_text(SCHEMA)
    (tmp_path / "q.toml").write_text(QUESTIONS)
    return tmp_path


@pytest.fixture
def words(place):
    return [place / "q.toml", place / "patients.csv", "--schema", place / "s.toml"]


@pytest.mark.parametrize("verb", [["report", "--plan"], ["plan", "report"]])
def test_a_plan_shows_shares_and_reads_nothing_else(run, words, verb):
    made = run(verb[0], *verb[1:], *words)
    assert made.exit_code == 0, made.output
    assert "cost by region: the mean of 'cost' by 'region', share" in made.stdout
    assert "nobody has been charged" in made.stdout


def test_a_page_and_the_release_beside_it(run, place, words):
    made = run("report", *words, "--out", place / "report.html")
    assert made.exit_code == 0, made.output
    page = (place / "report.html").read_text()
    assert page.count("<h2>") >= 4
    assert "cost by region" in page
    release = Release.load(place / "report.json")
    assert list(release.parts) == ["regions", "cost by region", "+median"]
    assert "95 % interval" in made.stderr
    explained = run("explain", place / "report.json")
    assert explained.stdout.strip() == release.explain()
    other = run("explain", place / "report.json", "--level", 0.5).stdout
    assert other.count("50 % probability") == explained.stdout.count("95 % probability") > 1
    again = run("report", *words, "--out", place / "report.html")
    assert again.exit_code == 2  # nothing is written over, and nobody is charged


def test_csv_is_guarded_and_has_all_digits(run, words):
    made = run("report", *words, "--format", "csv")
    lines = list(csv.DictReader(io.StringIO(made.stdout)))
    assert {line["question"] for line in lines} == {"regions", "cost by region", "'+median"}
    assert {line["region"] for line in lines} >= {"'=north", "south", "other", "missing"}
    counted = sum(float(line["value"]) for line in lines if line["question"] == "regions")
    assert counted == pytest.approx(900)


def test_markdown_and_json_and_other_formats(run, words):
    made = run("release", "report", *words, "--format", "md")
    assert made.stdout.startswith(
        "## regions\n\nthe number of rows by 'region'\n\n| region | count |"
    )
    assert "## What is promised" in made.stdout
    told = json.loads(run("report", *words).stdout)
    assert told["question"] == "report"
    assert run("report", *words, "--format", "pdf").exit_code == 2


def test_one_question_by_groups_in_csv(run, place):
    made = run(
        "release",
        "count",
        place / "patients.csv",
        "--by",
        "region",
        "--schema",
        place / "s.toml",
        "--format",
        "csv",
    )
    assert made.exit_code == 0, made.output
    assert made.stdout.startswith("question,region,answer,value,low,high,unit")


@pytest.mark.parametrize("kind", ["csv", "md", "html", "json"])
@pytest.mark.parametrize(
    "words",
    [
        ["covariance", "--columns", "age", "--columns", "cost"],
        ["count", "--where", "age > 40"],
        ["variance", "--column", "cost"],
        ["mean", "--column", "cost"],
    ],
    ids=lambda words: words[0],
)
def test_every_kind_of_answer_has_every_format(run, place, words, kind):
    made = run(
        "release",
        words[0],
        place / "patients.csv",
        *words[1:],
        "--schema",
        place / "s.toml",
        "--format",
        kind,
    )
    assert made.exit_code == 0, made.output
    assert made.stdout.strip()


@pytest.mark.parametrize("table", ["patients.csv", "hospital.duckdb", "hospital.duckdb#patients"])
def test_sql_over_files_and_databases(run, place, table):
    made = run(
        "sql",
        "SELECT region, COUNT(*) AS n, AVG(cost) FROM patients WHERE age > 40 GROUP BY region",
        place / table,
        "--schema",
        place / "s.toml",
    )
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert list(told["value"]["answers"]) == ["n", "AVG(cost)"]
    assert told["table"] == "patients"


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("SELECT * FROM patients", "SELECT *"),
        ("SELECT COUNT(*) FROM others", "FROM"),
        ("SELECT COUNT(*) FROM patients LIMIT 2", "LIMIT"),
        ("SELECT COUNT(*) FROM patients WHERE weight > 2", "weight"),
    ],
)
def test_sql_that_is_not_read_is_refused_by_its_clause(run, place, statement, word):
    made = run("sql", statement, place / "patients.csv", "--schema", place / "s.toml")
    assert made.exit_code == 2
    assert word in made.stderr


def test_bad_questions_are_refused_by_name_before_the_table_is_opened(run, place):
    (place / "bad.toml").write_text("[questions.a]\nask = 'mean'\ncolumn = 'weight'\n")
    made = run("report", place / "bad.toml", place / "none.csv", "--schema", place / "s.toml")
    assert made.exit_code == 2
    assert "'a'" in made.stderr
    assert run("report", place / "no.toml", place / "patients.csv", "--epsilon", 1).exit_code == 2


def test_a_ledger_charges_once(run, place, words):
    (place / "grants.csv").write_text("person,epsilon\n" + "".join(f"p{i},4\n" for i in range(900)))
    books = place / "books.db"
    assert run("ledger", "init", books).exit_code == 0
    assert run("ledger", "grant", place / "grants.csv", "--ledger", books).exit_code == 0
    first = run("report", *words, "--ledger", books, "--key", "may")
    again = run("report", *words, "--ledger", books, "--key", "may")
    assert first.exit_code == again.exit_code == 0, first.output + again.output
    assert first.stdout == again.stdout
    assert run("ledger", "verify", "--ledger", books).exit_code == 0
