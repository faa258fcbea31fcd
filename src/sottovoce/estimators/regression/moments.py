# SPDX-License-Identifier: Apache-2.0
"""Regression from noisy sums of products, exact integers end to end (docs/theory/moments.md).

Released once, with discrete noise: Σ w·ẑẑᵀ for ẑ = (1, 2z, y) in [−1, 1]^(m+1), m = p + 1. Every λ, every
sub-model and standard errors are then free. With A_l the whole-number weight of person l:

    pure ε   Σ_{j<k}|M_jk| + ½Σ_j|M_jj| ≤ (m+1)²/2, so discrete Laplace of scale b on products and 2b on squares
    zCDP ρ   Σ_{j<k}M_jk² + ((m+3)/2)·Σ_j M_jj² ≤ (m+1)², so discrete Gaussian, squares with 2/(m+3) of the variance
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.bounds import Interval
from sottovoce.budgets import Budgets, Kinds
from sottovoce.engine import Rows
from sottovoce.errors import InvalidParameter
from sottovoce.estimators.regression.staged import NoGrid
from sottovoce.estimators.regression.sums import UNIT, exact_products, proportional_weights
from sottovoce.guarantee import Guarantee
from sottovoce.noise import gaussian, laplace
from sottovoce.plan import Plan, Theorem
from sottovoce.recoding import Recoding

if TYPE_CHECKING:
    from sottovoce.estimators.ridge import Ridge

Floats = NDArray[np.float64]

#: The sums are shifted until the noise has about this scale, far from int64's end.
SCALE_BITS = 40

PURE = Theorem(
    "Noisy sums of products: each person l loses at most A_l·(m+1)²·2^26/(2b) (pure ε, replace)",
    "docs/theory/moments.md",
)
ZCDP = Theorem(
    "Noisy sums of products: each person l loses at most (A_l·(m+1)·2^26)²/(2σ²) (ρ of zCDP, replace)",
    "docs/theory/moments.md",
)


def plan_for(ridge: Ridge, budgets: Budgets, recoding: Recoding, label: Interval) -> Plan:
    """The plan of the statistics method."""
    m = recoding.width + 1
    kinds = budgets.kinds
    weights = proportional_weights(_loud(kinds) if ridge.rho else kinds)
    heard = weights.person > 0
    granted = units.epsilon(kinds.epsilon[heard])
    price = np.sqrt(2 * granted) if ridge.rho else granted
    # What rounding down by the shift adds to the sensitivity, squares counted at their own noise.
    entries = math.sqrt(m * (m + 2)) if ridge.rho else float(_count(m))
    constant = (m + 1) * UNIT**2 * (1 if ridge.rho else (m + 1) / 2)
    exact = float((weights.person[heard] / price).max()) * constant
    shift = max(math.ceil(math.log2(exact)) - SCALE_BITS, 0)
    rounding = entries if shift else 0.0
    scale = float(math.ceil((exact / 2.0**shift + rounding / float(price.min())) * (1 + 2.0**-45)))
    moved = np.where(heard, weights.person * (constant / 2.0**shift) + rounding, 0.0) / scale
    spent = units.within(units.charge(moved**2 / 2 if ridge.rho else moved), kinds.epsilon)
    entry = scale * 2.0**shift / weights.total / UNIT**2 * (1.0 if ridge.rho else math.sqrt(2))
    guarantee = Guarantee.of(budgets, spent)
    if ridge.rho:
        guarantee = Guarantee(spent, kinds.people, budgets.unit, budgets.codes, budgets.people, currency="zCDP rho")
    return Plan(
        question="ridge",
        parameters={
            "method": ridge.method,
            "alpha": ridge.alpha,
            "rho": ridge.rho,
            "label": list(label),
            "features": recoding.to_dict(),
        },
        budgets=budgets,
        weights=weights,
        guarantee=guarantee,
        noise={
            "distribution": "discrete Gaussian" if ridge.rho else "discrete Laplace",
            "integer_scale": scale,
            "shift": shift,
            "entry_standard_deviation": entry,
        },
        grid=NoGrid(),
        theorem=ZCDP if ridge.rho else PURE,
        expected_error=(label[1] - label[0]) / 2 * min(math.sqrt(m) * entry / ridge.alpha, 1.0),
        error_is="what noise adds to a prediction at the chosen alpha, at most; a planning number",
    )


def answer(ridge: Ridge, plan: Plan, rows: Rows) -> dict[str, Any]:
    """Reads the rows once and returns theta with the noisy statistics it came from."""
    sums = exact_products(rows, plan.weights)
    shift, d = plan.noise["shift"], rows.features.width + 2
    noisy = np.zeros((d, d))
    unit = 2.0**shift / plan.weights.total / UNIT**2
    pairs = [(j, k) for j in range(d) for k in range(j, d) if (j, k) != (0, 0)]
    for (j, k), z in zip(pairs, _noise(plan, pairs), strict=True):
        noisy[j, k] = noisy[k, j] = ((int(sums[j, k]) >> shift) + z + (0.5 if shift else 0.0)) * unit
    noisy[0, 0] = 1.0
    theta, errors = solved(noisy, ridge.alpha, plan.noise, plan.weights.concentration)
    return {"theta": theta, "statistics": noisy.tolist(), "standard_errors": errors.tolist()}


def _noise(plan: Plan, pairs: list[tuple[int, int]]) -> list[int]:
    """Returns one draw for each entry: squares have their own scale."""
    scale, d = plan.noise["integer_scale"], max(k for _, k in pairs) + 1
    squares, products = sum(j == k for j, k in pairs), sum(j != k for j, k in pairs)
    if plan.parameters["rho"]:
        own = math.ceil(scale * math.sqrt(2 / (d + 2)))  # m + 3 = d + 2
        draws = iter(gaussian.draw(scale, products)), iter(gaussian.draw(float(own), squares))
    else:
        draws = iter(laplace.draw(scale, products)), iter(laplace.draw(2 * scale, squares))
    return [next(draws[int(j == k)]) for j, k in pairs]


def solved(noisy: Floats, alpha: float, noise: dict[str, Any], concentration: float) -> tuple[Floats, Floats]:
    """Returns (θ₀, slopes) for (½, z) and their standard errors, sampling and noise together; free."""
    d = len(noisy) - 1
    G, c = noisy[:d, :d], noisy[:d, d]
    values, vectors = np.linalg.eigh(G)
    repaired = (vectors * np.maximum(values, 0)) @ vectors.T  # no second moment is negative
    inverse = np.linalg.inv(repaired + alpha * np.eye(d))
    theta = inverse @ c
    residual = max(float(noisy[d, d] - 2 * theta @ c + theta @ repaired @ theta), 0.0)
    middle = residual * concentration * repaired + noise_in_equations(theta, noise)
    return 2 * theta, 2 * np.sqrt(np.diag(inverse @ middle @ inverse))


def noise_in_equations(theta: Floats, noise: dict[str, Any]) -> Floats:
    """Returns the covariance that noise gives to c − Gθ: entries of G are in two equations, squares have their own."""
    d = len(theta)
    square = np.full(d, 2 / (d + 3) if noise["distribution"] == "discrete Gaussian" else 4.0)  # m = d
    square[0] = 0.0  # the corner is public
    spread = (1 + theta @ theta) * np.eye(d) + np.outer(theta, theta) + np.diag((square - 2) * theta**2)
    return np.asarray(noise["entry_standard_deviation"] ** 2 * spread, dtype=np.float64)


def refitted(ridge: Ridge, alpha: float | None, columns: list[str] | None) -> Ridge:
    """Returns a copy of the fitted ridge at another λ or on some columns; nobody pays for it."""
    value: dict[str, Any] = ridge.release_.value
    noisy, plan_noise = np.array(value["statistics"]), ridge.release_.noise
    features = ridge._recoding.features
    wanted = {f.name for f in features} if columns is None else set(columns)
    if not wanted <= {f.name for f in features}:
        raise InvalidParameter(
            "A column was not part of the release.", "", "Choose among the columns it was fitted on."
        )
    kept = [0, *(1 + i for i, f in enumerate(f for f in features for _ in range(f.width)) if f.name in wanted)]
    lam = ridge.alpha if alpha is None else alpha
    if not 0 < lam < math.inf:
        raise InvalidParameter("alpha is not positive and finite.", "", "Pass a positive number.")
    chosen = np.ix_([*kept, len(noisy) - 1], [*kept, len(noisy) - 1])
    theta, _ = solved(noisy[chosen], lam, plan_noise, 0.0)
    full = np.zeros(len(noisy) - 1)
    full[kept] = theta
    again = copy.copy(ridge)
    again.alpha = lam
    low, high = ridge.release_.parameters["label"]
    again.intercept_, again.coef_ = ridge._recoding.original(
        (low + high) / 2 + (high - low) / 4 * full[0], (high - low) / 2 * full[1:]
    )
    return again


def _count(m: int) -> int:
    """How many entries are released: (m+1)(m+2)/2 − 1, the corner being public."""
    return (m + 1) * (m + 2) // 2 - 1


def _loud(kinds: Kinds) -> Kinds:
    """Kinds whose "budget" is √ρ: weights for Gaussian noise are proportional to it."""
    return Kinds(np.floor(np.sqrt(kinds.epsilon * float(units.NANO))).astype(np.int64), kinds.rows, kinds.people)
