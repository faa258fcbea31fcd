"""A person's page: opened by their code alone, about them alone, in words that are true, with a
proof that holds.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.cli.ledger import ledger_app
from sottovoce.errors import LedgerUnavailable, UnknownPeople
from sottovoce.ledgers.statement import AccountBalance
from sottovoce.report.ledger import explain_protection
from sottovoce.web import access_codes
from sottovoce.web.access_codes import ALPHABET, IDLE, MOST_VISITS, PREFIX, AccessCodes
from web.browser import chromium, shown, window  # noqa: F401
from web.rooms import app_over, complaints, curator, desk_in, served, tab_to, text, visitor  # noqa: F401

#: People whose names and amounts must be found nowhere on somebody else's page.
PLANTED = {
    "Quentin Zzyzx": 0.731904627,
    "<b>Wanda & Söhne</b>": 1.377215903,
    "Yorick-40417": 0.000918273,
}
#: What scrypt costs outside these tests.
COST = access_codes.COST
OWN = "Odile </script><script>alert(1)</script>"


@pytest.fixture
def workspace(tmp_path):
    return desk_in(tmp_path)


@pytest.fixture
def app(workspace):
    return app_over(workspace)


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    """scrypt at its lowest cost: only one test is about what it costs."""
    monkeypatch.setattr(access_codes, "COST", 2)


def shown_in(app, code):
    """Returns somebody who has shown this code."""
    client = visitor(app)
    answer = client.post("/person", data={"code": code})
    assert (answer.status_code, answer.headers["location"]) == (303, "/person")
    return client


def test_the_page_tells_what_is_allowed_spent_and_on_what_in_words(workspace, app):
    client = shown_in(app, workspace.codes.issue("person-001"))
    seen = text(client.get("/person").text)
    assert "Account of person-001" in seen
    assert (
        "nobody can tell what your data say with more than 1.111 times better odds than without "
        "them" in seen
    )
    assert math.exp(0.105) <= 1.111 < math.exp(0.105) + 0.001
    assert "pure ε, neighbours by replace ε = 0.5 ε = 0.105 ε = 0.395" in seen
    assert "the release “mean of May”, published" in seen
    assert "spent elsewhere, “survey of 2019”" in seen
    assert "below what is spent, which is ε = 0.105" in seen
    assert workspace.session.balance("person-001") == 0.395


@pytest.mark.parametrize("spent", [1, 10**6, 10**8, 1_234_567_890, 19 * 10**9])
def test_better_odds_are_a_bound_and_hardly_more(spent):
    (sentence,) = explain_protection([AccountBalance("pure epsilon, replace", 20 * 10**9, spent)])
    factor = float(re.search(r"more than ([0-9.,]+) times", sentence)[1].replace(",", ""))
    exact = math.exp(spent / 10**9)
    assert exact <= factor <= exact * (1 + 1e-12) + 0.001


def test_what_protects_nobody_is_not_called_a_bound():
    (sentence,) = explain_protection([AccountBalance("pure epsilon, replace", 10**12, 30 * 10**9)])
    assert "nothing is promised any more" in sentence
    (unspent,) = explain_protection([AccountBalance("zCDP rho, replace", 10**9, 0)])
    assert unspent == "Nothing is spent yet: no answer tells anything about you."
    both = [
        AccountBalance("epsilon at delta, zero out", 10**9, 10**8),
        AccountBalance("delta, zero out", 10**15, 10**15),
    ]
    assert "nothing is promised any more" in explain_protection(both)[0]


def test_the_page_says_one_sum_over_all_accounts(workspace, app):
    workspace.session.grant({"person-001": 1.0}, neighbours="replace labels")
    workspace.session.charge(
        {"person-001": 0.88}, key="labels", account="pure epsilon, replace labels"
    )
    seen = text(shown_in(app, workspace.codes.issue("person-001")).get("/person").text)
    assert seen.count("From all these answers together") == 1
    assert "with more than 2.678 times better odds than without them" in seen
    assert math.exp(0.985) <= 2.678 < math.exp(0.985) + 0.001
    assert "It is the sum over all accounts: ε = 0.985." in seen


def test_nothing_of_anybody_else_is_in_any_byte_that_a_visitor_gets(workspace, app):
    session = workspace.session
    session.grant({OWN: 0.25, **PLANTED})
    session.charge({name: amount / 7 for name, amount in PLANTED.items()}, key="an older study")
    session.charge({OWN: 0.125}, key="a study of their own")
    code = workspace.codes.issue(OWN)
    for name in PLANTED:
        workspace.codes.issue(name)
    client = shown_in(app, code)
    answers = [
        client.get("/person"),
        client.get("/person/statement"),
        client.get("/static/style.css"),
    ]
    answers += [visitor(app).get("/person"), visitor(app).post("/person", data={"code": code[:-1]})]
    answers += [client.post("/person/leave"), client.get("/person")]
    bytes_of = b"".join(answer.content + repr(answer.headers.raw).encode() for answer in answers)
    assert b"ask the curator for a new one" in bytes_of
    held = {
        "allowed": [0.25, 0.125],
        "others": [*PLANTED.values(), *(a / 7 for a in PLANTED.values()), 0.1, 0.5, 2.0],
    }
    assert all(f"ε = {amount}".encode() in answers[0].content for amount in held["allowed"])
    for amount in held["others"]:
        units = math.ceil(round(amount * 10**9, 3))
        assert not any(
            sign in bytes_of
            for sign in (f"ε = {amount:g}<".encode(), units.to_bytes(8, "big").hex().encode())
        )
    lines = session.ledger.lines(session.ledger.find("an older study").number)
    assert len(lines) == len(PLANTED)
    signs = [
        *PLANTED,
        "Quentin",
        "Wanda",
        "Yorick",
        "person-0",
        *(line.tobytes().hex() for line in lines["person"]),
    ]
    assert [sign for sign in signs if sign.encode() in bytes_of] == []
    assert b"<script>alert" not in answers[0].content
    assert b"Odile &lt;/script&gt;" in answers[0].content


def test_a_visit_opens_nothing_of_the_curator_and_the_curator_nobodys_page(workspace, app):
    client = shown_in(app, workspace.codes.issue("person-001"))
    elsewhere = ["/", "/ledger", "/market", "/audit", "/question", "/api/openapi.json"]
    assert {client.get(path).status_code for path in elsewhere} == {401}
    assert (
        client.post("/ledger/person", data={"person": "person-002", "do": "look"}).status_code
        == 401
    )
    answer = curator(app).get("/person")
    assert "See your own account" in answer.text
    assert "person-0" not in answer.text
    crumb = (
        visitor(app)
        .post("/person", data={"code": workspace.codes.issue("person-001")})
        .headers["set-cookie"]
    )
    assert all(word in crumb for word in ("HttpOnly", "Path=/person", "SameSite=strict"))


def test_leaving_and_doing_nothing_end_a_visit(workspace, app, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(access_codes, "now", lambda: clock[0])
    code = workspace.codes.issue("person-001")
    client = shown_in(app, code)
    clock[0] += IDLE - 1
    assert "person-001" in client.get("/person").text
    clock[0] += IDLE - 1
    assert "person-001" in client.get("/person").text, "whoever does something stays"
    clock[0] += IDLE
    assert "See your own account" in client.get("/person").text
    assert client.get("/person/statement").headers["location"] == "/person"
    client = shown_in(app, code)
    cookies = dict(client.cookies)
    assert client.post("/person/leave").status_code == 303
    client.cookies.update(cookies)  # whoever kept a copy of the cookie
    assert "person-001" not in client.get("/person").text


def test_a_new_code_ends_the_old_one_and_whoever_is_in_with_it(workspace, app):
    old = workspace.codes.issue("person-001")
    others = workspace.codes.issue("person-002")
    client = shown_in(app, old)
    new = workspace.codes.issue("person-001")
    assert "person-001" not in client.get("/person").text
    assert workspace.codes.sign_in(old) is None
    assert workspace.codes.find_visit(workspace.codes.sign_in(new)).person == "person-001"
    assert workspace.codes.find_visit(workspace.codes.sign_in(others)).person == "person-002"


def test_the_file_of_codes_is_for_its_owner_and_tells_neither_codes_nor_names(workspace, tmp_path):
    made = [workspace.codes.issue(name) for name in ("person-001", "person-002")]
    path = tmp_path / "books.db.codes"
    assert path.stat().st_mode & 0o777 == 0o600
    kept = path.read_text()
    assert "person-0" not in kept
    for code in made:
        secret = code.replace("-", "")[PREFIX:]
        assert secret not in kept
        assert code not in kept
    assert [one["prefix"] for one in json.loads(kept)["codes"]] == [code[:PREFIX] for code in made]
    assert sorted(p.name for p in tmp_path.glob("tmp*")) == []
    again = AccessCodes.for_ledger(workspace.session.ledger, f"sqlite:///{tmp_path / 'books.db'}")
    assert again.find_visit(again.sign_in(made[0])).person == "person-001", "codes outlast the page"


def test_codes_are_spelt_so_that_they_can_be_read_aloud(workspace):
    made = {workspace.codes.issue("person-001") for _ in range(40)}
    assert len(made) == 40
    assert all(re.fullmatch(rf"([{ALPHABET}]{{4}}-){{4}}[{ALPHABET}]{{4}}", code) for code in made)
    assert not set("01IO") & set(ALPHABET)
    code = workspace.codes.issue("person-001")
    for typed in (code.lower(), code.replace("-", ""), f"  {code.replace('-', ' ')} "):
        assert workspace.codes.sign_in(typed) is not None
    for wrong in (code[:-1], code + "A", code[1:], "", "-", "ß" * 20, code.replace(code[-1], "0")):
        assert workspace.codes.sign_in(wrong) is None


def test_wrong_and_unknown_codes_cost_the_same_and_only_a_right_one_a_scrypt(
    workspace, app, monkeypatch
):
    """One mark and one comparison in constant time, whatever is typed, and no answer tells wrong
    ones apart; scrypt at its full cost for the right one, once while somebody is in.
    """
    monkeypatch.setattr(access_codes, "COST", COST)
    code = workspace.codes.issue("person-001")
    calls = []
    compared = []
    scrypt = access_codes.hashlib.scrypt
    compare = access_codes.secrets.compare_digest
    monkeypatch.setattr(
        access_codes.hashlib, "scrypt", lambda *a, **k: calls.append(k) or scrypt(*a, **k)
    )
    monkeypatch.setattr(
        access_codes.secrets,
        "compare_digest",
        lambda a, b: compared.append(len(a) == len(b)) or compare(a, b),
    )
    client = visitor(app)
    bodies = []
    wrong_secret = code[:-1] + ("A" if code[-1] != "A" else "B")
    unknown = "ZZZZ" + code[4:]
    for typed in (wrong_secret, unknown, "Z"):
        before = len(compared)
        bodies.append(client.post("/person", data={"code": typed}).content)
        assert len(compared) == before + 1
    assert len(set(bodies)) == 1
    assert calls == []
    assert all(compared)
    for _ in range(3):
        assert visitor(app).post("/person", data={"code": code}).status_code == 303
    cost = [(k["n"], k["r"], k["p"], len(k["salt"]), k["dklen"]) for k in calls]
    assert cost == [(2**15, 8, 1, 16, 64)]


def test_codes_of_versions_before_marks_open_and_are_marked_once_used(workspace, tmp_path):
    used = workspace.codes.issue("person-001")
    unused = workspace.codes.issue("person-002")
    path = tmp_path / "books.db.codes"
    content = json.loads(path.read_text())
    without = [
        {name: value for name, value in one.items() if name != "mark"} for one in content["codes"]
    ]
    path.write_text(json.dumps({**content, "format": "sottovoce.codes/1", "codes": without}))
    again = AccessCodes.for_ledger(workspace.session.ledger, f"sqlite:///{tmp_path / 'books.db'}")
    assert not again.knows(used)
    assert again.sign_in(used[:-1] + ("A" if used[-1] != "A" else "B")) is None
    assert again.find_visit(again.sign_in(used)).person == "person-001"
    assert (again.knows(used), again.knows(unused)) == (True, False)
    assert again.find_visit(again.sign_in(unused)).person == "person-002"
    assert json.loads(path.read_text())["format"] == "sottovoce.codes/2"


def test_the_page_takes_codes_of_versions_before_marks(workspace, app, monkeypatch):
    code = workspace.codes.issue("person-001")
    calls = []
    workspace.codes._write_codes(
        [replace(kept, mark="") for kept in workspace.codes._read_codes().values()]
    )
    scrypt = access_codes.hashlib.scrypt
    monkeypatch.setattr(
        access_codes.hashlib, "scrypt", lambda *a, **k: calls.append(k) or scrypt(*a, **k)
    )
    wrong = code[:-1] + ("A" if code[-1] != "A" else "B")
    assert visitor(app).post("/person", data={"code": "ZZZZ" + code[4:]}).status_code == 403
    assert calls == [], "another prefix is not tried"
    assert visitor(app).post("/person", data={"code": wrong}).status_code == 403
    assert visitor(app).post("/person", data={"code": code}).status_code == 303
    assert workspace.codes.knows(code)


def test_a_code_of_before_marks_that_is_ended_while_it_is_looked_at_opens_nothing(
    workspace, monkeypatch
):
    code = workspace.codes.issue("person-001")
    opened = access_codes._reveal_name
    workspace.codes._write_codes(
        [replace(kept, mark="") for kept in workspace.codes._read_codes().values()]
    )
    monkeypatch.setattr(
        access_codes,
        "_reveal_name",
        lambda *given: (opened(*given), workspace.codes.issue("person-001"))[0],
    )
    assert workspace.codes.sign_in(code) is None


def test_one_person_has_few_visits_at_once(workspace):
    code = workspace.codes.issue("person-001")
    other = workspace.codes.sign_in(workspace.codes.issue("person-002"))
    tokens = [workspace.codes.sign_in(code) for _ in range(2 * MOST_VISITS)]
    assert [workspace.codes.find_visit(token) is not None for token in tokens] == [
        False
    ] * MOST_VISITS + [True] * MOST_VISITS
    assert workspace.codes.find_visit(other).person == "person-002", "and ends none of anybody else"


def test_a_code_of_another_window_is_known_at_once(workspace, tmp_path):
    again = AccessCodes.for_ledger(workspace.session.ledger, f"sqlite:///{tmp_path / 'books.db'}")
    first = workspace.codes.issue("person-001")
    assert again.knows(first)
    second = workspace.codes.issue("person-001")
    assert (again.knows(first), again.knows(second)) == (False, True)
    (tmp_path / "books.db.codes").unlink()
    assert not again.knows(second), "without the file nobody has a code"


def test_a_code_that_is_ended_while_it_is_looked_at_opens_nothing(workspace, monkeypatch):
    code = workspace.codes.issue("person-001")
    opened = access_codes._reveal_name
    monkeypatch.setattr(
        access_codes,
        "_reveal_name",
        lambda *given: (opened(*given), workspace.codes.issue("person-001"))[0],
    )
    assert workspace.codes.sign_in(code) is None


def test_what_is_entered_later_is_on_the_page_at_once(workspace, app):
    client = shown_in(app, workspace.codes.issue("person-001"))
    assert "ε = 0.395" in client.get("/person").text
    workspace.session.charge({"person-001": 0.1}, key="yet another")
    assert "ε = 0.295" in client.get("/person").text
    assert "ε = 0.295" in client.get("/person/statement").text


@pytest.mark.parametrize("typed", ["", "   ", "x" * 41, "a\x00b", "é" * 20, "<script>"])
def test_whatever_is_typed_for_a_code_is_answered_next_to_the_field(app, typed):
    answer = visitor(app).post("/person", data={"code": typed})
    assert answer.status_code == 403
    assert complaints(answer.text) == {"code"}
    assert "<script>" not in answer.text


def test_the_statement_is_checked_without_the_books_against_a_published_head(
    workspace, app, tmp_path
):
    client = shown_in(app, workspace.codes.issue("person-001"))
    kept = client.get("/person/statement")
    assert kept.headers["content-disposition"] == 'attachment; filename="statement.html"'
    (tmp_path / "kept.html").write_bytes(kept.content)
    paper = sv.Release.from_json(
        workspace.session.ledger.find("mean of May").release
    ).certificate.ledger
    for head, spent in (
        (paper["head"], "0.08"),
        (re.search(r'mono">([0-9a-f]{64})', client.get("/person").text)[1], "0.105"),
    ):
        held = CliRunner().invoke(
            ledger_app, ["check", str(tmp_path / "kept.html"), "--head", head]
        )
        assert held.exit_code == 0
        assert re.findall("ε = ([0-9.]+)", held.stdout)[:2] == ["0.5", spent]
    (tmp_path / "kept.html").write_bytes(kept.content.replace(b"0.105", b"0.005"))
    assert (
        CliRunner()
        .invoke(ledger_app, ["check", str(tmp_path / "kept.html"), "--head", head])
        .exit_code
        == 2
    )


def test_books_that_were_changed_are_said_to_be_so(workspace, app, tmp_path):
    client = shown_in(app, workspace.codes.issue("person-001"))
    with sqlite3.connect(tmp_path / "books.db") as database:
        database.execute("UPDATE lines SET amount = amount + 1")
    database.close()
    answer = client.get("/person")
    assert answer.status_code == 409
    assert "This statement does not hold" in answer.text
    assert "person-001" not in answer.text


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"format": "sottovoce.codes/2", "ledger": "another", "codes": []}']
)
def test_a_file_of_codes_that_is_none_is_refused_in_words(workspace, tmp_path, content):
    (tmp_path / "books.db.codes").write_text(content)
    for act in (
        lambda: workspace.codes.sign_in("ABCD"),
        lambda: workspace.codes.issue("person-001"),
    ):
        with pytest.raises(LedgerUnavailable, match="file of people's codes"):
            act()
    assert (tmp_path / "books.db.codes").read_text() == content, "nothing was written over it"


def test_somebody_without_an_account_gets_no_code(workspace, tmp_path):
    with pytest.raises(UnknownPeople):
        workspace.codes.issue("nobody of this name")
    assert not (tmp_path / "books.db.codes").exists()


@pytest.mark.parametrize(("width", "scheme"), [(1000, "light"), (360, "dark")])
def test_by_keyboard_alone_in_a_real_browser(served, chromium, width, scheme):  # noqa: F811
    from axe_playwright_python.sync_playwright import Axe

    context = chromium.new_context(viewport={"width": width, "height": 780}, color_scheme=scheme)
    page = context.new_page()
    trouble = []
    page.on("console", lambda said: trouble.append(said.text))
    page.goto(f"{served.address}/person")
    code = served.workspace.codes.issue("person-001")
    assert Axe().run(page).violations_count == 0
    for _ in range(2):  # past the link to the page itself
        page.keyboard.press("Tab")
    page.keyboard.type(code)
    page.keyboard.press("Enter")
    shown(page, "text=How to check it")
    assert page.inner_text("h1") == "Account of person-001"
    assert Axe().run(page).violations_count == 0
    assert page.evaluate("document.documentElement.scrollWidth") == width, (
        "nothing is wider than the window"
    )
    assert (
        page.evaluate("getComputedStyle(document.querySelector('svg.share .own')).fill")
        != "rgb(0, 0, 0)"
    )
    tab_to(page, "textContent.trim()", "Leave")
    page.keyboard.press("Enter")
    shown(page, "text=See your own account")
    assert "person-001" not in page.content()
    context.close()
    assert trouble == []
