# SPDX-License-Identifier: Apache-2.0
"""Noisy gradient descent over people, on whole numbers (docs/theory/erm.md).

In every step each person's mean gradient is clipped to length L, scaled so that L becomes their whole-number
weight P_l, and cut off to whole numbers; the sum over people is exact, and discrete Gaussian noise is added to it.
Everything else here is a function of those noisy sums and of public numbers. Rows are read where they live, once a
step (gradients.py).

    symbol        name
    φ_i = (½, z)  rows            P_l  weight, of a person      M = ΣP  total
    ∇ = ℓ'·φ      the gradient    L    clip                     q       rate
    η             stride          B    radius                   T       steps
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.budgets import Budgets
from sottovoce.engine import Rows
from sottovoce.estimators.risk import gradients
from sottovoce.noise import choose, gaussian
from sottovoce.solvers.losses import Loss
from sottovoce.statistics import Owner
from sottovoce.weights import Weights

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: False, True for a bar at the terminal, or a function that is called with the number of steps done.
Progress = bool | Callable[[int], None]

#: In memory this column says whose each row is.
PERSON = "person"
#: Noise is drawn for so many steps in one call, which costs as much as thirty draws.
AT_ONCE = 64
#: All weights together are at most this, so that sums of whole numbers are exact in doubles whatever their order.
LARGEST_TOTAL = 2**52


def place_of(owner: Owner) -> Owner | None:
    """Returns how the place of a row's owner among people is found; None where rows are nobody's in particular."""
    if owner.column is None:
        return None
    if owner.keys is None:  # in memory, where a column of its own has the place
        return Owner(PERSON)
    return None if owner.codes is None else replace(owner, codes=None)


@dataclass(frozen=True, eq=False)
class People:
    """Rows where they live, and public facts about the people whose they are."""

    rows: Rows
    kinds: Floats  # P_l by kind, whole numbers
    weight: Floats  # P_l by person (by kind where rows are nobody's in particular)
    counts: Integers  # s_l, likewise

    @classmethod
    def of(cls, rows: Rows, budgets: Budgets, weights: Weights) -> People:
        """The people of a plan."""
        kinds = weights.person.astype(np.float64)
        return cls(rows, kinds, budgets.by_person(kinds), budgets.by_person(budgets.kinds.rows))

    @property
    def coordinates(self) -> int:
        """d: the columns, and the intercept."""
        return int(self.rows.features.width) + 1

    @property
    def most(self) -> int:
        """The most rows that one person has."""
        return int(self.counts.max())


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
        theta = np.zeros(people.coordinates)
        kept = np.zeros_like(theta)
        unit = self.clip / self.total / math.ldexp(self.rate, -choose.RATE_BITS)  # never the number who were drawn
        for step, noise in enumerate(self.noise(len(theta))):
            noisy = self.exact_sum(people, theta, self.choose_people(len(people.weight))) + noise
            theta = self.project(theta - self.stride * unit * noisy)
            kept += theta * (step >= self.steps // 2)
            watch(step + 1)
        return kept / (self.steps - self.steps // 2) if self.average else theta

    def noise(self, coordinates: int) -> Iterator[Floats]:
        """Yields fresh noise for each step, drawn for several steps at a time, whoever takes part in them."""
        for done in range(0, self.steps, AT_ONCE):
            count = min(AT_ONCE, self.steps - done)
            drawn = np.array(gaussian.draw(self.scale, count * coordinates), dtype=np.float64)
            yield from drawn.reshape(count, coordinates)

    def choose_people(self, people: int) -> NDArray[np.bool_] | None:
        """Returns who takes part in a step, by coins of their own; None where everybody does."""
        return None if self.rate == 2**choose.RATE_BITS else choose.drawn(people, self.rate)

    def exact_sum(self, people: People, theta: Floats, chosen: NDArray[np.bool_] | None = None) -> Floats:
        """Returns Σ_l clipped(g_l) over the chosen people: whole numbers, at most 2^52 in all."""
        rows, place = people.rows, place_of(people.rows.owner)
        common: dict[str, Any] = {"reader": rows.features, "label": rows.label, "loss": self.loss}
        common |= {"theta": theta, "clip": self.clip}
        if people.most == 1:
            kernel = gradients.RowSums(**common, owner=rows.owner, weights=people.kinds, place=place, chosen=chosen)
            return rows.engine.fold(kernel).astype(np.float64)
        assert place is not None  # rows of one person have a column that says so
        heard = people.weight > 0 if chosen is None else chosen & (people.weight > 0)
        lines = np.where(heard, np.cumsum(heard) - 1, -1)
        by_person = gradients.PersonSums(**common, place=place, lines=lines, most=people.most)
        sums = rows.engine.fold(by_person).dense()
        return self.sum_over_people(sums, by_person.unit / people.counts[heard], people.weight[heard])

    def sum_over_people(self, sums: Integers, scale: Floats, weight: Floats) -> Floats:
        """Returns the sum of clipped means, a cacheful of people at a time."""
        total, size = np.zeros(sums.shape[1]), gradients.PIECE
        for at in range(0, len(sums), size):
            means = sums[at : at + size] * scale[at : at + size, None]
            total += np.ones(len(means)) @ gradients.clipped(means, weight[at : at + size], self.clip)
        return total

    def project(self, theta: Floats) -> Floats:
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
