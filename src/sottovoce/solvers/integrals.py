# SPDX-License-Identifier: Apache-2.0
"""Profiles that are one integral: removing a record from a posterior, and ridge regression with noise in its objective.

Both integrands are positive and smooth between known points. Tanh–sinh nodes crowd at both ends of an interval, so a
thin layer there costs nothing (docs/theory/per-instance.md, theorems 3 and 7).

    symbol       name
    μ, a         leverage and residual as in solvers/profiles.py
    ‖x‖², ‖g‖²   square and reach: squared lengths of a record x and of g = H⁻¹x, where the record is absent
    r, σ         residual y − xᵀθ where it is absent, and sigma: b ~ N(0, σ²I) in ½‖y − Xθ‖² + ½λ‖θ‖² + bᵀθ
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_ndtr, ndtr

from sottovoce.solvers.profiles import LOG_ROOT_2PI, alike, mills

Floats = NDArray[np.float64]

#: e^−45 is below the last place of a double.
EXPONENT = 45.0
#: The normal distribution is integrated over so many standard deviations on either side; 10⁻³² is left out.
REACH = 12.0
_NODES = np.arange(-78, 79) * 0.045
#: Places in (0, 1), measured from the left, and their weights.
PLACES = expit(math.pi * np.sinh(_NODES))
WEIGHTS = 0.045 * math.pi * np.cosh(_NODES) * PLACES * expit(-math.pi * np.sinh(_NODES))
#: Left of here, in standard deviations, the gain is written with expm1.
LEFT = -6.0
CHUNK = 512


def posterior_log_delta_remove(leverage: ArrayLike, residual: ArrayLike, epsilon: ArrayLike) -> Floats:
    """Returns log δ(ε) of a posterior sample from with to without the record; −∞ exactly from ε = c₀/2 on."""
    mu, a, at = alike(leverage, np.abs(residual), epsilon)
    square = np.log1p(mu) + a * a / (1 + mu) - 2 * at
    possible = (mu > 0) & (square > 0)
    answer = np.full(mu.shape, -math.inf)
    answer[possible] = _removed(mu[possible], a[possible], at[possible], np.sqrt(square[possible]))
    return answer


def _removed(mu: Floats, a: Floats, epsilon: Floats, w: Floats) -> Floats:
    """log ∫ over |W| < w of q·(1 − e^((W² − w²)/2)), in ρ = (w − W)/s; u is where w lies, in deviations left of m."""
    with_it = 1 + mu
    m, s = a / with_it, np.sqrt(mu / with_it)
    u = (2 * epsilon - np.log1p(mu) - a * a * mu / with_it**2) / ((m + w) * s)
    peak = np.maximum(u, 0.0)
    first = np.maximum(-u - math.sqrt(2 * EXPONENT), 0.0)
    last = np.minimum(2 * w / s, np.sqrt(peak**2 + 2 * EXPONENT) - u)
    rho = first[:, None] + (last - first)[:, None] * PLACES
    density = np.exp((peak[:, None] - u[:, None] - rho) * (peak[:, None] + u[:, None] + rho) / 2)
    gain = -np.expm1(-rho * s[:, None] * (w[:, None] - s[:, None] * rho / 2))
    total = (last - first) * ((density * gain) @ WEIGHTS)
    return np.asarray(np.minimum(np.log(total) - peak**2 / 2 - LOG_ROOT_2PI, 0.0))


class ObjectiveLoss(NamedTuple):
    """The loss, given z: normal with mean Az² + Bz + C and deviation |offset + stretch·z|·spread."""

    A: Floats
    B: Floats
    C: Floats
    offset: Floats
    stretch: Floats
    spread: Floats


def objective_log_delta(
    leverage: ArrayLike, residual: ArrayLike, square: ArrayLike, reach: ArrayLike, sigma: float, epsilon: ArrayLike
) -> tuple[Floats, Floats]:
    """Returns log δ(ε) for adding and for removing a record: ridge regression with Gaussian noise in its objective."""
    given = alike(leverage, residual, square, reach, epsilon)
    mu, r, xx, gg, at = (values.ravel() for values in given)
    answers = np.full((2, mu.size), -math.inf)
    for start in range(0, mu.size, CHUNK):
        part = slice(start, start + CHUNK)
        for answer, removing in zip(answers, (False, True), strict=True):
            answer[part] = _integrated(objective_loss(mu[part], r[part], xx[part], gg[part], sigma, removing), at[part])
    return answers[0].reshape(given[0].shape), answers[1].reshape(given[0].shape)


def objective_loss(mu: Floats, r: Floats, xx: Floats, gg: Floats, sigma: float, removing: bool) -> ObjectiveLoss:
    """z is the part of b along g. Given z the other part of xᵀb is normal, and the loss is linear in it."""
    sign, with_it = (-1.0, 1 + mu) if removing else (1.0, np.ones_like(mu))
    g, r = np.sqrt(gg) / with_it, r / with_it
    along = np.divide(mu, np.sqrt(gg), out=np.zeros_like(mu), where=gg > 0)  # xᵀg/‖g‖, the same with and without
    A = sign * along * g + xx * g**2 / 2
    B = sign * r * along / sigma + xx * r * g / sigma
    C = -sign * np.log1p(mu) + xx * r**2 / (2 * sigma**2)
    return ObjectiveLoss(A, B, C, r, sigma * g, np.sqrt(np.maximum(xx - along**2, 0.0)) / sigma)


def _integrated(loss: ObjectiveLoss, epsilon: Floats) -> Floats:
    """log E(1 − e^(ε−L))₊, with the line cut where the mean of L passes ε and where its deviation is 0."""
    cuts = _cuts(loss, epsilon)
    total = np.zeros_like(epsilon)
    column = ObjectiveLoss(*(part[:, None] for part in loss))
    for left, right in pairwise(cuts):
        z = left[:, None] + (right - left)[:, None] * PLACES
        mean = (column.A * z + column.B) * z + column.C - epsilon[:, None]
        gain = _gain(mean, np.abs(column.offset + column.stretch * z) * column.spread)
        total += (right - left) * ((np.exp(-z * z / 2 - LOG_ROOT_2PI) * gain) @ WEIGHTS)
    with np.errstate(divide="ignore"):
        return np.log(total)


def _cuts(loss: ObjectiveLoss, epsilon: Floats) -> Floats:
    half, C = loss.B / 2, loss.C - epsilon
    root = np.sqrt(np.maximum(half**2 - loss.A * C, 0.0))
    q = -(half + np.where(half < 0, -root, root))  # neither root is a difference
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.stack([q / loss.A, C / q, -loss.offset / loss.stretch, np.zeros_like(q)])
    inner = np.clip(np.nan_to_num(inner, nan=0.0), -REACH, REACH)
    ends = np.full((1, len(epsilon)), REACH)
    return np.sort(np.concatenate([-ends, inner, ends]), axis=0)


def _gain(mean: Floats, deviation: Floats) -> Floats:
    """Returns E(1 − e^−L)₊ for L normal."""
    certain = deviation <= 1e-12 * np.abs(mean)
    tau = np.where(certain, 1.0, deviation)
    t = -mean / tau
    left = np.maximum(t, LEFT)
    usual = np.exp(-left * left / 2 - LOG_ROOT_2PI) * mills(left, tau)[0]
    value = np.where(t < LEFT, _gain_left(np.minimum(t, LEFT), tau), usual)
    return np.where(certain, -np.expm1(-np.maximum(mean, 0.0)), value)


def _gain_left(t: Floats, tau: Floats) -> Floats:
    y = tau * (t + tau / 2)
    small = -np.expm1(np.minimum(y, 0.0)) * ndtr(-t - tau) + (ndtr(-t) - ndtr(-t - tau))
    large = ndtr(-t) - np.exp(np.minimum(y + log_ndtr(-t - tau), 0.0))
    return np.asarray(np.where(y < 0, small, large))
