# SPDX-License-Identifier: Apache-2.0
"""Several questions about one table on one budget: one plan, one charge, one release
(docs/theory/reports.md).

symbol     name
g_l        what person l grants, whole units of a billionth
α_j        the share of question j, whole millionths (report_shares.py)
g_l,j      what person l grants to question j: whole units, Σ_j g_l,j ≤ g_l

Every question is planned with its share of everybody's ε, as if it were asked alone by people who
grant that much, and answered under that plan; charges add up. Rows are read once for all of them
(data/shared_fold.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, Self

import numpy as np

from sottovoce import units
from sottovoce.arrays import ColumnLike, TableLike
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.engine import Dataset, Engine, GroupLookup
from sottovoce.data.shared_fold import fold_together
from sottovoce.data.source import UNOPENED, DataSource
from sottovoce.errors import BudgetExceeded, InvalidParameter
from sottovoce.estimator import (
    attach_intervals,
    describe_estimator,
    load_named_columns,
    make_budgets,
    make_release,
    read_source,
)
from sottovoce.estimators.column import LoadableEstimator, Parameters, load, not_fitted_error
from sottovoce.estimators.report_file import read_questions
from sottovoce.estimators.report_plan import ReportPlan, make_entry
from sottovoce.estimators.report_questions import (
    ReportQuestion,
    copy_estimator,
    list_questions,
    name_question,
)
from sottovoce.estimators.report_shares import (
    WHOLE,
    check_numbers,
    choose_shares,
    divide_budgets,
    find_worst_error,
    measure_by_spread,
    normalise_shares,
    price_errors,
)
from sottovoce.estimators.report_tables import (
    agree_on_counts,
    derive_count,
    derive_count_plan,
    expect_agreement,
    is_count,
)
from sottovoce.guarantee import Guarantee
from sottovoce.plan import Plan, Theorem
from sottovoce.release import LEVEL, Release, check_level
from sottovoce.schema import Schema, Subject

#: What roundings leave of a budget is charged too, if it is at most this part of it.
REST = 10**5

THEOREM = Theorem(
    "Questions on shares of a budget: each person l loses at most the sum of what the questions "
    "cost them (pure ε, replace)",
    "docs/theory/reports.md",
)


class GridOfEach:
    """The grid of a report, which has none: every question has its own."""

    def to_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}


class Report(LoadableEstimator, Parameters):
    """Several questions about one table, answered on one budget.

    **Question.** A mapping from names to estimators, or to pairs of an estimator and the column
    that it is about. Questions that are alike are answered once.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, for all answers together. Nobody's loss exceeds their own ε_l;
    see ``guarantee_``.

    **Formula.** Question j is planned and answered with a share α_j of everybody's ε, in whole
    units, Σα_j ≤ 1. Unless they are given, shares make the largest expected error, relative to the
    range of what is asked, as small as it can be (docs/theory/reports.md).

    >>> import pyarrow as pa
    >>> import sottovoce as sv
    >>> people = pa.table({"age": [30.0, 50.0] * 500, "cost": [100.0, 300.0] * 500})
    >>> report = sv.Report({
    ...     "mean age": (sv.Mean(bounds=(0, 100)), "age"),
    ...     "median cost": (sv.Quantile(bounds=(0, 1000)), "cost"),
    ... }).fit(people, epsilon=1.0)
    >>> list(report.value_), float(report.guarantee_.epsilon.max())
    (['mean age', 'median cost'], 1.0)

    **Limits.** Shares are chosen from public numbers, before anything is read: whether an answer
    turns out to be more or less precise than expected changes nothing. Only estimators that promise
    pure ε by replacement can take part.

    Parameters
    ----------
    questions :
        Names, and for each an estimator, or a pair (estimator, column).
    schema :
        Describes the table to the estimators that have no bounds of their own.
    wanted :
        By name, the error that is wanted, in the unit of that question: it gets the smallest share
        at which its plan expects no more, and the others share what is left. Where all have one, no
        more is spent than that needs. What cannot be had is refused, before anybody is charged.
    shares :
        By name, what each question's share is proportional to, for all of them; public numbers.
    """

    missing: float | None = None  # every question has its own
    one_table = True  # it reads columns of one table by their names
    release_: Release
    guarantee_: Guarantee
    parts_: dict[str, Any]
    value_: dict[str, Any]

    def __init__(
        self,
        questions: Mapping[str, Any] | None = None,
        schema: Schema | None = None,
        *,
        wanted: Mapping[str, float] | None = None,
        shares: Mapping[str, float] | None = None,
    ) -> None:
        self.questions = questions
        self.schema = schema
        self.wanted = wanted
        self.shares = shares

    @classmethod
    def load(cls, path: str | Path, schema: Schema | None = None) -> Self:
        """Return the report that a file of questions describes.

        Parameters
        ----------
        path : str | Path
            A TOML file with an entry for each question.
        schema : Schema, optional
            Describes the table to the questions that have no bounds of their own.

        Returns
        -------
        Self
            The report; nothing is read of any table.

        Raises
        ------
        InvalidParameter
            The file cannot be read, or an entry says what its question does not take.
        """
        asked = read_questions(path)
        return cls(asked.questions, schema, wanted=asked.wanted, shares=asked.shares)

    def fit(
        self,
        table: TableLike,
        epsilon: BudgetLike | None = None,
        groups: ColumnLike | None = None,
    ) -> Self:
        """Answer all questions about a table.

        Parameters
        ----------
        table : TableLike
            A table with names: a data frame, an Arrow table, or one that lives elsewhere (a path, a
            DuckDB relation, a dataset of Arrow, a data frame of Spark or Dask).
        epsilon : BudgetLike, optional
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.

        Returns
        -------
        Self
            The fitted report, with ``parts_``, the fitted estimators by name.

        Raises
        ------
        InvalidInput
            Something cannot be used; nobody is charged.
        ReleaseFailed
            Reading the rows failed; what was charged stays charged.
        """
        self.validate()
        dataset = read_source(self, DataSource.of(self, table, None, epsilon, groups))
        plan, release = make_release(self, dataset)
        self.release_ = release
        self.guarantee_ = plan.guarantee
        parts = release.parts
        fitted = {}
        for one in self._list_questions():
            fitted[one.name] = _set_part_fitted(one.estimator, parts[one.name])
            fitted[one.name].guarantee_ = plan.parts[one.name].guarantee
        self._set_parts(fitted)
        return self

    def plan(
        self, epsilon: BudgetLike, groups: ColumnLike | None = None, rows: int | None = None
    ) -> ReportPlan:
        """Return what the answers will cost whom, and how accurate each will be; nothing is read.

        Parameters
        ----------
        epsilon : BudgetLike
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.
        rows : int, optional
            How many rows there are, where neither epsilon nor groups tells.

        Returns
        -------
        ReportPlan
            What it will cost whom, the share of each question, and how accurate it will be.

        Raises
        ------
        InvalidInput
            A budget or parameter cannot be used, or what is wanted cannot be had.
        """
        return self.plan_for(make_budgets(epsilon, groups, rows, self.get_schema()))

    def interval(self, level: float = LEVEL) -> dict[str, Any]:
        """Return between which numbers the values of the population lie, by question.

        Parameters
        ----------
        level : float
            The probability, at least, with which each does, over the rows drawn and the noise.

        Returns
        -------
        dict[str, Any]
            What ``interval`` of each question returns, of those that have one.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        InvalidParameter
            The level is no probability.
        """
        if not hasattr(self, "release_"):
            raise not_fitted_error()
        check_level(level)
        found = {}
        for name, part in self.parts_.items():
            try:
                found[name] = part.interval(level)
            except InvalidParameter:
                continue  # this question has none
        return found

    def validate(self) -> None:
        """Refuses questions, wanted errors and shares that are wrong whoever the people are."""
        questions = self._list_questions()
        for one in questions:
            with name_question(one.name):
                one.estimator.validate()
        names = [one.name for one in questions]
        paid = [one.name for one in questions if one.answered_by == one.name]
        wanted = check_numbers(self.wanted, names, "wanted", "an error")
        note = " Those that are answered with another one need none."
        shares = check_numbers(self.shares, paid, "shares", "a share", note)
        if shares and (wanted or set(shares) != set(paid)):
            raise InvalidParameter(
                "Shares are given for some questions only, or together with wanted errors.",
                "Either every question has a share, or shares are chosen.",
                f"Give a share for each of: {', '.join(map(repr, paid))}; or none.",
                parameter="shares",
            )

    def get_schema(self) -> Schema:
        """Return the schema of the table: the report's own, or that of one of its questions.

        Returns
        -------
        Schema
            An empty one where there is none.
        """
        if isinstance(self.schema, Schema):
            return self.schema
        for one in self._list_questions():
            bounds = getattr(one.estimator, "bounds", None)
            if isinstance(bounds, Schema):
                return bounds
        return Schema()

    def _add_units(self, part: Plan) -> Plan:
        """Returns the plan of a question with the units that the schema declares."""
        columns = self.get_schema().columns
        declared = {name: column.unit for name, column in columns.items() if column.unit}
        return replace(part, subject=replace(part.subject, units=declared))

    def asked_parameters(self) -> dict[str, Any]:
        """Return what is asked, as a request is remembered by.

        Returns
        -------
        dict[str, Any]
            Names, estimators with what they were given, columns, and what is wanted.
        """
        asked = []
        for one in self._list_questions():
            given = getattr(one.estimator, "asked_parameters", one.estimator.get_params)()
            told = {name: value for name, value in given.items() if value is not None}
            asked.append([one.name, type(one.estimator).__name__, told, one.column])
        others = {"wanted": self.wanted, "shares": self.shares}
        return {"questions": asked} | {k: dict(v) for k, v in others.items() if v is not None}

    def read_arrays(self, *data: Any, epsilon: Any, groups: Any) -> Dataset:
        """Returns the budgets and rows of a table in memory, by the names of its columns."""
        (table,) = data
        described = self._describe_rows(DataSource(table))
        return load_named_columns(table, described, epsilon, groups)

    def read_table(self, table: DataSource) -> Dataset:
        """Returns what is read of a table for all questions."""
        return self._describe_rows(table)

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> ReportPlan:
        """The plan of all questions for these budgets."""
        self.validate()
        questions = self._list_questions()
        if rows is None:
            rows = self._describe_rows(DataSource(None))
        own = [one for one in questions if one.answered_by == one.name]
        plans = {one.name: _plan_question(one, budgets, rows.parts[one.name]) for one in own}
        # What nobody is charged for, such as the number of rows, needs no share.
        paid = [one for one in own if plans[one.name].guarantee.spent.any()]
        shares = self._choose_shares(budgets, rows, paid)
        divided = divide_budgets(budgets, [shares[one.name] for one in paid])
        for one, part in zip(paid, divided, strict=True):
            plans[one.name] = _plan_question(one, part, rows.parts[one.name])
        guarantee = reduce(add, (plans[one.name].guarantee for one in own))
        guarantee = replace(guarantee, spent=_charge_rests(guarantee.spent, budgets))
        parts = {one.name: _derive_plan(one, plans[one.answered_by]) for one in questions}
        counts = {
            one.name: parts[one.name]
            for one in questions
            if is_count(one.estimator) and parts[one.name].grid.cells.size > 1
        }
        parts |= expect_agreement(counts)
        parts = {name: self._add_units(part) for name, part in parts.items()}
        entries = []
        for one in questions:
            entry = make_entry(one.name, one.column, shares.get(one.name, 0), parts[one.name])
            if one.answered_by != one.name:
                entry["with"] = one.answered_by
            entries.append(entry)
        return ReportPlan(
            question="report",
            parameters={"questions": entries, "wanted": _to_json(self.wanted)},
            budgets=budgets,
            weights=next(iter(plans.values())).weights,
            guarantee=guarantee,
            noise={"distribution": "of each question its own"},
            grid=GridOfEach(),
            theorem=THEOREM,
            error=tuple(max(part.errors, key=lambda e: e.total) for part in parts.values()),
            parts=parts,
        )

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows once for all questions, and returns their answers in one release."""
        questions = self._list_questions()
        paid = [one for one in questions if one.answered_by == one.name]
        runs = [
            partial(_answer_question, one, plan.parts[one.name], rows.select_part(one.name))
            for one in paid
        ]
        answers = dict(
            zip((one.name for one in paid), fold_together(rows.engine, runs), strict=True)
        )
        told = {}
        estimators = {one.name: one.estimator for one in questions}
        for one in questions:
            told[one.name] = answers[one.answered_by]
            if is_count(one.estimator) and not is_count(estimators[one.answered_by]):
                source = rows.select_part(one.answered_by)
                told[one.name] = derive_count(
                    one.estimator, plan.parts[one.name], told[one.name], source
                )
        counts = {
            name: release
            for name, release in told.items()
            if is_count(estimators[name]) and isinstance(release.value, dict)
        }
        told |= agree_on_counts(counts, estimators)
        return Release.of(plan, {"answers": {name: one.to_part() for name, one in told.items()}})

    def _choose_shares(
        self, budgets: Budgets, rows: Dataset, paid: list[ReportQuestion]
    ) -> dict[str, int]:
        """Returns the share of each question that is paid for, in millionths."""
        names = [one.name for one in paid]
        given = check_numbers(self.shares, list(self.list_parts()), "shares", "a share")
        if given:
            return normalise_shares({name: given[name] for name in names})
        members = {
            name: [one for one in self._list_questions() if one.answered_by == name]
            for name in names
        }
        sources = {one.name: name for name, several in members.items() for one in several}
        limits = check_numbers(self.wanted, list(self.questions or ()), "wanted", "an error")
        wanted = {name: most for name, most in limits.items() if name in sources}
        curves = {
            one.name: partial(_expect_error, source, one, budgets, rows.parts[source.name])
            for source in paid
            for one in members[source.name]
        }
        priced = price_errors(curves, wanted, sources)
        others = {
            source.name: partial(
                _expect_relative_error,
                source,
                members[source.name],
                budgets,
                rows.parts[source.name],
            )
            for source in paid
            if source.name not in priced
        }
        if others:
            priced |= choose_shares(others, WHOLE - sum(priced.values()))
        return {name: priced[name] for name in names}

    def _list_questions(self) -> list[ReportQuestion]:
        """The questions with the schema that they are answered by."""
        return list_questions(self.questions, self.schema)

    def _describe_rows(self, table: DataSource) -> Dataset:
        """What is read of a table, for each question; nothing is read yet."""
        parts = {}
        for one in self._list_questions():
            if one.answered_by != one.name:
                continue
            with name_question(one.name):
                own = replace(table, column=one.column or table.column)
                parts[one.name] = one.estimator.read_table(own)
        return Dataset(UNOPENED, "", GroupLookup(), parts=parts)

    def list_parts(self) -> dict[str, Any]:
        """Return the estimators that are paid for, by name.

        Returns
        -------
        dict[str, Any]
            Estimators, with the schema of the report where they have no bounds.
        """
        return {
            one.name: one.estimator for one in self._list_questions() if one.answered_by == one.name
        }

    @classmethod
    def _adapt_arguments(cls, arguments: dict[str, Any], release: Release) -> dict[str, Any]:
        """What the report was made of, as far as its release says."""
        questions = {}
        for name, part in release.parts.items():
            estimator = copy_estimator(load(part))
            questions[name] = estimator if part.column is None else (estimator, part.column)
        return {"questions": questions, "wanted": release.parameters.get("wanted")}

    def _set_fitted(self, release: Release) -> None:
        self.release_ = release
        self._set_parts({name: load(part) for name, part in release.parts.items()})

    def _set_parts(self, parts: dict[str, Any]) -> None:
        self.parts_ = parts
        self.value_ = {
            name: getattr(part, "value_", part.release_.value) for name, part in self.parts_.items()
        }

    def _is_consistent_with(self, release: Release) -> bool:
        """Whether the release has an answer for every question it names."""
        names = [entry["name"] for entry in release.parameters["questions"]]
        return names == list(release.parts) == list(self.parts_)


def _plan_question(one: ReportQuestion, budgets: Budgets, rows: Dataset) -> Plan:
    """Returns the plan of a question with its share; refuses promises that do not add up."""
    with name_question(one.name):
        plan: Plan = one.estimator.plan_for(budgets, rows)
        promise = plan.guarantee
        if promise.currency != "pure epsilon" or promise.neighbours != "replace":
            raise InvalidParameter(
                "This estimator does not promise pure ε by replacement.",
                "Questions of a report share one budget, which is counted in pure ε.",
                "Ask it by itself.",
                parameter="questions",
            )
    return replace(plan, subject=Subject(column=rows.value or None))


def _charge_rests(spent: units.Units, budgets: Budgets) -> units.Units:
    """Returns what everybody is charged: the whole budget where roundings would leave so little of
    it that nobody could use it.
    """
    granted = budgets.kinds.epsilon
    if np.any(spent > granted):
        raise BudgetExceeded(
            "The questions together would cost somebody more than they granted.",
            "Nobody is ever charged more than that.",
            "Nothing was read and nobody was charged; please report it with the questions.",
            parameter="epsilon",
        )
    return np.where(granted - spent <= granted // REST, granted, spent)


def _derive_plan(one: ReportQuestion, plan: Plan) -> Plan:
    """Returns the plan of a question: its own, or that of the counts in another's table."""
    if is_count(one.estimator) and len(getattr(plan.grid, "parts", ())) > 1:
        return derive_count_plan(plan)
    return plan


def _expect_error(
    source: ReportQuestion, one: ReportQuestion, budgets: Budgets, rows: Dataset, share: int
) -> float:
    """Returns the largest error that is expected of a question in its own unit, if what answers it
    has this share.
    """
    (part,) = divide_budgets(budgets, [share])
    return find_worst_error(_derive_plan(one, _plan_question(source, part, rows)))


def _expect_relative_error(
    source: ReportQuestion,
    members: list[ReportQuestion],
    budgets: Budgets,
    rows: Dataset,
    share: int,
) -> float:
    """Returns the largest error of all questions that are answered together, each over what it is
    measured by.
    """
    (part,) = divide_budgets(budgets, [share])
    plan = _plan_question(source, part, rows)
    errors = []
    for one in members:
        own = _derive_plan(one, plan)
        measure = getattr(one.estimator, "get_error_scale", measure_by_spread)
        errors.append(find_worst_error(own) / float(measure(own)))
    return max(errors)


def _answer_question(one: ReportQuestion, plan: Plan, rows: Dataset, engine: Engine) -> Release:
    """Returns the answer of one question as a release, with its intervals."""
    rows = replace(rows, engine=engine)
    about = describe_estimator(one.estimator, plan, rows)
    release: Release = one.estimator.release_under(plan, rows)
    told = replace(release.with_subject(rows.subject, ""), estimator=about)
    return replace(told, intervals=attach_intervals(one.estimator, told))


def _set_part_fitted(estimator: Any, release: Release) -> Any:
    """Returns the estimator of a question with its answer."""
    if hasattr(estimator, "_set_fitted"):
        estimator._set_fitted(release)
    else:
        estimator.release_ = release
        estimator._set_value(release)
    return estimator


def _to_json(numbers: Mapping[str, float] | None) -> dict[str, float] | None:
    if numbers is None:
        return None
    return {str(name): float(number) for name, number in numbers.items()}
