"""Conversions to (ε, δ): never too small, as small as the formulas allow, and equal to
dp-accounting's.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from dp_accounting.rdp import rdp_privacy_accountant as rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce import arrays, units
from sottovoce.accounting import renyi

RHO = (1e-9, 1e-5, 1e-3, 0.05, 1.0, 30.0, 1e4)
DELTA = (1e-12, 1e-6, 1e-3, 0.3)
every_pair = pytest.mark.parametrize(("rho", "delta"), [(r, d) for r in RHO for d in DELTA])
#: Orders near one another, so that dp-accounting's minimum over them is near the infimum.
ORDERS = 1 + np.exp(np.linspace(-16, 22, 4001))


@every_pair
def test_zcdp_is_converted_as_dp_accounting_does_it_over_many_orders(rho, delta):
    ours = float(renyi.zcdp_epsilon(rho, delta))
    theirs, _ = rdp.compute_epsilon(ORDERS, rho * ORDERS, delta)
    assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-9)
    assert ours <= rho + 2 * math.sqrt(
        rho * math.log(1 / delta)
    )  # the older conversion is never smaller


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        mu = mpmath.mpf(mu)
        epsilon = mpmath.mpf(epsilon)
        upper = mu / 2 - epsilon / mu
        lower = -mu / 2 - epsilon / mu
        return mpmath.ncdf(upper) - mpmath.exp(epsilon) * mpmath.ncdf(lower)


@every_pair
def test_gaussian_noise_is_converted_exactly_and_on_the_safe_side(rho, delta):
    ours = float(renyi.gaussian_epsilon(rho, delta))
    assert exact_delta(math.sqrt(2 * rho), ours - renyi.LATTICE_EPSILON) <= delta
    assert ours <= float(renyi.zcdp_epsilon(rho, delta)) + renyi.LATTICE_EPSILON
    theirs = gaussian_mechanism.get_epsilon_gaussian(1 / math.sqrt(2 * rho), delta)
    assert ours == pytest.approx(theirs, rel=1e-5, abs=3e-9)


@settings(max_examples=80, deadline=None)
@given(st.floats(-9, 6), st.floats(-12, -0.1))
def test_what_a_grant_is_worth_converts_back_to_no_more_than_the_grant(log_epsilon, log_delta):
    epsilon = 10.0**log_epsilon
    delta = 10.0**log_delta
    rho = renyi.gaussian_rho(epsilon, delta)
    assert renyi.gaussian_epsilon(units.to_epsilon(rho), delta) <= epsilon
    more = units.to_epsilon(rho) * (1 + 1e-8) + 4e-9
    assert renyi.gaussian_epsilon(more, delta) > epsilon * (1 - 1e-9)


def test_nothing_granted_is_worth_nothing_and_nothing_spent_costs_nothing():
    assert renyi.gaussian_rho([0.0, 1e-10], 0.01).tolist() == [0, 0]
    assert renyi.gaussian_epsilon([0.0], 0.01).tolist() == [0.0]
    assert renyi.zcdp_epsilon([0.0], 0.01).tolist() == [0.0]


def test_conversions_are_monotone():
    rho = np.geomspace(1e-9, 1e4, 400)
    for convert in (renyi.zcdp_epsilon, renyi.gaussian_epsilon):
        assert np.all(np.diff(convert(rho, 1e-6)) >= 0)
        assert np.all(convert(rho, 1e-6) >= convert(rho, 1e-5))


@pytest.mark.parametrize("sigma", [0.8, 1.5, 4.0, 20.0])
def test_noise_on_a_lattice_is_close_to_rounded_noise_as_the_lemma_says(sigma):
    """The two inequalities behind LATTICE_EPSILON and LATTICE_DELTA, for one coordinate, with 50
    digits.
    """
    with mpmath.workdps(50):
        s = mpmath.mpf(sigma)
        total = mpmath.nsum(lambda x: mpmath.npdf(x, 0, s), [-mpmath.inf, mpmath.inf])
        for x in range(0, int(8 * sigma) + 2):
            lattice = mpmath.npdf(x, 0, s) / total
            rounded = mpmath.ncdf((x + mpmath.mpf(0.5)) / s) - mpmath.ncdf(
                (x - mpmath.mpf(0.5)) / s
            )
            assert lattice <= mpmath.exp(1 / (24 * s**2)) * rounded
            assert rounded <= mpmath.exp(x**2 / (8 * s**4)) * total * lattice
        assert 1 <= total <= 1 + 3 * mpmath.exp(-2 * mpmath.pi**2 * s**2)


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_a_few_numbers_are_told_apart_as_by_a_sort(kind):
    rng = np.random.default_rng(0)
    for distinct in (1, 3, 16):
        numbers = rng.choice(rng.permutation(1000)[:distinct], 5000).astype(kind)
        found, which = arrays.number_few(numbers)
        wanted, codes = np.unique(numbers, return_inverse=True)
        assert found.tolist() == wanted.tolist()
        assert which.tolist() == codes.tolist()
    assert arrays.number_few(rng.integers(0, 17, 5000).astype(kind)) is None
    rare = np.zeros(5000, dtype=kind)
    rare[1] = 1  # no place that is looked at first
    assert arrays.number_few(rare) is None
    assert arrays.number_distinct(rare.astype(np.int64))[0].tolist() == [0, 1]
    assert arrays.number_few(np.array([0.0, np.nan])) is None
    assert arrays.number_few(np.zeros(0)) is None


@pytest.mark.parametrize(
    "shape", [(0, 3), (1, 3), (341, 3), (342, 3), (1000, 3), (7, 2000), (5, 0)]
)
def test_columns_are_combined_whatever_the_shape(shape):
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=shape)
    numbers = rng.normal(size=shape[1])
    for table in (matrix, np.asfortranarray(matrix)):
        found = arrays.combine_columns(np.subtract, table, numbers, np.empty(shape))
        assert found.tolist() == (matrix - numbers).tolist()


@pytest.mark.parametrize("ends", [(0.1, 1.0), (1e-9, 1e-3), (1e-6, 1e5)])
def test_very_many_budgets_are_converted_as_few_are(ends, monkeypatch):
    """By guesses that are confirmed: within a unit, or 10⁻¹⁰, of halving for each of them, and
    never worth more than the grant.
    """
    rng = np.random.default_rng(6)
    epsilon = np.exp(rng.uniform(*np.log(ends), 12_000))
    epsilon[:3] = 0.0
    guessed = renyi.gaussian_rho(epsilon, 1e-6)
    back = renyi.gaussian_epsilon(units.to_epsilon(guessed), 1e-6)
    assert np.all(back <= epsilon)
    monkeypatch.setattr(renyi, "MANY", 10**9)
    assert np.all(np.abs(guessed - renyi.gaussian_rho(epsilon, 1e-6)) <= 2 + 1e-10 * guessed)
    halved = renyi.gaussian_epsilon(units.to_epsilon(guessed), 1e-6)
    assert np.allclose(back, halved, rtol=1e-10, atol=0)
    assert np.all(halved <= epsilon * (1 + 1e-10))
