# SPDX-License-Identifier: Apache-2.0
"""The curator's way to a report: several questions about one table, one plan, one charge.

    /report/{table}            the questions and their plan, from public facts
    /report/{table}/release    the release under the plan that was shown

It goes on where every release does (release_pages.py): the work, and what came of it. What was
asked travels in the address, so every page can be reloaded.

Fields that belong to one question end in its number: ask-0, column-0, q-0, wanted-0. What they say
becomes the same entries that a file of questions has, so that the page, `sottovoce report` and the
JSON read one description in one way. What is wrong is a sentence beside its field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.data.engine import get_table_label
from sottovoce.data.source import DataSource
from sottovoce.errors import BudgetExceeded, SottovoceError
from sottovoce.estimators import Question, list_shared_questions
from sottovoce.estimators.report import Report
from sottovoce.report.plan import draw_plan
from sottovoce.schema import Schema
from sottovoce.web import actions
from sottovoce.web.layout import get_workspace, mark_trusted, redirect, render
from sottovoce.web.question_form import (
    COLUMN_PARAMETERS,
    Fields,
    make_first_form,
    name_spending_field,
    read_options,
    read_spending,
)
from sottovoce.web.workspace import Workspace

#: Questions of one report at the page: all of them stand in its address.
MOST_QUESTIONS = 20
#: The fields of each question besides its parameters, and those of the report as a whole.
QUESTION_FIELDS = ("name", "ask", "column", "wanted", "share")
REPORT_FIELDS = ("share", "epsilon", "spend_left", "key")


@dataclass(frozen=True)
class ReportForm:
    """A report as it was typed: its table, its entries by name, and the report of the library."""

    said: DataSource
    report: Report
    entries: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class TypedQuestion:
    """One question of the form: its number, its entry in the registry, and what stands in it."""

    place: int
    kind: Question
    typed: Mapping[str, str]

    @property
    def set_by_hand(self) -> bool:
        """Whether something is set besides what is asked, of which column, and under what name."""
        usual = {one.name: one.default_text for one in self.kind.form_parameters}
        usual |= {one.name: one.values[0] for one in self.kind.form_parameters if one.choices}
        usual |= {"wanted": "", "share": ""}
        return any(self.typed.get(name, "") not in ("", told) for name, told in usual.items())

    @property
    def usual_name(self) -> str:
        """What it is called where no name is typed."""
        if self.kind.reads == "table":
            return self.kind.name
        return f"{self.kind.name} of {self.typed.get('column', '')}"


def list_typed(fields: Fields) -> list[TypedQuestion]:
    """Returns the questions that stand in the form, in their order."""
    offered = list_shared_questions()
    usual = next(iter(offered.values()))
    found = []
    for place in range(MOST_QUESTIONS):
        if f"ask-{place}" not in fields.form:
            break
        kind = offered.get(fields.get_typed(f"ask-{place}"), usual)
        names = (*QUESTION_FIELDS, *(one.name for one in kind.form_parameters))
        typed = {name: fields.get_typed(f"{name}-{place}") for name in names}
        found.append(TypedQuestion(place, kind, typed))
    return found


def write_form(questions: list[TypedQuestion], fields: Fields) -> dict[str, str]:
    """Returns the fields of these questions, numbered from 0 on, and those of the report; fields in
    which nothing stands are left out.
    """
    written = {name: fields.get_typed(name) for name in REPORT_FIELDS}
    for place, question in enumerate(questions):
        written |= {f"{name}-{place}": value for name, value in question.typed.items()}
    return {name: value for name, value in written.items() if value}


def make_first_report(schema: Schema) -> dict[str, str]:
    """Returns what stands in the form at first: one question, at the full share."""
    first = make_first_form(schema)
    return {
        "ask-0": next(iter(list_shared_questions())),
        "column-0": first["column"],
        "share": first["share"],
        "epsilon": first["epsilon"],
    }


def change_questions(fields: Fields, schema: Schema) -> dict[str, str] | None:
    """Returns the form with a question more or less, if a button asks for that; else None."""
    questions = list_typed(fields)
    if fields.is_checked("add"):
        first = make_first_report(schema)
        kind = list_shared_questions()[first["ask-0"]]
        added = {"ask": first["ask-0"], "column": first["column-0"]}
        questions.append(TypedQuestion(len(questions), kind, added))
        return write_form(questions[:MOST_QUESTIONS], fields)
    removed = fields.get_typed("remove")
    if not removed:
        return None
    kept = [one for one in questions if str(one.place) != removed]
    return write_form(kept or questions, fields)


def read_report(
    fields: Fields, path: str, schema: Schema, name: str | None = None
) -> ReportForm | None:
    """Returns the report; None where the form has complaints, which stand beside their fields."""
    entries: dict[str, dict[str, Any]] = {}
    for question in list_typed(fields):
        title, entry = _read_entry(fields, question, schema)
        if title in entries:
            fields.complain(
                f"name-{question.place}", "Another question is called so. Choose another name."
            )
        entries[title] = entry
    share, epsilon, spend_left = read_spending(fields, schema)
    if f"ask-{MOST_QUESTIONS}" in fields.form:
        fields.complain("", f"A report on this page has at most {MOST_QUESTIONS} questions.")
    if not entries:
        fields.complain("", "The report has no question yet. Add one.")
    if fields.complaints:
        return None
    said = DataSource(
        path,
        schema=schema,
        epsilon=epsilon,
        share=share,
        spend_left=spend_left,
        name=schema.name or name,
    )
    try:
        return ReportForm(*actions.complete_report(said, entries), entries)
    except SottovoceError as error:
        complain_about(fields, error, schema)
    return None


def _read_entry(
    fields: Fields, question: TypedQuestion, schema: Schema
) -> tuple[str, dict[str, Any]]:
    """Returns the name of a question and its entry; what is wrong is marked in the form."""
    own = Fields(question.typed)
    kind = question.kind
    own.choice("ask", list_shared_questions())
    column = own.choice("column", schema.columns, needed=kind.reads != "table")
    entry: dict[str, Any] = {"ask": kind.name}
    options: dict[str, Any] = {}
    if column is not None and kind.reads != "table":
        entry["column"] = column
    if column is not None:
        options = read_options(own, kind, schema.columns[column])
    for word in ("wanted", "share"):
        options[word] = own.number(word, needed=False, least=0, above=True)
    entry |= {word: value for word, value in options.items() if value is not None}
    title = own.text("name", needed=False) or question.usual_name
    for word, sentence in own.complaints.items():
        fields.complain(f"{word}-{question.place}", sentence)
    return title, entry


def complain_about(fields: Fields, error: SottovoceError, schema: Schema) -> None:
    """Records an error of the library beside the field that it is about: one of a question, what
    may be spent, the key, or the form as a whole.
    """
    spending = name_spending_field(schema)
    whole = {"key": "key", **dict.fromkeys(("epsilon", "share", "budget"), spending)}
    if isinstance(error, BudgetExceeded):
        fields.complain(spending, str(error))
        return
    for question in list_typed(fields):
        if error.question == (question.typed["name"] or question.usual_name):
            names = {name: name for name in question.typed}
            names |= dict.fromkeys(COLUMN_PARAMETERS, "column")
            field = names.get(error.parameter or "", "ask")
            fields.complain(f"{field}-{question.place}", str(error))
            return
    fields.complain(whole.get(error.parameter or "", ""), str(error))


def copy_typed_fields(fields: Fields) -> dict[str, str]:
    """Returns what stands in the fields of the report, and nothing else that came with them."""
    return write_form(list_typed(fields), fields)


def is_report(form: Mapping[str, Any]) -> bool:
    """Whether fields are those of a report and not of a single question."""
    return any(re.fullmatch(r"ask-\d+", name) for name in form)


def show_report(request: Request) -> Response:
    """The questions of a report and their plan; the script asks for this page again while
    something is changed.
    """
    workspace = get_workspace(request)
    name = request.path_params.get("table") or next(iter(workspace.schemas), None)
    if name is None or name not in workspace.schemas:
        return redirect(f"/table/{name}" if name in workspace.tables else "/")
    schema = workspace.schemas[name]
    fields = Fields(dict(request.query_params) or make_first_report(schema))
    changed = change_questions(fields, schema)
    if changed is not None:
        return redirect(f"/report/{name}", **changed)
    return _render_report(request, name, fields, _make_plan(workspace, name, fields))


def _read_form(workspace: Workspace, name: str, fields: Fields) -> ReportForm | None:
    table = workspace.get_table(name)
    return read_report(
        fields, str(table.path), workspace.schemas[name], get_table_label(table.name)
    )


def _make_plan(workspace: Workspace, name: str, fields: Fields) -> actions.NotedPlan | None:
    asked = _read_form(workspace, name, fields)
    if asked is None:
        return None
    try:
        return actions.make_plan(workspace, asked.said, asked.report)
    except SottovoceError as error:
        complain_about(fields, error, workspace.schemas[name])
    return None


def _render_report(
    request: Request, name: str, fields: Fields, planned: actions.NotedPlan | None
) -> Response:
    workspace = get_workspace(request)
    described = workspace.schemas[name]
    questions = list_typed(fields)
    return render(
        request,
        "report.html",
        422 if fields.complaints else 200,
        name=name,
        table=workspace.get_table(name),
        offered=[(key, asked.title) for key, asked in list_shared_questions().items()],
        columns=[(column, column) for column in described.columns],
        questions=questions,
        full=len(questions) >= MOST_QUESTIONS,
        by_share=described.budget is not None,
        typed={word: value for word, value in fields.form.items() if isinstance(value, str)},
        sent=copy_typed_fields(fields),
        plan=None if planned is None else mark_trusted(draw_plan(planned.plan)),
        digest="" if planned is None else planned.plan.agreement,
        note="" if planned is None else planned.note,
        complaints=fields.complaints,
    )


async def start_release(request: Request) -> Response:
    """Begins the release under the plan that was shown; everybody is charged before a value is
    read.
    """
    workspace = get_workspace(request)
    name = request.path_params["table"]
    if name not in workspace.schemas:
        return redirect("/")
    fields = Fields(dict(await request.form(max_files=0)))
    key = fields.text("key", longest=actions.LONGEST_KEY)
    job = await run_in_threadpool(_start_job, workspace, name, fields, key)
    if job is not None:
        return redirect(f"/job/{job}", **copy_typed_fields(fields), table=name)
    planned = await run_in_threadpool(_make_plan, workspace, name, Fields(fields.form))
    return await run_in_threadpool(_render_report, request, name, fields, planned)


def _start_job(workspace: Workspace, name: str, fields: Fields, key: str | None) -> str | None:
    """Returns the name of the work, or None where something has to be corrected first."""
    asked = _read_form(workspace, name, fields)
    if asked is None or key is None:
        return None
    try:
        return actions.start_release(
            workspace, asked.said, asked.report, key, agreed=fields.get_typed("plan")
        )
    except SottovoceError as error:
        complain_about(fields, error, workspace.schemas[name])
    return None


routes = [
    Route("/report", show_report),
    Route("/report/{table}", show_report),
    Route("/report/{table}/release", start_release, methods=["POST"]),
]
