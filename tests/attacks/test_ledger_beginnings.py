"""Books are begun on purpose, and their log is theirs: an empty file, a log taken away, threads
that fork at once.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import sys
import threading
import warnings

import pytest
from typer.testing import CliRunner

from ledgers.places import Child, allow, left, release, spend
from sottovoce import errors
from sottovoce.cli.ledger import ledger_app
from sottovoce.ledgers import open_ledger

#: Seconds after which a child that has not come to an end never will.
NEVER = 600


def command(*words):
    return CliRunner().invoke(ledger_app, [str(word) for word in words])


@pytest.mark.parametrize(
    "words",
    [
        ("balance", "--person", "ada"),
        ("history",),
        ("verify",),
        ("key",),
        ("unseal", "--reason", "x"),
        ("upgrade",),
        ("witness", "list"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("there", [True, False], ids=["empty", "missing"])
def test_no_command_but_init_begins_books(tmp_path, words, there):
    books = tmp_path / "books.db"
    if there:
        books.touch()
    refused = command(*words, "--ledger", books)
    assert refused.exit_code == 2
    assert "There is no ledger at this place" in refused.stderr
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [
        ("books.db", 0)
    ] * there


def test_no_command_but_init_begins_books_on_a_server(on_server):
    words = ("--ledger", on_server.address, "--keys", on_server.keys)
    assert "There is no ledger" in command("balance", "--person", "ada", *words).stderr
    assert not on_server.keys.exists()
    assert command("init", on_server.address, "--keys", on_server.keys).exit_code == 0
    assert command("verify", *words).exit_code == 0


def test_an_empty_file_is_begun_by_init_alone(in_file):
    in_file.file.touch()
    with pytest.raises(errors.LedgerUnavailable):
        in_file.session()
    assert in_file.file.stat().st_size == 0
    assert command("init", in_file.file).exit_code == 0
    in_file.open().verify()


def test_books_that_were_cut_to_nothing_are_not_begun_anew(in_file):
    release(in_file.granted(), "k")
    for ending in ("-wal", "-shm"):
        in_file.file.with_name(in_file.file.name + ending).unlink(missing_ok=True)
    in_file.file.write_bytes(b"")
    with pytest.raises(errors.LedgerUnavailable):
        in_file.open()


@pytest.mark.parametrize("how", ["removed", "exchanged"])
def test_a_log_that_is_taken_away_under_an_open_session_is_noticed(in_file, how):
    """The session would go on writing into a file without a name: nobody else sees it, and a crash
    takes it all.
    """
    session = in_file.granted()
    log = in_file.file.with_name("books.db-wal")
    content = log.read_bytes()
    log.unlink()
    if how == "exchanged":
        log.write_bytes(content)
    for attempt in (
        lambda: release(session, "k"),
        lambda: session.grant({"cleo": 2.0}),
        lambda: session.balance("cleo"),
    ):
        with pytest.raises(errors.LedgerBroken, match="write-ahead log"):
            attempt()


def test_a_log_that_is_taken_away_while_something_is_written_is_noticed_before_anything_is_read(
    in_file, monkeypatch
):
    session = in_file.granted()
    read = []
    log = in_file.file.with_name("books.db-wal")
    monkeypatch.setattr(
        "sottovoce.ledger.fault_point",
        lambda step: log.unlink() if step == "reserve: charged" else None,
    )
    monkeypatch.setattr(
        "sottovoce.estimator._run_mechanism", lambda *arguments: read.append(arguments)
    )
    with pytest.raises(errors.LedgerBroken, match="write-ahead log"):
        release(session, "k")
    assert read == []


@pytest.mark.skipif(
    not hasattr(multiprocessing, "get_context") or sys.platform == "win32", reason="no fork"
)
def test_threads_that_fork_at_once_while_books_are_open_come_to_an_end(in_file):
    """Each thread starts processes as a pool does; a watchdog ends the child that never would."""
    books = in_file.open()
    allow(books, 1000)
    context = multiprocessing.get_context("fork")

    def forking(tell) -> None:
        warnings.simplefilter("ignore")
        faulthandler.dump_traceback_later(NEVER, exit=True)

        def fork_many(name: int) -> None:
            for number in range(12):
                process = context.Process(target=int)
                process.start()
                spend(books, f"{name}-{number}")
                process.join()

        threads = [threading.Thread(target=fork_many, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tell("done")

    child = Child(forking)
    assert list(child.told()) == ["done"]
    assert child.end() == 0
    assert left(in_file.open()) == 1000 - 48
    open_ledger(in_file.address).verify()
