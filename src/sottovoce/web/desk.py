# SPDX-License-Identifier: Apache-2.0
"""The desk of the one curator who works at the page: books, tables, schemas, releases, and work under way.

Tables lie in a private folder that is deleted at the end, under names drawn at random; on Linux they end with the
process, however that ends (sottovoce.private). No path ever comes from the page or goes to it. What is remembered of a
table besides its file is public: columns, kinds, who grants how much.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sottovoce.bounds import Schema
from sottovoce.errors import InvalidParameter
from sottovoce.private import Scratch
from sottovoce.session import Session
from sottovoce.web.codes import Codes
from sottovoce.web.jobs import Job, Jobs

#: Tables on the desk at once: each may be as large as an upload may be.
MOST_TABLES = 20
#: Counts of who takes part, and of what they have left, that are remembered: a slider need not count a million people
#: at every move. A million names take some hundred megabytes.
MOST_COUNTS = 12


@dataclass(frozen=True)
class Uploaded:
    """A table on the desk: what its owner calls it, where it lies, and its columns with their kinds."""

    name: str
    path: Path
    columns: dict[str, str]


@dataclass
class Desk:
    """What the curator works on; one for the whole server."""

    place: str | None = None
    keys: Path | None = None
    session: Session = field(default_factory=Session)
    scratch: Scratch = field(default_factory=Scratch.made)
    tables: dict[str, Uploaded] = field(default_factory=dict)
    schemas: dict[str, Schema] = field(default_factory=dict)
    releases: dict[str, bytes] = field(default_factory=dict)
    jobs: Jobs = field(default_factory=Jobs)
    counts: dict[Any, Future[Any]] = field(default_factory=dict)
    counting: threading.Lock = field(default_factory=threading.Lock)
    codes: Codes = field(init=False)

    def __post_init__(self) -> None:
        self.codes = Codes.for_ledger(self.session.ledger, self.place, self.keys)

    @classmethod
    def for_ledger(cls, place: str | None, keys: Path | None = None) -> Desk:
        """Returns an empty desk with these books on it; without a place, books that end with the process."""
        return cls(place, keys, Session(ledger=place, keys=keys))

    @property
    def folder(self) -> Path:
        """Where tables lie."""
        return self.scratch.path

    def get_table(self, name: str) -> Uploaded:
        """Returns a table by its random name; refuses one that is not on the desk."""
        if name not in self.tables:
            raise InvalidParameter("There is no such table on the desk.", "", "Upload it, or choose one that is there.")
        return self.tables[name]

    def get_job(self, name: str) -> Job:
        """Returns work under way or done."""
        job = self.jobs.find(name)
        if job is None:
            raise InvalidParameter("There is no such work.", "", "It may be long ago: look into the ledger.")
        return job

    def add_table(self, name: str, table: Uploaded) -> None:
        """Lays a table on the desk; refuses it if the desk is full."""
        if len(self.tables) >= MOST_TABLES:
            self.scratch.delete(table.path)
            raise InvalidParameter("The desk is full.", f"It holds {MOST_TABLES} tables.", "Take one away first.")
        self.tables[name] = table

    def remove_table(self, name: str) -> None:
        """Deletes a table and what was declared about it."""
        self.scratch.delete(self.get_table(name).path)
        del self.tables[name]
        self.schemas.pop(name, None)
        with self.counting:
            self.counts.clear()

    def get_cached(self, what: Any, count: Callable[[], Any]) -> Any:
        """Returns what was counted before, or counts it now, or waits for whoever does; the oldest is forgotten."""
        with self.counting:
            known = self.counts.get(what)
            if known is None:
                mine = self.counts[what] = Future[Any]()
                while len(self.counts) > MOST_COUNTS:
                    del self.counts[next(iter(self.counts))]
        if known is not None:
            wait([known])
            # Whoever counted may have failed for reasons of their own.
            return known.result() if known.exception() is None else self.get_cached(what, count)
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
