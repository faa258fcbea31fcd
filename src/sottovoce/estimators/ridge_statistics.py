# SPDX-License-Identifier: Apache-2.0
"""Regression from noisy sums of products, exact integers end to end (docs/theory/moments.md).

Released once, with discrete noise: Σ w·ẑẑᵀ for ẑ = (1, 2z, y) in [−1, 1]^(m+1), m = p + 1. Every λ,
every sub-model and standard errors are then free. With A_l the whole-number weight of person l:

    pure ε   Σ_{j<k}|M_jk| + ½Σ_j|M_jj| ≤ (m+1)²/2, so discrete Laplace of scale b on products and
             2b on squares
    zCDP ρ   Σ_{j<k}M_jk² + ((m+3)/2)·Σ_j M_jj² ≤ (m+1)², so discrete Gaussian, squares with 2/(m+3)
             of the variance
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce import units
from sottovoce.arrays import Floats
from sottovoce.budgets import BudgetGroups, Budgets
from sottovoce.data.encoding import Recoding
from sottovoce.data.engine import Dataset
from sottovoce.data.regression_kernels import UNIT, make_proportional_weights, sum_products
from sottovoce.errors import InvalidParameter
from sottovoce.estimators.mean import estimate_clipped_noise
from sottovoce.estimators.model_intervals import EARLIER, Ends, NoisyMoments, find_moment_ends
from sottovoce.estimators.ridge_errors import (
    OFFSET,
    PublicFacts,
    SquaredErrorParts,
    make_expected_error,
)
from sottovoce.estimators.ridge_objective import NoGrid
from sottovoce.guarantee import Guarantee
from sottovoce.noise import source
from sottovoce.plan import Plan, Theorem
from sottovoce.release import Release
from sottovoce.schema import Interval, is_measurable

if TYPE_CHECKING:
    from sottovoce.estimators.ridge import Ridge
    from sottovoce.estimators.ridge_core import RidgeCore


#: The sums are shifted until the noise has about this scale, far from int64's end.
SCALE_BITS = 40
#: Features are read once, so they need not be recoded before.
READS_ONCE = True

#: How many deviations above its mean noise alone may explain before slopes are taken for more than
#: noise.
Z_SCORE = 8.0
NOISE_TOO_LARGE = "Noise is too large for slopes: the answer will be a constant."
NOISE_TOO_LARGE_FOR_ANY = "Noise is too large for slopes: every prediction will be 0."

PURE = Theorem(
    "Noisy sums of products: each person l loses at most A_l·(m+1)²·2^26/(2b) (pure ε, replace)",
    "docs/theory/moments.md",
)
ZCDP = Theorem(
    "Noisy sums of products: each person l loses at most (A_l·(m+1)·2^26)²/(2σ²) (ρ of zCDP, "
    "replace)",
    "docs/theory/moments.md",
)


def validate(ridge: RidgeCore, label: Interval, width: int) -> None:
    """Refuses nothing: every method's parameters are checked by then, and this one has no more."""


def plan_for(ridge: RidgeCore, budgets: Budgets, recoding: Recoding, label: Interval) -> Plan:
    """The plan of the statistics method."""
    m = recoding.width + 1
    kinds = budgets.kinds
    weights = make_proportional_weights(_take_budget_roots(kinds) if ridge.rho else kinds)
    participating = weights.person > 0
    granted = units.to_epsilon(kinds.epsilon[participating])
    if ridge.rho:
        price = np.sqrt(2 * granted)
    else:
        price = granted
    # What rounding down by the shift adds to the sensitivity, squares counted at their own noise.
    if ridge.rho:
        entries = math.sqrt(m * (m + 2))
    else:
        entries = float(_count_entries(m))
    constant = (m + 1) * UNIT**2 * (1 if ridge.rho else (m + 1) / 2)
    exact = float((weights.person[participating] / price).max()) * constant
    shift = max(math.ceil(math.log2(exact)) - SCALE_BITS, 0)
    if shift:
        rounding = entries
    else:
        rounding = 0.0
    scale = float(math.ceil((exact / 2.0**shift + rounding / float(price.min())) * (1 + 2.0**-45)))
    moved = (
        np.where(participating, weights.person * (constant / 2.0**shift) + rounding, 0.0) / scale
    )
    spent = units.check_within_grant(
        units.round_up(moved**2 / 2 if ridge.rho else moved), kinds.epsilon
    )
    entry = scale * 2.0**shift / weights.total / UNIT**2 * (1.0 if ridge.rho else math.sqrt(2))
    guarantee = Guarantee.of(budgets, spent)
    if ridge.rho:
        guarantee = Guarantee(
            spent, kinds.people, budgets.unit, budgets.codes, budgets.people, currency="zCDP rho"
        )
    facts = PublicFacts.of(recoding, budgets, weights)
    if ridge.alpha is None:
        alpha = choose_ridge(entry, m)
    else:
        alpha = float(ridge.alpha)
    if ridge.alpha is None or not ridge.fit_intercept:
        held = 0.0
    else:
        held = alpha
    noise = {
        "distribution": "discrete Gaussian" if ridge.rho else "discrete Laplace",
        "integer_scale": scale,
        "shift": shift,
        "entry_standard_deviation": entry,
        "people_concentration": weights.measure_people_concentration(kinds),
    }
    return Plan(
        question="ridge",
        parameters={
            "method": ridge.method,
            "alpha": alpha,
            "intercept_alpha": held,
            "rho": ridge.rho,
            "label": list(label),
            "features": recoding.to_dict(),
        },
        budgets=budgets,
        weights=weights,
        guarantee=guarantee,
        noise=noise,
        grid=NoGrid(),
        theorem=ZCDP if ridge.rho else PURE,
        error=make_expected_error(
            estimate_error_parts(facts, alpha, held, noise, ridge.fit_intercept),
            facts,
            budgets,
            weights,
            (label[1] - label[0]) / 2,
            _advise_on_noise(entry, m, ridge.fit_intercept),
        ),
    )


def fit_noisy_model(ridge: RidgeCore, plan: Plan, rows: Dataset) -> dict[str, Any]:
    """Reads the rows once and returns theta with the noisy statistics it came from."""
    sums = sum_products(rows, plan.weights)
    shift = plan.noise["shift"]
    d = rows.features.width + 2
    noisy = np.zeros((d, d))
    unit = 2.0**shift / plan.weights.total / UNIT**2
    pairs = [(j, k) for j in range(d) for k in range(j, d) if (j, k) != (0, 0)]
    for (j, k), z in zip(pairs, _draw_noise(plan, pairs), strict=True):
        noisy[j, k] = noisy[k, j] = (
            (int(sums[j, k]) >> shift) + z + (0.5 if shift else 0.0)
        ) * unit
    noisy[0, 0] = 1.0
    given = plan.parameters
    if ridge.fit_intercept:
        used = noisy
    else:
        used = drop_intercept(noisy)
    moments = Moments.of(used, given["alpha"], given["intercept_alpha"], plan.noise)
    theta, kept = moments.fit
    errors = 2 * moments.standard_errors(plan.weights.concentration)
    errors[0] *= ridge.fit_intercept
    return {
        "theta": 2 * theta,  # for (½, z)
        "statistics": noisy.tolist(),
        "standard_errors": errors.tolist(),
        "slopes_kept": kept,
    }


def find_ends(release: Release, functions: Floats, level: float) -> Ends | str:
    """Returns the ends of the intervals of these functions of θ; or why there are none."""
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    noise = release.noise
    if "people_concentration" not in noise:
        return EARLIER
    noisy = np.array(value["statistics"])
    if not has_intercept(release):
        noisy = drop_intercept(noisy)
        functions = functions * np.concatenate([[0.0], np.ones(functions.shape[1] - 1)])
    d = len(noisy) - 1
    normal = noise["distribution"] == "discrete Gaussian"
    entry = noise["entry_standard_deviation"]
    moments = NoisyMoments(
        gram=noisy[:d, :d],
        cross=noisy[:d, d],
        square=float(noisy[d, d]),
        scale=entry if normal else entry / math.sqrt(2),
        square_factor=math.sqrt(_get_square_variance(d, noise)),
        normal=normal,
        concentration=noise["people_concentration"],
    )
    return find_moment_ends(moments, 2 * functions, level)


def has_intercept(release: Release) -> bool:
    """Whether a released regression has an intercept; those of earlier versions do not say."""
    return bool(release.parameters.get("fit_intercept", True))


def drop_intercept(noisy: Floats) -> Floats:
    """Returns the statistics of a model without an intercept: products with the constant column
    count as 0, so that its coefficient is 0 and every other is as if there were none.
    """
    without = noisy.copy()
    without[0, 1:] = 0.0
    without[1:, 0] = 0.0
    return without


def _advise_on_noise(entry: float, d: int, fit_intercept: bool) -> str:
    if not is_noise_too_large(entry, d):
        return ""
    if fit_intercept:
        return NOISE_TOO_LARGE
    return NOISE_TOO_LARGE_FOR_ANY


def _draw_noise(plan: Plan, pairs: list[tuple[int, int]]) -> list[int]:
    """Returns one draw for each entry: squares have their own scale."""
    scale = plan.noise["integer_scale"]
    d = max(k for _, k in pairs) + 1
    squares = sum(j == k for j, k in pairs)
    products = sum(j != k for j, k in pairs)
    if plan.parameters["rho"]:
        own = math.ceil(scale * math.sqrt(2 / (d + 2)))  # m + 3 = d + 2
        draws = (
            iter(source.draw_gaussian(scale, products)),
            iter(source.draw_gaussian(float(own), squares)),
        )
    else:
        draws = (
            iter(source.draw_laplace(scale, products)),
            iter(source.draw_laplace(2 * scale, squares)),
        )
    return [next(draws[int(j == k)]) for j, k in pairs]


def choose_ridge(entry: float, d: int) -> float:
    """Returns α = 2·(standard deviation of an entry's noise)·√d, the size that a matrix of noise
    alone has.
    """
    return 2 * entry * math.sqrt(d)


def is_noise_too_large(entry: float, d: int) -> bool:
    """Whether noise alone is as large as the variance of columns that fill their bounds evenly, a
    third.
    """
    return choose_ridge(entry, d) >= 1 / 3


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments with noise, around the noisy mean of the features; ``held`` is λ on the
    intercept.
    """

    noisy: Floats  # of (1, 2z, y), each clipped to [−1, 1], where the true ones are
    alpha: float
    held: float
    noise: dict[str, Any]

    @classmethod
    def of(cls, noisy: Floats, alpha: float, held: float, noise: dict[str, Any]) -> Moments:
        """From released statistics."""
        return cls(np.clip(noisy, -1.0, 1.0), alpha, held, noise)

    @property
    def d(self) -> int:
        """How many coefficients there are, the intercept included."""
        return len(self.noisy) - 1

    @property
    def entry(self) -> float:
        """The standard deviation of the noise on a product."""
        return float(self.noise["entry_standard_deviation"])

    @property
    def means(self) -> Floats:
        """Of the features."""
        return self.noisy[0, 1 : self.d]

    @property
    def label(self) -> float:
        """The mean of the labels."""
        return float(self.noisy[0, self.d])

    @cached_property
    def covariance(self) -> tuple[Floats, Floats]:
        """Eigenvalues, none below zero, and eigenvectors of the covariance of the features."""
        inner = self.noisy[1 : self.d, 1 : self.d] - np.outer(self.means, self.means) / (
            1 + self.held
        )
        values, vectors = np.linalg.eigh(inner)
        return np.maximum(values, 0.0), vectors

    @cached_property
    def inverse(self) -> Floats:
        """(S + λ)⁻¹, where no direction counts for less than noise alone would make it seem."""
        values, vectors = self.covariance
        floor = choose_ridge(self.entry, self.d)
        return np.asarray((vectors / np.maximum(values + self.alpha, floor)) @ vectors.T)

    @cached_property
    def fit(self) -> tuple[Floats, float]:
        """Intercept and slopes, and the share of the slopes that was kept."""
        m = self.means
        a = 1 + self.held
        c = self.noisy[1 : self.d, self.d] - m * self.label / a
        slopes = self.inverse @ c
        null = self.entry**2 * (
            (1 + self.label**2) * np.eye(self.d - 1) + np.outer(m, m)
        )  # of noise in c, no slopes
        if is_noise_too_large(self.entry, self.d):
            kept = 0.0
        else:
            kept = compute_shrinkage(float(c @ slopes), self.inverse @ null)
        return np.concatenate([[(self.label - kept * float(m @ slopes)) / a], kept * slopes]), kept

    def standard_errors(self, concentration: float) -> Floats:
        """Returns the root mean square error of each coefficient: sampling, noise, and what is held
        back.

        What is held back is that of slopes which together explain all of the labels' variance, each
        its share.
        """
        (theta, kept) = self.fit
        (values, vectors) = self.covariance
        d = self.d
        a = 1 + self.held
        m = self.means
        S = (vectors * values) @ vectors.T
        label = float(self.noisy[d, d])
        to_slopes = (
            kept * self.inverse @ np.column_stack([-m / a, np.eye(d - 1)])
        )  # from errors in the equations
        to_theta = np.vstack([(np.eye(d)[0] - m @ to_slopes) / a, to_slopes])
        G = np.block([[np.ones((1, 1)), m[None, :]], [m[:, None], S + np.outer(m, m)]])
        left = max(label - 2 * float(theta @ self.noisy[:d, d]) + float(theta @ G @ theta), 0.0)
        spread = (
            to_theta
            @ (left * concentration * G + compute_noise_covariance(theta, self.noise))
            @ to_theta.T
        )
        variance = max(label - self.label**2, 0.0) + 2 * self.entry * math.sqrt(
            _get_square_variance(d, self.noise)
        )
        back = (kept * self.inverse @ S - np.eye(d - 1)) * math.sqrt(
            variance / max(float(values.sum()), self.entry)
        )
        squares = np.diag(spread) + np.sum(np.vstack([-m @ back / a, back]) ** 2, axis=1)
        squares[0] += (self.held / a * self.label) ** 2
        return np.asarray(np.sqrt(squares), dtype=np.float64)


def compute_shrinkage(gain: float, null: Floats) -> float:
    """Returns what is kept of slopes that explain ``gain``, where noise alone would explain the
    trace of ``null``.

    Noise alone hardly ever explains more than its mean and Z_SCORE deviations (of Laplace noise,
    whose square has variance 5σ⁴); slopes that explain many times as much are kept almost whole.
    """
    usual = float(np.trace(null)) + Z_SCORE * math.sqrt(5 * float(np.sum(null * null.T)))
    if gain > 0:
        return max(0.0, 1 - usual / gain)
    return 0.0


def estimate_error_parts(
    facts: PublicFacts,
    alpha: float,
    held: float,
    noise: dict[str, Any],
    fit_intercept: bool = True,
) -> SquaredErrorParts:
    """Returns what the fit is expected to miss of least squares: noise to first order, and what is
    held back.
    """
    p = facts.slopes
    entry = noise["entry_standard_deviation"]
    d = facts.slopes + 1
    constant = SquaredErrorParts(
        estimate_clipped_noise(entry / math.sqrt(2), 2.0) ** 2, facts.residual * facts.squares, 0.0
    )
    if held:
        constant = SquaredErrorParts(
            constant.noise / (1 + held) ** 2, constant.sampling, OFFSET * (held / (1 + held)) ** 2
        )
    if not fit_intercept:
        constant = SquaredErrorParts(0.0, 0.0, 0.0)
    kinds = []
    for C, _, q in facts.columns:
        # for columns 2z
        variance = 4 * C
        size = q / 4
        stiff = max(variance + alpha, choose_ridge(entry, d))
        null = entry**2 * (1 + OFFSET) / stiff  # of one slope
        gain = p * (variance**2 * size / stiff + null)
        usual = p * null + Z_SCORE * math.sqrt(5 * p) * null
        if is_noise_too_large(entry, d) or not p:
            kept = 0.0
        else:
            kept = max(0.0, 1 - usual / gain)
        drawn = entry**2 * (1 + OFFSET + p * size) / stiff**2
        kinds.append(
            SquaredErrorParts(
                kept**2 * p * variance * drawn,
                kept**2 * p * facts.residual * facts.squares * (variance / stiff) ** 2,
                p * variance * size * (1 - kept * variance / stiff) ** 2,
            )
        )
    slopes = SquaredErrorParts.mean(kinds)
    return SquaredErrorParts(
        constant.noise + slopes.noise,
        constant.sampling + slopes.sampling,
        constant.shrinkage + slopes.shrinkage,
    )


def _get_square_variance(d: int, noise: dict[str, Any]) -> float:
    """Returns the variance of the noise on a square, in units of that on a product."""
    # m = d
    if noise["distribution"] == "discrete Gaussian":
        return 2 / (d + 3)
    return 4.0


def compute_noise_covariance(theta: Floats, noise: dict[str, Any]) -> Floats:
    """Returns the covariance that noise gives to c − Gθ: entries of G are in two equations, squares
    have their own.
    """
    d = len(theta)
    square = np.full(d, _get_square_variance(d, noise))
    square[0] = 0.0  # the corner is public
    spread = (
        (1 + theta @ theta) * np.eye(d) + np.outer(theta, theta) + np.diag((square - 2) * theta**2)
    )
    return np.asarray(noise["entry_standard_deviation"] ** 2 * spread, dtype=np.float64)


def refit_statistics(ridge: Ridge, alpha: float | None, columns: list[str] | None) -> Ridge:
    """Returns a copy of the fitted ridge at another λ or on some columns; nobody pays for it."""
    value: dict[str, Any] = ridge.release_.value  # type: ignore[assignment]
    noisy = np.array(value["statistics"])
    plan_noise = ridge.release_.noise
    features = ridge._recoding.features
    if columns is None:
        wanted = {f.name for f in features}
    else:
        wanted = set(columns)
    if not wanted <= {f.name for f in features}:
        raise InvalidParameter(
            "A column was not part of the release.",
            "",
            "Choose among the columns it was fitted on.",
            parameter="columns",
        )
    kept = [
        0,
        *(
            1 + i
            for i, f in enumerate(f for f in features for _ in range(f.width))
            if f.name in wanted
        ),
    ]
    given = ridge.release_.parameters
    if alpha is None:
        lam = given["alpha"]
    else:
        lam = alpha
    if not is_measurable(lam):
        raise InvalidParameter(
            "alpha is not positive and finite.", "", "Pass a positive number.", parameter="alpha"
        )
    lam = float(lam)
    if not has_intercept(ridge.release_):
        noisy = drop_intercept(noisy)
    chosen = np.ix_([*kept, len(noisy) - 1], [*kept, len(noisy) - 1])
    # releases of earlier versions do not say
    if alpha is None:
        held = given.get("intercept_alpha", lam)
    else:
        held = lam
    full = np.zeros(len(noisy) - 1)
    full[kept] = 2 * Moments.of(noisy[chosen], lam, held, plan_noise).fit[0]
    again = copy.copy(ridge)
    again.alpha = lam
    low, high = ridge.release_.parameters["label"]
    again.intercept_, again.coef_ = ridge._recoding.to_original_units(
        (low + high) / 2 + (high - low) / 4 * full[0], (high - low) / 2 * full[1:]
    )
    return again


def _count_entries(m: int) -> int:
    """How many entries are released: (m+1)(m+2)/2 − 1, the corner being public."""
    return (m + 1) * (m + 2) // 2 - 1


def _take_budget_roots(kinds: BudgetGroups) -> BudgetGroups:
    """Kinds whose "budget" is √ρ: weights for Gaussian noise are proportional to it."""
    return BudgetGroups(
        np.floor(np.sqrt(kinds.epsilon * float(units.UNITS_PER_EPSILON))).astype(np.int64),
        kinds.rows,
        kinds.people,
    )
