# SPDX-License-Identifier: Apache-2.0
"""A statement as one HTML file that needs nothing but itself, and its way back.

The page is a function of the proof, which is in it as JSON. Whoever checks it makes the page again from the proof and
compares byte by byte, so no amount that is shown can differ from the proved one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from html import escape
from string import Template

from sottovoce import ledger, rounding
from sottovoce.conversion import Total
from sottovoce.errors import InvalidParameter, LedgerBroken
from sottovoce.ledger import Line
from sottovoce.pages.page import stamp, table, whole
from sottovoce.pages.statement import FORMAT, Account, Statement, accounts
from sottovoce.units import DELTA, NANO

#: A bar in its own units, of all that is allowed; it is as long as there is room.
LONG, THICK = 1000, 10
SCRIPT = '<script type="application/json" id="proof">'
#: The δ at which a ρ is read as an ε for people: one in a million.
READ_AT = 1e-6
#: Digits of a sum over all accounts; it is rounded up.
DIGITS = Context(prec=4, rounding=ROUND_CEILING)
#: Above this ε a factor is not worth writing out; below, it is rounded up to a thousandth.
NO_PROTECTION = 20.0
#: How amounts of these kinds are counted in the sum, by a part of their account's name.
RHO, LABELS, ZERO_OUT = "zCDP rho, ", ", replace labels", ", zero out"
NOTES = {
    RHO: f"The ρ in a sum is read as an ε at δ = {READ_AT:f}, which is part of the δ of the sum.",
    LABELS: "Answers that protect labels alone are counted in the sum. They take all other columns of their tables as "
    "public, and promise nothing about those.",
    ZERO_OUT: "A promise about whether you were heard or left out counts more than once in the sum: for leaving your "
    "rows out, and for putting others in their place.",
}


def page(statement: Statement) -> str:
    """Returns the page: accounts, what they mean, every line, the head, and the proof."""
    lines, last = statement.lines(), statement.entries[-1]
    held = accounts(lines)
    body = _BODY.substitute(
        stamp=stamp("PERSONAL", "This page is about one person, and for that person."),
        person=escape(statement.person),
        books=escape(statement.entries[0].key[:8]),
        last=escape(f"{last.number:,} of {_when(last.at)}"),
        accounts=table(["account", "allowed in all", "spent", "left"], [account_cells(account) for account in held]),
        picture=picture(held),
        meaning="\n".join(f"<p>{escape(sentence)}</p>" for sentence in odds(held)),
        lines=table(["entry", "what was written", "amount"], [line_cells(line) for line in lines], "words"),
        head=statement.head,
        signed=_signed(statement),
        made_by=escape(statement.made_by),
        proof=f"{SCRIPT}\n{statement.to_json()}</script>",
    )
    return whole("What the books say about one person", body, style=_STYLE, private=True)


def _signed(statement: Statement) -> str:
    """Returns how to check the signature, where the books sign."""
    if not statement.key:
        return ""
    key = escape(statement.key)
    return (
        "\n<p>The books have signed it. If the curator has published this public key, the page can be checked with it "
        f'alone, in the same way with --key:</p>\n<p class="head">{key}</p>'
    )


def read(text: str) -> Statement:
    """Returns the statement behind a page; refuses what is none, and a page that shows anything else than its proof."""
    found = re.search(f"{SCRIPT}\n(.*?)</script>", text, re.DOTALL)
    try:
        statement = Statement.from_json(found.group(1)) if found is not None else None
        unchanged = statement is not None and page(statement) == text
    except (ValueError, TypeError, LookupError, AttributeError):
        statement = None  # raised below: what is wrong with it would quote the page
    if statement is None:
        raise InvalidParameter(
            "This file is not a statement that can be read.",
            f"A statement is a page with its proof inside, of format {FORMAT!r}.",
            "Pass a file written by `sottovoce ledger statement`, as it was written.",
        )
    statement.refuse_unproved()
    if not unchanged:
        raise LedgerBroken(
            "This page does not show what its proof says: it was changed, or another version of sottovoce made it.",
            "Everything on the page follows from the proof inside.",
            f"Ask for a new statement, or check with the version that made it (it says: {statement.made_by}).",
        )
    return statement


def told(held: Sequence[Account]) -> list[str]:
    """Returns what nobody can tell from all answers together: one sum over all accounts."""
    spent = _spent(held)
    total = ledger.total(spent, READ_AT)
    if not any(total):
        return ["Nothing is spent yet: no answer tells anything about you."]
    if not protects(total):
        return ["So much is spent, in all accounts together, that nothing is promised any more."]
    return [
        "From all these answers together nobody can tell what your data say with more than "
        f"{better_odds(total)} times better odds than without them{_exception(total)}. "
        f"It is the sum over all accounts: {_spelt(total)}.",
        *notes(spent, [LABELS]),
    ]


def odds(held: Sequence[Account]) -> list[str]:
    """Returns what all accounts together mean, as the odds of a guess about this person: so far, and in the end."""
    spent, allowed = _spent(held), {account.name: max(account.granted, account.spent) for account in held}
    so_far = f"seeing all that was released so far changes the odds of any guess about your data {_bound(spent)}"
    return [
        f"All accounts together: {so_far if any(spent.values()) else 'nothing is spent yet'}. If all that you allow is "
        f"spent one day, in every account, the odds will have changed {_bound(allowed)}. This holds whatever somebody "
        "knew before.",
        *notes(allowed),
    ]


def notes(amounts: Mapping[str, int], kinds: Sequence[str] = tuple(NOTES)) -> list[str]:
    """Returns how amounts of other kinds than pure ε about whole rows were counted in the sum."""
    counted = [name for name, amount in amounts.items() if amount]
    return [NOTES[kind] for kind in kinds if any(kind in name for name in counted)]


def _spent(held: Sequence[Account]) -> dict[str, int]:
    return {account.name: account.spent for account in held}


def _bound(amounts: Mapping[str, int]) -> str:
    total = ledger.total(amounts, READ_AT)
    beyond = _exception(total) if protects(total) else ", which is no protection"
    return f"by a factor of at most {better_odds(total)}{beyond} ({_spelt(total)})"


def _exception(total: Total) -> str:
    return f", except with a probability of about δ = {_round_up(total.delta, DELTA)}" if total.delta else ""


def _spelt(total: Total) -> str:
    return f"ε = {_round_up(total.epsilon, NANO)}" + " at that δ" * bool(total.delta)


def _round_up(amount: int, one: int) -> str:
    """Returns an amount of units as a decimal of a few digits that is not below it."""
    return f"{DIGITS.divide(Decimal(amount), Decimal(one)).normalize():f}"


def protects(total: Total) -> bool:
    """Whether a bound on odds is worth writing out."""
    return total.epsilon <= NO_PROTECTION * NANO and total.delta < DELTA


def better_odds(total: Total) -> str:
    """Returns e^ε, by which the odds of a guess can change, as a bound that is rounded up."""
    epsilon = total.epsilon / NANO
    if epsilon > NO_PROTECTION:
        return f"e^{epsilon:g}"
    return rounding.odds(epsilon)


def picture(held: Sequence[Account]) -> str:
    """Returns a bar for each account, with its words: what is spent, of what is allowed in all."""
    return "\n".join(map(_bar, held))


def _bar(account: Account) -> str:
    share = account.spent / max(account.granted, account.spent, 1)
    words = f"{account.format_amount(account.spent)} spent, {account.format_amount(account.remaining)} left ({account.description})"
    return (
        f'<figure class="spent"><figcaption>{escape(words)}</figcaption>\n'
        f'<svg viewBox="0 0 {LONG} {THICK}" preserveAspectRatio="none" role="img" aria-label="{share:.0%} is spent">'
        f'<rect class="left" width="{LONG}" height="{THICK}"/>'
        f'<rect class="own" width="{LONG * share:.1f}" height="{THICK}"/></svg></figure>'
    )


def account_cells(account: Account) -> list[str]:
    """Returns an account as a line of a table: allowed in all, spent, left."""
    return [account.description, *map(account.format_amount, (account.granted, account.spent, account.remaining))]


def line_cells(line: Line) -> list[str]:
    """Returns what an entry did to the person as a line of a table: number, words, amount."""
    told = {
        "granted": "allowed in all",
        "published": f"the release “{line.key}”, published",
        "reserved, never published": f"the release “{line.key}”, begun and never published; it stays spent",
        "outside": f"spent elsewhere, “{line.key}”",
    }[line.state]
    (account,) = accounts([line])
    amount = account.format_amount(account.granted + account.spent)  # one line is a grant or a charge
    by = f"; odds by at most {better_odds(Total(account.spent, 0))}" if account.spent and account.is_pure else ""
    return [str(line.number), f"{_when(line.at)}: {told} ({account.description}{by})", amount]


def _when(at: str) -> str:
    return at.replace("T", " ").removesuffix("+00:00") + " UTC"


#: What pictures and tables of accounts need of a style sheet.
ACCOUNTS = """\
.spent { margin: 1rem 0; }
.spent svg { display: block; min-width: 0; height: 14px; }
.spent .own { fill: var(--own); }
.spent .left { fill: var(--line); }
td { white-space: nowrap; }
.words td:nth-child(2) { white-space: normal; }
"""

_STYLE = f"""\
{ACCOUNTS}\
.head {{ font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }}
"""

_BODY = Template("""\
$stamp
<h1>What the books say about $person</h1>
<p class="soft">Ledger $books, up to entry $last. Amounts are exact, and count all rows of this person together.</p>
$accounts
<h2>What this means</h2>
<p>The numbers count how much anybody can learn about this person from what is released. Every account adds up from one
release to the next, and no release goes beyond what is allowed in it. What all accounts come to together follows from
them by a theorem (docs/theory/composition.md), rounded up.</p>
$picture
$meaning
<h2>Everything that was ever written</h2>
$lines
<h2>How to check it</h2>
<p>The head of the books when this page was made:</p>
<p class="head">$head</p>
<p>Compare it with a head that the curator has published; every certificate of a release has one. Then, without the
books and without their key:</p>
<p class="head">sottovoce ledger check THIS-PAGE.html --head HEAD</p>$signed
<p>It computes every digest again from the proof inside this page, and makes the page again from the proof. This shows
that these amounts were booked, and when. It cannot show that nothing else was booked about you, nor that the digest in
the proof is that of your name: only the curator, who has the books and their key, can.</p>
<p class="soft">Made by $made_by. Nobody else is named on this page.</p>
$proof""")
