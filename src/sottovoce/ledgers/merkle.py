# SPDX-License-Identifier: Apache-2.0
"""The tree of an append-only log, in the manner of certificate transparency (RFC 6962, section
2.1). Pure functions.

    leaf   SHA-256(00 ‖ record)
    node   SHA-256(01 ‖ left ‖ right); the left side has the largest power of two that leaves
           something for the right

With the root of a log of m records, and a proof of a few digests, anybody checks that the log of n
records with another root begins with the same m records: it was only ever appended to
(docs/theory/ledger.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def hash_record(record: bytes) -> bytes:
    """Returns the digest of a record."""
    return hashlib.sha256(b"\0" + record).digest()


def compute_root(leaves: Sequence[bytes]) -> bytes:
    """Returns the top of the tree over these leaves."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    split = _find_split(len(leaves))
    return _hash_node(compute_root(leaves[:split]), compute_root(leaves[split:]))


def prove_inclusion(leaves: Sequence[bytes], place: int) -> list[bytes]:
    """Returns what else is needed to compute the root from the leaf at this place."""
    if len(leaves) == 1:
        return []
    split = _find_split(len(leaves))
    if place < split:
        return [*prove_inclusion(leaves[:split], place), compute_root(leaves[split:])]
    return [*prove_inclusion(leaves[split:], place - split), compute_root(leaves[:split])]


def verify_inclusion(
    top: bytes, size: int, digest: bytes, place: int, proof: Sequence[bytes]
) -> bool:
    """Whether a log of this size and root has this leaf at this place."""
    if not 0 <= place < size:
        return False
    index = place
    last = size - 1
    for step in proof:
        if last == 0:
            return False
        if index % 2 or index == last:
            digest = _hash_node(step, digest)
            while index % 2 == 0 and index:
                index //= 2
                last //= 2
        else:
            digest = _hash_node(digest, step)
        index //= 2
        last //= 2
    return last == 0 and digest == top


def prove_consistency(leaves: Sequence[bytes], first: int) -> list[bytes]:
    """Returns what is needed to see that the log of these leaves begins with its first so many."""
    if first in (0, len(leaves)):
        return []
    return _prove_subtree(leaves, first, whole=True)


def verify_consistency(
    top: bytes, size: int, earlier: bytes, first: int, proof: Sequence[bytes]
) -> bool:
    """Whether a log of this size and root begins with that of its first so many records and the
    root ``earlier``.
    """
    if first == size:
        return not proof and earlier == top
    if first == 0 or not 0 < first < size:
        return first == 0 and not proof
    steps = list(proof)
    if first & (first - 1) == 0:  # a whole tree: its root is the first step
        steps.insert(0, earlier)
    if not steps:
        return False
    index = first - 1
    last = size - 1
    while index % 2:
        index //= 2
        last //= 2
    old = new = steps[0]
    for step in steps[1:]:
        if last == 0:
            return False
        if index % 2 or index == last:
            old = _hash_node(step, old)
            new = _hash_node(step, new)
            while index % 2 == 0 and index:
                index //= 2
                last //= 2
        else:
            new = _hash_node(new, step)
        index //= 2
        last //= 2
    return last == 0 and (old, new) == (earlier, top)


def _prove_subtree(leaves: Sequence[bytes], first: int, *, whole: bool) -> list[bytes]:
    if first == len(leaves):
        if whole:
            return []
        return [compute_root(leaves)]
    split = _find_split(len(leaves))
    if first <= split:
        return [*_prove_subtree(leaves[:split], first, whole=whole), compute_root(leaves[split:])]
    return [
        *_prove_subtree(leaves[split:], first - split, whole=False),
        compute_root(leaves[:split]),
    ]


def _find_split(size: int) -> int:
    """Returns the largest power of two below the size."""
    return 1 << (size - 1).bit_length() - 1


def _hash_node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()
