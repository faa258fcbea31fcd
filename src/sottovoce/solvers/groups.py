# SPDX-License-Identifier: Apache-2.0
"""People with many rows and columns, held by the exact norms of groups of their rows: a block of interior.py.

    N_l(c_l) ≤ Σ_g N(c_g) ≤ Σ|c_ij|         over groups g that together are the rows of person l

The first inequality is the triangle inequality, so limits on the middle keep limits on the left. With groups of
a few rows the middle has few sign vectors, and it is far below the right, which is the case of groups of one entry.

    symbol      name
    q_g         level of a group: N(c_g) ≤ q_g,  Σ_g q_g + v_l = e_l·t
    λ_l         price of person l's limit, and of every one of their groups
    edge, corner  what a group feels of Y, and of its own level
"""

from __future__ import annotations

import numpy as np

from sottovoce.solvers.interior import Condensed, Floats, Integers, Pair
from sottovoce.solvers.signs import Signed


class Groups:
    """People whose rows come in groups of one size; ``person`` numbers the owner of each group, ascending."""

    def __init__(self, U: Floats, person: Integers, e: Floats, r: float, c: Floats, level: float, load: float) -> None:
        self.U, self.e, self.r, self.person = U, e, r, person
        self.starts = np.flatnonzero(np.diff(person, prepend=-1))
        self.q = 0.9 * (e * level / np.bincount(person))[person]
        price = load / (e * len(e))
        self.inner = Signed(U, np.ones(len(U)), r, c, self.q, price[person] * len(U))
        self.pairs = (*self.inner.pairs, Pair(e * level / 10, price))

    def _sums(self, by_group: Floats) -> Floats:
        return np.asarray(np.add.reduceat(by_group, self.starts, axis=0))

    def rows_of_map(self) -> Floats:
        """The block's rows of c, group by group."""
        return self.inner.rows_of_map()

    def limits(self, rows: Floats) -> Floats:
        """Returns Σ_g N(c_g) for everybody in the block, given all their rows of a map."""
        return self._sums(self.inner.limits(rows))

    def condense(self, Y: Floats, level: float) -> Condensed:
        """Linearises at the present point: groups first, then the one number of every person."""
        inner, limit = self.inner.condense(Y, self.q), self.pairs[3]
        self.edge, self.corner = self.inner.moments(self.inner.c_level), -self.inner.mu_level.sum(axis=1)
        self.missing_q = limit.price[self.person] - self.pairs[2].price.sum(axis=1)
        self.missing_v = self.e * level - self._sums(self.q) - limit.slack
        weight = 1 / self.corner
        total, room = self._sums(weight), limit.slack / limit.price
        self.kappa, self.H = self._sums(self.edge * weight[:, None]), total + room
        return Condensed(
            inner.matrix + self._spread(weight, total, room),
            self.kappa.T @ (self.e / self.H),
            float(self.e @ (self.e / self.H)),
            inner.moment,
            float(self.e @ limit.price),
        )

    def _spread(self, weight: Floats, total: Floats, room: Floats) -> Floats:
        """Σ_g edge·edgeᵀ/corner − Σ_l κκᵀ/H, written as a sum of squares so that nothing cancels."""
        mean = self.kappa / total[:, None]
        apart = (self.edge - mean[self.person]) * np.sqrt(weight)[:, None]
        rest = mean * np.sqrt(total * room / self.H)[:, None]
        return np.asarray(apart.T @ apart + rest.T @ rest)

    def reduce(self, centre: float, corrected: bool) -> tuple[Floats, float]:
        """Returns the block's part of the right-hand side."""
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
        """Returns max ⟨UY, c⟩ − ½r‖c‖² − Σλ_l·Σ_g N(c_g) over all c, and Σ e·λ, for prices made feasible."""
        rest, mu = self.inner.find_prices(Y)
        return rest, float(self.e @ np.maximum.reduceat(mu.sum(axis=1), self.starts))
