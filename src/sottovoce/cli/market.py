# SPDX-License-Identifier: Apache-2.0
"""`sottovoce market`: how much ε to buy from whom, at payments nobody gains by lying about, before
any data is read.

It reads reports and public numbers alone. Files are whole or not there; those that show payments
are for their owner.

A market at the terminal: all of it, and one seller's case: why they are paid this, and what lies
would have brought.

Lies are not argued away but tried out: the market is settled again with that one report changed,
and what a lie would have left the seller is told whichever way it falls.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli import options
from sottovoce.cli.console import (
    echo,
    exit_on_error,
    format_bars,
    get_console,
    make_table,
    write_stdout,
)

if TYPE_CHECKING:
    from sottovoce.market import Tuning
    from sottovoce.market.terms import MarketTerms
    from sottovoce.report.market import MarketOutcome

PRIVATE_NOTE = "for you alone, because it shows what sellers are paid"
PUBLIC_NOTE = "nobody's name or report is in it"


@exit_on_error()
@options.add_text_options
def market(
    sellers: Annotated[
        str,
        typer.Argument(
            metavar="SELLERS",
            help="CSV or Parquet, a line for each seller: seller, cost and perhaps cap.",
        ),
    ],
    text: Any,
    prior: Annotated[
        str | None,
        typer.Option(
            metavar="LAW",
            help="What is known about costs before anybody reports: uniform:low:high, "
            "normal:mean:deviation:low:high, exponential:scale:low:high, "
            "lognormal:median:deviation:low:high, "
            "or empirical:FILE with public costs of an earlier market. Needed.",
        ),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="The most that all sellers together may be paid.")
    ] = None,
    trade_off: Annotated[
        float | None,
        typer.Option(
            help="How much error a unit of money is worth; with a budget, 0.1/budget if not given."
        ),
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="How the budget is kept: ceiling (if not given) or scaling.")
    ] = None,
    reserve: Annotated[
        float | None,
        typer.Option(help="With a budget: a public price above which nothing is bought."),
    ] = None,
    cap: Annotated[
        float,
        typer.Option(
            help="The most ε that is bought from anybody; a seller's own cap may be less."
        ),
    ] = 1.0,
    features: Annotated[int, typer.Option(help="How many features the model will have.")] = 10,
    norm: Annotated[
        float, typer.Option(help="A public bound on the length of its coefficients.")
    ] = 1.0,
    mu: Annotated[
        float | None,
        typer.Option(help="μ of the bound on the error; if not given, from --features and --norm."),
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(help="σ of the bound on the error; if not given, from --features and --norm."),
    ] = None,
    loss: Annotated[
        str,
        typer.Option(
            metavar="LOSS",
            help="What a seller loses by selling ε, in units of their cost: linear, "
            "power:exponent, exponential:rate, piecewise:ε:loss:ε:loss…, or table:FILE with the "
            "columns epsilon and loss.",
        ),
    ] = "linear",
    tune: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="A table of public rows, of people who need no protection: μ, σ and λ are chosen "
            "on them, before reports are read. Needs --schema.",
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="With --tune: a TOML file with the label and the features."),
    ] = None,
    tuned_schema: Annotated[
        Path | None,
        typer.Option(
            help="With --tune: the TOML file to write, with ranges as narrow as the public rows "
            "say, for the release."
        ),
    ] = None,
    coin: Annotated[
        float | None,
        typer.Option(help="The smallest amount of money, such as 0.01; very fine if not given."),
    ] = None,
    seller_column: Annotated[str, typer.Option(help="The column of sellers.")] = "seller",
    cost_column: Annotated[
        str, typer.Option(help="The column of reported costs of a unit of ε.")
    ] = "cost",
    cap_column: Annotated[
        str | None,
        typer.Option(
            help="The column of sellers' own caps (if not given: cap, where there is one)."
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(
            metavar="SELLER",
            help="Say why this seller is paid this, and why no lie would have paid.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write everything to standard output as JSON.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The CSV file to write: seller, epsilon, payment.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="The HTML page to write, with pictures, for the buyer alone."),
    ] = None,
    publish: Annotated[
        Path | None,
        typer.Option(
            help="The JSON file to write with what must be published: no report, and nobody's name."
        ),
    ] = None,
    force: options.Force = False,
) -> None:
    """Decide whose privacy to buy, how much of it, and what to pay, so that nobody gains by lying.

    Nothing but reports and public numbers is read. Reported costs are not protected by differential
    privacy.
    """
    from sottovoce.cli.console import RowProgress, write_file
    from sottovoce.market.terms import MarketTerms, parse_law, parse_loss, read_sellers
    from sottovoce.report.market import MarketOutcome

    _refuse_name(seller_column)
    files = {"out": out, "page": page, "publish": publish, "tuned-schema": tuned_schema}
    known = parse_law(_require_prior(prior), sellers, cost_column, text)
    _refuse_places(
        {name: path for name, path in files.items() if path is not None},
        sellers,
        _require_prior(prior),
        force,
    )
    terms = MarketTerms(
        known,
        trade_off,
        budget,
        rule,
        reserve,
        cap,
        features,
        norm,
        coin,
        mu,
        sigma,
        parse_loss(loss, text),
    )
    with RowProgress(get_console(stderr=True), ("Reading reports",)) as watch:
        reports = read_sellers(sellers, seller_column, cost_column, cap_column, watch, text)
    terms, tuned = _tune_terms(terms, len(reports.names), sellers, tune, schema, text)
    if explain is not None:
        reports.find_seller(
            explain
        )  # a name that is not there is refused before anything is written
    with status_after_delay("Looking for the best allocation"):
        outcome = MarketOutcome(terms, reports, terms.allocate(reports))
    contents = _make_contents(outcome, seller_column, files)
    if tuned_schema is not None:
        contents[tuned_schema] = _write_tuned_schema(tuned, schema)
    written = {
        write_file(path, text, force=force, public=path in (publish, tuned_schema)): path
        for path, text in contents.items()
    }
    if tuned is not None:
        echo(describe_tuning(tuned), stderr=as_json)
    _show_outcome(outcome, explain, as_json)
    for place, path in written.items():
        public = path in (publish, tuned_schema)
        echo(f"Written to {place}: {PUBLIC_NOTE if public else PRIVATE_NOTE}.", stderr=True)


def describe_tuning(tuned: Tuning) -> str:
    """Says what was chosen on public rows, and how it is passed on."""
    options = f"--mu {tuned.mu:g} --sigma {tuned.sigma:g}"
    if tuned.alpha is None:
        model = "without --alpha"
    else:
        model = f"with --alpha {tuned.alpha:g}"
    return f"{tuned.describe()}\nThe same again: {options}. For the release: {model}."


def _tune_terms(
    terms: MarketTerms,
    sellers: int,
    reports: str,
    public: str | None,
    schema: Path | None,
    text: Any,
) -> tuple[MarketTerms, Tuning | None]:
    """Returns the terms with μ and σ from public rows, if there are any; of reports only their
    number counts.
    """
    from sottovoce.cli.release import read_public_rows
    from sottovoce.data.source import DataSource
    from sottovoce.errors import InvalidParameter
    from sottovoce.market import tune

    if public is None and schema is None:
        return terms, None
    if public is None or schema is None or terms.mu is not None or terms.sigma is not None:
        raise InvalidParameter(
            "Public rows come without a schema, or with constants that they would choose.",
            "--tune chooses μ and σ on rows that --schema describes.",
            "Pass --tune and --schema, without --mu and --sigma.",
            parameter="tune",
        )
    said = DataSource(reports, schema=schema, epsilon=1.0, text=text).for_classification()
    features, classes = read_public_rows(said, public)
    with status_after_delay("Trying constants on public rows"):
        tuned = tune(
            features,
            classes,
            bounds=said.require_features(),
            sellers=sellers,
            prior=terms.prior,
            trade_off=terms.worth,
            budget=terms.budget,
            rule=terms.rule or "ceiling",
            reserve=terms.reserve,
            cap=terms.cap,
            loss=terms.loss,
        )
    return replace(terms, mu=tuned.mu, sigma=tuned.sigma), tuned


def _write_tuned_schema(tuned: Tuning | None, schema: Path | None) -> str:
    """Returns the schema with the ranges that were chosen."""
    from sottovoce.errors import InvalidParameter
    from sottovoce.schema import Schema
    from sottovoce.web.question_form import write_toml

    if tuned is None or schema is None or not isinstance(tuned.bounds, Schema):
        raise InvalidParameter(
            "There are no public rows that ranges could follow.",
            "",
            "Pass --tune, or leave --tuned-schema out.",
            parameter="tuned_schema",
        )
    whole = Schema.load(schema)
    return write_toml(replace(whole, columns={**whole.columns, **tuned.bounds.columns}))


def _show_outcome(outcome: MarketOutcome, seller: str | None, as_json: bool) -> None:
    from sottovoce.report.market import make_outcome_json

    if as_json:
        write_stdout(make_outcome_json(outcome))
    if seller is not None:
        with status_after_delay("Trying what lies would bring"):
            reports = try_misreports(outcome, seller)
        explain_seller(outcome, seller, reports, stderr=as_json)
    elif not as_json:
        show_market(outcome)


def _make_contents(
    outcome: MarketOutcome, head: str, files: dict[str, Path | None]
) -> dict[Path, str]:
    """Returns what is to be written where; all of it is made before any of it is written."""
    from sottovoce.report.market import make_allocation_csv, make_market_page, make_published_json

    made = {}
    with status_after_delay("Making the files"):
        if (path := files["out"]) is not None:
            made[path] = make_allocation_csv(outcome, head)
        if (path := files["page"]) is not None:
            made[path] = make_market_page(outcome, outcome.terms.frontier(outcome.sellers))
        if (path := files["publish"]) is not None:
            made[path] = make_published_json(outcome)
    return made


@contextmanager
def status_after_delay(text: str) -> Iterator[None]:
    """Says at a terminal what is going on, once it has taken as long as a bar would wait."""
    from sottovoce.cli.console import PROGRESS_DELAY

    shown = get_console(stderr=True)
    status = shown.status(f"{text} …")
    timer = threading.Timer(PROGRESS_DELAY, status.start)
    if shown.is_interactive:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()  # it may be starting the status just now
        status.stop()


def _require_prior(prior: str | None) -> str:
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
            parameter="seller_column",
        )


def _refuse_places(files: dict[str, Path], sellers: str, prior: str, force: bool) -> None:
    from sottovoce.cli.console import refuse_unwritable
    from sottovoce.errors import InvalidParameter

    for name, path in files.items():
        refuse_unwritable(
            path,
            sellers,
            prior.partition(":")[2],
            force=force,
            public=name in ("publish", "tuned-schema"),
            option=f"--{name}",
        )
    if len({path.resolve() for path in files.values()}) < len(files):
        raise InvalidParameter("One file is named for two purposes.", "", "Name different files.")


def show_market(outcome: MarketOutcome) -> None:
    """Prints the outcome: who sells how much at which prices, and what it adds up to."""
    from sottovoce.report.market import (
        NOT_PROTECTED,
        OUTCOME_HEADS,
        describe_terms,
        explain_outcome,
        make_market_headline,
    )

    deal = outcome.deal
    echo(make_market_headline(outcome), style="bold")
    get_console().print(make_table(OUTCOME_HEADS, outcome.lines(), words=1))
    if deal.units.any():
        averages = {
            name: float(deal.epsilon[here].mean())
            for name, here in outcome.bands()
            if deal.units[here].any()
        }
        echo("\nε bought from each, on average:\n" + format_bars(averages))
    echo("\n" + "\n".join([*explain_outcome(outcome), describe_terms(outcome), NOT_PROTECTED]))


def try_misreports(outcome: MarketOutcome, seller: str) -> list[Misreport]:
    """Returns what the truth brings a seller, and what lies would have brought them: the market is
    settled again.
    """
    place = outcome.sellers.find_seller(seller)
    return [
        Misreport.of(outcome, place, name, report)
        for name, report in _choose_reports(outcome, place)
    ]


def explain_seller(
    outcome: MarketOutcome, seller: str, reports: Sequence[Misreport], *, stderr: bool = False
) -> None:
    """Prints why a seller is paid this, and why the lies that were tried would not have paid."""
    from sottovoce.report.market import format_amount

    truth, *lies = reports
    echo(
        f"{seller} reported {format_amount(truth.report)} for a unit of "
        f"{outcome.deal.loss.describe()}. "
        f"{outcome.deal.explain(seller)}",
        stderr=stderr,
    )
    echo(f"\nTried out, if {format_amount(truth.report)} is what it costs them:", stderr=stderr)
    heads = ["report", "", "ε bought", "paid", "costs them", "left to keep"]
    get_console(stderr=stderr).print(
        make_table(heads, [report.line() for report in reports], words=1)
    )
    echo(
        "\n".join(["", *(lie.compare_with_truth(truth, float(outcome.deal.coin)) for lie in lies)]),
        stderr=stderr,
    )


@dataclass(frozen=True)
class Misreport:
    """What a seller gets for a report, everybody else's as it is; ``cost`` is what ε really costs
    them.
    """

    name: str
    report: float
    cost: float
    epsilon: float
    loss: float  # u(ε): what is lost for each unit of the cost
    paid: float

    @classmethod
    def of(cls, outcome: MarketOutcome, place: int, name: str, report: float) -> Misreport:
        """Settles the market with this one report changed."""
        costs = outcome.sellers.costs.copy()
        cost = float(costs[place])
        costs[place] = report
        told = cost == report
        if told:
            deal = outcome.deal
        else:
            deal = outcome.terms.allocate(replace(outcome.sellers, costs=costs))
        own = (float(column[place]) for column in (deal.epsilon, deal.losses, deal.payments))
        return cls(name, report, cost, *own)

    @property
    def surplus(self) -> float:
        """What is paid beyond the cost."""
        return self.paid - self.cost * self.loss

    def line(self) -> list[str]:
        """Returns the line of a table."""
        from sottovoce.report.market import format_amount

        amounts = (self.report, self.epsilon, self.paid, self.cost * self.loss, self.surplus)
        return [self.name, *map(format_amount, amounts)]

    def compare_with_truth(self, truth: Misreport, coin: float) -> str:
        """Says what the lie would have changed; payments are whole coins, so less than a coin is no
        difference.
        """
        from sottovoce.report.market import format_amount

        more = self.surplus - truth.surplus
        if abs(more) < coin:
            return (
                f"Reporting {format_amount(self.report)} would have left them as much as the truth."
            )
        return (
            f"Reporting {format_amount(self.report)} would have left them "
            f"{format_amount(abs(more))} {'less' if more < 0 else 'more'}."
        )


def _choose_reports(outcome: MarketOutcome, place: int) -> list[tuple[str, float]]:
    """Returns the truth and, on either side of it where there is room, a lie: half way to the end
    of the prices.
    """
    truth = float(outcome.sellers.costs[place])
    low = outcome.terms.prior.low
    high, first = (float(outcome.deal.prices.values[end]) for end in (-1, 0))
    lies = [("the truth", truth)]
    if truth < high:
        lies.append(("a higher one", (truth + high) / 2))
    if truth > first:
        lies.append(("a lower one", (truth + low) / 2 if outcome.deal.units[place] else first))
    return lies
