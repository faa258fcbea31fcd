"""A report of twelve questions on one budget: what its plan expects of every question, and what
releases are off by.

    python benchmarks/report.py [releases]

Tables are drawn anew for every release, and errors are root mean squares over releases, and over
cells, against the classical answer on the same table: the plain count, sum, mean, variance of all
rows, and of a quantile the share of rows between the two. Plans assume that rows spread evenly over
cells and that values lie near three tenths of their range; the second table is of rows that do not.
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

import sottovoce as sv
from sottovoce.budgets import Budgets
from sottovoce.schema import Column

ROWS = 5000
EPSILON = 1.0
SCHEMA = sv.Schema(
    {
        "age": Column("number", 0.0, 100.0, edges=(0.0, 40.0, 60.0, 100.0), missing=50.0),
        "cost": Column("number", 0.0, 500.0, missing=0.0),
        "visits": Column("number", 0.0, 10.0, missing=0.0),
        "region": Column("factor", levels=("north", "south", "west"), other="west", missing="west"),
        "smoker": Column("factor", levels=("no", "yes"), other="no", missing="no"),
    }
)
#: Public guesses of the deviations of columns, and of the share of the bounds that values fill.
SPREADS = {"age": 17.0, "cost": 75.0, "visits": 1.7}
FILLED = 0.6
#: Shares of the regions and of smokers: as plans assume them, and far from it.
EVEN = ((1 / 3, 1 / 3, 1 / 3), (0.5, 0.5))
SKEWED = ((0.6, 0.3, 0.1), (0.85, 0.15))


def make_questions() -> dict[str, object]:
    """The questions that people ask first."""
    return {
        "by region": sv.Count(by="region"),
        "by region and smoker": sv.Count(by=["region", "smoker"]),
        "by age": sv.Count(by="age"),
        "smokers over 60": sv.Count(where="age > 60 and smoker == 'yes'"),
        "mean age": (sv.Mean(spread=SPREADS["age"]), "age"),
        "mean cost": (sv.Mean(spread=SPREADS["cost"]), "cost"),
        "cost by region": (sv.Mean(by="region", spread=SPREADS["cost"]), "cost"),
        "visits by smoker": (sv.Mean(by="smoker", spread=SPREADS["visits"]), "visits"),
        "cost in all by age": (sv.Sum(by="age", spread=SPREADS["cost"]), "cost"),
        "variance of visits": (sv.Variance(spread=SPREADS["visits"]), "visits"),
        "median cost": (sv.Quantile(spread=FILLED), "cost"),
        "quartiles of age": (sv.Quantile(q=[0.25, 0.75], spread=FILLED), "age"),
    }


def draw_table(rng: np.random.Generator, rows: int = ROWS, skewed: bool = False) -> pa.Table:
    """People, as nobody has seen them before."""
    regions, smokers = SKEWED if skewed else EVEN
    if skewed:
        cost = rng.lognormal(3.5, 1.0, rows)
    else:
        cost = rng.gamma(4.0, 37.5, rows)
    return pa.table(
        {
            "age": rng.uniform(20, 80, rows),
            "cost": np.clip(cost, 0, 500),
            "visits": np.clip(rng.poisson(3, rows), 0, 10).astype(float),
            "region": rng.choice(["north", "south", "west"], rows, p=regions),
            "smoker": rng.choice(["no", "yes"], rows, p=smokers),
        }
    )


def answer_classically(table: pa.Table) -> dict[str, np.ndarray]:
    """The answers without noise."""
    column = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    regions = [column["region"] == name for name in ("north", "south", "west")]
    smokers = [column["smoker"] == name for name in ("no", "yes")]
    ages = [column["age"] < 40, (column["age"] >= 40) & (column["age"] < 60), column["age"] >= 60]
    old = (column["age"] > 60) & smokers[1]
    return {
        "by region": np.array([r.sum() for r in regions]),
        "by region and smoker": np.array([(r & s).sum() for r in regions for s in smokers]),
        "by age": np.array([a.sum() for a in ages]),
        "smokers over 60": np.array([old.sum(), (~old).sum()]),
        "mean age": np.array([column["age"].mean()]),
        "mean cost": np.array([column["cost"].mean()]),
        "cost by region": np.array([column["cost"][r].mean() for r in regions]),
        "visits by smoker": np.array([column["visits"][s].mean() for s in smokers]),
        "cost in all by age": np.array([column["cost"][a].sum() for a in ages]),
        "variance of visits": np.array([column["visits"].var()]),
    }


def measure_ranks(table: pa.Table, name: str, values: np.ndarray, q: list[float]) -> np.ndarray:
    """The share of rows between quantiles and what was asked for."""
    sorted_values = np.sort(table[name].to_numpy(zero_copy_only=False))
    below = np.searchsorted(sorted_values, values, "left") / len(sorted_values)
    above = np.searchsorted(sorted_values, values, "right") / len(sorted_values)
    return np.maximum(np.maximum(below - q, q - above), 0.0)


def compare(
    releases: int, skewed: bool = False, seed: int = 20261117, rows: int = ROWS
) -> tuple[dict[str, tuple[float, float, float]], int]:
    """Returns expected and measured errors with standard errors of their ratio, by question, and
    the charge in units.
    """
    rng = np.random.default_rng(seed)
    report = sv.Report(make_questions(), SCHEMA)
    plan = report.plan(epsilon=EPSILON, rows=rows)
    squares: dict[str, list[float]] = {name: [] for name in make_questions()}
    for _ in range(releases):
        table = draw_table(rng, rows, skewed)
        dataset = report.read_arrays(table, epsilon=Budgets.of(EPSILON, rows=rows), groups=None)
        fitted = {
            name: np.asarray(part.value[first(part)], dtype=float)
            if isinstance(part.value, dict)
            else np.ravel(part.value)
            for name, part in report.release_under(plan, dataset).parts.items()
        }
        truth = answer_classically(table)
        for name, values in fitted.items():
            if name == "median cost":
                off = measure_ranks(table, "cost", values, [0.5])
            elif name == "quartiles of age":
                off = measure_ranks(table, "age", values, [0.25, 0.75])
            else:
                off = np.asarray(values, dtype=float) - truth[name]
            squares[name].append(float(np.mean(off**2)))
    found = {}
    for name, expected in plan.errors_by_question.items():
        mean = float(np.mean(squares[name]))
        spread = float(np.std(squares[name], ddof=1) / np.sqrt(releases))
        measured = float(np.sqrt(mean))
        found[name] = (expected, measured, spread / (2 * mean) * measured / expected)
    return found, int(plan.guarantee.units.max())


def first(part: sv.Release) -> str:
    """The answer of a table that holds more."""
    return next(iter(part.value))


def main() -> None:
    """Prints a table for tables as plans assume them, and one for others."""
    releases = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    for skewed in (False, True):
        found, charge = compare(releases, skewed)
        kind = "skewed values and groups" if skewed else "values and groups as plans assume them"
        print(f"{ROWS:,} people with ε = {EPSILON:g} each, {releases} releases, {kind}")
        print("| question | expected error | measured | measured/expected (standard error) |")
        print("|---|---|---|---|")
        for name, (expected, measured, error) in found.items():
            ratio = f"{measured / expected:.3f} ({error:.3f})"
            print(f"| {name} | {expected:.4g} | {measured:.4g} | {ratio} |")
        print(f"Charged: ε = {charge / 1e9:.9f} of {EPSILON:.9f}.", flush=True)


if __name__ == "__main__":
    main()
