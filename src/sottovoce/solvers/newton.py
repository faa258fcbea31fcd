# SPDX-License-Identifier: Apache-2.0
"""The minimiser of a perturbed objective, with a certified distance, by a solver that cannot fail.

    J(θ) = Σ v_i ρ(y_i − φ_iᵀθ) + ½ (θ−c)ᵀΛ(θ−c) + bᵀ(θ−c)

J is 1-strongly convex in the norm ‖·‖_Λ, so ‖θ − θ*‖_Λ ≤ ‖∇J(θ)‖_{Λ⁻¹}: a small gradient certifies
a small distance. Newton's steps do the work: first in doubles, then with θ and the gradient as
exact fractions, in which nothing is left to rounding but the pull of each row, and that by no more
than ``Problem.error``, a public number in which θ does not occur. Should Newton miss the tolerance
all the same, accelerated gradient steps follow: their number is fixed beforehand, and after so many
of them the distance is below the tolerance for every data set, rounding included
(docs/theory/solver.md). How many steps it took is private and is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Floats

#: θ as exact numbers: an array of Fractions whose denominators are powers of two.
Exact = NDArray[np.object_]

#: Evaluations of all rows that Newton may take in doubles, and then with exact gradients; ten and
#: two are usual. Where hardly a row is closer to the fit than the threshold, a hundred with exact
#: gradients were seen.
PASSES = 1000
EXACT_PASSES = 1000
#: A decrease by this part of J is the last that is looked at: two more steps follow, and each
#: squares the distance.
NEGLIGIBLE = 1e-8
#: A step is too long where the slope along it has turned and is steeper than this part of what it
#: was.
TURNED = 0.5
#: What a step that is too long is divided by at first, and, squared from one try to the next, in
#: the end.
SHORTER = 4.0
MUCH_SHORTER = 1e3
#: A slope after a step that is larger than this part of what it was asks for a fresh curvature.
STALE = 0.1
#: A guess need not be better than this part of J: what a part of the rows says is not.
ROUGH = 1e-3
#: Looks at all rows between a guess and the last step in doubles, at most.
APPROACHES = 30
#: The curvature is looked at anew where slopes would need so many looks more without it.
LOOKS_SAVED = 3
#: A step after which the slope is more than this part of what it was leads nowhere; as long as the
#: slope is not within so many tolerances, the guess was a bad one.
WORSE = 0.5
NEAR_ENOUGH = 1e6
#: Bits of θ that terms in doubles keep for certain (terms.PLAIN_BITS).
KEPT_BITS = 50
#: Where the gradient is above this part of the most that it can be, so many bits of θ do, and one
#: limb of pulls; a step by what a part of the rows says is taken to leave this part of it.
ROUGH_GRADIENT = 1e-5
ROUGH_BITS = 24
FIRST_RATIO = 0.02
LONG_EPS = float(np.finfo(np.longdouble).eps)
#: What rounding may make of the norm of a vector, in parts of it.
NORM_FACTOR = 1 + 2.0**-40


@dataclass(frozen=True, eq=False)
class Problem:
    """What is minimised.

    ``terms(θ, False)`` returns (Σvρ, Σvψφ, Σvψ'φφᵀ) in doubles at a θ of doubles. ``terms(θ,
    True)`` is called with exact fractions; of it the second is read alone, which has no error but
    that of the pulls of single rows.
    """

    terms: Callable[[Any, bool], tuple[float, Any, Any]]
    ridge: Floats  # Λ, all positive
    centre: Floats
    tilt: Floats  # b
    smoothness: float  # Σv·H: ∇²J ≤ (1 + smoothness)·Λ
    pull: float  # Σv·τ·√H: the most that ‖∇J‖_{Λ⁻¹} can be at the start c − b/Λ, for any data
    # the most that ‖·‖_{Λ⁻¹} of the exact gradient can be wrong by, for any data, b and θ
    error: float
    # Σvψφ alone, in doubles, at a θ of doubles; None: terms tell it
    pulls: Callable[[Floats], Floats] | None = None
    # Σvψφ of few bits, and Σvψ'φφᵀ if asked for, for first steps; None: the others tell them
    rough: Callable[[Floats, bool], tuple[Floats, Floats]] | None = None

    def value(self, theta: Floats, data: float) -> float:
        """J(θ)."""
        d = theta - self.centre
        return float(data + (self.ridge * d) @ d / 2 + self.tilt @ d)

    def gradient(self, theta: Floats, pull: Floats) -> Floats:
        """∇J(θ) in doubles."""
        return np.asarray(-pull + self.ridge * (theta - self.centre) + self.tilt, dtype=np.float64)

    def exact_gradient(self, theta: Exact) -> Exact:
        """∇J(θ) as exact numbers: Λ(θ − c) and b cancel at the minimiser without a loss."""
        _, pulls, _ = self.terms(theta, True)
        gradient = (
            to_fractions(self.ridge) * (theta - to_fractions(self.centre))
            + to_fractions(self.tilt)
            - to_fractions(pulls)
        )
        return np.asarray(gradient, dtype=object)

    def distance(self, gradient: Floats) -> float:
        """A bound on ‖θ − θ*‖_Λ: the dual norm of the gradient, and what rounding may have hidden
        of it.
        """
        return NORM_FACTOR * float(np.sqrt(np.sum(gradient * gradient / self.ridge))) + self.error


def bound_rounding(rows: int, coordinates: int, steepest: float) -> float:
    """Return what Σ pull·φ may be wrong by, in the norm of Λ⁻¹, for each unit of Σv·√H.

    θ does not matter.

    A pull has some tens of units in its last place, and is rounded to 2⁻⁸⁵ of the heaviest.
    ``steepest`` is the largest pull; a residual is right to a unit of itself and of d·2⁻²²
    (docs/theory/solver.md, equation 8).
    """
    return (rows / 2**22 + 40) * LONG_EPS * (steepest + coordinates * 2.0**-22)


def find_tolerance(error: float, least: float) -> float:
    """Return t ≥ ``least`` that is reached whatever the data and b are, if gradients are right up
    to ``error``.
    """
    return least + 4 * error


def minimise(problem: Problem, tolerance: float, guess: Guess | None = None) -> Exact:
    """Return θ with ‖θ − θ*‖_Λ ≤ tolerance, for every data set and b.

    Needs tolerance > 4·problem.error.

    Newton begins at the guess, or at the centre. θ is exact: noise is added to it before it is
    rounded to doubles (``continuous.add_output_noise``), so rounding costs nothing.
    """
    bits = _choose_bits(problem, tolerance)
    near = None
    if guess is not None:
        near = _approach(problem, guess, tolerance)
    if near is None:
        near = _evaluate(problem, run_newton(problem))
    found = _run_exact_newton(problem, near, tolerance, bits)
    if found is None:
        return _run_accelerated(problem, tolerance, bits)
    return found


@dataclass(frozen=True, eq=False)
class Guess:
    """Where a minimiser may be, and the curvature of J there, roughly: of a part of the rows."""

    theta: Floats
    matrix: Floats


@dataclass(frozen=True, eq=False)
class _Point:
    """A θ, ∇J there in doubles, and the curvature there or near it."""

    theta: Floats
    gradient: Floats
    matrix: Floats


def guess_from(problem: Problem) -> Guess:
    """Return the minimiser of a part of the rows, roughly, and the curvature near it."""
    found = _evaluate(problem, run_newton(problem, negligible=ROUGH))
    return Guess(found.theta, found.matrix)


def _evaluate(problem: Problem, theta: Floats) -> _Point:
    """One look at all rows, with the curvature."""
    theta = _drop_last_bits(theta)
    _, pull, bend = problem.terms(theta, False)
    return _Point(theta, problem.gradient(theta, pull), bend + np.diag(problem.ridge))


def _look(
    problem: Problem, theta: Floats, expected: float, matrix: Floats, *, curved: bool
) -> _Point:
    """One look at slopes, and at the curvature if asked for; else the one that is given stays.

    As long as the gradient is expected to be large, few bits of θ and of pulls do.
    """
    if problem.rough is None or expected < ROUGH_GRADIENT * problem.pull:
        if curved:
            return _evaluate(problem, theta)
        theta = _drop_last_bits(theta)
        return _Point(theta, _find_gradient(problem, theta), matrix)
    theta = _drop_last_bits(theta, ROUGH_BITS)
    pull, bend = problem.rough(theta, curved)
    if curved:
        matrix = bend + np.diag(problem.ridge)
    return _Point(theta, problem.gradient(theta, pull), matrix)


def _approach(problem: Problem, guess: Guess, tolerance: float) -> _Point | None:
    """Newton's steps from a good guess, with the curvature kept from look to look where it serves:
    to look at slopes alone takes a third of the time.

    Returns the point from which one step more should arrive; None if the guess was not good.
    """
    at = _look(problem, guess.theta, math.inf, guess.matrix, curved=False)
    size = problem.distance(at.gradient)
    ratio = 1.0
    fresh = False
    for step in range(APPROACHES):
        if size * ratio <= tolerance / 4:
            return at
        theta = at.theta - np.linalg.solve(at.matrix, at.gradient)
        # What a fresh curvature gains is seen by one look at slopes.
        fresh = not fresh and size * ratio**LOOKS_SAVED > tolerance
        if step == 0:
            expected = FIRST_RATIO * size
        else:
            expected = ratio * size
        near = _look(problem, theta, expected, at.matrix, curved=fresh)
        shrunk = problem.distance(near.gradient)
        if not shrunk < WORSE * size:
            break
        if not fresh:
            near = _learn_curvature(at, near)
        ratio = shrunk / size
        size = shrunk
        at = near
    if size > NEAR_ENOUGH * tolerance:
        return None
    return at  # doubles tell no more


def _learn_curvature(before: _Point, after: _Point) -> _Point:
    """Returns a point with the curvature corrected by what a step tells of it, how the gradient
    changed along it (Broyden, Fletcher, Goldfarb and Shanno): steps that keep one curvature soon
    go along one line, so that this is most of what it lacks.
    """
    step = after.theta - before.theta
    change = after.gradient - before.gradient
    expected = before.matrix @ step
    bent = float(step @ change)
    assumed = float(step @ expected)
    if not (bent > 0 and assumed > 0):
        return after
    matrix = (
        before.matrix + np.outer(change, change) / bent - np.outer(expected, expected) / assumed
    )
    return _Point(after.theta, after.gradient, matrix)


def _find_gradient(problem: Problem, theta: Floats) -> Floats:
    if problem.pulls is None:
        return problem.gradient(theta, problem.terms(theta, False)[1])
    return problem.gradient(theta, problem.pulls(theta))


def to_fractions(numbers: Any) -> Exact:
    """Return numbers as fractions, without a loss."""
    return np.array([Fraction(number) for number in numbers], dtype=object)


def run_newton(
    problem: Problem, start: Floats | None = None, negligible: float = NEGLIGIBLE
) -> Floats:
    """Newton's steps, shortened where they go too far, until the decrease is a negligible part of
    J; no certificate.
    """
    if start is None:
        theta = problem.centre
    else:
        theta = start
    data, pull, bend = problem.terms(theta, False)
    if (
        start is None and float((problem.tilt**2 / problem.ridge).sum()) > 2 * data
    ):  # the noise says more than the data
        return run_newton(problem, problem.centre - problem.tilt / problem.ridge, negligible)
    passes = 1
    while True:
        gradient = problem.gradient(theta, pull)
        step = np.linalg.solve(bend + np.diag(problem.ridge), gradient)
        decrease = float(gradient @ step)
        if decrease <= negligible * abs(problem.value(theta, data)) or passes >= PASSES:
            return np.asarray(theta - step, dtype=np.float64)
        search = _LineSearch(decrease)
        while True:
            trial = theta - search.length * step
            data, pull, bend = problem.terms(trial, False)
            passes += 1
            if search.accepts(float(problem.gradient(trial, pull) @ step)) or passes >= PASSES:
                break
        theta = trial


@dataclass
class _LineSearch:
    """How far to go along a step: from the slopes of J alone, since the values of J drown in
    rounding near the end.

    J is convex: where the slope has turned the step was too long. Lengths are looked for on a
    logarithmic scale, because a step from where no row bends J can be too long by many powers of
    ten.
    """

    decrease: float  # the slope at the beginning
    length: float = 1.0
    too_short: float = 0.0
    too_long: float = math.inf
    shorter: float = SHORTER

    def accepts(self, slope: float) -> bool:
        """Return whether this length will do, by the slope there (positive where J still falls).

        Else changes it.
        """
        if slope < -TURNED * self.decrease:
            self.too_long = self.length
        elif slope > TURNED * self.decrease and SHORTER * self.length < self.too_long < math.inf:
            self.too_short = self.length
        else:
            return True
        if self.too_short:
            self.length = math.sqrt(self.too_short * self.too_long)
        else:
            self.length /= self.shorter
            self.shorter = min(self.shorter**2, MUCH_SHORTER)
        return False


def _run_exact_newton(problem: Problem, near: _Point, tolerance: float, bits: int) -> Exact | None:
    """Newton's steps with exact gradients, after one more with the gradient that is there: nearly
    always one look is enough then.

    Returns θ once its gradient certifies it, None if none does in time.
    """
    matrix = near.matrix
    point = _subtract_step(to_fractions(near.theta), np.linalg.solve(matrix, near.gradient), bits)
    gradient = problem.exact_gradient(point).astype(np.float64)
    passes = 1
    while problem.distance(gradient) > tolerance:
        step = np.linalg.solve(matrix, gradient)
        search = _LineSearch(float(gradient @ step))
        while True:
            if passes >= EXACT_PASSES:
                return None
            trial = _subtract_step(point, search.length * step, bits)
            gradient = problem.exact_gradient(trial).astype(np.float64)
            passes += 1
            slope = float(gradient @ step)
            if problem.distance(gradient) <= tolerance or search.accepts(slope):
                break
        point = trial
        if abs(slope) > STALE * search.decrease:
            matrix = problem.terms(point.astype(np.float64), False)[2] + np.diag(problem.ridge)
    return point


def _drop_last_bits(theta: Floats, bits: int = KEPT_BITS) -> Floats:
    """Return θ with its last few bits dropped, so that terms are those of this very point and not
    of one beside it.
    """
    unit = math.ldexp(1.0, math.frexp(float(np.abs(theta).max()))[1] - bits)
    return np.asarray(np.rint(theta / unit) * unit, dtype=np.float64)


# --- Steps that always suffice (docs/theory/solver.md, Theorem 2) ---------------------------------


def _run_accelerated(problem: Problem, tolerance: float, bits: int) -> Exact:
    """Nesterov's steps for a 1-strongly convex, R²-smooth function in the norm of Λ, as many as
    always suffice.

    The last θ is within the tolerance by Theorem 2, and needs no certificate.
    """
    R = bound_smoothness_root(problem)
    ridge = to_fractions(problem.ridge)
    point = theta = _round_fractions(
        to_fractions(problem.centre) - to_fractions(problem.tilt) / ridge, bits
    )
    for _ in range(count_sufficient_steps(problem, tolerance)):
        new = _round_fractions(point - problem.exact_gradient(point) / (R * R * ridge), bits)
        point = _round_fractions(new + Fraction(R - 1, R + 1) * (new - theta), bits)
        theta = new
    return theta


def bound_smoothness_root(problem: Problem) -> int:
    """Return a whole number R with ∇²J ≤ R²·Λ."""
    return math.isqrt(math.ceil(1 + problem.smoothness)) + 1


def count_sufficient_steps(problem: Problem, tolerance: float) -> int:
    """Return T with √2·(pull + tolerance)·(1 − 1/R)^(T/2) ≤ tolerance/4, enough for every data
    set.
    """
    return math.ceil(
        2 * bound_smoothness_root(problem) * math.log(6 * (problem.pull / tolerance + 1))
    )


def _choose_bits(problem: Problem, tolerance: float) -> int:
    """Return so many bits after the point that rounding θ to them moves R²·θ by at most a 32nd of
    the tolerance.
    """
    unit = tolerance / (
        16 * bound_smoothness_root(problem) ** 2 * math.sqrt(float(problem.ridge.sum()))
    )
    return max(1 - math.frexp(unit)[1], 0)


def _subtract_step(theta: Exact, step: NDArray[Any], bits: int) -> Exact:
    """Return θ − step as whole multiples of 2^−bits."""
    return _round_fractions(theta - to_fractions(step), bits)


def _round_fractions(theta: Exact, bits: int) -> Exact:
    return np.array([Fraction(round(t * 2**bits), 2**bits) for t in theta], dtype=object)
