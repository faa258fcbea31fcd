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
from sottovoce.budgets import BudgetGroups, Budgets
from sottovoce.data.encoding import Recoding
from sottovoce.data.engine import Dataset
from sottovoce.data.loss_kernels import HuberTerms
from sottovoce.data.readers import EmptyReader, Reader
from sottovoce.data.regression_kernels import ResidualHistogram, has_usable_budget
from sottovoce.errors import InvalidParameter
from sottovoce.estimators.curvature import (
    FITTED_LOSS,
    BoughtShare,
    CurvaturePurchase,
    Equation,
    PurchaseWeights,
    choose_interval_share,
    explain_too_little,
)
from sottovoce.estimators.model_intervals import UNEQUAL_SPREAD, Ends
from sottovoce.estimators.ridge_errors import (
    EXPLAINED,
    FEATURE_MOMENTS,
    SKEWED_LABEL_BIAS,
    PublicFacts,
    SquaredErrorParts,
    StageParameters,
    choose_constant_parameters,
    choose_parameters,
    compute_noise_moments,
    compute_regularity,
    make_expected_error,
    split_error,
)
from sottovoce.guarantee import Guarantee
from sottovoce.noise import continuous, selection
from sottovoce.noise.grid import AnswerGrid, Grid
from sottovoce.plan import Plan, Theorem
from sottovoce.release import Release
from sottovoce.schema import Interval
from sottovoce.solvers import losses, newton
from sottovoce.weights import Weights

if TYPE_CHECKING:
    from sottovoce.estimators.ridge import Ridge


#: Below this much budget in all, only a constant is worth fitting.
CONSTANT_ONLY_BELOW = 150.0
#: From here on the scale is read at a higher quantile, which is sharper but needs more budget.
AMPLE_BUDGET = 400.0
#: Candidates for the scale: an eighth of the range, halved seven times; around a first fit, halved
#: nine times.
LABEL_SCALES = 8
RESIDUAL_SCALES = 10
#: The proxy's value from which slopes cannot pay for their noise, and below which a second fit
#: pays.
WORTHLESS_ERROR = 0.6
WORTH_REFITTING = 0.005
#: The share of everybody's part in a stage that pays for the solver's last digits.
SLACK = 1e-3
#: Solver tolerance relative to the threshold, but for rounding; what is left is covered by noise
#: paid from the slack.
TOLERANCE = 1e-12
CELLS_BITS = 15
#: How far the intercept may lie from the centre, squared: in units of s² where a location is known,
#: of the half-range squared where it is not. A location is bought with this threshold.
KNOWN_SIZE = 0.3
UNKNOWN_SIZE = 0.16
LOCATION_THRESHOLD = 1 / 8


#: The purpose of the stage that buys what intervals need.
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
    def fits(self) -> tuple[Stage, ...]:
        """The stages that lead to the answer; one that buys intervals comes after them."""
        return tuple(part for part in self.parts if part.purpose != INTERVALS)


@dataclass(frozen=True, eq=False)
class SolvedStage:
    """A stage that fitted slopes: its numbers, and what it released."""

    share: float
    threshold: float
    choice: StageParameters
    centre: Floats
    fitted: Floats


@dataclass(frozen=True)
class BudgetTotals:
    """Budgets as numbers: S = Σε and Σε² over people, by what the kinds say."""

    total: float
    squares: float

    @classmethod
    def of(cls, kinds: BudgetGroups) -> BudgetTotals:
        """Adds everybody up; squares count rows (a person's weight is spread over theirs)."""
        epsilon = units.to_epsilon(kinds.epsilon)
        return cls(
            float((epsilon * kinds.people).sum()),
            float((epsilon**2 / kinds.rows * kinds.people).sum()),
        )


def choose_scale_share(totals: BudgetTotals) -> tuple[float, float, float]:
    """Returns (share, quantile, factor) of the stage that buys the scale."""
    if totals.total < AMPLE_BUDGET:
        return max(30 / totals.total, 0.02), 0.5, 1.48
    return max(40 / totals.total, 0.005), 0.7, 0.965


def choose_stages(
    totals: BudgetTotals,
    slopes: int,
    scale: float,
    left: float,
    interval_share: float | None = None,
) -> StagePlan:
    """Chooses what to do with the rest of the budget, from public numbers and the released scale
    alone.
    """
    share = choose_interval_share(totals.total, slopes, interval_share)
    if slopes and share:
        chosen = _choose_best_stages(totals, slopes, scale, left - share)
        if chosen.slopes is not None:
            return replace(chosen, parts=(*chosen.parts, Stage(INTERVALS, share)))
    return _choose_best_stages(totals, slopes, scale, left)


def _choose_best_stages(totals: BudgetTotals, slopes: int, scale: float, left: float) -> StagePlan:
    location = max(30 / totals.total, 0.02)
    options = [_evaluate_stages(totals, slopes, scale, left, bought) for bought in (0.0, location)]
    return min(options, key=lambda option: option.expected)


def _evaluate_stages(
    totals: BudgetTotals, slopes: int, scale: float, left: float, location: float
) -> StagePlan:
    rest = left - location
    if location:
        size = KNOWN_SIZE
    else:
        size = max(KNOWN_SIZE, UNKNOWN_SIZE / scale**2)
    if location:
        parts: tuple[Stage, ...] = (Stage("location", location),)
    else:
        parts = ()
    if slopes:
        choice = choose_for_share(totals, slopes, rest, size)
    else:
        choice = None
    if choice is None or choice.expected >= WORTHLESS_ERROR:
        constant = choose_constant_parameters(
            rest * totals.total, rest**2 * totals.squares, size, 2.0
        )
        expected = WORTHLESS_ERROR + constant.expected
        return StagePlan(scale, (*parts, Stage("constant", rest)), None, 2 * scale, expected, size)
    if choice.expected < WORTH_REFITTING:
        again = max(40 / totals.total, 0.005)
        more = (
            Stage("first fit", 0.35 * rest),
            Stage("scale of residuals", again),
            Stage("fit", 0.65 * rest - again),
        )
        return StagePlan(scale, (*parts, *more), choice, 0.0, choice.expected, size)
    return StagePlan(scale, (*parts, Stage("fit", rest)), choice, 0.0, choice.expected, size)


def choose_for_share(
    totals: BudgetTotals, slopes: int, share: float, intercept_size: float
) -> StageParameters:
    """The proxy's choice for this share, assuming modest slopes, or full-sized ones where these are
    affordable.
    """
    amounts = share * totals.total, share**2 * totals.squares
    choice = choose_parameters(slopes, *amounts, intercept_size, 0.6)
    if choice.expected / 0.6 < 0.4:
        return choose_parameters(slopes, *amounts, intercept_size, 1.0)
    return choice


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
        """
        kinds = self.budgets.kinds
        part = replace(kinds, epsilon=np.floor(kinds.epsilon * share).astype(np.int64))
        weights = Weights.solve(part, A=0.0)
        reach = 4 * float(candidates[0])
        grid = Grid.cover(-reach, reach, CELLS_BITS)
        kernel = ResidualHistogram(
            reader, self.rows.label, self.rows.owner, weights.row, grid, theta
        )
        participating = np.concatenate([[0], np.cumsum(self.rows.engine.fold(kernel))])
        fullest = [
            _find_fullest_window(participating, max(round(2 * g / float(grid.step)), 1))
            for g in candidates
        ]
        target = round(quantile * weights.total)
        scores = np.array([abs(f - target) for f in fullest], dtype=np.int64)
        return float(candidates[selection.permute_and_flip(scores, 2 * weights.loudest)])

    def constant(self, share: float, threshold: float, size: float, centre: Floats) -> Floats:
        """Fits the intercept alone; the answer is clipped to the label's range, which is free."""
        totals = BudgetTotals.of(self.budgets.kinds)
        choice = choose_constant_parameters(
            share * totals.total, share**2 * totals.squares, size, 1.0
        )
        fitted = self._minimise_perturbed(share, threshold, choice, EmptyReader(), centre[:1])
        return np.concatenate([np.clip(fitted, -2, 2), centre[1:]])

    def slopes(
        self, share: float, threshold: float, choice: StageParameters, centre: Floats
    ) -> Floats:
        """Fits intercept and slopes."""
        return self._minimise_perturbed(share, threshold, choice, self.rows.features, centre)

    def buy_equation(self, share: float, solved: SolvedStage) -> Equation:
        """Buys what intervals of a fit need, at what it released."""
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
            loss=losses.SoftHuber(tau, H),
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
            of=FITTED_LOSS,
            bought=purchase.buy(),
        )

    def _minimise_perturbed(
        self, share: float, tau: float, choice: StageParameters, reader: Reader, centre: Floats
    ) -> Floats:
        p = reader.width
        H = compute_regularity(p, choice.ridge, choice.intercept_ridge) * (1 + 1e-12)
        ridge = np.concatenate([[choice.intercept_ridge], np.full(p, choice.ridge)])
        row_weights, slack = self._compute_row_weights(share, H, p)
        participating = float(
            (row_weights * self.budgets.kinds.rows * self.budgets.kinds.people).sum()
        )  # Σv over all rows
        if self.loss == "soft":
            loss: losses.SoftHuber | losses.ClassicHuber = losses.SoftHuber(tau, H)
        else:
            loss = losses.ClassicHuber(tau)
        problem = newton.Problem(
            terms=self._make_terms(reader, row_weights, loss),
            ridge=ridge,
            centre=centre,
            tilt=(Fraction(tau) * continuous.draw_mixed_norm(p, *choice.norm)).astype(
                np.float64
            ),  # 2·h·τ = τ, as h = ½
            smoothness=participating * H,
            pull=participating * tau * math.sqrt(H),
            error=newton.bound_rounding(self.budgets.n_rows, p + 1, tau)
            * participating
            * math.sqrt(H),
        )
        tolerance = newton.find_tolerance(problem.error, least=TOLERANCE * tau)
        theta = newton.minimise(problem, tolerance)
        distance = tolerance + bound_tilt_rounding(tau, choice.norm, ridge)
        return continuous.add_output_noise(theta, slack / (2 * distance), ridge)

    def _make_terms(self, reader: Reader, row_weights: Floats, loss: Any) -> Any:
        def terms(theta: Any, extended: bool) -> tuple[float, Any, Any]:
            kernel = HuberTerms(
                reader=reader,
                label=self.rows.label,
                owner=self.rows.owner,
                row_weights=row_weights,
                loss=loss,
                theta=theta,
                extended=extended,
            )
            return kernel.floats(self.rows.engine.fold(kernel))

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


def estimate_least_deviation(totals: BudgetTotals, slopes: int, chosen: StagePlan) -> float:
    """Returns about the least that noise moves a coefficient of the last fit by: the size of b_j
    over Λ_j + V/4.
    """
    share = chosen.fits[-1].share
    V = share * totals.total
    if chosen.slopes is None:
        constant = choose_constant_parameters(
            V, share**2 * totals.squares, chosen.intercept_size, 1.0
        )
        return chosen.constant * math.sqrt(2) / (constant.intercept_ridge + V / 4)
    choice = chosen.slopes
    intercept, slope = np.sqrt(compute_noise_moments(slopes, *choice.norm))
    moved = min(intercept / (choice.intercept_ridge + V / 4), slope / (choice.ridge + V / 4))
    return choice.threshold * chosen.scale * float(moved)


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


def list_halvings(largest: float, count: int) -> Floats:
    """Returns the largest candidate and its halves."""
    return np.asarray(largest * 0.5 ** np.arange(count), dtype=np.float64)


def choose_small_budget_threshold(total: float) -> float:
    """The threshold of a constant fitted without knowing the scale, where S is small."""
    return max(0.2, total / 300)


def fit_in_stages(
    fit: StagedFit, scale: float | None, interval_share: float | None = None
) -> tuple[Floats, Equation | None]:
    """Runs the recipe and returns (intercept, slopes) for labels in [−1, 1], and what intervals
    follow from; ``scale`` is a public guess if given.
    """
    totals = BudgetTotals.of(fit.budgets.kinds)
    p = fit.rows.features.width
    centre = np.zeros(p + 1)
    if totals.total < CONSTANT_ONLY_BELOW:
        tau = choose_small_budget_threshold(totals.total)
        return fit.constant(1.0, tau, max(KNOWN_SIZE, UNKNOWN_SIZE / tau**2), centre), None
    left = 1.0
    if scale is None:
        share, quantile, factor = choose_scale_share(totals)
        scale = factor * fit.scale(
            share, quantile, list_halvings(0.25, LABEL_SCALES), np.zeros(1), EmptyReader()
        )
        left -= share
    return run_stages(fit, choose_stages(totals, p, scale, left, interval_share), centre)


def run_stages(fit: StagedFit, chosen: StagePlan, centre: Floats) -> tuple[Floats, Equation | None]:
    """Runs the rest of the recipe."""
    totals = BudgetTotals.of(fit.budgets.kinds)
    p = fit.rows.features.width
    scale = chosen.scale
    equation = None
    solved = None
    for part in chosen.parts:
        if part.purpose == "location":
            centre = fit.constant(
                part.share, LOCATION_THRESHOLD, UNKNOWN_SIZE / LOCATION_THRESHOLD**2, centre
            )
        elif part.purpose == "constant":
            centre = fit.constant(part.share, chosen.constant, chosen.intercept_size, centre)
        elif part.purpose == "scale of residuals":
            candidates = list_halvings(scale, RESIDUAL_SCALES)
            scale = 0.965 * fit.scale(part.share, 0.7, candidates, centre, fit.rows.features)
        elif part.purpose == INTERVALS:
            if solved is not None:
                equation = fit.buy_equation(part.share, solved)
        else:
            refit = len(chosen.parts) > 1 and part.purpose == "fit" and scale is not chosen.scale
            if refit:
                size = KNOWN_SIZE
            else:
                size = chosen.intercept_size
            choice = choose_for_share(totals, p, part.share, size)
            fitted = fit.slopes(part.share, choice.threshold * scale, choice, centre)
            solved = SolvedStage(part.share, choice.threshold * scale, choice, centre, fitted)
            centre = shrink_slopes(
                fitted,
                centre,
                choice,
                scale,
                part.share * totals.total,
                part.share**2 * totals.squares,
            )
    return centre, equation


def shrink_slopes(
    fitted: Floats,
    centre: Floats,
    choice: StageParameters,
    scale: float,
    total: float,
    squares: float,
) -> Floats:
    """Returns the fit with its slopes drawn back to the centre as far as they look like noise;
    free.

    James and Stein's factor 1 − p·σ²/‖slopes‖², with σ² the variance that public numbers predict
    for noise alone and features spread evenly: where there is nothing to learn, next to nothing is
    claimed.
    """
    p = len(fitted) - 1
    C = FEATURE_MOMENTS[0]
    kappa = math.erf(choice.threshold / math.sqrt(2))
    stiffness = kappa * total * C + choice.ridge
    noise = (
        compute_noise_moments(p, *choice.norm)[1] * choice.threshold**2 + 0.4 * kappa * squares * C
    )
    slopes = fitted[1:] - centre[1:]
    size = float(slopes @ slopes)
    if size > 0:
        factor = max(0.0, 1 - p * noise * scale**2 / stiffness**2 / size)
    else:
        factor = 0.0
    return np.concatenate([fitted[:1], centre[1:] + factor * slopes])


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
    parse_label_scale(ridge.label_scale, (label[1] - label[0]) / 2)


def plan_for(ridge: Ridge, budgets: Budgets, recoding: Recoding, label: Interval) -> Plan:
    """The plan of the default method."""
    totals = BudgetTotals.of(budgets.kinds)
    half = (label[1] - label[0]) / 2
    guess = parse_label_scale(ridge.label_scale, half)
    outlook = [
        plan_stages_at(totals, recoding.width, s, guess is not None, get_interval_share(ridge))
        for s in ([guess] if guess else _list_scales(totals))
    ]
    typical = min(outlook, key=lambda c: abs(math.log(c.scale / (guess or TYPICAL_SCALE))))
    weights = Weights.solve(budgets.kinds, A=0.0)
    facts = PublicFacts.of(recoding, budgets, weights)
    parts = {
        c.scale: estimate_error_parts(
            totals, replace(facts, spread=c.scale), c, weights.concentration
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
            "interval_share": ridge.interval_share,
            "features": recoding.to_dict(),
            "stages": [
                _describe_stages(c, half, parts[c.scale][0].total / c.scale**2) for c in outlook
            ],
            "advice": advise_on_slopes(typical),
        },
        budgets=budgets,
        weights=weights,
        guarantee=Guarantee.of(budgets, budgets.kinds.epsilon, arithmetic="floating"),
        noise={
            "distribution": "K-norm noise in the objective",
            "shares": [p.share for p in typical.parts],
        },
        grid=AnswerGrid.below(
            min(estimate_least_deviation(totals, recoding.width, c) for c in outlook)
        ),
        theorem=THEOREM,
        error=make_expected_error(
            own, replace(facts, spread=typical.scale), budgets, weights, half, besides=skew
        ),
        bought=describe_interval_stage(typical),
    )


def describe_interval_stage(chosen: StagePlan) -> BoughtShare | None:
    """What the plan says about the stage that buys intervals; None where there is none."""
    if chosen.parts[-1].purpose != INTERVALS:
        return None
    return BoughtShare(chosen.parts[-1].share, "how columns spread and residuals vary")


def fit_noisy_model(ridge: Ridge, plan: Plan, rows: Dataset) -> dict[str, Any]:
    """Runs the stages and returns theta, rounded to the public grid."""
    low, high = plan.parameters["label"]
    fit = StagedFit(rows, plan.budgets, ridge.loss)
    scale = parse_label_scale(ridge.label_scale, (high - low) / 2)
    theta, equation = fit_in_stages(fit, scale, get_interval_share(ridge))
    content: dict[str, Any] = {"theta": plan.grid.nearest(theta)}
    if equation is not None:
        content["bought"] = replace(equation, theta=plan.grid.nearest(equation.theta)).to_dict()
    return content


def get_interval_share(ridge: Ridge) -> float | None:
    """The share that is to buy intervals; what these need is known for the soft loss alone."""
    if ridge.loss == "huber":
        return 0.0
    return ridge.interval_share


def find_ends(release: Release, functions: Floats, level: float) -> Ends | str:
    """Returns the ends of the intervals of these functions of θ; or why there are none."""
    if release.bought is not None:
        return Equation.from_dict(release.bought).find_ends(functions, level)
    if release.parameters["loss"] == "huber":
        return "Intervals are known for the soft loss alone."
    return explain_too_little(functions.shape[1] - 1)


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


def plan_stages_at(
    totals: BudgetTotals,
    slopes: int,
    scale: float,
    known: bool,
    interval_share: float | None = None,
) -> StagePlan:
    """What will be done if the first stage releases this scale."""
    if totals.total < CONSTANT_ONLY_BELOW:
        tau = choose_small_budget_threshold(totals.total)
        size = max(KNOWN_SIZE, UNKNOWN_SIZE / tau**2)
        expected = (
            0.6
            + choose_constant_parameters(totals.total, totals.squares, size, 1.0).expected
            * (tau / scale) ** 2
        )
        return StagePlan(scale, (Stage("constant", 1.0),), None, tau, expected, size)
    if known:
        share = 0.0
    else:
        share = choose_scale_share(totals)[0]
    chosen = choose_stages(totals, slopes, scale, 1.0 - share, interval_share)
    if known:
        first: tuple[Stage, ...] = ()
    else:
        first = (Stage("scale of labels", share),)
    return StagePlan(
        scale,
        (*first, *chosen.parts),
        chosen.slopes,
        chosen.constant,
        chosen.expected,
        chosen.intercept_size,
    )


def estimate_error_parts(
    totals: BudgetTotals, facts: PublicFacts, chosen: StagePlan, concentration: float
) -> tuple[SquaredErrorParts, float]:
    """Returns what a course is expected to miss of least squares, and the bias that very skewed
    labels may add.

    The proxy's terms for the last stage, and what its threshold does to labels that are skewed a
    little; a fit around a first one holds nothing back of the slopes, and its labels are what the
    first has left.
    """
    last = chosen.fits[-1]
    p = facts.slopes
    V = last.share * totals.total
    V2 = last.share**2 * totals.squares
    size = chosen.intercept_size
    unit = chosen.scale
    kept_back = 0.0
    if chosen.slopes is None:
        kept_back = facts.explained_variance
        if totals.total < CONSTANT_ONLY_BELOW:
            unit = chosen.constant
        else:
            unit = chosen.scale
        choice = choose_constant_parameters(
            V, V2, size, 1.0 if totals.total < CONSTANT_ONLY_BELOW else 2.0
        )
        terms = split_error(0, V, V2, size, 0.0, choice)
    elif len(chosen.fits) > 1 and chosen.fits[-2].purpose == "scale of residuals":
        unit *= math.sqrt(1 - EXPLAINED)
        choice = choose_for_share(totals, p, last.share, KNOWN_SIZE)
        terms = split_error(p, V, V2, 0.0, 0.0, choice)
    else:
        choice = chosen.slopes
        terms = split_error(p, V, V2, size, EXPLAINED, choice)
    usual, most = SKEWED_LABEL_BIAS[choice.threshold]
    unequal = (
        facts.squares / concentration
    )  # the proxy counts all of Σc², and least squares has 1/n of it too
    parts = SquaredErrorParts(
        terms.noise, terms.sampling * unequal, terms.shrinkage + usual**2
    ).scale_by(unit**2)
    return replace(parts, shrinkage=parts.shrinkage + kept_back), most * unit


def _list_scales(totals: BudgetTotals) -> list[float]:
    if totals.total < CONSTANT_ONLY_BELOW:
        return [TYPICAL_SCALE]
    factor = choose_scale_share(totals)[2]
    return [factor * 0.25 * 0.5**j for j in range(LABEL_SCALES)]


def _describe_stages(chosen: StagePlan, half: float, expected_square: float) -> dict[str, Any]:
    return {
        "if_scale": chosen.scale * half,
        "parts": [{"purpose": part.purpose, "share": part.share} for part in chosen.parts],
        "slopes": chosen.slopes is not None,
        "expected": expected_square,  # in units of the squared scale
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
