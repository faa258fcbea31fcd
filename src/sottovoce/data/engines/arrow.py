# SPDX-License-Identifier: Apache-2.0
"""The default engine: arrays in memory, and CSV or Parquet files larger than it, by way of Arrow.

Files are scanned batch by batch with bounded read-ahead (files.py), only the columns that a kernel
names are converted, and kernels run on a few threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from sottovoce.arrays import Array
from sottovoce.data import engine, files
from sottovoce.data.engine import DEFAULT_TEXT_FORMAT, Engine, Kernel, Part, TextFormat, Watch
from sottovoce.data.files import infer_kinds
from sottovoce.errors import InvalidData, WrongType

__all__ = ["ArrowEngine", "infer_kinds", "of_columns", "of_table", "open_table"]

#: Rows in memory are shared out among threads in parts of at least so many.
MIN_BATCH_ROWS = 2**14


class ArrowEngine:
    """Rows of an Arrow table or dataset."""

    def __init__(self, rows: pa.Table | ds.Dataset, watch: Watch | None = None) -> None:
        self._rows = rows
        self._watch = watch

    def columns(self) -> Mapping[str, str]:
        """Names of the columns and their kinds: number, text or other."""
        return files.list_kinds(self._rows.schema)

    def fold(self, kernel: Kernel[Part]) -> Part:
        """Returns the sum of kernel(batch) over batches that together hold every row exactly
        once.
        """
        return engine.fold_batches(self._batches(kernel.columns), kernel, self._watch)

    def _batches(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        if not isinstance(self._rows, pa.Table):
            yield from files.read_batches(self._rows, columns)
            return
        share = -(-len(self._rows) // engine.count_threads())
        size = min(engine.choose_batch_rows(columns), max(share, MIN_BATCH_ROWS))
        yield from self._rows.select(list(columns)).to_batches(max_chunksize=size)


def of_columns(columns: Mapping[str, Array]) -> Engine:
    """An engine over arrays in memory; they are not copied."""
    return ArrowEngine(pa.table({name: _to_arrow(array) for name, array in columns.items()}))


def of_table(table: Any, watch: Watch | None = None) -> Engine:
    """An engine over an Arrow table or dataset, or a data frame of pandas or polars."""
    if isinstance(table, pa.RecordBatchReader):
        raise WrongType(
            "The table can be read once only.",
            "Questions read it several times.",
            "Pass a dataset or a table.",
            parameter="table",
        )
    if isinstance(table, pa.Table | ds.Dataset):
        _refuse_dropped_rows(table)
        return ArrowEngine(table, watch)
    try:
        if hasattr(table, "to_arrow"):  # polars
            return ArrowEngine(table.to_arrow(), watch)
        return ArrowEngine(pa.Table.from_pandas(table, preserve_index=False), watch)
    except Exception:
        pass  # raised below: the message of somebody else's table may quote a cell
    raise WrongType(
        "This is not a table with named columns, or a column holds several kinds of things.",
        "",
        "Pass a data frame, an Arrow table or dataset, a DuckDB relation, a Spark or Dask data "
        "frame, or a path.",
        parameter="table",
    )


def _refuse_dropped_rows(table: Any) -> None:
    """Refuses text files of one column that Arrow was told to read without their blank lines, as it
    does by itself.
    """
    for part in getattr(table, "children", [table]):  # a union of datasets has several
        form = getattr(part, "format", None)
        if (
            isinstance(form, ds.CsvFileFormat)
            and len(part.schema) == 1
            and form.parse_options.ignore_empty_lines
        ):
            raise InvalidData(
                "This dataset of text files with one column leaves blank lines out.",
                "A blank line is a row with a missing value there: how many rows there are must "
                "not tell who has one.",
                "Pass the path of the files, or open them with ignore_empty_lines=False in "
                "Arrow's ParseOptions.",
                parameter="table",
            )


def _to_arrow(array: Array) -> Any:
    if (
        array.ndim == 2
    ):  # a matrix is one column of lists, without a copy where its rows lie one after another
        return pa.FixedSizeListArray.from_arrays(
            pa.array(np.ascontiguousarray(array).ravel()), array.shape[1]
        )
    return pa.array(array)


def open_table(
    path: str,
    numbers: tuple[str, ...] = (),
    watch: Watch | None = None,
    text: TextFormat = DEFAULT_TEXT_FORMAT,
) -> Engine:
    """An engine over a CSV or Parquet file, a folder of them, or a pattern like
    ``claims/*.parquet``.
    """
    return ArrowEngine(files.open_dataset(path, numbers, text), watch)
