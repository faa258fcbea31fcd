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

The codes by which people see their own account, and nobody else's.

A code has a prefix, by which it is found, and a secret. In a file beside the books, which only its
owner may read, stands a mark of the whole code under the ledger's key, and the name sealed under
the code. The books name nobody, and neither does this file. A new code for a person ends the old
one.

    typed code → (prefix: find) → mark(code, ledger's key): is it this code?
               → scrypt(code, salt) → 32 bytes: key stream of the name · 32 bytes: key of the check

No number of wrong codes locks anybody out. A secret has 80 bits, so guesses need no limit: at a
hundred thousand a second one in a century succeeds with probability 3·10⁻¹⁰. A wrong code, with a
prefix that was given out or not, costs one mark and one comparison in constant time. Only a right
code is worth a scrypt, so whoever has one waits for nobody but others who have one, however many
wrong codes come. Without the ledger's key a mark tells nothing, and the file has to be tried by
scrypt. Codes of versions before marks are tried by scrypt until they are used once, among
themselves: whoever tries them keeps nobody waiting who has a mark.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path

from sottovoce import private_files
from sottovoce.errors import LedgerUnavailable
from sottovoce.ledger import Ledger
from sottovoce.ledgers import POSTGRES, SQLITE, get_key_folder
from sottovoce.ledgers.statement import Statement
from sottovoce.report.html import make_document

#: Bytes of randomness of a token and of a cookie.
SIGN_IN_SECRET = 32
#: Seconds for which a token is good.
LIFE = 5 * 60
#: Bytes of the form that brings a token.
MOST = 1024

#: Seconds of a clock that never goes back. A seam: tests put their own clock in its place.
read_sign_in_clock: Callable[[], float] = time.monotonic

OPENED = "The link was used, and the page is open in one browser. If it is not yours, press Ctrl-C."
TWICE = (
    "The link to this page was used a second time, or from another browser than the first. "
    "Everybody is signed out. "
    "If it was not you, somebody else on this machine has seen the link and may have seen the page."
)
EXPIRED = f"This link is too old: it works for {LIFE // 60} minutes."
NEW_LINK = "A new link stands in the terminal in which `sottovoce serve` runs."


def make_bare_page(body: str, *, head: str = "") -> str:
    """Return a page of the server itself: it has no style that it would wait for, unless ``head``
    names one.
    """
    main = f"<main>\n<h1>sottovoce</h1>\n{body}\n</main>"
    return make_document("sottovoce", main, f'<link rel="icon" href="data:,">{head}')


#: The address that a link came from is told to nobody.
_NO_REFERRER = '<meta name="referrer" content="no-referrer">'
#: Asks for the token.
ASKING = make_bare_page(
    "<p>This page opens with the link that <code>sottovoce serve</code> printed.</p>"
    '<form method="post" action="/open"><p><label for="token">The part of the link after #</label> '
    '<input id="token" name="token" autocomplete="off" autocapitalize="none" spellcheck="false" '
    'required> <button>Open</button></p></form><script src="/open/script.js"></script>',
    head=_NO_REFERRER,
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
GO_ON = make_bare_page('<p>The page is open. <a href="/">Go on</a></p>', head=_NO_REFERRER)


def new_secret() -> str:
    """Returns a token that nobody can guess; no answer depends on it."""
    return secrets.token_urlsafe(SIGN_IN_SECRET)


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
        self._until = read_sign_in_clock() + LIFE

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
        elif read_sign_in_clock() >= self._until:
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
    return make_bare_page(
        f'<form method="post" action="{address}"><input type="hidden" name="token" '
        f'value="{value}"><p><button>Open the page</button></p></form>'
        "<script>document.forms[0].submit()</script>",
        head=_NO_REFERRER,
    )


FORMAT = "sottovoce.codes/2"
EARLIER = "sottovoce.codes/1"
#: Letters and digits that are not taken for one another when read aloud or from paper.
ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
#: Characters by which a code is found, and those that are secret: 80 bits. Shown in groups.
PREFIX = 4
SECRET = 16
GROUP = 4
#: What scrypt costs: 32 MiB and some tenths of a second for every right code, and for whoever tries
#: a stolen file.
COST = 2**15
BLOCK = 8
LANES = 1
MEMORY = 2**26
SALT_BYTES = 16
KEY_BYTES = 32
#: Seconds after which somebody who does nothing has left.
IDLE = 15 * 60
#: Visits of one person at once; one more ends the oldest.
MOST_VISITS = 8

#: Seconds of a clock that never goes back. A seam: tests put their own clock in its place.
now: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class StoredCode:
    """What is kept of a code: nothing that tells the code, or without it whose it is."""

    prefix: str
    salt: str
    # of the code, under the ledger's key; empty until a code of an earlier version is first used
    mark: str
    check: str
    name: str  # sealed
    whose: str  # under the ledger's key, to end the old code of somebody who gets a new one


@dataclass
class Visit:
    """Somebody who has shown their code, until they leave or do nothing for a while."""

    person: str
    whose: str
    seen: float
    statement: Statement | None = (
        None  # made once while they look at it: with a million people it takes seconds
    )


@dataclass
class AccessCodes:
    """The codes of the people of one ledger, and who has shown theirs."""

    ledger: Ledger
    path: Path | None = None
    _visits: dict[str, Visit] = field(default_factory=dict, repr=False)
    _kept: dict[str, StoredCode] = field(default_factory=dict, repr=False)  # by prefix
    _seen: tuple[int, ...] | None = field(
        default=None, repr=False
    )  # what the file was when it was read
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _turn: threading.Lock = field(
        default_factory=threading.Lock, repr=False
    )  # one scrypt, and its memory, at a time
    #: For the page: whoever waits to have an unmarked code tried waits here, and holds no thread
    #: meanwhile.
    unmarked_turn: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(1), repr=False
    )

    @classmethod
    def for_ledger(cls, ledger: Ledger, place: str | None, keys: Path | None = None) -> AccessCodes:
        """Returns the codes of these books: in the file beside them, or in the folder of their
        key.
        """
        if place is None:
            return cls(ledger)
        if place.startswith(POSTGRES):
            return cls(
                ledger,
                (get_key_folder() if keys is None else Path(keys)) / f"{ledger.identity}.codes",
            )
        return cls(ledger, Path(place.removeprefix(SQLITE) + ".codes").absolute())

    def issue(self, person: str) -> str:
        """Makes a code for a person who has an account, and ends their old one; it is shown now and
        never again.
        """
        self.ledger.history(person)  # somebody unknown is refused
        with self._lock:
            whose = self.ledger.hidden(f"the code of\n{person}")
            others = [kept for kept in self._read_codes().values() if kept.whose != whose]
            code = _draw_code({kept.prefix for kept in others})
            self._write_codes([*others, _make_stored_code(code, self._mark(code), person, whose)])
            self._visits = {
                digest: visit for digest, visit in self._visits.items() if visit.whose != whose
            }
        return "-".join(code[place : place + GROUP] for place in range(0, len(code), GROUP))

    def knows(self, typed: str) -> bool:
        """Whether this is somebody's code: at the cost of a mark, whatever was typed."""
        return self._found(_normalise_code(typed)) is not None

    def is_unmarked(self, typed: str) -> bool:
        """Whether a version before marks gave out a code that begins like this one, so that it has
        to be tried.
        """
        with self._lock:
            return not self._read_codes().get(_normalise_code(typed)[:PREFIX], DUMMY_CODE).mark

    def sign_in(self, typed: str) -> str | None:
        """Returns the token of a visit for the right code, and None for any other."""
        code = _normalise_code(typed)
        found = self._found(code)
        if found is None:
            return self._enter_unmarked(code)
        with self._turn:
            # Whoever is in already has shown it: to come again and again costs nobody else a wait.
            person = self._inside(found.whose) or _reveal_name(code, found)
        if person is None:
            return None
        return self._start_visit(person, found)

    def _enter_unmarked(self, code: str) -> str | None:
        """Tries a code of a version before marks, and marks it if it is right."""
        with self._lock:
            found = self._read_codes().get(code[:PREFIX], DUMMY_CODE)
        if found is DUMMY_CODE or found.mark:
            return None
        person = _reveal_name(code, found)
        if person is None:
            return None
        marked = replace(found, mark=self._mark(code))
        with self._lock:
            others = [kept for kept in self._read_codes().values() if kept != found]
            if len(others) == len(self._read_codes()):
                return None  # it was ended meanwhile
            self._write_codes([*others, marked])
        return self._start_visit(person, marked)

    def _found(self, code: str) -> StoredCode | None:
        with self._lock:
            kept = self._read_codes().get(code[:PREFIX], DUMMY_CODE)
        if secrets.compare_digest(kept.mark.encode(), self._mark(code).encode()):
            return kept
        return None

    def _mark(self, code: str) -> str:
        return self.ledger.hidden(f"the mark of a code\n{code}")

    def _inside(self, whose: str) -> str | None:
        with self._lock:
            return next(
                (visit.person for visit in self._lasting().values() if visit.whose == whose), None
            )

    def _start_visit(self, person: str, found: StoredCode) -> str | None:
        token = secrets.token_urlsafe(KEY_BYTES)
        with self._lock:
            if self._read_codes().get(found.prefix) != found:
                return None  # it was ended meanwhile
            own = [digest for digest, visit in self._visits.items() if visit.whose == found.whose]
            for digest in own[: max(len(own) - MOST_VISITS + 1, 0)]:
                del self._visits[digest]
            self._visits[_digest_token(token)] = Visit(person, found.whose, now())
        return token

    def _lasting(self) -> dict[str, Visit]:
        """Forgets the visits that have ended, and returns the others, the oldest first."""
        self._visits = {
            digest: visit for digest, visit in self._visits.items() if now() - visit.seen < IDLE
        }
        return self._visits

    def find_visit(self, token: str | None) -> Visit | None:
        """Returns the visit behind a token, while it lasts."""
        with self._lock:
            visit = self._lasting().get(_digest_token(token or ""))
            if visit is not None:
                visit.seen = now()
            return visit

    def sign_out(self, token: str | None) -> None:
        """Ends a visit."""
        with self._lock:
            self._visits.pop(_digest_token(token or ""), None)

    def _read_codes(self) -> Mapping[str, StoredCode]:
        """Returns what is kept, by prefix; reads the file when it has changed: another window may
        have made a code.
        """
        if self.path is None:
            return self._kept
        try:
            there = self.path.stat()
        except OSError:
            # nobody has a code yet, or the file was taken away; a folder that is closed to us stops
            # _write
            return {}
        now_there = there.st_ino, there.st_size, there.st_mtime_ns
        if now_there != self._seen:
            self._kept = {kept.prefix: kept for kept in self._file(self.path)}
            self._seen = now_there
        return self._kept

    def _file(self, path: Path) -> list[StoredCode]:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if (
                content["format"] not in (FORMAT, EARLIER)
                or content["ledger"] != self.ledger.identity
            ):
                raise ValueError
            return [StoredCode(**{"mark": "", **kept}) for kept in content["codes"]]
        except (OSError, ValueError, TypeError, LookupError):
            pass  # raised below: the reason may quote the file
        raise _unusable_file_error("read")

    def _write_codes(self, kept: list[StoredCode]) -> None:
        """Puts a whole new file in place of the old, which only its owner may read."""
        if self.path is None:
            self._kept = {one.prefix: one for one in kept}
            return
        content = {
            "format": FORMAT,
            "ledger": self.ledger.identity,
            "codes": [asdict(one) for one in kept],
        }
        try:
            private_files.write(self.path, json.dumps(content, indent=1).encode())
            return
        except OSError:
            pass  # raised below
        raise _unusable_file_error("written")


def _normalise_code(typed: str) -> str:
    """Returns a code as it was made, however it was typed; one that is too long stays so."""
    return "".join(sign for sign in typed.upper() if sign.isalnum())[: PREFIX + SECRET + 1]


def _draw_code(taken: set[str]) -> str:
    """Draws a code whose prefix nobody else has."""
    while True:
        code = "".join(secrets.choice(ALPHABET) for _ in range(PREFIX + SECRET))
        if code[:PREFIX] not in taken:
            return code


def _make_stored_code(code: str, mark: str, person: str, whose: str) -> StoredCode:
    salt = secrets.token_bytes(SALT_BYTES)
    name = person.encode()
    stream, key = _derive_keys(code, salt)
    return StoredCode(
        code[:PREFIX],
        salt.hex(),
        mark,
        _compute_check(name, key),
        _mask_name(name, stream).hex(),
        whose,
    )


def _reveal_name(code: str, kept: StoredCode) -> str | None:
    """Returns the name under a code, if it is the right one."""
    stream, key = _derive_keys(code, bytes.fromhex(kept.salt))
    name = _mask_name(bytes.fromhex(kept.name), stream)
    if secrets.compare_digest(_compute_check(name, key), kept.check):
        return name.decode()
    return None


def _derive_keys(code: str, salt: bytes) -> tuple[bytes, bytes]:
    drawn = hashlib.scrypt(
        code.encode(), salt=salt, n=COST, r=BLOCK, p=LANES, maxmem=MEMORY, dklen=2 * KEY_BYTES
    )
    return drawn[:KEY_BYTES], drawn[KEY_BYTES:]


def _mask_name(name: bytes, stream: bytes) -> bytes:
    """Seals a name, or opens it again; the salt is fresh for every code, so no stream is used
    twice.
    """
    mask = hashlib.shake_256(stream).digest(len(name))
    return bytes(letter ^ hidden for letter, hidden in zip(name, mask, strict=True))


def _compute_check(name: bytes, key: bytes) -> str:
    return hashlib.blake2b(name, key=key, digest_size=KEY_BYTES).hexdigest()


def _digest_token(token: str) -> str:
    """What is kept of the token of a visit; looked up by it, no comparison of tokens can be
    timed.
    """
    return hashlib.sha256(token.encode()).hexdigest()


#: Stands where a prefix was never given out, so that looking costs the same; no code opens it.
DUMMY_CODE = StoredCode("", "", "00" * KEY_BYTES, "", "", "")


def _unusable_file_error(what: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"The file of people's codes beside the ledger cannot be {what}, or was made for another "
        "ledger.",
        "It has the name of the ledger and ends with .codes.",
        "Put it right, or take it away: then everybody needs a new code.",
    )
