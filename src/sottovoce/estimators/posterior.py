# SPDX-License-Identifier: Apache-2.0
"""Linear regression by one sample from a posterior, with a budget a person
(docs/theory/posterior.md).

θ̃ ~ N(θ̂, H⁻¹/γ), H = Σ wφφᵀ + λI, over rows φ of the unit ball and labels in [−1, 1].
posterior_mechanism.py says what a weight costs, and has the weights and γ, the way into the ball,
the sums and the draw.

    symbol   name
    γ        gamma; larger is closer to θ̂
    λ        alpha, or λ_n = max(0, h + W_max + σ₁z − λ̃)
    λ̃        noisy_eigenvalue_, the smallest of Σ wφφᵀ with noise of spread σ₁
    h        floor
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sottovoce import units
from sottovoce.arrays import ColumnLike, Floats, TableLike, check_same_length, to_matrix, to_numbers
from sottovoce.budgets import BudgetGroups, BudgetLike, Budgets
from sottovoce.data.encoding import (
    Recoding,
    UnitBall,
    UnitBallReader,
    count_declared_columns,
    describe_model,
    make_label,
)
from sottovoce.data.engine import Dataset
from sottovoce.data.source import find_schema
from sottovoce.errors import InvalidData, InvalidParameter
from sottovoce.estimator import load_matrix, make_budgets
from sottovoce.estimators import posterior_mechanism
from sottovoce.estimators.base import LinearRegressor
from sottovoce.estimators.column import LoadableEstimator
from sottovoce.estimators.model_intervals import (
    EARLIER,
    FROM_BOUNDS,
    UNEQUAL_SPREAD,
    EigenvalueBound,
    Ends,
    IntervalsByFunction,
    ShrunkSample,
)
from sottovoce.estimators.posterior_mechanism import PosteriorWeights
from sottovoce.estimators.ridge_errors import PublicFacts, estimate_ridge_error, make_expected_error
from sottovoce.guarantee import Guarantee
from sottovoce.noise.source import AnswerGrid, Reals
from sottovoce.plan import ExpectedError, Plan, Theorem, least_squares
from sottovoce.release import Release
from sottovoce.schema import (
    MEASURE,
    Bounds,
    BoundsLike,
    check_flag,
    is_between,
    is_measurable,
    to_interval,
)

#: The smallest δ that is promised: one unit of the books.
LEAST_DELTA = 1 / units.UNITS_PER_DELTA
#: Up to here the error of a sample is proved to be far below a step of its grid
#: (docs/theory/posterior.md).
MOST_COLUMNS = 1024
MOST_CONDITION = 1e30


class Posterior(IntervalsByFunction, LoadableEstimator, LinearRegressor):
    """What both kinds of posterior sample share."""

    question: ClassVar[str]
    theorem: ClassVar[Theorem]
    delta: float
    fit_intercept: bool

    def _read_rows(
        self,
        X: TableLike,
        y: ColumnLike | None,
        epsilon: BudgetLike | None,
        groups: ColumnLike | None,
    ) -> Dataset:
        if epsilon is None and find_schema(self).budget is not None:
            return super()._read_rows(X, y, None, groups)  # everybody's is in the table
        granted = self._get_grants(epsilon)
        if granted is not None:
            return super()._read_rows(X, y, granted, groups)
        # Without grants any number stands for them; what is promised takes its place.
        return replace(super()._read_rows(X, y, 1.0, groups), has_grants=False)

    def plan(
        self,
        epsilon: BudgetLike | None = None,
        groups: ColumnLike | None = None,
        rows: int | None = None,
        n_features: int | None = None,
    ) -> Plan:
        """Return what a fit will cost whom, and how accurate it will be; no value is needed.

        Parameters
        ----------
        epsilon : BudgetLike, optional
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.
        rows : int, optional
            How many rows there are, where neither epsilon nor groups tells.
        n_features : int, optional
            How many features there are, where the bounds do not tell.

        Returns
        -------
        Plan
            What it will cost whom, and how accurate it will be.

        Raises
        ------
        InvalidInput
            A budget, bound or parameter cannot be used.
        """
        recoding = self._make_recoding(n_features)
        granted = self._get_grants(epsilon)
        if epsilon is None and find_schema(self).budget is not None:
            raise InvalidParameter(
                "The schema says that everybody's own ε is in a column, and none is given.",
                "A plan has no table in which it could be looked up.",
                "Pass epsilon=.",
                parameter="epsilon",
            )
        budgets = make_budgets(1.0 if granted is None else granted, groups, rows, find_schema(self))
        return self._make_plan(budgets, recoding, granted is not None)

    def validate(self) -> None:
        """Refuses bounds and parameters that are wrong for any people."""
        make_label(self)
        width = count_declared_columns(self.bounds, self.missing)
        self._refuse_unknown()
        check_flag(self.fit_intercept, "fit_intercept")
        if width:
            self._make_ball(self._make_recoding(None))

    def read_arrays(self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None) -> Dataset:
        """Returns the budgets and rows of features and label in memory, the rows in the unit
        ball.
        """
        X, y = data
        label, recoding = self._make_label_and_recoding(X)
        raw = to_matrix(X, recoding)
        column = to_numbers(y, "labels")
        check_same_length(len(raw), y=column, groups=groups)
        granted = self._get_grants(epsilon)
        budgets = make_budgets(1.0 if granted is None else granted, groups, len(column))
        ball = self._make_ball(recoding)
        bounds = self.bounds
        if isinstance(bounds, Bounds) and bounds.features is None and bounds.norm is not None:
            raw = posterior_mechanism.shorten_rows(raw, bounds.norm)
        reader = UnitBallReader(ball, recoding)
        return load_matrix(ball.encode(raw, recoding), reader, column, label, budgets)

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets, which are grants unless the rows say otherwise."""
        if rows is None:
            return super().plan_for(budgets)
        return self._make_plan(budgets, rows.features.recoding, rows.has_grants)

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows, draws the sample, and returns the release."""
        given = plan.parameters
        ball = UnitBall.from_dict(given["ball"])
        recoding = Recoding.from_dict(given["features"])
        middle, half = posterior_mechanism.get_label_scale(
            to_interval(given["label"]), given["fit_intercept"]
        )
        total, cross = posterior_mechanism.compute_gram(
            rows, ball, plan.weights.row * given["weight_unit"], (middle, half)
        )
        theta, told = self._draw_sample(plan, total, cross)
        constant, slopes = ball.to_original_units(half * theta)
        model = describe_model(recoding, middle + constant, slopes)
        if not given["fit_intercept"]:
            model["intercept"] = 0.0
        return Release.of(plan, {**model, "theta": theta.tolist(), **told})

    def _list_functions(self, release: Release, recoding: Recoding) -> Floats:
        given = release.parameters
        ball = UnitBall.from_dict(given["ball"])
        label = to_interval(given["label"])
        half = posterior_mechanism.get_label_scale(label, given["fit_intercept"])[1]
        columns = []
        for unit in np.eye(ball.width):
            constant, slopes = ball.to_original_units(half * unit)
            intercept, coefficients = recoding.to_original_units(constant, slopes)
            columns.append([intercept * given["fit_intercept"], *coefficients])
        return np.array(columns).T

    def _get_middle(self, release: Release) -> float:
        given = release.parameters
        label = to_interval(given["label"])
        return posterior_mechanism.get_label_scale(label, given["fit_intercept"])[0]

    def _make_plan(self, budgets: Budgets, recoding: Recoding, granted: bool = True) -> Plan:
        self._refuse_unknown()
        label = to_interval(self.bounds)
        ball = self._make_ball(recoding)
        person_weights = self._make_weights(budgets.kinds, ball.width, granted)
        highest = MOST_CONDITION * person_weights.account.floor
        if not self._bound_eigenvalue(person_weights) < highest:
            raise InvalidParameter(
                "There is next to no regularisation: the sample could not be computed well "
                "enough to be published.",
                f"The largest eigenvalue that can be must stay below {MOST_CONDITION:g} times λ, "
                "or the floor.",
                "Choose a larger alpha, or floor.",
                parameter="alpha",
            )
        if not granted:  # what it costs is what is promised
            kinds = BudgetGroups(person_weights.charges, budgets.kinds.rows, budgets.kinds.people)
            budgets = replace(budgets, kinds=kinds)
        fit_intercept = check_flag(self.fit_intercept, "fit_intercept")
        half = posterior_mechanism.get_label_scale(label, fit_intercept)[1]
        guarantee = Guarantee.of(budgets, person_weights.charges, arithmetic="floating")
        return Plan(
            question=self.question,
            parameters={
                **self._list_parameters(person_weights),
                "delta": float(self.delta),
                "fit_intercept": fit_intercept,
                "label": list(label),
                "features": recoding.to_dict(),
                "ball": ball.to_dict(),
                "weight_unit": person_weights.unit,
            },
            budgets=budgets,
            weights=person_weights.weights,
            guarantee=replace(
                guarantee, neighbours="zero out", currency="epsilon, delta", delta=float(self.delta)
            ),
            noise={
                "distribution": "one sample of the posterior",
                **self._describe_noise(person_weights),
            },
            grid=self._make_grid(person_weights),
            theorem=self.theorem,
            error=self._estimate_error(person_weights, recoding, ball, budgets, half),
        )

    def _estimate_error(
        self,
        person_weights: PosteriorWeights,
        recoding: Recoding,
        ball: UnitBall,
        budgets: Budgets,
        half: float,
    ) -> ExpectedError:
        """What is expected of ridge regression on rows of the ball, with the noise of one draw."""
        facts = PublicFacts.of(recoding, budgets, person_weights.weights)
        # Squares of columns, in the ball.
        shorter = (1 - ball.intercept**2) / (ball.radius * ball.spread) ** 2
        if facts.slopes:
            inside = replace(facts, even=facts.even * float(np.mean(shorter)))
        else:
            inside = facts
        ridge, gamma = self._get_ridge_and_gamma(
            person_weights, min(C for C, _, _ in inside.columns) * person_weights.total
        )
        noise = 1 / (gamma * person_weights.total)
        parts = estimate_ridge_error(
            inside, ridge / person_weights.total, ball.intercept, 0.0, 0.0, noise
        )
        error = make_expected_error(parts, facts, budgets, person_weights.weights, half)
        return replace(error, classical=least_squares(self.fit_intercept))

    @abstractmethod
    def _make_weights(self, kinds: BudgetGroups, columns: int, granted: bool) -> PosteriorWeights:
        """Return the weights of everybody, and what they pay."""

    @abstractmethod
    def _list_parameters(self, person_weights: PosteriorWeights) -> dict[str, Any]:
        """Return the public parameters of a plan."""

    @abstractmethod
    def _describe_noise(self, person_weights: PosteriorWeights) -> dict[str, Any]:
        """Return the noise of a plan, as public facts."""

    def _get_ridge_and_gamma(
        self, person_weights: PosteriorWeights, smallest: float
    ) -> tuple[float, float]:
        raise NotImplementedError

    def _draw_sample(self, plan: Plan, total: Reals, cross: Reals) -> tuple[Floats, dict[str, Any]]:
        raise NotImplementedError

    def _get_grants(self, epsilon: BudgetLike | None) -> Any:
        """What people grant: what fit was told, or what the estimator was made with, or nothing."""
        if epsilon is None:
            return getattr(self, "epsilon", None)
        return epsilon

    def _make_ball(self, recoding: Recoding) -> UnitBall:
        ball = posterior_mechanism.make_unit_ball(
            recoding,
            getattr(self.bounds, "norm", None),
            check_flag(self.fit_intercept, "fit_intercept"),
        )
        if not ball.width:
            raise InvalidData(
                "No feature can vary.",
                "There is nothing to fit without an intercept.",
                "Fit one.",
                parameter="fit_intercept",
            )
        if ball.width > MOST_COLUMNS:
            raise InvalidParameter(
                "There are too many columns.",
                f"At most {MOST_COLUMNS:,} can be.",
                "Use fewer.",
                parameter="X",
            )
        return ball

    def _bound_eigenvalue(self, person_weights: PosteriorWeights) -> float:
        """The largest eigenvalue that H can have, unless an eigenvalue's noise is far out."""
        raise NotImplementedError

    def _make_grid(self, person_weights: PosteriorWeights) -> AnswerGrid:
        """The grid of θ̃: no coordinate has a smaller deviation than the direction of H's largest
        eigenvalue.
        """
        return AnswerGrid.below(
            1 / math.sqrt(person_weights.account.gamma * self._bound_eigenvalue(person_weights))
        )

    @property
    def _sure_delta(self) -> float:
        """The δ at which charges are read: what rounding can add to it is less than what is
        left.
        """
        return float(self.delta) * (1 - 2.0**-30)

    def _refuse_unknown(self) -> None:
        if is_between(self.delta, 0, LEAST_DELTA):
            raise InvalidParameter(
                f"δ is smaller than {LEAST_DELTA:g}.",
                "A ledger counts δ in such units, and the finite precision of a sample is covered "
                "from there on.",
                f"Take a δ of {LEAST_DELTA:g} or more, far below one over the number of people.",
                parameter="delta",
            )
        if not is_between(self.delta, 0, 1):
            raise InvalidParameter(
                "δ is missing, or not between 0 and 1.",
                "A posterior sample has no pure ε: every promise is an ε at a δ, the same for all.",
                "Give a δ far below one over the number of people.",
                parameter="delta",
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.regressor_tags.poor_score = True
        return tags


PAGE = "docs/theory/posterior.md"
ACCOUNTANTS: dict[str, type[posterior_mechanism.AdaptiveRidgeAccountant]] = {
    "renyi": posterior_mechanism.AdaptiveRidgeAccountant,
    "simple": posterior_mechanism.SimpleAdaptiveAccountant,
}


@dataclass(frozen=True)
class GridWithEigenvalue(AnswerGrid):
    """The grid of θ̃, and that of λ̃."""

    eigenvalue: AnswerGrid

    def to_dict(self) -> dict[str, Any]:
        """Both as public JSON."""
        return {**super().to_dict(), "eigenvalue_step": self.eigenvalue.to_dict()["answer_step"]}


#: An eigenvalue is taken to be so many deviations of its noise below what was released.
SAFE_DEVIATIONS = 3.0
#: A floor under eigenvalues is no higher: against it one row is still seen in doubles.
HIGHEST = 1e12


class PosteriorSample(Posterior):
    """One sample from the posterior of a linear regression, each person with the weight that their
    own (ε, δ) allows.

    **Question.** Which linear function of the features predicts the label? Rows longer than the
    norm in ``bounds`` are scaled back to it, labels are clipped.

    **Promise.** (ε_l, δ) for each person l (each row, without ``groups``), neighbours by zeroing
    out all their rows: the answer is nearly as likely without them. Floating arithmetic. Never
    added to an account of replaced rows.

    **Formula.** θ̃ ~ N(θ̂, H⁻¹/γ), H = Σ wφφᵀ + λI; D_α ≤ D_α(μ = W_l/λ, a = √(γW_l)·R_l)
    (docs/theory/posterior.md, theorem 1). Without ``epsilon`` every row weighs 1 and the promise
    follows; with it, weights follow from it.

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 2000)[:, None]
    >>> model = sv.PosteriorSample(
    ...     gamma=5.0, alpha=50.0, bounds=sv.Bounds(norm=1.0, label=(-1, 1)), delta=1e-6
    ... )
    >>> fitted = model.fit(x, x[:, 0] / 2, epsilon=1.0)
    >>> bool(np.all(fitted.guarantee_.epsilon <= 1.0)), fitted.predict(x).shape
    (True, (2000,))

    **Limits.** λ is what protects people whose row lies in a direction of its own: with a small one
    ε is large, or weights are small; and the smaller the weights, the more λ shrinks.

    Parameters
    ----------
    gamma :
        How concentrated the sample is around the ridge solution; a public number.
    alpha :
        Regularisation λ, for rows in the unit ball and labels in [−1, 1]; a public number.
    bounds :
        Bounds with the norm of rows or a box of features, and the label's range; or a Schema.
    delta :
        The δ of every promise, far below one over the number of people, and at least 10⁻¹⁵.
    fit_intercept :
        Whether there is a constant term; it is regularised, and counts in the norm.
    missing :
        Public constant between all bounds that stands for missing values; a schema declares one for
        each column.
    """

    question = "posterior sample"
    theorem = Theorem(
        "Posterior sample: each person l loses at most a row of leverage W_l/λ and residual "
        "√γW_l·R_l does (ε at δ, zero out)",
        PAGE,
    )

    def __init__(
        self,
        gamma: float = 1.0,
        alpha: float = 1.0,
        bounds: BoundsLike | None = None,
        *,
        delta: float = 1e-6,
        fit_intercept: bool = False,
        missing: float | None = None,
    ) -> None:
        self.gamma = gamma
        self.alpha = alpha
        self.bounds = bounds
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.missing = missing

    def _make_weights(self, kinds: BudgetGroups, columns: int, granted: bool) -> PosteriorWeights:
        account = posterior_mechanism.FixedRidgeAccountant(
            float(self.gamma), float(self.alpha), self._sure_delta
        )
        if granted:
            return posterior_mechanism.solve_personal_weights(kinds, account)
        return PosteriorWeights.equal(kinds, account)

    def _list_parameters(self, person_weights: PosteriorWeights) -> dict[str, Any]:
        return {"gamma": float(self.gamma), "alpha": float(self.alpha)}

    def _describe_noise(self, person_weights: PosteriorWeights) -> dict[str, Any]:
        return {"gamma": float(self.gamma), "loudest_weight": person_weights.loudest}

    def _find_ends(self, release: Release, functions: Floats, level: float) -> Ends | str:
        """Of a fit that is shrunk by the same λ: no kᵀH⁻¹k exceeds |k|²/λ."""
        noise = release.noise
        value: dict[str, Any] = release.value  # type: ignore[assignment]
        if "loudest_weight" not in noise:
            return EARLIER
        alpha = release.parameters["alpha"]
        theta = np.array(value["theta"])
        shrunk = ShrunkSample(
            theta, alpha, noise["gamma"], UNEQUAL_SPREAD * noise["loudest_weight"]
        )
        return shrunk.find_ends(functions, level)

    def _get_ridge_and_gamma(
        self, person_weights: PosteriorWeights, smallest: float
    ) -> tuple[float, float]:
        return float(self.alpha), float(self.gamma)

    def _bound_eigenvalue(self, person_weights: PosteriorWeights) -> float:
        return person_weights.total + float(self.alpha)

    def _draw_sample(self, plan: Plan, total: Reals, cross: Reals) -> tuple[Floats, dict[str, Any]]:
        return plan.grid.nearest(
            posterior_mechanism.draw_sample(
                total, cross, plan.parameters["alpha"], plan.noise["gamma"]
            )
        ), {}

    def _refuse_unknown(self) -> None:
        super()._refuse_unknown()
        for name in ("gamma", "alpha"):
            if not is_measurable(getattr(self, name)):
                raise InvalidParameter(
                    f"{name} is not between {1 / MEASURE:g} and {MEASURE:g}.",
                    "Without regularisation a single row can move the sample without limit, and "
                    "there is no promise.",
                    "Give a public number, such as 1.",
                    parameter=name,
                )


class AdaptivePosteriorSample(Posterior):
    """One posterior sample that regularises only as much as the data need, at a given (ε, δ) for
    each person.

    **Question.** As in PosteriorSample, without a λ to choose: the smallest eigenvalue of Σ wφφᵀ is
    released with noise, and λ is what is missing to the floor h.

    **Promise.** (ε_l, δ) for each person l (each row, without ``groups``) for both releases
    together, neighbours by zeroing out all their rows. Floating arithmetic. Never added to an
    account of replaced rows.

    **Formula.** D_α ≤ αW_l²/(2σ₁²) + D_α(μ = W_l/h, a = √(γW_l)·(1 + √((S−W_l)/h))), read at δ − δ₃
    (docs/theory/posterior.md, theorem 2); σ₁, h and γ by the public rule of section 5.

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 2000)[:, None]
    >>> model = sv.AdaptivePosteriorSample(
    ...     epsilon=1.0, delta=1e-6, bounds=sv.Bounds(norm=1.0, label=(-1, 1))
    ... )
    >>> fitted = model.fit(x, x[:, 0] / 2)
    >>> bool(np.all(fitted.guarantee_.epsilon <= 1.0))
    True
    >>> bool(0.2 < fitted.coef_[0] < 0.4)  # half, shrunk by the floor
    True

    **Limits.** Made for many rows of well-spread features: where h is above what the data have, the
    model is shrunk. The number of rows is public.

    Parameters
    ----------
    epsilon :
        What each grants, unless fit, or a schema with a column of budgets, says otherwise.
    delta :
        The δ of every promise, far below one over the number of people, and at least 10⁻¹⁵.
    bounds :
        Bounds with the norm of rows or a box of features, and the label's range; or a Schema.
    calibration :
        "renyi", or "simple" to add up the exact ε of the two releases.
    condition :
        How many times smaller than the mean the smallest eigenvalue is expected to be: h =
        n/(d·condition), and less by the cube root of ε where people grant more than 1 on average.
    floor :
        H itself; None: chosen, and raised if budgets are too small for it.
    share :
        The part of ε that would pay for the eigenvalue alone.
    fit_intercept :
        Whether there is a constant term; it counts in the norm.
    missing :
        Public constant between all bounds that stands for missing values; a schema declares one for
        each column.
    """

    question = "adaptive posterior sample"
    theorem = Theorem(
        "Adaptive posterior sample: each person l loses at most what Gaussian noise on an "
        "eigenvalue and a row of leverage W_l/h do (ε at δ, zero out)",
        PAGE,
    )

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: BoundsLike | None = None,
        *,
        calibration: str = "renyi",
        condition: float = 2.0,
        floor: float | None = None,
        share: float = 0.2,
        fit_intercept: bool = False,
        missing: float | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.calibration = calibration
        self.condition = condition
        self.floor = floor
        self.share = share
        self.fit_intercept = fit_intercept
        self.missing = missing

    def _make_weights(self, kinds: BudgetGroups, columns: int, granted: bool) -> PosteriorWeights:
        # Lower where people grant more: the floor shrinks the model, and ε → ∞ leaves it alone.
        usual = float(units.to_epsilon(kinds.epsilon) @ kinds.people) / float(kinds.people.sum())
        lowered = self.condition * max(usual, 1.0) ** (1 / 3)
        floor = float(kinds.rows @ kinds.people) / (columns * lowered)
        account = ACCOUNTANTS[self.calibration](0.0, floor, self._sure_delta, 1.0)
        return posterior_mechanism.solve_adaptive_weights(
            kinds, account, float(self.share), None if self.floor is None else float(self.floor)
        )

    def _list_parameters(self, person_weights: PosteriorWeights) -> dict[str, Any]:
        return {
            "calibration": self.calibration,
            "condition": float(self.condition),
            "share": float(self.share),
        }

    def _describe_noise(self, person_weights: PosteriorWeights) -> dict[str, Any]:
        account = person_weights.account
        loudest = person_weights.loudest
        return {
            "gamma": account.gamma,
            "floor": account.floor,
            "eigenvalue_standard_deviation": account.spread,
            "margin": account.margin(loudest, person_weights.total),
            "loudest_weight": loudest,
        }

    def _bound_eigenvalue(self, person_weights: PosteriorWeights) -> float:
        return float(
            person_weights.total
            + person_weights.account.floor
            + self._describe_noise(person_weights)["margin"]
        )

    def _make_grid(self, person_weights: PosteriorWeights) -> AnswerGrid:
        return GridWithEigenvalue(
            super()._make_grid(person_weights).exponent,
            AnswerGrid.below(person_weights.account.spread),
        )

    def _get_ridge_and_gamma(
        self, person_weights: PosteriorWeights, smallest: float
    ) -> tuple[float, float]:
        noise = self._describe_noise(person_weights)
        return max(noise["floor"] + noise["margin"] - smallest, 0.0), float(noise["gamma"])

    def _draw_sample(self, plan: Plan, total: Reals, cross: Reals) -> tuple[Floats, dict[str, Any]]:
        noise = plan.noise
        drawn = posterior_mechanism.add_eigenvalue_noise(
            total, noise["eigenvalue_standard_deviation"]
        )
        # Rounded before anything rests on it: λ_n follows from the number that is published.
        noisy = float(plan.grid.eigenvalue.nearest([drawn])[0])
        ridge = float(
            posterior_mechanism.compute_missing_ridge(noisy, noise["floor"], noise["margin"])
        )
        theta = plan.grid.nearest(
            posterior_mechanism.draw_sample(total, cross, ridge, noise["gamma"])
        )
        return theta, {"noisy_eigenvalue": noisy, "regularisation": ridge}

    def _find_ends(self, release: Release, functions: Floats, level: float) -> Ends | str:
        noise = release.noise
        value: dict[str, Any] = release.value  # type: ignore[assignment]
        if "loudest_weight" not in noise:
            return EARLIER
        least = value["noisy_eigenvalue"] - SAFE_DEVIATIONS * noise["eigenvalue_standard_deviation"]
        if least <= 0:
            return (
                "The released eigenvalue cannot be told from noise, so nothing bounds the spread."
            )
        bound = EigenvalueBound(
            theta=np.array(value["theta"]),
            least=least,
            ridge=value["regularisation"],
            gamma=noise["gamma"],
            pull=noise["loudest_weight"],
            sampling_from=FROM_BOUNDS,
        )
        return bound.find_ends(functions, level)

    def _set_fitted(
        self, release: Release, guarantee: Guarantee | None = None, X: TableLike | None = None
    ) -> None:
        super()._set_fitted(release, guarantee, X)
        value: dict[str, Any] = release.value  # type: ignore[assignment]
        self.noisy_eigenvalue_ = value["noisy_eigenvalue"]
        self.regularisation_ = value["regularisation"]

    def _refuse_unknown(self) -> None:
        super()._refuse_unknown()
        if self.calibration not in ACCOUNTANTS:
            raise InvalidParameter(
                "The calibration is not known.",
                f"There are {' and '.join(ACCOUNTANTS)}.",
                "Choose one of them.",
                parameter="calibration",
            )
        if not is_measurable(self.condition):
            raise InvalidParameter(
                "condition is not positive.",
                "",
                "Pass a public number, such as 2.",
                parameter="condition",
            )
        if not is_between(self.share, 0, 1):
            raise InvalidParameter(
                "share is not between 0 and 1.",
                "",
                "Pass a public number, such as 0.2.",
                parameter="share",
            )
        if self.floor is not None and not is_between(self.floor, 0, HIGHEST):
            raise InvalidParameter(
                f"The floor is not positive and below {HIGHEST:g}.",
                "",
                "Pass a public number, or None.",
                parameter="floor",
            )
