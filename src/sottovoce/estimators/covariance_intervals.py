# SPDX-License-Identifier: Apache-2.0
"""Intervals of means, covariances and correlations, from noisy products (docs/theory/tables.md,
section on covariances).

    symbol    name
    M_jk      noisy Σ c·z_j·z_k, z in [−1, 1] and z_0 = 1; M_00 is the share of rows with all values
    m_j, v_j  mean and variance of column j, in half ranges
    p         the share of rows with all values
    far_j     1 + |m_j|: no value lies further from the mean

The noise of every entry is independent, so that any linear combination of them has a law that is
known. Sampling is bounded by second moments and bounds: (z_j − m_j)²(z_k − m_k)² ≤
far_j²·(z_k − m_k)².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.estimators.table_law import INDEPENDENT_SCALE, NoiseLaw
from sottovoce.noise.zero_sum import MOST_CELLS
from sottovoce.release import Intervals, Release

#: The parts of what an interval may miss that bound second moments, and means.
MOMENT_PART = 0.1
MEAN_PART = 0.1
#: A variance that is below so many deviations of its noise tells nothing of a correlation.
LEAST_DEVIATIONS = 4.0
#: Coefficients are rounded up to so many parts of the largest, so that few laws are tabulated.
COEFFICIENT_STEPS = 16
HALVINGS = 30

Entry = tuple[int, int]


@dataclass(frozen=True, eq=False)
class NoisyProducts:
    """What a release says about products, and the law of their noise."""

    M: Floats
    scale: float  # of the noise of an entry off the diagonal, as a share; twice that on it
    people: float
    heaviest: float

    @classmethod
    def of_release(cls, release: Release) -> NoisyProducts:
        """Reads it from a release."""
        value: dict[str, Any] = release.value  # type: ignore[assignment]
        size = len(release.parameters["columns"]) + 1
        M = np.zeros((size, size))
        M[np.triu_indices(size)] = value["noisy"]
        M = M + np.triu(M, 1).T
        noise = release.noise
        return cls(
            M,
            float(noise["scale"]),
            float(noise["people_concentration"]),
            float(noise["heaviest"]),
        )

    @property
    def share(self) -> float:
        """The share of rows with all values, at least what its noise makes worth dividing by."""
        return float(max(self.M[0, 0], 2 * self.scale))

    @property
    def means(self) -> Floats:
        """The noisy means, in half ranges."""
        return np.asarray(np.clip(self.M[0, 1:] / self.share, -1.0, 1.0))

    def centre(self, j: int, k: int) -> dict[Entry, float]:
        """Returns how p·cov(z_j, z_k) around the noisy means is made of entries, but for what is
        taken off for the covariance itself.
        """
        a = float(self.means[j - 1])
        b = float(self.means[k - 1])
        terms = {(j, k): 1.0, (0, 0): a * b}
        for entry, amount in (((0, j), -b), ((0, k), -a)):
            terms[entry] = terms.get(entry, 0.0) + amount
        return terms

    def apply(self, terms: dict[Entry, float]) -> float:
        """Returns the noisy value of a combination of entries."""
        return float(sum(amount * self.M[entry] for entry, amount in terms.items()))

    def find_width(self, level: float, terms: dict[Entry, float], variance: Any = 0.0) -> Floats:
        """Returns how far noise and normal sampling of these variances reach together."""
        sizes = [
            abs(amount) * self.scale * (2.0 if j == k else 1.0)
            for (j, k), amount in terms.items()
            if amount != 0
        ]
        largest = max(sizes)
        steps = np.ceil(np.array(sizes) / largest * COEFFICIENT_STEPS - 1e-9)
        law = NoiseLaw(MOST_CELLS + 1, False)
        unit = largest / INDEPENDENT_SCALE
        deviation = np.sqrt(np.atleast_1d(np.asarray(variance, dtype=np.float64))) / unit
        return unit * law.find_half_widths(level, deviation, *(steps / COEFFICIENT_STEPS).tolist())

    def bound_square(self, j: int, level: float) -> float:
        """Returns what p·v_j is at most, with a small part of what may be missed."""
        terms = self.centre(j, j)
        margin = self.find_width(1 - 2 * MOMENT_PART / 2 * (1 - level), terms)
        most = self.share * (1 - float(self.means[j - 1]) ** 2)
        known = max(self.apply(terms), 0.0) + float(margin[0])
        return min(known + self.heaviest, max(most, known))

    def find_mean_reach(self, j: int, level: float) -> float:
        """Returns how far the mean of a column may be off, in half ranges."""
        mean = float(self.means[j - 1])
        terms = {(0, j): 1.0, (0, 0): -mean}
        width = self.find_width(level, terms, self.people * self.bound_square(j, level))
        return min(float(width[0]) / self.share, 1 + abs(mean))


@dataclass(frozen=True)
class Reach:
    """An interval, and its half-widths by noise and by sampling alone."""

    low: float
    high: float
    noise: float
    sampling: float


def find_covariance(table: NoisyProducts, level: float, j: int, k: int) -> Reach:
    """Returns the interval of a covariance, in products of half ranges; of one column, of its
    variance.

    Around noisy means p·cov is less by p·(m̂_j − m_j)(m̂_k − m_k), which a part of what may be
    missed bounds.
    """
    miss = 1 - level
    rest = 1 - (1 - MOMENT_PART - MEAN_PART) * miss
    terms = table.centre(j, k)
    found = table.apply(terms) / table.share
    terms[0, 0] -= found
    far = 1 + np.abs(table.means)
    squares = [table.bound_square(column, level) for column in (j, k)]
    fourth = min(far[j - 1] ** 2 * squares[1], far[k - 1] ** 2 * squares[0])
    variance = table.people * max(fourth - table.share * found**2, 0.0)
    width = float(table.find_width(rest, terms, variance)[0]) / table.share
    each = 1 - MEAN_PART / 2 * miss
    off = table.find_mean_reach(j, each) * table.find_mean_reach(k, each)
    least = 0.0 if j == k else -1.0
    below = off if j != k else 0.0  # a noisy mean makes squares around it smaller, never larger
    return Reach(
        max(found - width - below, least),
        min(found + width + off, 1.0),
        float(table.find_width(level, terms)[0]) / table.share,
        _scale_normal(level) * math.sqrt(variance) / table.share,
    )


def _scale_normal(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2))


def find_correlation(table: NoisyProducts, level: float, j: int, k: int) -> Reach:
    """Returns the interval of a correlation: the numbers r in [−1, 1] for which the noisy one is
    within reach.

    In units of the deviations, f = xy − r/2·(x² + y²) is zero on average, and it is
    (1 − r)/4·(x + y)² − (1 + r)/4·(x − y)². Both parts have the mean (1 − r²)/2, so that E f² is
    at most max|f|·(1 − r²): sampling vanishes at both ends, as it does after Fisher's
    transformation.
    """
    own = [table.apply(table.centre(column, column)) for column in (j, k)]
    for column, square in zip((j, k), own, strict=True):
        noise = 2 * table.scale * math.sqrt(2) * (1 + abs(float(table.means[column - 1])) ** 2)
        if square < LEAST_DEVIATIONS * noise:
            return Reach(-1.0, 1.0, 1.0, 1.0)
    deviations = [math.sqrt(square / table.share) for square in own]
    product = deviations[0] * deviations[1]
    found = table.apply(table.centre(j, k)) / table.share / product
    r = min(max(found, -1.0), 1.0)
    terms: dict[Entry, float] = {}
    parts = ((j, k, 1 / product), (j, j, -r / 2 / deviations[0] ** 2))
    for a, b, factor in (*parts, (k, k, -r / 2 / deviations[1] ** 2)):
        for entry, amount in table.centre(a, b).items():
            terms[entry] = terms.get(entry, 0.0) + factor * amount
    far = [
        (1 + abs(float(table.means[c - 1]))) / d for c, d in zip((j, k), deviations, strict=True)
    ]
    largest = (far[0] + far[1]) ** 2 / 4
    wide = 1 - (1 - MOMENT_PART) * (1 - level)
    # What noise makes of the two deviations themselves, of second order.
    relative = [
        float(table.find_width(wide, table.centre(c, c))[0]) / square
        for c, square in zip((j, k), own, strict=True)
    ]
    second = max(relative) ** 2 / 4

    def reach(at: float) -> float:
        variance = table.people * table.share * largest * (1 + abs(at)) * (1 - at**2)
        return float(table.find_width(wide, terms, variance)[0]) / table.share + second

    def find_end(end: float) -> float:
        inside = r
        outside = end
        if abs(found - end) <= reach(end):
            return end
        for _ in range(HALVINGS):
            between = (inside + outside) / 2
            if abs(found - between) <= reach(between):
                inside = between
            else:
                outside = between
        return outside

    sampling = math.sqrt(table.people * largest * (1 + abs(r)) * (1 - r**2) / table.share)
    return Reach(
        min(find_end(-1.0), r),
        max(find_end(1.0), r),
        min(float(table.find_width(level, terms)[0]) / table.share, 2.0),
        min(_scale_normal(level) * sampling, 2.0),
    )


def compute_covariance_intervals(release: Release, level: float) -> Intervals:
    """Returns the intervals of means, covariances and correlations from a release alone."""
    table = NoisyProducts.of_release(release)
    names = release.parameters["columns"]
    ranges = release.parameters["ranges"]
    half = [(high - low) / 2 for low, high in (ranges[name] for name in names)]
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    ends: dict[str, dict[str, Any]] = {
        part: {"covariance": {}, "correlation": {}, "mean": {}}
        for part in ("low", "high", "noise", "sampling")
    }
    for a, one in enumerate(names):
        for matrix in ("covariance", "correlation"):
            for part in ends.values():
                part[matrix][one] = {}
        for b, two in enumerate(names):
            if b < a:
                for part in ends.values():
                    for matrix in ("covariance", "correlation"):
                        part[matrix][one][two] = part[matrix][two][one]
                continue
            size = half[a] * half[b]
            answer = value["covariance"][one][two]
            found = find_covariance(table, level, a + 1, b + 1)
            _write_ends(ends, "covariance", (one, two), found, size, answer)
            if a == b:
                certain = Reach(1.0, 1.0, 0.0, 0.0)
                _write_ends(ends, "correlation", (one, two), certain, 1.0, 1.0)
                continue
            found = find_correlation(table, level, a + 1, b + 1)
            answer = value["correlation"][one][two]
            _write_ends(ends, "correlation", (one, two), found, 1.0, answer)
        _write_mean(ends, table, level, (a, one), half[a], ranges[one], value["mean"][one])
    return Intervals(
        level=level,
        low=ends["low"],
        high=ends["high"],
        noise=ends["noise"],
        sampling=ends["sampling"],
        sampling_from="the noisy squares of the columns and the bounds, at no cost",
        of="the means, covariances and correlations of the population",
    )


def _write_ends(
    ends: dict[str, dict[str, Any]],
    matrix: str,
    pair: tuple[str, str],
    found: Reach,
    size: float,
    answer: float | None,
) -> None:
    one, two = pair
    told = size * found.low if answer is None else min(size * found.low, answer)
    ends["low"][matrix][one][two] = told
    told = size * found.high if answer is None else max(size * found.high, answer)
    ends["high"][matrix][one][two] = told
    ends["noise"][matrix][one][two] = size * found.noise
    ends["sampling"][matrix][one][two] = size * found.sampling


def _write_mean(
    ends: dict[str, dict[str, Any]],
    table: NoisyProducts,
    level: float,
    column: tuple[int, str],
    half: float,
    limits: Any,
    answer: float,
) -> None:
    place, name = column
    wide = 1 - (1 - MOMENT_PART) * (1 - level)
    reach = half * table.find_mean_reach(place + 1, wide)
    low, high = limits
    ends["low"]["mean"][name] = max(answer - reach, low)
    ends["high"]["mean"][name] = min(answer + reach, high)
    mean = float(table.means[place])
    alone = table.find_width(level, {(0, place + 1): 1.0, (0, 0): -mean})
    ends["noise"]["mean"][name] = half * float(alone[0]) / table.share
    square = max(table.apply(table.centre(place + 1, place + 1)), 0.0)
    sampling = _scale_normal(level) * math.sqrt(table.people * square) / table.share
    ends["sampling"]["mean"][name] = half * sampling
