# SPDX-License-Identifier: Apache-2.0
"""How loud each person takes part (docs/theory/weights.md).

Every answer is driven by weights c_i ≥ 0 of rows that sum to one. The statistical error grows with
Σc², the noise with the largest W_l/ε_l, so the weights minimise A·Σc_i² + (max_l W_l/ε_l)². Rows of
one person weigh the same, and W_l ∝ min(s_l, h·ε_l) with one number h for everybody, the root of

    φ(h) = h − A·Σ_l ε_l·(1 − h·ε_l/s_l)₊

    symbol   name
    c_i      row / total            integer weights over their public sum
    W_l      person / total
    B        heaviest                a whole number with W_l·total/ε_l ≤ B for everybody
    ε_l W_l/(ε_l max W/ε)  charges  what each really spends, in units, never above the grant
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sottovoce import units
from sottovoce.arrays import Array, Floats, to_doubles
from sottovoce.budgets import BudgetGroups
from sottovoce.errors import InvalidBudget, InvalidParameter, UnequalLengths

#: Integer weights have this many bits: rounding down costs a person 2⁻⁴² of the heaviest row's
#: weight.
WEIGHT_BITS = 42
#: All rows together weigh at most 2^62, so no int64 that counts weight can wrap.
TOTAL_BITS = 62


def optimal_weights(epsilon: ArrayLike, rows: ArrayLike = 1, A: float = 0.0) -> Floats:
    """Return the weights W of people that minimise A·Σc² + (max W/ε)²; they sum to one.

    Someone who grants nothing weighs nothing. With A = 0 noise is all that matters and W ∝ ε; with
    A → ∞ it is sampling error and W ∝ rows.

    Parameters
    ----------
    epsilon : ArrayLike
        ε by person.
    rows : ArrayLike
        Rows by person.
    A : float
        Weight of the sampling error against the noise, ≥ 0.

    Returns
    -------
    Floats
        A weight a person.

    Raises
    ------
    InvalidInput
        A number cannot be used.

    Examples
    --------
    >>> optimal_weights([1.0, 3.0], A=0.0).tolist()
    [0.25, 0.75]
    >>> optimal_weights([1.0, 1.0], rows=[1, 3], A=float("inf")).tolist()
    [0.25, 0.75]
    """
    budget, count = np.broadcast_arrays(
        *(np.asarray(a, dtype=np.float64) for a in _check_budgets_and_rows(epsilon, rows))
    )
    share = to_doubles(A, "A", "A")
    if share.ndim or not share >= 0:
        raise InvalidParameter(
            "A is negative or not a number.",
            "A must be at least 0.",
            "Pass the public constant A.",
            parameter="A",
        )
    person_weight = solve_row_weights(budget, count, np.ones_like(budget), float(share)) * count
    return np.asarray(person_weight / person_weight.sum(), dtype=np.float64)


def solve_row_weights(epsilon: Floats, rows: Array, people: Array, A: float) -> Floats:
    """Returns the optimal weight of one row of each kind, scaled so that the heaviest row has
    weight 1.
    """
    if 0 < A < math.inf:
        h = _solve_saturation(epsilon, rows, people, A)
    elif A == 0:
        h = 0.0
    else:
        h = math.inf
    if h == math.inf:
        return (epsilon > 0).astype(np.float64)
    # min(1, hε/s), rescaled; written so that h = 0 needs no division by zero.
    if h > 0:
        cap = 1 / h
    else:
        cap = math.inf
    person_weights = np.asarray(epsilon / rows, dtype=np.float64)
    np.minimum(person_weights, cap, out=person_weights)
    person_weights /= person_weights.max()
    return person_weights


def _solve_saturation(epsilon: Floats, rows: Array, people: Array, A: float) -> float:
    """Returns the root h of φ, exactly up to rounding, by one sort and two sums from the end."""
    participating = epsilon > 0
    if not participating.all():
        epsilon = epsilon[participating]
        rows = rows[participating]
        people = people[participating]
    ratio = rows / epsilon
    order = _order_ascending(ratio)
    ratio = ratio[order]
    mass = people[order] * epsilon[order]
    E = _sum_from_end(mass)
    mass /= ratio
    Q = _sum_from_end(mass)

    def phi(i: int) -> float:
        # φ at a breakpoint: there the people strictly after are still below saturation.
        return float(ratio[i] * (1 + A * Q[i + 1]) - A * E[i + 1])

    first = bisect_left(range(len(ratio) - 1), 0.0, key=phi)
    return float(A * E[first] / (1 + A * Q[first]))


def _order_ascending(values: Floats) -> Any:
    # Budgets come sorted where they were counted, which makes their ratios descend: turning round
    # is no sort.
    if np.all(values[1:] <= values[:-1]):
        return slice(None, None, -1)
    return np.argsort(values)


def _sum_from_end(values: Floats) -> Floats:
    sums = np.zeros(len(values) + 1)
    np.cumsum(values[::-1], out=sums[-2::-1])
    return sums


@dataclass(frozen=True, eq=False)
class Weights:
    """Whole-number weights, one a kind, and what follows from them alone."""

    row: NDArray[np.int64]
    person: NDArray[np.int64]
    total: int
    loudest: int
    charges: units.Units
    concentration: float  # Σ c_i²

    @property
    def noise_ratio(self) -> float:
        """max_l W_l/ε_l with the weights summing to one: what every noise scale is proportional
        to.
        """
        return self.loudest / self.total

    def measure_people_concentration(self, kinds: BudgetGroups) -> float:
        """Return Σ_l W_l²: rows of one person may all go the same way, so people vary.

        Parameters
        ----------
        kinds : BudgetGroups
            People with equal budgets and row counts.

        Returns
        -------
        float
            1 over the number of people where all weigh the same, and more elsewhere.
        """
        return float(np.sum((self.person / self.total) ** 2 * kinds.people))

    @classmethod
    def solve(cls, kinds: BudgetGroups, A: float) -> Weights:
        """Solve for the optimal weights, and round them to integers.

        Parameters
        ----------
        kinds : BudgetGroups
            People with equal budgets and row counts.
        A : float
            Weight of the sampling error against the noise, ≥ 0.

        Returns
        -------
        Weights
            The weights.

        Raises
        ------
        InvalidBudget
            Nobody grants anything, or not enough to be split.
        """
        if not kinds.epsilon.any():
            raise InvalidBudget(
                "Nobody grants anything, or not enough to be split.",
                "Somebody's share must be at least 1e-9.",
                "Ask fewer questions at once, or wait for larger grants.",
                parameter="epsilon",
            )
        return cls.from_row_weights(
            kinds, solve_row_weights(units.to_epsilon(kinds.epsilon), kinds.rows, kinds.people, A)
        )

    @classmethod
    def from_row_weights(cls, kinds: BudgetGroups, weights: Floats) -> Weights:
        """Round weights of rows down to whole numbers of all the bits there are.

        Parameters
        ----------
        kinds : BudgetGroups
            People with equal budgets and row counts.
        weights : Floats
            Weights of rows, the largest of which is 1.

        Returns
        -------
        Weights
            The weights.
        """
        n_rows = int(kinds.rows @ kinds.people)
        bits = min(WEIGHT_BITS, TOTAL_BITS - math.ceil(math.log2(n_rows)))
        weights *= 2.0**bits
        return cls.from_integers(kinds, np.floor(weights, out=weights).astype(np.int64))

    @classmethod
    def from_integers(cls, kinds: BudgetGroups, row: NDArray[np.int64]) -> Weights:
        """Return everything that follows from whole-number row weights.

        Parameters
        ----------
        kinds : BudgetGroups
            People with equal budgets and row counts.
        row : NDArray[np.int64]
            Whole numbers whose sum over all rows is at most 2^62.

        Returns
        -------
        Weights
            The weights.
        """
        if kinds.rows.max() > 1:
            person = row * kinds.rows
        else:
            person = row
        total = int(person @ kinds.people)
        loudest = _max_weight_per_epsilon(person, kinds.epsilon)
        # By the choice of heaviest nobody's loss exceeds the grant, so the smaller of the two is
        # still a bound.
        charges = np.minimum(units.round_up(person / float(loudest)), kinds.epsilon)
        concentration = float(np.sum((row / total) * (person / total) * kinds.people))
        return cls(row, person, total, loudest, charges, concentration)


def _max_weight_per_epsilon(person: NDArray[np.int64], granted: units.Units) -> int:
    """Returns a whole number that is at least person·10⁹/granted for everybody (the factor covers
    rounding).
    """
    ratio = np.divide(person, granted, out=np.zeros(len(person)), where=granted > 0)
    return math.ceil(float(ratio.max()) * units.UNITS_PER_EPSILON * (1 + 2.0**-48))


def _check_budgets_and_rows(epsilon: ArrayLike, rows: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
    budget = np.atleast_1d(to_doubles(epsilon, "epsilon", "epsilon"))
    count = to_doubles(rows, "rows", "rows")
    if (
        budget.ndim != 1
        or not np.all(np.isfinite(budget))
        or budget.min(initial=0) < 0
        or not budget.any()
    ):
        raise InvalidBudget(
            "A budget is negative or not finite, or nobody grants anything.",
            "Budgets are finite and at least 0, and somebody's is above 0.",
            "Give each person a finite ε.",
            parameter="epsilon",
        )
    if not np.all(count >= 1) or not np.all(np.isfinite(count)):
        raise InvalidParameter(
            "A person has no rows.",
            "Everybody owns at least one row.",
            "Leave people without rows out.",
            parameter="rows",
        )
    if count.ndim and count.shape != budget.shape:
        raise UnequalLengths(
            "There are more or fewer row counts than budgets.",
            "",
            "Pass one number of rows a person.",
            parameter="rows",
        )
    return budget, count
