"""`sottovoce serve` as a process: the link, the guard from the first moment on, the page, and its
end.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.cli.serve import serve

COMMAND = (
    "import typer; from sottovoce.cli.serve import serve; app = typer.Typer(); "
    "app.command()(serve); app()"
)
PATIENCE = 300.0


@pytest.fixture
def books(tmp_path: Path) -> Path:
    sv.Session(ledger=f"sqlite:///{tmp_path / 'books.db'}").grant({"ada": 1.0, "ben": 0.5})
    return tmp_path / "books.db"


@pytest.fixture
def started(books: Path, tmp_path: Path):
    """The running command, and the link that it prints."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", COMMAND, "--ledger", str(books), "--port", "0", "--no-open"]
    environment = {
        "TMPDIR": str(temporary),
        "PATH": "",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield server, server.stdout.readline().strip()
    finally:
        server.kill()
        server.communicate()


def ask(host, path, method="GET", body=None, **headers):
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def test_from_the_link_to_the_page_and_to_its_end(started, tmp_path):
    server, link = started
    scheme, _, host, path = link.split("/", 3)
    assert scheme == "http:"
    assert host.startswith("127.0.0.1:")
    assert ask(host, "/")[0] == 401, "the guard stands before anything is loaded"
    page, _, token = path.partition("#")
    assert ask(host, f"/{page}")[0] == 200
    form = {"method": "POST", "body": f"token={token}", "Origin": "null"}
    assert ask(host, f"/{page}", Host="evil.example", **form)[0] == 421, (
        "and the token is not used up by a stranger"
    )
    status, headers, _ = ask(host, f"/{page}", **form)
    assert status == 200
    crumb = headers["set-cookie"].partition(";")[0]
    late = time.monotonic() + PATIENCE
    text = ""
    while "Table" not in text and time.monotonic() < late:
        status, headers, text = ask(host, "/", Cookie=crumb)
        assert status == 200
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers
    assert "Table" in text
    assert ask(host, "/")[0] == 401, "and it stands after"
    status, _, told = ask(host, "/api/ledger/balances", Cookie=crumb)
    assert status == 200
    assert '"people":1' in told
    assert len(list((tmp_path / "temporary").iterdir())) == 1, "the private folder"
    server.send_signal(signal.SIGINT)
    out, err = server.communicate(timeout=PATIENCE)
    assert server.returncode == 0
    assert "are deleted" in err
    assert "Traceback" not in out + err
    assert not list((tmp_path / "temporary").iterdir())


def refused(*options: object) -> str:
    app = typer.Typer()
    app.command()(serve)
    result = CliRunner().invoke(app, [*map(str, options), "--no-open"])
    assert result.exit_code == 2
    assert "http://" not in result.output, "no link to a page that does not open"
    return str(result.output)


def test_books_are_not_made_by_mistake(tmp_path, books):
    assert "No ledger is named" in refused()
    for place in (tmp_path / "other.db", f"sqlite:///{tmp_path / 'other.db'}"):
        assert "no ledger at this place" in refused("--ledger", place)
    assert not (tmp_path / "other.db").exists()
    assert "reserved for others" in refused("--ledger", books, "--port", 80)


def test_a_port_that_is_taken_is_told(books):
    from sottovoce.web.server import open_socket

    with open_socket(0) as here:
        assert "Another program" in refused("--ledger", books, "--port", here.getsockname()[1])


def test_books_that_cannot_be_opened_end_the_server(tmp_path):
    (tmp_path / "books.db").write_text("this is not a ledger")
    app = typer.Typer()
    app.command()(serve)
    result = CliRunner().invoke(
        app, ["--ledger", str(tmp_path / "books.db"), "--port", "0", "--no-open"]
    )
    assert result.exit_code == 2
    assert "LedgerBroken" in result.output
