# SPDX-License-Identifier: Apache-2.0
"""The chain of digests that binds the books, and the proof that somebody's line is in it.

Pure functions of bytes.

    leaf     SHA-256(00 ‖ person, 16 bytes ‖ account, 1 byte ‖ amount, 8 bytes, the highest first)
    node     SHA-256(01 ‖ up to 64 digests of the level below, in order)
    entry    SHA-256 of the JSON list [number, what, key, request, at, lines, root, digest of the
             entry before]

Leaves are sorted. A person is a digest that only the holder of the ledger's key can compute, so a
leaf tells nothing to others. Whoever has seen one head can check everything that came before it
(docs/theory/ledger.md).

The tree of an append-only log, in the manner of certificate transparency (RFC 6962, section
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
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.ledger import Entry
from sottovoce.units import Units

PERSON_BYTES = 16
Lines = NDArray[Any]

#: Children of a node: 64 keep a million leaves four levels deep, and the nodes much cheaper than
#: the leaves.
TREE_WIDTH = 64
#: What the first entry follows.
NO_DIGEST = bytes(32)

#: One line: a person, an account, an amount, packed as a leaf is hashed.
PACKED = np.dtype(
    [("zero", "u1"), ("person", "u1", PERSON_BYTES), ("account", "u1"), ("amount", ">i8")]
)


@dataclass(frozen=True)
class ProofStep:
    """One level of a proof: the digests before and after the one that is proved."""

    before: tuple[bytes, ...]
    after: tuple[bytes, ...]


def pack_lines(people: bytes, account: int, amounts: Any) -> Lines:
    """Return lines of one account, from the people's digests one after the other."""
    lines = np.zeros(len(amounts), dtype=PACKED)
    lines["person"] = np.frombuffer(people, dtype=np.uint8).reshape(-1, PERSON_BYTES)
    lines["account"] = account
    lines["amount"] = amounts
    return lines


def sort_lines(parts: Sequence[Lines]) -> Lines:
    """Return the lines of all parts, sorted by person and account."""
    lines = np.concatenate(parts).astype(PACKED)  # joining loses the order of bytes
    halves = np.ascontiguousarray(lines["person"]).view(">u8").reshape(len(lines), 2)
    order = np.lexsort((lines["account"], halves[:, 1], halves[:, 0]))
    return lines.view(f"V{PACKED.itemsize}")[order].view(
        PACKED
    )  # whole records move faster than their fields


def look_up_amounts(wanted: bytes, people: bytes, amounts: Units) -> Units | None:
    """Return the amounts of those who are wanted, from those of people in order.

    None if somebody is not there.
    """
    high, low = _split_digests(wanted)
    all_high, all_low = _split_digests(people)
    if not len(all_high):
        if len(high):
            return None
        return amounts
    order = np.argsort(high)  # whoever is looked for next is near
    high = high[order]
    low = low[order]
    place = np.minimum(np.searchsorted(all_high, high), len(all_high) - 1)
    while True:
        other = (all_high[place] != high) | (all_low[place] != low)
        if not other.any():
            break
        after = np.minimum(place + 1, len(all_high) - 1)
        further = other & (after > place) & (all_high[after] == high)
        if not further.any():
            return None
        place[further] += 1  # two people whose first halves are the same
    found = np.empty(len(order), dtype=np.int64)
    found[order] = amounts[place]
    return found


def _split_digests(digests: bytes) -> tuple[Any, Any]:
    """Return the digests of people as two numbers each, in whose order they are."""
    both = np.frombuffer(digests, dtype=">u8").astype(np.uint64).reshape(-1, 2)
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


def has_repeats(lines: Lines) -> bool:
    """Whether two of these lines, which are in order, are about one account of one person."""
    same_person = (lines["person"][1:] == lines["person"][:-1]).all(axis=1)
    return bool(np.any(same_person & (lines["account"][1:] == lines["account"][:-1])))


def hash_lines(lines: Lines) -> list[bytes]:
    """Return the digests of packed lines."""
    size = PACKED.itemsize
    raw = memoryview(lines.tobytes())
    sha = hashlib.sha256
    return [sha(raw[start : start + size]).digest() for start in range(0, len(raw), size)]


def compute_root(digests: Sequence[bytes]) -> bytes:
    """Return the top of the tree over these leaves."""
    level = list(digests) or [NO_DIGEST]
    while len(level) > 1:
        level = [
            _hash_node(level[start : start + TREE_WIDTH])
            for start in range(0, len(level), TREE_WIDTH)
        ]
    return level[0]


@contextmanager
def hash_in_background(lines: Lines) -> Iterator[Callable[[], bytes]]:
    """Computes the root of these lines on a thread, while a database works and leaves Python to
    others.
    """
    with ThreadPoolExecutor(1) as meanwhile:
        yield meanwhile.submit(lambda: compute_root(hash_lines(lines))).result


def make_proof(digests: Sequence[bytes], place: int) -> list[ProofStep]:
    """Return what else is needed to compute the root from the leaf at this place."""
    level = list(digests)
    steps = []
    while len(level) > 1:
        start = place - place % TREE_WIDTH
        steps.append(
            ProofStep(tuple(level[start:place]), tuple(level[place + 1 : start + TREE_WIDTH]))
        )
        level = [
            _hash_node(level[first : first + TREE_WIDTH])
            for first in range(0, len(level), TREE_WIDTH)
        ]
        place //= TREE_WIDTH
    return steps


def climb_proof(leaf: bytes, steps: Sequence[ProofStep]) -> bytes:
    """Return the root to which a proof leads."""
    for step in steps:
        leaf = _hash_node([*step.before, leaf, *step.after])
    return leaf


def digest_entry(entry: Entry, before: bytes) -> bytes:
    """Return the digest of an entry that follows another."""
    told = [
        entry.number,
        entry.what,
        entry.key,
        entry.request,
        entry.at,
        entry.lines,
        entry.root.hex(),
        before.hex(),
    ]
    return hashlib.sha256(
        json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
    ).digest()


def find_first_break(entries: Iterator[Entry]) -> int | None:
    """Return the number of the first entry that does not follow from those before it, or None."""
    before = NO_DIGEST
    for place, entry in enumerate(entries):
        if entry.number != place or entry.digest != digest_entry(entry, before):
            return place
        before = entry.digest
    return None


def digest_text(text: str) -> bytes:
    """Return the digest of published bytes."""
    return hashlib.sha256(text.encode()).digest()


def _hash_node(children: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"\1" + b"".join(children)).digest()


def hash_record(record: bytes) -> bytes:
    """Return the digest of a record."""
    return hashlib.sha256(b"\0" + record).digest()


def compute_merkle_root(leaves: Sequence[bytes]) -> bytes:
    """Return the top of the tree over these leaves."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    split = _find_split(len(leaves))
    return _hash_merkle_node(
        compute_merkle_root(leaves[:split]), compute_merkle_root(leaves[split:])
    )


def prove_inclusion(leaves: Sequence[bytes], place: int) -> list[bytes]:
    """Return what else is needed to compute the root from the leaf at this place."""
    if len(leaves) == 1:
        return []
    split = _find_split(len(leaves))
    if place < split:
        return [*prove_inclusion(leaves[:split], place), compute_merkle_root(leaves[split:])]
    return [*prove_inclusion(leaves[split:], place - split), compute_merkle_root(leaves[:split])]


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
            digest = _hash_merkle_node(step, digest)
            while index % 2 == 0 and index:
                index //= 2
                last //= 2
        else:
            digest = _hash_merkle_node(digest, step)
        index //= 2
        last //= 2
    return last == 0 and digest == top


def prove_consistency(leaves: Sequence[bytes], first: int) -> list[bytes]:
    """Return what is needed to see that the log of these leaves begins with its first so many."""
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
            old = _hash_merkle_node(step, old)
            new = _hash_merkle_node(step, new)
            while index % 2 == 0 and index:
                index //= 2
                last //= 2
        else:
            new = _hash_merkle_node(new, step)
        index //= 2
        last //= 2
    return last == 0 and (old, new) == (earlier, top)


def _prove_subtree(leaves: Sequence[bytes], first: int, *, whole: bool) -> list[bytes]:
    if first == len(leaves):
        if whole:
            return []
        return [compute_merkle_root(leaves)]
    split = _find_split(len(leaves))
    if first <= split:
        return [
            *_prove_subtree(leaves[:split], first, whole=whole),
            compute_merkle_root(leaves[split:]),
        ]
    return [
        *_prove_subtree(leaves[split:], first - split, whole=False),
        compute_merkle_root(leaves[:split]),
    ]


def _find_split(size: int) -> int:
    """Return the largest power of two below the size."""
    return 1 << (size - 1).bit_length() - 1


def _hash_merkle_node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()
