# SPDX-License-Identifier: Apache-2.0
"""Losses in a few numbers, beside what was promised, and who is least protected, and why.

Both depend on everybody's data, and are as confidential as the losses. Who is least protected is told by rank, with
names for whoever asks for them by hand. What sets somebody apart is told as a multiple of the median: how unlike the
others' their features are (leverage), how badly the others foretell their label (residual), how loudly they are heard
(weight) and how many rows they own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit.sealed import STAMP, Sealed
from sottovoce.errors import InvalidInput

if TYPE_CHECKING:
    from sottovoce.audit.instance import PerInstance

Floats = NDArray[np.float64]

#: Less than so many times the median sets nobody apart.
APART = 1.5
WORDS = {
    "leverage": "features unlike the others' (leverage {} times the median)",
    "residual": "a label that the others do not foretell (residual {} times the median)",
    "weight": "a louder voice than most (weight {} times the median)",
    "rows": "more rows than most ({} times the median)",
}
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


class Place(Sealed):
    """One of the least protected: rank (1 is the least), ε, what sets them apart, and who it is. Confidential."""

    def __init__(self, rank: int, epsilon: float, multiples: dict[str, float], who: Any) -> None:
        super().__init__()
        self.rank, self.epsilon, self.multiples, self.who = rank, epsilon, multiples, who

    def __repr__(self) -> str:
        return f"<Place {self.rank}: {STAMP}>"

    __str__ = __repr__

    def why(self) -> str:
        """What sets them apart, in words, the most telling first."""
        apart = sorted(((m, name) for name, m in self.multiples.items() if m >= APART), reverse=True)
        told = "; ".join(WORDS[name].format(_multiple(m)) for m, name in apart)
        return told or "nothing stands out"


def least_protected(audit: PerInstance, count: int) -> list[Place]:
    """Returns the people (rows, without groups) who lost most, the worst first."""
    losses, setting = np.asarray(audit.by_person()), audit._setting
    owner = np.arange(len(losses)) if setting.owner is None else setting.owner
    names = list(range(len(losses))) if setting.people is None else np.asarray(setting.people).tolist()
    facts = _facts(audit, owner, len(losses))
    worst = np.argsort(-losses, kind="stable")[:count]
    return [
        Place(rank, float(losses[i]), {name: float(of[i]) for name, of in facts.items()}, names[i])
        for rank, i in enumerate(worst, start=1)
    ]


def _facts(audit: PerInstance, owner: NDArray[np.int64], people: int) -> dict[str, Floats]:
    """Each fact as a multiple of its median: the mean over a person's rows, and how many there are."""
    weight = np.square(audit._setting.root)
    heard = np.where(weight > 0, weight, 1.0)
    rows = np.bincount(owner, minlength=people).astype(np.float64)
    by_row = {
        "leverage": np.asarray(audit.leverage) / heard,
        "residual": np.abs(np.asarray(audit.residual)) / np.sqrt(heard),
        "weight": weight,
    }
    means = {
        name: np.bincount(owner, values, minlength=people) / np.maximum(rows, 1) for name, values in by_row.items()
    }
    return {name: _multiples(values) for name, values in {**means, "rows": rows}.items()}


def _multiples(values: Floats) -> Floats:
    middle = float(np.median(values))
    return values / middle if 0 < middle < np.inf else np.ones_like(values)


def _multiple(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:,.0f}"
