# SPDX-License-Identifier: Apache-2.0
"""The losses of tables, stage by stage: counts, sums, means and variances by groups, and
covariances (docs/theory/per-instance.md, section on realised losses).

A row of a table spreads its weight over slots (estimators/table_mechanism.py). Taken out, it
spreads the same weight evenly over all of them: the whole weight is public, and stays. Of
covariances, a row that is taken out has the middle of all bounds.

    symbol   name
    z        the noise: what was published less the exact slots, whole numbers
    m        what a unit adds to the slots, less the same weight spread evenly
    loss     (‖z + m‖₁ − ‖z‖₁)/scale, with twice the scale where noise sums to zero

What is published is a share of the whole weight as a double. Where that has more bits than a double
the whole number is known to 2^−53 of it, far below the scale of the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.arrays import Floats, Integers
from sottovoce.audit.laws import AuditUnits, NoisySums
from sottovoce.audit.replays import (
    Replayed,
    ReplayMethod,
    StageLoss,
    replay_mean,
    replay_table,
)
from sottovoce.data.engine import as_floats
from sottovoce.estimators.covariance import ProductGrid, sum_entries
from sottovoce.estimators.table_law import NoiseLaw
from sottovoce.estimators.table_mechanism import MISSING_PART, TableGrid, sum_slots


@dataclass(frozen=True, eq=False)
class SlotNoise:
    """The noise that slots got, and which of them each row's weight is in.

    ``scale`` is such that P(z) ∝ exp(−‖z‖₁/scale); ``places`` and ``amounts`` have a line a row.
    """

    noise: Floats
    scale: float
    places: Integers
    amounts: Floats

    def compute_losses(self, units: AuditUnits) -> Floats:
        """Return the loss of each unit."""
        slots = len(self.noise)
        whole = units.add(self.amounts.sum(axis=1))
        each = np.floor(whole / slots)
        # What does not divide evenly goes to the first slots, a whole number each.
        rest = whole - each * slots
        total = self._spread_evenly(whole, each, rest)
        unit, slot, own = self._add_rows(units)
        even = each[unit] + (slot < rest[unit])
        noise = self.noise[slot]
        apart = np.abs(noise + own - even) - np.abs(noise - even)
        total += np.bincount(unit, apart, minlength=units.count)
        return np.asarray(total / self.scale)

    def _spread_evenly(self, whole: Floats, each: Floats, rest: Floats) -> Floats:
        """‖z − even‖₁ − ‖z‖₁ for the weight of each unit."""
        slot = np.arange(len(self.noise))
        size = np.abs(self.noise)
        _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
        found = [
            float((np.abs(self.noise - each[one] - (slot < rest[one])) - size).sum())
            for one in first
        ]
        return np.array(found)[np.ravel(inverse)]

    def _add_rows(self, units: AuditUnits) -> tuple[Integers, Integers, Floats]:
        """Units, slots, and what the one has in the other, each pair once."""
        parts = self.places.shape[1]
        unit = np.repeat(units.codes, parts)
        slot = self.places.ravel()
        own = self.amounts.ravel()
        if units.single:
            return unit, slot, own
        slots = len(self.noise)
        pairs, inverse = np.unique(unit * slots + slot, return_inverse=True)
        together = np.bincount(np.ravel(inverse), own).astype(np.float64)
        return pairs // slots, pairs % slots, together


def replay_cells(made: Replayed) -> list[StageLoss]:
    """Return the one stage of a table: its slots, whatever follows from them."""
    plan = made.plan
    grid: TableGrid = plan.grid
    if plan.noise["distribution"] == "none":
        return [
            StageLoss("number of rows, which is public", True, lambda units: np.zeros(units.count))
        ]
    noise = find_noise(
        _get_shares(made), plan.weights.total * grid.unit, sum_slots(plan, made.rows)
    )
    law = NoiseLaw.choose(grid.slots)
    scale = float(plan.noise["integer_scale"])
    if law.sums_to_zero:
        scale *= 2
    slots = SlotNoise(noise, scale, *_read_slots(made))
    return [StageLoss("table", True, slots.compute_losses)]


def _get_shares(made: Replayed) -> list[float]:
    value: Any = made.release.value
    if not isinstance(value, dict):
        value = made.release.bought
    return list(value["noisy"])


def find_noise(shares: list[float], total: int, exact: Any) -> Floats:
    """Return published less exact, where what is published is a whole number over the total."""
    drawn = []
    for share, own in zip(shares, exact, strict=True):
        numerator, denominator = float(share).as_integer_ratio()
        published = (2 * numerator * total + denominator) // (2 * denominator)
        drawn.append(float(published - int(own)))
    return np.array(drawn)


def _read_slots(made: Replayed) -> tuple[Integers, Floats]:
    """Slots of each row, and how much of its weight is in them: as sum_slots adds them up."""
    plan = made.plan
    grid: TableGrid = plan.grid
    rows = made.rows
    parts = len(grid.parts)
    weight = plan.weights.row[made.kinds].astype(np.float64)
    if grid.degree == 0:
        (codes,) = made.fold(lambda batch: (grid.cells.codes(batch),), grid.cells.columns)
        return np.asarray(codes)[:, None], weight[:, None]
    values: Any = grid.values
    columns = tuple(dict.fromkeys((*grid.cells.columns, rows.value)))
    codes, numbers = made.fold(
        lambda batch: (grid.cells.codes(batch), as_floats(batch.column(rows.value))), columns
    )
    if plan.parameters["missing"] is not None:
        numbers = np.where(np.isnan(numbers), plan.parameters["missing"], numbers)
    absent = np.isnan(numbers)
    z = values.integers(np.where(absent, values.low, numbers)).astype(np.float64)
    N = values.cells
    lines = [z, N - z]
    if grid.degree == 2:
        lines = [z * z, 2 * z * (N - z), (N - z) ** 2]
    lines = [np.where(absent, 0.0, line) for line in lines]
    if MISSING_PART in grid.parts:
        lines.append(np.where(absent, float(grid.unit), 0.0))
    places = codes[:, None] * parts + np.arange(parts)
    return np.asarray(places), np.column_stack(lines) * weight[:, None]


def replay_products(made: Replayed) -> list[StageLoss]:
    """Return the one stage of covariances: noisy sums of products."""
    plan = made.plan
    grid: ProductGrid = plan.grid
    units = np.array([float(grid.get_unit(j, k)) for j, k in grid.entries])
    exact = sum_entries(plan, made.rows)
    value: dict[str, Any] = made.release.value  # type: ignore[assignment]
    noise = np.concatenate(
        [
            find_noise([share], plan.weights.total * int(unit), [own])
            for share, unit, own in zip(value["noisy"], units, exact, strict=True)
        ]
    )
    table = NoisySums(noise, np.zeros(len(noise)), np.array(plan.noise["scales"], dtype=float))
    raw = made.fold(
        lambda batch: tuple(as_floats(batch.column(name)) for name in grid.columns), grid.columns
    )
    absent = np.any([np.isnan(numbers) for numbers in raw], axis=0)
    z = [np.ones(len(absent))]
    for column, numbers in zip(grid.grids, raw, strict=True):
        whole = column.integers(np.where(absent, column.low, numbers)).astype(np.float64)
        z.append(2 * whole - column.cells)
    Z = np.where(absent[:, None], 0.0, np.column_stack(z))
    j, k = np.array(grid.entries).T
    moved = Z[:, j] * Z[:, k]
    moved[:, (j == 0) & (k == 0)] -= 1
    weight = plan.weights.row[made.kinds].astype(np.float64)
    return replay_table(table, moved * weight[:, None], made.delta, "products")


def replay_means(made: Replayed) -> list[StageLoss]:
    """Return the stages of a mean, or of means by group."""
    if "by" in made.release.parameters:
        return replay_cells(made)
    return replay_mean(made)


TABLE = ReplayMethod(replay_cells)
PRODUCTS = ReplayMethod(replay_products)
MEAN = ReplayMethod(replay_means)
