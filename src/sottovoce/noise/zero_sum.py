# SPDX-License-Identifier: Apache-2.0
"""Integer noise that sums to zero, drawn exactly: for tables of few cells whose total is public
(docs/theory/tables.md).

    P[Z = z] ∝ exp(−‖z‖₁/(2·scale)) over whole numbers z_1 … z_K with Σz = 0

Positive and negative entries have one total T, so that ‖z‖₁ = 2T and P ∝ exp(−T/scale). With p
entries above zero and q = K − p others there are

    C(K, p)·C(T−1, p−1)·C(T+q−1, q−1)

such vectors for T ≥ 1: which entries are positive, T in p parts that are at least 1, and T in q
parts that are at least 0. p and T are drawn from laws that have more, and kept with the ratio of
the two, a rational number; the rest is uniform. No probability is rounded.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate, pairwise
from math import comb, prod

from sottovoce.noise import source

#: Up to so many cells; beyond, independent noise has nearly the same variance and is drawn faster.
MOST_CELLS = 64
#: Where there are more cells than this, the scale must be at least their number squared: else most
#: of what is drawn would be thrown away.
ANY_SCALE_CELLS = 6


def draw_zero_sum(scale: int, cells: int) -> list[int]:
    """Returns integers Z_1 … Z_cells that sum to zero, with P[Z=z] ∝ exp(−‖z‖₁/(2·scale)),
    exactly.
    """
    if not isinstance(scale, int) or not 0 < scale <= source.MAX_LAPLACE_SCALE:
        raise ValueError("the scale of integer noise is a whole number between 1 and 2^45")
    if not 2 <= cells <= MOST_CELLS or (cells > ANY_SCALE_CELLS and scale < cells**2):
        raise ValueError("noise that sums to zero is for few cells, and a scale above their square")
    opened = source.seam()
    if opened is None:
        return sample_zero_sum(scale, cells)
    return opened.integers("zero sum", float(scale), cells)


def sample_zero_sum(scale: int, cells: int) -> list[int]:
    """Returns the same, from bytes and from geometric noise whatever a test has put in its
    place.
    """
    positive, total = _draw_total(scale, cells)
    if total == 0:
        return [0] * cells
    others = cells - positive
    above = _split(total, positive)
    below = [part - 1 for part in _split(total + others, others)]
    drawn = [-part for part in below]
    for place, part in zip(sorted(_choose(positive, cells)), above, strict=True):
        drawn.insert(place, part)
    return drawn


def _draw_total(scale: int, cells: int) -> tuple[int, int]:
    """Returns how many entries are positive, and their total."""
    while True:
        positive = _draw_positive(cells)
        total = sum(_draw_geometric(scale, cells - 1))
        others = cells - positive
        kept = prod(total - i for i in range(1, positive))
        of = prod(total + others - 1 + i for i in range(1, positive))
        if total == 0:  # one vector, whatever p is
            kept = 1
            of = comb(2 * cells - 2, cells - 1)
        if kept > 0 and source.draw_below(of) < kept:
            return positive, total


def _draw_positive(cells: int) -> int:
    """Returns p in 1 … cells − 1 with probability ∝ C(cells, p)·C(cells − 2, p − 1)."""
    reached = _accumulate_weights(cells)
    drawn = source.draw_below(reached[-1])
    return next(p for p, end in enumerate(reached, 1) if drawn < end)


@cache
def _accumulate_weights(cells: int) -> list[int]:
    return list(accumulate(weigh_positive(cells)))


def weigh_positive(cells: int) -> list[int]:
    """Returns C(cells, p)·C(cells − 2, p − 1) for p = 1 … cells − 1: how often p entries are
    positive at a large scale.
    """
    return [comb(cells, p) * comb(cells - 2, p - 1) for p in range(1, cells)]


def _draw_geometric(scale: int, size: int) -> list[int]:
    """Returns independent whole numbers with P[G=g] ∝ exp(−g/scale), g ≥ 0: those of a Laplace law
    that are not negative.
    """
    drawn: list[int] = []
    while len(drawn) < size:
        drawn += [z for z in source.draw_laplace(scale, 2 * size + 2) if z >= 0]
    return drawn[:size]


def _split(total: int, parts: int) -> list[int]:
    """Returns whole numbers ≥ 1 that sum to the total, all ways equally likely."""
    cuts = sorted(cut + 1 for cut in _choose(parts - 1, total - 1))
    return [high - low for low, high in pairwise([0, *cuts, total])]


def _choose(size: int, among: int) -> set[int]:
    """Returns a uniform set of so many of 0 … among − 1 (Floyd's algorithm)."""
    chosen: set[int] = set()
    for last in range(among - size, among):
        drawn = source.draw_below(last + 1)
        if drawn in chosen:
            drawn = last
        chosen.add(drawn)
    return chosen


def compute_variance(cells: int) -> float:
    """Returns the variance of one entry over the squared scale, for a large scale.

    >>> compute_variance(2), round(compute_variance(3), 4)
    (2.0, 3.3333)
    """
    weights = weigh_positive(cells)
    smaller = sum(weight / (p + 1) for p, weight in enumerate(weights, 1)) / sum(weights)
    return 4 * (cells - 1) * smaller
