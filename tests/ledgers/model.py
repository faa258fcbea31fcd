"""The books in thirty lines: what every ledger must agree with, without a database, a chain or a
key.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Model:
    """Caps, what is spent, and what is kept under each key."""

    granted: dict[tuple[str, str], int] = field(default_factory=dict)
    spent: dict[tuple[str, str], int] = field(default_factory=dict)
    reserved: dict[tuple[str, str], int] = field(
        default_factory=dict
    )  # what releases have spent of it
    kept: dict[str, str | None] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)
    entries: int = 1  # the one that opened the books

    def grant(self, account: str, amounts: dict[str, int]) -> None:
        self.granted.update({(person, account): units for person, units in amounts.items()})
        self.entries += 1

    def left(self, account: str, person: str) -> int:
        at = (person, account)
        return max(self.granted[at] - self.spent.get(at, 0), 0)

    def reserve(self, key: str, account: str, amounts: dict[str, int], outside: bool) -> str:
        """What the books must do: charge everybody, return what is known, or name what is wrong."""
        if key in self.kept:
            return "known"
        amounts = {person: units for person, units in amounts.items() if units}
        if outside:  # a fact, whoever is short, and whether or not there is an account
            for person in amounts:
                self.granted.setdefault((person, account), 0)
        elif any((person, account) not in self.granted for person in amounts):
            return "unknown people"
        elif any(units > self.left(account, person) for person, units in amounts.items()):
            return "too much"
        for person, units in amounts.items():
            self.spent[person, account] = self.spent.get((person, account), 0) + units
            if not outside:
                self.reserved[person, account] = self.reserved.get((person, account), 0) + units
        self.kept[key] = None
        self.outside |= {key} if outside else set()
        self.entries += 1
        return "charged"

    def publish(self, key: str, text: str) -> bool:
        if key not in self.kept or key in self.outside or self.kept[key] not in (None, text):
            return False
        self.entries += self.kept[key] is None
        self.kept[key] = text
        return True
