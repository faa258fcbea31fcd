# SPDX-License-Identifier: Apache-2.0
"""Question, the contract of estimators/, and the order of steps that every answer follows.

    budgets → plan_for → (the ledger writes the charges) → fit to be read? → answer → Release

A question plans from budgets alone, and answers from rows under a plan. Everything a caller can get
wrong is refused before the plan is paid for; once rows are being read for the answer, every failure
looks the same from outside, because why it failed may depend on the data.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, is_dataclass, replace
from datetime import UTC, datetime
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from sottovoce.bounds import Bounds, Schema, Subject, interval
from sottovoce.budgets import Budgets
from sottovoce.columns import Table, Values, asks_rows, by_names, owners_unsaid, schema_of
from sottovoce.engine import Rows, in_memory, label_of
from sottovoce.errors import InvalidBounds, InvalidParameter, ReleaseFailed
from sottovoce.features import MATRIX, Label, Reader, Recoded, UnfitRows
from sottovoce.plan import Plan
from sottovoce.recoding import Recoding
from sottovoce.release import Release
from sottovoce.statistics import Owner, Unfit, unfit
from sottovoce.table import (
    Array,
    Floats,
    column_name,
    column_names,
    dimensions,
    feature_names,
    matrix,
    numbers,
    same_length,
)

VALUE, KIND = "value", "kind"
#: More features than this are a mistake.
MOST_FEATURES = 10**6
#: Fields of a schema and of its columns that name things for people.
LABELS = ("name", "unit")


class Question(Protocol):
    """What can be asked of people's rows."""

    missing: float | None  # the public constant that stands for missing values

    def get_params(self) -> dict[str, Any]:
        """The public parameters, by name."""

    def gather(self, *data: Any, epsilon: Any, groups: Any) -> tuple[Budgets, Rows]:
        """Returns the budgets and rows of data in memory; a question about one column also takes its name, column=."""

    def rows_of(self, table: Table) -> Rows:
        """Returns what is read of a table by the names of its columns; nothing is read yet."""

    def plan_for(self, budgets: Budgets, rows: Rows | None = None) -> Plan:
        """Returns the plan, from public facts alone; ``rows`` tell no more than which columns there are."""

    def answer(self, plan: Plan, rows: Rows) -> Release:
        """Reads the rows, draws the noise, and returns what may be published."""


def budgets_of(epsilon: Any, groups: Any = None, rows: int | None = None, schema: Schema | None = None) -> Budgets:
    """Returns budgets as they are, or made from ε and the rows' owners.

    A plan has no table, so it passes the ``schema``: where that names people, it must be told whose the rows are.
    """
    told = groups is not None or (isinstance(epsilon, Budgets) and epsilon.unit == "person")
    if schema is not None and schema.person is not None and not told:
        raise owners_unsaid(schema)
    groups = None if asks_rows(groups) else groups
    if isinstance(groups, str):
        raise InvalidParameter(
            "The owners of rows are a name.",
            "There is no table here in which a column could be looked up.",
            "Pass the column itself as groups=.",
        )
    if isinstance(epsilon, Budgets):
        if groups is not None:
            raise InvalidParameter(
                "Budgets already say whose each row is.",
                "Two answers to that question could disagree.",
                "Pass groups= when building the Budgets, and not again.",
            )
        return epsilon
    return Budgets.of(epsilon, groups, rows)


def public_constant(missing: Any, low: float, high: float) -> float | None:
    """Returns the constant that stands for missing values, or None; refuses what is no number between the bounds."""
    if missing is None:
        return None
    try:
        constant = float(missing)
    except Exception:  # what is no number, in whatever way
        constant = math.nan
    if not math.isfinite(constant):
        raise InvalidParameter(
            "What should stand for missing values is not a finite number.", "", "Choose a public constant, or none."
        )
    if not low <= constant <= high:
        raise InvalidParameter(
            "What should stand for missing values lies outside the bounds of a column.",
            "It stands for values, and these lie between the bounds.",
            "Choose a constant between them; columns with constants of their own are declared in a schema.",
        )
    return constant


def column_label(question: Any, column: str | None = None) -> Label:
    """Returns how a question about one column reads it: by its bounds, or as its schema describes the column."""
    bounds = question.bounds
    if column is not None and not isinstance(column, str):
        raise _no_name()
    if not isinstance(bounds, Schema):
        low, high = interval(bounds)
        return Label(column or VALUE, low, high, public_constant(question.missing, low, high))
    name = column or bounds.require_label()
    low, high = bounds.interval(name)
    own = bounds.columns[name].missing if question.missing is None else question.missing
    return Label(column or VALUE, low, high, public_constant(own, low, high))


def _no_name() -> InvalidParameter:
    return InvalidParameter(
        "The column in question is not a name.",
        "It names a column of the table that comes first.",
        "Pass the values alone, or a table and the name.",
    )


def declared_label(question: Any, column: str = VALUE) -> Label:
    """Returns how a regression reads its label; a constant that the schema declares for it goes before ``missing``."""
    low, high = interval(question.bounds)
    own = question.bounds.columns[question.bounds.require_label()].missing if isinstance(question.bounds, Schema) else None
    return Label(column, low, high, public_constant(question.missing if own is None else own, low, high))


def declared_recoding(bounds: Any, X: Any, missing: Any = None) -> Recoding:
    """Returns the recoding of the features as declared; X, a table or a number, only tells how many there are.

    ``missing`` stands for missing numbers in features for which a schema declares no constant of their own.
    """
    return _with_constant(_recoding(bounds, X), missing)


def _with_constant(recoding: Recoding, missing: Any) -> Recoding:
    if missing is None:
        return recoding
    return Recoding(
        tuple(
            feature
            if feature.levels or feature.missing is not None
            else replace(feature, missing=public_constant(missing, feature.low, feature.high))
            for feature in recoding.features
        )
    )


def _recoding(bounds: Any, X: Any) -> Recoding:
    if isinstance(bounds, Schema):
        return Recoding.of_schema(bounds)
    if not isinstance(bounds, Bounds):
        raise InvalidBounds(
            "Bounds are missing.",
            "Limits of the features are needed, from public knowledge, and of a label that is a number.",
            "Pass bounds=sv.Bounds(features=(low, high), label=(lo, hi)), or a Schema.",
        )
    if isinstance(X, tuple):  # the names of columns, of a table that lives elsewhere
        return Recoding.of_bounds(bounds, list(X), len(X))
    return Recoding.of_bounds(bounds, feature_names(X), _count(X, bounds))


def _count(X: Any, bounds: Bounds) -> int:
    if isinstance(X, Integral):
        count = int(X)
        if not 0 < count < MOST_FEATURES:
            raise InvalidParameter("n_features is not a number of features.", "", "Pass a whole number above 0.")
        return count
    if X is not None:
        return int(np.shape(X)[1]) if dimensions(X) == 2 else int(matrix(X, None).shape[1])
    sizes = [np.size(limit) for limit in bounds.features or () if np.ndim(limit)]
    if not sizes:
        raise InvalidParameter(
            "The number of features is not known.", "", "Pass n_features=, or bounds for each feature."
        )
    return int(sizes[0])


def rows_in_memory(values: Any, *, epsilon: Any, groups: Any, label: Label | None = None) -> tuple[Budgets, Rows]:
    """Returns the budgets and rows of one column in memory."""
    column = numbers(values)
    if groups is not None:
        same_length(len(column), groups=groups)
    budgets = budgets_of(epsilon, groups, len(column))
    kinds = budgets.row_codes()
    same_length(len(column), epsilon=kinds)
    engine = in_memory().of_columns({VALUE: column, KIND: kinds})
    return budgets, Rows(engine, VALUE, Owner(KIND), label=label)


def regression_in_memory(
    raw: Floats, recoding: Recoding, values: Any, label: Label, epsilon: Any, groups: Any
) -> tuple[Budgets, Rows]:
    """Returns the budgets and rows of a regression in memory, with the features recoded once."""
    column, recoded = numbers(values, "labels"), recoding.encode(raw)
    same_length(len(recoded), y=column, groups=groups)
    budgets = budgets_of(epsilon, groups, len(column))
    return budgets, table_in_memory(recoded, Recoded(recoding), column, label, budgets)


def table_in_memory(rows: Floats, reader: Reader, column: Floats, label: Any, budgets: Budgets) -> Rows:
    """Returns the rows of a matrix and of a column of labels that lie in memory as the readers expect them."""
    kinds = budgets.row_codes()
    same_length(len(column), epsilon=kinds)
    columns: dict[str, Array] = {VALUE: column, KIND: kinds}
    if rows.shape[1]:
        columns[MATRIX] = rows
    return Rows(in_memory().of_columns(columns), VALUE, Owner(KIND), reader, label)


def refuse_unfit(question: Question, plan: Plan, rows: Rows) -> None:
    """Refuses rows with missing or infinite values, before anything is charged."""
    heard = plan.budgets.kinds.epsilon > 0
    if rows.features is None:
        missing = question.missing if rows.label is None else rows.label.missing
        if rows.engine.fold(Unfit(rows.value, rows.owner, heard, missing)):
            raise unfit()
        return
    features, label = rows.engine.fold(UnfitRows(rows.features, rows.label, rows.owner, heard)).tolist()
    if features or label:
        raise rows.label.refusal() if label else unfit()


def run(question: Question, plan: Plan, rows: Rows) -> Release:
    """Returns the answer with what it is about and its date, or the one failure that tells nothing."""
    # Before rows are read: how long an answer takes may depend on them.
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        return question.answer(plan, rows).with_subject(rows.subject, date)
    except Exception:
        pass  # raised below, outside the handler, so that nothing of the cause is carried along
    raise ReleaseFailed()


def gathered(
    question: Question, X: Any, y: Any = None, *, epsilon: Any, groups: Any, engine: str | None = None
) -> tuple[Budgets, Rows]:
    """Returns the budgets and rows of data in memory, or of a table wherever it lives, by the names of its columns."""
    schema = schema_of(question)
    if by_names(schema, X, y, epsilon, groups):
        table = Table.of(X, y, epsilon, groups, schema, engine)
        budgets, rows = table.read(question.rows_of(table))
        return budgets, replace(rows, subject=_subject(question, rows.value, label_of(X)))
    given = Values.of(question, X, y, epsilon, groups)
    return gathered_values(question, given, given.epsilon, given.groups)


def gathered_values(question: Question, given: Values, epsilon: Any, groups: Any) -> tuple[Budgets, Rows]:
    """Returns the budgets and rows of columns in memory, for these budgets and owners."""
    if getattr(question, "one_column", False):
        if given.y is not None and given.column is None:
            raise _no_name()
        values = given.X if given.y is None else given.y
        budgets, rows = question.gather(values, epsilon=epsilon, groups=groups, column=given.column)  # type: ignore[call-arg]
    elif given.y is None:
        raise InvalidParameter(
            "There are no labels.",
            "A model is fitted to a label for each row.",
            "Pass y, the values or the name of their column, or a schema that names the label of a table.",
        )
    else:
        budgets, rows = question.gather(given.X, given.y, epsilon=epsilon, groups=groups)
    return budgets, replace(rows, subject=subject_in_memory(question, given))


def subject_in_memory(question: Question, given: Values) -> Subject:
    """Returns what a question about data in memory is about, by the names that the data and a schema have."""
    return _subject(question, given.column or column_name(given.X if given.y is None else given.y), None)


def _subject(question: Question, column: str | None, table: str | None) -> Subject:
    schema = schema_of(question)
    return Subject(column or schema.label, schema.name or table, schema.units)


def ask(question: Question, X: Any, y: Any = None, *, epsilon: Any, groups: Any) -> tuple[Plan, Release]:
    """Plans and answers a question about data in memory or a table."""
    return answered(question, *gathered(question, X, y, epsilon=epsilon, groups=groups))


def answered(question: Question, budgets: Budgets, rows: Rows) -> tuple[Plan, Release]:
    """Plans and answers a question about these rows."""
    plan = question.plan_for(budgets, rows)
    refuse_unfit(question, plan, rows)
    return plan, run(question, plan, rows)


@dataclass(frozen=True, eq=False)
class Request:
    """What a key stands for, for ever: a question, the columns it is about, of whom, and at which price.

    Values of the data are not in it: to look an answer up by private data would itself be an answer.
    """

    question: Question
    columns: list[Any]  # names of features and label, or how many there are where they have none
    people: Array
    facts: tuple[Array, ...]  # whole numbers by row or by person: whose each row is, and prices
    earlier: Any = ""  # what versions whose requests did not cover the names of columns put in place of these two
    earlier_facts: tuple[Array, ...] = ()
    features: list[str] | None = None  # what a release calls the features; None: nothing that could be compared

    def fingerprint(self) -> str:
        """Returns a fingerprint of all of it: the same key must always mean the same request."""
        asked = asked_of(self.question, self.columns)
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=_spelt).encode())
        for part in (repr(self.people.tolist()).encode(), *map(_whole_bytes, self.facts)):
            digest.update(len(part).to_bytes(8, "big"))  # so that no two lists of parts run together
            digest.update(part)
        return digest.hexdigest()

    def earlier_fingerprint(self) -> str:
        """Returns the fingerprint that is in books of versions whose requests did not cover the names of columns."""
        return earlier_fingerprint(asked_of(self.question, self.earlier), self.people, *self.earlier_facts)

    def contradicts(self, release: Release) -> bool:
        """Whether a stored release is about other features than the request."""
        told = release.parameters.get("features")
        if self.features is None or not isinstance(told, list):
            return False
        return [name if isinstance(name, str) else name["name"] for name in told] != self.features


def asked_of(question: Question, about: Any = "") -> list[Any]:
    """Returns a question as a request is remembered by, so that requests in older books keep their fingerprint.

    A default that changed is written as it used to be; a parameter that came later is left out unless it is given.
    """
    told: dict[str, Any] = getattr(question, "asked_parameters", question.get_params)()
    later = getattr(question, "later", ())
    given = {name: value for name, value in told.items() if name not in later or value is not None}
    return [type(question).__name__, given, about]


def earlier_fingerprint(asked: list[Any], people: Array, *others: Array) -> str:
    """Returns a fingerprint as earlier versions made it; it recognises requests that are in books already."""
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=_spelt).encode())
    digest.update(repr(people.tolist()).encode())
    for array in others:
        digest.update(_whole_bytes(array))
    return digest.hexdigest()


def columns_asked(question: Question, values: Values) -> tuple[list[Any], list[str] | None]:
    """Returns the names of data in memory for a request, and the names of features as a release tells them."""
    data = [part for part in (values.X, values.y) if part is not None]
    names = [column_names(part) for part in data]
    if values.column is not None:
        names[-1] = [values.column]
    if len(data) < 2:
        return names, None
    if isinstance(getattr(question, "bounds", None), Schema):
        # It names the features, whatever else the table holds, and is a parameter of the question.
        return [None, *names[1:]], None
    count = names[0] if isinstance(names[0], int) else len(names[0])
    return names, feature_names(data[0]) or [f"x{j}" for j in range(count)]


def _whole_bytes(array: Array) -> bytes:
    return np.ascontiguousarray(array, dtype=np.int64).tobytes()


def _spelt(parameter: Any) -> Any:
    # Arrays in full: NumPy's own repr leaves out the middle of long ones.
    if isinstance(parameter, np.ndarray | np.generic):
        return parameter.tolist()
    if hasattr(parameter, "to_numpy"):  # data frames, whose repr leaves it out too
        return [list(parameter.columns) if hasattr(parameter, "columns") else [], parameter.to_numpy().tolist()]
    if not is_dataclass(parameter):
        return repr(parameter)
    # What a table or a unit is called is told to people, and is no part of what is asked.
    return {name: value for name, value in vars(parameter).items() if name not in LABELS}
