# SPDX-License-Identifier: Apache-2.0
"""Table 1 of "Smoothly Bounding User Contributions in Differential Privacy", on your own copy of
its data or on reviews that are invented (users_data.py).

Methods are **as published, and not private** where the paper's are not: ranges and variances are
read off the labels, and thresholds off the errors.

    symbol   name
    h        threshold: at most so many rows of each person are kept
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from sottovoce.papers.plots import Outcome, Reason, ResultColumn, ResultTable
from sottovoce.papers.report import Task
from sottovoce.papers.users_data import FACTS, count_facts, find_reviews, load_news
from sottovoce.papers.users_regression import (
    BEST,
    EPSILONS,
    EVERYTHING,
    LIMITED,
    LabelProblem,
    measure_best_map,
    measure_limits,
)

METHODS = {BEST: "weighted", LIMITED: "sample_limit_best", EVERYTHING: "sample_limit_max"}
#: Choices of the rows that a threshold keeps, for the full and the small size.
CHOICES = (10, 2)
#: What print does not tell, where ours differs from it.
UNTOLD = (
    "Print does not tell B, or which rows a threshold keeps; ours are the range of the labels, and "
    "means over choices of rows."
)
INVENTED = (
    "The drug reviews are not in the folder of data. These are invented ones with print's rows, "
    "features, people and largest person, and nothing else of it: they show the order of the "
    "methods, and are not held against print."
)


def table_1(task: Task) -> Outcome:
    """Table 1: regressions on drug reviews, real or invented, and on news if they are there."""
    reviews, real = find_reviews(task.data)
    news = load_news(task.data)
    tables = [_compare_methods(task, "drugs", reviews, real)]
    words = [_describe_problem("drugs", reviews, constant=True)]
    if not real:
        words.insert(0, INVENTED)
    if news is None:
        words.append("The news data are not in the folder.")
    else:
        tables.append(_compare_methods(task, "news", news, True))
        words.append(_describe_problem("news", news, constant=False))
    return Outcome(task.name, task.size, tuple(tables), (), tuple(words))


def _compare_methods(task: Task, name: str, problem: LabelProblem, real: bool) -> ResultTable:
    """Return ours beside print; the error of a threshold is the mean over choices of rows."""
    seeds = [f"users table 1 {name} {choice}" for choice in range(task.choose(*CHOICES))]
    errors = np.mean([measure_limits(problem, EPSILONS, seed)[1] for seed in seeds], axis=0)
    ours = {
        BEST: [measure_best_map(problem, e)[0] for e in EPSILONS],
        LIMITED: errors.min(axis=1),
        EVERYTHING: errors[:, -1],
    }
    columns = tuple(
        ResultColumn(
            method,
            tuple(map(float, found)),
            read_printed(1, name, METHODS[method]) if real else (),
        )
        for method, found in ours.items()
    )
    labels = tuple(f"{epsilon:g}" for epsilon in EPSILONS)
    if real:
        title = f"Table 1, {name}: mean squared error"
        reasons = tuple(Reason(column.name, UNTOLD) for column in columns)
    else:
        title = f"Table 1, {name}, on invented reviews: mean squared error"
        reasons = ()
    return ResultTable(title, "ε", labels, columns, reasons)


def _describe_problem(name: str, problem: LabelProblem, constant: bool) -> str:
    facts = (FACTS[name], count_facts(problem, constant))
    told, found = (", ".join(map(str, fact)) for fact in facts)
    return (
        f"Of the {name} data, rows, features, people and rows of the largest are {found}; print "
        f"has {told}. Least squares leaves a variance of {problem.variance:.3g}."
    )


def read_printed(table: int, data: str, method: str) -> tuple[float, ...]:
    """Return the published numbers of a method, by ε and then by threshold."""
    path = Path(__file__).with_name("published") / "users_tables.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    key = (str(table), data, method)
    return tuple(
        float(row["value"]) for row in rows if (row["table"], row["dataset"], row["method"]) == key
    )
