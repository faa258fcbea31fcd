"""The renderer: what is drawn lies inside the picture, at the place of its number, and is said."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from sottovoce.report.html import PAGE_STYLE
from sottovoce.svg import (
    COLOURS,
    LETTER,
    PICTURE_STYLE,
    Bar,
    draw_bars,
    draw_curves,
    draw_histogram,
    draw_share,
)

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<b>&"'
#: Twice the width of others: "w" was cut where it stood alone.
LETTERS = dict.fromkeys("wm%北区", 2 * LETTER)
BARS = [Bar("ours", 2.0, "2.0", "own"), Bar(HOSTILE, 4.0, "4.0", part=0.25), Bar("none", 0.0, "0")]
PICTURES = {
    "bars": draw_bars(HOSTILE, BARS, floor=1.0),
    "compact bars": draw_bars("t", BARS, narrow=True),
    "wide letters": draw_bars("t", [Bar("w", 2.0, "2 %"), Bar("北区", 1.0, "1")]),
    "share": draw_share(0.3, HOSTILE),
    "histogram": draw_histogram(
        np.array([0.0, 1e-3, 0.2, 0.2, 5.0, np.inf]),
        {HOSTILE: 5.0, "least": 1e-3, "never": np.inf},
        HOSTILE,
        unit="rows",
        across="ε",
    ),
    "curves": draw_curves(
        [("", [(1, 9), (100, 1)]), (HOSTILE, [(2, 9), (200, 1)]), ("third", [(2, 9.1)])],
        HOSTILE,
        across="x",
        up="y",
    ),
    "no curves": draw_curves([("", [])], "t", across="x", up="y"),
}


def parse(picture):
    return ElementTree.fromstring(picture)


def find_extent(text):
    """Where words begin and end, a little more generously than they are drawn."""
    x = float(text.get("x"))
    length = sum(LETTERS.get(letter, LETTER) for letter in text.text)
    before = {"start": 0, "middle": length / 2, "end": length}[text.get("text-anchor")]
    return x - before, x - before + length


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_lies_outside_and_no_words_cover_others(name):
    picture = parse(PICTURES[name])
    _, _, width, height = map(float, picture.get("viewBox").split())
    for bar in picture.iter(f"{SVG}rect"):
        x, y, long, high = (float(bar.get(key)) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + long <= width
        assert 0 <= y <= y + high <= height
    words = [(*find_extent(text), float(text.get("y"))) for text in picture.iter(f"{SVG}text")]
    for start, end, y in words:
        assert -1 <= start <= end <= width + 1
        assert 7 <= y <= height - 7
    for place, (start, end, y) in enumerate(words):
        for other_start, other_end, other_y in words[:place]:
            assert abs(y - other_y) >= 12 or end <= other_start or other_end <= start


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_says_what_it_shows_and_is_coloured_by_its_page(name):
    picture = parse(PICTURES[name])
    assert picture.get("role") == "img"
    assert picture.get("aria-label")
    assert "picture" in picture.get("class").split()
    assert not list(picture.iter(f"{SVG}style"))
    assert "#" not in PICTURES[name]


def test_bars_are_as_long_as_their_numbers():
    drawn = list(parse(PICTURES["bars"]).iter(f"{SVG}rect"))
    own, other, part, none = (float(bar.get("width")) for bar in drawn)
    assert own == pytest.approx(other / 2)
    assert part == pytest.approx(other / 4)
    assert none == 1.0  # still to be seen
    (floor,) = parse(PICTURES["bars"]).iter(f"{SVG}line")
    start = float(drawn[0].get("x"))
    assert float(floor.get("x1")) - start == pytest.approx(other / 4, abs=0.1)


def test_a_histogram_counts_what_is_finite_and_marks_what_can_be_shown():
    picture = parse(PICTURES["histogram"])
    heights = [float(bar.get("height")) for bar in picture.iter(f"{SVG}rect")]
    assert sum(heights) / max(heights) * 2 == pytest.approx(5)  # the tallest bar counts two
    marks = [line for line in picture.iter(f"{SVG}line") if line.get("class") == "mark"]
    assert len(marks) == 2


def test_a_picture_alone_brings_its_colours_and_a_page_has_the_same():
    alone = draw_curves([("", [(1, 2)])], "t", across="x", up="y", standalone=True)
    style = parse(alone).find(f"{SVG}style").text
    assert PICTURE_STYLE in style
    for light, dark in COLOURS.values():
        assert style.count(light) == PAGE_STYLE.count(light) >= 1
        assert style.count(dark) == PAGE_STYLE.count(dark) >= 1
    named = set(re.findall(r"var\(--(\w+)\)", PAGE_STYLE))
    assert named <= set(COLOURS)
