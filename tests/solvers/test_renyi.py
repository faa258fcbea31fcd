"""Rényi curves by quadrature, their conversion by dp-accounting, and how losses add up, with
counterexamples.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as rdp
from scipy.stats import norm

from sottovoce import errors
from sottovoce.accounting import renyi
from sottovoce.accounting.profiles import gaussian_epsilon, posterior_epsilon

ORDERS = 1 + np.exp(np.linspace(-7, 16, 4001))


def by_quadrature(mu, a, order, reverse=False):
    """log E_q[(p/q)^α]/(α−1) for W ~ N(a, μ) without and N(m, s²) with the record."""
    with mpmath.workdps(20):
        laws = [(a, math.sqrt(mu)), (a / (1 + mu), math.sqrt(mu / (1 + mu)))]
        if reverse:
            (m0, s0), (m1, s1) = reversed(laws)
        else:
            (m0, s0), (m1, s1) = laws

        def integrand(x):
            return mpmath.npdf(x, m0, s0) ** order * mpmath.npdf(x, m1, s1) ** (1 - order)

        top = (order * m0 / s0**2 + (1 - order) * m1 / s1**2) / (
            order / s0**2 + (1 - order) / s1**2
        )
        wide = 1 / math.sqrt(order / s0**2 + (1 - order) / s1**2)
        total = mpmath.quad(integrand, [top + k * wide for k in (-14, -6, -2, 0, 2, 6, 14)])
        return float(mpmath.log(total) / (order - 1))


@pytest.mark.parametrize(("mu", "a"), [(0.05, 1.0), (0.4, 0.0), (1.5, 2.0), (1e-3, 3.0)])
def test_curves_agree_with_quadrature(mu, a):
    for share in (0.05, 0.5, 0.9):
        order = 1 + share / mu
        ours = renyi.compute_posterior_curve(mu, a, [order, (1 + 1 / mu) * (1 + 1e-12), 2 + 1 / mu])
        assert ours[0] == pytest.approx(by_quadrature(mu, a, order), rel=1e-9)
        assert np.all(np.isinf(ours[1:]))  # not zCDP: no order from 1 + 1/μ on
        there = renyi.compute_reverse_posterior_curve(mu, a, [order])[0]
        assert there == pytest.approx(by_quadrature(mu, a, order, reverse=True), rel=1e-9)


def test_curves_dominate_and_grow_without_restriction():
    rng = np.random.default_rng()
    mu = np.exp(rng.uniform(-18, 5, 3000))
    a = np.exp(rng.uniform(-8, 6, 3000))
    adding = renyi.compute_posterior_curve(mu, a)
    finite = np.isfinite(adding)
    assert np.all(
        adding[finite] >= renyi.compute_reverse_posterior_curve(mu, a)[finite] * (1 - 1e-12)
    )
    assert np.all(
        renyi.compute_posterior_curve(mu * 1.5, a)[finite] >= adding[finite] * (1 - 1e-12)
    )
    assert np.all(
        renyi.compute_posterior_curve(mu, a * 1.5)[finite] >= adding[finite] * (1 - 1e-12)
    )


def test_tiny_leverages_lose_no_digits():
    mu = 1e-9
    order = 3.0
    with mpmath.workdps(50):
        m = mpmath.mpf(mu)
        b = mpmath.mpf(order) - 1
        exact = -mpmath.log(1 + m) / 2 - mpmath.log(1 - b * m) / (2 * b)
        assert renyi.compute_posterior_curve(mu, 0.0, [order])[0] == pytest.approx(
            float(exact), rel=1e-12
        )
        share = m / (1 + m)
        exact = mpmath.log(1 + m) / 2 - mpmath.log(1 + b * share) / (2 * b)
        assert renyi.compute_reverse_posterior_curve(mu, 0.0, [order])[0] == pytest.approx(
            float(exact), rel=1e-12
        )


def test_conversion_is_dp_accountings_and_never_below_the_truth():
    for mu, a in ((0.1, 1.9), (0.01, 6.3), (1.0, 1.0)):
        curve = renyi.compute_posterior_curve(mu, a, ORDERS)
        finite = np.isfinite(curve)
        theirs, _ = rdp.compute_epsilon(ORDERS[finite], curve[finite], 1e-6)
        ours = float(renyi.convert_to_epsilon(curve, 1e-6, ORDERS))
        assert ours == pytest.approx(theirs, rel=1e-9)
        assert (
            1.05 < ours / posterior_epsilon(mu, a, 1e-6) < 1.25
        )  # what exactness buys: 11, 6 and 22 %
        assert renyi.convert_to_log_delta(curve, ours, ORDERS) == pytest.approx(
            math.log(1e-6), rel=1e-9
        )
    curve = renyi.compute_posterior_curve(0.1, 1.9, ORDERS)
    assert f"{renyi.convert_to_epsilon(curve, 1e-6, ORDERS):.3f}" == "4.150"
    D = np.array([0.01, 0.3, 2.0])
    assert np.all(
        renyi.convert_to_epsilon(renyi.compute_gaussian_curve(D), 1e-6) >= gaussian_epsilon(D, 1e-6)
    )


def test_curves_add_up_over_releases():
    """Two samples of one posterior lose what 2·curve says: by quadrature of the exact joint law on
    the line, a = 0.
    """
    one = renyi.compute_posterior_curve(np.array([0.2, 0.02]), np.array([0.0, 1.0]))
    two = renyi.convert_to_epsilon(2 * one, 1e-3)
    assert two.shape == (2,)
    assert np.all(two > renyi.convert_to_epsilon(one, 1e-3))
    rng = np.random.default_rng()
    w = rng.normal(
        0, math.sqrt(0.2), (400_000, 2)
    )  # without the record; loss (W² − log(1+μ))/2 for each sample
    loss = (w**2 - math.log1p(0.2)).sum(axis=1) / 2
    assert np.maximum(-np.expm1(two[0] - loss), 0).mean() <= 1e-3 + 1e-4


def test_groups_need_their_products_over_the_right_records():
    """P₀(S) = 0, P₁(S) = .01, P₁₂(S) = .02: the published second line claims .02 ≤ .01."""
    epsilon, delta = renyi.group([0.0, math.log(2)], [0.01, 0.0])
    assert epsilon == pytest.approx(math.log(2))
    assert math.exp(epsilon) * 0.0 + delta >= 0.02
    as_printed = 0.01 * 1 + 0.0 * 1  # products over j < i, in both directions
    assert as_printed < 0.02
    reverse = renyi.group([math.log(2), 0.0], [0.0, 0.01])
    assert reverse[1] == pytest.approx(0.02)
    assert renyi.group([0.3], [0.1]) == pytest.approx((0.3, 0.1))


def test_advanced_composition_covers_gaussian_noise_and_never_exceeds_the_sum():
    """Randomised response k times is exactly pure; its composed δ at ε̃ stays below the slack."""
    epsilon = 0.2
    k = 50
    slack = 1e-3
    total, delta = renyi.compose_advanced(np.full(k, epsilon), np.zeros(k), slack)
    assert delta == slack
    assert total < k * epsilon
    yes = np.arange(k + 1)
    loss = (2 * yes - k) * epsilon
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    probability = np.exp(
        [math.lgamma(k + 1) - math.lgamma(j + 1) - math.lgamma(k - j + 1) for j in yes]
    )
    probability = probability * p**yes * (1 - p) ** (k - yes)
    assert np.sum(probability * np.maximum(-np.expm1(total - loss), 0)) <= slack
    forgotten = (
        math.sqrt(2 * k * math.log(1 / slack)) * epsilon
    )  # the published line leaves out the drift
    assert forgotten < total
    assert renyi.compose_advanced([3.0, 4.0], [0.0, 0.0], 1e-6)[0] == 7.0
    assert renyi.compose_simple([[1.0, 2.0], [0.5, 0.25]], [[1e-6, 0.0], [1e-6, 1e-7]])[
        0
    ].tolist() == [1.5, 2.25]


def test_generalisation_needs_the_exponential_before_delta():
    """n = 1, D = (.9 z₀, .1 z₁), D' = z₁; A({z₁}) = 1 with probability ½, else 0: the gap is .45,
    printed .05.
    """
    epsilon = np.zeros((1, 10))
    delta = np.array([[0.0] * 9 + [0.5]])
    gap = 0.5 - 0.1 * 0.5
    bound = renyi.generalisation(epsilon, delta, target=([[0.0]], [[0.5]]))
    assert bound == pytest.approx(0.55)
    assert delta.mean() + 0.0 * 0.5 == pytest.approx(0.05)  # δ(Z, z') + ε·δ(Z, z''), as printed
    assert 0.05 < gap <= bound
    assert renyi.simple_generalisation(epsilon, 0.5, [[0.0]]) >= bound
    rng = np.random.default_rng()
    many = rng.exponential(0.1, (20, 50))
    assert renyi.simple_generalisation(many, 1e-3) >= renyi.generalisation(
        many, np.full(many.shape, 1e-3)
    )


def test_orders_below_one_are_refused():
    with pytest.raises(errors.InvalidParameter):
        renyi.compute_posterior_curve(0.1, 1.0, [1.0, 2.0])


def test_an_exact_profile_must_not_be_smaller_than_its_curve_says_it_could_be():
    """Markov's inequality from any order bounds the tail of the loss; the exact δ stays below
    it.
    """
    mu = 0.3
    a = 1.2
    w = np.linspace(0, 60, 200_001)[1:]
    epsilon = (w**2 - math.log1p(mu) - a * a / (1 + mu)) / 2
    tails = norm.sf(w, a, math.sqrt(mu)) + norm.cdf(-w, a, math.sqrt(mu))
    curve = renyi.compute_posterior_curve(mu, a, ORDERS)
    for k in np.flatnonzero(np.isfinite(curve))[::200]:
        bound = (ORDERS[k] - 1) * (curve[k] - epsilon)
        assert np.all(np.log(np.maximum(tails, 1e-300)) <= np.maximum(bound, -690) + 1e-9)
