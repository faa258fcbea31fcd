# SPDX-License-Identifier: Apache-2.0
"""The book of a market: who offers at which price, by class, and how a book is settled.

symbol   name
g_k      prices.values
k_i      step          the price that seller i's report is rounded up to
ρ_i      factors       of "scaling": by how much a seller's sales are scaled, from the others'
                       reports alone

What a seller would sell at every price of the list, and the payment that makes the truth the best
report.

    u_l   = what is bought from the seller at price g_l, the others' reports as they are; then max
          over prices ≥ g_l
    t(k)  = g_k·u_k + Σ_{l>k} (g_l − g_{l−1})·u_l        (docs/theory/market.md, Theorem 3)

u is in whole billionths of ε and g in whole multiples of a power of two, so t is an exact whole
number; it is rounded up to a coin once, at the very end. Sellers of one type (class and price) are
alike, and computed once.

    symbol   name
    u        Curves.units      type × price; nonincreasing along prices by construction
    V        value             of the buyer's problem at one total, concave and nondecreasing in one
                               seller's Ψ
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.arrays import Floats
from sottovoce.market import convex, optimiser
from sottovoce.market.allocation import Allocation
from sottovoce.market.loss import LINEAR, UNITS_PER_LOSS, SellerLoss
from sottovoce.market.optimiser import Buyer, Solutions, Subproblems, Supply, Whole
from sottovoce.market.prior import Prices, Prior, virtual_costs

#: Factors are whole numbers of a 2^24th, so that they multiply billionths exactly.
FACTOR_BITS = 24
#: Up to this many moves (types × prices) totals of payments are computed for every one; beyond they
#: are bounded.
MAX_MOVES = 512
#: Of a budget for losses that are not linear this part is kept back, for the accuracy of the rule.
BUDGET_SLACK = Fraction(1, 10**6)
#: Halvings that find a whole number of billionths.
HALVINGS = 48


@dataclass(frozen=True, eq=False)
class Offers:
    """Sellers counted by class and price, and the way back to each of them."""

    prices: Prices
    step: Whole  # by seller; len(prices) where a report lies above all prices
    supply: Supply
    types: SellerTypes
    code: Whole  # seller → type; -1 above all prices
    tops: Whole  # by class: how many prices it may be paid
    names: tuple[Any, ...] | None
    loss: SellerLoss = LINEAR
    most: float = 1.0  # the largest ε that anybody may sell, whoever reports which cap

    @classmethod
    def of(
        cls,
        prices: Prices,
        costs: Floats,
        limits: Floats,
        laws: list[Prior],
        names: Any,
        loss: SellerLoss | None = None,
        most: float = 1.0,
    ) -> Offers:
        """Return the book of these reports."""
        step = prices.step(costs)
        steps = len(prices)
        law, distinct = _number_priors(laws, len(costs))
        caps, by_cap = np.unique(limits, return_inverse=True)
        pairs, whose = np.unique(law * len(caps) + by_cap, return_inverse=True)
        virtual = np.array([virtual_costs(prior, prices) for prior in distinct])[pairs // len(caps)]
        tops = np.isfinite(virtual).sum(axis=1)
        sells = step < tops[whose]
        cells = np.where(sells, whose * steps + np.minimum(step, steps - 1), 0)
        counts = np.bincount(cells[sells], minlength=len(pairs) * steps).reshape(len(pairs), steps)
        supply = Supply.of(virtual, caps[pairs % len(caps)], counts)
        types = SellerTypes.of(counts)
        code = np.where(sells, np.searchsorted(types.whose * steps + types.price, cells), -1)
        asked = np.where(sells, step, steps)
        return cls(prices, asked, supply, types, code, tops, names, loss or LINEAR, most)

    def allocate(
        self, buyer: Buyer, totals: Floats, coin: Fraction, pay: bool = True
    ) -> Allocation:
        """Return what is bought at which payment; nothing, where no total can be reached."""
        if not self.loss.is_linear:
            return self._pay_sellers(buyer, self._compute_convex(buyer), coin, pay)
        if pay:
            curves = self._compute_curves(buyer, totals)
        else:
            curves = self._compute_own_sales(buyer, totals)
        return self._pay_sellers(buyer, curves, coin, pay)

    def allocate_scaled(
        self, buyer: Buyer, totals: Floats, coin: Fraction, budget: int
    ) -> Allocation:
        """Return what is bought if everybody's sales are scaled by a factor from the others'
        reports alone.
        """
        curves = self._compute_curves(buyer, totals, whole=True)
        most = self._bound_payments(buyer, totals, curves)
        rate = Fraction(2) ** self.prices.exponent / units.UNITS_PER_EPSILON / coin
        left = max(0, budget - len(self.step))  # every payment is rounded up by less than a coin
        factors = np.array(
            [min(1, Fraction(left) / (rate * t)) * 2**FACTOR_BITS // 1 if t else 0 for t in most]
        )
        scaled = curves.units * factors.astype(np.int64)[:, None] >> FACTOR_BITS
        return self._pay_sellers(buyer, replace(curves, units=scaled), coin)

    def allocate_convex(self, buyer: Buyer, coin: Fraction, budget: int, rule: str) -> Allocation:
        """Return what is bought within a budget where the loss is not linear.

        Under a ceiling, Σu is at most budget/(highest price) at every public point. Otherwise the
        losses of each are scaled by a factor from the others' reports alone.
        """
        highest = int(self.prices.whole[-1]) * Fraction(2) ** self.prices.exponent
        # Each payment is rounded up by less than a coin, and each loss by less than its unit.
        left = max(0, budget - len(self.step)) * coin / highest
        left = (left - Fraction(len(self.step), UNITS_PER_LOSS)) * (1 - BUDGET_SLACK)
        if left <= 0:
            return self._pay_sellers(buyer, self._buy_nothing(), coin)
        if rule == "ceiling":
            curves = self._compute_convex(buyer, float(left))
        else:
            curves = self._compute_convex(buyer)
            curves = replace(curves, units=self._scale_losses(curves, left))
        deal = self._pay_sellers(buyer, curves, coin)
        # The accuracy of the rule excludes it (docs/theory/market.md); money is never overspent.
        if deal.coins is None or sum(deal.coins.tolist()) > budget:
            return self._pay_sellers(buyer, self._buy_nothing(), coin)
        return deal

    def _buy_nothing(self) -> SaleCurves:
        shape = (len(self.types), len(self.prices))
        return SaleCurves(np.zeros(shape, dtype=np.int64), np.zeros(shape))

    def _compute_convex(self, buyer: Buyer, ceiling: float | None = None) -> SaleCurves:
        points = convex.make_points(len(self.step), self.most, self.loss, ceiling)
        market = convex.ConvexMarket.of(self.supply, buyer, self.loss, points)
        found = market.compute_curves(self.types.whose, self.types.price, self.tops)
        return SaleCurves(found.sold, found.losses)

    def _scale_losses(self, curves: SaleCurves, left: Fraction) -> Whole:
        """Return the largest sales whose losses are at most the seller's factor of what they
        were.
        """
        worst = curves.total.max(axis=1)
        share = [min(1.0, float(left) / total) if total else 0.0 for total in worst.tolist()]
        allowed = self.loss.evaluate(curves.units / units.UNITS_PER_EPSILON)
        allowed = allowed * np.array(share)[:, None]
        low = np.zeros_like(curves.units)
        high = curves.units.copy()
        for _ in range(HALVINGS):
            middle = (low + high + 1) // 2
            fits = self.loss.evaluate(middle / units.UNITS_PER_EPSILON) <= allowed
            low = np.where(fits, middle, low)
            high = np.where(fits, high, np.maximum(middle - 1, low))
        return make_nonincreasing(low)

    def limit_totals(self, budget: int, coin: Fraction, totals: Floats) -> Floats:
        """Return the totals at which payments cannot exceed the budget, and the largest such
        total.
        """
        highest = int(self.prices.whole[-1]) * Fraction(2) ** self.prices.exponent
        # Each payment is rounded up by less than a coin, each sale by less than a billionth.
        ceiling = ((budget - len(self.step)) * coin / highest * units.UNITS_PER_EPSILON) // 1 - len(
            self.step
        )
        if ceiling < optimiser.SMALLEST_TOTAL * units.UNITS_PER_EPSILON:
            return totals[:0]
        return np.union1d(
            totals[totals * units.UNITS_PER_EPSILON <= ceiling],
            float(ceiling) / units.UNITS_PER_EPSILON,
        )

    def _compute_curves(self, buyer: Buyer, totals: Floats, whole: bool = False) -> SaleCurves:
        deals = self._solve_all_totals(buyer, totals)
        if deals is None:
            return SaleCurves(
                *(
                    np.zeros((len(self.types), len(self.prices)), dtype=kind)
                    for kind in (np.int64, float)
                )
            )
        return compute_sale_curves(self.supply, buyer, deals, self.types, self.tops, whole)

    def _solve_all_totals(self, buyer: Buyer, totals: Floats) -> optimiser.Solutions | None:
        if not len(self.types) or not len(self.supply.select_reachable(buyer, totals)):
            return None
        return solve_totals(self.supply, buyer, totals)

    def _compute_own_sales(self, buyer: Buyer, totals: Floats) -> SaleCurves:
        """Returns what is bought at everybody's own price, and leaves other prices open."""
        deals = self._solve_all_totals(buyer, totals)
        sold = np.zeros((len(self.types), len(self.prices)), dtype=np.int64)
        if deals is not None:
            best = deals.at(np.array([np.argmin(deals.value)]))
            rows = np.arange(len(self.types))
            sold[rows, self.types.price] = compute_sales(self.supply, buyer, best, self.types)[:, 0]
        return SaleCurves(sold, np.zeros(0))

    def _pay_sellers(
        self, buyer: Buyer, curves: SaleCurves, coin: Fraction, pay: bool = True
    ) -> Allocation:
        own = curves.units[np.arange(len(self.types)), self.types.price]
        if self.loss.is_linear:
            lost = curves.units
        else:
            lost = self.loss.count(curves.units)
        exact = compute_payments(self.prices, lost, self.types.price)
        if pay and self.loss.is_linear:
            coins = round_to_coins(self.prices, exact, coin)
        elif pay:
            coins = round_to_coins(self.prices, exact, coin, UNITS_PER_LOSS)
        else:
            coins = np.zeros(len(own), dtype=np.int64)
        sells = self.code >= 0
        spread = (np.where(sells, np.append(amounts, 0)[self.code], 0) for amounts in (own, coins))
        sold, paid = spread
        return Allocation(
            sold,
            paid if pay else None,
            coin,
            self.prices,
            self.step,
            curves.units,
            self.code,
            buyer,
            self.names,
            loss=self.loss,
        )

    def _bound_payments(self, buyer: Buyer, totals: Floats, curves: SaleCurves) -> list[int]:
        """Return for each type a bound on all payments together, whatever price a seller of the
        type reports.
        """
        if len(self.types) * len(self.prices) > MAX_MOVES:
            nobody = len(self.step)
            highest = int(self.prices.whole[-1])
            return [
                highest * (round(t * units.UNITS_PER_EPSILON) + nobody) if t else 0
                for t in curves.total.max(axis=1).tolist()
            ]
        return [
            max(
                self._move_seller(row, price)._sum_payments(buyer, totals)
                for price in range(self.tops[self.types.whose[row]])
            )
            for row in range(len(self.types))
        ]

    def _move_seller(self, row: int, price: int) -> Offers:
        """Return the book with one seller of a type at another price.

        The way back to sellers is lost.
        """
        counts = self.supply.counts.copy()
        counts[self.types.whose[row], self.types.price[row]] -= 1
        counts[self.types.whose[row], price] += 1
        supply = replace(self.supply, counts=counts)
        return replace(self, supply=supply, types=SellerTypes.of(counts))

    def _sum_payments(self, buyer: Buyer, totals: Floats) -> int:
        exact = compute_payments(
            self.prices, self._compute_curves(buyer, totals).units, self.types.price
        )
        return sum(t * int(count) for t, count in zip(exact, self.types.count, strict=True))


def _number_priors(laws: list[Prior], sellers: int) -> tuple[Whole, list[Prior]]:
    """Return the number of everybody's law among the distinct ones."""
    place: dict[Prior, int] = {}
    codes = np.array([place.setdefault(law, len(place)) for law in laws], dtype=np.int64)
    return np.broadcast_to(codes, (sellers,)), list(place)


#: Problems that are looked at, and that are solved, side by side.
MAX_COMPARED = 2**21
MAX_SOLVED = 2**18


@dataclass(frozen=True, eq=False)
class SellerTypes:
    """Sellers who are alike: of one class, at one price."""

    whose: Whole
    price: Whole
    count: Whole

    @classmethod
    def of(cls, counts: Whole) -> SellerTypes:
        """Returns the types that there are, class by class and price by price."""
        whose, price = np.nonzero(counts)
        return cls(whose, price, counts[whose, price])

    def __len__(self) -> int:
        return len(self.whose)

    def at(self, which: Any) -> SellerTypes:
        """Return some of the types."""
        return SellerTypes(self.whose[which], self.price[which], self.count[which])


@dataclass(frozen=True, eq=False)
class SaleCurves:
    """What each type would sell at each price, and the total that is bought then."""

    units: Whole
    total: Floats  # 0 where it was not asked for


def solve_totals(supply: Supply, buyer: Buyer, totals: Floats) -> Solutions:
    """Return the buyer's problem at every total that limits allow."""
    return optimiser.solve_subproblems(
        supply, buyer, Subproblems(supply.select_reachable(buyer, totals))
    )


def compute_sale_curves(
    supply: Supply,
    buyer: Buyer,
    deals: Solutions,
    types: SellerTypes,
    tops: Whole,
    whole: bool = False,
) -> SaleCurves:
    """Return what each type sells at prices from its own on (all prices, if ``whole``),
    nonincreasing.

    ``tops`` is the number of prices that a class may be paid. A type that sells nothing at its own
    price sells nothing at a higher one.
    """
    steps = supply.psi.shape[1]
    found = SaleCurves(np.zeros((len(types), steps), dtype=np.int64), np.zeros((len(types), steps)))
    best = deals.at(np.array([np.argmin(deals.value)]))
    active = np.flatnonzero(compute_sales(supply, buyer, best, types)[:, 0] >= 1)
    if len(active) and not whole:
        deals = deals.at(_select_totals(supply, buyer, deals, best, types.at(active), tops))
    block = max(1, MAX_COMPARED // (steps * len(deals.value)))
    for begin in range(0, len(active), block):
        which = active[begin : begin + block]
        _fill_curves(supply, buyer, deals, types.at(which), tops, whole, found, which)
    return SaleCurves(make_nonincreasing(found.units), found.total)


def make_nonincreasing(curves: Whole) -> Whole:
    """Return the largest sale at a price or a higher one: no error of a solver can make it rise
    with the price.
    """
    return np.maximum.accumulate(curves[:, ::-1], axis=1)[:, ::-1]


def compute_sales(supply: Supply, buyer: Buyer, deals: Solutions, types: SellerTypes) -> Floats:
    """Return what each type sells at each total, in billionths."""
    psi = supply.psi[types.whose, types.price]
    caps = supply.caps[types.whose]
    return deals.compute_sales(
        psi[:, None], optimiser.compute_limits(buyer, caps[:, None], deals.asked.eta)
    )


def _select_totals(
    supply: Supply, buyer: Buyer, deals: Solutions, best: Solutions, types: SellerTypes, tops: Whole
) -> NDArray[np.bool_]:
    """Return the totals that may be best whichever seller moves to their highest price, and to
    whichever price.
    """
    climb = supply.psi[types.whose, tops[types.whose] - 1] - supply.psi[types.whose, types.price]
    dearer = (
        climb
        * compute_sales(supply, buyer, best, types)[:, 0]
        * (buyer.trade_off * supply.unit / units.UNITS_PER_EPSILON)
    )
    return np.asarray(deals.value <= (best.value[0] + dearer.max()) * (1 + optimiser.TINY))


def _fill_curves(
    supply: Supply,
    buyer: Buyer,
    deals: Solutions,
    types: SellerTypes,
    tops: Whole,
    whole: bool,
    found: SaleCurves,
    which: Any,
) -> None:
    """Fills in the curves of some types: only totals that may be best at a price are solved at that
    price.
    """
    eta = deals.asked.eta
    steps = supply.psi.shape[1]
    psi = supply.psi[types.whose].astype(np.float64)
    last = tops[types.whose] - 1
    if whole:
        first = np.zeros_like(last)
    else:
        first = types.price
    if whole:
        lower = _solve_end(supply, buyer, eta, types, psi, first)
    else:
        lower = _make_own_end(supply, buyer, deals, types)
    upper = _solve_end(supply, buyer, eta, types, psi, last)
    here = (np.arange(steps) >= first[:, None]) & (np.arange(steps) <= last[:, None])
    t, e, price = np.nonzero(
        _find_candidates(supply, buyer, psi, first, last, lower, upper) & here[:, None, :]
    )
    value = np.full((len(types), len(eta), steps), np.inf)
    sold = np.zeros((len(types), len(eta), steps))
    for part in np.array_split(np.arange(len(t)), len(t) // MAX_SOLVED + 1):
        i = t[part]
        j = e[part]
        k = price[part]
        asked = Subproblems(eta[j], types.whose[i], psi[i, types.price[i]], psi[i, k])
        solved = optimiser.solve_subproblems(
            supply, buyer, asked, (upper.tau[i, j], upper.beta[i, j])
        )
        value[i, j, k] = solved.value
        sold[i, j, k] = solved.compute_sales(
            psi[i, k], optimiser.compute_limits(buyer, supply.caps[types.whose[i]], eta[j])
        )
    best = np.argmin(value, axis=1)  # the first of equals, hence the smallest total
    rows, columns = np.ogrid[: len(types), :steps]
    found.units[which] = np.where(here, np.floor(sold[rows, best, columns]), 0.0).astype(np.int64)
    found.total[which] = np.where(here, eta[best], 0.0)


@dataclass(frozen=True, eq=False)
class _PriceEnd:
    """One end of the prices that are looked at, type × total."""

    value: Floats
    sold: Floats
    tau: Floats
    beta: Floats


def _make_own_end(supply: Supply, buyer: Buyer, deals: Solutions, types: SellerTypes) -> _PriceEnd:
    shape = (len(types), len(deals.value))
    same = (np.broadcast_to(a, shape) for a in (deals.value, deals.tau, deals.beta))
    value, tau, beta = same
    return _PriceEnd(value, compute_sales(supply, buyer, deals, types), tau, beta)


def _solve_end(
    supply: Supply, buyer: Buyer, eta: Floats, types: SellerTypes, psi: Floats, price: Whole
) -> _PriceEnd:
    """Solve every total with the seller moved to one price."""
    size = (len(types), len(eta))
    rows = np.arange(len(types))
    i = np.repeat(rows, len(eta))
    to = psi[rows, price][i]
    asked = Subproblems(np.tile(eta, len(types)), types.whose[i], psi[rows, types.price][i], to)
    solved = optimiser.solve_subproblems(supply, buyer, asked)
    sold = solved.compute_sales(
        to, optimiser.compute_limits(buyer, supply.caps[types.whose[i]], asked.eta)
    )
    return _PriceEnd(*(a.reshape(size) for a in (solved.value, sold, solved.tau, solved.beta)))


def _find_candidates(
    supply: Supply,
    buyer: Buyer,
    psi: Floats,
    first: Whole,
    last: Whole,
    lower: _PriceEnd,
    upper: _PriceEnd,
) -> NDArray[np.bool_]:
    """Return type × total × price: whether the total may be best there.

    At a fixed total V is concave and nondecreasing in the seller's ψ with slope γ·unit·ε: it lies
    above its chord, and below its tangent at the lower end and its value at the upper.
    """
    rows = np.arange(len(psi))
    begin = psi[rows, first]
    end = psi[rows, last]
    ahead = psi - begin[:, None]
    along = np.clip(ahead / np.maximum(end - begin, 1.0)[:, None], 0.0, 1.0)
    rise = (upper.value - lower.value)[:, :, None]
    slope = (buyer.trade_off * supply.unit / units.UNITS_PER_EPSILON) * lower.sold[:, :, None]
    tangent = lower.value[:, :, None] + slope * np.maximum(ahead, 0.0)[:, None, :]
    least = np.minimum(tangent, upper.value[:, :, None]).min(axis=1, keepdims=True)
    chord = lower.value[:, :, None] + rise * along[:, None, :]
    return np.asarray(chord <= least * (1 + optimiser.TINY))


def compute_payments(prices: Prices, curve: Whole, step: Whole) -> list[int]:
    """Return t of each row of curves at its own price, in the curves' units of the prices' power
    of two.
    """
    rises = np.diff(prices.whole, prepend=0)
    rises = np.where(np.arange(len(prices)) > step[:, None], rises, 0)
    own = prices.whole[step] * curve[np.arange(len(step)), step]
    return [int(t) for t in own + (rises * curve).sum(axis=1)]


def round_to_coins(
    prices: Prices, amounts: list[int], coin: Fraction, per_one: int = units.UNITS_PER_EPSILON
) -> NDArray[np.int64]:
    """Return amounts of ``exact`` in coins, each rounded up; losses are in parts of ``per_one``."""
    rate = Fraction(2) ** prices.exponent / per_one / coin
    return np.array([-(-t * rate.numerator // rate.denominator) for t in amounts], dtype=np.int64)
