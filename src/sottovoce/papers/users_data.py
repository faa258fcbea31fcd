# SPDX-License-Identifier: Apache-2.0
"""The data of "Smoothly Bounding User Contributions in Differential Privacy": your own copy of its
drug reviews and news, and reviews that are invented where there is none.

The reviews may be used for research and must not be passed on, so they are not in this package.
Whatever is computed on invented ones says so, and is not held against print.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from sottovoce.arrays import Integers
from sottovoce.errors import MissingColumn
from sottovoce.papers.report import make_named_generator
from sottovoce.papers.users_regression import LabelProblem

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
#: Invented reviews: how often each level is, and what it adds to a rating; the ratings' own spread.
EFFECTIVENESS = ((0.30, 7.5), (0.43, 9.0), (0.08, 2.5), (0.06, 4.3), (0.13, 6.0))
SIDE_EFFECTS = ((0.06, -2.5), (0.33, 0.3), (0.20, -0.5), (0.30, 0.6), (0.11, -1.5))
RATING_SPREAD = 1.6
RATINGS = (1, 10)


def find_reviews(folder: Path | None) -> tuple[LabelProblem, bool]:
    """Return the reviews of the folder, or invented ones, and whether they are the real ones."""
    real = load_reviews(folder)
    if real is not None:
        return real, True
    return invent_reviews(), False


def invent_reviews() -> LabelProblem:
    """Return reviews with the rows, columns and people of print, and its largest person; all else
    is invented.
    """
    rng = make_named_generator("users invented reviews")
    rows, _, people, largest = FACTS["drugs"]
    owner = np.repeat(np.arange(people), _invent_sizes(rows, people, largest))
    columns = [np.ones(rows)]
    rating = np.zeros(rows)
    for levels in (EFFECTIVENESS, SIDE_EFFECTS):
        shares, effects = np.array(levels).T
        level = rng.choice(len(levels), rows, p=shares)
        rating += effects[level]
        columns += [(level == one).astype(np.float64) for one in range(1, len(levels))]
    rating = np.clip(np.round(rating + rng.normal(0, RATING_SPREAD, rows)), *RATINGS)
    return LabelProblem(np.column_stack(columns), rating, owner)


def _invent_sizes(rows: int, people: int, largest: int) -> Integers:
    """Return rows of people that fall from the largest to one, by the root of the rank, and add
    up.
    """
    rank = np.sqrt(np.arange(people))
    low, high = (0.0, 1.0)
    while high - low > 1e-12:
        middle = (low + high) / 2
        if np.maximum(np.round(largest * np.exp(-middle * rank)), 1).sum() > rows:
            low = middle
        else:
            high = middle
    sizes = np.maximum(np.round(largest * np.exp(-high * rank)), 1).astype(np.int64)
    sizes[1 : 1 + rows - int(sizes.sum())] += 1
    return np.asarray(sizes)


def count_facts(problem: LabelProblem, constant: bool = False) -> tuple[int, ...]:
    """Return rows, features without the constant, people and rows of the largest."""
    sizes = np.bincount(problem.owner)
    rows, columns = problem.X.shape
    return rows, columns - constant, len(sizes), int(sizes.max())


def load_reviews(folder: Path | None) -> LabelProblem | None:
    """Return ratings of drugs by effectiveness and side effects, a constant and 0/1 columns without
    the first level; or None.

    A drug is a "user". The file has the columns urlDrugName, rating, effectiveness and sideEffects,
    split by tabs. Rows without effectiveness are dropped: 3,107 are left, as print has it.
    """
    path = _find_folder(folder) / DRUGS
    if not path.is_file():
        return None
    needed = ("urlDrugName", "rating", "effectiveness", "sideEffects")
    lines = [line for line in _read_lines(path, needed, "\t") if line["effectiveness"]]
    columns = [[1.0] * len(lines)] + [
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
        found, key=lambda one: np.abs(np.log(np.array(count_facts(one)) / FACTS["news"])).sum()
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
