# SPDX-License-Identifier: Apache-2.0
"""Everything that is drawn without a library: bars, a histogram, curves and shares, as SVG.

A picture takes its colours from the page that it is on (``write_colours`` and ``PICTURE_STYLE``
belong in its style sheet), so that it is light or dark with it. One that stands alone carries both
inside. What it shows is also its label, for those who cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Every colour, in light and in dark.
COLOURS = {
    "ground": ("#fbfaf7", "#191a1c"),
    "ink": ("#23211d", "#e8e5de"),
    "soft": ("#6a655c", "#a09a8e"),
    "line": ("#dedad0", "#38383a"),
    "own": ("#1f6f78", "#5fb8c2"),
    "other": ("#b9b2a3", "#5d5a54"),
    "second": ("#a8622a", "#d99a63"),
    "stamp": ("#b3261e", "#f2857c"),
    "warn": ("#8a5a00", "#e0b25a"),
    "field": ("#ffffff", "#222426"),
}

PICTURE_STYLE = """\
svg.picture { font: 14px Georgia, "Times New Roman", serif; }
svg.picture text { fill: var(--ink); dominant-baseline: central; paint-order: stroke;
  stroke: var(--ground); stroke-width: 4px; }
svg.picture text.soft { fill: var(--soft); }
svg.picture text.own { font-weight: bold; }
svg.picture line { stroke: var(--line); }
svg.picture line.mark { stroke: var(--ink); stroke-dasharray: 3 3; }
svg.picture line.whisker { stroke: var(--ink); stroke-width: 1.5; }
svg.picture line.floor { stroke: var(--soft); stroke-dasharray: 3 3; }
svg.picture .own { fill: var(--own); }
svg.picture .other { fill: var(--other); }
svg.picture .second { fill: var(--second); }
svg.picture .left { fill: var(--line); }
svg.picture rect.plain { fill: none; stroke: var(--soft); stroke-dasharray: 3 3; }
svg.picture text.own, svg.picture text.other { fill: var(--ink); }
svg.picture polyline { fill: none; stroke-width: 1.5; }
svg.picture polyline.own { fill: none; stroke: var(--own); }
svg.picture polyline.second { fill: none; stroke: var(--second); stroke-dasharray: 5 4; }
"""

#: A letter's width, on average and with some room, and how far words stay from what they are about.
LETTER = 7.5
#: Letters that take about twice as much; those of East Asia do too.
WIDE_LETTERS = frozenset("mwMW%@—…")
GAP = 8
#: Bars: the length of the longest, their thickness, and a line's height.
BAR_LENGTH = 240
BAR_THICKNESS = 20
BAR_LINE = 32
#: A narrow picture: its width, so that all have letters of one size, and the least for bars.
NARROW_WIDTH = 380
NARROW_BAR_LENGTH = 120
#: A share: a bar that is as long as there is room.
SHARE_LENGTH = 1000
SHARE_HEIGHT = 10
#: Histograms: bars in a factor of ten; values below this part of the largest are in the first bar.
BARS_PER_DECADE = 6
SMALLEST_SHARE = 1e-6
#: The height of a line of words above a histogram.
MARK_LINE = 20
#: Ticks of an axis, both ends left out.
TICKS = 5


def write_colours(selector: str) -> str:
    """Return the part of a style sheet that names all colours, for light and for dark."""
    light, dark = (
        " ".join(f"--{name}: {values[scheme]};" for name, values in COLOURS.items())
        for scheme in (0, 1)
    )
    return (
        f"{selector} {{ {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ {selector} {{ {dark} }} }}\n"
    )


def measure_text(words: str) -> float:
    """Returns about how wide some words are drawn, rather too wide than too narrow."""
    wide = sum(letter in WIDE_LETTERS or east_asian_width(letter) in "WF" for letter in words)
    return LETTER * (len(words) + wide)


class Picture:
    """A drawing of bars, lines, dots and words, in units of its own; ``name`` is a class for style
    sheets.
    """

    def __init__(self, name: str, width: float, height: float) -> None:
        self.name = name
        self.width = width
        self.height = height
        self._parts: list[str] = []

    def add_bar(self, x: float, y: float, width: float, height: float, kind: str = "own") -> None:
        """Add a bar with its upper left corner at (x, y)."""
        self._parts.append(
            f'<rect class="{escape(kind)}" x="{x:.1f}" y="{y:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}"/>'
        )

    def add_line(self, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
        """Add a straight line, of kind "axis", "mark" or "floor"."""
        self._parts.append(
            f'<line class="{escape(kind)}" x1="{start[0]:.1f}" x2="{end[0]:.1f}" '
            f'y1="{start[1]:.1f}" y2="{end[1]:.1f}"/>'
        )

    def add_dot(self, x: float, y: float, kind: str, radius: float) -> None:
        """Add a dot."""
        self._parts.append(
            f'<circle class="{escape(kind)}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'
        )

    def add_polyline(self, places: Sequence[Sequence[float]], kind: str) -> None:
        """Add a line through places."""
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        self._parts.append(f'<polyline class="{escape(kind)}" points="{points}"/>')

    def add_curve(self, places: Sequence[Sequence[float]], kind: str) -> None:
        """Add a line through places, with a dot at each."""
        self.add_polyline(places, kind)
        for x, y in places:
            self.add_dot(x, y, kind, 4)

    def add_text(
        self, x: float, y: float, words: str, anchor: str = "start", kind: str = "soft"
    ) -> None:
        """Add words, of which (x, y) is the start, middle or end, half way up."""
        self._parts.append(
            f'<text class="{escape(kind)}" x="{x:.1f}" y="{y:.1f}" '
            f'text-anchor="{escape(anchor)}">{escape(words)}</text>'
        )

    def add_label(self, x: float, y: float, words: str, away: float) -> None:
        """Add words beside a place: to its right, or to its left where there is no space."""
        if self.has_space(x, words, away):
            self.add_text(x + away, y, words, "start", "")
        else:
            self.add_text(x - away, y, words, "end", "")

    def has_space(self, x: float, words: str, away: float) -> bool:
        """Return whether words to the right of a place end within the picture."""
        return x + away + measure_text(words) <= self.width

    def to_svg(self, label: str, *, standalone: bool = False, stretch: bool = False) -> str:
        """Return the drawing. ``label`` says what it shows to those who cannot see it; what stands
        alone carries its own style; what stretches becomes as wide as there is room.
        """
        options = ' preserveAspectRatio="none"' * stretch
        style = ""
        if standalone:
            style = f"<style>{write_colours('svg.picture')}{PICTURE_STYLE}</style>\n"
        body = "\n".join(self._parts)
        return (
            f'<svg class="picture {escape(self.name)}" '
            f'viewBox="0 0 {self.width:g} {self.height:g}"{options} role="img" '
            f'xmlns="http://www.w3.org/2000/svg" aria-label="{escape(label)}">\n'
            f"{style}{body}\n</svg>"
        )


@dataclass(frozen=True)
class Axes:
    """A field of a picture, and the numbers at its ends: across and upwards."""

    left: float
    top: float
    width: float
    height: float
    across: tuple[float, float]
    up: tuple[float, float]

    @property
    def bottom(self) -> float:
        """Where the lower end is."""
        return self.top + self.height

    @property
    def right(self) -> float:
        """Where the right end is."""
        return self.left + self.width

    def scale_x(self, value: Any) -> Any:
        """Return where a number, or each of an array, lies across."""
        low, high = self.across
        return self.left + self.width * (value - low) / (high - low)

    def scale_y(self, value: Any) -> Any:
        """Return where a number, or each of an array, lies upwards."""
        low, high = self.up
        return self.bottom - self.height * (value - low) / (high - low)

    def draw_across(self, picture: Picture, ticks: Mapping[float, str], words: str) -> None:
        """Draw numbers below the field, and below them what they are."""
        for value, number in ticks.items():
            x = self.scale_x(value)
            picture.add_line((x, self.bottom), (x, self.bottom + 5), "axis")
            picture.add_text(x, self.bottom + 17, number, "middle")
        picture.add_text(self.left + self.width / 2, self.bottom + 41, words, "middle")

    def draw_up(self, picture: Picture, ticks: Mapping[float, str], words: str) -> None:
        """Draw lines across the field with their numbers, its lower end, and above what they
        are.
        """
        picture.add_line((self.left, self.bottom), (self.right, self.bottom), "axis")
        for value, number in ticks.items():
            y = self.scale_y(value)
            picture.add_line((self.left, y), (self.right, y), "axis")
            picture.add_text(self.left - GAP, y, number, "end")
        picture.add_text(self.left, self.top - 18, words)


@dataclass(frozen=True)
class Bar:
    """One line: a name, a length, the length in words, whose it is ("own", "other" or "plain", not
    private), and the part of it that is coloured as "own".
    """

    name: str
    length: float
    value: str
    kind: str = "other"
    part: float | None = None


def draw_bars(
    title: str, bars: Sequence[Bar], *, floor: float | None = None, narrow: bool = False
) -> str:
    """Return a name, a bar and its length in words on each line, the longest bar of full length; a
    thin line marks the floor, which none goes below. A narrow one fits a narrow window as it is.
    """
    left = max(measure_text(bar.name) for bar in bars) + GAP
    right = max(measure_text(bar.value) for bar in bars) + GAP
    full: float = BAR_LENGTH
    name = "bars"
    if narrow:
        full = max(NARROW_WIDTH - left - right, NARROW_BAR_LENGTH)
        name = "bars compact"
    several_kinds = len({bar.kind for bar in bars}) > 1
    longest = max(bar.length for bar in bars) or 1.0
    picture = Picture(name, left + full + right, BAR_LINE * len(bars))
    for place, bar in enumerate(bars):
        middle = place * BAR_LINE + BAR_LINE / 2
        top = middle - BAR_THICKNESS / 2
        length = max(full * bar.length / longest, 1)
        kind = bar.kind * several_kinds  # words stand out only beside others
        picture.add_text(left - GAP, middle, bar.name, "end", kind)
        picture.add_bar(left, top, length, BAR_THICKNESS, bar.kind)
        if bar.part is not None:
            picture.add_bar(left, top, length * bar.part, BAR_THICKNESS, "own")
        picture.add_text(left + length + GAP, middle, bar.value, "start", kind)
    if floor is not None:
        at = left + full * floor / longest
        picture.add_line((at, 0), (at, picture.height), "floor")
    return picture.to_svg(f"{title}: " + "; ".join(f"{bar.name}, {bar.value}" for bar in bars))


def draw_interval_parts(
    title: str, lines: Sequence[tuple[str, str, float, float]], names: tuple[str, str]
) -> str:
    """Return on each line a name, two bars one above the other (half the width that each of two
    parts alone would have), and words; each line has a scale of its own, its longer bar of full
    length.
    """
    left = max(measure_text(line[0]) for line in lines) + GAP
    right = max(measure_text(line[1]) for line in lines) + GAP
    full = max(NARROW_WIDTH - left - right, NARROW_BAR_LENGTH)
    picture = Picture("bars compact", left + full + right, BAR_LINE * (len(lines) + 1))
    thickness = BAR_THICKNESS / 2
    for place, (name, words, *sizes) in enumerate(lines):
        middle = place * BAR_LINE + BAR_LINE / 2
        longest = max(sizes) or 1.0
        picture.add_text(left - GAP, middle, name, "end", "")
        for size, kind, top in zip(
            sizes, ("own", "second"), (middle - thickness, middle), strict=True
        ):
            picture.add_bar(left, top, max(full * size / longest, 1), thickness, kind)
        picture.add_text(left + full + GAP, middle, words, "start", "")
    bottom = len(lines) * BAR_LINE + BAR_LINE / 2
    at = left
    for name, kind in zip(names, ("own", "second"), strict=True):
        picture.add_bar(at, bottom - thickness / 2, thickness, thickness, kind)
        picture.add_text(at + thickness + GAP, bottom, name, "start", "")
        at += thickness + 2 * GAP + measure_text(name)
    return picture.to_svg(f"{title}: " + "; ".join(f"{name}, {words}" for name, words, *_ in lines))


@dataclass(frozen=True)
class WhiskerBar:
    """One line of a released table: a name, a value, both in words, and the ends of its interval
    where there is one.
    """

    name: str
    value: float
    words: str
    low: float | None = None
    high: float | None = None


def draw_whisker_bars(title: str, bars: Sequence[WhiskerBar], *, alone: bool = False) -> str:
    """Return a bar on each line from zero to its value, with a thin line from one end of its
    interval to the other; one that stands alone carries its own style.
    """
    left = max((measure_text(bar.name) for bar in bars), default=LETTER) + GAP
    right = max((measure_text(bar.words) for bar in bars), default=LETTER) + GAP
    reached = [0.0]
    for bar in bars:
        reached += [end for end in (bar.value, bar.low, bar.high) if end is not None]
    lowest = min(reached)
    width = (max(reached) - lowest) or 1.0
    full = max(NARROW_WIDTH - left - right, NARROW_BAR_LENGTH)
    scale = full / width
    picture = Picture("bars compact", left + full + right, BAR_LINE * max(len(bars), 1))
    zero = left - lowest * scale
    for place, bar in enumerate(bars):
        middle = place * BAR_LINE + BAR_LINE / 2
        start = min(zero, zero + bar.value * scale)
        picture.add_text(left - GAP, middle, bar.name, "end", "")
        picture.add_bar(
            start, middle - BAR_THICKNESS / 2, max(abs(bar.value) * scale, 1), BAR_THICKNESS, "own"
        )
        if bar.low is not None and bar.high is not None:
            ends = (zero + bar.low * scale, zero + bar.high * scale)
            picture.add_line((ends[0], middle), (ends[1], middle), "whisker")
            for end in ends:
                picture.add_line((end, middle - GAP / 2), (end, middle + GAP / 2), "whisker")
        picture.add_text(left + full + GAP, middle, bar.words, "start", "")
    told = "; ".join(f"{bar.name}, {bar.words}" for bar in bars)
    return picture.to_svg(f"{title}: {told}", standalone=alone)


def draw_share(share: float, label: str) -> str:
    """Return one bar as long as there is room, coloured as far as ``share``, from 0 to 1."""
    picture = Picture("share", SHARE_LENGTH, SHARE_HEIGHT)
    picture.add_bar(0, 0, SHARE_LENGTH, SHARE_HEIGHT, "left")
    picture.add_bar(0, 0, SHARE_LENGTH * share, SHARE_HEIGHT, "own")
    return picture.to_svg(label, stretch=True)


def draw_histogram(
    values: NDArray[np.float64],
    marks: Mapping[str, float],
    label: str,
    *,
    unit: str,
    across: str,
    standalone: bool = False,
) -> str:
    """Return how many values lie where on a logarithmic axis, with words at the numbers of
    ``marks``. What is not finite, and marks that are not positive, are not shown.
    """
    import numpy as np

    finite = values[np.isfinite(values)]
    shown = {words: value for words, value in marks.items() if 0 < value < math.inf}
    low, high = _choose_decades([*finite[finite > 0].tolist(), *shown.values()])
    powers = np.log10(np.clip(finite, 10.0**low, 10.0**high))
    counts, edges = np.histogram(powers, np.linspace(low, high, (high - low) * BARS_PER_DECADE + 1))
    tallest = max(int(counts.max(initial=0)), 1)
    axes = Axes(50, 30 + MARK_LINE * len(shown), 400, 200, (low, high), (0, tallest))
    picture = Picture("histogram", axes.right + 30, axes.bottom + 56)
    axes.draw_up(picture, {tallest: f"{tallest:,}", 0: "0"}, unit)
    for count, start, end in zip(counts.tolist(), edges[:-1], edges[1:], strict=True):
        if count:
            height = max(axes.bottom - axes.scale_y(count), 1.5)
            width = axes.scale_x(end) - axes.scale_x(start) - 1
            picture.add_bar(axes.scale_x(start), axes.bottom - height, width, height)
    axes.draw_across(picture, {p: _format_power(p) for p in range(low, high + 1)}, across)
    _draw_marks(picture, axes, shown)
    return picture.to_svg(label, standalone=standalone)


def _choose_decades(values: list[float]) -> tuple[int, int]:
    """Return whole powers of ten around all values, not more than six below the largest."""
    most = max(values, default=1.0)
    least = max(min(values, default=1.0), most * SMALLEST_SHARE)
    high = math.ceil(math.log10(most) + 1e-9)
    return min(math.floor(math.log10(least)), high - 1), high


def _format_power(power: int) -> str:
    if power >= 0:
        return f"{10**power:,}"
    return f"{10.0**power:.{-power}f}"


def _draw_marks(picture: Picture, axes: Axes, marks: Mapping[str, float]) -> None:
    """Draw each mark with a line of words of its own, over all dashes, so that none covers
    another. Words to the left of their mark are above those of marks further left.
    """
    low, high = axes.across
    across = {
        words: axes.scale_x(min(max(math.log10(value), low), high))
        for words, value in marks.items()
    }
    to_the_left = [words for words, x in across.items() if not picture.has_space(x, words, 4)]
    to_the_left.sort(key=lambda words: -across[words])
    others = [words for words in across if words not in to_the_left]
    places = {
        words: (across[words], 11 + MARK_LINE * line)
        for line, words in enumerate([*to_the_left, *others])
    }
    for x, y in places.values():
        picture.add_line((x, y - 6), (x, axes.bottom), "mark")
    for words, (x, y) in places.items():
        picture.add_label(x, y, words, 4)


def draw_curves(
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    label: str,
    *,
    across: str,
    up: str,
    standalone: bool = False,
) -> str:
    """Return curves of positive numbers, across and up, on logarithmic axes; those with a name are
    dashed, and named where they begin.
    """
    import numpy as np

    logs = [(name, np.log10(np.array(places))) for name, places in curves if places]
    ends = [(0.0, 1.0), (0.0, 1.0)]
    if logs:
        ends = [_widen(column) for column in np.concatenate([log for _, log in logs]).T]
    axes = Axes(70, 32, 390, 240, *ends)
    picture = Picture("curves", axes.right + 20, axes.bottom + 56)
    if logs:
        axes.draw_up(picture, _choose_ticks(axes.up), up)
        axes.draw_across(picture, _choose_ticks(axes.across), across)
    lines: list[float] = []
    for name, log in logs:
        places = np.column_stack([axes.scale_x(log[:, 0]), axes.scale_y(log[:, 1])]).tolist()
        if name:
            picture.add_curve(places, "second")
            _name_curve(picture, name, places[0], lines)
        else:
            picture.add_curve(places, "own")
    return picture.to_svg(label, standalone=standalone)


def draw_distribution(
    values: Sequence[float],
    ranks: Sequence[float],
    reaches: Sequence[float],
    label: str,
    *,
    across: str,
) -> str:
    """Return a curve that rises from 0 to 1 through values and their ranks, from the lower bound to
    the upper one, and dashed how far ranks reach on either side.
    """
    low = values[0]
    high = values[-1]
    axes = Axes(60, 32, 400, 220, (low, high), (0.0, 1.0))
    picture = Picture("curves", axes.right + 30, axes.bottom + 56)
    axes.draw_up(picture, {0.0: "0", 0.5: "0.5", 1.0: "1"}, "share of the rows at or below")
    ticks = choose_round_ticks(low, high)
    axes.draw_across(picture, {value: f"{value:,.6g}" for value in ticks}, across)
    for side in (-1, 1):
        picture.add_polyline(
            [
                (axes.scale_x(value), axes.scale_y(min(max(rank + side * reach, 0.0), 1.0)))
                for value, rank, reach in zip(values, ranks, reaches, strict=True)
            ],
            "second",
        )
    picture.add_polyline(
        [
            (axes.scale_x(value), axes.scale_y(rank))
            for value, rank in zip(values, ranks, strict=True)
        ],
        "own",
    )
    return picture.to_svg(label)


def _widen(values: NDArray[np.float64]) -> tuple[float, float]:
    low = float(values.min())
    high = float(values.max())
    room = max(0.05 * (high - low), 0.05)
    return low - room, high + room


def _choose_ticks(ends: tuple[float, float]) -> dict[float, str]:
    low, high = ends
    decades = range(math.floor(low), math.ceil(high) + 1)
    # Fewer and fewer numbers of each decade, until there are not too many.
    for leads in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        found = [decade + math.log10(lead) for decade in decades for lead in leads]
        inner = [value for value in found if low <= value <= high]
        if len(inner) <= TICKS:
            break
    inner = inner[:: math.ceil(len(inner) / TICKS) or 1]
    if len(inner) < 2:  # within a few percent of one number
        step = (high - low) / (TICKS - 1)
        inner = [low + step * place for place in range(1, TICKS - 1)]
    return {value: _format_tick(10**value) for value in inner}


def choose_round_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two ends, at most six of them.

    >>> choose_round_ticks(0, 20000), choose_round_ticks(18, 100)
    ([0.0, 5000.0, 10000.0, 15000.0, 20000.0], [20.0, 40.0, 60.0, 80.0, 100.0])
    """
    width = high - low
    power = 10.0 ** math.floor(math.log10(width))
    step = next(
        size * power / 10
        for size in (1, 2, 2.5, 5, 10, 20, 25, 50)
        if width * 10 <= 5.5 * size * power
    )
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [place * step for place in range(first, last + 1)]


def _format_tick(number: float) -> str:
    short = f"{number:.3g}"
    if number >= 1000:
        return f"{float(short):,.0f}"
    return short


def _name_curve(picture: Picture, name: str, start: Sequence[float], lines: list[float]) -> None:
    """Write a name beside a curve's first place, above those that stand on the same line."""
    x, y = start
    y -= 12
    while any(abs(y - line) < MARK_LINE - 4 for line in lines):
        y -= MARK_LINE - 4
    lines.append(y)
    picture.add_label(x, y, name, 10)
