"""No lie pays, nobody loses by taking part, no budget is exceeded: on random markets, in exact
numbers.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from market.lies import HIGH, LAWS, largest_gain, markets, reports, told, worth
from sottovoce.market import payments

few = settings(max_examples=25, deadline=None)
some = settings(max_examples=60, deadline=None)


@few
@given(markets(sellers=(1, 4), prices=(1, 6)))
def test_no_report_of_a_cost_gains_a_coin(market):
    assert largest_gain(*market) < 1


@few
@given(markets(sellers=(2, 4), prices=(1, 5), reported_caps=True), st.data())
def test_no_report_of_a_cap_with_any_cost_gains_a_coin(market, data):
    costs, public = market
    seller = data.draw(st.integers(0, len(costs) - 1))
    truth = told(costs, public).allocate()
    own = public["cap"][seller]
    for cap in [
        c for c in (0.05, 0.2, 0.5, 1.0) if c < own
    ]:  # ε beyond one's own cap is worth nothing to anybody
        for report in reports(truth):
            lie = told(costs, public, seller, report, cap).allocate()
            assert (
                worth(lie, seller, costs[seller]) - worth(truth, seller, costs[seller]) < truth.coin
            )


@some
@given(markets(sellers=(1, 8), prices=(1, 12)))
def test_nobody_loses_by_taking_part(market):
    costs, public = market
    deal = told(costs, public).allocate()
    for seller, cost in enumerate(costs):
        assert worth(deal, seller, cost) >= 0
        assert deal.units[seller] or not deal.coins[seller]


@some
@given(markets(sellers=(1, 8), prices=(2, 12)))
def test_caps_hold_curves_fall_and_totals_add_up(market):
    costs, public = market
    deal = told(costs, public).allocate()
    assert np.all(deal.epsilon <= public["cap"])
    assert np.all(np.diff(deal.curves, axis=1) <= 0)
    assert deal.total == float(sum(int(c) for c in deal.coins) * deal.coin)
    assert deal.total_epsilon == deal.units.sum() / 1e9
    outside = np.array(costs) > HIGH * (1 + 1e-6)
    assert not deal.units[outside].any()
    assert np.all(deal.refused[outside])
    if deal.units.any():
        assert abs(deal.weights.sum() - 1) < 1e-12


@some
@given(markets(sellers=(1, 5), prices=(2, 8)), st.data())
def test_what_would_be_bought_at_another_price_is_what_is_bought_there_to_the_last_bit(
    market, data
):
    costs, public = market
    seller = data.draw(st.integers(0, len(costs) - 1))
    truth = told(costs, public).allocate()
    for step, price in enumerate(truth.prices.values.tolist()):
        if truth.code[seller] >= 0 and step >= truth.step[seller]:
            there = told(costs, public, seller, price).allocate()
            assert there.units[seller] == truth.curves[truth.code[seller], step]


@some
@given(markets(sellers=(2, 6), prices=(1, 8)), st.randoms())
def test_the_order_of_sellers_does_not_matter(market, random):
    costs, public = market
    order = list(range(len(costs)))
    random.shuffle(order)
    moved = {k: [v[i] for i in order] if isinstance(v, list) else v for k, v in public.items()}
    one = told(costs, public).allocate()
    two = told([costs[i] for i in order], moved).allocate()
    assert np.array_equal(one.units[order], two.units)
    assert np.array_equal(one.coins[order], two.coins)


@some
@given(markets(sellers=(2, 6), prices=(1, 8), reported_caps=False), st.floats(1, 3))
def test_equal_reports_are_treated_alike_and_only_reports_count(market, cost):
    costs, public = market
    if isinstance(public["prior"], list):
        public["prior"] = public["prior"][0]
    else:
        public["prior"] = public["prior"]
    deal = told([cost] * len(costs), public).allocate()
    assert len(set(deal.units.tolist())) == 1
    assert len(set(deal.coins.tolist())) == 1


@few
@given(markets(sellers=(1, 4), prices=(1, 5)), st.floats(1e-3, 30))
def test_a_ceiling_is_truthful_rational_and_within_the_budget(market, budget):
    costs, public = market

    def outcome(m):
        return m.within(budget)

    deal = outcome(told(costs, public))
    assert sum(int(c) for c in deal.coins) <= deal.budget <= Fraction(str(budget)) / deal.coin
    assert deal.unspent == float((deal.budget - sum(deal.coins.tolist())) * deal.coin)
    assert all(worth(deal, i, cost) >= 0 for i, cost in enumerate(costs))
    assert largest_gain(costs, public, outcome) < 1


@settings(max_examples=6, deadline=None)
@given(markets(sellers=(1, 3), prices=(1, 3)), st.floats(1e-2, 10), st.booleans())
def test_scaling_is_truthful_rational_and_within_the_budget(market, budget, exactly):
    costs, public = market

    def outcome(m):
        return m.within(budget, rule="scaling")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payments, "MAX_MOVES", payments.MAX_MOVES if exactly else 0)
        deal = outcome(told(costs, public))
        assert sum(int(c) for c in deal.coins) <= deal.budget
        assert all(worth(deal, i, cost) >= 0 for i, cost in enumerate(costs))
        assert largest_gain(costs, public, outcome) < 1


@few
@given(markets(sellers=(1, 5), prices=(2, 6)), st.floats(0.01, 20), st.floats(1.2, 4))
def test_a_reserve_price_is_never_exceeded(market, budget, reserve):
    costs, public = market
    deal = told(costs, public).within(budget, reserve=reserve)
    assert sum(int(c) for c in deal.coins) <= deal.budget
    above = np.array(costs) > reserve * (1 + 1e-6)
    assert not deal.units[above].any()
    assert np.all(deal.payments <= deal.epsilon * reserve * (1 + 1e-6) + float(deal.coin))


@some
@given(markets(sellers=(1, 6), prices=(1, 8)))
def test_without_payments_the_same_is_bought(market):
    costs, public = market
    m = told(costs, public)
    assume(m.allocate().units.any())
    assert np.all(np.abs(m.allocate(pay=False).units - m.allocate().units) <= 1)


def lies_that_gain(many: int, seed: int, each: int = 20) -> int:
    """How many random misreports of a cost and a cap, ``each`` to a market, gain a coin or more."""
    rng = np.random.default_rng(seed)
    gaining = 0
    for _ in range(many // each):
        sellers = int(rng.integers(1, 9))
        costs = rng.uniform(0.5, 3.5, sellers).tolist()
        caps = rng.choice([0.1, 0.37, 1.0, 2.5], sellers).tolist()
        public = {
            "trade_off": 10 ** rng.uniform(-3, 1),
            "mu": 10 ** rng.uniform(-1, 1),
            "sigma": 10 ** rng.uniform(-1, 2),
        }
        public |= {
            "prior": LAWS[rng.integers(len(LAWS))],
            "prices": int(rng.integers(2, 13)),
            "cap": caps,
        }
        truth = told(costs, public).allocate()
        for _ in range(each):
            i = int(rng.integers(sellers))
            lie = told(
                costs,
                public,
                i,
                float(rng.uniform(0, 4)),
                float(caps[i] * rng.choice([1, rng.random()])),
            )
            gaining += worth(lie.allocate(), i, costs[i]) - worth(truth, i, costs[i]) >= truth.coin
    return gaining


def test_no_random_misreport_of_a_cost_and_a_cap_gains_a_coin():
    assert lies_that_gain(400, seed=1) == 0


@pytest.mark.long
def test_none_of_ten_thousand_random_misreports_gains_a_coin():
    assert lies_that_gain(10_000, seed=2) == 0
