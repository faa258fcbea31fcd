# SPDX-License-Identifier: Apache-2.0
"""What an audit looks at: rows as the mechanism saw them, the fit, and the domain from which records come.

symbol   name
√w       root, by which a row and its label are multiplied: everybody's own weight
H, θ     of the fit, over all rows
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit.mechanisms import Change, Mechanism, change
from sottovoce.errors import InvalidBounds, InvalidParameter
from sottovoce.solvers import leverages
from sottovoce.solvers.leverages import Fit

Floats = NDArray[np.float64]
#: H with a smallest eigenvalue below this share of the largest is singular, whatever Cholesky's method says.
SINGULAR = 1e-13


class Domain(NamedTuple):
    """‖x‖ ≤ norm, |y| ≤ label; ``whole`` if all such records are possible, and not only some of them."""

    norm: float
    label: float
    whole: bool


@dataclass(frozen=True, eq=False)
class Setting:
    """Rows in the mechanism's own coordinates, everybody's weights, and what was promised."""

    mechanism: Mechanism
    rows: Floats  # √w·x
    labels: Floats  # √w·y
    root: Floats
    ridge: float
    domain: Domain | None
    prepared: Callable[[Any, Any], tuple[Floats, Floats]]  # features and labels as people know them → x, y
    promised: Floats | None = None  # one a row: what its person was promised
    neighbours: str = ""  # of that promise
    owner: NDArray[np.int64] | None = None  # row → person; None where each row is a person
    people: Any = None  # their names in order, where they have any
    earlier: Floats | None = None  # how far each row moves what was released before, in its noise's deviations

    def fit(self, rows: Floats | None = None, labels: Floats | None = None) -> Fit:
        """Returns the ridge regression of these rows, or of all; refuses one that has no single solution."""
        fitted = leverages.fit(
            self.rows if rows is None else rows, self.labels if labels is None else labels, self.ridge
        )
        eigenvalues = np.linalg.eigvalsh(fitted.hessian)
        if eigenvalues[0] <= SINGULAR * eigenvalues[-1]:
            raise InvalidParameter(
                "XᵀX + λI is singular.", "It must be positive definite.", "Use a larger ridge λ (alpha)."
            )
        return fitted

    def change(self, fit: Fit, rows: Floats, labels: Floats, *, present: bool) -> Change:
        """What leaving rows out, or adding them, changes in the mechanism's metric."""
        return change(fit, rows, labels, self.mechanism.metric_of(fit), present=present)

    def record(self, z: Any, root: float) -> tuple[Floats, Floats]:
        """Returns one record z = (x, y) in the mechanism's coordinates and with its weight, as arrays of one row."""
        try:
            x, y = z
        except (TypeError, ValueError):
            raise InvalidParameter("The record is not a pair.", "", "Pass z=(x, y): features and label.") from None
        rows, labels = self.prepared(one_row(x), np.atleast_1d(np.asarray(y)))
        return rows[:1] * root, labels[:1] * root

    def declared(self) -> Domain:
        """Returns the domain; refuses where none is declared."""
        if self.domain is None:
            raise InvalidBounds(
                "No domain is declared.",
                "The worst record is sought among those that public bounds allow.",
                "Describe the mechanism with bounds=sv.Bounds(norm=1.0, label=(-1, 1)).",
            )
        return self.domain


def one_row(x: Any) -> Any:
    """One record's features as a table of one row."""
    if hasattr(x, "keys"):
        import pyarrow as pa

        return pa.table({name: [x[name]] for name in x.keys()})  # noqa: SIM118 (a pandas Series has keys too)
    return np.atleast_2d(np.asarray(x, dtype=np.float64))
