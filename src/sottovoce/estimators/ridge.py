# SPDX-License-Identifier: Apache-2.0
"""Linear regression with a budget a person, in four methods under one name.

method          what it is                                             proof
"objective"     objective perturbation in stages (the default)         docs/theory/objective.md
"statistics"    noisy sums of products, exact integers                 docs/theory/moments.md
"output-tight"  noise on the ridge solution, the best constant         docs/theory/output.md
"output"        the same as published                                  docs/theory/output.md
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sottovoce.arrays import ColumnLike, Floats, TableLike, to_matrix
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.encoding import Recoding
from sottovoce.data.engine import Dataset
from sottovoce.data.readers import Label
from sottovoce.data.source import DataSource, describe_rows, find_schema
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import (
    count_declared_columns,
    load_regression,
    make_budgets,
    make_label,
    make_recoding,
    make_release,
    read_source,
    set_fitted_attributes,
)
from sottovoce.estimators import ridge_objective, ridge_output, ridge_statistics
from sottovoce.estimators.base import LinearModel, LoadableEstimator, RegressorMixin
from sottovoce.plan import Plan
from sottovoce.release import Release
from sottovoce.schema import (
    MEASURE,
    BoundsLike,
    Interval,
    check_flag,
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


METHODS: dict[str, Method] = {
    "objective": ridge_objective,
    "statistics": ridge_statistics,
    "output-tight": ridge_output,
    "output": ridge_output,
}


class Ridge(LoadableEstimator, RegressorMixin, LinearModel):
    """Linear regression, each person with the weight that their own ε allows.

    **Question.** Which linear function of the features predicts the label? Features and label lie
    in ``bounds``; values beyond are clipped.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, features and label; floating arithmetic, except
    ``method="statistics"``, which is exact.

    **Formula.** By default objective perturbation with the soft Huber loss, in stages that first
    buy the labels' scale and fit slopes only where these can pay for their noise
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
        "soft" or "huber", for the objective method.
    label_scale :
        Public guess of the labels' standard deviation; saves the budget that would buy it.
    coefficient_bound :
        A promise that the solution's norm stays below it (method "output" only).
    rho :
        For "statistics": True to count budgets in ρ of zCDP and add Gaussian noise.
    missing :
        Public constant between all bounds that stands for missing values; a schema declares one for
        each column.
    """

    _recoding: Recoding
    intercept_: float

    def __init__(
        self,
        bounds: BoundsLike | None = None,
        *,
        method: str = "objective",
        alpha: float | None = None,
        loss: str = "soft",
        label_scale: float | None = None,
        coefficient_bound: float | None = None,
        rho: bool = False,
        missing: float | None = None,
    ) -> None:
        self.bounds = bounds
        self.method = method
        self.alpha = alpha
        self.loss = loss
        self.label_scale = label_scale
        self.coefficient_bound = coefficient_bound
        self.rho = rho
        self.missing = missing

    later = ("missing",)  # what older books do not know about a question

    def fit(
        self,
        X: TableLike,
        y: ColumnLike | None = None,
        epsilon: BudgetLike | None = None,
        groups: ColumnLike | None = None,
    ) -> Self:
        """Fit the label y on the features X.

        Parameters
        ----------
        X : TableLike
            Features: a table in memory, or one that lives elsewhere (a path, a DuckDB relation, a
            dataset of Arrow, a data frame of Spark or Dask), of which y, groups and epsilon then
            name columns.
        y : ColumnLike, optional
            Labels, or the name of their column; a schema may name it.
        epsilon : BudgetLike, optional
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.

        Returns
        -------
        Self
            The fitted estimator.

        Raises
        ------
        InvalidInput
            Something cannot be used; nobody is charged.
        ReleaseFailed
            Reading the rows failed; what was charged stays charged.
        """
        dataset = read_source(self, DataSource.of(self, X, y, epsilon, groups))
        plan, release = make_release(self, dataset)
        set_fitted_attributes(self, release, plan.guarantee, X)
        return self

    def plan(
        self,
        epsilon: BudgetLike,
        groups: ColumnLike | None = None,
        rows: int | None = None,
        n_features: int | None = None,
    ) -> Plan:
        """Return what a fit will cost whom, and how accurate it will be; no value is needed.

        Parameters
        ----------
        epsilon : BudgetLike
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
        label, recoding = self._make_label_and_recoding(n_features)
        budgets = make_budgets(epsilon, groups, rows, find_schema(self))
        return self._get_method().plan_for(self, budgets, recoding, (label.low, label.high))

    def asked_parameters(self) -> dict[str, Any]:
        """Return the parameters that a request is remembered by.

        Returns
        -------
        dict[str, Any]
            Parameters by name; the default method has no λ, and 1.0 still stands for it.
        """
        given: dict[str, Any] = self.get_params()
        if self.method == "objective" and self.alpha is None:
            return {**given, "alpha": 1.0}
        return given

    def validate(self) -> None:
        """Refuses bounds and parameters that are wrong for any people."""
        label = make_label(self)
        width = count_declared_columns(self.bounds, self.missing)
        self._get_method().validate(self, (label.low, label.high), width)

    def gather(self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None) -> Dataset:
        """Returns the budgets and rows of features and label in memory."""
        X, y = data
        label, recoding = self._make_label_and_recoding(X)
        return load_regression(to_matrix(X, recoding), recoding, y, label, epsilon, groups)

    def rows_of(self, table: DataSource) -> Dataset:
        """Returns the features and the label that are read of a table."""
        label, recoding = self._make_label_and_recoding(table.list_features(self.bounds))
        return describe_rows(replace(label, column=table.find_label()), recoding)

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets; without rows the bounds must tell how many features there
        are.
        """
        if rows is None:
            label, recoding = self._make_label_and_recoding(None)
        else:
            label, recoding = (rows.label, rows.features.recoding)
        return self._get_method().plan_for(self, budgets, recoding, (label.low, label.high))

    def answer(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows, draws the noise, and returns the release."""
        content = self._get_method().fit_noisy_model(self, plan, rows)
        theta = content.pop("theta")
        label = to_interval(plan.parameters["label"])
        recoding = Recoding.from_dict(plan.parameters["features"])
        half = (label[1] - label[0]) / 2
        middle = (label[1] + label[0]) / 2
        intercept, coefficients = recoding.to_original_units(
            middle + half * theta[0] / 2, half * theta[1:]
        )
        value = {
            "intercept": intercept,
            "coefficients": dict(zip(recoding.names, coefficients.tolist(), strict=True)),
        }
        return Release.of(plan, {**value, **content})

    def predict(self, X: TableLike) -> Floats:
        """Return predictions in the label's units; features are clipped as in fit.

        Parameters
        ----------
        X : TableLike
            Features of new rows, with the columns that were declared.

        Returns
        -------
        Floats
            One prediction a row.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        """
        check_is_fitted(self, "coef_")
        raw = to_matrix(X, self._recoding, expected=self.n_features_in_)
        return predict_linear(self._recoding, raw, self.intercept_, self.coef_)

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
        if not is_one_of(self.loss, ("soft", "huber")):
            raise InvalidParameter(
                "The loss is neither 'soft' nor 'huber'.",
                "",
                "Choose one of the two.",
                parameter="loss",
            )
        check_flag(self.rho, "rho")
        return METHODS[self.method]

    def _make_label_and_recoding(self, X: TableLike | int | None) -> tuple[Label, Recoding]:
        """The label and the recoding, from what was declared (X only tells how many columns there
        are).
        """
        label = make_label(self)
        return label, make_recoding(self.bounds, X, self.missing)


def predict_linear(
    recoding: Recoding, raw: Floats, intercept: float, coefficients: Floats
) -> Floats:
    """Returns intercept + Σ coefficient·feature, numbers clipped to their bounds, levels by their
    own coefficient.
    """
    total = np.full(len(raw), float(intercept))
    at = 0
    for j, feature in enumerate(recoding.features):
        if feature.levels:
            own = np.append(coefficients[at : at + len(feature.levels)], 0.0)
            known = (raw[:, j] >= 0) & (raw[:, j] < len(feature.levels))
            total += own[np.where(known, raw[:, j], -1).astype(np.int64)]
            at += len(feature.levels)
        else:
            total += coefficients[at] * np.clip(raw[:, j], feature.low, feature.high)
            at += 1
    return total
