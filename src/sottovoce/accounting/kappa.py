# SPDX-License-Identifier: Apache-2.0
"""What logistic regression with noise in its objective costs each person, never less
(docs/theory/kappa.md).

Minimise Σ a_i·log(1 + e^(−z_i·w)) + ½λ‖w‖² + b·w, with ‖z_i‖ ≤ 1, Σa ≤ 1, and b of density ∝
exp(−½η‖b‖). A person whose rows have total weight W loses, when all of them are replaced, at most
the smaller of

    κ(λ, ρ)·W·η                                                                     (theorem 2)
    max_{0≤s≤1} ½Wη(1 + s) + r·log(1 + W·s(1 − s)/(rλ))                             (theorem 1)

κ comes from a table of proved upper bounds (tools/kappa_certificate.py). Between its entries it is
used only in ways that keep it an upper bound: κ falls in λ, so λ is rounded down; κ is convex in
1/ρ, so it is interpolated linearly there.

    symbol   name
    λ        ridge, the same for every coefficient, the intercept's included
    η        eta, the rate of the noise that is actually drawn
    ρ        rho = η·λ
    W, r     weight, and rank = min(rows of the person, number of coefficients)
"""

from __future__ import annotations

import csv
import io
import math
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.arrays import Floats
from sottovoce.errors import InvalidParameter

TABLE_FILE = "kappa_table.csv"
#: A charge is raised by this part: a dozen roundings of 2⁻⁵³ each, and as much again.
ROUND_UP = 1 + 2.0**-48
#: No row of any person adds more than this to κ for each unit of 1/ρ: s(1 − s) ≤ ¼.
STEEPEST = 0.25
#: From this ρ on the curvature of several classes costs nothing on top.
SOFTMAX_FREE = 8.0


class KappaTable(NamedTuple):
    """Upper bounds of κ, a row for each λ and a column for each ρ, both in rising order.

    The last ρ is infinite.
    """

    ridges: Floats
    rhos: Floats
    entries: Floats

    def at(self, ridge: float, rho: float) -> float:
        """Return an upper bound of κ(λ, ρ), infinite where λ is below the table."""
        below = int(np.searchsorted(self.ridges, ridge, side="right")) - 1
        if below < 0:
            return math.inf
        inverse = 1 / self.rhos[::-1]
        row = self.entries[below, ::-1]
        beyond = max(1 / rho - inverse[-1], 0.0)  # ρ below the table
        return float(np.interp(1 / rho, inverse, row) + STEEPEST * beyond)

    def to_csv(self) -> str:
        """Return the table as text, λ first in each line."""
        out = io.StringIO()
        lines = csv.writer(out, lineterminator="\n")
        lines.writerow(["ridge", *(f"{rho:g}" for rho in self.rhos)])
        for ridge, row in zip(self.ridges, self.entries, strict=True):
            lines.writerow([f"{ridge:g}", *(f"{entry:.5f}" for entry in row)])
        return out.getvalue()

    @classmethod
    def of_csv(cls, text: str) -> KappaTable:
        """Return the table that to_csv wrote."""
        head, *lines = csv.reader(io.StringIO(text))
        numbers = np.array(lines, dtype=np.float64)
        return cls(numbers[:, 0], np.array(head[1:], dtype=np.float64), numbers[:, 1:])


@cache
def load_table() -> KappaTable:
    """Return the table that comes with the package."""
    return KappaTable.of_csv(
        resources.files(__package__).joinpath(TABLE_FILE).read_text(encoding="utf-8")
    )


def kappa(ridge: float, rho: float) -> float:
    """Return a number that is at least κ(λ, ρ), for every λ > 0 and 0 < ρ ≤ ∞.

    Times ρ, it increases with ρ.

    >>> kappa(0.1, 20.0) < bound_linear(20.0) == 1.0
    True
    """
    if not (ridge > 0 and rho > 0):
        raise InvalidParameter(
            "a ridge or a rate that is not positive", "λ > 0 and ρ > 0", "give positive numbers"
        )
    return min(bound_linear(rho), load_table().at(ridge, rho))


def bound_linear(rho: float) -> float:
    """Return κ₀(ρ) = max_s ½(1 + s) + s(1 − s)/ρ, an upper bound of κ(λ, ρ) for every λ.

    >>> [round(bound_linear(rho), 12) for rho in (1.0, 2.0, 50.0)]
    [1.0625, 1.0, 1.0]
    """
    if rho >= 2:
        return 1.0
    return (0.75 + rho / 16 + 0.25 / rho) * ROUND_UP


def bound_charges(weight: ArrayLike, rank: ArrayLike, eta: float, ridge: float) -> Floats:
    """Return an upper bound of what each person loses: the smaller of both theorems.

    It never falls as η grows.

    The weights of all rows together must not exceed 1; 10⁻¹⁰ more, by rounding, is covered by the
    table's margin.
    """
    flat = kappa(ridge, eta * ridge) * eta * ROUND_UP * np.asarray(weight, dtype=np.float64)
    return np.asarray(np.minimum(flat, compute_exact_charges(weight, rank, eta, ridge)))


def compute_exact_charges(weight: ArrayLike, rank: ArrayLike, eta: float, ridge: float) -> Floats:
    """Return max_{0≤s≤1} ½Wη(1 + s) + r·log(1 + W·s(1 − s)/(rλ)), rounded up.

    It is W·η if and only if ρ ≥ 2.

    It holds for any sum of weights.

    >>> compute_exact_charges([0.5], [1], 4.0, 0.5).round(12)
    array([2.])
    """
    whole, r = np.broadcast_arrays(
        np.asarray(weight, dtype=np.float64), np.asarray(rank, dtype=np.float64)
    )
    if eta * ridge >= 2:
        return np.asarray(whole * eta * ROUND_UP)
    s = _find_worst_slope(whole / r * eta / 2, eta * ridge)
    return np.asarray(
        (whole * eta * (1 + s) / 2 + r * np.log1p(whole / r * (s * (1 - s) / ridge))) * ROUND_UP
    )


def bound_softmax(rho: float, classes: int) -> float:
    """Return max_v ½(1 + v) + T(v)/ρ, what several classes in one objective cost for each unit of
    W·η (docs/theory/logistic.md).

    T(v) = min(2v·√(2 − 2/K) − 2v², 2 − 2v²) is the most curvature of a row whose doubt is √2·v.
    From ρ = 8 on it is 1.

    >>> bound_softmax(8.0, 3), bound_softmax(4.0, 3) > 1.0
    (1.0, True)
    """
    if rho >= SOFTMAX_FREE:
        return 1.0
    steep = math.sqrt(2 - 2 / classes)
    tried = (
        min((steep + rho / 4) / 2, 1 / steep),
        max(min(rho / SOFTMAX_FREE, 1.0), 1 / steep),
        1.0,
    )
    found = max((1 + v) / 2 + min(2 * v * (steep - v), 2 - 2 * v * v) / rho for v in tried)
    return found * ROUND_UP


def _find_worst_slope(A: Floats, rho: float) -> Floats:
    """Return the s where A·s + log(1 + (2A/ρ)·s(1 − s)) is largest, 0 < s < 1 if ρ < 2.

    Two forms of the same root, each without a difference of near numbers on its side of A = 2.
    """
    root = np.sqrt(4 + A * A + 2 * A * rho)
    with np.errstate(divide="ignore", invalid="ignore"):  # the form not taken may be 0/0
        return np.asarray(np.where(A <= 2, (2 + rho) / (root + 2 - A), (root + A - 2) / (2 * A)))
