# SPDX-License-Identifier: Apache-2.0
"""What can be carried away from the page: a script that asks the same question, and the certificate
in plain words.

The script uses public names of the library alone and says everything that was said at the page:
schema, options, share. Without books it makes a release that nobody remembers; with books it needs
a key of its own.

The audit, stamped confidential: what was promised against what each person in the table really
lost.

The same page as `sottovoce audit`, for the curator alone. It is drawn once, shown while the page is
open, and written nowhere. Names stand on it only where they were asked for by hand.

The curator's way from a question to its release: the plan while a slider moves, the work, the
certificate.

    /question/{table}    a question and its plan, from public facts
    /job/{name}          work under way, which can be cancelled until somebody is charged
    /release?key=…       the answer, its certificate, what can be carried away

Nothing private is read before the button of the release is pressed. What was asked travels in the
address, so every page can be reloaded, and the workspace remembers no more than it must.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from string import Template
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.audit import audit_from_table
from sottovoce.data.engine import get_table_label
from sottovoce.data.engines.arrow import is_text, list_files, read_header
from sottovoce.data.source import DataSource
from sottovoce.errors import BudgetExceeded, SottovoceError
from sottovoce.estimators import is_audited, list_questions
from sottovoce.estimators.baseline_options import (
    list_page_parameters,
    take_baseline,
    write_baseline,
)
from sottovoce.estimators.report_file import write_entries
from sottovoce.release import Release
from sottovoce.report.comparison import FREE, compare_groups, list_compared
from sottovoce.report.html import make_stamp
from sottovoce.report.plan import draw_plan
from sottovoce.report.release import (
    FOR_WHOM,
    describe_origin,
    draw_answer,
    explain_promise,
    make_audit_body,
    make_release_headline,
    tabulate_promise,
)
from sottovoce.report.report_page import draw_shares
from sottovoce.schema import Schema
from sottovoce.web import actions, question_form
from sottovoce.web.layout import (
    download,
    get_workspace,
    mark_trusted,
    redirect,
    render,
    show_refusal,
)
from sottovoce.web.question_form import Fields, QuestionForm, write_toml
from sottovoce.web.report_pages import ReportForm, is_report, read_report
from sottovoce.web.workspace import Job, Workspace


def write_script(asked: QuestionForm) -> str:
    """Returns a Python program that asks this question of a table whose path it is given."""
    said = asked.said
    kind = asked.kind
    own, around = take_baseline(asked.parameters)
    by_names = kind.reads == "table" or not {"by", "where"}.isdisjoint(own)
    described = _describe_columns(said, by_names)
    bounds: Any = said.bounds if said.features is None else "SCHEMA"
    given = {**({} if kind.reads == "table" else {"bounds": bounds}), **own}
    if said.features is None and said.missing is not None:
        given["missing"] = said.missing
    if by_names:
        given["schema"] = "SCHEMA"
    module, _, name = kind.estimator.partition(":")
    if module.startswith("sottovoce."):
        name = f"sv.{name}"
        imported = ""
    else:
        imported = f"from {module} import {name}\n"
    return _SCRIPT.substitute(
        imported=imported,
        words=kind.title,
        schema=""
        if described is None
        else f"SCHEMA = sv.Schema.loads({write_toml(described)!r})\n",
        question=write_baseline(around, f"{name}({_format_arguments(given)})"),
        column=repr(said.column),
        features="None"
        if said.features is None
        else repr([n for n in said.features.columns if n != said.column]),
        data="(table,)" if by_names else _DATA,
        named=", column=COLUMN" * by_names,
        label=", COLUMN" * by_names,
        person=repr(said.person),
        budgets=_format_budgets(said),
        share=repr(said.share),
        written=_describe_text_format(said.table),
    )


def _describe_columns(said: DataSource, by_names: bool) -> Schema | None:
    """What a program needs of the schema: features and label, or the columns of cells."""
    if said.features is not None:
        return Schema(said.features.columns, label=said.column)
    if by_names:
        return Schema((said.load_schema() or Schema()).columns)
    return None


def _describe_text_format(table: str) -> str:
    """How a text file is written, as an argument; blank lines of one with a single column are
    rows.
    """
    if not is_text(table):
        return ""
    names, text = read_header(list_files(table)[0])
    return (
        f"delimiter={text.delimiter!r}, ignore_empty_lines={len(names) > 1}, "
        "newlines_in_values=True"
    )


def write_certificate(release: Release, key: str) -> str:
    """Returns the certificate in plain words, as text."""
    certificate = release.certificate
    heads = [
        f"Certificate of the release “{key}”",
        "",
        release.explain(),
        "",
        f"Plan: {certificate.plan_digest}",
    ]
    if certificate.ledger is not None:
        heads.append(
            f"Ledger: {certificate.ledger['id']}, entry {certificate.ledger['entry']}, head "
            f"{certificate.ledger['head']}"
        )
    return "\n".join(heads) + "\n"


def _format_arguments(given: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{word}={value if value == 'SCHEMA' else repr(value)}" for word, value in given.items()
    )


def _format_budgets(said: DataSource) -> str:
    if said.spend_left is not None:
        return "None  # all that each has left in the ledger"
    if said.budget is None:
        return f"[{said.epsilon!r}] * len(table)"
    listed = f"table[{said.budget!r}].to_pylist()"
    if said.tiers:
        return f"[{dict(said.tiers)!r}[tier] for tier in {listed}]"
    return listed


#: What a program hands to the question: a column, or features and a label.
_DATA = "(table[COLUMN],) if FEATURES is None else (table.select(FEATURES), table[COLUMN])"
_SCRIPT = Template('''\
"""$words, as it was asked at the page of sottovoce.

    python ask.py TABLE OUT               without a ledger: asking again spends everybody's ε again
    python ask.py TABLE OUT LEDGER KEY    from a ledger such as sqlite:///books.db, a new key
"""

import sys

import pyarrow.csv
import pyarrow.parquet
import sottovoce as sv
$imported
${schema}QUESTION = $question
COLUMN, FEATURES, PERSON = $column, $features, $person
#: How much of what everybody grants may be spent.
SHARE = $share
#: How a text file is written.
WRITTEN = pyarrow.csv.ParseOptions($written)


def ask(path, out, books=None, key=None):
    text = path.lower().endswith(".csv")
    if text:
        table = pyarrow.csv.read_csv(path, parse_options=WRITTEN)
    else:
        table = pyarrow.parquet.read_table(path)
    data = $data
    granted = $budgets
    spent = None if granted is None else [epsilon * SHARE for epsilon in granted]
    people = None if PERSON is None else table[PERSON].to_pylist()
    if books is None and spent is None:
        sys.exit("Name a ledger: what each has left is spent.")
    if books is None:
        release = QUESTION.fit(*data, epsilon=spent, groups=people$named).release_
    else:
        prices = None if spent is None else dict(zip(people, spent))
        asked = {"groups": people, "epsilon": prices, "unknown": "leave out", "key": key}
        release = sv.Session(ledger=books).release(QUESTION, *data$label, **asked)
    with open(out, "x", encoding="utf-8") as file:
        file.write(release.to_json())
    print(release.explain())


if __name__ == "__main__":
    if len(sys.argv) not in (3, 5):
        sys.exit(__doc__)
    ask(*sys.argv[1:])
''')


#: How names are asked for at the page.
REVEAL_HINT = "with the box that says so"
#: What the page of a release tells about itself in the address.
QUERY_FIELDS = ("key",)
AUDIT_JOB = "Looking at every row"


def show_audit_form(request: Request, fields: Fields | None = None) -> Response:
    """What can be audited: a release, and the table it was made from."""
    workspace = get_workspace(request)
    asked = {
        word: request.query_params[word] for word in QUERY_FIELDS if word in request.query_params
    }
    typed: Mapping[str, Any] = asked if fields is None else fields.form
    return render(
        request,
        "audit.html",
        422 if fields is not None else 200,
        stamp=mark_trusted(make_stamp("CONFIDENTIAL", FOR_WHOM)),
        releases=[(key, _describe_audited(workspace, key)) for key in _list_audited(workspace)],
        typed=typed,
        complaints={} if fields is None else fields.complaints,
    )


async def start_audit(request: Request) -> Response:
    """Begins to look at every row, beside the page."""
    fields = Fields(dict(await request.form(max_files=0)))
    job = await run_in_threadpool(_start_audit_job, get_workspace(request), fields)
    if job is None:
        return show_audit_form(request, fields)
    return redirect(f"/job/{job}")


def show_audit(request: Request) -> Response:
    """What was found, for the curator alone."""
    try:
        job = get_workspace(request).get_job(request.path_params["name"])
    except SottovoceError as error:
        return show_refusal(request, error)
    if job.what != AUDIT_JOB or job.state != "done":
        return redirect("/audit")
    return render(request, "audited.html", body=mark_trusted(job.result))


def _list_audited(workspace: Workspace) -> list[str]:
    """The keys of releases whose losses are known, and whose tables are still open."""
    found = []
    for key in workspace.sources:
        with suppress(SottovoceError):
            if is_audited(Release.from_json(actions.read_release(workspace, key).decode())):
                found.append(key)
    return found


def _describe_audited(workspace: Workspace, key: str) -> str:
    """A key, and the table that its release was made from."""
    place = workspace.sources[key].table
    names = [table.name for table in workspace.tables.values() if str(table.path) == place]
    return f"{key} ({', '.join(names)})"


def _start_audit_job(workspace: Workspace, fields: Fields) -> str | None:
    key = fields.choice("key", _list_audited(workspace))
    delta = fields.number("delta", least=0, most=1, above=True)
    if key is None or delta is None or fields.complaints:
        return None
    said = actions.describe_source(workspace.sources[key])
    return workspace.jobs.start(
        _make_audit_job(workspace, key, said, delta, reveal=fields.is_checked("reveal")), AUDIT_JOB
    )


def _make_audit_job(
    workspace: Workspace, key: str, said: DataSource, delta: float, *, reveal: bool
) -> Any:
    def work(job: Job) -> str:
        release = Release.from_json(actions.read_release(workspace, key).decode())
        return make_audit_body(
            audit_from_table(release, said, delta, job.watch),
            release,
            reveal=reveal,
            ask=REVEAL_HINT,
        )

    return work


def show_question(request: Request) -> Response:
    """A question and its plan; the script asks for this page again while a slider moves."""
    workspace = get_workspace(request)
    name = request.path_params.get("table") or next(iter(workspace.schemas), None)
    if name is None or name not in workspace.schemas:
        return redirect(f"/table/{name}" if name in workspace.tables else "/")
    first = question_form.make_first_form(workspace.schemas[name])
    typed = dict(request.query_params)
    if typed:
        fields = Fields({"column": first["column"], **typed})
    else:
        fields = Fields(first)
    return _render_question(request, name, fields, _make_plan(workspace, name, fields))


def _read_form(
    workspace: Workspace, name: str, fields: Fields
) -> question_form.QuestionForm | None:
    table = workspace.get_table(name)
    return question_form.read_question(
        fields, str(table.path), workspace.schemas[name], get_table_label(table.name)
    )


def _make_plan(workspace: Workspace, name: str, fields: Fields) -> actions.NotedPlan | None:
    asked = _read_form(workspace, name, fields)
    if asked is None:
        return None
    try:
        return actions.make_plan(workspace, asked.said, asked.question)
    except BudgetExceeded as error:
        spending = question_form.name_spending_field(workspace.schemas[name])
        fields.complain(spending, str(error))
    except SottovoceError as error:
        fields.complain_about(error, question_form.map_fields(asked.kind, workspace.schemas[name]))
    return None


def _render_question(
    request: Request, name: str, fields: Fields, planned: actions.NotedPlan | None
) -> Response:
    workspace = get_workspace(request)
    described = workspace.schemas[name]
    kind = question_form.find_question(fields)
    return render(
        request,
        "question.html",
        422 if fields.complaints else 200,
        name=name,
        table=workspace.get_table(name),
        questions=[(key, asked.title) for key, asked in list_questions().items()],
        columns=[(column, column) for column in described.columns],
        hint=kind.hint,
        about_column=kind.reads != "table",
        parameters=list_page_parameters(kind),
        by_share=described.budget is not None,
        typed=question_form.copy_typed_fields(fields),
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
        return redirect(f"/job/{job}", **question_form.copy_typed_fields(fields), table=name)
    planned = await run_in_threadpool(_make_plan, workspace, name, Fields(fields.form))
    return await run_in_threadpool(_render_question, request, name, fields, planned)


def _start_job(workspace: Workspace, name: str, fields: Fields, key: str | None) -> str | None:
    """Returns the name of the work, or None where something has to be corrected first."""
    asked = _read_form(workspace, name, fields)
    if asked is None or key is None:
        return None
    try:
        return actions.start_release(
            workspace, asked.said, asked.question, key, agreed=fields.get_typed("plan")
        )
    except SottovoceError as error:
        fields.complain_about(error, question_form.map_fields(asked.kind, workspace.schemas[name]))
    return None


def show_job(request: Request) -> Response:
    """Work under way; goes on to what came of it."""
    name = request.path_params["name"]
    said = dict(request.query_params)
    try:
        found = get_workspace(request).get_job(name).take_snapshot()
    except SottovoceError as error:
        return show_refusal(request, error)
    if found.state == "done":
        if "key" in said:
            return redirect("/release", **said)
        return redirect(f"/audit/{name}")
    if "key" not in said:
        back = "/audit"
    elif is_report(said):
        back = f"/report/{said.get('table', '')}?{urlencode(said)}"
    else:
        back = f"/question/{said.get('table', '')}?{urlencode(said)}"
    return render(request, "job.html", name=name, job=found, back=back, said=urlencode(said))


def cancel_job(request: Request) -> Response:
    """Gives work up before anybody is charged, or says why it is too late."""
    name = request.path_params["name"]
    try:
        get_workspace(request).get_job(name).cancel()
    except SottovoceError as error:
        return show_refusal(request, error, 409)
    return redirect(f"/job/{name}", **dict(request.query_params))


def show_release(request: Request) -> Response:
    """The answer with its certificate in plain words, and what can be carried away."""
    key = request.query_params.get("key", "")
    said = dict(request.query_params)
    try:
        made = Release.from_json(actions.read_release(get_workspace(request), key).decode())
    except SottovoceError as error:
        return show_refusal(request, error)
    if request.query_params.get("table") in get_workspace(request).schemas:
        actions.prefetch_census(
            get_workspace(request), request.query_params["table"]
        )  # everybody has less left now
    sentences, why = explain_promise(made)
    compared = {word: said.pop(word) for word in COMPARED_FIELDS if word in said}
    fields = Fields(compared)
    comparison = _compare_groups(made, fields)
    return render(
        request,
        "release.html",
        422 if fields.complaints else 200,
        key=key,
        said=urlencode(said),
        carried=said,
        tables=list_compared(made),
        typed=compared,
        comparison=comparison,
        complaints=fields.complaints,
        headline=make_release_headline(made),
        origin=describe_origin(made),
        answer=mark_trusted(draw_answer(made)),
        sentences=sentences,
        promised=mark_trusted(tabulate_promise(made)),
        why=why,
        certificate=made.certificate,
        scripted=_find_question(request) is not None,
        listed=_find_report(request) is not None,
        shares=mark_trusted(draw_shares(made)),
        auditable=key in _list_audited(get_workspace(request)),
    )


#: Letters of what a group is called.
LONGEST_GROUP = 2000
#: The fields that name two groups of a table, and the question of a report.
COMPARED_FIELDS = ("of", "one", "two")


def _compare_groups(made: Release, fields: Fields) -> list[str]:
    """Returns two groups side by side in words, if the address names some."""
    if not fields.form:
        return []
    one, two = (fields.text(word, longest=LONGEST_GROUP) for word in ("one", "two"))
    if one is None or two is None:
        return []
    try:
        told = compare_groups(made, one, two, fields.get_typed("of") or None)
        return [*told.describe(), FREE]
    except SottovoceError as error:
        fields.complain_about(error, {word: word for word in COMPARED_FIELDS})
    return []


def _find_question(request: Request) -> question_form.QuestionForm | None:
    """Returns the question that the address speaks of, if its table is still in the workspace."""
    workspace = get_workspace(request)
    name = request.query_params.get("table", "")
    if name in workspace.schemas:
        return _read_form(workspace, name, Fields(dict(request.query_params)))
    return None


def _find_report(request: Request) -> ReportForm | None:
    """Returns the report that the address speaks of, if its table is still in the workspace."""
    workspace = get_workspace(request)
    name = request.query_params.get("table", "")
    if name not in workspace.schemas or not is_report(request.query_params):
        return None
    fields = Fields(dict(request.query_params))
    return read_report(fields, str(workspace.get_table(name).path), workspace.schemas[name])


def download_file(request: Request) -> Response:
    """What can be carried away: the release as it is in the books, its certificate in words, a
    script that asks it.
    """
    what = request.path_params["what"]
    key = request.query_params.get("key", "")
    asked = _find_question(request)
    if what == "ask.py" and asked is not None:
        return download(what, write_script(asked), "text/x-python")
    report = _find_report(request)
    if what == "questions.toml" and report is not None:
        return download(what, write_entries(report.entries), "text/plain")
    try:
        made = actions.read_release(get_workspace(request), key).decode()
    except SottovoceError as error:
        return show_refusal(request, error)
    if what == "certificate.txt":
        return download(what, write_certificate(Release.from_json(made), key), "text/plain")
    return download("release.json", made, "application/json")


routes = [
    Route("/question", show_question),
    Route("/question/{table}", show_question),
    Route("/question/{table}/release", start_release, methods=["POST"]),
    Route("/job/{name}", show_job),
    Route("/job/{name}/cancel", cancel_job, methods=["POST"]),
    Route("/release", show_release),
    Route("/release/{what}", download_file),
    Route("/audit", show_audit_form),
    Route("/audit", start_audit, methods=["POST"]),
    Route("/audit/{name}", show_audit),
]
