# SPDX-License-Identifier: Apache-2.0
"""Regression from adaptive noisy sums with Gaussian noise: personal AdaSSP (docs/theory/adassp.md).

Four sums of whole numbers are released in turn, each computed in view of those before it:

    stage     what is summed, by person l with the whole-number weight A_l    distance at most
    margins   values and squares of every column and the label, apart         2√m·A_l·2²⁶/σ
    moments   products of standardised rows that are cut at a length          A_l·2²⁶/σ
    rounds    pulls of residuals that are clipped (twice)                     2·A_l·2²⁶/σ

Distances are in deviations of the noise; ρ_l is half the sum of their squares. m is the number of
columns with the label, and σ that of the stage. What is made of the sums is in adassp_filter.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # whose parts are loaded where they are used

from sottovoce import units
from sottovoce.accounting.renyi import gaussian_rho
from sottovoce.arrays import Array, Floats
from sottovoce.budgets import BudgetGroups, Budgets
from sottovoce.data import regression_kernels
from sottovoce.data.encoding import Recoding
from sottovoce.data.engine import Dataset
from sottovoce.data.regression_kernels import (
    BITS,
    LENGTH,
    MOST_COLUMNS,
    ONE_LIMB,
    MarginRows,
    RowMap,
)
from sottovoce.errors import InvalidParameter
from sottovoce.estimators import adassp_filter
from sottovoce.estimators.adassp_filter import PartialModel, StageNoise
from sottovoce.estimators.erm_mechanism import find_least_scale, replace_budgets
from sottovoce.estimators.model_intervals import UNEQUAL_SPREAD, Ends, widen_variance
from sottovoce.estimators.ridge_errors import (
    PublicFacts,
    SquaredErrorParts,
    make_expected_error,
)
from sottovoce.estimators.ridge_objective import NoGrid, parse_association
from sottovoce.guarantee import Guarantee
from sottovoce.noise import source
from sottovoce.plan import Plan, Theorem
from sottovoce.release import Release
from sottovoce.schema import MEASURE, Interval, is_between
from sottovoce.weights import Weights, solve_row_weights

if TYPE_CHECKING:
    from sottovoce.estimators.ridge_core import RidgeCore

#: The parts of everybody's ρ that buy margins, moments and each round. Chosen on made tables.
SHARES = (0.2, 0.4, 0.15, 0.25)
#: Sums are shifted until the noise has about this scale, far from int64's end.
SCALE_BITS = 40
#: Eigenvalues of the correlations of usual columns, from the largest to the smallest.
LARGEST_EIGENVALUE = 2.5
SMALLEST_EIGENVALUE = 0.15

THEOREM = Theorem(
    "Adaptive noisy sums: each person l loses at most ρ = ½·Σ_s (k_s·A_l·2^26/σ_s)², k = 2√m for "
    "margins, 1 for moments, 2 for a round (zCDP, replace)",
    "docs/theory/adassp.md",
)
THEOREM_AT_DELTA = replace(
    THEOREM, statement=THEOREM.statement + ", read at δ on the curve of Gaussian noise"
)
OF = (
    "the coefficients of least squares on the whole population, with rows far from the centre "
    "weighted down and residuals beyond a threshold clipped as the release says"
)
FROM_ROUNDS = "the released variance of residuals, times 1.8 for rows of unequal spread"


def validate(ridge: RidgeCore, label: Interval, width: int) -> None:
    """Refuses budgets that are neither ρ nor ε at a δ, and what this method cannot fit; a descent
    fits no more.
    """
    name = "descent" if ridge.method == "descent" else "adassp"
    if ridge.rho == (ridge.delta is not None):
        raise InvalidParameter(
            "The method 'adassp' has Gaussian noise, and budgets are said to be neither ρ nor ε at "
            "a δ, or both.",
            "Exactly one of delta= and rho=True is needed.",
            "Pass delta=1e-6, say, to count budgets in ε at that δ, or rho=True to count them in "
            "ρ of zCDP.",
            parameter="delta",
        )
    if not ridge.fit_intercept:
        raise InvalidParameter(
            f"The method {name!r} has no model without an intercept.",
            "An intercept is part of its model.",
            "Choose method='objective' without delta, 'statistics' with rho=True, or leave the "
            "intercept in.",
            parameter="fit_intercept",
        )
    if ridge.loss in ("robust", "huber"):
        raise InvalidParameter(
            f"The method {name!r} estimates the mean of the labels, as least squares does.",
            "A robust loss is for the objective method.",
            "Choose method='objective', or loss='squared'.",
            parameter="loss",
        )
    if width >= MOST_COLUMNS:
        raise InvalidParameter(
            "There are too many columns.",
            f"Fewer than {MOST_COLUMNS:,} are covered by the proof.",
            "Use fewer.",
            parameter="bounds",
        )
    parse_association(ridge.association, (label[1] - label[0]) / 2)


def check_delta(delta: Any) -> None:
    """Refuses what is no δ."""
    if delta is not None and not is_between(delta, 1 / MEASURE, 1):
        raise InvalidParameter(
            "δ is not between 0 and 1.",
            "It is the probability that the promise leaves out, the same for all.",
            "Pass delta=, far below one over the number of people, or nothing for a pure promise.",
            parameter="delta",
        )


@dataclass(frozen=True)
class StageAccount:
    """What a stage may lose: ``reach`` times A_l·2²⁶, and ``rounding`` where sums are shifted."""

    name: str
    share: float
    reach: float
    rounding: float
    entries: int


def list_stages(slopes: int) -> list[StageAccount]:
    """Returns the stages of a model with so many slopes."""
    m = slopes + 1
    d = slopes + 2
    first, second, *rounds = SHARES
    return [
        StageAccount("margins", first, 2 * math.sqrt(m), math.sqrt(3 * m), 2 * m),
        StageAccount("moments", second, 1.0, d / math.sqrt(2), d * (d + 1) // 2),
        *(
            StageAccount(f"round {number}", share, 2.0, math.sqrt(m), m)
            for number, share in enumerate(rounds, start=1)
        ),
    ]


def plan_for(ridge: RidgeCore, budgets: Budgets, recoding: Recoding, label: Interval) -> Plan:
    """The plan of the adaptive sums."""
    validate(ridge, label, recoding.width)
    kinds = budgets.kinds
    p = recoding.width
    half = (label[1] - label[0]) / 2
    granted = convert_grants(ridge, kinds)
    allowed = np.sqrt(2 * units.to_epsilon(granted))
    association = parse_association(ridge.association, half)
    weights = choose_weights(kinds, allowed, p, association)
    stages = list_stages(p)
    least = 0.0
    if ridge.delta is not None:
        coordinates = sum(stage.entries for stage in stages)
        most = float(units.to_epsilon(kinds.epsilon).max())
        # Squares of margins have a scale that is smaller by √2.
        least = math.sqrt(2) * find_least_scale(coordinates, most, ridge.delta)
    scales = [scale_noise(stage, weights, allowed, least) for stage in stages]
    spent = units.check_within_grant(
        units.round_up(add_losses(stages, scales, weights.person)), granted
    )
    guarantee = replace(
        Guarantee.of(budgets, spent),
        currency="zCDP rho",
        delta=ridge.delta,
        gaussian=ridge.delta is not None,
    )
    noise = {
        "distribution": "discrete Gaussian",
        "stages": [
            {
                "name": stage.name,
                "integer_scale": scale,
                "shift": shift,
                "deviation": scale * 2.0**shift / weights.total / LENGTH,
            }
            for stage, (scale, shift) in zip(stages, scales, strict=True)
        ],
        "people_concentration": weights.measure_people_concentration(kinds),
    }
    facts = PublicFacts.of(recoding, budgets, weights)
    return Plan(
        question="ridge",
        parameters={
            "method": "adassp",
            "rho": ridge.rho,
            **describe_delta(ridge),
            "label": list(label),
            "features": recoding.to_dict(),
        },
        budgets=budgets,
        weights=weights,
        guarantee=guarantee,
        noise=noise,
        grid=NoGrid(),
        theorem=THEOREM if ridge.rho else THEOREM_AT_DELTA,
        error=make_expected_error(
            estimate_error_parts(facts, read_noise(noise)), facts, budgets, weights, half
        ),
    )


def describe_delta(ridge: RidgeCore) -> dict[str, float]:
    """δ as public JSON, where there is one."""
    if ridge.delta is None:
        return {}
    return {"delta": float(ridge.delta)}


def convert_grants(ridge: RidgeCore, kinds: BudgetGroups) -> units.Units:
    """Returns what each kind grants in units of ρ: the most that Gaussian noise may lose within
    (ε, δ).
    """
    if ridge.delta is None:
        return kinds.epsilon
    values, where = np.unique(kinds.epsilon, return_inverse=True)
    return gaussian_rho(units.to_epsilon(values), float(ridge.delta))[where]


def choose_weights(
    kinds: BudgetGroups, allowed: Floats, slopes: int, association: float
) -> Weights:
    """Returns whole-number weights of rows, in one or two limbs of 13 bits.

    The last round decides: its noise moves a prediction by 16(1 + g²)d²/share residual variances
    times (max W_l/√(2ρ_l))², sampling by d times Σc², and groups that lie apart by their bias.
    """
    participating = replace_budgets(kinds, allowed)
    loudest = float(allowed.max())
    d = slopes + 1
    length = 1 + adassp_filter.RESIDUAL_INTERCEPT_PART**2
    noise = 4 * adassp_filter.RESIDUAL_CLIP**2 * length * d**2 / SHARES[-1]
    residual = PublicFacts(slopes, 1.0, 0.0).residual
    per_row = solve_row_weights(
        participating.epsilon / float(participating.epsilon.max()),
        kinds.rows,
        kinds.people,
        A=d / noise * loudest**2,
        B=association**2 / (noise * residual) * loudest**2,
    )
    bits = BITS
    if per_row[per_row > 0].min() < ONE_LIMB:
        bits = 2 * BITS
    row = np.floor(np.where(allowed > 0, per_row, 0.0) * (2**bits - 1)).astype(np.int64)
    return Weights.from_integers(participating, row)


def scale_noise(
    stage: StageAccount, weights: Weights, allowed: Floats, least: float
) -> tuple[float, int]:
    """Returns σ, a whole number, and the shift, so that the stage costs nobody more than its share
    of ρ.
    """
    takes_part = weights.person > 0
    price = allowed[takes_part] * math.sqrt(stage.share)
    exact = stage.reach * LENGTH * float((weights.person[takes_part] / price).max())
    shift = max(math.ceil(math.log2(exact)) - SCALE_BITS, 0)
    rounding = stage.rounding if shift else 0.0
    needed = exact / 2.0**shift + rounding / float(price.min())
    return float(math.ceil(max(needed, least) * (1 + 2.0**-45))), shift


def add_losses(
    stages: list[StageAccount], scales: list[tuple[float, int]], person: Array
) -> Floats:
    """Returns ρ of every kind: half the sum of squared distances over the stages."""
    total = np.zeros(len(person))
    for stage, (scale, shift) in zip(stages, scales, strict=True):
        rounding = stage.rounding if shift else 0.0
        moved = np.where(person > 0, person * (stage.reach * LENGTH / 2.0**shift) + rounding, 0.0)
        total += (moved / scale) ** 2 / 2
    return total


def read_noise(noise: dict[str, Any]) -> StageNoise:
    """Returns the deviations that a plan or a release tells."""
    margins, moments, *rounds = (stage["deviation"] for stage in noise["stages"])
    return StageNoise(margins, moments, tuple(rounds))


def fit_noisy_model(ridge: RidgeCore, plan: Plan, rows: Dataset) -> dict[str, Any]:
    """Reads the rows once a stage and returns theta with the noisy sums it came from."""

    def observe(place: int, row_map: RowMap) -> Floats:
        return release_stage(plan, rows, place, row_map)

    model, stages = run_stages(read_noise(plan.noise), rows.features.width, observe)
    return {"theta": model.to_shrunken_theta(), "stages": stages}


def run_stages(
    noise: StageNoise, slopes: int, observe: Callable[[int, RowMap], Floats]
) -> tuple[PartialModel, dict[str, Any]]:
    """Returns the model and the noisy sums that ``observe`` gives, by the place of a stage and the
    map of its rows.
    """
    margins = observe(0, MarginRows()) / LENGTH
    means, squares = margins[: slopes + 1], margins[slopes + 1 :]
    standard = adassp_filter.make_standard_rows(means, squares, noise)
    moments = observe(1, standard) * standard.compute_unit(slopes) ** 2
    model = adassp_filter.fit_moments(standard, moments, noise)
    pulls = []
    for place, deviation in enumerate(noise.rounds, start=2):
        residual = model.make_residual_rows()
        pulled = observe(place, residual) * residual.compute_unit(slopes)
        pulls.append(pulled.tolist())
        model = model.update(residual, pulled, deviation)
    stages = {
        "means": means.tolist(),
        "squares": squares.tolist(),
        "moments": moments.tolist(),
        "pulls": pulls,
    }
    return model, stages


def release_stage(plan: Plan, rows: Dataset, place: int, row_map: RowMap) -> Floats:
    """Returns the noisy weighted means of a stage, in steps of its whole numbers."""
    stage = plan.noise["stages"][place]
    scale = stage["integer_scale"]
    if place == 1:
        sums = regression_kernels.sum_row_products(rows, plan.weights.row, row_map)
        noisy = add_symmetric_noise(sums, scale, stage["shift"])
    else:
        sums = regression_kernels.sum_rows(rows, plan.weights.row, row_map)
        scales = [(scale, len(sums))]
        if place == 0:
            scales = [(scale, len(sums) // 2), (scale_margin_squares(scale), len(sums) // 2)]
        noisy = add_noise(sums, scales, stage["shift"])
    return np.asarray(noisy * (2.0 ** stage["shift"] / plan.weights.total), dtype=np.float64)


def scale_margin_squares(scale: float) -> float:
    """Returns the scale of noise on squares of margins: σ/√2, rounded up."""
    return float(math.ceil(scale / math.sqrt(2) * (1 + 2.0**-45)))


def scale_moment_squares(scale: float) -> float:
    """Returns the scale of noise on squares of moments: √2·σ, rounded up."""
    return float(math.ceil(scale * math.sqrt(2) * (1 + 2.0**-45)))


def add_noise(sums: Array, scales: list[tuple[float, int]], shift: int) -> Floats:
    """Returns shifted sums with independent discrete Gaussian noise, so many at each scale."""
    drawn = [z for scale, count in scales for z in source.draw_gaussian(scale, count)]
    middle = 0.5 if shift else 0.0
    return np.array([(int(T) >> shift) + z + middle for T, z in zip(sums, drawn, strict=True)])


def add_symmetric_noise(sums: Array, scale: float, shift: int) -> Floats:
    """Returns a symmetric matrix of shifted sums with noise: σ on products and √2·σ on squares."""
    d = len(sums)
    above = np.triu_indices(d, 1)
    noisy = np.zeros((d, d))
    noisy[above] = add_noise(sums[above], [(scale, len(above[0]))], shift)
    noisy = noisy + noisy.T
    own = scale_moment_squares(scale)
    noisy[np.diag_indices(d)] = add_noise(np.diag(sums), [(own, d)], shift)
    return noisy


def replay_stages(release: Release) -> tuple[list[RowMap], PartialModel]:
    """Returns the maps of rows of all stages, and the model before the last round, from what was
    released.
    """
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    told = value["stages"]
    noise = read_noise(release.noise)
    standard = adassp_filter.make_standard_rows(
        np.array(told["means"]), np.array(told["squares"]), noise
    )
    maps: list[RowMap] = [MarginRows(), standard]
    model = adassp_filter.fit_moments(standard, np.array(told["moments"]), noise)
    before = model
    for pulls, deviation in zip(told["pulls"], noise.rounds, strict=True):
        before = model
        residual = model.make_residual_rows()
        maps.append(residual)
        model = model.update(residual, np.array(pulls), deviation)
    return maps, before


def find_ends(release: Release, functions: Floats, level: float) -> Ends | str:
    """Returns the ends of the intervals of these functions of θ, from the last round.

    Its pulls h are those of θ* − θ around the model θ it began with: h = Ĝ(θ* − θ) + S + e −
    E(θ* − θ), with the noise e of the round, that of the moments E, and sampling S.
    """
    _, before = replay_stages(release)
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    pulls = np.array(value["stages"]["pulls"][-1])
    rows = before.make_residual_rows()
    gram, back = make_full_gram(before, rows.intercept)
    deviation = before.noise.rounds[-1] * rows.length * rows.clip
    inverse = np.linalg.inv(gram)
    moved = inverse @ pulls
    entry = before.product_noise
    d = len(pulls)
    smallest = float(np.abs(np.linalg.eigvalsh(gram)).min())
    second = 1 + (2 * entry * math.sqrt(d) / smallest) ** 2
    drawn = deviation**2 * np.eye(d) + entry**2 * (
        float(moved @ moved) * np.eye(d) + np.outer(moved, moved)
    )
    square = before.rows.length**2 * before.noise.moments * (before.rows.clip / before.rows.label)
    left = widen_variance(before.estimate_residual_variance(), square * before.rows.clip, level)
    spread = UNEQUAL_SPREAD * left * release.noise["people_concentration"]
    # From steps of (g, u) around the centre to θ.
    to_theta = change_to_theta(before, back)
    weights = functions @ to_theta @ inverse
    noise = np.sqrt(np.einsum("ij,jk,ik->i", weights, drawn, weights))
    sampling = np.sqrt(np.maximum(spread * np.einsum("ij,jk,ik->i", weights, gram, weights), 0.0))
    z = float(scipy.special.ndtri(0.5 + level / 2))
    middle = functions @ (before.to_theta() + to_theta @ moved)
    reach = second * z * np.hypot(noise, sampling)
    return Ends(middle - reach, middle + reach, z * noise, z * sampling, FROM_ROUNDS, OF)


def make_full_gram(model: PartialModel, intercept: float) -> tuple[Floats, Floats]:
    """Returns the released second moments of (g, u), and what turns its coefficients into those of
    (1, u).
    """
    p = len(model.centre)
    centre = model.kept * model.centre
    gram = np.empty((p + 1, p + 1))
    gram[0, 0] = model.kept * intercept**2
    gram[0, 1:] = centre * intercept
    gram[1:, 0] = gram[0, 1:]
    gram[1:, 1:] = model.gram + model.kept * np.outer(model.centre, model.centre)
    back = np.ones(p + 1)
    back[0] = intercept
    return gram, back


def change_to_theta(model: PartialModel, back: Floats) -> Floats:
    """Returns the matrix that takes coefficients of (g, u) to θ for (½, z)."""
    frame = model.rows.frame
    p = len(frame.centre)
    change = np.zeros((p + 1, p + 1))
    change[0, 0] = 2 * back[0]
    change[0, 1:] = -2 * frame.centre / frame.scale
    change[1:, 1:] = np.diag(2 / frame.scale)
    return change


def estimate_error_parts(facts: PublicFacts, noise: StageNoise) -> SquaredErrorParts:
    """Returns what the fit is expected to miss of least squares on usual columns.

    The stages are gone through with the variances that the filter itself works with, for columns
    whose correlations have usual eigenvalues.
    """
    p = facts.slopes
    spread = facts.spread
    usually_kept = adassp_filter.USUALLY_KEPT[0]
    radius = adassp_filter.RADIUS * math.sqrt(max(p, 1)) * adassp_filter.find_widening(p, noise)
    length = radius**2 * (1 + adassp_filter.INTERCEPT_PART**2 + adassp_filter.LABEL_PART**2)
    clip = min(adassp_filter.LABEL_CLIP * spread, 1.0)
    entry = length * noise.moments
    cross = entry * clip / (adassp_filter.LABEL_PART * radius)
    constant = 1 / (noise.margins**-2 + (cross / (adassp_filter.INTERCEPT_PART * radius)) ** -2)
    values = np.geomspace(LARGEST_EIGENVALUE, SMALLEST_EIGENVALUE, max(p, 1))
    values = values / values.mean() * usually_kept
    prior = facts.explained_variance / values.sum() * usually_kept
    variances = np.full(max(p, 1), prior)
    held = np.ones(max(p, 1))
    gathered = np.zeros(max(p, 1))
    residual_length = radius * math.hypot(1, adassp_filter.RESIDUAL_INTERCEPT_PART)
    for place, deviation in enumerate((noise.moments, *noise.rounds)):
        if place == 0:
            unknown = adassp_filter.CAUTION * (cross**2 + entry**2 * float(variances.sum()))
        else:
            left = facts.residual + float(values @ variances) / usually_kept
            drawn = deviation * residual_length * adassp_filter.RESIDUAL_CLIP * math.sqrt(left)
            own = (drawn / (adassp_filter.RESIDUAL_INTERCEPT_PART * radius)) ** 2
            constant = 1 / (1 / constant + 1 / own)
            unknown = drawn**2 + entry**2 * float(variances.sum())
        step, variances = adassp_filter.weigh_observation(values, variances, unknown)
        gathered = (1 - step * values) ** 2 * gathered + step**2 * unknown
        held = held * (1 - step * values)
    if not p:
        return SquaredErrorParts(constant, facts.spread**2 * facts.squares, 0.0)
    scale = values / usually_kept
    return SquaredErrorParts(
        constant + float(scale @ gathered),
        facts.residual * facts.squares * (1 + float(np.sum((1 - held) ** 2))),
        float(scale @ (held**2 * prior)),
    )
