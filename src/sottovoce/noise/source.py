# SPDX-License-Identifier: Apache-2.0
"""The one source of random bytes: the operating system's.

Nothing is buffered, so a forked process can never repeat its parent's bytes. There is no seed.
Tests look through one private seam, ``_seam``; while it is closed, which is always outside tests,
bytes come from the operating system and integer noise from OpenDP.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.noise.precise import BITS


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


def draw_bytes(count: int) -> bytes:
    """Returns independent uniform bytes."""
    opened = seam()
    if opened is None:
        return os.urandom(count)
    return opened.bytes(count)


def draw_words(size: int) -> NDArray[np.uint64]:
    """Returns independent uniform integers in [0, 2^64)."""
    return np.frombuffer(draw_bytes(8 * size), dtype="<u8").astype(np.uint64)


def draw_below(bound: int) -> int:
    """Returns a uniform integer in [0, bound), exactly, by rejection."""
    width = (bound - 1).bit_length()
    while True:
        draw = int.from_bytes(draw_bytes((width + 7) // 8), "little") & ((1 << width) - 1)
        if draw < bound:
            return draw


class UniformReal(NamedTuple):
    """A uniform real of (0, 1), mantissa/2^power, known to a relative error below 2^-320, however
    close to 0.
    """

    mantissa: int
    power: int

    @property
    def fixed_point(self) -> int:
        """The same times 2^384, as a whole number."""
        return self.mantissa >> (self.power - BITS)


def draw_uniforms(size: int) -> list[UniformReal]:
    """Returns independent uniform reals: the middle of the cell of 2^-384 that each lies in, or of
    a smaller one.

    Smaller where fewer than 321 leading bits are known: then more are drawn, as often as it takes.
    """
    drawn = draw_bytes(BITS // 8 * size)
    each = BITS // 8
    return [
        _refine_uniform(int.from_bytes(drawn[at : at + each], "little"))
        for at in range(0, len(drawn), each)
    ]


def _refine_uniform(cell: int) -> UniformReal:
    power = BITS
    while not cell >> (BITS - 64):
        cell = cell << 64 | int(draw_words(1)[0])
        power += 64
    return UniformReal(2 * cell + 1, power + 1)
