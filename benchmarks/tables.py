# SPDX-License-Identifier: Apache-2.0
"""Exact counts and sums by cell from one Parquet file, beside the bare GROUP BY and the bare scan.

python benchmarks/tables.py                     ten million rows, 100 cells, about two minutes
python benchmarks/tables.py --rows 1000000      to try it
python benchmarks/tables.py --memory            the peak of memory for a million cells

The file has two columns of text with eight levels each (100 cells with "other" and "missing"), a
column of text with three tiers, and one of doubles. The bare GROUP BY is DuckDB's own, on as many
threads as ours, over the same columns, and weighs nobody; the bare scan is Arrow's own on all
cores, over the same columns, and does nothing with them. Each contestant runs in a process of its
own, once to warm up and then ROUNDS times, in turn with the one it is measured by; seconds of the
clock and of the processor are both printed, because a busy machine moves the first.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.table import Table
from timing import console, verdict

from sottovoce.data.cells import make_cells
from sottovoce.data.engine import GroupLookup, NameIndex, count_threads, get_engine
from sottovoce.data.table_kernels import CellSums, CellWeights
from sottovoce.noise.source import Grid

GROUP = 2**20
LEVELS = 8
TIERS = ("low", "middle", "high")
ROUNDS = 7
BY = ("region", "group")
WEIGHTS = np.array([1, 5, 20]) << 34
#: What is asked → the columns that the bare contestants read, and group by.
ASKED = {
    "count": (BY, BY),
    "count, three tiers": ((*BY, "tier"), (*BY, "tier")),
    "sum, three tiers": ((*BY, "tier", "cost"), (*BY, "tier")),
}
#: The most that ours may take of the bare one's time, for a count.
TARGETS = {"duckdb": 1.5, "arrow": 2.0}
#: Bytes above the file's own size that a million cells may cost at their peak.
MEMORY_TARGET = 2**30


def write(path: Path, rows: int, many: bool = False) -> None:
    """Writes the file, holding one row group at a time."""
    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, GROUP):
        n = min(GROUP, rows - start)
        group = pa.table(
            {
                "region": _words(rng, n, "region", LEVELS),
                "group": _words(rng, n, "group", LEVELS),
                "tier": pa.array(TIERS).take(pa.array(rng.integers(0, 3, n))),
                "cost": rng.gamma(2, 100, n),
                **({"place": rng.random(n) * 1e6} if many else {}),
            }
        )
        writer = writer or pq.ParquetWriter(path, group.schema, store_schema=False)
        writer.write_table(group)
    writer.close()


def _words(rng: np.random.Generator, n: int, name: str, levels: int) -> Any:
    return pa.array([f"{name} {i}" for i in range(levels)]).take(
        pa.array(rng.integers(0, levels, n))
    )


def kernel(asked: str) -> Any:
    """What we ask of an engine."""
    cells = make_cells({name: [f"{name} {i}" for i in range(LEVELS)] for name in BY})
    if asked == "count":
        return CellWeights(cells, GroupLookup(), WEIGHTS[:1])
    owner = GroupLookup("tier", NameIndex(list(TIERS)))
    if asked == "count, three tiers":
        return CellWeights(cells, owner, WEIGHTS)
    return CellSums(cells, owner, WEIGHTS, "cost", Grid.cover(0.0, 1000.0, 32))


def ours(engine: str, path: str, asked: str) -> Callable[[], Any]:
    """Our answer, from opening the file on."""
    wanted = kernel(asked)
    return lambda: get_engine(engine).open_table(path).fold(wanted)


def bare_group_by(path: str, asked: str) -> Callable[[], Any]:
    """DuckDB's answer to the same question without privacy."""
    _, by = ASKED[asked]
    names = ", ".join(f'"{name}"' for name in by)
    total = ', sum("cost")' if asked.startswith("sum") else ""
    query = f"SELECT {names}, count(*){total} FROM read_parquet('{path}') GROUP BY {names}"

    def run() -> Any:
        connection = duckdb.connect(config={"threads": count_threads()})
        return connection.execute(query).fetchall()

    return run


def bare_scan(path: str, asked: str) -> Callable[[], Any]:
    """Arrow reads the same columns."""
    columns, _ = ASKED[asked]

    def run() -> int:
        scanner = ds.dataset(path).scanner(columns=list(columns))
        return sum(len(batch) for batch in scanner.to_batches())

    return run


CONTESTANTS = {
    "bare GROUP BY": bare_group_by,
    "bare scan": bare_scan,
    "duckdb": lambda path, asked: ours("duckdb", path, asked),
    "arrow": lambda path, asked: ours("arrow", path, asked),
}
BARE = {"duckdb": "bare GROUP BY", "arrow": "bare scan"}


def serve(name: str, path: str, asked: str) -> None:
    """Runs one contestant once for every line that arrives, and tells how long it took."""
    run = CONTESTANTS[name](path, asked)
    for _ in sys.stdin:
        clock = perf_counter()
        processor = process_time()
        run()
        print(json.dumps([perf_counter() - clock, process_time() - processor]), flush=True)


class Contestant:
    """One process that waits for its turn."""

    def __init__(self, name: str, path: str, asked: str) -> None:
        command = [sys.executable, __file__, "--serve", name, path, asked]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.rounds: list[list[float]] = []

    def run(self) -> list[float]:
        """Runs it once."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


def compare(path: str) -> None:
    """Prints seconds and ratios of every question by both engines."""
    table = Table("question", "engine", "clock s", "bare s", "ratio, best", "ratio, median")
    table.add_column("processor, median")
    table.add_column("at most")
    for asked in ASKED:
        for engine, bare in BARE.items():
            pair = [Contestant(engine, path, asked), Contestant(bare, path, asked)]
            for one in pair:
                one.run()
            for _ in range(ROUNDS):
                for one in pair:
                    one.rounds.append(one.run())
            for one in pair:
                one.close()
            clock, processor = (
                [[line[place] for line in one.rounds] for one in pair] for place in (0, 1)
            )
            best = min(clock[0]) / min(clock[1])
            middle = statistics.median(clock[0]) / statistics.median(clock[1])
            used = statistics.median(processor[0]) / statistics.median(processor[1])
            if asked.startswith("count"):
                target = f"{TARGETS[engine]:g}: {verdict(best, TARGETS[engine])}"
            else:
                target = ""
            table.add_row(
                asked,
                engine,
                f"{min(clock[0]):.3f}",
                f"{min(clock[1]):.3f}",
                f"{best:.2f}",
                f"{middle:.2f}",
                f"{used:.2f}",
                target,
            )
    console.print(table)


def measure_memory(path: str, engine: str) -> None:
    """Prints the peak of memory of a million cells, above that of a process that only imports."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cells = make_cells({"place": np.linspace(0, 1e6, 10**6).tolist()})
    owner = GroupLookup("tier", NameIndex(list(TIERS)))
    grid = Grid.cover(0.0, 1000.0, 16)
    rows = get_engine(engine).open_table(path)
    clock = perf_counter()
    found = rows.fold(CellSums(cells, owner, WEIGHTS, "cost", grid, with_squares=True))
    clock = perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    rest = peak - before - os.path.getsize(path)
    print(
        f"{engine}: {cells.size:,} cells, {int((found.weights > 0).sum()):,} of them filled, "
        f"{clock:.1f} s, peak {peak / 2**20:,.0f} MiB, {(peak - before) / 2**20:,.0f} above the "
        f"imports, {rest / 2**20:,.0f} above these and the file"
    )


def main() -> None:
    """Writes the file and runs the contest."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--peak", nargs=2)
    parser.add_argument("--serve", nargs=3)
    told = parser.parse_args()
    if told.serve:
        serve(*told.serve)
        return
    if told.peak:
        measure_memory(*told.peak)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write(path, told.rows, told.memory)
        if told.memory:
            for engine in TARGETS:
                subprocess.run([sys.executable, __file__, "--peak", str(path), engine], check=True)
        else:
            compare(str(path))


if __name__ == "__main__":
    main()
