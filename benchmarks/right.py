"""Are answers right on labels as they are? The default regression beside what else one could do.

Tables are made here: counts with many zeros, lognormal and exponential costs, two humps, and a
symmetric label; one per cent of the people open, three tiers, and equal budgets. Everybody answers
from the same rows. Numbers are mean squared errors on 3,000 rows held out, over that of least
squares without privacy, with their standard errors; a private mean is a constant. "threshold" drops
people below a budget and treats all others as if they had granted just that; it gets its best
budget *in hindsight*. "uniform" gives everybody the smallest budget, "published" is the output
method at the λ that its plan chooses.

    python benchmarks/right.py --quick                 some minutes, up to 10,000 rows
    python benchmarks/right.py --rows 1000 10000       some of the sizes
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import Progress
from sklearn.linear_model import LinearRegression

import sottovoce as sv

CONSOLE = Console(width=140)
HELD_OUT = 3000
Draw = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Law:
    """How labels depend on a score of mean 0 and variance 1, and the range that is declared."""

    name: str
    draw: Draw
    label: tuple[float, float]


def draw_counts(score: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    visited = rng.random(len(score)) < 0.45
    return visited * rng.poisson(np.exp(-0.3 + 0.5 * score))


def draw_humps(score: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    upper = rng.random(len(score)) < 1 / (1 + np.exp(-1.2 * score))
    return np.where(upper, 3.0, -3.0) + rng.normal(size=len(score))


LAWS = (
    Law("counts with many zeros", draw_counts, (0, 12)),
    Law(
        "lognormal",
        lambda score, rng: np.exp(0.5 * score + 0.9 * rng.normal(size=len(score))),
        (0, 30),
    ),
    Law(
        "exponential",
        lambda score, rng: np.exp(0.5 * score) * rng.exponential(1, len(score)),
        (0, 15),
    ),
    Law("two humps", draw_humps, (-10, 10)),
    Law(
        "symmetric",
        lambda score, rng: 0.65 * score + 0.76 * rng.normal(size=len(score)),
        (-8, 8),
    ),
)
PROFILES: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "equal": lambda n, rng: np.full(n, 0.5),
    "tiers": lambda n, rng: rng.choice([0.01, 0.2, 1.0], n, p=[0.34, 0.43, 0.23]),
    "open": lambda n, rng: np.where(rng.random(n) < 0.01, 5.0, 0.05),
}
ROUNDS = {1000: 40, 10_000: 12, 100_000: 3}
QUICK = {1000: 6, 10_000: 2}
METHODS = ("ours", "threshold", "uniform", "published", "private mean", "least squares")


def draw_table(
    law: Law, n: int, features: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    X = rng.random((n + HELD_OUT, features))
    direction = rng.normal(size=features)
    score = (X - 0.5) @ direction / np.linalg.norm(direction) * np.sqrt(12)
    return X, np.clip(law.draw(score, rng), *law.label).astype(float)


def fit_above(question: sv.Ridge, X, y, epsilon: np.ndarray, least: float) -> sv.Ridge:
    """Drops people below ``least``; all others count as if they had granted just that."""
    kept = epsilon >= least
    return question.fit(X[kept], y[kept], epsilon=float(least))


def measure(law: Law, profile: str, n: int, features: int, rng: np.random.Generator):
    """Returns the errors of all methods on one table; of the threshold, at each budget."""
    X, y = draw_table(law, n, features, rng)
    epsilon = PROFILES[profile](n, rng)
    seen, labels, new, truth = X[:n], y[:n], X[n:], y[n:]
    bounds = sv.Bounds(features=(np.zeros(features), np.ones(features)), label=law.label)
    question = sv.Ridge(bounds=bounds)

    def miss(predicted) -> float:
        return float(np.mean((truth - predicted) ** 2))

    budgets = np.unique(epsilon)
    thresholds = [miss(fit_above(question, seen, labels, epsilon, t).predict(new)) for t in budgets]
    published = sv.Ridge(bounds=bounds, method="output").fit(seen, labels, epsilon=epsilon)
    mean = sv.Mean(bounds=law.label).fit(labels, epsilon=epsilon).value_
    errors = {
        "ours": miss(question.fit(seen, labels, epsilon=epsilon).predict(new)),
        "uniform": thresholds[0],
        "published": miss(published.predict(new)),
        "private mean": miss(mean),
        "least squares": miss(LinearRegression().fit(seen, labels).predict(new)),
    }
    return errors, thresholds, float(epsilon.sum()), float(truth.var())


def compare(law: Law, profile: str, n: int, features: int, rounds: int, step) -> list[str]:
    """Returns one line of the table: ratios to least squares, with standard errors."""
    rng = np.random.default_rng([n, features, len(law.name), len(profile)])
    drawn = []
    for _ in range(rounds):
        drawn.append(measure(law, profile, n, features, rng))
        step()
    best = int(np.argmin(np.mean([thresholds for _, thresholds, _, _ in drawn], axis=0)))
    plain = np.array([errors["least squares"] for errors, _, _, _ in drawn])
    cells = []
    for method in METHODS:
        if method == "threshold":
            own = np.array([thresholds[best] for _, thresholds, _, _ in drawn])
        else:
            own = np.array([errors[method] for errors, _, _, _ in drawn])
        if method == "least squares":
            variance = np.array([spread for _, _, _, spread in drawn])
            cells.append(f"R² {1 - plain.mean() / variance.mean():.3f}")
        else:
            cells.append(describe_ratio(own, plain))
        if method == "ours":
            ours = own
    mean = np.array([errors["private mean"] for errors, _, _, _ in drawn])
    total = np.mean([budget for _, _, budget, _ in drawn])
    head = [law.name, f"{n:,}", profile, f"{total:,.0f}"]
    return [*head, *cells, describe_ratio(ours, mean)]


def describe_ratio(own: np.ndarray, other: np.ndarray) -> str:
    ratio = own.mean() / other.mean()
    spread = np.std(own - ratio * other) / np.sqrt(len(own)) / other.mean()
    return f"{ratio:.3f} ± {spread:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller tables")
    parser.add_argument("--rows", type=int, nargs="+", help="sizes of tables")
    parser.add_argument("--features", type=int, default=5)
    parser.add_argument("--rounds", type=int, help="tables a line")
    given = parser.parse_args()
    rounds = QUICK if given.quick else ROUNDS
    sizes = given.rows or list(rounds)
    counts = {n: given.rounds or rounds.get(n, 3) for n in sizes}
    lines = []
    with Progress(console=CONSOLE, transient=True) as progress:
        total = sum(counts.values()) * len(LAWS) * len(PROFILES)
        task = progress.add_task("tables", total=total)
        for n in sizes:
            for law in LAWS:
                for profile in PROFILES:
                    lines.append(
                        compare(
                            law,
                            profile,
                            n,
                            given.features,
                            counts[n],
                            lambda: progress.advance(task),
                        )
                    )
    heads = ["labels", "people", "budgets", "Σε", *METHODS, "ours / private mean"]
    print(f"{given.features} features; mean squared error over that of least squares\n")
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for line in lines:
        print("| " + " | ".join(line) + " |")


if __name__ == "__main__":
    main()
