# SPDX-License-Identifier: Apache-2.0
"""`sottovoce reproduce`: tables and figures of the papers, computed anew and shown beside what was
published.

Each finished experiment is kept as a file, so that an interrupted run goes on where it stopped. One
that cannot be computed, because its data are missing, says so and the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.console import echo, exit_on_error, get_console

if TYPE_CHECKING:
    from sottovoce.errors import SottovoceError
    from sottovoce.papers.plots import Outcome, ResultColumn, ResultTable
    from sottovoce.papers.report import Experiment, Task

REPORT = "report.html"
#: Characters that one compared column takes at a terminal, and the labels of lines beside it.
COLUMN_WIDTH = 50
LABEL_WIDTH = 12


@exit_on_error()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME…", help="Such as ridge/table-1, ridge/all or all."),
    ] = None,
    show_names: Annotated[
        bool, typer.Option("--list", help="Show every name, and compute nothing.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="The folder with data that are not in this package.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="The folder to write to; made if need be. Results of an earlier run are kept or "
            "replaced."
        ),
    ] = Path("reproduction"),
    small: Annotated[
        bool, typer.Option("--small", help="Few draws and runs: quick and rough.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Compute again what an earlier run has finished.")
    ] = False,
) -> None:
    """Compute the papers' tables and figures and show them beside what was published."""
    from sottovoce.cli.console import make_folder
    from sottovoce.papers.plots import require_matplotlib
    from sottovoce.papers.report import Task, choose_experiments

    if show_names:
        _show_names()
        return
    asked = choose_experiments(_check_names(names, data))
    require_matplotlib()
    make_folder(out)
    failed: dict[str, SottovoceError] = {}
    for experiment in asked:
        task = Task(experiment.name, "small" if small else "full", data)
        outcome = _load_or_compute(experiment, task, out, fresh, failed)
        if outcome is not None:
            _show_outcome(experiment, outcome)
    if len(failed) == len(asked):
        raise next(iter(failed.values()))
    _write_report(out, "small" if small else "full", failed)


def _check_names(names: Sequence[str] | None, data: Path | None) -> Sequence[str]:
    from sottovoce.errors import InvalidParameter

    if data is not None and not data.is_dir():
        raise InvalidParameter(
            "--data is not a folder.", "It must hold the data files.", "Check the path."
        )
    if not names:
        raise InvalidParameter(
            "No experiment was named.",
            "",
            "Name one, or all; --list shows every name, and --small is quick.",
        )
    return names


def _show_names() -> None:
    from sottovoce.cli.console import make_table
    from sottovoce.papers.report import EXPERIMENTS, PAPERS

    for paper in PAPERS.values():
        echo(paper.title, style="bold")
        lines = [[e.name, e.title] for e in EXPERIMENTS if e.paper is paper]
        get_console().print(make_table(["name", "what it shows"], lines, words=2))


def _load_or_compute(
    experiment: Experiment, task: Task, out: Path, fresh: bool, failed: dict[str, SottovoceError]
) -> Outcome | None:
    """Returns the outcome, from an earlier run if there is one; notes why where there is none."""
    from sottovoce.errors import SottovoceError

    if fresh:
        kept = None
    else:
        kept = load_outcome(out, experiment.name, task.size)
    if kept is not None:
        return kept
    try:
        outcome = _compute_outcome(experiment, task)
    except SottovoceError as error:
        failed[experiment.name] = error
        echo(f"{experiment.name} was not computed. {error}", stderr=True, style="red")
        return None
    _save_outcome(out, outcome)
    return outcome


def _compute_outcome(experiment: Experiment, task: Task) -> Outcome:
    from dataclasses import replace

    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=get_console(stderr=True), transient=True) as bar:
        shown = bar.add_task(experiment.name, total=1.0)
        return experiment.run(
            replace(task, progress=lambda share: bar.update(shown, completed=share))
        )


def load_outcome(out: Path, name: str, size: str) -> Outcome | None:
    """Returns what an earlier run of this version has kept; None if it must be computed."""
    from sottovoce import __version__
    from sottovoce.papers.plots import Outcome

    path = _find_path(out, name, size)
    if path.is_file():
        kept = Outcome.from_json(path.read_text(encoding="utf-8", errors="replace"))
    else:
        kept = None
    fits = kept is not None and (kept.experiment, kept.size, kept.made_by) == (
        name,
        size,
        __version__,
    )
    if fits:
        return kept
    return None


def _find_path(out: Path, name: str, size: str) -> Path:
    return out / f"{name}{'' if size == 'full' else '.small'}.json"


def _save_outcome(out: Path, outcome: Outcome) -> None:
    """Draws the figures, then writes the outcome: a file of numbers means that all is there."""
    from sottovoce.cli.console import make_folder, open_unfinished, write_file
    from sottovoce.papers.plots import draw_figure

    path = _find_path(out, outcome.experiment, outcome.size)
    make_folder(path.parent)
    for place, figure in enumerate(outcome.figures):
        for ending, content in zip(("png", "svg"), draw_figure(figure), strict=True):
            with open_unfinished(
                _find_picture_path(path, place, ending), force=True, public=True
            ) as file:
                file.content.write(content)
    write_file(path, outcome.to_json(), force=True, public=True)


def _find_picture_path(path: Path, place: int, ending: str) -> Path:
    return path.with_name(
        f"{path.name.removesuffix('.json')}{f'-{place + 1}' if place else ''}.{ending}"
    )


def _show_outcome(experiment: Experiment, outcome: Outcome) -> None:
    from sottovoce.papers.report import describe_print

    echo(f"\n{experiment.name}: {experiment.title}", style="bold")
    for table in outcome.tables:
        echo(f"\n{table.title}", style="italic")
        _show_table(table)
        for reason in table.reasons:
            if reason.lines:
                lines = f" ({table.key} = {', '.join(reason.lines)})"
            else:
                lines = ""
            echo(f"  {reason.column}{lines}: {reason.sentence}", style="yellow")
    for sentence in (*describe_print(outcome), *outcome.sentences):
        echo(sentence)


def _show_table(table: ResultTable) -> None:
    """Prints as many columns side by side as there is room for."""
    from sottovoce.cli.console import make_table as drawn

    out = get_console()
    across = max((out.width - LABEL_WIDTH) // COLUMN_WIDTH, 1)
    for first in range(0, len(table.columns), across):
        columns = table.columns[first : first + across]
        heads = [table.key, *(head for column in columns for head in _make_heads(column))]
        lines = [
            [line, *(cell for column in columns for cell in _make_cells(column, place))]
            for place, line in enumerate(table.lines)
        ]
        out.print(drawn(heads, lines))


def _make_heads(column: ResultColumn) -> list[str]:
    ours = "\n".join([*column.name.split(", "), "ours"])
    return [
        ours,
        *(["print", "ratio"] if column.published else []),
        *(["print above"] if column.falls_at else []),
    ]


def _make_cells(column: ResultColumn, place: int) -> list[str]:
    from sottovoce.papers.plots import format_number, format_percentile

    cells = [format_number(column.ours[place])]
    if column.published:
        ratio = column.ratios()[place]
        cells += [format_number(column.published[place]), "" if ratio is None else f"{ratio:.3g}"]
    if column.falls_at:
        return [*cells, format_percentile(column.falls_at[place])]
    return cells


def _write_report(out: Path, size: str, failed: dict[str, SottovoceError]) -> None:
    """Writes the report of everything that is in the folder, and says where it is."""
    from sottovoce.cli.console import write_file
    from sottovoce.papers.items import RunSummary, count_statuses, judge_items
    from sottovoce.papers.report import EXPERIMENTS, count_close_cells, make_report

    found = (
        (experiment.name, load_outcome(out, experiment.name, size)) for experiment in EXPERIMENTS
    )
    outcomes = {name: outcome for name, outcome in found if outcome is not None}
    drawn = {name: _inline_figures(out, outcome) for name, outcome in outcomes.items()}
    missing = {name: str(error) for name, error in failed.items() if name not in outcomes}
    runs = {name: RunSummary.of(outcome) for name, outcome in outcomes.items()}
    runs |= {name: RunSummary(missing=why) for name, why in missing.items()}
    judged = judge_items(runs)
    write_file(out / REPORT, make_report(outcomes, drawn, missing, judged), force=True, public=True)
    echo(f"\n{count_close_cells(list(outcomes.values()))}")
    echo(count_statuses(judged))
    echo(
        f"{out / REPORT}: the report of all {len(outcomes)} that are done; open it in a browser",
        whole=True,
    )
    for name in missing:
        echo(f"{name} is not among them: {missing[name]}", style="yellow")


def _inline_figures(out: Path, outcome: Outcome) -> list[str]:
    """Returns the figures for the report; one whose file is gone is drawn again."""
    from sottovoce.papers.plots import draw_figure, inline_svg
    from sottovoce.papers.report import make_anchor

    path = _find_path(out, outcome.experiment, outcome.size)
    found = []
    for place, figure in enumerate(outcome.figures):
        file = _find_picture_path(path, place, "svg")
        if file.is_file():
            svg = file.read_bytes()
        else:
            svg = draw_figure(figure)[1]
        found.append(inline_svg(svg, figure.title, f"{make_anchor(outcome.experiment)}-{place}"))
    return found
