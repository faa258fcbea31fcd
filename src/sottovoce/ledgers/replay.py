# SPDX-License-Identifier: Apache-2.0
"""All entries once more, from the first grant: nobody was ever charged beyond what they allowed at that moment.

A comparison of totals would not tell: whoever raises an account, has it charged, and lowers it again leaves totals that
agree with the last grant. So every charge is compared with the grant that was in force when it was made. What was spent
outside is a fact, and may exceed it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sottovoce.ledgers import chain
from sottovoce.ledgers.chain import Lines

#: Entries that have lines, in the words of the books: only a reservation must stay within the grant.
GRANT, RESERVE, CHARGE = "grant", "reserve", "charge"
WITH_LINES = (GRANT, RESERVE, CHARGE)


class Accounts(NamedTuple):
    """Accounts in order of people and kinds: what each allows, may have spent at most, and has spent."""

    people: Any  # digests, as pairs of numbers
    account: Any
    granted: Any
    cap: Any
    spent: Any

    def equals(self, other: Accounts) -> bool:
        """Whether these are the same accounts with the same amounts."""
        return all(np.array_equal(ours, theirs) for ours, theirs in zip(self, other, strict=True))


def replay(entries: list[tuple[str, Lines]]) -> Accounts | None:
    """Returns the accounts to which these entries (what, lines) lead, or None if a reservation exceeded its grant."""
    sizes = [len(lines) for _, lines in entries]
    lines = np.concatenate([np.zeros(0, dtype=chain.PACKED), *(lines for _, lines in entries)]).astype(chain.PACKED)
    kinds = np.repeat([WITH_LINES.index(what) for what, _ in entries], sizes).astype(np.int8)
    people = pairs(lines["person"])
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
    total = np.cumsum(charged)  # beyond 2⁶³ it begins anew, and the differences are right all the same
    spent = total - (total - charged)[first]
    newest = np.maximum.accumulate(np.where(kind == WITH_LINES.index(GRANT), np.arange(len(order)), -1))
    granted = np.where(newest >= first, amount[np.maximum(newest, 0)], 0)
    if np.any((kind == WITH_LINES.index(RESERVE)) & (spent > granted)):
        return None
    lasts = np.append(firsts[1:], len(order)) - 1 if len(order) else firsts
    return Accounts(people[lasts], account[lasts], granted[lasts], np.maximum(granted, spent)[lasts], spent[lasts])


def pairs(people: Any) -> Any:
    """Returns digests of people, a row of bytes each, as two numbers each, in whose order they are."""
    raw = np.ascontiguousarray(people).reshape(-1, chain.PERSON_BYTES)
    return raw.view(">u8").reshape(-1, 2).astype(np.uint64)
