"""Rows, statistics and partitionings that every engine is held to.

A module of its own, because workers of Dask and Spark import what is defined here: kernels are sent
to them by name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sottovoce.budgets import Budgets
from sottovoce.data.cells import make_cells
from sottovoce.data.census import take_census
from sottovoce.data.encoding import (
    GRID_BITS,
    ClassLabel,
    ColumnReader,
    Feature,
    Label,
    Recoding,
    UnitBall,
    UnitBallReader,
)
from sottovoce.data.engine import GroupLookup, Kernel
from sottovoce.data.kernels import WeightedHistogram, WeightedSum
from sottovoce.data.loss_kernels import LogisticTerms, ResidualHistogram
from sottovoce.data.regression_kernels import PersonSums, Products, RowSums, SumsByPerson
from sottovoce.data.table_kernels import CellProducts, CellSums, CellTotals, CellWeights
from sottovoce.noise.source import Grid
from sottovoce.schema import Classes, Column, Schema
from sottovoce.solvers.losses import get_loss

N = 400
PEOPLE = 60
TIERS = {"low": 0.1, "middle": 0.5, "high": 2.0}


def rows(seed: int = 0) -> pa.Table:
    """People with several rows each, in columns of every kind: gaps, decimals, truths, levels, one
    without a value.
    """
    rng = np.random.default_rng(seed)
    person = rng.integers(0, PEOPLE, N)
    tier = rng.choice(list(TIERS), PEOPLE)[person]
    cents = rng.integers(0, 10_000, N)
    return pa.table(
        {
            "person": person,
            "name": [f"p{i:02d}" for i in person],
            "tier": tier,
            "epsilon": [TIERS[name] for name in tier],
            "value": pa.array(rng.normal(3, 4, N), mask=rng.random(N) < 0.1),
            "price": pa.array([Decimal(int(c)) / 100 for c in cents], pa.decimal128(12, 2)),
            "visits": pa.array(rng.integers(0, 20, N), pa.int32()),
            "weight": pa.array(rng.normal(70, 15, N), pa.float32()),
            "smoker": pa.array(rng.random(N) < 0.3),
            "region": pa.array(
                rng.choice(["north", "south", "west", "elsewhere"], N)
            ).dictionary_encode(),
            "unknown": pa.nulls(N, pa.float64()),
            "y": rng.normal(0, 1, N),
            "outcome": rng.choice(["ill", "well"], N),
            **_words_and_dates(seed),
        }
    )


#: Levels with quotes, signs and lines of their own, and what is none of them, or missing.
WORDS = ("it's", 'say "so"', "new\nline", "ünï", "north", "NORTH", "`", "a,b;c", "other", "", None)
#: Days as people write them: some on no calendar, some of which UTC has another day.
NOTED = (
    "2024-01-31",
    "2024-02-29",
    "2023-02-29",
    "2024-12-30T23:30:00-02:00",
    "2024-03-31 02:30:00+02:00",
    "2024/07/01",
    "20241231",
    "31.12.2024",
    "soon",
    "1900-01-01",
    "9999-12-31",
    "",
    None,
)


def _words_and_dates(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, 1])
    days = rng.integers(19_600, 20_200, N)
    seconds = days * 86_400 + rng.integers(0, 86_400, N)
    return {
        "word": pa.array([WORDS[i] for i in rng.integers(0, len(WORDS), N)], pa.string()),
        "noted": pa.array([NOTED[i] for i in rng.integers(0, len(NOTED), N)], pa.string()),
        "visited": pa.array(days.astype(np.int32), mask=rng.random(N) < 0.1).cast(pa.date32()),
        "seen": pa.array(seconds * 10**6, mask=rng.random(N) < 0.1).cast(
            pa.timestamp("us", "Europe/Berlin")
        ),
        "when": pa.array(seconds * 10**6).cast(pa.timestamp("us")),
    }


SCHEMA = Schema(
    columns={
        "word": Column("factor", levels=WORDS[:5]),
        "region": Column("factor", levels=("north", "south", "west"), other="west"),
        "visits": Column("number", 0, 20, edges=(0, 2, 5, 20)),
        "value": Column("number", -5, 12),
        "weight": Column("number", 40, 120),
        "noted": Column("date", low="2024-01-01", high="2024-12-31", period="month"),
        "visited": Column("date", low="2023-12-20", high="2025-01-10", period="week"),
        "seen": Column("date", low="2024-02-01", high="2024-04-30", period="day"),
        "when": Column("date", low="2023-01-01", high="2025-12-31", period="quarter"),
    }
)


def tables(owner: GroupLookup, kinds: int) -> tuple[Kernel[Any], ...]:
    """What tables sum: counts, sums and squares, products, by levels, bins and periods, filtered
    and not.
    """
    weights = np.random.default_rng(6).integers(0, 2**42, kinds)
    fine = Grid.cover(-5.0, 12.7, 32)
    coarse = Grid.cover(40.0, 120.0, 16)
    filtered = "not (value > 3 or word == 'north') and seen is not missing"
    return (
        CellWeights(make_cells(["word", "visits"], None, SCHEMA), owner, weights),
        CellWeights(make_cells("visited", filtered, SCHEMA), owner, weights),
        CellWeights(make_cells(["noted", "region"], "visits in [3, 4]", SCHEMA), owner, weights),
        CellWeights(make_cells(["seen", "when"], None, SCHEMA), owner, weights),
        CellSums(make_cells(["word", "region"], None, SCHEMA), owner, weights, "value", fine),
        CellSums(make_cells("when", "visits >= 2", SCHEMA), owner, weights, "weight", coarse, True),
        CellSums(make_cells("noted", None, SCHEMA), owner, weights, "visits", coarse, True),
        CellProducts(
            make_cells("region", None, SCHEMA),
            owner,
            weights,
            ("value", "weight"),
            (Grid.cover(-5.0, 12.7, 16), coarse),
        ),
    )


def encode(part: Any) -> Any:
    """Plain numbers of what a kernel returns."""
    if isinstance(part, SumsByPerson):
        return part.dense().tolist()
    if isinstance(part, CellTotals):
        numbers = [part.get_line(line).tolist() for line in range(len(part.low))]
        return [part.weights.tolist(), part.missing.tolist(), numbers]
    return np.asarray(part, dtype=object).tolist()


def digest_of_each(engine: Any, kernels: tuple[Kernel[Any], ...]) -> str:
    """One fingerprint of several statistics, each from a scan of its own."""
    return hashlib.sha256(repr([encode(engine.fold(k)) for k in kernels]).encode()).hexdigest()


FEATURES = Recoding(
    (
        Feature("visits", 0.0, 20.0),
        Feature("weight", 40.0, 120.0),
        Feature("price", 0.0, 100.0),
        Feature("smoker", 0.0, 1.0),
        Feature("region", levels=("north", "south", "west")),
        Feature("unknown", 0.0, 4.0, missing=1.0),
    )
)
NUMBERS = ("person", "epsilon", "value", "price", "visits", "weight", "unknown", "y")


@dataclass(frozen=True)
class Partition:
    """Frames that Dask asks for by their place."""

    frames: list[Any]

    def __call__(self, place: int) -> Any:
        return self.frames[place]


@dataclass(frozen=True, eq=False)
class Together:
    """Several statistics from one scan."""

    kernels: tuple[Kernel[Any], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for kernel in self.kernels for column in kernel.columns))

    def zero(self) -> Any:
        return _side_by_side([kernel.zero() for kernel in self.kernels])

    def __call__(self, batch: Any) -> Any:
        return _side_by_side([kernel(batch) for kernel in self.kernels])


def _side_by_side(parts: list[Any]) -> Any:
    together = np.empty(len(parts), dtype=object)
    for place, part in enumerate(parts):
        together[place] = part
    return together


def statistics(owner: GroupLookup, kinds: int) -> Together:
    """What every estimator sums: a mean, a quantile, a ridge, a Newton step, residuals, steps of
    descent.
    """
    rng = np.random.default_rng(5)
    reader = ColumnReader(FEATURES)
    label = Label("y", -3.0, 3.0)
    ball = UnitBall(np.zeros(FEATURES.width), np.full(FEATURES.width, 0.3), 2.0, 0.5, GRID_BITS)
    weights = rng.integers(1, 2**26, kinds)
    theta = rng.normal(size=FEATURES.width + 1)
    step: dict[str, Any] = {
        "reader": reader,
        "label": label,
        "loss": get_loss("logistic"),
        "theta": theta,
        "clip": 1.0,
    }
    return Together(
        (
            WeightedSum(
                "value",
                Grid.cover(-5.0, 12.7, 32),
                owner,
                rng.integers(0, 2**42, kinds),
                missing=1.5,
            ),
            WeightedHistogram("price", Grid.cover(0.0, 100.0, 9), owner, weights),
            Products(reader, label, owner, weights),
            LogisticTerms(
                reader=UnitBallReader(ball, FEATURES, reader),
                label=ClassLabel("outcome", Classes(("well", "ill"))),
                owner=owner,
                row_weights=rng.random(kinds),
                theta=theta,
                positive=1,
            ),
            ResidualHistogram(reader, label, owner, weights, Grid.cover(-8.0, 8.0, 7), theta),
            RowSums(**step, owner=owner, weights=weights.astype(np.float64)),
            PersonSums(**step, place=GroupLookup("person"), lines=np.arange(PEOPLE), most=N),
            *tables(owner, kinds),
        )
    )


def digest(engine: Any, kernel: Together) -> str:
    """One fingerprint of all statistics."""
    told = [encode(part) for part in engine.fold(kernel).tolist()]
    return hashlib.sha256(repr(told).encode()).hexdigest()


def census(engine: Any) -> str:
    """One fingerprint of who is there, with how many rows and which budget, however people and
    budgets are named.
    """
    asked: list[dict[str, Any]] = [
        {"epsilon": 0.5},
        {"epsilon": 0.5, "person": "person"},
        {"budget": "tier", "person": "name", "tiers": TIERS},
    ]
    return hashlib.sha256(
        repr([_told(*take_census(engine, **each)) for each in asked]).encode()
    ).hexdigest()


def _told(budgets: Budgets, owner: GroupLookup) -> Any:
    if budgets.people is None:
        people = None
    else:
        people = budgets.people.tolist()
    kinds = budgets.kinds
    return people, kinds.epsilon.tolist(), kinds.rows.tolist(), kinds.people.tolist(), owner.column


def parts(table: pa.Table, rng: np.random.Generator, most: int) -> list[pa.Table]:
    """The rows in another order, cut anywhere: some parts are empty, and people's rows lie in
    several.
    """
    shuffled = table.take(pa.array(rng.permutation(len(table))))
    cuts = np.sort(rng.integers(0, len(table) + 1, int(rng.integers(1, most))))
    edges = [0, *cuts.tolist(), len(table)]
    return [shuffled.slice(a, b - a) for a, b in pairwise(edges)]


def spark_or_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets Spark's workers find this module; where there is no Java, the group of tests says so."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and this machine has none: its group of tests did not run.")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    # A machine that runs for a minute gains nothing by compiling well.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@dataclass(frozen=True, eq=False)
class Struck:
    """A kernel that, where it meets one row, tells its process and waits once: somebody is going to
    kill it.
    """

    kernel: Any
    folder: str

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.kernel.columns)

    def zero(self) -> Any:
        return self.kernel.zero()

    def __call__(self, batch: Any) -> Any:
        try:
            (Path(self.folder) / "waits").touch(
                exist_ok=False
            )  # one process only, and only the first time
        except FileExistsError:
            return self.kernel(batch)
        (Path(self.folder) / "told").write_text(str(os.getpid()))
        (Path(self.folder) / "told").rename(Path(self.folder) / "pid")
        time.sleep(600)
        return self.kernel(batch)
