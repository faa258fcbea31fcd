# SPDX-License-Identifier: Apache-2.0
"""The losses of several quantiles that were chosen together (docs/theory/per-instance.md, section
on realised losses).

    P(p)  ∝  exp(−u(p)/λ),    u(p) = Σ_j |weight in gap j − its target|

over ordered places p on the line of all cells, in each of which weight lies evenly. What is
published is the cell of each place. The audit sums in doubles, along nodes of a quadrature: the law
of what is drawn is exact (noise/joint.py), the number here is good to about ``STEP`` squared. A
unit that is taken out has no weight in any gap, and targets stay. Cells far from all targets count
as one, so that large tables take no longer than small ones.

    symbol   name
    F        weight below a place
    e        F less the target of its quantile, in scales
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Floats, Integers
from sottovoce.audit.laws import AuditUnits

#: Nodes are at most so many scales of weight apart, and at least so many lie in a cell that counts.
STEP = 1 / 32
#: Farther than so many scales from the nearest target a cell has one node.
NEAR = 24.0
#: What is smaller than the largest of its kind by a factor of this logarithm is left out.
NEGLIGIBLE = 60.0
#: Work for all units together, in nodes times quantiles: beyond it a bound is told.
MOST_WORK = 2**25


@dataclass(frozen=True, eq=False)
class PlaceLine:
    """Nodes along the line: which cell they lie in, where in it, and how long the part is that
    each stands for. Empty cells that follow each other are one.
    """

    cell: Integers  # of each node; the first of several empty ones
    place: Floats  # 0 … 1
    length: Floats  # in cells

    @classmethod
    def of(
        cls, histogram: NDArray[np.int64], targets: list[int], scale: float, chosen: list[int]
    ) -> PlaceLine:
        """Nodes for a histogram; cells that were published stand alone."""
        alone = histogram != 0
        alone[chosen] = True
        starts = np.flatnonzero(alone | np.concatenate([[True], alone[:-1]]))
        lengths = np.diff(np.append(starts, len(histogram))).astype(np.float64)
        held = histogram[starts]
        reached = np.cumsum(histogram)[starts]
        away = np.min(
            [np.maximum(np.maximum(t - reached, reached - held - t), 0) for t in targets], axis=0
        )
        parts = np.where(away <= NEAR * scale, np.ceil(held / (scale * STEP)), 1)
        parts = np.maximum(parts, 1).astype(np.int64)
        first = np.cumsum(parts) - parts
        within = np.arange(int(parts.sum())) - np.repeat(first, parts)
        return cls(
            np.repeat(starts, parts),
            (within + 0.5) / np.repeat(parts, parts),
            np.repeat(lengths / parts, parts),
        )

    def restrict(self, kept: NDArray[np.bool_]) -> PlaceLine:
        """Some of the nodes."""
        return PlaceLine(self.cell[kept], self.place[kept], self.length[kept])

    def find_ranks(self, histogram: NDArray[np.int64]) -> Floats:
        """Returns F at each node."""
        below = np.cumsum(histogram) - histogram
        return np.asarray(below[self.cell] + histogram[self.cell] * self.place)


@dataclass(frozen=True, eq=False)
class JointLaw:
    """The law of several quantiles, for whatever histogram."""

    targets: list[int]  # rising
    total: int  # of the weight, public
    scale: float
    chosen: list[int]  # a cell for each target
    line: PlaceLine

    def compute_log_probability(self, histogram: NDArray[np.int64]) -> float:
        """Returns log P of the cells that were published."""
        own = [self.line.restrict(self.line.cell == cell) for cell in self.chosen]
        apart = [False, *(a != b for a, b in zip(self.chosen, self.chosen[1:], strict=False))]
        every = [self.line] * len(self.targets)
        return self._sum(histogram, own, apart) - self._sum(histogram, every, [False] * len(every))

    def _sum(
        self, histogram: NDArray[np.int64], lines: list[PlaceLine], apart: list[bool]
    ) -> float:
        """log Σ exp(−u/λ) over ordered places, one on each line; ``apart``: all of a line lies
        after the one before it, else they are the same.
        """
        ranks = [line.find_ranks(histogram) for line in lines]
        e = [(F - t) / self.scale for F, t in zip(ranks, self.targets, strict=True)]
        # tied[r]: exactly r + 1 quantiles, this one the last of them, lie in the part of a node.
        tied = [np.log(lines[0].length) - np.abs(e[0])]
        for j in range(1, len(lines)):
            lengths = np.log(lines[j].length)
            sums = np.logaddexp.reduce(tied)
            if apart[j]:
                count = np.full(len(e[j]), len(sums))
                more: list[Floats] = []
            else:
                count = np.arange(len(sums))
                gap = (self.targets[j] - self.targets[j - 1]) / self.scale
                # r places in one part of the line are in order once in r!.
                more = [
                    one + lengths - gap - math.log(r)
                    for r, one in enumerate(tied, start=2)
                    if one.max() > sums.max() - NEGLIGIBLE
                ]
            tied = [lengths + _sum_before(sums, e[j - 1], e[j], count), *more]
        left = (self.total - int(histogram.sum())) / self.scale
        # The weight of the last gap is total − left − F, and its target total − T.
        return float(np.logaddexp.reduce(np.logaddexp.reduce(tied) - np.abs(e[-1] + left)))


def merge_far_cells(
    histogram: NDArray[np.int64], targets: list[int], far: float, chosen: list[int]
) -> Integers:
    """Returns for each cell the one that stands for it: cells farther than this from every target,
    in weight, are as good as one where no other lies between them.

    A place so far from its target is drawn with a chance of about e^(−2·far/λ) times the number of
    cells (u(p) goes there and back), so it does not matter where in such a run somebody's weight is
    missing; only on which side of the places that are drawn.
    """
    reached = np.cumsum(histogram)
    below = reached - histogram
    kept = np.zeros(len(histogram), dtype=bool)
    kept[chosen] = True
    for target in targets:
        kept |= np.maximum(target - reached, below - target) <= far
    first = kept | np.concatenate([[True], kept[:-1]])
    return np.asarray(np.flatnonzero(first)[np.cumsum(first) - 1], dtype=np.int64)


def _sum_before(sums: Floats, before: Floats, now: Floats, count: Integers) -> Floats:
    """log Σ exp(sums − |before − now|) over the first so many nodes."""
    below = np.concatenate([[-np.inf], np.logaddexp.accumulate(sums + before)])
    split = np.minimum(np.searchsorted(before, now, side="right"), count)
    upper = _sum_ranges(sums - before, split, count)
    return np.asarray(np.logaddexp(below[split] - now, upper + now))


def _sum_ranges(logs: Floats, start: Integers, end: Integers) -> Floats:
    """log Σ exp(logs) from start to end − 1, for each pair, without differences."""
    found = np.full(len(start), -np.inf)
    level = logs
    low = start.copy()
    high = end.copy()
    while True:
        open_ = low < high
        if not open_.any():
            return found
        odd = open_ & (low % 2 == 1)
        found[odd] = np.logaddexp(found[odd], level[low[odd]])
        low = np.where(odd, low + 1, low)
        odd = (low < high) & (high % 2 == 1)
        found[odd] = np.logaddexp(found[odd], level[high[odd] - 1])
        high = np.where(odd, high - 1, high)
        if len(level) % 2:
            level = np.append(level, -np.inf)
        level = np.logaddexp(level[::2], level[1::2])
        low = low // 2
        high = high // 2


@dataclass(frozen=True, eq=False)
class JointChoices:
    """Quantiles that were chosen together, and the rows that they are of."""

    histogram: NDArray[np.int64]
    cells: Integers
    weight: Integers
    kinds: Integers
    law: JointLaw

    @classmethod
    def of(
        cls,
        histogram: NDArray[np.int64],
        cells: Integers,
        weight: Integers,
        kinds: Integers,
        points: list[tuple[int, int]],
        scale: float,
        heaviest: int = 0,
    ) -> JointChoices:
        """``points``: targets and the cells that were chosen for them, in rising order;
        ``heaviest``: no unit has more weight, if that is more than every row.
        """
        targets = [target for target, _ in points]
        chosen = [cell for _, cell in points]
        moved = max(heaviest, int(weight.max(initial=0)))
        merged = merge_far_cells(histogram, targets, NEAR * scale + moved, chosen)
        cells = merged[cells]
        together = np.zeros_like(histogram)
        np.add.at(together, merged, histogram)
        histogram = together
        line = PlaceLine.of(histogram, targets, scale, chosen)
        law = JointLaw(targets, int(histogram.sum()), scale, chosen, line)
        return cls(histogram, cells, weight, kinds, law)

    def is_feasible(self, people: int) -> bool:
        """Whether rows, and so many people with several of them, can be told one by one."""
        rows = AuditUnits.rows(len(self.cells))
        many = max(len(rows.distinguish(self.cells, self.kinds)[0]), people)
        return many * len(self.law.line.cell) * len(self.law.targets) <= MOST_WORK

    def compute_losses(self, units: AuditUnits) -> Floats:
        """Return the loss of each unit."""
        some, inverse, few = units.distinguish(self.cells, self.kinds)
        full = self.law.compute_log_probability(self.histogram)
        found = np.empty(few.count)
        for unit in range(few.count):
            places = some[few.order[few.first[unit] : few.first[unit] + few.sizes[unit]]]
            less = self.histogram.copy()
            np.subtract.at(less, self.cells[places], self.weight[places])
            found[unit] = full - self.law.compute_log_probability(less)
        return np.asarray(found[inverse])

    def bound_losses(self, units: AuditUnits) -> Floats:
        """Return a bound for units that are too many to be told one by one: u moves by at most a
        unit's weight, so that the logarithms of a probability and of the sum of all do by that
        over the scale each.
        """
        return np.asarray(2 * units.add(self.weight.astype(np.float64)) / self.law.scale)
