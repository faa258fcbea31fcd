# SPDX-License-Identifier: Apache-2.0
"""Columns as people hand them over (lists, NumPy, pandas, polars, Arrow), made into arrays.

Only the kind of a column is looked at here, never its values beyond what telling the kind needs; and
no message repeats one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sottovoce.errors import UnequalLengths, UnknownPeople, WrongType

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
