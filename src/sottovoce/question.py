# SPDX-License-Identifier: Apache-2.0
"""Question, the contract of estimators/, and the order of steps that every answer follows.

    budgets → plan_for → (the ledger writes the charges) → fit to be read? → answer → Release

A question plans from budgets alone, and answers from rows under a plan. Everything a caller can get
wrong is refused before the plan is paid for; once rows are being read for the answer, every failure
looks the same from outside, because why it failed may depend on the data.
"""

from __future__ import annotations

from typing import Any, Protocol

from sottovoce.budgets import Budgets
from sottovoce.engine import Rows, named
from sottovoce.errors import ReleaseFailed
from sottovoce.plan import Plan
from sottovoce.release import Release
from sottovoce.statistics import Owner, Unfit, unfit
from sottovoce.table import numbers, same_length

VALUE, KIND = "value", "kind"


class Question(Protocol):
    """What can be asked of people's rows."""

    missing: float | None

    def get_params(self) -> dict[str, Any]:
        """The public parameters, by name."""

    def plan_for(self, budgets: Budgets) -> Plan:
        """Returns the plan, from public facts alone."""

    def answer(self, plan: Plan, rows: Rows) -> Release:
        """Reads the rows, draws the noise, and returns what may be published."""


def budgets_of(epsilon: Any, groups: Any = None, rows: int | None = None) -> Budgets:
    """Returns budgets as they are, or made from ε and the rows' owners."""
    if isinstance(epsilon, Budgets):
        return epsilon
    return Budgets.of(epsilon, groups, rows)


def rows_in_memory(values: Any, epsilon: Any, groups: Any) -> tuple[Budgets, Rows]:
    """Returns the budgets and rows of one column in memory."""
    column = numbers(values)
    if groups is not None:
        same_length(len(column), groups=groups)
    budgets = budgets_of(epsilon, groups, len(column))
    kinds = budgets.row_codes()
    same_length(len(column), epsilon=kinds)
    engine = named("arrow").of_columns({VALUE: column, KIND: kinds})
    return budgets, Rows(engine, VALUE, Owner(KIND))


def refuse_unfit(question: Question, plan: Plan, rows: Rows) -> None:
    """Refuses rows with missing or infinite values, before anything is charged."""
    heard = plan.weights.row > 0
    if rows.engine.fold(Unfit(rows.value, rows.owner, heard, question.missing)):
        raise unfit()


def run(question: Question, plan: Plan, rows: Rows) -> Release:
    """Returns the answer, or the one failure that tells nothing."""
    try:
        return question.answer(plan, rows)
    except Exception:
        pass  # raised below, outside the handler, so that nothing of the cause is carried along
    raise ReleaseFailed()


def ask(question: Question, values: Any, epsilon: Any, groups: Any) -> tuple[Plan, Release]:
    """Plans and answers a question about one column in memory."""
    budgets, rows = rows_in_memory(values, epsilon, groups)
    plan = question.plan_for(budgets)
    refuse_unfit(question, plan, rows)
    return plan, run(question, plan, rows)
