# SPDX-License-Identifier: Apache-2.0
"""The one source of random bytes: the operating system's.

Nothing is buffered, so a forked process can never repeat its parent's bytes. There is no seed. Tests
look through one private seam, ``_seam``; while it is closed, which is always outside tests, bytes come
from the operating system and integer noise from OpenDP.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Seam(Protocol):
    """What a test puts in place of the operating system and of OpenDP's samplers."""

    def bytes(self, count: int) -> bytes:
        """Returns that many bytes."""

    def integers(self, law: str, scale: float, size: int) -> list[int]:
        """Returns integer noise of the law "laplace" or "gaussian"."""


_open_seam: ContextVar[Seam | None] = ContextVar("sottovoce_seam", default=None)


@contextmanager
def _seam(seam: Seam) -> Iterator[None]:
    """Replaces all randomness inside the block. For tests: what is drawn in it protects nobody."""
    token = _open_seam.set(seam)
    try:
        yield
    finally:
        _open_seam.reset(token)


def seam() -> Seam | None:
    """Returns the seam a test has opened, or None."""
    return _open_seam.get()


def random_bytes(count: int) -> bytes:
    """Returns independent uniform bytes."""
    opened = seam()
    return os.urandom(count) if opened is None else opened.bytes(count)


def words(size: int) -> NDArray[np.uint64]:
    """Returns independent uniform integers in [0, 2^64)."""
    return np.frombuffer(random_bytes(8 * size), dtype="<u8").astype(np.uint64)


def below(bound: int) -> int:
    """Returns a uniform integer in [0, bound), exactly, by rejection."""
    width = (bound - 1).bit_length()
    while True:
        draw = int.from_bytes(random_bytes((width + 7) // 8), "little") & ((1 << width) - 1)
        if draw < bound:
            return draw


def uniforms(size: int) -> NDArray[np.float64]:
    """Returns doubles inside (0, 1), uniform to 2^-53: for continuous noise, whose guarantee says "floating"."""
    return (np.asarray(words(size) >> np.uint64(12), dtype=np.float64) + 0.5) * 2.0**-52
