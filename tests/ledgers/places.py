"""What the attacks share: where books are kept, three people and their question, children that can
be killed, races.

A race runs the same work in many processes at once. It is run on the real books and on planted
ones.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce import errors
from sottovoce.ledger import Amounts
from sottovoce.ledgers import open_ledger
from sottovoce.ledgers.sql_ledger import SqlLedger

VALUES = [1.0, 2.0, 3.0, 4.0, 5.0]
OWNERS = ["ada-lovelace", "ada-lovelace", "ben-trovato", "cleo", "cleo"]
PEOPLE = ["ada-lovelace", "ben-trovato", "cleo"]
MEAN = sv.Mean(bounds=(0, 10))
#: What a release may cost each, and what everybody grants unless the test says otherwise.
PRICE = 1e-3
GRANT = 100.0
TABLES = ("accounts", "entries", "lines", "releases", "signatures")
#: A race: so many processes, so many times each.
PROCESSES = 64
ATTEMPTS = 100


@dataclass(frozen=True)
class Place:
    """Where books are kept, with their key and heads."""

    address: str
    keys: Path

    @property
    def file(self) -> Path:
        return Path(self.address.removeprefix("sqlite:///"))

    @property
    def server(self) -> bool:
        return self.address.startswith("postgresql")

    def open(self) -> SqlLedger:
        return open_ledger(self.address, self.keys)

    def session(self, **options: Any) -> sv.Session:
        return sv.Session(self.address, keys=self.keys, **options)

    def granted(self, grant: float = GRANT) -> sv.Session:
        session = self.session()
        session.grant(dict.fromkeys(PEOPLE, grant))
        return session

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Everything that is in the tables, read around the library."""
        return {table: self.ask(f"SELECT * FROM {table} ORDER BY 1, 2") for table in TABLES}

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Runs a statement around the library, without its guards."""
        if not self.server:
            with sqlite3.connect(self.file) as connection:
                connection.execute("PRAGMA ignore_check_constraints = 1")
                found = connection.execute(statement, values).fetchall()
            connection.close()
            return found
        import psycopg

        with psycopg.connect(self.address, options="-c search_path=sottovoce") as server:
            cursor = server.execute(statement.replace("?", "%s"), values)
            if cursor.description:
                return cursor.fetchall()
            return []


def spend(books: SqlLedger, key: str, units: int = 1, person: str = "ada-lovelace") -> Any:
    """One reservation of so many units."""
    return books.reserve(key, "", [Amounts([person], np.array([units]))])


def allow(books: SqlLedger, units: int, person: str = "ada-lovelace") -> None:
    """A grant of so many units."""
    books.grant([Amounts([person], np.array([units]))])


def left(books: SqlLedger, person: str = "ada-lovelace") -> int:
    return int(books.balances([person])[0])


def release(session: sv.Session, key: str) -> sv.Release:
    return session.release(MEAN, VALUES, groups=OWNERS, epsilon=PRICE, key=key)


class Child:
    """A forked process that tells its parent what it has done, and can be killed."""

    def __init__(self, work: Callable[[Callable[[Any], None]], None]) -> None:
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # of forks beside threads: the child uses none of them
            # what the parent has thrown away may need its threads to end: it is not the child's to
            # collect
            gc.freeze()
            self.pid = os.fork()
        if self.pid == 0:
            os.close(read)
            _live(work, write)
        gc.unfreeze()
        os.close(write)
        self._pipe = os.fdopen(read, "rb")

    def told(self) -> Iterator[Any]:
        """Yields what the child tells, until it ends; a word that its death cut off was not
        told.
        """
        while True:
            try:
                yield pickle.load(self._pipe)
            except (EOFError, pickle.UnpicklingError):
                return

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Waits for the child and returns how it ended: 0, or minus the signal."""
        self._pipe.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _live(work: Callable[[Callable[[Any], None]], None], write: int) -> None:
    code = 1
    try:
        work(lambda word: _tell(write, word))
        code = 0
    except BaseException as error:
        _tell(write, error)
    finally:
        os._exit(code)  # the test runner that was forked along must not go on


def _tell(write: int, word: Any) -> None:
    os.write(write, pickle.dumps(word))


def together(processes: int, work: Callable[[int], Any]) -> list[Any]:
    """Runs the work in so many processes at once, which start when all of them are there, and
    returns their results.
    """
    read, write = os.pipe()

    def waiting(number: int, tell: Callable[[Any], None]) -> None:
        os.close(write)
        os.read(read, 1)  # until the parent lets go
        tell(work(number))

    children = [
        Child(lambda tell, number=number: waiting(number, tell)) for number in range(processes)
    ]
    os.close(write)
    told = [list(child.told()) for child in children]
    os.close(read)
    ended = [child.end() for child in children]
    assert ended == [0] * processes, [
        words for words, code in zip(told, ended, strict=True) if code
    ]
    return [words[0] for words in told]


def race(
    place: Place, attempts: int = ATTEMPTS, cap: int | None = None, processes: int = PROCESSES
) -> tuple[int, int]:
    """Returns the cap, half of what is tried for unless it is given, and how many attempts were
    granted.
    """
    books = place.open()
    if cap is None:
        cap = processes * attempts // 2
    allow(books, cap)

    def runner(number: int) -> int:
        own = place.open()
        got = 0
        for attempt in range(attempts):
            with suppress(errors.BudgetExceeded):
                got += spend(own, f"{number}-{attempt}").fresh
        return got

    return cap, sum(together(processes, runner))


def add_up(place: Place, cap: int) -> None:
    """Raises unless the books say, and can show, that the whole cap is spent and no more."""
    books = place.open()
    books.verify()
    assert left(books) == 0
    assert sum(entry.what == "reserve" for entry in books.entries()) == cap


def ask_again(place: Place, keys: list[str], times: int, processes: int) -> list[set[str]]:
    """Every process asks for every key so many times; returns the different bytes that were given
    for each.
    """

    def runner(number: int) -> list[set[str]]:
        session = place.session()
        answers = [set() for _ in keys]
        for _ in range(times):
            for key, answer in zip(keys, answers, strict=True):
                with suppress(errors.ReleaseFailed):  # it is being made elsewhere just now
                    answer.add(release(session, key).to_json())
        return answers

    return [set().union(*answers) for answers in zip(*together(processes, runner), strict=True)]
