# SPDX-License-Identifier: Apache-2.0
"""Sums of all rows and by groups with a budget a person (docs/theory/tables.md).

A value u of [0, 1], once it is scaled by its bounds, adds u to the slot "high" of its cell and 1 −
u to "low". Their sum is the count, and high·hi + low·lo the sum. A row without a value adds 1 to
the slot "missing".

    symbol    name
    H, L      shares of the weight in high and low

Where that makes intervals narrower, the slots of a cell hold squares too (table_moments.py).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.budgets import Budgets
from sottovoce.data.cells import Cells
from sottovoce.data.encoding import Label
from sottovoce.data.engine import Dataset
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import make_column_label
from sottovoce.estimators.cell_plans import (
    describe_shares,
    expect_by_cell,
    resolve_shares,
    tell_shares,
)
from sottovoce.estimators.count import find_count_intervals, find_sampling_widths
from sottovoce.estimators.table_law import NoiseLaw, find_normal
from sottovoce.estimators.table_mechanism import (
    THEOREM,
    NoisyTable,
    describe_noise,
    draw_noisy_values,
    sum_slots,
)
from sottovoce.estimators.table_moments import (
    ExpectedCell,
    apply_to_slots,
    describe_squares,
    expand_linear,
    expand_square,
    find_square_margin,
    find_steps,
    get_degree,
    name_sampling_source,
    plan_slots,
    widen_as_student,
)
from sottovoce.estimators.table_steps import (
    SHARE_ASSOCIATION,
    TableEstimator,
    count_expected,
    describe_expected,
    get_share_association,
    make_cells_of,
    refuse_extreme_bounds,
)
from sottovoce.guarantee import Guarantee
from sottovoce.plan import ASSOCIATION, ExpectedError, Plan, measure_inequality
from sottovoce.release import Intervals, Release
from sottovoce.schema import BoundsLike, Schema
from sottovoce.units import format_number

#: What is taken as the values' standard deviation, as a share of the range, if nobody guesses it.
SPREAD = 1 / 10
#: The part of what an interval may miss that bounds how many rows a group has.
COUNT_PART = 0.1
FIXED_POINT_STEPS = 5


def get_spread(given: Any, low: float, high: float) -> float:
    """Returns the public guess of the values' standard deviation."""
    refuse_extreme_bounds(low, high)
    if given is None:
        return (high - low) * SPREAD
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= high - low:
        raise InvalidParameter(
            "The spread is not a possible standard deviation.",
            "It must be positive and not above the range of the bounds.",
            "Pass a public guess, or nothing for a tenth of the range.",
            parameter="spread",
        )
    return float(given)


class Sum(TableEstimator):
    """The sum of a bounded column, of all rows or by groups, each person with their own ε.

    **Question.** What is the sum of a column whose values lie in ``bounds``, in each cell of a
    table? Values beyond are clipped, and rows without a value are counted apart.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, exact arithmetic, one charge for the whole table.

    **Formula.** n·(hi·H + lo·L), H and L the noisy shares of the weight at the two ends of the
    bounds (docs/theory/tables.md).

    >>> import sottovoce as sv
    >>> total = sv.Sum(bounds=(0, 10)).fit([2.0] * 500 + [8.0] * 500, epsilon=1.0)
    >>> bool(4000 < total.value_ < 6000)
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
        Public constant between the bounds that stands for missing values; without it rows without
        a value are left out of sums, and counted.
    association :
        Public guess of how far the sums of people with one budget may lie from everybody's, by row;
        if not given, what is usual for means and for shares.
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
        """Return the size that errors are compared with: the spread for each row of a cell.

        Parameters
        ----------
        plan : Plan
            The plan.

        Returns
        -------
        float
            In the unit of the expected error.
        """
        rows = plan.budgets.n_rows / count_expected(plan.grid.cells)
        return float(rows * plan.parameters["spread"])

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets."""
        label = self._get_label(rows)
        cells = self._make_cells()
        even = 1 / count_expected(cells)
        spread = get_spread(self.spread, label.low, label.high)
        middle = label.low / 2 + label.high / 2
        # Of a row: y if it is in the cell, else 0.
        belongs = math.sqrt(even * (1 - even)) * abs(middle)
        deviation = math.hypot(belongs, math.sqrt(even) * spread)
        usual = math.hypot(SHARE_ASSOCIATION * belongs, ASSOCIATION * even * spread)
        association = get_share_association(self.association, usual)
        cell = ExpectedCell(even, label.high, label.low, middle, spread, centred=False)
        weights, grid = plan_slots(budgets.kinds, cell, (deviation, association), cells, label)
        noise = NoiseLaw.choose(grid.slots).compute_variance(
            *expand_linear(grid.degree, label.high, label.low)
        )
        squares, moved = measure_inequality(budgets, weights)
        n = budgets.n_rows
        shares = resolve_shares(self.shares, cells)

        def measure(share: Floats) -> tuple[Floats, Floats]:
            belongs = np.sqrt(np.maximum(share * (1 - share), 0.0)) * abs(middle)
            spreads = np.hypot(belongs, np.sqrt(share) * spread)
            noisy = np.full(len(share), n * weights.noise_ratio * math.sqrt(noise))
            return noisy, n * spreads * math.sqrt(squares)

        error = ExpectedError(
            classical="the sum over the rows of a cell",
            unit="in units of the column",
            noise=n * weights.noise_ratio * math.sqrt(noise),
            sampling=n * deviation * math.sqrt(squares),
            bias=n * association * moved,
            assumed=describe_assumption(cells, spread, self.spread is None, shares)
            + describe_squares(grid),
            representative=1 - moved / 2,
        )
        error = expect_by_cell(error, cells, shares, n, measure)
        return Plan(
            question="sum",
            parameters=describe_parameters(self, label, cells, spread, association),
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
        sums = compute_sums(table, *plan.parameters["bounds"])
        counted = {name: values.tolist() for name, values in table.count_rows().items()}
        if plan.grid.cells.size > 1:
            return Release.of(plan, {"sum": sums.tolist(), **counted, "noisy": shares})
        besides = {name: values[0] for name, values in counted.items()}
        return Release.of(plan, float(sums[0]), {**besides, "noisy": shares})

    def _compute_intervals(self, release: Release, level: float) -> Intervals | None:
        table = NoisyTable.of_release(release)
        low, high = release.parameters["bounds"]
        sums = compute_sums(table, low, high)
        ends = find_sum_intervals(table, level, low, high, sums)
        linear = expand_linear(get_degree(table), high, low)
        width = table.law.find_half_widths(level, np.zeros(1), *linear)
        noise = np.full(len(sums), table.rows * table.ratio * float(width[0]))
        deviation = bound_sum_deviation(table, low, high, 0.0, np.abs(sums) / table.rows)
        sampling = table.rows * find_normal(level) * deviation
        parts = {"low": ends[0], "high": ends[1], "noise": noise, "sampling": sampling}
        told: dict[str, Any] = {name: values.tolist() for name, values in parts.items()}
        if isinstance(release.value, dict):
            counts = find_count_intervals(table, level, np.asarray(release.value["count"]))
            told = {name: {"sum": values} for name, values in told.items()}
            told["low"]["count"] = counts[0].tolist()
            told["high"]["count"] = counts[1].tolist()
            complete_counts(table, level, told)
        else:
            told = {name: values[0] for name, values in told.items()}
        return Intervals(
            level=level,
            **told,
            sampling_from=name_sampling_source(table, "the noisy sums and the bounds, at no cost"),
            of="the sum that as many rows of the population have on average",
        )


def complete_counts(table: NoisyTable, level: float, told: dict[str, Any]) -> None:
    """Adds the parts of the intervals of counts to those of another answer."""
    shares = table.noisy[:, : table.value_parts].sum(axis=1)
    width = table.law.find_half_widths(level, np.zeros(1), *[1.0] * table.value_parts)
    told["noise"]["count"] = [float(table.rows * table.ratio * width[0])] * len(shares)
    told["sampling"]["count"] = find_sampling_widths(table, level, shares).tolist()


def validate_sums(question: Any) -> None:
    """Refuses cells, bounds and guesses that are wrong for any people."""
    resolve_shares(getattr(question, "shares", None), make_cells_of(question))
    get_share_association(question.association, 0.0)
    if not isinstance(question.bounds, Schema):
        label = make_column_label(question)
        get_spread(question.spread, label.low, label.high)


def describe_assumption(
    cells: Cells, spread: float, usual: bool, shares: Floats | None = None
) -> str:
    """Returns what errors of sums and means rest on, in words."""
    if usual:
        public = "a tenth of the range"
    else:
        public = "as given"
    spreads = describe_shares(shares, describe_expected(cells))
    return (
        f"Assumed: {spreads}, values spread by {format_number(spread)} ({public}), and "
        "budgets go along with nothing."
    )


def describe_parameters(
    question: Any, label: Label, cells: Cells, spread: float, association: float
) -> dict[str, Any]:
    """Returns the public parameters of a question about values in cells."""
    return {
        "by": cells.to_dict(),
        "bounds": [label.low, label.high],
        "spread": spread,
        "missing": label.missing,
        "association": association,
        **tell_shares(resolve_shares(question.shares, cells)),
    }


def compute_sums(table: NoisyTable, low: float, high: float) -> Floats:
    """Returns the sums of the cells: between those of rows that are all at one end."""
    linear = expand_linear(get_degree(table), high, low)
    sums = table.rows * apply_to_slots(table.balanced_shares, linear)
    return np.clip(sums, table.rows * min(low, 0.0), table.rows * max(high, 0.0))


def bound_sum_deviation(
    table: NoisyTable, low: float, high: float, margin: float, least: Any = 0.0
) -> Floats:
    """Returns a bound on the deviation of Σ c_i·y_i over the rows of a cell, for sums of at least
    this size. Squares are known from three slots; from two, y² is at most hi²·u + lo²·(1 − u) for
    y = hi·u + lo·(1 − u).
    """
    size = max(abs(low), abs(high))
    if get_degree(table) == 2:
        known = apply_to_slots(table.noisy, expand_square(high / size, low / size)) + margin
    else:
        upper = np.clip(table.noisy[:, 0] + margin, 0.0, 1.0)
        lower = np.clip(table.noisy[:, 1] + margin, 0.0, 1.0)
        known = (high / size) ** 2 * upper + (low / size) ** 2 * lower
    square = np.clip(known, 0.0, 1.0) - np.square(least / size)
    return np.asarray(size * np.sqrt(table.people * np.maximum(square, 0.0)))


def find_sum_intervals(
    table: NoisyTable, level: float, low: float, high: float, sums: Floats
) -> tuple[Floats, Floats]:
    """Returns the ends of each sum's interval; what bounds the variance has a small part of what
    may be missed.
    """
    linear = expand_linear(get_degree(table), high, low)
    raw = apply_to_slots(table.noisy, linear)
    width = np.full(len(raw), math.inf)
    # What lies further away than the widest half-width is no candidate, which bounds the variance
    # of the others, and so on.
    for _ in range(FIXED_POINT_STEPS):
        nearest = np.maximum(np.abs(raw) - width, 0.0)
        width = _find_sum_widths(table, level, low, high, nearest)
    least = min(low, 0.0)
    most = max(high, 0.0)
    ends = (np.clip(raw - width, least, most), np.clip(raw + width, least, most))
    return np.minimum(table.rows * ends[0], sums), np.maximum(table.rows * ends[1], sums)


def _find_sum_widths(
    table: NoisyTable, level: float, low: float, high: float, nearest: Floats
) -> Floats:
    """Returns the half-widths of sums that are at least this far from zero."""
    law = table.law
    size = max(abs(low), abs(high))
    linear = expand_linear(get_degree(table), high, low)
    if get_degree(table) == 2:
        margin = find_square_margin(table.ratio, table.people, level, high / size, low / size)
        margin += table.heaviest  # as if one more person had been at the far end
        deviation = bound_sum_deviation(table, low, high, margin, nearest)
        deviation = deviation * np.sqrt(widen_as_student(level, 1 / table.people - 1))
        square = apply_to_slots(table.noisy, expand_square(high / size, low / size)) + margin
        most = np.abs(apply_to_slots(table.noisy, linear)) / size
        whole = find_steps(table, square, most) * size
        rest = level
    else:
        miss = 1 - level
        deep = np.array([0.5 * math.sqrt(table.people) / table.ratio])
        margin = table.ratio * float(law.find_half_widths(1 - COUNT_PART * miss / 2, deep)[0])
        deviation = bound_sum_deviation(table, low, high, margin, nearest)
        whole = find_steps(table, np.ones(len(nearest)), 1.0) * size
        rest = 1 - (1 - COUNT_PART) * miss
    return whole + table.ratio * law.find_half_widths(rest, deviation / table.ratio, *linear)
