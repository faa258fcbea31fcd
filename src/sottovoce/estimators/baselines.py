# SPDX-License-Identifier: Apache-2.0
"""Baselines around any private estimator: Uniform, Threshold, Sampled and Limited.

Whoever hands them personal budgets gets a release in which nobody loses more than they granted,
neighbours by replacement of all rows of one person (of one row, without ``groups``);
docs/theory/baselines.md. The estimator inside takes ``epsilon`` in its ``fit`` (and ``groups``, if
people own several rows) and keeps that promise to everybody. `adapt` makes such an estimator of a
function that somebody else wrote.

Baselines that hear a part of the rows: Sampled (Jorgensen, Yu and Cormode 2015, repaired) and
Limited.

Sampled throws a secret coin for each person and puts a public *null record* in the place of those
who are dropped; Limited keeps some rows of each person by public randomness. In both nobody loses
more than they granted, neighbours by replacement of all rows of one person
(docs/theory/baselines.md).

symbol                       name
t                            threshold, in units: the ε that the estimator inside runs at
p_l = (e^ε_l − 1)/(e^t − 1)  how likely person l is kept (compute_inclusion_probability of
                             noise/source.py); 1 where ε_l ≥ t
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if

from sottovoce import errors, units
from sottovoce.arrays import (
    Array,
    ColumnLike,
    TableLike,
    check_same_length,
    count_dimensions,
    count_rows,
    get_column_name,
    is_unicode,
    list_feature_names,
    to_column,
    to_numbers,
)
from sottovoce.budgets import LEAVE_OUT, BudgetLike, Budgets
from sottovoce.data.engine import is_external_table
from sottovoce.data.kernels import fill_missing
from sottovoce.data.source import ROWS_MARKER, DataSource, find_schema
from sottovoce.errors import InvalidBudget, InvalidParameter, ReleaseFailed
from sottovoce.estimator import attach_intervals, make_budgets
from sottovoce.estimators import baseline_errors
from sottovoce.estimators.base import BaseEstimator, MetaEstimatorMixin
from sottovoce.estimators.baseline_errors import PickedRowsError
from sottovoce.estimators.baseline_questions import BASELINE, BaselineQuestion
from sottovoce.guarantee import Guarantee
from sottovoce.noise import source
from sottovoce.plan import Plan, Theorem
from sottovoce.release import LEVEL, Certificate, Release, no_interval_error
from sottovoce.schema import Bounds, BoundsLike, Schema, is_between, to_interval
from sottovoce.weights import Weights

DELEGATED_METHODS = ("predict", "predict_proba", "decision_function", "score", "interval")
#: How many steps of each neighbour relation make one replacement: a removal and an addition make
#: one.
STEPS_PER_REPLACEMENT = {"replace": 1, "add/remove": 2}


class ModelLike(Protocol):
    """Whatever can be fitted: an estimator of this library, of scikit-learn, or a wrapped one."""

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Fit to a table."""


class BaselineWrapper(MetaEstimatorMixin, BaseEstimator):
    """What the fitted estimator inside has learnt and can do, a baseline has and can do, under its
    own promise.
    """

    release_: Release
    guarantee_: Guarantee
    estimator_: Any

    def __getattr__(self, name: str) -> Any:
        learnt = name.endswith("_") and not name.startswith("_")
        fitted = vars(self).get("estimator_")
        if fitted is not None and (learnt or name in DELEGATED_METHODS):
            return getattr(fitted, name)
        if name in DELEGATED_METHODS and hasattr(vars(self).get("estimator"), name):
            return _raise_not_fitted
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Any:
        inside: Any = vars(self).get("estimator")
        if hasattr(inside, "__sklearn_tags__"):
            return inside.__sklearn_tags__()
        return super().__sklearn_tags__()

    def _set_fitted(
        self,
        inside: Any,
        guarantee: Guarantee,
        retold: Callable[[Any], Any] = lambda release: release,
        column: str | None = None,
    ) -> None:
        """Keeps the fitted estimator, the promise, and the release, retold, with this promise in
        it.
        """
        self.__dict__.pop("release_", None)
        self.estimator_ = inside
        self.guarantee_ = guarantee
        if hasattr(inside, "release_"):
            release = retold(inside.release_)
            self.release_ = replace(
                release, guarantee=guarantee.summary(), column=release.column or column
            )


def _raise_not_fitted(*_: Any, **__: Any) -> None:
    raise NotFittedError("There is no answer yet. Call fit first.")


#: A baseline can plan where the estimator inside can.
if_estimator_plans = available_if(lambda self: hasattr(self.estimator, "plan"))


class Baseline(BaselineWrapper):
    """A way to keep within personal budgets around any estimator that knows one ε.

    A subclass says which rows the estimator inside gets, and at which ε.
    """

    estimator: ModelLike | None

    def fit(
        self,
        X: TableLike | None = None,
        y: ColumnLike | None = None,
        epsilon: BudgetLike | None = None,
        groups: ColumnLike | None = None,
        column: str | None = None,
    ) -> Self:
        """Fit the estimator inside, within everybody's own ε.

        Parameters
        ----------
        X : TableLike, optional
            Features, or the one column in question.
        y : ColumnLike, optional
            Labels, or the one column in question.
        epsilon : BudgetLike, optional
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.
        column : str, optional
            The column that a table by groups is about.

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
        self._fit_inside(FitRequest.of(self.estimator, X, y, epsilon, groups, column), epsilon)
        return self

    @if_estimator_plans  # type: ignore[untyped-decorator]
    def plan(
        self,
        epsilon: BudgetLike,
        groups: ColumnLike | None = None,
        rows: int | None = None,
        **more: Any,
    ) -> Plan:
        """Return the estimator's plan, with what this baseline makes of everybody's ε.

        Parameters
        ----------
        epsilon : BudgetLike
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.
        rows : int, optional
            How many rows there are, where neither epsilon nor groups tells.
        **more :
            Whatever else the estimator's own plan asks for.

        Returns
        -------
        Plan
            What it will cost whom, and how accurate it will be.

        Raises
        ------
        InvalidInput
            A budget, bound or parameter cannot be used.
        """
        return self._make_plan(make_budgets(epsilon, groups, rows, find_schema(self)), more)

    def _fit_inside(self, request: FitRequest, epsilon: BudgetLike | None) -> None:
        """Fits the estimator and keeps it; ``epsilon`` is what fit was given."""
        raise NotImplementedError

    def _make_plan(self, budgets: Budgets, more: dict[str, Any]) -> Plan:
        raise NotImplementedError


class Uniform(Baseline):
    """Everybody gets the smallest ε: all that can be done with an estimator that knows one ε.

    **Question.** That of ``estimator``.

    **Promise.** At most min_l ε_l for each person (each row, without ``groups``), in the
    estimator's own neighbour relation (ours: replace).

    **Formula.** The estimator at ε = min_l ε_l (docs/theory/baselines.md, equation 1).

    >>> from sottovoce import Mean
    >>> mean = Uniform(Mean(bounds=(0, 10))).fit(
    ...     [2.0, 8.0] * 300, epsilon=[0.1] * 300 + [1.0] * 300
    ... )
    >>> bool(0 <= mean.value_ <= 10), mean.guarantee_.epsilon.max().item()
    (True, 0.1)

    **Limits.** One very careful person makes the answer useless for all; one who grants nothing,
    impossible.

    Parameters
    ----------
    estimator :
        One with ``epsilon`` in its fit.
    """

    def __init__(self, estimator: ModelLike | None = None) -> None:
        self.estimator = estimator

    def to_question(self) -> BaselineQuestion:
        """Return the baseline in the steps of every question, as sessions and ledgers take it.

        Returns
        -------
        BaselineQuestion
            The question of ``estimator``, of people who all grant the smallest ε.
        """
        return BaselineQuestion(self)

    def lower_grants(self, budgets: Budgets) -> units.Units:
        """Return what each kind of people grants to the estimator: the smallest ε above 0.

        Parameters
        ----------
        budgets : Budgets
            Who grants how much.

        Returns
        -------
        units.Units
            Whole units a kind; 0 for who grants nothing.
        """
        granted = budgets.kinds.epsilon
        if not granted.any():
            raise _nobody_above_error()
        return np.where(granted > 0, granted[granted > 0].min(), 0)

    def describe_grants(self, budgets: Budgets) -> dict[str, Any]:
        """Return the baseline as plans and releases tell it.

        Parameters
        ----------
        budgets : Budgets
            Who grants how much.

        Returns
        -------
        dict[str, Any]
            Its name, and the ε of everybody who takes part.
        """
        return {
            "name": "uniform",
            "epsilon": units.to_epsilon(int(self.lower_grants(budgets).max())),
        }

    def _fit_inside(self, request: FitRequest, epsilon: BudgetLike | None) -> None:
        smallest = _find_smallest_epsilon(request.budgets)
        inside = request.fit_copy(self.estimator, units.to_epsilon(smallest))
        self._set_fitted(
            inside,
            get_guarantee(inside, request.budgets, np.full(len(request.budgets.kinds), smallest)),
        )

    def _make_plan(self, budgets: Budgets, more: dict[str, Any]) -> Plan:
        return plan_at_epsilon(self.estimator, budgets, _find_smallest_epsilon(budgets), more)


class Threshold(Baseline):
    """Everybody who grants at least t takes part at t, and nobody else does.

    **Question.** That of ``estimator``, about the rows of those who take part.

    **Promise.** At most t ≤ ε_l for each person (each row, without ``groups``) who grants at least
    t, and 0 for all others, whose rows are not read; in the estimator's own neighbour relation
    (ours: replace).

    **Formula.** The estimator at ε = t on the rows of {l : ε_l ≥ t} (docs/theory/baselines.md,
    equation 9).

    >>> from sottovoce import Mean
    >>> mean = Threshold(Mean(bounds=(0, 10)), threshold=0.5).fit(
    ...     [2.0, 8.0] * 300, epsilon=[0.1] * 300 + [1.0] * 300
    ... )
    >>> mean.guarantee_.epsilon[[0, -1]].tolist()
    [0.0, 0.5]

    **Limits.** The careful are not heard at all, so that the answer is about the others; where
    budgets go along with values, no number of people cures that.

    Parameters
    ----------
    estimator :
        One with ``epsilon`` in its fit.
    threshold :
        The public ε at which people take part. If not given, the one at which ε times the rows that
        take part is largest, from the budgets alone: it has the least noise.
    """

    def __init__(self, estimator: ModelLike | None = None, *, threshold: Any = None) -> None:
        self.estimator = estimator
        self.threshold = threshold

    def to_question(self) -> BaselineQuestion:
        """Return the baseline in the steps of every question, as sessions and ledgers take it.

        Returns
        -------
        BaselineQuestion
            The question of ``estimator``, of people who grant t or nothing.
        """
        return BaselineQuestion(self)

    def lower_grants(self, budgets: Budgets) -> units.Units:
        """Return what each kind of people grants to the estimator: t, or nothing below it.

        Parameters
        ----------
        budgets : Budgets
            Who grants how much.

        Returns
        -------
        units.Units
            Whole units a kind.
        """
        t = find_threshold(self.threshold, budgets)
        return np.where(budgets.kinds.epsilon >= t, t, 0)

    def describe_grants(self, budgets: Budgets) -> dict[str, Any]:
        """Return the baseline as plans and releases tell it.

        Parameters
        ----------
        budgets : Budgets
            Who grants how much.

        Returns
        -------
        dict[str, Any]
            Its name, and the ε of everybody who takes part.
        """
        return {
            "name": "threshold",
            "epsilon": units.to_epsilon(find_threshold(self.threshold, budgets)),
        }

    def _fit_inside(self, request: FitRequest, epsilon: BudgetLike | None) -> None:
        budgets = request.budgets
        t = find_threshold(self.threshold, budgets)
        fewer = request.select_rows(_find_places_above(budgets, t))
        inside = fewer.fit_copy(self.estimator, units.to_epsilon(t))
        inner = get_guarantee(inside, fewer.budgets, np.full(len(fewer.budgets.kinds), t))
        self._set_fitted(
            inside,
            _promise_above(inner, budgets, t),
            lambda release: _add_threshold(
                scale_totals(inside, release, budgets.n_rows),
                t,
                PickedRowsError.of_threshold(budgets.n_rows, fewer.budgets.n_rows),
            ),
            request.column,
        )

    def _make_plan(self, budgets: Budgets, more: dict[str, Any]) -> Plan:
        t = find_threshold(self.threshold, budgets)
        fewer = select_budgets(budgets, _find_places_above(budgets, t))
        inner = scale_planned_totals(
            plan_at_epsilon(self.estimator, fewer, t, more), budgets.n_rows
        )
        guarantee = _promise_above(inner.guarantee, budgets, t)
        picked = PickedRowsError.of_threshold(budgets.n_rows, fewer.n_rows)
        return replace(
            inner,
            parameters=_tell_threshold(inner.parameters, t),
            budgets=budgets,
            weights=_spread_weights(inner, budgets, t, guarantee),
            guarantee=guarantee,
            error=baseline_errors.expect_picked_error(
                inner.error, picked, baseline_errors.describe_question(inner)
            ),
            rivals=None,
        )


def scale_planned_totals(plan: Plan, rows: int) -> Plan:
    """Returns the plan of a table about some rows as one about all: its totals are scaled by how
    many rows there are for each that takes part, which is public.
    """
    if "slots" not in plan.noise or plan.noise["rows"] == rows:
        return plan
    factor = rows / plan.noise["rows"]
    noise = {**plan.noise, "rows": rows}
    if "too_few_below" in noise:
        noise["too_few_below"] *= factor
    error = baseline_errors.scale_error(plan.errors[0], plan.question, factor)
    return replace(plan, noise=noise, error=error)


def scale_totals(inside: Any, release: Release, rows: int) -> Release:
    """Returns the release of a table about some rows as one about all, with its intervals."""
    if "slots" not in release.noise or release.noise["rows"] == rows:
        return release
    factor = rows / release.noise["rows"]
    noise = {**release.noise, "rows": rows}
    if "too_few_below" in noise:
        noise["too_few_below"] *= factor
    value: Any = release.value
    bought = release.bought
    if isinstance(value, dict):
        value = _scale_parts(value, factor)
    else:
        bought = _scale_parts(bought or {}, factor)
        if release.question in baseline_errors.TOTALS:
            value = factor * value
    scaled = replace(release, value=value, bought=bought, noise=noise)
    made: Release = baseline_errors.scale_release_error(scaled, factor)
    made = replace(made, intervals=attach_intervals(inside, made))
    inside._set_value(made)
    return made


def _scale_parts(parts: dict[str, Any], factor: float) -> dict[str, Any]:
    """Returns counts and sums of all rows; means and shares stay as they are."""
    scaled = dict(parts)
    for name in ("count", "missing", "sum"):
        if isinstance(parts.get(name), list):
            scaled[name] = [factor * number for number in parts[name]]
        elif name in parts:
            scaled[name] = factor * parts[name]
    return scaled


def find_threshold(threshold: Any, budgets: Budgets) -> int:
    """Returns t in units; without a number, the one with the least noise, by the budgets alone.

    Refuses a t that nobody grants.
    """
    kinds = budgets.kinds
    if threshold is None:
        granted = np.unique(kinds.epsilon[kinds.epsilon > 0])
        if len(granted) == 0:
            raise _nobody_above_error()
        rows = [int((kinds.rows * kinds.people)[kinds.epsilon >= t].sum()) for t in granted]
        return int(granted[int(np.argmax(granted.astype(np.float64) * rows))])
    if isinstance(threshold, str):
        raise _not_a_threshold_error()
    t = compute_threshold(threshold, budgets)
    if not (kinds.epsilon >= t).any():
        raise _nobody_above_error()
    return t


def find_best_threshold_in_hindsight(
    thresholds: Sequence[float], measure_error: Callable[[float], float]
) -> tuple[float, float]:
    """Returns the threshold with the smallest error, and that error, both measured.

    In hindsight: it looks at errors that nobody has who does not know the truth. It is for
    comparisons on data that are public or invented, where it is more than fair to the baseline.
    """
    errors = {t: measure_error(t) for t in thresholds}
    best = min(errors, key=lambda t: errors[t])
    return best, errors[best]


def _nobody_above_error() -> InvalidBudget:
    return InvalidBudget(
        "Nobody grants as much as the threshold.",
        "Somebody's ε must be at least the threshold.",
        "Choose a smaller threshold.",
        parameter="threshold",
    )


def _tell_threshold(given: dict[str, Any], t: int) -> dict[str, Any]:
    """Returns the estimator's parameters and t; a classifier has a threshold of its own."""
    epsilon = units.to_epsilon(t)
    if "threshold" in given:
        return {**given, BASELINE: {"name": "threshold", "epsilon": epsilon}}
    return {**given, "threshold": epsilon}


def _add_threshold(release: Release, t: int, picked: PickedRowsError) -> Release:
    """Returns the estimator's release with the threshold, and the bias that leaving people out may
    bring, in it.
    """
    told: Release = baseline_errors.restate_error(release, picked)
    intervals = release.intervals
    parts: Any = told.error_parts
    if intervals is not None and parts:
        if isinstance(parts, list):
            bias: Any = [part.get("bias", 0.0) for part in parts]
        else:
            bias = parts.get("bias", 0.0)
            if isinstance(intervals["low"], list):
                bias = [bias]
        intervals = {**intervals, "bias": bias}
    parameters = _tell_threshold(release.parameters, t)
    return replace(told, parameters=parameters, intervals=intervals)


def _find_places_above(budgets: Budgets, t: int) -> NDArray[np.int64]:
    return np.flatnonzero((budgets.kinds.epsilon >= t)[budgets.row_codes()])


def _promise_above(inner: Guarantee, budgets: Budgets, t: int) -> Guarantee:
    """Returns what the estimator inside promises at most, for those who take part, and nothing lost
    for the others.
    """
    spent = np.where(budgets.kinds.epsilon >= t, inner.spent.max(), 0)
    return replace(
        inner,
        spent=spent,
        counts=budgets.kinds.people,
        unit=budgets.unit,
        codes=budgets.codes,
        people=budgets.people,
    )


def _spread_weights(inner: Plan, budgets: Budgets, t: int, guarantee: Guarantee) -> Weights:
    """Returns the weights of those who take part, by the kinds of everybody; others have none."""
    codes = np.asarray(budgets.codes)
    kept = (budgets.kinds.epsilon >= t)[codes]
    _, someone = np.unique(codes, return_index=True)  # of each kind
    place = np.maximum(np.cumsum(kept) - 1, 0)[someone]  # among those who take part
    which = inner.budgets.by_person(np.arange(len(inner.budgets.kinds)))[place]
    takes_part = kept[someone]
    return replace(
        inner.weights,
        row=np.where(takes_part, inner.weights.row[which], 0),
        person=np.where(takes_part, inner.weights.person[which], 0),
        charges=guarantee.spent,
    )


class ExternalEstimator(BaselineWrapper):
    """Somebody else's private estimator as `adapt` makes it: a function behind a fit with epsilon.

    What the function returns is kept as ``estimator_`` (a number or an array also as ``value_``).
    """

    def __init__(
        self, train: Any = None, bounds: BoundsLike | None = None, neighbours: str = "replace"
    ) -> None:
        self.train = train
        self.bounds = bounds
        self.neighbours = neighbours

    def fit(
        self,
        X: TableLike | None = None,
        y: ColumnLike | None = None,
        epsilon: float | None = None,
    ) -> Self:
        """Calls the function with the columns and one ε for all rows."""
        granted = units.round_down(epsilon)  # type: ignore[arg-type]  # None is refused there
        steps = STEPS_PER_REPLACEMENT.get(self.neighbours, 0)
        if granted.ndim or not steps or granted < steps or not callable(self.train):
            raise InvalidParameter(
                "An adapted estimator was given several ε, neighbours it does not know, or "
                "nothing to call.",
                "It has a function, one ε for all rows, and the neighbours "
                f"{' or '.join(STEPS_PER_REPLACEMENT)}.",
                "Put sv.Uniform or sv.Sampled around it, or correct what was passed to adapt.",
            )
        budgets = Budgets.of(units.to_epsilon(granted), rows=count_rows(X, "rows"))
        answer = _call_external(
            self.train, (X,) if y is None else (X, y), units.to_epsilon(int(granted) // steps)
        )
        self._set_fitted(answer, Guarantee.of(budgets, granted[None], "floating"))
        if not hasattr(answer, "predict"):
            self.value_ = answer
        return self


def adapt(
    fit: Callable[..., Any], *, bounds: BoundsLike | None = None, neighbours: str = "replace"
) -> ExternalEstimator:
    """Returns an estimator that calls ``fit(X, y, epsilon=…)`` (without y, where there is none),
    one row a person.

    Its guarantee is what you say it is: that ``fit`` is ε-DP, in pure ε and for these neighbours,
    and that all it returns may be published. An "add/remove" function is handed half of ε, since
    one replacement is two steps there. ``bounds`` are the public limits from which Sampled takes
    its null record.

    Without noise, so private for nobody:

    >>> toy = adapt(fit=lambda y, epsilon: sum(y) / len(y), bounds=(0, 1))
    >>> Uniform(toy).fit([0.0, 1.0], epsilon=[0.1, 1.0]).value_
    0.5
    """
    return ExternalEstimator(fit, bounds, neighbours)


def _call_external(train: Any, columns: tuple[Any, ...], epsilon: float) -> Any:
    try:
        return train(*columns, epsilon=epsilon)
    except Exception:
        pass  # raised below, outside the handler, so that nothing of the cause is carried along
    raise ReleaseFailed()


@dataclass(frozen=True, eq=False)
class FitRequest:
    """What one fit is asked: columns, by the names under which the estimator takes them, and
    everybody's budget.
    """

    data: dict[str, Any]
    budgets: Budgets
    value: str | None = None  # the column that a table by groups is about, if it is named

    @classmethod
    def of(
        cls,
        estimator: Any,
        X: TableLike | None,
        y: TableLike | None,
        epsilon: BudgetLike | None,
        groups: ColumnLike | None,
        value: str | None = None,
    ) -> FitRequest:
        """Checks columns, budgets and owners against each other, before a value is looked at."""
        if is_external_table(X):
            raise InvalidParameter(
                "The table is not in memory.",
                "Baselines pick rows.",
                "Load it first.",
                parameter="X",
            )
        names = list_fit_parameters(estimator)
        if X is None:
            # a question about one column takes it first, whatever it is called
            X = y
            y = None
        source = DataSource.of_columns(estimator, X, y, epsilon, groups)
        if is_whole_table(X) and reads_cells(estimator):
            data = _assign_columns(names, X, None)
        elif source.column is not None and "X" not in names:
            data = _assign_columns(names, source.labels, None)
        else:
            data = _assign_columns(names, source.table, source.labels)
        groups = source.owners
        count = min(count_rows(values, name) for name, values in data.items())
        check_same_length(count, **data, groups=groups)
        budgets = make_budgets(source.epsilon, groups, count)  # owners were looked up
        check_same_length(count, epsilon=budgets.row_codes())
        return cls(data, budgets, value)

    @property
    def column(self) -> str | None:
        """The name of the column that is asked about, which it loses where rows are picked."""
        return self.value or get_column_name(list(self.data.values())[-1])

    def select_rows(self, places: NDArray[np.int64]) -> FitRequest:
        """The same about some of the rows."""
        data = {
            n: take_rows(v, places)
            if n != "X" and is_whole_table(v)
            else restore_form(n, v, [c[places] for c in to_columns(n, v)])
            for n, v in self.data.items()
        }
        return FitRequest(data, select_budgets(self.budgets, places), self.value)

    def fit_copy(self, estimator: Any, epsilon: BudgetLike) -> Any:
        """Returns a copy of the estimator, fitted with this ε (or these Budgets, which know the
        owners themselves).
        """
        if isinstance(epsilon, Budgets):
            owner = {}
        else:
            owner = self.owner_argument(estimator)
        if isinstance(epsilon, Budgets) and is_by_row(estimator, epsilon):
            owner = {"groups": ROWS_MARKER}
        if self.value is not None:
            owner = {**owner, "column": self.value}
        inside = clone(estimator, safe=False)
        inside.fit(*self.data.values(), epsilon=epsilon, **owner)
        return inside

    def owner_argument(self, estimator: Any) -> dict[str, Any]:
        """Returns the owners as fit takes them; refuses several rows a person where it does not
        take them.
        """
        if "groups" in list_fit_parameters(estimator):
            return {"groups": get_owner_argument(estimator, self.budgets)}
        if self.budgets.kinds.rows.max() > 1:
            raise InvalidParameter(
                "Somebody owns several rows, and the estimator inside has no groups in its fit.",
                "What such an estimator promises, it promises to rows.",
                "Put sv.Limited(…, rows=1) around it, or use an estimator that knows people.",
                parameter="groups",
            )
        return {}


def list_fit_parameters(estimator: Any) -> tuple[str, ...]:
    """Returns the names of what the estimator's fit takes; refuses one without epsilon."""
    if inspect.isclass(estimator):
        fit = None
    else:
        fit = getattr(estimator, "fit", None)
    if callable(fit):
        names = tuple(inspect.signature(fit).parameters)
    else:
        names = ()
    if "epsilon" not in names:
        raise InvalidParameter(
            "The estimator inside has no epsilon in its fit, or is a class.",
            "A baseline goes around an estimator with fit(…, epsilon=…).",
            "Pass one of sottovoce's, or make one with adapt.",
            parameter="estimator",
        )
    return names


def get_guarantee(inside: Any, budgets: Budgets, spent: units.Units) -> Guarantee:
    """Returns what the fitted estimator promises these people; one that says nothing is taken at
    its word.
    """
    told: Guarantee | None = getattr(inside, "guarantee_", None)
    if told is None:
        return Guarantee.of(budgets, spent, "floating")
    if told.unit == budgets.unit or budgets.owner is None:
        return told
    # It knows rows, and everybody has one: the same promise in the order of people.
    by_person = np.empty(budgets.n_people, dtype=np.int64)
    by_person[budgets.owner] = told.units
    one_each = np.broadcast_to(np.int64(1), by_person.shape)
    return replace(
        told, spent=by_person, counts=one_each, unit="person", codes=None, people=budgets.people
    )


def plan_at_epsilon(estimator: Any, budgets: Budgets, amount: int, more: dict[str, Any]) -> Plan:
    """Returns the estimator's plan with everybody at the same ε, in units."""
    same = np.full(len(budgets.row_codes()), units.to_epsilon(amount))
    plan: Plan = estimator.plan(epsilon=same, groups=get_owner_argument(estimator, budgets), **more)
    return plan


def is_by_row(estimator: Any, budgets: Budgets) -> bool:
    """Whether these budgets are by row although the estimator's schema names people: it was asked
    for, and is again.
    """
    return budgets.unit == "row" and find_schema(estimator).person is not None


def get_owner_argument(estimator: Any, budgets: Budgets) -> Any:
    """Returns the owners of rows as the estimator inside is told about them."""
    if is_by_row(estimator, budgets):
        return ROWS_MARKER
    return list_owners(budgets)


def list_owners(budgets: Budgets) -> Array | None:
    """Returns the owner of every row, or None where rows are the people."""
    if budgets.owner is None or budgets.people is None:
        return None
    return budgets.people[budgets.owner]


def select_budgets(budgets: Budgets, places: NDArray[np.int64]) -> Budgets:
    """Returns the same grants for some of the rows."""
    owner = list_owners(budgets)
    epsilon = units.to_epsilon(budgets.kinds.epsilon[budgets.row_codes()[places]])
    return Budgets.of(epsilon, None if owner is None else owner[places], zero=LEAVE_OUT)


def find_parameter(estimator: Any, name: str) -> Any:
    """Returns a parameter of the estimator, or of the one inside it, and so on; None if there is
    none.
    """
    while estimator is not None and getattr(estimator, name, None) is None:
        estimator = getattr(estimator, "estimator", None)
    return getattr(estimator, name, None)


def _has_public_features(estimator: Any) -> bool:
    """Whether the innermost estimator protects labels alone."""
    while getattr(estimator, "estimator", None) is not None:
        estimator = estimator.estimator
    return hasattr(estimator, "label_bounds")


def _find_smallest_epsilon(budgets: Budgets) -> int:
    smallest = int(budgets.kinds.epsilon.min())
    if smallest < 1:
        raise InvalidBudget(
            "Somebody grants nothing.",
            "The smallest ε must be above 0.",
            "Leave their rows out.",
            parameter="epsilon",
        )
    return smallest


def _assign_columns(
    names: tuple[str, ...], X: TableLike | None, y: TableLike | None
) -> dict[str, Any]:
    """One column for a question about one (whichever way it was passed), else X and, if there is
    one, y.
    """
    if "X" in names and "y" in names:
        if y is None:
            return {"X": X}
        return {"X": X, "y": y}
    if X is not None and y is not None:
        raise InvalidParameter(
            "The estimator inside takes one column, not two.",
            "",
            "Pass ε by its name, epsilon=.",
            parameter="y",
        )
    return {"X" if "X" in names else "y": y if X is None else X}


def is_whole_table(values: Any) -> bool:
    """Whether these are several columns with names."""
    return list_feature_names(values) is not None and count_dimensions(values) == 2


def reads_cells(estimator: Any) -> bool:
    """Whether the innermost estimator asks about the cells of a table."""
    while getattr(estimator, "estimator", None) is not None:
        estimator = estimator.estimator
    return bool(getattr(estimator, "reads_cells", False))


def _null_table_error() -> InvalidParameter:
    return InvalidParameter(
        "A question about a whole table is inside, and this baseline puts null records into one "
        "column.",
        "Around it sv.Uniform, sv.Threshold and sv.Limited can go.",
        "Put one of them around it, or ask it by itself, with everybody's own ε.",
        parameter="estimator",
    )


def _refuse_cells(estimator: Any) -> None:
    """Refuses a table by groups, whose cells have no middle for a null record."""
    if not reads_cells(estimator):
        return
    whole = find_parameter(estimator, "by") is None and find_parameter(estimator, "where") is None
    if not whole or not find_parameter(estimator, "has_values"):
        raise _null_table_error()


def take_rows(table: Any, places: NDArray[np.int64]) -> Any:
    """Returns some rows of a table in memory, in the form in which it came."""
    if isinstance(table, pa.Table):
        return table.take(pa.array(places))
    if hasattr(table, "iloc"):  # pandas
        return table.iloc[places]
    return table[places]  # polars


def to_columns(name: str, values: Any) -> list[Array]:
    """Returns one column, or the columns of a table (which only X can be), as arrays."""
    several = count_dimensions(values) == 2
    if name != "X" and several and not isinstance(values, np.ndarray):
        raise _null_table_error()
    if name != "X" or not several:
        return [to_column(values, name)]
    if isinstance(values, pa.Table):
        return [to_column(part, name) for part in values.columns]
    cells = getattr(
        values, "iloc", values if hasattr(values, "shape") else np.asarray(values)
    )  # iloc: pandas
    return [to_column(cells[:, j], name) for j in range(np.shape(values)[1])]


def restore_form(name: str, values: Any, columns: list[Array]) -> Any:
    """Returns columns in the form, and under the names, in which the values came."""
    if name != "X" or count_dimensions(values) != 2:
        return columns[0]
    names = getattr(values, "column_names", getattr(values, "columns", None))
    if isinstance(values, pa.Table):
        form = pa.table
    else:
        form = type(values)
    if names is None:
        return np.column_stack(columns)
    return form(dict(zip(names, columns, strict=True)))


class Sampled(Baseline):
    """Personal ε by sampling people: the careful are rarely kept, and then all take part at one ε.

    **Question.** That of ``estimator``, in which a null record stands for whoever is dropped.

    **Promise.** Pure min(ε_l, t) for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows. Coins are exact; the rest of the arithmetic is the estimator's.

    **Formula.** Person l is kept with probability (e^ε_l − 1)/(e^t − 1), for certain where ε_l ≥ t;
    otherwise all their rows become the null record. Then the estimator runs at ε = t on as many
    rows as there are, with the noise it has without sampling (docs/theory/baselines.md, equations 3
    to 5).

    >>> from sottovoce import Mean
    >>> mean = Sampled(Mean(bounds=(0, 10))).fit(
    ...     [2.0, 8.0] * 300, epsilon=[0.1] * 300 + [1.0] * 300
    ... )
    >>> mean.guarantee_.epsilon[[0, -1]].tolist()
    [0.1, 1.0]

    **Limits.** Null records pull the answer towards themselves; the expected error counts that as
    shrinkage, for values whose mean lies .4 of half the range away from them
    (docs/theory/baselines.md). The published form, with noise by the number sampled, is not private
    under replacement and is not here.

    Parameters
    ----------
    estimator :
        One with ``epsilon`` in its fit that promises pure ε.
    threshold :
        "max" or "mean" of everybody's ε, or a number.
    null :
        Public record for whoever is dropped, a pair (x, y) in a regression; default: the middle of
        the bounds.
    """

    def __init__(
        self, estimator: ModelLike | None = None, *, threshold: Any = "max", null: Any = None
    ) -> None:
        self.estimator = estimator
        self.threshold = threshold
        self.null = null

    def _fit_inside(self, request: FitRequest, epsilon: BudgetLike | None) -> None:
        _refuse_cells(self.estimator)  # what is refused is refused before a coin is thrown
        request.owner_argument(self.estimator)
        budgets = request.budgets
        t = compute_threshold(self.threshold, budgets)
        plan = None
        with suppress(TypeError, errors.InvalidParameter):  # some plans ask for more than budgets
            if hasattr(self.estimator, "plan"):
                plan = self._make_plan(budgets, {})
        inside = _sample_and_fit(
            self.estimator, request, find_replaceable_columns(self.estimator, request, self.null), t
        )
        inner = get_guarantee(inside, budgets, np.full(len(budgets.kinds), t))
        pull = PickedRowsError.of_sampling(budgets, t)
        self._set_fitted(
            inside,
            _make_outer_guarantee(inner, budgets, t),
            lambda release: _add_sampling(release, self._describe_sampling(t), plan, pull),
            request.column,
        )

    def interval(self, level: float = LEVEL) -> Any:
        """Refuse an interval: null records pull the answer to where none reaches.

        Parameters
        ----------
        level : float
            The probability, which is not looked at.

        Returns
        -------
        Any
            Nothing ever.

        Raises
        ------
        InvalidParameter
            Always.
        """
        raise no_interval_error()

    def _describe_sampling(self, t: int) -> dict[str, Any]:
        null = "middle"
        if self.null is not None:
            null = repr(self.null)
        return {"threshold": units.to_epsilon(t), "null": null}

    def _make_plan(self, budgets: Budgets, more: dict[str, Any]) -> Plan:
        _refuse_cells(self.estimator)
        t = compute_threshold(self.threshold, budgets)
        inner = plan_at_epsilon(self.estimator, budgets, t, more)
        guarantee = _make_outer_guarantee(inner.guarantee, budgets, t)
        _, someone = np.unique(
            np.asarray(budgets.codes), return_index=True
        )  # of each kind; inside, kinds are others
        which = inner.budgets.by_person(np.arange(len(inner.budgets.kinds)))[someone]
        person_weight = inner.weights.person[which] * source.compute_inclusion_probability(
            budgets.kinds.epsilon, t
        )
        row = inner.weights.row[which]
        person = person_weight.astype(np.int64)
        return replace(
            inner,
            parameters={**inner.parameters, "sampled": self._describe_sampling(t)},
            budgets=budgets,
            weights=replace(inner.weights, row=row, person=person, charges=guarantee.spent),
            guarantee=guarantee,
            theorem=THEOREM,
            error=baseline_errors.expect_picked_error(
                inner.error,
                PickedRowsError.of_sampling(budgets, t),
                baseline_errors.describe_question(inner),
            ),
            rivals=None,  # the inner ones have everybody at t
        )


THEOREM = Theorem(
    "Sampled people, null records, a t-DP estimator: person l loses at most min(ε_l, t), pure or "
    "at its δ (replace)",
    "docs/theory/baselines.md",
)


def compute_threshold(threshold: Any, budgets: Budgets) -> int:
    """Returns t in units, from a word or a number; a mean is rounded down."""
    epsilon = budgets.kinds.epsilon.tolist()
    people = budgets.kinds.people.tolist()
    if isinstance(threshold, str) and threshold in ("max", "mean"):
        mean = sum(e * p for e, p in zip(epsilon, people, strict=True)) // budgets.n_people
        return int(max(max(epsilon) if threshold == "max" else mean, 1))
    with suppress(
        errors.InvalidBudget, OverflowError
    ):  # a word that means nothing and a number that is no ε are one mistake
        if isinstance(threshold, Real):
            return int(units.round_down(float(threshold)))
    raise _not_a_threshold_error()


def _not_a_threshold_error() -> InvalidParameter:
    return InvalidParameter(
        "The threshold is not an ε.",
        "",
        "Pass a number above 0 (around sampled people also 'max' or 'mean').",
        parameter="threshold",
    )


def _make_outer_guarantee(inner: Guarantee, budgets: Budgets, t: int) -> Guarantee:
    """Returns min(ε_l, t) for each kind, at the δ that the estimator inside has for t under
    replacement, if any.
    """
    sampled = inner.reported_currency == "epsilon" and inner.neighbours.startswith("replace")
    if not sampled or float(inner.amounts.max()) > units.to_epsilon(t):
        raise errors.IncompatibleGuarantees(
            "The estimator inside does not promise an ε under replacement.",
            "For no other promise does sampling turn t into everybody's own ε.",
            "Choose another method of the estimator, or put sv.Uniform around it.",
            parameter="estimator",
        )
    own = Guarantee.of(budgets, np.minimum(budgets.kinds.epsilon, t), inner.arithmetic)
    if inner.delta is not None:
        own = replace(own, currency="epsilon, delta", delta=inner.delta)
    return replace(own, neighbours=inner.neighbours)


def _add_sampling(
    release: Release, sampling: dict[str, Any], plan: Plan | None, pull: PickedRowsError
) -> Release:
    """Returns the estimator's release with the sampling, its theorem and (if there is one) its plan
    in it, and without the estimator's interval, which knows nothing of null records.
    """
    if plan is None:
        certificate = replace(release.certificate, theorem=THEOREM.statement, page=THEOREM.page)
    else:
        certificate = Certificate.of(plan)
    told: Release = baseline_errors.restate_error(release, pull)
    return replace(
        told,
        parameters={**release.parameters, "sampled": sampling},
        certificate=certificate,
        intervals=None,
    )


def _sample_and_fit(
    estimator: Any, request: FitRequest, parts: dict[str, list[tuple[Array, Any]]], t: int
) -> Any:
    """Throws the coins and fits. Nothing keeps the coins, and no error depends on them."""
    budgets = request.budgets
    data = dict(request.data)
    people = source.sample_by_budget(budgets.by_person(budgets.kinds.epsilon), t)
    dropped = ~(people if budgets.owner is None else people[budgets.owner])
    for name, part in parts.items():
        data[name] = restore_form(
            name, data[name], [np.where(dropped, entry, cells) for cells, entry in part]
        )
    try:
        return FitRequest(data, budgets).fit_copy(estimator, units.to_epsilon(t))
    except Exception as error:
        # A complaint about the data may depend on the coins; one about parameters does not.
        if isinstance(error, errors.SottovoceError) and not isinstance(error, errors.InvalidData):
            raise
    raise errors.ReleaseFailed()


def find_replaceable_columns(
    estimator: Any, request: FitRequest, null: Any
) -> dict[str, list[tuple[Array, Any]]]:
    """Returns private columns, each with its entry of the null record; refuses what is missing or
    does not fit.
    """
    if null is None and hasattr(estimator, "__sklearn_tags__") and is_classifier(estimator):
        raise errors.InvalidParameter(
            "A classifier has no middle label.",
            "",
            "Pass null=(x, y) with a label.",
            parameter="null",
        )
    bounds = find_parameter(estimator, "bounds")
    if bounds is None:
        bounds = find_parameter(estimator, "label_bounds")
    # features may be public, and then they stay
    if _has_public_features(estimator):
        private = ["y"]
    else:
        private = list(request.data)
    paired = len(private) == 2 and isinstance(null, tuple | list) and len(null) == 2
    given = dict(zip(private, null if paired else [null], strict=False))
    cells = {name: _to_cells(name, values, bounds) for name, values in request.data.items()}
    _refuse_invalid_cells(cells, request.budgets, find_parameter(estimator, "missing"))
    records = {
        n: find_middle(bounds, n, request.data[n]) if null is None else given.get(n)
        for n in private
    }
    return {
        name: list(zip(cells[name], _read_null_entries(records[name], cells[name]), strict=True))
        for name in private
    }


def find_middle(bounds: Any, name: str, values: Any) -> Any:
    """Returns the middle of the declared bounds: of each number's range, and none of the levels of
    a factor.
    """
    ranges = _list_ranges(bounds, values)
    if name != "X" or count_dimensions(values) != 2:
        return _find_midpoint(
            bounds.interval(str(bounds.label))
            if isinstance(bounds, Schema)
            else to_interval(bounds)
        )
    if ranges is not None:
        return ["" if limits is None else _find_midpoint(limits) for limits in ranges]
    if isinstance(bounds, Bounds):
        return _find_midpoint(bounds.box or (0.0, 0.0))  # a ball has its centre
    raise errors.InvalidBounds(
        "The features have no declared bounds.",
        "",
        "Pass null=(x, y), a public record.",
        parameter="null",
    )


def _find_midpoint(limits: Any) -> Any:
    return np.asarray(limits[0]) / 2 + np.asarray(limits[1]) / 2


def _list_ranges(bounds: Any, values: Any) -> list[Any] | None:
    """The range of each column that a schema describes as a number, or that bounds name, None for
    the others; None where columns have no names.
    """
    names = getattr(values, "column_names", getattr(values, "columns", None))
    if isinstance(bounds, Bounds) and bounds.names is not None and names is not None:
        limits = bounds.list_limits_by_name()
        return [limits.get(name) for name in names]
    if not isinstance(bounds, Schema) or names is None:
        return None
    kinds = {name: described.kind for name, described in bounds.columns.items()}
    return [bounds.interval(name) if kinds.get(name) == "number" else None for name in names]


def _to_cells(name: str, values: Any, bounds: Any) -> list[Array]:
    """Returns columns as numbers; those of a table as text where a schema has factors, or where
    they hold text.
    """
    arrays = to_columns(name, values)
    ranges = _list_ranges(bounds, values)
    text = [a.dtype.kind not in "buif" and any(isinstance(v, str) for v in a) for a in arrays]
    parts = zip(
        arrays, text if ranges is None else [limits is None for limits in ranges], strict=True
    )
    return [
        a.astype(str).astype(object) if t and name == "X" else to_numbers(a, name) for a, t in parts
    ]


def _read_null_entries(record: Any, cells: list[Array]) -> list[Any]:
    entries: list[Any] = []
    with suppress(Exception):  # what is no record does not fit
        entries = np.asarray(record, dtype=object).ravel().tolist()
    if len(entries) == 1:
        entries = entries * len(cells)
    kinds = ["f" if is_between(e, -math.inf, math.inf) else type(e).__name__ for e in entries]
    if kinds != ["f" if c.dtype.kind == "f" else "str" for c in cells]:
        raise errors.InvalidParameter(
            "The null record does not fit the columns.",
            "Each column of numbers needs a finite number, each column of text needs text.",
            "Pass null= with an entry a column; for a regression, a pair (x, y).",
            parameter="null",
        )
    return entries


def _refuse_invalid_cells(
    cells: dict[str, list[Array]], budgets: Budgets, missing: float | None
) -> None:
    participating = (budgets.kinds.epsilon > 0)[budgets.row_codes()]
    for numeric in (c for columns in cells.values() for c in columns if c.dtype.kind == "f"):
        fill_missing(numeric[participating], missing)


class Limited(Baseline):
    """Sample limiting: at most ``rows`` rows of each person are used, chosen by public randomness.

    **Question.** That of ``estimator``, about the chosen rows.

    **Promise.** ε_l for each person l with *all* their rows, in the estimator's own neighbour
    relation (ours: replace). Which rows are chosen depends on their places and on ``salt``, never
    on a value.

    **Formula.** Row i has the i-th word of SHAKE-128(salt); each person keeps the h rows with the
    smallest words (docs/theory/baselines.md, equation 2).

    >>> from sottovoce import Mean
    >>> limited = Limited(Mean(bounds=(0, 1)), rows=2)
    >>> limited.plan(epsilon=1.0, groups=["ada"] * 500 + ["ben"] * 2 + ["cy"]).budgets.n_rows
    5

    **Limits.** The order of the rows must be public: a table sorted by a private value is not.

    Parameters
    ----------
    estimator :
        One with ``epsilon`` in its fit.
    rows :
        How many rows of a person to keep at most (h).
    salt :
        Public text, fixed before the data is seen; another salt is another choice.
    """

    def __init__(
        self, estimator: ModelLike | None = None, *, rows: Any = 1, salt: str = ""
    ) -> None:
        self.estimator = estimator
        self.rows = rows
        self.salt = salt

    def _fit_inside(self, request: FitRequest, epsilon: BudgetLike | None) -> None:
        fewer = request.select_rows(self._choose_rows(request.budgets))
        inside = fewer.fit_copy(self.estimator, _get_budget_argument(fewer.budgets, epsilon))
        self._set_fitted(
            inside,
            get_guarantee(inside, fewer.budgets, fewer.budgets.kinds.epsilon),
            lambda release: baseline_errors.restate_error(
                scale_totals(inside, release, request.budgets.n_rows),
                PickedRowsError.of_limit(request.budgets.n_rows, fewer.budgets.n_rows),
            ),
            request.column,
        )

    def _make_plan(self, budgets: Budgets, more: dict[str, Any]) -> Plan:
        fewer = select_budgets(budgets, self._choose_rows(budgets))
        if is_by_row(self.estimator, fewer):
            asked = {"groups": ROWS_MARKER}
        else:
            asked = {}
        inside: Any = self.estimator
        inner = scale_planned_totals(inside.plan(epsilon=fewer, **asked, **more), budgets.n_rows)
        fewer_rows = PickedRowsError.of_limit(budgets.n_rows, fewer.n_rows)
        return replace(
            inner,
            error=baseline_errors.expect_picked_error(
                inner.error, fewer_rows, baseline_errors.describe_question(inner)
            ),
            rivals=None,  # the inner ones are about fewer rows
        )

    def _choose_rows(self, budgets: Budgets) -> NDArray[np.int64]:
        if not isinstance(self.rows, Integral) or int(self.rows) < 1:
            raise errors.InvalidParameter(
                "rows is not a whole number above 0.", "", "Pass rows=1 or more.", parameter="rows"
            )
        if not (isinstance(self.salt, str) and is_unicode(self.salt)):
            raise errors.InvalidParameter(
                "The salt is not text.",
                "Anybody can choose the same rows by it.",
                "Pass text.",
                parameter="salt",
            )
        if budgets.owner is None:
            owner = np.arange(len(budgets.row_codes()))
        else:
            owner = budgets.owner
        return choose_rows(owner, int(self.rows), self.salt)


def choose_rows(owner: NDArray[np.int64], most: int, salt: str) -> NDArray[np.int64]:
    """Returns the places, in order, of at most ``most`` rows of each owner, from places, owners and
    salt alone.
    """
    words = np.frombuffer(hashlib.shake_128(str(salt).encode()).digest(8 * len(owner)), dtype="<u8")
    order = np.lexsort((words, owner))
    rank = np.arange(len(owner)) - np.searchsorted(owner[order], owner[order])
    return np.sort(order[rank < most])


def _get_budget_argument(budgets: Budgets, given: Any) -> Any:
    """What came in as Budgets goes on as Budgets; otherwise one number where all agree, else one a
    row.
    """
    if isinstance(given, Budgets):
        return budgets
    epsilon = units.to_epsilon(budgets.kinds.epsilon)
    if np.all(epsilon == epsilon[0]):
        return float(epsilon[0])
    return epsilon[budgets.row_codes()]
