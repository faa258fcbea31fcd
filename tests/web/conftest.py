"""A workspace with books, an app behind its guard, and a browser that has signed in. Answers leave
at once, to save time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from sottovoce.web import guard
from sottovoce.web import workspace as workspace_module
from sottovoce.web.app import make_app
from sottovoce.web.workspace import Workspace

PORT = 8765
TOKEN = "the-token-of-these-tests"
HOME = f"http://127.0.0.1:{PORT}"
#: What a browser says of requests that our own page makes.
OWN = {"sec-fetch-site": "same-origin"}
#: Who grants what in the table of these tests.
TIERS = (0.1, 0.5, 2.0)
PEOPLE = 300

SCHEMA = {
    "person": "id",
    "budget": "epsilon",
    "label": "salary",
    "columns": {
        "salary": {"kind": "number", "low": 0, "high": 200_000},
        "age": {"kind": "number", "low": 18, "high": 90},
    },
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time steps so short that nobody waits; the tests of timing set their own."""
    monkeypatch.setattr(guard, "ANSWER_STEP", 1e-6)
    monkeypatch.setattr(workspace_module, "END_STEP", 1e-6)


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    workspace = Workspace.for_ledger(None)
    yield workspace
    workspace.clear()


@pytest.fixture
def app(workspace: Workspace) -> FastAPI:
    return make_app(workspace, PORT, TOKEN)


@pytest.fixture
def stranger(app: FastAPI) -> TestClient:
    """A browser that has not signed in."""
    return TestClient(app, base_url=HOME, follow_redirects=False, raise_server_exceptions=True)


@pytest.fixture
def client(stranger: TestClient) -> TestClient:
    """The curator's browser."""
    stranger.headers.update(OWN)
    assert stranger.post("/open", data={"token": TOKEN}).status_code == 200
    return stranger


@pytest.fixture(scope="session")
def rows() -> bytes:
    """Salaries and ages of people with grants, two rows each, as CSV."""
    lines = [
        f"u{i // 2},{TIERS[i // 2 % 3]},{40_000 + 37 * i % 20_000},{18 + i % 70}"
        for i in range(2 * PEOPLE)
    ]
    return "\n".join(["id,epsilon,salary,age", *lines, ""]).encode()


@pytest.fixture
def table(client: TestClient, rows: bytes) -> str:
    """The table in the workspace, described, and its grants in the books."""
    name = client.post("/api/tables", files={"table": ("salaries.csv", rows)}).json()["id"]
    assert client.put(f"/api/tables/{name}/schema", json=SCHEMA).status_code == 204
    assert client.post(f"/api/tables/{name}/grants").status_code == 200
    return str(name)
