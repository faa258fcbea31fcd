"""What is said on the line, what the schema adds, and what is refused in the words of the command
line.
"""

from __future__ import annotations

import pytest

from sottovoce.data.source import DataSource
from sottovoce.errors import InvalidBounds, InvalidParameter, InvalidSchema
from sottovoce.release import Release
from sottovoce.schema import Schema


@pytest.fixture
def schema(folder):
    return folder / "schema.toml"


def test_the_schema_says_what_the_line_does_not(schema):
    said = DataSource("t.csv", schema=schema).complete()
    assert (said.column, said.person, said.budget) == ("salary", "id", "tier")
    assert (said.bounds, said.missing) == ((0.0, 200_000.0), 50_000)
    assert dict(said.tiers) == {"careful": 0.1, "middle": 0.5, "open": 2}


def test_the_line_wins_over_the_schema(schema):
    said = DataSource(
        "t.csv", "age", (0.0, 120.0), "epsilon", None, "name", schema, 40.0
    ).complete()
    assert (said.column, said.person, said.budget) == ("age", "name", "epsilon")
    assert (said.bounds, said.missing) == ((0.0, 120.0), 40.0)
    assert said.tiers == {}, "a price list belongs to the schema's own column"


def test_one_epsilon_on_the_line_wins_over_the_column_in_the_schema(schema):
    said = DataSource("t.csv", epsilon=0.5, schema=schema).complete()
    assert (said.epsilon, said.budget, said.tiers) == (0.5, None, {})


def test_tiers_without_a_column_belong_to_the_column_on_the_line(tmp_path):
    (tmp_path / "s.toml").write_text("[tiers]\nopen = 2\n")
    said = DataSource("t.csv", "v", (0.0, 1.0), "tier", schema=tmp_path / "s.toml").complete()
    assert said.tiers == {"open": 2}


@pytest.mark.parametrize("place", ["salaries.csv", "salaries.parquet"])
def test_a_table_with_tiers_is_answered_by_its_schema_alone(run, folder, schema, place):
    made = run("release", "mean", folder / place, "--schema", schema, "--spread", 5000)
    release = Release.from_json(made.stdout)
    assert release.guarantee["unit"] == "person"
    assert [entry["people"] for entry in release.guarantee["epsilon"]["distribution"]] == [
        200,
        200,
        200,
    ]


def test_a_tier_that_nobody_priced_is_refused(run, folder, schema):
    schema.write_text(schema.read_text().replace("middle = 0.5\n", ""))
    refused = run("release", "mean", folder / "salaries.csv", "--schema", schema)
    assert refused.exit_code == 2
    assert "UnknownPeople" in refused.stderr
    assert "middle" not in refused.output


@pytest.mark.parametrize(
    ("said", "error", "parameter", "remedy"),
    [
        (DataSource("t", "v", (0.0, 1.0)), InvalidParameter, "epsilon", "give one ε"),
        (
            DataSource("t", "v", (0.0, 1.0), "e", 0.5),
            InvalidParameter,
            "epsilon",
            "the column of budgets",
        ),
        (DataSource("t", None, (0.0, 1.0), "e"), InvalidParameter, "column", "Name the column"),
        (DataSource("t", "v", None, "e"), InvalidBounds, "bounds", "the highest value"),
        (DataSource("t", "v", (0.0, 1.0), "v"), InvalidParameter, "column", "different columns"),
    ],
)
def test_what_is_missing_or_said_twice_is_named(said, error, parameter, remedy):
    with pytest.raises(error) as refused:
        said.complete()
    assert refused.value.parameter == parameter
    assert remedy in refused.value.remedy


def test_a_range_left_blank_in_the_schema_is_named(tmp_path):
    (tmp_path / "s.toml").write_text('label = "v"\n[columns.v]\nkind = "number"\n')
    with pytest.raises(InvalidSchema, match="low and high"):
        DataSource("t", epsilon=1.0, schema=tmp_path / "s.toml").complete()


def test_a_price_list_is_of_the_column_that_the_schema_names():
    """Of another column of budgets the numbers are taken as they are, in a plan as in a release."""
    schema = Schema.loads('budget = "tier"\nperson = "id"\n[tiers]\nlow = 0.1\n')
    source = DataSource("t", "v", (0.0, 1.0), schema=schema)
    assert source.complete().tiers == source.select_people().tiers == {"low": 0.1}
    other = DataSource("t", "v", (0.0, 1.0), "mine", schema=schema)
    assert other.complete().tiers == other.select_people().tiers == {}
