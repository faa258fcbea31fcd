"""Filters: a small grammar, read by hand; whatever else is typed is refused in our own words."""

from __future__ import annotations

import operator
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.data.predicate import (
    COMPARISONS,
    MAX_DEPTH,
    MAX_LENGTH,
    Predicate,
    write_name,
    write_value,
)
from sottovoce.errors import InvalidParameter, SottovoceError
from sottovoce.schema import Column, Schema

LEVELS = ("north", "it's", 'say "so"', "new\nline", "ünï", "1")
SCHEMA = Schema(
    columns={
        "age": Column("number", 0, 120),
        "income": Column("number", missing=7.0),
        "region": Column("factor", levels=LEVELS),
        "sex": Column("factor", levels=("f", "m", "x"), other="x", missing="x"),
        "visited": Column("date", low="2024-01-01", high="2024-12-31"),
        "a note": Column("text"),
        "or": Column("number"),
    }
)
ROWS = pa.record_batch(
    {
        "age": [1.0, 40.0, None, 70.0, float("nan"), float("inf")],
        "income": [1.0, None, 7.0, 8.0, 9.0, float("nan")],
        "region": ["north", "it's", None, "elsewhere", "", "1"],
        "sex": ["f", "m", None, "q", "", "x"],
        "visited": ["2024-01-05", "2024-07-07T23:30:00-02:00", None, "soon", "", "2024-02-29"],
        "a note": ["x", "`y`", None, "", "z", "x"],
        "or": [1, 2, 3, None, 5, 6],
    }
)


def select(text: str) -> list[int]:
    return np.flatnonzero(Predicate.parse(text, SCHEMA).matches(ROWS)).tolist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("age > 40", [3, 5]),
        ("40 < age", [3, 5]),
        ("age >= 40 and age <= 70", [1, 3]),
        ("age == 40 or age == 1 and age == 2", [1]),
        ("(age == 40 or age == 1) and age < 2", [0]),
        ("not age > 40", [0, 1]),
        ("not (age > 40 or region == 'north')", [1]),
        ("not not age > 40", [3, 5]),
        ("age is missing", [2, 4]),
        ("age is not missing", [0, 1, 3, 5]),
        ("not age is missing", [0, 1, 3, 5]),
        ("age != 40", [0, 3, 5]),
        ("age in [1, 40.0, 4e1]", [0, 1]),
        ("age not in [1]", [1, 3, 5]),
        ("income == 7", [1, 2, 5]),
        ("income is missing", []),
        ("region == 'it''s'", [1]),
        ('region == "it\'s"', [1]),
        ("region != 'north'", [1, 3, 5]),
        ("region is missing", [2, 4]),
        ("region == 1", [5]),
        ("sex == 'x'", [2, 3, 4, 5]),
        ("sex is missing", []),
        ("visited < 2024-03-01", [0, 5]),
        ("visited == '2024-07-08'", [1]),
        ("visited is missing", [2, 3, 4]),
        ("`a note` in ['x', '`y`']", [0, 1, 5]),
        ("`a note` != 'x'", [1, 4]),
        ("`or` > 2 AND age IS NOT MISSING", [5]),
    ],
)
def test_rows_that_satisfy_a_filter(text, rows):
    assert select(text) == rows


@pytest.mark.parametrize(
    "text",
    [
        "",
        "age",
        "age >",
        "> 3",
        "age = 3",
        "age > 3 age",
        "age > 3 and",
        "age > 3)",
        "(age > 3",
        "age > > 3",
        "age in []",
        "age in 3",
        "age in [1,]",
        "age is 3",
        "age == income",
        "age > 'old'",
        "age > 2024-01-01",
        "age > 1e999",
        "age > --3",
        "age > 0x10",
        "age > 1_000",
        "1 < age < 3",
        "region < 'north'",
        "region == 'south'",
        "region == ''",
        "visited > 3",
        "visited > '2024-02-30'",
        "visited > 2023-02-29",
        "or > 3",
        "weight > 3",
        "`age > 3",
        "region == 'north",
        "__import__('os').system('true')",
        "age.real > 3",
        "lambda: 3",
        "age > 3; age < 4",
        "age > 3 -- and",
        "age\x00 > 3",
        "(" * 5000,
        "not " * 2000 + "age > 3",
        "age > 3 or " * 2000 + "age > 3",
        None,
        3,
        ["age > 3"],
    ],
)
def test_what_is_no_filter_is_refused(text):
    with pytest.raises(InvalidParameter) as refusal:
        Predicate.parse(text, SCHEMA)
    assert refusal.value.parameter == "where"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("age > weight", "a value where it has 'weight'"),
        ("'age' > 3", "the name of a column where it has '3'"),
        ("1 < age < 3", "goes on where it has '<', after a whole condition"),
        ("(age > 3", r"lacks \) at its end"),
        ("age > " + "x" * 100, "has '" + "x" * 40 + "'"),
    ],
)
def test_a_refusal_says_where_reading_stopped(text, told):
    with pytest.raises(InvalidParameter, match=told):
        Predicate.parse(text, SCHEMA)


def test_a_column_that_is_not_described_is_refused_with_the_entry_to_add():
    with pytest.raises(InvalidParameter, match=r"\[columns\.\"my weight\"\]"):
        Predicate.parse("`my weight` > 3", SCHEMA)


def test_deep_and_long_filters_are_read_up_to_the_limits():
    deep = "(" * MAX_DEPTH + "age > 3" + ")" * MAX_DEPTH
    assert select(deep) == [1, 3, 5]
    long = " or ".join(["age > 40 and age > 3"] * (MAX_LENGTH // 25))
    read = Predicate.parse(long, SCHEMA)
    assert read.matches(ROWS).tolist() == [False, False, False, True, False, True]
    assert Predicate.from_dict(read.to_dict()) == read


NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64)
CONDITIONS = st.one_of(
    st.tuples(st.just("age"), st.sampled_from(sorted(COMPARISONS)), NUMBERS),
    st.tuples(st.just("or"), st.sampled_from(sorted(COMPARISONS)), st.integers(-9, 9).map(float)),
    st.tuples(st.just("region"), st.sampled_from(["==", "!="]), st.sampled_from(LEVELS)),
    st.tuples(st.just("a note"), st.sampled_from(["==", "!="]), st.text(min_size=1, max_size=5)),
    st.tuples(st.just("visited"), st.sampled_from(sorted(COMPARISONS)), st.dates()),
)


def write(tree):
    if tree[0] == "not":
        return f"not ({write(tree[1])})"
    if tree[0] in ("all", "any"):
        word = {"all": " and ", "any": " or "}[tree[0]]
        return "(" + word.join(map(write, tree[1])) + ")"
    name, compare, value = tree
    return f"{write_name(name)} {compare} {write_value(value)}"


TREES = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["all", "any"]), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=8,
)

#: What each column holds, as Python sees it; None where it is missing.
ENTRIES = {
    "age": [1.0, 40.0, None, 70.0, None, float("inf")],
    "or": [1.0, 2.0, 3.0, None, 5.0, 6.0],
    "region": ["north", "it's", None, "elsewhere", None, "1"],
    "a note": ["x", "`y`", None, None, "z", "x"],
    "visited": [date(2024, 1, 5), date(2024, 7, 8), None, None, None, date(2024, 2, 29)],
}
PYTHON = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def decide(tree, row):
    """Three values as in SQL, one row at a time."""
    if tree[0] == "not":
        inside = decide(tree[1], row)
        return None if inside is None else not inside
    if tree[0] in ("all", "any"):
        parts = [decide(part, row) for part in tree[1]]
        decided = tree[0] == "any"
        if decided in parts:
            return decided
        return None if None in parts else not decided
    name, compare, value = tree
    entry = ENTRIES[name][row]
    return None if entry is None else PYTHON[compare](entry, value)


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_filters_are_those_of_sql_and_their_text_reads_back(tree):
    read = Predicate.parse(write(tree), SCHEMA)
    assert read.matches(ROWS).tolist() == [decide(tree, row) is True for row in range(6)]
    again = Predicate.parse(read.text, SCHEMA)
    assert again == read
    assert again.text == read.text
    assert Predicate.from_dict(read.to_dict()) == read


SIGNS = """age region visited `or` and or not in is missing ( ) [ ] , == != < >= 3 -1.5 2024-02-29
'north' "x" '' ` ' é"""


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(st.sampled_from(SIGNS.split()), max_size=14).map(" ".join),
    )
)
def test_any_text_is_read_or_refused_in_our_own_words(text):
    parameter = None
    try:
        read = Predicate.parse(text, SCHEMA)
    except SottovoceError as refusal:
        parameter = refusal.parameter
    else:
        parameter = "where"
        assert len(read.matches(ROWS)) == 6
        assert set(read.columns) <= set(SCHEMA.columns)
    assert parameter == "where"
