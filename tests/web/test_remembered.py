"""What is counted before it is asked for, once, and again only when the books have changed."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from sottovoce.errors import InvalidData
from sottovoce.ledgers.sql_ledger import SqlLedger
from sottovoce.web import actions
from sottovoce.web import workspace as workspace_module
from sottovoce.web.workspace import MAX_CACHED
from web.browser import PATIENCE, until
from web.conftest import PEOPLE, SCHEMA


@pytest.fixture
def read(monkeypatch):
    """How often all accounts were read, and how often the names of many were hidden."""
    times: Counter[str] = Counter()

    def counting(name, honest):
        def counted(self, *about):
            times[name] += name == "everybody" or len(about[0]) > 1
            return honest(self, *about)

        return counted

    for name in ("everybody", "digests"):
        monkeypatch.setattr(SqlLedger, name, counting(name, getattr(SqlLedger, name)))
    return times


def at_rest(workspace):
    """Waits until all work beside the page has ended."""
    until(lambda: all(job.state != "working" for job in workspace.jobs._known.values()))


def plan(workspace, table):
    planned = actions.make_plan(
        workspace,
        *actions.prepare_question(
            workspace, actions.QuestionRequest(table, "mean", "salary", share=0.5)
        ),
    )
    assert planned.note == ""


def test_what_a_plan_needs_is_there_when_it_is_asked_for(read, client, workspace, table):
    """The table was brought and described, its grants written: names were hidden once, and for
    all.
    """
    at_rest(workspace)
    before = read["everybody"]
    plan(workspace, table)
    assert read == {"digests": 1, "everybody": before}
    workspace.session.charge({"u0": 0.01}, key="elsewhere")
    plan(workspace, table)
    assert read == {"digests": 1, "everybody": before + 1}


def test_accounts_are_read_while_a_table_is_described(read, client, workspace, rows):
    client.post("/api/tables", files={"table": ("salaries.csv", rows)})
    at_rest(workspace)
    assert read["everybody"] == 1


def test_a_schema_alone_begins_the_counting(read, client, workspace, table):
    at_rest(workspace)
    workspace.counts.clear()
    client.put(f"/api/tables/{table}/schema", json=SCHEMA)
    at_rest(workspace)
    before = dict(read)
    plan(workspace, table)
    assert read == before


def test_a_form_begins_it_too(read, client, workspace, table):
    at_rest(workspace)
    workspace.counts.clear()
    client.post(f"/table/{table}/grant", data={"account": "pure epsilon, replace"})
    at_rest(workspace)
    before = dict(read)
    plan(workspace, table)
    assert read == before


def test_books_with_too_many_accounts_are_not_read_ahead_nor_for_few_people(
    read, monkeypatch, client, workspace, rows, table
):
    at_rest(workspace)
    read.clear()
    monkeypatch.setattr(workspace_module, "PREFETCH_LIMIT", 5)
    monkeypatch.setattr(workspace_module, "SCAN_FACTOR", 0)
    monkeypatch.setattr("sottovoce.ledgers.sql_ledger.SCAN_FACTOR", 0)
    workspace.counts.clear()
    client.post("/api/tables", files={"table": ("again.csv", rows)})
    at_rest(workspace)
    plan(workspace, table)
    assert read["everybody"] == 0


def test_one_table_and_one_column_are_not_taken_for_another(client, workspace, table):
    books = workspace.session.ledger
    names = [f"u{i}" for i in range(PEOPLE)]
    for place, column, people in (
        ("a", "id", names),
        ("b", "id", names[::-1]),
        ("a", "owner", names[7:] + names[:7]),
    ):
        found = workspace_module.CachedBalances(workspace, place, column).balances(people)
        assert found.tolist() == books.balances(people).tolist()
    assert len(set(found.tolist())) > 1


def test_different_things_are_counted_at_once_and_the_same_thing_once(workspace):
    both = threading.Barrier(2, timeout=PATIENCE)
    counted = []

    def count(what):
        counted.append(what)
        both.wait()  # each waits for the other, so that one after the other would never end
        return what.upper()

    found = []
    asking = [
        threading.Thread(
            target=lambda what=what: found.append(workspace.get_cached(what, lambda: count(what)))
        )
        for what in ("a", "b")
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(PATIENCE)
    assert (sorted(found), sorted(counted)) == (["A", "B"], ["a", "b"])
    assert workspace.get_cached("a", lambda: pytest.fail("it is known")) == "A"


def test_whoever_waits_for_somebody_who_fails_counts_for_themselves(workspace):
    begun = threading.Event()
    go_on = threading.Event()
    found = []

    def fail():
        begun.set()
        go_on.wait(PATIENCE)
        raise InvalidData("This table cannot be read.", "", "Bring another.")

    def first():
        with pytest.raises(InvalidData):
            workspace.get_cached("table", fail)
        found.append("refused")

    failing = threading.Thread(target=first)
    failing.start()
    begun.wait(PATIENCE)
    waiting = threading.Thread(
        target=lambda: found.append(workspace.get_cached("table", lambda: "counted"))
    )
    waiting.start()
    go_on.set()
    failing.join(PATIENCE)
    waiting.join(PATIENCE)
    assert sorted(found) == ["counted", "refused"]
    assert workspace.get_cached("table", lambda: pytest.fail("it is known")) == "counted"


def test_the_oldest_is_forgotten(workspace):
    for what in range(MAX_CACHED + 1):
        workspace.get_cached(what, lambda: "first")
    assert workspace.get_cached(MAX_CACHED, lambda: pytest.fail("it is known")) == "first"
    assert len(workspace.counts) == MAX_CACHED
    assert workspace.get_cached(0, lambda: "again") == "again"
