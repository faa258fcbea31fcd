# SPDX-License-Identifier: Apache-2.0
"""The plan of a report: the plans of its questions, and what they cost everybody together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sottovoce.estimators.report_shares import WHOLE, find_worst_error
from sottovoce.plan import Plan, describe_representative
from sottovoce.units import format_percent
from sottovoce.wording import describe_error, describe_question


@dataclass(frozen=True, eq=False)
class ReportPlan(Plan):
    """Shares, charges and expected errors of several questions on one budget, all of them public.

    ``parts`` are the plans of the questions by name; ``weights`` are those of the first, since each
    has weights of its own.
    """

    @property
    def shares(self) -> dict[str, float]:
        """The share of everybody's ε that each question takes; 0 where another answers it too."""
        return {entry["name"]: entry["share"] / WHOLE for entry in self.parameters["questions"]}

    @property
    def error_is(self) -> str:
        """What the expected errors measure, in words."""
        return (
            "of each question the largest root mean square difference from the classical answer "
            "on the same table, in its own unit"
        )

    @property
    def error_unit(self) -> str:
        """Every question has a unit of its own."""
        return "by question"

    @property
    def errors_by_question(self) -> dict[str, float]:
        """The largest error that is expected of each question, in its own unit."""
        return {name: find_worst_error(part) for name, part in self.parts.items()}

    def who_pays(self) -> list[dict[str, float]]:
        """Return what people pay for all questions together, from the most to the least careful.

        Returns
        -------
        list[dict[str, float]]
            A line for each group of people; ``voice`` is the mean over the questions.
        """
        lines = super().who_pays()
        own = [replace_budgets(part, self).who_pays() for part in self._list_paid()]
        for place, line in enumerate(lines):
            line["voice"] = float(np.mean([told[place]["voice"] for told in own]))
        return lines

    @cached_property
    def representative(self) -> float:
        """How representative the least representative answer is."""
        return min(part.representative for part in self.parts.values())

    def describe_weights(self) -> list[str]:
        """Return in words who counts how much, in the answer that is furthest from equal weights.

        Returns
        -------
        list[str]
            Sentences.
        """
        return [describe_representative(self.representative)]

    def list_lines(self) -> list[tuple[str, str, str, str]]:
        """Return a line for each question: its name, what it asks, its share and expected error.

        Returns
        -------
        list[tuple[str, str, str, str]]
            Texts.
        """
        lines = []
        for entry in self.parameters["questions"]:
            part = self.parts[entry["name"]]
            if "with" in entry:
                share = f"with {entry['with']!r}"
            else:
                share = format_percent(entry["share"] / WHOLE)
            error = describe_error(part, beside_parts=True)
            lines.append((entry["name"], describe_question(part), share, error))
        return lines

    def describe_errors(self) -> list[str]:
        """Return the share of each question, its expected error, and what that is made of.

        Returns
        -------
        list[str]
            A sentence for each question.
        """
        told = []
        for name, asked, share, error in self.list_lines():
            parts = " ".join(self.parts[name].describe_errors())
            told.append(f"{name}: {asked}, share {share}, expected error {error}. {parts}")
        return told

    def _list_paid(self) -> list[Plan]:
        """The plans of the questions that are charged."""
        entries = self.parameters["questions"]
        return [self.parts[entry["name"]] for entry in entries if "with" not in entry]


def replace_budgets(part: Plan, whole: Plan) -> Plan:
    """Returns the plan of a question grouped by what people grant to all questions together."""
    return replace(part, budgets=whole.budgets)


def make_entry(name: str, column: str | None, share: int, plan: Plan) -> dict[str, Any]:
    """Returns what a plan and a release say about one question, as public JSON."""
    entry = {
        "name": name,
        "question": plan.question,
        "column": column,
        "share": share,
        "plan_digest": plan.digest,
    }
    return {key: value for key, value in entry.items() if value is not None}
