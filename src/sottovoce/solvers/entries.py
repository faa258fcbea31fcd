# SPDX-License-Identifier: Apache-2.0
"""People held by the sum of all |c_ij| of their rows: the block of interior.py for the paper's sensitivity.

symbol    name
c = p − q map, with p, q > 0;  Σ(p + q) + w = e·t
det       of the 2×2 system that is left of an entry in Newton's equations
H, K      a number and a vector (of size d²) that are left of a person
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from sottovoce.solvers.interior import Condensed, Floats, Integers, Pair

#: Rows whose d×d products are held at a time.
PIECE = 2**14


class Entries:
    """People held by Σ|c_ij| ≤ e_l·t, the sum over all rows and columns of the person."""

    def __init__(self, U: Floats, starts: Integers, e: Floats, r: float, c: Floats, level: float, load: float) -> None:
        n = len(U)
        self.U, self.e, self.r = U, e, r
        self.sum_by_person = sparse.csr_array((np.ones(n), np.arange(n), np.append(starts, n)), (len(e), n))
        self.owner = np.repeat(np.arange(len(e)), np.diff(np.append(starts, n)))
        share = e * level / (np.bincount(self.owner) * U.shape[1])  # of an entry, if all of a person's were alike
        size = 0.75 * np.maximum(np.abs(c), np.maximum(np.abs(c).mean(), share[self.owner, None] / 10))
        p, q = np.maximum(size + c / 2, size / 10), np.maximum(size - c / 2, size / 10)
        w = np.maximum(e * level - self._sums(p + q), e * level / 10)
        price = load / (e * len(e))
        by_entry = np.repeat(price[self.owner, None], U.shape[1], axis=1)
        self.pairs = (Pair(p, by_entry), Pair(q, by_entry), Pair(w, price))

    def _sums(self, entries: Floats) -> Floats:
        return np.asarray(self.sum_by_person @ entries.sum(axis=1))

    def _of_rows(self, by_person: Floats) -> Floats:
        return by_person[self.owner, None]

    def rows_of_map(self) -> Floats:
        """The block's rows of c."""
        return np.asarray(self.pairs[0].slack - self.pairs[1].slack)

    def condense(self, Y: Floats, level: float) -> Condensed:
        """Linearises at the present point."""
        (p, q, w), r = self.pairs, self.r
        c, pull, mu = self.rows_of_map(), self.U @ Y, self._of_rows(w.price)
        self.missing_p, self.missing_q = pull - r * c - mu + p.price, r * c - pull - mu + q.price
        self.missing_w = self.e * level - self._sums(p.slack + q.slack) - w.slack
        self.dp, self.dq = p.price / p.slack, q.price / q.slack
        self.det = r * (self.dp + self.dq) + self.dp * self.dq
        self.cross = (self.dq - self.dp) / self.det
        self.H = self._sums((4 * r + self.dp + self.dq) / self.det) + w.slack / w.price
        return Condensed(
            self._matrix(),
            self._to_common(self.e / self.H),
            float(self.e @ (self.e / self.H)),
            self.U.T @ c,
            float(self.e @ w.price),
        )

    def _to_common(self, by_person: Floats) -> Floats:
        """Kᵀx, where row l of K is the vector that couples person l to Y."""
        return np.asarray((self.U.T @ (self.cross * self._of_rows(by_person))).T.ravel())

    def _matrix(self) -> Floats:
        """Σ_j U'D_jU on the diagonal, less K'K/H; a piece of rows at a time, because rows times d² may not fit."""
        d = self.U.shape[1]
        own = (self.dp + self.dq) / self.det
        diagonal, coupled = np.zeros((d, d * d)), np.zeros((d * d, d * d))
        for rows in _slices(len(self.U)):
            U = self.U[rows]
            diagonal += own[rows].T @ (U[:, :, None] * U[:, None, :]).reshape(-1, d * d)
        for people, rows in _pieces(self.sum_by_person.indptr):
            K = self._coupling(people, rows) / np.sqrt(self.H[people, None])
            coupled += K.T @ K
        return block_diagonal(diagonal.reshape(d, d, d)) - coupled

    def _coupling(self, people: slice, rows: slice) -> Floats:
        """Rows of K: for each person the sum of cross_ij·U_ik over their rows, entry (j, k)."""
        U, cross = self.U[rows], self.cross[rows]
        if people.stop - people.start == 1:
            return np.asarray((cross.T @ U).reshape(1, -1))
        products = (cross[:, :, None] * U[:, None, :]).reshape(len(U), -1)
        return np.asarray(self.sum_by_person[people, rows] @ products)

    def reduce(self, centre: float, corrected: bool) -> tuple[Floats, float]:
        """Returns the block's part of the right-hand side."""
        (p, q, w), r, dp, dq = self.pairs, self.r, self.dp, self.dq
        self.sp, self.sq, self.sw = (pair.missing(centre, corrected) for pair in self.pairs)
        self.gp, self.gq = self.missing_p + self.sp / p.slack, self.missing_q + self.sq / q.slack
        own = (dq * self.gp - dp * self.gq) / self.det
        total = ((2 * r + dq) * self.gp + (2 * r + dp) * self.gq) / self.det
        self.short = self.missing_w - self.sw / w.price - self._sums(total)
        by_person = self.short / self.H
        return -(self.U.T @ own).T.ravel() - self._to_common(by_person), -float(self.e @ by_person)

    def direct(self, y: Floats, dt: float) -> None:
        """Finds the block's own direction from the common one."""
        (p, q, w), r, dp, dq = self.pairs, self.r, self.dp, self.dq
        d = self.U.shape[1]
        pull = self.U @ y.reshape(d, d).T
        w.dprice = (self._sums(self.cross * pull) - self.e * dt - self.short) / self.H
        mu = self._of_rows(w.dprice)
        p.dslack = (dq * pull - (2 * r + dq) * mu + (r + dq) * self.gp + r * self.gq) / self.det
        q.dslack = (r * self.gp + (r + dp) * self.gq - dp * pull - (2 * r + dp) * mu) / self.det
        w.dslack = (self.sw - w.slack * w.dprice) / w.price
        p.dprice, q.dprice = self.sp / p.slack - dp * p.dslack, self.sq / q.slack - dq * q.dslack

    def move(self, step: float) -> None:
        """The map is p − q: nothing else moves."""

    def dual(self, Y: Floats) -> tuple[float, float]:
        """Returns max ⟨UY, c⟩ − ½r‖c‖² − Σμ·N(c) over all c, and Σ e·μ."""
        mu = self.pairs[2].price
        over = np.maximum(np.abs(self.U @ Y) - self._of_rows(mu), 0)
        return float(np.vdot(over, over)) / (2 * self.r), float(self.e @ mu)


def block_diagonal(blocks: Floats) -> Floats:
    """Returns the d²×d² matrix with blocks[j] on its diagonal."""
    d = len(blocks)
    matrix = np.zeros((d, d, d, d))
    matrix[np.arange(d), :, np.arange(d), :] = blocks
    return matrix.reshape(d * d, d * d)


def _slices(n: int) -> Iterator[slice]:
    return (slice(first, first + PIECE) for first in range(0, n, PIECE))


def _pieces(starts: Integers) -> Iterator[tuple[slice, slice]]:
    """Yields people and their rows, about PIECE rows at a time, or one person with more."""
    first = 0
    while first < len(starts) - 1:
        last = max(int(np.searchsorted(starts, starts[first] + PIECE, side="right")) - 1, first + 1)
        yield slice(first, last), slice(starts[first], starts[last])
        first = last
