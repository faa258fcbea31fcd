# SPDX-License-Identifier: Apache-2.0
"""How many rows there are, by groups, with a budget a person (docs/theory/tables.md)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.budgets import Budgets
from sottovoce.data.cells import Cells
from sottovoce.data.engine import Dataset
from sottovoce.estimators.cell_plans import (
    clip_noise,
    describe_shares,
    expect_by_cell,
    resolve_shares,
    tell_shares,
)
from sottovoce.estimators.table_law import NoiseLaw, find_normal, find_share_interval
from sottovoce.estimators.table_mechanism import (
    PUBLIC_THEOREM,
    THEOREM,
    NoisyTable,
    TableGrid,
    calibrate_table,
    describe_noise,
    draw_noisy_values,
    sum_slots,
)
from sottovoce.estimators.table_steps import (
    SHARE_ASSOCIATION,
    TableEstimator,
    count_expected,
    describe_expected,
    get_share_association,
)
from sottovoce.guarantee import Guarantee
from sottovoce.plan import (
    NEGLIGIBLE_INEQUALITY,
    ExpectedError,
    Plan,
    measure_inequality,
)
from sottovoce.release import Intervals, Release
from sottovoce.schema import Schema
from sottovoce.weights import Weights


class Count(TableEstimator):
    """The number of rows by groups, each person with the weight that their own ε allows.

    **Question.** How many rows are in each cell of a table by one or several columns, or satisfy a
    filter? Cells are public: levels, bin edges or periods that a schema or the call declares.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, exact arithmetic. One charge for the whole table, however many
    cells it has and in however many of them a person has rows; see ``guarantee_``.

    **Formula.** n·(Σ c_i·1{row i in the cell} + noise): noise that sums to zero for few cells, else
    independent discrete Laplace noise, then the nearest counts that are not negative and sum to n
    (docs/theory/tables.md). Without ``by`` and ``where`` the answer is the number of rows, which is
    public: it is exact and costs nobody anything.

    >>> import sottovoce as sv
    >>> import pyarrow as pa
    >>> table = pa.table({"smoker": ["yes"] * 300 + ["no"] * 700})
    >>> count = sv.Count(by={"smoker": ["no", "yes"]}).fit(table, epsilon=1.0)
    >>> [line["smoker"] for line in count.table_.rows()]
    ['no', 'yes', 'other', 'missing']
    >>> bool(abs(sum(count.table_.values) - 1000) < 1e-6)
    True

    **Limits.** How many rows there are in all, and how many each person has, is not hidden. Counts
    are of rows; where people have several, name the cells of people in a table with a row each.

    Parameters
    ----------
    by :
        Columns of the table that the schema describes, or a mapping from column to levels, bin
        edges or a period.
    where :
        A filter on described columns, such as "age > 40 and smoker == 'yes'". Rows outside it are
        counted in a cell of their own.
    schema :
        The public description of the table, where by and where name columns only.
    association :
        Public guess of how far the share of people with one budget that a cell has may lie from
        everybody's; if not given, a twenty-fifth of √(p(1 − p)) for equal shares p. 0 trusts that
        it does not.
    shares :
        Public guess of the shares of the rows that cells have, for the expected errors alone: by
        label, by column and label, or an earlier table of the same cells; if not given, equal.
    """

    has_values = False
    missing: float | None = None

    def __init__(
        self,
        by: Any = None,
        *,
        where: str | None = None,
        schema: Schema | None = None,
        association: float | None = None,
        shares: Any = None,
    ) -> None:
        self.by = by
        self.where = where
        self.schema = schema
        self.association = association
        self.shares = shares

    def validate(self) -> None:
        """Refuses cells and an association that are wrong for any people."""
        resolve_shares(self.shares, self._make_cells())
        get_share_association(self.association, 0.0)

    def get_error_scale(self, plan: Plan) -> float:
        """Return the size that errors are compared with: the rows of an average cell.

        Parameters
        ----------
        plan : Plan
            The plan.

        Returns
        -------
        float
            In the unit of the expected error.
        """
        return plan.budgets.n_rows / count_expected(plan.grid.cells)

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets."""
        cells = self._make_cells()
        if cells.size == 1:
            return _plan_public_count(budgets, cells)
        even = 1 / count_expected(cells)
        spread = math.sqrt(even * (1 - even)) if even < 1 else 0.5
        association = get_share_association(self.association, SHARE_ASSOCIATION * spread)
        law = NoiseLaw.choose(cells.size)
        noise = law.compute_variance(1.0)
        weights, grid = calibrate_table(
            budgets.kinds, spread**2 / noise, association**2 / noise, cells, 0
        )
        shares = resolve_shares(self.shares, cells)
        return Plan(
            question="count",
            parameters={
                "by": cells.to_dict(),
                "association": association,
                **tell_shares(shares),
            },
            budgets=budgets,
            weights=weights,
            guarantee=Guarantee.of(budgets, weights.charges),
            noise=describe_noise(weights, grid, budgets.kinds),
            grid=grid,
            theorem=THEOREM,
            error=_estimate_error(budgets, weights, cells, law, (spread, association, shares)),
        )

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows once, adds noise, and returns the release."""
        if plan.grid.cells.size == 1:
            return Release.of(plan, float(plan.budgets.n_rows))
        shares = draw_noisy_values(plan, sum_slots(plan, rows))
        table = NoisyTable.of(plan.noise, plan.grid.parts, shares)
        return Release.of(plan, {"count": table.count_rows()["count"].tolist(), "noisy": shares})

    def _compute_intervals(self, release: Release, level: float) -> Intervals | None:
        if not isinstance(release.value, dict):
            return Intervals(
                level,
                release.value,
                release.value,
                0.0,
                0.0,
                "nothing: the number of rows is public",
                "the number of rows",
            )
        table = NoisyTable.of_release(release)
        low, high = find_count_intervals(table, level, np.asarray(release.value["count"]))
        shares = table.noisy[:, : table.value_parts].sum(axis=1)
        return Intervals(
            level=level,
            low={"count": low.tolist()},
            high={"count": high.tolist()},
            noise={"count": [_find_noise_width(table, level)] * len(low)},
            sampling={"count": find_sampling_widths(table, level, shares).tolist()},
            bias=None,
            sampling_from="the counts themselves, at no cost: a share p varies by p(1 − p)",
            of="the counts that as many rows of the population have on average",
        )


def _find_noise_width(table: NoisyTable, level: float) -> float:
    none = np.zeros(1)
    width = table.law.find_half_widths(level, none, *[1.0] * table.value_parts)
    return float(table.rows * table.ratio * width[0])


def find_sampling_widths(table: NoisyTable, level: float, shares: Floats) -> Floats:
    """Returns half the width that sampling alone has, in rows."""
    inside = np.clip(shares, 0.0, 1.0)
    deviation = np.sqrt(table.people * inside * (1 - inside))
    return np.asarray(table.rows * find_normal(level) * deviation)


def find_count_intervals(table: NoisyTable, level: float, answers: Floats) -> tuple[Floats, Floats]:
    """Returns the ends of each cell's interval in rows; the answer, which was made to fit the
    others, is in it.
    """
    shares = table.noisy[:, : table.value_parts].sum(axis=1)
    ends = find_share_interval(
        table.law,
        level,
        shares,
        table.ratio,
        table.people,
        table.heaviest,
        *[1.0] * table.value_parts,
    )
    low, high = (table.rows * end for end in ends)
    return np.minimum(low, answers), np.maximum(high, answers)


def _estimate_error(
    budgets: Budgets,
    weights: Weights,
    cells: Cells,
    law: NoiseLaw,
    facts: tuple[float, float, Floats | None],
) -> ExpectedError:
    spread, association, shares = facts
    rows = budgets.n_rows
    squares, moved = measure_inequality(budgets, weights)
    assumed = ""
    if squares > NEGLIGIBLE_INEQUALITY or shares is not None:
        spreads = describe_shares(shares, describe_expected(cells))
        assumed = f"Assumed: {spreads}, and budgets go along with nothing."
    noise = rows * weights.noise_ratio * math.sqrt(law.compute_variance(1.0))

    def measure(share: Floats) -> tuple[Floats, Floats]:
        deviation = np.sqrt(np.maximum(share * (1 - share), 0.0))
        return clip_noise(noise, rows * share), rows * deviation * math.sqrt(squares)

    error = ExpectedError(
        classical="the number of rows of a cell",
        unit="in rows",
        noise=noise,
        sampling=rows * spread * math.sqrt(squares),
        bias=rows * association * moved,
        assumed=assumed,
        representative=1 - moved / 2,
    )
    return expect_by_cell(error, cells, shares, rows, measure)


def _plan_public_count(budgets: Budgets, cells: Cells) -> Plan:
    """The plan of a number that everybody may know."""
    weights = Weights.solve(budgets.kinds, math.inf)  # which refuses that nobody takes part
    return Plan(
        question="count",
        parameters={"by": cells.to_dict(), "association": 0.0},
        budgets=budgets,
        weights=weights,
        guarantee=Guarantee.of(budgets, np.zeros_like(weights.charges)),
        noise={"distribution": "none", "scale": 0.0, "rows": budgets.n_rows},
        grid=TableGrid(cells, 0, ("rows",)),
        theorem=PUBLIC_THEOREM,
        error=ExpectedError(
            classical="the number of rows",
            unit="in rows",
            noise=0.0,
            assumed="The number of rows is public, so that the answer is exact and nobody is "
            "charged.",
        ),
    )
