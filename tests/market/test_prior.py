"""Laws of costs, prices, and virtual costs: what a step of price costs on average, ironed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from market.lies import HIGH, LAWS, LOW, two_bumps
from sottovoce.errors import InvalidBounds, InvalidParameter
from sottovoce.market import Prices, prior, virtual_costs

PRICES = Prices.between(LOW, HIGH, 40)


@pytest.mark.parametrize(
    ("law", "full"),
    [
        (prior.normal(2.0, 0.4, LOW, HIGH), stats.norm(2.0, 0.4)),
        (prior.exponential(0.5, LOW, HIGH), stats.expon(scale=0.5)),
        (prior.lognormal(1.5, 0.5, LOW, HIGH), stats.lognorm(0.5, scale=1.5)),
        (prior.uniform(LOW, HIGH), stats.uniform(LOW, HIGH - LOW)),
    ],
)
def test_laws_are_scipys_cut_to_the_range(law, full):
    x = np.linspace(0.5, 3.5, 50)
    inside = np.clip(x, LOW, HIGH)
    expected = (full.cdf(inside) - full.cdf(LOW)) / (full.cdf(HIGH) - full.cdf(LOW))
    assert law.cdf(x) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("law", LAWS[:4], ids=lambda law: law.kind)
def test_regular_laws_need_no_iron_and_come_close_to_cost_plus_ratio(law):
    assert prior.is_regular(law, PRICES)
    fine = Prices.between(LOW, HIGH, 4000)
    c = fine.values[200::400]
    density = (law.cdf(c + 1e-5) - law.cdf(c - 1e-5)) / 2e-5
    assert virtual_costs(law, fine)[200::400] == pytest.approx(c + law.cdf(c) / density, rel=2e-3)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_virtual_costs_never_fall(law):
    assert np.all(np.diff(virtual_costs(law, PRICES)) >= 0)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_expected_payments_are_expected_virtual_costs(law):
    """For every nonincreasing u that is constant where virtual costs are, and at most so for any
    other.
    """
    rng = np.random.default_rng(3)
    share = np.diff(np.append(0.0, law.cdf(PRICES.values)))
    psi = virtual_costs(law, PRICES)
    g = PRICES.values
    rises = np.diff(g, prepend=0.0)
    for _ in range(20):
        u = np.sort(rng.uniform(0, 1, len(g)))[::-1]
        ironed = np.array([u[np.isclose(psi, p)].mean() for p in psi]) * np.isfinite(psi)
        for sold, exact in ((ironed, True), (u * np.isfinite(psi), False)):
            payment = g * sold + np.cumsum((rises * sold)[::-1])[::-1] - rises * sold
            finite = np.isfinite(psi)
            paid = share @ payment
            virtual = share[finite] @ (psi * sold)[finite]
            assert (
                paid == pytest.approx(virtual, rel=1e-6) if exact else paid >= virtual * (1 - 1e-9)
            )


def test_two_bumps_are_irregular_and_ironed_flat():
    assert not prior.is_regular(two_bumps(), PRICES)
    psi = virtual_costs(two_bumps(), PRICES)
    assert np.sum(np.diff(psi) == 0) > 10


def test_a_law_on_a_part_of_the_list_is_paid_no_price_beyond_it():
    psi = virtual_costs(prior.uniform(1.5, 2.0), PRICES)
    assert np.all(np.isfinite(psi) == (PRICES.values < 2.0 + 0.02))
    assert psi[0] == psi[9] < psi[10]


def test_prices_are_whole_exact_and_never_below_what_was_asked():
    prices = Prices.from_values([0.1, 0.2, 0.3])
    assert np.all(prices.values >= [0.1, 0.2, 0.3])
    assert prices.values == pytest.approx([0.1, 0.2, 0.3], rel=1e-7)
    assert np.array_equal(prices.values, prices.whole * 2.0**prices.exponent)
    assert prices.step(np.array([0.0, 0.1, 0.1001, 0.3, 0.4])).tolist() == [0, 0, 1, 2, 3]
    assert prices.up_to(0.25).values == pytest.approx([0.1, 0.2, 0.25], rel=1e-7)
    assert prices.up_to(7.0) is prices


@pytest.mark.parametrize("bad", [(2.0, 1.0), (1.0, 1.0), (-1.0, 1.0), (0.0, np.inf), (np.nan, 1.0)])
def test_ranges_that_are_no_ranges(bad):
    with pytest.raises(InvalidBounds):
        prior.uniform(*bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: prior.normal(2, 0, 1, 3),
        lambda: prior.exponential(-1, 1, 3),
        lambda: prior.lognormal(0, 1, 1, 3),
        lambda: prior.empirical([]),
        lambda: prior.empirical([1.0, np.nan]),
        lambda: prior.normal(1000.0, 0.1, 1, 3),
        lambda: Prices.from_values([1.0, 1.0]),
        lambda: Prices.from_values([]),
        lambda: Prices.from_values([2.0, 1.0]),
        lambda: Prices.between(1.0, 2.0, 0),
        lambda: Prices.between(1.0, 1 + 1e-9, 10),
        lambda: PRICES.up_to(0.0),
    ],
)
def test_laws_and_prices_that_cannot_be_used(make):
    with pytest.raises(InvalidParameter):
        make()
