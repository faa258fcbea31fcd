# SPDX-License-Identifier: Apache-2.0
"""How far each row moves the smallest eigenvalue of XᵀX, which an adaptive posterior sample releases first.

symbol   name
λ_k      eigenvalues of XᵀX, in rising order
u        a row in its eigenvectors
t        the smallest eigenvalue without the row: the root of Σ u_k²/(λ_k − t) = 1 below λ_1
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HALVINGS = 60
CHUNK = 8192


def smallest_moved(rows: Floats) -> Floats:
    """Returns λ_1 − t for each row: between 0 and the squared length of the row."""
    values, vectors = np.linalg.eigh(rows.T @ rows)
    parts = [rows[at : at + CHUNK] @ vectors for at in range(0, len(rows), CHUNK)]
    return np.concatenate([_moved(part**2, values) for part in parts])


def _moved(square: Floats, values: Floats) -> Floats:
    """Σ u_k²/(gap_k + s) falls with the distance s; the halving keeps the root between low and high."""
    gaps = values - values[0]
    low, high = np.zeros(len(square)), np.asarray(square.sum(axis=1), dtype=np.float64)
    for _ in range(HALVINGS):
        s = (low + high) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            more = (square / (gaps + s[:, None])).sum(axis=1) > 1
        low, high = np.where(more, s, low), np.where(more, high, s)
    return high
