# SPDX-License-Identifier: Apache-2.0
"""Means by groups with a budget a person (docs/theory/tables.md).

A mean by group is the noisy sum of a cell over its noisy count, both of the same slots
(table_sums.py); where the plan prefers it, the slots hold squares too (table_moments.py).

    symbol    name
    m         a mean as a share of the range, 0 … 1
    H, L      shares of the weight in high and low, where a cell has two slots
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.budgets import Budgets
from sottovoce.data.encoding import Label
from sottovoce.data.engine import Dataset
from sottovoce.estimators.cell_plans import describe_few, expect_by_cell, resolve_shares
from sottovoce.estimators.count import find_count_intervals
from sottovoce.estimators.table_law import NoiseLaw, find_normal
from sottovoce.estimators.table_mechanism import (
    THEOREM,
    TYPICAL_MEAN,
    NoisyTable,
    TableGrid,
    describe_noise,
    draw_noisy_values,
    sum_slots,
)
from sottovoce.estimators.table_moments import (
    ExpectedCell,
    apply_to_slots,
    describe_squares,
    expand_linear,
    find_square_margin,
    find_steps,
    get_degree,
    name_sampling_source,
    plan_slots,
    widen_as_student,
)
from sottovoce.estimators.table_steps import (
    count_expected,
    get_share_association,
    make_cells_of,
)
from sottovoce.estimators.table_sums import (
    COUNT_PART,
    complete_counts,
    compute_sums,
    describe_assumption,
    describe_parameters,
    get_spread,
)
from sottovoce.guarantee import Guarantee
from sottovoce.plan import ASSOCIATION, ExpectedError, Plan, measure_inequality
from sottovoce.release import Intervals, Release
from sottovoce.weights import Weights

#: Distances of means from the middle at which half-widths are tabulated, in half ranges; between
#: two of them the larger width is taken.
DISTANCES = np.linspace(0.0, 1.0, 9)
#: And at which margins are: they are convex in the distance, so that what is interpolated is never
#: too small.
FEW_DISTANCES = np.array([0.0, 0.5, 1.0])
HALVINGS = 28


def plan_means(question: Any, budgets: Budgets, label: Label) -> Plan:
    """Returns the plan of means by group."""
    cells = make_cells_of(question)
    even = 1 / count_expected(cells)
    spread = get_spread(question.spread, label.low, label.high)
    association = get_share_association(question.association, ASSOCIATION * spread)
    width = label.high - label.low
    # In ranges, of a mean at m: Σ c·(u − m) is off by that much over the share of the group.
    m = (1 - TYPICAL_MEAN) / 2
    cell = ExpectedCell(even, 1 - m, -m, 0.0, spread / width, centred=True)
    wanted = None if question.interval_share is None else question.interval_share > 0
    weights, grid = plan_slots(
        budgets.kinds,
        cell,
        (math.sqrt(even) * spread / width, even * association / width),
        cells,
        label,
        wanted,
    )
    law = NoiseLaw.choose(grid.slots)
    noise = describe_noise(weights, grid, budgets.kinds)
    noise["too_few_below"] = 3 * budgets.n_rows * _count_deviation(law, weights, grid)
    ratio_noise = (width / even) ** 2 * law.compute_variance(*expand_linear(grid.degree, 1 - m, -m))
    return Plan(
        question="mean by group",
        parameters=describe_parameters(question, label, cells, spread, association),
        budgets=budgets,
        weights=weights,
        guarantee=Guarantee.of(budgets, weights.charges),
        noise=noise,
        grid=grid,
        theorem=THEOREM,
        error=_estimate_mean_error(
            question, budgets, weights, grid, (spread, association, width, ratio_noise, even)
        ),
    )


def _count_deviation(law: NoiseLaw, weights: Weights, grid: TableGrid) -> float:
    parts = grid.degree + 1
    return weights.noise_ratio * math.sqrt(law.compute_variance(*[1.0] * parts))


def _estimate_mean_error(
    question: Any,
    budgets: Budgets,
    weights: Weights,
    grid: TableGrid,
    facts: tuple[float, float, float, float, float],
) -> ExpectedError:
    spread, association, width, ratio_noise, even = facts
    squares, moved = measure_inequality(budgets, weights)
    noise = weights.noise_ratio * math.sqrt(ratio_noise)
    shares = resolve_shares(question.shares, grid.cells)
    few = 3 * budgets.n_rows * _count_deviation(NoiseLaw.choose(grid.slots), weights, grid)
    told = describe_assumption(grid.cells, spread, question.spread is None, shares)
    told += describe_few(few, even * budgets.n_rows, shares)
    # A mean is never further off than the bounds are apart; averaged over where it may be, a third
    # of the squared width.
    widest = width / math.sqrt(3)

    def measure(share: Floats) -> tuple[Floats, Floats]:
        return np.minimum(noise * even / share, widest), spread * np.sqrt(squares / share)

    error = ExpectedError(
        classical="the plain mean of a group",
        unit="in units of the column",
        noise=min(noise, widest),
        sampling=spread * math.sqrt(squares / even),
        bias=association * moved,
        assumed=f"{told}{describe_squares(grid)}",
        representative=1 - moved / 2,
    )
    return expect_by_cell(error, grid.cells, shares, budgets.n_rows, measure, few)


def release_means(plan: Plan, rows: Dataset) -> Release:
    """Reads the rows once, adds noise, and returns the release of means by group."""
    shares = draw_noisy_values(plan, sum_slots(plan, rows))
    table = NoisyTable.of(plan.noise, plan.grid.parts, shares)
    low, high = plan.parameters["bounds"]
    means = compute_means(table, low, high)
    counted = {name: values.tolist() for name, values in table.count_rows().items()}
    told = [None if math.isnan(mean) else mean for mean in means.tolist()]
    sums = compute_sums(table, low, high)
    return Release.of(plan, {"mean": told, **counted, "sum": sums.tolist(), "noisy": shares})


def compute_means(table: NoisyTable, low: float, high: float) -> Floats:
    """Returns the means of the cells, NaN where there are too few rows to say."""
    shares = table.balanced_shares
    few = table.find_too_few()
    safe = np.where(few, 1.0, shares[:, : table.value_parts].sum(axis=1))
    sums = apply_to_slots(shares, expand_linear(get_degree(table), high, low))
    return np.asarray(np.where(few, math.nan, np.clip(sums / safe, low, high)))


def compute_mean_intervals(release: Release, level: float) -> Intervals:
    """Returns the intervals of means by group, after Fieller: the means m for which the noisy
    Σ c·(u − m) of the group is no further from 0 than noise and sampling reach.
    """
    table = NoisyTable.of_release(release)
    low, high = release.parameters["bounds"]
    width = high - low
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    means = np.array([math.nan if mean is None else mean for mean in value["mean"]])
    few = np.isnan(means)
    reach = MeanReach.of(table, level)
    ends = [low + width * end for end in reach.find_ends()]
    counts = find_count_intervals(table, level, np.asarray(value["count"]))
    parts = table.balanced_shares[:, : table.value_parts]
    counted = np.where(few, 1.0, np.maximum(parts.sum(axis=1), 1e-300))
    place = np.where(few, 0.5, (means - low) / width)
    alone = table.law.find_half_widths(
        level, np.zeros(1), *expand_linear(get_degree(table), 0.5, -0.5)
    )
    noise = np.minimum(width * table.ratio * float(alone[0]) / counted, width)
    deviation = np.sqrt(table.people * reach.find_squares(place, margin=False))
    sampling = np.minimum(find_normal(level) * width * deviation / counted, width)
    told: dict[str, Any] = {
        "low": {"mean": _hide(np.minimum(ends[0], np.where(few, ends[0], means)), few)},
        "high": {"mean": _hide(np.maximum(ends[1], np.where(few, ends[1], means)), few)},
        "noise": {"mean": _hide(noise, few)},
        "sampling": {"mean": _hide(sampling, few)},
    }
    told["low"]["count"] = counts[0].tolist()
    told["high"]["count"] = counts[1].tolist()
    complete_counts(table, level, told)
    bounds = "the bounds and the noisy counts, at no cost: no column varies more"
    return Intervals(
        level=level,
        **told,
        sampling_from=name_sampling_source(table, bounds),
        of="the means of the population's groups",
    )


def _hide(values: Floats, few: Any) -> list[float | None]:
    return [None if hidden else float(v) for v, hidden in zip(values, few, strict=True)]


@dataclass(frozen=True, eq=False)
class MeanReach:
    """How far noise and sampling move Σ c·(u − m) of each group, by m."""

    table: NoisyTable
    level: float  # of what is left once variances are bounded
    most: Floats  # a bound on the share of each group, where variances come from bounds
    margins: Floats  # by distance: what a noisy mean square may be too small by
    student: Floats  # by which variances are raised that few people tell

    @classmethod
    def of(cls, table: NoisyTable, level: float) -> MeanReach:
        """Returns it for the slots of a table."""
        counted = table.noisy[:, : table.value_parts].sum(axis=1)
        if get_degree(table) == 2:
            margins = [
                find_square_margin(table.ratio, table.people, level, 1 - m, -m)
                for m in (1 + FEW_DISTANCES) / 2
            ]
            student = widen_as_student(level, counted / table.people - 1)
            return cls(table, level, np.ones(len(counted)), np.array(margins), student)
        miss = 1 - level
        deep = np.array([0.5 * math.sqrt(table.people) / table.ratio])
        more = table.law.find_half_widths(1 - COUNT_PART * miss, deep, 1.0, 1.0)
        most = np.clip(counted + table.ratio * float(more[0]), 0.0, 1.0)
        rest = 1 - (1 - COUNT_PART) * miss
        return cls(table, rest, most, np.zeros(len(FEW_DISTANCES)), np.ones(len(counted)))

    def find_squares(self, mean: Floats, margin: bool = True) -> Floats:
        """Returns a bound on the mean square of u − m in each group, which others count with 0;
        without margin, its best guess.
        """
        # Values of mean m within [0, 1] vary by at most m(1 − m).
        bound = self.most * np.maximum(mean * (1 - mean), 0.0)
        if get_degree(self.table) != 2:
            return np.asarray(bound)
        A, B, C = self.table.noisy[:, :3].T
        square = (1 - mean) ** 2 * A - mean * (1 - mean) * B + mean**2 * C
        if margin:
            square = square + np.interp(np.abs(2 * mean - 1), FEW_DISTANCES, self.margins)
            # As if one more person had been at the far end: rare values may have been missed.
            square = square + self.table.heaviest * np.maximum(mean, 1 - mean) ** 2
        return np.asarray(np.clip(square, 0.0, bound))

    def find_limits(self, mean: Floats) -> Floats:
        """Returns how far Σ c·(u − m) may be from zero at these means."""
        table = self.table
        squares = self.find_squares(mean)
        ratio = np.sqrt(table.people * self.student * squares) / table.ratio
        near, far = _find_places(mean)
        widths = np.zeros(len(mean))
        for place in np.unique([near, far]):
            mine = (near == place) | (far == place)
            m = (1 + DISTANCES[place]) / 2
            linear = expand_linear(get_degree(table), 1 - m, -m)
            found = table.law.find_half_widths(self.level, ratio[mine], *linear)
            widths[mine] = np.maximum(widths[mine], found)
        if get_degree(table) != 2:
            return np.asarray(table.ratio * widths + table.heaviest / 2)
        counted = np.maximum(table.noisy[:, :3].sum(axis=1), 0.0)
        return table.ratio * widths + find_steps(table, squares, counted * mean * (1 - mean))

    def find_ends(self) -> tuple[Floats, Floats]:
        """Returns the ends of each group's mean, as shares of the range."""
        table = self.table
        degree = get_degree(table)
        counted = table.noisy[:, : table.value_parts].sum(axis=1)
        sums = apply_to_slots(table.noisy, expand_linear(degree, 1.0, 0.0))
        safe = np.where(np.abs(counted) > 1e-12, counted, 1e-12)
        start = np.clip(sums / safe, 0.0, 1.0)

        def is_inside(mean: Floats) -> Any:
            return np.abs(sums - mean * counted) <= self.find_limits(mean)

        def find_end(far: float) -> Floats:
            inside = start
            outside = np.full(len(start), far)
            for _ in range(HALVINGS):
                between = (inside + outside) / 2
                fits = is_inside(between)
                inside = np.where(fits, between, inside)
                outside = np.where(fits, outside, between)
            return np.asarray(np.where(is_inside(np.full(len(start), far)), far, outside))

        return find_end(0.0), find_end(1.0)


def _find_places(mean: Floats) -> tuple[Any, Any]:
    """Returns the tabulated distances on both sides of each mean's distance from the middle."""
    place = np.abs(2 * mean - 1) * (len(DISTANCES) - 1)
    most = len(DISTANCES) - 1
    return (
        np.clip(np.floor(place), 0, most).astype(np.int64),
        np.clip(np.ceil(place), 0, most).astype(np.int64),
    )
