# SPDX-License-Identifier: Apache-2.0
"""The report of a reproduction: one HTML file that needs nothing but itself, with a table of
contents.

It is made for a screen in light and dark, for a phone, where tables scroll within themselves, and
for paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from string import Template

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
from sottovoce.papers.registry import EXPERIMENTS, PAPERS, Experiment
from sottovoce.report.html import make_page


def make_report(
    outcomes: Mapping[str, Outcome], drawn: Mapping[str, Sequence[str]], missing: Mapping[str, str]
) -> str:
    """Return the page for outcomes by name, their figures as inline SVG, and why others are
    missing.
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
    sentences = "\n".join(f"<p>{escape(sentence)}</p>" for sentence in outcome.sentences)
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
$sections""")
