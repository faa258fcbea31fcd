# SPDX-License-Identifier: Apache-2.0
"""Markets: time against CVXPY, the published algorithm and a sort, what lists of prices and totals
cost, what budgets spend, and what a market is worth on breast cancer.

CVXPY solves the problem at *one* total, without payments; ours solves it at every total and at
every price. The published algorithm solves the problem without limits and without payments, as
`sv.market.continuous` does.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from rich.table import Table
from timing import best_times, console, show, verdict

from sottovoce.market import Market, constants, continuous, optimiser
from sottovoce.papers import market_published

LOW = 1e-4
HIGH = 5e-4
MU, SIGMA = constants(31, norm=5.0)
#: The most that the list of prices and the grid of totals may cost, as a share of the value.
GAP = 1e-3
#: The same problem for both, with as many sellers as on breast cancer: μ, σ, γ; the published grid
#: and steps.
SELLERS = 455
SAME = (1.0, 8.0, 1.0)
GRID = np.geomspace(0.05, 2.0, 20)
GRADIENTS = 2000
#: The most of the published algorithm's time that ours may take.
FASTER = 0.01
#: Error + γ·payment that is to be reached within two standard errors, at γ = .1, 1 and 10.
TARGETS = {
    "certified, κ": (0.100, 0.126, 0.232),
    "certified, exact charge": (0.106, 0.153, 0.295),
    "as published, not private": (0.160, 0.316, 0.443),
}


def market(costs, **options) -> Market:
    return Market(
        costs, cost_range=(LOW, HIGH), **{"trade_off": 1.0, "mu": MU, "sigma": SIGMA, **options}
    )


def one_total_by_cvxpy(costs, eta):
    import cvxpy as cp

    a = cp.Variable(len(costs))
    value = MU * cp.norm(a) + eta * ((2 * costs - LOW) @ a)
    cp.Problem(cp.Minimize(value), [cp.sum(a) == 1, a >= 0, a <= 1 / eta]).solve(solver="CLARABEL")


def speed(sellers: int) -> None:
    rng = np.random.default_rng(0)
    costs = rng.uniform(LOW, HIGH, sellers)
    few = rng.uniform(LOW, HIGH, 5000)
    caps = rng.uniform(0.02, 2, 5000)
    tiers = rng.choice([0.1, 0.5, 1.0], 5000)
    times = best_times(
        {
            "CVXPY, 5,000 sellers, one total": lambda: one_total_by_cvxpy(few, 1000.0),
            "5,000 sellers, one cap": lambda: market(few).allocate(),
            "5,000 sellers, three caps": lambda: market(few, cap=tiers).allocate(),
            "5,000 sellers, all caps different": lambda: market(few, cap=caps).allocate(),
            f"sort of {sellers:,}": lambda: np.sort(costs),
            f"{sellers:,} sellers, one cap": lambda: market(costs).allocate(),
            f"{sellers:,} sellers, without payments": lambda: market(costs).allocate(pay=False),
        },
        rounds=2,
    )
    cvxpy = "CVXPY, 5,000 sellers, one total"
    sort = f"sort of {sellers:,}"
    promised = {
        "5,000 sellers, one cap": (cvxpy, 2.0),
        "5,000 sellers, three caps": (cvxpy, 10.0),
        f"{sellers:,} sellers, one cap": (sort, 15.0),
    }
    show("Markets, payments included", times, sort, promised)


def same_problem() -> None:
    """V = μ‖a‖ + σ/η + γη·Ψᵀa: projected gradient steps as published, without rows, against one
    sort.
    """
    virtual = 2 * np.random.default_rng(0).uniform(LOW, HIGH, SELLERS) - LOW
    mu, sigma, gamma = SAME
    problem = market_published.PublishedProblems(
        np.zeros((SELLERS, 1)), virtual[None], np.zeros((1, 1)), gamma, mu, sigma, 1.0
    )

    def published() -> float:
        deal = market_published.market_as_published_not_private(
            problem, GRID, np.zeros((1, 1)), steps=GRADIENTS
        )
        return float(deal.value[0]) - math.log(2)

    def ours() -> float:
        return continuous(virtual, mu, sigma, gamma)[1]

    times = best_times({"as published": published, "ours, exact": ours}, rounds=1)
    show(
        f"{SELLERS} sellers, the same objective",
        times,
        "as published",
        {"ours, exact": ("as published", FASTER)},
    )
    theirs = published()
    mine = ours()
    console.print(f"objective: as published {theirs:.4f}, ours {mine:.4f}", end=" ")
    console.print(verdict(mine, theirs))


def worth() -> None:
    table = Table(
        "",
        "γ",
        "error",
        "payment",
        "error + γ·payment",
        "± s.e.",
        "target",
        "",
        title="Breast cancer",
    )
    for one in market_published.measure_worth():
        targets = dict(
            zip(market_published.TRADE_OFFS, TARGETS.get(one.mechanism, ()), strict=False)
        )
        target = targets.get(one.trade_off)
        if target is None:
            told = ("", "")
        else:
            told = (f"{target}", verdict(one.overall - 2 * one.standard_error, target))
        numbers = one.error, one.payment, one.overall, one.standard_error
        table.add_row(
            one.mechanism, f"{one.trade_off:g}", *(f"{number:.3f}" for number in numbers), *told
        )
    console.print(table)


def gaps() -> None:
    table = Table(
        "sellers",
        "γ",
        "gap to all prices and totals",
        "",
        "largest ε without caps",
        title="What lists cost",
    )
    for sellers in (50, 400, 2000):
        for gamma in (0.1, 1.0, 10.0, 100.0):
            costs = np.random.default_rng(sellers).uniform(LOW, HIGH, sellers)
            gap = _gap(costs, gamma)
            uncapped = continuous(2 * costs - LOW, MU, SIGMA, gamma)[0].max()
            table.add_row(
                f"{sellers:,}", f"{gamma:g}", f"{gap:.1e}", verdict(gap, GAP), f"{uncapped:.3g}"
            )
    console.print(table)


def _gap(costs, gamma: float) -> float:
    """How far the market's value lies above the best with a price for every cost, and many more
    totals.
    """
    virtual = np.sort(2 * costs - LOW)[None]
    ones = np.ones((1, len(costs)), dtype=np.int64)
    supply = optimiser.Supply.of(virtual, np.array([1e9]), ones)
    buyer = optimiser.Buyer(MU, SIGMA, gamma)
    eta = supply.select_reachable(buyer, np.append(10 ** np.arange(-3, 4, 1e-3), len(costs)))
    best = optimiser.solve_subproblems(supply, buyer, optimiser.Subproblems(eta)).value.min()
    bought = market(costs, trade_off=gamma).allocate(pay=False).epsilon
    value = (MU * np.linalg.norm(bought) + SIGMA) / bought.sum() + gamma * (
        2 * costs - LOW
    ) @ bought
    return float(value / best - 1)


def budgets() -> None:
    table = Table(
        "sellers",
        "budget",
        "ceiling",
        "with reserve",
        "scaling",
        title="Share of the budget that is spent",
    )
    for sellers, prices in ((10, 16), (200, 128), (2000, 128)):
        one = market(np.random.default_rng(sellers).uniform(LOW, HIGH, sellers), prices=prices)
        for share in (0.1, 0.3, 0.6):
            budget = share * one.allocate().total
            deals = (
                one.within(budget),
                one.within(budget, reserve=3e-4),
                one.within(budget, rule="scaling"),
            )
            table.add_row(
                f"{sellers:,}",
                f"{share:.0%} of all",
                *(f"{deal.total / budget:.3f}" for deal in deals),
            )
    console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sellers", type=int, default=1_000_000)
    parser.add_argument(
        "--worth", action="store_true", help="breast cancer as well: a quarter of an hour"
    )
    chosen = parser.parse_args()
    speed(chosen.sellers)
    same_problem()
    gaps()
    budgets()
    if chosen.worth:
        worth()
