# SPDX-License-Identifier: Apache-2.0
"""The workspace of the curator at the page: books, tables, schemas, releases, and work under way.

Tables lie in a private folder that is deleted at the end, under names drawn at random; on Linux
they end with the process, however that ends (sottovoce.private_files). No path ever comes from the
page or goes to it. What is remembered of a table besides its file is public: columns, kinds, who
grants how much.

Long work beside the page: begun, watched, and given up before anybody is charged, not after.

    working → done | failed | cancelled

Work calls ``job.watch`` with the rows it has read, and ``job.commit`` right before the reservation.
A cancelled job stops at the next of these calls. Once committed it cannot be cancelled: what is
reserved stays spent, so the answer may as well be had. A job ends at fixed steps of time, because
how long work took may depend on the data.

What a table's people have left in the books, looked up once and remembered until something is
written there.

Looking up a million people takes a second or two, because everybody's name is hidden under the
ledger's key first, and everybody's account is read; a slider asks for it at every move. Digests
stay what they are, and what is left changes only with a new entry, so the number of the last entry
is part of what is remembered: entries that other programs write are seen too. Only plans are made
from it. A release looks for itself.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sottovoce.data.source import DataSource
from sottovoce.errors import InvalidParameter, SottovoceError, UnknownPeople
from sottovoce.ledger import DEFAULT_ACCOUNT, AllBalances
from sottovoce.ledgers import hash_chain
from sottovoce.ledgers.sql_ledger import SCAN_FACTOR
from sottovoce.private_files import Scratch
from sottovoce.schema import Schema
from sottovoce.session import Session
from sottovoce.units import Units
from sottovoce.web.access_codes import AccessCodes

State = Literal["working", "done", "failed", "cancelled"]

#: Seconds between the moments at which a job may end.
END_STEP = 0.25
#: Jobs at once; the others wait for their turn. Two keep the machine responsive beside the page.
MAX_THREADS = 2
#: Jobs that are remembered; the oldest that have ended are forgotten.
MAX_REMEMBERED = 100
#: Letters of a job's name, in bytes of randomness: not to be guessed.
NAME_BYTES = 16
UNFORESEEN = (
    "Something went wrong that sottovoce did not foresee. If the key is in the ledger, what it "
    "cost stays spent. Please report what you did, without the data."
)
TOO_LATE = "It is too late to cancel: everybody has been charged, and what is charged stays spent."


class JobCancelled(Exception):
    """The work was given up before anybody was charged."""


@dataclass(eq=False)
class Job:
    """One piece of work, as far as it has come."""

    what: str
    rows: int = 0
    state: State = "working"
    sentence: str = ""  # what went wrong, in words without data
    result: Any = None
    cancelled: bool = False
    committed: bool = False
    began: float = field(default_factory=time.monotonic)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, rows: int) -> None:
        """Notes how many rows were read, and stops the work if it was cancelled before the
        reservation.
        """
        self.rows = rows
        if self.cancelled and not self.committed:
            raise JobCancelled

    def commit(self) -> None:
        """Says that people are about to be charged; from now on nobody can cancel."""
        with self._turn:
            if self.cancelled:
                raise JobCancelled
            self.committed = True

    def cancel(self) -> None:
        """Gives the work up, or says why that is too late."""
        with self._turn:
            if self.committed or self.state != "working":
                raise InvalidParameter(
                    TOO_LATE if self.committed else "This work has ended already.",
                    "",
                    "Look at what came of it.",
                )
            self.cancelled = True

    def run(self, work: Callable[[Job], Any]) -> None:
        """Does the work, and keeps what came of it: a result or a sentence, never a traceback."""
        ended: tuple[State, str] = ("done", "")
        try:
            self.watch(0)
            self.result = work(self)
        except JobCancelled:
            ended = ("cancelled", "Cancelled before anybody was charged.")
        except SottovoceError as error:
            ended = ("failed", str(error))
        except (
            Exception
        ):  # not even the kind of error is told: after rows have been read it may depend on them
            ended = ("failed", UNFORESEEN)
        time.sleep(compute_delay(END_STEP, time.monotonic() - self.began))
        # The state last: whoever sees that the work has ended sees all that came of it.
        state, self.sentence = ended
        self.state = state

    def take_snapshot(self) -> Job:
        """Returns the work as it is now: what is told of it does not change while it is told."""
        return copy(self)


class Jobs:
    """All work beside the page, by names that cannot be guessed."""

    def __init__(self) -> None:
        self._known: dict[str, Job] = {}
        self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="sottovoce-job")

    def start(self, work: Callable[[Job], Any], what: str = "") -> str:
        """Begins the work, and returns the name under which it is found."""
        # a name, not noise: no answer depends on it
        job = Job(what)
        name = secrets.token_urlsafe(NAME_BYTES)
        self._forget()
        self._known[name] = job
        self._pool.submit(job.run, work)
        return name

    def find(self, name: str) -> Job | None:
        """Returns the job of this name, if it is remembered."""
        return self._known.get(name)

    def close(self) -> None:
        """Cancels what can be cancelled, and waits for what cannot."""
        for job in self._known.values():
            if job.state == "working" and not job.committed:
                job.cancelled = True
        self._pool.shutdown(wait=True)

    def _forget(self) -> None:
        ended = [name for name, job in self._known.items() if job.state != "working"]
        for name in ended[: max(len(self._known) - MAX_REMEMBERED + 1, 0)]:
            del self._known[name]


def compute_delay(step: float, passed: float) -> float:
    """Returns how long it is until the next whole number of steps."""
    return max(math.ceil(passed / step) * step - passed, 0.0)


#: So many accounts are read before anybody asks for them: some seconds, and a hundred megabytes.
PREFETCH_LIMIT = 5_000_000


@dataclass(frozen=True)
class CachedBalances:
    """The books in the workspace, asked once between two entries what the people in a column of a
    table have left.
    """

    workspace: Workspace
    table: str
    person: str | None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.workspace.session.ledger, name)

    def balances(self, people: Sequence[Any], account: str = DEFAULT_ACCOUNT) -> Units:
        """Returns what each has left; raises if somebody has no such account."""
        what = (self.table, self.person, account, _find_last_number(self.workspace))
        found: Units | None = self.workspace.get_cached(
            what, lambda: self._look_up(people, account)
        )
        if found is None:
            raise UnknownPeople(
                "Somebody has no account of this kind.",
                "",
                "Write the table's grants to the ledger.",
                parameter="person",
            )
        return found

    def _look_up(self, people: Sequence[Any], account: str) -> Units | None:
        books = self.workspace.session.ledger
        try:
            books.balances(
                people[:1], account
            )  # where nobody has an account yet, one person tells so at once
            if not books.fewer_than(SCAN_FACTOR * len(people)):
                return books.balances(people, account)
        except UnknownPeople:
            return None  # remembered, too: to find out takes as long
        digests = self.workspace.get_cached(
            ("digests", self.table, self.person), lambda: books.digests(people)
        )
        return hash_chain.look_up_amounts(digests, *read_all_balances(self.workspace, account))


def read_all_balances(workspace: Workspace, account: str = DEFAULT_ACCOUNT) -> AllBalances:
    """Returns what everybody in the books has left of an account, read once between two entries."""
    what = ("everybody", account, _find_last_number(workspace))
    found: AllBalances = workspace.get_cached(
        what, lambda: workspace.session.ledger.everybody(account)
    )
    return found


def prefetch_balances(workspace: Workspace) -> None:
    """Reads everybody's account, unless they are too many, before it is known whose will be asked
    for.
    """
    if workspace.session.ledger.fewer_than(PREFETCH_LIMIT):
        read_all_balances(workspace)


def _find_last_number(workspace: Workspace) -> int:
    """The number of the last entry."""
    *_, last = workspace.session.ledger.entries()
    return last.number


#: Tables in the workspace at once: each may be as large as an upload may be.
MAX_TABLES = 20
#: Counts of who takes part, and of what they have left, that are remembered: a slider need not
#: count a million people at every move. A million names take some hundred megabytes.
MAX_CACHED = 12


@dataclass(frozen=True)
class UploadedTable:
    """A table in the workspace: what its owner calls it, where it lies, and its columns with their
    kinds.
    """

    name: str
    path: Path
    columns: dict[str, str]


@dataclass
class Workspace:
    """What the curator works on; one for the whole server."""

    place: str | None = None
    keys: Path | None = None
    session: Session = field(default_factory=Session)
    scratch: Scratch = field(default_factory=Scratch.made)
    tables: dict[str, UploadedTable] = field(default_factory=dict)
    schemas: dict[str, Schema] = field(default_factory=dict)
    releases: dict[str, bytes] = field(default_factory=dict)
    # what each of them was made from, so that an audit need not ask for it again
    sources: dict[str, DataSource] = field(default_factory=dict)
    jobs: Jobs = field(default_factory=Jobs)
    counts: dict[Any, Future[Any]] = field(default_factory=dict)
    counting: threading.Lock = field(default_factory=threading.Lock)
    codes: AccessCodes = field(init=False)

    def __post_init__(self) -> None:
        self.codes = AccessCodes.for_ledger(self.session.ledger, self.place, self.keys)

    @classmethod
    def for_ledger(cls, place: str | None, keys: Path | None = None) -> Workspace:
        """Returns an empty workspace with these books on it; without a place, books that end with
        the process.
        """
        return cls(place, keys, Session(ledger=place, keys=keys))

    @property
    def folder(self) -> Path:
        """Where tables lie."""
        return self.scratch.path

    def get_table(self, name: str) -> UploadedTable:
        """Returns a table by its random name; refuses one that is not in the workspace."""
        if name not in self.tables:
            raise InvalidParameter(
                "There is no such table.",
                "",
                "Upload it, or choose one that is there.",
                parameter="table",
            )
        return self.tables[name]

    def get_job(self, name: str) -> Job:
        """Returns work under way or done."""
        job = self.jobs.find(name)
        if job is None:
            raise InvalidParameter(
                "There is no such work.", "", "It may be long ago: look into the ledger."
            )
        return job

    def add_table(self, name: str, table: UploadedTable) -> None:
        """Adds a table to the workspace; refuses it if the workspace is full."""
        if len(self.tables) >= MAX_TABLES:
            self.scratch.delete(table.path)
            raise InvalidParameter(
                "The workspace is full.",
                f"It holds {MAX_TABLES} tables.",
                "Take one away first.",
                parameter="table",
            )
        self.tables[name] = table

    def remove_table(self, name: str) -> None:
        """Deletes a table and what was declared about it."""
        path = self.get_table(name).path
        self.scratch.delete(path)
        del self.tables[name]
        self.schemas.pop(name, None)
        gone = str(path)
        self.sources = {key: one for key, one in self.sources.items() if one.table != gone}
        with self.counting:
            self.counts.clear()

    def get_cached(self, what: Any, count: Callable[[], Any]) -> Any:
        """Returns what was counted before, or counts it now, or waits for whoever does; the oldest
        is forgotten.
        """
        with self.counting:
            known = self.counts.get(what)
            if known is None:
                mine = self.counts[what] = Future[Any]()
                while len(self.counts) > MAX_CACHED:
                    del self.counts[next(iter(self.counts))]
        if known is not None:
            wait([known])
            # Whoever counted may have failed for reasons of their own.
            if known.exception() is None:
                return known.result()
            return self.get_cached(what, count)
        try:
            mine.set_result(count())
        except BaseException as error:
            with self.counting:
                if self.counts.get(what) is mine:
                    del self.counts[what]
            mine.set_exception(error)
            raise
        return mine.result()

    def clear(self) -> None:
        """Ends the work, and deletes the folder with every table in it."""
        self.jobs.close()
        self.scratch.remove()
