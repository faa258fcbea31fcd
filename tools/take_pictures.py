# SPDX-License-Identifier: Apache-2.0
"""Take the pictures of the page that docs/guide/serve.md shows: ``python tools/take_pictures.py``.

A real server over books in a temporary folder, invented patients and sellers, and Chromium, as the
tests of the page use them. Noise is fresh every time, so pictures differ in their last digits.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from sottovoce.web import actions, question_form, uploads  # noqa: E402
from sottovoce.web.question_form import Fields  # noqa: E402
from web.browser import CHROMIUM, serving, shown, until  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDE = {"width": 960, "height": 850}
NARROW = {"width": 460, "height": 850}
PEOPLE = 300
TIERS = {"careful": 0.5, "usual": 1, "open": 2, "very open": 4}
SCHEMA = {
    "person": "id",
    "budget": "tier",
    "tiers": ", ".join(f"{name} = {epsilon}" for name, epsilon in TIERS.items()),
    "kind-1": "number",
    "low-1": "18",
    "high-1": "100",
    "unit-1": "years",
    "kind-2": "factor",
    "levels-2": "no, yes",
    "kind-3": "number",
    "low-3": "0",
    "high-3": "20000",
    "unit-3": "EUR",
}
#: The key of each release, its question, and the share of everybody's ε that it may take.
RELEASES = (
    ("mean of May", "mean", 0.2),
    ("median of May", "quantile", 0.1),
    ("costs of May", "ridge", 0.5),
)
MARKET = (
    "by=budget&amount=50&slide=0&rule=ceiling&prior=uniform&low=0.1&high=3&cap=1&features=2&norm=1"
    "&seller=seller&cost=cost&coin=0.01"
)


def write_patients() -> str:
    """Return a table of invented people in tiers, whose costs depend on age and smoking."""
    names = list(TIERS)
    lines = ["id,age,smoker,cost,tier"]
    for i in range(PEOPLE):
        age = 18 + i * 37 % 70
        smokes = i % 4 == 0
        cost = 1500 + 90 * age + 4000 * smokes + i * 7919 % 1000
        tier = names[(i - 1) % len(names)]
        lines.append(f"p{i:04d},{age},{'yes' if smokes else 'no'},{cost},{tier}")
    return "\n".join([*lines, ""])


def write_sellers() -> str:
    """Return invented reports of what a unit of ε costs."""
    lines = [f"s{i},{0.4 + i * 61 % 97 / 40:.2f}" for i in range(200)]
    return "\n".join(["seller,cost", *lines, ""])


def fill_workspace(workspace: Any, folder: Path) -> tuple[str, str]:
    """Return the names of the patients and the sellers, described, granted and released from."""
    found = []
    for file, content in (("patients.csv", write_patients()), ("sellers.csv", write_sellers())):
        (folder / file).write_text(content, encoding="utf-8")
        with open(folder / file, "rb") as table:
            found.append(uploads.save_table(workspace, file, table))
    patients, sellers = found
    columns = workspace.tables[patients].columns
    actions.declare(workspace, patients, question_form.read_schema(Fields(SCHEMA), columns))
    workspace.session.grant(actions.read_grants(workspace, patients))
    for key, question, share in RELEASES:
        asked = actions.QuestionRequest(patients, question, column="cost", share=share)
        wanted = actions.prepare_question(workspace, asked)
        job = workspace.get_job(actions.start_release(workspace, *wanted, key))
        until(lambda job=job: job.state != "working")
    return patients, sellers


def take_pictures(page: Any, patients: str, sellers: str) -> None:
    """Take one picture of every page that the guide shows."""
    pages = {
        "table": "/",
        "schema": f"/table/{patients}",
        "people": f"/table/{patients}/people",
        "question": f"/question/{patients}?question=ridge&column=cost&share=60",
        "release": "/release?key=costs+of+May",
        "market": f"/market?table={sellers}&{MARKET}",
        "ledger": "/ledger",
    }
    for name, address in pages.items():
        page.goto(address)
        page.screenshot(path=IMAGES / f"serve-{name}.png", full_page=True)
    page.goto("/audit")
    page.select_option("#key", "costs of May")
    page.get_by_role("button", name="Look at every row").click()
    shown(page, "role=heading[name='Who is least protected']")
    page.screenshot(path=IMAGES / "serve-audit.png", full_page=True)
    page.goto("/ledger")
    page.fill("#person", "p0001")
    page.get_by_role("button", name="Show their account").click()
    page.get_by_role("button", name="Make a new code").click()
    shown(page, "#new-code")
    code = page.locator("#new-code").text_content()
    page.set_viewport_size(NARROW)
    page.goto("/person")
    page.fill("#code", code)
    page.get_by_role("button", name="Show my account").click()
    shown(page, "text=How to check it")
    page.screenshot(path=IMAGES / "serve-person.png", full_page=True)


def main() -> None:
    """Take all pictures."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    folder = Path(tempfile.mkdtemp())
    try:
        with serving(folder) as running, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            patients, sellers = fill_workspace(running.workspace, folder)
            context = browser.new_context(base_url=running.address, viewport=WIDE)
            page = context.new_page()
            page.goto(running.link)
            page.wait_for_url(f"{running.address}/")
            take_pictures(page, patients, sellers)
            browser.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
