# SPDX-License-Identifier: Apache-2.0
"""What a table's people have left in the books, looked up once and remembered until something is written there.

Looking up a million people takes a second, because everybody's name is hidden under the ledger's key first; a slider
asks for it at every move. What is left changes only with a new entry, so the number of the last entry is part of what
is remembered: entries that other programs write are seen too. Only plans are made from it. A release looks for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sottovoce.errors import UnknownPeople
from sottovoce.ledger import USUAL
from sottovoce.units import Units
from sottovoce.web.desk import Desk


@dataclass(frozen=True)
class Remembered:
    """The books on the desk, asked once between two entries what the people in a column of a table have left."""

    desk: Desk
    table: str
    person: str | None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.desk.session.ledger, name)

    def balances(self, people: Sequence[Any], account: str = USUAL) -> Units:
        """Returns what each has left; raises if somebody has no such account."""
        *_, last = self.desk.session.ledger.entries()
        what = (self.table, self.person, account, last.number)
        found: Units | None = self.desk.counted(what, lambda: self._looked_up(people, account))
        if found is None:
            raise UnknownPeople("Somebody has no account of this kind.", "", "Write the table's grants into the books.")
        return found

    def _looked_up(self, people: Sequence[Any], account: str) -> Units | None:
        books = self.desk.session.ledger
        try:
            books.balances(people[:1], account)  # where nobody has an account yet, one person tells so at once
            return books.balances(people, account)
        except UnknownPeople:
            return None  # remembered, too: to find out takes as long
