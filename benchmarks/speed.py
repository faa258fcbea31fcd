# SPDX-License-Identifier: Apache-2.0
"""How long the main questions take, over what a peer takes for the same rows, and beside what the
machine itself needs: a bare scan of the rows, and one pass of BLAS over them.

    python benchmarks/speed.py                 a million rows, some minutes
    python benchmarks/speed.py --rows 100000   to try it
    python benchmarks/speed.py --only ridge    one part: ridge, logistic, column, names

Every competitor runs in a process of its own, once to warm up and then several times, in both
orders. Ratios of the clock count on a quiet machine; on a busy one those of the processor's time
do (all threads together), for which BLAS is kept to one thread in ours and in the peers:
OPENBLAS_NUM_THREADS=1 python benchmarks/speed.py.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from mean_and_quantile import opendp_mean, opendp_noisy_max, ours
from rich.table import Table
from sklearn.linear_model import LogisticRegression, Ridge
from timing import best_times, console, verdict

import sottovoce as sv

TIERS = (0.1, 0.5, 2.0)
ROUNDS = 6


@dataclass(frozen=True)
class Case:
    """One question: who answers it, who is the measure, and what ours may take."""

    title: str
    peer: str
    competitors: Mapping[str, Callable[[], object]]
    allowed: Mapping[str, float]  # of the peer's time
    limits: str  # what the time goes into


def list_ridge_cases(n: int, p: int = 20) -> list[Case]:
    """Regressions: the default with noisy and noise-free labels, and noisy statistics."""
    rng = np.random.default_rng(3)
    X = rng.random((n, p))
    slopes = rng.normal(size=p)
    tiers = rng.choice(TIERS, n)
    different = rng.uniform(0.1, 2.0, n)
    clean = X @ slopes
    noisy = clean + rng.normal(size=n)
    bounds = sv.Bounds(features=(np.zeros(p), np.ones(p)), label=(-10, 10))
    default = sv.Ridge(bounds=bounds)
    statistics = sv.Ridge(bounds=bounds, method="statistics", alpha=1e-4)
    limits = {
        "a bare scan": lambda: X.sum(),
        "one pass of BLAS": lambda: X.T @ X,
        "scikit-learn": lambda: Ridge().fit(X, noisy, sample_weight=tiers),
    }
    return [
        Case(
            f"weighted ridge, {n:,} × {p}",
            "scikit-learn",
            limits
            | {
                "default, noisy labels": lambda: default.fit(X, noisy, epsilon=tiers),
                "default, noise-free labels": lambda: default.fit(X, clean, epsilon=tiers),
                "statistics, three tiers": lambda: statistics.fit(X, noisy, epsilon=tiers),
                "statistics, all different": lambda: statistics.fit(X, noisy, epsilon=different),
            },
            {
                "default, noisy labels": 4.0,
                "default, noise-free labels": 4.0,
                "statistics, three tiers": 1.0,
                "statistics, all different": 1.0,
            },
            "default: two fits of all columns and one of the intercept, each with a look at the "
            "curvature (one pass of BLAS and one product), two or three at slopes and a "
            "certificate in pairs of doubles; four passes for intervals. Statistics: recoding, one "
            "exact pass of BLAS",
        )
    ]


def list_logistic_cases(n: int, p: int = 30) -> list[Case]:
    """Classifiers with a certificate, for a tenth of the rows and for all."""
    found = []
    for rows in (n // 10, n):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (rows, p))
        y = (rng.random(rows) < 1 / (1 + np.exp(-X @ rng.normal(size=p)))).astype(int)
        tiers = np.array([0.01, 0.2, 1.0])[rng.integers(0, 3, rows)]
        different = rng.uniform(0.1, 2.0, rows)
        ask = sv.LogisticRegression(bounds=sv.Bounds(features=(-1, 1)))
        ridge = ask.plan(epsilon=tiers, n_features=p).parameters["alpha"]
        plain = LogisticRegression(solver="newton-cholesky", C=1 / (rows * ridge))

        def fit(epsilon: Any, ask: Any = ask, X: Any = X, y: Any = y) -> Callable[[], object]:
            return lambda: ask.fit(X, y, epsilon=epsilon)

        found.append(
            Case(
                f"logistic regression, {rows:,} × {p}",
                "newton-cholesky",
                {
                    "a bare scan": lambda X=X: X.sum(),
                    "one pass of BLAS": lambda X=X: X.T @ X,
                    "newton-cholesky": lambda plain=plain, X=X, y=y, w=tiers: plain.fit(
                        X, y, sample_weight=w / w.mean()
                    ),
                    "three tiers": fit(tiers),
                    "all different": fit(different),
                },
                {"three tiers": 1.2, "all different": 1.2},
                "one look at the curvature, some five at slopes, a certificate in long floats, and "
                "three passes for intervals",
            )
        )
    return found


def list_column_cases(n: int) -> list[Case]:
    """A mean and a median of one column."""
    rng = np.random.default_rng(0)
    values = rng.normal(50.0, 10.0, 10**6)[:n]
    different = rng.uniform(0.1, 2.0, n)
    mean = sv.Mean(bounds=(0.0, 100.0))
    median = sv.Quantile(q=0.5, bounds=(0.0, 100.0))
    scan = {"a bare scan": lambda: np.clip(values, 0.0, 100.0).sum()}
    found = []
    for what, question, peer in (
        ("mean", mean, opendp_mean),
        ("median", median, opendp_noisy_max),
    ):
        found.append(
            Case(
                f"{what} of {n:,} rows, after the plan",
                "OpenDP",
                scan | {"OpenDP": peer(values), "all different": ours(question, values, different)},
                {"all different": 1.0},
                "weights by row, rounding to the grid, a weighted count or sum",
            )
        )
    return found


def show_case(case: Case) -> None:
    """Prints ratios to the peer by the clock and by the processor."""
    times: Any = best_times(case.competitors, ROUNDS)
    measure = times[case.peer]
    table = Table(
        "",
        "best ms",
        f"÷ {case.peer}",
        "CPU ms",
        f"÷ {case.peer}",
        "promised",
        "",
        title=case.title,
        caption=f"What limits it: {case.limits}.",
    )
    for name, seconds in times.items():
        told = ("", "")
        if name in case.allowed:
            allowed = case.allowed[name]
            told = (f"{allowed:g}", verdict(seconds / measure, allowed))
        table.add_row(
            name,
            f"{seconds * 1e3:.1f}",
            f"{seconds / measure:.2f}",
            f"{seconds.cpu * 1e3:.1f}",
            f"{seconds.cpu / measure.cpu:.2f}",
            *told,
        )
    console.print(table)


PLAN = """
import sys, numpy, sottovoce as sv
names = numpy.load(sys.argv[1])
print(sv.Mean(bounds=(0, 100)).plan(numpy.linspace(0.1, 2.0, len(names)), groups=names).digest)
"""


def show_named_plan(n: int) -> None:
    """Times a plan for people named by text, in a fresh interpreter, beside the bare start of one
    that reads the names.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "names.npy")
        np.save(path, np.array([f"person-{i:09d}" for i in range(n)]))
        bare = "import sys, numpy, pyarrow; numpy.load(sys.argv[1])"
        table = Table("", "s", "CPU s", title=f"plan for {n:,} people named by text, a cold start")
        for name, program in (("start, and the names", bare), ("the plan", PLAN)):
            seen = [_run_cold(program, path) for _ in range(3)]
            table.add_row(name, *(f"{min(column):.2f}" for column in zip(*seen, strict=True)))
        console.print(table)


def _run_cold(program: str, path: Path) -> tuple[float, float]:
    before = os.times()
    start = perf_counter()
    subprocess.run([sys.executable, "-c", program, path], check=True, capture_output=True)
    after = os.times()
    worked = after.children_user + after.children_system
    return perf_counter() - start, worked - before.children_user - before.children_system


def main() -> None:
    """Prints one table a question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--only", choices=("ridge", "logistic", "column", "names"))
    chosen = parser.parse_args()
    parts = {
        "ridge": list_ridge_cases,
        "logistic": list_logistic_cases,
        "column": list_column_cases,
    }
    for name, list_cases in parts.items():
        if chosen.only in (None, name):
            for case in list_cases(chosen.rows):
                show_case(case)
    if chosen.only in (None, "names"):
        show_named_plan(chosen.rows)


if __name__ == "__main__":
    main()
