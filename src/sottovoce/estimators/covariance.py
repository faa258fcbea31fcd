# SPDX-License-Identifier: Apache-2.0
"""Covariances and correlations with a budget a person (docs/theory/tables.md).

They rest on Σ c·ẑẑᵀ over the rows that have all values, ẑ = (1, z_1 … z_d) with every z scaled to
[−1, 1]. Replacing a row moves Σ_{j<k}|M_jk| + ½Σ_j|M_jj| by at most (d + 1)²/2, so entries off the
diagonal get noise of that scale and those on it twice that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from sottovoce.arrays import Array, ColumnLike, Floats, check_same_length
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.cells import Cells
from sottovoce.data.encoding import KIND
from sottovoce.data.engine import Dataset, GroupLookup, get_default_engine
from sottovoce.data.source import DataSource, describe_cells, find_schema
from sottovoce.data.table_kernels import CellProducts
from sottovoce.errors import InvalidBounds, InvalidParameter
from sottovoce.estimator import make_budgets
from sottovoce.estimators.covariance_intervals import compute_covariance_intervals
from sottovoce.estimators.table_mechanism import SCALE_BITS, choose_value_grid, requantise
from sottovoce.estimators.table_steps import (
    TableEstimator,
    find_free_name,
    get_share_association,
    refuse_extreme_bounds,
    take_columns,
)
from sottovoce.guarantee import Guarantee
from sottovoce.noise import source
from sottovoce.noise.source import Grid
from sottovoce.plan import ASSOCIATION, ExpectedError, Plan, Theorem, measure_inequality
from sottovoce.release import Intervals, Release
from sottovoce.schema import Bounds, Interval, Schema, to_interval
from sottovoce.weights import Weights

COVARIANCE_THEOREM = Theorem(
    "Weighted products with Laplace noise: each person l loses at most W_l/ρ (pure ε, replace)",
    "docs/theory/tables.md",
)


@dataclass(frozen=True, eq=False)
class ProductGrid:
    """The grids of several columns."""

    cells: Cells
    columns: tuple[str, ...]
    grids: tuple[Grid, ...]

    def to_dict(self) -> dict[str, Any]:
        """The grids as public JSON."""
        return {
            "columns": {
                name: grid.to_dict() for name, grid in zip(self.columns, self.grids, strict=True)
            }
        }

    @property
    def entries(self) -> list[tuple[int, int]]:
        """The entries that are released: the number of rows, linear ones, and products; 0 is the
        constant.
        """
        size = len(self.columns) + 1
        return [(j, k) for j in range(size) for k in range(j, size)]

    def get_unit(self, j: int, k: int) -> int:
        """The largest entry of a row of weight 1."""
        sizes = (1, *(grid.cells for grid in self.grids))
        return int(sizes[j] * sizes[k])


@dataclass(frozen=True)
class ValueColumns:
    """The columns of numbers whose products are summed."""

    columns: tuple[str, ...]


class Covariance(TableEstimator):
    """Means, variances, covariances and correlations of bounded columns, each person with their own
    ε.

    **Question.** How do two or more columns of numbers vary together, over the rows that have all
    of them? Values beyond the bounds are clipped.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, exact arithmetic, one charge for the whole matrix.

    **Formula.** Σ c·ẑẑᵀ plus discrete Laplace noise, made positive semidefinite
    (docs/theory/tables.md).

    >>> import sottovoce as sv
    >>> import pyarrow as pa
    >>> table = pa.table({"a": [0.0, 1.0] * 500, "b": [0.0, 1.0] * 500})
    >>> both = sv.Covariance({"a": (0, 1), "b": (0, 1)}).fit(table, epsilon=5.0)
    >>> bool(both.correlation_[0, 1] > 0.8)
    True

    **Limits.** Noise grows with the square of the number of columns. Intervals take sampling from
    noisy squares and the bounds, so that they are wide where columns spread by little.

    Parameters
    ----------
    bounds :
        A mapping from column to (low, high), or a Schema, whose columns of numbers are taken.
    columns :
        Which columns of the schema; if not given, all numbers that are no label of people or
        budgets.
    association :
        Public guess of how far covariances of people with one budget may lie from everybody's, in
        products of half ranges; if not given, a fifth of what columns are expected to spread.
    schema :
        The public description of the table, where bounds are none.
    """

    bounds: Any
    by: Any = None
    where: str | None = None
    has_values = False
    missing: float | None = None
    value_: Any
    covariance_: Floats
    correlation_: Floats
    mean_: Floats

    def __init__(
        self,
        bounds: Any = None,
        *,
        columns: Any = None,
        association: float | None = None,
        schema: Schema | None = None,
    ) -> None:
        self.bounds = bounds
        self.columns = columns
        self.association = association
        self.schema = schema

    def validate(self) -> None:
        """Refuses bounds and columns that are wrong for any people."""
        self._list_ranges()
        get_share_association(self.association, 0.0)

    def _check_column(self, column: str | None) -> None:
        self._list_ranges()

    def _list_ranges(self) -> dict[str, Interval]:
        schema = find_schema(self)
        limits_by_name = self.bounds
        if isinstance(self.bounds, Bounds):
            limits_by_name = self.bounds.list_limits_by_name()
        if isinstance(limits_by_name, dict):
            known = {str(name): to_interval(limits) for name, limits in limits_by_name.items()}
        else:
            others = {schema.person, schema.budget}
            known = {
                name: schema.interval(name)
                for name, column in schema.columns.items()
                if column.kind == "number" and name not in others
            }
        chosen = self._choose_columns(known)
        for limits in chosen.values():
            refuse_extreme_bounds(*limits)
        if len(chosen) < 2:
            raise InvalidBounds(
                "Fewer than two columns of numbers are described, or named.",
                "A covariance is of two or more columns, each with a lowest and a highest value.",
                "Pass a mapping from column to (low, high), or a schema with two numbers.",
                parameter="bounds" if self.columns is None else "columns",
            )
        return chosen

    def _choose_columns(self, known: dict[str, Interval]) -> dict[str, Interval]:
        if self.columns is None:
            return known
        wanted = [self.columns] if isinstance(self.columns, str) else list(self.columns)
        if any(name not in known for name in wanted):
            raise InvalidParameter(
                "A column is not described as a number with a range.",
                f"Described: {', '.join(known) or 'none'}.",
                "Name some of these.",
                parameter="columns",
            )
        return {name: known[name] for name in wanted}

    def get_error_scale(self, plan: Plan) -> float:
        """Return the size that errors are compared with: the largest correlation.

        Parameters
        ----------
        plan : Plan
            The plan.

        Returns
        -------
        float
            In the unit of the expected error.
        """
        return 1.0

    def read_arrays(
        self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None, column: str | None = None
    ) -> Dataset:
        """Returns the budgets and rows of a table in memory."""
        names = tuple(self._list_ranges())
        held = take_columns(data[0], names)
        rows = len(held[names[0]])
        budgets = make_budgets(epsilon, groups, rows)
        kinds = budgets.row_codes()
        check_same_length(rows, epsilon=kinds, groups=groups)
        owner = find_free_name(KIND, held)
        engine = get_default_engine().of_table(pa.table({**held, owner: pa.array(kinds)}))
        read = describe_cells(Cells(), None, ValueColumns(names))
        read.refuse_wrong_kinds(engine.columns())
        return Dataset(
            engine, "", GroupLookup(owner), read.features, budgets=budgets, cells=read.cells
        )

    def read_table(self, table: DataSource) -> Dataset:
        """Returns the columns that are read of a table."""
        return describe_cells(Cells(), None, ValueColumns(tuple(self._list_ranges())))

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets."""
        ranges = self._list_ranges()
        size = len(ranges)
        constant = Fraction((size + 1) ** 2, 2)
        typical = (2 * 0.1) ** 2  # of a product of two values that spread by a tenth of the range
        association = get_share_association(self.association, ASSOCIATION * typical)
        noise = 2 * float(constant) ** 2
        weights = Weights.solve(budgets.kinds, typical**2 / noise, association**2 / noise)
        grids = tuple(choose_value_grid(weights, 2, *limits) for limits in ranges.values())
        grid = ProductGrid(Cells(), tuple(ranges), grids)
        largest = math.ceil(2 * constant) * max(g.cells for g in grids) ** 2
        weights = requantise(budgets.kinds, weights, 2 ** (SCALE_BITS + 1) // largest)
        squares, moved = measure_inequality(budgets, weights)
        # Of a product over what two columns spread, whose squares have twice the noise.
        small = float(constant) * weights.noise_ratio * math.sqrt(2) / typical
        return Plan(
            question="covariance",
            parameters={
                "by": Cells().to_dict(),
                "columns": list(ranges),
                "ranges": {name: list(limits) for name, limits in ranges.items()},
                "association": association,
            },
            budgets=budgets,
            weights=weights,
            guarantee=Guarantee.of(budgets, weights.charges),
            noise={
                "distribution": "discrete Laplace",
                "scale": float(constant) * weights.noise_ratio,
                "scales": [_compute_scale(grid, constant, weights, j, k) for j, k in grid.entries],
                "rows": budgets.n_rows,
                "ratio": weights.noise_ratio,
                "people_concentration": weights.measure_people_concentration(budgets.kinds),
                "heaviest": float(weights.person.max() / weights.total),
            },
            grid=grid,
            theorem=COVARIANCE_THEOREM,
            error=ExpectedError(
                classical="the correlation over the rows",
                unit="as a correlation",
                noise=min(small / max(1 - 2 * small, small), 1.0),
                sampling=math.sqrt(squares),
                bias=association / typical * moved,
                assumed="Assumed: columns spread by a tenth of their ranges and are little "
                "correlated, and budgets go along with nothing.",
                representative=1 - moved / 2,
            ),
        )

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows once, adds noise, and returns the release."""
        entries = sum_entries(plan, rows)
        noisy = draw_noisy_entries(plan, entries)
        value = compute_covariances(plan.grid.columns, plan.parameters["ranges"], noisy)
        return Release.of(plan, {**value, "noisy": noisy})

    def _set_value(self, release: Release) -> None:
        self.release_ = release
        value: dict[str, Any] = release.value  # type: ignore[assignment]
        names = release.parameters["columns"]
        self.covariance_ = _to_array(value["covariance"], names)
        self.correlation_ = _to_array(value["correlation"], names)
        self.mean_ = np.array([value["mean"][name] for name in names], dtype=np.float64)
        self.value_ = self.covariance_

    def _is_consistent_with(self, release: Release) -> bool:
        self._set_value(release)
        return bool(np.isfinite(self.covariance_).all() and np.isfinite(self.mean_).all())

    @classmethod
    def _adapt_arguments(cls, arguments: dict[str, Any], release: Release) -> dict[str, Any]:
        ranges = release.parameters["ranges"]
        return {
            "bounds": {name: tuple(limits) for name, limits in ranges.items()},
            "association": release.parameters["association"],
        }

    def _compute_intervals(self, release: Release, level: float) -> Intervals | None:
        if "people_concentration" not in release.noise:  # made by an earlier version
            return None
        return compute_covariance_intervals(release, level)


def _to_array(matrix: dict[str, dict[str, float | None]], names: list[str]) -> Floats:
    rows = [[matrix[one][two] for two in names] for one in names]
    return np.array([[math.nan if x is None else x for x in row] for row in rows], dtype=float)


def _compute_scale(grid: ProductGrid, constant: Fraction, weights: Weights, j: int, k: int) -> int:
    """The scale of an entry's noise: twice as large on the diagonal."""
    scale = constant * weights.loudest * grid.get_unit(j, k)
    if j == k:
        scale *= 2
    return math.ceil(scale)


def sum_entries(plan: Plan, rows: Dataset) -> list[int]:
    """Returns the exact Σ a·ẑẑᵀ in whole numbers, entry by entry."""
    grid: ProductGrid = plan.grid
    # In memory and in files the columns have their own names.
    kernel = CellProducts(grid.cells, rows.owner, plan.weights.row, grid.columns, grid.grids)
    totals = rows.engine.fold(kernel)
    sums, products = kernel.to_matrix(totals)
    S0 = int(totals.weights[0])
    S = [int(number) for number in sums[0]]
    N = [g.cells for g in grid.grids]
    entries = []
    for j, k in grid.entries:
        if k == 0:
            entries.append(S0)
        elif j == 0:
            entries.append(2 * S[k - 1] - N[k - 1] * S0)
        else:
            a, b = j - 1, k - 1
            mixed = 2 * N[b] * S[a] + 2 * N[a] * S[b]
            entries.append(4 * int(products[0, a, b]) - mixed + N[a] * N[b] * S0)
    return entries


def draw_noisy_entries(plan: Plan, entries: list[int]) -> list[float]:
    """Returns noisy entries in [−1, 1], as shares of the weight."""
    grid: ProductGrid = plan.grid
    noisy = []
    for (j, k), entry, scale in zip(grid.entries, entries, plan.noise["scales"], strict=True):
        (z,) = source.draw_laplace(float(scale))
        noisy.append((entry + z) / (plan.weights.total * grid.get_unit(j, k)))
    return noisy


def compute_covariances(
    columns: tuple[str, ...], ranges: dict[str, Any], noisy: list[float]
) -> dict[str, Any]:
    """Returns means, covariances and correlations from noisy entries: the nearest matrix without
    negative eigenvalues.
    """
    size = len(columns) + 1
    M = np.zeros((size, size))
    M[np.triu_indices(size)] = noisy
    M = M + np.triu(M, 1).T
    counted = max(M[0, 0], 1e-9)
    means = np.clip(M[0, 1:] / counted, -1.0, 1.0)
    centred = M[1:, 1:] / counted - np.outer(means, means)
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    repaired = (vectors * np.clip(values, 0.0, None)) @ vectors.T
    half = np.array([(high - low) / 2 for low, high in (ranges[name] for name in columns)])
    middle = np.array([(high + low) / 2 for low, high in (ranges[name] for name in columns)])
    covariance = repaired * np.outer(half, half)
    deviation = np.sqrt(np.diag(repaired))
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = np.clip(repaired / np.outer(deviation, deviation), -1.0, 1.0)
    correlation[np.isfinite(correlation) & np.eye(len(columns), dtype=bool)] = 1.0
    return {
        "covariance": _to_dict(covariance, columns),
        "correlation": _to_dict(correlation, columns),
        "mean": dict(zip(columns, (middle + half * means).tolist(), strict=True)),
    }


def _to_dict(matrix: Array, names: tuple[str, ...]) -> dict[str, dict[str, float | None]]:
    return {
        one: {
            two: float(matrix[j, k]) if np.isfinite(matrix[j, k]) else None
            for k, two in enumerate(names)
        }
        for j, one in enumerate(names)
    }
