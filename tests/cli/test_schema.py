"""`sottovoce schema draft`: names and kinds, never a value."""

from __future__ import annotations

import pytest

from sottovoce import Schema


@pytest.mark.parametrize("place", ["salaries.csv", "salaries.parquet", "parts"])
def test_a_draft_has_names_and_kinds_and_blank_ranges_and_says_why(run, folder, place):
    drafted = run("schema", "draft", folder / place)
    assert drafted.exit_code == 0
    assert "would publish its largest and smallest values" in drafted.stderr
    schema = Schema.loads(drafted.stdout)
    assert {name: column.kind for name, column in schema.columns.items()} == {
        "id": "text",
        "salary": "number",
        "epsilon": "number",
        "tier": "text",
    }
    assert schema.columns["salary"].low is None
    assert "# low =" in drafted.stdout


def test_a_draft_holds_no_value(run, tmp_path):
    (tmp_path / "t.csv").write_text("who,pay\nEleonora,731\nBen,732\n")
    out = tmp_path / "schema.toml"
    drafted = run("schema", "draft", tmp_path / "t.csv", "--out", out)
    assert drafted.stdout == ""
    for secret in ("Eleonora", "731"):
        assert secret not in drafted.stderr + out.read_text()


def test_odd_names_survive_the_way_through_toml(run, tmp_path):
    names = ["a b", "naïve", "x.y", "it's", "café\u2028"]
    (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n")
    assert list(Schema.loads(run("schema", "draft", tmp_path / "t.csv").stdout).columns) == names


def test_a_draft_filled_in_answers_a_question(run, folder):
    text = run("schema", "draft", folder / "salaries.csv").stdout
    for blank, filled in (
        ('# person = ""', 'person = "id"'),
        ('# budget = ""', 'budget = "epsilon"'),
        ('# label = ""', 'label = "salary"'),
    ):
        text = text.replace(blank, filled)
    head, columns = text.split("[columns.salary]")
    columns = columns.replace("# low =", "low = 0", 1).replace("# high =", "high = 200_000", 1)
    (folder / "filled.toml").write_text(f"{head}[columns.salary]{columns}")
    assert (
        run(
            "release", "mean", folder / "salaries.csv", "--schema", folder / "filled.toml"
        ).exit_code
        == 0
    )
