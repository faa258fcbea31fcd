# SPDX-License-Identifier: Apache-2.0
"""Quantiles of a bounded column with a budget a person (docs/theory/quantile.md).

symbol        name
t             a point of a public grid, index 0 … N (grid.cells)
F(t)          exact share of the weight at or below t, as a whole number out of plan.weights.total
u(t)          score: how far the target lies outside [F(t−), F(t)], a whole number, 0 is best
2·max W/ε     choice: the scale of the choice among points, 2·plan.weights.heaviest
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

from sottovoce.arrays import Floats
from sottovoce.budgets import Budgets
from sottovoce.data.engine import Dataset
from sottovoce.data.kernels import WeightedHistogram
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import make_column_label
from sottovoce.estimators.base import ColumnEstimator, LoadableEstimator
from sottovoce.guarantee import Guarantee
from sottovoce.noise import source
from sottovoce.noise.source import Grid, QuantileGrid
from sottovoce.plan import ASSOCIATION, ExpectedError, Plan, Theorem, measure_inequality
from sottovoce.release import Release
from sottovoce.schema import BoundsLike, Schema, is_one_of
from sottovoce.weights import Weights

#: At least 2^10 grid points, at most 2^18, and about this many to the size of the expected rank
#: error.
MIN_BITS = 10
MAX_BITS = 18
CELLS_PER_ERROR = 16

#: Up to a scale of so many rows the ranks are added up one by one, so many rows to each side.
FEW_ROWS = 8
REACH = 400

CHOICES: dict[str, Callable[[NDArray[np.int64], int], int]] = {
    "permute-and-flip": source.permute_and_flip,
    "exponential": source.exponential,
}


class Quantile(LoadableEstimator, ColumnEstimator):
    """Quantiles of a bounded column, each person with the weight that their own ε allows.

    **Question.** Below which value do ``q`` of the rows lie? ``q`` may be a list; the budget is
    then split evenly among its entries, and answers come in the order of ``q``, made monotone.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, exact arithmetic. Nobody's loss exceeds their own ε_l; see
    ``guarantee_``.

    **Formula.** A grid point t is chosen by permute-and-flip with score u(t) = max(F(t−) − q, q −
    F(t), 0) at scale 2·max_l W_l/ε_l (docs/theory/quantile.md, equations 1 to 3).

    >>> import sottovoce as sv
    >>> median = sv.Quantile(q=0.5, bounds=(0, 1)).fit([0.25] * 1000, epsilon=1.0)
    >>> abs(median.value_ - 0.25) < 0.01
    True

    **Limits.** Answers are points of the grid (``cells`` of them, chosen from public numbers unless
    given). ``expected_error`` is a share of the rows, for values spread evenly over the bounds;
    where they fill only a part of the bounds, pass that part as ``spread``. Many equal values make
    the true error smaller.

    Parameters
    ----------
    q :
        A number between 0 and 1, or a list of them.
    bounds :
        (low, high), Bounds with a label, or a Schema that describes the column, from public
        knowledge.
    spread :
        Public guess of the share of the bounds that the values fill; for the expected error only.
    cells :
        About how many steps the grid has, at most 2^22 (its step is a power of two); chosen from
        public numbers if not given.
    method :
        "permute-and-flip", or "exponential" for the exponential mechanism as published.
    missing :
        Public constant between the bounds that stands for missing values; without it they are
        refused.
    """

    value_: float | Floats

    def __init__(
        self,
        q: float | Sequence[float] | Floats = 0.5,
        bounds: BoundsLike | None = None,
        *,
        spread: float = 1.0,
        cells: int | None = None,
        method: str = "permute-and-flip",
        missing: float | None = None,
    ) -> None:
        self.q = q
        self.bounds = bounds
        self.spread = spread
        self.cells = cells
        self.method = method
        self.missing = missing

    def validate(self) -> None:
        """Refuses bounds, quantiles, a method or a grid that are wrong for any people.

        A schema has its ranges checked already; which of its columns is asked about is said later.
        """
        if not isinstance(self.bounds, Schema):
            label = make_column_label(self)
            Grid.cover(label.low, label.high, MIN_BITS)
        self._get_targets()
        self._check_cells()

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets."""
        label = self._get_label(rows)
        low = label.low
        high = label.high
        targets = self._get_targets()
        per_quantile = budgets.split(len(targets))
        weights = Weights.solve(
            per_quantile, A=sum(q * (1 - q) for q in targets) / len(targets) / 8
        )
        grid = Grid.cover(low, high, self._choose_bits(weights))
        errors = tuple(
            estimate_rank_error(q, budgets, weights, self.spread, high - low) for q in targets
        )
        return Plan(
            question="quantile",
            parameters={
                "q": targets,
                "bounds": [low, high],
                "spread": self.spread,
                "method": self.method,
                "missing": label.missing,
            },
            budgets=budgets,
            weights=weights,
            guarantee=Guarantee.of(budgets, weights.charges * len(targets)),
            noise={"distribution": f"{self.method} choice", "scale": 2 * weights.noise_ratio},
            grid=QuantileGrid(grid),
            theorem=THEOREM,
            error=errors if np.ndim(self.q) else errors[0],
        )

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows once, chooses grid points, and returns the release."""
        grid = plan.grid.points
        kernel = WeightedHistogram(
            rows.value, grid, rows.owner, plan.weights.row, plan.parameters["missing"]
        )
        return Release.of(plan, draw_noisy_values(plan, rows.engine.fold(kernel)))

    def _set_value(self, release: Release) -> None:
        values = np.asarray(release.value, dtype=np.float64)
        if np.ndim(self.q):
            self.value_ = values
        else:
            self.value_ = float(values[0])

    def _get_targets(self) -> list[float]:
        try:
            targets = [float(q) for q in np.atleast_1d(np.asarray(self.q, dtype=np.float64))]
        except Exception:  # what is no number, in whatever way
            targets = []
        if not targets or not all(0 <= q <= 1 for q in targets):
            raise InvalidParameter(
                "q is not a share.",
                "Every q lies between 0 and 1.",
                "Give a share such as 0.5, or several.",
                parameter="q",
            )
        if not is_one_of(self.method, CHOICES):
            raise InvalidParameter(
                "There is no such method.",
                f"Methods: {', '.join(CHOICES)}.",
                "Choose one of them.",
                parameter="method",
            )
        if not (isinstance(self.spread, int | float) and 0 < self.spread <= 1):
            raise InvalidParameter(
                "The spread is not a share of the bounds.",
                "It lies above 0 and not above 1.",
                "Pass a public guess.",
                parameter="spread",
            )
        return targets

    def _check_cells(self) -> None:
        possible = isinstance(self.cells, int | np.integer) and 2 <= self.cells <= 2**22
        if self.cells is not None and not possible:
            raise InvalidParameter(
                "The grid is too coarse or too fine.",
                "cells lies between 2 and 2^22.",
                "Choose another number.",
                parameter="cells",
            )

    def _choose_bits(self, weights: Weights) -> int:
        self._check_cells()
        if self.cells is not None:
            return math.ceil(math.log2(self.cells))
        error = max(2 * weights.noise_ratio, math.sqrt(weights.concentration) / 2)
        return min(max(math.ceil(math.log2(CELLS_PER_ERROR / error)), MIN_BITS), MAX_BITS)


THEOREM = Theorem(
    "Choice of a grid point by weighted rank: each person l loses at most W_l/max(W/ε) a "
    "quantile (pure ε, replace)",
    "docs/theory/quantile.md",
)


def draw_noisy_values(plan: Plan, histogram: NDArray[np.int64]) -> list[float]:
    """Returns one noisy quantile for each q, in the order of q, made monotone (which is free)."""
    choice = CHOICES[plan.parameters["method"]]
    targets = plan.parameters["q"]
    chosen = [choice(score_points(histogram, q), 2 * plan.weights.loudest) for q in targets]
    monotone = np.empty(len(chosen), dtype=np.int64)
    monotone[np.argsort(targets, kind="stable")] = np.sort(chosen)
    return [plan.grid.points.point(int(index)) for index in monotone]


def score_points(histogram: NDArray[np.int64], q: float) -> NDArray[np.int64]:
    """Returns u(t) for every grid point: a person of weight W moves each by at most W, exactly."""
    at_or_below = np.cumsum(histogram)
    below = at_or_below - histogram
    target = round(Fraction(q) * int(at_or_below[-1]))
    gaps: NDArray[np.int64] = np.maximum(below - target, target - at_or_below)
    return np.maximum(gaps, 0, out=gaps)


def estimate_rank_error(
    q: float, budgets: Budgets, weights: Weights, spread: float, width: float
) -> ExpectedError:
    """Root mean square of F(t) − q, F the plain share of rows at or below t, and what it is made
    of.

    Values are taken as spread evenly over a part of the bounds; the theory page has the sums and
    integrals.
    """
    squares, moved = measure_inequality(budgets, weights)
    choice = estimate_rank_noise(q, 2 * weights.noise_ratio, spread, weights.concentration)
    error = ExpectedError(
        classical="the plain quantile",
        unit="as a share of the rows (rank)",
        noise=choice,
        sampling=math.sqrt(q * (1 - q) * squares),
        bias=ASSOCIATION * math.sqrt(q * (1 - q)) * moved,
        assumed=f"Assumed: values spread evenly over {spread:.0%} of the bounds.",
    )
    return replace(error, in_column=error.total * spread * width)


def estimate_rank_noise(q: float, scale: float, spread: float, concentration: float) -> float:
    """Returns the root mean square rank error that the choice of a point makes.

    The chosen t has rank p with density ∝ exp(−|p − q|/scale) over the part that values fill, and
    two lumps at rank 0 and 1 for the points outside it. Ranks are multiples of one row's weight,
    which shows where the scale is no more than a few rows; gaps between neighbours vary as those of
    random values do, which adds 3/16 of a row over the scale.
    """
    rows = max(round(1 / concentration), 1)
    uneven = 1 + 3 / 16 / max(scale * rows, 1.0)
    if scale * rows < FEW_ROWS:
        ranks = (
            np.arange(
                max(math.floor(q * rows) - REACH, 0), min(math.ceil(q * rows) + REACH, rows) + 1
            )
            / rows
        )
        apart = np.concatenate([np.abs(ranks - q), [q, 1 - q]])
        size = np.append(np.full(len(ranks), spread / rows), [(1 - spread) / 2] * 2)
        likely = size * np.exp((apart.min() - apart) / scale)
        return min(math.sqrt(uneven * float(likely @ apart**2) / float(likely.sum())), 1.0)
    mass = second = 0.0
    for side in (q, 1 - q):
        tail = math.exp(-side / scale)
        mass += spread * scale * -math.expm1(-side / scale) + (1 - spread) / 2 * tail
        # ∫₀^side x²·e^(−x/scale) dx, by the incomplete gamma function: the plain form cancels for
        # large scales.
        inside = 2 * scale**3 * float(gammainc(3, side / scale))
        second += spread * inside + (1 - spread) / 2 * tail * side**2
    return min(math.sqrt(uneven * second / mass), 1.0)
