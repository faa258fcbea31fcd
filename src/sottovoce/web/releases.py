# SPDX-License-Identifier: Apache-2.0
"""The curator's way from a question to its release: the plan while a slider moves, the work, the certificate.

    /question/{table}    a question and its plan, from public facts
    /job/{name}          work under way, which can be cancelled until somebody is charged
    /release?key=…       the answer, its certificate, what can be carried away

Nothing private is read before the button of the release is pressed. What was asked travels in the address, so every
page can be reloaded, and the desk remembers no more than it must.
"""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.engine import label_of
from sottovoce.errors import BudgetExceeded, InvalidBudget, PlanChanged, SottovoceError
from sottovoce.pages.plan_page import drawn
from sottovoce.pages.release_page import answer, headline, origin, promised, words
from sottovoce.release import Release
from sottovoce.web import questions, ready, verbs
from sottovoce.web.desk import Desk
from sottovoce.web.forms import Fields, in_words
from sottovoce.web.shell import away, desk_of, download, drawing, refused, render

#: The questions whose losses an audit can tell.
AUDITED = ("posterior sample", "ridge")


def question(request: Request) -> Response:
    """A question and its plan; the script asks for this page again while a slider moves."""
    desk = desk_of(request)
    name = request.path_params.get("table") or next(iter(desk.schemas), None)
    if name is None or name not in desk.schemas:
        return away(f"/table/{name}" if name in desk.tables else "/")
    fields = Fields(dict(request.query_params) or questions.first(desk.schemas[name]))
    return _question_page(request, name, fields, _planned(desk, name, fields))


def _asked(desk: Desk, name: str, fields: Fields) -> questions.Asked | None:
    table = desk.get_table(name)
    return questions.read(fields, str(table.path), desk.schemas[name], label_of(table.name))


def _planned(desk: Desk, name: str, fields: Fields) -> verbs.Planned | None:
    asked = _asked(desk, name, fields)
    if asked is None:
        return None
    try:
        return verbs.plan(desk, asked.said, asked.question)
    except (BudgetExceeded, InvalidBudget) as error:
        fields.complain(questions.spending(desk.schemas[name]), in_words(error))
    except SottovoceError as error:
        fields.complain("", in_words(error))
    return None


def _question_page(request: Request, name: str, fields: Fields, planned: verbs.Planned | None) -> Response:
    desk = desk_of(request)
    described = desk.schemas[name]
    kind = questions.QUESTIONS.get(fields.get_typed("question"), questions.QUESTIONS["mean"])
    return render(
        request,
        "question.html",
        422 if fields.complaints else 200,
        name=name,
        table=desk.get_table(name),
        questions=[(key, asked.words) for key, asked in questions.QUESTIONS.items()],
        columns=[(column, column) for column in described.columns],
        hint=kind.hint,
        options=kind.options,
        by_share=described.budget is not None,
        typed=questions.typed(fields, kind),
        plan=None if planned is None else drawing(drawn(planned.plan)),
        digest="" if planned is None else planned.plan.agreement,
        note="" if planned is None else planned.note,
        complaints=fields.complaints,
    )


async def release(request: Request) -> Response:
    """Begins the release under the plan that was shown; everybody is charged before a value is read."""
    desk, name = desk_of(request), request.path_params["table"]
    if name not in desk.schemas:
        return away("/")
    fields = Fields(dict(await request.form(max_files=0)))
    key = fields.text("key", longest=verbs.LONGEST_KEY)
    job = await run_in_threadpool(_begun, desk, name, fields, key)
    if job is not None:
        kind = questions.QUESTIONS[fields.get_typed("question")]
        return away(f"/job/{job}", **questions.typed(fields, kind), table=name)
    planned = await run_in_threadpool(_planned, desk, name, Fields(fields.form))
    return await run_in_threadpool(_question_page, request, name, fields, planned)


def _begun(desk: Desk, name: str, fields: Fields, key: str | None) -> str | None:
    """Returns the name of the work, or None where something has to be corrected first."""
    asked = _asked(desk, name, fields)
    if asked is None or key is None:
        return None
    try:
        return verbs.release(desk, asked.said, asked.question, key, agreed=fields.get_typed("plan"))
    except PlanChanged as error:
        fields.complain("", in_words(error))
    except SottovoceError as error:
        fields.complain("key", in_words(error))
    return None


def job(request: Request) -> Response:
    """Work under way; goes on to what came of it."""
    name, said = request.path_params["name"], dict(request.query_params)
    try:
        found = desk_of(request).get_job(name)
    except SottovoceError as error:
        return refused(request, error)
    if found.state == "done":
        return away("/release", **said) if "question" in said else away(f"/audit/{name}")
    back = f"/question/{said.get('table', '')}?{urlencode(said)}" if "question" in said else "/audit"
    return render(request, "job.html", name=name, job=found, back=back, said=urlencode(said))


def cancel(request: Request) -> Response:
    """Gives work up before anybody is charged, or says why it is too late."""
    name = request.path_params["name"]
    try:
        desk_of(request).get_job(name).cancel()
    except SottovoceError as error:
        return refused(request, error, 409)
    return away(f"/job/{name}", **dict(request.query_params))


def released(request: Request) -> Response:
    """The answer with its certificate in plain words, and what can be carried away."""
    key, said = request.query_params.get("key", ""), dict(request.query_params)
    try:
        made = Release.from_json(verbs.released(desk_of(request), key).decode())
    except SottovoceError as error:
        return refused(request, error)
    if request.query_params.get("table") in desk_of(request).schemas:
        verbs.look_ahead(desk_of(request), request.query_params["table"])  # everybody has less left now
    sentences, why = words(made)
    return render(
        request,
        "release.html",
        key=key,
        said=urlencode(said),
        headline=headline(made),
        origin=origin(made),
        answer=drawing(answer(made)),
        sentences=sentences,
        promised=drawing(promised(made)),
        why=why,
        paper=made.certificate,
        scripted=_spoken_of(request) is not None,
        auditable=made.question in AUDITED,
    )


def _spoken_of(request: Request) -> questions.Asked | None:
    """Returns the question that the address speaks of, if its table is still on the desk."""
    desk, name = desk_of(request), request.query_params.get("table", "")
    return _asked(desk, name, Fields(dict(request.query_params))) if name in desk.schemas else None


def carried(request: Request) -> Response:
    """What can be carried away: the release as it is in the books, its certificate in words, a script that asks it."""
    what, key, asked = request.path_params["what"], request.query_params.get("key", ""), _spoken_of(request)
    if what == "ask.py" and asked is not None:
        return download(what, ready.script(asked), "text/x-python")
    try:
        made = verbs.released(desk_of(request), key).decode()
    except SottovoceError as error:
        return refused(request, error)
    if what == "certificate.txt":
        return download(what, ready.certificate(Release.from_json(made), key), "text/plain")
    return download("release.json", made, "application/json")


routes = [
    Route("/question", question),
    Route("/question/{table}", question),
    Route("/question/{table}/release", release, methods=["POST"]),
    Route("/job/{name}", job),
    Route("/job/{name}/cancel", cancel, methods=["POST"]),
    Route("/release", released),
    Route("/release/{what}", carried),
]
