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

from sottovoce import units
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
