"""Every item of the papers has a row that is made from the runs, and statements are held against
cases that could refute them.
"""

from __future__ import annotations

from collections import Counter

import pytest

from make_reproduction_page import PAGE, make_page, read_kept, read_runs, write_kept
from sottovoce.papers import items, ridge_setup, statements
from sottovoce.papers.items import (
    ABSENT,
    CLOSE,
    HOLDS,
    ITEMS,
    NEAR,
    NOT_RUN,
    SHAPE,
    STATUSES,
    WRONG,
    RunSummary,
    SeedItem,
    count_statuses,
    judge_items,
    make_items_page,
)
from sottovoce.papers.plots import Outcome, Reason, ResultColumn, ResultTable
from sottovoce.papers.report import EXPERIMENTS, PAPERS, Experiment, Task, make_report

#: What the papers have, counted in their text: tables, figures, algorithms, examples, and the
#: numbers of theorems, lemmas, claims, propositions, corollaries, facts and remarks. Restatements
#: in appendices are with what they restate.
PRINTED = {
    "ridge": {"Table": 14, "Figure": 19, "Algorithm": 1, "Theorem": 4, "Lemma": 4, "Remark": 1},
    "market": {
        "Figure": 6,
        "Algorithm": 2,
        "Theorem": 7,
        "Proposition": 1,
        "Remark": 1,
        "Example": 1,
    },
    "users": {
        "Table": 2,
        "Figure": 3,
        "Algorithm": 4,
        "Theorem": 8,
        "Lemma": 3,
        "Claim": 8,
        "Example": 3,
        "Corollary": 3,
        "Fact": 1,
    },
    "instance": {
        "Table": 1,
        "Figure": 2,
        "Algorithm": 1,
        "Theorem": 1,
        "Lemma": 10,
        "Proposition": 4,
        "Corollary": 1,
        "Fact": 5,
        "Remark": 1,
        "(3)": 1,
    },
}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_item_of_a_paper_is_listed_once(paper):
    listed = [item.label for item in ITEMS if item.paper == paper]
    assert len(set(listed)) == len(listed)
    assert Counter(label.split()[0] for label in listed) == PRINTED[paper]


def test_the_page_is_up_to_date_and_has_a_row_for_every_item():
    page = PAGE.read_text(encoding="utf-8")
    assert page == make_page()
    section = {
        key: page.partition(f"## {paper.title}\n")[2].partition("\n## ")[0]
        for key, paper in PAPERS.items()
    }
    for item in ITEMS:
        rows = [
            line
            for line in section[item.paper].splitlines()
            if line.startswith(f"| {item.label} |")
        ]
        assert len(rows) == 1, item
        assert rows[0].split(" | ")[2] in STATUSES


def test_items_and_experiments_know_each_other():
    names = {experiment.name for experiment in EXPERIMENTS}
    assert {name for item in ITEMS for name in item.shown} <= names
    page = make_page()
    assert all(f"`{name}`" in page for name in names)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("instance/lemma-13", "Smooth problems"),
        ("instance/smooth", "Lemma 13 and equation (3) for smooth losses"),
    ],
)
def test_a_registered_experiment_is_picked_up_by_name_or_title(monkeypatch, name, title):
    added = Experiment(name, title, "instance_smooth:smooth")
    others = tuple(e for e in EXPERIMENTS if e.name != name)
    monkeypatch.setattr(items, "EXPERIMENTS", (*others, added))
    page = make_items_page(read_kept())
    rows = [line for line in page.splitlines() if f"`{name}`" in line]
    assert {row.split(" | ")[0] for row in rows} == {
        label for label in ("| Lemma 13", "| (3)") if label[2:] in title or label[2:] == "Lemma 13"
    }


def make_outcome(*ratios: float) -> Outcome:
    lines = tuple(map(str, range(len(ratios))))
    table = ResultTable(
        "title",
        "line",
        lines,
        (ResultColumn("loss", ratios, (1.0,) * len(ratios)),),
        (Reason("loss", "No seed. And more."),),
    )
    return Outcome("ridge/table-1", "full", (table,))


@pytest.mark.parametrize(
    ("ratios", "status", "words"),
    [
        ((1.0, 0.96), CLOSE, "2 of 2 cells within 5 %, 2 within 10 %"),
        ((1.0, 0.92), NEAR, "1 of 2 cells within 5 %, 2 within 10 %"),
        ((1.0, 1.2), SHAPE, "1 of 2 cells within 5 %, 1 within 10 %; No seed"),
    ],
)
def test_cells_decide_about_tables(ratios, status, words):
    judged = judge_items({"ridge/table-1": RunSummary.of(make_outcome(*ratios))})
    found = next(one for one in judged if one.item.name == "ridge/table-1")
    assert (found.status, found.words) == (status, words)


def test_what_is_missing_or_not_run_says_so():
    judged = {
        (one.item.paper, one.item.label): one
        for one in judge_items({"ridge/table-2": RunSummary(missing="no insurance.csv")})
    }
    assert judged["ridge", "Table 2"].status == ABSENT
    assert "insurance" in judged["ridge", "Table 2"].words
    assert judged["ridge", "Table 1"].status == NOT_RUN
    assert judged["ridge", "Lemma C.1"].status == NOT_RUN
    assert judged["users", "Theorem 1"].status == HOLDS


def test_a_refuted_statement_and_a_line_of_errata_are_wrong_as_printed():
    runs = {
        "ridge/statements": RunSummary(bounds={"Lemma C.1": 1.01}, identities={"Remark .1": 1e-15}),
        "instance/errata": RunSummary(errata=("Lemma 4", "Lemma 4", "Fact 6.4", "AdaOPS, min")),
        "ridge/errata": RunSummary(errata=("Table 11", "Table 1x")),
        "ridge/table-11": RunSummary(4, 4, 4),
    }
    judged = {(one.item.paper, one.item.label): one for one in judge_items(runs)}
    assert judged["ridge", "Lemma C.1"].status == WRONG
    assert judged["ridge", "Remark .1"].status == HOLDS
    assert judged["instance", "Lemma 4"].words == "errata: 2 lines"
    assert judged["instance", "Fact 6.4"].status == WRONG
    assert judged["instance", "Algorithm 1"].status == WRONG
    # A table with misprints is judged by its cells, and says that it has some.
    assert judged["ridge", "Table 11"].status == CLOSE
    assert judged["ridge", "Table 11"].words.startswith("errata: 1 line;")


def test_no_item_was_left_out_of_the_last_full_run():
    judged = judge_items(read_kept())
    assert [one.item for one in judged if one.status == NOT_RUN] == []
    assert count_statuses(judged).startswith(f"Of {len(ITEMS)} items of the papers: ")


def test_runs_are_kept_and_read_again(tmp_path, monkeypatch):
    import make_reproduction_page as tool

    (tmp_path / "ridge").mkdir()
    outcome = make_outcome(1.0, 1.2)
    (tmp_path / "ridge" / "table-1.json").write_text(outcome.to_json(), encoding="utf-8")
    monkeypatch.setattr(tool, "KEPT", tmp_path / "kept.json")
    runs = read_runs(tmp_path)
    write_kept(runs)
    assert read_kept() == runs
    assert runs["ridge/table-1"].cells == 2
    assert runs["ridge/table-2"].missing


def test_the_report_has_every_item():
    judged = judge_items(read_kept())
    page = make_report({}, {}, {}, judged)
    assert page.count('<th scope="row">') == len(ITEMS)


@pytest.mark.parametrize("paper", PAPERS)
def test_statements_hold_in_drawn_cases(paper):
    found = statements.outcome(Task(f"{paper}/statements", "small")).tables[0]
    bounds, identities = (column.ours for column in found.columns)
    assert all(value is None or 0 < value <= 1 + items.ROUNDING for value in bounds)
    assert all(value is None or value <= items.ROUNDING for value in identities)
    assert all((a is None) is not (b is None) for a, b in zip(bounds, identities, strict=True))
    known = {item.label for item in ITEMS if item.paper == paper}
    assert set(found.lines) <= known


def test_drawn_cases_refute_a_rate_that_is_a_tenth_too_large(monkeypatch):
    rate = ridge_setup.compute_rate
    monkeypatch.setattr(ridge_setup, "compute_rate", lambda *args: 1.1 * rate(*args))
    found = statements.outcome(Task("ridge/statements", "full")).tables[0]
    assert dict(zip(found.lines, found.columns[0].ours, strict=True))["Theorem 2.1"] > 1


def test_drawn_cases_refute_half_of_a_bound():
    """Each of these reaches more than half of its bound, so a bound twice as strict would fail."""
    found = statements.outcome(Task("ridge/statements", "full")).tables[0]
    tight = dict(zip(found.lines, found.columns[0].ours, strict=True))
    for label in ("Theorem 2.1", "Theorem C.4", "Lemma C.2", "Lemma C.3", "Lemma C.5"):
        assert tight[label] > 0.5


def test_names_of_items_are_those_of_experiments():
    assert SeedItem("market", "Figure 2(a)", "").name == "market/figure-2a"
    assert SeedItem("ridge", "Theorem 2.5", "").name == "ridge/theorem-2.5"
