# SPDX-License-Identifier: Apache-2.0
"""Counts by cell: how far from the table's own counts, ours and others at equal promises.

Everybody is protected by replacement with pure ε. Errors are root mean squares over cells and
releases, drawn by each library's own sampler: ours as shipped, and with association=0, which trusts
as the others do that budgets go along with nothing.

    OpenDP         Laplace noise of scale 2/ε on every cell, one ε for all
    uniform        everybody at the smallest ε
    sampled        everybody kept with probability (e^ε − 1)/(e^t − 1), dropped ones in a cell of
                   their own, then t for all; the better of t = mean and t = max
    threshold      who grants less than t left out, the others at t; the best t in hindsight

All but OpenDP get our noise, weights for equal budgets, and projection: what is compared is what
becomes of personal budgets. A release is made of each of many tables, the same for all.

    python benchmarks/tables_accuracy.py [DRAWS]
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pyarrow as pa
from rich.table import Table
from timing import console

import sottovoce as sv
from sottovoce.noise import source, zero_sum

ROWS = 2000
CELLS = (2, 3, 8, 100)
DRAWS = 100
LETTERS = {k: [f"l{i}" for i in range(k)] for k in CELLS}


def list_profiles(n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Ten profiles of budgets."""
    tiers = {
        ".01/.2/1, 34/43/23 %": ([0.01, 0.2, 1.0], [0.34, 0.43, 0.23]),
        ".01/.2/1, 54/37/9 %": ([0.01, 0.2, 1.0], [0.54, 0.37, 0.09]),
        ".1/1, halves": ([0.1, 1.0], [0.5, 0.5]),
        ".1/1, 90/10 %": ([0.1, 1.0], [0.9, 0.1]),
        ".1/1, 10/90 %": ([0.1, 1.0], [0.1, 0.9]),
        ".05/5, 80/20 %": ([0.05, 5.0], [0.8, 0.2]),
        ".5/1/2, thirds": ([0.5, 1.0, 2.0], [1 / 3] * 3),
    }
    profiles = {name: rng.choice(eps, n, p=share) for name, (eps, share) in tiers.items()}
    profiles[".1 to 3, even in logarithms"] = np.exp(rng.uniform(np.log(0.1), np.log(3), n))
    profiles["0.05 to 1, even"] = rng.uniform(0.05, 1.0, n)
    profiles["Pareto from 0.05"] = np.minimum(0.05 * (1 + rng.pareto(1.2, n)), 10.0)
    return profiles


def draw_tables(cells: int, draws: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Columns of levels whose shares are uneven, a line a table, and their counts."""
    shares = rng.dirichlet(np.full(cells, 2.0), draws)
    codes = np.array([rng.choice(cells, ROWS, p=own) for own in shares])
    return codes, np.array([np.bincount(own, minlength=cells) for own in codes])


#: Levels that stand for unknown and missing ones leave their cells out: as many cells for all.
def make_schema(cells: int) -> sv.Schema:
    levels = ", ".join(f'"{name}"' for name in LETTERS[cells])
    return sv.Schema.loads(
        f'[columns.g]\nkind = "factor"\nlevels = [{levels}]\nother = "l0"\nmissing = "l0"\n'
    )


def release_counts(codes: Any, cells: int, epsilon: Any, association: float | None = None) -> Any:
    """Counts of a release of each table by the real mechanism."""
    asked = sv.Count(by="g", schema=make_schema(cells), association=association)
    levels = pa.array(LETTERS[cells])
    plan = None
    answers = []
    for own in codes:
        column = pa.DictionaryArray.from_arrays(pa.array(own), levels)
        rows = asked.read_arrays(pa.table({"g": column}), epsilon=epsilon, groups=None)
        plan = plan or asked.plan_for(rows.budgets, rows)
        answers.append(asked.release_under(plan, rows).value["count"])
    return np.array(answers)


def release_opendp(counts: Any, epsilon: float) -> Any:
    """Counts plus OpenDP's Laplace noise of scale 2/ε."""
    drawn = source.sample_opendp_laplace(2 / epsilon, counts.size)
    return counts + np.array(drawn).reshape(counts.shape)


def release_threshold(codes: Any, cells: int, epsilon: Any, level: float) -> Any:
    """Counts of a release of each table by sv.Threshold, which scales them to all rows."""
    asked = sv.Threshold(
        sv.Count(by="g", schema=make_schema(cells), association=0.0), threshold=level
    )
    levels = pa.array(LETTERS[cells])
    answers = []
    for own in codes:
        column = pa.DictionaryArray.from_arrays(pa.array(own), levels).cast(pa.string())
        found = asked.fit(pa.table({"g": column}), epsilon=epsilon)
        answers.append(found.release_.value["count"])
    return np.array(answers)


def release_sampled(
    codes: Any, cells: int, epsilon: Any, level: float, rng: np.random.Generator
) -> Any:
    """Kept people in their cells, the others in one more; scaled by how many are expected."""
    chance = np.minimum(np.expm1(epsilon) / math.expm1(level), 1.0)
    answers = []
    for own in codes:
        kept = rng.random(len(own)) < chance
        counts = np.bincount(np.where(kept, own, cells), minlength=cells + 1)
        scale = math.ceil(2**40 / level)
        if cells + 1 <= zero_sum.MOST_CELLS:
            noise = np.array(zero_sum.draw_zero_sum(scale, cells + 1)) / 2**40
        else:
            noise = np.array(source.draw_laplace(2.0 * scale, cells + 1)) / 2**40
        answers.append(((counts + noise) * (len(own) / chance.sum()))[:cells])
    return np.array(answers)


def measure(answers: Any, counts: Any) -> tuple[float, float]:
    """Root mean square over cells and releases, and its standard error."""
    squares = ((answers - counts) ** 2).mean(axis=1)
    mean = float(squares.mean())
    error = float(squares.std() / math.sqrt(len(squares)))
    return math.sqrt(mean), error / (2 * math.sqrt(mean))


def compare(codes: Any, counts: Any, epsilon: Any, rng: Any) -> dict[str, Any]:
    """Errors of all under one profile."""
    cells = counts.shape[1]
    levels = np.unique(np.quantile(epsilon, [0, 0.1, 0.25, 0.34, 0.5, 0.6, 0.75, 0.9, 0.95]))
    thresholds = [
        measure(release_threshold(codes, cells, epsilon, float(t)), counts) for t in levels
    ]
    sampled = [
        measure(release_sampled(codes, cells, epsilon, float(t), rng), counts)
        for t in (epsilon.mean(), epsilon.max())
    ]
    return {
        "ours": measure(release_counts(codes, cells, epsilon), counts),
        "association=0": measure(release_counts(codes, cells, epsilon, 0.0), counts),
        "uniform": measure(release_counts(codes, cells, float(epsilon.min()), 0.0), counts),
        "sampled": min(sampled),
        "threshold": min(thresholds),
    }


def show_equal(draws: int, rng: np.random.Generator) -> None:
    """One ε for all: ours over OpenDP's, and the variance of a cell in units of (1/ε)²."""
    shown = Table(title="One ε for all (ε = 0.5), n = 2,000: root mean square error in rows")
    for name in ("cells", "ours", "OpenDP", "ours/OpenDP", "variance of a cell · ε²"):
        shown.add_column(name)
    for cells in CELLS:
        codes, counts = draw_tables(cells, 10 * draws, rng)
        ours, ours_error = measure(release_counts(codes, cells, 0.5), counts)
        theirs, their_error = measure(release_opendp(counts, 0.5), counts)
        ratio = ours / theirs
        error = ratio * math.hypot(ours_error / ours, their_error / theirs)
        shown.add_row(
            str(cells),
            f"{ours:.2f} ± {ours_error:.2f}",
            f"{theirs:.2f} ± {their_error:.2f}",
            f"{ratio:.2f} ± {error:.2f}",
            f"{(ours * 0.5) ** 2:.2f}",
        )
    console.print(shown)


def show_profiles(draws: int, rng: np.random.Generator) -> None:
    """Ten profiles: each over ours, and geometric means with their standard errors."""
    names = ("association=0", "uniform", "sampled", "threshold")
    for cells in CELLS:
        shown = Table(title=f"{cells} cells, n = 2,000: error of ours in rows, and others over it")
        for name in ("profile", "ours", *names):
            shown.add_column(name)
        ratios: dict[str, list[float]] = {name: [] for name in names}
        noise: dict[str, list[float]] = {name: [] for name in names}
        for profile, epsilon in list_profiles(ROWS, rng).items():
            codes, counts = draw_tables(cells, draws, rng)
            found = compare(codes, counts, epsilon, rng)
            ours, ours_error = found["ours"]
            for name in names:
                ratios[name].append(math.log(found[name][0] / ours))
                noise[name].append(math.hypot(found[name][1] / found[name][0], ours_error / ours))
            shown.add_row(
                profile, f"{ours:.1f}", *(f"{found[name][0] / ours:.2f}" for name in names)
            )
        means = {name: math.exp(np.mean(ratios[name])) for name in names}
        errors = {
            name: means[name] * np.sqrt(np.sum(np.square(noise[name]))) / len(noise[name])
            for name in names
        }
        told = [f"{means[name]:.2f} ± {errors[name]:.2f}" for name in names]
        shown.add_row("geometric mean", "", *told)
        console.print(shown)


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS
    rng = np.random.default_rng()
    show_equal(draws, rng)
    show_profiles(draws, rng)


if __name__ == "__main__":
    main()
