# SPDX-License-Identifier: Apache-2.0
"""Columns as people hand them over (lists, NumPy, pandas, polars, Arrow), made into arrays.

Only the kind of a column is looked at here, never its values beyond what telling the kind needs;
and no message repeats one. What is masked, None, NaN or pandas' NA is missing, in whatever form it
comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from sottovoce.errors import MissingColumn, UnequalLengths, UnknownPeople, WrongType

Array = NDArray[Any]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
#: What a spreadsheet may take for a formula, also behind apostrophes: the one that is put before it
#: can always be taken off again.
FORMULA_PATTERN = r"^'*[=+\-@\t\r]"
#: What is a plain number after all.
NUMBER_PATTERN = r"^[+\-]?[0-9]+([.][0-9]+)?$"
#: Numbers in a long row.
LONG_ROW = 2**10
#: Up to so many different numbers are told apart without a sort, if among so many of them, about,
#: there are no more.
FEW_NUMBERS = 16
SOME_NUMBERS = 2**10
#: How levels may spell true and false. DuckDB reads a text file of yes and no, or of t and f, as
#: truths.
TRUTHS = (
    ("true", "True", "TRUE", "1", "yes", "Yes", "YES", "t", "T", "y", "Y"),
    ("false", "False", "FALSE", "0", "no", "No", "NO", "f", "F", "n", "N"),
)
#: The arguments of columns that a sentence calls otherwise.
PARAMETERS = {"values": "y", "labels": "y", "features": "X", "public labels": "public"}


class SupportsArray(Protocol):
    """A column of NumPy, pandas, polars or Arrow."""

    def __array__(self) -> Array:
        """Return the values as an array."""


class HasColumns(Protocol):
    """A data frame or a relation."""

    @property
    def columns(self) -> Any:
        """The names of its columns."""


class HasSchema(Protocol):
    """A table or a data set of Arrow."""

    @property
    def schema(self) -> Any:
        """The names of its columns, and their types."""


#: One column: values in memory, or the name of a column of the table beside it.
ColumnLike = Sequence[Any] | SupportsArray
#: A table or a column in memory, or a table that lives elsewhere: its path, a relation, a frame.
TableLike = ColumnLike | PathLike[str] | HasColumns | HasSchema


def to_numbers(values: TableLike, name: str = "values") -> Floats:
    """Returns one column of numbers as float64, missing entries as NaN; refuses text, dates and
    tables.
    """
    array = to_column(values, name)
    if array.dtype.kind == "O":
        array = _objects_to_floats(array)
    if array.dtype.kind not in "buif" and name == "features":
        raise _features_error()
    if array.dtype.kind not in "buif":
        raise WrongType(
            f"The {name} are not numbers.",
            "This question is about one column of numbers.",
            "Convert the column (for text, dates and factors choose a public numeric code first).",
            parameter=PARAMETERS.get(name, name),
        )
    return array.astype(np.float64, copy=False)


def to_matrix(table: Any, recoding: Any, expected: int | None = None) -> Floats:
    """Returns features as a float64 matrix, one column a feature; a factor's column holds the
    level's number.

    ``recoding`` lists the declared features (None: all columns are numbers). A table with names is
    read by name, a plain array by position. A declared constant stands for missing numbers.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if recoding is None:
        features: tuple[Any, ...] = ()
    else:
        features = recoding.features
    factors = any(feature.levels for feature in features)
    names = list_feature_names(table)
    named = names is not None and (
        _have_names(features) or (bool(features) and {f.name for f in features} <= set(names))
    )
    if factors or named:
        raw = _read_by_name(table, features)
    else:
        raw = _read_by_position(table, expected)
    constants = [
        (j, f.missing) for j, f in enumerate(features[: raw.shape[1]]) if f.missing is not None
    ]
    if constants:
        raw = np.array(raw)  # a copy: it may be the caller's own
    for j, constant in constants:
        raw[np.isnan(raw[:, j]), j] = constant
    return raw


def _have_names(features: Any) -> bool:
    """Whether features have names of their own, by which a table's columns are found whatever
    their order.
    """
    return [f.name for f in features] != [f"x{j}" for j in range(len(features))]


def _read_by_name(table: Any, features: Any) -> Floats:
    columns = [
        _number_levels(get_named_column(table, f.name), f.levels)
        if f.levels
        else to_numbers(get_named_column(table, f.name), "features")
        for f in features
    ]
    check_same_length(
        len(columns[0]), **{f.name: c for f, c in zip(features, columns, strict=True)}
    )
    return np.column_stack(columns)


def _read_by_position(table: Any, expected: int | None) -> Floats:
    array = _convert(table, _table_to_array, "features")
    if array.ndim != 2 or (expected is not None and array.shape[1] != expected):
        raise WrongType(
            "The features are not a table with the declared columns.",
            "Features come as rows and columns.",
            "Pass a two-dimensional array or a data frame.",
            parameter="X",
        )
    if array.dtype.kind == "O":
        array = np.column_stack([_objects_to_floats(array[:, j]) for j in range(array.shape[1])])
    if array.dtype.kind not in "buif":
        raise _features_error()
    return array.astype(np.float64, copy=False)


def _features_error() -> WrongType:
    return WrongType(
        "The features are not numbers.",
        "Text needs a schema with its levels.",
        "Pass a Schema as bounds.",
        parameter="X",
    )


def combine_columns(operate: np.ufunc, matrix: Floats, numbers: Floats, out: Floats) -> Floats:
    """Returns operate(matrix, numbers), a number a column, in ``out``; short rows are joined to
    long ones, because a loop over few numbers takes longer to begin than to run.
    """
    columns = matrix.shape[1]
    if not columns:
        return out
    joined = 1
    if matrix.flags.c_contiguous and out.flags.c_contiguous:
        joined = min(-(-LONG_ROW // columns), max(len(matrix), 1))
    whole = len(matrix) - len(matrix) % joined
    shape = (-1, joined * columns)
    if whole:
        operate(
            matrix[:whole].reshape(shape),
            np.tile(numbers, joined),
            out=out[:whole].reshape(shape),
        )
    if whole < len(matrix):
        operate(matrix[whole:], numbers, out=out[whole:])
    return out


def to_doubles(values: ArrayLike, name: str, parameter: str | None = None) -> Floats:
    """Returns a number, or an array of numbers, as doubles; refuses anything else."""
    try:
        return np.asarray(_fill_masked(values), dtype=np.float64)
    except Exception:
        pass  # raised below, outside the handler, so that nothing of the cause is carried along
    raise WrongType(
        f"{name} is not a number, nor an array of numbers.",
        "Numbers are needed here.",
        "Pass numbers.",
        parameter=parameter,
    )


def list_feature_names(table: object) -> list[str] | None:
    """Returns the names of a data frame's or Arrow table's columns, None for plain arrays."""
    if type(table).__name__ == "LazyFrame":  # polars', which is not imported for this
        raise WrongType(
            "The table is a lazy frame, which has no rows yet.",
            "Rows are read from tables in memory, or from files.",
            "Pass what its collect() returns, or the path of its file.",
            parameter="X",
        )
    if isinstance(table, pa.Table):
        return list(table.column_names)
    names = getattr(table, "columns", None)
    if names is None or not all(isinstance(n, str) for n in names):
        return None
    return [str(n) for n in names]


def list_column_names(data: object) -> list[Any] | int:
    """Returns the names of the columns of a table or of one column, or how many there are where
    they have none.
    """
    for names in ("column_names", "columns"):  # Arrow's, and those of pandas and polars
        if hasattr(data, names):
            return list(getattr(data, names))
    if hasattr(data, "to_numpy"):
        name = getattr(data, "name", None)
    else:
        name = None
    if name is not None and not (
        isinstance(name, str) and not name
    ):  # polars writes no name as an empty one
        return [name]
    if hasattr(data, "shape"):
        if len(data.shape) > 1:
            return int(data.shape[1])
        return 1
    # Lists alone are looked into: a generator would lose its first row.
    if isinstance(data, list | tuple) and data:
        first = data[0]
    else:
        first = None
    is_row = isinstance(first, list | tuple) or (isinstance(first, np.ndarray) and first.ndim > 0)
    if is_row and first is not None:
        return len(first)
    return 1


def get_column_name(values: object) -> str | None:
    """Returns the name that one column has of itself (pandas and polars), None for plain arrays."""
    names = list_feature_names(values)
    if names is not None and len(names) == 1:
        name: Any = names[0]
    else:
        name = getattr(values, "name", None)
    if isinstance(name, str) and name:
        return name
    return None


def get_named_column(table: Any, name: str) -> Any:
    """Returns a column of a data frame or an Arrow table by its name."""
    names = list_feature_names(table)
    # A schema has names of columns too, and no columns.
    if names is None or names.count(name) != 1 or not hasattr(table, "__getitem__"):
        raise MissingColumn(
            f"The table has no column {name!r}, or has it twice.",
            "Columns are found by their names.",
            "Pass a data frame with it, once.",
            parameter="column",
        )
    if isinstance(table, pa.Table):
        return table.column(name)
    return table[name]


def spell_truths(levels: tuple[str, ...]) -> tuple[str, str]:
    """Returns how these levels spell true and false, in a column of truths.

    >>> spell_truths(("no", "yes"))
    ('yes', 'no')
    """
    true, false = (
        next((word for word in spellings if word in levels), spellings[0]) for spellings in TRUTHS
    )
    return true, false


def _number_levels(values: Any, levels: tuple[str, ...]) -> Floats:
    place: dict[str | None, float] = {level: float(i) for i, level in enumerate(levels)}
    truths = spell_truths(levels)
    found = to_column(values, "features").tolist()
    # Text, which most levels are, is looked up as it is: nothing else takes so long to read.
    return np.array(
        [place.get(v if type(v) is str else _format_level(v, truths), -1.0) for v in found],
        dtype=np.float64,
    )


def _format_level(value: object, truths: tuple[str, str]) -> str | None:
    """Returns the level that a cell names, None where it holds nothing."""
    if is_missing(value):
        return None
    if isinstance(value, bool | np.bool_):
        true, false = truths
        return true if value else false
    # A level written as 1 in a schema is often stored as 1.0, where a column has gaps.
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _table_to_array(table: Any) -> Array:
    if isinstance(table, pa.Table):
        return np.column_stack([to_column(c, "features") for c in table.columns])
    return _fill_masked(table.to_numpy() if hasattr(table, "to_numpy") else table)


def _fill_masked(values: Any) -> Array:
    """Returns an array in which what is masked is missing: NaN among numbers, None among other
    things.
    """
    if not isinstance(values, np.ma.MaskedArray):
        return np.asarray(values)
    if not np.ma.is_masked(values):
        return np.asarray(values.data)
    if values.dtype.kind in "buif":
        kind: type = np.float64
        gap: float | None = np.nan
    else:
        kind = object
        gap = None
    array: Array = np.array(values.data, dtype=kind)
    array[np.ma.getmaskarray(values)] = gap
    return array


def is_missing(value: object) -> bool:
    """Whether a cell holds nothing: None, NaN, what is masked, or what pandas has for it."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def factorise(values: ColumnLike) -> tuple[Array, NDArray[np.int64]]:
    """Returns the distinct owners in sorted order, and for every row the position of its owner
    among them.
    """
    array = to_column(values, "groups")
    if array.dtype.kind in "OUST":
        return _factorise_text(array)
    nameless = {"f": np.isnan, "M": np.isnat, "m": np.isnat}.get(array.dtype.kind)
    if array.dtype.kind not in "biufMm" or (nameless is not None and nameless(array).any()):
        raise invalid_names_error()
    people, owner = np.unique(array, return_inverse=True)
    return people, owner.astype(np.int64, copy=False)


def count_dimensions(values: Any) -> int:
    """Returns the number of dimensions, 0 for what is no array at all."""
    try:
        return int(np.ndim(values))
    except Exception:  # ragged lists, and whatever somebody else's object raises
        if isinstance(values, list | tuple):
            return 1
        return 0


def count_rows(values: Any, name: str) -> int:
    """Returns the number of rows; refuses what has none."""
    try:
        return len(values)
    except Exception:
        pass  # raised below, outside the handler
    raise WrongType(
        f"The {name} are not rows.",
        "Columns and tables have a length.",
        "Pass arrays, lists or frames.",
        parameter=PARAMETERS.get(name, name),
    )


def check_same_length(expected: int, **columns: Any) -> None:
    """Refuses columns that do not have the expected number of rows."""
    wrong = [
        name
        for name, rows in columns.items()
        if rows is not None and count_rows(rows, name) != expected
    ]
    if wrong:
        raise UnequalLengths(
            f"The column {wrong[0]!r} has another number of rows than the data.",
            "Every row needs its own entry.",
            "Pass columns of equal length.",
            parameter=wrong[0],
        )


def to_column(values: TableLike, name: str) -> Array:
    """Returns one column as a NumPy array, whatever it came in."""
    array = _convert(values, _column_to_array, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array.ravel()
    if array.ndim != 1:
        remedy = "Pass a one-dimensional array or a single column of the table"
        named = ', or name one, such as column="cost"' if name == "values" else ""
        raise WrongType(
            f"The {name} are not one column.",
            "This question is about one column.",
            f"{remedy}{named}.",
            parameter=PARAMETERS.get(name, name),
        )
    return array


def _column_to_array(values: Any) -> Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    if hasattr(values, "to_numpy"):  # pandas and polars, neither of which is imported for this
        values = values.to_numpy()
    array = _fill_masked(values)
    if (
        array.dtype.kind in "US"
        and isinstance(values, list | tuple)
        and not all(isinstance(v, str | bytes) for v in values)
    ):
        return np.array(
            values, dtype=object
        )  # NumPy would spell a NaN among text as the name "nan"
    return array


def _convert(values: Any, convert: Callable[[Any], Array], name: str) -> Array:
    """Returns the array; whatever goes wrong in other people's code is one refusal, which repeats
    no value.
    """
    try:
        return convert(values)
    except Exception:
        pass  # raised below, outside the handler, so that nothing of the cause is carried along
    raise WrongType(
        f"The {name} cannot be made into columns.",
        "A column is a list of numbers or of text, and all columns of a table are of one length.",
        "Pass a list, an array, or a column of a data frame.",
        parameter=PARAMETERS.get(name, name),
    )


def _objects_to_floats(array: Array) -> Array:
    if any(isinstance(value, str | bytes) for value in array):
        return array
    try:
        numbers = np.array(
            [np.nan if is_missing(value) else value for value in array], dtype=np.float64
        )
    except (TypeError, ValueError, OverflowError):
        return array  # the caller refuses it without repeating the value that did not convert
    if numbers.shape != array.shape:
        return array  # lists of equal length, which the caller refuses as well
    return numbers


def _factorise_text(array: Array) -> tuple[Array, NDArray[np.int64]]:
    encoded = _encode_dictionary(array)
    if encoded is None or encoded.null_count:
        raise invalid_names_error()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    people = encoded.dictionary.take(pa.array(order)).to_numpy(zero_copy_only=False)
    if len(people) and isinstance(people[0], str | bytes) and not people[0]:
        raise invalid_names_error()  # empty text comes first in any order
    return people, rank[encoded.indices.to_numpy()]


def _encode_dictionary(array: Array) -> Any:
    try:
        encoded = pa.array(array, from_pandas=True).dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):  # of more text than Arrow has in one piece
            encoded = encoded.unify_dictionaries().combine_chunks()
        pc.sort_indices(encoded.dictionary)  # what has no order is no name
    except (
        pa.ArrowException,
        ValueError,
        TypeError,
        OverflowError,
    ):  # among them text that is not Unicode
        return None
    return encoded


def refuse_nameless(people: Sequence[Any]) -> None:
    """Refuses names that are no names: None, NaN, empty text, and text that is not Unicode."""
    kinds = set(map(type, people))
    if kinds <= {int}:
        return
    if kinds == {str}:  # of many people, without a loop in Python
        nameless = not all(people) or not is_unicode("\n".join(people))
    else:
        nameless = any(
            is_missing(name) or (isinstance(name, str) and not _is_name(name)) for name in people
        )
    if nameless:
        raise invalid_names_error()


def _is_name(text: str) -> bool:
    return bool(text) and is_unicode(text)


def is_unicode(text: str) -> bool:
    """Whether text can be written down; that with lone surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def invalid_names_error() -> UnknownPeople:
    """The refusal of owners that are no names."""
    return UnknownPeople(
        "A person has no name, or people are named by several kinds of things.",
        "People are named by numbers or by text; nothing, NaN, empty text and text that is not "
        "Unicode are no names.",
        "Fill the column of people in, all with numbers or all with text.",
        parameter="groups",
    )


def broadcast_floats(*given: ArrayLike) -> tuple[Floats, ...]:
    """Returns doubles of one shape, or refuses."""
    arrays = [to_doubles(values, "An argument") for values in given]
    try:
        return np.broadcast_arrays(*arrays)
    except (ValueError, RuntimeError):
        pass  # raised below
    raise UnequalLengths(
        "Arrays of different lengths are given.", "Each row needs all numbers.", "Pass one a row."
    )


def guard_formula(text: str) -> str:
    """Return text that no spreadsheet takes for a formula: with one apostrophe more, where it
    begins like one.
    """
    if re.match(FORMULA_PATTERN, text) and not re.fullmatch(NUMBER_PATTERN, text):
        return f"'{text}"
    return text


def strip_formula_guard(text: str) -> str:
    """Takes off the apostrophe that keeps a spreadsheet from taking text for a formula."""
    if text.startswith("'") and guard_formula(text[1:]) == text:
        return text[1:]
    return text


def guard_formulas(column: Any) -> Any:
    """Return a column of text of which no spreadsheet takes a cell for a formula."""
    risky = pc.and_(
        pc.match_substring_regex(column, FORMULA_PATTERN),
        pc.invert(pc.match_substring_regex(column, NUMBER_PATTERN)),
    )
    return pc.if_else(risky, pc.binary_join_element_wise("'", column, ""), column)


def number_few(numbers: Array) -> tuple[Array, NDArray[np.uint8]] | None:
    """Returns the distinct numbers in rising order, and which of them each is, without a sort; None
    where more than a few differ, or one is no number.
    """
    distinct = np.unique(numbers[:: len(numbers) // SOME_NUMBERS + 1])
    if not 0 < len(distinct) <= FEW_NUMBERS:
        return None
    codes = np.zeros(len(numbers), dtype=np.uint8)
    for number in distinct[:-1]:
        codes += numbers > number
    if not np.array_equal(distinct[codes], numbers):
        return None
    return distinct, codes


def number_distinct(
    numbers: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Returns the distinct whole numbers in rising order, which of them each is, and how often each
    of them occurs.
    """
    count = len(numbers)
    bits = count.bit_length()
    few = number_few(numbers)
    if few is not None:
        distinct, which = few
        return distinct, which.astype(np.int64), np.bincount(which, minlength=len(distinct))
    if not count or numbers.min() < 0 or int(numbers.max()).bit_length() + bits > 63:
        return np.unique(numbers, return_inverse=True, return_counts=True)
    # A number and its place in one word: to sort words is several times as fast as to sort places.
    packed = np.sort((numbers << bits) | np.arange(count))
    rising = packed >> bits
    first = np.append(True, rising[1:] != rising[:-1])
    codes = np.empty(count, dtype=np.int64)
    codes[packed & (2**bits - 1)] = np.cumsum(first) - 1
    starts = np.flatnonzero(first)
    return rising[starts], codes, np.diff(starts, append=count)
