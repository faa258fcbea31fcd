"""What a bought window is worth to a mean: made columns, and real ones under three profiles.

Root mean square errors against the plain mean of the same table, of `scale="bought"` over those of
the default. Windows are drawn by the mechanism; what follows from a window (the noise, and what
clipping and weights move) is computed. Columns on which no window is bought have a ratio of 1 and
are counted apart. Last, what a plan does of its own accord where the true spread is declared, over
the bounds with the same declaration; columns there are made to be as bad for a window as their
spread allows.

    python benchmarks/narrow.py [TABLE.csv]
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from representative import PROFILES, assign, list_columns
from rich.table import Table
from timing import console

import sottovoce as sv
from sottovoce.noise import source

DRAWS = 400
TABLES = 20
RNG = np.random.default_rng(5)
#: Columns of n values between 0 and 1.
MADE = {
    "normal, σ = .003": lambda n: 0.37 + 0.003 * RNG.normal(size=n),
    "normal, σ = .01": lambda n: 0.37 + 0.01 * RNG.normal(size=n),
    "normal, σ = .03": lambda n: 0.37 + 0.03 * RNG.normal(size=n),
    "normal, σ = .1": lambda n: 0.37 + 0.1 * RNG.normal(size=n),
    "even": lambda n: RNG.random(n),
    "exponential, .01": lambda n: RNG.exponential(0.01, n),
    "lognormal, .01 and 1": lambda n: 0.01 * np.exp(RNG.normal(size=n)),
    "Student, 3": lambda n: 0.37 + 0.006 * RNG.standard_t(3, n),
    "1 % far away": lambda n: (RNG.random(n) < 0.01) * RNG.uniform(0.2, 1, n),
    "5 % far away": lambda n: (RNG.random(n) < 0.05) * RNG.uniform(0.2, 1, n),
}
SIZES = (500, 1000, 5000, 20_000)


def main() -> None:
    """Prints three tables."""
    show_made()
    show_real(sys.argv[1:])
    show_declared()


def compute_errors(
    values: Any,
    bounds: tuple[float, float],
    epsilon: Any,
    scale: str | None = "bought",
    spread: float | None = None,
) -> tuple[float, float]:
    """Root mean square errors of the bounds, and with a window (the same where none is bought)."""
    default = sv.Mean(bounds=bounds, spread=spread, scale="bounds").plan(epsilon)
    kinds = default.budgets.row_codes()
    exact = float(np.mean(values))
    own = default.weights.row[kinds] / default.weights.total
    before = (float(own @ values) - exact) ** 2 + 2 * default.noise["scale"] ** 2
    question = sv.Mean(bounds=bounds, scale=scale, spread=spread)
    plan = question.plan(epsilon)
    if "window" not in plan.noise:
        return math.sqrt(before), math.sqrt(before)
    rows = question.read_arrays(values, epsilon=plan.budgets, groups=None)
    scores = plan.bought.score(plan.bought.count(rows, None))
    own = plan.weights.row[kinds] / plan.weights.total
    squares = []
    for _ in range(DRAWS):
        window = plan.bought.place(source.permute_and_flip(scores, plan.bought.scale))
        moved = float(own @ np.clip(values, window.low, window.high)) - exact
        squares.append(moved**2 + 2 * (plan.noise["scale"] * 0.5**window.level) ** 2)
    return math.sqrt(before), math.sqrt(float(np.mean(squares)))


def show_made() -> None:
    """Made columns, everybody ε = 1."""
    table = Table(
        "column", *(f"n = {n:,}" for n in SIZES), title="Made columns, ε = 1: ratio of errors"
    )
    for name, draw in MADE.items():
        cells = []
        for n in SIZES:
            pairs = [
                compute_errors(np.clip(draw(n), 0, 1), (0.0, 1.0), np.ones(n))
                for _ in range(TABLES if n < 5000 else 5)
            ]
            before, after = (math.sqrt(np.mean(np.square(one))) for one in zip(*pairs, strict=True))
            cells.append(f"{after / before:.2f}")
        table.add_row(name, *cells)
    console.print(table)


def list_far(spread: float) -> dict[str, Any]:
    """Columns with this standard deviation and values far away: most at .37, some share beyond."""
    found = {}
    for share in (0.2, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001):
        away = spread / math.sqrt(share * (1 - share))
        if away <= 0.6:
            found[f"{share:g} of values {away:.2g} away"] = (share, away)
    return found


def make_far(share: float, away: float, n: int) -> Any:
    """Values of such a column; a fair coin decides about what is left of a value."""
    far = math.floor(share * n) + (RNG.random() < share * n % 1)
    return np.where(np.arange(n) < far, 0.37 + away, 0.37)


def show_declared() -> None:
    """The plan's own choice, everybody ε = 1, at the spread that is true and declared."""
    sizes = (500, 2000, 10_000)
    table = Table("column", "spread", *(f"n = {n:,}" for n in sizes), title="Declared spreads")
    for spread in (0.003, 0.01, 0.03):
        columns = {"normal": lambda n, s=spread: np.clip(0.37 + s * RNG.normal(size=n), 0, 1)}
        columns["exponential"] = lambda n, s=spread: np.clip(RNG.exponential(s, n), 0, 1)
        for name, far in list_far(spread).items():
            columns[name] = lambda n, far=far: make_far(*far, n)
        for name, draw in columns.items():
            cells = []
            for n in sizes:
                pairs = [
                    compute_errors(draw(n), (0.0, 1.0), np.ones(n), None, spread) for _ in range(5)
                ]
                before, after = (
                    math.sqrt(np.mean(np.square(one))) for one in zip(*pairs, strict=True)
                )
                cells.append(f"{after / before:.2f}")
            table.add_row(name, f"{spread:g}", *cells)
    console.print(table)


def show_real(paths: list[str]) -> None:
    """Real columns under three profiles of budgets, and with ε = 1 for all."""
    table = Table("budgets", "columns", "with a window", "geometric mean there", "worst", "best")
    profiles = {**PROFILES, "1 for all": (np.array([1.0]), np.array([1.0]))}
    for name, (epsilon, shares) in profiles.items():
        found = []
        lost = []
        for column, values, bounds in list_columns(paths):
            before, after = compute_errors(values, bounds, assign(len(values), epsilon, shares))
            found.append(after / before)
            if after > 1.05 * before:
                lost.append(f"{column} {after / before:.2f}")
        bought = [ratio for ratio in found if ratio != 1.0] or [1.0]
        middle = math.exp(float(np.mean(np.log(bought))))
        numbers = (middle, max(bought), min(bought))
        some = sum(ratio != 1.0 for ratio in found)
        table.add_row(name, str(len(found)), str(some), *(f"{one:.2f}" for one in numbers))
        console.print(f"{name}: worse by more than 5 %: {', '.join(lost) or 'none'}")
    console.print(table)


if __name__ == "__main__":
    main()
