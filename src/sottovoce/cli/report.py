# SPDX-License-Identifier: Apache-2.0
"""The demonstration's comparison as one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

from sottovoce.cli.contest import REPEATS, Contest, Way, number
from sottovoce.pages.page import table, whole
from sottovoce.pages.pictures import STYLE, Bar, bars


def report(contests: Sequence[Contest], caution: str) -> str:
    """Returns the page: for each study who took part, a picture, a table, and what they say."""
    body = _BODY.substitute(
        repeats=REPEATS, studies="\n".join(_study(held) for held in contests), caution=escape(caution)
    )
    return whole("sottovoce: what personal budgets are worth", body, style=STYLE)


def _study(held: Contest) -> str:
    study = held.study
    ridge = f"{study.label} from {', '.join(study.described)}"
    return _STUDY.substitute(
        about=escape(study.about),
        allowed=escape(study.describe_budgets().replace(" = ", "\u00a0=\u00a0")),
        ridge=escape(ridge),
        picture=_picture(f"Typical error on people not seen, in {study.unit}; shorter is better", held.ways),
        ways=table(
            ["way", "", f"typical error, {study.unit}"], [[w.name, w.note, number(w.error)] for w in held.ways], "words"
        ),
        lessons="\n".join(f"<p>{escape(sentence)}</p>" for sentence in held.lessons()),
    )


def _picture(title: str, ways: Sequence[Way]) -> str:
    kinds = ["own" if place == 0 else "other" if way.private else "plain" for place, way in enumerate(ways)]
    lines = [Bar(way.name, way.error, number(way.error), kind) for way, kind in zip(ways, kinds, strict=True)]
    return bars(title, lines, floor=ways[-1].error)


_STUDY = Template("""\
<h2>$about</h2>
<p class="soft">$allowed. A linear model of $ridge.</p>
$picture
$ways
$lessons
""")

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
