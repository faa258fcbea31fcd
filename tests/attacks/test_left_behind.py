"""What is left of uploaded tables when the page ends, however it ends; and what a sweep must not
touch.

On the code before, the table is still in the temporary folder after SIGTERM, SIGHUP, SIGQUIT and
SIGKILL, four of four, and stays there for ever.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attacks.serving import PATIENCE, serving
from sottovoce import private_files
from sottovoce.data.engine import get_engine
from sottovoce.private_files import SCRATCH, Scratch, sweep
from sottovoce.web.uploads import save_table
from sottovoce.web.workspace import Workspace

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and modes are those of POSIX")
linux = pytest.mark.skipif(
    sys.platform != "linux", reason="files without a name are read by a path on Linux alone"
)

SECRET = b"salary-of-ada-41234"
TABLE = b"id,epsilon,word\nada,1," + SECRET + b"\nben,1,x\n"


def holding(folder: Path) -> list[str]:
    """The files below a folder in which the table stands."""
    return [
        str(path) for path in folder.rglob("*") if path.is_file() and SECRET in path.read_bytes()
    ]


@pytest.mark.parametrize(
    "number",
    [
        "SIGTERM",
        "SIGKILL",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("SIGHUP", "SIGQUIT")),
    ],
)
def test_no_signal_leaves_a_table(tmp_path, number):
    with serving(tmp_path, "--no-open") as page:
        mine = page.sign_in()
        page.bring(TABLE, mine)
        page.process.send_signal(getattr(signal, number))
        code = page.process.wait(PATIENCE)
        assert holding(page.temporary) == []
        if number == "SIGKILL":
            # Links to an open file of whoever follows them, which is this process now; no files.
            left = [path for path in page.temporary.rglob("*") if not path.is_dir()]
            assert all(os.readlink(path).startswith("/proc/self/fd/") for path in left)
        else:
            assert code == 128 + getattr(signal, number)
            assert list(page.temporary.iterdir()) == []
            assert "are deleted" in page.until("are deleted")
    if number == "SIGKILL":
        assert len(list(page.temporary.iterdir())) == 1
        with serving(tmp_path, "--no-open") as next_one:
            assert next_one.link
            assert len(list(page.temporary.iterdir())) == 1, (
                "what was left is swept, and there is a new folder"
            )


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@linux
def test_a_table_has_no_name_and_every_reader_in_this_process_reads_it(temporary):
    workspace = Workspace.for_ledger(None)
    table = workspace.tables[save_table(workspace, "t.csv", io.BytesIO(TABLE))]
    assert table.path.is_symlink()
    assert os.stat(table.path).st_nlink == 0
    assert table.path.read_bytes() == TABLE
    assert sum(get_engine("arrow").open_table(str(table.path)).fold(Rows())) == 2
    assert duckdb.connect().execute(
        f"SELECT count(*) FROM read_csv('{table.path}')"
    ).fetchone() == (2,)
    content = io.BytesIO()
    pq.write_table(pa.table({"id": ["a", "b"], "v": [1.0, 2.0]}), content)
    other = workspace.tables[save_table(workspace, "t.parquet", content)]
    assert other.columns == {"id": "text", "v": "number"}, (
        "a process of its own has read it to its end"
    )
    assert sum(get_engine("duckdb").open_table(str(other.path)).fold(Rows())) == 2
    workspace.clear()
    assert list(temporary.iterdir()) == []


class Rows:
    """The kernel that counts rows."""

    columns = ("id",)

    def zero(self):
        return []

    def __call__(self, batch):
        return [len(batch)]


CLOSED = """
import io, os, subprocess, sys, tempfile
import sottovoce.data.engines.arrow
from sottovoce import private_files
from sottovoce.cli.options import close_memory
from sottovoce.web.uploads import save_table
from sottovoce.web.workspace import Workspace

tempfile.tempdir = sys.argv[1]
workspace = Workspace.for_ledger(None)
if os.geteuid() == 0:
    os.chown(workspace.folder, 65534, 65534)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
close_memory()
table = workspace.tables[save_table(workspace, "t.csv", io.BytesIO(b"id,v\\na,1\\n"))]
handle = workspace.scratch.handle(table.path)
by_link = ["cat", str(table.path)]
by_number = ["cat", f"/proc/{os.getpid()}/fd/{handle}"]
handed = subprocess.run(by_link, pass_fds=(handle,), capture_output=True).stdout
both = (by_link, by_number)
strangers = [subprocess.run(command, capture_output=True).stdout for command in both]
owner = os.stat("/proc/self/fd").st_uid
print(os.geteuid() > 0, owner, handle is not None, table.columns, handed, strangers)
"""


@linux
def test_without_root_a_process_with_closed_memory_reads_its_tables_and_no_other_does():
    """Then /proc/self/fd is root's. Whoever is handed the open file can read it, and nobody else of
    the same user.
    """
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # not pytest's, into which nobody but this user may look
        os.chmod(folder, 0o711)
        told = subprocess.run(
            [sys.executable, "-c", CLOSED, folder], capture_output=True, text=True, check=False
        )
    wanted = "True 0 True {'id': 'text', 'v': 'number'} b'id,v\\na,1\\n' [b'', b'']\n"
    assert told.stdout == wanted, told.stderr


@linux
def test_what_is_taken_away_is_gone_and_its_file_is_closed(temporary):
    workspace = Workspace.for_ledger(None)
    name = save_table(workspace, "t.csv", io.BytesIO(TABLE))
    assert soon_open(workspace.folder, 2), "the folder, which is locked, and the table"
    workspace.remove_table(name)
    assert soon_open(workspace.folder, 1)
    workspace.clear()
    assert soon_open(workspace.folder, 0)


def soon_open(folder: Path, count: int) -> bool:
    """Waits until so many files are open there: threads of Arrow close a file some time after they
    have read it.
    """
    until = time.monotonic() + PATIENCE
    while len(open_files(folder)) != count and time.monotonic() < until:
        time.sleep(0.01)
    return len(open_files(folder)) == count


def open_files(folder: Path) -> list[str]:
    """The files of this process that lie in a folder, with a name or without."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # it was open to list this
            continue
    return [link for link in links if link.startswith(str(folder))]


def test_where_a_file_needs_a_name_it_has_one_and_is_swept(temporary, monkeypatch):
    monkeypatch.setattr(private_files, "OPEN_FILES", temporary / "nowhere")
    scratch = Scratch.made()
    with scratch.open_new("t.csv") as file:
        file.write(TABLE)
    path = scratch.path / "t.csv"
    assert (path.stat().st_nlink, path.stat().st_mode & 0o777) == (1, 0o600)
    assert sweep() == 0, "its owner lives"
    os.close(scratch.lock)
    scratch.lock = None  # as if the process had ended
    assert sweep() == 1
    assert list(temporary.iterdir()) == []


def test_a_sweep_touches_nothing_of_those_who_live_or_are_somebody_else(temporary, monkeypatch):
    code = f"""
import sys, tempfile
tempfile.tempdir = {str(temporary)!r}
from sottovoce.private_files import Scratch
scratch = Scratch.made()
print(scratch.path, flush=True)
sys.stdin.read()
"""
    precious = temporary.parent / "precious"
    precious.mkdir(mode=0o700)
    (precious / "file").write_text("mine")
    wide = temporary / f"{SCRATCH}wide"
    wide.mkdir(mode=0o700)
    wide.chmod(0o755)
    (temporary / f"{SCRATCH}link").symlink_to(precious)
    (temporary / f"{SCRATCH}file").write_text("a file")
    (temporary / "sottovoce-abcdefgh").mkdir(mode=0o700)
    dead = temporary / f"{SCRATCH}dead"
    dead.mkdir(mode=0o700)
    (dead / "out").symlink_to(precious)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        lives = Path(owner.stdout.readline().strip())
        others = {lives.name, wide.name, f"{SCRATCH}link", f"{SCRATCH}file", "sottovoce-abcdefgh"}
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(os, "geteuid", lambda: 424242)
            assert sweep() == 0, "not ours"
        assert sweep() == 1
        assert {path.name for path in temporary.iterdir()} == others
        owner.kill()
    assert sweep() == 1
    assert not lives.exists()
    assert (precious / "file").read_text() == "mine"


def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(temporary, monkeypatch):
    locked = private_files._lock
    first = []

    def too_late(path, *, wait):
        if wait and not first:
            first.append(path)
            handle = locked(path, wait=wait)
            path.rmdir()
            return handle
        return locked(path, wait=wait)

    monkeypatch.setattr(private_files, "_lock", too_late)
    scratch = Scratch.made()
    assert scratch.path.is_dir()
    assert scratch.path != first[0]
    scratch.remove()
