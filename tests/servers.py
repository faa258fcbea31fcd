"""A private PostgreSQL server for the tests, from the binaries of this machine, on a socket in a
folder of its own.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

#: Where distributions put what is not on the path.
PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


@cache
def binary(name: str) -> str | None:
    """The newest binary of this name on the machine: those of an installation belong together."""
    for place in PLACES:
        for folder in sorted(Path("/").glob(place[1:]), reverse=True):
            if (folder / name).exists():
                return str(folder / name)
    return shutil.which(name)


def why_not() -> str | None:
    """Why no server can be started, or None."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed"
    missing = [name for name in ("initdb", "postgres") if binary(name) is None]
    if missing:
        return f"PostgreSQL's {' and '.join(missing)} not found on this machine"
    return None


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Starts a server, yields the address of an empty database, and stops it."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"No PostgreSQL: {reason}.")
    as_user = _servant()
    # Short, because a socket's path may have no more than 107 characters, and open to the server's
    # own user.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if as_user:
        shutil.chown(folder, as_user)
    if as_user:
        options = {"user": as_user, "group": pwd.getpwnam(as_user).pw_gid, "extra_groups": []}
    else:
        options = {}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **options}
    data = folder / "data"
    subprocess.run(
        [
            binary("initdb"),
            "-D",
            data,
            "-U",
            "tester",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ],
        check=True,
        **quiet,
    )
    settings = {"listen_addresses": "", "unix_socket_directories": folder, "max_connections": 100}
    flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with subprocess.Popen(
        [binary("postgres"), "-D", data, *flags], **quiet
    ) as server:  # which waits for its end
        try:
            yield _ready(f"postgresql://tester@/postgres?host={folder}")
        finally:
            server.send_signal(signal.SIGINT)  # at once, whoever is still connected
    shutil.rmtree(folder, ignore_errors=True)


def _servant() -> str | None:
    """PostgreSQL does not run as root: there, another user of the machine does it."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody", getpass.getuser()) if name in known)


def _ready(address: str) -> str:
    import psycopg

    for _ in range(3000):
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(address, connect_timeout=2),
        ):
            return address
        time.sleep(0.1)
    raise RuntimeError("the private PostgreSQL server did not start")
