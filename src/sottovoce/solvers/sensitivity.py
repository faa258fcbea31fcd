# SPDX-License-Identifier: Apache-2.0
"""How far one person's labels can move a linear map, exactly (docs/theory/labels.md, equations 2 to
4).

    N(c) = max_{|δ_i| ≤ 1} Σ_j |Σ_i δ_i·c_ij| = max over signs u of Σ_terms |Σ_inside u·c|

The maximum is over signs of columns (terms: rows) or of rows (terms: columns), whichever are fewer:
at most 2^(SHORT−1) sign vectors are tried one by one.

    symbol   name
    c        map of one person: rows × d, turned so that `inside` is the short side
    u        signs, first sign +1 (u and −u give the same sum)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Floats, Integers

#: The shorter side of a person's map may have this many entries: 2,048 sign vectors.
SHORT = 12
#: Numbers held at a time while sign vectors are tried.
PIECE_ENTRIES = 2**22
#: Relative error allowed to LAPACK's largest singular value; its bound is some 1e-13 for the sizes
#: met here.
MARGIN = 1e-9


@cache
def list_sign_vectors(size: int) -> Floats:
    """Return all 2^(size−1) vectors of signs that begin with +1, one a row."""
    bits = (np.arange(2 ** (size - 1))[:, None] >> np.arange(size - 1)) & 1
    return np.hstack([np.ones((len(bits), 1)), 1.0 - 2.0 * bits])


def compute_entrywise_norms(c: Floats, starts: Integers) -> Floats:
    """Return Σ|c_ij| for every person, whose rows lie together and begin at ``starts``."""
    return np.asarray(np.add.reduceat(np.abs(c).sum(axis=1), starts))


def compute_norms(c: Floats, starts: Integers) -> tuple[Floats, NDArray[np.bool_]]:
    """Return N for every person, and whether it is exact; where it is not, an upper bound.

    For whole numbers with Σ|c_ij| < 2^53 for everybody the exact ones are exact as doubles too:
    every partial sum is a whole number below 2^53, in any order of summation.
    """
    upper = compute_entrywise_norms(c, starts)
    exact = np.ones(len(starts), dtype=bool)
    for people, blocks in group_by_size(c, starts):
        if blocks.shape[1] == 1:
            continue  # with one row the entrywise sum is attained
        if min(blocks.shape[1:]) <= SHORT:
            upper[people] = maximise_over_signs(put_shorter_side_last(blocks))
        else:
            upper[people] = np.minimum(upper[people], bound_spectrally(blocks))
            exact[people] = False
    return upper, exact


def group_by_size(c: Floats, starts: Integers) -> Iterator[tuple[Integers, Floats]]:
    """Yield people with equally many rows, and their rows as one array (people, rows, d)."""
    sizes = np.diff(np.append(starts, len(c)))
    for size in np.unique(sizes):
        people = np.flatnonzero(sizes == size)
        yield people, c[starts[people][:, None] + np.arange(size)]


def put_shorter_side_last(blocks: Floats) -> Floats:
    """Return the blocks with their shorter side last."""
    if blocks.shape[2] <= blocks.shape[1]:
        return blocks
    return blocks.transpose(0, 2, 1)


def maximise_over_signs(blocks: Floats) -> Floats:
    """Returns max over signs u of Σ_terms |Σ_inside u·c| for each block (people, terms, inside)."""
    people, terms, inside = blocks.shape
    best = np.zeros(people)
    few = max(PIECE_ENTRIES // (terms * min(people, 64)), 1)  # sign vectors at a time
    some = max(PIECE_ENTRIES // (terms * few), 1)  # people at a time
    for signs in (
        list_sign_vectors(inside)[k : k + few].T for k in range(0, 2 ** (inside - 1), few)
    ):
        for first in range(0, people, some):
            part = slice(first, first + some)
            sums = np.abs(blocks[part] @ signs).sum(axis=1).max(axis=1)
            np.maximum(best[part], sums, out=best[part])
    return best


def bound_spectrally(blocks: Floats) -> Floats:
    """Return √(rows·d)·‖c‖₂ for each block, rounded up: ‖cδ‖₁ ≤ √d·‖cδ‖₂ and ‖δ‖₂ ≤ √rows."""
    _, rows, d = blocks.shape
    return np.asarray(np.sqrt(rows * d) * np.linalg.norm(blocks, ord=2, axis=(1, 2)) * (1 + MARGIN))
