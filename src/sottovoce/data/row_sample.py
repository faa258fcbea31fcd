# SPDX-License-Identifier: Apache-2.0
"""Some of the rows of a fit, for a first guess at what all of them say.

Newton's steps over a sixteenth of the rows cost a sixteenth of the time, and end so near to where
all rows would that a few steps over these are left. Which rows are chosen goes by their content
alone, so that the guess does not depend on where rows lie. It is private, and nothing of it is
kept: it saves time, and no theorem needs it (docs/theory/solver.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.data.encoding import MATRIX_COLUMN, EmptyReader, MatrixReader
from sottovoce.data.engine import Engine, GroupLookup, cut_batch, get_default_engine
from sottovoce.data.loss_kernels import GRID_STEP, PIECE, RowBlock, RowTerms

#: From this many rows on a first guess comes from a sixteenth of them, and never from many more
#: than so many.
MANY_ROWS = 2**16
SAMPLE_RATE = 1 / 16
#: Multiples of it are spread evenly over [0, 1).
GOLDEN = (math.sqrt(5) - 1) / 2
#: Columns of the chosen rows.
VALUE = "value"
KIND = "kind"


@dataclass(frozen=True, eq=False)
class RowSample:
    """Some of the rows that a kernel reads, at this rate; their content decides, not their
    place.
    """

    kernel: RowTerms
    rate: float

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return self.kernel.columns

    def zero(self) -> list[RowBlock]:
        """No rows."""
        return []

    def __call__(self, batch: Any) -> list[RowBlock]:
        """Returns kinds, rows and labels of the chosen rows of the batch."""
        return [self._select_rows(piece) for piece in cut_batch(batch, PIECE)]

    def _select_rows(self, batch: Any) -> RowBlock:
        kinds = self.kernel.owner.kinds(batch)
        rows, labels = self.kernel.read_rows(batch)
        chosen = self._choose(rows, labels) & (self.kernel.row_weights[kinds] > 0)
        return kinds[chosen], rows[chosen], labels[chosen]

    def _choose(self, rows: Floats, labels: Floats) -> Any:
        # Entries are on a grid, so their sum is exact in any order; the golden section scatters it.
        place = rows @ np.full(rows.shape[1], 1 / GRID_STEP) + np.rint(labels / GRID_STEP)
        scattered = place * GOLDEN
        return scattered - np.floor(scattered) < self.rate


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """The chosen rows, in memory, and at which rate they were chosen."""

    engine: Engine
    rate: float

    def adapt(self, kernel: RowTerms) -> RowTerms:
        """Returns the kernel for these rows, which stand for all: weights are as much larger."""
        reader: Any = EmptyReader()
        if kernel.reader.width:
            reader = MatrixReader(kernel.reader.width)
        return replace(
            kernel,
            reader=reader,
            label=kernel.get_sample_label(VALUE),
            owner=GroupLookup(KIND),
            row_weights=kernel.row_weights / self.rate,
        )


def choose_rows(engine: Engine, kernel: RowTerms, rows: int) -> ChosenRows | None:
    """Returns some of so many rows; None where they are few, or few of them differ, so that the
    choice was unlucky.
    """
    if rows < MANY_ROWS:
        return None
    rate = min(SAMPLE_RATE, MANY_ROWS / rows)
    chosen = engine.fold(RowSample(kernel, rate))
    kinds, matrix, labels = (np.concatenate(column) for column in zip(*chosen, strict=True))
    if not 0.5 < len(kinds) / (rate * rows) < 2:
        return None
    columns = {VALUE: labels, KIND: kinds}
    if matrix.shape[1]:
        columns[MATRIX_COLUMN] = matrix
    return ChosenRows(get_default_engine().of_columns(columns), rate)
