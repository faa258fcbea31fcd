# SPDX-License-Identifier: Apache-2.0
"""The tables of the books, in the words that SQLite and PostgreSQL share, and how older books
become newer ones.

    accounts   what each person allows and has spent; spent ≤ cap is a CHECK, and cap = max(granted,
               spent)
    entries    the chain: grants, reservations, publications, charges from outside
    lines      what an entry did to whom
    releases   published bytes
    signatures of entries, since books are signed (signing.py)

A person is a digest (keyfile.py). Nothing is ever deleted, and only accounts are ever updated.
There are no foreign keys: a server would check a million lines one by one, and verify asks the same
in one question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sottovoce.errors import UnsupportedLedger
from sottovoce.ledgers.hash_chain import PERSON_BYTES

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
#: One step for each version. Never changed once it is out: books that were written under it exist.
MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _SIGNED)

GRANT = """
    INSERT INTO accounts (person, account, granted, cap, spent)
    SELECT person, account, amount, amount, 0 FROM staged WHERE true
    ON CONFLICT (person, account) DO UPDATE SET granted = excluded.granted,
    cap = CASE WHEN excluded.granted > accounts.spent
    THEN excluded.granted ELSE accounts.spent END"""
#: One statement for everybody; whoever has not enough left is not updated, and is missed in the
#: count.
CHARGE = """
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
    """Returns from where to where digests are read, so that parts of all accounts are about as
    large as PART.
    """
    parts = max(1, accounts // PART_SIZE)
    edges = [(place * 2**32 // parts).to_bytes(4, "big") for place in range(1, parts)]
    return list(zip([b"", *edges], [*edges, b"\xff" * (PERSON_BYTES + 1)], strict=True))


class Transaction(Protocol):
    """One transaction on the books: all of it happens, or nothing."""

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Returns the rows that a statement answers, if it answers any; ``?`` stands for a
        value.
        """

    def count(self, statement: str) -> int:
        """Returns how many rows a statement has changed."""

    def stage(self, lines: Any) -> None:
        """Fills the temporary table ``staged`` (person, account, amount) in bulk."""

    def read_balances(self, account: int, accounts: int) -> tuple[bytes, Any]:
        """Returns everybody who has this account, in order of their digests, and what is left of
        it.

        There are about so many accounts of all kinds.
        """

    def version(self) -> int:
        """Returns the version of the tables; 0 where there are none."""

    def define(self, statements: Sequence[str], version: int) -> None:
        """Makes or changes tables, and notes their version."""


def migrate(transaction: Transaction) -> None:
    """Brings older books up to date; refuses books that a newer sottovoce has written."""
    there = transaction.version()
    if there > len(MIGRATIONS):
        raise UnsupportedLedger(
            "These books were written by a newer version of sottovoce.",
            "An older one might misread them.",
            "Update sottovoce; nothing was changed.",
        )
    for version in range(there, len(MIGRATIONS)):
        transaction.define(MIGRATIONS[version], version + 1)
