# SPDX-License-Identifier: Apache-2.0
"""Rényi curves of noise in the objective and of pure losses (docs/theory/per-instance.md, theorem 7).

With noise in the objective of a ridge regression the log-ratio of the two laws is quadratic in two normal variables,

    L = C + Bz + (offset·spread)·ζ + Az² + (stretch·spread)·zζ,

z along g = H⁻¹x and ζ across it, so that E e^(bL) is a Gaussian integral.

    symbol      name
    μ, r        leverage and residual where the record is absent
    ‖x‖², ‖g‖²   square and reach
    σ           sigma
    b           α − 1
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sottovoce.solvers import integrals
from sottovoce.solvers.profiles import probability
from sottovoce.solvers.renyi import ORDERS

Floats = NDArray[np.float64]
Bracket = tuple[Floats, Floats, Floats, Floats]
Excess = Callable[[Floats, NDArray[np.int64]], Floats]

#: Steps of the secant; eight are usual.
STEPS = 100
#: Roots are found to this share, from above.
CLOSE = 1e-9
#: Where −log δ is larger, it is taken to be this.
LOWEST = 1e4


def pure(epsilon: Floats) -> Floats:
    """Returns the largest D_α of a loss within ±ε: that of a coin which is told the truth with odds e^ε."""
    e, alpha = epsilon[:, None], ORDERS
    within = (np.logaddexp(alpha * e, (1 - alpha) * e) - np.logaddexp(0.0, e)) / (alpha - 1)
    return np.clip(within, 0.0, e)


def objective(leverage: Floats, residual: Floats, square: Floats, reach: Floats, sigma: float) -> Floats:
    """Returns D_α of noise in the objective at ORDERS, the larger direction; ∞ where it is."""
    both = (integrals.objective_loss(leverage, residual, square, reach, sigma, removing) for removing in (False, True))
    return np.maximum(*(_renyi(loss) for loss in both))


def _renyi(loss: integrals.ObjectiveLoss) -> Floats:
    """log E e^(bL)/b: with M = I − 2bQ and l the linear part, log E = bC − ½log det M + ½b²·lᵀM⁻¹l."""
    q11, l1, c, offset, stretch, spread = (part[:, None] for part in loss)
    l2, q12 = offset * spread, stretch * spread
    b = ORDERS - 1
    m11, m12 = 1 - 2 * b * q11, -b * q12
    determinant = m11 - m12**2
    finite = (m11 > 0) & (determinant > 0)
    safe = np.where(finite, determinant, 1.0)
    form = (l1**2 - 2 * m12 * l1 * l2 + m11 * l2**2) / safe
    return np.where(finite, np.maximum(c - np.log(safe) / (2 * b) + b * form / 2, 0.0), math.inf)


def objective_epsilon(
    leverage: Floats, residual: Floats, square: Floats, reach: Floats, sigma: float, delta: float
) -> Floats:
    """Returns the least ε ≥ 0, to nine digits from above, with δ(ε) ≤ δ in both directions; ∞ where μ or r is."""
    target = math.log(float(probability(delta)))
    finite = np.isfinite(leverage) & np.isfinite(residual)
    given = tuple(part[finite] for part in (leverage, residual, square, reach))
    answer = np.full(len(leverage), math.inf)
    answer[finite] = _roots(given, sigma, target) if finite.any() else 0.0
    return answer


def _roots(given: tuple[Floats, ...], sigma: float, target: float) -> Floats:
    """Regula falsi by the rule of Illinois for all records at once, on √−log δ, which is nearly linear in ε."""

    def excess(epsilon: Floats, which: NDArray[np.int64]) -> Floats:
        mu, r, xx, gg = (field[which] for field in given)
        logs = np.maximum(*integrals.objective_log_delta(mu, r, xx, gg, sigma, epsilon))
        return np.asarray(math.sqrt(-target) - np.sqrt(np.clip(-logs, 0.0, LOWEST)))

    everybody = np.arange(len(given[0]))
    at_zero = excess(np.zeros(len(everybody)), everybody)
    found = np.zeros(len(everybody))
    on = everybody[at_zero > 0]
    if on.size:
        found[on] = _illinois(excess, on, _bracket(excess, on, at_zero[on]))
    return found


def _bracket(excess: Excess, which: NDArray[np.int64], at_zero: Floats) -> Bracket:
    """Returns ends between which each root lies, and the heights there."""
    low, above, high = np.zeros(len(which)), at_zero.copy(), np.ones(len(which))
    below = excess(high, which)
    while (short := below > 0).any():
        low[short], above[short] = high[short], below[short]
        high[short] *= 4
        below[short] = excess(high[short], which[short])
    return low, high, above, below


def _illinois(excess: Excess, which: NDArray[np.int64], bracket: Bracket) -> Floats:
    """An end that stays twice has its height halved, so that it cannot stay for ever."""
    (low, high, f, g), found, left = bracket, np.empty(len(which)), np.arange(len(which))
    side = np.zeros(len(which))  # which end moved last: −1 the high one, 1 the low one
    for _ in range(STEPS):
        middle = low + (high - low) * f / (f - g)
        height = excess(middle, which[left])
        off = np.abs(height) * (high - low) / (f - g)  # the next step, about
        found[left] = np.minimum(middle + 2 * off + CLOSE * middle, high)
        up, on = height > 0, off > CLOSE * middle
        low, high = np.where(up, middle, low)[on], np.where(up, high, middle)[on]
        f, g = (
            np.where(up, height, np.where(side < 0, f / 2, f))[on],
            np.where(up, np.where(side > 0, g / 2, g), height)[on],
        )
        left, side = left[on], np.where(up, 1.0, -1.0)[on]
        if not left.size:
            break
    return found
