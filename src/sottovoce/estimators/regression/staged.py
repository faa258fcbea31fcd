# SPDX-License-Identifier: Apache-2.0
"""The plan of the default regression, and its answer: objective.py's stages under one name.

The plan shows the stages, their shares of everybody's budget and whether slopes will be fitted, for every
scale that the first stage can release (there are eight), because later choices depend on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.bounds import Interval
from sottovoce.budgets import Budgets
from sottovoce.engine import Rows
from sottovoce.errors import InvalidParameter
from sottovoce.estimators.regression.expected import EXPLAINED, Facts, Parts, expected
from sottovoce.estimators.regression.objective import (
    CONSTANT_ONLY,
    KNOWN_SIZE,
    LABEL_SCALES,
    UNKNOWN_SIZE,
    Course,
    Fit,
    Part,
    Purse,
    course,
    least_deviation,
    run,
    scale_share,
    sized,
    threshold_of_small_budgets,
)
from sottovoce.guarantee import Guarantee
from sottovoce.noise.grid import AnswerGrid
from sottovoce.plan import Plan, Theorem
from sottovoce.recoding import Recoding
from sottovoce.solvers import proxy
from sottovoce.weights import Weights

if TYPE_CHECKING:
    from sottovoce.estimators.ridge import Ridge

Floats = NDArray[np.float64]

THEOREM = Theorem(
    "Objective perturbation in stages: each person l loses at most the sum of their shares, ε_l (pure ε, replace)",
    "docs/theory/objective.md",
)
#: The scale that the plan speaks about where nothing better is known: labels that fill about half their range.
TYPICAL_SCALE = 0.25
#: No label is known better than to this part of half its range.
SMALLEST_SCALE = 1e-12


@dataclass(frozen=True)
class NoGrid:
    """Of noisy statistics: their whole numbers say on which grid they live."""

    def to_dict(self) -> dict[str, Any]:
        """Nothing to tell."""
        return {}


def plan_for(ridge: Ridge, budgets: Budgets, recoding: Recoding, label: Interval) -> Plan:
    """The plan of the default method."""
    purse, half = Purse.of(budgets.kinds), (label[1] - label[0]) / 2
    guess = scale_of(ridge.label_scale, half)
    outlook = [outlook_at(purse, recoding.width, s, guess is not None) for s in ([guess] if guess else _scales(purse))]
    typical = min(outlook, key=lambda c: abs(math.log(c.scale / (guess or TYPICAL_SCALE))))
    weights = Weights.solve(budgets.kinds, A=0.0)
    facts = Facts.of(recoding, budgets, weights)
    parts = {c.scale: expected_parts(purse, replace(facts, spread=c.scale), c, weights.concentration) for c in outlook}
    own, skew = parts[typical.scale]
    return Plan(
        question="ridge",
        parameters={
            "method": ridge.method,
            "loss": ridge.loss,
            "label": list(label),
            "label_scale": ridge.label_scale,
            "features": recoding.to_dict(),
            "stages": [_told(c, half, parts[c.scale][0].total / c.scale**2) for c in outlook],
            "advice": advice(typical),
        },
        budgets=budgets,
        weights=weights,
        guarantee=Guarantee.of(budgets, budgets.kinds.epsilon, arithmetic="floating"),
        noise={"distribution": "K-norm noise in the objective", "shares": [p.share for p in typical.parts]},
        grid=AnswerGrid.below(min(least_deviation(purse, recoding.width, c) for c in outlook)),
        theorem=THEOREM,
        error=expected(own, replace(facts, spread=typical.scale), budgets, weights, half, besides=skew),
    )


def answer(ridge: Ridge, plan: Plan, rows: Rows) -> dict[str, Any]:
    """Runs the stages and returns theta, rounded to the public grid."""
    low, high = plan.parameters["label"]
    fit = Fit(rows, plan.budgets, ridge.loss)
    theta = run(fit, scale_of(ridge.label_scale, (high - low) / 2))
    return {"theta": plan.grid.nearest(theta)}


def scale_of(label_scale: Any, half: float) -> float | None:
    """Returns the public guess of the labels' spread in units of half their range, or None."""
    if label_scale is None:
        return None
    if not isinstance(label_scale, int | float) or not SMALLEST_SCALE * half <= label_scale <= 2 * half:
        raise InvalidParameter(
            "label_scale is not a possible standard deviation.",
            f"It is at most the label's range, and at least {SMALLEST_SCALE:g} of half of it.",
            "Pass such a number.",
        )
    return label_scale / half


def outlook_at(purse: Purse, slopes: int, scale: float, known: bool) -> Course:
    """What will be done if the first stage releases this scale."""
    if purse.total < CONSTANT_ONLY:
        tau = threshold_of_small_budgets(purse.total)
        size = max(KNOWN_SIZE, UNKNOWN_SIZE / tau**2)
        expected = 0.6 + proxy.best_constant(purse.total, purse.squares, size, 1.0).expected * (tau / scale) ** 2
        return Course(scale, (Part("constant", 1.0),), None, tau, expected, size)
    share = 0.0 if known else scale_share(purse)[0]
    chosen = course(purse, slopes, scale, 1.0 - share)
    first = () if known else (Part("scale of labels", share),)
    return Course(
        scale, (*first, *chosen.parts), chosen.slopes, chosen.constant, chosen.expected, chosen.intercept_size
    )


def expected_parts(purse: Purse, facts: Facts, chosen: Course, concentration: float) -> tuple[Parts, float]:
    """Returns what a course is expected to miss of least squares, and the bias that very skewed labels may add.

    The proxy's terms for the last stage, and what its threshold does to labels that are skewed a little; a fit around
    a first one holds nothing back of the slopes, and its labels are what the first has left.
    """
    last, p = chosen.parts[-1], facts.slopes
    V, V2, size = last.share * purse.total, last.share**2 * purse.squares, chosen.intercept_size
    unit, kept_back = chosen.scale, 0.0
    if chosen.slopes is None:
        kept_back = facts.explained_variance
        unit = chosen.constant if purse.total < CONSTANT_ONLY else chosen.scale
        choice = proxy.best_constant(V, V2, size, 1.0 if purse.total < CONSTANT_ONLY else 2.0)
        terms = proxy.parts(0, V, V2, size, 0.0, choice)
    elif len(chosen.parts) > 1 and chosen.parts[-2].purpose == "scale of residuals":
        unit *= math.sqrt(1 - EXPLAINED)
        choice = sized(purse, p, last.share, KNOWN_SIZE)
        terms = proxy.parts(p, V, V2, 0.0, 0.0, choice)
    else:
        choice = chosen.slopes
        terms = proxy.parts(p, V, V2, size, EXPLAINED, choice)
    usual, most = proxy.SKEWED[choice.threshold]
    unequal = facts.squares / concentration  # the proxy counts all of Σc², and least squares has 1/n of it too
    parts = Parts(terms.noise, terms.sampling * unequal, terms.shrinkage + usual**2).scale_by(unit**2)
    return replace(parts, shrinkage=parts.shrinkage + kept_back), most * unit


def _scales(purse: Purse) -> list[float]:
    if purse.total < CONSTANT_ONLY:
        return [TYPICAL_SCALE]
    factor = scale_share(purse)[2]
    return [factor * 0.25 * 0.5**j for j in range(LABEL_SCALES)]


def _told(chosen: Course, half: float, expected_square: float) -> dict[str, Any]:
    return {
        "if_scale": chosen.scale * half,
        "parts": [{"purpose": part.purpose, "share": part.share} for part in chosen.parts],
        "slopes": chosen.slopes is not None,
        "expected": expected_square,  # in units of the squared scale
    }


def advice(chosen: Course) -> str:
    """One sentence on whether slopes will be fitted, and why."""
    if chosen.slopes is not None:
        return "Slopes are fitted: their noise is expected to stay below what they explain."
    if len(chosen.parts) == 1:
        return "Too little budget for slopes: the answer will be a constant, a private mean of the labels."
    return (
        "Slopes cannot pay for their noise here: the answer will be a constant. More people or a larger ε would help."
    )
