"""Every question that the page offers, from its release to its audit, at the page and in JSON:
whatever is offered can be audited, and nothing is asked that is known.
"""

from __future__ import annotations

import re
import time

import pytest

from sottovoce.estimators import list_questions
from web.rooms import text

PATIENCE = 300.0
SCHEMA = {
    "person": "id",
    "columns": {
        "salary": {"kind": "number", "low": 0, "high": 100},
        "age": {"kind": "number", "low": 0, "high": 1},
        "smoker": {"kind": "factor", "levels": ["no", "yes"]},
    },
}
NUMBERS = {name: one for name, one in SCHEMA["columns"].items() if one["kind"] == "number"}
#: What a question needs besides its column.
NEEDED = {"posterior": {"alpha": 300}}


def finish(workspace, name):
    late = time.monotonic() + PATIENCE
    while workspace.jobs.find(name).state == "working":
        assert time.monotonic() < late
        time.sleep(0.01)
    job = workspace.jobs.find(name)
    assert job.state == "done", job.sentence
    return job


def grant(session, people):
    granted = dict.fromkeys(people, 5.0)
    session.grant(granted)
    session.grant(granted, neighbours="replace labels")
    session.grant(granted, currency="epsilon, delta", neighbours="zero out", delta=0.1)
    session.grant(granted, currency="zCDP rho", neighbours="replace")


def test_every_question_is_released_and_audited(client, workspace):
    """Half of everybody's ε, or one ε for all: neither is asked for again."""
    people = [f"u{i}" for i in range(40)]
    lines = [
        f"u{i // 2},{(1, 2)[i // 2 % 2]},{i % 10 * 10},{i % 7 / 7},{('no', 'yes')[i % 2]}"
        for i in range(80)
    ]
    rows = "\n".join(["id,epsilon,salary,age,smoker", *lines, ""]).encode()
    grant(workspace.session, people)
    for place, (name, question) in enumerate(list_questions().items()):
        table = client.post("/api/tables", files={"table": ("t.csv", rows)}).json()["id"]
        by_column = place % 2 == 0
        classes = question.reads == "classes"
        schema = {**SCHEMA, "columns": SCHEMA["columns"] if classes else NUMBERS}
        if by_column:
            schema["budget"] = "epsilon"
        assert client.put(f"/api/tables/{table}/schema", json=schema).status_code == 204
        asked = {
            "table": table,
            "question": name,
            "column": "smoker" if classes else "salary",
            "key": name,
            "parameters": NEEDED.get(name, {}),
            **({"share": 0.5} if by_column else {"epsilon": 1.0}),
        }
        begun = client.post("/api/release", json=asked)
        assert begun.status_code == 202, (name, begun.text)
        finish(workspace, begun.json()["job"])
        told = client.post("/api/audit", json={"table": table, "key": name, "delta": 1e-6})
        assert told.status_code == 200, (name, told.text)
        page = client.get("/audit", params={"key": name})
        assert name in re.findall(r'<option value="([^"]+)" selected', page.text)
        assert not {"table", "share", "column"} & set(re.findall(r'name="(\w+)"', page.text))
        begun = client.post("/audit", data={"key": name, "delta": "1e-6"})
        assert begun.status_code == 303, (name, text(begun.text))
        finish(workspace, begun.headers["location"].split("/")[-1])
        shown = client.get(f"/audit/{begun.headers['location'].split('/')[-1]}")
        assert "CONFIDENTIAL" in shown.text
        workspace.session.grant(dict.fromkeys(people, 5.0 + 5 * place))
        client.delete(f"/api/tables/{table}")
        assert f'value="{name}"' not in client.get("/audit").text, "its table is gone"


@pytest.mark.parametrize("name", ["mean", "labels"])
def test_what_left_people_out_or_spent_what_was_left_is_audited_as_it_was(
    client, workspace, table, name
):
    """The table grants .1 to some, who have not enough for .2."""
    people = [f"u{i}" for i in range(300)]
    workspace.session.grant(dict.fromkeys(people[::2], 0.5), neighbours="replace labels")
    workspace.session.grant(dict.fromkeys(people[1::2], 0.1), neighbours="replace labels")
    asked = {"table": table, "question": name, "column": "salary"}
    for key, spent in (("some", {"epsilon": 0.2}), ("left", {"spend_left": True})):
        begun = client.post("/api/release", json={**asked, **spent, "key": key})
        finish(workspace, begun.json()["job"])
        again = client.post("/api/release", json={**asked, **spent, "key": key})
        finish(workspace, again.json()["job"])
        assert f'value="{key}"' in client.get("/audit").text
        told = client.post("/api/audit", json={"table": table, "key": key, "delta": 1e-6})
        assert told.status_code == 200, told.text
        begun = client.post("/audit", data={"key": key, "delta": "1e-6"})
        finish(workspace, begun.headers["location"].split("/")[-1])


def test_a_key_that_is_not_offered_is_refused_beside_its_field(client, workspace):
    answer = client.post("/audit", data={"key": "none", "delta": "1e-6"})
    assert answer.status_code == 422


@pytest.mark.parametrize("delta", ["0", "1.5", "x", ""])
def test_a_delta_that_is_none_is_refused(client, workspace, delta):
    answer = client.post("/audit", data={"key": "none", "delta": delta})
    assert answer.status_code == 422
