# SPDX-License-Identifier: Apache-2.0
"""Losses in a few numbers, beside what was promised. These depend on everybody's data too, and are as confidential."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sottovoce.audit.sealed import STAMP, Sealed
from sottovoce.errors import InvalidInput

if TYPE_CHECKING:
    from sottovoce.audit.instance import PerInstance

SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


class Summary(Sealed):
    """Quantiles and moments of ε over the people in the data. ``print`` it to read it."""

    def __init__(self, audit: PerInstance) -> None:
        super().__init__()
        losses = np.asarray(audit.epsilon)
        self.rows, self.delta, self.exactness = len(losses), audit.delta, audit.exactness
        self.quantiles = dict(zip(SHARES, np.quantile(losses, SHARES, method="inverted_cdf").tolist(), strict=True))
        self.median, self.largest = self.quantiles[0.5], self.quantiles[1.0]
        self.mean, self.mean_square = float(losses.mean()), float(np.square(losses).mean())
        promised = audit.promised
        self.promised = None if promised is None else (float(promised.min()), float(promised.max()))
        self.neighbours = audit.neighbours
        self.eigenvalue = None if audit.eigenvalue is None else float(audit.eigenvalue.max())
        self.for_all = _for_all(audit)

    def __str__(self) -> str:
        lines = [
            STAMP,
            f"What {self.rows:,} rows lost, as ε at δ = {self.delta:g} ({self.exactness}).",
            "  " + ", ".join(f"{_share(share)} {value:.3g}" for share, value in self.quantiles.items()),
            f"  mean {self.mean:.3g}, root mean square {self.mean_square**0.5:.3g}",
        ]
        if self.eigenvalue is not None:
            lines.append(f"  before it, the noisy eigenvalue cost {self.eigenvalue:.3g} at most, by itself")
        if self.for_all is not None:
            lines.append(f"Any record that bounds allow, with these rows: {self.for_all:.3g} at most.")
        if self.promised is not None:
            lines.append(f"Promised, for every table (neighbours by {self.neighbours}): {_range(*self.promised)}.")
        return "\n".join(lines)


def _for_all(audit: PerInstance) -> float | None:
    try:
        return audit.for_all().bound
    except InvalidInput:  # no domain, or no proof
        return None


def _share(share: float) -> str:
    return {0.0: "smallest", 0.5: "median", 1.0: "largest"}.get(share, f"{share:.0%}")


def _range(low: float, high: float) -> str:
    return f"{high:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
