# SPDX-License-Identifier: Apache-2.0
"""Plans and comparisons as tables, bars and JSON. Everything shown here is public."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from sottovoce.cli.voice import console, say
from sottovoce.plan import Plan, error_text

PLAN_FORMAT = "sottovoce.plan/1"
#: Leaves room for a name and a number on a terminal of 80 columns.
BAR_WIDTH = 32


def show_plan(plan: Plan) -> None:
    """Prints who pays what, the promise, and the error to expect."""
    people = f"{plan.budgets.n_people:,} people, " if plan.guarantee.unit == "person" else ""
    say(f"Plan for a {plan.question}: {people}{plan.budgets.n_rows:,} rows", style="bold")
    console().print(_who_pays(plan))
    say("\n".join([*told(plan), "The column was not read, and nobody has been charged."]))


def told(plan: Plan) -> list[str]:
    """Returns the promise and the error to expect as sentences."""
    promise = plan.guarantee
    q = plan.parameters.get("q")
    which = "" if q is None else " for the quantiles " + ", ".join(f"{share:g}" for share in q)
    return [
        f"Promise: pure ε for each {promise.unit}, neighbours by {promise.neighbours}, "
        f"{promise.arithmetic} arithmetic. Nobody spends more than they granted.",
        f"Expected error{which}: {error_text(plan.expected_error)} ({plan.error_is}).",
    ]


def plan_json(plan: Plan) -> str:
    """Returns the plan as JSON text, in the words of a release."""
    content: dict[str, Any] = {
        "format": PLAN_FORMAT,
        "question": plan.question,
        "parameters": plan.parameters,
        "who_pays": plan.who_pays(),
        "expected_error": plan.expected_error,
        "error_is": plan.error_is,
        "guarantee": plan.promise,
        "noise": plan.noise,
        "grid": plan.grid.to_dict(),
        "theorem": plan.theorem.statement,
        "plan_digest": plan.digest,
    }
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
    return "\n".join(f"{name:<{widest}}  {_bar(length / longest)} {length:.2f}" for name, length in lengths.items())


def _bar(share: float) -> str:
    eighths = max(round(share * BAR_WIDTH * 8), 1)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[rest].strip()


def _who_pays(plan: Plan) -> Table:
    people = plan.guarantee.unit == "person"
    heads = ["granted ε", "spent ε", *(["people"] if people else []), "rows", "voice"]
    lines = [
        [
            f"{line['granted']:.6g}",
            f"{line['spent']:.6g}",
            *([f"{line['people']:,}"] if people else []),
            f"{line['rows']:,}",
            f"{line['voice']:.1%}",
        ]
        for line in plan.who_pays()
    ]
    return table(heads, lines)
