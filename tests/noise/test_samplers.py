"""The noise is what its obligation sentence says, and a scale wrong by a tenth is rejected.

False alarms: each statistic is compared with its exact mean at six standard errors, 2e-9 a
comparison.
"""

from __future__ import annotations

import math
import os
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from sottovoce.noise import continuous, source

SIGMAS = 6


def off_by(values: np.ndarray, expected: float) -> float:
    """Returns how many standard errors the mean of values lies from what is expected."""
    return abs(values.mean() - expected) / (values.std() / math.sqrt(len(values)))


@pytest.mark.parametrize("scale", [0.7, 5.5, 1e6, 2.0**40])
def test_laplace_returns_integers_z_with_probability_proportional_to_exp_of_minus_z_over_scale(
    scale,
):
    """ "Returns independent integers Z with P[Z=z] ∝ exp(−|z|/scale), exactly." """
    z = np.array(source.draw_laplace(scale, 40_000), dtype=float)

    def mean_size(s):  # E|Z| of the discrete Laplace law
        return 2 * math.exp(-1 / s) / -math.expm1(-2 / s)

    assert off_by(np.abs(z), mean_size(scale)) < SIGMAS
    assert off_by(z, 0) < SIGMAS
    assert off_by(np.abs(z), mean_size(scale * 1.1)) > SIGMAS
    assert off_by(np.abs(z), mean_size(scale / 1.1)) > SIGMAS


def test_small_laplace_matches_its_whole_probability_table():
    scale = 1.3
    n = 60_000
    z = np.array(source.draw_laplace(scale, n))
    top = (1 - math.exp(-1 / scale)) / (1 + math.exp(-1 / scale))
    for k in range(-6, 7):
        p = top * math.exp(-abs(k) / scale)
        assert abs((z == k).sum() - n * p) < SIGMAS * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("scale", [0.8, 12.0, 2.0**40])
def test_gaussian_returns_integers_z_with_probability_proportional_to_exp_of_minus_z_squared(scale):
    """ "Returns independent integers Z with P[Z=z] ∝ exp(−z²/(2·scale²)), exactly." """
    z = np.array(source.draw_gaussian(scale, 40_000), dtype=float)

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


@pytest.mark.parametrize("draw", [source.draw_laplace, source.draw_gaussian])
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**46])
def test_a_scale_that_could_reach_the_end_of_int64_is_refused(draw, scale):
    with pytest.raises(ValueError, match="scale"):
        draw(scale)


@pytest.mark.parametrize(("dimension", "n"), [(1, 18_000), (2, 10_000), (7, 4_000)])
def test_l2_noise_has_a_gamma_radius_and_a_uniform_direction(dimension, n):
    rate = 2.5
    b = np.array([continuous.draw_l2(rate, dimension).astype(float) for _ in range(n)])
    radius = np.linalg.norm(b, axis=1)
    assert off_by(radius, dimension / rate) < SIGMAS
    assert off_by(radius**2, dimension * (dimension + 1) / rate**2) < SIGMAS
    assert off_by(radius, dimension / (rate * 1.1)) > SIGMAS
    assert all(off_by(b[:, j], 0) < SIGMAS for j in range(dimension))
    if dimension > 1:
        assert off_by(b[:, 0] * b[:, 1], 0) < SIGMAS
        assert off_by((b[:, 0] / radius) ** 2, 1 / dimension) < SIGMAS


def test_box_noise_has_the_density_of_its_norm_on_a_lopsided_box():
    """The largest ratio |b_j|/w_j is Gamma(d), and the side that attains it is uniform: cone, not
    surface measure.
    """
    widths = np.array([1.0, 10.0, 3.0])
    n = 10_000
    b = np.array([continuous.draw_box(widths).astype(float) for _ in range(n)])
    ratios = np.abs(b) / widths
    norm = ratios.max(axis=1)
    assert off_by(norm, 3) < SIGMAS
    assert off_by(norm**2, 12) < SIGMAS
    assert off_by(norm, 4) > SIGMAS  # Gamma(d+1) times the boundary, the silent mistake
    for side in range(3):
        assert off_by((ratios.argmax(axis=1) == side).astype(float), 1 / 3) < SIGMAS
    second = (3 + 1) * (3 + 2) / 3 * widths**2  # E b_j² = (d+1)(d+2)/3·w_j²
    assert all(off_by(b[:, j] ** 2, second[j]) < SIGMAS for j in range(3))


@pytest.mark.parametrize("size", [1, 2])
def test_noise_by_columns_has_the_density_of_its_norm(size):
    """‖b₀‖ is Gamma(size)/α, the largest column Gamma(p·size)/(1−α), each as often as the others;
    E‖b_j‖² = (p·size+1)(p·size+2)·size/(size+2) in units of 1/(1−α)².
    """
    p = 3
    share = 0.25
    b = np.array([continuous.draw_columns(p, size, share).astype(float) for _ in range(4_000)])
    lengths = np.linalg.norm(b, axis=2)
    largest = lengths[:, 1:].max(axis=1) * (1 - share)
    assert off_by(lengths[:, 0] * share, size) < SIGMAS
    assert off_by(largest, p * size) < SIGMAS
    assert off_by(largest**2, p * size * (p * size + 1)) < SIGMAS
    assert off_by(largest, p * size + 1) > SIGMAS
    assert off_by(lengths[:, 0] * largest, share**-1 * size * p * size) < SIGMAS
    second = (p * size + 1) * (p * size + 2) * size / (size + 2)
    for j in range(1, p + 1):
        assert off_by((lengths[:, 1:].argmax(axis=1) == j - 1).astype(float), 1 / p) < SIGMAS
        assert off_by((lengths[:, j] * (1 - share)) ** 2, second) < SIGMAS
        assert off_by(b[:, j, 0], 0) < SIGMAS
    assert continuous.draw_columns(0, size, 1.0).shape == (1, size)
    assert continuous.draw_columns(2, size, 0.0).shape == (2, size)


def test_below_is_uniform_and_reaches_every_number():
    draws = np.array([source.draw_below(6) for _ in range(12_000)])
    for k in range(6):
        assert abs((draws == k).sum() - 2000) < SIGMAS * math.sqrt(12_000 * 5 / 36)
    assert source.draw_below(1) == 0


# ---------------------------------------------------------------- continuous noise


class Leading:
    """A seam whose uniform reals begin with so many zero bytes: everything is then far out, given
    that it is.
    """

    def __init__(self, zeros: int) -> None:
        self.zeros = zeros

    def bytes(self, count):
        drawn = bytearray(os.urandom(count))
        if (
            count % EACH == 0 and count != 2 * continuous.COORDINATE_BYTES
        ):  # whole reals, not the two sides of a direction
            for first in range(0, count, EACH):
                drawn[first + EACH - self.zeros : first + EACH] = bytes(
                    self.zeros
                )  # the last byte is the leading one
        return bytes(drawn)


EACH = source.BITS // 8


class Given:
    """A seam that hands out what it was given, piece by piece."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def bytes(self, count):
        piece = self.pieces.pop(0)
        assert len(piece) == count
        return piece


def test_logarithms_exponentials_and_roots_have_384_bits():
    """ "Returns ln(numerator/2^power)·2^384 for a numerator > 0, with an error below 2." Against
    900 bits of mpmath.
    """
    rng = np.random.default_rng()
    with mpmath.workprec(900):
        one = mpmath.mpf(source.ONE)
        for power in (0, 1, 60, 383, 384, 385, 1000, 5000):
            for length in (1, 8, 384, 800):
                numerator = int.from_bytes(rng.bytes(length // 8 + 1), "little") + 1
                exact = mpmath.log(mpmath.mpf(numerator) / mpmath.mpf(2) ** power) * one
                assert abs(source.log(numerator, power) - exact) < 2
        for x in (*rng.uniform(-200, 200, 50), 0.0, 1e-30, -1e-30, math.log(2)):
            scaled = int(Fraction(float(x)) * source.ONE)
            exact = mpmath.exp(mpmath.mpf(scaled) / one) * one
            assert abs(source.exp(scaled) - exact) < 2.0**-360 * max(exact, one)
            assert 0 <= mpmath.sqrt(int(exact) / one) * one - source.sqrt(int(exact)) < 1
    assert source.log(1, 0) == 0
    assert source.exp(0) == source.ONE


def test_uniforms_stay_inside_the_open_interval():
    with source._seam(
        Given(
            bytes(EACH) + b"\xff" * EACH, bytes(8), b"\x01" + bytes(7), b"\xff" * 8, *[bytes(8)] * 5
        )
    ):
        low, high = source.draw_uniforms(2)
    assert (high.mantissa, high.power) == (2 ** (source.BITS + 1) - 1, source.BITS + 1)
    assert 0 <= low.fixed_point <= high.fixed_point < source.ONE
    assert low.mantissa > 2**320  # 321 leading bits, although the first 448 were zeros
    assert low.power > 800


def test_uniforms_are_uniform():
    """Each of eight equal parts holds its share, at six standard errors: false alarms below
    2e-8.
    """
    n = 16_000
    eighths = np.bincount(
        [8 * u.fixed_point >> source.BITS for u in source.draw_uniforms(n)], minlength=8
    )
    assert np.all(np.abs(eighths - n / 8) < SIGMAS * math.sqrt(n * 7 / 64))


def normals(size):
    return (np.array(continuous.draw_standard_normals(size), dtype=object) / source.ONE).astype(
        float
    )


def test_normal_noise_is_normal():
    """ "Returns independent N(0, 1) variables": the mass inside 0.5 to 3, moments of two orders,
    pairs unrelated.
    """
    n = 20_000
    z = normals(n)
    for t, p in ((0.5, 0.382925), (1.0, 0.682689), (2.0, 0.954500), (3.0, 0.997300)):
        assert abs(np.mean(np.abs(z) < t) - p) < SIGMAS * math.sqrt(p * (1 - p) / n)
    assert off_by(z, 0) < SIGMAS
    assert off_by(z**2, 1) < SIGMAS
    assert off_by(z**4, 3) < SIGMAS
    assert off_by(z[::2] * z[1::2], 0) < SIGMAS
    assert off_by(z**2, 1.1**2) > SIGMAS
    assert off_by(z**2, 1 / 1.1**2) > SIGMAS


def test_the_tails_of_continuous_noise_follow_their_law():
    """Given that U < 2^−k, −ln U − k·ln 2 is exponential: beyond 21 deviations, where one double
    never came.
    """
    zeros = 40
    begin = 8 * zeros * math.log(2)
    with source._seam(Leading(zeros)):
        half_square = (normals(36_000).reshape(-1, 2) ** 2).sum(axis=1) / 2
        size = np.array([float(abs(continuous.draw_l2(0.5, 1)[0])) / 2 for _ in range(18_000)])
        three = np.array([continuous.draw_gamma(3) / source.ONE for _ in range(7_000)])
    assert half_square.min() > begin
    for tail, shape in ((half_square - begin, 1), (size - begin, 1), (three - 3 * begin, 3)):
        assert off_by(tail, shape) < SIGMAS
        assert off_by(tail**2, shape * (shape + 1)) < SIGMAS
        assert off_by(tail, shape * 1.1) > SIGMAS
        assert off_by(tail, shape / 1.1) > SIGMAS


@pytest.mark.parametrize("zeros", [0, 8, 16, 32])
def test_draws_of_nearby_uniforms_differ_by_less_than_2_to_the_minus_70_in_the_tails_too(zeros):
    """The last byte of the first 384 bits still tells: another draw, and hardly another one, out to
    21 deviations.
    """
    cell = bytearray(os.urandom(EACH - zeros - 1) + b"\x55" + bytes(zeros))
    sides = (
        os.urandom(continuous.COORDINATE_BYTES - 1)
        + b"\xa0"
        + os.urandom(continuous.COORDINATE_BYTES - 1)
        + b"\x60"
    )  # about (¼, −¼)
    following = [os.urandom(8)] * max(
        -(-(8 * zeros - 62) // 64), 0
    )  # words that it takes to know 321 leading bits
    found = []
    for _ in range(2):
        with source._seam(Given(bytes(cell), *following, sides)):
            found.append(continuous.draw_standard_normals(1)[0])
        # Its first bit moves the draw by 180 units of 2^-384 and more; the last one by one or two,
        # which rounding may undo.
        cell[0] ^= 0x80
    assert 0 < abs(found[0] - found[1]) < source.ONE >> 70
    assert abs(found[0]) > math.sqrt(8 * zeros * math.log(2)) * source.ONE


def test_a_forked_child_never_repeats_its_parent():
    source.draw_laplace(2.0**40)  # OpenDP is loaded and has drawn before the fork
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(
            writer, f"{source.draw_bytes(16).hex()} {source.draw_laplace(2.0**40, 2)}".encode()
        )
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 1000).decode()
    os.close(reader)
    os.close(writer)
    assert theirs != f"{source.draw_bytes(16).hex()} {source.draw_laplace(2.0**40, 2)}"
    assert theirs.split(" ", 1)[1] != str(source.draw_laplace(2.0**40, 2))


def test_the_kernel_agrees_with_opendps_own_privacy_map():
    import opendp.prelude as dp

    dp.enable_features("contrib")
    scale = 647058391766.0
    measurement = dp.m.make_laplace(
        dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=scale
    )
    for moved in (1, 10**6, 3 * 10**11):
        assert measurement.map(moved) == pytest.approx(moved / scale, rel=1e-12)
