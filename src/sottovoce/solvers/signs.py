# SPDX-License-Identifier: Apache-2.0
"""People held by the exact sensitivity of sensitivity.py: a block of interior.py.

symbol   name
c        map of one person: rows × d, turned so that `inside` is the short side
u        signs of the short side, one a row of `signs`
μ_u      price of one sign vector; ν = z₁ − z₂ that of each term, |ν| ≤ μ_u
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sottovoce.solvers.interior import Condensed, Floats, Pair
from sottovoce.solvers.sensitivity import sign_vectors

#: Numbers held at a time while people are eliminated.
PIECE = 2**22
#: A person's map with more entries than this is not inverted whole, but by way of its sign vectors.
WIDE = 256


class Signed:
    """People of equally many rows held by N(c_l) ≤ e_l·t, all sign vectors at once.

    Each sign vector u has a limit of its own, Σ_terms x_u + w_u = e·t with x_u ≥ |u·c|. What is left of a
    person in Newton's equations are R, a matrix a term, E, a row a sign vector, and h, a number a sign vector:

        R·c + Eᵀμ = f,   E·c − h·μ = g       solved by way of H = R + Eᵀ·h⁻¹·E, or of Q = E·R⁻¹·Eᵀ + h
    """

    def __init__(self, U: Floats, e: Floats, r: float, c: Floats, level: float | Floats, load: float | Floats) -> None:
        _, rows, d = U.shape
        self.U, self.e, self.r, self.by_rows = U, e[:, None], r, d <= rows
        self.signs = sign_vectors(min(rows, d))
        self.wide = bool(is_wide(rows, d))
        self.c = self._turn(c)
        sums, limit = self.c @ self.signs.T, self.e * _column(level)
        margin = np.maximum(np.abs(sums).mean(), limit / sums.shape[1])
        bound = 1.05 * np.abs(sums) + 0.5 * margin[:, None]
        w = np.maximum(limit - bound.sum(axis=1), limit / 10)
        price = np.repeat(_column(load) / (self.e * w.size), len(self.signs), axis=1)
        half = np.repeat(price[:, None, :] / 2, sums.shape[1], axis=1)
        self.pairs = (Pair(bound - sums, half), Pair(bound + sums, half), Pair(w, price))

    def _turn(self, c: Floats) -> Floats:
        return c if self.by_rows else c.transpose(0, 2, 1)

    def rows_of_map(self) -> Floats:
        """The block's rows of c, person by person."""
        return self._turn(self.c).reshape(-1, self.U.shape[2])

    def limits(self, rows: Floats) -> Floats:
        """Returns N for everybody in the block, given all their rows of a map."""
        sums = self._turn(rows.reshape(self.U.shape)) @ self.signs.T
        return np.asarray(np.abs(sums).sum(axis=1).max(axis=1))

    def condense(self, Y: Floats, level: float | Floats) -> Condensed:
        """Linearises at the present point; groups.py has a level for each person."""
        one, two, w = self.pairs
        self.missing_c = self._turn(self.U @ Y) - self.r * self.c - (one.price - two.price) @ self.signs
        self.missing_x = one.price + two.price - w.price[:, None, :]
        self.missing_w = self.e * _column(level) - (one.slack + two.slack).sum(axis=1) / 2 - w.slack
        self.one, self.two = one.price / one.slack, two.price / two.slack
        self.sum = self.one + self.two
        self.phi, self.chi = (self.one - self.two) / self.sum, 4 * self.one * self.two / self.sum
        self.h = (1 / self.sum).sum(axis=1) + w.slack / w.price
        matrix = self._matrix()
        self.c_level, self.mu_level = self._solve(np.zeros_like(self.c), np.broadcast_to(self.e, self.h.shape))
        return Condensed(
            matrix,
            self._moment(self.c_level).T.ravel(),
            -float((self.e * self.mu_level).sum()),
            self._moment(self.c),
            float((self.e * w.price).sum()),
        )

    def moments(self, c: Floats) -> Floats:
        """Returns Uᵀc for each person, entry (j, k) at j·d + k."""
        return np.asarray(self._turn(c).transpose(0, 2, 1) @ self.U).reshape(len(c), -1)

    def _moment(self, c: Floats) -> Floats:
        return np.asarray(np.tensordot(self.U, self._turn(c), axes=((0, 1), (0, 1))))  # Uᵀc

    def _matrix(self) -> Floats:
        """What Y feels of the block; leaves the inverses that `_solved` needs, piece by piece."""
        people, rows, d = self.U.shape
        (k, inside), entries = self.signs.shape, rows * d
        side = k if self.wide else entries
        self.inverse = np.empty((people, side, side))  # of Q, or of H
        self.inverse_R = np.empty((*self.c.shape, inside) if self.wide else 0)
        matrix = np.zeros((d * d, d * d))
        some = max(PIECE // (max(k, entries) * max(side, d * d)), 1)
        for first in range(0, people, some):
            matrix += self._condense_part(slice(first, first + some))
        return matrix

    def _condense_part(self, part: slice) -> Floats:
        (k, inside), people = self.signs.shape, len(self.U[part])
        squares = (self.signs[:, :, None] * self.signs[:, None, :]).reshape(k, -1)
        R = (self.chi[part] @ squares).reshape(people, -1, inside, inside) + self.r * np.eye(inside)
        E = self.phi[part].transpose(0, 2, 1)[..., None] * self.signs[:, None, :]  # people, signs, terms, inside
        return self._through_signs(part, R, E) if self.wide else self._through_entries(part, R, E)

    def _through_entries(self, part: slice, R: Floats, E: Floats) -> Floats:
        """Leaves H⁻¹; the matrix is a square of something, so rounding cannot make it indefinite."""
        (people, k, terms, inside), d = E.shape, self.U.shape[2]
        E = E.reshape(people, k, -1)
        H = (E / self.h[part][..., None]).transpose(0, 2, 1) @ E
        blocks = H.reshape(people, terms, inside, terms, inside)
        blocks[:, np.arange(terms), :, np.arange(terms), :] += R.transpose(1, 0, 2, 3)
        half = np.linalg.inv(np.linalg.cholesky(H))
        self.inverse[part] = half.transpose(0, 2, 1) @ half
        order = (0, 1, 3, 2) if self.by_rows else (0, 1, 2, 3)
        halves = half.reshape(people, -1, terms, inside).transpose(order)  # people, entry, column, row
        linked = (halves @ self.U[part][:, None]).reshape(-1, d * d)
        return np.asarray(linked.T @ linked)

    def _through_signs(self, part: slice, R: Floats, E: Floats) -> Floats:
        """Leaves R⁻¹ and Q⁻¹; terms are rows here."""
        (people, k, _, d), U = E.shape, self.U[part]
        self.inverse_R[part] = np.linalg.inv(R)
        F = (E[..., None, :] @ self.inverse_R[part][:, None])[..., 0, :]
        Q = F.reshape(people, k, -1) @ E.reshape(people, k, -1).transpose(0, 2, 1)
        Q[:, np.arange(k), np.arange(k)] += self.h[part]
        self.inverse[part] = np.linalg.inv(Q)
        P = (F.transpose(0, 1, 3, 2) @ U[:, None]).reshape(people, k, d * d)
        products = (U[..., :, None] * U[..., None, :]).reshape(-1, d * d)
        own = (self.inverse_R[part].reshape(-1, d * d).T @ products).reshape(d, d, d, d).transpose(0, 2, 1, 3)
        return np.asarray(
            own.reshape(d * d, d * d) - P.reshape(-1, d * d).T @ (self.inverse[part] @ P).reshape(-1, d * d)
        )

    def _solve(self, f: Floats, g: Floats) -> tuple[Floats, Floats]:
        """Returns c and μ with R·c + Eᵀμ = f and E·c − h·μ = g, with one step of refinement."""
        c, mu = self._solve_roughly(f, g)
        dc, dmu = self._solve_roughly(f - self._R(c) - self._to_terms(mu), g - self._to_signs(c) + self.h * mu)
        return c + dc, mu + dmu

    def _solve_roughly(self, f: Floats, g: Floats) -> tuple[Floats, Floats]:
        if self.wide:
            mu = (self.inverse @ (self._to_signs(self._over_R(f)) - g)[..., None])[..., 0]
            return self._over_R(f - self._to_terms(mu)), mu
        c = (self.inverse @ (f + self._to_terms(g / self.h)).reshape(len(f), -1, 1)).reshape(f.shape)
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
        """Returns the block's part of the right-hand side."""
        one, two, w = self.pairs
        first, second, self.sw = (pair.missing(centre, corrected) for pair in self.pairs)
        self.q1, self.q2 = first / one.slack, second / two.slack
        self.gx = (self.missing_x + self.q1 + self.q2) / self.sum
        pull = self.missing_c - (self.q1 - self.q2 - (self.one - self.two) * self.gx) @ self.signs
        short = self.missing_w - self.gx.sum(axis=1) - self.sw / w.price
        self.c_own, self.mu_own = self._solve(pull, short)
        return -self._moment(self.c_own).T.ravel(), float((self.e * self.mu_own).sum())

    def direct(self, y: Floats, dt: float | Floats) -> None:
        """Finds the block's own direction from the common one."""
        one, two, w = self.pairs
        d, dt = self.U.shape[2], _column(dt)
        c, mu = self._solve(self._turn(self.U @ y.reshape(d, d).T), np.zeros_like(self.h))
        self.dc = self.c_own + c + dt[..., None] * self.c_level
        w.dprice = self.mu_own + mu + dt * self.mu_level
        sums = self.dc @ self.signs.T
        bound = self.gx - w.dprice[:, None, :] / self.sum + self.phi * sums
        one.dslack, two.dslack = bound - sums, bound + sums
        one.dprice, two.dprice = self.q1 - self.one * one.dslack, self.q2 - self.two * two.dslack
        w.dslack = (self.sw - w.slack * w.dprice) / w.price

    def move(self, step: float) -> None:
        """Goes a step along the direction."""
        self.c = self.c + step * self.dc

    def dual(self, Y: Floats) -> tuple[float, float]:
        """Returns max ⟨UY, c⟩ − ½r‖c‖² − Σμ·N(c) over all c, and Σ e·μ, for prices made feasible."""
        rest, mu = self.find_prices(Y)
        return rest, float((self.e * mu).sum())

    def find_prices(self, Y: Floats) -> tuple[float, Floats]:
        """Returns ‖UY − Σ u·ν‖²/2r, and prices of the sign vectors with |ν| ≤ μ made sure of."""
        one, two, w = self.pairs
        nu = one.price - two.price
        rest = self._turn(self.U @ Y) - nu @ self.signs
        return float(np.vdot(rest, rest)) / (2 * self.r), np.maximum(w.price, np.abs(nu).max(axis=1))


def _column(x: float | Floats) -> Floats:
    """Returns a number for everybody, or one each, as a column."""
    return np.asarray(x, dtype=np.float64).reshape(-1, 1)


def is_wide(rows: Any, d: int) -> Any:
    """Whether somebody with so many rows is better handled by way of their sign vectors."""
    return (rows >= d) & (rows * d > max(WIDE, 2 ** (d - 1)))
