# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's base classes, with types.

scikit-learn ships none, so that every attribute of a class that inherits from it would be accepted
by a type checker: a misspelt one, too. What type checkers see here is what estimators inherit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

    from sottovoce.arrays import Array, ColumnLike, Floats, TableLike
    from sottovoce.guarantee import Guarantee
    from sottovoce.release import Release

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
    "MetaEstimatorMixin",
    "RegressorMixin",
]


class LinearModel(BaseEstimator):
    """A model with coefficients: what it has when it is fitted."""

    release_: Release
    guarantee_: Guarantee
    coef_: Floats
    n_features_in_: int
    feature_names_in_: Array
