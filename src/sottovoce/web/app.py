# SPDX-License-Identifier: Apache-2.0
"""The pages and the JSON as one app over one workspace, behind the guard.

All pages over one workspace, and how whatever they refuse becomes a sentence: JSON for programs, a
page for people.

Nothing is logged about requests, because an address may hold a key, and a traceback data.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sottovoce import __version__
from sottovoce.errors import InvalidInput, SottovoceError
from sottovoce.web import (
    guard,
    layout,
    ledger_pages,
    market_pages,
    person_pages,
    release_pages,
    report_pages,
    table_pages,
)
from sottovoce.web.access_codes import SignInEvent, tell_nobody
from sottovoce.web.guard import API, SENTENCES, Guard
from sottovoce.web.workspace import Workspace

if TYPE_CHECKING:
    from fastapi import FastAPI


def make_app(
    workspace: Workspace, port: int, token: str, tell: Callable[[SignInEvent], None] = tell_nobody
) -> FastAPI:
    """Returns the app over this workspace, behind a guard that opens to whoever has the token,
    once.
    """
    app = make_full_app(workspace)
    app.add_middleware(Guard, port=port, token=token, tell=tell)
    return app


def make_full_app(workspace: Workspace) -> FastAPI:
    """Returns all pages and the JSON over this workspace, before which a guard must stand; at its
    end tables are deleted.
    """
    # The pages are answered before these, which take as long to load as all of the pages.
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError

    from sottovoce.web import api

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        workspace.clear()

    app = FastAPI(
        title="sottovoce",
        version=__version__,
        summary="Personalised differential privacy on the local machine.",
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API}openapi.json",
        lifespan=lifespan,
        redirect_slashes=False,
    )
    for kind, handler in {**HANDLERS, RequestValidationError: _answer_wrong_fields}.items():
        app.add_exception_handler(kind, handler)
    app.state.workspace = workspace
    app.router.routes.extend([*api.router.routes, *ROUTES])
    return app


def _answer_wrong_fields(request: Request, error: Exception) -> Response:
    """Says which fields of a program's request are wrong; what stood in them is not repeated."""
    from fastapi.exceptions import RequestValidationError

    from sottovoce.web import api

    if isinstance(error, RequestValidationError):
        fields = api.list_wrong_fields(error.errors())
    else:
        fields = []
    names = sorted({field["field"] for field in fields} - {""})
    if names:
        words = f"Missing or wrong: {', '.join(names)}."
    else:
        words = "A field is missing or wrong."
    return JSONResponse({"error": words, "fields": fields}, UNPROCESSABLE)


#: Statuses of what the library refuses: something typed is wrong, or the books do not allow it now.
UNPROCESSABLE = 422
CONFLICT = 409
ROUTES = [
    route
    for room in (
        layout,
        table_pages,
        release_pages,
        report_pages,
        ledger_pages,
        market_pages,
        person_pages,
    )
    for route in room.routes
]


def make_pages_app(workspace: Workspace) -> Starlette:
    """Returns all pages over this workspace, before which a guard must stand."""
    app = Starlette(routes=ROUTES, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    app.state.workspace = workspace
    return app


def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, InvalidInput):
        status = UNPROCESSABLE
    else:
        status = CONFLICT
    if not isinstance(error, SottovoceError):
        return _answer_sentence(request, status, SENTENCES[500])
    path = request.url.path
    if error.parameter is None or not path.startswith(API):
        return _answer_sentence(request, status, str(error))
    from sottovoce.web import api

    fields = [{"field": api.name_field(path, error.parameter), "message": str(error)}]
    return JSONResponse({"error": str(error), "fields": fields}, status)


def _answer_http_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        status = error.status_code
    else:
        status = 500
    headers = dict(getattr(error, "headers", None) or {})  # which methods there are
    return _answer_sentence(request, status, SENTENCES.get(status, SENTENCES[400]), headers)


def _answer_sentence(
    request: Request, status: int, words: str, headers: dict[str, str] | None = None
) -> Response:
    if request.url.path.startswith(API):
        return JSONResponse({"error": words}, status, headers)
    page = guard.make_sentence_page(status, words)
    return Response(b"".join(page.body), status, headers, media_type="text/html")


HANDLERS: dict[Any, Callable[[Request, Exception], Response]] = {
    SottovoceError: _answer_error,
    HTTPException: _answer_http_error,
}
