"""The ledger's page: balances that add up and name nobody, a verdict on the books, and one person
on request.
"""

from __future__ import annotations

import re
import sqlite3
import time

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.ledgers.statement import sum_accounts
from sottovoce.report.ledger import MAX_SEPARATE_TIERS, compute_balances, draw_tiers
from sottovoce.web import ledger_pages
from sottovoce.web.ledger_pages import PAGE_SIZE
from web.browser import PATIENCE, chromium, shown, window  # noqa: F401
from web.rooms import NAMES, TIERS, app_over, complaints, curator, desk_in, served, tab_to, text  # noqa: F401

GRANT = {"do": "grant", "person": "person-001", "currency": "pure epsilon", "neighbours": "replace"}


@pytest.fixture
def workspace(tmp_path):
    return desk_in(tmp_path)


@pytest.fixture
def client(workspace):
    return curator(app_over(workspace))


def test_the_page_shows_entries_and_balances_by_tier_and_names_nobody(client, workspace):
    answer = client.get("/ledger")
    seen = text(answer.text)
    assert answer.status_code == 200
    assert "person-0" not in answer.text
    assert "ε = 0.1 10 ε = 0.08 ε = 0.02" in seen
    assert "ε = 0.5 10 ε = 0.08 to ε = 0.105 ε = 0.395 to ε = 0.42" in seen
    assert "ε = 2 10 ε = 0.08 ε = 1.92" in seen
    assert "charged for the release “mean of May”" in seen
    assert "charged from outside “survey of 2019”" in seen
    assert list(workspace.session.ledger.entries())[-1].digest.hex() in seen
    assert "Account of pure ε, neighbours by replace" in seen


def test_pictures_obey_the_policy_of_the_page(client):
    html = client.get("/ledger").text
    assert "<svg" in html
    assert not re.search(r"<style|\sstyle=|<script(?! src=\"/static/)|\son[a-z]+=", html)


def test_balances_are_those_of_every_person(tmp_path):
    """Books of 200 people with grants that change, in several accounts, against each person's own
    history.
    """
    numbers = np.random.default_rng(10)
    session = sv.Session()
    people = [f"p{i}" for i in range(200)]
    for turn in range(6):
        if turn:
            some = numbers.choice(people, 120, replace=False).tolist()
        else:
            some = people
        session.grant(dict(zip(some, numbers.integers(1, 40, len(some)) / 10, strict=True)))
        session.grant(dict.fromkeys(some[:20], 0.5), currency="zCDP rho")
        able = [name for name in people if session.balance(name) >= 0.05]
        session.charge(dict.fromkeys(able, 0.05), key=f"turn {turn}")
    expected: dict[str, list[tuple[int, int]]] = {}
    for name in people:
        for account in sum_accounts(session.history(name)):
            expected.setdefault(account.name, []).append((account.granted, account.spent))
    found = compute_balances(session.ledger)
    assert list(found) == ["pure epsilon, replace", "zCDP rho, replace"]
    for account, tiers in found.items():
        pairs = [
            pair for t in tiers for pair in zip(t.granted.tolist(), t.spent.tolist(), strict=True)
        ]
        assert sorted(pairs) == sorted(expected[account])
        assert sum(len(t.spent) for t in tiers) == len(pairs)
    many, few = found.values()
    assert len(many) > 1
    assert all(t.name.startswith("ε ≤ ") for t in many), (
        f"more than {MAX_SEPARATE_TIERS} amounts are told as ranges"
    )
    tops = [float(t.name.removeprefix("ε ≤ ")) for t in many]
    assert tops == sorted(tops)
    for tier, top in zip(many, tops, strict=True):
        assert tier.granted.max() <= top * 1e9 < 2.5 * tier.granted.min() + 1
    assert [t.name for t in few] == ["ρ = 0.5"]
    assert draw_tiers(many).count("<rect") == 2 * len(many)


def test_books_without_grants_say_so():
    from sottovoce.web.workspace import Workspace

    seen = text(curator(app_over(Workspace())).get("/ledger").text)
    assert "Nobody has granted anything yet." in seen
    assert compute_balances(sv.Session().ledger) == {}


def test_many_lines_are_added_up_only_on_request(client, monkeypatch):
    monkeypatch.setattr(ledger_pages, "MAX_LINES_AT_ONCE", 10)
    assert "Add them up" in client.get("/ledger").text
    assert "ε = 0.1 10 ε = 0.08" in text(client.get("/ledger?count=yes").text)


def test_entries_are_shown_in_pages(client, workspace):
    for turn in range(PAGE_SIZE + 5):
        workspace.session.charge({"person-002": 1e-9}, key=f"turn {turn:02d}")
    newest = client.get("/ledger").text
    (older,) = re.findall(r"/ledger\?before=(\d+)", newest)
    oldest = client.get(f"/ledger?before={older}").text
    shown = re.findall(r'<tr><th scope="row">(\d+)</th>', newest + oldest)
    assert sorted(map(int, shown)) == list(range(len(list(workspace.session.ledger.entries()))))
    for odd in ("-1", "x", "9" * 30, "²", ""):
        assert client.get("/ledger", params={"before": odd}).status_code == 200


def test_a_release_that_was_interrupted_is_told(client, workspace, monkeypatch):
    monkeypatch.setattr("sottovoce.estimators.mean.draw_noisy_values", None)
    with pytest.raises(sv.errors.ReleaseFailed):
        workspace.session.release(
            sv.Mean(bounds=(0, 1)), [0.5] * 30, groups=NAMES, epsilon=0.001, key="crashed"
        )
    assert "Charged for, and never stored: 1 release." in text(client.get("/ledger").text)


def verdict(client):
    began = client.post("/ledger/verify")
    assert began.status_code == 303
    late = time.monotonic() + PATIENCE
    while "Verifying" in (seen := text(client.get(began.headers["location"]).text)):
        assert time.monotonic() < late, "it never ended"
        time.sleep(0.05)
    return seen


def test_verifying_says_in_words_whether_the_books_add_up(client, workspace, tmp_path):
    assert (
        "The ledger adds up: every balance and every digest of 5 entries was computed again"
        in verdict(client)
    )
    with sqlite3.connect(tmp_path / "books.db") as database:
        database.execute("UPDATE accounts SET spent = spent - 1 WHERE spent = 105000000")
    database.close()
    assert (
        "The ledger does not add up: an entry, an amount, a balance or a release was changed."
        in verdict(client)
    )
    assert client.get("/ledger/verify/no-such-work").headers["location"] == "/ledger"


def test_one_person_is_shown_on_request_and_is_in_no_address(client):
    answer = client.post("/ledger/person", data={"person": "person-001", "do": "look"})
    seen = text(answer.text)
    assert answer.status_code == 200
    assert "pure ε, neighbours by replace ε = 0.5 ε = 0.105 ε = 0.395" in seen
    assert "ABOUT ONE PERSON" in seen
    assert re.findall("person-[0-9]+", answer.text) == ["person-001"] * answer.text.count("person-")
    assert not re.search(r'(href|action)="[^"]*person-001', answer.text)
    assert client.get("/ledger/person").status_code == 405


def test_somebody_unknown_is_answered_in_words(client):
    answer = client.post("/ledger/person", data={"person": "nobody <b>", "do": "look"})
    assert answer.status_code == 422
    assert "Nobody of this name has an account." in answer.text
    assert "<b>" not in answer.text.split("<main")[1].replace("<b>ABOUT ONE PERSON</b>", "")
    assert "Begin an account" in answer.text


def test_a_grant_is_written_and_sent_on_to_the_books(client, workspace):
    answer = client.post("/ledger/person", data={**GRANT, "amount": "0.7", "delta": ""})
    assert (answer.status_code, answer.headers["location"]) == (303, "/ledger?granted=yes")
    assert workspace.session.balance("person-001") == pytest.approx(0.595, abs=1e-12)
    assert "Written" in client.get("/ledger?granted=yes").text
    at_delta = {
        **GRANT,
        "currency": "epsilon, delta",
        "neighbours": "zero out",
        "amount": "1",
        "delta": "1e-6",
    }
    assert client.post("/ledger/person", data=at_delta).status_code == 303
    assert workspace.session.balance("person-001", "delta, zero out") == 1e-6
    assert (
        client.post("/ledger/person", data={**GRANT, "person": "new", "amount": "0"}).status_code
        == 303
    )
    assert workspace.session.balance("new") == 0.0


FIELDS = ("amount", "currency", "neighbours")
WRONG = {
    "nothing": ({"amount": ""}, {"amount"}),
    "no number": ({"amount": "much"}, {"amount"}),
    "nan": ({"amount": "nan"}, {"amount"}),
    "infinite": ({"amount": "inf"}, {"amount"}),
    "negative": ({"amount": "-1"}, {"amount"}),
    "too large": ({"amount": "1000001"}, {"amount"}),
    "another currency": ({"amount": "1", "currency": "euro"}, {"currency"}),
    "another relation": ({"amount": "1", "neighbours": "friends"}, {"neighbours"}),
    "δ missing": ({"amount": "1", "currency": "epsilon, delta"}, {"delta"}),
    "δ of one": ({"amount": "1", "currency": "epsilon, delta", "delta": "2"}, {"delta"}),
    "δ of zero": ({"amount": "1", "currency": "epsilon, delta", "delta": "0"}, {"delta"}),
    "stray δ": ({"amount": "1", "delta": "0.1"}, {"delta"}),
    "everything": (dict.fromkeys(FIELDS, ""), set(FIELDS)),
}


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """A workspace and its curator, for tests that change nothing."""
    workspace = desk_in(tmp_path_factory.mktemp("calm"))
    return workspace, curator(app_over(workspace))


@pytest.mark.parametrize("name", WRONG)
def test_whatever_is_wrong_with_a_grant_is_said_next_to_its_field(calm, name):
    (workspace, client) = calm
    (given, fields) = WRONG[name]
    before = list(workspace.session.ledger.entries())
    answer = client.post("/ledger/person", data={**GRANT, **given})
    assert answer.status_code == 422
    assert complaints(answer.text) == fields
    assert list(workspace.session.ledger.entries()) == before


@pytest.mark.parametrize("person", ["", "  ", "a\x07b", "x" * 201])
def test_a_name_that_cannot_be_one_is_said_next_to_its_field(calm, person):
    answer = calm[1].post("/ledger/person", data={"person": person, "do": "look"})
    assert (answer.status_code, complaints(answer.text)) == (422, {"person"})


def test_a_code_is_shown_once_and_opens_that_persons_page(client, workspace):
    answer = client.post("/ledger/person", data={"person": "person-001", "do": "code"})
    code = re.search(r'id="new-code">([^<]+)<', answer.text)[1]
    assert workspace.codes.find_visit(workspace.codes.sign_in(code)).person == "person-001"
    later = (
        client.get("/ledger").text
        + client.post("/ledger/person", data={"person": "person-001", "do": "look"}).text
    )
    assert code not in later
    refused = client.post("/ledger/person", data={"person": "nobody", "do": "code"})
    assert refused.status_code == 422
    assert "new-code" not in refused.text


def test_sealed_books_say_so(client, workspace):
    workspace.session.ledger.seal(3, "ab" * 32)
    assert "This ledger is sealed" in client.get("/ledger").text
    refused = client.post("/ledger/person", data={**GRANT, "amount": "0.7"})
    assert (refused.status_code, complaints(refused.text)) == (422, set())
    assert 'id="refused">This ledger is sealed' in refused.text, "it is about no field"


@pytest.mark.parametrize(("width", "scheme"), [(1000, "dark"), (360, "light")])
def test_by_keyboard_alone_in_a_real_browser(window, width, scheme):  # noqa: F811
    from axe_playwright_python.sync_playwright import Axe

    with window(viewport={"width": width, "height": 780}, color_scheme=scheme) as page:
        page.goto("/ledger")
        assert Axe().run(page).violations_count == 0
        assert page.evaluate("document.documentElement.scrollWidth") == width
        tab_to(page, "id", "person")
        page.keyboard.type("person-001")
        page.keyboard.press("Enter")
        shown(page, "text=Everything that was ever written")
        assert Axe().run(page).violations_count == 0
        tab_to(page, "textContent.trim()", "Make a new code")
        page.keyboard.press("Enter")
        shown(page, "#new-code")
        assert Axe().run(page).violations_count == 0
        page.goto("/ledger")
        page.click("text=Verify the ledger")
        shown(page, "text=The ledger adds up")
        assert "person-0" not in page.content()
        assert len(TIERS) * 2 == page.locator("svg.bars rect").count()
