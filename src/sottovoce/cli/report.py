# SPDX-License-Identifier: Apache-2.0
"""The demonstration's comparison as one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

from sottovoce.cli.contest import REPEATS, Contest, Way, number
from sottovoce.cli.page import table, whole

#: Sizes of the picture in its own units: where bars begin, how long and thick they are, and a line's height.
LEFT, LONGEST, THICK, LINE = 230, 400, 20, 32


def report(contests: Sequence[Contest], caution: str) -> str:
    """Returns the page: for each study who took part, a picture, a table, and what they say."""
    body = _BODY.substitute(
        repeats=REPEATS, studies="\n".join(_study(held) for held in contests), caution=escape(caution)
    )
    return whole("sottovoce: what personal budgets are worth", body, style=_STYLE)


def _study(held: Contest) -> str:
    study = held.study
    ridge = f"{study.label} from {', '.join(study.described)}"
    return _STUDY.substitute(
        about=escape(study.about),
        allowed=escape(study.allowed().replace(" = ", "\u00a0=\u00a0")),
        ridge=escape(ridge),
        picture=_picture(f"Typical error on people not seen, in {study.unit}; shorter is better", held.ways),
        ways=table(
            ["way", "", f"typical error, {study.unit}"], [[w.name, w.note, number(w.error)] for w in held.ways], "words"
        ),
        lessons="\n".join(f"<p>{escape(sentence)}</p>" for sentence in held.lessons()),
    )


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
$ways
$lessons
""")

_STYLE = """\
svg { font-size: 14px; }
svg text { fill: var(--ink); dominant-baseline: central; }
rect.own { fill: var(--own); }
rect.other { fill: var(--other); }
rect.plain { fill: none; stroke: var(--soft); stroke-dasharray: 3 3; }
line.floor { stroke: var(--soft); stroke-dasharray: 3 3; }
text.own { font-weight: bold; }
"""

_BODY = Template("""\
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
<p>$caution</p>""")
