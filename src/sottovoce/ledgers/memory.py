# SPDX-License-Identifier: Apache-2.0
"""Books in memory: correct, safe among threads, and gone with the process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sottovoce.errors import BudgetExceeded, KeyReused, LedgerBroken, UnknownPeople
from sottovoce.ledger import Entry


class MemoryLedger:
    """A ledger that lasts as long as the process."""

    def __init__(self) -> None:
        self._caps: dict[Any, int] = {}
        self._spent: dict[Any, int] = {}
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def grant(self, amounts: Mapping[Any, int]) -> None:
        """Sets what each person allows in all; below what is spent it freezes them."""
        with self._lock:
            self._caps.update(amounts)
            for person in amounts:
                self._spent.setdefault(person, 0)

    def balance(self, person: Any) -> int:
        """Returns what a person has left."""
        if person not in self._caps:
            raise UnknownPeople(
                "This person has no account.", "Everybody is granted a budget first.", "Call grant for them."
            )
        return max(self._caps[person] - self._spent[person], 0)

    def find(self, key: str) -> Entry | None:
        """Returns the entry with this key."""
        return self._entries.get(key)

    def reserve(self, key: str, request: str, charges: Mapping[Any, int]) -> None:
        """Charges everybody at once, or nobody."""
        with self._lock:
            if key in self._entries:
                raise KeyReused("This key stands for another release already.", "", "Choose a new key.")
            if any(amount > self.balance(person) for person, amount in charges.items()):
                raise BudgetExceeded(
                    "Somebody has not enough left for this.",
                    "Nobody is ever charged more than they granted.",
                    "Ask for less, or leave out those who cannot afford it.",
                )
            for person, amount in charges.items():
                self._spent[person] += amount
            self._entries[key] = Entry(key, request, dict(charges), "reserved")

    def publish(self, key: str, release: str) -> None:
        """Keeps the bytes of a release under its reserved key."""
        with self._lock:
            self._entries[key] = replace(self._entries[key], state="published", release=release)

    def verify(self) -> None:
        """Recomputes every balance from the entries; raises if the books do not add up."""
        totals = dict.fromkeys(self._caps, 0)
        with self._lock:
            for entry in self._entries.values():
                for person, amount in entry.charges.items():
                    totals[person] += amount
            if totals != self._spent:
                raise LedgerBroken(
                    "The entries do not add up to what is spent.", "", "Stop releasing and look at the history."
                )
