# SPDX-License-Identifier: Apache-2.0
"""The page: seconds from the start of `sottovoce serve` to its first page, and for a plan for a million people.

Both are told beside what they are to stay within. The first page says that the books are being opened while numerical
libraries are loaded; then the one with tables is there. The first plan counts everybody in the table and looks up
what they have left; while a slider moves neither is done again. At the page both begin when the schema is saved.
"""

from __future__ import annotations

import argparse
import http.client
import io
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table
from timing import console

import sottovoce as sv
from sottovoce.bounds import Column, Schema
from sottovoce.web import uploads, verbs
from sottovoce.web.desk import Desk

#: Seconds within which the first page, and a plan, are to be there.
FIRST_PAGE, PLAN = 1.0, 2.0
#: Starts, of which the quickest counts: a machine is busier one moment than the next.
STARTS = 3
#: By what the page with tables is known; before it, a page says that the books are being opened.
TABLES = b"<title>Table"
SERVE = "from sottovoce.cli.main import app; app()"


def first_page(books: Path) -> tuple[float, float, float]:
    """Returns the seconds until the link is printed, a page is behind it, and that page is the one with tables."""
    began = perf_counter()
    command = [sys.executable, "-c", SERVE, "serve", "--ledger", str(books), "--port", "0", "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        link = server.stdout.readline().strip()
        printed = perf_counter() - began
        _, _, host, path = link.split("/", 3)
        asked = http.client.HTTPConnection(host)
        asked.request("GET", f"/{path}")
        crumb = asked.getresponse()
        crumb.read()
        cookie = {"cookie": crumb.headers["set-cookie"].partition(";")[0]}
        shown, page = [], b""
        while TABLES not in page:
            asked.request("GET", "/", headers=cookie)
            page = asked.getresponse().read()
            shown.append(perf_counter() - began)
        return printed, shown[0], shown[-1]
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def starts() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sv.Session(ledger=f"sqlite:///{folder}/books.db")
        times = [first_page(Path(folder) / "books.db") for _ in range(STARTS)]
    told = Table("start to", "seconds", "target", title=f"Best of {STARTS} starts")
    for name, seconds in zip(("the link", "a page", "the page with tables"), zip(*times, strict=True), strict=True):
        told.add_row(name, f"{min(seconds):.2f}", f"{FIRST_PAGE:g}")
    console.print(told)


def desk_with(people: int, text: bool, folder: str) -> tuple[Desk, str]:
    names = pa.array([f"u{i}" for i in range(people)]) if text else pa.array(np.arange(people))
    rng = np.random.default_rng(0)
    table = pa.table({"id": names, "epsilon": rng.choice([0.1, 0.5, 2.0], people), "value": rng.random(people)})
    file = io.BytesIO()
    pq.write_table(table, file)
    desk = Desk.on(f"sqlite:///{folder}/books.db")
    name = uploads.keep(desk, "people.parquet", file)
    desk.schemas[name] = Schema(columns={"value": Column("number", 0, 1)}, person="id", budget="epsilon")
    verbs.enter(desk, name)
    desk.counts.clear()
    return desk, name


def plans(people: int) -> None:
    told = Table(
        "people named by", "plan", "seconds", "of a processor", "target", title=f"A plan for {people:,} people"
    )
    for text in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            desk, name = desk_with(people, text, folder)
            said, question = verbs.prepared(desk, verbs.Wanted(name, "mean", "value"))
            for which, share in (("the first, which counts", 1.0), ("the slider moves", 0.5)):
                began, used = perf_counter(), process_time()
                verbs.plan(desk, replace(said, share=share), question)
                spent = f"{perf_counter() - began:.2f}", f"{process_time() - used:.2f}"
                told.add_row("text" if text else "numbers", which, *spent, f"{PLAN:g}")
            desk.clear()
    console.print(told)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=1_000_000)
    starts()
    plans(parser.parse_args().people)
