"""Laws every ledger obeys, in a file and on a server: accounts, keys, the chain, and what is
written about whom.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import sottovoce as sv
from ledgers.places import GRANT, MEAN, OWNERS, PEOPLE, PRICE, VALUES, allow, left, release, spend
from sottovoce import errors
from sottovoce.ledger import ACCOUNTS, Amounts
from sottovoce.ledgers import hash_chain, open_ledger, sqlite

#: The largest grant, in units, and one unit beside it: as doubles both are exact, as floats of ε
#: they are not.
LARGE = 10**15


def test_integers_are_exact(place):
    books = place.open()
    allow(books, LARGE)
    spend(books, "nearly all", LARGE - 1)
    assert left(books) == 1
    with pytest.raises(errors.BudgetExceeded):
        spend(books, "too much", 2)
    spend(books, "the rest", 1)
    assert left(books) == 0
    books.verify()


def test_everybody_is_charged_or_nobody(place):
    books = place.open()
    books.grant([Amounts(["ada", "ben"], np.array([10, 1]))])
    with pytest.raises(errors.BudgetExceeded):
        books.reserve("k", "", [Amounts(["ada", "ben"], np.array([5, 2]))])
    with pytest.raises(errors.UnknownPeople):
        books.reserve("k", "", [Amounts(["ada", "stranger"], np.array([5, 1]))])
    assert books.balances(["ada", "ben"]).tolist() == [10, 1]
    assert books.find("k") is None
    assert len(list(books.entries())) == 2


def test_accounts_are_never_added_to_one_another(place):
    books = place.open()
    for code, account in enumerate(ACCOUNTS):
        books.grant([Amounts(["ada"], np.array([10 + code]), account)])
    for code, account in enumerate(ACCOUNTS):
        books.reserve(account, "", [Amounts(["ada"], np.array([code]), account)])
        with pytest.raises(errors.BudgetExceeded):
            books.reserve(f"{account} too much", "", [Amounts(["ada"], np.array([11]), account)])
    assert [books.balances(["ada"], account)[0] for account in ACCOUNTS] == [10] * len(ACCOUNTS)
    with pytest.raises(errors.InvalidParameter):
        Amounts(["ada"], np.array([1]), "savings")
    books.verify()


def test_a_person_is_spelt_the_same_in_every_type(place):
    books = place.open()
    allow(books, 10, 17)
    for name in (17, "17", 17.0, np.int64(17), np.str_("17")):
        assert left(books, name) == 10
    for twice in ({17: 0.1, "17": 0.2}, {17.5: 0.1, "17.5": 0.1}):
        with pytest.raises(errors.DuplicatePeople):
            sv.Session(books).grant(twice)
        with pytest.raises(errors.DuplicatePeople):
            sv.Session(books).charge(twice, key="twice")
    assert left(books, 17) == 10


def test_names_of_any_letters(place):
    books = place.open()
    names = [" ", "ada ", "ada", "Ada", "عدا", "a\0b", "None", "nan", "x" * 10_000]
    books.grant([Amounts(names, np.arange(len(names)))])
    assert books.balances(names).tolist() == list(range(len(names)))
    books.verify()


@pytest.mark.parametrize(
    "nobody", [None, np.nan, np.float32("nan"), pd.NA, pd.NaT, "", "a\ud800", np.str_("")], ids=repr
)
def test_what_is_no_name_is_in_no_grant_and_in_no_charge(nobody, place):
    session = sv.Session(place.open())
    session.grant({"ada": 1.0})
    for names in ([nobody], ["ada", nobody], [nobody, 17]):
        prices = dict.fromkeys(names, 0.5)
        with pytest.raises(errors.UnknownPeople) as refused:
            session.grant(dict.fromkeys(names, 0.5))
        assert refused.value.__context__ is None
        with pytest.raises(errors.UnknownPeople):
            session.grant([0.5] * len(names), people=np.array(names, dtype=object))
        with pytest.raises(errors.UnknownPeople):
            session.charge(dict.fromkeys(names, 0.5), key="spent")
        with pytest.raises(errors.UnknownPeople):
            session.release(
                sv.Mean(bounds=(0, 1)), [0.0, 1.0], groups=["ada", nobody], key="asked", epsilon=0.5
            )
        with pytest.raises(errors.UnknownPeople):
            session.release(
                sv.Mean(bounds=(0, 1)),
                [0.0, 1.0],
                groups=["ada", "ada"],
                key="asked",
                epsilon=prices,
            )
    assert session.balance("ada") == 1.0
    assert len(list(session.ledger.entries())) == 2  # they were opened, and one grant was written


def test_a_cap_below_what_is_spent_freezes_and_a_higher_one_thaws(place):
    books = place.open()
    allow(books, 10)
    spend(books, "k", 6)
    allow(books, 4)
    assert left(books) == 0
    with pytest.raises(errors.BudgetExceeded):
        spend(books, "frozen")
    books.verify()
    allow(books, 7)
    assert left(books) == 1
    books.verify()


@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf, 1e7, "much", None])
def test_a_grant_that_is_none_changes_nothing(place, bad):
    session = place.granted()
    before = place.rows()
    for refused in (
        lambda: session.grant({"ada-lovelace": bad}),
        lambda: session.charge({"ada-lovelace": bad}, "k"),
    ):
        with pytest.raises(errors.InvalidBudget):
            refused()
    for units in (-1, LARGE + 1):
        with pytest.raises(errors.InvalidBudget):
            Amounts(["ada-lovelace"], np.array([units]))
    assert place.rows() == before


def test_an_unknown_person(place):
    books = place.granted().ledger
    for asked in (
        lambda: left(books, "zoe"),
        lambda: books.history("zoe"),
        lambda: spend(books, "k", 1, "zoe"),
    ):
        with pytest.raises(errors.UnknownPeople) as error:
            asked()
        assert "zoe" not in str(error.value)


def test_a_key_returns_the_same_bytes_in_another_process_and_never_changes(place):
    session = place.granted()
    first = release(session, "monthly").to_json()
    assert release(place.session(), "monthly").to_json() == first
    with pytest.raises(errors.KeyReused):
        session.release(MEAN, VALUES, groups=OWNERS, epsilon=PRICE / 2, key="monthly")
    with pytest.raises(errors.KeyReused):
        session.ledger.publish("monthly", "{}")
    with pytest.raises(errors.KeyReused):
        session.ledger.publish("never reserved", "{}")
    session.charge({"cleo": 0.1}, key="survey")
    with pytest.raises(errors.KeyReused):
        session.ledger.publish("survey", "{}")
    assert session.ledger.find("monthly").release == first
    session.verify()


@pytest.mark.parametrize("key", [5, None, b"k", "k\ud800", "k\0"], ids=repr)
def test_a_key_that_no_database_gives_back_as_it_was_is_refused(place, key):
    session = place.granted()
    before = place.rows()
    with pytest.raises(errors.InvalidParameter):
        release(session, key)
    with pytest.raises(errors.InvalidParameter):
        session.charge({"cleo": 0.1}, key=key)
    with pytest.raises(errors.InvalidParameter):
        session.ledger.unseal(key)
    assert place.rows() == before


def test_history_tells_what_became_of_everything(place):
    session = place.granted()
    release(session, "made")
    session.charge({"cleo": 0.25}, key="survey")
    session.ledger.reserve("crashed", "", [Amounts(["cleo"], np.array([7]))])
    lines = session.history("cleo")
    assert [(line.what, line.key, line.state) for line in lines] == [
        ("grant", "", "granted"),
        ("reserve", "made", "published"),
        ("charge", "survey", "outside"),
        ("reserve", "crashed", "reserved, never published"),
    ]
    assert lines[0].amount == GRANT
    spent = sum(round(line.amount * 1e9) for line in lines[1:])
    assert left(session.ledger, "cleo") == round(GRANT * 1e9) - spent


def test_a_proof_leads_from_somebodys_line_to_the_root(place):
    books = place.open()
    names = [f"p{i}" for i in range(hash_chain.TREE_WIDTH**2 + 5)]
    books.grant([Amounts(names, np.arange(len(names)))])
    (entry,) = [entry for entry in books.entries() if entry.what == "grant"]
    for name in (names[0], names[-1]):
        ((line, steps),) = books.proof(name, entry.number)
        leaf = hash_chain.hash_lines(np.frombuffer(line, dtype=hash_chain.PACKED))[0]
        assert hash_chain.climb_proof(leaf, steps) == entry.root
        other = np.frombuffer(line, dtype=hash_chain.PACKED).copy()
        other["amount"] += 1
        assert hash_chain.climb_proof(hash_chain.hash_lines(other)[0], steps) != entry.root


def test_a_certificate_is_confirmed_and_one_that_is_not_in_the_books_seals(place):
    session = place.granted()
    made = release(session, "k")
    session.verify(made)
    booked = made.certificate.ledger
    assert session.ledger.confirm(booked["entry"], booked["head"])
    for nonsense in (
        ("x", booked["head"]),
        (-1, booked["head"]),
        (10**30, booked["head"]),
        (1, "zz"),
        (1, None),
    ):
        with pytest.raises(errors.InvalidParameter):
            session.ledger.confirm(*nonsense)
    assert not session.ledger.sealed
    assert not session.ledger.confirm(booked["entry"], "0" * 64)
    assert not session.ledger.sealed
    session.ledger.seal(booked["entry"], "0" * 64)
    for sealed in (session, place.session()):
        with pytest.raises(errors.LedgerSealed):
            sealed.grant({"cleo": 1.0})
        with pytest.raises(errors.LedgerSealed):
            sealed.verify()
    assert release(session, "k") == made  # a copy of what was paid for is still free


def test_unseal_enters_its_reason_and_goes_on(place):
    session = place.granted()
    session.ledger.seal(1, "0" * 64)
    session.ledger.unseal("the certificate was forged")
    for again in (session, place.session()):
        release(again, "k")
        again.verify()
    assert [entry.request for entry in again.ledger.entries() if entry.what == "unseal"] == [
        "the certificate was forged"
    ]


def test_no_name_is_in_the_books(place):
    session = place.granted()
    release(session, "k")
    session.charge({"ada-lovelace": 0.25}, key="survey")
    files = [path.read_bytes() for path in place.keys.iterdir()] + [repr(place.rows()).encode()]
    assert len(files) >= 3
    for content in files:
        assert not any(name.encode() in content for name in PEOPLE)
    if not place.server:
        assert {path.stat().st_mode & 0o077 for path in place.keys.iterdir()} == {0}


def test_many_people_in_one_transaction(place):
    books = place.open()
    names = [f"p{i}" for i in range(3_000)]
    amounts = np.arange(3_000) * 10**10
    books.grant([Amounts(names, amounts), Amounts(names, amounts[::-1], ACCOUNTS[1])])
    books.reserve(
        "k", "", [Amounts(names, amounts // 3), Amounts(names, amounts[::-1] // 2, ACCOUNTS[1])]
    )
    assert np.array_equal(books.balances(names), amounts - amounts // 3)
    assert np.array_equal(books.balances(names, ACCOUNTS[1]), amounts[::-1] - amounts[::-1] // 2)
    books.verify()


@pytest.mark.parametrize("many", [0, 10**6], ids=["looked for", "all read"])
def test_balances_are_the_same_whether_accounts_are_looked_for_or_all_read(
    place, monkeypatch, many
):
    """One after the other and in any order; of lowered grants nothing is left, and a stranger is
    told of.
    """
    monkeypatch.setattr("sottovoce.ledgers.sql_ledger.SCAN_FACTOR", many)
    monkeypatch.setattr("sottovoce.ledgers.sql_reading.PART_SIZE", 64)
    books = place.open()
    names = list(range(500))
    amounts = np.arange(500) * 10**12
    books.grant([Amounts(names, amounts), Amounts(names[:100], amounts[:100] + 7, ACCOUNTS[-1])])
    books.reserve("k", "", [Amounts(names, amounts // 2)])
    books.grant([Amounts([3], np.array([1]))])
    expected = np.where(np.arange(500) == 3, 0, amounts - amounts // 2)
    order = np.random.default_rng(0).permutation(500)
    assert np.array_equal(books.balances(order.tolist()), expected[order])
    assert np.array_equal(books.balances(["17", 5, 5, 499.0]), expected[[17, 5, 5, 499]])
    assert np.array_equal(books.balances(names[:100], ACCOUNTS[-1]), amounts[:100] + 7)
    for people, account in (
        ([*names, 500], ACCOUNTS[0]),
        (names, ACCOUNTS[-1]),
        (names[:2], ACCOUNTS[3]),
    ):
        with pytest.raises(errors.UnknownPeople):
            books.balances(people, account)


def test_people_are_told_apart_by_both_halves_of_their_digests():
    digests = [bytes(8) + bytes([0] * 7 + [low]) for low in (1, 2, 5)] + [b"\xff" * 16]
    amounts = np.arange(4)
    assert hash_chain.look_up_amounts(
        b"".join(reversed(digests)), b"".join(digests), amounts
    ).tolist() == [3, 2, 1, 0]
    for stranger in (
        bytes(16),
        bytes(15) + b"\3",
        bytes(15) + b"\6",
        b"\xff" * 15 + b"\0",
        bytes(7) + b"\1" + bytes(8),
    ):
        assert hash_chain.look_up_amounts(digests[1] + stranger, b"".join(digests), amounts) is None
    assert hash_chain.look_up_amounts(digests[0], b"", amounts[:0]) is None


def test_nobody_at_all(place):
    books = place.open()
    books.grant([])
    assert books.reserve("k", "", []).fresh
    assert books.balances([]).tolist() == []
    books.verify()


def test_books_in_memory_end_with_the_process():
    books = open_ledger(None)
    allow(books, 3)
    spend(books, "k")
    books.verify()
    with pytest.raises(errors.UnknownPeople):
        left(open_ledger(None))


def test_what_was_asked_cannot_be_guessed_from_the_books_alone():
    """The same request under another key has another digest: nobody without the key can try names
    against it.
    """
    found = []
    for _ in range(2):
        session = sv.Session()
        session.grant({"ada": 1.0, "ben": 1.0})
        session.release(
            sv.Mean(bounds=(0, 1)), [0.2, 0.9], groups=["ada", "ben"], epsilon=0.1, key="one"
        )
        found.append(
            [entry.request for entry in session.ledger.entries() if entry.what == "reserve"]
        )
    assert found[0] != found[1]


def test_statements_number_no_parameter():
    """Python 3.12 warns of numbered parameters that come in a sequence, and 3.14 refuses them."""
    for statement in (sqlite.STAGE, sqlite.READ_BALANCES):
        assert re.search(r"\?\d", statement) is None
