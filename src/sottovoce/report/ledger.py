# SPDX-License-Identifier: Apache-2.0
"""A statement as one HTML file that needs nothing but itself, and its way back.

The page is a function of the proof, which is in it as JSON. Whoever checks it makes the page again
from the proof and compares byte by byte, so no amount that is shown can differ from the proved one.

Everybody's balances without a name: how many allow how much, and how much of it is spent.

They follow from the lines of the books, in which people are digests: the last grant counts, and
every charge. Each account is told by itself. People who allow the same are one tier; where there
are many amounts, a tier is a range.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import ledger, units
from sottovoce.accounting.renyi import TotalLoss
from sottovoce.errors import InvalidParameter, LedgerBroken
from sottovoce.ledger import ACCOUNTS, Line
from sottovoce.ledgers.sql_ledger import SqlLedger
from sottovoce.ledgers.statement import FORMAT, WITH_LINES, AccountBalance, Statement, sum_accounts
from sottovoce.report.html import make_figure, make_page, make_stamp, make_table
from sottovoce.svg import Bar, draw_bars, draw_share
from sottovoce.units import UNITS_PER_DELTA, UNITS_PER_EPSILON

SCRIPT = '<script type="application/json" id="proof">'
#: The δ at which a ρ is read as an ε for people: one in a million.
READ_AT = 1e-6
#: Digits of a sum over all accounts; it is rounded up.
DIGITS = Context(prec=4, rounding=ROUND_CEILING)
#: More digits than any amount of money has.
MONEY_DIGITS = Context(prec=100)
#: Above this ε a factor is not worth writing out; below, it is rounded up to a thousandth.
NO_PROTECTION = 20.0
#: How amounts of these kinds are counted in the sum, by a part of their account's name.
RHO = "zCDP rho, "
LABELS = ", replace labels"
ZERO_OUT = ", zero out"
CONVERSION_NOTES = {
    RHO: f"The ρ in a sum is read as an ε at δ = {READ_AT:f}, which is part of the δ of the sum.",
    LABELS: (
        "Answers that protect labels alone are counted in the sum. They take all other columns of "
        "their tables as public, and promise nothing about those."
    ),
    ZERO_OUT: (
        "A promise that hides whether your rows are in a table counts more than once in the sum: "
        "for leaving them out, and for putting others in their place."
    ),
}
#: How a line says what it changes; and what version 0.1.0 wrote about that and about zero out.
ODDS = "changes odds by a factor of at most"
EARLIER_ODDS = "odds by at most"
EARLIER_ZERO_OUT_NOTE = (
    "A promise about whether you were heard or left out counts more than once in the sum: for "
    "leaving your rows out, and for putting others in their place."
)


def make_statement_page(statement: Statement) -> str:
    """Return the page: accounts, what they mean, every line, the head, and the proof."""
    parts = _collect_parts(statement)
    body = _BODY.substitute(parts, signed=_explain_signature(statement, "The ledger has"))
    return make_page("Account of one person", body, style=_STYLE, private=True)


def make_earlier_statement_page(statement: Statement) -> str:
    """Return the page as version 0.1.0 drew it, so that statements from then can be checked."""
    template = Template(Path(__file__).with_name("statement_0_1.html").read_text("utf-8"))
    pictures = map(_draw_earlier_account, sum_accounts(statement.lines()))
    parts = {**_collect_parts(statement, EARLIER_ODDS), "picture": "\n".join(pictures)}
    parts["meaning"] = parts["meaning"].replace(CONVERSION_NOTES[ZERO_OUT], EARLIER_ZERO_OUT_NOTE)
    return template.substitute(parts, signed=_explain_signature(statement, "The books have"))


def _collect_parts(statement: Statement, odds: str = ODDS) -> dict[str, str]:
    """Return what is on the page, by its place in the template."""
    lines = statement.lines()
    last = statement.entries[-1]
    held = sum_accounts(lines)
    return {
        "stamp": make_stamp("PERSONAL", "This page is about one person, and for that person."),
        "person": escape(statement.person),
        "books": escape(statement.entries[0].key[:8]),
        "last": escape(f"{last.number:,} of {_format_time(last.at)}"),
        "accounts": make_table(
            ["account", "allowed in all", "spent", "left"],
            [make_account_cells(account) for account in held],
        ),
        "picture": draw_accounts(held),
        "meaning": "\n".join(f"<p>{escape(sentence)}</p>" for sentence in explain_odds(held)),
        "sales": _write_sales(lines),
        "lines": make_table(
            ["entry", "what was written", "amount"],
            [make_line_cells(line, odds) for line in lines],
            "words",
        ),
        "head": statement.head,
        "made_by": escape(statement.made_by),
        "proof": f"{SCRIPT}\n{statement.to_json()}</script>",
    }


def _write_sales(lines: Sequence[Line]) -> str:
    """Return the part of the page about sales; nothing where nothing was sold."""
    told = "".join(f"\n<p>{escape(sentence)}</p>" for sentence in explain_sales(lines))
    if told:
        return f"<h2>What was sold</h2>{told}\n"
    return ""


def _explain_signature(statement: Statement, who: str) -> str:
    """Return how to check the signature, where the ledger signs."""
    if not statement.key:
        return ""
    key = escape(statement.key)
    return (
        f"\n<p>{who} signed it. If the curator has published this public key, the page "
        "can be checked with it "
        f'alone, in the same way with --key:</p>\n<p class="head">{key}</p>'
    )


def read_statement(text: str) -> Statement:
    """Returns the statement behind a page; refuses what is none, and a page that shows anything
    else than its proof.
    """
    found = re.search(f"{SCRIPT}\n(.*?)</script>", text, re.DOTALL)
    try:
        if found is not None:
            statement = Statement.from_json(found.group(1))
        else:
            statement = None
        unchanged = statement is not None and text in (
            make_statement_page(statement),
            make_earlier_statement_page(statement),
        )
    except (ValueError, TypeError, LookupError, AttributeError):
        statement = None  # raised below: what is wrong with it would quote the page
    if statement is None:
        raise InvalidParameter(
            "This file is not a statement that can be read.",
            f"A statement is a page with its proof inside, of format {FORMAT!r}.",
            "Pass a file written by `sottovoce ledger statement`, as it was written.",
            parameter="statement",
        )
    statement.refuse_unproved()
    if not unchanged:
        raise LedgerBroken(
            "This page does not show what its proof says: it was changed, or another version of "
            "sottovoce made it.",
            "Everything on the page follows from the proof inside.",
            "Ask for a new statement, or check with the version that made it (it says: "
            f"{statement.made_by}).",
        )
    return statement


def explain_protection(held: Sequence[AccountBalance]) -> list[str]:
    """Returns what nobody can tell from all answers together: one sum over all accounts."""
    spent = _collect_spent(held)
    total = ledger.compose_accounts(spent, READ_AT)
    if not any(total):
        return ["Nothing is spent yet: no answer tells anything about you."]
    if not is_protective(total):
        return ["So much is spent, in all accounts together, that nothing is promised any more."]
    return [
        "From all these answers together nobody can tell what your data say with more than "
        f"{bound_odds(total)} times better odds than without them{_describe_exception(total)}. "
        f"It is the sum over all accounts: {_format_total(total)}.",
        *explain_conversions(spent, [LABELS]),
    ]


def explain_odds(held: Sequence[AccountBalance]) -> list[str]:
    """Returns what all accounts together mean, as the odds of a guess about this person: so far,
    and in the end.
    """
    spent, allowed = (
        _collect_spent(held),
        {account.name: max(account.granted, account.spent) for account in held},
    )
    so_far = (
        "seeing all that was released so far changes the odds of any guess about your data "
        f"{_describe_bound(spent)}"
    )
    return [
        f"All accounts together: {so_far if any(spent.values()) else 'nothing is spent yet'}. If "
        "all that you allow is spent one day, in every account, the odds will have changed "
        f"{_describe_bound(allowed)}. This holds whatever somebody knew before.",
        *explain_conversions(allowed),
    ]


def explain_conversions(
    amounts: Mapping[str, int], kinds: Sequence[str] = tuple(CONVERSION_NOTES)
) -> list[str]:
    """Returns how amounts of other kinds than pure ε about whole rows were counted in the sum."""
    counted = [name for name, amount in amounts.items() if amount]
    return [CONVERSION_NOTES[kind] for kind in kinds if any(kind in name for name in counted)]


def _collect_spent(held: Sequence[AccountBalance]) -> dict[str, int]:
    return {account.name: account.spent for account in held}


def _describe_bound(amounts: Mapping[str, int]) -> str:
    total = ledger.compose_accounts(amounts, READ_AT)
    if is_protective(total):
        beyond = _describe_exception(total)
    else:
        beyond = ", which is no protection"
    return f"by a factor of at most {bound_odds(total)}{beyond} ({_format_total(total)})"


def _describe_exception(total: TotalLoss) -> str:
    if total.delta:
        return f", except with a probability of about δ = {_round_up(total.delta, UNITS_PER_DELTA)}"
    return ""


def _format_total(total: TotalLoss) -> str:
    return f"ε = {_round_up(total.epsilon, UNITS_PER_EPSILON)}" + " at that δ" * bool(total.delta)


def _round_up(amount: int, one: int) -> str:
    """Returns an amount of units as a decimal of a few digits that is not below it."""
    return f"{DIGITS.divide(Decimal(amount), Decimal(one)).normalize():f}"


def is_protective(total: TotalLoss) -> bool:
    """Whether a bound on odds is worth writing out."""
    return total.epsilon <= NO_PROTECTION * UNITS_PER_EPSILON and total.delta < UNITS_PER_DELTA


def bound_odds(total: TotalLoss) -> str:
    """Returns e^ε, by which the odds of a guess can change, as a bound that is rounded up."""
    epsilon = total.epsilon / UNITS_PER_EPSILON
    if epsilon > NO_PROTECTION:
        return f"e^{epsilon:g}"
    return units.format_odds(epsilon)


def draw_accounts(held: Sequence[AccountBalance]) -> str:
    """Returns a bar for each account, with its words: what is spent, of what is allowed in all."""
    return "\n".join(map(_draw_account, held))


def _draw_account(account: AccountBalance) -> str:
    share = account.spent / max(account.granted, account.spent, 1)
    words = (
        f"{account.format_amount(account.spent)} spent, "
        f"{account.format_amount(account.remaining)} left ({account.description})"
    )
    return make_figure(words, draw_share(share, f"{share:.0%} is spent"))


def _draw_earlier_account(account: AccountBalance) -> str:
    share = account.spent / max(account.granted, account.spent, 1)
    words = (
        f"{account.format_amount(account.spent)} spent, "
        f"{account.format_amount(account.remaining)} left ({account.description})"
    )
    return (
        f'<figure class="spent"><figcaption>{escape(words)}</figcaption>\n'
        '<svg viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{share:.0%} is spent"><rect class="left" width="1000" height="10"/>'
        f'<rect class="own" width="{1000 * share:.1f}" height="10"/></svg></figure>'
    )


def make_account_cells(account: AccountBalance) -> list[str]:
    """Returns an account as a line of a table: allowed in all, spent, left."""
    return [
        account.description,
        *map(account.format_amount, (account.granted, account.spent, account.remaining)),
    ]


def make_line_cells(line: Line, odds: str = ODDS) -> list[str]:
    """Returns what an entry did to the person as a line of a table: number, words, amount."""
    told = {
        "granted": "allowed in all",
        "sold": f"sold for {format_payment(line)}, “{line.key}”: added to what is allowed",
        "published": f"the release “{line.key}”, published",
        "reserved, never "
        "published": f"the release “{line.key}”, begun and never published; it stays spent",
        "outside": f"spent elsewhere, “{line.key}”",
    }[line.state]
    (account,) = sum_accounts([line])
    amount = account.format_amount(
        account.granted + account.spent
    )  # one line is a grant or a charge
    if account.spent and account.is_pure:
        by = f"; {odds} {bound_odds(TotalLoss(account.spent, 0))}"
    else:
        by = ""
    return [
        str(line.number),
        f"{_format_time(line.at)}: {told} ({account.description}{by})",
        amount,
    ]


def format_payment(line: Line) -> str:
    """Returns what was paid for a sale, exactly, with the name of the money where it has one."""
    return format_money(line.paid or Fraction(0), line.money)


def format_money(amount: Fraction, money: str = "") -> str:
    """Returns an amount of money, exactly, with its name where it has one."""
    rest = amount.denominator
    for factor in (2, 5):
        while rest % factor == 0:
            rest //= factor
    if rest == 1:
        exact = MONEY_DIGITS.divide(Decimal(amount.numerator), Decimal(amount.denominator))
        written = f"{exact:f}"
    else:
        written = str(amount)  # no decimal ends: a fraction is exact too
    return f"{written} {money}".strip()


def explain_sales(lines: Sequence[Line]) -> list[str]:
    """Returns what was sold, for how much, and what it was used for, in sentences; none where
    nothing was sold.
    """
    sales = [line for line in lines if line.what == "sale"]
    told = []
    for account in dict.fromkeys(line.account for line in sales):
        told += _explain_sales_of([line for line in lines if line.account == account])
    return told


def _explain_sales_of(lines: Sequence[Line]) -> list[str]:
    """Returns the same for the lines of one account."""
    sales = [line for line in lines if line.what == "sale"]
    (sold,) = sum_accounts(sales)
    (held,) = sum_accounts(lines)
    paid: dict[str, Fraction] = {}
    for line in sales:
        paid[line.money] = paid.get(line.money, Fraction(0)) + (line.paid or 0)
    sums = " and ".join(format_money(amount, money) for money, amount in paid.items())
    many = "one sale" if len(sales) == 1 else f"{len(sales)} sales"
    told = [f"Sold in {many}: {held.format_amount(sold.granted)} ({held.description}), for {sums}."]
    uses = [
        f"“{line.key}” ({_format_use(line)})"
        for line in lines
        if line.what in ("reserve", "charge")
    ]
    used = f"Used of this account so far: {held.format_amount(held.spent)}"
    told.append(f"{used}, for {', '.join(uses)}." if uses else f"{used}.")
    if any(line.what == "grant" for line in lines):
        told.append("This account also has grants that were not sold: they count as a total.")
    return told


def _format_use(line: Line) -> str:
    (one,) = sum_accounts([line])
    return f"{one.format_amount(one.spent)}, {line.state}"


def _format_time(at: str) -> str:
    return at.replace("T", " ").removesuffix("+00:00") + " UTC"


_STYLE = """\
.head { font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
"""

_BODY = Template("""\
$stamp
<h1>Account of $person</h1>
<p class="soft">Ledger $books, up to entry $last. Amounts are exact, and count all rows of this \
person together.</p>
<div class="accounts">$accounts</div>
<h2>What this means</h2>
<p>The numbers count how much anybody can learn about this person from what is released. Every \
account adds up from one
release to the next, and no release goes beyond what is allowed in it. What all accounts come to \
together follows from
them by a theorem (docs/theory/composition.md), rounded up.</p>
$picture
$meaning
$sales<h2>Everything that was ever written</h2>
$lines
<h2>How to check it</h2>
<p>The head of the ledger when this page was made:</p>
<p class="head">$head</p>
<p>Compare it with a head that the curator has published; every certificate of a release has one. \
Then, without the
ledger and without its key:</p>
<p class="head">sottovoce ledger check THIS-PAGE.html --head HEAD</p>$signed
<p>It computes every digest again from the proof inside this page, and makes the page again from \
the proof. This shows
that these amounts were booked, and when. It cannot show that nothing else was booked about you, \
nor that the digest in
the proof is that of your name: only the curator, who has the ledger and its key, can.</p>
<p class="soft">Made by $made_by. Nobody else is named on this page.</p>
$proof""")


Whole = NDArray[np.int64]

#: So many different grants are told one by one; more are put together in ranges that end at 1, 2
#: and 5 times 10^k.
MAX_SEPARATE_TIERS = 8
TIER_STEPS = (1, 2, 5)

TIER_HEADS = ["allowed in all", "people", "spent by each", "left to each"]


@dataclass(frozen=True, eq=False)
class Tier:
    """People who allow about the same in one account, in units by person."""

    name: str
    kind: AccountBalance
    granted: Whole
    spent: Whole

    def cells(self) -> list[str]:
        """The line of a table."""
        left = np.maximum(self.granted - self.spent, 0)
        return [
            self.name,
            f"{len(self.spent):,}",
            self._format_range(self.spent),
            self._format_range(left),
        ]

    def _format_range(self, amounts: Whole) -> str:
        ends = dict.fromkeys(
            self.kind.format_amount(int(end)) for end in (amounts.min(), amounts.max())
        )
        return " to ".join(ends)

    @property
    def share(self) -> float:
        """How much of what they allow is spent."""
        allowed, spent = (
            float(amounts.sum(dtype=np.float64)) for amounts in (self.granted, self.spent)
        )
        return min(spent / max(allowed, 1.0), 1.0)


def compute_balances(books: SqlLedger) -> dict[str, tuple[Tier, ...]]:
    """Returns the tiers of every account that somebody has."""
    codes, granted, spent = _sum_by_person(books)
    return {
        ACCOUNTS[code]: tuple(
            _make_tiers(ACCOUNTS[code], granted[codes == code], spent[codes == code])
        )
        for code in np.unique(codes).tolist()
    }


def draw_tiers(tiers: tuple[Tier, ...]) -> str:
    """Return a bar for each tier, as long as there are people, and coloured as far as their grants
    are spent.
    """
    title = "People by what they allow in all, and how much of it is spent"
    bars = [
        Bar(
            tier.name,
            len(tier.spent),
            f"{len(tier.spent):,} · {tier.share:.0%} spent",
            part=tier.share,
        )
        for tier in tiers
    ]
    return make_figure(title, draw_bars(title, bars, narrow=True))


def _make_tiers(account: str, granted: Whole, spent: Whole) -> Iterator[Tier]:
    kind = AccountBalance(account)
    amounts = np.unique(granted)
    apart = len(amounts) <= MAX_SEPARATE_TIERS
    if apart:
        tops = amounts
    else:
        tops = _make_edges(amounts)
    place = np.searchsorted(tops, granted)
    for which in np.unique(place).tolist():
        here = place == which
        spelt = kind.format_amount(int(tops[which]))
        yield Tier(spelt if apart else spelt.replace("=", "≤"), kind, granted[here], spent[here])


def _make_edges(amounts: Whole) -> Whole:
    """The ends of ranges, up to one that holds the largest amount."""
    steps = np.outer(10 ** np.arange(len(str(amounts[-1]))), TIER_STEPS).ravel()
    beyond = 10 ** len(str(amounts[-1]))
    return np.unique(np.append(0, np.append(steps, beyond)))


def _sum_by_person(books: SqlLedger) -> tuple[Any, Whole, Whole]:
    """Returns account, grant and expenses of every account: lines sorted by owner, then by
    entry.
    """
    entries = [entry for entry in books.entries() if entry.what in WITH_LINES and entry.lines]
    if not entries:
        return (np.zeros(0, dtype=np.int64),) * 3
    parts = [books.lines(entry.number) for entry in entries]
    lines = np.concatenate(parts)
    what = np.repeat([entry.what for entry in entries], list(map(len, parts)))
    accounted = lines["account"] != ledger.PAYMENT_CODE
    lines = lines[accounted]
    what = what[accounted]
    high, low = np.ascontiguousarray(lines["person"]).view(">u8").T
    order = np.lexsort(
        (lines["account"], low, high)
    )  # which keeps lines of one owner in the order of entries
    owner = np.stack([high[order], low[order], lines["account"][order]])
    first = np.flatnonzero(np.append(True, (owner[:, 1:] != owner[:, :-1]).any(axis=0)))
    amounts = lines["amount"][order].astype(np.int64)
    what = what[order]
    place = np.arange(len(order))
    newest = np.maximum.reduceat(np.where(what == "grant", place, -1), first)
    sizes = np.diff(np.append(first, len(order)))
    later = (what == "sale") & (place > np.repeat(newest, sizes))
    total = np.where(newest >= first, amounts[newest], 0)
    return (
        owner[2, first].astype(np.int64),
        total + np.add.reduceat(np.where(later, amounts, 0), first),
        np.add.reduceat(np.where(np.isin(what, ("reserve", "charge")), amounts, 0), first),
    )
