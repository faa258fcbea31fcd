# SPDX-License-Identifier: Apache-2.0
"""The demonstration's comparison as one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

from sottovoce.cli.contest import REPEATS, Contest, Way, number

#: Sizes of the picture in its own units: where bars begin, how long and thick they are, and a line's height.
LEFT, LONGEST, THICK, LINE = 230, 400, 20, 32


def report(contests: Sequence[Contest], caution: str) -> str:
    """Returns the page: for each study who took part, a picture, a table, and what they say."""
    return _PAGE.substitute(
        repeats=REPEATS, studies="\n".join(_study(held) for held in contests), caution=escape(caution)
    )


def _study(held: Contest) -> str:
    study = held.study
    ridge = f"{study.label} from {', '.join(study.described)}"
    return _STUDY.substitute(
        about=escape(study.about),
        allowed=escape(study.allowed().replace(" = ", "\u00a0=\u00a0")),
        ridge=escape(ridge),
        unit=escape(study.unit),
        picture=_picture(f"Typical error on people not seen, in {study.unit}; shorter is better", held.ways),
        ways=_rows([[w.name, w.note, number(w.error)] for w in held.ways]),
        lessons="\n".join(f"<p>{escape(sentence)}</p>" for sentence in held.lessons()),
    )


def _rows(lines: Sequence[Sequence[str]]) -> str:
    cells = (
        f'<th scope="row">{escape(head)}</th>' + "".join(f"<td>{escape(c)}</td>" for c in rest) for head, *rest in lines
    )
    return "\n".join(f"<tr>{line}</tr>" for line in cells)


def _picture(title: str, ways: Sequence[Way]) -> str:
    longest, floor = max(way.error for way in ways), ways[-1].error
    bars = [_bar(place, way, way.error / longest) for place, way in enumerate(ways)]
    width, height = LEFT + LONGEST + 70, LINE * len(ways)
    at = LEFT + floor / longest * LONGEST
    line = f'<line class="floor" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height}"/>'
    return (
        f'<figure><figcaption>{escape(title)}</figcaption>\n<svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">\n' + "\n".join([*bars, line]) + "\n</svg></figure>"
    )


def _bar(place: int, way: Way, share: float) -> str:
    top, width = place * LINE + (LINE - THICK) / 2, max(share * LONGEST, 1)
    middle = place * LINE + LINE / 2
    kind = "own" if place == 0 else "other" if way.private else "plain"
    return (
        f'<text class="{kind}" x="{LEFT - 10}" y="{middle}" text-anchor="end">{escape(way.name)}</text>'
        f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{width:.1f}" height="{THICK}" rx="2"/>'
        f'<text class="{kind}" x="{LEFT + width + 8:.1f}" y="{middle}">{escape(number(way.error))}</text>'
    )


_STUDY = Template("""\
<h2>$about</h2>
<p class="soft">$allowed. A linear model of $ridge.</p>
$picture
<div class="wide"><table>
<thead><tr><th scope="col">way</th><th scope="col"></th><th scope="col">typical error, $unit</th></tr></thead>
<tbody>
$ways
</tbody></table></div>
$lessons
""")

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
rect.plain { fill: none; stroke: var(--soft); stroke-dasharray: 3 3; }
line.floor { stroke: var(--soft); stroke-dasharray: 3 3; }
td:nth-child(2) { text-align: left; color: var(--soft); }
text.own { font-weight: bold; }
.wide { overflow-x: auto; }
</style>
</head>
<body>
<h1>What personal budgets are worth</h1>
<p class="soft">A demonstration of sottovoce. Everybody allows an ε of their own, the most that may be learnt about
them in all, and nobody spends more than that. (Budgets are invented, by row number.) The same regression was
made in several ways, and tried on a third of the people that had been held out: $repeats fits each with fresh noise,
errors averaged. Such errors can be shown only because these data are public or invented.</p>
<p>With one ε for everybody it must be the strictest, so careful people make the answer vague for all. With an ε each,
everybody is heard for what they allow. The thin line marks least squares without any privacy: no linear
model does much better.</p>
$studies
<h2>What this does not say</h2>
<p>$caution</p>
</body>
</html>
""")
