# SPDX-License-Identifier: Apache-2.0
"""What estimators inherit: scikit-learn's base classes with types, and how they are loaded. How
they are read, planned and fitted is in estimator.py.

scikit-learn ships no types, so that every attribute of a class that inherits from it would be
accepted by a type checker: a misspelt one, too. What type checkers see here is what estimators
inherit.

LoadableEstimator is the one way from a release back to its estimator: parameters, bounds, and what
was learnt.

A release made by an earlier version does not say in which form bounds were declared. They are then
rebuilt from the features and the label that it lists, which give the same plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from sklearn.utils.validation import check_is_fitted

from sottovoce.arrays import Array, ColumnLike, Floats, TableLike, to_matrix
from sottovoce.budgets import Budgets
from sottovoce.data.encoding import Recoding
from sottovoce.errors import InvalidParameter, InvalidRelease
from sottovoce.estimator import (
    ColumnSteps,
    ModelSteps,
    RegressionSteps,
    compute_intervals,
    set_fitted_attributes,
)
from sottovoce.estimators import find_question, find_recorded, posterior_mechanism
from sottovoce.guarantee import Guarantee
from sottovoce.release import LEVEL, Intervals, Release, check_level, no_interval_error
from sottovoce.schema import Bounds, Classes, Column, Schema, decode_bounds, is_between

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
    "ColumnEstimator",
    "LinearModel",
    "LinearRegressor",
    "MetaEstimatorMixin",
    "ModelEstimator",
    "RegressorMixin",
]


class IntervalEstimator:
    """An estimator whose release tells between which numbers the value of the population lies.

    A subclass computes it from the release alone, in ``_compute_intervals``; one without has no
    interval.
    """

    release_: Release

    def interval(self, level: float = LEVEL) -> Any:
        """Return between which numbers the value of the population lies; it costs nothing.

        Parameters
        ----------
        level : float
            The probability, at least, with which it does, over the rows drawn and the noise.

        Returns
        -------
        Any
            (low, high); a list of them for several quantiles.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        InvalidParameter
            The level is no probability, or this estimator has no interval.
        """
        return self._find_intervals(level).pairs()

    def _find_intervals(self, level: float) -> Intervals:
        check_is_fitted(self, "release_")
        intervals = compute_intervals(self, self.release_, check_level(level))
        if intervals is None:
            raise no_interval_error()
        if intervals.why is not None:
            raise no_interval_error(intervals.why)
        return intervals

    def _compute_intervals(self, release: Release, level: float) -> Intervals | None:
        """Computes the intervals from the release alone; None where there are none, or intervals
        that say why there are none.
        """
        return None


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


class ColumnEstimator(IntervalEstimator, BaseEstimator, ColumnSteps):
    """A question about one column."""


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


def clip_to_label(predicted: Floats, release: Release) -> Floats:
    """Returns predictions within the range that a release declares for its label, if it does."""
    label = release.parameters.get("label")
    if label is None:
        return predicted
    low, high = label
    return np.asarray(np.clip(predicted, low, high), dtype=np.float64)


def get_association(given: Any) -> float:
    """Returns how far models of people with one budget may lie apart, as a share of a spread; 0
    unless it is given.
    """
    if given is None:
        return 0.0
    if not is_between(given, -1e-300, 1e9):
        raise InvalidParameter(
            "association is not a number from 0 on.",
            "It says how far people with one budget may differ from everybody, as a share of the "
            "spread.",
            "Pass a public guess such as 0.2, 0 if budgets go along with nothing, or nothing.",
            parameter="association",
        )
    return float(given)


def get_owners(budgets: Budgets) -> Array:
    """Returns the person of every row; refuses budgets that do not know."""
    if budgets.codes is None or (budgets.unit == "person" and budgets.owner is None):
        raise InvalidParameter(
            "These budgets do not say which row is whose.",
            "",
            "Build them with Budgets.of.",
            parameter="epsilon",
        )
    if budgets.owner is None:
        return np.arange(budgets.n_people)
    return budgets.owner


class LoadableEstimator:
    """An estimator that can be made again from its release."""

    @classmethod
    def from_release(cls, release: Release) -> Self:
        """Return the fitted estimator that a published release describes.

        Parameters
        ----------
        release :
            of this estimator; ``sv.load`` takes one of any.

        Returns
        -------
        Self
            with ``release_`` and what follows from the release alone: ``value_`` of a column;
            ``coef_``, ``intercept_`` and ``predict`` of a model.

        Raises
        ------
        InvalidRelease
            if the release is not of this estimator, or parts of it are missing or contradict each
            other.
        """
        model: Self = load(release, cls)
        return model


def load(release: Release, expected: Any = None) -> Any:
    """Returns what ``sv.load`` does; ``expected`` is the class that it must be of, None for any."""
    question = find_recorded(getattr(release, "question", None))
    if question is None:
        raise InvalidRelease(
            "No question that is registered makes such a release.",
            "A release says which question it answers.",
            "Take the file as it was made.",
        )
    kind = question.load_class()
    if expected is not None:
        if find_question(expected) is not question:
            raise InvalidRelease(
                f"This release is not of sv.{expected.__name__}.",
                "",
                f"Load one of sv.{expected.__name__}, or use sv.load.",
            )
        kind = expected
    try:
        model = _make_estimator(kind, release)
        _set_fitted(model, release)
        if _is_consistent(model, release):
            return model
    except Exception:
        pass  # raised below: the reason would quote the file
    raise InvalidRelease(
        "The model in this release cannot be used.",
        "A model has a coefficient for each declared number and each level, and a function for "
        "each class.",
        "Take the file as it was made.",
        parameter="release",
    )


def _make_estimator(kind: Any, release: Release) -> Any:
    """The estimator before it was fitted, as far as the release says."""
    given = release.parameters
    names = kind().get_params()
    arguments = {name: given[name] for name in names if name in given}
    if "bounds" in names:
        arguments["bounds"] = _read_bounds(release)
    if release.estimator is not None and "missing" in names:
        arguments["missing"] = release.estimator.get("missing")
    if "label_bounds" in names:
        low, high = given["label"]
        arguments["label_bounds"] = (low, high)
    adapt = getattr(kind, "_adapt_arguments", None)
    if adapt is not None:
        arguments = adapt(arguments, release)
    return kind(**arguments)


def _set_fitted(model: Any, release: Release) -> None:
    own = getattr(model, "_set_fitted", None)
    if own is not None:
        own(release)
    elif isinstance(release.value, dict) and has_public_features(release):
        model.release_ = release
        model.intercept_ = float(release.value["intercept"])
        model.coef_ = np.array(list(release.value["coefficients"].values()), dtype=np.float64)
        model.n_features_in_ = len(model.coef_)
    elif isinstance(release.value, dict):
        set_fitted_attributes(model, release)
    else:
        model.release_ = release
        model.value_ = np.asarray(release.value, dtype=np.float64)
        if not isinstance(release.value, list):
            model.value_ = float(release.value)


def _is_consistent(model: Any, release: Release) -> bool:
    """Whether the parts of the release fit each other."""
    if not isinstance(release.value, dict):
        return bool(np.isfinite(model.value_).all())
    functions = [release.value]
    if "models" in release.value:
        functions = list(release.value["models"].values())
        if list(release.value["models"]) != _name_functions(release.parameters["classes"]):
            return False
    names = _list_coefficients(release)
    numbers = [[one["intercept"], *one["coefficients"].values()] for one in functions]
    named = all(list(one["coefficients"]) == names for one in functions)
    if not named or not np.isfinite(np.array(numbers, dtype=np.float64)).all():
        return False
    model.predict(_make_lowest_row(release))
    return True


def _name_functions(classes: list[Any]) -> list[str]:
    """The names of a classifier's functions: of two classes the second has one, else each."""
    if not all(isinstance(name, str | int | float) for name in classes):
        raise ValueError
    values = list(Classes(tuple(classes)).values)
    if len(values) == 2:
        values = values[1:]
    return [str(value) for value in values]


def _list_coefficients(release: Release) -> list[str]:
    features = release.parameters["features"]
    if has_public_features(release):
        return list(features)
    return Recoding.from_dict(features).names


def has_public_features(release: Release) -> bool:
    """Whether the features are public, and have names alone."""
    return all(isinstance(name, str) for name in release.parameters["features"])


def _make_lowest_row(release: Release) -> Any:
    features = release.parameters["features"]
    if has_public_features(release):
        return np.zeros((1, len(features)))
    recoding = Recoding.from_dict(features)
    row = {f.name: [f.levels[0]] if f.levels else [f.low] for f in recoding.features}
    return pa.table(row)


def find_norm(release: Release) -> float | None:
    """Return the declared bound on ‖x‖ of a posterior sample, or None where a box was declared."""
    given = release.parameters
    if "fit_intercept" not in given or not isinstance(given.get("ball"), dict):
        return None
    recoding = Recoding.from_dict(given["features"])
    radius = float(given["ball"]["radius"])
    ball = posterior_mechanism.make_unit_ball(recoding, radius, given["fit_intercept"])
    if ball.to_dict() == given["ball"]:
        return radius
    return None


def _read_bounds(release: Release) -> Any:
    if release.estimator is None:  # it was made by an earlier version
        return _rebuild_bounds(release)
    return decode_bounds(release.estimator["bounds"])


def _rebuild_bounds(release: Release) -> Any:
    given = release.parameters
    if "bounds" in given:
        low, high = given["bounds"]
        return (low, high)
    if "label" not in given or has_public_features(release):
        return None
    low, high = given["label"]
    features = given["features"]
    norm = find_norm(release)
    if norm is None:
        return _rebuild_schema(features, float(low), float(high))
    if all((f.get("low"), f.get("high")) == (-norm, norm) for f in features):
        return Bounds(norm=norm, label=(low, high))
    box = ([f["low"] for f in features], [f["high"] for f in features])
    return Bounds(features=box, norm=norm, label=(low, high))


def _rebuild_schema(features: list[dict[str, Any]], low: float, high: float) -> Schema:
    columns = {}
    for f in features:
        if f.get("levels"):
            columns[f["name"]] = Column("factor", levels=tuple(f["levels"]))
        else:
            columns[f["name"]] = Column("number", f["low"], f["high"], missing=f["missing"])
    label = "label"
    while label in columns:
        label += "_"
    return Schema(columns={**columns, label: Column("number", low, high)}, label=label)
