# SPDX-License-Identifier: Apache-2.0
"""How the command line speaks: what is said and written where, and how an error ends.

Answers go to standard output and everything meant for a person to standard error, so that a release
can be piped. A refusal is three sentences in red and exit code 2; Ctrl-C is one sentence and 130;
anything unexpected is one sentence and 1, never a traceback, because a traceback would quote data.
Progress tells the number of rows, which is public, once the work has taken two seconds. Tables and
bars of plans and answers are public too.

Files are whole or not there: a name is only ever given to finished content. A file that exists is
refused before anything is read or charged, unless --force replaces it. If one appears under that
name while the answer is made, the answer goes beside it, under a name with a number. What is not
said to be public is for its owner alone from its first byte on (sottovoce.private_files).
"""

from __future__ import annotations

import inspect
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sottovoce import __version__, private_files
from sottovoce.cli.start import INTERRUPTED_EXIT, INTERRUPTED_SENTENCE, UNEXPECTED, Interrupts
from sottovoce.errors import InvalidParameter

if TYPE_CHECKING:
    from sottovoce.data.source import DataSource
    from sottovoce.errors import SottovoceError
    from sottovoce.plan import Plan
    from sottovoce.release import Release

REFUSED_EXIT = 2
#: Columns of a table that goes to a file or a pipe, which have no width of their own.
FILE_WIDTH = 120


#: The format that a file's ending says, where none is named.
FORMATS_BY_ENDING = {".csv": "csv", ".md": "md", ".html": "html", ".htm": "html"}


@dataclass(frozen=True)
class AnswerOptions:
    """What a command is told besides its table: under which key, and where the answer goes."""

    key: str | None = None
    out: Path | None = None
    force: bool = False  # whether a file that is there already may be replaced
    inputs: tuple[str | Path, ...] = ()  # the files that are read: none is written over
    kind: str | None = None  # the format; None: what the ending of the file says, else JSON

    @property
    def format(self) -> str:
        """The format in which the answer is written."""
        if self.kind is not None:
            return self.kind
        if self.out is None:
            return "json"
        return FORMATS_BY_ENDING.get(self.out.suffix.lower(), "json")

    @property
    def beside(self) -> Path | None:
        """Where the release itself goes if the answer is written in another format to a file."""
        if self.out is None or self.format == "json":
            return None
        return self.out.with_suffix(".json")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sottovoce {__version__}")
        raise typer.Exit()


def begin(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and leave."
        ),
    ] = False,
) -> None:
    """Personalised differential privacy: everybody sets their own ε, and every one of those
    promises is kept.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal without ε shows a question mark, not an error


def get_console(*, stderr: bool = False) -> Console:
    """Returns the terminal as it is now; numbers and brackets in a text are left as they are."""
    from rich.console import Console

    out = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not out.is_terminal:
        out.width = FILE_WIDTH
    return out


def echo(text: str, *, stderr: bool = False, style: str | None = None, whole: bool = False) -> None:
    """Prints a text for people, wrapped between words at a terminal; lines to be copied stay
    ``whole``.
    """
    out = get_console(stderr=stderr)
    out.print(strip_control_characters(text), style=style, soft_wrap=whole or not out.is_terminal)


def write_stdout(text: str) -> None:
    """Writes a file's content to standard output, as the very bytes that the file would have."""
    typer.echo(text.encode(), nl=False)


def strip_control_characters(text: str) -> str:
    """Returns the text without control characters, which could steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def exit_on_error() -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Ends a command, whatever happens in it, with a sentence and its exit code."""

    def around(command: Callable[..., None]) -> Callable[..., None]:
        defaults = {
            name: option.default for name, option in inspect.signature(command).parameters.items()
        }

        @wraps(command)
        def told(*words: Any, **options: Any) -> None:
            try:
                return command(*words, **options)
            except (typer.Exit, BrokenPipeError):
                raise
            except KeyboardInterrupt:
                code = _report_interruption()
            except Exception as error:
                # A library may have made another error of the interrupt.
                if Interrupts.came:
                    code = _report_interruption()
                else:
                    found = _find_options(error, options, defaults)
                    code = _report_error(error, found, charges={"epsilon", "key"} <= set(options))
            raise typer.Exit(code)  # here, where no other error hangs on it that could quote data

        told.__doc__ = _join_lines(command.__doc__)
        return told

    return around


def _join_lines(doc: str | None) -> str | None:
    """Returns the paragraphs of a docstring as one line each: help wraps them by itself."""
    if doc is None:
        return None
    paragraphs = inspect.cleandoc(doc).split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in paragraphs)


def _report_interruption() -> int:
    echo(INTERRUPTED_SENTENCE, stderr=True, style="red")
    Interrupts.told = True
    return INTERRUPTED_EXIT


#: What an error says that comes after the release, when its file cannot be written.
RELEASE_IS_MADE = "The release was made, and is on standard output."


def _report_error(error: Exception, options: Sequence[str], *, charges: bool = False) -> int:
    from sottovoce.errors import InvalidInput, SottovoceError

    if isinstance(error, SottovoceError):
        told = _format_error(error, options)
        # Input is refused before anybody is charged; other errors say themselves what was.
        if charges and isinstance(error, InvalidInput) and error.required != RELEASE_IS_MADE:
            told = f"{told.rstrip()}\nNobody was charged."
        echo(told, stderr=True, style="red")
        return REFUSED_EXIT
    # Not even the kind of error is named: after rows have been read it may depend on them.
    echo(
        "Something went wrong that sottovoce did not foresee. No file was left unfinished. "
        "Please report the command that you gave, without the data.",
        stderr=True,
        style="red",
    )
    return UNEXPECTED


def _format_error(error: SottovoceError, options: Sequence[str]) -> str:
    remedy = error.remedy
    if options:
        # After lines to copy, the advice begins a line of its own.
        gap = "\n" if remedy.endswith("\n") else " "
        remedy = f"{remedy.rstrip()}{gap}See {', '.join(options)}.".lstrip()
    beats = (f"{type(error).__name__}: {error.found}", error.required, remedy)
    return "\n".join(beat for beat in beats if beat)


#: The options that set a parameter of the library, where they are called otherwise. Any other
#: parameter is the option of its own name, if the command has one.
OPTIONS_OF_PARAMETERS = {
    "X": ("table",),
    "amount": ("budget_column",),
    "amounts": ("budget_column",),
    "bounds": ("bounds", "schema"),
    "budget": ("budget", "budget_column"),
    "budgets": ("budgets", "budget_column"),
    "caps": ("cap_column",),
    "column": ("column", "schema"),
    "cost_range": ("prior",),
    "costs": ("cost_column",),
    "deviation": ("prior",),
    "epsilon": ("budget_column", "budgets", "epsilon"),
    "groups": ("person_column",),
    "ledger": ("ledger", "place"),
    "mean": ("prior",),
    "median": ("prior",),
    "one": ("compare",),
    "people": ("person_column",),
    "person": ("person", "person_column"),
    "release": ("release", "model", "mine"),
    "scale": ("prior",),
    "seller": ("seller_column",),
    "statement": ("statement", "statement_file"),
    "text": ("decimal", "encoding"),
    "two": ("compare",),
    "y": ("table",),
}
#: What stands in a command line without an option before it, as its help calls it.
ARGUMENTS = {
    "address": "ADDRESS",
    "grants": "GRANTS",
    "model": "MODEL",
    "names": "NAME",
    "place": "LEDGER",
    "questions": "QUESTIONS",
    "release": "RELEASE",
    "releases": "RELEASE",
    "sellers": "SELLERS",
    "statement": "STATEMENT",
    "statement_file": "STATEMENT",
    "table": "TABLE",
}


def _find_options(
    error: Exception, options: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[str]:
    """Returns the option that set the parameter of an error; where none did, all that could."""
    parameter = getattr(error, "parameter", None) or ""
    whole = parameter.partition(".")[0]  # an entry of the schema is in the file of the schema
    names = [name for name in OPTIONS_OF_PARAMETERS.get(whole, (whole,)) if name in options]
    given = [name for name in names if options[name] != defaults.get(name)]
    return [_spell_option(name) for name in given[:1] or names]


def _spell_option(name: str) -> str:
    return ARGUMENTS.get(name, f"--{name.replace('_', '-')}")


#: Seconds during which nothing is shown: a bar that flashes by only unsettles.
PROGRESS_DELAY = 2.0
#: A plan reads the table once (twice, if people differ), a release goes on from there; a
#: regression, many times.
PASS_NAMES = ("Counting who takes part", "Checking the column", "Answering")


class RowProgress:
    """Watches an engine: called with the rows done in this pass, it keeps a bar up to date."""

    def __init__(self, console: Console, passes: tuple[str, ...] = PASS_NAMES) -> None:
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
        self._pass = 0
        self._done = 0
        self._shown = False
        self._total: int | None = None
        self._began = time.monotonic()

    def __enter__(self) -> RowProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            self._bar.stop()

    def __call__(self, done: int) -> None:
        """Takes note of the rows done; fewer than before means that another pass has begun."""
        if done <= self._done:
            self._next_pass()
        self._done = done
        self._bar.update(self._task, completed=done)
        if (
            not self._shown
            and self._bar.console.is_interactive
            and time.monotonic() - self._began > PROGRESS_DELAY
        ):
            self._bar.start()
            self._shown = True

    def _next_pass(self) -> None:
        # The first pass ends at the last row, so from now on the end is known.
        if self._total is None:
            self._total = self._done
        else:
            self._total = self._total
        self._pass = min(self._pass + 1, len(self._passes) - 1)
        self._bar.reset(self._task, total=self._total, description=self._passes[self._pass])


class _RowsColumn(ProgressColumn):
    """How many rows are done, and of how many where that is known."""

    def render(self, task: Task) -> Text:
        """Returns the text of the column."""
        if task.total is None:
            whole = ""
        else:
            whole = f" of {int(task.total):,}"
        return Text(f"{int(task.completed):,}{whole} rows")


PLAN_FORMAT = "sottovoce.plan/1"
#: Leaves room for a name and a number on a terminal of 80 columns.
BAR_WIDTH = 32
#: Beside the numbers of a table bars are shorter, and so many lines are shown.
TABLE_BAR = 16
MOST_LINES_SHOWN = 60


def show_plan(plan: Plan) -> None:
    """Prints who pays what, the promise, and the error to expect."""
    from sottovoce.report.plan import (
        describe_classifier,
        describe_promise,
        describe_size,
        describe_unread,
        is_compared,
        tabulate_payers,
    )

    echo(describe_size(plan), style="bold")
    get_console().print(make_table(*tabulate_payers(plan)))
    echo("\n".join(describe_promise(plan)))
    if is_compared(plan):
        show_outlook(plan)
    if "classes" in plan.parameters:
        echo("\n".join(describe_classifier(plan)))
    echo(describe_unread(plan))


def show_outlook(plan: Plan) -> None:
    """Prints what a regression will do, and what to expect of it beside a private mean and
    nothing.
    """
    from sottovoce.plan import format_error
    from sottovoce.report.plan import (
        STAGE_HEADS,
        choose_typical_outlook,
        list_expected_errors,
        make_verdict,
        tabulate_stages,
    )
    from sottovoce.wording import describe_unit

    if "stages" in plan.parameters:
        echo(
            "\nWhat will be done, by the spread of the labels (which the first stage finds out, "
            "unless it is given):"
        )
        get_console().print(make_table(STAGE_HEADS, tabulate_stages(plan), words=3))
        echo(plan.parameters["advice"])
    chosen = choose_typical_outlook(plan)
    echo(
        "\nHow far predictions are expected to be from those of least squares, if the labels' "
        "spread is "
        f"{format_error(chosen.spread)}\n"
        f"(in {describe_unit(plan)}; planning numbers from public facts, right within a factor "
        "of about three):"
    )
    echo(format_bars(list_expected_errors(plan, chosen)))
    echo(make_verdict(plan, chosen), style="bold" if chosen.worth_it else "bold yellow")


def make_plan_json(plan: Plan) -> str:
    """Returns the plan as JSON text, in the words of a release."""
    from sottovoce.report.plan import compute_outlooks, is_compared, list_payers, make_verdict
    from sottovoce.wording import describe_error_unit

    content: dict[str, Any] = {
        "format": PLAN_FORMAT,
        "question": plan.question,
        "column": plan.subject.column,
        "table": plan.subject.table,
        "parameters": plan.parameters,
        "who_pays": list_payers(plan),
        "expected_error": plan.expected_error,
        "error_is": plan.error_is,
        "error_unit": describe_error_unit(plan),
        "error_parts": plan.error_parts,
        "guarantee": plan.promise,
        "noise": plan.noise,
        "grid": plan.grid.to_dict(),
        "theorem": plan.theorem.statement,
        "plan_digest": plan.digest,
    }
    if is_compared(plan):
        content |= {
            "outlook": [outlook.to_dict() for outlook in compute_outlooks(plan)],
            "verdict": make_verdict(plan),
        }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def show_tables(release: Release) -> None:
    """Prints the answers of a question by groups, or of each question of a report, as a table with
    bars, to standard error; nothing for other questions.
    """
    for name, part in release.parts.items():
        echo(f"\n{name}", stderr=True, style="bold")
        _show_table(part, always=True)
    if not release.parts:
        _show_table(release)


def _show_table(release: Release, *, always: bool = False) -> None:
    from sottovoce.wording import is_table

    if not always and not is_table(release):
        return
    from sottovoce.report.answers import list_answers, list_relative_lengths, tabulate_answers

    answers = list_answers(release)
    if not always and not any(answer.cell for answer in answers):
        return
    lengths = list_relative_lengths(answers)
    notable = [place for place, answer in enumerate(answers) if answer.is_notable]
    shown = notable
    if len(notable) > MOST_LINES_SHOWN:
        largest = sorted(notable, key=lambda place: -abs(answers[place].value or 0.0))
        shown = sorted(largest[:MOST_LINES_SHOWN])
    heads, lines = tabulate_answers([answers[place] for place in shown])
    bars = [
        _format_bar(lengths[place] * TABLE_BAR / BAR_WIDTH) if lengths[place] else ""
        for place in shown
    ]
    words = len(heads) - 2 - (heads[-1] == "share")
    drawn = make_table(
        [*heads, ""], [[*line, bar] for line, bar in zip(lines, bars, strict=True)], words=words
    )
    drawn.columns[-1].justify = "left"
    get_console(stderr=True).print(drawn)
    if len(notable) > len(shown):
        more = len(notable) - len(shown)
        echo(f"These are the largest; {more:,} more lines are in the file.", stderr=True)
    if len(answers) > len(notable):
        echo(
            "Cells of unknown, missing or filtered values that are not clearly above zero are not "
            f"shown: {len(answers) - len(notable):,}.",
            stderr=True,
        )


def make_table(heads: Sequence[str], lines: Sequence[Sequence[str]], *, words: int = 0) -> Table:
    """Returns a table with a head; the first ``words`` columns are text, the others numbers."""
    drawn = Table(box=None, padding=(0, 2, 0, 1), pad_edge=False)
    for place, head in enumerate(heads):
        drawn.add_column(head, justify="left" if place < words else "right")
    for line in lines:
        drawn.add_row(*(Text(cell) for cell in line))
    return drawn


def format_bars(lengths: Mapping[str, float]) -> str:
    """Returns one bar a line, the longest of full width, each with its name and length."""
    from sottovoce.plan import format_error

    longest = max(lengths.values())
    widest = max(map(len, lengths))
    return "\n".join(
        f"{name:<{widest}}  {_format_bar(length / longest)} {format_error(length)}"
        for name, length in lengths.items()
    )


def _format_bar(share: float) -> str:
    eighths = max(round(share * BAR_WIDTH * 8), 1)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[rest].strip()


def list_inputs(said: DataSource, *public: str | None) -> tuple[str | Path, ...]:
    """Returns the files that are read, so that none is written over."""
    read = (said.table, said.schema, *public, said.budgets)
    return tuple(path for path in read if isinstance(path, str | Path))


def refuse_unwritable(
    path: Path | None,
    *inputs: str | Path,
    force: bool = False,
    public: bool = False,
    option: str = "--out",
) -> None:
    """Refuses a place where nothing may be written, before a table is read and anybody is charged.

    Unless it is ``public``, what is to be written is for its owner alone, and the folder must be
    one that keeps it so. ``option`` is the one that names the place.
    """
    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidParameter(
            f"The answer cannot be written to {option}.",
            "It must be a file in a folder that exists and can be written to.",
            "Make the folder first, or name another file.",
        )
    for read in inputs:
        if path.exists() and Path(read).exists() and path.samefile(read):
            raise InvalidParameter(
                f"{option} is a file that is to be read.", "", "Name another file."
            )
    if not force and os.path.lexists(path):
        raise InvalidParameter(
            f"The file of {option} exists already.",
            "What stands in it would be lost.",
            "Name another file, or add --force to replace it.",
        )
    if not public:
        private_files.refuse_unsafe(path.parent)


def write_file(path: Path, text: str, *, force: bool = False, public: bool = False) -> Path:
    """Writes a file so that whoever looks sees all of it or nothing; returns where it is."""
    with open_unfinished(path, force=force, public=public) as file:
        file.content.write(text.encode())
    return file.path


@dataclass
class UnfinishedFile:
    """A file that is being written, and where it will be."""

    content: BinaryIO
    path: Path


@contextmanager
def open_unfinished(
    path: Path, *, force: bool = False, public: bool = False
) -> Iterator[UnfinishedFile]:
    """Opens a file that gets its name once all has been written, and never before.

    With ``force`` a file of that name is replaced. Without, one that has appeared meanwhile is left
    as it is, and ``path`` is changed to the first name beside it that is free. Unless it is
    ``public``, nobody but its owner can read it at any time.
    """
    reason = ""
    try:
        with private_files.open_unfinished_file(path, public=public) as unfinished:
            file = UnfinishedFile(unfinished.content, path)
            yield file
            unfinished.finish()
            if force:
                unfinished.path.replace(path)
            else:
                file.path = _name_file(unfinished.path, path)
        with suppress(OSError):  # it is there and whole; only a power cut could still take its name
            private_files.keep_names(path.parent)
        return
    except OSError as error:
        reason = error.strerror or "it failed"
    raise InvalidParameter(f"A file cannot be written: {reason}.", "", "Name another file.")


def _name_file(unfinished: Path, path: Path) -> Path:
    """Gives a finished file this name, or the first free one with a number; returns it."""
    for place in count(1):
        if place == 1:
            name = path
        else:
            name = path.with_stem(f"{path.stem}-{place}")
        try:
            private_files.claim(unfinished, name)
        except FileExistsError:
            continue
        return name
    raise AssertionError("unreachable: some number is free")


def make_folder(path: Path) -> None:
    """Makes a folder, and those above it, unless they are there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        return
    except OSError as error:
        reason = error.strerror or "it failed"
    raise InvalidParameter(f"The folder cannot be made: {reason}.", "", "Name another folder.")


def load_release(path: Path) -> Release:
    """Reads a release; says so where there is none."""
    from sottovoce.errors import InvalidRelease
    from sottovoce.release import Release

    if not path.is_file():
        raise InvalidRelease(
            "There is no release at this path.",
            "A JSON file is needed.",
            "Check the path.",
            parameter="release",
        )
    return Release.load(path)
