"""Signing in with a real browser: from the file, by the printed link, and without script."""

from __future__ import annotations

import pytest

from sottovoce.web import access_codes
from web.browser import TOKEN, chromium, serving

__all__ = ["chromium"]

WAYS = {"file": True, "file without script": False, "link": True}


@pytest.mark.parametrize("way", WAYS)
def test_a_browser_signs_in_and_keeps_no_token(chromium, tmp_path, way):
    """A cookie with SameSite=Strict does not survive a redirect from a file; the page leads on by
    itself.
    """
    with serving(tmp_path) as served:
        file = tmp_path / "open.html"
        file.write_text(access_codes.make_form(served.port, TOKEN))
        context = chromium.new_context(java_script_enabled=WAYS[way])
        page = context.new_page()
        asked = []
        page.on("request", lambda request: asked.append(f"{request.url} {request.all_headers()}"))
        page.goto(served.link if way == "link" else file.as_uri())
        if not WAYS[way]:
            page.get_by_role("button").click()
        page.wait_for_url(f"{served.address}/")
        assert page.locator("#table").count() == 1
        (cookie,) = context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert not any(TOKEN in line for line in asked if not line.startswith(served.link)), (
            "in no address or header"
        )
        if WAYS[way]:
            assert TOKEN not in page.evaluate("location.href + document.referrer")
        page.go_back()
        assert page.url == "about:blank" or not WAYS[way], "and the way in is not in the history"
        context.close()
