"""The market's page: the outcome of the command line, moved by a slider, and taken over as grants
once confirmed.
"""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from sottovoce.cli.main import app as commands
from sottovoce.web.market_pages import MOST_TYPED, SLIDER_STEPS, STEPS_PER_DECADE
from web.browser import chromium, shown, window  # noqa: F401
from web.rooms import app_over, complaints, curator, desk_in, served, text  # noqa: F401

SELLERS = [(f"seller-{i:03d}", 1 + 37 * i % 41 / 10) for i in range(120)]
CSV = "seller,cost\n" + "".join(f"{name},{cost}\n" for name, cost in SELLERS)
FORM = {
    "prior": "uniform",
    "low": "1",
    "high": "6",
    "by": "budget",
    "amount": "200",
    "slide": "0",
    "rule": "ceiling",
    "cap": "1",
    "features": "10",
    "norm": "1",
    "coin": "0.01",
    "middle": "",
    "deviation": "",
    "seller": "seller",
    "cost": "cost",
}


@pytest.fixture
def workspace(tmp_path):
    return desk_in(tmp_path)


@pytest.fixture
def client(workspace):
    return curator(app_over(workspace))


@pytest.fixture(scope="module")
def settled(tmp_path_factory):
    """A curator with reports in the workspace, for tests that change nothing."""
    client = curator(app_over(desk_in(tmp_path_factory.mktemp("settled"))))
    return client, {**FORM, "table": sent(client)}


#: Costs that were seen before, and are public.
EARLIER = "cost\n" + "\n".join(str(1 + number / 10) for number in range(50)) + "\n"


def sent(client, content=CSV, name="sellers.csv"):
    """Sends a file of reports, and returns the name under which it lies in the workspace."""
    answer = client.post("/market/sellers", files={"file": (name, content, "text/csv")})
    assert answer.status_code == 303
    return re.fullmatch(r"/market\?table=([\w-]+)", answer.headers["location"])[1]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({}, ["--prior", "uniform:1:6", "--budget", "200"]),
        (
            {"rule": "scaling", "slide": "20"},
            ["--prior", "uniform:1:6", "--budget", "2000", "--rule", "scaling"],
        ),
        (
            {
                "by": "trade_off",
                "amount": ".001",
                "prior": "lognormal",
                "middle": "2",
                "deviation": ".5",
                "cap": ".4",
            },
            ["--prior", "lognormal:2:0.5:1:6", "--trade-off", "0.001", "--cap", "0.4"],
        ),
        ({"reserve": "4"}, ["--prior", "uniform:1:6", "--budget", "200", "--reserve", "4"]),
        (
            {"prior": "empirical", "earlier": "EARLIER", "low": "", "high": "not used"},
            ["--prior", "empirical:EARLIER", "--budget", "200"],
        ),
    ],
)
def test_the_allocation_is_the_one_of_the_command_line(client, tmp_path, form, words):
    query = {**FORM, **form, "table": sent(client)}
    (tmp_path / "sellers.csv").write_text(CSV)
    (tmp_path / "earlier.csv").write_text(EARLIER)
    if "earlier" in query:
        query["earlier"] = sent(client, EARLIER)
    words = [word.replace("EARLIER", str(tmp_path / "earlier.csv")) for word in words]
    line = ["market", str(tmp_path / "sellers.csv"), *words, "--coin", "0.01"]
    files = ["--out", str(tmp_path / "a.csv"), "--publish", str(tmp_path / "p.json")]
    assert CliRunner().invoke(commands, [*line, *files]).exit_code == 0
    assert (
        client.get("/market/allocation.csv", params=query).text == (tmp_path / "a.csv").read_text()
    )
    assert client.get("/market/published.json", params=query).json() == json.loads(
        (tmp_path / "p.json").read_text()
    )
    answer = client.get("/market", params=query)
    total = json.loads((tmp_path / "p.json").read_text())["total_paid"]
    assert f"for {total:g}." in text(answer.text)
    if "reserve" in form:
        assert json.loads((tmp_path / "p.json").read_text())["reserve"] == float(form["reserve"])
        assert f"nothing above a price of {form['reserve']}" in text(answer.text)
    assert "FOR THE BUYER ALONE" in answer.text
    assert "Reported costs are not protected" in answer.text
    assert not re.search(r"<style|\sstyle=", answer.text)


def paid(answer):
    return float(re.search(r"sellers, for ([0-9.]+)\.", text(answer.text))[1])


def bound(answer):
    return float(re.search(r"add to the error: ([0-9.]+)\.", text(answer.text))[1])


@pytest.mark.parametrize("rule", ["ceiling", "scaling"])
def test_along_the_slider_more_money_buys_less_error_and_no_budget_is_exceeded(client, rule):
    query = {**FORM, "rule": rule, "table": sent(client)}
    found = []
    for slide in range(-SLIDER_STEPS, SLIDER_STEPS + 1, 15):
        answer = client.get("/market", params={**query, "slide": str(slide)})
        found.append((paid(answer), bound(answer)))
        assert found[-1][0] <= 200 * 10 ** (slide / STEPS_PER_DECADE)
        assert answer.text.count("<circle") > 7
        assert ">now</text>" in answer.text
    payments, errors = zip(*found, strict=True)
    assert list(payments) == sorted(payments)
    assert list(errors) == sorted(errors, reverse=True)
    assert len(set(payments)) >= 4, "only where everything is bought does more money change nothing"


def test_typed_reports_are_taken_like_a_file(client):
    lines = "\n".join(f"{name}, {cost}" for name, cost in SELLERS)
    typed = client.post("/market/sellers", data={"typed": lines})
    assert typed.status_code == 303
    query = {**FORM, "table": typed.headers["location"].partition("=")[2]}
    by_file = client.get("/market/allocation.csv", params={**query, "table": sent(client)}).text
    assert client.get("/market/allocation.csv", params=query).text == by_file
    capped = "\n".join(f"{name}, {cost}, 0.05" for name, cost in SELLERS)
    query["table"] = (
        client.post("/market/sellers", data={"typed": capped}).headers["location"].partition("=")[2]
    )
    shares = [
        line.split(",")[1]
        for line in client.get("/market/allocation.csv", params=query).text.splitlines()[1:]
    ]
    assert max(map(float, shares)) <= 0.05


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ("", "file"),
        ("ada", "typed"),
        ("ada, 1\nben", "typed"),
        ("ada, 1\nben, 2, 3", "typed"),
        ("ada, 1, 2, 3", "typed"),
        (", 1", "typed"),
        ("ada,", "typed"),
        ("\n".join(f"s{i}, 1" for i in range(MOST_TYPED + 1)), "typed"),
        ("x" * 30_000, "typed"),
    ],
)
def test_what_cannot_be_read_as_reports_is_said_next_to_the_field(client, workspace, typed, field):
    answer = client.post("/market/sellers", data={"typed": typed})
    assert (answer.status_code, complaints(answer.text)) == (422, {field})
    assert workspace.tables == {}


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"\x00\x01", b"seller,seller\n1,2\n", b"a" * 2_000_000]
)
def test_a_file_that_is_no_table_is_refused_next_to_the_field(client, workspace, content):
    answer = client.post(
        "/market/sellers", files={"file": ("../../etc/passwd", content, "text/csv")}
    )
    assert (answer.status_code, complaints(answer.text)) == (422, {"file"})
    assert workspace.tables == {}
    assert list(workspace.folder.iterdir()) == []


WRONG = {
    "nothing": ({"low": "", "high": "", "amount": ""}, {"low", "high", "amount"}),
    "no numbers": (
        {"low": "a", "high": "b", "amount": "c", "cap": "d"},
        {"low", "high", "amount", "cap"},
    ),
    "reversed": ({"low": "6", "high": "1"}, {"high"}),
    "empty range": ({"low": "2", "high": "2"}, {"high"}),
    "negative": ({"low": "-1"}, {"low"}),
    "infinite": ({"high": "inf"}, {"high"}),
    "no money": ({"amount": "0"}, {"amount"}),
    "negative γ": ({"by": "trade_off", "amount": "-1"}, {"amount"}),
    "no cap": ({"cap": "0"}, {"cap"}),
    "beyond protection": ({"cap": "101"}, {"cap"}),
    "no features": ({"features": "0"}, {"features"}),
    "no length": ({"norm": "0"}, {"norm"}),
    "a coin too fine": ({"coin": "1e-12"}, {"coin"}),
    "a coin of nothing": ({"coin": "0"}, {"coin"}),
    "another law": ({"prior": "gossip"}, {"prior"}),
    "an earlier market that is not named": ({"prior": "empirical"}, {"earlier"}),
    "an earlier market that is not there": ({"prior": "empirical", "earlier": "gone"}, {"earlier"}),
    "a reserve without a budget": (
        {"by": "trade_off", "amount": ".001", "reserve": "2"},
        {"reserve"},
    ),
    "a reserve that is no price": ({"reserve": "-2"}, {"reserve"}),
    "a law without numbers": ({"prior": "normal"}, {"middle", "deviation"}),
    "a law that cannot be": ({"prior": "lognormal", "middle": "0", "deviation": "1"}, {"middle"}),
    "a law beside its range": (
        {"prior": "normal", "middle": "1e9", "deviation": "1e-3"},
        {"middle"},
    ),
    "another way": ({"by": "feeling"}, {"by"}),
    "another rule": ({"rule": "none"}, {"rule"}),
    "beyond the slider": ({"slide": "31"}, {"slide"}),
    "another column": ({"seller": "name"}, {"seller"}),
    "names for costs": ({"cost": "seller"}, {"cost"}),
    "reports above all prices": ({"low": "0.1", "high": "0.2"}, {"low"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_whatever_is_wrong_with_the_terms_is_said_next_to_its_field(settled, name):
    (client, query) = settled
    (given, fields) = WRONG[name]
    answer = client.get("/market", params={**query, **given})
    assert answer.status_code == 422
    assert complaints(answer.text) == fields
    assert "--" not in text(answer.text), "options of the command line are fields here"
    assert "Correct what is marked." in answer.text


def test_the_reports_to_be_paid_are_no_earlier_market(settled):
    client, query = settled
    by_file = (
        sent(client, "price\n1\n2\n"),
        sent(client, "cost\n1\nmany\n"),
        sent(client, "cost\n2\n2\n"),
    )
    for earlier in (query["table"], *by_file):
        answer = client.get("/market", params={**query, "prior": "empirical", "earlier": earlier})
        assert (answer.status_code, complaints(answer.text)) == (422, {"earlier"})


def test_odd_addresses_do_no_harm(client):
    table = sent(client)
    for query in (
        {"table": "nowhere", "low": "1"},
        {"address": "x", "table": table},
        {"self": "1", "request": "2"},
    ):
        for path in ("/market", "/market/take", "/market/allocation.csv", "/market/published.json"):
            assert client.get(path, params=query).status_code in (200, 303, 422)
        assert client.post("/market/take", data=query).status_code == 303


def test_hostile_names_are_text_and_no_formulas(client):
    table = sent(client, 'seller,cost\n=1+1,1.5\n"<script>alert(1)</script>",2\n@x,3\n')
    query = {**FORM, "table": table}
    assert (
        client.get("/market/allocation.csv", params=query).text.splitlines()[1].startswith("'=1+1,")
    )
    seen = client.get("/market", params=query).text + client.get("/market/take", params=query).text
    assert "<script>alert" not in seen
    odd = {**query, "coin": '"><script>alert(2)</script>'}
    assert "<script>alert" not in client.get("/market", params=odd).text


def test_the_allocation_becomes_grants_once_it_is_confirmed(client, workspace):
    query = {**FORM, "table": sent(client)}
    before = list(workspace.session.ledger.entries())
    asked = client.get("/market/take", params=query)
    assert asked.status_code == 200
    assert "Bought ε =" in asked.text
    unsure = client.post("/market/take", data=query)
    assert (unsure.status_code, complaints(unsure.text)) == (422, {"sure"})
    assert list(workspace.session.ledger.entries()) == before
    done = client.post("/market/take", data={**query, "sure": "yes"})
    assert (done.status_code, done.headers["location"]) == (303, "/ledger?granted=yes")
    lines = [
        line.split(",")
        for line in client.get("/market/allocation.csv", params=query).text.splitlines()[1:]
    ]
    assert {name: workspace.session.balance(name) for name, _, _ in lines} == {
        name: float(e) for name, e, _ in lines
    }
    workspace.session.verify()


def test_books_that_refuse_are_told_next_to_the_box(client, workspace):
    workspace.session.ledger.seal(3, "ab" * 32)
    answer = client.post("/market/take", data={**FORM, "table": sent(client), "sure": "yes"})
    assert (answer.status_code, complaints(answer.text)) == (422, {"sure"})
    assert "This ledger is sealed" in answer.text


@pytest.mark.parametrize(("width", "scheme"), [(1000, "light"), (360, "dark")])
def test_the_slider_moves_the_outcome_in_a_real_browser_by_keyboard(window, served, width, scheme):  # noqa: F811
    from axe_playwright_python.sync_playwright import Axe

    with window(viewport={"width": width, "height": 780}, color_scheme=scheme) as page:
        page.goto("/market")
        assert Axe().run(page).violations_count == 0
        page.focus("#typed")
        page.keyboard.insert_text("\n".join(f"{name}, {cost}" for name, cost in SELLERS))
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        shown(page, "#amount")
        for name, value in (("amount", "200"), ("low", "1"), ("high", "6")):
            page.focus(f"#{name}")
            page.keyboard.type(value)
        with page.expect_event(
            "load"
        ):  # the picture is on the page before, too, if one waits a little
            page.keyboard.press("Enter")
        shown(page, "#outcome svg.curves")
        assert Axe().run(page).violations_count == 0
        assert page.evaluate("document.documentElement.scrollWidth") == width
        first = page.inner_text("#outcome .note")
        assert first.startswith("The budget is 200.")
        page.focus("#slide")
        for _ in range(STEPS_PER_DECADE // 2):
            page.keyboard.press("ArrowRight")
        shown(page, "#outcome .note:has-text('The budget is 632.456')")
        assert page.inner_text("#outcome .note") != first
        page.click("text=Use these as grants")
        shown(page, "#sure")
        assert Axe().run(page).violations_count == 0
        page.focus("#sure")
        page.keyboard.press("Space")
        page.keyboard.press("Enter")
        shown(page, "text=Written: the last entry")
        assert served.workspace.session.balance("seller-000") > 0
