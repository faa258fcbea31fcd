"""The estimators that are held to the laws, audits and controls. A new one only has to be listed
here.

A case knows how to make its estimator, the classical noise scale it must have when all ε are equal,
and how to compute the exact privacy loss between two captured statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from seams import Silent
from sottovoce.estimators import (
    baselines,
    logistic_core,
    mean,
    quantile,
    ridge_objective,
    ridge_origin,
    ridge_output,
)
from sottovoce.estimators import posterior as samples
from sottovoce.noise import source

# the upper end lies a little above a point of every grid used, on purpose
LOW = 0.0
HIGH = 10.30001


@dataclass(frozen=True)
class Captured:
    """What an estimator was about to add noise to, and the noise scale it then asked for."""

    plan: Any
    statistic: Any
    scale: float
    bought: Any = None  # the statistic for the interval, where one is bought


@dataclass(frozen=True)
class Case:
    name: str
    module: ModuleType  # its `draw_noisy_values(plan, statistic)` is where noise is drawn
    make: Callable[[], Any]
    classical_scale: Callable[[int, float], float]  # of (rows, ε), in units of plan.noise["scale"]
    exact_loss: Callable[[Captured, Captured], float]
    tightness: float  # the share of the charge that the worst pair below must reach

    def __repr__(self) -> str:
        return self.name


def captured(case: Case, values: Any, epsilon: Any, groups: Any = None) -> Captured:
    """Fits with the noise switched off and returns what the noise would have been added to."""
    seen: list[tuple[Any, Any]] = []
    bought: list[Any] = []
    original = case.module.draw_noisy_values
    second = {mean: "draw_second_moment", quantile: "draw_reaches"}[case.module]
    draw_second = getattr(case.module, second)
    seam = Silent()

    def spy(plan: Any, statistic: Any, *rest: Any) -> Any:
        seen.append((plan, statistic))
        return original(plan, statistic, *rest)

    def spy_second(plan: Any, statistic: Any, *rest: Any) -> Any:
        bought.append(statistic)
        return draw_second(plan, statistic, *rest)

    with pytest.MonkeyPatch.context() as patch, source._seam(seam):
        patch.setattr(case.module, "draw_noisy_values", spy)
        patch.setattr(case.module, second, spy_second)
        case.make().fit(values, epsilon=epsilon, groups=groups)
    ((plan, statistic),) = seen
    return Captured(
        plan,
        statistic,
        seam.scales[0] if seam.scales else 2.0 * plan.weights.loudest,
        bought[0] if bought else None,
    )


def _mean_loss(one: Captured, two: Captured) -> float:
    """Two discrete Laplace laws of one scale, apart by d: the largest log ratio is d/scale."""
    assert one.scale == two.scale
    shift = one.plan.grid.shift
    loss = abs((one.statistic >> shift) - (two.statistic >> shift)) / one.scale
    if one.bought is None:
        return loss
    part = one.plan.bought
    apart = abs((one.bought >> part.shift) - (two.bought >> part.shift))
    return loss + apart / part.integer_scale  # the two are independent


def _quantile_loss(one: Captured, two: Captured) -> float:
    """The largest log ratio of the exact laws of the chosen point (independent choices add up over
    q).
    """
    targets = one.plan.parameters["q"]
    loss = sum(
        float(
            np.max(
                np.abs(log_law(one.statistic, q, one.scale) - log_law(two.statistic, q, two.scale))
            )
        )
        for q in targets
    )
    if one.bought is None:
        return loss
    return loss + sum(_reach_loss(one, two, place) for place in range(len(targets)))


def _reach_loss(one: Captured, two: Captured, place: int) -> float:
    """The largest log ratio of the laws of the half-width, over answers it may start from."""
    bought = one.plan.bought
    scale = 2.0 * bought.weights.loudest
    cells = one.plan.grid.points.cells
    worst = 0.0
    for index in range(0, cells + 1, cells // 8):
        first, second = (
            log_choice(
                reach_gaps(
                    captured.bought,
                    captured.plan.parameters["q"][place],
                    index,
                    bought.candidates[place],
                    bought.aims[place],
                    scale,
                ),
                scale,
            )
            for captured in (one, two)
        )
        worst = max(worst, float(np.max(np.abs(first - second))))
    return worst


def reach_gaps(
    histogram: np.ndarray,
    q: float,
    index: int,
    candidates: np.ndarray,
    aim: float,
    scale: float,
) -> list[int]:
    """The scores of half-widths by their definition, one by one, with what the narrower are
    handicapped by.
    """
    total = int(histogram.sum())
    target = round(Fraction(q) * total)
    aimed = min(round(Fraction(aim) * total), total)
    cells = len(histogram) - 1
    gaps = []
    narrower = -total
    for step in candidates.tolist():
        above = below = total
        if index + step < cells:
            above = int(histogram[: index + step + 1].sum()) - target
        if index - step > 0:
            below = target - int(histogram[: index - step].sum())
        covered = min(above, below)
        gaps.append(max(aimed - covered, narrower - aimed, 0))
        narrower = covered
    handicap = math.ceil(scale * math.log(1.3))
    return [gap + handicap * (len(gaps) - 1 - place) for place, gap in enumerate(gaps)]


def log_law(histogram: np.ndarray, q: float, scale: float) -> np.ndarray:
    """log P[t] of permute-and-flip, from P[t] = p_t·∫₀¹ Π_{s≠t}(1 − u·p_s) du by Gauss–Legendre
    quadrature.

    Written without the code under test: scores by their definition, probabilities by the integral.
    """
    total = int(histogram.sum())
    reached = [int(c) for c in np.cumsum(histogram)]
    gaps = []
    for t, now in enumerate(reached):
        if t:
            before = reached[t - 1]
        else:
            before = 0
        gaps.append(max(before - round(q * total), round(q * total) - now, 0))
    return log_choice(gaps, scale)


def log_choice(gaps: list[int], scale: float) -> np.ndarray:
    """log P of permute-and-flip for these scores."""
    p = np.exp(-(np.array(gaps, dtype=float) - min(gaps)) / scale)
    nodes, mass = np.polynomial.legendre.leggauss(len(p) + 8)
    u = (nodes + 1) / 2
    kept = 1 - np.outer(u, p)  # (node, candidate)
    everything = np.prod(kept, axis=1)
    return np.log(p) + np.log(((mass / 2)[:, None] * everything[:, None] / kept).sum(axis=0))


CASES = [
    Case(
        "mean",
        mean,
        lambda: mean.Mean(bounds=(LOW, HIGH), interval_share=0),
        lambda n, e: (HIGH - LOW) / (n * e),
        _mean_loss,
        0.999,
    ),
    Case(
        "median",
        quantile,
        lambda: quantile.Quantile(q=0.5, bounds=(LOW, HIGH), cells=256, interval_share=0),
        lambda n, e: 2 / (n * e),
        _quantile_loss,
        0.99,
    ),
    Case(
        "quartiles",
        quantile,
        lambda: quantile.Quantile(
            q=[0.25, 0.5, 0.75],
            bounds=(LOW, HIGH),
            cells=256,
            interval_share=0,
            method="permute-and-flip",
        ),
        lambda n, e: 3 * 2 / (n * e),
        _quantile_loss,
        0.8,
    ),
    # Most of the budget buys the interval, so that what is not charged for it is seen.
    Case(
        "mean with its spread",
        mean,
        lambda: mean.Mean(bounds=(LOW, HIGH), interval_share=0.6),
        lambda n, e: (HIGH - LOW) / (n * e * 0.4),
        _mean_loss,
        0.75,
    ),
    Case(
        "median with its interval",
        quantile,
        lambda: quantile.Quantile(q=0.5, bounds=(LOW, HIGH), cells=256, interval_share=0.6),
        lambda n, e: 2 / (n * e * 0.4),
        _quantile_loss,
        0.6,
    ),
]


@dataclass(frozen=True)
class Floating:
    """An estimator whose guarantee says "floating": its noise is continuous, and its answer is
    rounded afterwards.
    """

    name: str
    module: ModuleType  # the file in which it says so
    make: Callable[[], Any]
    features: int = 1
    classes: bool = False  # labels are 0 and 1
    epsilon: float = 1.0

    def __repr__(self) -> str:
        return self.name

    def tables(self) -> tuple[Any, Any]:
        """Two tables that differ in the last person's row: (features, labels) each."""
        rng = np.random.default_rng(5)
        X = rng.uniform(0.1, 0.7, (12, self.features))
        if self.classes:
            y = (X[:, 0] > 0.4).astype(float)
        else:
            y = np.linspace(-0.3, 0.8, 12)
        other = X.copy()
        labels = y.copy()
        other[-1] = 0.0
        if self.classes:
            labels[-1] = 1 - y[-1]
        else:
            labels[-1] = 0.0
        return (X, y), (other, labels)

    def prepared(self, table: Any) -> tuple[Any, Any, Any]:
        """Returns what estimator.release_under(plan, rows) needs for one release."""
        estimator = self.make()
        rows = estimator.read_arrays(*table, epsilon=self.epsilon, groups=None)
        budgets = rows.budgets
        return estimator, estimator.plan_for(budgets, rows), rows


BOX = sv.Bounds(features=(0, 1), label=(-1, 1))
FIXED = sv.Bounds(
    features=(0, 0), label=(-1, 1)
)  # no feature can vary: an intercept, and one coordinate
BALL = sv.Bounds(norm=1.0, label=(-1, 1))
FIXED_SAMPLE = partial(sv.PosteriorSample, 4.0, 6.0, BALL)
ADAPTIVE_SAMPLE = partial(sv.AdaptivePosteriorSample, bounds=BALL)
LOGISTIC = partial(sv.LogisticRegression, BOX, alpha=5.0)
#: A name ends with the number of coordinates; budgets are such that noise is a large part of the
#: answer.
FLOATING = [
    Floating("posterior sample, 1", samples, FIXED_SAMPLE),
    Floating("posterior sample, 2", samples, FIXED_SAMPLE, features=2),
    Floating("adaptive posterior sample, 1", samples, ADAPTIVE_SAMPLE),
    Floating("adaptive posterior sample, 2", samples, ADAPTIVE_SAMPLE, features=2),
    Floating("output, 1", ridge_output, partial(sv.Ridge, FIXED, method="output")),
    Floating("output, 2", ridge_output, partial(sv.Ridge, BOX, method="output")),
    Floating("output-tight, 1", ridge_output, partial(sv.Ridge, FIXED, method="output-tight")),
    Floating("output-tight, 2", ridge_output, partial(sv.Ridge, BOX, method="output-tight")),
    Floating("objective, 1", ridge_objective, partial(sv.Ridge, FIXED), epsilon=0.01),
    Floating(
        "objective, 2", ridge_objective, partial(sv.Ridge, BOX, label_scale=0.5), epsilon=100.0
    ),
    Floating(
        "objective without an intercept, 1",
        ridge_origin,
        partial(sv.Ridge, BOX, fit_intercept=False),
    ),
    Floating(
        "objective without an intercept, 2",
        ridge_origin,
        partial(sv.Ridge, BOX, fit_intercept=False),
        features=2,
        epsilon=100.0,
    ),
    Floating(
        "logistic, 1",
        logistic_core,
        partial(LOGISTIC, fit_intercept=False),
        classes=True,
        epsilon=0.1,
    ),
    Floating("logistic, 2", logistic_core, LOGISTIC, classes=True, epsilon=0.1),
]
#: Files that say "floating" about what somebody else's code answers: it is taken at its word
#: (docs/limits.md).
TAKEN_AT_ITS_WORD = [baselines]

every_floating = pytest.mark.parametrize("case", FLOATING, ids=repr)

every_case = pytest.mark.parametrize("case", CASES, ids=repr)


@dataclass(frozen=True)
class People:
    """Who owns which rows and grants what."""

    name: str
    epsilon: np.ndarray  # by row
    groups: np.ndarray | None

    def __repr__(self) -> str:
        return self.name

    @property
    def owners(self) -> np.ndarray:
        if self.groups is None:
            return np.arange(len(self.epsilon))
        return self.groups


def _many_rows() -> People:
    rows = np.array([1, 1, 2, 5, 9, 3, 1, 2])
    grants = np.array([0.1, 2.0, 0.5, 0.1, 2.0, 0.5, 0.5, 2.0])
    groups = np.repeat(np.array([f"p{i}" for i in range(len(rows))]), rows)
    return People("many rows a person", np.repeat(grants, rows), groups)


PEOPLE = [
    People("one row each", np.array([0.1] * 8 + [0.5] * 9 + [2.0] * 6), None),
    _many_rows(),
    People("all alike", np.full(12, 0.7), None),
    People("heavy-tailed", np.geomspace(1e-4, 5, 17), None),
]

every_people = pytest.mark.parametrize("people", PEOPLE, ids=repr)


def worst_pairs(people: People, owner: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Data sets that differ in one owner's rows, chosen to be hard: ends of the range, far outside,
    ties.
    """
    n = len(people.epsilon)
    mine = people.owners == owner
    # Half the others at the bottom, half just below the top: a wide plateau of equal ranks, and one
    # point far from it.
    plateau = np.where(np.arange(n) % 2, LOW, HIGH - 0.1)
    backgrounds = [
        plateau,
        np.full(n, LOW),
        np.full(n, HIGH),
        np.linspace(LOW, HIGH, n),
        np.where(np.arange(n) % 2, LOW, HIGH),
    ]
    pairs = []
    for background in backgrounds:
        for one, two in (
            (LOW, HIGH),
            (-1e308, 1e308),
            (LOW - 5, HIGH + 0.37),
            (LOW, (LOW + HIGH) / 2),
        ):
            first = background.copy()
            second = background.copy()
            first[mine] = one
            second[mine] = two
            pairs.append((first, second))
    return pairs


def charge_of(captured: Captured, people: People, owner: Any) -> float:
    names = np.unique(people.owners)
    return float(captured.plan.charges[int(np.flatnonzero(names == owner)[0])])


def strictest_and_loosest(people: People) -> list[Any]:
    return [
        people.owners[int(np.argmin(people.epsilon))],
        people.owners[int(np.argmax(people.epsilon))],
    ]


def audit(case: Case, people: People, owner: Any) -> tuple[float, float]:
    """Returns (largest exact loss over hard neighbours, charge) of one owner."""
    losses = []
    charge = math.inf
    for first, second in worst_pairs(people, owner):
        one = captured(case, first, people.epsilon, people.groups)
        two = captured(case, second, people.epsilon, people.groups)
        losses.append(case.exact_loss(one, two))
        charge = charge_of(one, people, owner)
    return max(losses), charge
