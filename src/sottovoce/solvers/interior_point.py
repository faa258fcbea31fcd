# SPDX-License-Identifier: Apache-2.0
"""An interior-point method for linear maps with a limit a person (docs/theory/labels.md, "Finding
the map").

    minimise  ½a·t² + ½r·‖c‖²   subject to   Uᵀc = T,   N_l(c_l) ≤ e_l·t  for every person l

where c_l are the rows of c that belong to person l and N_l is a norm. People come in blocks, one a
kind of norm: EntrywiseBlock (the sum of all |c_ij|), SignBlock (the exact sensitivity),
GroupedBlock. A block eliminates from Newton's equations (Mehrotra's predictor and corrector) what
is its own, so that one positive definite system of size d² is left, whatever the number of rows.

    symbol    name
    U, T      rows (orthonormal columns), target      d×d dual variable of the equation: Y
    c         map, one row a row of the table, d columns
    t, a, r   level, and the weights of the two terms
    e_l, μ_l  limit, and the price of person l's limit

People held by the sum of all |c_ij| of their rows: the block for the paper's sensitivity.

symbol    name
c = p − q map, with p, q > 0;  Σ(p + q) + w = e·t
det       of the 2×2 system that is left of an entry in Newton's equations
H, K      a number and a vector (of size d²) that are left of a person

People with many rows and columns, held by the exact norms of groups of their rows: a block too.

    N_l(c_l) ≤ Σ_g N(c_g) ≤ Σ|c_ij|         over groups g that together are the rows of person l

The first inequality is the triangle inequality, so limits on the middle keep limits on the left.
With groups of a few rows the middle has few sign vectors, and it is far below the right, which is
the case of groups of one entry.

    symbol      name
    q_g         level of a group: N(c_g) ≤ q_g,  Σ_g q_g + v_l = e_l·t
    λ_l         price of person l's limit, and of every one of their groups
    edge, corner  what a group feels of Y, and of its own level

People held by the exact sensitivity of sensitivity.py: a block too.

symbol   name
c        map of one person: rows × d, turned so that `inside` is the short side
u        signs of the short side, one a row of `signs`
μ_u      price of one sign vector; ν = z₁ − z₂ that of each term, |ν| ≤ μ_u
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import linalg, sparse

from sottovoce.arrays import Floats, Integers
from sottovoce.solvers.sensitivity import list_sign_vectors

#: Newton steps at most; thirty are many.
MAX_STEPS = 80
#: How much of the way to the boundary a step may go.
STEP_SHARE = 0.995


class CondensedBlock(NamedTuple):
    """What a block leaves of Newton's equations once its own unknowns are eliminated."""

    matrix: Floats  # d²×d²
    edge: Floats  # d², couples Y and t
    corner: float  # couples t and t
    moment: Floats  # Uᵀc over the block's rows
    load: float  # Σ e·μ


class Block(Protocol):
    """People whose limits have one shape."""

    @property
    def pairs(self) -> Sequence[SlackPair]:
        """Every slack and its price."""

    def condense(self, Y: Floats, level: float) -> CondensedBlock:
        """Linearises at the present point."""

    def reduce(self, centre: float, corrected: bool) -> tuple[Floats, float]:
        """Return the block's part of the right-hand side, for slack·price = centre."""

    def direct(self, y: Floats, dt: float) -> None:
        """Finds the block's own direction from the common one."""

    def move(self, step: float) -> None:
        """Moves the map along its direction; pairs move by themselves."""

    def rows_of_map(self) -> Floats:
        """The block's rows of c, in the order of its rows."""

    def dual(self, Y: Floats) -> tuple[float, float]:
        """Return max ⟨UY, c⟩ − ½r‖c‖² − Σμ·N(c) over all c, and Σ e·μ, for prices made feasible."""


class SlackPair:
    """Slacks x > 0 and prices z > 0 with x·z → 0."""

    def __init__(self, slack: Floats, price: Floats) -> None:
        self.slack = slack
        self.price = price
        self.dslack = self.dprice = np.zeros_like(slack)

    def gap(self, step: float = 0.0) -> float:
        """Return Σ x·z after a step."""
        return float(np.vdot(self.slack + step * self.dslack, self.price + step * self.dprice))

    def missing(self, centre: float, corrected: bool) -> Floats:
        """Return what x·dz + z·dx must make up for."""
        missing = centre - self.slack * self.price
        if corrected:
            return missing - self.dslack * self.dprice
        return missing

    def reach(self) -> float:
        """Return the longest step, at most 1, that keeps both positive."""
        return min(_find_max_step(self.slack, self.dslack), _find_max_step(self.price, self.dprice))

    def move(self, step: float) -> None:
        """Goes a step along the direction."""
        self.slack = self.slack + step * self.dslack
        self.price = self.price + step * self.dprice


def _find_max_step(x: Floats, dx: Floats) -> float:
    worst = float(np.min(dx / x, initial=0.0))
    if worst < -1:
        return -1 / worst
    return 1.0


def iterate_newton(blocks: Sequence[Block], T: Floats, a: float, level: float) -> Iterator[Floats]:
    """Yield the dual variable Y after each Newton step; the blocks hold the rest of the point.

    Ends after MAX_STEPS, or when rounding leaves no positive definite system to solve. Whoever
    takes the iterates judges them: nothing here is trusted to be optimal.
    """
    Y = np.zeros_like(T)
    t = level
    pairs = [pair for block in blocks for pair in block.pairs]
    for _ in range(MAX_STEPS):
        try:
            y, dt, step = _find_direction(blocks, pairs, _System.of(blocks, Y, T, a, t))
        except linalg.LinAlgError:
            return
        for block in blocks:
            block.move(step)
        for pair in pairs:
            pair.move(step)
        Y = Y + step * y.reshape(T.shape).T
        t = t + step * dt
        yield Y


@np.errstate(all="ignore")  # a direction that is not finite is not taken
def _find_direction(
    blocks: Sequence[Block], pairs: Sequence[SlackPair], system: _System
) -> tuple[Floats, float, float]:
    """Return the direction in (Y, t) and how far to go: predict, then centre by what the
    prediction reaches.
    """
    count = sum(pair.slack.size for pair in pairs)
    gap = sum(pair.gap() for pair in pairs) / count
    system.direct(blocks, 0.0, corrected=False)
    step = min(pair.reach() for pair in pairs)
    hoped = sum(pair.gap(step) for pair in pairs) / count
    y, dt = system.direct(blocks, gap * (hoped / gap) ** 3, corrected=True)
    step = STEP_SHARE * min(pair.reach() for pair in pairs)
    if not (np.isfinite(y).all() and np.isfinite(step * dt)):
        raise linalg.LinAlgError
    return y, dt, step


@dataclass(frozen=True, eq=False)
class _System:
    """Newton's equations in (Y, t), with t eliminated."""

    factor: tuple[Floats, bool]
    edge: Floats
    corner: float
    gap: Floats  # T − Uᵀc, entry (j, k) at j·d + k of its transpose
    short: float  # Σ e·μ − a·t

    @classmethod
    @np.errstate(all="ignore")
    def of(cls, blocks: Sequence[Block], Y: Floats, T: Floats, a: float, t: float) -> _System:
        parts = [block.condense(Y, t) for block in blocks]
        edge = np.sum([part.edge for part in parts], axis=0)
        corner = a + sum(part.corner for part in parts)
        matrix = np.sum([part.matrix for part in parts], axis=0) + np.outer(edge, edge) / corner
        gap = (T - np.sum([part.moment for part in parts], axis=0)).T.ravel()
        return cls(_factorise(matrix), edge, corner, gap, sum(part.load for part in parts) - a * t)

    def direct(
        self, blocks: Sequence[Block], centre: float, corrected: bool
    ) -> tuple[Floats, float]:
        """Gives every block its direction, and returns the common one."""
        reduced = [block.reduce(centre, corrected) for block in blocks]
        right = self.gap + np.sum([part for part, _ in reduced], axis=0)
        short = self.short + sum(part for _, part in reduced)
        y = linalg.cho_solve(
            self.factor, right - self.edge * (short / self.corner), check_finite=False
        )
        dt = float(short + self.edge @ y) / self.corner
        for block in blocks:
            block.direct(y, dt)
        return y, dt


def _factorise(matrix: Floats) -> tuple[Floats, bool]:
    """Return a Cholesky factor, of a matrix a little larger if rounding has made it indefinite."""
    size = float(np.trace(matrix)) / len(matrix)
    for ridge in (0.0, 1e-12, 1e-9):
        try:
            factor: tuple[Floats, bool] = linalg.cho_factor(
                matrix + ridge * size * np.eye(len(matrix))
            )
            return factor
        except (linalg.LinAlgError, ValueError):  # not positive definite, or not finite
            continue
    raise linalg.LinAlgError


#: Rows whose d×d products are held at a time.
ENTRY_PIECE = 2**14


class EntrywiseBlock:
    """People held by Σ|c_ij| ≤ e_l·t, the sum over all rows and columns of the person."""

    def __init__(
        self, U: Floats, starts: Integers, e: Floats, r: float, c: Floats, level: float, load: float
    ) -> None:
        n = len(U)
        self.U = U
        self.e = e
        self.r = r
        self.sum_by_person = sparse.csr_array(
            (np.ones(n), np.arange(n), np.append(starts, n)), (len(e), n)
        )
        self.owner = np.repeat(np.arange(len(e)), np.diff(np.append(starts, n)))
        share = (
            e * level / (np.bincount(self.owner) * U.shape[1])
        )  # of an entry, if all of a person's were alike
        size = 0.75 * np.maximum(
            np.abs(c), np.maximum(np.abs(c).mean(), share[self.owner, None] / 10)
        )
        p = np.maximum(size + c / 2, size / 10)
        q = np.maximum(size - c / 2, size / 10)
        w = np.maximum(e * level - self._sums(p + q), e * level / 10)
        price = load / (e * len(e))
        by_entry = np.repeat(price[self.owner, None], U.shape[1], axis=1)
        self.pairs = (SlackPair(p, by_entry), SlackPair(q, by_entry), SlackPair(w, price))
        # Products of a row with itself are those of every step; many rows are multiplied anew.
        self.squares = None
        if n <= ENTRY_PIECE:
            self.squares = _multiply_rows(U, U)
            self.products = np.empty_like(self.squares)

    def _sums(self, entries: Floats) -> Floats:
        return np.asarray(self.sum_by_person @ entries.sum(axis=1))

    def _of_rows(self, by_person: Floats) -> Floats:
        return by_person[self.owner, None]

    def rows_of_map(self) -> Floats:
        """The block's rows of c."""
        return np.asarray(self.pairs[0].slack - self.pairs[1].slack)

    def condense(self, Y: Floats, level: float) -> CondensedBlock:
        """Linearises at the present point."""
        (p, q, w) = self.pairs
        r = self.r
        c = self.rows_of_map()
        pull = self.U @ Y
        mu = self._of_rows(w.price)
        self.missing_p = pull - r * c - mu + p.price
        self.missing_q = r * c - pull - mu + q.price
        self.missing_w = self.e * level - self._sums(p.slack + q.slack) - w.slack
        self.dp = p.price / p.slack
        self.dq = q.price / q.slack
        both = self.dp + self.dq
        self.det = r * both + self.dp * self.dq
        self.own = both / self.det
        self.cross = (self.dq - self.dp) / self.det
        self.twice_p = 2 * r + self.dp
        self.twice_q = 2 * r + self.dq
        self.once_p = r + self.dp
        self.once_q = r + self.dq
        self.H = self._sums((4 * r + self.dp + self.dq) / self.det) + w.slack / w.price
        return CondensedBlock(
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
        """Σ_j U'D_jU on the diagonal, less K'K/H.

        A piece of rows at a time, because rows times d² may not fit.
        """
        d = self.U.shape[1]
        diagonal = np.zeros((d, d * d))
        coupled = np.zeros((d * d, d * d))
        for rows in _slice_rows(len(self.U)):
            squares = self.squares
            if squares is None:
                squares = _multiply_rows(self.U[rows], self.U[rows])
            diagonal += self.own[rows].T @ squares
        for people, rows in _split_people(self.sum_by_person.indptr):
            K = self._coupling(people, rows)
            K /= np.sqrt(self.H[people, None])
            coupled += K.T @ K
        return make_block_diagonal(diagonal.reshape(d, d, d)) - coupled

    def _coupling(self, people: slice, rows: slice) -> Floats:
        """Rows of K: for each person the sum of cross_ij·U_ik over their rows, entry (j, k)."""
        U = self.U[rows]
        cross = self.cross[rows]
        if people.stop - people.start == 1:
            return np.asarray((cross.T @ U).reshape(1, -1))
        if self.squares is None:
            return np.asarray(self.sum_by_person[people, rows] @ _multiply_rows(cross, U))
        return np.asarray(self.sum_by_person @ _multiply_rows(cross, U, self.products))

    def reduce(self, centre: float, corrected: bool) -> tuple[Floats, float]:
        """Return the block's part of the right-hand side."""
        (p, q, w) = self.pairs
        dp = self.dp
        dq = self.dq
        self.sp, self.sq, self.sw = (pair.missing(centre, corrected) for pair in self.pairs)
        self.price_p = self.sp / p.slack
        self.price_q = self.sq / q.slack
        self.gp = self.missing_p + self.price_p
        self.gq = self.missing_q + self.price_q
        own = (dq * self.gp - dp * self.gq) / self.det
        total = (self.twice_q * self.gp + self.twice_p * self.gq) / self.det
        self.short = self.missing_w - self.sw / w.price - self._sums(total)
        by_person = self.short / self.H
        return -(self.U.T @ own).T.ravel() - self._to_common(by_person), -float(self.e @ by_person)

    def direct(self, y: Floats, dt: float) -> None:
        """Finds the block's own direction from the common one."""
        (p, q, w) = self.pairs
        r = self.r
        dp = self.dp
        dq = self.dq
        d = self.U.shape[1]
        pull = self.U @ y.reshape(d, d).T
        w.dprice = (self._sums(self.cross * pull) - self.e * dt - self.short) / self.H
        mu = self._of_rows(w.dprice)
        # (dq·pull − (2r + dq)·μ + (r + dq)·gp + r·gq)/det, and the same for q, in place
        slack = dq * pull
        slack -= self.twice_q * mu
        slack += self.once_q * self.gp
        slack += r * self.gq
        slack /= self.det
        p.dslack = slack
        slack = r * self.gp
        slack += self.once_p * self.gq
        slack -= dp * pull
        slack -= self.twice_p * mu
        slack /= self.det
        q.dslack = slack
        w.dslack = (self.sw - w.slack * w.dprice) / w.price
        p.dprice = self.price_p - dp * p.dslack
        q.dprice = self.price_q - dq * q.dslack

    def move(self, step: float) -> None:
        """The map is p − q: nothing else moves."""

    def dual(self, Y: Floats) -> tuple[float, float]:
        """Return max ⟨UY, c⟩ − ½r‖c‖² − Σμ·N(c) over all c, and Σ e·μ."""
        mu = self.pairs[2].price
        over = np.maximum(np.abs(self.U @ Y) - self._of_rows(mu), 0)
        return float(np.vdot(over, over)) / (2 * self.r), float(self.e @ mu)


def _multiply_rows(one: Floats, other: Floats, out: Floats | None = None) -> Floats:
    """Return the products of every entry of a row of one with every entry of that of the other."""
    n, d = one.shape
    if out is None:
        out = np.empty((n, d * d))
    np.multiply(one[:, :, None], other[:, None, :], out=out.reshape(n, d, d))
    return out


def make_block_diagonal(blocks: Floats) -> Floats:
    """Return the d²×d² matrix with blocks[j] on its diagonal."""
    d = len(blocks)
    matrix = np.zeros((d, d, d, d))
    matrix[np.arange(d), :, np.arange(d), :] = blocks
    return matrix.reshape(d * d, d * d)


def _slice_rows(n: int) -> Iterator[slice]:
    return (slice(first, first + ENTRY_PIECE) for first in range(0, n, ENTRY_PIECE))


def _split_people(starts: Integers) -> Iterator[tuple[slice, slice]]:
    """Yield people and their rows, about PIECE rows at a time, or one person with more."""
    first = 0
    while first < len(starts) - 1:
        last = max(
            int(np.searchsorted(starts, starts[first] + ENTRY_PIECE, side="right")) - 1, first + 1
        )
        yield slice(first, last), slice(starts[first], starts[last])
        first = last


class GroupedBlock:
    """People whose rows come in groups of one size.

    ``person`` numbers the owner of each group, ascending.
    """

    def __init__(
        self, U: Floats, person: Integers, e: Floats, r: float, c: Floats, level: float, load: float
    ) -> None:
        self.U = U
        self.e = e
        self.r = r
        self.person = person
        self.starts = np.flatnonzero(np.diff(person, prepend=-1))
        self.q = 0.9 * (e * level / np.bincount(person))[person]
        price = load / (e * len(e))
        self.inner = SignBlock(U, np.ones(len(U)), r, c, self.q, price[person] * len(U))
        self.pairs = (*self.inner.pairs, SlackPair(e * level / 10, price))

    def _sums(self, by_group: Floats) -> Floats:
        return np.asarray(np.add.reduceat(by_group, self.starts, axis=0))

    def rows_of_map(self) -> Floats:
        """The block's rows of c, group by group."""
        return self.inner.rows_of_map()

    def limits(self, rows: Floats) -> Floats:
        """Return Σ_g N(c_g) for everybody in the block, given all their rows of a map."""
        return self._sums(self.inner.limits(rows))

    def condense(self, Y: Floats, level: float) -> CondensedBlock:
        """Linearises at the present point: groups first, then the one number of every person."""
        inner = self.inner.condense(Y, self.q)
        limit = self.pairs[3]
        self.edge, self.corner = (
            self.inner.moments(self.inner.c_level),
            -self.inner.mu_level.sum(axis=1),
        )
        self.missing_q = limit.price[self.person] - self.pairs[2].price.sum(axis=1)
        self.missing_v = self.e * level - self._sums(self.q) - limit.slack
        weight = 1 / self.corner
        total = self._sums(weight)
        room = limit.slack / limit.price
        self.kappa = self._sums(self.edge * weight[:, None])
        self.H = total + room
        return CondensedBlock(
            inner.matrix + self._spread(weight, total, room),
            self.kappa.T @ (self.e / self.H),
            float(self.e @ (self.e / self.H)),
            inner.moment,
            float(self.e @ limit.price),
        )

    def _spread(self, weight: Floats, total: Floats, room: Floats) -> Floats:
        """Σ_g edge·edgeᵀ/corner − Σ_l κκᵀ/H, written as a sum of squares so that nothing
        cancels.
        """
        mean = self.kappa / total[:, None]
        apart = (self.edge - mean[self.person]) * np.sqrt(weight)[:, None]
        rest = mean * np.sqrt(total * room / self.H)[:, None]
        return np.asarray(apart.T @ apart + rest.T @ rest)

    def reduce(self, centre: float, corrected: bool) -> tuple[Floats, float]:
        """Return the block's part of the right-hand side."""
        own, _ = self.inner.reduce(centre, corrected)
        limit = self.pairs[3]
        self.sv = limit.missing(centre, corrected)
        self.own = self.inner.mu_own.sum(axis=1) - self.missing_q
        self.short = self.missing_v - self.sv / limit.price - self._sums(self.own / self.corner)
        by_person = self.short / self.H
        right = own - self.edge.T @ (self.own / self.corner) - self.kappa.T @ by_person
        return right, -float(self.e @ by_person)

    def direct(self, y: Floats, dt: float) -> None:
        """Finds the block's own direction from the common one."""
        limit = self.pairs[3]
        limit.dprice = (self.kappa @ y - self.e * dt - self.short) / self.H
        limit.dslack = (self.sv - limit.slack * limit.dprice) / limit.price
        self.dq = (self.edge @ y + self.own - limit.dprice[self.person]) / self.corner
        self.inner.direct(y, self.dq)

    def move(self, step: float) -> None:
        """Goes a step along the direction."""
        self.inner.move(step)
        self.q = self.q + step * self.dq

    def dual(self, Y: Floats) -> tuple[float, float]:
        """Return max ⟨UY, c⟩ − ½r‖c‖² − Σλ_l·Σ_g N(c_g) over all c, and Σ e·λ, for prices made
        feasible.
        """
        rest, mu = self.inner.find_prices(Y)
        return rest, float(self.e @ np.maximum.reduceat(mu.sum(axis=1), self.starts))


#: Numbers held at a time while people are eliminated.
SIGN_PIECE = 2**22
#: A person's map with more entries than this is not inverted whole, but by way of its sign vectors.
WIDE = 256


class SignBlock:
    """People of equally many rows held by N(c_l) ≤ e_l·t, all sign vectors at once.

    Each sign vector u has a limit of its own, Σ_terms x_u + w_u = e·t with x_u ≥ |u·c|. What is
    left of a person in Newton's equations are R, a matrix a term, E, a row a sign vector, and h, a
    number a sign vector:

        R·c + Eᵀμ = f,   E·c − h·μ = g

    solved by way of H = R + Eᵀ·h⁻¹·E, or of Q = E·R⁻¹·Eᵀ + h.
    """

    def __init__(
        self, U: Floats, e: Floats, r: float, c: Floats, level: float | Floats, load: float | Floats
    ) -> None:
        _, rows, d = U.shape
        self.U = U
        self.e = e[:, None]
        self.r = r
        self.by_rows = d <= rows
        self.signs = list_sign_vectors(min(rows, d))
        self.wide = bool(is_wide(rows, d))
        self.c = self._turn(c)
        sums = self.c @ self.signs.T
        limit = self.e * _to_column(level)
        margin = np.maximum(np.abs(sums).mean(), limit / sums.shape[1])
        bound = 1.05 * np.abs(sums) + 0.5 * margin[:, None]
        w = np.maximum(limit - bound.sum(axis=1), limit / 10)
        price = np.repeat(_to_column(load) / (self.e * w.size), len(self.signs), axis=1)
        half = np.repeat(price[:, None, :] / 2, sums.shape[1], axis=1)
        self.pairs = (
            SlackPair(bound - sums, half),
            SlackPair(bound + sums, half),
            SlackPair(w, price),
        )

    def _turn(self, c: Floats) -> Floats:
        if self.by_rows:
            return c
        return c.transpose(0, 2, 1)

    def rows_of_map(self) -> Floats:
        """The block's rows of c, person by person."""
        return self._turn(self.c).reshape(-1, self.U.shape[2])

    def limits(self, rows: Floats) -> Floats:
        """Return N for everybody in the block, given all their rows of a map."""
        sums = self._turn(rows.reshape(self.U.shape)) @ self.signs.T
        return np.asarray(np.abs(sums).sum(axis=1).max(axis=1))

    def condense(self, Y: Floats, level: float | Floats) -> CondensedBlock:
        """Linearises at the present point; GroupedBlock has a level for each person."""
        one, two, w = self.pairs
        self.missing_c = (
            self._turn(self.U @ Y) - self.r * self.c - (one.price - two.price) @ self.signs
        )
        self.missing_x = one.price + two.price - w.price[:, None, :]
        self.missing_w = (
            self.e * _to_column(level) - (one.slack + two.slack).sum(axis=1) / 2 - w.slack
        )
        self.one = one.price / one.slack
        self.two = two.price / two.slack
        self.sum = self.one + self.two
        self.phi = (self.one - self.two) / self.sum
        self.chi = 4 * self.one * self.two / self.sum
        self.h = (1 / self.sum).sum(axis=1) + w.slack / w.price
        matrix = self._matrix()
        self.c_level, self.mu_level = self._solve(
            np.zeros_like(self.c), np.broadcast_to(self.e, self.h.shape)
        )
        return CondensedBlock(
            matrix,
            self._moment(self.c_level).T.ravel(),
            -float((self.e * self.mu_level).sum()),
            self._moment(self.c),
            float((self.e * w.price).sum()),
        )

    def moments(self, c: Floats) -> Floats:
        """Return Uᵀc for each person, entry (j, k) at j·d + k."""
        return np.asarray(self._turn(c).transpose(0, 2, 1) @ self.U).reshape(len(c), -1)

    def _moment(self, c: Floats) -> Floats:
        return np.asarray(np.tensordot(self.U, self._turn(c), axes=((0, 1), (0, 1))))  # Uᵀc

    def _matrix(self) -> Floats:
        """What Y feels of the block; leaves the inverses that `_solve` needs, piece by piece."""
        people, rows, d = self.U.shape
        (k, inside) = self.signs.shape
        entries = rows * d
        if self.wide:
            side = k
        else:
            side = entries
        self.inverse = np.empty((people, side, side))  # of Q, or of H
        self.inverse_R = np.empty((*self.c.shape, inside) if self.wide else 0)
        matrix = np.zeros((d * d, d * d))
        some = max(SIGN_PIECE // (max(k, entries) * max(side, d * d)), 1)
        for first in range(0, people, some):
            matrix += self._condense_part(slice(first, first + some))
        return matrix

    def _condense_part(self, part: slice) -> Floats:
        (k, inside) = self.signs.shape
        people = len(self.U[part])
        squares = (self.signs[:, :, None] * self.signs[:, None, :]).reshape(k, -1)
        R = (self.chi[part] @ squares).reshape(people, -1, inside, inside) + self.r * np.eye(inside)
        E = (
            self.phi[part].transpose(0, 2, 1)[..., None] * self.signs[:, None, :]
        )  # people, signs, terms, inside
        if self.wide:
            return self._through_signs(part, R, E)
        return self._through_entries(part, R, E)

    def _through_entries(self, part: slice, R: Floats, E: Floats) -> Floats:
        """Leaves H⁻¹; the matrix is a square of something, so rounding cannot make it
        indefinite.
        """
        (people, k, terms, inside) = E.shape
        d = self.U.shape[2]
        E = E.reshape(people, k, -1)
        H = (E / self.h[part][..., None]).transpose(0, 2, 1) @ E
        blocks = H.reshape(people, terms, inside, terms, inside)
        blocks[:, np.arange(terms), :, np.arange(terms), :] += R.transpose(1, 0, 2, 3)
        half = np.linalg.inv(np.linalg.cholesky(H))
        self.inverse[part] = half.transpose(0, 2, 1) @ half
        if self.by_rows:
            order = (0, 1, 3, 2)
        else:
            order = (0, 1, 2, 3)
        halves = half.reshape(people, -1, terms, inside).transpose(
            order
        )  # people, entry, column, row
        linked = (halves @ self.U[part][:, None]).reshape(-1, d * d)
        return np.asarray(linked.T @ linked)

    def _through_signs(self, part: slice, R: Floats, E: Floats) -> Floats:
        """Leaves R⁻¹ and Q⁻¹; terms are rows here."""
        (people, k, _, d) = E.shape
        U = self.U[part]
        self.inverse_R[part] = np.linalg.inv(R)
        F = (E[..., None, :] @ self.inverse_R[part][:, None])[..., 0, :]
        Q = F.reshape(people, k, -1) @ E.reshape(people, k, -1).transpose(0, 2, 1)
        Q[:, np.arange(k), np.arange(k)] += self.h[part]
        self.inverse[part] = np.linalg.inv(Q)
        P = (F.transpose(0, 1, 3, 2) @ U[:, None]).reshape(people, k, d * d)
        products = (U[..., :, None] * U[..., None, :]).reshape(-1, d * d)
        own = (
            (self.inverse_R[part].reshape(-1, d * d).T @ products)
            .reshape(d, d, d, d)
            .transpose(0, 2, 1, 3)
        )
        return np.asarray(
            own.reshape(d * d, d * d)
            - P.reshape(-1, d * d).T @ (self.inverse[part] @ P).reshape(-1, d * d)
        )

    def _solve(self, f: Floats, g: Floats) -> tuple[Floats, Floats]:
        """Return c and μ with R·c + Eᵀμ = f and E·c − h·μ = g, with one step of refinement."""
        c, mu = self._solve_roughly(f, g)
        dc, dmu = self._solve_roughly(
            f - self._R(c) - self._to_terms(mu), g - self._to_signs(c) + self.h * mu
        )
        return c + dc, mu + dmu

    def _solve_roughly(self, f: Floats, g: Floats) -> tuple[Floats, Floats]:
        if self.wide:
            mu = (self.inverse @ (self._to_signs(self._over_R(f)) - g)[..., None])[..., 0]
            return self._over_R(f - self._to_terms(mu)), mu
        c = (self.inverse @ (f + self._to_terms(g / self.h)).reshape(len(f), -1, 1)).reshape(
            f.shape
        )
        return c, (self._to_signs(c) - g) / self.h

    def _over_R(self, c: Floats) -> Floats:
        return np.asarray((self.inverse_R @ c[..., None])[..., 0])

    def _R(self, c: Floats) -> Floats:
        return np.asarray(self.r * c + (self.chi * (c @ self.signs.T)) @ self.signs)

    def _to_terms(self, x: Floats) -> Floats:
        return np.asarray((self.phi * x[:, None, :]) @ self.signs)  # Eᵀx

    def _to_signs(self, c: Floats) -> Floats:
        return np.asarray((self.phi * (c @ self.signs.T)).sum(axis=1))  # E·c

    def reduce(self, centre: float, corrected: bool) -> tuple[Floats, float]:
        """Return the block's part of the right-hand side."""
        one, two, w = self.pairs
        first, second, self.sw = (pair.missing(centre, corrected) for pair in self.pairs)
        self.q1 = first / one.slack
        self.q2 = second / two.slack
        self.gx = (self.missing_x + self.q1 + self.q2) / self.sum
        pull = self.missing_c - (self.q1 - self.q2 - (self.one - self.two) * self.gx) @ self.signs
        short = self.missing_w - self.gx.sum(axis=1) - self.sw / w.price
        self.c_own, self.mu_own = self._solve(pull, short)
        return -self._moment(self.c_own).T.ravel(), float((self.e * self.mu_own).sum())

    def direct(self, y: Floats, dt: float | Floats) -> None:
        """Finds the block's own direction from the common one."""
        one, two, w = self.pairs
        d = self.U.shape[2]
        dt = _to_column(dt)
        c, mu = self._solve(self._turn(self.U @ y.reshape(d, d).T), np.zeros_like(self.h))
        self.dc = self.c_own + c + dt[..., None] * self.c_level
        w.dprice = self.mu_own + mu + dt * self.mu_level
        sums = self.dc @ self.signs.T
        bound = self.gx - w.dprice[:, None, :] / self.sum + self.phi * sums
        one.dslack = bound - sums
        two.dslack = bound + sums
        one.dprice = self.q1 - self.one * one.dslack
        two.dprice = self.q2 - self.two * two.dslack
        w.dslack = (self.sw - w.slack * w.dprice) / w.price

    def move(self, step: float) -> None:
        """Goes a step along the direction."""
        self.c = self.c + step * self.dc

    def dual(self, Y: Floats) -> tuple[float, float]:
        """Return max ⟨UY, c⟩ − ½r‖c‖² − Σμ·N(c) over all c, and Σ e·μ, for prices made feasible."""
        rest, mu = self.find_prices(Y)
        return rest, float((self.e * mu).sum())

    def find_prices(self, Y: Floats) -> tuple[float, Floats]:
        """Return ‖UY − Σ u·ν‖²/2r, and prices of the sign vectors with |ν| ≤ μ made sure of."""
        one, two, w = self.pairs
        nu = one.price - two.price
        rest = self._turn(self.U @ Y) - nu @ self.signs
        return float(np.vdot(rest, rest)) / (2 * self.r), np.maximum(
            w.price, np.abs(nu).max(axis=1)
        )


def _to_column(x: float | Floats) -> Floats:
    """Return a number for everybody, or one each, as a column."""
    return np.asarray(x, dtype=np.float64).reshape(-1, 1)


def is_wide(rows: Any, d: int) -> Any:
    """Whether somebody with so many rows is better handled by way of their sign vectors."""
    return (rows >= d) & (rows * d > max(WIDE, 2 ** (d - 1)))
