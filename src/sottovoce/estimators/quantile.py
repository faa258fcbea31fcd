# SPDX-License-Identifier: Apache-2.0
"""Quantiles of a bounded column with a budget a person (docs/theory/quantile.md).

symbol        name
t             a point of a public grid, index 0 … N (grid.cells)
F(t)          exact share of the weight at or below t, as a whole number out of plan.weights.total
u(t)          score: how far the target lies outside [F(t−), F(t)], a whole number, 0 is best
2·max W/ε     choice: the scale of the choice among points, 2·plan.weights.heaviest
4·max W/ε     the scale where several quantiles are chosen together (joint_quantiles.py)
β             association: how far the share at or below t of people with one budget may lie from
              everybody's

For the interval of one quantile a share of everybody's ε may buy how far to go from the answer
(rank_reach.py). Several that were chosen together have intervals for nothing. Whether anything is
bought follows from public numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy  # whose parts are loaded where they are used
from numpy.typing import NDArray

from sottovoce.arrays import Floats, to_doubles
from sottovoce.budgets import BudgetGroups, Budgets
from sottovoce.data.encoding import Label
from sottovoce.data.engine import Dataset
from sottovoce.data.kernels import KernelPair, WeightedHistogram
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import make_column_label
from sottovoce.estimators.column import ColumnEstimator, LoadableEstimator, not_fitted_error
from sottovoce.estimators.joint_quantiles import (
    JOINT,
    MOST_QUANTILES,
    ReleasedDistribution,
    choose_targets,
    draw_joint_values,
    estimate_joint_noise,
    measure_noise_constant,
)
from sottovoce.estimators.mean import UNSPENT_SHARE, Purchase, tell_purchase
from sottovoce.estimators.rank_reach import (
    ODDS,
    RankReach,
    draw_reaches,
    estimate_rank_error,
    estimate_rank_noise,
)
from sottovoce.guarantee import Guarantee
from sottovoce.noise import source
from sottovoce.noise.source import MOST_STEPS, Grid, QuantileGrid, SteppedGrid
from sottovoce.plan import (
    ASSOCIATION,
    ExpectedError,
    Plan,
    Theorem,
    find_rank_margin,
)
from sottovoce.release import LEVEL, Intervals, Release, check_level
from sottovoce.schema import BoundsLike, Schema, check_interval_share, is_between, is_one_of
from sottovoce.weights import Weights

#: At least 2^10 grid points, at most 2^20, and about this many to the scale of the choice and at
#: most to a row, so that values which fill a part of the bounds are told apart.
MIN_BITS = 10
MAX_BITS = 20
CELLS_PER_SCALE = 16
CELLS_PER_ROW = 64

#: Shares of everybody's ε that may buy the interval, by how much they may raise the error against
#: the population, and which part of the rows the interval may span on either side to be worth it.
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
MOST_ERROR = 1.05
WIDEST = 0.2
#: A share is large enough where the interval is as narrow as with the best one, but for so much.
NEARLY_BEST = 1.05
#: And where it is as narrow as sampling alone would make it, but for so much.
NEARLY_IDEAL = 1.25

#: How one point is chosen.
CHOICES: dict[str, Callable[[NDArray[np.int64], int], int]] = {
    "permute-and-flip": source.permute_and_flip,
    "exponential": source.exponential,
}
METHODS = (JOINT, *CHOICES)


class Quantile(LoadableEstimator, ColumnEstimator):
    """Quantiles of a bounded column, each person with the weight that their own ε allows.

    **Question.** Below which value do ``q`` of the rows lie? ``q`` may be a list; its entries are
    then chosen together at one price, and answers come in the order of ``q``. With ``q="all"`` as
    many are chosen as the budgets tell apart, and ``cdf`` is the distribution function.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, exact arithmetic. Nobody's loss exceeds their own ε_l; see
    ``guarantee_``.

    **Formula.** A grid point t is chosen by permute-and-flip with score u(t) = max(F(t−) − q, q −
    F(t), 0) at scale 2·max_l W_l/ε_l (docs/theory/quantile.md, equations 1 to 3). Several are
    chosen with probability ∝ exp(−Σ_j |weight in gap j − its target|/(4·max_l W_l/ε_l)), exactly
    (equation 11).

    >>> import sottovoce as sv
    >>> median = sv.Quantile(q=0.5, bounds=(0, 1)).fit([0.25] * 1000, epsilon=1.0)
    >>> abs(median.value_ - 0.25) < 0.01
    True

    **Limits.** Answers are points of the grid (``cells`` of them, chosen from public numbers unless
    given). ``expected_error`` is a share of the rows, for values spread evenly over the bounds;
    where they fill only a part of the bounds, pass that part as ``spread``. Many equal values make
    the true error smaller. ``interval()`` of one quantile keeps its level whatever the column is;
    it is the bounds themselves where people are too few. Intervals of several take values to lie
    about evenly between the answers.

    Parameters
    ----------
    q :
        A number between 0 and 1, a list of them, or "all" for the whole distribution.
    bounds :
        (low, high), Bounds with a label, or a Schema that describes the column, from public
        knowledge.
    spread :
        Public guess of the share of the bounds that the values fill; for the expected error only.
    cells :
        About how many steps the grid has, at most 2^22 (its step is a power of two); chosen from
        public numbers if not given.
    method :
        "joint" chooses several together; "permute-and-flip", or "exponential" for the exponential
        mechanism as published, one after another, each with its part of the budget. If not given,
        "joint" for several and "permute-and-flip" for one.
    missing :
        Public constant between the bounds that stands for missing values; without it they are
        refused.
    association :
        Public guess of how far, as a share of the rows, the distribution function of people with
        one budget may lie from everybody's (one number, or one for each q). If not given, what a
        normal column gives whose mean is off by a fifth of its standard deviation: .08 at the
        median, less elsewhere. 0 trusts that budgets go along with nothing.
    interval_share :
        Share of everybody's ε that buys the interval; if not given, chosen from public numbers. 0
        buys nothing. Those of quantiles that are chosen together cost nothing.
    step :
        Public step of the column, such as 1 for whole numbers: answers are then low, low + step, …
        If not given, that of the schema. Not together with ``cells``.
    """

    # What older books do not know about a question.
    later = ("association", "interval_share", "step")
    # Of estimators that an earlier version pickled, and of subclasses that do not take them.
    association: float | Sequence[float] | None = None
    interval_share: float | None = None
    step: float | None = None
    value_: float | Floats

    def __init__(
        self,
        q: float | Sequence[float] | Floats | Literal["all"] = 0.5,
        bounds: BoundsLike | None = None,
        *,
        spread: float = 1.0,
        cells: int | None = None,
        method: str | None = None,
        missing: float | None = None,
        association: float | Sequence[float] | None = None,
        interval_share: float | None = None,
        step: float | None = None,
    ) -> None:
        self.q = q
        self.bounds = bounds
        self.spread = spread
        self.cells = cells
        self.method = method
        self.missing = missing
        self.association = association
        self.interval_share = interval_share
        self.step = step

    def asked_parameters(self) -> dict[str, Any]:
        """Return the parameters that a request is remembered by.

        Returns
        -------
        dict[str, Any]
            Parameters by name; "permute-and-flip", which was the default, stands for it.
        """
        given: dict[str, Any] = self.get_params()
        if self.method is None:
            given["method"] = "permute-and-flip"
        return given

    def validate(self) -> None:
        """Refuses bounds, quantiles, a method or a grid that are wrong for any people.

        A schema has its ranges checked already; which of its columns is asked about is said later.
        """
        if not isinstance(self.bounds, Schema):
            label = make_column_label(self)
            self._make_grid(label, MIN_BITS)
        self._get_associations(self._get_targets())
        self._check_cells()
        check_interval_share(self.interval_share)

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets."""
        label = self._get_label(rows)
        width = label.high - label.low
        targets = self._get_targets(budgets)
        associations = self._get_associations(targets)
        method = self._get_method(targets)
        if method == JOINT:
            return self._plan_jointly(budgets, label, targets, associations)
        A = sum(q * (1 - q) for q in targets) / len(targets) / 8
        B = sum(beta**2 for beta in associations) / len(targets) / 8
        weights = Weights.solve(budgets.split(len(targets)), A, B)
        purchase = self._choose_purchase(budgets, weights, targets, A, B)
        if purchase is not None:
            weights = weights.with_grants(purchase.rest)
        grid = self._make_grid(label, self._choose_bits(weights))
        charges = weights.charges * len(targets)
        bought = None
        if purchase is not None:
            bought = RankReach.of(purchase, budgets, targets, associations, grid.cells)
            charges = charges + bought.weights.charges * len(targets)
        return Plan(
            question="quantile",
            parameters=self._tell_parameters(label, targets, associations, method),
            budgets=budgets,
            weights=weights,
            guarantee=Guarantee.of(budgets, charges),
            noise={
                "distribution": f"{method} choice",
                "scale": 2 * weights.noise_ratio,
                **tell_purchase(purchase, bought),
            },
            grid=QuantileGrid(grid),
            theorem=THEOREM,
            error=self._estimate_errors(budgets, weights, targets, width),
            bought=bought,
            rivals=partial(
                self._estimate_rivals, budgets, budgets.split(len(targets)), targets, width, A
            ),
        )

    def _plan_jointly(
        self, budgets: Budgets, label: Label, targets: list[float], associations: list[float]
    ) -> Plan:
        """The plan for several quantiles that are chosen together: one charge for all of them."""
        constant = measure_noise_constant(len(set(targets)))
        A = sum(q * (1 - q) for q in targets) / len(targets) / constant
        B = sum(beta**2 for beta in associations) / len(targets) / constant
        weights = Weights.solve(budgets.kinds, A, B)
        width = label.high - label.low
        return Plan(
            question="quantile",
            parameters=self._tell_parameters(label, targets, associations, JOINT),
            budgets=budgets,
            weights=weights,
            guarantee=Guarantee.of(budgets, weights.charges),
            noise={
                "distribution": "joint exponential choice",
                "scale": 4 * weights.noise_ratio,
                "people_concentration": weights.measure_people_concentration(budgets.kinds),
            },
            grid=QuantileGrid(self._make_grid(label, self._choose_bits(weights))),
            theorem=JOINT_THEOREM,
            error=self._estimate_errors(budgets, weights, targets, width),
            rivals=partial(self._estimate_rivals, budgets, budgets.kinds, targets, width, A),
        )

    def _tell_parameters(
        self, label: Label, targets: list[float], associations: list[float], method: str
    ) -> dict[str, Any]:
        told = {
            "q": targets,
            "bounds": [label.low, label.high],
            "spread": self.spread,
            "method": method,
            "missing": label.missing,
            "association": associations,
            "interval_share": self.interval_share,
        }
        step = self._find_step(label)
        if step is not None:
            told["step"] = float(step)
        return told

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows once, chooses grid points, and returns the release."""
        grid = plan.grid.points
        missing = plan.parameters["missing"]
        kernel = WeightedHistogram(rows.value, grid, rows.owner, plan.weights.row, missing)
        if plan.bought is None:
            return Release.of(plan, draw_noisy_values(plan, rows.engine.fold(kernel)))
        other = WeightedHistogram(rows.value, grid, rows.owner, plan.bought.weights.row, missing)
        parts = rows.engine.fold(KernelPair(kernel, other))
        values = draw_noisy_values(plan, parts.first)
        return Release.of(plan, values, draw_reaches(plan, parts.second, values))

    def interval(self, level: float = LEVEL) -> Any:
        """Return between which numbers the quantiles of the population lie; it costs nothing.

        Parameters
        ----------
        level : float
            The probability, at least, with which each does, over the rows drawn and the noise. What
            was bought is for .95; above, the interval is the bounds.

        Returns
        -------
        Any
            (low, high); a list of them for several quantiles.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        InvalidParameter
            The level is no probability, or the release was made by an earlier version.
        """
        pairs = super().interval(level)
        if self._has_several():
            return pairs
        return pairs[0]

    def cdf(self, x: Any, level: float | None = None) -> Any:
        """Return the share of the population at or below each number; it costs nothing.

        Parameters
        ----------
        x : Any
            A number, or several.
        level : float, optional
            The probability with which the share at each number lies between two others, over the
            rows drawn and the noise, if they are wanted.

        Returns
        -------
        Any
            Shares in the shape of x; with a level (shares, low, high).

        Raises
        ------
        NotFittedError
            There is no answer yet.
        InvalidParameter
            The release is not of several quantiles that were chosen together, x is no number, or
            the level is no probability.
        """
        if not hasattr(self, "release_"):
            raise not_fitted_error()
        if self.release_.parameters.get("method") != JOINT:
            raise InvalidParameter(
                "This release has no distribution function.",
                "It follows from several quantiles that were chosen together.",
                'Ask for q="all".',
                parameter="q",
            )
        places = to_doubles(x, "x", "x")
        if np.isnan(places).any():
            raise InvalidParameter(
                "x is not a number.", "", "Pass numbers in units of the column.", parameter="x"
            )
        known = ReleasedDistribution(self.release_)
        if level is None:
            return _like(known.compute_cdf(places), places)
        return tuple(_like(part, places) for part in known.compute_band(places, check_level(level)))

    def _compute_intervals(self, release: Release, level: float) -> Intervals | None:
        if "interval_share" not in release.parameters:  # made by an earlier version
            return None
        if release.parameters["method"] == JOINT:
            return ReleasedDistribution(release).compute_intervals(release, level)
        low, high = release.parameters["bounds"]
        values: list[float] = release.value  # type: ignore[assignment]
        bought = release.bought or {"level": 0.0}
        if level <= bought["level"]:
            source = "half-widths that were bought with a share of everybody's ε"
        else:
            source = "the bounds, between which every quantile lies: no interval was bought"
            if bought["level"] > 0:
                source = f"the bounds: what was bought is for levels up to {bought['level']:g}"
            whole = [high - low] * len(values)
            bought = {"reach": whole, "noise": whole, "sampling": [0.0] * len(values)}
        ends = list(zip(values, bought["reach"], strict=True))
        return Intervals(
            level=level,
            low=[max(value - reach, low) for value, reach in ends],
            high=[min(value + reach, high) for value, reach in ends],
            noise=bought["noise"],
            sampling=bought["sampling"],
            sampling_from=source,
            of="the quantiles of the population; possible bias is a rank",
            bias=bought.get("bias"),
        )

    def _set_value(self, release: Release) -> None:
        values = np.asarray(release.value, dtype=np.float64)
        if self._has_several():
            self.value_ = values
        else:
            self.value_ = float(values[0])

    def _has_several(self) -> bool:
        return isinstance(self.q, str) or bool(np.ndim(self.q))

    def _get_method(self, targets: list[float]) -> str:
        if self.method in CHOICES:
            return str(self.method)
        if 1 < len(set(targets)) <= MOST_QUANTILES:
            return JOINT
        return "permute-and-flip"

    def _get_targets(self, budgets: Budgets | None = None) -> list[float]:
        """The quantiles; of "all" those that budgets tell apart, and the median without budgets."""
        if isinstance(self.q, str) and self.q == "all" and self.method in (None, JOINT):
            if budgets is None:
                return [0.5]
            ratio = Weights.solve(budgets.kinds, 1 / 32, ASSOCIATION**2 / 32).noise_ratio
            return choose_targets(ratio)
        try:
            targets = [float(q) for q in np.atleast_1d(np.asarray(self.q, dtype=np.float64))]
        except Exception:  # what is no number, in whatever way
            targets = []
        if not targets or not all(0 <= q <= 1 for q in targets):
            raise InvalidParameter(
                "q is not a number between 0 and 1, nor several.",
                "Every q must be between 0 and 1: the share of the rows below the answer.",
                "Give a share such as 0.5, or several.",
                parameter="q",
            )
        if self.method is not None and not is_one_of(self.method, METHODS):
            raise InvalidParameter(
                "There is no such method.",
                f"Methods: {', '.join(METHODS)}.",
                "Choose one of them.",
                parameter="method",
            )
        if self.method == JOINT and len(set(targets)) > MOST_QUANTILES:
            raise InvalidParameter(
                "These are too many quantiles to be chosen together.",
                f"At most {MOST_QUANTILES} are.",
                "Ask for fewer, or choose another method.",
                parameter="q",
            )
        if not (isinstance(self.spread, int | float) and 0 < self.spread <= 1):
            raise InvalidParameter(
                "The spread is not a share of the bounds.",
                "It lies above 0 and not above 1.",
                "Pass a public guess.",
                parameter="spread",
            )
        return targets

    def _get_associations(self, targets: list[float]) -> list[float]:
        """How far ranks may be off, for each q: as given, or as if a normal column moved."""
        if self.association is None:
            return [ASSOCIATION * _density_of_rank(q) for q in targets]
        try:
            given = np.broadcast_to(np.asarray(self.association, dtype=np.float64), len(targets))
        except Exception:  # what is no number, or not one for each, in whatever way
            given = np.array([math.nan])
        if not np.all((given >= 0) & (given <= 1)):  # which is false for NaN too
            raise InvalidParameter(
                "The association is not a share.",
                "It lies between 0 and 1; several are one for each q.",
                "Pass a public guess, or nothing.",
                parameter="association",
            )
        return [float(beta) for beta in given]

    def _estimate_errors(
        self, budgets: Budgets, weights: Weights, targets: list[float], width: float
    ) -> ExpectedError | tuple[ExpectedError, ...]:
        errors = tuple(
            estimate_rank_error(q, beta, budgets, weights, self.spread, width, noise)
            for q, beta, noise in zip(
                targets,
                self._get_associations(targets),
                self._estimate_noise(targets, weights),
                strict=True,
            )
        )
        if self._has_several():
            return errors
        return errors[0]

    def _estimate_noise(self, targets: list[float], weights: Weights) -> list[float]:
        if self._get_method(targets) == JOINT:
            return estimate_joint_noise(targets, 4 * weights.noise_ratio, self.spread)
        scale = 2 * weights.noise_ratio
        return [estimate_rank_noise(q, scale, self.spread, weights.concentration) for q in targets]

    def _estimate_rivals(
        self, budgets: Budgets, kinds: BudgetGroups, targets: list[float], width: float, A: float
    ) -> dict[str, ExpectedError]:
        """The errors of equal weights, and of those that trust that budgets go along with nothing,
        at the first q.
        """
        rivals = {
            "Counting every row the same": Weights.solve(kinds, math.inf),
            "Trusting that budgets go along with nothing": Weights.solve(kinds, A),
        }
        beta = self._get_associations(targets)[0]
        return {
            name: estimate_rank_error(
                targets[0],
                beta,
                budgets,
                weights,
                self.spread,
                width,
                self._estimate_noise(targets, weights)[0],
            )
            for name, weights in rivals.items()
        }

    def _choose_purchase(
        self, budgets: Budgets, weights: Weights, targets: list[float], A: float, B: float
    ) -> Purchase | None:
        """Returns how the interval is bought; None where that is not worth it. From public
        numbers.
        """
        parts = len(targets)
        if self.interval_share is not None:
            share = float(self.interval_share)
            return Purchase.at(share, share, budgets, weights, A, B, parts)
        variance = max(q * (1 - q) for q in targets)
        by_chance = math.sqrt(variance * weights.measure_people_concentration(budgets.kinds))
        certain = float(scipy.special.ndtri(0.5 + LEVEL / 2))
        noise = 2 * math.sqrt(2) * weights.noise_ratio
        reaches = []
        for share in SHARES:
            louder = noise / (1 - share)
            if math.hypot(louder, by_chance) > MOST_ERROR * math.hypot(noise, by_chance):
                continue
            found = Purchase.at(share, UNSPENT_SHARE, budgets, weights, A, B, parts)
            if found is None:
                continue
            people = found.weights.measure_people_concentration(budgets.kinds)
            scale = 2 * found.weights.noise_ratio
            reach = find_rank_margin(LEVEL, ODDS, scale, math.sqrt(variance * people))
            if reach <= WIDEST:
                reaches.append((reach, found))
                if reach <= NEARLY_IDEAL * certain * by_chance:
                    break
        best = min((reach for reach, _ in reaches), default=0.0)
        return next((found for reach, found in reaches if reach <= NEARLY_BEST * best), None)

    def _check_cells(self) -> None:
        possible = isinstance(self.cells, int | np.integer) and 2 <= self.cells <= 2**22
        if self.cells is not None and not possible:
            raise InvalidParameter(
                "The grid is too coarse or too fine.",
                "cells lies between 2 and 2^22.",
                "Choose another number.",
                parameter="cells",
            )

    def _find_step(self, label: Label) -> float | None:
        """The step that was given; else the declared one, unless the grid was given or it is finer
        than any grid.
        """
        if self.step is not None or self.cells is not None or label.step is None:
            return self.step
        if label.high - label.low > MOST_STEPS * label.step:
            return None
        return label.step

    def _make_grid(self, label: Label, bits: int) -> Grid | SteppedGrid:
        step = self._find_step(label)
        if step is None:
            return Grid.cover(label.low, label.high, bits)
        if self.cells is not None or not is_between(step, 0.0, math.inf):
            raise InvalidParameter(
                "The step is not a positive number, or stands beside cells.",
                "A column has one grid of possible answers.",
                "Pass the public step of the column, or cells.",
                parameter="step",
            )
        return SteppedGrid.cover(label.low, label.high, float(step))

    def _choose_bits(self, weights: Weights) -> int:
        self._check_cells()
        if self.cells is not None:
            return math.ceil(math.log2(self.cells))
        finest = max(
            CELLS_PER_SCALE * weights.concentration / CELLS_PER_ROW, 2 * weights.noise_ratio
        )
        return min(max(math.ceil(math.log2(CELLS_PER_SCALE / finest)), MIN_BITS), MAX_BITS)


THEOREM = Theorem(
    "Choice of a grid point by weighted rank: each person l loses at most W_l/max(W/ε) a "
    "quantile (pure ε, replace)",
    "docs/theory/quantile.md",
)


JOINT_THEOREM = Theorem(
    "Joint choice of several grid points by the weight between them: each person l loses at most "
    "W_l/max(W/ε) for all quantiles together (pure ε, replace)",
    "docs/theory/quantile.md",
)


def _like(values: Floats, shape: Floats) -> Any:
    """Returns a number for a number, and an array for an array."""
    if shape.ndim:
        return values
    return float(values)


def _density_of_rank(q: float) -> float:
    """How fast the rank of a normal column grows at its q quantile, by standard deviation."""
    if not 0 < q < 1:
        return 0.0
    return math.exp(-(float(scipy.special.ndtri(q)) ** 2) / 2) / math.sqrt(2 * math.pi)


def draw_noisy_values(plan: Plan, histogram: NDArray[np.int64]) -> list[float]:
    """Returns one noisy quantile for each q, in the order of q, made monotone (which is free)."""
    if plan.parameters["method"] == JOINT:
        return draw_joint_values(plan, histogram)
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
