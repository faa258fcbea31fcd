"""Shares of a budget: they add up, make errors equal, and price what is wanted, or refuse it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.budgets import Budgets
from sottovoce.errors import BudgetExceeded, InvalidParameter
from sottovoce.estimators.report_shares import (
    WHOLE,
    choose_shares,
    divide_budgets,
    normalise_shares,
    price_errors,
)


@given(
    shares=st.lists(st.integers(1, 10**6), min_size=1, max_size=40),
    grants=st.lists(st.floats(1e-9, 1e6), min_size=2, max_size=20),
)
@settings(deadline=None)
def test_parts_add_up_to_the_whole_budget_in_whole_units(shares, grants):
    budgets = Budgets.of(grants)
    counted = normalise_shares({str(place): share for place, share in enumerate(shares)})
    assert sum(counted.values()) == WHOLE
    parts = divide_budgets(budgets, list(counted.values()))
    total = sum(part.kinds.epsilon for part in parts)
    assert np.array_equal(total, budgets.kinds.epsilon)
    for part, share in zip(parts, counted.values(), strict=True):
        assert part.kinds.epsilon.dtype == np.int64
        exact = [int(units) * share for units in budgets.kinds.epsilon]
        apart = [
            abs(int(units) * WHOLE - whole)
            for units, whole in zip(part.kinds.epsilon, exact, strict=True)
        ]
        assert max(apart) < 2 * WHOLE  # within two units of the exact share


@given(shares=st.lists(st.integers(0, 10**5), min_size=1, max_size=9))
@settings(deadline=None)
def test_parts_of_less_than_the_whole_are_no_more_than_that(shares):
    budgets = Budgets.of([1e-9, 0.3, 1.0, 1e6])
    total = sum(part.kinds.epsilon for part in divide_budgets(budgets, shares))
    exact = [int(units) * sum(shares) // WHOLE for units in budgets.kinds.epsilon]
    assert total.tolist() == exact


@pytest.mark.parametrize("shares", [[600_000, 400_001], [-1, 5], [0.5, 0.5], [WHOLE, 1]])
def test_shares_that_are_too_much_or_no_millionths_are_refused(shares):
    with pytest.raises(BudgetExceeded):
        divide_budgets(Budgets.of([1.0, 0.5]), shares)


def make_curves(sizes, floor=0.0):
    """Errors that fall as one over the share, to a floor each."""
    return {
        str(place): lambda share, size=size: math.hypot(size * WHOLE / share, floor)
        for place, size in enumerate(sizes)
    }


@given(sizes=st.lists(st.floats(1, 100), min_size=2, max_size=12))
@settings(deadline=None, max_examples=50)
def test_shares_make_errors_equal(sizes):
    curves = make_curves(sizes)
    shares = choose_shares(curves)
    assert sum(shares.values()) == WHOLE
    errors = [curves[name](share) for name, share in shares.items()]
    assert max(errors) <= sum(sizes) * 1.02  # what equal errors would be, Σ sizes
    assert max(errors) / min(errors) < 1.1


def test_no_other_shares_have_a_smaller_largest_error():
    curves = make_curves([1.0, 3.0, 0.2], floor=2.0)
    shares = choose_shares(curves)
    largest = max(curves[name](share) for name, share in shares.items())
    rng = np.random.default_rng(5)
    for _ in range(2000):
        other = rng.dirichlet([1, 1, 1]) * WHOLE
        found = max(
            curve(max(share, 1.0)) for curve, share in zip(curves.values(), other, strict=True)
        )
        assert largest <= found * 1.005


def test_a_wanted_error_costs_the_smallest_share_that_meets_it():
    curves = make_curves([1.0, 2.0])
    shares = price_errors(curves, {"0": 4.0, "1": 10.0}, {"0": "0", "1": "1"})
    assert shares == {"0": 250_000, "1": 200_000}


def test_what_cannot_be_had_is_refused_with_what_it_would_cost():
    curves = make_curves([1.0, 2.0])
    with pytest.raises(InvalidParameter, match=r"'0' cannot be had.* is 1\.") as alone:
        price_errors(curves, {"0": 0.5}, {"0": "0", "1": "1"})
    assert alone.value.parameter == "wanted"
    with pytest.raises(InvalidParameter, match=r"1\.5 times what they grant"):
        price_errors(curves, {"0": 2.0, "1": 2.0}, {"0": "0", "1": "1"})
