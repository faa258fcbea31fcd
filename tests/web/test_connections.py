"""Places for connections: who makes room for whom, who is closed for keeping us waiting, and what
is told about it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import ExitStack, contextmanager

import pytest

from sottovoce.web import server as server_module
from sottovoce.web.guard import BufferedAnswer, mark_as_known
from sottovoce.web.server import open_socket
from web.browser import PATIENCE, until

#: So few connections in one turn of the loop that there are as many places as batches.
PLACES = server_module.BATCHES
ASKED = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class App:
    """Answers at once, or when it may; recognises whoever says so, and tells much to whoever asks
    for it.
    """

    def __init__(self, on_request=lambda: None) -> None:
        self.may = threading.Event()
        self.begun = 0
        self.on_request = on_request

    async def __call__(self, scope, receive, send):
        self.on_request()
        if scope["path"] == "/known":
            mark_as_known(scope)
        if scope["path"] != "/":
            self.begun += 1
        if scope["path"] in ("/known", "/held"):
            while not self.may.is_set():
                await asyncio.sleep(0.005)
        await BufferedAnswer(200, [], [b"x" * (2**25 if scope["path"] == "/much" else 4)]).send_to(
            send
        )


@contextmanager
def running(app):
    here = open_socket(0)
    server = server_module.make_server(app)
    thread = threading.Thread(target=server.run, args=([here],), daemon=True)
    port = here.getsockname()[1]
    thread.start()
    until(lambda: server.started)
    with ExitStack() as opened:

        def connected(sent=b""):
            connection = opened.enter_context(
                socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            )
            connection.sendall(sent)
            return connection

        try:
            yield connected, server.server_state.connections
        finally:
            app.may.set()
            server.should_exit = True
            server.force_exit = True
            thread.join(PATIENCE)


def closed(connection) -> bool:
    """Waits for an end."""
    try:
        while connection.recv(2**16):
            pass
    except ConnectionError:
        pass
    return True


def answered(connection) -> bool:
    return connection.recv(2**16).startswith(b"HTTP/1.1 200")


@pytest.fixture
def few(monkeypatch):
    """Few places, and no connection that ends for another reason, however slow the machine is."""
    monkeypatch.setattr(server_module, "BATCH", 1)
    monkeypatch.setattr(server_module, "WAIT", PATIENCE)
    monkeypatch.setattr(server_module, "KEEP_ALIVE", PATIENCE)


@pytest.fixture
def soon(monkeypatch):
    """Lets connections end soon from now on, or from the first request on: a slow machine may take
    long to send one.
    """
    return lambda: monkeypatch.setattr(server_module, "WAIT", 0.2)


def test_the_stranger_who_came_first_makes_room(few):
    with running(App()) as (connected, there):
        waiting = [connected(b"GET") for _ in range(PLACES)]
        until(lambda: len(there) == PLACES)
        assert answered(connected(ASKED))
        assert closed(waiting[0])
        assert len(there) == PLACES
        waiting[1].sendall(ASKED[3:])
        assert answered(waiting[1]), "and no other"


def test_who_is_answered_makes_room_too_but_not_who_is_known(few):
    app = App()
    with running(app) as (connected, _there):
        known = connected(b"GET /known HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: app.begun == 1)
        strangers = [connected(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(PLACES - 1)]
        until(lambda: app.begun == PLACES)
        assert answered(connected(ASKED))
        assert closed(strangers[0])
        more = [connected(b"GET") for _ in range(3 * PLACES)]
        assert all(map(closed, more[: 2 * PLACES]))
        app.may.set()
        assert answered(known)


def test_where_everybody_is_known_and_busy_nobody_makes_room(few):
    app = App()
    with running(app) as (connected, _there):
        known = [connected(b"GET /known HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(PLACES)]
        until(lambda: app.begun == PLACES)
        assert closed(connected(ASKED))
        app.may.set()
        assert all(map(answered, known))
        assert answered(connected(ASKED)), "those who wait again make room"


def test_a_byte_now_and_then_keeps_no_connection(monkeypatch, soon):
    soon()
    with running(App(on_request=soon)) as (connected, _there):
        slow = connected()
        ended = threading.Event()

        def drip():
            try:
                slow.sendall(b"GET / HTTP/1.1\r\n")
                while not ended.wait(0.01):
                    slow.sendall(b"X: y\r\n")
            except OSError:
                pass

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert closed(slow)
        ended.set()
        dripping.join(PATIENCE)
        monkeypatch.setattr(server_module, "WAIT", PATIENCE)
        again = connected(ASKED)
        assert answered(again)
        assert closed(again), "nor does one between two requests"


def test_an_answer_that_nobody_takes_ends(monkeypatch, soon):
    monkeypatch.setattr(server_module, "WAIT", PATIENCE)
    app = App(on_request=soon)
    with running(app) as (connected, there):
        connected(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n" + ASKED)
        until(lambda: app.begun == 1)
        until(lambda: not there)


def test_places_fit_into_the_files_of_the_process(monkeypatch):
    for files, batch in ((10**9, server_module.BATCH), (1024, server_module.BATCH), (256, 14)):
        monkeypatch.setattr(server_module, "_count_allowed_files", lambda files=files: files)
        server = server_module.make_server(App())
        assert server.config.backlog == batch
        # Places, and batches that are being taken, made and closed: half of the files stay for
        # everything else.
        assert (server_module.BATCHES + 3) * batch <= files // 2


def test_what_is_logged_is_told_in_few_lines_without_its_words(capsys):
    with server_module.log_briefly():
        for _ in range(100):
            logging.getLogger("asyncio").error(
                "salary %s of ada", 41234, exc_info=ValueError("41234")
            )
    told = capsys.readouterr().err
    assert (
        told
        == "Something went wrong beside the page (asyncio). The page goes on.\n"
        * server_module.LINES
    )
