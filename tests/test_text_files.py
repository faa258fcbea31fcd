"""Text files as people write them: every engine sees the same rows, and rows never decide how a
file is read.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce import errors
from sottovoce.cli.main import app
from sottovoce.data.census import take_census
from sottovoce.data.engine import DEFAULT_TEXT_FORMAT, TextFormat, get_default_engine, get_engine
from sottovoce.data.engines import arrow
from sottovoce.noise import source

ENDS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}
ends_of_lines = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
#: Arrow and DuckDB read a file whole; workers of Dask and of Spark read it by pieces.
readers = pytest.mark.parametrize("reader", ["arrow", "duckdb", "pieces"])


@dataclass(frozen=True)
class Cells:
    """Brings the cells home."""

    columns: tuple[str, ...]

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def cells(reader, path, columns, numbers, text=DEFAULT_TEXT_FORMAT):
    kernel = Cells(columns)
    if reader != "pieces":
        return get_engine(reader).open_table(str(path), numbers, text=text).fold(kernel)
    found = arrow.split_dataset(arrow.open_dataset(str(path), numbers, text))
    return [row for piece in found for batch in piece.batches(columns) for row in kernel(batch)]


BLANKS = {
    "inside": (b"y\n1\n\n3\n", [1.0, None, 3.0]),
    "first": (b"y\n\n2\n3\n", [None, 2.0, 3.0]),
    "last": (b"y\n1\n2\n\n", [1.0, 2.0, None]),
    "several": (b"y\n1\n\n\n\n5\n", [1.0, None, None, None, 5.0]),
    "without an end of line": (b"y\n1\n\n3", [1.0, None, 3.0]),
    "none": (b"y\n1\n2\n", [1.0, 2.0]),
    "quoted": (b'y\n1\n""\n3\n', [1.0, None, 3.0]),
}


@readers
@ends_of_lines
@pytest.mark.parametrize(("content", "wanted"), BLANKS.values(), ids=BLANKS.keys())
def test_a_blank_value_of_the_only_column_is_a_row(reader, end, content, wanted, tmp_path):
    (tmp_path / "a.csv").write_bytes(content.replace(b"\n", end))
    found = cells(reader, tmp_path / "a.csv", ("y",), ("y",))
    assert sorted(map(repr, found)) == sorted(repr((value,)) for value in wanted)


@pytest.mark.parametrize("engine", ["arrow", "duckdb"])
@pytest.mark.parametrize("blank", [b"", b"7"])
def test_how_many_rows_there_are_does_not_depend_on_a_value(engine, blank, tmp_path):
    (tmp_path / "a.csv").write_bytes(b"y\n" + b"3\n" * 9 + blank + b"\n")
    budgets, _ = take_census(
        get_engine(engine).open_table(str(tmp_path / "a.csv"), ("y",)), epsilon=1.0
    )
    assert budgets.n_rows == 10


def test_a_dataset_that_leaves_blank_lines_out_is_refused(tmp_path):
    """Arrow's own default: three of four rows were counted, and said to be all."""
    file = tmp_path / "a.csv"
    file.write_bytes(b"y\n3\n\n4\n5\n")
    mean = sv.Mean(bounds=(0, 10), missing=5.0)
    as_is = ds.dataset(file, format="csv")
    for table in (as_is, ds.dataset([as_is, as_is])):
        with pytest.raises(errors.InvalidData, match="blank lines"):
            mean.fit(table, epsilon=1.0)
    all_lines = ds.CsvFileFormat(parse_options=csv.ParseOptions(ignore_empty_lines=False))
    assert (
        mean.fit(ds.dataset(file, format=all_lines), epsilon=1.0).release_.guarantee["people"] == 4
    )


def test_blank_lines_are_counted_alike_in_blocks_of_any_size(tmp_path, monkeypatch):
    """The end of a line may fall between two blocks of the reader."""
    rng = np.random.default_rng()
    values = [b"", b"4", b"55", b"6666"]
    usual = arrow.pacsv.ReadOptions
    for end in ENDS.values():
        rows = [values[k] for k in rng.integers(0, 4, 300)]
        (tmp_path / "a.csv").write_bytes(end.join([b"y", *rows]) + end)
        for size in range(16, 40):
            with monkeypatch.context() as patch:
                patch.setattr(
                    arrow.pacsv,
                    "ReadOptions",
                    lambda size=size, **said: usual(block_size=size, **said),
                )
                found = cells("arrow", tmp_path / "a.csv", ("y",), ("y",))
            assert [value for (value,) in found] == [float(row) if row else None for row in rows]


@readers
@ends_of_lines
def test_a_blank_line_among_several_columns_is_no_row(reader, end, tmp_path):
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,2\n\n,\n3,4\n\n".replace(b"\n", end))
    found = cells(reader, tmp_path / "a.csv", ("x", "y"), ("x", "y"))
    assert sorted(map(repr, found)) == sorted(map(repr, [(1.0, 2.0), (None, None), (3.0, 4.0)]))


@readers
def test_a_line_may_end_inside_quotes_wherever_a_block_of_the_reader_ends(reader, tmp_path):
    rows = [("a\n" * (k % 5), float(k)) for k in range(200_000)]
    lines = "".join(f'"{text}",{number}\n' for text, number in rows)
    (tmp_path / "a.csv").write_text("x,y\n" + lines)
    assert len(lines) > 2**20  # more than a block
    found = cells(reader, tmp_path / "a.csv", ("y",), ("y",))
    assert sorted(found) == [(number,) for _, number in rows]


ROWS = [("zoë", 1.5), ("ben", None), ("zoë", 2.25)]


def written(delimiter=",", encoding="utf-8", decimal=".", head="näme"):
    lines = [
        [head, "y"],
        *([who, "" if y is None else str(y).replace(".", decimal)] for who, y in ROWS),
    ]
    return "".join(delimiter.join(line) + "\n" for line in lines).encode(encoding)


WRITTEN = {
    "commas": ("a.csv", written(), {}),
    "a mark": ("a.csv", written(encoding="utf-8-sig"), {}),
    "semicolons": ("a.csv", written(";"), {}),
    "tabs": ("a.csv", written("\t"), {}),
    "bars": ("a.csv", written("|"), {}),
    "tabs, as they are named": ("a.tsv", written("\t"), {}),
    "packed": ("a.csv.gz", gzip.compress(written(";")), {}),
    "UTF-16": ("a.csv", written("\t", "utf-16"), {}),
    "latin-1": ("a.csv", written(";", "latin-1"), {"encoding": "latin-1"}),
    "decimal commas": ("a.csv", written(";", decimal=","), {"decimal": ","}),
    "all at once": (
        "a.csv",
        written("|", "cp1252", ","),
        {"delimiter": "|", "encoding": "cp1252", "decimal": ","},
    ),
}


@readers
@pytest.mark.parametrize(("name", "content", "said"), WRITTEN.values(), ids=WRITTEN.keys())
def test_every_engine_reads_files_as_they_are_written(reader, name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    found = cells(reader, tmp_path / name, ("näme", "y"), ("y",), TextFormat(**said))
    assert sorted(map(repr, found)) == sorted(map(repr, ROWS))


@pytest.mark.parametrize("engine", ["arrow", "duckdb"])
def test_text_that_nobody_asks_about_is_not_read(engine, tmp_path):
    """Neither its encoding nor its kind matters: the header is plain, and the columns asked about
    are numbers.
    """
    (tmp_path / "a.csv").write_bytes(
        "who,town,smoker,y\n1,Zürich,True,2\n2,,maybe,3\n".encode("latin-1")
    )
    found = cells(engine, tmp_path / "a.csv", ("who", "y"), ("y",))
    assert sorted(found) == [("1", 2.0), ("2", 3.0)]
    with pytest.raises(errors.WrongType, match="encoding"):
        cells(engine, tmp_path / "a.csv", ("town",), ())


REFUSED = {
    "latin-1 in the header": (written(";", "latin-1"), "encoding"),
    "two kinds of delimiters": (b"x;a,y\n1;2,3\n", "delimiter"),
    "a name twice": (b"x;x\n1;2\n", "twice"),
    "nothing": (b"", "header"),
    "packed, and not named so": (gzip.compress(written()), "compressed"),
}


@pytest.mark.parametrize(("content", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_a_header_that_does_not_tell_is_refused_with_the_option_to_use(content, said, tmp_path):
    (tmp_path / "a.csv").write_bytes(content)
    for engine in ("arrow", "duckdb"):
        with pytest.raises(errors.InvalidData, match=said) as caught:
            get_engine(engine).open_table(str(tmp_path / "a.csv"))
        assert caught.value.__context__ is None


@pytest.mark.parametrize("engine", ["arrow", "duckdb"])
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv.gz", written(), "not compressed"),
        ("a.csv.gz", gzip.compress(written())[:-20], "cut short"),
        ("a.CSV.GZ", gzip.compress(written()), ".csv.gz"),
    ],
    ids=["not packed", "cut", "large letters"],
)
def test_packed_files_that_are_not_what_they_are_called_are_refused(
    engine, name, content, said, tmp_path
):
    """In large letters DuckDB ended in an error of a codec, and Arrow said that a cell is of
    another kind.
    """
    (tmp_path / name).write_bytes(content)
    with pytest.raises(errors.InvalidData, match=said):
        cells(engine, tmp_path / name, ("y",), ("y",))


@pytest.mark.parametrize("engine", ["arrow", "duckdb"])
def test_decimal_commas_are_refused_with_the_option_to_use_and_never_guessed(engine, tmp_path):
    (tmp_path / "a.csv").write_bytes(written(";", decimal=","))
    with pytest.raises(errors.WrongType, match="decimal sign") as caught:
        cells(engine, tmp_path / "a.csv", ("y",), ("y",))
    assert "1,5" not in str(caught.value)
    (tmp_path / "a.csv").write_bytes(written(";"))
    with pytest.raises(errors.WrongType):
        cells(engine, tmp_path / "a.csv", ("y",), ("y",), TextFormat(decimal=","))
    (tmp_path / "a.csv").write_bytes(written())
    with pytest.raises(errors.InvalidData, match="comma"):
        get_engine(engine).open_table(str(tmp_path / "a.csv"), text=TextFormat(decimal=","))


def test_rows_do_not_decide_how_a_file_is_read(tmp_path):
    """The same header with any rows below it gives the same columns, delimiter and encoding."""
    told = set()
    for rows in (b"1;2\n", "ö,ö,ö,ö\n".encode("latin-1"), b"\xff\xfe\0;\n", b'"', b"a\tb\tc\n" * 9):
        (tmp_path / "a.csv").write_bytes(b"x;y\n" + rows)
        names, text = arrow.read_header(str(tmp_path / "a.csv"))
        told.add((*names, text))
    assert told == {("x", "y", TextFormat(";", "utf-8"))}


@pytest.mark.parametrize(
    "said",
    [
        {"delimiter": "ab"},
        {"delimiter": ""},
        {"delimiter": "\n"},
        {"delimiter": ","} | {"decimal": ","},
        {"decimal": "x"},
        {"encoding": "runes"},
        {"encoding": "base64"},
        {"encoding": "a\0b"},
    ],
)
def test_what_cannot_be_meant_is_refused(said):
    with pytest.raises(errors.InvalidParameter):
        TextFormat(**said)


def test_true_and_false_in_a_text_file_are_drafted_as_text(tmp_path):
    """So a drafted schema does not ask for the range of a column that cannot be read as numbers."""
    (tmp_path / "a.csv").write_text("y,smoker,empty\n1,True,\n2,False,\n")
    kinds = dict(get_default_engine().infer_kinds(str(tmp_path / "a.csv")))
    assert kinds == {"y": "number", "smoker": "text", "empty": "text"}


@pytest.mark.parametrize("engine", ["arrow", "duckdb"])
def test_the_command_line_takes_the_options(engine, tmp_path):
    table = "id;epsilon;y;town\n" + "".join(f"é{k % 5};0,5;{k},5;Zürich\n" for k in range(20))
    (tmp_path / "a.csv").write_bytes(table.encode("latin-1"))
    ask = [
        "release",
        "mean",
        str(tmp_path / "a.csv"),
        "--column",
        "y",
        "--bounds",
        "0",
        "20",
        "--engine",
        engine,
    ]
    ask += [
        "--person-column",
        "id",
        "--budget-column",
        "epsilon",
        "--out",
        str(tmp_path / "r.json"),
    ]
    refused = CliRunner().invoke(app, ask)
    assert refused.exit_code == 2
    assert "--encoding" in refused.stderr
    assert "--decimal" in refused.stderr
    made = CliRunner().invoke(app, [*ask, "--decimal", ",", "--encoding", "latin-1"])
    assert made.exit_code == 0, made.stderr
    assert sv.Release.load(tmp_path / "r.json").guarantee["people"] == 5


class Nothing:
    """A seam that fails the test if anything is drawn."""

    def bytes(self, count):
        raise AssertionError("randomness was drawn for a refused request")

    def integers(self, law, scale, size):
        raise AssertionError("noise was drawn for a refused request")


def test_a_text_column_among_the_features_is_refused_before_anything_is_drawn(tmp_path):
    (tmp_path / "a.csv").write_text(
        "id,epsilon,x,town,y\n" + "".join(f"{k},1,0.5,Bern,0.5\n" for k in range(9))
    )
    bounds = sv.Bounds(features=(0, 1), label=(0, 1))
    with (
        source._seam(Nothing()),
        pytest.raises(errors.WrongType, match="every other column is a feature"),
    ):
        sv.Ridge(bounds=bounds).fit(tmp_path / "a.csv", "y", epsilon="epsilon", groups="id")
