"""Several answers from one pass over the rows are those of several passes."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from engine_cases import rows
from sottovoce.data.engine import GroupLookup, open_engine
from sottovoce.data.kernels import WeightedHistogram, WeightedSum
from sottovoce.data.shared_fold import JoinedKernel, fold_together
from sottovoce.noise.source import Grid

GRID = Grid.cover(0.0, 10.0, 8)
WEIGHTS = np.array([3])


class CountingEngine:
    """An engine that counts how often it is folded."""

    def __init__(self, engine):
        self.engine = engine
        self.folds = 0

    def columns(self):
        return self.engine.columns()

    def fold(self, kernel):
        self.folds += 1
        return self.engine.fold(kernel)


def make_table() -> pa.Table:
    place = np.arange(5000)
    return pa.table({"a": place % 11 * 1.0, "b": np.cos(place) * 9, "c": place % 3 * 2.0})


def make_kernels() -> list:
    owner = GroupLookup()
    return [
        WeightedSum("a", GRID, owner, WEIGHTS),
        WeightedHistogram("b", GRID, owner, WEIGHTS),
        WeightedSum("c", GRID, owner, WEIGHTS),
    ]


@pytest.mark.parametrize("kind", ["arrow", "duckdb"])
def test_one_pass_gives_what_several_give(kind):
    table = make_table()
    source = table if kind == "arrow" else duckdb.from_arrow(table)
    engine = CountingEngine(open_engine(source))
    apart = [engine.engine.fold(kernel) for kernel in make_kernels()]
    runs = [lambda engine, kernel=kernel: engine.fold(kernel) for kernel in make_kernels()]
    together = fold_together(engine, runs)
    assert engine.folds == 1
    assert all(np.array_equal(one, two) for one, two in zip(apart, together, strict=True))


def test_later_folds_read_the_rows_again():
    engine = CountingEngine(open_engine(make_table()))
    first, second, third = make_kernels()

    def run_twice(own):
        return own.fold(first), own.fold(third)

    (one, three), two = fold_together(engine, [run_twice, lambda own: own.fold(second)])
    assert engine.folds == 2
    assert (one, three) == (engine.fold(first), engine.fold(third))
    assert np.array_equal(two, engine.fold(second))


def test_what_folds_nothing_and_what_is_alone_run_as_they_are():
    engine = CountingEngine(open_engine(make_table()))
    kernel = make_kernels()[0]
    assert fold_together(engine, [lambda own: 7, lambda own: own.fold(kernel)]) == [
        7,
        engine.fold(kernel),
    ]


def test_a_refusal_before_the_first_fold_is_raised():
    def refuse(own):
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fold_together(open_engine(make_table()), [refuse, lambda own: own.fold(make_kernels()[0])])


def test_a_joined_kernel_reads_every_column_once():
    table = rows()
    name = next(name for name in table.column_names if pa.types.is_floating(table[name].type))
    kernel = WeightedSum(name, GRID, GroupLookup(), WEIGHTS)
    assert JoinedKernel((kernel, kernel)).columns == (name,)
