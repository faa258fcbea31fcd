# SPDX-License-Identifier: Apache-2.0
"""All pages over one desk, and how whatever they refuse becomes a sentence: JSON for programs, a page for people.

Nothing is logged about requests, because an address may hold a key, and a traceback data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sottovoce.errors import InvalidInput, SottovoceError
from sottovoce.web import audit, curator, guard, ledger, market, person, shell
from sottovoce.web.desk import Desk
from sottovoce.web.forms import in_words
from sottovoce.web.guard import API, SENTENCES

#: Statuses of what the library refuses: something typed is wrong, or the books do not allow it now.
WRONG, NOT_NOW = 422, 409
ROUTES = [route for room in (shell, curator, audit, ledger, market, person) for route in room.routes]


def pages(desk: Desk) -> Starlette:
    """Returns all pages over this desk, before which a guard must stand."""
    app = Starlette(routes=ROUTES, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    app.state.desk = desk
    return app


def _refused(request: Request, error: Exception) -> Response:
    words = in_words(error) if isinstance(error, SottovoceError) else SENTENCES[500]
    return _told(request, WRONG if isinstance(error, InvalidInput) else NOT_NOW, words)


def _not_here(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})  # which methods there are
    return _told(request, status, SENTENCES.get(status, SENTENCES[400]), headers)


def _told(request: Request, status: int, words: str, headers: dict[str, str] | None = None) -> Response:
    if request.url.path.startswith(API):
        return JSONResponse({"error": words}, status, headers)
    page = guard.sentence(status, words)
    return Response(b"".join(page.body), status, headers, media_type="text/html")


HANDLERS: dict[Any, Callable[[Request, Exception], Response]] = {SottovoceError: _refused, HTTPException: _not_here}
