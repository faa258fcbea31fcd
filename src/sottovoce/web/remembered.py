# SPDX-License-Identifier: Apache-2.0
"""What a table's people have left in the books, looked up once and remembered until something is written there.

Looking up a million people takes seconds, because everybody's name is hidden under the ledger's key first; a slider
asks for it at every move. What is left changes only with a new entry, so the number of the last entry is part of what
is remembered: entries that other programs write are seen too. Only plans are made from it. A release looks for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sottovoce.asked import Said
from sottovoce.errors import UnknownPeople
from sottovoce.ledger import USUAL, Ledger
from sottovoce.session import Session
from sottovoce.units import Units
from sottovoce.web import verbs
from sottovoce.web.desk import Desk

#: One look-up at a time: who comes second finds what the first has found.
_TURN = threading.Lock()


def for_plans(desk: Desk, said: Said) -> Desk:
    """Returns the same desk with books that remember what the people of this table have left."""
    books: Any = _Remembering(desk.session.ledger, desk, (said.table, said.person))
    return replace(desk, session=Session(ledger=books, short=desk.session.short))


def look_ahead(desk: Desk, table: str) -> None:
    """Begins to look up, beside the page, what a plan about this table will ask for next."""
    schema = desk.schemas[table]
    said = Said(str(desk.table(table).path), person=schema.person)
    if said.person is not None:
        desk.jobs.start(lambda job: _looked_up(desk, table, said))


def _looked_up(desk: Desk, table: str, said: Said) -> None:
    # The names of people are the same whatever they grant.
    budgets = verbs.grants(desk, table, 1.0 if desk.schemas[table].budget is None else None)
    for_plans(desk, said).session.ledger.balances(budgets.names())


@dataclass(frozen=True)
class _Remembering:
    """Books that are asked once between two entries."""

    ledger: Ledger
    desk: Desk
    whose: tuple[str, str | None]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    def balances(self, people: Sequence[Any], account: str = USUAL) -> Units:
        """Returns what each has left, or raises again that somebody has no account."""
        *_, last = self.ledger.entries()
        with _TURN:
            found = self.desk.counted((*self.whose, account, last.number), lambda: self._asked(people, account))
        if isinstance(found, UnknownPeople):
            raise found
        left: Units = found
        return left

    def _asked(self, people: Sequence[Any], account: str) -> Units | UnknownPeople:
        try:
            self.ledger.balances(people[:1], account)  # where nobody has an account yet, one person tells so at once
            return self.ledger.balances(people, account)
        except UnknownPeople as error:
            return error
