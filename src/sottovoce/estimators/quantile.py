# SPDX-License-Identifier: Apache-2.0
"""Quantiles of a bounded column with a budget a person (docs/theory/quantile.md).

symbol        name
t             a point of a public grid, index 0 … N (grid.cells)
F(t)          exact share of the weight at or below t, as a whole number out of plan.weights.total
u(t)          score: how far the target lies outside [F(t−), F(t)], a whole number, 0 is best
2·max W/ε     choice: the scale of the choice among points, 2·plan.weights.heaviest
β             association: how far the share at or below t of people with one budget may lie from
              everybody's

For the interval a share of everybody's ε may buy, for each q, how far to go from the answer on
either side (RankReach): one of a few half-widths in steps of a fourth root of 2 is chosen, by the
rank that it covers with weights of its own. Whether it does follows from public numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, ndtri

from sottovoce.arrays import Floats
from sottovoce.budgets import Budgets
from sottovoce.data.engine import Dataset
from sottovoce.data.kernels import KernelPair, WeightedHistogram
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import make_column_label
from sottovoce.estimators.base import ColumnEstimator, LoadableEstimator
from sottovoce.estimators.mean import UNSPENT_SHARE, Purchase, tell_purchase
from sottovoce.guarantee import Guarantee
from sottovoce.noise import source
from sottovoce.noise.source import Grid, QuantileGrid
from sottovoce.plan import (
    ASSOCIATION,
    ExpectedError,
    Plan,
    Theorem,
    find_rank_margin,
    measure_inequality,
)
from sottovoce.release import LEVEL, Intervals, Release
from sottovoce.schema import BoundsLike, Schema, check_interval_share, is_one_of
from sottovoce.weights import Weights

#: At least 2^10 grid points, at most 2^18, and about this many to the size of the expected rank
#: error.
MIN_BITS = 10
MAX_BITS = 18
CELLS_PER_ERROR = 16

#: Up to a scale of so many rows the ranks are added up one by one, so many rows to each side.
FEW_ROWS = 8
REACH = 400

#: Shares of everybody's ε that may buy the interval, by how much they may raise the error against
#: the population, and which part of the rows the interval may span on either side to be worth it.
SHARES = (0.0, 0.05, 0.1, 0.2)
MOST_ERROR = 1.0025
WIDEST = 0.2
#: Half-widths grow by this factor from one candidate to the next, and begin at so much of what even
#: values would need.
STEP = 2**0.25
NARROWEST = 1 / 32
TYPICAL_CANDIDATES = 33
#: A share is large enough where the interval is as narrow as with the best one, but for so much.
NEARLY_BEST = 1.05
#: And where it is as narrow as sampling alone would make it, but for so much.
NEARLY_IDEAL = 1.25

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
    the true error smaller. ``interval()`` keeps its level whatever the column is; it needs many
    people to be narrow, and is the bounds themselves where there are too few.

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
    association :
        Public guess of how far, as a share of the rows, the distribution function of people with
        one budget may lie from everybody's (one number, or one for each q). If not given, what a
        normal column gives whose mean is off by a fifth of its standard deviation: .08 at the
        median, less elsewhere. 0 trusts that budgets go along with nothing.
    interval_share :
        Share of everybody's ε that buys the interval; if not given, chosen from public numbers. 0
        buys nothing.
    """

    later = ("association", "interval_share")  # what older books do not know about a question
    # Of estimators that an earlier version pickled, and of subclasses that do not take them.
    association: float | Sequence[float] | None = None
    interval_share: float | None = None
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
        association: float | Sequence[float] | None = None,
        interval_share: float | None = None,
    ) -> None:
        self.q = q
        self.bounds = bounds
        self.spread = spread
        self.cells = cells
        self.method = method
        self.missing = missing
        self.association = association
        self.interval_share = interval_share

    def validate(self) -> None:
        """Refuses bounds, quantiles, a method or a grid that are wrong for any people.

        A schema has its ranges checked already; which of its columns is asked about is said later.
        """
        if not isinstance(self.bounds, Schema):
            label = make_column_label(self)
            Grid.cover(label.low, label.high, MIN_BITS)
        self._get_associations(self._get_targets())
        self._check_cells()
        check_interval_share(self.interval_share)

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets."""
        label = self._get_label(rows)
        low = label.low
        high = label.high
        targets = self._get_targets()
        associations = self._get_associations(targets)
        A = sum(q * (1 - q) for q in targets) / len(targets) / 8
        B = sum(beta**2 for beta in associations) / len(targets) / 8
        weights = Weights.solve(budgets.split(len(targets)), A, B)
        purchase = self._choose_purchase(budgets, weights, targets, A, B)
        if purchase is not None:
            weights = weights.with_grants(purchase.rest)
        grid = Grid.cover(low, high, self._choose_bits(weights))
        charges = weights.charges * len(targets)
        bought = None
        if purchase is not None:
            bought = RankReach.of(purchase, budgets, targets, associations, grid.cells)
            charges = charges + bought.weights.charges * len(targets)
        return Plan(
            question="quantile",
            parameters={
                "q": targets,
                "bounds": [low, high],
                "spread": self.spread,
                "method": self.method,
                "missing": label.missing,
                "association": associations,
                "interval_share": self.interval_share,
            },
            budgets=budgets,
            weights=weights,
            guarantee=Guarantee.of(budgets, charges),
            noise={
                "distribution": f"{self.method} choice",
                "scale": 2 * weights.noise_ratio,
                **tell_purchase(purchase, bought),
            },
            grid=QuantileGrid(grid),
            theorem=THEOREM,
            error=self._estimate_errors(budgets, weights, targets, high - low),
            bought=bought,
            rivals=partial(self._estimate_rivals, budgets, targets, high - low, A),
        )

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
        if np.ndim(self.q):
            return pairs
        return pairs[0]

    def _compute_intervals(self, release: Release, level: float) -> Intervals | None:
        if "interval_share" not in release.parameters:  # made by an earlier version
            return None
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
            estimate_rank_error(q, beta, budgets, weights, self.spread, width)
            for q, beta in zip(targets, self._get_associations(targets), strict=True)
        )
        if np.ndim(self.q):
            return errors
        return errors[0]

    def _estimate_rivals(
        self, budgets: Budgets, targets: list[float], width: float, A: float
    ) -> dict[str, ExpectedError]:
        """The errors of equal weights, and of those that trust that budgets go along with nothing,
        at the first q.
        """
        kinds = budgets.split(len(targets))
        rivals = {
            "Counting every row the same": Weights.solve(kinds, math.inf),
            "Trusting that budgets go along with nothing": Weights.solve(kinds, A),
        }
        beta = self._get_associations(targets)[0]
        return {
            name: estimate_rank_error(targets[0], beta, budgets, weights, self.spread, width)
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
        certain = float(ndtri(0.5 + LEVEL / 2))
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
            reach = find_rank_margin(LEVEL, TYPICAL_CANDIDATES, scale, math.sqrt(variance * people))
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


def _density_of_rank(q: float) -> float:
    """How fast the rank of a normal column grows at its q quantile, by standard deviation."""
    if not 0 < q < 1:
        return 0.0
    return math.exp(-(float(ndtri(q)) ** 2) / 2) / math.sqrt(2 * math.pi)


@dataclass(frozen=True, eq=False)
class RankReach:
    """How far to go from each answer for the interval: candidates, the rank that is aimed at on
    either side, and what it costs.
    """

    purchase: Purchase
    candidates: tuple[NDArray[np.int64], ...]  # half-widths in steps of the grid, for each q
    aims: tuple[float, ...]  # ranks
    noise: tuple[float, ...]  # ranks that noise alone would need
    sampling: tuple[float, ...]  # ranks that sampling alone would need
    bias: tuple[float, ...]  # ranks by which budgets that go along with values may move it

    @classmethod
    def of(
        cls,
        purchase: Purchase,
        budgets: Budgets,
        targets: list[float],
        associations: list[float],
        cells: int,
    ) -> RankReach:
        """Returns it with what is set aside for it."""
        people = purchase.weights.measure_people_concentration(budgets.kinds)
        scale = 2 * purchase.weights.noise_ratio
        moved = measure_inequality(budgets, purchase.weights)[1]
        certain = float(ndtri(0.5 + LEVEL / 2))
        found = [_choose_candidates(q, people, scale, cells) for q in targets]
        return cls(
            purchase,
            tuple(steps for steps, _ in found),
            tuple(aim for _, aim in found),
            tuple(scale * math.log(len(steps) / (1 - LEVEL)) for steps, _ in found),
            tuple(certain * math.sqrt(q * (1 - q) * people) for q in targets),
            tuple(beta * moved for beta in associations),
        )

    @property
    def weights(self) -> Weights:
        """The weights of rows in it."""
        return self.purchase.weights

    @property
    def scale(self) -> float:
        """The scale of the choice among half-widths, as a rank."""
        return 2 * self.weights.noise_ratio

    def describe(self) -> str:
        """What is bought, in words."""
        return (
            f"{self.purchase.describe()} buys how wide the interval must be; the charges include "
            "it."
        )


def _choose_candidates(
    q: float, people: float, scale: float, cells: int
) -> tuple[NDArray[np.int64], float]:
    """Half-widths in steps of the grid, and the rank that is aimed at; the last one is the whole
    grid, and covers whatever the rows are.
    """
    deviation = math.sqrt(q * (1 - q) * people)
    steps = np.array([cells], dtype=np.int64)
    aim = 1.0
    count = TYPICAL_CANDIDATES
    for _ in range(2):  # how many there are depends on what is aimed at, and the other way round
        aim = find_rank_margin(LEVEL, count, scale, deviation) + people
        narrowest = max(min(NARROWEST * aim, 0.5) * cells, 1.0)
        powers = np.arange(math.ceil(math.log(cells / narrowest, STEP)))
        steps = np.unique(np.append(np.rint(narrowest * STEP**powers), cells).astype(np.int64))
        count = len(steps)
    return steps, find_rank_margin(LEVEL, count, scale, deviation) + people


def draw_reaches(plan: Plan, histogram: NDArray[np.int64], values: list[float]) -> dict[str, Any]:
    """Returns how far to go from each answer, as public JSON, in units of the column."""
    bought: RankReach = plan.bought
    grid = plan.grid.points
    chosen = []
    for place, (q, value) in enumerate(zip(plan.parameters["q"], values, strict=True)):
        scores = score_reaches(
            histogram,
            q,
            min(round((Fraction(value) - Fraction(grid.low)) / grid.step), grid.cells),
            bought.candidates[place],
            bought.aims[place],
        )
        which = source.permute_and_flip(scores, 2 * bought.weights.loudest)
        # values were rounded by at most half a step
        chosen.append(float((int(bought.candidates[place][which]) + Fraction(1, 2)) * grid.step))
    return {
        "reach": chosen,
        "noise": _take_shares(chosen, bought.noise, bought.aims),
        "sampling": _take_shares(chosen, bought.sampling, bought.aims),
        "bias": list(bought.bias),
        "level": LEVEL,
    }


def _take_shares(
    reaches: list[float], parts: tuple[float, ...], aims: tuple[float, ...]
) -> list[float]:
    """Which part of each half-width a cause alone would need, as ranks go."""
    together = zip(reaches, parts, aims, strict=True)
    return [reach * min(part / aim, 1.0) for reach, part, aim in together]


def score_reaches(
    histogram: NDArray[np.int64], q: float, index: int, steps: NDArray[np.int64], aim: float
) -> NDArray[np.int64]:
    """Returns, for every half-width, how far the rank it covers is from what is aimed at.

    It covers F(upper) − q above and q − F(lower−) below, or everything where it ends at the bounds;
    the smaller of the two counts. What is aimed at lies between what the next narrower one covers
    and what this one does for exactly one of them, whose score is 0. A person of weight W moves
    each by at most W, exactly.
    """
    cells = len(histogram) - 1
    at_or_below = np.concatenate([[0], np.cumsum(histogram)])  # [i]: below the point i
    total = int(at_or_below[-1])
    target = round(Fraction(q) * total)
    upper = np.minimum(index + steps, cells)
    lower = np.maximum(index - steps, 0)
    above = np.where(upper == cells, total, at_or_below[upper + 1] - target)
    below = np.where(lower == 0, total, target - at_or_below[lower])
    covered = np.minimum(above, below)
    narrower = np.concatenate([[-total], covered[:-1]])
    aimed = min(round(Fraction(aim) * total), total)
    scores: NDArray[np.int64] = np.maximum(aimed - covered, narrower - aimed)
    return np.maximum(scores, 0, out=scores)


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
    q: float, association: float, budgets: Budgets, weights: Weights, spread: float, width: float
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
        bias=association * moved,
        assumed=f"Assumed: values spread evenly over {spread:.0%} of the bounds.",
        representative=1 - moved / 2,
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
