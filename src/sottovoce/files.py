# SPDX-License-Identifier: Apache-2.0
"""Tables in files: CSV and Parquet, one file, a folder or a pattern, read by Arrow with bounded memory.

Every engine opens files through here, so all of them see the same columns, the same numbers and the same
gaps. Files of one table must have the same columns, which their headers tell before a row is read; a table
is then scanned whole, or in pieces that a worker elsewhere can open by itself. What Arrow says about a cell
that does not convert would quote the cell, so it is replaced by a sentence that does not.
"""

from __future__ import annotations

import csv
import glob
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import csv as pacsv
from pyarrow.fs import LocalFileSystem

from sottovoce import engine
from sottovoce.errors import InvalidData

PARQUET, CSV = (".parquet", ".pq"), (".csv",)
#: A piece that a worker opens has about so many rows, and at least one row group.
PIECE = 2**20
#: Cells of a batch, at most: a wide table comes in batches of fewer rows, which fit the cache and cost little memory.
CELLS = 2**20
#: Rows of a batch are a multiple of this, if there are so many: kernels work on so many at a time.
CACHEFUL = 2**13
#: What Arrow's reader of text files takes for a gap, in columns of numbers and of text alike.
GAPS = pacsv.ConvertOptions().null_values


def listed(path: str) -> list[str]:
    """Returns the files of a table, in order, as absolute paths: a worker may live in another folder."""
    if Path(path).is_dir():
        suffixes = (*PARQUET, *CSV)
        files = sorted(str(file) for suffix in suffixes for file in Path(path).rglob(f"*{suffix}"))
    else:
        files = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))
    if not files:
        raise InvalidData(
            "There is no table at this path.",
            "A CSV or Parquet file, a folder or a pattern is needed.",
            "Check the path.",
        )
    return [str(Path(file).absolute()) for file in files]


def dataset(path: str, numbers: tuple[str, ...] = ()) -> ds.Dataset:
    """Returns the table in these files; ``numbers`` names the columns of a CSV file to read as numbers."""
    files = listed(path)
    if _all_end_in(files, PARQUET):
        return _opened(files, ds.ParquetFileFormat())
    if _all_end_in(files, CSV):
        return _opened(files, _text_format(files, numbers))
    raise InvalidData(
        "The table is neither CSV nor Parquet.", "Files end in .csv or .parquet, all alike.", "Convert it first."
    )


def is_text(path: str) -> bool:
    """Whether the files at a path are text files."""
    return _all_end_in(listed(path), CSV)


def infer_kinds(path: str) -> list[tuple[str, str]]:
    """Returns names and kinds of columns; for CSV the beginning of the file is read to tell numbers from text."""
    first = listed(path)[:1]
    schema = _opened(first, "csv" if _all_end_in(first, CSV) else "parquet").schema
    return [
        (field.name, "number" if kind_of(field.type) == "number" and not pa.types.is_null(field.type) else "text")
        for field in schema
    ]


def batch_rows(columns: tuple[str, ...]) -> int:
    """Returns how many rows a batch of these columns has, at most."""
    rows = max(min(engine.BATCH, CELLS // max(len(columns), 1)), 1)
    return rows - rows % CACHEFUL if rows > CACHEFUL else rows


def kind_of(kind: Any) -> str:
    """Returns number, text or other, for a type of Arrow's; a column without any value may be read as numbers."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
    if any(test(value) for test in numbers):
        return "number"
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return "text" if any(test(value) for test in text) else "other"


def kinds(schema: pa.Schema) -> dict[str, str]:
    """Returns the kind of every column."""
    return {field.name: kind_of(field.type) for field in schema}


@dataclass(frozen=True)
class Piece:
    """A part of a table that can be sent elsewhere and opened there: a file, or some of its row groups."""

    path: str
    form: ds.FileFormat
    schema: pa.Schema
    groups: tuple[int, ...] | None = None

    def batches(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yields the rows, with these columns."""
        some: dict[str, Any] = {} if self.groups is None else {"row_groups": self.groups}
        fragment = self.form.make_fragment(self.path, LocalFileSystem(), **some)
        options = _scan(self.form, columns)
        yield from _guarded(lambda: fragment.scanner(schema=self.schema, columns=list(columns), **options))


def batches(rows: ds.Dataset, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table, with these columns, a batch at a time and few of them ahead."""
    return _guarded(lambda: rows.scanner(columns=list(columns), **_scan(getattr(rows, "format", None), columns)))


def pieces(rows: ds.Dataset) -> list[Piece]:
    """Returns pieces that together hold every row exactly once."""
    found = rows.get_fragments()
    return [Piece(each.path, rows.format, rows.schema, groups) for each in found for groups in _groups(each)]


def from_text(batch: pa.RecordBatch, numbers: tuple[str, ...]) -> pa.RecordBatch:
    """Returns columns that another reader left as text as Arrow's reader of text files would have given them."""
    for place, name in enumerate(batch.schema.names):
        column = batch.column(place)
        column = pc.if_else(pc.is_in(column, value_set=pa.array(GAPS)), None, column)
        if name in numbers:
            column = pc.ascii_trim(column, characters=" \t").cast(pa.float64())
        batch = batch.set_column(place, name, column)
    return batch


def _all_end_in(files: list[str], suffixes: tuple[str, ...]) -> bool:
    return all(Path(file).suffix.lower() in suffixes for file in files)


def _opened(files: list[str], form: Any) -> ds.Dataset:
    schema = None
    try:
        found = ds.dataset(files, format=form)
        schema = _common(found)
    except (pa.ArrowException, OSError):
        pass  # raised below, outside the handler: Arrow's message may quote a cell
    if schema is None:
        raise _unlike()
    return found if schema.equals(found.schema) else ds.dataset(files, schema=schema, format=form)


def _text_format(files: list[str], numbers: tuple[str, ...]) -> ds.CsvFileFormat:
    # Types are declared for every column, so nothing is inferred from values: what is not a number is text.
    names = header(files[0])
    if any(sorted(header(file)) != sorted(names) for file in files):
        raise _unlike()
    types = {name: pa.float64() if name in numbers else pa.string() for name in names}
    convert = pacsv.ConvertOptions(column_types=types, strings_can_be_null=True)
    return ds.CsvFileFormat(convert_options=convert)


def _unlike() -> InvalidData:
    return InvalidData(
        "The table cannot be opened, or its files have different columns.",
        "Files must be readable, have a header, and all have the same columns.",
        "Check the files.",
    )


def _common(rows: ds.Dataset) -> pa.Schema | None:
    """Returns the columns that all files have, None where they differ; numbers of several widths get the widest."""
    first = rows.schema
    if isinstance(rows.format, ds.CsvFileFormat):  # told by headers, and types are declared
        return first
    schemas = [fragment.physical_schema for fragment in rows.get_fragments()]
    if all(schema.equals(first) for schema in schemas):
        return first
    if any(sorted(schema.names) != sorted(first.names) for schema in schemas):
        return None
    told = [{kind_of(s.field(name).type) for s in schemas if not _is_empty(s.field(name))} for name in first.names]
    plain = [pa.schema([(field.name, _alike(field)) for field in s]) for s in schemas]
    return None if any(len(said) > 1 for said in told) else pa.unify_schemas(plain, promote_options="permissive")


def _is_empty(field: pa.Field) -> bool:
    return bool(pa.types.is_null(field.type))


def _alike(field: pa.Field) -> Any:
    return field.type if _is_empty(field) else engine.plain_type(field.type, text=True)


def header(file: str) -> list[str]:
    """Returns the names of the columns in the first line of a text file."""
    try:
        with open(file, newline="", encoding="utf-8-sig") as lines:
            names = next(csv.reader(lines), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        names = []
    if not names or len(set(names)) < len(names):
        raise InvalidData(
            "The CSV file has no header, or names a column twice.", "", "Give every column one name in the first line."
        )
    return names


def _scan(form: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {"batch_size": batch_rows(columns), "batch_readahead": 4, "fragment_readahead": 1}
    if isinstance(form, ds.ParquetFileFormat):
        # Left to itself Arrow loads whole files first, and decodes dozens of batches before one is taken.
        options["use_threads"] = False
        options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
    return options


def _guarded(scanner: Callable[[], ds.Scanner]) -> Iterator[pa.RecordBatch]:
    scanned, gone = None, False
    while True:
        try:
            scanned = scanner().to_batches() if scanned is None else scanned
            batch = next(scanned)
        except StopIteration:
            return
        except FileNotFoundError:
            gone = True
            break
        except (pa.ArrowException, OSError):
            break
        yield from (batch.slice(start, engine.BATCH) for start in range(0, len(batch), engine.BATCH))
    raise _vanished() if gone else engine.unreadable()


def _groups(fragment: Any) -> list[tuple[int, ...] | None]:
    """Cuts a Parquet file between row groups, so that parts have about as many rows as a piece should have."""
    if not isinstance(fragment, ds.ParquetFileFragment):
        return [None]
    parts: list[list[int]] = [[]]
    rows = 0
    for group in fragment.row_groups:
        if parts[-1] and rows + group.num_rows > PIECE:
            parts.append([])
            rows = 0
        parts[-1].append(group.id)
        rows += group.num_rows
    return [tuple(part) for part in parts if part]


def _vanished() -> InvalidData:
    return InvalidData(
        "A file of the table is not there any more.",
        "A table stays as it is while questions are asked about it.",
        "Bring the file back, or take the census again without it.",
    )
