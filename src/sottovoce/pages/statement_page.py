# SPDX-License-Identifier: Apache-2.0
"""A statement as one HTML file that needs nothing but itself, and its way back.

The page is a function of the proof, which is in it as JSON. Whoever checks it makes the page again from the proof and
compares byte by byte, so no amount that is shown can differ from the proved one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from string import Template

from sottovoce.conversion import zcdp_epsilon
from sottovoce.errors import InvalidParameter, LedgerBroken
from sottovoce.ledger import Line
from sottovoce.pages.page import stamp, table, whole
from sottovoce.pages.statement import FORMAT, Account, Statement, accounts
from sottovoce.units import NANO

#: A bar in its own units, of all that is allowed; it is as long as there is room.
LONG, THICK = 1000, 10
SCRIPT = '<script type="application/json" id="proof">'
#: The δ at which a ρ is read as an ε for people: one in a million.
READ_AT = 1e-6
#: Above this ε a factor is not worth writing out; below, it is rounded up to a thousandth.
NO_PROTECTION, THOUSAND = 20.0, 1000
#: What a promise makes uncertain, by its neighbours.
GUESS = {
    "replace": "any guess about your data",
    "replace labels": "any guess about your labels (and of nothing else)",
    "zero out": "a guess whether you were heard or left out",
}
#: What nobody can tell, by the neighbours of a promise.
UNTOLD = {
    "replace": "what your data say",
    "replace labels": "what your labels say (about all else nothing is promised)",
    "zero out": "whether you were heard or left out",
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
        meaning="\n".join(f"<p>{escape(sentence)}</p>" for sentence in meaning(held)),
        lines=table(["entry", "what was written", "amount"], [line_cells(line) for line in lines], "words"),
        head=statement.head,
        made_by=escape(statement.made_by),
        proof=f"{SCRIPT}\n{statement.to_json()}</script>",
    )
    return whole("What the books say about one person", body, style=_STYLE, private=True)


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


def meaning(held: Sequence[Account]) -> list[str]:
    """Returns what each account means, as the odds of a guess about this person."""
    deltas = {account.neighbours: account for account in held if account.symbol == "δ"}
    return [_odds(account, deltas.get(account.neighbours)) for account in held if account.symbol != "δ"]


def told(held: Sequence[Account]) -> list[str]:
    """Returns what was spent in each account, as what nobody can tell from the answers."""
    deltas = {account.neighbours: account for account in held if account.symbol == "δ"}
    return [_told(account, deltas.get(account.neighbours)) for account in held if account.symbol != "δ"]


def _told(account: Account, delta: Account | None) -> str:
    if not account.spent:
        return f"Nothing is spent yet in the account of {account.words}: no answer that it counts tells about you."
    if not protects(account, account.spent):
        return f"In the account of {account.words} so much is spent that nothing is promised any more."
    beyond = _exception(account, None if delta is None else delta.spelt(delta.spent))
    return (
        f"From all these answers together nobody can tell {UNTOLD[account.neighbours]} with more than "
        f"{better_odds(account, account.spent)} times better odds than without them{beyond} ({account.words})."
    )


def _odds(account: Account, delta: Account | None) -> str:
    guess = f"the odds of {GUESS[account.neighbours]}"
    now, later = ("", "") if delta is None else map(delta.spelt, (delta.spent, delta.granted))
    so_far = f"seeing all that was released so far changes {guess} {_bound(account, account.spent, now)}"
    return (
        f"In the account of {account.words}: {so_far if account.spent else 'nothing is spent yet'}. If all that you "
        f"allow is spent one day, {guess} will have changed {_bound(account, account.granted, later)}. This holds "
        "whatever somebody knew before."
    )


def _bound(account: Account, units: int, delta: str) -> str:
    return f"by a factor of at most {_factor(account, units)}{_exception(account, delta)}"


def _factor(account: Account, units: int) -> str:
    factor = better_odds(account, units)
    return factor if protects(account, units) else f"{factor}, which is no protection"


def _exception(account: Account, delta: str | None) -> str:
    needed = account.name.startswith("epsilon at delta")
    exception = f"δ = {READ_AT:g}" if account.symbol == "ρ" else (delta or "") * needed
    return f", except with a probability of {exception}" if exception else ""


def protects(account: Account, units: int) -> bool:
    """Whether a bound on odds is worth writing out."""
    return _epsilon(account, units) <= NO_PROTECTION


def better_odds(account: Account, units: int) -> str:
    """Returns e^ε, by which the odds of a guess can change, as a bound that is rounded up."""
    epsilon = _epsilon(account, units)
    exact = f"{math.ceil(math.exp(min(epsilon, NO_PROTECTION)) * THOUSAND) / THOUSAND:,.3f}"
    return exact if protects(account, units) else f"e^{epsilon:g}"


def _epsilon(account: Account, units: int) -> float:
    return units / NANO if account.symbol == "ε" else float(zcdp_epsilon(units / NANO, READ_AT))


def picture(held: Sequence[Account]) -> str:
    """Returns a bar for each account, with its words: what is spent, of what is allowed in all."""
    return "\n".join(map(_bar, held))


def _bar(account: Account) -> str:
    share = account.spent / max(account.granted, account.spent, 1)
    words = f"{account.spelt(account.spent)} spent, {account.spelt(account.left)} left ({account.words})"
    return (
        f'<figure class="spent"><figcaption>{escape(words)}</figcaption>\n'
        f'<svg viewBox="0 0 {LONG} {THICK}" preserveAspectRatio="none" role="img" aria-label="{share:.0%} is spent">'
        f'<rect class="left" width="{LONG}" height="{THICK}"/>'
        f'<rect class="own" width="{LONG * share:.1f}" height="{THICK}"/></svg></figure>'
    )


def account_cells(account: Account) -> list[str]:
    """Returns an account as a line of a table: allowed in all, spent, left."""
    return [account.words, *map(account.spelt, (account.granted, account.spent, account.left))]


def line_cells(line: Line) -> list[str]:
    """Returns what an entry did to the person as a line of a table: number, words, amount."""
    told = {
        "granted": "allowed in all",
        "published": f"the release “{line.key}”, published",
        "reserved, never published": f"the release “{line.key}”, begun and never published; it stays spent",
        "outside": f"spent elsewhere, “{line.key}”",
    }[line.state]
    (account,) = accounts([line])
    amount = account.spelt(account.granted + account.spent)  # one line is a grant or a charge
    odds = f"; odds by at most {_factor(account, account.spent)}" if account.spent and account.symbol != "δ" else ""
    return [str(line.number), f"{_when(line.at)}: {told} ({account.words}{odds})", amount]


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
<p>The numbers count how much anybody can learn about this person from what is released. They add up from one release to
the next, in each account by itself, and nothing is released that would go beyond what is allowed in all.</p>
$picture
$meaning
<h2>Everything that was ever written</h2>
$lines
<h2>How to check it</h2>
<p>The head of the books when this page was made:</p>
<p class="head">$head</p>
<p>Compare it with a head that the curator has published; every certificate of a release has one. Then, without the
books and without their key:</p>
<p class="head">sottovoce ledger check THIS-PAGE.html --head HEAD</p>
<p>It computes every digest again from the proof inside this page, and makes the page again from the proof. This shows
that these amounts were booked, and when. It cannot show that nothing else was booked about you, nor that the digest in
the proof is that of your name: only the curator, who has the books and their key, can.</p>
<p class="soft">Made by $made_by. Nobody else is named on this page.</p>
$proof""")
