# SPDX-License-Identifier: Apache-2.0
"""A plan in words, tables and pictures: what it costs whom, what it will be worth, whether slopes
pay for their noise.

Everything here is public. The command line prints the sentences; the web page draws tables and bars
around them.

What a regression is worth beforehand: beside a private mean, and beside asking nothing at all.

All three are compared in one measure, the distance of predictions from those of the best linear
function, in the label's units. With s the spread of the labels, whatever predicts the same for
everybody misses what slopes would have explained:

    answer          squared distance
    regression      the plan's expected error, squared
    private mean    .6·s² + (expected error of the mean at this spread)²
    nothing         .6·s² + (.4·half the range)²

The .6 and the .4 are the assumptions under which the regression itself is planned
(estimators/ridge_recipe.py: WORTHLESS_ERROR, and an intercept of squared size .16). Everything
here is made of public numbers; none is an accuracy promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from sottovoce import units
from sottovoce.arrays import Floats, Integers
from sottovoce.budgets import Budgets
from sottovoce.estimators import find_recorded
from sottovoce.estimators.baseline_questions import BASELINE
from sottovoce.plan import NEARLY_EQUAL, SIGNS, Plan, describe_currency, format_error
from sottovoce.report.html import make_figure, make_table
from sottovoce.svg import Bar, draw_bars
from sottovoce.wording import (
    describe_error,
    describe_question,
    describe_table,
    describe_unit,
    is_table,
    warn_if_uninformative,
    write_error_sentence,
)

#: More different ε than this are counted in so many steps.
MAX_GROUPS = 12
#: What each relation between neighbours protects, in plain words.
PROTECTED = {
    "replace": "“Neighbours by replace”: what is in somebody's rows is protected, not whether they "
    "are in the table.",
    "replace labels": "“Neighbours by replace labels”: somebody's labels are protected; their "
    "other columns are taken as public.",
    "zero out": "“Neighbours by zero out”: whether somebody's rows are used is protected.",
}
STAGE_HEADS = ("if the spread is", "answer", "shares of everybody's ε")


def draw_plan(plan: Plan) -> str:
    """Returns the plan as HTML: the promise, who pays, the error to expect, and for models what
    they are worth.
    """
    promise, error = describe_promise(plan)[:2]
    parts = [
        _draw_key_figures(plan),
        f"<p>{escape(promise)}</p>",
        f'<p class="soft">{escape(PROTECTED[plan.guarantee.neighbours])}</p>',
        f'<p class="expected">{escape(error)}</p>',
        _draw_error_parts(plan),
        *_warn_of_left_out(plan),
        "<h3>What it costs whom</h3>",
        make_table(*tabulate_payers(plan)),
        '<p class="soft">The share of weight is how much a group counts in the answer: whoever '
        "grants more counts more.</p>",
        *_draw_weights(plan),
    ]
    if is_compared(plan):
        parts += _draw_worth(plan)
    if "classes" in plan.parameters:
        parts += [f"<p>{escape(sentence)}</p>" for sentence in describe_classifier(plan)]
    return "\n".join([*parts, f'<p class="soft">{escape(describe_unread(plan))}</p>'])


def _draw_weights(plan: Plan) -> list[str]:
    """Who counts how much, as a picture where people differ, and in words."""
    sentences = [f"<p>{escape(sentence)}</p>" for sentence in plan.describe_weights()]
    lines = [line for line in plan.who_pays() if line["rows"] > 0]
    if plan.representative >= NEARLY_EQUAL or len(lines) < 2:
        return ["<h3>Who counts how much</h3>", *sentences]
    bars = [
        Bar(f"ε = {line['granted']:.3g}", times, f"{times:.2g}", "own")
        for line in lines
        for times in [line["voice"] * plan.budgets.n_rows / line["rows"]]
    ]
    title = "How much one row counts, if 1 is what it would count were all the same"
    return [
        "<h3>Who counts how much</h3>",
        *sentences,
        make_figure(title, draw_bars(title, bars, narrow=True)),
    ]


def is_compared(plan: Plan) -> bool:
    """Whether the plan can be compared with a private mean and no answer at all."""
    question = find_recorded(plan.question)
    return question is not None and question.compared


def list_payers(plan: Plan) -> list[dict[str, float]]:
    """Returns who pays what, with the weight of a row where people need it to bound their own loss
    (``sv.audit.mine``): to a posterior sample, or a classifier with noise in its objective.
    """
    lines = plan.who_pays()
    given = plan.parameters
    if BASELINE in given or not ("weight_unit" in given or "stretch" in given):
        return lines
    pairs = zip(lines, plan.row_weights(), strict=True)
    return [{**line, "row_weight": weight} for line, weight in pairs]


def _draw_key_figures(plan: Plan) -> str:
    """What a curator looks for first, in large figures."""
    spent = [line["spent"] for line in plan.who_pays() if line["granted"] > 0]
    ends = dict.fromkeys(
        f"{amount:.3g}" for amount in (min(spent, default=0), max(spent, default=0))
    )
    sign = SIGNS[plan.guarantee.reported_currency]
    facts = {
        "people"
        if plan.guarantee.unit == "person"
        else "rows": f"{plan.budgets.n_people - count_left_out(plan):,}",
        "each spends": f"{sign} = {' to '.join(ends)}",
        "expected error": describe_error(plan, beside_parts=True),
    }
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(fact)}</dd></div>" for name, fact in facts.items()
    )
    return f'<dl class="glance">{shown}</dl>\n<p class="soft">{escape(describe_size(plan))}.</p>'


def _warn_of_left_out(plan: Plan) -> list[str]:
    many = count_left_out(plan)
    told = (
        f"{many:,} of {plan.budgets.n_people:,} people have not enough left for this, and are "
        "left out."
    )
    if many:
        return [f'<p class="caution">{told}</p>']
    return []


def count_left_out(plan: Plan) -> int:
    """Returns how many have not enough left in the books for this, and are left out."""
    kinds = plan.budgets.kinds
    return int(kinds.people[kinds.epsilon == 0].sum())


def describe_size(plan: Plan) -> str:
    """Returns what is planned, and about how many."""
    return f"Plan for {describe_question(plan)}{describe_table(plan)}: {plan.size}"


def describe_promise(plan: Plan) -> list[str]:
    """Returns the promise and the error to expect as sentences."""
    promise = plan.guarantee
    return [
        f"Promise: {describe_currency(plan.promise)} for each {promise.unit}, neighbours by "
        f"{promise.neighbours}, "
        f"{promise.arithmetic} arithmetic. Nobody spends more than they granted.",
        " ".join(
            filter(
                None,
                [
                    write_error_sentence(plan, beside_parts=True),
                    warn_if_uninformative(plan, "will say"),
                ],
            )
        ),
        *plan.describe_errors(),
        *plan.describe_weights(),
    ]


def _draw_error_parts(plan: Plan) -> str:
    if plan.parts:
        return _draw_questions(plan)
    return "\n".join(
        f'<p class="soft">{escape(sentence)}</p>' for sentence in plan.describe_errors()
    )


def _draw_questions(plan: Any) -> str:
    """The questions of a report: what each asks, its share, the error to expect, and what that is
    made of.
    """
    heads = ["question", "asks for", "share of everybody's ε", "expected error"]
    lines = plan.list_lines()
    title = "What part of everybody's ε each question takes"
    bars = [
        Bar(name, part, told, "own")
        for name, part, (_, _, told, _) in zip(
            plan.shares, plan.shares.values(), lines, strict=True
        )
        if part > 0
    ]
    picture = make_figure(title, draw_bars(title, bars, narrow=True)) if bars else ""
    told = "\n".join(f'<p class="soft">{escape(text)}</p>' for text in plan.describe_errors())
    return (
        f"<h3>What each question gets</h3>\n{make_table(heads, lines, 'words text')}\n{picture}\n"
        f"<details><summary>What each error is made of</summary>\n{told}\n</details>"
    )


def describe_unread(plan: Plan) -> str:
    """Returns what was not read and who was not charged."""
    if plan.parts or is_table(plan):
        columns = "None of the columns was read"
    elif "protects" in plan.parameters:  # labels alone
        columns = "The features, which are public, were read, and no label was"
    elif "features" in plan.parameters:
        columns = "No feature and no label was read"
    else:
        columns = "The column was not read"
    return f"{columns}, and nobody has been charged."


#: What is said where rows lie in a ball that does not reach the corners of the bounds.
PULLED_ROWS = "Rows far from the middle of the bounds are pulled towards it in the fit."
SHORTENED_ROWS = "Rows far from the middle of the bounds count less in the fit."


def describe_classifier(plan: Plan) -> list[str]:
    """Returns what a classifier will do as sentences."""
    given = plan.parameters
    classes = plan.parameters["classes"]
    lines = [f"Classes: {', '.join(map(str, classes))}."]
    if "alpha" not in given:  # a classifier without λ, such as one by gradient descent
        return lines
    lines = [f"{lines[0]} λ = {given['alpha']:.3g}."]
    if given["rows"].get("whole") and given["rows"].get("pulled"):
        lines.append(SHORTENED_ROWS)
    elif given["rows"].get("pulled"):
        lines.append(PULLED_ROWS)
    if given["threshold"]:
        lines.append(f"{given['threshold']:.3g} of everybody's ε buys the intercept.")
    if given["problems"] > 1:
        lines.append(
            f"Each of the {len(classes)} classes is told from all others, and shares everybody's "
            "ε with them."
        )
    elif len(classes) > 2:
        lines.append(f"All {len(classes)} classes are told apart by one objective.")
    if given["neighbours"] == "labels":
        lines.append("Labels alone are protected: nothing is promised about features.")
    if given["public_rows"]:
        lines.append(
            f"Scaling and λ follow from {given['public_rows']:,} public rows, about which "
            "nothing is promised."
        )
    return lines


def tabulate_payers(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """Returns heads and lines of the table: granted and spent by group, from the most to the least
    careful.
    """
    people = plan.guarantee.unit == "person"
    sign = SIGNS[plan.guarantee.reported_currency]
    heads = [
        f"granted {sign}",
        f"spent {sign}",
        *(["people"] if people else []),
        "rows",
        "share of weight",
    ]
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


def list_expected_errors(plan: Plan, chosen: Outlook) -> dict[str, float]:
    """Returns how far a regression, a private mean and nothing are expected to be from the best
    linear function.
    """
    (low, high) = plan.parameters["label"]
    return {
        "this regression" + ("" if chosen.slopes else ", a constant"): chosen.regression,
        "a private mean": chosen.private_mean,
        f"nothing (the middle, {(low + high) / 2:,g})": chosen.nothing,
    }


def tabulate_stages(plan: Plan) -> list[list[str]]:
    """Returns one line for neighbouring spreads that lead to the same course."""
    steps = [
        (
            "slopes" if s["slopes"] else "a constant",
            ", ".join(f"{p['purpose']} {p['share']:.1%}" for p in s["parts"]),
        )
        for s in plan.parameters["stages"]
    ]
    lines = []
    for course, stages in groupby(
        zip(steps, plan.parameters["stages"], strict=True), key=lambda pair: pair[0]
    ):
        spreads = sorted({stage["if_scale"] for _, stage in stages})
        lines.append(
            [" to ".join(map(format_error, dict.fromkeys((spreads[0], spreads[-1])))), *course]
        )
    return lines


def _draw_worth(plan: Plan) -> list[str]:
    chosen = choose_typical_outlook(plan)
    lines = [
        Bar(
            name.split(" (")[0].split(",")[0],
            length,
            format_error(length),
            "own" if place == 0 else "other",
        )
        for place, (name, length) in enumerate(list_expected_errors(plan, chosen).items())
    ]
    title = (
        f"Expected distance from least squares on the same rows, in {describe_unit(plan)}, "
        f"if labels spread by {format_error(chosen.spread)}"
    )
    staged = []
    if "stages" in plan.parameters:
        staged = [
            "<h3>What will be done</h3>",
            f'<p class="soft">By the spread of the labels, in {escape(describe_unit(plan))}, '
            "which the first stage "
            "finds out unless it is given.</p>",
            make_table(STAGE_HEADS, tabulate_stages(plan), "words text stages"),
            f"<p>{escape(plan.parameters['advice'])}</p>",
        ]
    tone = "caution"
    if chosen.worth_it:
        tone = "note"
    return [
        "<h3>Whether slopes pay for their noise</h3>",
        f'<p class="{tone}">{escape(make_verdict(plan, chosen))}</p>',
        make_figure(title, draw_bars(title, lines, narrow=True)),
        '<p class="soft">Planning numbers from public facts, right within a factor of about '
        "three.</p>",
        *staged,
    ]


def draw_grants(budgets: Budgets) -> str:
    """Return how many people grant which ε; many different ones are counted in steps of equal
    ratio.
    """
    unit = "rows"
    if budgets.unit == "person":
        unit = "people"
    kinds = budgets.kinds
    positive = kinds.epsilon > 0
    epsilon = np.asarray(units.to_epsilon(kinds.epsilon[positive]))
    bars = [
        Bar(name, count, f"{count:,}", "own")
        for name, count in _count_grants(epsilon, kinds.people[positive])
    ]
    title = f"How many {unit} grant how much (ε for each {budgets.unit}, in all)"
    return make_figure(title, draw_bars(title, bars, narrow=True))


def _count_grants(epsilon: Floats, people: Integers) -> list[tuple[str, int]]:
    different, which = np.unique(epsilon, return_inverse=True)
    if len(different) <= MAX_GROUPS:
        names = [f"ε = {value:g}" for value in different.tolist()]
        counts = np.bincount(which, people)
    else:
        edges = np.geomspace(different[0], different[-1], MAX_GROUPS + 1)
        names = [f"{low:.2g} to {high:.2g}" for low, high in pairwise(edges.tolist())]
        step = np.clip(np.searchsorted(edges, epsilon, side="right") - 1, 0, MAX_GROUPS - 1)
        counts = np.bincount(step, people, minlength=MAX_GROUPS)
    return list(zip(names, counts.astype(int).tolist(), strict=True))


#: How far the middle of the range lies from the labels' centre, in half ranges, where nothing is
#: known.
MIDDLE_MISSES = 0.4


@dataclass(frozen=True)
class Outlook:
    """What to expect if the labels have this spread, in the label's units."""

    spread: float
    regression: float
    private_mean: float
    nothing: float
    slopes: bool

    @property
    def worth_it(self) -> bool:
        """Whether slopes will be fitted and are expected to beat both trivial answers."""
        return self.slopes and self.regression < min(self.private_mean, self.nothing)

    def to_dict(self) -> dict[str, Any]:
        """The outlook as public JSON."""
        return {**self.__dict__, "worth_it": self.worth_it}


def compute_outlooks(plan: Plan) -> list[Outlook]:
    """Returns the outlook for every spread that the first stage may release, or for the typical
    one.
    """
    from sottovoce.estimators.ridge_errors import SPREAD  # here and below: the page opens without

    stages = plan.parameters.get("stages")
    if stages is None:  # the other methods do not look for the spread
        low, high = plan.parameters["label"]
        expected: Any = plan.expected_error
        return [_compute_outlook(plan, SPREAD * (high - low) / 2, float(expected), True)]
    return [
        _compute_outlook(plan, s["if_scale"], math.sqrt(s["expected"]) * s["if_scale"], s["slopes"])
        for s in stages
    ]


def choose_typical_outlook(plan: Plan) -> Outlook:
    """Returns the one that the plan's expected error speaks about."""
    expected: Any = plan.expected_error  # one number, as it is of a regression
    return min(compute_outlooks(plan), key=lambda outlook: abs(outlook.regression - expected))


def make_verdict(plan: Plan, chosen: Outlook | None = None) -> str:
    """Returns one sentence for or against the regression, with the numbers that it rests on;
    ``chosen`` is the typical outlook, where it is known.
    """
    if chosen is None:
        chosen = choose_typical_outlook(plan)
    told = (
        f"{format_error(chosen.regression)} against {format_error(chosen.private_mean)} for a "
        f"private mean and {format_error(chosen.nothing)} for nothing, in {describe_unit(plan)}"
    )
    if chosen.worth_it:
        return f"Worth asking: {told}. Both trivial answers lose."
    if not chosen.slopes:
        return (
            "Advice: do not ask for this regression. It will be a constant, and so is a private "
            f"mean ({told}). Ask for the mean, whose arithmetic is exact; or find more people, a "
            "larger ε or fewer features."
        )
    if chosen.private_mean <= chosen.nothing:
        better = "a private mean"
    else:
        better = "nothing, the middle of the range,"
    return (
        f"Advice: do not ask for this regression. It loses to {better} ({told}). "
        "Take the default method or another λ, ask for the mean, or find more people or a larger ε."
    )


def _compute_outlook(plan: Plan, spread: float, regression: float, slopes: bool) -> Outlook:
    from sottovoce.estimators.mean import Mean
    from sottovoce.estimators.ridge_recipe import WORTHLESS_ERROR

    low, high = plan.parameters["label"]
    half = (high - low) / 2
    unexplained = WORTHLESS_ERROR * spread**2
    question = Mean(bounds=(low, high), spread=min(spread, half), scale="bounds")
    mean = question.plan_for(plan.budgets).expected_error
    return Outlook(
        spread,
        regression,
        math.sqrt(unexplained + float(mean) ** 2),  # type: ignore[arg-type]
        math.sqrt(unexplained + (MIDDLE_MISSES * half) ** 2),
        slopes,
    )
