"""Work beside the page: cancelled before anybody is charged and not after; the same key, the same
bytes.
"""

from __future__ import annotations

import threading
import time

import pytest

from sottovoce.errors import InvalidParameter, KeyReused
from sottovoce.web import actions, release_pages
from sottovoce.web import workspace as workspace_module
from sottovoce.web.workspace import Jobs

PATIENCE = 300.0
WANTED = {"question": "mean", "column": "salary"}


def ended(job):
    late = time.monotonic() + PATIENCE
    while job.state == "working":
        assert time.monotonic() < late
        time.sleep(0.005)
    return job


@pytest.fixture
def work():
    pool = Jobs()
    yield pool
    pool.close()


def test_work_is_done_and_its_result_kept(work):
    job = ended(work.find(work.start(lambda job: job.watch(7) or "fine")))
    assert (job.state, job.result, job.rows) == ("done", "fine", 7)
    assert work.find("nothing") is None


def test_a_refusal_is_a_sentence_and_a_surprise_says_nothing(work):
    def refused(job):
        raise KeyReused("The key is used.", "", "Choose another.")

    def surprised(job):
        raise ValueError("salary 41234 of u17")

    job = ended(work.find(work.start(refused)))
    assert (job.state, job.sentence) == ("failed", "The key is used. Choose another.")
    job = ended(work.find(work.start(surprised)))
    assert job.state == "failed"
    assert "41234" not in job.sentence
    assert job.sentence == workspace_module.UNFORESEEN


def test_cancelled_before_the_commitment_and_not_after(work):
    reached = threading.Event()
    go = threading.Event()

    def slow(job):
        job.watch(1)
        reached.set()
        go.wait(PATIENCE)
        job.commit()
        return "charged"

    job = work.find(work.start(slow))
    reached.wait(PATIENCE)
    job.cancel()
    go.set()
    assert ended(job).state == "cancelled"
    assert "before anybody was charged" in job.sentence
    committed = ended(work.find(work.start(slow)))
    assert committed.result == "charged"
    with pytest.raises(InvalidParameter, match="too late"):
        committed.cancel()


def test_work_that_waits_for_its_turn_is_cancelled_before_it_begins(work):
    go = threading.Event()
    busy = [work.start(lambda job: go.wait(PATIENCE)) for _ in range(workspace_module.MAX_THREADS)]
    waiting = work.find(work.start(lambda job: pytest.fail("it was cancelled")))
    waiting.cancel()
    go.set()
    assert ended(waiting).state == "cancelled"
    assert [ended(work.find(name)).state for name in busy] == [
        "done"
    ] * workspace_module.MAX_THREADS


def test_work_that_ends_while_its_page_is_written_is_not_said_to_have_failed(
    client, workspace, monkeypatch
):
    go = threading.Event()
    name = workspace.jobs.start(lambda job: go.wait(PATIENCE))
    render = release_pages.render

    def render_late(*page, **values):
        go.set()
        ended(workspace.jobs.find(name))
        return render(*page, **values)

    monkeypatch.setattr(release_pages, "render", render_late)
    page = client.get(f"/job/{name}", params={"key": "k"}).text
    assert "not made" not in page
    assert "data-poll" in page


def test_only_so_many_are_remembered(work, monkeypatch):
    monkeypatch.setattr(workspace_module, "MAX_REMEMBERED", 5)
    names = []
    for _ in range(12):
        names.append(work.start(lambda job: None))
        ended(work.find(names[-1]))
    assert [work.find(name) is None for name in names] == [True] * 7 + [False] * 5


def test_a_job_ends_at_a_whole_step(work, monkeypatch):
    monkeypatch.setattr(workspace_module, "END_STEP", 0.2)
    job = work.find(work.start(lambda job: time.sleep(0.01)))
    ended(job)
    assert time.monotonic() - job.began >= 0.2


def released(client, workspace, table, key, **more):
    answer = client.post("/api/release", json={"table": table, "key": key, **WANTED, **more})
    assert answer.status_code == 202
    return ended(workspace.jobs.find(answer.json()["job"]))


def test_the_same_key_gives_the_same_bytes_and_charges_nobody_again(client, workspace, table):
    first = released(client, workspace, table, "mean-of-May", share=0.5)
    assert first.state == "done", first.sentence
    bytes_then = client.get("/api/release", params={"key": "mean-of-May"}).content
    head = actions.read_entries(workspace)[-1]
    assert workspace.session.balance("u0") == pytest.approx(0.05)
    assert 1.0 <= workspace.session.balance("u2") < 2.0, "at most half of 2"
    again = released(client, workspace, table, "mean-of-May", share=0.5)
    assert again.state == "done"
    assert client.get("/api/release", params={"key": "mean-of-May"}).content == bytes_then
    assert actions.read_entries(workspace)[-1] == head
    other = released(client, workspace, table, "mean-of-May", share=0.4)
    assert other.state == "failed"
    assert "another release" in other.sentence
    assert actions.read_entries(workspace)[-1] == head


def test_the_plan_is_what_is_spent(client, workspace, table):
    planned = client.post("/api/plan", json={"table": table, **WANTED, "share": 0.5}).json()
    assert planned["note"] == ""
    assert [line["granted"] for line in planned["who_pays"]] == pytest.approx([0.05, 0.25, 1.0])
    before = [workspace.session.balance(f"u{i}") for i in range(3)]
    assert before == pytest.approx([0.1, 0.5, 2.0]), "a plan charges nobody"
    assert released(client, workspace, table, "k", share=0.5).state == "done"
    spent = [b - workspace.session.balance(f"u{i}") for i, b in enumerate(before)]
    assert spent == pytest.approx([line["spent"] for line in planned["who_pays"]])


def test_a_plan_counts_once_and_follows_the_books(client, workspace, table, monkeypatch):
    asked = {"table": table, **WANTED}

    def people():
        lines = client.post("/api/plan", json=asked).json()["who_pays"]
        return [line["people"] for line in lines if line["granted"] > 0]

    assert people() == [100, 100, 100]
    looked = []
    balances = type(workspace.session.ledger).balances
    monkeypatch.setattr(
        type(workspace.session.ledger), "balances", lambda *who: looked.append(1) or balances(*who)
    )
    assert people() == [100, 100, 100]
    assert not looked, "nothing was entered since"
    workspace.session.grant({"u0": 0.01})
    assert people() == [99, 100, 100], "who grants less now than the table says is left out"
    assert looked


def test_a_release_cancelled_before_the_reservation_charges_nobody(
    client, workspace, table, monkeypatch
):
    reached = threading.Event()
    go = threading.Event()
    commit = workspace_module.Job.commit

    def slowly(job):
        reached.set()
        go.wait(PATIENCE)
        commit(job)

    monkeypatch.setattr(workspace_module.Job, "commit", slowly)
    head = actions.read_entries(workspace)[-1]
    name = client.post("/api/release", json={"table": table, "key": "k", **WANTED}).json()["job"]
    reached.wait(PATIENCE)
    assert client.get(f"/api/jobs/{name}").json()["can_be_cancelled"]
    assert client.post(f"/api/jobs/{name}/cancel").status_code == 200
    go.set()
    assert ended(workspace.jobs.find(name)).state == "cancelled"
    assert actions.read_entries(workspace)[-1] == head
    assert client.get("/api/release", params={"key": "k"}).status_code == 409


def test_after_the_reservation_it_is_too_late(client, workspace, table, monkeypatch):
    reached = threading.Event()
    go = threading.Event()
    commit = workspace_module.Job.commit

    def slowly(job):
        commit(job)
        reached.set()
        go.wait(PATIENCE)

    monkeypatch.setattr(workspace_module.Job, "commit", slowly)
    name = client.post("/api/release", json={"table": table, "key": "k", **WANTED}).json()["job"]
    reached.wait(PATIENCE)
    refused = client.post(f"/api/jobs/{name}/cancel")
    go.set()
    assert refused.status_code == 422
    assert "too late" in refused.json()["error"]
    assert ended(workspace.jobs.find(name)).state == "done"
