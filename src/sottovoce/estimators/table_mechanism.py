# SPDX-License-Identifier: Apache-2.0
"""How tables are answered: every row spreads its weight over slots, and the slots get noise
(docs/theory/tables.md).

    question        slots of a cell                  what a value u of [0, 1] adds to them
    count           rows                             1
    sum, mean       high, low                        u, 1 − u
    variance        upper, middle, lower             u², 2u(1 − u), (1 − u)²
    all but count   missing                          1 for a row without a value, instead

Whatever a row is, it adds its weight in all, and nothing below zero: replacing person l moves the
slots by at most 2W_l in ℓ1, and their sum not at all. So one theorem serves all questions, whatever
the number of cells and however many of them one person has rows in.

    symbol   name
    a_i      plan.weights.row, whole numbers; W_l·total = weights.person
    N        grid.values.cells; values are whole numbers z in 0 … N, u = z/N
    unit     1, N or N²: what a row of weight 1 adds to all slots together
    ρ        weights.loudest·unit: at noise of this scale person l loses W_l·total/loudest ≤ ε_l
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.budgets import BudgetGroups
from sottovoce.data.cells import Cells
from sottovoce.data.engine import Dataset
from sottovoce.data.table_kernels import CellSums, CellWeights
from sottovoce.errors import InvalidBudget
from sottovoce.estimators.table_law import NoiseLaw, project_on_simplex
from sottovoce.noise import source, zero_sum
from sottovoce.noise.source import Grid
from sottovoce.plan import Plan, Theorem
from sottovoce.release import Release
from sottovoce.units import to_epsilon
from sottovoce.weights import TOTAL_BITS, WEIGHT_BITS, Weights

#: Slots of a cell, by the degree of what is summed.
PARTS = {0: ("rows",), 1: ("high", "low"), 2: ("upper", "middle", "lower")}
MISSING_PART = "missing"
#: ρ is a whole number up to 2^44, so that twice of it can be drawn.
SCALE_BITS = 44
#: Values are rounded to 2^-10 of the noise of a share, within these limits of bits.
SPARE_BITS = 10
VALUE_BITS = {1: (4, 30), 2: (3, 16)}
#: Groups are expected to lie so far from the middle of the bounds, in half ranges.
TYPICAL_MEAN = 0.4

THEOREM = Theorem(
    "Weighted table with Laplace noise: each person l loses at most W_l/ρ, however many cells "
    "there are (pure ε, replace)",
    "docs/theory/tables.md",
)
PUBLIC_THEOREM = Theorem(
    "The number of rows is public under replacement: nobody loses anything",
    "docs/theory/tables.md",
)


@dataclass(frozen=True, eq=False)
class TableGrid:
    """The slots of a table, and the grid of the values in them."""

    cells: Cells
    degree: int
    parts: tuple[str, ...]
    values: Grid | None = None

    @property
    def unit(self) -> int:
        """What a row of weight 1 adds to all slots together."""
        if self.values is None:
            return 1
        return int(self.values.cells**self.degree)

    @property
    def slots(self) -> int:
        """How many numbers get noise."""
        return self.cells.size * len(self.parts)

    def to_dict(self) -> dict[str, Any]:
        """The grid as public JSON."""
        told: dict[str, Any] = {"parts": list(self.parts), "unit": self.unit}
        if self.values is not None:
            told |= self.values.to_dict()
        return told


def list_parts(degree: int, missing: float | None) -> tuple[str, ...]:
    """Returns the slots of a cell; a public constant for missing values leaves theirs out."""
    if degree == 0 or missing is not None:
        return PARTS[degree]
    return (*PARTS[degree], MISSING_PART)


def calibrate_table(
    kinds: BudgetGroups,
    A: float,
    B: float,
    cells: Cells,
    degree: int,
    bounds: tuple[float, float] | None = None,
    missing: float | None = None,
    spare: int = SPARE_BITS,
) -> tuple[Weights, TableGrid]:
    """Returns weights and grid such that ρ can be drawn, and everybody's loss is within their
    grant.
    """
    parts = list_parts(degree, missing)
    weights = Weights.solve(kinds, A, B)
    if bounds is None:
        grid = TableGrid(cells, degree, parts)
    else:
        grid = TableGrid(cells, degree, parts, choose_value_grid(weights, degree, *bounds, spare))
    return requantise(kinds, weights, 2**SCALE_BITS // grid.unit), grid


def choose_value_grid(
    weights: Weights, degree: int, low: float, high: float, spare: int = SPARE_BITS
) -> Grid:
    """Returns a grid on which rounding is far below the noise; of squares, the root of it."""
    least, most = VALUE_BITS[degree]
    wanted = math.ceil((spare - math.log2(weights.noise_ratio)) / degree)
    return Grid.cover(low, high, min(max(wanted, least), most))


def requantise(kinds: BudgetGroups, weights: Weights, most: int) -> Weights:
    """Returns the same weights with fewer bits, so that the largest of them over its ε is at most
    ``most``.
    """
    row = weights.row / weights.row.max()
    epsilon = np.asarray(to_epsilon(kinds.epsilon), dtype=np.float64)
    heard = epsilon > 0
    largest = float(np.max(row[heard] * kinds.rows[heard] / epsilon[heard]))
    n_rows = int(kinds.rows @ kinds.people)
    bits = min(
        WEIGHT_BITS,
        TOTAL_BITS - math.ceil(math.log2(n_rows)),
        math.floor(math.log2(most / largest * (1 - 2.0**-30))),
    )
    if bits < 0:
        raise InvalidBudget(
            "Budgets are too small for the rows that people have.",
            "The noise that they call for is larger than can be drawn.",
            "Ask with larger budgets, or leave out who grants so little.",
            parameter="epsilon",
        )
    return Weights.from_integers(kinds, np.floor(row * 2.0**bits).astype(np.int64))


def describe_noise(weights: Weights, grid: TableGrid, kinds: BudgetGroups) -> dict[str, Any]:
    """Returns the noise as public JSON: its law, its scale in shares, and what intervals need."""
    law = NoiseLaw.choose(grid.slots)
    return {
        "distribution": law.name,
        "scale": law.factor * weights.noise_ratio,
        "integer_scale": law.factor * weights.loudest * grid.unit,
        "slots": grid.slots,
        "ratio": weights.noise_ratio,
        "people_concentration": weights.measure_people_concentration(kinds),
        "heaviest": float(weights.person.max() / weights.total),
        "rows": int(kinds.rows @ kinds.people),
    }


def sum_slots(plan: Plan, rows: Dataset) -> Array:
    """Returns the exact slots of the rows, as whole numbers, cell by cell."""
    grid: TableGrid = plan.grid
    if grid.degree == 0:
        counted = rows.engine.fold(CellWeights(grid.cells, rows.owner, plan.weights.row))
        return np.asarray(counted.astype(object))
    kernel = CellSums(
        grid.cells,
        rows.owner,
        plan.weights.row,
        rows.value,
        grid.values,  # type: ignore[arg-type]
        grid.degree == 2,
        plan.parameters["missing"],
    )
    totals = rows.engine.fold(kernel)
    N = grid.values.cells  # type: ignore[union-attr]
    counted = totals.weights.astype(object)
    if grid.degree == 1:
        lines = [totals.sums, N * counted - totals.sums]
    else:
        squares = totals.squares
        middle = 2 * (N * totals.sums - squares)
        lines = [squares, middle, N * N * counted - 2 * N * totals.sums + squares]
    if MISSING_PART in grid.parts:
        lines.append(grid.unit * totals.missing.astype(object))
    return np.stack(lines, axis=1).ravel()


def draw_noisy_values(plan: Plan, slots: Array) -> list[float]:
    """Returns the noisy slots as shares of the whole weight, each a ratio of two whole numbers."""
    scale = plan.noise["integer_scale"]
    if NoiseLaw.choose(len(slots)).sums_to_zero:
        drawn = zero_sum.draw_zero_sum(scale, len(slots))
    else:
        drawn = source.draw_laplace(float(scale), len(slots))
    total = plan.weights.total * plan.grid.unit
    return [(int(slot) + z) / total for slot, z in zip(slots.tolist(), drawn, strict=True)]


def centre(shares: Floats) -> Floats:
    """Returns shares that sum to one, as the exact ones do: what is missing is spread evenly."""
    return np.asarray(shares + (1 - shares.sum()) / shares.size)


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """What a release says about the slots: noisy shares, and the law of their noise."""

    noisy: Floats  # as drawn, a line a cell
    parts: tuple[str, ...]
    law: NoiseLaw
    ratio: float
    people: float
    heaviest: float
    rows: int

    @classmethod
    def of(cls, noise: dict[str, Any], parts: Any, shares: Any) -> NoisyTable:
        """Reads it from the public parts of a plan or release."""
        return cls(
            np.asarray(shares, dtype=np.float64).reshape(-1, len(parts)),
            tuple(parts),
            NoiseLaw.choose(int(noise["slots"])),
            float(noise["ratio"]),
            float(noise["people_concentration"]),
            float(noise["heaviest"]),
            int(noise["rows"]),
        )

    @classmethod
    def of_release(cls, release: Release) -> NoisyTable:
        """Reads it from a release."""
        if isinstance(release.value, dict):
            noisy = release.value["noisy"]
        else:
            noisy = release.bought["noisy"]  # type: ignore[index]
        return cls.of(release.noise, release.grid["parts"], noisy)

    @property
    def balanced_shares(self) -> Floats:
        """Shares that sum to one."""
        return centre(self.noisy)

    @property
    def has_missing(self) -> bool:
        """Whether rows without a value have slots of their own."""
        return self.parts[-1] == MISSING_PART

    @property
    def value_parts(self) -> int:
        """How many slots of a cell are of rows with a value."""
        return len(self.parts) - self.has_missing

    @property
    def count_deviation(self) -> float:
        """The deviation of the noise of one cell's share of rows with a value."""
        return self.ratio * math.sqrt(self.law.compute_variance(*[1.0] * self.value_parts))

    def count_rows(self) -> dict[str, Floats]:
        """Returns how many rows each cell has with a value, and without; not negative, and together
        as many as there are.
        """
        shares = self.balanced_shares
        counted = shares[:, : self.value_parts].sum(axis=1)
        if not self.has_missing:
            return {"count": self.rows * project_on_simplex(counted)}
        both = project_on_simplex(np.concatenate([counted, shares[:, -1]]))
        half = len(counted)
        return {"count": self.rows * both[:half], "missing": self.rows * both[half:]}

    def find_too_few(self) -> Array:
        """Returns which cells have a noisy count below three deviations of its noise."""
        counted = self.balanced_shares[:, : self.value_parts].sum(axis=1)
        return np.asarray(counted < 3 * self.count_deviation)
