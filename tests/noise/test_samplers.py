"""The noise is what its obligation sentence says, and a scale wrong by a tenth is rejected.

False alarms: each statistic is compared with its exact mean at six standard errors, 2e-9 a comparison.
"""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from sottovoce.noise import gaussian, laplace, radial, source

SIGMAS = 6


def off_by(values: np.ndarray, expected: float) -> float:
    """Returns how many standard errors the mean of values lies from what is expected."""
    return abs(values.mean() - expected) / (values.std() / math.sqrt(len(values)))


@pytest.mark.parametrize("scale", [0.7, 5.5, 1e6, 2.0**40])
def test_laplace_returns_integers_z_with_probability_proportional_to_exp_of_minus_z_over_scale(scale):
    """ "Returns independent integers Z with P[Z=z] ∝ exp(−|z|/scale), exactly." """
    z = np.array(laplace.draw(scale, 40_000), dtype=float)

    def mean_size(s):  # E|Z| of the discrete Laplace law
        return 2 * math.exp(-1 / s) / -math.expm1(-2 / s)

    assert off_by(np.abs(z), mean_size(scale)) < SIGMAS
    assert off_by(z, 0) < SIGMAS
    assert off_by(np.abs(z), mean_size(scale * 1.1)) > SIGMAS
    assert off_by(np.abs(z), mean_size(scale / 1.1)) > SIGMAS


def test_small_laplace_matches_its_whole_probability_table():
    scale, n = 1.3, 60_000
    z = np.array(laplace.draw(scale, n))
    top = (1 - math.exp(-1 / scale)) / (1 + math.exp(-1 / scale))
    for k in range(-6, 7):
        p = top * math.exp(-abs(k) / scale)
        assert abs((z == k).sum() - n * p) < SIGMAS * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("scale", [0.8, 12.0, 2.0**40])
def test_gaussian_returns_integers_z_with_probability_proportional_to_exp_of_minus_z_squared(scale):
    """ "Returns independent integers Z with P[Z=z] ∝ exp(−z²/(2·scale²)), exactly." """
    z = np.array(gaussian.draw(scale, 40_000), dtype=float)

    def second_moment(s):
        if s > 100:
            return s * s
        k = np.arange(-2000, 2001)
        p = np.exp(-(k**2) / (2 * s * s))
        return float((k**2 * p).sum() / p.sum())

    assert off_by(z**2, second_moment(scale)) < SIGMAS
    assert off_by(z, 0) < SIGMAS
    assert off_by(z**2, second_moment(scale * 1.1)) > SIGMAS
    assert off_by(z**2, second_moment(scale / 1.1)) > SIGMAS


@pytest.mark.parametrize("draw", [laplace.draw, gaussian.draw])
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**46])
def test_a_scale_that_could_reach_the_end_of_int64_is_refused(draw, scale):
    with pytest.raises(ValueError, match="scale"):
        draw(scale)


@pytest.mark.parametrize("dimension", [1, 2, 7])
def test_l2_noise_has_a_gamma_radius_and_a_uniform_direction(dimension):
    rate, n = 2.5, 15_000
    b = np.array([radial.l2(rate, dimension) for _ in range(n)])
    radius = np.linalg.norm(b, axis=1)
    assert off_by(radius, dimension / rate) < SIGMAS
    assert off_by(radius**2, dimension * (dimension + 1) / rate**2) < SIGMAS
    assert off_by(radius, dimension / (rate * 1.1)) > SIGMAS
    assert all(off_by(b[:, j], 0) < SIGMAS for j in range(dimension))
    if dimension > 1:
        assert off_by(b[:, 0] * b[:, 1], 0) < SIGMAS
        assert off_by((b[:, 0] / radius) ** 2, 1 / dimension) < SIGMAS


def test_box_noise_has_the_density_of_its_norm_on_a_lopsided_box():
    """The largest ratio |b_j|/w_j is Gamma(d), and the side that attains it is uniform: cone, not surface measure."""
    widths, n = np.array([1.0, 10.0, 3.0]), 20_000
    b = np.array([radial.box(widths) for _ in range(n)])
    ratios = np.abs(b) / widths
    norm = ratios.max(axis=1)
    assert off_by(norm, 3) < SIGMAS
    assert off_by(norm**2, 12) < SIGMAS
    assert off_by(norm, 4) > SIGMAS  # Gamma(d+1) times the boundary, the silent mistake
    for side in range(3):
        assert off_by((ratios.argmax(axis=1) == side).astype(float), 1 / 3) < SIGMAS
    second = (3 + 1) * (3 + 2) / 3 * widths**2  # E b_j² = (d+1)(d+2)/3·w_j²
    assert all(off_by(b[:, j] ** 2, second[j]) < SIGMAS for j in range(3))


def test_below_is_uniform_and_reaches_every_number():
    draws = np.array([source.below(6) for _ in range(12_000)])
    for k in range(6):
        assert abs((draws == k).sum() - 2000) < SIGMAS * math.sqrt(12_000 * 5 / 36)
    assert source.below(1) == 0


def test_uniforms_stay_inside_the_open_interval():
    class Extreme:
        def bytes(self, count):
            return b"\x00" * (count // 2) + b"\xff" * (count - count // 2)

    with source._seam(Extreme()):
        u = source.uniforms(4)
    assert np.all((u > 0) & (u < 1))


def test_a_forked_child_never_repeats_its_parent():
    laplace.draw(2.0**40)  # OpenDP is loaded and has drawn before the fork
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, f"{source.random_bytes(16).hex()} {laplace.draw(2.0**40, 2)}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 1000).decode()
    os.close(reader)
    os.close(writer)
    assert theirs != f"{source.random_bytes(16).hex()} {laplace.draw(2.0**40, 2)}"
    assert theirs.split(" ", 1)[1] != str(laplace.draw(2.0**40, 2))


def test_the_kernel_agrees_with_opendps_own_privacy_map():
    import opendp.prelude as dp

    dp.enable_features("contrib")
    scale = 647058391766.0
    measurement = dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=scale)
    for moved in (1, 10**6, 3 * 10**11):
        assert measurement.map(moved) == pytest.approx(moved / scale, rel=1e-12)
