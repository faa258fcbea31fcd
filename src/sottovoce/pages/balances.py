# SPDX-License-Identifier: Apache-2.0
"""Everybody's balances without a name: how many allow how much, and how much of it is spent.

They follow from the lines of the books, in which people are digests: the last grant counts, and every charge. Each
account is told by itself. People who allow the same are one tier; where there are many amounts, a tier is a range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.ledger import ACCOUNTS
from sottovoce.ledgers.books import Books
from sottovoce.pages.statement import WITH_LINES, Account

Whole = NDArray[np.int64]

#: So many different grants are told one by one; more are put together in ranges that end at 1, 2 and 5 times 10^k.
APART, ENDS = 8, (1, 2, 5)
#: The picture in its own units: where bars begin, how long and thick they are, and a line's height.
LEFT, LONG, THICK, LINE = 130, 320, 18, 30

#: The picture's part of the style sheet.
PICTURE = """\
svg.tiers { font: 14px Georgia, "Times New Roman", serif; min-width: 26rem; max-width: 40rem; }
svg.tiers text { fill: var(--ink); dominant-baseline: central; }
svg.tiers .own { fill: var(--own); }
svg.tiers .other { fill: var(--other); }
"""

HEADS = ["allowed in all", "people", "spent by each", "left to each"]


@dataclass(frozen=True, eq=False)
class Tier:
    """People who allow about the same in one account, in units by person."""

    name: str
    kind: Account
    granted: Whole
    spent: Whole

    def cells(self) -> list[str]:
        """The line of a table."""
        left = np.maximum(self.granted - self.spent, 0)
        return [self.name, f"{len(self.spent):,}", self._format_range(self.spent), self._format_range(left)]

    def _format_range(self, amounts: Whole) -> str:
        ends = dict.fromkeys(self.kind.format_amount(int(end)) for end in (amounts.min(), amounts.max()))
        return " to ".join(ends)

    @property
    def share(self) -> float:
        """How much of what they allow is spent."""
        allowed, spent = (float(amounts.sum(dtype=np.float64)) for amounts in (self.granted, self.spent))
        return min(spent / max(allowed, 1.0), 1.0)


def balances(books: Books) -> dict[str, tuple[Tier, ...]]:
    """Returns the tiers of every account that somebody has."""
    codes, granted, spent = _by_person(books)
    return {
        ACCOUNTS[code]: tuple(_tiers(ACCOUNTS[code], granted[codes == code], spent[codes == code]))
        for code in np.unique(codes).tolist()
    }


def picture(tiers: tuple[Tier, ...]) -> str:
    """Returns a bar for each tier, as long as there are people, and coloured as far as their grants are spent."""
    most = max(len(tier.spent) for tier in tiers)
    bars = "\n".join(_bar(place, tier, len(tier.spent) / most) for place, tier in enumerate(tiers))
    title = "People by what they allow in all, and how much of it is spent"
    return (
        f'<svg class="tiers" viewBox="0 0 {LEFT + LONG + 150} {LINE * len(tiers)}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg" aria-label="{title}">\n{bars}\n</svg>'
    )


def _bar(place: int, tier: Tier, share: float) -> str:
    middle, wide = place * LINE + LINE / 2, max(share * LONG, 1)
    box = f'x="{LEFT}" y="{middle - THICK / 2}" height="{THICK}" rx="2"'
    return (
        f'<text x="{LEFT - 10}" y="{middle}" text-anchor="end">{escape(tier.name)}</text>'
        f'<rect class="other" {box} width="{wide:.1f}"/><rect class="own" {box} width="{wide * tier.share:.1f}"/>'
        f'<text x="{LEFT + wide + 8:.1f}" y="{middle}">{len(tier.spent):,} · {tier.share:.0%} spent</text>'
    )


def _tiers(account: str, granted: Whole, spent: Whole) -> Iterator[Tier]:
    kind = Account(account)
    amounts = np.unique(granted)
    apart = len(amounts) <= APART
    tops = amounts if apart else _tops(amounts)
    place = np.searchsorted(tops, granted)
    for which in np.unique(place).tolist():
        here, spelt = place == which, kind.format_amount(int(tops[which]))
        yield Tier(spelt if apart else spelt.replace("=", "≤"), kind, granted[here], spent[here])


def _tops(amounts: Whole) -> Whole:
    """The ends of ranges, up to one that holds the largest amount."""
    steps = np.outer(10 ** np.arange(len(str(amounts[-1]))), ENDS).ravel()
    beyond = 10 ** len(str(amounts[-1]))
    return np.unique(np.append(0, np.append(steps, beyond)))


def _by_person(books: Books) -> tuple[Any, Whole, Whole]:
    """Returns account, grant and expenses of every account: lines sorted by owner, then by entry."""
    entries = [entry for entry in books.entries() if entry.what in WITH_LINES and entry.lines]
    if not entries:
        return (np.zeros(0, dtype=np.int64),) * 3
    parts = [books.lines(entry.number) for entry in entries]
    lines = np.concatenate(parts)
    grants = np.repeat([entry.what == "grant" for entry in entries], list(map(len, parts)))
    high, low = np.ascontiguousarray(lines["person"]).view(">u8").T
    order = np.lexsort((lines["account"], low, high))  # which keeps lines of one owner in the order of entries
    owner = np.stack([high[order], low[order], lines["account"][order]])
    first = np.flatnonzero(np.append(True, (owner[:, 1:] != owner[:, :-1]).any(axis=0)))
    amounts, grants = lines["amount"][order].astype(np.int64), grants[order]
    newest = np.maximum.reduceat(np.where(grants, np.arange(len(order)), -1), first)
    return owner[2, first].astype(np.int64), amounts[newest], np.add.reduceat(np.where(grants, 0, amounts), first)
