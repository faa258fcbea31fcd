"""Classifiers at the frontier: ours as shipped against rivals with hindsight settings.

Pure ε: weighted output perturbation and weighted objective perturbation (Chaudhuri, Monteleoni and
Sarwate 2011) on rows cut to the unit ball, everybody's weight ∝ min(ε, cap) as ours, with the λ
and the radius that have the smallest error on the very tables shown. At a δ: our own choice.

    made tables      on which constants were chosen; not reported in the docs
    reported tables  breast cancer and wine of scikit-learn, two or all classes; splits are seeded

Ratios are errors over ours in pure ε, with the standard error of the mean over splits; a cell is
lost where a rival in pure ε is below .95. The smallest of 24 settings is too small by chance: this
is in favour of rivals.

    python benchmarks/frontier_classification.py [--made] [--splits 20] [--digits]
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.table import Table
from scipy.optimize import minimize
from sklearn import datasets
from sklearn.model_selection import train_test_split
from timing import console

import sottovoce as sv

PROFILES = {
    "1 for all": (np.array([1.0]), np.array([1.0])),
    "10 for all": (np.array([10.0]), np.array([1.0])),
    ".01/.2/1": (np.array([0.01, 0.2, 1.0]), np.array([0.34, 0.43, 0.23])),
}
LAMBDAS = np.geomspace(1e-3, 3.0, 8)
RADII = (0.25, 0.5, 1.0)
DELTA = 1e-6
LOST_BELOW = 0.95


def main() -> None:
    """Prints a table of cells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--made", action="store_true", help="the tables that constants come from")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--digits", action="store_true", help="ten digits as well")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tables = dict(list_made() if options.made else list_reported())
    table = Table("table", "budgets", "ours", "output", "objective", f"ours, δ = {DELTA:g}")
    for name, (X, y, top) in tables.items():
        for profile in PROFILES:
            cells = compare(X, y, top, profile, options.splits)
            ours, wrong = describe(cells["ours"])
            row = [name, profile, f"{ours:.3f} ± {wrong:.3f}"]
            for rival in ("output", "objective"):
                row.append(tell_ratio(cells[rival], cells["ours"], " lost"))
            row.append(tell_ratio(cells["delta"], cells["ours"]))
            table.add_row(*row)
    console.print(table)
    if options.digits:
        show_digits(options.splits)


def assign(n: int, profile: str, rng: Any) -> Any:
    """Budgets of n people."""
    epsilon, shares = PROFILES[profile]
    return rng.choice(epsilon, n, p=shares)


def list_reported() -> Iterator[tuple[str, tuple[Any, Any, Any]]]:
    """Real tables: features from 0 to a round number, and two classes."""
    for name, load in (
        ("breast cancer", datasets.load_breast_cancer),
        ("wine", datasets.load_wine),
    ):
        X, y = load(return_X_y=True)
        yield name, (X, (y > 0).astype(int), np.array([round_up(one) for one in X.T]))
    X, y = datasets.load_digits(return_X_y=True)
    yield "digits, even or odd", (X, y % 2, np.full(64, 16.0))


def list_made() -> Iterator[tuple[str, tuple[Any, Any, Any]]]:
    """Made tables: skewed and correlated, skewed, or in the middle of the bounds."""
    for n, d in ((600, 30), (600, 8), (600, 4), (3000, 30), (3000, 8)):
        for kind in ("correlated", "skewed", "centred"):
            rng = np.random.default_rng([n, d, len(kind)])
            X, y = make_table(n, d, kind, rng)
            yield f"{kind}, n = {n}, p = {d}", (X, y, np.ones(d))


def make_table(n: int, d: int, kind: str, rng: Any) -> tuple[Any, Any]:
    """Rows in [0, 1] and classes that a linear function of what is behind them tells apart."""
    factors = rng.normal(size=(n, 3))
    behind = rng.normal(size=(n, d))
    if kind != "skewed":
        behind = behind + factors @ (0.8 * rng.normal(size=(3, d)))
    scaled = behind / behind.std(axis=0)
    if kind == "centred":
        X = np.clip(scaled / 6 + 0.5, 0, 1)
    else:
        grown = np.exp(rng.uniform(0.2, 0.8, d) * scaled)
        X = grown / (grown.max(axis=0) * rng.uniform(1, 2, d))
    score = behind @ (rng.normal(size=d) * (rng.random(d) < 0.5)) + 2 * factors[:, 0]
    score = (score - np.quantile(score, rng.uniform(0.3, 0.7))) / score.std()
    y = (rng.random(n) < 1 / (1 + np.exp(-rng.choice([3.0, 8.0]) * score))).astype(int)
    return X, y


def round_up(values: Any) -> float:
    """The next of 1, 2, 5, 10, …: as somebody would guess."""
    top = float(np.max(values))
    power = 10.0 ** math.floor(math.log10(top))
    return float(next(k * power for k in (1, 2, 5, 10) if k * power >= top))


def compare(X: Any, y: Any, top: Any, profile: str, splits: int) -> dict[str, Any]:
    """Shares of errors by way, one a split; of rivals those of their best setting."""
    bounds = sv.Bounds(features=(np.zeros(len(top)), top))
    found: dict[Any, list[float]] = {}
    for split in range(splits):
        rng = np.random.default_rng(split)
        parts = train_test_split(X, y, test_size=0.3, random_state=split)
        train, test, own, held = parts
        epsilon = assign(len(own), profile, rng)
        for way, options in (("ours", {}), ("delta", {"delta": DELTA})):
            model = sv.LogisticRegression(bounds, **options).fit(train, own, epsilon=epsilon)
            found.setdefault(way, []).append(float(np.mean(model.predict(test) != held)))
        for radius in RADII:
            A, B = (to_ball(part / top, radius) for part in (train, test))
            for strength in LAMBDAS:
                for way, fit in (("output", fit_output), ("objective", fit_objective)):
                    theta = fit(A, 2 * own - 1, epsilon, strength, rng)
                    wrong = float(np.mean((B @ theta > 0) != (held > 0)))
                    found.setdefault((way, radius, strength), []).append(wrong)
    for way in ("output", "objective"):
        settings = [key for key in found if key[0] == way]
        found[way] = found[min(settings, key=lambda key: float(np.mean(found[key])))]
    return {way: np.array(found[way]) for way in ("ours", "delta", "output", "objective")}


def to_ball(Z: Any, radius: float) -> Any:
    """Rows (1, 2z − 1)/√(p + 1), cut at the radius and scaled to the unit ball."""
    rows = np.column_stack([np.ones(len(Z)), 2 * Z - 1]) / math.sqrt(Z.shape[1] + 1)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(length, radius)


def minimise(A: Any, y: Any, weight: Any, strength: float, tilt: Any) -> Any:
    """The minimiser of Σ a·log(1 + e^(−yφθ)) + λ/2‖θ‖² + bᵀθ."""

    def risk(theta: Any) -> tuple[float, Any]:
        margin = y * (A @ theta)
        value = (
            float(weight @ np.logaddexp(0, -margin)) + strength / 2 * theta @ theta + tilt @ theta
        )
        slope = A.T @ (-weight * y / (1 + np.exp(margin))) + strength * theta + tilt
        return value, slope

    return minimize(risk, np.zeros(A.shape[1]), jac=True, method="L-BFGS-B").x


def draw_radial(width: int, rate: float, rng: Any) -> Any:
    """Noise of density ∝ exp(−rate·‖b‖)."""
    direction = rng.normal(size=width)
    return direction / np.linalg.norm(direction) * rng.gamma(width, 1 / rate)


def fit_output(A: Any, y: Any, epsilon: Any, strength: float, rng: Any) -> Any:
    """Weights ∝ ε: replacing a row moves the minimiser by at most 2a/λ."""
    weight = epsilon / epsilon.sum()
    rate = strength * float(epsilon.sum()) / 2
    found = minimise(A, y, weight, strength, np.zeros(A.shape[1]))
    return found + draw_radial(A.shape[1], rate, rng)


def fit_objective(A: Any, y: Any, epsilon: Any, strength: float, rng: Any) -> Any:
    """Weights ∝ ε; what the curvature costs, log(1 + a/4λ) twice, comes off every budget, and λ is
    raised where nothing would be left.
    """
    weight = epsilon / epsilon.sum()
    strength = max(strength, 1 / float(epsilon.sum()))
    left = 1 - float(np.max(2 * np.log1p(weight / (4 * strength)) / epsilon))
    rate = left * float(epsilon.sum()) / 2
    return minimise(A, y, weight, strength, draw_radial(A.shape[1], rate, rng))


def describe(errors: Any) -> tuple[float, float]:
    """Mean and standard error."""
    return float(np.mean(errors)), float(np.std(errors) / math.sqrt(len(errors)))


def tell_ratio(rival: Any, ours: Any, lost: str = "") -> str:
    """Ratio of mean errors with its standard error (the two are of the same splits)."""
    ratio = float(np.mean(rival) / np.mean(ours))
    error = float(np.std(rival - ratio * ours) / math.sqrt(len(ours)) / np.mean(ours))
    if ratio >= LOST_BELOW:
        lost = ""
    return f"{ratio:.2f} ± {error:.2f}{lost}"


def show_digits(splits: int) -> None:
    """Ten digits by one softmax objective, ε = 10 for all."""
    X, y = datasets.load_digits(return_X_y=True)
    bounds = sv.Bounds(features=(np.zeros(64), np.full(64, 16.0)))
    errors = [score_digits(X, y, bounds, split) for split in range(splits)]
    ours, wrong = describe(np.array(errors))
    console.print(f"Ten digits, ε = 10 for all: {ours:.3f} ± {wrong:.3f}")


def score_digits(X: Any, y: Any, bounds: sv.Bounds, split: int) -> float:
    """The share of errors on held out rows."""
    train, test, own, held = train_test_split(X, y, test_size=0.2, random_state=split)
    model = sv.LogisticRegression(bounds, classes=list(range(10))).fit(train, own, epsilon=10.0)
    return float(np.mean(model.predict(test) != held))


if __name__ == "__main__":
    main()
