# SPDX-License-Identifier: Apache-2.0
"""Regression under (ε, δ): `sv.Ridge(delta=…)` against AdaSSP, boosted AdaSSP and noisy gradient
descent, all with a budget a person and the tight account of Gaussian noise.

Errors are mean squared errors on held-out rows over those of predicting the mean of the training
rows; ± is a standard error over draws of the split, the budgets and the noise. A ratio below 1 says
that ours is better. Rivals are written here as published, with personal weights w ∝ √ρ and noise
under replacement of a row; gradient descent and boosting have, for each table, the best of their
settings *in hindsight*, and so has Gaussian objective perturbation, whose curvature is free here.
Ours makes public choices only.

    python benchmarks/delta_regression.py                 made tables
    python benchmarks/delta_regression.py --data FOLDER   tables of AdaSSP's authors
    python benchmarks/delta_regression.py --tuning        made tables of other seeds
    python benchmarks/delta_regression.py --wide          our methods on made tables of many columns

Constants were chosen on made tables of this kind, of other seeds than the reported one. That
gradient descent is a candidate was suggested by real tables (docs/guide/regression.md).

Two preparations. "rows": as the authors of AdaSSP prepare their tables, z-scores by column, then
every row divided by its length, labels centred and divided by the largest; ours and rivals are told
that rows have length 1, "untold" is ours if it only knows that features lie in [−1, 1], and rivals
fit no intercept. "box": columns and label as they are, declared to lie between their smallest and
largest values; rivals fit an intercept on rows of length at most √(p + 1). Both look at the data,
for everybody alike. FOLDER is the folder `data` of the repository
yuxiangw/optimal_dp_linear_regression.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from frontier import minimise_soft
from rich.table import Table as Lines
from timing import console

import sottovoce as sv
from sottovoce.accounting.renyi import gaussian_rho
from sottovoce.units import to_epsilon

EPSILON, DELTA = 1.0, 1e-6
PROFILE = (0.34, 0.43, 0.23), (0.01, 0.2, 1.0)
#: Seeds of made tables; the last one is reported.
TUNING_SEEDS, REPORTED_SEED = (1, 2, 3), 11
FILES = {
    "autompg": "auto-mpg.txt",
    "housing": "housing.txt",
    "concrete": "Concrete_Data.txt",
    "energy": "energy.txt",
    "airfoil": "airfoil_self_noise.dat.txt",
    "wine": "winequality-red.csv",
    "yacht": "yacht_hydrodynamics.data.txt",
    "skillcraft": "SkillCraft.txt",
    "parkinsons": "parkinsons.txt",
    "bike": "hour.csv",
}
LOGARITHMS = ("yacht", "skillcraft", "bike")
STEPS, CLIPS, ROUNDS = (10, 40), (0.1, 0.3, 1.0), (3, 10, 30)
#: Λ of objective perturbation, in squared lengths of a row; and how soft its Huber loss is.
RIDGES, SOFTNESS = (1e-3, 1e-2, 1e-1), 0.1

#: Ours, among which a plan chooses.
METHODS = ("objective", "objective-gaussian", "adassp", "descent")

Rows = tuple[np.ndarray, np.ndarray]


def read_table(folder: Path, name: str) -> Rows:
    """Features and label as the authors' scripts take them."""
    text = (folder / name / FILES[name]).read_text().replace("\r", "\n").replace(",", " ")
    lines = [[float(cell) for cell in line.split()] for line in text.splitlines() if line.strip()]
    data = np.array([line for line in lines if len(line) == max(map(len, lines))])
    last = data.shape[1] - 1
    label = {"autompg": 0, "energy": 8, "wine": last - 1, "skillcraft": 12, "parkinsons": 5}
    left_out = {"energy": [8, 9], "parkinsons": [4, 5], "bike": [0, last]}
    at = label.get(name, last)
    y = data[:, at]
    if name in LOGARITHMS:
        y = np.log(y)
    return np.delete(data, left_out.get(name, [at]), axis=1), y


def make_tables(seed: int, count: int, wide: bool = False) -> Iterator[tuple[str, Rows]]:
    """Tables with columns that are even, normal, correlated, skewed, mixed or of one length."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(10 ** rng.uniform(2.5, 4.2))
        p = int(rng.integers(4, 21))
        if wide:
            n = int(10 ** rng.uniform(3.2, 4.4))
            p = int(24 * 10 ** rng.uniform(0, 1))
        kind = str(
            rng.choice(["uniform", "normal", "correlated", "skewed", "mixed", "rows of one length"])
        )
        explained = rng.choice([0.2, 0.5, 0.75, 0.9, 0.97])
        fill = rng.choice([0.12, 0.2, 0.3, 0.42])
        X = make_features(rng, n + n // 4, p, kind)
        S = (X - X.mean(0)) / np.maximum(X.std(0), 1e-9)
        f = S @ (rng.normal(size=p) * (rng.random(p) < 0.6))
        f = f / max(f.std(), 1e-9)
        if rng.random() < 0.3:
            f = f + 0.3 * S[:, 0] * S[:, 1]
            f /= f.std()
        noise = rng.normal(size=len(f))
        if rng.random() < 0.4:
            noise = rng.standard_t(4, size=len(f)) / math.sqrt(2)
        y = math.sqrt(explained) * f + math.sqrt(1 - explained) * noise
        y = np.clip((y - y.mean()) * fill + rng.uniform(-0.3, 0.3), -1, 1)
        yield f"{kind}, {n:,} × {p}, R² {explained:g}", (X, y)


def make_features(rng: np.random.Generator, n: int, p: int, kind: str) -> np.ndarray:
    """Columns in [−1, 1]."""
    factors = max(1, p // 3)
    Z = rng.normal(size=(n, factors)) @ rng.normal(size=(factors, p)) / math.sqrt(factors)
    Z += 0.5 * rng.normal(size=(n, p))
    if kind == "uniform":
        return rng.uniform(-1, 1, (n, p))
    if kind == "normal":
        return np.clip(rng.normal(size=(n, p)) / 3, -1, 1)
    if kind == "skewed":
        X = np.exp(0.8 * Z)
        return np.clip(X / np.quantile(X, 0.999, axis=0) * 2 - 1, -1, 1)
    if kind == "rows of one length":
        Z = Z / Z.std(0)
        return Z / np.linalg.norm(Z, axis=1)[:, None]
    X = 0.3 * Z
    if kind == "mixed":
        third = p // 3
        X[:, :third] = np.where(Z[:, :third] > 0.8 * rng.normal(size=third), 1, -1)
        X[:, third : 2 * third] = np.exp(0.7 * Z[:, third : 2 * third]) / 6 - 1
    return np.clip(X, -1, 1)


def draw_budgets(rng: np.random.Generator, n: int, personal: bool) -> np.ndarray:
    """One ε for all, or the published profile."""
    if not personal:
        return np.full(n, EPSILON)
    (careful, middle, _), (low, between, high) = PROFILE
    a, b = int(careful * n), int(middle * n)
    drawn = [rng.uniform(low, between, a), rng.uniform(between, high, b), np.full(n - a - b, high)]
    return rng.permutation(np.concatenate(drawn))


class Problem:
    """One split: rows in a ball for rivals, and in a box for ours; labels in [−1, 1] for rivals."""

    def __init__(self, rng: np.random.Generator, table: Rows, rows: bool, personal: bool) -> None:
        X, y = table
        X = X[:, np.ptp(X, axis=0) > 0]
        order = rng.permutation(len(y))
        self.test, self.train = order[: len(y) // 5], order[len(y) // 5 :]
        if rows:
            X = (X - X.mean(0)) / X.std(0)
            X = X / np.linalg.norm(X, axis=1)[:, None]
            y = (y - y.mean()) / np.abs(y - y.mean()).max()
            ones = np.ones(X.shape[1])
            self.untold = sv.Bounds(features=(-ones, ones), label=(-1, 1))
            self.bounds = sv.Bounds(norm=1.0, label=(-1, 1))
            self.F, self.radius = X, 1.0
        else:
            low, high = X.min(0), X.max(0)
            self.untold = self.bounds = sv.Bounds(features=(low, high), label=(y.min(), y.max()))
            scaled = 2 * (X - low) / (high - low) - 1
            self.F = np.column_stack([np.ones(len(y)), scaled])
            self.radius = math.sqrt(self.F.shape[1])
        self.X, self.y = X, y
        middle, half = (y.max() + y.min()) / 2, np.ptp(y) / 2
        if rows:
            middle, half = 0.0, 1.0
        self.scaled = (y - middle) / half
        self.epsilon = draw_budgets(rng, len(self.train), personal)
        values, where = np.unique(self.epsilon, return_inverse=True)
        rho = to_epsilon(gaussian_rho(values, DELTA))[where]
        weight = np.sqrt(2 * rho)
        self.weight = weight / weight.sum()
        self.unit = 1 / weight.sum()  # of noise, for a sum that a row moves by its weight

    def measure(self, predicted: np.ndarray, label: np.ndarray) -> float:
        """The error over that of the mean."""
        held = label[self.test]
        return float(
            np.mean((predicted - held) ** 2) / np.mean((held - label[self.train].mean()) ** 2)
        )

    def score(self, theta: np.ndarray) -> float:
        """Of a rival."""
        return self.measure(np.clip(self.F[self.test] @ theta, -1, 1), self.scaled)

    def score_ours(self, bounds: sv.Bounds, **options) -> tuple[float, str]:
        """Of ours within these bounds, and the method that was chosen."""
        model = sv.Ridge(bounds=bounds, **options)
        model.fit(self.X[self.train], self.y[self.train], epsilon=self.epsilon)
        predicted = model.predict(self.X[self.test])
        return self.measure(predicted, self.y), model.release_.parameters["method"]


def make_gram(rng: np.random.Generator, problem: Problem, share: float) -> tuple[np.ndarray, float]:
    """Noisy second moments, at this share of ρ, and the deviation of a product."""
    F = problem.F[problem.train]
    d = F.shape[1]
    noise = problem.radius**2 * problem.unit / math.sqrt(share)
    E = np.triu(rng.normal(size=(d, d)), 1) * noise
    gram = (F * problem.weight[:, None]).T @ F
    return gram + E + E.T + np.diag(rng.normal(size=d) * noise * math.sqrt(2)), noise


def choose_ridge(rng: np.random.Generator, problem: Problem, noise: float, share: float) -> float:
    """λ from a noisy smallest eigenvalue, as published, at β = .05."""
    F = problem.F[problem.train]
    d = F.shape[1]
    smallest = float(np.linalg.eigvalsh((F * problem.weight[:, None]).T @ F)[0])
    smallest += rng.normal() * problem.radius**2 * problem.unit / math.sqrt(share)
    return max(0.0, math.sqrt(d * math.log(2 * d * d / 0.05)) * noise - max(smallest, 0.0))


def invert(gram: np.ndarray, ridge: float) -> np.ndarray:
    """(G₊ + λ)⁻¹."""
    values, vectors = np.linalg.eigh(gram)
    return (vectors / (np.maximum(values, 0.0) + ridge + 1e-12)) @ vectors.T


def fit_adassp(rng: np.random.Generator, problem: Problem) -> list[float]:
    """Wang (2018): a third each for eigenvalue, second moments and products with the label."""
    gram, noise = make_gram(rng, problem, 1 / 3)
    ridge = choose_ridge(rng, problem, noise, 1 / 3)
    drawn = 2 * problem.radius * problem.unit / math.sqrt(1 / 3)
    F, y = problem.F[problem.train], problem.scaled[problem.train]
    cross = F.T @ (problem.weight * y) + rng.normal(size=F.shape[1]) * drawn
    return [problem.score(invert(gram, ridge) @ cross)]


def fit_boosted(rng: np.random.Generator, problem: Problem) -> list[float]:
    """Tang and others (2023): rounds on residuals over one noisy matrix, by rounds and clip."""
    F, y = problem.F[problem.train], problem.scaled[problem.train]
    found = []
    for rounds, clip in itertools.product(ROUNDS, CLIPS):
        gram, noise = make_gram(rng, problem, 1 / 3)
        inverse = invert(gram, choose_ridge(rng, problem, noise, 1 / 3))
        drawn = 2 * problem.radius * clip * problem.unit / math.sqrt(1 / 3 / rounds)
        theta = np.zeros(F.shape[1])
        for _ in range(rounds):
            left = np.clip(y - F @ theta, -clip, clip)
            theta += inverse @ (F.T @ (problem.weight * left) + rng.normal(size=len(theta)) * drawn)
        found.append(problem.score(theta))
    return found


def descend(rng: np.random.Generator, problem: Problem) -> list[float]:
    """Noisy gradient descent with clipped residuals, by steps and clip."""
    F, y = problem.F[problem.train], problem.scaled[problem.train]
    largest = float(np.linalg.eigvalsh((F * problem.weight[:, None]).T @ F)[-1])
    found = []
    for steps, clip in itertools.product(STEPS, CLIPS):
        drawn = 2 * problem.radius * clip * problem.unit * math.sqrt(steps)
        theta = np.zeros(F.shape[1])
        kept = np.zeros_like(theta)
        for step in range(steps):
            left = np.clip(y - F @ theta, -clip, clip)
            pull = F.T @ (problem.weight * left) + rng.normal(size=len(theta)) * drawn
            theta = theta + pull / largest
            kept += theta * (step >= steps // 2)
        found.append(problem.score(kept / (steps - steps // 2)))
    return found


def perturb_objective(rng: np.random.Generator, problem: Problem) -> list[float]:
    """Gaussian noise in the objective, by clip and Λ; what curvature would cost is left out."""
    F, y = problem.F[problem.train], problem.scaled[problem.train]
    noise = rng.normal(size=F.shape[1]) * 2 * problem.radius * problem.unit
    found = []
    for clip, ridge in itertools.product(CLIPS, RIDGES):
        ridge = ridge * problem.radius**2
        theta = minimise_soft(F, y, problem.weight, clip, SOFTNESS, ridge, clip * noise)
        found.append(problem.score(theta))
    return found


RIVALS = {
    "AdaSSP": fit_adassp,
    "boosted": fit_boosted,
    "descent": descend,
    "objective": perturb_objective,
}


def choose_setting(errors: np.ndarray) -> np.ndarray:
    """The errors, by draw, of the setting whose mean is smallest."""
    return errors[:, errors.mean(axis=0).argmin()]


def compare(tables: list[tuple[str, Rows]], rows: bool, personal: bool, draws: int) -> None:
    """Prints a line a table, and geometric means."""
    budgets = "personal budgets" if personal else f"ε = {EPSILON:g} for all"
    prepared = "rows of length 1" if rows else "boxes"
    untold = ["untold"] * rows
    columns = ["table", *RIVALS, *untold, "pure", "ours", "ours / AdaSSP", "chosen"]
    lines = Lines(*columns, title=f"{budgets}, δ = {DELTA:g}, {prepared}")
    logs = []
    for place, (name, table) in enumerate(tables):
        rng = np.random.default_rng([REPORTED_SEED, place, rows, personal])
        found: list[list[float]] = []
        settings: dict[str, list[list[float]]] = {rival: [] for rival in RIVALS}
        chosen = []
        for _ in range(draws):
            problem = Problem(rng, table, rows, personal)
            for rival, fit in RIVALS.items():
                settings[rival].append(fit(rng, problem))
            pure, _ = problem.score_ours(problem.bounds)
            ours, method = problem.score_ours(problem.bounds, delta=DELTA)
            before = [problem.score_ours(problem.untold, delta=DELTA)[0] for _ in untold]
            found.append([*before, pure, ours])
            chosen.append(method)
        best = [choose_setting(np.array(one)) for one in settings.values()]
        errors = np.column_stack([*best, np.array(found)])
        mean = errors.mean(axis=0)
        ratio = mean[-1] / mean[0]
        apart = errors[:, -1] / mean[-1] - errors[:, 0] / mean[0]
        spread = ratio * float(apart.std(ddof=1)) / math.sqrt(draws)
        deviation = errors.std(axis=0, ddof=1) / math.sqrt(draws)
        cells = [f"{m:.3f} ±{s:.3f}" for m, s in zip(mean, deviation, strict=True)]
        told = ", ".join(f"{method} {n}" for method, n in Counter(chosen).most_common())
        lines.add_row(name, *cells, f"{ratio:.2f} ±{spread:.2f}", told)
        logs.append(np.log(mean))
    every = np.exp(np.mean(logs, axis=0))
    ratios = np.array(logs)[:, -1:] - np.array(logs)[:, :-1]
    console.print(lines)
    told = [*RIVALS, *untold, "pure"]
    for at, rival in enumerate(told):
        geometric = math.exp(ratios[:, at].mean())
        error = geometric * ratios[:, at].std(ddof=1) / math.sqrt(len(ratios))
        console.print(
            f"ours / {rival}: {geometric:.3f} ±{error:.3f} (geometric mean over tables), "
            f"{np.mean(ratios[:, at] <= 0):.0%} of tables at or below"
        )
    console.print(f"geometric mean of ours: {every[-1]:.3f}\n")


def compare_wide(tables: list[tuple[str, Rows]], draws: int) -> None:
    """Prints the error of each of our methods, with what its plan expects, and the chosen one."""
    lines = Lines("table, ε", *METHODS, "chosen", title=f"many columns, δ = {DELTA:g}")
    logs = []
    for place, (name, table) in enumerate(tables):
        rng = np.random.default_rng([REPORTED_SEED, place])
        epsilon = float(rng.choice([0.3, 1.0, 3.0]))
        found: dict[str, list[float]] = {method: [] for method in METHODS}
        for _ in range(draws):
            problem = Problem(rng, table, rows=False, personal=False)
            problem.epsilon = problem.epsilon * epsilon
            for method in METHODS:
                error, _ = problem.score_ours(problem.bounds, method=method, delta=DELTA)
                found[method].append(error)
        people = {"epsilon": problem.epsilon, "n_features": problem.X.shape[1]}
        half = float(np.ptp(problem.y)) / 2
        plans = {
            method: sv.Ridge(bounds=problem.bounds, method=method, delta=DELTA).plan(**people)
            for method in METHODS
        }
        chosen = sv.Ridge(bounds=problem.bounds, delta=DELTA).plan(**people).parameters["method"]
        mean = {method: float(np.mean(errors)) for method, errors in found.items()}
        cells = [f"{mean[m]:.3f} ({plans[m].expected_error / half:.3f})" for m in METHODS]
        lines.add_row(f"{name}, {epsilon:g}", *cells, chosen)
        logs.append([math.log(mean[chosen] / mean[method]) for method in METHODS])
    console.print(lines)
    for method, ratios in zip(METHODS, np.array(logs).T, strict=True):
        geometric = math.exp(ratios.mean())
        error = geometric * ratios.std(ddof=1) / math.sqrt(len(ratios))
        console.print(f"chosen / {method}: {geometric:.3f} ±{error:.3f}")


def compare_plans(tables: list[tuple[str, Rows]], draws: int) -> None:
    """Prints the error that was measured over the one that the plan told, at one ε for all."""
    ratios = []
    for _, (X, y) in tables:
        ones = np.ones(X.shape[1])
        bounds = sv.Bounds(features=(-ones, ones), label=(-1, 1))
        model = sv.Ridge(bounds=bounds, method="adassp", delta=DELTA)
        planned = float(model.plan(epsilon=EPSILON, rows=len(y)).expected_error)
        F = np.column_stack([np.ones(len(y)), X])
        classical = np.linalg.lstsq(F, y, rcond=None)[0]
        squares = []
        for _ in range(draws):
            model.fit(X, y, epsilon=EPSILON)
            theta = np.append(model.intercept_, model.coef_)
            squares.append(np.mean((F @ (theta - classical)) ** 2))
        ratios.append(math.sqrt(np.mean(squares)) / planned)
    logs = np.log(ratios)
    console.print(
        f"measured / planned error: {math.exp(logs.mean()):.2f} in the geometric mean, within a "
        f"factor of three on {np.sum(np.abs(logs) <= math.log(3))} of {len(logs)} tables"
    )


def main() -> None:
    """Prints the tables."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", type=Path, help="the folder `data` of the repository")
    options.add_argument("--draws", type=int, default=20)
    options.add_argument("--tables", type=int, default=24, help="how many made tables")
    options.add_argument("--tuning", action="store_true", help="the tables that were tuned on")
    options.add_argument("--only", choices=("rows", "box"))
    options.add_argument("--wide", action="store_true", help="our methods on many columns")
    options.add_argument("--plans", action="store_true", help="planned errors of made tables")
    given = options.parse_args()
    if given.data is not None:
        tables = [(name, read_table(given.data, name)) for name in FILES]
    else:
        seeds = TUNING_SEEDS if given.tuning else (REPORTED_SEED,)
        tables = [made for seed in seeds for made in make_tables(seed, given.tables, given.wide)]
    if given.wide:
        compare_wide(tables, given.draws)
        return
    if given.plans:
        compare_plans(tables, given.draws)
        return
    for rows, personal in itertools.product((True, False), (False, True)):
        if given.only is None or (given.only == "rows") == rows:
            compare(tables, rows, personal, given.draws)


if __name__ == "__main__":
    main()
