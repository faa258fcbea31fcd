"""What another user of the machine can do with the link to the page: not read it, not use it twice,
not in silence.

A stranger sees every command line, may have looked over a shoulder, and can send what a browser
would send. On the code before, the browser's command line held the token, a second use was one
sentence to whoever came second, and the token was good for ever.
"""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from attacks.serving import serving
from sottovoce.web import access_codes, guard
from sottovoce.web.access_codes import SignIn
from sottovoce.web.guard import Guard, GuardedRequest, RequestRefused

TOKEN = "the-token-of-these-tests"
BROWSERS = {"file": "Mozilla/5.0 one", "thief": "Mozilla/5.0 two"}


def recording_browser(folder: Path) -> Path:
    """A browser that keeps its command line, as everybody on the machine sees it."""
    path = folder / "browser"
    part = str(folder / "part")
    seen = str(folder / "seen")
    path.write_text(
        f"#!{sys.executable}\nimport os, sys\nwith open({part!r}, 'w') as file:\n"
        f"    file.write('\\n'.join([*sys.argv, str(os.environ)]))\nos.rename({part!r}, {seen!r})\n"
    )
    path.chmod(0o755)
    return path


@pytest.mark.skipif(
    not Path("/proc/self/cmdline").exists(), reason="command lines are looked up in /proc"
)
def test_the_whole_way_of_a_link_and_of_somebody_who_uses_it_again(tmp_path):
    browser = recording_browser(tmp_path)
    with serving(
        tmp_path, environment={"BROWSER": f"{browser} %s", "SOTTOVOCE_LEDGER": "a-password"}
    ) as page:
        token = page.link.partition("#")[2]
        page_address = page.link.partition("#")[0]
        assert page_address == f"http://127.0.0.1:{page.port}/open", (
            "nothing before # tells the token"
        )
        seen = _when_it_is_there(tmp_path / "seen")
        assert token not in seen
        assert "a-password" not in seen, "nor is the browser told where the books are"
        assert token not in Path(f"/proc/{page.process.pid}/cmdline").read_text()
        file = Path(next(word for word in seen.split("\n") if word.startswith("file://"))[7:])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert f'value="{token}"' in file.read_text()
        mine = page.sign_in()
        assert not file.exists(), "it is gone once somebody came in"
        page.until("open in one browser")
        assert page.ask("/ledger", **mine)[0] == 200
        status, headers, text = page.show(token, "another browser")
        assert (status, "set-cookie" in headers) == (401, False)
        assert "used a second time" in text
        page.until("used a second time")
        status, _, text = page.ask("/ledger", **mine)
        assert (status, "used a second time" in text) == (401, True), (
            "whoever was in is told, and is out"
        )
        new = page.until("http://", 2).partition("#")[2]
        assert new != token
        assert page.show(token, "another browser")[0] == 401
        assert page.show(new)[0] == 200
        assert sum("used a second time" in line for line in page.said) == 1, (
            "and nobody can say it again and again"
        )


def _when_it_is_there(path: Path) -> str:
    from web.browser import until

    until(path.exists)
    return path.read_text()


@pytest.fixture
def participating(monkeypatch):
    """What the curator is told, and a clock."""
    told = []
    clock = [0.0]
    monkeypatch.setattr(access_codes, "read_sign_in_clock", lambda: clock[0])
    return SignIn(TOKEN, told.append), told, clock


def test_a_token_is_good_once(participating):
    way, told, _ = participating
    first = way.redeem(TOKEN, "a")
    assert first is not None
    assert way.knows(first, "a")
    assert [news.token for news in told] == [None]
    assert way.redeem(TOKEN, "a") is None
    assert not way.knows(first, "a"), "nobody can say who of the two is the curator"
    assert told[-1].token not in (None, TOKEN)
    assert way.redeem(TOKEN, "a") is None
    assert len(told) == 2, "an old token is a wrong one"


def test_a_token_is_good_for_minutes(participating):
    way, told, clock = participating
    assert access_codes.LIFE <= 10 * 60
    clock[0] = access_codes.LIFE
    assert way.redeem(TOKEN, "a") is None
    assert "too old" in told[-1].words
    new = told[-1].token
    clock[0] += access_codes.LIFE - 1
    assert way.redeem(new, "a") is not None


def test_a_cookie_is_good_in_the_browser_that_got_it(participating):
    way, told, _ = participating
    cookie = way.redeem(TOKEN, "a")
    assert not way.knows(cookie, "b")
    assert "another browser" in told[-1].words
    assert not way.knows(cookie, "a")
    assert way.redeem(told[-1].token, "a") is not None


def test_wrong_tokens_tell_the_curator_nothing_and_end_nothing(participating):
    way, told, _ = participating
    cookie = way.redeem(TOKEN, "a")
    for token in ("", "wrong", TOKEN[:-1], f"{TOKEN}x", cookie, "ü"):
        assert way.redeem(token, "b") is None
    assert len(told) == 1
    assert way.knows(cookie, "a")


async def _nothing(scope, receive, send):
    raise AssertionError


@pytest.mark.parametrize(
    "path", ["/", "/api/release", "/person", "/open/", "/open/script.js", "/ledger"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_file_may_bring_a_token_and_do_nothing_else(path, method):
    standing = Guard(_nothing, 8765, TOKEN)
    for site in ("cross-site", None):
        headers = {
            "host": ["127.0.0.1:8765"],
            "origin": ["null"],
            "cookie": [f"sottovoce-8765={standing.cookie}"],
        }
        asked = GuardedRequest(
            method, path, headers if site is None else {**headers, "sec-fetch-site": [site]}
        )
        with pytest.raises(RequestRefused):
            standing.admit(asked)
        if method != "POST":
            with pytest.raises(RequestRefused):
                standing.admit(GuardedRequest(method, "/open", asked.headers))


def test_a_site_may_not_even_show_a_token():
    """Somebody else's page says who it is; only what cannot be named may try."""
    standing = Guard(_nothing, 8765, TOKEN)
    for origin, site in (
        ("https://evil.example", "cross-site"),
        ("http://127.0.0.1:9", "same-site"),
        ("null", "none"),
    ):
        headers = {"host": ["127.0.0.1:8765"], "origin": [origin], "sec-fetch-site": [site]}
        with pytest.raises(RequestRefused):
            standing.admit(GuardedRequest("POST", "/open", headers))


def test_no_token_is_taken_from_an_address(tmp_path):
    """An address stays in histories; and the form is not longer than a token needs."""
    from starlette.testclient import TestClient

    told = []
    client = TestClient(Guard(_nothing, 8765, TOKEN, told.append), base_url="http://127.0.0.1:8765")
    assert "set-cookie" not in client.get("/open", params={"token": TOKEN}).headers
    file = {"origin": "null", "sec-fetch-site": "cross-site"}
    assert client.post("/open", params={"token": TOKEN}, headers=file).status_code == 401
    long = client.post(
        "/open", data={"token": TOKEN, "more": "x" * access_codes.MOST}, headers=file
    )
    assert long.status_code == 413
    assert told == []
    asking = client.get("/open")
    assert 'method="post"' in asking.text
    assert client.get("/open/script.js").headers["content-type"].startswith("text/javascript")
    assert "unsafe-inline" not in asking.headers["content-security-policy"]
    assert client.post("/open", data={"token": TOKEN}, headers=file).status_code == 200
    again = client.get("/open")
    assert (again.status_code, again.headers["refresh"]) == (200, "0; url=/")
    assert guard.HEADERS["referrer-policy"] == "no-referrer"
