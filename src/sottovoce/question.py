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
from dataclasses import dataclass, is_dataclass
from typing import Any, Protocol

import numpy as np

from sottovoce.bounds import Bounds, Interval, Schema
from sottovoce.budgets import Budgets
from sottovoce.columns import Table, by_names
from sottovoce.engine import Rows, in_memory
from sottovoce.errors import InvalidBounds, InvalidParameter, ReleaseFailed
from sottovoce.features import MATRIX, Label, Reader, Recoded, UnfitRows
from sottovoce.plan import Plan
from sottovoce.recoding import Recoding
from sottovoce.release import Release
from sottovoce.statistics import Owner, Unfit, unfit
from sottovoce.table import Array, Floats, column_names, feature_names, matrix, numbers, same_length

VALUE, KIND = "value", "kind"


class Question(Protocol):
    """What can be asked of people's rows."""

    missing: float | None

    def get_params(self) -> dict[str, Any]:
        """The public parameters, by name."""

    def gather(self, *data: Any, epsilon: Any, groups: Any) -> tuple[Budgets, Rows]:
        """Returns the budgets and rows of data in memory."""

    def rows_of(self, table: Table) -> Rows:
        """Returns what is read of a table by the names of its columns; nothing is read yet."""

    def plan_for(self, budgets: Budgets, rows: Rows | None = None) -> Plan:
        """Returns the plan, from public facts alone; ``rows`` tell no more than which columns there are."""

    def answer(self, plan: Plan, rows: Rows) -> Release:
        """Reads the rows, draws the noise, and returns what may be published."""


def budgets_of(epsilon: Any, groups: Any = None, rows: int | None = None) -> Budgets:
    """Returns budgets as they are, or made from ε and the rows' owners."""
    if isinstance(epsilon, Budgets):
        if groups is not None:
            raise InvalidParameter(
                "Budgets already say whose each row is.",
                "Two answers to that question could disagree.",
                "Pass groups= when building the Budgets, and not again.",
            )
        return epsilon
    return Budgets.of(epsilon, groups, rows)


def public_constant(missing: Any) -> float | None:
    """Returns the constant that stands for missing values, or None; refuses what is not a finite number."""
    if missing is None:
        return None
    try:
        constant = float(missing)
    except (TypeError, ValueError):
        constant = math.nan
    if not math.isfinite(constant):
        raise InvalidParameter(
            "What should stand for missing values is not a finite number.", "", "Choose a public constant, or none."
        )
    return constant


def declared_recoding(bounds: Any, X: Any) -> Recoding:
    """Returns the recoding of the features as declared; X, a table or a number, only tells how many there are."""
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
    return Recoding.of_bounds(bounds, feature_names(X), X if isinstance(X, int) else _count(X, bounds))


def _count(X: Any, bounds: Bounds) -> int:
    if X is not None:
        return int(np.shape(X)[1]) if np.ndim(X) == 2 else int(matrix(X, None).shape[1])
    sizes = [np.size(limit) for limit in bounds.features or () if np.ndim(limit)]
    if not sizes:
        raise InvalidParameter(
            "The number of features is not known.", "", "Pass n_features=, or bounds for each feature."
        )
    return int(sizes[0])


def rows_in_memory(values: Any, *, epsilon: Any, groups: Any) -> tuple[Budgets, Rows]:
    """Returns the budgets and rows of one column in memory."""
    column = numbers(values)
    if groups is not None:
        same_length(len(column), groups=groups)
    budgets = budgets_of(epsilon, groups, len(column))
    kinds = budgets.row_codes()
    same_length(len(column), epsilon=kinds)
    engine = in_memory().of_columns({VALUE: column, KIND: kinds})
    return budgets, Rows(engine, VALUE, Owner(KIND))


def regression_in_memory(
    raw: Floats,
    recoding: Recoding,
    values: Any,
    label: Interval,
    epsilon: Any,
    groups: Any,
    missing: float | None = None,
) -> tuple[Budgets, Rows]:
    """Returns the budgets and rows of a regression in memory, with the features recoded once."""
    column, recoded = numbers(values, "labels"), recoding.recoded(raw)
    same_length(len(recoded), y=column, groups=groups)
    budgets = budgets_of(epsilon, groups, len(column))
    return budgets, table_in_memory(recoded, Recoded(recoding), column, Label(VALUE, *label, missing), budgets)


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
        if rows.engine.fold(Unfit(rows.value, rows.owner, heard, question.missing)):
            raise unfit()
        return
    features, label = rows.engine.fold(UnfitRows(rows.features, rows.label, rows.owner, heard)).tolist()
    if features or label:
        raise rows.label.refusal() if label else unfit()


def run(question: Question, plan: Plan, rows: Rows) -> Release:
    """Returns the answer, or the one failure that tells nothing."""
    try:
        return question.answer(plan, rows)
    except Exception:
        pass  # raised below, outside the handler, so that nothing of the cause is carried along
    raise ReleaseFailed()


def gathered(
    question: Question, X: Any, y: Any = None, *, epsilon: Any, groups: Any, engine: str | None = None
) -> tuple[Budgets, Rows]:
    """Returns the budgets and rows of data in memory, or of a table wherever it lives, by the names of its columns."""
    if not by_names(X, y, epsilon, groups):
        return question.gather(*((X,) if y is None else (X, y)), epsilon=epsilon, groups=groups)
    table = Table.of(X, y, epsilon, groups, getattr(question, "bounds", None), engine)
    return table.read(question.rows_of(table))


def ask(question: Question, X: Any, y: Any = None, *, epsilon: Any, groups: Any) -> tuple[Plan, Release]:
    """Plans and answers a question about data in memory or a table."""
    budgets, rows = gathered(question, X, y, epsilon=epsilon, groups=groups)
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
        asked = [type(self.question).__name__, _parameters(self.question), self.columns]
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=_spelt).encode())
        for part in (repr(self.people.tolist()).encode(), *map(_whole_bytes, self.facts)):
            digest.update(len(part).to_bytes(8, "big"))  # so that no two lists of parts run together
            digest.update(part)
        return digest.hexdigest()

    def earlier_fingerprint(self) -> str:
        """Returns the fingerprint that is in books of versions whose requests did not cover the names of columns."""
        asked = [type(self.question).__name__, _parameters(self.question), self.earlier]
        return earlier_fingerprint(asked, self.people, *self.earlier_facts)

    def contradicts(self, release: Release) -> bool:
        """Whether a stored release is about other features than the request."""
        told = release.parameters.get("features")
        if self.features is None or not isinstance(told, list):
            return False
        return [name if isinstance(name, str) else name["name"] for name in told] != self.features


def _parameters(question: Question) -> dict[str, Any]:
    """The parameters as a request is remembered by, where a default that changed is written as it used to be."""
    told: dict[str, Any] = getattr(question, "asked_parameters", question.get_params)()
    return told


def earlier_fingerprint(asked: list[Any], people: Array, *others: Array) -> str:
    """Returns a fingerprint as earlier versions made it; it recognises requests that are in books already."""
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=_spelt).encode())
    digest.update(repr(people.tolist()).encode())
    for array in others:
        digest.update(_whole_bytes(array))
    return digest.hexdigest()


def columns_asked(question: Question, *data: Any) -> tuple[list[Any], list[str] | None]:
    """Returns the names of data in memory for a request, and the names of features as a release tells them."""
    names = [column_names(part) for part in data]
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
    return vars(parameter) if is_dataclass(parameter) else repr(parameter)
