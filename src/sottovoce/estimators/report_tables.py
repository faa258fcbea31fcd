# SPDX-License-Identifier: Apache-2.0
"""Tables of one report that overlap: counts that another table holds already, and tables that are
made to agree (docs/theory/reports.md).

All of this is a function of what was released, so it costs nobody anything.

symbol    name
T         the axes of a table, and T ∖ S those that are added up to get its margin on S
σ_T²      the variance of the noise of one cell
P_S       what of a table on S no smaller margin knows: its mean along every axis taken out

Every table on T ⊇ S tells P_S of the margin on S, with noise of variance σ_T²·Π(cells of T ∖ S).
The best guess is the mean weighted by the inverse variances, and a table is put together again from
the guesses of all S ⊆ T: that is the solution of weighted least squares. The total of all cells is
the number of rows, which is public, and does not move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.data.cells import Axis, Cells
from sottovoce.data.engine import Dataset
from sottovoce.estimator import attach_intervals, describe_estimator
from sottovoce.estimators.table_law import NoiseLaw, project_on_simplex
from sottovoce.estimators.table_mechanism import NoisyTable, TableGrid
from sottovoce.estimators.table_steps import count_expected, make_cells_of
from sottovoce.plan import ExpectedError, Plan, measure_inequality
from sottovoce.release import Release

#: How often a table is scaled to its margins, and how near it must come to them, in shares.
SWEEPS = 500
NEAR = 1e-12
#: A cell that must not be empty has this share at least before it is scaled.
SPECK = 1e-15


def is_count(estimator: Any) -> bool:
    """Whether an estimator counts the rows of cells, and nothing else."""
    return not getattr(estimator, "has_values", True)


def holds_counts(estimator: Any, cells: Cells) -> bool:
    """Whether the table of an estimator has the counts of these very cells in it."""
    if is_count(estimator) or not getattr(estimator, "reads_cells", False):
        return False
    if not hasattr(estimator, "by"):
        return False
    return make_cells_of(estimator).to_dict() == cells.to_dict()


def derive_count_plan(plan: Plan) -> Plan:
    """Returns the plan of counts that come with another table: its slots are added up by cell."""
    cells = plan.grid.cells
    parts = tuple(f"rows {place}" for place in range(1, len(plan.grid.parts) + 1))
    even = 1 / count_expected(cells)
    squares, moved = measure_inequality(plan.budgets, plan.weights)
    rows = plan.budgets.n_rows
    law = NoiseLaw.choose(plan.grid.slots)
    spread = math.sqrt(even * (1 - even)) if even < 1 else 0.5
    return replace(
        plan,
        question="count",
        parameters={"by": cells.to_dict(), "association": 0.0},
        grid=TableGrid(cells, 0, parts),
        error=ExpectedError(
            classical="the number of rows of a cell",
            unit="in rows",
            noise=rows
            * plan.weights.noise_ratio
            * math.sqrt(law.compute_variance(*[1.0] * len(parts))),
            sampling=rows * spread * math.sqrt(squares),
            representative=1 - moved / 2,
        ),
        rivals=None,
        subject=replace(plan.subject, column=None),
    )


def derive_count(estimator: Any, plan: Plan, release: Release, rows: Dataset) -> Release:
    """Returns the counts of a table that was released with its sums."""
    noisy: Any = NoisyTable.of_release(release)
    noisy = replace(noisy, parts=plan.grid.parts)
    value = {
        "count": noisy.count_rows()["count"].tolist(),
        "noisy": [float(share) for share in np.ravel(noisy.noisy)],
    }
    made = Release.of(plan, value)
    made = replace(made, estimator=describe_estimator(estimator, plan, replace(rows, label=None)))
    return replace(made, intervals=attach_intervals(estimator, made))


@dataclass(frozen=True, eq=False)
class CountTable:
    """Noisy shares of the cells inside a filter, and how noisy they are."""

    axes: tuple[Axis, ...]
    shares: Floats  # by axis
    variance: float  # of the noise of a cell

    @classmethod
    def of_release(cls, release: Release) -> CountTable:
        """Reads it from a release of counts."""
        cells = Cells.from_dict(release.parameters["by"])
        table = NoisyTable.of_release(release)
        shares = table.balanced_shares.sum(axis=1)
        inside = shares[: math.prod(cells.shape)].reshape(cells.shape)
        return cls(cells.axes, inside, _spread_evenly(table.count_deviation**2, cells.size))

    @classmethod
    def of_plan(cls, plan: Plan) -> CountTable:
        """Returns a table without shares that is as noisy as the one that is planned."""
        cells = plan.grid.cells
        deviation = plan.errors[0].noise / plan.budgets.n_rows
        return cls(cells.axes, np.zeros(cells.shape), _spread_evenly(deviation**2, cells.size))

    @property
    def names(self) -> tuple[str, ...]:
        """The axes by what they are: two tables share one if all of it is the same."""
        return tuple(repr(axis.to_dict()) for axis in self.axes)

    def sum_to(self, names: Sequence[str]) -> tuple[Floats, float]:
        """Returns the margin on these axes, in their order, and the variance of its noise."""
        own = self.names
        others = tuple(place for place, name in enumerate(own) if name not in names)
        margin = self.shares.sum(axis=others)
        left = [name for name in own if name in names]
        return np.transpose(margin, [left.index(name) for name in names]), self.vary(names)

    def vary(self, names: Sequence[str]) -> float:
        """Returns the variance of the noise of a cell of the margin on these axes; of none, of all
        rows inside a filter, which is that of the one cell outside it.
        """
        if not names:
            return self.variance * (1 - 1 / (self.shares.size + 1))
        sizes = zip(self.names, self.shares.shape, strict=True)
        added: int = math.prod(size for name, size in sizes if name not in names)
        return self.variance * added


def _spread_evenly(variance: float, cells: int) -> float:
    """Returns the variance of each direction of noise that sums to zero, from that of one cell."""
    return max(variance * cells / (cells - 1), 1e-300)


def expect_agreement(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """Returns plans of counts with the errors to expect once their tables agree."""
    changed = dict(plans)
    cells = {name: plan.grid.cells for name, plan in plans.items()}
    for group in _find_overlapping(cells):
        tables = {name: CountTable.of_plan(plans[name]) for name in group}
        filtered = cells[group[0]].where is not None
        for name in group:
            deviation = math.sqrt(expect_variance(tables, name, filtered))
            rows = plans[name].budgets.n_rows
            error = replace(plans[name].errors[0], noise=rows * deviation)
            changed[name] = replace(plans[name], error=error)
    return changed


def expect_variance(tables: Mapping[str, CountTable], name: str, filtered: bool) -> float:
    """Returns the variance of the noise of a cell on average, once tables agree."""
    own = tables[name]
    shapes = dict(zip(own.names, own.shares.shape, strict=True))
    total = 0.0
    for size in range(0 if filtered else 1, len(own.axes) + 1):
        for names in combinations(own.names, size):
            there = [one for one in tables.values() if set(names) <= set(one.names)]
            variance = 1 / sum(1 / one.vary(names) for one in there)
            free = math.prod((shapes[axis] - 1) / shapes[axis] for axis in names)
            added = math.prod(shapes[axis] for axis in own.names if axis not in names)
            total += variance * free / added**2
    return total


def agree_on_counts(
    releases: Mapping[str, Release], estimators: Mapping[str, Any]
) -> dict[str, Release]:
    """Returns releases of counts whose tables agree wherever they overlap.

    Tables with the same filter overlap where they have an axis in common, or a filter at all, whose
    size is not public. The others stay as they are.
    """
    changed = dict(releases)
    cells = {name: Cells.from_dict(one.parameters["by"]) for name, one in releases.items()}
    for group in _find_overlapping(cells):
        tables = {name: CountTable.of_release(releases[name]) for name in group}
        filtered = cells[group[0]].where is not None
        agreed = reconcile(tables, filtered)
        for name in group:
            changed[name] = _replace_counts(
                releases[name], agreed[name], filtered, estimators[name]
            )
    return changed


def _replace_counts(release: Release, inside: Floats, filtered: bool, estimator: Any) -> Release:
    """Returns a release with other counts, and the intervals that follow."""
    rows = float(release.noise["rows"])
    shares = inside.ravel()
    if filtered:
        shares = np.append(shares, max(1 - float(shares.sum()), 0.0))
    released: Any = release.value  # of a table, a mapping
    made = replace(release, value={**released, "count": (rows * shares).tolist()})
    return replace(made, intervals=attach_intervals(estimator, made))


def _find_overlapping(tables: Mapping[str, Cells]) -> list[list[str]]:
    """Returns the names of tables that have to agree, group by group."""
    groups: list[tuple[set[str], list[str]]] = []
    for name, cells in tables.items():
        where = "" if cells.where is None else cells.where.text
        marks = {f"{where}\n{axis.to_dict()!r}" for axis in cells.axes}
        if where:
            marks.add(where)
        joined = [group for group in groups if group[0] & marks]
        groups = [group for group in groups if group not in joined]
        for other, _ in joined:
            marks |= other
        groups.append((marks, [*(one for _, names in joined for one in names), name]))
    order = list(tables)
    return [sorted(names, key=order.index) for _, names in groups if len(names) > 1]


def reconcile(tables: Mapping[str, CountTable], filtered: bool = False) -> dict[str, Floats]:
    """Returns the shares of every table such that all margins that they have in common are equal
    and nothing is negative; they add up to one, unless rows outside a filter are left out.
    """
    guesses = _combine_components(list(tables.values()), filtered)
    fixed: dict[tuple[str, ...], Floats] = {}
    shapes = _find_shapes(tables)
    for names in _list_shared_margins(tables):
        whole = _put_together(names, guesses, shapes)
        smaller = {other: margin for other, margin in fixed.items() if set(other) < set(names)}
        fixed[names] = _fit_to_margins(whole, names, smaller, filtered)
    agreed = {}
    for name, table in tables.items():
        margin = fixed[tuple(sorted(table.names))]
        order = sorted(table.names)
        agreed[name] = np.transpose(margin, [order.index(axis) for axis in table.names])
    return agreed


def _combine_components(
    tables: Sequence[CountTable], filtered: bool
) -> dict[tuple[str, ...], Floats]:
    """Returns the best guess of P_S for every S that some table has."""
    sums: dict[tuple[str, ...], Any] = {}
    weights: dict[tuple[str, ...], float] = {}
    for table in tables:
        for size in range(len(table.axes) + 1):
            for names in combinations(sorted(table.names), size):
                margin, variance = table.sum_to(names)
                for axis in range(margin.ndim):
                    margin = margin - margin.mean(axis=axis, keepdims=True)
                sums[names] = sums.get(names, 0.0) + margin / variance
                weights[names] = weights.get(names, 0.0) + 1 / variance
    guesses = {names: np.asarray(total / weights[names]) for names, total in sums.items()}
    if not filtered:
        guesses[()] = np.asarray(1.0)  # the number of rows, which is public
    return guesses


def _put_together(
    names: tuple[str, ...], guesses: Mapping[tuple[str, ...], Floats], shapes: Mapping[str, int]
) -> Floats:
    """Returns the table on these axes from the guesses of all its parts."""
    whole = np.zeros([shapes[name] for name in names])
    for size in range(len(names) + 1):
        for part in combinations(names, size):
            spread = math.prod(shapes[name] for name in names if name not in part)
            shape = [shapes[name] if name in part else 1 for name in names]
            whole = whole + guesses[part].reshape(shape) / spread
    return whole


def _find_shapes(tables: Mapping[str, CountTable]) -> dict[str, int]:
    return {
        name: size
        for table in tables.values()
        for name, size in zip(table.names, table.shares.shape, strict=True)
    }


def _list_shared_margins(tables: Mapping[str, CountTable]) -> list[tuple[str, ...]]:
    """Returns the axes of all tables and of what any of them have in common, the fewest first."""
    nothing: frozenset[str] = frozenset()
    found = {frozenset(table.names) for table in tables.values()}
    while True:
        more = {one & two for one in found for two in found} | found | {nothing}
        if more == found:
            return sorted((tuple(sorted(one)) for one in found), key=lambda one: (len(one), one))
        found = more


def _fit_to_margins(
    table: Floats,
    names: tuple[str, ...],
    margins: Mapping[tuple[str, ...], Floats],
    filtered: bool,
) -> Floats:
    """Returns a table that is nowhere negative and has these margins, near the one that is given.

    Where nothing is negative the table has its margins already. Else what is negative becomes
    nothing, and lines are scaled to their margins, one after the other, until all fit.
    """
    if not names:
        return np.clip(table, 0.0, 1.0)
    largest = [one for one in margins if not any(set(one) < set(other) for other in margins)]
    if largest == [()] and not filtered:
        return project_on_simplex(table.ravel()).reshape(table.shape)
    if table.min() >= 0:
        return table
    fitted = np.maximum(table, SPECK)
    for _ in range(SWEEPS):
        furthest = 0.0
        for one in largest:
            others = tuple(place for place, name in enumerate(names) if name not in one)
            found = fitted.sum(axis=others, keepdims=True)
            wanted = margins[one].reshape(found.shape)
            furthest = max(furthest, float(np.abs(found - wanted).max()))
            fitted = fitted * (wanted / np.maximum(found, 1e-300))
        if furthest < NEAR:
            break
    return fitted
