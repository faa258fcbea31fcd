# SPDX-License-Identifier: Apache-2.0
"""Features and label of a batch as arrays.

A reader turns a batch into the recoded matrix Z, entries in [−½, ½], or, for a classifier, into
rows of the unit ball. In memory the matrix is recoded once and lies in one list column; in files it
is recoded batch by batch from named columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sottovoce.arrays import Floats
from sottovoce.data.encoding import CentredBox, Recoding, UnitBall
from sottovoce.data.kernels import GroupLookup, as_floats, invalid_values_error
from sottovoce.errors import InvalidData
from sottovoce.schema import Classes, undeclared_class_error

MATRIX_COLUMN = "features"


class Reader(Protocol):
    """Turns a batch into the recoded matrix."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""

    @property
    def width(self) -> int:
        """The number of recoded columns, p."""

    def matrix(self, batch: Any) -> Floats:
        """Returns Z, one row a row of the batch."""


@dataclass(frozen=True)
class EncodedReader:
    """A matrix that was recoded on entry and lies in one list column."""

    recoding: Recoding

    @property
    def columns(self) -> tuple[str, ...]:
        """The list column, or none where every feature can have one value only."""
        if self.width:
            return (MATRIX_COLUMN,)
        return ()

    @property
    def width(self) -> int:
        """The number of recoded columns, p."""
        return self.recoding.width

    def matrix(self, batch: Any) -> Floats:
        """Returns Z without a copy."""
        if not self.width:
            return np.empty((len(batch), 0))
        return np.asarray(
            batch.column(MATRIX_COLUMN).flatten().to_numpy().reshape(len(batch), self.width)
        )


@dataclass(frozen=True, eq=False)
class UnitBallReader:
    """Rows of the unit ball, or of a box, as a classifier reads them: brought there on entry, or
    batch by batch.
    """

    ball: UnitBall | CentredBox
    recoding: Recoding
    inner: Reader | None = None  # None: they lie in one list column

    @property
    def columns(self) -> tuple[str, ...]:
        """The list column, or those of the reader inside."""
        if self.inner is None:
            return (MATRIX_COLUMN,)
        return self.inner.columns

    @property
    def width(self) -> int:
        """The number of coordinates, the intercept's included."""
        return self.ball.width

    def matrix(self, batch: Any) -> Floats:
        """Returns Φ, rows of norm at most 1."""
        if self.inner is not None:
            return self.ball.rows(self.inner.matrix(batch))
        return np.asarray(
            batch.column(MATRIX_COLUMN).flatten().to_numpy().reshape(len(batch), self.width)
        )


@dataclass(frozen=True)
class EmptyReader:
    """No features at all: a constant is fitted."""

    width: int = 0
    columns: tuple[str, ...] = ()

    def matrix(self, batch: Any) -> Floats:
        """Returns a matrix without columns."""
        return np.empty((len(batch), 0))


@dataclass(frozen=True)
class ColumnReader:
    """Named columns of a table, recoded batch by batch."""

    recoding: Recoding

    @property
    def columns(self) -> tuple[str, ...]:
        """The declared columns."""
        return tuple(feature.name for feature in self.recoding.features)

    @property
    def width(self) -> int:
        """The number of recoded columns, p."""
        return self.recoding.width

    def matrix(self, batch: Any) -> Floats:
        """Returns Z, recoded from the named columns; a declared constant stands for missing
        numbers.
        """
        raw = np.empty((len(batch), len(self.columns)), order="F")
        for j, feature in enumerate(self.recoding.features):
            column = batch.column(feature.name)
            if feature.levels:
                raw[:, j] = number_levels(column, feature.levels)
            else:
                raw[:, j] = as_floats(column)
            if feature.missing is not None:
                raw[np.isnan(raw[:, j]), j] = feature.missing
        return self.recoding.encode(raw, spent=True)


def number_levels(column: Any, levels: tuple[str, ...]) -> Floats:
    """Returns the number of each entry's level, −1 where it was not declared (or is missing)."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(
        column.type
    ):  # a level written as 1 is often stored as 1.0, where a column has gaps
        whole = pc.equal(column, pc.floor(column)).fill_null(False)
        text = pc.if_else(
            whole,
            pc.floor(column).cast(pa.int64(), safe=False).cast(pa.string()),
            column.cast(pa.string()),
        )
    else:
        text = column.cast(pa.string())
        if any(level.isdigit() for level in levels):  # and in a text file it is then written as 1.0
            text = pc.replace_substring_regex(text, r"^(-?[0-9]+)\.0+$", r"\1")
    found = pc.index_in(text, value_set=pa.array(levels, pa.string())).fill_null(-1)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.float64)


@dataclass(frozen=True)
class Label:
    """The label, clipped to its bounds and scaled to [−1, 1]."""

    column: str
    low: float
    high: float
    missing: float | None = None

    def values(self, batch: Any) -> Floats:
        """Returns the scaled labels."""
        raw = as_floats(batch.column(self.column))
        if self.missing is not None:
            raw = np.where(np.isnan(raw), self.missing, raw)
        return self.scale_values(raw)

    def scale_values(self, raw: Floats) -> Floats:
        """Returns (y − middle)/half-range after clipping."""
        middle = (self.low + self.high) / 2
        half = (self.high - self.low) / 2
        return np.clip((np.clip(raw, self.low, self.high) - middle) / half, -1.0, 1.0)

    def find_invalid(self, batch: Any) -> NDArray[np.bool_]:
        """Returns which labels are missing or infinite and not declared to be so."""
        raw = as_floats(batch.column(self.column))
        if self.missing is None:
            return ~np.isfinite(raw)
        return np.isinf(raw)

    def refusal(self) -> InvalidData:
        """What is said about such labels."""
        return invalid_values_error()


@dataclass(frozen=True)
class ClassLabel:
    """The label of a classifier: in memory the number of its class, in a file the class itself."""

    column: str
    classes: Classes
    coded: bool = False

    def codes(self, batch: Any) -> Floats:
        """Returns the number of each label's class, negative or NaN where it is none of the
        declared ones.
        """
        column = batch.column(self.column)
        if self.coded:
            return as_floats(column)
        return number_levels(column, self.classes.levels)

    def signs(self, batch: Any, positive: int) -> Floats:
        """Returns +1 for one class and −1 for the others."""
        return np.where(self.codes(batch) == positive, 1.0, -1.0)

    def find_invalid(self, batch: Any) -> NDArray[np.bool_]:
        """Returns which labels are none of the declared classes."""
        return ~(self.codes(batch) >= 0)

    def refusal(self) -> InvalidData:
        """What is said about such labels."""
        return undeclared_class_error(self.classes)


@dataclass(frozen=True, eq=False)
class HasInvalidRows:
    """Whether (features, label) hold anything that the declaration does not allow: yes or no, never
    where.
    """

    reader: Reader
    label: Label | ClassLabel
    owner: GroupLookup
    participating: NDArray[np.bool_]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> NDArray[np.int64]:
        """No rows, nothing unfit."""
        return np.zeros(2, dtype=np.int64)

    def __call__(self, batch: Any) -> NDArray[np.int64]:
        """Returns a 1 where anything is missing, infinite or undeclared."""
        participating = self.participating[self.owner.kinds(batch)]
        features = not np.isfinite(self.reader.matrix(batch)[participating]).all()
        return np.array(
            [features, self.label.find_invalid(batch)[participating].any()], dtype=np.int64
        )
