# SPDX-License-Identifier: Apache-2.0
"""Engine, the contract: exact integers over rows, wherever the rows live.

An engine brings batches of rows to a kernel and adds what the kernel returns. Kernels return whole
numbers (or things that add exactly), so the answer is the same whatever the order, the size of a
batch or the number of threads. Kernels are in statistics.py and census.py; the kinds of engine are in
engines/, found by name so that an engine nobody uses needs no package installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from sottovoce.errors import InvalidParameter, MissingColumn
from sottovoce.statistics import Owner
from sottovoce.table import Array

Part = TypeVar("Part")
PartOut = TypeVar("PartOut", covariant=True)

#: Called with the number of rows done so far; the number of rows is public.
Watch = Callable[[int], None]


class Kernel(Protocol[PartOut]):
    """A pure function of one batch of the named columns; parts add up with +, beginning at ``zero``."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""

    def zero(self) -> PartOut:
        """The answer for no rows."""

    def __call__(self, batch: Any) -> PartOut:
        """The answer for this batch."""


class Engine(Protocol):
    """Rows, wherever they live."""

    def columns(self) -> Mapping[str, str]:
        """Names of the columns and their kinds: number, text or other."""

    def fold(self, kernel: Kernel[Part]) -> Part:
        """Returns the sum of kernel(batch) over batches that together hold every row exactly once."""


class EngineKind(Protocol):
    """What a module in engines/ offers."""

    def of_columns(self, columns: Mapping[str, Array]) -> Engine:
        """An engine over arrays in memory."""

    def open_table(self, path: str, numbers: tuple[str, ...] = (), watch: Watch | None = None) -> Engine:
        """An engine over a file, a folder or a pattern; ``numbers`` names the columns to read as numbers."""

    def infer_kinds(self, path: str) -> list[tuple[str, str]]:
        """Names of the columns of such a table and their likely kinds, number or text."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one question: where they live, the column it is about, and whose each row is."""

    engine: Engine
    value: str
    owner: Owner
    features: Any = None  # a features.Reader, for regressions
    label: Any = None  # a features.Label, for regressions


KINDS = ("arrow",)


def named(name: str = "arrow") -> EngineKind:
    """Returns the kind of engine with this name, importing it on first use."""
    if name not in KINDS:
        raise InvalidParameter(
            f"There is no engine called {name!r}.", f"Engines: {', '.join(KINDS)}.", "Choose one of them."
        )
    return cast(EngineKind, importlib.import_module(f"sottovoce.engines.{name}"))


def require_columns(engine: Engine, *names: str | None) -> None:
    """Refuses a table that lacks one of the columns; column names are public."""
    there = engine.columns()
    for name in names:
        if name is not None and name not in there:
            raise MissingColumn(
                f"The table has no column {name!r}.",
                f"Its columns are: {', '.join(there)}.",
                "Name one of these.",
            )
