# SPDX-License-Identifier: Apache-2.0
"""The verbs of the page, for its forms and for its JSON alike: from plain values and a workspace to
results.

    bring       adds a table to the workspace
    grants      who grants how much, by a table                         reads people and budgets
    plan        what a release will cost whom, and what it is worth     reads people and budgets
    release     makes it: work beside the page, cancelled before anybody is charged, not after
    enter       writes the grants of a table into the books
    entries     the books, which name nobody
    verify      whether they add up
    audit       what people really lost: for the curator alone

Whatever is wrong is refused as a SottovoceError, which says what parameter it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from sottovoce import units
from sottovoce.audit import audit_from_table
from sottovoce.booking import name_grants, plan_rows, release_rows
from sottovoce.data.census import scale_budgets
from sottovoce.data.engine import get_table_label
from sottovoce.data.source import DataSource
from sottovoce.errors import InvalidParameter, InvalidRelease, MissingColumn, UnknownPeople
from sottovoce.estimator import (
    Estimator,
    get_budgets,
    make_estimator,
    plan_budgets,
    read_public,
    read_source,
)
from sottovoce.estimators import list_questions
from sottovoce.estimators.baseline_options import list_page_parameters, take_baseline, wrap
from sottovoce.estimators.report_file import list_asked
from sottovoce.ledger import Entry
from sottovoce.plan import refuse_changed_plan
from sottovoce.release import Release
from sottovoce.schema import Schema
from sottovoce.web.question_form import ONE_EACH
from sottovoce.web.uploads import save_table
from sottovoce.web.workspace import CachedBalances, Job, Workspace, prefetch_balances

if TYPE_CHECKING:
    from sottovoce.budgets import Budgets
    from sottovoce.data.engine import GroupLookup
    from sottovoce.estimators.report import Report
    from sottovoce.plan import Plan

#: Letters of a key: it is shown in tables and is part of a file's name.
LONGEST_KEY = 100
NOT_GRANTED = (
    "Not everybody's grant is in the ledger yet, so this is planned as if everybody had all that "
    "the table says left."
)


@dataclass(frozen=True)
class QuestionRequest:
    """A question about a table in the workspace, in plain values; what is not said, the table's
    schema says.
    """

    table: str
    question: str
    column: str | None = None
    epsilon: float | None = None
    share: float = 1.0
    spend_left: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportRequest:
    """Several questions about a table in the workspace, as entries of a file of questions, by
    name.
    """

    table: str
    questions: Mapping[str, Mapping[str, Any]]
    epsilon: float | None = None
    share: float = 1.0
    spend_left: bool = False


@dataclass(frozen=True)
class NotedPlan:
    """A plan, and what to say beside it."""

    plan: Plan
    note: str = ""


def upload(workspace: Workspace, name: str, source: BinaryIO) -> str:
    """Adds a table to the workspace, and returns its random name; the books are read while the
    curator describes it.
    """
    held = save_table(workspace, name, source)
    workspace.jobs.start(lambda job: prefetch_balances(workspace), "Reading the ledger")
    return held


def declare(workspace: Workspace, table: str, schema: Schema) -> None:
    """Keeps what the curator declared about a table; refuses names of columns that it does not
    have.
    """
    there = workspace.get_table(table).columns
    named = {
        *schema.columns,
        *(name for name in (schema.person, schema.budget, schema.label) if name is not None),
    }
    if not named <= set(there):
        raise InvalidParameter(
            "The schema names a column that the table does not have.",
            "",
            f"Its columns are: {', '.join(there)}.",
            parameter="schema.columns",
        )
    workspace.schemas[table] = schema
    prefetch_census(workspace, table)


def prefetch_census(workspace: Workspace, table: str) -> None:
    """Begins to count who takes part and what they have left, while the curator reads what is on
    the page.
    """
    schema = workspace.schemas[table]
    if schema.person is None:
        return
    # who they are is the same whatever they grant
    if schema.budget is None:
        everybody = ONE_EACH
    else:
        everybody = None

    def work(job: Job) -> None:
        CachedBalances(workspace, str(workspace.get_table(table).path), schema.person).balances(
            read_grants(workspace, table, everybody).names()
        )

    workspace.jobs.start(work, "Counting who takes part")


def read_grants(workspace: Workspace, table: str, epsilon: float | None = None) -> Budgets:
    """Returns who grants how much, by the table's columns of people and budgets, or one ε for
    everybody.
    """
    return _read_census(
        workspace, _find_source(workspace, QuestionRequest(table, "", epsilon=epsilon))
    )[0]


def count_grants(budgets: Budgets) -> list[dict[str, float]]:
    """Returns how many people grant which ε, and how many rows they have, from the most careful
    on.
    """
    kinds = budgets.kinds
    amounts, place = np.unique(kinds.epsilon, return_inverse=True)
    people = np.bincount(place, kinds.people, len(amounts)).astype(np.int64)
    rows = np.bincount(place, kinds.people * kinds.rows, len(amounts)).astype(np.int64)
    lines = zip(units.to_epsilon(amounts).tolist(), people.tolist(), rows.tolist(), strict=True)
    return [{"epsilon": e, "people": p, "rows": r} for e, p, r in lines]


def record_grants(workspace: Workspace, table: str, epsilon: float | None = None) -> int:
    """Writes what the people of a table grant into the books, as their total; returns how many they
    are.
    """
    budgets = read_grants(workspace, table, epsilon)
    if budgets.people is None:
        raise _no_person_error()
    workspace.session.grant(budgets)
    prefetch_census(workspace, table)
    return budgets.n_people


def make_plan(workspace: Workspace, said: DataSource, question: Estimator) -> NotedPlan:
    """Returns the plan of a release as it would be made now; no column in question is read, and
    nobody is charged.
    """
    _refuse_unbookable(workspace, said)
    public = read_public(question, said)
    short = workspace.session.short
    if public is None:
        budgets, _ = scale_budgets(*_read_census(workspace, said), said.share)
        ledger: Any = CachedBalances(workspace, said.table, said.person)
    else:
        budgets = get_budgets(public)
        ledger = workspace.session.ledger  # people are in the order of the rows here
    try:
        plan = plan_rows(ledger, short, question, budgets, said.spend_left, public)
        return NotedPlan(replace(plan, subject=said.subject))
    except UnknownPeople:
        pass  # somebody has no account yet: planned below as if all had
    plan = plan_budgets(question, budgets, public)
    return NotedPlan(replace(plan, subject=said.subject), NOT_GRANTED)


def start_release(
    workspace: Workspace, said: DataSource, question: Estimator, key: str, agreed: str | None = None
) -> str:
    """Begins a release under a key of the books, and returns the name of the work; what comes of it
    is that key.

    Under a key that is in the books already the same bytes come again, and nobody is charged. With
    ``agreed``, the digest of the plan that was shown, another plan is refused: at once, and again
    right before people are charged.
    """
    _refuse_unbookable(workspace, said)
    _check_key(key)
    if agreed is not None and workspace.session.ledger.find(key) is None:
        refuse_changed_plan(make_plan(workspace, said, question).plan, agreed)

    def work(job: Job) -> str:
        dataset = read_source(question, said, job.watch)
        budgets = get_budgets(dataset)
        asked = None
        if said.spend_left is None:
            asked = budgets.by_person(budgets.kinds.epsilon)
        granted: list[units.Units] = []
        made = release_rows(
            workspace.session.ledger,
            workspace.session.short,
            question,
            dataset,
            key,
            asked,
            agreed,
            job.commit,
            said.spend_left or "refuse",
            granted.append,
        )
        workspace.releases[key] = made.to_json().encode()
        if granted and (asked is None or not np.array_equal(granted[-1], asked)):
            workspace.sources[key] = name_grants(said, budgets, granted[-1])
        elif granted or asked is not None:
            workspace.sources.setdefault(key, said)
        return key

    return workspace.jobs.start(work, key)


def read_release(workspace: Workspace, key: str) -> bytes:
    """Returns the bytes that were released under a key, from the books."""
    known = workspace.session.ledger.find(key)
    if known is None or known.release is None:
        raise InvalidRelease(
            "No release is stored under this key.",
            "",
            "Look into the ledger for the keys there are.",
            parameter="key",
        )
    return known.release.encode()


def read_entries(workspace: Workspace) -> list[Entry]:
    """Returns all entries of the books, which name nobody."""
    return list(workspace.session.ledger.entries())


def verify_ledger(workspace: Workspace) -> Entry:
    """Computes every balance and digest again, and returns the last entry; raises if the books do
    not add up.
    """
    workspace.session.verify()
    return read_entries(workspace)[-1]


def audit_release(
    workspace: Workspace, table: str, key: str, delta: float, watch: Any = None
) -> Any:
    """Returns what people really lost to a release from this table: confidential, for the curator
    alone.
    """
    made = Release.from_json(read_release(workspace, key).decode())
    source = _find_source(workspace, QuestionRequest(table, ""))
    known = workspace.sources.get(key)
    if known is not None and known.table == source.table:
        source = describe_source(known)
    return audit_from_table(made, source, delta, watch)


def describe_source(made_from: DataSource) -> DataSource:
    """Returns the table and budgets that a release was made from; what it is about, the release
    says.
    """
    schema = replace(made_from.find_declared() or Schema(), label=None)
    budgets: dict[str, Any] = {"budget": made_from.budget, "epsilon": made_from.epsilon}
    if made_from.budget is not None:
        budgets["epsilon"] = None
    if made_from.budgets is not None:
        budgets = {"budgets": made_from.budgets, "unknown": made_from.unknown}
    return DataSource(
        made_from.table, schema=schema, person=made_from.person, share=made_from.share, **budgets
    )


def prepare_question(workspace: Workspace, wanted: QuestionRequest) -> tuple[DataSource, Estimator]:
    """Returns the question as the library takes it; refuses it in words if something is missing or
    wrong.
    """
    questions = list_questions()
    if wanted.question not in questions:
        raise InvalidParameter(
            "There is no such question.",
            f"Questions: {', '.join(questions)}.",
            "Choose one of these.",
            parameter="question",
        )
    question = questions[wanted.question]
    takes = [parameter.name for parameter in list_page_parameters(question)]
    if not set(wanted.parameters) <= set(takes):
        raise InvalidParameter(
            "A parameter is none of this question's.",
            f"It takes: {', '.join(takes)}.",
            "Leave the others out.",
            parameter="parameters",
        )
    said = question.complete_options(_find_source(workspace, wanted))
    own, around = take_baseline(wanted.parameters)
    parameters = question.complete_parameters(own)
    asked = make_estimator(question.load_class(), said, **parameters)
    return said, wrap(question, asked, around)


def prepare_report(workspace: Workspace, wanted: ReportRequest) -> tuple[DataSource, Estimator]:
    """Returns a report as the library takes it; refuses it in words if something is missing or
    wrong.
    """
    return complete_report(_find_source(workspace, wanted), wanted.questions)


def complete_report(
    said: DataSource, entries: Mapping[str, Mapping[str, Any]]
) -> tuple[DataSource, Report]:
    """Returns the table with the columns that such questions read, and their report; refuses what
    is wrong whoever the people are.
    """
    from sottovoce.estimators.report import Report

    whole = said.for_report()
    asked = list_asked(entries)
    schema = whole.find_declared() or Schema()
    described = schema if schema.columns else None
    report = Report(asked.questions, described, wanted=asked.wanted, shares=asked.shares)
    report.validate()
    return replace(whole, asked=report.read_table(whole).list_columns()), report


def _find_source(workspace: Workspace, wanted: QuestionRequest | ReportRequest) -> DataSource:
    schema = workspace.schemas.get(wanted.table, Schema())
    column = getattr(wanted, "column", None)
    if column is not None:
        schema = replace(schema, label=column)
    table = workspace.get_table(wanted.table)
    return DataSource(
        str(table.path),
        column=column,
        epsilon=wanted.epsilon,
        schema=schema,
        share=wanted.share,
        spend_left="leave-out" if wanted.spend_left else None,
        name=schema.name or get_table_label(table.name),
    )


def _read_census(workspace: Workspace, source: DataSource) -> tuple[Budgets, GroupLookup]:
    """Returns who takes part in a table, counted once while a slider moves."""
    alone = source.select_people()
    tiers = tuple(sorted(alone.tiers.items()))
    what = (alone.table, alone.person, alone.budget, alone.epsilon, tiers)
    found: tuple[Budgets, GroupLookup] = workspace.get_cached(what, alone.read_budgets)
    return found


def _check_key(key: str) -> None:
    if not key or len(key) > LONGEST_KEY or not key.isprintable():
        raise InvalidParameter(
            "The release has no key that can be used.",
            f"A key stands for one release, for ever: up to {LONGEST_KEY} letters, digits and "
            "signs.",
            "Name it, such as mean-of-May.",
            parameter="key",
        )


def _refuse_unbookable(workspace: Workspace, said: DataSource) -> None:
    """Refuses rows that are nobody's, and columns that are not there, before the table is
    opened.
    """
    if said.person is None:
        raise _no_person_error()
    there = next(
        (table.columns for table in workspace.tables.values() if str(table.path) == said.table), {}
    )
    if not set(said.private_columns) <= set(there):
        raise MissingColumn(
            "The table has no such column.",
            f"Its columns are: {', '.join(there)}.",
            "Name one.",
            parameter="column",
        )


def _no_person_error() -> InvalidParameter:
    return InvalidParameter(
        "Rows do not say whose they are.",
        "Accounts in the ledger belong to people.",
        "Say in the schema which column names the person.",
        parameter="schema.person",
    )
