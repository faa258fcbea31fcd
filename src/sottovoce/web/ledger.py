# SPDX-License-Identifier: Apache-2.0
"""The books as pages for the curator: entries, balances without names, whether they add up, and one person on request.

A person is shown only to whoever types their name, and the name is sent in the body of a request, never in an address.
Here grants of one person are set, and codes are made with which people see their own account.
"""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.errors import SottovoceError, UnknownPeople
from sottovoce.ledger import MOST, Entry, Line
from sottovoce.market.frontier import STYLE as FRONTIER
from sottovoce.pages import balances as tiers
from sottovoce.pages import market_page, statement_page
from sottovoce.pages.page import table
from sottovoce.pages.statement import WITH_LINES, Account, accounts
from sottovoce.pages.statement_page import account_cells, line_cells
from sottovoce.units import NANO
from sottovoce.web import verbs
from sottovoce.web.desk import Desk
from sottovoce.web.forms import Fields, in_words
from sottovoce.web.person import books_of
from sottovoce.web.shell import away, desk_of, drawing, render

#: Entries that are shown at once, the newest first.
SHOWN = 50
#: Lines of the books that are added up while somebody waits for the page: half a second. More only on request.
AT_ONCE = 200_000
#: What an entry is, in words.
WHAT = {
    "open": "books begun",
    "grant": "grants",
    "reserve": "charged for the release",
    "publish": "stored the release",
    "charge": "charged from outside",
    "unseal": "unsealed",
    "upgrade": "signed from here on",
}
#: Digits of a digest that tell it from others, where it is not to be copied.
DIGITS = 16
HEADS = ["entry", "what was written", "when (UTC)", "lines", "digest"]
CURRENCIES = (("pure epsilon", "pure ε"), ("zCDP rho", "ρ of zCDP"), ("epsilon, delta", "ε at δ"))
NEIGHBOURS = (
    ("replace", "replace: everything about the person"),
    ("replace labels", "labels: their labels alone"),
    ("zero out", "zero out: whether they were heard"),
)
NO_ACCOUNT = "Nobody of this name has an account. Names count as they are spelt in the tables."


async def books(request: Request) -> Response:
    """The entries, and everybody's balances without a name."""
    return await _books(request)


async def verify(request: Request) -> Response:
    """Begins to compute every balance and digest again."""
    desk = desk_of(request)
    name = desk.jobs.start(lambda job: verbs.verify(desk), "Verifying the books")
    return away(f"/ledger/verify/{name}")


async def verified(request: Request) -> Response:
    """Whether the books add up, once it is known."""
    job = desk_of(request).jobs.find(request.path_params["name"])
    if job is None:
        return away("/ledger")
    if job.state == "working":
        return render(request, "ledger_verify.html", job=job)
    return await _books(request, verified=job)


async def person(request: Request) -> Response:
    """One person's account; their grant and their code are set here, too."""
    desk, fields = desk_of(request), Fields(await request.form(max_files=0))
    name, asked = fields.text("person"), fields.choice("do", ("look", "grant", "code"))
    if name is None:
        return await _books(request, 422, fields=fields)
    if asked == "grant" and await run_in_threadpool(_granted, desk, name, fields):
        return away("/ledger", granted="yes")
    code = await run_in_threadpool(_coded, desk, name, fields) if asked == "code" else None
    return _person(request, name, fields, await run_in_threadpool(_lines, desk, name, fields), code)


async def _books(request: Request, status: int = 200, fields: Fields | None = None, **values: Any) -> Response:
    desk, fields = desk_of(request), fields or Fields({})
    entries = await run_in_threadpool(verbs.entries, desk)
    lines = sum(entry.lines for entry in entries)
    count = lines <= AT_ONCE or request.query_params.get("count") == "yes"
    before = _before(request, len(entries))
    shown = reversed(entries[max(before - SHOWN, 0) : before])
    return render(
        request,
        "ledger.html",
        status,
        typed=fields.form,
        complaints=fields.complaints,
        books=entries[0].key,
        sealed=books_of(desk).why_sealed,
        head=entries[-1].digest.hex(),
        number=len(entries),
        entries=drawing(table(HEADS, list(map(_cells, shown)), "words")),
        older=max(before - SHOWN, 0),
        unpublished=_unpublished(entries),
        counted=count,
        lines=lines,
        balances=await run_in_threadpool(_balances, desk, entries) if count else [],
        granted=request.query_params.get("granted") == "yes",
        **{"verified": None, **values},
    )


def _before(request: Request, number: int) -> int:
    given = request.query_params.get("before", "")
    return min(int(given), number) if given.isascii() and given.isdigit() and 0 < len(given) < DIGITS else number


def _balances(desk: Desk, entries: list[Entry]) -> list[tuple[str, Any, Any]]:
    """Returns the name, the picture and the table of each account; added up once for each state of the books."""

    def drawn() -> list[tuple[str, Any, Any]]:
        return [
            (Account(name).description, drawing(tiers.picture(many)), drawing(table(tiers.HEADS, [t.cells() for t in many])))
            for name, many in tiers.balances(books_of(desk)).items()
        ]

    last = max((entry.number for entry in entries if entry.what in WITH_LINES), default=0)
    found: list[tuple[str, Any, Any]] = desk.get_cached(("balances", entries[last].digest), drawn)
    return found


def _cells(entry: Entry) -> list[str]:
    at = entry.at.replace("T", " ").removesuffix("+00:00")
    key = f" “{entry.key}”" if entry.key and entry.what != "open" else ""
    digest = entry.digest.hex()[:DIGITS]
    return [str(entry.number), WHAT.get(entry.what, entry.what) + key, at, f"{entry.lines:,}", digest]


def _unpublished(entries: list[Entry]) -> int:
    """How many releases were charged for and never stored: under way just now, or interrupted."""
    stored = {entry.key for entry in entries if entry.what == "publish"}
    return sum(entry.what == "reserve" and entry.key not in stored for entry in entries)


def _granted(desk: Desk, name: str, fields: Fields) -> bool:
    """Sets what one person allows in all, if the form says so in full."""
    amount = fields.number("amount", least=0, most=MOST / NANO)
    currency: Any = fields.choice("currency", [key for key, _ in CURRENCIES])
    neighbours: Any = fields.choice("neighbours", [key for key, _ in NEIGHBOURS])
    at_delta = currency == "epsilon, delta"
    delta = fields.number("delta", needed=at_delta, least=0, most=1, above=True)
    if delta is not None and not at_delta:
        fields.complain("delta", "Only an account of ε at δ has a δ: leave this empty.")
    if fields.complaints:
        return False
    try:
        desk.session.grant({name: amount}, currency=currency, neighbours=neighbours, delta=delta)
    except SottovoceError as error:
        fields.complain("amount", in_words(error))
    return not fields.complaints


def _coded(desk: Desk, name: str, fields: Fields) -> str | None:
    try:
        return desk.codes.issue(name)
    except UnknownPeople:
        fields.complain("", NO_ACCOUNT)
    except SottovoceError as error:
        fields.complain("", in_words(error))
    return None


def _lines(desk: Desk, name: str, fields: Fields) -> list[Line]:
    try:
        return desk.session.history(name)
    except UnknownPeople:
        fields.complain("", NO_ACCOUNT)
    except SottovoceError as error:
        fields.complain("", in_words(error))
    return []


def _person(request: Request, name: str, fields: Fields, lines: list[Line], code: str | None) -> Response:
    held = accounts(lines)
    return render(
        request,
        "ledger_person.html",
        422 if fields.complaints else 200,
        person=name,
        code=code,
        typed=fields.form,
        complaints=fields.complaints,
        picture=drawing(statement_page.picture(held)),
        accounts=drawing(table(["account", "allowed in all", "spent", "left"], list(map(account_cells, held)))),
        lines=drawing(table(["entry", "what was written", "amount"], list(map(line_cells, lines)), "words")),
        known=bool(held),
        currencies=CURRENCIES,
        neighbours=NEIGHBOURS,
    )


async def pictures(request: Request) -> Response:
    """The style of the pictures on these pages, of the market's and of a person's."""
    style = (tiers.PICTURE, statement_page.ACCOUNTS, market_page.PICTURE, FRONTIER)
    return Response("\n".join(style), media_type="text/css")


routes = [
    Route("/ledger", books),
    Route("/ledger/verify", verify, methods=["POST"]),
    Route("/ledger/verify/{name}", verified),
    Route("/ledger/person", person, methods=["POST"]),
    Route("/static/pictures.css", pictures),
]
