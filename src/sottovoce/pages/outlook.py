# SPDX-License-Identifier: Apache-2.0
"""What a regression is worth beforehand: beside a private mean, and beside asking nothing at all.

All three are compared in one measure, the distance of predictions from those of the best linear function,
in the label's units. With s the spread of the labels, whatever predicts the same for everybody misses what
slopes would have explained:

    answer          squared distance
    regression      the plan's expected error, squared
    private mean    .6·s² + (expected error of the mean at this spread)²
    nothing         .6·s² + (.4·half the range)²

The .6 and the .4 are the assumptions under which the regression itself is planned (estimators/regression/objective.py:
HOPELESS, and an intercept of squared size .16).
Everything here is made of public numbers; none is an accuracy promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sottovoce.plan import Plan, error_text
from sottovoce.wording import unit_in_words

#: How far the middle of the range lies from the labels' centre, in half ranges, where nothing is known.
MIDDLE_MISSES = 0.4


@dataclass(frozen=True)
class Outlook:
    """What to expect if the labels have this spread, in the label's units."""

    spread: float
    regression: float
    private_mean: float
    nothing: float
    slopes: bool

    @property
    def worth_it(self) -> bool:
        """Whether slopes will be fitted and are expected to beat both trivial answers."""
        return self.slopes and self.regression < min(self.private_mean, self.nothing)

    def to_dict(self) -> dict[str, Any]:
        """The outlook as public JSON."""
        return {**self.__dict__, "worth_it": self.worth_it}


def outlooks(plan: Plan) -> list[Outlook]:
    """Returns the outlook for every spread that the first stage may release, or for the typical one."""
    from sottovoce.estimators.regression.expected import SPREAD  # here and below: the page opens without

    stages = plan.parameters.get("stages")
    if stages is None:  # the other methods do not look for the spread
        low, high = plan.parameters["label"]
        return [_outlook(plan, SPREAD * (high - low) / 2, float(plan.expected_error), True)]  # type: ignore[arg-type]
    return [_outlook(plan, s["if_scale"], math.sqrt(s["expected"]) * s["if_scale"], s["slopes"]) for s in stages]


def typical(plan: Plan) -> Outlook:
    """Returns the one that the plan's expected error speaks about."""
    return min(outlooks(plan), key=lambda outlook: abs(outlook.regression - plan.expected_error))  # type: ignore[operator]


def verdict(plan: Plan) -> str:
    """Returns one sentence for or against the regression, with the numbers that it rests on."""
    chosen = typical(plan)
    told = (
        f"{error_text(chosen.regression)} against {error_text(chosen.private_mean)} for a private mean and "
        f"{error_text(chosen.nothing)} for nothing, in {unit_in_words(plan)}"
    )
    if chosen.worth_it:
        return f"Worth asking: {told}. Both trivial answers lose."
    if not chosen.slopes:
        return (
            f"Advice: do not ask for this regression. It will be a constant, and so is a private mean ({told}). "
            "Ask for the mean, whose arithmetic is exact; or find more people, a larger ε "
            "or fewer features."
        )
    better = "a private mean" if chosen.private_mean <= chosen.nothing else "nothing, the middle of the range,"
    return (
        f"Advice: do not ask for this regression. It loses to {better} ({told}). "
        "Take the default method or another λ, ask for the mean, or find more people or a larger ε."
    )


def _outlook(plan: Plan, spread: float, regression: float, slopes: bool) -> Outlook:
    from sottovoce.estimators.mean import Mean
    from sottovoce.estimators.regression.objective import HOPELESS

    low, high = plan.parameters["label"]
    half, unexplained = (high - low) / 2, HOPELESS * spread**2
    mean = Mean(bounds=(low, high), spread=min(spread, half)).plan_for(plan.budgets).expected_error
    return Outlook(
        spread,
        regression,
        math.sqrt(unexplained + float(mean) ** 2),  # type: ignore[arg-type]
        math.sqrt(unexplained + (MIDDLE_MISSES * half) ** 2),
        slopes,
    )
