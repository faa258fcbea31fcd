# SPDX-License-Identifier: Apache-2.0
"""How far, how fast and within which limits gradient descent goes, from public numbers alone (docs/theory/erm.md).

Descent with T steps of stride η has gone the way c = ηT. A direction in which the risk has curvature h is then
learnt up to e^(−ch), and has gathered noise of variance σ₁²·c·(1 − e^(−2ch))/(2h), whatever T is. The way is the one
with the smallest expected error of a prediction for columns and coefficients of the usual size. The constants were
chosen on synthetic tables.

    symbol   name
    σ₁       clip · the noise of one release of the gradient, for each coordinate
    C        usual second moments of a recoded column, SPREADS; ¼ for the intercept's
    h = κC   κ = shape.curvature
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sottovoce.solvers.losses import Shape

#: Second moments of a column in [−½, ½] that fills it evenly, less, and much less.
SPREADS = (1 / 12, 1 / 30, 1 / 100)
INTERCEPT = 1 / 4
#: Ways that are considered.
WAYS = np.geomspace(1e-2, 1e6, 321)
FEWEST, MOST = 20, 300
#: Sampled people: a step needs its own noise, so there are as many steps as hear everybody so often.
ROUNDS, FEWEST_SAMPLED, MOST_SAMPLED = 10, 100, 1000
#: Coordinates lie within ±RADIUS, or θ in a ball that a box of that size just fits into.
RADIUS = 5.0


@dataclass(frozen=True)
class Pace:
    """Steps and stride, and the error of a prediction that was expected of them."""

    steps: int
    stride: float
    noise: float  # expected root mean square of a prediction's noise
    unlearnt: float  # and of what is not learnt yet


def usual_clip(shape: Shape, slopes: int) -> float:
    """L: the usual slope of the loss times the length of a row whose columns fill their bounds evenly."""
    return shape.slope * math.sqrt(INTERCEPT + slopes * SPREADS[0])


def usual_radius(slopes: int, box: bool) -> float:
    """B, of the box or of the ball around it."""
    return RADIUS if box else RADIUS * math.sqrt(slopes + 1)


def sampled_steps(rate: float) -> int:
    """How many steps hear everybody often enough."""
    return min(max(math.ceil(ROUNDS / rate), FEWEST_SAMPLED), MOST_SAMPLED)


def chosen(shape: Shape, slopes: int, noise: float, steps: int | None) -> Pace:
    """The way with the smallest expected error, in as many steps as keep a quadratic risk from overshooting."""
    longest = 2 / (shape.curvature * (slopes + 1) / 4)
    ways = WAYS[longest * (MOST if steps is None else steps) >= WAYS]
    if not len(ways):
        ways = WAYS[:1]
    errors = sum(expected_squares(shape, slopes, noise, ways))
    best = int(np.argmin(errors))
    way = float(ways[best])
    taken = min(max(math.ceil(way / longest), FEWEST), MOST) if steps is None else steps
    unlearnt, drawn = (float(part[best]) for part in expected_squares(shape, slopes, noise, ways))
    return Pace(taken, way / taken, math.sqrt(drawn), math.sqrt(unlearnt))


def expected_squares(shape: Shape, slopes: int, noise: float, ways: np.ndarray) -> np.ndarray:
    """Returns, for each way, the mean square error of a prediction: what is not learnt yet, and noise."""
    over_spreads = [_column(shape, spread, noise, ways, slopes) for spread in SPREADS]
    parts = _column(shape, INTERCEPT, noise, ways, 1) + (np.mean(over_spreads, axis=0) if slopes else 0.0)
    return np.asarray(parts)


def _column(shape: Shape, spread: float, noise: float, ways: np.ndarray, count: int) -> np.ndarray:
    """Columns of one spread that share the usual variance of a prediction among them."""
    bend = shape.curvature * spread
    left = np.exp(-2 * ways * bend)
    return np.asarray([shape.size * left, count * spread * noise**2 * ways * (1 - left) / (2 * bend)])
