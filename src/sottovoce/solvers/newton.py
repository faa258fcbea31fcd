# SPDX-License-Identifier: Apache-2.0
"""The minimiser of a perturbed objective, with a certified distance, by a solver that cannot fail.

    J(θ) = Σ v_i ρ(y_i − φ_iᵀθ) + ½ (θ−c)ᵀΛ(θ−c) + bᵀ(θ−c)

J is 1-strongly convex in the norm ‖·‖_Λ, so ‖θ − θ*‖_Λ ≤ ‖∇J(θ)‖_{Λ⁻¹}: a small gradient certifies a
small distance. Newton with backtracking does the work; the last steps, in extended precision, bring the
gradient below the tolerance. If that is not reached, accelerated gradient steps follow, whose number
is fixed beforehand and suffices for every data set (docs/theory/solver.md). How many steps it took is
private and is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NEWTON_STEPS = 100
REFINEMENTS = 6
#: A decrease by this part of J is the last that is looked at: two more steps follow, and each squares the distance.
NEGLIGIBLE = 1e-8
#: Bits of θ that terms in doubles keep for certain (terms.PLAIN_BITS).
SHORT = 50
LONG_EPS = float(np.finfo(np.longdouble).eps)


@dataclass(frozen=True, eq=False)
class Problem:
    """What is minimised. ``terms(θ, extended)`` returns (Σvρ, Σvψφ, Σvψ'φφᵀ) with the curvature omitted if extended."""

    terms: Callable[[Any, bool], tuple[float, Any, Any]]
    ridge: Floats  # Λ, all positive
    centre: Floats
    tilt: Floats  # b
    smoothness: float  # Σv·H: ∇²J ≤ (1 + smoothness)·Λ
    pull: float  # Σv·τ·√H: the most that ‖∇J‖_{Λ⁻¹} can be at the start c − b/Λ, for any data
    rounding: float  # rounding(rows)·Σv·√H: what a unit of residual or threshold may cost the extended gradient
    threshold: float  # τ

    def value(self, theta: Floats, data: float) -> float:
        """J(θ)."""
        d = theta - self.centre
        return float(data + (self.ridge * d) @ d / 2 + self.tilt @ d)

    def gradient(self, theta: Any, pull: Any) -> Any:
        """∇J(θ)."""
        return -pull + self.ridge * (theta - self.centre) + self.tilt

    def distance(self, theta: Any, gradient: Any) -> float:
        """A bound on ‖θ − θ*‖_Λ: the dual norm of the gradient, and what rounding may have hidden of it."""
        hidden = self.rounding * (self.threshold + 1 + float(np.abs(theta).sum()) / 2)
        cancelled = self.ridge * np.abs(theta - self.centre) + np.abs(self.tilt)  # of opposite signs at the minimiser
        hidden += 4 * LONG_EPS * float(np.sqrt(np.sum(cancelled * cancelled / self.ridge)))
        return float(np.sqrt(np.sum(gradient * gradient / self.ridge))) + hidden


def minimise(problem: Problem, tolerance: float, start: Floats | None = None) -> Any:
    """Returns θ with ‖θ − θ*‖_Λ ≤ tolerance, certified; None only if even the fixed number of steps missed it.

    Newton begins at ``start``, or at the centre.

    θ is in extended precision: noise is added to it before it is rounded to doubles, so rounding costs nothing.
    """
    solves: tuple[Callable[[], Floats], ...] = (lambda: near(problem, start), lambda: _accelerated(problem, tolerance))
    for solve in solves:
        theta, size = _refined(problem, solve(), tolerance)
        if size <= tolerance:
            return theta
    return None


def near(problem: Problem, start: Floats | None = None, negligible: float = NEGLIGIBLE) -> Floats:
    """Newton steps with backtracking, until the decrease is a negligible part of J; no certificate."""
    theta = problem.centre if start is None else start
    data, pull, bend = problem.terms(theta, False)
    value = problem.value(theta, data)
    if start is None and float((problem.tilt**2 / problem.ridge).sum()) > 2 * data:  # the noise says more than the data
        return near(problem, problem.centre - problem.tilt / problem.ridge, negligible)
    for _ in range(NEWTON_STEPS):
        gradient = problem.gradient(theta, pull)
        step = np.linalg.solve(bend + np.diag(problem.ridge), gradient)
        decrease = float(gradient @ step)
        if decrease <= negligible * abs(value):
            return np.asarray(theta - step, dtype=np.float64)
        length = 1.0
        while True:
            trial = theta - length * step
            data, pull, bend = problem.terms(trial, False)
            reached = problem.value(trial, data)
            if reached <= value - 1e-4 * length * decrease or length < 1e-6:
                break
            length /= 2
        theta, value = trial, reached
    return theta


def _refined(problem: Problem, theta: Floats, tolerance: float) -> tuple[Any, float]:
    """Newton steps with the gradient in extended precision; returns θ and a bound on its distance to θ*."""
    theta = _short(theta)
    _, pull, bend = problem.terms(theta, False)
    matrix = bend + np.diag(problem.ridge)
    # One more step in doubles, since the gradient came with the curvature: nearly always one look is enough then.
    best = point = np.asarray(theta - np.linalg.solve(matrix, problem.gradient(theta, pull)), dtype=np.longdouble)
    smallest = math.inf
    for _ in range(REFINEMENTS):
        _, pull, _ = problem.terms(point, True)
        gradient = problem.gradient(point, pull)
        size = problem.distance(point, gradient)
        if size < smallest:
            best, smallest = point, size
        if smallest <= tolerance:
            break
        point = point - np.linalg.solve(matrix, gradient.astype(np.float64))
    return best, smallest


def _short(theta: Floats) -> Floats:
    """Returns θ with its last few bits dropped, so that terms are those of this very point and not of one beside it."""
    unit = math.ldexp(1.0, math.frexp(float(np.abs(theta).max()))[1] - SHORT)
    return np.asarray(np.rint(theta / unit) * unit, dtype=np.float64)


def rounding(rows: int) -> float:
    """Returns a bound on the relative error of the extended sums, which are exact once a row's part is known.

    A row's part has some tens of units in its last place, and is rounded to 2⁻⁸⁵ of the loudest (equation 6).
    """
    return (rows / 2**22 + 40) * LONG_EPS


def _accelerated(problem: Problem, tolerance: float) -> Floats:
    """Nesterov's steps for a 1-strongly convex, L-smooth function in the norm of Λ, as many as always suffice."""
    L = 1 + problem.smoothness
    momentum = (math.sqrt(L) - 1) / (math.sqrt(L) + 1)
    point = theta = problem.centre - problem.tilt / problem.ridge
    for _ in range(steps_that_suffice(L, problem.pull, tolerance)):
        _, pull, _ = problem.terms(point, False)
        new = point - problem.gradient(point, pull) / (L * problem.ridge)
        point, theta = new + momentum * (new - theta), new
    return np.asarray(theta, dtype=np.float64)


def steps_that_suffice(L: float, pull: float, tolerance: float) -> int:
    """Returns T after which ‖∇J‖_{Λ⁻¹} ≤ tolerance for every data set (up to rounding).

    J(x_T) − J* ≤ (J(x₀) − J* + ½‖x₀ − x*‖²)·(1 − 1/√L)^T ≤ pull²·(1 − 1/√L)^T, and ‖∇J‖² ≤ 2L·(J − J*).
    """
    return math.ceil(math.sqrt(L) * math.log(max(2 * L * pull**2 / tolerance**2, 2.0)))
