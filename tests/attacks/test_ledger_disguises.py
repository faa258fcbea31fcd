"""Books that are made to look like others: like unsigned ones, like none, like ones whose key is
their owner's.

Whoever can write to the database, or was in the folder first, tries to be believed by way of a rule
that is meant for honest cases: older versions did not sign, new books have no entries, a key that
is there is used.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import sottovoce as sv
from ledgers.places import TABLES, Child, Place, left, release, spend
from sottovoce import errors
from sottovoce.cli.ledger import ledger_app
from sottovoce.ledger import Entry
from sottovoce.ledgers import hash_chain, open_ledger
from sottovoce.ledgers.keyfile import check_release


def forged_release(place: Place, session: sv.Session) -> None:
    """Another answer under the key k, with the digest that follows from it."""
    entries = list(session.ledger.entries())
    (published,) = [entry for entry in entries if entry.what == "publish"]
    text = session.ledger.find("k").release.replace('"value": ', '"value": 1', 1)
    forged = replace(published, root=hash_chain.digest_text(text))
    digest = hash_chain.digest_entry(forged, entries[published.number - 1].digest)
    place.ask(
        "UPDATE entries SET root = ?, digest = ? WHERE number = ?",
        forged.root,
        digest,
        forged.number,
    )
    place.ask("UPDATE releases SET text = ?", text)


def test_signed_books_with_the_key_taken_from_their_first_entry_are_not_taken_for_unsigned_ones(
    place,
):
    session = place.granted()
    release(session, "k")
    forged_release(place, session)
    place.ask("UPDATE entries SET root = ? WHERE number = 0", hash_chain.NO_DIGEST)
    session.ledger._store._close()
    with pytest.raises(errors.LedgerBroken):
        place.session()


def test_signed_books_that_were_rewritten_without_signatures_give_no_release_out(place):
    """The chain is whole, as an earlier version would write it; the heads tell, so nothing stored
    is believed.
    """
    session = place.granted()
    release(session, "k")
    forged_release(place, session)
    place.ask("UPDATE entries SET root = ? WHERE number = 0", hash_chain.NO_DIGEST)
    before = hash_chain.NO_DIGEST
    for entry in session.ledger.entries():
        before = hash_chain.digest_entry(entry, before)
        place.ask("UPDATE entries SET digest = ? WHERE number = ?", before, entry.number)
    place.ask("DELETE FROM signatures")
    session.ledger._store._close()
    again = place.session()
    assert again.ledger.sealed
    assert again.ledger.signed_from is None
    for attempt in (
        lambda: release(again, "k"),
        lambda: again.ledger.find("k"),
        lambda: release(again, "new"),
    ):
        with pytest.raises(errors.LedgerSealed):
            attempt()


@pytest.mark.parametrize("column", ["what", "key", "request", "at"])
def test_an_old_entry_that_was_rewritten_is_noticed_when_books_are_opened(place, column):
    session = place.granted()
    release(session, "k")
    place.ask(f"UPDATE entries SET {column} = 'grant' || {column} WHERE number = 1")
    session.ledger._store._close()
    with pytest.raises(errors.LedgerBroken):
        place.open()


def test_nothing_is_signed_that_a_trigger_adds_between_the_check_and_the_signature(place):
    """A grant of 1,000 is appended, with right digests, while an account is charged: no entry is
    signed after it.
    """
    session = place.granted(0.01)
    entries = list(session.ledger.entries())
    lines = session.ledger.lines(1).copy()
    lines["amount"] = 10**12
    root = hash_chain.compute_root(hash_chain.hash_lines(lines))
    bare = Entry(len(entries), "grant", "", "", entries[-1].at, len(lines), root, b"")
    digest = hash_chain.digest_entry(bare, entries[-1].digest)
    if place.server:
        as_bytes = "'\\x{}'"
    else:
        as_bytes = "x'{}'"
    values = (
        f"{bare.number}, 'grant', '', '', '{bare.at}', {bare.lines}, "
        f"{as_bytes.format(root.hex())}, "
    )
    insert = f"INSERT INTO entries VALUES ({values}{as_bytes.format(digest.hex())})"
    if place.server:
        place.ask(
            f"CREATE FUNCTION add_one() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {insert}; "
            "RETURN NULL; END $$;"
            "CREATE TRIGGER add_one AFTER UPDATE ON accounts FOR EACH STATEMENT EXECUTE FUNCTION "
            "add_one()"
        )
    else:
        new = f"NOT EXISTS (SELECT 1 FROM entries WHERE number = {bare.number})"
        place.ask(f"CREATE TRIGGER add_one AFTER UPDATE ON accounts WHEN {new} BEGIN {insert}; END")
    before = place.rows()
    with pytest.raises(errors.LedgerBroken):
        release(session, "k")
    assert place.rows() == before


@pytest.mark.parametrize("how", ["no entry", "nothing at all"])
def test_books_whose_entries_were_deleted_are_not_begun_anew(place, how):
    session = place.granted()
    for table in TABLES if how == "nothing at all" else ["entries"]:
        place.ask(f"DELETE FROM {table}")
    session.ledger._store._close()
    with pytest.raises(errors.LedgerBroken):
        place.session()
    words = ["--ledger", place.address, "--keys", str(place.keys)]
    refused = CliRunner().invoke(ledger_app, ["balance", "--person", "cleo", *words])
    assert refused.exit_code == 2
    assert "no entry is in them" in refused.stderr
    assert place.ask("SELECT COUNT(*) FROM entries") == [(0,)]
    assert len(list(place.keys.glob("*.key"))) == 1


def test_a_server_whose_version_was_deleted_is_broken(on_server):
    on_server.granted()
    on_server.ask("DELETE FROM version")
    with pytest.raises(errors.LedgerBroken):
        on_server.open()


def test_an_empty_database_is_begun_by_init_alone(in_file):
    connection = sqlite3.connect(in_file.file)
    connection.execute("VACUUM")  # writes a header, and no table
    connection.close()
    assert in_file.file.stat().st_size > 0
    refused = CliRunner().invoke(ledger_app, ["verify", "--ledger", str(in_file.file)])
    assert refused.exit_code == 2
    assert "There is no ledger at this place" in refused.stderr
    assert not list(in_file.keys.glob("*.key"))


@pytest.mark.skipif(os.name != "posix", reason="owners and rights of files")
@pytest.mark.parametrize("how", ["readable", "linked", "another's"])
def test_new_books_take_no_key_that_others_know(in_file, tmp_path, how):
    key = in_file.file.with_name("books.db.key")
    if how == "linked":
        (tmp_path / "known").write_bytes(bytes(32))
        (tmp_path / "known").chmod(0o600)
        key.symlink_to(tmp_path / "known")
    else:
        key.write_bytes(bytes(32))
        key.chmod(0o644 if how == "readable" else 0o600)
    if how == "another's":
        if os.geteuid() != 0:
            pytest.skip("only root gives files away")
        os.chown(key, 65534, -1)
    with pytest.raises(errors.WrongLedgerKey, match="not this user's alone"):
        in_file.session()
    key.unlink()
    release(in_file.granted(), "k")


@pytest.mark.skipif(os.name != "posix", reason="rights of files")
def test_books_begun_in_a_file_that_others_could_read_are_their_owners_alone(in_file):
    in_file.file.touch()
    in_file.file.chmod(0o644)
    open_ledger(in_file.address, begin=True)
    assert [path.name for path in in_file.keys.iterdir() if path.stat().st_mode & 0o077] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_two_processes_do_not_spend_the_same_when_the_index_of_the_log_is_removed(in_file):
    """It holds the locks: with an index each, both would write at once. 1.8 of 1.0 were spent
    so.
    """
    in_file.granted(1.0).ledger._store._close()
    ready, told_ready = os.pipe()
    gone, told_gone = os.pipe()

    def first(tell):
        books = in_file.open()
        left(books)
        os.write(told_ready, b".")
        os.read(gone, 1)
        try:
            tell(spend(books, "first", 9 * 10**8).fresh)
        except errors.LedgerBroken:
            tell(False)

    child = Child(first)
    os.read(ready, 1)
    in_file.file.with_name("books.db-shm").unlink()
    books = in_file.open()
    left(books)
    os.write(told_gone, b".")
    assert list(child.told()) == [False]
    assert child.end() == 0
    assert spend(books, "second", 9 * 10**8).fresh
    assert not in_file.open().sealed


def test_the_log_of_books_behind_a_link_is_watched_too(in_file, tmp_path):
    in_file.granted().ledger._store._close()
    linked = tmp_path / "linked"
    linked.mkdir()
    for path in in_file.keys.iterdir():
        if path.is_file():
            (linked / path.name).symlink_to(path)
    books = Place(f"sqlite:///{linked}/books.db", linked).open()
    left(books)
    in_file.file.with_name("books.db-wal").unlink()
    with pytest.raises(errors.LedgerBroken, match="write-ahead log"):
        spend(books, "k")


@pytest.mark.parametrize(
    "place_in_text", ["{", '"certificate": {', '"ledger": {'], ids=["top", "certificate", "ledger"]
)
def test_a_release_that_says_something_twice_is_not_what_was_signed(place_in_text):
    """Of two values under one name every reader takes another: a signature must not hold for
    both.
    """
    session = sv.Session()
    session.grant({"ada": 1.0})
    made = session.release(
        sv.Mean(bounds=(0, 1)), [0.5, 0.2], groups=["ada", "ada"], epsilon=0.5, key="k"
    ).to_json()
    name = {"{": "value", '"certificate": {': "ledger", '"ledger": {': "entry"}[place_in_text]
    twice = made.replace(place_in_text, f'{place_in_text}"{name}": 999, ', 1)
    assert twice != made
    with pytest.raises(errors.InvalidRelease, match="not what was signed"):
        check_release(twice, session.ledger.public_key)
