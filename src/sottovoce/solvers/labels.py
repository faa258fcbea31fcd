# SPDX-License-Identifier: Apache-2.0
"""The best public linear map for label-private regression, with a certificate (docs/theory/labels.md).

    minimise  F(C) = τ² + ρ·‖C‖_F²   over d×n matrices C with C·X = I,      τ = max_l N_l(C_l)/ε_l

N_l is how far the labels of person l, each moved by at most 1, can move Cy in the ℓ1 norm ("exact"), or the
sum of |C_ji| over their rows ("entrywise"). Everything here is public: no label is seen.
An interior-point method (interior.py) proposes; what is returned is judged by F itself and by a dual value:
for any d×d matrix Y and prices μ, no C with C·X = I has a smaller F than `bound`. People whose exact norm would take
too much work are held by a larger one while C is sought: that of groups of their rows, or the entrywise.

    symbol   name
    ρ        ratio, σ²/(2d·(hi − lo)²)
    τ        level; t in the units of scaled.py, where also C becomes c
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from sottovoce.solvers.entries import Entries
from sottovoce.solvers.groups import Groups
from sottovoce.solvers.interior import Floats, Integers, iterates
from sottovoce.solvers.scaled import Scaled, Solution
from sottovoce.solvers.sensitivity import SHORT, entrywise_norms
from sottovoce.solvers.signs import Signed, is_wide

#: A map is good enough when F is at most this much above the dual bound.
GAP = 1e-4
#: Floating-point operations a Newton step may take for people with several rows, and for everybody together.
SIGNED_WORK, WORK = 1e9, 2e10
#: Where least squares with weights is tried: nobody louder than so many times their limit.
WEIGHTS = np.logspace(2, -4, 13)
#: Below every number that is not 0: somebody whose rows are all 0 is never too loud.
TINY = 1e-300
#: Rows of a group, at most: 32 sign vectors.
GROUP = 6
#: People above this share of their limit at the entrywise optimum have the first claim on that work.
NEAR = 0.5


def entrywise(X: Floats, owner: Integers, epsilon: Floats, ratio: float) -> Solution:
    """Returns the map for N_l = Σ|C_ji|; ``owner`` numbers the people 0 … len(epsilon)−1."""
    with one_thread():
        problem, back = Scaled.sort_by_person(X, owner, epsilon, ratio)
        return _reordered(_entrywise(problem), back)


def exact(X: Floats, owner: Integers, epsilon: Floats, ratio: float) -> Solution:
    """Returns the map for the exact N_l, as far as that is affordable; never worse than the entrywise one."""
    with one_thread():
        problem, back = Scaled.sort_by_person(X, owner, epsilon, ratio)
        found = _entrywise(problem)
        alike = problem.sizes.max() == 1 or X.shape[1] == 1  # then both norms are the same
        too_large = found.steps == 0
        return _reordered(found if alike or too_large else _exact(problem, found), back)


def one_thread() -> Any:
    """Linear algebra on one thread: a plan must not depend on how many there are, and the matrices are small."""
    return threadpool_limits(1, user_api="blas")


def _entrywise(problem: Scaled) -> Solution:
    (n, d), people = problem.U.shape, len(problem.e)
    best = _weighted(problem, np.inf)
    if n * d**3 + people * d**4 + d**6 <= WORK:
        best = _iterated(problem, best)
    if best.gap > GAP:
        best = min((best, *(_better(best, _weighted(problem, h)) for h in WEIGHTS)), key=lambda found: found.value)
    return best


def _iterated(problem: Scaled, best: Solution) -> Solution:
    c = problem.U @ problem.T
    everybody = Entries(problem.U, problem.starts, problem.e, problem.r, c, 1.0, problem.a)
    for steps, Y in enumerate(iterates([everybody], problem.T, problem.a, 1.0), start=1):
        c = problem.make_feasible(everybody.rows_of_map())
        value = problem.value(c, entrywise_norms(c, problem.starts))
        best = _better(best, problem.solution(c, value, problem.bound(Y, [everybody.dual(Y)]), steps))
        if best.gap <= GAP:
            break
    return best


def _weighted(problem: Scaled, h: float) -> Solution:
    """Weighted least squares, in which nobody is louder than h times their limit: good where nothing better is."""
    least = problem.U @ problem.T
    loud = np.minimum(1, h * problem.e / np.maximum(entrywise_norms(least, problem.starts), TINY))
    weighted = problem.U * np.repeat(loud, problem.sizes)[:, None]
    c = problem.make_feasible(weighted @ np.linalg.lstsq(problem.U.T @ weighted, problem.T, rcond=None)[0])
    return problem.solution(c, problem.value(c, entrywise_norms(c, problem.starts)), problem.gauss_markov(), 0)


def _exact(problem: Scaled, first: Solution) -> Solution:
    """Improves on the entrywise optimum; every iterate is judged by the limits that are imposed on it."""
    c = first.map.T / problem.kappa
    level = float((entrywise_norms(c, problem.starts) / problem.e).max())
    parts, held = _divided(problem, c, level)
    whole = problem.unit * problem.gauss_markov()  # bound for the exact limits of everybody, held or not
    best = replace(first, bound=whole, held=held)
    for steps, Y in enumerate(iterates([part.block for part in parts], problem.T, problem.a, level), start=1):
        c = problem.make_feasible(_assembled(parts, c.shape))
        bound = problem.bound(Y, [part.block.dual(Y) for part in parts])
        whole = max(whole, problem.unit * problem.bound(Y, [part.exact_dual(Y) for part in parts]))
        found = problem.solution(c, problem.value(c, _limits(problem, parts, c)), bound, first.steps + steps, held)
        best = _better(best, found)
        if best.gap <= GAP:
            break
    everybody = replace(best, bound=whole, held=0)
    return everybody if everybody.gap <= GAP else best


@dataclass(frozen=True, eq=False)
class _Part:
    """A block, the people in it, and which rows of the table its rows are (−1: padding)."""

    block: Entries | Signed | Groups
    people: Integers
    rows: Integers
    held: bool = False  # a limit on something larger stands in for the exact one

    def exact_dual(self, Y: Floats) -> tuple[float, float]:
        """The dual for the exact limits: of people held by a stricter one, none is counted."""
        if not self.held:
            return self.block.dual(Y)
        pull = self.block.U @ Y
        return float(np.vdot(pull, pull)) / (2 * self.block.r), 0.0


def _divided(problem: Scaled, c: Floats, level: float) -> tuple[list[_Part], int]:
    """Returns the blocks of the method, and how many people are held by more than the exact norm in them.

    With one row all norms are the same. With several, the work goes first to those near their limit, for the norms
    of groups of a few rows; what is left of it to the exact norm, the cheapest first. The others have the entrywise.
    """
    sizes, d = problem.sizes, c.shape[1]
    near = entrywise_norms(c, problem.starts) > NEAR * level * problem.e
    exact = np.where(np.minimum(sizes, d) <= SHORT, _work(_padded(sizes, d), d), np.inf)
    cheapest = np.minimum(exact, _groups(sizes) * _work(_group_size(sizes), d))
    order = np.lexsort((cheapest, ~near))
    order = order[sizes[order] > 1]
    chosen, held = _while_it_lasts(order, cheapest[order], SIGNED_WORK)
    by_price = chosen[np.argsort((exact - cheapest)[chosen], kind="stable")]
    signed, grouped = _while_it_lasts(by_price, (exact - cheapest)[by_price], SIGNED_WORK - cheapest[chosen].sum())
    alike = [(np.flatnonzero(sizes == 1), False), (held, True)]
    parts = [_entries(problem, people, c, level, kept) for people, kept in alike if len(people)]
    for people, rows, build in ((signed, _padded(sizes, d), _signed), (grouped, _group_size(sizes), _grouped)):
        parts += [build(problem, people[rows[people] == r], int(r), c, level) for r in np.unique(rows[people])]
    return parts, len(grouped) + len(held)


def _while_it_lasts(people: Integers, prices: Floats, purse: float) -> tuple[Integers, Integers]:
    """Returns who can be paid for in this order, and who cannot, both ascending."""
    paid = np.cumsum(prices) <= purse
    return np.sort(people[paid]), np.sort(people[~paid])


def _groups(sizes: Integers) -> Integers:
    return -(-sizes // GROUP)


def _group_size(sizes: Integers) -> Integers:
    """Returns how many rows a group has, if all of a person's groups have equally many (the last ones padded)."""
    return -(-sizes // _groups(sizes))


def _work(sizes: Integers, d: int) -> Floats:
    """Roughly the operations of one Newton step for one person with so many rows."""
    rows, short = sizes.astype(np.float64), np.minimum(sizes, min(d, SHORT))
    signs, entries = 2.0 ** (short - 1), rows * d
    side = np.where(is_wide(sizes, d), signs, entries)
    return np.asarray(2 * side**3 + side * signs * entries + signs * entries * short + side * d**4 / 8)


def _padded(sizes: Integers, d: int) -> Integers:
    """Returns sizes rounded up to three bits where rows may be padded, so that there are few blocks."""
    unit = 2 ** np.maximum(np.ceil(np.log2(np.maximum(sizes, 1))) - 3, 0).astype(np.int64)
    return np.where(sizes > d, -(-sizes // unit) * unit, sizes)


def _entries(problem: Scaled, people: Integers, c: Floats, level: float, held: bool) -> _Part:
    sizes = problem.sizes[people]
    starts = np.cumsum(sizes) - sizes
    rows = np.repeat(problem.starts[people] - starts, sizes) + np.arange(sizes.sum())
    load = problem.a * level * len(people) / len(problem.e)
    block = Entries(problem.U[rows], starts, problem.e[people], problem.r, c[rows], level, load)
    return _Part(block, people, rows, held)


def _signed(problem: Scaled, people: Integers, size: int, c: Floats, level: float) -> _Part:
    rows = _padded_rows(problem, people, np.zeros(len(people), dtype=np.int64), size)
    U, c = _taken(problem.U, rows), _taken(c, rows)
    load = problem.a * level * len(people) / len(problem.e)
    return _Part(Signed(U, problem.e[people], problem.r, c, level, load), people, rows.ravel())


def _grouped(problem: Scaled, people: Integers, size: int, c: Floats, level: float) -> _Part:
    groups = _groups(problem.sizes[people])
    person = np.repeat(np.arange(len(people)), groups)
    number = np.arange(len(person)) - np.repeat(np.cumsum(groups) - groups, groups)
    rows = _padded_rows(problem, people[person], number * size, size)
    U, c = _taken(problem.U, rows), _taken(c, rows)
    load = problem.a * level * len(people) / len(problem.e)
    return _Part(Groups(U, person, problem.e[people], problem.r, c, level, load), people, rows.ravel(), held=True)


def _padded_rows(problem: Scaled, people: Integers, first: Integers, size: int) -> Integers:
    """Returns ``size`` rows of each person from their row ``first`` on, −1 where they have no more."""
    places = first[:, None] + np.arange(size)
    return np.where(places < problem.sizes[people][:, None], problem.starts[people][:, None] + places, -1)


def _taken(table: Floats, rows: Integers) -> Floats:
    return np.asarray(table[rows] * (rows >= 0)[..., None])


def _assembled(parts: list[_Part], shape: tuple[int, int]) -> Floats:
    c = np.empty(shape)
    for part in parts:
        there = part.rows >= 0
        c[part.rows[there]] = part.block.rows_of_map()[there]
    return c


def _limits(problem: Scaled, parts: list[_Part], c: Floats) -> Floats:
    limits = entrywise_norms(c, problem.starts)
    for part in parts:
        if not isinstance(part.block, Entries):
            limits[part.people] = part.block.limits(_taken(c, part.rows))
    return limits


def _better(one: Solution, two: Solution) -> Solution:
    """The cheaper map with the higher bound and the later step: both were shown, whichever iterate showed them."""
    cheaper = two if two.value < one.value else one
    return replace(cheaper, bound=max(one.bound, two.bound), steps=max(one.steps, two.steps))


def _reordered(solution: Solution, back: Integers) -> Solution:
    return replace(solution, map=solution.map[:, back])
