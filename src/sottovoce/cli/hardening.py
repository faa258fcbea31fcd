# SPDX-License-Identifier: Apache-2.0
"""What others on the machine could read of a running command, and how it is closed to them.

A core file holds the whole memory of a process: the key of the books, and rows. None is written,
and on Linux no other process of this user, a debugger included, can look into the memory either. A
command line is open to everybody while the command runs: a password in it is refused. What is
written to swap is not covered: Python and the libraries under it copy what they work on, so memory
cannot be pinned piece by piece. Encrypt the swap, or have none.
"""

from __future__ import annotations

import contextlib
import sys

#: The number of PR_SET_DUMPABLE in linux/prctl.h.
SET_DUMPABLE = 4
#: The names under which PostgreSQL takes a password from the end of an address.
PASSWORDS = frozenset({"password", "sslpassword"})


def close_memory() -> None:
    """Keeps the memory of this process from core files and, on Linux, from other processes of the
    same user.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        # The limit does not hold where core files go to a program, as on most systems today; this
        # does.
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(SET_DUMPABLE, 0, 0, 0, 0)


def refuse_open_password(address: str) -> None:
    """Refuses a password that stands in the command line, where everybody on the machine can read
    it.
    """
    from sottovoce.errors import InvalidParameter

    if any(address in word for word in sys.argv) and _has_password(address):
        raise InvalidParameter(
            "An address in the command line holds a password.",
            "Everybody on this machine can read command lines.",
            "Change the password, and keep the new one in PostgreSQL's file of passwords "
            "(~/.pgpass); or set the whole address of the books as SOTTOVOCE_LEDGER.",
        )


def _has_password(address: str) -> bool:
    from urllib.parse import parse_qs, urlsplit

    try:
        parts = urlsplit(address)
        return parts.password is not None or not PASSWORDS.isdisjoint(parse_qs(parts.query))
    except ValueError:  # not an address that anybody could use
        return False
