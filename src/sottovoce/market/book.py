# SPDX-License-Identifier: Apache-2.0
"""The book of a market: who offers at which price, by class, and how a book is settled.

symbol   name
g_k      prices.values
k_i      step          the price that seller i's report is rounded up to
ρ_i      factors       of "scaling": by how much a seller's sales are scaled, from the others' reports alone
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from sottovoce import units
from sottovoce.market import payments, rule
from sottovoce.market.allocation import Allocation
from sottovoce.market.payments import Curves, Types
from sottovoce.market.prior import Floats, Prices, Prior, virtual_costs
from sottovoce.market.rule import Buyer, Supply, Whole

#: Factors are whole numbers of a 2^24th, so that they multiply billionths exactly.
FACTOR_BITS = 24
#: Up to this many moves (types × prices) totals of payments are computed for every one; beyond they are bounded.
MOVES = 512


@dataclass(frozen=True, eq=False)
class Book:
    """Sellers counted by class and price, and the way back to each of them."""

    prices: Prices
    step: Whole  # by seller; len(prices) where a report lies above all prices
    supply: Supply
    types: Types
    code: Whole  # seller → type; -1 above all prices
    tops: Whole  # by class: how many prices it may be paid
    names: tuple[Any, ...] | None

    @classmethod
    def of(cls, prices: Prices, costs: Floats, limits: Floats, laws: list[Prior], names: Any) -> Book:
        """Returns the book of these reports."""
        step, steps = prices.step(costs), len(prices)
        law, distinct = _numbered(laws, len(costs))
        caps, by_cap = np.unique(limits, return_inverse=True)
        pairs, whose = np.unique(law * len(caps) + by_cap, return_inverse=True)
        virtual = np.array([virtual_costs(prior, prices) for prior in distinct])[pairs // len(caps)]
        tops = np.isfinite(virtual).sum(axis=1)
        sells = step < tops[whose]
        cells = np.where(sells, whose * steps + np.minimum(step, steps - 1), 0)
        counts = np.bincount(cells[sells], minlength=len(pairs) * steps).reshape(len(pairs), steps)
        supply = Supply.of(virtual, caps[pairs % len(caps)], counts)
        types = Types.of(counts)
        code = np.where(sells, np.searchsorted(types.whose * steps + types.price, cells), -1)
        return cls(prices, np.where(sells, step, steps), supply, types, code, tops, names)

    def allocate(self, buyer: Buyer, totals: Floats, coin: Fraction, pay: bool = True) -> Allocation:
        """Returns what is bought at which payment; nothing, where no total can be reached."""
        curves = self._compute_curves(buyer, totals) if pay else self._compute_own_sales(buyer, totals)
        return self._pay_sellers(buyer, curves, coin, pay)

    def allocate_scaled(self, buyer: Buyer, totals: Floats, coin: Fraction, budget: int) -> Allocation:
        """Returns what is bought if everybody's sales are scaled by a factor from the others' reports alone."""
        curves = self._compute_curves(buyer, totals, whole=True)
        most = self._bound_payments(buyer, totals, curves)
        rate = Fraction(2) ** self.prices.exponent / units.NANO / coin
        left = max(0, budget - len(self.step))  # every payment is rounded up by less than a coin
        factors = np.array([min(1, Fraction(left) / (rate * t)) * 2**FACTOR_BITS // 1 if t else 0 for t in most])
        scaled = curves.units * factors.astype(np.int64)[:, None] >> FACTOR_BITS
        return self._pay_sellers(buyer, replace(curves, units=scaled), coin)

    def limit_totals(self, budget: int, coin: Fraction, totals: Floats) -> Floats:
        """Returns the totals at which payments cannot exceed the budget, and the largest such total."""
        highest = int(self.prices.whole[-1]) * Fraction(2) ** self.prices.exponent
        # Each payment is rounded up by less than a coin, each sale by less than a billionth.
        ceiling = ((budget - len(self.step)) * coin / highest * units.NANO) // 1 - len(self.step)
        if ceiling < rule.SMALLEST * units.NANO:
            return totals[:0]
        return np.union1d(totals[totals * units.NANO <= ceiling], float(ceiling) / units.NANO)

    def _compute_curves(self, buyer: Buyer, totals: Floats, whole: bool = False) -> Curves:
        deals = self._solve_all_totals(buyer, totals)
        if deals is None:
            return Curves(*(np.zeros((len(self.types), len(self.prices)), dtype=kind) for kind in (np.int64, float)))
        return payments.curves(self.supply, buyer, deals, self.types, self.tops, whole)

    def _solve_all_totals(self, buyer: Buyer, totals: Floats) -> rule.Deals | None:
        if not len(self.types) or not len(self.supply.select_reachable(buyer, totals)):
            return None
        return payments.base(self.supply, buyer, totals)

    def _compute_own_sales(self, buyer: Buyer, totals: Floats) -> Curves:
        """Returns what is bought at everybody's own price, and leaves other prices open."""
        deals, sold = self._solve_all_totals(buyer, totals), np.zeros((len(self.types), len(self.prices)), dtype=np.int64)
        if deals is not None:
            best = deals.at(np.array([np.argmin(deals.value)]))
            rows = np.arange(len(self.types))
            sold[rows, self.types.price] = payments.deals_at(self.supply, buyer, best, self.types)[:, 0]
        return Curves(sold, np.zeros(0))

    def _pay_sellers(self, buyer: Buyer, curves: Curves, coin: Fraction, pay: bool = True) -> Allocation:
        own = curves.units[np.arange(len(self.types)), self.types.price]
        exact = payments.exact(self.prices, curves.units, self.types.price)
        coins = payments.in_coins(self.prices, exact, coin) if pay else np.zeros(len(own), dtype=np.int64)
        sells = self.code >= 0
        spread = (np.where(sells, np.append(amounts, 0)[self.code], 0) for amounts in (own, coins))
        sold, paid = spread
        return Allocation(
            sold, paid if pay else None, coin, self.prices, self.step, curves.units, self.code, buyer, self.names
        )

    def _bound_payments(self, buyer: Buyer, totals: Floats, curves: Curves) -> list[int]:
        """Returns for each type a bound on all payments together, whatever price a seller of the type reports."""
        if len(self.types) * len(self.prices) > MOVES:
            nobody = len(self.step)
            highest = int(self.prices.whole[-1])
            return [highest * (round(t * units.NANO) + nobody) if t else 0 for t in curves.total.max(axis=1).tolist()]
        return [
            max(self._move_seller(row, price)._sum_payments(buyer, totals) for price in range(self.tops[self.types.whose[row]]))
            for row in range(len(self.types))
        ]

    def _move_seller(self, row: int, price: int) -> Book:
        """Returns the book with one seller of a type at another price; the way back to sellers is lost."""
        counts = self.supply.counts.copy()
        counts[self.types.whose[row], self.types.price[row]] -= 1
        counts[self.types.whose[row], price] += 1
        supply = replace(self.supply, counts=counts)
        return replace(self, supply=supply, types=Types.of(counts))

    def _sum_payments(self, buyer: Buyer, totals: Floats) -> int:
        exact = payments.exact(self.prices, self._compute_curves(buyer, totals).units, self.types.price)
        return sum(t * int(count) for t, count in zip(exact, self.types.count, strict=True))


def _numbered(laws: list[Prior], sellers: int) -> tuple[Whole, list[Prior]]:
    """Returns the number of everybody's law among the distinct ones."""
    place: dict[Prior, int] = {}
    codes = np.array([place.setdefault(law, len(place)) for law in laws], dtype=np.int64)
    return np.broadcast_to(codes, (sellers,)), list(place)
