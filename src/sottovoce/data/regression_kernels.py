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
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sottovoce.arrays import Array, Floats, Integers
from sottovoce.budgets import BudgetGroups, has_usable_budget
from sottovoce.data.encoding import ClassLabel, Label, Reader
from sottovoce.data.engine import Dataset, GroupLookup
from sottovoce.data.loss_kernels import compute_predictions, round_to_grid
from sottovoce.errors import InvalidBudget
from sottovoce.solvers.losses import Loss
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
        for start in range(0, len(batch), BLOCK):
            self._add(batch.slice(start, BLOCK), limbs)
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
        coordinates = to_whole_numbers(Z, y)
        for place, limb in enumerate((weights >> BITS, weights & (UNIT - 1))):
            if limb.any():
                limbs[place] += (coordinates.T @ (coordinates * limb[:, None])).astype(np.int64)


def to_whole_numbers(Z: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns ẑ = (1, 2z, y)·2^13 rounded to whole numbers, each within ±2^13 (as float64)."""
    # Laid out as Z is: to turn a matrix over costs more than all the rest.
    coordinates = np.empty((len(y), Z.shape[1] + 2), order="F" if Z.flags.f_contiguous else "C")
    coordinates[:, 0] = UNIT
    np.multiply(Z, 2.0 * UNIT, out=coordinates[:, 1:-1])
    np.multiply(y, UNIT, out=coordinates[:, -1])
    return np.asarray(np.rint(coordinates, out=coordinates), dtype=np.float64)


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
    loss: Loss
    theta: Floats
    clip: float

    def of_rows(self, Z: Floats, y: Floats) -> Floats:
        """Returns ℓ'·φ, computed entry by entry, so that it does not depend on where a row
        stands.
        """
        rows = round_to_grid(Z)
        slope = np.nan_to_num(
            self.loss.derivative(compute_predictions(rows, self.theta), y), nan=0.0
        )
        most = bound_slope(self.theta, self.clip)
        slope = np.clip(slope, -most, most)
        gradients = np.empty((len(y), len(self.theta)))
        gradients[:, 0] = slope / 2
        np.multiply(rows, slope[:, None], out=gradients[:, 1:])
        return gradients

    def _pieces(self, batch: Any) -> Iterator[Any]:
        size = min(GRADIENT_PIECE, max(PIECE_NUMBERS // len(self.theta), 1))
        yield from (batch.slice(at, size) for at in range(0, len(batch), size))

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
    which = csr_array((ones, order, np.append(first, len(line))), shape=(len(first), len(line)))
    return line[order[first]], which @ numbers
