"""Tables from outside: what is kept of a good one, and 500 hostile ones, in a process of their own
whose memory is measured: none is kept that should not be, none lies outside the private folder, and
memory stays below 512 MB.
"""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sottovoce.errors import InvalidData, InvalidParameter
from sottovoce.web import guard
from sottovoce.web import uploads as uploads_module
from sottovoce.web import workspace as workspace_module
from sottovoce.web.uploads import clean_name, save_table

#: Bytes of memory that the server and the processes it starts may take at most, each.
MEMORY = 512 * 2**20
#: The limit of a table in the hostile run: small, so that one byte over it is sent quickly.
SMALL = 4 * 2**20
GOOD = b"id,epsilon,v\na,1,2\nb,2,3\n"


def kept(workspace, content: bytes, name: str = "t.csv"):
    return workspace.tables[save_table(workspace, name, io.BytesIO(content))]


def parquet(**columns) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def test_a_table_is_kept_privately_under_a_random_name(workspace):
    table = kept(workspace, GOOD, "C:\\people\\salaries.csv")
    assert table.name == "salaries.csv"
    assert table.columns == {"id": "text", "epsilon": "number", "v": "number"}
    assert table.path.read_bytes() == GOOD
    assert table.path.parent == workspace.folder
    assert "salaries" not in table.path.name
    assert stat.S_IMODE(table.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(workspace.folder.stat().st_mode) == 0o700
    assert kept(workspace, parquet(id=["a", "b"], v=[1.5, 2.0]), "t.parquet").columns == {
        "id": "text",
        "v": "number",
    }
    workspace.clear()
    assert not workspace.folder.exists()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("delimiter", [b",", b";", b"\t"])
def test_the_header_says_how_a_table_is_written(workspace, delimiter, end):
    """And a text or True/False column beside the numbers is no reason to refuse it."""
    lines = GOOD.replace(b"\n", b",True,Bern\n").replace(b"v,True,Bern", b"v,smoker,town", 1)
    table = kept(workspace, lines.replace(b",", delimiter).replace(b"\n", end))
    assert table.columns == {
        "id": "text",
        "epsilon": "number",
        "v": "number",
        "smoker": "text",
        "town": "text",
    }


def test_lines_and_columns_have_limits(workspace, monkeypatch):
    monkeypatch.setattr(uploads_module, "LONGEST_LINE", 100)
    monkeypatch.setattr(uploads_module, "PIECE", 64)
    assert kept(workspace, b"a,b\n" + b"1" * 98 + b",2\n" * 3)
    for content in (
        b"a,b\n" + b"1" * 101,
        b"a" * 101 + b"\n1\n",
        b"a,b\n" + b"1,2\n" * 100 + b"x" * 200 + b"\n1,2\n",
    ):
        with pytest.raises(InvalidData):
            kept(workspace, content)
    monkeypatch.undo()
    most = uploads_module.MOST_COLUMNS
    assert (
        len(kept(workspace, ",".join(f"c{i}" for i in range(most)).encode() + b"\n").columns)
        == most
    )
    with pytest.raises(InvalidData):
        kept(workspace, ",".join(f"c{i}" for i in range(most + 1)).encode() + b"\n")
    with pytest.raises(InvalidData):
        kept(workspace, parquet(**{f"c{i}": [1] for i in range(most + 1)}), "t.parquet")


def test_the_desk_has_a_limit_and_nothing_refused_is_left(workspace, monkeypatch):
    monkeypatch.setattr(workspace_module, "MAX_TABLES", 2)
    first = [kept(workspace, GOOD) for _ in range(2)]
    with pytest.raises(InvalidParameter, match="full"):
        kept(workspace, GOOD)
    with pytest.raises(InvalidData):
        kept(workspace, b"\x00")
    assert {path.name for path in workspace.folder.iterdir()} == {
        table.path.name for table in first
    }
    workspace.remove_table(next(iter(workspace.tables)))
    assert kept(workspace, GOOD)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("a\0b\r\nSet-Cookie: x", "abSet-Cookie: x"),
        ("", "table"),
        ("..", ".."),
        ("x" * 1000, "x" * 80),
        ("\u202eexe.csv", "exe.csv"),
    ],
)
def test_a_name_is_shown_without_folders_and_signs_that_steer(name, shown):
    assert clean_name(name) == shown


def bombs(folder: Path) -> None:
    """Parquet files of a few hundred kilobytes that unfold to gigabytes, and some that are
    broken.
    """
    one = pa.array(["x" * 1_000_000])
    many = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, dtype=np.int32)), one)
    pq.write_table(
        pa.table({"a": many}), folder / "words.parquet", compression="zstd", store_schema=False
    )
    pq.write_table(pa.table({"a": many}), folder / "listed.parquet", compression="zstd")
    zeros = pa.table({"a": pa.array(np.zeros(2**26, dtype=np.int64))})
    with pq.ParquetWriter(
        folder / "page.parquet",
        zeros.schema,
        compression="zstd",
        use_dictionary=False,
        data_page_size=2**30,
    ) as page:
        page.write_table(zeros, row_group_size=2**26)
    good = parquet(id=["a", "b"], v=[1.5, 2.0])
    (folder / "cut.parquet").write_bytes(good[:-20] + good[-8:])
    (folder / "claims.parquet").write_bytes(
        b"PAR1" + os.urandom(500) + (400).to_bytes(4, "little") + b"PAR1"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited and measured as on Linux")
def test_500_hostile_uploads(tmp_path):
    bombs(tmp_path)
    command = [
        sys.executable,
        str(Path(__file__).with_name("hostile.py")),
        str(tmp_path),
        str(SMALL),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    told = json.loads(run.stdout)
    answers = told["answers"]
    assert sum(sum(counts.values()) for counts in answers.values()) >= 500
    assert answers["good"] == {"201": 48}
    assert set(answers["magic"]) == set(answers["broken"]) == {"422"}
    assert answers["over"] == {"413": 20}
    assert set(answers["form"]) <= {"201", "400", "413", "422"}
    assert answers["bomb"] == {"422": 5}
    assert told["strays"] == []
    assert told["left"] == 0
    assert max(told["memory"]) < MEMORY


def test_one_byte_over_the_limit_is_refused_and_the_limit_itself_is_not(client, monkeypatch):
    head = b'--x\r\nContent-Disposition: form-data; name="table"; filename="t"\r\n\r\n'
    foot = b"\r\n--x--\r\n"
    monkeypatch.setattr(guard, "MOST_UPLOAD", 10_000)
    for more, status in ((0, 201), (1, 413)):
        body = head + GOOD + b"\n" * (10_000 + more - len(head) - len(GOOD) - len(foot)) + foot
        answer = client.post(
            "/api/tables", content=body, headers={"content-type": "multipart/form-data; boundary=x"}
        )
        assert answer.status_code == status
