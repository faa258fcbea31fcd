# SPDX-License-Identifier: Apache-2.0
"""The skeleton of every page: one HTML file that needs nothing but itself, light or dark, wide or
narrow.

It loads nothing and runs nothing. Colours are named once, in svg.py, and serve pages and pictures;
on paper they are those of light. The pages of the web have their own frame and the same style.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

from sottovoce.svg import PICTURE_STYLE, write_colours


def make_page(title: str, body: str, *, style: str = "", private: bool = False) -> str:
    """Return a page with the style of all pages and its own; one that is ``private`` asks search
    engines to leave it alone.
    """
    head = f"<style>\n{PAGE_STYLE}{style}</style>"
    if private:
        head = f'<meta name="robots" content="noindex">\n{head}'
    return make_document(title, body, head)


def make_document(title: str, body: str, head: str) -> str:
    """Return a page with nothing in its head but what all pages have and ``head``."""
    return _DOCUMENT.substitute(title=escape(title), body=body, head=head)


def make_stamp(word: str, text: str) -> str:
    """Returns a frame for the top of a page that is not for everybody."""
    return f'<p class="stamp"><b>{escape(word)}</b><br>{escape(text)}</p>'


def make_figure(caption: str, picture: str) -> str:
    """Returns a picture below its caption; it scrolls by itself where it is too wide."""
    return f"<figure><figcaption>{escape(caption)}</figcaption>\n{picture}</figure>"


def make_table(heads: Sequence[str], lines: Sequence[Sequence[str]], kind: str = "") -> str:
    """Returns a table that scrolls by itself where it is too wide; of kind "words" the second
    column is text, of kind "text" every one.
    """
    head = "".join(
        f'<th scope="col">{escape(name)}</th>' if name else "<td></td>" for name in heads
    )
    body = "\n".join(f"<tr>{_make_row(*line)}</tr>" for line in lines)
    return (
        f'<div class="wide"><table class="{escape(kind)}">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _make_row(name: str, *cells: str) -> str:
    return f'<th scope="row">{escape(name)}</th>' + "".join(
        f"<td>{escape(cell)}</td>" for cell in cells
    )


PAGE_STYLE = (
    write_colours(":root")
    + PICTURE_STYLE
    + """\
body { background: var(--ground); color: var(--ink);
  font: 17px/1.55 Georgia, "Times New Roman", serif;
  max-width: 44rem; margin: 3rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; line-height: 1.25; font-weight: normal; margin-bottom: .4rem; }
h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; font-size: .95rem; }
th, td { padding: .35rem .5rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; }
th:first-child { text-align: left; padding-left: 0; }
thead th { color: var(--soft); font-weight: normal; vertical-align: bottom; }
tbody th { font-weight: normal; }
td { white-space: nowrap; }
.words td:nth-child(2), .text td { white-space: normal; }
.words td:nth-child(2) { min-width: 9rem; }
.words thead th:nth-child(2) { text-align: left; }
.words td:nth-child(2) { text-align: left; color: var(--soft); }
figure { margin: 1.5rem 0; overflow-x: auto; }
figcaption { margin-bottom: .3rem; }
svg { width: 100%; min-width: 32rem; height: auto; }
svg.bars, svg.histogram, svg.curves, svg.panels { min-width: 0; max-width: 36rem; }
svg.compact { max-width: 26rem; }
svg.share { display: block; min-width: 0; height: 14px; }
.wide { overflow-x: auto; }
.stamp { border: 2px solid var(--stamp); color: var(--stamp); padding: .5rem .8rem;
  font-size: .95rem; }
.stamp b { letter-spacing: .18em; }
@media (max-width: 36rem) {
  table { font-size: .88rem; }
  th, td { padding-left: .3rem; padding-right: .3rem; }
  .accounts td { white-space: normal; }
}
@media print {
  body { margin: 0; max-width: none; font-size: 11pt; }
  figure, tr, .stamp { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""
)

#: For pages on which no table has long names in its first column.
NAMES_STYLE = "th:first-child { white-space: nowrap; }\n"

_DOCUMENT = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
$head
</head>
<body>
$body
</body>
</html>
""")
