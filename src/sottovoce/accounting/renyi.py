# SPDX-License-Identifier: Apache-2.0
"""Rényi curves of one record, and how per-instance losses add up (docs/theory/per-instance.md,
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

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.accounting.profiles import broadcast_floats
from sottovoce.arrays import Floats, to_doubles
from sottovoce.errors import InvalidParameter

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
