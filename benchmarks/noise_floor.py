# SPDX-License-Identifier: Apache-2.0
"""How close to least squares can noise in the objective come, if somebody knew the best settings?

The default regression buys a scale, chooses threshold and regularisation from public numbers, and
pays for all of it. Here an oracle fits once, with everybody's whole budget, around the true mean of
the labels, at the threshold τ and the regularisation Λ that turn out best on rows held out, and
draws slopes back by the best factor in hindsight. Noise is the same: the proof needs noise that
hides what one row can pull, whatever else is done. What such an oracle misses of the R² of least
squares, no choice of shares, thresholds or regularisation can give.

    python benchmarks/noise_floor.py [--features 20] [--rows 10000] [--rounds 8] [--profile equal]
"""

from __future__ import annotations

import argparse

import numpy as np
from right import LAWS, PROFILES, draw_table
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

import sottovoce as sv

#: τ in standard deviations of the labels, and Λ over the least that the proof allows.
THRESHOLDS = (0.5, 1.0, 1.5, 2.5, 4.0, 8.0)
RIDGES = (1.0, 4.0, 16.0, 64.0)
#: What slopes are multiplied by at the end.
FACTORS = np.linspace(0, 1, 21)
STEPS = 25


def fit_oracle(rows, labels, weights, tau, ridge, noise) -> np.ndarray:
    """The minimiser of Huber's loss with this noise, by Newton's steps; rows are (½, z)."""
    theta = np.zeros(rows.shape[1])
    for _ in range(STEPS):
        left = labels - rows @ theta
        inside = np.abs(left) <= tau
        pull = rows.T @ (weights * np.clip(left, -tau, tau)) - ridge * theta - noise
        bend = (rows * (weights * inside)[:, None]).T @ rows + np.diag(ridge)
        theta = theta + np.linalg.solve(bend, pull)
    return theta


def draw_noise(slopes: int, tau: float, rng) -> np.ndarray:
    """Density ∝ exp(−max_j|b_j|/τ): a person of weight ε pays ε for any row."""
    size = rng.gamma(slopes + 2) * tau
    b = rng.uniform(-1, 1, slopes + 1)
    b[rng.integers(slopes + 1)] = rng.choice([-1, 1])
    return size * b


def measure(law, n: int, features: int, rounds: int, profile: str) -> dict[str, float]:
    """Mean R² on rows held out of the oracle at its best setting, of ours, and of least squares."""
    rng = np.random.default_rng([n, features, len(law.name)])
    found: dict[tuple[float, float], list[np.ndarray]] = {}
    plain, ours, totals = [], [], []
    bounds = sv.Bounds(features=(np.zeros(features), np.ones(features)), label=law.label)
    half = (law.label[1] - law.label[0]) / 2
    for _ in range(rounds):
        X, y = draw_table(law, n, features, rng)
        epsilon = PROFILES[profile](n, rng)
        totals.append(epsilon.sum())
        rows = np.column_stack([np.full(len(X), 0.5), X - 0.5])
        labels = (y - y[:n].mean()) / half
        spread = float(labels.std())
        truth = y[n:]
        plain.append(r2_score(truth, LinearRegression().fit(X[:n], y[:n]).predict(X[n:])))
        model = sv.Ridge(bounds=bounds).fit(X[:n], y[:n], epsilon=epsilon)
        ours.append(r2_score(truth, model.predict(X[n:])))
        for tau in THRESHOLDS:
            for times in RIDGES:
                ridge = np.full(features + 1, times * (features + 1) / 2)
                noise = draw_noise(features, tau * spread, rng)
                theta = fit_oracle(rows[:n], labels[:n], epsilon, tau * spread, ridge, noise)
                slopes = rows[n:, 1:] @ theta[1:]
                # The intercept is given to the oracle: the true mean of the rows held out.
                scores = [
                    r2_score(truth, truth.mean() + half * f * (slopes - slopes.mean()))
                    for f in FACTORS
                ]
                found.setdefault((tau, times), []).append(np.array(scores))
    best = max(float(np.mean(scores, axis=0).max()) for scores in found.values())
    return {
        "Σε": float(np.mean(totals)),
        "least squares": float(np.mean(plain)),
        "oracle": best,
        "ours": float(np.mean(ours)),
        "±": float(np.std(np.array(ours) - np.array(plain)) / np.sqrt(rounds)),
    }


def main() -> None:
    """Prints the table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--profile", choices=list(PROFILES), default="tiers")
    given = parser.parse_args()
    print("| labels | people | Σε | least squares | oracle | ours | ± |")
    print("|---" * 7 + "|")
    for n in given.rows:
        for law in LAWS:
            told = measure(law, n, given.features, given.rounds, given.profile)
            cells = [f"{told.pop('Σε'):,.0f}", *(f"{value:.3f}" for value in told.values())]
            print("| " + " | ".join([law.name, f"{n:,}", *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
