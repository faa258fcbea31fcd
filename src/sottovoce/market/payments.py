# SPDX-License-Identifier: Apache-2.0
"""What a seller would sell at every price of the list, and the payment that makes the truth the best report.

    u_l   = what is bought from the seller at price g_l, the others' reports as they are; then max over prices ≥ g_l
    t(k)  = g_k·u_k + Σ_{l>k} (g_l − g_{l−1})·u_l                              (docs/theory/market.md, Theorem 3)

u is in whole billionths of ε and g in whole multiples of a power of two, so t is an exact whole number; it is rounded
up to a coin once, at the very end. Sellers of one type (class and price) are alike, and computed once.

    symbol   name
    u        Curves.units      type × price; nonincreasing along prices by construction
    V        value             of the buyer's problem at one total, concave and nondecreasing in one seller's Ψ
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.market import rule
from sottovoce.market.prior import Prices
from sottovoce.market.rule import Asked, Buyer, Deals, Floats, Supply, Whole

#: Problems that are looked at, and that are solved, side by side.
LOOKED, SOLVED = 2**21, 2**18


@dataclass(frozen=True, eq=False)
class Types:
    """Sellers who are alike: of one class, at one price."""

    whose: Whole
    price: Whole
    count: Whole

    @classmethod
    def of(cls, counts: Whole) -> Types:
        """Returns the types that there are, class by class and price by price."""
        whose, price = np.nonzero(counts)
        return cls(whose, price, counts[whose, price])

    def __len__(self) -> int:
        return len(self.whose)

    def at(self, which: Any) -> Types:
        """Returns some of the types."""
        return Types(self.whose[which], self.price[which], self.count[which])


@dataclass(frozen=True, eq=False)
class Curves:
    """What each type would sell at each price, and the total that is bought then."""

    units: Whole
    total: Floats  # 0 where it was not asked for


def base(supply: Supply, buyer: Buyer, totals: Floats) -> Deals:
    """Returns the buyer's problem at every total that limits allow."""
    return rule.solve(supply, buyer, Asked(supply.select_reachable(buyer, totals)))


def curves(supply: Supply, buyer: Buyer, deals: Deals, types: Types, tops: Whole, whole: bool = False) -> Curves:
    """Returns what each type sells at prices from its own on (all prices, if ``whole``), nonincreasing.

    ``tops`` is the number of prices that a class may be paid. A type that sells nothing at its own price sells
    nothing at a higher one.
    """
    steps = supply.psi.shape[1]
    found = Curves(np.zeros((len(types), steps), dtype=np.int64), np.zeros((len(types), steps)))
    best = deals.at(np.array([np.argmin(deals.value)]))
    active = np.flatnonzero(deals_at(supply, buyer, best, types)[:, 0] >= 1)
    if len(active) and not whole:
        deals = deals.at(_promising(supply, buyer, deals, best, types.at(active), tops))
    block = max(1, LOOKED // (steps * len(deals.value)))
    for begin in range(0, len(active), block):
        which = active[begin : begin + block]
        _explored(supply, buyer, deals, types.at(which), tops, whole, found, which)
    return Curves(falling(found.units), found.total)


def falling(curves: Whole) -> Whole:
    """Returns the largest sale at a price or a higher one: no error of a solver can make it rise with the price."""
    return np.maximum.accumulate(curves[:, ::-1], axis=1)[:, ::-1]


def deals_at(supply: Supply, buyer: Buyer, deals: Deals, types: Types) -> Floats:
    """Returns what each type sells at each total, in billionths."""
    psi, caps = supply.psi[types.whose, types.price], supply.caps[types.whose]
    return deals.compute_sales(psi[:, None], rule.limits(buyer, caps[:, None], deals.asked.eta))


def _promising(supply: Supply, buyer: Buyer, deals: Deals, best: Deals, types: Types, tops: Whole) -> NDArray[np.bool_]:
    """Returns the totals that may be best whichever seller moves to their highest price, and to whichever price."""
    climb = supply.psi[types.whose, tops[types.whose] - 1] - supply.psi[types.whose, types.price]
    dearer = climb * deals_at(supply, buyer, best, types)[:, 0] * (buyer.trade_off * supply.unit / units.NANO)
    return np.asarray(deals.value <= (best.value[0] + dearer.max()) * (1 + rule.TINY))


def _explored(
    supply: Supply, buyer: Buyer, deals: Deals, types: Types, tops: Whole, whole: bool, found: Curves, which: Any
) -> None:
    """Fills in the curves of some types: only totals that may be best at a price are solved at that price."""
    eta, steps = deals.asked.eta, supply.psi.shape[1]
    psi = supply.psi[types.whose].astype(np.float64)
    last = tops[types.whose] - 1
    first = np.zeros_like(last) if whole else types.price
    lower = _ends(supply, buyer, eta, types, psi, first) if whole else _as_they_are(supply, buyer, deals, types)
    upper = _ends(supply, buyer, eta, types, psi, last)
    here = (np.arange(steps) >= first[:, None]) & (np.arange(steps) <= last[:, None])
    t, e, price = np.nonzero(_worth_solving(supply, buyer, psi, first, last, lower, upper) & here[:, None, :])
    value, sold = np.full((len(types), len(eta), steps), np.inf), np.zeros((len(types), len(eta), steps))
    for part in np.array_split(np.arange(len(t)), len(t) // SOLVED + 1):
        i, j, k = t[part], e[part], price[part]
        asked = Asked(eta[j], types.whose[i], psi[i, types.price[i]], psi[i, k])
        solved = rule.solve(supply, buyer, asked, (upper.tau[i, j], upper.beta[i, j]))
        value[i, j, k] = solved.value
        sold[i, j, k] = solved.compute_sales(psi[i, k], rule.limits(buyer, supply.caps[types.whose[i]], eta[j]))
    best = np.argmin(value, axis=1)  # the first of equals, hence the smallest total
    rows, columns = np.ogrid[: len(types), :steps]
    found.units[which] = np.where(here, np.floor(sold[rows, best, columns]), 0.0).astype(np.int64)
    found.total[which] = np.where(here, eta[best], 0.0)


@dataclass(frozen=True, eq=False)
class _Ends:
    """One end of the prices that are looked at, type × total."""

    value: Floats
    sold: Floats
    tau: Floats
    beta: Floats


def _as_they_are(supply: Supply, buyer: Buyer, deals: Deals, types: Types) -> _Ends:
    shape = (len(types), len(deals.value))
    same = (np.broadcast_to(a, shape) for a in (deals.value, deals.tau, deals.beta))
    value, tau, beta = same
    return _Ends(value, deals_at(supply, buyer, deals, types), tau, beta)


def _ends(supply: Supply, buyer: Buyer, eta: Floats, types: Types, psi: Floats, price: Whole) -> _Ends:
    """Solves every total with the seller moved to one price."""
    size, rows = (len(types), len(eta)), np.arange(len(types))
    i = np.repeat(rows, len(eta))
    to = psi[rows, price][i]
    asked = Asked(np.tile(eta, len(types)), types.whose[i], psi[rows, types.price][i], to)
    solved = rule.solve(supply, buyer, asked)
    sold = solved.compute_sales(to, rule.limits(buyer, supply.caps[types.whose[i]], asked.eta))
    return _Ends(*(a.reshape(size) for a in (solved.value, sold, solved.tau, solved.beta)))


def _worth_solving(
    supply: Supply, buyer: Buyer, psi: Floats, first: Whole, last: Whole, lower: _Ends, upper: _Ends
) -> NDArray[np.bool_]:
    """Returns type × total × price: whether the total may be best there.

    At a fixed total V is concave and nondecreasing in the seller's ψ with slope γ·unit·ε: it lies above its chord,
    and below its tangent at the lower end and its value at the upper.
    """
    rows = np.arange(len(psi))
    begin, end = psi[rows, first], psi[rows, last]
    ahead = psi - begin[:, None]
    along = np.clip(ahead / np.maximum(end - begin, 1.0)[:, None], 0.0, 1.0)
    rise = (upper.value - lower.value)[:, :, None]
    slope = (buyer.trade_off * supply.unit / units.NANO) * lower.sold[:, :, None]
    tangent = lower.value[:, :, None] + slope * np.maximum(ahead, 0.0)[:, None, :]
    least = np.minimum(tangent, upper.value[:, :, None]).min(axis=1, keepdims=True)
    chord = lower.value[:, :, None] + rise * along[:, None, :]
    return np.asarray(chord <= least * (1 + rule.TINY))


def exact(prices: Prices, curve: Whole, step: Whole) -> list[int]:
    """Returns t of each row of curves at its own price, in billionths of the prices' power of two."""
    rises = np.diff(prices.whole, prepend=0)
    rises = np.where(np.arange(len(prices)) > step[:, None], rises, 0)
    own = prices.whole[step] * curve[np.arange(len(step)), step]
    return [int(t) for t in own + (rises * curve).sum(axis=1)]


def in_coins(prices: Prices, amounts: list[int], coin: Fraction) -> NDArray[np.int64]:
    """Returns amounts of ``exact`` in coins, each rounded up."""
    rate = Fraction(2) ** prices.exponent / units.NANO / coin
    return np.array([-(-t * rate.numerator // rate.denominator) for t in amounts], dtype=np.int64)
