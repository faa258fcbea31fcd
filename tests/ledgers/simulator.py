"""One seed, one schedule: operations on the books, faults in their way, and a reference that is not
the books.

Several handles (as of several processes) grant, reserve, charge, publish, ask again and reopen. In
their way: a crash at any labelled step, a full disk, a cut connection, a file of heads that cannot
be written, an older copy put in place, an edit around the library. After every operation the books
must be where the reference is, which knows nothing of databases, chains, keys or signatures:
dictionaries of what was granted, spent and stored, and a count of entries.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ledgers.places import Place
from sottovoce import errors, ledger
from sottovoce.ledger import ACCOUNTS, Amounts
from sottovoce.ledgers import postgres, sqlite
from sottovoce.ledgers.keyfile import LedgerKeyFile
from sottovoce.ledgers.sql_ledger import SqlLedger

PEOPLE = ["ada", "ben", "cleo", "17", "Zoë"]
KINDS = [ACCOUNTS[0], ACCOUNTS[2], ACCOUNTS[5]]
HANDLES = 3
#: What the books may say about an attempt that a fault was in the way of.
REFUSALS = (errors.LedgerUnavailable, errors.LedgerBroken)


class Violation(AssertionError):
    """The books are not where the reference is."""


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Reference:
    """What must be true: caps, what is spent, what is stored under each key, and how many entries
    there are.
    """

    granted: dict[tuple[str, str], int] = field(default_factory=dict)
    spent: dict[tuple[str, str], int] = field(default_factory=dict)
    paid: dict[str, str] = field(
        default_factory=dict
    )  # keys, and whether they were reserved or charged from outside
    stored: dict[str, str] = field(default_factory=dict)
    entries: int = 1

    def grant(self, account: str, amounts: dict[str, int]) -> None:
        for person, units in amounts.items():
            self.granted[person, account] = units
            self.spent.setdefault((person, account), 0)
        self.entries += 1

    def verdict(self, key: str, account: str, amounts: dict[str, int], outside: bool) -> str:
        """What must happen if this is asked for now."""
        if key in self.paid:
            return "known"
        wanted = {(person, account): units for person, units in amounts.items() if units}
        if outside:
            return "done"
        if any(at not in self.granted for at in wanted):
            return "unknown"
        if any(units > self.left(*at) for at, units in wanted.items()):
            return "short"
        return "done"

    def pay(self, key: str, account: str, amounts: dict[str, int], outside: bool) -> None:
        for person, units in amounts.items():
            if units:
                self.granted.setdefault((person, account), 0)
                self.spent[person, account] = self.spent.get((person, account), 0) + units
        if outside:
            self.paid[key] = "outside"
        else:
            self.paid[key] = "reserved"
        self.entries += 1

    def store(self, key: str, text: str) -> None:
        self.entries += key not in self.stored
        self.stored[key] = text

    def left(self, person: str, account: str) -> int:
        return max(self.granted[person, account] - self.spent.get((person, account), 0), 0)


class Simulation:
    """One schedule on one place."""

    def __init__(self, place: Place, seed: int, operations: int) -> None:
        self.place = place
        self.dice = random.Random(seed)
        self.operations = operations
        self.reference = Reference()
        self.done = Counter()
        self.number = 0
        self.handles = [place.open() for _ in range(HANDLES)]

    def run(self) -> Counter:
        for _ in range(self.operations):
            name = self.dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            self.done[name] += 1
            getattr(self, name)()
            self.agree()
        self.books().verify()
        for number in range(HANDLES):
            self.handles[number]._store._close()
        return self.done

    # What is asked for.

    def books(self) -> SqlLedger:
        return self.dice.choice(self.handles)

    def amounts(self) -> dict[str, int]:
        chosen = self.dice.sample(PEOPLE, self.dice.randint(0, len(PEOPLE)))
        return {person: self.dice.choice([0, 1, 5, 20, 10**15]) for person in chosen}

    def key(self, known: bool = False) -> str:
        if known and self.reference.paid:
            return self.dice.choice(list(self.reference.paid))
        self.number += 1
        return f"key {self.number}"

    def grant(self) -> None:
        account = self.dice.choice(KINDS)
        amounts = self.amounts()
        self.books().grant(packed(account, amounts))
        self.reference.grant(account, amounts)

    def reserve(self, books: SqlLedger | None = None, outside: bool = False) -> None:
        key = self.key()
        account = self.dice.choice(KINDS)
        amounts = self.amounts()
        verdict = self.reference.verdict(key, account, amounts, outside)
        wanted = {"unknown": errors.UnknownPeople, "short": errors.BudgetExceeded}.get(verdict)
        try:
            made = (books or self.books()).reserve(
                key, "asked", packed(account, amounts), outside=outside
            )
        except (errors.UnknownPeople, errors.BudgetExceeded) as error:
            expect(
                type(error) is wanted,
                "a reservation was refused for another reason, or without one",
            )
            return
        expect(wanted is None and made.fresh, "somebody was charged who could not pay")
        self.reference.pay(key, account, amounts, outside)

    def charge(self) -> None:
        self.reserve(outside=True)

    def publish(self) -> None:
        key = self.key(known=True)
        text = f'{{"answer": {self.dice.randint(0, 9)}}}'
        allowed = (
            self.reference.paid.get(key) == "reserved"
            and self.reference.stored.get(key, text) == text
        )
        try:
            self.books().publish(key, text)
        except errors.KeyReused:
            expect(not allowed, "a release was refused that could have been stored")
            return
        expect(allowed, "a release was stored under a key that does not hold it")
        self.reference.store(key, text)

    def ask_again(self) -> None:
        key = self.key(known=True)
        known = self.books().find(key)
        expect(
            (known is not None) == (key in self.reference.paid), "a key is forgotten, or invented"
        )
        if known is not None:
            again = self.books().reserve(key, "asked", packed(KINDS[0], {"ada": 1}))
            expect(not again.fresh, "a key was charged twice")
            expect(again.release == self.reference.stored.get(key), "other bytes are stored")

    def reopen(self) -> None:
        self.handles[self.dice.randrange(HANDLES)] = self.place.open()

    def verify(self) -> None:
        self.books().verify()

    # What is in the way.

    def crash(self) -> None:
        """At any labelled step of anything; the handle is gone with its process."""
        which = self.dice.randrange(HANDLES)
        left = [self.dice.randrange(5)]
        committed: list[str] = []

        def reached(step: str) -> None:
            if step.endswith("committed"):
                committed.append(step)
            if left[0] == 0:
                raise Crash
            left[0] -= 1

        with put(ledger, "fault_point", reached):
            self.faulty(self.handles[which], Crash, committed)
        self.handles[which] = self.place.open()

    def full_disk(self) -> None:
        """At any statement."""
        books = self.books()
        left = [self.dice.randrange(12)]
        fault = trouble(self.place, self.dice)
        if self.place.server:
            kind = postgres._PostgresTransaction
        else:
            kind = sqlite._SqliteTransaction
        original = kind.run

        def run(own: Any, statement: str, *values: Any) -> Any:
            if left[0] == 0:
                left[0] = -1
                raise fault
            left[0] -= 1
            return original(own, statement, *values)

        with put(kind, "run", run):
            self.faulty(books, REFUSALS)

    def cut_connection(self) -> None:
        if self.place.server:
            self.place.ask(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                "pg_backend_pid()"
            )
            for books in self.handles:  # each finds out by itself, once
                try:
                    books.find("nothing")
                except errors.LedgerUnavailable:
                    continue
        else:
            for books in self.handles:
                books._store._close()

    def no_room_for_heads(self) -> None:
        """The reservation is committed, and its head cannot be written: it stays spent, and nothing
        is read.
        """

        def write(*arguments: Any) -> None:
            raise errors.LedgerUnavailable("no room")

        with put(LedgerKeyFile, "write", write):
            self.faulty(self.books(), REFUSALS)

    def faulty(self, books: SqlLedger, kinds: Any, committed: list[str] | None = None) -> None:
        """One attempt with a fault in its way: it happened as a whole or not at all, and is told so
        or not.
        """
        key = self.key()
        account = self.dice.choice(KINDS)
        amounts = self.amounts()
        outside = self.dice.random() < 0.3
        verdict = self.reference.verdict(key, account, amounts, outside)
        try:
            books.reserve(key, "asked", packed(account, amounts), outside=outside)
        except (errors.UnknownPeople, errors.BudgetExceeded):
            expect(verdict in ("unknown", "short"), "a fault was taken for a refusal")
            return
        except kinds:
            told = False
        else:
            told = True
        happened = bool(self.place.ask("SELECT number FROM entries WHERE key = ?", key))
        expect(happened or not told, "a reservation that was acknowledged is lost")
        expect(happened or not committed, "a reservation that was committed is lost")
        expect(not happened or verdict == "done", "somebody was charged who could not pay")
        if happened:
            self.reference.pay(key, account, amounts, outside)

    def older_copy(self) -> None:
        """A copy is kept, the books go on, and the copy is put in place: sealed. The right one goes
        on.
        """
        older = Copy(self.place, self.handles)
        before = self.reference.entries
        self.grant()
        self.reserve()
        newest = Copy(self.place, self.handles)
        older.put_back()
        found = self.place.open()
        expect(
            found.sealed or self.reference.entries == before, "an older copy is taken for the books"
        )
        try:
            found.grant([])
        except errors.LedgerSealed:
            pass
        else:
            raise Violation("an older copy was written")
        found._store._close()
        newest.put_back()
        self.handles = [self.place.open() for _ in range(HANDLES)]

    def tamper(self) -> None:
        """An edit around the library: whoever opens or verifies the books notices."""
        kept = Copy(self.place, self.handles)
        before = self.place.rows()
        self.place.ask(self.dice.choice(EDITS))
        if self.place.rows() == before:
            return
        try:
            self.place.open().verify()
        except (errors.LedgerBroken, errors.LedgerSealed):
            pass
        else:
            raise Violation("an edit was not noticed")
        kept.put_back()
        self.handles = [self.place.open() for _ in range(HANDLES)]

    # What must be true after every operation.

    def agree(self) -> None:
        books = self.books()
        expect(not books.sealed, "good books are sealed")
        for account in KINDS:
            people = [person for person in PEOPLE if (person, account) in self.reference.granted]
            if people:
                found = books.balances(people, account).tolist()
                expect(
                    found == [self.reference.left(person, account) for person in people],
                    "a balance is wrong",
                )
        ((entries,),) = books._store.read(
            lambda transaction: transaction.run("SELECT COUNT(*) FROM entries")
        )
        expect(entries == self.reference.entries, "an entry is missing, or too many are there")


WEIGHTS = {
    "grant": 20,
    "reserve": 30,
    "charge": 8,
    "publish": 15,
    "ask_again": 15,
    "reopen": 8,
    "verify": 3,
    "crash": 12,
    "full_disk": 8,
    "cut_connection": 4,
    "no_room_for_heads": 4,
    "older_copy": 2,
    "tamper": 3,
}
#: The first or the last of what there is, changed in one place.
EDITS = [
    "UPDATE accounts SET granted = granted + 1, cap = cap + 1",
    "UPDATE accounts SET spent = spent - 1 WHERE spent > 0",
    "UPDATE lines SET amount = amount + 1",
    "UPDATE entries SET key = key || '!' WHERE what = 'charge'",
    "UPDATE entries SET at = 'never' WHERE number = (SELECT MAX(number) FROM entries)",
    "DELETE FROM signatures WHERE number = (SELECT MAX(number) FROM signatures)",
    "DELETE FROM entries WHERE number = (SELECT MAX(number) FROM entries)",
    "DELETE FROM accounts",
    "UPDATE releases SET text = '{}'",
    "DELETE FROM releases",
    "INSERT INTO entries SELECT number + 1, 'grant', '', '', at, 0, root, digest FROM entries"
    " WHERE number = (SELECT MAX(number) FROM entries)",
]


class Copy:
    """Everything in the database, as it is now: not what lies beside it."""

    def __init__(self, place: Place, handles: list[SqlLedger]) -> None:
        self._place = place
        for books in handles:
            books._store._close()
        if place.server:
            self._rows = place.rows()
            return
        self._folder = Path(f"{place.file}.kept-{os.urandom(4).hex()}")
        self._folder.mkdir()
        for path in place.file.parent.glob(place.file.name + "*"):
            if path.suffix == ".db" or path.name.endswith(("-wal", "-shm")):
                shutil.copy(path, self._folder / path.name)

    def put_back(self) -> None:
        if self._place.server:
            import psycopg

            with psycopg.connect(self._place.address, options="-c search_path=sottovoce") as server:
                for table, rows in self._rows.items():
                    server.execute(f"DELETE FROM {table}")
                    for row in rows:
                        server.execute(
                            f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row))})", row
                        )
            return
        for ending in ("", "-wal", "-shm"):
            self._place.file.with_name(self._place.file.name + ending).unlink(missing_ok=True)
        for path in self._folder.iterdir():
            shutil.copy(path, self._place.file.with_name(path.name))


def packed(account: str, amounts: dict[str, int]) -> list[Amounts]:
    return [Amounts(list(amounts), np.array(list(amounts.values()), dtype=np.int64), account)]


def trouble(place: Place, dice: random.Random) -> Exception:
    if place.server:
        import psycopg

        return psycopg.OperationalError("the disk is full")
    error = sqlite3.OperationalError("the disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    if dice.random() < 0.5:
        return error
    return OSError(errno.ENOSPC, "the disk is full")


@contextmanager
def put(owner: Any, name: str, other: Callable[..., Any]):
    """Puts something in the place of something else for a while."""
    original = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, original)


def expect(true: bool, otherwise: str) -> None:
    if not true:
        raise Violation(otherwise)
