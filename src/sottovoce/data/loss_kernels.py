# SPDX-License-Identifier: Apache-2.0
"""What regressions and classifiers sum over rows at a point θ: loss, gradient and curvature,
exactly.

The same rows give the same whole numbers, in whatever order, batches and partitions they come.
Entries of a row are whole multiples of 2⁻²⁴, and vectors are cut into limbs of so few bits that
doubles hold every partial sum of a product: then BLAS adds without an error, in any order. What a
row adds is computed entry by entry, and rounded to a unit that public numbers fix; pieces are added
as integers (docs/theory/solver.md, section on rounding).

Residuals are counted exactly too: a row's own does not depend on where the row stands.

A regression has two bounded losses: Huber's, and the soft one whose curvature costs nothing. The
soft loss is that of t0 and g as doubles have them, and of τ = t0 + g, so that ψ has no jump at t0.

symbol        name
φ             a row: (½, z) for a regression, a point of the unit ball for a classifier
v_i           weight of a row, by kind
ρ, ψ, ψ'      loss of a residual, its derivative, its curvature
τ             |ψ| never exceeds it
H             Σ_j h_j²/Λ_j, the most that one row of weight 1 can add to the curvature, relative to
              Λ
soft          ψ' = min(1, (1 − |ψ|/τ)/(2H)), H ≤ ½: quadratic up to t0 = τ(1−2H), then ψ = τ −
              g·e^(−(a−t0)/g), g = 2Hτ
s             σ(−y·φᵀθ), how much a classifier doubts the label
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Array, Floats
from sottovoce.data.encoding import ClassLabel, Label, Reader
from sottovoce.data.engine import GroupLookup
from sottovoce.errors import ReleaseFailed

#: Rows that are worked on at a time, so that the work stays in the cache; each sum over them is at
#: most 2^54.
PIECE_BITS = 13
PIECE = 2**PIECE_BITS
#: Rows that are fetched at a time.
READ_ROWS = 4 * PIECE
#: So many pieces are added in 64 bits before Python's integers take over: 2^54·2^8 = 2^62.
BLOCK = PIECE * 2**8
#: Entries of a row are multiples of 2^−24 and at most ½, or multiples of 2^−23 and at most 1: 23
#: bits and a sign.
ROW_BITS = 23
GRID_STEP = 2.0**-24
#: Added and taken away again, it rounds numbers of at most ½ to whole multiples of 2^−24.
ROUNDER = 1.5 * 2.0**28
#: Bits of θ that are kept for Newton's steps in doubles. For the certificate θ is exact, and all of
#: its bits are.
PLAIN_BITS = 50
#: An exact θ is coarse down to 2^−22 and fine below: coarse parts are added without an error, in
#: doubles even, up to predictions of 2^6. So a residual is right to a unit in its own last place,
#: and not in that of θ.
COARSE_BITS = 22
#: Bits of a row's pull in one limb, and how many limbs there are of them: 51 bits in doubles, 85
#: where it is extended.
LIMB = 53 - ROW_BITS - PIECE_BITS
PLAIN_LIMBS = 3
EXTENDED_LIMBS = 5
#: A θ whose entries are all below 2 to this is cut as if they were not.
SMALLEST_EXPONENT = -500
#: A row's loss has two limbs of so many bits; a row times the root of its curvature has ROOT_BITS:
#: 20 + 20 + 13 = 53.
VALUE_LIMB = 40
ROOT_BITS = 20

RowBlock = tuple[Floats, Floats, Floats]


@dataclass(frozen=True, eq=False, kw_only=True)
class RowTerms(ABC):
    """Sums over rows of v times loss, pull·φ and bend·φφᵀ, each a function of a row's prediction
    φᵀθ and its label.

    ``extended`` sums the pull alone, in the longest float there is, at a θ of exact fractions. A
    subclass knows rows, labels and the loss: entries of φ times the root of bend are at most ½.
    """

    reader: Reader
    label: Any
    owner: GroupLookup
    row_weights: Floats  # of one row, by kind
    theta: Array
    extended: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> Array:
        """Sums over no rows."""
        d = len(self.theta)
        limbs = self._limbs
        return np.zeros(limbs * d if self.extended else 2 + limbs * d + d * d, dtype=object)

    def __call__(self, batch: Any) -> Array:
        """Returns the sums over the batch as Python's integers, one after another; ``floats`` reads
        them.
        """
        blocks = (batch.slice(at, BLOCK) for at in range(0, len(batch), BLOCK))
        return sum((self._sum_block(block).astype(object) for block in blocks), start=self.zero())

    def _sum_block(self, batch: Any) -> NDArray[np.int64]:
        """A cacheful of rows at a time."""
        total = np.zeros(len(self.zero()), dtype=np.int64)
        for at in range(0, len(batch), READ_ROWS):
            for piece in split_pieces(self.read(batch.slice(at, READ_ROWS))):
                total += self.sum_piece(*piece)
        return total

    def read(self, batch: Any) -> RowBlock:
        """Returns weight, rows and labels; rows of people left out are not read."""
        v = self.row_weights[self.owner.kinds(batch)]
        rows = self.reader.matrix(batch)
        labels = self._read_labels(batch)
        participating = v > 0
        if participating.all():
            return (v, rows, labels)
        return (v[participating], rows[participating], labels[participating])

    def sum_piece(self, v: Floats, rows: Floats, labels: Floats) -> NDArray[np.int64]:
        """Returns the sums over at most 2^13 rows."""
        rows = self._round_rows(rows)
        loss, pull, bend = self._compute_losses(rows, labels)
        pulls = zip(
            split_limbs(v * pull, self._pull_exponent, LIMB, self._limbs),
            self._pull_units,
            strict=True,
        )
        gradient = np.concatenate([self._sum_gradients(limb, rows) / unit for limb, unit in pulls])
        if self.extended:
            return to_whole(gradient)
        values = [part.sum() for part in split_limbs(v * loss, self._value_exponent, VALUE_LIMB, 2)]
        root = np.sqrt(v * bend * math.ldexp(1.0, 2 * ROOT_BITS + 2 - self._exponent))
        return to_whole(
            np.concatenate(
                [values / self._value_units, gradient, self._sum_curvatures(root, rows).ravel()]
            )
        )

    def _sum_gradients(self, pull: Floats, rows: Floats) -> Floats:
        """Returns Σ pull·φ."""
        slopes = pull @ rows
        if len(slopes) == len(self.theta):
            return slopes
        return np.concatenate([[pull.sum() / 2], slopes])

    def _sum_curvatures(self, root: Floats, rows: Floats) -> Floats:
        """Returns Σ of squares of rows times the root of their curvature, whole numbers all."""
        rooted = rows * root[:, None]
        slopes = (
            np.rint(rooted, out=rooted).T @ rooted
        )  # with its own transpose, which takes half the work
        if len(slopes) == len(self.theta):
            return slopes
        constant = np.rint(root / 2)
        squares = np.empty((len(self.theta), len(self.theta)))
        squares[0, 0] = constant @ constant
        squares[1:, 1:] = slopes
        squares[0, 1:] = squares[1:, 0] = constant @ rooted
        return squares

    def floats(self, sums: Array) -> tuple[float, Array, Floats]:
        """Returns (Σvρ, Σvψφ, Σvψ'φφᵀ) from the sums over all rows, each rounded once; Σvψφ
        exactly, if extended.
        """
        d = len(self.theta)
        limbs = self._limbs
        pulls = (sums if self.extended else sums[2 : 2 + limbs * d]).reshape(limbs, d)
        total = sum(
            (pulls[k] << (LIMB * (limbs - 1 - k)) for k in range(limbs)),
            start=np.zeros(d, dtype=object),
        )
        last = self._pull_exponent - LIMB * limbs - 24
        if self.extended:
            return (
                0.0,
                np.array([pull * Fraction(2) ** last for pull in total], dtype=object),
                np.zeros((d, d)),
            )
        gradient = np.array([math.ldexp(float(pull), last) for pull in total])
        bends = sums[2 + limbs * d :].reshape(d, d).astype(np.float64) * 2.0 ** (
            self._exponent - 2 * ROOT_BITS - 2
        )
        value = float((sums[0] << VALUE_LIMB) + sums[1]) * float(self._value_units[1])
        return value, gradient, bends

    @cached_property
    def _limbs(self) -> int:
        if self.extended:
            return EXTENDED_LIMBS
        return PLAIN_LIMBS

    @cached_property
    def _exponent(self) -> int:
        """No row's weight reaches 2 to this."""
        return math.frexp(float(self.row_weights.max()))[1]

    @cached_property
    def _pull_exponent(self) -> int:
        return math.frexp(float(self.row_weights.max()) * self._max_slope())[1]

    @cached_property
    def _pull_units(self) -> list[float]:
        return [
            math.ldexp(GRID_STEP, self._pull_exponent - LIMB * (k + 1)) for k in range(self._limbs)
        ]

    @cached_property
    def _value_exponent(self) -> int:
        return (
            self._exponent
            + math.frexp(self._max_slope() * (2 + float(np.abs(self.theta).sum())))[1]
        )

    @cached_property
    def _value_units(self) -> Floats:
        return np.array([math.ldexp(1.0, self._value_exponent - VALUE_LIMB * k) for k in (1, 2)])

    @abstractmethod
    def _round_rows(self, rows: Floats) -> Floats:
        """Returns φ on its grid, without its ½ if it has one."""

    @abstractmethod
    def _read_labels(self, batch: Any) -> Floats:
        """Returns labels."""

    def _subtract_predictions(self, start: Any, rows: Floats) -> Array:
        """Returns start − φᵀθ of each row."""
        if self.extended:
            return compute_residuals(start, rows, self.theta)
        left: Array = start - compute_predictions(rows, self.theta)
        return left

    @abstractmethod
    def _compute_losses(self, rows: Floats, labels: Floats) -> tuple[Array, Array, Array]:
        """Returns loss, pull and bend of each row."""

    @abstractmethod
    def _max_slope(self) -> float:
        """No pull is larger, and no loss is larger than it times (2 + Σ|θ_j|)."""


@dataclass(frozen=True)
class SoftHuber:
    """The soft Huber loss; twice continuously differentiable."""

    tau: float
    H: float

    def __call__(self, residuals: Any) -> tuple[Any, Any, Any]:
        """Return (ρ, ψ, ψ') at the residuals, in their own precision."""
        t0 = self.tau * max(1 - 2 * self.H, 0.0)
        g = 2 * self.H * self.tau
        a = np.abs(residuals)
        over = np.maximum(a - t0, 0)
        E = np.exp(-over / g)
        psi = np.where(over > 0, t0 + g * (1 - E), a)
        rho = np.where(over > 0, t0**2 / 2 + (t0 + g) * over - g**2 * (1 - E), a * a / 2)
        return rho, np.copysign(psi, residuals), E


@dataclass(frozen=True)
class ClassicHuber:
    """Huber's loss."""

    tau: float

    def __call__(self, residuals: Any) -> tuple[Any, Any, Any]:
        """Return (ρ, ψ, ψ') at the residuals, in their own precision."""
        a = np.abs(residuals)
        inside = a < self.tau
        rho = np.where(inside, a * a / 2, self.tau * (a - self.tau / 2))
        return rho, np.clip(residuals, -self.tau, self.tau), inside.astype(a.dtype)


@dataclass(frozen=True, eq=False, kw_only=True)
class HuberTerms(RowTerms):
    """The data's part of a regression's objective."""

    label: Label
    loss: SoftHuber | ClassicHuber

    def _round_rows(self, rows: Floats) -> Floats:
        return round_to_grid(rows)

    def _read_labels(self, batch: Any) -> Floats:
        return self.label.values(batch)

    def _compute_losses(self, rows: Floats, labels: Floats) -> tuple[Array, Array, Array]:
        rho, psi, bend = self.loss(self._subtract_predictions(labels, rows))
        return rho, psi, bend

    def _max_slope(self) -> float:
        return float(self.loss.tau)  # ρ(r) ≤ τ|r|


@dataclass(frozen=True, eq=False, kw_only=True)
class LogisticTerms(RowTerms):
    """Σ v·log(1+e^(−yφᵀθ)), minus its gradient, and its curvature, for one class against the
    others.
    """

    label: ClassLabel
    positive: int  # the class that counts as +1

    def _round_rows(self, rows: Floats) -> Floats:
        return rows  # the unit ball is on a grid already

    def _read_labels(self, batch: Any) -> Floats:
        return self.label.signs(batch, self.positive)

    def _compute_losses(self, rows: Floats, labels: Floats) -> tuple[Array, Array, Array]:
        margin = -labels * self._subtract_predictions(0.0, rows)
        small = np.exp(-np.abs(margin))  # never overflows
        doubt = np.where(margin > 0, small, 1) / (1 + small)
        # A certificate has no use for the loss, whose logarithm would take as long as all the rest.
        if self.extended:
            loss = margin
        else:
            loss = np.log1p(small) + np.maximum(-margin, 0)
        return loss, labels * doubt, doubt * (1 - doubt)

    def _max_slope(self) -> float:
        return 1.0


@dataclass(frozen=True, eq=False)
class ResidualSizes:
    """Cells of residuals by their size: cell j holds those above bound j − 1 and up to bound j."""

    bounds: Floats  # ascending

    @property
    def cells(self) -> int:
        """The number of bounds; one cell more holds what is above all of them."""
        return len(self.bounds)

    def integers(self, values: Floats) -> NDArray[np.int64]:
        """Returns the cell of each residual."""
        return np.searchsorted(self.bounds, np.abs(values))


@dataclass(frozen=True, eq=False)
class ResidualHistogram:
    """Σ weight over rows whose residual y − φᵀθ falls in each cell of a public grid; exact whole
    numbers.
    """

    reader: Reader
    label: Label
    owner: GroupLookup
    weights: NDArray[np.int64]  # of one row, by kind; they must add up to less than 2^62
    grid: Any  # a Grid, or ResidualSizes
    theta: NDArray[np.float64]

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
        Z = self.reader.matrix(batch)
        participating = weights > 0
        fitted = [
            compute_predictions(round_to_grid(Z[at : at + PIECE]), self.theta)
            for at in range(0, len(Z), PIECE)
        ]
        residuals = self.label.values(batch) - np.concatenate([np.empty(0), *fitted])
        total = self.zero()
        np.add.at(
            total,
            self.grid.integers(residuals[participating]).astype(np.int64),
            weights[participating],
        )
        return total


def split_pieces(read: RowBlock) -> Iterator[RowBlock]:
    """Yields weight, rows and labels in pieces."""
    v, rows, labels = read
    for at in range(0, len(v), PIECE):
        yield v[at : at + PIECE], rows[at : at + PIECE], labels[at : at + PIECE]


def round_to_grid(Z: Floats) -> Floats:
    """Returns recoded features rounded to whole multiples of 2^−24."""
    rounded = Z + ROUNDER
    rounded -= ROUNDER
    return rounded


def compute_predictions(rows: Floats, theta: Floats) -> Floats:
    """Returns φᵀθ, with θ cut to PLAIN_BITS and no other error than that of adding a few limbs.

    Where θ is longer than a row by one, φ = (½, row).
    """
    bits = choose_limb_bits(len(theta))
    top = max(math.frexp(float(np.abs(theta).max()))[1], SMALLEST_EXPONENT)
    total = np.zeros(len(rows))
    for limb in split_limbs(theta, top, bits, -(-PLAIN_BITS // bits)):
        total += _multiply_limb(rows, limb)
    return total


def compute_residuals(start: Any, rows: Floats, theta: Array) -> Array:
    """Returns start − φᵀθ in the longest float, for an exact θ of any size and |start| ≤ 1.

    It is wrong by a few units in the last place of itself and of d·2⁻²²: coarse parts are added
    without an error, or the result is beyond 2⁶ as they are, and fine ones come to less than d·2⁻²²
    together (docs/theory/solver.md).
    """
    if choose_limb_bits(len(theta)) >= COARSE_BITS:
        bits = COARSE_BITS
    else:
        bits = COARSE_BITS // 2
    coarse = np.zeros(len(rows), dtype=np.longdouble)
    fine = np.zeros(len(rows), dtype=np.longdouble)
    for place, limb in split_exactly(theta, bits):
        if bits * place <= COARSE_BITS:
            total = coarse
        else:
            total = fine
        total += _multiply_limb(rows, limb)
    return np.asarray(start - coarse - fine)


def choose_limb_bits(coordinates: int) -> int:
    """Returns how many bits a limb of θ may have, so that doubles hold its product with a row."""
    return 53 - ROW_BITS - (coordinates - 1).bit_length()


def split_exactly(theta: Array, bits: int) -> Iterator[tuple[int, Floats]]:
    """Yields fractions over powers of two in parts that add up to them: (k, whole multiples of
    2^(−bits·k)), k rising.

    What is left after part k is at most half its unit.
    """
    last = max(number.denominator for number in theta).bit_length() - 1
    rest = np.array([int(number * 2**last) for number in theta], dtype=object)
    place = 1 - -(-(int(np.abs(rest).max()).bit_length() - last) // bits)
    while rest.any():
        drop = last - bits * place
        if drop <= 0:
            part = rest * 2**-drop
        else:
            part = (rest + 2 ** (drop - 1)) // 2**drop
        yield place, np.array([math.ldexp(number, -bits * place) for number in part])
        if drop > 0:
            rest = rest - part * 2**drop
        else:
            rest = 0 * rest
        place += 1


def _multiply_limb(rows: Floats, limb: Floats) -> Floats:
    """Returns φᵀ(one limb of θ), exactly; where θ is longer than a row by one, φ = (½, row)."""
    slopes = slice(len(limb) - rows.shape[1], None)
    return np.asarray(rows @ limb[slopes] + limb[: slopes.start].sum() / 2, dtype=np.float64)


def split_limbs(vector: Array, top: int, bits: int, count: int) -> Iterator[Floats]:
    """Yields a vector of numbers below 2^top in parts: whole multiples of 2^(top−bits), of
    2^(top−2·bits), …
    """
    rest = vector
    for cut in range(1, count + 1):
        part = np.rint(rest * math.ldexp(1.0, bits * cut - top)) * math.ldexp(1.0, top - bits * cut)
        yield part.astype(np.float64, copy=False)
        if cut < count:
            rest = rest - part


def to_whole(sums: Floats) -> NDArray[np.int64]:
    """Returns sums that are whole numbers as such; a row that is no number after all ends the
    release.
    """
    if not np.isfinite(sums).all():
        raise ReleaseFailed()
    return sums.astype(np.int64)
