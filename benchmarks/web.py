# SPDX-License-Identifier: Apache-2.0
"""The page: seconds from the start of `sottovoce serve` to its first page, and for a plan for a
million people.

Both are told beside what they are to stay within. A plan counts everybody in the table and looks up
what they have left. The books are read when a table is brought, and people are counted when its
schema is saved. So it is told for a program that brings, describes and asks in one go; for somebody
who needs three seconds to describe the table, and a second more, or none, to choose a question; and
for a slider that moves, when nothing is done again.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table
from timing import console

import sottovoce as sv

#: Seconds within which the first page, and a plan, are to be there.
FIRST_PAGE = 1.0
PLAN = 2.0
#: Starts, of which the one in the middle counts: a machine is busier one moment than the next.
STARTS = 3
#: Seconds until everything is loaded, and that somebody needs to describe a table and to choose a
#: question.
LOADED = 5.0
DESCRIBED = 3.0
CHOSEN = 1.0
#: How long each kind of curator waits before the schema and before the plan, and what that is
#: called.
PAUSES = {
    "a program, in one go": (0.0, 0.0),
    "at once after the schema": (DESCRIBED, 0.0),
    f"{CHOSEN:g} s after the schema": (DESCRIBED, CHOSEN),
}
#: By what the page with tables is known; before it, a page says that the books are being opened.
TABLES = b"<title>Table"
SERVE = "from sottovoce.cli.start import main; main()"


class Caller:
    """A program with the cookie of the page."""

    def __init__(self, link: str) -> None:
        _, _, self.host, path = link.split("/", 3)
        self.cookie = ""
        place, _, token = path.partition("#")
        form = f"token={token}".encode()
        told, _ = self.ask("POST", f"/{place}", form, "application/x-www-form-urlencoded")
        self.cookie = told["set-cookie"].partition(";")[0]

    def ask(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> tuple[Any, bytes]:
        """Returns headers and content of an answer."""
        own = {
            "cookie": self.cookie,
            "origin": f"http://{self.host}",
            "sec-fetch-site": "same-origin",
        }
        connection = http.client.HTTPConnection(self.host)
        connection.request(
            method, path, body, own if body is None else {**own, "content-type": kind}
        )
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status}")
        return answer.headers, content

    def bring(self, file: bytes) -> str:
        """Returns the number of a table that is added to the workspace."""
        head = b'Content-Disposition: form-data; name="table"; filename="people.parquet"\r\n\r\n'
        form = b"--edge\r\n" + head + file + b"\r\n--edge--\r\n"
        return str(
            json.loads(
                self.ask("POST", "/api/tables", form, "multipart/form-data; boundary=edge")[1]
            )["id"]
        )

    def seconds(self, method: str, path: str, body: dict[str, Any]) -> float:
        """Returns how long an answer takes."""
        began = perf_counter()
        self.ask(method, path, json.dumps(body).encode())
        return perf_counter() - began


@contextmanager
def served(books: Path) -> Iterator[str]:
    """Yields the link of a server."""
    command = [
        sys.executable,
        "-c",
        SERVE,
        "serve",
        "--ledger",
        str(books),
        "--port",
        "0",
        "--no-open",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def first_page(books: Path) -> tuple[float, float, float]:
    """Returns the seconds until the link is printed, a page is behind it, and that page is the one
    with tables.
    """
    began = perf_counter()
    with served(books) as link:
        printed = perf_counter() - began
        caller = Caller(link)
        shown = []
        page = b""
        while TABLES not in page:
            page = caller.ask("GET", "/")[1]
            shown.append(perf_counter() - began)
        return printed, shown[0], shown[-1]


def starts() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sv.Session(ledger=f"sqlite:///{folder}/books.db")
        times = [first_page(Path(folder) / "books.db") for _ in range(STARTS)]
    told = Table("start to", "seconds", "target", title=f"The middle one of {STARTS} starts")
    for name, seconds in zip(
        ("the link", "a page", "the page with tables"), zip(*times, strict=True), strict=True
    ):
        told.add_row(name, f"{statistics.median(seconds):.2f}", f"{FIRST_PAGE:g}")
    console.print(told)


def planned(books: Path, table: bytes) -> list[float]:
    """Returns the seconds for the first plan after each of the pauses, and when the slider moves
    after the last.
    """
    schema = {
        "columns": {"value": {"kind": "number", "low": 0, "high": 1}},
        "person": "id",
        "budget": "epsilon",
    }
    seconds = []
    for describing, choosing in PAUSES.values():
        with served(books) as link:
            caller = Caller(link)
            caller.ask("GET", "/")
            time.sleep(LOADED)
            name = caller.bring(table)
            time.sleep(describing)
            caller.seconds("PUT", f"/api/tables/{name}/schema", schema)
            time.sleep(choosing)
            asked = {"table": name, "question": "mean", "column": "value"}
            first, again = (
                caller.seconds("POST", "/api/plan", {**asked, "share": share})
                for share in (1.0, 0.5)
            )
            seconds.append(first)
    return [*seconds, again]


def plans(people: int) -> None:
    told = Table(
        "people named by",
        "plan",
        "seconds",
        "target",
        title=f"A plan for {people:,} people, of {STARTS}",
    )
    rng = np.random.default_rng(0)
    for text in (False, True):
        order = rng.permutation(people)
        if text:
            names = pa.array([f"u{i}" for i in order])
        else:
            names = pa.array(order)
        file = io.BytesIO()
        columns = {
            "id": names,
            "epsilon": rng.choice([0.1, 0.5, 2.0], people),
            "value": rng.random(people),
        }
        pq.write_table(pa.table(columns), file)
        with tempfile.TemporaryDirectory() as folder:
            books = Path(folder) / "books.db"
            sv.Session(ledger=f"sqlite:///{books}").grant(dict.fromkeys(names.to_pylist(), 3.0))
            times = [planned(books, file.getvalue()) for _ in range(STARTS)]
        for name, seconds in zip(
            [*PAUSES, "the slider moves"], zip(*times, strict=True), strict=True
        ):
            told.add_row(
                "text" if text else "numbers",
                name,
                f"{statistics.median(seconds):.2f}",
                f"{PLAN:g}",
            )
    console.print(told)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=1_000_000)
    starts()
    plans(parser.parse_args().people)
