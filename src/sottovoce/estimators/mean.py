# SPDX-License-Identifier: Apache-2.0
"""The mean of a bounded column with a budget a person (docs/theory/mean.md).

symbol          name
y_i ∈ [lo, hi]  values, on a grid as integers z_i in 0 … N (grid.cells)
a_i             plan.weights.row, whole numbers; c_i = a_i/Σa
S = Σ a_i z_i   the exact statistic; ⌊S/2^t⌋ after the shift by t bits
b               scale of the discrete Laplace noise, in shifted units
β               association: how far the mean of people with one budget may lie from everybody's

For the interval a share of everybody's ε may buy Σ a'_i·(2z'_i − N')², squares around the middle of
the bounds on a coarser grid, with weights a' of its own (SecondMoment). Whether it does follows
from public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import scipy  # whose parts are loaded where they are used

from sottovoce import units
from sottovoce.arrays import ColumnLike
from sottovoce.budgets import BudgetGroups, BudgetLike, Budgets
from sottovoce.data.encoding import Label
from sottovoce.data.engine import Dataset
from sottovoce.data.kernels import KernelPair, WeightedSquares, WeightedSum
from sottovoce.data.source import DataSource
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import make_column_label
from sottovoce.estimators.cell_plans import refuse_shares
from sottovoce.estimators.column import ColumnEstimator, LoadableEstimator
from sottovoce.estimators.mean_window import (
    CHOSEN,
    LEAST_GAIN,
    MOST_LEVELS,
    SPREADS,
    TOO_LITTLE,
    ChosenWindow,
    WindowPurchase,
    check_scale,
    choose_share,
    count_safe_levels,
)
from sottovoce.estimators.table_result import Table
from sottovoce.estimators.table_steps import (
    adapt_cells,
    describe_columns,
    is_consistent_table,
    load_cells,
    make_cells_of,
    set_table,
)
from sottovoce.estimators.table_sums import validate_sums
from sottovoce.guarantee import Guarantee
from sottovoce.noise import source
from sottovoce.noise.source import Grid, MeanGrid, exponent_below, snap_to_grid
from sottovoce.plan import (
    ASSOCIATION,
    NEGLIGIBLE_INEQUALITY,
    ExpectedError,
    Plan,
    Theorem,
    calibrate_margin,
    compute_half_width,
    measure_inequality,
)
from sottovoce.release import LEVEL, Certificate, Intervals, Release
from sottovoce.schema import BoundsLike, Schema, check_interval_share
from sottovoce.units import format_number
from sottovoce.weights import Weights, set_aside

#: Values are rounded to at least 2^20 cells, and to 2^-7 of the noise where that is finer.
MIN_BITS = 20
MAX_BITS = 32
SPARE_BITS = 7
#: The statistic is shifted until the noise has about this scale: fine steps, and far from int64's
#: end.
SCALE_BITS = 40
#: The answer is a multiple of a power of two below a thousandth of the noise.
ANSWER_BITS = 10
#: What is taken as the values' standard deviation, as a share of the range, if nobody guesses it.
SPREAD = 1 / 10
#: Where nobody guesses the association, a fifth of the spread counts in full if it could move the
#: answer of trusting weights by so many of its standard errors, and not at all if by no more than
#: so many.
PLAIN_BIAS = 3.0
HIDDEN_BIAS = 1.0
#: Squares are those of at most 2^16 cells, so that a square is at most 2^32.
SQUARE_BITS = 16
#: Shares of everybody's ε that may buy the variance, and of what people would not spend otherwise;
#: how much that may raise the error against the population, and how much narrower the expected
#: interval must become.
SHARES = (0.0, 0.01, 0.03, 0.05)
WINDOW_SHARES = (0.0, 0.01, 0.02)
UNSPENT_SHARE = 0.05
MOST_ERROR = 1.025
NARROWER = 0.85
#: A share is large enough where the interval is as narrow as with the best one, but for so much.
NEARLY_BEST = 1.05
#: And where it is as narrow as if the variance were known, but for so much.
NEARLY_IDEAL = 1.1
#: The variance of a bounded column whose mean lies .4 of half the range from the middle, in squared
#: half ranges, at most; and what is added to a bought one, in its noise scales, about.
TYPICAL_BOUND = 0.84
TYPICAL_MARGIN = 1.5
#: How often an interval is made narrower by what it says itself.
FIXED_POINT_STEPS = 8
ENOUGH = 1e-3


class Mean(LoadableEstimator, ColumnEstimator):
    """The mean of a bounded column, each person with the weight that their own ε allows.

    **Question.** What is the mean of a column whose values lie in ``bounds``? Values beyond are
    clipped.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, exact arithmetic. Nobody's loss exceeds their own ε_l; see
    ``guarantee_``.

    **Formula.** Σ c_i·y_i + Laplace((hi − lo)·max_l W_l/ε_l), discrete, with the weights that
    minimise σ²·Σc² + 2·((hi − lo)·max_l W_l/ε_l)² + (β·Σ|W_l − u_l|)², u_l what person l would
    weigh if every row counted the same (docs/theory/mean.md, equations 1 to 3). ``interval()``
    tells between which numbers the mean of the population lies.

    >>> import sottovoce as sv
    >>> mean = sv.Mean(bounds=(0, 10)).fit(
    ...     [2.0] * 500 + [8.0] * 500, epsilon=[0.1] * 500 + [1.0] * 500
    ... )
    >>> bool(0 <= mean.value_ <= 10 and mean.guarantee_.epsilon.max() <= 1.0)
    True

    **Limits.** ``spread`` and ``association`` are public guesses: they tune weights, the expected
    error and whether a window is bought, never the promise. With ``association=0`` you trust that
    budgets go along with nothing, and the answer is biased if they do (docs/limits.md).

    Parameters
    ----------
    bounds :
        (low, high), Bounds with a label, or a Schema that describes the column, from public
        knowledge.
    spread :
        Public guess of the values' standard deviation; if not given, a tenth of the range.
    missing :
        Public constant between the bounds that stands for missing values; without it they are
        refused.
    association :
        Public guess of how far, in units of the column, the mean of people with one budget may lie
        from everybody's. 0 trusts that it does not. If not given, a fifth of the spread, of which
        weights count less where noise would hide the bias: nothing up to one standard error of the
        answer, all of it from three on.
    interval_share :
        Share of everybody's ε that buys the variance for the interval; if not given, chosen from
        public numbers. 0 buys nothing. By groups nothing is bought: the slots of the table hold
        squares too where public numbers suggest it, or where this is above 0.
    by :
        Groups: columns that the schema describes, or a mapping from column to levels, bin edges or
        a period. The answer is then a table, ``table_``, for one charge (docs/theory/tables.md).
    where :
        A filter on described columns; the mean is then of the rows that satisfy it.
    shares :
        Public guess of the shares of the rows that cells have, for the expected errors alone: by
        label, by column and label, or an earlier table of the same cells; if not given, equal.
    schema :
        The public description of the table, where bounds are none.
    scale :
        "bought": a share of everybody's ε buys a window in which nearly all values lie, and noise
        is that of the window; values beyond count as its ends. For columns that are far narrower
        than their bounds and have no values far away (docs/theory/mean-window.md). "bounds": never.
        None: the plan buys one where the declared ``spread`` is so small that it cannot hurt.
    """

    # what older books do not know about a question
    later = ("association", "interval_share", "by", "where", "schema", "shares", "scale")
    # Of estimators that an earlier version pickled, and of subclasses that do not take them.
    association: float | None = None
    interval_share: float | None = None
    by: Any = None
    where: str | None = None
    schema: Schema | None = None
    shares: Any = None
    scale: str | None = None
    has_values = True
    value_: float  # by groups, an array
    table_: Table

    def __init__(
        self,
        bounds: BoundsLike | None = None,
        *,
        spread: float | None = None,
        missing: float | None = None,
        association: float | None = None,
        interval_share: float | None = None,
        by: Any = None,
        where: str | None = None,
        schema: Schema | None = None,
        shares: Any = None,
        scale: str | None = None,
    ) -> None:
        self.bounds = bounds
        self.spread = spread
        self.missing = missing
        self.association = association
        self.interval_share = interval_share
        self.by = by
        self.where = where
        self.schema = schema
        self.shares = shares
        self.scale = scale

    @property
    def reads_cells(self) -> bool:
        """Whether means by group are asked for."""
        return self.by is not None or self.where is not None

    def validate(self) -> None:
        """Refuses bounds, a spread or a constant for missing values that are wrong for any people.

        A schema has its ranges checked already; which of its columns is asked about is said later.
        """
        check_interval_share(self.interval_share)
        if self.scale is not None:
            check_scale(self.scale, self.reads_cells)
        if self.reads_cells:
            validate_sums(self)
            return
        if self.shares is not None:
            refuse_shares(self.shares)
        if not isinstance(self.bounds, Schema):
            label = make_column_label(self)
            self._get_association(self._get_spread(label.low, label.high), label.high - label.low)
            Grid.cover(label.low, label.high, MIN_BITS)

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets."""
        label = self._get_label(rows)
        if self.reads_cells:
            from sottovoce.estimators import group_means  # which takes long to load

            return group_means.plan_means(self, budgets, label)
        if self.scale == "bought":
            return self._plan_column(budgets, label, MOST_LEVELS)
        plain = self._plan_column(budgets, label, 0)
        if self.scale is not None or self.spread is None:
            return plain
        expected: Any = plain.error
        levels = count_safe_levels(self.spread, label.high - label.low, expected.noise)
        if levels == 0:
            return plain
        narrow = self._plan_column(budgets, label, levels)
        most = LEAST_GAIN * expected.total
        if "window" in narrow.noise and float(narrow.expected_error) <= most:  # type: ignore[arg-type]
            return narrow
        return plain

    def _plan_column(self, budgets: Budgets, label: Label, levels: int) -> Plan:
        """The plan of the mean of one column, with a window of at most this level."""
        low = label.low
        high = label.high
        spread = self._get_spread(low, high)
        width = high - low
        if levels > 0 and self.spread is not None:
            width = min(width, max(SPREADS * spread, width * 0.5**levels))
        A = (spread / width) ** 2 / 2
        association = self._get_association(spread, high - low)
        if self.association is None:
            association *= count_association(budgets, association / width, A)
        B = (association / width) ** 2 / 2
        weights = Weights.solve(budgets.kinds, A, B)
        window = None
        if levels > 0:
            window = self._choose_window(budgets, weights, A, B, low, high, levels)
        kinds = budgets.kinds
        shares: tuple[float, ...] = SHARES
        if window is not None:
            kinds = window.purchase.rest
            weights = weights.with_grants(kinds)
            shares = WINDOW_SHARES
        purchase = self._choose_purchase(replace(budgets, kinds=kinds), weights, A, B, shares)
        rest = kinds
        if purchase is not None:
            rest = purchase.rest
            weights = weights.with_grants(rest)
        grid, scale, charges = calibrate_noise(weights, rest, low, high)
        noise = compute_noise_scale(grid.values, grid.shift, scale, weights)
        bought: Any = None
        if purchase is not None:
            bought = SecondMoment.of(purchase, low, high)
            charges = charges + bought.charges
        error = self._estimate_error(budgets, weights, low, high, noise)
        parameters = {
            "bounds": [low, high],
            "spread": spread,
            "missing": label.missing,
            "association": association,
            "interval_share": self.interval_share,
        }
        told = tell_purchase(purchase, bought)
        if levels > 0:
            parameters["scale"] = "bought"
        if self.scale == "bought" and window is None:
            error = replace(error, assumed=f"{error.assumed} {TOO_LITTLE}".strip())
        elif self.scale is None and window is not None:
            error = replace(error, assumed=f"{error.assumed} {CHOSEN}".strip())
        if window is not None:
            charges = charges + window.charges
            bought = replace(window, moment=bought)
            told["window"] = bought.tell(error.noise)
            narrower, moved = bought.predict(spread)
            error = replace(error, noise=error.noise * narrower, shrinkage=moved)
        return Plan(
            question="mean",
            parameters=parameters,
            budgets=budgets,
            weights=weights,
            guarantee=Guarantee.of(budgets, charges),
            noise={
                "distribution": "discrete Laplace",
                "scale": noise,
                "integer_scale": scale,
                "people_concentration": weights.measure_people_concentration(budgets.kinds),
                **told,
            },
            grid=grid,
            theorem=THEOREM if window is None else WINDOW_THEOREM,
            error=error,
            bought=bought,
            rivals=partial(self._estimate_rivals, budgets, low, high, A),
        )

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows once, adds noise, and returns the release."""
        if self.reads_cells:
            from sottovoce.estimators import group_means

            return group_means.release_means(plan, rows)
        if isinstance(plan.bought, WindowPurchase):
            window = plan.bought.choose(rows, plan.parameters["missing"])
            made = self._release_values(move_plan(plan, window), rows)
            told = {**window.tell(), **(made.bought or {})}
            return replace(made, bought=told, certificate=Certificate.of(plan))
        return self._release_values(plan, rows)

    def _release_values(self, plan: Plan, rows: Dataset) -> Release:
        missing = plan.parameters["missing"]
        kernel = WeightedSum(rows.value, plan.grid.values, rows.owner, plan.weights.row, missing)
        if plan.bought is None:
            return Release.of(plan, draw_noisy_values(plan, rows.engine.fold(kernel))[0])
        squares = WeightedSquares(
            rows.value, plan.bought.grid, rows.owner, plan.bought.weights.row, missing
        )
        sums = rows.engine.fold(KernelPair(kernel, squares))
        value = draw_noisy_values(plan, sums.first)[0]
        return Release.of(plan, value, draw_second_moment(plan.bought, sums.second))

    def read_arrays(
        self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None, column: str | None = None
    ) -> Dataset:
        """Returns the budgets and rows of one column in memory, or of a table by groups."""
        if self.reads_cells:
            return load_cells(self, *data, epsilon=epsilon, groups=groups, column=column)
        return super().read_arrays(*data, epsilon=epsilon, groups=groups, column=column)

    def read_table(self, table: DataSource) -> Dataset:
        """Returns the columns that are read of a table."""
        if self.reads_cells:
            return describe_columns(self, table)
        return super().read_table(table)

    def _check_column(self, column: str | None) -> None:
        if self.reads_cells:
            make_cells_of(self)
        super()._check_column(column)

    @classmethod
    def _adapt_arguments(cls, arguments: dict[str, Any], release: Release) -> dict[str, Any]:
        return adapt_cells(arguments, release)

    def _is_consistent_with(self, release: Release) -> bool:
        return is_consistent_table(release)

    def _set_fitted(self, release: Release) -> None:
        self._set_value(release)

    def _compute_intervals(self, release: Release, level: float) -> Intervals | None:
        if isinstance(release.value, dict):
            from sottovoce.estimators import group_means

            return group_means.compute_mean_intervals(release, level)
        if "people_concentration" not in release.noise:  # made by an earlier version
            return None
        low, high = release.parameters["bounds"]
        of = "the mean of the population"
        if "window" in (release.bought or {}):
            low, high = release.bought["window"]  # type: ignore[index]
            of += ", where values beyond the window count as its ends"
        half = high / 2 - low / 2
        value = (float(release.value) - low / 2 - high / 2) / half  # type: ignore[arg-type]
        known = SamplingVariance.of(release, level, half)
        scale = release.noise["scale"] / half
        reach = known.find_reach(level, scale, value) * half
        reach += float(release.grid.get("answer_step", 0.0)) / 2
        deviation = known.bound_deviation(value - reach / half, value + reach / half)
        error: dict[str, Any] = release.error_parts  # type: ignore[assignment]
        return Intervals(
            level=level,
            low=max(float(release.value) - reach, low),  # type: ignore[arg-type]
            high=min(float(release.value) + reach, high),  # type: ignore[arg-type]
            noise=compute_half_width(level, scale, 0.0) * half,
            sampling=compute_half_width(level, 0.0, deviation) * half,
            bias=error.get("bias"),
            sampling_from=known.source,
            of=of,
        )

    def _set_value(self, release: Release) -> None:
        self.release_ = release
        set_table(self, release)

    def _estimate_error(
        self, budgets: Budgets, weights: Weights, low: float, high: float, noise: float
    ) -> ExpectedError:
        spread = self._get_spread(low, high)
        squares, moved = measure_inequality(budgets, weights)
        if self.spread is None:
            public = "a tenth of the range"
        else:
            public = "as given"
        return ExpectedError(
            classical="the plain mean",
            unit="in units of the column",
            noise=estimate_clipped_noise(noise, high - low),
            sampling=spread * math.sqrt(squares),
            bias=self._get_association(spread, high - low) * moved,
            assumed=f"Assumed: values spread by {format_number(spread)} ({public}), and budgets go "
            "along with nothing."
            if squares > NEGLIGIBLE_INEQUALITY
            else "",
            representative=1 - moved / 2,
        )

    def _estimate_rivals(
        self, budgets: Budgets, low: float, high: float, A: float
    ) -> dict[str, ExpectedError]:
        """The errors of equal weights, and of those that trust that budgets go along with
        nothing.
        """
        rivals = {
            "Counting every row the same": Weights.solve(budgets.kinds, math.inf),
            "Trusting that budgets go along with nothing": Weights.solve(budgets.kinds, A),
        }
        width = high - low
        return {
            name: self._estimate_error(budgets, weights, low, high, width * weights.noise_ratio)
            for name, weights in rivals.items()
        }

    def _choose_window(
        self,
        budgets: Budgets,
        weights: Weights,
        A: float,
        B: float,
        low: float,
        high: float,
        levels: int,
    ) -> WindowPurchase | None:
        """Returns how a window is bought; None where too little is granted."""
        share = choose_share(weights)
        if share is None:
            return None
        purchase = Purchase.at(share, share, budgets, weights, A, B)
        if purchase is None:
            return None
        return WindowPurchase.of(purchase, low, high, levels)

    def _choose_purchase(
        self,
        budgets: Budgets,
        weights: Weights,
        A: float,
        B: float,
        shares: tuple[float, ...] = SHARES,
    ) -> Purchase | None:
        """Returns how the variance is bought; None where that is not worth it. In half ranges, from
        public numbers.
        """
        if self.interval_share is not None:
            share = float(self.interval_share)
            return Purchase.at(share, share, budgets, weights, A, B)
        variance = 4 * (2 * A)  # of the values: σ² = 2A·(hi − lo)²
        people = weights.measure_people_concentration(budgets.kinds)
        noise = 2 * weights.noise_ratio
        free = compute_half_width(LEVEL, noise, math.sqrt(people * TYPICAL_BOUND))
        ideal = compute_half_width(LEVEL, noise, math.sqrt(people * variance))
        if NARROWER * free < ideal:
            return None
        allowed = MOST_ERROR * math.hypot(math.sqrt(2) * noise, math.sqrt(people * variance))
        widths = []
        for share in shares:
            found = Purchase.at(share, UNSPENT_SHARE, budgets, weights, A, B)
            if found is None:
                continue
            louder = 2 * weights.with_grants(found.rest).noise_ratio
            error = math.hypot(math.sqrt(2) * louder, math.sqrt(people * variance))
            known = min(variance + TYPICAL_MARGIN * found.weights.noise_ratio, TYPICAL_BOUND)
            width = compute_half_width(LEVEL, louder, math.sqrt(people * known))
            if error <= allowed and width <= NARROWER * free:
                widths.append((width, found))
                if width <= NEARLY_IDEAL * ideal:
                    break
        best = min((width for width, _ in widths), default=0.0)
        return next((found for width, found in widths if width <= NEARLY_BEST * best), None)

    def _get_spread(self, low: float, high: float) -> float:
        if self.spread is None:
            spread = (high - low) * SPREAD
        else:
            spread = self.spread
        if not isinstance(spread, int | float) or not 0 < spread <= high - low:
            raise InvalidParameter(
                "The spread is not a possible standard deviation.",
                "It must be positive and not above the range of the bounds.",
                "Pass a public guess, or nothing for a tenth of the range.",
                parameter="spread",
            )
        return spread

    def _get_association(self, spread: float, width: float) -> float:
        if self.association is None:
            return spread * ASSOCIATION
        if not isinstance(self.association, int | float) or not 0 <= self.association <= width:
            raise InvalidParameter(
                "The association is not a possible distance of two means.",
                "It is at least 0 and not above the range of the bounds.",
                "Pass a public guess, or nothing for a fifth of the spread.",
                parameter="association",
            )
        return float(self.association)


def count_association(budgets: Budgets, association: float, A: float) -> float:
    """Returns how much of an association that nobody has guessed the weights allow for, from 0 to
    1; it is told as a share of the range.

    What it could do to the answer of trusting weights is compared with the standard error that this
    answer has anyway: from noise, and from values that spread by √(2A) of the range.
    """
    trusting = Weights.solve(budgets.kinds, A)
    _, moved = measure_inequality(budgets, trusting)
    if moved == 0:
        return 1.0
    error = math.sqrt(2 * A * trusting.concentration + 2 * trusting.noise_ratio**2)
    part = (association * moved / error - HIDDEN_BIAS) / (PLAIN_BIAS - HIDDEN_BIAS)
    return min(max(part, 0.0), 1.0)


@dataclass(frozen=True, eq=False)
class Purchase:
    """What is set aside for an interval, what is left for the answer, and the weights with which
    the interval is bought.
    """

    share: float  # of everybody's ε
    most: float  # of the ε of those who would not spend it otherwise
    rest: BudgetGroups
    taken: BudgetGroups
    weights: Weights

    @classmethod
    def at(
        cls,
        share: float,
        unspent: float,
        budgets: Budgets,
        weights: Weights,
        A: float,
        B: float,
        parts: int = 1,
    ) -> Purchase | None:
        """Returns it at a share of everybody's ε, and up to another of what is not spent otherwise;
        None where nothing can be set aside.

        ``weights`` are those of one of ``parts`` answers if nothing is.
        """
        most = max(share, unspent)
        rest, taken = set_aside(budgets.kinds, share, most, weights.charges * parts, parts)
        if not taken.epsilon.any():
            return None
        return cls(share, most, rest, taken, Weights.solve(taken, A, B))

    def describe(self) -> str:
        """Returns who pays for the interval, in words."""
        unspent = f"up to {self.most:.0%} of everybody's ε that the answer leaves unspent"
        if self.share == 0:
            return f"{unspent[0].upper()}{unspent[1:]}"
        if self.share == self.most:
            return f"{self.share:.0%} of everybody's ε"
        return f"{self.share:.0%} of everybody's ε, and {unspent},"


def tell_purchase(purchase: Purchase | None, bought: Any) -> dict[str, Any]:
    """Returns what is bought, as public JSON for the plan."""
    if purchase is None:
        return {}
    return {"bought": {"share": purchase.share, "most": purchase.most, "scale": bought.scale}}


@dataclass(frozen=True, eq=False)
class SecondMoment:
    """The weighted mean square around the middle of the bounds, in squared half ranges, and what it
    costs.
    """

    purchase: Purchase
    grid: Grid
    shift: int
    integer_scale: float
    charges: units.Units

    @classmethod
    def of(cls, purchase: Purchase, low: float, high: float) -> SecondMoment:
        """Returns it with noise within what is set aside for it."""
        grid = Grid.cover(low, high, SQUARE_BITS)
        shift, scale, charges = calibrate_scale(purchase.weights, purchase.taken, grid.cells**2)
        return cls(purchase, grid, shift, float(scale), charges)

    @property
    def weights(self) -> Weights:
        """The weights of rows in it."""
        return self.purchase.weights

    @property
    def unit(self) -> Fraction:
        """One unit of the exact sum, in squared half ranges."""
        return Fraction(1, self.weights.total * self.grid.cells**2)

    @property
    def scale(self) -> float:
        """The scale of the noise, in squared half ranges."""
        return float(Fraction(self.integer_scale) * 2**self.shift * self.unit)

    def describe(self) -> str:
        """What is bought, in words."""
        return (
            f"{self.purchase.describe()} buys how far values spread, for the interval; the charges "
            "include it."
        )


def draw_second_moment(bought: SecondMoment, total: int) -> dict[str, float]:
    """Returns the noisy mean square as public JSON: a multiple of a power of two far below its
    noise.
    """
    (z,) = source.draw_laplace(bought.integer_scale)
    middle = Fraction(2**bought.shift - 1, 2)
    noisy = ((((total >> bought.shift) + z) << bought.shift) + middle) * bought.unit
    exponent = exponent_below(bought.scale * 2.0**-ANSWER_BITS)
    return {
        "second_moment": snap_to_grid(noisy, 0.0, 1.0, min(exponent, 0)),
        "scale": bought.scale,
    }


@dataclass(frozen=True)
class SamplingVariance:
    """What is known of the variance of the weighted mean over samples, in squared half ranges.

    People are independent and rows of one person need not be, so it is at most Σ_l W_l² times the
    variance of a row. That is at most 1 − y² for a mean y; where the mean square q was bought, it
    is at most q + margin − y² too.
    """

    people: float
    moment: float  # of a row, with its margin; 1 where nothing was bought
    source: str

    @classmethod
    def of(cls, release: Release, level: float, half: float) -> SamplingVariance:
        """What a release tells of it."""
        people = float(release.noise["people_concentration"])
        if "second_moment" not in (release.bought or {}):
            return cls(people, 1.0, "the bounds, at no cost: no column varies more")
        # One variance is taken from as many people as count: as Student's law has it.
        freedom = max(1 / people - 1, 1.0)
        student = float(
            scipy.special.stdtrit(freedom, 0.5 + level / 2) / scipy.special.ndtri(0.5 + level / 2)
        )
        people *= student**2 * (freedom + 1) / freedom
        bought: dict[str, Any] = release.bought  # type: ignore[assignment]
        scale = float(bought["scale"])
        margin = calibrate_margin(level, release.noise["scale"] / half, people * scale) / people
        return cls(
            people,
            float(bought["second_moment"]) + margin,
            "a mean square that was bought with a share of everybody's ε",
        )

    def bound_deviation(self, low: float, high: float) -> float:
        """Returns a bound on the standard deviation of the weighted mean, for a mean between these
        two.
        """
        nearest = max(low, -high, 0.0)
        variance = min(self.moment, 1.0) - min(nearest, 1.0) ** 2
        return math.sqrt(self.people * max(variance, 0.0))

    def find_reach(self, level: float, scale: float, value: float) -> float:
        """Returns the half-width. Whatever lies further away than the widest possible half-width is
        no candidate, which bounds the variance of the others, and so on.
        """
        reach = math.inf
        for _ in range(FIXED_POINT_STEPS):
            deviation = self.bound_deviation(value - reach, value + reach)
            narrower = compute_half_width(level, scale, deviation)
            if narrower > (1 - ENOUGH) * reach:
                return narrower
            reach = narrower
        return reach


def move_plan(plan: Plan, window: ChosenWindow) -> Plan:
    """Returns the plan of a mean inside the window that was chosen."""
    noise = plan.noise["scale"] * 0.5**window.level
    moved: Plan = window.move(plan, choose_answer_exponent(noise, window.low, window.high))
    return moved


WINDOW_THEOREM = Theorem(
    "Weighted mean with Laplace noise in a window chosen by permute-and-flip: each person l loses "
    "at most their share to the choice and (W_l·N/2^t + 1)/b to the mean (pure ε, replace)",
    "docs/theory/mean-window.md",
)
THEOREM = Theorem(
    "Weighted mean with Laplace noise: each person l loses at most (W_l·N/2^t + 1)/b (pure ε, "
    "replace)",
    "docs/theory/mean.md",
)


def calibrate_noise(
    weights: Weights, kinds: BudgetGroups, low: float, high: float
) -> tuple[MeanGrid, float, units.Units]:
    """Returns grid, noise scale and charges such that everybody's loss is within their grant."""
    bits = min(max(math.ceil(-math.log2(weights.noise_ratio)) + SPARE_BITS, MIN_BITS), MAX_BITS)
    values = Grid.cover(low, high, bits)
    shift, scale, charges = calibrate_scale(weights, kinds, values.cells)
    noise = compute_noise_scale(values, shift, scale, weights)
    return MeanGrid(values, shift, choose_answer_exponent(noise, low, high)), float(scale), charges


def choose_answer_exponent(noise: float, low: float, high: float) -> int:
    """Returns the exponent of the answer's step: far below the noise, and not below doubles."""
    answer = exponent_below(min(math.sqrt(2) * noise, high - low) * 2.0**-ANSWER_BITS)
    coarsest = exponent_below(math.ulp(max(abs(low), abs(high)))) + 1
    return max(answer, coarsest)


def calibrate_scale(
    weights: Weights, kinds: BudgetGroups, cells: int
) -> tuple[int, int, units.Units]:
    """Returns shift, noise scale and charges of a weighted sum of whole numbers 0 … cells, such
    that everybody's loss (a_l·s_l·cells/2^t + 1)/b is within their grant.

    Shifting the sum by t bits moves the difference of two neighbouring sums by less than 1, hence
    the + 1; b covers it for the smallest ε. With t = 0 nothing is rounded and the 1 falls away.
    """
    sensitivity = weights.loudest * cells  # the sum moves by at most this much times ε_l
    shift = max(sensitivity.bit_length() - SCALE_BITS, 0)
    if shift:
        rounding = 1
    else:
        rounding = 0
    participating = weights.person > 0
    strictest = int(kinds.epsilon.min(where=participating, initial=np.iinfo(np.int64).max))
    scale = -(-sensitivity // 2**shift) + -(-rounding * units.UNITS_PER_EPSILON // strictest)
    # In place from here: there may be a kind for every person.
    moved = np.asarray(weights.person * (cells / 2.0**shift), dtype=np.float64)
    moved += rounding
    moved *= participating
    moved /= scale
    return shift, scale, units.check_within_grant(units.round_up(moved), kinds.epsilon)


def estimate_clipped_noise(noise: float, width: float) -> float:
    """Returns the root mean square of Laplace noise on a mean whose answer is clipped to the
    bounds.

    A mean at distance a from a bound has, on that side, ∫₀^∞ min(z, a)²·e^(−z/b)/(2b) dz = b²·P(2,
    a/b), P the regularised incomplete gamma function. Averaged over means anywhere in the bounds, x
    = width/b: 2b²·(P(2, x) − (2/x)·P(3, x)), which is 2b² for narrow noise and a third of the
    squared width for wide. The bracket is 1 − 2/x + e^(−x)·(1 + 2/x), whose series Σ_m (−x)^m·(m −
    1)/(m + 1)! from m = 2 on keeps its digits where x is small.
    """
    x = width / noise
    if x < 1:
        terms = ((-x) ** m * (m - 1) / math.factorial(m + 1) for m in range(2, 20))
        bracket = math.fsum(terms)
    else:
        bracket = 1 - 2 / x + math.exp(-x) * (1 + 2 / x)
    return noise * math.sqrt(2 * bracket)


def compute_noise_scale(values: Grid, shift: int, scale: float, weights: Weights) -> float:
    """Returns the scale of the noise on the mean, in units of the column."""
    return (
        scale * 2.0**shift / weights.total * float(values.step)
    )  # in this order: the step may be as large as 1e290


def draw_noisy_values(plan: Any, total: int, size: int = 1) -> list[float]:
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
