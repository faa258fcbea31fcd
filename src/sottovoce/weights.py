# SPDX-License-Identifier: Apache-2.0
"""How loud each person takes part (docs/theory/weights.md).

Every answer is driven by weights c_i ≥ 0 of rows that sum to one. The statistical error grows with
Σc², the noise with the largest W_l/ε_l, and where budgets go along with values, the bias with D =
Σ|W_l − u_l|, u_l = s_l/n what person l would weigh if every row counted the same. So the weights
minimise A·Σc_i² + (max_l W_l/ε_l)² + B·D². Rows of one person weigh the same, and W_l ∝ min(s_l,
h·ε_l) with one number h for everybody, the root of

    ψ(h) = h − A·Σ_l ε_l·(1 − h·ε_l/s_l)₊ − 2B·D·Z·E₂

with Z = Σ min(s_l, h·ε_l), and E₂ the sum of the ε_l of those who weigh less than u_l.

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


def optimal_weights(
    epsilon: ArrayLike, rows: ArrayLike = 1, A: float = 0.0, B: float = 0.0
) -> Floats:
    """Return the weights W of people that minimise A·Σc² + (max W/ε)² + B·(Σ|W − u|)².

    They sum to one, and u are those of everybody whose rows all count the same. Someone who grants
    nothing weighs nothing. With A = B = 0 noise is all that matters and W ∝ ε; with A → ∞ or B → ∞
    it is that everybody is heard, and W ∝ rows.

    Parameters
    ----------
    epsilon : ArrayLike
        ε by person.
    rows : ArrayLike
        Rows by person.
    A : float
        Weight of the sampling error against the noise, ≥ 0.
    B : float
        Weight of the possible bias against the noise, ≥ 0; 0 trusts that budgets go along with
        nothing.

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
    person_weight = (
        solve_row_weights(
            budget, count, np.ones_like(budget), _check_constant(A, "A"), _check_constant(B, "B")
        )
        * count
    )
    return np.asarray(person_weight / person_weight.sum(), dtype=np.float64)


def _check_constant(value: Any, name: str) -> float:
    constant = to_doubles(value, name, name)
    if constant.ndim or not constant >= 0:
        raise InvalidParameter(
            f"{name} is negative or not a number.",
            f"{name} must be at least 0.",
            f"Pass the public constant {name}.",
            parameter=name,
        )
    return float(constant)


def solve_row_weights(
    epsilon: Floats, rows: Array, people: Array, A: float, B: float = 0.0
) -> Floats:
    """Returns the optimal weight of one row of each kind, scaled so that the heaviest row has
    weight 1.
    """
    h = _find_saturation(epsilon, rows, people, A, B)
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


def _find_saturation(epsilon: Floats, rows: Array, people: Array, A: float, B: float) -> float:
    if math.inf in (A, B):
        return math.inf
    if A == 0 and B == 0:
        return 0.0
    return _solve_saturation(epsilon, rows, people, A, B)


def _solve_saturation(
    epsilon: Floats, rows: Array, people: Array, A: float, B: float = 0.0
) -> float:
    """Returns the root h of ψ, exactly up to rounding, by one sort and sums from the end."""
    participating = epsilon > 0
    n = float(rows @ people)
    if not participating.all():
        epsilon = epsilon[participating]
        rows = rows[participating]
        people = people[participating]
    ratio = rows / epsilon
    order = _order_ascending(ratio)
    ratio = ratio[order]
    mass = people[order] * epsilon[order]
    E = _sum_from_end(mass)
    if B > 0:
        S = _sum_from_end(people[order] * rows[order])
    mass /= ratio
    Q = _sum_from_end(mass)
    if B > 0:
        return _bisect_with_association(ratio, E, Q, S, n, A, B)

    def phi(i: int) -> float:
        # φ at a breakpoint: there the people strictly after are still below saturation.
        return float(ratio[i] * (1 + A * Q[i + 1]) - A * E[i + 1])

    first = bisect_left(range(len(ratio) - 1), 0.0, key=phi)
    return float(A * E[first] / (1 + A * Q[first]))


def _bisect_with_association(
    ratio: Floats, E: Floats, Q: Floats, S: Floats, n: float, A: float, B: float
) -> float:
    """Returns where ψ changes its sign between the smallest and the largest ratio, to the last bit.

    ψ is of the sign of the derivative of a function that falls and then rises, so halving finds it,
    at kinks too. Those who weigh less than they would if all rows counted the same are the last in
    order: hε_l/Z < s_l/n is s_l/ε_l > hn/Z. Those who take no part are among them.
    """
    low = float(ratio[0])
    high = float(ratio[-1])
    missing = 1 - float(S[0]) / n
    while True:
        h = math.sqrt(low) * math.sqrt(high)
        if not low < h < high:
            return low
        i = int(np.searchsorted(ratio, h, side="right"))
        Z = float(S[0] - S[i]) + h * float(E[i])
        k = int(np.searchsorted(ratio, h * (n / Z), side="right"))
        D = 2 * max(float(S[k]) / n - h / Z * float(E[k]) + missing, 0.0)
        psi = h * (1 + A * float(Q[i])) - A * float(E[i]) - 2 * B * D * Z * float(E[k])
        if psi < 0:
            low = h
        else:
            high = h


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
    def solve(cls, kinds: BudgetGroups, A: float, B: float = 0.0) -> Weights:
        """Solve for the optimal weights, and round them to integers.

        Parameters
        ----------
        kinds : BudgetGroups
            People with equal budgets and row counts.
        A : float
            Weight of the sampling error against the noise, ≥ 0.
        B : float
            Weight of the possible bias against the noise, ≥ 0; 0 trusts that budgets go along with
            nothing.

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
        epsilon = units.to_epsilon(kinds.epsilon)
        return cls.from_row_weights(
            kinds, solve_row_weights(epsilon, kinds.rows, kinds.people, A, B)
        )

    def with_grants(self, kinds: BudgetGroups) -> Weights:
        """Return the same weights of rows under other grants; who grants nothing weighs nothing.

        Parameters
        ----------
        kinds : BudgetGroups
            The same people, with what they grant now.

        Returns
        -------
        Weights
            The weights, with the charges that follow from these grants.
        """
        return Weights.from_integers(kinds, np.where(kinds.epsilon > 0, self.row, 0))

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


def set_aside(
    kinds: BudgetGroups, least: float, most: float, spent: units.Units, parts: int = 1
) -> tuple[BudgetGroups, BudgetGroups]:
    """Returns the kinds with what is left of every budget, and with what is set aside.

    Everybody sets the share ``least`` aside, and up to the share ``most`` what they would not spend
    otherwise.

    Both are divided by ``parts`` and rounded down; together, times parts, they are never more than
    the budget.
    """
    granted = kinds.epsilon
    unspent = np.maximum(granted - spent, np.floor(granted * least).astype(np.int64))
    taken = np.minimum(np.floor(granted * most).astype(np.int64), unspent)
    return (
        BudgetGroups((granted - taken) // parts, kinds.rows, kinds.people),
        BudgetGroups(taken // parts, kinds.rows, kinds.people),
    )


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
