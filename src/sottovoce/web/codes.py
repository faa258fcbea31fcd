# SPDX-License-Identifier: Apache-2.0
"""The codes by which people see their own account, and nobody else's.

A code has a prefix, by which it is found, and a secret. Of both together scrypt keeps a digest, in a file beside the
books that only its owner may read. The books name nobody, and neither does this file: a name is sealed under its own
code. A new code for a person ends the old one. Whatever is typed, right, wrong or never given out, costs one scrypt
and one comparison in constant time, and wrong tries are limited, for each prefix and for all together.

    typed code → (prefix: find) → scrypt(code, salt) → 32 bytes: key stream of the name · 32 bytes: key of the check
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sottovoce import private
from sottovoce.errors import LedgerUnavailable
from sottovoce.ledger import Ledger
from sottovoce.ledgers.opened import POSTGRES, SQLITE, own_folder
from sottovoce.pages.statement import Statement

FORMAT = "sottovoce.codes/1"
#: Letters and digits that are not taken for one another when read aloud or from paper.
ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
#: Characters by which a code is found, and those that are secret: 80 bits. Shown in groups.
PREFIX, SECRET, GROUP = 4, 16, 4
#: What scrypt costs: 32 MiB and some tenths of a second for every try.
COST, BLOCK, LANES, MEMORY = 2**15, 8, 1, 2**26
SALT_BYTES, KEY_BYTES = 16, 32
#: Wrong tries that are answered in so many seconds: with one prefix, and with all together.
TRIES_OF_ONE, TRIES_OF_ALL, WINDOW = 5, 60, 15 * 60
#: Seconds after which somebody who does nothing has left.
IDLE = 15 * 60

#: Seconds of a clock that never goes back. A seam: tests put their own clock in its place.
now: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Kept:
    """What is kept of a code: nothing that tells the code, or without it whose it is."""

    prefix: str
    salt: str
    check: str
    name: str  # sealed
    whose: str  # under the ledger's key, to end the old code of somebody who gets a new one


@dataclass
class Visit:
    """Somebody who has shown their code, until they leave or do nothing for a while."""

    person: str
    whose: str
    seen: float
    statement: Statement | None = None  # made once while they look at it: with a million people it takes seconds


@dataclass
class Tries:
    """Wrong tries of the last while, by prefix."""

    made: list[tuple[float, str]] = field(default_factory=list)

    def admit(self, prefix: str) -> bool:
        """Whether one more is answered; it counts as wrong until it is forgiven."""
        self.made = [(at, whose) for at, whose in self.made if now() - at < WINDOW]
        if len(self.made) >= TRIES_OF_ALL or sum(whose == prefix for _, whose in self.made) >= TRIES_OF_ONE:
            return False
        self.made.append((now(), prefix))
        return True

    def forgive(self, prefix: str) -> None:
        """Forgets the tries with a prefix, after the right code was shown."""
        self.made = [(at, whose) for at, whose in self.made if whose != prefix]


class TooManyTries(Exception):
    """So many wrong codes were typed that the next is not even looked at."""


@dataclass
class Codes:
    """The codes of the people of one ledger, and who has shown theirs."""

    ledger: Ledger
    path: Path | None = None
    tries: Tries = field(default_factory=Tries, repr=False)
    _visits: dict[str, Visit] = field(default_factory=dict, repr=False)
    _kept: list[Kept] = field(default_factory=list, repr=False)  # of books in memory, which have no file
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)  # one scrypt, and its memory, at a time

    @classmethod
    def beside(cls, ledger: Ledger, place: str | None, keys: Path | None = None) -> Codes:
        """Returns the codes of these books: in the file beside them, or in the folder of their key."""
        if place is None:
            return cls(ledger)
        if place.startswith(POSTGRES):
            return cls(ledger, (own_folder() if keys is None else Path(keys)) / f"{ledger.identity}.codes")
        return cls(ledger, Path(place.removeprefix(SQLITE) + ".codes").absolute())

    def issue(self, person: str) -> str:
        """Makes a code for a person who has an account, and ends their old one; it is shown now and never again."""
        self.ledger.history(person)  # somebody unknown is refused
        with self._lock:
            whose = self.ledger.hidden(f"the code of\n{person}")
            others = [kept for kept in self._read() if kept.whose != whose]
            code = _drawn({kept.prefix for kept in others})
            self._write([*others, _kept(code, person, whose)])
            self._visits = {digest: visit for digest, visit in self._visits.items() if visit.whose != whose}
        return "-".join(code[place : place + GROUP] for place in range(0, len(code), GROUP))

    def enter(self, typed: str) -> str | None:
        """Returns the token of a visit for the right code, and None for any other; too many of these are refused."""
        code = "".join(sign for sign in typed.upper() if sign.isalnum())[: PREFIX + SECRET + 1]
        with self._lock:
            if not self.tries.admit(code[:PREFIX]):
                raise TooManyTries
            found = {kept.prefix: kept for kept in self._read()}.get(code[:PREFIX], NOBODY)
        with self._turn:
            person = _opened(code, found)
        return None if person is None else self._begun(person, found)

    def _begun(self, person: str, found: Kept) -> str | None:
        token = secrets.token_urlsafe(KEY_BYTES)
        with self._lock:
            if found not in self._read():
                return None  # it was ended meanwhile
            self.tries.forgive(found.prefix)
            self._visits[_digest(token)] = Visit(person, found.whose, now())
        return token

    def visit(self, token: str | None) -> Visit | None:
        """Returns the visit behind a token, while it lasts."""
        with self._lock:
            self._visits = {digest: visit for digest, visit in self._visits.items() if now() - visit.seen < IDLE}
            visit = self._visits.get(_digest(token or ""))
            if visit is not None:
                visit.seen = now()
            return visit

    def leave(self, token: str | None) -> None:
        """Ends a visit."""
        with self._lock:
            self._visits.pop(_digest(token or ""), None)

    def _read(self) -> list[Kept]:
        """Reads the file each time: another window may have made a code since."""
        if self.path is None or not self.path.exists():
            return self._kept
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if (content["format"], content["ledger"]) != (FORMAT, self.ledger.identity):
                raise ValueError
            return [Kept(**kept) for kept in content["codes"]]
        except (OSError, ValueError, TypeError, LookupError):
            pass  # raised below: the reason may quote the file
        raise _unusable("read")

    def _write(self, kept: list[Kept]) -> None:
        """Puts a whole new file in place of the old, which only its owner may read."""
        if self.path is None:
            self._kept = kept
            return
        content = {"format": FORMAT, "ledger": self.ledger.identity, "codes": [asdict(one) for one in kept]}
        try:
            private.write(self.path, json.dumps(content, indent=1).encode())
            return
        except OSError:
            pass  # raised below
        raise _unusable("written")


def _drawn(taken: set[str]) -> str:
    """Draws a code whose prefix nobody else has."""
    while True:
        code = "".join(secrets.choice(ALPHABET) for _ in range(PREFIX + SECRET))
        if code[:PREFIX] not in taken:
            return code


def _kept(code: str, person: str, whose: str) -> Kept:
    salt, name = secrets.token_bytes(SALT_BYTES), person.encode()
    stream, key = _keys(code, salt)
    return Kept(code[:PREFIX], salt.hex(), _check(name, key), _masked(name, stream).hex(), whose)


def _opened(code: str, kept: Kept) -> str | None:
    """Returns the name under a code, if it is the right one."""
    stream, key = _keys(code, bytes.fromhex(kept.salt))
    name = _masked(bytes.fromhex(kept.name), stream)
    return name.decode() if secrets.compare_digest(_check(name, key), kept.check) else None


def _keys(code: str, salt: bytes) -> tuple[bytes, bytes]:
    drawn = hashlib.scrypt(code.encode(), salt=salt, n=COST, r=BLOCK, p=LANES, maxmem=MEMORY, dklen=2 * KEY_BYTES)
    return drawn[:KEY_BYTES], drawn[KEY_BYTES:]


def _masked(name: bytes, stream: bytes) -> bytes:
    """Seals a name, or opens it again; the salt is fresh for every code, so no stream is used twice."""
    mask = hashlib.shake_256(stream).digest(len(name))
    return bytes(letter ^ hidden for letter, hidden in zip(name, mask, strict=True))


def _check(name: bytes, key: bytes) -> str:
    return hashlib.blake2b(name, key=key, digest_size=KEY_BYTES).hexdigest()


def _digest(token: str) -> str:
    """What is kept of the token of a visit; looked up by it, no comparison of tokens can be timed."""
    return hashlib.sha256(token.encode()).hexdigest()


#: Stands where a prefix was never given out, so that looking costs the same; no code opens it.
NOBODY = Kept("", "00" * SALT_BYTES, "00" * KEY_BYTES, "00" * GROUP, "")


def _unusable(what: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"The file of people's codes beside the books cannot be {what}, or belongs to other books.",
        "It has the name of the books and ends with .codes.",
        "Put it right, or take it away: then everybody needs a new code.",
    )
