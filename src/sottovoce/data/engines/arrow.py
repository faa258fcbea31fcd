# SPDX-License-Identifier: Apache-2.0
"""The default engine: arrays in memory, and CSV or Parquet files larger than it, by way of Arrow.

Only the columns that a kernel names are converted, and kernels run on a few threads.

**Files**: one, a folder or a pattern, scanned batch by batch with bounded read-ahead. Every engine
opens files through here, so all of them see the same columns, the same numbers and the same gaps.
Files of one table must have the same columns, which their headers tell before a row is read; a
table is then scanned whole, or in pieces that a worker elsewhere can open by itself. How a text
file is written is told by its header or by the caller, never by its rows: they are private. What
Arrow says about a cell that does not convert would quote the cell, so it is replaced by a sentence
that does not.
"""

from __future__ import annotations

import codecs
import csv
import glob
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import csv as pacsv
from pyarrow.fs import LocalFileSystem

from sottovoce.arrays import Array
from sottovoce.data import engine
from sottovoce.data.engine import DEFAULT_TEXT_FORMAT, Engine, Kernel, Part, TextFormat, Watch
from sottovoce.errors import InvalidData, WrongType

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
#: What may stand between two names of a header.
DELIMITERS = (",", ";", "\t")
#: What may stand between them where none of these does.
RARE = ("|",)
#: What every file begins with that is compressed with gzip.
GZIP = b"\x1f\x8b"
#: Bytes in which a header ends.
MAX_HEADER_BYTES = 2**20
#: How a file begins that says so itself.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
#: A piece that a worker opens has about so many rows, and at least one row group.
PIECE_ROWS = 2**20
#: Rows in memory are shared out among threads in parts of at least so many.
MIN_BATCH_ROWS = 2**14


class ArrowEngine:
    """Rows of an Arrow table or dataset."""

    def __init__(
        self, rows: pa.Table | ds.Dataset, watch: Watch | None = None, *, by_path: bool = False
    ) -> None:
        self._rows = rows
        self._watch = watch
        self._by_path = by_path  # whether the files are all there is to know about the rows

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in this process's memory."""
        return isinstance(self._rows, pa.Table)

    def columns(self) -> Mapping[str, str]:
        """Names of the columns and their kinds: number, text, date, nested or other."""
        return list_kinds(self._rows.schema)

    def fold(self, kernel: Kernel[Part]) -> Part:
        """Returns the sum of kernel(batch) over batches that hold every row exactly once."""
        words = getattr(kernel, "word_columns", ())
        return engine.fold_batches(self._batches(kernel.columns, words), kernel, self._watch)

    def _batches(
        self, columns: tuple[str, ...], words: tuple[str, ...]
    ) -> Iterator[pa.RecordBatch]:
        if not isinstance(self._rows, pa.Table):
            rows = self._rows
            if words and self._by_path:
                rows = read_as_dictionaries(rows, words)
            yield from read_batches(rows, columns)
            return
        share = -(-len(self._rows) // engine.count_threads())
        size = min(engine.choose_batch_rows(columns), max(share, MIN_BATCH_ROWS))
        yield from self._rows.select(list(columns)).to_batches(max_chunksize=size)


def of_columns(columns: Mapping[str, Array]) -> Engine:
    """An engine over arrays in memory; they are not copied."""
    return ArrowEngine(pa.table({name: _to_arrow(array) for name, array in columns.items()}))


def to_batch(columns: Mapping[str, Array]) -> pa.RecordBatch:
    """A batch of arrays in memory; they are not copied."""
    return pa.record_batch({name: _to_arrow(array) for name, array in columns.items()})


def of_batches(batches: list[pa.RecordBatch]) -> Engine:
    """An engine over batches in memory."""
    return ArrowEngine(pa.Table.from_batches(batches))


def of_named_columns(table: Any, names: tuple[str, ...], others: Mapping[str, Array]) -> Engine:
    """An engine over some columns of a table in memory, and arrays beside them."""
    if isinstance(table, pa.Table):
        narrow = table.select(list(names))
    else:
        narrow = table[list(names)]
    rows = to_arrow_table(narrow)
    for name, array in others.items():
        rows = rows.append_column(name, _to_arrow(array))
    return ArrowEngine(rows)


def of_table(table: Any, watch: Watch | None = None) -> Engine:
    """An engine over an Arrow table or dataset, or a data frame of pandas or polars."""
    if isinstance(table, pa.RecordBatchReader):
        raise WrongType(
            "The table can be read once only.",
            "Questions read it several times.",
            "Pass a dataset or a table.",
            parameter="table",
        )
    if isinstance(table, ds.Dataset):
        _refuse_dropped_rows(table)
        return ArrowEngine(table, watch)
    return ArrowEngine(to_arrow_table(table), watch)


def to_arrow_table(table: Any) -> pa.Table:
    """Returns a table in memory as Arrow has it: one of Arrow's, or a frame of pandas or polars."""
    if isinstance(table, pa.Table):
        return table
    try:
        if hasattr(table, "to_arrow"):  # polars
            return table.to_arrow()
        return pa.Table.from_pandas(table, preserve_index=False)
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
    """An engine over CSV or Parquet: a file, a folder, or a pattern like ``claims/*.parquet``."""
    return ArrowEngine(open_dataset(path, numbers, text), watch, by_path=True)


def list_files(path: str) -> list[str]:
    """Returns the files of a table, in order, as absolute paths."""
    files: list[str] = []
    with suppress(OSError, ValueError):  # a path that cannot be one
        if Path(path).is_dir():
            suffixes = (*PARQUET, *CSV)
            files = sorted(
                {str(file) for suffix in suffixes for file in Path(path).rglob(f"*{suffix}")}
            )
        else:
            if Path(path).is_file():
                files = [path]
            else:
                files = sorted(glob.glob(path, recursive=True))
    if not files:
        raise InvalidData(
            "There is no table at this path.",
            "A CSV or Parquet file, a folder or a pattern is needed.",
            "Check the path.",
            parameter="table",
        )
    return [str(Path(file).absolute()) for file in files]


def open_dataset(
    path: str, numbers: tuple[str, ...] = (), text: TextFormat = DEFAULT_TEXT_FORMAT
) -> ds.Dataset:
    """Returns the table in these files; ``numbers`` names columns of CSV to read as numbers."""
    files = list_files(path)
    if _all_end_in(files, PARQUET):
        return _open_files(files, ds.ParquetFileFormat())
    if not _all_end_in(files, CSV):
        raise InvalidData(
            "The table is neither CSV nor Parquet.",
            f"Files end in {', '.join(CSV)} or .parquet, all alike.",
            "Convert it first.",
            parameter="table",
        )
    names, written = _read_headers(files, text)
    # Types are declared for every column, so nothing is inferred from values: what is not a number
    # is text.
    types = {name: pa.float64() if name in numbers else pa.string() for name in names}
    return ds.dataset(
        files, schema=pa.schema(types), format=_make_csv_format(names, written, types)
    )


def is_text(path: str) -> bool:
    """Whether the files at a path are text files."""
    return _all_end_in(list_files(path), CSV)


def parses_text(table: Any) -> bool:
    """Whether a table lies in text files, of which a cell may turn out to be no number."""
    if isinstance(table, str | Path):
        path = str(table)
        return engine.DATABASE_MARK not in path and is_text(path)
    parts = getattr(table, "children", [table])  # a union of datasets has several
    return any(isinstance(getattr(part, "format", None), ds.CsvFileFormat) for part in parts)


def infer_kinds(path: str, text: TextFormat = DEFAULT_TEXT_FORMAT) -> list[tuple[str, str]]:
    """Returns names and kinds of columns; those of CSV are told by the file's beginning."""
    first = list_files(path)[:1]
    if _all_end_in(first, CSV):
        schema = _open_files(first, _make_csv_format(*_read_headers(first, text), None)).schema
        words: tuple[Any, ...] = (
            pa.types.is_null,
            pa.types.is_boolean,
        )  # True and False are words in a text file
    else:
        schema = _open_files(first, ds.ParquetFileFormat()).schema
        words = (pa.types.is_null,)
    return [
        (
            field.name,
            "number"
            if classify_type(field.type) == "number" and not any(w(field.type) for w in words)
            else "text",
        )
        for field in schema
    ]


def classify_type(kind: Any) -> str:
    """Returns number, text, date, nested or other, for a type of Arrow's; a column without any
    value may be read as numbers.
    """
    if pa.types.is_dictionary(kind):
        value = kind.value_type
    else:
        value = kind
    numbers = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_boolean,
        pa.types.is_null,
    )
    if any(test(value) for test in numbers):
        return "number"
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if any(test(value) for test in text):
        return "text"
    if pa.types.is_date(value) or pa.types.is_timestamp(value):
        return "date"
    if pa.types.is_nested(value):
        return "nested"
    return "other"


def list_kinds(schema: pa.Schema) -> dict[str, str]:
    """Returns the kind of every column."""
    return {field.name: classify_type(field.type) for field in schema}


@dataclass(frozen=True)
class Piece:
    """A part of a table that is opened elsewhere: a file, or some of its row groups."""

    path: str
    form: ds.FileFormat
    schema: pa.Schema
    groups: tuple[int, ...] | None = None

    def batches(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yields the rows, with these columns."""
        some: dict[str, Any] = {} if self.groups is None else {"row_groups": self.groups}
        fragment = self.form.make_fragment(self.path, LocalFileSystem(), **some)
        options = _make_scan_options(self.form, columns)
        yield from _scan_batches(
            lambda: fragment.scanner(schema=self.schema, columns=list(columns), **options)
        )


def read_batches(rows: ds.Dataset, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table, with these columns, a batch at a time and few of them ahead."""
    return _scan_batches(
        lambda: rows.scanner(
            columns=list(columns), **_make_scan_options(getattr(rows, "format", None), columns)
        )
    )


def read_as_dictionaries(rows: ds.Dataset, words: tuple[str, ...]) -> ds.Dataset:
    """Returns Parquet files opened so that columns of text with few words come as dictionaries, as
    they are stored: they are then not written out row by row.
    """
    if not isinstance(rows.format, ds.ParquetFileFormat):
        return rows
    schemas = [rows.schema, *(fragment.physical_schema for fragment in rows.get_fragments())]
    kept = [
        name
        for name in words
        if all(pa.types.is_string(schema.field(name).type) for schema in schemas)
    ]
    if not kept:
        return rows
    types = {
        field.name: pa.dictionary(pa.int32(), pa.string()) if field.name in kept else field.type
        for field in rows.schema
    }
    form = ds.ParquetFileFormat(dictionary_columns=kept)
    return ds.dataset(rows.files, schema=pa.schema(types), format=form)


def split_dataset(rows: ds.Dataset) -> list[Piece]:
    """Returns pieces that together hold every row exactly once."""
    found = rows.get_fragments()
    return [
        Piece(each.path, rows.format, rows.schema, groups)
        for each in found
        for groups in _split_row_groups(each)
    ]


def _all_end_in(files: list[str], suffixes: tuple[str, ...]) -> bool:
    # Arrow knows compressed files by small letters alone.
    return all(
        file.lower().endswith(suffixes) and not file.endswith((".GZ", ".Gz", ".gZ"))
        for file in files
    )


def _open_files(files: list[str], form: Any) -> ds.Dataset:
    schema = None
    try:
        found = ds.dataset(files, format=form)
        schema = _find_common_schema(found)
    except (pa.ArrowException, OSError):
        pass  # raised below, outside the handler: Arrow's message may quote a cell
    if schema is None:
        raise _different_columns_error()
    if schema.equals(found.schema):
        return found
    return ds.dataset(files, schema=schema, format=form)


def _make_csv_format(names: list[str], written: TextFormat, types: Any) -> ds.CsvFileFormat:
    parse = pacsv.ParseOptions(
        delimiter=written.delimiter,
        newlines_in_values=True,
        # Where there is one column only, a blank line is a row with a missing value: rows are
        # counted in public, and a count that goes by whether a private value is missing would tell.
        ignore_empty_lines=len(names) > 1,
    )
    convert = pacsv.ConvertOptions(
        column_types=types, strings_can_be_null=True, decimal_point=written.decimal
    )
    # Arrow skips the mark itself
    if written.encoding == "utf-8-sig":
        encoding: str | None = "utf8"
    else:
        encoding = written.encoding
    return ds.CsvFileFormat(
        parse_options=parse,
        convert_options=convert,
        read_options=pacsv.ReadOptions(encoding=encoding),
    )


def _different_columns_error() -> InvalidData:
    return InvalidData(
        "The table cannot be opened, or its files have different columns.",
        "Files must be readable, have a header, and all have the same columns.",
        "Check the files.",
        parameter="table",
    )


def _find_common_schema(rows: ds.Dataset) -> pa.Schema | None:
    """Returns the columns that all files have, None where they differ; numbers of several widths
    get the widest.
    """
    first = rows.schema
    if isinstance(rows.format, ds.CsvFileFormat):  # told by headers, and types are declared
        return first
    schemas = [fragment.physical_schema for fragment in rows.get_fragments()]
    if all(schema.equals(first) for schema in schemas):
        return first
    if any(sorted(schema.names) != sorted(first.names) for schema in schemas):
        return None
    told = [
        {classify_type(s.field(name).type) for s in schemas if not _is_empty(s.field(name))}
        for name in first.names
    ]
    plain = [pa.schema([(field.name, _find_plain_type(field)) for field in s]) for s in schemas]
    if any(len(said) > 1 for said in told):
        return None
    return pa.unify_schemas(plain, promote_options="permissive")


def _is_empty(field: pa.Field) -> bool:
    return bool(pa.types.is_null(field.type))


def _find_plain_type(field: pa.Field) -> Any:
    if _is_empty(field):
        return field.type
    return engine.choose_plain_type(field.type, text=True)


def _read_headers(files: list[str], text: TextFormat) -> tuple[list[str], TextFormat]:
    """Returns names of columns and how files are written; refuses files that differ."""
    names, written = read_header(files[0], text)
    for file in files[1:]:
        others, likewise = read_header(file, text)
        if sorted(others) != sorted(names) or likewise != written:
            raise _different_columns_error()
    return names, written


def read_header(file: str, text: TextFormat = DEFAULT_TEXT_FORMAT) -> tuple[list[str], TextFormat]:
    """Returns the names of columns in a text file's first line, and how it is written."""
    begins = _read_beginning(file)
    names = []
    if begins.startswith(GZIP):
        raise InvalidData(
            "The file is compressed, and its name does not say so.",
            "Compressed text files end in .csv.gz or .tsv.gz.",
            "Give it such a name.",
            parameter="table",
        )
    if not begins and file.endswith(".gz"):
        raise InvalidData(
            "The file is empty, or not compressed as its name says, or cut short.",
            "Files that end in .gz are compressed with gzip.",
            "Compress it again, or take .gz off its name.",
            parameter="table",
        )
    encoding = text.encoding or _detect_encoding(begins)
    first = _split_header(begins, encoding)
    delimiter = text.delimiter or _detect_delimiter(first)
    if delimiter == text.decimal:
        raise InvalidData(
            "The header of the CSV file has commas between its names, and decimal commas are "
            "declared.",
            "A comma cannot be both.",
            "Declare the delimiter that stands between two cells, or save the file again with "
            "decimal points.",
            parameter="delimiter",
        )
    with suppress(csv.Error):
        names = next(csv.reader(first, delimiter=delimiter), [])
    if not names or len(set(names)) < len(names):
        raise InvalidData(
            "The CSV file has no header, or names a column twice.",
            "",
            "Give every column one name in the first line.",
            parameter="table",
        )
    return names, replace(text, delimiter=delimiter, encoding=encoding)


def _open_binary(file: str) -> BinaryIO | gzip.GzipFile:
    if file.lower().endswith(".gz"):
        return gzip.open(file, "rb")
    return open(file, "rb")


def _detect_encoding(begins: bytes) -> str:
    """Returns the encoding that a file's first bytes say, UTF-8 where they say nothing."""
    return next(
        (encoding for mark, encoding in BYTE_ORDER_MARKS.items() if begins.startswith(mark)),
        "utf-8",
    )


def _read_beginning(file: str) -> bytes:
    try:
        with _open_binary(file) as content:
            return content.read(MAX_HEADER_BYTES)
    except (OSError, EOFError, zlib.error):
        return b""  # which has no header


def _split_header(begins: bytes, encoding: str) -> list[str]:
    """Returns the lines of the header: one, or several where a name in quotes goes on."""
    # Rows are decoded with it, because where the header ends is not known before. They must not
    # matter: what cannot be decoded is replaced, and only a replacement in the header is looked
    # for.
    lines: list[str] = []
    for line in io.StringIO(begins.decode(encoding, "replace"), newline=""):
        lines.append(line)
        if sum(part.count('"') for part in lines) % 2 == 0:
            break
    if any("\ufffd" in line for line in lines):
        raise InvalidData(
            f"The header of the CSV file is not written in {encoding}.",
            "Which encoding it is in cannot be seen from the file.",
            "Declare the encoding, such as latin-1, or save the file again as UTF-8.",
            parameter="encoding",
        )
    return lines


def _detect_delimiter(first: list[str]) -> str:
    """Returns what stands between names of a header; refuses one with several answers."""
    bare = re.sub(r'"[^"]*"', "", "".join(first))
    found = [sign for sign in DELIMITERS if sign in bare] or [sign for sign in RARE if sign in bare]
    if len(found) > 1:
        raise InvalidData(
            "The header of the CSV file has commas, semicolons or tabs, more than one kind of "
            "them.",
            "Which of them stands between two cells cannot be told.",
            "Declare the delimiter, or put the names of columns in quotes.",
            parameter="delimiter",
        )
    if found:
        return found[0]
    return DELIMITERS[0]


def _make_scan_options(form: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "batch_size": engine.choose_batch_rows(columns),
        "batch_readahead": 4,
        "fragment_readahead": 1,
    }
    if isinstance(form, ds.ParquetFileFormat):
        # Left to itself Arrow loads whole files first, and decodes dozens of batches before one is
        # taken.
        options["use_threads"] = False
        options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(
            pre_buffer=False, use_buffered_stream=True
        )
    return options


def _scan_batches(scanner: Callable[[], ds.Scanner]) -> Iterator[pa.RecordBatch]:
    scanned = None
    gone = False
    while True:
        try:
            if scanned is None:
                scanned = scanner().to_batches()
            batch = next(scanned)
        except StopIteration:
            return
        except FileNotFoundError:
            gone = True
            break
        except (
            pa.ArrowException,
            OSError,
            UnicodeError,
        ):  # text that ends in the middle of a sign, too
            break
        yield from (
            batch.slice(start, engine.MAX_BATCH_ROWS)
            for start in range(0, len(batch), engine.MAX_BATCH_ROWS)
        )
    raise _missing_file_error() if gone else engine.unreadable_error()


def _split_row_groups(fragment: Any) -> list[tuple[int, ...] | None]:
    """Cuts a Parquet file between row groups into parts of about the rows of a piece."""
    if not isinstance(fragment, ds.ParquetFileFragment):
        return [None]
    parts: list[list[int]] = [[]]
    rows = 0
    for group in fragment.row_groups:
        if parts[-1] and rows + group.num_rows > PIECE_ROWS:
            parts.append([])
            rows = 0
        parts[-1].append(group.id)
        rows += group.num_rows
    return [tuple(part) for part in parts if part]


def _missing_file_error() -> InvalidData:
    return InvalidData(
        "A file of the table is not there any more.",
        "A table stays as it is while questions are asked about it.",
        "Bring the file back, or take the census again without it.",
        parameter="table",
    )
