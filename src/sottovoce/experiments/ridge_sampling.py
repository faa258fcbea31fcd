# SPDX-License-Identifier: Apache-2.0
"""Tables 11 to 14 of the ridge paper: personal budgets against Jorgensen's sampling, as published and not private.

Given who was sampled, mean and variance of the loss are closed forms, so samples alone are drawn and noise is
integrated out; full runs are simulated as a check. Synthetic tables are on the matched draw, medical ones on a
draw of budgets whose sum is the median. Beside them: how much faster this is than a loop over runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from sottovoce.experiments import ridge
from sottovoce.experiments.outcome import Column, Outcome, Reason, Table, digits
from sottovoce.experiments.registry import Task, seeded
from sottovoce.experiments.ridge import RUNS, Data, Floats, Losses, Profile, Sampled

METHODS = ("pdp_op", "jorgensen_max", "jorgensen_mean")
WORDS = {"pdp_op": "personalised", "jorgensen_max": "sampled, t = max", "jorgensen_mean": "sampled, t = mean"}
LOSSES = {"unreg": "unregularised", "reg": "regularised"}
PRINTED = {
    11: "ridge_table_11_synthetic_lambda_vs_jorgensen",
    12: "ridge_table_12_medical_lambda_vs_jorgensen",
    13: "ridge_table_13_synthetic_lambda_std",
    14: "ridge_table_14_medical_lambda_std",
}
MEDICAL_TABLES = (12, 14)
#: Printed exponents that cannot be right: by table and line, what they must be for each column.
EXPONENTS = {
    (11, "1"): {"unreg_pdp_op": 8.54e2, "unreg_jorgensen_max": 1.09e3, "unreg_jorgensen_mean": 1.89e3,
                "reg_pdp_op": 3.32e3, "reg_jorgensen_max": 4.16e3, "reg_jorgensen_mean": 7.55e3},
    (14, "0.01"): {"unreg_jorgensen_max": 1.58e5, "unreg_jorgensen_mean": 3.12e5},
}  # fmt: skip
#: Draws of budgets among which the medical tables take the one whose sum is the median.
MEDIAN_OF = 300
#: Below this a test loss is zero but for the rounding of 64-bit arithmetic.
ROUNDING = 1e-20
#: Lines of Table 12 on which a loop over runs is timed, and how many runs it makes there.
LOOPED_LINES, LOOPED_RUNS = 3, (100, 20)


def by_lambda(task: Task) -> Outcome:
    """Tables 11 to 14: losses, and their standard deviations, by λ."""
    number = int(task.name.rpartition("-")[2])
    published = ridge.printed(PRINTED[number])
    lams = published["lambda"]
    data, found, told = lambdas(number in MEDICAL_TABLES, task)
    columns = []
    for name in (head for head in published if head != "lambda"):
        loss, _, method = name.partition("_")
        if method == "nonprivate":
            ours = tuple(ridge.plain_loss(data, 0.0 if loss == "unreg" else lam) for lam in lams)
        else:
            kind = loss if number in (11, 12) else f"{loss}_std"
            ours = tuple(float(getattr(found[lam][method], kind)) for lam in lams)
        columns.append(Column(f"{LOSSES[loss]}, {WORDS.get(method, 'not private')}", ours, published[name]))
    lines = tuple(f"{lam:g}" for lam in lams)
    reasons = (*_exponents(number, published, columns, lines), *_zeros(columns))
    table = Table(f"Table {number}", "λ", lines, tuple(columns), reasons)
    sentences = (told,) if number in MEDICAL_TABLES else (told, match_told())
    return Outcome(task.name, task.size, (table,), (), sentences)


def match_told() -> str:
    """Says how like the authors' draw the matched one is."""
    data, epsilon = ridge.matched()
    facts = {
        "Σε": (float(epsilon.sum()), ridge.MATCHED_TOTAL),
        "smallest ε": (float(epsilon.min()), ridge.MATCHED_SMALLEST),
        "mean y² of the test rows": (float((data.test_y**2).mean()), ridge.MATCHED_LABELS),
        "mean ‖x‖²": (float((data.test_X**2).sum(axis=1).mean()), ridge.MATCHED_NORMS),
        "‖Xᵀy‖/N": (float(np.linalg.norm(data.test_X.T @ data.test_y)) / len(data.test_y), ridge.MATCHED_SLOPE),
    }
    told = ", ".join(f"{name} {digits(have, 4)} (print: {digits(want, 4)})" for name, (have, want) in facts.items())
    return (
        f"Ours is one draw of {ridge.CANDIDATES:,}, chosen for its likeness to the authors', which has no seed: {told}."
    )


def _exponents(number: int, published: Iterable[str], columns: list[Column], lines: tuple[str, ...]) -> list[Reason]:
    names = [head for head in published if head != "lambda"]
    reasons = []
    for (table, line), right in EXPONENTS.items():
        for name, value in right.items() if table == number else ():
            column = columns[names.index(name)]
            ratio = (column.ours[lines.index(line)] or 0) / value
            told = f"A wrong exponent: with {digits(value)} in its place ours is {ratio:.3f} of print."
            reasons.append(Reason(column.name, told, (line,)))
    return reasons


def _zeros(columns: list[Column]) -> list[Reason]:
    told = "Labels are a linear function without noise: both numbers are zero but for rounding."
    return [
        Reason(column.name, told)
        for column in columns
        if all(max(a or 0, b or 0) < ROUNDING for a, b in zip(column.ours, column.published, strict=True))
    ]


def lambdas(medical: bool, task: Task) -> tuple[Data, dict[float, dict[str, Losses]], str]:
    """Returns the data, all losses by λ and method, and what the simulation says of them."""
    return _lambdas(medical, task.choose(*RUNS), task.data)


@cache
def _lambdas(medical: bool, runs: int, folder: Path | None) -> tuple[Data, dict[float, dict[str, Losses]], str]:
    if medical:
        data = ridge.medical(folder)
        epsilon = ridge.typical(Profile().draw(len(data.y), MEDIAN_OF, "ridge medical budgets"))
    else:
        data, epsilon = ridge.matched()
    lams = ridge.printed(PRINTED[12 if medical else 11])["lambda"]
    exact, seen = compared(data, epsilon, lams, runs, "ridge sampling" + " medical" * medical)
    return data, exact, _agreement(exact, seen, runs)


def compared(
    data: Data, epsilon: Floats, lams: tuple[float, ...], runs: int, seed: str
) -> tuple[dict[float, dict[str, Losses]], dict[float, dict[str, Losses]]]:
    """Returns losses with the noise integrated out, and losses of simulated runs, by λ and method."""
    drawn = samples(data, epsilon, runs, seed)
    exact: dict[float, dict[str, Losses]] = {}
    seen: dict[float, dict[str, Losses]] = {}
    for lam in lams:
        fits = parts(data, epsilon, drawn, lam)
        exact[lam] = {method: ridge.losses(data, *part, lam) for method, part in fits.items()}
        seen[lam] = {
            method: ridge.simulated(data, *part, lam, runs, f"{seed} {method} {lam}") for method, part in fits.items()
        }
    return exact, seen


def samples(data: Data, epsilon: Floats, runs: int, seed: str) -> dict[str, Sampled]:
    """Returns samples of the rows for both thresholds."""
    thresholds = {"jorgensen_max": float(epsilon.max()), "jorgensen_mean": float(epsilon.mean())}
    return {name: Sampled.draw(data, epsilon, t, runs, f"{seed} {name}") for name, t in thresholds.items()}


def parts(data: Data, epsilon: Floats, kept: Mapping[str, Sampled], lam: float) -> dict[str, tuple[Floats, Floats]]:
    """Returns solutions and rates of the three methods."""
    d = data.X.shape[1]
    drawn = {
        name: (ridge.solved(sample.gram, sample.cross, lam), ridge.rate(lam, d, sample.total))
        for name, sample in kept.items()
    }
    return {"pdp_op": ridge.personalised(data, epsilon, lam), **drawn}


def _agreement(exact: dict[float, dict[str, Losses]], seen: dict[float, dict[str, Losses]], runs: int) -> str:
    means, stds = (max(_gap(exact, seen, kind) for kind in kinds) for kinds in (LOSSES, [f"{k}_std" for k in LOSSES]))
    return (
        f"Noise is integrated out; {runs:,} simulated runs a cell differ by at most {means:.1%} in the mean and "
        f"{stds:.1%} in the standard deviation."
    )


def _gap(exact: dict[float, dict[str, Losses]], seen: dict[float, dict[str, Losses]], kind: str) -> float:
    pairs = ((getattr(seen[lam][m], kind), getattr(exact[lam][m], kind)) for lam in exact for m in METHODS)
    return max(abs(float(found / known) - 1) for found, known in pairs)


def speed(task: Task) -> Outcome:
    """Table 12's runs, all at once, against a loop over runs on some of its lines."""
    data, runs, looped = ridge.medical(task.data), task.choose(*RUNS), task.choose(*LOOPED_RUNS)
    epsilon = ridge.typical(Profile().draw(len(data.y), MEDIAN_OF, "ridge medical budgets"))
    lams = ridge.printed(PRINTED[12])["lambda"]
    began = time.process_time()
    compared(data, epsilon, lams, runs, "ridge speed")
    together = time.process_time() - began
    began = time.process_time()
    for lam in lams[:LOOPED_LINES]:
        _loop(data, epsilon, lam, looped)
    alone = (time.process_time() - began) / (looped * LOOPED_LINES) * runs * len(lams)
    columns = (
        Column("processor seconds, all at once", (together,)),
        Column("processor seconds, a loop", (alone,)),
        Column("ratio", (alone / together,)),
    )
    told = (
        f"{len(lams)} lines × {runs:,} runs × {len(METHODS)} methods × {len(LOSSES)} losses take {together:.1f} s of "
        f"one processor. By what {looped} runs on {LOOPED_LINES} lines took, a loop over runs takes {alone:.0f} s: "
        f"{alone / together:.0f} times as long."
    )
    return Outcome(task.name, task.size, (Table("Time for Table 12", "", ("here",), columns),), (), (told,))


def _loop(data: Data, epsilon: Floats, lam: float, runs: int) -> None:
    """One run after the other, as one would write it first."""
    rng, (n, d) = seeded("ridge loop"), data.X.shape
    for _ in range(runs):
        for t in (None, float(epsilon.max()), float(epsilon.mean())):
            kept = np.ones(n, bool) if t is None else rng.random(n) < np.expm1(epsilon) / math.expm1(t)
            weights = epsilon if t is None else kept * t
            share = weights / weights.sum()
            theta = np.linalg.solve((data.X.T * share) @ data.X + lam * np.eye(d), (share * data.y) @ data.X)
            radius = rng.gamma(d, 1 / float(ridge.rate(lam, d, weights.sum())))
            direction = rng.normal(size=d)
            released = theta + radius * direction / np.linalg.norm(direction)
            float(np.mean((data.test_y - data.test_X @ released) ** 2) + lam * released @ released)
