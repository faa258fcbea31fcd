"""What a market says and hands on: words, budgets, a fitted model, a frontier; and what it
refuses.
"""

from __future__ import annotations

import math
import pickle
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.feature_selection import RFE
from sklearn.linear_model import LinearRegression

import sottovoce as sv
from sottovoce.errors import (
    InvalidBounds,
    InvalidBudget,
    InvalidParameter,
    MissingValues,
    UnequalLengths,
    UnknownPeople,
)
from sottovoce.market import Market, constants, prior

PUBLIC = {"cost_range": (1.0, 3.0), "trade_off": 0.02, "mu": 1.0, "sigma": 5.0}
COSTS = {"ada": 1.2, "ben": 1.9, "cleo": 2.9, "dan": 3.5}


def test_constants_are_those_of_the_corrected_bound():
    assert constants(30, norm=5.0) == pytest.approx((23.26, 570.2), rel=1e-3)
    planned = Market([1.0, 2.0], cost_range=(0, 3), trade_off=1.0, dimension=30, norm=5.0)
    given = Market(
        [1.0, 2.0],
        cost_range=(0, 3),
        trade_off=1.0,
        mu=constants(30, 5.0)[0],
        sigma=constants(30, 5.0)[1],
    )
    assert np.array_equal(planned.allocate().units, given.allocate().units)


def test_names_follow_a_mapping_of_costs():
    deal = Market(COSTS, **PUBLIC).allocate()
    by_name = deal.by_person()
    assert list(by_name) == list(COSTS)
    assert by_name["dan"] == 0.0
    assert by_name["ada"] >= by_name["ben"] >= by_name["cleo"] > 0
    assert deal.by_person(["w", "x", "y", "z"])["w"] == by_name["ada"]
    session = sv.Session()
    session.grant(by_name)
    assert session.balance("ada") == by_name["ada"]


def test_the_words_say_what_happened():
    deal = Market(COSTS, **PUBLIC).allocate()
    words = deal.describe()
    assert "3 of 4 sellers" in words
    assert "which sell nothing: 1." in words
    assert "not protected" in words
    assert "above the highest price" in deal.explain("dan")
    assert "rounded up to the price" in deal.explain("ben")
    assert repr(deal).startswith("<Allocation")
    assert "1.2" not in repr(Market(COSTS, **PUBLIC))
    with pytest.raises(UnknownPeople):
        deal.explain("eve")


def test_the_parts_of_an_explanation_add_up_to_the_payment():
    deal = Market(list(COSTS.values()), **PUBLIC).allocate()
    for i in range(3):
        parts = deal._split_payment(i)
        assert sum(amount for amount, _ in parts) == pytest.approx(deal.epsilon[i], rel=1e-9)
        assert sum(amount * at for amount, at in parts) == pytest.approx(
            deal.payments[i], abs=float(deal.coin)
        )
        assert all(at >= deal.prices.values[deal.step[i]] for _, at in parts)


def test_somebody_who_is_too_dear_is_told_so():
    deal = Market([1.0, 1.0, 3.0], **{**PUBLIC, "trade_off": 1e4}).allocate()
    assert not deal.units[2]
    assert "Others sell at a lower virtual cost" in deal.explain(2)


def test_a_model_is_trained_with_exactly_the_budgets_that_were_bought():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    y = (X[:, 0] > 0).astype(int)
    costs = rng.uniform(1, 3.3, 400)
    deal = Market(costs, **{**PUBLIC, "trade_off": 1e-4, "mu": 5.0, "sigma": 60.0}).allocate()
    assert (deal.units == 0).any()
    assert (deal.units > 0).any()
    model = deal.train(sv.Bounds(features=(-1, 1)), X, y)
    assert isinstance(model, sv.LogisticRegression)
    assert np.all(model.guarantee_.epsilon <= deal.epsilon)
    assert np.all(model.guarantee_.epsilon[deal.units == 0] == 0)
    ridge = deal.train(sv.Ridge(bounds=sv.Bounds(features=(-1, 1), label=(0, 1))), X, y)
    assert np.all(ridge.guarantee_.epsilon <= deal.epsilon)


BOX = sv.Bounds(features=(-1, 1), label=(0, 1))
BALL = sv.Bounds(norm=2.0, label=(0, 1))
#: Estimators that would spend what was sold on another promise.
OTHER_PROMISES = {
    "ε at δ": sv.ERM("logistic", bounds=sv.Bounds(features=(-1, 1)), delta=1e-6),
    "ρ": sv.Ridge(bounds=BOX, method="statistics", rho=True),
    "zeroing out": sv.PosteriorSample(gamma=1.0, alpha=5.0, bounds=BALL),
    "labels": sv.LogisticRegression(bounds=sv.Bounds(features=(-1, 1)), neighbours="labels"),
    "labels of a regression": sv.LabelPrivateRegression(label_bounds=(0, 1)),
    "a baseline around labels": sv.Uniform(
        sv.LogisticRegression(bounds=sv.Bounds(features=(-1, 1)), neighbours="labels")
    ),
    "a baseline around ρ": sv.Sampled(sv.Ridge(bounds=BOX, method="statistics", rho=True)),
    "nobody knows": LinearRegression(),
    "fitted again and again, with all that was sold": RFE(sv.Ridge(bounds=BOX)),
}


def deal_and_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    deal = Market(
        rng.uniform(1, 3, 400), **{**PUBLIC, "trade_off": 1e-4, "mu": 5.0, "sigma": 60.0}
    ).allocate()
    return deal, X, (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize("case", OTHER_PROMISES)
def test_what_was_sold_is_not_spent_on_another_promise(case, monkeypatch):
    deal, X, y = deal_and_rows()
    model = clone(OTHER_PROMISES[case])
    monkeypatch.setattr(type(model), "fit", None)  # nothing is read
    with pytest.raises(InvalidParameter, match="Sellers have sold pure epsilon by replace"):
        deal.train(model, X, y)


@pytest.mark.parametrize(
    "account",
    [
        {"currency": "zCDP rho"},
        {"currency": "epsilon, delta", "delta": 1e-6},
        {"neighbours": "replace labels"},
        {"neighbours": "zero out"},
    ],
    ids=str,
)
def test_what_was_sold_is_granted_as_nothing_else(account):
    deal = Market(COSTS, **PUBLIC).allocate()
    session = sv.Session()
    with pytest.raises(InvalidParameter, match="Sellers have sold pure epsilon by replace"):
        session.grant(deal, **account)
    session.grant(deal)
    assert session.balance("ada") == deal.epsilon[0]


def test_baselines_that_keep_what_was_sold_are_trained():
    deal, X, y = deal_and_rows()
    everybody = Market(np.full(400, 1.0), **{**PUBLIC, "trade_off": 1e-4}).allocate()
    for sold, model in (
        (deal, sv.Sampled(sv.Ridge(bounds=BOX))),
        (everybody, sv.Uniform(sv.Ridge(bounds=BOX))),
    ):
        fitted = sold.train(model, X, y)
        assert (fitted.guarantee_.currency, fitted.guarantee_.neighbours) == (
            "pure epsilon",
            "replace",
        )
        assert np.all(fitted.guarantee_.epsilon <= sold.epsilon)


def test_several_rows_of_a_seller_share_what_was_bought():
    deal = Market(COSTS, **PUBLIC).allocate()
    groups = np.repeat(list(COSTS), 5)
    budgets = deal.budgets(groups)
    assert budgets.people.tolist() == sorted(COSTS)
    assert budgets.epsilon.tolist() == deal.epsilon.tolist()
    assert deal.budgets().n_rows == 4


def test_whoever_passes_a_series_or_arrays_gets_the_same():
    costs = list(COSTS.values())
    deals = [Market(c, **PUBLIC).allocate() for c in (costs, np.array(costs), pd.Series(costs))]
    assert all(np.array_equal(deals[0].coins, deal.coins) for deal in deals)
    assert np.array_equal(pickle.loads(pickle.dumps(deals[0])).payments, deals[0].payments)


def test_reported_caps_are_rounded_down_to_the_menu():
    caps = np.array([0.37, 0.055, 1.0, 0.0])
    deal = Market([1.0, 1.0, 1.0, 1.0], **{**PUBLIC, "trade_off": 1e-9}, cap=caps).allocate()
    assert np.all(deal.epsilon <= caps)
    assert deal.epsilon[1] == pytest.approx(0.055, rel=0.2)
    two = Market(
        [1.0, 1.0, 1.0, 1.0], **{**PUBLIC, "trade_off": 1e-9}, cap=caps, menu=[0.37, 1.0]
    ).allocate()
    assert two.epsilon[1] == 0


def test_extreme_trade_offs():
    cheap = Market([1.0, 2.0, 3.0], **{**PUBLIC, "trade_off": 1e-12}).allocate()
    assert cheap.epsilon.tolist() == [1.0, 1.0, 1.0]
    assert cheap.payments == pytest.approx([3.0] * 3, rel=1e-6)
    dear = Market([1.0, 2.0, 3.0], **{**PUBLIC, "trade_off": 1e20}).allocate()
    assert 0 < dear.total_epsilon <= 1.1e-6


def test_nobody_more_than_their_share():
    deal = Market(np.linspace(1, 3, 30), **PUBLIC, largest_share=1.5).allocate()
    assert deal.weights.max() <= 1.5 / 30 * (1 + 1e-6)
    with pytest.raises(InvalidParameter):
        Market([1.0], **PUBLIC, largest_share=0.5)


def test_when_no_report_fits_the_law_nothing_is_bought():
    deal = Market([5.0, 6.0], **PUBLIC).allocate()
    assert not deal.units.any()
    assert deal.total == 0
    assert deal.expected_error == math.inf
    assert deal.weights.tolist() == [0.0, 0.0]
    assert "which sell nothing: 2." in deal.describe()
    alone = Market([2.0], **PUBLIC).allocate()
    assert alone.payments[0] == pytest.approx(3 * alone.epsilon[0], rel=0.3)


def test_a_report_below_the_range_is_rounded_up_like_any_other():
    deal = Market([0.0, 1.0, 2.0], **PUBLIC).allocate()
    assert deal.step[0] == 0
    assert deal.epsilon[0] >= deal.epsilon[1]


def test_a_budget_of_less_than_a_coin_for_everybody_buys_nothing():
    deal = Market([1.0, 2.0], **PUBLIC, coin=0.01).within(0.015)
    assert not deal.units.any()
    assert deal.unspent == 0.01
    assert "unspent" in deal.describe()


def test_a_frontier_trades_errors_for_money():
    frontier = Market(np.linspace(1, 3, 50), **PUBLIC).frontier([1e-4, 1e-3, 1e-2, 1e-1, 1.0])
    points = list(frontier)
    assert len(frontier) == 5
    assert all(a.payment >= b.payment for a, b in pairwise(points))
    assert all(a.expected_error <= b.expected_error for a, b in pairwise(points))
    assert len(frontier.describe().splitlines()) == 3 * 6
    picture = ElementTree.fromstring(frontier.svg())
    circles = picture.findall("{http://www.w3.org/2000/svg}circle")
    assert [circle.get("class") for circle in circles] == ["own"] * 5 + ["second"] * 5


@pytest.mark.parametrize("prior", [None, [sv.market.prior.uniform(1, 5)] * 100])
def test_the_published_objective_is_beside_a_frontier(prior):
    costs = np.random.default_rng(6).uniform(1, 5, 100)
    market = Market(costs, cost_range=(1, 5), prior=prior, trade_off=1.0, dimension=3, prices=4000)
    found = market.frontier([0.01, 0.1])
    (_, published), (_, naive) = found.others
    for point in published:  # its own problem, without data, at the virtual costs 2c − low
        epsilon, _ = sv.market.continuous(2 * costs - 1, *sv.market.constants(3), point.trade_off)
        assert point.total_epsilon == pytest.approx(epsilon.sum(), rel=2e-3)
        assert point.payment == pytest.approx(epsilon @ (2 * costs - 1), rel=2e-3)
        mu, sigma = sv.market.constants(3)
        bound = mu * np.linalg.norm(epsilon / epsilon.sum()) + sigma / epsilon.sum()
        assert point.expected_error == pytest.approx(bound, rel=2e-3)
    assert all(point.payment == 0 and point.expected_error == math.inf for point in naive)


def test_a_frontier_without_anybody_can_be_drawn():
    assert ElementTree.fromstring(Market([9.0, 9.0], **PUBLIC).frontier([1.0]).svg()) is not None


def test_scaling_spends_more_than_a_ceiling_where_costs_are_low():
    market = Market([1.0, 1.1, 1.3, 1.2], **PUBLIC, prices=16)
    ceiling = market.within(2.0)
    scaling = market.within(2.0, rule="scaling")
    assert scaling.total <= 2.0
    assert ceiling.total <= 2.0
    assert scaling.unspent >= 0
    assert scaling.total > 1.5


def test_payments_not_asked_for_are_not_shown():
    deal = Market([1.0, 2.0], **PUBLIC).allocate(pay=False)
    assert deal.units.any()
    assert "Bought" in deal.describe()
    with pytest.raises(InvalidParameter):
        _ = deal.payments


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"costs": []}, InvalidParameter),
        ({"costs": [-1.0, 2.0]}, InvalidParameter),
        ({"costs": [np.nan, 2.0]}, MissingValues),
        ({"costs": [np.inf, 2.0]}, MissingValues),
        ({"costs": ["a", "b"]}, sv.errors.WrongType),
        ({"trade_off": 0.0}, InvalidParameter),
        ({"trade_off": -1.0}, InvalidParameter),
        ({"trade_off": 2.6e307}, InvalidParameter),
        ({"trade_off": 1e-40}, InvalidParameter),
        ({"cost_range": (1e46, 1e83)}, InvalidBounds),
        ({"cost_range": (0.0, 1e-20)}, InvalidBounds),
        ({"cost_range": (0.0, 1e307)}, InvalidBounds),
        ({"coin": 1e-40}, InvalidParameter),
        ({"trade_off": np.nan}, InvalidParameter),
        ({"trade_off": "much"}, InvalidParameter),
        ({"mu": 0.0}, InvalidParameter),
        ({"sigma": -1.0}, InvalidParameter),
        ({"mu": None, "sigma": None}, InvalidParameter),
        ({"mu": None, "sigma": None, "dimension": 0}, InvalidParameter),
        ({"cost_range": (3.0, 1.0)}, InvalidBounds),
        ({"cost_range": None}, InvalidBounds),
        ({"cap": 0.0}, InvalidParameter),
        ({"cap": -1.0}, InvalidBudget),
        ({"cap": 1e4}, InvalidParameter),
        ({"cap": [1.0]}, UnequalLengths),
        ({"cap": [np.nan, 1.0]}, InvalidBudget),
        ({"coin": 0.0}, InvalidParameter),
        ({"prices": 0}, InvalidParameter),
        ({"prior": [prior.uniform(1, 3)]}, UnequalLengths),
    ],
)
def test_what_is_refused_and_by_which_name(change, error):
    given = {"costs": [1.0, 2.0], **PUBLIC, **change}
    with pytest.raises(error) as caught:
        Market(given.pop("costs"), **given)
    assert caught.value.remedy


@pytest.mark.parametrize("budget", [0.0, -1.0, np.nan, np.inf, "all"])
def test_budgets_that_are_no_budgets(budget):
    with pytest.raises(InvalidParameter):
        Market([1.0, 2.0], **PUBLIC).within(budget)
    with pytest.raises(InvalidParameter):
        Market([1.0, 2.0], **PUBLIC).within(1.0, rule="hope")
    with pytest.raises(InvalidParameter):
        Market([1.0, 2.0], **PUBLIC).within(1.0, reserve=-1.0)
