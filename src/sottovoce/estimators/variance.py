# SPDX-License-Identifier: Apache-2.0
"""Variances of all rows and by groups, with a budget a person (docs/theory/tables.md).

A variance rests on three slots a cell: a value u of [0, 1] adds u², 2u(1 − u) and (1 − u)². Their
sum is the count, and the variance is (A·C − B²/4)/(A + B + C)² in squared ranges.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.budgets import Budgets
from sottovoce.data.engine import Dataset
from sottovoce.estimators.cell_plans import (
    clip_noise,
    describe_few,
    expect_by_cell,
    resolve_shares,
)
from sottovoce.estimators.count import find_count_intervals, find_sampling_widths
from sottovoce.estimators.group_means import MeanReach
from sottovoce.estimators.table_law import count_too_few, find_normal
from sottovoce.estimators.table_mechanism import (
    THEOREM,
    NoisyTable,
    calibrate_table,
    describe_noise,
    draw_noisy_values,
    sum_slots,
)
from sottovoce.estimators.table_moments import choose_law
from sottovoce.estimators.table_steps import (
    TableEstimator,
    count_expected,
    get_share_association,
)
from sottovoce.estimators.table_sums import (
    describe_assumption,
    describe_parameters,
    get_spread,
    validate_sums,
)
from sottovoce.guarantee import Guarantee
from sottovoce.plan import ASSOCIATION, ExpectedError, Plan, measure_inequality
from sottovoce.release import Intervals, Release
from sottovoce.schema import BoundsLike, Schema

#: Where a group's mean is expected, as a share of the range.
TYPICAL_PLACE = 0.3
#: Coefficients of slots are rounded up to so many parts of the largest, so that few laws are
#: tabulated.
COEFFICIENT_STEPS = 8
#: The parts of what an interval may miss that bound a mean and a share.
MEAN_PART = 0.1
COUNT_PART = 0.05
VARIANCE_HALVINGS = 24


class Variance(TableEstimator):
    """The variance of a bounded column, of all rows or by groups, each person with their own ε.

    **Question.** What is the mean squared distance of values from their mean (the sum over the
    number of rows), in each cell of a table? Values beyond ``bounds`` are clipped, and rows without
    a value are counted apart.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, exact arithmetic, one charge for the whole table.

    **Formula.** (A·C − B²/4)/(A + B + C)² times the squared range, of three noisy shares
    (docs/theory/tables.md).

    >>> import sottovoce as sv
    >>> spread = sv.Variance(bounds=(0, 10)).fit([2.0] * 500 + [8.0] * 500, epsilon=2.0)
    >>> bool(7 < spread.value_ < 11)
    True

    **Limits.** ``spread`` and ``association`` are public guesses: they tune weights and the
    expected error, never the promise (docs/limits.md).

    Parameters
    ----------
    bounds :
        (low, high), Bounds with a label, or a Schema that describes the column, from public
        knowledge.
    by :
        Columns that the schema describes, or a mapping from column to levels, bin edges or a
        period.
    where :
        A filter on described columns.
    spread :
        Public guess of the values' standard deviation; if not given, a tenth of the range.
    missing :
        Public constant between the bounds that stands for missing values.
    association :
        Public guess of how far the variance of people with one budget may lie from everybody's; if
        not given, a fifth of how far squares spread.
    shares :
        Public guess of the shares of the rows that cells have, for the expected errors alone: by
        label, by column and label, or an earlier table of the same cells; if not given, equal.
    schema :
        The public description of the table, where bounds are none.
    """

    def __init__(
        self,
        bounds: BoundsLike | None = None,
        *,
        by: Any = None,
        where: str | None = None,
        spread: float | None = None,
        missing: float | None = None,
        association: float | None = None,
        schema: Schema | None = None,
        shares: Any = None,
    ) -> None:
        self.bounds = bounds
        self.by = by
        self.where = where
        self.spread = spread
        self.missing = missing
        self.association = association
        self.schema = schema
        self.shares = shares

    def validate(self) -> None:
        """Refuses cells, bounds and guesses that are wrong for any people."""
        validate_sums(self)

    def get_error_scale(self, plan: Plan) -> float:
        """Return the size that errors are compared with: the variance that was guessed.

        Parameters
        ----------
        plan : Plan
            The plan.

        Returns
        -------
        float
            In the unit of the expected error.
        """
        return float(plan.parameters["spread"] ** 2)

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets."""
        label = self._get_label(rows)
        cells = self._make_cells()
        width = label.high - label.low
        even = 1 / count_expected(cells)
        spread = get_spread(self.spread, label.low, label.high)
        squares_spread = math.sqrt(2) * spread**2  # of a normal law
        association = get_share_association(self.association, ASSOCIATION * squares_spread)
        law = choose_law(cells, label.missing, 2)
        noise = (width**2 / even) ** 2 * law.compute_variance(
            *_differentiate(TYPICAL_PLACE, (spread / width) ** 2)
        )
        weights, grid = calibrate_table(
            budgets.kinds,
            squares_spread**2 / even / noise,
            association**2 / noise,
            cells,
            2,
            (label.low, label.high),
            label.missing,
        )
        squares, moved = measure_inequality(budgets, weights)
        shares = resolve_shares(self.shares, cells)
        few = None
        if cells.size > 1:
            few = count_too_few(law, budgets.n_rows, weights.noise_ratio, 1.0, 1.0, 1.0)

        def measure(share: Floats) -> tuple[Floats, Floats]:
            noisy = weights.noise_ratio * math.sqrt(noise) * even / share
            noisy = clip_noise(noisy, np.full(len(share), spread**2))
            return np.minimum(noisy, width**2 / 4), squares_spread * np.sqrt(squares / share)

        error = ExpectedError(
            classical="the variance of the rows of a cell",
            unit="in squared units of the column",
            noise=min(weights.noise_ratio * math.sqrt(noise), width**2 / 4),
            sampling=squares_spread * math.sqrt(squares / even),
            bias=association * moved,
            assumed=describe_assumption(cells, spread, self.spread is None, shares)
            + describe_few(few, even * budgets.n_rows, shares),
            representative=1 - moved / 2,
        )
        error = expect_by_cell(error, cells, shares, budgets.n_rows, measure, few)
        return Plan(
            question="variance",
            parameters={
                **describe_parameters(self, label, cells, spread, association),
                "squared": True,
            },
            budgets=budgets,
            weights=weights,
            guarantee=Guarantee.of(budgets, weights.charges),
            noise=describe_noise(weights, grid, budgets.kinds),
            grid=grid,
            theorem=THEOREM,
            error=error,
        )

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows once, adds noise, and returns the release."""
        shares = draw_noisy_values(plan, sum_slots(plan, rows))
        table = NoisyTable.of(plan.noise, plan.grid.parts, shares)
        low, high = plan.parameters["bounds"]
        variances = compute_variances(table, low, high)
        means = _compute_means(table, low, high)
        counted = {name: values.tolist() for name, values in table.count_rows().items()}
        if plan.grid.cells.size == 1:
            besides = {name: values[0] for name, values in counted.items()}
            besides |= {"mean": float(means[0]), "noisy": shares}
            return Release.of(plan, float(variances[0]), besides)
        few = table.find_too_few()
        told = [None if hidden else float(v) for v, hidden in zip(variances, few, strict=True)]
        centres = [None if hidden else float(m) for m, hidden in zip(means, few, strict=True)]
        return Release.of(plan, {"variance": told, **counted, "mean": centres, "noisy": shares})

    def _compute_intervals(self, release: Release, level: float) -> Intervals | None:
        table = NoisyTable.of_release(release)
        low, high = release.parameters["bounds"]
        width = (high - low) ** 2
        ends = [width * end for end in find_variance_ends(table, level)]
        variances = compute_variances(table, low, high)
        few = table.find_too_few()
        lows = np.minimum(ends[0], variances)
        highs = np.maximum(ends[1], variances)
        counted = np.maximum(table.balanced_shares[:, :3].sum(axis=1), 3 * table.count_deviation)
        place = (_compute_means(table, 0.0, 1.0), compute_variances(table, 0.0, 1.0))
        noise = width * _find_square_widths(
            table, level, np.zeros(len(counted)), (place[0], place[0]), place[1]
        )
        noise = np.minimum(noise / counted, width / 4)
        farthest = np.maximum(place[0], 1 - place[0])
        sampling = find_normal(level) * farthest * np.sqrt(table.people * place[1] / counted)
        sampling = np.minimum(width * sampling, width / 4)
        parts = {"low": lows, "high": highs, "noise": noise, "sampling": sampling}
        told: dict[str, Any]
        if isinstance(release.value, dict):
            told = {
                name: {
                    "variance": [
                        None if hidden else float(v) for v, hidden in zip(part, few, strict=True)
                    ]
                }
                for name, part in parts.items()
            }
            counts = find_count_intervals(table, level, np.asarray(release.value["count"]))
            shares = table.noisy[:, :3].sum(axis=1)
            told["low"]["count"] = counts[0].tolist()
            told["high"]["count"] = counts[1].tolist()
            one = table.law.find_half_widths(level, np.zeros(1), 1.0, 1.0, 1.0)
            told["noise"]["count"] = [float(table.rows * table.ratio * one[0])] * len(shares)
            told["sampling"]["count"] = find_sampling_widths(table, level, shares).tolist()
        else:
            told = {name: float(part[0]) for name, part in parts.items()}
        return Intervals(
            level=level,
            **told,
            sampling_from="the three noisy shares that the variance is made of, at no cost",
            of="the variance of the population",
        )


def _differentiate(mean: Any, variance: Any) -> tuple[Any, Any, Any]:
    """Returns how the variance moves with each slot: (u − m)² − v in terms of u², 2u(1 − u) and
    (1 − u)².
    """
    return (
        (1 - mean) ** 2 - variance,
        -mean * (1 - mean) - variance,
        mean**2 - variance,
    )


def _compute_unit_variance(A: Any, B: Any, C: Any) -> Floats:
    total = np.maximum(A + B + C, 1e-9)
    return np.asarray(np.clip((A * C - B**2 / 4) / total**2, 0.0, 0.25))


def compute_variances(table: NoisyTable, low: float, high: float) -> Floats:
    """Returns the variances of the cells, between 0 and a quarter of the squared range."""
    shares = table.balanced_shares
    return (high - low) ** 2 * _compute_unit_variance(shares[:, 0], shares[:, 1], shares[:, 2])


def _compute_means(table: NoisyTable, low: float, high: float) -> Floats:
    shares = table.balanced_shares
    counted = np.maximum(shares[:, :3].sum(axis=1), 1e-300)
    place = np.clip((shares[:, 0] + shares[:, 1] / 2) / counted, 0.0, 1.0)
    return np.asarray(low + (high - low) * place)


def find_variance_ends(table: NoisyTable, level: float) -> tuple[Floats, Floats]:
    """Returns the least and the most variance of each cell, in squared ranges.

    With the population's mean m and variance v, Σ c·((u − m)² − v) over the cell is zero on
    average. Around the noisy mean m̂ it is less by (m̂ − m)² times the cell's share, which a small
    part of what may be missed bounds; another bounds the share.
    """
    miss = 1 - level
    shares = table.noisy[:, :3]
    counted = shares.sum(axis=1)
    few = table.find_too_few()
    safe = np.where(few, 1.0, np.maximum(counted, 1e-12))
    mean = np.clip((shares[:, 0] + shares[:, 1] / 2) / safe, 0.0, 1.0)
    lowest, highest = MeanReach.of(table, 1 - MEAN_PART * miss).find_ends()
    lowest = np.minimum(lowest, mean)
    highest = np.maximum(highest, mean)
    deep = np.array([0.5 * math.sqrt(table.people) / table.ratio])
    more = table.law.find_half_widths(1 - COUNT_PART * miss, deep, 1.0, 1.0, 1.0)
    most = np.clip(counted + table.ratio * float(more[0]), 0.0, 1.0)
    off = most * np.maximum(highest - mean, mean - lowest) ** 2
    square = (1 - mean) ** 2 * shares[:, 0] - mean * (1 - mean) * shares[:, 1]
    square = square + mean**2 * shares[:, 2]
    far = np.maximum(highest, 1 - lowest)  # no value lies further from the mean
    rest = 1 - (1 - MEAN_PART - COUNT_PART) * miss

    def is_inside(variance: Floats) -> Any:
        # (u − m)⁴ is at most far²·(u − m)².
        fourth = most * variance * np.maximum(far**2 - variance, 0.0)
        deviation = np.sqrt(table.people * fourth)
        limit = _find_square_widths(table, rest, deviation, (lowest, highest), variance)
        limit = limit + table.heaviest / 2
        apart = square - variance * counted
        return (apart <= limit) & (apart >= -limit - off)

    start = np.clip(square / safe, 0.0, 0.25)

    def find_end(end: float) -> Floats:
        inside = start
        outside = np.full(len(start), end)
        for _ in range(VARIANCE_HALVINGS):
            between = (inside + outside) / 2
            fits = is_inside(between)
            inside = np.where(fits, between, inside)
            outside = np.where(fits, outside, between)
        return np.asarray(np.where(is_inside(np.full(len(start), end)), end, outside))

    return np.where(few, 0.0, find_end(0.0)), np.where(few, 0.25, find_end(0.25))


def _find_square_widths(
    table: NoisyTable,
    level: float,
    deviation: Floats,
    means: tuple[Floats, Floats],
    variance: Floats,
) -> Floats:
    """Returns how far noise and sampling move Σ((u − m)² − v), for means between these two and this
    variance; coefficients are rounded up to few different shapes.
    """
    lowest, highest = means
    sizes = np.max([np.abs(_differentiate(m, variance)) for m in (lowest, highest)], axis=0).T
    across = (lowest <= 0.5) & (highest >= 0.5)
    sizes[:, 1] = np.where(across, 0.25 + variance, sizes[:, 1])
    largest = np.maximum(sizes.max(axis=1), 1e-12)
    shapes = np.ceil(sizes / largest[:, None] * COEFFICIENT_STEPS - 1e-9) / COEFFICIENT_STEPS
    shapes = np.sort(shapes, axis=1)  # independent noise, so that their order does not matter
    widths = np.zeros(len(sizes))
    for line in np.unique(shapes, axis=0):
        mine = (shapes == line).all(axis=1)
        ratio = deviation[mine] / largest[mine] / table.ratio
        widths[mine] = largest[mine] * table.law.find_half_widths(level, ratio, *line.tolist())
    return np.asarray(table.ratio * widths)
