# SPDX-License-Identifier: Apache-2.0
"""How far quantiles are expected to be off, as a share of the rows (docs/theory/quantile.md,
accuracy). Those of several that are chosen together are in joint_quantiles.py.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import scipy  # whose parts are loaded where they are used

from sottovoce.budgets import Budgets
from sottovoce.plan import ExpectedError, measure_inequality
from sottovoce.weights import Weights

#: Up to a scale of so many rows the ranks are added up one by one, so many rows to each side.
FEW_ROWS = 8
REACH = 400


def estimate_rank_error(
    q: float,
    association: float,
    budgets: Budgets,
    weights: Weights,
    spread: float,
    width: float,
    noise: float,
) -> ExpectedError:
    """Root mean square of F(t) − q, F the plain share of rows at or below t, and what it is made
    of.

    Values are taken as spread evenly over a part of the bounds; the theory page has the sums and
    integrals.
    """
    squares, moved = measure_inequality(budgets, weights)
    error = ExpectedError(
        classical="the plain quantile",
        unit="as a share of the rows (rank)",
        noise=noise,
        sampling=math.sqrt(q * (1 - q) * squares),
        bias=association * moved,
        assumed=f"Assumed: values spread evenly over {spread:.0%} of the bounds.",
        representative=1 - moved / 2,
    )
    return replace(error, in_column=error.total * spread * width)


def estimate_rank_noise(q: float, scale: float, spread: float, concentration: float) -> float:
    """Returns the root mean square rank error that the choice of a point makes.

    The chosen t has rank p with density ∝ exp(−|p − q|/scale) over the part that values fill, and
    two lumps at rank 0 and 1 for the points outside it. Ranks are multiples of one row's weight,
    which shows where the scale is no more than a few rows; gaps between neighbours vary as those of
    random values do, which adds 3/16 of a row over the scale.
    """
    rows = max(round(1 / concentration), 1)
    uneven = 1 + 3 / 16 / max(scale * rows, 1.0)
    if scale * rows < FEW_ROWS:
        ranks = (
            np.arange(
                max(math.floor(q * rows) - REACH, 0), min(math.ceil(q * rows) + REACH, rows) + 1
            )
            / rows
        )
        apart = np.concatenate([np.abs(ranks - q), [q, 1 - q]])
        size = np.append(np.full(len(ranks), spread / rows), [(1 - spread) / 2] * 2)
        likely = size * np.exp((apart.min() - apart) / scale)
        return min(math.sqrt(uneven * float(likely @ apart**2) / float(likely.sum())), 1.0)
    mass = second = 0.0
    for side in (q, 1 - q):
        tail = math.exp(-side / scale)
        mass += spread * scale * -math.expm1(-side / scale) + (1 - spread) / 2 * tail
        # ∫₀^side x²·e^(−x/scale) dx, by the incomplete gamma function: the plain form cancels for
        # large scales.
        inside = 2 * scale**3 * float(scipy.special.gammainc(3, side / scale))
        second += spread * inside + (1 - spread) / 2 * tail * side**2
    return min(math.sqrt(uneven * second / mass), 1.0)
