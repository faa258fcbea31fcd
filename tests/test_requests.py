"""One key, one request: the names of columns belong to it, and books of earlier versions keep
recognising theirs.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sottovoce as sv
from sottovoce import booking, errors
from sottovoce.arrays import list_column_names
from sottovoce.booking import Request
from sottovoce.data.source import DataSource
from sottovoce.schema import Column

#: The table from which tests/ledgers/earlier_books.sql was made, by the version before requests had
#: names of columns.
TABLE = pd.DataFrame(
    {
        "id": ["p0", "p1", "p2", "p3", "p4"],
        "age": [31.0, 45.5, 62.0, 24.0, 70.5],
        "bmi": [22.0, 30.5, 27.0, 19.5, 33.0],
        "height": [170.0, 181.0, 165.5, 190.0, 158.0],
        "cost": [12.0, 40.0, 33.5, 4.0, 80.0],
        "days": [1.0, 3.0, 2.0, 0.0, 9.0],
    }
)
PEOPLE = TABLE["id"].tolist()
MEAN = sv.Mean(bounds=(0, 100))
RIDGE = sv.Ridge(
    bounds=sv.Bounds(features=(0, 200), label=(0, 100)), method="output-tight", alpha=1.0
)
EARLIER = Path(__file__).parent / "ledgers" / "earlier_books.sql"


def session() -> sv.Session:
    opened = sv.Session()
    opened.grant(dict.fromkeys(PEOPLE, 20.0))
    return opened


def left(books: sv.Session) -> list[float]:
    return [books.balance(person) for person in PEOPLE]


#: A request, and others that are not the same one: question, features or column, label.
ANOTHER = {
    "a mean of another pandas column": ((MEAN, TABLE["cost"]), (MEAN, TABLE["days"])),
    "a mean of another polars column": (
        (MEAN, pl.Series("cost", TABLE["cost"])),
        (MEAN, pl.Series("days", TABLE["days"])),
    ),
    "a mean of another frame of one column": ((MEAN, TABLE[["cost"]]), (MEAN, TABLE[["days"]])),
    "a mean of a column with a number for its name": (
        (MEAN, pd.Series(TABLE["cost"], name=0)),
        (MEAN, pd.Series(TABLE["cost"], name=1)),
    ),
    "a ridge about other features": (
        (RIDGE, TABLE[["age", "bmi"]], TABLE["cost"]),
        (RIDGE, TABLE[["age", "height"]], TABLE["cost"]),
    ),
    "a ridge about the same features in another order": (
        (RIDGE, TABLE[["age", "bmi"]], TABLE["cost"]),
        (RIDGE, TABLE[["bmi", "age"]], TABLE["cost"]),
    ),
    "a ridge about another label": (
        (RIDGE, TABLE[["age", "bmi"]], TABLE["cost"]),
        (RIDGE, TABLE[["age", "bmi"]], TABLE["days"]),
    ),
    "a ridge about more arrays": (
        (RIDGE, TABLE[["age", "bmi"]].to_numpy(), TABLE["cost"].to_numpy()),
        (RIDGE, TABLE[["age", "bmi", "height"]].to_numpy(), TABLE["cost"].to_numpy()),
    ),
    "a ridge about more lists": (
        (RIDGE, TABLE[["age", "bmi"]].to_numpy().tolist(), TABLE["cost"].tolist()),
        (RIDGE, TABLE[["age"]].to_numpy().tolist(), TABLE["cost"].tolist()),
    ),
    "an Arrow table with other features": (
        (RIDGE, pa.table(TABLE[["age", "bmi"]]), TABLE["cost"]),
        (RIDGE, pa.table(TABLE[["age", "height"]]), TABLE["cost"]),
    ),
    "a mean by another name": ((MEAN, TABLE, "cost"), (MEAN, TABLE, "days")),
    "a ridge by other names": (
        (RIDGE, TABLE[["id", "age", "bmi", "cost"]], "cost"),
        (RIDGE, TABLE[["id", "age", "height", "cost"]], "cost"),
    ),
}


def ask(books: sv.Session, request: tuple, key: str) -> sv.Release:
    by_name = isinstance(request[-1], str)
    return books.release(*request, groups="id" if by_name else PEOPLE, epsilon=0.5, key=key)


@pytest.mark.parametrize("case", ANOTHER)
def test_a_key_never_returns_the_answer_to_another_question(case):
    books = session()
    (first, other) = ANOTHER[case]
    made = ask(books, first, "one")
    before = left(books)
    assert ask(books, first, "one").to_json() == made.to_json()
    with pytest.raises(errors.KeyReused):
        ask(books, other, "one")
    assert left(books) == before


def test_a_schema_says_which_columns_are_asked_about():
    """Whatever else is in the frame, and in whichever order, it is the same request; another label
    is not.
    """
    columns = {name: Column("number", 0, 200) for name in ("age", "bmi", "cost")}
    ridge = sv.Ridge(bounds=sv.Schema(columns=columns, label="cost"), method="output-tight")
    books = session()
    made = ask(books, (ridge, TABLE[["age", "bmi"]], TABLE["cost"]), "one")
    assert (
        ask(books, (ridge, TABLE[["height", "bmi", "age"]], TABLE["cost"]), "one").to_json()
        == made.to_json()
    )
    with pytest.raises(errors.KeyReused):
        ask(books, (ridge, TABLE[["age", "bmi"]], TABLE["days"]), "one")


NAMED = sv.Bounds(features={"age": (0, 200), "bmi": (0, 200)}, label=(0, 100))
BY_NAME = sv.Ridge(bounds=NAMED, method="output-tight", alpha=1.0)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.Table.from_pandas])
def test_bounds_by_name_say_which_columns_are_asked_about(frame):
    """As a schema does; an array has no names, and another label is another request."""
    books = session()
    made = ask(books, (BY_NAME, frame(TABLE[["age", "bmi"]]), TABLE["cost"]), "one")
    for columns in (["bmi", "age"], ["age", "bmi", "height"], ["days", "bmi", "cost", "age"]):
        again = ask(books, (BY_NAME, frame(TABLE[columns]), TABLE["cost"]), "one")
        assert again.to_json() == made.to_json()
    for other in (
        (BY_NAME, frame(TABLE[["bmi", "age"]]), TABLE["days"]),
        (BY_NAME, TABLE[["age", "bmi"]].to_numpy(), TABLE["cost"]),
    ):
        with pytest.raises(errors.KeyReused):
            ask(books, other, "one")


def test_bounds_by_name_that_a_table_does_not_have_leave_its_columns_in_the_request():
    """Names like x0 stand for places; the order of columns counts then."""
    places = sv.Bounds(features={"x0": (0, 200), "x1": (0, 200)}, label=(0, 100))
    ridge = sv.Ridge(bounds=places, method="output-tight", alpha=1.0)
    books = session()
    ask(books, (ridge, TABLE[["age", "bmi"]], TABLE["cost"]), "one")
    with pytest.raises(errors.KeyReused):
        ask(books, (ridge, TABLE[["bmi", "age"]], TABLE["cost"]), "one")


def test_bounds_by_name_ask_for_the_same_in_order_as_before():
    """As books had it before other orders were the same request."""
    source = DataSource.of_columns(BY_NAME, TABLE[["age", "bmi"]], TABLE["cost"], 1.0, PEOPLE)
    columns, _ = booking.name_columns(BY_NAME, source)
    assert json.loads(json.dumps(columns)) == [["age", "bmi"], ["cost"]]


def test_the_same_prices_are_the_same_request_however_they_are_written():
    books = session()
    made = books.release(MEAN, TABLE["cost"], groups=PEOPLE, epsilon=0.5, key="one")
    for price in (
        np.float64(0.5),
        dict.fromkeys(PEOPLE, 0.5),
        dict.fromkeys([*reversed(PEOPLE), "nobody"], 0.5),
    ):
        assert books.release(MEAN, TABLE["cost"], groups=PEOPLE, epsilon=price, key="one") == made
    with pytest.raises(errors.KeyReused):
        books.release(MEAN, TABLE["cost"], groups=PEOPLE, epsilon=0.4, key="one")


def test_what_the_values_are_plays_no_part():
    books = session()
    made = ask(books, (MEAN, TABLE["cost"]), "one")
    assert ask(books, (MEAN, TABLE["cost"] * 0 + 7), "one") == made


def test_parts_of_a_request_do_not_run_together():
    people = np.array(["a"])
    one = np.array([1, 2])
    two = np.array([3])
    whole = [
        Request(MEAN, [], people, facts).fingerprint()
        for facts in ((one, two), (np.array([1]), np.array([2, 3])))
    ]
    assert whole[0] != whole[1]


LAST = "SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1"


@pytest.fixture
def earlier(tmp_path) -> sv.Session:
    """Books as the version before wrote them."""
    text = EARLIER.read_text(encoding="utf-8")
    database = sqlite3.connect(tmp_path / "books.db")
    database.executescript(text)
    database.close()
    (tmp_path / "books.db.key").write_bytes(bytes.fromhex(text.split()[2]))
    number, digest = sqlite3.connect(tmp_path / "books.db").execute(LAST).fetchone()
    (tmp_path / "books.db.heads").write_text(f"\nseen {number} {digest.hex()}\n")
    return sv.Session(ledger=str(tmp_path / "books.db"))


#: What was asked then, and what it could be mistaken for now.
ASKED = {
    "mean of a column": (MEAN, TABLE["cost"]),
    "mean of a list": (MEAN, TABLE["cost"].tolist()),
    "ridge of a frame": (RIDGE, TABLE[["age", "bmi"]], TABLE["cost"]),
    "ridge of arrays": (RIDGE, TABLE[["age", "bmi"]].to_numpy(), TABLE["cost"].to_numpy()),
    "mean by name": (MEAN, TABLE, "cost"),
    "ridge by name": (RIDGE, TABLE[["id", "age", "bmi", "cost"]], "cost"),
}


def ask_as_then(books: sv.Session, request: tuple, key: str) -> sv.Release:
    by_name = isinstance(request[-1], str)
    if key.startswith("ridge"):
        price = 1.0
    else:
        price = 0.5
    return books.release(
        *request,
        groups="id" if by_name else PEOPLE,
        epsilon=dict.fromkeys(PEOPLE, price) if key == "mean of a list" else price,
        key=key,
    )


@pytest.mark.parametrize("key", ASKED)
def test_a_release_of_earlier_books_comes_back_when_the_same_is_asked(earlier, key):
    stored = earlier.ledger.find(key)
    before = left(earlier)
    assert ":" not in stored.request
    assert ask_as_then(earlier, ASKED[key], key).to_json() == stored.release
    assert left(earlier) == before
    earlier.verify()


def test_a_release_of_earlier_books_that_was_changed_is_not_in_them(earlier):
    """Nobody signed it, and its certificate can be copied into any other: what is stored decides,
    upgraded or not.
    """
    made = sv.Release.from_json(earlier.ledger.find("mean of a column").release)
    for upgrade in (int, earlier.ledger.upgrade):
        upgrade()
        earlier.verify(made)
        with pytest.raises(errors.InvalidRelease, match="not what was published"):
            earlier.verify(replace(made, value=made.value + 1))


@pytest.mark.parametrize(
    ("key", "other"),
    [
        ("mean of a column", (sv.Mean(bounds=(0, 101)), TABLE["cost"])),
        ("ridge of a frame", (RIDGE, TABLE[["age", "height"]], TABLE["cost"])),
        ("ridge of a frame", (RIDGE, TABLE[["bmi", "age"]], TABLE["cost"])),
        ("ridge of a frame", (RIDGE, TABLE[["age", "bmi"]].to_numpy(), TABLE["cost"])),
        (
            "ridge of arrays",
            (RIDGE, TABLE[["age", "bmi", "height"]].to_numpy(), TABLE["cost"].to_numpy()),
        ),
        ("mean by name", (MEAN, TABLE, "days")),
        ("ridge by name", (RIDGE, TABLE[["id", "age", "height", "cost"]], "cost")),
    ],
)
def test_what_an_earlier_release_contradicts_is_another_request(earlier, key, other):
    before = left(earlier)
    with pytest.raises(errors.KeyReused):
        ask_as_then(earlier, other, key)
    assert left(earlier) == before


def test_earlier_charges_are_recognised_but_not_where_they_booked_another_amount(earlier):
    """In those books 1e-6 of δ was booked as 1e-12: whoever charges it again is told, and nothing
    happens.
    """
    earlier.charge({"p1": 0.25, "p0": 0.125}, key="survey")
    assert earlier.balance("p1", "delta, replace") == pytest.approx(1e-5 - 1e-12, rel=1e-12)
    with pytest.raises(errors.KeyReused):
        earlier.charge({"p1": 1e-6, "p0": 1e-6}, key="survey at delta", account="delta, replace")
    earlier.ledger.upgrade()
    earlier.charge(
        {"p1": 1e-6, "p0": 1e-6}, key="survey at delta, put right", account="delta, replace"
    )
    assert earlier.balance("p1", "delta, replace") == pytest.approx(9e-6 - 1e-12, rel=1e-12)
    earlier.verify()


class Unmeasured:
    """Something whose length must not be asked for: whatever it raises would not be an error of
    ours.
    """

    def __len__(self) -> int:
        raise RuntimeError("asked for its length")


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (pa.table({"a": [1], "b": [2]}), ["a", "b"]),
        (TABLE[["age", "bmi"]], ["age", "bmi"]),
        (pl.Series("", [1.0]), 1),
        (pl.Series("a", [1.0]), ["a"]),
        (np.zeros((2, 3)), 3),
        (np.zeros(3), 1),
        ([], 1),
        ([1.0, 2.0], 1),
        ([[1.0, 2.0], [3.0, 4.0]], 2),
        ((np.zeros(4), np.zeros(4)), 4),
        ([np.float64(1.0)], 1),
        ([np.array(1.0)], 1),
        (["word"], 1),
        ([Unmeasured()], 1),
        (Unmeasured(), 1),
    ],
)
def test_columns_are_named_or_counted_whatever_holds_them(data, names):
    assert list_column_names(data) == names


def test_counting_columns_takes_nothing_from_a_generator():
    rows = ([float(i), 0.0] for i in range(3))
    assert list_column_names(rows) == 1
    assert len(list(rows)) == 3


#: As books that are older than named bounds have them.
EARLIER_FINGERPRINTS = {
    "756db65119a9b20f32d8aaba38b24862c18014023439c030f52caf03a40894de": sv.Ridge(
        bounds=sv.Bounds(features=(np.zeros(2), np.ones(2)), label=(0, 1))
    ),
    "7712cbb75883cc88f5830a7eb4339527f12e6eb5d5f39c7dfec73d6df7e1628d": sv.LogisticRegression(
        bounds=sv.Bounds(features=(0, 1))
    ),
    "46cc4c4caca675c84ef9dcfddea9e312c1cadc353233b67e233cf60593f2e8ed": sv.Mean(
        bounds=sv.Bounds(label=(0, 1))
    ),
}


@pytest.mark.parametrize("fingerprint", EARLIER_FINGERPRINTS)
def test_bounds_without_names_are_remembered_as_they_were(fingerprint):
    asked = booking.encode_question(EARLIER_FINGERPRINTS[fingerprint])
    assert booking.compute_earlier_fingerprint(asked, np.arange(3)) == fingerprint


def test_bounds_with_names_are_another_request():
    named = sv.Ridge(bounds=sv.Bounds(features={"a": (0, 1), "b": (0, 1)}, label=(0, 1)))
    asked = booking.encode_question(named)
    assert booking.compute_earlier_fingerprint(asked, np.arange(3)) not in EARLIER_FINGERPRINTS
