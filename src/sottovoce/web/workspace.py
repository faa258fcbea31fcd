# SPDX-License-Identifier: Apache-2.0
"""Tables from outside: CSV and Parquet, looked at piece by piece, and added to the workspace only
if they can do no harm.

Nothing here holds a whole file in memory. A CSV file is text with a header, and its lines are
short. A Parquet file may unfold to any size, so it is first read to its end by a process of its
own, column by column as the engine would read it, under a limit of memory and of time. The name
that came with a file is shown and used for nothing else.

    python -m sottovoce.web.workspace FILE     what that process is

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

The workspace of the one curator who works at the page: books, tables, schemas, releases, and work
under way.

Tables lie in a private folder that is deleted at the end, under names drawn at random; on Linux
they end with the process, however that ends (sottovoce.private_files). No path ever comes from the
page or goes to it. What is remembered of a table besides its file is public: columns, kinds, who
grants how much.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from sottovoce.errors import InvalidData, InvalidParameter, SottovoceError, UnknownPeople
from sottovoce.ledger import DEFAULT_ACCOUNT, AllBalances
from sottovoce.ledgers import hash_chain
from sottovoce.ledgers.sql_ledger import SCAN_FACTOR
from sottovoce.private_files import Scratch
from sottovoce.schema import Schema
from sottovoce.session import Session
from sottovoce.units import Units
from sottovoce.web.access_codes import AccessCodes

#: Bytes that are read at once.
PIECE = 2**18
#: Bytes of the longest line of a CSV file, and of its header.
LONGEST_LINE = 2**20
#: Columns of a table, and letters of a column's name.
MOST_COLUMNS = 1000
LONGEST_NAME = 200
#: Rows of a Parquet file, which a few bytes can claim.
MOST_ROWS = 10**9
#: Bytes of memory and seconds of work that a Parquet file may cost the process that tries it.
MEMORY = 384 * 2**20
SECONDS = 60
#: How a Parquet file begins and ends; before the end stands the length of its description, in four
#: bytes.
PARQUET = b"PAR1"
MOST_DESCRIPTION = 16 * 2**20
#: How names in the environment begin that say where the books are and how they are opened.
OURS = ("SOTTOVOCE_", "PG")
#: Letters of a file's name that are shown.
MAX_NAME_SHOWN = 80


def save_table(workspace: Workspace, name: str, source: BinaryIO) -> str:
    """Copies a table to the workspace's folder, looks at it, and returns the random name under
    which it lies there.
    """
    held = secrets.token_urlsafe(16)  # a name, not noise: no answer depends on it
    if _read_start(source) == PARQUET:
        ending = ".parquet"
    else:
        ending = ".csv"
    path = workspace.folder / f"{held}{ending}"
    try:
        with workspace.scratch.open_new(path.name) as file:
            if ending == ".parquet":
                copied = _copy_parquet
            else:
                copied = _copy_csv
            copied(source, file)
        if ending == ".parquet":
            columns = _columns_of_parquet(workspace, path)
        else:
            columns = _read_kinds(path)
        workspace.add_table(held, UploadedTable(clean_name(name), path, columns))
    finally:
        if held not in workspace.tables:
            workspace.scratch.delete(path)
    return held


def clean_name(name: str) -> str:
    """Returns a file's own name to be shown: no folder, no control characters, not too long."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(sign for sign in last if sign.isprintable())[-MAX_NAME_SHOWN:].strip() or "table"


def _read_start(source: BinaryIO) -> bytes:
    source.seek(0)
    first = source.read(len(PARQUET))
    source.seek(0)
    return first


def _iterate_pieces(source: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: source.read(PIECE), b"")


def _copy_csv(source: BinaryIO, file: BinaryIO) -> None:
    """Copies text with short lines."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    since = 0
    for piece in _iterate_pieces(source):
        since = _measure_lines(piece, since)
        if b"\0" in piece or since > LONGEST_LINE or not _can_decode(decoder, piece):
            raise _unusable_table_error()
        file.write(piece)
    if not _can_decode(decoder, b"", final=True):
        raise _unusable_table_error()


def _measure_lines(piece: bytes, since: int) -> int:
    """Returns the bytes since the last end of a line, or of the longest line if one in this piece
    is too long.
    """
    lines = piece.replace(b"\r", b"\n").split(b"\n")
    lengths = [since + len(lines[0]), *map(len, lines[1:])]
    if max(lengths) > LONGEST_LINE:
        return max(lengths)
    return lengths[-1]


def _can_decode(decoder: Any, piece: bytes, *, final: bool = False) -> bool:
    try:
        decoder.decode(piece, final)
    except UnicodeDecodeError:
        return False
    return True


def _read_kinds(path: Path) -> dict[str, str]:
    from sottovoce.data.engine import get_default_engine
    from sottovoce.data.files import read_header

    _refuse_names(read_header(str(path))[0])
    return dict(get_default_engine().infer_kinds(str(path)))


def _refuse_names(names: list[str]) -> None:
    usable = all(0 < len(name) <= LONGEST_NAME and name.isprintable() for name in names)
    if not 0 < len(names) <= MOST_COLUMNS or not usable:
        raise InvalidData(
            "The table has no header that can be used.",
            f"It names 1 to {MOST_COLUMNS} columns, each with 1 to {LONGEST_NAME} letters, "
            "digits or signs.",
            "Give every column one name, and leave out columns that no question needs.",
            parameter="table",
        )


def _copy_parquet(source: BinaryIO, file: BinaryIO) -> None:
    for piece in _iterate_pieces(source):
        file.write(piece)


def _columns_of_parquet(workspace: Workspace, path: Path) -> dict[str, str]:
    if _ends_as_parquet(path):
        columns = _read_in_process(path, workspace.scratch.handle(path))
    else:
        columns = None
    if columns is None:
        raise _unusable_table_error()
    _refuse_names(list(columns))
    return columns


def _ends_as_parquet(path: Path) -> bool:
    """Whether the file ends as Parquet does, which most others do not: no process is needed to
    refuse these.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        file.seek(max(size - 8, 0))
        length = file.read(4)
        mark = file.read(4)
    return mark == PARQUET and 0 < int.from_bytes(length, "little") <= min(
        MOST_DESCRIPTION, size - 12
    )


def _read_in_process(path: Path, handle: int | None) -> dict[str, str] | None:
    """Lets a process of its own read the file to its end, and returns the columns, if it came back.

    A file without a name is handed over open, under the same number, so that the same link leads to
    it there.
    """
    command = [sys.executable, "-I", "-m", "sottovoce.web.workspace", str(path)]
    # What is in the environment may be the password of the books, which this process does not need.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    environment |= {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
    if handle is None:
        handed: tuple[int, ...] = ()
    else:
        handed = (handle,)
    try:
        child = subprocess.run(
            command,
            capture_output=True,
            timeout=SECONDS,
            env=environment,
            pass_fds=handed,
            check=False,
        )
        if child.returncode == 0:
            answer = json.loads(child.stdout)
        else:
            answer = None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if isinstance(answer, dict):
        return answer
    return None


def _unusable_table_error() -> InvalidData:
    return InvalidData(
        "This is neither a CSV nor a Parquet file that can be used.",
        f"CSV is UTF-8 text with a header and lines of at most {LONGEST_LINE:,} bytes; Parquet is "
        "whole, not encrypted, and no larger unfolded than it can be read in pieces.",
        "Save the table again as one of the two.",
        parameter="table",
    )


@dataclass(frozen=True)
class _ColumnReader:
    """The kernel that reads one column, unfolds it where values are listed once, and keeps nothing
    of it.
    """

    columns: tuple[str, ...]

    def zero(self) -> int:
        return 0

    def __call__(self, batch: Any) -> int:
        column = batch.column(0)
        return len(column.dictionary_decode() if hasattr(column, "dictionary_decode") else column)


def _read_to_its_end(path: str) -> dict[str, str]:
    import pyarrow.parquet as pq

    from sottovoce.data.engine import get_default_engine

    with pq.ParquetFile(path) as file:
        claimed = file.metadata
        if claimed.num_rows > MOST_ROWS or claimed.num_columns > MOST_COLUMNS:
            return {}
    engines = get_default_engine()
    engine = engines.open_table(path)
    for column in engine.columns():
        engine.fold(_ColumnReader((column,)))
    return dict(engines.infer_kinds(path))


def _limit_this_process() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold rows


if __name__ == "__main__":
    _limit_this_process()
    sys.stdout.write(json.dumps(_read_to_its_end(sys.argv[1])))


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
        self.state, self.sentence = ended


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
        self.scratch.delete(self.get_table(name).path)
        del self.tables[name]
        self.schemas.pop(name, None)
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
