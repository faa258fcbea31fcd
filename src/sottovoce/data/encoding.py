# SPDX-License-Identifier: Apache-2.0
"""Features and label as numbers: how they are declared, how they are recoded, and how they are
read of a batch (docs/theory/recoding.md).

**Recoding**: features as people know them, to centred columns of one size, and back. A number in
[low, high] becomes (x − middle)/(high − low) in [−½, ½]; a factor of K levels becomes K−1
orthogonal contrast columns with entries in [−½, ½] (Hadamard where K is a power of two), never a
redundant one-hot; the intercept is a column of its own. Columns that can only have one value are
dropped. Rows longer than a declared norm are shortened to it before. Everything is fixed by the
declared bounds or schema, so the user never sees it: coefficients and predictions come back in
their own units. A level that was not declared stands for
none of the levels: all its contrasts are 0.

**Readers** turn a batch into the recoded matrix Z, entries in [−½, ½], or, for a classifier, into
rows of the unit ball. In memory the matrix is recoded once and lies in one list column; in files it
is recoded batch by batch from named columns.

``make_label`` and ``make_recoding`` are the way from what an estimator was told to both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sottovoce.arrays import (
    Array,
    Floats,
    combine_columns,
    count_dimensions,
    list_feature_names,
    spell_truths,
    to_matrix,
)
from sottovoce.data.engine import ArrayBatch, GroupLookup, as_floats, cut_batch
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
#: Added and taken away again, it rounds numbers of at most ½ to whole multiples of 2^−24.
ROUNDER = 1.5 * 2.0**28
#: Rows of the ball stay this far inside it, so that rounding brings none beyond.
ROUNDING_MARGIN = 1 - 1e-12
#: The standard deviation of a number that fills its bounds evenly.
UNIFORM_DEVIATION = 1 / math.sqrt(12)
#: How much longer than a norm a row may be by rounding alone.
CORNER_ROUNDING = 1e-12
#: Rows that are worked on at a time, so that the work stays in the cache.
BLOCK_ROWS = 2**13
#: Numbers that are recoded at a time.
BLOCK_NUMBERS = 2**17


@dataclass(frozen=True)
class Feature:
    """One declared column: a number with limits, or a factor with levels."""

    name: str
    low: float = 0.0
    high: float = 1.0
    levels: tuple[str, ...] = ()
    missing: float | None = None
    norm: float | None = None  # the numbers of a row that have one are no longer than it, together

    @property
    def width(self) -> int:
        """How many recoded columns it becomes."""
        if self.levels:
            return max(len(self.levels) - 1, 0)
        return int(self.high > self.low)

    @property
    def is_sound(self) -> bool:
        """Whether limits are numbers in order, and names and levels text."""
        others = (limit for limit in (self.missing, self.norm) if limit is not None)
        limits = (self.low, self.high, *others)
        numbers = all(isinstance(limit, int | float) and math.isfinite(limit) for limit in limits)
        return (
            numbers
            and self.low <= self.high
            and (self.norm is None or self.norm > 0)
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
        if bounds.box is None and bounds.norm is None:
            raise InvalidBounds(
                "Bounds of the features are missing.",
                "Each feature needs a lowest and a highest possible value, from public knowledge.",
                "Pass bounds=sv.Bounds(features=(low, high), label=(lo, hi)).",
                parameter="bounds",
            )
        box: Any = bounds.box if bounds.box is not None else (-(bounds.norm or 0.0), bounds.norm)
        low, high = (np.atleast_1d(np.asarray(limit, dtype=np.float64)) for limit in box)
        named = bounds.names is not None
        if {len(low), len(high)} - ({count} if named else {1, count}):
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
            if name in others or not column.is_feature:
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
                features.append(Feature(name, low, high, missing=column.missing_number))
        if not features:
            raise InvalidSchema(
                "The schema describes no features.",
                "",
                "Describe the columns to regress on.",
                parameter="schema.columns",
            )
        return cls(tuple(features))

    @cached_property
    def width(self) -> int:
        """The number of recoded columns, p."""
        return sum(feature.width for feature in self.features)

    @cached_property
    def norm(self) -> float | None:
        """The declared length that numbers of a row have at most, together; None without one."""
        return next((feature.norm for feature in self.features if not feature.levels), None)

    @property
    def fills_ball(self) -> bool:
        """Whether a norm is declared, and every number may be as large as it, either way: recoded
        numbers of a row are then at most ½ long together, and nothing else is known of them.
        """
        if self.norm is None:
            return False
        numbers = [feature for feature in self.features if not feature.levels]
        return all((f.low, f.high) == (-self.norm, self.norm) for f in numbers)

    def declare_norm(self, norm: float) -> Recoding:
        """Returns the recoding of rows that are shortened to this length; the same one where no row
        within the bounds is longer.
        """
        numbers = [feature for feature in self.features if not feature.levels]
        farthest = math.hypot(*(max(abs(f.low), abs(f.high)) for f in numbers))
        if farthest <= norm * (1 + CORNER_ROUNDING):
            return self
        if math.hypot(*(max(f.low, -f.high, 0.0) for f in numbers)) > norm:
            raise InvalidBounds(
                "Every row within the bounds of the features is longer than the norm.",
                "Rows are shortened to the norm, which would bring all of them out of the bounds.",
                "Declare a larger norm, or bounds that lie nearer to zero.",
                parameter="bounds",
            )
        return Recoding(
            tuple(f if f.levels else _limit_length(f, float(norm)) for f in self.features)
        )

    def shorten(self, raw: Floats) -> Floats:
        """Returns raw rows of which none is longer than the norm, by a factor for each; rows that
        are not finite stay.

        The factor is computed entry by entry, so that it does not depend on where a row stands.
        """
        if self.norm is None:
            return raw
        numbers = [j for j, feature in enumerate(self.features) if not feature.levels]
        largest = np.zeros(len(raw))
        for j in numbers:
            np.maximum(largest, np.abs(raw[:, j]), out=largest)
        # In units of the largest number no square overflows.
        usable = np.isfinite(largest) & (largest > 0)
        unit = np.where(usable, largest, 1.0)
        squares = np.zeros(len(raw))
        for j in numbers:
            part = raw[:, j] / unit
            squares += part * part
        length = np.sqrt(squares)
        longer = np.flatnonzero(usable & (length > self.norm / unit))
        if not len(longer):
            return raw
        shortened = np.array(raw, dtype=np.float64)
        factor = self.norm / length[longer]
        for j in numbers:
            shortened[longer, j] = raw[longer, j] / unit[longer] * factor
        return shortened

    def encode(self, raw: Floats, *, spent: bool = False) -> Floats:
        """Returns the recoded matrix, entries in [−½, ½], from the raw one, a column a feature;
        ``spent``: in place.
        """
        self.refuse_wrong_width(raw)
        infinite = None
        if not is_sum_finite(raw):
            infinite = np.isinf(raw).any(axis=1)
        raw = self.shorten(raw)
        if self._all_numbers:
            recoded = self._encode_numbers(raw, raw if spent else None)
        else:
            recoded = np.hstack(
                [feature.encode(raw[:, j]) for j, feature in enumerate(self.features)]
            )
        if infinite is not None:  # refused like a missing value, not clipped: mark its row
            recoded[infinite] = np.nan
        return recoded

    def refuse_wrong_width(self, raw: Floats) -> None:
        """Refuses a raw matrix that has not a column for each feature."""
        if raw.shape[1] != len(self.features):
            raise InvalidData(
                "The table has another number of features than declared.",
                "",
                "Pass the declared columns.",
                parameter="X",
            )

    @cached_property
    def _all_numbers(self) -> bool:
        """Whether every feature is a number that can have several values."""
        factors = any(feature.levels for feature in self.features)
        return not factors and self.width == len(self.features)

    @cached_property
    def _limits(self) -> tuple[Floats, Floats]:
        low, high = (
            np.array([getattr(f, side) for f in self.features]) for side in ("low", "high")
        )
        return low, high

    def _encode_numbers(self, raw: Floats, out: Floats | None) -> Floats:
        if out is None:
            out = np.empty_like(raw)
        low, high = self._limits
        with np.errstate(over="ignore"):  # what overflows lies beyond the bounds
            combine_columns(np.subtract, raw, (low + high) / 2, out)
            combine_columns(np.divide, out, high - low, out)
        return np.clip(out, -0.5, 0.5, out=out)

    def widen_around_zero(self) -> Recoding:
        """Returns the recoding whose numbers lie between −m and m, m the larger size of their
        bounds: a recoded column is then a multiple of the feature itself.
        """
        return Recoding(
            tuple(
                f
                if f.levels
                else replace(
                    f, low=-max(abs(f.low), abs(f.high)), high=max(abs(f.low), abs(f.high))
                )
                for f in self.features
            )
        )

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
        return [_describe_feature(feature) for feature in self.features]

    @classmethod
    def from_dict(cls, content: list[dict[str, Any]]) -> Recoding:
        """Reads a recoding back from a release."""
        features = tuple(
            Feature(**{**entry, "levels": tuple(entry.get("levels", ()))}) for entry in content
        )
        if not all(feature.is_sound for feature in features):
            raise ValueError  # whoever reads a release says so
        return cls(features)


def _limit_length(feature: Feature, norm: float) -> Feature:
    """Returns a number of rows that are at most so long; its bounds come closer where 0 is between
    them, as nothing of a shortened row is larger than its norm.
    """
    low, high = (feature.low, feature.high)
    if low <= 0 <= high:
        low = max(low, -norm)
        high = min(high, norm)
    return replace(feature, low=low, high=high, norm=norm)


def _describe_feature(feature: Feature) -> dict[str, Any]:
    if feature.levels:
        return {"name": feature.name, "levels": list(feature.levels)}
    told: dict[str, Any] = {
        "name": feature.name,
        "low": feature.low,
        "high": feature.high,
        "missing": feature.missing,
    }
    if feature.norm is not None:
        told["norm"] = feature.norm
    return told


@dataclass(frozen=True, eq=False)
class UnitBall:
    """Recoded rows z brought into the unit ball by public numbers: (c, √(1−c²)·u/max(R, ‖u‖)), u =
    (z − middle)/spread.

    A row that is longer than R is shortened to it; its direction stays. With ``whole`` the constant
    is shortened with it: φ = (c, √(1−c²)·u/R) becomes φ/max(1, ‖φ‖), which lies on the same side of
    every plane through the origin.
    """

    middle: Floats
    spread: Floats
    radius: float  # R
    intercept: float  # c; 0 without one, and then there is no column for it
    bits: int | None = None  # entries are cut to whole multiples of 2^−bits
    whole: bool = False

    @property
    def width(self) -> int:
        """The number of coordinates, the intercept's included."""
        return len(self.middle) + (self.intercept > 0)

    @property
    def _share(self) -> float:
        return math.sqrt(1 - self.intercept**2) * ROUNDING_MARGIN

    @property
    def squared_length(self) -> float:
        """No row is longer than the root of this."""
        return 1.0

    @property
    def longest(self) -> float:
        """The norm of u in the corner of the bounds that is farthest from the middle."""
        return math.sqrt(float(np.square((0.5 + np.abs(self.middle)) / self.spread).sum()))

    @property
    def shortens(self) -> bool:
        """Whether a row within the bounds may be too long."""
        if self.whole:
            share = math.sqrt(1 - self.intercept**2) / self.radius
            return math.hypot(self.intercept, share * self.longest) > 1
        return self.radius < self.longest

    def rows(self, Z: Floats, *, cut: bool = True) -> Floats:
        """Returns one row of norm at most 1 for each row of Z; without ``cut`` rows stay as long
        as they are.
        """
        rows = np.empty((len(Z), self.width))
        rows[:, : self.width - len(self.middle)] = self.intercept * ROUNDING_MARGIN
        u = np.empty(Z.shape)  # in one layout: the last bits of einsum go by it
        combine_columns(np.subtract, Z, self.middle, u)
        combine_columns(np.divide, u, self.spread, u)
        scale = np.full((1, 1), self._share / self.radius)
        if cut:
            norm = np.sqrt(np.einsum("ij,ij->i", u, u))
            if self.whole:
                share = math.sqrt(1 - self.intercept**2) / self.radius
                longer = np.maximum(np.hypot(self.intercept, share * norm), 1.0)[:, None]
                scale = scale / longer
                rows[:, : self.width - len(self.middle)] /= longer
            else:
                scale = (self._share / np.maximum(norm, self.radius))[:, None]
        np.multiply(u, scale, out=rows[:, self.width - len(self.middle) :])
        if self.bits is not None:
            rows *= 2.0**self.bits
            np.trunc(rows, out=rows)  # towards zero, which makes no row longer
            rows *= 2.0**-self.bits
        return rows

    def encode(self, raw: Floats, recoding: Recoding) -> Floats:
        """Returns such rows from raw features, a cacheful at a time."""
        return encode_rows(self, raw, recoding)

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
        rows after they are cut: the predictions of classifiers of version 0.1.
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
        told = {
            "middle": self.middle.tolist(),
            "spread": self.spread.tolist(),
            "radius": self.radius,
            "intercept": self.intercept,
            "bits": self.bits,
        }
        if self.whole:
            told["whole"] = True
        return told

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> UnitBall:
        """Reads the numbers back from a plan."""
        return cls(
            np.array(content["middle"]),
            np.array(content["spread"]),
            content["radius"],
            content["intercept"],
            content["bits"],
            content.get("whole", False),
        )


@dataclass(frozen=True)
class CentredBox:
    """Recoded rows as they are, (½, z) with every entry in [−½, ½]: nothing is cut."""

    slopes: int  # p
    intercept: bool  # whether there is a column of ½
    bits: int = GRID_BITS  # entries are cut to whole multiples of 2^−bits

    @property
    def width(self) -> int:
        """The number of coordinates, the intercept's included."""
        return self.slopes + self.intercept

    @property
    def squared_length(self) -> float:
        """No row is longer than the root of this."""
        return self.width / 4

    def rows(self, Z: Floats) -> Floats:
        """Returns one row with entries of at most ½ for each row of Z."""
        own = Z * 2.0**self.bits
        np.trunc(own, out=own)  # towards zero, which leaves every entry in the box
        own *= 2.0**-self.bits
        if not self.intercept:
            return own
        rows = np.empty((len(Z), self.width))
        rows[:, 0] = 0.5
        rows[:, 1:] = own
        return rows

    def encode(self, raw: Floats, recoding: Recoding) -> Floats:
        """Returns such rows from raw features, a cacheful at a time."""
        return encode_rows(self, raw, recoding)

    def to_original_units(self, theta: Floats) -> tuple[float, Floats]:
        """Returns the intercept and slopes for z of a linear function θ of rows."""
        slopes = np.asarray(theta[self.width - self.slopes :], dtype=np.float64)
        if self.intercept:
            return float(theta[0]) / 2, slopes
        return 0.0, slopes

    def to_dict(self) -> dict[str, Any]:
        """The numbers as public JSON."""
        return {"slopes": self.slopes, "intercept": self.intercept, "bits": self.bits}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> CentredBox:
        """Reads the numbers back from a plan."""
        return cls(content["slopes"], content["intercept"], content["bits"])


def encode_rows(body: UnitBall | CentredBox, raw: Floats, recoding: Recoding) -> Floats:
    """Returns rows of a ball or box from raw features, a cacheful at a time; entries of so few bits
    that floats of four bytes hold them are kept in these.
    """
    fits = body.bits is not None and body.bits <= GRID_BITS
    rows = _make_matrix(len(raw), body.width, short=fits)
    size = choose_block_rows(raw.shape[1])
    for at in range(0, len(raw), size):
        rows[at : at + size] = body.rows(recoding.encode(raw[at : at + size]))
    return rows


def encode_numbers(raw: Floats, recoding: Recoding, *, rounded: bool) -> Floats:
    """Returns recoded features, a cacheful at a time; ``rounded`` to whole multiples of 2^−24."""
    recoded = _make_matrix(len(raw), recoding.width, short=rounded)
    size = choose_block_rows(raw.shape[1])
    for at in range(0, len(raw), size):
        some = recoding.encode(raw[at : at + size])
        if rounded:
            some += ROUNDER
            some -= ROUNDER
        recoded[at : at + size] = some
    return recoded


def choose_block_rows(columns: int) -> int:
    """Returns how many rows of so many columns are recoded at a time."""
    return max(BLOCK_NUMBERS // max(columns, 1), 1)


def is_sum_finite(numbers: Floats) -> bool:
    """Whether numbers add up to a finite one: then all of them are finite, and most often they
    are; to look at each takes longer.
    """
    with np.errstate(all="ignore"):
        return bool(np.isfinite(numbers.sum()))


def _make_matrix(rows: int, columns: int, *, short: bool) -> Floats:
    """Returns an empty matrix, of floats of four bytes if short."""
    if short:
        return cast(Floats, np.empty((rows, columns), dtype=np.float32))
    return np.empty((rows, columns))


def round_to_grid(Z: Floats) -> Floats:
    """Returns recoded features rounded to whole multiples of 2^−24."""
    rounded = Z + ROUNDER
    rounded -= ROUNDER
    return rounded


def make_contrasts(levels: int) -> Floats:
    """Returns the K×(K−1) table of orthogonal contrasts, the largest entry of each column ½."""
    # Sylvester's and Helmert's matrices are written out: scipy.linalg has them, and takes longer to
    # load than a plan takes to make.
    if levels & (levels - 1) == 0:
        signs = np.ones((1, 1))
        while len(signs) < levels:
            signs = np.block([[signs, signs], [signs, -signs]])
        return np.asarray(signs[:, 1:] / 2)
    places = np.arange(1, levels)
    rows = np.tril(np.ones((levels, levels)), -1) - np.diag(np.arange(levels))
    table = (rows[1:] / np.sqrt(places * (places + 1))[:, None]).T
    return np.asarray(table / (2 * np.abs(table).max(axis=0)))


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
    """A matrix that was recoded on entry and lies in one list column; ``rounded``: to whole
    multiples of 2^−24, which floats of four bytes hold.
    """

    recoding: Recoding
    rounded: bool = False

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
        """Returns Z, without a copy unless it is rounded."""
        return np.asarray(self.read_stored(batch), dtype=np.float64)

    def read_stored(self, batch: Any) -> Array:
        """Returns the numbers as they lie in memory, which are finite where Z is."""
        if not self.width:
            return np.empty((len(batch), 0))
        return _read_stored(batch, self.width)


@dataclass(frozen=True)
class RawReader:
    """A matrix of features as they were passed, in one list column, which is recoded whenever it
    is read: for methods that read it once.
    """

    recoding: Recoding
    columns: tuple[str, ...] = (MATRIX_COLUMN,)

    @property
    def width(self) -> int:
        """The number of recoded columns, p."""
        return self.recoding.width

    def matrix(self, batch: Any) -> Floats:
        """Returns Z, recoded."""
        return self.recoding.encode(self.read_stored(batch))

    def read_stored(self, batch: Any) -> Array:
        """Returns the numbers as they lie in memory, which are finite where Z is."""
        return _read_stored(batch, len(self.recoding.features))


@dataclass(frozen=True)
class MatrixReader:
    """Rows of so many numbers on their grid that lie in one list column, as they are."""

    width: int
    columns: tuple[str, ...] = (MATRIX_COLUMN,)
    rounded: bool = True

    def matrix(self, batch: Any) -> Floats:
        """Returns the rows without a copy."""
        return _read_matrix(batch, self.width)


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
        return _read_matrix(batch, self.width)


def _read_matrix(batch: Any, width: int) -> Floats:
    """Returns the list column as float64."""
    return np.asarray(_read_stored(batch, width), dtype=np.float64)


def _read_stored(batch: Any, width: int) -> Array:
    """Returns the list column, without a copy."""
    if not isinstance(batch, ArrayBatch):
        batch = ArrayBatch.of(batch)
    stored: Array = batch.column(MATRIX_COLUMN)
    return stored.reshape(len(batch), width)


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
    if isinstance(column, np.ndarray):
        column = pa.array(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_boolean(column.type):
        text = pc.if_else(column, *spell_truths(levels))
    elif pa.types.is_floating(
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
    step: float | None = None  # the declared distance of possible values

    def values(self, batch: Any) -> Floats:
        """Returns the scaled labels."""
        raw = as_floats(batch.column(self.column))
        if self.missing is not None:
            raw = np.where(np.isnan(raw), self.missing, raw)
        return self.scale_values(raw)

    def widen_around_zero(self) -> Label:
        """Returns the label between −m and m, m the larger size of its bounds: nothing is taken
        off before it is scaled.
        """
        most = max(abs(self.low), abs(self.high))
        return replace(self, low=-most, high=most)

    def scale_values(self, raw: Floats) -> Floats:
        """Returns (y − middle)/half-range after clipping."""
        middle = (self.low + self.high) / 2
        half = (self.high - self.low) / 2
        scaled: Floats = np.clip(raw, self.low, self.high)
        scaled -= middle
        scaled /= half
        return np.clip(scaled, -1.0, 1.0, out=scaled)

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
class ScaledLabel:
    """A label that was clipped and scaled to [−1, 1] before."""

    column: str

    def values(self, batch: Any) -> Floats:
        """Returns the labels."""
        return as_floats(batch.column(self.column))


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
        signs = 2.0 * (self.codes(batch) == positive)
        signs -= 1.0
        return np.asarray(signs, dtype=np.float64)

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
        pieces = cut_batch(batch, BLOCK_ROWS)
        return sum((self._check_piece(piece) for piece in pieces), start=self.zero())

    def _check_piece(self, batch: Any) -> NDArray[np.int64]:
        rows = self._read_rows(batch)
        wrong = self.label.find_invalid(batch)
        if not self._everybody:
            participating = self.participating[self.owner.kinds(batch)]
            rows = rows[participating]
            wrong = wrong[participating]
        features = not (is_sum_finite(rows) or np.isfinite(rows).all())
        return np.array([features, wrong.any()], dtype=np.int64)

    @cached_property
    def _everybody(self) -> bool:
        return bool(self.participating.all())

    def _read_rows(self, batch: Any) -> Array:
        stored = getattr(self.reader, "read_stored", None)
        if stored is None:
            return self.reader.matrix(batch)
        found: Array = stored(batch)
        return found


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
    if bounds.names is not None:
        by_name = isinstance(X, tuple) or X is None or list_feature_names(X) is not None
        count = len(bounds.names) if by_name else _count_features(X, bounds)
        return Recoding.of_bounds(bounds, list(bounds.names), count)
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
    sizes = [np.size(limit) for limit in bounds.box or () if np.ndim(limit)]
    if not sizes:
        raise InvalidParameter(
            "The number of features is not known.",
            "",
            "Pass n_features=, or bounds for each feature.",
            parameter="n_features",
        )
    return int(sizes[0])
