"""Faults that engines must survive, or name: killed workers, files that go, gaps; and what the
books say afterwards.

A worker that is killed in the middle changes nothing: the same whole numbers, one charge, one draw
of noise. What cannot be read before the charge costs nothing; what cannot be read after it stays
spent, whatever the reason was.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import engine_cases as cases
import sottovoce as sv
from seams import Silent
from sottovoce import errors
from sottovoce.data.census import take_census
from sottovoce.data.engine import Dataset, get_engine
from sottovoce.data.kernels import WeightedSum
from sottovoce.noise import source

MEAN = sv.Mean(bounds=(-5, 12.7), missing=1.5)
STRICT = sv.Mean(bounds=(-5, 12.7))
PARTS = 4
TABLE = cases.rows()
#: Somebody who is in the table.
SOMEBODY = "p07"


def files(folder: Path, table: pa.Table = TABLE) -> Path:
    folder.mkdir()
    for place in range(PARTS):
        pq.write_table(table.slice(place * 100, 100), folder / f"{place}.parquet")
    return folder


@dataclass(frozen=True, eq=False)
class Staged:
    """An engine that does something to the table, or to the kernel, when the answer is about to be
    read.
    """

    inner: Any
    stage: Callable[[Any], Any]

    def columns(self) -> Any:
        return self.inner.columns()

    def fold(self, kernel: Any) -> Any:
        return self.inner.fold(self.stage(kernel) if isinstance(kernel, WeightedSum) else kernel)


def asked(session: Any, question: Any, engine: Any, key: str) -> Any:
    budgets, owner = take_census(engine, epsilon=0.25, person="name")
    return session.release_rows(question, budgets, Dataset(engine, "value", owner), key)


def granted() -> Any:
    session = sv.Session()
    session.grant(dict.fromkeys(sorted(set(TABLE["name"].to_pylist())), 1.0))
    return session


def charges(session: Any) -> int:
    """How many lines were written about somebody besides the grant."""
    return len(session.history(SOMEBODY)) - 1


def kill_when_told(folder: Path) -> threading.Thread:
    def wait() -> None:
        until = time.monotonic() + 300
        while not (folder / "pid").exists() and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(int((folder / "pid").read_text()), signal.SIGKILL)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def survives_a_kill(name: str, table: Path, folder: Path) -> None:
    """Strikes the worker that reads for the answer; the release is the one that nobody's death
    disturbed.
    """
    folder.mkdir()
    session = granted()
    seam = Silent()
    staged = Staged(
        get_engine(name).open_table(str(table)), lambda kernel: cases.Struck(kernel, str(folder))
    )
    killer = kill_when_told(folder)
    with source._seam(seam):
        release = asked(session, MEAN, staged, "one")
        killer.join()
        undisturbed = asked(granted(), MEAN, get_engine("arrow").open_table(str(table)), "one")
        assert release.value == undisturbed.value
        assert len(seam.scales) == 2  # one draw for each of the two releases
        assert asked(session, MEAN, get_engine("arrow").open_table(str(table)), "one") == release
    assert len(seam.scales) == 2
    assert session.balance(SOMEBODY) == left_after_one_charge()
    session.verify(release)


def left_after_one_charge() -> float:
    """What is left of a grant of 1 after one charge of everybody's 0.25, as it was rounded."""
    session = granted()
    with source._seam(Silent()):
        session.release(MEAN, TABLE["value"], groups=TABLE["name"], epsilon=0.25, key="one")
    return float(session.balance(SOMEBODY))


def names_a_vanished_file(name: str, folder: Path) -> None:
    """Gone before the charge: nobody pays. Gone after it: the charge stays, and the key is
    spent.
    """
    session = granted()
    table = files(folder)
    engine = get_engine(name).open_table(str(table))
    budgets, owner = take_census(engine, epsilon=0.25, person="name")
    (table / "2.parquet").unlink()
    with pytest.raises(errors.InvalidData) as refusal:
        session.release_rows(MEAN, budgets, Dataset(engine, "value", owner), "one")
    assert refusal.value.__context__ is None
    assert charges(session) == 0

    shutil.rmtree(table)
    files(table)

    def gone(kernel: Any) -> Any:
        (table / "2.parquet").unlink()
        return kernel

    staged = Staged(get_engine(name).open_table(str(table)), gone)
    with pytest.raises(errors.ReleaseFailed):
        session.release_rows(MEAN, budgets, Dataset(staged, "value", owner), "two")
    assert session.balance(SOMEBODY) == left_after_one_charge()
    shutil.rmtree(table)
    back = get_engine(name).open_table(str(files(table)))
    with pytest.raises(errors.ReleaseFailed):  # the file is back, and the key stays spent
        session.release_rows(MEAN, budgets, Dataset(back, "value", owner), "two")
    session.verify()


def refuses_gaps(name: str, folder: Path) -> None:
    """Nulls where no constant stands for them are refused before anybody is charged."""
    session = granted()
    with pytest.raises(errors.MissingValues):
        asked(session, STRICT, get_engine(name).open_table(str(files(folder))), "one")
    assert charges(session) == 0


def names_faults(name: str, folder: Path) -> None:
    names_a_vanished_file(name, folder / "vanishing")
    refuses_gaps(name, folder / "gaps")


@pytest.mark.parametrize("name", ["arrow", "duckdb"])
def test_files_that_go_and_gaps_are_named(name, tmp_path):
    names_faults(name, tmp_path)


@pytest.mark.cluster
@pytest.mark.xdist_group("dask")
def test_dask_survives_and_names_faults(tmp_path):
    survives_a_kill("dask", files(tmp_path / "table"), tmp_path / "struck")
    names_faults("dask", tmp_path)


@pytest.mark.cluster
@pytest.mark.xdist_group("spark")
def test_spark_survives_and_names_faults(tmp_path, monkeypatch):
    cases.spark_or_skip(monkeypatch)
    survives_a_kill("spark", files(tmp_path / "table"), tmp_path / "struck")
    refuses_gaps("spark", tmp_path / "gaps")


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.xdist_group("dask")
def test_dask_survives_twenty_of_twenty(tmp_path):
    table = files(tmp_path / "table")
    for turn in range(20):
        survives_a_kill("dask", table, tmp_path / f"struck {turn}")


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.xdist_group("spark")
def test_spark_survives_twenty_of_twenty(tmp_path, monkeypatch):
    cases.spark_or_skip(monkeypatch)
    table = files(tmp_path / "table")
    names_faults("spark", tmp_path)
    for turn in range(20):
        survives_a_kill("spark", table, tmp_path / f"struck {turn}")


def test_a_share_that_fails_brings_home_a_sentence_and_nothing_else():
    """Whatever a kernel raises on a worker, neither its text nor its traceback travels."""
    from sottovoce.data.engine import PartialResult, fold_partition

    class Broken:
        columns = ("value",)

        def zero(self) -> int:
            return 0

        def __call__(self, batch: Any) -> int:
            raise LookupError(f"the secret is {batch.column(0)[0]}")

    told = fold_partition(Broken(), [pa.record_batch([pa.array([17.0])], names=["value"])])
    whole = PartialResult(3, 5) + told
    for folded in (told, whole):
        with pytest.raises(errors.WrongType) as refusal:
            folded.whole()
        assert "17" not in repr(refusal.value)
        assert refusal.value.__context__ is None
        assert refusal.value.__cause__ is None
    assert (PartialResult(3, 5) + PartialResult(2, 7)).whole() == 12


def test_spark_without_java_says_what_to_do(monkeypatch):
    pytest.importorskip("pyspark")
    from sottovoce.data.engines import spark

    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(spark.SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(errors.InvalidParameter) as refusal:
        spark._get_session()
    assert "Java" in refusal.value.required
    assert refusal.value.remedy
