# SPDX-License-Identifier: Apache-2.0
"""Means and quantiles at the frontier: the defaults against rivals, cell by cell.

Rivals keep the same promises. "Threshold" drops people below a budget and treats all others as if
they had granted just that, at the budget that turns out best in the very cell shown: in hindsight.
"Smallest" gives everybody the smallest budget. Means are also compared with weights that trust that
budgets go along with nothing, and are told the true spread; quantiles with ApproximateQuantiles at
the threshold that is best for it. Ours makes public choices only.

    means        mean square errors against the population, computed from plans and not drawn
    quantiles    shares of the population between answer and quantile, with standard errors

No constant was chosen on these cells. Columns on which the default association and the window were
chosen are those of representative.py and narrow.py. A cell is lost where a rival is below .95.

    python benchmarks/frontier_columns.py [--draws 16] [--only means]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from quantiles import approximate_quantiles
from representative import compute_error
from rich.progress import track
from timing import console

import sottovoce as sv

LOST_BELOW = 0.95
#: Budgets and how many people grant each.
PROFILES = {
    "tiers .05/.3/1": (np.array([0.05, 0.3, 1.0]), np.array([0.3, 0.4, 0.3])),
    "few with much": (np.array([0.1, 5.0]), np.array([0.95, 0.05])),
    "two halves": (np.array([0.2, 0.8]), np.array([0.5, 0.5])),
}
#: How far means of the smallest and the largest budget lie from the middle, in deviations.
ALONG = (0.0, 0.1, 0.4)
SPREADS = (0.07, 0.2)
PEOPLE = (300, 1000, 10_000, 100_000)
LOW, HIGH = 0.0, 20.0
#: Columns of values between the bounds, and their step.
COLUMNS: dict[str, tuple[Callable[[np.random.Generator, int], Any], float | None]] = {
    "skewed": (lambda rng, n: 20 * rng.beta(2, 6, n), None),
    "two humps": (lambda rng, n: np.where(rng.random(n) < 0.4, 5, 14) + rng.normal(size=n), None),
    "waiting times": (lambda rng, n: rng.exponential(3, n), None),
    "whole numbers": (lambda rng, n: rng.binomial(20, 0.3, n).astype(float), 1.0),
}
QUESTIONS = {"median": [0.5], "nine": [j / 10 for j in range(1, 10)]}
QUANTILE_PEOPLE = (1000, 5000)


def main() -> None:
    """Prints the cells, and those that are lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=16, help="tables for a cell of quantiles")
    parser.add_argument("--only", choices=("means", "quantiles"))
    given = parser.parse_args()
    if given.only != "quantiles":
        show_means()
    if given.only != "means":
        show_quantiles(given.draws)


def assign(people: int, profile: str) -> Any:
    """Budgets of people, sorted, with the shares of the profile."""
    epsilon, shares = PROFILES[profile]
    edges = np.rint(np.cumsum(shares) * people).astype(int)
    return epsilon[np.searchsorted(edges, np.arange(people), side="right").clip(max=len(edges) - 1)]


def shift_with_budgets(epsilon: Any) -> Any:
    """A number from 1 for the smallest budget to −1 for the largest."""
    levels = np.unique(epsilon)
    return np.linspace(1, -1, len(levels))[np.searchsorted(levels, epsilon)]


# ---------------------------------------------------------------- means


def measure_mean(people: int, profile: str, along: float, spread: float) -> dict[str, float]:
    """Mean square errors: ours, and each rival's over it."""
    epsilon = assign(people, profile)
    middle = 0.5 + along * spread * shift_with_budgets(epsilon)

    def find_error(**options: Any) -> float:
        return compute_error(sv.Mean(bounds=(0, 1), **options).plan(epsilon), middle, spread)

    def find_threshold_error(t: float) -> float:
        kept = epsilon >= t
        bias = middle[kept].mean() - middle.mean()
        return float(bias**2 + spread**2 / kept.sum() + 2 / (kept.sum() * t) ** 2)

    levels = np.unique(epsilon)
    rivals = {
        "threshold": min(map(find_threshold_error, levels)),
        "smallest": find_threshold_error(levels[0]),
        "trusting": find_error(spread=spread, association=0, interval_share=0, scale="bounds"),
    }
    ours = find_error()
    return {"ours": ours, **{name: error / ours for name, error in rivals.items()}}


def show_means() -> None:
    """Prints, for each cell, the threshold's, the smallest budget's and trusting weights' error."""
    heads = ["budgets", "go along by", "spread", *(f"{n:,} people" for n in PEOPLE)]
    tell("Means: threshold / smallest ε / trusting weights, mean square errors over ours", heads)
    logs: dict[str, list[float]] = {}
    for profile in PROFILES:
        for along in ALONG:
            for spread in SPREADS:
                cells = [measure_mean(n, profile, along, spread) for n in PEOPLE]
                told = []
                for cell in cells:
                    rivals = [cell[name] for name in ("threshold", "smallest", "trusting")]
                    told.append(" / ".join(map(tell_ratio, rivals)))
                    for name in ("threshold", "smallest", "trusting"):
                        logs.setdefault(name, []).append(math.log(cell[name]))
                tell_line([profile, f"{along:g} σ", f"{spread:g}", *told])
    summarise(logs)


# ---------------------------------------------------------------- quantiles


def measure_share(population: Any, q: list[float], answers: Any) -> float:
    """Mean over quantiles of the share of the population between the answer and the quantile.

    A ten-thousandth is added: among whole numbers the right one has no error, and ratios need some.
    """
    below = np.searchsorted(population, np.asarray(answers) - 1e-9, side="left")
    reached = np.searchsorted(population, np.asarray(answers) + 1e-9, side="right")
    aims = np.array(q) * len(population)
    apart = np.maximum(np.maximum(below - aims, aims - reached), 0)
    return float(apart.mean() / len(population)) + 1e-4


def measure_quantiles(
    name: str, question: str, profile: str, along: float, people: int, draws: int
) -> dict[str, tuple[float, float]]:
    """The share that ours misses, and each rival's over it, at its best threshold."""
    draw, step = COLUMNS[name]
    q = QUESTIONS[question]
    rng = np.random.default_rng(17)
    epsilon = assign(people, profile)
    levels = np.unique(epsilon)
    many = draw(rng, 200_000)
    moves = along * many.std() * shift_with_budgets(assign(len(many), profile))
    population = np.sort(np.clip(many + moves, LOW, HIGH))
    ours = []
    rivals: dict[tuple[str, float], list[float]] = {}
    for _ in range(draws):
        moved = along * many.std() * shift_with_budgets(epsilon)
        values = np.clip(draw(rng, people) + moved, LOW, HIGH)
        asked = sv.Quantile(q, bounds=(LOW, HIGH), step=step)
        ours.append(measure_share(population, q, asked.fit(values, epsilon=epsilon).value_))
        for t in levels:
            mine = values[epsilon >= t]
            alone = sv.Quantile(q, bounds=(LOW, HIGH), step=step, interval_share=interval_of(q))
            found = {
                "threshold": alone.fit(mine, epsilon=float(t)).value_,
                "approximate": approximate_quantiles(rng, mine, q, float(t)),
            }
            if step:
                found["approximate"] = np.rint(found["approximate"])
            for rival, answers in found.items():
                own = measure_share(population, q, answers)
                rivals.setdefault((rival, t), []).append(own)
    told = {"ours": tell_mean(ours)}
    for rival in ("threshold", "approximate"):
        best = min((errors for (own, _), errors in rivals.items() if own == rival), key=np.mean)
        told[rival] = compare(best, ours)
    told["smallest"] = compare(rivals["threshold", levels[0]], ours)
    return told


def interval_of(q: list[float]) -> float | None:
    """A rival buys no interval; of several quantiles none is bought anyway."""
    if len(q) == 1:
        return 0.0
    return None


def tell_mean(errors: list[float]) -> tuple[float, float]:
    return float(np.mean(errors)), float(np.std(errors, ddof=1) / math.sqrt(len(errors)))


def compare(theirs: list[float], ours: list[float]) -> tuple[float, float]:
    """The ratio of means, and its standard error."""
    ratio = np.mean(theirs) / np.mean(ours)
    apart = np.array(theirs) - ratio * np.array(ours)
    return float(ratio), float(apart.std(ddof=1) / np.mean(ours) / math.sqrt(len(ours)))


def show_quantiles(draws: int) -> None:
    """Prints, for each cell, ours and each rival over it."""
    heads = ["quantiles", "column", "budgets", "go along by", "people", "ours, ‰"]
    heads += ["threshold", "smallest ε", "ApproximateQuantiles"]
    tell(f"Quantiles: mean rank errors over ours, {draws} tables a cell", heads)
    logs: dict[str, list[float]] = {}
    cells = [
        (name, question, profile, along, people)
        for question in QUESTIONS
        for name in COLUMNS
        for profile in PROFILES
        for along in ALONG[::2]
        for people in QUANTILE_PEOPLE
        # Whole numbers that moved would be none.
        if not (along and COLUMNS[name][1]) and not (along and profile != "tiers .05/.3/1")
    ]
    for name, question, profile, along, people in track(cells, console=console, transient=True):
        told = measure_quantiles(name, question, profile, along, people, draws)
        share, error = told["ours"]
        line = [question, name, profile, f"{along:g} σ", f"{people:,}"]
        line.append(f"{1000 * share:.1f} ± {1000 * error:.1f}")
        for rival in ("threshold", "smallest", "approximate"):
            ratio, spread = told[rival]
            line.append(f"{tell_ratio(ratio)} ± {spread:.2f}")
            logs.setdefault(rival, []).append(math.log(ratio))
        tell_line(line)
    summarise(logs)


# ---------------------------------------------------------------- words


def tell_ratio(ratio: float) -> str:
    """A rival's error over ours, bold where ours is lost."""
    if ratio < LOST_BELOW:
        return f"**{ratio:.2f}**"
    return f"{ratio:.3g}"


def tell(title: str, heads: list[str]) -> None:
    console.print(f"\n{title}\n", markup=False, soft_wrap=True)
    tell_line(heads)
    tell_line(["---"] * len(heads))


def tell_line(cells: list[str]) -> None:
    console.print("| " + " | ".join(cells) + " |", markup=False, highlight=False, soft_wrap=True)


def summarise(logs: dict[str, list[float]]) -> None:
    """Geometric means, and how many cells are lost."""
    for name, own in logs.items():
        lost = sum(one < math.log(LOST_BELOW) for one in own)
        console.print(
            f"{name} over ours, geometric mean: {math.exp(np.mean(own)):.2f}; "
            f"ahead by more than 5 % in {lost} of {len(own)} cells.",
            markup=False,
            soft_wrap=True,
        )


if __name__ == "__main__":
    main()
