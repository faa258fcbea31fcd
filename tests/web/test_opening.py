"""While things are loaded: pages are there before the JSON, a program waits for it, and a failure
ends the server.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

from sottovoce.web.server import LoadingApp

PATIENCE = 300.0


def answering(name):
    async def app(scope, receive, send):
        await send(name)

    return app


def asked(opening, path):
    told = []

    async def send(message):
        told.append(message)

    asyncio.run(opening({"path": path, "method": "GET"}, None, send))
    return told[0]


def begun(load):
    opening = LoadingApp(load)
    gave_up = threading.Event()
    opening.start_loading(gave_up.set)
    return opening, gave_up


def in_turn():
    yield answering("pages")
    yield answering("everything")


def test_what_the_first_page_does_not_need_is_not_loaded_for_it():
    code = """
import sys, sottovoce.web.server, sottovoce.cli.options, sottovoce.web.app
heavy = {"fastapi", "pydantic", "scipy.special", "scipy.linalg", "sklearn", "opendp"}
print(heavy & set(sys.modules))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"


def test_a_page_is_answered_before_the_json_is_loaded_and_a_program_waits_for_it():
    opening, _ = begun(in_turn)
    assert asked(opening, "/ledger") == "pages"
    assert asked(opening, "/api/plan") == "everything"
    assert asked(opening, "/ledger") == "everything"


def test_a_program_may_come_first():
    opening, _ = begun(in_turn)
    assert asked(opening, "/api/plan") == "everything"


def test_the_first_page_does_not_wait_long_and_others_do():
    go = threading.Event()

    def slow():
        go.wait(PATIENCE)
        yield answering("pages")

    opening, _ = begun(slow)
    assert asked(opening, "/")["status"] == 200, "it says that the books are being opened"
    threading.Timer(0.1, go.set).start()
    assert asked(opening, "/") == "pages", "which asks again, and then waits"
    assert asked(opening, "/ledger") == "pages"


def test_what_cannot_be_loaded_ends_the_server():
    def broken():
        yield answering("pages")
        raise OSError

    opening, gave_up = begun(broken)
    assert asked(opening, "/ledger") == "pages"
    assert gave_up.wait(PATIENCE)
    assert isinstance(opening.failed, OSError)
