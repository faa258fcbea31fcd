# SPDX-License-Identifier: Apache-2.0
"""What every estimator inherits without scikit-learn: its interval, and how it is loaded; and the
base of questions about columns, which need no more.

scikit-learn takes two seconds to load. A mean at the command line is planned and answered without
it: only models (base.py) inherit from its classes.

LoadableEstimator is the one way from a release back to its estimator: parameters, bounds, and what
was learnt.

A release made by an earlier version does not say in which form bounds were declared. They are then
rebuilt from the features and the label that it lists, which give the same plan.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pyarrow as pa

from sottovoce.data.encoding import Recoding
from sottovoce.errors import InvalidParameter, InvalidRelease
from sottovoce.estimator import ColumnSteps, compute_intervals, set_fitted_attributes
from sottovoce.estimators import find_question, find_recorded
from sottovoce.release import LEVEL, Intervals, Release, check_level, no_interval_error
from sottovoce.schema import Bounds, Classes, Column, Schema, decode_bounds


class Parameters:
    """An object whose parameters are those of its constructor, as scikit-learn expects it."""

    @classmethod
    def _list_parameters(cls) -> list[str]:
        given = inspect.signature(cls.__init__).parameters.values()
        return sorted(one.name for one in given if one.name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters.

        Parameters
        ----------
        deep : bool
            Is for scikit-learn alone: no parameter is an estimator.

        Returns
        -------
        dict[str, Any]
            Values by name.
        """
        return {name: getattr(self, name) for name in self._list_parameters()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters.

        Parameters
        ----------
        params : Any
            Values by name.

        Returns
        -------
        Self
            The estimator itself.

        Raises
        ------
        InvalidParameter
            There is no parameter of such a name; none is set.
        """
        known = self._list_parameters()
        for name in params:
            if name not in known:
                raise InvalidParameter(
                    f"There is no parameter {name!r}.",
                    f"Parameters: {', '.join(known)}.",
                    "Correct the name.",
                    parameter=name,
                )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def get_metadata_routing(self) -> Any:
        """Return which arguments of ``fit`` are passed through a pipeline of scikit-learn.

        Returns
        -------
        Any
            A MetadataRequest of scikit-learn.
        """
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=self)
        for name in self._list_fit_arguments():
            request.fit.add_request(param=name, alias=self._get_routing().get(name))
        return request

    def set_fit_request(self, **requests: bool | str | None) -> Self:
        """Say which arguments of ``fit`` are passed through a pipeline of scikit-learn.

        Parameters
        ----------
        requests : bool | str | None
            True or False by the name of an argument, or the name that it has in the pipeline.

        Returns
        -------
        Self
            The estimator itself.

        Raises
        ------
        TypeError
            ``fit`` has no such argument.
        """
        unknown = sorted(requests.keys() - set(self._list_fit_arguments()))
        if unknown:
            raise TypeError(f"fit has no argument {unknown[0]!r} that could be passed on.")
        self._routing = self._get_routing() | requests
        return self

    def _get_routing(self) -> dict[str, bool | str | None]:
        return dict(getattr(self, "_routing", {}))

    def __sklearn_clone__(self) -> Self:
        from sklearn.base import clone

        given = self.get_params(deep=False)
        copied = type(self)(**{name: clone(value, safe=False) for name, value in given.items()})
        if hasattr(self, "_routing"):
            copied._routing = self._get_routing()
        return copied

    def _list_fit_arguments(self) -> list[str]:
        fit: Any = self.fit  # type: ignore[attr-defined]  # of the class that inherits this
        return [name for name in inspect.signature(fit).parameters if name not in ("X", "y")]

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))


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
        if not hasattr(self, "release_"):
            raise not_fitted_error()
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


def not_fitted_error() -> Exception:
    """The refusal where there is no answer yet."""
    from sklearn.exceptions import NotFittedError

    error: Exception = NotFittedError("There is no answer yet. Call fit first.")
    return error


def set_level(release: Release, level: float) -> Release:
    """Returns a release with its intervals at another level, which follow from it; in a report
    those of every answer that has some. It is for being told, and not what was published.
    """
    if not release.parts:
        return replace(release, intervals=load(release)._find_intervals(level).to_dict())
    check_level(level)
    told: Any = release.value
    answers = dict(told["answers"])
    for name, part in release.parts.items():
        if part.intervals is not None and part.intervals.get("why") is None:
            answers[name] = set_level(part, level).to_part()
    return replace(release, value={**told, "answers": answers})


class ColumnEstimator(Parameters, IntervalEstimator, ColumnSteps):
    """A question about one column."""


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
    if not isinstance(release, Release):
        raise InvalidRelease(
            "This is no release.",
            "An estimator is made again of a release.",
            "Read a file with sv.Release.load first.",
        )
    question = find_recorded(release.question)
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
    if "bounds" in names and "label_bounds" not in names:
        arguments["bounds"] = _read_bounds(release)
    if release.estimator is not None and "missing" in names:
        arguments["missing"] = release.estimator.get("missing")
    if "label_bounds" in names:
        low, high = given["label"]
        arguments["bounds"] = (low, high)
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
        if _has_feature_names(release):
            model.feature_names_in_ = np.array(release.parameters["features"], dtype=object)
    elif isinstance(release.value, dict):
        set_fitted_attributes(model, release)
    else:
        model.release_ = release
        model.value_ = np.asarray(release.value, dtype=np.float64)
        if not isinstance(release.value, list):
            model.value_ = float(release.value)


def _is_consistent(model: Any, release: Release) -> bool:
    """Whether the parts of the release fit each other."""
    own = getattr(model, "_is_consistent_with", None)
    if own is not None and isinstance(release.value, dict):
        return bool(own(release))
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


def _has_feature_names(release: Release) -> bool:
    """Whether public features came with names; those without are x0, x1 and so on."""
    names = release.parameters["features"]
    return list(names) != [f"x{j}" for j in range(len(names))]


def _make_lowest_row(release: Release) -> Any:
    features = release.parameters["features"]
    if has_public_features(release) and not _has_feature_names(release):
        return np.zeros((1, len(features)))
    if has_public_features(release):
        return pa.table({name: [0.0] for name in features})
    recoding = Recoding.from_dict(features)
    row = {f.name: [f.levels[0]] if f.levels else [f.low] for f in recoding.features}
    return pa.table(row)


def find_norm(release: Release) -> float | None:
    """Return the declared bound on ‖x‖ of a posterior sample, or None where a box was declared."""
    given = release.parameters
    if "fit_intercept" not in given or not isinstance(given.get("ball"), dict):
        return None
    from sottovoce.estimators import posterior_mechanism  # which no other release needs

    recoding = Recoding.from_dict(given["features"])
    radius = float(given["ball"]["radius"])
    ball = posterior_mechanism.make_unit_ball(recoding, radius, given["fit_intercept"])
    if ball.to_dict() == given["ball"]:
        return radius
    return None


def _read_bounds(release: Release) -> Any:
    if release.estimator is None:  # it was made by an earlier version
        return _rebuild_bounds(release)
    if "bounds" not in release.estimator and "ranges" in release.parameters:
        return None  # of several columns, which are among the parameters
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
