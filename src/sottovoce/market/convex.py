# SPDX-License-Identifier: Apache-2.0
"""What would be bought at every price from a seller whose loss is convex, the others' reports as
they are.

The rule (docs/theory/market.md, Theorem 8) minimises over ε with 0 ≤ ε_i ≤ b_i, and over points
(η, ν) of a public grid with Σε = η,

    (μ/2η)·(‖ε‖²/ν + ν) + σ/η + γ·Σ Ψ_i·u(ε_i)

which is μ‖ε‖/η + σ/η + γ·ΣΨu(ε) at the best ν, up to the step of the grid. At a point,
ε_i = s(τ) with (μ/ην)·s + γΨ_i·u'(s) = τ, and τ follows from Σε = η. What a seller would sell at a
price is computed from the others' reports and that price alone: the same numbers come whatever the
seller reports, and a running maximum makes them fall with the price by construction.

    symbol   name
    η, ν     Points.eta, Points.nu
    b'       Points.level     with a ceiling: nobody sells more, so that Σu ≤ (η/b')·u(b')
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce import units
from sottovoce.arrays import Floats
from sottovoce.market.loss import SellerLoss
from sottovoce.market.optimiser import Buyer, Supply, Whole

#: Points of the grids in each power of ten.
POINTS_PER_DECADE = 16
LEVELS_PER_DECADE = 8
#: The smallest total, and the smallest level under a ceiling, as parts of the largest cap.
SMALLEST_PART = 1e-3
#: Steps of the search for τ, which halves its interval where Newton's method leaves it.
MAX_STEPS = 120
#: A total is taken as reached, and a point as not worse than another, up to this share.
TINY = 1e-12
SLACK = 1e-9
#: Numbers that are held at once.
MAX_CELLS = 2**21


@dataclass(frozen=True, eq=False)
class Points:
    """Public points at which the buyer's problem is solved."""

    eta: Floats
    nu: Floats
    level: Floats

    def __len__(self) -> int:
        return len(self.eta)

    def at(self, which: Any) -> Points:
        """Return some of the points."""
        return Points(self.eta[which], self.nu[which], self.level[which])


@dataclass(frozen=True, eq=False)
class ConvexCurves:
    """What each type would sell at each price, in billionths, and all losses together then."""

    sold: Whole
    losses: Floats


def make_points(
    sellers: int, most: float, loss: SellerLoss, ceiling: float | None = None
) -> Points:
    """Return the public grid for so many sellers, of whom nobody sells more than ``most``.

    With a ceiling on Σu, the points at which it holds whoever sells.
    """
    if ceiling is None:
        levels = np.array([most])
        limits = np.array([sellers * most])
    else:
        last = round(-math.log10(SMALLEST_PART) * LEVELS_PER_DECADE)
        levels = most * 10.0 ** (-np.arange(last + 1) / LEVELS_PER_DECADE)
        limits = np.minimum(sellers * levels, ceiling * levels / loss.evaluate(levels))
    parts = [_make_level(sellers, *pair) for pair in zip(levels, limits, strict=True)]
    eta, nu, level = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Points(eta, nu, level)


def _make_level(sellers: int, level: float, limit: float) -> tuple[Floats, Floats, Floats]:
    smallest = SMALLEST_PART * level
    if limit < smallest:
        return (np.zeros(0),) * 3
    steps = math.floor(math.log10(limit / smallest) * POINTS_PER_DECADE + TINY)
    totals = smallest * 10.0 ** (np.arange(steps + 1) / POINTS_PER_DECADE)
    totals = np.union1d(totals, limit)
    pairs = []
    for eta in totals.tolist():
        low, high = (eta / math.sqrt(sellers), math.sqrt(eta * min(eta, level)))
        ends = (math.log10(end) * POINTS_PER_DECADE for end in (low, max(low, high)))
        first, last = ends
        grid = 10.0 ** (np.arange(math.floor(first), math.ceil(last) + 1) / POINTS_PER_DECADE)
        pairs.append((np.full(len(grid), eta), grid))
    eta_column, nu_column = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
    return eta_column, nu_column, np.full(len(eta_column), level)


@dataclass(frozen=True, eq=False)
class ConvexMarket:
    """Sellers by class and price, flattened, and what the buyer wants."""

    buyer: Buyer
    loss: SellerLoss
    points: Points
    psi: Floats  # by cell, in money
    caps: Floats  # by cell, in ε
    counts: Whole  # by cell
    prices: int

    @classmethod
    def of(cls, supply: Supply, buyer: Buyer, loss: SellerLoss, points: Points) -> ConvexMarket:
        """Return the market of a supply."""
        prices = supply.psi.shape[1]
        psi = np.asarray(supply.low + supply.unit * supply.psi, dtype=np.float64).ravel()
        caps = np.asarray(np.repeat(supply.caps / units.UNITS_PER_EPSILON, prices))
        made = cls(buyer, loss, points, psi, caps, supply.counts.ravel(), prices)
        return made._select_reachable()

    def compute_curves(self, whose: Whole, price: Whole, tops: Whole) -> ConvexCurves:
        """Return what each type (class, price) would sell at every price that it may be paid,
        nonincreasing.
        """
        sold = np.zeros((len(whose), self.prices), dtype=np.int64)
        losses = np.zeros((len(whose), self.prices))
        if len(self.points) and len(whose):
            points = self._select_points()
            for row in range(len(whose)):
                cell = int(whose[row]) * self.prices
                others = self.counts.copy()
                others[cell + int(price[row])] -= 1
                top = int(tops[whose[row]])
                found, lost = self._fill_curve(points, others, cell, top)
                sold[row, :top] = found
                losses[row, :top] = lost
        return ConvexCurves(sold, losses)

    def _fill_curve(
        self, points: Points, others: Whole, cell: int, top: int
    ) -> tuple[Whole, Floats]:
        """Return what one more seller of a class sells at its prices, from the others alone."""
        own = self.psi[cell : cell + top]
        block = max(1, MAX_CELLS // (len(self.psi) * len(points)))
        sold = np.zeros(top)
        lost = np.zeros(top)
        for begin in range(0, top, block):
            asked = own[begin : begin + block]
            every = points.at(np.tile(np.arange(len(points)), len(asked)))
            wanted = np.repeat(asked, len(points))
            value, sale, losses = self._solve(every, others, wanted, self.caps[cell])
            shape = (len(asked), len(points))
            best = np.argmin(value.reshape(shape), axis=1)  # the first of equals
            rows = np.arange(len(asked))
            sold[begin : begin + block] = sale.reshape(shape)[rows, best]
            lost[begin : begin + block] = losses.reshape(shape)[rows, best]
        whole = np.floor(sold * units.UNITS_PER_EPSILON).astype(np.int64)
        return np.maximum.accumulate(whole[::-1])[::-1], lost

    def _select_reachable(self) -> ConvexMarket:
        """Return the same at the points whose totals limits allow, whoever reports what."""
        eta = self.points.eta
        most = self._compute_limits(self.points, self.caps, eta) @ self.counts
        return ConvexMarket(
            self.buyer,
            self.loss,
            self.points.at(most >= eta * (1 - TINY)),
            self.psi,
            self.caps,
            self.counts,
            self.prices,
        )

    def _select_points(self) -> Points:
        """Return the points that may be best whichever seller moves to whichever price: V moves by
        at most γ·ΔΨ·u(b).
        """
        value = np.concatenate(
            [
                self._solve(self.points.at(part), self.counts)[0]
                for part in _split(len(self.points), MAX_CELLS // len(self.psi))
            ]
        )
        here = self.counts > 0
        spread = float(self.psi.max() - self.psi.min())
        most = float(self.loss.evaluate(self.caps[here].max()))
        least = float(value.min())
        moved = self.buyer.trade_off * spread * most
        return self.points.at(value <= least + moved + SLACK * abs(least))

    def _compute_limits(self, points: Points, caps: Any, eta: Floats) -> Floats:
        """Return the most that each cell may sell, point × cell."""
        limits: Floats = np.minimum(np.atleast_1d(caps)[None, :], points.level[:, None])
        if self.buyer.share is not None:
            limits = np.minimum(limits, (self.buyer.share * eta)[:, None])
        return limits

    def _solve(
        self, points: Points, counts: Whole, own: Floats | None = None, own_cap: Any = None
    ) -> tuple[Floats, Floats, Floats]:
        """Return the value at each point, what one more seller sells, and all losses together."""
        gamma = self.buyer.trade_off
        eta = points.eta
        weight = (self.buyer.mu / (eta * points.nu))[:, None]
        prices = gamma * np.broadcast_to(self.psi, (len(points), len(self.psi)))
        limits = self._compute_limits(points, self.caps, eta)
        many = np.broadcast_to(counts, prices.shape)
        if own is not None:
            prices = np.column_stack([prices, gamma * own])
            limits = np.column_stack([limits, self._compute_limits(points, own_cap, eta)])
            many = np.column_stack([many, np.ones(len(points), dtype=np.int64)])
        sales = self._find_sales(weight, prices, limits, many.astype(np.float64), eta)
        lost = self.loss.evaluate(sales)
        squares = (many * sales**2).sum(axis=1)
        paid = (prices * many * lost).sum(axis=1)
        spread = (squares / points.nu + points.nu) * self.buyer.mu / (2 * eta)
        return spread + self.buyer.sigma / eta + paid, sales[:, -1], (many * lost).sum(axis=1)

    def _find_sales(
        self, weight: Floats, prices: Floats, limits: Floats, many: Floats, eta: Floats
    ) -> Floats:
        """Return what is sold in every cell where sales add up to the total."""
        most = limits.max(axis=1, keepdims=True)
        high = (weight * most + _compute_steepest(self.loss, prices, most)) * (1 + 1e-9)
        low = np.zeros_like(high)
        tau = 0.5 * high
        done = np.zeros(len(eta), dtype=bool)
        sales = np.zeros_like(prices)
        for step in range(MAX_STEPS):
            todo = np.flatnonzero(~done)
            if not len(todo):
                break
            now = tau[todo]
            found, rate = self.loss.solve_sale(now, weight[todo], prices[todo], limits[todo])
            sales[todo] = found
            total = (many[todo] * found).sum(axis=1)
            rise = (many[todo] * rate).sum(axis=1)
            short = (total < eta[todo])[:, None]
            low[todo] = np.where(short, now, low[todo])
            high[todo] = np.where(short, high[todo], now)
            with np.errstate(divide="ignore", invalid="ignore"):
                jump = now + ((eta[todo] - total) / rise)[:, None]
            inside = (jump > low[todo]) & (jump < high[todo]) & (step % 8 != 7)
            tau[todo] = np.where(inside, jump, (low[todo] + high[todo]) / 2)
            near = np.abs(total - eta[todo]) <= TINY * eta[todo]
            narrow = (high[todo] - low[todo] <= 1e-15 * high[todo])[:, 0]
            done[todo] = near | narrow
        return sales


def _compute_steepest(loss: SellerLoss, prices: Floats, most: Floats) -> Floats:
    """Return the largest price·u' that anybody may reach."""
    slope: Any
    if loss.kind == "piecewise":
        slope = float(loss._split_pieces()[2].max())
    elif loss.is_linear:
        slope = 1.0
    else:
        slope = loss._compute_slope(most)[0]
    return np.asarray(prices.max(axis=1, keepdims=True) * slope)


def _split(count: int, size: int) -> list[Any]:
    return np.array_split(np.arange(count), count // max(size, 1) + 1)
