# SPDX-License-Identifier: Apache-2.0
"""The curator's way from a question to its release: the plan while a slider moves, the work, the
certificate.

    /question/{table}    a question and its plan, from public facts
    /job/{name}          work under way, which can be cancelled until somebody is charged
    /release?key=…       the answer, its certificate, what can be carried away

Nothing private is read before the button of the release is pressed. What was asked travels in the
address, so every page can be reloaded, and the desk remembers no more than it must.
"""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.data.engine import get_table_label
from sottovoce.errors import BudgetExceeded, InvalidBudget, PlanChanged, SottovoceError
from sottovoce.release import Release
from sottovoce.report.plan import draw_plan
from sottovoce.report.release import (
    describe_origin,
    draw_answer,
    explain_promise,
    make_release_headline,
    tabulate_promise,
)
from sottovoce.web import actions, question_form, ready_script
from sottovoce.web.forms import Fields, explain_error
from sottovoce.web.layout import (
    download,
    get_workspace,
    mark_trusted,
    redirect,
    render,
    show_refusal,
)
from sottovoce.web.workspace import Workspace

#: The questions whose losses an audit can tell.
AUDITABLE_QUESTIONS = ("posterior sample", "ridge")


def show_question(request: Request) -> Response:
    """A question and its plan; the script asks for this page again while a slider moves."""
    desk = get_workspace(request)
    name = request.path_params.get("table") or next(iter(desk.schemas), None)
    if name is None or name not in desk.schemas:
        return redirect(f"/table/{name}" if name in desk.tables else "/")
    fields = Fields(dict(request.query_params) or question_form.make_first_form(desk.schemas[name]))
    return _render_question(request, name, fields, _make_plan(desk, name, fields))


def _read_form(desk: Workspace, name: str, fields: Fields) -> question_form.QuestionForm | None:
    table = desk.get_table(name)
    return question_form.read_question(
        fields, str(table.path), desk.schemas[name], get_table_label(table.name)
    )


def _make_plan(desk: Workspace, name: str, fields: Fields) -> actions.NotedPlan | None:
    asked = _read_form(desk, name, fields)
    if asked is None:
        return None
    try:
        return actions.make_plan(desk, asked.said, asked.question)
    except (BudgetExceeded, InvalidBudget) as error:
        fields.complain(question_form.name_spending_field(desk.schemas[name]), explain_error(error))
    except SottovoceError as error:
        fields.complain("", explain_error(error))
    return None


def _render_question(
    request: Request, name: str, fields: Fields, planned: actions.NotedPlan | None
) -> Response:
    desk = get_workspace(request)
    described = desk.schemas[name]
    kind = question_form.QUESTIONS.get(
        fields.get_typed("question"), question_form.QUESTIONS["mean"]
    )
    return render(
        request,
        "question.html",
        422 if fields.complaints else 200,
        name=name,
        table=desk.get_table(name),
        questions=[(key, asked.words) for key, asked in question_form.QUESTIONS.items()],
        columns=[(column, column) for column in described.columns],
        hint=kind.hint,
        options=kind.options,
        by_share=described.budget is not None,
        typed=question_form.copy_typed_fields(fields, kind),
        plan=None if planned is None else mark_trusted(draw_plan(planned.plan)),
        digest="" if planned is None else planned.plan.agreement,
        note="" if planned is None else planned.note,
        complaints=fields.complaints,
    )


async def start_release(request: Request) -> Response:
    """Begins the release under the plan that was shown; everybody is charged before a value is
    read.
    """
    desk = get_workspace(request)
    name = request.path_params["table"]
    if name not in desk.schemas:
        return redirect("/")
    fields = Fields(dict(await request.form(max_files=0)))
    key = fields.text("key", longest=actions.LONGEST_KEY)
    job = await run_in_threadpool(_start_job, desk, name, fields, key)
    if job is not None:
        kind = question_form.QUESTIONS[fields.get_typed("question")]
        return redirect(f"/job/{job}", **question_form.copy_typed_fields(fields, kind), table=name)
    planned = await run_in_threadpool(_make_plan, desk, name, Fields(fields.form))
    return await run_in_threadpool(_render_question, request, name, fields, planned)


def _start_job(desk: Workspace, name: str, fields: Fields, key: str | None) -> str | None:
    """Returns the name of the work, or None where something has to be corrected first."""
    asked = _read_form(desk, name, fields)
    if asked is None or key is None:
        return None
    try:
        return actions.start_release(
            desk, asked.said, asked.question, key, agreed=fields.get_typed("plan")
        )
    except PlanChanged as error:
        fields.complain("", explain_error(error))
    except SottovoceError as error:
        fields.complain("key", explain_error(error))
    return None


def show_job(request: Request) -> Response:
    """Work under way; goes on to what came of it."""
    name = request.path_params["name"]
    said = dict(request.query_params)
    try:
        found = get_workspace(request).get_job(name)
    except SottovoceError as error:
        return show_refusal(request, error)
    if found.state == "done":
        if "question" in said:
            return redirect("/release", **said)
        return redirect(f"/audit/{name}")
    if "question" in said:
        back = f"/question/{said.get('table', '')}?{urlencode(said)}"
    else:
        back = "/audit"
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
    return render(
        request,
        "release.html",
        key=key,
        said=urlencode(said),
        headline=make_release_headline(made),
        origin=describe_origin(made),
        answer=mark_trusted(draw_answer(made)),
        sentences=sentences,
        promised=mark_trusted(tabulate_promise(made)),
        why=why,
        paper=made.certificate,
        scripted=_find_question(request) is not None,
        auditable=made.question in AUDITABLE_QUESTIONS,
    )


def _find_question(request: Request) -> question_form.QuestionForm | None:
    """Returns the question that the address speaks of, if its table is still on the desk."""
    desk = get_workspace(request)
    name = request.query_params.get("table", "")
    if name in desk.schemas:
        return _read_form(desk, name, Fields(dict(request.query_params)))
    return None


def download_file(request: Request) -> Response:
    """What can be carried away: the release as it is in the books, its certificate in words, a
    script that asks it.
    """
    what = request.path_params["what"]
    key = request.query_params.get("key", "")
    asked = _find_question(request)
    if what == "ask.py" and asked is not None:
        return download(what, ready_script.write_script(asked), "text/x-python")
    try:
        made = actions.read_release(get_workspace(request), key).decode()
    except SottovoceError as error:
        return show_refusal(request, error)
    if what == "certificate.txt":
        return download(
            what, ready_script.write_certificate(Release.from_json(made), key), "text/plain"
        )
    return download("release.json", made, "application/json")


routes = [
    Route("/question", show_question),
    Route("/question/{table}", show_question),
    Route("/question/{table}/release", start_release, methods=["POST"]),
    Route("/job/{name}", show_job),
    Route("/job/{name}/cancel", cancel_job, methods=["POST"]),
    Route("/release", show_release),
    Route("/release/{what}", download_file),
]
