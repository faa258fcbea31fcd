# SPDX-License-Identifier: Apache-2.0
"""A market as one HTML file that needs nothing but itself: who is bought at which cost, ε and
payments in pictures.

It shows reports, which are not protected, so it is stamped as the buyer's own.

The outcome of a market as people and programs are told it: in sentences, as CSV and as JSON.

Money is written exactly, to the last coin, so that what is listed adds up to what is called the
total. Everything here follows from reports and public numbers; of reports, only ``published`` tells
no more than sums and counts.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from html import escape
from string import Template
from typing import Any

import numpy as np

from sottovoce.arrays import Floats, guard_formula
from sottovoce.market import Allocation, Frontier
from sottovoce.market.allocation import TRUTH_SENTENCES
from sottovoce.market.terms import MarketTerms, Sellers
from sottovoce.report.html import NAMES_STYLE, make_page, make_stamp, make_table
from sottovoce.svg import Axes, Picture
from sottovoce.units import format_count

#: Bars of the first panel; steps of ε or money that dots are rounded to, so that a million sellers
#: are few dots.
BARS = 32
STEPS = 60

FOR_WHOM = (
    "Reports, and payments that reveal them, are on this page. What may be published is a file of "
    "its own: sums, counts and rules, without reports and names."
)


def make_market_page(outcome: MarketOutcome, frontier: Frontier) -> str:
    """Returns the page: pictures, the table by price, totals, and what other trade-offs would have
    brought.
    """
    points = [
        [
            format_amount(p.trade_off),
            f"{p.expected_error:.4g}",
            format_amount(p.payment),
            format_amount(p.total_epsilon),
        ]
        for p in frontier
    ]
    body = _BODY.substitute(
        stamp=make_stamp("FOR THE BUYER ALONE", FOR_WHOM),
        headline=escape(make_market_headline(outcome)),
        declared=escape(describe_terms(outcome)),
        picture=draw_market(outcome),
        bands=make_table(OUTCOME_HEADS, outcome.lines()),
        sentences="\n".join(f"<p>{escape(line)}</p>" for line in explain_outcome(outcome)),
        frontier=frontier.svg(standalone=False),
        points=make_table(["trade-off", "error bound", "payment", "total ε"], points),
        why="\n".join(f"<p>{escape(line)}</p>" for line in TRUTH_SENTENCES),
        caution=escape(NOT_PROTECTED),
    )
    return make_page(
        "For the buyer alone: whose privacy is bought", body, style=NAMES_STYLE, private=True
    )


def draw_market(outcome: MarketOutcome) -> str:
    """Return three panels over the same axis of reported costs: sellers, ε bought from each,
    payment to each.
    """
    deal = outcome.deal
    sells = ~deal.refused
    costs = outcome.sellers.costs
    low = outcome.terms.prior.low
    high = float(deal.prices.values[-1])
    shown = np.clip(costs[sells], low, high)
    picture = Picture("panels", 480, 558)
    _draw_sellers(picture, _make_panel(0, (low, high)), shown, deal)
    panel = _make_panel(1, (low, high), float(deal.epsilon.max()))
    _label_panel(picture, panel, "ε bought from each")
    _draw_dots(picture, panel, shown, deal.epsilon[sells], "own")
    panel = _make_panel(2, (low, high), float(deal.payments.max()))
    _label_panel(picture, panel, "paid to each; grey: what it costs them")
    _draw_dots(picture, panel, shown, (deal.losses * costs)[sells], "other")
    _draw_dots(picture, panel, shown, deal.payments[sells], "own")
    ticks = {value: f"{value:.3g}" for value in (low, (low + high) / 2, high)}
    panel.draw_across(picture, ticks, f"reported cost of a unit of {deal.loss.describe()}")
    return picture.to_svg("Sellers, ε bought from each and payment to each, by reported cost")


def _make_panel(place: int, costs: tuple[float, float], most: float = 1.0) -> Axes:
    return Axes(60, 34 + 174 * place, 350, 120, costs, (0, most or 1.0))


def _label_panel(picture: Picture, panel: Axes, words: str) -> None:
    """Draw what a panel shows, and its largest number at the height where it lies."""
    most = panel.up[1]
    if isinstance(most, int):
        largest = f"{most:,}"
    else:
        largest = f"{most:.3g}"
    panel.draw_up(picture, {most: largest, 0: "0"}, words)


def _draw_sellers(picture: Picture, panel: Axes, costs: Floats, deal: Allocation) -> None:
    """Draw bars of sellers: from whom something is bought, and on top from whom nothing is; beyond
    all prices, apart.
    """
    bought = deal.units[~deal.refused] > 0
    edges = np.linspace(*panel.across, BARS + 1)
    own, other = (np.histogram(costs[which], edges)[0] for which in (bought, ~bought))
    beyond = int(deal.refused.sum())
    panel = replace(panel, up=(0, max(int((own + other).max()), beyond, 1)))
    _label_panel(picture, panel, "sellers; grey: nothing is bought from them")
    width = panel.width / BARS - 1
    bars = [
        *zip(panel.scale_x(edges[:-1]), np.zeros(BARS), own, ["own"] * BARS, strict=True),
        *zip(panel.scale_x(edges[:-1]), own, other, ["other"] * BARS, strict=True),
        (panel.right + 20, 0, beyond, "other"),
    ]
    for x, below, count, kind in bars:
        if count:
            top = panel.scale_y(below + count)
            picture.add_bar(x, top, width, panel.scale_y(below) - top, kind)
    if beyond:
        picture.add_text(panel.right + 16, panel.bottom + 13, "above")


def _draw_dots(picture: Picture, panel: Axes, costs: Floats, amounts: Floats, kind: str) -> None:
    if not amounts.any():
        return
    step = panel.up[1] / STEPS
    places = np.column_stack(
        [np.rint(panel.scale_x(costs)), panel.scale_y(np.rint(amounts / step) * step)]
    )
    for x, y in np.unique(places.round(1), axis=0).tolist():
        picture.add_dot(x, y, kind, 2.5)


_BODY = Template("""\
$stamp
<h1>Whose privacy is bought, and for how much</h1>
<p>$headline.</p>
<figure>
$picture
</figure>
$bands
$sentences
<p class="soft">$declared</p>
<h2>What a smaller error would have cost</h2>
<p class="soft">The same reports at other trade-offs, without a budget. The bound is a worst case
over all distributions of the data: good for comparing, and often above 1. A trade-off is chosen
before reports are seen; one that follows them invites lies.</p>
<figure>
$frontier
</figure>
$points
<h2>Why the truth pays best</h2>
<p>Each part of the ε that is bought from a seller is paid the highest price at which that part
would still have been bought from them. They cannot move these prices.</p>
$why
<h2>What is not protected</h2>
<p>$caution</p>""")


OUTCOME_FORMAT = "sottovoce.market/1"
PUBLISHED_FORMAT = "sottovoce.market.published/1"
#: Lines of the table by price; bands of ε in what is published, as parts of the cap.
LINES = 8
BANDS = 10
#: Digits that hold every amount of whole coins.
DIGITS = 60
NOT_PROTECTED = (
    "Reported costs are not protected by differential privacy: whoever sees what a seller is paid, "
    "or how much is bought from them, can infer what they reported."
)

SUMS_TELL = (
    "These sums and counts follow from reported costs and are not protected by differential "
    "privacy: with few sellers they tell much about each."
)


@dataclass(frozen=True, eq=False)
class MarketOutcome:
    """What was declared, who reported, and what came of it."""

    terms: MarketTerms
    sellers: Sellers
    deal: Allocation

    @property
    def coins(self) -> Any:
        """What each is paid, in coins."""
        coins: Any = self.deal.coins  # never None: a market that is told always pays
        return coins

    def format_money(self, coins: Any) -> str:
        """Returns an amount of coins, exactly."""
        with localcontext(prec=DIGITS):
            coin = Decimal(self.deal.coin.numerator) / Decimal(self.deal.coin.denominator)
            return f"{(int(coins) * coin).normalize():f}"

    def round_money(self, coins: Any) -> str:
        """Returns an amount for people: exactly where a coin was declared, else with as many
        decimals as give the total six digits. Files hold every coin.
        """
        exact = self.format_money(coins)
        if self.terms.coin is not None:
            return exact
        return _round_beside(exact, self.format_money(self.coins.sum()))

    def round_epsilon(self, units: Any) -> str:
        """Returns billionths as ε for people, with decimals that give the total six digits."""
        return _round_beside(format_epsilon(units), format_epsilon(self.deal.units.sum()))

    def bands(self) -> list[tuple[str, Any]]:
        """Returns ranges of prices, from the lowest, and who reported there."""
        parts = [
            part for part in np.array_split(np.arange(len(self.deal.prices)), LINES) if len(part)
        ]
        return [
            (f"up to {format_amount(self.deal.prices.values[p[-1]])}", np.isin(self.deal.step, p))
            for p in parts
        ]

    def lines(self) -> list[list[str]]:
        """Returns a line for each range of prices: who is there, from how many is bought, ε, and
        what is paid.
        """
        if self.deal.refused.any():
            above = [("above all prices", self.deal.refused)]
        else:
            above = []
        everybody = ("together", np.ones(len(self.deal.step), dtype=bool))
        return [self._make_line(name, here) for name, here in (*self.bands(), *above, everybody)]

    def _make_line(self, name: str, here: Any) -> list[str]:
        sold = self.deal.units[here]
        paid = self.coins[here]
        return [
            name,
            f"{len(sold):,}",
            f"{(sold > 0).sum():,}",
            self.round_epsilon(sold.sum()),
            self.round_money(paid.sum()),
        ]


#: What the columns of ``Outcome.lines`` are called.
OUTCOME_HEADS = ["reported cost", "sellers", "bought from", "ε in all", "paid in all"]


def format_epsilon(units: Any) -> str:
    """Returns billionths as ε, exactly."""
    return f"{Decimal(int(units)).scaleb(-9).normalize():f}"


def _round_beside(amount: str, total: str) -> str:
    """Returns an amount with the decimals that give the total six digits, without zeros at its end.

    >>> _round_beside("29.017233129", "199.99998985"), _round_beside("199.99998985", "199.99998985")
    ('29.017', '200')
    """
    largest = Decimal(total)
    if not largest:
        return amount
    decimals = max(5 - largest.adjusted(), 0)
    rounded = f"{Decimal(amount):.{decimals}f}"
    return f"{Decimal(rounded).normalize():f}"


def format_amount(amount: float) -> str:
    """Returns six digits of an amount, without a power of ten."""
    return f"{Decimal(f'{amount:.6g}'):f}"


def make_market_headline(outcome: MarketOutcome) -> str:
    """Returns the outcome in one sentence."""
    sold = outcome.deal.units
    return (
        f"Bought ε = {outcome.round_epsilon(sold.sum())} in all from "
        f"{(sold > 0).sum():,} of {format_count(len(sold), 'seller')}, for "
        f"{outcome.round_money(outcome.coins.sum())}"
    )


def explain_outcome(outcome: MarketOutcome) -> list[str]:
    """Returns what came of the budget and of reports, one sentence or two a line."""
    terms = outcome.terms
    deal = outcome.deal
    refused = int(deal.refused.sum())
    below = int((outcome.sellers.costs < terms.prior.low).sum())
    idle = int(((deal.units == 0) & ~deal.refused).sum())
    lines = []
    if deal.budget is not None:
        left = outcome.round_money(deal.budget - int(outcome.coins.sum()))
        lines.append(
            f"Budget {terms.budget:.15g}, kept by the rule {deal.rule}: {left} is left unspent."
        )
    if deal.units.any():
        lines.append(
            f"Bound on what sampling and noise add to the error: {deal.expected_error:.3g}."
        )
    else:
        lines.append(
            "Nothing is bought: a larger budget, a smaller trade-off or a finer coin would change "
            "that."
        )
    if refused:
        lines.append(
            f"Reports above all prices: {refused:,}. Nothing is bought from them, and they "
            "should be told so."
        )
    if idle:
        lines.append(
            f"Reports in the range that sell nothing all the same: {idle:,}. Others sell for "
            "less, or a cap is 0."
        )
    if below:
        lines.append(
            f"Reports below the range of the prior: {below:,}. They are treated like the lowest "
            "price."
        )
    return lines


def describe_terms(outcome: MarketOutcome) -> str:
    """Returns what was fixed before reports, as one sentence."""
    terms = outcome.terms
    own = outcome.sellers.caps is not None
    if terms.reserve is None:
        reserve = ""
    else:
        reserve = f"nothing above a price of {terms.reserve:g}; "
    if terms.budget is not None:
        meant = f" ({terms.worth * terms.budget:g} for the whole budget)"
    else:
        meant = ""
    if terms.loss.is_linear:
        lost = ""
    else:
        lost = f"selling ε costs u(ε) = {terms.loss.describe()} times what is reported; "
    if terms.mu is None and terms.sigma is None:
        model = (
            f"a model of {terms.features:,} features with coefficients no longer than "
            f"{terms.norm:g}"
        )
    else:
        mu, sigma = (outcome.deal.buyer.mu, outcome.deal.buyer.sigma)
        model = f"a bound on the error with μ = {mu:g} and σ = {sigma:g}"
    return (
        f"Declared beforehand: {_describe_law(terms)}; {lost}money is worth an error of "
        f"{terms.worth:g} a unit{meant}; {reserve}at most ε = {terms.cap:g} from "
        f"anybody{' and what they allow themselves' if own else ''}; {model}; payments in steps "
        f"of {outcome.format_money(1)}."
    )


def make_allocation_csv(outcome: MarketOutcome, head: str) -> str:
    """Returns one line a seller, in the order of reports: name, ε, payment and, where they report
    one, their limit.
    """
    columns = {
        head: map(guard_formula, outcome.sellers.names),
        "epsilon": _spell_amounts(outcome.deal.units, format_epsilon),
        "payment": _spell_amounts(outcome.coins, outcome.format_money),
    }
    if outcome.sellers.caps is not None:
        columns["cap"] = _spell_amounts(
            outcome.terms.compute_limits(outcome.sellers), lambda cap: f"{cap:.15g}"
        )
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(map(guard_formula, columns))
    lines.writerows(zip(*columns.values(), strict=True))
    return written.getvalue()


def _spell_amounts(amounts: Any, spell: Callable[[Any], str]) -> Iterator[str]:
    """Spells every amount; many sellers are alike, and each amount is spelt once."""
    distinct, which = np.unique(amounts, return_inverse=True)
    told = [spell(amount) for amount in distinct.tolist()]
    return (told[place] for place in which.tolist())


def make_outcome_json(outcome: MarketOutcome) -> str:
    """Returns everything, seller by seller with their exact names, as JSON text."""
    refused = outcome.deal.refused.tolist()
    payments = outcome.deal.payments.tolist()
    each = zip(outcome.sellers.names, outcome.deal.epsilon.tolist(), payments, refused, strict=True)
    heads = ("seller", "epsilon", "payment", "above_all_prices")
    return _dump_json(
        {
            **_collect_sums(outcome),
            "format": OUTCOME_FORMAT,
            "allocation": [dict(zip(heads, e, strict=True)) for e in each],
        }
    )


def make_published_json(outcome: MarketOutcome) -> str:
    """Returns what sellers and the public must know to check the rules, and of reports only sums
    and counts.
    """
    edges = np.linspace(0, outcome.terms.cap, BANDS + 1)
    sold = outcome.deal.epsilon[outcome.deal.units > 0]
    counts = np.bincount(np.searchsorted(edges[1:-1], sold), minlength=BANDS).tolist()
    bands = [
        {"above": float(f"{low:.9g}"), "up_to": float(f"{high:.9g}"), "sellers": count}
        for low, high, count in zip(edges, edges[1:], counts, strict=False)
    ]
    return _dump_json({**_collect_sums(outcome), "caution": SUMS_TELL, "epsilon_bands": bands})


def _collect_sums(outcome: MarketOutcome) -> dict[str, Any]:
    terms = outcome.terms
    deal = outcome.deal
    return {
        "format": PUBLISHED_FORMAT,
        "caution": NOT_PROTECTED,
        "prior": _describe_law(terms),
        "prices": {"number": len(deal.prices), "highest": float(deal.prices.values[-1])},
        "trade_off": terms.worth,
        "error_bound": {
            "mu": deal.buyer.mu,
            "sigma": deal.buyer.sigma,
            "features": terms.features,
            "norm": terms.norm,
        },
        "loss": {"kind": terms.loss.kind, "parameters": list(terms.loss.parameters)},
        "cap": terms.cap,
        "coin": float(deal.coin),
        "rule": deal.rule,
        "budget": terms.budget,
        "reserve": terms.reserve,
        "unspent": deal.unspent,
        "sellers": len(deal.units),
        "bought_from": int((deal.units > 0).sum()),
        "above_all_prices": int(deal.refused.sum()),
        "total_epsilon": deal.total_epsilon,
        "total_paid": deal.total,
        "expected_error": deal.expected_error if math.isfinite(deal.expected_error) else None,
    }


def _dump_json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _describe_law(terms: MarketTerms) -> str:
    law = terms.prior
    if law.kind == "empirical":
        numbers = ""
    else:
        numbers = "".join(f"{number:g}, " for number in law.parameters)
    if law.kind == "empirical":
        seen = f" of {len(law.parameters):,} costs seen before"
    else:
        seen = ""
    return f"{law.kind}{seen} ({numbers}from {law.low:g} to {law.high:g})"
