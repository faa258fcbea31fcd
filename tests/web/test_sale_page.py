"""One line from the market to a statement, on the page."""

from __future__ import annotations

import io
import re

import pytest

import sottovoce as sv
from sale_tables import ODD_NAME, write_patients, write_sellers
from sottovoce.ledgers.statement import Statement
from sottovoce.report.ledger import make_statement_page
from sottovoce.web import actions
from web.browser import until
from web.rooms import app_over, complaints, curator, desk_in

MARKET = {
    "prior": "uniform", "low": "1", "high": "5", "by": "budget", "amount": "100", "slide": "0",
    "rule": "ceiling", "cap": "1", "features": "1", "norm": "1", "coin": "0.01",
    "seller": "seller", "cost": "cost",
}  # fmt: skip
DESCRIBED = {
    "person": "patient", "budget": "", "kind-0": "text", "kind-1": "number", "low-1": "0",
    "high-1": "100", "kind-2": "number", "low-2": "0", "high-2": "10", "kind-3": "factor",
    "levels-3": "no, yes",
}  # fmt: skip


@pytest.fixture
def workspace(tmp_path):
    return desk_in(tmp_path)


@pytest.fixture
def client(workspace):
    return curator(app_over(workspace))


def add_table(workspace, name: str, content: str) -> str:
    return actions.upload(workspace, name, io.BytesIO(content.encode()))


def wait_for(workspace, address: str) -> None:
    job = workspace.jobs.find(re.match(r"/job/([\w-]+)", address)[1])
    until(lambda: job.state != "working")
    assert job.state == "done"


def test_from_the_market_to_the_statement(client, workspace):
    query = {**MARKET, "table": add_table(workspace, "sellers.csv", write_sellers())}
    sure = {**query, "sure": "yes", "sale_key": "May", "money": "EUR"}
    asked = client.get("/market/take", params=query)
    assert "A sale is an addition" in asked.text.replace("\n", " ")
    done = client.post("/market/take", data=sure)
    assert (done.status_code, done.headers["location"]) == (303, "/ledger?granted=yes")
    entries = len(list(workspace.session.ledger.entries()))
    assert client.post("/market/take", data=sure).status_code == 303
    assert len(list(workspace.session.ledger.entries())) == entries  # the same sale, added once
    other = client.post("/market/take", data={**sure, "money": "USD"})
    assert (other.status_code, complaints(other.text)) == (422, {"sure"})

    table = add_table(workspace, "patients.csv", write_patients())
    assert client.post(f"/table/{table}", data=DESCRIBED).status_code == 303
    typed = {"question": "logistic", "column": "ill", "epsilon": "1", "spend_left": "yes"}
    shown = client.get(f"/question/{table}", params=typed)
    assert shown.status_code == 200, shown.text
    digest = re.search(r'name="plan" value="(\w+)"', shown.text)[1]
    began = client.post(
        f"/question/{table}/release", data={**typed, "key": "risk of May", "plan": digest}
    )
    wait_for(workspace, began.headers["location"])
    made = sv.Release.from_json(actions.read_release(workspace, "risk of May").decode())
    workspace.session.verify(made)
    assert workspace.session.balance(ODD_NAME) == pytest.approx(0, abs=1e-8)

    person = client.post("/ledger/person", data={"person": ODD_NAME, "do": "look"})
    assert "EUR, “May”" in person.text
    assert "“risk of May”" in person.text
    page = make_statement_page(Statement.of(workspace.session.ledger, ODD_NAME))
    assert "What was sold" in page
    assert "“risk of May”" in page
    ledger = client.get("/ledger").text
    assert "sale “May”" in ledger


def test_the_script_of_a_release_that_spends_what_is_left_names_no_budgets(client, workspace):
    table = add_table(workspace, "patients.csv", write_patients())
    client.post(f"/table/{table}", data=DESCRIBED)
    typed = {"question": "mean", "column": "age", "epsilon": "1", "spend_left": "yes"}
    script = client.get("/release/ask.py", params={**typed, "table": table}).text
    assert "granted = None" in script
    compile(script, "ask.py", "exec")
