"""From a table with people and budgets to a release and its plain words."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import sottovoce as sv
from seams import seeded, silent, without_names, witness
from sottovoce.data.engines.arrow import ArrowEngine
from sottovoce.release import Release


def test_from_csv_to_release_to_plain_words(run, folder, words):
    out = folder / "release.json"
    made = run("release", "mean", folder / "salaries.csv", *words, "--out", out)
    assert made.exit_code == 0
    assert made.stdout == ""
    release = Release.load(out)
    assert release.guarantee["people"] == 600
    assert 0 <= release.value <= 200_000
    assert "Promise: differential privacy" in made.stderr
    explained = run("explain", out)
    assert explained.exit_code == 0
    assert explained.stdout.strip() == release.explain()


def test_another_level_of_an_interval_is_told(run, folder, words):
    out = folder / "release.json"
    assert run("release", "mean", folder / "salaries.csv", *words, "--out", out).exit_code == 0
    release = Release.load(out)
    usual = run("explain", out).stdout
    assert run("explain", out, "--level", 0.95).stdout == usual
    told = run("explain", out, "--level", 0.999).stdout
    assert "with 99.9 % probability" in told
    low, high = sv.load(release).interval(0.999)
    assert high - low > release.intervals["high"] - release.intervals["low"]
    shown = re.search(r"population: (\S+) to (\S+?),? ", told).groups()
    ends = [float(end.replace(",", "")) for end in shown]
    assert ends == pytest.approx([low, high], abs=(high - low) / 50)
    lines = [line for line in usual.splitlines() if not line.startswith("Interval")]
    assert [line for line in told.splitlines() if not line.startswith("Interval")] == lines


def test_no_interval_at_a_level_is_refused(run, folder, words):
    out = folder / "release.json"
    assert run("release", "mean", folder / "salaries.csv", *words, "--out", out).exit_code == 0
    earlier = Path(__file__).parents[1] / "earlier" / "releases" / "ridge.json"
    for file, level, why in ((out, 1.5, "--level"), (earlier, 0.9, "made by an earlier version")):
        refused = run("explain", file, "--level", level)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert why in refused.stderr


def test_column_table_and_units_are_named_at_the_terminal(run, folder, words):
    units = (folder / "schema.toml").read_text() + 'unit = "EUR"\n'
    (folder / "units.toml").write_text(units)
    made = run(
        "release",
        "mean",
        folder / "salaries.csv",
        "--schema",
        folder / "units.toml",
        "--out",
        folder / "r.json",
    )
    told = run("explain", folder / "r.json").stdout
    assert made.stderr.startswith("Answer: the mean of 'salary' is ")
    assert "the column 'salary', of the table 'salaries', on 20" in told
    assert "between 0 and 200,000 EUR" in told
    labelled = run(
        "release", "quantile", folder / "salaries.csv", *words, "--table-label", "Pay in May"
    )
    assert json.loads(labelled.stdout)["table"] == "Pay in May"
    assert "units" not in json.loads(labelled.stdout)
    assert "±" not in labelled.stderr.split("Interval of")[0]
    plan = run("plan", "quantile", folder / "salaries.csv", *words, "--out", folder / "p.json")
    assert "Plan for the median of 'salary' in 'salaries'" in plan.stdout
    content = json.loads((folder / "p.json").read_text())
    assert (content["column"], content["table"], content["error_unit"]) == (
        "salary",
        "salaries",
        "share of the rows (rank)",
    )


def test_without_out_standard_output_is_the_release_and_nothing_else(run, folder, words):
    made = run("release", "mean", folder / "salaries.csv", *words)
    assert Release.from_json(made.stdout).question == "mean"
    assert json.loads(made.stdout)["format"] == "sottovoce.release/1"
    assert "No ledger remembers this release" in made.stderr


@pytest.mark.parametrize("place", ["salaries.csv", "salaries.parquet", "parts", "parts/*.parquet"])
def test_files_folders_and_patterns_give_the_same_answer(run, folder, words, table, place):
    with silent():
        made = run("release", "mean", folder / place, *words, "--spread", 5000)
    release = Release.from_json(made.stdout)
    assert release.guarantee["people"] == 600
    assert release.value == pytest.approx(sum(table["salary"].to_pylist()) / len(table), abs=200)


def test_several_quantiles_share_the_budget_and_keep_their_order(run, folder, words):
    shares = ("--q", 0.75, "--q", 0.25, "--q", 0.5)
    options = ("--method", "exponential", "--cells", 4096, "--spread", 0.1)
    made = run("release", "quantile", folder / "salaries.csv", *words, *shares, *options)
    release = Release.from_json(made.stdout)
    assert release.parameters["q"] == [0.75, 0.25, 0.5]
    assert release.value[1] <= release.value[2] <= release.value[0]
    assert release.parameters["method"] == "exponential"
    assert release.guarantee["epsilon"]["most"] <= 2
    assert "(the 0.75 quantile)" in made.stderr


def test_the_quantile_is_the_median_unless_said(run, folder, words):
    made = run("release", "quantile", folder / "salaries.csv", *words)
    assert Release.from_json(made.stdout).parameters["q"] == [0.5]


def test_one_epsilon_for_all_needs_no_column_of_budgets_or_people(run, folder):
    line = ("--column", "salary", "--bounds", 0, 200_000, "--epsilon", 0.5)
    for place in ("salaries.csv", "salaries.parquet"):
        made = run("release", "mean", folder / place, *line)
        guarantee = Release.from_json(made.stdout).guarantee
        assert (guarantee["unit"], guarantee["people"]) == ("row", 1200)
        assert guarantee["epsilon"]["most"] <= 0.5


def test_missing_values_are_answered_with_the_public_constant(run, tmp_path):
    path = tmp_path / "gaps.csv"
    path.write_text("v,w\n" + "1,0\n,0\nnan,0\n" * 200)
    line = ("--column", "v", "--bounds", -10, 10, "--epsilon", 50)
    assert run("release", "mean", path, *line).exit_code == 2
    with silent():
        made = run("release", "mean", path, *line, "--missing", -5)
    assert Release.from_json(made.stdout).value == pytest.approx(-3, abs=0.01)


@pytest.mark.parametrize("verb", ["mean", "quantile"])
def test_a_plan_shows_who_pays_what_in_the_words_of_a_release(run, folder, words, verb):
    out = folder / "plan.json"
    shown = run("plan", verb, folder / "salaries.csv", *words, "--out", out)
    assert shown.exit_code == 0
    for word in (
        "granted ε",
        "spent ε",
        "people",
        "rows",
        "share of weight",
        "Promise: pure ε for each person",
        "Expected error",
    ):
        assert word in shown.stdout
    plan = json.loads(out.read_text())
    made = run("release", verb, folder / "salaries.csv", *words)
    release = Release.from_json(made.stdout)
    assert plan["plan_digest"] == release.certificate.plan_digest
    assert plan["guarantee"] == release.guarantee
    assert plan["expected_error"] == release.expected_error
    assert [line["people"] for line in plan["who_pays"]] == [200, 200, 200]


def test_a_plan_reads_no_column_but_those_of_people_and_budgets(run, folder, words, monkeypatch):
    read: set[str] = set()
    fold = ArrowEngine.fold

    def spy(engine, kernel):
        read.update(kernel.columns)
        return fold(engine, kernel)

    monkeypatch.setattr(ArrowEngine, "fold", spy)
    run("plan", "mean", folder / "salaries.csv", *words)
    assert read == {"id", "epsilon"}
    run("release", "mean", folder / "salaries.csv", *words)
    assert read == {"id", "epsilon", "salary"}


def test_a_plan_works_on_a_column_that_cannot_be_read(run, folder, words):
    text = folder / "text.csv"
    text.write_text((folder / "salaries.csv").read_text().replace(",4", ",confidential"))
    path = folder / "salaries.parquet"
    broken = _with_broken_column(path, "salary")
    for place in (text, broken):
        assert run("plan", "mean", place, *words).exit_code == 0
        refused = run("release", "mean", place, *words)
        assert refused.exit_code == 2
        assert "confidential" not in refused.output


def test_a_plan_looks_for_the_column_in_the_header(run, folder, words):
    shown = run("plan", "mean", folder / "salaries.csv", *words, "--column", "income")
    assert shown.exit_code == 2
    assert "MissingColumn: The table has no column 'income'." in shown.stderr


def _with_broken_column(path, name):
    """The same Parquet file with the bytes of one column, and of no other, overwritten."""
    group = pq.read_metadata(path).row_group(0)
    chunk = next(
        group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == name
    )
    start = min(o for o in (chunk.dictionary_page_offset, chunk.data_page_offset) if o is not None)
    content = bytearray(path.read_bytes())
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    broken = path.with_name("broken.parquet")
    broken.write_bytes(content)
    return broken


@pytest.fixture
def consents(folder, table):
    """Everybody's budget in a table of its own, and the rows without."""
    people = table.group_by("id").aggregate([("epsilon", "max"), ("tier", "min")])
    people = people.rename_columns(["id", "epsilon", "tier"])
    pq.write_table(people.sort_by("id"), folder / "consents.parquet")
    csv.write_csv(people, folder / "consents.csv")
    csv.write_csv(people.slice(1), folder / "short.csv")
    csv.write_csv(table.drop_columns(["epsilon", "tier"]), folder / "bare.csv")
    return folder


ABOUT = ("--column", "salary", "--bounds", 0, 200_000, "--person-column", "id")


@pytest.mark.parametrize("engine", [None, "arrow", "duckdb"])
@pytest.mark.parametrize("budgets", ["consents.parquet", "consents.csv"])
def test_budgets_in_a_table_of_their_own_and_any_engine_change_nothing(
    run, consents, words, engine, budgets
):
    if engine is None:
        chosen = ()
    else:
        chosen = ("--engine", engine)
    with seeded(5):
        plainly = run("release", "mean", consents / "salaries.csv", *words).stdout
    with seeded(5):
        made = run(
            "release",
            "mean",
            consents / "bare.csv",
            *ABOUT,
            "--budgets",
            consents / budgets,
            *chosen,
        )
    assert without_names(Release.from_json(made.stdout)) == without_names(
        Release.from_json(plainly)
    )


@pytest.mark.parametrize("verb", ["plan", "release"])
def test_somebody_without_a_budget_is_not_named(run, consents, verb):
    refused = run(verb, "mean", consents / "bare.csv", *ABOUT, "--budgets", consents / "short.csv")
    assert refused.exit_code != 0
    assert "somebody without a budget" in refused.stderr
    assert "u0" not in refused.stderr


def test_tiers_are_looked_up_in_the_table_of_budgets(run, consents):
    schema = ("--schema", consents / "schema.toml", "--budget-column", "tier")
    planned = run(
        "plan", "mean", consents / "bare.csv", *schema, "--budgets", consents / "consents.csv"
    )
    assert planned.exit_code == 0, planned.stderr


def test_budgets_are_given_once(run, consents):
    twice = ("--budgets", consents / "consents.csv", "--epsilon", 1)
    assert "twice" in run("plan", "mean", consents / "bare.csv", *ABOUT, *twice).stderr


def test_an_engine_that_nobody_knows_or_has(run, folder, words, monkeypatch):
    assert (
        "no engine called 'abacus'"
        in run("plan", "mean", folder / "salaries.csv", *words, "--engine", "abacus").stderr
    )
    monkeypatch.setitem(sys.modules, "sottovoce.data.engines.dask", None)
    refused = run("plan", "mean", folder / "salaries.csv", *words, "--engine", "dask")
    assert "pip install 'sottovoce[dask]'" in refused.stderr


def test_a_table_of_a_database_needs_no_word_about_the_engine(run, folder, words, table):
    with duckdb.connect(str(folder / "hospital.duckdb")) as base:
        base.register("rows", table)
        base.execute("CREATE TABLE salaries AS SELECT * FROM rows")
    with seeded(5):
        plainly = run("release", "mean", folder / "salaries.parquet", *words).stdout
    with seeded(5):
        made = run("release", "mean", f"{folder}/hospital.duckdb#salaries", *words)
    assert without_names(Release.from_json(made.stdout)) == without_names(
        Release.from_json(plainly)
    ), made.stderr


@pytest.mark.parametrize("books", [False, True])
def test_noise_is_drawn_under_make_release(run, folder, tmp_path, monkeypatch, books):
    words = ["release", "mean", folder / "salaries.csv", "--schema", folder / "schema.toml"]
    if books:
        place = tmp_path / "books.db"
        run("ledger", "init", place)
        granting = ["grant", folder / "salaries.csv", "--person-column", "id"]
        run("ledger", *granting, "--ledger", place)
        words += ["--ledger", place, "--key", "mean"]
    seen = witness(monkeypatch)
    made = run(*words)
    assert made.exit_code == 0, made.stderr
    assert seen.inside
    assert seen.outside == []
