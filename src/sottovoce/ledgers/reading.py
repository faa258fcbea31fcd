# SPDX-License-Identifier: Apache-2.0
"""Reading the books within a transaction: the chain, a key, the lines of an entry."""

from __future__ import annotations

from itertools import chain as chained
from typing import Any, NamedTuple

import numpy as np

from sottovoce.errors import BudgetExceeded, LedgerBroken, LedgerUnavailable, UnknownPeople
from sottovoce.ledger import ACCOUNTS, Entry, Everybody, Reservation, State, refuse_unwritable
from sottovoce.ledgers import chain, schema
from sottovoce.ledgers import replay as replaying
from sottovoce.ledgers.chain import Lines
from sottovoce.ledgers.replay import Accounts
from sottovoce.ledgers.schema import Transaction
from sottovoce.units import Units

ENTRY = "SELECT number, what, key, request, at, lines, root, digest FROM entries"
#: What its cells are, unless a byte of the file was changed.
KINDS = (int, str, str, str, str, int, bytes, bytes)
HISTORY = """
    SELECT entries.number, entries.at, entries.what, entries.key, lines.account, lines.amount,
    (SELECT later.number FROM entries AS later WHERE later.key = entries.key AND later.what = 'publish')
    FROM entries JOIN lines ON lines.number = entries.number AND lines.person = ?
    ORDER BY entries.number, lines.account"""


def first(transaction: Transaction) -> Entry | None:
    """Returns the entry that names the books, if they have begun."""
    found = transaction.run(ENTRY + " WHERE number = 0")
    if not found and head(transaction)[0] >= 0:
        raise broken()  # which would otherwise be begun once more
    return _entry(found[0]) if found else None


def head(transaction: Transaction) -> tuple[int, bytes]:
    """Returns number and digest of the last entry."""
    found = transaction.run(ENTRY + " ORDER BY number DESC LIMIT 1")
    last = _entry(found[0]) if found else None
    return (-1, chain.NOTHING) if last is None else (last.number, last.digest)


def in_chain(transaction: Transaction, seen: tuple[int, bytes]) -> bool:
    """Whether an entry with this number has this digest."""
    found = transaction.run("SELECT digest FROM entries WHERE number = ?", seen[0])
    return found == [(seen[1],)]


def entries(transaction: Transaction) -> list[Entry]:
    """Returns all entries in order."""
    return [_entry(row) for row in transaction.run(ENTRY + " ORDER BY number")]


def since(transaction: Transaction, number: int) -> list[Entry]:
    """Returns the entries after this one, in order."""
    return [_entry(row) for row in transaction.run(ENTRY + " WHERE number > ? ORDER BY number", number)]


def at(transaction: Transaction, number: int) -> Entry | None:
    """Returns the entry of this number, if there is one."""
    found = transaction.run(ENTRY + " WHERE number = ?", number)
    return _entry(found[0]) if found else None


def chained_to(transaction: Transaction, start: tuple[int, bytes]) -> tuple[int, bytes]:
    """Returns the last head that follows from this one; raises if an entry after it does not follow."""
    number, before = start
    for entry in since(transaction, number):
        if entry.number != number + 1 or entry.digest != chain.digest(entry, before):
            raise broken()
        number, before = entry.number, entry.digest
    return number, before


def digests(transaction: Transaction) -> dict[int, bytes]:
    """Returns the digest of each entry."""
    return dict(transaction.run("SELECT number, digest FROM entries"))


def signature(transaction: Transaction, number: int) -> bytes | None:
    """Returns the signature of an entry, if it has one."""
    found = transaction.run("SELECT signature FROM signatures WHERE number = ?", number)
    return found[0][0] if found else None


def upgraded(transaction: Transaction, public: bytes) -> int | None:
    """Returns the number of the entry from which on older books are signed with this key."""
    found = transaction.run("SELECT MIN(number) FROM entries WHERE what = 'upgrade' AND root = ?", public)
    return found[0][0] if found else None


class About(NamedTuple):
    """What is known about a key, and the entries that say so."""

    reservation: Reservation
    entries: list[Entry]


def about(transaction: Transaction, key: str) -> About | None:
    """Returns what is known about a key; raises if stored bytes are not those that were published."""
    refuse_unwritable(key)
    found = transaction.run(ENTRY + " WHERE key = ? AND what IN ('reserve', 'charge')", key)
    if not found:
        return None
    entry = _entry(found[0])
    published = [_entry(row) for row in transaction.run(ENTRY + " WHERE key = ? AND what = 'publish'", key)]
    stored = transaction.run("SELECT text FROM releases WHERE number = ?", entry.number)
    if [later.root for later in published] != [chain.of_text(text) for (text,) in stored]:
        raise broken()
    release = stored[0][0] if stored else None
    state: State = "published" if stored or entry.what == "charge" else "reserved"
    return About(Reservation(key, entry.request, state, entry.number, entry.digest.hex(), release), [entry, *published])


def _entry(row: tuple[Any, ...]) -> Entry:
    if tuple(map(type, row)) != KINDS:
        raise broken()
    return Entry(*row)


def lines_of(transaction: Transaction, number: int) -> Lines:
    """Returns the lines of an entry as they were hashed."""
    found = transaction.run(
        "SELECT person, account, amount FROM lines WHERE number = ? ORDER BY person, account", number
    )
    lines = np.zeros(len(found), dtype=chain.PACKED)
    if found:
        people, accounts, amounts = zip(*found, strict=True)
        if set(map(len, people)) != {chain.PERSON_BYTES} or not set(accounts) <= set(range(len(ACCOUNTS))):
            raise broken()  # packed they would look like other lines
        lines["person"] = np.frombuffer(b"".join(people), dtype=np.uint8).reshape(-1, chain.PERSON_BYTES)
        lines["account"], lines["amount"] = accounts, amounts
    return lines


def belongs(transaction: Transaction, entry: Entry, lines: Lines) -> bool:
    """Whether what belongs to an entry is what its root says; the root of an opening or an upgrade is a public key."""
    if len(lines) != entry.lines or (len(lines) and entry.what not in replaying.WITH_LINES):
        return False
    if entry.what == "publish":
        stored = transaction.run(schema.STORED, entry.key)
        return bool(stored) and chain.of_text(stored[0][0]) == entry.root
    return entry.what in ("open", "upgrade") or chain.root(chain.leaves(lines)) == entry.root


def accounts(transaction: Transaction) -> Accounts:
    """Returns all accounts as they stand."""
    found = transaction.run(schema.ACCOUNTS)
    people, *numbers = zip(*found, strict=True) if found else ((), (), (), (), ())
    if not set(map(len, people)) <= {chain.PERSON_BYTES}:
        raise broken()  # one after the other they would look like other people
    columns = [np.array(column, dtype=np.int64) for column in numbers]
    return Accounts(replaying.pairs(np.frombuffer(b"".join(people), dtype=np.uint8)), *columns)


def left(transaction: Transaction, asked: Lines) -> Units | None:
    """Returns what is left of accounts whose amounts are their places; None if one of them is not there."""
    transaction.stage(asked)
    found = transaction.run(schema.LEFT)
    if len(found) < len(asked):
        return None
    places, rest = np.fromiter(chained.from_iterable(found), np.int64, 2 * len(found)).reshape(-1, 2).T
    return np.asarray(rest[np.argsort(places)])


def everybody(transaction: Transaction, account: int) -> Everybody:
    """Returns what everybody has left of an account."""
    return Everybody(*transaction.read_balances(account, transaction.run("SELECT COUNT(*) FROM accounts")[0][0]))


def state_of(what: str, published: int | None) -> str:
    """Returns what became of an entry, in words."""
    if what == "reserve":
        return "reserved, never published" if published is None else "published"
    return {"grant": "granted", "charge": "outside"}.get(what, what)


def refused(transaction: Transaction) -> UnknownPeople | BudgetExceeded:
    """The error of a charge that was staged and did not reach everybody."""
    if transaction.run(schema.WITHOUT_ACCOUNT)[0][0]:
        return no_account()
    return BudgetExceeded(
        "Somebody has not enough left for this.",
        "Nobody is ever charged more than they granted.",
        "Ask for less, or leave out those who cannot afford it.",
    )


def no_account(account: str | None = None) -> UnknownPeople:
    """The error of somebody who is not in the books, or has no account of one kind; it does not say who."""
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


def broken() -> LedgerBroken:
    """The error of books that somebody has changed."""
    return LedgerBroken(
        "The books do not add up: an entry, an amount, a balance or a release was changed.",
        "Every balance and every digest follows from the entries.",
        "Stop releasing, and compare with a copy and with the heads in published certificates.",
    )


def overspent() -> LedgerBroken:
    """The error of books in which a charge exceeds the grant under which it was made."""
    return LedgerBroken(
        "The books do not add up: somebody was charged more than they allowed at that moment.",
        "Every reservation stays within the grant that is in force when it is made.",
        "Stop releasing: somebody changed accounts in the database. Compare with a copy, and with published heads.",
    )


def no_books() -> LedgerUnavailable:
    """The error of a place where books are looked for and none are."""
    return LedgerUnavailable(
        "There are no books at this place.",
        "Books are never begun by mistake: in new ones everybody's budget is whole again.",
        "Check the path, or begin new books with `sottovoce ledger init`.",
    )


def emptied() -> LedgerBroken:
    """The error of tables without an entry."""
    return LedgerBroken(
        "The tables of the books are here, and no entry is in them: somebody deleted all, or none was ever written.",
        "Books are never begun by mistake: in new ones everybody's budget is whole again.",
        "Put a copy of the books back; if there never were any, begin them with `sottovoce ledger init`.",
    )
