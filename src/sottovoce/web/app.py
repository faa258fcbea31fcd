# SPDX-License-Identifier: Apache-2.0
"""The page as one app: the rooms' routes and the JSON, behind the guard, over one desk.

Whatever a handler refuses becomes a sentence: as JSON for programs, as a page for people. Nothing is logged about
requests, because an address may hold a key, and a traceback data.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sottovoce import __version__
from sottovoce.errors import InvalidInput, SottovoceError
from sottovoce.web import api, audit, curator, guard, ledger, market, person, shell, verbs
from sottovoce.web.desk import Desk
from sottovoce.web.guard import API, SENTENCES, Guard

#: Statuses of what the library refuses: something typed is wrong, or the books do not allow it now.
WRONG, NOT_NOW = 422, 409
ROOMS = (shell, curator, audit, ledger, market, person)


def make_app(desk: Desk, port: int, token: str) -> FastAPI:
    """Returns the app over this desk, behind a guard that opens to whoever has the token, once."""
    app = rooms(desk)
    app.add_middleware(Guard, port=port, token=token)
    return app


def rooms(desk: Desk) -> FastAPI:
    """Returns all pages and the JSON over this desk, before which a guard must stand; at its end tables are deleted."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        desk.clear()

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
    app.state.desk = desk
    for routes in (api.router.routes, *(room.routes for room in ROOMS)):
        app.router.routes.extend(routes)
    app.add_exception_handler(SottovoceError, _refused)
    app.add_exception_handler(HTTPException, _not_here)
    app.add_exception_handler(RequestValidationError, _wrong)
    return app


def _refused(request: Request, error: Exception) -> Response:
    words = verbs.in_words(error) if isinstance(error, SottovoceError) else SENTENCES[500]
    return _told(request, WRONG if isinstance(error, InvalidInput) else NOT_NOW, words)


def _not_here(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})  # which methods there are
    return _told(request, status, SENTENCES.get(status, SENTENCES[400]), headers)


def _wrong(request: Request, error: Exception) -> Response:
    """Says which fields of a program's request are wrong; what stood in them is not repeated."""
    fields = api.complaints(error.errors()) if isinstance(error, RequestValidationError) else []
    return JSONResponse({"error": "A field is missing or wrong.", "fields": fields}, WRONG)


def _told(request: Request, status: int, words: str, headers: dict[str, str] | None = None) -> Response:
    if request.url.path.startswith(API):
        return JSONResponse({"error": words}, status, headers)
    page = guard.sentence(status, words)
    return Response(b"".join(page.body), status, headers, media_type="text/html")
