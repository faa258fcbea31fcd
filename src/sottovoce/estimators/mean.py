# SPDX-License-Identifier: Apache-2.0
"""The mean of a bounded column with a budget a person (docs/theory/mean.md).

symbol          name
y_i ∈ [lo, hi]  values, on a grid as integers z_i in 0 … N (grid.cells)
a_i             plan.weights.row, whole numbers; c_i = a_i/Σa
S = Σ a_i z_i   the exact statistic; ⌊S/2^t⌋ after the shift by t bits
b               scale of the discrete Laplace noise, in shifted units
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.special import gammainc

from sottovoce import units
from sottovoce.budgets import Budgets
from sottovoce.data.engine import Dataset
from sottovoce.data.kernels import WeightedSum
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import make_column_label
from sottovoce.estimators.base import ColumnEstimator, LoadableEstimator
from sottovoce.guarantee import Guarantee
from sottovoce.noise import source
from sottovoce.noise.source import Grid, MeanGrid, exponent_below, snap_to_grid
from sottovoce.plan import (
    ASSOCIATION,
    NEGLIGIBLE_INEQUALITY,
    ExpectedError,
    Plan,
    Theorem,
    measure_inequality,
)
from sottovoce.release import Release
from sottovoce.schema import BoundsLike, Schema
from sottovoce.units import format_number
from sottovoce.weights import Weights

#: Values are rounded to at least 2^20 cells, and to 2^-7 of the noise where that is finer.
MIN_BITS = 20
MAX_BITS = 32
SPARE_BITS = 7
#: The statistic is shifted until the noise has about this scale: fine steps, and far from int64's
#: end.
SCALE_BITS = 40
#: The answer is a multiple of a power of two below a thousandth of the noise.
ANSWER_BITS = 10


class Mean(LoadableEstimator, ColumnEstimator):
    """The mean of a bounded column, each person with the weight that their own ε allows.

    **Question.** What is the mean of a column whose values lie in ``bounds``? Values beyond are
    clipped.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, exact arithmetic. Nobody's loss exceeds their own ε_l; see
    ``guarantee_``.

    **Formula.** Σ c_i·y_i + Laplace((hi − lo)·max_l W_l/ε_l), discrete, with the weights that
    minimise
    σ²·Σc² + 2·((hi − lo)·max_l W_l/ε_l)²  (docs/theory/mean.md, equations 1 to 3).

    >>> import sottovoce as sv
    >>> mean = sv.Mean(bounds=(0, 10)).fit(
    ...     [2.0] * 500 + [8.0] * 500, epsilon=[0.1] * 500 + [1.0] * 500
    ... )
    >>> bool(0 <= mean.value_ <= 10 and mean.guarantee_.epsilon.max() <= 1.0)
    True

    **Limits.** With unequal weights the answer estimates the mean of the population only if budgets
    do not go along with values (docs/limits.md). ``spread`` is a public guess of the standard
    deviation: it tunes weights and the expected error, never the promise. If it is not given,
    weights are made for half the range, the most it can be, and the error is told for a tenth of
    it, which is typical.

    Parameters
    ----------
    bounds :
        (low, high), Bounds with a label, or a Schema that describes the column, from public
        knowledge.
    spread :
        Public guess of the values' standard deviation; if not given, weights are made for half the
        range.
    missing :
        Public constant between the bounds that stands for missing values; without it they are
        refused.
    """

    value_: float

    def __init__(
        self,
        bounds: BoundsLike | None = None,
        *,
        spread: float | None = None,
        missing: float | None = None,
    ) -> None:
        self.bounds = bounds
        self.spread = spread
        self.missing = missing

    def validate(self) -> None:
        """Refuses bounds, a spread or a constant for missing values that are wrong for any people.

        A schema has its ranges checked already; which of its columns is asked about is said later.
        """
        if not isinstance(self.bounds, Schema):
            label = make_column_label(self)
            self._get_spread(label.low, label.high)
            Grid.cover(label.low, label.high, MIN_BITS)

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets."""
        label = self._get_label(rows)
        low = label.low
        high = label.high
        spread = self._get_spread(low, high)
        weights = Weights.solve(budgets.kinds, A=(spread / (high - low)) ** 2 / 2)
        grid, scale, charges = calibrate_noise(weights, budgets, low, high)
        noise = compute_noise_scale(grid.values, grid.shift, scale, weights)
        return Plan(
            question="mean",
            parameters={"bounds": [low, high], "spread": spread, "missing": label.missing},
            budgets=budgets,
            weights=weights,
            guarantee=Guarantee.of(budgets, charges),
            noise={"distribution": "discrete Laplace", "scale": noise, "integer_scale": scale},
            grid=grid,
            theorem=THEOREM,
            error=self._estimate_error(budgets, weights, low, high, noise),
        )

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows once, adds noise, and returns the release."""
        kernel = WeightedSum(
            rows.value, plan.grid.values, rows.owner, plan.weights.row, plan.parameters["missing"]
        )
        return Release.of(plan, draw_noisy_values(plan, rows.engine.fold(kernel))[0])

    def _set_value(self, release: Release) -> None:
        self.value_ = float(release.value)  # type: ignore[arg-type]

    def _estimate_error(
        self, budgets: Budgets, weights: Weights, low: float, high: float, noise: float
    ) -> ExpectedError:
        if self.spread is None:
            guess = (high - low) / 10
        else:
            guess = float(self.spread)
        squares, moved = measure_inequality(budgets, weights)
        if self.spread is None:
            public = "a tenth of the range"
        else:
            public = "as given"
        return ExpectedError(
            classical="the plain mean",
            unit="in units of the column",
            noise=estimate_clipped_noise(noise, high - low),
            sampling=guess * math.sqrt(squares),
            bias=ASSOCIATION * guess * moved,
            assumed=f"Assumed: values spread by {format_number(guess)} ({public}), and budgets go "
            "along with nothing."
            if squares > NEGLIGIBLE_INEQUALITY
            else "",
        )

    def _get_spread(self, low: float, high: float) -> float:
        if self.spread is None:
            spread = (high - low) / 2
        else:
            spread = self.spread
        if not isinstance(spread, int | float) or not 0 < spread <= high - low:
            raise InvalidParameter(
                "The spread is not a possible standard deviation.",
                "It must be positive and not above the range of the bounds.",
                "Pass a public guess, or nothing for half the range.",
                parameter="spread",
            )
        return spread


THEOREM = Theorem(
    "Weighted mean with Laplace noise: each person l loses at most (W_l·N/2^t + 1)/b (pure ε, "
    "replace)",
    "docs/theory/mean.md",
)


def calibrate_noise(
    weights: Weights, budgets: Budgets, low: float, high: float
) -> tuple[MeanGrid, float, units.Units]:
    """Returns grid, noise scale and charges such that everybody's loss (a_l·s_l·N/2^t + 1)/b is
    within their grant.

    Shifting the sum by t bits moves the difference of two neighbouring sums by less than 1, hence
    the + 1; b covers it for the smallest ε. With t = 0 nothing is rounded and the 1 falls away.
    """
    bits = min(max(math.ceil(-math.log2(weights.noise_ratio)) + SPARE_BITS, MIN_BITS), MAX_BITS)
    values = Grid.cover(low, high, bits)
    sensitivity = weights.loudest * values.cells  # the sum moves by at most this much times ε_l
    shift = max(sensitivity.bit_length() - SCALE_BITS, 0)
    if shift:
        rounding = 1
    else:
        rounding = 0
    participating = weights.person > 0
    strictest = int(budgets.kinds.epsilon.min(where=participating, initial=np.iinfo(np.int64).max))
    scale = -(-sensitivity // 2**shift) + -(-rounding * units.UNITS_PER_EPSILON // strictest)
    # In place from here: there may be a kind for every person.
    moved = np.asarray(weights.person * (values.cells / 2.0**shift), dtype=np.float64)
    moved += rounding
    moved *= participating
    moved /= scale
    charges = units.check_within_grant(units.round_up(moved), budgets.kinds.epsilon)
    del moved
    noise = compute_noise_scale(values, shift, scale, weights)
    answer = exponent_below(min(math.sqrt(2) * noise, high - low) * 2.0**-ANSWER_BITS)
    coarsest = exponent_below(math.ulp(max(abs(low), abs(high)))) + 1
    return MeanGrid(values, shift, max(answer, coarsest)), float(scale), charges


def estimate_clipped_noise(noise: float, width: float) -> float:
    """Returns the root mean square of Laplace noise on a mean whose answer is clipped to the
    bounds.

    A mean at distance a from a bound has, on that side, ∫₀^∞ min(z, a)²·e^(−z/b)/(2b) dz = b²·P(2,
    a/b), P the regularised incomplete gamma function. Averaged over means anywhere in the bounds, x
    = width/b: 2b²·(P(2, x) − (2/x)·P(3, x)), which is 2b² for narrow noise and a third of the
    squared width for wide.
    """
    x = width / noise
    return noise * math.sqrt(2 * float(gammainc(2, x) - 2 / x * gammainc(3, x)))


def compute_noise_scale(values: Grid, shift: int, scale: float, weights: Weights) -> float:
    """Returns the scale of the noise on the mean, in units of the column."""
    return (
        scale * 2.0**shift / weights.total * float(values.step)
    )  # in this order: the step may be as large as 1e290


def draw_noisy_values(plan: Plan, total: int, size: int = 1) -> list[float]:
    """Returns independent noisy means of the exact sum: multiples of the answer's step between the
    bounds.
    """
    grid = plan.grid
    unit = Fraction(grid.values.step, plan.weights.total)
    middle = Fraction(2**grid.shift - 1, 2)  # the shift rounds down; on average by this much
    base = total >> grid.shift
    low = Fraction(grid.values.low)
    noisy = (base + z for z in source.draw_laplace(plan.noise["integer_scale"], size))
    return [
        snap_to_grid(
            low + ((n << grid.shift) + middle) * unit,
            grid.values.low,
            grid.values.high,
            grid.answer_exponent,
        )
        for n in noisy
    ]
