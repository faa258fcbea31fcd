# SPDX-License-Identifier: Apache-2.0
"""Means whose weights allow for budgets that go along with values: what they gain and cost.

Errors are not drawn but computed: an answer is a weighted mean plus Laplace noise, so that its mean
square error is bias² + σ²·Σc² + 2b², with the weights c and the scale b of the plan. Releases are
drawn once beside the first table, with their standard error.

Three tables: people in three tiers of budgets whose values go along with them, and the same where
they do not; columns of real tables (scikit-learn's own, and those that are named at the command
line) under three profiles of budgets, against what was the default before; and both for one share
of the spread as association, whatever the table.

    python benchmarks/representative.py [TABLE.csv]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.csv
from rich.table import Table
from sklearn import datasets
from timing import console

import sottovoce as sv
from sottovoce.estimators.baselines import find_best_threshold_in_hindsight

TIERS = np.array([0.01, 0.2, 1.0])
SHARES = np.array([0.34, 0.43, 0.23])
MEANS = np.array([0.6, 0.5, 0.4])
SPREAD = 0.25
#: n, and what the error may be at most.
GOALS = {300: 0.087, 3000: 0.046, 30_000: 0.0072, 300_000: 0.0008}
RELEASES = 400
PROFILES = {
    ".01/.2/1, 34/43/23 %": (TIERS, SHARES),
    ".01/.2/1, 54/37/9 %": (TIERS, np.array([0.54, 0.37, 0.09])),
    ".1 to 3, evenly in logarithms": (np.geomspace(0.1, 3, 12), np.full(12, 1 / 12)),
}
GOAL = 0.60
BEFORE = {"spread": 0.5, "association": 0.0, "interval_share": 0.0}
#: Associations as shares of the spread, a tenth of the range; None is the default.
FIXED = (0.0, 0.05, 0.1, 0.12, 0.15, 0.19, 0.2, None)


def main() -> None:
    """Prints three tables."""
    show_tiers()
    show_columns(sys.argv[1:])
    show_fixed(sys.argv[1:])


def assign(n: int, epsilon: Any, shares: Any) -> Any:
    """Budgets of n people, sorted, with these shares."""
    edges = np.rint(np.cumsum(shares) * n).astype(int)
    return epsilon[np.searchsorted(edges, np.arange(n), side="right").clip(max=len(epsilon) - 1)]


def compute_error(plan: sv.Plan, middle: Any, spread: float, width: float = 1.0) -> float:
    """Mean square error against the population of an answer whose rows have these means."""
    share = plan.weights.row[plan.budgets.row_codes()] / plan.weights.total
    bias = float(share @ middle - np.mean(middle))
    return bias**2 + spread**2 * float(share @ share) + 2 * plan.noise["scale"] ** 2 / width**2


def show_tiers() -> None:
    """The table of tiers, with and without association."""
    table = Table(
        "people",
        "before",
        "default",
        "at most",
        "drawn",
        "threshold, in hindsight",
        "no association: before",
        "default",
        "open spend",
        "representative",
        title="Root mean square error, of the range; tiers .01/.2/1 with means .6/.5/.4, σ = .25; "
        "without association σ = .1",
    )
    for n, goal in GOALS.items():
        epsilon = assign(n, TIERS, SHARES)
        middle = MEANS[np.searchsorted(TIERS, epsilon)]
        old = sv.Mean(bounds=(0, 1), **BEFORE).plan(epsilon)
        new = sv.Mean(bounds=(0, 1)).plan(epsilon)
        drawn, deviation = draw_errors(epsilon, middle)
        _, best = find_best_threshold_in_hindsight(
            TIERS.tolist(), lambda t, e=epsilon, m=middle: threshold_error(e, m, t)
        )
        flat = np.full(n, 0.5)
        table.add_row(
            f"{n:,}",
            f"{math.sqrt(compute_error(old, middle, SPREAD)):.2g}",
            f"{math.sqrt(compute_error(new, middle, SPREAD)):.2g}",
            f"{goal:g}",
            f"{drawn:.2g} ± {deviation:.1g}",
            f"{math.sqrt(best):.2g}",
            f"{math.sqrt(compute_error(old, flat, 0.1)):.2g}",
            f"{math.sqrt(compute_error(new, flat, 0.1)):.2g}",
            f"{new.who_pays()[-1]['spent']:.2g} of 1",
            f"{new.representative:.0%}",
        )
    console.print(table)


def threshold_error(epsilon: Any, middle: Any, t: float) -> float:
    """The same of everybody from t on, at t."""
    kept = epsilon >= t
    bias = middle[kept].mean() - middle.mean()
    return float(bias**2 + SPREAD**2 / kept.sum() + 2 / (kept.sum() * t) ** 2)


def draw_errors(epsilon: Any, middle: Any) -> tuple[float, float]:
    """Root mean square error of drawn releases about drawn tables, and its standard error."""
    rng = np.random.default_rng(0)
    question = sv.Mean(bounds=(0, 1))
    budgets = sv.Budgets.of(epsilon)
    plan = question.plan_for(budgets)
    errors = []
    for _ in range(RELEASES if len(epsilon) < 10**5 else RELEASES // 8):
        # within the bounds, so that nothing is clipped
        values = middle + rng.choice([-SPREAD, SPREAD], len(epsilon))
        rows = question.read_arrays(values, epsilon=budgets, groups=None)
        errors.append((question.release_under(plan, rows).value - middle.mean()) ** 2)
    mean = float(np.mean(errors))
    return math.sqrt(mean), float(np.std(errors) / math.sqrt(len(errors)) / 2 / math.sqrt(mean))


def list_columns(paths: list[str]) -> Iterator[tuple[str, Any, tuple[float, float]]]:
    """Columns of numbers of real tables, with round bounds around them."""
    loaders = {
        "diabetes": lambda: datasets.load_diabetes(scaled=False),
        "breast cancer": datasets.load_breast_cancer,
        "wine": datasets.load_wine,
        "iris": datasets.load_iris,
        "linnerud": datasets.load_linnerud,
    }
    for name, load in loaders.items():
        data = load()
        for column, values in zip(data.feature_names, data.data.T, strict=True):
            if len(np.unique(values)) > 2:
                yield f"{name}, {column}", values, round_outward(values)
    for path in paths:
        for column, values in pyarrow.csv.read_csv(path).to_pydict().items():
            if isinstance(values[0], int | float):
                yield f"{path}, {column}", np.array(values, float), round_outward(values)


def round_outward(values: Any) -> tuple[float, float]:
    """From 0 (or below) to the next of 1, 2, 5, 10, …: as somebody would guess."""
    top = max(np.max(values), -min(np.min(values), 0.0))
    power = 10.0 ** math.floor(math.log10(top))
    high = next(k * power for k in (1, 2, 5, 10) if k * power >= top)
    return (-high if np.min(values) < 0 else 0.0), high


def show_columns(paths: list[str]) -> None:
    """Geometric means over real columns, against the default before."""
    table = Table(
        "budgets",
        "columns",
        "trusting (association=0)",
        "default",
        "threshold in hindsight",
        "default, budgets go along",
        title="Mean square errors of means of real columns ÷ what was the default before. Budgets "
        "go along with nothing; in the last column by a fifth of the standard deviation, the worst "
        f"way. Aim: {GOAL:g}",
    )
    everything: dict[str, list[float]] = {}
    for name, (epsilon, shares) in PROFILES.items():
        found: dict[str, list[float]] = {}
        for _, values, bounds in list_columns(paths):
            for way, ratio in compare_errors(
                values, bounds, assign(len(values), epsilon, shares)
            ).items():
                found.setdefault(way, []).append(ratio)
                everything.setdefault(way, []).append(ratio)
        count = len(found["default"])
        table.add_row(name, str(count), *map(tell_geometric_mean, found.values()))
    table.add_row(
        "all", str(len(everything["default"])), *map(tell_geometric_mean, everything.values())
    )
    console.print(table)


def compare_errors(values: Any, bounds: tuple[float, float], epsilon: Any) -> dict[str, float]:
    """Mean square errors of one column, by the way, as multiples of what they were before."""
    width = bounds[1] - bounds[0]
    sigma = float(np.std(values)) / width
    nothing = np.zeros(len(values))
    old = sv.Mean(bounds=bounds, **{**BEFORE, "spread": width / 2}).plan(epsilon)
    trusting = sv.Mean(bounds=bounds, association=0).plan(epsilon)
    new = sv.Mean(bounds=bounds).plan(epsilon)
    before = compute_error(old, nothing, sigma, width)
    _, best = find_best_threshold_in_hindsight(
        np.unique(epsilon).tolist(),
        lambda t: sigma**2 / (epsilon >= t).sum() + 2 / ((epsilon >= t).sum() * t) ** 2,
    )
    return {
        "trusting": compute_error(trusting, nothing, sigma, width) / before,
        "default": compute_error(new, nothing, sigma, width) / before,
        "threshold": best / before,
        "along": compute_worst_error(new, sigma, width) / compute_worst_error(old, sigma, width),
    }


def compute_worst_error(plan: sv.Plan, sigma: float, width: float) -> float:
    """The mean square error if people with one budget are off by σ/5, each the worse way."""
    share = plan.weights.row[plan.budgets.row_codes()] / plan.weights.total
    bias = sigma / 5 * float(np.abs(share - 1 / len(share)).sum())
    return bias**2 + compute_error(plan, np.zeros(len(share)), sigma, width)


def show_fixed(paths: list[str]) -> None:
    """Both aims for one share of the spread as association, and for the default."""
    table = Table(
        "association / spread",
        *(f"{n:,} (≤ {goal:g})" for n, goal in GOALS.items()),
        f"columns (≤ {GOAL:g})",
        "columns, budgets go along",
        title="Root mean square errors of the tiers, and mean square errors of real columns ÷ what "
        "was the default before",
    )
    for share in FIXED:
        name = str(share)
        if share is None:
            name = "default"
        table.add_row(name, *describe_tiers(share), *describe_columns(paths, share))
    console.print(table)


def make_mean(bounds: tuple[float, float], share: float | None) -> sv.Mean:
    """The mean with this association, as a share of a tenth of the range."""
    if share is None:
        return sv.Mean(bounds=bounds)
    return sv.Mean(bounds=bounds, association=share * (bounds[1] - bounds[0]) / 10)


def describe_tiers(share: float | None) -> list[str]:
    """The errors of the tiers, and where they are too large."""
    told = []
    for n, goal in GOALS.items():
        epsilon = assign(n, TIERS, SHARES)
        middle = MEANS[np.searchsorted(TIERS, epsilon)]
        error = math.sqrt(compute_error(make_mean((0, 1), share).plan(epsilon), middle, SPREAD))
        told.append(f"{error:.2g}" + " missed" * (error > goal))
    return told


def describe_columns(paths: list[str], share: float | None) -> list[str]:
    """The geometric means over real columns: budgets go along with nothing, and the worst way."""
    nothing, along = [], []
    for epsilon, shares in PROFILES.values():
        for _, values, bounds in list_columns(paths):
            budgets = assign(len(values), epsilon, shares)
            width = bounds[1] - bounds[0]
            sigma = float(np.std(values)) / width
            zeros = np.zeros(len(values))
            old = sv.Mean(bounds=bounds, **{**BEFORE, "spread": width / 2}).plan(budgets)
            new = make_mean(bounds, share).plan(budgets)
            before = compute_error(old, zeros, sigma, width)
            nothing.append(compute_error(new, zeros, sigma, width) / before)
            worst = compute_worst_error(new, sigma, width)
            along.append(worst / compute_worst_error(old, sigma, width))
    return [tell_geometric_mean(nothing), tell_geometric_mean(along)]


def tell_geometric_mean(ratios: list[float]) -> str:
    """The geometric mean, with its standard error over columns."""
    logs = np.log(ratios)
    mean = math.exp(float(logs.mean()))
    return f"{mean:.2f} ± {mean * logs.std() / math.sqrt(len(logs)):.2f}"


if __name__ == "__main__":
    main()
