# SPDX-License-Identifier: Apache-2.0
"""The curator's way up to the question: a table, what is public about it, who grants how much.

    /                       tables on the desk, and releases made from them
    /table/{table}          its schema, typed in and never read off the data
    /table/{table}/people   who grants how much, without names; the way into the books

The way goes on in releases.py. Only public columns are read here: those of people and of budgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sottovoce.errors import SottovoceError
from sottovoce.pages.pictures import grants as picture_of_grants
from sottovoce.web import questions, releases, schemas, uploads, verbs
from sottovoce.web.desk import Desk
from sottovoce.web.forms import Fields, in_words
from sottovoce.web.shell import away, desk_of, download, drawing, refused, render

#: Accounts that a table's grants can be written to: the words of the books, and in words for people.
ACCOUNTS = {
    "pure epsilon, replace": "pure ε, neighbours by replace",
    "pure epsilon, replace labels": "pure ε, labels alone",
    "epsilon, delta, zero out": "ε at δ, neighbours by zero out",
}
#: Fields that describe one column, at most.
FIELDS = 6


def tables(request: Request, complaints: Mapping[str, str] | None = None) -> Response:
    """The first page: tables on the desk, and releases that were made from them."""
    desk = desk_of(request)
    listed = [(name, table, name in desk.schemas) for name, table in desk.tables.items()]
    status = 422 if complaints else 200
    return render(
        request, "table.html", status, tables=listed, releases=list(desk.releases), complaints=complaints or {}
    )


async def upload(request: Request) -> Response:
    """Lays a table on the desk, or says next to the field why it cannot be used."""
    async with request.form(max_files=1) as form:
        table = form.get("table")
        if not isinstance(table, UploadFile) or not table.filename:
            return tables(request, {"table": "Choose a file."})
        try:
            name = await run_in_threadpool(verbs.bring, desk_of(request), table.filename, table.file)
        except SottovoceError as error:
            return tables(request, {"table": in_words(error)})
    return away(f"/table/{name}")


def take_away(request: Request) -> Response:
    """Deletes a table from the desk."""
    try:
        desk_of(request).remove_table(request.path_params["table"])
    except SottovoceError as error:
        return refused(request, error)
    return away("/")


async def schema(request: Request) -> Response:
    """What is public about a table: the form, and what was typed into it."""
    desk, name = desk_of(request), request.path_params["table"]
    try:
        columns = desk.get_table(name).columns
    except SottovoceError as error:
        return refused(request, error)
    if request.method != "POST":
        return _schema_page(request, schemas.typed(desk.schemas.get(name), columns), {})
    form = dict(await request.form(max_files=0, max_fields=FIELDS * uploads.MOST_COLUMNS))
    fields = Fields(form)
    described = schemas.read(fields, columns)
    if described is None:
        return _schema_page(request, form, fields.complaints)
    verbs.declare(desk, name, described)
    return away(f"/table/{name}/people")


def _schema_page(request: Request, typed: Mapping[str, Any], complaints: Mapping[str, str]) -> Response:
    name = request.path_params["table"]
    table = desk_of(request).get_table(name)
    return render(
        request,
        "schema.html",
        422 if complaints else 200,
        name=name,
        table=table,
        columns=list(table.columns.items()),
        names=[(column, column) for column in table.columns],
        kinds=schemas.KINDS,
        typed=typed,
        complaints=complaints,
    )


def schema_file(request: Request) -> Response:
    """The schema as a file to keep."""
    described = desk_of(request).schemas.get(request.path_params["table"])
    return away("/") if described is None else download("schema.toml", schemas.toml(described), "text/plain")


def people(request: Request, typed: Mapping[str, Any] | None = None, fields: Fields | None = None) -> Response:
    """Who grants how much: a picture without names, and the way into the books."""
    desk, name = desk_of(request), request.path_params["table"]
    described = desk.schemas.get(name)
    if described is None:
        return away(f"/table/{name}" if name in desk.tables else "/")
    everybody = described.budget is None
    try:
        budgets = verbs.grants(desk, name, questions.ONE_EACH if everybody else None)
    except SottovoceError as error:
        return _schema_page(request, schemas.typed(described, desk.get_table(name).columns), _about_people(error))
    verbs.look_ahead(desk, name)
    complaints = fields.complaints if fields is not None else {}
    return render(
        request,
        "people.html",
        422 if complaints else 200,
        name=name,
        table=desk.get_table(name),
        unit=budgets.unit,
        size=f"{budgets.n_people:,} people, {budgets.n_rows:,} rows"
        if described.person
        else f"{budgets.n_rows:,} rows",
        everybody=everybody,
        picture="" if everybody else drawing(picture_of_grants(budgets)),
        can_grant=budgets.people is not None,
        accounts=list(ACCOUNTS.items()),
        granted="granted" in request.query_params,
        typed=typed or {},
        complaints=complaints,
    )


def _about_people(error: SottovoceError) -> dict[str, str]:
    return {"budget": in_words(error)}


async def grant(request: Request) -> Response:
    """Writes what the table's people grant into the books."""
    desk, name = desk_of(request), request.path_params["table"]
    if name not in desk.schemas:
        return away("/")
    form = dict(await request.form(max_files=0))
    fields = Fields(form)
    await run_in_threadpool(_granted, desk, name, fields)
    if fields.complaints:
        return await run_in_threadpool(people, request, form, fields)
    return away(f"/table/{name}/people", granted="yes")


def _granted(desk: Desk, name: str, fields: Fields) -> None:
    account = fields.choice("account", ACCOUNTS) or ""
    currency, _, neighbours = account.rpartition(", ")
    delta = fields.number("delta", least=0, most=1, above=True) if currency == "epsilon, delta" else None
    epsilon = None
    if desk.schemas[name].budget is None:
        epsilon = fields.number("epsilon", least=questions.LEAST_EPSILON, most=questions.MOST_EPSILON)
    if fields.complaints:
        return
    try:
        budgets = verbs.grants(desk, name, epsilon)
        desk.session.grant(budgets, currency=currency, neighbours=neighbours, delta=delta)  # type: ignore[arg-type]
        verbs.look_ahead(desk, name)
    except SottovoceError as error:
        fields.complain("account", in_words(error))


routes = [
    Route("/", tables),
    Route("/table", upload, methods=["POST"]),
    Route("/table/{table}", schema, methods=["GET", "POST"]),
    Route("/table/{table}/people", people),
    Route("/table/{table}/schema.toml", schema_file),
    Route("/table/{table}/grant", grant, methods=["POST"]),
    Route("/table/{table}/take-away", take_away, methods=["POST"]),
    *releases.routes,
]
