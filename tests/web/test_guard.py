"""Who is let in: no wrong admission, against a list that was written by hand; and guards with a
hole, which it finds.

The list says what is admitted, pair by pair; the guard computes it. Neither knows the other.
"""

from __future__ import annotations

import asyncio
import re
import time
from itertools import product
from types import SimpleNamespace

import pytest
from starlette.routing import Route

from sottovoce.web import guard
from sottovoce.web import workspace as workspace_module
from sottovoce.web.guard import BufferedAnswer, Guard, GuardedRequest, RequestRefused
from sottovoce.web.uploads import save_table

PORT = 8765
HOSTS = {
    "127.0.0.1:8765": True,
    "localhost:8765": True,
    "127.0.0.1": False,
    "127.0.0.1:80": False,
    "127.0.0.1:8766": False,
    "localhost.evil.example:8765": False,
    "evil.example:8765": False,
    "evil.example": False,
    "127.0.0.1:8765.evil.example": False,
    "0.0.0.0:8765": False,
    "": False,
    None: False,
}
SITES = (None, "none", "same-origin", "same-site", "cross-site", "nonsense")
ORIGINS = (
    None,
    "null",
    "own",
    "http://evil.example",
    "http://127.0.0.1:8766",
    "https://127.0.0.1:8765",
    "file://",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get")
COOKIES = ("right", "none", "wrong", "of a person", "twice", "another port", "the token")
PATHS = (
    "/",
    "/ledger",
    "/api/tables",
    "/open",
    "/person",
    "/person/statement",
    "/static/style.css",
    "/personal",
    "/x",
)

#: What may come to look, and what may come to change something: (Sec-Fetch-Site, Origin), and
#: nothing else.
LOOKS = {
    (None, None),
    (None, "own"),
    ("none", None),
    ("none", "own"),
    ("same-origin", None),
    ("same-origin", "own"),
    ("same-origin", "null"),
}
CHANGES = {(None, "own"), ("same-origin", None), ("same-origin", "own"), ("same-origin", "null")}
FOR_ALL = {"/open", "/person", "/person/statement", "/static/style.css"}


#: What may bring the token besides: a file, of which a browser says no more.
FILES = {("cross-site", "null"), (None, "null")}


def oracle(host, site, origin, method, cookie, path) -> bool:
    if method in ("GET", "HEAD"):
        source = LOOKS
    else:
        source = CHANGES
    if (method, path) == ("POST", "/open"):
        source = CHANGES | FILES
    return HOSTS[host] and (site, origin) in source and (cookie == "right" or path in FOR_ALL)


def request(standing: Guard, host, site, origin, method, cookie, path) -> GuardedRequest:
    crumb = f"sottovoce-{PORT}={standing.cookie}"
    shown = {
        "right": [crumb],
        "none": [],
        "wrong": [f"sottovoce-{PORT}={standing.cookie[:-1]}"],
        "of a person": [f"sottovoce-person={standing.cookie}"],
        "twice": [f"{crumb}; {crumb}"],
        "another port": [f"sottovoce-8766={standing.cookie}"],
        "the token": [f"sottovoce-{PORT}={standing.token}"],
    }[cookie]
    told = {
        "host": host,
        "sec-fetch-site": site,
        "origin": f"http://{host}" if origin == "own" else origin,
    }
    headers = [(name.encode(), value.encode()) for name, value in told.items() if value is not None]
    headers += [(b"cookie", line.encode()) for line in shown]
    return GuardedRequest.of({"method": method, "path": path, "headers": headers})


def admits(standing: Guard, asked: GuardedRequest) -> bool:
    try:
        standing.admit(asked)
    except RequestRefused:
        return False
    return True


CASES = list(product(HOSTS, SITES, ORIGINS, METHODS, COOKIES, PATHS))
#: Every eleventh: no list has a multiple of eleven entries, so all values meet in all pairs.
SOME = CASES[::11]


async def nothing(scope, receive, send):
    raise AssertionError


def wrong(standing: Guard, cases) -> list[tuple[object, ...]]:
    return [
        case for case in cases if admits(standing, request(standing, *case)) and not oracle(*case)
    ]


def test_no_wrong_admission_in_all_combinations():
    standing = Guard(nothing, PORT, "token")
    assert len(SOME) > 25_000
    assert not wrong(standing, SOME)


def test_no_wrong_refusal_either():
    standing = Guard(nothing, PORT, "token")
    right = [case for case in CASES if oracle(*case)]
    assert len(right) > 400
    assert all(admits(standing, request(standing, *case)) for case in right)


class NoHost(Guard):
    def admit(self, asked):
        super().admit(
            GuardedRequest(asked.method, asked.path, {**asked.headers, "host": ["localhost:8765"]})
        )


class AnyPort(Guard):
    def admit(self, asked):
        host = (asked.get_header("host") or "").partition(":")[0]
        super().admit(
            GuardedRequest(
                asked.method, asked.path, {**asked.headers, "host": [f"{host}:{self.port}"]}
            )
        )


class NoSource(Guard):
    def _refuse_cross_site(self, asked, own):
        pass


class SameSite(Guard):
    def _refuse_cross_site(self, asked, own):
        if asked.get_header("sec-fetch-site") != "same-site":
            super()._refuse_cross_site(asked, own)


class PostIsSafe(Guard):
    def _refuse_cross_site(self, asked, own):
        super()._refuse_cross_site(GuardedRequest("GET", asked.path, asked.headers), own)


class NullIsOurs(Guard):
    def _refuse_cross_site(self, asked, own):
        if asked.get_header("origin") != "null":
            super()._refuse_cross_site(asked, own)


class AnyCookie(Guard):
    def _is_signed_in(self, asked):
        return any("sottovoce" in line for line in asked.headers.get("cookie", []))


class NoCookieToLook(Guard):
    def _is_signed_in(self, asked):
        return asked.method == "GET" or super()._is_signed_in(asked)


class PersonByPrefix(Guard):
    def _is_signed_in(self, asked):
        return asked.path.startswith("/person") or super()._is_signed_in(asked)


@pytest.mark.parametrize(
    "planted",
    [
        NoHost,
        AnyPort,
        NoSource,
        SameSite,
        PostIsSafe,
        NullIsOurs,
        AnyCookie,
        NoCookieToLook,
        PersonByPrefix,
    ],
)
def test_a_guard_with_a_hole_is_found(planted):
    assert wrong(planted(nothing, PORT, "token"), SOME)


@pytest.mark.parametrize("name", ["host", "origin", "sec-fetch-site"])
def test_a_header_said_twice_is_refused(name):
    asked = GuardedRequest(
        "POST",
        "/",
        {"host": ["localhost:8765"], "sec-fetch-site": ["same-origin"], name: ["x", "x"]},
    )
    with pytest.raises(RequestRefused):
        Guard(nothing, PORT, "token").admit(asked)


def test_the_token_opens_once_and_becomes_a_cookie_that_scripts_cannot_read(stranger):
    assert stranger.get("/").status_code == 401
    file = {"origin": "null", "sec-fetch-site": "cross-site"}
    for token in ("", "wrong", "the-token-of-these-test"):
        assert stranger.post("/open", data={"token": token}, headers=file).status_code == 401
    for asked in (stranger.get, stranger.head):
        assert (
            "set-cookie" not in asked("/open", params={"token": "the-token-of-these-tests"}).headers
        )
    opened = stranger.post("/open", data={"token": "the-token-of-these-tests"}, headers=file)
    crumb = opened.headers["set-cookie"]
    assert "HttpOnly" in crumb
    assert "SameSite=Strict" in crumb
    assert "the-token" not in crumb
    assert stranger.get("/").status_code == 200
    stranger.cookies.clear()
    assert (
        stranger.post("/open", data={"token": "the-token-of-these-tests"}, headers=file).status_code
        == 401
    )


def addresses(app):
    """Every address of the app with each of its methods; a part that varies is filled in."""
    routes = [
        route for route in app.routes if isinstance(route, Route) or hasattr(route, "methods")
    ]
    assert len(routes) == len(app.routes), "nothing is mounted that this does not see"
    return [
        (method, re.sub(r"{[^}]*}", "x", route.path))
        for route in routes
        for method in route.methods
    ]


def test_every_route_is_closed_without_the_cookie(app, stranger):
    there = addresses(app)
    assert len(there) > 40
    signing_in = [path for _, path in there if path.startswith(("/person", "/static/"))]
    for method, path in there:
        answer = stranger.request(method, path, headers={"sec-fetch-site": "same-origin"})
        if path not in signing_in:
            assert answer.status_code == 401, (method, path)
    assert set(signing_in) >= {"/person", "/static/style.css"}


def test_sign_in_pages_reveal_nothing(stranger, workspace, tmp_path):
    """The same bytes whether there are tables, people and releases or not."""
    paths = (
        "/open",
        "/open?token=x",
        "/person",
        "/person/statement",
        "/static/style.css",
        "/static/script.js",
    )
    before = [stranger.get(path) for path in paths]
    workspace.session.grant({"ada": 1.0})
    (tmp_path / "t.csv").write_bytes(b"a,b\n1,2\n")
    with open(tmp_path / "t.csv", "rb") as file:
        save_table(workspace, "secret.csv", file)
    after = [stranger.get(path) for path in paths]
    assert [answer.content for answer in before] == [answer.content for answer in after]
    assert [answer.status_code for answer in before] == [answer.status_code for answer in after]


def test_every_answer_carries_the_headers(client, stranger):
    for path in ("/", "/nothing", "/api/tables", "/person", "/static/style.css"):
        answer = client.get(path)
        for name, value in guard.HEADERS.items():
            assert answer.headers.get_list(name) == [value], (path, name)
    policy = guard.HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_no_traceback_and_no_value_leaves(app, client):
    async def broken(request):
        raise RuntimeError("salary of u17 is 41234")

    app.router.routes.insert(0, Route("/broken", broken))
    app.router.routes.insert(0, Route("/api/broken", broken))
    for path in ("/broken", "/api/broken"):
        answer = client.get(path)
        assert answer.status_code == 500
        assert "41234" not in answer.text
        assert "Traceback" not in answer.text
        assert "did not foresee" in answer.text


def test_what_is_not_there_is_one_sentence(client):
    page = client.get("/nothing")
    program = client.get("/api/nothing")
    assert (page.status_code, program.status_code) == (404, 404)
    assert "no such page" in page.text
    assert '<a href="/">' in page.text  # a way out
    assert program.json() == {"error": "There is no such page."}


def run(
    standing: Guard, headers=(), body=(), path="/", method="GET", wait=0.0
) -> tuple[int, bytes, float]:
    """Sends a request to a guard, a piece of its body at a time, and returns status, body and
    seconds.
    """
    pieces = iter(body)
    sent = []

    async def receive():
        await asyncio.sleep(wait)
        piece = next(pieces, b"")
        return {"type": "http.request", "body": piece, "more_body": piece != b""}

    async def send(message):
        sent.append(message)

    told = [(b"host", b"localhost:8765"), (b"sec-fetch-site", b"same-origin"), *headers]
    told.append((b"cookie", f"sottovoce-{PORT}={standing.cookie}".encode()))
    scope = {"type": "http", "method": method, "path": path, "headers": told, "query_string": b""}
    began = time.monotonic()
    asyncio.run(standing(scope, receive, send))
    return sent[0]["status"], sent[1]["body"], time.monotonic() - began


async def swallow(scope, receive, send):
    """An app that reads all of a body, whatever it is, and says fine."""
    while (message := await receive()).get("more_body"):
        pass
    assert message
    await BufferedAnswer(200, [], [b"fine"]).send_to(send)


def test_a_body_is_counted_as_it_comes(monkeypatch):
    monkeypatch.setattr(guard, "MOST_FORM", 1000)
    monkeypatch.setattr(guard, "MOST_UPLOAD", 2000)
    monkeypatch.setattr(guard, "MOST_SIGN_IN", 500)
    standing = Guard(swallow, PORT, "token")
    for path, most in (("/", 1000), ("/person", 500), ("/table", 2000), ("/api/tables", 2000)):
        assert run(standing, body=[b"x" * most], path=path, method="POST")[0] == 200
        assert run(standing, body=[b"x" * most, b"x"], path=path, method="POST")[0] == 413
        for length, status in (
            (most, 200),
            (most + 1, 413),
            (10**30, 413),
            ("-1", 400),
            ("1e3", 400),
            ("٣", 400),
        ):
            headers = [(b"content-length", str(length).encode())]
            assert run(standing, headers, path=path, method="POST")[0] == status, (path, length)


def test_a_slow_sender_is_cut_off(monkeypatch):
    monkeypatch.setattr(guard, "READ_TIMEOUT", 0.05)
    status, _, seconds = run(Guard(swallow, PORT, "token"), body=[b"x"] * 9, method="POST", wait=60)
    assert status == 408
    assert seconds < 60
    monkeypatch.setattr(guard, "READ_TIMEOUT", 20.0)
    monkeypatch.setattr(guard, "BODY_TIMEOUT", 0.2)
    status, _, seconds = run(
        Guard(swallow, PORT, "token"), body=[b"x"] * 9000, method="POST", wait=0.02
    )
    assert status == 408
    assert seconds < 180


@pytest.mark.parametrize(
    ("bytes_a_second", "status"), [(guard.SLOWEST, 200), (guard.SLOWEST // 2, 408), (1, 408)]
)
def test_a_byte_now_and_then_is_not_enough(monkeypatch, bytes_a_second, status):
    """By a clock of its own, which goes on by a second with every piece: 200 s at the slowest rate
    are waited for.
    """
    clock = [0.0]
    read = []
    monkeypatch.setattr(guard, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    async def source():
        clock[0] += 1.0
        read.append(clock[0])
        return {"type": "http.request", "body": b"x" * bytes_a_second, "more_body": len(read) < 200}

    body = guard.LimitedBody(source, guard.MOST_UPLOAD)

    async def all_of_it():
        while (await body.receive()).get("more_body"):
            pass

    asyncio.run(all_of_it())
    assert (body.refused or 200) == status
    assert (len(read) == 200) == (status == 200)


def test_answers_leave_at_whole_steps(monkeypatch):
    """No answer is early: work of 0.01 and of 0.13 s leaves at the first and at the second step of
    0.1 s.
    """
    monkeypatch.setattr(guard, "ANSWER_STEP", 0.1)

    def after(seconds):
        async def app(scope, receive, send):
            await asyncio.sleep(seconds)
            await BufferedAnswer(200, [], [b"fine"]).send_to(send)

        return run(Guard(app, PORT, "token"))[2]

    assert after(0.01) >= 0.1
    assert after(0.13) >= 0.2
    for passed, left in ((0.0, 0.0), (0.03, 0.07), (0.1, 0.0), (0.11, 0.09)):
        assert workspace_module.compute_delay(0.1, passed) == pytest.approx(left, abs=1e-9)


def test_websockets_are_closed():
    sent = []

    async def send(message):
        sent.append(message["type"])

    asyncio.run(Guard(nothing, PORT, "token")({"type": "websocket", "path": "/"}, None, send))
    assert sent == ["websocket.close"]
