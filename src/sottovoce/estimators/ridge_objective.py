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
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.arrays import Floats
from sottovoce.budgets import Budgets, has_usable_budget
from sottovoce.data.encoding import EmptyReader, Reader, Recoding
from sottovoce.data.engine import Dataset
from sottovoce.data.loss_kernels import (
    ClassicHuber,
    HuberTerms,
    ResidualHistogram,
    ResidualSizes,
    SoftHuber,
)
from sottovoce.errors import InvalidParameter
from sottovoce.estimators.curvature import (
    FITTED_LOSS,
    BoughtShare,
    CurvaturePurchase,
    Equation,
    PurchaseWeights,
    explain_too_little,
)
from sottovoce.estimators.model_intervals import EARLIER, UNEQUAL_SPREAD, Ends
from sottovoce.estimators.ridge_errors import (
    SPREAD,
    PublicFacts,
    StageParameters,
    choose_constant_parameters,
    compute_noise_moments,
    compute_regularity,
    make_expected_error,
)
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
    advise_on_slopes,
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
from sottovoce.guarantee import Guarantee
from sottovoce.noise import continuous, source
from sottovoce.noise.source import AnswerGrid, Grid
from sottovoce.plan import Plan, Theorem
from sottovoce.release import Release
from sottovoce.schema import Interval
from sottovoce.solvers import newton
from sottovoce.weights import Weights

if TYPE_CHECKING:
    from sottovoce.estimators.ridge import Ridge


#: The share of everybody's part in a stage that pays for the solver's last digits.
SLACK = 1e-3
#: Solver tolerance relative to the threshold, but for rounding; what is left is covered by noise
#: paid from the slack.
TOLERANCE = 1e-12
CELLS_BITS = 15
#: Where no slope is held fixed.
NO_SLOPES = np.zeros(0)


@dataclass(frozen=True, eq=False)
class SolvedStage:
    """A stage that fitted slopes: its numbers, and what it released."""

    share: float
    threshold: float
    choice: StageParameters
    centre: Floats
    fitted: Floats


@dataclass(frozen=True, eq=False)
class StagedFit:
    """The stages, run on rows; every method returns something that may be released."""

    rows: Dataset
    budgets: Budgets
    loss: str  # "soft" or "huber"

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
        inside = weights.total
        handicap = np.zeros(len(candidates))
        if labels:
            inside -= int(histogram[0] + histogram[-1])
            histogram[[0, -1]] = 0
            handicap = handicap_scales(candidates)
        participating = np.concatenate([[0], np.cumsum(histogram)])
        fullest = [
            _find_fullest_window(participating, max(round(2 * g / float(grid.step)), 1))
            for g in candidates
        ]
        return self._choose_fullness(weights, fullest, quantile, inside, candidates, handicap)

    def tail(self, purchase: StagePurchase, scale: float, theta: Floats) -> float:
        """Buys the smallest bound on the size of residuals y − φᵀθ that holds for that part of
        everybody's budget.
        """
        weights = self._make_choice_weights(purchase.share)
        bounds = list_residual_bounds(scale)[::-1]
        histogram = self._count_residuals(weights, ResidualSizes(bounds), theta, self.rows.features)
        within = [int(count) for count in np.cumsum(histogram)[:-1]]
        return self._choose_fullness(
            weights,
            within,
            purchase.quantile,
            weights.total,
            bounds,
            handicap_bounds(bounds, scale),
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

    def _choose_fullness(
        self,
        weights: Weights,
        held: list[int],
        quantile: float,
        inside: int,
        candidates: Floats,
        handicap: Floats,
    ) -> float:
        """Chooses the candidate whose weight is nearest to that part of what is inside."""
        # Rounded down, so that a whole weight of P that moves a sum moves the score by P at most.
        target = math.floor(Fraction(quantile) * inside)
        scores = np.array([abs(f - target) for f in held], dtype=np.int64)
        scale = 2 * weights.loudest
        scores += np.asarray(np.rint(handicap * scale), dtype=np.int64)
        return float(candidates[source.permute_and_flip(scores, scale)])

    def constant(
        self,
        share: float,
        threshold: float,
        size: float,
        centre: Floats,
        regularity: float = 0.5,
    ) -> Floats:
        """Fits the intercept alone; the answer is clipped to the label's range, which is free."""
        choice = self._choose_constant(share, size, regularity)
        fitted = self._minimise_perturbed(share, threshold, choice, EmptyReader(), centre[:1])
        return np.concatenate([np.clip(fitted, -2, 2), centre[1:]])

    def correct(self, share: float, threshold: float, centre: Floats) -> Floats:
        """Fits the intercept again, around slopes that are released already and stay."""
        choice = self._choose_constant(share, KNOWN_SIZE, GENTLE)
        fitted = self._minimise_perturbed(
            share, threshold, choice, self.rows.features, centre[:1], centre[1:]
        )
        return np.concatenate([fitted, centre[1:]])

    def _choose_constant(self, share: float, size: float, regularity: float) -> StageParameters:
        totals = BudgetTotals.of(self.budgets.kinds)
        return choose_constant_parameters(
            share * totals.total, share**2 * totals.squares, size, 1.0, regularity
        )

    def slopes(
        self, share: float, threshold: float, choice: StageParameters, centre: Floats
    ) -> Floats:
        """Fits intercept and slopes."""
        return self._minimise_perturbed(share, threshold, choice, self.rows.features, centre)

    def buy_equation(self, share: float, solved: SolvedStage, answer: Floats) -> Equation:
        """Buys what intervals of a fit need, at what it released; the answer may have another
        intercept.
        """
        p = self.rows.features.width
        kinds = self.budgets.kinds
        choice = solved.choice
        tau = solved.threshold
        H = compute_regularity(p, choice.ridge, choice.intercept_ridge) * (1 + 1e-12)
        row_weights, _ = self._compute_row_weights(solved.share, H, p)
        terms = HuberTerms(
            reader=self.rows.features,
            label=self.rows.label,
            owner=self.rows.owner,
            row_weights=row_weights,
            loss=SoftHuber(tau, H),
            theta=solved.fitted,
        )
        purchase = CurvaturePurchase(
            self.rows,
            terms,
            self.rows.features.recoding,
            PurchaseWeights.of(kinds, row_weights, units.to_epsilon(kinds.epsilon)),
            share,
            tau,
        )
        intercept, slope = compute_noise_moments(p, *choice.norm)
        person = row_weights * kinds.rows
        return Equation(
            theta=solved.fitted,
            centre=solved.centre,
            ridge=np.concatenate([[choice.intercept_ridge], np.full(p, choice.ridge)]),
            noise=tau**2 * np.concatenate([[intercept], np.full(p, slope)]),
            total=float(person @ kinds.people),
            squares=float(person**2 @ kinds.people),
            most_pull=tau,
            unequal=UNEQUAL_SPREAD,
            moved=float(answer[0] - solved.fitted[0]),
            of=FITTED_LOSS,
            bought=purchase.buy(),
        )

    def _minimise_perturbed(
        self,
        share: float,
        tau: float,
        choice: StageParameters,
        reader: Reader,
        centre: Floats,
        held: Floats = NO_SLOPES,
    ) -> Floats:
        """Fits as many coefficients as the centre has, around slopes ``held`` of the others."""
        p = len(centre) - 1
        H = compute_regularity(p, choice.ridge, choice.intercept_ridge) * (1 + 1e-12)
        ridge = np.concatenate([[choice.intercept_ridge], np.full(p, choice.ridge)])
        row_weights, slack = self._compute_row_weights(share, H, p)
        participating = float(
            (row_weights * self.budgets.kinds.rows * self.budgets.kinds.people).sum()
        )  # Σv over all rows
        if self.loss == "soft":
            loss: SoftHuber | ClassicHuber = SoftHuber(tau, H)
        else:
            loss = ClassicHuber(tau)
        problem = newton.Problem(
            terms=self._make_terms(reader, row_weights, loss, held),
            ridge=ridge,
            centre=centre,
            tilt=(Fraction(tau) * continuous.draw_mixed_norm(p, *choice.norm)).astype(
                np.float64
            ),  # 2·h·τ = τ, as h = ½
            smoothness=participating * H,
            pull=participating * tau * math.sqrt(H),
            error=newton.bound_rounding(self.budgets.n_rows, reader.width + 1, tau)
            * participating
            * math.sqrt(H),
        )
        tolerance = newton.find_tolerance(problem.error, least=TOLERANCE * tau)
        theta = newton.minimise(problem, tolerance)
        distance = tolerance + bound_tilt_rounding(tau, choice.norm, ridge)
        return continuous.add_output_noise(theta, slack / (2 * distance), ridge)

    def _make_terms(self, reader: Reader, row_weights: Floats, loss: Any, held: Floats) -> Any:
        exactly_held = newton.to_fractions(held)

        def terms(theta: Any, extended: bool) -> tuple[float, Any, Any]:
            if extended:
                whole = np.concatenate([theta, exactly_held])
            else:
                whole = np.concatenate([theta, held])
            kernel = HuberTerms(
                reader=reader,
                label=self.rows.label,
                owner=self.rows.owner,
                row_weights=row_weights,
                loss=loss,
                theta=whole,
                extended=extended,
            )
            value, pull, bend = kernel.floats(self.rows.engine.fold(kernel))
            fitted = slice(len(theta))
            return value, pull[fitted], bend[fitted, fitted]

        return terms

    def _compute_row_weights(self, share: float, H: float, slopes: int) -> tuple[Floats, float]:
        """Returns the weight of a row, by kind, and ε_out; together they cost each person
        share·ε_l at most.
        """
        kinds = self.budgets.kinds
        participating = has_usable_budget(kinds)
        epsilon = share * units.to_epsilon(kinds.epsilon) * (1 - 1e-12)
        slack = SLACK * float(epsilon[participating].min())
        person = np.where(participating, epsilon - slack, 0.0)
        if self.loss == "huber":
            person = solve_huber_budget(person, H, np.minimum(kinds.rows, slopes + 1))
        return person / kinds.rows, slack


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


def _find_fullest_window(participating: NDArray[np.int64], cells: int) -> int:
    """Returns the largest weight that a window of so many cells holds, from cumulative weights."""
    cells = min(cells, len(participating) - 1)
    return int((participating[cells:] - participating[:-cells]).max())


def fit_in_stages(
    fit: StagedFit,
    scale: float | None,
    robust: bool = False,
    interval_share: float | None = 0.0,
) -> tuple[Floats, Equation | None]:
    """Runs the recipe and returns (intercept, slopes) for labels in [−1, 1], and what intervals
    follow from; ``scale`` is a public guess if given.
    """
    totals = BudgetTotals.of(fit.budgets.kinds)
    p = fit.rows.features.width
    centre = np.zeros(p + 1)
    if totals.total < SCALE_BOUGHT_FROM:
        return run_stages(fit, choose_small_stages(totals, p, TYPICAL_SCALE), centre, robust)
    left = 1.0
    if scale is None:
        bought = choose_scale_purchase(totals, p, robust)
        found = fit.scale(
            bought.share, bought.quantile, bought.label_scales, np.zeros(1), EmptyReader()
        )
        scale = found / bought.units
        left -= bought.share
    chosen = choose_stages(totals, p, scale, left, robust, interval_share)
    return run_stages(fit, chosen, centre, robust)


def run_stages(
    fit: StagedFit, chosen: StagePlan, centre: Floats, robust: bool
) -> tuple[Floats, Equation | None]:
    """Runs the rest of the recipe."""
    totals = BudgetTotals.of(fit.budgets.kinds)
    p = fit.rows.features.width
    scale = chosen.scale
    size = chosen.intercept_size
    regularity = 0.5
    covered = 0.0
    solved = None
    equation = None
    for part in chosen.parts:
        total = part.share * totals.total
        if part.purpose == "location":
            centre = fit.constant(
                part.share, LOCATION_THRESHOLD, UNKNOWN_SIZE / LOCATION_THRESHOLD**2, centre
            )
        elif part.purpose == "constant":
            if not robust and totals.total >= SCALE_BOUGHT_FROM:
                regularity = GENTLE
            centre = fit.constant(part.share, chosen.constant, size, centre, regularity)
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
            choice = choose_for_share(totals, p, part.share, size, regularity)
            tau = choose_wide_threshold(choice, p, scale, covered)
            fitted = fit.slopes(part.share, tau, choice, centre)
            solved = SolvedStage(part.share, tau, choice, centre, fitted)
            # Around a first fit on the same rows only noise may draw back, so that it ends.
            if covered:
                squares = 0.0
            else:
                squares = part.share**2 * totals.squares
            choice = replace(choice, threshold=tau / scale)
            centre = shrink_slopes(fitted, centre, choice, scale, total, squares)
    return centre, equation


THEOREM = Theorem(
    "Objective perturbation in stages: each person l loses at most the sum of their shares, ε_l "
    "(pure ε, replace)",
    "docs/theory/objective.md",
)
#: The scale that the plan speaks about where nothing better is known: labels that fill about half
#: their range.
TYPICAL_SCALE = 0.25
#: No label is known better than to this part of half its range.
SMALLEST_SCALE = 1e-12


@dataclass(frozen=True)
class NoGrid:
    """Of noisy statistics: their whole numbers say on which grid they live."""

    def to_dict(self) -> dict[str, Any]:
        """Nothing to tell."""
        return {}


def validate(ridge: Ridge, label: Interval, width: int) -> None:
    """Refuses a scale that labels within these bounds cannot have."""
    half = (label[1] - label[0]) / 2
    parse_label_scale(ridge.label_scale, half)
    parse_association(ridge.association, half)


def plan_for(ridge: Ridge, budgets: Budgets, recoding: Recoding, label: Interval) -> Plan:
    """The plan of the default method."""
    half = (label[1] - label[0]) / 2
    guess = parse_label_scale(ridge.label_scale, half)
    robust = is_robust(ridge)
    association = parse_association(ridge.association, half) / (guess or SPREAD)
    spent = cap_budgets(budgets.kinds, recoding.width, association)
    kinds = replace(budgets.kinds, epsilon=spent)
    totals = BudgetTotals.of(kinds)
    if guess is None:
        scales = _list_scales(totals, recoding.width, robust)
    else:
        scales = [guess]
    share = get_interval_share(ridge)
    outlook = [
        plan_stages_at(totals, recoding.width, s, guess is not None, robust, share) for s in scales
    ]
    typical = min(outlook, key=lambda c: abs(math.log(c.scale / (guess or TYPICAL_SCALE))))
    weights = Weights.solve(kinds, A=0.0)
    facts = PublicFacts.of(recoding, budgets, weights)
    parts = {
        c.scale: estimate_error_parts(
            totals, replace(facts, spread=c.scale), c, weights.concentration, robust
        )
        for c in outlook
    }
    own, skew = parts[typical.scale]
    return Plan(
        question="ridge",
        parameters={
            "method": ridge.method,
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
        guarantee=Guarantee.of(budgets, spent, arithmetic="floating"),
        noise={
            "distribution": "K-norm noise in the objective",
            "shares": [p.share for p in typical.parts],
        },
        grid=AnswerGrid.below(
            min(estimate_least_deviation(totals, recoding.width, c) for c in outlook)
        ),
        theorem=THEOREM,
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


def fit_noisy_model(ridge: Ridge, plan: Plan, rows: Dataset) -> dict[str, Any]:
    """Runs the stages and returns theta, rounded to the public grid."""
    low, high = plan.parameters["label"]
    kinds = replace(plan.budgets.kinds, epsilon=plan.guarantee.spent)
    if ridge.loss == "huber":
        loss = "huber"
    else:
        loss = "soft"
    fit = StagedFit(rows, replace(plan.budgets, kinds=kinds), loss)
    scale = parse_label_scale(ridge.label_scale, (high - low) / 2)
    theta, equation = fit_in_stages(fit, scale, is_robust(ridge), get_interval_share(ridge))
    content: dict[str, Any] = {"theta": plan.grid.nearest(theta)}
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


def get_interval_share(ridge: Ridge) -> float | None:
    """The share that is to buy intervals; what these need is not known for Huber's loss."""
    if ridge.loss == "huber":
        return 0.0
    return ridge.interval_share


def find_ends(release: Release, functions: Floats, level: float) -> Ends | str:
    """Returns the ends of the intervals of these functions of θ; or why there are none."""
    if release.bought is not None:
        return Equation.from_dict(release.bought).find_ends(functions, level)
    if "interval_share" not in release.parameters:
        return EARLIER
    if release.parameters["loss"] == "huber":
        return "Intervals are not known for Huber's loss; they are for loss='robust'."
    return explain_too_little(functions.shape[1] - 1)


def describe_interval_stage(chosen: StagePlan) -> BoughtShare | None:
    """What the plan says about the stage that buys intervals; None where there is none."""
    if not chosen.has(INTERVALS):
        return None
    return BoughtShare(chosen.parts[-1].share, "how columns spread and residuals vary")


def is_robust(ridge: Ridge) -> bool:
    """Whether thresholds stay at a few deviations, however large budgets are."""
    return ridge.loss in ("robust", "huber")


def describe_estimand(ridge: Ridge) -> str:
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
    return {
        "if_scale": chosen.scale * half,
        "parts": [{"purpose": part.purpose, "share": part.share} for part in chosen.parts],
        "slopes": chosen.slopes is not None,
        "expected": expected_square,  # in units of the squared scale
    }
