"""The exact δ of AdaOPS's joint release: convergence, simulated releases, and the library's
profile.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from sottovoce.papers import instance_claims, instance_exact
from sottovoce.papers import instance_exact as paper
from sottovoce.papers.instance_exact import PosteriorLoss

RELEASES = instance_claims.make_neighbour_pairs()
#: Beyond so many standard errors a simulation is taken to disagree: less than once in 10⁸ runs.
ERRORS = 6.0


@pytest.mark.parametrize("pair", RELEASES.values(), ids=RELEASES)
def test_quadrature_converges(pair):
    coarse, usual, fine = (
        instance_exact.compute_joint_delta(*pair, panels=panels)
        for panels in (24, instance_exact.PANELS, 200)
    )
    assert coarse == pytest.approx(fine, rel=1e-8)
    assert usual == pytest.approx(fine, rel=1e-9)


def test_marginal_quadrature_converges():
    pair = list(RELEASES.values())[-1]
    assert instance_exact.compute_marginal_delta(*pair) == pytest.approx(
        instance_exact.compute_marginal_delta(*pair, nodes=16001), rel=2e-5
    )


@pytest.mark.parametrize("pair", list(RELEASES.values())[:-1], ids=list(RELEASES)[:-1])
def test_theta_alone_keeps_the_promise_in_the_other_examples(pair):
    assert max(instance_exact.compute_marginal_delta(*pair)) < 1e-12


def test_release_has_the_law_that_is_integrated():
    rows = 40
    square = 0.8
    algorithm = paper.ada_ops_as_printed_with_max(rows, 1, 1.0, 10.0, 1e-6)
    side, _ = instance_exact.make_neighbours(algorithm, square, rows)
    X = np.full((rows, 1), math.sqrt(square))
    y = np.ones(rows)
    for first, second in ((0.0, 0.0), (3.0, -1.0), (-2.0, 2.5)):
        noisy, theta = algorithm.release(X, y, np.array([first, second]))
        mean, variance = side.compute_law(np.asarray(noisy))
        assert noisy == pytest.approx(side.gram + algorithm.noise_scale * first)
        assert theta[0] == pytest.approx(float(mean + math.sqrt(variance) * second))


@pytest.mark.parametrize("direction", [0, 1])
def test_quadrature_against_simulated_releases(direction):
    """P(L > ε) − e^ε·Q(L > ε) from a million releases of each neighbour, L the log-ratio of the
    joint densities.
    """
    pair = list(RELEASES.values())[-1]
    if direction == 0:
        first, second = pair
    else:
        first, second = pair[::-1]
    epsilon = first.algorithm.epsilon
    draws = 10**6
    rng = np.random.default_rng(7)
    chances = [
        np.mean(_loss(*_draw(side, draws, rng), first, second) > epsilon)
        for side in (first, second)
    ]
    estimate = chances[0] - math.exp(epsilon) * chances[1]
    error = math.sqrt((chances[0] + math.exp(2 * epsilon) * chances[1]) / draws)
    assert (
        abs(estimate - instance_exact.compute_joint_delta(*pair)[direction]) < ERRORS * error < 0.01
    )


def _draw(side, draws, rng):
    noisy = side.gram + side.algorithm.noise_scale * rng.standard_normal(draws)
    mean, variance = side.compute_law(noisy)
    return noisy, mean + np.sqrt(variance) * rng.standard_normal(draws)


def _loss(noisy, theta, first, second):
    logs = []
    for side in (first, second):
        mean, variance = side.compute_law(noisy)
        spread = side.algorithm.noise_scale
        logs.append(
            -((noisy - side.gram) ** 2) / (2 * spread**2) - (theta - mean) ** 2 / (2 * variance)
        )
        logs[-1] -= np.log(variance) / 2
    return logs[0] - logs[1]


@pytest.mark.parametrize(("leverage", "residual"), [(0.1, 1.9), (0.02, 5.0), (1.0, 0.3)])
def test_hockey_stick_against_the_profile_of_a_posterior_sample(leverage, residual):
    """Without N(a, μ), with N(a/(1+μ), μ/(1+μ)): the sufficient statistic of one record."""
    without = np.array(residual), np.array(leverage)
    present = without[0] / (1 + leverage), without[1] / (1 + leverage)
    for epsilon in (0.0, 0.5, 2.0):
        adding = instance_exact.compute_hockey_stick(without, present, np.array(epsilon))
        assert adding == pytest.approx(PosteriorLoss(leverage, residual).delta(epsilon), rel=1e-9)
        back = instance_exact.compute_hockey_stick(present, without, np.array(-epsilon))
        assert back == pytest.approx(-math.expm1(-epsilon) + math.exp(-epsilon) * adding, rel=1e-9)
