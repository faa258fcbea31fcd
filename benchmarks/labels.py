# SPDX-License-Identifier: Apache-2.0
"""Label-private regression: the public map, ours against CVXPY with Clarabel, and what the exact
sensitivity gains.

CVXPY is handed the problem in matrices, not person by person, which it compiles fastest; Clarabel
is an interior-point method that knows nothing of the problem's shape. Values are those of the
objective, and `gap` is how far above the optimum ours can be, by its own dual bound.

    python benchmarks/labels.py             about a minute
    python benchmarks/labels.py --rows 5000 to try it
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import Any

import cvxpy as cp
import numpy as np
from rich.table import Table
from scipy import sparse
from timing import best_times, console, show, verdict

from sottovoce.solvers import label_map

ROWS = 100_000
COLUMNS = 10
AGAINST_CVXPY = 3_000
ROUNDS = 3
#: Ours takes at most this share of CVXPY's time, and the largest problem at most so many seconds.
SHARE = 1 / 20
SECONDS = 10.0
GAIN = 1.3
#: Rows, columns, and rows a person.
SEVERAL_ROWS = (
    (150, 3, 5),
    (200, 4, 5),
    (150, 5, 5),
    (200, 6, 5),
    (300, 10, 5),
    (3_000, 10, 5),
    (2_000, 10, 40),
)
GRANTS = (0.1, 0.5, 1.0, 3.0)
#: Standard deviation of labels around the model, as a share of their range: the default, the most
#: it can be.
SPREAD = 0.5


def main() -> None:
    """Prints three tables."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rows", type=int, default=ROWS, help="rows of the large problem")
    against_cvxpy()
    large(options.parse_args().rows)
    gains()


def problem(n: int, d: int, people: int, seed: int = 0) -> tuple[Any, Any, Any, float]:
    """Normal features, rows dealt out at random, four tiers; and σ²/(2d) in units of the labels'
    range.
    """
    rng = np.random.default_rng(seed)
    _, owner = np.unique(rng.integers(0, people, n), return_inverse=True)
    return rng.normal(size=(n, d)), owner, rng.choice(GRANTS, owner.max() + 1), SPREAD**2 / (2 * d)


def against_cvxpy() -> None:
    """The published problem (entrywise sensitivity), both ways in turns."""
    given = problem(AGAINST_CVXPY, COLUMNS, AGAINST_CVXPY // 3)
    competitors = {
        "CVXPY + Clarabel": lambda: by_cvxpy(*given),
        "ours": lambda: label_map.solve_entrywise(*given),
    }
    times = best_times(competitors, ROUNDS)
    title = f"Entrywise map, n = {AGAINST_CVXPY:,}, d = {COLUMNS}"
    show(title, times, "CVXPY + Clarabel", {"ours": ("CVXPY + Clarabel", SHARE)})
    found = label_map.solve_entrywise(*given)
    theirs = by_cvxpy(*given)
    told = (
        f"ours {found.value:.8g} (gap {found.gap:.1e}), CVXPY {theirs:.8g}: ÷ "
        f"{found.value / theirs:.6f}"
    )
    console.print(f"objective: {told}; the gap may be 1e-4: {verdict(found.gap, 1e-4)}")


def by_cvxpy(X: Any, owner: Any, epsilon: Any, ratio: float) -> float:
    """The optimum, by CVXPY's defaults."""
    n, d = X.shape
    rows = sparse.csr_matrix((np.ones(n), (np.arange(n), owner)))
    C = cp.Variable((d, n))
    level = cp.Variable()
    limits = [np.eye(d) == C @ X, cp.sum(cp.abs(C), axis=0) @ rows <= epsilon * level]
    question = cp.Problem(cp.Minimize(cp.square(level) + ratio * cp.sum_squares(C)), limits)
    return float(question.solve(solver=cp.CLARABEL))


def large(rows: int) -> None:
    """Both sensitivities, once each."""
    table = Table(
        "sensitivity",
        "seconds",
        "gap",
        "Newton steps",
        "",
        title=f"n = {rows:,}, d = {COLUMNS}, 3 rows each",
    )
    given = problem(rows, COLUMNS, rows // 3)
    for name, solve in (("entrywise", label_map.solve_entrywise), ("exact", label_map.solve_exact)):
        start = perf_counter()
        found = solve(*given)
        seconds = perf_counter() - start
        if name == "entrywise":
            told = verdict(seconds, SECONDS)
        else:
            told = f"{found.held:,} people held by a larger norm"
        table.add_row(name, f"{seconds:.2f}", f"{found.gap:.0e}", f"{found.steps}", told)
    console.print(table)


def gains() -> None:
    """The objective with the entrywise sensitivity over that with the exact one, several rows a
    person.
    """
    heads = ("n", "d", "people", "held", "entrywise ÷ exact", "gap", "seconds", "")
    table = Table(*heads, title="What the exact sensitivity gains")
    for n, d, rows in SEVERAL_ROWS:
        X, _, _, ratio = problem(n, d, 1, seed=d)
        owner = np.repeat(np.arange(n // rows), rows)
        epsilon = np.array(GRANTS)[np.arange(n // rows) % len(GRANTS)]
        start = perf_counter()
        exact = label_map.solve_exact(X, owner, epsilon, ratio)
        seconds = perf_counter() - start
        gain = label_map.solve_entrywise(X, owner, epsilon, ratio).value / exact.value
        cells = (
            f"{n:,}",
            f"{d}",
            f"{n // rows}",
            f"{exact.held}",
            f"{gain:.3f}",
            f"{exact.gap:.0e}",
            f"{seconds:.2f}",
        )
        table.add_row(*cells, verdict(GAIN, gain))
    console.print(table)


if __name__ == "__main__":
    main()
