# SPDX-License-Identifier: Apache-2.0
"""Regression by objective perturbation in stages, the default of Ridge (docs/theory/objective.md).

A stage minimises Σ v_i ρ(y_i − φ_iᵀθ) + ½‖θ − θ₀‖²_Λ + bᵀ(θ − θ₀) around a released θ₀ with a share
of everybody's budget; with the soft Huber loss person l spends exactly W_l = Σ v_i over their rows,
however many. Every later choice depends on the data only through what earlier stages released, so
shares add up.

    symbol   name            S = Σ_l ε_l, labels scaled to [−1, 1] (so Y = 1), slopes recoded to
                             [−½, ½]
    v_l      weight        share·ε_l − ε_out, spread evenly over a person's rows
    s        scale           spread of the labels around wherever they are, bought first
    τ = k·s  threshold       no row pulls harder than this
    ε_out    slack           pays for what the solver left undone (solvers/newton.py)

The plan of the default regression, and its answer: the stages under one name.

The plan shows the stages, their shares of everybody's budget and whether slopes will be fitted, for
every scale that the first stage can release (there are eight), because later choices depend on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.arrays import Floats
from sottovoce.budgets import BudgetGroups, Budgets, has_usable_budget
from sottovoce.data.encoding import EmptyReader, Reader, Recoding
from sottovoce.data.engine import Dataset, Engine
from sottovoce.data.feature_ball import BallTerms, FeatureBall, SizeSums
from sottovoce.data.loss_kernels import (
    BentSums,
    ClassicHuber,
    HuberTerms,
    InterceptTerms,
    ResidualHistogram,
    ResidualSizes,
    SoftHuber,
)
from sottovoce.data.row_sample import ChosenRows
from sottovoce.errors import InvalidParameter
from sottovoce.estimators import ridge_gaussian
from sottovoce.estimators.curvature import (
    FITTED_LOSS,
    FROM_PULLS,
    BoughtShare,
    CurvaturePurchase,
    Equation,
    PurchaseWeights,
    add_box_noise,
)
from sottovoce.estimators.model_intervals import EARLIER, UNEQUAL_SPREAD, Ends
from sottovoce.estimators.ridge_ball import (
    CENTRE,
    RADIUS,
    BallPurchase,
    DescribeColumns,
    choose_ball_purchase,
    draw_stage_noise,
    find_declared_ball,
    list_number_columns,
    list_radii,
)
from sottovoce.estimators.ridge_errors import (
    SPREAD,
    PublicFacts,
    StageParameters,
    choose_constant_parameters,
    make_expected_error,
)
from sottovoce.estimators.ridge_gaussian import GaussianWeights
from sottovoce.estimators.ridge_recipe import (
    CORRECTION,
    GENTLE,
    INTERVALS,
    KNOWN_SIZE,
    LOCATION_THRESHOLD,
    RESIDUAL_SCALES,
    SCALE_BOUGHT_FROM,
    TAIL,
    UNKNOWN_SIZE,
    BudgetTotals,
    StagePlan,
    StagePurchase,
    cap_budgets,
    choose_correction_threshold,
    choose_for_share,
    choose_scale_purchase,
    choose_small_stages,
    choose_stages,
    choose_tail_purchase,
    choose_wide_threshold,
    estimate_correction_noise,
    estimate_error_parts,
    estimate_least_deviation,
    handicap_bounds,
    handicap_scales,
    list_halvings,
    list_residual_bounds,
    plan_stages_at,
    shrink_intercept,
    shrink_slopes,
)
from sottovoce.estimators.row_problem import RowProblem
from sottovoce.guarantee import Guarantee
from sottovoce.noise import continuous, source
from sottovoce.noise.source import MIN_EXPONENT, AnswerGrid, Grid
from sottovoce.plan import Plan, Theorem
from sottovoce.release import Release
from sottovoce.schema import Interval
from sottovoce.solvers import newton
from sottovoce.weights import Weights

if TYPE_CHECKING:
    from sottovoce.estimators.ridge_core import RidgeCore


#: The method of this file whose fits of slopes have Gaussian noise.
GAUSSIAN = "objective-gaussian"
#: The share of everybody's part in a stage that pays for the solver's last digits.
SLACK = 1e-3
#: Solver tolerance relative to the threshold, but for rounding; what is left is covered by noise
#: paid from the slack.
TOLERANCE = 1e-12
CELLS_BITS = 15
#: Of weights that a plan shows for a fit with Gaussian noise.
WEIGHT_BITS = 26
#: The part of rows that is taken to lie within the threshold, for intervals that are not bought.
LEAST_WITHIN = 0.5
#: Features are read as whole multiples of 2^−24, so they may be rounded on entry.
READS_ROUNDED = True
#: A grid that rounds nothing.
EVERY_DOUBLE = AnswerGrid(MIN_EXPONENT)
#: Where no slope is held fixed.
NO_SLOPES = np.zeros(0)


@dataclass(frozen=True, eq=False)
class SolvedStage:
    """The stage that the answer comes from: its numbers, and what it released."""

    share: float
    threshold: float
    choice: StageParameters
    centre: Floats
    fitted: Floats
    ball: FeatureBall | None = None  # whose coordinates both are in


@dataclass(frozen=True, eq=False)
class StagedFit:
    """The stages, run on rows; every method returns something that may be released.

    ``record`` is what the stages released, in their order. The model follows from it, and it is
    published beside the model: the sum of the shares pays for all of it.
    """

    rows: Dataset
    budgets: Budgets
    loss: str  # "soft" or "huber"
    grid: AnswerGrid = EVERY_DOUBLE  # of what is recorded
    record: list[Any] = field(default_factory=list)
    # rows for first guesses; private, and gone with the fit
    chosen: dict[int, ChosenRows | None] = field(default_factory=dict)
    # rows in a ball; as private, and gone as soon
    kept: dict[FeatureBall, Engine] = field(default_factory=dict)
    delta: float | None = None  # of all fits of slopes, if their noise is Gaussian

    @cached_property
    def totals(self) -> BudgetTotals:
        """Everybody's budgets as numbers."""
        return add_budgets(self.budgets.kinds, self.rows.features.width, self.delta)

    def scale(
        self, share: float, quantile: float, candidates: Floats, theta: Floats, reader: Reader
    ) -> float:
        """Buys the smallest candidate g such that a window of half-width g holds that share of
        everybody's budget.

        Labels at an end of their range, where many zeros are, count as ``quantile`` of themselves
        in every window: they do not tell how far the others spread.
        """
        weights = self._make_choice_weights(share)
        labels = reader.width == 0
        if labels:
            reach = 1.0
        else:
            reach = 4 * float(candidates[0])
        grid = Grid.cover(-reach, reach, CELLS_BITS)
        histogram = self._count_residuals(weights, grid, theta, reader)
        choice = WindowChoice.of(weights, quantile, candidates, grid, labels)
        return self._choose(choice, choice.score(histogram), share)

    def tail(self, purchase: StagePurchase, scale: float, theta: Floats) -> float:
        """Buys the smallest bound on the size of residuals y − φᵀθ that holds for that part of
        everybody's budget.
        """
        weights = self._make_choice_weights(purchase.share)
        bounds = list_residual_bounds(scale)[::-1]
        histogram = self._count_residuals(weights, ResidualSizes(bounds), theta, self.rows.features)
        choice = BoundChoice.of(weights, purchase.quantile, bounds, scale)
        return self._choose(choice, choice.score(histogram), purchase.share)

    def centre(self, share: float) -> Floats:
        """Buys the means of the columns of numbers, all at once."""
        released = self._add_mean_noise(share)
        self.record.append({"share": share, "means": released.tolist()})
        return np.clip(released, -0.5, 0.5)

    def _add_mean_noise(self, share: float) -> Floats:
        columns = list_number_columns(self.rows.features.recoding)
        bought = self._make_mean_weights()
        terms = HuberTerms(
            reader=self.rows.features,
            label=self.rows.label,
            owner=self.rows.owner,
            row_weights=bought.weights.row.astype(np.float64),
            loss=SoftHuber(1.0, 0.5),
            theta=np.zeros(self.rows.features.width + 1),
        )
        describe = DescribeColumns(columns)
        kernel = BentSums(terms, bought.weights.row, describe, self.rows.features.width)
        means = describe.to_fractions(self.rows.engine.fold(kernel)) / bought.weights.total
        # An entry is within ±½, so that a person moves a mean by their weight at most.
        return add_box_noise(means, bought.ratio / share)

    def _make_mean_weights(self) -> PurchaseWeights:
        kinds = self.budgets.kinds
        granted = units.to_epsilon(kinds.epsilon)
        row = np.where(has_usable_budget(kinds), granted, 0.0) / kinds.rows
        return PurchaseWeights.of(kinds, row, granted)

    def ball(self, purchase: BallPurchase, middle: Floats) -> FeatureBall:
        """Buys the radius of a ball around released means, within which so much of everybody's
        weight counts.
        """
        weights = self._make_choice_weights(purchase.radius)
        kernel = self._make_size_sums(weights, middle)
        choice = RadiusChoice.of(weights, purchase, kernel.radii)
        held = np.array(self.rows.engine.fold(kernel), dtype=np.int64)
        radius = self._choose(choice, choice.score(held), purchase.radius)
        return replace(kernel.ball, radius=radius)

    def _make_size_sums(self, weights: Weights, middle: Floats) -> SizeSums:
        columns = list_number_columns(self.rows.features.recoding)
        return SizeSums(
            self.rows.features,
            self.rows.owner,
            weights.row,
            FeatureBall(columns, middle, 1.0),
            list_radii(middle, find_declared_ball(self.rows.features.recoding)),
        )

    def _make_choice_weights(self, share: float) -> Weights:
        kinds = self.budgets.kinds
        part = replace(kinds, epsilon=np.floor(kinds.epsilon * share).astype(np.int64))
        return Weights.solve(part, A=0.0)

    def _count_residuals(
        self, weights: Weights, grid: Any, theta: Floats, reader: Reader
    ) -> NDArray[np.int64]:
        kernel = ResidualHistogram(
            reader, self.rows.label, self.rows.owner, weights.row, grid, theta
        )
        return np.array(self.rows.engine.fold(kernel), dtype=np.int64)

    def _choose(self, choice: FullnessChoice, scores: NDArray[np.int64], share: float) -> float:
        """Chooses a candidate by its score, and records it."""
        found = float(choice.candidates[source.permute_and_flip(scores, choice.scale)])
        self.record.append({"share": share, "chosen": found})
        return found

    def constant(
        self,
        share: float,
        threshold: float,
        size: float,
        centre: Floats,
        regularity: float = 0.5,
    ) -> Floats:
        """Fits the intercept alone; the answer is clipped to the label's range, which is free."""
        choice = self.choose_constant(share, size, regularity)
        fitted = self._minimise_perturbed(share, threshold, choice, EmptyReader(), centre[:1])
        return np.concatenate([np.clip(fitted, -2, 2), centre[1:]])

    def correct(self, share: float, threshold: float, centre: Floats) -> Floats:
        """Fits the intercept again, around slopes that are released already and stay."""
        choice = self.choose_constant(share, KNOWN_SIZE, GENTLE)
        fitted = self._minimise_perturbed(
            share, threshold, choice, self.rows.features, centre[:1], centre[1:]
        )
        return np.concatenate([fitted, centre[1:]])

    def choose_constant(self, share: float, size: float, regularity: float) -> StageParameters:
        """Returns the numbers of a stage that fits the intercept alone."""
        totals = self.totals
        return choose_constant_parameters(
            share * totals.total, share**2 * totals.squares, size, 1.0, regularity
        )

    def slopes(
        self,
        share: float,
        threshold: float,
        choice: StageParameters,
        centre: Floats,
        ball: FeatureBall | None = None,
    ) -> Floats:
        """Fits intercept and slopes; those of u, where rows are in a ball."""
        return self._minimise_perturbed(
            share, threshold, choice, self.rows.features, centre, ball=ball
        )

    def make_equation(self, solved: SolvedStage, answer: Floats) -> Equation:
        """Returns what a fit solved, for intervals; the answer may have another intercept."""
        p = len(solved.fitted) - 1
        kinds = self.budgets.kinds
        choice = solved.choice
        H = self._find_regularity(solved)
        row_weights, _ = self._compute_row_weights(solved.share, H, p)
        intercept, slope, in_ball = choice.compute_noise(p)
        noise = np.concatenate([[intercept], np.full(p, slope)])
        longest = None
        if solved.ball is not None:
            noise[1 + solved.ball.columns] = in_ball
            longest = H
            answer = solved.ball.from_features(answer)
        person = row_weights * kinds.rows
        return Equation(
            theta=solved.fitted,
            centre=solved.centre,
            ridge=np.concatenate([[choice.intercept_ridge], np.full(p, choice.ridge)]),
            noise=solved.threshold**2 * noise,
            total=float(person @ kinds.people),
            squares=float(person**2 @ kinds.people),
            most_pull=solved.threshold,
            unequal=UNEQUAL_SPREAD,
            moved=float(answer[0] - solved.fitted[0]),
            of=FITTED_LOSS,
            bought={},
            ratio=UNEQUAL_SPREAD * solved.threshold**2 / LEAST_WITHIN,
            told=FROM_PULLS,
            longest=longest,
        )

    def buy_equation(self, share: float, solved: SolvedStage, answer: Floats) -> Equation:
        """Buys what intervals of a fit need, at what it released; the answer may have another
        intercept.
        """
        kinds = self.budgets.kinds
        H = self._find_regularity(solved)
        row_weights, _ = self._compute_row_weights(solved.share, H, len(solved.fitted) - 1)
        terms = self._make_kernel(
            self.rows.features,
            row_weights,
            SoftHuber(solved.threshold, find_softness(solved.choice, len(solved.fitted) - 1)),
            solved.fitted,
            ball=solved.ball,
        )
        summed = RowProblem(self.rows.engine, terms).keep_rows(self.kept)
        purchase = CurvaturePurchase(
            replace(self.rows, engine=summed.engine),
            summed.kernel,
            self.rows.features.recoding,
            PurchaseWeights.of(kinds, row_weights, units.to_epsilon(kinds.epsilon)),
            share,
            solved.threshold,
        )
        return replace(self.make_equation(solved, answer), bought=purchase.buy())

    def _find_regularity(self, solved: SolvedStage) -> float:
        return solved.choice.compute_regularity(len(solved.fitted) - 1) * (1 + 1e-12)

    def _minimise_perturbed(
        self,
        share: float,
        tau: float,
        choice: StageParameters,
        reader: Reader,
        centre: Floats,
        held: Floats = NO_SLOPES,
        ball: FeatureBall | None = None,
    ) -> Floats:
        """Fits as many coefficients as the centre has, around slopes ``held`` of the others."""
        p = len(centre) - 1
        H = choice.compute_regularity(p) * (1 + 1e-12)
        ridge = np.concatenate([[choice.intercept_ridge], np.full(p, choice.ridge)])
        row_weights, slack = self._compute_row_weights(share, H, p)
        participating = float(
            (row_weights * self.budgets.kinds.rows * self.budgets.kinds.people).sum()
        )  # Σv over all rows
        if self.loss == "soft":
            loss: SoftHuber | ClassicHuber = SoftHuber(tau, find_softness(choice, p))
        else:
            loss = ClassicHuber(tau)
        kernel = self._make_kernel(
            reader, row_weights, loss, centre, alone=len(held) > 0, ball=ball
        )
        given = self._make_row_problem(kernel, held)
        summed = given.keep_rows(self.kept)
        problem = newton.Problem(
            terms=summed.terms,
            pulls=summed.pulls,
            rough=summed.rough,
            ridge=ridge,
            centre=centre,
            tilt=(Fraction(tau) * draw_stage_noise(p, choice, ball)).astype(
                np.float64
            ),  # 2·h·τ = τ, as h = ½
            smoothness=participating * H,
            pull=participating * tau * math.sqrt(H),
            error=newton.bound_rounding(self.budgets.n_rows, reader.width + 1, tau)
            * participating
            * math.sqrt(H),
        )
        tolerance = newton.find_tolerance(problem.error, least=TOLERANCE * tau)
        guess = given.guess(problem, self.budgets.n_rows, self.chosen)
        theta = newton.minimise(problem, tolerance, guess)
        if choice.gaussian:
            rounded = ridge_gaussian.bound_tilt_rounding(tau, p, choice, ridge)
        else:
            rounded = bound_tilt_rounding(tau, choice.norm, ridge)
        distance = tolerance + rounded
        found = self.grid.nearest(continuous.add_output_noise(theta, slack / (2 * distance), ridge))
        geometry: dict[str, Any] = {}
        if ball is not None:
            geometry = {"ball": {"centre": ball.centre.tolist(), "radius": ball.radius}}
        self.record.append(
            {
                "share": share,
                "theta": found.tolist(),
                "centre": centre.tolist(),
                "held": held.tolist(),
                "threshold": tau,
                "penalty": ridge.tolist(),
                "norm": list(choice.norm),
                "regularity": find_softness(choice, p),
                **geometry,
            }
        )
        return found

    def _make_row_problem(self, kernel: HuberTerms, held: Floats) -> RowProblem:
        return RowProblem(self.rows.engine, kernel, held)

    def _make_kernel(
        self,
        reader: Reader,
        row_weights: Floats,
        loss: Any,
        theta: Any,
        *,
        alone: bool = False,
        ball: FeatureBall | None = None,
    ) -> HuberTerms:
        kernel = HuberTerms(
            reader=reader,
            label=self.rows.label,
            owner=self.rows.owner,
            row_weights=row_weights,
            loss=loss,
            theta=theta,
        )
        if alone:
            return InterceptTerms(**kernel.__dict__)
        if ball is None:
            return kernel
        return BallTerms(**kernel.__dict__, ball=ball)

    def _compute_row_weights(self, share: float, H: float, slopes: int) -> tuple[Floats, float]:
        """Returns the weight of a row, by kind, and ε_out; together they cost each person
        share·ε_l at most.
        """
        kinds = self.budgets.kinds
        participating = has_usable_budget(kinds)
        epsilon = share * units.to_epsilon(kinds.epsilon) * (1 - 1e-12)
        slack = SLACK * float(epsilon[participating].min())
        person = np.where(participating, epsilon - slack, 0.0)
        if slopes and self.totals.weights is not None:
            person = np.where(participating, self.totals.weights.solve(person, H), 0.0)
        elif self.loss == "huber":
            person = solve_huber_budget(person, H, np.minimum(kinds.rows, slopes + 1))
        return person / kinds.rows, slack


def find_softness(choice: StageParameters, slopes: int) -> float:
    """Returns the H of the loss, rounded up."""
    return choice.compute_softness(slopes) * (1 + 1e-12)


def add_budgets(kinds: BudgetGroups, slopes: int, delta: float | None) -> BudgetTotals:
    """Returns budgets as numbers, for fits whose noise is Gaussian if there is a δ."""
    if delta is None or not slopes:
        return BudgetTotals.of(kinds)
    return BudgetTotals.of(kinds, GaussianWeights(kinds, slopes, delta, SLACK))


def bound_tilt_rounding(tau: float, norm: tuple[float, float], ridge: Floats) -> float:
    """Returns what rounding b to doubles moves the minimiser by at most, in the norm of Λ: ‖b̃ −
    b‖_{Λ⁻¹}.

    N(b) is Gamma(p+1), above 2(p+1) + 1000 with probability below e^−500; |b₀| ≤ τN/α₁ and |b_j| ≤
    τN/(1−α₂).
    """
    largest = (
        tau
        * continuous.bound_gamma(len(ridge))
        / np.array([norm[0], *[1 - norm[1]] * (len(ridge) - 1)])
    )
    return 2.0**-53 * float(np.sqrt(np.sum(largest**2 / ridge)))


def solve_huber_budget(epsilon: Floats, H: float, rank: Any) -> Floats:
    """Returns the largest W with W + r·log(1 + W·H/r) ≤ ε: what Huber's loss leaves of a budget."""
    low = np.zeros_like(epsilon)
    high = epsilon.copy()
    for _ in range(200):
        middle = (low + high) / 2
        fits = middle + rank * np.log1p(middle * H / rank) <= epsilon
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle)
    return low


@dataclass(frozen=True, eq=False)
class FullnessChoice:
    """The choice of the candidate whose weight is nearest to a part of everybody's.

    A person of weight P moves every score by P at most, which costs 2P/scale.
    """

    quantile: float
    candidates: Floats
    total: int  # of all weights
    scale: int
    handicap: NDArray[np.int64]

    def compare(self, held: Any, inside: Any) -> NDArray[np.int64]:
        """Returns the scores of candidates that hold so much, of what is inside."""
        # Rounded down, so that a whole weight of P that moves a sum moves the score by P at most.
        part = Fraction(self.quantile)
        values, which = np.unique(inside, return_inverse=True)
        targets = np.array([math.floor(part * int(one)) for one in values], dtype=np.int64)
        target = targets[which].reshape((*np.shape(inside), 1))
        gaps = np.abs(np.asarray(held, dtype=np.int64) - target)
        return np.asarray(gaps + self.handicap, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class WindowChoice(FullnessChoice):
    """Candidates are half-widths of a window, wherever it lies."""

    cells: tuple[int, ...]  # of the window of each candidate
    labels: bool  # those at an end of their range are in no window, and not inside

    @classmethod
    def of(
        cls, weights: Weights, quantile: float, candidates: Floats, grid: Grid, labels: bool
    ) -> WindowChoice:
        """The choice among these half-widths, with cells of this grid."""
        scale = 2 * weights.loudest
        handicap = np.zeros(len(candidates))
        if labels:
            handicap = handicap_scales(candidates)
        cells = tuple(max(round(2 * g / float(grid.step)), 1) for g in candidates)
        held_back = np.asarray(np.rint(handicap * scale), dtype=np.int64)
        return cls(quantile, candidates, weights.total, scale, held_back, cells, labels)

    def score(self, histogram: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the score of each candidate from the weight in each cell."""
        inside = self.total
        inner = histogram
        if self.labels:
            inside -= int(histogram[0] + histogram[-1])
            inner = histogram.copy()
            inner[[0, -1]] = 0
        participating = np.concatenate([[0], np.cumsum(inner)])
        held = [_find_fullest_window(participating, cells) for cells in self.cells]
        return self.compare(held, inside)


@dataclass(frozen=True, eq=False)
class BoundChoice(FullnessChoice):
    """Candidates are bounds on the size of residuals."""

    @classmethod
    def of(cls, weights: Weights, quantile: float, bounds: Floats, scale: float) -> BoundChoice:
        """The choice among these bounds, for labels of this scale."""
        width = 2 * weights.loudest
        held_back = np.asarray(np.rint(handicap_bounds(bounds, scale) * width), dtype=np.int64)
        return cls(quantile, bounds, weights.total, width, held_back)

    def score(self, histogram: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the score of each candidate from the weight in each cell."""
        return self.compare(np.cumsum(histogram)[:-1], self.total)


@dataclass(frozen=True, eq=False)
class RadiusChoice(FullnessChoice):
    """Candidates are radii of a ball for rows; rows outside of one count in part."""

    @classmethod
    def of(cls, weights: Weights, purchase: BallPurchase, radii: Floats) -> RadiusChoice:
        """The choice among these radii."""
        scale = 2 * weights.loudest
        # Beyond all rows every radius holds as much, and noise grows with its square.
        handicap = purchase.handicap * np.arange(len(radii))
        held_back = np.asarray(np.rint(handicap * scale), dtype=np.int64)
        return cls(purchase.quantile, radii, weights.total, scale, held_back)

    def score(self, held: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the score of each candidate from the weight that counts in it."""
        return self.compare(held, self.total)


def _find_fullest_window(participating: NDArray[np.int64], cells: int) -> int:
    """Returns the largest weight that a window of so many cells holds, from cumulative weights."""
    cells = min(cells, len(participating) - 1)
    return int((participating[cells:] - participating[:-cells]).max())


def fit_in_stages(
    fit: StagedFit,
    scale: float | None,
    robust: bool = False,
    interval_share: float | None = 0.0,
    ball_allowed: bool = True,
) -> tuple[Floats, Equation | None]:
    """Runs the recipe and returns (intercept, slopes) for labels in [−1, 1], and what intervals
    follow from; ``scale`` is a public guess if given. Before there were balls none was allowed.
    """
    totals = fit.totals
    p = fit.rows.features.width
    declared = count_declared_columns(fit.rows.features.recoding, robust)
    centre = np.zeros(p + 1)
    if totals.total < SCALE_BOUGHT_FROM:
        few = choose_small_stages(totals, p, TYPICAL_SCALE, declared)
        return run_stages(fit, few, centre, robust)
    left = 1.0
    if scale is None:
        bought = choose_scale_purchase(totals, p, robust)
        found = fit.scale(
            bought.share, bought.quantile, bought.label_scales, np.zeros(1), EmptyReader()
        )
        scale = found / bought.units
        left -= bought.share
    numbers = 0
    if ball_allowed:
        numbers = len(list_number_columns(fit.rows.features.recoding))
    chosen = choose_stages(totals, p, scale, left, robust, interval_share, numbers, declared)
    return run_stages(fit, chosen, centre, robust)


def count_declared_columns(recoding: Recoding, robust: bool) -> int:
    """Returns how many columns are in a ball that is declared, which serves the loss of a mean."""
    declared = find_declared_ball(recoding)
    if robust or declared is None:
        return 0
    return len(declared.columns)


def run_stages(
    fit: StagedFit, chosen: StagePlan, centre: Floats, robust: bool
) -> tuple[Floats, Equation | None]:
    """Runs the rest of the recipe."""
    totals = fit.totals
    p = fit.rows.features.width
    scale = chosen.scale
    size = chosen.intercept_size
    regularity = 0.5
    covered = 0.0
    solved = None
    equation = None
    ball = None
    rounded = 0
    if chosen.in_declared_ball:
        ball = find_declared_ball(fit.rows.features.recoding)
        assert ball is not None
        rounded = len(ball.columns)
    means = np.zeros(0)
    for part in chosen.parts:
        total = part.share * totals.total
        if part.purpose == CENTRE:
            means = fit.centre(part.share)
            rounded = len(means)
        elif part.purpose == RADIUS:
            purchase = choose_ball_purchase(totals.total, rounded)
            assert purchase is not None
            ball = fit.ball(purchase, means)
        elif part.purpose == "location":
            centre = fit.constant(
                part.share, LOCATION_THRESHOLD, UNKNOWN_SIZE / LOCATION_THRESHOLD**2, centre
            )
        elif part.purpose == "constant":
            if not robust and totals.total >= SCALE_BOUGHT_FROM:
                regularity = GENTLE
            before = centre
            centre = fit.constant(part.share, chosen.constant, size, centre, regularity)
            choice = fit.choose_constant(part.share, size, regularity)
            solved = SolvedStage(part.share, chosen.constant, choice, before[:1], centre[:1])
        elif part.purpose == "scale of residuals":
            bought = choose_tail_purchase(totals, p, robust)
            candidates = list_halvings(scale, RESIDUAL_SCALES)
            found = fit.scale(part.share, bought.quantile, candidates, centre, fit.rows.features)
            scale = found / bought.units
            size = KNOWN_SIZE
        elif part.purpose == TAIL:
            bought = choose_tail_purchase(totals, p, robust)
            covered = fit.tail(bought, scale, centre)
            scale = covered / bought.units
            size = KNOWN_SIZE
            regularity = GENTLE
        elif part.purpose == CORRECTION:
            threshold = choose_correction_threshold(total, scale)
            centre = shrink_intercept(
                fit.correct(part.share, threshold, centre),
                centre,
                estimate_correction_noise(total, threshold),
            )
        elif part.purpose == INTERVALS:
            if solved is not None:
                equation = fit.buy_equation(part.share, solved, centre)
        else:
            choice = choose_for_share(totals, p, part.share, size, regularity, rounded)
            tau = choose_wide_threshold(choice, p, scale, covered)
            in_ball = None
            if ball is not None:
                centre = ball.from_features(centre)
                in_ball = ball.columns
            fitted = fit.slopes(part.share, tau, choice, centre, ball)
            solved = SolvedStage(part.share, tau, choice, centre, fitted, ball)
            # Around a first fit on the same rows only noise may draw back, so that it ends.
            total, squares = totals.weigh_fit(part.share, choice.compute_regularity(p))
            if covered:
                squares = 0.0
            choice = replace(choice, threshold=tau / scale)
            centre = shrink_slopes(fitted, centre, choice, scale, total, squares, in_ball)
            if ball is not None:
                centre = ball.to_features(centre)
    if equation is None and solved is not None:
        equation = fit.make_equation(solved, centre)
    return centre, equation


THEOREM = Theorem(
    "Objective perturbation in stages: each person l loses at most the sum of their shares, ε_l "
    "(pure ε, replace)",
    "docs/theory/objective.md",
)
GAUSSIAN_THEOREM = Theorem(
    "Objective perturbation in stages, with Gaussian noise on slopes: each person l loses at most "
    "ε_l at δ (replace)",
    "docs/theory/gaussian-objective.md",
)
#: The scale that the plan speaks about where nothing better is known: labels that fill about half
#: their range.
TYPICAL_SCALE = 0.25
CONSTANT_ALONE = (
    "the constant that the same fit, shrunk as strongly, gives on the whole population; slopes "
    "were dropped, and nothing is known of them"
)
#: No label is known better than to this part of half its range.
SMALLEST_SCALE = 1e-12


@dataclass(frozen=True)
class NoGrid:
    """Of noisy statistics: their whole numbers say on which grid they live."""

    def to_dict(self) -> dict[str, Any]:
        """Nothing to tell."""
        return {}


def validate(ridge: RidgeCore, label: Interval, width: int) -> None:
    """Refuses a scale that labels within these bounds cannot have, and Gaussian noise without δ."""
    if ridge.method == GAUSSIAN:
        validate_gaussian(ridge)
    half = (label[1] - label[0]) / 2
    parse_label_scale(ridge.label_scale, half)
    parse_association(ridge.association, half)


def validate_gaussian(ridge: RidgeCore) -> None:
    """Refuses what fits with Gaussian noise cannot promise or estimate."""
    if ridge.delta is None or ridge.rho:
        raise InvalidParameter(
            f"The method {GAUSSIAN!r} has Gaussian noise, and budgets are not said to be ε at a δ.",
            "It needs delta=, and no rho.",
            "Pass delta=1e-6, say.",
            parameter="delta",
        )
    if is_robust(ridge) or not ridge.fit_intercept:
        raise InvalidParameter(
            f"The method {GAUSSIAN!r} estimates a mean, with an intercept.",
            "It has neither robust losses nor models through the origin.",
            "Use method='objective' for these.",
            parameter="method",
        )


def plan_for(ridge: RidgeCore, budgets: Budgets, recoding: Recoding, label: Interval) -> Plan:
    """The plan of the default method."""
    validate(ridge, label, recoding.width)
    half = (label[1] - label[0]) / 2
    guess = parse_label_scale(ridge.label_scale, half)
    robust = is_robust(ridge)
    delta = get_delta(ridge)
    association = parse_association(ridge.association, half) / (guess or SPREAD)
    spent = cap_budgets(budgets.kinds, recoding.width, association)
    kinds = replace(budgets.kinds, epsilon=spent)
    totals = add_budgets(kinds, recoding.width, delta)
    if guess is None:
        scales = _list_scales(totals, recoding.width, robust)
    else:
        scales = [guess]
    share = get_interval_share(ridge)
    numbers = len(list_number_columns(recoding))
    declared = count_declared_columns(recoding, robust)
    known = guess is not None
    outlook = [
        plan_stages_at(totals, recoding.width, s, known, robust, share, numbers, declared)
        for s in scales
    ]
    typical = min(outlook, key=lambda c: abs(math.log(c.scale / (guess or TYPICAL_SCALE))))
    weights = choose_weights(kinds, totals, typical, recoding.width)
    facts = PublicFacts.of(recoding, budgets, weights)
    parts = {
        c.scale: estimate_error_parts(
            totals, replace(facts, spread=c.scale), c, weights.concentration, robust
        )
        for c in outlook
    }
    own, skew = parts[typical.scale]
    promise: dict[str, Any] = {}
    guarantee = Guarantee.of(budgets, spent, arithmetic="floating")
    distribution = "K-norm noise in the objective"
    theorem = THEOREM
    if delta is not None:
        promise = {"delta": delta}
        guarantee = replace(guarantee, currency="epsilon, delta", delta=delta)
        distribution = "Gaussian noise in the objective"
        theorem = GAUSSIAN_THEOREM
    return Plan(
        question="ridge",
        parameters={
            "method": ridge.method,
            **promise,
            "loss": ridge.loss,
            "label": list(label),
            "label_scale": ridge.label_scale,
            "association": ridge.association,
            "interval_share": ridge.interval_share,
            "features": recoding.to_dict(),
            "estimates": describe_estimand(ridge),
            "stages": [
                _describe_stages(c, half, parts[c.scale][0].total / c.scale**2) for c in outlook
            ],
            "advice": advise_on_slopes(typical),
        },
        budgets=budgets,
        weights=weights,
        guarantee=guarantee,
        noise={
            "distribution": distribution,
            "shares": [p.share for p in typical.parts],
        },
        grid=AnswerGrid.below(
            min(estimate_least_deviation(totals, recoding.width, c) for c in outlook)
        ),
        theorem=theorem,
        error=make_expected_error(
            own,
            replace(facts, spread=typical.scale),
            budgets,
            weights,
            half,
            more=describe_estimand(ridge),
            besides=skew,
        ),
        bought=describe_interval_stage(typical),
    )


def choose_weights(
    kinds: BudgetGroups, totals: BudgetTotals, typical: StagePlan, slopes: int
) -> Weights:
    """Returns what people weigh in the last fit: in proportion to ε, or to what it is worth where
    noise is Gaussian.
    """
    if totals.weights is None or typical.slopes is None:
        return Weights.solve(kinds, A=0.0)
    granted = typical.last_fit.share * (1 - SLACK) * units.to_epsilon(kinds.epsilon)
    person = totals.weights.solve(granted, typical.slopes.compute_regularity(slopes))
    per_row = np.where(has_usable_budget(kinds), person, 0.0) / kinds.rows
    row = np.floor(per_row / float(per_row.max()) * (2**WEIGHT_BITS - 1)).astype(np.int64)
    return Weights.from_integers(kinds, row)


def fit_noisy_model(ridge: RidgeCore, plan: Plan, rows: Dataset) -> dict[str, Any]:
    """Runs the stages and returns theta, rounded to the public grid."""
    low, high = plan.parameters["label"]
    kinds = replace(plan.budgets.kinds, epsilon=plan.guarantee.spent)
    if ridge.loss == "huber":
        loss = "huber"
    else:
        loss = "soft"
    fit = StagedFit(
        rows,
        replace(plan.budgets, kinds=kinds),
        loss,
        plan.grid,
        delta=plan.guarantee.delta,
    )
    scale = parse_label_scale(ridge.label_scale, (high - low) / 2)
    theta, equation = fit_in_stages(fit, scale, is_robust(ridge), get_interval_share(ridge))
    content: dict[str, Any] = {"theta": plan.grid.nearest(theta), "stages": fit.record}
    if equation is not None:
        (moved,) = plan.grid.nearest([equation.moved])
        published = replace(
            equation,
            theta=plan.grid.nearest(equation.theta),
            centre=plan.grid.nearest(equation.centre),
            moved=float(moved),
        )
        content["bought"] = published.to_dict()
    return content


def get_delta(ridge: RidgeCore) -> float | None:
    """The δ of fits with Gaussian noise; None where noise is that of pure ε."""
    if ridge.method != GAUSSIAN:
        return None
    return float(ridge.delta)  # type: ignore[arg-type]


def get_interval_share(ridge: RidgeCore) -> float | None:
    """The share that is to buy intervals; what these need is not known for Huber's loss."""
    if ridge.loss == "huber":
        return 0.0
    return ridge.interval_share


def find_ends(release: Release, functions: Floats, level: float) -> Ends | str:
    """Returns the ends of the intervals of these functions of θ; or why there are none."""
    if release.bought is None:
        return EARLIER
    equation = Equation.from_dict(release.bought)
    ball = find_ball(release)
    if ball is not None:
        functions = functions @ ball.make_map(functions.shape[1] - 1)
    if len(equation.theta) < functions.shape[1]:
        return find_constant_ends(equation, functions, level)
    ends = equation.find_ends(functions, level)
    if ends.of == FITTED_LOSS:
        low, high = release.parameters["label"]
        threshold = units.format_number(equation.most_pull * (high - low) / 2)
        return replace(ends, of=f"{FITTED_LOSS} ({threshold})")
    return ends


def find_ball(release: Release) -> FeatureBall | None:
    """Returns the ball that rows of the last fit were in; None where they were in the box."""
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    recoding = Recoding.from_dict(release.parameters["features"])
    found = [stage for stage in value.get("stages", ()) if "ball" in stage]
    if not found:
        return None
    return read_ball(found[-1], recoding)


def read_ball(stage: dict[str, Any], recoding: Recoding) -> FeatureBall | None:
    """Returns the ball that rows of one stage were in; None where they were in the box."""
    if "ball" not in stage:
        return None
    ball = stage["ball"]
    return FeatureBall(list_number_columns(recoding), np.array(ball["centre"]), ball["radius"])


def find_constant_ends(equation: Equation, functions: Floats, level: float) -> Ends:
    """Returns the ends where slopes were dropped: of the constant, and none for slopes."""
    ends = equation.find_ends(functions[:, :1], level)
    unknown = np.where(functions[:, 0] == 0, np.inf, 0.0)
    return Ends(
        ends.low - unknown,
        ends.high + unknown,
        ends.noise + unknown,
        ends.sampling + unknown,
        ends.sampling_from,
        CONSTANT_ALONE,
    )


def describe_interval_stage(chosen: StagePlan) -> BoughtShare | None:
    """What the plan says about the stage that buys intervals; None where there is none."""
    if not chosen.has(INTERVALS):
        return None
    return BoughtShare(chosen.parts[-1].share, "how columns spread and residuals vary")


def is_robust(ridge: RidgeCore) -> bool:
    """Whether thresholds stay at a few deviations, however large budgets are."""
    return ridge.loss in ("robust", "huber")


def describe_estimand(ridge: RidgeCore) -> str:
    """What is estimated, in words."""
    if is_robust(ridge):
        return (
            "It estimates a centre of the labels between their mean and their median, on which "
            "labels far away have little pull, however large budgets are."
        )
    return (
        "It estimates the mean of the labels, as least squares does; of very skewed labels it "
        "misses less of the mean the larger budgets are."
    )


def parse_label_scale(label_scale: Any, half: float) -> float | None:
    """Returns the public guess of the labels' spread in units of half their range, or None."""
    if label_scale is None:
        return None
    if (
        not isinstance(label_scale, int | float)
        or not SMALLEST_SCALE * half <= label_scale <= 2 * half
    ):
        raise InvalidParameter(
            "label_scale is not a possible standard deviation.",
            f"It is at most the label's range, and at least {SMALLEST_SCALE:g} of half of it.",
            "Pass such a number.",
            parameter="label_scale",
        )
    return label_scale / half


def parse_association(association: Any, half: float) -> float:
    """Returns how far the labels of people with one budget may lie from everybody's, in units of
    half the label's range; 0 if nothing is said.
    """
    if association is None:
        return 0.0
    if not isinstance(association, int | float) or not 0 <= association <= 2 * half:
        raise InvalidParameter(
            "The association is not a possible distance of two means.",
            f"It is between 0 and the label's range, {2 * half:g}.",
            "Pass such a number, or none.",
            parameter="association",
        )
    return association / half


def _list_scales(totals: BudgetTotals, slopes: int, robust: bool) -> list[float]:
    if totals.total < SCALE_BOUGHT_FROM:
        return [TYPICAL_SCALE]
    bought = choose_scale_purchase(totals, slopes, robust)
    return [float(g) / bought.units for g in bought.label_scales]


def _describe_stages(chosen: StagePlan, half: float, expected_square: float) -> dict[str, Any]:
    geometry: dict[str, Any] = {}
    if chosen.in_declared_ball:
        geometry = {"in_declared_ball": True}
    return {
        "if_scale": chosen.scale * half,
        "parts": [{"purpose": part.purpose, "share": part.share} for part in chosen.parts],
        "slopes": chosen.slopes is not None,
        "expected": expected_square,  # in units of the squared scale
        **geometry,
    }


def advise_on_slopes(chosen: StagePlan) -> str:
    """One sentence on whether slopes will be fitted, and why."""
    if chosen.slopes is not None:
        return "Slopes are fitted: their noise is expected to stay below what they explain."
    if len(chosen.parts) == 1:
        return (
            "Too little budget for slopes: the answer will be a constant, a private mean of the "
            "labels."
        )
    return (
        "Slopes cannot pay for their noise here: the answer will be a constant. More people or a "
        "larger ε would help."
    )
