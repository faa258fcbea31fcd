# SPDX-License-Identifier: Apache-2.0
"""Baselines that hear a part of the rows: Sampled (Jorgensen, Yu and Cormode 2015, repaired) and Limited.

Sampled throws a secret coin for each person and puts a public *null record* in the place of those who are
dropped; Limited keeps some rows of each person by public randomness. In both nobody loses more than they
granted, neighbours by replacement of all rows of one person (docs/theory/baselines.md).

symbol                       name
t                            threshold, in units: the ε that the estimator inside runs at
p_l = (e^ε_l − 1)/(e^t − 1)  noise.choose.chance_kept: how likely person l is kept; 1 where ε_l ≥ t
"""

from __future__ import annotations

import hashlib
import math
from contextlib import suppress
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from sottovoce import errors, units
from sottovoce.bounds import Bounds, Schema, between, interval
from sottovoce.budgets import Budgets
from sottovoce.columns import ROWS, schema_of
from sottovoce.estimators import baselines, picked
from sottovoce.estimators.baselines import Around, Request, columns_of, declared, rows_asked, where_inside_plans
from sottovoce.estimators.picked import Picked
from sottovoce.guarantee import Guarantee
from sottovoce.noise import choose
from sottovoce.plan import Plan, Theorem
from sottovoce.question import budgets_of
from sottovoce.release import Certificate, Release
from sottovoce.statistics import fill
from sottovoce.table import Array, dimensions, is_unicode, numbers


class Sampled(Around):
    """Personal ε by sampling people: the careful are rarely kept, and then all are heard at one ε.

    **Question.** That of ``estimator``, in which a null record stands for whoever is dropped.

    **Promise.** Pure min(ε_l, t) for each person l (each row, without ``groups``), neighbours by replacement
    of all their rows. Coins are exact; the rest of the arithmetic is the estimator's.

    **Formula.** Person l is kept with probability (e^ε_l − 1)/(e^t − 1), for certain where ε_l ≥ t; otherwise all
    their rows become the null record. Then the estimator runs at ε = t on as many rows as there are, with
    the noise it has without sampling (docs/theory/baselines.md, equations 3 to 5).

    >>> from sottovoce import Mean
    >>> mean = Sampled(Mean(bounds=(0, 10))).fit([2.0, 8.0] * 300, epsilon=[0.1] * 300 + [1.0] * 300)
    >>> mean.guarantee_.epsilon[[0, -1]].tolist()
    [0.1, 1.0]

    **Limits.** Null records pull the answer towards themselves; the expected error counts that as shrinkage, for
    values whose mean lies .4 of half the range away from them (docs/theory/baselines.md). The published form, with
    noise by the number sampled, is not private under replacement and is not here.

    Parameters
    ----------
    estimator : one with ``epsilon`` in its fit that promises pure ε.
    threshold : "max" or "mean" of everybody's ε, or a number.
    null : public record for whoever is dropped, a pair (x, y) in a regression; default: the middle of the bounds.
    """

    def __init__(self, estimator: Any = None, *, threshold: Any = "max", null: Any = None) -> None:
        self.estimator = estimator
        self.threshold = threshold
        self.null = null

    def fit(self, X: Any = None, y: Any = None, epsilon: Any = None, groups: Any = None) -> Sampled:
        """Samples people and fits the estimator at the threshold; a question about one column takes it first."""
        request = Request.of(self.estimator, X, y, epsilon, groups)
        request.owner_argument(self.estimator)  # what is refused is refused before a coin is thrown
        budgets, t = request.budgets, threshold_of(self.threshold, request.budgets)
        plan = None
        with suppress(TypeError, errors.InvalidParameter):  # some plans ask for more than budgets
            plan = self._make_plan(budgets, t, {}) if hasattr(self.estimator, "plan") else None
        inside = _sampled(self.estimator, request, replaceable(self.estimator, request, self.null), t)
        inner = baselines.promised(inside, budgets, np.full(len(budgets.kinds), t))
        pull = Picked.sampled(budgets, t)
        self._set_fitted(inside, _outer(inner, budgets, t), lambda release: _retold(release, plan, pull), request.column)
        return self

    @where_inside_plans  # type: ignore[untyped-decorator]
    def plan(self, epsilon: Any, groups: Any = None, rows: int | None = None, **more: Any) -> Plan:
        """The estimator's plan at the threshold with everybody's own promise; a voice counts the chance to be kept."""
        budgets = budgets_of(epsilon, groups, rows, schema_of(self))
        return self._make_plan(budgets, threshold_of(self.threshold, budgets), more)

    def _make_plan(self, budgets: Budgets, t: int, more: dict[str, Any]) -> Plan:
        inner = baselines.plan_at(self.estimator, budgets, t, more)
        guarantee = _outer(inner.guarantee, budgets, t)
        _, someone = np.unique(np.asarray(budgets.codes), return_index=True)  # of each kind; inside, kinds are others
        which = inner.budgets.by_person(np.arange(len(inner.budgets.kinds)))[someone]
        voice = inner.weights.person[which] * choose.chance_kept(budgets.kinds.epsilon, t)
        row, person = inner.weights.row[which], voice.astype(np.int64)
        sampling = {"threshold": units.epsilon(t), "null": "middle" if self.null is None else repr(self.null)}
        return replace(
            inner,
            parameters={**inner.parameters, "sampled": sampling},
            budgets=budgets,
            weights=replace(inner.weights, row=row, person=person, charges=guarantee.spent),
            guarantee=guarantee,
            theorem=THEOREM,
            error=picked.expected(inner.error, Picked.sampled(budgets, t), inner.parameters),
        )


THEOREM = Theorem(
    "Sampled people, null records, a t-DP estimator: person l loses at most min(ε_l, t), pure or at its δ (replace)",
    "docs/theory/baselines.md",
)


def threshold_of(threshold: Any, budgets: Budgets) -> int:
    """Returns t in units, from a word or a number; a mean is rounded down."""
    epsilon, people = budgets.kinds.epsilon.tolist(), budgets.kinds.people.tolist()
    if isinstance(threshold, str) and threshold in ("max", "mean"):
        mean = sum(e * p for e, p in zip(epsilon, people, strict=True)) // budgets.n_people
        return int(max(max(epsilon) if threshold == "max" else mean, 1))
    with suppress(
        errors.InvalidBudget, OverflowError
    ):  # a word that means nothing and a number that is no ε are one mistake
        if isinstance(threshold, Real):
            return int(units.grant(float(threshold)))
    raise errors.InvalidParameter("The threshold is not an ε.", "", "Pass 'max', 'mean', or a number above 0.")


def _outer(inner: Guarantee, budgets: Budgets, t: int) -> Guarantee:
    """Returns min(ε_l, t) for each kind, at the δ that the estimator inside has for t under replacement, if any."""
    sampled = inner.reported_currency == "epsilon" and inner.neighbours.startswith("replace")
    if not sampled or float(inner.amounts.max()) > units.epsilon(t):
        raise errors.IncompatibleGuarantees(
            "The estimator inside does not promise an ε under replacement.",
            "For no other promise does sampling turn t into everybody's own ε.",
            "Choose another method of the estimator, or put sv.Uniform around it.",
        )
    own = Guarantee.of(budgets, np.minimum(budgets.kinds.epsilon, t), inner.arithmetic)
    if inner.delta is not None:
        own = replace(own, currency="epsilon, delta", delta=inner.delta)
    return replace(own, neighbours=inner.neighbours)


def _retold(release: Release, plan: Plan | None, pull: Picked) -> Release:
    """Returns the estimator's release with the sampling, its theorem and (if there is one) its plan in it."""
    release = picked.retold(release, pull)
    if plan is None:
        return replace(release, certificate=replace(release.certificate, theorem=THEOREM.statement, page=THEOREM.page))
    parameters = {**release.parameters, "sampled": plan.parameters["sampled"]}
    return replace(release, parameters=parameters, certificate=Certificate.of(plan))


def _sampled(estimator: Any, request: Request, parts: dict[str, list[tuple[Array, Any]]], t: int) -> Any:
    """Throws the coins and fits. Nothing keeps the coins, and no error depends on them."""
    budgets, data = request.budgets, dict(request.data)
    people = choose.kept(budgets.by_person(budgets.kinds.epsilon), t)
    dropped = ~(people if budgets.owner is None else people[budgets.owner])
    for name, part in parts.items():
        data[name] = baselines.in_form_of(name, data[name], [np.where(dropped, entry, cells) for cells, entry in part])
    try:
        return Request(data, budgets).fit_copy(estimator, units.epsilon(t))
    except Exception as error:
        # A complaint about the data may depend on the coins; one about parameters does not.
        if isinstance(error, errors.SottovoceError) and not isinstance(error, errors.InvalidData):
            raise
    raise errors.ReleaseFailed()


def replaceable(estimator: Any, request: Request, null: Any) -> dict[str, list[tuple[Array, Any]]]:
    """Returns private columns, each with its entry of the null record; refuses what is missing or does not fit."""
    if null is None and hasattr(estimator, "__sklearn_tags__") and is_classifier(estimator):
        raise errors.InvalidParameter("A classifier has no middle label.", "", "Pass null=(x, y) with a label.")
    label_bounds = declared(estimator, "label_bounds")
    bounds = declared(estimator, "bounds") if label_bounds is None else label_bounds
    private = list(request.data) if label_bounds is None else ["y"]  # features may be public, and then they stay
    paired = len(private) == 2 and isinstance(null, tuple | list) and len(null) == 2
    given = dict(zip(private, null if paired else [null], strict=False))
    cells = {name: _cells(name, values, bounds) for name, values in request.data.items()}
    _refuse_unfit(cells, request.budgets, declared(estimator, "missing"))
    records = {n: middle(bounds, n, request.data[n]) if null is None else given.get(n) for n in private}
    return {name: list(zip(cells[name], _entries(records[name], cells[name]), strict=True)) for name in private}


def middle(bounds: Any, name: str, values: Any) -> Any:
    """Returns the middle of the declared bounds: of each number's range, and none of the levels of a factor."""
    ranges = _ranges(bounds, values)
    if name != "X" or dimensions(values) != 2:
        return _halfway(bounds.interval(str(bounds.label)) if isinstance(bounds, Schema) else interval(bounds))
    if ranges is not None:
        return ["" if limits is None else _halfway(limits) for limits in ranges]
    if isinstance(bounds, Bounds):
        return _halfway(bounds.features or (0.0, 0.0))  # a ball has its centre
    raise errors.InvalidBounds("The features have no declared bounds.", "", "Pass null=(x, y), a public record.")


def _halfway(limits: Any) -> Any:
    return np.asarray(limits[0]) / 2 + np.asarray(limits[1]) / 2


def _ranges(bounds: Any, values: Any) -> list[Any] | None:
    """The range of each column that a schema describes as a number, None for the others; None without a schema."""
    names = getattr(values, "column_names", getattr(values, "columns", None))
    if not isinstance(bounds, Schema) or names is None:
        return None
    kinds = {name: described.kind for name, described in bounds.columns.items()}
    return [bounds.interval(name) if kinds.get(name) == "number" else None for name in names]


def _cells(name: str, values: Any, bounds: Any) -> list[Array]:
    """Returns columns as numbers; those of a table as text where a schema has factors, or where they hold text."""
    arrays, ranges = columns_of(name, values), _ranges(bounds, values)
    text = [a.dtype.kind not in "buif" and any(isinstance(v, str) for v in a) for a in arrays]
    parts = zip(arrays, text if ranges is None else [limits is None for limits in ranges], strict=True)
    return [a.astype(str).astype(object) if t and name == "X" else numbers(a, name) for a, t in parts]


def _entries(record: Any, cells: list[Array]) -> list[Any]:
    entries: list[Any] = []
    with suppress(Exception):  # what is no record does not fit
        entries = np.asarray(record, dtype=object).ravel().tolist()
    entries = entries * len(cells) if len(entries) == 1 else entries
    kinds = ["f" if between(e, -math.inf, math.inf) else type(e).__name__ for e in entries]
    if kinds != ["f" if c.dtype.kind == "f" else "str" for c in cells]:
        raise errors.InvalidParameter(
            "The null record does not fit the columns.",
            "Each column of numbers needs a finite number, each column of text needs text.",
            "Pass null= with an entry a column; for a regression, a pair (x, y).",
        )
    return entries


def _refuse_unfit(cells: dict[str, list[Array]], budgets: Budgets, missing: float | None) -> None:
    heard = (budgets.kinds.epsilon > 0)[budgets.row_codes()]
    for numeric in (c for columns in cells.values() for c in columns if c.dtype.kind == "f"):
        fill(numeric[heard], missing)


class Limited(Around):
    """Sample limiting: at most ``rows`` rows of each person are used, chosen by public randomness.

    **Question.** That of ``estimator``, about the chosen rows.

    **Promise.** ε_l for each person l with *all* their rows, in the estimator's own neighbour relation
    (ours: replace). Which rows are chosen depends on their places and on ``salt``, never on a value.

    **Formula.** Row i has the i-th word of SHAKE-128(salt); each person keeps the h rows with the smallest
    words (docs/theory/baselines.md, equation 2).

    >>> from sottovoce import Mean
    >>> limited = Limited(Mean(bounds=(0, 1)), rows=2)
    >>> limited.plan(epsilon=1.0, groups=["ada"] * 500 + ["ben"] * 2 + ["cy"]).budgets.n_rows
    5

    **Limits.** The order of the rows must be public: a table sorted by a private value is not.

    Parameters
    ----------
    estimator : one with ``epsilon`` in its fit.
    rows : how many rows of a person to keep at most (h).
    salt : public text, fixed before the data is seen; another salt is another choice.
    """

    def __init__(self, estimator: Any = None, *, rows: Any = 1, salt: str = "") -> None:
        self.estimator = estimator
        self.rows = rows
        self.salt = salt

    def fit(self, X: Any = None, y: Any = None, epsilon: Any = None, groups: Any = None) -> Limited:
        """Fits the estimator on the chosen rows, budgets unchanged; a question about one column takes it first."""
        request = Request.of(self.estimator, X, y, epsilon, groups)
        fewer = request.select_rows(self._choose_rows(request.budgets))
        inside = fewer.fit_copy(self.estimator, _passed_on(fewer.budgets, epsilon))
        self._set_fitted(
            inside,
            baselines.promised(inside, fewer.budgets, fewer.budgets.kinds.epsilon),
            lambda release: picked.retold(release, Picked.limited(request.budgets.n_rows, fewer.budgets.n_rows)),
            request.column,
        )
        return self

    @where_inside_plans  # type: ignore[untyped-decorator]
    def plan(self, epsilon: Any, groups: Any = None, rows: int | None = None, **more: Any) -> Plan:
        """The estimator's plan for the chosen rows."""
        budgets = budgets_of(epsilon, groups, rows, schema_of(self))
        fewer = baselines.budgets_of_rows(budgets, self._choose_rows(budgets))
        asked = {"groups": ROWS} if rows_asked(self.estimator, fewer) else {}
        inner: Plan = self.estimator.plan(epsilon=fewer, **asked, **more)
        fewer_rows = Picked.limited(budgets.n_rows, fewer.n_rows)
        return replace(inner, error=picked.expected(inner.error, fewer_rows, inner.parameters))

    def _choose_rows(self, budgets: Budgets) -> NDArray[np.int64]:
        if not isinstance(self.rows, Integral) or int(self.rows) < 1:
            raise errors.InvalidParameter("rows is not a whole number above 0.", "", "Pass rows=1 or more.")
        if not (isinstance(self.salt, str) and is_unicode(self.salt)):
            raise errors.InvalidParameter(
                "The salt is not text.", "Anybody can choose the same rows by it.", "Pass text."
            )
        owner = np.arange(len(budgets.row_codes())) if budgets.owner is None else budgets.owner
        return chosen_rows(owner, int(self.rows), self.salt)


def chosen_rows(owner: NDArray[np.int64], most: int, salt: str) -> NDArray[np.int64]:
    """Returns the places, in order, of at most ``most`` rows of each owner, from places, owners and salt alone."""
    words = np.frombuffer(hashlib.shake_128(str(salt).encode()).digest(8 * len(owner)), dtype="<u8")
    order = np.lexsort((words, owner))
    rank = np.arange(len(owner)) - np.searchsorted(owner[order], owner[order])
    return np.sort(order[rank < most])


def _passed_on(budgets: Budgets, given: Any) -> Any:
    """What came in as Budgets goes on as Budgets; otherwise one number where all agree, else one a row."""
    if isinstance(given, Budgets):
        return budgets
    epsilon = units.epsilon(budgets.kinds.epsilon)
    return float(epsilon[0]) if np.all(epsilon == epsilon[0]) else epsilon[budgets.row_codes()]
