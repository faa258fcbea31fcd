# SPDX-License-Identifier: Apache-2.0
"""The audit, stamped confidential: what was promised against what each person in the table really
lost.

The same page as `sottovoce audit`, for the curator alone. It is drawn once, shown while the page is
open, and written nowhere. Names stand on it only where they were asked for by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.asked import TableOptions, audit_from_table
from sottovoce.errors import SottovoceError
from sottovoce.release import Release
from sottovoce.report.audit import FOR_WHOM, make_audit_body
from sottovoce.report.html import make_stamp
from sottovoce.web import actions
from sottovoce.web.forms import Fields
from sottovoce.web.layout import get_workspace, mark_trusted, redirect, render, show_refusal
from sottovoce.web.workspace import Job, Workspace

#: How names are asked for at the page.
REVEAL_HINT = "with the box that says so"
#: What the page of a release tells about itself in the address.
QUERY_FIELDS = ("key", "table", "column", "share")
AUDIT_JOB = "Looking at every row"


def show_audit_form(request: Request, fields: Fields | None = None) -> Response:
    """What can be audited: a release, the table it was made from, and the column that it is
    about.
    """
    desk = get_workspace(request)
    asked = {
        word: request.query_params[word] for word in QUERY_FIELDS if word in request.query_params
    }
    typed: Mapping[str, Any] = asked if fields is None else fields.form
    return render(
        request,
        "audit.html",
        422 if fields is not None else 200,
        stamp=mark_trusted(make_stamp("CONFIDENTIAL", FOR_WHOM)),
        releases=[(key, key) for key in desk.releases],
        tables=[(name, table.name) for name, table in desk.tables.items() if name in desk.schemas],
        columns=[(column, column) for column in _list_columns(desk)],
        typed=typed,
        complaints={} if fields is None else fields.complaints,
    )


async def start_audit(request: Request) -> Response:
    """Begins to look at every row, beside the page."""
    fields = Fields(dict(await request.form(max_files=0)))
    job = await run_in_threadpool(_start_job, get_workspace(request), fields)
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


def _list_columns(desk: Workspace) -> list[str]:
    """The columns that a model can be about, of all tables on the desk, each once."""
    described = [column for schema in desk.schemas.values() for column in schema.columns.items()]
    return list(dict.fromkeys(name for name, column in described if column.kind == "number"))


def _start_job(desk: Workspace, fields: Fields) -> str | None:
    key = fields.choice("key", desk.releases)
    table = fields.choice("table", desk.schemas)
    delta = fields.number("delta", least=0, most=1, above=True)
    share = fields.number("share", needed=False, least=0, most=100, above=True)
    if table is None:
        column = None
    else:
        column = fields.choice("column", desk.schemas[table].columns)
    if key is None or table is None or column is None or delta is None or fields.complaints:
        return None
    schema = replace(desk.schemas[table], label=column)
    said = TableOptions(
        str(desk.get_table(table).path), schema=schema, share=1.0 if share is None else share / 100
    )
    return desk.jobs.start(
        _make_audit_job(desk, key, said, delta, reveal=fields.is_checked("reveal")), AUDIT_JOB
    )


def _make_audit_job(
    desk: Workspace, key: str, said: TableOptions, delta: float, *, reveal: bool
) -> Any:
    def work(job: Job) -> str:
        release = Release.from_json(actions.read_release(desk, key).decode())
        return make_audit_body(
            audit_from_table(release, said, delta, job.watch),
            release,
            reveal=reveal,
            ask=REVEAL_HINT,
        )

    return work


routes = [
    Route("/audit", show_audit_form),
    Route("/audit", start_audit, methods=["POST"]),
    Route("/audit/{name}", show_audit),
]
