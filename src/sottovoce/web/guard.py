# SPDX-License-Identifier: Apache-2.0
"""The guard: every request passes here first, every answer last, and there is no switch to turn it
off.

    a request is admitted if
      its Host is this machine under our port, said once
      it comes from our own page: Sec-Fetch-Site is same-origin (or none, to look at something),
      Origin is ours or null;
      to change something one of the two must be there, and an Origin alone must be ours; the form
      that brings the
      token may also come from a file, of which a browser says no more than null
      it shows the cookie that the one-time token was exchanged for, or asks for a sign-in page,
      which tells nothing
      its body is not longer, and does not come slower, than the named limits

    an answer
      forbids scripts, styles, frames and forms of anybody else, and is kept in no cache
      is one sentence where something went wrong: no traceback, no value
      leaves at a whole number of time steps, all of it at once: how long it took tells nothing
      finer

A cookie is for all ports of a machine, so ours has the port in its name, and a value that is good
for nothing else.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sottovoce.web import access_codes
from sottovoce.web.access_codes import SignIn, SignInEvent
from sottovoce.web.access_codes import new_secret as new_secret
from sottovoce.web.workspace import compute_delay

#: What the page is reached by; the server listens on the first and nowhere else.
HOSTS = ("127.0.0.1", "localhost")
#: Methods that only look; every other changes something.
SAFE = frozenset({"GET", "HEAD"})
#: Where the token is exchanged, where people show their code, and the paper that both are printed
#: on.
OPEN_PATH = "/open"
PERSON_PATH = "/person"
STATIC_PATH = "/static/"
#: The script of the page that asks for the token: it is there before anything else is loaded.
OPEN_SCRIPT = "/open/script.js"
#: Where tables are brought to.
UPLOAD_PATHS = frozenset({"/table", "/market/sellers", "/api/tables"})
#: Where programs ask, and are answered in JSON.
API = "/api/"
#: Bytes of a body: of a table, which is streamed to a file, of what is sent to a sign-in page, and
#: of anything else.
MOST_UPLOAD = 512 * 2**20
MOST_SIGN_IN = 2**12
MOST_FORM = 2**20
#: Seconds without a byte of a body, and seconds for all of it.
READ_TIMEOUT = 20.0
BODY_TIMEOUT = 900.0
#: Bytes of a body that must have come for every second after those of the first silence.
SLOWEST = 2**15
#: Under which name of a request's state it is said that its sender has shown a cookie or a code of
#: ours.
KNOWN = "sottovoce.known"
#: Seconds between the moments at which answers leave.
ANSWER_STEP = 0.05

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
SENTENCES = {
    400: "This request cannot be understood.",
    401: "This page opens with the link that `sottovoce serve` printed, once. Start it again for "
    "a new link.",
    403: "This request did not come from the page itself.",
    404: "There is no such page.",
    405: "This cannot be done here.",
    408: "What was sent came too slowly.",
    413: f"This is too large: a table may have {MOST_UPLOAD // 2**20} MB, a code "
    f"{MOST_SIGN_IN // 2**10} kB, anything else {MOST_FORM // 2**20} MB.",
    421: "This page answers on this machine only.",
    500: "Something went wrong that sottovoce did not foresee. Please report what you did, "
    "without the data.",
}
#: Pages of one sentence look like all others.
_STYLE_LINK = '<link rel="stylesheet" href="/static/style.css">'


class RequestRefused(Exception):
    """A request that is not answered, with the status that says why."""

    def __init__(self, status: int) -> None:
        self.status = status


def mark_as_known(scope: Scope) -> None:
    """Notes that a request is of somebody we know: its connection is not closed to make room for
    strangers.
    """
    scope.setdefault("state", {})[KNOWN] = True


@dataclass(frozen=True)
class GuardedRequest:
    """What the guard looks at of a request: the method, the path, and headers by name."""

    method: str
    path: str
    headers: dict[str, list[str]]

    @classmethod
    def of(cls, scope: Scope) -> GuardedRequest:
        """Reads a request; each header with all that was said under its name."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        return cls(scope["method"], scope["path"], headers)

    def get_header(self, name: str) -> str | None:
        """Returns a header; refuses one that is said twice."""
        values = self.headers.get(name, [])
        if len(values) > 1:
            raise RequestRefused(400)
        if values:
            return values[0]
        return None

    @property
    def is_open(self) -> bool:
        """Whether this is a page for those who have not signed in."""
        return self.path in (OPEN_PATH, OPEN_SCRIPT, PERSON_PATH) or self.path.startswith(
            (f"{PERSON_PATH}/", STATIC_PATH)
        )

    @property
    def largest(self) -> int:
        """The bytes that its body may have."""
        if self.path == OPEN_PATH:
            return access_codes.MOST
        if self.path in UPLOAD_PATHS:
            return MOST_UPLOAD
        if self.is_open:
            return MOST_SIGN_IN
        return MOST_FORM

    @property
    def agent(self) -> str:
        """Which browser it says to be."""
        return ", ".join(self.headers.get("user-agent", []))


@dataclass
class Guard:
    """Stands around the app; its door knows the one-time token, and the cookie that it becomes."""

    app: ASGIApp
    port: int
    token: str
    tell: Callable[[SignInEvent], None] = access_codes.tell_nobody
    door: SignIn = field(init=False)

    def __post_init__(self) -> None:
        self.door = SignIn(self.token, self.tell)

    @property
    def cookie(self) -> str:
        """What whoever is signed in shows."""
        return self.door.cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admits a request and lets its answer out, or answers in one sentence."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send(
                {"type": "websocket.close"}
            )  # nothing here is to be had by other ways
        began = time.monotonic()
        answer = BufferedAnswer()
        as_json = scope["path"].startswith(API)
        try:
            await self._answer(scope, receive, answer)
        except RequestRefused as refused:
            if refused.status == 401:
                words = self.door.words
            else:
                words = None
            answer = make_sentence_page(refused.status, words, as_json=as_json)
        except Exception:  # nothing of it may leave: it could quote data
            answer = make_sentence_page(500, as_json=as_json)
        await asyncio.sleep(compute_delay(ANSWER_STEP, time.monotonic() - began))
        await answer.send_to(send)

    async def _answer(self, scope: Scope, receive: Receive, answer: BufferedAnswer) -> None:
        asked = GuardedRequest.of(scope)
        self.admit(asked)
        if self._is_signed_in(asked):
            mark_as_known(scope)
        body = LimitedBody(receive, asked.largest)
        body.refuse_announced(asked.get_header("content-length"))
        try:
            if asked.path in (OPEN_PATH, OPEN_SCRIPT):
                answer.replace(await self._exchange_token(asked, body))
            else:
                await self.app(scope, body.receive, answer.add_message)
        finally:
            if body.refused is not None:  # whatever the app made of a body that was cut off
                raise RequestRefused(body.refused)

    def admit(self, asked: GuardedRequest) -> None:
        """Raises unless the request may be answered."""
        host = asked.get_header("host")
        if host not in self.hosts:
            raise RequestRefused(421)
        self._refuse_cross_site(asked, f"http://{host}")
        if not (asked.is_open or self._is_signed_in(asked)):
            raise RequestRefused(401)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names and the port of this machine that a request may be for."""
        return tuple(f"{host}:{self.port}" for host in HOSTS)

    def _refuse_cross_site(self, asked: GuardedRequest, own: str) -> None:
        site = asked.get_header("sec-fetch-site")
        origin = asked.get_header("origin")
        safe = asked.method in SAFE
        # The form that brings the token is a file, and of files a browser says Origin: null and
        # cross-site, as of much else that nobody can name. Here that is enough, because here the
        # source decides nothing: all that such a request can do is to show a token, and who has the
        # right one could show it without a browser as well. Who has not is told what everybody is
        # told. Nothing else is admitted that way: no other address, no other method.
        if (asked.path, asked.method, origin) == (OPEN_PATH, "POST", "null") and site in (
            None,
            "cross-site",
        ):
            return
        # Browsers say Origin: null for our own forms, because we tell them to send no referrer;
        # then the site decides.
        from_here = (
            site == "same-origin"
            or (safe and site in (None, "none"))
            or (site is None and origin == own)
        )
        if (
            not from_here
            or origin not in (None, "null", own)
            or (origin == "null" and site != "same-origin")
        ):
            raise RequestRefused(403)

    def _is_signed_in(self, asked: GuardedRequest) -> bool:
        """Whether the cookie was shown, once."""
        crumbs = [
            crumb.strip().partition("=")
            for line in asked.headers.get("cookie", [])
            for crumb in line.split(";")
        ]
        values = [value for name, _, value in crumbs if name == self.name]
        return len(values) == 1 and self.door.knows(values[0], asked.agent)

    @property
    def name(self) -> str:
        """The cookie's name."""
        return f"sottovoce-{self.port}"

    async def _exchange_token(self, asked: GuardedRequest, body: LimitedBody) -> BufferedAnswer:
        """Asks for the token, or exchanges it for the cookie, once; whoever has the cookie already
        is let in.
        """
        if asked.path == OPEN_SCRIPT:
            if asked.method in SAFE:
                return make_answer(200, access_codes.SCRIPT, b"text/javascript")
            return make_sentence_page(405)
        opened = make_answer(200, access_codes.GO_ON)
        opened.headers.append(
            (b"refresh", b"0; url=/")
        )  # a redirect would take what stands behind # along
        if self._is_signed_in(asked):
            return opened
        if asked.method in SAFE:
            return make_answer(200, access_codes.ASKING)
        if asked.method != "POST":
            return make_sentence_page(405)
        given = parse_qs((await body.whole_of_it()).decode("latin-1")).get("token", [""])[0]
        cookie = self.door.redeem(given, asked.agent)
        if cookie is None:
            raise RequestRefused(401)
        crumb = f"{self.name}={cookie}; Path=/; HttpOnly; SameSite=Strict"
        opened.headers.append((b"set-cookie", crumb.encode()))
        return opened


@dataclass
class LimitedBody:
    """What is sent to us, counted and timed as it comes."""

    source: Receive
    largest: int
    length: int = 0
    whole: bool = False
    began: float | None = (
        None  # when the app first asked for it: what it waits for before is not the sender's fault
    )
    refused: int | None = None

    def refuse_announced(self, length: str | None) -> None:
        """Refuses a body that says of itself that it is too long."""
        if length is not None and (not length.isdecimal() or len(length) > len(str(MOST_UPLOAD))):
            raise RequestRefused(400 if not length.isdecimal() else 413)
        if length is not None and int(length) > self.largest:
            raise RequestRefused(413)

    async def receive(self) -> Message:
        """Hands on the next piece, unless it is too much or too late."""
        if self.whole:  # nothing comes but the news that nobody waits any longer
            return await self.source()
        now = time.monotonic()
        if self.began is None:
            self.began = now
        else:
            self.began = self.began
        left = self.began + min(BODY_TIMEOUT, READ_TIMEOUT + self.length / SLOWEST) - now
        try:
            message = await asyncio.wait_for(self.source(), max(min(READ_TIMEOUT, left), 0.0))
        except TimeoutError:
            message = self._disconnect(408)
        self.length += len(message.get("body", b""))
        self.whole = not message.get("more_body", False)
        if self.length > self.largest:
            return self._disconnect(413)
        return message

    async def whole_of_it(self) -> bytes:
        """Returns all of a short body; nothing of one that is cut off."""
        pieces = []
        while not self.whole and self.refused is None:
            message = await self.receive()
            if message["type"] != "http.request":
                return b""
            pieces.append(message.get("body", b""))
        if self.refused is None:
            return b"".join(pieces)
        return b""

    def _disconnect(self, status: int) -> Message:
        self.refused = self.refused or status
        return {"type": "http.disconnect"}  # which every reader understands


@dataclass
class BufferedAnswer:
    """An answer held back until all of it is there."""

    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: list[bytes] = field(default_factory=list)

    async def add_message(self, message: Message) -> None:
        """Keeps a piece of the app's answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message.get("headers", []))
        elif message["type"] == "http.response.body":
            self.body.append(message.get("body", b""))

    def replace(self, other: BufferedAnswer) -> None:
        """Becomes another answer."""
        self.status = other.status
        self.headers = other.headers
        self.body = other.body

    async def send_to(self, send: Send) -> None:
        """Sends all of it, under our headers."""
        own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        kept = [
            (name, value)
            for name, value in self.headers
            if name.decode("latin-1").lower() not in HEADERS
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": kept + own})
        await send({"type": "http.response.body", "body": b"".join(self.body)})


def make_sentence_page(
    status: int, words: str | None = None, *, as_json: bool = False
) -> BufferedAnswer:
    """Returns a page of one sentence, or the same as JSON; it shows nothing of what was asked."""
    if words is None:
        text = SENTENCES[status]
    else:
        text = words
    if as_json:
        return make_answer(status, json.dumps({"error": text}), b"application/json")
    body = f"<p>{escape(text)}</p>"
    if status == 404:
        body += '<p><a href="/">Go to the first page</a></p>'
    return make_answer(status, access_codes.make_bare_page(body, head=_STYLE_LINK))


def make_answer(
    status: int, text: str, kind: bytes = b"text/html; charset=utf-8"
) -> BufferedAnswer:
    """Returns an answer with this content."""
    content = text.encode()
    return BufferedAnswer(
        status,
        [(b"content-type", kind), (b"content-length", str(len(content)).encode())],
        [content],
    )
