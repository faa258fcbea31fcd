# SPDX-License-Identifier: Apache-2.0
"""Tables from outside: CSV and Parquet, looked at piece by piece, and added to the workspace only
if they can do no harm.

Nothing here holds a whole file in memory. A CSV file is text with a header, and its lines are
short. A Parquet file may unfold to any size, so it is first read to its end by a process of its
own, column by column as the engine would read it, under a limit of memory and of time. The name
that came with a file is shown and used for nothing else.

    python -m sottovoce.web.uploads FILE     what that process is
"""

from __future__ import annotations

import codecs
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sottovoce.errors import InvalidData
from sottovoce.web.workspace import UploadedTable, Workspace

#: Bytes that are read at once.
PIECE = 2**18
#: Bytes of the longest line of a CSV file, and of its header.
LONGEST_LINE = 2**20
#: Columns of a table, and letters of a column's name.
MOST_COLUMNS = 1000
LONGEST_NAME = 200
#: Rows of a Parquet file, which a few bytes can claim.
MOST_ROWS = 10**9
#: Bytes of memory and seconds of work that a Parquet file may cost the process that tries it.
MEMORY = 384 * 2**20
SECONDS = 60
#: How a Parquet file begins and ends; before the end stands the length of its description, in four
#: bytes.
PARQUET = b"PAR1"
MOST_DESCRIPTION = 16 * 2**20
#: How names in the environment begin that say where the books are and how they are opened.
OURS = ("SOTTOVOCE_", "PG")
#: Letters of a file's name that are shown.
MAX_NAME_SHOWN = 80


def save_table(workspace: Workspace, name: str, source: BinaryIO) -> str:
    """Copies a table to the workspace's folder, looks at it, and returns the random name under
    which it lies there.
    """
    held = secrets.token_urlsafe(16)  # a name, not noise: no answer depends on it
    if _read_start(source) == PARQUET:
        ending = ".parquet"
    else:
        ending = ".csv"
    path = workspace.folder / f"{held}{ending}"
    try:
        with workspace.scratch.open_new(path.name) as file:
            if ending == ".parquet":
                copied = _copy_parquet
            else:
                copied = _copy_csv
            copied(source, file)
        if ending == ".parquet":
            columns = _columns_of_parquet(workspace, path)
        else:
            columns = _read_kinds(path)
        workspace.add_table(held, UploadedTable(clean_name(name), path, columns))
    finally:
        if held not in workspace.tables:
            workspace.scratch.delete(path)
    return held


def clean_name(name: str) -> str:
    """Returns a file's own name to be shown: no folder, no control characters, not too long."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(sign for sign in last if sign.isprintable())[-MAX_NAME_SHOWN:].strip() or "table"


def _read_start(source: BinaryIO) -> bytes:
    source.seek(0)
    first = source.read(len(PARQUET))
    source.seek(0)
    return first


def _iterate_pieces(source: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: source.read(PIECE), b"")


def _copy_csv(source: BinaryIO, file: BinaryIO) -> None:
    """Copies text with short lines."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    since = 0
    for piece in _iterate_pieces(source):
        since = _measure_lines(piece, since)
        if b"\0" in piece or since > LONGEST_LINE or not _can_decode(decoder, piece):
            raise _unusable_table_error()
        file.write(piece)
    if not _can_decode(decoder, b"", final=True):
        raise _unusable_table_error()


def _measure_lines(piece: bytes, since: int) -> int:
    """Returns the bytes since the last end of a line, or of the longest line if one in this piece
    is too long.
    """
    lines = piece.replace(b"\r", b"\n").split(b"\n")
    lengths = [since + len(lines[0]), *map(len, lines[1:])]
    if max(lengths) > LONGEST_LINE:
        return max(lengths)
    return lengths[-1]


def _can_decode(decoder: Any, piece: bytes, *, final: bool = False) -> bool:
    try:
        decoder.decode(piece, final)
    except UnicodeDecodeError:
        return False
    return True


def _read_kinds(path: Path) -> dict[str, str]:
    from sottovoce.data.engine import get_default_engine
    from sottovoce.data.engines.arrow import read_header

    _refuse_names(read_header(str(path))[0])
    return dict(get_default_engine().infer_kinds(str(path)))


def _refuse_names(names: list[str]) -> None:
    usable = all(0 < len(name) <= LONGEST_NAME and name.isprintable() for name in names)
    if not 0 < len(names) <= MOST_COLUMNS or not usable:
        raise InvalidData(
            "The table has no header that can be used.",
            f"It names 1 to {MOST_COLUMNS} columns, each with 1 to {LONGEST_NAME} letters, "
            "digits or signs.",
            "Give every column one name, and leave out columns that no question needs.",
            parameter="table",
        )


def _copy_parquet(source: BinaryIO, file: BinaryIO) -> None:
    for piece in _iterate_pieces(source):
        file.write(piece)


def _columns_of_parquet(workspace: Workspace, path: Path) -> dict[str, str]:
    if _ends_as_parquet(path):
        columns = _read_in_process(path, workspace.scratch.handle(path))
    else:
        columns = None
    if columns is None:
        raise _unusable_table_error()
    _refuse_names(list(columns))
    return columns


def _ends_as_parquet(path: Path) -> bool:
    """Whether the file ends as Parquet does, which most others do not: no process is needed to
    refuse these.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        file.seek(max(size - 8, 0))
        length = file.read(4)
        mark = file.read(4)
    return mark == PARQUET and 0 < int.from_bytes(length, "little") <= min(
        MOST_DESCRIPTION, size - 12
    )


def _read_in_process(path: Path, handle: int | None) -> dict[str, str] | None:
    """Lets a process of its own read the file to its end, and returns the columns, if it came back.

    A file without a name is handed over open, under the same number, so that the same link leads to
    it there.
    """
    command = [sys.executable, "-I", "-m", "sottovoce.web.uploads", str(path)]
    # What is in the environment may be the password of the books, which this process does not need.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    environment |= {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
    if handle is None:
        handed: tuple[int, ...] = ()
    else:
        handed = (handle,)
    try:
        child = subprocess.run(
            command,
            capture_output=True,
            timeout=SECONDS,
            env=environment,
            pass_fds=handed,
            check=False,
        )
        if child.returncode == 0:
            answer = json.loads(child.stdout)
        else:
            answer = None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if isinstance(answer, dict):
        return answer
    return None


def _unusable_table_error() -> InvalidData:
    return InvalidData(
        "This is neither a CSV nor a Parquet file that can be used.",
        f"CSV is UTF-8 text with a header and lines of at most {LONGEST_LINE:,} bytes; Parquet is "
        "whole, not encrypted, and no larger unfolded than it can be read in pieces.",
        "Save the table again as one of the two.",
        parameter="table",
    )


@dataclass(frozen=True)
class _ColumnReader:
    """The kernel that reads one column, unfolds it where values are listed once, and keeps nothing
    of it.
    """

    columns: tuple[str, ...]

    def zero(self) -> int:
        return 0

    def __call__(self, batch: Any) -> int:
        column = batch.column(0)
        return len(column.dictionary_decode() if hasattr(column, "dictionary_decode") else column)


def _read_to_its_end(path: str) -> dict[str, str]:
    import pyarrow.parquet as pq

    from sottovoce.data.engine import get_default_engine

    with pq.ParquetFile(path) as file:
        claimed = file.metadata
        if claimed.num_rows > MOST_ROWS or claimed.num_columns > MOST_COLUMNS:
            return {}
    engines = get_default_engine()
    engine = engines.open_table(path)
    for column in engine.columns():
        engine.fold(_ColumnReader((column,)))
    return dict(engines.infer_kinds(path))


def _limit_this_process() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold rows


if __name__ == "__main__":
    _limit_this_process()
    sys.stdout.write(json.dumps(_read_to_its_end(sys.argv[1])))
