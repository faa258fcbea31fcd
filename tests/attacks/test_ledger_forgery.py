"""Whoever can write to the database, and has not the key: nothing they add, change or exchange is
taken for the books.

What is done by way of the accounts, which are not signed one by one, is found out by replaying
every entry.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import pytest

import sottovoce as sv
from ledgers.places import MEAN, OWNERS, PEOPLE, VALUES, Place, allow, release, spend
from sottovoce import errors
from sottovoce.ledger import Amounts, Entry, Sale
from sottovoce.ledgers import hash_chain, sql_reading
from sottovoce.ledgers.keyfile import check_release
from sottovoce.ledgers.sql_ledger import SqlLedger

INSERT = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def append(
    place: Place,
    books: SqlLedger,
    what: str,
    lines=None,
    key: str = "",
    root: bytes = hash_chain.NO_DIGEST,
) -> None:
    """Adds an entry that follows from the last, with right digests, as anybody can who can write to
    the database.
    """
    entries = list(books.entries())
    at = datetime.now(UTC).isoformat(timespec="seconds")
    if lines is not None:
        root = hash_chain.compute_root(hash_chain.hash_lines(lines))
    bare = Entry(len(entries), what, key, "", at, 0 if lines is None else len(lines), root, b"")
    made = replace(bare, digest=hash_chain.digest_entry(bare, entries[-1].digest))
    place.ask(INSERT, *made.__dict__.values())
    for line in [] if lines is None else lines:
        person = line["person"].tobytes()
        account = int(line["account"])
        amount = int(line["amount"])
        place.ask("INSERT INTO lines VALUES (?, ?, ?, ?)", made.number, person, account, amount)


def copy_of_a_grant(books: SqlLedger, amount: int):
    lines = books.lines(1).copy()
    lines["amount"] = amount
    return lines


def test_a_charge_beyond_the_grant_is_found_though_the_totals_agree(place):
    """Granted 1.0, charged 80: the account is raised, charged, and put back to what the last grant
    explains.
    """
    books = place.open()
    allow(books, 10**9)
    place.ask("UPDATE accounts SET granted = ?, cap = ?", 10**11, 10**11)
    spend(books, "eighty", 80 * 10**9)
    place.ask("UPDATE accounts SET granted = ?", 10**9)
    place.ask("UPDATE accounts SET cap = spent")
    with pytest.raises(errors.LedgerBroken, match="more than they allowed at that moment"):
        place.open().verify()


@pytest.mark.parametrize(("granted", "whole"), [((10, 4, 10), True), ((10, 4, 6), False)])
def test_a_replay_looks_at_the_grant_of_that_moment(granted, whole):
    """6 are spent under a grant of 10; then it is 4; then 6 or 10, and 2 are spent."""
    digest = np.frombuffer(bytes(16), dtype=np.uint8)

    def line(amount):
        return hash_chain.pack_lines(digest.tobytes(), 0, [amount])

    from sottovoce.ledgers.sql_reading import replay

    first, second, third = granted
    told = [
        ("grant", line(first)),
        ("reserve", line(6)),
        ("grant", line(second)),
        ("grant", line(third)),
    ]
    assert (replay([*told, ("reserve", line(2))]) is not None) == whole
    outside = replay([*told, ("charge", line(7))])
    assert (outside.granted.tolist(), outside.cap.tolist(), outside.spent.tolist()) == (
        [third],
        [13],
        [13],
    )


ON_SERVER = {
    "a trigger": [
        "CREATE FUNCTION free() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.spent := "
        "OLD.spent; RETURN NEW; END'",
        "CREATE TRIGGER free BEFORE UPDATE ON accounts FOR EACH ROW WHEN (false) EXECUTE "
        "FUNCTION free()",
    ],
    "a condition gone": ["ALTER TABLE accounts DROP CONSTRAINT accounts_check1"],
    "a condition changed": [
        "ALTER TABLE accounts DROP CONSTRAINT accounts_check1",
        "ALTER TABLE accounts ADD CONSTRAINT accounts_check1 CHECK (0 <= spent AND spent <= cap "
        "+ 9)",
    ],
    "a condition not checked": [
        "ALTER TABLE accounts DROP CONSTRAINT accounts_check1",
        "ALTER TABLE accounts ADD CONSTRAINT accounts_check1 CHECK (0 <= spent AND spent <= cap) "
        "NOT VALID",
    ],
    "an index gone": ["DROP INDEX one_reservation"],
    "an index of less": [
        "DROP INDEX one_reservation",
        "CREATE UNIQUE INDEX one_reservation ON entries (key) WHERE what IN ('reserve', "
        "'charge') AND number > 9",
    ],
    "a key gone": ["ALTER TABLE releases DROP CONSTRAINT releases_pkey"],
    "a rule": ["CREATE RULE less AS ON INSERT TO lines WHERE NEW.number > 99 DO INSTEAD NOTHING"],
    "rows hidden": [
        "ALTER TABLE lines ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE lines FORCE ROW LEVEL SECURITY",
    ],
    "a column more": ["ALTER TABLE accounts ADD COLUMN note TEXT"],
    "a value where none is given": ["ALTER TABLE accounts ALTER COLUMN spent SET DEFAULT 0"],
    "other letters are equal": ['ALTER TABLE entries ALTER COLUMN key TYPE TEXT COLLATE "C"'],
    "columns in another order": [
        "ALTER TABLE releases RENAME TO kept",
        "ALTER TABLE kept RENAME CONSTRAINT releases_pkey TO kept_pkey",
        "CREATE TABLE releases (text TEXT NOT NULL, number BIGINT NOT NULL PRIMARY KEY)",
        "INSERT INTO releases SELECT text, number FROM kept",
        "DROP TABLE kept",
    ],
    "a narrower column": ["ALTER TABLE lines ALTER COLUMN account TYPE INTEGER"],
}


@pytest.mark.parametrize("statements", ON_SERVER.values(), ids=ON_SERVER)
def test_changed_tables_on_a_server_are_noticed(on_server, statements):
    session = on_server.granted()
    release(session, "k")
    session.verify()
    on_server.ask("; ".join(statements))
    with pytest.raises(errors.LedgerBroken):
        on_server.open().verify()


def test_an_appended_grant_is_refused_when_books_are_opened_and_before_the_next_write(place):
    session = place.granted(0.01)
    books = session.ledger
    append(place, books, "grant", copy_of_a_grant(books, 10**12))
    place.ask("UPDATE accounts SET granted = ?, cap = ?", 10**12, 10**12)
    for attempt in (
        place.open,
        lambda: session.release(MEAN, VALUES, groups=OWNERS, epsilon=5.0, key="on a forged grant"),
        lambda: session.grant({"cleo": 1.0}),
    ):
        with pytest.raises(errors.LedgerBroken):
            attempt()


def test_unsealing_signs_nothing_that_somebody_else_appended(place):
    session = place.granted()
    books = place.open()
    books.seal(9, "0" * 64)
    append(place, session.ledger, "grant", copy_of_a_grant(session.ledger, 10**12))
    with pytest.raises(errors.LedgerBroken):
        books.unseal("a reason")
    assert books.sealed


def test_no_signature_of_another_entry_or_of_another_ledger_will_do(place, tmp_path):
    session = place.granted()
    other = sv.Session(str(tmp_path / "other.db"))
    other.grant({"ada": 1.0})
    other.grant({"ada": 2.0})
    append(place, session.ledger, "grant", copy_of_a_grant(session.ledger, 10**12))
    number = len(list(session.ledger.entries())) - 1
    for signature in (
        session.ledger.signature(1),
        other.ledger.signature(number),
        "00" * 64,
        "ff" * 63,
    ):
        place.ask("DELETE FROM signatures WHERE number = ?", number)
        place.ask("INSERT INTO signatures VALUES (?, ?)", number, bytes.fromhex(signature))
        with pytest.raises(errors.LedgerBroken):
            place.open()


@pytest.mark.parametrize(
    "how", ["the bytes", "bytes and root", "bytes, root and digest", "taken away", "exchanged"]
)
def test_a_stored_release_that_was_edited_is_never_given_out(place, how):
    session = place.granted()
    made = release(session, "k")
    release(session, "other")
    value = made.to_json().replace('"value": ', '"value": 1', 1)
    number = made.certificate.ledger["entry"]
    if how == "taken away":
        place.ask("DELETE FROM releases WHERE number = ?", number)
    elif how == "exchanged":
        (text,) = place.ask("SELECT text FROM releases WHERE number <> ?", number)[0]
        place.ask("UPDATE releases SET text = ? WHERE number = ?", text, number)
    else:
        place.ask("UPDATE releases SET text = ? WHERE number = ?", value, number)
        if how != "the bytes":
            root = hash_chain.digest_text(value)
            place.ask(
                "UPDATE entries SET root = ? WHERE key = ? AND what = ?", root, "k", "publish"
            )
        if how == "bytes, root and digest":
            entries = list(session.ledger.entries())
            (published,) = [
                entry for entry in entries if entry.what == "publish" and entry.key == "k"
            ]
            digest = hash_chain.digest_entry(published, entries[published.number - 1].digest)
            place.ask("UPDATE entries SET digest = ? WHERE number = ?", digest, published.number)
    with pytest.raises(errors.LedgerBroken):
        release(session, "k")
    with pytest.raises(errors.LedgerBroken):
        place.open().find("k")


def test_two_keys_exchanged_in_the_entries_give_nothing_out(place):
    session = place.granted()
    release(session, "one")
    release(session, "two")
    for old, new in (("one", "three"), ("two", "one"), ("three", "two")):
        place.ask("UPDATE entries SET key = ? WHERE key = ?", new, old)
    for key in ("one", "two"):
        with pytest.raises(errors.LedgerBroken):
            session.ledger.find(key)


def tampered(made: sv.Release, **changes) -> sv.Release:
    certificate = replace(made.certificate, ledger={**made.certificate.ledger, **changes})
    return replace(made, certificate=certificate)


def test_a_forged_certificate_is_refused_and_seals_nothing(place):
    session = place.granted()
    made = release(session, "k")
    unsigned = {
        name: value
        for name, value in made.certificate.ledger.items()
        if name not in ("key", "signature")
    }
    stranger = sv.Session()
    stranger.grant(dict.fromkeys(PEOPLE, 1.0))
    foreign = release(stranger, "k").certificate.ledger
    for forged in (
        tampered(made, head="0" * 64),
        tampered(made, entry=99),
        tampered(made, signature="00" * 64),
        tampered(made, signature="none"),
        tampered(made, head="0" * 64, key=foreign["key"], signature=foreign["signature"]),
        replace(made, value=3.25),
        replace(made, certificate=replace(made.certificate, ledger={**unsigned, "head": "0" * 64})),
        replace(made, certificate=replace(made.certificate, ledger=unsigned)),
    ):
        with pytest.raises(errors.InvalidRelease):
            session.verify(forged)
    session.verify(made)
    release(place.session(), "the books go on")


def test_anybody_can_check_a_release_with_the_public_key_alone(place):
    session = place.granted()
    made = release(session, "k").to_json()
    key = session.ledger.public_key
    assert check_release(made, key).hex() == key
    content = json.loads(made)
    assert (
        check_release(json.dumps(dict(reversed(content.items()))), key).hex() == key
    )  # in whatever order and spelling
    with pytest.raises(errors.InvalidRelease):
        check_release(made, sv.Session().ledger.public_key)
    for changed in (
        {**content, "value": 1.0},
        {**content, "question": "median"},
        {**content, "more": 1},
    ):
        with pytest.raises(errors.InvalidRelease):
            check_release(json.dumps(changed), key)
    for other in (
        "",
        "[]",
        "{}",
        "null",
        '{"certificate": {"ledger": {"key": 1, "signature": 2}}}',
        "[" * 100_000,
    ):
        with pytest.raises(errors.InvalidRelease):
            check_release(other, key)
    with pytest.raises(errors.InvalidParameter):
        check_release(made, "a key")


# Books of the version before, which did not sign.

A_SALE = Sale(Amounts(["cleo"], np.array([5])), np.array([2]), Fraction(1, 100), "EUR")


def unsigned_books(place: Place) -> sv.Session:
    """Books as an earlier version left them: the same entries, without a key in the first, and
    without signatures.
    """
    session = place.granted()
    release(session, "then")
    session.charge({"cleo": 0.25}, key="survey")
    release(session, "later")
    before = hash_chain.NO_DIGEST
    entries = list(session.ledger.entries())
    for entry in entries:
        if entry.what == "open":
            bare = replace(entry, root=hash_chain.NO_DIGEST)
        else:
            bare = entry
        before = hash_chain.digest_entry(bare, before)
        place.ask(
            "UPDATE entries SET root = ?, digest = ? WHERE number = ?",
            bare.root,
            before,
            entry.number,
        )
    session.ledger._store._close()
    if place.server:
        place.ask(
            "DROP INDEX one_sale; DROP TABLE signatures; DELETE FROM version WHERE number > 1"
        )
    else:
        connection = sqlite3.connect(place.file, isolation_level=None)
        connection.execute("DROP INDEX one_sale")
        connection.execute("DROP TABLE signatures")
        connection.execute("PRAGMA user_version = 1")
        connection.close()
    (heads,) = place.keys.glob("*.heads")
    heads.write_text(f"\nseen {entries[-1].number} {before.hex()}\n")
    return place.session()


def test_books_of_the_version_before_are_read_but_not_written_until_they_are_upgraded(place):
    session = unsigned_books(place)
    before = place.rows()
    session.verify()
    assert session.ledger.signed_from is None
    assert session.balance("cleo") > 0
    assert release(session, "then").to_json() == session.ledger.find("then").release
    session.charge({"cleo": 0.25}, key="survey")
    for write in (
        lambda: release(session, "now"),
        lambda: session.grant({"cleo": 1.0}),
        lambda: session.charge({"cleo": 0.1}, key="another"),
        lambda: session.ledger.sell(A_SALE, key="sold"),
        lambda: session.ledger.publish("crashed", "{}"),
        lambda: session.ledger.unseal("no reason"),
    ):
        with pytest.raises(errors.LedgerUnsigned):
            write()
    assert place.rows() == before
    first = session.ledger.upgrade()
    assert first == len(before["entries"])
    for again in (session, place.session()):
        assert again.ledger.signed_from == first
        assert release(again, "then").to_json() == again.ledger.find("then").release
        release(again, "now")
        again.verify()
    with pytest.raises(errors.InvalidParameter):
        session.ledger.upgrade()


def test_what_was_upgraded_cannot_be_made_unsigned_again(place):
    session = unsigned_books(place)
    first = session.ledger.upgrade()
    for table in ("entries", "signatures"):
        place.ask(f"DELETE FROM {table} WHERE number >= ?", first)
    assert place.open().sealed
    with pytest.raises(errors.LedgerSealed):
        session.grant({"cleo": 1.0})


def test_books_that_do_not_add_up_are_not_upgraded(place):
    session = unsigned_books(place)
    place.ask("UPDATE accounts SET spent = spent - 1")
    before = place.rows()
    with pytest.raises(errors.LedgerBroken):
        session.ledger.upgrade()
    assert place.rows() == before


def test_a_release_from_before_the_upgrade_that_was_edited_is_not_given_out(place):
    session = unsigned_books(place)
    session.ledger.upgrade()
    entries = list(session.ledger.entries())
    (published,) = [entry for entry in entries if entry.what == "publish" and entry.key == "then"]
    text = session.ledger.find("then").release.replace('"value": ', '"value": 1', 1)
    forged = replace(published, root=hash_chain.digest_text(text))
    digest = hash_chain.digest_entry(forged, entries[published.number - 1].digest)
    place.ask(
        "UPDATE entries SET root = ?, digest = ? WHERE number = ?",
        forged.root,
        digest,
        published.number,
    )
    place.ask("UPDATE releases SET text = ? WHERE text LIKE ?", text, '%"entry": 2,%')
    with pytest.raises(errors.LedgerBroken):
        session.ledger.find("then")


def test_sealed_books_of_the_version_before_stay_sealed_when_they_are_upgraded(in_file):
    unsigned_books(in_file).ledger._store._close()
    heads = in_file.file.with_name("books.db.heads")
    heads.write_text(heads.read_text() + f"\nseen 99 {'0' * 64}\n")
    books = in_file.open()
    assert books.sealed
    books.upgrade()
    for again in (books, in_file.open()):
        with pytest.raises(errors.LedgerSealed):
            spend(again, "k")
    books.unseal("the heads of another copy")
    spend(in_file.open(), "k")


def test_signed_books_from_before_there_were_sales_go_on_as_they_are(place):
    session = place.granted()
    made = release(session, "then")
    before = place.rows()
    session.ledger._store._close()
    place.ask("DROP INDEX one_sale")
    if place.server:
        place.ask("DELETE FROM version WHERE number > 2")
    else:
        place.ask("PRAGMA user_version = 2")
    again = place.session()
    again.verify()
    assert place.rows() == before
    assert again.ledger.signed_from == 0
    assert release(again, "then") == made
    assert again.ledger.sell(A_SALE, key="sold").fresh
    assert not again.ledger.sell(A_SALE, key="sold").fresh
    with pytest.raises(Exception, match=r"(?i)unique"):  # the database has the new index
        place.ask(INSERT, 99, "sale", "sold", "", "", 0, b"", b"")
    place.session().verify()


def test_a_person_who_was_never_granted_anything_is_not_charged_by_a_release(place):
    books = place.open()
    books.reserve("elsewhere", "", [Amounts(["zoe"], np.array([5]))], outside=True)
    with pytest.raises(errors.BudgetExceeded):
        spend(books, "here", 1, "zoe")
    books.verify()


def test_the_tables_have_not_changed_since_they_were_first_written():
    """Books that were written under a step exist: it is never edited."""
    import hashlib

    first = hashlib.sha256("\n".join(sql_reading.MIGRATIONS[0]).encode()).hexdigest()
    assert first[:16] == "f42d5903b38eb644"
