# SPDX-License-Identifier: Apache-2.0
"""What can be reproduced: every table and figure by name, the paper it is from, and the function
that computes it.

Listing costs nothing: a function is imported when it is called. To add an experiment, add one line
to EXPERIMENTS; its function takes a `Task` and returns an `Outcome`. Seeds are fixed by name, since
nothing here is a release.

The report of a reproduction: one HTML file that needs nothing but itself, with a table of
contents.

It is made for a screen in light and dark, for a phone, where tables scroll within themselves, and
for paper.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from html import escape
from importlib import import_module
from itertools import groupby
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Literal

from sottovoce import __version__
from sottovoce.errors import InvalidParameter
from sottovoce.papers.plots import (
    CLOSE_LIMIT,
    DEVIATION_LIMIT,
    Outcome,
    ResultColumn,
    ResultTable,
    format_number,
    format_percentile,
    is_within,
)
from sottovoce.report.html import make_page

if TYPE_CHECKING:
    # experiments draw with fixed seeds and release nothing
    from numpy.random import Generator  # noqa: TID251

    from sottovoce.papers.items import JudgedItem

Size = Literal["full", "small"]
#: The word that stands for every experiment, or after a slash for every one of a paper.
ALL = "all"


@dataclass(frozen=True)
class Paper:
    """A paper, by the name under which its experiments are called."""

    key: str
    title: str


@dataclass(frozen=True)
class Task:
    """One experiment to be done: which, how thoroughly, where data lie, and whom to tell how far it
    is (0 to 1).
    """

    name: str
    size: Size = "full"
    data: Path | None = None
    progress: Callable[[float], None] = lambda share: None

    def choose(self, full: int, small: int) -> int:
        """Return the number for this size."""
        if self.size == "full":
            return full
        return small


@dataclass(frozen=True)
class Experiment:
    """One table or figure; ``home`` is the module in this folder and the function in it."""

    name: str
    title: str
    home: str

    @property
    def paper(self) -> Paper:
        """The paper that it is from."""
        return PAPERS[self.name.partition("/")[0]]

    def run(self, task: Task) -> Outcome:
        """Computes it, and notes how long that took and which version did it."""
        from threadpoolctl import threadpool_limits

        module, _, function = self.home.partition(":")
        compute: Callable[[Task], Outcome] = getattr(
            import_module(f"sottovoce.papers.{module}"), function
        )
        began = time.perf_counter()
        used = time.process_time()
        with threadpool_limits(
            limits=1
        ):  # matrices here are small, and threads would wait for each other
            outcome = compute(task)
        return replace(
            outcome,
            seconds=round(time.perf_counter() - began, 3),
            processor_seconds=round(time.process_time() - used, 3),
            made_by=__version__,
        )


PAPERS = {
    paper.key: paper
    for paper in (
        Paper("ridge", "Personalized Differential Privacy for Ridge Regression"),
        Paper("market", "Striking a Balance: a data market for logistic regression"),
        Paper("users", "Smoothly Bounding User Contributions in Differential Privacy"),
        Paper("instance", "Per-instance Differential Privacy"),
    )
}

EXPERIMENTS = (
    Experiment(
        "ridge/table-1",
        "Personalised against one ε for all, synthetic, by λ",
        "ridge_tables:table_1",
    ),
    Experiment(
        "ridge/table-2", "Personalised against one ε for all, medical, by λ", "ridge_tables:table_2"
    ),
    Experiment(
        "ridge/table-3",
        "Against one ε for all, synthetic, by ε of conservatives",
        "ridge_tables:by_line",
    ),
    Experiment(
        "ridge/table-4",
        "Against one ε for all, medical, by ε of conservatives",
        "ridge_tables:by_line",
    ),
    Experiment(
        "ridge/table-5", "Against one ε for all, synthetic, by ε of mediums", "ridge_tables:by_line"
    ),
    Experiment(
        "ridge/table-6", "Against one ε for all, medical, by ε of mediums", "ridge_tables:by_line"
    ),
    Experiment(
        "ridge/table-7",
        "Against one ε for all, synthetic, by share of conservatives",
        "ridge_tables:by_line",
    ),
    Experiment(
        "ridge/table-8",
        "Against one ε for all, medical, by share of conservatives",
        "ridge_tables:by_line",
    ),
    Experiment(
        "ridge/table-9", "Against one ε for all, synthetic, by rows", "ridge_tables:by_line"
    ),
    Experiment("ridge/table-10", "Against one ε for all, medical, by rows", "ridge_tables:by_line"),
    Experiment("ridge/table-11", "Against sampling, synthetic, by λ", "ridge_tables:by_lambda"),
    Experiment("ridge/table-12", "Against sampling, medical, by λ", "ridge_tables:by_lambda"),
    Experiment("ridge/table-13", "Standard deviations, synthetic, by λ", "ridge_tables:by_lambda"),
    Experiment("ridge/table-14", "Standard deviations, medical, by λ", "ridge_tables:by_lambda"),
    Experiment(
        "ridge/figure-1",
        "Loss and its deviation, medical, by share of conservatives",
        "ridge_figures:figure",
    ),
    Experiment(
        "ridge/figure-2",
        "Against sampling, synthetic, by ε of conservatives",
        "ridge_figures:figure",
    ),
    Experiment(
        "ridge/figure-3", "Against sampling, medical, by ε of conservatives", "ridge_figures:figure"
    ),
    Experiment(
        "ridge/figure-4", "Against sampling, synthetic, by ε of mediums", "ridge_figures:figure"
    ),
    Experiment(
        "ridge/figure-5", "Against sampling, medical, by ε of mediums", "ridge_figures:figure"
    ),
    Experiment(
        "ridge/figure-6",
        "Against sampling, synthetic, by share of conservatives",
        "ridge_figures:figure",
    ),
    Experiment(
        "ridge/figure-7",
        "Against sampling, medical, by share of conservatives",
        "ridge_figures:figure",
    ),
    Experiment("ridge/figure-8", "Against sampling, synthetic, by rows", "ridge_figures:figure"),
    Experiment("ridge/figure-9", "Against sampling, medical, by rows", "ridge_figures:figure"),
    Experiment("ridge/figure-10", "Standard deviation, synthetic, by λ", "ridge_figures:figure"),
    Experiment("ridge/figure-11", "Standard deviation, medical, by λ", "ridge_figures:figure"),
    Experiment(
        "ridge/figure-12",
        "Standard deviation, synthetic, by ε of conservatives",
        "ridge_figures:figure",
    ),
    Experiment(
        "ridge/figure-13",
        "Standard deviation, medical, by ε of conservatives",
        "ridge_figures:figure",
    ),
    Experiment(
        "ridge/figure-14", "Standard deviation, synthetic, by ε of mediums", "ridge_figures:figure"
    ),
    Experiment(
        "ridge/figure-15", "Standard deviation, medical, by ε of mediums", "ridge_figures:figure"
    ),
    Experiment(
        "ridge/figure-16",
        "Standard deviation, synthetic, by share of conservatives",
        "ridge_figures:figure",
    ),
    Experiment(
        "ridge/figure-17",
        "Standard deviation, medical, by share of conservatives",
        "ridge_figures:figure",
    ),
    Experiment("ridge/figure-18", "Standard deviation, synthetic, by rows", "ridge_figures:figure"),
    Experiment("ridge/figure-19", "Standard deviation, medical, by rows", "ridge_figures:figure"),
    Experiment(
        "ridge/theorem-2.5", "The bound on the error against the error", "ridge_figures:accuracy"
    ),
    Experiment("ridge/speed", "All runs at once against a loop over runs", "ridge_tables:speed"),
    Experiment("ridge/statements", "Theorems and lemmas against drawn cases", "statements:outcome"),
    Experiment("ridge/errata", "What the paper got wrong", "errata:outcome"),
    Experiment("market/figure-2a", "Error and payments by trade-off", "market_figures:figure_2a"),
    Experiment(
        "market/figure-2b",
        "Error + γ·payment, costs apart and correlated",
        "market_figures:figure_2b",
    ),
    Experiment("market/figure-3", "Errors and loss by μ", "market_figures:figure_3"),
    Experiment(
        "market/figure-4", "Variance of weights by variance of costs", "market_figures:figure_4"
    ),
    Experiment("market/figure-5", "Errors by average ε", "market_figures:figure_5"),
    Experiment(
        "market/certified",
        "The certified market beside the published one",
        "market_figures:compare_certified",
    ),
    Experiment(
        "market/appendix-c", "Two sellers: the minimum for every noise", "market_claims:appendix_c"
    ),
    Experiment("market/audit", "The claim of privacy, audited; ours too", "market_claims:audit"),
    Experiment("market/lies", "Who gains by a lie", "market_claims:lies"),
    Experiment("market/theorem-3.4", "The limit for many sellers", "market_claims:theorem_3_4"),
    Experiment(
        "market/statements", "Theorems and lemmas against drawn cases", "statements:outcome"
    ),
    Experiment("market/errata", "What the paper got wrong", "errata:outcome"),
    Experiment(
        "users/theorem-2",
        "Weights against sample limiting, the ratio that tends to 3/2",
        "users_claims:theorem_2",
    ),
    Experiment(
        "users/counterexample",
        "Weights against sample limiting, more than 3/2",
        "users_claims:counterexample",
    ),
    Experiment(
        "users/example-1", "The gap without a bound, by the solver", "users_claims:example_1"
    ),
    Experiment("users/example-3", "The same with features of length one", "users_claims:example_3"),
    Experiment(
        "users/quantile",
        "The median with weights and with sample limiting, and Theorem 9",
        "users_claims:quantile",
    ),
    Experiment(
        "users/figure-1", "Regression on synthetic data, by rows, ε = 1", "users_regression:figure"
    ),
    Experiment(
        "users/figure-2", "Regression on synthetic data, by α, ε = 1", "users_regression:figure"
    ),
    Experiment(
        "users/figure-3",
        "Regression on synthetic data, by rows, ε = 2 and 3",
        "users_regression:figure",
    ),
    Experiment(
        "users/exact", "The exact sensitivity against the published one", "users_regression:exact"
    ),
    Experiment("users/table-1", "Regression on drug reviews and news", "users_tables:table_1"),
    Experiment("users/table-2", "Logistic regression on drug reviews", "users_logistic:table_2"),
    Experiment(
        "users/table-1-law", "What Table 1 tells about its noise", "users_claims:table_1_law"
    ),
    Experiment(
        "users/table-2-law", "What Table 2 tells about its steps", "users_logistic:table_2_law"
    ),
    Experiment(
        "users/table-2-noise", "Which ε the noise of Table 2 keeps", "users_claims:table_2_noise"
    ),
    Experiment("users/statements", "Theorems and lemmas against drawn cases", "statements:outcome"),
    Experiment("users/errata", "What the paper got wrong, or left loose", "errata:outcome"),
    Experiment("instance/figure-1", "Losses to noise on the solution", "instance_figures:figure_1"),
    Experiment(
        "instance/figure-2",
        "Losses by rows, and to one sample by risk",
        "instance_figures:figure_2",
    ),
    Experiment(
        "instance/efficiency",
        "How efficient a posterior sample is",
        "instance_figures:efficiency",
    ),
    Experiment(
        "instance/statements", "Theorems and lemmas against drawn cases", "statements:outcome"
    ),
    Experiment(
        "instance/smooth-losses",
        "Lemma 13 and equation (3) for smooth losses, and who joins by their loss",
        "instance_smooth:smooth",
    ),
    Experiment("instance/errata", "What the paper got wrong", "errata:outcome"),
)


def choose_experiments(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments that are named, each once, in the order of the list.

    `all` and `ridge/all` are names.
    """
    wanted = {experiment.name for name in names for experiment in _find_experiments(name)}
    return [experiment for experiment in EXPERIMENTS if experiment.name in wanted]


def make_named_generator(name: str) -> Generator:
    """Return a generator whose draws follow from the name alone."""
    import numpy as np

    return np.random.default_rng(list(name.encode()))  # noqa: TID251


def _find_experiments(name: str) -> list[Experiment]:
    paper, _, which = name.partition("/")
    found = [
        e for e in EXPERIMENTS if name in (ALL, e.name) or (which == ALL and e.paper.key == paper)
    ]
    if not found:
        names = [ALL, *(f"{key}/{ALL}" for key in PAPERS), *(e.name for e in EXPERIMENTS)]
        near = get_close_matches(name, names, n=3)
        raise InvalidParameter(
            "There is no experiment of this name.",
            f"Names that are close: {', '.join(near)}."
            if near
            else f"Names are like {EXPERIMENTS[0].name} or {ALL}.",
            "Ask `sottovoce reproduce --list` for all names.",
            parameter="names",
        )
    return found


def make_report(
    outcomes: Mapping[str, Outcome],
    drawn: Mapping[str, Sequence[str]],
    missing: Mapping[str, str],
    judged: Sequence[JudgedItem] = (),
) -> str:
    """Return the page for outcomes by name, their figures as inline SVG, why others are missing,
    and what became of every item of the papers.
    """
    there = [
        experiment
        for experiment in EXPERIMENTS
        if experiment.name in outcomes or experiment.name in missing
    ]
    papers = {key: list(group) for key, group in groupby(there, key=lambda e: e.paper.key)}
    sections = [
        f'<h2 id="{key}">{escape(PAPERS[key].title)}</h2>\n'
        + "\n".join(_make_section(experiment, outcomes, drawn, missing) for experiment in group)
        for key, group in papers.items()
    ]
    body = _BODY.substitute(
        summary=_make_summary(there, outcomes),
        size="" if all(outcome.size == "full" for outcome in outcomes.values()) else _SMALL,
        sections="\n".join(sections),
        items=_make_items(judged),
        colour_close=f"{CLOSE_LIMIT:.0%}".replace("%", " %"),
        colour_off=f"{DEVIATION_LIMIT:.0%}".replace("%", " %"),
    )
    return make_page("sottovoce: the papers, reproduced", body, style=_STYLE)


def count_close_cells(outcomes: Sequence[Outcome]) -> str:
    """Return in one sentence how many cells are close to print.

    >>> count_close_cells([])
    'No cell could be compared with print.'
    """
    cells, close, near = (
        sum(column) for column in zip((0, 0, 0), *(o.count_close() for o in outcomes), strict=True)
    )
    if not cells:
        return "No cell could be compared with print."
    silent = sum(len(outcome.find_unexplained()) for outcome in outcomes)
    if silent:
        rest = f"{silent} of the others lack a reason"
    else:
        rest = "every other one has its reason beside it"
    return (
        f"Of {cells:,} cells, {close / cells:.0%} are within 5 % of print and {near / cells:.0%} "
        f"within 10 %; {rest}."
    )


def describe_print(outcome: Outcome) -> tuple[str, ...]:
    """Return a sentence for figures that have no number to compare with; none for the rest.

    >>> describe_print(Outcome("market/figure-4", "full"))[0]
    'Print is a picture without numbers: what can be compared is its shape.'
    """
    if "/figure" not in outcome.experiment or outcome.count_close()[0]:
        return ()
    return ("Print is a picture without numbers: what can be compared is its shape.",)


def make_anchor(name: str) -> str:
    """Return the name of an experiment as a place in the page."""
    return name.replace("/", "-").replace(".", "-")


def _make_summary(there: Sequence[Experiment], outcomes: Mapping[str, Outcome]) -> str:
    rows = []
    for experiment in there:
        outcome = outcomes.get(experiment.name)
        if outcome is None:
            cells = ("", "", "", "not computed")
        else:
            cells = _format_counts(outcome)
        link = f'<a href="#{make_anchor(experiment.name)}">{escape(experiment.name)}</a>'
        body = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(
            f'<tr><th scope="row">{link}</th><td '
            f'class="words">{escape(experiment.title)}</td>{body}</tr>'
        )
    return f"<p>{count_close_cells(list(outcomes.values()))}</p>\n" + _SUMMARY.substitute(
        rows="\n".join(rows)
    )


def _make_items(judged: Sequence[JudgedItem]) -> str:
    """Return the table of all items, folded away."""
    if not judged:
        return ""
    rows = "\n".join(
        f'<tr><th scope="row">{escape(one.item.paper)}, {escape(one.item.label)}</th>'
        f'<td class="words">{escape(one.status)}</td>'
        f'<td class="words">{escape(one.words)}</td></tr>'
        for one in judged
    )
    return (
        "<details><summary>What became of every item of the papers</summary>"
        '<div class="wide"><table class="contents"><thead><tr><th scope="col">item</th>'
        '<th scope="col">status</th><th scope="col">in words</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details>"
    )


def _format_counts(outcome: Outcome) -> tuple[str, str, str, str]:
    cells, close, near = outcome.count_close()
    if cells:
        shares = (f"{close / cells:.0%}", f"{near / cells:.0%}")
    else:
        shares = ("", "")
    return str(cells or ""), *shares, f"{outcome.seconds:.1f} s"


def _make_section(
    experiment: Experiment,
    outcomes: Mapping[str, Outcome],
    drawn: Mapping[str, Sequence[str]],
    missing: Mapping[str, str],
) -> str:
    head = f'<h3 id="{make_anchor(experiment.name)}">{escape(_make_heading(experiment))}</h3>'
    if experiment.name not in outcomes:
        return (
            f'<section>{head}\n<p class="missing">Not computed. '
            f"{escape(missing[experiment.name])}</p></section>"
        )
    outcome = outcomes[experiment.name]
    pictures = "".join(f"<figure>{picture}</figure>" for picture in drawn.get(experiment.name, ()))
    tables = "\n".join(_make_table(table) for table in outcome.tables)
    if pictures:
        tables = f"<details><summary>The numbers</summary>{tables}</details>"
    told = (*describe_print(outcome), *outcome.sentences)
    sentences = "\n".join(f"<p>{escape(sentence)}</p>" for sentence in told)
    command = f'<p class="soft"><code>sottovoce reproduce {escape(experiment.name)}</code></p>'
    return f"<section>{head}\n{pictures}{sentences}\n{tables}\n{command}</section>"


def _make_heading(experiment: Experiment) -> str:
    which = experiment.name.partition("/")[2].replace("-", " ").capitalize()
    return f"{which}. {experiment.title}"


def _make_table(table: ResultTable) -> str:
    groups = "".join(
        f'<th scope="colgroup" colspan="{len(_make_heads(column))}">{escape(column.name)}</th>'
        for column in table.columns
    )
    heads = "".join(f"<th>{head}</th>" for column in table.columns for head in _make_heads(column))
    rows = "\n".join(_make_row(table, place) for place in range(len(table.lines)))
    reasons = "".join(
        f"<li>{_make_reason(table, place)}</li>" for place in range(len(table.reasons))
    )
    return _TABLE.substitute(
        title=escape(table.title),
        key=escape(table.key),
        groups=groups,
        heads=heads,
        rows=rows,
        reasons=f'<ul class="reasons">{reasons}</ul>' if reasons else "",
    )


def _make_heads(column: ResultColumn) -> list[str]:
    return [
        "ours",
        *(["print", "ratio"] if column.published else []),
        *(["above"] if column.falls_at else []),
    ]


def _make_row(table: ResultTable, place: int) -> str:
    cells = "".join(_make_cells(column, place) for column in table.columns)
    return f'<tr><th scope="row">{escape(table.lines[place])}</th>{cells}</tr>'


def _make_cells(column: ResultColumn, place: int) -> str:
    cells = f'<td class="ours">{format_number(column.ours[place])}</td>'
    if column.published:
        ratio = column.ratios()[place]
        if ratio is None:
            shown = ""
        elif 0.01 <= ratio < 100:
            shown = f"{ratio:.2f}"
        else:
            shown = format_number(ratio, 2)
        if ratio is None or is_within(ratio, CLOSE_LIMIT):
            grade = ""
        elif is_within(ratio, DEVIATION_LIMIT):
            grade = "near"
        else:
            grade = "off"
        cells += (
            f'<td>{format_number(column.published[place])}</td><td class="{grade}">{shown}</td>'
        )
    if column.falls_at:
        cells += f'<td class="soft">{format_percentile(column.falls_at[place])}</td>'
    return cells


def _make_reason(table: ResultTable, place: int) -> str:
    reason = table.reasons[place]
    whole = not reason.lines or len(reason.lines) == len(table.lines)
    if whole:
        lines = ""
    elif table.key:
        lines = f" at {table.key} = {', '.join(reason.lines)}"
    else:
        lines = ""
    return f"<b>{escape(reason.column + lines)}.</b> {escape(reason.sentence)}"


_SMALL = (
    '<p class="missing">A small run: few draws and runs, to see that all works. Its numbers are '
    "rough.</p>"
)
_SUMMARY = Template("""\
<nav class="wide" aria-label="Contents"><table class="contents">
<thead><tr><th scope="col">experiment</th><th scope="col"></th><th scope="col">cells</th>
<th scope="col">within 5 %</th><th scope="col">within 10 %</th>
<th scope="col">time</th></tr></thead>
<tbody>
$rows
</tbody></table></nav>""")
_TABLE = Template("""\
<div class="wide"><table>
<caption>$title</caption>
<thead><tr><th rowspan="2">$key</th>$groups</tr><tr>$heads</tr></thead>
<tbody>
$rows
</tbody></table></div>
$reasons""")
#: What this page adds to the style of all pages.
_STYLE = """\
body { max-width: 62rem; }
h2 { font-size: 1.35rem; font-weight: normal; margin-top: 3.5rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1.08rem; margin-top: 2.6rem; }
p, li { max-width: 44rem; }
a, summary { color: var(--own); }
code { font-size: .85em; }
.missing { border-left: 3px solid var(--warn); padding-left: .8rem; }
.wide { margin: 1rem 0; }
table { width: auto; font-size: .82rem; }
caption { text-align: left; font-weight: bold; padding-bottom: .3rem; }
th, td { padding: .22rem .45rem; white-space: nowrap; }
thead th[colspan] { white-space: normal; min-width: 6rem; text-align: left; padding-left: 1rem; }
tbody th { position: sticky; left: 0; background: var(--ground); }
td.ours { padding-left: 1rem; color: var(--own); }
.near { color: var(--warn); }
.off { color: var(--stamp); font-weight: bold; }
table.contents td.words { text-align: left; white-space: normal; min-width: 14rem; }
ul.reasons { font-size: .88rem; padding-left: 1.2rem; }
ul.reasons b { font-weight: normal; color: var(--stamp); }
details { margin: .8rem 0; }
summary { cursor: pointer; }
@media print {
  body { font-size: 10pt; max-width: none; }
  table { font-size: 6.5pt; }
  th, td { padding: .1rem .2rem; }
  .wide, figure { overflow: visible; }
  h3 { break-after: avoid; }
  figure svg { min-width: 0; max-width: 17cm; }
}
"""
_BODY = Template("""\
<h1>The papers, reproduced</h1>
<p>Every table and figure, ours beside what was published, with the ratio of the two. A ratio
further than $colour_close from one is
<span class="near">marked</span>, further than $colour_off
<b class="off">strongly</b>, and then a sentence below the table says why. Where
the authors drew something without a seed, "ours" is the median of many draws, and "above" is the
share of our draws that print lies above. Nothing here is a release: seeds are fixed and data are
public or invented.</p>
$size
$summary
$items
$sections""")
