# SPDX-License-Identifier: Apache-2.0
"""What regressions and classifiers sum over rows at a point θ: loss, gradient, curvature, and residuals.

symbol        name
φ             a row: (½, z) for a regression, a point of the unit ball for a classifier
v_i           loudness of a row, by kind
ρ, ψ, ψ'      loss of a residual, its derivative, its curvature (solvers/huber.py)
s             σ(−y·φᵀθ), how much a classifier doubts the label
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.features import ClassLabel, Label, Reader
from sottovoce.recoding import GRID_BITS
from sottovoce.statistics import Owner
from sottovoce.table import Array

Floats = NDArray[np.float64]
#: Rows that are worked on at a time, so that the work stays in the cache.
PIECE = 2**13


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
class LogisticTerms:
    """Σ v·log(1+e^(−yφᵀθ)), minus its gradient, and its curvature, for one class against the others."""

    reader: Reader
    label: ClassLabel
    owner: Owner
    loudness: Floats  # of one row, by kind
    positive: int  # the class that counts as +1
    theta: Array
    extended: bool = False
    stride: int = 1  # only every so many rows, for a first guess

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> Terms:
        """Sums over no rows."""
        d = self.reader.width
        return Terms(0.0, np.zeros(d, dtype=self.theta.dtype), np.zeros((d, d)))

    def __call__(self, batch: Any) -> Terms:
        """Returns the sums over the batch, a cacheful of rows at a time."""
        step = PIECE * self.stride
        return sum((self._piece(batch.slice(at, step)) for at in range(0, len(batch), step)), start=self.zero())

    def _piece(self, batch: Any) -> Terms:
        every = slice(None, None, self.stride)
        v = self.loudness[self.owner.kinds(batch)][every]
        phi, y = self.reader.matrix(batch)[every], self.label.signs(batch, self.positive)[every]
        if not v.all():  # rows of people left out are not read
            v, phi, y = v[v > 0], phi[v > 0], y[v > 0]
        return self._extended(v, phi, y) if self.extended else self._plain(v, phi, y)

    def _plain(self, v: Floats, phi: Floats, y: Floats) -> Terms:
        loss, doubt = _log_loss(y * (phi @ self.theta))
        # Rows scaled by the root of their curvature: a product with its own transpose takes half the work.
        rooted = phi * np.sqrt(v * doubt * (1 - doubt))[:, None]
        return Terms(float(v @ loss), (v * doubt * y) @ phi, rooted.T @ rooted)

    def _extended(self, v: Floats, phi: Floats, y: Floats) -> Terms:
        d = len(self.theta)
        margin = _product(phi, self.theta, FRACTION - (d - 1).bit_length())
        pull = v * y * _doubt(y * margin)
        return Terms(0.0, _product(phi.T, pull, FRACTION - (PIECE - 1).bit_length()), np.zeros((d, d)))


#: Rows of the ball are whole multiples of 2^−23 (recoding.GRID_BITS), so a product with so many bits fits a double.
FRACTION = 53 - GRID_BITS
#: Bits of a long vector that are kept: all that it has, and some for entries that are smaller than the largest.
KEPT = 84


def _product(matrix: Floats, vector: Array, bits: int) -> Array:
    """Returns matrix @ vector for a long vector, cut into parts of few bits whose products doubles hold exactly."""
    largest = float(np.abs(vector).max(initial=0))
    top, rest, parts = int(np.frexp(largest)[1]), vector, []
    for cut in range(-(-KEPT // bits)):
        unit = np.ldexp(np.longdouble(1), top - bits * (cut + 1))
        part = np.rint(rest / unit) * unit
        parts.append(part.astype(np.float64))
        rest = rest - part
    return np.asarray((matrix @ np.column_stack(parts)).astype(np.longdouble).sum(axis=1))


def _log_loss(margin: Array) -> tuple[Array, Array]:
    """Returns log(1 + e^−m) and 1/(1 + e^m), with no overflow."""
    return np.log1p(np.exp(-np.abs(margin))) + np.maximum(-margin, 0), _doubt(margin)


def _doubt(margin: Array) -> Array:
    """Returns 1/(1 + e^m), with no overflow, in the margin's own precision."""
    small = np.exp(-np.abs(margin))
    return np.asarray(np.where(margin > 0, small, 1) / (1 + small))


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
