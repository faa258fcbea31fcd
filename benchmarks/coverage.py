# SPDX-License-Identifier: Apache-2.0
"""How often 95 % intervals cover what they are of, and how wide they are.

Populations are laws that tables are drawn from, or a real table from which rows are drawn with
replacement; the value that must be covered is the population's. The width is told over that of an
oracle which knows how far the answer varies: the 95 % quantile of its distance from the truth in
these very runs. Coefficients are counted together. The default regression covers the coefficients
of the loss that it fits, whose threshold it chooses; how often it covers those of least squares is
told besides.

    python benchmarks/coverage.py                         some minutes
    python benchmarks/coverage.py --full                  ten times as many tables
    python benchmarks/coverage.py --table medical.csv --label charges
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

import sottovoce as sv
from sottovoce.data.loss_kernels import SoftHuber

RUNS = 40
FULL_RUNS = 400
LEVEL = 0.95
#: Nobody is told apart by less: an end that is not known counts as covering, and has no width.
console = Console()


@dataclass(frozen=True)
class Population:
    """What tables are drawn from: features, labels, and their bounds."""

    name: str
    draw: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]
    bounds: tuple[Any, Any]
    label: tuple[float, float]


@dataclass(frozen=True)
class Setting:
    """One line of the table: what is asked, of which population, of how many people at which ε."""

    question: str
    population: Population
    people: int
    epsilon: float


def simulate(kind: str, slopes: int) -> Population:
    """A linear model of even, bunched or correlated columns, with equal or unequal spread."""
    slope = np.array([0.4, -0.3, 0.2, 0.1, 0.05])[:slopes]

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.uniform(0, 1, (rows, slopes))
        noise = rng.normal(0, 0.1, rows)
        if kind == "bunched":
            X[:, 0] = rng.beta(2, 8, rows)
        if kind == "correlated":
            X = 0.5 * X + 0.5 * rng.uniform(0, 1, (rows, 1))
        if kind == "unequal spread":
            noise *= 2 * X[:, 0]
        if kind == "skewed":
            noise = 0.1 * (rng.exponential(1.0, rows) - 1)
        return X, 0.3 + X @ slope + noise

    return Population(f"{kind}, {slopes} features", draw, (0.0, 1.0), (-1.0, 2.0))


def resample(name: str, X: np.ndarray, y: np.ndarray) -> Population:
    """A real table as the population, in bounds rounded outwards."""
    low, high = X.min(axis=0), X.max(axis=0)
    wide = (high - low) * 0.05
    span = float(y.max() - y.min()) * 0.05

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = rng.integers(0, len(X), rows)
        return X[chosen], y[chosen]

    label = (float(y.min()) - span, float(y.max()) + span)
    return Population(name, draw, (low - wide, high + wide), label)


def find_population(draw: Any, rows: int = 400_000) -> tuple[np.ndarray, np.ndarray]:
    return draw(np.random.default_rng(99), rows)  # type: ignore[no-any-return]


def make_estimator(question: str, population: Population) -> Any:
    bounds = sv.Bounds(features=population.bounds, label=population.label)
    if question == "mean":
        return sv.Mean(bounds=population.label)
    if question == "median":
        return sv.Quantile(q=0.5, bounds=population.label)
    if question == "regression":
        return sv.Ridge(bounds=bounds)
    if question == "regression, statistics":
        return sv.Ridge(bounds=bounds, method="statistics")
    if question == "private labels":
        return sv.LabelPrivateRegression(label_bounds=population.label)
    if question == "adaptive posterior sample":
        return sv.AdaptivePosteriorSample(bounds=bounds, fit_intercept=True)
    return sv.LogisticRegression(bounds=sv.Bounds(features=population.bounds))


def find_truth(question: str, population: Population) -> np.ndarray:
    """The population's value: of a law by many rows, of a real table by all of its rows."""
    X, y = find_population(population.draw)
    if question == "mean":
        return np.array([y.mean()])
    if question == "median":
        return np.array([np.quantile(y, 0.5)])
    if question == "classes":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=1e9, max_iter=5000).fit(X, y).coef_[0]
    design = np.column_stack([np.ones(len(X)), X])
    return np.linalg.lstsq(design, y, rcond=None)[0][1:]


def fit_population(population: Population, release: Any) -> np.ndarray:
    """The slopes that the loss of a released regression gives on the whole population."""
    found = release.bought
    tau = found["most_pull"]
    loss = SoftHuber(tau, float(np.sum(0.25 / np.array(found["ridge"]))))
    X, y = find_population(population.draw, 50_000)
    low, high = (np.broadcast_to(end, X.shape[1]) for end in population.bounds)
    half = (population.label[1] - population.label[0]) / 2
    rows = np.column_stack([np.full(len(X), 0.5), (X - (low + high) / 2) / (high - low)])
    labels = (y - np.mean(population.label)) / half
    theta = np.array(found["theta"])
    for _ in range(30):
        _, psi, bend = loss(labels - rows @ theta)
        theta = theta + np.linalg.solve((rows * bend[:, None]).T @ rows, rows.T @ psi)
    return half * theta[1:] / (high - low)


def to_classes(population: Population) -> Population:
    """Classes with log-odds ten times the label's distance from .5."""

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        X, _ = population.draw(rng, rows)
        odds = 6 * (X @ np.array([0.4, -0.3, 0.2, 0.1, 0.05])[: X.shape[1]] - 0.1)
        return X, (rng.uniform(size=rows) < 1 / (1 + np.exp(-odds))).astype(np.int64)

    return Population(population.name, draw, population.bounds, (0.0, 1.0))


def measure(setting: Setting, runs: int) -> list[str]:
    """One line: coverage, how wide, and how often there was an interval."""
    population = setting.population
    truth = find_truth(setting.question, population)
    rng = np.random.default_rng(7)
    ends: list[np.ndarray] = []
    answers: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    fitted_losses: dict[float, np.ndarray] = {}
    why = ""
    told = f"{setting.question}, {population.name}"
    for _ in track(range(runs), description=told[:60], console=console, transient=True):
        X, y = population.draw(rng, setting.people)
        estimator = make_estimator(setting.question, population)
        data = (y,) if setting.question in ("mean", "median") else (X, y)
        fitted = estimator.fit(*data, epsilon=setting.epsilon)
        try:
            found = fitted.interval(LEVEL)
        except sv.errors.InvalidParameter:
            why = fitted.release_.intervals["why"]
            continue
        if isinstance(found, dict):
            pairs = np.array(list(found.values())[1:], dtype=float)
            answers.append(pairs.mean(axis=1))  # published coefficients may be shrunk
        else:
            pairs = np.array([found], dtype=float)
            answers.append(np.array([fitted.value_]))  # intervals of columns end at the bounds
        ends.append(pairs)
        targets.append(truth)
        if setting.question == "regression":
            tau = fitted.release_.bought["most_pull"]
            if tau not in fitted_losses:
                fitted_losses[tau] = fit_population(population, fitted.release_)
            targets[-1] = fitted_losses[tau]
    line = [setting.question, population.name, f"{setting.people:,}", f"{setting.epsilon:g}"]
    if not ends:
        return [*line, "none", "", "", "", why.split(":")[0]]
    low, high = np.moveaxis(np.array(ends), 2, 0)
    own = np.array(targets)
    covered = float(np.mean((low <= own) & (own <= high)))
    classical = float(np.mean((low <= truth) & (truth <= high)))
    finite = np.isfinite(high - low)
    middle = np.where(finite, np.array(answers), np.nan)
    with np.errstate(all="ignore"):
        oracle = np.nanquantile(np.abs(middle - own), LEVEL, axis=0)
        half = np.nanmedian(np.where(finite, (high - low) / 2, np.nan), axis=0)
    ratio = float(np.nanmedian(half / oracle))
    known = float(finite.mean()) * len(ends) / runs
    wide = "" if math.isnan(ratio) else f"{ratio:.2f}"
    besides = f"{classical:.3f}" if setting.question == "regression" else ""
    return [*line, f"{covered:.3f}", besides, wide, f"{known:.2f}", ""]


def list_settings(extra: Population | None) -> Iterator[Setting]:
    """Every line of the table."""
    wine = load_wine()
    cancer = load_breast_cancer()
    diabetes = load_diabetes(scaled=False)
    real = [
        resample("wine (alcohol by 3)", wine.data[:, [1, 4, 9]], wine.data[:, 0]),
        resample("diabetes (3 features)", diabetes.data[:, [2, 3, 8]], diabetes.target),
        resample("breast cancer (area by 2)", cancer.data[:, [0, 4]], cancer.data[:, 3]),
    ]
    if extra is not None:
        real.append(extra)
    even = simulate("even", 2)
    for question in ("mean", "median"):
        for population in (even, simulate("skewed", 1), *real[:2]):
            yield Setting(question, population, 2_000, 0.5)
        yield Setting(question, even, 2_000, 5.0)
    for question in ("regression", "regression, statistics", "private labels"):
        for kind in ("even", "bunched", "correlated", "unequal spread", "skewed"):
            yield Setting(question, simulate(kind, 2), 3_000, 10.0)
        for population in real:
            yield Setting(question, population, 3_000, 10.0)
    yield Setting("regression", even, 20_000, 1.0)
    yield Setting("regression", even, 2_000, 0.5)
    yield Setting("regression", simulate("even", 5), 20_000, 1.2)
    yield Setting("regression", simulate("even", 5), 20_000, 10.0)
    yield Setting("regression", simulate("correlated", 5), 20_000, 10.0)
    yield Setting("regression, statistics", even, 2_000, 0.5)
    for kind in ("even", "bunched", "correlated"):
        yield Setting("classes", to_classes(simulate(kind, 2)), 3_000, 10.0)
    yield Setting("classes", to_classes(simulate("even", 5)), 20_000, 10.0)
    yield Setting("adaptive posterior sample", even, 3_000, 1.0)


def read_table(path: str, label: str) -> Population:
    """The numbers of a CSV file."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    numeric = [name for name in rows[0] if name != label and _is_number(rows[0][name])]
    X = np.array([[float(row[name]) for name in numeric] for row in rows])
    return resample(f"{path.rsplit('/', 1)[-1]}", X, np.array([float(r[label]) for r in rows]))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def main() -> None:
    """Prints the table, and the same in Markdown."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--full", action="store_true", help="ten times as many tables")
    options.add_argument("--table", help="a CSV file of numbers, as one more population")
    options.add_argument("--label", help="its label")
    given = options.parse_args()
    extra = None
    if given.table:
        extra = read_table(given.table, given.label)
    runs = FULL_RUNS if given.full else RUNS
    names = ["question", "population", "people", "ε", "covered", "least squares"]
    names += ["width", "known", "why not"]
    shown = Table(*names, title=f"95 % intervals, {runs} tables each")
    lines = []
    for setting in list_settings(extra):
        lines.append(measure(setting, runs))
        shown.add_row(*lines[-1])
        console.print("| " + " | ".join(lines[-1]) + " |", highlight=False, soft_wrap=True)
    console.print(shown)


if __name__ == "__main__":
    main()
