# SPDX-License-Identifier: Apache-2.0
"""Exact sums of gradients at a point θ: over people with one row each, and by person where rows are
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

from sottovoce.arrays import Floats, Integers
from sottovoce.data.kernels import GroupLookup
from sottovoce.data.loss_kernels import compute_predictions, round_to_grid
from sottovoce.data.readers import ClassLabel, Label, Reader
from sottovoce.solvers.losses import Loss

#: Rows that are worked on at a time, and numbers in them, so that the work stays in the cache.
PIECE = 2**13
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
        size = min(PIECE, max(PIECE_NUMBERS // len(self.theta), 1))
        yield from (batch.slice(at, size) for at in range(0, len(batch), size))

    def _read_gradients(self, batch: Any, heard: NDArray[np.bool_]) -> Floats:
        """Returns the gradients of rows that are heard; no other is read."""
        Z = self.reader.matrix(batch)
        if isinstance(self.label, ClassLabel):
            y = self.label.signs(batch, 1)
        else:
            y = self.label.values(batch)
        if heard.all():
            return self.of_rows(Z, y)
        return self.of_rows(Z[heard], y[heard])


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
        heard = weight > 0
        gradients = self._read_gradients(batch, heard)
        weight = weight[heard]
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
        if sum(len(lines) for lines, _ in both.parts) <= 2 * self.people + PIECE:
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
        heard = line >= 0
        none = self.zero()
        whole = np.rint(self._read_gradients(batch, heard) * (1 / self.unit)).astype(np.int64)
        return SumsByPerson(
            none.people, none.width, (_add_lines(line[heard], whole),) if len(whole) else ()
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
