# SPDX-License-Identifier: Apache-2.0
"""Files for their owner alone: 0600 from the first byte, whole or not there, in folders that nobody
else can change.

A file that is written first and restricted afterwards can be opened by anybody in between, and
whoever has it open keeps it. So every confidential file is made here: under a name of its own that
nobody can guess and nothing can stand at, with its final mode, and it gets its name once all of it
is on the disk. A name is taken or replaced as a name: a link that stands there is never followed.

Folders for tables that are worked on (`Scratch`) are locked as long as their owner lives. The
kernel gives a lock back however a process ends, so a folder that can be locked is nobody's any
more, and is swept.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sottovoce.errors import UnsafeFolder

#: Who may look at what is private, and who at what may be seen; the second is narrowed by the
#: user's own mask.
OWNER_ONLY = 0o600
ANYBODY = 0o666
#: What nobody but the owner may have: any right at all.
OTHERS = 0o077
#: What a file system says that cannot give a file a second name.
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
#: How folders for tables are called; no other folders are ever swept.
SCRATCH = "sottovoce-run-"
#: Where Linux shows the open files of whoever looks.
OPEN_FILES = Path("/proc/self/fd")
#: Flags of a file that must not be there yet; a link with its name counts as there.
_NEW = (
    os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)


def refuse_unsafe(folder: Path) -> None:
    """Refuses a folder in which somebody else could put another file in the place of ours.

    It must be ours or root's. Neither it nor a folder above it may be writable for everybody,
    unless its sticky bit keeps people from touching each other's files, as in /tmp. A folder that
    is not there is left to whoever opens it.
    """
    if os.name != "posix":
        return
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        place = folder.resolve(strict=True)
        above = [os.stat(each) for each in (place, *place.parents)]
        if above[0].st_uid not in (os.geteuid(), 0) or any(map(_is_open_to_all, above)):
            raise unsafe_folder()


def _is_open_to_all(found: os.stat_result) -> bool:
    return bool(found.st_mode & stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX


@dataclass
class Unfinished:
    """A file that is being written beside its place, and has not got its name yet."""

    content: BinaryIO
    path: Path

    def finish(self) -> None:
        """Puts all of it on the disk, after which it may be given its name."""
        self.content.flush()
        os.fsync(self.content.fileno())
        self.content.close()


@contextlib.contextmanager
def open_unfinished_file(path: Path, *, public: bool = False) -> Iterator[Unfinished]:
    """Opens a new file in the folder of ``path``; what has not been renamed at the end is gone.

    Unless it is ``public``, the folder is checked and the file is its owner's alone before the
    first byte is written.
    """
    if not public:
        refuse_unsafe(path.parent)
    name = path.with_name(f".{secrets.token_hex(16)}.unfinished")  # a name: no answer depends on it
    handle = os.open(name, _NEW, ANYBODY if public else OWNER_ONLY)
    try:
        with os.fdopen(handle, "wb") as content:
            if not public:
                _refuse_wider(handle)
            yield Unfinished(content, name)
    finally:
        name.unlink(missing_ok=True)


def _refuse_wider(handle: int) -> None:
    """Refuses a file system that does not keep what it is told about who may look: nothing was
    written yet.
    """
    if os.name == "posix" and os.fstat(handle).st_mode & OTHERS:
        raise unsafe_folder()


def write(path: Path, content: bytes) -> None:
    """Puts a whole private file in the place of whatever had this name."""
    with open_unfinished_file(path) as file:
        file.content.write(content)
        file.finish()
        os.replace(file.path, path)
    keep_names(path.parent)


def write_new(path: Path, content: bytes) -> None:
    """Writes a whole private file under a name that nobody has; raises FileExistsError if somebody
    has it.
    """
    with open_unfinished_file(path) as file:
        file.content.write(content)
        file.finish()
        claim(file.path, path)
    keep_names(path.parent)


def append(path: Path, content: bytes) -> None:
    """Adds to a private file for good, and makes it if it is not there; never through a link."""
    new = not path.exists()
    if new:
        refuse_unsafe(path.parent)
    handle = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), OWNER_ONLY
    )
    with os.fdopen(handle, "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if new:
        keep_names(path.parent)


def claim(finished: Path, name: Path) -> None:
    """Gives a finished file a name that nobody has, in one step; raises FileExistsError if somebody
    has it.
    """
    try:
        os.link(finished, name)
        return
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
    os.close(os.open(name, _NEW, OWNER_ONLY))  # claims the name, on file systems that know no links
    os.replace(finished, name)


def keep_names(folder: Path) -> None:
    """A new name outlasts a power cut when its folder is written too."""
    if os.name != "posix":
        return  # where a folder cannot be opened
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass
class Scratch:
    """A folder that only its owner may look into, until it is removed or its owner is gone."""

    path: Path
    lock: int | None
    held: dict[Path, int] = field(
        default_factory=dict
    )  # files without a name, by the link that leads to them

    @classmethod
    def made(cls) -> Scratch:
        """Makes an empty folder among the temporary ones, and locks it."""
        refuse_unsafe(Path(tempfile.gettempdir()))
        while True:
            path = Path(tempfile.mkdtemp(prefix=SCRATCH))  # mode 0700
            lock = _lock(path, wait=True)
            if lock is None or _is_at(path, lock):
                return cls(path, lock)
            os.close(lock)  # somebody swept it before it was locked

    def open_new(self, name: str) -> BinaryIO:
        """Opens a new file of this folder to be written, 0600; how it is read again is `path /
        name`.

        On Linux the file has no name: what has the name is a link to an open file of this process,
        which no other process can follow. Whatever ends the process, SIGKILL or a power cut
        included, the kernel frees the file.
        """
        path = self.path / name
        handle = _open_nameless(self.path)
        if handle is None:
            return os.fdopen(os.open(path, _NEW, OWNER_ONLY), "wb")
        try:
            path.symlink_to(OPEN_FILES / str(handle))
        except BaseException:
            os.close(handle)
            raise
        self.held[path] = handle
        return open(path, "wb")

    def handle(self, path: Path) -> int | None:
        """Returns the open file behind a path, to be handed to another process; None for a file
        with a name.
        """
        return self.held.get(path)

    def delete(self, path: Path) -> None:
        """Deletes a file of this folder, if it is there."""
        path.unlink(missing_ok=True)
        handle = self.held.pop(path, None)
        if handle is not None:
            os.close(handle)

    def remove(self) -> None:
        """Deletes the folder and every file in it."""
        for path in list(self.held):
            self.delete(path)
        shutil.rmtree(self.path, ignore_errors=True)
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None


def sweep() -> int:
    """Deletes folders of ours whose owner is gone, as after SIGKILL; returns how many.

    Nothing is touched that is not a folder of this user with the mode that it was made with,
    reached by no link, and unlocked. Where there are no locks, nothing is swept.
    """
    gone = 0
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        lock = _lock(path, wait=False)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
            gone += 1
    return gone


def _lock(path: Path, *, wait: bool) -> int | None:
    """Locks a folder of ours; None where there are no locks, if somebody has it, or if it is not
    what we make.
    """
    if os.name != "posix":
        return None
    import fcntl

    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    found = os.fstat(handle)
    try:
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return handle
    except OSError:
        pass  # it is in use, or this file system knows no locks
    os.close(handle)
    return None


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except OSError:
        return False


def _open_nameless(folder: Path) -> int | None:
    """Opens a file without a name; None where it could not be read again by a path."""
    if sys.platform != "linux" or not OPEN_FILES.is_dir():
        return None
    try:
        handle = os.open(folder, os.O_TMPFILE | os.O_RDWR, OWNER_ONLY)
    except OSError:  # some file systems only know files that had a name
        handle, name = tempfile.mkstemp(dir=folder)
        os.unlink(name)
    if _leads_to(OPEN_FILES / str(handle), handle):
        return handle
    os.close(handle)
    return None


def _leads_to(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle)) and os.access(path, os.R_OK)
    except OSError:
        return False


def unsafe_folder() -> UnsafeFolder:
    """What is said of a folder in which nothing stays private."""
    return UnsafeFolder(
        "A confidential file was to be written to a folder in which others can exchange or read "
        "it.",
        "The folder must be yours or root's and keep files for their owner alone; neither it nor a "
        "folder above it may be writable for everybody, except as /tmp is, with the sticky bit.",
        "Name a file in a folder of your own, or take the right to write from others (chmod o-w).",
    )
