# SPDX-License-Identifier: Apache-2.0
"""The tables of the books, in the words that SQLite and PostgreSQL share, and how older books
become newer ones.

    accounts   what each person allows and has spent; spent ≤ cap is a CHECK, and cap = max(granted,
               spent)
    entries    the chain: grants, sales, reservations, publications, charges from outside
    lines      what an entry did to whom
    releases   published bytes
    signatures of entries, since books are signed (signing.py)

A person is a digest (keyfile.py). Nothing is ever deleted, and only accounts are ever updated.
There are no foreign keys: a server would check a million lines one by one, and verify asks the same
in one question.

Reading the books within a transaction: the chain, a key, the lines of an entry.

All entries once more, from the first grant: nobody was ever charged beyond what they allowed at
that moment.

A comparison of totals would not tell: whoever raises an account, has it charged, and lowers it
again leaves totals that agree with the last grant. So every charge is compared with the grant that
was in force when it was made. What was spent outside is a fact, and may exceed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain as chained
from typing import Any, NamedTuple, Protocol

import numpy as np

from sottovoce.errors import (
    BudgetExceeded,
    LedgerBroken,
    LedgerUnavailable,
    UnknownPeople,
    UnsupportedLedger,
)
from sottovoce.ledger import (
    ACCOUNTS,
    MAX_UNITS,
    PAYMENT_CODE,
    AllBalances,
    Entry,
    Line,
    Reservation,
    State,
    read_sale_terms,
    refuse_unwritable,
    to_amount,
)
from sottovoce.ledgers import hash_chain
from sottovoce.ledgers.hash_chain import PERSON_BYTES, Lines
from sottovoce.units import Units

#: SQLite stores the text of a table as it was written, and books are held against it: not a space
#: of it may change, so long lines end in a backslash.
_FIRST = (
    """CREATE TABLE accounts (
        person BLOB NOT NULL, account INTEGER NOT NULL, granted INTEGER NOT NULL, \
cap INTEGER NOT NULL,
        spent INTEGER NOT NULL, PRIMARY KEY (person, account),
        CHECK (0 <= granted AND granted <= cap), CHECK (0 <= spent AND spent <= cap))""",
    """CREATE TABLE entries (
        number INTEGER NOT NULL PRIMARY KEY, what TEXT NOT NULL, key TEXT NOT NULL, \
request TEXT NOT NULL,
        at TEXT NOT NULL, lines INTEGER NOT NULL, root BLOB NOT NULL, digest BLOB NOT NULL)""",
    """CREATE TABLE lines (
        number INTEGER NOT NULL, person BLOB NOT NULL, account INTEGER NOT NULL,
        amount INTEGER NOT NULL, PRIMARY KEY (number, person, account), CHECK (amount >= 0))""",
    "CREATE TABLE releases (number INTEGER NOT NULL PRIMARY KEY, text TEXT NOT NULL)",
    "CREATE UNIQUE INDEX one_reservation ON entries (key) WHERE what IN ('reserve', 'charge')",
    "CREATE UNIQUE INDEX one_publication ON entries (key) WHERE what = 'publish'",
)
_SIGNED = (
    "CREATE TABLE signatures (number INTEGER NOT NULL PRIMARY KEY, signature BLOB NOT NULL)",
)
#: Versions that do not know sales refuse books of this one, instead of misreading them.
_SALES = ("CREATE UNIQUE INDEX one_sale ON entries (key) WHERE what = 'sale'",)
#: One step for each version. Never changed once it is out: books that were written under it exist.
MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _SIGNED, _SALES)

GRANT_SQL = """
    INSERT INTO accounts (person, account, granted, cap, spent)
    SELECT person, account, amount, amount, 0 FROM staged WHERE true
    ON CONFLICT (person, account) DO UPDATE SET granted = excluded.granted,
    cap = CASE WHEN excluded.granted > accounts.spent
    THEN excluded.granted ELSE accounts.spent END"""
#: What was sold is added to what people allow; what was paid for it is no account.
SELL_SQL = f"""
    INSERT INTO accounts (person, account, granted, cap, spent)
    SELECT person, account, amount, amount, 0 FROM staged WHERE account < {PAYMENT_CODE}
    ON CONFLICT (person, account) DO UPDATE SET granted = accounts.granted + excluded.granted,
    cap = CASE WHEN accounts.granted + excluded.granted > accounts.spent
    THEN accounts.granted + excluded.granted ELSE accounts.spent END"""
COUNT_BEYOND = f"SELECT COUNT(*) FROM accounts WHERE granted > {MAX_UNITS}"
#: One statement for everybody; whoever has not enough left is not updated, and is missed in the
#: count.
CHARGE_SQL = """
    UPDATE accounts SET spent = accounts.spent + staged.amount FROM staged
    WHERE accounts.person = staged.person AND accounts.account = staged.account
    AND accounts.granted - accounts.spent >= staged.amount"""
#: What was spent outside is written down whoever is short: an account is made where there is none,
#: and the cap follows.
CHARGE_OUTSIDE = """
    INSERT INTO accounts (person, account, granted, cap, spent)
    SELECT person, account, 0, amount, amount FROM staged WHERE true
    ON CONFLICT (person, account) DO UPDATE SET spent = accounts.spent + excluded.spent,
    cap = CASE WHEN accounts.granted > accounts.spent + excluded.spent
    THEN accounts.granted ELSE accounts.spent + excluded.spent END"""
COUNT_OVERDRAWN = """
    SELECT COUNT(*) FROM staged JOIN accounts
    ON accounts.person = staged.person AND accounts.account = staged.account
    WHERE accounts.spent > accounts.granted"""
#: What somebody can still pay: a grant can be lowered below what is spent, and charges from outside
#: exceed it.
REMAINING = "CASE WHEN granted > spent THEN granted - spent ELSE 0 END"
#: How many accounts there are, counted no further than needed.
COUNT_UP_TO = "SELECT COUNT(*) FROM (SELECT 1 FROM accounts LIMIT ?) AS first_ones"
#: What is left of accounts that were staged with their place in a list as the amount: digests need
#: not travel back.
SELECT_LEFT = f"""
    SELECT staged.amount, {REMAINING}
    FROM staged JOIN accounts
    ON accounts.person = staged.person AND accounts.account = staged.account"""
COUNT_WITHOUT_ACCOUNT = """
    SELECT COUNT(*) FROM staged LEFT JOIN accounts
    ON accounts.person = staged.person AND accounts.account = staged.account
    WHERE accounts.person IS NULL"""
SELECT_ACCOUNTS = (
    "SELECT person, account, granted, cap, spent FROM accounts ORDER BY person, account"
)
#: Questions whose answer must be 0.
CONTRADICTIONS = (
    """SELECT COUNT(*) FROM releases WHERE number NOT IN (
        SELECT made.number FROM entries AS made JOIN entries AS later ON later.key = made.key
        WHERE made.what = 'reserve' AND later.what = 'publish')""",
    "SELECT COUNT(*) FROM lines WHERE number NOT IN (SELECT number FROM entries)",
    "SELECT COUNT(*) FROM signatures WHERE number NOT IN (SELECT number FROM entries)",
)
SELECT_RELEASE = """
    SELECT releases.text FROM releases JOIN entries USING (number)
    WHERE entries.key = ? AND entries.what = 'reserve'"""


#: So many accounts are read at once.
PART_SIZE = 2**17


def split_ranges(accounts: int) -> list[tuple[bytes, bytes]]:
    """Return from where to where digests are read, so that parts of all accounts are about as
    large as PART.
    """
    parts = max(1, accounts // PART_SIZE)
    edges = [(place * 2**32 // parts).to_bytes(4, "big") for place in range(1, parts)]
    return list(zip([b"", *edges], [*edges, b"\xff" * (PERSON_BYTES + 1)], strict=True))


class Transaction(Protocol):
    """One transaction on the books: all of it happens, or nothing."""

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows that a statement answers, if it answers any; ``?`` stands for a value."""

    def count(self, statement: str) -> int:
        """Return how many rows a statement has changed."""

    def stage(self, lines: Any) -> None:
        """Fills the temporary table ``staged`` (person, account, amount) in bulk."""

    def read_balances(self, account: int, accounts: int) -> tuple[bytes, Any]:
        """Return everybody who has this account, in order of their digests, and what is left of
        it.

        There are about so many accounts of all kinds.
        """

    def version(self) -> int:
        """Return the version of the tables; 0 where there are none."""

    def define(self, statements: Sequence[str], version: int) -> None:
        """Makes or changes tables, and notes their version."""


def migrate(transaction: Transaction) -> None:
    """Brings older books up to date; refuses books that a newer sottovoce has written."""
    there = transaction.version()
    if there > len(MIGRATIONS):
        raise UnsupportedLedger(
            "This ledger was written by a newer version of sottovoce.",
            "An older one might misread them.",
            "Update sottovoce; nothing was changed.",
        )
    for version in range(there, len(MIGRATIONS)):
        transaction.define(MIGRATIONS[version], version + 1)


SELECT_ENTRY = "SELECT number, what, key, request, at, lines, root, digest FROM entries"
#: What its cells are, unless a byte of the file was changed.
ENTRY_TYPES = (int, str, str, str, str, int, bytes, bytes)
SELECT_HISTORY = """
    SELECT entries.number, entries.at, entries.what, entries.key, entries.request,
    lines.account, lines.amount, (SELECT later.number FROM entries AS later
    WHERE later.key = entries.key AND later.what = 'publish')
    FROM entries JOIN lines ON lines.number = entries.number AND lines.person = ?
    ORDER BY entries.number, lines.account"""


def read_first_entry(transaction: Transaction) -> Entry | None:
    """Return the entry that names the books, if they have begun."""
    found = transaction.run(SELECT_ENTRY + " WHERE number = 0")
    if not found and read_head(transaction)[0] >= 0:
        raise broken_ledger_error()  # which would otherwise be begun once more
    if found:
        return _make_entry(found[0])
    return None


def read_head(transaction: Transaction) -> tuple[int, bytes]:
    """Return number and digest of the last entry."""
    found = transaction.run(SELECT_ENTRY + " ORDER BY number DESC LIMIT 1")
    if found:
        last = _make_entry(found[0])
    else:
        last = None
    if last is None:
        return (-1, hash_chain.NO_DIGEST)
    return (last.number, last.digest)


def is_in_chain(transaction: Transaction, seen: tuple[int, bytes]) -> bool:
    """Whether an entry with this number has this digest."""
    found = transaction.run("SELECT digest FROM entries WHERE number = ?", seen[0])
    return found == [(seen[1],)]


def read_entries(transaction: Transaction) -> list[Entry]:
    """Return all entries in order."""
    return [_make_entry(row) for row in transaction.run(SELECT_ENTRY + " ORDER BY number")]


def read_entries_after(transaction: Transaction, number: int) -> list[Entry]:
    """Return the entries after this one, in order."""
    return [
        _make_entry(row)
        for row in transaction.run(SELECT_ENTRY + " WHERE number > ? ORDER BY number", number)
    ]


def read_entry(transaction: Transaction, number: int) -> Entry | None:
    """Return the entry of this number, if there is one."""
    found = transaction.run(SELECT_ENTRY + " WHERE number = ?", number)
    if found:
        return _make_entry(found[0])
    return None


def follow_chain(transaction: Transaction, start: tuple[int, bytes]) -> tuple[int, bytes]:
    """Return the last head that follows from this one.

    Raises if an entry after it does not follow.
    """
    number, before = start
    for entry in read_entries_after(transaction, number):
        if entry.number != number + 1 or entry.digest != hash_chain.digest_entry(entry, before):
            raise broken_ledger_error()
        number = entry.number
        before = entry.digest
    return number, before


def read_digests(transaction: Transaction) -> dict[int, bytes]:
    """Return the digest of each entry."""
    return dict(transaction.run("SELECT number, digest FROM entries"))


def read_signature(transaction: Transaction, number: int) -> bytes | None:
    """Return the signature of an entry, if it has one."""
    found = transaction.run("SELECT signature FROM signatures WHERE number = ?", number)
    if found:
        signature: bytes | None = found[0][0]
        return signature
    return None


def find_upgrade(transaction: Transaction, public: bytes) -> int | None:
    """Return the number of the entry from which on older books are signed with this key."""
    found = transaction.run(
        "SELECT MIN(number) FROM entries WHERE what = 'upgrade' AND root = ?", public
    )
    if found:
        number: int | None = found[0][0]
        return number
    return None


def read_sale(transaction: Transaction, key: str) -> Entry | None:
    """Return the entry of the sale with this key, if there is one."""
    found = transaction.run(SELECT_ENTRY + " WHERE key = ? AND what = 'sale'", key)
    if found:
        return _make_entry(found[0])
    return None


class KeyRecord(NamedTuple):
    """What is known about a key, and the entries that say so."""

    reservation: Reservation
    entries: list[Entry]


def read_key_record(transaction: Transaction, key: str) -> KeyRecord | None:
    """Return what is known about a key.

    Raises if stored bytes are not those that were published.
    """
    refuse_unwritable(key)
    found = transaction.run(SELECT_ENTRY + " WHERE key = ? AND what IN ('reserve', 'charge')", key)
    if not found:
        return None
    entry = _make_entry(found[0])
    published = [
        _make_entry(row)
        for row in transaction.run(SELECT_ENTRY + " WHERE key = ? AND what = 'publish'", key)
    ]
    stored = transaction.run("SELECT text FROM releases WHERE number = ?", entry.number)
    if [later.root for later in published] != [hash_chain.digest_text(text) for (text,) in stored]:
        raise broken_ledger_error()
    if stored:
        release = stored[0][0]
    else:
        release = None
    state: State = "published" if stored or entry.what == "charge" else "reserved"
    return KeyRecord(
        Reservation(key, entry.request, state, entry.number, entry.digest.hex(), release),
        [entry, *published],
    )


def _make_entry(row: tuple[Any, ...]) -> Entry:
    if tuple(map(type, row)) != ENTRY_TYPES:
        raise broken_ledger_error()
    return Entry(*row)


def read_lines(transaction: Transaction, number: int) -> Lines:
    """Return the lines of an entry as they were hashed."""
    found = transaction.run(
        "SELECT person, account, amount FROM lines WHERE number = ? ORDER BY person, account",
        number,
    )
    lines = np.zeros(len(found), dtype=hash_chain.PACKED)
    if found:
        people, accounts, amounts = zip(*found, strict=True)
        if set(map(len, people)) != {hash_chain.PERSON_BYTES} or not set(accounts) <= {
            *range(len(ACCOUNTS)),
            PAYMENT_CODE,
        }:
            raise broken_ledger_error()  # packed they would look like other lines
        lines["person"] = np.frombuffer(b"".join(people), dtype=np.uint8).reshape(
            -1, hash_chain.PERSON_BYTES
        )
        lines["account"] = accounts
        lines["amount"] = amounts
    return lines


def matches_root(transaction: Transaction, entry: Entry, lines: Lines) -> bool:
    """Whether what belongs to an entry is what its root says.

    The root of an opening or an upgrade is a public key.
    """
    if len(lines) != entry.lines or (len(lines) and entry.what not in WITH_LINES):
        return False
    if entry.what != SALE and np.any(lines["account"] == PAYMENT_CODE):
        return False  # only a sale pays
    if entry.what == "publish":
        stored = transaction.run(SELECT_RELEASE, entry.key)
        return bool(stored) and hash_chain.digest_text(stored[0][0]) == entry.root
    return (
        entry.what in ("open", "upgrade")
        or hash_chain.compute_root(hash_chain.hash_lines(lines)) == entry.root
    )


def read_accounts(transaction: Transaction) -> Accounts:
    """Return all accounts as they stand."""
    found = transaction.run(SELECT_ACCOUNTS)
    if found:
        people, *numbers = zip(*found, strict=True)
    else:
        people, *numbers = ((), (), (), (), ())
    if not set(map(len, people)) <= {hash_chain.PERSON_BYTES}:
        raise broken_ledger_error()  # one after the other they would look like other people
    columns = [np.array(column, dtype=np.int64) for column in numbers]
    return Accounts(pair_digests(np.frombuffer(b"".join(people), dtype=np.uint8)), *columns)


def read_balances(transaction: Transaction, asked: Lines) -> Units | None:
    """Return what is left of accounts whose amounts are their places.

    None if one of them is not there.
    """
    transaction.stage(asked)
    found = transaction.run(SELECT_LEFT)
    if len(found) < len(asked):
        return None
    places, rest = (
        np.fromiter(chained.from_iterable(found), np.int64, 2 * len(found)).reshape(-1, 2).T
    )
    return np.asarray(rest[np.argsort(places)])


def read_all_balances(transaction: Transaction, account: int) -> AllBalances:
    """Return what everybody has left of an account."""
    return AllBalances(
        *transaction.read_balances(account, transaction.run("SELECT COUNT(*) FROM accounts")[0][0])
    )


def describe_state(what: str, published: int | None) -> str:
    """Return what became of an entry, in words."""
    if what == "reserve":
        if published is None:
            return "reserved, never published"
        return "published"
    return {"grant": "granted", "sale": "sold", "charge": "outside"}.get(what, what)


def make_history(rows: Sequence[tuple[Any, ...]]) -> list[Line]:
    """Returns what entries did to one person, from rows (number, at, what, key, request, account,
    amount, number of the publication); what a sale paid stands with what was sold.
    """
    paid = {number: amount for number, *_, code, amount, _ in rows if code == PAYMENT_CODE}
    lines = []
    for number, at, what, key, request, code, amount, published in rows:
        if code == PAYMENT_CODE:
            continue
        account = ACCOUNTS[code]
        state = describe_state(what, published)
        line = Line(number, at, what, key, account, to_amount(account, amount), state)
        if what == SALE:
            coin, money = read_sale_terms(request)
            line = replace(line, paid=paid.get(number, 0) * coin, money=money)
        lines.append(line)
    return lines


def refused_charge_error(transaction: Transaction) -> UnknownPeople | BudgetExceeded:
    """The error of a charge that was staged and did not reach everybody."""
    if transaction.run(COUNT_WITHOUT_ACCOUNT)[0][0]:
        return no_account_error()
    return BudgetExceeded(
        "Somebody has not enough left for this.",
        "Nobody is ever charged more than they granted.",
        "Ask for less, or leave out those who cannot afford it.",
        parameter="epsilon",
    )


def no_account_error(account: str | None = None) -> UnknownPeople:
    """The error of somebody who is not in the books, or has no account of one kind.

    It does not say who.
    """
    if account is None:
        return UnknownPeople(
            "Somebody has no account in this ledger, or none of the kind that is asked for.",
            "Everybody is granted a budget first.",
            "Enter their grants, or check how the name is spelt.",
            parameter="person",
        )
    return UnknownPeople(
        f"Somebody has no account of this kind ({account}).",
        "Everybody is granted a budget first, in what the question charges.",
        "Enter their grants, in the account that is named here.",
        parameter="person",
    )


def broken_ledger_error() -> LedgerBroken:
    """The error of books that somebody has changed."""
    return LedgerBroken(
        "The ledger does not add up: an entry, an amount, a balance or a release was changed.",
        "Every balance and every digest follows from the entries.",
        "Stop releasing, and compare with a copy and with the heads in published certificates.",
    )


def overspent_error() -> LedgerBroken:
    """The error of books in which a charge exceeds the grant under which it was made."""
    return LedgerBroken(
        "The ledger does not add up: somebody was charged more than they allowed at that moment.",
        "Every reservation stays within the grant that is in force when it is made.",
        "Stop releasing: somebody changed accounts in the database. Compare with a copy, and "
        "with published heads.",
    )


def no_ledger_error() -> LedgerUnavailable:
    """The error of a place where books are looked for and none are."""
    return LedgerUnavailable(
        "There is no ledger at this place.",
        "A ledger is never begun by mistake: in a new one everybody's budget is whole again.",
        "Check the path, or begin a new ledger with `sottovoce ledger init`.",
        parameter="ledger",
    )


def emptied_ledger_error() -> LedgerBroken:
    """The error of tables without an entry."""
    return LedgerBroken(
        "The tables of the ledger are here, and no entry is in them: somebody deleted all, or "
        "none was ever written.",
        "A ledger is never begun by mistake: in a new one everybody's budget is whole again.",
        "Put a copy of the ledger back; if there never was one, begin it with `sottovoce "
        "ledger init`.",
    )


#: Entries that have lines, in the words of the books: only a reservation must stay within the
#: grant.
GRANT = "grant"
RESERVE = "reserve"
CHARGE = "charge"
SALE = "sale"
WITH_LINES = (GRANT, RESERVE, CHARGE, SALE)


class Accounts(NamedTuple):
    """Accounts in order of people and kinds: what each allows, may have spent at most, and has
    spent.
    """

    people: Any  # digests, as pairs of numbers
    account: Any
    granted: Any
    cap: Any
    spent: Any

    def equals(self, other: Accounts) -> bool:
        """Whether these are the same accounts with the same amounts."""
        return all(np.array_equal(ours, theirs) for ours, theirs in zip(self, other, strict=True))


def replay(entries: list[tuple[str, Lines]]) -> Accounts | None:
    """Return the accounts to which these entries (what, lines) lead, or None if a reservation
    exceeded its grant. A grant is a total, and sales after it add to it.
    """
    sizes = [len(lines) for _, lines in entries]
    lines = np.concatenate(
        [np.zeros(0, dtype=hash_chain.PACKED), *(lines for _, lines in entries)]
    ).astype(hash_chain.PACKED)
    kinds = np.repeat([WITH_LINES.index(what) for what, _ in entries], sizes).astype(np.int8)
    accounted = lines["account"] != PAYMENT_CODE
    lines = lines[accounted]
    kinds = kinds[accounted]
    people = pair_digests(lines["person"])
    order = np.lexsort((np.arange(len(lines)), lines["account"], people[:, 1], people[:, 0]))
    people = people[order]
    account = lines["account"][order].astype(np.int64)
    amount = lines["amount"][order].astype(np.int64)
    kind = kinds[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (people[1:] != people[:-1]).any(axis=1) | (account[1:] != account[:-1])
    firsts = np.flatnonzero(begins)
    first = firsts[np.cumsum(begins) - 1]

    is_grant = kind == WITH_LINES.index(GRANT)
    is_sale = kind == WITH_LINES.index(SALE)
    spent = _sum_since(first, np.where(is_grant | is_sale, 0, amount))
    sold = _sum_since(first, np.where(is_sale, amount, 0))
    newest = np.maximum.accumulate(np.where(is_grant, np.arange(len(order)), -1))
    after = np.maximum(newest, 0)
    granted = np.where(newest >= first, amount[after] + sold - sold[after], sold)
    if np.any((kind == WITH_LINES.index(RESERVE)) & (spent > granted)):
        return None
    if len(order):
        lasts = np.append(firsts[1:], len(order)) - 1
    else:
        lasts = firsts
    return Accounts(
        people[lasts],
        account[lasts],
        granted[lasts],
        np.maximum(granted, spent)[lasts],
        spent[lasts],
    )


def replay_balances(entries: list[tuple[str, Lines]], account: int) -> AllBalances:
    """Return what everybody has left of an account after these entries (what, lines)."""
    accounts = replay(entries)
    if accounts is None:
        raise overspent_error()
    own = accounts.account == account
    left = np.maximum(accounts.granted - accounts.spent, 0)
    return AllBalances(accounts.people[own].astype(">u8").tobytes(), left[own])


def _sum_since(first: Any, amounts: Any) -> Any:
    """Returns the sums of amounts from the first of each account on."""
    total = np.cumsum(
        amounts
    )  # beyond 2⁶³ it begins anew, and the differences are right all the same
    return total - (total - amounts)[first]


def pair_digests(people: Any) -> Any:
    """Return digests of people, a row of bytes each, as two numbers each, in whose order they
    are.
    """
    raw = np.ascontiguousarray(people).reshape(-1, hash_chain.PERSON_BYTES)
    return raw.view(">u8").reshape(-1, 2).astype(np.uint64)
