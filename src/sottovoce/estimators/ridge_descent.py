# SPDX-License-Identifier: Apache-2.0
"""Regression by noisy gradient descent, where ε is at a δ and budgets are scarce: the mechanism of
risk minimisation with the squared loss (docs/theory/erm.md; when it is chosen: docs/theory/
adassp.md).

It buys neither centres nor scales nor second moments, so that nothing is spent but on the model.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sottovoce.arrays import Array, Floats
from sottovoce.budgets import Budgets
from sottovoce.data.encoding import Recoding
from sottovoce.data.engine import Dataset
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import get_owners
from sottovoce.estimators import ridge_adassp
from sottovoce.estimators.erm_mechanism import PERSON, report_steps
from sottovoce.estimators.model_intervals import Ends
from sottovoce.estimators.ridge_errors import (
    PublicFacts,
    SquaredErrorParts,
    make_expected_error,
)
from sottovoce.estimators.ridge_objective import parse_association
from sottovoce.plan import Plan
from sottovoce.release import Release
from sottovoce.schema import Interval
from sottovoce.solvers.losses import LOSSES

if TYPE_CHECKING:
    from sottovoce.estimators.erm import ERM
    from sottovoce.estimators.ridge_core import RidgeCore

LOSS = "squared"
#: Where every other method is expected to miss least squares by so much, in units of half the
#: label's range, this one is chosen, unless it is expected to miss so much itself. Tuned on made
#: tables (docs/theory/adassp.md).
SCARCE_ERROR = 0.08
MOST_ERROR = 0.165
#: The same for rows in a declared ball, where plans are for less noise.
SCARCE_ERROR_IN_BALL = 0.06
MOST_ERROR_IN_BALL = 0.13
#: Adaptive sums whose planned error is not below this miss more than the objective method, also
#: where their plan says less. Tuned likewise.
MOST_SUMS_ERROR = 0.05
#: With more columns than this the rules are others: sums count for so much of their planned error;
#: from an error on the descent is taken if it is expected to miss no less, up to a limit; and sums
#: up to another. Tuned on made tables of 24 to 240 columns.
MANY_COLUMNS = 22
WIDE_SUMS_PART = 0.6
SCARCE_WIDE_ERROR = 0.12
MOST_WIDE_ERROR = 0.18
MOST_WIDE_SUMS_ERROR = 0.15


def validate(ridge: RidgeCore, label: Interval, width: int) -> None:
    """Refuses budgets that are not ε at a δ, and what this method cannot fit."""
    if ridge.delta is None or ridge.rho:
        raise InvalidParameter(
            "The method 'descent' has Gaussian noise, and budgets are not said to be ε at a δ.",
            "It needs delta=, and no rho.",
            "Pass delta=1e-6, say.",
            parameter="delta",
        )
    ridge_adassp.validate(ridge, label, width)


def list_people(budgets: Budgets) -> dict[str, Array]:
    """Returns the column that says whose each row in memory is."""
    return {PERSON: get_owners(budgets)}


def make_descent(ridge: RidgeCore, half: float) -> ERM:
    """The risk minimisation that stands for the regression; ``half`` is that of the label's range.

    Labels that lie apart by the association do so by this many spreads of a usual prediction.
    """
    from sottovoce.estimators.erm import ERM  # loads scikit-learn

    association = None
    if ridge.association is not None:
        size = math.sqrt(LOSSES[LOSS].shape.size)
        association = parse_association(ridge.association, half) / size
    return ERM(
        LOSS,
        bounds=ridge.bounds,
        delta=ridge.delta,
        missing=ridge.missing,
        association=association,
    )


def plan_for(ridge: RidgeCore, budgets: Budgets, recoding: Recoding, label: Interval) -> Plan:
    """The plan of the descent."""
    from sottovoce.estimators.erm import make_erm_plan

    validate(ridge, label, recoding.width)
    half = (label[1] - label[0]) / 2
    plan = make_erm_plan(make_descent(ridge, half), budgets, recoding, {"label": list(label)})
    told: dict[str, Any] = {**plan.parameters, "method": "descent", "rho": False}
    if ridge.association is not None:
        told["association"] = float(ridge.association)
    facts = PublicFacts.of(recoding, budgets, plan.weights)
    return replace(
        plan,
        question="ridge",
        parameters=told,
        error=make_expected_error(
            estimate_error_parts(plan, facts, half), facts, budgets, plan.weights, half
        ),
    )


def estimate_error_parts(plan: Plan, facts: PublicFacts, half: float) -> SquaredErrorParts:
    """Returns what is expected to be missed of least squares on usual columns: as for risk
    minimisation, with the variance that slopes explain in the place of that of its predictions.
    """
    expected: Any = plan.error
    learnt = facts.explained_variance / LOSSES[LOSS].shape.size
    return SquaredErrorParts(
        (expected.noise / half) ** 2,
        facts.spread**2 * facts.squares,
        (expected.shrinkage / half) ** 2 * learnt,
    )


def fit_noisy_model(ridge: RidgeCore, plan: Plan, rows: Dataset) -> dict[str, Any]:
    """Reads the rows once a step and returns theta."""
    from sottovoce.estimators.erm import run_erm

    low, high = plan.parameters["label"]
    with report_steps(False, plan.parameters["steps"]) as watch:
        return {"theta": run_erm(make_descent(ridge, (high - low) / 2), plan, rows, watch)}


def find_ends(release: Release, functions: Floats, level: float) -> Ends | str:
    """Returns the ends of the intervals of these functions of θ, or why there are none."""
    from sottovoce.estimators.erm import find_descent_ends

    low, high = release.parameters["label"]
    return find_descent_ends(release, functions, level, (high - low) / 2)


def choose_plan(plans: list[Plan]) -> Plan:
    """Returns the plan that is expected to miss least, from public numbers alone.

    Where all are expected to miss much, second moments cannot be paid for, and plans are too
    hopeful about what rests on them: it is the descent, if it can tell slopes from noise at all,
    and else the objective method, whose answer is then a constant. Rows of a declared length are
    no shorter to the adaptive sums, which are left out; and their plans are too hopeful already
    where they expect to miss a little.
    """
    by_method = {plan.parameters["method"]: plan for plan in plans}
    descent = by_method.pop("descent", None)
    scarce = SCARCE_ERROR
    most = MOST_ERROR
    recoding = Recoding.from_dict(plans[0].parameters["features"])
    if recoding.fills_ball:
        del by_method["adassp"]
        scarce = SCARCE_ERROR_IN_BALL
        most = MOST_ERROR_IN_BALL
    elif descent is not None and recoding.width > MANY_COLUMNS:
        return choose_wide_plan(by_method, descent)
    best = min(by_method.values(), key=get_expected_error)
    if descent is None or get_expected_error(best) < scarce:
        if best.parameters["method"] == "adassp" and get_expected_error(best) >= MOST_SUMS_ERROR:
            return by_method["objective"]
        return best
    if get_expected_error(descent) <= most:
        return descent
    return by_method["objective"]


def choose_wide_plan(by_method: dict[str, Plan], descent: Plan) -> Plan:
    """Returns the plan for many columns.

    There the sums, most of whose products are shrunk away, miss less than their plan says, and so
    does the descent where people are few; where next to nothing can be learnt, the answer is a
    constant.
    """
    others = [plan for name, plan in by_method.items() if name != "adassp"]
    best = min(others, key=get_expected_error)
    sums = get_expected_error(by_method["adassp"])
    if get_expected_error(best) < WIDE_SUMS_PART * sums:
        return best
    scarce = sums >= SCARCE_WIDE_ERROR
    if scarce and sums <= get_expected_error(descent) <= MOST_WIDE_ERROR:
        return descent
    if sums >= MOST_WIDE_SUMS_ERROR:
        return by_method["objective"]
    return by_method["adassp"]


def get_expected_error(plan: Plan) -> float:
    """Returns the planned error in units of half the label's range."""
    low, high = plan.parameters["label"]
    half = float(high - low) / 2
    return float(plan.expected_error) / half  # type: ignore[arg-type]
