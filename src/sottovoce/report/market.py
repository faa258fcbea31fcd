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
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from html import escape
from string import Template
from typing import Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.market import Allocation, Frontier
from sottovoce.market.allocation import TRUTH_SENTENCES
from sottovoce.market.terms import MarketTerms, Sellers
from sottovoce.report.html import make_page, make_stamp, make_table

#: The picture in its own units: margins, a panel's field, and the distance from one panel to the
#: next.
LEFT = 70
WIDE = 540
HIGH = 120
ABOVE = 34
NEXT = 174
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
            f"{p.trade_off:.4g}",
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
        frontier=frontier.svg(),
        points=make_table(["trade-off", "error bound", "payment", "total ε"], points),
        why="\n".join(f"<p>{escape(line)}</p>" for line in TRUTH_SENTENCES),
        caution=escape(NOT_PROTECTED),
    )
    return make_page(
        "For the buyer alone: whose privacy is bought", body, style=_STYLE, private=True
    )


def draw_market(outcome: MarketOutcome) -> str:
    """Returns three panels over the same axis of reported costs: sellers, ε bought from each,
    payment to each.
    """
    deal = outcome.deal
    costs = outcome.sellers.costs
    sells = ~deal.refused
    across = _scale_costs(np.clip(costs[sells], *_find_cost_range(outcome)), outcome)
    parts = [
        *_draw_sellers(outcome, across),
        *_draw_axis(1, float(deal.epsilon.max()), "ε bought from each"),
        *_draw_dots(1, across, deal.epsilon[sells], float(deal.epsilon.max()), "own"),
        *_draw_axis(2, float(deal.payments.max()), "paid to each; grey: what it costs them"),
        *_draw_dots(2, across, (deal.epsilon * costs)[sells], float(deal.payments.max()), "other"),
        *_draw_dots(2, across, deal.payments[sells], float(deal.payments.max()), "own"),
        *_draw_cost_axis(outcome),
    ]
    title = "Sellers, ε bought from each and payment to each, by reported cost"
    return (
        f'<svg class="who" viewBox="0 0 {LEFT + WIDE + 80} {ABOVE + 2 * NEXT + HIGH + 56}" '
        'role="img" '
        f'xmlns="http://www.w3.org/2000/svg" aria-label="{escape(title)}">\n'
        + "\n".join(parts)
        + "\n</svg>"
    )


def _find_cost_range(outcome: MarketOutcome) -> tuple[float, float]:
    return outcome.terms.prior.low, float(outcome.deal.prices.values[-1])


def _scale_costs(costs: Floats, outcome: MarketOutcome) -> Floats:
    low, high = _find_cost_range(outcome)
    return np.asarray(LEFT + WIDE * (costs - low) / (high - low))


def _find_bottom(panel: int) -> float:
    return ABOVE + panel * NEXT + HIGH


def _draw_sellers(outcome: MarketOutcome, across: Floats) -> list[str]:
    """Bars of sellers: from whom something is bought, and on top from whom nothing is; beyond all
    prices, apart.
    """
    deal, sells = outcome.deal, ~outcome.deal.refused
    bought = deal.units[sells] > 0
    edges = np.linspace(LEFT, LEFT + WIDE, BARS + 1)
    own, other = (np.histogram(across[which], edges)[0] for which in (bought, ~bought))
    beyond = int(deal.refused.sum())
    tallest = max(int((own + other).max()), beyond, 1)
    wide = WIDE / BARS - 1
    bars = [
        _draw_bar(x, wide, 0, n / tallest, "own") for x, n in zip(edges, own.tolist(), strict=False)
    ]
    bars += [
        _draw_bar(x, wide, n / tallest, m / tallest, "other")
        for x, n, m in zip(edges, own.tolist(), other.tolist(), strict=False)
    ]
    if beyond:
        right = LEFT + WIDE + 20
        bars += [
            _draw_bar(right, wide, 0, beyond / tallest, "other"),
            _draw_text(right - 4, _find_bottom(0) + 18, "above", "start"),
        ]
    return [
        *_draw_axis(0, tallest, "sellers; grey: nothing is bought from them"),
        *(bar for bar in bars if bar),
    ]


def _draw_bar(x: float, wide: float, below: float, share: float, kind: str) -> str:
    top = _find_bottom(0) - HIGH * (below + share)
    shape = f'x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{HIGH * share:.1f}"'
    if share:
        return f'<rect class="{kind}" {shape}/>'
    return ""


def _draw_dots(panel: int, across: Floats, amounts: Floats, most: float, kind: str) -> list[str]:
    if not most:
        return []
    steps = np.rint(amounts / most * STEPS) * (HIGH / STEPS)
    places = np.unique(np.column_stack([np.rint(across), _find_bottom(panel) - steps]), axis=0)
    return [
        f'<circle class="{kind}" cx="{x:.0f}" cy="{y:.1f}" r="2.5"/>' for x, y in places.tolist()
    ]


def _draw_axis(panel: int, most: float, words: str) -> list[str]:
    """The frame of a panel: what it shows, and its largest number at the height where it lies."""
    bottom = _find_bottom(panel)
    line = f'<line x1="{LEFT}" x2="{LEFT + WIDE}" y1="{bottom}" y2="{bottom}"/>'
    if isinstance(most, int):
        told = f"{most:,}"
    else:
        told = f"{most:.3g}"
    if most:
        shown = [
            _draw_text(LEFT - 8, bottom - HIGH + 5, told, "end"),
            _draw_text(LEFT - 8, bottom + 5, "0", "end"),
        ]
    else:
        shown = []
    return [line, *shown, _draw_text(LEFT, bottom - HIGH - 14, words, "start")]


def _draw_cost_axis(outcome: MarketOutcome) -> list[str]:
    low, high = _find_cost_range(outcome)
    ticks: list[Any] = [low, (low + high) / 2, high]
    places = zip(ticks, _scale_costs(np.array(ticks), outcome).tolist(), strict=True)
    bottom = _find_bottom(2)
    words = _draw_text(LEFT + WIDE / 2, bottom + 46, "reported cost of a unit of ε", "middle")
    return [*(_draw_text(x, bottom + 22, f"{value:.3g}", "middle") for value, x in places), words]


def _draw_text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


#: The picture's part of the style sheet.
MARKET_STYLE = """\
svg.who { font: 14px Georgia, "Times New Roman", serif; }
svg.who text { fill: var(--soft); }
svg.who line { stroke: var(--line); }
svg.who .own { fill: var(--own); }
svg.who .other { fill: var(--other); }
"""

_STYLE = f"""\
th:first-child {{ white-space: nowrap; }}
{MARKET_STYLE}"""

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
over all laws of the data: good for comparing, and often above 1. A trade-off is chosen before
reports are seen; one that follows them invites lies.</p>
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
#: What a spreadsheet may take for a formula, also behind apostrophes: one apostrophe more can
#: always be taken off.
FORMULA_PATTERN = r"'*[=+\-@\t\r]"
#: What is a plain number after all.
NUMBER_PATTERN = r"^[+\-]?[0-9]+([.][0-9]+)?$"
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
            format_epsilon(sold.sum()),
            self.format_money(paid.sum()),
        ]


#: What the columns of ``Outcome.lines`` are called.
OUTCOME_HEADS = ["reported cost", "sellers", "bought from", "ε in all", "paid in all"]


def format_epsilon(units: Any) -> str:
    """Returns billionths as ε, exactly."""
    return f"{Decimal(int(units)).scaleb(-9).normalize():f}"


def format_amount(amount: float) -> str:
    """Returns six digits of an amount, without a power of ten."""
    return f"{Decimal(f'{amount:.6g}'):f}"


def make_market_headline(outcome: MarketOutcome) -> str:
    """Returns the outcome in one sentence."""
    sold = outcome.deal.units
    return (
        f"Bought ε = {format_epsilon(sold.sum())} in all from {(sold > 0).sum():,} of "
        f"{len(sold):,} sellers, for {outcome.format_money(outcome.coins.sum())}"
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
        left = outcome.format_money(deal.budget - int(outcome.coins.sum()))
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
    return (
        f"Declared beforehand: {_describe_law(terms)}; money is worth an error of {terms.worth:g} "
        f"a unit{meant}; {reserve}at most ε = {terms.cap:g} from "
        f"anybody{' and what they allow themselves' if own else ''}; a model of {terms.features:,} "
        f"features with coefficients no longer than {terms.norm:g}; coins of "
        f"{outcome.format_money(1)}."
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


def guard_formula(name: str) -> str:
    """Returns a name that no spreadsheet takes for a formula: with one apostrophe more, where it
    begins like one.

    Where a name begins with apostrophes and then like a formula, taking one off gives back what was
    reported.
    """
    if re.match(FORMULA_PATTERN, name) and not re.match(NUMBER_PATTERN, name):
        return f"'{name}"
    return name


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
