# SPDX-License-Identifier: Apache-2.0
"""The problem of labels.py in units in which Newton is at home, and what a solution of it is worth.

symbol     name
X = U·Q    rows, U with orthonormal columns; Cᵀ = κ·c, so that C·X = I becomes Uᵀc = T
ρ          ratio, σ²/(2d·(hi − lo)²)
a, r       weights of ½t² and ½‖c‖²; r is raised a little where ρ is next to nothing
e_l        limit of person l: ε_l, scaled
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sottovoce.errors import InvalidData
from sottovoce.solvers.interior import Floats, Integers
from sottovoce.solvers.sensitivity import entrywise_norms

#: Rows are dependent when the smallest singular value of the scaled columns is this far below the largest.
RANK = 1e-8
#: ρ is raised to this share of its natural size where it is smaller (σ = 0 included): Newton needs curvature.
FLOOR = 1e-5


@dataclass(frozen=True, eq=False)
class Solution:
    """A map, what it costs, and how much better any other could be."""

    map: Floats  # C, d×n
    value: float  # F(C)
    bound: float  # F(C') ≥ bound for every C' with C'X = I (see held)
    steps: int  # Newton steps
    held: int  # people whose exact norm was replaced by a larger one while C was sought; bound is for that problem

    @property
    def gap(self) -> float:
        """How far above the optimum F may be, as a share."""
        return self.value / self.bound - 1 if self.bound > 0 else np.inf


@dataclass(frozen=True, eq=False)
class Scaled:
    """The problem in units in which the least-squares map, the level and the objective are about 1."""

    U: Floats
    T: Floats
    starts: Integers
    e: Floats
    a: float
    r: float
    true_r: float
    kappa: float  # Cᵀ = κ·c
    unit: float  # F(C) = unit·(½a·t² + ½r·‖c‖²)

    @classmethod
    def of(cls, X: Floats, starts: Integers, epsilon: Floats, ratio: float) -> Scaled:
        """Scales a problem whose rows are sorted by person; refuses dependent columns."""
        U, T = _orthonormal(X)
        c = U @ T
        kappa = float(np.abs(c).mean())
        e = epsilon * (entrywise_norms(c, starts).sum() / kappa / epsilon.sum())
        level, spread = float(epsilon[0] / e[0]) ** -2, ratio * float(np.vdot(c, c)) / kappa**2
        a, r = level / (level + spread), ratio / (level + spread)
        floor = FLOOR * a / float(e @ e)
        return cls(U, T / kappa, starts, e, a, max(r, floor), r, kappa, 2 * kappa**2 * (level + spread))

    @classmethod
    def sort_by_person(cls, X: Floats, owner: Integers, epsilon: Floats, ratio: float) -> tuple[Scaled, Integers]:
        """Returns the problem with every person's rows together, and the way back."""
        order = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[order], np.arange(len(epsilon)))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return cls.of(X[order], starts, epsilon, ratio), back

    @property
    def sizes(self) -> Integers:
        """Rows of every person."""
        return np.diff(np.append(self.starts, len(self.U)))

    def make_feasible(self, c: Floats) -> Floats:
        """Returns the nearest map with Uᵀc = T."""
        return c + self.U @ (self.T - self.U.T @ c)

    def value(self, c: Floats, limits: Floats) -> float:
        """Returns the objective, given every person's N(c)."""
        return 0.5 * self.a * float((limits / self.e).max()) ** 2 + 0.5 * self.true_r * float(np.vdot(c, c))

    def bound(self, Y: Floats, parts: Sequence[tuple[float, float]]) -> float:
        """Returns the dual value at the best multiple of (Y, μ), for the ρ before it was raised.

        Raising r by s adds at most s·Σe²·t² to the objective (‖c_l‖² ≤ 2·N_l²), a share 2s·Σe²/a of it.
        """
        gain = float(np.vdot(Y, self.T))
        cost = sum(part for part, _ in parts) + sum(load for _, load in parts) ** 2 / (2 * self.a)
        raised = 1 + 2 * (self.r - self.true_r) * float(self.e @ self.e) / self.a
        return gain**2 / (4 * cost) / raised if gain > 0 and cost > 0 else 0.0

    def gauss_markov(self) -> float:
        """Returns a bound that needs no dual: least squares has the smallest ‖c‖ of all, and it is that of T."""
        return 0.5 * self.true_r * float(np.vdot(self.T, self.T))

    def solution(self, c: Floats, value: float, bound: float, steps: int, held: int = 0) -> Solution:
        """Returns a map of the scaled problem in the units it was asked in."""
        return Solution(self.kappa * c.T, self.unit * value, self.unit * bound, steps, held)


def _orthonormal(X: Floats) -> tuple[Floats, Floats]:
    """Returns U with orthonormal columns and T such that Cᵀ solves C·X = I exactly if Uᵀ·Cᵀ = T."""
    size = np.linalg.norm(X, axis=0)
    if len(X) < X.shape[1] or not size.all():
        raise dependent()
    U, values, V = np.linalg.svd(X / size, full_matrices=False)
    if values[-1] <= RANK * values[0]:
        raise dependent()
    # X = U·diag(values)·V·diag(size), and T is the transpose of the inverse of what follows U
    return U, (V / values[:, None]) / size


def dependent() -> InvalidData:
    """The refusal of features from which no coefficient can be told."""
    return InvalidData(
        "The features are linearly dependent, or there are fewer rows than coefficients.",
        "Every coefficient must be determined: the columns, with the constant one, have full rank.",
        "Drop redundant columns (one level of every factor, constant columns), or add rows.",
    )
