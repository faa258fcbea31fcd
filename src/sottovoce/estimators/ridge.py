# SPDX-License-Identifier: Apache-2.0
"""Linear regression with a budget a person, in seven methods under one name.

method                what it is                                       proof, in docs/theory
"objective"           objective perturbation in stages (the default)   objective.md
"objective-gaussian"  the same with Gaussian noise, for (ε, δ)         gaussian-objective.md
"statistics"          noisy sums of products, exact integers           moments.md
"adassp"              noisy sums in stages, Gaussian, for (ε, δ) and ρ adassp.md
"descent"             noisy gradient descent, for (ε, δ), scarce       erm.md
"output-tight"        noise on the ridge solution, the best constant   output.md
"output"              the same as published                            output.md

"auto" is "objective" for a pure promise, "adassp" for budgets in ρ, and for ε at a δ whichever of
the first two and "adassp" the plan expects to miss least, or "descent" where it expects all of them
to miss much.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Protocol

from sklearn.utils.validation import check_is_fitted

from sottovoce.arrays import ColumnLike, Floats, TableLike, to_matrix
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.encoding import (
    Label,
    Recoding,
    count_declared_columns,
    describe_model,
    make_label,
)
from sottovoce.data.engine import Dataset
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import load_regression
from sottovoce.estimators import (
    ridge_adassp,
    ridge_descent,
    ridge_objective,
    ridge_origin,
    ridge_output,
    ridge_statistics,
)
from sottovoce.estimators.base import LinearRegressor
from sottovoce.estimators.column import LoadableEstimator
from sottovoce.estimators.model_intervals import Ends, IntervalsByFunction
from sottovoce.plan import Plan, least_squares
from sottovoce.release import Release
from sottovoce.schema import (
    MEASURE,
    Bounds,
    BoundsLike,
    Interval,
    check_flag,
    check_interval_share,
    is_measurable,
    is_one_of,
    to_interval,
)


class Method(Protocol):
    """What each of the methods offers."""

    def validate(self, ridge: Ridge, label: Interval, width: int) -> None:
        """Refuses parameters that are wrong for any people; ``width`` is the number of recoded
        columns, 0 where only a table tells it.
        """

    def plan_for(self, ridge: Ridge, budgets: Budgets, recoding: Recoding, label: Interval) -> Plan:
        """Returns the plan, from public facts alone."""

    def fit_noisy_model(self, ridge: Ridge, plan: Plan, rows: Dataset) -> dict[str, Any]:
        """Reads the rows and returns what may be published: at least theta, for recoded features
        and label.
        """

    def find_ends(self, release: Release, functions: Floats, level: float) -> Ends | str:
        """Returns the ends of the intervals of linear functions of theta, a row each, from the
        release alone; or why there are none.
        """


METHODS: dict[str, Method] = {
    "objective": ridge_objective,
    ridge_objective.GAUSSIAN: ridge_objective,
    "statistics": ridge_statistics,
    "output-tight": ridge_output,
    "output": ridge_output,
    "adassp": ridge_adassp,
    "descent": ridge_descent,
}
#: The method that stands for others: the plan chooses.
AUTO = "auto"


def find_method(name: str, fit_intercept: bool) -> Method:
    """Return the method of this name; without an intercept the default one has other stages."""
    if name == "objective" and not fit_intercept:
        return ridge_origin
    return METHODS[name]


#: What the objective method may estimate; "soft" is how older versions called "squared".
LOSSES = ("squared", "robust", "huber", "soft")
ROBUST_LOSSES = ("robust", "huber")


class Ridge(IntervalsByFunction, LoadableEstimator, LinearRegressor):
    """Linear regression, each person with the weight that their own ε allows.

    **Question.** Which linear function of the features predicts the label? Features and label lie
    in ``bounds``; values beyond are clipped, and rows longer than a ``norm`` are shortened to it.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, features and label; floating arithmetic, except
    ``method="statistics"``, which is exact. With ``delta``, (ε_l, δ) where the plan chooses
    "objective-gaussian", or "adassp" or "descent", whose arithmetic is exact; the plan and the
    release say which promise was made.

    **Formula.** By default objective perturbation with the soft Huber loss, in stages that first
    buy the labels' scale, fit slopes only where these can pay for their noise, and end with what
    was clipped, so that the answer tends to that of least squares as budgets grow
    (docs/theory/objective.md).

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(0, 1, 3000)[:, None]
    >>> ridge = sv.Ridge(bounds=sv.Bounds(features=(0, 1), label=(0, 1))).fit(
    ...     x, x[:, 0], epsilon=1.0
    ... )
    >>> bool(np.all(ridge.guarantee_.epsilon <= 1.0)), ridge.predict(x).shape
    (True, (3000,))

    **Limits.** A plan's expected error is a planning number for typical tables, right within a
    factor of about three. With few people or small budgets the answer is a constant, and the plan
    says so beforehand.

    Parameters
    ----------
    bounds :
        Bounds with features and label, or a Schema (which also knows factors). A norm in Bounds is
        a public bound on the Euclidean length of a row of features, in their own unit, from the
        origin: longer rows are shortened to it, in fit and in predict, and noise is less.
    method :
        "auto", "objective", "objective-gaussian", "statistics", "adassp", "descent", "output-tight"
        or "output". "auto" is "objective" without ``delta``; with it the plan chooses among
        "objective", "objective-gaussian", "adassp" and "descent", from public numbers. The others
        are pure, with or without ``delta``, unless ``rho``.
    alpha :
        Regularisation λ of the output methods and of "statistics", a public number; None: chosen by
        the plan from public numbers, and written into plan and release.
    loss :
        What the objective method estimates. "squared": the mean of the labels, as least squares
        does. "robust": a centre between mean and median, on which labels far away have little pull;
        "huber" is the same by Huber's loss, which costs a logarithm more. "soft" is an older name
        of "squared".
    label_scale :
        Public guess of the labels' standard deviation (without an intercept, of their root mean
        square); saves the budget that would buy it.
    coefficient_bound :
        A promise that the solution's norm stays below it (method "output" only).
    rho :
        For "statistics" and "adassp": True to count budgets in ρ of zCDP and add Gaussian noise.
    missing :
        Public constant between all bounds that stands for missing values; a schema declares one for
        each column.
    association :
        Public bound on how far the labels of people with one budget lie from what everybody's
        model says, on average, in the label's unit, for the objective method. The larger it is,
        the less of a large ε is spent. None: 0, budgets go along with nothing that the features do
        not explain.
    interval_share :
        Share of everybody's ε that buys what intervals need, for the objective method; if not
        given, chosen from public numbers. 0 buys nothing, and intervals are of a fit that is shrunk
        as strongly, as they always are without an intercept.
    fit_intercept :
        False for a model through the origin of the features' and the label's own units; not with
        "adassp". Bounds are then widened to lie around zero, [−m, m] for the larger size m of the
        two, and so is the range of predictions. A factor's levels have coefficients whose sum is 0.
    delta :
        The δ of every promise, far below one over the number of people, if ε at a δ will do. None:
        pure ε.
    """

    later = (
        "missing",
        "association",
        "interval_share",
        "fit_intercept",
        "delta",
    )  # what older books do not know about a question

    def __init__(
        self,
        bounds: BoundsLike | None = None,
        *,
        method: str = AUTO,
        alpha: float | None = None,
        loss: str = "squared",
        label_scale: float | None = None,
        coefficient_bound: float | None = None,
        rho: bool = False,
        missing: float | None = None,
        association: float | None = None,
        interval_share: float | None = None,
        fit_intercept: bool = True,
        delta: float | None = None,
    ) -> None:
        self.bounds = bounds
        self.method = method
        self.alpha = alpha
        self.loss = loss
        self.label_scale = label_scale
        self.coefficient_bound = coefficient_bound
        self.rho = rho
        self.missing = missing
        self.association = association
        self.interval_share = interval_share
        self.fit_intercept = fit_intercept
        self.delta = delta

    def asked_parameters(self) -> dict[str, Any]:
        """Return the parameters that a request is remembered by.

        Returns
        -------
        dict[str, Any]
            Parameters by name; the default method is "objective" where there is no choice, it has
            no λ, and 1.0 still stands for it; "soft" stands for the default loss; an intercept,
            which every model once had, is not told.
        """
        given: dict[str, Any] = self.get_params()
        candidates = self._list_candidates()
        if len(candidates) == 1:
            given["method"] = candidates[0]
        if self.fit_intercept:
            given["fit_intercept"] = None
        if self.loss == "squared":
            given["loss"] = "soft"
        if given["method"] == "objective" and self.alpha is None:
            given["alpha"] = 1.0
        return given

    def validate(self) -> None:
        """Refuses bounds and parameters that are wrong for any people."""
        self._check_parameters()
        label = self._make_label()
        width = count_declared_columns(self.bounds, self.missing)
        if width and not self.fit_intercept:
            width = self._make_recoding(None).width
        for name in self._list_candidates():
            find_method(name, self.fit_intercept).validate(self, (label.low, label.high), width)

    def read_arrays(self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None) -> Dataset:
        """Returns the budgets and rows of features and label in memory."""
        self._check_parameters()
        X, y = data
        label, recoding = self._make_label_and_recoding(X)
        raw = to_matrix(X, recoding)
        methods = [find_method(name, self.fit_intercept) for name in self._list_candidates()]
        rounded = all(getattr(method, "READS_ROUNDED", False) for method in methods)
        once = all(getattr(method, "READS_ONCE", False) for method in methods)
        others = None
        if ridge_descent in methods:
            others = ridge_descent.list_people
        return load_regression(
            raw,
            recoding,
            y,
            label,
            epsilon,
            groups,
            rounded=rounded,
            once=once,
            others=others,
        )

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows, draws the noise, and returns the release."""
        content = find_method(plan.parameters["method"], self.fit_intercept).fit_noisy_model(
            self, plan, rows
        )
        theta = content.pop("theta")
        bought = content.pop("bought", None)
        label = to_interval(plan.parameters["label"])
        recoding = Recoding.from_dict(plan.parameters["features"])
        half = (label[1] - label[0]) / 2
        middle = (label[1] + label[0]) / 2
        model = describe_model(recoding, middle + half * theta[0] / 2, half * theta[1:])
        return Release.of(plan, {**model, **content}, bought)

    def refit(self, alpha: float | None = None, columns: list[str] | None = None) -> Ridge:
        """Return the fit at another λ or on some of the columns; nobody pays for it.

        Parameters
        ----------
        alpha : float, optional
            λ; as it was if not given.
        columns : list[str], optional
            Features to keep; all if not given.

        Returns
        -------
        Ridge
            A copy, from the released statistics.

        Raises
        ------
        InvalidParameter
            The method is not "statistics", or λ or a column cannot be used.
        """
        check_is_fitted(self, "release_")
        if self.release_.parameters["method"] != "statistics":
            raise InvalidParameter(
                "Only noisy statistics can be fitted again for free.",
                "This release holds one model.",
                "Fit with method='statistics', then refit as often as you like.",
                parameter="method",
            )
        return ridge_statistics.refit_statistics(self, alpha, columns)

    @classmethod
    def _adapt_arguments(cls, arguments: dict[str, Any], release: Release) -> dict[str, Any]:
        """Before a norm shortened rows, it was read as a box: such a release is read as one."""
        bounds = arguments["bounds"]
        if not isinstance(bounds, Bounds) or bounds.norm is None:
            return arguments
        recoding = Recoding.from_dict(release.parameters["features"])
        if recoding.norm is not None or recoding.declare_norm(bounds.norm) is recoding:
            return arguments
        box = ([f.low for f in recoding.features], [f.high for f in recoding.features])
        return {**arguments, "bounds": replace(bounds, features=box, norm=None)}

    def _find_ends(self, release: Release, functions: Floats, level: float) -> Ends | str:
        given = release.parameters
        method = find_method(given["method"], given.get("fit_intercept", True))
        return method.find_ends(release, functions, level)

    def _make_plan(self, budgets: Budgets, recoding: Recoding) -> Plan:
        self._check_parameters()
        label = self._make_label()
        if not self.fit_intercept and not recoding.width:
            raise InvalidParameter(
                "Without an intercept nothing is left to fit: every feature can have one value "
                "only, 0.",
                "A model through the origin needs a feature that can be something else.",
                "Declare wider bounds, or leave the intercept in.",
                parameter="fit_intercept",
            )
        plans = []
        for name in self._list_candidates():
            one = copy.copy(self)
            one.method = name
            plans.append(
                find_method(name, self.fit_intercept).plan_for(
                    one, budgets, recoding, (label.low, label.high)
                )
            )
        plan = plans[0]
        if len(plans) > 1:
            plan = ridge_descent.choose_plan(plans)
        if self.fit_intercept:
            return plan
        expected: Any = plan.error
        return replace(
            plan,
            parameters={**plan.parameters, "fit_intercept": False},
            error=replace(expected, classical=least_squares(fit_intercept=False)),
        )

    def _list_candidates(self) -> list[str]:
        """The methods that a plan chooses among, from parameters alone."""
        if self.method != AUTO:
            return [self.method]
        if self.rho is True and self.delta is None:
            return ["adassp"]
        if self.delta is None or not self.fit_intercept or self.loss in ROBUST_LOSSES:
            return ["objective"]
        return ["objective", ridge_objective.GAUSSIAN, "adassp", "descent"]

    def _make_label_and_recoding(self, X: TableLike | int | None) -> tuple[Label, Recoding]:
        label, recoding = super()._make_label_and_recoding(X)
        if isinstance(self.bounds, Bounds) and self.bounds.norm is not None:
            recoding = recoding.declare_norm(self.bounds.norm)
        if self.fit_intercept:
            return label, recoding
        return label.widen_around_zero(), recoding.widen_around_zero()

    def _make_label(self) -> Label:
        label = make_label(self)
        if self.fit_intercept:
            return label
        return label.widen_around_zero()

    def _check_parameters(self) -> None:
        """Refuses parameters that are wrong whatever the method."""
        if not is_one_of(self.method, (AUTO, *METHODS)):
            raise InvalidParameter(
                "There is no such method.",
                f"Methods: {', '.join((AUTO, *METHODS))}.",
                "Choose one.",
                parameter="method",
            )
        if self.alpha is not None and not is_measurable(self.alpha):
            raise InvalidParameter(
                "alpha is not a positive number that doubles can calculate with.",
                f"It lies between {1 / MEASURE:g} and {MEASURE:g}.",
                "Take a public regularisation above 0, or none to have it chosen.",
                parameter="alpha",
            )
        if not is_one_of(self.loss, LOSSES):
            raise InvalidParameter(
                "There is no such loss.",
                f"Losses: {', '.join(LOSSES)}.",
                "Choose one.",
                parameter="loss",
            )
        check_flag(self.rho, "rho")
        check_flag(self.fit_intercept, "fit_intercept")
        check_interval_share(self.interval_share)
        if self.delta is not None:
            ridge_adassp.check_delta(self.delta)
        if self.method == AUTO and self.rho and self.delta is not None:
            raise InvalidParameter(
                "Budgets are said to be both ρ of zCDP and ε at a δ.",
                "They are one of the two.",
                "Pass rho=True or delta=, not both.",
                parameter="delta",
            )
