# SPDX-License-Identifier: Apache-2.0
"""Public recoding: features as people know them, to centred columns of one size, and back
(docs/theory/recoding.md).

A number in [low, high] becomes (x − middle)/(high − low) in [−½, ½]; a factor of K levels becomes
K−1 orthogonal contrast columns with entries in [−½, ½] (Hadamard where K is a power of two), never
a redundant one-hot; the intercept is a column of its own. Columns that can only have one value are
dropped. Everything is fixed by the declared bounds or schema, so the user never sees it:
coefficients and predictions come back in their own units. A level that was not declared stands for
none of the levels: all its contrasts are 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from sottovoce.arrays import Floats
from sottovoce.errors import InvalidBounds, InvalidData, InvalidSchema
from sottovoce.schema import Bounds, Schema

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

    @property
    def squared_length(self) -> float:
        """No row is longer than the root of this."""
        return 1.0

    @property
    def longest(self) -> float:
        """The norm of u in the corner of the bounds that is farthest from the middle."""
        return math.sqrt(float(np.square((0.5 + np.abs(self.middle)) / self.spread).sum()))

    def rows(self, Z: Floats, *, cut: bool = True) -> Floats:
        """Returns one row of norm at most 1 for each row of Z; without ``cut`` rows stay as long
        as they are.
        """
        rows = np.empty((len(Z), self.width))
        rows[:, : self.width - len(self.middle)] = self.intercept * ROUNDING_MARGIN
        u = np.ascontiguousarray(
            (Z - self.middle) / self.spread
        )  # the last bits of einsum go by the layout
        if cut:
            norm = np.sqrt(np.einsum("ij,ij->i", u, u))
            scale = (self._share / np.maximum(norm, self.radius))[:, None]
        else:
            scale = np.full((1, 1), self._share / self.radius)
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
        rows = np.full((len(Z), self.width), 0.5)
        own = rows[:, self.width - self.slopes :]
        np.multiply(Z, 2.0**self.bits, out=own)
        np.trunc(own, out=own)  # towards zero, which leaves every entry in the box
        own *= 2.0**-self.bits
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
    """Returns rows of a ball or box from raw features, a cacheful at a time."""
    rows = np.empty((len(raw), body.width))
    for at in range(0, len(raw), BLOCK_ROWS):
        rows[at : at + BLOCK_ROWS] = body.rows(recoding.encode(raw[at : at + BLOCK_ROWS]))
    return rows


def make_contrasts(levels: int) -> Floats:
    """Returns the K×(K−1) table of orthogonal contrasts, the largest entry of each column ½."""
    if levels & (levels - 1) == 0:
        return np.asarray(scipy.linalg.hadamard(levels)[:, 1:] / 2, dtype=np.float64)
    table = scipy.linalg.helmert(levels).T
    return np.asarray(table / (2 * np.abs(table).max(axis=0)), dtype=np.float64)
