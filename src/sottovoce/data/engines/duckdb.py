# SPDX-License-Identifier: Apache-2.0
"""DuckDB: relations of a connection that somebody holds, tables of a database file, and files by
SQL views.

Rows stream out of DuckDB as Arrow batches of the columns that a kernel names, and kernels run on a
few threads of this process. Files and databases are read through a connection of our own, which
reads only, keeps within a limit of memory and spills into a private folder; a connection that
somebody else holds keeps all its settings. Our own connection loads no extension and opens no file
but those that were named: a database that somebody else made may hold views, and a view may name
any file or address. Text files reach DuckDB through Arrow's reader, so that rows, gaps and numbers
are the same as with any other engine.
"""

from __future__ import annotations

import glob
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sottovoce.data import engine
from sottovoce.data.engine import DEFAULT_TEXT_FORMAT, Engine, Kernel, Part, TextFormat, Watch
from sottovoce.data.engines import arrow, duckdb_groups
from sottovoce.data.kernels import GROUP_ROWS
from sottovoce.errors import InvalidData, WrongType
from sottovoce.private_files import Scratch

#: Between a database and one of its tables: ``hospital.duckdb#claims``.
TABLE_MARK = "#"
#: What a connection of ours may hold before it spills to disk: enough to decode a row group on
#: every thread.
MEMORY_LIMIT = "400MB"
#: A constant column for kernels that only count: DuckDB knows no rows without columns.
ROW_EXPRESSION = 'true AS "row"'
#: Relations of one connection take turns, and a relation does not tell which connection it is of.
SCAN_LOCK = threading.Lock()


@dataclass(frozen=True, eq=False)
class DuckDBEngine:
    """Rows of a relation, read by one scan at a time."""

    relation: Any
    watch: Watch | None = None
    turns: threading.Lock = SCAN_LOCK
    declared: Mapping[str, str] | None = None  # kinds of columns, where they are known already

    @cached_property
    def _kinds(self) -> dict[str, str]:
        with self.turns:
            return arrow.list_kinds(
                _run_query(lambda: self.relation.limit(0).to_arrow_table()).schema
            )

    def columns(self) -> Mapping[str, str]:
        """Names of the columns and their kinds: number, text, date, nested or other."""
        if self.declared is None:
            return self._kinds
        return self.declared

    def fold(self, kernel: Kernel[Part]) -> Part:
        """Returns the sum of kernel(batch) over batches that together hold every row exactly
        once.
        """
        query = self._write_group_query(kernel)
        with self.turns:
            if query is not None:
                return self._fold_groups(query, kernel)
            return engine.fold_batches(self._batches(kernel.columns), kernel, self.watch)

    def _write_group_query(self, kernel: Any) -> duckdb_groups.GroupQuery | None:
        """Returns how DuckDB groups the rows first, where the kernel allows it."""
        make_grouping = getattr(kernel, "make_grouping", None)
        grouping = None if make_grouping is None else make_grouping()
        if grouping is None:
            return None
        with self.turns:
            types = dict(zip(self.relation.columns, map(str, self.relation.types), strict=True))
        return duckdb_groups.write_group_query(grouping, types)

    def _fold_groups(self, query: duckdb_groups.GroupQuery, kernel: Kernel[Part]) -> Part:
        grouped: Any = kernel
        total: Any = kernel.zero()
        done = 0
        for batch in self._read(
            lambda: self.relation.aggregate(query.expressions, query.keys).to_arrow_reader(
                engine.MAX_BATCH_ROWS
            )
        ):
            done += pc.sum(batch.column(GROUP_ROWS)).as_py() or 0
            try:
                total = total + grouped.of_groups(engine.convert_batch(batch))
                continue
            except pa.ArrowException:
                pass  # raised below: Arrow's message may quote a cell
            raise engine.unreadable_error()
        if self.watch is not None:
            self.watch(done)
        return cast(Part, total)

    def _batches(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        wanted = ", ".join(map(duckdb_groups.quote_name, columns)) or ROW_EXPRESSION
        size = engine.choose_batch_rows(columns)
        yield from self._read(lambda: self.relation.project(wanted).to_arrow_reader(size))

    def _read(self, ask: Callable[[], Any]) -> Iterator[pa.RecordBatch]:
        reader = _run_query(ask)
        try:
            while True:
                batch = _run_query(lambda: next(reader, None))
                if batch is None:
                    return
                yield batch
        finally:
            reader.close()  # also when somebody interrupts: DuckDB then stops reading


def of_table(table: Any, watch: Watch | None = None) -> Engine:
    """An engine over a relation, as ``con.sql(...)`` or ``con.table(...)`` give it."""
    if isinstance(table, duckdb.DuckDBPyRelation):
        return DuckDBEngine(table, watch)
    raise WrongType(
        "This is an object of DuckDB's, but not a table.",
        "",
        "Pass a relation: con.sql('FROM claims'), for example.",
        parameter="table",
    )


def open_table(
    path: str,
    numbers: tuple[str, ...] = (),
    watch: Watch | None = None,
    text: TextFormat = DEFAULT_TEXT_FORMAT,
) -> Engine:
    """An engine over CSV or Parquet files, or over a table of a database:
    ``hospital.duckdb#claims``.
    """
    database, mark, name = path.rpartition(TABLE_MARK)
    if mark and Path(database).is_file():
        return _open_own_connection(
            lambda connection: _attach_table(connection, database, name),
            [database, database + ".wal"],
            watch,
        )
    rows = arrow.open_dataset(path, numbers, text)
    kinds = arrow.list_kinds(rows.schema)
    if arrow.is_text(path):
        return _open_own_connection(
            lambda connection: connection.from_arrow(rows), [], watch, kinds
        )
    return _open_own_connection(
        lambda connection: connection.sql(_write_parquet_query(path)),
        arrow.list_files(path),
        watch,
        kinds,
    )


def _open_own_connection(
    relation: Callable[[Any], Any],
    paths: list[str],
    watch: Watch | None,
    kinds: Mapping[str, str] | None = None,
) -> Engine:
    """An engine over a connection of our own that opens these files alone, with a folder that
    nobody else can read.
    """
    scratch = Scratch.made()
    settings: dict[str, Any] = {
        "memory_limit": MEMORY_LIMIT,
        "temp_directory": str(scratch.path),
        "threads": engine.count_threads(),
        "preserve_insertion_order": False,  # sums do not care, and order costs memory
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "allow_persistent_secrets": False,
    }
    try:
        rows = _run_query(
            lambda: relation(_restrict_to_files(duckdb.connect(config=settings), paths)),
            _no_table_error,
        )
    except BaseException:
        scratch.remove()
        raise
    found = DuckDBEngine(rows, watch, threading.Lock(), kinds)
    weakref.finalize(found, scratch.remove)
    return found


def _restrict_to_files(connection: Any, paths: list[str]) -> Any:
    """Lets a connection open these files and no others, for good."""
    # A file is looked for under its escaped name and then opened under its own.
    names = {*paths, *map(glob.escape, paths)}
    connection.execute("SET allowed_paths = $1", [sorted(names)])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _attach_table(connection: Any, database: str, table: str) -> Any:
    # Attached rather than opened: a file can be opened once in a process, with one set of settings.
    connection.execute(f"ATTACH {_quote_text(database)} AS opened (READ_ONLY)")
    names = ("opened", *table.split("."))
    return connection.sql("FROM " + ".".join(map(duckdb_groups.quote_name, names)))


def _write_parquet_query(path: str) -> str:
    """Returns the query over Parquet files."""
    listed = (
        "[" + ", ".join(_quote_text(glob.escape(name)) for name in arrow.list_files(path)) + "]"
    )
    return f"FROM read_parquet({listed}, union_by_name = true, hive_partitioning = false)"


def _run_query(
    ask: Callable[[], Any], refusal: Callable[[], InvalidData] = engine.unreadable_error
) -> Any:
    """Returns what DuckDB answers; what it says about a failure may quote rows, so it is not passed
    on.
    """
    try:
        return ask()
    except (duckdb.Error, pa.ArrowException, OSError, UnicodeError):
        pass  # raised below
    raise refusal()


def _no_table_error() -> InvalidData:
    return InvalidData(
        "DuckDB cannot open this table.",
        "A table of a database is named like hospital.duckdb#claims, and nobody may be writing "
        "to the database.",
        "Check both names, and close connections that write.",
        parameter="table",
    )


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
