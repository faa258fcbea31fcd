# SPDX-License-Identifier: Apache-2.0
"""The kinds of ledger.

From an address to the books behind it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sottovoce.errors import UnsupportedLedger
from sottovoce.ledger import Ledger
from sottovoce.moved import OLD_PATHS as _OLD_PATHS

__path__.append(_OLD_PATHS)

SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")


def open_ledger(
    ledger: str | Path | Ledger | None, keys: Any = None, *, begin: bool | None = None
) -> Ledger:
    """Return books in memory (None), in a file (a path, or sqlite:///path), in PostgreSQL, or as
    they are given.

    ``keys`` is the folder of the key and the heads for PostgreSQL. New books are begun where there
    is nothing yet; if ``begin``, in an empty file too; if it is False, nowhere.
    """
    # A plan needs the signature of releases, which is in this package, and no books.
    from sottovoce.ledgers.sqlite import open_sqlite

    if ledger is None:
        return open_sqlite(None)
    if not isinstance(ledger, str | Path):
        return ledger
    address = str(ledger)
    if address.startswith(POSTGRES):
        from sottovoce.ledgers import postgres

        return postgres.open_postgres(
            address, get_key_folder() if keys is None else Path(keys), begin=begin
        )
    if address.startswith(SQLITE) or "://" not in address:
        return open_sqlite(address.removeprefix(SQLITE), begin=begin)
    raise UnsupportedLedger(
        "There is no ledger of this kind.",
        "An address begins with sqlite:/// or postgresql://.",
        "Choose one of these, or None for a ledger that ends with the process.",
        parameter="ledger",
    )


def get_key_folder() -> Path:
    """The user's folder for keys of books that live on a server."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "sottovoce"
