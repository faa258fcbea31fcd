# SPDX-License-Identifier: Apache-2.0
"""Sum up the table of coverages of docs/guide/intervals.md, one line a question, in its place.

``python tools/summarise_coverage.py`` rewrites the page; a test fails if it is not up to date.
"""

from __future__ import annotations

import statistics
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "intervals.md"
BEGIN = "<!-- summary: made by tools/summarise_coverage.py -->\n"
END = "<!-- end of summary -->\n"
HEAD = (
    "| question | cells | covered, least of them | on average | width, median | from | to |\n"
    "|---|---|---|---|---|---|---|\n"
)
#: The columns of the whole table: question, population, people, ε, covered, least squares, width,
#: known.
COLUMNS = 8


def write_summary(page: str) -> str:
    """Return the page with a summary that follows from its table."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = [_write_line(name, cells) for name, cells in read_cells(after).items()]
    return f"{before}{BEGIN}\n{HEAD}{''.join(lines)}\n{END}{after}"


def read_cells(text: str) -> dict[str, list[tuple[float, float]]]:
    """Return coverage and width of every line of the table, by question."""
    found: dict[str, list[tuple[float, float]]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == COLUMNS and cells[2].replace(",", "").isdigit():
            found.setdefault(cells[0], []).append((float(cells[4]), float(cells[6])))
    return found


def _write_line(name: str, cells: list[tuple[float, float]]) -> str:
    covered = [cell[0] for cell in cells]
    widths = [cell[1] for cell in cells]
    return (
        f"| {name} | {len(cells)} | {min(covered):.3f} | {statistics.mean(covered):.3f} "
        f"| {statistics.median(widths):.1f} | {min(widths):.1f} | {max(widths):.1f} |\n"
    )


if __name__ == "__main__":
    PAGE.write_text(write_summary(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
