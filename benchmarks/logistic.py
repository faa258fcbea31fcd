# SPDX-License-Identifier: Apache-2.0
"""Logistic regression with personal budgets: test errors on breast cancer, and speed against
scikit-learn, in one run.

569 rows: 57 are public (for scaling and λ), 398 train, 114 test; drawn anew each time, with the
budgets and the noise. All methods see the same rows, the same budgets and the same public rows.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from timing import best_times, console, show, verdict

import sottovoce as sv

PUBLIC = 57
TRAIN = 398
#: Careful people uniform in [.01, .2], middling in [.2, 1], open ones at 1.
SHARES = (0.54, 0.37)
EPSILON = (0.01, 0.2, 1.0)
#: The most that the mean test error may be.
ALLOWED = {"personal, κ (the default)": 0.095, "personal, exact charge": 0.135}
#: The most of scikit-learn's time that ours may take.
SLOWER = 1.5


def budgets(n: int, rng: np.random.Generator) -> np.ndarray:
    a, b = (int(share * n) for share in SHARES)
    low, middle, high = EPSILON
    drawn = np.r_[
        rng.uniform(low, middle, a), rng.uniform(middle, high, b), np.full(n - a - b, high)
    ]
    return rng.permutation(drawn)


def competitors(bounds, public) -> dict[str, object]:
    def private(**options):
        return sv.LogisticRegression(bounds=bounds, public=public, **options)

    null = (public[0].mean(axis=0), 0)
    return {
        "personal, κ (the default)": private(),
        "personal, exact charge": private(accountant="exact"),
        "personal, labels alone": private(neighbours="labels"),
        "uniform at min ε": sv.Uniform(private()),
        "sampled at max ε (Jorgensen, repaired)": sv.Sampled(private(), threshold="max", null=null),
        "sampled at mean ε": sv.Sampled(private(), threshold="mean", null=null),
        "non-private": make_pipeline(StandardScaler(), LogisticRegression()),
    }


def errors(draws: int) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    bounds = sv.Bounds(
        features=(np.zeros(X.shape[1]), 1.5 * X.max(axis=0))
    )  # stands in for what a physician knows
    found: dict[str, list[float]] = {}
    for draw in track(range(draws), "breast cancer", console=console, transient=True):
        rng = np.random.default_rng(draw)
        order = rng.permutation(len(y))
        public, train, test = np.split(order, [PUBLIC, PUBLIC + TRAIN])
        epsilon = budgets(TRAIN, rng)
        for name, one in competitors(bounds, (X[public], y[public])).items():
            if name == "non-private":
                given = {}
            else:
                given = {"epsilon": epsilon}
            found.setdefault(name, []).append(
                1 - one.fit(X[train], y[train], **given).score(X[test], y[test])
            )
    table = Table(
        "",
        "test error",
        "± s.e.",
        "allowed",
        "",
        title=f"Breast cancer, {TRAIN} people, {draws} draws",
    )
    for name, rates in found.items():
        if name in ALLOWED:
            told = (f"{ALLOWED[name]}", verdict(float(np.mean(rates)), ALLOWED[name]))
        else:
            told = ("", "")
        table.add_row(name, f"{np.mean(rates):.3f}", f"{np.std(rates) / np.sqrt(draws):.3f}", *told)
    console.print(table)


def speed(n: int, p: int = 30) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, p))
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ rng.normal(size=p)))).astype(int)
    epsilon = np.array(EPSILON)[rng.integers(0, 3, n)]
    ask = sv.LogisticRegression(bounds=sv.Bounds(features=(-1, 1)))
    ridge = ask.plan(epsilon=epsilon, n_features=p).parameters["alpha"]
    plain = LogisticRegression(solver="newton-cholesky", C=1 / (n * ridge))
    times = best_times(
        {
            "scikit-learn, newton-cholesky": lambda: plain.fit(
                X, y, sample_weight=epsilon / epsilon.mean()
            ),
            "sv.LogisticRegression, certified": lambda: ask.fit(X, y, epsilon=epsilon),
        }
    )
    measure = "scikit-learn, newton-cholesky"
    show(f"{n:,} × {p}", times, measure, {"sv.LogisticRegression, certified": (measure, SLOWER)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--quick", action="store_true", help="ten draws, and a tenth of the rows")
    chosen = parser.parse_args()
    errors(10 if chosen.quick else chosen.draws)
    for n in (10_000, 100_000) if chosen.quick else (100_000, 1_000_000):
        speed(n)


if __name__ == "__main__":
    main()
