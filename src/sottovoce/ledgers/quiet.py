# SPDX-License-Identifier: Apache-2.0
"""Silence of the driver of PostgreSQL while the ledger talks to a server: its log lines name hosts
and users.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

_SILENCED = threading.local()


class _DriverFilter(logging.Filter):
    """Drops what is logged by a thread that is talking for the ledger, and nothing of anybody
    else.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is logged."""
        return not getattr(_SILENCED, "now", False)


_FILTER = _DriverFilter()


@contextlib.contextmanager
def silence_driver() -> Iterator[None]:
    """Lets the driver log nothing on this thread meanwhile."""
    logging.getLogger("psycopg").addFilter(_FILTER)  # the same one, however often
    before = getattr(_SILENCED, "now", False)
    _SILENCED.now = True
    try:
        yield
    finally:
        _SILENCED.now = before
