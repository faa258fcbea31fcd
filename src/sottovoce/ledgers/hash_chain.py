# SPDX-License-Identifier: Apache-2.0
"""The chain of digests that binds the books, and the proof that somebody's line is in it. Pure
functions of bytes.

    leaf     SHA-256(00 ‖ person, 16 bytes ‖ account, 1 byte ‖ amount, 8 bytes, the highest first)
    node     SHA-256(01 ‖ up to 64 digests of the level below, in order)
    entry    SHA-256 of the JSON list [number, what, key, request, at, lines, root, digest of the
             entry before]

Leaves are sorted. A person is a digest that only the holder of the ledger's key can compute, so a
leaf tells nothing to others. Whoever has seen one head can check everything that came before it
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
    """Returns lines of one account, from the people's digests one after the other."""
    lines = np.zeros(len(amounts), dtype=PACKED)
    lines["person"] = np.frombuffer(people, dtype=np.uint8).reshape(-1, PERSON_BYTES)
    lines["account"] = account
    lines["amount"] = amounts
    return lines


def sort_lines(parts: Sequence[Lines]) -> Lines:
    """Returns the lines of all parts, sorted by person and account."""
    lines = np.concatenate(parts).astype(PACKED)  # joining loses the order of bytes
    halves = np.ascontiguousarray(lines["person"]).view(">u8").reshape(len(lines), 2)
    order = np.lexsort((lines["account"], halves[:, 1], halves[:, 0]))
    return lines.view(f"V{PACKED.itemsize}")[order].view(
        PACKED
    )  # whole records move faster than their fields


def look_up_amounts(wanted: bytes, people: bytes, amounts: Units) -> Units | None:
    """Returns the amounts of those who are wanted, from those of people in order; None if somebody
    is not there.
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
    """Returns the digests of people as two numbers each, in whose order they are."""
    both = np.frombuffer(digests, dtype=">u8").astype(np.uint64).reshape(-1, 2)
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


def has_repeats(lines: Lines) -> bool:
    """Whether two of these lines, which are in order, are about one account of one person."""
    same_person = (lines["person"][1:] == lines["person"][:-1]).all(axis=1)
    return bool(np.any(same_person & (lines["account"][1:] == lines["account"][:-1])))


def hash_lines(lines: Lines) -> list[bytes]:
    """Returns the digests of packed lines."""
    size = PACKED.itemsize
    raw = memoryview(lines.tobytes())
    sha = hashlib.sha256
    return [sha(raw[start : start + size]).digest() for start in range(0, len(raw), size)]


def compute_root(digests: Sequence[bytes]) -> bytes:
    """Returns the top of the tree over these leaves."""
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
    """Returns what else is needed to compute the root from the leaf at this place."""
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
    """Returns the root to which a proof leads."""
    for step in steps:
        leaf = _hash_node([*step.before, leaf, *step.after])
    return leaf


def digest_entry(entry: Entry, before: bytes) -> bytes:
    """Returns the digest of an entry that follows another."""
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
    """Returns the number of the first entry that does not follow from those before it, or None."""
    before = NO_DIGEST
    for place, entry in enumerate(entries):
        if entry.number != place or entry.digest != digest_entry(entry, before):
            return place
        before = entry.digest
    return None


def digest_text(text: str) -> bytes:
    """Returns the digest of published bytes."""
    return hashlib.sha256(text.encode()).digest()


def _hash_node(children: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"\1" + b"".join(children)).digest()
