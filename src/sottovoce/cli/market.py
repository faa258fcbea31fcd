# SPDX-License-Identifier: Apache-2.0
"""`sottovoce market`: how much ε to buy from whom, at payments nobody gains by lying about, before any data is read.

It reads reports and public numbers alone. Files are whole or not there; those that show payments are for their owner.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli import words
from sottovoce.cli.voice import console, hand_over, plainly, say

if TYPE_CHECKING:
    from sottovoce.pages.market_told import Outcome

UNSAFE, SAFE = "for you alone, because it shows what sellers are paid", "nobody's name or report is in it"


@plainly()
@words.reads_text
def market(
    sellers: Annotated[
        str,
        typer.Argument(metavar="SELLERS", help="CSV or Parquet, a line for each seller: seller, cost and perhaps cap."),
    ],
    text: Any,
    prior: Annotated[
        str | None,
        typer.Option(
            metavar="LAW",
            help="What is known about costs before anybody reports: uniform:low:high, "
            "normal:mean:deviation:low:high, exponential:scale:low:high, lognormal:median:deviation:low:high, "
            "or empirical:FILE with public costs of an earlier market. Needed.",
        ),
    ] = None,
    budget: Annotated[float | None, typer.Option(help="The most that all sellers together may be paid.")] = None,
    trade_off: Annotated[
        float | None,
        typer.Option(help="How much error a unit of money is worth; with a budget, 0.1/budget if not given."),
    ] = None,
    rule: Annotated[str | None, typer.Option(help="How the budget is kept: ceiling (if not given) or scaling.")] = None,
    reserve: Annotated[
        float | None, typer.Option(help="With a budget: a public price above which nothing is bought.")
    ] = None,
    cap: Annotated[
        float, typer.Option(help="The most ε that is bought from anybody; a seller's own cap may be less.")
    ] = 1.0,
    features: Annotated[int, typer.Option(help="How many features the model will have.")] = 10,
    norm: Annotated[float, typer.Option(help="A public bound on the length of its coefficients.")] = 1.0,
    coin: Annotated[
        float | None, typer.Option(help="The smallest amount of money, such as 0.01; very fine if not given.")
    ] = None,
    seller_column: Annotated[str, typer.Option(help="The column of sellers.")] = "seller",
    cost_column: Annotated[str, typer.Option(help="The column of reported costs of a unit of ε.")] = "cost",
    cap_column: Annotated[
        str | None, typer.Option(help="The column of sellers' own caps (if not given: cap, where there is one).")
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(metavar="SELLER", help="Say why this seller is paid this, and why no lie would have paid."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write everything to standard output as JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="The CSV file to write: seller, epsilon, payment.")] = None,
    page: Annotated[
        Path | None, typer.Option(help="The HTML page to write, with pictures, for the buyer alone.")
    ] = None,
    publish: Annotated[
        Path | None,
        typer.Option(help="The JSON file to write with what must be published: no report, and nobody's name."),
    ] = None,
    force: words.Force = False,
) -> None:
    """Decide whose privacy to buy, how much of it, and what to pay, so that nobody gains by lying.

    Nothing but reports and public numbers is read. Reported costs are not protected by differential privacy.
    """
    from sottovoce.cli.files import write_whole
    from sottovoce.cli.progress import RowsDone
    from sottovoce.pages.market_terms import Terms, law, read_sellers
    from sottovoce.pages.market_told import Outcome

    _refuse_name(seller_column)
    files = {"out": out, "page": page, "publish": publish}
    known = law(_needed(prior), sellers, cost_column, text)
    _refuse_places({name: path for name, path in files.items() if path is not None}, sellers, _needed(prior), force)
    terms = Terms(known, trade_off, budget, rule, reserve, cap, features, norm, coin)
    with RowsDone(console(stderr=True), ("Reading reports",)) as watch:
        reports = read_sellers(sellers, seller_column, cost_column, cap_column, watch, text)
    if explain is not None:
        reports.find_seller(explain)  # a name that is not there is refused before anything is written
    with patiently("Looking for the best allocation"):
        outcome = Outcome(terms, reports, terms.allocate(reports))
    contents = _contents(outcome, seller_column, files)
    written = {write_whole(path, text, force=force, public=path == publish): path for path, text in contents.items()}
    _tell(outcome, explain, as_json)
    for place, path in written.items():
        say(f"Written to {place}: {SAFE if path == publish else UNSAFE}.", stderr=True)


def _tell(outcome: Outcome, seller: str | None, as_json: bool) -> None:
    from sottovoce.cli.market_case import explain, show, tried
    from sottovoce.pages.market_told import to_json

    if as_json:
        hand_over(to_json(outcome))
    if seller is not None:
        with patiently("Trying what lies would bring"):
            reports = tried(outcome, seller)
        explain(outcome, seller, reports, stderr=as_json)
    elif not as_json:
        show(outcome)


def _contents(outcome: Outcome, head: str, files: dict[str, Path | None]) -> dict[Path, str]:
    """Returns what is to be written where; all of it is made before any of it is written."""
    from sottovoce.pages.market_page import page
    from sottovoce.pages.market_told import allocation_csv, published

    made = {}
    with patiently("Making the files"):
        if (path := files["out"]) is not None:
            made[path] = allocation_csv(outcome, head)
        if (path := files["page"]) is not None:
            made[path] = page(outcome, outcome.terms.frontier(outcome.sellers))
        if (path := files["publish"]) is not None:
            made[path] = published(outcome)
    return made


@contextmanager
def patiently(text: str) -> Iterator[None]:
    """Says at a terminal what is going on, once it has taken as long as a bar would wait."""
    from sottovoce.cli.progress import PATIENCE

    shown = console(stderr=True)
    status = shown.status(f"{text} …")
    timer = threading.Timer(PATIENCE, status.start)
    if shown.is_interactive:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()  # it may be starting the status just now
        status.stop()


def _needed(prior: str | None) -> str:
    from sottovoce.errors import InvalidParameter

    if prior is None:
        raise InvalidParameter(
            "No prior is given.",
            "What costs can be must be known before anybody reports.",
            "Pass --prior from public knowledge, such as uniform:1:5; never from the reports.",
        )
    return prior


def _refuse_name(seller_column: str) -> None:
    from sottovoce.errors import InvalidParameter

    if seller_column in ("epsilon", "payment", "cap"):
        raise InvalidParameter(
            f"The column of sellers is called {seller_column!r}.",
            "So is a new column of the allocation.",
            "Rename it, for instance to seller.",
        )


def _refuse_places(files: dict[str, Path], sellers: str, prior: str, force: bool) -> None:
    from sottovoce.cli.files import refuse_unwritable
    from sottovoce.errors import InvalidParameter

    for name, path in files.items():
        try:
            refuse_unwritable(path, sellers, prior.partition(":")[2], force=force, public=name == "publish")
            refused = None
        except InvalidParameter as error:
            refused = error
        if refused is not None:
            raise type(refused)(refused.found.replace("--out", f"--{name}"), refused.required, refused.remedy)
    if len({path.resolve() for path in files.values()}) < len(files):
        raise InvalidParameter("One file is named for two purposes.", "", "Name different files.")
