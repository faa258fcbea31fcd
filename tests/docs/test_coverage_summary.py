"""The summary of coverages says what the whole table below it says."""

from __future__ import annotations

from summarise_coverage import PAGE, read_cells, write_summary


def test_the_summary_is_up_to_date():
    page = PAGE.read_text(encoding="utf-8")
    assert write_summary(page) == page


def test_a_line_that_changes_shows_in_the_summary():
    page = PAGE.read_text(encoding="utf-8")
    assert len(read_cells(page)["mean"]) > 1
    changed = page.replace("| 0.900 |  | 0.92 | 1.00 |", "| 0.100 |  | 9.99 | 1.00 |")
    assert changed != page
    assert write_summary(changed) != changed
