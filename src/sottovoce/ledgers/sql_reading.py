# SPDX-License-Identifier: Apache-2.0
"""Reading the books within a transaction: the chain, a key, the lines of an entry.

All entries once more, from the first grant: nobody was ever charged beyond what they allowed at
that moment.

A comparison of totals would not tell: whoever raises an account, has it charged, and lowers it
again leaves totals that agree with the last grant. So every charge is compared with the grant that
was in force when it was made. What was spent outside is a fact, and may exceed it.
"""

from __future__ import annotations

from itertools import chain as chained
from typing import Any, NamedTuple

import numpy as np

from sottovoce.errors import BudgetExceeded, LedgerBroken, LedgerUnavailable, UnknownPeople
from sottovoce.ledger import ACCOUNTS, AllBalances, Entry, Reservation, State, refuse_unwritable
from sottovoce.ledgers import hash_chain, sql_schema
from sottovoce.ledgers.hash_chain import Lines
from sottovoce.ledgers.sql_schema import Transaction
from sottovoce.units import Units

SELECT_ENTRY = "SELECT number, what, key, request, at, lines, root, digest FROM entries"
#: What its cells are, unless a byte of the file was changed.
ENTRY_TYPES = (int, str, str, str, str, int, bytes, bytes)
SELECT_HISTORY = """
    SELECT entries.number, entries.at, entries.what, entries.key, lines.account, lines.amount,
    (SELECT later.number FROM entries AS later
    WHERE later.key = entries.key AND later.what = 'publish')
    FROM entries JOIN lines ON lines.number = entries.number AND lines.person = ?
    ORDER BY entries.number, lines.account"""


def read_first_entry(transaction: Transaction) -> Entry | None:
    """Returns the entry that names the books, if they have begun."""
    found = transaction.run(SELECT_ENTRY + " WHERE number = 0")
    if not found and read_head(transaction)[0] >= 0:
        raise broken_ledger_error()  # which would otherwise be begun once more
    if found:
        return _make_entry(found[0])
    return None


def read_head(transaction: Transaction) -> tuple[int, bytes]:
    """Returns number and digest of the last entry."""
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
    """Returns all entries in order."""
    return [_make_entry(row) for row in transaction.run(SELECT_ENTRY + " ORDER BY number")]


def read_entries_after(transaction: Transaction, number: int) -> list[Entry]:
    """Returns the entries after this one, in order."""
    return [
        _make_entry(row)
        for row in transaction.run(SELECT_ENTRY + " WHERE number > ? ORDER BY number", number)
    ]


def read_entry(transaction: Transaction, number: int) -> Entry | None:
    """Returns the entry of this number, if there is one."""
    found = transaction.run(SELECT_ENTRY + " WHERE number = ?", number)
    if found:
        return _make_entry(found[0])
    return None


def follow_chain(transaction: Transaction, start: tuple[int, bytes]) -> tuple[int, bytes]:
    """Returns the last head that follows from this one; raises if an entry after it does not
    follow.
    """
    number, before = start
    for entry in read_entries_after(transaction, number):
        if entry.number != number + 1 or entry.digest != hash_chain.digest_entry(entry, before):
            raise broken_ledger_error()
        number = entry.number
        before = entry.digest
    return number, before


def read_digests(transaction: Transaction) -> dict[int, bytes]:
    """Returns the digest of each entry."""
    return dict(transaction.run("SELECT number, digest FROM entries"))


def read_signature(transaction: Transaction, number: int) -> bytes | None:
    """Returns the signature of an entry, if it has one."""
    found = transaction.run("SELECT signature FROM signatures WHERE number = ?", number)
    if found:
        signature: bytes | None = found[0][0]
        return signature
    return None


def find_upgrade(transaction: Transaction, public: bytes) -> int | None:
    """Returns the number of the entry from which on older books are signed with this key."""
    found = transaction.run(
        "SELECT MIN(number) FROM entries WHERE what = 'upgrade' AND root = ?", public
    )
    if found:
        number: int | None = found[0][0]
        return number
    return None


class KeyRecord(NamedTuple):
    """What is known about a key, and the entries that say so."""

    reservation: Reservation
    entries: list[Entry]


def read_key_record(transaction: Transaction, key: str) -> KeyRecord | None:
    """Returns what is known about a key; raises if stored bytes are not those that were
    published.
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
    """Returns the lines of an entry as they were hashed."""
    found = transaction.run(
        "SELECT person, account, amount FROM lines WHERE number = ? ORDER BY person, account",
        number,
    )
    lines = np.zeros(len(found), dtype=hash_chain.PACKED)
    if found:
        people, accounts, amounts = zip(*found, strict=True)
        if set(map(len, people)) != {hash_chain.PERSON_BYTES} or not set(accounts) <= set(
            range(len(ACCOUNTS))
        ):
            raise broken_ledger_error()  # packed they would look like other lines
        lines["person"] = np.frombuffer(b"".join(people), dtype=np.uint8).reshape(
            -1, hash_chain.PERSON_BYTES
        )
        lines["account"] = accounts
        lines["amount"] = amounts
    return lines


def matches_root(transaction: Transaction, entry: Entry, lines: Lines) -> bool:
    """Whether what belongs to an entry is what its root says; the root of an opening or an upgrade
    is a public key.
    """
    if len(lines) != entry.lines or (len(lines) and entry.what not in WITH_LINES):
        return False
    if entry.what == "publish":
        stored = transaction.run(sql_schema.SELECT_RELEASE, entry.key)
        return bool(stored) and hash_chain.digest_text(stored[0][0]) == entry.root
    return (
        entry.what in ("open", "upgrade")
        or hash_chain.compute_root(hash_chain.hash_lines(lines)) == entry.root
    )


def read_accounts(transaction: Transaction) -> Accounts:
    """Returns all accounts as they stand."""
    found = transaction.run(sql_schema.SELECT_ACCOUNTS)
    if found:
        people, *numbers = zip(*found, strict=True)
    else:
        people, *numbers = ((), (), (), (), ())
    if not set(map(len, people)) <= {hash_chain.PERSON_BYTES}:
        raise broken_ledger_error()  # one after the other they would look like other people
    columns = [np.array(column, dtype=np.int64) for column in numbers]
    return Accounts(pair_digests(np.frombuffer(b"".join(people), dtype=np.uint8)), *columns)


def read_balances(transaction: Transaction, asked: Lines) -> Units | None:
    """Returns what is left of accounts whose amounts are their places; None if one of them is not
    there.
    """
    transaction.stage(asked)
    found = transaction.run(sql_schema.SELECT_LEFT)
    if len(found) < len(asked):
        return None
    places, rest = (
        np.fromiter(chained.from_iterable(found), np.int64, 2 * len(found)).reshape(-1, 2).T
    )
    return np.asarray(rest[np.argsort(places)])


def read_all_balances(transaction: Transaction, account: int) -> AllBalances:
    """Returns what everybody has left of an account."""
    return AllBalances(
        *transaction.read_balances(account, transaction.run("SELECT COUNT(*) FROM accounts")[0][0])
    )


def describe_state(what: str, published: int | None) -> str:
    """Returns what became of an entry, in words."""
    if what == "reserve":
        if published is None:
            return "reserved, never published"
        return "published"
    return {"grant": "granted", "charge": "outside"}.get(what, what)


def refused_charge_error(transaction: Transaction) -> UnknownPeople | BudgetExceeded:
    """The error of a charge that was staged and did not reach everybody."""
    if transaction.run(sql_schema.COUNT_WITHOUT_ACCOUNT)[0][0]:
        return no_account_error()
    return BudgetExceeded(
        "Somebody has not enough left for this.",
        "Nobody is ever charged more than they granted.",
        "Ask for less, or leave out those who cannot afford it.",
    )


def no_account_error(account: str | None = None) -> UnknownPeople:
    """The error of somebody who is not in the books, or has no account of one kind; it does not say
    who.
    """
    if account is None:
        return UnknownPeople(
            "Somebody has no account in these books, or none of the kind that is asked for.",
            "Everybody is granted a budget first.",
            "Enter their grants, or check how the name is spelt.",
        )
    return UnknownPeople(
        f"Somebody has no account of this kind ({account}).",
        "Everybody is granted a budget first, in what the question charges.",
        "Enter their grants, in the account that is named here.",
    )


def broken_ledger_error() -> LedgerBroken:
    """The error of books that somebody has changed."""
    return LedgerBroken(
        "The books do not add up: an entry, an amount, a balance or a release was changed.",
        "Every balance and every digest follows from the entries.",
        "Stop releasing, and compare with a copy and with the heads in published certificates.",
    )


def overspent_error() -> LedgerBroken:
    """The error of books in which a charge exceeds the grant under which it was made."""
    return LedgerBroken(
        "The books do not add up: somebody was charged more than they allowed at that moment.",
        "Every reservation stays within the grant that is in force when it is made.",
        "Stop releasing: somebody changed accounts in the database. Compare with a copy, and "
        "with published heads.",
    )


def no_ledger_error() -> LedgerUnavailable:
    """The error of a place where books are looked for and none are."""
    return LedgerUnavailable(
        "There are no books at this place.",
        "Books are never begun by mistake: in new ones everybody's budget is whole again.",
        "Check the path, or begin new books with `sottovoce ledger init`.",
    )


def emptied_ledger_error() -> LedgerBroken:
    """The error of tables without an entry."""
    return LedgerBroken(
        "The tables of the books are here, and no entry is in them: somebody deleted all, or "
        "none was ever written.",
        "Books are never begun by mistake: in new ones everybody's budget is whole again.",
        "Put a copy of the books back; if there never were any, begin them with `sottovoce "
        "ledger init`.",
    )


#: Entries that have lines, in the words of the books: only a reservation must stay within the
#: grant.
GRANT = "grant"
RESERVE = "reserve"
CHARGE = "charge"
WITH_LINES = (GRANT, RESERVE, CHARGE)


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
    """Returns the accounts to which these entries (what, lines) lead, or None if a reservation
    exceeded its grant.
    """
    sizes = [len(lines) for _, lines in entries]
    lines = np.concatenate(
        [np.zeros(0, dtype=hash_chain.PACKED), *(lines for _, lines in entries)]
    ).astype(hash_chain.PACKED)
    kinds = np.repeat([WITH_LINES.index(what) for what, _ in entries], sizes).astype(np.int8)
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

    charged = np.where(kind == WITH_LINES.index(GRANT), 0, amount)
    total = np.cumsum(
        charged
    )  # beyond 2⁶³ it begins anew, and the differences are right all the same
    spent = total - (total - charged)[first]
    newest = np.maximum.accumulate(
        np.where(kind == WITH_LINES.index(GRANT), np.arange(len(order)), -1)
    )
    granted = np.where(newest >= first, amount[np.maximum(newest, 0)], 0)
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


def pair_digests(people: Any) -> Any:
    """Returns digests of people, a row of bytes each, as two numbers each, in whose order they
    are.
    """
    raw = np.ascontiguousarray(people).reshape(-1, hash_chain.PERSON_BYTES)
    return raw.view(">u8").reshape(-1, 2).astype(np.uint64)
