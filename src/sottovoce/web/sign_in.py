# SPDX-License-Identifier: Apache-2.0
"""The curator's way in: a token that is good once, for some minutes, and becomes the cookie of one
browser.

The token never stands in a command line or in the part of an address that is sent: both can be read
by others on the machine, or are kept in histories and logs. It comes in the body of a form, from
one of two places:

    a file that only the curator can read, which the browser is opened on and which sends itself the
    printed link, whose token stands behind #; browsers keep that to themselves, and the page's
    script sends it

Whoever comes first with the token is let in, and the curator is told. If the same token comes again
from somebody who is not in, or the cookie from another browser, two know what one should: nobody
can say which of them is the curator, so everybody is signed out, and the curator is told and gets a
new link where only the curator can see it.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

#: Bytes of randomness of a token and of a cookie.
SECRET = 32
#: Seconds for which a token is good.
LIFE = 5 * 60
#: Bytes of the form that brings a token.
MOST = 1024

#: Seconds of a clock that never goes back. A seam: tests put their own clock in its place.
now: Callable[[], float] = time.monotonic

OPENED = "The link was used, and the page is open in one browser. If it is not yours, press Ctrl-C."
TWICE = (
    "The link to this page was used a second time, or from another browser than the first. "
    "Everybody is signed out. "
    "If it was not you, somebody else on this machine has seen the link and may have seen the page."
)
EXPIRED = f"This link is too old: it works for {LIFE // 60} minutes."
NEW_LINK = "A new link stands in the terminal in which `sottovoce serve` runs."

_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>sottovoce</title>'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" '
    'content="no-referrer">'
    '<meta name="color-scheme" content="light dark"><link rel="icon" '
    'href="data:,"></head><body><main>'
    "<h1>sottovoce</h1>"
)
_FOOT = "</main></body></html>"
#: Asks for the token; has no style that it would wait for while the books are opened.
ASKING = (
    f"{_HEAD}<p>This page opens with the link that <code>sottovoce serve</code> printed.</p>"
    '<form method="post" action="/open"><p><label for="token">The part of the link after #</label> '
    '<input id="token" name="token" autocomplete="off" autocapitalize="none" spellcheck="false" '
    "required> "
    f'<button>Open</button></p></form><script src="/open/script.js"></script>{_FOOT}'
)
#: Takes the token off the address, so that it stays in no history, and sends it.
SCRIPT = """\
"use strict";
const token = location.hash.slice(1);
if (token) {
  history.replaceState(null, "", location.pathname);
  document.getElementById("token").value = token;
  document.forms[0].submit();
}
"""
#: Goes on by itself. Not a redirect: the form comes from a file, which is another site, and a
#: browser does not send a cookie with SameSite=Strict along a redirect that another site began.
#: From here on it is our own page that leads on.
GO_ON = f'{_HEAD}<p>The page is open. <a href="/">Go on</a></p>{_FOOT}'


def new_secret() -> str:
    """Returns a token that nobody can guess; no answer depends on it."""
    return secrets.token_urlsafe(SECRET)


@dataclass(frozen=True)
class SignInEvent:
    """What the curator is told at the terminal; with a new token, whose link is for nobody else."""

    words: str
    token: str | None = None


def tell_nobody(news: SignInEvent) -> None:
    """Tells nobody."""


class SignIn:
    """Knows the token and the cookie, and in which browser the cookie is."""

    def __init__(self, token: str, tell: Callable[[SignInEvent], None] = tell_nobody) -> None:
        self.words: str | None = (
            None  # for whoever is not in: why, if there is more to say than usual
        )
        self._tell = tell
        self._renew(token)

    def _renew(self, token: str) -> None:
        self.token = token
        self.cookie = new_secret()
        self._agent: str | None = None  # the browser that has the cookie
        self._until = now() + LIFE

    def knows(self, cookie: str, agent: str) -> bool:
        """Whether somebody who shows this cookie is in; signs everybody out if it comes from
        another browser.
        """
        if not _is_same(cookie, self.cookie):
            return False
        if self._agent in (None, agent):
            return True
        self._sign_everybody_out(TWICE)
        return False

    def redeem(self, token: str, agent: str) -> str | None:
        """Returns the cookie for the token, once; None for whoever is too late or does not know
        it.
        """
        if not _is_same(token, self.token):
            return None
        if self._agent is not None:
            self._sign_everybody_out(TWICE)
        elif now() >= self._until:
            self._sign_everybody_out(EXPIRED)
        else:
            self._agent = agent
            self.words = None
            self._tell(SignInEvent(OPENED))
            return self.cookie
        return None

    def _sign_everybody_out(self, why: str) -> None:
        """Ends the cookie and the token; the old token is known no longer, so nobody can do this
        twice with it.
        """
        self._renew(new_secret())
        self.words = f"{why} {NEW_LINK}"
        self._tell(SignInEvent(why, self.token))


def _is_same(given: str, ours: str) -> bool:
    return hmac.compare_digest(given.encode(), ours.encode())


def make_link(port: int, token: str) -> str:
    """Returns the link to be printed: what stands behind # is not sent by a browser, and not told
    to other pages.
    """
    return f"http://127.0.0.1:{port}/open#{token}"


def make_form(port: int, token: str) -> str:
    """Returns the page to be opened as a file, which sends the token by itself, or by its button
    without script.
    """
    address = escape(f"http://127.0.0.1:{port}/open")
    value = escape(token)
    return (
        f'{_HEAD}<form method="post" action="{address}"><input type="hidden" name="token" '
        f'value="{value}">'
        "<p><button>Open the "
        f"page</button></p></form><script>document.forms[0].submit()</script>{_FOOT}"
    )
