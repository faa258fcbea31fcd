# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there: a name is only ever given to finished content, and never taken from another file.

A file that exists is refused before anything is read or charged, unless --force replaces it. If one appears under that
name while the answer is made, the answer goes beside it, under a name with a number.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sottovoce.errors import InvalidParameter

if TYPE_CHECKING:
    from sottovoce.release import Release


#: What a file system says that cannot give a file a second name.
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def refuse_unwritable(path: Path | None, *inputs: str | Path, force: bool = False) -> None:
    """Refuses a place where nothing may be written, before a table is read and anybody is charged."""
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
    if not force and os.path.lexists(path):
        raise InvalidParameter(
            "The file of --out exists already.",
            "What stands in it would be lost.",
            "Name another file, or add --force to replace it.",
        )


def write_whole(path: Path, text: str, *, force: bool = False) -> Path:
    """Writes a file so that whoever looks sees all of it or nothing; returns where it is."""
    with writing(path, force=force) as file:
        file.content.write(text.encode())
    return file.path


@dataclass
class Writing:
    """A file that is being written, and where it will be."""

    content: BinaryIO
    path: Path


@contextmanager
def writing(path: Path, *, force: bool = False) -> Iterator[Writing]:
    """Opens a file that gets its name once all has been written, and is gone if anything fails before.

    With ``force`` a file of that name is replaced. Without, one that has appeared meanwhile is left as it is, and
    ``path`` is changed to the first name beside it that is free.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as content:
            file = Writing(content, path)
            yield file
        if force:
            unfinished.replace(path)
        else:
            file.path = _named(unfinished, path)
    except OSError as error:
        reason = error.strerror or "it failed"
        raise InvalidParameter(f"A file cannot be written: {reason}.", "", "Name another file.") from None
    finally:
        unfinished.unlink(missing_ok=True)


def _named(unfinished: Path, path: Path) -> Path:
    """Gives a finished file this name, or the first with a number that nobody has; returns which."""
    for place in count(1):
        name = path if place == 1 else path.with_stem(f"{path.stem}-{place}")
        try:
            _take(unfinished, name)
        except FileExistsError:
            continue
        return name
    raise AssertionError("unreachable: some number is free")


def _take(unfinished: Path, name: Path) -> None:
    """Gives a file a name that nobody has, in one step; raises FileExistsError if somebody has it."""
    try:
        os.link(unfinished, name)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
    else:
        return
    name.open("xb").close()  # claims the name, on file systems that know no links
    unfinished.replace(name)


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
