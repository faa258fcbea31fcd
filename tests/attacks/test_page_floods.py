"""What a stranger on this machine can do to the page: keep nobody out, fill nothing, and find
nothing else of it.

A stranger has the loopback and no cookie. The page runs in a process of its own, as `sottovoce
serve` runs it, and may open 1,024 files as most machines allow. Requests go over real sockets, and
every test waits for what happens.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sottovoce as sv
from sottovoce.web import access_codes

PATIENCE = 300.0
#: Half-sent requests that used to stop the page, and as many files as the page may open.
HALF_SENT = 1100
FILES = 1024
#: Whatever is sent holds this word, which must be told nowhere.
MARKER = b"zanzibar"
CENTURY = 100 * 365.25 * 24 * 3600

PAGE = """
import os, resource, sys
os.umask(0)  # so that nothing is private by the umask's grace
resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
import sottovoce as sv
from sottovoce.web import server
from sottovoce.web.app import make_full_app
from sottovoce.web.workspace import Workspace

session = sv.Session(ledger=sys.argv[1])
session.grant({{"ada": 1.0, "ben": 0.5}})
workspace = Workspace(sys.argv[1], None, session)
here = server.open_socket(0)
print(here.getsockname()[1], workspace.codes.issue("ada"), flush=True)
server.run_server(lambda: iter([make_full_app(workspace)]), here, "token")
"""


class Page:
    """The page in its process, and ways to speak to it."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder
        port, self.code = process.stdout.readline().split()
        self.port = int(port)
        self.cookie = self._sign_in()

    def _sign_in(self) -> str:
        """Exchanges the token for the curator's cookie, as a form of our own page does."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        told = {
            "sec-fetch-site": "same-origin",
            "content-type": "application/x-www-form-urlencoded",
        }
        connection.request("POST", "/open", "token=token", told)
        cookie = connection.getresponse().headers["set-cookie"].partition(";")[0]
        connection.close()
        return cookie

    def asked(self, path="/", method="GET", body=None, **headers) -> int:
        """The status of a request of our own page, as a browser sends it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            told = {
                "sec-fetch-site": "same-origin",
                "content-type": "application/x-www-form-urlencoded",
                **headers,
            }
            connection.request(method, path, body, told)
            return connection.getresponse().status
        finally:
            connection.close()

    def curator(self) -> int:
        return self.asked(cookie=self.cookie)

    def told(self, path, method="GET", body=None, kind="application/json"):
        """What the curator's program is told."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(
            method,
            f"/api{path}",
            body,
            {"sec-fetch-site": "same-origin", "content-type": kind, "cookie": self.cookie},
        )
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status < 300, text
        if text:
            return json.loads(text)
        return None

    def typed(self, code: str) -> int:
        return self.asked("/person", "POST", urlencode({"code": code}))

    def connected(self, sent: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        connection.sendall(sent.replace(b"PORT", str(self.port).encode()))
        return connection


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    for name in ("books", "temporary"):
        (folder / name).mkdir()
    command = [
        sys.executable,
        "-c",
        PAGE.format(files=FILES),
        f"sqlite:///{folder / 'books' / 'books.db'}",
    ]
    environment = {
        **os.environ,
        "TMPDIR": str(folder / "temporary"),
        "HOME": str(folder / "temporary"),
    }
    with open(folder / "errors.txt", "w") as told:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=told, text=True, env=environment
        )
    try:
        running = Page(process, folder)
        assert running.curator() == 200
        yield running
    finally:
        process.kill()
        process.communicate()


@contextmanager
def many_files(needed: int):
    """Lets this process open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"this process may open {hard} files, and {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


HEADERS = b"POST /person HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nSec-Fetch-Site: same-origin\r\n"


#: Connections on which nothing is sent, or headers, or a body, without an end.
HALF = (
    b"",
    b"GET /" + MARKER + b" HTTP/1.1\r\nHost: x\r\nX-",
    HEADERS + b"Content-Length: 100\r\n\r\ncode=",
)


def test_half_sent_requests_do_not_stop_the_page(page):
    with many_files(HALF_SENT + 500), ExitStack() as held:
        for number in range(HALF_SENT):
            held.enter_context(page.connected(HALF[number % len(HALF)]))
        assert page.curator() == 200
        assert page.asked("/person") == 200, "nor does anybody wait who has shown nothing yet"
        assert page.typed(page.code) == 303
    refuse_long_errors(page)


def test_wrong_codes_keep_nobody_out(page):
    """A stranger who knows even the prefix types wrong codes without end, and the right one is let
    in every time.
    """
    right = page.code
    stop = threading.Event()
    answered = []

    def type_wrong_ones(number):
        while not stop.is_set():
            wrong = [right[:-1] + ("A" if right[-1] != "A" else "B"), f"{number:04d}" + right[4:]]
            answered.extend(map(page.typed, wrong))

    strangers = [threading.Thread(target=type_wrong_ones, args=(number,)) for number in range(8)]
    for stranger in strangers:
        stranger.start()
    try:
        let_in = []
        while len(answered) < 200:
            let_in.append(page.typed(right))
    finally:
        stop.set()
        for stranger in strangers:
            stranger.join(PATIENCE)
    assert set(answered) == {403}
    assert set(let_in) == {303}


def test_thousands_of_wrong_codes_cost_no_scrypt_and_a_right_one_costs_one(monkeypatch):
    session = sv.Session()
    session.grant({"ada": 1.0})
    people = access_codes.AccessCodes(session.ledger)
    right = people.issue("ada")
    tried = []
    scrypt = access_codes.hashlib.scrypt
    monkeypatch.setattr(
        access_codes.hashlib,
        "scrypt",
        lambda *given, **said: tried.append(1) or scrypt(*given, **said),
    )
    letters = access_codes.ALPHABET
    wrong = [right[:-3] + a + b + c for a in letters for b in letters[:10] for c in letters[:10]]
    assert [people.sign_in(code) for code in wrong if code != right] == [None] * (
        len(wrong) - (right in wrong)
    )
    assert tried == []
    assert people.find_visit(people.sign_in(right)).person == "ada"
    assert tried == [1]


def test_guesses_are_hopeless_without_a_limit():
    """One hundred thousand a second, more than the page can read, for a century, by somebody who
    knows all prefixes.
    """
    assert 100_000 * CENTURY / len(access_codes.ALPHABET) ** access_codes.SECRET < 1e-9


#: What is no request, or stops to be one: bytes that are sent, and what follows once something was
#: answered.
WRONG = {
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + MARKER * 60, b""),
    "bytes": (bytes(range(256)) + MARKER + b"\r\n\r\n", b""),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + MARKER, b""),
    "a chunk after the answer": (
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        MARKER + b"\r\n",
    ),
    "a chunk": (HEADERS + b"Transfer-Encoding: chunked\r\n\r\n" + MARKER + b"\r\n", b""),
    "two lengths": (HEADERS + b"Content-Length: 3, 4\r\n\r\n" + MARKER, b""),
    "a form": (
        HEADERS
        + b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 8\r\n\r\n"
        + MARKER,
        b"",
    ),
    "headers without end": (b"GET / HTTP/1.1\r\n" + b"X: " + MARKER * 40_000, b""),
}


@pytest.mark.parametrize("kind", WRONG)
def test_nothing_that_is_no_request_is_told_at_length(page, kind):
    """At most a line for each, ten a minute, and no word of what was sent; most need none."""
    first, second = WRONG[kind]
    for _ in range(20):
        with page.connected(first) as connection:
            told = connection.recv(2**16)
            if second:
                connection.sendall(second)
                while connection.recv(2**16):
                    pass
        assert told.startswith(b"HTTP/1.1 4")
    assert page.curator() == 200
    refuse_long_errors(page)


def test_people_who_leave_in_the_middle_are_no_news(page):
    for _ in range(50):
        page.connected(HEADERS + b"Content-Length: 100\r\n\r\ncode=" + MARKER).close()
        page.connected(b"GET /person HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n").close()
    assert page.curator() == 200
    refuse_long_errors(page)


def refuse_long_errors(page):
    """All that was told on standard error since the page began."""
    told = (page.folder / "errors.txt").read_bytes()
    assert b"Traceback" not in told
    assert MARKER not in told
    assert len(told) < 2000


def listening(pid: int) -> set[str]:
    """Addresses at which a process listens, as the kernel tells everybody; names of sockets in the
    file system too.
    """
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            inodes.add(os.readlink(link).removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    found = set()
    for table, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state and fields[9] in inodes:
                found.add(f"{table} {fields[1]}")
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[6] in inodes and len(fields) > 7:
            found.add(f"unix {fields[7]}")
    return found


def descendants(pid: int) -> set[int]:
    found = {pid}
    new = [pid]
    while new:
        for path in Path(f"/proc/{new.pop()}/task").glob("*/children"):
            try:
                children = {int(child) for child in path.read_text().split()}
            except OSError:
                continue
            new += children - found
            found |= children
    return found


def for_others(folder: Path) -> set[str]:
    """The files below a folder that somebody else may read or write."""
    found = set()
    for path in folder.rglob("*"):
        try:
            parents = [
                parent
                for parent in path.parents
                if parent.is_relative_to(folder) and parent != folder
            ]
            if all(part.lstat().st_mode & 0o077 for part in (path, *parents)):
                found.add(path.name)
        except FileNotFoundError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="sockets are looked up in /proc")
def test_no_work_beside_the_page_listens_or_leaves_a_file_for_others(page, tmp_path):
    """From an upload to a release: looked at all the while, as anybody on the machine can look."""
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as here:  # the control: both are found where they are
        assert address(here.getsockname()[1]) in listening(os.getpid())
    (tmp_path / "rows.csv").touch(0o644)
    assert for_others(tmp_path) == {"rows.csv"}
    participating = set()
    left = set()
    processes = set()
    ended = threading.Event()

    def look():
        while True:
            there = descendants(page.process.pid)
            processes.update(there)
            participating.update(*map(listening, there))
            left.update(for_others(page.folder / "temporary") | for_others(page.folder / "books"))
            if ended.wait(0.05):
                return

    looking = threading.Thread(target=look)
    looking.start()
    try:
        assert worked(page) == "done"
    finally:
        ended.set()
        looking.join(PATIENCE)
    assert len(processes) > 1, "the process that tries a Parquet file was seen"
    assert (participating, left) == ({address(page.port)}, set())
    assert {"books.db", "books.db.codes"} <= {
        path.name for path in (page.folder / "books").iterdir()
    }


def address(port: int) -> str:
    """A port of this machine alone, as /proc spells it."""
    return f"tcp 0100007F:{port:04X}"


def worked(page) -> str:
    """Brings a Parquet file, describes it, grants, and releases a mean; how that ended."""
    file = io.BytesIO()
    pq.write_table(
        pa.table({"id": ["ada", "ben"] * 50, "epsilon": [0.25] * 100, "v": [0.5] * 100}), file
    )
    form = b'--x\r\nContent-Disposition: form-data; name="table"; filename="t.parquet"\r\n\r\n'
    brought = page.told(
        "/tables",
        "POST",
        form + file.getvalue() + b"\r\n--x--\r\n",
        "multipart/form-data; boundary=x",
    )
    columns = {"v": {"kind": "number", "low": 0, "high": 1}}
    schema = {"person": "id", "budget": "epsilon", "columns": columns}
    page.told(f"/tables/{brought['id']}/schema", "PUT", json.dumps(schema))
    page.told(f"/tables/{brought['id']}/grants", "POST")
    asked = {"table": brought["id"], "question": "mean", "column": "v", "key": "mean of v"}
    job = page.told("/release", "POST", json.dumps(asked))
    while job["state"] == "working":
        job = page.told(f"/jobs/{job['job']}")
    return job["state"]
