# SPDX-License-Identifier: Apache-2.0
"""Times of competitors, each in a process of its own, told as ratios.

Seconds on one machine say nothing about another, and a shared machine is slower one minute than the
next. In one process a competitor also pays for the memory that the one before it gave back. So each
has a process of its own, in which it runs once to warm up and then several times; the order is
turned round in every second round; and what counts is how many times as long each took as the one
it is measured by, once by the best time and once by the median.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter, process_time
from typing import Any

from rich.console import Console
from rich.table import Table

console = Console(width=120)

Competitors = Mapping[str, Callable[[], object]]
#: Name of a competitor → (who it is measured by, the most it may take of their time).
Targets = Mapping[str, tuple[str, float]]

#: Seconds of one run, and of the processor in it.
Run = tuple[float, float]

#: In a process: runs after the one that warms up, at least and at most, and for how long.
ROUNDS = 7
MOST_RUNS = 50
SECONDS = 2.0


class Timing(float):
    """The best time of a competitor in seconds, with the median of all of them, and the same of the
    processor's time, over all threads: what others do on a machine hardly counts in that.
    """

    median: float
    cpu: float
    cpu_median: float

    @classmethod
    def of(cls, runs: list[Run]) -> Timing:
        """Returns the timing of some runs."""
        timing = cls(min(seconds for seconds, _ in runs))
        timing.median = median(seconds for seconds, _ in runs)
        timing.cpu = min(cpu for _, cpu in runs)
        timing.cpu_median = median(cpu for _, cpu in runs)
        return timing


def best_times(competitors: Competitors, rounds: int = ROUNDS) -> dict[str, float]:
    """Returns everybody's timing: in each order of the competitors a process for each of them, and
    in it half of the rounds.
    """
    names = list(competitors)
    runs = max(rounds // 2, 1)
    seen: dict[str, list[Run]] = {name: [] for name in names}
    for order in (names, names[::-1]):
        for name in order:
            seen[name] += _time_apart(competitors[name], runs)
    return {name: Timing.of(seen[name]) for name in names}


def _time_apart(compute: Callable[[], object], runs: int) -> list[Run]:
    """Returns the times of a competitor in a process of its own, which sees the same data."""
    # A copy of this process, so that the data are there and nothing needs to be pickled; nothing
    # that a competitor does has run in it yet.
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_time_warm, args=(compute, runs, theirs))
    process.start()
    theirs.close()
    try:
        seen: list[Run] = ours.recv()
    finally:
        process.join()
    return seen


def _time_warm(compute: Callable[[], object], runs: int, connection: Any) -> None:
    compute()
    gc.collect()
    seen: list[Run] = []
    spent = 0.0
    while len(seen) < runs or (spent < SECONDS and len(seen) < MOST_RUNS):
        start = perf_counter()
        worked = process_time()
        compute()
        seen.append((perf_counter() - start, process_time() - worked))
        spent += seen[-1][0]
    connection.send(seen)


def show(title: str, times: Mapping[str, float], measure: str, targets: Targets) -> None:
    """Prints a table of ratios to ``measure``, and beside them what was promised."""
    table = Table(
        "", "best ms", f"÷ {measure}", "median ms", f"÷ {measure}", "promised", "", title=title
    )
    for name, seconds in times.items():
        usual = _get_median(seconds)
        table.add_row(
            name,
            f"{seconds * 1e3:.2f}",
            f"{seconds / times[measure]:.2f}",
            f"{usual * 1e3:.2f}",
            f"{usual / _get_median(times[measure]):.2f}",
            *_promise(name, times, targets),
        )
    console.print(table)


def _get_median(seconds: float) -> float:
    return getattr(seconds, "median", seconds)


def verdict(reached: float, allowed: float) -> str:
    """Returns in words whether a number is within what it may be."""
    if reached <= allowed:
        return "[green]holds[/green]"
    return "[red]does not hold[/red]"


def _promise(name: str, times: Mapping[str, float], targets: Targets) -> tuple[str, str]:
    if name not in targets:
        return "", ""
    measure, allowed = targets[name]
    ratio = times[name] / times[measure]
    return f"{ratio:.2f} of at most {allowed:g} × {measure}", verdict(ratio, allowed)
