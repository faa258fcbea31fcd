"""Per-instance profiles: 60 digits, published counterexamples, theorems on random records,
simulation, planted bugs.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from scipy.special import ndtr
from scipy.stats import norm

from sottovoce import errors
from sottovoce.accounting import profiles
from sottovoce.accounting.profiles import (
    gaussian_epsilon,
    gaussian_log_delta,
    posterior_epsilon,
    posterior_log_delta,
)
from sottovoce.audit import leverages, mechanisms

#: Records for 60 digits: leverages and δ over all magnitudes, and one in ten with a residual of 0.
RECORDS = 500
GOLDEN = (1 + math.sqrt(5)) / 2
#: The chance that a Monte Carlo mean is rejected although it is right.
FALSE_ALARM = 1e-8


def drawn(n, largest_a=1e3, rng=None):
    if rng is None:
        rng = np.random.default_rng()
    mu = np.exp(rng.uniform(math.log(1e-9), math.log(300), n))
    a = np.where(
        rng.random(n) < 0.1, 0.0, np.exp(rng.uniform(math.log(1e-5), math.log(largest_a), n))
    )
    return mu, a, np.exp(rng.uniform(math.log(1e-12), math.log(0.1), n))


def tail(x):
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def exactly(mu, a, epsilon, digits=60):
    """δ for adding, as defined, and −dδ/dε = e^ε·Q(L > ε)."""
    with mpmath.workdps(digits):
        mu = mpmath.mpf(float(mu))
        a = mpmath.mpf(float(a))
        epsilon = mpmath.mpf(float(epsilon))
        w = mpmath.sqrt(mpmath.log(1 + mu) + a**2 / (1 + mu) + 2 * epsilon)
        m = a / (1 + mu)
        s = mpmath.sqrt(mu / (1 + mu))
        root = mpmath.sqrt(mu)
        slope = mpmath.exp(epsilon) * (tail((w - m) / s) + tail((w + m) / s))
        return tail((w - a) / root) + tail((w + a) / root) - slope, slope


def exactly_removing(mu, a, epsilon, digits=60):
    with mpmath.workdps(digits):
        mu = mpmath.mpf(float(mu))
        a = mpmath.mpf(float(a))
        epsilon = mpmath.mpf(float(epsilon))
        w = mpmath.sqrt(mpmath.log(1 + mu) + a**2 / (1 + mu) - 2 * epsilon)
        m = a / (1 + mu)
        s = mpmath.sqrt(mu / (1 + mu))
        root = mpmath.sqrt(mu)
        with_it = tail((m - w) / s) - tail((m + w) / s)
        return with_it - mpmath.exp(epsilon) * (tail((a - w) / root) - tail((a + w) / root))


def exactly_gaussian(D, epsilon):
    with mpmath.workdps(60):
        D = mpmath.mpf(float(D))
        epsilon = mpmath.mpf(float(epsilon))
        slope = mpmath.exp(epsilon) * tail(D / 2 + epsilon / D)
        return tail(epsilon / D - D / 2) - slope, slope


def errors_in_epsilon(found, deltas, exact):
    """Relative errors, by the slope at what was found; where 0 was found, δ(0) must be small
    enough.
    """
    relative = []
    for k, (epsilon, delta) in enumerate(zip(found, deltas, strict=True)):
        reached, slope = exact(k, epsilon)
        if epsilon == 0:
            assert reached <= delta
        else:
            relative.append(abs(float((reached - mpmath.mpf(float(delta))) / slope)) / epsilon)
    return np.array(relative)


def test_epsilon_of_a_posterior_agrees_with_sixty_digits():
    mu, a, delta = drawn(RECORDS)
    relative = errors_in_epsilon(
        posterior_epsilon(mu, a, delta), delta, lambda k, e: exactly(mu[k], a[k], e)
    )
    assert len(relative) > RECORDS / 2
    assert relative.max() < 1e-10


def test_delta_of_a_posterior_agrees_with_sixty_digits():
    mu, a, delta = drawn(RECORDS, largest_a=300.0)
    epsilon = posterior_epsilon(mu, a, delta) * np.random.default_rng().uniform(0.5, 1, RECORDS)
    # Beyond a√μ = 100 an ε that is right to the last place says less about δ than this.
    fair = (epsilon > 0) & (a * np.sqrt(mu) < 100)
    ours = posterior_log_delta(mu, a, epsilon)
    for k in np.flatnonzero(fair):
        exact, _ = exactly(mu[k], a[k], epsilon[k])
        assert abs(float(mpmath.log(exact) - mpmath.mpf(ours[k]))) < 1e-12 * max(1.0, epsilon[k])


def test_gaussian_noise_agrees_with_sixty_digits_and_with_dp_accounting():
    D, _, delta = drawn(200)
    found = gaussian_epsilon(D, delta)
    assert errors_in_epsilon(found, delta, lambda k, e: exactly_gaussian(D[k], e)).max() < 1e-10
    for k in np.flatnonzero((found > 0.01) & (found < 50))[:20]:
        theirs = gaussian_mechanism.get_epsilon_gaussian(1 / D[k], delta[k])
        assert found[k] == pytest.approx(theirs, rel=1e-5)
        assert gaussian_log_delta(D[k], theirs) == pytest.approx(math.log(delta[k]), abs=1e-4)


def test_removing_agrees_with_high_precision():
    mu, a, delta = drawn(150, largest_a=30.0)
    most = (np.log1p(mu) + a**2 / (1 + mu)) / 2
    epsilon = np.minimum(posterior_epsilon(mu, a, delta), most) * np.random.default_rng().uniform(
        0, 0.999, 150
    )
    ours = profiles.posterior_log_delta_remove(mu, a, epsilon)
    for k in np.flatnonzero(ours > -500):
        exact = exactly_removing(mu[k], a[k], epsilon[k], digits=300)
        assert float(mpmath.log(exact)) == pytest.approx(ours[k], abs=1e-10)
    assert np.all(
        profiles.posterior_log_delta_remove(mu, a, most * (1 + 1e-12)) == -math.inf
    )  # bounded, exactly


#: μ, r, γ of the counterexamples to the published theorem, and their ε at δ = 10⁻⁶.
COUNTEREXAMPLES = [
    (0.1, 1.9, 1.0, "3.7242"),
    (0.01, 1.99, 10.0, "2.9997"),
    (0.01, 1.99, 100.0, "11.0142"),
    (1.0, 1.0, 1.0, "15.232"),
    (100.0, 1.0, 500.0, "2436.9"),
    (1.0, 1.0, 1e-6, "10.932"),
    (0.1, 1.0, 1e-4, "0.91606"),
    (3.98e-4, 100.0, 1.0, None),
]


@pytest.mark.parametrize(("mu", "r", "gamma", "digits"), COUNTEREXAMPLES)
def test_counterexamples_of_the_published_theorem(mu, r, gamma, digits):
    a = math.sqrt(gamma) * r
    found = float(posterior_epsilon(mu, a, 1e-6))
    if digits:
        assert f"{found:.{len(digits.partition('.')[2])}f}" == digits
    assert float(exactly(mu, a, found)[0]) == pytest.approx(1e-6, rel=1e-9)
    adding, removing = profiles.posterior_bound(mu, a, 1e-6)
    assert max(adding, removing) >= found


def test_counterexamples_come_from_their_data_sets():
    """(μ, r) above, from the rows: nine ones; ninety-nine ones; none; a thousand on another
    axis.
    """
    ones = leverages.fit_ridge(np.ones((9, 1)), np.ones(9), 1.0).added([[1.0]], [-1.0])
    assert (ones.leverage[0], ones.residual[0]) == pytest.approx((0.1, -1.9))
    apart = leverages.fit_ridge(np.tile([1.0, 0.0], (1000, 1)), np.ones(1000), 10.0).added(
        [[0.0, 1.0]], [1.0]
    )
    assert (apart.leverage[0], apart.residual[0]) == pytest.approx((0.1, 1.0))


@pytest.mark.parametrize(
    ("D", "epsilon"),
    [(0.25, "1.0607"), (0.1, "0.3969"), (1.0, "4.887"), (2.0, "11.00"), (5.0, "35.57")],
)
def test_counterexamples_of_the_published_gaussian_lemma(D, epsilon):
    assert f"{float(gaussian_epsilon(D, 1e-6)):.{len(epsilon.partition('.')[2])}f}" == epsilon


def test_without_both_laws_a_tail_bound_proves_nothing():
    """p = N(0, ½), p' = N(0, 1): |loss| > 5.6355 has probability 10⁻⁶ under p, yet δ(5.6355) is
    2.6e-4.
    """
    assert math.exp(posterior_log_delta(1.0, 0.0, 5.6355)) == pytest.approx(2.62e-4, rel=2e-3)
    assert posterior_epsilon(1.0, 0.0, 1e-6) == pytest.approx(10.932, abs=5e-4)


def test_adding_loses_more_than_removing():
    mu, a, _ = drawn(20_000)
    most = (np.log1p(mu) + a**2 / (1 + mu)) / 2
    for epsilon in (
        0.0,
        most * np.random.default_rng().random(len(mu)),
        np.minimum(most, 3 * a * np.sqrt(mu)) / 2,
    ):
        adding = posterior_log_delta(mu, a, epsilon)
        removing = profiles.posterior_log_delta_remove(mu, a, epsilon)
        assert np.all(adding >= removing - 1e-9 * np.maximum(1, -removing))
    assert np.all(
        np.abs(posterior_log_delta(mu, a, 0.0) - profiles.posterior_log_delta_remove(mu, a, 0.0))
        < 1e-10
    )


def test_losses_grow_with_the_residual_always_and_with_the_leverage_at_every_useful_delta():
    mu, a, delta = drawn(50_000)
    more = 1 + np.exp(np.random.default_rng().uniform(-6, 2, len(mu)))
    here = posterior_epsilon(mu, a, delta)
    assert np.all(posterior_epsilon(mu, a * more, delta) >= here * (1 - 1e-11))
    assert np.all(posterior_epsilon(mu * more, a, delta) >= here * (1 - 1e-11))
    small = np.minimum(mu * more, GOLDEN)
    epsilon = here * np.random.default_rng().random(len(mu))
    assert np.all(
        posterior_log_delta(small, a, epsilon)
        >= posterior_log_delta(np.minimum(mu, small), a, epsilon) - 1e-9
    )
    # Beyond the golden ratio δ itself may fall, but only where it is large.
    assert posterior_log_delta(100.0, 10.0, 1.0) < posterior_log_delta(2.0, 10.0, 1.0)
    assert math.exp(posterior_log_delta(2.0, 10.0, 1.0)) == pytest.approx(0.9962, abs=5e-5)
    assert math.exp(posterior_log_delta(100.0, 10.0, 1.0)) == pytest.approx(0.8507, abs=5e-5)


def test_the_repaired_bound_is_never_below_the_truth():
    mu, a, delta = drawn(50_000)
    truth = posterior_epsilon(mu, a, delta)
    adding, removing = profiles.posterior_bound(mu, a, delta)
    assert np.all(adding >= truth)
    bounded = np.exp(profiles.posterior_log_delta_remove(mu, a, removing))
    assert np.all(bounded <= delta * (1 + 1e-9))


def test_zero_is_returned_exactly_where_nothing_can_be_told_apart():
    delta = 1e-3
    at = 2 * norm.ppf((1 + delta) / 2)  # 2Φ(D/2) − 1 = δ
    assert gaussian_epsilon([at * (1 - 1e-9), at * (1 + 1e-9), 0.0], delta)[[0, 2]].tolist() == [
        0.0,
        0.0,
    ]
    assert gaussian_epsilon(at * (1 + 1e-9), delta) > 0
    assert posterior_epsilon([0.0, 1e-9], [5.0, 0.0], 1e-6).tolist() == [0.0, 0.0]
    mu, a, _ = drawn(2000)
    distance = np.exp(posterior_log_delta(mu, a, 0.0))
    inside = distance < 0.9
    assert np.all(posterior_epsilon(mu, a, np.minimum(distance * (1 + 1e-9), 0.99))[inside] == 0)
    assert np.all(posterior_epsilon(mu, a, np.minimum(distance * (1 - 1e-6), 0.99))[inside] > 0)


def test_extremes_keep_their_meaning():
    assert posterior_epsilon([np.inf, 1.0], [1.0, np.inf], 1e-6).tolist() == [np.inf, np.inf]
    assert np.isnan(posterior_epsilon(np.nan, 1.0, 1e-6))
    assert gaussian_epsilon([np.inf, 0.0], 1e-6).tolist() == [np.inf, 0.0]
    assert np.isfinite(posterior_epsilon([1e6, 1e-12, 1e-300], [1e4, 1e6, 1e3], 1e-9)).all()
    assert posterior_epsilon(1.07e6, 5.0, 1e-6) > 1e7
    assert posterior_log_delta(0.01, 1.0, 1e6) < -1e6  # far beyond the smallest double
    assert posterior_epsilon(np.ones((2, 3)), 1.0, 1e-6).shape == (2, 3)
    for delta in (0.0, 1.0, np.nan, -1e-6):
        with pytest.raises(errors.InvalidParameter):
            posterior_epsilon(0.1, 1.0, delta)


def test_mills_ratio_is_good_to_the_last_places_for_every_gap():
    rng = np.random.default_rng()
    t = rng.uniform(-1, 8, 300)
    gap = np.exp(rng.uniform(-25, 3, 300))
    difference, upper = profiles.compute_mills(t, gap)
    with mpmath.workdps(60):
        for k in range(len(t)):
            here, there = (
                tail(x) / mpmath.npdf(x)
                for x in (mpmath.mpf(t[k]), mpmath.mpf(t[k]) + mpmath.mpf(gap[k]))
            )
            assert float((here - there) / mpmath.mpf(difference[k]) - 1) == pytest.approx(
                0, abs=2e-13
            )
            assert float(there / mpmath.mpf(upper[k]) - 1) == pytest.approx(0, abs=1e-14)


def a_table(n, d, rng, ridge):
    X = rng.normal(size=(n, d)) / math.sqrt(d)
    y = X @ rng.normal(size=d) + 0.5 * rng.normal(size=n)
    return X, y, leverages.fit_ridge(X, y, ridge)


def log_density(points, centre, precision):
    apart = points - centre
    return np.linalg.slogdet(precision)[1] / 2 - np.einsum("ij,ij->i", apart @ precision, apart) / 2


def sampled(centre, precision, count, rng):
    root = np.linalg.cholesky(precision)
    return centre + np.linalg.solve(root.T, rng.normal(size=(len(centre), count))).T


def simulated_delta(one, two, epsilon, count, rng):
    """δ from posterior samples and both full densities: nothing of W or of μ is used.

    With how far it may be off, by the empirical Bernstein bound for draws in [0, 1] (Maurer and
    Pontil 2009): 6.3 standard errors and a little more. Where δ is so small that hardly a draw
    tells of it, standard errors alone are no bound.
    """
    points = sampled(*one, count, rng)
    gain = np.maximum(
        -np.expm1(epsilon - log_density(points, *one) + log_density(points, *two)), 0.0
    )
    log = math.log(4 / FALSE_ALARM)
    reach = math.sqrt(2 * gain.var(ddof=1) * log / count) + 7 * log / (3 * (count - 1))
    return gain.mean(), reach


@pytest.mark.parametrize(
    ("n", "d", "gamma", "ridge"), [(6, 2, 1.0, 0.5), (30, 5, 4.0, 1.0), (3, 3, 0.2, 0.3)]
)
def test_delta_is_what_posterior_samples_show(n, d, gamma, ridge):
    rng = np.random.default_rng()
    X, y, whole = a_table(n, d, rng, ridge)
    rest = leverages.fit_ridge(X[1:], y[1:], ridge)
    without, with_it = ((fit.theta, gamma * fit.hessian) for fit in (rest, whole))
    record = whole.left_out(X, y)
    mu = record.leverage[0]
    a = math.sqrt(gamma) * record.residual[0]
    for epsilon in (0.0, 0.3):
        for pair, ours in (
            ((without, with_it), posterior_log_delta(mu, a, epsilon)),
            ((with_it, without), profiles.posterior_log_delta_remove(mu, a, epsilon)),
        ):
            mean, reach = simulated_delta(*pair, epsilon, 200_000, rng)
            assert abs(mean - math.exp(ours)) <= reach


def objective_pair(rng, d=3, sigma=1.3):
    X, y, fit = a_table(8, d, rng, 0.5)
    x = rng.normal(size=d) / 2
    label = rng.normal()
    return fit, leverages.fit_ridge(np.vstack([X, x]), np.append(y, label), 0.5), x, label, sigma


def test_objective_perturbation_is_what_its_samples_show():
    rng = np.random.default_rng()
    fit, larger, x, label, sigma = objective_pair(rng)
    record = fit.added([x], [label])
    moved = fit.moved_by_adding([x], [label], fit.metric("identity"))[0] / abs(record.error[0])
    laws = [(f.theta, f.hessian @ f.hessian / sigma**2) for f in (fit, larger)]
    for epsilon in (0.0, 0.2, 1.0):
        given = (record.leverage[0], record.residual[0], x @ x, moved**2, sigma, epsilon)
        for ours, pair in zip(
            profiles.objective_log_delta(*given), (laws, laws[::-1]), strict=True
        ):
            mean, reach = simulated_delta(*pair, epsilon, 300_000, rng)
            assert abs(mean - math.exp(ours)) <= reach


@pytest.mark.parametrize(
    ("mu", "r", "sigma", "epsilon"),
    [(0.3, 1.2, 0.7, 0.5), (2.0, 0.3, 0.2, 3.0), (0.01, 1.0, 1.0, 0.05)],
)
def test_objective_perturbation_on_the_line_is_two_normal_laws(mu, r, sigma, epsilon):
    """In one dimension the loss is certain given z, and the integrand has corners; the laws have
    densities.
    """
    # x = 1, H = 1/μ
    without = (0.0, sigma * mu)
    with_it = (mu * r / (1 + mu), sigma * mu / (1 + mu))
    line = np.linspace(-14 * without[1], 14 * without[1] + with_it[0], 2_000_001)
    p, q = (norm.pdf(line, *law) for law in (without, with_it))
    expected = [
        np.trapezoid(np.maximum(f - math.exp(epsilon) * g, 0), line) for f, g in ((p, q), (q, p))
    ]
    ours = np.exp(profiles.objective_log_delta(mu, r, 1.0, mu**2, sigma, epsilon))
    assert ours == pytest.approx(np.array(expected), rel=1e-6, abs=1e-12)


def test_epsilon_of_objective_perturbation_meets_its_delta():
    rng = np.random.default_rng()
    fit, _, x, label, sigma = objective_pair(rng)
    record = fit.added([x], [label])
    reach = np.sum(np.linalg.solve(fit.hessian, x) ** 2)
    given = [np.array([v]) for v in (record.leverage[0], record.residual[0], x @ x, reach)]
    found = []
    for delta in (1e-9, 1e-6, 1e-3):
        epsilon = mechanisms.solve_objective_epsilon(*given, sigma, delta)
        both = np.maximum(*profiles.objective_log_delta(*given, sigma, epsilon))
        assert math.log(delta) - 1e-5 <= both[0] <= math.log(delta)
        found.append(epsilon[0])
    assert found == sorted(found, reverse=True)


def test_radial_noise_attains_its_loss_on_a_ray():
    rng = np.random.default_rng()
    one = rng.normal(size=4)
    two = rng.normal(size=4)
    rate = 1.7
    loss = float(profiles.radial_epsilon(np.linalg.norm(one - two), rate))
    points = np.vstack([rng.normal(size=(2000, 4)) * 5, one + 3 * (one - two)])
    ratios = rate * (np.linalg.norm(points - two, axis=1) - np.linalg.norm(points - one, axis=1))
    assert ratios.max() == pytest.approx(loss, rel=1e-12)
    assert np.all(ratios <= loss * (1 + 1e-12))


# Planted bugs. Each is a plausible slip; each must be far from the truth where the suite looks.


def naive(mu, a, epsilon, forgotten=False, one_sided=False, gain=1.0):
    w = math.sqrt(math.log1p(mu) + a * a / (1 + mu) + 2 * epsilon)
    m = a / (1 + mu)
    s = math.sqrt(mu / (1 + mu))
    if one_sided:
        sides = (1,)
    else:
        sides = (1, -1)
    p = sum(ndtr(-(w - side * a) / math.sqrt(mu)) for side in sides)
    q = sum(ndtr(-(w - side * m) / s) for side in sides)
    return p - (1.0 if forgotten else math.exp(epsilon)) * q * gain


def test_planted_bugs_are_seen():
    mu = 0.4
    a = 0.3
    epsilon = 0.5
    truth = math.exp(posterior_log_delta(mu, a, epsilon))
    assert naive(mu, a, epsilon) == pytest.approx(truth, rel=1e-12)
    bugs = {
        "e^ε forgotten": naive(mu, a, epsilon, forgotten=True),
        "far side forgotten": naive(mu, a, epsilon, one_sided=True),
        "removing for adding": math.exp(profiles.posterior_log_delta_remove(mu, a, epsilon)),
        "share for leverage": math.exp(posterior_log_delta(mu / (1 + mu), a, epsilon)),
        "error for residual": math.exp(posterior_log_delta(mu, a / (1 + mu), epsilon)),
        "γ for √γ": math.exp(posterior_log_delta(mu, a * a, epsilon)),
        "κ forgotten": naive(mu, a, epsilon, gain=math.sqrt(1 + mu)),
    }
    for name, delta in bugs.items():
        assert abs(delta / truth - 1) > 0.02, name


def test_in_sample_numbers_are_caught_by_the_exact_epsilon():
    """Nine ones and (1, −1): with h and e in place of μ and r the loss comes out a fifth too
    small.
    """
    record = leverages.fit_ridge(np.ones((9, 1)), np.ones(9), 1.0).added([[1.0]], [-1.0])
    right = posterior_epsilon(record.leverage, record.residual, 1e-6)[0]
    wrong = posterior_epsilon(record.share, record.error, 1e-6)[0]
    assert right == pytest.approx(3.7242, abs=5e-5)
    assert wrong < 0.9 * right
