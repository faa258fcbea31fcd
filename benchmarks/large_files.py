# SPDX-License-Identifier: Apache-2.0
"""How much memory and time a mean and a median of a large Parquet file take.

Files are written row group by row group into a temporary directory. Every answer is given by a
fresh process, which reports the most memory it ever held. Everything is public path: open the
table, take the census, release the rows.

    python benchmarks/large_files.py                    50 million rows, about four minutes
    python benchmarks/large_files.py --rows 1000000     to try it
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from timing import console, verdict

ROWS = 50_000_000
GROUP = 2**20
BOUNDS = (0.0, 100.0)
TIERS = (0.1, 0.5, 1.0)
#: Odd, so that multiplying by it modulo a power of two mixes up numbers without making two of them
#: equal.
SCATTER = 0x9E3779B97F4A7C15
QUESTIONS = ("mean", "median")


@dataclass(frozen=True)
class File:
    """One large table: what is in it, and how much memory may be needed to answer about it."""

    name: str
    words: str
    rows_each: int | None  # rows a person; None where there is no column of people
    tiers: bool
    gigabytes: float


FILES = (
    File("tiers", "three tiers, every row somebody else's", None, True, 1.0),
    File("people", "three tiers, ten rows a person", 10, True, 1.0),
    File("crowd", "three tiers, one row a person", 1, True, 1.0),
    File("different", "a different budget in every row", None, False, 4.0),
)


def main() -> None:
    """Writes every file and answers about it, each in a process of its own, and prints what it
    took.
    """
    options = _options()
    if options.write:
        return write(_file(options.write), Path(options.path), options.rows)
    if options.answer:
        return print(json.dumps(answer(_file(options.answer), options.path, options.question)))
    table = Table(
        "file",
        "question",
        "census s",
        "release s",
        "peak GB",
        "may take GB",
        "",
        title=_title(options.rows),
    )
    with tempfile.TemporaryDirectory() as folder:
        for file in FILES:
            path = Path(folder, f"{file.name}.parquet")
            _child("--write", file.name, "--path", str(path), "--rows", str(options.rows))
            for question in QUESTIONS:
                told = json.loads(
                    _child("--answer", file.name, "--path", str(path), "--question", question)
                )
                table.add_row(file.words, question, *_cells(told, file.gigabytes))
            path.unlink()
    console.print(table)


def write(file: File, path: Path, rows: int) -> None:
    """Writes the file, holding one row group at a time."""
    import pyarrow.parquet as pq

    groups = _groups(file, rows)
    first = next(groups)
    with pq.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for group in groups:
            writer.write_table(group)


def answer(file: File, path: str, question: str) -> dict[str, float]:
    """Takes the census of the file, releases the answer, and returns seconds and the peak of memory
    in GB.
    """
    import resource
    from dataclasses import replace
    from time import perf_counter

    import sottovoce as sv
    from sottovoce.data.census import take_census
    from sottovoce.data.engine import Dataset, get_engine
    from sottovoce.estimator import make_release

    if question == "mean":
        ask = sv.Mean(bounds=BOUNDS)
    else:
        ask = sv.Quantile(q=0.5, bounds=BOUNDS)
    start = perf_counter()
    engine = get_engine("arrow").open_table(path, ("value", "epsilon"))
    budgets, owner = take_census(
        engine, budget="epsilon", person="person" if file.rows_each else None
    )
    counted = perf_counter()
    # Nobody has an account in the books of a new session: people are counted and protected, but not
    # named.
    # Nobody is named to a ledger: what is measured is reading.
    make_release(ask, Dataset(engine, "value", owner, budgets=replace(budgets, people=None)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    return {"census": counted - start, "release": perf_counter() - counted, "gigabytes": peak / 1e9}


def _groups(file: File, rows: int) -> Iterator[Any]:
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(0)
    for start in range(0, rows, GROUP):
        row = np.arange(start, min(start + GROUP, rows))
        columns = {"value": rng.normal(50.0, 10.0, len(row))}
        person = _scattered(row, rows) // (file.rows_each or 1)
        if file.tiers:
            columns["epsilon"] = np.array(TIERS)[person % 3]
        else:
            columns["epsilon"] = (10**8 + person) / 1e9
        if file.rows_each:
            # An id can be any number; these lie all over the 64 bits.
            columns["person"] = (person.astype(np.uint64) * np.uint64(SCATTER)).view(np.int64)
        yield pa.table(columns)


def _scattered(row: Any, rows: int) -> Any:
    """Returns the numbers 0 … rows−1 in another order, so that nobody's rows lie beside each
    other.
    """
    step = next(k for k in range(int(rows * 0.618), rows + 2) if math.gcd(k, rows) == 1)
    return row * step % rows


def _cells(told: dict[str, float], allowed: float) -> list[str]:
    gigabytes = told["gigabytes"]
    return [
        f"{told['census']:.1f}",
        f"{told['release']:.1f}",
        f"{gigabytes:.2f}",
        f"{allowed:.0f}",
        verdict(gigabytes, allowed),
    ]


def _child(*arguments: str) -> str:
    # This process stays small: on Linux a child's peak begins at what its parent holds.
    return subprocess.run(
        [sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def _file(name: str) -> File:
    return next(file for file in FILES if file.name == name)


def _title(rows: int) -> str:
    return f"Parquet files of {rows:,} rows, a fresh process for each answer"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of every file")
    for inner in (
        "--write",
        "--answer",
        "--path",
        "--question",
    ):  # what the script tells its own children
        parser.add_argument(inner, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
