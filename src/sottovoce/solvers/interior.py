# SPDX-License-Identifier: Apache-2.0
"""An interior-point method for linear maps with a limit a person (docs/theory/labels.md, "Finding the map").

    minimise  ½a·t² + ½r·‖c‖²   subject to   Uᵀc = T,   N_l(c_l) ≤ e_l·t  for every person l

where c_l are the rows of c that belong to person l and N_l is a norm. People come in blocks, one a kind
of norm: entries.py (the sum of all |c_ij|), signs.py (the exact sensitivity), groups.py. A block eliminates from
Newton's equations (Mehrotra's predictor and corrector) what is its own, so that one positive definite
system of size d² is left, whatever the number of rows.

    symbol    name
    U, T      rows (orthonormal columns), target      d×d dual variable of the equation: Y
    c         map, one row a row of the table, d columns
    t, a, r   level, and the weights of the two terms
    e_l, μ_l  limit, and the price of person l's limit
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Newton steps at most; thirty are many.
MAX_STEPS = 80
#: How much of the way to the boundary a step may go.
REACH = 0.995


class Condensed(NamedTuple):
    """What a block leaves of Newton's equations once its own unknowns are eliminated."""

    matrix: Floats  # d²×d²
    edge: Floats  # d², couples Y and t
    corner: float  # couples t and t
    moment: Floats  # Uᵀc over the block's rows
    load: float  # Σ e·μ


class Block(Protocol):
    """People whose limits have one shape."""

    @property
    def pairs(self) -> Sequence[Pair]:
        """Every slack and its price."""

    def condense(self, Y: Floats, level: float) -> Condensed:
        """Linearises at the present point."""

    def reduce(self, centre: float, corrected: bool) -> tuple[Floats, float]:
        """Returns the block's part of the right-hand side, for slack·price = centre."""

    def direct(self, y: Floats, dt: float) -> None:
        """Finds the block's own direction from the common one."""

    def move(self, step: float) -> None:
        """Moves the map along its direction; pairs move by themselves."""

    def rows_of_map(self) -> Floats:
        """The block's rows of c, in the order of its rows."""

    def dual(self, Y: Floats) -> tuple[float, float]:
        """Returns max ⟨UY, c⟩ − ½r‖c‖² − Σμ·N(c) over all c, and Σ e·μ, for prices made feasible."""


class Pair:
    """Slacks x > 0 and prices z > 0 with x·z → 0."""

    def __init__(self, slack: Floats, price: Floats) -> None:
        self.slack, self.price = slack, price
        self.dslack = self.dprice = np.zeros_like(slack)

    def gap(self, step: float = 0.0) -> float:
        """Returns Σ x·z after a step."""
        return float(np.vdot(self.slack + step * self.dslack, self.price + step * self.dprice))

    def missing(self, centre: float, corrected: bool) -> Floats:
        """Returns what x·dz + z·dx must make up for."""
        missing = centre - self.slack * self.price
        return missing - self.dslack * self.dprice if corrected else missing

    def reach(self) -> float:
        """Returns the longest step, at most 1, that keeps both positive."""
        return min(_reach(self.slack, self.dslack), _reach(self.price, self.dprice))

    def move(self, step: float) -> None:
        """Goes a step along the direction."""
        self.slack = self.slack + step * self.dslack
        self.price = self.price + step * self.dprice


def _reach(x: Floats, dx: Floats) -> float:
    worst = float(np.min(dx / x, initial=0.0))
    return -1 / worst if worst < -1 else 1.0


def iterates(blocks: Sequence[Block], T: Floats, a: float, level: float) -> Iterator[Floats]:
    """Yields the dual variable Y after each Newton step; the blocks hold the rest of the point.

    Ends after MAX_STEPS, or when rounding leaves no positive definite system to solve. Whoever takes
    the iterates judges them: nothing here is trusted to be optimal.
    """
    Y, t = np.zeros_like(T), level
    pairs = [pair for block in blocks for pair in block.pairs]
    for _ in range(MAX_STEPS):
        try:
            y, dt, step = _direction(blocks, pairs, _System.of(blocks, Y, T, a, t))
        except linalg.LinAlgError:
            return
        for block in blocks:
            block.move(step)
        for pair in pairs:
            pair.move(step)
        Y, t = Y + step * y.reshape(T.shape).T, t + step * dt
        yield Y


@np.errstate(all="ignore")  # a direction that is not finite is not taken
def _direction(blocks: Sequence[Block], pairs: Sequence[Pair], system: _System) -> tuple[Floats, float, float]:
    """Returns the direction in (Y, t) and how far to go: predict, then centre by what the prediction reaches."""
    count = sum(pair.slack.size for pair in pairs)
    gap = sum(pair.gap() for pair in pairs) / count
    system.direct(blocks, 0.0, corrected=False)
    step = min(pair.reach() for pair in pairs)
    hoped = sum(pair.gap(step) for pair in pairs) / count
    y, dt = system.direct(blocks, gap * (hoped / gap) ** 3, corrected=True)
    step = REACH * min(pair.reach() for pair in pairs)
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
        return cls(_factor(matrix), edge, corner, gap, sum(part.load for part in parts) - a * t)

    def direct(self, blocks: Sequence[Block], centre: float, corrected: bool) -> tuple[Floats, float]:
        """Gives every block its direction, and returns the common one."""
        reduced = [block.reduce(centre, corrected) for block in blocks]
        right = self.gap + np.sum([part for part, _ in reduced], axis=0)
        short = self.short + sum(part for _, part in reduced)
        y = linalg.cho_solve(self.factor, right - self.edge * (short / self.corner), check_finite=False)
        dt = float(short + self.edge @ y) / self.corner
        for block in blocks:
            block.direct(y, dt)
        return y, dt


def _factor(matrix: Floats) -> tuple[Floats, bool]:
    """Returns a Cholesky factor, of a matrix a little larger if rounding has made it indefinite."""
    size = float(np.trace(matrix)) / len(matrix)
    for ridge in (0.0, 1e-12, 1e-9):
        try:
            factor: tuple[Floats, bool] = linalg.cho_factor(matrix + ridge * size * np.eye(len(matrix)))
            return factor
        except (linalg.LinAlgError, ValueError):  # not positive definite, or not finite
            continue
    raise linalg.LinAlgError
