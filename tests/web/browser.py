"""A real server in a thread on a free port, and Chromium in front of it, for tests that look at
pages as people do.

Chromium is the system's, or the one that Playwright installed. Where there is none, tests that need
it are skipped and say so.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import sottovoce as sv
from sottovoce.web import access_codes
from sottovoce.web.app import make_app
from sottovoce.web.server import make_server, open_socket
from sottovoce.web.workspace import Workspace

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
TOKEN = "a-token-for-the-tests"
#: Seconds after which a page is taken to hang; the machine may be very busy.
PATIENCE = 300.0
#: What a browser says about pages that refuse something in words.
REFUSALS = ("status of 404", "status of 409", "status of 422")
#: People, rows of each, and the tiers of the table that the tests bring.
PEOPLE = 2000
TIERS = {"careful": 0.2, "usual": 1.0, "open": 4.0}


@dataclass(frozen=True)
class Served:
    """A server over a workspace with books in a file."""

    workspace: Workspace
    port: int
    books: Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def link(self) -> str:
        return access_codes.make_link(self.port, TOKEN)


@contextmanager
def serving(folder: Path):
    books = folder / "books.db"
    place = f"sqlite:///{books}"
    workspace = Workspace(place=place, session=sv.Session(ledger=place))
    here = open_socket(0)
    port = here.getsockname()[1]
    running = make_server(make_app(workspace, port, TOKEN))
    thread = threading.Thread(target=running.run, args=([here],), daemon=True)
    thread.start()
    until(lambda: running.started)
    try:
        yield Served(workspace, port, books)
    finally:
        running.should_exit = True
        thread.join(PATIENCE)
        workspace.clear()  # the server calls no end of the app's own


def until(happened):
    """Waits until something has happened."""
    late = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < late, "it took too long"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="module")
def chromium():
    """The browser itself; one for the tests of a file."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: no page is looked at"
    )
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    with playwright.sync_playwright() as running:
        try:
            browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except playwright.Error:
            pytest.skip(
                f"no Chromium here ({', '.join(CHROMIUM)}, nor Playwright's own): no page is "
                "looked at"
            )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def window(chromium, served):
    """Opens windows that are signed in; the one-time link is opened once, in a window of its
    own.
    """
    first = chromium.new_context()
    page = first.new_page()
    page.goto(served.link)
    page.wait_for_url(f"{served.address}/")
    signed_in = first.storage_state()
    first.close()

    @contextmanager
    def opened(**settings):
        context = chromium.new_context(storage_state=signed_in, base_url=served.address, **settings)
        context.set_default_timeout(PATIENCE * 1000)
        page = context.new_page()
        trouble = []
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("console", lambda said: trouble.append(said.text) if said.type == "error" else None)
        yield page
        context.close()
        assert [line for line in trouble if not any(status in line for status in REFUSALS)] == []

    return opened


def people_csv(folder: Path) -> Path:
    """A table of people with tiers, one or two rows each; costs depend on age and smoking."""
    lines = ["id,age,smoker,cost,tier"]
    tiers = list(TIERS)
    for i in range(PEOPLE):
        age = 18 + i * 37 % 70
        smoker = i % 4 == 0
        cost = 1500 + 90 * age + 4000 * smoker + i * 7919 % 1000
        lines += [f"p{i:04d},{age},{'yes' if smoker else 'no'},{cost},{tiers[i % 3]}"] * (
            1 + (i % 10 == 0)
        )
    path = folder / "patients.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def describe(page, table: Path) -> None:
    """Adds a table to the workspace, and types in what is public about it."""
    page.goto("/")
    page.set_input_files("#table", table)
    page.get_by_role("button", name="Open table").click()
    shown(page, "#person")
    page.select_option("#person", "id")
    page.select_option("#budget", "tier")
    page.fill("#tiers", ", ".join(f"{name} = {epsilon}" for name, epsilon in TIERS.items()))
    page.fill("#low-1", "18")
    page.fill("#high-1", "100")
    page.select_option("#kind-2", "factor")
    page.fill("#levels-2", "no, yes")
    page.fill("#low-3", "0")
    page.fill("#high-3", "20000")
    page.get_by_role("button", name="Save, and see").click()
    shown(page, "role=heading[name='Who grants how much']")


def release(page, key: str) -> None:
    """Releases what is planned on the page."""
    page.fill("#key", key)
    page.get_by_role("button", name="Release, and charge").click()
    shown(page, "role=heading[name='Certificate']")


def shown(page, what: str) -> None:
    """Waits until the next page shows something and is there as a whole: pages are seen before all
    of them has come.
    """
    page.wait_for_selector(what)
    page.wait_for_load_state()


if __name__ == "__main__":  # look at it by hand
    with serving(Path(sys.argv[1])) as running:
        print(running.link, flush=True)
        time.sleep(3600)
