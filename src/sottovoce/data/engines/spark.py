# SPDX-License-Identifier: Apache-2.0
"""Spark: data frames by ``mapInArrow``, and files that Python workers open by themselves.

Each partition is folded by the Python worker that holds it and becomes one row: the sum of its
rows, or a sentence why they were refused. Many such rows are added on the workers before they
travel. A task whose worker died is run again by Spark; shares are pure, so nothing else changes.
Files are shared out in pieces that workers read with Arrow, so that numbers and gaps are those of
every other engine. The active session is used if there is one, else one of our own on this machine
that ends with this process.

Our own session asks everybody who connects for a secret that Spark makes up (PySpark's own sockets
have theirs), has no page, and keeps what it spills encrypted in a folder that nobody else can read.
"""

from __future__ import annotations

import atexit
import os
import pickle
import shutil
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as kinds_of
from pyspark.sql.functions import lit

from sottovoce.data import engine
from sottovoce.data.engine import (
    DEFAULT_TEXT_FORMAT,
    Engine,
    Kernel,
    Part,
    PartialResult,
    TextFormat,
    Watch,
)
from sottovoce.data.engines import arrow
from sottovoce.errors import InvalidParameter, SottovoceError, WrongType
from sottovoce.private_files import Scratch

#: More partitions than this are added on the workers first, in groups of so many.
BRANCH = 64
#: A share that fails for want of a worker is tried so many times, by Spark and then by us.
TASK_TRIES = 4
RETRIES = 1
#: Seconds between two looks at how many rows are done.
POLL_SECONDS = 0.25
#: Column of pickled sums.
PART_COLUMN = "part"

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, eq=False)
class SparkEngine:
    """Rows in the partitions of a data frame, or in pieces of files that partitions name."""

    kinds: Mapping[str, str]
    frame: Callable[
        [tuple[str, ...]], Any
    ]  # from columns to the data frame whose partitions are shares
    rows: Callable[[Batches, tuple[str, ...]], Batches]  # on a worker: from what arrives to rows
    watch: Watch | None = None

    def columns(self) -> Mapping[str, str]:
        """Names of the columns and their kinds: number, text, date, nested or other."""
        return self.kinds

    def fold(self, kernel: Kernel[Part]) -> Part:
        """Returns the sum of kernel(batch) over batches that together hold every row exactly
        once.
        """
        refusal: Callable[[], SottovoceError] = engine.workers_lost_error
        for _ in range(1 + RETRIES):
            try:
                return self._fold_once(kernel).whole()
            except (Py4JError, PySparkException, ConnectionError) as error:
                if _is_about_files(error):
                    refusal = engine.unreadable_error
                else:
                    refusal = engine.workers_lost_error
        raise refusal()

    def _fold_once(self, kernel: Kernel[Part]) -> PartialResult[Part]:
        frame = self.frame(kernel.columns)
        total: PartialResult[Part] = PartialResult(0, kernel.zero())
        with (
            _report_progress(frame, self.watch) as done,
            _cancel_on_interrupt(frame.sparkSession),
            _silence_pandas_warning(),
        ):
            shares = frame.mapInArrow(
                _PartitionFold(kernel, self.rows, done), f"{PART_COLUMN} binary"
            )
            for row in _add_on_workers(shares, kernel).collect():
                total = total + pickle.loads(row[PART_COLUMN])
        if self.watch is not None:
            self.watch(total.rows)
        return total


@dataclass(frozen=True, eq=False)
class _PartitionFold:
    """What a Python worker does with its partition."""

    kernel: Any
    rows: Callable[[Batches, tuple[str, ...]], Batches]
    done: Any  # an accumulator of rows, or None

    def __call__(self, arrived: Batches) -> Iterator[pa.RecordBatch]:
        share: PartialResult[Any] = engine.fold_partition(
            self.kernel, self.rows(arrived, self.kernel.columns)
        )
        if self.done is not None:
            self.done.add(share.rows)
        yield _to_record_batch(share)


@dataclass(frozen=True, eq=False)
class _PartialSum:
    """Adds the shares of several partitions on a worker."""

    kernel: Any

    def __call__(self, arrived: Batches) -> Iterator[pa.RecordBatch]:
        total: PartialResult[Any] = PartialResult(0, self.kernel.zero())
        for batch in arrived:
            for part in batch.column(0).to_pylist():
                total = total + pickle.loads(part)
        yield _to_record_batch(total)


def _to_record_batch(share: PartialResult[Any]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([pickle.dumps(share)], pa.binary())], names=[PART_COLUMN])


def of_table(table: Any, watch: Watch | None = None) -> Engine:
    """An engine over a Spark data frame."""
    if not isinstance(table, DataFrame):
        raise WrongType(
            "This is an object of Spark's, but not a table.",
            "",
            "Pass a Spark data frame.",
            parameter="table",
        )
    kinds = {field.name: _classify_type(field.dataType) for field in table.schema.fields}

    def frame(columns: tuple[str, ...]) -> Any:
        # A frame without columns would arrive without rows.
        if columns:
            return table.select(*map(_quote_name, columns))
        return table.select(lit(True).alias("row"))

    return SparkEngine(kinds, frame, _pass_batches, watch)


def open_table(
    path: str,
    numbers: tuple[str, ...] = (),
    watch: Watch | None = None,
    text: TextFormat = DEFAULT_TEXT_FORMAT,
) -> Engine:
    """An engine over CSV or Parquet files that every worker can open; a worker reads some row
    groups at a time.
    """
    rows = arrow.open_dataset(path, numbers, text)
    pieces = _Pieces(arrow.split_dataset(rows))
    count = len(pieces.pieces)

    def places(columns: tuple[str, ...]) -> Any:
        return _get_session().range(0, count, 1, count)

    return SparkEngine(arrow.list_kinds(rows.schema), places, pieces, watch)


def _pass_batches(arrived: Batches, columns: tuple[str, ...]) -> Batches:
    return arrived


@dataclass(frozen=True, eq=False)
class _Pieces:
    pieces: list[arrow.Piece]

    def __call__(self, arrived: Batches, columns: tuple[str, ...]) -> Batches:
        for batch in arrived:
            for place in batch.column(0).to_pylist():
                yield from self.pieces[place].batches(columns)


def _classify_type(kind: Any) -> str:
    if isinstance(kind, kinds_of.NumericType | kinds_of.BooleanType | kinds_of.NullType):
        return "number"
    if isinstance(kind, kinds_of.StringType | kinds_of.CharType | kinds_of.VarcharType):
        return "text"
    if isinstance(kind, kinds_of.DateType | kinds_of.TimestampType | kinds_of.TimestampNTZType):
        return "date"
    if isinstance(kind, kinds_of.ArrayType | kinds_of.MapType | kinds_of.StructType):
        return "nested"
    return "other"


def _quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _add_on_workers(shares: Any, kernel: Any) -> Any:
    """Adds shares on the workers where there are many; how many, Spark Connect does not tell."""
    if _is_classic(shares):
        partitions = shares.rdd.getNumPartitions()
    else:
        partitions = 1
    if partitions <= BRANCH:
        return shares
    return shares.repartition(-(-partitions // BRANCH)).mapInArrow(
        _PartialSum(kernel), f"{PART_COLUMN} binary"
    )


def _is_classic(frame: Any) -> bool:
    return "connect" not in type(frame).__module__


def _is_about_files(error: Exception) -> bool:
    """Whether Spark could not read a table, rather than run; its text is searched, and never passed
    on.
    """
    if isinstance(error, AnalysisException):
        return True
    return not isinstance(error, Py4JNetworkError | ConnectionError) and "FAILED_READ_FILE" in str(
        error
    )


@contextmanager
def _cancel_on_interrupt(session: Any) -> Iterator[None]:
    """Cancels what was begun here, and nothing else, if somebody interrupts."""
    tag = f"sottovoce-{uuid.uuid4()}"
    session.addTag(tag)
    try:
        yield
    except KeyboardInterrupt:
        session.interruptTag(tag)
        raise
    finally:
        session.removeTag(tag)


def _report_progress(frame: Any, watch: Watch | None) -> AbstractContextManager[Any]:
    if watch is None or not _is_classic(frame):
        return nullcontext()
    return _count_rows(frame, watch)


@contextmanager
def _count_rows(frame: Any, watch: Watch) -> Iterator[Any]:
    """Gives an accumulator of rows and tells its value while Spark works; rows folded twice are not
    told twice.
    """
    done = frame.sparkSession.sparkContext.accumulator(0)
    over = threading.Event()

    def look() -> None:
        told = 0
        while not over.wait(POLL_SECONDS):
            if done.value > told:
                told = done.value
                watch(told)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield done
    finally:
        over.set()
        looking.join()


@contextmanager
def _silence_pandas_warning() -> Iterator[None]:
    # Spark 4 warns of pandas 3 wherever Arrow is used; nothing here goes through pandas.
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "PySpark does not yet fully support pandas", FutureWarning
        )
        yield


def _get_session() -> Any:
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise _no_java_error()
    try:
        return _start_session()
    except (PySparkException, Py4JError, OSError):
        pass  # raised below
    raise _no_java_error()


def _start_session() -> Any:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    scratch = Scratch.made()
    atexit.register(scratch.remove)  # runs after the session has stopped
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",  # nobody else's business
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",  # a log would quote what went wrong
        # in local mode Spark draws the secret itself: none is in our command line
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
        "spark.local.dir": str(
            scratch.path
        ),  # Spark's usual folders for spilled rows can be read by everybody
    }
    builder = SparkSession.builder.master(f"local[*, {TASK_TRIES}]").appName("sottovoce")
    with _silence_pandas_warning():
        session = builder.config(map=settings).getOrCreate()
    atexit.register(session.stop)
    return session


def _no_java_error() -> InvalidParameter:
    return InvalidParameter(
        "Spark cannot start on this machine.",
        "It needs Java 17 or newer.",
        "Install Java and set JAVA_HOME, or choose another engine: arrow and duckdb need neither.",
        parameter="engine",
    )
