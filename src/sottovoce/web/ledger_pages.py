# SPDX-License-Identifier: Apache-2.0
"""The books as pages for the curator: entries, balances without names, whether they add up, and one
person on request.

A person is shown only to whoever types their name, and the name is sent in the body of a request,
never in an address. Here grants of one person are set, and codes are made with which people see
their own account.
"""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.errors import SottovoceError, UnknownPeople
from sottovoce.ledger import MAX_UNITS, Entry, Line
from sottovoce.ledgers.statement import WITH_LINES, AccountBalance, sum_accounts
from sottovoce.report.html import make_table
from sottovoce.report.ledger import (
    TIER_HEADS,
    compute_balances,
    draw_accounts,
    draw_tiers,
    make_account_cells,
    make_line_cells,
)
from sottovoce.units import UNITS_PER_EPSILON
from sottovoce.web import actions
from sottovoce.web.layout import get_workspace, mark_trusted, redirect, render
from sottovoce.web.person_pages import get_sql_ledger
from sottovoce.web.question_form import Fields
from sottovoce.web.workspace import Workspace

#: Entries that are shown at once, the newest first.
PAGE_SIZE = 50
#: Lines of the books that are added up while somebody waits for the page: half a second. More only
#: on request.
MAX_LINES_AT_ONCE = 200_000
#: What an entry is, in words.
ENTRY_WORDS = {
    "open": "ledger begun",
    "grant": "grants",
    "sale": "sale",
    "reserve": "charged for the release",
    "publish": "stored the release",
    "charge": "charged from outside",
    "unseal": "unsealed",
    "upgrade": "signed from here on",
}
#: Digits of a digest that tell it from others, where it is not to be copied.
DIGITS = 16
ENTRY_HEADS = ["entry", "what was written", "when (UTC)", "lines", "digest"]
CURRENCIES = (("pure epsilon", "pure ε"), ("zCDP rho", "ρ of zCDP"), ("epsilon, delta", "ε at δ"))
NEIGHBOURS = (
    ("replace", "replace: what is in their records"),
    ("replace labels", "labels: their labels alone"),
    ("zero out", "zero out: whether their records are used"),
)
NO_ACCOUNT = "Nobody of this name has an account. Names count as they are spelt in the tables."


async def show_ledger(request: Request) -> Response:
    """The entries, and everybody's balances without a name."""
    return await _render_ledger(request)


async def start_verification(request: Request) -> Response:
    """Begins to compute every balance and digest again."""
    workspace = get_workspace(request)
    name = workspace.jobs.start(
        lambda job: actions.verify_ledger(workspace), "Verifying the ledger"
    )
    return redirect(f"/ledger/verify/{name}")


async def show_verification(request: Request) -> Response:
    """Whether the books add up, once it is known."""
    job = get_workspace(request).jobs.find(request.path_params["name"])
    if job is None:
        return redirect("/ledger")
    job = job.take_snapshot()
    if job.state == "working":
        return render(request, "ledger_verify.html", job=job)
    return await _render_ledger(request, verified=job)


async def show_person(request: Request) -> Response:
    """One person's account; their grant and their code are set here, too."""
    workspace = get_workspace(request)
    fields = Fields(await request.form(max_files=0))
    name = fields.text("person")
    asked = fields.choice("do", ("look", "grant", "code"))
    if name is None:
        return await _render_ledger(request, 422, fields=fields)
    if asked == "grant" and await run_in_threadpool(_grant_budget, workspace, name, fields):
        return redirect("/ledger", granted="yes")
    if asked == "code":
        code = await run_in_threadpool(_issue_code, workspace, name, fields)
    else:
        code = None
    return _render_person(
        request, name, fields, await run_in_threadpool(_read_lines, workspace, name, fields), code
    )


async def _render_ledger(
    request: Request, status: int = 200, fields: Fields | None = None, **values: Any
) -> Response:
    workspace = get_workspace(request)
    fields = fields or Fields({})
    entries = await run_in_threadpool(actions.read_entries, workspace)
    lines = sum(entry.lines for entry in entries)
    count = lines <= MAX_LINES_AT_ONCE or request.query_params.get("count") == "yes"
    before = _read_page_end(request, len(entries))
    shown = reversed(entries[max(before - PAGE_SIZE, 0) : before])
    return render(
        request,
        "ledger.html",
        status,
        typed=fields.form,
        complaints=fields.complaints,
        books=entries[0].key,
        sealed=get_sql_ledger(workspace).why_sealed,
        head=entries[-1].digest.hex(),
        number=len(entries),
        entries=mark_trusted(make_table(ENTRY_HEADS, list(map(_make_cells, shown)), "words")),
        older=max(before - PAGE_SIZE, 0),
        unpublished=_count_unpublished(entries),
        counted=count,
        lines=lines,
        balances=await run_in_threadpool(_draw_balances, workspace, entries) if count else [],
        granted=request.query_params.get("granted") == "yes",
        **{"verified": None, **values},
    )


def _read_page_end(request: Request, number: int) -> int:
    given = request.query_params.get("before", "")
    if given.isascii() and given.isdigit() and 0 < len(given) < DIGITS:
        return min(int(given), number)
    return number


def _draw_balances(workspace: Workspace, entries: list[Entry]) -> list[tuple[str, Any, Any]]:
    """Returns the name, the picture and the table of each account; added up once for each state of
    the books.
    """

    def drawn() -> list[tuple[str, Any, Any]]:
        return [
            (
                AccountBalance(name).description,
                mark_trusted(draw_tiers(many)),
                mark_trusted(make_table(TIER_HEADS, [t.cells() for t in many])),
            )
            for name, many in compute_balances(get_sql_ledger(workspace)).items()
        ]

    last = max((entry.number for entry in entries if entry.what in WITH_LINES), default=0)
    found: list[tuple[str, Any, Any]] = workspace.get_cached(
        ("balances", entries[last].digest), drawn
    )
    return found


def _make_cells(entry: Entry) -> list[str]:
    at = entry.at.replace("T", " ").removesuffix("+00:00")
    if entry.key and entry.what != "open":
        key = f" “{entry.key}”"
    else:
        key = ""
    digest = entry.digest.hex()[:DIGITS]
    return [
        str(entry.number),
        ENTRY_WORDS.get(entry.what, entry.what) + key,
        at,
        f"{entry.lines:,}",
        digest,
    ]


def _count_unpublished(entries: list[Entry]) -> int:
    """How many releases were charged for and never stored: under way just now, or interrupted."""
    stored = {entry.key for entry in entries if entry.what == "publish"}
    return sum(entry.what == "reserve" and entry.key not in stored for entry in entries)


#: The fields of a grant by the parameters of the library that they set.
GRANT_FIELDS = {
    "amount": "amount",
    "budgets": "amount",
    "currency": "currency",
    "delta": "delta",
    "epsilon": "amount",
    "neighbours": "neighbours",
}


def _grant_budget(workspace: Workspace, name: str, fields: Fields) -> bool:
    """Sets what one person allows in all, if the form says so in full."""
    amount = fields.number("amount", least=0, most=MAX_UNITS / UNITS_PER_EPSILON)
    currency: Any = fields.choice("currency", [key for key, _ in CURRENCIES])
    neighbours: Any = fields.choice("neighbours", [key for key, _ in NEIGHBOURS])
    at_delta = currency == "epsilon, delta"
    delta = fields.number("delta", needed=at_delta, least=0, most=1, above=True)
    if delta is not None and not at_delta:
        fields.complain("delta", "Only an account of ε at δ has a δ: leave this empty.")
    if fields.complaints:
        return False
    try:
        workspace.session.grant(
            {name: amount}, currency=currency, neighbours=neighbours, delta=delta
        )
    except SottovoceError as error:
        fields.complain_about(error, GRANT_FIELDS)
    return not fields.complaints


def _issue_code(workspace: Workspace, name: str, fields: Fields) -> str | None:
    try:
        return workspace.codes.issue(name)
    except UnknownPeople:
        fields.complain("", NO_ACCOUNT)
    except SottovoceError as error:
        fields.complain("", str(error))
    return None


def _read_lines(workspace: Workspace, name: str, fields: Fields) -> list[Line]:
    try:
        return workspace.session.history(name)
    except UnknownPeople:
        fields.complain("", NO_ACCOUNT)
    except SottovoceError as error:
        fields.complain("", str(error))
    return []


def _render_person(
    request: Request, name: str, fields: Fields, lines: list[Line], code: str | None
) -> Response:
    held = sum_accounts(lines)
    return render(
        request,
        "ledger_person.html",
        422 if fields.complaints else 200,
        person=name,
        code=code,
        address=request.url_for("show_account"),
        typed=fields.form,
        complaints=fields.complaints,
        picture=mark_trusted(draw_accounts(held)),
        accounts=mark_trusted(
            make_table(
                ["account", "allowed in all", "spent", "left"], list(map(make_account_cells, held))
            )
        ),
        lines=mark_trusted(
            make_table(
                ["entry", "what was written", "amount"], list(map(make_line_cells, lines)), "words"
            )
        ),
        known=bool(held),
        currencies=CURRENCIES,
        neighbours=NEIGHBOURS,
    )


routes = [
    Route("/ledger", show_ledger),
    Route("/ledger/verify", start_verification, methods=["POST"]),
    Route("/ledger/verify/{name}", show_verification),
    Route("/ledger/person", show_person, methods=["POST"]),
]
