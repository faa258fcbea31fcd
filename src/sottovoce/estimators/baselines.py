# SPDX-License-Identifier: Apache-2.0
"""Baselines around any private estimator: Uniform, and what Sampled and Limited (sampled.py) share with it.

Whoever hands them personal budgets gets a release in which nobody loses more than they granted, neighbours
by replacement of all rows of one person (of one row, without ``groups``); docs/theory/baselines.md. The
estimator inside takes ``epsilon`` in its ``fit`` (and ``groups``, if people own several rows) and keeps that
promise to everybody. `adapt` makes such an estimator of a function that somebody else wrote.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if

from sottovoce import units
from sottovoce.budgets import LEAVE_OUT, Budgets
from sottovoce.columns import ROWS, Values, schema_of
from sottovoce.engine import is_elsewhere
from sottovoce.errors import InvalidBudget, InvalidParameter, ReleaseFailed
from sottovoce.guarantee import Guarantee
from sottovoce.plan import Plan
from sottovoce.question import budgets_of
from sottovoce.table import Array, column, column_name, dimensions, length, same_length

METHODS = ("predict", "predict_proba", "decision_function", "score")
#: How many steps of each neighbour relation make one replacement: a removal and an addition make one.
STEPS = {"replace": 1, "add/remove": 2}


class Around(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """What the fitted estimator inside has learnt and can do, a baseline has and can do, under its own promise."""

    def __getattr__(self, name: str) -> Any:
        learnt = name.endswith("_") and not name.startswith("_")
        fitted = vars(self).get("estimator_")
        if fitted is not None and (learnt or name in METHODS):
            return getattr(fitted, name)
        if name in METHODS and hasattr(vars(self).get("estimator"), name):
            return _no_answer_yet
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Any:
        inside: Any = vars(self).get("estimator")
        return inside.__sklearn_tags__() if hasattr(inside, "__sklearn_tags__") else super().__sklearn_tags__()

    def _set_fitted(
        self,
        inside: Any,
        guarantee: Guarantee,
        retold: Callable[[Any], Any] = lambda release: release,
        column: str | None = None,
    ) -> None:
        """Keeps the fitted estimator, the promise, and the release, retold, with this promise in it."""
        self.__dict__.pop("release_", None)
        self.estimator_, self.guarantee_ = inside, guarantee
        if hasattr(inside, "release_"):
            release = retold(inside.release_)
            self.release_ = replace(release, guarantee=guarantee.summary(), column=release.column or column)


def _no_answer_yet(*_: Any, **__: Any) -> None:
    raise NotFittedError("There is no answer yet. Call fit first.")


#: A baseline can plan where the estimator inside can.
where_inside_plans = available_if(lambda self: hasattr(self.estimator, "plan"))


class Uniform(Around):
    """Everybody gets the smallest ε: all that can be done with an estimator that knows one ε.

    **Question.** That of ``estimator``.

    **Promise.** At most min_l ε_l for each person (each row, without ``groups``), in the estimator's own
    neighbour relation (ours: replace).

    **Formula.** The estimator at ε = min_l ε_l (docs/theory/baselines.md, equation 1).

    >>> from sottovoce import Mean
    >>> mean = Uniform(Mean(bounds=(0, 10))).fit([2.0, 8.0] * 300, epsilon=[0.1] * 300 + [1.0] * 300)
    >>> bool(0 <= mean.value_ <= 10), mean.guarantee_.epsilon.max().item()
    (True, 0.1)

    **Limits.** One very careful person makes the answer useless for all; one who grants nothing, impossible.

    Parameters
    ----------
    estimator : one with ``epsilon`` in its fit.
    """

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    def fit(self, X: Any = None, y: Any = None, epsilon: Any = None, groups: Any = None) -> Uniform:
        """Fits the estimator with the smallest ε; a question about one column takes it first."""
        request = Request.of(self.estimator, X, y, epsilon, groups)
        smallest = _smallest(request.budgets)
        inside = request.fit_copy(self.estimator, units.epsilon(smallest))
        self._set_fitted(inside, promised(inside, request.budgets, np.full(len(request.budgets.kinds), smallest)))
        return self

    @where_inside_plans  # type: ignore[untyped-decorator]
    def plan(self, epsilon: Any, groups: Any = None, rows: int | None = None, **more: Any) -> Plan:
        """The estimator's plan with everybody at the smallest ε; it is handed whatever more it asks for."""
        budgets = budgets_of(epsilon, groups, rows, schema_of(self))
        return plan_at(self.estimator, budgets, _smallest(budgets), more)


class Adapted(Around):
    """Somebody else's private estimator as `adapt` makes it: a function behind a fit with epsilon.

    What the function returns is kept as ``estimator_`` (a number or an array also as ``value_``).
    """

    def __init__(self, train: Any = None, bounds: Any = None, neighbours: str = "replace") -> None:
        self.train = train
        self.bounds = bounds
        self.neighbours = neighbours

    def fit(self, X: Any = None, y: Any = None, epsilon: Any = None) -> Adapted:
        """Calls the function with the columns and one ε for all rows."""
        granted, steps = units.grant(epsilon), STEPS.get(self.neighbours, 0)
        if granted.ndim or not steps or granted < steps or not callable(self.train):
            raise InvalidParameter(
                "An adapted estimator was given several ε, neighbours it does not know, or nothing to call.",
                f"It has a function, one ε for all rows, and the neighbours {' or '.join(STEPS)}.",
                "Put sv.Uniform or sv.Sampled around it, or correct what was passed to adapt.",
            )
        budgets = Budgets.of(units.epsilon(granted), rows=length(X, "rows"))
        answer = _called(self.train, (X,) if y is None else (X, y), units.epsilon(int(granted) // steps))
        self._set_fitted(answer, Guarantee.of(budgets, granted[None], "floating"))
        if not hasattr(answer, "predict"):
            self.value_ = answer
        return self


def adapt(fit: Callable[..., Any], *, bounds: Any = None, neighbours: str = "replace") -> Adapted:
    """Returns an estimator that calls ``fit(X, y, epsilon=…)`` (without y, where there is none), one row a person.

    Its guarantee is what you say it is: that ``fit`` is ε-DP, in pure ε and for these neighbours, and that all it
    returns may be published. An "add/remove" function is handed half of ε, since one replacement is two steps
    there. ``bounds`` are the public limits from which Sampled takes its null record.

    >>> toy = adapt(fit=lambda y, epsilon: sum(y) / len(y), bounds=(0, 1))  # without noise, so private for nobody
    >>> Uniform(toy).fit([0.0, 1.0], epsilon=[0.1, 1.0]).value_
    0.5
    """
    return Adapted(fit, bounds, neighbours)


def _called(train: Any, columns: tuple[Any, ...], epsilon: float) -> Any:
    try:
        return train(*columns, epsilon=epsilon)
    except Exception:
        pass  # raised below, outside the handler, so that nothing of the cause is carried along
    raise ReleaseFailed()


@dataclass(frozen=True, eq=False)
class Request:
    """What one fit is asked: columns, by the names under which the estimator takes them, and everybody's budget."""

    data: dict[str, Any]
    budgets: Budgets

    @classmethod
    def of(cls, estimator: Any, X: Any, y: Any, epsilon: Any, groups: Any) -> Request:
        """Checks columns, budgets and owners against each other, before a value is looked at."""
        if is_elsewhere(X):
            raise InvalidParameter("The table is not in memory.", "Baselines pick rows.", "Load it first.")
        names = fit_parameters(estimator)
        if X is None:
            X, y = y, None  # a question about one column takes it first, whatever it is called
        given = Values.of(estimator, X, y, epsilon, groups)
        one = given.column is not None and "X" not in names
        data = _columns(names, given.y if one else given.X, None if one else given.y)
        epsilon, groups = given.epsilon, given.groups
        count = min(length(values, name) for name, values in data.items())
        same_length(count, **data, groups=groups)
        budgets = budgets_of(epsilon, groups, count)  # owners were looked up
        same_length(count, epsilon=budgets.row_codes())
        return cls(data, budgets)

    @property
    def column(self) -> str | None:
        """The name of the column that is asked about, which it loses where rows are picked."""
        return column_name(list(self.data.values())[-1])

    def select_rows(self, places: NDArray[np.int64]) -> Request:
        """The same about some of the rows."""
        data = {n: in_form_of(n, v, [c[places] for c in columns_of(n, v)]) for n, v in self.data.items()}
        return Request(data, budgets_of_rows(self.budgets, places))

    def fit_copy(self, estimator: Any, epsilon: Any) -> Any:
        """Returns a copy of the estimator, fitted with this ε (or these Budgets, which know the owners themselves)."""
        owner = {} if isinstance(epsilon, Budgets) else self.owner_argument(estimator)
        if isinstance(epsilon, Budgets) and rows_asked(estimator, epsilon):
            owner = {"groups": ROWS}
        inside = clone(estimator, safe=False)
        inside.fit(*self.data.values(), epsilon=epsilon, **owner)
        return inside

    def owner_argument(self, estimator: Any) -> dict[str, Any]:
        """Returns the owners as fit takes them; refuses several rows a person where it does not take them."""
        if "groups" in fit_parameters(estimator):
            return {"groups": said_owners(estimator, self.budgets)}
        if self.budgets.kinds.rows.max() > 1:
            raise InvalidParameter(
                "Somebody owns several rows, and the estimator inside has no groups in its fit.",
                "What such an estimator promises, it promises to rows.",
                "Put sv.Limited(…, rows=1) around it, or use an estimator that knows people.",
            )
        return {}


def fit_parameters(estimator: Any) -> tuple[str, ...]:
    """Returns the names of what the estimator's fit takes; refuses one without epsilon."""
    fit = None if inspect.isclass(estimator) else getattr(estimator, "fit", None)
    names = tuple(inspect.signature(fit).parameters) if callable(fit) else ()
    if "epsilon" not in names:
        raise InvalidParameter(
            "The estimator inside has no epsilon in its fit, or is a class.",
            "A baseline goes around an estimator with fit(…, epsilon=…).",
            "Pass one of sottovoce's, or make one with adapt.",
        )
    return names


def promised(inside: Any, budgets: Budgets, spent: units.Units) -> Guarantee:
    """Returns what the fitted estimator promises these people; one that says nothing is taken at its word."""
    told: Guarantee | None = getattr(inside, "guarantee_", None)
    if told is None:
        return Guarantee.of(budgets, spent, "floating")
    if told.unit == budgets.unit or budgets.owner is None:
        return told
    # It knows rows, and everybody has one: the same promise in the order of people.
    by_person = np.empty(budgets.n_people, dtype=np.int64)
    by_person[budgets.owner] = told.units
    one_each = np.broadcast_to(np.int64(1), by_person.shape)
    return replace(told, spent=by_person, counts=one_each, unit="person", codes=None, people=budgets.people)


def plan_at(estimator: Any, budgets: Budgets, amount: int, more: dict[str, Any]) -> Plan:
    """Returns the estimator's plan with everybody at the same ε, in units."""
    same = np.full(len(budgets.row_codes()), units.epsilon(amount))
    plan: Plan = estimator.plan(epsilon=same, groups=said_owners(estimator, budgets), **more)
    return plan


def rows_asked(estimator: Any, budgets: Budgets) -> bool:
    """Whether these budgets are by row although the estimator's schema names people: it was asked for, and is again."""
    return budgets.unit == "row" and schema_of(estimator).person is not None


def said_owners(estimator: Any, budgets: Budgets) -> Any:
    """Returns the owners of rows as the estimator inside is told about them."""
    return ROWS if rows_asked(estimator, budgets) else owners(budgets)


def owners(budgets: Budgets) -> Array | None:
    """Returns the owner of every row, or None where rows are the people."""
    return None if budgets.owner is None or budgets.people is None else budgets.people[budgets.owner]


def budgets_of_rows(budgets: Budgets, places: NDArray[np.int64]) -> Budgets:
    """Returns the same grants for some of the rows."""
    owner = owners(budgets)
    epsilon = units.epsilon(budgets.kinds.epsilon[budgets.row_codes()[places]])
    return Budgets.of(epsilon, None if owner is None else owner[places], zero=LEAVE_OUT)


def declared(estimator: Any, name: str) -> Any:
    """Returns a parameter of the estimator, or of the one inside it, and so on; None if there is none."""
    while estimator is not None and getattr(estimator, name, None) is None:
        estimator = getattr(estimator, "estimator", None)
    return getattr(estimator, name, None)


def _smallest(budgets: Budgets) -> int:
    smallest = int(budgets.kinds.epsilon.min())
    if smallest < 1:
        raise InvalidBudget("Somebody grants nothing.", "The smallest ε must be above 0.", "Leave their rows out.")
    return smallest


def _columns(names: tuple[str, ...], X: Any, y: Any) -> dict[str, Any]:
    """One column for a question about one (whichever way it was passed), else X and, if there is one, y."""
    if "X" in names and "y" in names:
        return {"X": X} if y is None else {"X": X, "y": y}
    if X is not None and y is not None:
        raise InvalidParameter("The estimator inside takes one column, not two.", "", "Pass ε by its name, epsilon=.")
    return {"X" if "X" in names else "y": y if X is None else X}


def columns_of(name: str, values: Any) -> list[Array]:
    """Returns one column, or the columns of a table (which only X can be), as arrays."""
    if name != "X" or dimensions(values) != 2:
        return [column(values, name)]
    if isinstance(values, pa.Table):
        return [column(part, name) for part in values.columns]
    cells = getattr(values, "iloc", values if hasattr(values, "shape") else np.asarray(values))  # iloc: pandas
    return [column(cells[:, j], name) for j in range(np.shape(values)[1])]


def in_form_of(name: str, values: Any, columns: list[Array]) -> Any:
    """Returns columns in the form, and under the names, in which the values came."""
    if name != "X" or dimensions(values) != 2:
        return columns[0]
    names = getattr(values, "column_names", getattr(values, "columns", None))
    form = pa.table if isinstance(values, pa.Table) else type(values)
    return np.column_stack(columns) if names is None else form(dict(zip(names, columns, strict=True)))
