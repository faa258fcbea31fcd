# SPDX-License-Identifier: Apache-2.0
"""Exact weighted sums of products of features and label (docs/theory/moments.md).

Each coordinate of ẑ = (1, z, y), z doubled so that all lie in [−1, 1], becomes a whole number of at
most 2^13; weights are cut into limbs of 13 bits; over blocks of 2^13 rows every partial sum stays
below 2^(13+13+13+13) = 2^52, so the float64 matrix product is exact in any order, at the speed of
BLAS.

Exact sums of gradients at a point θ: over people with one row each, and by person where rows are
many.

θ goes out to the rows, whole numbers come back, the same in whatever order, batches and partitions
the rows lie. A person with one row is clipped where the row is. The rows of a person with several
may lie anywhere, so their gradients become whole multiples of a fine public unit first, and are
added up by person; the mean is clipped by who asked.

    symbol        name
    φ_i = (½, z)  rows, z on a grid of 2⁻²⁴      P_l  weight, of a person
    ∇ = ℓ'·φ      the gradient of a row          L    clip
    C             steepest, a power of two: no derivative counts as more

Exact sums of whole-number rows whose map was released before (docs/theory/adassp.md).

Three kinds of rows, each a function of one row of the table and of public numbers. x = 2z and y lie
in [−1, 1]:

    MarginRows     (2¹³·X, X²) for X = 2¹³·(x, y) rounded
    StandardRows   (g, u, t·v)·c, of length at most 2¹³; their products are summed
    ResidualRows   (g, u)·c·r, of length at most 2²⁶

    symbol  name
    u       (x − centre)/scale: features around a released centre
    c       min(1, radius/|u|): a long row counts less, with features and label
    v, r    the label, or what a released model leaves of it, clipped and in units of the clip

Every number is computed entry by entry, so that it does not depend on where a row stands. Rounding
may lengthen a vector of k entries by √k/2, so lengths are cut by that much and a margin first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy  # whose parts are loaded where they are used
from numpy.typing import NDArray

from sottovoce.arrays import Array, Floats, Integers
from sottovoce.budgets import BudgetGroups, has_usable_budget
from sottovoce.data.encoding import ClassLabel, Label, Reader, round_to_grid
from sottovoce.data.engine import Dataset, GroupLookup, cut_batch
from sottovoce.data.loss_kernels import compute_predictions
from sottovoce.errors import InvalidBudget
from sottovoce.solvers.losses import RowLoss
from sottovoce.weights import Weights

BITS = 13
UNIT = 2**BITS
BLOCK = 2**13
#: Weights fit one limb if nobody's is below this share of the heaviest row's; else two limbs are
#: used.
ONE_LIMB = 1 / 64


@dataclass(frozen=True, eq=False)
class Products:
    """Σ weight·ẑẑᵀ over the rows, as Python integers in an object matrix."""

    reader: Reader
    label: Label
    owner: GroupLookup
    weights: NDArray[np.int64]  # of one row, by kind, below 2^26

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> Array:
        """Sums over no rows."""
        d = self.reader.width + 2
        return np.zeros((d, d), dtype=object)

    def __call__(self, batch: Any) -> Array:
        """Returns the exact sums over the batch, a cacheful of rows at a time."""
        d = self.reader.width + 2
        limbs = np.zeros(
            (2, d, d), dtype=np.int64
        )  # a batch has at most 2^18 rows: sums stay below 2^(52+5)
        for piece in cut_batch(batch, BLOCK):
            self._add(piece, limbs)
        high, low = limbs.astype(object)
        return np.asarray((high << BITS) + low)

    def _add(self, batch: Any, limbs: NDArray[np.int64]) -> None:
        weights = self.weights[self.owner.kinds(batch)]
        Z = self.reader.matrix(batch)
        y = self.label.values(batch)
        if (
            not weights.all()
        ):  # rows of people left out are not read: not even a NaN of theirs counts
            weights, Z, y = weights[weights > 0], Z[weights > 0], y[weights > 0]
        features, label = round_rows(Z, y)
        for place, limb in enumerate((weights >> BITS, weights & (UNIT - 1))):
            if limb.any():
                limbs[place] += sum_limb(features, label, limb.astype(np.float64))


def sum_limb(features: Floats, label: Floats, weights: Floats) -> Integers:
    """Returns Σ weight·ẑẑᵀ over at most 2^13 rows, for weights of at most 13 bits; the constant and
    the label have rows of their own, so that features stay where they lie.
    """
    weighed = weights * label
    total = weights.sum()
    sums = np.empty((features.shape[1] + 2,) * 2)
    sums[1:-1, 1:-1] = features.T @ (features * weights[:, None])
    beside = np.array([UNIT * weights, weighed]) @ features
    sums[[0, -1], 1:-1] = beside
    sums[1:-1, [0, -1]] = beside.T
    sums[0, 0] = UNIT**2 * total
    sums[0, -1] = sums[-1, 0] = UNIT * weighed.sum()
    sums[-1, -1] = weighed @ label
    return sums.astype(np.int64)


def to_whole_numbers(Z: Floats, y: Floats) -> Floats:
    """Returns ẑ = (1, 2z, y)·2^13 rounded to whole numbers, each within ±2^13 (as float64)."""
    features, label = round_rows(Z, y)
    return np.column_stack([np.full(len(label), float(UNIT)), features, label])


def round_rows(Z: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Returns 2z and y, both times 2^13, rounded to whole numbers within ±2^13 (as float64)."""
    features = Z * (2.0 * UNIT)
    label = y * float(UNIT)
    return np.rint(features, out=features), np.rint(label, out=label)


def make_proportional_weights(kinds: BudgetGroups) -> Weights:
    """Returns whole-number weights w ∝ ε, spread over a person's rows, in one or two limbs;
    whispers weigh nothing.
    """
    per_row = np.where(has_usable_budget(kinds), kinds.epsilon, 0) / kinds.rows
    loudest = per_row.max()
    if not loudest > 0:
        raise InvalidBudget(
            "Nobody grants anything.",
            "Somebody's ε must be above 0.",
            "Give people a positive ε.",
            parameter="epsilon",
        )
    quiet = per_row[per_row > 0].min() < ONE_LIMB * loudest
    if quiet:
        bits = 2 * BITS
    else:
        bits = BITS
    return Weights.from_integers(
        kinds, np.floor(per_row / loudest * (2**bits - 1)).astype(np.int64)
    )


def sum_products(rows: Dataset, weights: Weights) -> Array:
    """Returns the matrix of exact sums for the rows of a question."""
    return rows.engine.fold(Products(rows.features, rows.label, rows.owner, weights.row))


#: Rows that are worked on at a time, and numbers in them, so that the work stays in the cache.
GRADIENT_PIECE = 2**13
PIECE_NUMBERS = 2**18
#: Covers every rounding between a gradient and its whole numbers, for up to `MOST_COLUMNS` columns:
#: (d+8)·2⁻⁵³ < 2⁻⁴¹.
ROUNDING_MARGIN = 1 - 2.0**-40
MOST_COLUMNS = 4000
#: A derivative this many times as large as that of ½(f − y)² can be counts as so much; larger ones
#: are clipped anyway.
SLOPE_FACTOR = 16
#: A person's sum of whole multiples has at most so many bits.
SUM_BITS = 62


def bound_slope(theta: Floats, clip: float) -> float:
    """Returns C, a power of two: beyond what named losses reach at θ, and far enough for one row to
    be clipped.
    """
    reach = 1 + float(np.abs(theta).sum()) / 2
    return math.ldexp(1.0, math.frexp(SLOPE_FACTOR * reach + 2 * clip)[1])


def scale_constant(theta: Floats, factor: float) -> Floats:
    """Returns θ with its first coefficient times a factor."""
    scaled = theta.copy()
    scaled[0] *= factor
    return scaled


def clip_gradients(mean_gradients: Floats, weight: Floats, clip: float) -> Floats:
    """Returns whole numbers, a row a person: the gradient, of length at most ``clip``, in units of
    clip/weight.

    Each row's Euclidean norm, computed exactly, is at most the person's weight: the length is cut
    with a margin that covers rounding, and cutting off digits moves every entry towards zero.
    """
    length = np.sqrt(np.einsum("ij,ij->i", mean_gradients, mean_gradients))
    scale = weight * ROUNDING_MARGIN / np.maximum(length, clip)
    return np.asarray(np.trunc(mean_gradients * scale[:, None]), dtype=np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Gradients:
    """The gradient of every row at θ."""

    reader: Reader
    label: Label | ClassLabel
    loss: RowLoss
    theta: Floats
    clip: float
    constant: float = 0.5  # a power of two, of rows φ = (constant, z)

    def of_rows(self, Z: Floats, y: Floats) -> Floats:
        """Returns ℓ'·φ, computed entry by entry, so that it does not depend on where a row
        stands.
        """
        rows = round_to_grid(Z)
        theta = scale_constant(self.theta, 2 * self.constant)  # for rows (½, z)
        slope = np.nan_to_num(self.loss.derivative(compute_predictions(rows, theta), y), nan=0.0)
        most = bound_slope(self.theta, self.clip)
        slope = np.clip(slope, -most, most)
        gradients = np.empty((len(y), len(self.theta)))
        gradients[:, 0] = slope * self.constant
        np.multiply(rows, slope[:, None], out=gradients[:, 1:])
        return gradients

    def _pieces(self, batch: Any) -> Iterator[Any]:
        size = min(GRADIENT_PIECE, max(PIECE_NUMBERS // len(self.theta), 1))
        yield from cut_batch(batch, size)

    def _read_gradients(self, batch: Any, participating: NDArray[np.bool_]) -> Floats:
        """Returns the gradients of rows that take part; no other is read."""
        Z = self.reader.matrix(batch)
        if isinstance(self.label, ClassLabel):
            y = self.label.signs(batch, 1)
        else:
            y = self.label.values(batch)
        if participating.all():
            return self.of_rows(Z, y)
        return self.of_rows(Z[participating], y[participating])


@dataclass(frozen=True, eq=False, kw_only=True)
class RowSums(Gradients):
    """Σ of clipped gradients over people with one row each; all weights together are at most
    2^52.
    """

    owner: GroupLookup
    weights: Floats  # P_l by kind
    place: GroupLookup | None = None
    chosen: NDArray[np.bool_] | None = None  # by place; None: everybody

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        if self.place is None or self.chosen is None:
            drawn: tuple[str, ...] = ()
        else:
            drawn = self.place.columns
        return tuple(
            dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns, *drawn))
        )

    def zero(self) -> Integers:
        """The sum over nobody."""
        return np.zeros(len(self.theta), dtype=np.int64)

    def __call__(self, batch: Any) -> Integers:
        """Returns the exact sum over the batch."""
        return sum((self._piece(piece) for piece in self._pieces(batch)), start=self.zero())

    def _piece(self, batch: Any) -> Integers:
        weight = self.weights[self.owner.kinds(batch)]
        if self.place is not None and self.chosen is not None:
            weight = weight * self.chosen[self.place.kinds(batch)]
        participating = weight > 0
        gradients = self._read_gradients(batch, participating)
        weight = weight[participating]
        return (np.ones(len(weight)) @ clip_gradients(gradients, weight, self.clip)).astype(
            np.int64
        )


@dataclass(frozen=True, eq=False)
class SumsByPerson:
    """Sums of whole numbers, a line a person: lines of the same person are added when there are too
    many of them.
    """

    people: int
    width: int
    parts: tuple[tuple[Integers, Integers], ...] = ()  # lines (each once) and their numbers

    def __add__(self, other: SumsByPerson) -> SumsByPerson:
        both = SumsByPerson(self.people, self.width, (*self.parts, *other.parts))
        if sum(len(lines) for lines, _ in both.parts) <= 2 * self.people + GRADIENT_PIECE:
            return both
        return SumsByPerson(self.people, self.width, ((np.arange(self.people), both.dense()),))

    def dense(self) -> Integers:
        """Returns one line for each person."""
        total = np.zeros((self.people, self.width), dtype=np.int64)
        for lines, numbers in self.parts:
            total[lines] += numbers
        return total


@dataclass(frozen=True, eq=False, kw_only=True)
class PersonSums(Gradients):
    """Σ of gradients by person, in whole multiples of ``unit``."""

    place: GroupLookup
    lines: Integers  # of each person, by place; −1: not read
    most: int  # rows of one person

    @cached_property
    def unit(self) -> float:
        """Fixed by public numbers, and so fine that a person's sum just stays below 2^62."""
        return math.ldexp(
            bound_slope(self.theta, self.clip), (self.most - 1).bit_length() - SUM_BITS
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.place.columns)))

    def zero(self) -> SumsByPerson:
        """The sums of nobody."""
        return SumsByPerson(self._people, len(self.theta))

    @cached_property
    def _people(self) -> int:
        return int(self.lines.max(initial=-1)) + 1

    def __call__(self, batch: Any) -> SumsByPerson:
        """Returns the exact sums over the batch."""
        return sum((self._piece(piece) for piece in self._pieces(batch)), start=self.zero())

    def _piece(self, batch: Any) -> SumsByPerson:
        line = self.lines[self.place.kinds(batch)]
        participating = line >= 0
        none = self.zero()
        whole = np.rint(self._read_gradients(batch, participating) * (1 / self.unit)).astype(
            np.int64
        )
        return SumsByPerson(
            none.people, none.width, (_add_lines(line[participating], whole),) if len(whole) else ()
        )


def _add_lines(line: Integers, numbers: Integers) -> tuple[Integers, Integers]:
    """Returns every line once, and the sum of its numbers."""
    together = bool(np.all(line[1:] >= line[:-1]))
    if together:
        order = np.arange(len(line))
    else:
        order = np.argsort(line, kind="stable")
    first = np.flatnonzero(np.diff(line[order], prepend=-1))
    # A product with a matrix of ones and zeros, in whole numbers: four times as fast as
    # np.add.reduceat.
    ones = np.ones(len(line), dtype=np.int64)
    which = scipy.sparse.csr_array(
        (ones, order, np.append(first, len(line))), shape=(len(first), len(line))
    )
    return line[order[first]], which @ numbers


#: Of a vector that is summed as it is.
LENGTH = UNIT**2
#: Covers every rounding of doubles before the last one, for up to `MOST_COLUMNS` columns.
LENGTH_MARGIN = 1 - 2.0**-30


class RowMap(Protocol):
    """What whole numbers a row gives."""

    def count_entries(self, slopes: int) -> int:
        """Returns how many numbers a row of so many features gives."""

    def to_whole_numbers(self, Z: Floats, y: Floats) -> Floats:
        """Returns them, a row each, as doubles."""


@dataclass(frozen=True)
class MarginRows:
    """Every coordinate by itself: its value and its square, both within ±2²⁶."""

    def count_entries(self, slopes: int) -> int:
        """Features and label, twice."""
        return 2 * (slopes + 1)

    def to_whole_numbers(self, Z: Floats, y: Floats) -> Floats:
        """Returns (2¹³·X, X²), |X_j| ≤ 2¹³."""
        X = np.rint(np.column_stack([2.0 * Z, y]) * UNIT)
        return np.hstack([X * UNIT, X * X])


@dataclass(frozen=True, eq=False)
class RowFrame:
    """Where rows are centred, how they are scaled, and where they are cut; all of it released or
    public.
    """

    centre: Floats  # of x
    scale: Floats
    middle: float  # of y
    radius: float

    def standardise(self, Z: Floats) -> tuple[Floats, Floats]:
        """Returns u, and c."""
        u = (2.0 * Z - self.centre) / self.scale
        squares = np.zeros(len(Z))
        for column in u.T:
            squares += column * column
        return u, self.radius / np.maximum(np.sqrt(squares), self.radius)


@dataclass(frozen=True, eq=False)
class StandardRows:
    """Rows (g, u, t·v)·c with |v| ≤ 1, scaled so that none is longer than 2¹³."""

    frame: RowFrame
    intercept: float  # g
    label: float  # t
    clip: float  # of the label, around its middle

    def count_entries(self, slopes: int) -> int:
        """The intercept, the features and the label."""
        return slopes + 2

    @property
    def length(self) -> float:
        """The most that the length of (g, u, t·v)·c can be."""
        return math.sqrt(self.intercept**2 + self.frame.radius**2 + self.label**2)

    def compute_unit(self, slopes: int) -> float:
        """What one step of the whole numbers is, in the row's own units."""
        most = UNIT - math.sqrt(self.count_entries(slopes)) / 2 - 1
        return float(self.length / (most * LENGTH_MARGIN))

    def to_whole_numbers(self, Z: Floats, y: Floats) -> Floats:
        """Returns the rows, each of length at most 2¹³ exactly."""
        u, c = self.frame.standardise(Z)
        v = np.clip((y - self.frame.middle) / self.clip, -1.0, 1.0)
        rows = np.column_stack([np.full(len(y), self.intercept), u, self.label * v])
        scaled = rows * (c / self.compute_unit(Z.shape[1]))[:, None]
        return np.asarray(np.rint(scaled), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class ResidualRows:
    """Rows (g, u)·c·r with |r| ≤ 1, scaled so that none is longer than 2²⁶."""

    frame: RowFrame
    intercept: float  # g
    constant: float  # of the model, around the label's middle
    slopes: Floats  # of u
    clip: float  # of residuals

    def count_entries(self, slopes: int) -> int:
        """The intercept and the features."""
        return slopes + 1

    @property
    def length(self) -> float:
        """The most that the length of (g, u)·c can be."""
        return math.hypot(self.intercept, self.frame.radius)

    def compute_unit(self, slopes: int) -> float:
        """What one step of the whole numbers is, in units of a feature times a label."""
        most = LENGTH - math.sqrt(self.count_entries(slopes)) / 2 - 1
        return float(self.length * self.clip / (most * LENGTH_MARGIN))

    def to_whole_numbers(self, Z: Floats, y: Floats) -> Floats:
        """Returns the rows, each of length at most 2²⁶ exactly."""
        u, c = self.frame.standardise(Z)
        predicted = np.full(len(y), self.frame.middle + self.constant)
        for column, slope in zip(u.T, self.slopes, strict=True):
            predicted += column * slope
        r = np.clip(np.nan_to_num(y - predicted, nan=0.0), -self.clip, self.clip)
        rows = np.column_stack([np.full(len(y), self.intercept), u])
        scaled = rows * (c * r / self.compute_unit(Z.shape[1]))[:, None]
        return np.asarray(np.rint(scaled), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class MappedSums:
    """Σ weight·row over the rows of people who take part, as Python integers."""

    reader: Reader
    label: Label
    owner: GroupLookup
    weights: NDArray[np.int64]  # of one row, by kind, below 2^26
    rows: RowMap

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> Array:
        """Sums over no rows."""
        return np.zeros(self.rows.count_entries(self.reader.width), dtype=object)

    def __call__(self, batch: Any) -> Array:
        """Returns the exact sums over the batch: in a block of 2¹³ rows every partial sum of a limb
        of 13 bits times an entry of 26 stays below 2^52, and a batch has at most 2^18 rows.
        """
        shape = (2, *self.zero().shape)
        limbs = np.zeros(shape, dtype=np.int64)
        for piece in cut_batch(batch, BLOCK):
            self._add(piece, limbs)
        high, low = limbs.astype(object)
        return np.asarray((high << BITS) + low)

    def _add(self, batch: Any, limbs: NDArray[np.int64]) -> None:
        weights = self.weights[self.owner.kinds(batch)]
        Z = self.reader.matrix(batch)
        y = self.label.values(batch)
        if not weights.all():  # rows of people left out are not read
            taking_part = weights > 0
            weights, Z, y = weights[taking_part], Z[taking_part], y[taking_part]
        rows = self.rows.to_whole_numbers(Z, y)
        for place, limb in enumerate((weights >> BITS, weights & (UNIT - 1))):
            if limb.any():
                limbs[place] += self._sum_limb(rows, limb.astype(np.float64)).astype(np.int64)

    def _sum_limb(self, rows: Floats, limb: Floats) -> Floats:
        return np.asarray(limb @ rows)


@dataclass(frozen=True, eq=False)
class MappedProducts(MappedSums):
    """Σ weight·row·rowᵀ, of rows of length at most 2¹³."""

    def zero(self) -> Array:
        """Sums over no rows."""
        entries = self.rows.count_entries(self.reader.width)
        return np.zeros((entries, entries), dtype=object)

    def _sum_limb(self, rows: Floats, limb: Floats) -> Floats:
        return np.asarray(rows.T @ (rows * limb[:, None]))


def sum_rows(rows: Dataset, weights: NDArray[np.int64], row_map: RowMap) -> Array:
    """Returns the exact sums of the rows of a question under a map."""
    return rows.engine.fold(MappedSums(rows.features, rows.label, rows.owner, weights, row_map))


def sum_row_products(rows: Dataset, weights: NDArray[np.int64], row_map: RowMap) -> Array:
    """Returns the exact sums of the products of rows under a map."""
    return rows.engine.fold(MappedProducts(rows.features, rows.label, rows.owner, weights, row_map))
