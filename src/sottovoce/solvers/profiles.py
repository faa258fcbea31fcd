# SPDX-License-Identifier: Apache-2.0
"""What one record loses to Gaussian noise or to a posterior sample: ε at δ, exactly (docs/theory/per-instance.md).

Neighbours by adding one record; of the two directions the worse one counts. Entry by entry, for millions of records.

    symbol    name
    D         distance, ‖θ − θ'‖ in units of the noise
    μ         leverage xᵀH⁻¹x of the record where it is absent
    a         residual √γ·|y − xᵀθ| where it is absent; γ is the posterior's temperature
    t, g      where the log-ratio passes ε: t standard deviations out under the one law, t + g under the other
    M         Mills' ratio Φ̄/φ
    κ         (1 + μ)^(−½)

    Gaussian noise       δ = φ(t)·[M(t) − M(t+g)],  t = ε/D − D/2,  g = D                                  (theorem 1)
    posterior sample     δ = φ(t)·{M(t) − κM(t+g) + E·[M(t₂) − κM(t₂+g₂)]}                                 (theorem 3)

Every term is positive, so nothing cancels, and e^ε is never formed. ε is found in the variable t, in which log δ is
nearly a parabola: each look at δ yields its first two derivatives for free, and the parabola is solved. Two looks are
usual; an interval that holds the answer is kept all the while.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtri

from sottovoce.errors import InvalidParameter, UnequalLengths
from sottovoce.table import doubles

Floats = NDArray[np.float64]

#: So many records at a time: their temporaries stay in the cache.
CHUNK = 16384
#: An answer stands if the cube of the last step, which is about its error, is below this share of ε.
CLOSE = 1e-12
#: Never reached: the interval is halved whenever a step leaves it.
LOOKS = 200
#: Further left erfcx overflows; here already δ is 1 in doubles.
DEEPEST = -37.0
#: The far side of the posterior's tail is left out where it weighs less than e^−NEGLIGIBLE of the near one.
NEGLIGIBLE = 40.0
#: A gap g is narrow if g·max(t, WIDEST) < NARROW; then Mills' ratio is expanded, else subtracted.
NARROW, WIDEST = 4.0, 32.0
#: Terms of that expansion, and how many do where no gap exceeds CLOSER.
ORDER, LESS, CLOSER = 9, 5, 0.02
LOG_ROOT_2PI = math.log(2 * math.pi) / 2
ROOT_HALF, ROOT_HALF_PI = math.sqrt(0.5), math.sqrt(math.pi / 2)


class Look(NamedTuple):
    """δ at some ε, and what a step needs: hazard −dlog δ/dε, density of the loss at ε over δ, dε/dt, d²ε/dt²."""

    log_delta: Floats
    hazard: Floats
    density: Floats
    speed: Floats
    bend: Floats | float

    def step(self, log_target: Floats) -> Floats:
        """Returns the dt that takes the parabola through this look to the target."""
        excess = self.log_delta - log_target
        slope = self.hazard * self.speed
        curve = (self.density - self.hazard - self.hazard**2) * self.speed**2 - self.hazard * self.bend
        return np.asarray(2 * excess / (slope + np.sqrt(np.maximum(slope**2 - 2 * curve * excess, 0.0))))

    def apply_step(self, epsilon: Floats, dt: Floats) -> Floats:
        """Returns ε after a step of dt; not below 0, and not past the turning point of ε(t)."""
        return np.maximum(epsilon + dt * np.maximum(self.speed + self.bend * dt / 2, self.speed / 2), 0.0)


def gaussian_log_delta(distance: ArrayLike, epsilon: ArrayLike) -> Floats:
    """Returns log δ(ε) of Gaussian noise, −∞ where the distance is 0."""
    D, at = alike(distance, epsilon)
    return _where_heard(D > 0, (D, at), lambda D, at: _gaussian_look(D[None], at).log_delta, -math.inf)


def gaussian_epsilon(distance: ArrayLike, delta: ArrayLike) -> Floats:
    """Returns the least ε ≥ 0 with δ(ε) ≤ δ for Gaussian noise: 0 exactly where 2Φ(D/2) − 1 ≤ δ."""
    D, level = alike(distance, probability(delta))
    found = _where_heard(np.isfinite(D) & (D > 0), (D, level), _gaussian_roots, 0.0)
    return np.where(np.isfinite(D), found, D)  # infinite or NaN stay what they are


def radial_epsilon(distance: ArrayLike, rate: float) -> Floats:
    """Returns the pure ε of noise with density ∝ exp(−rate·‖b‖): rate times ‖θ − θ'‖, attained (theorem 2)."""
    return np.asarray(rate * np.asarray(distance, dtype=np.float64))


def posterior_log_delta(leverage: ArrayLike, residual: ArrayLike, epsilon: ArrayLike) -> Floats:
    """Returns log δ(ε) of a posterior sample, from without to with the record: the worse direction (theorem 4)."""
    mu, a, at = alike(leverage, residual, epsilon)

    def compute(mu: Floats, a: Floats, at: Floats) -> Floats:
        return _posterior_look(_constants(mu, a), at).log_delta

    return _where_heard(mu > 0, (mu, np.abs(a), at), compute, -math.inf)


def posterior_epsilon(leverage: ArrayLike, residual: ArrayLike, delta: ArrayLike) -> Floats:
    """Returns the least ε ≥ 0 with δ(ε) ≤ δ for a posterior sample, in both directions; ∞ where μ or a is."""
    mu, a, level = alike(leverage, residual, probability(delta))
    finite = np.isfinite(mu) & np.isfinite(a)
    found = _where_heard(finite & (mu > 0), (mu, np.abs(a), level), _posterior_roots, 0.0)
    return np.where(finite, found, mu + np.abs(a))  # infinite or NaN stay what they are


def posterior_bound(leverage: ArrayLike, residual: ArrayLike, delta: ArrayLike) -> tuple[Floats, Floats]:
    """Returns closed bounds on ε for adding and for removing a record: the published theorem, repaired."""
    mu, a, level = alike(leverage, np.abs(residual), probability(delta))
    z, z1 = -ndtri(level / 2), -ndtri(level)
    log, with_it = np.log1p(mu), 1 + mu
    adding = (a**2 * mu / with_it - log) / 2 + mu * z**2 / 2 + a * np.sqrt(mu) * z
    largest = (log + a**2 / with_it) / 2
    usual = (log + a**2 * mu / with_it**2) / 2 + z1 * a * np.sqrt(mu) / with_it**1.5
    return np.maximum(adding, 0.0), np.where(mu > 0, np.maximum(np.minimum(largest, usual), 0.0), 0.0)


def mills(t: Floats, gap: Floats) -> tuple[Floats, Floats]:
    """Returns M(t) − M(t+gap) and M(t+gap), gap ≥ 0, t ≥ −37; relative error a few times max(1, t²)·2⁻⁵²."""
    narrow = gap * np.maximum(t, WIDEST) < NARROW
    if narrow.all():
        return _narrow(t, gap)
    if not narrow.any():
        return _wide(t, gap)
    difference, upper = np.empty_like(t), np.empty_like(t)
    for part, ratio in ((narrow, _narrow), (~narrow, _wide)):
        difference[part], upper[part] = ratio(t[part], gap[part])
    return difference, upper


def _narrow(t: Floats, gap: Floats) -> tuple[Floats, Floats]:
    """Taylor's series about the middle; M' = cM − 1, and M⁽ʲ⁾ = cM⁽ʲ⁻¹⁾ + (j−1)M⁽ʲ⁻²⁾."""
    half = gap / 2
    c = t + half
    terms = [ROOT_HALF_PI * erfcx(c * ROOT_HALF)]
    terms.append(c * terms[0] - 1)
    order = ORDER if gap.max() > CLOSER else LESS
    for j in range(2, order + 1):  # M⁽ʲ⁾/j!
        terms.append((c * terms[-1] + terms[-2]) * (1 / j))
    square = half * half
    even, odd = terms[order - 1], terms[order]
    for j in range(order - 3, -1, -2):
        even, odd = even * square + terms[j], odd * square + terms[j + 1]
    odd = odd * half
    return _at_least(-2 * odd, t, gap), even + odd


def _wide(t: Floats, gap: Floats) -> tuple[Floats, Floats]:
    upper = ROOT_HALF_PI * erfcx((t + gap) * ROOT_HALF)
    return _at_least(ROOT_HALF_PI * erfcx(t * ROOT_HALF) - upper, t, gap), upper


def _at_least(difference: Floats, t: Floats, gap: Floats) -> Floats:
    """−M'(u) > 1/(u² + 3): so far out that doubles cannot subtract, this is as good."""
    return np.asarray(np.maximum(difference, gap / ((np.abs(t) + gap) ** 2 + 3)))


def _gaussian_look(constants: Floats, epsilon: Floats) -> Look:
    D = constants[0]
    t = np.maximum(epsilon / D - D / 2, DEEPEST)
    bracket, upper = mills(t, D)
    return Look(np.log(bracket) - t * t / 2 - LOG_ROOT_2PI, upper / bracket, 1 / (D * bracket), D, 0.0)


def _gaussian_start(constants: Floats, delta: Floats) -> Floats:
    D = constants[0]
    t = _start(delta, lambda t: (D, 0.0, 0.0))
    return np.asarray(np.maximum(D * (t + D / 2), 0.0))


def _constants(mu: Floats, a: Floats) -> Floats:
    """Rows: a, μ, √μ, S = √(1+μ), log(1+μ), 1 − κ, a/S."""
    S = np.sqrt(1 + mu)
    return np.stack([a, mu, np.sqrt(mu), S, np.log1p(mu), mu / (S * (S + 1)), a / S])


def _posterior_look(constants: Floats, epsilon: Floats) -> Look:
    a, mu, root, S, log, less, b = constants
    w = np.sqrt(log + b * b + 2 * epsilon)  # the log-ratio passes ε at W = ±w
    t = np.maximum((2 * epsilon + log - b * b * mu) / ((w + a) * root), DEEPEST)  # (w − a)/√μ
    bracket, slope = mills(t, root / (S + 1) * (w + b))
    bracket, slope, weight = bracket + less * slope, slope / S, np.ones_like(w)
    apart = 2 * w * a / mu
    near = apart < NEGLIGIBLE
    if near.any():
        _add_far_side(constants[:, near], epsilon[near], w[near], apart[near], (bracket, slope, weight), near)
    speed = w * root
    log_delta = np.log(bracket) - t * t / 2 - LOG_ROOT_2PI
    return Look(log_delta, slope / bracket, weight / (speed * bracket), speed, mu)


def _add_far_side(
    constants: Floats,
    epsilon: Floats,
    w: Floats,
    apart: Floats,
    sums: tuple[Floats, Floats, Floats],
    where: NDArray[np.bool_],
) -> None:
    """Adds what lies beyond −w to (bracket, slope, weight), in place."""
    a, _, root, S, log, less, b = constants
    difference, upper = mills((w + a) / root, root / (S + 1) * (2 * epsilon + log) / (w + b))  # w − b, written out
    weight = np.exp(-apart)
    for total, part in zip(sums, (difference + less * upper, upper / S, 1.0), strict=True):
        total[where] += weight * part


def _posterior_start(constants: Floats, delta: Floats) -> Floats:
    a, mu, root, S, log, less, b = constants

    def shape(t: Floats) -> tuple[Floats, Floats, Floats]:
        return root / (S + 1) * (a + root * t + b), less, np.exp(-2 * (a + root * t) * a / mu)

    t = _start(delta, shape)
    return np.asarray(np.maximum((b * b * mu - log) / 2 + root * t * (a + root * t / 2), 0.0))


def _start(delta: Floats, shape: Callable[[Floats], tuple[Floats | float, ...]]) -> Floats:
    """Returns a t near the answer: δ ≈ Φ̄(t)·(1 + E)·(g + (1−κ)q)/(q + g), where q ≈ 1/(1/M(t) − t)."""
    t = _upper_quantile(delta)
    for _ in range(2):
        gap, less, far = shape(t)
        q = 1.25 + 0.8 * t
        t = _upper_quantile(delta * (q + gap) / ((gap + less * q) * (1 + far)))
    return t


def _upper_quantile(p: Floats) -> Floats:
    """Φ̄⁻¹(min(p, ½)) within 0.003 (Hastings): enough to start from, and cheap."""
    s = np.sqrt(-2 * np.log(np.minimum(p, 0.5)))
    return np.asarray(np.maximum(s - (2.30753 + 0.27061 * s) / (1 + s * (0.99229 + 0.04481 * s)), 0.0))


def _roots(look: Callable[[Floats, Floats], Look], constants: Floats, epsilon: Floats, delta: Floats) -> Floats:
    """Returns ε with log δ(ε) = log δ, or 0 where δ(0) ≤ δ; ``epsilon`` is where to start."""
    found, left, log_target = np.full_like(epsilon, np.nan), np.arange(len(epsilon)), np.log(delta)
    low, high = np.full_like(epsilon, -1.0), np.full_like(epsilon, math.inf)  # 0 itself may still be looked at
    for _ in range(LOOKS):
        seen = look(constants, epsilon)
        above = seen.log_delta > log_target
        low, high = np.where(above, epsilon, low), np.where(above, high, epsilon)
        dt = seen.step(log_target)
        new = seen.apply_step(epsilon, dt)
        settled = (seen.speed * (dt * dt * np.abs(dt)) <= CLOSE * new) | (high == 0)
        found[left[settled]] = new[settled]
        if settled.all():
            break
        new = np.where((new <= low) | (new >= high), (low + high) / 2, new)
        on = ~settled
        left, constants, log_target = left[on], constants[:, on], log_target[on]
        low, high, epsilon = low[on], high[on], new[on]
    return found


def _gaussian_roots(D: Floats, delta: Floats) -> Floats:
    constants = D[None]
    return _roots(_gaussian_look, constants, _gaussian_start(constants, delta), delta)


def _posterior_roots(mu: Floats, a: Floats, delta: Floats) -> Floats:
    constants = _constants(mu, a)
    return _roots(_posterior_look, constants, _posterior_start(constants, delta), delta)


def _where_heard(
    heard: NDArray[np.bool_], given: tuple[Floats, ...], compute: Callable[..., Floats], otherwise: float
) -> Floats:
    """Returns ``compute`` of the records that are heard, chunk by chunk, and a constant elsewhere."""
    answer = np.full(heard.size, otherwise)
    flat, kept = [values.ravel() for values in given], heard.ravel()
    for start in range(0, heard.size, CHUNK):
        here = kept[start : start + CHUNK]
        if here.any():
            part = [values[start : start + CHUNK][here] for values in flat]
            answer[start : start + CHUNK][here] = compute(*part)
    return answer.reshape(heard.shape)


def alike(*given: ArrayLike) -> tuple[Floats, ...]:
    """Returns doubles of one shape, or refuses."""
    arrays = [doubles(values, "An argument") for values in given]
    try:
        return np.broadcast_arrays(*arrays)
    except (ValueError, RuntimeError):
        pass  # raised below
    raise UnequalLengths("Arrays of different lengths are given.", "Each row needs all numbers.", "Pass one a row.")


def probability(delta: ArrayLike) -> Floats:
    """Returns δ as doubles, or refuses."""
    values = doubles(delta, "δ")
    if not np.all((values > 0) & (values < 1)):
        raise InvalidParameter("A δ is not between 0 and 1.", "0 < δ < 1 is needed.", "Give a δ such as 1e-6.")
    return values


def one_probability(delta: ArrayLike) -> float:
    """Returns one δ, or refuses."""
    values = probability(delta)
    if values.ndim:
        raise InvalidParameter("There are several δ.", "Losses are told at one.", "Give a δ such as 1e-6.")
    return float(values)
