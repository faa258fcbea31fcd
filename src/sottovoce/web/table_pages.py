# SPDX-License-Identifier: Apache-2.0
"""The curator's way up to the question: a table, what is public about it, who grants how much.

    /                       tables in the workspace, and releases made from them
    /table/{table}          its schema, typed in and never read off the data
    /table/{table}/people   who grants how much, without names; the way into the books

The way goes on in release_pages.py. Only public columns are read here: those of people and of
budgets.
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
from sottovoce.report.plan import draw_grants as picture_of_grants
from sottovoce.schema import PERIODS
from sottovoce.units import format_count
from sottovoce.web import actions, question_form, release_pages
from sottovoce.web.layout import (
    download,
    get_workspace,
    mark_trusted,
    redirect,
    render,
    show_refusal,
)
from sottovoce.web.question_form import Fields
from sottovoce.web.uploads import MOST_COLUMNS
from sottovoce.web.workspace import Workspace

#: Accounts that a table's grants can be written to: the words of the books, and in words for
#: people.
ACCOUNT_NAMES = {
    "pure epsilon, replace": "pure ε, neighbours by replace",
    "pure epsilon, replace labels": "pure ε, labels alone",
    "zCDP rho, replace": "ρ of zCDP, neighbours by replace",
    "epsilon, delta, zero out": "ε at δ, neighbours by zero out",
}
#: Fields that describe one column, at most.
FIELDS_PER_COLUMN = 12


def show_tables(request: Request, complaints: Mapping[str, str] | None = None) -> Response:
    """The first page: tables in the workspace, and releases that were made from them."""
    workspace = get_workspace(request)
    listed = [(name, table, name in workspace.schemas) for name, table in workspace.tables.items()]
    if complaints:
        status = 422
    else:
        status = 200
    return render(
        request,
        "table.html",
        status,
        tables=listed,
        releases=list(workspace.releases),
        complaints=complaints or {},
    )


async def upload_table(request: Request) -> Response:
    """Adds a table to the workspace, or says next to the field why it cannot be used."""
    async with request.form(max_files=1) as form:
        table = form.get("table")
        if not isinstance(table, UploadFile) or not table.filename:
            return show_tables(request, {"table": "Choose a file."})
        try:
            name = await run_in_threadpool(
                actions.upload, get_workspace(request), table.filename, table.file
            )
        except SottovoceError as error:
            return show_tables(request, {"table": str(error)})
    return redirect(f"/table/{name}")


def remove_table(request: Request) -> Response:
    """Deletes a table from the workspace."""
    try:
        get_workspace(request).remove_table(request.path_params["table"])
    except SottovoceError as error:
        return show_refusal(request, error)
    return redirect("/")


async def show_schema(request: Request) -> Response:
    """What is public about a table: the form, and what was typed into it."""
    workspace = get_workspace(request)
    name = request.path_params["table"]
    try:
        columns = workspace.get_table(name).columns
    except SottovoceError as error:
        return show_refusal(request, error)
    if request.method != "POST":
        return _render_schema(
            request, question_form.fill_schema_form(workspace.schemas.get(name), columns), {}
        )
    form = dict(await request.form(max_files=0, max_fields=FIELDS_PER_COLUMN * MOST_COLUMNS))
    fields = Fields(form)
    described = question_form.read_schema(fields, columns)
    if described is None:
        return _render_schema(request, form, fields.complaints)
    actions.declare(workspace, name, described)
    return redirect(f"/table/{name}/people")


def _render_schema(
    request: Request, typed: Mapping[str, Any], complaints: Mapping[str, str]
) -> Response:
    name = request.path_params["table"]
    table = get_workspace(request).get_table(name)
    return render(
        request,
        "schema.html",
        422 if complaints else 200,
        name=name,
        table=table,
        columns=list(table.columns.items()),
        names=[(column, column) for column in table.columns],
        kinds=question_form.COLUMN_KINDS,
        periods=[(period, period) for period in PERIODS],
        typed=typed,
        complaints=complaints,
    )


def download_schema(request: Request) -> Response:
    """The schema as a file to keep."""
    described = get_workspace(request).schemas.get(request.path_params["table"])
    if described is None:
        return redirect("/")
    return download("schema.toml", question_form.write_toml(described), "text/plain")


def show_people(
    request: Request, typed: Mapping[str, Any] | None = None, fields: Fields | None = None
) -> Response:
    """Who grants how much: a picture without names, and the way into the books."""
    workspace = get_workspace(request)
    name = request.path_params["table"]
    described = workspace.schemas.get(name)
    if described is None:
        return redirect(f"/table/{name}" if name in workspace.tables else "/")
    everybody = described.budget is None
    try:
        budgets = actions.read_grants(
            workspace, name, question_form.ONE_EACH if everybody else None
        )
    except SottovoceError as error:
        return _render_schema(
            request,
            question_form.fill_schema_form(described, workspace.get_table(name).columns),
            {SCHEMA_FIELDS.get(error.parameter or "", ""): str(error)},
        )
    actions.prefetch_census(workspace, name)
    size = format_count(budgets.n_rows, "row")
    if described.person:
        size = f"{format_count(budgets.n_people, 'person')}, {size}"
    if fields is not None:
        complaints = fields.complaints
    else:
        complaints = {}
    return render(
        request,
        "people.html",
        422 if complaints else 200,
        name=name,
        table=workspace.get_table(name),
        unit=budgets.unit,
        size=size,
        everybody=everybody,
        picture="" if everybody else mark_trusted(picture_of_grants(budgets)),
        can_grant=budgets.people is not None,
        accounts=list(ACCOUNT_NAMES.items()),
        granted="granted" in request.query_params,
        typed=typed or {},
        complaints=complaints,
    )


#: The fields of a schema, and of grants for a whole table, by the parameters that they set.
SCHEMA_FIELDS = {
    "budget": "budget",
    "column": "budget",
    "epsilon": "budget",
    "groups": "person",
    "person": "person",
    "text": "budget",  # a cell that is no number: of all columns only budgets are read as numbers
}
GRANT_FIELDS = {
    "account": "account",
    "currency": "account",
    "delta": "delta",
    "epsilon": "epsilon",
    "neighbours": "account",
}


async def record_grants(request: Request) -> Response:
    """Writes what the table's people grant into the books."""
    workspace = get_workspace(request)
    name = request.path_params["table"]
    if name not in workspace.schemas:
        return redirect("/")
    form = dict(await request.form(max_files=0))
    fields = Fields(form)
    await run_in_threadpool(_record_grants, workspace, name, fields)
    if fields.complaints:
        return await run_in_threadpool(show_people, request, form, fields)
    return redirect(f"/table/{name}/people", granted="yes")


def _record_grants(workspace: Workspace, name: str, fields: Fields) -> None:
    account = fields.choice("account", ACCOUNT_NAMES) or ""
    currency, _, neighbours = account.rpartition(", ")
    if currency == "epsilon, delta":
        delta = fields.number("delta", least=0, most=1, above=True)
    else:
        delta = None
    epsilon = None
    if workspace.schemas[name].budget is None:
        epsilon = fields.number(
            "epsilon", least=question_form.LEAST_EPSILON, most=question_form.MOST_EPSILON
        )
    if fields.complaints:
        return
    try:
        budgets = actions.read_grants(workspace, name, epsilon)
        kind: Any = {"currency": currency, "neighbours": neighbours}
        workspace.session.grant(budgets, **kind, delta=delta)
        actions.prefetch_census(workspace, name)
    except SottovoceError as error:
        fields.complain_about(error, GRANT_FIELDS)


routes = [
    Route("/", show_tables),
    Route("/table", upload_table, methods=["POST"]),
    Route("/table/{table}", show_schema, methods=["GET", "POST"]),
    Route("/table/{table}/people", show_people),
    Route("/table/{table}/schema.toml", download_schema),
    Route("/table/{table}/grant", record_grants, methods=["POST"]),
    Route("/table/{table}/remove", remove_table, methods=["POST"]),
    *release_pages.routes,
]
