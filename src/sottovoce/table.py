# SPDX-License-Identifier: Apache-2.0
"""Columns as people hand them over (lists, NumPy, pandas, polars, Arrow), made into arrays.

Only the kind of a column is looked at here, never its values beyond what telling the kind needs; and
no message repeats one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sottovoce.errors import MissingColumn, UnequalLengths, UnknownPeople, WrongType

Array = NDArray[Any]
Floats = NDArray[np.float64]


def numbers(values: Any, name: str = "values") -> Floats:
    """Returns one column of numbers as float64, missing entries as NaN; refuses text, dates and tables."""
    array = column(values, name)
    if array.dtype.kind == "O":
        array = _objects_to_floats(array)
    if array.dtype.kind not in "buif":
        raise WrongType(
            f"The {name} are not numbers.",
            "This question is about one column of numbers.",
            "Convert the column (for text, dates and factors choose a public numeric code first).",
        )
    return array.astype(np.float64, copy=False)


def matrix(table: Any, recoding: Any, expected: int | None = None) -> Floats:
    """Returns features as a float64 matrix, one column a feature; a factor's column holds the level's number.

    ``recoding`` lists the declared features (None: all columns are numbers). A table with names is read by name,
    a plain array by position. A declared constant stands for missing numbers.
    """
    features = () if recoding is None else recoding.features
    factors = any(feature.levels for feature in features)
    if factors or (features and recoding.by_name and feature_names(table) is not None):
        raw = _by_name(table, features)
    else:
        raw = _by_position(table, expected)
    for j, feature in enumerate(features[: raw.shape[1]]):
        if feature.missing is not None:
            raw = raw.copy() if raw is table else raw
            raw[np.isnan(raw[:, j]), j] = feature.missing
    return raw


def _by_name(table: Any, features: Any) -> Floats:
    columns = [
        _level_numbers(named_column(table, f.name), f.levels)
        if f.levels
        else numbers(named_column(table, f.name), "features")
        for f in features
    ]
    same_length(len(columns[0]), **{f.name: c for f, c in zip(features, columns, strict=True)})
    return np.column_stack(columns)


def _by_position(table: Any, expected: int | None) -> Floats:
    array = table if isinstance(table, np.ndarray) else _table_array(table)
    if array.ndim != 2 or (expected is not None and array.shape[1] != expected):
        raise WrongType(
            "The features are not a table with the declared columns.",
            "Features come as rows and columns.",
            "Pass a two-dimensional array or a data frame.",
        )
    if array.dtype.kind == "O":
        array = np.column_stack([_objects_to_floats(array[:, j]) for j in range(array.shape[1])])
    if array.dtype.kind not in "buif":
        raise WrongType(
            "The features are not numbers.", "Text needs a schema with its levels.", "Pass a Schema as bounds."
        )
    return array.astype(np.float64, copy=False)


def feature_names(table: Any) -> list[str] | None:
    """Returns the names of a data frame's or Arrow table's columns, None for plain arrays."""
    if isinstance(table, pa.Table):
        return list(table.column_names)
    names = getattr(table, "columns", None)
    return None if names is None or not all(isinstance(n, str) for n in names) else [str(n) for n in names]


def column_names(data: Any) -> list[Any] | int:
    """Returns the names of the columns of a table or of one column, or how many there are where they have none."""
    for names in ("column_names", "columns"):  # Arrow's, and those of pandas and polars
        if hasattr(data, names):
            return list(getattr(data, names))
    name = getattr(data, "name", None) if hasattr(data, "to_numpy") else None
    if name is not None and not (isinstance(name, str) and not name):  # polars writes no name as an empty one
        return [name]
    if hasattr(data, "shape"):
        return int(data.shape[1]) if len(data.shape) > 1 else 1
    first = next(iter(data), None) if isinstance(data, Iterable) else None
    return len(first) if isinstance(first, Sized) and not isinstance(first, str) else 1


def named_column(table: Any, name: str) -> Any:
    """Returns a column of a data frame or an Arrow table by its name."""
    names = feature_names(table)
    if names is None or names.count(name) != 1:
        raise MissingColumn(
            f"The table has no column {name!r}, or has it twice.",
            "Columns are found by their names.",
            "Pass a data frame with it, once.",
        )
    return table.column(name) if isinstance(table, pa.Table) else table[name]


def _level_numbers(values: Any, levels: tuple[str, ...]) -> Floats:
    place = {level: float(i) for i, level in enumerate(levels)}
    return np.array([place.get(_spelt(value), -1.0) for value in column(values, "features").tolist()])


def _spelt(value: Any) -> str:
    # A level written as 1 in a schema is often stored as 1.0, where a column has gaps.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _table_array(table: Any) -> Array:
    if isinstance(table, pa.Table):
        return np.column_stack([column(c, "features") for c in table.columns])
    return np.asarray(table.to_numpy() if hasattr(table, "to_numpy") else table)


def factorise(values: Any) -> tuple[Array, NDArray[np.int64]]:
    """Returns the distinct owners in sorted order, and for every row the position of its owner among them."""
    array = column(values, "groups")
    if array.dtype.kind in "OUST":
        return _factorise_text(array)
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise _nobody()
    people, owner = np.unique(array, return_inverse=True)
    return people, owner.astype(np.int64, copy=False)


def same_length(expected: int, **columns: Any) -> None:
    """Refuses columns that do not have the expected number of rows."""
    wrong = [name for name, column in columns.items() if column is not None and len(column) != expected]
    if wrong:
        raise UnequalLengths(
            f"The column {wrong[0]!r} has another number of rows than the data.",
            "Every row needs its own entry.",
            "Pass columns of equal length.",
        )


def column(values: Any, name: str) -> Array:
    """Returns one column as a NumPy array, whatever it came in."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        array = np.asarray(values.to_numpy(zero_copy_only=False))
    elif hasattr(values, "to_numpy"):  # pandas and polars, neither of which is imported for this
        array = np.asarray(values.to_numpy())
    else:
        array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array.ravel()
    if array.ndim != 1:
        raise WrongType(
            f"The {name} are not one column.",
            "This question is about one column.",
            "Pass a one-dimensional array or a single column of the table.",
        )
    return array


def _objects_to_floats(array: Array) -> Array:
    if any(isinstance(value, str | bytes) for value in array):
        return array
    try:
        return np.array([np.nan if value is None else value for value in array], dtype=np.float64)
    except (TypeError, ValueError):
        return array  # the caller refuses it without repeating the value that did not convert


def _factorise_text(array: Array) -> tuple[Array, NDArray[np.int64]]:
    encoded = _encode(array)
    if encoded is None or encoded.null_count:
        raise _nobody()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    people = encoded.dictionary.take(pa.array(order)).to_numpy(zero_copy_only=False)
    return people, rank[encoded.indices.to_numpy()]


def _encode(array: Array) -> Any:
    try:
        return pa.array(array, from_pandas=True).dictionary_encode()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None


def _nobody() -> UnknownPeople:
    return UnknownPeople(
        "A row has no owner, or owners are of several kinds.",
        "Every row belongs to one person, named by a number or by text.",
        "Fill the column of owners in, all with numbers or all with text.",
    )
