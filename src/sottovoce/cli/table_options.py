# SPDX-License-Identifier: Apache-2.0
"""TableOptions: a source of data as it is named at a terminal.

In a file of its own, because a source loads NumPy and Arrow, and help comes without them: commands
import it when they run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sottovoce.data.source import DataSource


@dataclass(frozen=True, eq=False)
class TableOptions(DataSource):
    """A source as it is named at a terminal, and where the answer goes."""

    key: str | None = None
    out: Path | None = None
    force: bool = False  # whether a file that is there already may be replaced
    public: str | None = None  # for a classifier: a table of rows that need no protection

    @property
    def inputs(self) -> tuple[str | Path, ...]:
        """The files that are read, so that none is written over."""
        read = (self.table, self.schema, self.public, self.budgets)
        return tuple(path for path in read if isinstance(path, str | Path))
