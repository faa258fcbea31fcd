# SPDX-License-Identifier: Apache-2.0
"""Buying privacy, as pages for the buyer alone: sellers, what is declared beforehand, and what
comes of it.

Everything but the sellers' reports travels in the address, so that a slider is a form like any
other and every page can be reloaded. Nothing but reports and public numbers is read. What was
bought becomes grants after one more question.
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
from sottovoce.market.allocation import TRUTH_SENTENCES
from sottovoce.market.terms import MarketTerms
from sottovoce.report.html import make_stamp, make_table
from sottovoce.report.market import (
    NOT_PROTECTED,
    OUTCOME_HEADS,
    MarketOutcome,
    describe_terms,
    draw_market,
    explain_outcome,
    format_amount,
    make_allocation_csv,
    make_market_headline,
    make_published_json,
)
from sottovoce.web import market_form
from sottovoce.web.layout import download, get_workspace, mark_trusted, redirect, render
from sottovoce.web.market_form import SLIDER_STEPS, MarketForm
from sottovoce.web.question_form import Fields
from sottovoce.web.workspace import Workspace, save_table

Result = TypeVar("Result")

#: The curve has a point at every tenth step of the slider.
SLIDER_STRIDE = 10
FOR_WHOM = "Reports, and payments that reveal them, are on this page."


async def show_market(request: Request) -> Response:
    """Who sells, what is declared, and what comes of it, as far as the address says."""
    return await _render_market(request, Fields(dict(request.query_params)))


async def upload_sellers(request: Request) -> Response:
    """Adds reports to the workspace, from a file or typed, or says next to the field why they
    cannot be used.
    """
    async with request.form(max_files=1) as form:
        fields = Fields(form)
        where, name, content = _read_upload(fields)
        held = None
        if content is not None:
            held = await _run_or_complain(
                fields, where, partial(save_table, get_workspace(request), name, content)
            )
    if held is None:
        return await _render_market(request, fields)
    return redirect("/market", table=held)


def _read_upload(fields: Fields) -> tuple[str, str, BinaryIO | None]:
    """Returns which field was used, what a file was called, and the reports."""
    file = fields.form.get("file")
    if isinstance(file, UploadFile) and file.filename:
        return "file", file.filename, file.file
    return "typed", "sellers.csv", market_form.read_typed_sellers(fields)


async def confirm_grants(request: Request) -> Response:
    """Asks once more before what was bought becomes grants, and then writes them into the books."""
    sent = request.method == "POST"
    said = dict(await request.form(max_files=0) if sent else request.query_params)
    fields = Fields(said)
    outcome = await run_in_threadpool(_compute_outcome, get_workspace(request), fields)
    if outcome is None:
        return redirect("/market")
    if sent and not fields.is_checked("sure"):
        fields.complain("sure", "Tick this, if it is what you want.")
    elif sent:
        await _run_or_complain(
            fields, "sure", lambda: get_workspace(request).session.grant(outcome.deal)
        )
        if not fields.complaints:
            return redirect("/ledger", granted="yes")
    return _render_confirmation(request, fields, outcome)


def _render_confirmation(request: Request, fields: Fields, outcome: MarketOutcome) -> Response:
    said = {name: value for name, value in fields.form.items() if name != "sure"}
    return render(
        request,
        "market_take.html",
        422 if fields.complaints else 200,
        stamp=mark_trusted(make_stamp("FOR THE BUYER ALONE", FOR_WHOM)),
        headline=make_market_headline(outcome),
        bought=int((outcome.deal.units > 0).sum()),
        idle=int((outcome.deal.units == 0).sum()),
        said=said,
        typed=fields.form,
        complaints=fields.complaints,
        back=urlencode(said),
    )


async def download_allocation(request: Request) -> Response:
    """What was bought, one line a seller, for the buyer alone."""
    return await _download_file(
        request,
        "allocation.csv",
        "text/csv",
        lambda outcome: make_allocation_csv(outcome, "seller"),
    )


async def download_public(request: Request) -> Response:
    """What must be published: rules, sums and counts, without reports and names."""
    return await _download_file(request, "published.json", "application/json", make_published_json)


async def _download_file(
    request: Request, name: str, kind: str, written: Callable[[MarketOutcome], str]
) -> Response:
    said = dict(request.query_params)
    outcome = await run_in_threadpool(_compute_outcome, get_workspace(request), Fields(said))
    if outcome is None:
        return redirect(f"/market?{urlencode(said)}")
    return download(name, written(outcome), kind)


async def _render_market(request: Request, fields: Fields) -> Response:
    workspace = get_workspace(request)
    chosen = workspace.tables.get(fields.get_typed("table"))
    sent = chosen is not None and "amount" in fields.form  # and not only a table chosen
    if sent:
        outcome = await run_in_threadpool(_draw_outcome, workspace, fields)
    else:
        outcome = None
    return render(
        request,
        "market.html",
        422 if fields.complaints else 200,
        stamp=mark_trusted(make_stamp("FOR THE BUYER ALONE", FOR_WHOM)),
        typed={**market_form.DEFAULTS, **fields.form},
        complaints=fields.complaints,
        tables=[(name, held.name) for name, held in workspace.tables.items()],
        chosen=chosen,
        columns=[(name, name) for name in chosen.columns] if chosen else [],
        form=market_form,
        query=urlencode(
            {name: value for name, value in fields.form.items() if isinstance(value, str)}
        ),
        outcome=outcome,
        caution=NOT_PROTECTED,
        why=TRUTH_SENTENCES,
    )


def _compute_outcome(workspace: Workspace, fields: Fields) -> MarketOutcome | None:
    """Settles the market, if the form says all that it needs; else what is missing is among the
    complaints.
    """
    asked = market_form.read_market_form(workspace, fields)
    if asked is None:
        return None
    return _allocate(workspace, fields, asked)


def _allocate(workspace: Workspace, fields: Fields, asked: MarketForm) -> MarketOutcome | None:
    try:
        reports = asked.read_reports(workspace)
        terms = asked.at(asked.slide)
        return MarketOutcome(terms, reports, terms.allocate(reports))
    except SottovoceError as error:
        fields.complain_about(error, market_form.FIELDS_OF_PARAMETERS)
    return None


def _draw_outcome(workspace: Workspace, fields: Fields) -> dict[str, Any] | None:
    """Returns what is shown of an outcome: sentences, pictures, tables."""
    asked = market_form.read_market_form(workspace, fields)
    if asked is None:
        outcome = None
    else:
        outcome = _allocate(workspace, fields, asked)
    if asked is None or outcome is None:
        return None
    curve = _compute_frontier(workspace, asked)
    now = _make_point(outcome)
    points = sorted({(p.payment, p.expected_error, p.total_epsilon) for p in (*curve, now)})
    return {
        "headline": make_market_headline(outcome),
        "moved": _describe_slider(outcome.terms),
        "frontier": mark_trusted(curve.beside("now", Frontier((now,))).svg(standalone=False)),
        "points": mark_trusted(
            make_table(
                ["paid in all", "bound on the error", "ε in all"], [_make_cells(*p) for p in points]
            )
        ),
        "picture": mark_trusted(draw_market(outcome)),
        "bands": mark_trusted(make_table(OUTCOME_HEADS, outcome.lines())),
        "sentences": explain_outcome(outcome),
        "declared": describe_terms(outcome),
        "any": bool(outcome.deal.units.any()),
    }


def _describe_slider(terms: MarketTerms) -> str:
    if terms.budget is None:
        return f"Money is worth an error of γ = {format_amount(terms.worth)} a unit."
    return f"The budget is {format_amount(terms.budget)}."


def _make_cells(payment: float, error: float, epsilon: float) -> list[str]:
    if error < float("inf"):
        bound = f"{error:.3g}"
    else:
        bound = "nothing is bought"
    return [format_amount(payment), bound, format_amount(epsilon)]


def _compute_frontier(workspace: Workspace, asked: MarketForm) -> Frontier:
    """Return error and payment along the whole slider, computed once while the slider moves."""

    def compute_frontier() -> Frontier:
        reports = asked.read_reports(workspace)
        terms = [asked.at(slide) for slide in range(-SLIDER_STEPS, SLIDER_STEPS + 1, SLIDER_STRIDE)]
        return Frontier(
            tuple(_make_point(MarketOutcome(t, reports, t.allocate(reports))) for t in terms)
        )

    found: Frontier = workspace.get_cached(
        ("market", asked.table, asked.columns, asked.terms), compute_frontier
    )
    return found


def _make_point(outcome: MarketOutcome) -> Point:
    deal = outcome.deal
    return Point(outcome.terms.worth, deal.expected_error, deal.total, deal.total_epsilon)


async def _run_or_complain(fields: Fields, name: str, work: Callable[[], Result]) -> Result | None:
    """Does what may be refused; a refusal is told next to the field."""
    try:
        return await run_in_threadpool(work)
    except SottovoceError as error:
        fields.complain(name, str(error))
    return None


routes = [
    Route("/market", show_market),
    Route("/market/sellers", upload_sellers, methods=["POST"]),
    Route("/market/take", confirm_grants, methods=["GET", "POST"]),
    Route("/market/allocation.csv", download_allocation),
    Route("/market/published.json", download_public),
]
