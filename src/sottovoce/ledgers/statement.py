# SPDX-License-Identifier: Apache-2.0
"""What the books say about one person, with a proof that needs neither the books nor their key.

The proof holds the heads of all entries, the person's own packed lines, and the digests that lead
from each line to its entry's root (docs/theory/ledger.md). Whoever has a head that was published
computes the chain again, and climbs from every line to its root. The last entry is signed, so that
whoever has the public key of the books needs no head. Nobody else is named in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from sottovoce import __version__
from sottovoce.errors import LedgerBroken
from sottovoce.ledger import ACCOUNTS, Entry, Line, get_units_per_one
from sottovoce.ledgers import hash_chain, keyfile
from sottovoce.ledgers.sql_ledger import SqlLedger
from sottovoce.ledgers.sql_reading import make_history

FORMAT = "sottovoce.statement/1"
#: Entries whose root is that of a tree over people's lines.
WITH_LINES = ("grant", "sale", "reserve", "charge")
#: Where a packed line has its account and its amount (hash_chain.py).
AT_ACCOUNT = 1 + hash_chain.PERSON_BYTES
AT_AMOUNT = 2 + hash_chain.PERSON_BYTES
#: What is counted in an account: its letter, and its name in words.
CURRENCY_WORDS = {
    "pure epsilon": ("ε", "pure ε"),
    "zCDP rho": ("ρ", "ρ of zCDP"),
    "epsilon at delta": ("ε", "ε at δ"),
    "delta": ("δ", "δ"),
}


@dataclass(frozen=True)
class AccountBalance:
    """What somebody allows in all and has spent, in whole units."""

    name: str
    granted: int = 0
    spent: int = 0

    @property
    def remaining(self) -> int:
        """What can still be spent: nothing, if the grant was lowered below what is spent."""
        return max(self.granted - self.spent, 0)

    @property
    def neighbours(self) -> str:
        """The relation that the account's promise is about."""
        return self.name.partition(", ")[2]

    @property
    def is_pure(self) -> bool:
        """Whether it counts pure ε."""
        return self.name.startswith("pure epsilon, ")

    @property
    def symbol(self) -> str:
        """The letter of what is counted."""
        return CURRENCY_WORDS[self.name.partition(", ")[0]][0]

    @property
    def description(self) -> str:
        """Currency and neighbours in words."""
        return f"{CURRENCY_WORDS[self.name.partition(', ')[0]][1]}, neighbours by {self.neighbours}"

    @property
    def units_per_one(self) -> int:
        """So many units are one."""
        return get_units_per_one(self.name)

    def format_amount(self, units: int) -> str:
        """Return an amount with its letter, as an exact decimal."""
        exact = Decimal(units) / self.units_per_one
        return f"{self.symbol} = " + (
            f"{exact.normalize():g}" if self.symbol == "δ" else f"{exact:f}"
        )


def sum_accounts(lines: Iterable[Line]) -> list[AccountBalance]:
    """Return the accounts that these lines add up to: the last grant counts, what was sold since,
    and every charge.
    """
    found: dict[str, AccountBalance] = {}
    for line in lines:
        before = found.get(line.account, AccountBalance(line.account))
        units = round(line.amount * before.units_per_one)
        if line.what == "grant":
            granted, spent = (units, before.spent)
        elif line.what == "sale":
            granted, spent = (before.granted + units, before.spent)
        else:
            granted, spent = (before.granted, before.spent + units)
        found[line.account] = AccountBalance(line.account, granted, spent)
    return sorted(found.values(), key=lambda account: ACCOUNTS.index(account.name))


@dataclass(frozen=True)
class ProvedLine:
    """One packed line, and its way to the root of its entry."""

    number: int
    packed: bytes
    steps: tuple[hash_chain.ProofStep, ...]

    @property
    def code(self) -> int:
        """The number of the account that the line is about, or that of a payment."""
        return self.packed[AT_ACCOUNT]

    @property
    def amount(self) -> int:
        """The amount in whole units."""
        return int.from_bytes(self.packed[AT_AMOUNT:], "big")


@dataclass(frozen=True)
class Statement:
    """What the books say about one person, with its proof."""

    person: str
    entries: tuple[Entry, ...]
    proved: tuple[ProvedLine, ...]
    made_by: str = f"sottovoce {__version__}"
    key: str = (
        ""  # the public key of the books, and their signature of the last entry, where they sign
    )
    signature: str = ""

    @classmethod
    def of(cls, books: SqlLedger, person: str) -> Statement:
        """Gathers everything about a person; books that do not add up are found out here."""
        entries = tuple(books.entries())
        # Entries are only ever appended: those that came since are left to the next statement.
        numbers = dict.fromkeys(
            line.number for line in books.history(person) if line.number < len(entries)
        )
        proved = [
            ProvedLine(n, line, tuple(steps))
            for n in numbers
            for line, steps in books.proof(person, n)
        ]
        signature = books.signature(entries[-1].number) or ""
        made = cls(
            person,
            entries,
            tuple(proved),
            key=books.public_key if signature else "",
            signature=signature,
        )
        made.refuse_unproved()
        return made

    @property
    def head(self) -> str:
        """The digest of the last entry."""
        return self.entries[-1].digest.hex()

    def lines(self) -> list[Line]:
        """Return what is to be proved, line by line."""
        published = {entry.key: entry.number for entry in self.entries if entry.what == "publish"}
        rows = []
        for proved in self.proved:
            entry = self.entries[proved.number]
            told = (entry.number, entry.at, entry.what, entry.key, entry.request)
            rows.append((*told, proved.code, proved.amount, published.get(entry.key)))
        return make_history(rows)

    def refuse_unproved(self) -> None:
        """Raise unless entries follow from one another, and lines about one person belong to them,
        each once.
        """
        places = [(line.number, line.packed[:AT_AMOUNT]) for line in self.proved]
        if (
            hash_chain.find_first_break(iter(self.entries)) is not None
            or len({line.packed[:AT_ACCOUNT] for line in self.proved}) != 1
            or len(set(places)) < len(places)
            or not all(self._is_proved(line) for line in self.proved)
            or not self._is_signed()
        ):
            raise LedgerBroken(
                "This statement does not hold: an entry or an amount is not what its digests say.",
                "Every line climbs to the root of its entry, and every entry follows from the "
                "one before.",
                "Do not rely on it, and ask the curator to verify the ledger.",
            )

    def _is_proved(self, line: ProvedLine) -> bool:
        entry = self.entries[line.number]
        leaf = hashlib.sha256(line.packed).digest()
        shaped = len(line.packed) == hash_chain.PACKED.itemsize  # which no node of a tree has
        return (
            entry.what in WITH_LINES
            and shaped
            and hash_chain.climb_proof(leaf, line.steps) == entry.root
        )

    def _is_signed(self) -> bool:
        """Whether the signature holds, under the key that the entries name.

        Books that do not sign have none.
        """
        keys = {entry.root.hex() for entry in self.entries if entry.what in ("open", "upgrade")}
        last = self.entries[-1]
        message = keyfile.make_entry_message(self.entries[0].key, last.number, last.digest)
        if not self.key:
            return keys == {hash_chain.NO_DIGEST.hex()}
        return self.key in keys and keyfile.is_signed(
            bytes.fromhex(self.key), message, bytes.fromhex(self.signature)
        )

    def refuse_other_key(self, key: str) -> None:
        """Raise unless the statement was signed by the holder of this public key."""
        if keyfile.read_key(key).hex() != self.key:
            raise LedgerBroken(
                "This statement was not signed with this key.",
                "A ledger signs every entry; one of an earlier version does so after an upgrade.",
                "Check that the key is the one that the curator has published; else do not rely "
                "on the statement.",
                parameter="key",
            )

    def confirm_head(self, head: str) -> int:
        """Return the number of the entry with this digest: all up to it are as they were when it
        was published.
        """
        for entry in reversed(self.entries):
            if entry.digest.hex() == head.strip().lower():
                return entry.number
        raise LedgerBroken(
            "This statement does not lead to this head.",
            "A head that was published before the statement was made is the digest of one of its "
            "entries.",
            "Check that the head is one of this ledger, with all its 64 digits; else ask the "
            "curator.",
            parameter="head",
        )

    def to_json(self) -> str:
        """The proof as JSON text, in one fixed order and spelling, which no script of a page is
        ended by.
        """
        names = {"format": FORMAT, "made_by": self.made_by, "person": self.person}
        heads = [
            [e.number, e.what, e.key, e.request, e.at, e.lines, e.root.hex()] for e in self.entries
        ]
        lines = [
            {
                "entry": p.number,
                "packed": p.packed.hex(),
                "steps": [[_join_hex(s.before), _join_hex(s.after)] for s in p.steps],
            }
            for p in self.proved
        ]
        if self.key:
            names |= {"key": self.key, "signature": self.signature}
        told = [f"{_dump_value(name)}: {_dump_value(value)}" for name, value in names.items()]
        told += [f'"entries": {_dump_list(heads)}', f'"lines": {_dump_list(lines)}']
        return "{\n" + ",\n".join(told) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Statement:
        """Reads a proof, and computes the digests of its entries.

        Raises errors of Python's where it is none.
        """
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ValueError
        entries = []
        before = hash_chain.NO_DIGEST
        for number, what, key, request, at, lines, root in content["entries"]:
            bare = Entry(number, what, key, request, at, lines, bytes.fromhex(root), b"")
            before = hash_chain.digest_entry(bare, before)
            entries.append(replace(bare, digest=before))
        proved = [
            ProvedLine(
                line["entry"],
                bytes.fromhex(line["packed"]),
                tuple(_read_step(*pair) for pair in line["steps"]),
            )
            for line in content["lines"]
        ]
        return cls(
            content["person"],
            tuple(entries),
            tuple(proved),
            content["made_by"],
            bytes.fromhex(content.get("key", "")).hex(),
            bytes.fromhex(content.get("signature", "")).hex(),
        )


def _dump_list(many: Sequence[Any]) -> str:
    return "[\n" + ",\n".join(map(_dump_value, many)) + "\n]"


def _dump_value(value: Any) -> str:
    # A key of a release may be any text, also one that would end the script around it.
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _join_hex(digests: Sequence[bytes]) -> str:
    return b"".join(digests).hex()


def _read_step(before: str, after: str) -> hash_chain.ProofStep:
    return hash_chain.ProofStep((bytes.fromhex(before),), (bytes.fromhex(after),))
