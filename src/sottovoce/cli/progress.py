# SPDX-License-Identifier: Apache-2.0
"""Rows done so far, shown at a terminal once the work has taken two seconds; their number is public."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

#: Seconds during which nothing is shown: a bar that flashes by only unsettles.
PATIENCE = 2.0
#: A plan reads the table once (twice, if people differ), a release goes on from there; a regression, many times.
PASSES = ("Counting who takes part", "Checking the column", "Answering")


class RowsDone:
    """Watches an engine: called with the rows done in this pass, it keeps a bar up to date."""

    def __init__(self, console: Console, passes: tuple[str, ...] = PASSES) -> None:
        self._passes = passes
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            _RowsColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task(passes[0], total=None)
        self._pass, self._done, self._shown = 0, 0, False
        self._total: int | None = None
        self._began = time.monotonic()

    def __enter__(self) -> RowsDone:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._bar.stop()

    def __call__(self, done: int) -> None:
        """Takes note of the rows done; fewer than before means that another pass has begun."""
        if done <= self._done:
            self._next_pass()
        self._done = done
        self._bar.update(self._task, completed=done)
        if not self._shown and self._bar.console.is_interactive and time.monotonic() - self._began > PATIENCE:
            self._bar.start()
            self._shown = True

    def _next_pass(self) -> None:
        # The first pass ends at the last row, so from now on the end is known.
        self._total = self._done if self._total is None else self._total
        self._pass = min(self._pass + 1, len(self._passes) - 1)
        self._bar.reset(self._task, total=self._total, description=self._passes[self._pass])


class _RowsColumn(ProgressColumn):
    """How many rows are done, and of how many where that is known."""

    def render(self, task: Task) -> Text:
        """Returns the text of the column."""
        whole = "" if task.total is None else f" of {int(task.total):,}"
        return Text(f"{int(task.completed):,}{whole} rows")
