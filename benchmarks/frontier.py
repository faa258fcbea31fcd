# SPDX-License-Identifier: Apache-2.0
"""The default regression against every rival with the settings that turn out best, table by table.

Cells are tables × profiles of budgets. A rival is fitted at each of its settings, and the setting
with the smallest mean test error over all draws of the cell is taken: *hindsight*, which nobody
has. Ours makes public choices only. Told are ratios of mean squared errors on rows held out,
rival over ours, with standard errors over draws; below 1 the rival is better.

Tables on which constants of the recipe were tuned (``--tuning``) are kept apart from those that
are reported. Pure rivals: a private mean, output perturbation and objective perturbation weighted
by ε (the latter at thresholds of a fixed part of the label's range), the default with a threshold
on budgets, noisy statistics. AdaSSP spends a δ of 1e-6, and is told for information.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import ndtr
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

import sottovoce as sv
from sottovoce.estimators import ridge_objective

CONSOLE = Console(width=190)
DELTA = 1e-6
TEST_ROWS = 1000


@dataclass(frozen=True)
class Cell:
    """A table with bounds, and everybody's budget."""

    name: str
    profile: str
    people: int
    slopes: int
    draw: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    epsilon: np.ndarray  # the same in every draw


def make_profile(name: str, people: int) -> np.ndarray:
    """Budgets: the same for all, the three tiers of the paper, or a few people with much."""
    if name == "equal":
        return np.full(people, 0.5)
    if name == "tiers":
        careful = int(0.34 * people)
        middle = int(0.43 * people)
        return np.r_[
            np.full(careful, 0.1), np.full(middle, 0.5), np.full(people - careful - middle, 1.0)
        ]
    few = people // 20
    return np.r_[np.full(people - few, 0.2), np.full(few, 5.0)]


# ---------------------------------------------------------------- designs


def draw_uniform(n, p, rng):
    return rng.random((n, p))


def draw_factors(n, p, rng):
    """Three common factors: columns that go together, bunched around the middle."""
    loads = rng.normal(size=(3, p))
    mixed = rng.normal(size=(n, 3)) @ loads / math.sqrt(3) + 0.3 * rng.normal(size=(n, p))
    return np.clip(0.5 + 0.13 * mixed, 0, 1)


def draw_skewed(n, p, rng):
    return rng.beta(2, 9, size=(n, p))


def draw_copula(n, p, rng):
    common = rng.normal(size=(n, 1))
    return ndtr(math.sqrt(0.7) * common + math.sqrt(0.3) * rng.normal(size=(n, p)))


def draw_neighbours(n, p, rng):
    """Each column goes along with the one before, by .85, spread by a tenth of its bounds."""
    columns = [rng.normal(size=n)]
    for _ in range(p - 1):
        columns.append(0.85 * columns[-1] + math.sqrt(1 - 0.85**2) * rng.normal(size=n))
    return np.clip(0.4 + 0.1 * np.column_stack(columns), 0, 1)


def draw_incomes(n, p, rng):
    """Lognormal amounts, most of them in the lowest tenth of their bounds."""
    return np.clip(np.exp(0.9 * rng.normal(size=(n, p))) / 25, 0, 1)


def draw_rare(n, p, rng):
    """Half of the columns are 0 or 1, one in twelve to one in two of them 1."""
    half = p // 2
    rare = rng.random((n, half)) < np.linspace(0.08, 0.5, half)
    return np.c_[rare.astype(float), rng.beta(3, 5, size=(n, p - half))]


TUNING = {
    "uniform": draw_uniform,
    "factors": draw_factors,
    "skewed": draw_skewed,
    "copula": draw_copula,
}
REPORTED = {
    "evenly spread": draw_uniform,
    "neighbours": draw_neighbours,
    "incomes": draw_incomes,
    "rare levels": draw_rare,
}


def make_synthetic(name, design, people, slopes, profile, explained) -> Cell:
    def draw(rng):
        X = design(people + TEST_ROWS, slopes, rng)
        signal = X @ (rng.normal(size=slopes) / X.std(axis=0))
        signal -= signal.mean()
        y = rng.uniform(-0.3, 0.3) + 0.15 * (
            math.sqrt(explained) * signal / signal.std()
            + math.sqrt(1 - explained) * rng.normal(size=len(X))
        )
        y = np.clip(y, -1, 1)
        order = rng.permutation(people)
        return X[:people][order], y[:people][order], X[people:], y[people:]

    title = f"{name}, R² {explained:g}"
    return Cell(title, profile, people, slopes, draw, make_profile(profile, people))


def make_real(name, X, y, profile, epsilon_factor) -> Cell:
    """A table of scikit-learn in bounds as somebody who knows the field would declare them: from a
    fifth below to half above what occurs, in round numbers.
    """
    low, high = X.min(axis=0), X.max(axis=0)
    width = high - low
    X = (X - (low - 0.2 * width)) / (1.7 * width)
    y = 2 * (y - (y.min() - 0.2 * np.ptp(y))) / (1.7 * np.ptp(y)) - 1
    people = int(0.8 * len(y))

    def draw(rng):
        order = rng.permutation(len(y))
        train = order[:people]
        test = order[people:]
        return X[train], y[train], X[test], y[test]

    epsilon = epsilon_factor * make_profile(profile, people)
    return Cell(name, profile, people, X.shape[1], draw, epsilon)


def list_cells(tuning: bool) -> list[Cell]:
    """The cells, those that were tuned on or those that are reported."""
    if tuning:
        return [
            make_synthetic(name, design, people, slopes, profile, 0.6)
            for name, design in TUNING.items()
            for people, slopes, profile in ((1000, 4, "tiers"), (4000, 10, "equal"))
        ]
    cells = [
        make_synthetic(name, design, people, slopes, profile, explained)
        for name, design in REPORTED.items()
        for people, slopes, profile, explained in (
            (1200, 4, "equal", 0.5),
            (1200, 6, "few", 0.8),
            (3000, 12, "tiers", 0.7),
            (8000, 12, "equal", 0.5),
        )
    ]
    diabetes = load_diabetes(return_X_y=True)
    cancer = load_breast_cancer().data
    wine = load_wine().data
    cells += [
        make_real("diabetes", *diabetes, "equal", 5.0),
        make_real("diabetes", *diabetes, "tiers", 10.0),
        make_real("tumours: area", cancer[:, [0, 1, 4, 5, 6, 8, 9]], cancer[:, 3], "equal", 3.0),
        make_real("tumours: area", cancer[:, [0, 1, 4, 5, 6, 8, 9]], cancer[:, 3], "tiers", 10.0),
        make_real("wine: alcohol", wine[:, 1:], wine[:, 0], "equal", 20.0),
    ]
    return cells


# ---------------------------------------------------------------- methods

#: A method: (X, y, ε, random numbers) → a function of rows, at each setting.
Predict = Callable[[np.ndarray], np.ndarray]


def make_bounds(p: int) -> sv.Bounds:
    return sv.Bounds(features=(np.zeros(p), np.ones(p)), label=(-1, 1))


def fit_ours(X, y, epsilon, rng) -> dict[str, Predict]:
    model = sv.Ridge(bounds=make_bounds(X.shape[1])).fit(X, y, epsilon=epsilon)
    return {"": model.predict}


def fit_box(X, y, epsilon, rng) -> dict[str, Predict]:
    """The default without a ball: what it was before."""
    found = ridge_objective.list_number_columns
    ridge_objective.list_number_columns = lambda recoding: np.zeros(0, dtype=np.int64)
    try:
        return fit_ours(X, y, epsilon, rng)
    finally:
        ridge_objective.list_number_columns = found


def fit_mean(X, y, epsilon, rng) -> dict[str, Predict]:
    value = float(np.asarray(sv.Mean(bounds=(-1, 1)).fit(y, epsilon=epsilon).value_))
    return {"": lambda rows: np.full(len(rows), value)}


def fit_threshold(X, y, epsilon, rng) -> dict[str, Predict]:
    """Who grants less than t is left out, everybody else counts as t."""
    found = {}
    for t in np.unique(epsilon):
        which = epsilon >= t
        model = sv.Ridge(bounds=make_bounds(X.shape[1]))
        found[f"{t:g}"] = model.fit(X[which], y[which], epsilon=np.full(which.sum(), t)).predict
    return found


def draw_radial(d: int, rng) -> np.ndarray:
    direction = rng.normal(size=d)
    return direction * rng.gamma(d) / np.linalg.norm(direction)


def fit_output(X, y, epsilon, rng) -> dict[str, Predict]:
    """Noise on the ridge solution with the best constant, weights ∝ ε (docs/theory/output.md)."""
    rows = np.c_[np.full(len(X), 0.5), X - 0.5]
    d = rows.shape[1]
    w = epsilon / epsilon.sum()
    R = math.sqrt(d) / 2
    found = {}
    noise = draw_radial(d, rng)
    for ridge in 10.0 ** np.arange(-2.0, 1.6, 0.5):
        theta = np.linalg.solve((rows * w[:, None]).T @ rows + ridge * np.eye(d), rows.T @ (w * y))
        if math.sqrt(ridge) <= R:
            m = 1 / (2 * math.sqrt(ridge))
        else:
            m = R / (R * R + ridge)
        k = R * m
        u = 2 * k / (1 + math.sqrt(1 + 8 * k * k))
        moved = 2 * R / ridge * math.sqrt(1 - u * u) * (1 + k * u) / epsilon.sum()
        found[f"{ridge:.3g}"] = predict_linear(theta + moved * noise)
    return found


def predict_linear(theta: np.ndarray) -> Predict:
    return lambda rows: np.clip(theta[0] / 2 + (rows - 0.5) @ theta[1:], -1, 1)


def fit_objective(X, y, epsilon, rng) -> dict[str, Predict]:
    """One fit with noise in the objective and everybody's whole budget, at a fixed threshold and
    a multiple of the least Λ; the joint box norm and the soft Huber loss, in plain doubles.
    """
    rows = np.c_[np.full(len(X), 0.5), X - 0.5]
    d = rows.shape[1]
    side = rng.uniform(-1, 1, d)
    noise = rng.gamma(d + 1) * side
    found = {}
    for tau in (0.05, 0.1, 0.2, 0.4):
        for factor in (1.0, 4.0, 16.0):
            ridge = factor * d / 2
            theta = minimise_soft(rows, y, epsilon, tau, d / (4 * ridge), ridge, tau * noise)
            found[f"{tau:g}, {factor:g}"] = predict_linear(theta)
    return found


def minimise_soft(rows, y, v, tau, H, ridge, b) -> np.ndarray:
    """Newton's steps, halved until J falls."""
    t0 = tau * (1 - 2 * H)
    g = 2 * H * tau

    def evaluate(theta):
        r = y - rows @ theta
        over = np.maximum(np.abs(r) - t0, 0)
        bend = np.exp(-over / g)
        psi = np.sign(r) * np.where(over > 0, t0 + g * (1 - bend), np.abs(r))
        rho = np.where(over > 0, t0**2 / 2 + (t0 + g) * over - g * g * (1 - bend), r * r / 2)
        value = v @ rho + ridge * (theta @ theta) / 2 + b @ theta
        return value, ridge * theta + b - (v * psi) @ rows, v * bend

    theta = np.zeros(rows.shape[1])
    value, gradient, bend = evaluate(theta)
    for _ in range(100):
        curvature = (rows * bend[:, None]).T @ rows + ridge * np.eye(len(theta))
        step = np.linalg.solve(curvature, gradient)
        decrease = float(gradient @ step)
        if decrease <= 1e-9 * abs(value) + 1e-12:
            break
        length = 1.0
        trial = evaluate(theta - step)
        while trial[0] > value - 1e-4 * length * decrease and length > 1e-6:
            length /= 2
            trial = evaluate(theta - length * step)
        theta = theta - length * step
        value, gradient, bend = trial
    return theta


def fit_statistics(X, y, epsilon, rng) -> dict[str, Predict]:
    """Noisy sums; every λ is free after them."""
    model = sv.Ridge(bounds=make_bounds(X.shape[1]), method="statistics").fit(X, y, epsilon=epsilon)
    return {
        f"{alpha:.3g}": model.refit(alpha=float(alpha)).predict
        for alpha in 10.0 ** np.arange(-2.5, 1.1, 0.5)
    }


def fit_adassp(X, y, epsilon, rng) -> dict[str, Predict]:
    """AdaSSP (Wang 2018) with w ∝ √ρ, every ε as ρ at δ; replace neighbours, in plain doubles."""
    log = math.log(1 / DELTA)
    rho = (np.sqrt(log + epsilon) - math.sqrt(log)) ** 2
    w = np.sqrt(rho)
    rows = np.c_[np.full(len(X), 0.5), X - 0.5]
    d = rows.shape[1]
    squared = d / 4
    # A third of ρ each: the smallest eigenvalue, the matrix, the vector; w_l/√(2ρ_l/3) is one.
    unit = math.sqrt(1.5)
    A = (rows * w[:, None]).T @ rows
    upper = np.triu(rng.normal(size=(d, d)) * unit * squared * math.sqrt(2))
    noisy = A + upper + np.triu(upper, 1).T
    vector = rows.T @ (w * y) + rng.normal(size=d) * unit * 2 * math.sqrt(squared)
    least = float(np.linalg.eigvalsh(A)[0]) + rng.normal() * unit * squared
    spread = math.sqrt(d * math.log(2 * d * d / 0.05)) * unit * squared
    ridge = max(0.0, spread - max(least - 1.645 * unit * squared, 0.0))
    values, vectors = np.linalg.eigh(noisy + ridge * np.eye(d))
    values = np.maximum(values, 1e-3 * squared)
    return {"": predict_linear(vectors @ ((vectors.T @ vector) / values))}


RIVALS = {
    "private mean": fit_mean,
    "output": fit_output,
    "objective, fixed τ": fit_objective,
    "threshold": fit_threshold,
    "statistics": fit_statistics,
    "AdaSSP (δ)": fit_adassp,
    "default before": fit_box,
}
#: Rivals that keep the same promise.
PURE = tuple(name for name in RIVALS if name not in ("AdaSSP (δ)", "default before"))


# ---------------------------------------------------------------- the comparison


def measure_cell(cell: Cell, draws: int, seed: int) -> dict[str, tuple[float, float]]:
    """Returns rival over ours with its standard error, at the rival's best setting; and the share
    of variance that ours explains beyond a constant, as "R²".
    """
    rng = np.random.default_rng(seed)
    ours = []
    variance = []
    errors: dict[str, dict[str, list[float]]] = {name: {} for name in RIVALS}
    for _ in range(draws):
        X, y, test_X, test_y = cell.draw(rng)
        fitted = fit_ours(X, y, cell.epsilon, rng)[""]
        ours.append(np.mean((fitted(test_X) - test_y) ** 2))
        variance.append(test_y.var())
        for name, fit in RIVALS.items():
            for setting, predict in fit(X, y, cell.epsilon, rng).items():
                error = float(np.mean((predict(test_X) - test_y) ** 2))
                errors[name].setdefault(setting, []).append(error)
    mine = np.array(ours)
    told = {"R²": (1 - mine.mean() / np.mean(variance), 0.0)}
    for name, by_setting in errors.items():
        best = np.array(min(by_setting.values(), key=np.mean))
        ratio = best.mean() / mine.mean()
        error = np.std(best - ratio * mine, ddof=1) / mine.mean() / math.sqrt(draws)
        told[name] = (float(ratio), float(error))
    return told


def show(cells: list[Cell], found: list[dict[str, tuple[float, float]]], draws: int) -> None:
    """Prints the cells, geometric means, and the cells in which a pure rival is ahead."""
    table = Table("table", "budgets", "people × slopes", "Σε", "R² of ours", *RIVALS)
    for cell, told in zip(cells, found, strict=True):
        table.add_row(
            cell.name,
            cell.profile,
            f"{cell.people} × {cell.slopes}",
            f"{cell.epsilon.sum():.0f}",
            f"{told['R²'][0]:.2f}",
            *(f"{told[name][0]:.2f} ± {told[name][1]:.2f}" for name in RIVALS),
        )
    logs = {name: [math.log(told[name][0]) for told in found] for name in RIVALS}
    table.add_row(
        "geometric mean", "", "", "", "", *(f"{math.exp(np.mean(logs[n])):.3f}" for n in RIVALS)
    )
    CONSOLE.print(table)
    ahead = [
        f"{cell.name} ({cell.profile}, {cell.people} × {cell.slopes}): {name} "
        f"{told[name][0]:.3f} ± {told[name][1]:.3f}"
        for cell, told in zip(cells, found, strict=True)
        for name in PURE
        if told[name][0] < 0.95
    ]
    before = math.exp(-np.mean(logs["default before"]))
    CONSOLE.print(
        f"{draws} draws a cell. Ours over the default before, geometric mean: {before:.3f}."
    )
    CONSOLE.print(
        f"Cells in which a pure rival in hindsight is ahead by more than 5 %: {len(ahead)}"
    )
    for line in ahead:
        CONSOLE.print(f"  {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a third of the cells, fewer draws")
    parser.add_argument("--tuning", action="store_true", help="the tables that were tuned on")
    parser.add_argument("--draws", type=int, help="draws a cell")
    given = parser.parse_args()
    cells = list_cells(given.tuning)
    if given.quick:
        cells = cells[::3]
    draws = given.draws or (6 if given.quick else 20)
    found = [
        measure_cell(cell, draws, seed=100 + place)
        for place, cell in enumerate(track(cells, "frontier", console=CONSOLE, transient=True))
    ]
    show(cells, found, draws)


if __name__ == "__main__":
    main()
