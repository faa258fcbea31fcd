# SPDX-License-Identifier: Apache-2.0
"""What a table's people have left in the books, looked up once and remembered until something is written there.

Looking up a million people takes a second or two, because everybody's name is hidden under the ledger's key first, and
everybody's account is read; a slider asks for it at every move. Digests stay what they are, and what is left changes
only with a new entry, so the number of the last entry is part of what is remembered: entries that other programs write
are seen too. Only plans are made from it. A release looks for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sottovoce.errors import UnknownPeople
from sottovoce.ledger import USUAL, Everybody
from sottovoce.ledgers import chain
from sottovoce.ledgers.books import MANY
from sottovoce.units import Units
from sottovoce.web.desk import Desk

#: So many accounts are read before anybody asks for them: some seconds, and a hundred megabytes.
AHEAD = 5_000_000


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
        what = (self.table, self.person, account, _last(self.desk))
        found: Units | None = self.desk.get_cached(what, lambda: self._look_up(people, account))
        if found is None:
            raise UnknownPeople("Somebody has no account of this kind.", "", "Write the table's grants into the books.")
        return found

    def _look_up(self, people: Sequence[Any], account: str) -> Units | None:
        books = self.desk.session.ledger
        try:
            books.balances(people[:1], account)  # where nobody has an account yet, one person tells so at once
            if not books.fewer_than(MANY * len(people)):
                return books.balances(people, account)
        except UnknownPeople:
            return None  # remembered, too: to find out takes as long
        digests = self.desk.get_cached(("digests", self.table, self.person), lambda: books.digests(people))
        return chain.looked_up(digests, *everybody(self.desk, account))


def everybody(desk: Desk, account: str = USUAL) -> Everybody:
    """Returns what everybody in the books has left of an account, read once between two entries."""
    what = ("everybody", account, _last(desk))
    found: Everybody = desk.get_cached(what, lambda: desk.session.ledger.everybody(account))
    return found


def read_ahead(desk: Desk) -> None:
    """Reads everybody's account, unless they are too many, before it is known whose will be asked for."""
    if desk.session.ledger.fewer_than(AHEAD):
        everybody(desk)


def _last(desk: Desk) -> int:
    """The number of the last entry."""
    *_, last = desk.session.ledger.entries()
    return last.number
