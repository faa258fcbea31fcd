# SPDX-License-Identifier: Apache-2.0
"""The answers of a release as lines, and these as CSV, Markdown, a page, or JSON as it was made.

Every kind of answer becomes lines of the same form: which question, which cell, which number, and
between which ends it lies. Everything here is a function of the released bytes alone.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sottovoce.arrays import guard_formula
from sottovoce.errors import InvalidParameter
from sottovoce.estimators import load
from sottovoce.release import Release
from sottovoce.units import format_number, format_percent, round_to_error
from sottovoce.wording import (
    COUNT,
    TOO_FEW,
    describe_question,
    get_shown_width,
    get_unit,
    is_table,
    list_intervals,
    list_matrix_answers,
)

#: How a release can be written.
FORMATS = ("json", "csv", "md", "html")


@dataclass(frozen=True)
class AnswerLine:
    """One number of a release; what is not known is None."""

    question: str  # its name in a report; else what the release asks
    cell: dict[str, str]  # the label of each column that rows are grouped by
    quantity: str  # mean, median, count, a coefficient
    value: float | None  # None where there are too few rows to say
    low: float | None = None
    high: float | None = None
    unit: str = ""
    error: float | None = None  # what it is rounded to where it has no interval
    is_declared: bool = True  # False for unknown, missing and filtered values
    is_outside: bool = False  # True for what a filter leaves out
    share: float | None = None  # of a count: its share of all rows

    @property
    def is_notable(self) -> bool:
        """Whether it is about declared values, or clearly not nothing."""
        return self.is_declared or (self.low is not None and self.low > 0)

    def describe_value(self) -> str:
        """The value, rounded to the width of its interval."""
        if self.value is None:
            return TOO_FEW
        if self.error is not None:
            told = round_to_error(self.value, self.error)
        elif self.low is None or self.high is None or self.high <= self.low:
            told = format_number(self.value)
        else:
            told = round_to_error(self.value, get_shown_width(self.quantity, self.low, self.high))
        return f"{told} {self.unit}".rstrip()

    def describe_interval(self) -> str:
        """The two ends, rounded to their distance; nothing where they are not known."""
        if self.value is None or self.low is None or self.high is None:
            return ""
        width = max(get_shown_width(self.quantity, self.low, self.high), 1e-300)
        return f"{round_to_error(self.low, width)} to {round_to_error(self.high, width)}"


def list_answers(release: Release, name: str | None = None) -> list[AnswerLine]:
    """Returns the numbers of a release, a line each; of a report, those of all its questions."""
    if release.parts:
        return [line for title, part in release.parts.items() for line in list_answers(part, title)]
    question = release.question if name is None else name
    table = getattr(load(release), "table_", None)
    if table is not None:
        return _list_cells(release, table, question)
    if is_table(release) and "columns" in release.parameters:
        return [
            AnswerLine(question, {}, one.name, one.value, one.low, one.high, one.unit, one.error)
            for one in list_matrix_answers(release)
        ]
    intervals = {one.name: one for one in list_intervals(release)}
    lines = []
    for quantity, value in _list_numbers(release):
        known = intervals.get(quantity)
        low = None if known is None else known.low
        high = None if known is None else known.high
        lines.append(AnswerLine(question, {}, quantity, value, low, high, get_unit(release)))
    return lines


def _list_cells(release: Release, table: Any, question: str) -> list[AnswerLine]:
    """Returns a line for each cell of a released table."""
    unit = get_unit(release)
    rows = None
    if table.name == COUNT:
        rows = float(release.noise["rows"])
    lines = []
    for place, row in enumerate(table.rows()):
        axes = table.columns or ["where"]
        lines.append(
            AnswerLine(
                question,
                {name: str(row[name]) for name in axes},
                table.name,
                row[table.name],
                row["low"],
                row["high"],
                unit,
                is_declared=table.cells.is_declared(place),
                is_outside=place == table.cells.outside_cell,
                share=None if rows is None else row[table.name] / rows,
            )
        )
    return lines


def _list_numbers(release: Release) -> list[tuple[str, float]]:
    """Returns the numbers of a question about a column, or of a model, by name."""
    if not isinstance(release.value, dict):
        names = [name for name, _ in release.numbers()]
        several = release.value if isinstance(release.value, list) else [release.value]
        return list(zip(names, map(float, several), strict=True))
    functions = release.value.get("models", {"": release.value})
    found = []
    for function, model in functions.items():
        prefix = f"{function}: " if function else ""
        found.append((f"{prefix}intercept", float(model["intercept"])))
        found += [
            (f"{prefix}{name}", float(number)) for name, number in model["coefficients"].items()
        ]
    return found


def tabulate_answers(lines: Sequence[AnswerLine]) -> tuple[list[str], list[list[str]]]:
    """Returns answers of one question as a table for people: heads, and lines of rounded
    numbers.
    """
    axes = list(dict.fromkeys(name for line in lines for name in line.cell))
    quantities = {line.quantity for line in lines}
    # What all lines have in common is said once, at the head.
    if axes and len(quantities) == 1:
        answer = list(quantities)
        common = True
    else:
        answer = ["answer", ""]
        common = False
    shares = common and all(line.share is not None for line in lines)
    heads = [*axes, *answer, "95 % interval", *(["share"] if shares else [])]
    told = []
    for line in lines:
        cell = [line.cell.get(axis, "") for axis in axes]
        quantity = [] if common else [line.quantity]
        answers = [line.describe_value(), line.describe_interval()]
        if shares:
            answers.append(format_percent(line.share or 0.0))
        told.append([*cell, *quantity, *answers])
    return heads, told


def write_csv(release: Release) -> str:
    """Returns all digits of the answers as CSV; text that a spreadsheet would take for a formula is
    guarded.
    """
    lines = list_answers(release)
    axes = list(dict.fromkeys(name for line in lines for name in line.cell))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = ["question", *axes, "answer", "value", "low", "high", "unit"]
    writer.writerow(map(guard_formula, heads))
    for line in lines:
        texts = [line.question, *(line.cell.get(axis, "") for axis in axes), line.quantity]
        numbers = ["" if x is None else repr(float(x)) for x in (line.value, line.low, line.high)]
        writer.writerow([*map(guard_formula, texts), *numbers, guard_formula(line.unit)])
    return out.getvalue()


def write_markdown(release: Release) -> str:
    """Returns the answers as a table of Markdown, of a report one for each question, and what is
    promised in words below.
    """
    if release.parts:
        sections = [
            f"## {_escape_text(name)}\n\n{_escape_text(describe_question(part))}\n\n"
            f"{_write_markdown_table(part)}"
            for name, part in release.parts.items()
        ]
        table = "\n\n".join([*sections, "## What is promised"])
    else:
        table = _write_markdown_table(release)
    promise = "\n".join(f"- {_escape_text(line.strip())}" for line in release.promise_in_words())
    return f"{table}\n\n{promise}\n"


def _write_markdown_table(release: Release) -> str:
    heads, lines = tabulate_answers(list_answers(release))
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join("| " + " | ".join(map(_escape_cell, row)) + " |" for row in rows)


def _escape_cell(text: str) -> str:
    return _escape_text(text).replace("|", "\\|")


def _escape_text(text: str) -> str:
    """Returns text that Markdown shows as it is."""
    flat = " ".join(text.split())
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>#" else sign for sign in flat)


def write_release(release: Release, kind: str) -> str:
    """Returns the release in one of the formats; "json" is the release itself."""
    from sottovoce.report.report_page import make_release_page

    writers: Mapping[str, Any] = {
        "json": Release.to_json,
        "csv": write_csv,
        "md": write_markdown,
        "html": make_release_page,
    }
    if kind not in writers:
        raise InvalidParameter(
            "There is no such format.",
            f"Formats: {', '.join(FORMATS)}.",
            "Choose one of them.",
            parameter="format",
        )
    text: str = writers[kind](release)
    return text


def list_relative_lengths(lines: Sequence[AnswerLine]) -> list[float]:
    """Returns the length of a bar for each line, 0 for none: the value of a cell over the largest
    one of its question that is shown; none for what a filter leaves out where that is longer.
    """
    largest: dict[str, float] = {}
    for line in lines:
        if line.is_notable and not line.is_outside:
            largest[line.question] = max(largest.get(line.question, 0.0), abs(line.value or 0.0))
    lengths = []
    for line in lines:
        size = largest.get(line.question, 0.0)
        length = 0.0
        if line.cell and line.value and abs(line.value) <= size:
            length = abs(line.value) / size
        lengths.append(length)
    return lengths
