# SPDX-License-Identifier: Apache-2.0
"""What an experiment hands back: tables with ours beside what was printed, figures to draw, and
sentences.

Everything is a frozen value that survives a trip through JSON, so that a finished experiment is
kept and not computed again. A cell that is off by more than a tenth must have its reason:
`unexplained` lists those without.

Figures in one house style, as PNG and SVG; matplotlib is imported when the first one is drawn.

Ours are lines and bands, what was published are open marks of the same colour. Colours tell methods
apart for readers who see no red or green too, and dashes do where there are none. In the report,
ink takes the colour of the page.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sottovoce.errors import InvalidParameter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Numbers = tuple[float | None, ...]
#: How far ours may be from print before a sentence must say why, and the stricter mark that is also
#: counted.
DEVIATION_LIMIT = 0.10
CLOSE_LIMIT = 0.05
#: Raised whenever what is stored changes its meaning, so that old files are not taken for new ones.
FORMAT = "sottovoce.outcome/1"


@dataclass(frozen=True)
class ResultColumn:
    """One quantity, line by line.

    ``published`` and ``falls_at`` are empty where there is nothing to compare with.

    ``falls_at`` is the share of our draws that lie below the published number.
    """

    name: str
    ours: Numbers
    published: Numbers = ()
    falls_at: Numbers = ()

    def ratios(self) -> Numbers:
        """Return ours over published, line by line, None where one of them is missing.

        >>> ResultColumn("loss", (1.1, 2.0, None), (1.0, None, 3.0)).ratios()
        (1.1, None, None)
        """
        return tuple(
            ours / printed if ours is not None and printed else None
            for ours, printed in zip(
                self.ours, self.published or (None,) * len(self.ours), strict=True
            )
        )


@dataclass(frozen=True)
class Reason:
    """Why cells of a column differ from print: of all its lines, or of those with these labels."""

    column: str
    sentence: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResultTable:
    """Columns over the same lines, and the reasons for whatever is off."""

    title: str
    key: str
    lines: tuple[str, ...]
    columns: tuple[ResultColumn, ...]
    reasons: tuple[Reason, ...] = ()

    def ratios(self) -> list[float]:
        """Return every ratio that there is."""
        return [ratio for column in self.columns for ratio in column.ratios() if ratio is not None]

    def find_deviations(self, limit: float = DEVIATION_LIMIT) -> list[tuple[str, str, float]]:
        """Return column, line and ratio of every cell that is further from print than the limit."""
        return [
            (column.name, line, ratio)
            for column in self.columns
            for line, ratio in zip(self.lines, column.ratios(), strict=True)
            if ratio is not None and not is_within(ratio, limit)
        ]

    def find_unexplained(self) -> list[tuple[str, str, float]]:
        """Return the cells that are off and for which no reason is given."""
        return [
            cell
            for cell in self.find_deviations()
            if not any(_covers(reason, cell) for reason in self.reasons)
        ]


@dataclass(frozen=True)
class Series:
    """One line, row of marks or band in a panel.

    ``role`` says whose it is and decides its colour.
    """

    name: str
    role: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    kind: Literal["line", "marks", "band"] = "line"
    top: tuple[float, ...] = ()


@dataclass(frozen=True)
class Panel:
    """Axes with series in them."""

    title: str
    x_name: str
    y_name: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = True


@dataclass(frozen=True)
class Figure:
    """Panels side by side under one title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Outcome:
    """All that an experiment found."""

    experiment: str
    size: str
    tables: tuple[ResultTable, ...] = ()
    figures: tuple[Figure, ...] = ()
    sentences: tuple[str, ...] = ()
    seconds: float = 0.0
    made_by: str = field(default="", compare=False)
    processor_seconds: float = 0.0

    def find_unexplained(self) -> list[tuple[str, str, float]]:
        """Return the cells of all tables that are off without a reason."""
        return [cell for table in self.tables for cell in table.find_unexplained()]

    def count_close(self) -> tuple[int, int, int]:
        """Return how many cells can be compared, and how many of them are within 5 % and within 10
        %.
        """
        # Errata differ from print by their nature: they are not part of how well print was met.
        if self.experiment.endswith("/errata"):
            tables: tuple[ResultTable, ...] = ()
        else:
            tables = self.tables
        ratios = [ratio for table in tables for ratio in table.ratios()]
        return len(ratios), *(
            sum(is_within(ratio, limit) for ratio in ratios)
            for limit in (CLOSE_LIMIT, DEVIATION_LIMIT)
        )  # type: ignore[return-value]

    def to_json(self) -> str:
        """Return the outcome as JSON text."""
        return (
            json.dumps(
                {"format": FORMAT, **asdict(self)}, ensure_ascii=False, allow_nan=False, indent=1
            )
            + "\n"
        )

    @classmethod
    def from_json(cls, text: str) -> Outcome | None:
        """Return what `to_json` wrote; None for anything else, which is then computed again."""
        try:
            content = json.loads(text)
            if content.pop("format") == FORMAT:
                return _read_outcome(content)
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def is_within(ratio: float, limit: float) -> bool:
    """Says whether a ratio is 1 up to the limit, as a relative difference from print.

    >>> is_within(1.05, 0.05), is_within(0.94, 0.05), is_within(float("inf"), 0.05)
    (True, False, False)
    """
    return math.isfinite(ratio) and abs(ratio - 1) <= limit + 1e-12


def format_number(value: float | None, significant: int = 3) -> str:
    """Return a number as papers print it, shortest first.

    >>> [format_number(value) for value in (0.0228, 218451658.7, None, 0, 1070, 5.73e-32)]
    ['0.0228', '2.18e8', '', '0', '1070', '5.73e-32']
    """
    if value is None:
        return ""
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, _, exponent = f"{value:.{significant - 1}e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    if abs(value) < 10**significant:
        return f"{float(f'{value:.{significant}g}'):.15g}"
    return f"{value:.0f}"


def format_percentile(value: float | None) -> str:
    """Return the share of draws below as words.

    >>> [format_percentile(value) for value in (0.62, 0.0, 1.0, 0.003, None)]
    ['62 %', 'below all', 'above all', '0.3 %', '']
    """
    if value is None:
        return ""
    if 0.01 <= value <= 0.99:
        places = 0
    else:
        places = 1
    return {0.0: "below all", 1.0: "above all"}.get(value, f"{100 * value:.{places}f} %")


def _covers(reason: Reason, cell: tuple[str, str, float]) -> bool:
    column, line, _ = cell
    return reason.column == column and (not reason.lines or line in reason.lines)


def _read_outcome(content: dict[str, Any]) -> Outcome:
    fields: dict[str, Any] = {
        "tables": _read_all(content.pop("tables"), _read_table),
        "figures": _read_all(content.pop("figures"), _read_figure),
        "sentences": tuple(content.pop("sentences")),
    }
    return Outcome(**content, **fields)


def _read_table(content: dict[str, Any]) -> ResultTable:
    columns = _read_all(content.pop("columns"), lambda c: ResultColumn(**_make_tuples(c)))
    reasons = _read_all(content.pop("reasons"), lambda r: Reason(**_make_tuples(r)))
    return ResultTable(**_make_tuples(content), columns=columns, reasons=reasons)


def _read_figure(content: dict[str, Any]) -> Figure:
    return Figure(content["title"], _read_all(content["panels"], _read_panel))


def _read_panel(content: dict[str, Any]) -> Panel:
    return Panel(
        **{**content, "series": _read_all(content["series"], lambda s: Series(**_make_tuples(s)))}
    )


def _read_all(
    items: Iterable[dict[str, Any]], made: Callable[[dict[str, Any]], Any]
) -> tuple[Any, ...]:
    return tuple(made(item) for item in items)


def _make_tuples(content: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for name, value in content.items()
    }


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
    """Return the figure as PNG and as SVG, the same bytes for the same figure."""
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
    """Return an SVG fit to stand inside a page: no address in it, names of its own, ink and ground
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
    """Return a power of ten.

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
