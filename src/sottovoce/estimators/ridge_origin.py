# SPDX-License-Identifier: Apache-2.0
"""The default regression without an intercept: objective perturbation in stages, through the origin
(docs/theory/objective.md, section on models without an intercept).

Rows are φ = z, without a constant column. Features and label lie around zero, so that 0 is the
centre of the first stage, and what is bought first is the size of the labels, not their spread.

    symbol   name
    s        size        root mean square of the labels, bought first or given as label_scale
    τ = k·s  threshold   no row pulls harder than this
    N(b)     max_j |b_j|/τ, the norm of the box: that of (b₁; b₂ … b_p) with α₁ = 1, α₂ = 0
    H        p/(4Λ), the regularity of p coordinates with one Λ
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.budgets import Budgets
from sottovoce.data.encoding import Recoding
from sottovoce.data.engine import Dataset
from sottovoce.data.loss_kernels import HuberTerms
from sottovoce.errors import InvalidParameter
from sottovoce.estimators import ridge_objective
from sottovoce.estimators.curvature import Equation
from sottovoce.estimators.model_intervals import Ends
from sottovoce.estimators.ridge_errors import (
    FEATURE_MOMENTS,
    RIDGES,
    SPREAD,
    THRESHOLDS,
    PublicFacts,
    SquaredErrorParts,
    StageParameters,
    Terms,
    compute_noise_moments,
    make_expected_error,
)
from sottovoce.estimators.ridge_objective import SolvedStage, StagedFit
from sottovoce.estimators.ridge_recipe import (
    AMPLE_BUDGET,
    GENTLE,
    SCALE_BOUGHT_FROM,
    TAIL,
    WORTH_REFITTING,
    WORTHLESS_ERROR,
    BudgetTotals,
    Stage,
    StagePlan,
    StagePurchase,
    cap_budgets,
    choose_tail_purchase,
    choose_wide_threshold,
    list_residual_bounds,
    shrink_slopes,
)
from sottovoce.estimators.row_problem import OriginProblem, RowProblem
from sottovoce.guarantee import Guarantee
from sottovoce.noise.source import AnswerGrid
from sottovoce.plan import Plan, Theorem
from sottovoce.release import Release
from sottovoce.schema import Interval
from sottovoce.weights import Weights

if TYPE_CHECKING:
    from sottovoce.estimators.ridge_core import RidgeCore

SIZE = "size of labels"
#: Features are read as the default method reads them.
READS_ROUNDED = ridge_objective.READS_ROUNDED
#: The size that labels are taken to have where none is bought, and the share of its square that
#: slopes explain: most of it is where labels are, not how they spread.
TYPICAL_SIZE = 0.4
EXPLAINED_SIZE = 0.9
#: Sizes of labels above this part of the largest are held back: a tail that nobody is in looks the
#: same at every width.
USUAL_SIZE = 1 / 8
#: The norm of the box.
BOX = (1.0, 0.0)
#: The part of what is left that the first of two fits has.
FIRST_PART = 0.35

THEOREM = Theorem(
    "Objective perturbation in stages, without an intercept: each person l loses at most the sum "
    "of their shares, ε_l (pure ε, replace)",
    "docs/theory/objective.md",
)


@dataclass(frozen=True, eq=False)
class OriginFit(StagedFit):
    """The stages of a model through the origin; θ has no coefficient for the constant column."""

    def _make_row_problem(self, kernel: HuberTerms, held: Floats) -> RowProblem:
        return OriginProblem(self.rows.engine, kernel)


def complete(theta: Floats) -> Floats:
    """Returns coefficients behind that of a constant, which is 0."""
    return np.concatenate([np.zeros(1), theta])


def validate(ridge: RidgeCore, label: Interval, width: int) -> None:
    """Refuses a size that labels within these bounds cannot have, and a share for intervals."""
    if ridge.interval_share:
        raise InvalidParameter(
            "Nothing can be bought for the intervals of a model without an intercept.",
            "Its intervals are of a fit that is shrunk as strongly.",
            "Leave interval_share out, or choose method='statistics'.",
            parameter="interval_share",
        )
    half = (label[1] - label[0]) / 2
    ridge_objective.parse_label_scale(ridge.label_scale, half)
    ridge_objective.parse_association(ridge.association, half)


@cache
def choose_parameters(
    slopes: int, total: float, squares: float, regularity: float = 0.5
) -> StageParameters:
    """Returns the Λ and k with the smallest proxy, subject to p/(4Λ) ≤ ``regularity`` ≤ ½."""
    grid = RIDGES[slopes / (4 * RIDGES) <= regularity]
    best = StageParameters(math.inf, 0.0, 0.0, 0.0, BOX)
    for k, penalty in THRESHOLDS:
        for ridge in grid.tolist():
            choice = StageParameters(0.0, k, ridge, ridge, BOX)
            terms = split_error(slopes, total, squares, EXPLAINED_SIZE, choice)
            expected = terms.noise + terms.sampling + terms.shrinkage + penalty
            if expected < best.expected:
                best = replace(choice, expected=expected)
    return best


def split_error(
    slopes: int, total: float, squares: float, size: float, choice: StageParameters
) -> Terms:
    """Returns the proxy of ridge_errors.py by its terms, without those of an intercept."""
    k = choice.threshold
    kappa = math.erf(k / math.sqrt(2))
    noise = compute_noise_moments(slopes - 1, *BOX)[0] * k * k
    columns = [
        np.array([C * noise, 0.4 * kappa * squares * C * C, choice.ridge**2 * size / slopes])
        / (kappa * total * C + choice.ridge) ** 2
        for C in FEATURE_MOMENTS
    ]
    return Terms(*map(float, slopes * np.mean(columns, axis=0)))


def choose_size_purchase(totals: BudgetTotals, slopes: int, robust: bool) -> StagePurchase:
    """Returns what is bought of the labels' size; nothing where budgets are small."""
    if totals.total < SCALE_BOUGHT_FROM:
        return StagePurchase(0.0, 0.5)
    if totals.total < AMPLE_BUDGET:
        return StagePurchase(30 / totals.total, 0.5)
    return choose_tail_purchase(totals, slopes, robust)


def choose_stages(
    totals: BudgetTotals, slopes: int, size: float, bought: float, robust: bool
) -> StagePlan:
    """Chooses what to do, from public numbers and the released size alone, after a share was
    spent on it.
    """
    rest = 1.0 - bought
    parts: tuple[Stage, ...] = ()
    if bought:
        parts = (Stage(SIZE, bought),)
    amounts = rest * totals.total, rest**2 * totals.squares
    choice = choose_parameters(slopes, *amounts)
    own = split_error(slopes, *amounts, EXPLAINED_SIZE, choice)
    more: tuple[Stage, ...] = (Stage("fit", rest),)
    if totals.total >= SCALE_BOUGHT_FROM and own.noise + own.shrinkage < WORTH_REFITTING:
        again = choose_tail_purchase(totals, slopes, robust).share
        first = FIRST_PART * rest
        more = (Stage("first fit", first), Stage(TAIL, again), Stage("fit", rest - first - again))
    return StagePlan(size, (*parts, *more), choice, 0.0, choice.expected, 0.0)


def fit_in_stages(
    fit: StagedFit, size: float | None, robust: bool
) -> tuple[Floats, Equation | None]:
    """Runs the recipe and returns the slopes for labels in [−1, 1], and what intervals follow
    from; ``size`` is a public guess if given.
    """
    totals = BudgetTotals.of(fit.budgets.kinds)
    p = fit.rows.features.width
    centre = np.zeros(p)
    purchase = choose_size_purchase(totals, p, robust)
    bought = 0.0
    if size is None and purchase.share:
        size = fit.tail(purchase, USUAL_SIZE, complete(centre)) / purchase.units
        bought = purchase.share
    chosen = choose_stages(totals, p, size or TYPICAL_SIZE, bought, robust)
    scale = chosen.scale
    regularity = 0.5
    covered = 0.0
    solved: SolvedStage | None = None
    for part in chosen.parts[bool(bought) :]:
        total = part.share * totals.total
        squares = part.share**2 * totals.squares
        if part.purpose == TAIL:
            again = choose_tail_purchase(totals, p, robust)
            found = fit.tail(again, scale, complete(centre))
            scale = found / again.units
            if not robust:
                covered = found
                regularity = GENTLE
            continue
        choice = choose_parameters(p, total, squares, regularity)
        tau = choose_wide_threshold(choice, p - 1, scale, covered)
        fitted = fit.slopes(part.share, tau, choice, centre)
        solved = SolvedStage(part.share, tau, choice, centre, fitted)
        # Around a first fit on the same rows only noise may draw back, so that it ends.
        if solved.centre.any():
            squares = 0.0
        drawn_back = replace(choice, threshold=tau / scale)
        shrunk = shrink_slopes(
            complete(fitted), complete(centre), drawn_back, scale, total, squares
        )
        centre = shrunk[1:]
    assert solved is not None
    return centre, fit.make_equation(solved, solved.fitted)


def plan_for(ridge: RidgeCore, budgets: Budgets, recoding: Recoding, label: Interval) -> Plan:
    """The plan of a model through the origin."""
    validate(ridge, label, recoding.width)
    p = recoding.width
    half = (label[1] - label[0]) / 2
    guess = ridge_objective.parse_label_scale(ridge.label_scale, half)
    robust = ridge_objective.is_robust(ridge)
    association = ridge_objective.parse_association(ridge.association, half) / (guess or SPREAD)
    spent = cap_budgets(budgets.kinds, p, association)
    kinds = replace(budgets.kinds, epsilon=spent)
    totals = BudgetTotals.of(kinds)
    purchase = choose_size_purchase(totals, p, robust)
    sizes = [guess or TYPICAL_SIZE]
    bought = 0.0
    if guess is None and purchase.share:
        sizes = [float(t) / purchase.units for t in list_residual_bounds(USUAL_SIZE)]
        bought = purchase.share
    outlook = [choose_stages(totals, p, s, bought, robust) for s in sizes]
    typical = min(outlook, key=lambda c: abs(math.log(c.scale / (guess or TYPICAL_SIZE))))
    weights = Weights.solve(kinds, A=0.0)
    facts = PublicFacts.of(recoding, budgets, weights)
    parts = {
        c.scale: estimate_error_parts(totals, facts, c, weights.concentration, robust)
        for c in outlook
    }
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
            "estimates": ridge_objective.describe_estimand(ridge),
            "stages": [
                ridge_objective._describe_stages(c, half, parts[c.scale].total / c.scale**2)
                for c in outlook
            ],
            "advice": advise_on_slopes(typical),
        },
        budgets=budgets,
        weights=weights,
        guarantee=Guarantee.of(budgets, spent, arithmetic="floating"),
        noise={
            "distribution": "K-norm noise in the objective",
            "shares": [part.share for part in typical.parts],
        },
        grid=AnswerGrid.below(min(estimate_least_deviation(totals, p, c) for c in outlook)),
        theorem=THEOREM,
        error=make_expected_error(
            parts[typical.scale],
            replace(facts, spread=typical.scale),
            budgets,
            weights,
            half,
            more=ridge_objective.describe_estimand(ridge),
        ),
    )


def estimate_error_parts(
    totals: BudgetTotals, facts: PublicFacts, chosen: StagePlan, concentration: float, robust: bool
) -> SquaredErrorParts:
    """Returns what a course is expected to miss of least squares without an intercept, from the
    last fit; around a first one nothing is held back, and labels are what the first has left.
    """
    last = chosen.last_fit
    p = facts.slopes
    amounts = last.share * totals.total, last.share**2 * totals.squares
    unit = chosen.scale
    if chosen.has(TAIL):
        unit *= math.sqrt(1 - EXPLAINED_SIZE)
        choice = choose_parameters(p, *amounts, 0.5 if robust else GENTLE)
        covered = 0.0
        if not robust:
            covered = choose_tail_purchase(totals, p, robust).units * unit
        tau = choose_wide_threshold(choice, p - 1, unit, covered)
        terms = split_error(p, *amounts, 0.0, replace(choice, threshold=tau / unit))
    else:
        choice = choose_parameters(p, *amounts)
        terms = split_error(p, *amounts, EXPLAINED_SIZE, choice)
    # the proxy counts all of Σc², and least squares has 1/n of it too
    unequal = facts.squares / concentration
    found = SquaredErrorParts(terms.noise, terms.sampling * unequal, terms.shrinkage)
    return found.scale_by(unit**2)


def estimate_least_deviation(totals: BudgetTotals, slopes: int, chosen: StagePlan) -> float:
    """Returns about the least that noise moves a coefficient of the last fit by."""
    assert chosen.slopes is not None
    V = chosen.last_fit.share * totals.total
    deviation = math.sqrt(compute_noise_moments(slopes - 1, *BOX)[0])
    return chosen.slopes.threshold * chosen.scale * deviation / (chosen.slopes.ridge + V / 4)


def advise_on_slopes(chosen: StagePlan) -> str:
    """One sentence on whether coefficients can pay for their noise."""
    if chosen.expected < WORTHLESS_ERROR:
        return "Coefficients are fitted: their noise is expected to stay below what they explain."
    return (
        "Coefficients cannot pay for their noise here: they will be close to 0. More people or a "
        "larger ε would help."
    )


def fit_noisy_model(ridge: RidgeCore, plan: Plan, rows: Dataset) -> dict[str, Any]:
    """Runs the stages and returns theta, rounded to the public grid."""
    low, high = plan.parameters["label"]
    fit = OriginFit(rows, limit_budgets(plan), get_loss(ridge), plan.grid)
    size = ridge_objective.parse_label_scale(ridge.label_scale, (high - low) / 2)
    theta, equation = fit_in_stages(fit, size, ridge_objective.is_robust(ridge))
    assert equation is not None
    published = replace(
        equation,
        theta=plan.grid.nearest(equation.theta),
        centre=plan.grid.nearest(equation.centre),
    )
    return {
        "theta": complete(plan.grid.nearest(theta)),
        "stages": fit.record,
        "bought": published.to_dict(),
    }


def limit_budgets(plan: Plan) -> Budgets:
    """Returns what people spend in the place of what they grant."""
    return replace(plan.budgets, kinds=replace(plan.budgets.kinds, epsilon=plan.guarantee.spent))


def get_loss(ridge: RidgeCore) -> str:
    """The loss that stages minimise."""
    if ridge.loss == "huber":
        return "huber"
    return "soft"


def find_ends(release: Release, functions: Floats, level: float) -> Ends | str:
    """Returns the ends of the intervals of these functions of θ, whose constant is 0."""
    assert release.bought is not None
    return Equation.from_dict(release.bought).find_ends(functions[:, 1:], level)
