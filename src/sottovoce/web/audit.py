# SPDX-License-Identifier: Apache-2.0
"""The audit, stamped confidential: what was promised against what each person in the table really lost.

The same page as `sottovoce audit`, for the curator alone. It is drawn once, shown while the page is open, and written
nowhere. Names stand on it only where they were asked for by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.asked import Said, audited
from sottovoce.errors import SottovoceError
from sottovoce.pages.audit_page import FOR_WHOM, drawn_body
from sottovoce.pages.page import stamp
from sottovoce.release import Release
from sottovoce.web import verbs
from sottovoce.web.desk import Desk
from sottovoce.web.forms import Fields
from sottovoce.web.jobs import Job
from sottovoce.web.shell import away, desk_of, drawing, refused, render

#: How names are asked for at the page.
ASK = "with the box that says so"
#: What the page of a release tells about itself in the address.
ASKED = ("key", "table", "column", "share")
WORK = "Looking at every row"


def audit(request: Request, fields: Fields | None = None) -> Response:
    """What can be audited: a release, the table it was made from, and the column that it is about."""
    desk = desk_of(request)
    asked = {word: request.query_params[word] for word in ASKED if word in request.query_params}
    typed: Mapping[str, Any] = asked if fields is None else fields.form
    return render(
        request,
        "audit.html",
        422 if fields is not None else 200,
        stamp=drawing(stamp("CONFIDENTIAL", FOR_WHOM)),
        releases=[(key, key) for key in desk.releases],
        tables=[(name, table.name) for name, table in desk.tables.items() if name in desk.schemas],
        columns=[(column, column) for column in _columns(desk)],
        typed=typed,
        complaints={} if fields is None else fields.complaints,
    )


async def begin(request: Request) -> Response:
    """Begins to look at every row, beside the page."""
    fields = Fields(dict(await request.form(max_files=0)))
    job = await run_in_threadpool(_begun, desk_of(request), fields)
    return audit(request, fields) if job is None else away(f"/job/{job}")


def seen(request: Request) -> Response:
    """What was found, for the curator alone."""
    try:
        job = desk_of(request).get_job(request.path_params["name"])
    except SottovoceError as error:
        return refused(request, error)
    if job.what != WORK or job.state != "done":
        return away("/audit")
    return render(request, "audited.html", body=drawing(job.result))


def _columns(desk: Desk) -> list[str]:
    """The columns that a model can be about, of all tables on the desk, each once."""
    described = [column for schema in desk.schemas.values() for column in schema.columns.items()]
    return list(dict.fromkeys(name for name, column in described if column.kind == "number"))


def _begun(desk: Desk, fields: Fields) -> str | None:
    key, table = fields.choice("key", desk.releases), fields.choice("table", desk.schemas)
    delta = fields.number("delta", least=0, most=1, above=True)
    share = fields.number("share", needed=False, least=0, most=100, above=True)
    column = None if table is None else fields.choice("column", desk.schemas[table].columns)
    if key is None or table is None or column is None or delta is None or fields.complaints:
        return None
    schema = replace(desk.schemas[table], label=column)
    said = Said(str(desk.get_table(table).path), schema=schema, share=1.0 if share is None else share / 100)
    return desk.jobs.start(_looking(desk, key, said, delta, reveal=fields.is_checked("reveal")), WORK)


def _looking(desk: Desk, key: str, said: Said, delta: float, *, reveal: bool) -> Any:
    def work(job: Job) -> str:
        release = Release.from_json(verbs.released(desk, key).decode())
        return drawn_body(audited(release, said, delta, job.watch), release, reveal=reveal, ask=ASK)

    return work


routes = [
    Route("/audit", audit),
    Route("/audit", begin, methods=["POST"]),
    Route("/audit/{name}", seen),
]
