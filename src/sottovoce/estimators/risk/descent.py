# SPDX-License-Identifier: Apache-2.0
"""Noisy gradient descent over people, on whole numbers (docs/theory/erm.md).

In every step each person's mean gradient is clipped to length L, scaled so that L becomes their whole-number
weight P_l, and cut off to whole numbers; the sum over people is exact, and discrete Gaussian noise is added to it.
Everything else here is a function of those noisy sums and of public numbers.

    symbol        name
    φ_i = (½, z)  rows            P_l  weight, of a person      M = ΣP  total
    ∇ = ℓ'·φ      the gradient    L    clip                     q       rate
    η             stride          B    radius                   T       steps
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.features import ClassLabel, Label, Reader
from sottovoce.noise import choose, gaussian
from sottovoce.solvers.losses import Loss

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: False, True for a bar at the terminal, or a function that is called with the number of steps done.
Progress = bool | Callable[[int], None]

PERSON = "person"
#: Rows that are worked on at a time, so that the work stays in the cache.
PIECE = 2**12
#: Covers every rounding between a gradient and its whole numbers, for up to `MOST_COLUMNS` columns: (d+8)·2⁻⁵³ < 2⁻⁴¹.
INSIDE = 1 - 2.0**-40
MOST_COLUMNS = 4000
#: Noise is drawn for so many steps in one call, which costs as much as thirty draws.
AT_ONCE = 64
#: All weights together are at most this, so that sums of whole numbers are exact in doubles whatever their order.
LARGEST_TOTAL = 2**52
#: A derivative that is not finite counts as none, one beyond this as this: both are clipped anyway.
STEEPEST = 1e100


@dataclass(frozen=True, eq=False)
class Collected:
    """Reads all rows into memory: features with the intercept's column, labels in [−1, 1], and whose each row is."""

    reader: Reader
    label: Label | ClassLabel
    heard: NDArray[np.bool_]  # by person; rows of people left out are not read

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, PERSON)))

    def zero(self) -> list[tuple[Floats, Floats, Integers]]:
        """No rows."""
        return []

    def __call__(self, batch: Any) -> list[tuple[Floats, Floats, Integers]]:
        """Returns the rows of this batch."""
        person = np.asarray(batch.column(PERSON).to_numpy(), dtype=np.int64)
        heard = self.heard[person]
        Z = self.reader.matrix(batch)[heard]
        y = self.label.signs(batch, 1) if isinstance(self.label, ClassLabel) else self.label.values(batch)
        return [(np.column_stack([np.full(len(Z), 0.5), Z]), y[heard], person[heard])]


@dataclass(frozen=True, eq=False)
class People:
    """Rows in memory, those of a person one after another."""

    rows: Floats
    labels: Floats
    first: Integers  # the place of each person's first row, and one more for the end
    weight: Floats  # P_l of each person, whole numbers

    @classmethod
    def of(cls, parts: list[tuple[Floats, Floats, Integers]], weight: Floats) -> People:
        """Puts the parts together and sorts them by person; ``weight`` is by person, 0 for those left out."""
        rows, labels, person = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(person, kind="stable")
        if np.any(order[1:] < order[:-1]):
            rows, labels, person = rows[order], labels[order], person[order]
        first = np.flatnonzero(np.diff(person, prepend=-1))
        return cls(rows, labels, np.append(first, len(person)), weight[person[first]])

    def pieces(self, chosen: NDArray[np.bool_] | None) -> Iterator[People]:
        """Yields the chosen people (None: all), a cacheful at a time; nobody is ever cut in two."""
        places = np.arange(len(self.weight)) if chosen is None else np.flatnonzero(chosen)
        counts = self.first[places + 1] - self.first[places]
        block = np.cumsum(counts) // PIECE
        for part in np.split(places, np.flatnonzero(np.diff(block)) + 1):
            if len(part):
                yield self._only(part, chosen is None)

    def _only(self, part: Integers, together: bool) -> People:
        counts = self.first[part + 1] - self.first[part]
        ends = np.cumsum(counts)
        which: Any = slice(self.first[part[0]], self.first[part[-1] + 1])
        if not together:
            which = np.arange(ends[-1]) + np.repeat(self.first[part] - ends + counts, counts)
        return People(self.rows[which], self.labels[which], np.append(0, ends), self.weight[part])


def clipped(mean_gradients: Floats, weight: Floats, clip: float) -> Floats:
    """Returns whole numbers, a row a person: the gradient, of length at most ``clip``, in units of clip/weight.

    Each row's Euclidean norm, computed exactly, is at most the person's weight: the length is cut with a margin that
    covers rounding, and cutting off digits moves every entry towards zero.
    """
    length = np.sqrt(np.einsum("ij,ij->i", mean_gradients, mean_gradients))
    scale = weight * INSIDE / np.maximum(length, clip)
    return np.asarray(np.trunc(mean_gradients * scale[:, None]), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Descent:
    """The public settings of a run."""

    loss: Loss
    clip: float
    steps: int
    stride: float
    radius: float
    box: bool
    average: bool
    rate: int  # of drawing a person, in units of 2⁻³²
    scale: float  # σ of the noise, in units of clip/weight
    total: int

    def run(self, people: People, watch: Callable[[int], None]) -> Floats:
        """Returns the average of the later half of the iterates, or the last; reports each step done."""
        theta = np.zeros(people.rows.shape[1])
        kept = np.zeros_like(theta)
        unit = self.clip / self.total / math.ldexp(self.rate, -choose.RATE_BITS)  # never the number who were drawn
        for step, noise in enumerate(self.noise(len(theta))):
            noisy = self.exact_sum(people, theta, self.chosen(len(people.weight))) + noise
            theta = self.projected(theta - self.stride * unit * noisy)
            kept += theta * (step >= self.steps // 2)
            watch(step + 1)
        return kept / (self.steps - self.steps // 2) if self.average else theta

    def noise(self, coordinates: int) -> Iterator[Floats]:
        """Yields fresh noise for each step, drawn for several steps at a time, whoever takes part in them."""
        for done in range(0, self.steps, AT_ONCE):
            count = min(AT_ONCE, self.steps - done)
            drawn = np.array(gaussian.draw(self.scale, count * coordinates), dtype=np.float64)
            yield from drawn.reshape(count, coordinates)

    def chosen(self, people: int) -> NDArray[np.bool_] | None:
        """Returns who takes part in a step, by coins of their own; None where everybody does."""
        return None if self.rate == 2**choose.RATE_BITS else choose.drawn(people, self.rate)

    def exact_sum(self, people: People, theta: Floats, chosen: NDArray[np.bool_] | None = None) -> Floats:
        """Returns Σ_l clipped(g_l): whole numbers below 2^52, the same in whatever order they are added."""
        total = np.zeros(len(theta))
        for piece in people.pieces(chosen):
            total += np.ones(len(piece.weight)) @ clipped(self.mean_gradients(piece, theta), piece.weight, self.clip)
        return total

    def mean_gradients(self, people: People, theta: Floats) -> Floats:
        """Returns each person's mean gradient; rows of a person weigh the same."""
        slope = self.loss.derivative(people.rows @ theta, people.labels)
        slope = np.clip(np.nan_to_num(slope, nan=0.0), -STEEPEST, STEEPEST)
        counts = np.diff(people.first)
        if counts.max(initial=1) == 1:
            return people.rows * slope[:, None]
        return np.add.reduceat(people.rows * slope[:, None], people.first[:-1]) / counts[:, None]

    def projected(self, theta: Floats) -> Floats:
        """Returns the nearest point of the box or ball."""
        if self.box:
            return np.clip(theta, -self.radius, self.radius)
        return theta * min(1.0, self.radius / max(float(np.linalg.norm(theta)), 1e-300))


@contextmanager
def watching(progress: Progress, steps: int) -> Iterator[Callable[[int], None]]:
    """Returns what is called with the number of steps done; they are public, and nothing else is shown."""
    if progress is not True:
        yield progress if callable(progress) else lambda step: None
        return
    from rich.progress import Progress as Bar  # half a tenth of a second, and seldom wanted

    with Bar(transient=True) as bar:
        task = bar.add_task("Descending", total=steps)
        yield lambda step: bar.update(task, completed=step)
