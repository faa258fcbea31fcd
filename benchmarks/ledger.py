# SPDX-License-Identifier: Apache-2.0
"""A million people granted and charged in one transaction, in a file and on a server, beside a bare
bulk insert.

The bare insert puts the same rows (a digest, an account, an amount) into an empty table without
index, condition or chain, by the fastest way of each database, and commits as durably. What the
books do besides: they look every account up and check it, hash every line into a tree, keep an
index, and write the head down.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.table import Table
from timing import console, verdict

from sottovoce.ledger import Amounts
from sottovoce.ledgers import hash_chain, open_ledger
from sottovoce.ledgers.postgres import encode_copy
from sottovoce.ledgers.sql_ledger import SqlLedger

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from servers import postgres, why_not

#: Seconds that charging a million people may take, on two cores that nobody else uses.
PROMISED = {"SQLite": 5.0, "PostgreSQL": 15.0}
#: What everybody grants and is charged, in billionths of ε; amounts differ, as they do.
GRANT = 10**9


@dataclass(frozen=True)
class Spent:
    """Seconds by the clock, and seconds of this process's work; a server's work is its own."""

    wall: float
    cpu: float


def measured(work: Callable[[], object]) -> Spent:
    began = perf_counter()
    used = _cpu()
    work()
    return Spent(perf_counter() - began, _cpu() - used)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def in_file() -> Iterator[tuple[SqlLedger, Callable[[np.ndarray], None]]]:
    with tempfile.TemporaryDirectory() as folder:
        yield (
            open_ledger(f"{folder}/books.db"),
            lambda lines: bare_insert_sqlite(f"{folder}/bare.db", lines),
        )


def bare_insert_sqlite(path: str, lines: np.ndarray) -> None:
    people = [row.tobytes() for row in lines["person"]]
    rows = zip(people, lines["account"].tolist(), lines["amount"].tolist(), strict=True)
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "PRAGMA fullfsync = 1",
        "BEGIN",
    ):
        connection.execute(statement)
    connection.execute("CREATE TABLE bare (person BLOB, account INTEGER, amount INTEGER) STRICT")
    connection.executemany("INSERT INTO bare VALUES (?, ?, ?)", rows)
    connection.execute("COMMIT")
    connection.close()


@contextlib.contextmanager
def on_server() -> Iterator[tuple[SqlLedger, Callable[[np.ndarray], None]]]:
    with postgres() as url, tempfile.TemporaryDirectory() as keys:
        yield open_ledger(url, keys), lambda lines: bare_insert_postgres(url, lines)


def bare_insert_postgres(url: str, lines: np.ndarray) -> None:
    import psycopg

    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE bare (person BYTEA, account BIGINT, amount BIGINT)")
        with cursor.copy("COPY bare FROM STDIN WITH (FORMAT BINARY)") as copy:
            copy.write(encode_copy(lines))


def times(books: SqlLedger, bare: Callable[[np.ndarray], None], people: int) -> dict[str, Spent]:
    names = [f"person-{number}" for number in range(people)]
    granted = np.full(people, GRANT)
    charged = np.arange(people) % GRANT + 1
    lines = hash_chain.pack_lines(
        np.random.default_rng(0).bytes(hash_chain.PERSON_BYTES * people), 0, charged
    )
    return {
        "bare insert": measured(lambda: bare(lines)),
        "grant": measured(lambda: books.grant([Amounts(names, granted)])),
        "charge": measured(lambda: books.reserve("k", "", [Amounts(names, charged)])),
        "charge again": measured(
            lambda: books.reserve("k2", "", [Amounts(names, granted - charged)])
        ),
        "balances": measured(lambda: books.balances(names)),
        "verify": measured(books.verify),
    }


def compare(people: int) -> None:
    table = Table(
        "",
        "",
        "s",
        "of these ours",
        "÷ bare insert",
        "promised",
        "",
        title=f"Books of {people:,} people",
    )
    stores = {"SQLite": in_file} | ({} if why_not() else {"PostgreSQL": on_server})
    for store, opening in stores.items():
        with opening() as (books, bare):
            found = times(books, bare, people)
        for what, spent in found.items():
            promised = PROMISED[store] * people / 1e6
            if what == "charge":
                told = (f"{promised:g} s", verdict(spent.wall, promised))
            else:
                told = ("", "")
            ratio = spent.wall / found["bare insert"].wall
            table.add_row(
                store, what, f"{spent.wall:.2f}", f"{spent.cpu:.2f}", f"{ratio:.1f}", *told
            )
    console.print(table)
    if why_not():
        console.print(f"No PostgreSQL: {why_not()}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=1_000_000)
    compare(parser.parse_args().people)
