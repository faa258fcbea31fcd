# SPDX-License-Identifier: Apache-2.0
"""The outcome of a market as people and programs are told it: in sentences, as CSV and as JSON.

Money is written exactly, to the last coin, so that what is listed adds up to what is called the total. Everything
here follows from reports and public numbers; of reports, only ``published`` tells no more than sums and counts.
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
from typing import Any

import numpy as np

from sottovoce.market import Allocation
from sottovoce.pages.market_terms import Sellers, Terms

FORMAT, PUBLISHED = "sottovoce.market/1", "sottovoce.market.published/1"
#: Lines of the table by price; bands of ε in what is published, as parts of the cap.
LINES, BANDS = 8, 10
#: Digits that hold every amount of whole coins.
DIGITS = 60
#: What a spreadsheet may take for a formula, also behind apostrophes: one apostrophe more can always be taken off.
FORMULA = r"'*[=+\-@\t\r]"
#: What is a plain number after all.
NUMBER = r"^[+\-]?[0-9]+([.][0-9]+)?$"
NOT_PROTECTED = (
    "Reported costs are not protected by differential privacy: whoever sees what a seller is paid, or how much is "
    "bought from them, can infer what they reported."
)

SUMS_TELL = (
    "These sums and counts follow from reported costs and are not protected by differential privacy: with few sellers "
    "they tell much about each."
)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was declared, who reported, and what came of it."""

    terms: Terms
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
        parts = [part for part in np.array_split(np.arange(len(self.deal.prices)), LINES) if len(part)]
        return [(f"up to {plain(self.deal.prices.values[p[-1]])}", np.isin(self.deal.step, p)) for p in parts]

    def lines(self) -> list[list[str]]:
        """Returns a line for each range of prices: who is there, from how many is bought, ε, and what is paid."""
        above = [("above all prices", self.deal.refused)] if self.deal.refused.any() else []
        everybody = ("together", np.ones(len(self.deal.step), dtype=bool))
        return [self._make_line(name, here) for name, here in (*self.bands(), *above, everybody)]

    def _make_line(self, name: str, here: Any) -> list[str]:
        sold, paid = self.deal.units[here], self.coins[here]
        return [name, f"{len(sold):,}", f"{(sold > 0).sum():,}", in_epsilon(sold.sum()), self.format_money(paid.sum())]


#: What the columns of ``Outcome.lines`` are called.
HEADS = ["reported cost", "sellers", "bought from", "ε in all", "paid in all"]


def in_epsilon(units: Any) -> str:
    """Returns billionths as ε, exactly."""
    return f"{Decimal(int(units)).scaleb(-9).normalize():f}"


def plain(amount: float) -> str:
    """Returns six digits of an amount, without a power of ten."""
    return f"{Decimal(f'{amount:.6g}'):f}"


def headline(outcome: Outcome) -> str:
    """Returns the outcome in one sentence."""
    sold = outcome.deal.units
    return (
        f"Bought ε = {in_epsilon(sold.sum())} in all from {(sold > 0).sum():,} of {len(sold):,} sellers, "
        f"for {outcome.format_money(outcome.coins.sum())}"
    )


def sentences(outcome: Outcome) -> list[str]:
    """Returns what came of the budget and of reports, one sentence or two a line."""
    terms, deal = outcome.terms, outcome.deal
    refused, below = int(deal.refused.sum()), int((outcome.sellers.costs < terms.prior.low).sum())
    idle = int(((deal.units == 0) & ~deal.refused).sum())
    lines = []
    if deal.budget is not None:
        left = outcome.format_money(deal.budget - int(outcome.coins.sum()))
        lines.append(f"Budget {terms.budget:.15g}, kept by the rule {deal.rule}: {left} is left unspent.")
    if deal.units.any():
        lines.append(f"Bound on what sampling and noise add to the error: {deal.expected_error:.3g}.")
    else:
        lines.append("Nothing is bought: a larger --budget, a smaller --trade-off or a finer --coin would change that.")
    if refused:
        lines.append(f"Reports above all prices: {refused:,}. Nothing is bought from them, and they should be told so.")
    if idle:
        lines.append(
            f"Reports in the range that sell nothing all the same: {idle:,}. Others sell for less, or a cap is 0."
        )
    if below:
        lines.append(f"Reports below the range of the prior: {below:,}. They are treated like the lowest price.")
    return lines


def declared(outcome: Outcome) -> str:
    """Returns what was fixed before reports, as one sentence."""
    terms, own = outcome.terms, outcome.sellers.caps is not None
    reserve = "" if terms.reserve is None else f"nothing above a price of {terms.reserve:g}; "
    meant = f" ({terms.worth * terms.budget:g} for the whole budget)" if terms.budget is not None else ""
    return (
        f"Declared beforehand: {_law(terms)}; money is worth an error of {terms.worth:g} a unit{meant}; "
        f"{reserve}at most ε = {terms.cap:g} from anybody{' and what they allow themselves' if own else ''}; "
        f"a model of {terms.features:,} features with coefficients no longer than {terms.norm:g}; "
        f"coins of {outcome.format_money(1)}."
    )


def allocation_csv(outcome: Outcome, head: str) -> str:
    """Returns one line a seller, in the order of reports: name, ε, payment and, where they report one, their limit."""
    columns = {
        head: map(guarded, outcome.sellers.names),
        "epsilon": _spelt(outcome.deal.units, in_epsilon),
        "payment": _spelt(outcome.coins, outcome.format_money),
    }
    if outcome.sellers.caps is not None:
        columns["cap"] = _spelt(outcome.terms.compute_limits(outcome.sellers), lambda cap: f"{cap:.15g}")
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(map(guarded, columns))
    lines.writerows(zip(*columns.values(), strict=True))
    return written.getvalue()


def _spelt(amounts: Any, spell: Callable[[Any], str]) -> Iterator[str]:
    """Spells every amount; many sellers are alike, and each amount is spelt once."""
    distinct, which = np.unique(amounts, return_inverse=True)
    told = [spell(amount) for amount in distinct.tolist()]
    return (told[place] for place in which.tolist())


def guarded(name: str) -> str:
    """Returns a name that no spreadsheet takes for a formula: with one apostrophe more, where it begins like one.

    Where a name begins with apostrophes and then like a formula, taking one off gives back what was reported.
    """
    return f"'{name}" if re.match(FORMULA, name) and not re.match(NUMBER, name) else name


def to_json(outcome: Outcome) -> str:
    """Returns everything, seller by seller with their exact names, as JSON text."""
    refused, payments = outcome.deal.refused.tolist(), outcome.deal.payments.tolist()
    each = zip(outcome.sellers.names, outcome.deal.epsilon.tolist(), payments, refused, strict=True)
    heads = ("seller", "epsilon", "payment", "above_all_prices")
    return _text({**_sums(outcome), "format": FORMAT, "allocation": [dict(zip(heads, e, strict=True)) for e in each]})


def published(outcome: Outcome) -> str:
    """Returns what sellers and the public must know to check the rules, and of reports only sums and counts."""
    edges = np.linspace(0, outcome.terms.cap, BANDS + 1)
    sold = outcome.deal.epsilon[outcome.deal.units > 0]
    counts = np.bincount(np.searchsorted(edges[1:-1], sold), minlength=BANDS).tolist()
    bands = [
        {"above": float(f"{low:.9g}"), "up_to": float(f"{high:.9g}"), "sellers": count}
        for low, high, count in zip(edges, edges[1:], counts, strict=False)
    ]
    return _text({**_sums(outcome), "caution": SUMS_TELL, "epsilon_bands": bands})


def _sums(outcome: Outcome) -> dict[str, Any]:
    terms, deal = outcome.terms, outcome.deal
    return {
        "format": PUBLISHED,
        "caution": NOT_PROTECTED,
        "prior": _law(terms),
        "prices": {"number": len(deal.prices), "highest": float(deal.prices.values[-1])},
        "trade_off": terms.worth,
        "error_bound": {"mu": deal.buyer.mu, "sigma": deal.buyer.sigma, "features": terms.features, "norm": terms.norm},
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


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _law(terms: Terms) -> str:
    law = terms.prior
    numbers = "" if law.kind == "empirical" else "".join(f"{number:g}, " for number in law.parameters)
    seen = f" of {len(law.parameters):,} costs seen before" if law.kind == "empirical" else ""
    return f"{law.kind}{seen} ({numbers}from {law.low:g} to {law.high:g})"
