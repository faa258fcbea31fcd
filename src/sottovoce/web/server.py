# SPDX-License-Identifier: Apache-2.0
"""The connections of the page: a bounded number of them, and none that is held open by sending or
reading nothing.

    places      one connection too many closes another: a stranger's, the one that has kept us busy
                longest; where there
                is none, one that waits, of somebody who has shown a cookie or a code of ours; never
                one whose request
                is being answered
    headers     are whole within some seconds of the connection or of the last answer; a byte now
                and then does not help
    bodies      are timed by the guard, which knows what is being sent
    answers     are taken: a part of them at least in every so many seconds

Whoever sends a request at once takes part, however many others hold connections open: before a
connection is closed to make room, as many others have come as there are places, and after fewer
than two batches of them it has been read.

What goes wrong beside the requests is told in one line that quotes nothing, and in a few lines a
minute at most.

From nothing to the page: a socket of this machine, and a server that answers before everything
is loaded.

To load numerical libraries takes seconds, and a person who has just pressed a key waits for less
than one. So the guard stands at once, and behind it a page that says so and looks again, until the
rooms are loaded. Every request passes the guard, before and after. If the books cannot be opened,
the server ends and says why.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from sottovoce.errors import InvalidParameter
from sottovoce.web.access_codes import LIFE as LIFE
from sottovoce.web.access_codes import SignInEvent, make_bare_page, tell_nobody
from sottovoce.web.access_codes import make_form as make_form
from sottovoce.web.access_codes import make_link as make_link
from sottovoce.web.access_codes import new_secret as new_secret
from sottovoce.web.guard import API, HOSTS, KNOWN, BufferedAnswer, Guard

#: Connections that are taken in one turn of the loop; places are so many times as many. A browser
#: opens six.
BATCH = 40
BATCHES = 6
#: Connections that the machine keeps in a row until they are taken; any more come a second late.
QUEUE = 1024
#: Of the files that the process may open, one in so many may be a place: books, tables and workers
#: need others.
SHARE = 3
#: Seconds for the headers of a request, and for a part of an answer to be taken; seconds between
#: two requests.
WAIT = 10.0
KEEP_ALIVE = 5
#: Bytes that headers may have. Browsers send the cookies of every port of this machine.
LONGEST_HEADERS = 2**15
#: Seconds for answers under way when the server ends.
GRACE = 5
#: Lines about what went wrong, in so many seconds.
LINES = 10
MINUTE = 60.0


class Connection(H11Protocol):
    """One connection: it makes room where there are too many, and ends where it is waited for too
    long.
    """

    since = 0.0  # when it was made, or its last answer was given
    _timer: asyncio.TimerHandle | None = None
    _unsent = 0

    @property
    def waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def known(self) -> bool:
        """Whether its last request was of somebody who has shown a cookie or a code of ours."""
        return self.scope is not None and KNOWN in self.scope.get("state", {})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a place, and closes another connection if there is none."""
        super().connection_made(transport)
        self.since = time.monotonic()
        self._watch()
        if len(self.connections) > BATCHES * self.config.backlog:
            self._make_room()

    def _make_room(self) -> None:
        others = [
            other
            for other in self.connections
            if isinstance(other, Connection) and other is not self
        ]
        free = [other for other in others if other.waiting or not other.known]
        min(free, key=lambda other: (other.known, other.since), default=self).end()

    def _watch(self) -> None:
        """Looks again after a while."""
        self._unsent = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(WAIT, self._close_idle)

    def _close_idle(self) -> None:
        """Ends the connection if it waits for a request, or for an answer to be taken, and nothing
        has happened.
        """
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent or not (unsent or self.waiting):
            self._watch()
        else:
            self.end()

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Reads what was sent, and ends where something is wrong that can no longer be answered."""
        try:
            super().data_received(data)
        except h11.ProtocolError:
            self.end()

    def on_response_complete(self) -> None:
        """Waits for the next request."""
        self._unwatch()
        self.since = time.monotonic()
        self._watch()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gives its place back."""
        self._unwatch()
        super().connection_lost(exc)

    def end(self) -> None:
        """Closes at once, whatever was not yet taken."""
        self.connections.discard(self)
        self._unwatch()
        self.transport.abort()


class _PageServer(uvicorn.Server):
    """Takes few connections at a time from a long row; uvicorn has one number for both."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(QUEUE)


def make_server(app: ASGIApp) -> uvicorn.Server:
    """Returns a server of the page within these limits; it logs no request, because an address may
    hold a key.
    """
    return _PageServer(
        uvicorn.Config(
            app,
            http=Connection,
            backlog=min(BATCH, _count_allowed_files() // (SHARE * BATCHES)),
            h11_max_incomplete_event_size=LONGEST_HEADERS,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=GRACE,
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
        )
    )


def _count_allowed_files() -> int:
    """Returns how many files this process may have open."""
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows, which has no such limit
        return sys.maxsize
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY:
        return sys.maxsize
    return most


class BriefHandler(logging.Handler):
    """Says that something went wrong, and whose word it is; not what it says, which may quote what
    was sent.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line, unless there were enough in the last minute."""
        now = time.monotonic()
        self._told = [told for told in self._told if now - told < MINUTE]
        if len(self._told) < LINES:
            self._told.append(now)
            print(
                f"Something went wrong beside the page ({record.name}). The page goes on.",
                file=sys.stderr,
            )


@contextmanager
def log_briefly() -> Iterator[None]:
    """Meanwhile whatever is logged is told in short."""
    root = logging.getLogger()
    brief = BriefHandler()
    logging.getLogger("python_multipart").setLevel(
        logging.CRITICAL
    )  # a form that is none is answered, and that is all
    root.addHandler(brief)
    try:
        yield
    finally:
        root.removeHandler(brief)


#: Ports below belong to the machine's services, and one of them is left out of addresses.
LEAST_PORT = 1024
#: Signals that end the page as Ctrl-C does, where there are such: from the system, from the
#: terminal, from its end.
ENDINGS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGQUIT", "SIGHUP") if hasattr(signal, name)
)
#: Seconds that the first page waits for the rooms before it says that they are being opened.
FIRST_WAIT = 0.1
#: What the first plan needs and the first page does not: it is loaded while somebody reads that
#: page.
SLOW_MODULE = "sottovoce.estimators.ridge"
#: What is shown meanwhile; it asks again by itself, is answered by the rooms, and has no style that
#: it would wait for.
LOADING_PAGE = make_bare_page(
    "<p>The ledger is being opened. This page goes on by itself.</p>"
).encode()


class LoadingApp:
    """Stands where the rooms will be, and hands everything on to them once they are loaded."""

    def __init__(self, load: Callable[[], Iterator[ASGIApp]]) -> None:
        self.failed: Exception | None = None
        self._rooms: ASGIApp | None = None
        self._told = False  # that the rooms are being opened
        self._loaded = threading.Event()
        self._wanted = threading.Event()
        self._complete = threading.Event()
        self._load = load

    def start_loading(self, give_up: Callable[[], None]) -> None:
        """Loads the rooms beside the server, which gives up if that fails: pages first, the rest
        once one was seen.
        """

        def work() -> None:
            try:
                for rooms in self._load():
                    self._rooms = rooms
                    self._loaded.set()
                    self._wanted.wait()
            except Exception as error:  # raised again where the command can tell it
                self.failed = error
                give_up()
            self._loaded.set()
            self._complete.set()
            import_module(SLOW_MODULE)

        threading.Thread(target=work, daemon=True, name="sottovoce-opening").start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers for the rooms, or lets them answer."""
        if scope["path"].startswith(API):  # for programs, which wait
            self._wanted.set()
            await asyncio.to_thread(self._complete.wait)
        elif self._rooms is None:
            first = scope["path"] == "/" and scope["method"] in ("GET", "HEAD") and not self._told
            self._told |= first
            await asyncio.to_thread(self._loaded.wait, FIRST_WAIT if first else None)
        if self._rooms is not None:
            await self._rooms(scope, receive, send)
            return self._wanted.set()
        headers = [(b"content-type", b"text/html; charset=utf-8"), (b"refresh", b"0")]
        await BufferedAnswer(200, headers, [LOADING_PAGE]).send_to(send)


def open_socket(port: int) -> socket.socket:
    """Returns a socket that listens on this machine alone; port 0 takes any that is free."""
    if port != 0 and port < LEAST_PORT:
        raise InvalidParameter(
            "The port is reserved for others.",
            f"It is {LEAST_PORT} or more.",
            "Choose another.",
            parameter="port",
        )
    try:
        return socket.create_server((HOSTS[0], port))
    except (OSError, OverflowError):
        pass  # raised below
    raise InvalidParameter(
        "The page cannot be opened on this port.",
        "Another program may listen there.",
        "Choose another.",
        parameter="port",
    )


class EndingSignals:
    """Signals by which a page is ended from outside: they end the server, and what comes after it
    is still done.

    The first of a kind takes part; a second one kills, as it would without us. What was to be
    ignored stays ignored.
    """

    def __init__(self) -> None:
        self.participating: int | None = None
        self.end: Callable[[], None] = lambda: None

    def __enter__(self) -> EndingSignals:
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            for number in ENDINGS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.participating = number
        signal.signal(number, signal.SIG_DFL)
        self.end()


def run_server(
    load: Callable[[], Iterator[ASGIApp]],
    here: socket.socket,
    token: str,
    tell: Callable[[SignInEvent], None] = tell_nobody,
    ending: EndingSignals | None = None,
) -> None:
    """Serves on a socket of this machine until it is ended; raises what kept the rooms from being
    loaded.
    """
    opening = LoadingApp(load)
    logging.getLogger().addHandler(
        logging.NullHandler()
    )  # or Python prints what is logged while the page ends
    serving = make_server(Guard(opening, here.getsockname()[1], token, tell))

    def give_up() -> None:
        serving.should_exit = True

    if ending is not None:
        ending.end = give_up
        serving.should_exit = ending.participating is not None
    opening.start_loading(give_up)
    with log_briefly():
        serving.run(sockets=[here])
    if opening.failed is not None:
        raise opening.failed
