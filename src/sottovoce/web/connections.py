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

Whoever sends a request at once is heard, however many others hold connections open: before a
connection is closed to make room, as many others have come as there are places, and after fewer
than two batches of them it has been read.

What goes wrong beside the requests is told in one line that quotes nothing, and in a few lines a
minute at most.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from sottovoce.web.guard import KNOWN

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
        self._timer = self.loop.call_later(WAIT, self._waited)

    def _waited(self) -> None:
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
