"""One digest: the engine's answer is the same integer whatever the order, the batches, the threads
or the files.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sottovoce import errors
from sottovoce.data import engine, kernels
from sottovoce.data.census import take_census
from sottovoce.data.engine import ArrayBatch, GroupLookup, get_engine
from sottovoce.data.engines import arrow
from sottovoce.data.kernels import (
    PIECE_ROWS,
    WeightedHistogram,
    WeightedSquares,
    WeightedSum,
    weigh_kinds,
)
from sottovoce.noise.source import Grid

N = 3000
GRID = Grid.cover(-5.0, 12.7, 32)
CELLS = Grid.cover(-5.0, 12.7, 9)


def table(seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"value": rng.normal(3, 4, N), "kind": rng.integers(0, 40, N).astype(np.uint8)})


WEIGHTS = np.random.default_rng(1).integers(0, 2**42, 40)


def digest(over) -> str:
    total = over.fold(WeightedSum("value", GRID, GroupLookup("kind"), WEIGHTS))
    histogram = over.fold(WeightedHistogram("value", CELLS, GroupLookup("kind"), WEIGHTS))
    return hashlib.sha256(repr((total, histogram.tolist())).encode()).hexdigest()


def by_hand(rows: pa.Table) -> str:
    """The same with Python's integers, one row at a time."""
    total = 0
    histogram = [0] * (CELLS.cells + 1)
    for value, kind in zip(rows["value"].to_pylist(), rows["kind"].to_pylist(), strict=True):
        weight = int(WEIGHTS[kind])
        total += weight * int(GRID.integers(np.array([value]))[0])
        histogram[int(CELLS.integers(np.array([value]))[0])] += weight
    return hashlib.sha256(repr((total, histogram)).encode()).hexdigest()


def partitioned(rows: pa.Table, rng: np.random.Generator) -> pa.Table:
    shuffled = rows.take(pa.array(rng.permutation(N)))
    cuts = np.sort(rng.integers(0, N + 1, rng.integers(0, 30)))
    edges = [0, *cuts.tolist(), N]
    return pa.concat_tables([shuffled.slice(a, b - a) for a, b in pairwise(edges)])


def test_two_hundred_partitions_have_one_digest(monkeypatch):
    rows = table()
    rng = np.random.default_rng(7)
    digests = set()
    for _ in range(200):
        monkeypatch.setattr(
            engine, "MAX_BATCH_ROWS", int(rng.integers(1, N + 1)) if rng.random() < 0.5 else 2**16
        )
        threads = min(int(rng.integers(1, 9)), 4)
        monkeypatch.setattr(engine, "count_threads", lambda threads=threads: threads)
        digests.add(digest(arrow.ArrowEngine(partitioned(rows, rng))))
    assert digests == {by_hand(rows)}


def test_files_give_the_same_digest_as_memory(tmp_path):
    rows = table()
    pq.write_table(rows, tmp_path / "one.parquet", row_group_size=700)
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(5):
        pq.write_table(rows.slice(i * 600, 600), folder / f"{i}.parquet")
    pa.csv.write_csv(rows, tmp_path / "one.csv")
    kind = get_engine("arrow")
    places = [str(tmp_path / "one.parquet"), str(folder), str(folder / "*.parquet")]
    digests = {digest(kind.open_table(place)) for place in places}
    digests.add(
        digest(kind.of_columns({name: rows[name].to_numpy() for name in rows.column_names}))
    )
    assert digests == {by_hand(rows)}
    csv_engine = kind.open_table(str(tmp_path / "one.csv"), numbers=("value", "kind"))
    budgets, owner = take_census(csv_engine, epsilon=1.0)
    assert budgets.n_rows == N
    all_rows = csv_engine.fold(WeightedSum("value", GRID, owner, np.array([3])))
    assert all_rows == 3 * sum(int(z) for z in GRID.integers(rows["value"].to_numpy()))


@pytest.mark.parametrize("kind", [pa.int32(), pa.float32(), pa.decimal128(21, 2), pa.bool_()])
def test_columns_of_any_kind_of_number_are_read(kind):
    rows = pa.table({"value": pa.array([0, 1, 1, 0]).cast(kind), "kind": pa.array([0, 0, 0, 0])})
    assert (
        arrow.ArrowEngine(rows).fold(
            WeightedSum("value", Grid.cover(0, 1, 1), GroupLookup(), np.array([5]))
        )
        == 20
    )


def test_few_kinds_are_weighted_as_many_are(monkeypatch):
    """Sums by kind and products with everybody's weight are the same whole number, also where
    somebody who is left out holds no number.
    """
    rng = np.random.default_rng(5)
    n = 3 * PIECE_ROWS + 17
    kinds = rng.integers(0, 5, n)
    values = rng.normal(50, 40, n)
    values[kinds == 3] = np.where(rng.random((kinds == 3).sum()) < 0.01, np.inf, 1.0)
    weights = np.array([2**42, 1, 2**21 - 1, 0, 2**38 + 12345])
    batch = ArrayBatch({"value": values, "kind": kinds}, n)
    for kernel in (WeightedSum, WeightedSquares):
        sums = kernel("value", Grid.cover(0, 100, 15), GroupLookup("kind"), weights)
        by_kind = sums(batch)
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "FEW_KINDS", 0)
            assert sums(batch) == by_kind
    with pytest.raises(errors.ReleaseFailed):
        weigh_kinds(weights, np.array([5]), np.ones(1))
    with pytest.raises(errors.ReleaseFailed):
        weigh_kinds(weights, np.array([-1]), np.ones(1))
    with pytest.raises(errors.ReleaseFailed):
        weigh_kinds(weights, np.array([0]), np.array([0.5]))
