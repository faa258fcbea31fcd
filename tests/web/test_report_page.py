"""Reports at the page and in JSON: several questions, one plan, one charge, one release; and every
wrong field, in the words of its door.
"""

from __future__ import annotations

import re
import time

import pytest

import sottovoce as sv
from sottovoce.estimators import list_shared_questions
from sottovoce.release import Release
from sottovoce.web import actions, report_pages
from sottovoce.web.question_form import Fields
from web.rooms import text

PATIENCE = 300.0
#: Three questions, of which one is paid for by another.
ASKED = {
    "ask-0": "mean",
    "column-0": "salary",
    "by-0": "age:18,40,90",
    "name-0": "pay by age",
    "ask-1": "quantile",
    "column-1": "age",
    "ask-2": "count",
    "column-2": "salary",
    "by-2": "age:18,40,90",
    "share": "50",
}
ENTRIES = {
    "pay by age": {"ask": "mean", "column": "salary", "by": ["age:18,40,90"]},
    "quantile of age": {"ask": "quantile", "column": "age"},
    "count": {"ask": "count", "by": ["age:18,40,90"]},
}


def find_hidden(page):
    """The hidden fields of the form that releases what the page has planned."""
    plan = page.split('id="plan"')[1]
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', plan))


def wait_for(client, address):
    """The page that follows the work."""
    late = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < late
        answer = client.get(address)
        if answer.status_code == 303:
            return answer.headers["location"]
        assert "data-poll" in answer.text, text(answer.text)
        time.sleep(0.01)


def test_from_several_questions_to_one_release_with_one_charge(client, workspace, table, tmp_path):
    page = client.get(f"/report/{table}", params=ASKED)
    assert page.status_code == 200
    told = text(page.text)
    for words in ("pay by age", "quantile of age", "with 'pay by age'", "of the rows"):
        assert words in told
    assert page.text.count("<svg") >= 2, "shares, and who counts how much"
    hidden = find_hidden(page.text)
    assert {name: hidden[name] for name in ASKED} == ASKED
    before = workspace.session.balance("u0"), len(actions.read_entries(workspace))
    begun = client.post(f"/report/{table}/release", data={**hidden, "key": "all of May"})
    assert begun.status_code == 303
    address = wait_for(client, begun.headers["location"])
    shown = client.get(address)
    told = text(shown.text)
    assert "Report of 3 questions" in told
    assert "How the questions share the budget" in told
    assert shown.text.count("<svg") >= 2, "the answers are drawn"
    made = Release.from_json(actions.read_release(workspace, "all of May").decode())
    assert list(made.parts) == list(ENTRIES)
    assert len(actions.read_entries(workspace)) == before[1] + 2, "one charge, one release"
    assert before[0] - workspace.session.balance("u0") == pytest.approx(0.05)
    workspace.session.verify(made)

    kept = tmp_path / "questions.toml"
    kept.write_text(client.get(address.replace("/release?", "/release/questions.toml?")).text)
    again = sv.Report.load(kept, workspace.schemas[table])
    assert list(again.questions) == list(ENTRIES)

    other = client.post(f"/report/{table}/release", data={**hidden, "key": "all of May"})
    assert wait_for(client, other.headers["location"]).startswith("/release")
    assert len(actions.read_entries(workspace)) == before[1] + 2, "the key costs nothing again"


def test_the_plan_that_was_shown_is_released_or_none(client, workspace, table):
    hidden = find_hidden(client.get(f"/report/{table}", params=ASKED).text)
    books = actions.read_entries(workspace)[-1]
    for changed in ({"by-0": "age:18,30,90"}, {"share": "60"}, {"wanted-1": "0.2"}):
        answer = client.post(
            f"/report/{table}/release", data={**hidden, **changed, "key": "changed"}
        )
        assert answer.status_code == 422
        assert "The plan has changed since it was shown, and nobody was charged." in answer.text
    assert actions.read_entries(workspace)[-1] == books


def test_questions_are_added_and_removed_without_a_script(client, table):
    first = client.get(f"/report/{table}")
    assert "Question 1" in first.text
    more = client.get(f"/report/{table}", params={**ASKED, "add": "yes"})
    assert "ask-3=mean" in more.headers["location"]
    less = client.get(f"/report/{table}", params={**ASKED, "remove": "1"})
    kept = report_pages.list_typed(
        Fields(dict(re.findall(r"([\w-]+)=([^&]*)", less.headers["location"].split("?")[1])))
    )
    assert [one.kind.name for one in kept] == ["mean", "count"]
    one = {"ask-0": "mean", "column-0": "salary", "share": "50"}
    last = client.get(f"/report/{table}", params={**one, "remove": "0"})
    assert "ask-0=mean" in last.headers["location"], "a report keeps one question"


#: What is typed wrong, and the field that is marked; "" is the form as a whole.
WRONG = {
    "a question that promises another kind of ε": ({"ask-1": "posterior"}, "ask-1", "the list"),
    "a column that is not there": ({"column-1": "height"}, "column-1", "the list"),
    "a spread that is no number": ({"spread-0": "wide"}, "spread-0", "not a number"),
    "a spread beyond the bounds": ({"spread-0": "1e9"}, "spread-0", "standard deviation"),
    "groups of nothing public": ({"by-2": "height"}, "by-2", "Nothing public"),
    "an error that cannot be had": ({"wanted-0": "1"}, "wanted-0", "cannot be had"),
    "an error below 0": ({"wanted-0": "-1"}, "wanted-0", "more than 0"),
    "shares of some questions": ({"share-0": "2"}, "", "Give a share for each of"),
    "the same name twice": ({"name-1": "pay by age"}, "name-1", "called so"),
    "nothing to spend": ({"share": "0"}, "share", "more than 0"),
    "no questions": ({"ask-0": None}, "", "no question yet"),
    "too many questions": ({f"ask-{i}": "mean" for i in range(21)}, "", "at most 20"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_what_is_wrong_is_said_beside_its_field(client, table, mistake):
    changed, field, words = WRONG[mistake]
    asked = {name: value for name, value in {**ASKED, **changed}.items() if value is not None}
    if "many" in mistake:
        asked |= {f"column-{i}": "salary" for i in range(21)}
        asked |= {f"name-{i}": f"n{i}" for i in range(21)}
    answer = client.get(f"/report/{table}", params=asked)
    assert answer.status_code == 422
    marked = dict(re.findall(r'<p class="wrongly" id="([\w-]+)-wrong">([^<]*)', answer.text))
    alone = "".join(re.findall(r'<p class="complaint"[^>]*>([^<]*)', answer.text))
    assert words.lower() in marked.get(field, alone).lower(), (marked, alone)
    assert (field in marked) == (field != "")
    assert "--" not in text(answer.text), "options of the command line are fields here"


def test_a_table_that_is_gone_or_not_described_leads_back(client, table):
    assert client.get("/report/nothing").headers["location"] == "/"
    assert client.post("/report/nothing/release", data={"key": "k"}).headers["location"] == "/"
    assert client.get("/report").status_code == 200, "the first table that is described"


def test_a_report_needs_the_marks_of_our_own_page(client, table):
    """What another site sends is refused by the guard, as for every form."""
    hidden = find_hidden(client.get(f"/report/{table}", params=ASKED).text)
    for address, sent in (
        (f"/report/{table}/release", {"data": {**hidden, "key": "k"}}),
        ("/api/report/release", {"json": {"table": table, "questions": ENTRIES, "key": "k"}}),
    ):
        foreign = client.post(address, headers={"sec-fetch-site": "cross-site"}, **sent)
        assert foreign.status_code == 403
        large = client.post(address, content=b"x" * (2**20 + 1))
        assert large.status_code == 413


def test_programs_plan_and_release_reports(client, workspace, table):
    asked = {"table": table, "questions": ENTRIES, "share": 0.5}
    planned = client.post("/api/report/plan", json=asked).json()
    shares = {one["name"]: one["share"] for one in planned["questions"]}
    assert shares["count"] == 0
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
    assert planned["questions"][2]["answered_with"] == "pay by age"
    assert max(line["spent"] for line in planned["who_pays"]) <= 1.0
    signed = {"key": "r", "plan_digest": planned["plan_digest"]}
    other = client.post("/api/report/release", json={**asked, **signed, "share": 0.4})
    assert (other.status_code, "nobody was charged" in other.text) == (409, True)
    begun = client.post("/api/report/release", json={**asked, **signed})
    assert begun.status_code == 202
    late = time.monotonic() + PATIENCE
    while workspace.jobs.find(begun.json()["job"]).state == "working":
        assert time.monotonic() < late
        time.sleep(0.01)
    made = Release.from_json(client.get("/api/release", params={"key": "r"}).text)
    assert list(made.parts) == list(ENTRIES)
    spent = {line["epsilon"]: line["people"] for line in made.guarantee["epsilon"]["distribution"]}
    assert spent == {line["spent"]: line["people"] for line in planned["who_pays"]}


@pytest.mark.parametrize(
    ("entry", "field", "words"),
    [
        ({"ask": "posterior"}, "questions.ask", "Missing or wrong"),
        ({"ask": "mean", "column": 5}, "questions.column", "Missing or wrong"),
        ({"ask": "mean", "column": "salary", "spread": "x"}, "questions.spread", "Missing"),
        ({"ask": "mean", "column": "salary", "wanted": 0}, "questions.wanted", "Missing"),
        ({"ask": "mean", "column": "salary", "wanted": 1}, "questions", "cannot be had"),
        ({"ask": "mean", "column": "salary", "spread": 1e9}, "questions", "In the question 'a'"),
        ({"ask": "mean", "colum": "salary"}, "questions", "takes: ask, column"),
    ],
)
def test_programs_are_told_which_part_of_a_question_is_wrong(client, table, entry, field, words):
    answer = client.post("/api/report/plan", json={"table": table, "questions": {"a": entry}})
    assert answer.status_code == 422
    assert answer.json()["fields"][0]["field"] == field
    assert words in answer.json()["error"]


def test_the_description_lists_every_question_of_a_report(client):
    described = client.get("/api/openapi.json").json()["components"]["schemas"]["ReportBody"]
    entries = described["properties"]["questions"]["additionalProperties"]["oneOf"]
    assert [one["properties"]["ask"]["const"] for one in entries] == list(list_shared_questions())
