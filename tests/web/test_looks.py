"""How pages look and are used: axe on every page, a narrow window, light and dark, keyboard alone,
paper, no script.

One workspace is furnished for all tests: a table, a schema, grants, two releases, sellers. axe
looks at each page twice: wide and light, narrow and dark.
"""

from __future__ import annotations

import re

import pytest

from sottovoce.web import actions, question_form, uploads
from sottovoce.web.question_form import Fields
from web.browser import TIERS, chromium, people_csv, release, served, shown, until, window  # noqa: F401

pytestmark = pytest.mark.xdist_group("looks")  # the workspace is furnished once
DESCRIBED = {
    "person": "id",
    "budget": "tier",
    "tiers": ", ".join(f"{name} = {price}" for name, price in TIERS.items()),
    "kind-1": "number",
    "low-1": "18",
    "high-1": "100",
    "kind-2": "factor",
    "levels-2": "no, yes",
    "kind-3": "number",
    "low-3": "0",
    "high-3": "20000",
}
SELLERS = "seller,cost\n" + "".join(f"s{i},{0.5 + i % 20 / 10}\n" for i in range(200))
MARKET = (
    "by=budget&amount=50&slide=0&rule=ceiling&prior=uniform&low=0.1&high=3&cap=1&features=2&norm=1"
    "&seller=seller&cost=cost"
)
WIDE = {"width": 1100, "height": 800}
NARROW = {"width": 360, "height": 740}
ASKED = "question=posterior&column=cost&share=20&gamma=&alpha=&delta="


@pytest.fixture(scope="module")
def furnished(served, tmp_path_factory):  # noqa: F811
    """The names of the table and of the sellers in a workspace with everything on it."""
    workspace = served.workspace
    folder = tmp_path_factory.mktemp("furniture")
    with open(people_csv(folder), "rb") as table:
        name = uploads.save_table(workspace, "patients.csv", table)
    described = question_form.read_schema(Fields(DESCRIBED), workspace.tables[name].columns)
    actions.declare(workspace, name, described)
    budgets = actions.read_grants(workspace, name)
    workspace.session.grant(budgets)
    workspace.session.grant(budgets, currency="epsilon, delta", neighbours="zero out", delta=1e-3)
    for key, question in (("mean-of-May", "mean"), ("model-of-May", "posterior")):
        wanted = actions.prepare_question(
            workspace, actions.QuestionRequest(name, question, column="cost", share=0.2)
        )
        job = workspace.get_job(actions.start_release(workspace, *wanted, key))
        until(lambda job=job: job.state != "working")
        assert job.state == "done", job.sentence
    (folder / "sellers.csv").write_text(SELLERS)
    with open(folder / "sellers.csv", "rb") as table:
        return name, uploads.save_table(workspace, "sellers.csv", table)


def every_page(page, name, sellers):
    """Goes to every page there is, one after the other, and yields what it is."""
    release_of_may = f"/release?{ASKED}&key=model-of-May&table={name}"
    addresses = [
        "/",
        f"/table/{name}",
        f"/table/{name}/people",
        f"/question/{name}?question=ridge&column=cost&share=50",
        f"/report/{name}?ask-0=mean&column-0=cost&ask-1=count&by-1=smoker&column-1=cost&share=50",
        f"/report/{name}?ask-0=mean&column-0=cost&wanted-0=x&share=50",
        f"/question/{name}?question=quantile&column=cost&share=0&q=2&cells=x",
        "/release?key=mean-of-May",
        release_of_may,
        "/release?key=never",
        f"/audit?{ASKED}&key=model-of-May&table={name}",
        "/market",
        f"/market?table={sellers}&{MARKET}",
        "/ledger",
        "/person",
    ]
    for address in addresses:
        page.goto(address)
        yield address
    page.goto(f"/audit?{ASKED}&key=model-of-May&table={name}")
    page.get_by_role("button", name="Look at every row").click()
    shown(page, "role=heading[name='Who is least protected']")
    yield "an audit"
    page.goto("/ledger")
    page.fill("#person", "p0001")
    page.get_by_role("button", name="Show their account").click()
    page.get_by_role("button", name="Make a new code").click()
    shown(page, "#new-code")
    yield "somebody's account and code"
    code = page.locator("#new-code").text_content()
    page.goto("/person")
    page.fill("#code", code)
    page.get_by_role("button", name="Show my account").click()
    shown(page, "text=How to check it")
    yield "a person's own page"


@pytest.mark.parametrize(
    ("scheme", "size", "share"),
    [
        ("light", WIDE, 2),
        ("dark", NARROW, 1),
        pytest.param("light", WIDE, 1, marks=pytest.mark.long),
    ],
    ids=["light, wide, every other", "dark, narrow", "light, wide"],
)
def test_axe_finds_nothing_and_no_page_scrolls_sideways(window, furnished, scheme, size, share):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = {}
    with window(
        viewport=size, color_scheme=scheme, bypass_csp=True
    ) as page:  # axe itself is a script from elsewhere
        for turn, what in enumerate(every_page(page, *furnished)):
            if turn % share:
                continue
            for violation in axe.run(page).response["violations"]:
                found[what, violation["id"]] = [node["html"][:120] for node in violation["nodes"]][
                    :3
                ]
            if page.evaluate(
                "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            ):
                found[what, "scrolls sideways"] = page.evaluate(
                    "document.documentElement.scrollWidth"
                )
    assert found == {}


def test_the_checks_can_fail(window, furnished):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with window(viewport=NARROW, bypass_csp=True) as page:
        page.goto("/")
        page.evaluate("document.querySelector('label').remove()")
        page.evaluate("document.querySelector('h1').style.width = '500px'")
        assert "label" in {violation["id"] for violation in axe.run(page).response["violations"]}
        assert page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )


def test_dark_is_dark_and_paper_is_light(window, furnished):  # noqa: F811
    name, _ = furnished
    ground = "getComputedStyle(document.body).backgroundColor"
    with window(color_scheme="dark") as page:
        page.goto(f"/question/{name}?question=mean&column=cost&share=50")
        assert page.evaluate(ground) == "rgb(25, 26, 28)"
        page.emulate_media(media="print")
        assert page.evaluate(ground) == "rgb(251, 250, 247)"
        assert not page.get_by_role("navigation").is_visible()
        assert not page.get_by_role("button").first.is_visible()
        assert page.get_by_role("heading", name="What it costs whom").is_visible()
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_a_question_can_be_asked_by_keyboard_alone(window, furnished, served):  # noqa: F811
    name, _ = furnished
    with window() as page:
        page.goto(f"/question/{name}")
        page.keyboard.press("Tab")
        assert focused(page) == "To the page itself"
        page.keyboard.press("Enter")
        walk(page, "share")
        page.keyboard.press("End")
        for _ in range(9):
            page.keyboard.press("PageDown")
        page.wait_for_url("**share=10**")
        walk(page, "key")
        page.keyboard.type("by-keyboard")
        page.keyboard.press("Enter")
        shown(page, "role=heading[name='Certificate']")
    assert b"mean" in actions.read_release(served.workspace, "by-keyboard")


def focused(page):
    return page.evaluate("document.activeElement.textContent")


def walk(page, name, most=60):
    """Presses Tab until a field is reached; what has the focus can be seen on the way."""
    for _ in range(most):
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if page.evaluate("document.activeElement.id") == name:
            return
    raise AssertionError(f"{name} cannot be reached by keyboard")


def test_everything_works_without_script(window, furnished):  # noqa: F811
    name, _ = furnished
    with window(java_script_enabled=False) as page:
        page.goto(f"/question/{name}")
        page.select_option("#question", "quantile")
        page.get_by_role("button", name="Plan").click()
        page.fill("#q", "0.25 0.75")
        page.locator("#share").press("Home")
        page.get_by_role("button", name="Plan").click()
        assert "the true 0.25 quantile, " in page.locator(".expected").text_content()
        release(page, "without-script")
        assert re.search(
            r"0\.25.*0\.75", page.locator(".release table").first.text_content(), re.DOTALL
        )
