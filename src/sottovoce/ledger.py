# SPDX-License-Identifier: Apache-2.0
"""Ledger, the contract: reserve, publish, balance, verify.

A charge is written before a private value is read and never taken back: whether a release failed may
depend on the data. One key stands for one release for ever; asked again, it returns the same bytes.
Amounts are whole units of a billionth of ε.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

State = Literal["reserved", "published"]


@dataclass(frozen=True)
class Entry:
    """One line of the books."""

    key: str
    request: str  # a fingerprint of what was asked
    charges: Mapping[Any, int]
    state: State
    release: str | None = None


class Ledger(Protocol):
    """Books in which nobody can be overcharged."""

    def grant(self, amounts: Mapping[Any, int]) -> None:
        """Sets what each person allows in all; below what is spent it freezes them."""

    def balance(self, person: Any) -> int:
        """Returns what a person has left."""

    def find(self, key: str) -> Entry | None:
        """Returns the entry with this key."""

    def reserve(self, key: str, request: str, charges: Mapping[Any, int]) -> None:
        """Charges everybody at once, or nobody: raises if one of them has not enough left."""

    def publish(self, key: str, release: str) -> None:
        """Keeps the bytes of a release under its reserved key."""

    def verify(self) -> None:
        """Recomputes every balance from the entries; raises if the books do not add up."""
