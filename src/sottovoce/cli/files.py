# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there: a name is only ever given to finished content."""

from __future__ import annotations

import os
from pathlib import Path

from sottovoce.errors import InvalidParameter


def refuse_unwritable(path: Path | None, table: str) -> None:
    """Refuses a place where nothing can be written, before a table is read and anybody is charged."""
    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidParameter(
            "The answer cannot be written to --out.",
            "It must be a file in a folder that exists and can be written to.",
            "Make the folder first, or name another file.",
        )
    if path.exists() and Path(table).exists() and path.samefile(table):
        raise InvalidParameter("--out is the table itself.", "", "Name another file.")


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that whoever looks sees the old content or the new, never a half."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8", newline="\n")
        unfinished.replace(path)
    except OSError as error:
        reason = error.strerror or "it failed"
        raise InvalidParameter(f"A file cannot be written: {reason}.", "", "Name another file.") from None
    finally:
        unfinished.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Makes a folder, and those above it, unless they are there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or "it failed"
        raise InvalidParameter(f"The folder cannot be made: {reason}.", "", "Name another folder.") from None
