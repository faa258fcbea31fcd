"""What a seller is worth to themselves, exactly, and everything they could have said instead."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from sottovoce.market import Market, prior

LOW = 1.0
HIGH = 3.0


def two_bumps(low: float = LOW, high: float = HIGH, steep: float = 0.04) -> prior.Prior:
    """Half of the sellers near the lower end and half near the upper: virtual costs fall in
    between.
    """
    peaks = low + 0.2 * (high - low), low + 0.8 * (high - low)
    width = steep * (high - low)
    return prior.given(
        lambda x: sum(1 / (1 + np.exp(-(x - peak) / width)) for peak in peaks), low, high
    )


LAWS = (
    prior.uniform(LOW, HIGH),
    prior.normal(2.0, 0.4, LOW, HIGH),
    prior.exponential(0.5, LOW, HIGH),
    prior.lognormal(1.5, 0.5, LOW, HIGH),
    prior.empirical([1.0, 1.1, 1.1, 2.5, 3.0]),
    two_bumps(),
)


@st.composite
def markets(draw, sellers=(1, 5), prices=(1, 7), reported_caps=None):
    """Small markets of every sort: (reported costs, all that is public)."""
    m = draw(st.integers(*sellers))
    costs = draw(
        st.lists(
            st.floats(0.5, 3.5) | st.sampled_from([1.0, 1.5, 2.0, 3.0]), min_size=m, max_size=m
        )
    )
    public = {
        "trade_off": 10 ** draw(st.floats(-6, 4)),
        "mu": 10 ** draw(st.floats(-2, 2)),
        "sigma": draw(st.sampled_from([0.0, 0.1, 10.0, 500.0])),
        "prices": draw(st.integers(*prices)),
        "prior": draw(st.sampled_from(LAWS)),
        "coin": draw(st.sampled_from([None, 0.01, 0.5])),
        "largest_share": draw(st.sampled_from([None, None, 1.5, 3.0])),
    }
    if draw(st.booleans()) if reported_caps is None else reported_caps:
        public["cap"] = draw(
            st.lists(st.sampled_from([0.0, 0.1, 0.37, 1.0, 2.5]), min_size=m, max_size=m)
        )
        if not any(public["cap"]):
            public["cap"][0] = 1.0
    else:
        public["cap"] = draw(st.sampled_from([0.01, 0.5, 1.0, 30.0]))
    if draw(st.booleans()):
        public["prior"] = draw(st.lists(st.sampled_from(LAWS), min_size=m, max_size=m))
    return costs, public


def told(costs, public, seller=None, report=None, cap=None):
    """The market in which one seller reports something else."""
    costs = list(costs)
    public = dict(public)
    if report is not None:
        costs[seller] = report
    if cap is not None:
        public["cap"] = [*public["cap"][:seller], cap, *public["cap"][seller + 1 :]]
    return Market(costs, **public)


def worth(deal, seller: int, cost: float) -> Fraction:
    """Payment less cost, with no rounding of its own."""
    spent = Fraction(int(deal.units[seller]), 10**9)
    return int(deal.coins[seller]) * deal.coin - Fraction(cost) * spent


def reports(deal) -> list[float]:
    """One report for every step of the list, and some that belong to no step."""
    return [0.0, *deal.prices.values.tolist(), float(deal.prices.values[-1]) * 1.5]


def largest_gain(costs, public, outcome=Market.allocate):
    """The most that any seller gains by any report, in coins."""
    truth = outcome(told(costs, public))
    gains = [Fraction(0)]
    for seller, cost in enumerate(costs):
        for report in reports(truth):
            lie = outcome(told(costs, public, seller, report))
            gains.append((worth(lie, seller, cost) - worth(truth, seller, cost)) / truth.coin)
    return max(gains)
