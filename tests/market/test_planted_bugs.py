"""Wrong mechanisms that look right: each lets somebody gain by a lie, or loses somebody money, and
is caught.
"""

from __future__ import annotations

import numpy as np

from market.lies import HIGH, LOW, largest_gain, reports, told, two_bumps, worth
from sottovoce.market import Market, Prices, payments, virtual_costs

COSTS = [1.1, 1.4, 1.8, 2.1, 2.6]
PUBLIC = {"trade_off": 0.05, "mu": 1.0, "sigma": 5.0, "prices": 8, "cost_range": (LOW, HIGH)}


def test_the_right_mechanism_passes():
    assert largest_gain(COSTS, PUBLIC) < 1


def test_payments_as_printed_let_everybody_who_sells_gain(monkeypatch):
    """Ψ(c)·u is right on average only: over-reporting raises the price by more than it lowers the
    sale.
    """

    def printed(prices, curve, step):
        low = round(LOW * 2.0**-prices.exponent)
        psi = prices.whole + np.append(low, prices.whole[:-1]) - low
        return [int(t) for t in psi[step] * curve[np.arange(len(step)), step]]

    monkeypatch.setattr(payments, "compute_payments", printed)
    truth = told(COSTS, PUBLIC).allocate()
    gainers = [
        any(
            worth(told(COSTS, PUBLIC, i, r).allocate(), i, cost)
            > worth(truth, i, cost) + truth.coin
            for r in reports(truth)
        )
        for i, cost in enumerate(COSTS)
    ]
    assert all(gain for gain, sold in zip(gainers, truth.units, strict=True) if sold)
    assert sum(gainers) >= 4


def test_a_trade_off_fitted_to_the_reports_is_not_truthful():
    costs = [1.0, 2.8, 2.9]
    budget = 1.0

    def outcome(market):
        low = 1e-6
        high = 1e6
        for _ in range(30):
            middle = (low * high) ** 0.5
            enough = market._with_trade_off(middle).allocate().total <= budget
            if enough:
                low, high = (low, middle)
            else:
                low, high = (middle, high)
        return market._with_trade_off(high).allocate()

    assert largest_gain(costs, {**PUBLIC, "prices": 4}, outcome) > 1000


def test_a_grid_of_totals_from_the_reports_is_not_truthful(monkeypatch):
    monkeypatch.setattr(
        Market,
        "_totals",
        lambda self: max(self._reports.min(), 0.1) * np.array([0.1, 0.2, 0.4, 0.8]),
    )
    assert largest_gain(COSTS, PUBLIC) > 1000


def test_a_law_that_is_not_ironed_lets_a_lie_gain():
    """One seller: ε = √(σ/(γΨ)). Where Ψ falls ε rises with the report, and the payment no longer
    fits.
    """
    prices = Prices.between(LOW, HIGH, 40)
    share = two_bumps().cdf(prices.values)
    g = prices.values
    raw = np.diff(np.append(0, g * share)) / np.diff(np.append(0, share))

    def most_gained(psi):
        u = np.minimum(np.sqrt(1 / psi), 1.0)
        rises = np.diff(g, prepend=0)
        t = g * u + np.append(np.cumsum((rises * u)[::-1])[::-1][1:], 0)
        utility = t[None, :] - g[:, None] * u[None, :]  # true cost × report
        return (utility.max(axis=1) - np.diag(utility)).max() / np.diag(utility).max()

    assert most_gained(raw) > 0.1
    assert most_gained(virtual_costs(two_bumps(), prices)) < 1e-12


def test_a_rule_that_is_not_monotone_is_mended_by_the_running_maximum():
    """Whatever a solver makes of the others' reports, the payment for a falling curve is truthful
    in whole numbers.
    """
    rng = np.random.default_rng(1)
    prices = Prices.between(LOW, HIGH, 9)

    def most_gained(curve):
        steps = np.arange(len(prices))
        paid = payments.compute_payments(prices, np.tile(curve, (len(prices), 1)), steps)
        utility = [
            [t - int(cost) * int(u) for t, u in zip(paid, curve, strict=True)]
            for cost in prices.whole
        ]
        assert curve is not mended or all(utility[k][k] >= 0 for k in steps)
        return max(max(row) - row[k] for k, row in enumerate(utility))

    for _ in range(50):
        curve = rng.integers(0, 10**9, len(prices))
        mended = payments.make_nonincreasing(curve[None])[0]
        assert most_gained(mended) == 0
        assert most_gained(curve) > 10**6


def test_money_rounded_down_loses_somebody_money(monkeypatch):
    def down(prices, amounts, coin):
        rate = 2.0**prices.exponent / 1e9 / float(coin)
        return np.array([int(t * rate) for t in amounts])

    monkeypatch.setattr(payments, "round_to_coins", down)
    costs = [1.1, 2.75, HIGH]
    deal = told(costs, {**PUBLIC, "coin": 0.7}).allocate()
    assert any(worth(deal, i, cost) < 0 for i, cost in enumerate(costs))


def test_a_trade_off_from_the_others_reports_overspends():
    """Leave-one-out trade-offs are truthful, but payments that each fit the budget need not fit it
    together.
    """
    public = {**PUBLIC, "prices": 32, "cost_range": (1.0, 5.0)}
    costs = [1.0, 4.8, 4.9]
    budget = 3.0
    paid = 0.0
    for i in range(3):
        others = [c for j, c in enumerate(costs) if j != i]
        low = 1e-6
        high = 1e6
        for _ in range(40):
            middle = (low * high) ** 0.5
            enough = Market(others, **{**public, "trade_off": middle}).allocate().total <= budget
            if enough:
                low, high = (low, middle)
            else:
                low, high = (middle, high)
        paid += Market(costs, **{**public, "trade_off": high}).allocate().payments[i]
    assert paid > 1.1 * budget
