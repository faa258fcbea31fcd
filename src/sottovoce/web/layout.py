# SPDX-License-Identifier: Apache-2.0
"""What every page of the web has in common: one frame, one style sheet, one short script, all our
own.

Templates escape whatever they are given; what `sottovoce.report` draws is trusted, and marked so.
The style sheet begins with that of the command line's reports, so that both look the same and
colours are named once.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from sottovoce.errors import SottovoceError
from sottovoce.report.html import PAGE_STYLE

if TYPE_CHECKING:
    from sottovoce.web.workspace import Workspace

#: The rooms of the curator, as they stand in the navigation: address, name, and how addresses in
#: them begin.
NAVIGATION = (
    ("/", "Table", ("/table",)),
    ("/question", "Question", ("/question", "/job", "/release")),
    ("/report", "Report", ("/report",)),
    ("/audit", "Audit", ("/audit",)),
    ("/market", "Market", ("/market",)),
    ("/ledger", "Ledger", ("/ledger",)),
)


SEE_OTHER = 303


def render(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Returns a page from a template of web/templates; ``rooms=False`` among the values leaves out
    the navigation.
    """
    path = request.url.path
    here = next(
        (
            address
            for address, _, begins in NAVIGATION
            if path == address or path.startswith(begins)
        ),
        "",
    )
    shown = {"rooms": NAVIGATION, "here": here, "complaints": {}, **values}
    return HTMLResponse(_get_environment().get_template(template).render(shown), status_code=status)


def get_workspace(request: Request) -> Workspace:
    """Returns the workspace that the application was made for."""
    workspace: Workspace = request.app.state.workspace
    return workspace


def redirect(address: str, **said: str) -> RedirectResponse:
    """Sends the browser on to another page of our own, to look at it."""
    return RedirectResponse(
        f"{address}?{urlencode(said)}" if said else address, status_code=SEE_OTHER
    )


def show_refusal(request: Request, error: SottovoceError, status: int = 404) -> Response:
    """Shows a page that says what cannot be shown, and why."""
    return render(request, "refused.html", status, sentence=str(error))


def download(name: str, text: str, kind: str) -> Response:
    """Returns a file to keep."""
    return Response(
        text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


def mark_trusted(html: str) -> Markup:
    """Marks HTML that this package drew itself as trusted.

    What may scroll sideways on a narrow window is made reachable by keyboard.
    """
    for box in ('<div class="wide"', "<figure"):
        html = html.replace(f"{box}>", f'{box} tabindex="0">')
    return Markup(html)


@cache
def _get_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("sottovoce.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["pair"] = lambda word: (word, word)  # a choice that is called as its value
    return environment


def _read_static(name: str) -> str:
    return (files("sottovoce.web") / "static" / name).read_text(encoding="utf-8")


@cache
def _build_style() -> str:
    return f"{PAGE_STYLE}\n{_read_static('style.css')}"


async def serve_style(request: Request) -> Response:
    """The style sheet."""
    return Response(_build_style(), media_type="text/css")


async def serve_script(request: Request) -> Response:
    """The script, which adds comfort only: everything works without it."""
    return Response(_read_static("script.js"), media_type="text/javascript")


routes = [Route("/static/style.css", serve_style), Route("/static/script.js", serve_script)]
