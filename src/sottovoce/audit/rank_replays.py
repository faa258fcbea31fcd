# SPDX-License-Identifier: Apache-2.0
"""The losses of quantiles: points chosen by weighted rank, and the reach of their intervals
(docs/theory/per-instance.md, section on realised losses).

A row that is taken out has no rank: its weight is in no cell, and targets stay where they were.

    symbol   name
    P(r)     e_r·∫ Π_{s≠r} (1 − u·e_s) du up to 1 over the largest e, e = exp(−score/scale)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units as privacy_units
from sottovoce.arrays import Floats, Integers
from sottovoce.audit import laws
from sottovoce.audit.joint_replays import JointChoices
from sottovoce.audit.laws import AuditUnits
from sottovoce.audit.replays import Replayed, ReplayMethod, StageLoss, make_bound, read_cells
from sottovoce.data.kernels import WeightedHistogram
from sottovoce.estimators import rank_reach
from sottovoce.estimators.joint_quantiles import JOINT, find_target

#: Numbers that are worked on at a time.
BLOCK_NUMBERS = 2**20
#: Of several quantiles which were sorted, so many are told apart exactly.
MOST_SORTED = 8


def replay_quantile(made: Replayed) -> list[StageLoss]:
    """Return the stages of quantiles: their points, and the reach of their intervals."""
    plan = made.plan
    grid = plan.grid.points
    rows = made.rows
    values: list[float] = made.release.value  # type: ignore[assignment]
    chosen = [
        min(round((Fraction(value) - Fraction(grid.low)) / grid.step), grid.cells)
        for value in values
    ]

    def count(weights: Any) -> tuple[NDArray[np.int64], Integers, Integers]:
        kernel = WeightedHistogram(
            rows.value, grid, rows.owner, weights.row, plan.parameters["missing"]
        )
        cells, weight = read_cells(made, grid, weights.row)
        return rows.engine.fold(kernel), cells, weight

    histogram, cells, weight = count(plan.weights)
    if plan.parameters["method"] == JOINT:
        return [_replay_jointly(made, histogram, cells, weight, chosen)]
    choice = RankChoices(
        histogram,
        cells,
        weight,
        made.kinds,
        tuple(plan.parameters["q"]),
        tuple(chosen),
        2.0 * plan.weights.loudest,
        plan.parameters["method"],
    )
    stages = [StageLoss("quantiles", choice.exact, choice.compute_losses)]
    if not choice.exact:
        charges = privacy_units.to_epsilon(plan.weights.charges * len(values))
        charged = np.asarray(charges, dtype=np.float64)[made.kinds]
        stages = [StageLoss("quantiles", False, make_bound(charged))]
    if plan.bought is not None:
        bought = plan.bought
        published: dict[str, Any] = made.release.bought  # type: ignore[assignment]
        histogram, cells, weight = count(bought.weights)
        for place, reach in enumerate(published["reach"]):
            index = round(Fraction(reach) / grid.step - Fraction(1, 2))
            which = int(np.flatnonzero(bought.candidates[place] == index)[0])
            stages.append(
                _replay_reach(
                    histogram, cells, weight, made, place, chosen[place], which, "its interval"
                )
            )
    return stages


def _replay_jointly(
    made: Replayed,
    histogram: NDArray[np.int64],
    cells: Integers,
    weight: Integers,
    chosen: list[int],
) -> StageLoss:
    plan = made.plan
    distinct = sorted(dict(zip(plan.parameters["q"], chosen, strict=True)).items())
    points = [(find_target(q, plan.weights.total), cell) for q, cell in distinct]
    scale = 4.0 * plan.weights.loudest
    heaviest = int(plan.weights.person.max())
    choice = JointChoices.of(histogram, cells, weight, made.kinds, points, scale, heaviest)
    people = 0
    if plan.budgets.unit == "person":
        people = int(plan.budgets.kinds.people.sum())
    if choice.is_feasible(people):
        return StageLoss("quantiles", True, choice.compute_losses)
    return StageLoss("quantiles", False, choice.bound_losses)


def _replay_reach(
    histogram: NDArray[np.int64],
    cells: Integers,
    weight: Integers,
    made: Replayed,
    place: int,
    index: int,
    which: int,
    name: str,
) -> StageLoss:
    bought = made.plan.bought
    q = made.plan.parameters["q"][place]
    steps = bought.candidates[place]
    aim = bought.aims[place]
    last = len(histogram) - 1
    total = int(histogram.sum())
    upper = np.minimum(index + steps, last)
    lower = np.maximum(index - steps, 0)
    reached = np.concatenate([[0], np.cumsum(histogram)])
    target = round(Fraction(q) * total)
    aimed = min(round(Fraction(aim) * total), total)

    def score(above: Any, below: Any) -> NDArray[np.int64]:
        """As rank_reach.score_reaches, for lines of sums up to each end."""
        up = np.where(upper == last, total, above - target)
        down = np.where(lower == 0, total, target - below)
        covered = np.minimum(up, down)
        narrower = np.concatenate(
            [np.full((*covered.shape[:-1], 1), -total), covered[..., :-1]], axis=-1
        )
        scores = np.maximum(np.maximum(aimed - covered, narrower - aimed), 0)
        return np.asarray(scores + handicaps)

    scale = 2 * bought.weights.loudest
    handicaps = rank_reach.list_handicaps(len(steps), scale)
    full = score(reached[upper + 1], reached[lower])

    def compute(units: AuditUnits) -> Floats:
        some, inverse, few = units.distinguish(cells, made.kinds)
        own = cells[some][:, None]
        heavy = weight[some][:, None]
        without = score(
            reached[upper + 1] - few.add(heavy * (own <= upper)),
            reached[lower] - few.add(heavy * (own < lower)),
        )
        found = laws.compute_choice_loss(full, without, which, scale)
        return np.asarray(found[inverse])

    return StageLoss(name, True, compute)


@dataclass(frozen=True, eq=False)
class RankChoices:
    """Points that were chosen by weighted rank, one for each q, and published in rising order.

    Sorting hides which q chose which point, so the probability of what is published is a sum over
    the ways to share the points out: a permanent, exact for up to MOST_SORTED quantiles.
    """

    histogram: NDArray[np.int64]
    cells: Integers
    weight: Integers
    kinds: Integers
    targets: tuple[float, ...]
    chosen: tuple[int, ...]
    scale: float
    method: str

    @property
    def exact(self) -> bool:
        """Whether the sum over all ways is computed."""
        return len(self.targets) <= MOST_SORTED

    def compute_losses(self, units: AuditUnits) -> Floats:
        """Return the loss of each unit."""
        some, inverse, few = units.distinguish(self.cells, self.kinds)
        total = int(self.histogram.sum())
        logs = [
            [LineOfRanks.of(self, round(Fraction(q) * total), r) for r in self.chosen]
            for q in self.targets
        ]
        full = _sum_assignments([[line.full() for line in row] for row in logs])
        parts = [
            [line.without(self.cells[some], self.weight[some], few) for line in row] for row in logs
        ]
        return np.asarray((full - _sum_assignments(parts))[inverse])


def _sum_assignments(logs: list[list[Any]]) -> Any:
    """Returns the logarithm of the permanent of exp(logs), by subsets of columns."""
    count = len(logs)
    best: dict[int, Any] = {0: np.zeros(np.shape(logs[0][0]))}
    for row in logs:
        nxt: dict[int, Any] = {}
        for used, value in best.items():
            for column in range(count):
                bit = 1 << column
                if not used & bit:
                    more = value + row[column]
                    known = nxt.get(used | bit)
                    nxt[used | bit] = more if known is None else np.logaddexp(known, more)
        best = nxt
    return best[(1 << count) - 1]


@dataclass(frozen=True, eq=False)
class LineOfRanks:
    """The law of one choice, in runs of cells that have one score."""

    below: NDArray[np.int64]  # weight below each run
    reached: NDArray[np.int64]  # weight up to each run
    many: Floats  # cells in each run
    run_of: Integers  # cell → run
    target: int
    chosen: int  # a run
    scale: float
    method: str

    @classmethod
    def of(cls, choices: RankChoices, target: int, chosen: int) -> LineOfRanks:
        """The runs of a histogram."""
        held = choices.histogram != 0
        starts = held | np.concatenate([[True], held[:-1]])
        run_of = np.cumsum(starts) - 1
        first = np.flatnonzero(starts)
        reached = np.cumsum(choices.histogram)
        return cls(
            (reached - choices.histogram)[first],
            reached[first],
            np.diff(np.append(first, len(held))).astype(np.float64),
            run_of,
            target,
            int(run_of[chosen]),
            choices.scale,
            choices.method,
        )

    def full(self) -> float:
        """The logarithm of the probability with everybody."""
        gaps = self._score(self.below, self.reached)
        return float(self._integrate(gaps))

    def without(self, cells: Integers, weight: Integers, units: AuditUnits) -> Floats:
        """The same without each unit."""
        runs = self.run_of[cells]
        if not units.single:
            return self._without_several(runs, weight, units)
        found = np.empty(units.count)
        for one in np.unique(weight):
            mine = weight == one
            found[mine] = self._without_rows(runs[mine], int(one))
        return found

    def _score(self, below: Any, reached: Any) -> NDArray[np.int64]:
        gaps: NDArray[np.int64] = np.maximum(below - self.target, self.target - reached)
        return np.maximum(gaps, 0, out=gaps)

    def _make_nodes(self, least: int, heads: Floats) -> tuple[Floats, Floats]:
        """Nodes and weights of the integral over (0, 1/largest head]."""
        return laws.make_octave_nodes(
            math.exp(least / self.scale), float(heads @ self.many) * math.exp(least / self.scale)
        )

    def _integrate(self, gaps: NDArray[np.int64]) -> Any:
        heads = np.exp(-gaps / self.scale)
        own = gaps[self.chosen] / self.scale
        if self.method == "exponential":
            return -own - math.log(float(heads @ self.many))
        nodes, mass = self._make_nodes(int(gaps.min()), heads)
        total = np.concatenate(
            [
                self._add_factors(part, heads)
                for part in np.array_split(nodes, 1 + len(nodes) * len(heads) // BLOCK_NUMBERS)
            ]
        )
        return _log_of_sum(total, mass) - own

    def _add_factors(self, nodes: Floats, heads: Floats) -> Floats:
        """Σ log(1 − u·e) over all points but the chosen one, for each node u."""
        factors = np.log1p(-np.outer(nodes, heads))
        return np.asarray(factors @ self.many - factors[:, self.chosen])

    def _without_several(self, runs: Integers, weight: Integers, units: AuditUnits) -> Floats:
        found = np.empty(units.count)
        known: dict[tuple[Any, ...], float] = {}  # many people have rows in the same places
        for unit in range(units.count):
            places = units.order[units.first[unit] : units.first[unit] + units.sizes[unit]]
            same = tuple(sorted(zip(runs[places].tolist(), weight[places].tolist(), strict=True)))
            if same in known:
                found[unit] = known[same]
                continue
            moved = np.zeros(len(self.below) + 1, dtype=np.int64)
            np.add.at(moved, runs[places] + 1, weight[places])
            before = np.cumsum(moved)
            gaps = self._score(self.below - before[:-1], self.reached - before[1:])
            found[unit] = self._integrate(gaps)
            known[same] = found[unit]
        return found

    def _without_rows(self, runs: Integers, weight: int) -> Floats:
        """Runs before a row's own are as they were, its own loses weight at its end, those after
        it at both ends: sums up to each run, and from each run on, serve all rows.
        """
        before = self._score(self.below, self.reached)
        at_own = self._score(self.below, self.reached - weight)
        after = self._score(self.below - weight, self.reached - weight)
        places, inverse = np.unique(runs, return_inverse=True)
        own = np.where(
            self.chosen < places,
            before[self.chosen],
            np.where(self.chosen == places, at_own[self.chosen], after[self.chosen]),
        )
        heads = [np.exp(-gaps / self.scale) for gaps in (before, at_own, after)]
        if self.method == "exponential":
            logs = np.log(_add_parts([head * self.many for head in heads], places))
            return np.asarray((-own / self.scale - logs)[np.ravel(inverse)])
        # No score of a table without the row is smaller; what is, is of runs that are not used.
        least = max(self.target - (int(self.reached[-1]) - weight), 0)
        most = math.exp(-least / self.scale)
        heads = [np.minimum(head, most) for head in heads]
        nodes, mass = self._make_nodes(least, np.maximum(heads[0], heads[2]))
        total = np.empty((len(nodes), len(places)))
        mine = np.minimum(np.exp(-own / self.scale), most)
        for at, u in enumerate(nodes):
            factors = [np.log1p(-u * head) * self.many for head in heads]
            total[at] = _add_parts(factors, places) - np.log1p(-u * mine)
        logs = _log_of_sum(total, mass[:, None])
        return np.asarray((logs - own / self.scale)[np.ravel(inverse)])


def _add_parts(parts: list[Floats], places: Integers) -> Floats:
    """Returns the sum of the first up to each place, the second there, and the third beyond."""
    before, at_own, after = parts
    up_to = np.concatenate([[0.0], np.cumsum(before)])
    beyond = np.concatenate([np.cumsum(after[::-1])[::-1], [0.0]])
    return np.asarray(up_to[places] + at_own[places] + beyond[places + 1])


def _log_of_sum(logs: Floats, mass: Floats) -> Any:
    most = logs.max(axis=0)
    return most + np.log((np.exp(logs - most) * mass).sum(axis=0))


QUANTILE = ReplayMethod(replay_quantile)
