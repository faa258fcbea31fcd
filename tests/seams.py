"""What tests put in place of the operating system's randomness, through the one private seam."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from sottovoce import estimator
from sottovoce.noise import source, zero_sum


class Seeded:
    """Reproducible bytes and noise of the right law (NumPy's, good enough for tests of everything
    else).
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def bytes(self, count: int) -> bytes:
        return self._rng.bytes(count)

    def integers(self, law: str, scale: float, size: int) -> list[int]:
        if law == "zero sum":
            return self._sum_to_zero(scale, size)
        if law == "laplace":
            draw = self._rng.laplace
        else:
            draw = self._rng.normal
        return [int(z) for z in np.rint(draw(0, scale, size))]

    def _sum_to_zero(self, scale: float, size: int) -> list[int]:
        weights = np.array([float(weight) for weight in zero_sum.weigh_positive(size)])
        positive = 1 + self._rng.choice(size - 1, p=weights / weights.sum())
        total = scale * self._rng.gamma(size - 1)
        parts = np.r_[
            self._rng.dirichlet(np.ones(positive)), -self._rng.dirichlet(np.ones(size - positive))
        ]
        drawn = [int(z) for z in np.rint(total * self._rng.permutation(parts))]
        return [drawn[0] - sum(drawn), *drawn[1:]]


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


class Witness(Seeded):
    """Reproducible randomness that notes who asked for it: under make_release, or elsewhere."""

    def __init__(self) -> None:
        super().__init__(0)
        self.inside = 0
        self.outside: list[str] = []  # the functions of noise/ that were called from elsewhere

    def bytes(self, count: int) -> bytes:
        self._note()
        return super().bytes(count)

    def integers(self, law: str, scale: float, size: int) -> list[int]:
        self._note()
        return super().integers(law, scale, size)

    def _note(self) -> None:
        frame = sys._getframe(1)
        drawing = ""
        while frame is not None:
            if frame.f_code is estimator.make_release.__code__:
                self.inside += 1
                return
            if frame.f_globals["__name__"].startswith("sottovoce.noise."):
                drawing = frame.f_code.co_name
            frame = frame.f_back
        self.outside.append(drawing)


def witness(monkeypatch) -> Witness:
    """Puts a witness in place of randomness in all threads, and returns it."""
    own = Witness()
    monkeypatch.setattr(source, "seam", lambda: own)
    return own
