"""Bad input: a named sentence, exit code 2, nothing on standard output, no file, and no value of
the data.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sottovoce.data.engines.arrow import ArrowEngine

SECRET = "Eleonora-731"
GOOD = "id,v,epsilon\na,1,0.5\nb,2,0.5\nc,3,1\n"
LINE = ("--column", "v", "--bounds", 0, 10, "--budget-column", "epsilon", "--person-column", "id")
ONE = ("--column", "v", "--bounds", 0, 10, "--epsilon", 1)

#: Only a release can notice these: a plan does not read the column.
VALUES = {
    "text among the values": (GOOD.replace("b,2", f"b,{SECRET}"), LINE, "WrongType"),
    "text among the values, far down": (
        GOOD + "d,4,1\n" * 400_000 + f"d,{SECRET},1\n",
        ONE,
        "WrongType",
    ),
    "NaN": (GOOD.replace("b,2", "b,nan"), LINE, "MissingValues"),
    "a missing value": (GOOD.replace("b,2", "b,"), LINE, "MissingValues"),
    "an infinite value": (GOOD.replace("b,2", "b,inf"), LINE, "MissingValues"),
}

#: Both refuse these.
TABLES = {
    "text among the budgets": (GOOD.replace("2,0.5", f"2,{SECRET}"), LINE, "WrongType"),
    "a value too many in a line": (GOOD + f"d,4,1,{SECRET}\n", LINE, "WrongType"),
    "a missing budget": (GOOD.replace("2,0.5", "2,"), LINE, "InvalidBudget"),
    "a negative budget": (GOOD.replace("2,0.5", "2,-731"), LINE, "InvalidBudget"),
    "a budget of zero": (GOOD.replace("2,0.5", "2,0"), LINE, "InvalidBudget"),
    "a row without owner": (GOOD.replace("b,2", ",2"), LINE, "UnknownPeople"),
    "a person with two budgets": (
        GOOD.replace("b,2,0.5", f"{SECRET},2,0.5\n{SECRET},2,0.7"),
        LINE,
        "InconsistentBudget",
    ),
    "an empty file": ("", LINE, "InvalidData"),
    "a header and no rows": ("id,v,epsilon\n", LINE, "TooFewRows"),
    "one row": ("id,v,epsilon\na,1,0.5\n", LINE, "TooFewRows"),
    "a column named twice": (GOOD.replace("id,v", "v,v"), LINE, "InvalidData"),
    "no such column": (GOOD, (*LINE, "--column", "w"), "MissingColumn"),
    "no such column of budgets": (GOOD, (*LINE, "--budget-column", "w"), "MissingColumn"),
    "no such column of people": (GOOD, (*LINE, "--person-column", "w"), "MissingColumn"),
    "bounds reversed": (GOOD, (*LINE, "--bounds", 10, 0), "InvalidBounds"),
    "bounds not finite": (GOOD, (*LINE, "--bounds", "nan", 5), "InvalidBounds"),
    "no bounds": (GOOD, ("--column", "v", "--epsilon", 1), "InvalidBounds"),
    "no column": (GOOD, ("--bounds", 0, 1, "--epsilon", 1), "InvalidParameter"),
    "no budget": (GOOD, ("--column", "v", "--bounds", 0, 10), "InvalidParameter"),
    "budgets twice": (GOOD, (*LINE, "--epsilon", 1), "InvalidParameter"),
    "an infinite ε": (GOOD, (*ONE, "--epsilon", "inf"), "InvalidBudget"),
    "a negative ε": (GOOD, (*ONE, "--epsilon", -1), "InvalidBudget"),
    "an impossible spread": (GOOD, (*LINE, "--spread", 1000), "InvalidParameter"),
    "a missing schema": (GOOD, (*LINE, "--schema", "nowhere.toml"), "InvalidSchema"),
}


@pytest.fixture
def refused(run, tmp_path):
    """Gives a command that must be refused."""

    def command(error, *words):
        before = sorted(tmp_path.rglob("*"))
        result = run(*words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(error)
        assert "731" not in result.stderr
        assert sorted(tmp_path.rglob("*")) == before
        return result

    return command


@pytest.mark.parametrize("verb", ["plan", "release"])
@pytest.mark.parametrize("name", TABLES)
def test_bad_input_is_a_named_sentence_and_leaves_nothing_behind(refused, tmp_path, name, verb):
    content, line, error = TABLES[name]
    path = tmp_path / "t.csv"
    path.write_text(content)
    refused(error, verb, "mean", path, *line, "--out", tmp_path / "out.json")


@pytest.mark.parametrize("name", VALUES)
def test_unreadable_values_are_refused_by_a_release_and_do_not_matter_to_a_plan(
    run, refused, tmp_path, name
):
    content, line, error = VALUES[name]
    path = tmp_path / "t.csv"
    path.write_text(content)
    assert run("plan", "mean", path, *line).exit_code == 0
    refused(error, "release", "mean", path, *line, "--out", tmp_path / "out.json")


@pytest.mark.parametrize(
    "line", [("--q", 2), ("--q", "nan"), ("--method", "guess"), ("--cells", 1), ("--spread", 0)]
)
def test_parameters_of_quantiles_outside_their_range(refused, tmp_path, line):
    (tmp_path / "t.csv").write_text(GOOD)
    refused("InvalidParameter", "release", "quantile", tmp_path / "t.csv", *LINE, *line)


def test_parameters_are_refused_before_the_table_is_looked_for(refused, tmp_path):
    refused("InvalidBounds", "release", "mean", tmp_path / "nowhere.csv", *LINE, "--bounds", 1, 0)


@pytest.mark.parametrize("place", ["nowhere.csv", "no*.parquet", ".", "t.txt", "t.parquet"])
@pytest.mark.parametrize("words", [("release", "mean", *LINE), ("schema", "draft")])
def test_what_is_no_table(refused, tmp_path, place, words):
    (tmp_path / "t.txt").write_text(GOOD)
    (tmp_path / "t.parquet").write_text(f"PAR1{SECRET}PAR1")
    if place == ".":
        (tmp_path / "t.parquet").unlink()
    refused("InvalidData", *words[:2], tmp_path / place, *words[2:])


def test_parquet_columns_of_the_wrong_kind(refused, tmp_path):
    table = pa.table(
        {"id": [1.5, 2.5], "v": [SECRET, "x"], "epsilon": [SECRET, "1"], "n": [1.0, 2.0]}
    )
    pq.write_table(table, tmp_path / "t.parquet")
    refused("WrongType", "release", "mean", tmp_path / "t.parquet", *ONE)
    refused(
        "InvalidBudget",
        "plan",
        "mean",
        tmp_path / "t.parquet",
        "--column",
        "n",
        "--bounds",
        0,
        1,
        "--budget-column",
        "epsilon",
    )
    refused("WrongType", "plan", "mean", tmp_path / "t.parquet", *ONE, "--person-column", "id")


@pytest.mark.parametrize("out", ["nowhere/out.json", ".", "t.csv"])
def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_read(
    refused, tmp_path, out, monkeypatch
):
    (tmp_path / "t.csv").write_text(GOOD)
    monkeypatch.setattr(ArrowEngine, "fold", None)
    refused(
        "InvalidParameter", "release", "mean", tmp_path / "t.csv", *LINE, "--out", tmp_path / out
    )
    assert (tmp_path / "t.csv").read_text() == GOOD


@pytest.mark.parametrize(
    "content", [None, "", "{}", "[1]", '{"format": "sottovoce.release/1"}', f'{{"a": "{SECRET}"']
)
def test_what_is_no_release_is_not_explained(refused, tmp_path, content):
    if content is not None:
        (tmp_path / "r.json").write_text(content)
    refused("InvalidRelease", "explain", tmp_path / "r.json")


def test_words_that_mean_nothing_are_refused_by_their_name(run, tmp_path):
    assert run("release", "mean", tmp_path / "t.csv", "--colour", "red").exit_code == 2
    assert run("release", "median", tmp_path / "t.csv").exit_code == 2
