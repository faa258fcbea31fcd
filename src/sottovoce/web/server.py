# SPDX-License-Identifier: Apache-2.0
"""From nothing to the page: a socket of this machine, and a server that answers before everything
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
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from types import FrameType

from starlette.types import ASGIApp, Receive, Scope, Send

from sottovoce.errors import InvalidParameter
from sottovoce.web.connections import log_briefly, make_server
from sottovoce.web.guard import API, HOSTS, BufferedAnswer, Guard
from sottovoce.web.sign_in import LIFE as LIFE
from sottovoce.web.sign_in import SignInEvent, tell_nobody
from sottovoce.web.sign_in import make_form as make_form
from sottovoce.web.sign_in import make_link as make_link
from sottovoce.web.sign_in import new_secret as new_secret

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
LOADING_PAGE = (
    b'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>sottovoce</title>'
    b'<meta name="viewport" content="width=device-width, initial-scale=1">'
    b'<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"></head>'
    b"<body><main><h1>sottovoce</h1><p>The books are being opened. This page goes on by "
    b"itself.</p></main></body>"
    b"</html>"
)


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
            "The port is reserved for others.", f"It is {LEAST_PORT} or more.", "Choose another."
        )
    try:
        return socket.create_server((HOSTS[0], port))
    except (OSError, OverflowError):
        pass  # raised below
    raise InvalidParameter(
        "The page cannot be opened on this port.",
        "Another program may listen there.",
        "Choose another.",
    )


class EndingSignals:
    """Signals by which a page is ended from outside: they end the server, and what comes after it
    is still done.

    The first of a kind is heard; a second one kills, as it would without us. What was to be ignored
    stays ignored.
    """

    def __init__(self) -> None:
        self.heard: int | None = None
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
        self.heard = number
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
        serving.should_exit = ending.heard is not None
    opening.start_loading(give_up)
    with log_briefly():
        serving.run(sockets=[here])
    if opening.failed is not None:
        raise opening.failed
