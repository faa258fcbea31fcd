"""The bar: nothing for two seconds, then rows done in each of the passes."""

from __future__ import annotations

import io

from rich.console import Console

from sottovoce.cli import console
from sottovoce.cli.console import RowProgress


def watched(monkeypatch, patience, *, terminal=True):
    monkeypatch.setattr(console, "PROGRESS_DELAY", patience)
    screen = io.StringIO()
    told = []
    with RowProgress(
        Console(file=screen, force_terminal=terminal, force_interactive=terminal, width=120)
    ) as watch:
        for done in (600, 1200, 600, 1200, 1200, 1200):
            watch(done)
            watch._bar.refresh()
            told.append(watch._bar.tasks[0].description)
    return screen.getvalue(), told


def test_rows_done_are_shown_pass_by_pass(monkeypatch):
    shown, told = watched(monkeypatch, -1)
    assert told == [console.PASS_NAMES[i] for i in (0, 0, 1, 1, 2, 2)]
    assert "600 rows" in shown
    assert "1,200 of 1,200 rows" in shown


def test_what_is_done_quickly_shows_no_bar(monkeypatch):
    assert watched(monkeypatch, 60)[0] == ""


def test_a_file_gets_no_bar(monkeypatch):
    assert watched(monkeypatch, -1, terminal=False)[0] == ""
