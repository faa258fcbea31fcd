# SPDX-License-Identifier: Apache-2.0
"""An audit as one HTML file that needs nothing but itself, or as part of another page; stamped as what it is."""

from __future__ import annotations

from html import escape
from string import Template
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit.picture import drawn, middle
from sottovoce.pages.page import stamp, table, whole

if TYPE_CHECKING:
    from sottovoce.audit import PerInstance
    from sottovoce.audit.told import Place, Summary
    from sottovoce.release import Release

Floats = NDArray[np.float64]

REPLACED = (
    " The promise is about replacing somebody's rows by others. What is shown is about leaving them out, which is only "
    "half of that: the new rows would cost something too."
)
FOR_WHOM = (
    "For the curator alone. Every number on this page depends on everybody's data, also those about one person when "
    "only that person sees them. Do not publish, send or charge by them."
)
#: So many of the least protected are listed.
LISTED = 10


#: How names are asked for at the command line.
ASK = "--reveal"


def page(audit: PerInstance, release: Release, *, reveal: bool = False) -> str:
    """Returns the whole page."""
    body = drawn_body(audit, release, reveal=reveal)
    return whole("CONFIDENTIAL: what each person lost", body, style=STYLE, private=True)


def drawn_body(audit: PerInstance, release: Release, *, reveal: bool = False, ask: str = ASK) -> str:
    """Returns what is on it: a picture, the numbers, and who is least protected, by rank or by name."""
    summary, losses = audit.summary(), np.asarray(audit.by_person())
    unit, people = audit.unit, audit.unit == "people"
    promised = None if summary.promised is None else summary.promised[1]
    return _BODY.substitute(
        stamp=stamp("CONFIDENTIAL", FOR_WHOM),
        question=escape("ridge regression" if release.question == "ridge" else release.question),
        count=f"{len(losses):,} {unit}",
        whose="all rows of this person" if people else "this row",
        delta=f"{audit.delta:g}",
        picture=drawn(losses, summary.for_all, promised, unit),
        numbers=table(["", "", f"ε at δ = {audit.delta:g}"], _numbers(summary, losses, unit), "words"),
        sentence=escape(_sentence(summary, losses, unit)),
        names=escape(_names(reveal, people, ask)),
        least=table(
            ["rank", "what sets them apart", "ε", *(["person" if people else "row"] if reveal else [])],
            [_line(place, reveal) for place in audit.least_protected(LISTED)],
            "words",
        ),
        exactness=escape(f"ε is {audit.exactness}.{REPLACED if audit.neighbours == 'replace' else ''}"),
    )


def _numbers(summary: Summary, losses: Floats, unit: str) -> list[list[str]]:
    lines = []
    if summary.promised is not None:
        low, high = summary.promised
        told = _number(high) if low == high else f"{_number(low)} to {_number(high)}"
        lines.append(["promised", f"for every table, neighbours by {summary.neighbours}", told])
    if summary.for_all is not None:
        lines.append(
            ["any record", "the worst row that bounds allow, with this table, at most", _number(summary.for_all)]
        )
    if summary.eigenvalue is not None:
        lines.append(["eigenvalue", "released before the sample, by itself, at most", _number(summary.eigenvalue)])
    for name, share in (("most", 1.0), ("99 %", 0.99), ("90 %", 0.9), ("median", 0.5), ("least", 0.0)):
        value = float(np.quantile(losses, share, method="inverted_cdf"))
        lines.append([name, f"of the {unit} in the table", _number(value)])
    return lines


def _sentence(summary: Summary, losses: Floats, unit: str) -> str:
    half, most = middle(losses), float(losses.max())
    if summary.promised is None or not 0 < half < np.inf:
        return f"Half of the {unit} lost ε = {_number(half)} or less, and nobody more than {_number(most)}."
    times = summary.promised[1] / half
    return (
        f"Half of the {unit} lost ε = {_number(half)} or less, and nobody more than {_number(most)}. "
        f"The largest promise, {_number(summary.promised[1])}, is {_number(times)} times what the middle one lost: a "
        f"promise covers every table that there could be, and these numbers only the one that there is."
    )


def _names(reveal: bool, people: bool, ask: str) -> str:
    if reveal:
        return "Names are shown because they were asked for." + ("" if people else " Rows are counted from 0.")
    return f"By rank. Names are left out unless they are asked for ({ask})."


def _line(place: Place, reveal: bool) -> list[str]:
    who = [str(place.who)] if reveal else []
    return [str(place.rank), place.why(), _number(place.epsilon), *who]


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:,.0f}" if 1000 <= value < 1e9 else f"{value:.3g}"


STYLE = """\
th:first-child, td:nth-child(n+3) { white-space: nowrap; }
"""

_BODY = Template("""\
$stamp
<h1>What each person really lost</h1>
<p class="soft">A $question, $count. Each loss is an ε at δ = $delta: with $whose or without, everything else as it
is.</p>
<figure>
$picture
</figure>
<p>$sentence</p>
$numbers
<h2>Who is least protected</h2>
<p class="soft">$names</p>
$least
<h2>What this does not say</h2>
<p>$exactness It is about this one release. It is no reason to charge anybody less, or to release more: what a person
lost would have been another number had anybody else's data been different, and so it tells about them.</p>
<p>What may be told to people is a bound that they compute themselves, from the published release and their own row:
<code>sottovoce audit --mine RELEASE --record ROW</code>.</p>""")
