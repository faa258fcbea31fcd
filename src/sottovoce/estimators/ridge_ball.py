# SPDX-License-Identifier: Apache-2.0
"""What buys a ball for the rows of the default regression, and the noise that goes with it
(docs/theory/ball.md).

Columns of numbers often lie close together somewhere in their bounds. Their means are bought, all
at once, and then one radius around them; rows are fitted in that ball instead of in the box of the
bounds, with less noise. Contrasts of factors fill their box, and stay in it. Everything here
follows from public numbers and from what was released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Floats
from sottovoce.data.encoding import Recoding
from sottovoce.data.feature_ball import FeatureBall
from sottovoce.data.loss_kernels import GRID_STEP, join_parts, weigh_parts
from sottovoce.estimators import ridge_gaussian
from sottovoce.estimators.ridge_errors import StageParameters
from sottovoce.noise import continuous

CENTRE = "centre of features"
RADIUS = "radius of features"
#: Units of ε in all that buy the centre, for each column and two more: at least so many, and more
#: where that is no larger a share.
CENTRE_UNITS = (8.0, 12.0)
CENTRE_SHARE = 0.1
#: The same for the radius.
RADIUS_UNITS = (36.0, 44.0)
RADIUS_SHARE = 0.03
#: Large budgets buy both with these shares, so that both are bought ever better.
LEAST_SHARES = (0.02, 0.01)
#: No ball is bought where it would take more than this.
LARGEST_BALL_SHARE = 0.19
#: Nor where the proxy, which guesses how bunched columns are, expects more than a part of the error
#: in a box: this much, less so many times the share that the ball takes. A ball that costs next to
#: nothing is taken anyway, since with it Λ is for columns as they are.
NEEDED_GAIN = (1.15, 2.0)
#: A radius is bought at which so much of everybody's weight counts, or all but so many units.
COUNTED = 0.8
NOT_COUNTED = 10.0
#: Candidates for it, from the largest that a row can have, in steps of √2; each step beyond the
#: smallest is held back by so many powers of e where 44 units buy it, and by more, as the root of
#: the units, where more do. More candidates, or fewer units, and one in some hundred draws takes a
#: radius that is far too small, which costs far more than one that is too large.
RADII = 12
RADIUS_HANDICAP = 0.4
#: Of rows within a norm r, which are recoded as x/(2r).
DECLARED_RADIUS = 0.5


@dataclass(frozen=True)
class BallPurchase:
    """The shares that buy a ball for columns of numbers: its centre, then its radius."""

    centre: float
    radius: float
    quantile: float  # of everybody's weight, as far as it counts in the ball
    handicap: float  # of a candidate, over that of the next smaller one

    @property
    def share(self) -> float:
        """Both together."""
        return self.centre + self.radius

    @property
    def most_error(self) -> float:
        """The part of the expected error in a box up to which a ball is taken."""
        return NEEDED_GAIN[0] - NEEDED_GAIN[1] * self.share


def choose_ball_purchase(total: float, numbers: int) -> BallPurchase | None:
    """Returns what buys a ball for so many columns of numbers, from S = Σε; None where it would
    cost too much.
    """
    if numbers == 0:
        return None
    least, enough = ((numbers + 2) * each / total for each in CENTRE_UNITS)
    centre = max(least, min(enough, CENTRE_SHARE), LEAST_SHARES[0])
    least, enough = (each / total for each in RADIUS_UNITS)
    radius = max(least, min(enough, RADIUS_SHARE), LEAST_SHARES[1])
    if centre + radius > LARGEST_BALL_SHARE:
        return None
    budget = radius * total
    return BallPurchase(
        centre,
        radius,
        max(COUNTED, 1 - NOT_COUNTED / budget),
        RADIUS_HANDICAP * math.sqrt(budget / RADIUS_UNITS[1]),
    )


def find_declared_ball(recoding: Recoding) -> FeatureBall | None:
    """Returns the ball that rows are declared to lie in, by their norm; None where there is none,
    or where some column has narrower bounds than it, and the box says more.
    """
    if not recoding.fills_ball:
        return None
    columns = list_number_columns(recoding)
    return FeatureBall(columns, np.zeros(len(columns)), DECLARED_RADIUS)


def list_radii(centre: Floats, declared: FeatureBall | None = None) -> Floats:
    """Returns the candidates for the radius around a centre, rising; no row of the box, or of a
    ball that is declared, lies beyond the last.
    """
    farthest = math.sqrt(float(np.square(0.5 + np.abs(centre)).sum()))
    if declared is not None:
        # Rows of the ball are rounded to their grid, by which they may become a little longer.
        rounded = 2.0**-24 * math.sqrt(len(centre))
        farthest = min(farthest, declared.radius + math.sqrt(float(centre @ centre)) + rounded)
    farthest *= 1 + 1e-9
    steps = np.arange(RADII)[::-1]
    return np.asarray(farthest * 0.5 ** (steps / 2), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class DescribeColumns:
    """Some columns of each row, all within ±½."""

    columns: NDArray[np.int64]
    features_alone = True  # neither pulls nor bends are read

    def __call__(self, rows: Floats, pull: Floats, bend: Floats, weights: Floats) -> Floats:
        """Returns their weighted sums."""
        parts = weigh_parts(np.ones(len(rows)), weights)
        return np.asarray((parts @ rows)[:, self.columns] / GRID_STEP).ravel()

    def to_fractions(self, total: Any) -> Any:
        """Returns the sums over all rows in units of one."""
        return join_parts(total) * Fraction(GRID_STEP)


def list_number_columns(recoding: Recoding) -> NDArray[np.int64]:
    """Returns which of the recoded columns are numbers: contrasts of factors fill their box, and
    stay in it.
    """
    numbers = [not feature.levels for feature in recoding.features for _ in range(feature.width)]
    return np.flatnonzero(numbers)


def draw_stage_noise(slopes: int, choice: StageParameters, ball: FeatureBall | None) -> Any:
    """Returns b over τ for a stage; some columns may be in a ball."""
    if choice.gaussian:
        return ridge_gaussian.draw_noise(slopes, choice)
    if ball is None:
        return continuous.draw_mixed_norm(slopes, *choice.norm)
    rounded = len(ball.columns)
    drawn = continuous.draw_rounded_norm(slopes - rounded, rounded, *choice.norm)
    boxed = np.setdiff1d(np.arange(slopes), ball.columns)
    noise = np.empty(slopes + 1, dtype=object)
    noise[np.concatenate([[0], 1 + boxed, 1 + ball.columns])] = drawn
    return noise
