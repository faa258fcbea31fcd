# SPDX-License-Identifier: Apache-2.0
"""Several rows at once: one replaced by another, and a group that enters row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit.mechanisms import Change
from sottovoce.audit.setting import Setting
from sottovoce.errors import InvalidParameter
from sottovoce.solvers import renyi
from sottovoce.solvers.leverages import Fit

Floats = NDArray[np.float64]


def replaced(setting: Setting, fit: Fit, i: int, z: Any, delta: float) -> float:
    """Returns ε between the rows and the same with row i replaced by z, for noise on the solution."""
    i = _places(setting, [i])[0]
    old = setting.rows[i : i + 1], setting.labels[i : i + 1]
    moved = fit.moved_by_replacing(old, setting.record(z, float(setting.root[i])))[0]
    return float(setting.mechanism.epsilon(of_distance(_length(moved, setting.mechanism.metric_of(fit))), delta)[0])


def group(setting: Setting, rows: Any, delta: float) -> tuple[float, float]:
    """Returns (ε, δ) of a group: its rows are taken out of the table one by one, each at what it then costs."""
    out = _places(setting, rows)
    keep, costs = np.ones(len(setting.labels), dtype=np.bool_), []
    for i in reversed(out):
        fit = setting.fit(setting.rows[keep], setting.labels[keep])
        moved = setting.change(fit, setting.rows[i : i + 1], setting.labels[i : i + 1], present=True)
        costs.append(float(setting.mechanism.epsilon(moved, delta)[0]))
        keep[i] = False
    return renyi.group(costs[::-1], np.full(len(costs), delta))


def of_distance(distance: Floats) -> Change:
    """A change of which only the distance matters."""
    nothing = np.zeros_like(distance)
    return Change(nothing, nothing, distance, nothing, nothing)


def _length(moved: Floats, metric: Floats) -> Floats:
    return np.sqrt(np.maximum([moved @ metric @ moved], 0.0))


def _places(setting: Setting, rows: Any) -> list[int]:
    places = [int(i) for i in np.atleast_1d(np.asarray(rows))]
    if not places or len(set(places)) < len(places) or not all(0 <= i < len(setting.labels) for i in places):
        raise InvalidParameter(
            "A row number is not among the rows, or is given twice.", "Rows are counted from 0.", "Correct it."
        )
    return places
