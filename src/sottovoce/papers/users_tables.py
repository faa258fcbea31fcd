# SPDX-License-Identifier: Apache-2.0
"""Tables 1 and 2 of "Smoothly Bounding User Contributions in Differential Privacy", on your own
copy of its data.

Neither the drug reviews nor the news data are in this package; an experiment whose data are missing
says which to get. Methods are **as published, and not private** where the paper's are not: ranges
and variances are read off the labels, and the noise of Table 2 does not keep its promise
(users/table-2-noise).

    symbol   name
    c, W     weight of a row, and the largest total weight of a person
    h        threshold: at most so many rows of each person are kept, or counted
    T        steps, people² as in Algorithm 1 of Bassily, Smith and Thakurta (2014)
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.special import expit

from sottovoce.arrays import Floats, Integers
from sottovoce.errors import InvalidData, MissingColumn
from sottovoce.papers.plots import Outcome, Reason, ResultColumn, ResultTable
from sottovoce.papers.report import Task, make_named_generator
from sottovoce.papers.users_regression import (
    BEST,
    EPSILONS,
    EVERYTHING,
    LIMITED,
    LabelProblem,
    limit_rows,
    measure_best_map,
    measure_limits,
)

#: Where data are looked for when no folder is named, and the files as they come from the UCI
#: repository.
DATA_VARIABLE = "SOTTOVOCE_DATA"
DATA_FOLDER = Path("../shared/data")
DRUGS = "drugLibTrain_raw.tsv"
NEWS = "News_Final.csv"
FEEDBACK = ("Facebook", "GooglePlus", "LinkedIn")
#: Popularity is noted every 20 minutes for two days: ten hourly values and the last, as print has d
#: = 10.
NEWS_FEATURES = tuple(f"TS{3 * hour}" for hour in range(1, 11))
NEWS_LABEL = "TS144"
#: What print says: rows, columns, people, rows of the largest.
FACTS = {"drugs": (3107, 8, 502, 63), "news": (3452, 10, 297, 878)}
METHODS = {BEST: "weighted", LIMITED: "sample_limit_best", EVERYTHING: "sample_limit_max"}
#: Choices of the rows that a threshold keeps, for the full and the small size; and the runs that
#: print averages.
CHOICES = (10, 2)
PRINTED_RUNS = 10
#: The variance of the square of Laplace noise is five times its squared mean.
LAPLACE_SQUARED = 5.0
#: Table 2: ε, δ, thresholds, half the side of the box, the constant of the noise, and runs of ours.
LARGE_EPSILONS = (30.0, 40.0, 50.0)
DELTA = 0.1
THRESHOLDS = (1, 2, 3, 4)
BOX = 10.0
NOISE_CONSTANT = 32.0
RUNS = (10, 2)
#: Steps of the small size; the full size takes people².
FEW_STEPS = 300


def table_1(task: Task) -> Outcome:
    """Table 1: regressions on drug reviews and on news, whichever are in the folder."""
    problems = {"drugs": load_reviews(task.data), "news": load_news(task.data)}
    there = {name: problem for name, problem in problems.items() if problem is not None}
    if not there:
        raise _missing_data_error(f"{DRUGS} or {NEWS}")
    tables = tuple(_compare_methods(task, name, problem) for name, problem in there.items())
    words = [_describe_problem(name, problem) for name, problem in there.items()]
    words += [f"The {name} data are not in the folder." for name in problems if name not in there]
    return Outcome(task.name, task.size, tables, (), tuple(words))


def _compare_methods(task: Task, name: str, problem: LabelProblem) -> ResultTable:
    """Return ours beside print; the error of a threshold is the mean over choices of rows."""
    seeds = [f"users table 1 {name} {choice}" for choice in range(task.choose(*CHOICES))]
    errors = np.mean([measure_limits(problem, EPSILONS, seed)[1] for seed in seeds], axis=0)
    ours = {
        BEST: [measure_best_map(problem, e)[0] for e in EPSILONS],
        LIMITED: errors.min(axis=1),
        EVERYTHING: errors[:, -1],
    }
    columns = tuple(
        ResultColumn(method, tuple(map(float, found)), read_printed(1, name, METHODS[method]))
        for method, found in ours.items()
    )
    noise = (
        math.sqrt(LAPLACE_SQUARED * np.sum(problem.stretch**2) / PRINTED_RUNS)
        / problem.stretch.sum()
    )
    why = (
        f"Print is a mean of {PRINTED_RUNS} runs, whose noise has a standard deviation of "
        f"{noise:.0%} of itself, the same draws at every ε (users/table-1-law). It does not tell "
        "B, the coding of levels, or an intercept."
    )
    labels = tuple(f"{epsilon:g}" for epsilon in EPSILONS)
    return ResultTable(
        f"Table 1, {name}",
        "ε",
        labels,
        columns,
        tuple(Reason(column.name, why) for column in columns),
    )


def _describe_problem(name: str, problem: LabelProblem) -> str:
    with_one = LabelProblem(
        np.column_stack([np.ones(len(problem.y)), problem.X]), problem.y, problem.owner
    )
    told, found = (", ".join(map(str, facts)) for facts in (FACTS[name], _count_facts(problem)))
    return (
        f"Of the {name} data, rows, columns, people and rows of the largest are {found}; print has "
        f"{told}. Least squares leaves a variance of {problem.variance:.3g}, and "
        f"{with_one.variance:.3g} with an intercept."
    )


def _count_facts(problem: LabelProblem) -> tuple[int, ...]:
    sizes = np.bincount(problem.owner)
    return *problem.X.shape, len(sizes), int(sizes.max())


@dataclass(frozen=True, eq=False)
class CellDescent:
    """Rows that are alike as one cell, and the weights of each person's cells in each of several
    settings.
    """

    X: Floats  # one line a cell
    y: Floats
    share: Floats  # of all rows, by cell
    weights: Floats  # settings × people × cells

    @classmethod
    def of(cls, X: Floats, y: Floats, owner: Integers, weights: list[Floats]) -> CellDescent:
        """Gathers rows with the same features and label."""
        cells, cell = np.unique(np.column_stack([X, y]), axis=0, return_inverse=True)
        shape = (int(owner.max()) + 1, len(cells))
        place = owner * shape[1] + cell.ravel()
        counted = [np.bincount(place, c, shape[0] * shape[1]).reshape(shape) for c in weights]
        return cls(
            cells[:, :-1], cells[:, -1], np.bincount(cell.ravel()) / len(y), np.array(counted)
        )

    @property
    def max_person_weights(self) -> Floats:
        """W of each setting."""
        return np.asarray(self.weights.sum(axis=2).max(axis=1))

    def losses(self, theta: Floats) -> Floats:
        """Return the mean cross-entropy over all rows for each line of coefficients."""
        margins = np.where(self.y > 0, -1, 1) * (theta @ self.X.T)
        return np.asarray(np.logaddexp(0, margins) @ self.share)

    def gradient(self, theta: Floats, weights: Floats) -> Floats:
        """Return the weighted sum of the gradients of all cells, each cut to length one first,
        line by line.
        """
        slope = np.clip(expit(theta @ self.X.T) - self.y, -self._steepest, self._steepest)
        return np.asarray((weights * slope) @ self.X)

    @cached_property
    def _steepest(self) -> Floats:
        # Slopes are below one, so rows shorter than one need no limit.
        return np.asarray(1 / np.linalg.norm(self.X, axis=1).clip(1.0))

    def run_noisy_steps(self, setting: Integers, noise: Floats, steps: int, task: Task) -> Floats:
        """Return where noisy steps lead, one person drawn in each.

        One line for each setting and its noise.
        """
        rng = make_named_generator("users table 2")
        people = self.weights.shape[1]
        d = self.X.shape[1]
        picked = self.weights.reshape(-1, len(self.y)) * people
        loud = people * self.max_person_weights[setting]
        stride = 2 * BOX * math.sqrt(d) / np.sqrt(loud**2 + d * noise**2)
        theta = np.zeros((len(setting), d))
        for step in range(1, steps):
            drawn = picked[setting * people + rng.integers(people, size=len(setting))]
            gradient = self.gradient(theta, drawn) + noise[:, None] * rng.standard_normal(
                theta.shape
            )
            theta = np.clip(theta - (stride / math.sqrt(step))[:, None] * gradient, -BOX, BOX)
            if not step % FEW_STEPS:
                task.progress(step / steps)
        return theta


def table_2(task: Task) -> Outcome:
    """Table 2: logistic regression on drug reviews, ratings above their median against the
    others.
    """
    problem = load_reviews(task.data)
    if problem is None:
        raise _missing_data_error(DRUGS)
    y = (problem.y > np.median(problem.y)).astype(np.float64)
    descent = CellDescent.of(problem.X, y, problem.owner, make_row_weights(problem.owner))
    people = descent.weights.shape[1]
    runs = task.choose(*RUNS)
    shape = (len(LARGE_EPSILONS), len(descent.weights), runs)
    epsilon, setting, _ = (part.ravel() for part in np.indices(shape))
    each = np.array([compute_step_noise(promised, people) for promised in LARGE_EPSILONS])
    noise = people * descent.max_person_weights[setting] * each[epsilon]
    theta = descent.run_noisy_steps(setting, noise, task.choose(people**2, FEW_STEPS), task)
    found = descent.losses(theta).reshape(shape).mean(axis=2)
    told = (
        f"Ours are means of {runs} runs of {task.choose(people**2, FEW_STEPS):,} steps each; "
        "print has 50 runs."
    )
    return Outcome(
        task.name, task.size, (_make_losses_table(found),), (), (told, _describe_chances())
    )


def compute_step_noise(epsilon: float, people: int) -> float:
    """Return the noise of a step over its largest gradient, by Algorithm 1 of Bassily, Smith and
    Thakurta (2014).
    """
    return math.sqrt(NOISE_CONSTANT * math.log(people / DELTA) * math.log(1 / DELTA)) / epsilon


def make_row_weights(owner: Integers) -> list[Floats]:
    """Return the weights of rows by threshold: counted, then kept, and last all alike."""
    sizes = np.bincount(owner)
    order = make_named_generator("users table 2 rows").permutation(len(owner))
    totals = [np.minimum(h, sizes).sum() for h in THRESHOLDS]
    counted = [
        (np.minimum(h, sizes) / sizes / n)[owner] for h, n in zip(THRESHOLDS, totals, strict=True)
    ]
    limits = [np.isin(np.arange(len(owner)), limit_rows(owner, h, order)) for h in THRESHOLDS]
    return [
        *counted,
        *(rows / n for rows, n in zip(limits, totals, strict=True)),
        np.full(len(owner), 1 / len(owner)),
    ]


def _make_losses_table(found: Floats) -> ResultTable:
    per = len(THRESHOLDS)
    names = [f"{what}, h = {h}" for what in ("weights", "limit") for h in THRESHOLDS] + ["all rows"]
    places = (
        [("weighted", i) for i in range(per)]
        + [("sample_limit", i) for i in range(per)]
        + [("no_bound", 0)]
    )
    columns = tuple(
        ResultColumn(
            name,
            tuple(found[:, i].tolist()),
            read_printed(2, "drugs", method)[first :: 1 if method == "no_bound" else per],
        )
        for i, (name, (method, first)) in enumerate(zip(names, places, strict=True))
    )
    why = (
        "Print does not tell the number of steps, their stride or the noise; ours are those of "
        "the algorithm it names."
    )
    labels = tuple(f"{epsilon:g}" for epsilon in LARGE_EPSILONS)
    return ResultTable(
        "Mean cross-entropy", "ε", labels, columns, tuple(Reason(name, why) for name in names)
    )


def _describe_chances() -> str:
    pairs = list(
        zip(
            read_printed(2, "drugs", "weighted"),
            read_printed(2, "drugs", "sample_limit"),
            strict=True,
        )
    )
    ahead = sum(weighted < limit for weighted, limit in pairs)
    return (
        f"In print, weights are ahead of the limit at the same h in {ahead} of {len(pairs)} cells."
    )


def load_reviews(folder: Path | None) -> LabelProblem | None:
    """Return ratings of drugs by effectiveness and side effects, 0/1 columns without the first
    level; or None.

    A drug is a "user". The file has the columns urlDrugName, rating, effectiveness and sideEffects,
    split by tabs.
    """
    path = _find_folder(folder) / DRUGS
    if not path.is_file():
        return None
    lines = list(_read_lines(path, ("urlDrugName", "rating", "effectiveness", "sideEffects"), "\t"))
    columns = [
        [float(line[name] == level) for line in lines]
        for name in ("effectiveness", "sideEffects")
        for level in sorted({line[name] for line in lines})[1:]
    ]
    owner = np.unique([line["urlDrugName"] for line in lines], return_inverse=True)[1]
    return LabelProblem(
        np.array(columns).T, np.array([float(line["rating"]) for line in lines]), owner
    )


def load_news(folder: Path | None) -> LabelProblem | None:
    """Return the last popularity of news by that of the first ten hours, or None.

    A source is a "user".

    Print does not tell platform and topic. Of the tables of feedback that are there (such as
    LinkedIn_Economy.csv, with IDLink and TS1 to TS144), the one that is most like what print says
    is taken.
    """
    path = _find_folder(folder) / NEWS
    tables = [file for name in FEEDBACK for file in sorted(path.parent.glob(f"{name}_*.csv"))]
    if not path.is_file() or not tables:
        return None
    source = {
        float(line["IDLink"]): line["Source"] for line in _read_lines(path, ("IDLink", "Source"))
    }
    found = [_read_feedback(table, source) for table in tables]
    return min(
        found, key=lambda one: np.abs(np.log(np.array(_count_facts(one)) / FACTS["news"])).sum()
    )


def _read_feedback(table: Path, source: Mapping[float, str]) -> LabelProblem:
    """Joins one table of feedback with the sources.

    −1 stands for news whose popularity is not known.
    """
    lines = _read_lines(table, ("IDLink", *NEWS_FEATURES, NEWS_LABEL))
    rows = [
        line for line in lines if float(line["IDLink"]) in source and float(line[NEWS_LABEL]) >= 0
    ]
    owner = np.unique([source[float(line["IDLink"])] for line in rows], return_inverse=True)[1]
    X = np.array([[float(line[name]) for name in NEWS_FEATURES] for line in rows])
    return LabelProblem(X, np.array([float(line[NEWS_LABEL]) for line in rows]), owner)


def _find_folder(named: Path | None) -> Path:
    return named or Path(os.environ.get(DATA_VARIABLE) or DATA_FOLDER)


def _read_lines(
    path: Path, columns: tuple[str, ...], delimiter: str = ","
) -> Iterator[Mapping[str, str]]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter)
        absent = [column for column in columns if column not in (reader.fieldnames or ())]
        if absent:
            raise MissingColumn(
                f"{path.name} has no column {absent[0]}.",
                "",
                "Use the file as it was published.",
                parameter="data",
            )
        yield from reader


def _missing_data_error(files: str) -> InvalidData:
    return InvalidData(
        f"There is no {files} in the data folder.",
        "The data are needed for this experiment and are not part of this package.",
        "Get the Drug Review Dataset (Druglib.com), or News Popularity in Multiple Social Media "
        "Platforms with its tables of feedback, from the UCI repository, and name the folder, "
        f"here or as {DATA_VARIABLE}.",
        parameter="data",
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
