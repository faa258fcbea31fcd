"""What tests put in place of the operating system's randomness, through the one private seam."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sottovoce.noise import source


class Seeded:
    """Reproducible bytes and noise of the right law (NumPy's, good enough for tests of everything
    else).
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def bytes(self, count: int) -> bytes:
        return self._rng.bytes(count)

    def integers(self, law: str, scale: float, size: int) -> list[int]:
        if law == "laplace":
            draw = self._rng.laplace
        else:
            draw = self._rng.normal
        return [int(z) for z in np.rint(draw(0, scale, size))]


class Silent(Seeded):
    """No noise at all; remembers the scales it was asked for."""

    def __init__(self) -> None:
        super().__init__(0)
        self.scales: list[float] = []

    def integers(self, law: str, scale: float, size: int) -> list[int]:
        self.scales.append(scale)
        return [0] * size


def without_names(release) -> str:
    """The bytes of a release but for what people call column and table, and its date."""
    return replace(release, column=None, table=None, units=None, date=None).to_json()


def silent():
    return source._seam(Silent())


def seeded(seed: int):
    return source._seam(Seeded(seed))


class Script:
    """A seam whose random words are given one by one."""

    def __init__(self, *words: int) -> None:
        self._bytes = b"".join(word.to_bytes(8, "little") for word in words)

    def bytes(self, count: int) -> bytes:
        head = self._bytes[:count]
        self._bytes = self._bytes[count:]
        assert len(head) == count, "more randomness than was scripted"
        return head
