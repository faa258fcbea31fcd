# SPDX-License-Identifier: Apache-2.0
"""Engine, the contract: exact integers over rows, wherever the rows live.

An engine brings batches of rows to a kernel and adds what the kernel returns. Kernels return whole
numbers (or things that add exactly), so the answer is the same whatever the order, the size of a
batch, the number of threads or a worker that died and was replaced. One kernel serves all engines:
it takes an Arrow batch. Kernels are in kernels.py, loss_kernels.py and census.py; the kinds of
engine are in engines/, found by name so that an engine nobody uses needs no package installed.

What every kernel reads of a batch is here too: its cells as arrays, and whose each row is.
"""

from __future__ import annotations

import codecs
import importlib
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from sottovoce import units
from sottovoce.arrays import FEW_NUMBERS, Array, Floats, number_few
from sottovoce.budgets import Budgets
from sottovoce.errors import (
    InvalidParameter,
    MissingColumn,
    ReleaseFailed,
    SottovoceError,
    UnknownPeople,
    WrongType,
)
from sottovoce.schema import Subject

Part = TypeVar("Part")
PartOut = TypeVar("PartOut", covariant=True)

#: Called with the number of rows done so far; the number of rows is public.
Watch = Callable[[int], None]

#: Rows of a batch, at most.
MAX_BATCH_ROWS = 2**18
#: Cells of a batch, at most: a wide table comes in batches of fewer rows, which fit the cache and
#: cost little memory.
MAX_BATCH_CELLS = 2**20
#: Rows of a batch are a multiple of this, if there are so many: kernels work on so many at a time.
BATCH_MULTIPLE = 2**13
#: Up to this many sorted numbers are searched as fast in any order: they stay close to the
#: processor.
CACHE_NUMBERS = 2**17
#: Batches in flight a thread, besides the one being read.
BATCHES_AHEAD = 1


class Kernel(Protocol[PartOut]):
    """A pure function of one batch; what it returns adds up with +, beginning at ``zero``."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""

    def zero(self) -> PartOut:
        """The answer for no rows."""

    def __call__(self, batch: Any) -> PartOut:
        """The answer for this batch."""


class Engine(Protocol):
    """Rows, wherever they live."""

    def columns(self) -> Mapping[str, str]:
        """Names of the columns and their kinds: number, text, date, nested or other."""

    def fold(self, kernel: Kernel[Part]) -> Part:
        """Returns the sum of kernel(batch) over batches that hold every row exactly once."""


@dataclass(frozen=True)
class TextFormat:
    """How text files are written; what is None the header tells."""

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str = "."

    @classmethod
    def of_options(cls, delimiter: str | None, encoding: str | None, decimal: str) -> TextFormat:
        """Returns the format in which the word "tab" stands for the sign."""
        return cls("\t" if delimiter in ("tab", "\\t") else delimiter, encoding, decimal)

    def __post_init__(self) -> None:
        delimiter = self.delimiter
        decimal = self.decimal
        usable = delimiter is None or (
            len(delimiter) == 1 and delimiter.isascii() and delimiter not in '"\r\n\0'
        )
        if not usable or decimal == delimiter:
            raise _text_format_error(
                "delimiter",
                "A delimiter is one sign, such as a semicolon, and not the sign of decimals.",
                "Correct the delimiter.",
            )
        if decimal not in (".", ","):
            raise _text_format_error(
                "decimal", "Decimals begin with . or , in text files.", "Correct the decimal sign."
            )
        if not _is_encoding(self.encoding):
            raise _text_format_error(
                "encoding",
                "An encoding is one that Python knows, such as latin-1.",
                "Correct the encoding.",
            )


def _text_format_error(parameter: str, required: str, remedy: str) -> InvalidParameter:
    return InvalidParameter(
        "Text files cannot be written like this.", required, remedy, parameter=parameter
    )


def _is_encoding(name: str | None) -> bool:
    try:
        codecs.lookup(name or "utf-8")
        b"a".decode(name or "utf-8", "replace")  # refuses codecs that are not about text
    except (LookupError, ValueError):
        return False
    return True


#: Text files as their headers tell.
DEFAULT_TEXT_FORMAT = TextFormat()


class EngineKind(Protocol):
    """What a module in engines/ offers."""

    def of_table(self, table: Any, watch: Watch | None = None) -> Engine:
        """An engine over a table as its own package hands it out."""

    def open_table(
        self,
        path: str,
        numbers: tuple[str, ...] = (),
        watch: Watch | None = None,
        text: TextFormat = DEFAULT_TEXT_FORMAT,
    ) -> Engine:
        """An engine over files; ``numbers`` names the columns to read as numbers."""


class InMemoryEngineKind(EngineKind, Protocol):
    """What the default engine offers besides."""

    def of_columns(self, columns: Mapping[str, Array]) -> Engine:
        """An engine over arrays in memory."""

    def to_batch(self, columns: Mapping[str, Array]) -> Any:
        """A batch of arrays in memory."""

    def of_batches(self, batches: list[Any]) -> Engine:
        """An engine over batches in memory."""

    def of_named_columns(
        self, table: Any, names: tuple[str, ...], others: Mapping[str, Array]
    ) -> Engine:
        """An engine over some columns of a table in memory, and arrays beside them."""

    def infer_kinds(
        self, path: str, text: TextFormat = DEFAULT_TEXT_FORMAT
    ) -> list[tuple[str, str]]:
        """Names of the columns of a table in files and their likely kinds, number or text."""


@dataclass(frozen=True, eq=False)
class NameIndex:
    """Where each name is among these; found out when it is first asked, as plans ask nobody."""

    names: Array | Sequence[str]

    def __reduce__(self) -> tuple[Any, ...]:
        return NameIndex, (self.names,)

    @cached_property
    def of(self) -> dict[str, int]:
        """The place of every name."""
        return {name: place for place, name in enumerate(self.names)}


@dataclass(frozen=True, eq=False)
class GroupLookup:
    """Finds the kind of every row's owner from a public column of the batch.

    ``column`` None: all rows are of kind 0. ``keys`` None: the column holds the kind itself.
    Otherwise the column's entry is looked up among the ``keys``, sorted numbers or the places of
    names, and ``codes`` turns the position into a kind. ``as_units``: the column is a budget and is
    counted in units.
    """

    column: str | None = None
    keys: Array | NameIndex | None = None
    codes: Array | None = None
    as_units: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that is read, if any."""
        if self.column is None:
            return ()
        return (self.column,)

    def count_keys(self) -> int:
        """Returns how many different entries the column has, at most."""
        if isinstance(self.keys, NameIndex):
            return len(self.keys.names)
        if self.keys is None:
            return MAX_BATCH_ROWS
        return len(self.keys)

    def kinds(self, batch: Any) -> Array:
        """Returns the kind of each row's owner."""
        if self.column is None:
            return np.zeros(len(batch), dtype=np.uint8)
        column = batch.column(self.column)
        if self.keys is None:
            return as_array(column)
        if isinstance(self.keys, NameIndex):
            place = self._find_names(column, self.keys)
        else:
            place = self._find_numbers(column, self.keys)
        if self.codes is None:
            return place
        return self.codes[place]

    def _find_numbers(self, column: Any, keys: Array) -> Array:
        numbers = as_array(column)
        few = None
        if len(keys) <= FEW_NUMBERS and numbers.dtype.kind in "iuf":
            few = number_few(numbers)
        if few is None:
            return self._find_places(numbers, keys)
        distinct, which = few
        return self._find_places(distinct, keys)[which]

    def _find_places(self, numbers: Array, keys: Array) -> Array:
        if self.as_units:
            wanted = units.round_down(numbers)
        else:
            wanted = numbers.astype(np.int64, copy=False)
        place = np.minimum(find_positions(keys, wanted), len(keys) - 1)
        if not np.array_equal(keys[place], wanted):
            raise UnknownPeople(
                "A row belongs to somebody without a budget.",
                "",
                "Take the census of this table again.",
                parameter="epsilon",
            )
        return place

    def _find_names(self, column: Any, keys: NameIndex) -> Array:
        encoded = column.dictionary_encode()
        known = [keys.of.get(key, -1) for key in encoded.dictionary.to_pylist()]
        found: NDArray[np.int64] = np.array([*known, -1], dtype=np.int64)[
            encoded.indices.fill_null(len(known)).to_numpy()
        ]
        if found.min(initial=0) < 0:
            raise UnknownPeople(
                "A row belongs to somebody without a budget.",
                "",
                "Take the census of this table again.",
                parameter="epsilon",
            )
        return found


def find_positions(keys: Array, wanted: Array) -> Array:
    """Returns the place of each wanted number among the sorted keys."""
    if len(keys) < CACHE_NUMBERS:
        return np.searchsorted(keys, wanted)
    # In order, one search walks where the last one has just been: five times as fast as at random.
    order = np.argsort(wanted)
    place = np.empty(len(wanted), dtype=np.intp)
    place[order] = np.searchsorted(keys, wanted[order])
    return place


@dataclass(frozen=True, eq=False)
class ArrayBatch:
    """A batch whose columns of numbers are arrays: to cut one of Arrow's into pieces, and to look
    at their columns, takes as long as to add some pieces up.
    """

    columns: Mapping[str, Any]
    rows: int

    @classmethod
    def of(cls, batch: Any) -> ArrayBatch:
        """Takes columns without gaps as arrays, and others as they are."""
        names = batch.schema.names
        return cls({name: _take_array(batch.column(name)) for name in names}, len(batch))

    def __len__(self) -> int:
        return self.rows

    def slice(self, start: int, count: int) -> ArrayBatch:
        """Returns some of the rows."""
        end = min(start + count, self.rows)
        cut = {name: column[start:end] for name, column in self.columns.items()}
        return ArrayBatch(cut, end - start)

    def column(self, name: str) -> Any:
        """Returns a column, an array or one of Arrow's."""
        return self.columns[name]


def _take_array(column: Any) -> Any:
    """Returns a column of numbers, or of lists of so many, as an array without a copy."""
    kind = column.type
    if column.null_count:
        return column
    if pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type):
        width = kind.list_size
        # Arrow's flatten copies what a part of a column has.
        numbers = column.values.slice(column.offset * width, len(column) * width)
        return numbers.to_numpy().reshape(len(column), width)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column.to_numpy()
    return column


def cut_batch(batch: Any, rows: int) -> Iterator[Any]:
    """Yields a batch in pieces of so many rows."""
    if len(batch) > rows and not isinstance(batch, ArrayBatch):
        batch = ArrayBatch.of(batch)
    yield from (batch.slice(at, rows) for at in range(0, len(batch), rows))


def as_array(column: Any) -> Array:
    """Returns a column as a NumPy array."""
    if isinstance(column, np.ndarray):
        return column
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _cast_to_numbers(column: Any) -> Any:
    """Returns decimals and truths as floats, and other columns as they are.

    With a null in it, NumPy would have a column of truths as one of objects: whether it can be read
    must not depend on the rows.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
        return column.cast(pa.float64())
    return column


def as_floats(column: Any) -> Floats:
    """Returns a column of numbers as float64, nulls as NaN."""
    if not isinstance(column, np.ndarray):
        column = _cast_to_numbers(column)
    array = as_array(column)
    if array.dtype.kind not in "buif":
        raise WrongType(
            "The column is not made of numbers.",
            "",
            "Name a column of numbers.",
            parameter="column",
        )
    return array.astype(np.float64, copy=False)


def has_nameless(names: Any) -> bool:
    """Whether a name in an Arrow column is missing or empty; raises if text is not Unicode."""
    if pa.types.is_dictionary(names.type):
        names = names.dictionary_decode()
    names.validate(full=True)
    if names.null_count:
        return True
    text = any(
        kind(names.type)
        for kind in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )
    return text and bool(pc.any(pc.equal(pc.binary_length(names), 0)).as_py())


@dataclass(frozen=True, eq=False)
class Dataset:
    """Budgets and rows of one question: who allows how much, where the rows live, the column it is
    about, and whose each row is.
    """

    engine: Engine
    value: str  # empty where rows are counted alone
    owner: GroupLookup
    features: Any = None  # an encoding.Reader, for regressions
    label: Any = None  # an encoding.Label, for regressions
    subject: Subject = field(default_factory=Subject)  # what people call it
    budgets: Budgets | None = None  # None until people are counted
    # False where nobody was asked for a budget: what a release costs is then what it promises
    has_grants: bool = True
    # of a report: what each of its questions reads of the same rows, with neither engine nor owners
    parts: Mapping[str, Dataset] = field(default_factory=dict)
    cells: Any = None  # the cells.Cells of a table
    parses_text: bool = False  # whether rows lie in text files, and numbers are parsed

    def select_part(self, name: str) -> Dataset:
        """Returns what one question of a report reads, of these rows."""
        part = self.parts[name]
        subject = replace(self.subject, column=part.value or None)
        return replace(
            part,
            engine=self.engine,
            owner=self.owner,
            budgets=self.budgets,
            subject=subject,
            parses_text=self.parses_text,
        )

    def list_columns(self) -> tuple[str, ...]:
        """Returns the private columns that are read, each once."""
        if self.parts:
            several = (part.list_columns() for part in self.parts.values())
            return tuple(dict.fromkeys(name for columns in several for name in columns))
        features = () if self.features is None else self.features.columns
        cells = () if self.cells is None else self.cells.columns
        own = (self.value,) if self.value else ()
        return tuple(dict.fromkeys((*own, *features, *cells)))

    def list_number_columns(self) -> tuple[str, ...]:
        """Returns the columns that are read as numbers, which text files have to be told."""
        if self.parts:
            several = (part.list_number_columns() for part in self.parts.values())
            return tuple(dict.fromkeys(name for columns in several for name in columns))
        if self.cells is not None:
            return tuple(dict.fromkeys((*self.list_value_columns(), *self.cells.number_columns)))
        if self.features is None:
            return (self.value,)
        features = self.features.recoding.features
        numbers = tuple(feature.name for feature in features if not feature.levels)
        if hasattr(self.label, "low"):
            return (self.value, *numbers)
        return numbers

    def list_value_columns(self) -> tuple[str, ...]:
        """Returns the columns of numbers that a table sums by cell: none, one, or several."""
        if self.features is not None:
            return tuple(self.features.columns)
        if self.value:
            return (self.value,)
        return ()

    def refuse_wrong_kinds(self, kinds: Mapping[str, str]) -> None:
        """Refuses columns of cells, or columns that are summed in cells, of another kind than is
        read of them; kinds are public, and nobody has been charged.
        """
        for part in (self, *self.parts.values()):
            if part.cells is None:
                continue
            part.cells.refuse_wrong_columns(kinds)
            for name in part.list_value_columns():
                if kinds.get(name, "number") != "number":
                    raise WrongType(
                        f"The column {name!r} is not made of numbers.",
                        "Sums, means, variances and covariances are of numbers.",
                        "Convert the column, or name one of numbers.",
                        parameter="column",
                    )


ENGINE_NAMES = ("arrow", "duckdb", "spark", "dask")
#: Which engine reads a table, by the package that its type comes from.
PACKAGES = {
    "pyarrow": "arrow",
    "duckdb": "duckdb",
    "_duckdb": "duckdb",
    "pyspark": "spark",
    "dask": "dask",
}

#: A table of a database is written as hospital.duckdb#claims.
DATABASE_MARK = ".duckdb#"
#: Endings of files that say how a table is written, and not what it is.
FILE_ENDINGS = (".csv", ".parquet", ".pq", ".tsv", ".txt", ".gz")


def get_engine(name: str) -> EngineKind:
    """Returns the kind of engine with this name, importing it on first use."""
    if name not in ENGINE_NAMES:
        raise InvalidParameter(
            f"There is no engine called {name!r}.",
            f"Engines: {', '.join(ENGINE_NAMES)}.",
            "Choose one of them.",
            parameter="engine",
        )
    try:
        return cast(EngineKind, importlib.import_module(f"sottovoce.data.engines.{name}"))
    except ModuleNotFoundError:
        pass  # raised below
    raise InvalidParameter(
        f"The engine {name!r} is not installed.",
        "It needs a package that is not part of the core.",
        f"Install it with `pip install 'sottovoce[{name}]'`.",
        parameter="engine",
    )


def get_default_engine() -> InMemoryEngineKind:
    """Returns the default engine, which needs nothing that is not there."""
    return cast(InMemoryEngineKind, get_engine("arrow"))


def open_engine(
    table: Any,
    engine: str | None = None,
    numbers: tuple[str, ...] = (),
    watch: Watch | None = None,
    text: TextFormat = DEFAULT_TEXT_FORMAT,
) -> Engine:
    """Returns the engine over a table: its package's; for a path ``engine``, or what suits it."""
    if isinstance(table, str | Path):
        if DATABASE_MARK in str(table):
            suited = "duckdb"
        else:
            suited = "arrow"
        return get_engine(engine or suited).open_table(str(table), numbers, watch, text)
    if _is_engine(table):
        return cast(Engine, table)
    return get_engine(PACKAGES.get(_get_package(table), "arrow")).of_table(table, watch)


def is_external_table(table: Any) -> bool:
    """Whether a table is a path, or an object whose rows are not in this process's memory."""
    if isinstance(table, str | Path) or _is_engine(table):
        return True
    package = PACKAGES.get(_get_package(table), "")
    return package != "" and (
        package != "arrow" or hasattr(table, "scanner")
    )  # a pyarrow.Table is in memory


def get_table_label(table: Any) -> str | None:
    """Returns a public label of a table: its file without folders and ending, or its name.

    Folders may tell whose machine it is, so none is named that was not given as the table itself.
    """
    if not isinstance(table, str | Path):
        return None
    if DATABASE_MARK in str(table):
        name = str(table).rpartition("#")[2]
    else:
        name = Path(table).name
    while Path(name).suffix.lower() in FILE_ENDINGS:
        name = Path(name).stem
    if name.strip(".") and not any(sign in name for sign in "*?["):
        return name
    return None


def _is_engine(table: Any) -> bool:
    return hasattr(table, "fold") and callable(getattr(table, "columns", None))


def _get_package(table: Any) -> str:
    return type(table).__module__.partition(".")[0]


def require_columns(engine: Engine, *names: str | None, **roles: str | None) -> None:
    """Refuses a table that lacks one of the columns; column names are public.

    ``names`` are columns in question; ``roles`` are columns by the parameter that names them.
    """
    there = engine.columns()
    for parameter, name in (*(("column", name) for name in names), *roles.items()):
        if name is not None and name not in there:
            raise MissingColumn(
                f"The table has no column {name!r}.",
                f"Its columns are: {', '.join(there)}.",
                "Name one of these.",
                parameter=parameter,
            )


def read_columns(engine: Engine, columns: tuple[str, ...]) -> pa.Table:
    """Returns columns of a table in memory, for what cannot do with less."""
    require_columns(engine, *columns)
    batches = engine.fold(_BatchCollector(columns))
    if batches:
        return pa.Table.from_batches(batches)
    return pa.table({name: pa.array([], pa.null()) for name in columns})


@dataclass(frozen=True)
class _BatchCollector:
    """Keeps the batches."""

    columns: tuple[str, ...]

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        return [batch.select(list(self.columns))]


def choose_batch_rows(columns: tuple[str, ...]) -> int:
    """Returns how many rows a batch of these columns has, at most."""
    rows = max(min(MAX_BATCH_ROWS, MAX_BATCH_CELLS // max(len(columns), 1)), 1)
    if rows > BATCH_MULTIPLE:
        return rows - rows % BATCH_MULTIPLE
    return rows


@dataclass(frozen=True, eq=False)
class PartialResult(Generic[Part]):
    """What a worker sends home about its share of the rows: their sum, or why it refused them."""

    rows: int
    part: Part | None = None
    refusal: SottovoceError | None = None

    def __add__(self, other: PartialResult[Part]) -> PartialResult[Part]:
        refusal = self.refusal or other.refusal
        if refusal is not None:
            return PartialResult(0, None, refusal)
        try:
            part: Any = self.part
            return PartialResult(self.rows + other.rows, part + other.part)
        except SottovoceError as error:  # two shares contradict each other
            return PartialResult(0, None, error.with_traceback(None))

    def whole(self) -> Part:
        """Returns the sum, or raises the refusal where it can be read."""
        if self.refusal is not None:
            raise self.refusal
        return cast(Part, self.part)


def fold_partition(kernel: Kernel[Part], batches: Iterable[Any]) -> PartialResult[Part]:
    """Folds one worker's share; what goes wrong in it comes home as a sentence, never as text that
    quotes a cell.
    """
    done = 0
    total = kernel.zero()
    try:
        with _get_blas_controller().limit(limits=1, user_api="blas"):
            for batch in batches:
                for start in range(0, len(batch), MAX_BATCH_ROWS):
                    part: Any = _apply_kernel(kernel, batch.slice(start, MAX_BATCH_ROWS))
                    total = total + part
                done += len(batch)
        return PartialResult(done, total)
    except SottovoceError as error:
        return PartialResult(0, None, error.with_traceback(None))
    except Exception:  # whatever it is, its text and its traceback stay where the rows are
        return PartialResult(0, None, unreadable_error())


def fold_batches(batches: Iterable[Any], kernel: Kernel[Part], watch: Watch | None = None) -> Part:
    """Returns the sum of kernel(batch) over the batches, computed on a few threads."""
    total = kernel.zero()
    done = 0
    # One BLAS thread for each of ours: two kinds of threads on the same cores wait for each other.
    with (
        _get_blas_controller().limit(limits=1, user_api="blas"),
        closing(_compute_batches(batches, kernel)) as parts,
    ):
        for rows, part in parts:
            total = total + part  # type: ignore[operator]
            done += rows
            if watch is not None:
                watch(done)
    return total


def _apply_kernel(kernel: Kernel[Part], batch: Any) -> Part:
    try:
        return kernel(convert_batch(batch))
    except pa.ArrowException:
        pass  # raised below: Arrow's message may quote a cell
    raise unreadable_error()


def convert_batch(batch: Any) -> Any:
    """Returns the batch with its columns in the types that kernels know."""
    for place, there in enumerate(batch.schema):
        wanted = choose_plain_type(there.type)
        if wanted != there.type:
            batch = batch.set_column(place, there.name, batch.column(place).cast(wanted))
    return batch


@cache
def choose_plain_type(kind: Any, text: bool = False) -> Any:
    """Returns the type to read a column in: no views, no gaps of no type, dictionaries of text
    alone (or none).
    """
    if pa.types.is_dictionary(kind) and (text or choose_plain_type(kind.value_type) != pa.string()):
        return choose_plain_type(kind.value_type)
    if pa.types.is_null(kind):
        return pa.float64()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_string_view(kind):
        return pa.string()
    return kind


def workers_lost_error() -> ReleaseFailed:
    """What is said when a cluster gives up."""
    return ReleaseFailed(
        "The workers were lost, or failed, before they had read all rows.",
        "An answer needs every row exactly once.",
        "Check the cluster (its memory, disks and network, and that this library is installed "
        "there), then ask again.",
    )


def unreadable_error() -> WrongType:
    """What is said of rows that cannot be read as declared."""
    return WrongType(
        "A file cannot be read as declared, or a cell is of another kind than its column.",
        "Columns named as numbers must hold numbers, and all files or partitions the same columns.",
        "Check the files, and that every column asked about holds numbers or is declared as a "
        "factor (without a schema every other column is a feature). Save a text file that has "
        "decimal commas, or is not UTF-8, again, or declare its decimal sign or its encoding.",
        parameter="text",
    )


@cache
def _get_blas_controller() -> ThreadpoolController:
    return ThreadpoolController()


def _compute_batches(batches: Iterable[Any], kernel: Kernel[Part]) -> Generator[tuple[int, Part]]:
    """Yields (rows, kernel(batch)) for every batch, in order."""
    coming = iter(batches)
    first = list(islice(coming, 2))
    if len(first) == 1:  # a small table: to hand it to a thread would take longer than to add it up
        yield len(first[0]), _apply_kernel(kernel, first[0])
        return
    flying: deque[tuple[int, Future[Part]]] = deque()
    pool = _get_pool(count_threads(), os.getpid())
    try:
        for batch in chain(first, coming):
            flying.append((len(batch), pool.submit(_apply_kernel, kernel, batch)))
            if len(flying) > count_threads() * BATCHES_AHEAD:
                rows, future = flying.popleft()
                yield rows, future.result()
        while flying:
            rows, future = flying.popleft()
            yield rows, future.result()
    finally:
        wait([future for _, future in flying if not future.cancel()])


@cache  # to ask the system takes as long as a kernel on a few rows
def count_threads() -> int:
    """How many threads kernels run on in one process."""
    return min(4, os.cpu_count() or 1)


@cache
def _get_pool(size: int, process: int) -> ThreadPoolExecutor:
    # Kept, because new threads begin with no memory of their own and spend a tenth of a short run
    # on getting it. One for each process, because threads do not survive a fork.
    return ThreadPoolExecutor(size, thread_name_prefix="sottovoce")
