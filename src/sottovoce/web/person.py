# SPDX-License-Identifier: Apache-2.0
"""The page of one person: what they allow, what was spent, on what, and what that means, with the proof of it.

Whoever types a code that the curator has handed out sees this account and no other. A visit has a cookie of its own,
which opens nothing of the curator's, and the curator's opens nothing here. Nothing on the page is about anybody else:
it is made from this person's statement alone (pages/statement.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.errors import SottovoceError
from sottovoce.ledgers.books import Books
from sottovoce.pages.page import stamp, table
from sottovoce.pages.statement import Account, Statement, accounts
from sottovoce.pages.statement_page import account_cells, line_cells, odds, page, picture, told
from sottovoce.web.codes import IDLE, PREFIX, SECRET, Codes, Visit
from sottovoce.web.desk import Desk
from sottovoce.web.forms import Fields, in_words
from sottovoce.web.guard import recognise
from sottovoce.web.shell import away, desk_of, download, drawing, render

__all__ = ["COOKIE", "Codes", "routes"]

#: Where these pages are, and the cookie of a visit, which the browser sends to them alone.
HERE, COOKIE = "/person", "sottovoce-person"
#: Characters that a code may be typed with, hyphens and spaces included.
TYPED = 2 * (PREFIX + SECRET)
WRONG = "This code is not known. Check every letter, or ask the curator for a new one."


async def account(request: Request) -> Response:
    """The account of the visitor; whoever has not shown a code is asked for it, and told nothing."""
    visit = _visit(request)
    if visit is None:
        return _door(request)
    try:
        made = await run_in_threadpool(_statement, books_of(desk_of(request)), visit)
    except SottovoceError as error:
        return _door(request, 409, {"": in_words(error)})
    return _shown(request, made)


async def enter(request: Request) -> Response:
    """Looks at a code: the right one begins a visit, any other is answered in one sentence."""
    fields = Fields(await request.form(max_files=0, max_fields=1))
    code, token, codes = fields.text("code", longest=TYPED), None, _codes(request)
    if code is not None and await run_in_threadpool(codes.knows, code):
        recognise(request.scope)
        token = await run_in_threadpool(codes.sign_in, code)
    elif code is not None and await run_in_threadpool(codes.is_unmarked, code):
        async with codes.unmarked_turn:
            token = await run_in_threadpool(codes.sign_in, code)
    if not token:
        fields.complain("code", WRONG)
        return _door(request, 403, fields.complaints)
    answer = away(HERE)
    answer.set_cookie(_cookie(request), token, path=HERE, httponly=True, samesite="strict")
    return answer


def _door(request: Request, status: int = 200, complaints: Mapping[str, str] | None = None) -> Response:
    """The page that asks for a code."""
    return render(request, "person_code.html", status, rooms=False, minutes=IDLE // 60, complaints=complaints or {})


async def leave(request: Request) -> Response:
    """Ends the visit."""
    _codes(request).sign_out(request.cookies.get(_cookie(request)))
    answer = away(HERE)
    answer.delete_cookie(_cookie(request), path=HERE, httponly=True, samesite="strict")
    return answer


async def statement(request: Request) -> Response:
    """The statement as a file with its proof inside, to be kept and to be checked without the books."""
    visit = _visit(request)
    if visit is None:
        return away(HERE)
    try:
        made = await run_in_threadpool(_statement, books_of(desk_of(request)), visit)
    except SottovoceError:
        return away(HERE)  # where it is said
    return download("statement.html", page(made), "text/html")


def _shown(request: Request, made: Statement) -> Response:
    lines = made.lines()
    held = accounts(lines)
    return render(
        request,
        "person.html",
        rooms=False,
        stamp=drawing(stamp("PERSONAL", "This page is about you, and for you alone.")),
        person=made.person,
        told=told(held),
        picture=drawing(picture(held)),
        accounts=drawing(table(["account", "allowed in all", "spent", "left"], list(map(account_cells, held)))),
        lines=drawing(table(["entry", "what was written", "amount"], list(map(line_cells, lines)), "words")),
        odds=odds(held),
        lowest=_lowest(held),
        proved=len(made.proved),
        entries=len(made.entries),
        head=made.head,
        books=made.entries[0].key[:8],
    )


def _lowest(held: list[Account]) -> list[str]:
    """How far each grant can be lowered, in words."""
    return [f"{account.format_amount(account.spent)} in the account of {account.description}" for account in held if account.spent]


def _statement(books: Books, visit: Visit) -> Statement:
    """Returns what the books say and prove now; made anew when something was entered since."""
    *_, last = books.entries()
    if visit.statement is None or visit.statement.head != last.digest.hex():
        visit.statement = Statement.of(books, visit.person)
    return visit.statement


def books_of(desk: Desk) -> Books:
    """Returns the books on the desk, which are in a database, if only in memory."""
    if not isinstance(desk.session.ledger, Books):
        raise TypeError("only books in a database are opened here")
    return desk.session.ledger


def _visit(request: Request) -> Visit | None:
    visit = _codes(request).find_visit(request.cookies.get(_cookie(request)))
    if visit is not None:
        recognise(request.scope)
    return visit


def _cookie(request: Request) -> str:
    """The cookie's name: cookies are for all ports of a machine, so it says which page's it is."""
    return f"{COOKIE}-{request.url.port}"


def _codes(request: Request) -> Codes:
    return desk_of(request).codes


routes = [
    Route(HERE, account),
    Route(HERE, enter, methods=["POST"]),
    Route(f"{HERE}/leave", leave, methods=["POST"]),
    Route(f"{HERE}/statement", statement),
]
