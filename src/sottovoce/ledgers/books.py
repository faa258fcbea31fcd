# SPDX-License-Identifier: Apache-2.0
"""The books: what every kind of ledger does, whatever database holds it.

    plan → reserve (committed, and its head written down beside) → run → publish (bytes stored) → answer

A reservation is one transaction for everybody. Nothing refunds it: a release that crashed is seen in the books
as reserved and never published, and stays spent. Every entry holds the digest of the one before.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from sottovoce import ledger
from sottovoce.errors import (
    DuplicatePeople,
    KeyReused,
    LedgerSealed,
    WrongLedgerKey,
)
from sottovoce.ledger import (
    ACCOUNTS,
    USUAL,
    Amounts,
    Entry,
    Everybody,
    Line,
    Reservation,
    code_of,
    in_words,
    refuse_unwritable,
)
from sottovoce.ledgers import beside, chain, reading, schema
from sottovoce.ledgers.beside import ANEW, Beside
from sottovoce.ledgers.chain import NOTHING, Lines
from sottovoce.ledgers.schema import Transaction
from sottovoce.table import refuse_nameless
from sottovoce.units import Units

Result = TypeVar("Result")

#: All accounts are read, and none looked for, unless so many times more have one than are asked for.
MANY = 16


class Store(Protocol):
    """A database that holds the books."""

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Runs the work alone and commits it, or raises and leaves everything as it was."""

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Runs the work on one unchanging state of the books."""

    def check(self) -> None:
        """Raises if the database itself is damaged."""

    def beside(self, identity: str) -> Path | None:
        """Where the key and the heads of books with this number are kept; None: nowhere, they end with the process."""


class Books:
    """A ledger in a database."""

    def __init__(self, store: Store) -> None:
        self._store, self._new, self.sealed = store, Beside(b""), False
        if store.read(lambda transaction: transaction.version()) != len(schema.MIGRATIONS):
            store.write(schema.migrate)
        first = store.read(reading.first) or self._begun()
        stem = store.beside(first.key)
        self._beside = self._new if stem is None else Beside.in_files(stem, new=False)
        if self._beside.check != first.request:
            raise WrongLedgerKey("This key belongs to other books.", "", "Put back their own, or name its folder.")
        self.identity = first.key
        self._last = (first.number, first.digest)
        self.sealed = not store.read(self._follows_from_heads)

    def hidden(self, text: str) -> str:
        """Returns a digest of this text that only the holder of the key can compute."""
        return self._beside.hidden(text)

    def grant(self, amounts: Sequence[Amounts]) -> None:
        """Sets what each person allows in all; below what is spent it freezes them."""
        lines = self._packed(amounts)

        def work(transaction: Transaction) -> Entry:
            transaction.stage(lines)
            transaction.count(schema.GRANT)
            return self._append(transaction, "grant", "", "", root(), lines)

        with chain.hashing(lines) as root:
            self._saw(self._written(work))

    def balances(self, people: Sequence[Any], account: str = USUAL) -> Units:
        """Returns what each has left; raises if somebody has no such account."""
        code, many = code_of(account), self.fewer_than(MANY * len(people))
        left = self._left_of_many(people, account) if many else self._left_of_few(people, code)
        if left is None:
            raise reading.no_account(account)  # which must not say who
        return left

    def digests(self, people: Sequence[Any]) -> bytes:
        """Returns under which digests people stand in the books, one after the other."""
        return self._beside.digests(people)

    def everybody(self, account: str = USUAL) -> Everybody:
        """Returns what everybody in the books has left of this account."""
        return self._store.read(lambda transaction: reading.everybody(transaction, code_of(account)))

    def fewer_than(self, accounts: int) -> bool:
        """Returns whether the books have fewer accounts than this, without counting on."""
        return bool(self._store.read(lambda transaction: transaction.run(schema.UP_TO, accounts))[0][0] < accounts)

    def find(self, key: str) -> Reservation | None:
        """Returns what is known about this key."""
        return self._store.read(lambda transaction: reading.known(transaction, key))

    def reserve(self, key: str, request: str, amounts: Sequence[Amounts], *, outside: bool = False) -> Reservation:
        """Charges everybody at once, or nobody; a key that is known already is returned as it is."""
        lines, what = self._packed(amounts), "charge" if outside else "reserve"
        lines = lines[lines["amount"] > 0]

        def work(transaction: Transaction) -> Reservation:
            known = reading.known(transaction, key)
            if known is not None:
                return known
            transaction.stage(lines)
            if transaction.count(schema.CHARGE) != len(lines):
                raise reading.refused(transaction)
            ledger.reached("reserve: charged")
            entry = self._append(transaction, what, key, request, root(), lines)
            return Reservation(key, request, "reserved", entry.number, entry.digest.hex(), fresh=True)

        with chain.hashing(lines) as root:
            made = self._written(work)
        ledger.reached("reserve: committed")
        if made.fresh:
            self._beside.saw(made.number, bytes.fromhex(made.head))
            self._last = (made.number, bytes.fromhex(made.head))
        ledger.reached("reserve: witnessed")
        return made

    def publish(self, key: str, release: str) -> None:
        """Keeps the bytes of a release under its reserved key."""

        def work(transaction: Transaction) -> Entry | None:
            known = reading.known(transaction, key)
            if known is None or (known.state, known.release) not in (("reserved", None), ("published", release)):
                raise KeyReused("This key is not reserved, or holds another release.", "", "Reserve a new key first.")
            if known.release is not None:
                return None
            transaction.run("INSERT INTO releases (number, text) VALUES (?, ?)", known.number, release)
            return self._append(transaction, "publish", key, known.request, chain.of_text(release))

        self._saw(self._written(work))
        ledger.reached("publish: committed")

    def history(self, person: Any) -> list[Line]:
        """Returns everything that was ever written about a person."""
        digest = self._beside.digests([person])
        found = self._store.read(lambda transaction: transaction.run(reading.HISTORY, digest))
        if not found:
            raise reading.no_account()
        return [
            Line(
                number,
                at,
                what,
                key,
                ACCOUNTS[code],
                in_words(ACCOUNTS[code], amount),
                reading.state_of(what, published),
            )
            for number, at, what, key, code, amount, published in found
        ]

    def entries(self) -> Iterator[Entry]:
        """Returns all entries in order."""
        return iter(self._store.read(reading.entries))

    def lines(self, number: int) -> Lines:
        """Returns the lines of an entry as they were hashed: digests of people, accounts, amounts."""
        return self._store.read(lambda transaction: reading.lines_of(transaction, number))

    def proof(self, person: Any, number: int) -> list[tuple[bytes, list[chain.Step]]]:
        """Returns a person's packed lines in an entry, each with its way to the entry's root."""
        digest, lines = self._beside.digests([person]), self.lines(number)
        own = np.flatnonzero((lines["person"] == np.frombuffer(digest, dtype=np.uint8)).all(axis=1))
        leaves = chain.leaves(lines)
        return [(lines[place].tobytes(), chain.proof(leaves, int(place))) for place in own]

    def verify(self) -> None:
        """Recomputes every balance and digest from the entries; raises if the books do not add up."""
        self._store.check()
        if not self._store.read(self._adds_up):
            raise reading.broken()
        if self.sealed:
            raise sealed()

    def confirm(self, number: int, head: str) -> bool:
        """Whether an entry with this digest is in the books; if it is not, they are sealed, now and when reopened."""
        seen = beside.head(number, head)
        if not self._store.read(lambda transaction: reading.in_chain(transaction, seen)):
            self._beside.saw(*seen)
            self.sealed = True
        return not self.sealed

    def unseal(self, reason: str) -> None:
        """Goes on with these books although they are behind something that was released; the reason is entered."""
        refuse_unwritable(reason)
        entry = self._store.write(lambda transaction: self._append(transaction, "unseal", "", reason))
        self._beside.saw(entry.number, entry.digest, ANEW)
        self._last, self.sealed = (entry.number, entry.digest), False

    def _begun(self) -> Entry:
        """Writes the first entry, which names the books and recognises their key."""
        identity = secrets.token_hex(16)  # not noise: a name and a key, which no answer depends on
        stem = self._store.beside(identity)
        self._new = Beside.in_memory() if stem is None else Beside.in_files(stem, new=True)

        def work(transaction: Transaction) -> Entry:
            return reading.first(transaction) or self._append(transaction, "open", identity, self._new.check)

        return self._store.write(work)

    def _left_of_many(self, people: Sequence[Any], account: str) -> Units | None:
        """Reads all accounts, on a thread that leaves Python to the digests."""
        with ThreadPoolExecutor(1) as meanwhile:
            everybody = meanwhile.submit(self.everybody, account)
            return chain.looked_up(self.digests(people), *everybody.result())

    def _left_of_few(self, people: Sequence[Any], code: int) -> Units | None:
        asked = chain.packed(self._beside.digests(people), code, np.arange(len(people)))
        return self._store.read(lambda transaction: reading.left(transaction, asked))

    def _written(self, work: Callable[[Transaction], Result]) -> Result:
        if self.sealed:
            raise sealed()

        def guarded(transaction: Transaction) -> Result:
            if not reading.in_chain(transaction, self._last):
                raise sealed()  # the books were exchanged for older ones while they were open
            return work(transaction)

        return self._store.write(guarded)

    def _append(
        self,
        transaction: Transaction,
        what: str,
        key: str,
        request: str,
        root: bytes = NOTHING,
        lines: Lines | None = None,
    ) -> Entry:
        last, before = reading.head(transaction)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        bare = Entry(last + 1, what, key, request, at, 0 if lines is None else len(lines), root, b"")
        entry = Entry(**{**bare.__dict__, "digest": chain.digest(bare, before)})
        transaction.run("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *entry.__dict__.values())
        if lines is not None:
            number = entry.number
            transaction.run(f"INSERT INTO lines SELECT {number}, person, account, amount FROM staged")
        return entry

    def _packed(self, amounts: Sequence[Amounts]) -> Lines:
        parts = [np.zeros(0, dtype=chain.PACKED)]
        for amount in amounts:
            refuse_nameless(amount.people)
            digests = self._beside.digests(amount.people)
            parts.append(chain.packed(digests, ACCOUNTS.index(amount.account), amount.units))
        lines = chain.in_order(parts)
        if chain.repeats(lines):
            raise DuplicatePeople(
                "Two of these people have one account: names count as they are spelt, 17 and '17' are the same.",
                "Everybody has one account.",
                "Give different people different names.",
            )
        return lines

    def _saw(self, entry: Entry | None) -> None:
        if entry is not None:
            self._beside.saw(entry.number, entry.digest)
            self._last = (entry.number, entry.digest)

    def _follows_from_heads(self, transaction: Transaction) -> bool:
        return all(reading.in_chain(transaction, seen) for seen in self._beside.seen())

    def _adds_up(self, transaction: Transaction) -> bool:
        entries = reading.entries(transaction)
        return (
            chain.first_break(iter(entries)) is None
            and all(reading.holds(transaction, entry) for entry in entries)
            and not any(transaction.run(question)[0][0] for question in schema.CONTRADICTIONS)
        )


def sealed() -> LedgerSealed:
    """The error of books that are behind what was released from them."""
    return LedgerSealed(
        "These books are sealed: something was released that is not in them. They may be an older copy.",
        "On older books people would spend the same budget twice.",
        "Put the right copy back; or, if there is none, unseal with a reason, and lower grants before any release.",
    )
