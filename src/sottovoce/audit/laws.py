# SPDX-License-Identifier: Apache-2.0
"""Realised losses: log-ratios of the exact laws of what was released, with and without a person
(docs/theory/per-instance.md, section on realised losses).

A release is one outcome of each of its stages. For every stage the log-ratio of its probability,
or density, on the table and on the table with one unit (a row, or all rows of a person) taken out
is known: stages add up.

    law                     loss of a unit
    discrete Laplace        of the interval of whole numbers that is published as one number
    table of sums           the same for each entry, or exactly where the entry is published
    permute and flip        P(r) = e_r·∫ Π_{s≠r} (1 − u·e_s) du, e = exp(−score/scale)
    noise in the objective  N(b') − N(b) − log det(I − share of the curvature)

    symbol   name
    b, b'    what the noise must have been for this answer, with and without the unit
    H        Σ a·ℓ''·φφᵀ + Λ, the curvature with everybody
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from sottovoce.arrays import Floats, Integers

#: Rows or units that are worked on at a time, so that the work stays in the cache.
CHUNK = 8192
#: Numbers in the blocks of units with several rows.
BLOCK_NUMBERS = 2**20
#: Up to this many kinds of rows are counted, and not sorted.
MOST_KEYS = 2**24
#: Nodes of a quadrature of polynomials, exact up to degree 79: the choice among few.
FEW_NODES = 40
#: Nodes in each octave of the choice among many, whose integrand is a product of many factors.
OCTAVE_NODES = 16
SPARE_OCTAVES = 8


@dataclass(frozen=True, eq=False)
class AuditUnits:
    """Which rows are taken out together: one a unit, or those of a person."""

    codes: Integers  # row → unit
    count: int

    @classmethod
    def rows(cls, count: int) -> AuditUnits:
        """Every row by itself."""
        return cls(np.arange(count), count)

    @cached_property
    def single(self) -> bool:
        """Whether row i is unit i, for all."""
        return self.count == len(self.codes) and bool(
            np.array_equal(self.codes, np.arange(self.count))
        )

    @cached_property
    def sizes(self) -> Integers:
        """How many rows each has."""
        return np.bincount(self.codes, minlength=self.count).astype(np.int64)

    @cached_property
    def order(self) -> Integers:
        """Rows, those of one unit after those of another."""
        return np.argsort(self.codes, kind="stable").astype(np.int64)

    @cached_property
    def first(self) -> Integers:
        """Where in ``order`` the rows of each unit begin."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    def add(self, values: Any) -> Any:
        """Returns sums over the rows of each unit, of numbers or of rows of numbers."""
        if self.single:
            return values
        if values.ndim == 1:
            return np.bincount(self.codes, values, minlength=self.count)
        total = np.zeros((self.count, values.shape[1]), dtype=values.dtype)
        np.add.at(total, self.codes, values)
        return total

    def distinguish(self, *codes: Integers) -> tuple[Integers, Integers, AuditUnits]:
        """Returns rows that stand for all with the same codes, which of them each unit has, and
        the units of these rows: where units are single rows, many lose the same.
        """
        if not self.single:
            return np.arange(len(self.codes)), np.arange(self.count), self
        key = np.zeros(self.count, dtype=np.int64)
        for code in codes:
            key = key * (int(code.max(initial=0)) + 1) + code
        if int(key.max(initial=0)) > MOST_KEYS:
            _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
            return first, np.ravel(inverse), AuditUnits.rows(len(first))
        there = np.flatnonzero(np.bincount(key))  # which sorts nothing
        number = np.zeros(int(key.max(initial=0)) + 1, dtype=np.int64)
        number[there] = np.arange(len(there))
        inverse = number[key]
        first = np.empty(len(there), dtype=np.int64)
        first[inverse] = np.arange(self.count)
        return first, inverse, AuditUnits.rows(len(there))

    def iterate_blocks(self, width: int) -> Iterator[tuple[Integers, Integers]]:
        """Yields units of equally many rows, and the places of their rows, a block at a time."""
        for size in np.unique(self.sizes[self.sizes > 0]):
            everybody = np.flatnonzero(self.sizes == size)
            step = max(BLOCK_NUMBERS // (int(size) * width), 1)
            for at in range(0, len(everybody), step):
                units = everybody[at : at + step]
                yield units, self.order[self.first[units][:, None] + np.arange(size)]


def compute_interval_loss(
    low: float, high: float, centre: Floats | float, moved: Floats, scale: float
) -> Floats:
    """Return log P_c(low … high) − log P_{c−moved}(low … high), P_c discrete Laplace around c.

    Parameters
    ----------
    low, high :
        the whole numbers that are published as one, counted from an origin of one's own; the first
        may be −∞, the last ∞.
    centre :
        the exact statistic with everybody, from the same origin.
    moved :
        what each unit adds to it.
    scale :
        of the noise.
    """
    return compute_interval_mass(low, high, centre, scale) - compute_interval_mass(
        low, high, centre - moved, scale
    )


def compute_interval_mass(low: float, high: float, centre: Any, scale: float) -> Floats:
    """Return log P(low ≤ centre + Z ≤ high), Z discrete Laplace."""
    c = np.asarray(centre, dtype=np.float64)
    q = -1 / scale  # log of the ratio of neighbours
    odd = math.log1p(math.exp(q))
    length = high - low + 1
    if math.isinf(length):
        whole = 0.0
    else:
        whole = math.log(-math.expm1(q * length))
    with np.errstate(invalid="ignore", over="ignore"):
        below = q * np.maximum(low - c, 0.0)
        above = q * np.maximum(c - high, 0.0)
        outside = np.where(c < low, below, above) + whole - odd
        tails = np.exp(q * np.maximum(c - low + 1, 0.0)) + np.exp(q * np.maximum(high - c + 1, 0.0))
        inside = np.log1p(-tails / (1 + math.exp(q)))
    return np.asarray(np.where((c < low) | (c > high), outside, inside), dtype=np.float64)


def find_interval(
    value: Fraction, step: Fraction, to_number: Callable[[int], Fraction], guess: int
) -> tuple[int, int]:
    """Return the first and the last whole number n for which to_number(n), which rises, rounds to
    value in units of step.
    """
    place = round(value / step)

    def rounds_to(n: int) -> int:
        return round(to_number(n) / step)

    unit = to_number(1) - to_number(0)
    nearest = guess + math.floor((value - to_number(guess)) / unit)
    reach = math.ceil(step / unit) + 2
    return (
        _bisect(lambda n: rounds_to(n) >= place, nearest - reach, nearest + reach),
        _bisect(lambda n: rounds_to(n) > place, nearest - reach, nearest + reach) - 1,
    )


def _bisect(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Returns the first whole number above low, up to high, for which a rising condition holds."""
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Sums with independent noise on each entry: one small law for whatever publishes a table.

    ``published`` and ``exact`` are entries in units of the noise's whole numbers, counted from any
    common origin; ``scales`` one number for each entry, and ``law`` "laplace" or "gaussian".
    """

    published: Floats
    exact: Floats
    scales: Floats
    law: str = "laplace"

    def compute_losses(self, moved: Floats) -> Floats:
        """Return the loss of units that add ``moved`` to the entries, a row each."""
        noise = self.published - self.exact
        total = np.zeros(len(moved))
        for at in range(0, len(moved), CHUNK):
            part = moved[at : at + CHUNK]
            if self.law == "gaussian":
                apart = (np.square(noise + part) - noise**2) / (2 * self.scales**2)
            else:
                apart = (np.abs(noise + part) - np.abs(noise)) / self.scales
            total[at : at + CHUNK] = apart.sum(axis=1)
        return total

    def measure_distances(self, moved: Floats) -> Floats:
        """Return √Σ(moved/scale)², for Gaussian noise: its GDP parameter."""
        return np.asarray(np.sqrt(np.square(moved / self.scales).sum(axis=1)))


def choose_log_probability(scores: NDArray[np.int64], chosen: int, scale: float) -> Floats:
    """Return log P of the chosen candidate by permute-and-flip, for lines of scores of few
    candidates.
    """
    scores = np.atleast_2d(scores)
    gaps = (scores - scores.min(axis=1, keepdims=True)) / scale
    heads = np.exp(-gaps)
    nodes, mass = np.polynomial.legendre.leggauss(max(FEW_NODES, (heads.shape[1] + 1) // 2))
    others = np.delete(heads, chosen, axis=1)
    total = np.zeros(len(heads))
    for u, weight in zip((nodes + 1) / 2, mass / 2, strict=True):
        total += weight * np.prod(1 - u * others, axis=1)
    return np.asarray(np.log(total) - gaps[:, chosen])


def compute_choice_loss(
    scores: NDArray[np.int64], without: NDArray[np.int64], chosen: int, scale: float
) -> Floats:
    """Return the loss of units without which candidates have these scores, a line each."""
    full = choose_log_probability(scores[None, :], chosen, scale)[0]
    lines, where = find_distinct_lines(without)
    return np.asarray(full - choose_log_probability(lines, chosen, scale)[where])


def find_distinct_lines(lines: NDArray[np.int64]) -> tuple[NDArray[np.int64], Integers]:
    """Return lines that differ, and which of them each is: by a number for each, which takes a
    tenth of the time, unless two lines have the same one.
    """
    factors = np.arange(1, 2 * lines.shape[1] + 1, 2, dtype=np.uint64) ** np.uint64(13)
    number = lines.astype(np.uint64) @ factors  # modulo 2^64
    _, first, where = np.unique(number, return_index=True, return_inverse=True)
    where = np.ravel(where)
    found = lines[first]
    if np.array_equal(found[where], lines):
        return found, where
    found, where = np.unique(lines, axis=0, return_inverse=True)
    return found, np.ravel(where)


def make_octave_nodes(most: float, steepness: float) -> tuple[Floats, Floats]:
    """Return nodes and weights of a quadrature over (0, most], fine near 0, where a product of
    factors falls by e within 1/steepness of the way.
    """
    nodes, mass = np.polynomial.legendre.leggauss(OCTAVE_NODES)
    octaves = max(math.ceil(math.log2(max(steepness, 1.0))), 0) + SPARE_OCTAVES
    ends = most * 0.5 ** np.arange(octaves)
    u = np.concatenate([end / 2 * (1 + (nodes + 1) / 2) for end in ends])
    w = np.concatenate([end / 4 * mass for end in ends])
    # What is left below the last octave is as good as flat.
    return np.append(u, ends[-1] / 4), np.append(w, ends[-1] / 2)


@dataclass(frozen=True, eq=False)
class ObjectiveNoise:
    """Noise b in an objective: its norm, N, so that its density is ∝ exp(−N(b))."""

    measure: Callable[[Floats], Floats]  # N, of each row


@dataclass(frozen=True, eq=False)
class ObjectiveStage:
    """A released minimiser of Σ a·ℓ(φᵀθ) + ½‖θ − θ₀‖²_Λ + bᵀθ, and the rows that it is of.

    A row has as many functions of θ as the loss has: one, or one for each class. ``pulls`` is −ℓ'
    times the row's weight, and ``bends`` factors whose product with their own transpose is a·ℓ''.
    Where labels alone are taken out, ``moved`` is what that takes from the pulls, and curvature
    stays.
    """

    rows: Floats  # φ, (n, d)
    pulls: Floats  # (n, K)
    bends: Floats  # (n, K, q)
    ridge: Floats  # Λ, K·d numbers, function by function
    away: Floats  # θ − θ₀, likewise
    noise: ObjectiveNoise
    moved: Floats | None = None  # (n, K)

    @cached_property
    def tilt(self) -> Floats:
        """b that gives this minimiser with everybody: Σ a·pull·φ − Λ(θ − θ₀)."""
        total = np.zeros((self.pulls.shape[1], self.rows.shape[1]))
        for at in range(0, len(self.rows), CHUNK):
            total += self.pulls[at : at + CHUNK].T @ self.rows[at : at + CHUNK]
        return np.asarray(total.ravel() - self.ridge * self.away)

    @cached_property
    def inverse_root(self) -> Floats:
        """L⁻¹, H = L·Lᵀ."""
        size = len(self.ridge)
        hessian = np.diag(self.ridge).astype(np.float64)
        for at in range(0, len(self.rows), CHUNK):
            part = self._spread(slice(at, at + CHUNK)).reshape(-1, size)
            hessian += part.T @ part
        root = np.linalg.cholesky(hessian)
        return np.asarray(solve_triangular(root, np.eye(size), lower=True))

    def compute_losses(self, units: AuditUnits) -> Floats:
        """Return N(b') − N(b) − log det(I − B), B the unit's share of the curvature."""
        found = np.zeros(units.count)
        own = float(self.noise.measure(self.tilt[None, :])[0])
        if units.single:
            for at in range(0, units.count, CHUNK):
                part = slice(at, at + CHUNK)
                found[part] = self.noise.measure(self.tilt - self._pull(part)) - own
                found[part] -= self._drop(self._turn(part)[:, None])
            return found
        width = self.bends.shape[2]
        for members, places in units.iterate_blocks(len(self.ridge) * width):
            flat = places.ravel()
            pulled = self._pull(flat).reshape(*places.shape, -1).sum(axis=1)
            found[members] = self.noise.measure(self.tilt - pulled) - own
            found[members] -= self._drop(self._turn(flat).reshape(*places.shape, width, -1))
        return found

    def _pull(self, which: Any) -> Floats:
        if self.moved is None:
            pulls = self.pulls[which]
        else:
            pulls = self.moved[which]
        rows = self.rows[which]
        if pulls.shape[1] == 1:
            return np.asarray(rows * pulls)
        return np.asarray((pulls[:, :, None] * rows[:, None, :]).reshape(len(rows), -1))

    def _spread(self, which: Any) -> Floats:
        """Rows times the factors of their curvature: (n, q, K·d)."""
        bends = self.bends[which]
        rows = self.rows[which]
        if bends.shape[1] == 1:
            return np.asarray((rows * bends[:, 0])[:, None, :])
        spread = np.einsum("nkq,nd->nqkd", bends, rows)
        return np.asarray(spread.reshape(len(rows), bends.shape[2], -1))

    def _turn(self, which: Any) -> Floats:
        spread = self._spread(which)
        # As one matrix: a product for each row by itself takes ten times as long.
        turned = spread.reshape(-1, spread.shape[2]) @ self.inverse_root.T
        return np.asarray(turned.reshape(spread.shape))

    def _drop(self, turned: Floats) -> Floats:
        """log det(I − B) of units whose turned rows are (units, rows, q, K·d)."""
        units, *_, size = turned.shape
        if self.moved is not None:
            return np.zeros(units)
        flat = turned.reshape(units, -1, size)
        if flat.shape[1] == 1:
            return np.asarray(np.log1p(-np.einsum("uij,uij->u", flat, flat)))
        if flat.shape[1] > size:
            small = flat.transpose(0, 2, 1) @ flat
        else:
            small = flat @ flat.transpose(0, 2, 1)
        return np.asarray(np.linalg.slogdet(np.eye(small.shape[1]) - small)[1])
