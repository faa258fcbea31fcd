# SPDX-License-Identifier: Apache-2.0
"""A mean with everybody's own ε beside the baselines: the table of the guide.

2,000 people of whom 54 % grant 0.01, 37 % grant 0.2 and 9 % grant 1, bounds (0, 100), values with
mean μ and standard deviation 20, clipped to the bounds. Numbers are root mean square errors over
releases of fresh tables, with their standard errors; budgets go along with nothing. Where the pull
of null records is undone, the answer is divided by the share of those who were kept.

    python benchmarks/baselines.py [--releases 1000]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.progress import track
from timing import console

import sottovoce as sv

BOUNDS = (0.0, 100.0)
MIDDLE = 50.0
EPSILON = np.repeat([0.01, 0.2, 1.0], [1080, 740, 180])
MEANS = (50, 40, 30)


def undo_pull(question: Any) -> Callable[[Any], float]:
    """Returns the answer without the pull of null records in the middle of the bounds."""
    counted = sum(line["voice"] for line in question.plan(EPSILON).who_pays())

    def undo(fitted: Any) -> float:
        return float((fitted.value_ - (1 - counted) * MIDDLE) / counted)

    return undo


def list_ways() -> dict[str, tuple[Any, Callable[[Any], float]]]:
    """Every line of the table: an estimator, and how its answer is read."""

    def read(fitted: Any) -> float:
        return float(fitted.value_)

    mean = sv.Mean(bounds=BOUNDS)
    ways: dict[str, tuple[Any, Callable[[Any], float]]] = {
        "`sv.Mean`, everybody's own ε": (mean, read),
        "`sv.Mean`, `association=0`": (sv.Mean(bounds=BOUNDS, association=0), read),
        "`Uniform`": (sv.Uniform(mean), read),
    }
    for t in (0.2, 1.0):
        ways[f"`Threshold`, t = {t:g}"] = (sv.Threshold(mean, threshold=t), read)
    for t in ("max", "mean"):
        sampled = sv.Sampled(mean, threshold=t)
        ways[f"`Sampled`, t = {t}"] = (sampled, read)
    for t in ("max", "mean"):
        sampled = sv.Sampled(mean, threshold=t)
        ways[f"`Sampled`, t = {t}, pull undone"] = (sampled, undo_pull(sampled))
    return ways


def measure(question: Any, read: Callable[[Any], float], mu: float, releases: int) -> str:
    """Root mean square error against the population's mean, with its standard error."""
    rng = np.random.default_rng(int(mu))
    squares = []
    truth = np.clip(np.random.default_rng(0).normal(mu, 20, 10**6), *BOUNDS).mean()
    for _ in track(range(releases), console=console, transient=True):
        values = np.clip(rng.normal(mu, 20, len(EPSILON)), *BOUNDS)
        squares.append((read(question.fit(values, epsilon=EPSILON)) - truth) ** 2)
    error = float(np.sqrt(np.mean(squares)))
    spread = float(np.std(squares) / np.sqrt(releases) / (2 * error))
    return f"{error:.2f} ± {spread:.2f}"


def main() -> None:
    """Prints the table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--releases", type=int, default=1000)
    releases = parser.parse_args().releases
    print("| | " + " | ".join(f"μ = {mu}" for mu in MEANS) + " |")
    print("|---" * (len(MEANS) + 1) + "|")
    for name, (question, read) in list_ways().items():
        cells = [measure(question, read, mu, releases) for mu in MEANS]
        print("| " + " | ".join([name, *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
