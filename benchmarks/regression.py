"""The default regression against the published method, the private mean and scikit-learn, in one
run.

Losses are mean squared errors on rows held out, in units of the label's declared range squared. The
published method gets its best λ *in hindsight*, from a grid, with its noise integrated out exactly;
ours make public choices only.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.linear_model import LinearRegression, Ridge
from timing import best_times, show

import sottovoce as sv

CONSOLE = Console()
PROFILE = (0.34, 0.43, 0.23), (0.01, 0.2, 1.0)


def budgets(n: int, rng: np.random.Generator) -> np.ndarray:
    """The published profile: careful people uniform in [.01, .2], middling in [.2, 1], open ones at
    1.
    """
    (careful, middle, _), (low, between, high) = PROFILE
    a = int(careful * n)
    b = int(middle * n)
    return np.r_[
        rng.uniform(low, between, a), rng.uniform(between, high, b), np.full(n - a - b, high)
    ]


def published_loss(X, y, epsilon, test_X, test_y, ridges) -> float:
    """Expected test loss of output perturbation as published at its best λ, X in [0, 1]^d and y in
    [−1, 1].
    """
    d = X.shape[1]
    w = epsilon / epsilon.sum()
    losses = []
    for lam in ridges:
        theta = np.linalg.solve((X * w[:, None]).T @ X + lam * np.eye(d), X.T @ (w * y))
        bound = min(1 / math.sqrt(lam), math.sqrt(d) / lam)
        rate = lam * epsilon.sum() / (2 * math.sqrt(d) * (1 + math.sqrt(d) * bound))
        noise = (
            (d + 1) / rate**2 * np.sum(test_X**2) / len(test_y)
        )  # E‖Z‖² = d(d+1)/η², spread evenly
        losses.append(np.mean((test_y - test_X @ theta) ** 2) + noise)
    return float(min(losses))


def synthetic(n: int, rng: np.random.Generator, noise: float = 0.0, d: int = 30):
    theta = rng.normal(size=d)
    theta /= np.linalg.norm(theta)
    X = rng.random((n + 2000, d))
    y = X @ theta / math.sqrt(d) + noise * rng.normal(size=n + 2000)
    return X[:n], np.clip(y[:n], -1, 1), X[n:], y[n:]


def synthetic_table(draws: dict[int, int]) -> Table:
    table = Table(
        "people",
        "label noise",
        "published",
        "private mean",
        "sv.Ridge",
        "published / ours",
        "target",
    )
    rng = np.random.default_rng(0)
    bounds = sv.Bounds(features=(np.zeros(30), np.ones(30)), label=(-1, 1))
    ridges = 10.0 ** np.linspace(-1, 4, 60)
    for (n, repeats), noise in itertools.product(draws.items(), (0.0, 0.05)):
        losses = []
        for _ in track(range(repeats), f"synthetic, {n:,} people", console=CONSOLE, transient=True):
            X, y, test_X, test_y = synthetic(n, rng, noise)
            epsilon = budgets(n, rng)
            ours = sv.Ridge(bounds=bounds).fit(X, y, epsilon=epsilon)
            mean = sv.Mean(bounds=(-1, 1)).fit(y, epsilon=epsilon).value_
            losses.append(
                (
                    published_loss(X, y, epsilon, test_X, test_y, ridges),
                    np.mean((test_y - mean) ** 2),
                    np.mean((test_y - ours.predict(test_X)) ** 2),
                )
            )
        theirs, private, mine = np.mean(losses, axis=0)
        if noise == 0:
            target = {100: "2.5", 1000: "3", 10000: "30"}[n]
        else:
            target = ""
        table.add_row(
            f"{n:,}",
            f"{noise:g}",
            f"{theirs:.2e}",
            f"{private:.2e}",
            f"{mine:.2e}",
            f"{theirs / mine:.1f}",
            target,
        )
    return table


MEDICAL = sv.Schema.loads("""
label = "charges"
[columns.age]
kind = "number"
low = 18
high = 64
[columns.bmi]
kind = "number"
low = 10
high = 60
[columns.children]
kind = "number"
low = 0
high = 5
[columns.sex]
kind = "factor"
levels = ["female", "male"]
[columns.smoker]
kind = "factor"
levels = ["no", "yes"]
[columns.region]
kind = "factor"
levels = ["northeast", "northwest", "southeast", "southwest"]
[columns.charges]
kind = "number"
low = 0
high = 70000
""")


def medical_table(path: Path, splits: int) -> Table:
    import pandas as pd

    frame = pd.read_csv(path)
    table = Table(
        "medical cost",
        "published",
        "private mean",
        "sv.Ridge",
        "OLS, not private",
        "published / ours",
        "target",
    )
    one_hot = pd.get_dummies(frame[["sex", "smoker", "region"]]).to_numpy(float)
    published_X = np.c_[
        (frame.age - 18) / 46,
        (frame.bmi - 10) / 50,
        frame.children / 5,
        one_hot,
        np.ones(len(frame)),
    ]
    y = frame.charges.to_numpy()
    rng = np.random.default_rng(1)
    losses = []
    scaled = (y - 35_000) / 35_000
    for _ in track(range(splits), "medical cost", console=CONSOLE, transient=True):
        order = rng.permutation(len(frame))
        train = order[:1070]
        test = order[1070:]
        epsilon = budgets(len(train), rng)
        ours = sv.Ridge(bounds=MEDICAL).fit(frame.iloc[train], y[train], epsilon=epsilon)
        mean = sv.Mean(bounds=(0, 70_000)).fit(y[train], epsilon=epsilon).value_
        plain = LinearRegression().fit(published_X[train], y[train])
        losses.append(
            (
                published_loss(
                    published_X[train],
                    scaled[train],
                    epsilon,
                    published_X[test],
                    scaled[test],
                    10.0 ** np.linspace(-2, 3, 60),
                )
                / 4,
                np.mean((y[test] - mean) ** 2) / 70_000**2,
                np.mean((y[test] - ours.predict(frame.iloc[test])) ** 2) / 70_000**2,
                np.mean((y[test] - plain.predict(published_X[test])) ** 2) / 70_000**2,
            )
        )
    theirs, private, mine, plain_loss = np.mean(losses, axis=0)
    table.add_row(
        f"{splits} splits",
        f"{theirs:.2e}",
        f"{private:.2e}",
        f"{mine:.2e}",
        f"{plain_loss:.2e}",
        f"{theirs / mine:.1f}",
        "4.5",
    )
    return table


def sweep_table(repeats: int) -> Table:
    """Designs in which there may be nothing to learn: how far above the private mean can the
    default be?
    """
    designs = list(
        itertools.product((60, 150, 400, 1500), (3, 10, 30), (0.05, 0.2), (0.0, 0.3, 0.8))
    )
    rng = np.random.default_rng(2)
    ratios = []
    for n, p, scale, explained in track(
        designs, "sweep of designs", console=CONSOLE, transient=True
    ):
        bounds = sv.Bounds(features=(np.zeros(p), np.ones(p)), label=(-1, 1))
        losses = []
        for _ in range(repeats):
            X = rng.random((n + 1000, p))
            signal = (X - 0.5) @ rng.normal(size=p)
            y = rng.uniform(-0.5, 0.5) + scale * (
                math.sqrt(explained) * signal / signal.std()
                + math.sqrt(1 - explained) * rng.normal(size=n + 1000)
            )
            y = np.clip(y, -1, 1)
            epsilon = budgets(n, rng)
            ours = sv.Ridge(bounds=bounds).fit(X[:n], y[:n], epsilon=epsilon)
            mean = sv.Mean(bounds=(-1, 1)).fit(y[:n], epsilon=epsilon).value_
            losses.append(
                (np.mean((y[n:] - ours.predict(X[n:])) ** 2), np.mean((y[n:] - mean) ** 2))
            )
        mine, private = np.mean(losses, axis=0)
        ratios.append((mine / private, n, p, scale, explained))
    ratios.sort(reverse=True)
    table = Table(
        "ours / private mean",
        "people",
        "features",
        "label sd",
        "R²",
        title=f"{len(designs)} designs, the five worst; target 1.10",
    )
    for ratio, *design in ratios[:5]:
        table.add_row(f"{ratio:.3f}", *(f"{x:g}" for x in design))
    table.add_row(
        f"{np.exp(np.mean(np.log([r[0] for r in ratios]))):.3f}",
        "geometric mean of all",
        "",
        "",
        "",
    )
    return table


def drawn_back_table(draws: int, n: int = 400, p: int = 10, scale: float = 0.2) -> Table:
    """How far could any rule do that draws slopes back by their length alone?

    The worst design of the sweep. Fitted slopes are in the release, so that the test loss is known
    for every factor f on them: a − 2f·b + f²·c. A rule is a function of x = ‖slopes‖² over what
    noise alone would make it; the best one *in hindsight* has one free f for each twelfth of all x,
    and minimises loss at R² = .8 plus a weight times loss at R² = 0, on these very draws.
    """
    rng = np.random.default_rng(5)
    bounds = sv.Bounds(features=(np.zeros(p), np.ones(p)), label=(-1, 1))
    epsilon = budgets(n, rng)
    measured = {}
    for explained in (0.0, 0.8):
        lines = []
        for _ in track(range(draws), "drawing back", console=CONSOLE, transient=True):
            X = rng.random((n + 600, p))
            signal = (X - 0.5) @ rng.normal(size=p)
            y = rng.uniform(-0.5, 0.5) + scale * (
                math.sqrt(explained) * signal / signal.std()
                + math.sqrt(1 - explained) * rng.normal(size=n + 600)
            )
            y = np.clip(y, -1, 1)
            model = sv.Ridge(bounds=bounds).fit(X[:n], y[:n], epsilon=rng.permutation(epsilon))
            mean = sv.Mean(bounds=(-1, 1)).fit(y[:n], epsilon=epsilon).value_
            stage = model.release_.value["stages"][-1]
            slopes = np.array(stage["theta"])[1:]
            if len(slopes) == 0:
                continue  # a constant: there is nothing to draw back
            # How much of them was kept gives x: 1 − 1/x, or 0 below 1, where lengths tell.
            rest = y[n:] - model.intercept_ - model.coef_.sum() / 2
            moved = (X[n:] - 0.5) @ slopes
            kept = float(model.coef_ @ slopes) / float(slopes @ slopes)
            lines.append(
                (
                    np.mean((y[n:] - mean) ** 2),
                    kept,
                    np.mean(rest**2),
                    np.mean(rest * moved),
                    np.mean(moved**2),
                )
            )
        measured[explained] = np.array(lines)
    table = Table("rule", "R² = 0", "R² = .8", title="loss over the private mean's, by rule")
    table.add_row("shipped", *(f"{compare_factor(a, a[:, 1]):.3f}" for a in measured.values()))
    steps = np.quantile(np.concatenate([a[:, 1] for a in measured.values()]), np.arange(1, 12) / 12)
    for weight in (1.0, 2.0, 4.0, 8.0):
        nothing, much = (sum_by_step(a, steps) for a in measured.values())
        best = (much[0] + weight * nothing[0]) / np.maximum(much[1] + weight * nothing[1], 1e-300)
        losses = [compare_factor(a, best[np.digitize(a[:, 1], steps)]) for a in measured.values()]
        table.add_row(f"best in hindsight, weight {weight:g}", *(f"{one:.3f}" for one in losses))
    return table


def compare_factor(lines: np.ndarray, factor: np.ndarray) -> float:
    """The loss at these factors on slopes, over that of the private mean."""
    losses = lines[:, 2] - 2 * factor * lines[:, 3] + factor**2 * lines[:, 4]
    return float(losses.mean() / lines[:, 0].mean())


def sum_by_step(lines: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """b and c by step of x, over the private mean's loss."""
    which = np.digitize(lines[:, 1], steps)
    unit = lines[:, 0].sum()
    return tuple(np.bincount(which, lines[:, k] / unit, minlength=12) for k in (3, 4))


def speed(n: int, p: int = 20) -> None:
    rng = np.random.default_rng(3)
    X = rng.random((n, p))
    epsilon = rng.choice([0.1, 0.5, 2.0], n)
    y = X @ rng.normal(size=p) + rng.normal(size=n)
    bounds = sv.Bounds(features=(np.zeros(p), np.ones(p)), label=(-10, 10))
    competitors = {
        "scikit-learn": lambda: Ridge().fit(X, y, sample_weight=epsilon),
        "statistics": lambda: sv.Ridge(bounds=bounds, method="statistics", alpha=1e-4).fit(
            X, y, epsilon=epsilon
        ),
        "objective": lambda: sv.Ridge(bounds=bounds).fit(X, y, epsilon=epsilon),
    }
    times = best_times(competitors, rounds=3)
    targets = {"statistics": ("scikit-learn", 1.0), "objective": ("scikit-learn", 10.0)}
    show(f"weighted ridge, {n:,} × {p}", times, "scikit-learn", targets)


def data_path() -> Path | None:
    for place in (os.environ.get("SOTTOVOCE_DATA"), Path(__file__).parents[2] / "shared" / "data"):
        if place and (Path(place) / "insurance.csv").exists():
            return Path(place) / "insurance.csv"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer draws, smaller tables")
    quick = parser.parse_args().quick
    CONSOLE.print(
        synthetic_table({100: 40, 1000: 10} if quick else {100: 300, 1000: 300, 10000: 100})
    )
    path = data_path()
    if path is None:
        CONSOLE.print(
            "The medical cost data is not here: set SOTTOVOCE_DATA to the folder of insurance.csv."
        )
    else:
        CONSOLE.print(medical_table(path, 5 if quick else 40))
    CONSOLE.print(sweep_table(2 if quick else 40))
    CONSOLE.print(drawn_back_table(40 if quick else 400))
    speed(10**5 if quick else 10**6)


if __name__ == "__main__":
    main()
