# SPDX-License-Identifier: Apache-2.0
"""What the default regression does with whose budget, from public numbers and released ones alone.

The recipe (docs/theory/objective.md): whether a scale, a location, slopes, a second fit and the
mean of what was clipped are bought, with which share of everybody's budget, at which thresholds,
and how much of a large budget is spent at all. All of it follows from the proxy
(ridge_errors.py).

    symbol   name
    S        total       Σε over people, as far as it is spent
    s        scale       spread of the labels around wherever they are, bought first
    τ = k·s  threshold   no row pulls harder than this
    L        level       the proxy's value of one fit, in units of s²
    h        cap         nobody's row has more weight
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sottovoce import units
from sottovoce.arrays import Floats, Integers
from sottovoce.budgets import BudgetGroups
from sottovoce.estimators.curvature import choose_interval_share
from sottovoce.estimators.ridge_ball import CENTRE, RADIUS, choose_ball_purchase
from sottovoce.estimators.ridge_errors import (
    BALL_FILLED,
    EXPLAINED,
    FEATURE_MOMENTS,
    SKEWED_LABEL_BIAS,
    PublicFacts,
    SquaredErrorParts,
    StageParameters,
    choose_constant_parameters,
    choose_parameters,
    count_deviations,
    split_error,
)
from sottovoce.estimators.ridge_gaussian import REGULARITIES, GaussianWeights

#: From this much budget in all the scale of the labels is bought; below, slopes are fitted at a
#: guess of it, or not at all.
SCALE_BOUGHT_FROM = 150.0
#: From here on the scale is read at a higher quantile, which is sharper but needs more budget.
AMPLE_BUDGET = 400.0
#: From here on the mean of what was clipped is bought.
CORRECTED_FROM = 1000.0
#: Candidates for the scale are halved seven times, from a quarter of the half-range, or, in half as
#: long steps, from half of it where most of the labels must be inside; around a first fit, nine
#: times.
LABEL_SCALES = 8
RESIDUAL_SCALES = 10
#: Residuals are at most so large if predictions stay near the range.
LARGEST_RESIDUAL = 4.0
#: So much of the budget that buys a window is outside of it: from 12 units where 40 are spent to 20
#: where 100 are.
OUTSIDE = (12.0, 20.0)
#: The proxy's value from which slopes cannot pay for their noise, and below which a second fit
#: pays.
WORTHLESS_ERROR = 0.6
WORTH_REFITTING = 0.01
#: The scale that is guessed where none is bought, those that it must do for, and the proxy's value
#: below which slopes are fitted then.
GUESSED_SCALE = 0.15
POSSIBLE_SCALES = (0.05, 0.1, 0.2)
SURELY_WORTHWHILE = 0.3
#: H where a mean is wanted: rows up to ¾ of the threshold are not bent.
GENTLE = 1 / 8
#: How far the intercept may lie from the centre, squared: in units of s² where a location is known,
#: of the half-range squared where it is not. A location is bought with this threshold.
KNOWN_SIZE = 0.3
UNKNOWN_SIZE = 0.16
LOCATION_THRESHOLD = 1 / 8
#: The most caps on budgets that are compared.
MOST_CAPS = 24
#: How far labels beyond a threshold lie beyond it, on average, in units of it.
MEAN_EXCESS = 0.8
CORRECTION = "mean of what was clipped"
#: What is left of the variance of Laplace noise that is drawn back by one deviation: e^−√2.
CORRECTION_KEPT = math.exp(-math.sqrt(2))
TAIL = "tail of residuals"
INTERVALS = "intervals"


@dataclass(frozen=True)
class Stage:
    """One stage: what it is for and its share of everybody's budget."""

    purpose: str
    share: float


@dataclass(frozen=True)
class StagePlan:
    """What will be done once the scale is known (or from the start, if none is bought)."""

    scale: float
    parts: tuple[Stage, ...]
    slopes: StageParameters | None  # None: a constant only
    constant: float  # threshold of a constant-only answer, 0 if slopes are fitted
    expected: float  # the proxy, in units of the label's squared scale
    intercept_size: float

    @property
    def last_fit(self) -> Stage:
        """The stage that coefficients come from."""
        after = (CORRECTION, INTERVALS)
        return next(part for part in reversed(self.parts) if part.purpose not in after)

    @property
    def in_declared_ball(self) -> bool:
        """Whether slopes are fitted in a ball that nothing buys."""
        return self.slopes is not None and self.slopes.rounded > 0 and not self.has(CENTRE)

    def get_share(self, purpose: str) -> float:
        """The share of such a stage."""
        return next(part.share for part in self.parts if part.purpose == purpose)

    def has(self, purpose: str) -> bool:
        """Whether there is such a stage."""
        return any(part.purpose == purpose for part in self.parts)


@dataclass(frozen=True)
class StagePurchase:
    """The smallest of some half-widths, of a window that holds a part of everybody's budget."""

    share: float
    quantile: float

    @property
    def units(self) -> float:
        """Deviations of a normal law that a window with this part of it reaches to either side."""
        return count_deviations(self.quantile)

    @property
    def label_scales(self) -> Floats:
        """The half-widths for labels."""
        if self.quantile > 0.8:
            return list_halvings(0.5, 2 * LABEL_SCALES, 2)
        return list_halvings(0.25, LABEL_SCALES)


@dataclass(frozen=True)
class BudgetTotals:
    """Budgets as numbers: S = Σε and Σε² over people, by what the kinds say."""

    total: float
    squares: float
    weights: GaussianWeights | None = None  # of fits with Gaussian noise

    @classmethod
    def of(cls, kinds: BudgetGroups, weights: GaussianWeights | None = None) -> BudgetTotals:
        """Adds everybody up; squares count rows (a person's weight is spread over theirs)."""
        epsilon = units.to_epsilon(kinds.epsilon)
        total = float((epsilon * kinds.people).sum())
        squares = float((epsilon**2 / kinds.rows * kinds.people).sum())
        return cls(total, squares, weights)

    @property
    def gaussian(self) -> bool:
        """Whether slopes are fitted with Gaussian noise."""
        return self.weights is not None

    def weigh_fit(self, share: float, H: float) -> tuple[float, float]:
        """Returns Σv and Σv² over rows of a fit of slopes with this share and H."""
        if self.weights is None:
            return share * self.total, share**2 * self.squares
        return self.weights.add_up(share, H)


def list_halvings(largest: float, count: int, steps: int = 1) -> Floats:
    """Returns the largest candidate and smaller ones, each half of the one so many steps before."""
    return np.asarray(largest * 0.5 ** (np.arange(count) / steps), dtype=np.float64)


def list_residual_bounds(scale: float) -> Floats:
    """Returns the candidates for the tail of residuals, down to 2⁻⁹ of the labels' scale."""
    halvings = math.ceil(math.log2(LARGEST_RESIDUAL / scale)) + 9
    return list_halvings(LARGEST_RESIDUAL, 2 * halvings + 1, 2)


def handicap_scales(scales: Floats) -> Floats:
    """Returns by how many powers of e a scale of labels is held back for being below a sixteenth of
    half their range: whole numbers leave room for a window that holds many of them and is far too
    narrow.
    """
    return np.asarray(0.7 * np.maximum(-4 - np.log2(scales), 0.0), dtype=np.float64)


def handicap_bounds(bounds: Floats, scale: float) -> Floats:
    """Returns by how many powers of e a bound is held back for being wide: a tail that nobody is in
    looks the same at every width, and noise grows with the square of it.
    """
    return np.asarray(1.5 * np.maximum(np.log2(bounds / scale), 0.0), dtype=np.float64)


def choose_for_share(
    totals: BudgetTotals,
    slopes: int,
    share: float,
    intercept_size: float,
    regularity: float = 0.5,
    rounded: int = 0,
) -> StageParameters:
    """The proxy's choice for this share, assuming modest slopes, or full-sized ones where these are
    affordable; so many slopes are of columns in a ball.
    """
    regularities: tuple[float, ...] = (regularity,)
    if totals.gaussian:
        regularities = REGULARITIES

    def choose(slope_size: float) -> StageParameters:
        options = [
            choose_parameters(
                slopes,
                *totals.weigh_fit(share, H),
                intercept_size,
                slope_size,
                H,
                rounded,
                totals.gaussian,
            )
            for H in regularities
        ]
        return min(options, key=lambda option: option.expected)

    choice = choose(0.6)
    if choice.expected / 0.6 < 0.4:
        return choose(1.0)
    return choice


def estimate_level(totals: BudgetTotals, slopes: int) -> float:
    """Returns about what noise and shrinkage of one fit miss, in units of the label's squared
    scale.
    """
    if slopes == 0:
        return WORTHLESS_ERROR
    choice = choose_for_share(totals, slopes, 0.9, KNOWN_SIZE)
    return estimate_own_error(totals, slopes, 0.9, KNOWN_SIZE, choice)


def estimate_own_error(
    totals: BudgetTotals, slopes: int, share: float, size: float, choice: StageParameters
) -> float:
    """Returns the proxy without what sampling adds to it, which is no matter of privacy."""
    amounts = totals.weigh_fit(share, choice.compute_regularity(slopes))
    terms = split_error(slopes, *amounts, size, EXPLAINED, choice)
    return terms.noise + terms.shrinkage


def choose_scale_purchase(totals: BudgetTotals, slopes: int, robust: bool) -> StagePurchase:
    """Returns what is bought of the labels' scale; the better a fit will be, the more of the tail
    must be inside.
    """
    if totals.total < AMPLE_BUDGET:
        return StagePurchase(30 / totals.total, 0.5)
    return choose_tail_purchase(totals, slopes, robust)


def choose_tail_purchase(totals: BudgetTotals, slopes: int, robust: bool) -> StagePurchase:
    """Returns the same for a window that is wide enough for all but a few."""
    if robust:
        return StagePurchase(max(40 / totals.total, 0.005), 0.7)
    share = max(40 / totals.total, min(0.05, 0.0018 / estimate_level(totals, slopes)))
    spent = share * totals.total
    return StagePurchase(share, 1 - min(max(OUTSIDE[0], spent / 5), OUTSIDE[1]) / spent)


def choose_correction_share(totals: BudgetTotals, slopes: int, robust: bool) -> float:
    """Returns the share that buys the mean of what was clipped; 0 where it would cost more than it
    can correct.
    """
    level = estimate_level(totals, slopes)
    if robust or totals.total < CORRECTED_FROM / 2:
        return 0.0
    if totals.total < CORRECTED_FROM and level > 0.05:
        return 0.0
    return max(30 / totals.total, min(0.05, 0.002 / level))


def choose_correction_threshold(total: float, scale: float) -> float:
    """Returns the threshold at which what was clipped is counted; all of it, if ``total`` is
    large.
    """
    affordable = min(total / 300, 2.0)
    if affordable == 2.0:
        return 2.0
    return min(max(2 * scale, affordable), 12 * scale)


def choose_stages(
    totals: BudgetTotals,
    slopes: int,
    scale: float,
    left: float,
    robust: bool = False,
    interval_share: float | None = 0.0,
    numbers: int = 0,
    declared: int = 0,
) -> StagePlan:
    """Chooses what to do with the rest of the budget, from public numbers and the released scale
    alone; None as ``interval_share`` chooses what buys intervals, too. So many ``numbers`` are
    columns that a ball may be bought for, and so many are in one that is declared.
    """
    share = 0.0
    if slopes:
        share = choose_interval_share(totals.total, slopes, interval_share)
    if share > 0:
        chosen = _choose_best_stages(totals, slopes, scale, left - share, robust, numbers, declared)
        # Where the rest is not enough for what comes before a fit, none is left for the fit.
        paid = all(part.share > 0 for part in chosen.parts)
        if chosen.slopes is not None and paid:
            return replace(chosen, parts=(*chosen.parts, Stage(INTERVALS, share)))
    return _choose_best_stages(totals, slopes, scale, left, robust, numbers, declared)


def _choose_best_stages(
    totals: BudgetTotals,
    slopes: int,
    scale: float,
    left: float,
    robust: bool,
    numbers: int,
    declared: int,
) -> StagePlan:
    locations = (0.0, max(30 / totals.total, 0.02))
    # Nothing is known of rows in a declared ball but their length, and in the box that holds it
    # they would have more noise.
    options = [
        _evaluate_stages(totals, slopes, scale, left, bought, robust, declared, bought_ball=False)
        for bought in locations
    ]
    ball = choose_ball_purchase(totals.total, numbers)
    if not robust and ball is not None:
        in_ball = [
            _evaluate_stages(totals, slopes, scale, left, bought, robust, numbers)
            for bought in locations
        ]
        enough = ball.most_error * min(option.expected for option in options)
        in_ball = [o for o in in_ball if o.slopes is not None and o.expected <= enough]
        options = in_ball or options
    return min(options, key=lambda option: option.expected)


def _evaluate_stages(
    totals: BudgetTotals,
    slopes: int,
    scale: float,
    left: float,
    location: float,
    robust: bool,
    rounded: int = 0,
    bought_ball: bool = True,
) -> StagePlan:
    rest = left - location
    parts: tuple[Stage, ...] = ()
    ball = choose_ball_purchase(totals.total, rounded)
    if bought_ball and ball is not None:
        rest -= ball.share
        parts = (Stage(CENTRE, ball.centre), Stage(RADIUS, ball.radius))
    if location:
        size = KNOWN_SIZE
        parts = (*parts, Stage("location", location))
    else:
        size = max(KNOWN_SIZE, UNKNOWN_SIZE / scale**2)
    correction = choose_correction_share(totals, slopes, robust)
    if slopes:
        choice = choose_for_share(totals, slopes, rest - correction, size, rounded=rounded)
    else:
        choice = None
    if choice is None or choice.expected >= WORTHLESS_ERROR:
        threshold = choose_constant_threshold(rest * totals.total, scale, robust)
        constant = choose_constant_parameters(
            rest * totals.total, rest**2 * totals.squares, size, 2.0
        )
        expected = WORTHLESS_ERROR + constant.expected
        return StagePlan(scale, (*parts, Stage("constant", rest)), None, threshold, expected, size)
    if correction:
        last: tuple[Stage, ...] = (Stage(CORRECTION, correction),)
    else:
        last = ()
    own = estimate_own_error(totals, slopes, rest - correction, size, choice)
    if own < WORTH_REFITTING:
        again = choose_tail_purchase(totals, slopes, robust).share
        more: tuple[Stage, ...] = (
            Stage("first fit", 0.35 * rest),
            Stage("scale of residuals" if robust else TAIL, again),
            Stage("fit", 0.65 * rest - again - correction),
        )
    else:
        more = (Stage("fit", rest - correction),)
    return StagePlan(scale, (*parts, *more, *last), choice, 0.0, choice.expected, size)


def choose_constant_threshold(total: float, scale: float, robust: bool) -> float:
    """The threshold of a constant that is fitted with so much budget; the whole range, if it is
    large.
    """
    if robust:
        return 2 * scale
    return max(2 * scale, min(2.0, total / 300))


def choose_small_budget_threshold(total: float) -> float:
    """The threshold of a constant fitted without knowing the scale, where S is small."""
    return max(0.2, total / 300)


def choose_small_stages(
    totals: BudgetTotals, slopes: int, scale: float, declared: int = 0
) -> StagePlan:
    """Chooses what to do where no scale can be bought: slopes if they pay at every scale that
    labels are likely to have; so many columns are in a ball that is declared.
    """
    tau = choose_small_budget_threshold(totals.total)
    if slopes:
        size = max(KNOWN_SIZE, UNKNOWN_SIZE / GUESSED_SCALE**2)
        choice = choose_for_share(totals, slopes, 1.0, size, rounded=declared)
        amounts = totals.weigh_fit(1.0, choice.compute_regularity(slopes))
        terms = split_error(slopes, *amounts, size, EXPLAINED, choice)
        louder = float(np.mean([(GUESSED_SCALE / s) ** 2 for s in POSSIBLE_SCALES]))
        expected = louder * terms.noise + terms.sampling + terms.shrinkage
        if expected < SURELY_WORTHWHILE:
            return StagePlan(
                GUESSED_SCALE, (Stage("fit", 1.0),), choice, 0.0, choice.expected, size
            )
    size = max(KNOWN_SIZE, UNKNOWN_SIZE / tau**2)
    constant = choose_constant_parameters(totals.total, totals.squares, size, 1.0)
    expected = WORTHLESS_ERROR + constant.expected * (tau / scale) ** 2
    return StagePlan(scale, (Stage("constant", 1.0),), None, tau, expected, size)


def cap_budgets(kinds: BudgetGroups, slopes: int, association: float) -> units.Units:
    """Returns what each kind of people spends: ε, or h a row where that is less, at the h with the
    smallest proxy.

    ``association`` is how far the labels of people with one budget may lie from everybody's, in
    units of the label's scale. It, and the loss in accuracy where few rows have most of the weight,
    speak for a cap; noise speaks against it.
    """
    if not kinds.epsilon.any():
        return (
            kinds.epsilon
        )  # nobody grants anything, which is refused where weights are solved for
    epsilon = units.to_epsilon(kinds.epsilon)
    per_row = epsilon / kinds.rows
    n_rows = float(kinds.rows @ kinds.people)
    totals = BudgetTotals.of(kinds)
    share = 0.9
    if slopes:
        choice = choose_for_share(totals, slopes, share, KNOWN_SIZE)
    else:
        choice = choose_constant_parameters(
            share * totals.total, share**2 * totals.squares, KNOWN_SIZE, 2.0
        )

    def expected(cap: float) -> float:
        row = np.minimum(per_row, cap)
        of_kind = row * kinds.rows * kinds.people
        total = float(of_kind.sum())
        terms = split_error(
            slopes, share * total, share**2 * float(of_kind @ row), KNOWN_SIZE, EXPLAINED, choice
        )
        moved = float((kinds.rows * kinds.people) @ np.abs(row / total - 1 / n_rows))
        return terms.noise + terms.sampling + (association * moved) ** 2

    granted = np.unique(per_row[per_row > 0])
    between = np.geomspace(granted[0], granted[-1], MOST_CAPS)[1:-1]
    if len(granted) > MOST_CAPS:
        granted = granted[[0, -1]]
    cap = min(np.unique([*granted, *between])[::-1], key=expected)
    spent = np.floor(cap * kinds.rows * units.UNITS_PER_EPSILON * (1 - 2.0**-40))
    uncapped = per_row <= cap
    return np.where(uncapped, kinds.epsilon, np.minimum(spent, kinds.epsilon)).astype(np.int64)


def plan_stages_at(
    totals: BudgetTotals,
    slopes: int,
    scale: float,
    known: bool,
    robust: bool,
    interval_share: float | None = 0.0,
    numbers: int = 0,
    declared: int = 0,
) -> StagePlan:
    """What will be done if the first stage releases this scale."""
    if totals.total < SCALE_BOUGHT_FROM:
        return choose_small_stages(totals, slopes, scale, declared)
    if known:
        return choose_stages(totals, slopes, scale, 1.0, robust, interval_share, numbers, declared)
    share = choose_scale_purchase(totals, slopes, robust).share
    left = 1.0 - share
    chosen = choose_stages(totals, slopes, scale, left, robust, interval_share, numbers, declared)
    return replace(chosen, parts=(Stage("scale of labels", share), *chosen.parts))


def estimate_least_deviation(totals: BudgetTotals, slopes: int, chosen: StagePlan) -> float:
    """Returns about the least that noise moves a coefficient of the last fit by: the size of b_j
    over Λ_j + V/4.
    """
    share = chosen.last_fit.share
    V = share * totals.total
    if chosen.slopes is None:
        constant = choose_constant_parameters(
            V, share**2 * totals.squares, chosen.intercept_size, 1.0
        )
        return chosen.constant * math.sqrt(2) / (constant.intercept_ridge + V / 4)
    choice = chosen.slopes
    V = totals.weigh_fit(share, choice.compute_regularity(slopes))[0]
    intercept, slope, in_ball = np.sqrt(choice.compute_noise(slopes))
    if choice.rounded:
        # Of u, whose coefficients become those of z by division by 2R; no row is longer than √p.
        slope = in_ball / (2 * math.sqrt(choice.rounded))
    moved = min(intercept / (choice.intercept_ridge + V / 4), slope / (choice.ridge + V / 4))
    return choice.threshold * chosen.scale * float(moved)


def shrink_intercept(fitted: Floats, centre: Floats, noise: float) -> Floats:
    """Returns the centre with its prediction moved to the fit's, less one deviation of the noise;
    free.
    """
    moved = float(fitted[0] - centre[0])
    kept = math.copysign(max(abs(moved) - 2 * noise, 0.0), moved)
    return np.concatenate([centre[:1] + kept, centre[1:]])


def shrink_slopes(
    fitted: Floats,
    centre: Floats,
    choice: StageParameters,
    scale: float,
    total: float,
    squares: float,
    in_ball: Integers | None = None,
) -> Floats:
    """Returns the fit with its slopes drawn back to the centre as far as they look like noise;
    free. Slopes of columns in a ball are those ``in_ball``.

    James and Stein's factor 1 − Σ_j C_jσ_j²/Σ_j C_j·slope_j², with σ² the variance that public
    numbers predict for noise alone and features of second moment C: where there is nothing to
    learn, next to nothing is claimed.
    """
    p = len(fitted) - 1
    C = np.full(p, FEATURE_MOMENTS[0])
    _, in_box, rounded = choice.compute_noise(p)
    N = np.full(p, in_box)
    if in_ball is not None:
        C[in_ball] = BALL_FILLED / (4 * len(in_ball))
        N[in_ball] = rounded
    kappa = math.erf(choice.threshold / math.sqrt(2))
    stiffness = kappa * total * C + choice.ridge
    variance = (N * choice.threshold**2 + 0.4 * kappa * squares * C) / stiffness**2
    slopes = fitted[1:] - centre[1:]
    size = float((C * slopes) @ slopes)
    if size > 0:
        factor = max(0.0, 1 - float(C @ variance) * scale**2 / size)
    else:
        factor = 0.0
    return np.concatenate([fitted[:1], centre[1:] + factor * slopes])


def estimate_error_parts(
    totals: BudgetTotals,
    facts: PublicFacts,
    chosen: StagePlan,
    concentration: float,
    robust: bool,
) -> tuple[SquaredErrorParts, float]:
    """Returns what a course is expected to miss of least squares, and the bias that very skewed
    labels may add.

    The proxy's terms for the last stage, and what its threshold does to labels that are skewed a
    little; a fit around a first one holds nothing back of the slopes, and its labels are what the
    first has left.
    """
    last = chosen.last_fit
    p = facts.slopes
    amounts = last.share * totals.total, last.share**2 * totals.squares
    size = chosen.intercept_size
    unit = chosen.scale
    kept_back = 0.0
    if chosen.slopes is None:
        kept_back = facts.explained_variance
        if totals.total < SCALE_BOUGHT_FROM:
            unit = chosen.constant
        choice = choose_constant_parameters(*amounts, size, chosen.constant / unit)
        terms = split_error(0, *amounts, size, 0.0, choice)
    elif chosen.has(TAIL):
        unit *= math.sqrt(1 - EXPLAINED)
        choice = choose_for_share(totals, p, last.share, KNOWN_SIZE, GENTLE, chosen.slopes.rounded)
        amounts = totals.weigh_fit(last.share, choice.compute_regularity(p))
        covered = choose_tail_purchase(totals, p, robust).units * unit
        choice = replace(choice, threshold=choose_wide_threshold(choice, p, unit, covered) / unit)
        terms = split_error(p, *amounts, 0.0, 0.0, choice)
    elif chosen.has("scale of residuals"):
        unit *= math.sqrt(1 - EXPLAINED)
        choice = choose_for_share(totals, p, last.share, KNOWN_SIZE)
        terms = split_error(p, *amounts, 0.0, 0.0, choice)
    else:
        choice = chosen.slopes
        amounts = totals.weigh_fit(last.share, choice.compute_regularity(p))
        terms = split_error(p, *amounts, size, EXPLAINED, choice)
    usual, most = estimate_skewed_bias(choice.threshold)
    if chosen.has(TAIL):
        outside = 1 - choose_tail_purchase(totals, p, robust).quantile
        usual = max(usual, MEAN_EXCESS * outside * choice.threshold)
    corrected = 0.0
    if chosen.has(CORRECTION):
        total = chosen.get_share(CORRECTION) * totals.total
        noise = estimate_correction_noise(total, choose_correction_threshold(total, unit))
        corrected = CORRECTION_KEPT * noise**2
        usual, most = (usual / 2, most / 2)
    # the proxy counts all of Σc², and least squares has 1/n of it too
    unequal = facts.squares / concentration
    parts = SquaredErrorParts(
        terms.noise, terms.sampling * unequal, terms.shrinkage + usual**2
    ).scale_by(unit**2)
    parts = replace(parts, noise=parts.noise + corrected, shrinkage=parts.shrinkage + kept_back)
    return parts, most * unit


def estimate_skewed_bias(threshold: float) -> tuple[float, float]:
    """Returns the bias for labels that are skewed a little, and for those as skewed as exponential
    ones, in units of the scale; nothing where the threshold is far beyond them.
    """
    known = sorted(SKEWED_LABEL_BIAS)
    columns = zip(*(SKEWED_LABEL_BIAS[k] for k in known), strict=True)
    usual, most = (float(np.interp(threshold, known, column)) for column in columns)
    return usual, most


def choose_wide_threshold(
    choice: StageParameters, slopes: int, scale: float, covered: float
) -> float:
    """Returns τ = k·s, or as much more as keeps rows whose residual is at most ``covered`` from
    being bent.
    """
    if covered == 0:
        return choice.threshold * scale
    H = choice.compute_softness(slopes)
    return max(choice.threshold * scale, covered / (1 - 2 * H))


def estimate_correction_noise(total: float, threshold: float) -> float:
    """Returns the standard deviation of a constant that is fitted with so much budget and almost
    no Λ: its noise is Laplace.
    """
    return 2 * math.sqrt(2) * threshold / total
