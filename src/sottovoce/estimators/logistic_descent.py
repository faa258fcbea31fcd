# SPDX-License-Identifier: Apache-2.0
"""Logistic regression at a δ: when noisy gradient descent stands in for noise in the objective, and
how far and how fast it goes (docs/theory/logistic-delta.md).

    symbol   name
    m_l      weight that (ε_l, δ) allows Gaussian noise in one step (erm_mechanism)
    u        units of a gradient's signal over its noise, 1/max_l(W_l/m_l)
    p        slopes
    L        CLIP: no row pulls harder

All constants were chosen on made tables (benchmarks/frontier_classification.py, made tables).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce import units
from sottovoce.budgets import BudgetGroups, Budgets
from sottovoce.data.encoding import Recoding, describe_model
from sottovoce.data.engine import Dataset
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import get_association
from sottovoce.estimators import erm_mechanism
from sottovoce.estimators.erm_mechanism import (
    FullBatchAccountant,
    RowSizes,
    StepSchedule,
    report_steps,
)
from sottovoce.plan import Plan
from sottovoce.release import Release
from sottovoce.schema import MEASURE, Bounds, is_between
from sottovoce.solvers.losses import LossShape

if TYPE_CHECKING:
    from sottovoce.estimators.erm import ERM

#: How classes are told apart, as a release says it.
TWO_CLASSES = "two classes"
#: Gaussian noise is chosen from this ratio of what the two kinds of noise allow on.
CROSSING = 0.65
#: And between these signals over its noise: below, an intercept that is bought is worth more;
#: above, clipping moves the answer by more than noise does.
LEAST_SIGNAL = 25.0
MOST_SIGNAL = 500.0
#: Rows lie in a box that is 1 wide, so that most gradients are longer than this: every row pulls
#: about equally hard until it is on its side.
CLIP = 0.5
#: The way is so long in units of u/√(p + 1), in steps of about so much.
PATH = 40.0
STRIDE = 4.0
LEAST_STEPS = 50
MOST_STEPS = 300
#: Coordinates may go so far; directions are what classes are told apart by.
RADIUS = 1000.0


def check_delta(delta: Any) -> None:
    """Refuses what is no δ."""
    if delta is not None and not is_between(delta, 1 / MEASURE, 1):
        raise InvalidParameter(
            "δ is not between 0 and 1.",
            "It is the probability that a promise of ε leaves out, the same for all.",
            "Pass delta= far below one over the number of people, or nothing for pure ε.",
            parameter="delta",
        )


def prefers_gaussian(kinds: BudgetGroups, slopes: int, delta: float) -> bool:
    """Whether Gaussian noise leaves more of a gradient in p + 1 directions than noise of pure ε,
    and enough of it.

    Noise of pure ε is about (p + 1)/Σε long in each direction, Gaussian noise √(p + 1)/Σ2m in all:
    the ratio does not depend on how many people there are, and falls as budgets grow.
    """
    single = FullBatchAccountant(delta).single_step_sensitivity(kinds.epsilon)
    pure = float(units.to_epsilon(kinds.epsilon) @ kinds.people)
    gaussian = 2 * float(single @ kinds.people)
    signal = gaussian / math.sqrt(slopes + 1)
    enough = LEAST_SIGNAL <= signal <= MOST_SIGNAL
    return enough and gaussian * math.sqrt(slopes + 1) >= CROSSING * pure


def choose_schedule(shape: LossShape, rows: RowSizes, noise: float) -> StepSchedule:
    """Returns steps and stride; ``noise`` is that of a mean gradient for each unit of L."""
    path = PATH / (noise * math.sqrt(rows.slopes + 1))
    steps = min(max(math.ceil(path / STRIDE), LEAST_STEPS), MOST_STEPS)
    unlearnt, drawn = erm_mechanism.estimate_squared_errors(
        shape, rows, CLIP * noise, np.array([path])
    )
    return StepSchedule(steps, path / steps, math.sqrt(drawn[0]), math.sqrt(unlearnt[0]))


class DescentSteps:
    """The steps of a classifier whose plan may be a descent."""

    bounds: Any
    classes: Any
    public: Any
    alpha: float | None
    fit_intercept: bool
    neighbours: str
    missing: float | None
    association: float | None
    delta: float | None
    _labels_only: Any
    _get_classes: Any
    _refuse_unknown: Any

    def _release_descent(self, plan: Plan, rows: Dataset, recoding: Recoding) -> Release:
        from sottovoce.estimators.erm import run_erm  # loads scikit-learn

        with report_steps(False, plan.parameters["steps"]) as watch:
            theta = run_erm(self._make_descent(), plan, rows, watch)
        model = describe_model(recoding, theta[0] / 2, theta[1:])
        return Release.of(plan, {"models": {str(plan.parameters["classes"][1]): model}})

    def _make_descent(self) -> ERM:
        """The descent that stands in for noise in the objective."""
        from sottovoce.estimators.erm import ERM

        return ERM(
            "logistic",
            bounds=self.bounds,
            delta=self.delta,
            radius=RADIUS,
            clip=CLIP,
            classes=self.classes,
            missing=self.missing,
            association=self.association,
        )

    def _descends(self, budgets: Budgets, recoding: Recoding) -> bool:
        """Whether the plan is a descent: two classes in a box, of which nothing is public but its
        bounds, at a δ at which Gaussian noise is the smaller.
        """
        self._refuse_unknown()
        plain = self.public is None and self.alpha is None and bool(self.fit_intercept)
        ball = isinstance(self.bounds, Bounds) and self.bounds.norm is not None
        if self.delta is None or not plain or ball or self._labels_only:
            return False
        if len(self._get_classes().values) != 2:
            return False
        return prefers_gaussian(budgets.kinds, recoding.width, float(self.delta))

    def _plan_descent(self, budgets: Budgets, recoding: Recoding) -> Plan:
        from sottovoce.estimators.erm import make_erm_plan

        label = {"classes": list(self._get_classes().values)}
        plan = make_erm_plan(self._make_descent(), budgets, recoding, label, choose_schedule)
        told = {"neighbours": self.neighbours, "association": get_association(self.association)}
        return replace(
            plan,
            question="logistic regression",
            parameters={**plan.parameters, **told, "objective": TWO_CLASSES},
        )
