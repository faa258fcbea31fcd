# SPDX-License-Identifier: Apache-2.0
"""Runs every benchmark, each in a process of its own.

python benchmarks/run.py            some minutes; large files with two million rows
python benchmarks/run.py --full     with fifty million
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    "weights",
    "mean_and_quantile",
    "representative",
    "regression",
    "right",
    "logistic",
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
    "regression": ("--quick",),
    "right": ("--quick",),
    "logistic": ("--quick",),
    "erm": ("--draws", "4"),
    "ledger": ("--people", "200000"),
    "engines": ("--rows", "2000000"),
    "web": ("--people", "200000"),
    "large_files": ("--rows", "2000000"),
    "large_regression": ("--rows", "2000000"),
}


def main() -> None:
    """Runs them one after the other, so that none disturbs another."""
    for name in SCRIPTS:
        if "--full" in sys.argv[1:]:
            options = ()
        else:
            options = REDUCED.get(name, ())
        subprocess.run(
            [sys.executable, Path(__file__).with_name(f"{name}.py"), *options], check=True
        )


if __name__ == "__main__":
    main()
