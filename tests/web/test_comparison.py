"""Two groups of one released table, at the terminal, at the page and in JSON: the numbers of
`table_.compare`, and refusals in the words of each door.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.cli.main import app as command_line
from sottovoce.errors import InvalidParameter
from sottovoce.report.comparison import GroupComparison, compare_groups
from sottovoce.schema import Column
from web.rooms import text

PLACE = np.arange(3000)
ROWS = pa.table(
    {
        "cost": 100.0 + 200.0 * (PLACE % 2),
        "region": np.array(["north", "south"])[PLACE % 2],
        "smoker": np.array(["no", "yes"])[PLACE // 2 % 2],
    }
)
SCHEMA = sv.Schema(
    {
        "cost": Column("number", 0.0, 500.0, unit="EUR"),
        "region": Column("factor", levels=("north", "south"), other="south", missing="south"),
        "smoker": Column("factor", levels=("no", "yes"), other="no", missing="no"),
    }
)


@pytest.fixture(scope="module")
def by_region():
    return sv.Mean(SCHEMA, by="region").fit(ROWS, column="cost", epsilon=1.0)


@pytest.fixture(scope="module")
def counted():
    return sv.Count(by=["region", "smoker"], schema=SCHEMA).fit(ROWS, epsilon=1.0)


@pytest.fixture(scope="module")
def report():
    asked = {"pay": (sv.Mean(by="region"), "cost"), "people": sv.Count(by="smoker")}
    return sv.Report(asked, SCHEMA).fit(ROWS, epsilon=2.0)


def test_the_numbers_are_those_of_the_table(by_region, counted, report):
    told = compare_groups(by_region.release_, "south", "north")
    known = by_region.table_.compare({"region": "south"}, {"region": "north"})
    assert (told.difference, told.low, told.high) == tuple(known.values())
    assert told.unit == "EUR"
    several = compare_groups(counted.release_, "region=north", "region=south")
    known = counted.table_.compare({"region": "north"}, {"region": "south"})
    assert (several.difference, several.low, several.high) == tuple(known.values())
    one = compare_groups(counted.release_, "north, yes", "region=south, smoker=no")
    assert one.difference == counted.table_.compare(1, 2)["difference"]
    part = compare_groups(report.release_, "yes", "no", "people")
    assert part.unit == "rows"
    assert part.difference == report.parts_["people"].table_.compare(1, 0)["difference"]


def test_words_follow_from_the_interval():
    told = GroupComparison("the mean of 'cost'", "a", "b", 200.0, 150.0, 260.0, 0.95, "EUR")
    assert told.describe()[0] == "The mean of 'cost', “a” minus “b”: 200 EUR."
    assert "95 % or more" in told.describe()[1]
    assert "150 EUR to 260 EUR" in told.describe()[1]
    assert "larger in “a”" in told.describe()[2]
    assert "larger in “b”" in replace(told, difference=-9.0, low=-20.0, high=-1.0).describe()[2]
    assert "it cannot be said" in replace(told, low=-1.0).describe()[2]
    assert "too few rows" in replace(told, difference=None, low=None, high=None).describe()[0]
    assert "Nothing bounds it" in replace(told, low=None).describe()[1]


@pytest.mark.parametrize(
    ("asked", "parameter", "words"),
    [
        (("east", "north"), "one", "no such group"),
        (("north", "region=east"), "two", "no such group"),
        (("north", "north"), "two", "cell in common"),
        (("north", "where=south"), "two", "no such group"),
    ],
)
def test_groups_that_are_not_there_are_refused(by_region, asked, parameter, words):
    with pytest.raises(InvalidParameter, match=words) as refusal:
        compare_groups(by_region.release_, *asked)
    assert refusal.value.parameter == parameter


def test_releases_without_groups_and_unclear_reports_are_refused(report):
    plain = sv.Mean(bounds=(0, 500)).fit(np.asarray(ROWS["cost"]), epsilon=1.0)
    for release, words in ((plain.release_, "no groups"), (report.release_, "which table")):
        with pytest.raises(InvalidParameter, match=words) as refusal:
            compare_groups(release, "north", "south")
        assert refusal.value.parameter == "of"


def test_at_the_terminal(by_region, report, tmp_path):
    path = tmp_path / "mean.json"
    path.write_text(by_region.release_.to_json())
    run = CliRunner().invoke(command_line, ["explain", str(path), "--compare", "south", "north"])
    assert run.exit_code == 0
    assert "“south” minus “north”" in run.output
    assert "costs nobody anything more" in run.output
    other = ["explain", str(path), "--compare", "south", "north", "--level", "0.999"]
    assert "probability of 99.9 % or more" in CliRunner().invoke(command_line, other).output
    wrong = CliRunner().invoke(command_line, ["explain", str(path), "--compare", "east", "north"])
    assert wrong.exit_code == 2
    assert "See --compare." in wrong.output
    path.write_text(report.release_.to_json())
    unclear = CliRunner().invoke(command_line, ["explain", str(path), "--compare", "yes", "no"])
    assert (unclear.exit_code, "See --of." in unclear.output) == (2, True)


def test_at_the_page_and_in_json(client, workspace, monkeypatch, by_region, counted, report):
    made = {"mean": by_region.release_, "count": counted.release_, "report": report.release_}
    stored = {key: release.to_json().encode() for key, release in made.items()}
    monkeypatch.setattr("sottovoce.web.actions.read_release", lambda workspace, key: stored[key])
    page = client.get("/release", params={"key": "mean"})
    assert re.findall(r'<option value="(\w+)"', page.text) == ["north", "south"] * 2
    page = client.get("/release", params={"key": "mean", "one": "south", "two": "north"})
    assert "“south” minus “north”" in text(page.text)
    told = client.get(
        "/api/release/compare", params={"key": "mean", "one": "south", "two": "north"}
    )
    known = by_region.table_.compare({"region": "south"}, {"region": "north"})
    assert {name: told.json()[name] for name in known} == known
    assert told.json()["words"].split(".")[0] in text(page.text)
    same = client.get("/release", params={"key": "mean", "one": "south", "two": "south"})
    assert same.status_code == 422
    assert 'id="two-wrong"' in same.text
    wrong = client.get("/api/release/compare", params={"key": "mean", "one": "x", "two": "north"})
    assert (wrong.status_code, wrong.json()["fields"][0]["field"]) == (422, "one")
    several = {"key": "report", "of": "people", "one": "yes", "two": "no"}
    page = client.get("/release", params=several)
    assert "“yes” minus “no”" in text(page.text)
    assert client.get("/api/release/compare", params=several).json()["unit"] == "rows"
