# SPDX-License-Identifier: Apache-2.0
"""Books in one file, or in memory, kept by SQLite.

Write-ahead log, synchronous=FULL: what was committed survives a power cut. A writer takes the whole
database (BEGIN IMMEDIATE), so two reservations never overlap; readers go on meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sottovoce import ledger, private_files
from sottovoce.errors import LedgerBroken, LedgerUnavailable, SottovoceError, UnsupportedLedger
from sottovoce.ledgers import sql_reading
from sottovoce.ledgers.hash_chain import PERSON_BYTES
from sottovoce.ledgers.sql_ledger import SqlLedger
from sottovoce.ledgers.sql_reading import Transaction

Result = TypeVar("Result")

#: STRICT tables and UPDATE … FROM.
OLDEST_SQLITE = (3, 37)
#: Milliseconds to wait for another writer.
BUSY_TIMEOUT = 60_000
#: Above every amount: an account and an amount make one number of so many digits.
AMOUNT_BASE = 10**16
NUMBER_DIGITS = 18
#: A million lines by one statement, from two strings of fixed-width records: a third of the time of
#: a call for each.
STAGE = f"""
    INSERT INTO staged
    WITH RECURSIVE each(place) AS (
    VALUES (0) UNION ALL SELECT place + 1 FROM each WHERE place + 1 < ?)
    SELECT substr(?, place * {PERSON_BYTES} + 1, {PERSON_BYTES}),
    number / {AMOUNT_BASE}, number % {AMOUNT_BASE} FROM (
    SELECT place, CAST(substr(?, place * {NUMBER_DIGITS} + 1, {NUMBER_DIGITS}) AS INTEGER) AS number
    FROM each)"""
#: A part of all accounts by one statement, as two texts: half of the time of a row for each, and
#: Python is free.
READ_BALANCES = f"""
    SELECT group_concat(hex(person), ''), group_concat(rest, ' ') FROM (
    SELECT person, {sql_reading.REMAINING} AS rest FROM accounts
    WHERE account = ? AND person >= ? AND person < ? AND length(person) = {PERSON_BYTES}
    ORDER BY person)"""
#: Says in the head of a file that it holds these books.
APPLICATION_ID = 0x736F7474
#: What SQLite keeps beside an open file: the write-ahead log, and its index with the locks.
LOGS = ("-wal", "-shm")
#: Causes that lie in the file and not in its surroundings.
DAMAGE_CODES = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,  # a table that is not there, a text that is none
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
)


def open_sqlite(path: str | Path | None, *, begin: bool | None = None) -> SqlLedger:
    """Returns the books in this file; without a path, books that end with the process.

    New books are begun where there is no file; if ``begin``, in an empty file too; if it is False,
    nowhere.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise UnsupportedLedger(
            "This Python's SQLite is too old.", "3.37 or newer is needed.", "Update Python."
        )
    # wherever the process may go
    if path is None:
        place = None
    else:
        place = Path(path).absolute()
    if place is not None:
        _refuse_or_make(place, begin)
    return SqlLedger(_SqliteStore(place), begin=begin)


class _SqliteStore:
    """The store behind books in SQLite."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._logs: list[tuple[int, int] | None] = [None] * len(LOGS)
        if path is not None:
            with _FORKING:
                _STORES.add(self)

    def __del__(self) -> None:
        self._close()

    def get_key_stem(self, identity: str) -> Path | None:
        """The key and the heads are files with the name of the books and an ending."""
        return self._path

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Runs the work alone and commits it, or raises and leaves everything as it was."""

        def alone(transaction: Transaction) -> Result:
            result = work(transaction)
            ledger.fault_point("written")
            return result

        return self._run_transaction("BEGIN IMMEDIATE", alone)

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Runs the work on one unchanging state of the books."""
        return self._run_transaction("BEGIN", work)

    def check(self) -> None:
        """Raise if the database itself is damaged."""
        expected = _SqliteStore(None)
        expected.write(sql_reading.migrate)
        if self.read(_read_condition) != expected.read(_read_condition):
            raise _make_error(sqlite3.SQLITE_CORRUPT)

    def _run_transaction(self, begin: str, work: Callable[[Transaction], Result]) -> Result:
        with self._lock:
            try:
                connection = self._open()
                self._refuse_lost_log()
                connection.execute(begin)
                result = work(_SqliteTransaction(connection))
                self._refuse_lost_log()
                connection.execute("COMMIT")
                self._refuse_lost_log()
                return result
            except (
                sqlite3.Error,
                UnicodeDecodeError,
            ) as error:  # the latter where its message quotes a damaged text
                cause = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_ERROR
            except OSError:
                cause = sqlite3.SQLITE_CANTOPEN
            finally:
                self._roll_back()
        raise _make_error(
            cause
        )  # outside the handler: SQLite's message may quote what was being written

    def _refuse_lost_log(self) -> None:
        """Raise if the write-ahead log or its index is not the one with which this connection
        began.

        Nobody else reads a log that has lost its name; and the index holds the locks, so two
        writers with an index each would both write.
        """
        if self._path is None:
            return
        real = os.path.realpath(
            self._path
        )  # beside which SQLite keeps them, whatever link was named
        there = [_identify_file(Path(real + ending)) for ending in LOGS]
        # They are made by the first who reads.
        self._logs = [before or now for before, now in zip(self._logs, there, strict=True)]
        if there != self._logs:
            raise LedgerBroken(
                "The write-ahead log of the ledger, or its index, was removed or exchanged while "
                "they were open.",
                "What is written belongs to the files of these names; this session would write "
                "where nobody reads.",
                "Release nothing, close every session on this ledger, and verify it: entries "
                "may be missing.",
            )

    def _roll_back(self) -> None:
        """Rolls back what was not committed."""
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                self._connection = (
                    None  # a connection that cannot even do that is given up, and with it the work
                )

    def _open(self) -> sqlite3.Connection:
        """Return the connection to the file that has the name now: one that lost it would keep
        books nobody reads.
        """
        if self._path is not None and self._file != _identify_file(self._path):
            self._close()
        if self._connection is None:
            if self._path is not None and not os.path.exists(self._path):
                raise FileNotFoundError  # which SQLite would make anew
            self._logs = [None] * len(LOGS)
            self._connection = _connect(self._path or ":memory:")
            if self._path is None:
                self._file = None
            else:
                self._file = _identify_file(self._path)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def pause(self) -> None:
        """Waits for other threads, and closes; the next transaction opens the file again."""
        self._lock.acquire()
        self._close()

    def resume(self, *, in_child: bool) -> None:
        """Lets other threads in, which a child does not have."""
        if in_child:
            self._lock = threading.RLock()
        else:
            self._lock.release()


#: Locks of SQLite do not survive a fork: a child that used its parent's connection, or a parent
#: that closed it while the child goes on, would write into a log that nobody reads. So files are
#: closed before a fork.
_STORES: weakref.WeakSet[_SqliteStore] = weakref.WeakSet()
_PAUSED: list[_SqliteStore] = []


#: Threads that fork take turns: each would wait for the files that another has paused.
_FORKING = threading.Lock()


def _before_fork() -> None:
    _FORKING.acquire()
    _PAUSED.extend(_STORES)
    for file in _PAUSED:
        file.pause()


def _after_fork(*, in_child: bool) -> None:
    global _FORKING
    while _PAUSED:
        _PAUSED.pop().resume(in_child=in_child)
    if in_child:  # where the thread that would let others in is this one
        _FORKING = threading.Lock()
    else:
        _FORKING.release()


def _refuse_or_make(path: Path, begin: bool | None) -> None:
    """Make the file of new books where there is none.

    Refuses an empty one, which may be books that were lost.
    """
    log = path.with_name(
        path.name + "-wal"
    ).exists()  # looked for first: whoever makes books makes the file before it
    there = path.exists()
    if not there and log:
        raise LedgerBroken(
            "The file of the ledger is gone, and its write-ahead log is still there.",
            "A log belongs to one file, and would be read into a new one.",
            "Put the file back that was beside the log; or, if there is none, take the log away.",
        )
    if not there and begin is not False:
        made = _make_file(path)
        if not made:
            raise _make_error(sqlite3.SQLITE_CANTOPEN)
    elif not there or (not begin and _is_empty(path)):
        raise sql_reading.no_ledger_error()
    elif _is_empty(path):
        _restrict_to_owner(path)


def _is_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0


def _restrict_to_owner(path: Path) -> None:
    """Take an empty file for books away from everybody else."""
    try:
        path.chmod(0o600)
        return
    except OSError:
        pass  # raised below
    raise _make_error(sqlite3.SQLITE_CANTOPEN)


def _make_file(path: Path) -> bool:
    """Make a file that says that it is for books, under its name at once: it is never there and
    empty.
    """
    private_files.refuse_unsafe(path.parent)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent)  # which only its owner may read
    except OSError:
        return False
    os.close(handle)
    try:
        with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("PRAGMA journal_mode = WAL")
        with contextlib.suppress(FileExistsError):  # somebody else was quicker
            os.link(name, path)
        return True
    except (sqlite3.Error, OSError):
        return False
    finally:
        for ending in ("", "-wal", "-shm"):
            Path(name + ending).unlink(missing_ok=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=partial(_after_fork, in_child=False),
        after_in_child=partial(_after_fork, in_child=True),
    )


def _connect(path: Path | str) -> sqlite3.Connection:
    with contextlib.ExitStack() as unless_it_works:
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT / 1000, isolation_level=None, check_same_thread=False
        )
        unless_it_works.callback(connection.close)
        for pragma in (
            f"busy_timeout = {BUSY_TIMEOUT}",
            "synchronous = FULL",
            "fullfsync = 1",
            "temp_store = MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}")
        _refuse_others(connection)
        _enable_write_ahead(connection)
        unless_it_works.pop_all()
    return connection


def _enable_write_ahead(connection: sqlite3.Connection) -> None:
    """Changes new books to a write-ahead log.

    SQLite does not wait for others who do the same, so this does.
    """
    until = time.monotonic() + BUSY_TIMEOUT / 1000
    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.01)


def _refuse_others(connection: sqlite3.Connection) -> None:
    """Nothing is changed in a database that is somebody else's."""
    mark, tables = connection.execute(
        "SELECT application_id, (SELECT COUNT(*) FROM sqlite_schema) FROM pragma_application_id"
    ).fetchone()
    if tables and mark != APPLICATION_ID:
        raise _make_error(sqlite3.SQLITE_NOTADB)


def _identify_file(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _read_condition(transaction: Transaction) -> list[tuple[Any, ...]]:
    """What SQLite says about the file, and what the file says about its tables: nobody dropped a
    CHECK.
    """
    tables = transaction.run("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name")
    return transaction.run("PRAGMA integrity_check") + tables


class _SqliteTransaction:
    """One transaction of SQLite."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows that a statement answers, if it answers any."""
        return self._connection.execute(statement, values).fetchall()

    def count(self, statement: str) -> int:
        """Return how many rows a statement has changed."""
        return self._connection.execute(statement).rowcount

    def stage(self, lines: Any) -> None:
        """Fills the temporary table ``staged`` in bulk."""
        self.run(
            "CREATE TEMP TABLE IF NOT EXISTS staged (person BLOB, account INTEGER, amount INTEGER)"
        )
        self.run("DELETE FROM staged")
        if len(lines):
            both = lines["account"].astype(np.int64) * AMOUNT_BASE + lines["amount"]
            self.run(STAGE, len(lines), lines["person"].tobytes(), _format_digits(both))

    def read_balances(self, account: int, accounts: int) -> tuple[bytes, Any]:
        """Return everybody who has this account, in order of their digests, and what is left of
        it.
        """
        people = []
        left = []
        for low, high in sql_reading.split_ranges(accounts):
            digests, amounts = self.run(READ_BALANCES, account, low, high)[0]
            people.append(bytes.fromhex(digests or ""))
            left.append(np.fromstring(amounts or "", dtype=np.int64, sep=" "))
        return b"".join(people), np.concatenate(left)

    def version(self) -> int:
        """Return the version of the tables; 0 where there are none."""
        return int(self.run("PRAGMA user_version")[0][0])

    def define(self, statements: Sequence[str], version: int) -> None:
        """Makes or changes tables, and notes their version."""
        for statement in statements:
            self.run(statement + " STRICT, WITHOUT ROWID" * statement.startswith("CREATE TABLE"))
        self.run(f"PRAGMA user_version = {version}")
        self.run(f"PRAGMA application_id = {APPLICATION_ID}")


def _format_digits(numbers: Any) -> bytes:
    """Return numbers one after the other, each with leading zeros."""
    digits = np.empty((len(numbers), NUMBER_DIGITS), dtype=np.uint8)
    rest = numbers
    for place in reversed(range(NUMBER_DIGITS)):
        rest, digits[:, place] = np.divmod(rest, 10)
    return bytes((digits + ord("0")).tobytes())


def _make_error(cause: int) -> SottovoceError:
    if cause & 0xFF in DAMAGE_CODES:  # the low byte is the cause, the rest its circumstances
        return LedgerBroken(
            "The file is damaged, or is not a ledger.",
            "",
            "Put the last good copy back, and verify it.",
        )
    return LedgerUnavailable(
        "The ledger cannot be opened or written: the file is busy, read-only, on a full disk or "
        "out of reach.",
        "A charge is written before a private value is read.",
        "Mend that and ask again under the same key; nothing was charged by this attempt.",
    )
