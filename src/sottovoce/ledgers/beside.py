# SPDX-License-Identifier: Apache-2.0
"""What is kept beside the books and never in them: the key that hides who is who, and the heads that were seen.

Without the key the books hold digests nobody can trace to a person. The heads are written after every
reservation and before a private value is read, so whoever puts an older copy of the books in place, and lets
people spend the same budget twice, is found out when the books are opened next.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sottovoce.errors import LedgerUnavailable, WrongLedgerKey
from sottovoce.ledgers.chain import PERSON_BYTES

KEY_BYTES = 32
#: A line of the file of heads: a word, the number of an entry, its digest.
SEEN, ANEW = "seen", "anew"


@dataclass(frozen=True)
class Beside:
    """The key of one ledger, and the file of its heads; no file for books in memory."""

    key: bytes
    heads: Path | None = None

    @classmethod
    def in_memory(cls) -> Beside:
        """A key that ends with the process."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def in_files(cls, stem: Path, *, new: bool) -> Beside:
        """Reads stem.key, or makes it for new books; the heads are in stem.heads."""
        path = stem.with_name(stem.name + ".key")
        if new:
            _make(path)
        try:
            key = path.read_bytes()
        except OSError:
            key = b""
        if len(key) != KEY_BYTES:
            raise WrongLedgerKey(
                "The key of these books is missing or not a key.",
                f"It is expected in the file {path.name}, beside the books or in the folder keys= names.",
                "Put the file back; without it nobody's account can be found.",
            )
        return cls(key, stem.with_name(stem.name + ".heads"))

    @property
    def check(self) -> str:
        """What the books hold to recognise their key."""
        return hashlib.blake2b(b"which key is this", key=self.key).hexdigest()

    def digests(self, people: Sequence[Any]) -> bytes:
        """Returns the digests of people, one after the other."""
        key, hidden, size = self.key, hashlib.blake2b, PERSON_BYTES
        names = [person.encode() if type(person) is str else _spelt(person) for person in people]
        return b"".join([hidden(name, digest_size=size, key=key).digest() for name in names])

    def seen(self) -> list[tuple[int, bytes]]:
        """Returns the heads that were seen since the books were last declared good."""
        try:
            lines = [] if self.heads is None else self.heads.read_text(encoding="ascii").splitlines()
        except (FileNotFoundError, UnicodeDecodeError):
            lines = []
        heads: list[tuple[int, bytes]] = []
        for words in (line.split() for line in lines):
            if len(words) != 3 or len(words[2]) != 64:
                continue  # a line that a crash cut off: what it was to tell had not been released
            heads = [] if words[0] == ANEW else heads
            heads.append((int(words[1]), bytes.fromhex(words[2])))
        return heads

    def saw(self, number: int, digest: bytes, word: str = SEEN) -> None:
        """Writes a head down, for good, before anything is done that rests on it."""
        if self.heads is None:
            return
        try:
            with _private(self.heads, os.O_APPEND) as file:
                # A line begins anew, whatever a crash may have left of the one before.
                file.write(f"\n{word} {number} {digest.hex()}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            return
        except OSError:
            pass  # raised below
        raise LedgerUnavailable(
            "The file of heads beside the books cannot be written.",
            "Every head is written down before a private value is read.",
            "Free some space, or make the folder writable; what was reserved stays spent.",
        )


def _spelt(person: Any) -> bytes:
    """Returns a name as it is spelt, so that a number read from a text file is still the same person."""
    whole = isinstance(person, float) and person.is_integer()
    return str(int(person) if whole else person).encode()


def _make(path: Path) -> None:
    """Writes a new key; of two who try at once, one does."""
    handle, name = tempfile.mkstemp(dir=path.parent)  # which only its owner may read
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(name, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(name)


def _private(path: Path, flags: int) -> Any:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600), "ab")
