# SPDX-License-Identifier: Apache-2.0
"""A market at the terminal: all of it, and one seller's case: why they are paid this, and what lies would have brought.

Lies are not argued away but tried out: the market is settled again with that one report changed, and what a lie
would have left the seller is told whichever way it falls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sottovoce.cli.pictures import bars, table
from sottovoce.cli.voice import console, say
from sottovoce.pages.market_told import HEADS, NOT_PROTECTED, Outcome, declared, headline, plain, sentences


def show(outcome: Outcome) -> None:
    """Prints the outcome: who sells how much at which prices, and what it adds up to."""
    deal = outcome.deal
    say(headline(outcome), style="bold")
    console().print(table(HEADS, outcome.lines(), words=1))
    if deal.units.any():
        averages = {name: float(deal.epsilon[here].mean()) for name, here in outcome.bands() if deal.units[here].any()}
        say("\nε bought from each, on average:\n" + bars(averages))
    say("\n" + "\n".join([*sentences(outcome), declared(outcome), NOT_PROTECTED]))


def tried(outcome: Outcome, seller: str) -> list[Tried]:
    """Returns what the truth brings a seller, and what lies would have brought them: the market is settled again."""
    place = outcome.sellers.find_seller(seller)
    return [Tried.of(outcome, place, name, report) for name, report in _reports(outcome, place)]


def explain(outcome: Outcome, seller: str, reports: Sequence[Tried], *, stderr: bool = False) -> None:
    """Prints why a seller is paid this, and why the lies that were tried would not have paid."""
    truth, *lies = reports
    say(f"{seller} reported {plain(truth.report)} for a unit of ε. {outcome.deal.explain(seller)}", stderr=stderr)
    say(f"\nTried out, if {plain(truth.report)} is what it costs them:", stderr=stderr)
    heads = ["report", "", "ε bought", "paid", "costs them", "left to keep"]
    console(stderr=stderr).print(table(heads, [report.line() for report in reports], words=1))
    say("\n".join(["", *(lie.compare_with_truth(truth, float(outcome.deal.coin)) for lie in lies)]), stderr=stderr)


@dataclass(frozen=True)
class Tried:
    """What a seller gets for a report, everybody else's as it is; ``cost`` is what ε really costs them."""

    name: str
    report: float
    cost: float
    epsilon: float
    paid: float

    @classmethod
    def of(cls, outcome: Outcome, place: int, name: str, report: float) -> Tried:
        """Settles the market with this one report changed."""
        costs = outcome.sellers.costs.copy()
        cost, costs[place] = float(costs[place]), report
        told = cost == report
        deal = outcome.deal if told else outcome.terms.allocate(replace(outcome.sellers, costs=costs))
        return cls(name, report, cost, float(deal.epsilon[place]), float(deal.payments[place]))

    @property
    def surplus(self) -> float:
        """What is paid beyond the cost."""
        return self.paid - self.cost * self.epsilon

    def line(self) -> list[str]:
        """Returns the line of a table."""
        amounts = (self.report, self.epsilon, self.paid, self.cost * self.epsilon, self.surplus)
        return [self.name, *map(plain, amounts)]

    def compare_with_truth(self, truth: Tried, coin: float) -> str:
        """Says what the lie would have changed; payments are whole coins, so less than a coin is no difference."""
        more = self.surplus - truth.surplus
        if abs(more) < coin:
            return f"Reporting {plain(self.report)} would have left them as much as the truth."
        return (
            f"Reporting {plain(self.report)} would have left them {plain(abs(more))} {'less' if more < 0 else 'more'}."
        )


def _reports(outcome: Outcome, place: int) -> list[tuple[str, float]]:
    """Returns the truth and, on either side of it where there is room, a lie: half way to the end of the prices."""
    truth, low = float(outcome.sellers.costs[place]), outcome.terms.prior.low
    high, first = (float(outcome.deal.prices.values[end]) for end in (-1, 0))
    lies = [("the truth", truth)]
    if truth < high:
        lies.append(("a higher one", (truth + high) / 2))
    if truth > first:
        lies.append(("a lower one", (truth + low) / 2 if outcome.deal.units[place] else first))
    return lies
