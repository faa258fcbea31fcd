# SPDX-License-Identifier: Apache-2.0
"""Several quantiles in one choice, drawn exactly (docs/theory/quantile.md, several quantiles).

The weight of a grid point t lies evenly on its S sub-points, so that a rank inside many equal
values exists. For ordered sub-points p_1 ≤ … ≤ p_m

    P(p)  ∝  exp(−u(p)/λ),    u(p) = Σ_j |F(p_j) − F(p_{j−1}) − (T_j − T_{j−1})|,    j = 1 … m + 1

with F(p_0) = T_0 = 0 and F(p_{m+1}) = T_{m+1} = all the weight. There are far too many p to list.
So they are drawn by rejection:

    blocks    for each j the sub-points are cut into runs whose ranks hardly differ
    sums      a forward pass in logarithms adds up, over chains of blocks, an upper bound of the law
    proposal  going back, a block is drawn by whole numbers and a sub-point of it uniformly: the
              probability of what is proposed is a known fraction
    coin      it is kept with probability exp(−u/λ) over a constant times that fraction, thrown
              exactly

What is kept has the law above, whatever doubles did in the forward pass, as long as that ratio is
at most 1: the constant leaves a thousandth a quantile for their errors, which is many times what
they can be. No sub-point is out of reach: every block has at least one of the whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sottovoce.noise import source
from sottovoce.noise.source import Floats, Scores

#: Sub-points of a grid point.
SUBPOINTS = 2**20
#: Up to so many scales from its target a quantile has blocks of equal width; beyond, they grow.
NEAR = 8.0
#: Farther than so many scales all ranks count as equally far, which is an upper bound.
FAR = 4096.0
#: Blocks by length: so many a quantile, so that two quantiles rarely fall into one block.
LENGTHS = 32
#: A sub-point is heavy if it weighs more than this part of the scale.
HEAVY = 1000
#: Whole numbers of the proposal are out of about 2^PROPOSAL_BITS.
PROPOSAL_BITS = 40
#: What is left for errors of doubles, in logarithms a quantile.
LEFT_FOR_ERRORS = 2.0**-10
RANK_ERROR = 2.0**-30


@dataclass(frozen=True, eq=False)
class Blocks:
    """Runs of sub-points for one quantile: where they begin and end, and what ranks they hold."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    centre: Floats  # rank − target, in scales
    weight: Floats  # logarithm of the length, and of what ranks inside may add

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Proposal:
    """Sub-points, and the exact 1/probability with which they were proposed."""

    points: list[int]
    odds: Fraction


class JointChoice:
    """The law of several quantiles for one histogram.

    Parameters are whole numbers: weights by grid point, targets in ascending order, and the scale.
    """

    def __init__(self, histogram: Scores, targets: Sequence[int], scale: int) -> None:
        self.histogram = histogram
        self.reached = np.concatenate([[0], np.cumsum(histogram)])
        self.targets = list(targets)
        self.scale = scale
        offsets = _list_offsets(len(self.targets))
        self.blocks = [self._cut(target, offsets) for target in self.targets]
        self.sums = self._add_up()
        last = self.sums[-1] - np.abs(self.blocks[-1].centre)
        self.bound = float(np.logaddexp.reduce(last)) + LEFT_FOR_ERRORS * len(self.targets)

    def draw(self) -> list[int]:
        """Returns grid points t_1 ≤ … ≤ t_m with the law above, exactly."""
        while True:
            proposed = self._propose()
            if proposed is not None and self._accept(proposed):
                return [point // SUBPOINTS for point in proposed.points]

    def measure(self, points: Sequence[int]) -> int:
        """Returns 2S·u(p), a whole number."""
        total = 2 * SUBPOINTS * int(self.reached[-1])
        ranks = [0, *(self._rank(point) for point in points), total]
        aims = [0, *(2 * SUBPOINTS * target for target in self.targets), total]
        return sum(
            abs(ranks[j] - ranks[j - 1] - aims[j] + aims[j - 1]) for j in range(1, len(ranks))
        )

    def _rank(self, point: int) -> int:
        """Returns 2S·F(p): half of a sub-point's own weight counts as below it."""
        cell, place = divmod(point, SUBPOINTS)
        return 2 * SUBPOINTS * int(self.reached[cell]) + int(self.histogram[cell]) * (2 * place + 1)

    def _cut(self, target: int, offsets: Floats) -> Blocks:
        """Returns the blocks for one target: any cuts will do, and these keep ranks together."""
        cells = len(self.histogram)
        length = cells * SUBPOINTS
        total = int(self.reached[-1])
        ranks = np.clip(float(target) + offsets * float(self.scale), 0.0, float(total)).astype(
            np.int64
        )
        cell = np.searchsorted(self.reached, np.minimum(ranks, total), side="right") - 1
        cell = np.clip(cell, 0, cells - 1)
        own = np.maximum(self.histogram[cell], 1)
        place = np.clip((ranks - self.reached[cell]) / own, 0.0, 1.0) * SUBPOINTS
        by_rank = cell * SUBPOINTS + place.astype(np.int64)
        # A sub-point that is heavy by itself stands apart from what has no weight beside it.
        heavy = own > SUBPOINTS * (float(self.scale) / HEAVY)
        parts = LENGTHS * len(self.targets)
        by_length = np.arange(parts, dtype=np.int64) * (length // parts)
        cuts = np.unique(np.concatenate([by_rank, by_rank[heavy] + 1, by_length, [0, length]]))
        cuts = cuts[cuts <= length]
        start = cuts[:-1]
        end = cuts[1:]
        low = self._measure_offsets(start, target)
        high = self._measure_offsets(end - 1, target)
        return Blocks(
            start, end, (low + high) / 2, np.log(end - start) + (high - low) + 2 * RANK_ERROR
        )

    def _measure_offsets(self, points: NDArray[np.int64], target: int) -> Floats:
        """Returns rank − target of sub-points, in scales; at most ``FAR`` on either side."""
        cell = points // SUBPOINTS
        place = (points - cell * SUBPOINTS + 0.5) / SUBPOINTS
        whole = (self.reached[cell] - target).astype(np.float64)
        offset = (whole + self.histogram[cell] * place) / float(self.scale)
        return np.clip(offset, -FAR, FAR)

    def _add_up(self) -> list[Floats]:
        """Returns for each quantile and block an upper bound, in logarithms, of the sum of
        exp(−u/λ) over all that may come before.
        """
        first = self.blocks[0]
        sums = [first.weight - np.abs(first.centre)]
        for before, now in zip(self.blocks, self.blocks[1:], strict=False):
            sums.append(now.weight + _sum_before(sums[-1], before, now))
        return sums

    def _propose(self) -> Proposal | None:
        """Returns ordered sub-points; None where those drawn are not in order."""
        points: list[int] = []
        odds = Fraction(1)
        centre = 0.0
        end = None
        for blocks, sums in zip(reversed(self.blocks), reversed(self.sums), strict=True):
            count = len(blocks)
            if end is not None:
                count = int(np.searchsorted(blocks.start, end, side="left"))
            which, inverse = _draw_block(sums[:count] - np.abs(blocks.centre[:count] - centre))
            start = int(blocks.start[which])
            size = int(blocks.end[which]) - start
            points.append(start + source.draw_below(size))
            odds *= inverse * size
            centre = float(blocks.centre[which])
            end = int(blocks.end[which])
        points.reverse()
        if points != sorted(points):
            return None
        return Proposal(points, odds)

    def _accept(self, proposed: Proposal) -> bool:
        """Throws a coin of bias exp(−u/λ − bound)·odds, exactly."""
        exponent = Fraction(self.measure(proposed.points), 2 * SUBPOINTS * self.scale)
        enclosure = partial(_enclose_product, exponent + Fraction(self.bound), proposed.odds)
        _, high = enclosure(64)
        if high > Decimal(1 << 64):
            raise ArithmeticError("doubles were less exact than the bound of the proposal allows")
        return source.resolve(enclosure, int(source.draw_words(1)[0]))


def choose_jointly(histogram: Scores, targets: Sequence[int], scale: int) -> list[int]:
    """Returns grid points for targets in ascending order: weights that move by at most D in ℓ1
    cost 2D/scale.
    """
    return JointChoice(histogram, targets, scale).draw()


def _list_offsets(quantiles: int) -> Floats:
    """Returns where to cut around a target, in scales: so finely that a proposal is kept about
    every second time.
    """
    fine = 1 / (2 * max(quantiles, 8))
    near = np.arange(fine / 2, NEAR, fine)
    growth = 1 + fine / 4  # so that m blocks add little to what one of them takes off
    coarse = NEAR * growth ** np.arange(math.ceil(math.log(FAR / NEAR, growth)) + 1)
    side = np.concatenate([near, coarse])
    return np.concatenate([-side[::-1], side])


def _sum_before(sums: Floats, before: Blocks, now: Blocks) -> Floats:
    """Returns log Σ exp(sums − |centre − centre'|) over the blocks before that begin no later than
    a block now ends.
    """
    count = np.searchsorted(before.start, now.end, side="left")
    split = np.minimum(np.searchsorted(before.centre, now.centre, side="right"), count)
    below = np.concatenate([[-np.inf], np.logaddexp.accumulate(sums + before.centre)])
    above = _sum_ranges(sums - before.centre, split, count)
    return np.asarray(np.logaddexp(below[split] - now.centre, above + now.centre))


def _sum_ranges(
    logarithms: Floats, start: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Returns log Σ exp(logarithms) from each start up to its end, from sums over 1, 2, 4 … of
    them.

    A difference of two sums to the end would be shorter, and tells nothing where what is left is a
    small part of them: with many quantiles it mostly is, and hardly any proposal would be kept.
    """
    total = np.full(len(start), -np.inf)
    at = start.copy()
    left = end - start
    runs = logarithms  # of so many each
    size = 1
    while left.any():
        taken = np.flatnonzero(left & size)
        total[taken] = np.logaddexp(total[taken], runs[at[taken]])
        at[taken] += size
        left[taken] -= size
        runs = np.logaddexp(runs[:-size], runs[size:])
        size *= 2
    return total


def _draw_block(weights: Floats) -> tuple[int, Fraction]:
    """Returns an index with probability about ∝ exp(weights), and exactly 1 over that."""
    shares = np.exp(weights - weights.max())
    numbers = np.maximum(np.ceil(shares * 2.0**PROPOSAL_BITS), 1.0).astype(np.int64)
    reached = np.cumsum(numbers)
    total = int(reached[-1])
    which = int(np.searchsorted(reached, source.draw_below(total), side="right"))
    return which, Fraction(total, int(numbers[which]))


def _enclose_product(exponent: Fraction, factor: Fraction, bits: int) -> tuple[Decimal, Decimal]:
    """Returns two decimals that enclose factor·exp(−exponent)·2^bits."""
    digits = 3 + bits // 3
    size = len(str(abs(exponent.numerator) // exponent.denominator))
    exact = source.make_context(digits + size + 12)
    power = exact.divide(Decimal(-exponent.numerator), Decimal(exponent.denominator))
    scaled = exact.multiply(exact.exp(power), Decimal(factor.numerator << bits))
    value = exact.divide(scaled, Decimal(factor.denominator))
    margin = exact.power(Decimal(10), Decimal(-digits))
    return (
        exact.multiply(value, exact.subtract(Decimal(1), margin)),
        exact.multiply(value, exact.add(Decimal(1), margin)),
    )
