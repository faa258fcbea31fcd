# SPDX-License-Identifier: Apache-2.0
"""Ridge regression with noise on its solution, as published and with the best constant
(docs/theory/output.md).

θ̄ minimises Σ w_i(y_i − θᵀx_i)² + λ‖θ‖², w ∝ ε; released is θ̄ + Z, density of Z ∝ exp(−η‖z‖₂).

    method           coordinates                         rate η
    "output"         x ∈ [0, 1]^d, intercept column 1    λΣε/(2√d(1 + √d·B))
    "output-tight"   x ∈ [−½, ½]^d, intercept column ½   min_l ε_l/Δ_l

B = min(1/√λ, √d/λ) or a promise; Δ_l = min{(2W_l·R/λ)·G*, 2m}, R = √d/2.

Without an intercept its column is left out, d is one less, bounds lie around zero, and "output" has
x ∈ [−1, 1]^d: both proofs use ‖x‖ ≤ √d (or R) and |y| ≤ 1 alone.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # whose parts are loaded where they are used

from sottovoce import units
from sottovoce.arrays import Floats
from sottovoce.budgets import Budgets
from sottovoce.data.encoding import Recoding
from sottovoce.data.engine import Dataset
from sottovoce.data.regression_kernels import UNIT, make_proportional_weights, sum_products
from sottovoce.errors import InvalidParameter
from sottovoce.estimators.model_intervals import (
    EARLIER,
    UNEQUAL_SPREAD,
    Ends,
    find_added_noise_ends,
)
from sottovoce.estimators.ridge_errors import (
    PublicFacts,
    SquaredErrorParts,
    estimate_ridge_error,
    make_expected_error,
)
from sottovoce.guarantee import Guarantee
from sottovoce.noise import continuous, source
from sottovoce.noise.source import AnswerGrid
from sottovoce.plan import Plan, Theorem
from sottovoce.release import Release
from sottovoce.schema import Interval, is_measurable
from sottovoce.weights import Weights

if TYPE_CHECKING:
    from sottovoce.estimators.ridge_core import RidgeCore


#: Up to here solver_error is a theorem.
MOST_COLUMNS = 1024
#: Nor beyond this condition number, where a factorisation may fail for one table and not for its
#: neighbour.
MOST_CONDITION = 2.0**29
#: What λ is chosen from where none is given.
RIDGES = [2.0**power for power in range(-30, 21)]

THEOREM = Theorem(
    "Ridge with radial noise: each person l loses at most η·Δ_l, Δ_l what they can move the "
    "solution (pure ε, replace)",
    "docs/theory/output.md",
)


def validate(ridge: RidgeCore, label: Interval, width: int) -> None:
    """Refuses more columns than are covered, and an alpha or a bound that is wrong for so many."""
    d = width + ridge.fit_intercept
    if d > MOST_COLUMNS:
        raise InvalidParameter(
            "There are too many columns for this method.",
            "At most 1,023 are covered.",
            "Use fewer.",
            parameter="X",
        )
    smallest = d / MOST_CONDITION
    if ridge.alpha is not None and float(ridge.alpha) < smallest:
        raise InvalidParameter(
            "alpha is too small: the last digits of doubles would decide about the solution.",
            f"With {width} columns it must be at least {smallest:.3g}.",
            "Pass a larger alpha.",
            parameter="alpha",
        )
    if ridge.method == "output":
        _get_coefficient_bound(ridge.coefficient_bound, 1.0, max(d, 1))


def plan_for(ridge: RidgeCore, budgets: Budgets, recoding: Recoding, label: Interval) -> Plan:
    """The plan of an output method; its accuracy bound is plan.accuracy_bound(...)."""
    validate(ridge, label, recoding.width)
    weights = make_proportional_weights(budgets.kinds)
    d = recoding.width + ridge.fit_intercept
    smallest = d / MOST_CONDITION
    facts = PublicFacts.of(recoding, budgets, weights)
    if ridge.alpha is None:
        lam = choose_ridge(ridge, facts, weights, smallest)
    else:
        lam = float(ridge.alpha)
    moved = compute_sensitivities(ridge, weights, d, lam)
    participating = weights.person > 0
    rate = float(
        (units.to_epsilon(budgets.kinds.epsilon[participating]) / moved[participating]).min()
    ) * (1 - 2.0**-40)
    charges = units.check_within_grant(
        units.round_up(np.where(participating, moved * rate, 0.0)), budgets.kinds.epsilon
    )
    spread = math.sqrt(d * (d + 1)) / rate
    half = (label[1] - label[0]) / 2
    return Plan(
        question="ridge",
        parameters={
            "method": ridge.method,
            "alpha": lam,
            "coefficient_bound": ridge.coefficient_bound,
            "label": list(label),
            "features": recoding.to_dict(),
        },
        budgets=budgets,
        weights=weights,
        guarantee=Guarantee.of(budgets, charges, arithmetic="floating"),
        noise={
            "distribution": "radial noise on the solution",
            "rate": rate,
            "root_mean_square": spread,
            "people_concentration": weights.measure_people_concentration(budgets.kinds),
        },
        grid=AnswerGrid.below(
            math.sqrt(d + 1) / rate
        ),  # the deviation of one coordinate of the noise
        theorem=THEOREM,
        error=make_expected_error(
            estimate_error_parts(ridge, facts, lam, rate), facts, budgets, weights, half
        ),
        accuracy=partial(
            compute_accuracy_bound, d=d, lam=lam, rate=rate, concentration=weights.concentration
        ),
    )


def fit_noisy_model(ridge: RidgeCore, plan: Plan, rows: Dataset) -> dict[str, Any]:
    """Solves the ridge problem on exact sums, adds the noise, and rounds to the public grid."""
    sums = sum_products(rows, plan.weights)
    m = rows.features.width + 1
    first = int(not ridge.fit_intercept)  # the constant is left out without an intercept
    d = m - first
    moments = (sums / (plan.weights.total * UNIT**2)).astype(
        np.float64
    )  # mean of ẑẑᵀ, ẑ = (1, 2z, y)
    change = make_coordinates(ridge.method, d, ridge.fit_intercept)
    G = change @ moments[first:m, first:m] @ change.T
    c = change @ moments[first:m, m]
    solution = scipy.linalg.cho_solve(
        scipy.linalg.cho_factor(G + plan.parameters["alpha"] * np.eye(d)), c
    )
    noise = continuous.draw_l2(plan.noise["rate"], d)
    # The sum is exact, and rounded once, to the public grid: everything else that is published
    # follows from that.
    theta = plan.grid.nearest(np.array(source.to_fractions(solution), dtype=object) + noise)
    return {"theta": to_centred(ridge.method, theta, ridge.fit_intercept)}


def find_ends(release: Release, functions: Floats, level: float) -> Ends | str:
    """Returns the ends of the intervals of these functions of θ, of a solution that is shrunk by
    the same λ.

    Pulls of the rows, S, have a covariance of at most Σ W_l²·E r²·G where rows vary alike, E r² is
    at most that of the labels, 1, and g/(g + λ)² ≤ 1/(4λ).
    """
    noise = release.noise
    if "people_concentration" not in noise:
        return EARLIER
    given = release.parameters
    recoding = Recoding.from_dict(given["features"])
    low, high = given["label"]
    half = (high - low) / 2
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    slopes = np.array([value["coefficients"][name] for name in recoding.names])
    constant, encoded = recoding.to_encoded_units(value["intercept"] - (low + high) / 2, slopes)
    theta = np.concatenate([[2 * constant], encoded]) / half
    fit_intercept = bool(given.get("fit_intercept", True))
    if not fit_intercept:
        theta = theta[1:]
        functions = functions[:, 1:]
    change = make_centring(given["method"], len(theta), fit_intercept)
    sampling = UNEQUAL_SPREAD * noise["people_concentration"] / (4 * given["alpha"])
    own = np.linalg.solve(change, theta)
    return find_added_noise_ends(own, functions @ change, level, noise["rate"], sampling)


def compute_accuracy_bound(
    coefficients: float,
    smallest_eigenvalue: float = 0.0,
    label_noise: float = 0.0,
    failure: float = 0.05,
    *,
    d: int,
    lam: float,
    rate: float,
    concentration: float,
) -> float:
    """Returns Theorem 2.5's bound on ‖θ̂ − θ*‖, true except with probability ``failure``, for
    recoded data.

    ‖θ*‖/(1 + λ_min/λ) + (d + √(2d/δ))/η + (σ/λ)·√(2d/δ)·‖w‖: shrinkage, noise, and the labels' own
    noise σ.
    """
    if not 0 < failure < 1:
        raise InvalidParameter(
            "The failure probability is not between 0 and 1.",
            "",
            "Pass a small probability.",
            parameter="failure",
        )
    spread = math.sqrt(2 * d / failure)
    shrinkage = coefficients / (1 + smallest_eigenvalue / lam)
    return shrinkage + (d + spread) / rate + label_noise / lam * spread * math.sqrt(concentration)


def make_coordinates(method: str, d: int, fit_intercept: bool = True) -> Floats:
    """Returns the matrix that takes (1, 2z), or 2z, to the method's own coordinates of a row."""
    if not fit_intercept:
        return make_centring(method, d, fit_intercept) / 2
    change = np.eye(d) / 2  # tight: (½, z)
    if method == "output":  # as published: (1, z + ½)
        change[0, 0] = 1.0
        change[1:, 0] = 0.5
    return change


def to_centred(method: str, theta: Floats, fit_intercept: bool = True) -> Floats:
    """Returns (θ₀, slopes) such that a prediction is θ₀/2 + Σ slope·z; θ₀ = 0 without an
    intercept.
    """
    if not fit_intercept:
        return np.concatenate([[0.0], make_centring(method, len(theta), False) @ theta])
    if method != "output":
        return theta
    return np.asarray(make_centring(method, len(theta)) @ theta, dtype=np.float64)


def make_centring(method: str, d: int, fit_intercept: bool = True) -> Floats:
    """Returns the matrix that takes θ in the method's coordinates to such (θ₀, slopes), or
    slopes.
    """
    change = np.eye(d)
    if not fit_intercept:
        if method == "output":  # 2z, tight: z
            return 2 * change
        return change
    if method == "output":
        change[0, 0] = 2.0
        change[0, 1:] = 1.0
    return change


def compute_sensitivities(ridge: RidgeCore, weights: Weights, d: int, lam: float) -> Floats:
    """Returns, by kind, how far one person's rows can move the solution, in the method's
    coordinates.
    """
    return bound_movement(ridge, weights.person / weights.total, d, lam)


def bound_movement(ridge: RidgeCore, person_weight: Floats, d: int, lam: float) -> Floats:
    """Returns how far people who weigh so much can move the solution, the solver's error
    included.
    """
    if ridge.method == "output":
        bound = _get_coefficient_bound(ridge.coefficient_bound, lam, d)
        moved = person_weight * 2 * math.sqrt(d) * (1 + math.sqrt(d) * bound) / lam
        return moved + bound_solver_error(lam, float(d), bound)
    R = math.sqrt(d) / 2
    if math.sqrt(lam) <= R:
        m = 1 / (2 * math.sqrt(lam))
    else:
        m = R / (R * R + lam)
    best = compute_tight_constant(R * m)
    return np.minimum(
        person_weight * 2 * R * best / lam, np.where(person_weight > 0, 2 * m, 0.0)
    ) + bound_solver_error(lam, R * R, m)


def choose_ridge(ridge: RidgeCore, facts: PublicFacts, weights: Weights, smallest: float) -> float:
    """Returns the λ of a public grid that has the smallest expected error for typical columns and
    slopes.
    """
    ridges = [lam for lam in RIDGES if lam >= smallest]
    loudest = np.array(
        [weights.noise_ratio]
    )  # the weight of somebody at ε = 1 who decides about the noise
    d = facts.slopes + ridge.fit_intercept
    rates = [1 / float(bound_movement(ridge, loudest, d, lam)[0]) for lam in ridges]
    errors = [
        estimate_error_parts(ridge, facts, lam, rate).total
        for lam, rate in zip(ridges, rates, strict=True)
    ]
    return float(ridges[int(np.argmin(errors))])


def estimate_error_parts(
    ridge: RidgeCore, facts: PublicFacts, lam: float, rate: float
) -> SquaredErrorParts:
    """Returns what the solution is expected to miss of least squares; each coordinate's noise has
    variance (d+1)/η².
    """
    if not ridge.fit_intercept:
        # Coordinates are ``size`` times z, so that slopes of z are as many times those of them.
        size = float(make_centring(ridge.method, 1, fit_intercept=False)[0, 0])
        noise = (facts.slopes + 1) / rate**2
        return estimate_ridge_error(facts, lam / size**2, 0.0, 0.0, noise * size**2)
    if ridge.method == "output":
        intercept, moved = (1.0, 0.5)
    else:
        intercept, moved = (0.5, 0.0)
    return estimate_ridge_error(facts, lam, intercept, moved, (facts.slopes + 2) / rate**2)


def compute_tight_constant(k: float) -> float:
    """Returns G* = max_s cos s·(1 + k·sin s), in the form that does not cancel."""
    u = 2 * k / (1 + math.sqrt(1 + 8 * k * k))
    return math.sqrt(1 - u * u) * (1 + k * u)


def bound_solver_error(lam: float, size: float, norm: float) -> float:
    """Returns a bound on twice the distance of the computed solution from the true one, for every
    data set.

    Cholesky's method on a d×d matrix whose eigenvalues lie in [λ, λ + size] has a relative error
    below (3d² + d)·2⁻⁵³ times the condition number (Higham 2002, Theorem 10.4), and d ≤ 1024.
    """
    return 2 * 2.0**-30 * (1 + size / lam) * norm


def _get_coefficient_bound(bound: float | None, lam: float, d: int) -> float:
    if bound is None:
        return min(1 / math.sqrt(lam), math.sqrt(d) / lam)
    if not is_measurable(bound):
        raise InvalidParameter(
            "coefficient_bound is not a positive number that doubles can calculate with.",
            "",
            "Promise a public bound, or nothing.",
            parameter="coefficient_bound",
        )
    return float(bound)
