# SPDX-License-Identifier: Apache-2.0
"""Who is least protected, and why: by rank, with names for whoever asks for them by hand.

What sets somebody apart is told as a multiple of the median: how unlike the others' their features are (leverage), how
badly the others foretell their label (residual), how loudly they are heard (weight) and how many rows they own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit.sealed import STAMP, Sealed

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
