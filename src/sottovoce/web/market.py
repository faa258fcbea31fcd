# SPDX-License-Identifier: Apache-2.0
"""Buying privacy, as pages for the buyer alone: sellers, what is declared beforehand, and what comes of it.

Everything but the sellers' reports travels in the address, so that a slider is a form like any other and every page can
be reloaded. Nothing but reports and public numbers is read. What was bought becomes grants after one more question.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.errors import SottovoceError
from sottovoce.market import Frontier, Point
from sottovoce.market.allocation import WHY
from sottovoce.pages.market_page import picture
from sottovoce.pages.market_terms import Terms
from sottovoce.pages.market_told import (
    HEADS,
    NOT_PROTECTED,
    Outcome,
    allocation_csv,
    declared,
    headline,
    plain,
    published,
    sentences,
)
from sottovoce.pages.page import stamp, table
from sottovoce.web import market_form, uploads
from sottovoce.web.desk import Desk
from sottovoce.web.forms import Fields, in_words
from sottovoce.web.market_form import STEPS, Asked
from sottovoce.web.shell import away, desk_of, download, drawing, render

Result = TypeVar("Result")

#: The curve has a point at every tenth step of the slider.
APART = 10
FOR_WHOM = "Reports, and payments that reveal them, are on this page."


async def market(request: Request) -> Response:
    """Who sells, what is declared, and what comes of it, as far as the address says."""
    return await _market(request, Fields(dict(request.query_params)))


async def sellers(request: Request) -> Response:
    """Lays reports on the desk, from a file or typed, or says next to the field why they cannot be used."""
    async with request.form(max_files=1) as form:
        fields = Fields(form)
        where, name, content = _sent(fields)
        held = None
        if content is not None:
            held = await _tried(fields, where, partial(uploads.keep, desk_of(request), name, content))
    return await _market(request, fields) if held is None else away("/market", table=held)


def _sent(fields: Fields) -> tuple[str, str, BinaryIO | None]:
    """Returns which field was used, what a file was called, and the reports."""
    file = fields.form.get("file")
    if isinstance(file, UploadFile) and file.filename:
        return "file", file.filename, file.file
    return "typed", "sellers.csv", market_form.typed(fields)


async def take(request: Request) -> Response:
    """Asks once more before what was bought becomes grants, and then writes them into the books."""
    sent = request.method == "POST"
    said = dict(await request.form(max_files=0) if sent else request.query_params)
    fields = Fields(said)
    outcome = await run_in_threadpool(_outcome, desk_of(request), fields)
    if outcome is None:
        return away("/market")
    if sent and not fields.is_checked("sure"):
        fields.complain("sure", "Tick this, if it is what you want.")
    elif sent:
        await _tried(fields, "sure", lambda: desk_of(request).session.grant(outcome.deal))
        if not fields.complaints:
            return away("/ledger", granted="yes")
    return _confirmation(request, fields, outcome)


def _confirmation(request: Request, fields: Fields, outcome: Outcome) -> Response:
    said = {name: value for name, value in fields.form.items() if name != "sure"}
    return render(
        request,
        "market_take.html",
        422 if fields.complaints else 200,
        stamp=drawing(stamp("FOR THE BUYER ALONE", FOR_WHOM)),
        headline=headline(outcome),
        bought=int((outcome.deal.units > 0).sum()),
        idle=int((outcome.deal.units == 0).sum()),
        said=said,
        typed=fields.form,
        complaints=fields.complaints,
        back=urlencode(said),
    )


async def allocation(request: Request) -> Response:
    """What was bought, one line a seller, for the buyer alone."""
    return await _file(request, "allocation.csv", "text/csv", lambda outcome: allocation_csv(outcome, "seller"))


async def public(request: Request) -> Response:
    """What must be published: rules, sums and counts, without reports and names."""
    return await _file(request, "published.json", "application/json", published)


async def _file(request: Request, name: str, kind: str, written: Callable[[Outcome], str]) -> Response:
    said = dict(request.query_params)
    outcome = await run_in_threadpool(_outcome, desk_of(request), Fields(said))
    if outcome is None:
        return away(f"/market?{urlencode(said)}")
    return download(name, written(outcome), kind)


async def _market(request: Request, fields: Fields) -> Response:
    desk = desk_of(request)
    chosen = desk.tables.get(fields.get_typed("table"))
    sent = chosen is not None and "amount" in fields.form  # and not only a table chosen
    outcome = await run_in_threadpool(_drawn, desk, fields) if sent else None
    return render(
        request,
        "market.html",
        422 if fields.complaints else 200,
        stamp=drawing(stamp("FOR THE BUYER ALONE", FOR_WHOM)),
        typed={**market_form.USUAL, **fields.form},
        complaints=fields.complaints,
        tables=[(name, held.name) for name, held in desk.tables.items()],
        chosen=chosen,
        columns=[(name, name) for name in chosen.columns] if chosen else [],
        form=market_form,
        query=urlencode({name: value for name, value in fields.form.items() if isinstance(value, str)}),
        outcome=outcome,
        caution=NOT_PROTECTED,
        why=WHY,
    )


def _outcome(desk: Desk, fields: Fields) -> Outcome | None:
    """Settles the market, if the form says all that it needs; else what is missing is among the complaints."""
    asked = market_form.asked(desk, fields)
    return None if asked is None else _settled(desk, fields, asked)


def _settled(desk: Desk, fields: Fields, asked: Asked) -> Outcome | None:
    where = "cost"
    try:
        reports, terms, where = asked.read_reports(desk), asked.at(asked.slide), "low"
        return Outcome(terms, reports, terms.allocate(reports))
    except SottovoceError as error:
        fields.complain(where, in_words(error))
    return None


def _drawn(desk: Desk, fields: Fields) -> dict[str, Any] | None:
    """Returns what is shown of an outcome: sentences, pictures, tables."""
    asked = market_form.asked(desk, fields)
    outcome = None if asked is None else _settled(desk, fields, asked)
    if asked is None or outcome is None:
        return None
    curve, now = _curve(desk, asked), _point(outcome)
    points = sorted({(p.payment, p.expected_error, p.total_epsilon) for p in (*curve, now)})
    return {
        "headline": headline(outcome),
        "moved": _moved(outcome.terms),
        "frontier": drawing(curve.beside("now", Frontier((now,))).svg()),
        "points": drawing(table(["paid in all", "bound on the error", "ε in all"], [_cells(*p) for p in points])),
        "picture": drawing(picture(outcome)),
        "bands": drawing(table(HEADS, outcome.lines())),
        "sentences": [line.replace("--", "") for line in sentences(outcome)],
        "declared": declared(outcome),
        "any": bool(outcome.deal.units.any()),
    }


def _moved(terms: Terms) -> str:
    if terms.budget is None:
        return f"Money is worth an error of γ = {plain(terms.worth)} a unit."
    return f"The budget is {plain(terms.budget)}."


def _cells(payment: float, error: float, epsilon: float) -> list[str]:
    bound = f"{error:.3g}" if error < float("inf") else "nothing is bought"
    return [plain(payment), bound, plain(epsilon)]


def _curve(desk: Desk, asked: Asked) -> Frontier:
    """Returns error and payment along the whole slider; settled once, while the slider moves."""

    def settled() -> Frontier:
        reports = asked.read_reports(desk)
        terms = [asked.at(slide) for slide in range(-STEPS, STEPS + 1, APART)]
        return Frontier(tuple(_point(Outcome(t, reports, t.allocate(reports))) for t in terms))

    found: Frontier = desk.get_cached(("market", asked.table, asked.columns, asked.terms), settled)
    return found


def _point(outcome: Outcome) -> Point:
    deal = outcome.deal
    return Point(outcome.terms.worth, deal.expected_error, deal.total, deal.total_epsilon)


async def _tried(fields: Fields, name: str, work: Callable[[], Result]) -> Result | None:
    """Does what may be refused; a refusal is told next to the field."""
    try:
        return await run_in_threadpool(work)
    except SottovoceError as error:
        fields.complain(name, in_words(error))
    return None


routes = [
    Route("/market", market),
    Route("/market/sellers", sellers, methods=["POST"]),
    Route("/market/take", take, methods=["GET", "POST"]),
    Route("/market/allocation.csv", allocation),
    Route("/market/published.json", public),
]
