"""Intervals of sums and means by group: they cover, and are hardly wider than if variances were
known; of covariances and correlations they cover.

Everything is drawn from seeds, so that a test passes or fails for ever; how rarely it would do
otherwise by chance, and would miss a mistake, is said where it is counted.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

import sottovoce as sv
from seams import seeded
from sottovoce.estimators import covariance_intervals, group_means, table_moments
from sottovoce.estimators.table_law import NoiseLaw

BY = {"g": ["a", "b", "c"]}
RUNS = 120
#: A right interval covers fewer with probability 1e-7; one with a quarter of the deviation, where
#: sampling is nearly all, covers two fifths, and as many as this with probability 1e-20.
LEAST = int(binom.ppf(1e-7, RUNS, 0.95))
LAWS = {
    "normal": lambda rng, n: np.clip(rng.normal(0.4, 0.1, n), 0, 1),
    "skewed": lambda rng, n: np.clip(rng.exponential(0.1, n), 0, 1),
    "binary": lambda rng, n: (rng.random(n) < 0.3) * 1.0,
}


def draw_releases(asked, law, rows, epsilon, runs=RUNS):
    rng = np.random.default_rng(7)
    plan = None
    for _ in range(runs):
        table = pa.table({"g": rng.choice(["a", "b", "c"], rows), "y": LAWS[law](rng, rows)})
        read = asked.read_arrays(table, epsilon=epsilon, groups=None, column="y")
        plan = plan or asked.plan_for(read.budgets, read)
        with seeded(int(rng.integers(2**32))):
            yield plan, asked.release_under(plan, read)


def find_truth(law):
    values = LAWS[law](np.random.default_rng(1), 2_000_000)
    return values.mean(), values.var()


def measure_means(law, rows, epsilon, asked, runs=RUNS):
    """How many intervals cover, and their width over that of an oracle who knows the variance and
    has the noise of two slots.
    """
    mean, variance = find_truth(law)
    noise = NoiseLaw.choose(5 * 3)
    covered = 0
    widths = []
    for plan, release in draw_releases(asked, law, rows, epsilon, runs):
        told = asked._compute_intervals(release, 0.95)
        low, high = told.low["mean"][0], told.high["mean"][0]
        covered += low <= mean <= high
        ratio = plan.noise["ratio"]
        known = np.array([math.sqrt(variance / 3 / rows) / ratio])
        oracle = 3 * ratio * noise.find_half_widths(0.95, known, 1 - mean, -mean)[0]
        widths.append((high - low) / 2 / oracle)
    return covered, float(np.mean(widths))


@pytest.mark.parametrize(
    ("law", "rows", "epsilon"),
    [
        ("normal", 900, 1.0),
        pytest.param("skewed", 900, 2.0, marks=pytest.mark.long),
        pytest.param("binary", 1800, 0.5, marks=pytest.mark.long),
    ],
)
def test_means_by_group_cover_and_are_nearly_as_narrow_as_with_a_known_variance(law, rows, epsilon):
    asked = sv.Mean((0, 1), by=BY)
    covered, width = measure_means(law, rows, epsilon, asked)
    assert covered >= LEAST
    assert width <= 1.4
    plan = asked.plan(epsilon=epsilon, rows=rows)
    assert plan.grid.degree == 2
    assert "squares too" in plan.describe()
    # From the bounds they are much wider, where values spread by little.
    if law == "normal":
        free = sv.Mean((0, 1), by=BY, interval_share=0)
        assert measure_means(law, rows, epsilon, free, runs=10)[1] > 2.5


def test_squares_that_are_too_small_are_caught(monkeypatch):
    """The planted bug: squares sixteen times too small."""
    original = group_means.MeanReach.find_squares

    def quarter(self, mean, margin=True):
        return original(self, mean, margin=False) / 16

    monkeypatch.setattr(group_means.MeanReach, "find_squares", quarter)
    covered, _ = measure_means("normal", 2400, 20.0, sv.Mean((0, 1), by=BY))
    assert covered < LEAST


def test_sums_by_group_cover_and_are_nearly_as_narrow_as_with_a_known_variance():
    asked = sv.Sum((0, 1), by=BY)
    mean, variance = find_truth("skewed")
    noise = NoiseLaw.choose(5 * 3)
    covered = 0
    widths = []
    rows = 900
    for plan, release in draw_releases(asked, "skewed", rows, 2.0):
        told = asked._compute_intervals(release, 0.95)
        low, high = told.low["sum"][0], told.high["sum"][0]
        covered += low <= rows * mean / 3 <= high
        ratio = plan.noise["ratio"]
        known = math.sqrt(((mean**2 + variance) / 3 - (mean / 3) ** 2) / rows)
        oracle = noise.find_half_widths(0.95, np.array([known / ratio]), 1.0, 0.0)[0]
        widths.append((high - low) / 2 / (rows * ratio * oracle))
    assert covered >= LEAST
    assert np.mean(widths) <= 1.4
    assert asked.plan(epsilon=2.0, rows=rows).grid.degree == 2


def test_variances_by_group_cover_and_are_not_twice_as_wide_as_noise_makes_them():
    """Of 40 right intervals fewer cover than this with probability 1e-7."""
    asked = sv.Variance((0, 1), by=BY)
    mean, variance = find_truth("normal")
    noise = NoiseLaw.choose(5 * 4)
    covered = 0
    widths = []
    rows = 3000
    for plan, release in draw_releases(asked, "normal", rows, 0.5, runs=40):
        told = asked._compute_intervals(release, 0.95)
        low, high = told.low["variance"][0], told.high["variance"][0]
        covered += low <= variance <= high
        ratio = plan.noise["ratio"]
        known = np.array([math.sqrt(2 * variance**2 / 3 / rows) / ratio])
        slots = ((1 - mean) ** 2, -mean * (1 - mean), mean**2)
        oracle = 3 * ratio * noise.find_half_widths(0.95, known, *slots)[0]
        widths.append((high - low) / 2 / oracle)
    assert covered >= binom.ppf(1e-7, 40, 0.95)
    assert np.mean(widths) <= 1.75


def test_few_people_fall_back_to_bounds_and_the_release_says_so():
    asked = sv.Mean((0, 1), by=BY)
    table = pa.table({"g": ["a", "b", "c"] * 20, "y": np.linspace(0, 1, 60)})
    release = asked.fit(table, column="y", epsilon=0.2).release_
    assert "bounds" in release.intervals["sampling_from"]
    assert "from the bounds" in asked.plan(epsilon=0.2, rows=60).describe()
    many = sv.Mean((0, 1), by=BY, interval_share=0.05).fit(table, column="y", epsilon=0.2)
    assert "squares" in many.release_.intervals["sampling_from"]


@pytest.mark.parametrize(("known", "m"), [(0.5, 0.5), (2.0, 0.3), (8.0, 0.1), (64.0, 0.0)])
def test_the_margin_of_squares_keeps_the_level_at_every_variance(known, m):
    """300,000 draws a variance: six deviations of a share of 0.05 are 0.0024."""
    ratio = 1 / known
    margin = table_moments.find_square_margin(ratio, 1.0, 0.95, 1 - m, -m) / ratio
    rng = np.random.default_rng(5)
    Z = rng.laplace(0.0, 2.0, (300_000, 3))
    linear = table_moments.expand_linear(2, 1 - m, -m)
    off = Z @ np.array(linear)
    apart = known * (Z @ np.array(table_moments.expand_square(1 - m, -m)) + margin)
    law = NoiseLaw(100, False)
    misses = []
    for variance in known * np.geomspace(0.01, 100, 9):
        told = np.sqrt(np.maximum(variance + apart, 0.0))
        reach = law.find_half_widths(0.95, told, *linear)
        moved = off + math.sqrt(variance) * rng.standard_normal(len(off))
        misses.append(float(np.mean(np.abs(moved) > reach)))
    assert max(misses) <= 0.05 + 0.0024 + 0.0005  # what the quadrature may leave
    assert max(misses) >= 0.03  # and not much too careful


PAIRS = {
    "normal": lambda rng, n: _mix(rng.normal(0, 0.2, n), rng.normal(0, 0.2, n), 0.6),
    "skewed": lambda rng, n: _mix(rng.exponential(0.2, n), rng.exponential(0.2, n), 0.5),
    "heavy-tailed": lambda rng, n: _mix(
        0.1 * rng.standard_t(3, n), 0.1 * rng.standard_t(3, n), 0.5
    ),
    "nearly collinear": lambda rng, n: _mix(rng.normal(0, 0.25, n), rng.normal(0, 0.2, n), 0.999),
}


def _mix(x, other, r):
    return np.clip(x, -1, 1), np.clip(r * x + math.sqrt(1 - r * r) * other, -1, 1)


@pytest.mark.parametrize("law", PAIRS)
@pytest.mark.parametrize(
    ("rows", "epsilon"), [(1500, 2.0), pytest.param(5000, 0.5, marks=pytest.mark.long)]
)
def test_intervals_of_covariances_and_correlations_cover(law, rows, epsilon):
    """Of 30 right intervals fewer cover than this with probability 1e-7."""
    rng = np.random.default_rng(8)
    x, y = PAIRS[law](rng, 1_000_000)
    truth = np.cov(x, y, bias=True)
    r = truth[0, 1] / math.sqrt(truth[0, 0] * truth[1, 1])
    true = [truth[0, 0], truth[0, 1], r, float(np.mean(y))]
    asked = sv.Covariance({"x": (-1, 1), "y": (-1, 1)})
    plan = None
    covered = np.zeros(4)
    narrow = []
    for _ in range(30):
        x, y = PAIRS[law](rng, rows)
        read = asked.read_arrays(pa.table({"x": x, "y": y}), epsilon=epsilon, groups=None)
        plan = plan or asked.plan_for(read.budgets, read)
        with seeded(int(rng.integers(2**32))):
            told = asked._compute_intervals(asked.release_under(plan, read), 0.95)
        ends = [
            (told.low[name]["x"][column], told.high[name]["x"][column])
            for name, column in (("covariance", "x"), ("covariance", "y"), ("correlation", "y"))
        ]
        ends.append((told.low["mean"]["y"], told.high["mean"]["y"]))
        covered += [low <= one <= high for (low, high), one in zip(ends, true, strict=True)]
        assert -1 <= ends[2][0] <= ends[2][1] <= 1
        narrow.append(ends[2][1] - ends[2][0])
    assert covered.min() >= binom.ppf(1e-7, 30, 0.95)
    if law == "nearly collinear":
        assert np.mean(narrow) < 0.4  # where a covariance alone would tell little


def test_intervals_of_covariances_that_leave_out_noise_are_caught(monkeypatch):
    """The planted bug: the noise of products on the diagonal forgotten. Where noise is nearly all
    of the error, nearly no interval covers.
    """
    monkeypatch.setattr(
        covariance_intervals.NoisyProducts,
        "of_release",
        classmethod(
            lambda cls, release, original=covariance_intervals.NoisyProducts.of_release: replace(
                original(release), scale=release.noise["scale"] / 20
            )
        ),
    )
    rng = np.random.default_rng(8)
    asked = sv.Covariance({"x": (-1, 1), "y": (-1, 1)})
    covered = 0
    for _ in range(30):
        x, y = PAIRS["normal"](rng, 2000)
        with seeded(int(rng.integers(2**32))):
            told = asked.fit(pa.table({"x": x, "y": y}), epsilon=0.05).release_.intervals
        covered += (
            told["low"]["covariance"]["x"]["y"] <= 0.024 <= told["high"]["covariance"]["x"]["y"]
        )
    assert covered < binom.ppf(1e-7, 30, 0.95)


def test_a_covariance_tells_its_intervals_and_loads_with_them():
    rng = np.random.default_rng(1)
    x, y = PAIRS["normal"](rng, 4000)
    found = sv.Covariance({"x": (-1, 1), "y": (-1, 1)}).fit(pa.table({"x": x, "y": y}), epsilon=2.0)
    low, high = found.interval(0.9)["correlation"]["x"]["y"]
    assert low <= found.correlation_[0, 1] <= high
    again = sv.load(sv.Release.from_json(found.release_.to_json()))
    assert again.interval(0.9) == found.interval(0.9)
    assert " to " in found.release_.explain()
    assert "beside each answer" in found.release_.explain()
