# SPDX-License-Identifier: Apache-2.0
"""An audit as one HTML file that needs nothing but itself, or as part of another page; stamped as
what it is.
"""

from __future__ import annotations

from html import escape
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.audit.confidential import draw_losses, find_median
from sottovoce.report.html import NAMES_STYLE, make_page, make_stamp, make_table
from sottovoce.wording import name_model

if TYPE_CHECKING:
    from sottovoce.audit import PerInstance
    from sottovoce.audit.instance_losses import ExposedPerson, Summary
    from sottovoce.release import Release


REPLACE_NOTE = (
    " The promise is about replacing somebody's rows by others. What is shown is about leaving "
    "them out, which is only half of that: the new rows would cost something too."
)
FOR_WHOM = (
    "For the curator alone. Every number on this page depends on everybody's data, also those "
    "about one person when only that person sees them. Do not publish, send or charge by them."
)
#: So many of the least protected are listed.
LISTED_PEOPLE = 10


#: How names are asked for at the command line.
REVEAL_OPTION = "--reveal"


def make_audit_page(audit: PerInstance, release: Release, *, reveal: bool = False) -> str:
    """Returns the whole page."""
    body = make_audit_body(audit, release, reveal=reveal)
    return make_page("CONFIDENTIAL: what each person lost", body, style=NAMES_STYLE, private=True)


def make_audit_body(
    audit: PerInstance, release: Release, *, reveal: bool = False, ask: str = REVEAL_OPTION
) -> str:
    """Returns what is on it: a picture, the numbers, and who is least protected, by rank or by
    name.
    """
    summary = audit.summary()
    losses = np.asarray(audit.by_person())
    unit, people = audit.unit, audit.unit == "people"
    return _BODY.substitute(
        stamp=make_stamp("CONFIDENTIAL", FOR_WHOM),
        question=escape(name_model(release)),
        count=f"{len(losses):,} {unit}",
        whose="all rows of this person" if people else "this row",
        delta=f"{audit.delta:g}",
        picture=draw_losses(losses, summary, unit=unit),
        numbers=make_table(
            ["", "", f"ε at δ = {audit.delta:g}"], _tabulate_summary(summary, losses, unit), "words"
        ),
        sentence=escape(_summarise(summary, losses, unit)),
        names=escape(_explain_names(reveal, people, ask)),
        least=make_table(
            [
                "rank",
                "what sets them apart",
                "ε",
                *(["person" if people else "row"] if reveal else []),
            ],
            [_make_row(place, reveal) for place in audit.least_protected(LISTED_PEOPLE)],
            "words",
        ),
        exactness=escape(
            f"ε is {audit.exactness}.{REPLACE_NOTE if audit.neighbours == 'replace' else ''}"
        ),
    )


def _tabulate_summary(summary: Summary, losses: Floats, unit: str) -> list[list[str]]:
    lines = []
    if summary.promised is not None:
        low, high = summary.promised
        if low == high:
            told = _format_number(high)
        else:
            told = f"{_format_number(low)} to {_format_number(high)}"
        lines.append(["promised", f"for every table, neighbours by {summary.neighbours}", told])
    if summary.for_all is not None:
        lines.append(
            [
                "any record",
                "the worst row that bounds allow, with this table, at most",
                _format_number(summary.for_all),
            ]
        )
    if summary.eigenvalue is not None:
        lines.append(
            [
                "eigenvalue",
                "released before the sample, by itself, at most",
                _format_number(summary.eigenvalue),
            ]
        )
    for name, share in (
        ("most", 1.0),
        ("99 %", 0.99),
        ("90 %", 0.9),
        ("median", 0.5),
        ("least", 0.0),
    ):
        value = float(np.quantile(losses, share, method="inverted_cdf"))
        lines.append([name, f"of the {unit} in the table", _format_number(value)])
    return lines


def _summarise(summary: Summary, losses: Floats, unit: str) -> str:
    half = find_median(losses)
    most = float(losses.max())
    if summary.promised is None or not 0 < half < np.inf:
        return (
            f"Half of the {unit} lost ε = {_format_number(half)} or less, and nobody more than "
            f"{_format_number(most)}."
        )
    times = summary.promised[1] / half
    return (
        f"Half of the {unit} lost ε = {_format_number(half)} or less, and nobody more than "
        f"{_format_number(most)}. The largest promise, {_format_number(summary.promised[1])}, is "
        f"{_format_number(times)} times what the middle one lost: a promise covers every table "
        "that there could be, and these numbers only the one that there is."
    )


def _explain_names(reveal: bool, people: bool, ask: str) -> str:
    if reveal:
        return "Names are shown because they were asked for." + (
            "" if people else " Rows are counted from 0."
        )
    return f"By rank. Names are left out unless they are asked for ({ask})."


def _make_row(place: ExposedPerson, reveal: bool) -> list[str]:
    if reveal:
        who = [str(place.who)]
    else:
        who = []
    return [str(place.rank), place.why(), _format_number(place.epsilon), *who]


def _format_number(value: float) -> str:
    if value == 0:
        return "0"
    if 1000 <= value < 1e9:
        return f"{value:,.0f}"
    return f"{value:.3g}"


_BODY = Template("""\
$stamp
<h1>What each person really lost</h1>
<p class="soft">A $question, $count. Each loss is an ε at δ = $delta: with $whose or without,
everything else as it is.</p>
<figure>
$picture
</figure>
<p>$sentence</p>
$numbers
<h2>Who is least protected</h2>
<p class="soft">$names</p>
$least
<h2>What this does not say</h2>
<p>$exactness It is about this one release. It is no reason to charge anybody less, or to release
more: what a person lost would have been another number had anybody else's data been different, and
so it tells about them.</p>
<p>What may be told to people is a bound that they compute themselves, from the published release
and their own row:
<code>sottovoce audit --mine RELEASE --record ROW</code>.</p>""")
