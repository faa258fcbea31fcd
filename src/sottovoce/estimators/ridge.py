# SPDX-License-Identifier: Apache-2.0
"""Linear regression with a budget a person, in four methods under one name.

method          what it is                                             proof
"objective"     objective perturbation in stages (the default)         docs/theory/objective.md
"statistics"    noisy sums of products, exact integers                 docs/theory/moments.md
"output-tight"  noise on the ridge solution, the best constant         docs/theory/output.md
"output"        the same as published                                  docs/theory/output.md
"""

from __future__ import annotations

from typing import Any, Protocol

from sklearn.utils.validation import check_is_fitted

from sottovoce.arrays import ColumnLike, Floats, to_matrix
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.encoding import Recoding, count_declared_columns, describe_model, make_label
from sottovoce.data.engine import Dataset
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import load_regression
from sottovoce.estimators import ridge_objective, ridge_output, ridge_statistics
from sottovoce.estimators.base import LinearRegressor, LoadableEstimator
from sottovoce.estimators.model_intervals import Ends, IntervalsByFunction
from sottovoce.plan import Plan
from sottovoce.release import Release
from sottovoce.schema import (
    MEASURE,
    BoundsLike,
    Interval,
    check_flag,
    check_interval_share,
    is_measurable,
    is_one_of,
    to_interval,
)


class Method(Protocol):
    """What each of the four methods offers."""

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
    "statistics": ridge_statistics,
    "output-tight": ridge_output,
    "output": ridge_output,
}


#: What the objective method may estimate; "soft" is how older versions called "squared".
LOSSES = ("squared", "robust", "huber", "soft")


class Ridge(IntervalsByFunction, LoadableEstimator, LinearRegressor):
    """Linear regression, each person with the weight that their own ε allows.

    **Question.** Which linear function of the features predicts the label? Features and label lie
    in ``bounds``; values beyond are clipped.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, features and label; floating arithmetic, except
    ``method="statistics"``, which is exact.

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
        Bounds with features and label, or a Schema (which also knows factors).
    method :
        "objective", "statistics", "output-tight" or "output".
    alpha :
        Regularisation λ of the output methods and of "statistics", a public number; None: chosen by
        the plan from public numbers, and written into plan and release.
    loss :
        What the objective method estimates. "squared": the mean of the labels, as least squares
        does. "robust": a centre between mean and median, on which labels far away have little pull;
        "huber" is the same by Huber's loss, which costs a logarithm more. "soft" is an older name
        of "squared".
    label_scale :
        Public guess of the labels' standard deviation; saves the budget that would buy it.
    coefficient_bound :
        A promise that the solution's norm stays below it (method "output" only).
    rho :
        For "statistics": True to count budgets in ρ of zCDP and add Gaussian noise.
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
        given, chosen from public numbers. 0 buys nothing.
    """

    later = (
        "missing",
        "association",
        "interval_share",
    )  # what older books do not know about a question

    def __init__(
        self,
        bounds: BoundsLike | None = None,
        *,
        method: str = "objective",
        alpha: float | None = None,
        loss: str = "squared",
        label_scale: float | None = None,
        coefficient_bound: float | None = None,
        rho: bool = False,
        missing: float | None = None,
        association: float | None = None,
        interval_share: float | None = None,
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

    def asked_parameters(self) -> dict[str, Any]:
        """Return the parameters that a request is remembered by.

        Returns
        -------
        dict[str, Any]
            Parameters by name; the default method has no λ, and 1.0 still stands for it; "soft"
            stands for the default loss.
        """
        given: dict[str, Any] = self.get_params()
        if self.loss == "squared":
            given["loss"] = "soft"
        if self.method == "objective" and self.alpha is None:
            given["alpha"] = 1.0
        return given

    def validate(self) -> None:
        """Refuses bounds and parameters that are wrong for any people."""
        label = make_label(self)
        width = count_declared_columns(self.bounds, self.missing)
        self._get_method().validate(self, (label.low, label.high), width)

    def read_arrays(self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None) -> Dataset:
        """Returns the budgets and rows of features and label in memory."""
        X, y = data
        label, recoding = self._make_label_and_recoding(X)
        return load_regression(to_matrix(X, recoding), recoding, y, label, epsilon, groups)

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows, draws the noise, and returns the release."""
        content = self._get_method().fit_noisy_model(self, plan, rows)
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
        if self.method != "statistics":
            raise InvalidParameter(
                "Only noisy statistics can be fitted again for free.",
                "This release holds one model.",
                "Fit with method='statistics', then refit as often as you like.",
                parameter="method",
            )
        return ridge_statistics.refit_statistics(self, alpha, columns)

    def _find_ends(self, release: Release, functions: Floats, level: float) -> Ends | str:
        method = METHODS[release.parameters["method"]]
        return method.find_ends(release, functions, level)

    def _make_plan(self, budgets: Budgets, recoding: Recoding) -> Plan:
        label = make_label(self)
        return self._get_method().plan_for(self, budgets, recoding, (label.low, label.high))

    def _get_method(self) -> Method:
        if not is_one_of(self.method, METHODS):
            raise InvalidParameter(
                "There is no such method.",
                f"Methods: {', '.join(METHODS)}.",
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
        check_interval_share(self.interval_share)
        return METHODS[self.method]
