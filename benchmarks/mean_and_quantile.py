# SPDX-License-Identifier: Apache-2.0
"""A mean and a median of a million rows: ours, OpenDP's, diffprivlib's and NumPy's, on the same
rows in one run.

Our time is told in two parts. The *plan* is all that follows from budgets alone: weights, noise,
charges, the summary of the promise and the digest. The *run* is all that comes after: checking that
the rows are fit, the exact statistic, the noise, the release.

    python benchmarks/mean_and_quantile.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import best_times, console, show

import sottovoce as sv
from sottovoce.estimator import Estimator, load_column, refuse_invalid_rows

ROWS = 10**6
LOW = 0.0
HIGH = 100.0
CANDIDATES = 1000
TIERS = (0.1, 0.5, 1.0)
#: The last diffprivlib, and the scikit-learn that it can still be imported with.
DIFFPRIVLIB = ("diffprivlib==0.6.6", "scikit-learn<1.8")


def main() -> None:
    """Prints three tables: plan, mean, median."""
    rng = np.random.default_rng(0)
    values = rng.normal(50.0, 10.0, ROWS)
    budgets = {"different": rng.uniform(0.1, 2.0, ROWS), "3 tiers": rng.choice(TIERS, ROWS)}
    mean = sv.Mean(bounds=(LOW, HIGH))
    median = sv.Quantile(q=0.5, bounds=(LOW, HIGH))
    diffprivlib = diffprivlib_times(values)
    show_plans({"mean": mean, "median": median}, budgets)

    times = best_times(
        {
            "NumPy, no privacy": lambda: np.clip(values, LOW, HIGH).mean(),
            "OpenDP": opendp_mean(values),
        }
        | {
            f"ours, run, {name} budgets": ours(mean, values, epsilon)
            for name, epsilon in budgets.items()
        }
    )
    targets = {name: ("OpenDP", 2.0) for name in times if name.startswith("ours")}
    show(f"Mean of {ROWS:,} rows", times | diffprivlib["mean"], "OpenDP", targets)

    times = best_times(
        {"NumPy, no privacy": lambda: np.median(np.clip(values, LOW, HIGH))}
        | {
            "OpenDP": opendp_median(values),
            "OpenDP, scores then noisy max": opendp_noisy_max(values),
        }
        | {
            f"ours, run, {name} budgets": ours(median, values, epsilon)
            for name, epsilon in budgets.items()
        }
    )
    targets = {name: ("OpenDP", 1.0) for name in times if name.startswith("ours")}
    show(f"Median of {ROWS:,} rows", times | diffprivlib["median"], "OpenDP", targets)
    console.print(diffprivlib["note"])


def show_plans(questions: dict[str, Any], budgets: dict[str, Any]) -> None:
    """Times the plans of all questions, in argsorts of as many doubles."""
    times = best_times(
        {"argsort": lambda: np.argsort(budgets["different"])}
        | {
            f"{what}, {name} budgets": planned(q, e)
            for what, q in questions.items()
            for name, e in budgets.items()
        }
    )
    targets = {name: ("argsort", 10.0) for name in times if "different" in name}
    show(f"Plan for {ROWS:,} rows", times, "argsort", targets)


def planned(question: Any, epsilon: Any) -> Callable[[], object]:
    """Everything that can be done before a value is read."""

    def plan() -> None:
        made = question.plan(epsilon)
        _ = made.digest, made.promise  # kept with the plan once they are asked for

    return plan


def ours(question: Estimator, values: Any, epsilon: Any) -> Callable[[], object]:
    """Everything after the plan."""
    rows = load_column(values, epsilon=epsilon, groups=None)
    budgets = rows.budgets
    plan = question.plan_for(budgets)
    _ = plan.digest, plan.promise

    def answer() -> None:
        refuse_invalid_rows(question, plan, rows)
        question.release_under(plan, rows)

    return answer


def opendp_mean(values: Any) -> Callable[[], object]:
    """OpenDP's mean: clamp, resize to the public size, mean, Laplace noise."""
    dp = _opendp()
    domain = _domain()
    clamped = (
        domain >> dp.t.then_clamp((LOW, HIGH)) >> dp.t.then_resize(ROWS, constant=(LOW + HIGH) / 2)
    )
    measurement = clamped >> dp.t.then_mean() >> dp.m.then_laplace(scale=(HIGH - LOW) / ROWS)
    return lambda: measurement(values)


def opendp_median(values: Any) -> Callable[[], object]:
    """OpenDP's quantile in one piece."""
    dp = _opendp()
    measure = dp.max_divergence()
    measurement = _domain(size=ROWS) >> dp.m.then_private_quantile(
        measure, _candidates(), alpha=0.5, scale=2.0
    )
    return lambda: measurement(values)


def opendp_noisy_max(values: Any) -> Callable[[], object]:
    """OpenDP's quantile from its parts."""
    dp = _opendp()
    scored = _domain(size=ROWS) >> dp.t.then_quantile_score_candidates(_candidates(), alpha=0.5)
    measurement = scored >> dp.m.then_noisy_max(dp.max_divergence(), scale=2.0, negate=True)
    return lambda: measurement(values)


def _candidates() -> Any:
    return np.linspace(LOW, HIGH, CANDIDATES)


def _domain(size: int | None = None) -> Any:
    dp = _opendp()
    return dp.vector_domain(dp.atom_domain(T=float, nan=False), size=size), dp.symmetric_distance()


def _opendp() -> Any:
    import opendp.prelude as dp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dp.enable_features("contrib", "idealized-numerics")
    return dp


def diffprivlib_times(values: Any) -> dict[str, Any]:
    """Times diffprivlib in an environment of its own, or says why that cannot be done."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "values.npy")
        script = Path(__file__).with_name("diffprivlib_peer.py")
        np.save(rows, values)
        try:
            subprocess.run(
                [sys.executable, "-m", "venv", f"{folder}/venv"], check=True, capture_output=True
            )
            python = f"{folder}/venv/bin/python"
            subprocess.run(
                [python, "-m", "pip", "install", "-q", *DIFFPRIVLIB],
                check=True,
                capture_output=True,
            )
            done = subprocess.run(
                [python, script, rows, str(LOW), str(HIGH)], check=True, capture_output=True
            )
        except subprocess.CalledProcessError as error:
            reason = (error.stderr.decode().strip().splitlines() or ["no reason given"])[-1]
            return {
                "mean": {},
                "median": {},
                "note": f"diffprivlib cannot be installed or imported here: {reason}",
            }
    times = json.loads(done.stdout)
    note = (
        "diffprivlib ran in an environment of its own, before the others: "
        + ", ".join(DIFFPRIVLIB)
        + "."
    )
    return {q: {"diffprivlib": times[q]} for q in ("mean", "median")} | {"note": note}


if __name__ == "__main__":
    main()
