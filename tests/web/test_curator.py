"""The curator's way: in a real browser from a table to a release, its script and its audit; and
every wrong field.

The browser tests share one server with books in a file. What is typed wrong is tested without a
browser, over the same app and guard.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

import sottovoce as sv
from sottovoce.estimators import list_questions
from sottovoce.schema import Column
from sottovoce.web import actions, question_form, release_pages
from sottovoce.web.app import make_app
from sottovoce.web.question_form import Fields
from sottovoce.web.workspace import Workspace
from web.browser import (  # noqa: F401
    PATIENCE,
    PEOPLE,
    TIERS,
    TOKEN,
    chromium,
    describe,
    people_csv,
    release,
    served,
    shown,
    until,
    window,
)

PORT = 4321
PRICES = ", ".join(f"{name} = {epsilon}" for name, epsilon in TIERS.items())


@pytest.mark.xdist_group("curator")
def test_the_whole_way_from_a_table_to_a_release_and_its_script(window, served, tmp_path):  # noqa: F811
    table = people_csv(tmp_path)
    with window() as page:
        describe(page, table)
        assert page.locator("svg.bars rect").count() == len(TIERS)
        page.get_by_role("button", name="Write these grants").click()
        shown(page, "text=the ledger holds these grants now")
        page.get_by_role("link", name="Ask a question").click()
        shown(page, "#question")
        page.select_option("#question", "ridge")
        page.wait_for_url("**question=ridge**")
        page.select_option("#column", "cost")
        shown(page, "text=Worth asking")
        best = expected(page)
        page.select_option("#method", "output")
        page.wait_for_url("**method=output**")
        page.wait_for_function(
            f"!document.querySelector('.expected').textContent.includes('{best}')"
        )
        page.select_option("#method", "objective")
        page.wait_for_url("**method=objective**")
        page.locator("#share").fill("50")
        page.wait_for_url("**share=50**")
        assert page.locator("#share-value").text_content() == "50%"
        before = len(actions.read_entries(served.workspace))

        release(page, "costs-of-May")
        assert "2,000 in all, each with an ε of their own, from 0.1 to 2" in page.content()
        assert len(actions.read_entries(served.workspace)) == before + 2
        kept = {what: carried(page, name, tmp_path) for what, name in DOWNLOADS.items()}

    made = sv.Release.load(kept["release"])
    served.workspace.session.verify(made)
    assert "What it means: whatever somebody already knows" in kept["certificate"].read_text(
        "utf-8"
    )
    again = tmp_path / "again.json"
    books = f"sqlite:///{served.books}"
    subprocess.run(
        [sys.executable, kept["script"], table, again, books, "again"],
        check=True,
        capture_output=True,
    )
    other = sv.Release.load(again)
    assert (other.question, other.parameters, other.guarantee) == (
        made.question,
        made.parameters,
        made.guarantee,
    )
    assert served.workspace.session.balance("p0000") == pytest.approx(0, abs=1e-8)


def ask(page, served, table, share: str) -> None:  # noqa: F811
    """Describes a table of people who have enough left, and opens the question of a mean with its
    plan.
    """
    describe(page, table)
    served.workspace.session.grant({f"p{i:04d}": 100.0 for i in range(PEOPLE)})
    page.goto(
        f"/question/{next(reversed(served.workspace.schemas))}?question=mean&column=cost&share={share}"
    )
    shown(page, "#key")


RELEASE = "#plan form button"


@pytest.mark.xdist_group("curator")
def test_nothing_can_be_released_while_the_plan_shown_is_not_of_what_is_asked(
    window,  # noqa: F811
    served,  # noqa: F811
    tmp_path,
):
    with window() as page:
        ask(page, served, people_csv(tmp_path), "3")
        held = []
        page.route(
            "**/question/*share=4*", lambda route: held.append(route)
        )  # a server that takes its time
        page.fill("#key", "while-it-moves")
        page.locator("#share").fill("4")
        assert page.locator(RELEASE).is_disabled(), (
            "at once, before anything is asked of the server"
        )
        assert "still what you asked for before" in page.locator("#plan").text_content()
        page.locator("#key").press("Enter")
        until(lambda: held or page.wait_for_timeout(10))
        assert "/question/" in page.url
        held[0].continue_()
        page.wait_for_url("**share=4**")
        page.wait_for_selector(f"{RELEASE}:enabled")
        assert "still what you asked for before" not in page.locator("#plan").text_content()
        assert page.input_value("#key") == "while-it-moves"
    assert served.workspace.session.ledger.find("while-it-moves") is None


@pytest.mark.xdist_group("curator")
def test_a_plan_that_cannot_be_had_is_said_and_cannot_be_released(window, served, tmp_path):  # noqa: F811
    with window() as page:
        ask(page, served, people_csv(tmp_path), "3")
        page.route(
            "**/question/*share=4*", lambda route: route.fulfill(status=404, body="not the page")
        )
        page.locator("#share").fill("4")
        shown(page, "text=the new numbers could not be had")
        assert page.locator(RELEASE).is_disabled()
        page.locator("#share").fill("5")
        page.wait_for_selector(f"{RELEASE}:enabled")
        assert "could not be had" not in page.locator("#plan").text_content()


def agreed(answer) -> str:
    """The digest of the plan that a page shows."""
    return re.search(r'name="plan" value="(\w{64})"', answer.text)[1]


def test_a_release_is_made_under_the_plan_that_was_shown_or_not_at_all(client):
    client.post(f"/table/{client.name}", data=DESCRIBED)
    client.post(f"/table/{client.name}/grant", data={"account": "pure epsilon, replace"})
    asked = {"question": "mean", "column": "cost", "share": "50"}
    digest = agreed(client.get(f"/question/{client.name}", params=asked))
    entries = len(actions.read_entries(client.workspace))
    address = f"/question/{client.name}/release"
    for changed in ({"share": "60"}, {"plan": ""}, {"plan": "0" * 64}):
        refused = client.post(address, data={**asked, "key": "may", "plan": digest, **changed})
        assert refused.status_code == 422
        assert "The plan has changed since it was shown, and nobody was charged." in refused.text
        assert agreed(refused) != {**asked, "plan": digest, **changed}["plan"], (
            "the new plan is shown"
        )
    # Somebody has less left by now: the same question would be answered without them.
    client.workspace.session.charge({"p0000": 0.15}, key="outside")
    refused = client.post(address, data={**asked, "key": "may", "plan": digest})
    assert "nobody was charged" in refused.text
    assert len(actions.read_entries(client.workspace)) == entries + 1
    now = agreed(refused)
    began = client.post(address, data={**asked, "key": "may", "plan": now}, follow_redirects=False)
    name = re.match(r"/job/([\w-]+)", began.headers["location"])[1]
    until(lambda: client.workspace.jobs.find(name).state == "done")
    made = sv.Release.from_json(actions.read_release(client.workspace, "may").decode())
    assert made.column == "cost"
    # The same bytes come again under the key, though a plan of today is another.
    again = client.post(address, data={**asked, "key": "may", "plan": now}, follow_redirects=False)
    assert again.headers["location"].startswith("/job/")


def test_the_plan_of_one_column_is_not_agreed_to_for_another_at_the_same_price(client):
    client.post(
        f"/table/{client.name}",
        data={**DESCRIBED, "low-1": "0", "high-1": "100", "low-3": "0", "high-3": "100"},
    )
    client.post(f"/table/{client.name}/grant", data={"account": "pure epsilon, replace"})
    asked = {"question": "mean", "column": "cost", "share": "50"}
    shown = agreed(client.get(f"/question/{client.name}", params=asked))
    released = client.post(
        f"/question/{client.name}/release",
        data={**asked, "column": "age", "key": "may", "plan": shown},
    )
    assert released.status_code == 422
    assert "The plan has changed since it was shown, and nobody was charged." in released.text
    assert client.workspace.session.ledger.find("may") is None


def test_plan_release_and_certificate_name_column_table_date_and_units(client):
    client.post(f"/table/{client.name}", data={**DESCRIBED, "unit-3": "EUR <b>"})
    client.post(f"/table/{client.name}/grant", data={"account": "pure epsilon, replace"})
    for question in ("mean", "quantile"):
        asked = {"question": question, "column": "cost", "share": "10"}
        plan = client.get(f"/question/{client.name}", params=asked)
        what = {"mean": "the mean", "quantile": "the median"}[question]
        assert f"Plan for {what} of &#x27;cost&#x27; in &#x27;patients&#x27;" in plan.text
        data = {**asked, "key": question, "plan": agreed(plan)}
        began = client.post(f"/question/{client.name}/release", data=data, follow_redirects=False)
        name = re.match(r"/job/([\w-]+)", began.headers["location"])[1]
        until(lambda name=name: client.workspace.jobs.find(name).state == "done")
        page = client.get("/release", params={"key": question}).text
        made = sv.Release.from_json(actions.read_release(client.workspace, question).decode())
        assert (made.column, made.table, made.units) == ("cost", "patients", {"cost": "EUR <b>"})
        assert f"<h1>{what.capitalize()} of cost</h1>" in page
        assert f"From the table “patients”, made on {made.date[:10]}" in page
        assert "EUR &lt;b&gt;" in page
        answer = page[: page.index("Interval of")]
        assert ("±" in answer) == (question == "mean")
        paper = client.get("/release/certificate.txt", params={"key": question}).text
        assert f"Answer: {what} of 'cost' is " in paper
        assert f"of the table 'patients', on {made.date[:10]}" in paper
        assert "EUR <b>" in paper


def test_a_plan_that_changes_while_the_work_waits_is_refused_right_before_the_charge(client):
    client.post(f"/table/{client.name}", data=DESCRIBED)
    client.post(f"/table/{client.name}/grant", data={"account": "pure epsilon, replace"})
    asked = {"question": "mean", "column": "cost", "share": "50"}
    digest = agreed(client.get(f"/question/{client.name}", params=asked))
    go_on = threading.Event()
    for _ in range(2):  # as many as run at once
        client.workspace.jobs.start(lambda job: go_on.wait(PATIENCE))
    data = {**asked, "key": "may", "plan": digest}
    began = client.post(f"/question/{client.name}/release", data=data, follow_redirects=False)
    name = re.match(r"/job/([\w-]+)", began.headers["location"])[1]
    client.workspace.session.charge({"p0000": 0.15}, key="outside")
    go_on.set()
    until(lambda: client.workspace.jobs.find(name).state == "failed")
    assert "The plan has changed since it was shown" in client.get(began.headers["location"]).text
    assert client.workspace.session.ledger.find("may") is None


DOWNLOADS = {
    "release": "The release",
    "certificate": "The certificate in words",
    "script": "A script that asks the same",
}


def expected(page):
    return re.search(r"Expected error: ([\d,.]+)", page.locator(".expected").text_content()).group(
        1
    )


def carried(page, name, folder):
    with page.expect_download() as got:
        page.get_by_role("link", name=name, exact=True).click()
    path = folder / got.value.suggested_filename
    got.value.save_as(path)
    return path


@pytest.mark.xdist_group("curator")
def test_the_audit_of_a_release(window, served, tmp_path):  # noqa: F811
    with window() as page:
        describe(page, people_csv(tmp_path))
        page.select_option("#account", "epsilon, delta, zero out")
        page.get_by_role("button", name="Write these grants").click()
        shown(page, "text=the ledger holds these grants now")
        page.get_by_role("link", name="Ask a question").click()
        shown(page, "#question")
        page.select_option("#question", "posterior")
        page.wait_for_url("**question=posterior**")
        page.select_option("#column", "cost")
        page.wait_for_url("**column=cost**")
        release(page, "costs-to-audit")
        page.get_by_role("link", name="See what each person really lost").click()
        assert "CONFIDENTIAL" in page.locator(".stamp").text_content()
        page.get_by_role("button", name="Look at every row").click()
        shown(page, "role=heading[name='Who is least protected']")
        told = page.locator("main").text_content()
        assert f"{PEOPLE:,} people" in told
        assert "CONFIDENTIAL" in told
        assert not re.search(r"p\d{4}", told)  # nobody is named unless asked for
        assert (
            page.locator("svg.histogram rect").first.evaluate("bar => getComputedStyle(bar).fill")
            == "rgb(31, 111, 120)"
        )


# --- without a browser: everything that can be typed wrong ----------------------------------------


@contextmanager
def signed_in(folder):
    """The curator's browser without a window, and a table in the workspace."""
    workspace = Workspace()
    with TestClient(
        make_app(workspace, PORT, TOKEN), base_url=f"http://127.0.0.1:{PORT}"
    ) as client:
        client.headers["Sec-Fetch-Site"] = "same-origin"
        client.post("/open", data={"token": TOKEN})
        with open(people_csv(folder), "rb") as table:
            client.post("/table", files={"table": ("patients.csv", table)})
        (client.name,) = workspace.tables
        client.workspace = workspace
        yield client


@pytest.fixture
def client(tmp_path):
    with signed_in(tmp_path) as client:
        yield client


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """For tests after which nothing is in the books."""
    with signed_in(tmp_path_factory.mktemp("shared")) as client:
        yield client


DESCRIBED = {
    "person": "id",
    "budget": "tier",
    "tiers": PRICES,
    "kind-1": "number",
    "low-1": "18",
    "high-1": "100",
    "kind-2": "factor",
    "levels-2": "no, yes",
    "kind-3": "number",
    "low-3": "0",
    "high-3": "20000",
}


def wrong(answer):
    """The fields that a page marks as wrong, with the sentences next to them."""
    return dict(re.findall(r'<p class="wrongly" id="([\w-]+)-wrong">(.*?)</p>', answer.text))


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"low-3": ""}, "low-3"),
        ({"high-3": "many"}, "high-3"),
        ({"high-3": "nan"}, "high-3"),
        ({"high-3": "-5"}, "high-3"),
        ({"low-1": "100"}, "high-1"),
        ({"missing-1": "none"}, "missing-1"),
        ({"levels-2": "yes"}, "levels-2"),
        ({"levels-2": "yes, yes"}, "levels-2"),
        ({"kind-2": "picture"}, "kind-2"),
        ({"person": "nobody"}, "person"),
        ({"budget": "id"}, "budget"),
        ({"tiers": "careful 0.2"}, "tiers"),
        ({"tiers": "careful = -1"}, "tiers"),
        ({"tiers": "careful = 0.2"}, "budget"),  # the table has tiers that are not priced
        ({"tiers": ""}, "budget"),  # tiers are no numbers
        ({"toml": "this is not TOML"}, "toml"),
        ({"toml": '[columns.nothing]\nkind = "number"'}, "toml"),
        ({"toml": 'person = "id"'}, "toml"),
    ],
)
def test_what_is_wrong_with_a_schema_is_said_next_to_the_field(shared, typed, field):
    answer = shared.post(f"/table/{shared.name}", data={**DESCRIBED, **typed})
    assert answer.status_code == 422
    assert field in wrong(answer)
    assert f'aria-describedby="{field}' in answer.text
    typed_in = [value for value in typed.values() if len(value) > 4]
    assert not any(value in sentence for value in typed_in for sentence in wrong(answer).values())


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"question": "mode"}, "question"),
        ({"column": "id"}, "column"),
        ({"column": "smoker"}, "column"),
        ({"question": "logistic", "column": "cost"}, "column"),
        ({"share": "0"}, "share"),
        ({"share": "101"}, "share"),
        ({"share": ""}, "share"),
        ({"spread": "-3"}, "spread"),
        ({"spread": "1e9"}, "spread"),
        ({"question": "quantile", "q": "0.5 2"}, "q"),
        ({"question": "quantile", "q": "half"}, "q"),
        ({"question": "quantile", "cells": "1.5"}, "cells"),
        ({"question": "quantile", "method": "guess"}, "method"),
        ({"question": "ridge", "alpha": "0"}, "alpha"),
        ({"question": "ridge", "method": "best"}, "method"),
        ({"question": "posterior", "delta": "1"}, "delta"),
        ({"question": "posterior", "gamma": "x"}, "gamma"),
    ],
)
def test_what_is_wrong_with_a_question_is_said_next_to_the_field(shared, typed, field):
    shared.post(f"/table/{shared.name}", data=DESCRIBED)
    asked = {"question": "mean", "column": "cost", "share": "100", **typed}
    answer = shared.get(f"/question/{shared.name}", params=asked)
    assert answer.status_code == 422
    assert field in wrong(answer)


@pytest.mark.parametrize(
    "files", [{}, {"table": ("a.csv", b"\xff\xfe\x00")}, {"table": ("a.csv", b"")}]
)
def test_what_is_wrong_with_a_file_is_said_next_to_the_field(shared, files):
    answer = shared.post("/table", files=files)
    assert answer.status_code == 422
    assert "table" in wrong(answer)


def test_names_from_the_table_are_shown_and_never_run(client):
    hostile = "<script>alert(1)</script>"
    client.post("/table", files={"table": ("<b>.csv", f'id,"{hostile}"\n1,2\n3,4\n'.encode())})
    name = list(client.workspace.tables)[-1]
    described = {"person": "id", "kind-1": "number", "low-1": "0", "high-1": "9"}
    client.post(f"/table/{name}", data=described)
    for address in ("/", f"/table/{name}", f"/table/{name}/people", f"/question/{name}", "/audit"):
        text = client.get(address).text
        assert hostile not in text
        assert "<b>" not in text.replace("<b>CONFIDENTIAL</b>", "")


def test_work_is_cancelled_before_anybody_is_charged_and_not_after(client):
    go_on = threading.Event()
    end = threading.Event()
    jobs = client.workspace.jobs

    def work(job):
        go_on.wait(PATIENCE)
        job.watch(1)

    name = jobs.start(work)
    assert "Cancel, before anybody is charged" in client.get(f"/job/{name}").text
    client.post(f"/job/{name}/cancel")
    go_on.set()
    until(lambda: jobs.find(name).state != "working")
    assert "Cancelled before anybody was charged" in client.get(f"/job/{name}").text
    late = jobs.start(lambda job: (job.commit(), end.wait(PATIENCE)))
    until(lambda: jobs.find(late).committed)
    assert "can no longer be cancelled" in client.get(f"/job/{late}").text
    answer = client.post(f"/job/{late}/cancel")
    assert (answer.status_code, "too late to cancel" in answer.text) == (409, True)
    end.set()


def test_a_release_without_a_key_or_without_grants_charges_nobody(shared):
    shared.post(f"/table/{shared.name}", data=DESCRIBED)
    asked = {"question": "mean", "column": "cost", "share": "100"}
    before = len(actions.read_entries(shared.workspace))
    answer = shared.post(f"/question/{shared.name}/release", data=asked)
    assert answer.status_code == 422
    assert "key" in wrong(answer)
    assert len(actions.read_entries(shared.workspace)) == before
    assert (
        "Not everybody&#39;s grant is in the ledger yet"
        in shared.get(f"/question/{shared.name}", params=asked).text
    )


#: What a reader of the page can do nothing with: options of the command line, and calls in Python.
ELSEWHERE = re.compile(
    r"(?<![\w-])--[a-z]|\bsv\.|\b[a-z_]+=|\bfit\b|\bNone\b|\bdata frame|\barray\b|\bCall \b"
)
#: Ways to go wrong on the pages: where a form is sent, and what stands in it besides what is right.
SCHEMAS = [
    {"low-3": ""},
    {"high-3": "-5"},
    {"levels-2": "yes"},
    {"person": "nobody"},
    {"budget": "id"},
    {"tiers": ""},
    {"tiers": "careful = 0.2"},
    {"toml": "this is not TOML"},
    {"toml": 'persom = "id"'},
    {"toml": "person = 5"},
    {"toml": '[columns.cost]\nkind = "money"'},
]
QUESTIONS = [
    {"column": "smoker"},
    {"share": "0"},
    {"share": "0.0000001"},
    {"spread": "1e9"},
    {"question": "quantile", "q": "0.5 2"},
    {"question": "quantile", "cells": "1"},
    {"question": "quantile", "cells": "1e9"},
    {"question": "ridge", "method": "output", "alpha": "1e-300"},
    {"question": "ridge", "label_scale": "1e9"},
    {"question": "logistic", "column": "smoker", "alpha": "1e-12"},
    {"question": "posterior", "gamma": "1e300"},
    {"question": "posterior", "delta": "1e-300"},
    {"question": "ridge", "column": "age", "method": "output", "share": "1"},
]


def visible(text: str) -> str:
    return re.sub(
        r"<[^>]*>", " ", re.sub(r"<(script|style|head).*?</\1>", " ", text, flags=re.DOTALL)
    )


def test_no_page_speaks_of_options_or_of_python(client):
    told = [client.post(f"/table/{client.name}", data={**DESCRIBED, **typed}) for typed in SCHEMAS]
    client.post(f"/table/{client.name}", data=DESCRIBED)
    asked = {"question": "mean", "column": "cost", "share": "100"}
    told += [
        client.get(f"/question/{client.name}", params={**asked, **typed}) for typed in QUESTIONS
    ]
    for typed in (asked, {**asked, "question": "posterior"}):  # nobody's grant is in the books
        digest = agreed(client.get(f"/question/{client.name}", params=typed))
        began = client.post(
            f"/question/{client.name}/release", data={**typed, "key": "k", "plan": digest}
        )
        until(
            lambda began=began: (
                client.workspace.jobs.find(began.url.path.rpartition("/")[2]).state == "failed"
            )
        )
        told.append(client.get(str(began.url)))
    told += [
        client.post("/table", files={"table": ("a.csv", content)})
        for content in (b"", b"a,a\n1,2\n", b"\xff\xfe", b"a\n")
    ]
    told += [
        client.post("/ledger/person", data={"person": "nobody"}),
        client.get("/release", params={"key": "none"}),
    ]
    told += [client.post("/audit", data={"table": client.name, "key": "none", "delta": "1e-6"})]
    mean = sv.Mean(bounds=(0, 1)).fit([0.5] * 30, epsilon=1.0).release_
    client.workspace.session.grant({"p0000": 1.0})
    client.workspace.session.charge({"p0000": 0.1}, key="outside")
    with pytest.raises(sv.errors.InvalidParameter) as unknown:
        sv.audit.per_instance(mean, [[0.5]], [0.5])
    sentences = [visible(answer.text) for answer in told] + [str(unknown.value)]
    assert [sentence for sentence in sentences if ELSEWHERE.search(sentence)] == []
    assert sum(answer.status_code >= 400 for answer in told) >= len(SCHEMAS) + len(QUESTIONS) // 2


def test_grants_that_are_wrong_are_said_next_to_the_field(shared):
    shared.post(f"/table/{shared.name}", data={**DESCRIBED, "budget": ""})
    for typed, field in [
        ({"epsilon": ""}, "epsilon"),
        ({"epsilon": "0"}, "epsilon"),
        ({"account": "cash"}, "account"),
    ]:
        data = {"account": "pure epsilon, replace", "epsilon": "1", **typed}
        assert field in wrong(shared.post(f"/table/{shared.name}/grant", data=data))
    data = {"account": "epsilon, delta, zero out", "epsilon": "1", "delta": "2"}
    assert "delta" in wrong(shared.post(f"/table/{shared.name}/grant", data=data))


@pytest.mark.parametrize(
    "address",
    [
        "/table/none",
        "/table/none/people",
        "/question/none",
        "/job/none",
        "/release?key=none",
        "/audit/none",
    ],
)
def test_what_is_not_there_is_answered_in_words(shared, address):
    answer = shared.get(address)
    assert answer.status_code in (200, 404)
    assert "Traceback" not in answer.text


def test_a_table_that_was_spent_down_says_so_next_to_the_slider(client):
    client.post(f"/table/{client.name}", data=DESCRIBED)
    client.post(f"/table/{client.name}/grant", data={"account": "pure epsilon, replace"})
    people = {f"p{i:04d}": list(TIERS.values())[i % 3] for i in range(PEOPLE)}
    client.workspace.session.charge(people, key="everything")
    asked = {"question": "mean", "column": "cost", "share": "100"}
    answer = client.get(f"/question/{client.name}", params=asked)
    assert "share" in wrong(answer)
    assert "Nobody has as much left in the ledger as this release asks of them." in answer.text


def test_some_who_cannot_pay_are_counted_without_names(client):
    client.post(f"/table/{client.name}", data=DESCRIBED)
    client.post(f"/table/{client.name}/grant", data={"account": "pure epsilon, replace"})
    client.workspace.session.charge({f"p{i:04d}": 0.1 for i in range(0, 300, 3)}, key="some")
    page = client.get(
        f"/question/{client.name}", params={"question": "mean", "column": "cost", "share": "100"}
    ).text
    assert "100 of 2,000 people have not enough left" in page
    assert not re.search(r"p\d{4}", page)


def test_a_schema_survives_the_form_and_the_file():
    odd = 'ä "b" \\'
    columns = {odd: "number", "id": "text", "x": "text", "t": "text"}
    described = {
        odd: Column("number", -1.5, 2e300, missing=0.1, unit=odd),
        "x": Column("factor", levels=("\u202e", "b")),
    }
    schema = sv.Schema(columns=described, person="id", budget="t", tiers={odd: 0.1}, name=odd)
    assert sv.Schema.loads(question_form.write_toml(schema)) == schema
    columns[odd] = "number"
    named = {odd: Column("number", 0.0, 2.0, unit="EUR"), "x": Column("factor", levels=("a", "b"))}
    plain = sv.Schema(columns=named, person="id", budget="t", tiers={"u": 0.1}, name="Pay")
    assert (
        question_form.read_schema(Fields(question_form.fill_schema_form(plain, columns)), columns)
        == plain
    )


def test_a_draft_knows_kinds_and_leaves_every_range_blank():
    typed = question_form.fill_schema_form(None, {"age": "number", "name": "text"})
    assert typed == {"kind-0": "number"}


@pytest.mark.parametrize("by", ["", "smoker"])
@pytest.mark.parametrize("name", list_questions())
def test_the_script_of_every_question_asks_the_same(name, by, tmp_path, capsys):
    if by and "by" not in [one.name for one in list_questions()[name].parameters]:
        pytest.skip("it is not asked by groups")
    table = people_csv(tmp_path)
    schema = question_form.read_schema(
        Fields(DESCRIBED), dict.fromkeys(["id", "age", "smoker", "cost", "tier"], "text")
    )
    if list_questions()[name].reads == "classes":
        column = "smoker"
    else:
        column = "cost"
    if getattr(list_questions()[name].load_class(), "needs_rows", False):  # features are numbers
        described = {key: one for key, one in schema.columns.items() if one.kind == "number"}
        schema = replace(schema, columns=described)
    asked = question_form.read_question(
        Fields({"question": name, "column": column, "share": "50", "by": by}), str(table), schema
    )
    program: dict = {"__name__": "script"}
    exec(compile(release_pages.write_script(asked), "ask.py", "exec"), program)
    program["ask"](str(table), str(tmp_path / "out.json"))
    made = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert made["guarantee"]["people"] == PEOPLE
    assert made["guarantee"]["epsilon"]["most"] <= max(TIERS.values()) / 2
    assert program["QUESTION"].get_params(deep=False).keys() >= asked.parameters.keys()
    assert "Promise" in capsys.readouterr().out


def test_what_is_left_is_remembered_until_something_is_written(client, monkeypatch):
    client.post(f"/table/{client.name}", data=DESCRIBED)
    client.post(f"/table/{client.name}/grant", data={"account": "pure epsilon, replace"})
    asked = {"question": "mean", "column": "cost", "share": "100"}
    client.get(f"/question/{client.name}", params=asked)
    looked = []
    ledger = client.workspace.session.ledger
    honest = type(ledger).balances
    monkeypatch.setattr(
        type(ledger), "balances", lambda *a, **k: looked.append(1) or honest(*a, **k)
    )
    before = client.get(f"/question/{client.name}", params={**asked, "share": "50"}).text
    assert (looked, "have not enough left" in before) == ([], False)
    client.workspace.session.charge({"p0000": 0.2}, key="elsewhere")
    after = client.get(f"/question/{client.name}", params={**asked, "share": "50"}).text
    assert "1 of 2,000 people have not enough left" in after
    assert looked
