# SPDX-License-Identifier: Apache-2.0
"""Rows of a mechanism that is only described: as they are, or brought back to the bounds that were declared."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit.mechanisms import GaussianObjective, GaussianOutput
from sottovoce.audit.setting import Domain, Setting
from sottovoce.bounds import Bounds
from sottovoce.errors import InvalidParameter, TooFewRows
from sottovoce.estimators.samples.gram import shortened
from sottovoce.statistics import unfit
from sottovoce.table import factorise, matrix, numbers, same_length

Floats = NDArray[np.float64]


def described(est: GaussianOutput | GaussianObjective, X: Any, y: Any, epsilon: Any, groups: Any) -> Setting:
    """Returns the setting of rows under a described mechanism; every row weighs one."""
    if epsilon is not None:
        raise InvalidParameter("A described mechanism has no budgets.", "Every row weighs one.", "Leave epsilon= out.")
    rows, labels = prepared(est.bounds, X, y)
    same_length(len(labels), groups=groups)
    if not len(labels):
        raise TooFewRows("The table is empty.", "", "Pass the rows that the mechanism saw.")
    people, owner = (None, None) if groups is None else factorise(groups)
    return Setting(
        est, rows, labels, np.ones(len(labels)), float(est.alpha), domain(est.bounds, rows.shape[1]),
        partial(prepared, est.bounds), owner=owner, people=people,
    )  # fmt: skip


def prepared(bounds: Bounds | None, X: Any, y: Any) -> tuple[Floats, Floats]:
    """Returns features and labels as numbers, those beyond the bounds brought back to them."""
    rows, labels = matrix(X, None).astype(np.float64), numbers(y, "labels")
    same_length(len(rows), y=labels)
    if not (np.isfinite(rows).all() and np.isfinite(labels).all()):
        raise unfit()
    if bounds is not None and bounds.features is not None:
        rows = np.clip(rows, *bounds.features)
    if bounds is not None and bounds.norm is not None:
        rows = shortened(rows, bounds.norm)
    return rows, labels if bounds is None or bounds.label is None else np.clip(labels, *bounds.label)


def domain(bounds: Bounds | None, columns: int) -> Domain | None:
    """Returns the records that bounds allow, or None where they say nothing about rows or label."""
    if bounds is None or bounds.label is None or (bounds.norm is None and bounds.features is None):
        return None
    low, high = bounds.label
    corner = np.inf
    if bounds.features is not None:
        sides = np.maximum(np.abs(bounds.features[0]), np.abs(bounds.features[1]))
        corner = float(np.linalg.norm(np.broadcast_to(sides, (columns,))))
    whole = bounds.features is None and low == -high
    return Domain(min(bounds.norm or np.inf, corner), max(abs(low), abs(high)), whole)
