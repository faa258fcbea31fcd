# SPDX-License-Identifier: Apache-2.0
"""From ρ of zCDP to (ε, δ) and back, and what promises of several kinds come to, without another
library.

Every number returned is on the safe side: an ε is at least, a ρ at most, what the formula says
(docs/theory/composition.md, docs/theory/erm.md).

    symbol   name
    ρ        rho; for Gaussian noise ρ = μ²/2
    any zCDP promise        ε = inf_{α>1} αρ + ln(1/(αδ))/(α−1) + ln(1−1/α)
    Gaussian noise alone    δ = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ)

The first is of Canonne, Kamath and Steinke (2020), the second of Balle and Wang (2018).
The second is smaller, and exact for continuous noise. For noise on a lattice it holds once ε is
raised by `LATTICE_EPSILON` and δ lowered by the share `LATTICE_DELTA` (docs/theory/erm.md, lemma
3); both are always applied, which also covers the rounding of doubles.

Rényi curves of one record, and how per-instance losses add up (docs/theory/per-instance.md,
theorems 6, 10 to 12).

A curve is an array whose last axis runs over ``orders`` α > 1. Curves of one record add up over
releases, and are read as (ε, δ) at the end.

    symbol    name
    μ, a, D   leverage, residual and distance as in profiles.py
    b         α − 1
    g(x)      x − log(1 + x)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from sottovoce import units
from sottovoce.arrays import Floats, broadcast_floats, to_doubles
from sottovoce.errors import InvalidParameter

LATTICE_EPSILON = 1e-9
LATTICE_DELTA = 1e-6
#: Halvings of an interval; 2⁻⁶⁰ of its width is left.
HALVINGS = 60
#: From so many numbers on, equations are solved exactly at so many points, and elsewhere by a guess
#: that is confirmed to be so close.
MANY = 8192
POINTS = 2048
CLOSE = 1e-11
#: α − 1 is sought between e^−LOG_ORDERS and e^LOG_ORDERS; whatever α is found, the bound it gives
#: is valid.
LOG_ORDERS = 30.0
#: Results are moved to the safe side by this share, more than doubles can have got wrong.
ROUNDING = 1e-12
#: e to this is above 10¹⁵, so whatever δ is multiplied with it is no promise any more.
MAX_LOG_FACTOR = 35.0


class TotalLoss(NamedTuple):
    """One ε at one δ, in whole units: billionths, and units of 10⁻¹⁵."""

    epsilon: int
    delta: int


@dataclass(frozen=True)
class LossSums:
    """What releases about one person add up to under one neighbour relation, currency by currency,
    in whole units.
    """

    pure: int = 0
    rho: int = 0
    epsilon: int = 0  # of promises that hold at a δ
    delta: int = 0

    def __add__(self, other: LossSums) -> LossSums:
        return LossSums(
            self.pure + other.pure,
            self.rho + other.rho,
            self.epsilon + other.epsilon,
            self.delta + other.delta,
        )

    def to_replace(self) -> LossSums:
        """Return what promises about zeroing out are worth under replacement: out, and in again
        (theorem 7).
        """
        return LossSums(
            2 * self.pure,
            4 * self.rho,
            2 * self.epsilon,
            _convert_delta_to_replace(self.epsilon, self.delta),
        )

    def compose(self, read_at: float) -> TotalLoss:
        """Return the ε and the δ of all of it together (theorem 8).

        ρ, if there is any, is read at δ = read_at.
        """
        epsilon = self.pure + self.epsilon
        delta = self.delta
        if self.rho:
            epsilon += int(units.round_up(zcdp_epsilon(units.to_epsilon(self.rho), read_at)))
            delta += int(units.round_up_delta(read_at))
        return TotalLoss(epsilon, min(delta, units.UNITS_PER_DELTA))


def _convert_delta_to_replace(epsilon: int, delta: int) -> int:
    """Return (1 + e^ε)·δ in whole units, rounded up.

    All units there are where it is no probability any more.
    """
    if not delta or epsilon > MAX_LOG_FACTOR * units.UNITS_PER_EPSILON:
        if delta:
            return units.UNITS_PER_DELTA
        return 0
    return min(
        math.ceil((1 + math.exp(units.to_epsilon(epsilon))) * delta * (1 + ROUNDING)),
        units.UNITS_PER_DELTA,
    )


def zcdp_epsilon(rho: ArrayLike, delta: float) -> Floats:
    """Returns, entry by entry, an ε such that every ρ-zCDP mechanism is (ε, δ)-differentially
    private.
    """
    rho = np.asarray(rho, dtype=np.float64)
    low = np.full(rho.shape, -LOG_ORDERS)
    high = np.full(rho.shape, LOG_ORDERS)
    for _ in range(HALVINGS):
        third = (high - low) / 3
        left = _bound_at_order(rho, delta, low + third) < _bound_at_order(rho, delta, high - third)
        low = np.where(left, low, low + third)
        high = np.where(left, high - third, high)
    best = np.maximum(_bound_at_order(rho, delta, (low + high) / 2), 0.0)
    return np.where(rho > 0, best * (1 + ROUNDING), 0.0)


def _bound_at_order(rho: Floats, delta: float, log_order: Floats) -> Floats:
    """The bound at α = 1 + e^t; ln(1−1/α) = t − ln α."""
    excess = np.exp(log_order)
    log_alpha = np.logaddexp(0.0, log_order)
    return (1 + excess) * rho - (log_alpha + math.log(delta)) / excess + log_order - log_alpha


def gaussian_epsilon(rho: ArrayLike, delta: float) -> Floats:
    """Returns, entry by entry, an ε such that Gaussian noise of ρ in all, adaptively added, is (ε,
    δ)-private.
    """
    mu = np.sqrt(2 * np.asarray(rho, dtype=np.float64))
    target = delta * (1 - LATTICE_DELTA)
    participating = np.where(mu > 0, mu, 1.0)

    def find_most(mu: Floats) -> Floats:
        return np.asarray(mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / target)))

    def is_below(epsilon: Floats, mu: Floats) -> NDArray[np.bool_]:
        return np.asarray(gaussian_delta(mu, epsilon) > target)

    found = _find_crossing(is_below, participating, find_most)[1] * (1 + ROUNDING)
    found = np.where(is_below(np.zeros_like(participating), participating), found, 0.0)
    return np.where(mu > 0, found + LATTICE_EPSILON, 0.0)


def gaussian_rho(epsilon: ArrayLike, delta: float) -> units.Units:
    """Return the largest whole number of units of ρ, entry by entry, whose `gaussian_epsilon` is
    at most ε.
    """
    granted = np.asarray(epsilon, dtype=np.float64)
    allowed = np.maximum(granted - LATTICE_EPSILON, 0.0)
    target = delta * (1 - LATTICE_DELTA)

    def find_most(epsilon: Floats) -> Floats:
        return np.sqrt(2 * epsilon) + 20.0  # Φ(10) is 1 − 10⁻²³: here δ is as good as 1

    def is_below(mu: Floats, epsilon: Floats) -> NDArray[np.bool_]:
        return np.asarray(gaussian_delta(mu, epsilon) <= target)

    mu = _find_crossing(is_below, allowed, find_most)[0]
    rho = np.floor(mu**2 / 2 * (1 - ROUNDING) * units.UNITS_PER_EPSILON).astype(np.int64)
    for _ in range(2):  # the two halvings may differ in their last digits
        rho = rho - (gaussian_epsilon(units.to_epsilon(rho), delta) > granted) * (1 + rho // 2**40)
    return np.where(granted >= LATTICE_EPSILON, np.maximum(rho, 0), 0)


def gaussian_delta(mu: Floats, epsilon: Floats) -> Floats:
    """Returns δ of Gaussian noise with sensitivity μ·σ at ε, written so that nothing cancels or
    overflows.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        upper = epsilon / mu - mu / 2
        lower = epsilon / mu + mu / 2
        # e^ε·φ(lower) = φ(upper), so far out δ is φ(upper) times a difference of Mills' ratios.
        mills = scipy.special.erfcx(upper / math.sqrt(2)) - scipy.special.erfcx(
            lower / math.sqrt(2)
        )
        far = np.exp(-(upper**2) / 2) / 2 * mills
        near = scipy.special.ndtr(-upper) - np.exp(epsilon + scipy.special.log_ndtr(-lower))
    return np.asarray(np.where(mu > 0, np.where(upper > -1, far, near), 0.0), dtype=np.float64)


def _find_crossing(
    is_below: Callable[[Floats, Floats], NDArray[np.bool_]],
    given: Floats,
    find_most: Callable[[Floats], Floats],
) -> tuple[Floats, Floats]:
    """Return the ends of an interval, for each given number, that holds the point between 0 and
    the most up to which ``is_below`` is true.

    Of very many numbers most points are guessed, from those of some, and both ends confirmed.
    """

    def bisect(given: Floats) -> tuple[Floats, Floats]:
        return _bisect(lambda x: is_below(x, given), np.zeros_like(given), find_most(given))

    positive = given[given > 0]
    if positive.size < MANY:
        return bisect(given)
    from scipy.interpolate import CubicSpline  # not loaded where it is not needed

    known = np.geomspace(positive.min() * (1 - ROUNDING), positive.max() * (1 + ROUNDING), POINTS)
    points = bisect(known)[0]
    usable = points > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        guess = np.exp(
            CubicSpline(np.log(known[usable]), np.log(points[usable]), extrapolate=False)(
                np.log(given)
            )
        )
    low = guess * (1 - CLOSE)
    high = guess * (1 + CLOSE)
    wrong = ~(is_below(low, given) & ~is_below(high, given))
    low[wrong], high[wrong] = bisect(given[wrong])
    return low, high


def _bisect(
    goes_up: Callable[[Floats], NDArray[np.bool_]], low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    """Return the ends of an interval that holds the point up to which ``goes_up`` is true."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        up = goes_up(middle)
        low = np.where(up, middle, low)
        high = np.where(up, high, middle)
    return low, high


#: Orders that serve losses between 10⁻⁴ and 10³ at usual δ; a posterior's curve is finite below 1 +
#: 1/μ only.
ORDERS: Floats = 1 + np.geomspace(1e-3, 1e6, 271)
#: Where x − log(1+x) is summed as a series; 12 terms reach the last place.
SERIES = 0.3
TERMS = 12


def compute_gaussian_curve(distance: ArrayLike, orders: ArrayLike = ORDERS) -> Floats:
    """Return D_α = αD²/2, in both directions: ρ = D²/2 of zCDP."""
    D = _add_order_axis(distance)
    alpha = _check_orders(orders)
    return np.asarray(alpha * D**2 / 2)


def compute_posterior_curve(
    leverage: ArrayLike, residual: ArrayLike, orders: ArrayLike = ORDERS
) -> Floats:
    """Return D_α(without‖with the record), the larger direction; ∞ from α = 1 + 1/μ on."""
    mu = _add_order_axis(leverage)
    a = _add_order_axis(residual)
    alpha = _check_orders(orders)
    b = alpha - 1
    finite = b * mu < 1
    room = np.where(finite, 1 - b * mu, 1.0)
    value = (
        subtract_log(mu) / 2
        + subtract_log(room - 1) / (2 * b)
        + a**2 * alpha * mu / (2 * (1 + mu) * room)
    )
    return np.where(finite, value, math.inf)


def compute_reverse_posterior_curve(
    leverage: ArrayLike, residual: ArrayLike, orders: ArrayLike = ORDERS
) -> Floats:
    """Return D_α(with‖without the record), finite for every α."""
    mu = _add_order_axis(leverage)
    a = _add_order_axis(residual)
    alpha = _check_orders(orders)
    b = alpha - 1
    share = mu / (1 + mu)
    value = subtract_log(-share) / 2 + subtract_log(b * share) / (2 * b)
    return np.asarray(value + a**2 * alpha * share / (2 * (1 + alpha * mu)))


def convert_to_epsilon(curve: ArrayLike, delta: float, orders: ArrayLike = ORDERS) -> Floats:
    """Return an ε ≥ 0 for which the curve implies (ε, δ): the least over the orders that are
    given.
    """
    values = np.asarray(curve, dtype=np.float64)
    alpha = _check_orders(orders)
    cost = np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1)
    return np.asarray(np.maximum(np.min(values + cost, axis=-1), 0.0))


def convert_to_log_delta(curve: ArrayLike, at: float, orders: ArrayLike = ORDERS) -> Floats:
    """Return a log δ ≤ 0 for which the curve implies (ε, δ) at ε = ``at``."""
    values = np.asarray(curve, dtype=np.float64)
    alpha = _check_orders(orders)
    cost = (alpha - 1) * np.log1p(-1 / alpha) - np.log(alpha)
    return np.asarray(np.minimum(np.min((alpha - 1) * (values - at) + cost, axis=-1), 0.0))


def subtract_log(x: ArrayLike) -> Floats:
    """Return x − log(1 + x) ≥ 0 without cancellation: log(1+x) = 2·artanh(z), z = x/(2+x)."""
    x = np.asarray(x, dtype=np.float64)
    small = np.where(np.abs(x) < SERIES, x, 0.0)
    z = small / (2 + small)
    series = np.zeros_like(z)
    for k in range(TERMS, 0, -1):
        series = (series + 1 / (2 * k + 1)) * z * z
    return np.asarray(np.where(np.abs(x) < SERIES, z * (small - 2 * series), x - np.log1p(x)))


def compose_simple(epsilons: ArrayLike, deltas: ArrayLike) -> tuple[Floats, Floats]:
    """Return (Σε, Σδ) over the first axis: releases one after another, each chosen in view of the
    earlier ones.
    """
    return np.sum(np.asarray(epsilons, float), axis=0), np.sum(np.asarray(deltas, float), axis=0)


def compose_advanced(epsilons: ArrayLike, deltas: ArrayLike, slack: float) -> tuple[Floats, Floats]:
    """Return (ε̃, Σδ + slack), ε̃ = Σ ε·tanh(ε/2) + √(2·log(1/slack)·Σε²), or Σε where that is
    smaller.
    """
    eps = np.asarray(epsilons, float)
    total = np.sum(np.asarray(deltas, float), axis=0)
    drift = np.sum(eps * np.tanh(eps / 2), axis=0)
    spread = np.sqrt(2 * math.log(1 / slack) * np.sum(eps**2, axis=0))
    return np.minimum(drift + spread, np.sum(eps, axis=0)), total + slack


def group(epsilons: ArrayLike, deltas: ArrayLike) -> tuple[float, float]:
    """Return what a group loses whose records enter one by one.

    Out: Σ_i δ_i·Π_{j<i} e^(ε_j), from without to with the group. Back: Σ_i δ_i·Π_{j>i} e^(ε_j).

    Parameters
    ----------
    epsilons : ArrayLike
        ε_i of each record as it enters.
    deltas : ArrayLike
        δ_i of each record.

    Returns
    -------
    tuple[float, float]
        Σε, and δ̃, the larger of two directions.
    """
    eps, delta = broadcast_floats(
        to_doubles(epsilons, "An ε", "epsilons").ravel(),
        to_doubles(deltas, "A δ", "deltas").ravel(),
    )
    before = np.cumsum(eps) - eps
    after = eps.sum() - np.cumsum(eps)
    return float(eps.sum()), float(max(delta @ np.exp(before), delta @ np.exp(after)))


def generalisation(
    epsilons: ArrayLike, deltas: ArrayLike, target: tuple[ArrayLike, ArrayLike] | None = None
) -> float:
    """Return a bound on |E(loss on the data) − E(loss on a fresh record)|, for losses in [0, 1].

    Rows are data sets, columns records: ε(Z, z) and δ(Z, z), z from the data's law, and for
    ``target``, where given, from the law of the fresh records (the loss on the data then has
    importance weights).

    Parameters
    ----------
    epsilons : ArrayLike
        ε(Z, z): rows are data sets, columns records.
    deltas : ArrayLike
        δ(Z, z), likewise.
    target : tuple[ArrayLike, ArrayLike], optional
        The same for records from the law of the fresh ones.

    Returns
    -------
    float
        The bound.
    """
    first = _to_rows(epsilons), _to_rows(deltas)
    if target is None:
        second = first
    else:
        second = (_to_rows(target[0]), _to_rows(target[1]))
    (e1, d1), (e2, d2) = ((np.exp(e).mean(axis=1), d.mean(axis=1)) for e, d in (first, second))
    directions = (e1 * e2 - 1 + d1 + e1 * d2, e1 * e2 - 1 + d2 + e2 * d1)
    return float(max(direction.mean() for direction in directions))


def simple_generalisation(
    epsilons: ArrayLike, delta: float, target_epsilons: ArrayLike | None = None
) -> float:
    """Return ½[E e^(2ε) + E' e^(2ε)] − 1 + δ(1 + max(E e^ε, E' e^ε)), where δ(Z, z) ≤ δ
    throughout.
    """
    one = np.asarray(epsilons, float)
    if target_epsilons is None:
        two = one
    else:
        two = np.asarray(target_epsilons, float)
    moments = (np.exp(2 * one).mean() + np.exp(2 * two).mean()) / 2
    return float(moments - 1 + delta * (1 + max(np.exp(one).mean(), np.exp(two).mean())))


def _to_rows(values: ArrayLike) -> Floats:
    return np.atleast_2d(to_doubles(values, "An ε or δ"))


def _add_order_axis(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)[..., None]


def _check_orders(orders: ArrayLike) -> Floats:
    alpha = np.asarray(orders, dtype=np.float64)
    if not np.all(alpha > 1):
        raise InvalidParameter(
            "An order is not above 1.",
            "Rényi orders α > 1 are needed.",
            "Leave out the others.",
            parameter="orders",
        )
    return alpha
