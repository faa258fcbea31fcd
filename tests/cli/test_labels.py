"""A private label on public features, from a table: planned from the features, released, booked and
audited at the terminal and in JSON; the same numbers as in Python.
"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.cli.main import app
from sottovoce.data.source import DataSource
from sottovoce.errors import InvalidParameter
from sottovoce.session import plan_from_table

ROWS = 120
LABELS = "pure epsilon, replace labels"
SCHEMA = """
person = "id"
budget = "epsilon"
label = "cost"
[columns.cost]
kind = "number"
low = 0
high = 100
[columns.age]
kind = "number"
low = 0
high = 1
[columns.years]
kind = "number"
low = 0
high = 1
"""


@pytest.fixture
def files(tmp_path):
    """Two rows a person, three tiers of ε."""
    lines = [
        f"p{i // 2},{(0.5, 1.0, 4.0)[i // 2 % 3]},{i % 10 * 10},{i % 7 / 7},{i % 5 / 5}"
        for i in range(ROWS)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["id,epsilon,cost,age,years", *lines, ""]))
    (tmp_path / "s.toml").write_text(SCHEMA)
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def prepare(files):
    schema = sv.Schema.load(files / "s.toml")
    source = DataSource(str(files / "t.csv"), schema=schema).for_regression()
    return source, sv.LabelPrivateRegression(bounds=source.features)


def test_the_plan_is_that_of_python_and_reads_no_label(files):
    source, model = prepare(files)
    plan = plan_from_table(source, model)
    text = (files / "t.csv").read_text().splitlines()
    others = [",".join([*line.split(",")[:2], "7", *line.split(",")[3:]]) for line in text[1:]]
    (files / "t.csv").write_text("\n".join([text[0], *others, ""]))
    assert plan_from_table(source, model).digest == plan.digest, "labels change nothing"
    columns = [line.split(",") for line in text[1:]]
    known = model.plan(
        [[float(line[3]), float(line[4])] for line in columns],
        epsilon=[float(line[1]) for line in columns],
        groups=[line[0] for line in columns],
    )
    assert plan.expected_error == known.expected_error
    assert plan.guarantee.spent.tolist() == known.guarantee.spent.tolist()
    shown = run("plan", "labels", files / "t.csv", "--schema", files / "s.toml")
    assert shown.exit_code == 0, shown.output
    assert "The features, which are public, were read, and no label was" in shown.output


def test_from_a_release_to_its_audit(files):
    made = files / "model.json"
    shown = run("release", "labels", files / "t.csv", "--schema", files / "s.toml", "--out", made)
    assert shown.exit_code == 0, shown.output
    release = sv.Release.load(made)
    assert (release.column, release.table) == ("cost", "t")
    assert release.guarantee["neighbours"] == "replace labels"
    page = files / "audit.html"
    audited = run("audit", made, files / "t.csv", "--schema", files / "s.toml", "--out", page)
    assert audited.exit_code == 0, audited.output
    assert page.exists()


@pytest.mark.long
def test_an_attack_exchanges_labels(files):
    table, schema, made = files / "t.csv", files / "s.toml", files / "m.json"
    assert run("release", "labels", table, "--schema", schema, "--out", made).exit_code == 0
    sure = ("--confidence", 1 - 1e-7)
    shown = run("audit", made, table, "--schema", schema, "--attack", "--runs", 500, *sure)
    assert shown.exit_code == 0, shown.output
    assert "No violation was found" in shown.output


def test_a_ledger_charges_the_account_of_labels(files):
    books = f"sqlite:///{files / 'books.db'}"
    asked = ["labels", files / "t.csv", "--schema", files / "s.toml", "--ledger", books]
    refused = run("release", *asked, "--key", "k")
    assert refused.exit_code != 0
    session = sv.Session(ledger=books)
    granted = {f"p{i}": (0.5, 1.0, 4.0)[i % 3] for i in range(ROWS // 2)}
    granted["p1"] = 0.25
    session.grant(granted, neighbours="replace labels")
    made = run("release", *asked, "--key", "k")
    assert made.exit_code == 0, made.output
    assert "1 of 60 people had not enough left" in made.output
    left = session.balance("p0", account=LABELS)
    assert 0 <= left < 0.5
    assert session.balance("p1", account=LABELS) == 0.25
    again = run("release", *asked, "--key", "k")
    assert "nobody was charged" in again.output
    other = (files / "s.toml").read_text().replace("[columns.years]", "[columns.yearz]")
    (files / "s.toml").write_text(other.split("[columns.yearz]")[0])
    reused = run("release", *asked, "--key", "k")
    assert reused.exit_code == 2
    assert "stands for another release" in reused.output


def test_features_with_levels_are_refused_in_words(files):
    described = (files / "s.toml").read_text().split("[columns.years]")[0]
    described += '[columns.years]\nkind = "factor"\nlevels = ["a", "b"]\n'
    (files / "s.toml").write_text(described)
    for command in ("plan", "release"):
        refused = run(command, "labels", files / "t.csv", "--schema", files / "s.toml")
        assert refused.exit_code == 2
        assert "The feature 'years' is no number." in refused.output
        assert "See --schema." in refused.output


def test_features_that_are_no_numbers_are_refused_before_anybody_is_charged(files):
    text = (files / "t.csv").read_text().replace("0.2\n", "x\n")
    (files / "t.csv").write_text(text)
    refused = run("plan", "labels", files / "t.csv", "--schema", files / "s.toml")
    assert refused.exit_code == 2
    assert "Traceback" not in refused.output
    source, model = prepare(files)
    with pytest.raises(InvalidParameter, match="not in memory"):
        model.read_table(source)
