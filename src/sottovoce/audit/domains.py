# SPDX-License-Identifier: Apache-2.0
"""Records that are not in the data: the worst of a domain, and one record in many data sets.

symbol   name
B, Y     norm and label of the domain, times the largest root of a weight
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit.sealed import STAMP, Sealed
from sottovoce.audit.setting import Setting
from sottovoce.errors import InvalidParameter
from sottovoce.solvers.leverages import Fit

Floats = NDArray[np.float64]


class Worst(Sealed):
    """The record that loses most. ``float`` of it is its ε.

    ``x`` and ``y`` are in the mechanism's own coordinates. ``added``: it is not in the data, and would be added; else
    it is row ``row``, by being removed. ``bound`` is proved: nobody loses more. ``attained``: the domain has such a
    record; otherwise only some of the records that were searched are in it, and ``epsilon`` is no more than a bound.
    """

    def __init__(self, epsilon: float, bound: float, x: Floats, y: float, row: int | None, attained: bool) -> None:
        super().__init__()
        self.epsilon, self.bound, self.x, self.y = epsilon, bound, x, y
        self.added, self.row, self.attained = row is None, row, attained

    def __float__(self) -> float:
        return self.epsilon

    def __repr__(self) -> str:
        return f"<Worst record: {STAMP}>"

    __str__ = __repr__


def worst(setting: Setting, fit: Fit, losses: Floats, delta: float) -> Worst:
    """Returns the worst record of all: over the domain for being added, over the rows for being removed."""
    domain, loudest = setting.declared(), float(setting.root.max())
    found = setting.mechanism.supremum(fit, delta, domain.norm * loudest, domain.label * loudest)
    i = int(np.argmax(losses))
    if losses[i] > found.value:
        root = float(setting.root[i])
        row, label = setting.rows[i] / root, float(setting.labels[i]) / root
        return Worst(float(losses[i]), max(float(losses[i]), found.bound), row, label, i, True)
    return Worst(found.value, found.bound, found.x / loudest, found.y / loudest, None, domain.whole)


def one(setting: Setting, z: Any, datasets: Iterable[tuple[Any, Any]], delta: float) -> Floats:
    """Returns ε of adding z to each data set; weights are by place, and z has that of the loudest row."""
    x, y = setting.record(z, float(setting.root.max()))
    return np.array([_added(setting, x, y, *setting.prepared(*dataset), delta) for dataset in datasets], dtype=float)


def _added(setting: Setting, x: Floats, y: Floats, rows: Floats, labels: Floats, delta: float) -> float:
    root = setting.root
    if np.ptp(root) == 0:
        root = np.full(len(labels), root[0])
    if len(root) != len(labels):
        raise InvalidParameter(
            "A data set has another number of rows than the audited one.",
            "Rows have weights of their own here, by their place.",
            "Pass data sets of the same length.",
        )
    fit = setting.fit(rows * root[:, None], labels * root)
    return float(setting.mechanism.epsilon(setting.change(fit, x, y, present=False), delta)[0])
