# SPDX-License-Identifier: Apache-2.0
"""A market as one HTML file that needs nothing but itself: who is bought at which cost, ε and payments in pictures.

It shows reports, which are not protected, so it is stamped as the buyer's own.
"""

from __future__ import annotations

from html import escape
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.market import Frontier
from sottovoce.market.allocation import WHY
from sottovoce.pages.market_told import HEADS, NOT_PROTECTED, Outcome, declared, headline, plain, sentences
from sottovoce.pages.page import stamp, table, whole

Floats = NDArray[np.float64]

#: The picture in its own units: margins, a panel's field, and the distance from one panel to the next.
LEFT, WIDE, HIGH, ABOVE, NEXT = 70, 540, 120, 34, 174
#: Bars of the first panel; steps of ε or money that dots are rounded to, so that a million sellers are few dots.
BARS, STEPS = 32, 60

FOR_WHOM = (
    "Reports, and payments that reveal them, are on this page. What may be published is written by --publish: sums, "
    "counts and rules, without reports and names."
)


def page(outcome: Outcome, frontier: Frontier) -> str:
    """Returns the page: pictures, the table by price, totals, and what other trade-offs would have brought."""
    points = [
        [f"{p.trade_off:.4g}", f"{p.expected_error:.4g}", plain(p.payment), plain(p.total_epsilon)] for p in frontier
    ]
    body = _BODY.substitute(
        stamp=stamp("FOR THE BUYER ALONE", FOR_WHOM),
        headline=escape(headline(outcome)),
        declared=escape(declared(outcome)),
        picture=picture(outcome),
        bands=table(HEADS, outcome.lines()),
        sentences="\n".join(f"<p>{escape(line)}</p>" for line in sentences(outcome)),
        frontier=frontier.svg(),
        points=table(["trade-off", "error bound", "payment", "total ε"], points),
        why="\n".join(f"<p>{escape(line)}</p>" for line in WHY),
        caution=escape(NOT_PROTECTED),
    )
    return whole("For the buyer alone: whose privacy is bought", body, style=_STYLE, private=True)


def picture(outcome: Outcome) -> str:
    """Returns three panels over the same axis of reported costs: sellers, ε bought from each, payment to each."""
    deal, costs = outcome.deal, outcome.sellers.costs
    sells = ~deal.refused
    across = _along(np.clip(costs[sells], *_ends(outcome)), outcome)
    parts = [
        *_sellers(outcome, across),
        *_axis(1, float(deal.epsilon.max()), "ε bought from each"),
        *_dots(1, across, deal.epsilon[sells], float(deal.epsilon.max()), "own"),
        *_axis(2, float(deal.payments.max()), "paid to each; grey: what it costs them"),
        *_dots(2, across, (deal.epsilon * costs)[sells], float(deal.payments.max()), "other"),
        *_dots(2, across, deal.payments[sells], float(deal.payments.max()), "own"),
        *_costs(outcome),
    ]
    title = "Sellers, ε bought from each and payment to each, by reported cost"
    return (
        f'<svg class="who" viewBox="0 0 {LEFT + WIDE + 80} {ABOVE + 2 * NEXT + HIGH + 56}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg" aria-label="{escape(title)}">\n' + "\n".join(parts) + "\n</svg>"
    )


def _ends(outcome: Outcome) -> tuple[float, float]:
    return outcome.terms.prior.low, float(outcome.deal.prices.values[-1])


def _along(costs: Floats, outcome: Outcome) -> Floats:
    low, high = _ends(outcome)
    return np.asarray(LEFT + WIDE * (costs - low) / (high - low))


def _bottom(panel: int) -> float:
    return ABOVE + panel * NEXT + HIGH


def _sellers(outcome: Outcome, across: Floats) -> list[str]:
    """Bars of sellers: from whom something is bought, and on top from whom nothing is; beyond all prices, apart."""
    deal, sells = outcome.deal, ~outcome.deal.refused
    bought = deal.units[sells] > 0
    edges = np.linspace(LEFT, LEFT + WIDE, BARS + 1)
    own, other = (np.histogram(across[which], edges)[0] for which in (bought, ~bought))
    beyond = int(deal.refused.sum())
    tallest, wide = max(int((own + other).max()), beyond, 1), WIDE / BARS - 1
    bars = [_bar(x, wide, 0, n / tallest, "own") for x, n in zip(edges, own.tolist(), strict=False)]
    bars += [
        _bar(x, wide, n / tallest, m / tallest, "other")
        for x, n, m in zip(edges, own.tolist(), other.tolist(), strict=False)
    ]
    if beyond:
        right = LEFT + WIDE + 20
        bars += [_bar(right, wide, 0, beyond / tallest, "other"), _text(right - 4, _bottom(0) + 18, "above", "start")]
    return [*_axis(0, tallest, "sellers; grey: nothing is bought from them"), *(bar for bar in bars if bar)]


def _bar(x: float, wide: float, below: float, share: float, kind: str) -> str:
    top = _bottom(0) - HIGH * (below + share)
    shape = f'x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{HIGH * share:.1f}"'
    return f'<rect class="{kind}" {shape}/>' if share else ""


def _dots(panel: int, across: Floats, amounts: Floats, most: float, kind: str) -> list[str]:
    if not most:
        return []
    steps = np.rint(amounts / most * STEPS) * (HIGH / STEPS)
    places = np.unique(np.column_stack([np.rint(across), _bottom(panel) - steps]), axis=0)
    return [f'<circle class="{kind}" cx="{x:.0f}" cy="{y:.1f}" r="2.5"/>' for x, y in places.tolist()]


def _axis(panel: int, most: float, words: str) -> list[str]:
    """The frame of a panel: what it shows, and its largest number at the height where it lies."""
    bottom = _bottom(panel)
    line = f'<line x1="{LEFT}" x2="{LEFT + WIDE}" y1="{bottom}" y2="{bottom}"/>'
    told = f"{most:,}" if isinstance(most, int) else f"{most:.3g}"
    shown = [_text(LEFT - 8, bottom - HIGH + 5, told, "end"), _text(LEFT - 8, bottom + 5, "0", "end")] if most else []
    return [line, *shown, _text(LEFT, bottom - HIGH - 14, words, "start")]


def _costs(outcome: Outcome) -> list[str]:
    low, high = _ends(outcome)
    ticks: list[Any] = [low, (low + high) / 2, high]
    places = zip(ticks, _along(np.array(ticks), outcome).tolist(), strict=True)
    bottom = _bottom(2)
    words = _text(LEFT + WIDE / 2, bottom + 46, "reported cost of a unit of ε", "middle")
    return [*(_text(x, bottom + 22, f"{value:.3g}", "middle") for value, x in places), words]


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


#: The picture's part of the style sheet.
PICTURE = """\
svg.who { font: 14px Georgia, "Times New Roman", serif; }
svg.who text { fill: var(--soft); }
svg.who line { stroke: var(--line); }
svg.who .own { fill: var(--own); }
svg.who .other { fill: var(--other); }
"""

_STYLE = f"""\
th:first-child {{ white-space: nowrap; }}
{PICTURE}"""

_BODY = Template("""\
$stamp
<h1>Whose privacy is bought, and for how much</h1>
<p>$headline.</p>
<figure>
$picture
</figure>
$bands
$sentences
<p class="soft">$declared</p>
<h2>What a smaller error would have cost</h2>
<p class="soft">The same reports at other trade-offs, without a budget. The bound is a worst case over all laws of the
data: good for comparing, and often above 1. A trade-off is chosen before reports are seen; one that follows them
invites lies.</p>
<figure>
$frontier
</figure>
$points
<h2>Why the truth pays best</h2>
<p>Each part of the ε that is bought from a seller is paid the highest price at which that part would still have been
bought from them. They cannot move these prices.</p>
$why
<h2>What is not protected</h2>
<p>$caution</p>""")
