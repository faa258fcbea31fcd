# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there: a name is only ever given to finished content, and never taken from another file.

A file that exists is refused before anything is read or charged, unless --force replaces it. If one appears under that
name while the answer is made, the answer goes beside it, under a name with a number. What is not said to be public is
for its owner alone from its first byte on (sottovoce.private).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sottovoce import private
from sottovoce.errors import InvalidParameter

if TYPE_CHECKING:
    from sottovoce.release import Release


def refuse_unwritable(path: Path | None, *inputs: str | Path, force: bool = False, public: bool = False) -> None:
    """Refuses a place where nothing may be written, before a table is read and anybody is charged.

    Unless it is ``public``, what is to be written is for its owner alone, and the folder must be one that keeps it so.
    """
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
    if not public:
        private.refuse_unsafe(path.parent)


def write_whole(path: Path, text: str, *, force: bool = False, public: bool = False) -> Path:
    """Writes a file so that whoever looks sees all of it or nothing; returns where it is."""
    with writing(path, force=force, public=public) as file:
        file.content.write(text.encode())
    return file.path


@dataclass
class Writing:
    """A file that is being written, and where it will be."""

    content: BinaryIO
    path: Path


@contextmanager
def writing(path: Path, *, force: bool = False, public: bool = False) -> Iterator[Writing]:
    """Opens a file that gets its name once all has been written, and is gone if anything fails before.

    With ``force`` a file of that name is replaced. Without, one that has appeared meanwhile is left as it is, and
    ``path`` is changed to the first name beside it that is free. Unless it is ``public``, nobody but its owner can
    read it at any time.
    """
    reason = ""
    try:
        with private.unfinished(path, public=public) as unfinished:
            file = Writing(unfinished.content, path)
            yield file
            unfinished.finish()
            if force:
                unfinished.path.replace(path)
            else:
                file.path = _named(unfinished.path, path)
        with suppress(OSError):  # it is there and whole; only a power cut could still take its name
            private.keep_names(path.parent)
        return
    except OSError as error:
        reason = error.strerror or "it failed"
    raise InvalidParameter(f"A file cannot be written: {reason}.", "", "Name another file.")


def _named(unfinished: Path, path: Path) -> Path:
    """Gives a finished file this name, or the first with a number that nobody has; returns which."""
    for place in count(1):
        name = path if place == 1 else path.with_stem(f"{path.stem}-{place}")
        try:
            private.take(unfinished, name)
        except FileExistsError:
            continue
        return name
    raise AssertionError("unreachable: some number is free")


def make_folder(path: Path) -> None:
    """Makes a folder, and those above it, unless they are there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        return
    except OSError as error:
        reason = error.strerror or "it failed"
    raise InvalidParameter(f"The folder cannot be made: {reason}.", "", "Name another folder.")


def load_release(path: Path) -> Release:
    """Reads a release; says so where there is none."""
    from sottovoce.errors import InvalidRelease
    from sottovoce.release import Release

    if not path.is_file():
        raise InvalidRelease("There is no release at this path.", "A JSON file is needed.", "Check the path.")
    return Release.load(path)
