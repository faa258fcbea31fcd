# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there: a name is only ever given to finished content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sottovoce.errors import InvalidParameter

if TYPE_CHECKING:
    from sottovoce.release import Release


def refuse_unwritable(path: Path | None, *inputs: str | Path) -> None:
    """Refuses a place where nothing can be written, before a table is read and anybody is charged."""
    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidParameter(
            "The answer cannot be written to --out.",
            "It must be a file in a folder that exists and can be written to.",
            "Make the folder first, or name another file.",
        )
    for read in inputs:
        if path.exists() and Path(read).exists() and path.samefile(read):
            raise InvalidParameter("--out is a file that is to be read.", "", "Name another file.")


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that whoever looks sees the old content or the new, never a half."""
    with writing(path) as file:
        file.write(text.encode())


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that gets its name once all has been written, and is gone if anything fails before."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as file:
            yield file
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


def load_release(path: Path) -> Release:
    """Reads a release; says so where there is none."""
    from sottovoce.errors import InvalidRelease
    from sottovoce.release import Release

    if not path.is_file():
        raise InvalidRelease("There is no release at this path.", "A JSON file is needed.", "Check the path.")
    return Release.load(path)
