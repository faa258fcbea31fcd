"""What every experiment hands back and how it is shown: names, JSON, reasons, pictures and the
report.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from importlib import import_module

import pytest

from sottovoce.errors import InvalidParameter
from sottovoce.papers import plots
from sottovoce.papers.plots import Figure, Outcome, Panel, Reason, ResultColumn, ResultTable, Series
from sottovoce.papers.report import (
    EXPERIMENTS,
    PAPERS,
    Experiment,
    Task,
    choose_experiments,
    count_close_cells,
    make_anchor,
    make_named_generator,
    make_report,
)

FIGURE = Figure(
    "a < b",
    (
        Panel(
            "panel",
            "x",
            "loss",
            (
                Series("ours", "pdp_op", (1.0, 2.0), (0.1, 0.2)),
                Series("authors", "pdp_op", (1.0, 2.0), (0.11, 0.19), "marks"),
                Series("draws", "pdp_op", (1.0, 2.0), (0.05, 0.1), "band", (0.2, 0.3)),
                Series("somebody", "not listed", (1.0, 2.0), (0.3, 0.4)),
            ),
        ),
    ),
)
TABLE = ResultTable(
    "A <table>",
    "λ",
    ("1", "2", "3"),
    (
        ResultColumn("loss", (1.0, 2.0, 3.3), (1.0, 1.0, 3.0), (0.5, 0.0, 1.0)),
        ResultColumn("own", (1.0, None, 2.0)),
    ),
    (Reason("loss", "A misprint & no more.", ("2",)),),
)
OUTCOME = Outcome("ridge/figure-2", "small", (TABLE,), (FIGURE,), ("A sentence.",), 1.5)


def test_every_table_and_figure_of_the_ridge_paper_has_its_name():
    names = {experiment.name for experiment in EXPERIMENTS}
    assert {f"ridge/table-{n}" for n in range(1, 15)} <= names
    assert {f"ridge/figure-{n}" for n in range(1, 20)} <= names
    assert {"ridge/theorem-2.5", "ridge/speed"} <= names


def test_names_are_unique_and_papers_known():
    assert len({e.name for e in EXPERIMENTS}) == len(EXPERIMENTS)
    assert {e.name.partition("/")[0] for e in EXPERIMENTS} == set(PAPERS)


@pytest.mark.parametrize("home", sorted({e.home for e in EXPERIMENTS}))
def test_every_experiment_has_a_function(home):
    module, _, function = home.partition(":")
    assert callable(getattr(import_module(f"sottovoce.papers.{module}"), function))


def test_listing_loads_nothing_heavy():
    code = (
        "import sys, sottovoce.papers.report; print([m for m in ('numpy', 'matplotlib') if m in "
        "sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_choosing_keeps_the_order_and_takes_each_once():
    assert [
        e.name for e in choose_experiments(["ridge/table-2", "ridge/table-1", "ridge/table-2"])
    ] == [
        "ridge/table-1",
        "ridge/table-2",
    ]
    assert choose_experiments(["all"]) == list(EXPERIMENTS)
    assert choose_experiments(["ridge/all"]) == [e for e in EXPERIMENTS if e.paper.key == "ridge"]


@pytest.mark.parametrize("name", ["ridge/tabel-1", "ridge", "nothing/all", ""])
def test_an_unknown_name_is_refused_and_close_ones_are_told(name):
    with pytest.raises(InvalidParameter) as refused:
        choose_experiments([name])
    assert name != "ridge/tabel-1" or "ridge/table-1" in str(refused.value)


def test_draws_follow_from_the_name_alone():
    assert (
        make_named_generator("a").random()
        == make_named_generator("a").random()
        != make_named_generator("b").random()
    )


def test_a_run_notes_time_and_version(monkeypatch):
    import sottovoce
    from sottovoce.papers import ridge_tables

    monkeypatch.setattr(ridge_tables, "by_line", lambda task: Outcome(task.name, task.size))
    done = Experiment("ridge/table-3", "title", "ridge_tables:by_line").run(
        Task("ridge/table-3", "small")
    )
    assert (done.experiment, done.size, done.made_by) == (
        "ridge/table-3",
        "small",
        sottovoce.__version__,
    )


def test_an_outcome_survives_json():
    assert Outcome.from_json(OUTCOME.to_json()) == OUTCOME


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": "another/1"}', '{"format": "sottovoce.outcome/1"}']
)
def test_anything_else_is_not_an_outcome(text):
    assert Outcome.from_json(text) is None


def test_a_cell_that_is_off_needs_a_reason_of_its_own():
    assert [(line, round(ratio, 2)) for _, line, ratio in TABLE.find_deviations()] == [("2", 2.0)]
    assert TABLE.find_unexplained() == []
    elsewhere = ResultTable(
        TABLE.title, TABLE.key, TABLE.lines, TABLE.columns, (Reason("loss", "No.", ("1",)),)
    )
    another = ResultTable(
        TABLE.title, TABLE.key, TABLE.lines, TABLE.columns, (Reason("own", "No."),)
    )
    assert len(elsewhere.find_unexplained()) == len(another.find_unexplained()) == 1
    assert "lack a reason" in count_close_cells([Outcome("ridge/table-1", "full", (another,))])


def test_shares_are_counted_over_compared_cells_alone():
    assert OUTCOME.count_close() == (3, 1, 2)
    assert replace(OUTCOME, experiment="ridge/errata").count_close() == (0, 0, 0)
    assert count_close_cells([OUTCOME]).startswith(
        "Of 3 cells, 33% are within 5 % of print and 67% within 10 %;"
    )


def test_a_figure_is_drawn_as_png_and_svg_the_same_each_time():
    png, svg = plots.draw_figure(FIGURE)
    assert png.startswith(b"\x89PNG")
    assert b"<svg" in svg
    assert plots.draw_figure(FIGURE) == (png, svg)


def test_an_inline_figure_needs_nothing_from_elsewhere_and_takes_the_ink_of_the_page():
    text = plots.inline_svg(plots.draw_figure(FIGURE)[1], "title", "key")
    assert text.startswith("<svg")
    assert not re.search(r"https?:|@import|<metadata", text)
    assert "currentColor" in text
    assert plots.INK not in text
    assert all(
        name.startswith("key-") for name in re.findall(r'(?:\bid="|href="#|url\(#)([^")]+)', text)
    )


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidParameter, match=r"sottovoce\[reproduce\]"):
        plots.draw_figure(FIGURE)


class Balanced(HTMLParser):
    """Notes anchors and links, and refuses tags that are not closed in order."""

    VOID = frozenset({"meta"})

    def __init__(self):
        super().__init__()
        self.open = []
        self.ids = set()
        self.links = []
        self.fetched = []

    def handle_starttag(self, tag, attrs):
        self._note(tag, dict(attrs))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self._note(tag, dict(attrs))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def _note(self, tag, attrs):
        self.ids |= {attrs["id"]} if "id" in attrs else set()
        self.links += [attrs["href"]] if "href" in attrs else []
        self.fetched += (
            [tag]
            if {"src", "srcset", "action", "data"} & set(attrs) or tag in {"script", "link"}
            else []
        )


def test_the_report_is_one_whole_page_that_needs_nothing_else():
    drawn = {OUTCOME.experiment: [plots.inline_svg(plots.draw_figure(FIGURE)[1], "title", "f")]}
    page = make_report(
        {OUTCOME.experiment: OUTCOME}, drawn, {"ridge/table-12": "The data <are> missing."}
    )
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert parser.fetched == []
    assert all(link.startswith("#") and link[1:] in parser.ids for link in parser.links)
    assert {make_anchor("ridge/figure-2"), make_anchor("ridge/table-12"), "ridge"} <= parser.ids
    assert not re.search(r"https?:|@import|url\((?!#)", page)
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert "The data &lt;are&gt; missing." in page
    assert "A misprint &amp; no more." in page
    assert "A small run" in page


def test_the_report_marks_what_is_off():
    page = make_report({OUTCOME.experiment: OUTCOME}, {}, {})
    assert re.findall(r'<td class="(near|off)">([^<]*)</td>', page) == [
        ("off", "2.00"),
        ("near", "1.10"),
    ]
    assert "above all" in page
    assert "below all" in page
