# SPDX-License-Identifier: Apache-2.0
"""Optimal weights: a million people in argsorts of as many doubles, and small instances against
CVXPY.

CVXPY solves the same problem with Clarabel, an interior-point method that knows nothing of its
shape. Beside the ratio: the largest difference between two weights, and by how much of itself the
objective of CVXPY's answer lies above the objective of ours (below it, if negative).

    python benchmarks/weights.py
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
from rich.table import Table
from timing import best_times, console, show

import sottovoce as sv

PEOPLE = 10**6
SMALL = (10, 100, 1000)
CONSTANT = 0.01
ASSOCIATION = CONSTANT / 25


def main() -> None:
    """Prints two tables."""
    rng = np.random.default_rng(0)
    epsilon = rng.uniform(0.1, 2.0, PEOPLE)
    rows = rng.integers(1, 20, PEOPLE)
    times = best_times(
        {
            "argsort": lambda: np.argsort(epsilon),
            "ours, one row each": lambda: sv.optimal_weights(epsilon, A=CONSTANT),
            "ours, 1 to 19 rows each": lambda: sv.optimal_weights(epsilon, rows, A=CONSTANT),
            "ours, association": lambda: sv.optimal_weights(epsilon, A=CONSTANT, B=ASSOCIATION),
            "ours, association, 1 to 19 rows each": lambda: sv.optimal_weights(
                epsilon, rows, A=CONSTANT, B=ASSOCIATION
            ),
        }
    )
    targets = {name: ("argsort", 4.0) for name in times if name.startswith("ours")}
    show(f"Weights of {PEOPLE:,} people", times, "argsort", targets)
    show_cvxpy(rng)


def show_cvxpy(rng: np.random.Generator) -> None:
    """Solves small instances both ways."""
    heads = (
        "people",
        "ours ms",
        "CVXPY ms",
        "CVXPY ÷ ours",
        "weights differ by",
        "objective above ours by",
    )
    table = Table(*heads, title="Weights against CVXPY")
    for people in SMALL:
        epsilon = rng.uniform(0.1, 2.0, people)
        rows = rng.integers(1, 20, people)
        times = best_times(
            {
                "ours": lambda e=epsilon, s=rows: sv.optimal_weights(
                    e, s, A=CONSTANT, B=ASSOCIATION
                ),
                "CVXPY": lambda e=epsilon, s=rows: by_cvxpy(e, s),
            }
        )
        ours = sv.optimal_weights(epsilon, rows, A=CONSTANT, B=ASSOCIATION)
        theirs = by_cvxpy(epsilon, rows)
        above = objective(theirs, epsilon, rows) / objective(ours, epsilon, rows) - 1
        ratio = times["CVXPY"] / times["ours"]
        cells = (f"{times['ours'] * 1e3:.3f}", f"{times['CVXPY'] * 1e3:.1f}", f"{ratio:.0f}")
        table.add_row(f"{people}", *cells, f"{np.abs(theirs - ours).max():.0e}", f"{above:.0e}")
    console.print(table)


def objective(W: Any, epsilon: Any, rows: Any) -> float:
    """A·Σ W²/s + (max W/ε)² + B·(Σ|W − u|)², with W scaled to sum to one: rows of one person weigh
    the same.
    """
    W = W / W.sum()
    apart = np.abs(W - rows / rows.sum()).sum()
    return float(CONSTANT * (W**2 / rows).sum() + (W / epsilon).max() ** 2 + ASSOCIATION * apart**2)


def by_cvxpy(epsilon: Any, rows: Any) -> Any:
    """Minimises the objective over W ≥ 0 with ΣW = 1."""
    W = cp.Variable(len(epsilon), nonneg=True)
    loudest = cp.Variable()
    error = CONSTANT * cp.sum(cp.multiply(1 / rows, cp.square(W))) + cp.square(loudest)
    error += ASSOCIATION * cp.square(cp.norm1(W - rows / rows.sum()))
    problem = cp.Problem(cp.Minimize(error), [cp.sum(W) == 1, cp.multiply(epsilon, loudest) >= W])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return W.value


if __name__ == "__main__":
    main()
