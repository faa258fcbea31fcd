"""Books of invented people, and somebody in front of the page: the curator, or a visitor who has
shown nothing yet.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
import warnings
from functools import cache
from html import unescape
from pathlib import Path

import pytest

import sottovoce as sv
from sottovoce.web.app import make_app
from sottovoce.web.workspace import Workspace
from web.browser import serving

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore"
    )  # it would like another client than the one that it asks for elsewhere
    from starlette.testclient import TestClient

PORT = 8765
TOKEN = "the-one-time-token-of-a-test"
#: What a browser says of a form of our own page.
OWN = {"sec-fetch-site": "same-origin"}
TIERS = (0.1, 0.5, 2.0)
NAMES = [f"person-{i:03d}" for i in range(30)]


def fill(session: sv.Session) -> None:
    """Grants in three tiers, one release, and one charge from outside."""
    session.grant({name: TIERS[i % 3] for i, name in enumerate(NAMES)})
    values = [float(i % 10) for i in range(len(NAMES))]
    session.release(sv.Mean(bounds=(0, 10)), values, groups=NAMES, epsilon=0.08, key="mean of May")
    session.charge({"person-001": 0.025}, key="survey of 2019")


@cache
def _filled() -> Path:
    """The files of such books, made once and copied for every test."""
    folder = Path(tempfile.mkdtemp(prefix="sottovoce-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    fill(sv.Session(ledger=f"sqlite:///{folder / 'books.db'}"))
    return folder


def desk_in(folder: Path) -> Workspace:
    """Returns a workspace over such books in a file."""
    shutil.copytree(_filled(), folder, dirs_exist_ok=True)
    return Workspace.for_ledger(f"sqlite:///{folder / 'books.db'}")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A real server over such books."""
    with serving(tmp_path_factory.mktemp("served")) as running:
        fill(running.workspace.session)
        yield running


def app_over(workspace: Workspace):
    return make_app(workspace, PORT, TOKEN)


def visitor(app) -> TestClient:
    """Somebody at this machine who has shown nothing yet."""
    address = f"http://127.0.0.1:{PORT}"
    return TestClient(
        app, base_url=address, headers=OWN, raise_server_exceptions=False, follow_redirects=False
    )


def curator(app) -> TestClient:
    """The curator, who has used the one-time link."""
    client = visitor(app)
    assert client.post("/open", data={"token": TOKEN}).status_code == 200
    return client


def text(html: str) -> str:
    """What a reader sees: the page without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def complaints(html: str) -> set[str]:
    """The fields that are marked as wrong, each with a sentence that its input names as its
    description.
    """
    marked = set(re.findall(r'<p class="wrongly" id="(\w+)-wrong">\S', html))
    assert all(
        re.search(rf'id="{name}"[^>]*aria-describedby="[^"]*{name}-wrong', html) for name in marked
    )
    return marked


def tab_to(page, what: str, wanted: str) -> None:
    """Goes on by the key Tab until the element in focus has this property; fails if none on the
    page has.
    """
    for _ in range(200):
        if page.evaluate(f"document.activeElement.{what}") == wanted:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{wanted} cannot be reached by keyboard")
