# SPDX-License-Identifier: Apache-2.0
"""`sottovoce reproduce`: tables and figures of the papers, computed anew and shown beside what was published.

Each finished experiment is kept as a file, so that an interrupted run goes on where it stopped. One that cannot be
computed, because its data are missing, says so and the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.voice import console, plainly, say

if TYPE_CHECKING:
    from sottovoce.errors import SottovoceError
    from sottovoce.experiments.outcome import Column, Outcome, Table
    from sottovoce.experiments.registry import Experiment, Task

REPORT = "report.html"
#: Characters that one compared column takes at a terminal, and the labels of lines beside it.
COLUMN_WIDTH, LABEL_WIDTH = 50, 12


@plainly()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Such as ridge/table-1, ridge/all or all.")
    ] = None,
    show_names: Annotated[bool, typer.Option("--list", help="Show every name, and compute nothing.")] = False,
    data: Annotated[Path | None, typer.Option(help="The folder with data that are not in this package.")] = None,
    out: Annotated[
        Path,
        typer.Option(help="The folder to write to; made if need be. Results of an earlier run are kept or replaced."),
    ] = Path("reproduction"),
    small: Annotated[bool, typer.Option("--small", help="Few draws and runs: quick and rough.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute again what an earlier run has finished.")] = False,
) -> None:
    """Compute the papers' tables and figures and show them beside what was published."""
    from sottovoce.cli.files import make_folder
    from sottovoce.experiments.pictures import require
    from sottovoce.experiments.registry import Task, chosen

    if show_names:
        _show_names()
        return
    asked = chosen(_asked(names, data))
    require()
    make_folder(out)
    failed: dict[str, SottovoceError] = {}
    for experiment in asked:
        task = Task(experiment.name, "small" if small else "full", data)
        outcome = _done(experiment, task, out, fresh, failed)
        if outcome is not None:
            _show(experiment, outcome)
    if len(failed) == len(asked):
        raise next(iter(failed.values()))
    _finish(out, "small" if small else "full", failed)


def _asked(names: Sequence[str] | None, data: Path | None) -> Sequence[str]:
    from sottovoce.errors import InvalidParameter

    if data is not None and not data.is_dir():
        raise InvalidParameter("--data is not a folder.", "It must hold the data files.", "Check the path.")
    if not names:
        raise InvalidParameter(
            "No experiment was named.", "", "Name one, or all; --list shows every name, and --small is quick."
        )
    return names


def _show_names() -> None:
    from sottovoce.cli.pictures import table
    from sottovoce.experiments.registry import EXPERIMENTS, PAPERS

    for paper in PAPERS.values():
        say(paper.title, style="bold")
        lines = [[e.name, e.title] for e in EXPERIMENTS if e.paper is paper]
        console().print(table(["name", "what it shows"], lines, words=2))


def _done(
    experiment: Experiment, task: Task, out: Path, fresh: bool, failed: dict[str, SottovoceError]
) -> Outcome | None:
    """Returns the outcome, from an earlier run if there is one; notes why where there is none."""
    from sottovoce.errors import SottovoceError

    kept = None if fresh else stored(out, experiment.name, task.size)
    if kept is not None:
        return kept
    try:
        outcome = _computed(experiment, task)
    except SottovoceError as error:
        failed[experiment.name] = error
        say(f"{experiment.name} was not computed. {error}", stderr=True, style="red")
        return None
    _keep(out, outcome)
    return outcome


def _computed(experiment: Experiment, task: Task) -> Outcome:
    from dataclasses import replace

    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        shown = bar.add_task(experiment.name, total=1.0)
        return experiment.run(replace(task, progress=lambda share: bar.update(shown, completed=share)))


def stored(out: Path, name: str, size: str) -> Outcome | None:
    """Returns what an earlier run of this version has kept; None if it must be computed."""
    from sottovoce import __version__
    from sottovoce.experiments.outcome import Outcome

    path = _path(out, name, size)
    kept = Outcome.from_json(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else None
    fits = kept is not None and (kept.experiment, kept.size, kept.made_by) == (name, size, __version__)
    return kept if fits else None


def _path(out: Path, name: str, size: str) -> Path:
    return out / f"{name}{'' if size == 'full' else '.small'}.json"


def _keep(out: Path, outcome: Outcome) -> None:
    """Draws the figures, then writes the outcome: a file of numbers means that all is there."""
    from sottovoce.cli.files import make_folder, write_whole, writing
    from sottovoce.experiments.pictures import draw

    path = _path(out, outcome.experiment, outcome.size)
    make_folder(path.parent)
    for place, figure in enumerate(outcome.figures):
        for ending, content in zip(("png", "svg"), draw(figure), strict=True):
            with writing(_picture(path, place, ending), force=True, public=True) as file:
                file.content.write(content)
    write_whole(path, outcome.to_json(), force=True, public=True)


def _picture(path: Path, place: int, ending: str) -> Path:
    return path.with_name(f"{path.name.removesuffix('.json')}{f'-{place + 1}' if place else ''}.{ending}")


def _show(experiment: Experiment, outcome: Outcome) -> None:
    say(f"\n{experiment.name}: {experiment.title}", style="bold")
    for table in outcome.tables:
        _show_table(table)
        for reason in table.reasons:
            lines = f" ({table.key} = {', '.join(reason.lines)})" if reason.lines else ""
            say(f"  {reason.column}{lines}: {reason.sentence}", style="yellow")
    for sentence in outcome.sentences:
        say(sentence)


def _show_table(table: Table) -> None:
    """Prints as many columns side by side as there is room for."""
    from sottovoce.cli.pictures import table as drawn

    out = console()
    across = max((out.width - LABEL_WIDTH) // COLUMN_WIDTH, 1)
    for first in range(0, len(table.columns), across):
        columns = table.columns[first : first + across]
        heads = [table.key, *(head for column in columns for head in _heads(column))]
        lines = [
            [line, *(cell for column in columns for cell in _cells(column, place))]
            for place, line in enumerate(table.lines)
        ]
        out.print(drawn(heads, lines))


def _heads(column: Column) -> list[str]:
    ours = "\n".join([*column.name.split(", "), "ours"])
    return [ours, *(["print", "ratio"] if column.published else []), *(["print above"] if column.falls_at else [])]


def _cells(column: Column, place: int) -> list[str]:
    from sottovoce.experiments.outcome import digits, percentile

    cells = [digits(column.ours[place])]
    if column.published:
        ratio = column.ratios()[place]
        cells += [digits(column.published[place]), "" if ratio is None else f"{ratio:.3g}"]
    return [*cells, percentile(column.falls_at[place])] if column.falls_at else cells


def _finish(out: Path, size: str, failed: dict[str, SottovoceError]) -> None:
    """Writes the report of everything that is in the folder, and says where it is."""
    from sottovoce.cli.files import write_whole
    from sottovoce.experiments.registry import EXPERIMENTS
    from sottovoce.experiments.report import counted, report

    found = ((experiment.name, stored(out, experiment.name, size)) for experiment in EXPERIMENTS)
    outcomes = {name: outcome for name, outcome in found if outcome is not None}
    drawn = {name: _inline(out, outcome) for name, outcome in outcomes.items()}
    missing = {name: str(error) for name, error in failed.items() if name not in outcomes}
    write_whole(out / REPORT, report(outcomes, drawn, missing), force=True, public=True)
    say(f"\n{counted(list(outcomes.values()))}")
    say(f"{out / REPORT}: the report of all {len(outcomes)} that are done; open it in a browser", whole=True)
    for name in missing:
        say(f"{name} is not among them: {missing[name]}", style="yellow")


def _inline(out: Path, outcome: Outcome) -> list[str]:
    """Returns the figures for the report; one whose file is gone is drawn again."""
    from sottovoce.experiments.pictures import draw, inline
    from sottovoce.experiments.report import anchor

    path = _path(out, outcome.experiment, outcome.size)
    found = []
    for place, figure in enumerate(outcome.figures):
        file = _picture(path, place, "svg")
        svg = file.read_bytes() if file.is_file() else draw(figure)[1]
        found.append(inline(svg, figure.title, f"{anchor(outcome.experiment)}-{place}"))
    return found
