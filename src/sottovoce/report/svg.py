# SPDX-License-Identifier: Apache-2.0
"""Bars as SVG, coloured by the paper they are drawn on (STYLE goes into its style sheet): no style
of their own.

grants(budgets)    who grants how much: people by ε, without names
bars(title, lines) a name, a bar and its length in words on each line
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from sottovoce import units
from sottovoce.budgets import Budgets

#: Sizes in the picture's own units: where bars begin, how long and thick they are, a line's height,
#: room for a number.
LEFT = 230
LONGEST = 400
THICK = 20
LINE = 32
VALUE_WIDTH = 70
#: For short names, so that it can be read on a narrow window.
SHORT_LEFT = 130
SHORT_LONGEST = 190
#: More different ε than this are counted in so many steps.
MAX_GROUPS = 12

BARS_STYLE = """\
svg.bars { font-size: 14px; }
svg.bars text { fill: var(--ink); dominant-baseline: central; }
rect.own { fill: var(--own); }
rect.other { fill: var(--other); }
rect.plain { fill: none; stroke: var(--soft); stroke-dasharray: 3 3; }
line.floor { stroke: var(--soft); stroke-dasharray: 3 3; }
text.own { font-weight: bold; }
"""


@dataclass(frozen=True)
class Bar:
    """One line: a name, a length, the length in words, and whose it is: "own", "other" or "plain"
    (not private).
    """

    name: str
    length: float
    told: str
    kind: str = "other"


def draw_bars(
    title: str, lines: Sequence[Bar], *, floor: float | None = None, short: bool = False
) -> str:
    """Returns the picture, the longest bar of full length; a thin line marks the floor, which none
    goes below.
    """
    if short:
        left, most = (SHORT_LEFT, SHORT_LONGEST)
    else:
        left, most = (LEFT, LONGEST)
    longest = max(line.length for line in lines) or 1.0
    drawn = [
        _draw_bar(place, line, left, most * line.length / longest)
        for place, line in enumerate(lines)
    ]
    width = left + most + VALUE_WIDTH
    height = LINE * len(lines)
    if floor is not None:
        at = left + floor / longest * most
        drawn.append(f'<line class="floor" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height}"/>')
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>\n<svg "
        f'class="bars{" short" if short else ""}" '
        f'viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(_describe_bars(title, lines))}">\n'
        + "\n".join(drawn)
        + "\n</svg></figure>"
    )


def draw_grants(budgets: Budgets) -> str:
    """Returns how many people grant which ε; many different ones are counted in steps of equal
    ratio.
    """
    kinds = budgets.kinds
    if budgets.unit == "person":
        people = "people"
    else:
        people = "rows"
    heard = kinds.epsilon > 0
    epsilon = units.to_epsilon(kinds.epsilon[heard])
    count = kinds.people[heard]
    lines = [
        Bar(name, many, f"{many:,}", "own")
        for name, many in _count_grants(np.asarray(epsilon), count)
    ]
    return draw_bars(
        f"How many {people} grant how much (ε for each {budgets.unit}, in all)", lines, short=True
    )


def _count_grants(epsilon: np.ndarray, people: np.ndarray) -> list[tuple[str, int]]:
    different, which = np.unique(epsilon, return_inverse=True)
    if len(different) <= MAX_GROUPS:
        each = np.bincount(which, people).astype(int).tolist()
        return [
            (f"ε = {value:g}", many) for value, many in zip(different.tolist(), each, strict=True)
        ]
    edges = np.geomspace(different[0], different[-1], MAX_GROUPS + 1)
    step = np.clip(np.searchsorted(edges, epsilon, side="right") - 1, 0, MAX_GROUPS - 1)
    each = np.bincount(step, people, minlength=MAX_GROUPS).astype(int).tolist()
    return [
        (f"{low:.2g} to {high:.2g}", many)
        for low, high, many in zip(edges, edges[1:], each, strict=False)
    ]


def _draw_bar(place: int, line: Bar, left: int, length: float) -> str:
    top = place * LINE + (LINE - THICK) / 2
    width = max(length, 1)
    middle = place * LINE + LINE / 2
    kind = escape(line.kind)
    return (
        f'<text class="{kind}" x="{left - 10}" y="{middle}" '
        f'text-anchor="end">{escape(line.name)}</text>'
        f'<rect class="{kind}" x="{left}" y="{top}" width="{width:.1f}" height="{THICK}" rx="2"/>'
        f'<text class="{kind}" x="{left + width + 8:.1f}" y="{middle}">{escape(line.told)}</text>'
    )


def _describe_bars(title: str, lines: Sequence[Bar]) -> str:
    """The picture for those who cannot see it: the title, and every line of it."""
    return f"{title}: " + "; ".join(f"{line.name}, {line.told}" for line in lines)
