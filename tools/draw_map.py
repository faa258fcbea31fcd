# SPDX-License-Identifier: Apache-2.0
"""Draw the map of the source: folders and files as boxes, in the layers of the import contract.

    python tools/draw_map.py            write docs/images/map.svg
    python tools/draw_map.py --check    fail if that file is not up to date

Rows and boxes come from the layers in pyproject.toml, lines from the imports in the source, so the
picture cannot tell of a house that no longer stands: tests/docs compares it.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "sottovoce"
PICTURE = ROOT / "docs" / "images" / "map.svg"

WIDTH = 920
MARGIN = 24
ROW = 68
BOX_HEIGHT = 34
BOX_GAP = 16

#: What is in each box, in a few words; a box without words is an error.
CONTENTS = {
    "cli": "commands",
    "web": "the local page",
    "papers": "tables and figures",
    "report": "words, html, svg",
    "audit": "what people lost",
    "market": "buying ε",
    "session": "engine + ledger",
    "estimators": "questions, registry",
    "estimator": "make_release",
    "ledgers": "SQLite, PostgreSQL",
    "data": "source, engines, sums",
    "release": "answer + certificate",
    "plan": "charges, errors",
    "ledger": "contract",
    "weights": "who counts how much",
    "guarantee": "what is promised",
    "wording": "what plans say",
    "budgets": "who allows what",
    "schema": "bounds, columns",
    "accounting": "privacy curves",
    "solvers": "pure functions",
    "noise": "the trusted kernel",
    "arrays": "columns in memory",
    "private_files": "files for one owner",
    "booking": "pay, then publish",
    "svg": "pictures",
    "moved": "old module paths",
    "units": "whole numbers",
    "errors": "one tree",
}


def read_layers() -> list[list[str]]:
    """Return the layers of the import contract, from the top down."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["type"] == "layers")
    return [[name.strip("() ") for name in layer.replace(":", "|").split("|")] for layer in layers]


def read_imports(layers: list[list[str]]) -> set[tuple[str, str]]:
    """Return which box imports from which, by the source itself."""
    boxes = {name for layer in layers for name in layer}
    found = set()
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            parts = node.module.split(".")
            if parts[0] != "sottovoce":
                continue
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
            found |= {(own, name) for name in names if name != own and name in boxes}
    return {(own, other) for own, other in found if own in boxes}


def reduce_imports(imports: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the imports that no chain of other imports implies, so that the lines can be read."""
    below: dict[str, set[str]] = {}
    for own, other in imports:
        below.setdefault(own, set()).add(other)

    def reach(start: str) -> set[str]:
        found: set[str] = set()
        waiting = list(below.get(start, ()))
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(below.get(name, ()))
        return found

    return {
        (own, other)
        for own, other in imports
        if not any(other in reach(step) for step in below[own] - {other})
    }


def place_boxes(layers: list[list[str]]) -> dict[str, tuple[float, float, float]]:
    """Return the left edge, the top and the width of every box."""
    places = {}
    for row, layer in enumerate(layers):
        width = min(200.0, (WIDTH - 2 * MARGIN - BOX_GAP * (len(layer) - 1)) / len(layer))
        left = (WIDTH - width * len(layer) - BOX_GAP * (len(layer) - 1)) / 2
        for column, name in enumerate(layer):
            places[name] = (left + column * (width + BOX_GAP), MARGIN + row * ROW, width)
    return places


def draw_arrow(own: tuple[float, float, float], other: tuple[float, float, float]) -> str:
    """Return an arrow from a box to one below it, or beneath both to one in the same row."""
    start = own[0] + own[2] / 2
    end = other[0] + other[2] / 2
    foot = own[1] + BOX_HEIGHT
    if own[1] == other[1]:
        dip = foot + 18
        return (
            f'<path d="M{start:.0f} {foot:.0f}C{start:.0f} {dip} {end:.0f} {dip} '
            f'{end:.0f} {foot:.0f}"/>'
        )
    bend = (other[1] - foot) / 2
    return (
        f'<path d="M{start:.0f} {foot:.0f}C{start:.0f} {foot + bend:.0f} '
        f'{end:.0f} {other[1] - bend:.0f} {end:.0f} {other[1] - 2:.0f}"/>'
    )


def draw_map() -> str:
    """Return the picture as svg."""
    layers = read_layers()
    places = place_boxes(layers)
    height = 2 * MARGIN + ROW * len(layers) - (ROW - BOX_HEIGHT)
    arrows = [
        draw_arrow(places[own], places[other])
        for own, other in sorted(reduce_imports(read_imports(layers)))
    ]
    boxes = []
    for name, (left, top, width) in places.items():
        middle = left + width / 2
        boxes.append(
            f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{BOX_HEIGHT}" rx="5"/>'
            f'<text x="{middle:.0f}" y="{top + 14:.0f}" class="name">{name}</text>'
            f'<text x="{middle:.0f}" y="{top + 27:.0f}" class="content">{CONTENTS[name]}</text>'
        )
    return STYLE.format(
        width=WIDTH, height=height, arrows="\n".join(arrows), boxes="\n".join(boxes)
    )


STYLE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>The source by layers: imports go down</title>
<style>
path {{ fill: none; stroke: #5b6b7a; stroke-width: 1.1; marker-end: url(#tip); }}
rect {{ fill: #f3f5f7; stroke: #33475b; }}
text {{ font: 12px system-ui, sans-serif; text-anchor: middle; fill: #1d2b38; }}
.name {{ font-weight: 600; }}
.content {{ font-size: 10.5px; fill: #4a5a69; }}
</style>
<defs><marker id="tip" markerWidth="7" markerHeight="7" refX="5" refY="3" orient="auto">
<polygon points="0,0 6,3 0,6" fill="#5b6b7a"/></marker></defs>
<rect width="{width}" height="{height}" style="fill: #fff; stroke: none"/>
{arrows}
{boxes}
</svg>
"""


def main(words: list[str]) -> int:
    """Write the picture, or with --check compare it with the one that is there."""
    picture = draw_map()
    if "--check" in words:
        return int(PICTURE.read_text(encoding="utf-8") != picture)
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
