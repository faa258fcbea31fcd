"""Files of questions: what they say, and what is refused by the name of its entry."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce.errors import InvalidParameter, SottovoceError
from sottovoce.estimators.report_file import parse_questions
from sottovoce.schema import Column

SCHEMA = sv.Schema(
    {
        "age": Column("number", 0.0, 100.0),
        "region": Column("factor", levels=("north", "south")),
    }
)
FILE = """
[questions."mean age"]
ask = "mean"
column = "age"
spread = 10
wanted = 0.5

[questions.regions]
ask = "count"
by = ["region"]
where = "age > 40"

[questions.quartiles]
ask = "quantile"
column = "age"
q = [0.25, 0.75]
bounds = [0, 50]
missing = 20
"""


def test_a_file_becomes_a_report(tmp_path):
    path = tmp_path / "questions.toml"
    path.write_text(FILE)
    report = sv.Report.load(path, SCHEMA)
    report.validate()
    mean, column = report.questions["mean age"]
    assert (column, mean.spread, report.wanted) == ("age", 10, {"mean age": 0.5})
    assert report.questions["regions"].where == "age > 40"
    quartiles, _ = report.questions["quartiles"]
    assert (quartiles.bounds, quartiles.missing, quartiles.q) == ((0.0, 50.0), 20.0, [0.25, 0.75])
    assert report.plan(epsilon=1.0, rows=1000).charges.max() == 1.0


REFUSED = {
    "not TOML [": "cannot be read",
    "": "cannot be read",
    "questions = 3": "cannot be read",
    'other = 1\n[questions.a]\nask = "mean"': "cannot be read",
    "[questions]\na = 3": "entry 'a'",
    "[questions.a]\ncolumn = 'age'": "entry 'a'.*what is asked",
    "[questions.a]\nask = 'ridges'": "entry 'a'.*what is asked",
    "[questions.a]\nask = 'mean'\ncolum = 'age'": "entry 'a'.*'colum'",
    "[questions.a]\nask = 'mean'\ncolumn = 3": "entry 'a'.*column",
    "[questions.a]\nask = 'mean'\nbounds = [0]": "entry 'a'.*bounds",
    "[questions.a]\nask = 'mean'\nspread = 'wide'": "entry 'a'.*'spread'",
    "[questions.a]\nask = 'quantile'\nmethod = 'guess'": "entry 'a'.*'method'",
    "[questions.a]\nask = 'mean'\nmissing = 'x'": "entry 'a'.*missing",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_wrong_is_refused_by_the_name_of_its_entry(text):
    with pytest.raises(InvalidParameter, match=REFUSED[text]) as refusal:
        parse_questions(text)
    assert refusal.value.parameter == "questions"


def test_files_that_are_not_there_or_too_long_are_refused(tmp_path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(InvalidParameter):
            sv.Report.load(path)
    (tmp_path / "long.toml").write_text("#" * 2**21)
    with pytest.raises(InvalidParameter):
        sv.Report.load(tmp_path / "long.toml")


VALUES = st.one_of(
    st.booleans().map(lambda x: str(x).lower()),
    st.integers(-9, 9).map(str),
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.sampled_from(['"age"', '"region"', '"mean"', "[]", '["region"]', "[0, 1]", "{}", '""']),
)
KEYS = st.sampled_from(
    ["ask", "column", "by", "where", "q", "bounds", "missing", "spread", "wanted", "share", "x"]
)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=6), st.sampled_from(["mean", "count", "sum"]))
@settings(deadline=None, max_examples=200)
def test_no_file_ends_outside_our_errors(lines, asked):
    entry = {"ask": f'"{asked}"'} | dict(lines)
    text = "[questions.a]\n" + "\n".join(f"{key} = {value}" for key, value in entry.items())
    with suppress(SottovoceError):
        read = parse_questions(text)
        report = sv.Report(read.questions, SCHEMA, wanted=read.wanted, shares=read.shares)
        report.validate()
        report.plan(epsilon=1.0, rows=100)
