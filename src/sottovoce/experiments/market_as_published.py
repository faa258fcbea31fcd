# SPDX-License-Identifier: Apache-2.0
"""The market of *Striking a Balance* exactly as it is printed there. **It is not private and not truthful.**

It chooses weights, noise and model together, on the sellers' rows, by projected gradient steps (its section 4.2):

    min over z, η, w of  Σ a_i·log(1 + e^(−rows_iᵀw)) + ½λ‖w‖² + 2bᵀw/η + μ‖a‖ + σ/η + γη·Σ a_iΨ_i                 (10)

with a = e^z and Σa = 1, on a grid of ε_avg = η/m, one draw of b for all of it, and pays Ψ_iε_i. The library uses
none of this: it is here to be measured (market.py; docs/theory/market.md). Problems are solved side by side, P of them,
each with its own numbers.

    symbol   name
    z_i      log_weights, log a_i       not to be confused with the rows y_i·x_i, which the paper calls z too
    b        noise, ‖b‖ ~ Gamma(d), uniform direction
    Ψ_i      virtual
    λ, γ     ridge, trade_off
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, gammaincinv

Floats = NDArray[np.float64]

#: Gradient steps at most, how often convergence is looked at, and the change of the objective that counts as none.
STEPS, LOOK, STILL = 4000, 50, 1e-9
#: "step-size α ∈ (0, 1]": with rows of the unit ball steps of 1 are stable for λ < 1.75, and 1/λ beyond.
STEP = 1.0
#: Newton's steps at most for the nearest point of {Σe^z = 1}, when its sum is taken as 1, and halvings for a shift.
NEWTON, EXACT, HALVINGS = 8, 1e-9, 45
#: z' + ν·e^z' = z has a solution near z for ν above −e^(−1−z); a little less far.
FOLD = 0.35
#: A weight of zero has a logarithm in computers, too.
NOTHING = 1e-300


def constants_as_published(dimension: int, norm: float = 1.0, failure: float = 0.05) -> tuple[float, float]:
    """Returns μ and σ of Theorem A.1, with its logarithm to base 2; 2.3 and 19 times what is right at d = 30, β = 5.

    >>> [round(constant, 1) for constant in constants_as_published(30, norm=5.0)]
    [53.1, 10842.0]
    """
    log, v = math.log(1 / failure), 2 * float(gammaincinv(dimension, 1 - failure))
    mu = 3 * log / math.sqrt(2) * math.log2(1 + math.exp(norm)) + norm / math.log(2)
    return mu, (6 * log / math.sqrt(2) + 1) * 2 * norm * v


def payments_as_printed(virtual: ArrayLike, epsilon: ArrayLike) -> Floats:
    """Returns t_i = Ψ_i(c_i)·ε_i, the end of Theorem A.3's proof. Not truthful: right on average only."""
    return np.asarray(virtual, dtype=np.float64) * np.asarray(epsilon, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Problems:
    """P problems on the same rows: ``virtual`` is P × m, ``noise`` P × d, the rest numbers or arrays of length P."""

    rows: Floats  # y_i·x_i, of norm at most 1; without columns the problem has no data in it
    virtual: Floats
    noise: Floats
    trade_off: Any
    mu: Any
    sigma: Any
    ridge: Any

    def at(self, which: NDArray[np.int64]) -> Problems:
        """Returns some of the problems, with every number as a column."""
        own = (np.broadcast_to(getattr(self, f.name), len(self.virtual))[which, None] for f in fields(self)[3:])
        return Problems(self.rows, self.virtual[which], self.noise[which], *own)

    def prices(self, eta: Floats, coefficients: Floats) -> Floats:
        """Returns what a unit of each weight costs: the row's loss, and its payment."""
        loss = np.logaddexp(0.0, -coefficients @ self.rows.T)
        return np.asarray(loss + self.trade_off * eta * self.virtual)

    def value(self, weights: Floats, eta: Floats, coefficients: Floats) -> Floats:
        """Returns the objective (10)."""
        w, linear = coefficients, np.sum(weights * self.prices(eta, coefficients), axis=1)
        norm = np.linalg.norm(weights, axis=1)
        rest = self.ridge * np.sum(w**2, axis=1, keepdims=True) / 2
        rest = rest + (2 * np.sum(self.noise * w, axis=1, keepdims=True) + self.sigma) / eta
        return np.asarray(linear + (self.mu * norm[:, None] + rest)[:, 0])


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the mechanism chooses, problem by problem; all of it depends on the sellers' data."""

    weights: Floats
    eta: Floats
    coefficients: Floats
    value: Floats

    @property
    def epsilon(self) -> Floats:
        """ε_i = a_iη, what the paper promises: without the 2·log(1 + k/(mλ)) of its own proof."""
        return np.asarray(self.weights * self.eta[:, None])


def normalised(log_weights: Floats, ceiling: Any = None) -> Floats:
    """Returns z − log Σe^z: the shift onto {Σe^z = 1}; with ceilings on e^z, the shift of what lies below them."""
    if ceiling is None:
        return np.asarray(log_weights - _log_sum(log_weights))
    top = np.log(np.broadcast_to(ceiling, log_weights.shape))
    low = _log_sum(np.minimum(log_weights, top)) - np.log(1e6)
    high = _log_sum(log_weights)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        much = np.exp(np.minimum(log_weights - middle, top)).sum(axis=1, keepdims=True) > 1
        low, high = np.where(much, middle, low), np.where(much, high, middle)
    return np.asarray(np.minimum(log_weights - high, top))


def _log_sum(log_weights: Floats) -> Floats:
    top = log_weights.max(axis=1, keepdims=True)
    return np.asarray(top + np.log(np.exp(log_weights - top).sum(axis=1, keepdims=True)))


def nearest(log_weights: Floats, ceiling: Any = None) -> Floats:
    """Returns the nearest point of {Σe^z = 1}: z' + ν·e^z' = z, with Newton's steps for ν and, inside, for z'.

    The set is not convex: distances can be stretched, against Theorem 4.1, and from far below the equation has no
    solution for all coordinates at once. Then ν stays where it has one, and a shift does the rest.
    """
    moved, nu = log_weights, np.zeros((len(log_weights), 1))
    least = -FOLD / np.exp(log_weights.max(axis=1, keepdims=True))
    for _ in range(NEWTON):
        a = np.exp(moved)
        nu = nu + (a.sum(axis=1, keepdims=True) - 1) / (a**2 / (1 + nu * a)).sum(axis=1, keepdims=True)
        nu = np.maximum(nu, least)
        for _ in range(2):
            a = np.exp(moved)
            moved = moved - (moved + nu * a - log_weights) / (1 + nu * a)
        if np.all(np.abs(np.exp(moved).sum(axis=1) - 1) < EXACT):
            break
    return normalised(moved, ceiling)  # the last digits, and ceilings where there are any


def gradient_step(problems: Problems, eta: Floats, w: Floats, z: Floats, size: Floats) -> Floats:
    """Returns z after one step of the paper's algorithm, before projection."""
    a = np.exp(z)
    slope = problems.prices(eta, w) + problems.mu * a / np.linalg.norm(a, axis=1, keepdims=True)
    return np.asarray(z - size * a * slope)


def exact_step(problems: Problems, eta: Floats, w: Floats, z: Floats, size: Floats) -> Floats:
    """Returns the best z at this w. Not in the paper, whose own steps are far from converged after thousands."""
    return np.log(np.maximum(best_weights(problems.prices(eta, w), problems.mu[:, 0]), NOTHING))


def joint_descent_as_published_not_private(
    problems: Problems,
    eta: Floats,
    start: Floats,
    *,
    ceiling: Any = None,
    steps: int = STEPS,
    projection: Callable[[Floats, Any], Floats] = nearest,
    step: Callable[..., Floats] = gradient_step,
    alpha: float = STEP,
) -> Outcome:
    """Returns where projected gradient steps of size α in (w, z) end at these η, from w = start and a = 1/m."""
    p, eta = problems.at(np.arange(len(eta))), eta[:, None]
    w, z = start, normalised(np.zeros(p.virtual.shape), ceiling)
    size, before = alpha / np.maximum(1.0, p.ridge), np.full(len(eta), np.inf)
    for count in range(1, steps + 1):
        pull = -(np.exp(z) * expit(-w @ p.rows.T)) @ p.rows + p.ridge * w + 2 * p.noise / eta
        w, z = w - size * pull, projection(step(p, eta, w, z, size), ceiling)
        if count % LOOK == 0:
            now = p.value(np.exp(z), eta, w)
            if np.all(np.abs(before - now) <= STILL * (1 + np.abs(now))):
                break
            before = now
    return Outcome(np.exp(z), eta[:, 0], w, p.value(np.exp(z), eta, w))


def market_as_published_not_private(problems: Problems, averages: ArrayLike, start: Floats, **options: Any) -> Outcome:
    """Returns the best of a grid of ε_avg for each problem: the iterative algorithm of section 4.2.

    ``start`` is one w for each problem. With mu = sigma = 0 it is the paper's naive model.
    """
    grid, (many, sellers) = np.asarray(averages, dtype=np.float64), problems.virtual.shape
    which, eta = np.repeat(np.arange(many), len(grid)), np.tile(grid * sellers, many)
    own = problems.at(which)
    own = replace(own, **{name: getattr(own, name)[:, 0] for name in ("trade_off", "mu", "sigma", "ridge")})
    tried = joint_descent_as_published_not_private(own, eta, start[which], **options)
    best = tried.value.reshape(many, -1).argmin(axis=1) + np.arange(many) * len(grid)
    return Outcome(*(getattr(tried, f.name)[best] for f in fields(tried)))


@dataclass(frozen=True, eq=False)
class Line:
    """The exact joint minimum of one problem with one column, as a function of b: a list of places and their shares.

    For fixed b, (10) is G(w, η) + b·(2w/η), G the least value over weights. So the minimum is a lower envelope of lines
    in b, and the places that are ever chosen are the corners of the lower convex hull of the points (2w/η, G).
    """

    coefficient: Floats  # w at each corner
    epsilon: Floats  # corner × seller
    turns: Floats  # −b at which one corner gives way to the next

    def choose_corners(self, noise: Floats) -> NDArray[np.int64]:
        """Returns the corner for each b."""
        return np.searchsorted(self.turns, -np.asarray(noise))


def exact_minimum_in_one_dimension(problem: Problems, averages: ArrayLike, places: Floats) -> Line:
    """Returns the global joint minimum over a grid of ε_avg and a fine grid of w, for every b."""
    grid, w = np.meshgrid(np.asarray(averages) * problem.virtual.shape[1], places, indexing="ij")
    eta, w = grid.reshape(-1, 1), w.reshape(-1, 1)
    own = replace(problem, noise=0 * problem.noise).at(np.zeros(len(w), dtype=np.int64))
    weights = best_weights(own.prices(eta, w), own.mu[:, 0])
    tilt, value = 2 * w[:, 0] / eta[:, 0], own.value(weights, eta, w)
    corners = _lower_hull(tilt, value)
    turns = np.diff(value[corners]) / np.diff(tilt[corners])
    return Line(w[corners, 0], (weights * eta)[corners], turns)


def best_weights(prices: Floats, mu: Floats) -> Floats:
    """Returns, row by row, the a ≥ 0 with Σa = 1 that minimise μ‖a‖ + pricesᵀa: the paper's Theorem 3.3, solved."""
    order = np.argsort(prices, axis=1)
    sorted_prices = np.take_along_axis(prices, order, axis=1) - prices.min(axis=1, keepdims=True)
    n, s1, s2 = np.arange(1, prices.shape[1] + 1), sorted_prices.cumsum(axis=1), (sorted_prices**2).cumsum(axis=1)
    reach = n * sorted_prices**2 - 2 * sorted_prices * s1 + s2  # Σ (p_n − p_j)² over j ≤ n
    many = np.maximum((reach < mu[:, None] ** 2).cumprod(axis=1).sum(axis=1, keepdims=True), 1)
    mean, square = (np.take_along_axis(s, many - 1, axis=1) / many for s in (s1, s2))
    root = np.sqrt(np.maximum(mu[:, None] ** 2 / many - (square - mean**2), 1e-300))
    rising = np.where(n <= many, np.maximum(1 - (sorted_prices - mean) / root, 0.0), 0.0)
    weights = np.empty_like(prices)
    np.put_along_axis(weights, order, rising / rising.sum(axis=1, keepdims=True), axis=1)
    return weights


def _lower_hull(x: Floats, y: Floats) -> NDArray[np.int64]:
    """Returns the corners of the lower convex hull, from left to right."""
    corners: list[int] = []
    for i in np.lexsort((y, x)).tolist():
        if corners and x[i] == x[corners[-1]]:
            continue
        while len(corners) > 1 and _below(x, y, corners[-2], i, corners[-1]):
            corners.pop()
        corners.append(i)
    return np.array(corners)


def _below(x: Floats, y: Floats, left: int, right: int, middle: int) -> bool:
    rise, run = y[right] - y[left], x[right] - x[left]
    return bool((y[middle] - y[left]) * run >= rise * (x[middle] - x[left]))
