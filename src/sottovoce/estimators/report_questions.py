# SPDX-License-Identifier: Apache-2.0
"""The questions of a report as they are asked: names, estimators, columns, and what answers each.

A question that asks the same as another is answered with it, and counts of the cells that another
table sums come with that table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sottovoce.errors import InvalidInput, InvalidParameter
from sottovoce.estimators import find_question
from sottovoce.estimators.report_tables import holds_counts, is_count
from sottovoce.estimators.table_steps import make_cells_of
from sottovoce.schema import Schema

#: More questions than this are refused: each would get next to nothing.
MOST_QUESTIONS = 200


@dataclass(frozen=True, eq=False)
class ReportQuestion:
    """One question of a report: its estimator, the column that it is about, and what answers it."""

    name: str
    estimator: Any
    column: str | None
    answered_by: str  # its own name, or that of a question whose release holds the answer


def list_questions(asked: Any, schema: Any) -> list[ReportQuestion]:
    """Returns the questions with the schema that they are answered by; refuses what is none."""
    if not isinstance(asked, Mapping) or not 0 < len(asked) <= MOST_QUESTIONS:
        raise InvalidParameter(
            "There are no questions with names, or too many.",
            f"A report is a mapping from 1 to {MOST_QUESTIONS} names to estimators, or to "
            "pairs of an estimator and a column.",
            'Pass such as {"mean age": (sv.Mean(bounds=(0, 100)), "age")}.',
            parameter="questions",
        )
    found: list[ReportQuestion] = []
    for name, entry in asked.items():
        _refuse_bad_name(name)
        with name_question(name):
            estimator, column = _split_pair(entry)
            estimator = _complete_estimator(estimator, column, schema)
        source = next((one.name for one in found if _is_alike(one, estimator, column)), name)
        found.append(ReportQuestion(name, estimator, column, source))
    return [_find_counts(one, found) for one in found]


def copy_estimator(estimator: Any) -> Any:
    """Returns an estimator with the same parameters and no answer."""
    return type(estimator)(**estimator.get_params(deep=False))


@contextmanager
def name_question(name: str) -> Iterator[None]:
    """Says in which question of a report something is wrong."""
    refusal = None
    try:
        yield
    except InvalidInput as error:
        refusal = error
    if refusal is not None:  # raised outside the handler, so that nothing hangs on it
        found = f"In the question {name!r}: {refusal.found[:1].lower()}{refusal.found[1:]}"
        raise type(refusal)(
            found, refusal.required, refusal.remedy, parameter=refusal.parameter, question=name
        )


def _refuse_bad_name(name: Any) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > 200 or not name.isprintable():
        raise InvalidParameter(
            "A name of a question cannot be used.",
            "Names are text of one line, up to 200 signs.",
            "Call it what it asks, such as 'cost by region'.",
            parameter="questions",
        )


def _split_pair(asked: Any) -> tuple[Any, str | None]:
    """Returns the estimator and the column of one entry."""
    column = None
    if isinstance(asked, tuple | list) and len(asked) == 2:
        asked, column = asked
    question = find_question(type(asked))
    usable = question is not None and question.reads != "report"
    if not usable or not (column is None or isinstance(column, str)):
        raise InvalidParameter(
            "There is no estimator that a report can ask.",
            "An entry is an estimator such as sv.Mean(...), or a pair of it and a column's name.",
            "Pass estimators themselves, not classes; baselines and reports cannot be part of one.",
            parameter="questions",
        )
    return asked, column


def _complete_estimator(estimator: Any, column: str | None, schema: Any) -> Any:
    """Returns a copy of an estimator, with the schema of the report where it has no bounds."""
    if schema is not None and not isinstance(schema, Schema):
        raise InvalidParameter(
            "The schema of the report is no schema.",
            "It describes the columns of the table.",
            "Pass sv.Schema.load(...) or sv.Schema.of(...).",
            parameter="schema",
        )
    own = copy_estimator(estimator)
    given = own.get_params()
    if schema is None:
        return own
    if "schema" in given and given["schema"] is None:
        own.set_params(schema=schema)
    if "bounds" not in given or given["bounds"] is not None:
        return own
    question = find_question(type(estimator))
    if question is not None and question.predicts:
        others = {schema.person, schema.budget}
        kept = {n: c for n, c in schema.columns.items() if n not in others and c.kind != "text"}
        schema = Schema(columns=kept, label=column or schema.label)
    return own.set_params(bounds=schema)


def _is_alike(one: ReportQuestion, estimator: Any, column: str | None) -> bool:
    """Whether a question asks the same as another, with the same parameters and column."""
    if type(one.estimator) is not type(estimator) or one.column != column:
        return False
    # In full: repr leaves out the middle of long arrays.
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        return repr(_list_given(one.estimator)) == repr(_list_given(estimator))


def _find_counts(one: ReportQuestion, questions: list[ReportQuestion]) -> ReportQuestion:
    """Returns a question about counts as answered by another table of the same cells, if there is
    one.
    """
    first = next(other for other in questions if other.name == one.answered_by)
    if not is_count(first.estimator):
        return one
    with name_question(one.name):
        cells = make_cells_of(first.estimator)
    if cells.size == 1:  # the number of rows, which is public
        return one
    for other in questions:
        with name_question(other.name):
            if other.answered_by == other.name and holds_counts(other.estimator, cells):
                return replace(one, answered_by=other.name)
    return one


def _list_given(estimator: Any) -> list[tuple[str, Any]]:
    given = sorted(estimator.get_params().items())
    return [(name, part.to_numpy() if hasattr(part, "to_numpy") else part) for name, part in given]
