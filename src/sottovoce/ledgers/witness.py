# SPDX-License-Identifier: Apache-2.0
"""Witnesses: places elsewhere that keep the heads of the books, so that a copy of the books cannot
be spent again.

A head is given to every witness after it was committed and before a private value is read, and
whatever the witness was given by others is read at the same time. A head that the books have signed
and that is not in them comes from another copy: they are sealed (docs/theory/ledger.md). A witness
needs no secret, and what strangers write into one is not taken for a head, because heads are
signed.

    file:PATH                       a file, on a share: one line a head
    sqlite:///PATH, postgresql://…  a table in a second database
    log:FOLDER                      an append-only log with signed tree heads: whoever cuts or
                                    rewrites it is found out
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sottovoce.errors import InvalidParameter
from sottovoce.ledgers import merkle
from sottovoce.ledgers.quiet import silence_driver
from sottovoce.ledgers.signing import Signer, is_signed, make_tree_message

FILE = "file:"
LOG = "log:"
SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")
#: Seconds to wait for a witness.
TIMEOUT = 10
#: Any number will do, if all agree on it: who gives heads to a database takes turns, so that places
#: are in order.
LOCK = 0x736F747477
CREATE_HEADS = """
    CREATE TABLE IF NOT EXISTS sottovoce_heads (
    place {place} PRIMARY KEY, ledger TEXT NOT NULL, number BIGINT NOT NULL, \
digest {bytes} NOT NULL,
    signature {bytes} NOT NULL, UNIQUE (ledger, number, digest))"""
INSERT_HEAD = (
    "INSERT INTO sottovoce_heads (ledger, number, digest, signature) VALUES (?, ?, ?, ?) ON "
    "CONFLICT DO NOTHING"
)
SELECT_HEADS = (
    "SELECT place, number, digest, signature FROM sottovoce_heads WHERE ledger = ? AND place > ? "
    "ORDER BY place"
)
_LINE = re.compile(r"([0-9a-f]{32}) ([0-9]{1,18}) ([0-9a-f]{64}) ([0-9a-f]{128})")
_TORN = re.compile(
    r"[0-9a-f]{0,32}|[0-9a-f]{32} [0-9]{0,18}"
    r"|[0-9a-f]{32} [0-9]{1,18} [0-9a-f]{0,64}( [0-9a-f]{0,127})?"
)
_TREE = re.compile(r"([0-9]{1,18}) ([0-9a-f]{64}) ([0-9a-f]{128})")
_TORN_TREE = re.compile(r"[0-9]{0,18}( [0-9a-f]{0,64}( [0-9a-f]{0,127})?)?")


class Head(NamedTuple):
    """The last entry of the books at some time, as they have signed it."""

    number: int
    digest: bytes
    signature: bytes


class Tree(NamedTuple):
    """How long a log was, and the root of its records."""

    size: int
    root: bytes


class WitnessUnreachable(Exception):
    """A witness that cannot be asked; says why, without an address."""


class Witness(Protocol):
    """Keeps heads, and gives them back."""

    def make(self) -> None:
        """Makes the place where heads are kept, if it is not there."""

    def store_head(self, ledger: str, head: Head) -> None:
        """Keeps a head, for good."""

    def read(self, ledger: str, since: int) -> tuple[list[Head], int]:
        """Returns the heads that were given after this place, and the place of the last."""


def open_witness(address: str, signer: Signer, seen: Callable[[Tree | None], Tree]) -> Witness:
    """Returns the witness at an address; ``seen`` remembers the last tree of a log, and returns
    it.
    """
    path = address.partition(":")[2]
    if address.startswith(FILE) and path:
        return FileWitness(Path(path).absolute())
    if address.startswith(LOG) and path:
        return LogWitness(Path(path).absolute(), signer, seen)
    if address.startswith(SQLITE) and address != SQLITE:
        return SqliteWitness(Path(address.removeprefix(SQLITE)).absolute())
    if address.startswith(POSTGRES):
        return PostgresWitness(address)
    raise InvalidParameter(
        "There is no witness of this kind.",
        "An address begins with file:, log:, sqlite:/// or postgresql://.",
        "Choose one of these.",
    )


def describe_address(address: str, number: int) -> str:
    """Returns what can be printed of an address: one of a server may hold a password."""
    if address.startswith(POSTGRES):
        return f"{address.partition(':')[0]} (witness {number})"
    return address


class FileWitness:
    """A file with one line a head, of any number of ledgers."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self) -> None:
        """Makes the file, and lets nobody else look: it tells when something was released."""
        with _translate_errors():
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))

    def store_head(self, ledger: str, head: Head) -> None:
        """Appends a line, for good."""
        with _open_locked(self._path, "ab") as file:
            _append_line(file, f"{ledger} {head.number} {head.digest.hex()} {head.signature.hex()}")

    def read(self, ledger: str, since: int) -> tuple[list[Head], int]:
        """Returns the heads in lines after this place, in bytes."""
        with _open_locked(self._path, "rb") as file:
            content = _read_after(file, since)
        return [head for whose, head in _parse_heads(content) if whose == ledger], since + len(
            content
        )


class LogWitness:
    """An append-only log: records, and after each the size and root of the tree, signed by the
    books.
    """

    def __init__(self, folder: Path, signer: Signer, seen: Callable[[Tree | None], Tree]) -> None:
        self._records = folder / "records"
        self._trees = folder / "trees"
        self._signer = signer
        self._seen = seen

    def make(self) -> None:
        """Makes the folder with an empty log."""
        with _translate_errors():
            self._records.parent.mkdir(mode=0o700, exist_ok=True)
            for path in (self._records, self._trees):
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        self._seen(Tree(0, merkle.compute_root([])))

    def store_head(self, ledger: str, head: Head) -> None:
        """Appends a record and the new head of the tree; the log must be the one that was seen
        before, or longer.
        """
        line = f"{ledger} {head.number} {head.digest.hex()} {head.signature.hex()}"
        with _open_locked(self._records, "r+b") as file:
            leaves = [
                merkle.hash_record(_encode_record(*record)) for record in _parse_heads(file.read())
            ]
            self._check_extension(leaves)
            _append_line(file, line)
            leaves.append(merkle.hash_record(line.encode()))
            tree = Tree(len(leaves), merkle.compute_root(leaves))
            signature = self._signer.sign(make_tree_message(*tree))
            with _translate_errors(), open(self._trees, "ab") as trees:
                _append_line(trees, f"{tree.size} {tree.root.hex()} {signature.hex()}")
            self._seen(tree)

    def read(self, ledger: str, since: int) -> tuple[list[Head], int]:
        """Returns the heads in records after this place; raises if the log is not one that extends
        what was seen.
        """
        with _open_locked(self._records, "rb") as file:
            records = list(_parse_heads(file.read()))
            leaves = [merkle.hash_record(_encode_record(*record)) for record in records]
            if len(leaves) > self._check_extension(leaves):
                self._seen(Tree(len(leaves), merkle.compute_root(leaves)))
        return [head for whose, head in records[since:] if whose == ledger], len(records)

    def read_trees(self) -> list[Tree]:
        """Returns all heads of the tree that were signed; raises if one was not, or the records do
        not lead to it.
        """
        with _open_locked(self._records, "rb") as file:
            leaves = [
                merkle.hash_record(_encode_record(*record)) for record in _parse_heads(file.read())
            ]
            with _translate_errors():
                lines = self._trees.read_text(encoding="ascii", errors="replace").split("\n")
        found = []
        for line in lines:
            told = _TREE.fullmatch(line)
            if told is None:
                if _TORN_TREE.fullmatch(line.rstrip("\0")) is None:
                    raise WitnessUnreachable("a head of its tree is damaged")
                continue
            tree = Tree(int(told[1]), bytes.fromhex(told[2]))
            if tree.size <= len(leaves):
                proof = merkle.prove_consistency(leaves, tree.size)
            else:
                proof = []
            signed = is_signed(
                self._signer.public, make_tree_message(*tree), bytes.fromhex(told[3])
            )
            if not signed or not merkle.verify_consistency(
                merkle.compute_root(leaves), len(leaves), tree.root, tree.size, proof
            ):
                raise WitnessUnreachable(
                    "a head of its tree was not signed, or its records were changed"
                )
            found.append(tree)
        if leaves and not found:
            raise WitnessUnreachable("the heads of its tree are missing")
        return found

    def _check_extension(self, leaves: list[bytes]) -> int:
        """Returns how long the log was that was seen last; raises unless one with these leaves
        begins with it.
        """
        size, root = self._seen(None)
        if size <= len(leaves):
            proof = merkle.prove_consistency(leaves, size)
        else:
            proof = []
        if not merkle.verify_consistency(
            merkle.compute_root(leaves), len(leaves), root, size, proof
        ):
            raise WitnessUnreachable("it was cut or rewritten since it was last seen")
        return size


class SqliteWitness:
    """A table in a file of SQLite."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self) -> None:
        """Makes the table, in a new file for its owner alone if there is none."""
        with _translate_errors():
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
        with self._connect() as connection:
            connection.execute(CREATE_HEADS.format(place="INTEGER", bytes="BLOB"))

    def store_head(self, ledger: str, head: Head) -> None:
        """Keeps a head, for good."""
        with self._connect() as connection:
            connection.execute(INSERT_HEAD, (ledger, *head))

    def read(self, ledger: str, since: int) -> tuple[list[Head], int]:
        """Returns the heads that were given after this place."""
        with self._connect() as connection:
            return _read_rows(connection.execute(SELECT_HEADS, (ledger, since)).fetchall(), since)

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        if not self._path.is_file():  # which SQLite would make anew
            raise WitnessUnreachable("it cannot be read or written")
        with (
            _translate_errors(sqlite3.Error),
            contextlib.closing(sqlite3.connect(self._path, timeout=TIMEOUT)) as connection,
        ):
            connection.execute("PRAGMA synchronous = FULL")
            with connection:
                yield connection


class PostgresWitness:
    """A table on a server; whoever gives heads needs no right to change or delete any."""

    def __init__(self, address: str) -> None:
        self._address = address

    def make(self) -> None:
        """Makes the table."""
        with self._connect() as cursor:
            cursor.execute(
                CREATE_HEADS.format(place="BIGINT GENERATED ALWAYS AS IDENTITY", bytes="BYTEA")
            )

    def store_head(self, ledger: str, head: Head) -> None:
        """Keeps a head, for good."""
        with self._connect() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            cursor.execute(INSERT_HEAD.replace("?", "%s"), (ledger, *head))

    def read(self, ledger: str, since: int) -> tuple[list[Head], int]:
        """Returns the heads that were given after this place."""
        with self._connect() as cursor:
            cursor.execute(SELECT_HEADS.replace("?", "%s"), (ledger, since))
            return _read_rows(cursor.fetchall(), since)

    @contextlib.contextmanager
    def _connect(self) -> Iterator[Any]:
        try:
            import psycopg
        except ImportError:
            raise WitnessUnreachable("psycopg is not installed") from None
        wait = f"-c lock_timeout={TIMEOUT}s -c statement_timeout={TIMEOUT}s"
        with (
            silence_driver(),
            _translate_errors(psycopg.Error),
            psycopg.connect(self._address, connect_timeout=TIMEOUT, options=wait) as connection,
            connection.cursor() as cursor,
        ):
            yield cursor


def _read_rows(rows: list[tuple[Any, ...]], since: int) -> tuple[list[Head], int]:
    # Whoever owns the database puts anything into it: bytes of a number would be as many zeros.
    if any(tuple(map(type, row)) != (int, int, bytes, bytes) for row in rows):
        raise WitnessUnreachable("what it holds is damaged")
    return [Head(*row[1:]) for row in rows], rows[-1][0] if rows else since


def _encode_record(ledger: str, head: Head) -> bytes:
    return f"{ledger} {head.number} {head.digest.hex()} {head.signature.hex()}".encode()


def _parse_heads(content: bytes) -> Iterator[tuple[str, Head]]:
    """Yields the heads in lines, with their ledgers; what a crash left of a line is passed over."""
    for line in content.decode("ascii", "replace").split("\n"):
        told = _LINE.fullmatch(line)
        if told is not None:
            yield told[1], Head(int(told[2]), bytes.fromhex(told[3]), bytes.fromhex(told[4]))
        elif _TORN.fullmatch(line.rstrip("\0")) is None:
            raise WitnessUnreachable("what it holds is damaged")


def _read_after(file: Any, since: int) -> bytes:
    if os.fstat(file.fileno()).st_size < since:
        raise WitnessUnreachable("it was cut since it was last seen")
    file.seek(since)
    return bytes(file.read())


def _append_line(file: Any, line: str) -> None:
    """Writes a line for good; it begins anew, whatever a crash may have left of the one before."""
    file.seek(0, os.SEEK_END)
    file.write(f"\n{line}\n".encode())
    file.flush()
    os.fsync(file.fileno())


@contextlib.contextmanager
def _open_locked(path: Path, mode: str) -> Iterator[Any]:
    """Opens a file that must be there, and waits until nobody else has it."""
    with _translate_errors():
        if not path.is_file():
            raise WitnessUnreachable("it cannot be read or written")
        with open(path, mode) as file:
            try:
                import fcntl
            except (
                ImportError
            ):  # where there are no such locks, a line is as whole as the system makes it
                yield file
                return
            _take_turns(
                file,
                (fcntl.LOCK_SH if mode == "rb" else fcntl.LOCK_EX) | fcntl.LOCK_NB,
                fcntl.flock,
            )
            yield file


def _take_turns(file: Any, how: int, lock: Callable[[Any, int], None]) -> None:
    """Waits for those who have a file, but not for ever: anybody who can open it can hold it."""
    until = time.monotonic() + TIMEOUT
    while time.monotonic() < until:
        with contextlib.suppress(BlockingIOError):
            lock(file, how)
            return
        time.sleep(0.01)
    raise WitnessUnreachable("somebody else does not let go of it")


@contextlib.contextmanager
def _translate_errors(kinds: type[Exception] = OSError) -> Iterator[None]:
    """Turns what goes wrong with a place into one sentence: messages may quote an address."""
    try:
        yield
        return
    except (OSError, kinds):
        pass  # raised below
    raise WitnessUnreachable("it cannot be read or written")
