# SPDX-License-Identifier: Apache-2.0
"""The books: what every kind of ledger does, whatever database holds it.

    plan → reserve (committed, and its head written down beside) → run → publish (bytes stored) →
    answer

A reservation is one transaction for everybody. Nothing refunds it: a release that crashed is seen
in the books as reserved and never published, and stays spent. Every entry holds the digest of the
one before, and is signed. Before anything is written, and when books are opened, what was appended
since the last head that is known here must follow from it and end with a signature: whoever can
write to the database cannot add to the books.
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
from sottovoce.arrays import refuse_nameless
from sottovoce.errors import (
    DuplicatePeople,
    InvalidBudget,
    InvalidParameter,
    KeyReused,
    LedgerSealed,
    LedgerUnsigned,
    SottovoceError,
    WrongLedgerKey,
)
from sottovoce.ledger import (
    ACCOUNTS,
    DEFAULT_ACCOUNT,
    PAYMENT_CODE,
    AllBalances,
    Amounts,
    Entry,
    Line,
    Reservation,
    Sale,
    get_account_code,
    refuse_long_key,
    refuse_unwritable,
)
from sottovoce.ledgers import hash_chain, keyfile, sql_reading
from sottovoce.ledgers.hash_chain import NO_DIGEST, Lines
from sottovoce.ledgers.keyfile import ANEW, SEEN, WAIVED, HeadRecords, LedgerKeyFile
from sottovoce.ledgers.sql_reading import Transaction
from sottovoce.ledgers.witness import Head, Witnesses
from sottovoce.units import Units

Result = TypeVar("Result")

#: What an entry can be.
ENTRY_KINDS = ("open", "grant", "sale", "reserve", "charge", "publish", "unseal", "upgrade")
#: Digits of what a sale without a key is called by.
SALE_DIGITS = 16
#: Why books are sealed.
OLDER = "something was released that is not in it. It may be an older copy."
DAMAGED = (
    "the file of heads beside it is missing or damaged, so nobody can tell whether it is an older "
    "copy."
)
FOREIGN = "a witness has a head that is not in it. Another copy of this ledger was used."
UNLISTED = "the list of witnesses beside it is missing or was changed."
#: All accounts are read, and none looked for, unless so many times more have one than are asked
#: for.
SCAN_FACTOR = 16


class Store(Protocol):
    """A database that holds the books."""

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Runs the work alone and commits it, or raises and leaves everything as it was."""

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Runs the work on one unchanging state of the books."""

    def check(self) -> None:
        """Raise if the database itself is damaged."""

    def get_key_stem(self, identity: str) -> Path | None:
        """Where the key and the heads of books with this number are kept.

        None: nowhere, they end with the process.
        """


class SqlLedger:
    """A ledger in a database."""

    def __init__(self, store: Store, *, begin: bool | None = None) -> None:
        """Open the books in a database.

        Where there are no tables they are begun, unless ``begin`` is False.

        Tables without an entry are what somebody leaves who deletes the books: they are begun if
        ``begin`` is True.
        """
        self._store = store
        self._new = LedgerKeyFile(b"")
        current = store.read(lambda transaction: transaction.version()) == len(
            sql_reading.MIGRATIONS
        )
        first = (
            store.read(sql_reading.read_first_entry) if current else None
        ) or self._begin_ledger(begin)
        stem = store.get_key_stem(first.key)
        if stem is None:
            self._beside = self._new
        else:
            self._beside = LedgerKeyFile.in_files(stem, new=False)
        if self._beside.check != first.request:
            raise WrongLedgerKey(
                "This key belongs to another ledger.",
                "",
                "Put back its own, or name that key's folder.",
            )
        self.identity = first.key
        self._first = (first.number, first.digest)
        self._signed_from = store.read(
            lambda transaction: self._find_first_signed(transaction, first)
        )
        self._why_sealed: str | None = None
        self._last = store.read(self._find_known_head)
        if (
            self.sealed
        ):  # or they were begun just now, between a look at the heads and one at the entries
            self._last = store.read(self._find_known_head)
        self._foreign: list[Head] = []
        self._witnesses = Witnesses(self._beside, self.identity)
        if not self._witnesses.matches_list(self._heads.listed):
            self._why_sealed = self._why_sealed or UNLISTED
        self._check_witness_heads()

    @property
    def sealed(self) -> bool:
        """Whether nothing can be written, because these may be older books."""
        return self._why_sealed is not None

    @property
    def why_sealed(self) -> str:
        """Why nothing can be written; nothing if it can."""
        return self._why_sealed or ""

    @property
    def signed_from(self) -> int | None:
        """The number of the first entry that is signed; None for books of an earlier version."""
        return self._signed_from

    @property
    def public_key(self) -> str:
        """The key with which anybody can check what these books have signed, in hexadecimal
        digits.
        """
        return self._beside.signer.public.hex()

    def sign(self, message: bytes) -> str:
        """Return the signature of a message, in hexadecimal digits."""
        return self._beside.signer.sign(message).hex()

    def signature(self, number: int) -> str | None:
        """Return the signature of an entry, in hexadecimal digits.

        None if it was written before books were signed.
        """
        found = self._store.read(
            lambda transaction: sql_reading.read_signature(transaction, number)
        )
        if found is None:
            return None
        return found.hex()

    def hidden(self, text: str) -> str:
        """Return a digest of this text that only the holder of the key can compute."""
        return self._beside.hidden(text)

    def grant(self, amounts: Sequence[Amounts]) -> None:
        """Set what each person allows in all; below what is spent it freezes them."""
        lines = self._pack_lines(amounts)

        def work(transaction: Transaction, last: tuple[int, bytes]) -> Entry:
            transaction.stage(lines)
            transaction.count(sql_reading.GRANT_SQL)
            return self._append(transaction, last, "grant", "", "", root(), lines)

        with hash_chain.hash_in_background(lines) as root:
            entry = self._write_entry(work)
        self._record_head(entry.number, entry.digest)

    def sell(self, sale: Sale, key: str | None = None) -> Reservation:
        """Add what people have sold to what they allow, and write down what they were paid.

        A sale has a key: the same key again changes nothing, and another sale under it is refused.
        Without one, the key follows from the sale, so that the same file is not added twice.
        """
        lines = self._pack_sale(sale)
        root = hash_chain.compute_root(hash_chain.hash_lines(lines))
        name = f"sale {root.hex()[:SALE_DIGITS]}" if key is None else key
        refuse_unwritable(name)
        refuse_long_key(name)

        def work(transaction: Transaction, last: tuple[int, bytes]) -> Reservation:
            known = self._find_sale(transaction, name, sale.terms, root)
            if known is not None:
                return known
            transaction.stage(lines)
            transaction.count(sql_reading.SELL_SQL)
            if transaction.run(sql_reading.COUNT_BEYOND)[0][0]:
                raise InvalidBudget(
                    "What somebody has sold in all is too large.",
                    "An account holds an ε of at most a million.",
                    "Check the amounts; nothing was written.",
                    parameter="amounts",
                )
            entry = self._append(transaction, last, "sale", name, sale.terms, root, lines)
            head = entry.digest.hex()
            return Reservation(name, sale.terms, "published", entry.number, head, fresh=True)

        made = self._write_entry(work)
        if made.fresh:
            self._record_head(made.number, bytes.fromhex(made.head))
        return made

    def balances(self, people: Sequence[Any], account: str = DEFAULT_ACCOUNT) -> Units:
        """Returns what each has left; raises if somebody has no such account."""
        code = get_account_code(account)
        many = self.fewer_than(SCAN_FACTOR * len(people))
        if many:
            left = self._read_many_balances(people, account)
        else:
            left = self._read_few_balances(people, code)
        if left is None:
            raise sql_reading.no_account_error(account)  # which must not say who
        return left

    def digests(self, people: Sequence[Any]) -> bytes:
        """Return under which digests people stand in the books, one after the other."""
        return self._beside.digests(people)

    def everybody(self, account: str = DEFAULT_ACCOUNT) -> AllBalances:
        """Return what everybody in the books has left of this account."""
        return self._store.read(
            lambda transaction: sql_reading.read_all_balances(
                transaction, get_account_code(account)
            )
        )

    def fewer_than(self, accounts: int) -> bool:
        """Return whether the books have fewer accounts than this, without counting on."""
        return bool(
            self._store.read(
                lambda transaction: transaction.run(sql_reading.COUNT_UP_TO, accounts)
            )[0][0]
            < accounts
        )

    def find(self, key: str) -> Reservation | None:
        """Return what is known about this key."""
        return self._store.read(lambda transaction: self._find_reservation(transaction, key))

    def reserve(
        self, key: str, request: str, amounts: Sequence[Amounts], *, outside: bool = False
    ) -> Reservation:
        """Charges everybody at once, or nobody; a key that is known already is returned as it is.

        What was spent outside is a fact: it is written down even if somebody is short, who then has
        nothing left.
        """
        if self.sealed or self._signed_from is None:
            known = self.find(key)
        else:
            known = None
        if known is not None:
            return known  # also from books in which nothing can be written
        lines = self._pack_lines(amounts)
        lines = lines[lines["amount"] > 0]

        def work(transaction: Transaction, last: tuple[int, bytes]) -> Reservation:
            known = self._find_reservation(transaction, key)
            if known is not None:
                return known
            refuse_long_key(key)
            transaction.stage(lines)
            overdrawn = 0
            if outside:
                transaction.count(sql_reading.CHARGE_OUTSIDE)
                overdrawn = transaction.run(sql_reading.COUNT_OVERDRAWN)[0][0]
            elif transaction.count(sql_reading.CHARGE_SQL) != len(lines):
                raise sql_reading.refused_charge_error(transaction)
            ledger.fault_point("reserve: charged")
            entry = self._append(
                transaction, last, "charge" if outside else "reserve", key, request, root(), lines
            )
            head = entry.digest.hex()
            return Reservation(
                key, request, "reserved", entry.number, head, fresh=True, overdrawn=overdrawn
            )

        with hash_chain.hash_in_background(lines) as root:
            made = self._write_entry(work)
        ledger.fault_point("reserve: committed")
        if made.fresh:
            self._record_head(made.number, bytes.fromhex(made.head))
        ledger.fault_point("reserve: witnessed")
        return made

    def publish(self, key: str, release: str) -> None:
        """Keep the bytes of a release under its reserved key."""

        def work(transaction: Transaction, last: tuple[int, bytes]) -> Entry | None:
            known = self._find_reservation(transaction, key)
            if known is None or (known.state, known.release) not in (
                ("reserved", None),
                ("published", release),
            ):
                raise KeyReused(
                    "This key is not reserved, or holds another release.",
                    "",
                    "Reserve a new key first.",
                    parameter="key",
                )
            if known.release is not None:
                return None
            transaction.run(
                "INSERT INTO releases (number, text) VALUES (?, ?)", known.number, release
            )
            return self._append(
                transaction, last, "publish", key, known.request, hash_chain.digest_text(release)
            )

        entry = self._write_entry(work)
        if entry is not None:
            self._record_head(entry.number, entry.digest)
        ledger.fault_point("publish: committed")

    def history(self, person: Any) -> list[Line]:
        """Return everything that was ever written about a person."""
        digest = self._beside.digests([person])
        found = self._store.read(
            lambda transaction: transaction.run(sql_reading.SELECT_HISTORY, digest)
        )
        if not found:
            raise sql_reading.no_account_error()
        return sql_reading.make_history(found)

    def entries(self) -> Iterator[Entry]:
        """Return all entries in order."""
        return iter(self._store.read(sql_reading.read_entries))

    def lines(self, number: int) -> Lines:
        """Return the lines of an entry as they were hashed: digests of people, accounts,
        amounts.
        """
        return self._store.read(lambda transaction: sql_reading.read_lines(transaction, number))

    def proof(self, person: Any, number: int) -> list[tuple[bytes, list[hash_chain.ProofStep]]]:
        """Return a person's packed lines in an entry, each with its way to the entry's root."""
        digest = self._beside.digests([person])
        lines = self.lines(number)
        own = np.flatnonzero((lines["person"] == np.frombuffer(digest, dtype=np.uint8)).all(axis=1))
        leaves = hash_chain.hash_lines(lines)
        return [
            (lines[place].tobytes(), hash_chain.make_proof(leaves, int(place))) for place in own
        ]

    def verify(self) -> None:
        """Replays every entry: signatures, digests, each charge against its grant, balances.

        Raises if one is wrong.
        """
        self._store.check()
        self._store.read(self._refuse_wrong)
        self._check_witness_heads()
        self._refuse_sealed()

    def confirm(self, number: int, head: str) -> bool:
        """Whether an entry with this digest is in the books."""
        seen = keyfile.parse_head(number, head)
        return self._store.read(lambda transaction: sql_reading.is_in_chain(transaction, seen))

    def seal(self, number: int, head: str) -> None:
        """Seals the books, now and when reopened: this head was signed in their name and is not in
        them.
        """
        self._beside.record_head(*keyfile.parse_head(number, head))
        self._why_sealed = OLDER

    def unseal(self, reason: str) -> None:
        """Goes on with these books although they may be behind something that was released.

        The reason is entered.
        """
        refuse_unwritable(reason)
        if self._signed_from is None:
            raise unsigned_error()
        self._check_witness_heads()

        def work(transaction: Transaction) -> Entry:
            # From the first entry on: the last head that is known here need not be in these books.
            last = sql_reading.follow_chain(transaction, (-1, NO_DIGEST))
            self._refuse_unsigned(transaction, last)
            return self._append(transaction, last, "unseal", "", reason)

        entry = self._store.write(work)
        waived = [(WAIVED, head.number, head.digest) for head in self._foreign]
        self._beside.write(
            [*waived, self._witnesses.make_list_line(), (ANEW, entry.number, entry.digest)]
        )
        self._heads.waived |= {(head.number, head.digest) for head in self._foreign}
        self._foreign = []
        self._last = (entry.number, entry.digest)
        self._why_sealed = None
        self._witnesses.store_head(self._sign_head(*self._last))

    def upgrade(self) -> int:
        """Begins to sign books of an earlier version, and returns the number of the first entry
        that is signed.

        What came before is verified once more, and bound by that signature. It proves nothing about
        who wrote it: whoever could write to the database until now could have changed it.
        """
        if self._signed_from is not None:
            raise InvalidParameter("This ledger is signed already.", "", "Go on with it as it is.")
        self._store.check()

        def work(transaction: Transaction) -> Entry:
            last = self._refuse_wrong(transaction)
            return self._append(transaction, last, "upgrade", "", "", self._beside.signer.public)

        entry = self._store.write(work)
        self._signed_from = entry.number
        self._beside.record_head(entry.number, entry.digest, SEEN if self.sealed else ANEW)
        self._last = (entry.number, entry.digest)
        return entry.number

    @property
    def witnesses(self) -> list[str]:
        """Who keeps heads of these books elsewhere, without passwords."""
        return self._witnesses.names()

    @property
    def unreached(self) -> dict[str, str]:
        """The witnesses that could not be asked the last time, and why."""
        return dict(self._witnesses.unreached)

    def add_witness(self, address: str) -> None:
        """Lets a file, a database or a log elsewhere keep the heads, from the last one on."""
        if self._signed_from is None:
            raise unsigned_error()
        self._witnesses.add(address, self._sign_head(*self._store.read(sql_reading.read_head)))
        self._check_witness_heads()

    def remove_witness(self, address: str) -> None:
        """Goes on without this witness, named by its address or its number in the list."""
        self._witnesses.remove(address)

    def check_witnesses(self) -> dict[str, str]:
        """Asks every witness for all that it holds, and returns what each said, in words."""
        self._check_witness_heads()
        return self._witnesses.check()

    def _begin_ledger(self, begin: bool | None) -> Entry:
        """Brings tables up to date, and returns the first entry, which names the books and
        recognises their key.

        It is written in the transaction that makes the tables: a crash leaves both or none.
        """
        identity = secrets.token_hex(16)  # not noise: a name and a key, which no answer depends on

        def work(transaction: Transaction) -> Entry:
            tables = transaction.version()
            if not tables and begin is False:
                raise sql_reading.no_ledger_error()
            sql_reading.migrate(transaction)
            begun = sql_reading.read_first_entry(transaction)
            if begun is not None:
                return begun  # by somebody else, just now, or by an earlier version
            if tables and not begin:
                raise sql_reading.emptied_ledger_error()
            stem = self._store.get_key_stem(identity)
            if stem is None:
                self._new = LedgerKeyFile.in_memory()
            else:
                self._new = LedgerKeyFile.in_files(stem, new=True)
            self._beside = self._new
            return self._append(
                transaction,
                (-1, NO_DIGEST),
                "open",
                identity,
                self._new.check,
                self._new.signer.public,
            )

        return self._store.write(work)

    def _read_many_balances(self, people: Sequence[Any], account: str) -> Units | None:
        """Read all accounts, on a thread that leaves Python to the digests."""
        with ThreadPoolExecutor(1) as meanwhile:
            everybody = meanwhile.submit(self.everybody, account)
            return hash_chain.look_up_amounts(self.digests(people), *everybody.result())

    def _read_few_balances(self, people: Sequence[Any], code: int) -> Units | None:
        asked = hash_chain.pack_lines(self._beside.digests(people), code, np.arange(len(people)))
        return self._store.read(lambda transaction: sql_reading.read_balances(transaction, asked))

    def _write_entry(self, work: Callable[[Transaction, tuple[int, bytes]], Result]) -> Result:
        """Runs the work, which is given the last head, after what is written behind the known one
        was found signed.
        """
        self._refuse_sealed()  # first: whoever is told to upgrade signs what is there
        if self._signed_from is None:
            raise unsigned_error()
        self._check_witness_heads()
        self._refuse_sealed()
        if self._witnesses.addresses:
            self._witnesses.refuse_unreachable_majority("nothing was written by this attempt")

        def write_if_current(transaction: Transaction) -> Result:
            if not sql_reading.is_in_chain(transaction, self._last):
                raise sealed_error(
                    OLDER
                )  # the books were exchanged for older ones while they were open
            return work(transaction, self._checked_tail(transaction, self._last))

        return self._store.write(write_if_current)

    def _append(
        self,
        transaction: Transaction,
        last: tuple[int, bytes],
        what: str,
        key: str,
        request: str,
        root: bytes = NO_DIGEST,
        lines: Lines | None = None,
    ) -> Entry:
        """Appends an entry to the head that was checked, and signs it."""
        if sql_reading.read_head(transaction) != last:
            # by a trigger, or by somebody who does not take turns: nothing is signed after it
            raise sql_reading.broken_ledger_error()
        at = datetime.now(UTC).isoformat(timespec="seconds")
        bare = Entry(
            last[0] + 1, what, key, request, at, 0 if lines is None else len(lines), root, b""
        )
        entry = Entry(**{**bare.__dict__, "digest": hash_chain.digest_entry(bare, last[1])})
        transaction.run(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *entry.__dict__.values()
        )
        number = entry.number
        if what == "open":
            identity = key
        else:
            identity = self.identity
        signature = self._beside.signer.sign(
            keyfile.make_entry_message(identity, number, entry.digest)
        )
        transaction.run("INSERT INTO signatures VALUES (?, ?)", number, signature)
        if lines is not None:
            transaction.run(
                f"INSERT INTO lines SELECT {number}, person, account, amount FROM staged"
            )
        return entry

    def _pack_lines(self, amounts: Sequence[Amounts]) -> Lines:
        parts = [np.zeros(0, dtype=hash_chain.PACKED)]
        for amount in amounts:
            refuse_nameless(amount.people)
            digests = self._beside.digests(amount.people)
            parts.append(
                hash_chain.pack_lines(digests, ACCOUNTS.index(amount.account), amount.units)
            )
        lines = hash_chain.sort_lines(parts)
        if hash_chain.has_repeats(lines):
            raise DuplicatePeople(
                "Two of these people have one account: names count as they are spelt, 17 and "
                "'17' are the same.",
                "Everybody has one account.",
                "Give different people different names.",
                parameter="people",
            )
        return lines

    def _pack_sale(self, sale: Sale) -> Lines:
        """Returns two lines for everybody who sells: what, and for how many coins."""
        sells = np.flatnonzero(np.asarray(sale.amounts.units) > 0)
        if not len(sells):
            raise InvalidParameter(
                "Nobody sells anything.",
                "A sale adds ε above 0 to somebody's account.",
                "Check the column of amounts.",
                parameter="amounts",
            )
        people = [sale.amounts.people[place] for place in sells.tolist()]
        sold = self._pack_lines([Amounts(people, sale.amounts.units[sells], sale.amounts.account)])
        paid = hash_chain.pack_lines(
            self._beside.digests(people), PAYMENT_CODE, np.asarray(sale.coins)[sells]
        )
        return hash_chain.sort_lines([sold, paid])

    def _find_sale(
        self, transaction: Transaction, key: str, terms: str, root: bytes
    ) -> Reservation | None:
        """Returns the sale under a key, if it is this one; refuses another."""
        found = sql_reading.read_sale(transaction, key)
        if found is None:
            return None
        self._refuse_forged(transaction, found)
        if (found.request, found.root) != (terms, root):
            raise KeyReused(
                "Another sale is in the ledger under this key.",
                "One key, one sale, for ever.",
                "Choose a new key; nothing was added.",
                parameter="key",
            )
        return Reservation(key, terms, "published", found.number, found.digest.hex())

    def _record_head(self, number: int, digest: bytes) -> None:
        """Write a head down, here and with every witness.

        Raises if one of them knows another copy of the books.
        """
        self._beside.record_head(number, digest)
        self._last = (number, digest)
        if self._witnesses.addresses:
            failed = self._witnesses.store_head(self._sign_head(number, digest))
            self._check_witness_heads()
            self._witnesses.unreached |= failed
            self._witnesses.refuse_unreachable_majority("what was reserved stays spent")
            self._refuse_sealed()

    def _sign_head(self, number: int, digest: bytes) -> Head:
        signature = self._beside.signer.sign(
            keyfile.make_entry_message(self.identity, number, digest)
        )
        return Head(number, digest, signature)

    def _check_witness_heads(self) -> None:
        """Seals the books if a witness has a head of theirs that is not in them."""
        if not self._witnesses.addresses:
            self._witnesses.unreached = {}
            return
        foreign = self._witnesses.collect_foreign_heads(self._find_foreign_heads)
        if foreign:
            self._foreign += foreign
            self._beside.write(
                [(SEEN, head.number, head.digest) for head in foreign]
            )  # also if they fall silent
            self._why_sealed = FOREIGN

    def _find_foreign_heads(self, heads: list[Head]) -> list[Head]:
        if not heads:
            return []
        digests = self._store.read(sql_reading.read_digests)
        known = self._heads.waived
        return [
            head
            for head in heads
            if digests.get(head.number) != head.digest and (head.number, head.digest) not in known
        ]

    def _refuse_sealed(self) -> None:
        if self._why_sealed is not None:
            raise sealed_error(self._why_sealed)

    def _find_reservation(self, transaction: Transaction, key: str) -> Reservation | None:
        """Return what is known about a key, if the entries that say so are ours."""
        found = sql_reading.read_key_record(transaction, key)
        if found is None:
            return None
        for entry in found.entries:
            self._refuse_forged(transaction, entry)
        return found.reservation

    def _find_first_signed(self, transaction: Transaction, first: Entry) -> int | None:
        public = self._beside.signer.public
        if first.root not in (public, NO_DIGEST):
            raise sql_reading.broken_ledger_error()
        if first.root == public:
            return 0
        return sql_reading.find_upgrade(transaction, public)

    def _find_known_head(self, transaction: Transaction) -> tuple[int, bytes]:
        """Return the last head.

        Finds out whether the books lack one that was seen, or hold what nobody signed.
        """
        heads = self._heads = self._beside.read_heads()
        digests = sql_reading.read_digests(transaction)
        there = [head for head in heads.seen if digests.get(head[0]) == head[1]]
        self._why_sealed = self._find_seal_reason(heads, len(there), len(digests))
        if not heads.seen and self._signed_from == 0 and len(digests) == 1 and not heads.damaged:
            self._beside.record_head(
                *self._first
            )  # before anything else is written: without heads nobody goes on
        last = sql_reading.follow_chain(
            transaction, (-1, NO_DIGEST)
        )  # all of it: digests alone do not tell of edited entries
        self._refuse_unsigned(transaction, last)
        return last

    def _find_seal_reason(self, heads: HeadRecords, there: int, entries: int) -> str | None:
        """Why books with so many entries, in which so many of the heads that were seen are there,
        are sealed.
        """
        if there < len(heads.seen):
            return OLDER
        if self._beside.heads is None:
            return None  # books in memory
        missing = not heads.seen or (self._signed_from is not None and not heads.authentic)
        if heads.damaged or (missing and entries > 1):
            return DAMAGED
        return None

    def _checked_tail(
        self, transaction: Transaction, known: tuple[int, bytes]
    ) -> tuple[int, bytes]:
        """Return the last head.

        Raises unless what came after the known one follows from it, and was signed.
        """
        last = sql_reading.follow_chain(transaction, known)
        if last != known:
            self._refuse_unsigned(transaction, last)
        return last

    def _refuse_unsigned(self, transaction: Transaction, head: tuple[int, bytes]) -> None:
        """Raise unless this head was signed: it vouches for all before it, which whoever signed it
        had checked.
        """
        if self._signed_from is not None and not self._is_signed(
            head, sql_reading.read_signature(transaction, head[0])
        ):
            raise sql_reading.broken_ledger_error()

    def _refuse_forged(self, transaction: Transaction, entry: Entry) -> None:
        """Raise unless an entry is as it was signed; older ones must lead to the first that was."""
        before = sql_reading.read_entry(transaction, entry.number - 1)
        if entry.digest != hash_chain.digest_entry(
            entry, NO_DIGEST if before is None else before.digest
        ):
            raise sql_reading.broken_ledger_error()
        head = (entry.number, entry.digest)
        signed_from = self._signed_from
        if signed_from is None:
            # books that were made to look like unsigned ones: nobody vouches for what they store
            self._refuse_sealed()
        if signed_from is not None and entry.number < signed_from:
            sql_reading.follow_chain(transaction, head)
            upgrade = sql_reading.read_entry(transaction, signed_from)
            if upgrade is not None:
                head = (upgrade.number, upgrade.digest)
        self._refuse_unsigned(transaction, head)

    def _is_signed(self, head: tuple[int, bytes], signature: bytes | None) -> bool:
        return keyfile.is_signed(
            self._beside.signer.public, keyfile.make_entry_message(self.identity, *head), signature
        )

    def _refuse_wrong(self, transaction: Transaction) -> tuple[int, bytes]:
        """Return the last head.

        Raises unless entries, signatures, what belongs to them, and all accounts agree.
        """
        entries = sql_reading.read_entries(transaction)
        charged = []
        if hash_chain.find_first_break(iter(entries)) is not None or not self._are_signed(
            transaction, entries
        ):
            raise sql_reading.broken_ledger_error()
        for entry in entries:
            lines = sql_reading.read_lines(transaction, entry.number)
            if entry.what not in ENTRY_KINDS or not sql_reading.matches_root(
                transaction, entry, lines
            ):
                raise sql_reading.broken_ledger_error()
            if entry.what in sql_reading.WITH_LINES:
                charged.append((entry.what, lines))
        expected = sql_reading.replay(charged)
        if expected is None:
            raise sql_reading.overspent_error()
        if not expected.equals(sql_reading.read_accounts(transaction)) or any(
            transaction.run(question)[0][0] for question in sql_reading.CONTRADICTIONS
        ):
            raise sql_reading.broken_ledger_error()
        return entries[-1].number, entries[-1].digest

    def _are_signed(self, transaction: Transaction, entries: Sequence[Entry]) -> bool:
        """Whether every entry since the first that is signed is, and no other."""
        found = dict(transaction.run("SELECT number, signature FROM signatures"))
        if self._signed_from is None:
            expected: Sequence[Entry] = []
        else:
            expected = entries[self._signed_from :]
        return set(found) == {entry.number for entry in expected} and all(
            self._is_signed((entry.number, entry.digest), found[entry.number]) for entry in expected
        )


def sealed_error(why: str) -> LedgerSealed:
    """The error of books that may be behind what was released from them."""
    return LedgerSealed(
        f"This ledger is sealed: {why}",
        "On an older ledger people would spend the same budget twice.",
        "Put the right copy back; or, if there is none, unseal with a reason, and lower grants "
        "before any release.",
    )


def unsigned_error() -> SottovoceError:
    """The error of books of an earlier version, into which nothing is written."""
    return LedgerUnsigned(
        "This ledger was written by an earlier version, which did not sign entries.",
        "Nothing is written into a ledger that anybody who can write to the database could have "
        "extended.",
        "Run `sottovoce ledger upgrade`, or call ledger.upgrade(); it says what can no longer be "
        "proved.",
    )
