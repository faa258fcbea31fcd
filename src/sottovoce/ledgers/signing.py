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
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sottovoce.errors import InvalidParameter, InvalidRelease

#: Bytes of a public key, and of a signature.
PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
#: What tells the signing key from other things that are derived from the ledger's key.
PURPOSE = b"sottovoce signs"
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

        seed = hashlib.blake2b(key=self.secret, person=PURPOSE, digest_size=PUBLIC_BYTES).digest()
        return Ed25519PrivateKey.from_private_bytes(seed)

    @cached_property
    def public(self) -> bytes:
        """The key that others check signatures with."""
        return bytes(self._private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Returns the signature of a message."""
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
    """Returns what is signed of an entry."""
    return f"sottovoce entry\n{ledger}\n{number}\n{digest.hex()}\n".encode()


def make_tree_message(size: int, root: bytes) -> bytes:
    """Returns what is signed of a log of heads."""
    return f"sottovoce tree\n{size}\n{root.hex()}\n".encode()


def make_release_message(text: str) -> bytes:
    """Returns what is signed of a release, from its JSON: all of it but the signature.

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
    """Returns what JSON text says; raises if it names something twice, of which every reader takes
    another.
    """
    return json.loads(text, object_pairs_hook=_refuse_repeated_names)


def _refuse_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise forged_release_error()
    return found


def read_key(text: str) -> bytes:
    """Returns a public key from its 64 hexadecimal digits."""
    digits = text.strip().lower()
    if re.fullmatch(f"[0-9a-f]{{{2 * PUBLIC_BYTES}}}", digits) is None:
        raise InvalidParameter(
            "This is no public key of a ledger.",
            f"It has {2 * PUBLIC_BYTES} hexadecimal digits.",
            "Pass what `sottovoce ledger key` prints.",
        )
    return bytes.fromhex(digits)


def make_fingerprint(public: bytes) -> str:
    """Returns a short form of a public key, to compare by eye with the one that was published."""
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
        )
    return public


def unsigned_release_error() -> InvalidRelease:
    """The error of a release that nobody has signed."""
    return InvalidRelease(
        "This release carries no signature of a ledger.",
        "A release from a session is signed with the ledger's key; earlier versions did not sign.",
        "Compare it with the books (`sottovoce ledger verify`, or verify in Python), or release "
        "anew under a new key.",
    )


def forged_release_error() -> InvalidRelease:
    """The error of a release whose signature does not hold."""
    return InvalidRelease(
        "This release is not what was signed: it was changed, or its certificate is forged.",
        "The signature covers everything in a release.",
        "Do not rely on it, and ask the curator for the release under its key.",
    )
