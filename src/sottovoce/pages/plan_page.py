# SPDX-License-Identifier: Apache-2.0
"""A plan in words, tables and pictures: what it costs whom, what it will be worth, whether slopes pay for their noise.

Everything here is public. The command line prints the sentences; the web page draws tables and bars around them.
"""

from __future__ import annotations

from html import escape
from itertools import groupby

from sottovoce.pages.outlook import typical, verdict
from sottovoce.pages.page import table
from sottovoce.pages.pictures import Bar, bars
from sottovoce.plan import Plan, currency_words, error_text
from sottovoce.wording import asked, error_amount, error_sentence, in_table, says_nothing, unit_in_words

COURSES = ("if the spread is", "answer", "shares of everybody's ε")


def drawn(plan: Plan) -> str:
    """Returns the plan as HTML: the promise, who pays, the error to expect, and for models what they are worth."""
    parts = [
        _glance(plan),
        '<p>{}</p>\n<p class="expected">{}</p>\n{}'.format(*map(escape, told(plan)[:2]), _parts(plan)),
        *_without(plan),
        "<h3>What it costs whom</h3>",
        table(*who_pays(plan)),
        '<p class="soft">Voice is the share of the answer that a group has: whoever grants more is heard more.</p>',
        *(_worth(plan) if plan.question == "ridge" else []),
    ]
    if "classes" in plan.parameters:
        parts += [f"<p>{escape(sentence)}</p>" for sentence in classified(plan)]
    return "\n".join([*parts, f'<p class="soft">{escape(unread(plan))}</p>'])


def _glance(plan: Plan) -> str:
    """What a curator looks for first, in large figures."""
    spent = [line["spent"] for line in plan.who_pays() if line["granted"] > 0]
    ends = dict.fromkeys(f"{amount:.3g}" for amount in (min(spent, default=0), max(spent, default=0)))
    sign = {"epsilon": "ε", "rho": "ρ"}[plan.guarantee.reported_currency]
    facts = {
        "people" if plan.guarantee.unit == "person" else "rows": f"{plan.budgets.n_people - left_out(plan):,}",
        "each spends": f"{sign} = {' to '.join(ends)}",
        "expected error": error_amount(plan),
    }
    shown = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(fact)}</dd></div>" for name, fact in facts.items())
    return f'<dl class="glance">{shown}</dl>\n<p class="soft">{escape(size(plan))}.</p>'


def _without(plan: Plan) -> list[str]:
    many = left_out(plan)
    told = f"{many:,} of {plan.budgets.n_people:,} people have not enough left for this, and are left out."
    return [f'<p class="caution">{told}</p>'] if many else []


def left_out(plan: Plan) -> int:
    """Returns how many have not enough left in the books for this, and are not heard."""
    kinds = plan.budgets.kinds
    return int(kinds.people[kinds.epsilon == 0].sum())


def size(plan: Plan) -> str:
    """Returns what is planned, and about how many."""
    people = f"{plan.budgets.n_people:,} people, " if plan.guarantee.unit == "person" else ""
    return f"Plan for {asked(plan)}{in_table(plan)}: {people}{plan.budgets.n_rows:,} rows"


def told(plan: Plan) -> list[str]:
    """Returns the promise and the error to expect as sentences."""
    promise = plan.guarantee
    return [
        f"Promise: {currency_words(plan.promise)} for each {promise.unit}, neighbours by {promise.neighbours}, "
        f"{promise.arithmetic} arithmetic. Nobody spends more than they granted.",
        " ".join(filter(None, [error_sentence(plan), says_nothing(plan, "will say")])),
        *error_sentences(plan),
    ]


def error_sentences(plan: Plan) -> list[str]:
    """Returns what the expected error is made of, a sentence for each number that is answered, equal ones once."""
    return list(dict.fromkeys(error.describe() for error in plan.errors))


def _parts(plan: Plan) -> str:
    return "\n".join(f'<p class="soft">{escape(sentence)}</p>' for sentence in error_sentences(plan))


def unread(plan: Plan) -> str:
    """Returns what was not read and who was not charged."""
    columns = "No feature and no label was read" if "features" in plan.parameters else "The column was not read"
    return f"{columns}, and nobody has been charged."


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
    return lines


def who_pays(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """Returns heads and lines of the table: granted and spent by group, from the most to the least careful."""
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
    return heads, lines


def expected(plan: Plan) -> dict[str, float]:
    """Returns how far a regression, a private mean and nothing are expected to be from the best linear function."""
    chosen, (low, high) = typical(plan), plan.parameters["label"]
    return {
        "this regression" + ("" if chosen.slopes else ", a constant"): chosen.regression,
        "a private mean": chosen.private_mean,
        f"nothing (the middle, {(low + high) / 2:,g})": chosen.nothing,
    }


def courses(plan: Plan) -> list[list[str]]:
    """Returns one line for neighbouring spreads that lead to the same course."""
    steps = [
        ("slopes" if s["slopes"] else "a constant", ", ".join(f"{p['purpose']} {p['share']:.1%}" for p in s["parts"]))
        for s in plan.parameters["stages"]
    ]
    lines = []
    for course, stages in groupby(zip(steps, plan.parameters["stages"], strict=True), key=lambda pair: pair[0]):
        spreads = sorted({stage["if_scale"] for _, stage in stages})
        lines.append([" to ".join(map(error_text, dict.fromkeys((spreads[0], spreads[-1])))), *course])
    return lines


def _worth(plan: Plan) -> list[str]:
    chosen = typical(plan)
    lines = [
        Bar(name.split(" (")[0].split(",")[0], length, error_text(length), "own" if place == 0 else "other")
        for place, (name, length) in enumerate(expected(plan).items())
    ]
    title = (
        f"Expected distance from least squares on the same rows, in {unit_in_words(plan)}, "
        f"if labels spread by {error_text(chosen.spread)}"
    )
    staged = []
    if "stages" in plan.parameters:
        staged = [
            "<h3>What will be done</h3>",
            f'<p class="soft">By the spread of the labels, in {escape(unit_in_words(plan))}, which the first stage '
            "finds out unless it is given.</p>",
            table(COURSES, courses(plan), "words"),
            f"<p>{escape(plan.parameters['advice'])}</p>",
        ]
    return [
        "<h3>Whether slopes pay for their noise</h3>",
        f'<p class="{"note" if chosen.worth_it else "caution"}">{escape(verdict(plan))}</p>',
        bars(title, lines, short=True),
        '<p class="soft">Planning numbers from public facts, right within a factor of about three.</p>',
        *staged,
    ]
