"""What people read of tables: units, whole counts, names of columns, and no crash in any format."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sottovoce as sv
from sottovoce.cli.console import show_tables
from sottovoce.data.source import DataSource
from sottovoce.estimators.table_law import NoiseLaw, find_share_interval
from sottovoce.release import Release
from sottovoce.report.answers import list_answers, list_relative_lengths, write_markdown
from sottovoce.report.release import draw_answer
from sottovoce.wording import get_shown_width, list_cell_answers, warn_if_uninformative

SCHEMA = """\
name = "patients"
person = "id"
budget = "eps"
[columns.age]
kind = "number"
low = 0
high = 100
unit = "years"
[columns.cost]
kind = "number"
low = 0
high = 500
unit = "EUR"
[columns.region]
kind = "factor"
levels = ["O'Hara", "south"]
"""


@pytest.fixture
def place(tmp_path):
    rows = np.arange(900)
    table = pd.DataFrame(
        {
            "id": [f"p{i}" for i in rows],
            "eps": np.resize([0.2, 1.0, 2.0], 900),
            "age": 20.0 + rows % 60,
            "cost": np.where(rows % 20 == 0, np.nan, rows % 300 * 1.0),
            "region": np.array(["O'Hara", "south", "nowhere"])[rows % 3],
        }
    )
    table.to_csv(tmp_path / "patients.csv", index=False)
    (tmp_path / "s.toml").write_text(SCHEMA)
    return tmp_path


@pytest.fixture
def ask(run, place):
    def asked(*words):
        made = run(
            "release", words[0], place / "patients.csv", *words[1:], "--schema", place / "s.toml"
        )
        assert made.exit_code == 0, made.stderr
        return made

    return asked


@pytest.mark.parametrize("kind", ["json", "csv", "md", "html"])
def test_a_covariance_is_told_in_every_format(ask, kind):
    made = ask("covariance", "--columns", "age", "--columns", "cost", "--format", kind)
    assert "correlation of 'age' and 'cost'" in made.stderr
    assert "Asked about: the columns 'age', 'cost'" in made.stderr
    assert "squared EUR" in made.stderr
    assert "years × EUR" in made.stderr
    if kind == "json":
        names = [line.quantity for line in list_answers(Release.from_json(made.stdout))]
        assert len(names) == len(set(names)) == 6


def test_a_covariance_with_too_few_rows_is_told(ask):
    made = ask("covariance", "--columns", "age", "--columns", "cost")
    release = Release.from_json(made.stdout)
    release.value["correlation"]["age"]["cost"] = None
    assert "too few to say" in dict(list_cell_answers(release)).values()


def test_cells_have_units_and_one_column_is_one(ask):
    made = ask("mean", "--column", "cost", "--by", "region")
    assert "EUR (" in made.stderr
    assert "between 0 and 500 EUR" in made.stderr
    made = ask("variance", "--column", "cost", "--format", "csv")
    assert "Asked about: the column 'cost', of the table 'patients'" in made.stderr
    assert "between 0 and 500 EUR; " in made.stderr
    assert "1 declared cells" not in made.stderr


def test_a_filter_names_the_columns_it_reads(ask):
    made = ask("count", "--where", "region == 'O''Hara'")
    assert "Asked about: the column 'region'" in made.stderr


def test_the_number_of_rows_costs_nothing_and_says_so(ask):
    made = ask("count")
    assert "asking again spends" not in made.stderr
    assert "Nobody spends anything" in made.stderr
    assert "is public, and exact" in made.stderr


def test_a_wrong_quote_is_told_how_to_write_one(run, place):
    words = ("--where", r"region == 'O\'Hara'", "--schema", place / "s.toml")
    made = run("release", "count", place / "patients.csv", *words)
    assert made.exit_code == 2
    assert "a quote is written twice" in made.stderr


def test_lines_to_copy_end_before_the_advice(run, place):
    words = ("--by", "cost", "--schema", place / "s.toml")
    made = run("release", "count", place / "patients.csv", *words)
    assert made.exit_code == 2
    assert "]\nSee --by." in made.stderr


def test_counts_are_told_in_whole_rows():
    assert get_shown_width("count", 0.0, 1.0) == 10.0
    assert get_shown_width("count", 0.0, 100.0) == 50.0
    assert get_shown_width("mean", 0.0, 1.0) == 0.5


def test_noise_far_below_zero_makes_no_interval_of_one_point():
    law = NoiseLaw.choose(7)
    far = np.array([-0.9, 0.0, 1.9, 1.0])
    low, high = find_share_interval(law, 0.95, far, 0.01, 0.001, 0.001, 1.0)
    assert high[0] == high[1] > 0.01
    assert low[2] == low[3] < 0.99


def test_a_plan_of_a_report_has_units(run, place):
    (place / "q.toml").write_text('[questions."c"]\nask = "mean"\ncolumn = "cost"\n')
    words = (place / "patients.csv", "--schema", place / "s.toml", "--plan")
    (place / "s.toml").write_text(SCHEMA.replace('unit = "EUR"', 'unit = "EUR"\nmissing = 0'))
    made = run("report", place / "q.toml", *words)
    assert made.exit_code == 0, made.stderr
    assert " EUR. Of it" in made.stdout + made.stderr
    assert "in units of 'cost'" not in made.stdout + made.stderr


def test_sampling_refuses_whole_tables_in_words(place):
    frame = pd.read_csv(place / "patients.csv")
    count = sv.Count(by={"region": ["O'Hara", "south"]})
    with pytest.raises(sv.errors.InvalidParameter, match="A question about a whole table is"):
        sv.Sampled(count).fit(frame, epsilon="eps", groups="id")


@pytest.mark.parametrize("around", [sv.Uniform, sv.Threshold, sv.Limited])
def test_other_baselines_answer_whole_tables(place, around):
    frame = pd.read_csv(place / "patients.csv")
    count = sv.Count(by={"region": ["O'Hara", "south"]})
    fitted = around(count).fit(frame, epsilon="eps", groups="id")
    assert {row["region"] for row in fitted.table_.rows()} >= {"O'Hara", "south"}


def test_a_question_about_the_table_is_about_no_column(place):
    schema = replace(sv.Schema.loads(SCHEMA), label="cost")
    said = DataSource("patients.csv", column="cost", schema=schema, name="patients")
    assert said.subject.column == "cost"
    assert said.for_table().subject.column is None


def test_pages_round_covariances_and_tell_exact_counts(ask):
    made = ask("covariance", "--columns", "age", "--columns", "cost", "--epsilon", "0.0001")
    release = Release.from_json(made.stdout)
    assert "says nothing about correlations" in warn_if_uninformative(release)
    # What noise makes of these numbers has no limit, and beyond 10^15 has a power of ten.
    covariance = {
        "age": {"age": 30515580376140.98, "cost": 37385263837128.945},
        "cost": {"age": 37385263837128.945, "cost": 45801454042293.72},
    }
    value = {**release.value, "covariance": covariance}
    page = draw_answer(replace(release, value=value, intervals=None))
    assert "e+" not in page
    assert "46,000,000,000,000 squared EUR" in page
    assert "37,000,000,000,000 years × EUR" in page
    assert "correlation of &#x27;age&#x27; and &#x27;cost&#x27;" in page
    assert "±" not in draw_answer(Release.from_json(ask("count").stdout))


def test_cells_that_say_nothing_are_counted_and_not_shown(ask):
    """A third of the rows have an unknown region, none has a missing one: its interval begins at 0
    except with probability .025 at most, which is why the message is looked for in five releases.
    """
    shown = [ask("count", "--by", "region").stderr for _ in range(5)]
    assert all("other" in told for told in shown)
    assert any("not clearly above zero are not shown: 1." in told for told in shown)


def test_bars_are_those_of_declared_cells(place):
    schema = sv.Schema.load(place / "s.toml")
    table = pd.read_csv(place / "patients.csv")
    count = sv.Count(by="region", where="age < 25", schema=schema).fit(table, epsilon=1e5)
    lines = list_answers(count.release_)
    lengths = list_relative_lengths(list_answers(count.release_))
    assert [line.is_declared for line in lines] == [True, True, False, False, False]
    assert max(lengths[:2]) == 1.0
    assert lengths[-1] == 0.0  # outside the filter are far more rows than inside


def test_no_bar_is_longer_than_that_of_a_missing_value():
    """Dates in another order of day and month are all missing, and no bar says otherwise."""
    schema = sv.Schema.loads(
        '[columns.day]\nkind = "date"\nlow = "2025-01-01"\nhigh = "2025-12-31"'
    )
    table = pa.table({"day": ["31.01.2025"] * 1000})
    count = sv.Count(by="day:quarter", schema=schema).fit(table, epsilon=1.0)
    lines = list_answers(count.release_)
    days = [line.cell["day"] for line in lines]
    lengths = dict(zip(days, list_relative_lengths(lines), strict=True))
    # A quarter without rows has 500 with probability below 1e-60.
    assert lengths.pop("missing") == 1.0
    assert max(lengths.values()) < 0.5


def test_of_a_large_table_the_largest_cells_are_shown(capfd):
    """Two bins have all rows, 500 each; a bin without any has 300 with probability below 1e-60."""
    place = np.repeat([7.5, 299.5], 500)
    edges = list(range(301))
    count = sv.Count(by={"place": edges}).fit(pa.table({"place": place}), epsilon=1.0)
    show_tables(count.release_)
    told = capfd.readouterr().err
    assert "[7, 8)" in told
    assert "[299, 300]" in told
    # 240 declared cells, and perhaps those of unknown and missing values
    assert re.search(r"These are the largest; 24[012] more lines are in the file\.", told)
    words = count.release_.explain()
    assert "; and 289 more" in words


def test_counts_are_told_with_their_shares_and_questions_one_by_one(capfd):
    table = pa.table({"g": ["a"] * 300 + ["b"] * 700, "y": np.linspace(0, 1, 1000)})
    report = sv.Report(
        {"how many": sv.Count(by={"g": ["a", "b"]}), "middle": (sv.Quantile(0.5, (0, 1)), "y")}
    ).fit(table, epsilon=1e5)
    show_tables(report.release_)
    told = capfd.readouterr().err
    assert told.index("how many") < told.index("share") < told.index("middle")
    assert "30 %" in told
    assert "70 %" in told
    written = write_markdown(report.release_)
    assert "## how many" in written
    assert "| a | 300 |" in written
    one = sv.Report({"how many": sv.Count(by={"g": ["a", "b"]})}).fit(table, epsilon=1e5)
    assert "a report of 1 question." in one.release_.explain()
