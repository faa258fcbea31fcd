# SPDX-License-Identifier: Apache-2.0
"""How much memory and time a regression on a large Parquet file takes, people in three tiers.

python benchmarks/large_regression.py                    50 million rows, some minutes
python benchmarks/large_regression.py --rows 1000000     to try it
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table
from timing import console, verdict

GROUP = 2**20
FEATURES = 5
TIERS = (0.1, 0.5, 1.0)
METHODS = {"statistics": {"method": "statistics", "alpha": 1e-4}, "objective": {}}
NUMBER = '[columns.{}]\nkind = "number"\nlow = {}\nhigh = {}\n'
SCHEMA = 'label = "y"\nbudget = "epsilon"\n' + NUMBER.format("y", -10, 10)
SCHEMA += "".join(NUMBER.format(f"x{j}", 0, 1) for j in range(FEATURES))


def write(path: Path, rows: int) -> None:
    """Writes the file, holding one row group at a time."""
    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, GROUP):
        n = min(GROUP, rows - start)
        X = rng.random((n, FEATURES))
        columns = {f"x{j}": X[:, j] for j in range(FEATURES)}
        group = pa.table(
            {**columns, "y": X.sum(axis=1) + rng.normal(size=n), "epsilon": rng.choice(TIERS, n)}
        )
        writer = writer or pq.ParquetWriter(path, group.schema)
        writer.write_table(group)
    writer.close()


def answer(path: str, method: str) -> dict[str, float]:
    """Takes the census, releases the model, and returns seconds and the peak of memory in GB."""
    import sottovoce as sv
    from sottovoce.data.census import take_census
    from sottovoce.data.encoding import ColumnReader, Label, Recoding
    from sottovoce.data.engine import Dataset, get_engine
    from sottovoce.estimator import make_release

    start = perf_counter()
    schema = sv.Schema.loads(SCHEMA)
    engine = get_engine("arrow").open_table(path)
    budgets, owner = take_census(engine, budget="epsilon")
    rows = Dataset(
        engine,
        "y",
        owner,
        ColumnReader(Recoding.of_schema(schema)),
        Label("y", -10.0, 10.0),
        budgets=budgets,
    )
    make_release(sv.Ridge(bounds=schema, **METHODS[method]), rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    return {"seconds": perf_counter() - start, "gigabytes": peak / 1e9}


def main() -> None:
    """Writes the file and answers about it by each method, in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--answer")
    parser.add_argument("--path")
    options = parser.parse_args()
    if options.answer:
        return print(json.dumps(answer(options.path, options.answer)))
    table = Table(
        "method",
        "s",
        "peak GB",
        "may take GB",
        "",
        title=f"{options.rows:,} × {FEATURES}, three tiers",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.parquet")
        write(path, options.rows)
        for method in METHODS:
            command = [sys.executable, __file__, "--answer", method, "--path", str(path)]
            told = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
            seconds = told["seconds"]
            gigabytes = told["gigabytes"]
            table.add_row(
                method, f"{seconds:.0f}", f"{gigabytes:.2f}", "1", verdict(gigabytes, 1.0)
            )
    console.print(table)


if __name__ == "__main__":
    main()
