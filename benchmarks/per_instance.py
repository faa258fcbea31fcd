# SPDX-License-Identifier: Apache-2.0
"""What every record loses, exactly: its cost in leverages, and against refitting without each
record.

`leverages` is what anybody would write: one Cholesky factor, one triangular solve of all rows,
their norms and residuals. Ours computes the same by blocks, and then ε at δ for each record, for a
posterior sample and for Gaussian noise. Refitting is the honest alternative without the identities:
for a sample of records the regression is fitted again without them, by scikit-learn or by the bare
normal equations, and the time is extrapolated to all of them; `downdated` subtracts the record from
the sums instead, and solves again. Linear algebra has one thread.

The realised loss of noise in the objective, that of the default regression and of logistic
regression, is measured too: all rows of one fit, from pulls and curvatures on.

    python benchmarks/per_instance.py                  about a minute
    python benchmarks/per_instance.py --rows 100000    to try it
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits
from timing import best_times, console, show, verdict

import sottovoce as sv
from sottovoce.accounting.profiles import gaussian_epsilon, posterior_epsilon
from sottovoce.audit import leverages
from sottovoce.audit.laws import AuditUnits, ObjectiveNoise, ObjectiveStage
from sottovoce.audit.model_replays import MixedNorm

ROWS = 1_000_000
COLUMNS = 20
REFITTED_ROWS = 10_000
SAMPLE = 50
RIDGE = 1.0
GAMMA = 100.0
DELTA = 1e-6
#: Exact losses cost at most so many leverages in all; hoped for, and promised.
HOPED = 5.0
PROMISED = 6.0
#: Realised losses of one fit cost at most so many leverages.
REALISED = 6.0
#: And are so many times as fast as refitting.
FASTER = 1_000
#: Two ways to the same ε differ by less.
AGREED = 1e-8


def main() -> None:
    """Prints two tables."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rows", type=int, default=ROWS)
    with threadpool_limits(1, user_api="blas"):
        rows = options.parse_args().rows
        against_leverages(*table(rows))
        against_refitting(*table(REFITTED_ROWS))
        whole_audit(*table(rows))


def table(rows: int) -> tuple[Any, Any]:
    """Rows of length at most 1, labels between −1 and 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, COLUMNS))
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    return X, np.clip(X @ rng.normal(size=COLUMNS) / 2 + 0.2 * rng.normal(size=rows), -1, 1)


def plainly(X: Any, y: Any) -> Any:
    """h and e of every row."""
    hessian = X.T @ X + RIDGE * np.eye(X.shape[1])
    root = np.linalg.cholesky(hessian)
    theta = solve_triangular(root.T, solve_triangular(root, X.T @ y, lower=True), lower=False)
    solved = solve_triangular(root, X.T, lower=True)
    return np.einsum("ij,ij->j", solved, solved), y - X @ theta


def posterior(X: Any, y: Any) -> Any:
    """ε of every row for one posterior sample, leverages included."""
    records = leverages.compute_leverages(X, y, RIDGE)
    return posterior_epsilon(records.leverage, np.sqrt(GAMMA) * records.residual, DELTA)


def gaussian(X: Any, y: Any) -> Any:
    """ε of every row for Gaussian noise with covariance I/γ, leverages included."""
    fit = leverages.fit_ridge(X, y, RIDGE)
    return gaussian_epsilon(
        np.sqrt(GAMMA) * fit.moved_by_leaving(X, y, fit.metric("identity")), DELTA
    )


def realised(X: Any, y: Any) -> Any:
    """Realised loss of every row to one fit with noise in its objective."""
    v = np.full(len(y), 0.5)
    theta = np.full(X.shape[1], 0.1)
    pull = np.clip(y - X @ theta, -0.5, 0.5)
    stage = ObjectiveStage(
        X,
        (v * pull)[:, None],
        np.sqrt(v)[:, None, None],
        np.full(X.shape[1], RIDGE),
        theta,
        ObjectiveNoise(MixedNorm(0.5, 0.5, 0.5)),
    )
    return stage.compute_losses(AuditUnits.rows(len(y)))


def by_scikit_learn(X: Any, y: Any, rows: Any) -> None:
    """What a stranger would write: fit again without each row, by a library."""
    for row in rows:
        Ridge(alpha=RIDGE, fit_intercept=False).fit(np.delete(X, row, axis=0), np.delete(y, row))


def refitted(X: Any, y: Any, rows: Any) -> Any:
    """ε of some rows for one posterior sample, by regressions without each."""
    found = []
    for i in rows:
        rest = np.delete(X, i, axis=0)
        labels = np.delete(y, i)
        found.append(seen(rest.T @ rest + RIDGE * np.eye(COLUMNS), rest.T @ labels, X[i], y[i]))
    return losses(found)


def downdated(X: Any, y: Any, hessian: Any, pull: Any, rows: Any) -> Any:
    """The same, with each row subtracted from the sums of all."""
    return losses(
        [seen(hessian - np.outer(X[i], X[i]), pull - X[i] * y[i], X[i], y[i]) for i in rows]
    )


def seen(hessian: Any, pull: Any, x: Any, y: float) -> tuple[float, float]:
    """μ and r of a record from the sums of the others."""
    theta, g = np.linalg.solve(hessian, np.column_stack([pull, x])).T
    return x @ g, y - x @ theta


def losses(found: list[tuple[float, float]]) -> Any:
    mu, r = np.array(found).T
    return posterior_epsilon(mu, np.sqrt(GAMMA) * r, DELTA)


def against_leverages(X: Any, y: Any) -> None:
    """All rows, everybody in turns."""
    competitors = {
        "leverages": partial(plainly, X, y),
        "leverages, by blocks": partial(leverages.compute_leverages, X, y, RIDGE),
        "leverages and ε, posterior": partial(posterior, X, y),
        "leverages and ε, Gaussian": partial(gaussian, X, y),
        "realised loss, noise in the objective": partial(realised, X, y),
    }
    times = best_times(competitors, rounds=5)
    promises = dict.fromkeys(list(competitors)[2:], ("leverages", PROMISED))
    promises["realised loss, noise in the objective"] = ("leverages", REALISED)
    show(f"{len(y):,} × {COLUMNS}, δ = {DELTA:g}, γ = {GAMMA:g}", times, "leverages", promises)
    ratio = times["leverages and ε, posterior"] / times["leverages"]
    console.print(f"hoped for: at most {HOPED:g} leverages; {ratio:.2f}: {verdict(ratio, HOPED)}")


def fit_default(X: Any, y: Any) -> Any:
    """The default regression."""
    return sv.Ridge(sv.Bounds(features=(-1, 1), label=(-1, 1))).fit(X, y, epsilon=1.0)


def audit_default(release: Any, X: Any, y: Any) -> Any:
    """Everybody's realised loss, from the release and the table."""
    return np.asarray(sv.audit.per_instance(release, X, y, epsilon=1.0).losses)


def whole_audit(X: Any, y: Any) -> None:
    """The default regression: from its release and the table to everybody's realised loss, all
    stages, with reading and recoding the table and planning again.
    """
    release = fit_default(X, y).release_
    competitors = {
        "leverages": partial(plainly, X, y),
        "fit": partial(fit_default, X, y),
        "audit, all stages": partial(audit_default, release, X, y),
    }
    times = best_times(competitors, rounds=2)
    value: Any = release.value
    stages = len(value["stages"])
    show(f"default regression of {stages} stages, {len(y):,} rows", times, "leverages", {})


def against_refitting(X: Any, y: Any) -> None:
    """A sample of rows is refitted; their time is multiplied up."""
    gram = X.T @ X + RIDGE * np.eye(COLUMNS)
    pull = X.T @ y
    rows = np.random.default_rng(1).choice(len(y), SAMPLE, replace=False)
    competitors = {
        "ours, all rows": partial(posterior, X, y),
        "refitted by scikit-learn, a sample": partial(by_scikit_learn, X, y, rows),
        "refitted, a sample": partial(refitted, X, y, rows),
        "downdated, a sample": partial(downdated, X, y, gram, pull, rows),
    }
    times = best_times(competitors, rounds=3)
    for name in ("refitted by scikit-learn", "refitted", "downdated"):
        times[f"{name}, all rows (extrapolated)"] = times.pop(f"{name}, a sample") * len(y) / SAMPLE
    show(f"{len(y):,} × {COLUMNS}, extrapolated from {SAMPLE} refits", times, "ours, all rows", {})
    apart = np.max(np.abs(refitted(X, y, rows) / posterior(X, y)[rows] - 1))
    ratio = times["refitted by scikit-learn, all rows (extrapolated)"] / times["ours, all rows"]
    console.print(
        f"promised: at least {FASTER:,} times as fast as refitting; {ratio:,.0f}: "
        f"{verdict(FASTER, ratio)}"
    )
    console.print(
        f"largest difference from refitting: {apart:.1e}, may be {AGREED:g}: "
        f"{verdict(apart, AGREED)}"
    )


if __name__ == "__main__":
    main()
