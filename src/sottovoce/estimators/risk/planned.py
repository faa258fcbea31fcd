# SPDX-License-Identifier: Apache-2.0
"""The plan of empirical risk minimisation, and its answer (docs/theory/erm.md).

    grants (ε_l, δ) → loudness → weights → clip, steps, stride → whole numbers, σ → charges

All of it is public. loudness.py knows what a grant allows and what was spent, pace.py how far to go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.bounds import MEASURE, between, is_one_of
from sottovoce.budgets import Budgets
from sottovoce.engine import Rows
from sottovoce.errors import InvalidData, InvalidParameter
from sottovoce.estimators.risk import pace
from sottovoce.estimators.risk.descent import Descent, People
from sottovoce.estimators.risk.gradients import MOST_COLUMNS
from sottovoce.estimators.risk.loudness import Account, Drawn, Everybody, least_scale, loud_kinds, whole_weights
from sottovoce.noise.choose import RATE_BITS
from sottovoce.plan import ASSOCIATION, ExpectedError, Plan, Theorem, inequality
from sottovoce.recoding import Recoding
from sottovoce.rounding import plain
from sottovoce.solvers import accounting, losses
from sottovoce.weights import Weights, row_voices

if TYPE_CHECKING:
    from sottovoce.estimators.erm import ERM

Floats = NDArray[np.float64]

#: Sampling error of a gradient, squared, as a share of L²: the constant A of the weights is this over d.
STATISTICAL = 1 / 4
EVERYBODY = 2**RATE_BITS

FULL = Theorem(
    "Noisy gradient descent: each person l loses at most ρ = T·(2P_l)²/(2σ²), P_l the most that their rows add to "
    "a sum (zCDP, replace), read at δ on the curve of Gaussian noise",
    "docs/theory/erm.md",
)
SAMPLED = Theorem(
    "Noisy gradient descent over sampled people: each person l loses at most what T pairs (1−q)·N(0, σ²) + "
    "q·N(±P_l, σ²) lose together (ε at δ, replace)",
    "docs/theory/erm.md",
)


@dataclass(frozen=True)
class GradientGrid:
    """Where clipped gradients live: whole numbers of one step."""

    step: float

    def to_dict(self) -> dict[str, Any]:
        """The grid as public JSON."""
        return {"gradient_step": self.step}


def plan_for(erm: ERM, budgets: Budgets, recoding: Recoding, label: dict[str, Any]) -> Plan:
    """The plan; ``label`` says what the labels are, as public JSON."""
    settings = Settings.of(erm, recoding.width)
    kinds, d, account = budgets.kinds, recoding.width + 1, settings.account
    single = account.single_step_sensitivity(kinds.epsilon)
    heard = loud_kinds(kinds, single)
    # In units of the loudest: A·Σc² + (max W/m)² has the same weights as A·m²_max·Σc² + (max W·m_max/m)².
    A = STATISTICAL / d * float(single.max()) ** 2
    voices = row_voices(heard.epsilon / float(heard.epsilon.max()), kinds.rows, kinds.people, A)
    noise = _single_noise(voices, kinds.rows, kinds.people, single)
    way = pace.chosen(settings.shape, recoding.width, settings.clip * noise, settings.steps)
    least = least_scale(d * way.steps, float(units.epsilon(kinds.epsilon).max()), settings.delta)
    weights, scale = whole_weights(kinds, voices, account.per_step_sensitivity(single, way.steps), least)
    guarantee = account.guarantee(budgets, weights.person / scale, way.steps)
    rate = math.ldexp(settings.rate, -RATE_BITS)
    return Plan(
        question="risk minimisation",
        parameters={
            "loss": losses.name_of(settings.loss),
            **label,
            "features": recoding.to_dict(),
            "delta": settings.delta,
            "constraint": erm.constraint,
            "radius": settings.radius,
            "clip": settings.clip,
            "steps": way.steps,
            "stride": way.stride,
            "sampling": None if settings.rate == EVERYBODY else rate,
            "iterate": erm.iterate,
        },
        budgets=budgets,
        weights=weights,
        guarantee=guarantee,
        noise={
            "distribution": "discrete Gaussian",
            "integer_scale": scale,
            "gradient_standard_deviation": settings.clip * scale / weights.total / rate,
        },
        grid=GradientGrid(settings.clip / weights.total),
        theorem=FULL if settings.rate == EVERYBODY else SAMPLED,
        error=_expected_error(settings.shape, way, label, budgets, weights),
    )


def answer(erm: ERM, plan: Plan, rows: Rows, watch: Callable[[int], None]) -> Floats:
    """Reads the rows and returns θ for recoded features, (½, z), and labels in [−1, 1]."""
    return descent_of(erm, plan).run(People.of(rows, plan.budgets, plan.weights), watch)


def descent_of(erm: ERM, plan: Plan) -> Descent:
    """The run that a plan describes."""
    given = plan.parameters
    return Descent(
        loss=losses.loss_of(erm.loss),
        clip=given["clip"],
        steps=given["steps"],
        stride=given["stride"],
        radius=given["radius"],
        box=given["constraint"] == "box",
        average=given["iterate"] == "average",
        rate=EVERYBODY if given["sampling"] is None else int(math.ldexp(given["sampling"], RATE_BITS)),
        scale=plan.noise["integer_scale"],
        total=plan.weights.total,
    )


@dataclass(frozen=True, eq=False)
class Settings:
    """The parameters, checked, with defaults in their place."""

    loss: losses.Loss
    shape: losses.Shape
    delta: float
    radius: float
    clip: float
    steps: int | None
    rate: int  # in units of 2⁻³²

    @classmethod
    def of(cls, erm: ERM, slopes: int) -> Settings:
        """Refuses what is not known or out of range."""
        given: dict[str, Any] = erm.get_params(deep=False)
        _refuse_unknown(given, slopes)
        loss = losses.loss_of(erm.loss)
        shape, box = losses.shape_of(loss), erm.constraint == "box"
        radius = pace.usual_radius(slopes, box) if given["radius"] is None else float(given["radius"])
        clip = pace.usual_clip(shape, slopes) if given["clip"] is None else float(given["clip"])
        rate = EVERYBODY if given["sampling"] is None else int(math.ldexp(float(given["sampling"]), RATE_BITS))
        steps = None if given["steps"] is None else int(given["steps"])
        if steps is None and rate < EVERYBODY:
            steps = pace.sampled_steps(math.ldexp(rate, -RATE_BITS))
        return cls(loss, shape, float(given["delta"]), radius, clip, steps, rate)

    @property
    def account(self) -> Account:
        """Who says what a grant allows."""
        if self.rate == EVERYBODY or self.steps is None:
            return Everybody(self.delta)
        return Drawn(accounting.SampledSteps(math.ldexp(self.rate, -RATE_BITS), self.steps, self.delta))


def _refuse_unknown(given: dict[str, Any], slopes: int) -> None:
    for name, known in (("constraint", ("ball", "box")), ("iterate", ("average", "last"))):
        if not is_one_of(given[name], known):
            raise InvalidParameter(f"The {name} is not known.", f"There are {' and '.join(known)}.", "Choose one.")
    if not between(given["delta"], 1 / MEASURE, 1):
        raise InvalidParameter(
            "δ is missing, or not between 0 and 1.",
            "Every promise here is an ε at a δ, the same for all.",
            "Pass delta=, far below one over the number of people.",
        )
    for name in ("radius", "clip"):
        if given[name] is not None and not between(given[name], 1e-9, 1e9):
            raise InvalidParameter(
                f"The {name} is not a number between 1e-9 and 1e9.", "", f"Pass a public {name}, or nothing."
            )
    steps = given["steps"]
    if steps is not None and not (isinstance(steps, Integral) and between(steps, 0, 1e6 + 1)):
        raise InvalidParameter("steps is not a whole number from 1 to a million.", "", "Pass one, or nothing.")
    if slopes >= MOST_COLUMNS:
        raise InvalidData(
            "There are too many columns.", f"Fewer than {MOST_COLUMNS:,} are covered by the proof.", "Use fewer."
        )
    if given["sampling"] is not None:
        _refuse_sampling(given["sampling"], given["delta"])


def _refuse_sampling(rate: Any, delta: float) -> None:
    if not between(rate, 0, math.inf) or not 2.0**-RATE_BITS <= rate <= 1:
        raise InvalidParameter(
            "sampling is not a rate.",
            "It lies above 0 and is at most 1.",
            "Pass such a rate, or nothing for everybody.",
        )
    if delta < accounting.SMALLEST_DELTA and rate < 1:
        raise InvalidParameter(
            "δ is too small for people who are sampled.",
            f"Losses are composed numerically, which is good down to δ = {accounting.SMALLEST_DELTA:g}.",
            "Choose a larger δ, or leave sampling out.",
        )


def _single_noise(voices: Floats, rows: Any, people: Any, single: Floats) -> float:
    """Returns max_l W_l/m_l, the weights summing to one."""
    person = voices * rows
    ratio = np.divide(person, single, out=np.zeros_like(person), where=single > 0)
    return float(ratio.max() / (person @ people))


def _expected_error(
    shape: losses.Shape, way: pace.Pace, label: dict[str, Any], budgets: Budgets, weights: Weights
) -> ExpectedError:
    half = float(label["label"][1] - label["label"][0]) / 2 if "label" in label else 1.0
    size, (squares, moved) = math.sqrt(shape.size), inequality(budgets, weights)
    of = "decision values" if shape.classifies else "predictions"
    return ExpectedError(
        classical=f"the {of} of the minimiser without noise, over its rows",
        unit="in decision values (log-odds, for the logistic loss)" if shape.classifies else "in units of the label",
        noise=way.noise * half,
        sampling=size * math.sqrt(squares) * half,
        shrinkage=way.unlearnt * half,
        bias=ASSOCIATION * size * half * moved,
        assumed=f"Assumed: {of} of the best model spread by {plain(size * half)}.",
    )
