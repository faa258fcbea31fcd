# SPDX-License-Identifier: Apache-2.0
"""Baselines that change grants alone, as questions that a ledger can book (theory/baselines.md,
equations 1 and 9).

Everybody at the smallest ε, or at a threshold if they grant it, is the question itself, asked of
people who grant that much or nothing. So it is planned, charged and answered like any other
question, of a table wherever it lives: whoever grants nothing then has no weight, and their values
are not looked at.

symbol   name
ε_l      what person l grants; in a kind of people all grant the same
g_l      what person l grants to the question inside: g_l ≤ ε_l
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from sottovoce import units
from sottovoce.budgets import Budgets
from sottovoce.data.engine import Dataset
from sottovoce.plan import Plan
from sottovoce.release import Release

#: The parameter by which plans and releases tell that a baseline goes around their question.
BASELINE = "baseline"


class GrantBaseline(Protocol):
    """A baseline that says what everybody grants to the question inside, and picks no rows."""

    estimator: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The public parameters, by name."""

    def lower_grants(self, budgets: Budgets) -> units.Units:
        """Returns what each kind of people grants to the question inside, at most their own ε."""

    def describe_grants(self, budgets: Budgets) -> dict[str, Any]:
        """Returns the baseline as plans and releases tell it."""


class BaselineQuestion:
    """A baseline around a question of this library, in the steps of every question.

    What is read, and how, is the question's own. Each person l loses at most g_l ≤ ε_l, which is
    the promise of the question inside to people who grant g_l.
    """

    def __init__(self, baseline: GrantBaseline) -> None:
        self.baseline = baseline
        self.estimator = baseline.estimator
        self.recorded_class = type(baseline.estimator).__name__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("baseline", "estimator"):
            raise AttributeError(name)
        return getattr(self.estimator, name)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The public parameters, by name."""
        return self.baseline.get_params(deep)

    def asked_parameters(self) -> dict[str, Any]:
        """Return what is asked, as a request is remembered by.

        Returns
        -------
        dict[str, Any]
            The baseline with its parameters, and the question inside with its own.
        """
        inside = self.estimator
        given = getattr(inside, "asked_parameters", inside.get_params)()
        own = self.baseline.get_params(deep=False)
        return {
            **{name: value for name, value in own.items() if name != "estimator"},
            BASELINE: type(self.baseline).__name__,
            "asked": [
                type(inside).__name__,
                {name: value for name, value in given.items() if value is not None},
            ],
        }

    def validate(self) -> None:
        """Refuses parameters of the question inside that are wrong for any people."""
        self.estimator.validate()

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """Return the plan of the question inside, for people who grant g_l.

        Parameters
        ----------
        budgets : Budgets
            Who grants how much, ε_l.
        rows : Dataset, optional
            Tell which columns there are.

        Returns
        -------
        Plan
            What it will cost whom, beside what each grants, and how accurate it will be.
        """
        inner = self.plan_inside(budgets, rows)
        told = {**inner.parameters, BASELINE: self.baseline.describe_grants(budgets)}
        return replace(inner, parameters=told, budgets=budgets, rivals=None)

    def plan_inside(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """Return the plan of the question inside as it is asked.

        Parameters
        ----------
        budgets : Budgets
            Who grants how much, ε_l.
        rows : Dataset, optional
            Tell which columns there are.

        Returns
        -------
        Plan
            The same kinds of people, with what they grant to the question inside.
        """
        lowered = self._lower(budgets)
        if rows is None:
            plan: Plan = self.estimator.plan_for(lowered)
        else:
            plan = self.estimator.plan_for(lowered, replace(rows, budgets=lowered))
        return plan

    def find_participants(self, plan: Plan) -> Any:
        """Returns which kinds of people take part: nobody else's values are looked at."""
        return self._lower(plan.budgets).kinds.epsilon > 0

    def release_under(self, plan: Plan, rows: Dataset, **options: Any) -> Release:
        """Returns the answer of the question inside under its plan, with the baseline told.

        Satisfies: the rows, the noise and the charges are those of the question inside for people
        who grant g_l; nothing else is read or drawn.
        """
        inner = self.plan_inside(plan.budgets, rows)
        made: Release = self.estimator.release_under(
            inner, replace(rows, budgets=inner.budgets), **options
        )
        return replace(
            made,
            parameters={**made.parameters, BASELINE: plan.parameters[BASELINE]},
            certificate=replace(made.certificate, plan_digest=plan.digest),
        )

    def _lower(self, budgets: Budgets) -> Budgets:
        """The same kinds of people, in the same order, with what they grant to the question."""
        granted = self.baseline.lower_grants(budgets)
        return replace(budgets, kinds=replace(budgets.kinds, epsilon=granted))
