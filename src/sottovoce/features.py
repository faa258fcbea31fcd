# SPDX-License-Identifier: Apache-2.0
"""Features of a batch as a matrix, and what regressions sum over them.

A reader turns a batch into the recoded matrix Z, entries in [−½, ½]. In memory the matrix is recoded
once and lies in one list column; in files it is recoded batch by batch from named columns.

    symbol        name
    φ = (½, z)    a row with its intercept column
    v_i           loudness of a row, by kind (in units of ε a row)
    ρ, ψ, ψ'      loss, its derivative, its curvature (solvers/huber.py)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sottovoce.recoding import Recoding
from sottovoce.statistics import Owner, as_floats
from sottovoce.table import Array

Floats = NDArray[np.float64]
MATRIX = "features"
#: Rows that are worked on at a time, so that the work stays in the cache.
PIECE = 2**13


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
class Recoded:
    """A matrix that was recoded on entry and lies in one list column."""

    recoding: Recoding

    @property
    def columns(self) -> tuple[str, ...]:
        """The list column, or none where every feature can have one value only."""
        return (MATRIX,) if self.width else ()

    @property
    def width(self) -> int:
        """The number of recoded columns, p."""
        return self.recoding.width

    def matrix(self, batch: Any) -> Floats:
        """Returns Z without a copy."""
        if not self.width:
            return np.empty((len(batch), 0))
        return np.asarray(batch.column(MATRIX).flatten().to_numpy().reshape(len(batch), self.width))


@dataclass(frozen=True)
class NoFeatures:
    """No features at all: a constant is fitted."""

    width: int = 0
    columns: tuple[str, ...] = ()

    def matrix(self, batch: Any) -> Floats:
        """Returns a matrix without columns."""
        return np.empty((len(batch), 0))


@dataclass(frozen=True)
class Named:
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
        """Returns Z, recoded from the named columns; a declared constant stands for missing numbers."""
        raw = np.empty((len(batch), len(self.columns)), order="F")
        for j, feature in enumerate(self.recoding.features):
            column = batch.column(feature.name)
            raw[:, j] = level_numbers(column, feature.levels) if feature.levels else as_floats(column)
            if feature.missing is not None:
                raw[np.isnan(raw[:, j]), j] = feature.missing
        return self.recoding.recoded(raw)


def level_numbers(column: Any, levels: tuple[str, ...]) -> Floats:
    """Returns the number of each entry's level, −1 where it was not declared (or is missing)."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):  # a level written as 1 is often stored as 1.0, where a column has gaps
        whole = pc.equal(column, pc.floor(column)).fill_null(False)
        text = pc.if_else(
            whole, pc.floor(column).cast(pa.int64(), safe=False).cast(pa.string()), column.cast(pa.string())
        )
    else:
        text = column.cast(pa.string())
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
        return self.scaled(raw)

    def scaled(self, raw: Floats) -> Floats:
        """Returns (y − middle)/half-range after clipping."""
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return np.clip((np.clip(raw, self.low, self.high) - middle) / half, -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class UnfitRows:
    """Whether features or label hold anything that the declaration does not allow: yes or no, never where."""

    reader: Reader
    label: Label
    owner: Owner
    heard: NDArray[np.bool_]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> int:
        """No rows, nothing unfit."""
        return 0

    def __call__(self, batch: Any) -> int:
        """Returns 1 if anything is missing or infinite."""
        heard = self.heard[self.owner.kinds(batch)]
        raw = as_floats(batch.column(self.label.column))
        unfit = ~np.isfinite(raw) if self.label.missing is None else np.isinf(raw)
        return int(bool(np.any(unfit[heard])) or not np.isfinite(self.reader.matrix(batch)[heard]).all())


@dataclass(frozen=True, eq=False)
class Terms:
    """Sums over rows: Σvρ, Σvψφ and Σvψ'φφᵀ."""

    value: float
    gradient: Array
    curvature: Array

    def __add__(self, other: Terms) -> Terms:
        return Terms(self.value + other.value, self.gradient + other.gradient, self.curvature + other.curvature)


@dataclass(frozen=True, eq=False)
class HuberTerms:
    """The data's part of the objective at θ; ``extended`` sums the gradient in the longest float there is."""

    reader: Reader
    label: Label
    owner: Owner
    loudness: Floats  # of one row, by kind
    loss: Any  # solvers.huber.Loss: (residuals) → (ρ, ψ, ψ')
    theta: Array
    extended: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> Terms:
        """Sums over no rows."""
        d = self.reader.width + 1
        return Terms(0.0, np.zeros(d, dtype=self.theta.dtype), np.zeros((d, d)))

    def __call__(self, batch: Any) -> Terms:
        """Returns the sums over the batch, a cacheful of rows at a time."""
        return sum((self._piece(batch.slice(at, PIECE)) for at in range(0, len(batch), PIECE)), start=self.zero())

    def _piece(self, batch: Any) -> Terms:
        v = self.loudness[self.owner.kinds(batch)]
        Z, y = self.reader.matrix(batch), self.label.values(batch)
        if not v.all():  # rows of people left out are not read
            v, Z, y = v[v > 0], Z[v > 0], y[v > 0]
        return self._extended(v, Z, y) if self.extended else self._plain(v, Z, y)

    def _plain(self, v: Floats, Z: Floats, y: Floats) -> Terms:
        rho, psi, curvature = self.loss(y - self.theta[0] / 2 - Z @ self.theta[1:])
        pull, bend = v * psi, v * curvature
        slopes = Z.T @ bend / 2
        gradient = np.concatenate([[pull.sum() / 2], Z.T @ pull])
        corner = np.array([[bend.sum() / 4]])
        matrix = np.block([[corner, slopes[None, :]], [slopes[:, None], (Z * bend[:, None]).T @ Z]])
        return Terms(float(v @ rho), gradient, matrix)

    def _extended(self, v: Floats, Z: Floats, y: Floats) -> Terms:
        long = np.longdouble
        fitted = self.theta[0] / 2 + sum(
            (Z[:, j].astype(long) * self.theta[j + 1] for j in range(Z.shape[1])), start=np.zeros(len(Z), dtype=long)
        )
        _, psi, _ = self.loss(y.astype(long) - fitted)
        pull = v.astype(long) * psi
        # One contiguous column at a time: NumPy then sums pairwise, and the error grows with log n.
        sums = [(pull / 2).sum(), *((pull * Z[:, j]).sum() for j in range(Z.shape[1]))]
        d = len(self.theta)
        return Terms(0.0, np.array(sums, dtype=long), np.zeros((d, d)))


@dataclass(frozen=True, eq=False)
class ResidualHistogram:
    """Σ weight over rows whose residual y − φᵀθ falls in each cell of a public grid; exact whole numbers."""

    reader: Reader
    label: Label
    owner: Owner
    weights: NDArray[np.int64]  # of one row, by kind; they must add up to less than 2^62
    grid: Any  # a statistics.Quantiser
    theta: Floats

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> NDArray[np.int64]:
        """The histogram of no rows."""
        return np.zeros(self.grid.cells + 1, dtype=np.int64)

    def __call__(self, batch: Any) -> NDArray[np.int64]:
        """Returns the exact weight in each cell."""
        weights = self.weights[self.owner.kinds(batch)]
        heard = weights > 0
        residuals = self.label.values(batch) - self.theta[0] / 2 - self.reader.matrix(batch) @ self.theta[1:]
        total = self.zero()
        np.add.at(total, self.grid.integers(residuals[heard]).astype(np.int64), weights[heard])
        return total
