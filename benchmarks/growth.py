# SPDX-License-Identifier: Apache-2.0
"""How time and memory grow with rows, columns and people, with fitted exponents.

    python benchmarks/growth.py                       10⁴ to 10⁶ rows, some minutes
    python benchmarks/growth.py --most 10000000       to 10⁷
    python benchmarks/growth.py --stream 100000000    scans of up to so many rows of Parquet
    python benchmarks/growth.py --write               docs/images/growth.svg and docs/growth.json

Every number comes from a process of its own. Time is the processor's, over all threads, after one
run to warm up, so that imports do not count; memory is the most that the process held, less what it
held before it began, and less the rows themselves. An exponent is the slope of a line through the
last points on logarithmic axes, from the size on at which fixed costs no longer count.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table
from timing import console

import sottovoce as sv

ROOT = Path(__file__).parents[1]
#: Exponents are fitted to sizes from this part of the largest on: fixed costs count before.
LAST = 1 / 10
#: n·log n between the ends of what is fitted has about this exponent.
ALLOWED = 1.1
COLUMNS = (5, 10, 20, 40)
TIERS = (0.1, 0.5, 2.0)
#: Processes for each answer about a file.
STREAM_RUNS = 2


def make_mean(n: int, p: int) -> Callable[[], object]:
    """A mean, a different budget for everybody."""
    rng = np.random.default_rng(0)
    values = rng.normal(50, 10, n)
    epsilon = rng.uniform(0.1, 2.0, n)
    return lambda: sv.Mean(bounds=(0, 100)).fit(values, epsilon=epsilon)


def make_median(n: int, p: int) -> Callable[[], object]:
    """A median, a different budget for everybody."""
    rng = np.random.default_rng(0)
    values = rng.normal(50, 10, n)
    epsilon = rng.uniform(0.1, 2.0, n)
    return lambda: sv.Quantile(q=0.5, bounds=(0, 100)).fit(values, epsilon=epsilon)


def make_count(n: int, p: int) -> Callable[[], object]:
    """A plan for people named by text, ten rows each."""
    names = np.array([f"person-{i:09d}" for i in range(max(n // 10, 1))])
    groups = np.random.default_rng(0).permutation(np.repeat(names, 10))
    epsilon = dict(zip(names.tolist(), np.linspace(0.1, 2.0, len(names)).tolist(), strict=True))
    return lambda: sv.Mean(bounds=(0, 100)).plan(epsilon, groups=groups)


def make_regression(n: int, p: int, **options: Any) -> Callable[[], object]:
    """A regression, people in three tiers."""
    rng = np.random.default_rng(3)
    X = rng.random((n, p))
    y = X @ rng.normal(size=p) + rng.normal(size=n)
    epsilon = rng.choice(TIERS, n)
    bounds = sv.Bounds(features=(np.zeros(p), np.ones(p)), label=(-20, 20))
    return lambda: sv.Ridge(bounds=bounds, **options).fit(X, y, epsilon=epsilon)


def make_statistics(n: int, p: int) -> Callable[[], object]:
    """A regression from noisy sums."""
    return make_regression(n, p, method="statistics", alpha=1e-4)


def make_classifier(n: int, p: int) -> Callable[[], object]:
    """A classifier, people in three tiers."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, p))
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ rng.normal(size=p)))).astype(int)
    epsilon = rng.choice(TIERS, n)
    ask = sv.LogisticRegression(bounds=sv.Bounds(features=(-1, 1)))
    return lambda: ask.fit(X, y, epsilon=epsilon)


QUESTIONS: dict[str, Callable[[int, int], Callable[[], object]]] = {
    "mean": make_mean,
    "median": make_median,
    "people by name": make_count,
    "regression": make_regression,
    "statistics": make_statistics,
    "classifier": make_classifier,
}
WIDE = ("regression", "statistics", "classifier")


def measure(name: str, n: int, p: int) -> dict[str, float]:
    """Returns seconds of the processor and megabytes, from a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(name, n, p, theirs))
    process.start()
    theirs.close()
    try:
        found: dict[str, float] = ours.recv()
    finally:
        process.join()
    return found


def _measure(name: str, n: int, p: int, connection: Any) -> None:
    QUESTIONS[name](1000, p)()  # imports and caches
    answer = QUESTIONS[name](n, p)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    while len(seconds) < 2 or (sum(seconds) < 0.5 and len(seconds) < 20):
        start = process_time()
        answer()
        seconds.append(process_time() - start)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    connection.send({"seconds": min(seconds), "megabytes": max(held / 1024, 0.1)})


def fit_exponent(sizes: list[int], amounts: list[float]) -> float:
    """Returns the slope on logarithmic axes through the last sizes."""
    kept = [
        (math.log(size), math.log(amount))
        for size, amount in zip(sizes, amounts, strict=True)
        if size >= LAST * sizes[-1]
    ]
    across, up = zip(*kept, strict=True)
    return float(np.polyfit(across, up, 1)[0])


def measure_growth(sizes: list[int]) -> dict[str, Any]:
    """Returns what every question takes for each number of rows, and for each number of columns."""
    found: dict[str, Any] = {
        "rows": sizes,
        "columns": list(COLUMNS),
        "by_rows": {},
        "by_columns": {},
    }
    for name in QUESTIONS:
        seen = [measure(name, n, 10) for n in sizes]
        found["by_rows"][name] = describe(sizes, seen)
    for name in WIDE:
        seen = [measure(name, sizes[-1] // 10, p) for p in COLUMNS]
        found["by_columns"][name] = describe(list(COLUMNS), seen)
    return found


def describe(sizes: list[int], seen: list[dict[str, float]]) -> dict[str, Any]:
    """Returns times and memory with their exponents."""
    seconds = [one["seconds"] for one in seen]
    megabytes = [one["megabytes"] for one in seen]
    return {
        "seconds": [round(one, 5) for one in seconds],
        "megabytes": [round(one, 1) for one in megabytes],
        "exponent": round(fit_exponent(sizes, seconds), 2),
        "memory_exponent": round(fit_exponent(sizes, megabytes), 2),
    }


def show_growth(found: dict[str, Any]) -> None:
    """Prints two tables."""
    for by, sizes, words in (
        ("by_rows", found["rows"], "rows"),
        ("by_columns", found["columns"], "columns"),
    ):
        table = Table(
            "CPU seconds",
            *(f"{size:,}" for size in sizes),
            "exponent",
            "MB",
            "exponent",
            title=f"Growth with {words}",
        )
        for name, one in found[by].items():
            times = [f"{seconds:.3f}" for seconds in one["seconds"]]
            most = f"{one['megabytes'][-1]:.0f}"
            grows = (f"{one['exponent']:.2f}", most, f"{one['memory_exponent']:.2f}")
            table.add_row(name, *times, *grows)
        console.print(table)


def stream(most: int) -> None:
    """Prints what a mean of up to so many rows of Parquet takes beside a bare scan, each in a fresh
    process.
    """
    sizes = [10**power for power in range(6, round(math.log10(most)) + 1)]
    seen: dict[str, list[list[float]]] = {engine: [] for engine in ("scan", "arrow", "duckdb")}
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "rows.parquet")
            _write_rows(path, rows)
            for engine, runs in seen.items():
                runs.append(min(_answer_apart(engine, path) for _ in range(STREAM_RUNS)))
    table = Table(
        "CPU seconds",
        *(f"{rows:,}" for rows in sizes),
        "exponent",
        "÷ scan",
        "clock, s",
        "÷ scan",
        "peak GB",
        title="mean of rows of Parquet, three tiers",
    )
    measure = seen["scan"][-1]
    for engine, runs in seen.items():
        cpu, clock, peak = runs[-1]
        table.add_row(
            engine,
            *(f"{run[0]:.2f}" for run in runs),
            f"{fit_exponent(sizes[-2:], [run[0] for run in runs[-2:]]):.2f}",
            f"{cpu / measure[0]:.2f}",
            f"{clock:.1f}",
            f"{clock / measure[1]:.2f}",
            f"{peak:.2f}",
        )
    console.print(table)


def _answer_apart(engine: str, path: Path) -> list[float]:
    command = [sys.executable, __file__, "--answer", engine, "--path", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: list[float] = json.loads(done.stdout)
    return found


def _write_rows(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, 2**20):
        n = min(2**20, rows - start)
        group = pa.table({"value": rng.normal(50, 10, n), "epsilon": rng.choice(TIERS, n)})
        writer = writer or pq.ParquetWriter(path, group.schema)
        writer.write_table(group)
    if writer is not None:
        writer.close()


def answer(engine: str, path: str) -> list[float]:
    """Returns seconds of the processor and of the clock, and the peak of memory in GB."""
    start = perf_counter()
    worked = process_time()
    if engine == "scan":
        import pyarrow.dataset as ds

        for batch in ds.dataset(path).scanner(use_threads=True).to_batches():
            for column in batch.columns:
                column.to_numpy().sum()
    else:
        from sottovoce.data.engine import open_engine

        table = open_engine(path, engine)
        sv.Mean(bounds=(0, 100)).fit(table, epsilon="epsilon", column="value")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return [process_time() - worked, perf_counter() - start, peak / 1e9]


def write_page(found: dict[str, Any]) -> None:
    """Writes the numbers, and the curves, for docs/guide/speed.md."""
    lines = [
        {"rows": rows, "seconds": seconds, "question": f"{name} ({one['exponent']})"}
        for name, one in found["by_rows"].items()
        for rows, seconds in zip(found["rows"], one["seconds"], strict=True)
    ]
    order = sorted(found["by_rows"].items(), key=lambda item: -item[1]["seconds"][-1])
    names = [f"{name} ({one['exponent']})" for name, one in order]
    decades = [10.0**power for power in range(-3, 4)]
    picture = (
        alt.Chart(alt.Data(values=lines), width=420, height=320)
        .mark_line(point=True)
        .encode(
            x=alt.X("rows:Q", axis=alt.Axis(values=found["rows"], format=",")).scale(type="log"),
            y=alt.Y(
                "seconds:Q", title="seconds of the processor", axis=alt.Axis(values=decades)
            ).scale(type="log"),
            color=alt.Color("question:N", title="question (exponent)").sort(names),
            shape=alt.Shape("question:N", legend=None).sort(names),
        )
    )
    picture.save(str(ROOT / "docs" / "images" / "growth.svg"))
    text = json.dumps(found, indent=1)
    (ROOT / "docs" / "growth.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=10**6, help="rows, at most")
    parser.add_argument("--stream", type=int, help="scan up to so many rows of Parquet instead")
    parser.add_argument("--write", action="store_true", help="write the page's numbers and picture")
    parser.add_argument("--answer")
    parser.add_argument("--path")
    chosen = parser.parse_args()
    if chosen.answer:
        print(json.dumps(answer(chosen.answer, chosen.path)))
        return
    if chosen.stream:
        stream(chosen.stream)
        return
    powers = range(4, round(math.log10(chosen.most)) + 1)
    found = measure_growth([10**power for power in powers])
    show_growth(found)
    steepest = max(one["exponent"] for one in found["by_rows"].values())
    console.print(
        f"The steepest grows with the power {steepest:.2f} of the rows; {ALLOWED} is n log n."
    )
    if chosen.write:
        write_page(found)


if __name__ == "__main__":
    main()
