# SPDX-License-Identifier: Apache-2.0
"""Figures in one house style, as PNG and SVG; matplotlib is imported when the first one is drawn.

Ours are lines and bands, what was published are open marks of the same colour. Colours tell methods
apart for readers who see no red or green too, and dashes do where there are none. In the report,
ink takes the colour of the page.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sottovoce.errors import InvalidParameter
from sottovoce.papers.results import Figure, Panel, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

#: Colour, dashes and mark of each role, after Okabe and Ito: middle tones that suit light and dark.
ROLES: dict[str, tuple[str, Any, str]] = {
    "pdp_op": ("#0f7fb5", "solid", "o"),
    "uniform": ("#7a7a7a", (0, (1, 1.5)), "s"),
    "jorgensen_max": ("#d57a00", (0, (5, 2)), "^"),
    "jorgensen_mean": ("#b0569b", (0, (2, 1.5)), "D"),
}
#: Roles that are not listed take these in turn.
SPARE: tuple[tuple[str, Any, str], ...] = (
    ("#0f7fb5", "solid", "o"),
    ("#d57a00", (0, (5, 2)), "^"),
    ("#2a9d76", (0, (2, 1.5)), "D"),
    ("#b0569b", (0, (1, 1.5)), "s"),
    ("#7a7a7a", (0, (7, 2, 1, 2)), "v"),
)
#: Text and axes; in the report this very colour is replaced by that of the page's ink.
INK = "#24221e"
GROUND = "#ffffff"
#: Inches of one panel, most panels side by side, and dots an inch of a PNG.
WIDE = 4.4
HIGH = 3.1
ACROSS = 2
DOTS = 160
#: Inches at the sides of all panels and for the legend, and gaps between panels, beside and below,
#: as shares of one. They are fixed, because finding them for each figure takes longer than drawing
#: it.
LEFT = 0.68
RIGHT = 0.12
ABOVE = 0.3
BELOW = 0.5
LEGEND = 0.72
GAPS = (0.24, 0.36)
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "sottovoce",
}
#: A logarithmic axis is short if its ends differ by less than this factor.
SHORT_AXIS = 60.0
#: Where a short logarithmic axis has labels, in each power of ten.
BETWEEN = (1.0, 2.0, 3.0, 5.0)
#: How faint a band and the lines of the grid are.
BAND = 0.16
GRID = 0.18


def draw_figure(figure: Figure) -> tuple[bytes, bytes]:
    """Returns the figure as PNG and as SVG, the same bytes for the same figure."""
    require_matplotlib()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    with matplotlib.rc_context(STYLE):
        across = min(len(figure.panels), ACROSS)
        down = -(-len(figure.panels) // across)
        wide = WIDE * across
        high = HIGH * down + LEGEND
        canvas = Canvas(figsize=(wide, high), facecolor=GROUND)
        canvas.subplots_adjust(
            LEFT / wide, (BELOW + LEGEND) / high, 1 - RIGHT / wide, 1 - ABOVE / high, *GAPS
        )
        FigureCanvasAgg(canvas)
        axes = canvas.subplots(down, across, squeeze=False).ravel()
        for panel, place in zip(figure.panels, axes, strict=False):
            _draw_panel(place, panel)
        for place in axes[len(figure.panels) :]:
            place.set_visible(False)
        handles, names = axes[0].get_legend_handles_labels()
        canvas.legend(
            handles, names, loc="lower center", ncols=_count_legend_columns(figure, across)
        )
        png = io.BytesIO()
        svg = io.BytesIO()
        canvas.savefig(png, format="png", dpi=DOTS, metadata={"Software": None})
        canvas.savefig(
            svg,
            format="svg",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return png.getvalue(), svg.getvalue()


def inline_svg(svg: bytes, title: str, key: str) -> str:
    """Returns an SVG fit to stand inside a page: no address in it, names of its own, ink and ground
    of the page.
    """
    text = svg.decode("utf-8")
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'((?:id="|href="#|url\(#))', rf"\g<1>{key}-", text)
    text = re.sub(r'(<svg\b[^>]*?)\s+width="[^"]*"', r"\1", text, count=1)
    text = re.sub(
        r'(<svg\b[^>]*?)\s+height="[^"]*"', rf'\1 role="img" aria-label="{title}"', text, count=1
    )
    text = text.replace("*{stroke", f"#{key}-figure_1 *{{stroke")
    return text.replace(INK, "currentColor").replace(f"fill: {GROUND}", "fill: none").strip()


def require_matplotlib() -> None:
    """Refuses, and says what to install, where nothing can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        missing = True
    else:
        missing = False
    if missing:
        raise InvalidParameter(
            "Figures cannot be drawn: matplotlib is not installed.",
            "It is an extra of this package.",
            "Install it with: pip install 'sottovoce[reproduce]'.",
        )


def _count_legend_columns(figure: Figure, across: int) -> int:
    """One column of the legend for each role, as far as there is room."""
    return min(len({series.role for series in figure.panels[0].series}), 2 * across)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.x_name)
    axes.set_ylabel(panel.y_name)
    axes.set_xscale("log" if panel.log_x else "linear")
    axes.set_yscale("log" if panel.log_y else "linear")
    if panel.log_x:
        _set_ticks(axes.xaxis, [x for series in panel.series for x in series.x])
    if panel.log_y:
        _set_ticks(axes.yaxis, [y for series in panel.series for y in (*series.y, *series.top)])
    axes.grid(True, which="major", alpha=GRID, linewidth=0.6, color=INK)
    roles = list(dict.fromkeys(series.role for series in panel.series))
    for series in panel.series:
        _draw_series(
            axes, series, ROLES.get(series.role) or SPARE[roles.index(series.role) % len(SPARE)]
        )


def _set_ticks(axis: Axis, values: Sequence[float]) -> None:
    """Labels a logarithmic axis in plain text: 0.02, 0.03, 0.05 where it is short, else 10⁻²
    alone.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    short = max(values) < SHORT_AXIS * min(values)
    axis.set_major_locator(LogLocator(10, subs=BETWEEN if short else (1.0,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}" if short else _format_power(value))


def _format_power(value: float) -> str:
    """Returns a power of ten.

    >>> _format_power(0.001), _format_power(100.0)
    ('10⁻³', '10²')
    """
    return "10" + f"{round(math.log10(value))}".translate(
        str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    )


def _draw_series(axes: Axes, series: Series, look: tuple[str, Any, str]) -> None:
    colour, dashes, mark = look
    if series.kind == "band":
        axes.fill_between(
            series.x, series.y, series.top, color=colour, alpha=BAND, linewidth=0, label=series.name
        )
    elif series.kind == "marks":
        axes.plot(
            series.x,
            series.y,
            mark,
            color=colour,
            markerfacecolor="none",
            markersize=5,
            label=series.name,
        )
    else:
        axes.plot(series.x, series.y, color=colour, linestyle=dashes, label=series.name)
