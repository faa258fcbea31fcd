# SPDX-License-Identifier: Apache-2.0
"""Convex losses of a prediction and a label, for empirical risk minimisation (docs/theory/erm.md).

A loss is any object with ``value`` and ``derivative``; what else `RowLoss` names has defaults, and
serves to choose steps and clips from public numbers, never the promise: whatever a derivative
returns is clipped. It must look at one row at a time; one that mixes rows would void the promise.

    name        value                          label      largest slope   curvature
    logistic    ln(1 + e^(−y·f))               ±1         1               ¼
    hinge       max(0, 1 − y·f)                ±1         1               a corner
    squared     ½(f − y)²                      [−1, 1]    unbounded       1
    huber       ½r² up to |r| = τ, then linear [−1, 1]    τ               1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy  # whose parts are loaded where they are used

from sottovoce.arrays import Floats
from sottovoce.errors import InvalidParameter


class RowLoss(Protocol):
    """What a loss must offer: its value and its derivative in the prediction, both entry by
    entry.
    """

    def value(self, prediction: Floats, label: Floats) -> Floats:
        """Return the loss of each prediction."""

    def derivative(self, prediction: Floats, label: Floats) -> Floats:
        """Return its derivative in the prediction (any subgradient at a corner)."""


@dataclass(frozen=True)
class LossShape:
    """What is assumed about a loss when steps and clips are chosen.

    An object may carry its own as ``shape``.
    """

    classifies: bool = False  # labels are ±1, and the sign of a prediction is the answer
    slope: float = 0.25  # the usual size of the derivative
    steepest: float = 2.0  # and about its largest, for predictions within the label's range
    curvature: float = 1.0  # the usual size of the second derivative
    size: float = 0.1  # the usual variance of a good prediction


@dataclass(frozen=True)
class LogisticLoss:
    """ln(1 + e^(−y·f)): the prediction is the log-odds of the class +1."""

    name = "logistic"
    shape = LossShape(classifies=True, slope=0.5, steepest=1.0, curvature=0.2, size=4.0)

    def value(self, prediction: Floats, label: Floats) -> Floats:
        """Return ln(1 + e^(−y·f)), without overflow."""
        return np.logaddexp(0.0, -label * prediction)

    def derivative(self, prediction: Floats, label: Floats) -> Floats:
        """Return −y/(1 + e^(y·f))."""
        return np.asarray(-label * scipy.special.expit(-label * prediction), dtype=np.float64)


@dataclass(frozen=True)
class HingeLoss:
    """max(0, 1 − y·f): the loss of a support vector machine."""

    name = "hinge"
    shape = LossShape(classifies=True, slope=0.5, steepest=1.0, curvature=0.25, size=1.0)

    def value(self, prediction: Floats, label: Floats) -> Floats:
        """Return max(0, 1 − y·f)."""
        return np.maximum(0.0, 1 - label * prediction)

    def derivative(self, prediction: Floats, label: Floats) -> Floats:
        """Return −y inside the margin, else 0."""
        return np.where(label * prediction < 1, -label, 0.0)


@dataclass(frozen=True)
class SquaredLoss:
    """½(f − y)²."""

    name = "squared"
    shape = LossShape()

    def value(self, prediction: Floats, label: Floats) -> Floats:
        """Return ½(f − y)²."""
        return np.asarray((prediction - label) ** 2 / 2, dtype=np.float64)

    def derivative(self, prediction: Floats, label: Floats) -> Floats:
        """Return f − y."""
        return prediction - label


@dataclass(frozen=True)
class HuberLoss:
    """½r² up to |r| = τ and linear beyond, r = f − y; τ is a share of half the label's range."""

    threshold: float = 0.25
    name = "huber"
    shape = LossShape()

    def value(self, prediction: Floats, label: Floats) -> Floats:
        """Return ½r², or τ|r| − ½τ² beyond τ."""
        size = np.abs(prediction - label)
        inside = np.minimum(size, self.threshold)
        return np.asarray(inside * (size - inside / 2), dtype=np.float64)

    def derivative(self, prediction: Floats, label: Floats) -> Floats:
        """Return r, cut at ±τ."""
        return np.clip(prediction - label, -self.threshold, self.threshold)


LOSSES: dict[str, Any] = {
    loss.name: loss for loss in (LogisticLoss(), HingeLoss(), SquaredLoss(), HuberLoss())
}


def get_loss(loss: Any) -> RowLoss:
    """Return the loss of this name, or the object itself if it has the two methods."""
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]  # type: ignore[no-any-return]
    if not isinstance(loss, str | type) and all(
        callable(getattr(loss, m, None)) for m in ("value", "derivative")
    ):
        return loss  # type: ignore[no-any-return]
    raise InvalidParameter(
        "The loss is not known.",
        f"There are {', '.join(LOSSES)}; an object of your own has the methods value and "
        "derivative.",
        "Choose one of them, or pass such an object.",
        parameter="loss",
    )


def get_shape(loss: RowLoss) -> LossShape:
    """Return what is assumed about a loss: its own ``shape``, or that of a regression."""
    return getattr(loss, "shape", None) or LossShape()


def get_name(loss: RowLoss) -> str:
    """Return the name under which a loss stands in a release."""
    return str(getattr(loss, "name", None) or type(loss).__name__)
