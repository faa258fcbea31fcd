"""One digest: every engine gives the same whole numbers, however the rows are ordered, cut and
stored.

The rows have columns of every kind, statistics are those of every estimator, and partitionings are
drawn with fixed seeds. Real Dask and Spark run on this machine, started once (xdist: --dist
loadgroup keeps a group together).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import engine_cases as cases
from sottovoce import errors
from sottovoce.data import engine
from sottovoce.data.cells import make_cells
from sottovoce.data.census import take_census
from sottovoce.data.engine import GroupLookup, NameIndex, get_engine, open_engine
from sottovoce.data.kernels import WeightedSum
from sottovoce.data.table_kernels import CellWeights
from sottovoce.noise.source import Grid

TABLE = cases.rows()
KINDS = ("arrow", "duckdb", "dask", "spark")


def expected() -> tuple[Any, str, str]:
    whole = open_engine(TABLE)
    budgets, owner = take_census(whole, budget="epsilon", person="name")
    kernel = cases.statistics(owner, len(budgets.kinds.epsilon))
    return kernel, cases.digest(whole, kernel), cases.census(whole)


KERNEL, DIGEST, CENSUS = expected()


def in_files(chunks: list[pa.Table], folder: Path) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for place, chunk in enumerate(chunks):
        pq.write_table(chunk, folder / f"{place}.parquet", row_group_size=97)
    return str(folder)


def arrow_tables(chunks: list[pa.Table], folder: Path) -> Any:
    return open_engine(pa.concat_tables(chunks))


def duckdb_relations(chunks: list[pa.Table], folder: Path) -> Any:
    connection = duckdb.connect()
    for place, chunk in enumerate(chunks):
        connection.register(f"part{place}", chunk)
    return open_engine(
        connection.sql(" UNION ALL ".join(f"FROM part{place}" for place in range(len(chunks))))
    )


def dask_frames(chunks: list[pa.Table], folder: Path) -> Any:
    import dask.dataframe as dd

    # decimals as objects Dask itself would turn into text
    if len(chunks) % 2:
        mapper = pd.ArrowDtype
    else:
        mapper = decimals
    frames = [chunk.to_pandas(types_mapper=mapper) for chunk in chunks]
    return open_engine(
        dd.from_map(cases.Partition(frames), range(len(frames)), meta=frames[0].head(0))
    )


def decimals(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return pd.ArrowDtype(kind)
    return None


def spark_frames(chunks: list[pa.Table], folder: Path) -> Any:
    from sottovoce.data.engines.spark import _get_session

    session = _get_session()
    return open_engine(session.read.parquet(in_files(chunks, folder)).repartition(len(chunks)))


OBJECTS: dict[str, Callable[[list[pa.Table], Path], Any]] = {
    "arrow": arrow_tables,
    "duckdb": duckdb_relations,
    "dask": dask_frames,
    "spark": spark_frames,
}


def obey(name: str, partitionings: int, most: int, folder: Path) -> None:
    """Partitionings of tables in the engine's own form, and every third one in files."""
    rng = np.random.default_rng(11)
    digests = set()
    for turn in range(partitionings):
        chunks = cases.parts(TABLE, rng, most)
        if turn % 3:
            there = OBJECTS[name](chunks, folder / "own")
        else:
            there = get_engine(name).open_table(in_files(chunks, folder / "files"))
        digests.add(cases.digest(there, KERNEL))
    assert digests == {DIGEST}


@pytest.mark.parametrize("count", [20, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["arrow", "duckdb"])
def test_all_partitionings_have_one_digest(name, count, tmp_path):
    obey(name, count, 30, tmp_path)


OWNERS = {
    "one": (GroupLookup(), 1),
    "tiers": (GroupLookup("tier", NameIndex(list(cases.TIERS))), 3),
}


@pytest.mark.parametrize("name", ["arrow", "duckdb"])
@pytest.mark.parametrize("owners", OWNERS)
def test_tables_that_an_engine_groups_by_itself_have_the_same_digest(name, owners, tmp_path):
    kernels = cases.tables(*OWNERS[owners])
    wanted = cases.digest(open_engine(TABLE), cases.Together(kernels))  # which nobody groups
    rng = np.random.default_rng(12)
    for place in range(2):
        chunks = cases.parts(TABLE, rng, 6)
        own = OBJECTS[name](chunks, tmp_path / f"own{place}")
        files = get_engine(name).open_table(in_files(chunks, tmp_path / f"files{place}"))
        assert cases.digest_of_each(own, kernels) == wanted
        assert cases.digest_of_each(files, kernels) == wanted


def test_duckdb_groups_what_it_can(tmp_path):
    """Text and numbers are grouped; zones, dates in text and very many owners are read by row."""
    there = get_engine("duckdb").open_table(in_files([TABLE], tmp_path / "files"))
    by_tier = cases.tables(*OWNERS["tiers"])
    grouped = [there._write_group_query(kernel) is not None for kernel in by_tier]
    assert grouped == [True, False, False, False, True, True, False, False]
    person = GroupLookup("person", np.arange(10**6))
    assert there._write_group_query(cases.tables(person, 1)[0]) is None


def test_duckdb_groups_text_sign_by_sign_whatever_the_connection_compares_by():
    connection = duckdb.connect()
    connection.execute("SET default_collation = 'nocase'")
    connection.execute("CREATE TABLE t (word VARCHAR COLLATE NOCASE)")
    connection.execute("INSERT INTO t VALUES ('north'), ('NORTH'), ('North'), (''), (NULL)")
    cells = make_cells({"word": ["north", "NORTH"]})
    found = open_engine(connection.table("t")).fold(
        CellWeights(cells, GroupLookup(), np.array([1]))
    )
    assert found.tolist() == [1, 1, 1, 2]


def refuses_what_it_must(name: str, folder: Path) -> None:
    """Dates are no numbers, a row without an owner is nobody's, and no message quotes a cell."""
    dates = TABLE.set_column(4, "value", pa.array([datetime(2026, 1, 1)] * len(TABLE)))
    secret = TABLE.set_column(4, "value", pa.array(["secret 17"] * len(TABLE)))
    for wrong in (dates, secret):
        there = OBJECTS[name]([wrong.slice(0, 100), wrong.slice(100)], folder / "wrong")
        with pytest.raises(errors.WrongType) as refusal:
            there.fold(WeightedSum("value", Grid.cover(0, 1, 8), GroupLookup(), np.array([1])))
        assert "17" not in str(refusal.value)
        assert refusal.value.__cause__ is None
        assert refusal.value.__context__ is None
    nobody = TABLE.set_column(1, "name", pa.array([None, *TABLE["name"].to_pylist()[1:]]))
    with pytest.raises(errors.UnknownPeople):
        take_census(
            OBJECTS[name]([nobody.slice(100), nobody.slice(0, 100)], folder / "nobody"),
            epsilon=1.0,
            person="name",
        )


def counts_and_reads_text(name: str, folder: Path) -> None:
    """The census, also of rows alone; and a text file, which is read as Arrow reads it."""
    chunks = cases.parts(TABLE, np.random.default_rng(3), 5)
    assert cases.census(OBJECTS[name](chunks, folder / "counted")) == CENSUS
    told: list[int] = []
    text = folder / "rows.csv"
    pacsv.write_csv(TABLE.set_column(9, "region", TABLE["region"].cast(pa.string())), text)
    there = get_engine(name).open_table(str(text), cases.NUMBERS, told.append)
    asked = WeightedSum(
        "value", Grid.cover(-5.0, 12.7, 32), GroupLookup(), np.array([7]), missing=2.0
    )
    assert there.fold(asked) == open_engine(TABLE).fold(asked)
    assert told[-1] == len(TABLE)
    assert told == sorted(told)


@pytest.mark.parametrize("name", ["arrow", "duckdb"])
def test_people_and_text_and_refusals(name, tmp_path):
    counts_and_reads_text(name, tmp_path)
    refuses_what_it_must(name, tmp_path)


@pytest.mark.cluster
@pytest.mark.xdist_group("dask")
def test_dask_obeys(tmp_path):
    obey("dask", 4, 8, tmp_path)
    counts_and_reads_text("dask", tmp_path)
    refuses_what_it_must("dask", tmp_path)


@pytest.mark.cluster
@pytest.mark.xdist_group("spark")
def test_spark_obeys(tmp_path, monkeypatch):
    cases.spark_or_skip(monkeypatch)
    obey("spark", 3, 5, tmp_path)
    counts_and_reads_text("spark", tmp_path)
    refuses_what_it_must("spark", tmp_path)


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.xdist_group("dask")
def test_dask_obeys_for_long(tmp_path):
    obey("dask", 50, 30, tmp_path)


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.xdist_group("spark")
def test_spark_obeys_for_long(tmp_path, monkeypatch):
    cases.spark_or_skip(monkeypatch)
    obey("spark", 50, 12, tmp_path)


@pytest.mark.parametrize("name", KINDS[:2])
def test_a_text_file_with_every_kind_of_gap(name, tmp_path):
    """Gaps as people write them, blanks around numbers, quoted commas, blank lines, a mark at the
    beginning.
    """
    (tmp_path / "a.csv").write_text(
        '\ufeffvalue,"a ""b"""\n1,x\n\n 2\t,"y, z"\nNA,\n"",NULL\n1e3,n/a\n-inf,""\n'
    )
    kinds = get_engine(name).open_table(str(tmp_path / "a.csv"), ("value",))
    assert dict(kinds.columns()) == {"value": "number", 'a "b"': "text"}
    found = [
        cell for batch in kinds.fold(Kept(("value", 'a "b"'))) for cell in zip(*batch, strict=True)
    ]
    wanted = [
        (1.0, "x"),
        (2.0, "y, z"),
        (None, None),
        (None, None),
        (1000.0, None),
        (-np.inf, None),
    ]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))


@pytest.mark.parametrize("name", KINDS[:2])
def test_a_cell_that_is_no_number_is_refused_without_being_quoted(name, tmp_path):
    (tmp_path / "a.csv").write_text("value,b\n1,x\nsecret,y\n")
    with pytest.raises(errors.InvalidData) as refusal:
        get_engine(name).open_table(str(tmp_path / "a.csv"), ("value",)).fold(Kept(("value",)))
    assert "secret" not in str(refusal.value)
    assert refusal.value.__context__ is None


@dataclass(frozen=True)
class Kept:
    """Brings the cells home."""

    columns: tuple[str, ...]

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        return [[column.to_pylist() for column in batch.columns]]


@pytest.mark.parametrize("name", KINDS)
def test_files_of_one_table_have_the_same_columns(name, tmp_path):
    """Another schema is found in the headers, before anything is read: no worker is needed to say
    so.
    """
    pq.write_table(pa.table({"a": [1.0], "b": ["x"]}), tmp_path / "1.parquet")
    for other in ({"a": [1.0]}, {"a": ["1"], "b": ["x"]}, {"a": [1.0], "b": ["x"], "c": [1]}):
        pq.write_table(pa.table(other), tmp_path / "2.parquet")
        with pytest.raises(errors.InvalidData):
            get_engine(name).open_table(str(tmp_path))
    pq.write_table(
        pa.table({"b": pa.array(["x"]).dictionary_encode(), "a": pa.nulls(1)}),
        tmp_path / "2.parquet",
    )
    assert dict(get_engine(name).open_table(str(tmp_path)).columns()) == {
        "a": "number",
        "b": "text",
    }


@pytest.mark.parametrize("name", ["arrow", "duckdb"])
def test_files_may_differ_in_the_width_of_numbers_and_in_how_text_is_stored(name, tmp_path):
    pq.write_table(
        pa.table({"a": pa.array([1, 2], pa.int16()), "b": ["x", "y"]}), tmp_path / "a[1]*.parquet"
    )
    pq.write_table(
        pa.table({"b": pa.array(["x"]).dictionary_encode(), "a": [0.5]}), tmp_path / "it's.parquet"
    )
    pq.write_table(pa.table({"a": pa.nulls(1), "b": pa.nulls(1)}), tmp_path / "third.parquet")
    found = get_engine(name).open_table(str(tmp_path)).fold(Kept(("a", "b")))
    cells = [cell for batch in found for cell in zip(*batch, strict=True)]
    assert sorted(map(repr, cells)) == sorted(
        map(repr, [(1.0, "x"), (2.0, "y"), (0.5, "x"), (None, None)])
    )


def test_a_batch_arrives_in_types_that_kernels_know():
    whole = pa.array([1, 2, 1]).dictionary_encode()
    halves = pa.array(np.array([1, 2], dtype=np.float16))
    for column, kind in (
        (whole, pa.int64()),
        (halves, pa.float32()),
        (pa.nulls(2), pa.float64()),
        (pa.array(["a"], pa.string_view()), pa.string()),
        (pa.array(["a"]).dictionary_encode(), pa.dictionary(pa.int32(), pa.string())),
    ):
        batch = engine.convert_batch(pa.record_batch([column], names=["a"]))
        assert batch.schema.types == [kind]
        assert batch.column(0).to_pylist() == column.to_pylist()
