# SPDX-License-Identifier: Apache-2.0
"""What a smaller error costs: the outcomes of one market at several trade-offs, as a table and as a picture.

Other frontiers can be set beside it, each with a name: other caps, other laws, another mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape

import numpy as np

#: The picture in its own units: margins, the field, and room for words.
LEFT, WIDE, HIGH, ABOVE, BELOW = 70, 560, 260, 24, 56

STYLE = """\
svg.frontier { --ink: #23211d; --soft: #6a655c; --line: #dedad0; --own: #1f6f78;
  --other: #a8622a; font: 14px Georgia, "Times New Roman", serif; }
@media (prefers-color-scheme: dark) {
  svg.frontier { --ink: #e8e5de; --soft: #a09a8e; --line: #38383a; --own: #5fb8c2; --other: #d99a63; }
}
svg.frontier text { fill: var(--soft); }
svg.frontier polyline { stroke: var(--own); fill: none; stroke-width: 1.5; }
svg.frontier circle { fill: var(--own); }
svg.frontier polyline.other { stroke: var(--other); stroke-dasharray: 5 4; }
svg.frontier circle.other { fill: var(--other); }
svg.frontier line { stroke: var(--line); }"""


@dataclass(frozen=True)
class Point:
    """The outcome at one trade-off."""

    trade_off: float
    expected_error: float
    payment: float
    total_epsilon: float


@dataclass(frozen=True)
class Frontier:
    """Outcomes at several trade-offs, in the order in which they were asked for."""

    points: tuple[Point, ...]
    others: tuple[tuple[str, Frontier], ...] = ()

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)

    def beside(self, name: str, other: Frontier) -> Frontier:
        """Returns the same with another frontier beside it, in the table and in the picture."""
        return replace(self, others=(*self.others, (name, other)))

    def describe(self) -> str:
        """The table in words."""
        lines = [f"{'trade-off':>12} {'error bound':>12} {'payment':>12} {'total ε':>12}", *map(_line, self.points)]
        for name, other in self.others:
            lines += [f"{name}:", *map(_line, other.points)]
        return "\n".join(lines)

    def svg(self) -> str:
        """Returns the picture: payments along, bounds on the error upwards, both on logarithmic axes."""
        curves = [("", _logarithms(self)), *((name, _logarithms(other)) for name, other in self.others)]
        title = "What a smaller bound on the error costs, on logarithmic axes"
        return (
            f'<svg class="frontier" viewBox="0 0 {LEFT + WIDE + 30} {ABOVE + HIGH + BELOW}" role="img" '
            f'xmlns="http://www.w3.org/2000/svg" aria-label="{escape(title)}">\n<style>{STYLE}</style>\n'
            + "\n".join(_drawn([(name, places) for name, places in curves if places]))
            + "\n</svg>"
        )


def _line(p: Point) -> str:
    return f"{p.trade_off:12.4g} {p.expected_error:12.4g} {p.payment:12.6g} {p.total_epsilon:12.6g}"


def _logarithms(frontier: Frontier) -> list[tuple[float, float]]:
    """Returns what can be shown on logarithmic axes, by payment: whoever buys nothing has no place there."""
    shown = sorted((p.payment, p.expected_error) for p in frontier.points if p.payment > 0 and p.expected_error > 0)
    return [(math.log10(x), math.log10(y)) for x, y in shown if math.isfinite(y)]


def _drawn(curves: list[tuple[str, list[tuple[float, float]]]]) -> list[str]:
    if not curves:
        return []
    across, up = (_ends([p[axis] for _, places in curves for p in places]) for axis in (0, 1))
    return [*_axes(across, up), *(_curve(name, places, across, up) for name, places in curves)]


def _curve(name: str, shown: list[tuple[float, float]], across: tuple[float, float], up: tuple[float, float]) -> str:
    """Returns one curve; those beside the first are dashed and named at their last place."""
    places = [(LEFT + WIDE * _along(x, across), ABOVE + HIGH * (1 - _along(y, up))) for x, y in shown]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    kind = ' class="other"' if name else ""
    dots = "\n".join(f'<circle{kind} cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in places)
    x, y = places[-1]
    word = f'\n<text x="{x:.1f}" y="{y - 10:.1f}" text-anchor="end">{escape(name)}</text>' if name else ""
    return f'<polyline{kind} points="{line}"/>\n{dots}{word}'


def _ends(values: list[float]) -> tuple[float, float]:
    room = max(0.05 * (max(values) - min(values)), 0.05)
    return min(values) - room, max(values) + room


def _along(value: float, ends: tuple[float, float]) -> float:
    return (value - ends[0]) / (ends[1] - ends[0])


def _axes(across: tuple[float, float], up: tuple[float, float]) -> list[str]:
    bottom = ABOVE + HIGH
    parts = [f'<line x1="{LEFT}" x2="{LEFT + WIDE}" y1="{bottom}" y2="{bottom}"/>']
    for value in np.linspace(*across, 5)[1:-1]:
        x = LEFT + WIDE * _along(float(value), across)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 22}" text-anchor="middle">{10**value:.3g}</text>')
    for value in np.linspace(*up, 5)[1:-1]:
        y = ABOVE + HIGH * (1 - _along(float(value), up))
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDE}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">{10**value:.3g}</text>')
    words = f'<text x="{LEFT + WIDE / 2}" y="{bottom + 46}" text-anchor="middle">all payments together</text>'
    return [*parts, words, f'<text x="{LEFT - 8}" y="{ABOVE - 8}" text-anchor="start">bound on the error</text>']
