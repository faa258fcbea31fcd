# SPDX-License-Identifier: Apache-2.0
"""Silence of the driver of PostgreSQL while the ledger talks to a server: its log lines name hosts
and users.

Witnesses: places elsewhere that keep the heads of the books, so that a copy of the books cannot
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

The witnesses of one ledger: their list beside the books, and what they have to say.

The list is written into the file of heads as a digest, so that nobody takes it away unnoticed who
cannot write that file. More than half of the witnesses must be reached before anything is written,
and must keep its head before anything is read: any two copies of the books then have one in common,
which tells the second of the first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sottovoce import private_files
from sottovoce.errors import InvalidParameter, LedgerUnavailable
from sottovoce.ledgers import hash_chain
from sottovoce.ledgers.keyfile import (
    LIST,
    LedgerKeyFile,
    Signer,
    is_signed,
    make_entry_message,
    make_tree_message,
)

_SILENCED = threading.local()


class _DriverFilter(logging.Filter):
    """Drops what is logged by a thread that is talking for the ledger, and nothing of anybody
    else.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is logged."""
        return not getattr(_SILENCED, "now", False)


_FILTER = _DriverFilter()


@contextlib.contextmanager
def silence_driver() -> Iterator[None]:
    """Lets the driver log nothing on this thread meanwhile."""
    logging.getLogger("psycopg").addFilter(_FILTER)  # the same one, however often
    before = getattr(_SILENCED, "now", False)
    _SILENCED.now = True
    try:
        yield
    finally:
        _SILENCED.now = before


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
        """Make the place where heads are kept, if it is not there."""

    def store_head(self, ledger: str, head: Head) -> None:
        """Keep a head, for good."""

    def read(self, ledger: str, since: int) -> tuple[list[Head], int]:
        """Return the heads that were given after this place, and the place of the last."""


def open_witness(address: str, signer: Signer, seen: Callable[[Tree | None], Tree]) -> Witness:
    """Return the witness at an address.

    ``seen`` remembers the last tree of a log, and returns it.
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
        parameter="address",
    )


def describe_address(address: str, number: int) -> str:
    """Return what can be printed of an address: one of a server may hold a password."""
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
        """Return the heads in lines after this place, in bytes."""
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
        """Make the folder with an empty log."""
        with _translate_errors():
            self._records.parent.mkdir(mode=0o700, exist_ok=True)
            for path in (self._records, self._trees):
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        self._seen(Tree(0, hash_chain.compute_merkle_root([])))

    def store_head(self, ledger: str, head: Head) -> None:
        """Appends a record and the new head of the tree.

        The log must be the one that was seen before, or longer.
        """
        line = f"{ledger} {head.number} {head.digest.hex()} {head.signature.hex()}"
        with _open_locked(self._records, "r+b") as file:
            leaves = [
                hash_chain.hash_record(_encode_record(*record))
                for record in _parse_heads(file.read())
            ]
            self._check_extension(leaves)
            _append_line(file, line)
            leaves.append(hash_chain.hash_record(line.encode()))
            tree = Tree(len(leaves), hash_chain.compute_merkle_root(leaves))
            signature = self._signer.sign(make_tree_message(*tree))
            with _translate_errors(), open(self._trees, "ab") as trees:
                _append_line(trees, f"{tree.size} {tree.root.hex()} {signature.hex()}")
            self._seen(tree)

    def read(self, ledger: str, since: int) -> tuple[list[Head], int]:
        """Return the heads in records after this place.

        Raises if the log is not one that extends what was seen.
        """
        with _open_locked(self._records, "rb") as file:
            records = list(_parse_heads(file.read()))
            leaves = [hash_chain.hash_record(_encode_record(*record)) for record in records]
            if len(leaves) > self._check_extension(leaves):
                self._seen(Tree(len(leaves), hash_chain.compute_merkle_root(leaves)))
        return [head for whose, head in records[since:] if whose == ledger], len(records)

    def read_trees(self) -> list[Tree]:
        """Return all heads of the tree that were signed.

        Raises if one was not, or the records do not lead to it.
        """
        with _open_locked(self._records, "rb") as file:
            leaves = [
                hash_chain.hash_record(_encode_record(*record))
                for record in _parse_heads(file.read())
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
                proof = hash_chain.prove_consistency(leaves, tree.size)
            else:
                proof = []
            signed = is_signed(
                self._signer.public, make_tree_message(*tree), bytes.fromhex(told[3])
            )
            if not signed or not hash_chain.verify_consistency(
                hash_chain.compute_merkle_root(leaves), len(leaves), tree.root, tree.size, proof
            ):
                raise WitnessUnreachable(
                    "a head of its tree was not signed, or its records were changed"
                )
            found.append(tree)
        if leaves and not found:
            raise WitnessUnreachable("the heads of its tree are missing")
        return found

    def _check_extension(self, leaves: list[bytes]) -> int:
        """Return how long the log was that was seen last.

        Raises unless one with these leaves begins with it.
        """
        size, root = self._seen(None)
        if size <= len(leaves):
            proof = hash_chain.prove_consistency(leaves, size)
        else:
            proof = []
        if not hash_chain.verify_consistency(
            hash_chain.compute_merkle_root(leaves), len(leaves), root, size, proof
        ):
            raise WitnessUnreachable("it was cut or rewritten since it was last seen")
        return size


class SqliteWitness:
    """A table in a file of SQLite."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self) -> None:
        """Make the table, in a new file for its owner alone if there is none."""
        with _translate_errors():
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
        with self._connect() as connection:
            connection.execute(CREATE_HEADS.format(place="INTEGER", bytes="BLOB"))

    def store_head(self, ledger: str, head: Head) -> None:
        """Keep a head, for good."""
        with self._connect() as connection:
            connection.execute(INSERT_HEAD, (ledger, *head))

    def read(self, ledger: str, since: int) -> tuple[list[Head], int]:
        """Return the heads that were given after this place."""
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
        """Make the table."""
        with self._connect() as cursor:
            cursor.execute(
                CREATE_HEADS.format(place="BIGINT GENERATED ALWAYS AS IDENTITY", bytes="BYTEA")
            )

    def store_head(self, ledger: str, head: Head) -> None:
        """Keep a head, for good."""
        with self._connect() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            cursor.execute(INSERT_HEAD.replace("?", "%s"), (ledger, *head))

    def read(self, ledger: str, since: int) -> tuple[list[Head], int]:
        """Return the heads that were given after this place."""
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
    """Yield the heads in lines, with their ledgers; what a crash left of a line is passed over."""
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
    """Write a line for good; it begins anew, whatever a crash may have left of the one before."""
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
    """Wait for those who have a file, but not for ever: anybody who can open it can hold it."""
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


#: The digest of no list.
EMPTY_LIST_DIGEST = hashlib.sha256(b"").digest()


class Witnesses:
    """Those who keep the heads of one ledger."""

    def __init__(self, beside: LedgerKeyFile, ledger: str) -> None:
        self._beside = beside
        self._ledger = ledger
        self._places: dict[str, int] = {}
        self.unreached: dict[str, str] = {}
        self.addresses = self._read_list()

    def matches_list(self, listed: bytes | None) -> bool:
        """Whether the list is the one whose digest was written down last."""
        return _digest_list(self.addresses) == (EMPTY_LIST_DIGEST if listed is None else listed)

    def names(self) -> list[str]:
        """Return what can be printed of the addresses."""
        return [
            describe_address(address, number) for number, address in enumerate(self.addresses, 1)
        ]

    def add(self, address: str, head: Head) -> None:
        """Adds a witness, which is given the last head; raises if it cannot be reached."""
        if self._beside.heads is None:
            raise InvalidParameter(
                "A ledger in memory has no witnesses.",
                "",
                "Keep the ledger in a file or on a server.",
            )
        if address in self.addresses or "\n" in address:
            raise InvalidParameter(
                "This witness is in the list already, or is none.",
                "",
                "Name another.",
                parameter="address",
            )
        added = self._open_witness(address)
        try:
            added.make()
            added.store_head(self._ledger, head)
        except WitnessUnreachable as error:
            raise _unavailable_error(f"The witness cannot be used: {error}.") from None
        self._write_list([*self.addresses, address])

    def remove(self, address: str) -> None:
        """Take a witness from the list, by its address or by its number from 1.

        What it holds stays there.
        """
        if address in self.addresses:
            which: str | None = address
        else:
            which = dict(enumerate(self.addresses, 1)).get(_parse_number(address))
        if which is None:
            raise InvalidParameter(
                "There is no such witness in the list.",
                "",
                "Name one that `witness list` shows.",
                parameter="address",
            )
        self._write_list([kept for kept in self.addresses if kept != which])

    def collect_foreign_heads(self, unknown: Callable[[list[Head]], list[Head]]) -> list[Head]:
        """Return the heads that are not in the books, of those that witnesses were given since
        they were last asked.

        Remembers who could not be asked. ``unknown`` returns the heads that are not in the books,
        which are looked at after the witness: whatever it was given from here is in them by then.
        """
        found: list[Head] = []
        self.unreached = {}
        for name, address in zip(self.names(), self.addresses, strict=True):
            try:
                heads, place = self._open_witness(address).read(
                    self._ledger, self._places.get(address, 0)
                )
                others = unknown(heads)
                if not all(map(self._is_signed, others)):
                    raise WitnessUnreachable("it holds a head that nobody has signed")
                found += others
                self._places[address] = place
            except WitnessUnreachable as error:
                self.unreached[name] = str(error)
        return found

    def refuse_unreachable_majority(self, meanwhile: str) -> None:
        """Raise if there are witnesses, and no majority of them could be reached."""
        if self.addresses and 2 * len(self.unreached) >= len(self.addresses):
            raise _unavailable_error("Too few witnesses of this ledger can be reached.", meanwhile)

    def store_head(self, head: Head) -> dict[str, str]:
        """Gives a head to everybody who can be reached, and returns who could not be, and why."""
        failed = {}
        for name, address in zip(self.names(), self.addresses, strict=True):
            try:
                self._open_witness(address).store_head(self._ledger, head)
            except WitnessUnreachable as error:
                failed[name] = str(error)
        return failed

    def make_list_line(self) -> tuple[str, int, bytes]:
        """Return the line for the file of heads that says which list is the right one."""
        return LIST, len(self.addresses), _digest_list(self.addresses)

    def check(self) -> dict[str, str]:
        """Return what each witness holds, in words: all of its heads, and for a log all heads of
        its tree.
        """
        told = {}
        for name, address in zip(self.names(), self.addresses, strict=True):
            opened = self._open_witness(address)
            try:
                heads, _ = opened.read(self._ledger, 0)
                more = ""
                if isinstance(opened, LogWitness):
                    trees = opened.read_trees()
                    if trees:
                        last_size = trees[-1].size
                    else:
                        last_size = 0
                    more = (
                        f"; {len(trees):,} tree heads are signed and consistent, the last of "
                        f"{last_size:,} records"
                    )
                last = max((head.number for head in heads), default=0)
                told[name] = f"{len(heads):,} heads, the newest of entry {last:,}{more}"
            except WitnessUnreachable as error:
                told[name] = f"not reached: {error}"
        return told

    def _is_signed(self, head: Head) -> bool:
        message = make_entry_message(self._ledger, head.number, head.digest)
        return is_signed(self._beside.signer.public, message, head.signature)

    def _open_witness(self, address: str) -> Witness:
        return open_witness(address, self._beside.signer, self._make_tree_store(address))

    def _make_tree_store(self, address: str) -> Callable[[Tree | None], Tree]:
        """Return what keeps the last tree of a log beside the books, authenticated with the key."""
        name = self._beside.hidden(address)[:32]
        path = self._make_path(f".tree-{name}")

        def seen(tree: Tree | None) -> Tree:
            if tree is not None:
                _write_file(
                    path, json.dumps([tree.size, tree.root.hex(), self._compute_code(name, tree)])
                )
                return tree
            try:
                size, root, code = json.loads(path.read_text(encoding="ascii"))
                last = Tree(int(size), bytes.fromhex(root))
                if secrets.compare_digest(code, self._compute_code(name, last)):
                    return last
            except (OSError, ValueError, TypeError):
                pass  # raised below
            raise WitnessUnreachable("what was last seen of it is missing beside the ledger")

        return seen

    def _compute_code(self, name: str, tree: Tree) -> str:
        return self._beside.hidden(f"tree {name} {tree.size} {tree.root.hex()}")

    def _make_path(self, ending: str) -> Path:
        heads = self._beside.heads or Path()
        return heads.with_name(heads.name.removesuffix(".heads") + ending)

    def _read_list(self) -> list[str]:
        if self._beside.heads is None:
            return []
        try:
            return self._make_path(".witnesses").read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, UnicodeDecodeError):
            return []  # which is found out, if there was one
        except OSError:
            pass  # raised below
        raise _unavailable_error("The list of witnesses beside the ledger cannot be read.")

    def _write_list(self, addresses: list[str]) -> None:
        _write_file(self._make_path(".witnesses"), "".join(f"{address}\n" for address in addresses))
        self.addresses = addresses
        self._beside.write([self.make_list_line()])


def _digest_list(addresses: list[str]) -> bytes:
    return hashlib.sha256("".join(f"{address}\n" for address in addresses).encode()).digest()


def _parse_number(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 5:
        return int(text)
    return 0


def _write_file(path: Path, text: str) -> None:
    """Write a file as a whole, for its owner alone."""
    try:
        private_files.write(path, text.encode())
        return
    except OSError:
        pass  # raised below
    # It is written with the head of a charge, too.
    raise _unavailable_error(
        "What is known about witnesses cannot be written beside the ledger.",
        "what was reserved stays spent",
    )


def _unavailable_error(found: str, meanwhile: str = "nothing was charged") -> LedgerUnavailable:
    return LedgerUnavailable(
        found,
        "More than half of them keep a head before a value is read, so that no copy of the ledger "
        "is spent again.",
        f"Make them reachable, or take those from the list that are gone for good; {meanwhile}.",
    )
