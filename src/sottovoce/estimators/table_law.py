# SPDX-License-Identifier: Apache-2.0
"""The noise of a table as a law: variances, and how far an interval must reach
(docs/theory/tables.md).

Numbers here are in units of the loss scale ρ, at which somebody of weight W loses W/ρ. Of a table
with few slots the noise sums to zero, with P ∝ exp(−‖z‖₁/2); else entries are independent, each
Laplace of scale 2. What intervals are made of has one or two slots in it, a·Z_1 + b·Z_2. Where it
has more, the law of independent entries is taken for both: given that they sum to zero, they reach
no further (docs/theory/tables.md).

    law            one slot                        two slots
    independent    Laplace(2|a|)                   two exponentials, in closed form
    sums to zero   T·V, T of a Gamma law with K − 1 degrees, and V the share of T that falls on the
                   slots: a Beta law, or two of them, by how many of the entries are positive
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.noise.zero_sum import MOST_CELLS, compute_variance, weigh_positive

#: The scale of independent noise, in units of ρ: replacing a person moves two entries.
INDEPENDENT_SCALE = 2.0
#: Nodes of the quadrature over a Beta law, bins of a share, and points of a law.
BETA_NODES = 24
SHARE_BINS = 600
LAW_POINTS = 500
#: Ratios of sampling to noise at which widths are tabulated; between them they are interpolated.
RATIOS = np.concatenate([[0.0], np.geomspace(0.05, 200.0, 25)])
HALVINGS = 34
#: Scales are made to differ by so much, at least, so that exponentials do not cancel.
APART = 0.01


@dataclass(frozen=True)
class NoiseLaw:
    """The law of the noise of a table with so many slots."""

    slots: int
    sums_to_zero: bool

    @classmethod
    def choose(cls, slots: int) -> NoiseLaw:
        """Returns the law of the smaller variance that can be drawn for so many slots."""
        return cls(slots, slots <= MOST_CELLS)

    @property
    def name(self) -> str:
        """What it is called in plans and releases."""
        if self.sums_to_zero:
            return "discrete Laplace that sums to zero"
        return "discrete Laplace"

    @property
    def factor(self) -> int:
        """The scale that is drawn, in units of ρ."""
        if self.sums_to_zero:
            return 1
        return int(INDEPENDENT_SCALE)

    def compute_variance(self, *coefficients: float) -> float:
        """Returns the variance of Σ a_j·Z_j over the slots that have a coefficient, once entries
        are made to sum to zero.
        """
        squares = sum(a * a for a in coefficients)
        total = sum(coefficients)
        return self._slot_variance() * (squares * self.slots - total**2) / (self.slots - 1)

    def _slot_variance(self) -> float:
        if self.sums_to_zero:
            return compute_variance(self.slots)
        return 2 * INDEPENDENT_SCALE**2 * (1 - 1 / self.slots)

    def find_half_widths(self, level: float, deviation: Floats, *coefficients: float) -> Floats:
        """Returns x with P(|Σ a_j·Z_j + G| ≤ x) ≥ level, G normal with each of these deviations; as
        drawn, before entries are made to sum to zero. Without coefficients it is one entry.
        """
        given = [a for a in coefficients or (1.0,) if a != 0]
        size = max((abs(a) for a in given), default=0.0)
        if size == 0:
            return np.asarray(find_normal(level) * deviation, dtype=np.float64)
        slots = 0
        if self.sums_to_zero and len(given) <= 2:
            slots = self.slots
        scaled = tuple(a / size for a in given)
        if not slots:
            scaled = tuple(sorted(map(abs, scaled)))  # neither order nor signs matter
        widths = size * _tabulate_widths(slots, scaled, level)
        ratio = np.asarray(deviation, dtype=np.float64) / size
        # Widths are convex in the deviation, so that what is interpolated is never too narrow; and
        # beyond the last ratio the width over the deviation falls.
        beyond = np.maximum(ratio / RATIOS[-1], 1.0)
        return np.asarray(beyond * np.interp(ratio, RATIOS, widths), dtype=np.float64)


@lru_cache(maxsize=512)
def _tabulate_widths(slots: int, coefficients: tuple[float, ...], level: float) -> Floats:
    """Returns the half-widths at RATIOS, in units of ρ; slots 0 for independent noise."""
    from scipy.special import ndtr, ndtri  # slow to load, and pages of tables need no widths

    points, masses = _tabulate_law(slots, coefficients)
    tail = 1 - level
    deviation = np.maximum(RATIOS, 1e-9)[:, None]
    low = np.zeros(len(RATIOS))
    high = points[-1] + RATIOS * float(-ndtri(tail / 4))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        near = ndtr((points - middle[:, None]) / deviation)
        far = ndtr((-points - middle[:, None]) / deviation)
        misses = (near + far) @ masses > tail
        low = np.where(misses, middle, low)
        high = np.where(misses, high, middle)
    return np.asarray(high, dtype=np.float64)


@lru_cache(maxsize=128)
def _tabulate_law(slots: int, coefficients: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Returns points and their masses: the law of |Σ a_j·Z_j|, each part of it moved outwards to
    the next point.
    """
    reach = 50.0 * math.hypot(*coefficients) + 4.0 * slots
    # Finer where most of the law is.
    points = reach * np.linspace(0.0, 1.0, LAW_POINTS) ** 2
    if slots:
        first, second = (*coefficients, 0.0)[:2]
        survival = _survive_together(slots, first, second, points)
    else:
        survival = _survive_independent(coefficients, points)
    masses = -np.diff(survival, append=0.0)
    return np.append(points[1:], points[-1]), masses


def _survive_independent(coefficients: tuple[float, ...], x: Floats) -> Floats:
    """P(|Σ a_j·L_j| > x), Laplace each: exponentials of all scales, which are first made to differ
    by enlarging them; those that are all equal are a difference of two Gamma numbers.
    """
    sizes = {abs(a) for a in coefficients}
    if len(sizes) == 1 and len(coefficients) > 1:
        return _survive_equal(len(coefficients), x / (INDEPENDENT_SCALE * sizes.pop()))
    scales: list[float] = []
    for a in sorted(map(abs, coefficients)):
        least = scales[-1] * (1 + APART) if scales else 0.0
        scales.append(max(INDEPENDENT_SCALE * a, least))
    survival = np.zeros(len(x))
    for s in scales:
        share = math.prod(s**2 / (s**2 - t**2) for t in scales if t != s)
        survival += share * np.exp(-x / s)
    return np.asarray(np.clip(survival, 0.0, 1.0))


def _survive_equal(count: int, x: Floats) -> Floats:
    """P(|Σ L_j| > x) for so many Laplace numbers of scale 1.

    Σ L_j is the difference of two sums of as many exponentials, which end one after the other, each
    time in either sum with the same chance. If the second sum is through when j of the first have
    ended, the difference is a sum of the others.
    """
    from scipy.special import gammaincc, gammaln

    survival = np.zeros(len(x))
    for ended in range(count):
        chance = math.exp(
            gammaln(count + ended)
            - gammaln(ended + 1)
            - gammaln(count)
            - (count + ended - 1) * math.log(2)
        )
        survival += chance * gammaincc(count - ended, x)
    return np.asarray(np.clip(survival, 0.0, 1.0))


def _survive_together(slots: int, first: float, second: float, x: Floats) -> Floats:
    """P(T·|V| > x) for noise that sums to zero, V rounded outwards to one of many bins."""
    from scipy.special import gammaincc

    share, mass = _bin_shares(slots, first, second)
    with np.errstate(divide="ignore"):
        reached = x[:, None] / share
    return np.asarray(gammaincc(slots - 1, reached) @ mass)


def _bin_shares(slots: int, first: float, second: float) -> tuple[Floats, Floats]:
    """Returns the law of |V|, what of T falls on the two slots."""
    weights = np.array([float(weight) for weight in weigh_positive(slots)])
    weights /= weights.sum()
    largest = abs(first) + abs(second)
    masses = np.zeros(SHARE_BINS + 1)
    pairs = slots * (slots - 1)
    for p, weight in enumerate(weights, 1):
        q = slots - p
        # By symmetry both negative is both positive with p and q exchanged.
        cases = [
            (p * (p - 1) / pairs, *_share_one_side(p, first, second)),
            (q * (q - 1) / pairs, *_share_one_side(q, first, second)),
            (p * q / pairs, *_share_two_sides(p, q, first, second)),
            (p * q / pairs, *_share_two_sides(p, q, second, first)),
        ]
        for chance, shares, parts in cases:
            if chance > 0:
                bins = np.ceil(np.abs(shares) / largest * SHARE_BINS).astype(np.int64)
                masses += np.bincount(
                    np.minimum(bins, SHARE_BINS), weight * chance * parts, SHARE_BINS + 1
                )
    return np.maximum(np.arange(SHARE_BINS + 1) / SHARE_BINS, 1e-12) * largest, masses


def _beta_nodes(parts: int) -> tuple[Floats, Floats]:
    """Returns nodes and weights of Beta(1, parts − 1), the share of one of so many parts."""
    if parts <= 1:
        return np.ones(1), np.ones(1)
    nodes, weights = np.polynomial.legendre.leggauss(BETA_NODES)
    return 1 - ((nodes + 1) / 2) ** (1 / (parts - 1)), weights / 2


def _share_one_side(parts: int, first: float, second: float) -> tuple[Floats, Floats]:
    if parts < 2:
        return np.zeros(1), np.ones(1)
    one, mass = _beta_nodes(parts)
    other, other_mass = _beta_nodes(parts - 1)
    shares = first * one[:, None] + second * (1 - one)[:, None] * other
    return shares.ravel(), (mass[:, None] * other_mass).ravel()


def _share_two_sides(p: int, q: int, first: float, second: float) -> tuple[Floats, Floats]:
    one, mass = _beta_nodes(p)
    other, other_mass = _beta_nodes(q)
    shares = first * one[:, None] - second * other
    return shares.ravel(), (mass[:, None] * other_mass).ravel()


def project_on_simplex(values: Floats, total: float = 1.0) -> Floats:
    """Returns the nearest numbers that are not negative and have this sum.

    It is what is left above one level of all values, so that numbers that are nearest already stay
    as they are.

    >>> project_on_simplex(np.array([0.7, 0.5, -0.2])).tolist()
    [0.6, 0.4, 0.0]
    """
    ordered = np.sort(values)[::-1]
    above = (np.cumsum(ordered) - total) / np.arange(1, len(values) + 1)
    count = int(np.count_nonzero(ordered > above))
    level = above[max(count, 1) - 1]
    return np.asarray(np.maximum(values - level, 0.0), dtype=np.float64)


def find_normal(level: float) -> float:
    """Returns how many deviations of a normal law are exceeded with probability 1 − level."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2))


def bound_share_variance(low: Floats, high: Floats) -> Floats:
    """Returns the largest p·(1 − p) between these shares."""
    nearest = np.clip(0.5, np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0))
    return np.asarray(nearest * (1 - nearest), dtype=np.float64)


def find_share_interval(
    law: NoiseLaw,
    level: float,
    shares: Floats,
    ratio: float,
    people: float,
    heaviest: float,
    *coefficients: float,
) -> tuple[Floats, Floats]:
    """Returns between which shares those of the population lie, for noisy shares Σ a_j·h_j.

    A share π is left out if the noisy one is further from it than noise and sampling reach at π:
    deviations of √(people·π(1 − π)), and half the weight of the heaviest person, because people
    come whole. A noisy share outside [0, 1] counts as the end that it passed: it is nearer to every
    share that there can be, and no interval shrinks to a point because noise was far below 0.
    """
    shares = np.clip(shares, 0.0, 1.0)

    def reach(share: Floats) -> Floats:
        inside = np.clip(share, 0.0, 1.0)
        deviation = np.sqrt(people * inside * (1 - inside))
        return ratio * law.find_half_widths(level, deviation / ratio, *coefficients) + heaviest / 2

    def find_end(sign: float) -> Floats:
        # The share plus its reach passes the noisy share once on each side.
        near = shares
        far = np.full(len(shares), 0.5 - sign / 2)
        for _ in range(HALVINGS):
            middle = (near + far) / 2
            inside = np.abs(shares - middle) <= reach(middle)
            near = np.where(inside, middle, near)
            far = np.where(inside, far, middle)
        return np.asarray(np.where(np.abs(shares - far) <= reach(far), far, near))

    return find_end(1.0), find_end(-1.0)


def count_too_few(law: NoiseLaw, rows: int, ratio: float, *coefficients: float) -> float:
    """Returns below how many rows a group is too few to say: three deviations of its noisy
    count.
    """
    return 3.0 * rows * ratio * math.sqrt(law.compute_variance(*coefficients))
