# SPDX-License-Identifier: Apache-2.0
"""Plans and comparisons as tables, bars and JSON. Everything shown here is public."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from sottovoce.cli.voice import console, say
from sottovoce.pages.outlook import outlooks, typical, verdict
from sottovoce.pages.plan_page import COURSES, classified, courses, expected, size, told, unread, who_pays
from sottovoce.plan import Plan, error_text
from sottovoce.wording import error_unit, unit_in_words

PLAN_FORMAT = "sottovoce.plan/1"
#: Leaves room for a name and a number on a terminal of 80 columns.
BAR_WIDTH = 32


def show_plan(plan: Plan) -> None:
    """Prints who pays what, the promise, and the error to expect."""
    say(size(plan), style="bold")
    console().print(table(*who_pays(plan)))
    say("\n".join(told(plan)))
    if plan.question == "ridge":
        show_outlook(plan)
    if "classes" in plan.parameters:
        say("\n".join(classified(plan)))
    say(unread(plan))


def show_outlook(plan: Plan) -> None:
    """Prints what a regression will do, and what to expect of it beside a private mean and nothing."""
    if "stages" in plan.parameters:
        say("\nWhat will be done, by the spread of the labels (which the first stage finds out, unless it is given):")
        console().print(table(COURSES, courses(plan), words=3))
        say(plan.parameters["advice"])
    chosen = typical(plan)
    say(
        f"\nHow far predictions are expected to be from those of least squares, if the labels' spread is "
        f"{error_text(chosen.spread)}\n"
        f"(in {unit_in_words(plan)}; planning numbers from public facts, right within a factor of about three):"
    )
    say(bars(expected(plan)))
    say(verdict(plan), style="bold" if chosen.worth_it else "bold yellow")


def plan_json(plan: Plan) -> str:
    """Returns the plan as JSON text, in the words of a release."""
    content: dict[str, Any] = {
        "format": PLAN_FORMAT,
        "question": plan.question,
        "column": plan.subject.column,
        "table": plan.subject.table,
        "parameters": plan.parameters,
        "who_pays": plan.who_pays(),
        "expected_error": plan.expected_error,
        "error_is": plan.error_is,
        "error_unit": error_unit(plan),
        "error_parts": plan.error_parts,
        "guarantee": plan.promise,
        "noise": plan.noise,
        "grid": plan.grid.to_dict(),
        "theorem": plan.theorem.statement,
        "plan_digest": plan.digest,
    }
    if plan.question == "ridge":
        content |= {"outlook": [outlook.to_dict() for outlook in outlooks(plan)], "verdict": verdict(plan)}
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def table(heads: Sequence[str], lines: Sequence[Sequence[str]], *, words: int = 0) -> Table:
    """Returns a table with a head; the first ``words`` columns are text, the others numbers."""
    drawn = Table(box=None, padding=(0, 2, 0, 1), pad_edge=False)
    for place, head in enumerate(heads):
        drawn.add_column(head, justify="left" if place < words else "right")
    for line in lines:
        drawn.add_row(*(Text(cell) for cell in line))
    return drawn


def bars(lengths: Mapping[str, float]) -> str:
    """Returns one bar a line, the longest of full width, each with its name and length."""
    longest, widest = max(lengths.values()), max(map(len, lengths))
    return "\n".join(
        f"{name:<{widest}}  {_bar(length / longest)} {error_text(length)}" for name, length in lengths.items()
    )


def _bar(share: float) -> str:
    eighths = max(round(share * BAR_WIDTH * 8), 1)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[rest].strip()
