# SPDX-License-Identifier: Apache-2.0
"""Signatures: every entry and every release is signed, so that a third party can check it without a
secret.

The signing key (Ed25519, RFC 8032) is derived from the ledger's key, which is a file outside the
database. Whoever can write to the database can put anything into it, but cannot sign it. What is
signed begins with what it is, so that a signature of one kind never passes for one of another.

    entry     b"sottovoce entry" ‖ ledger ‖ number ‖ digest, one on a line
    release   b"sottovoce release" ‖ the release as JSON without its signature, names sorted,
              without spaces
    tree      b"sottovoce tree" ‖ size ‖ root: the head of a log of heads (merkle.py)

What is kept beside the books and never in them: the key that hides people and signs, and the
heads that were seen.

Without the key the books hold digests nobody can trace to a person, and nobody can sign an entry.
The heads are written after every reservation and before a private value is read, so whoever puts an
older copy of the books in place, and lets people spend the same budget twice, is found out when the
books are opened next. Every line of the file of heads is authenticated with the key: a line that is
none, and is not what a crash leaves of one, was put there by somebody.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any

from sottovoce import private_files
from sottovoce.errors import (
    InvalidParameter,
    InvalidRelease,
    LedgerUnavailable,
    SottovoceError,
    WrongLedgerKey,
)
from sottovoce.ledgers.hash_chain import PERSON_BYTES

#: Bytes of a public key, and of a signature.
PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
#: What tells the signing key from other things that are derived from the ledger's key.
SIGNING_PURPOSE = b"sottovoce signs"
#: Digits of a fingerprint, and of its groups: enough that nobody finds another key with the same.
FINGERPRINT = 32
GROUP = 4


@dataclass(frozen=True)
class Signer:
    """Signs with the key that is derived from the ledger's."""

    secret: bytes

    @cached_property
    def _private(self) -> Any:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        seed = hashlib.blake2b(
            key=self.secret, person=SIGNING_PURPOSE, digest_size=PUBLIC_BYTES
        ).digest()
        return Ed25519PrivateKey.from_private_bytes(seed)

    @cached_property
    def public(self) -> bytes:
        """The key that others check signatures with."""
        return bytes(self._private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        return bytes(self._private.sign(message))


def is_signed(public: bytes, message: bytes, signature: Any) -> bool:
    """Whether the holder of the secret behind this public key has signed this message."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if (
        not isinstance(signature, bytes)
        or len(signature) != SIGNATURE_BYTES
        or len(public) != PUBLIC_BYTES
    ):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def make_entry_message(ledger: str, number: int, digest: bytes) -> bytes:
    """Return what is signed of an entry."""
    return f"sottovoce entry\n{ledger}\n{number}\n{digest.hex()}\n".encode()


def make_tree_message(size: int, root: bytes) -> bytes:
    """Return what is signed of a log of heads."""
    return f"sottovoce tree\n{size}\n{root.hex()}\n".encode()


def make_release_message(text: str) -> bytes:
    """Return what is signed of a release, from its JSON: all of it but the signature.

    A field that is null counts as one that is not there, so that later versions can add fields.
    """
    content = {name: value for name, value in _parse(text).items() if value is not None}
    paper = dict(content["certificate"])
    paper["ledger"] = {
        name: value for name, value in paper["ledger"].items() if name != "signature"
    }
    content["certificate"] = {name: value for name, value in paper.items() if value is not None}
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return b"sottovoce release\n" + canonical.encode("utf-8", "surrogatepass")


def _parse(text: str) -> Any:
    """Return what JSON text says.

    Raises if it names something twice, of which every reader takes another.
    """
    return json.loads(text, object_pairs_hook=_refuse_repeated_names)


def _refuse_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise forged_release_error()
    return found


def read_key(text: str) -> bytes:
    """Return a public key from its 64 hexadecimal digits."""
    digits = text.strip().lower()
    if re.fullmatch(f"[0-9a-f]{{{2 * PUBLIC_BYTES}}}", digits) is None:
        raise InvalidParameter(
            "This is no public key of a ledger.",
            f"It has {2 * PUBLIC_BYTES} hexadecimal digits.",
            "Pass what `sottovoce ledger key` prints.",
            parameter="key",
        )
    return bytes.fromhex(digits)


def make_fingerprint(public: bytes) -> str:
    """Return a short form of a public key, to compare by eye with the one that was published."""
    digits = hashlib.sha256(public).hexdigest()[:FINGERPRINT]
    return " ".join(digits[start : start + GROUP] for start in range(0, FINGERPRINT, GROUP))


def check_release(text: str, key: str | None = None) -> bytes:
    """Returns the public key under which a release was signed; raises unless the signature holds.

    With ``key`` it must be that one. Without, the release vouches for itself: compare the key's
    fingerprint with the one that the curator has published.
    """
    if key is None:
        wanted = None
    else:
        wanted = read_key(key)
    failure: Exception | None = unsigned_release_error()
    try:
        booked = _parse(text)["certificate"]["ledger"]
        public = bytes.fromhex(booked["key"])
        signature = bytes.fromhex(booked["signature"])
        message = make_release_message(text)
        failure = None
    except InvalidRelease as error:  # a ValueError too, but one of ours
        failure = error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # raised below: the reason may quote the file
    if failure is not None:
        raise failure
    if not is_signed(public, message, signature):
        raise forged_release_error()
    if wanted is not None and wanted != public:
        raise InvalidRelease(
            "This release was signed with another key.",
            "Every ledger has a key of its own.",
            "Do not rely on it, or check that the key is the one of its ledger.",
            parameter="key",
        )
    return public


def unsigned_release_error() -> InvalidRelease:
    """The error of a release that nobody has signed."""
    return InvalidRelease(
        "This release carries no signature of a ledger.",
        "A release from a session is signed with the ledger's key; earlier versions did not sign.",
        "Compare it with the ledger (`sottovoce ledger verify`, or verify in Python), or release "
        "anew under a new key.",
        parameter="release",
    )


def forged_release_error() -> InvalidRelease:
    """The error of a release whose signature does not hold."""
    return InvalidRelease(
        "This release is not what was signed: it was changed, or its certificate is forged.",
        "The signature covers everything in a release.",
        "Do not rely on it, and ask the curator for the release under its key.",
        parameter="release",
    )


KEY_BYTES = 32
#: So many digests are under way at once.
BATCH = 1024
#: Halves of pairs, as some file systems and old tables have them, are letters like others.
_encode_name = methodcaller("encode", "utf-8", "surrogatepass")
#: Names of these types are spelt as they print.
PLAIN_TYPES = frozenset({int, str})
#: A line of the file of heads: a word, the number of an entry, its digest, a code that needs the
#: key to compute. "anew" forgets what came before it; "waived" is a head that is not in the books,
#: and that somebody answered for; "list" has the number of witnesses and the digest of their list.
SEEN = "seen"
ANEW = "anew"
WAIVED = "waived"
LIST = "list"
_WORDS = "|".join((SEEN, ANEW, WAIVED, LIST))
_LINE = re.compile(rf"({_WORDS}) ([0-9]{{1,18}}) ([0-9a-f]{{64}}) ([0-9a-f]{{32}})")
#: As earlier versions wrote it, and they wrote these words alone.
_EARLIER = re.compile(rf"({SEEN}|{ANEW}) ([0-9]{{1,18}}) ([0-9a-f]{{64}})")
#: What a crash leaves of a line that begins with a whole word.
_TORN = re.compile(
    rf"({_WORDS})( ([0-9]{{0,18}}"
    r"|[0-9]{1,18} ([0-9a-f]{0,64}|[0-9a-f]{64} [0-9a-f]{0,31})))?"
)
#: Tells the codes of lines from other things that are derived from the key.
PURPOSE = b"sottovoce heads"
CODE_BYTES = 16


@dataclass
class HeadRecords:
    """What the file of heads says."""

    seen: list[tuple[int, bytes]] = field(
        default_factory=list
    )  # since the books were last declared good
    waived: set[tuple[int, bytes]] = field(default_factory=set)
    listed: bytes | None = None  # the digest of the list of witnesses, if one was ever written
    authentic: bool = False  # whether a line was written with the key
    damaged: bool = False

    def add_line(self, word: str, number: int, digest: bytes) -> None:
        """Add what one line says."""
        if word == LIST:
            self.listed = digest
        elif word == WAIVED:
            self.waived.add((number, digest))
        elif word == ANEW:
            self.seen = [(number, digest)]
            self.damaged = False
        else:
            self.seen.append((number, digest))


@dataclass(frozen=True)
class LedgerKeyFile:
    """The key of one ledger, and the file of its heads; no file for books in memory."""

    key: bytes
    heads: Path | None = None

    @classmethod
    def in_memory(cls) -> LedgerKeyFile:
        """A key that ends with the process."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def in_files(cls, stem: Path, *, new: bool) -> LedgerKeyFile:
        """Reads stem.key, or makes it for new books; the heads are in stem.heads."""
        path = stem.with_name(stem.name + ".key")
        if new:
            _make_key(path)
        try:
            key = path.read_bytes()
        except OSError:
            key = b""
        if len(key) != KEY_BYTES:
            raise WrongLedgerKey(
                "The key of this ledger is missing or not a key.",
                f"It is expected in the file {path.name}, beside the ledger or in the folder of "
                "keys that was named.",
                "Put the file back; without it nobody's account can be found.",
            )
        return cls(key, stem.with_name(stem.name + ".heads"))

    @property
    def check(self) -> str:
        """What the books hold to recognise their key."""
        return hashlib.blake2b(b"which key is this", key=self.key).hexdigest()

    def digests(self, people: Sequence[Any]) -> bytes:
        """Return the digests of people, one after the other."""
        begun = hashlib.blake2b(
            digest_size=PERSON_BYTES, key=self.key
        )  # copied: cheaper than to begin each anew
        parts = []
        for start in range(0, len(people), BATCH):
            few = people[start : start + BATCH]
            spelt = map(str if PLAIN_TYPES.issuperset(map(type, few)) else _spell_person, few)
            hidden = [begun.copy() for _ in few]
            deque(
                map(type(begun).update, hidden, map(_encode_name, spelt)), 0
            )  # a loop in Python takes twice as long
            parts.append(b"".join(map(type(begun).digest, hidden)))
        return b"".join(parts)

    def hidden(self, text: str) -> str:
        """Return a digest of this text that only the holder of the key can compute."""
        return hashlib.blake2b(text.encode(), digest_size=32, key=self.key).hexdigest()

    @cached_property
    def signer(self) -> Signer:
        """What signs in the name of these books."""
        return Signer(self.key)

    def read_heads(self) -> HeadRecords:
        """Return the heads that were seen since the books were last declared good, and whether the
        file is whole.
        """
        found = HeadRecords()
        for line in [] if self.heads is None else _read_text(self.heads).split("\n"):
            told = _LINE.fullmatch(line)
            if found.authentic:
                earlier = None
            else:
                earlier = _EARLIER.fullmatch(line)
            if told is not None and secrets.compare_digest(
                told[4], self._compute_code(told[1], told[2], told[3])
            ):
                found.authentic = True
                found.add_line(told[1], int(told[2]), bytes.fromhex(told[3]))
            elif earlier is not None:
                found.add_line(earlier[1], int(earlier[2]), bytes.fromhex(earlier[3]))
            elif not _is_torn(line):
                found.damaged = True
        return found

    def record_head(self, number: int, digest: bytes, word: str = SEEN) -> None:
        """Write a head down, for good, before anything is done that rests on it."""
        self.write([(word, number, digest)])

    def write(self, lines: Sequence[tuple[str, int, bytes]]) -> None:
        """Write lines (word, number, digest), for good."""
        if self.heads is None:
            return
        # A line begins anew, whatever a crash may have left of the one before.
        spelt = [(word, str(number), digest.hex()) for word, number, digest in lines]
        text = "".join(f"\n{' '.join(line)} {self._compute_code(*line)}\n" for line in spelt)
        try:
            private_files.append(self.heads, text.encode())
            return
        except OSError:
            pass  # raised below
        raise _unwritable_error("what was reserved stays spent")

    def _compute_code(self, word: str, number: str, digest: str) -> str:
        line = f"{word} {number} {digest}".encode()
        return hashlib.blake2b(
            line, digest_size=CODE_BYTES, key=self.key, person=PURPOSE
        ).hexdigest()


def _is_torn(line: str) -> bool:
    """Whether this is nothing, or what a crash leaves of a line.

    Some file systems leave zeros after it.
    """
    rest = line.rstrip("\0")
    return (
        any(word.startswith(rest) for word in _WORDS.split("|"))
        or _TORN.fullmatch(rest) is not None
    )


def parse_head(number: Any, digest: Any) -> tuple[int, bytes]:
    """Returns a head as a certificate tells it; raises if it is none."""
    told = _EARLIER.fullmatch(f"{SEEN} {number} {digest}")
    if told is None:
        raise InvalidParameter(
            "This is no head of a ledger.",
            "",
            "Pass the entry and the head of a certificate as they are.",
            parameter="head",
        )
    return int(told[2]), bytes.fromhex(told[3])


def _spell_person(person: Any) -> str:
    """Return a name as it is spelt, so that a number read from a text file is still the same
    person.
    """
    whole = isinstance(person, float) and person.is_integer()
    return str(int(person) if whole else person)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError:
        pass  # raised below
    raise _unwritable_error("they are needed to open the ledger")


def _make_key(path: Path) -> None:
    """Write a new key; of two who try at once, one does."""
    if not _write_key(path):
        raise _unwritable_error("nothing was charged")
    if not _is_own(path):
        raise WrongLedgerKey(
            "There is a key already where a new ledger would have its own, and it is not this "
            "user's alone.",
            "Whoever put it there, or can read it, could sign in the name of the ledger.",
            f"Take the file {path.name} away, or make it a file of your own that nobody else can "
            "read.",
        )


def _write_key(path: Path) -> bool:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            private_files.write_new(path, secrets.token_bytes(KEY_BYTES))
        return True
    except OSError:
        return False


def _is_own(path: Path) -> bool:
    """Whether this is a file of this user that nobody else can open."""
    try:
        found = path.lstat()
    except OSError:
        return False
    own_alone = os.name != "posix" or (found.st_uid == os.geteuid() and not found.st_mode & 0o077)
    return stat.S_ISREG(found.st_mode) and own_alone


def _unwritable_error(meanwhile: str) -> SottovoceError:
    return LedgerUnavailable(
        "The key or the file of heads beside the ledger cannot be read or written.",
        "Every head is written down before a private value is read.",
        f"Free some space, or make the folder and its files accessible; {meanwhile}.",
    )
