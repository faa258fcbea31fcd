# SPDX-License-Identifier: Apache-2.0
"""The demonstration's comparison as one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from string import Template

from sottovoce.cli.study import TIERS, Answer, Study, Way

#: Sizes of the picture in its own units: where bars begin, how long and thick they are, and a line's height.
LEFT, LONGEST, THICK, LINE = 230, 400, 20, 32


def report(study: Study, answers: Sequence[Answer]) -> str:
    """Returns the page: answers, promise, picture, table, and what they do not say."""
    return _PAGE.substitute(
        people=study.people,
        tiers=", ".join(f"{len(study.members(t))} {t.name} with ε = {t.epsilon:g}" for t in TIERS),
        answers=_rows([[a.name, f"{a.released:.2f}", a.error, f"{a.exact:.2f}"] for a in answers]),
        mean=_picture("Error of the mean, in points of body-mass index", study.ways, lambda w: w.mean_error, "{:.2f}"),
        quartiles=_picture(
            "Error of the quartiles, as a share of the people", study.ways, lambda w: w.quartile_error, "{:.1%}"
        ),
        ways=_rows([[w.name, str(w.people), f"{w.mean_error:.2f}", f"{w.quartile_error:.1%}"] for w in study.ways]),
        lessons="\n".join(f"<p>{escape(sentence)}</p>" for sentence in study.lessons()),
    )


def _rows(lines: Sequence[Sequence[str]]) -> str:
    cells = (
        f'<th scope="row">{escape(head)}</th>' + "".join(f"<td>{escape(c)}</td>" for c in rest) for head, *rest in lines
    )
    return "\n".join(f"<tr>{line}</tr>" for line in cells)


def _picture(title: str, ways: Sequence[Way], length: Callable[[Way], float], form: str) -> str:
    longest = max(map(length, ways))
    bars = [_bar(place, way.name, length(way) / longest, form.format(length(way))) for place, way in enumerate(ways)]
    width, height = LEFT + LONGEST + 70, LINE * len(ways)
    return (
        f'<figure><figcaption>{escape(title)}</figcaption>\n<svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">\n' + "\n".join(bars) + "\n</svg></figure>"
    )


def _bar(place: int, name: str, share: float, told: str) -> str:
    top, width = place * LINE + (LINE - THICK) / 2, max(share * LONGEST, 1)
    middle = place * LINE + LINE / 2
    kind = "own" if place == 0 else "other"
    return (
        f'<text class="{kind}" x="{LEFT - 10}" y="{middle}" text-anchor="end">{escape(name)}</text>'
        f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{width:.1f}" height="{THICK}" rx="2"/>'
        f'<text class="{kind}" x="{LEFT + width + 8:.1f}" y="{middle}">{escape(told)}</text>'
    )


_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>sottovoce: what personal budgets are worth</title>
<style>
:root { --ground: #fbfaf7; --ink: #23211d; --soft: #6a655c; --line: #dedad0; --own: #1f6f78; --other: #b9b2a3; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #191a1c; --ink: #e8e5de; --soft: #a09a8e; --line: #38383a; --own: #5fb8c2; --other: #5d5a54; }
}
body { background: var(--ground); color: var(--ink); font: 17px/1.55 Georgia, "Times New Roman", serif;
  max-width: 44rem; margin: 3rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; line-height: 1.25; font-weight: normal; margin-bottom: .4rem; }
h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; font-size: .95rem; }
th, td { padding: .35rem .5rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; }
th:first-child { text-align: left; padding-left: 0; }
thead th { color: var(--soft); font-weight: normal; vertical-align: bottom; }
tbody th { font-weight: normal; }
figure { margin: 1.5rem 0; overflow-x: auto; }
figcaption { margin-bottom: .3rem; }
svg { width: 100%; min-width: 32rem; height: auto; font-size: 14px; }
svg text { fill: var(--ink); dominant-baseline: central; }
rect.own { fill: var(--own); }
rect.other { fill: var(--other); }
text.own { font-weight: bold; }
.wide { overflow-x: auto; }
</style>
</head>
<body>
<h1>What personal budgets are worth</h1>
<p class="soft">A demonstration on $people patients of a public diabetes study. Each patient allows an ε of their own,
the most that may be learnt about them in all: $tiers. (Budgets are invented, by row number.) Two questions were
asked, each for half of it. Nobody spent more than they allowed.</p>

<h2>The answers</h2>
<div class="wide"><table>
<thead><tr><th scope="col">body-mass index</th><th scope="col">released</th><th scope="col">expected error</th>
<th scope="col">exact, not private</th></tr></thead>
<tbody>
$answers
</tbody></table></div>
<p class="soft">Expected errors include the chance of who was sampled, and were known before a value was read. The exact
numbers can be shown only because these data are public.</p>

<h2>The same questions, asked in four ways</h2>
<p>Shorter bars are better. With one ε for everybody it must be the strictest of those who take part, so careful people
make the answer vague for all, or are left out. With an ε each, everybody takes part for what they allow.</p>
$mean
$quartiles
<div class="wide"><table>
<thead><tr><th scope="col">way</th><th scope="col">people heard</th><th scope="col">mean, points</th>
<th scope="col">quartiles, share of people</th></tr></thead>
<tbody>
$ways
</tbody></table></div>

<h2>What this says, and what it does not</h2>
$lessons
</body>
</html>
""")
