# SPDX-License-Identifier: Apache-2.0
"""The page of every item of the papers, made from finished runs and the registry of items.

    sottovoce reproduce all --fresh --out reproduction
    python tools/make_reproduction_page.py reproduction     # keeps what the runs say, and the page
    python tools/make_reproduction_page.py                  # the page alone, from what was kept

What the runs say is kept in docs/reproduction.json, so that the page can be made, and checked,
without running anything.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from sottovoce.papers.items import RunSummary, make_items_page
from sottovoce.papers.plots import Outcome
from sottovoce.papers.report import EXPERIMENTS

DOCS = Path(__file__).resolve().parents[1] / "docs"
KEPT = DOCS / "reproduction.json"
PAGE = DOCS / "reproduction.md"
#: Digits of what is kept; the last ones differ between machines.
DIGITS = 3


def read_runs(folder: Path) -> dict[str, RunSummary]:
    """Return what the finished runs in a folder say; an experiment that is not there is missing."""
    found = {}
    for experiment in EXPERIMENTS:
        path = folder / f"{experiment.name}.json"
        if path.is_file():
            outcome = Outcome.from_json(path.read_text(encoding="utf-8"))
        else:
            outcome = None
        if outcome is not None:
            found[experiment.name] = RunSummary.of(outcome)
        else:
            found[experiment.name] = RunSummary(missing="needs data that are not in this package")
    return found


def write_kept(runs: dict[str, RunSummary]) -> None:
    """Keep what the runs say."""
    content = {name: _round(asdict(run)) for name, run in runs.items()}
    text = json.dumps(content, ensure_ascii=False, indent=1)
    KEPT.write_text(text + "\n", encoding="utf-8")


def _round(value: object) -> object:
    """Return the same with numbers of few digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: _round(part) for name, part in value.items()}
    return value


def read_kept() -> dict[str, RunSummary]:
    """Return what was kept."""
    content = json.loads(KEPT.read_text(encoding="utf-8"))
    return {
        name: RunSummary(
            **{**run, "reasons": tuple(run["reasons"]), "errata": tuple(run["errata"])}
        )
        for name, run in content.items()
    }


def make_page() -> str:
    """Return the page in Markdown, from what was kept."""
    return make_items_page(read_kept())


def main(arguments: list[str]) -> None:
    """Write the page, after keeping the runs of a folder if one is named."""
    if arguments:
        write_kept(read_runs(Path(arguments[0])))
    PAGE.write_text(make_page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
