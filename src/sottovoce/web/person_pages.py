# SPDX-License-Identifier: Apache-2.0
"""The page of one person: what they allow, what was spent, on what, and what that means, with the
proof of it.

Whoever types a code that the curator has handed out sees this account and no other. A visit has a
cookie of its own, which opens nothing of the curator's, and the curator's opens nothing here.
Nothing on the page is about anybody else: it is made from this person's statement alone
(ledgers/statement.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.errors import SottovoceError
from sottovoce.ledgers.sql_ledger import SqlLedger
from sottovoce.ledgers.statement import AccountBalance, Statement, sum_accounts
from sottovoce.report.html import make_stamp, make_table
from sottovoce.report.ledger import (
    draw_accounts,
    explain_odds,
    explain_protection,
    make_account_cells,
    make_line_cells,
    make_statement_page,
)
from sottovoce.web.access_codes import IDLE, PREFIX, SECRET, AccessCodes, Visit
from sottovoce.web.guard import mark_as_known
from sottovoce.web.layout import download, get_workspace, mark_trusted, redirect, render
from sottovoce.web.question_form import Fields
from sottovoce.web.workspace import Workspace

__all__ = ["COOKIE", "AccessCodes", "routes"]

#: Where these pages are, and the cookie of a visit, which the browser sends to them alone.
PERSON_PAGE = "/person"
COOKIE = "sottovoce-person"
#: Characters that a code may be typed with, hyphens and spaces included.
MAX_TYPED = 2 * (PREFIX + SECRET)
#: What the accounts of a person protect, by how their names end.
PROTECTED = {
    ", replace": "“Neighbours by replace”: answers protect what is in your records, not whether "
    "you are in the table.",
    ", replace labels": "“Neighbours by replace labels”: answers protect your label, and take your "
    "other columns as public.",
    ", zero out": "“Neighbours by zero out”: answers protect whether your records are used.",
}
UNKNOWN_CODE = "This code is not known. Check every letter, or ask the curator for a new one."


async def show_account(request: Request) -> Response:
    """The account of the visitor; whoever has not shown a code is asked for it, and told
    nothing.
    """
    visit = _find_visit(request)
    if visit is None:
        return _render_sign_in(request)
    try:
        made = await run_in_threadpool(
            _make_statement, get_sql_ledger(get_workspace(request)), visit
        )
    except SottovoceError as error:
        return _render_sign_in(request, 409, {"": str(error)})
    return _render_account(request, made)


async def sign_in(request: Request) -> Response:
    """Looks at a code: the right one begins a visit, any other is answered in one sentence."""
    fields = Fields(await request.form(max_files=0, max_fields=1))
    code = fields.text("code", longest=MAX_TYPED)
    token = None
    codes = _get_codes(request)
    if code is not None and await run_in_threadpool(codes.knows, code):
        mark_as_known(request.scope)
        token = await run_in_threadpool(codes.sign_in, code)
    elif code is not None and await run_in_threadpool(codes.is_unmarked, code):
        async with codes.unmarked_turn:
            token = await run_in_threadpool(codes.sign_in, code)
    if not token:
        fields.complain("code", UNKNOWN_CODE)
        return _render_sign_in(request, 403, fields.complaints)
    answer = redirect(PERSON_PAGE)
    answer.set_cookie(
        _make_cookie_name(request), token, path=PERSON_PAGE, httponly=True, samesite="strict"
    )
    return answer


def _render_sign_in(
    request: Request, status: int = 200, complaints: Mapping[str, str] | None = None
) -> Response:
    """The page that asks for a code."""
    return render(
        request,
        "person_code.html",
        status,
        rooms=False,
        minutes=IDLE // 60,
        complaints=complaints or {},
    )


async def sign_out(request: Request) -> Response:
    """Ends the visit."""
    _get_codes(request).sign_out(request.cookies.get(_make_cookie_name(request)))
    answer = redirect(PERSON_PAGE)
    answer.delete_cookie(
        _make_cookie_name(request), path=PERSON_PAGE, httponly=True, samesite="strict"
    )
    return answer


async def download_statement(request: Request) -> Response:
    """The statement as a file with its proof inside, to be kept and to be checked without the
    books.
    """
    visit = _find_visit(request)
    if visit is None:
        return redirect(PERSON_PAGE)
    try:
        made = await run_in_threadpool(
            _make_statement, get_sql_ledger(get_workspace(request)), visit
        )
    except SottovoceError:
        return redirect(PERSON_PAGE)  # where it is said
    return download("statement.html", make_statement_page(made), "text/html")


def _render_account(request: Request, made: Statement) -> Response:
    lines = made.lines()
    held = sum_accounts(lines)
    return render(
        request,
        "person.html",
        rooms=False,
        stamp=mark_trusted(make_stamp("PERSONAL", "This page is about you, and for you alone.")),
        person=made.person,
        told=explain_protection(held),
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
        odds=explain_odds(held),
        protected=_explain_accounts(held),
        lowest=_describe_lowest_grants(held),
        proved=len(made.proved),
        entries=len(made.entries),
        head=made.head,
        books=made.entries[0].key[:8],
    )


def _explain_accounts(held: list[AccountBalance]) -> list[str]:
    """What the accounts of this person protect, in words."""
    return [
        sentence
        for ending, sentence in PROTECTED.items()
        if any(account.name.endswith(ending) for account in held)
    ]


def _describe_lowest_grants(held: list[AccountBalance]) -> list[str]:
    """How far each grant can be lowered, in words."""
    return [
        f"{account.format_amount(account.spent)} in the account of {account.description}"
        for account in held
        if account.spent
    ]


def _make_statement(books: SqlLedger, visit: Visit) -> Statement:
    """Returns what the books say and prove now; made anew when something was entered since."""
    *_, last = books.entries()
    if visit.statement is None or visit.statement.head != last.digest.hex():
        visit.statement = Statement.of(books, visit.person)
    return visit.statement


def get_sql_ledger(workspace: Workspace) -> SqlLedger:
    """Returns the books in the workspace, which are in a database, if only in memory."""
    if not isinstance(workspace.session.ledger, SqlLedger):
        raise TypeError("only a ledger in a database is opened here")
    return workspace.session.ledger


def _find_visit(request: Request) -> Visit | None:
    visit = _get_codes(request).find_visit(request.cookies.get(_make_cookie_name(request)))
    if visit is not None:
        mark_as_known(request.scope)
    return visit


def _make_cookie_name(request: Request) -> str:
    """The cookie's name: cookies are for all ports of a machine, so it says which page's it is."""
    return f"{COOKIE}-{request.url.port}"


def _get_codes(request: Request) -> AccessCodes:
    return get_workspace(request).codes


routes = [
    Route(PERSON_PAGE, show_account),
    Route(PERSON_PAGE, sign_in, methods=["POST"]),
    Route(f"{PERSON_PAGE}/leave", sign_out, methods=["POST"]),
    Route(f"{PERSON_PAGE}/statement", download_statement),
]
