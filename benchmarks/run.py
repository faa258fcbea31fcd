# SPDX-License-Identifier: Apache-2.0
"""Runs every benchmark, each in a process of its own, and sums up what was promised and kept.

python benchmarks/run.py            some minutes each at most; large files with two million rows
python benchmarks/run.py --full     with fifty million
python benchmarks/run.py labels     those that are named
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from rich.table import Table
from timing import console

SCRIPTS = (
    "speed",
    "growth",
    "weights",
    "mean_and_quantile",
    "quantiles",
    "representative",
    "narrow",
    "tables",
    "tables_accuracy",
    "report",
    "regression",
    "frontier",
    "frontier_columns",
    "delta_regression",
    "right",
    "noise_floor",
    "baselines",
    "logistic",
    "frontier_classification",
    "erm",
    "per_instance",
    "market",
    "ledger",
    "labels",
    "coverage",
    "large_files",
    "large_regression",
    "engines",
    "web",
)
#: Without --full: enough to see the ratios, not to wait for them.
REDUCED = {
    "speed": ("--rows", "100000"),
    "growth": ("--most", "100000"),
    "tables": ("--rows", "1000000"),
    "report": ("10",),
    "regression": ("--quick",),
    "frontier": ("--quick",),
    "delta_regression": ("--tables", "4", "--draws", "2", "--only", "box"),
    "frontier_columns": ("--draws", "4"),
    "frontier_classification": ("--splits", "2"),
    "right": ("--quick",),
    "noise_floor": ("--rounds", "2"),
    "baselines": ("--releases", "50"),
    "logistic": ("--quick",),
    "erm": ("--draws", "4"),
    "ledger": ("--people", "200000"),
    "engines": ("--rows", "2000000"),
    "web": ("--people", "200000"),
    "large_files": ("--rows", "2000000"),
    "large_regression": ("--rows", "2000000"),
}
KEPT = "holds"
MISSED = "does not hold"


class Outcome(NamedTuple):
    """What became of one benchmark."""

    name: str
    seconds: float
    code: int
    kept: int
    missed: list[str]  # the lines that say so


def run_script(name: str, options: tuple[str, ...]) -> Outcome:
    """Runs one, shows what it prints, and counts its verdicts."""
    start = perf_counter()
    command = [sys.executable, Path(__file__).with_name(f"{name}.py"), *options]
    kept = 0
    missed = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if MISSED in line:
                missed.append(" ".join(line.replace("│", " ").split()))
            elif KEPT in line:
                kept += 1
    return Outcome(name, perf_counter() - start, process.returncode, kept, missed)


def show_summary(outcomes: list[Outcome]) -> None:
    """Prints what each took, and how much of what was promised held in this run."""
    table = Table("benchmark", "seconds", "held", "did not", title="Summary")
    for one in outcomes:
        ended = ""
        if one.code:
            ended = f" (ended with {one.code})"
        table.add_row(
            one.name + ended, f"{one.seconds:.0f}", str(one.kept or ""), str(len(one.missed) or "")
        )
    console.print(table)
    for one in outcomes:
        for line in one.missed:
            console.print(f"{one.name}: {line}", markup=False)


def main() -> None:
    """Runs them one after the other, so that none disturbs another."""
    named = [word for word in sys.argv[1:] if word in SCRIPTS]
    outcomes = []
    for name in named or SCRIPTS:
        if "--full" in sys.argv[1:]:
            options = ()
        else:
            options = REDUCED.get(name, ())
        outcomes.append(run_script(name, options))
    show_summary(outcomes)
    if any(one.code for one in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
