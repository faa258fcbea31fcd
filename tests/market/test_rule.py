"""The rule is the exact optimum: against CVXPY at a fixed total, by brute force over totals, and
against itself.
"""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

from sottovoce.market import Market, Prices, optimiser, prior, virtual_costs
from sottovoce.market import payments as pay


def some_supply(rng, classes=None):
    C = classes or rng.integers(1, 4)
    K = rng.integers(2, 12)
    counts = rng.integers(0, 4, (C, K))
    counts[0, 0] += 1
    caps = np.round(rng.uniform(0.05, 2, C), 3) * 1e9
    return optimiser.Supply.of(np.sort(rng.uniform(0, 1, (C, K)), axis=1), caps, counts)


def some_buyer(rng, sellers, share=False):
    if share:
        limit = float(rng.uniform(1.2, 4)) / sellers
    else:
        limit = None
    return optimiser.Buyer(
        10 ** rng.uniform(-2, 2), 10 ** rng.uniform(-2, 3), 10 ** rng.uniform(-4, 3), limit
    )


def one_by_one(supply):
    """Virtual cost and cap of every single seller."""
    times = supply.counts.ravel()
    psi = np.repeat(supply.psi.ravel(), times)
    return psi, np.repeat(np.repeat(supply.caps, supply.psi.shape[1]), times)


def by_cvxpy(virtual, caps, buyer, eta):
    a = cp.Variable(len(virtual))
    value = buyer.mu * cp.norm(a) + buyer.trade_off * eta * (virtual @ a)
    problem = cp.Problem(cp.Minimize(value), [cp.sum(a) == 1, a >= 0, a <= caps / eta])
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return problem.value + buyer.sigma / eta, a.value * eta


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("seed", range(24))
def test_at_a_fixed_total_the_rule_is_cvxpys_optimum(seed):
    rng = np.random.default_rng(seed)
    supply = some_supply(rng)
    buyer = some_buyer(rng, supply.counts.sum(), share=seed % 2)
    eta = supply.select_reachable(buyer, optimiser.make_totals(100.0))
    deals = optimiser.solve_subproblems(supply, buyer, optimiser.Subproblems(eta))
    psi, caps = one_by_one(supply)
    virtual = supply.low + supply.unit * psi
    for j in rng.choice(len(eta), 3):
        caps_here = np.broadcast_to(optimiser.compute_limits(buyer, caps, eta[j]), caps.shape)
        sold = deals.at(np.array([j])).compute_sales(psi, caps_here) / 1e9
        value, expected = by_cvxpy(virtual, caps_here / 1e9, buyer, eta[j])
        assert sold.sum() == pytest.approx(eta[j], rel=1e-12)
        own = (buyer.mu * np.linalg.norm(sold) + buyer.sigma) / eta[
            j
        ] + buyer.trade_off * virtual @ sold
        assert deals.value[j] == pytest.approx(own, rel=1e-12)
        assert deals.value[j] <= value * (1 + 1e-9)
        assert sold == pytest.approx(expected, abs=2e-4 * eta[j])


@pytest.mark.parametrize("seed", range(20))
def test_a_seller_moved_is_the_market_with_that_report_to_the_last_bit(seed):
    rng = np.random.default_rng(seed)
    supply = some_supply(rng)
    buyer = some_buyer(rng, supply.counts.sum())
    eta = supply.select_reachable(buyer, optimiser.make_totals(100.0))[::7]
    c = int(rng.integers(len(supply.psi)))
    if not supply.counts[c].any():
        return
    k = rng.choice(np.flatnonzero(supply.counts[c]))
    to = int(rng.integers(supply.psi.shape[1]))
    moved = supply.counts.copy()
    moved[c, k] -= 1
    moved[c, to] += 1
    whole = optimiser.Supply(supply.psi, supply.caps, moved, supply.unit, supply.low)
    many = (
        np.full(len(eta), c),
        np.full(len(eta), float(supply.psi[c, k])),
        np.full(len(eta), float(supply.psi[c, to])),
    )
    one = optimiser.solve_subproblems(supply, buyer, optimiser.Subproblems(eta, *many))
    two = optimiser.solve_subproblems(whole, buyer, optimiser.Subproblems(eta))
    for a, b in (
        (one.value, two.value),
        (one.beta, two.beta),
        (one.cell.s2, two.cell.s2),
        (one.tau, two.tau),
    ):
        assert np.array_equal(a, b)
    assert np.array_equal(one.cell.n, two.cell.n)


@pytest.mark.parametrize("seed", range(12))
def test_pruned_curves_are_those_of_brute_force_over_all_totals(seed):
    rng = np.random.default_rng(seed)
    supply = some_supply(rng)
    buyer = some_buyer(rng, supply.counts.sum(), share=seed % 2)
    deals = pay.solve_totals(supply, buyer, optimiser.make_totals(100.0))
    types = pay.SellerTypes.of(supply.counts)
    steps = supply.psi.shape[1]
    tops = np.full(len(supply.psi), steps)
    pruned = pay.compute_sale_curves(supply, buyer, deals, types, tops)
    eta = deals.asked.eta
    for t, (c, k) in enumerate(zip(types.whose, types.price, strict=True)):
        for to in range(k, steps):
            away, there = (np.full(len(eta), float(supply.psi[c, p])) for p in (k, to))
            solved = optimiser.solve_subproblems(
                supply, buyer, optimiser.Subproblems(eta, np.full(len(eta), c), away, there)
            )
            sold = solved.compute_sales(
                supply.psi[c, to], optimiser.compute_limits(buyer, supply.caps[c], eta)
            )
            assert abs(int(sold[np.argmin(solved.value)]) - pruned.units[t, to]) <= 1


@pytest.mark.parametrize("seed", range(10))
def test_the_envelope_closes_the_payment_for_a_uniform_law(seed):
    """Σ Δg·u lies between the two sums of steps around [J*(Ψ_max) − J*(Ψ)]/(2γ)."""
    rng = np.random.default_rng(seed)
    steps = 40
    low = 1.0
    high = 3.0
    prices = Prices.between(low, high, steps)
    counts = np.bincount(prices.step(rng.uniform(low, high, 6)), minlength=steps)[None]
    supply = optimiser.Supply.of(
        virtual_costs(prior.uniform(low, high), prices)[None], np.array([1e9]), counts
    )
    buyer = optimiser.Buyer(
        10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-1, 2), 10 ** rng.uniform(-2, 0)
    )
    deals = pay.solve_totals(supply, buyer, optimiser.make_totals(6.0))
    types = pay.SellerTypes.of(counts)
    curves = pay.compute_sale_curves(supply, buyer, deals, types, np.array([steps]))
    eta = deals.asked.eta
    step = (high - low) / steps
    for t, k in enumerate(types.price):
        here = float(supply.psi[0, k])
        top = np.full(len(eta), float(supply.psi[0, -1]))
        raised = optimiser.solve_subproblems(
            supply,
            buyer,
            optimiser.Subproblems(eta, np.zeros(len(eta), int), np.full(len(eta), here), top),
        )
        closed = (raised.value.min() - deals.value.min()) / (2 * buyer.trade_off)
        u = curves.units[t] / 1e9
        if u[k]:
            assert step * u[k + 1 :].sum() <= closed * (1 + 1e-4) + 1e-8
            assert step * u[k:-1].sum() >= closed * (1 - 1e-4) - 1e-8


@pytest.mark.parametrize("seed", range(12))
def test_the_continuous_optimum_is_found_and_never_beaten(seed):
    rng = np.random.default_rng(seed)
    psi = np.round(rng.uniform(0.1, 1, rng.integers(1, 7)), 1 + seed % 3)
    mu = 10 ** rng.uniform(-1, 2)
    sigma = 10 ** rng.uniform(-1, 3)
    gamma = 10 ** rng.uniform(-2, 1)

    def value(epsilon):
        return (mu * np.linalg.norm(epsilon) + sigma) / epsilon.sum() + gamma * psi @ epsilon

    epsilon, least = optimiser.continuous(psi, mu, sigma, gamma)
    assert value(epsilon) == pytest.approx(least, rel=1e-12)
    starts = (rng.normal(np.log(epsilon.sum() / len(psi)), 1, len(psi)) for _ in range(4))
    others = [minimize(lambda x: value(np.exp(x)), start, method="BFGS").fun for start in starts]
    assert least <= min(others) * (1 + 1e-9)
    assert min(others) <= least * (1 + 1e-4)


def test_with_wide_caps_and_many_prices_the_market_comes_close_to_the_continuous_optimum():
    rng = np.random.default_rng(4)
    costs = rng.uniform(1, 3, 40)
    market = Market(
        costs, cost_range=(1, 3), trade_off=0.01, mu=5.0, sigma=20.0, cap=100.0, prices=2000
    )
    epsilon, least = optimiser.continuous(2 * costs - 1, 5.0, 20.0, 0.01)
    bought = market.allocate(pay=False).epsilon
    value = (5 * np.linalg.norm(bought) + 20) / bought.sum() + 0.01 * (2 * costs - 1) @ bought
    assert least <= value <= least * 1.001
    assert bought == pytest.approx(epsilon, abs=0.06 * epsilon.max())


def test_totals_are_the_same_in_every_market():
    assert np.array_equal(
        optimiser.make_totals(10.0),
        optimiser.make_totals(1000.0)[: len(optimiser.make_totals(10.0))],
    )
    assert optimiser.make_totals(10.0)[0] == pytest.approx(1e-6)
    assert optimiser.make_totals(10.0)[-1] == pytest.approx(10.0)


@pytest.mark.parametrize("seed", range(30))
def test_sales_add_up_and_stay_within_limits_however_extreme_the_buyer(seed):
    rng = np.random.default_rng(seed)
    C = rng.integers(1, 4)
    K = rng.integers(2, 30)
    counts = rng.integers(0, 10 ** rng.integers(1, 6), (C, K))
    counts[0, 0] += 1
    caps = np.round(10 ** rng.uniform(-3, 2, C), 4) * 1e9
    supply = optimiser.Supply.of(np.sort(10 ** rng.uniform(-3, 0, (C, K)), axis=1), caps, counts)
    if seed % 3 == 0:
        share = rng.uniform(1.05, 5) / counts.sum()
    else:
        share = None
    buyer = optimiser.Buyer(*10 ** rng.uniform(-5, 5, 2), 10 ** rng.uniform(-12, 12), share)
    deals = pay.solve_totals(supply, buyer, optimiser.make_totals(1e7)[::4])
    sold = pay.compute_sales(supply, buyer, deals, pay.SellerTypes.of(counts)) / 1e9
    assert counts[counts > 0] @ sold == pytest.approx(deals.asked.eta, rel=1e-8)
    assert np.all(sold * 1e9 <= caps[pay.SellerTypes.of(counts).whose][:, None])
    if share is not None:
        assert np.all(sold <= share * deals.asked.eta * (1 + 1e-12))
