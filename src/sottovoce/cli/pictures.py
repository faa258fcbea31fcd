# SPDX-License-Identifier: Apache-2.0
"""Plans and comparisons as tables, bars and JSON. Everything shown here is public."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.table import Table
from rich.text import Text

from sottovoce.cli.outlook import outlooks, typical, verdict
from sottovoce.cli.voice import console, say
from sottovoce.plan import Plan, currency_words, error_text

PLAN_FORMAT = "sottovoce.plan/1"
#: Leaves room for a name and a number on a terminal of 80 columns.
BAR_WIDTH = 32


def show_plan(plan: Plan) -> None:
    """Prints who pays what, the promise, and the error to expect."""
    people = f"{plan.budgets.n_people:,} people, " if plan.guarantee.unit == "person" else ""
    kind = "ridge regression" if plan.question == "ridge" else plan.question
    say(f"Plan for a {kind}: {people}{plan.budgets.n_rows:,} rows", style="bold")
    console().print(_who_pays(plan))
    say("\n".join(told(plan)))
    if plan.question == "ridge":
        show_outlook(plan)
    if "classes" in plan.parameters:
        say("\n".join(classified(plan)))
    unread = "No feature and no label was read" if "features" in plan.parameters else "The column was not read"
    say(f"{unread}, and nobody has been charged.")


def show_outlook(plan: Plan) -> None:
    """Prints what a regression will do, and what to expect of it beside a private mean and nothing."""
    if "stages" in plan.parameters:
        say("\nWhat will be done, by the spread of the labels (which the first stage finds out, unless it is given):")
        console().print(table(["if the spread is", "answer", "shares of everybody's ε"], _courses(plan), words=3))
        say(plan.parameters["advice"])
    chosen, (low, high) = typical(plan), plan.parameters["label"]
    say(
        f"\nHow far predictions are expected to be from the best linear function's, if the labels' spread is "
        f"{error_text(chosen.spread)}\n(planning numbers from public facts, right within a factor of about three):"
    )
    lines = {
        "this regression" + ("" if chosen.slopes else ", a constant"): chosen.regression,
        "a private mean": chosen.private_mean,
        f"nothing (the middle, {(low + high) / 2:,g})": chosen.nothing,
    }
    say(bars(lines))
    say(verdict(plan), style="bold" if chosen.worth_it else "bold yellow")


def told(plan: Plan) -> list[str]:
    """Returns the promise and the error to expect as sentences."""
    promise = plan.guarantee
    q = plan.parameters.get("q")
    which = "" if q is None else " for the quantiles " + ", ".join(f"{share:g}" for share in q)
    return [
        f"Promise: {currency_words(plan.promise)} for each {promise.unit}, neighbours by {promise.neighbours}, "
        f"{promise.arithmetic} arithmetic. Nobody spends more than they granted.",
        f"Expected error{which}: {error_text(plan.expected_error)} ({plan.error_is}).",
    ]


def classified(plan: Plan) -> list[str]:
    """Returns what a classifier will do as sentences."""
    given, classes = plan.parameters, plan.parameters["classes"]
    lines = [f"Classes: {', '.join(map(str, classes))}. λ = {given['alpha']:.3g}."]
    if given["problems"] > 1:
        lines.append(f"Each of the {len(classes)} classes is told from all others, and shares everybody's ε with them.")
    if given["neighbours"] == "labels":
        lines.append("Labels alone are protected: nothing is promised about features.")
    if given["public_rows"]:
        lines.append(
            f"Scaling and λ follow from {given['public_rows']:,} public rows, about which nothing is promised."
        )
    else:
        lines.append("For comparison: odds of 3 to 1 are log-odds of 1.1, odds of 10 to 1 are 2.3.")
    return lines


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


def _courses(plan: Plan) -> list[list[str]]:
    """One line for neighbouring spreads that lead to the same course."""
    told = [
        ("slopes" if s["slopes"] else "a constant", ", ".join(f"{p['purpose']} {p['share']:.1%}" for p in s["parts"]))
        for s in plan.parameters["stages"]
    ]
    lines = []
    for course, stages in groupby(zip(told, plan.parameters["stages"], strict=True), key=lambda pair: pair[0]):
        spreads = sorted({stage["if_scale"] for _, stage in stages})
        lines.append([" to ".join(map(error_text, dict.fromkeys((spreads[0], spreads[-1])))), *course])
    return lines


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
