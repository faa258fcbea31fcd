# SPDX-License-Identifier: Apache-2.0
"""The problem below in units in which Newton is at home, and what a solution of it is worth.

symbol     name
X = U·Q    rows, U with orthonormal columns; Cᵀ = κ·c, so that C·X = I becomes Uᵀc = T
ρ          ratio, σ²/(2d·(hi − lo)²)
a, r       weights of ½t² and ½‖c‖²; r is raised a little where ρ is next to nothing
e_l        limit of person l: ε_l, scaled

The best public linear map for label-private regression, with a certificate (docs/theory/labels.md).

    minimise  F(C) = τ² + ρ·‖C‖_F²   over d×n matrices C with C·X = I,      τ = max_l N_l(C_l)/ε_l

N_l is how far the labels of person l, each moved by at most 1, can move Cy in the ℓ1 norm
("exact"), or the sum of |C_ji| over their rows ("entrywise"). Everything here is public: no label
is seen. An interior-point method (interior_point.py) proposes; what is returned is judged by F
itself and by a dual value: for any d×d matrix Y and prices μ, no C with C·X = I has a smaller F
than `bound`. People whose exact norm would take too much work are held by a larger one while C is
sought: that of groups of their rows, or the entrywise.

    symbol   name
    ρ        ratio, σ²/(2d·(hi − lo)²)
    τ        level; t in the units above, where also C becomes c
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from sottovoce.arrays import Floats, Integers
from sottovoce.errors import InvalidData
from sottovoce.solvers.interior_point import (
    EntrywiseBlock,
    GroupedBlock,
    SignBlock,
    is_wide,
    iterate_newton,
)
from sottovoce.solvers.sensitivity import SHORT, compute_entrywise_norms

#: Rows are dependent when the smallest singular value of the scaled columns is this far below the
#: largest.
RANK_TOLERANCE = 1e-8
#: ρ is raised to this share of its natural size where it is smaller (σ = 0 included): Newton needs
#: curvature.
FLOOR = 1e-5


@dataclass(frozen=True, eq=False)
class Solution:
    """A map, what it costs, and how much better any other could be."""

    map: Floats  # C, d×n
    value: float  # F(C)
    bound: float  # F(C') ≥ bound for every C' with C'X = I (see held)
    steps: int  # Newton steps
    # people whose exact norm was replaced by a larger one while C was sought; bound is for that
    # problem
    held: int

    @property
    def gap(self) -> float:
        """How far above the optimum F may be, as a share."""
        if self.bound > 0:
            return self.value / self.bound - 1
        return np.inf


@dataclass(frozen=True, eq=False)
class ScaledProblem:
    """The problem in units in which the least-squares map, the level and the objective are about
    1.
    """

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
    def of(cls, X: Floats, starts: Integers, epsilon: Floats, ratio: float) -> ScaledProblem:
        """Scales a problem whose rows are sorted by person; refuses dependent columns."""
        U, T = _orthonormalise(X)
        c = U @ T
        kappa = float(np.abs(c).mean())
        e = epsilon * (compute_entrywise_norms(c, starts).sum() / kappa / epsilon.sum())
        level = float(epsilon[0] / e[0]) ** -2
        spread = ratio * float(np.vdot(c, c)) / kappa**2
        a = level / (level + spread)
        r = ratio / (level + spread)
        floor = FLOOR * a / float(e @ e)
        return cls(
            U, T / kappa, starts, e, a, max(r, floor), r, kappa, 2 * kappa**2 * (level + spread)
        )

    @classmethod
    def sort_by_person(
        cls, X: Floats, owner: Integers, epsilon: Floats, ratio: float
    ) -> tuple[ScaledProblem, Integers]:
        """Return the problem with every person's rows together, and the way back."""
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
        """Return the nearest map with Uᵀc = T."""
        return c + self.U @ (self.T - self.U.T @ c)

    def value(self, c: Floats, limits: Floats) -> float:
        """Return the objective, given every person's N(c)."""
        return 0.5 * self.a * float((limits / self.e).max()) ** 2 + 0.5 * self.true_r * float(
            np.vdot(c, c)
        )

    def bound(self, Y: Floats, parts: Sequence[tuple[float, float]]) -> float:
        """Return the dual value at the best multiple of (Y, μ), for the ρ before it was raised.

        Raising r by s adds at most s·Σe²·t² to the objective (‖c_l‖² ≤ 2·N_l²), a share 2s·Σe²/a of
        it.
        """
        gain = float(np.vdot(Y, self.T))
        cost = sum(part for part, _ in parts) + sum(load for _, load in parts) ** 2 / (2 * self.a)
        raised = 1 + 2 * (self.r - self.true_r) * float(self.e @ self.e) / self.a
        if gain > 0 and cost > 0:
            return gain**2 / (4 * cost) / raised
        return 0.0

    def gauss_markov(self) -> float:
        """Return a bound that needs no dual: least squares has the smallest ‖c‖ of all, and it is
        that of T.
        """
        return 0.5 * self.true_r * float(np.vdot(self.T, self.T))

    def solution(
        self, c: Floats, value: float, bound: float, steps: int, held: int = 0
    ) -> Solution:
        """Return a map of the scaled problem in the units it was asked in."""
        return Solution(self.kappa * c.T, self.unit * value, self.unit * bound, steps, held)


def _orthonormalise(X: Floats) -> tuple[Floats, Floats]:
    """Return U with orthonormal columns and T such that Cᵀ solves C·X = I exactly if Uᵀ·Cᵀ = T."""
    size = np.linalg.norm(X, axis=0)
    if len(X) < X.shape[1] or not size.all():
        raise dependent_columns_error()
    U, values, V = np.linalg.svd(X / size, full_matrices=False)
    if values[-1] <= RANK_TOLERANCE * values[0]:
        raise dependent_columns_error()
    # X = U·diag(values)·V·diag(size), and T is the transpose of the inverse of what follows U
    return U, (V / values[:, None]) / size


def dependent_columns_error() -> InvalidData:
    """The refusal of features from which no coefficient can be told."""
    return InvalidData(
        "The features are linearly dependent, or there are fewer rows than coefficients.",
        "Every coefficient must be determined: the columns, with the constant one, have full rank.",
        "Drop redundant columns (one level of every factor, constant columns), or add rows.",
        parameter="X",
    )


#: A map is good enough when F is at most this much above the dual bound.
MAX_GAP = 1e-4
#: Floating-point operations a Newton step may take for people with several rows, and for everybody
#: together.
MAX_SIGN_WORK = 1e9
MAX_WORK = 2e10
#: Where least squares with weights is tried: nobody heavier than so many times their limit.
WEIGHT_MULTIPLES = np.logspace(2, -4, 13)
#: Below every number that is not 0: somebody whose rows are all 0 is never too loud.
TINY = 1e-300
#: Rows of a group, at most: 32 sign vectors.
MAX_GROUP_ROWS = 6
#: People above this share of their limit at the entrywise optimum have the first claim on that
#: work.
PRIORITY_SHARE = 0.5


def solve_entrywise(X: Floats, owner: Integers, epsilon: Floats, ratio: float) -> Solution:
    """Return the map for N_l = Σ|C_ji|; ``owner`` numbers the people 0 … len(epsilon)−1."""
    with limit_to_one_thread():
        problem, back = ScaledProblem.sort_by_person(X, owner, epsilon, ratio)
        return _restore_order(_solve_scaled_entrywise(problem), back)


def solve_exact(X: Floats, owner: Integers, epsilon: Floats, ratio: float) -> Solution:
    """Return the map for the exact N_l, as far as that is affordable.

    Never worse than the entrywise one.
    """
    with limit_to_one_thread():
        problem, back = ScaledProblem.sort_by_person(X, owner, epsilon, ratio)
        found = _solve_scaled_entrywise(problem)
        alike = problem.sizes.max() == 1 or X.shape[1] == 1  # then both norms are the same
        too_large = found.steps == 0
        return _restore_order(
            found if alike or too_large else _improve_exactly(problem, found), back
        )


def limit_to_one_thread() -> Any:
    """Linear algebra on one thread: a plan must not depend on how many there are, and the matrices
    are small.
    """
    return _find_blas().limit(limits=1, user_api="blas")


@cache
def _find_blas() -> ThreadpoolController:
    """The libraries of linear algebra, all loaded by now; to find them takes as long as a step."""
    return ThreadpoolController()


def _solve_scaled_entrywise(problem: ScaledProblem) -> Solution:
    (n, d) = problem.U.shape
    people = len(problem.e)
    best = _solve_weighted(problem, np.inf)
    if n * d**3 + people * d**4 + d**6 <= MAX_WORK:
        best = _iterate_entrywise(problem, best)
    if best.gap > MAX_GAP:
        best = min(
            (
                best,
                *(_combine_solutions(best, _solve_weighted(problem, h)) for h in WEIGHT_MULTIPLES),
            ),
            key=lambda found: found.value,
        )
    return best


def _iterate_entrywise(problem: ScaledProblem, best: Solution) -> Solution:
    c = problem.U @ problem.T
    everybody = EntrywiseBlock(problem.U, problem.starts, problem.e, problem.r, c, 1.0, problem.a)
    for steps, Y in enumerate(iterate_newton([everybody], problem.T, problem.a, 1.0), start=1):
        c = problem.make_feasible(everybody.rows_of_map())
        value = problem.value(c, compute_entrywise_norms(c, problem.starts))
        best = _combine_solutions(
            best, problem.solution(c, value, problem.bound(Y, [everybody.dual(Y)]), steps)
        )
        if best.gap <= MAX_GAP:
            break
    return best


def _solve_weighted(problem: ScaledProblem, h: float) -> Solution:
    """Weighted least squares, in which nobody is heavier than h times their limit: good where
    nothing better is.
    """
    least = problem.U @ problem.T
    loud = np.minimum(
        1, h * problem.e / np.maximum(compute_entrywise_norms(least, problem.starts), TINY)
    )
    weighted = problem.U * np.repeat(loud, problem.sizes)[:, None]
    c = problem.make_feasible(
        weighted @ np.linalg.lstsq(problem.U.T @ weighted, problem.T, rcond=None)[0]
    )
    return problem.solution(
        c, problem.value(c, compute_entrywise_norms(c, problem.starts)), problem.gauss_markov(), 0
    )


def _improve_exactly(problem: ScaledProblem, first: Solution) -> Solution:
    """Improves on the entrywise optimum.

    Every iterate is judged by the limits that are imposed on it.
    """
    c = first.map.T / problem.kappa
    level = float((compute_entrywise_norms(c, problem.starts) / problem.e).max())
    parts, held = _divide_into_blocks(problem, c, level)
    whole = (
        problem.unit * problem.gauss_markov()
    )  # bound for the exact limits of everybody, held or not
    best = replace(first, bound=whole, held=held)
    for steps, Y in enumerate(
        iterate_newton([part.block for part in parts], problem.T, problem.a, level), start=1
    ):
        c = problem.make_feasible(_assemble_map(parts, c.shape))
        bound = problem.bound(Y, [part.block.dual(Y) for part in parts])
        whole = max(whole, problem.unit * problem.bound(Y, [part.exact_dual(Y) for part in parts]))
        found = problem.solution(
            c,
            problem.value(c, _compute_limits(problem, parts, c)),
            bound,
            first.steps + steps,
            held,
        )
        best = _combine_solutions(best, found)
        if best.gap <= MAX_GAP:
            break
    everybody = replace(best, bound=whole, held=0)
    if everybody.gap <= MAX_GAP:
        return everybody
    return best


@dataclass(frozen=True, eq=False)
class _BlockPart:
    """A block, the people in it, and which rows of the table its rows are (−1: padding)."""

    block: EntrywiseBlock | SignBlock | GroupedBlock
    people: Integers
    rows: Integers
    held: bool = False  # a limit on something larger stands in for the exact one

    def exact_dual(self, Y: Floats) -> tuple[float, float]:
        """The dual for the exact limits: of people held by a stricter one, none is counted."""
        if not self.held:
            return self.block.dual(Y)
        pull = self.block.U @ Y
        return float(np.vdot(pull, pull)) / (2 * self.block.r), 0.0


def _divide_into_blocks(
    problem: ScaledProblem, c: Floats, level: float
) -> tuple[list[_BlockPart], int]:
    """Return the blocks of the method, and how many people are held by more than the exact norm in
    them.

    With one row all norms are the same. With several, the work goes first to those near their
    limit, for the norms of groups of a few rows; what is left of it to the exact norm, the cheapest
    first. The others have the entrywise.
    """
    sizes = problem.sizes
    d = c.shape[1]
    near = compute_entrywise_norms(c, problem.starts) > PRIORITY_SHARE * level * problem.e
    exact = np.where(np.minimum(sizes, d) <= SHORT, _estimate_work(_pad_sizes(sizes, d), d), np.inf)
    cheapest = np.minimum(
        exact, _count_groups(sizes) * _estimate_work(_choose_group_size(sizes), d)
    )
    order = np.lexsort((cheapest, ~near))
    order = order[sizes[order] > 1]
    chosen, held = _split_affordable(order, cheapest[order], MAX_SIGN_WORK)
    by_price = chosen[np.argsort((exact - cheapest)[chosen], kind="stable")]
    signed, grouped = _split_affordable(
        by_price, (exact - cheapest)[by_price], MAX_SIGN_WORK - cheapest[chosen].sum()
    )
    alike = [(np.flatnonzero(sizes == 1), False), (held, True)]
    parts = [
        _make_entrywise_part(problem, people, c, level, kept)
        for people, kept in alike
        if len(people)
    ]
    for people, rows, build in (
        (signed, _pad_sizes(sizes, d), _make_sign_part),
        (grouped, _choose_group_size(sizes), _make_grouped_part),
    ):
        parts += [
            build(problem, people[rows[people] == r], int(r), c, level)
            for r in np.unique(rows[people])
        ]
    return parts, len(grouped) + len(held)


def _split_affordable(people: Integers, prices: Floats, totals: float) -> tuple[Integers, Integers]:
    """Return who can be paid for in this order, and who cannot, both ascending."""
    paid = np.cumsum(prices) <= totals
    return np.sort(people[paid]), np.sort(people[~paid])


def _count_groups(sizes: Integers) -> Integers:
    return -(-sizes // MAX_GROUP_ROWS)


def _choose_group_size(sizes: Integers) -> Integers:
    """Return how many rows a group has, if all of a person's groups have equally many (the last
    ones padded).
    """
    return -(-sizes // _count_groups(sizes))


def _estimate_work(sizes: Integers, d: int) -> Floats:
    """Roughly the operations of one Newton step for one person with so many rows."""
    rows = sizes.astype(np.float64)
    short = np.minimum(sizes, min(d, SHORT))
    signs = 2.0 ** (short - 1)
    entries = rows * d
    side = np.where(is_wide(sizes, d), signs, entries)
    return np.asarray(
        2 * side**3 + side * signs * entries + signs * entries * short + side * d**4 / 8
    )


def _pad_sizes(sizes: Integers, d: int) -> Integers:
    """Return sizes rounded up to three bits where rows may be padded, so that there are few
    blocks.
    """
    unit = 2 ** np.maximum(np.ceil(np.log2(np.maximum(sizes, 1))) - 3, 0).astype(np.int64)
    return np.where(sizes > d, -(-sizes // unit) * unit, sizes)


def _make_entrywise_part(
    problem: ScaledProblem, people: Integers, c: Floats, level: float, held: bool
) -> _BlockPart:
    sizes = problem.sizes[people]
    starts = np.cumsum(sizes) - sizes
    rows = np.repeat(problem.starts[people] - starts, sizes) + np.arange(sizes.sum())
    load = problem.a * level * len(people) / len(problem.e)
    block = EntrywiseBlock(
        problem.U[rows], starts, problem.e[people], problem.r, c[rows], level, load
    )
    return _BlockPart(block, people, rows, held)


def _make_sign_part(
    problem: ScaledProblem, people: Integers, size: int, c: Floats, level: float
) -> _BlockPart:
    rows = _pad_rows(problem, people, np.zeros(len(people), dtype=np.int64), size)
    U = _take_rows(problem.U, rows)
    c = _take_rows(c, rows)
    load = problem.a * level * len(people) / len(problem.e)
    return _BlockPart(
        SignBlock(U, problem.e[people], problem.r, c, level, load), people, rows.ravel()
    )


def _make_grouped_part(
    problem: ScaledProblem, people: Integers, size: int, c: Floats, level: float
) -> _BlockPart:
    groups = _count_groups(problem.sizes[people])
    person = np.repeat(np.arange(len(people)), groups)
    number = np.arange(len(person)) - np.repeat(np.cumsum(groups) - groups, groups)
    rows = _pad_rows(problem, people[person], number * size, size)
    U = _take_rows(problem.U, rows)
    c = _take_rows(c, rows)
    load = problem.a * level * len(people) / len(problem.e)
    return _BlockPart(
        GroupedBlock(U, person, problem.e[people], problem.r, c, level, load),
        people,
        rows.ravel(),
        held=True,
    )


def _pad_rows(problem: ScaledProblem, people: Integers, first: Integers, size: int) -> Integers:
    """Return ``size`` rows of each person from their row ``first`` on, −1 where they have no
    more.
    """
    places = first[:, None] + np.arange(size)
    return np.where(
        places < problem.sizes[people][:, None], problem.starts[people][:, None] + places, -1
    )


def _take_rows(table: Floats, rows: Integers) -> Floats:
    return np.asarray(table[rows] * (rows >= 0)[..., None])


def _assemble_map(parts: list[_BlockPart], shape: tuple[int, int]) -> Floats:
    c = np.empty(shape)
    for part in parts:
        there = part.rows >= 0
        c[part.rows[there]] = part.block.rows_of_map()[there]
    return c


def _compute_limits(problem: ScaledProblem, parts: list[_BlockPart], c: Floats) -> Floats:
    limits = compute_entrywise_norms(c, problem.starts)
    for part in parts:
        if not isinstance(part.block, EntrywiseBlock):
            limits[part.people] = part.block.limits(_take_rows(c, part.rows))
    return limits


def _combine_solutions(one: Solution, two: Solution) -> Solution:
    """The cheaper map with the higher bound and the later step: both were shown, whichever iterate
    showed them.
    """
    if two.value < one.value:
        cheaper = two
    else:
        cheaper = one
    return replace(cheaper, bound=max(one.bound, two.bound), steps=max(one.steps, two.steps))


def _restore_order(solution: Solution, back: Integers) -> Solution:
    return replace(solution, map=solution.map[:, back])
