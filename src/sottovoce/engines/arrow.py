# SPDX-License-Identifier: Apache-2.0
"""The default engine: arrays in memory, and CSV or Parquet files larger than it, by way of Arrow.

Files are scanned batch by batch with bounded read-ahead, only the columns that a kernel names are
converted, and kernels run on a few threads. What Arrow says about a cell that does not convert would
quote the cell, so it is replaced by a sentence that does not.
"""

from __future__ import annotations

import csv
import glob
import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import csv as pacsv
from threadpoolctl import ThreadpoolController

from sottovoce.engine import Engine, Kernel, Part, Watch
from sottovoce.errors import InvalidData, WrongType
from sottovoce.table import Array

BATCH = 2**18
#: Rows in memory are shared out among threads in parts of at least so many.
SMALL = 2**14
#: Batches in flight a thread, besides the one being read.
AHEAD = 1


class ArrowEngine:
    """Rows of an Arrow table or dataset."""

    def __init__(self, rows: pa.Table | ds.Dataset, watch: Watch | None = None) -> None:
        self._rows = rows
        self._watch = watch

    def columns(self) -> Mapping[str, str]:
        """Names of the columns and their kinds: number, text or other."""
        return {field.name: _kind(field.type) for field in self._rows.schema}

    def fold(self, kernel: Kernel[Part]) -> Part:
        """Returns the sum of kernel(batch) over batches that together hold every row exactly once."""
        total, done = kernel.zero(), 0
        # One BLAS thread for each of ours: two kinds of threads on the same cores wait for each other.
        with (
            _blas().limit(limits=1, user_api="blas"),
            closing(_computed(self._batches(kernel.columns), kernel)) as parts,
        ):
            for rows, part in parts:
                total = total + part  # type: ignore[operator]
                done += rows
                if self._watch is not None:
                    self._watch(done)
        return total

    def _batches(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        if isinstance(self._rows, pa.Table):
            share = -(-len(self._rows) // _threads())
            size = min(BATCH, max(share, SMALL))
            yield from self._rows.select(list(columns)).to_batches(max_chunksize=size)
            return
        batches = self._rows.scanner(columns=list(columns), **_scan(self._rows)).to_batches()
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except (pa.ArrowInvalid, pa.ArrowTypeError, OSError):
                break
            yield from (batch.slice(start, BATCH) for start in range(0, len(batch), BATCH))
        raise WrongType(
            "A file cannot be read as declared, or a cell is of another kind than its column.",
            "Columns named as numbers must hold numbers, and all files the same columns.",
            "Check the files against the schema.",
        )


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def of_columns(columns: Mapping[str, Array]) -> Engine:
    """An engine over arrays in memory; they are not copied."""
    return ArrowEngine(pa.table({name: _arrow(array) for name, array in columns.items()}))


def _arrow(array: Array) -> Any:
    if array.ndim == 2:  # a matrix is one column of lists, without a copy where its rows lie one after another
        return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(array).ravel()), array.shape[1])
    return pa.array(array)


def open_table(path: str, numbers: tuple[str, ...] = (), watch: Watch | None = None) -> Engine:
    """An engine over a CSV or Parquet file, a folder of them, or a pattern like ``claims/*.parquet``."""
    files = _files(path)
    if all(Path(file).suffix.lower() in (".parquet", ".pq") for file in files):
        return ArrowEngine(_opened(files, "parquet"), watch)
    if all(Path(file).suffix.lower() == ".csv" for file in files):
        return ArrowEngine(_opened(files, _csv_format(files[0], numbers)), watch)
    raise InvalidData(
        "The table is neither CSV nor Parquet.", "Files end in .csv or .parquet, all alike.", "Convert it first."
    )


def infer_kinds(path: str) -> list[tuple[str, str]]:
    """Returns names and kinds of columns; for CSV the beginning of the file is read to tell numbers from text."""
    files = _files(path)
    form: Any = "csv" if files[0].lower().endswith(".csv") else "parquet"
    return [
        (name, kind if kind != "other" else "text")
        for name, kind in ArrowEngine(_opened(files, form)).columns().items()
    ]


def _computed(batches: Iterable[Any], kernel: Kernel[Part]) -> Generator[tuple[int, Part]]:
    """Yields (rows, kernel(batch)) for every batch, computed on a few threads with few batches in flight."""
    threads = _threads()
    flying: deque[tuple[int, Future[Part]]] = deque()
    pool = _pool(threads, os.getpid())
    try:
        for batch in batches:
            flying.append((len(batch), pool.submit(kernel, batch)))
            if len(flying) > threads * AHEAD:
                rows, future = flying.popleft()
                yield rows, future.result()
        while flying:
            rows, future = flying.popleft()
            yield rows, future.result()
    finally:
        wait([future for _, future in flying if not future.cancel()])


def _threads() -> int:
    return min(4, os.cpu_count() or 1)


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    # Kept, because new threads begin with no memory of their own and spend a tenth of a short run on getting it.
    # One for each process, because threads do not survive a fork.
    return ThreadPoolExecutor(threads, thread_name_prefix="sottovoce")


def _files(path: str) -> list[str]:
    if Path(path).is_dir():
        files = sorted(str(file) for pattern in ("*.parquet", "*.pq", "*.csv") for file in Path(path).rglob(pattern))
    else:
        files = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))
    if not files:
        raise InvalidData(
            "There is no table at this path.",
            "A CSV or Parquet file, a folder or a pattern is needed.",
            "Check the path.",
        )
    return files


def _opened(files: list[str], form: Any) -> ds.Dataset:
    try:
        return ds.dataset(files, format=form)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError):
        pass  # raised below, outside the handler: Arrow's message may quote a cell
    raise InvalidData(
        "The table cannot be opened.", "It must be a readable CSV or Parquet file with a header.", "Check the file."
    )


def _csv_format(file: str, numbers: tuple[str, ...]) -> ds.CsvFileFormat:
    # Types are declared for every column, so nothing is inferred from values: what is not a number is text.
    try:
        with open(file, newline="", encoding="utf-8-sig") as lines:
            header = next(csv.reader(lines), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        header = []
    if not header or len(set(header)) < len(header):
        raise InvalidData(
            "The CSV file has no header, or names a column twice.", "", "Give every column one name in the first line."
        )
    types = {name: pa.float64() if name in numbers else pa.string() for name in header}
    convert = pacsv.ConvertOptions(column_types=types, strings_can_be_null=True)
    return ds.CsvFileFormat(convert_options=convert)


def _scan(rows: ds.Dataset) -> dict[str, Any]:
    options: dict[str, Any] = {"batch_size": BATCH, "batch_readahead": 4, "fragment_readahead": 1}
    if isinstance(getattr(rows, "format", None), ds.ParquetFileFormat):
        # Left to itself Arrow loads whole files first, and decodes dozens of batches before one is taken.
        options["use_threads"] = False
        options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
    return options


def _kind(kind: Any) -> str:
    if (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    ):
        return "number"
    text = (pa.types.is_string, pa.types.is_large_string)
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "text" if any(test(value) for test in text) else "other"
