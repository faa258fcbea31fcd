# SPDX-License-Identifier: Apache-2.0
"""Best of several rounds, everybody in the same run, told as ratios.

Seconds on one machine say nothing about another, and a shared machine is slower one minute than the
next. So all competitors take turns in every round, for as many rounds as fit into ten seconds, each
keeps its best time, and what counts is how many times as long each took as the one it is measured
by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter

from rich.console import Console
from rich.table import Table

console = Console(width=120)

Competitors = Mapping[str, Callable[[], object]]
#: Name of a competitor → (who it is measured by, the most it may take of their time).
Targets = Mapping[str, tuple[str, float]]

#: A comparison goes on for this long, and for this many rounds at least.
SECONDS = 10.0
ROUNDS = 7


def best_times(competitors: Competitors, rounds: int = ROUNDS) -> dict[str, float]:
    """Returns everybody's best time in seconds; they take turns, so a busy moment hits all of
    them.
    """
    best = dict.fromkeys(competitors, float("inf"))
    began = perf_counter()
    done = 0
    while done < rounds or perf_counter() - began < SECONDS:
        done += 1
        for name, compute in competitors.items():
            start = perf_counter()
            compute()
            best[name] = min(best[name], perf_counter() - start)
    return best


def show(title: str, times: Mapping[str, float], measure: str, targets: Targets) -> None:
    """Prints a table of ratios to ``measure``, and beside them what was promised."""
    table = Table("", "ms", f"÷ {measure}", "promised", "", title=title)
    for name, seconds in times.items():
        table.add_row(
            name,
            f"{seconds * 1e3:.2f}",
            f"{seconds / times[measure]:.2f}",
            *_promise(name, times, targets),
        )
    console.print(table)


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
