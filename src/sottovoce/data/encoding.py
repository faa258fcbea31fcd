# SPDX-License-Identifier: Apache-2.0
"""Features and label as numbers: how they are declared, how they are recoded, and how they are
read of a batch (docs/theory/recoding.md).

**Recoding**: features as people know them, to centred columns of one size, and back. A number in
[low, high] becomes (x − middle)/(high − low) in [−½, ½]; a factor of K levels becomes K−1
orthogonal contrast columns with entries in [−½, ½] (Hadamard where K is a power of two), never a
redundant one-hot; the intercept is a column of its own. Columns that can only have one value are
dropped. Everything is fixed by the declared bounds or schema, so the user never sees it:
coefficients and predictions come back in their own units. A level that was not declared stands for
none of the levels: all its contrasts are 0.

**Readers** turn a batch into the recoded matrix Z, entries in [−½, ½], or, for a classifier, into
rows of the unit ball. In memory the matrix is recoded once and lies in one list column; in files it
is recoded batch by batch from named columns.

``make_label`` and ``make_recoding`` are the way from what an estimator was told to both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy
from numpy.typing import NDArray

from sottovoce.arrays import Floats, count_dimensions, list_feature_names, to_matrix
from sottovoce.data.engine import GroupLookup, as_floats
from sottovoce.data.kernels import invalid_values_error
from sottovoce.errors import InvalidBounds, InvalidData, InvalidParameter, InvalidSchema
from sottovoce.schema import (
    Bounds,
    Classes,
    Schema,
    check_missing_constant,
    to_interval,
    undeclared_class_error,
)

#: The columns of rows in memory: the label or the one column in question, whose each row is, and
#: the recoded matrix.
VALUE = "value"
KIND = "kind"
MATRIX_COLUMN = "features"
#: More features than this are a mistake.
MAX_FEATURES = 10**6
#: A classifier's rows are whole multiples of 2^−23: products with few bits are then exact.
GRID_BITS = 23
#: Rows of the ball stay this far inside it, so that rounding brings none beyond.
ROUNDING_MARGIN = 1 - 1e-12
#: The standard deviation of a number that fills its bounds evenly.
UNIFORM_DEVIATION = 1 / math.sqrt(12)
#: Rows that are worked on at a time, so that the work stays in the cache.
BLOCK_ROWS = 2**13


@dataclass(frozen=True)
class Feature:
    """One declared column: a number with limits, or a factor with levels."""

    name: str
    low: float = 0.0
    high: float = 1.0
    levels: tuple[str, ...] = ()
    missing: float | None = None

    @property
    def width(self) -> int:
        """How many recoded columns it becomes."""
        if self.levels:
            return max(len(self.levels) - 1, 0)
        return int(self.high > self.low)

    @property
    def is_sound(self) -> bool:
        """Whether limits are numbers in order, and names and levels text."""
        limits = (self.low, self.high, *(() if self.missing is None else (self.missing,)))
        numbers = all(isinstance(limit, int | float) and math.isfinite(limit) for limit in limits)
        return (
            numbers
            and self.low <= self.high
            and all(isinstance(text, str) for text in (self.name, *self.levels))
        )

    def encode(self, raw: Floats) -> Floats:
        """Returns the recoded columns, every entry in [−½, ½]; a factor's raw column holds the
        level's number.
        """
        if self.levels:
            table = np.vstack([make_contrasts(len(self.levels)), np.zeros(self.width)])
            known = (raw >= 0) & (raw < len(self.levels))
            return table[np.where(known, raw, -1).astype(np.int64)]
        if not self.width:
            return np.empty((len(raw), 0))
        middle = (self.low + self.high) / 2
        width = self.high - self.low
        return np.clip((np.clip(raw, self.low, self.high) - middle) / width, -0.5, 0.5)[:, None]


@dataclass(frozen=True)
class Recoding:
    """The features of a regression, in order."""

    features: tuple[Feature, ...]

    @classmethod
    def of_bounds(cls, bounds: Bounds, names: list[str] | None, count: int) -> Recoding:
        """From a box (or a norm, which is a box too), for ``count`` columns of numbers."""
        if bounds.features is None and bounds.norm is None:
            raise InvalidBounds(
                "Bounds of the features are missing.",
                "Each feature needs a lowest and a highest possible value, from public knowledge.",
                "Pass bounds=sv.Bounds(features=(low, high), label=(lo, hi)).",
                parameter="bounds",
            )
        box: Any = (
            bounds.features if bounds.features is not None else (-(bounds.norm or 0.0), bounds.norm)
        )
        low, high = (np.atleast_1d(np.asarray(limit, dtype=np.float64)) for limit in box)
        if {len(low), len(high)} - {1, count}:
            raise InvalidBounds(
                "There are bounds for another number of features.",
                "",
                "Pass one pair for each feature.",
                parameter="bounds",
            )
        low = np.broadcast_to(low, (count,))
        high = np.broadcast_to(high, (count,))
        names = names or [f"x{j}" for j in range(count)]
        return cls(
            tuple(Feature(n, float(a), float(b)) for n, a, b in zip(names, low, high, strict=True))
        )

    @classmethod
    def of_schema(cls, schema: Schema) -> Recoding:
        """From a schema: every described column but the label, the person and the budget."""
        others = {schema.label, schema.person, schema.budget}
        features = []
        for name, column in schema.columns.items():
            if name in others or column.kind == "text":
                continue
            if column.kind == "factor":
                if not column.levels:
                    raise InvalidSchema(
                        f"The levels of {name!r} are blank.",
                        "",
                        f"List them under [columns.{name}].",
                        parameter="schema.columns",
                    )
                features.append(Feature(name, levels=column.levels))
            else:
                low, high = schema.interval(name)
                features.append(Feature(name, low, high, missing=column.missing))
        if not features:
            raise InvalidSchema(
                "The schema describes no features.",
                "",
                "Describe the columns to regress on.",
                parameter="schema.columns",
            )
        return cls(tuple(features))

    @property
    def width(self) -> int:
        """The number of recoded columns, p."""
        return sum(feature.width for feature in self.features)

    def encode(self, raw: Floats, *, spent: bool = False) -> Floats:
        """Returns the recoded matrix, entries in [−½, ½], from the raw one, a column a feature;
        ``spent``: in place.
        """
        if raw.shape[1] != len(self.features):
            raise InvalidData(
                "The table has another number of features than declared.",
                "",
                "Pass the declared columns.",
                parameter="X",
            )
        infinite = np.isinf(raw)
        if not any(feature.levels for feature in self.features) and self.width == raw.shape[1]:
            recoded = self._encode_numbers(raw, raw if spent else None)
        else:
            recoded = np.hstack(
                [feature.encode(raw[:, j]) for j, feature in enumerate(self.features)]
            )
        if infinite.any():  # an infinity is refused like a missing value, not clipped: mark its row
            recoded[infinite.any(axis=1)] = np.nan
        return recoded

    def _encode_numbers(self, raw: Floats, out: Floats | None) -> Floats:
        low, high = (
            np.array([getattr(f, side) for f in self.features]) for side in ("low", "high")
        )
        recoded: Floats = np.clip(raw, low, high, out=out)
        recoded -= (low + high) / 2
        recoded /= high - low
        return np.clip(recoded, -0.5, 0.5, out=recoded)

    def to_original_units(self, intercept: float, slopes: Floats) -> tuple[float, Floats]:
        """Returns intercept and coefficients in the features' own units (one a number, one a
        level).
        """
        coefficients = []
        at = 0
        for feature in self.features:
            own = slopes[at : at + feature.width]
            at = at + feature.width
            if feature.levels:
                coefficients.append(make_contrasts(len(feature.levels)) @ own)
            elif feature.width:
                slope = own / (feature.high - feature.low)
                intercept -= float(slope[0]) * (feature.low + feature.high) / 2
                coefficients.append(slope)
            else:
                coefficients.append(np.zeros(1))
        return float(intercept), np.concatenate(coefficients)

    def to_encoded_units(self, intercept: float, coefficients: Floats) -> tuple[float, Floats]:
        """Returns intercept and slopes of the recoded columns from coefficients that
        ``to_original_units`` gave.
        """
        slopes = []
        at = 0
        for feature in self.features:
            own = coefficients[at : at + (len(feature.levels) or 1)]
            at = at + (len(feature.levels) or 1)
            if feature.levels:
                table = make_contrasts(len(feature.levels))
                slopes.append(
                    own @ table / np.square(table).sum(axis=0)
                )  # the columns are orthogonal
            elif feature.width:
                slopes.append(own * (feature.high - feature.low))
                intercept += float(own[0]) * (feature.low + feature.high) / 2
        return float(intercept), np.concatenate([np.empty(0), *slopes])

    def estimate_spread(self) -> Floats:
        """Returns the standard deviation of each recoded column if values fill the bounds, or the
        levels, evenly.
        """
        each = [
            np.sqrt(np.square(make_contrasts(len(f.levels))).mean(axis=0))
            if f.levels
            else np.full(f.width, UNIFORM_DEVIATION)
            for f in self.features
        ]
        return np.concatenate([np.empty(0), *each])

    @property
    def names(self) -> list[str]:
        """Names of the coefficients: a number's own, a factor's level by level."""
        return [
            n
            for f in self.features
            for n in ([f"{f.name}={level}" for level in f.levels] or [f.name])
        ]

    def to_dict(self) -> list[dict[str, Any]]:
        """The recoding as public JSON."""
        return [
            {"name": f.name, "levels": list(f.levels)}
            if f.levels
            else {"name": f.name, "low": f.low, "high": f.high, "missing": f.missing}
            for f in self.features
        ]

    @classmethod
    def from_dict(cls, content: list[dict[str, Any]]) -> Recoding:
        """Reads a recoding back from a release."""
        features = tuple(
            Feature(**{**entry, "levels": tuple(entry.get("levels", ()))}) for entry in content
        )
        if not all(feature.is_sound for feature in features):
            raise ValueError  # whoever reads a release says so
        return cls(features)


@dataclass(frozen=True, eq=False)
class UnitBall:
    """Recoded rows z brought into the unit ball by public numbers: (c, √(1−c²)·u/max(R, ‖u‖)), u =
    (z − middle)/spread.

    A row that is longer than R is shortened to it; its direction stays.
    """

    middle: Floats
    spread: Floats
    radius: float  # R
    intercept: float  # c; 0 without one, and then there is no column for it
    bits: int | None = None  # entries are cut to whole multiples of 2^−bits

    @property
    def width(self) -> int:
        """The number of coordinates, the intercept's included."""
        return len(self.middle) + (self.intercept > 0)

    @property
    def _share(self) -> float:
        return math.sqrt(1 - self.intercept**2) * ROUNDING_MARGIN

    def rows(self, Z: Floats) -> Floats:
        """Returns one row of norm at most 1 for each row of Z."""
        rows = np.empty((len(Z), self.width))
        rows[:, : self.width - len(self.middle)] = self.intercept * ROUNDING_MARGIN
        u = np.ascontiguousarray(
            (Z - self.middle) / self.spread
        )  # the last bits of einsum go by the layout
        norm = np.sqrt(np.einsum("ij,ij->i", u, u))
        cut = (self._share / np.maximum(norm, self.radius))[:, None]
        np.multiply(u, cut, out=rows[:, self.width - len(self.middle) :])
        if self.bits is not None:
            rows *= 2.0**self.bits
            np.trunc(rows, out=rows)  # towards zero, which makes no row longer
            rows *= 2.0**-self.bits
        return rows

    def encode(self, raw: Floats, recoding: Recoding) -> Floats:
        """Returns such rows from raw features, a cacheful at a time."""
        rows = np.empty((len(raw), self.width))
        for at in range(0, len(raw), BLOCK_ROWS):
            rows[at : at + BLOCK_ROWS] = self.rows(recoding.encode(raw[at : at + BLOCK_ROWS]))
        return rows

    def to_original_units(self, theta: Floats) -> tuple[float, Floats]:
        """Returns the intercept and slopes for z of a linear function θ of rows that are not too
        long.
        """
        slopes = theta[self.width - len(self.middle) :] * self._share / (self.radius * self.spread)
        if self.intercept > 0:
            intercept = float(theta[0]) * self.intercept * ROUNDING_MARGIN
        else:
            intercept = 0.0
        return float(intercept - slopes @ self.middle), np.asarray(slopes, dtype=np.float64)

    def margins(self, Z: Floats, intercept: float, slopes: Floats) -> Floats:
        """Returns what a linear function of z, as ``to_original_units`` gives it, says about
        rows after they are cut.
        """
        away = Z - self.middle
        norm = np.sqrt(np.square(away / self.spread).sum(axis=1))
        return np.asarray(
            intercept
            + self.middle @ slopes
            + away @ slopes * (self.radius / np.maximum(norm, self.radius))
        )

    def to_dict(self) -> dict[str, Any]:
        """The numbers as public JSON."""
        return {
            "middle": self.middle.tolist(),
            "spread": self.spread.tolist(),
            "radius": self.radius,
            "intercept": self.intercept,
            "bits": self.bits,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> UnitBall:
        """Reads the numbers back from a plan."""
        middle = np.array(content["middle"])
        spread = np.array(content["spread"])
        return cls(middle, spread, content["radius"], content["intercept"], content["bits"])


def make_contrasts(levels: int) -> Floats:
    """Returns the K×(K−1) table of orthogonal contrasts, the largest entry of each column ½."""
    if levels & (levels - 1) == 0:
        return np.asarray(scipy.linalg.hadamard(levels)[:, 1:] / 2, dtype=np.float64)
    table = scipy.linalg.helmert(levels).T
    return np.asarray(table / (2 * np.abs(table).max(axis=0)), dtype=np.float64)


def describe_model(recoding: Recoding, intercept: float, slopes: Floats) -> dict[str, Any]:
    """Returns a linear function of recoded features in their own units, as public JSON."""
    intercept, coefficients = recoding.to_original_units(intercept, slopes)
    named = dict(zip(recoding.names, coefficients.tolist(), strict=True))
    return {"intercept": intercept, "coefficients": named}


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
    """Rows of the unit ball, as a classifier reads them: brought there on entry, or batch by
    batch.
    """

    ball: UnitBall
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


def make_label(question: Any, column: str = VALUE) -> Label:
    """Returns how a regression reads its label; a constant that the schema declares for it goes
    before ``missing``.
    """
    low, high = to_interval(question.bounds)
    if isinstance(question.bounds, Schema):
        own = question.bounds.columns[question.bounds.require_label()].missing
    else:
        own = None
    return Label(
        column,
        low,
        high,
        check_missing_constant(question.missing if own is None else own, low, high),
    )


def make_recoding(bounds: Any, X: Any, missing: Any = None) -> Recoding:
    """Returns the recoding of the features as declared; X, a table or a number, only tells how many
    there are.

    ``missing`` stands for missing numbers in features for which a schema declares no constant of
    their own.
    """
    return _set_missing_constant(_make_recoding(bounds, X), missing)


def count_declared_columns(bounds: Any, missing: Any = None) -> int:
    """Returns how many recoded columns a schema describes; 0 with Bounds, where a table tells.

    Refuses bounds of features that no table could make right.
    """
    if isinstance(bounds, Schema):
        return make_recoding(bounds, None, missing).width
    if not isinstance(bounds, Bounds):
        raise _no_bounds_error()
    return 0


def _no_bounds_error() -> InvalidBounds:
    return InvalidBounds(
        "Bounds are missing.",
        "Limits of the features are needed, from public knowledge, and of a label that is a "
        "number.",
        "Pass bounds=sv.Bounds(features=(low, high), label=(lo, hi)), or a Schema.",
        parameter="bounds",
    )


def _set_missing_constant(recoding: Recoding, missing: Any) -> Recoding:
    if missing is None:
        return recoding
    return Recoding(
        tuple(
            feature
            if feature.levels or feature.missing is not None
            else replace(
                feature, missing=check_missing_constant(missing, feature.low, feature.high)
            )
            for feature in recoding.features
        )
    )


def _make_recoding(bounds: Any, X: Any) -> Recoding:
    if isinstance(bounds, Schema):
        return Recoding.of_schema(bounds)
    if not isinstance(bounds, Bounds):
        raise _no_bounds_error()
    if isinstance(X, tuple):  # the names of columns, of a table that lives elsewhere
        return Recoding.of_bounds(bounds, list(X), len(X))
    return Recoding.of_bounds(bounds, list_feature_names(X), _count_features(X, bounds))


def _count_features(X: Any, bounds: Bounds) -> int:
    if isinstance(X, Integral):
        count = int(X)
        if not 0 < count < MAX_FEATURES:
            raise InvalidParameter(
                "n_features is not a number of features.",
                "",
                "Pass a whole number above 0.",
                parameter="n_features",
            )
        return count
    if X is not None:
        if count_dimensions(X) == 2:
            return int(np.shape(X)[1])
        return int(to_matrix(X, None).shape[1])
    sizes = [np.size(limit) for limit in bounds.features or () if np.ndim(limit)]
    if not sizes:
        raise InvalidParameter(
            "The number of features is not known.",
            "",
            "Pass n_features=, or bounds for each feature.",
            parameter="n_features",
        )
    return int(sizes[0])
