# SPDX-License-Identifier: Apache-2.0
"""Several releases about the same people: their losses, person by person (docs/theory/per-instance.md, theorem 10).

Rényi curves of a row add up over releases that were not chosen in view of one another, and are read at δ in the end;
where adding the exact ε at equal parts of δ gives less, that is taken. An adaptive posterior sample counts with both
its releases, the second given what the first turned out to be.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit.instance import PerInstance
from sottovoce.audit.sealed import STAMP, Losses, Sealed
from sottovoce.errors import InvalidParameter
from sottovoce.solvers import renyi
from sottovoce.solvers.profiles import one_probability

Floats = NDArray[np.float64]
CHUNK = 2048


class Composed(Sealed):
    """What several releases together cost each row, at one δ. Confidential."""

    def __init__(self, epsilon: Floats, delta: float, releases: int) -> None:
        super().__init__()
        self.epsilon, self.delta, self.releases = Losses.of(epsilon), delta, releases

    def __repr__(self) -> str:
        return f"<Composed losses of {len(self.epsilon)} rows to {self.releases} releases: {STAMP}>"

    __str__ = __repr__


def compose(audits: Sequence[PerInstance], delta: float = 1e-6) -> Composed:
    """Returns what several releases cost each row together; all audits are of the same rows in the same order."""
    audits, level = list(audits) if isinstance(audits, Sequence) else [], one_probability(delta)
    sizes = {len(audit) for audit in audits if isinstance(audit, PerInstance)}
    if not audits or len(sizes) != 1 or not all(isinstance(audit, PerInstance) for audit in audits):
        raise InvalidParameter(
            "There is nothing to add up, or not about the same rows.",
            "Losses add up person by person.",
            "Pass audits of the same rows in the same order, as sv.audit.per_instance returns them.",
        )
    added = _added(audits, level)
    summed = np.sum([_alone(audit, level / _steps(audits)) for audit in audits], axis=0)
    return Composed(np.minimum(added, summed), level, len(audits))


def _steps(audits: list[PerInstance]) -> int:
    return sum(1 if audit.eigenvalue is None else 2 for audit in audits)


def _alone(audit: PerInstance, delta: float) -> Floats:
    """The exact ε at this δ, what was released before included."""
    again = audit.at(delta)
    before = 0.0 if again.eigenvalue is None else np.asarray(again.eigenvalue)
    return np.asarray(again.epsilon) + before


def _added(audits: list[PerInstance], delta: float) -> Floats:
    rows = len(audits[0])
    parts = [slice(at, at + CHUNK) for at in range(0, rows, CHUNK)]
    return np.concatenate([renyi.epsilon(sum(audit.curves(part) for audit in audits), delta) for part in parts])


def pdp_to_dp(audit: PerInstance) -> float:
    """Returns an ε that covers every record of the domain with these rows: the bound of ``for_all``.

    It is a promise for this table only. A promise for all tables is the guarantee of the release.
    """
    if not isinstance(audit, PerInstance):
        raise InvalidParameter("This is no audit.", "", "Pass what sv.audit.per_instance returned.")
    return audit.for_all().bound
