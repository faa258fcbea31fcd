# SPDX-License-Identifier: Apache-2.0
"""What a buyer types for a market, from fields to terms and reports; what is wrong is a sentence
next to its field.

The budget, or what money is worth, is a number and a slider around it, so that one form serves
small and large markets.

Buying privacy, as pages for the buyer alone: sellers, what is declared beforehand, and what
comes of it.

Everything but the sellers' reports travels in the address, so that a slider is a form like any
other and every page can be reloaded. Nothing but reports and public numbers is read. What was
bought becomes grants after one more question.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.errors import SottovoceError
from sottovoce.market import Frontier, Point, SellerLoss
from sottovoce.market.allocation import TRUTH_SENTENCES
from sottovoce.market.market import MAX_EPSILON
from sottovoce.market.prior import HIGHEST_PRICE
from sottovoce.market.terms import (
    FROM_FILE,
    LAW_KINDS,
    LOSS_FILE,
    MarketTerms,
    Sellers,
    parse_law,
    parse_loss,
    read_sellers,
)
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
from sottovoce.web.layout import download, get_workspace, mark_trusted, redirect, render
from sottovoce.web.question_form import Fields
from sottovoce.web.uploads import save_table
from sottovoce.web.workspace import Workspace

#: The slider: so many steps to either side, each a twentieth of a power of ten.
SLIDER_STEPS = 30
STEPS_PER_DECADE = 20
#: Sellers that may be typed in by hand, and letters of all their lines; more come in a file.
MOST_TYPED = 200
LETTERS = 20_000
#: Beyond this no amount of money and no cost is meant.
LARGEST = HIGHEST_PRICE
#: The largest number of features, and bound on coefficients, that somebody may mean.
MOST_FEATURES = 100_000
LARGEST_NORM = 1e6
#: Letters of a loss: some two hundred points.
MAX_LOSS_LENGTH = 4_000
#: The column of costs in the table of an earlier market.
EARLIER_COLUMN = "cost"
#: What the form begins with.
DEFAULTS = {
    "prior": "uniform",
    "by": "budget",
    "slide": "0",
    "rule": "ceiling",
    "cap": "1",
    "features": "10",
    "norm": "1",
    "loss": "linear",
    "seller": "seller",
    "cost": "cost",
}
LAW_CHOICES = (
    ("uniform", "uniform: all equally likely"),
    ("normal", "normal: around a mean"),
    ("exponential", "exponential: with a scale"),
    ("lognormal", "lognormal: around a median"),
    (FROM_FILE, "as in an earlier market"),
)
BUDGET_CHOICES = (("budget", "a budget, paid at most"), ("trade_off", "γ, the worth of money"))
RULE_CHOICES = (
    ("ceiling", "ceiling: a limit on all ε"),
    ("scaling", "scaling: sales are shrunk"),
)
#: What the template of the form offers to choose from.
FORM_CHOICES = {
    "BUDGET_CHOICES": BUDGET_CHOICES,
    "LAW_CHOICES": LAW_CHOICES,
    "RULE_CHOICES": RULE_CHOICES,
    "SLIDER_STEPS": SLIDER_STEPS,
}
#: The fields of the form by the parameters of the library that they set.
FIELDS_OF_PARAMETERS = {
    "budget": "amount",
    "cap": "cap",
    "caps": "cost",
    "coin": "coin",
    "column": "cost",
    "cost_range": "low",
    "costs": "cost",
    "deviation": "deviation",
    "dimension": "features",
    "features": "features",
    "loss": "loss",
    "mean": "middle",
    "median": "middle",
    "mu": "mu",
    "norm": "norm",
    "prior.parameters": "middle",
    "prior": "prior",
    "reserve": "reserve",
    "rule": "rule",
    "scale": "middle",
    "seller": "seller",
    "sellers": "cost",
    "sigma": "sigma",
    "trade_off": "amount",
}


@dataclass(frozen=True)
class MarketForm:
    """Terms with the slider in its middle, where it is, and where the reports are."""

    table: str
    columns: tuple[str, str]
    terms: MarketTerms
    slide: int

    def at(self, slide: int) -> MarketTerms:
        """The terms with the budget, or the worth of money, moved by so many steps."""
        if self.terms.budget is None:
            moved = "trade_off"
        else:
            moved = "budget"
        return replace(
            self.terms, **{moved: getattr(self.terms, moved) * 10.0 ** (slide / STEPS_PER_DECADE)}
        )

    def read_reports(self, workspace: Workspace) -> Sellers:
        """Reads the sellers' names, costs and caps, once while the slider moves."""
        path = str(workspace.get_table(self.table).path)
        read = workspace.get_cached(
            ("sellers", self.table, self.columns), lambda: read_sellers(path, *self.columns, None)
        )
        reports: Sellers = read
        return reports


def read_market_form(workspace: Workspace, fields: Fields) -> MarketForm | None:
    """Reads the form; None where something is missing or wrong, which is among the complaints
    then.
    """
    table = fields.choice("table", workspace.tables)
    columns = [
        fields.choice(name, workspace.tables[table].columns if table else ())
        for name in ("seller", "cost")
    ]
    terms = _read_terms(workspace, fields)
    slide = fields.number("slide", least=-SLIDER_STEPS, most=SLIDER_STEPS)
    if terms is None or fields.complaints or table is None or slide is None:
        return None
    return MarketForm(table, (str(columns[0]), str(columns[1])), terms, int(slide))


def _read_terms(workspace: Workspace, fields: Fields) -> MarketTerms | None:
    prior = _read_prior(workspace, fields)
    by = fields.choice("by", [key for key, _ in BUDGET_CHOICES])
    numbers: dict[str, Any] = {
        str(by): fields.number("amount", least=0, most=LARGEST, above=True),
        "cap": fields.number("cap", least=0, most=MAX_EPSILON, above=True),
        "features": int(fields.number("features", least=1, most=MOST_FEATURES) or 1),
        "norm": fields.number("norm", least=0, most=LARGEST_NORM, above=True),
        "coin": fields.number("coin", needed=False, least=0, most=LARGEST, above=True),
        "reserve": fields.number("reserve", needed=False, least=0, most=LARGEST, above=True),
        "mu": fields.number("mu", needed=False, least=0, most=LARGEST, above=True),
        "sigma": fields.number("sigma", needed=False, least=0, most=LARGEST, above=True),
        "loss": _read_loss(fields),
    }
    rule = fields.choice("rule", [key for key, _ in RULE_CHOICES])
    if by == "trade_off" and numbers["reserve"] is not None:
        fields.complain(
            "reserve", "A reserve price goes with a budget: leave it empty, or choose a budget."
        )
    if prior is None or fields.complaints:
        return None
    try:
        return MarketTerms(prior, rule=rule if by == "budget" else None, **numbers)
    except SottovoceError as error:
        fields.complain_about(error, FIELDS_OF_PARAMETERS)
    return None


def _read_loss(fields: Fields) -> Any:
    """Reads what a seller loses; a file is named at the terminal alone."""
    words = fields.text("loss", needed=False, longest=MAX_LOSS_LENGTH) or "linear"
    if words.partition(":")[0] == LOSS_FILE:
        fields.complain("loss", "Write the points themselves: piecewise:0.5:0.25:1:1.")
        return SellerLoss()
    try:
        return parse_loss(words)
    except SottovoceError as error:
        fields.complain_about(error, FIELDS_OF_PARAMETERS)
    return SellerLoss()


def _read_prior(workspace: Workspace, fields: Fields) -> Any:
    """Reads the law of costs, with those numbers that its kind needs, or the table of an earlier
    market.
    """
    kind = str(fields.choice("prior", (*LAW_KINDS, FROM_FILE)))
    if kind == FROM_FILE:
        return _read_earlier_prior(workspace, fields)
    low, high = (fields.number(end, least=0, most=LARGEST) for end in ("low", "high"))
    middle = fields.number(
        "middle", needed=kind in LAW_KINDS and kind != "uniform", least=0, most=LARGEST
    )
    deviation = fields.number(
        "deviation", needed=kind in ("normal", "lognormal"), least=0, most=LARGEST, above=True
    )
    if low is not None and high is not None and not low < high:
        fields.complain("high", "The highest cost lies above the lowest.")
    if fields.complaints:
        return None
    own = {"uniform": (), "exponential": (middle,)}.get(kind, (middle, deviation))
    try:
        return parse_law(":".join([kind, *(repr(number) for number in (*own, low, high))]), "", "")
    except SottovoceError as error:
        fields.complain_about(error, FIELDS_OF_PARAMETERS)
    return None


def _read_earlier_prior(workspace: Workspace, fields: Fields) -> Any:
    """Reads the costs of an earlier market, which lie in another table in the workspace."""
    earlier = fields.choice("earlier", workspace.tables)
    reports = workspace.tables.get(fields.get_typed("table"))
    if earlier is None or reports is None:
        return None
    words = f"{FROM_FILE}:{workspace.get_table(earlier).path}"
    paid = str(reports.path)
    try:
        return workspace.get_cached(
            ("earlier", words, paid), lambda: parse_law(words, paid, EARLIER_COLUMN)
        )
    except SottovoceError as error:
        fields.complain_about(error, {"prior": "earlier"})
    return None


def read_typed_sellers(fields: Fields) -> io.BytesIO | None:
    """Returns typed lines as a CSV file; a line that cannot be read is named by its number."""
    text = fields.get_typed("typed")
    lines = [
        [cell.strip() for cell in line] for line in csv.reader(text[:LETTERS].splitlines()) if line
    ]
    wrong = [
        number for number, line in enumerate(lines, 1) if len(line) not in (2, 3) or not all(line)
    ]
    if not lines:
        fields.complain("file", "Choose a file, or type reports below.")
    elif len(lines) > MOST_TYPED or len(text) > LETTERS:
        fields.complain("typed", f"At most {MOST_TYPED} lines can be typed: send more as a file.")
    elif wrong:
        fields.complain(
            "typed", f"Line {wrong[0]} is not a name and a cost, or a name, a cost and a cap."
        )
    elif len(set(map(len, lines))) > 1:
        fields.complain(
            "typed", "Some lines have a cap and some have none: write it in all, or in none."
        )
    if fields.complaints:
        return None
    written = io.StringIO()
    csv.writer(written).writerows([["seller", "cost", "cap"][: len(lines[0])], *lines])
    return io.BytesIO(written.getvalue().encode())


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
    return "typed", "sellers.csv", read_typed_sellers(fields)


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
        key = fields.text("sale_key", needed=False)
        money = fields.text("money", needed=False) or ""
        if not fields.complaints:
            session = get_workspace(request).session
            await _run_or_complain(
                fields, "sure", lambda: session.record_sale(outcome.deal, key=key, money=money)
            )
        if not fields.complaints:
            return redirect("/ledger", granted="yes")
    return _render_confirmation(request, fields, outcome)


def _render_confirmation(request: Request, fields: Fields, outcome: MarketOutcome) -> Response:
    own = ("sure", "sale_key", "money")
    said = {name: value for name, value in fields.form.items() if name not in own}
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
        typed={**DEFAULTS, **fields.form},
        complaints=fields.complaints,
        tables=[(name, held.name) for name, held in workspace.tables.items()],
        chosen=chosen,
        columns=[(name, name) for name in chosen.columns] if chosen else [],
        form=FORM_CHOICES,
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
    asked = read_market_form(workspace, fields)
    if asked is None:
        return None
    return _allocate(workspace, fields, asked)


def _allocate(workspace: Workspace, fields: Fields, asked: MarketForm) -> MarketOutcome | None:
    try:
        reports = asked.read_reports(workspace)
        terms = asked.at(asked.slide)
        return MarketOutcome(terms, reports, terms.allocate(reports))
    except SottovoceError as error:
        fields.complain_about(error, FIELDS_OF_PARAMETERS)
    return None


def _draw_outcome(workspace: Workspace, fields: Fields) -> dict[str, Any] | None:
    """Returns what is shown of an outcome: sentences, pictures, tables."""
    asked = read_market_form(workspace, fields)
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
