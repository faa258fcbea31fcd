# SPDX-License-Identifier: Apache-2.0
"""Several answers from one pass over the rows.

A report asks several questions of the same rows. Each of them folds a kernel over an engine; to
read the rows once for all, the first kernel of each is noted down (nothing is read), all of them
are folded side by side in one pass, and each question then runs with its own sum at hand. What a
question does before its first fold follows from its plan alone, so to do it twice changes nothing;
folds after the first one read the rows again, as they would without company.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sottovoce.data.engine import Engine, Kernel

Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class PartList:
    """Several parts of an answer that add up side by side."""

    parts: tuple[Any, ...]

    def __add__(self, other: PartList) -> PartList:
        return PartList(tuple(a + b for a, b in zip(self.parts, other.parts, strict=True)))


@dataclass(frozen=True, eq=False)
class JoinedKernel:
    """Several kernels over the same rows, which are read once."""

    kernels: tuple[Kernel[Any], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have: those of all kernels, each once."""
        return tuple(dict.fromkeys(name for kernel in self.kernels for name in kernel.columns))

    def zero(self) -> PartList:
        """The answers for no rows."""
        return PartList(tuple(kernel.zero() for kernel in self.kernels))

    def __call__(self, batch: Any) -> PartList:
        """Returns every kernel's answer for this batch."""
        return PartList(tuple(kernel(batch) for kernel in self.kernels))


class KernelNoted(Exception):
    """Stops a question at its first fold, when its kernel is known and nothing has been read."""


class KernelRecorder:
    """An engine that notes down the first kernel it is given, and reads nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.kernel: Kernel[Any] | None = None

    def columns(self) -> Mapping[str, str]:
        """Names of the columns and their kinds."""
        return self._engine.columns()

    def fold(self, kernel: Kernel[Any]) -> Any:
        """Notes the kernel down, and stops."""
        self.kernel = kernel
        raise KernelNoted


class PreparedEngine:
    """An engine that has the sum of its first kernel already, and folds the others."""

    def __init__(self, engine: Engine, first: Any) -> None:
        self._engine = engine
        self._first = [first]

    def columns(self) -> Mapping[str, str]:
        """Names of the columns and their kinds."""
        return self._engine.columns()

    def fold(self, kernel: Kernel[Any]) -> Any:
        """Returns the sum that is there; after the first time, that of the rows."""
        if self._first:
            return self._first.pop()
        return self._engine.fold(kernel)


def fold_together(engine: Engine, runs: Sequence[Callable[[Engine], Answer]]) -> list[Answer]:
    """Returns what each function makes of the rows, with the first fold of all of them in one pass.

    Every function takes an engine. It is called twice, up to its first fold and then to its end, in
    the order given; before its first fold it must draw nothing and change nothing.
    """
    noted = [_note_kernel(engine, run) for run in runs]
    kernels = tuple(kernel for kernel in noted if kernel is not None)
    if len(kernels) < 2:
        return [run(engine) for run in runs]
    sums = iter(engine.fold(JoinedKernel(kernels)).parts)
    return [
        run(engine) if kernel is None else run(PreparedEngine(engine, next(sums)))
        for run, kernel in zip(runs, noted, strict=True)
    ]


def _note_kernel(engine: Engine, run: Callable[[Engine], Any]) -> Kernel[Any] | None:
    """Returns the first kernel that a function folds; None where it folds none."""
    recorder = KernelRecorder(engine)
    try:
        run(recorder)
    except KernelNoted:
        return recorder.kernel
    return None
