# SPDX-License-Identifier: Apache-2.0
"""Risk minimisation with personal budgets against one ε for all, sampled people and limited rows;
and its speed.

Everybody is promised the same in every column: (ε_l, δ), neighbours by replacement of all rows of a
person. Errors are shares of held-out rows misclassified, averages over draws of the split, of who
has which budget and of the noise; ± is the standard error. Nothing was tuned on breast cancer.

    python benchmarks/erm.py            some minutes
    python benchmarks/erm.py --draws 5  to try it
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from timing import console, verdict

import sottovoce as sv

DRAWS = 20
DELTA = 1e-3
PROFILE = (0.54, 0.37, 0.09), (0.01, 0.2, 1.0)
TRAIN = 398
PUBLIC = 57
#: Public rows say how wide the features are: this many standard deviations about their mean.
WIDTH = 3.0
#: Limited rows, with the best of six limits in hindsight, may be better by this much.
HINDSIGHT = 0.005
ROWS = 100_000
COLUMNS = 30
STEPS = 100
SECONDS = 10.0

Data = tuple[Any, Any, Any, Any]  # X, y, and those held out
Ways = Mapping[str, Callable[..., float]]


def main() -> None:
    """Prints three tables."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--draws", type=int, default=DRAWS, help="how often everything is drawn")
    draws = options.parse_args().draws
    one_row_each(draws)
    many_rows(draws)
    speed()


def one_row_each(draws: int) -> None:
    """Breast cancer, one row a person, for the published profile of budgets and for larger ones."""
    ways = {
        "personal": personal,
        "personal, sampled steps": sampled_steps,
        "one ε for all": uniform,
        "people sampled": thinned,
    }
    title = f"Breast cancer, {TRAIN} people, δ = {DELTA:g}: share misclassified"
    table = Table("budgets", *ways, "most frequent class", "without privacy", "", title=title)
    for times in (1, 3, 10, 30):
        errors = np.array([list(_one_draw(seed, times, ways)) for seed in range(draws)])
        told = " ".join(f"{times * e:g}" for e in PROFILE[1])
        table.add_row(
            told,
            *map(_cell, errors.T),
            verdict(errors[:, 0].mean(), errors[:, 2:4].mean(axis=0).min()),
        )
    console.print(table)


def _one_draw(seed: int, times: float, ways: Ways) -> Any:
    rng = np.random.default_rng(seed)
    X, y, X_held, y_held, bounds = breast_cancer(rng)
    epsilon = rng.permutation(profile(len(y))) * times
    for way in ways.values():
        yield way(bounds, (X, y, X_held, y_held), epsilon, rng)
    yield float(np.mean(y_held != (y.mean() > 0.5)))
    low, high = bounds.features
    scaled, held = (
        (np.clip(rows, low, high) - low) / (high - low) * 2 * WIDTH for rows in (X, X_held)
    )
    yield 1 - LogisticRegression(max_iter=5000).fit(scaled, y).score(held, y_held)


def breast_cancer(rng: np.random.Generator) -> tuple[Any, Any, Any, Any, sv.Bounds]:
    """Private rows, rows held out, and bounds from public rows, which are used for nothing else."""
    X, y = load_breast_cancer(return_X_y=True)
    order = rng.permutation(len(y))
    train, public, held = np.split(order, [TRAIN, TRAIN + PUBLIC])
    middle = X[public].mean(axis=0)
    spread = WIDTH * X[public].std(axis=0)
    return (
        X[train],
        y[train],
        X[held],
        y[held],
        sv.Bounds(features=(middle - spread, middle + spread)),
    )


def profile(people: int) -> np.ndarray:
    """The published shares of careful, middling and open people."""
    (careful, middling, _), levels = PROFILE
    first = round(careful * people)
    second = round(middling * people)
    return np.repeat(levels, [first, second, people - first - second])


def personal(
    bounds: sv.Bounds, data: Data, epsilon: np.ndarray, rng: Any, groups: Any = None, **more: Any
) -> float:
    """Everybody at their own ε."""
    X, y, X_held, y_held = data
    erm = sv.ERM("logistic", bounds=bounds, delta=DELTA, **more)
    return 1 - erm.fit(X, y, epsilon=epsilon, groups=groups).score(X_held, y_held)


def sampled_steps(
    bounds: sv.Bounds, data: Data, epsilon: np.ndarray, rng: Any, groups: Any = None
) -> float:
    """The same, with a tenth of the people drawn in each step."""
    return personal(bounds, data, epsilon, rng, groups, sampling=0.1)


def uniform(
    bounds: sv.Bounds, data: Data, epsilon: np.ndarray, rng: Any, groups: Any = None
) -> float:
    """Everybody at the smallest ε."""
    X, y, X_held, y_held = data
    erm = sv.Uniform(sv.ERM("logistic", bounds=bounds, delta=DELTA))
    return 1 - erm.fit(X, y, epsilon=epsilon, groups=groups).score(X_held, y_held)


def thinned(bounds: sv.Bounds, data: Data, epsilon: np.ndarray, rng: Any) -> float:
    """People kept with probability (e^ε − 1)/(e^t − 1), t the largest ε; a null record stands for
    the others.

    The null record is the middle of the bounds with either class in turn, by place, so that it
    pulls to neither.
    """
    X, y, X_held, y_held = data
    kept = rng.random(len(y)) < np.expm1(epsilon) / np.expm1(epsilon.max())
    middle = np.add(*bounds.features) / 2
    rows = np.where(kept[:, None], X, middle)
    labels = np.where(kept, y, np.arange(len(y)) % 2)
    return personal(bounds, (rows, labels, X_held, y_held), np.full(len(y), epsilon.max()), rng)


def many_rows(draws: int) -> None:
    """Synthetic rows of people who own one to a hundred, against sample limiting with its best
    limit in hindsight.

    Limiting is around the same estimator, which weighs people by itself, so all it can do is drop
    rows.
    """
    limits = (1, 2, 5, 10, 20, 50)
    title = "Synthetic, 800 people with 1 to 100 rows, 10 columns: share misclassified"
    heads = (
        "budgets",
        "personal",
        "limited, best of 6",
        "more than that",
        "limited, 1 row",
        "one ε for all",
        "",
    )
    table = Table(*heads, title=title)
    for levels in ((0.1, 0.5, 2.0), (1.0, 4.0, 16.0)):
        errors = np.array([_many_rows_draw(seed, levels, limits) for seed in range(draws)])
        best = 1 + int(errors[:, 1 : 1 + len(limits)].mean(axis=0).argmin())
        ours = errors[:, 0]
        others = errors[:, [best, 1, -1]].T
        told = [_cell(others[0]), _cell(ours - others[0]), *map(_cell, others[1:])]
        name = f"{' '.join(f'{e:g}' for e in levels)} (limit {limits[best - 1]})"
        good = max(
            ours.mean() - others[0].mean() - HINDSIGHT, ours.mean() - others[1:].mean(axis=1).min()
        )
        table.add_row(name, _cell(ours), *told, verdict(good, 0.0))
    console.print(table)


def _many_rows_draw(seed: int, levels: tuple[float, ...], limits: tuple[int, ...]) -> list[float]:
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(800), np.ceil(100 ** rng.random(800)).astype(int))
    X, y = synthetic(len(owner) + 4000, 10, rng)
    data = X[: len(owner)], y[: len(owner)], X[len(owner) :], y[len(owner) :]
    epsilon = rng.choice(levels, 800)[owner]
    bounds = sv.Bounds(features=(-0.5, 0.5))

    def limited(rows: int) -> float:
        erm = sv.Limited(sv.ERM("logistic", bounds=bounds, delta=DELTA), rows=rows)
        return 1 - erm.fit(data[0], data[1], epsilon=epsilon, groups=owner).score(data[2], data[3])

    ours = personal(bounds, data, epsilon, rng, owner)
    return [ours, *map(limited, limits), uniform(bounds, data, epsilon, rng, owner)]


def synthetic(rows: int, columns: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Normal columns within [−½, ½], and classes by a logistic model."""
    X = np.clip(rng.normal(0, 0.17, (rows, columns)), -0.5, 0.5)
    odds = X @ rng.normal(0, 14 / np.sqrt(columns), columns)
    return X, (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(int)


def speed() -> None:
    """How long a fit takes, noise, checks and release included."""
    X, y = synthetic(ROWS, COLUMNS, np.random.default_rng(0))
    epsilon = np.array([0.1, 0.5, 2.0])[np.arange(ROWS) % 3]
    table = Table(
        "",
        "seconds",
        "",
        title=f"{ROWS:,} rows × {COLUMNS}, {STEPS} steps; at most {SECONDS:g} seconds",
    )
    settings = {"everybody in every step": {}, "a twentieth in every step": {"sampling": 0.05}}
    for name, more in settings.items():
        erm = sv.ERM(
            "logistic", bounds=sv.Bounds(features=(-0.5, 0.5)), delta=1e-6, steps=STEPS, **more
        )
        start = perf_counter()
        erm.fit(X, y, epsilon=epsilon)
        seconds = perf_counter() - start
        table.add_row(name, f"{seconds:.1f}", verdict(seconds, SECONDS))
    console.print(table)


def _cell(errors: np.ndarray) -> str:
    return f"{errors.mean():.3f} ± {errors.std() / np.sqrt(max(len(errors) - 1, 1)):.3f}"


if __name__ == "__main__":
    main()
