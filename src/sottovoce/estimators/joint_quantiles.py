# SPDX-License-Identifier: Apache-2.0
"""Several quantiles chosen together: errors to expect, intervals, and the distribution function
(docs/theory/quantile.md, several quantiles). The choice itself is in noise/joint.py.

symbol   name
m        how many quantiles
λ        scale of the choice, 4·max W/ε, as a share of the weight
e_j      rank of the j-th answer less its target: a walk of m + 1 Laplace steps of scale λ that ends
         where it began, where values lie evenly
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Floats
from sottovoce.noise.joint import choose_jointly
from sottovoce.plan import compute_half_width
from sottovoce.release import Intervals, Release
from sottovoce.wording import compute_ordered_points_error

#: The name of the method, in parameters and releases.
JOINT = "joint"
#: More quantiles than this are chosen one after another.
MOST_QUANTILES = 199
#: Neighbouring targets of ``q="all"`` are at least so many scales apart, and so many at most and
#: at least are asked for.
APART = 12
MOST_OF_ALL = 99
FEWEST_OF_ALL = 3
#: Values do not lie evenly between two answers: ranks of an interval's ends are so many times as
#: far off, and this part of the widest gap between targets besides.
UNEVEN = 1.25
UNEVEN_GAP = 1 / 20
#: A place that is this part of a step below a possible value is that value.
ROUNDING = 1e-9
#: Steps of the table of a law, a unit, and how many units it reaches at least.
TABLE_STEPS = 32
TABLE_REACH = 60


@lru_cache(maxsize=64)
def measure_bridge(quantiles: int) -> tuple[float, ...]:
    """Returns the standard deviation of e_j for j = 1 … m, in units of λ.

    e_j has the density f_j(e)·f_{m+1−j}(e) up to a factor, f_k that of a sum of k Laplace steps,
    whose characteristic function is (1 + s²)^−k.
    """
    reach = TABLE_REACH + 12 * math.isqrt(quantiles + 1)
    count = 2 ** math.ceil(math.log2(2 * reach * TABLE_STEPS))
    places = (np.arange(count) - count // 2) / TABLE_STEPS
    frequency = 2 * math.pi * np.fft.rfftfreq(count, 1 / TABLE_STEPS)
    sums = [
        np.maximum(np.fft.fftshift(np.fft.irfft((1 + frequency**2) ** -float(k), count)), 0.0)
        for k in range(1, quantiles + 1)
    ]
    deviations = []
    for j in range(quantiles):
        likely = sums[j] * sums[quantiles - 1 - j]
        deviations.append(math.sqrt(float(likely @ places**2) / float(likely.sum())))
    return tuple(deviations)


def estimate_joint_noise(targets: Sequence[float], scale: float, spread: float) -> list[float]:
    """Returns the root mean square rank error of each quantile, in the order of ``targets``.

    Where budgets say nothing the answers are ordered uniform points, whose j-th rank has variance
    q(1 − q)/(m + 2) about; precisions add. Where values fill a part of the bounds, uniform points
    outside it have rank 0 or 1.
    """
    distinct = sorted(set(targets))
    deviations = dict(zip(distinct, measure_bridge(len(distinct)), strict=True))
    errors = []
    for q in targets:
        chosen = (deviations[q] * scale) ** 2
        idle = compute_ordered_points_error(q, spread, len(distinct)) ** 2
        errors.append(math.sqrt(chosen * idle / max(chosen + idle, 1e-300)))
    return errors


def measure_noise_constant(quantiles: int) -> float:
    """Returns the mean of E[e_j²]/(max W/ε)² over j: what a mean square rank error is made of."""
    return 16 * sum(deviation**2 for deviation in measure_bridge(quantiles)) / quantiles


def choose_targets(noise_ratio: float) -> list[float]:
    """Returns the targets of ``q="all"``: as many as the scale tells apart with ease."""
    possible = 1 / (APART * 4 * noise_ratio) - 1
    count = int(min(max(possible, FEWEST_OF_ALL), MOST_OF_ALL))
    return [j / (count + 1) for j in range(1, count + 1)]


def draw_joint_values(plan: Any, histogram: NDArray[np.int64]) -> list[float]:
    """Returns one noisy quantile for each q, in the order of q; equal targets have one answer."""
    targets = plan.parameters["q"]
    distinct = sorted(set(targets))
    total = plan.weights.total
    aims = [find_target(q, total) for q in distinct]
    chosen = choose_jointly(histogram, aims, 4 * plan.weights.loudest)
    points = dict(zip(distinct, chosen, strict=True))
    return [plan.grid.points.point(points[q]) for q in targets]


def find_target(q: float, total: int) -> int:
    """Returns q·total as a whole number; both are public."""
    numerator, denominator = q.as_integer_ratio()
    return (2 * numerator * total + denominator) // (2 * denominator)


class ReleasedDistribution:
    """The distribution function between the quantiles of a joint release, and how far it is off."""

    def __init__(self, release: Release) -> None:
        low, high = release.parameters["bounds"]
        values: Any = release.value
        points = sorted(set(zip(release.parameters["q"], values, strict=True)))
        self.ranks = np.array([0.0, *(q for q, _ in points), 1.0])
        self.values = np.array([low, *(value for _, value in points), high])
        deviations = np.array(measure_bridge(len(points)))
        self.noise = np.concatenate([[0.0], deviations, [0.0]]) * float(release.noise["scale"])
        self.people = float(release.noise["people_concentration"])
        self.step = float(release.grid["step"])
        self.is_stepped = "step" in release.parameters

    def _snap(self, places: Floats) -> Floats:
        """Returns the last possible value at or below each place, where a step was declared."""
        if not self.is_stepped:
            return places
        low = self.values[0]
        return np.asarray(low + np.floor((places - low) / self.step + ROUNDING) * self.step)

    def compute_cdf(self, places: Floats) -> Floats:
        """Returns the share of rows at or below each place: straight lines between the answers, a
        jump where several are equal; with a declared step, constant between possible values.
        """
        places = self._snap(places)
        # Of equal answers the last counts: the share at or below.
        last = np.append(self.values[1:] > self.values[:-1], True)
        shares = np.interp(places, self.values[last], self.ranks[last])
        shares = np.where(places < self.values[0], 0.0, shares)
        return np.asarray(np.where(places >= self.values[-1], 1.0, shares))

    def compute_band(self, places: Floats, level: float) -> tuple[Floats, Floats, Floats]:
        """Returns the shares, and between which the population's lie with this probability each.

        Where several answers are equal the share jumps there, to some rank before the next answer.
        """
        shares = self.compute_cdf(places)
        places = self._snap(places)
        next_place = np.searchsorted(self.values, places, side="right")
        equal = next_place - np.searchsorted(self.values, places, side="left")
        next_rank = self.ranks[np.minimum(next_place, len(self.ranks) - 1)]
        most = np.where(equal > 1, np.maximum(next_rank, shares), shares)
        wide = np.reshape([self.find_reach(level, r) for r in np.ravel(shares)], shares.shape)
        return shares, np.maximum(shares - wide, 0.0), np.minimum(most + wide, 1.0)

    def find_half_width(self, level: float, rank: float) -> tuple[float, float, float]:
        """Returns how far, as a share of the rows, the population's rank may be off: together, by
        noise, and by sampling alone.
        """
        # A Laplace law of the same variance has heavier tails than a sum of several steps.
        laplace = float(np.interp(rank, self.ranks, self.noise)) / math.sqrt(2)
        deviation = math.sqrt(max(rank * (1 - rank), 0.0) * self.people)
        if laplace <= 0 and deviation <= 0:
            return 0.0, 0.0, 0.0
        return (
            compute_half_width(level, laplace, deviation),
            compute_half_width(level, laplace, 0.0),
            compute_half_width(level, 0.0, deviation),
        )

    def find_reach(self, level: float, rank: float) -> float:
        """Returns how far the ends of an interval are from a rank: as noise and sampling may move
        it, and more for values that do not lie evenly between answers.
        """
        gap = float(np.diff(self.ranks).max())
        return UNEVEN * self.find_half_width(level, rank)[0] + UNEVEN_GAP * gap

    def find_lower_end(self, rank: float) -> float:
        """Returns the place at which the straight lines reach a rank. After several equal answers
        it is theirs: the rows with this value may reach up to the next answer.
        """
        below = max(int(np.searchsorted(self.ranks, rank, side="right")) - 1, 0)
        if below > 0 and self.values[below] == self.values[below - 1]:
            return float(self.values[below])
        return float(np.interp(rank, self.ranks, self.values))

    def find_upper_end(self, rank: float) -> float:
        """Returns the same before several equal answers: rows with their value may begin right
        after the answer before.
        """
        last = len(self.ranks) - 1
        above = min(int(np.searchsorted(self.ranks, rank, side="left")), last)
        if above < last and self.values[above] == self.values[above + 1]:
            return float(self.values[above])
        return float(np.interp(rank, self.ranks, self.values))

    def compute_intervals(self, release: Release, level: float) -> Intervals:
        """Returns the interval of each quantile: where ranks lie that are farther off than noise
        and sampling are.
        """
        low: list[float] = []
        high: list[float] = []
        noise: list[float] = []
        sampling: list[float] = []
        for q in release.parameters["q"]:
            reach, by_noise, by_chance = self.find_half_width(level, q)
            wide = self.find_reach(level, q)
            lower = self.find_lower_end(max(q - wide, 0.0)) - self.step
            upper = self.find_upper_end(min(q + wide, 1.0)) + self.step
            low.append(max(lower, float(self.values[0])))
            high.append(min(upper, float(self.values[-1])))
            width = (high[-1] - low[-1]) / 2
            noise.append(width * min(by_noise / max(reach, 1e-300), 1.0))
            sampling.append(width * min(by_chance / max(reach, 1e-300), 1.0))
        parts: Any = release.error_parts
        return Intervals(
            level=level,
            low=low,
            high=high,
            noise=noise,
            sampling=sampling,
            sampling_from="the released quantiles, between which values are taken to lie about "
            "evenly",
            of="the quantiles of the population; possible bias is a rank",
            bias=[part.get("bias", 0.0) for part in parts],
        )
