# SPDX-License-Identifier: Apache-2.0
"""Several quantiles at once: how many people lie between an answer and the quantile of the rows.

Ours, chosen together and one after another, and ApproximateQuantiles (Kaplan, Schnapp and Stemmer
2022) written here in doubles, at one ε for all, neighbours by replace. It halves the list of
quantiles, each time among the values between two answers, with the exponential mechanism; replacing
somebody is leaving out and adding, so each of its rounds costs twice. JointExp's published figures
are for such tables as the first one. Ten seeds; ± is the standard error over them.

    python benchmarks/quantiles.py
    python benchmarks/quantiles.py --fine       also the median of 50,000 on coarse and fine grids
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console

import sottovoce as sv

ROWS = 1000
SEEDS = 10
TABLES = 4  # a seed
#: Mean rank error of JointExp, by how many quantiles.
PUBLISHED = {9: 6.7, 19: 9.2}
#: How values in [0, 20] are drawn; those with a step are whole numbers.
COLUMNS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float | None]] = {
    "normal": (lambda rng, n: rng.normal(10, 2, n), None),
    "even": (lambda rng, n: rng.uniform(0, 20, n), None),
    "lognormal": (lambda rng, n: rng.lognormal(0, 1, n), None),
    "mostly zero": (lambda rng, n: (rng.random(n) < 0.3) * rng.uniform(0, 20, n), None),
    "whole numbers, no step": (lambda rng, n: rng.poisson(4, n).astype(float), None),
    "whole numbers, step = 1": (lambda rng, n: rng.poisson(4, n).astype(float), 1.0),
}
LOW, HIGH = 0.0, 20.0
console = Console()


def measure(values: np.ndarray, q: list[float], answers: np.ndarray) -> float:
    """Mean over quantiles of the people between the answer and the quantile."""
    ordered = np.sort(np.clip(values, LOW, HIGH))
    below = np.searchsorted(ordered, answers - 1e-9, side="left")
    reached = np.searchsorted(ordered, answers + 1e-9, side="right")
    aims = np.array(q) * len(values)
    return float(np.maximum(np.maximum(below - aims, aims - reached), 0).mean())


def approximate_quantiles(
    rng: np.random.Generator, values: np.ndarray, q: list[float], epsilon: float
) -> np.ndarray:
    """ApproximateQuantiles over the real line between the bounds."""
    rounds = math.floor(math.log2(len(q))) + 1
    each = epsilon / (2 * rounds)
    answers = np.empty(len(q))

    def fill(first: int, last: int, low: float, high: float, inside: np.ndarray) -> None:
        if first >= last:
            return
        middle = (first + last) // 2
        before = q[first - 1] if first else 0.0
        after = q[last] if last < len(q) else 1.0
        share = (q[middle] - before) / (after - before)
        ends = np.concatenate([[low], np.sort(inside), [high]])
        score = np.abs(np.arange(len(ends) - 1) - share * len(inside))
        with np.errstate(divide="ignore"):
            weight = np.log(np.diff(ends)) - score * each / 2
        if not np.isfinite(weight).any():
            answers[first:last] = low
            return
        chance = np.exp(weight - weight.max())
        gap = rng.choice(len(chance), p=chance / chance.sum())
        answers[middle] = rng.uniform(ends[gap], ends[gap + 1])
        fill(first, middle, low, answers[middle], inside[inside <= answers[middle]])
        fill(middle + 1, last, answers[middle], high, inside[inside > answers[middle]])

    # A little noise tells equal values apart, as its authors advise.
    spread = np.clip(values + rng.uniform(-1e-6, 1e-6, len(values)), LOW, HIGH)
    fill(0, len(q), LOW, HIGH, spread)
    return answers


def compare(count: int) -> None:
    """Prints one line for each column."""
    q = [j / (count + 1) for j in range(1, count + 1)]
    for name, (draw, step) in COLUMNS.items():
        errors: dict[str, list[float]] = {"together": [], "apart": [], "approximate": []}
        seconds = []
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            found: dict[str, list[float]] = {key: [] for key in errors}
            for _ in range(TABLES):
                values = draw(rng, ROWS)
                began = time.perf_counter()
                joint = sv.Quantile(q, bounds=(LOW, HIGH), step=step).fit(values, epsilon=1.0)
                seconds.append(time.perf_counter() - began)
                apart = sv.Quantile(
                    q, bounds=(LOW, HIGH), step=step, method="permute-and-flip", interval_share=0
                ).fit(values, epsilon=1.0)
                other = np.round(approximate_quantiles(rng, values, q, 1.0), 4)
                found["together"].append(measure(values, q, np.asarray(joint.value_)))
                found["apart"].append(measure(values, q, np.asarray(apart.value_)))
                if step:
                    other = np.rint(other)
                found["approximate"].append(measure(values, q, other))
            for key, own in found.items():
                errors[key].append(float(np.mean(own)))
        told = [f"{count}", name]
        for own in errors.values():
            told.append(f"{np.mean(own):.1f} ± {np.std(own, ddof=1) / math.sqrt(SEEDS):.1f}")
        for key in ("apart", "approximate"):
            ratio = np.array(errors["together"]) / np.maximum(errors[key], 1e-9)
            told.append(f"{ratio.mean():.2f} ± {ratio.std(ddof=1) / math.sqrt(SEEDS):.2f}")
        told.append(f"{np.median(seconds):.2f} s")
        console.print("| " + " | ".join(told) + " |", highlight=False, soft_wrap=True)


def compare_grids() -> None:
    """Prints the rank error of a median of 50,000 people on grids of several sizes."""
    rng = np.random.default_rng(0)
    for cells in (2**13, 2**18, None):
        errors = []
        for _ in range(20):
            values = rng.normal(10, 0.5, 50_000)
            question = sv.Quantile(0.5, bounds=(0, 100), cells=cells)
            errors.append(abs(np.sum(values <= question.fit(values, epsilon=1.0).value_) - 25_000))
        console.print(f"median of 50,000, cells = {cells}: {np.mean(errors):.1f} people")


def main() -> None:
    """Prints the tables."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--fine", action="store_true", help="compare grids, too")
    given = options.parse_args()
    console.print("quantiles | column | together | apart | ApproximateQuantiles | ratios | time")
    for count, figure in PUBLISHED.items():
        console.print(f"JointExp as published, {count} quantiles: {figure}")
        compare(count)
    if given.fine:
        compare_grids()


if __name__ == "__main__":
    main()
