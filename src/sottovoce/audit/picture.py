# SPDX-License-Identifier: Apache-2.0
"""Losses as a histogram on a logarithmic axis, with the worst record and the promise, as SVG."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Floats
from sottovoce.audit.confidential import STAMP

if TYPE_CHECKING:
    from sottovoce.audit.instance_losses import PerInstance


#: The picture in its own units: margins, the field of bars, and room for words above and below.
LEFT = 60
WIDE = 600
HIGH = 200
ABOVE = 74
BELOW = 56
#: How long a mark's words are, at most.
MARK_MARGIN = 95
#: Bars in a factor of ten; losses below this share of the largest number shown are in the first
#: bar.
BARS = 6
SMALLEST = 1e-6

STYLE = """\
svg.losses { --ink: #23211d; --soft: #6a655c; --line: #dedad0; --own: #1f6f78; --ground: #fbfaf7;
  font: 14px Georgia, "Times New Roman", serif; }
@media (prefers-color-scheme: dark) {
  svg.losses { --ink: #e8e5de; --soft: #a09a8e; --line: #38383a; --own: #5fb8c2;
    --ground: #191a1c; }
}
svg.losses text { fill: var(--ink); paint-order: stroke; stroke: var(--ground); stroke-width: 4px; }
svg.losses text.soft { fill: var(--soft); }
svg.losses rect { fill: var(--own); }
svg.losses line { stroke: var(--line); }
svg.losses line.mark { stroke: var(--ink); stroke-dasharray: 3 3; }"""


def draw_audit(audit: PerInstance) -> str:
    """Return the picture of an audit's rows."""
    summary = audit.summary()
    if summary.promised is None:
        promised = None
    else:
        promised = summary.promised[1]
    return draw_losses(np.asarray(audit.epsilon), summary.for_all, promised)


def draw_losses(
    losses: Floats, for_all: float | None, promised: float | None, unit: str = "rows"
) -> str:
    """Returns the picture: how many at which ε, and marks for the median, the worst record and the
    promise.
    """
    finite = losses[np.isfinite(losses)]
    marks = {"median": find_median(losses), "any record": for_all, "promised": promised}
    shown = {
        name: value for name, value in marks.items() if value is not None and 0 < value < math.inf
    }
    low, high = _choose_decades(finite, list(shown.values()))
    powers = np.log10(np.clip(finite, 10.0**low, 10.0**high))
    counts, edges = np.histogram(powers, np.linspace(low, high, (high - low) * BARS + 1))
    words = _draw_labels(int(counts.max(initial=0)), unit)
    parts = [
        _draw_bars(counts, edges, low, high),
        _draw_axis(low, high),
        _draw_marks(shown, low, high),
        words,
    ]
    title = f"How many {unit} lost how much, as ε on a logarithmic axis ({STAMP})"
    return (
        f'<svg class="losses" viewBox="0 0 {LEFT + WIDE + 40} {ABOVE + HIGH + BELOW}" role="img" '
        'xmlns="http://www.w3.org/2000/svg" '
        f'aria-label="{escape(title)}">\n<style>{STYLE}</style>\n' + "\n".join(parts) + "\n</svg>"
    )


def find_median(losses: Floats) -> float:
    """The median, one of the losses themselves."""
    return float(np.quantile(losses, 0.5, method="inverted_cdf"))


def _choose_decades(losses: Floats, marks: list[float]) -> tuple[int, int]:
    """Whole powers of ten around everything that is shown, not more than six below the largest."""
    if marks or (losses > 0).any():
        everything = np.array([*losses[losses > 0].tolist(), *marks])
    else:
        everything = np.ones(1)
    most = float(everything.max())
    high = math.ceil(math.log10(most) + 1e-9)
    return min(
        math.floor(math.log10(max(float(everything.min()), most * SMALLEST))), high - 1
    ), high


def _scale_x(value: float, low: int, high: int) -> float:
    return LEFT + WIDE * (min(max(value, low), high) - low) / (high - low)


def _draw_bars(counts: NDArray[np.int64], edges: Floats, low: int, high: int) -> str:
    tallest = max(int(counts.max(initial=0)), 1)
    bars = []
    for count, left, right in zip(counts.tolist(), edges[:-1], edges[1:], strict=True):
        if count:
            height = max(HIGH * count / tallest, 1.5)
            x = _scale_x(left, low, high)
            width = _scale_x(right, low, high) - _scale_x(left, low, high) - 1
            bars.append(
                f'<rect x="{x:.1f}" y="{ABOVE + HIGH - height:.1f}" width="{width:.1f}" '
                f'height="{height:.1f}"/>'
            )
    return "\n".join(bars)


def _draw_axis(low: int, high: int) -> str:
    bottom = ABOVE + HIGH
    lines = [f'<line x1="{LEFT}" x2="{LEFT + WIDE}" y1="{bottom}" y2="{bottom}"/>']
    for power in range(low, high + 1):
        x = _scale_x(power, low, high)
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}"/>')
        lines.append(
            f'<text class="soft" x="{x:.1f}" y="{bottom + 22}" '
            f'text-anchor="middle">{_format_power(power)}</text>'
        )
    words = "ε, each step is ten times more"
    x = LEFT + WIDE / 2
    lines.append(
        f'<text class="soft" x="{x}" y="{bottom + 46}" text-anchor="middle">{words}</text>'
    )
    return "\n".join(lines)


def _format_power(power: int) -> str:
    if power >= 0:
        return f"{10**power:,}"
    return f"{10.0**power:.{-power}f}"


def _draw_marks(marks: dict[str, float], low: int, high: int) -> str:
    """Each mark has a line of words of its own, over all dashes, so that none covers another."""
    dashes = []
    words = []
    for line, (name, value) in enumerate(marks.items()):
        x = _scale_x(math.log10(value), low, high)
        y = 16 + 20 * line
        if x > LEFT + WIDE - MARK_MARGIN:
            side, away = ("end", -4)
        else:
            side, away = ("start", 4)
        dashes.append(
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 10}" y2="{ABOVE + HIGH}"/>'
        )
        words.append(
            f'<text x="{x + away:.1f}" y="{y}" text-anchor="{side}">{escape(name)}: ε = '
            f"{value:.3g}</text>"
        )
    return "\n".join([*dashes, *words])


def _draw_labels(tallest: int, unit: str) -> str:
    return (
        f'<text class="soft" x="{LEFT - 8}" y="{ABOVE + 12}" text-anchor="end">{tallest:,}</text>'
        f'<text class="soft" x="{LEFT - 8}" y="{ABOVE + 30}" '
        f'text-anchor="end">{escape(unit)}</text>'
    )
