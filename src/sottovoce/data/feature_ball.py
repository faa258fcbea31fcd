# SPDX-License-Identifier: Apache-2.0
"""Rows in a ball: a regression whose columns are bunched, around a centre and within a radius that
were released before (docs/theory/ball.md).

A row (½, z) with label y becomes c·(½, u) with label c·y. Of a column in the ball u = (z − μ)/(2R),
of any other u = z; c = min(1, 1/(2‖u‖₂)) over the columns in the ball. The whole row is scaled, its
constant and its label too, so that y = φᵀθ + e stays true of it with the same θ.

    symbol  name
    μ, R    centre and radius, both released
    c       share   how much of a row counts; below 1 where it lies outside of the ball
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Array, Floats, combine_columns
from sottovoce.data.encoding import (
    KIND,
    MATRIX_COLUMN,
    VALUE,
    MatrixReader,
    Reader,
    ScaledLabel,
    round_to_grid,
)
from sottovoce.data.engine import Engine, GroupLookup, cut_batch, get_default_engine
from sottovoce.data.loss_kernels import GRID_STEP, PIECE, HuberTerms, RowBlock

#: Rows stay this far inside of the ball, so that rounding brings none beyond.
MARGIN = 1 - 2.0**-40
#: A row whose size is above a bound, by up to so many steps of √2, counts 2⁻¹, 2⁻² … of itself.
MOST_HALVINGS = 62


def measure_lengths(rows: Floats) -> Floats:
    """Returns the Euclidean length of each row, which does not depend on where a row stands."""
    squares = np.einsum("ij,ij->i", rows, rows)
    return np.asarray(np.sqrt(squares, out=squares))


@dataclass(frozen=True, eq=False)
class FeatureBall:
    """A ball for some of the recoded columns."""

    columns: NDArray[np.int64]  # which of them are in it
    centre: Floats  # μ, of those columns
    radius: float  # R

    def measure_sizes(self, Z: Floats) -> Floats:
        """Returns ‖z − μ‖₂ of each row, entry by entry: it does not depend on where a row
        stands.
        """
        return measure_lengths(self._recentre(Z))

    def _recentre(self, Z: Floats) -> Floats:
        """Returns z − μ of the columns in the ball."""
        if len(self.columns) < Z.shape[1]:
            Z = Z[:, self.columns]
        away = np.empty(Z.shape)  # in one layout: the last bits of lengths go by it
        return combine_columns(np.subtract, Z, self.centre, away)

    def scale_rows(self, Z: Floats) -> tuple[Floats, Floats]:
        """Returns c of each row, and c·u, whole multiples of 2⁻²³ and of 2⁻²⁴; of the columns in
        the ball ‖c·u‖₂ ≤ ½, and |c·u| ≤ ½ of every other.
        """
        away = self._recentre(Z)
        sizes = measure_lengths(away)
        share = self.radius * MARGIN / np.maximum(sizes, self.radius * MARGIN)
        share = np.trunc(share / (2 * GRID_STEP)) * (2 * GRID_STEP)
        # In units of the grid, a power of two.
        away *= (share * (MARGIN / (2 * self.radius)) / GRID_STEP)[:, None]
        rows = away
        if len(self.columns) < Z.shape[1]:
            rows = Z * (share / GRID_STEP)[:, None]
            rows[:, self.columns] = away
        # Towards zero, which makes no row longer.
        np.trunc(rows, out=rows)
        rows *= GRID_STEP
        return share, rows

    def make_map(self, slopes: int) -> Floats:
        """Returns the matrix A with θ_z = A·θ_u: from coefficients of u to those of z."""
        factor = MARGIN / (2 * self.radius)
        A = np.eye(slopes + 1)
        A[1 + self.columns, 1 + self.columns] = factor
        A[0, 1 + self.columns] = -2 * self.centre * factor
        return A

    def to_features(self, theta: Floats) -> Floats:
        """Returns the coefficients of z that predict as these coefficients of u do."""
        return np.asarray(self.make_map(len(theta) - 1) @ theta, dtype=np.float64)

    def from_features(self, theta: Floats) -> Floats:
        """Returns the coefficients of u that predict as these coefficients of z do."""
        slopes = theta[1 + self.columns]
        found = theta.copy()
        found[0] += 2 * float(self.centre @ slopes)
        found[1 + self.columns] = slopes * (2 * self.radius / MARGIN)
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class BallTerms(HuberTerms):
    """The data's part of a regression's objective for rows in a ball."""

    ball: FeatureBall

    def read(self, batch: Any) -> RowBlock:
        """Returns weight, rows c·(½, u) and labels c·y; rows of people left out are not read."""
        v, share, rows, labels = self.read_scaled(batch)
        return v, np.column_stack([share / 2, rows]), labels

    def read_scaled(self, batch: Any) -> tuple[Floats, Floats, Floats, Floats]:
        """Returns weight, c, rows c·u and labels c·y; rows of people left out are not read."""
        v, Z, labels = super().read(batch)
        share, rows = self.ball.scale_rows(super()._round_rows(Z))
        return v, share, rows, share * labels

    def read_rows(self, batch: Any) -> tuple[Floats, Floats]:
        """Returns rows on their grid before they are brought into the ball, and labels."""
        return super()._round_rows(self.reader.matrix(batch)), self._read_labels(batch)

    def measure(
        self, batch: Any, participating: NDArray[np.bool_]
    ) -> tuple[Floats, Floats, Floats]:
        """Returns rows c·(½, u) on their grid, and the pull and bend of each with its share, c·ψ
        and c²·ψ': what intervals need. Rows within the ball count as they do in a fit; the slopes
        of those beyond count less, which makes intervals no narrower.
        """
        scaled, pull, bend = self.measure_scaled(batch, participating)
        share = 2 * scaled[:, 0]
        return scaled, share * pull, share * share * bend

    def measure_scaled(
        self, batch: Any, participating: NDArray[np.bool_]
    ) -> tuple[Floats, Floats, Floats]:
        """Returns rows c·(½, u) on their grid, and the pull and bend of each, as a fit has them."""
        Z = self.reader.matrix(batch)[participating]
        share, rows = self.ball.scale_rows(super()._round_rows(Z))
        labels = share * self._read_labels(batch)[participating]
        scaled = np.column_stack([share / 2, rows])
        _, pull, bend = self._compute_losses(scaled, labels)
        return scaled, pull, bend

    def _round_rows(self, rows: Floats) -> Floats:
        return rows  # on their grid already

    def keep(self, engine: Engine) -> Engine:
        """Returns an engine over the rows of those who take part, brought into the ball once, for
        kernels that ``adapt`` makes.
        """
        return get_default_engine().of_batches(engine.fold(_BallRows(self)))

    def adapt(self) -> KeptBallTerms:
        """Returns the same sums over rows that were kept."""
        given = {name: part for name, part in self.__dict__.items() if not name.startswith("_")}
        given |= {
            "reader": MatrixReader(self.reader.width + 1),
            "label": ScaledLabel(VALUE),
            "owner": GroupLookup(KIND),
        }
        del given["ball"]
        return KeptBallTerms(**given)


@dataclass(frozen=True, eq=False, kw_only=True)
class KeptBallTerms(HuberTerms):
    """The same for rows that lie in memory as they are in the ball."""

    def measure(
        self, batch: Any, participating: NDArray[np.bool_]
    ) -> tuple[Floats, Floats, Floats]:
        """Returns what ``BallTerms.measure`` does."""
        scaled, pull, bend = super().measure(batch, participating)
        share = 2 * scaled[:, 0]
        return scaled, share * pull, share * share * bend


@dataclass(frozen=True, eq=False)
class _BallRows:
    """Rows in the ball, their labels and kinds, in batches; of those who take part."""

    terms: BallTerms

    @property
    def columns(self) -> tuple[str, ...]:
        return self.terms.columns

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        width = self.terms.reader.width + 1
        # Whole multiples of 2^−24 of at most ½: floats of four bytes hold them.
        matrix = np.empty((len(batch), width), dtype=np.float32)
        labels = np.empty(len(batch))
        done = 0
        for piece in cut_batch(batch, PIECE):
            _, share, rows, some = self.terms.read_scaled(piece)
            part = slice(done, done + len(rows))
            matrix[part, 0] = share / 2
            matrix[part, 1:] = rows
            labels[part] = some
            done += len(rows)
        kinds = self.terms.owner.kinds(batch)
        if done < len(batch):
            kinds = kinds[self.terms.row_weights[kinds] > 0]
        columns: dict[str, Array] = {
            MATRIX_COLUMN: matrix[:done],
            VALUE: labels[:done],
            KIND: kinds,
        }
        return [get_default_engine().to_batch(columns)]


@dataclass(frozen=True, eq=False)
class SizeSums:
    """For each of some radii, how much of everybody's weight counts in a ball of it, as whole
    numbers: of a row outside about (radius/size)², by halves.
    """

    reader: Reader
    owner: GroupLookup
    weights: NDArray[np.int64]  # of one row, by kind; they must add up to less than 2^62
    ball: FeatureBall  # of any radius
    radii: Floats  # rising by steps of √2

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((*self.reader.columns, *self.owner.columns)))

    def zero(self) -> NDArray[np.int64]:
        """Of no rows."""
        return np.zeros(len(self.radii), dtype=np.int64)

    def __call__(self, batch: Any) -> NDArray[np.int64]:
        """Returns the exact sums over the batch."""
        pieces = cut_batch(batch, PIECE)
        return sum((self._sum_piece(piece) for piece in pieces), start=self.zero())

    def _sum_piece(self, batch: Any) -> NDArray[np.int64]:
        kinds = self.owner.kinds(batch)
        rows = self.reader.matrix(batch)
        participating = self.weights[kinds] > 0
        if not participating.all():
            kinds = kinds[participating]
            rows = rows[participating]
        cells = self.find_cells(rows)
        places = len(self.radii) + 1
        if len(self.weights) * places > PIECE:
            counted = self.count(self.weights[kinds], cells)
            return np.asarray(counted.sum(axis=0), dtype=np.int64)
        # Rows of one kind in one cell count alike.
        pairs = kinds.astype(np.int64) * places + cells
        rows_of = np.bincount(pairs, minlength=len(self.weights) * places)
        found = np.flatnonzero(rows_of)
        counted = self.count(self.weights[found // places], found % places)
        return np.asarray(rows_of[found] @ counted, dtype=np.int64)

    def find_cells(self, Z: Floats) -> NDArray[np.int64]:
        """Returns how many of the radii each row that was read lies outside of."""
        if not getattr(self.reader, "rounded", False):
            Z = round_to_grid(Z)
        sizes = self.ball.measure_sizes(Z)
        cells = np.zeros(len(sizes), dtype=np.int64)
        for radius in self.radii:  # there are few of them: faster than to search among them
            cells += sizes > radius
        return cells

    def count(self, weights: Array, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns what each row counts at each radius, between 0 and its weight."""
        outside = np.clip(cells[:, None] - np.arange(len(self.radii)), 0, MOST_HALVINGS)
        return np.asarray(weights[:, None] >> outside, dtype=np.int64)
