# SPDX-License-Identifier: Apache-2.0
"""An audit as one HTML file that needs nothing but itself, stamped as what it is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit.picture import drawn, middle

if TYPE_CHECKING:
    from sottovoce.audit import PerInstance
    from sottovoce.audit.ranks import Place
    from sottovoce.audit.summary import Summary
    from sottovoce.release import Release

Floats = NDArray[np.float64]

REPLACED = (
    " The promise is about replacing somebody's rows by others. What is shown is about leaving them out, which is only "
    "half of that: the new rows would cost something too."
)
#: So many of the least protected are listed.
LISTED = 10


def page(audit: PerInstance, release: Release, *, reveal: bool = False) -> str:
    """Returns the page: a picture, the numbers, and who is least protected, by rank or by name."""
    summary, losses = audit.summary(), np.asarray(audit.by_person())
    unit, people = audit.unit, audit.unit == "people"
    promised = None if summary.promised is None else summary.promised[1]
    return _PAGE.substitute(
        question=escape("ridge regression" if release.question == "ridge" else release.question),
        count=f"{len(losses):,} {unit}",
        whose="all rows of this person" if people else "this row",
        delta=f"{audit.delta:g}",
        picture=drawn(losses, summary.for_all, promised, unit),
        numbers=_rows(_numbers(summary, losses, unit)),
        sentence=escape(_sentence(summary, losses, unit)),
        names=escape(_names(reveal, people)),
        head="" if not reveal else f'<th scope="col">{"person" if people else "row"}</th>',
        least=_rows([_line(place, reveal) for place in audit.least_protected(LISTED)]),
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


def _names(reveal: bool, people: bool) -> str:
    if reveal:
        return "Names are shown because they were asked for." + ("" if people else " Rows are counted from 0.")
    return "By rank. Names are left out unless they are asked for (--reveal)."


def _line(place: Place, reveal: bool) -> list[str]:
    who = [str(place.who)] if reveal else []
    return [str(place.rank), place.why(), _number(place.epsilon), *who]


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:,.0f}" if 1000 <= value < 1e9 else f"{value:.3g}"


def _rows(lines: Sequence[Sequence[str]]) -> str:
    cells = (
        f'<th scope="row">{escape(head)}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        for head, *rest in lines
    )
    return "\n".join(f"<tr>{line}</tr>" for line in cells)


_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>CONFIDENTIAL: what each person lost</title>
<style>
:root { --ground: #fbfaf7; --ink: #23211d; --soft: #6a655c; --line: #dedad0; --stamp: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #191a1c; --ink: #e8e5de; --soft: #a09a8e; --line: #38383a; --stamp: #f2857c; }
}
body { background: var(--ground); color: var(--ink); font: 17px/1.55 Georgia, "Times New Roman", serif;
  max-width: 44rem; margin: 3rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; line-height: 1.25; font-weight: normal; margin-bottom: .4rem; }
h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; font-size: .95rem; }
th, td { padding: .35rem .5rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; }
th:first-child { text-align: left; padding-left: 0; white-space: nowrap; }
thead th { color: var(--soft); font-weight: normal; vertical-align: bottom; }
thead th:nth-child(2) { text-align: left; }
tbody th { font-weight: normal; }
td:nth-child(2) { text-align: left; color: var(--soft); }
td:nth-child(n+3) { white-space: nowrap; }
figure { margin: 1.5rem 0; overflow-x: auto; }
svg { width: 100%; min-width: 32rem; height: auto; }
.wide { overflow-x: auto; }
.stamp { border: 2px solid var(--stamp); color: var(--stamp); padding: .5rem .8rem; font-size: .95rem; }
.stamp b { letter-spacing: .18em; }
</style>
</head>
<body>
<p class="stamp"><b>CONFIDENTIAL</b><br>For the curator alone. Every number on this page depends on everybody's data,
also those about one person when only that person sees them. Do not publish, send or charge by them.</p>
<h1>What each person really lost</h1>
<p class="soft">A $question, $count. Each loss is an ε at δ = $delta: with $whose or without, everything else as it
is.</p>
<figure>
$picture
</figure>
<p>$sentence</p>
<div class="wide"><table>
<thead><tr><th scope="col"></th><th scope="col"></th><th scope="col">ε at δ = $delta</th></tr></thead>
<tbody>
$numbers
</tbody></table></div>
<h2>Who is least protected</h2>
<p class="soft">$names</p>
<div class="wide"><table>
<thead><tr><th scope="col">rank</th><th scope="col">what sets them apart</th><th scope="col">ε</th>$head</tr></thead>
<tbody>
$least
</tbody></table></div>
<h2>What this does not say</h2>
<p>$exactness It is about this one release. It is no reason to charge anybody less, or to release more: what a person
lost would have been another number had anybody else's data been different, and so it tells about them.</p>
<p>What may be told to people is a bound that they compute themselves, from the published release and their own row:
<code>sottovoce audit --mine RELEASE --record ROW</code>.</p>
</body>
</html>
""")
