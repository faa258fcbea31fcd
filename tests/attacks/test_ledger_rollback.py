"""An older copy of the books, put in place of them: sealed, until somebody gives a reason.

On older books people would spend the same budget twice. The heads beside the books tell, and so
does every published certificate. Whoever holds the key and rewrites everything, the heads too, is
found out by the certificates.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ledgers.places import PEOPLE, Place, left, release, spend
from sottovoce import errors
from sottovoce.ledger import Entry
from sottovoce.ledgers import hash_chain
from sottovoce.ledgers.keyfile import LedgerKeyFile, Signer, make_entry_message
from sottovoce.ledgers.sql_ledger import SqlLedger
from sottovoce.ledgers.sql_reading import read_lines

ENDINGS = ("", "-wal", "-shm")


def copied(place: Place, folder: Path, endings=ENDINGS) -> Path:
    """Copies the files of the books as they are now, open or not."""
    folder.mkdir()
    for path in (place.file.with_name(place.file.name + ending) for ending in endings):
        if path.exists():
            shutil.copy(path, folder / path.name)
    return folder


def put_in_place(place: Place, folder: Path) -> None:
    """Puts copies in place of the books, by exchanging files as whoever restores a backup does."""
    for ending in ENDINGS:
        place.file.with_name(place.file.name + ending).unlink(missing_ok=True)
    for path in folder.iterdir():
        os.replace(
            shutil.copy(path, place.file.with_name(path.name + ".new")),
            place.file.with_name(path.name),
        )


def assert_sealed(books: SqlLedger) -> None:
    """Nothing can be written any more, and verify says why."""
    assert books.sealed
    for attempt in (
        lambda: spend(books, "new"),
        lambda: books.grant([]),
        lambda: books.publish("k", "{}"),
    ):
        with pytest.raises(errors.LedgerSealed):
            attempt()
    with pytest.raises(errors.LedgerSealed):
        books.verify()


def assert_goes_on(place: Place, reason: str = "the backup of last night") -> None:
    place.open().unseal(reason)
    again = place.session()
    again.grant(dict.fromkeys(PEOPLE, 1.0))
    release(again, "after the restoration")
    again.verify()
    assert [entry.request for entry in again.ledger.entries() if entry.what == "unseal"] == [reason]


@pytest.mark.parametrize("endings", [ENDINGS, ("",)], ids=["with its log", "without"])
@pytest.mark.parametrize("after", ["a release", "a reservation", "a grant"])
def test_an_older_copy_is_sealed(in_file, tmp_path, endings, after):
    session = in_file.granted()
    older = copied(
        in_file, tmp_path / "older", endings
    )  # while it is open: without its log it is torn
    if after == "a release":
        release(session, "k")
    elif after == "a reservation":
        spend(session.ledger, "k")
    else:
        session.grant(dict.fromkeys(PEOPLE, 0.1))
    session.ledger._store._close()
    put_in_place(in_file, older)
    assert_sealed(in_file.open())
    assert_goes_on(in_file)


def test_the_newest_copy_is_not_sealed(in_file, tmp_path):
    session = in_file.granted()
    release(session, "k")
    newest = copied(in_file, tmp_path / "newest")
    session.ledger._store._close()
    put_in_place(in_file, newest)
    release(in_file.session(), "on")
    in_file.session().verify()


def test_an_older_copy_on_a_server_is_sealed(on_server):
    session = on_server.granted()
    release(session, "k")
    for table in ("entries", "lines", "releases", "signatures"):
        on_server.ask(f"DELETE FROM {table} WHERE number >= 2")
    on_server.ask("UPDATE accounts SET spent = 0")
    assert_sealed(on_server.open())
    with pytest.raises(errors.LedgerSealed):  # and whoever had it open finds out at the next write
        spend(session.ledger, "k2")
    assert_goes_on(on_server)


def test_books_exchanged_while_they_are_open_are_sealed_at_the_next_write(in_file, tmp_path):
    session = in_file.granted()
    session.ledger._store._close()
    older = copied(in_file, tmp_path / "older")
    release(session, "k")
    put_in_place(in_file, older)
    with pytest.raises(errors.LedgerSealed):
        release(session, "k2")
    with pytest.raises(errors.LedgerSealed):
        session.grant({"cleo": 5.0})
    assert_sealed(in_file.open())


def test_books_overwritten_while_they_are_open_never_pay_twice(in_file, tmp_path):
    """Written over in place, under the eyes of SQLite: whatever it makes of that, nobody spends the
    same again.
    """
    session = in_file.granted()
    session.ledger._store._close()
    older = (copied(in_file, tmp_path / "older") / in_file.file.name).read_bytes()
    release(session, "k")
    session.ledger._store._close()
    with open(in_file.file, "r+b") as file:
        file.write(older)
        file.truncate(len(older))
    with pytest.raises((errors.LedgerSealed, errors.LedgerBroken)):
        release(session, "k2")
    with pytest.raises((errors.LedgerSealed, errors.LedgerBroken)):
        in_file.open().verify()


@pytest.mark.parametrize("also", [(), ENDINGS[1:]], ids=["its log stays", "with its log"])
def test_deleted_books_are_sealed(in_file, also):
    session = in_file.granted()
    release(session, "k")
    for ending in ("", *also):
        in_file.file.with_name(in_file.file.name + ending).unlink(missing_ok=True)
    with pytest.raises(errors.SottovoceError):
        release(session, "k2")
    if not also:
        with pytest.raises(errors.LedgerBroken):  # it would be read into new books
            in_file.open()
        del session
        for ending in ENDINGS[1:]:
            in_file.file.with_name(in_file.file.name + ending).unlink(missing_ok=True)
    assert_sealed(in_file.open())
    assert_goes_on(in_file)


def test_an_older_file_under_a_newer_log_is_whole_or_noticed(in_file, tmp_path):
    session = in_file.granted()
    session.ledger._store._close()
    older = copied(in_file, tmp_path / "older", ("",))
    release(session, "k1")
    session.ledger._store._close()  # which moves the log into the file
    release(session, "k2")
    copied(in_file, tmp_path / "log", ("-wal",))
    session.ledger._store._close()
    shutil.copy(tmp_path / "log" / "books.db-wal", older)
    put_in_place(in_file, older)
    with pytest.raises((errors.LedgerSealed, errors.LedgerBroken)):
        in_file.open().verify()


@pytest.mark.parametrize("place_in_log", [0.2, 0.5, 0.9])
def test_a_log_with_one_byte_changed_is_sealed(in_file, tmp_path, place_in_log):
    session = in_file.granted()
    release(session, "k")
    copy = copied(in_file, tmp_path / "copy")
    session.ledger._store._close()
    put_in_place(in_file, copy)
    log = in_file.file.with_name("books.db-wal")
    content = bytearray(log.read_bytes())
    content[int(len(content) * place_in_log)] ^= 0x10
    log.write_bytes(content)
    with pytest.raises((errors.LedgerSealed, errors.LedgerBroken)):
        in_file.open().verify()


def forged(place: Place, key: Path | None = None) -> None:
    """Takes half of a charge back, and computes every root, digest and balance anew, as whoever
    holds the books can.

    Whoever holds the key too signs it all, and writes the heads anew.
    """
    ((number, person, amount),) = place.ask(
        "SELECT number, person, amount FROM lines JOIN entries USING (number) WHERE what = "
        "'reserve' LIMIT 1"
    )
    place.ask(
        "UPDATE lines SET amount = ? WHERE number = ? AND person = ?", amount // 2, number, person
    )
    place.ask(
        "UPDATE accounts SET spent = spent - ? WHERE person = ?", amount - amount // 2, person
    )
    before = hash_chain.NO_DIGEST
    books = place.open()
    if key is None:
        signer = None
    else:
        signer = Signer(key.read_bytes())
    for entry in list(books.entries()):
        root = entry.root
        if entry.number == number:
            root = books._store.read(
                lambda transaction: hash_chain.compute_root(
                    hash_chain.hash_lines(read_lines(transaction, number))
                )
            )
        bare = Entry(**{**entry.__dict__, "root": root})
        before = hash_chain.digest_entry(bare, before)
        place.ask(
            "UPDATE entries SET root = ?, digest = ? WHERE number = ?", root, before, entry.number
        )
        if signer is not None:
            signature = signer.sign(make_entry_message(books.identity, entry.number, before))
            place.ask(
                "UPDATE signatures SET signature = ? WHERE number = ?", signature, entry.number
            )
    if key is not None:
        (heads,) = place.keys.glob("*.heads")
        heads.unlink()
        LedgerKeyFile(key.read_bytes(), heads).record_head(entry.number, before)


def test_a_chain_computed_anew_without_the_key_is_no_ledger(place):
    session = place.granted()
    release(session, "k")
    forged(place)
    with pytest.raises(errors.LedgerBroken):
        place.open()
    with pytest.raises(errors.LedgerSealed):
        release(session, "k2")


def test_a_chain_computed_anew_by_who_holds_the_key_and_the_heads_is_found_out_by_a_certificate(
    place,
):
    session = place.granted()
    made = release(session, "k")
    before = (
        left(session.ledger, PEOPLE[0])
        + left(session.ledger, PEOPLE[1])
        + left(session.ledger, PEOPLE[2])
    )
    (key,) = place.keys.glob("*.key")
    forged(place, key)
    again = place.session()
    again.verify()  # a perfect forgery: nothing in the books gives it away
    assert sum(left(again.ledger, person) for person in PEOPLE) > before
    with pytest.raises(errors.LedgerSealed):
        again.verify(made)
    assert_sealed(again.ledger)
    assert_sealed(place.open())


def test_unsealing_that_fails_leaves_the_books_sealed(in_file, monkeypatch):
    in_file.granted()
    books = in_file.open()
    books.seal(1, "0" * 64)

    def full(*arguments):
        raise errors.LedgerUnavailable("The disk is full.")

    monkeypatch.setattr(SqlLedger, "_append", full)
    with pytest.raises(errors.LedgerUnavailable):
        books.unseal("a reason that could not be written")
    monkeypatch.undo()
    assert_sealed(books)
