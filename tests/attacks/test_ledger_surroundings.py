"""Books in bad surroundings: no server, no key, no space, no right to write, another writer,
another version.

Each is a named error that tells nobody's name, and leaves the books as they were.
"""

from __future__ import annotations

import codecs
import os
import pwd
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import sottovoce as sv
from ledgers.places import PEOPLE, Child, Place, allow, left, release, spend, together
from sottovoce import errors
from sottovoce.ledgers import keyfile, open_ledger, postgres, sql_reading, sqlite


def refused(kind: type[errors.SottovoceError], attempt) -> errors.SottovoceError:
    """The named error of an attempt, without a name, an amount or the database's own words in it or
    behind it.
    """
    with pytest.raises(kind) as caught:
        attempt()
    error = caught.value
    assert error.found and error.remedy  # noqa: PT018
    assert not any(name in str(error) for name in PEOPLE)
    assert error.__cause__ is error.__context__ is None
    return error


def test_a_server_that_is_not_there(tmp_path):
    address = f"postgresql://tester:secret@/nothing?host={tmp_path}"
    error = refused(errors.LedgerUnavailable, lambda: sv.Session(address, keys=tmp_path / "keys"))
    assert "secret" not in str(error)
    assert not (tmp_path / "keys").exists()


def test_a_server_that_goes_away_and_comes_back(on_server):
    session = on_server.granted()
    release(session, "before")
    on_server.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    )
    refused(errors.LedgerUnavailable, lambda: session.balance("cleo"))
    release(session, "after")
    session.verify()


def test_without_psycopg(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    error = refused(errors.UnsupportedLedger, lambda: sv.Session("postgresql://x/y", keys=tmp_path))
    assert "pip install" in str(error)


def key_file(place: Place) -> Path:
    (path,) = place.keys.glob("*.key")
    return path


@pytest.mark.parametrize(
    "content", [None, b"", b"x" * 31, b"x" * 33, b"x" * 32], ids=["none", "0", "31", "33", "32"]
)
def test_a_wrong_or_missing_key(place, content):
    place.granted()
    before = place.rows()
    key = key_file(place)
    kept = key.read_bytes()
    key.unlink()
    if content is not None:
        key.write_bytes(content)
    refused(errors.WrongLedgerKey, place.open)
    assert place.rows() == before
    key.write_bytes(kept)
    assert left(place.open(), "cleo") > 0


def test_the_key_of_other_books(in_file, tmp_path):
    in_file.granted()
    open_ledger(tmp_path / "other.db")
    shutil.copy(tmp_path / "other.db.key", key_file(in_file))
    refused(errors.WrongLedgerKey, in_file.open)


def test_books_of_a_newer_version(place, monkeypatch):
    place.granted()
    monkeypatch.setattr(
        sql_reading,
        "MIGRATIONS",
        (*sql_reading.MIGRATIONS, ("CREATE TABLE later (a INTEGER PRIMARY KEY)",)),
    )
    place.open()
    monkeypatch.undo()
    before = place.rows()
    refused(errors.UnsupportedLedger, place.open)
    assert place.rows() == before


def test_older_books_become_newer_ones_in_one_step_or_not_at_all(place, monkeypatch):
    session = place.granted()
    made = release(session, "k")
    before = place.rows()
    step = ("CREATE TABLE later (a INTEGER NOT NULL PRIMARY KEY)", "INSERT INTO later VALUES (7)")
    monkeypatch.setattr(
        sql_reading,
        "MIGRATIONS",
        (*sql_reading.MIGRATIONS, (*step, "INSERT INTO nowhere VALUES (1)")),
    )
    with pytest.raises(errors.SottovoceError):
        place.open()
    with pytest.raises(Exception, match="later"):  # the first half is not there
        place.ask("SELECT * FROM later")
    monkeypatch.setattr(sql_reading, "MIGRATIONS", (*sql_reading.MIGRATIONS[:-1], step))
    again = place.session()
    assert place.ask("SELECT a FROM later") == [(7,)]
    assert place.rows() == before
    assert release(again, "k") == made
    again.verify()


@pytest.mark.parametrize(
    "content", [b"name,epsilon\nada,1\n" * 100, b"SQLite format 3\0" + b"x" * 5000]
)
def test_a_file_that_is_no_database(in_file, content):
    in_file.file.write_bytes(content)
    refused(errors.LedgerBroken, in_file.open)
    assert in_file.file.read_bytes() == content


@pytest.mark.parametrize("version", [0, 1, 7])
def test_a_database_of_somebody_else_is_left_alone(in_file, version):
    with sqlite3.connect(in_file.file) as other:
        other.execute("CREATE TABLE recipes (name)")
        other.execute(f"PRAGMA user_version = {version}")
    other.close()
    before = in_file.file.read_bytes()
    refused(errors.LedgerBroken, in_file.open)
    assert in_file.file.read_bytes() == before


def test_a_folder_that_is_not_there(tmp_path):
    refused(errors.LedgerUnavailable, lambda: open_ledger(tmp_path / "no" / "books.db"))
    refused(errors.LedgerUnavailable, lambda: open_ledger(tmp_path))


def as_nobody(work) -> list:
    """Runs the work as a user who may not write everywhere: root may."""

    def drop(tell) -> None:
        codecs.lookup(
            "ascii"
        )  # loaded now: nobody may not read where Python is, and it may be needed
        if os.geteuid() == 0:
            os.setgid(pwd.getpwnam("nobody").pw_gid)
            os.setuid(pwd.getpwnam("nobody").pw_uid)
        work(tell)

    child = Child(drop)
    words = list(child.told())
    child.end()
    return words


@pytest.fixture
def open_folder():
    """A folder that everybody may enter and read."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("what", ["file", "folder", "heads", "new books"])
def test_what_may_not_be_written(open_folder, what):
    place = Place(f"sqlite:///{open_folder}/books.db", open_folder)
    if what != "new books":
        place.granted()
        for path in open_folder.iterdir():
            path.chmod(0o644 if path.suffix == ".heads" and what == "heads" else 0o666)
        place.file.chmod(0o444 if what == "file" else 0o666)
    open_folder.chmod(0o555 if what in ("folder", "new books") else 0o777)
    if what == "new books":
        before = None
    else:
        before = place.rows()

    def attempt(tell) -> None:
        try:
            release(place.session(), "k")
        except errors.SottovoceError as error:
            tell(error)

    (error,) = as_nobody(attempt)
    assert type(error) is errors.LedgerUnavailable
    assert not any(name in str(error) for name in PEOPLE)
    if what == "new books":
        assert not list(open_folder.iterdir())
    elif what != "heads":
        assert place.rows() == before
    else:  # reserved and never read for: it stays spent
        assert place.open().find("k").state == "reserved"


def test_a_keys_folder_that_cannot_be_made(on_server, tmp_path):
    (tmp_path / "taken").write_text("a file")
    refused(
        errors.LedgerUnavailable, lambda: sv.Session(on_server.address, keys=tmp_path / "taken")
    )


def test_a_full_disk(in_file):
    """A limit of this process on the length of files stands for the disk; nothing is half written,
    and space helps.
    """
    in_file.granted()
    size = max(path.stat().st_size for path in in_file.keys.iterdir())

    def fill(tell) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        session = in_file.session()
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, resource.RLIM_INFINITY))
        try:
            for number in range(10_000):
                tell((f"k{number}", release(session, f"k{number}").to_json()))
        except errors.SottovoceError as error:
            tell(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        tell(release(session, "space again").to_json())

    child = Child(fill)
    *made, error, last = child.told()
    assert child.end() == 0
    assert type(error) is errors.LedgerUnavailable
    books = in_file.open()
    books.verify()
    assert made
    for key, text in [*made, ("space again", last)]:
        assert books.find(key).release == text


def test_another_writer_who_does_not_come_to_an_end(in_file, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT", 50)
    session = in_file.granted()
    before = in_file.rows()
    busy = sqlite3.connect(in_file.file, isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")
    refused(errors.LedgerUnavailable, lambda: release(in_file.session(), "k"))
    assert in_file.session().balance("cleo") > 0  # readers go on meanwhile
    busy.execute("ROLLBACK")
    busy.close()
    assert in_file.rows() == before
    release(session, "k")
    session.verify()


def test_sixteen_who_open_new_books_at_once_open_the_same(place):
    identities = together(16, lambda number: place.open().identity)
    assert len(set(identities)) == 1
    place.open().verify()


def test_new_books_wait_for_somebody_else_who_makes_them(in_file):
    """The change to a write-ahead log is the one step for which SQLite itself does not wait."""
    other = sqlite3.connect(in_file.file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    gone = threading.Timer(0.2, other.close)
    gone.start()
    open_ledger(in_file.address, begin=True).verify()
    gone.join()


def test_a_fork_with_open_books_loses_nothing(place):
    """The parent goes away, and with it its connection, while the child goes on with books that it
    inherited.
    """
    books = place.open()
    allow(books, 10)

    def middle(tell) -> None:
        child = Child(lambda tell: [spend(books, f"child {i}") for i in range(3)])
        spend(books, "parent")
        books._store._close()
        list(child.told())
        tell(child.end())

    parent = Child(middle)
    assert list(parent.told()) == [0]
    assert parent.end() == 0
    again = place.open()
    assert left(books) == left(again) == 6
    again.verify()


def test_books_are_found_wherever_the_process_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    books = open_ledger("books.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    allow(books, 3)
    assert not list(Path().iterdir())
    assert left(open_ledger(tmp_path / "books.db")) == 3


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 6, 8, 40, 72, 73, 80, 103])
@pytest.mark.parametrize("zeros", [0, 90])
def test_what_a_crash_leaves_of_a_line_does_not_silence_the_other_heads(in_file, cut, zeros):
    """A line is written as a whole: a crash leaves a part of it, on some file systems with zeros
    after it.
    """
    in_file.granted()
    heads = in_file.file.with_name("books.db.heads")
    key = in_file.file.with_name("books.db.key").read_bytes()
    good = heads.read_bytes()
    seen = keyfile.LedgerKeyFile(key, heads).read_heads().seen
    line = good.strip().split(b"\n")[-1]
    assert len(line) == 104
    torn = b"\n" + line[:cut] + bytes(zeros)
    heads.write_bytes(torn + good + torn)
    assert not in_file.open().sealed
    found = keyfile.LedgerKeyFile(key, heads).read_heads()
    assert (found.seen[-2:], found.damaged) == (seen[-2:], False)


def test_a_refused_transaction_is_tried_again(on_server, monkeypatch):
    import psycopg

    session = on_server.granted()
    faults = [psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected]
    original = postgres._PostgresTransaction.count

    def refusing(self, statement):
        if faults:
            raise faults.pop()()
        return original(self, statement)

    monkeypatch.setattr(postgres._PostgresTransaction, "count", refusing)
    before = left(session.ledger, "cleo")
    spend(session.ledger, "k", 5, "cleo")
    assert not faults
    assert left(session.ledger, "cleo") == before - 5
