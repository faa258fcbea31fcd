# SPDX-License-Identifier: Apache-2.0
"""The exact statistics of a ridge regression from one Parquet file, by every engine, and by a bare
scan with BLAS.

python benchmarks/engines.py                     ten million rows × 20, about a minute; Spark needs
                                                 Java
python benchmarks/engines.py --rows 1000000      to try it
python benchmarks/engines.py --memory            the peak of memory for fifty million rows × 20,
                                                 arrow and duckdb

All read the same file of float64 columns: 20 features, a label, and a column that says which of
three tiers a row's owner is in. The bare scan reads features and label with Arrow's scanner on all
cores and adds XᵀX in doubles: no weights, no bounds, no recoding and no check. It is the least that
anybody could do.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.table import Table
from threadpoolctl import threadpool_limits
from timing import console, verdict

from sottovoce.data.encoding import ColumnReader, Feature, Label, Recoding
from sottovoce.data.engine import GroupLookup, count_threads, get_engine
from sottovoce.data.regression_kernels import Products

GROUP = 2**20
FEATURES = 20
KINDS = 3
NAMES = [f"x{j}" for j in range(FEATURES)]
#: Name → (measured by, the most it may take of that one's time).
TARGETS = {
    "arrow": ("bare scan", 1.5),
    "duckdb": ("arrow", 3.0),
    "dask": ("arrow", 3.0),
    "spark": ("arrow", 3.0),
}
#: Rows of a batch of the bare scan: those that make it fastest.
BARE = 2**15
#: Rounds, after one that starts clusters and fills the cache of files; everybody keeps the best.
ROUNDS = 3


def write(path: Path, rows: int) -> None:
    """Writes the file, holding one row group at a time."""
    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, GROUP):
        n = min(GROUP, rows - start)
        X = rng.random((n, FEATURES))
        columns = dict(zip(NAMES, X.T.copy(), strict=True))
        y = X.sum(axis=1) + rng.normal(size=n)
        group = pa.table({**columns, "y": y, "kind": rng.integers(0, KINDS, n).astype(np.uint8)})
        writer = writer or pq.ParquetWriter(
            path, group.schema, compression="snappy", use_dictionary=False
        )
        writer.write_table(group)
    writer.close()


def kernel() -> Products:
    """Σ weight·ẑẑᵀ for three tiers."""
    recoding = Recoding(tuple(Feature(name, 0.0, 1.0) for name in NAMES))
    return Products(
        ColumnReader(recoding),
        Label("y", 0.0, 20.0),
        GroupLookup("kind"),
        np.array([500, 2500, 5000]),
    )


def bare_scan(path: str) -> Any:
    """XᵀX by Arrow and BLAS, on as many threads as ours; BLAS with one in each, or they would wait
    for each other.
    """
    total = np.zeros((FEATURES + 1, FEATURES + 1))
    flying = deque()
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(count_threads()) as pool:
        for batch in ds.dataset(path).scanner(columns=[*NAMES, "y"], batch_size=BARE).to_batches():
            flying.append(pool.submit(_products, batch))
            if len(flying) > count_threads():
                total += flying.popleft().result()
        return total + sum(future.result() for future in flying)


def _products(batch: Any) -> Any:
    X = np.empty((len(batch), FEATURES + 1), order="F")
    for j, column in enumerate(batch.columns):
        X[:, j] = column.to_numpy()
    return X.T @ X


def engine_run(name: str, path: str) -> Callable[[], Any]:
    """The statistics by one engine."""
    return lambda: get_engine(name).open_table(path).fold(kernel())


def raced(path: str, names: list[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Returns everybody's first time, with start-up, and best time after that; they take turns."""
    runs = {
        "bare scan": lambda: bare_scan(path),
        **{name: engine_run(name, path) for name in names},
    }
    first = {name: _seconds(run) for name, run in runs.items()}
    best = {name: min(times) for name, times in zip(runs, _rounds(runs), strict=True)}
    return first, best


def _rounds(runs: dict[str, Callable[[], Any]]) -> list[list[float]]:
    rounds = [[_seconds(run) for run in runs.values()] for _ in range(ROUNDS)]
    return [list(times) for times in zip(*rounds, strict=True)]


def _seconds(run: Callable[[], Any]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def peak(name: str, path: str) -> dict[str, float]:
    """Returns seconds and the most memory this process ever held, in GB."""
    seconds = _seconds(engine_run(name, path))
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    return {"seconds": seconds, "gigabytes": held / 1e9}


def show_memory(path: str, rows: int) -> None:
    """One fresh process for each engine."""
    table = Table(
        "engine", "s", "peak GB", "may take GB", "", title=f"memory, {rows:,} × {FEATURES}"
    )
    for name in ("arrow", "duckdb"):
        command = [sys.executable, __file__, "--peak", name, "--path", path]
        told = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
        gigabytes = told["gigabytes"]
        table.add_row(
            name, f"{told['seconds']:.0f}", f"{gigabytes:.2f}", "1", verdict(gigabytes, 1.0)
        )
    console.print(table)


def show_race(path: str, rows: int, names: list[str]) -> None:
    """Ratios in one run; start-up of clusters apart."""
    first, best = raced(path, names)
    table = Table(
        "",
        "first s",
        "warm s",
        "ratio",
        "promised",
        "",
        title=f"{rows:,} × {FEATURES}, {count_threads()} threads",
    )
    for name, seconds in best.items():
        row = [name, f"{first[name]:.2f}", f"{seconds:.2f}"]
        if name in TARGETS:
            measure, allowed = TARGETS[name]
            ratio = seconds / best[measure]
            row += [f"{ratio:.2f} × {measure}", f"at most {allowed:g}", verdict(ratio, allowed)]
        table.add_row(*row)
    console.print(table)


def main() -> None:
    """Writes one file and lets everybody read it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--engines", default="arrow,duckdb,dask,spark")
    parser.add_argument("--peak")
    parser.add_argument("--path")
    options = parser.parse_args()
    if options.peak:
        return print(json.dumps(peak(options.peak, options.path)))
    rows = options.rows or (50_000_000 if options.memory else 10_000_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.parquet")
        write(path, rows)
        if options.memory:
            return show_memory(str(path), rows)
        show_race(str(path), rows, options.engines.split(","))


if __name__ == "__main__":
    main()
