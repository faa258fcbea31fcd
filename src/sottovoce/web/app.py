# SPDX-License-Identifier: Apache-2.0
"""The pages and the JSON as one app over one desk, behind the guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sottovoce import __version__
from sottovoce.web import api
from sottovoce.web.desk import Desk
from sottovoce.web.door import News, nobody
from sottovoce.web.guard import API, Guard
from sottovoce.web.rooms import HANDLERS, ROUTES, WRONG


def make_app(desk: Desk, port: int, token: str, tell: Callable[[News], None] = nobody) -> FastAPI:
    """Returns the app over this desk, behind a guard that opens to whoever has the token, once."""
    app = everything(desk)
    app.add_middleware(Guard, port=port, token=token, tell=tell)
    return app


def everything(desk: Desk) -> FastAPI:
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
    for kind, handler in {**HANDLERS, RequestValidationError: _wrong}.items():
        app.add_exception_handler(kind, handler)
    app.state.desk = desk
    app.router.routes.extend([*api.router.routes, *ROUTES])
    return app


def _wrong(request: Request, error: Exception) -> Response:
    """Says which fields of a program's request are wrong; what stood in them is not repeated."""
    fields = api.complaints(error.errors()) if isinstance(error, RequestValidationError) else []
    names = sorted({field["field"] for field in fields} - {""})
    words = f"Missing or wrong: {', '.join(names)}." if names else "A field is missing or wrong."
    return JSONResponse({"error": words, "fields": fields}, WRONG)
