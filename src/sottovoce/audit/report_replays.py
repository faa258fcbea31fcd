# SPDX-License-Identifier: Apache-2.0
"""The losses of a report: those of its questions, added up (docs/theory/per-instance.md, section on
realised losses).

Questions draw their noise independently, each under its own plan and with its share of everybody's
budget, so the probability of all answers is the product of theirs, and log-ratios add up, with
their signs. Answers that follow from others (counts that another table holds, tables that were
made to agree) are functions of what was drawn, and add nothing: what was drawn is published too.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from sottovoce.audit.inputs import iterate_candidates
from sottovoce.audit.realised import find_stages, prepare_model
from sottovoce.audit.replays import Replayed, ReplayMethod, StageLoss
from sottovoce.budgets import Budgets
from sottovoce.data.engine import Dataset
from sottovoce.estimators.report import Report
from sottovoce.estimators.report_plan import ReportPlan
from sottovoce.estimators.report_questions import ReportQuestion
from sottovoce.release import Release


class ReleasedReport(Report):
    """A report whose questions and shares are those of its release."""

    estimators: dict[str, Any]  # by name

    @classmethod
    def of(cls, release: Release, model: Any) -> Any:
        """The same report, as its release tells it."""
        again = copy.copy(model)
        again.__class__ = cls
        again.release_ = release
        again.estimators = {name: prepare_model(part)[1] for name, part in release.parts.items()}
        return again

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> ReportPlan:
        """The plan; where a release does not say whether a number was given or chosen, with the
        one of both that leads to the plan of that question.
        """
        plan = super().plan_for(budgets, rows)
        for entry in self.release_.parameters["questions"]:
            name = entry["name"]
            candidates = iterate_candidates(self.release_.parts[name], self.estimators[name])
            while not _has_entry(plan, entry):
                other = next(candidates, None)
                if other is None:
                    return plan  # which is refused, as another than that of the release
                self.estimators = {**self.estimators, name: other}
                plan = super().plan_for(budgets, rows)
        return plan

    def _list_questions(self) -> list[ReportQuestion]:
        return [
            ReportQuestion(
                entry["name"],
                self.estimators[entry["name"]],
                entry.get("column"),
                entry.get("with", entry["name"]),
            )
            for entry in self.release_.parameters["questions"]
        ]

    def _choose_shares(
        self, budgets: Budgets, rows: Dataset, paid: list[ReportQuestion]
    ) -> dict[str, int]:
        told = {entry["name"]: entry["share"] for entry in self.release_.parameters["questions"]}
        return {one.name: told[one.name] for one in paid}


def _has_entry(plan: ReportPlan, entry: dict[str, Any]) -> bool:
    """Whether a plan says the same about a question, but for answers that follow from others."""
    if "with" in entry:
        return True
    return entry in plan.parameters["questions"]


def replay_report(made: Replayed) -> list[StageLoss]:
    """Return the stages of all questions that were paid for."""
    stages = []
    for entry in made.plan.parameters["questions"]:
        if "with" in entry:
            continue
        name = entry["name"]
        part = replace(
            made,
            release=made.release.parts[name],
            model=made.model.estimators[name],
            plan=made.plan.parts[name],
            rows=made.rows.select_part(name),
        )
        stages += [stage._replace(name=f"{name}: {stage.name}") for stage in find_stages(part)]
    return stages


REPORT = ReplayMethod(replay_report, prepare=ReleasedReport.of)
