# SPDX-License-Identifier: Apache-2.0
"""What models inherit: scikit-learn's base classes with types. How they are read, planned and
fitted is in estimator.py; what needs no scikit-learn is in column.py and model_intervals.py.

scikit-learn ships no types, so that every attribute of a class that inherits from it would be
accepted by a type checker: a misspelt one, too. What type checkers see here is what estimators
inherit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from sklearn.utils.validation import check_is_fitted

from sottovoce.arrays import Array, ColumnLike, Floats, TableLike, to_matrix
from sottovoce.estimator import (
    ModelSteps,
    RegressionSteps,
)
from sottovoce.estimators.column import IntervalEstimator
from sottovoce.estimators.model_intervals import clip_to_label, predict_linear
from sottovoce.guarantee import Guarantee
from sottovoce.release import LEVEL, Release, no_interval_error

if TYPE_CHECKING:

    class BaseEstimator:
        """An object whose parameters are those of its constructor."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Return the parameters by name."""

        def set_params(self, **params: Any) -> Self:
            """Set parameters by name."""

        def __sklearn_tags__(self) -> Any:
            """Return what scikit-learn may expect of the estimator."""

    class RegressorMixin:
        """A model of numbers."""

        def score(
            self, X: TableLike, y: ColumnLike, sample_weight: ColumnLike | None = None
        ) -> float:
            """Return R² of the predictions."""

    class ClassifierMixin:
        """A model of classes."""

        def score(
            self, X: TableLike, y: ColumnLike, sample_weight: ColumnLike | None = None
        ) -> float:
            """Return the share of right predictions."""

    class MetaEstimatorMixin:
        """An estimator around another."""

else:
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "LinearModel",
    "LinearRegressor",
    "MetaEstimatorMixin",
    "ModelEstimator",
    "RegressorMixin",
]


class LinearModel(IntervalEstimator, BaseEstimator):
    """A model with coefficients: what it has when it is fitted."""

    release_: Release
    guarantee_: Guarantee
    coef_: Floats
    n_features_in_: int
    feature_names_in_: Array

    def interval(self, level: float = LEVEL, X: TableLike | None = None) -> Any:
        """Return between which numbers the coefficients, or expected labels, of the population lie;
        it costs nothing.

        Parameters
        ----------
        level : float
            The probability, at least, with which each does, over the rows drawn and the noise.
        X : TableLike, optional
            Features of new rows, with the columns that were declared.

        Returns
        -------
        Any
            Without X a dict from "intercept" and each coefficient's name to (low, high); by the
            name of the function first, where there are several. With X an array of (low, high) for
            the expected label of each row (of a classifier the probability of its second class, or
            of each class).

        Raises
        ------
        NotFittedError
            There is no answer yet.
        InvalidParameter
            The level is no probability, or this estimator has no interval.
        """
        intervals = self._find_intervals(level)
        if X is None:
            return intervals.pairs()
        limits = self._compute_prediction_intervals(self.release_, intervals.level, X)
        if limits is None:
            raise no_interval_error()
        return limits

    def _compute_prediction_intervals(
        self, release: Release, level: float, X: TableLike
    ) -> Floats | None:
        """Computes the intervals of expected labels from the release alone; None where there are
        none.
        """
        return None


class ModelEstimator(LinearModel, ModelSteps):
    """A model of labels by features within declared bounds."""


class LinearRegressor(RegressorMixin, ModelEstimator, RegressionSteps):
    """A model whose label is a number."""

    intercept_: float

    def predict(self, X: TableLike) -> Floats:
        """Return predictions in the label's units; features are clipped as in fit.

        Predictions are clipped to the range that was declared for the label, which is free and
        never further from a label. ``intercept_`` and ``coef_`` are as released.

        Parameters
        ----------
        X : TableLike
            Features of new rows, with the columns that were declared.

        Returns
        -------
        Floats
            One prediction a row, within the label's range.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        """
        check_is_fitted(self, "coef_")
        raw = to_matrix(X, self._recoding, expected=self.n_features_in_)
        predicted = predict_linear(self._recoding, raw, self.intercept_, self.coef_)
        return clip_to_label(predicted, self.release_)
