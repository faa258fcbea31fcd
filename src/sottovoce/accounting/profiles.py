# SPDX-License-Identifier: Apache-2.0
"""What one record loses to Gaussian noise or to a posterior sample: ε at δ, exactly
(docs/theory/per-instance.md).

Neighbours by adding one record; of the two directions the worse one counts. Entry by entry, for
millions of records.

    symbol    name
    D         distance, ‖θ − θ'‖ in units of the noise
    μ         leverage xᵀH⁻¹x of the record where it is absent
    a         residual √γ·|y − xᵀθ| where it is absent; γ is the posterior's temperature
    t, g      where the log-ratio passes ε: t standard deviations out under the one law, t + g under
              the other
    M         Mills' ratio Φ̄/φ
    κ         (1 + μ)^(−½)

    Gaussian noise       δ = φ(t)·[M(t) − M(t+g)],  t = ε/D − D/2,  g = D           (theorem 1)
    posterior sample     δ = φ(t)·{M(t) − κM(t+g) + E·[M(t₂) − κM(t₂+g₂)]}          (theorem 3)

Every term is positive, so nothing cancels, and e^ε is never formed. ε is found in the variable t,
in which log δ is nearly a parabola: each look at δ yields its first two derivatives for free, and
the parabola is solved. Two looks are usual; an interval that holds the answer is kept all the
while.

Profiles that are one integral: removing a record from a posterior, and ridge regression with noise
in its objective.

Both integrands are positive and smooth between known points. Tanh–sinh nodes crowd at both ends of
an interval, so a thin layer there costs nothing (docs/theory/per-instance.md, theorems 3 and 7).

    symbol       name
    μ, a         leverage and residual as above
    ‖x‖², ‖g‖²   square and reach: squared lengths of a record x and of g = H⁻¹x, where the record
                 is absent
    r, σ         residual y − xᵀθ where it is absent, and sigma: b ~ N(0, σ²I) in ½‖y − Xθ‖² +
                 ½λ‖θ‖² + bᵀθ
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, expit, log_ndtr, ndtr, ndtri

from sottovoce.arrays import Floats, broadcast_floats, to_doubles
from sottovoce.errors import InvalidParameter

#: So many records at a time: their temporaries stay in the cache.
CHUNK = 16384
#: An answer stands if the cube of the last step, which is about its error, is below this share of
#: ε.
CONVERGENCE = 1e-12
#: Never reached: the interval is halved whenever a step leaves it.
MAX_EVALUATIONS = 200
#: Further left erfcx overflows; here already δ is 1 in doubles.
SMALLEST_T = -37.0
#: The far side of the posterior's tail is left out where it weighs less than e^−NEGLIGIBLE of the
#: near one.
NEGLIGIBLE = 40.0
#: A gap g is narrow if g·max(t, WIDEST) < NARROW; then Mills' ratio is expanded, else subtracted.
NARROW = 4.0
WIDEST = 32.0
#: Terms of that expansion, and how many do where no gap exceeds CLOSER.
ORDER = 9
LESS = 5
CLOSER = 0.02
LOG_ROOT_2PI = math.log(2 * math.pi) / 2
ROOT_HALF = math.sqrt(0.5)
ROOT_HALF_PI = math.sqrt(math.pi / 2)


class ProfilePoint(NamedTuple):
    """δ at some ε, and what a step needs: hazard −dlog δ/dε, density of the loss at ε over δ,
    dε/dt, d²ε/dt².
    """

    log_delta: Floats
    hazard: Floats
    density: Floats
    speed: Floats
    bend: Floats | float

    def step(self, log_target: Floats) -> Floats:
        """Return the dt that takes the parabola through this look to the target."""
        excess = self.log_delta - log_target
        slope = self.hazard * self.speed
        curve = (
            self.density - self.hazard - self.hazard**2
        ) * self.speed**2 - self.hazard * self.bend
        return np.asarray(
            2 * excess / (slope + np.sqrt(np.maximum(slope**2 - 2 * curve * excess, 0.0)))
        )

    def apply_step(self, epsilon: Floats, dt: Floats) -> Floats:
        """Return ε after a step of dt; not below 0, and not past the turning point of ε(t)."""
        return np.maximum(
            epsilon + dt * np.maximum(self.speed + self.bend * dt / 2, self.speed / 2), 0.0
        )


def gaussian_log_delta(distance: ArrayLike, epsilon: ArrayLike) -> Floats:
    """Return log δ(ε) of Gaussian noise, −∞ where the distance is 0.

    Parameters
    ----------
    distance : ArrayLike
        How far the record moves the answer, in standard deviations of the noise.
    epsilon : ArrayLike
        ε ≥ 0.

    Returns
    -------
    Floats
        log δ, in the shape of the arguments.
    """
    D, at = broadcast_floats(distance, epsilon)
    return _compute_where(
        D > 0, (D, at), lambda D, at: _evaluate_gaussian(D[None], at).log_delta, -math.inf
    )


def gaussian_epsilon(distance: ArrayLike, delta: ArrayLike) -> Floats:
    """Return the least ε ≥ 0 with δ(ε) ≤ δ for Gaussian noise.

    Parameters
    ----------
    distance : ArrayLike
        How far the record moves the answer, in standard deviations of the noise.
    delta : ArrayLike
        δ in (0, 1).

    Returns
    -------
    Floats
        ε, 0 exactly where 2Φ(D/2) − 1 ≤ δ.
    """
    D, level = broadcast_floats(distance, check_delta(delta))
    found = _compute_where(np.isfinite(D) & (D > 0), (D, level), _find_gaussian_roots, 0.0)
    return np.where(np.isfinite(D), found, D)  # infinite or NaN stay what they are


def radial_epsilon(distance: ArrayLike, rate: float) -> Floats:
    """Return the pure ε of noise with density ∝ exp(−rate·‖b‖): rate times ‖θ − θ'‖, attained
    (theorem 2).
    """
    return np.asarray(rate * np.asarray(distance, dtype=np.float64))


def posterior_log_delta(leverage: ArrayLike, residual: ArrayLike, epsilon: ArrayLike) -> Floats:
    """Return log δ(ε) of a posterior sample, in the worse direction.

    Parameters
    ----------
    leverage : ArrayLike
        μ of the record.
    residual : ArrayLike
        a of the record, in standard deviations of the sample.
    epsilon : ArrayLike
        ε ≥ 0.

    Returns
    -------
    Floats
        log δ from without to with the record (theorem 4).
    """
    mu, a, at = broadcast_floats(leverage, residual, epsilon)

    def compute(mu: Floats, a: Floats, at: Floats) -> Floats:
        return _evaluate_posterior(_prepare_constants(mu, a), at).log_delta

    return _compute_where(mu > 0, (mu, np.abs(a), at), compute, -math.inf)


def posterior_epsilon(leverage: ArrayLike, residual: ArrayLike, delta: ArrayLike) -> Floats:
    """Return the least ε ≥ 0 with δ(ε) ≤ δ for a posterior sample, in both directions.

    Parameters
    ----------
    leverage : ArrayLike
        μ of the record.
    residual : ArrayLike
        a of the record, in standard deviations of the sample.
    delta : ArrayLike
        δ in (0, 1).

    Returns
    -------
    Floats
        ε, ∞ where μ or a is.
    """
    mu, a, level = broadcast_floats(leverage, residual, check_delta(delta))
    finite = np.isfinite(mu) & np.isfinite(a)
    found = _compute_where(finite & (mu > 0), (mu, np.abs(a), level), _find_posterior_roots, 0.0)
    return np.where(finite, found, mu + np.abs(a))  # infinite or NaN stay what they are


def posterior_bound(
    leverage: ArrayLike, residual: ArrayLike, delta: ArrayLike
) -> tuple[Floats, Floats]:
    """Return closed bounds on ε for adding and for removing a record: the published theorem,
    repaired.
    """
    mu, a, level = broadcast_floats(leverage, np.abs(residual), check_delta(delta))
    z = -ndtri(level / 2)
    z1 = -ndtri(level)
    log = np.log1p(mu)
    with_it = 1 + mu
    adding = (a**2 * mu / with_it - log) / 2 + mu * z**2 / 2 + a * np.sqrt(mu) * z
    largest = (log + a**2 / with_it) / 2
    usual = (log + a**2 * mu / with_it**2) / 2 + z1 * a * np.sqrt(mu) / with_it**1.5
    return np.maximum(adding, 0.0), np.where(
        mu > 0, np.maximum(np.minimum(largest, usual), 0.0), 0.0
    )


def compute_mills(t: Floats, gap: Floats) -> tuple[Floats, Floats]:
    """Return M(t) − M(t+gap) and M(t+gap), gap ≥ 0, t ≥ −37.

    Relative error a few times max(1, t²)·2⁻⁵².
    """
    narrow = gap * np.maximum(t, WIDEST) < NARROW
    if narrow.all():
        return _compute_narrow_mills(t, gap)
    if not narrow.any():
        return _compute_wide_mills(t, gap)
    difference = np.empty_like(t)
    upper = np.empty_like(t)
    for part, ratio in ((narrow, _compute_narrow_mills), (~narrow, _compute_wide_mills)):
        difference[part], upper[part] = ratio(t[part], gap[part])
    return difference, upper


def _compute_narrow_mills(t: Floats, gap: Floats) -> tuple[Floats, Floats]:
    """Taylor's series about the middle; M' = cM − 1, and M⁽ʲ⁾ = cM⁽ʲ⁻¹⁾ + (j−1)M⁽ʲ⁻²⁾."""
    half = gap / 2
    c = t + half
    terms = [ROOT_HALF_PI * erfcx(c * ROOT_HALF)]
    terms.append(c * terms[0] - 1)
    if gap.max() > CLOSER:
        order = ORDER
    else:
        order = LESS
    for j in range(2, order + 1):  # M⁽ʲ⁾/j!
        terms.append((c * terms[-1] + terms[-2]) * (1 / j))
    square = half * half
    even = terms[order - 1]
    odd = terms[order]
    for j in range(order - 3, -1, -2):
        even = even * square + terms[j]
        odd = odd * square + terms[j + 1]
    odd = odd * half
    return _floor_difference(-2 * odd, t, gap), even + odd


def _compute_wide_mills(t: Floats, gap: Floats) -> tuple[Floats, Floats]:
    upper = ROOT_HALF_PI * erfcx((t + gap) * ROOT_HALF)
    return _floor_difference(ROOT_HALF_PI * erfcx(t * ROOT_HALF) - upper, t, gap), upper


def _floor_difference(difference: Floats, t: Floats, gap: Floats) -> Floats:
    """−M'(u) > 1/(u² + 3): so far out that doubles cannot subtract, this is as good."""
    return np.asarray(np.maximum(difference, gap / ((np.abs(t) + gap) ** 2 + 3)))


def _evaluate_gaussian(constants: Floats, epsilon: Floats) -> ProfilePoint:
    D = constants[0]
    t = np.maximum(epsilon / D - D / 2, SMALLEST_T)
    bracket, upper = compute_mills(t, D)
    return ProfilePoint(
        np.log(bracket) - t * t / 2 - LOG_ROOT_2PI, upper / bracket, 1 / (D * bracket), D, 0.0
    )


def _start_gaussian(constants: Floats, delta: Floats) -> Floats:
    D = constants[0]
    t = _approximate_start(delta, lambda t: (D, 0.0, 0.0))
    return np.asarray(np.maximum(D * (t + D / 2), 0.0))


def _prepare_constants(mu: Floats, a: Floats) -> Floats:
    """Rows: a, μ, √μ, S = √(1+μ), log(1+μ), 1 − κ, a/S."""
    S = np.sqrt(1 + mu)
    return np.stack([a, mu, np.sqrt(mu), S, np.log1p(mu), mu / (S * (S + 1)), a / S])


def _evaluate_posterior(constants: Floats, epsilon: Floats) -> ProfilePoint:
    a, mu, root, S, log, less, b = constants
    w = np.sqrt(log + b * b + 2 * epsilon)  # the log-ratio passes ε at W = ±w
    t = np.maximum((2 * epsilon + log - b * b * mu) / ((w + a) * root), SMALLEST_T)  # (w − a)/√μ
    bracket, slope = compute_mills(t, root / (S + 1) * (w + b))
    bracket = bracket + less * slope
    slope = slope / S
    weight = np.ones_like(w)
    apart = 2 * w * a / mu
    near = apart < NEGLIGIBLE
    if near.any():
        _add_far_side(
            constants[:, near], epsilon[near], w[near], apart[near], (bracket, slope, weight), near
        )
    speed = w * root
    log_delta = np.log(bracket) - t * t / 2 - LOG_ROOT_2PI
    return ProfilePoint(log_delta, slope / bracket, weight / (speed * bracket), speed, mu)


def _add_far_side(
    constants: Floats,
    epsilon: Floats,
    w: Floats,
    apart: Floats,
    sums: tuple[Floats, Floats, Floats],
    where: NDArray[np.bool_],
) -> None:
    """Add what lies beyond −w to (bracket, slope, weight), in place."""
    a, _, root, S, log, less, b = constants
    difference, upper = compute_mills(
        (w + a) / root, root / (S + 1) * (2 * epsilon + log) / (w + b)
    )  # w − b, written out
    weight = np.exp(-apart)
    for total, part in zip(sums, (difference + less * upper, upper / S, 1.0), strict=True):
        total[where] += weight * part


def _start_posterior(constants: Floats, delta: Floats) -> Floats:
    a, mu, root, S, log, less, b = constants

    def shape(t: Floats) -> tuple[Floats, Floats, Floats]:
        return root / (S + 1) * (a + root * t + b), less, np.exp(-2 * (a + root * t) * a / mu)

    t = _approximate_start(delta, shape)
    return np.asarray(np.maximum((b * b * mu - log) / 2 + root * t * (a + root * t / 2), 0.0))


def _approximate_start(
    delta: Floats, shape: Callable[[Floats], tuple[Floats | float, ...]]
) -> Floats:
    """Return a t near the answer: δ ≈ Φ̄(t)·(1 + E)·(g + (1−κ)q)/(q + g), where q ≈ 1/(1/M(t) −
    t).
    """
    t = _upper_quantile(delta)
    for _ in range(2):
        gap, less, far = shape(t)
        q = 1.25 + 0.8 * t
        t = _upper_quantile(delta * (q + gap) / ((gap + less * q) * (1 + far)))
    return t


def _upper_quantile(p: Floats) -> Floats:
    """Φ̄⁻¹(min(p, ½)) within 0.003 (Hastings): enough to start from, and cheap."""
    s = np.sqrt(-2 * np.log(np.minimum(p, 0.5)))
    return np.asarray(
        np.maximum(s - (2.30753 + 0.27061 * s) / (1 + s * (0.99229 + 0.04481 * s)), 0.0)
    )


def _find_roots(
    look: Callable[[Floats, Floats], ProfilePoint],
    constants: Floats,
    epsilon: Floats,
    delta: Floats,
) -> Floats:
    """Return ε with log δ(ε) = log δ, or 0 where δ(0) ≤ δ; ``epsilon`` is where to start."""
    found = np.full_like(epsilon, np.nan)
    left = np.arange(len(epsilon))
    log_target = np.log(delta)
    # 0 itself may still be looked at
    low = np.full_like(epsilon, -1.0)
    high = np.full_like(epsilon, math.inf)
    for _ in range(MAX_EVALUATIONS):
        seen = look(constants, epsilon)
        above = seen.log_delta > log_target
        low = np.where(above, epsilon, low)
        high = np.where(above, high, epsilon)
        dt = seen.step(log_target)
        new = seen.apply_step(epsilon, dt)
        settled = (seen.speed * (dt * dt * np.abs(dt)) <= CONVERGENCE * new) | (high == 0)
        found[left[settled]] = new[settled]
        if settled.all():
            break
        new = np.where((new <= low) | (new >= high), (low + high) / 2, new)
        on = ~settled
        left = left[on]
        constants = constants[:, on]
        log_target = log_target[on]
        low = low[on]
        high = high[on]
        epsilon = new[on]
    return found


def _find_gaussian_roots(D: Floats, delta: Floats) -> Floats:
    constants = D[None]
    return _find_roots(_evaluate_gaussian, constants, _start_gaussian(constants, delta), delta)


def _find_posterior_roots(mu: Floats, a: Floats, delta: Floats) -> Floats:
    constants = _prepare_constants(mu, a)
    return _find_roots(_evaluate_posterior, constants, _start_posterior(constants, delta), delta)


def _compute_where(
    participating: NDArray[np.bool_],
    given: tuple[Floats, ...],
    compute: Callable[..., Floats],
    otherwise: float,
) -> Floats:
    """Return ``compute`` of the records that take part, chunk by chunk, and a constant
    elsewhere.
    """
    answer = np.full(participating.size, otherwise)
    flat = [values.ravel() for values in given]
    kept = participating.ravel()
    for start in range(0, participating.size, CHUNK):
        here = kept[start : start + CHUNK]
        if here.any():
            part = [values[start : start + CHUNK][here] for values in flat]
            answer[start : start + CHUNK][here] = compute(*part)
    return answer.reshape(participating.shape)


def check_delta(delta: ArrayLike) -> Floats:
    """Returns δ as doubles, or refuses."""
    values = to_doubles(delta, "δ", "delta")
    if not np.all((values > 0) & (values < 1)):
        raise InvalidParameter(
            "A δ is not between 0 and 1.",
            "0 < δ < 1 is needed.",
            "Give a δ such as 1e-6.",
            parameter="delta",
        )
    return values


def one_probability(delta: ArrayLike) -> float:
    """Returns one δ, or refuses."""
    values = check_delta(delta)
    if values.ndim:
        raise InvalidParameter(
            "There are several δ.",
            "Losses are told at one.",
            "Give a δ such as 1e-6.",
            parameter="delta",
        )
    return float(values)


#: e^−45 is below the last place of a double.
NEGLIGIBLE_EXPONENT = 45.0
#: The normal distribution is integrated over so many standard deviations on either side; 10⁻³² is
#: left out.
MAX_DEVIATIONS = 12.0
_NODES = np.arange(-78, 79) * 0.045
#: Places in (0, 1), measured from the left, and their weights.
QUADRATURE_POINTS = expit(math.pi * np.sinh(_NODES))
QUADRATURE_WEIGHTS = (
    0.045 * math.pi * np.cosh(_NODES) * QUADRATURE_POINTS * expit(-math.pi * np.sinh(_NODES))
)
#: Left of here, in standard deviations, the gain is written with expm1.
EXPM1_BELOW = -6.0
INTEGRAL_CHUNK = 512


def posterior_log_delta_remove(
    leverage: ArrayLike, residual: ArrayLike, epsilon: ArrayLike
) -> Floats:
    """Return log δ(ε) of a posterior sample from with to without the record.

    −∞ exactly from ε = c₀/2 on.
    """
    mu, a, at = broadcast_floats(leverage, np.abs(residual), epsilon)
    square = np.log1p(mu) + a * a / (1 + mu) - 2 * at
    possible = (mu > 0) & (square > 0)
    answer = np.full(mu.shape, -math.inf)
    answer[possible] = _integrate_removal(
        mu[possible], a[possible], at[possible], np.sqrt(square[possible])
    )
    return answer


def _integrate_removal(mu: Floats, a: Floats, epsilon: Floats, w: Floats) -> Floats:
    """log ∫ over |W| < w of q·(1 − e^((W² − w²)/2)), in ρ = (w − W)/s.

    u is where w lies, in deviations left of m.
    """
    with_it = 1 + mu
    m = a / with_it
    s = np.sqrt(mu / with_it)
    u = (2 * epsilon - np.log1p(mu) - a * a * mu / with_it**2) / ((m + w) * s)
    peak = np.maximum(u, 0.0)
    first = np.maximum(-u - math.sqrt(2 * NEGLIGIBLE_EXPONENT), 0.0)
    last = np.minimum(2 * w / s, np.sqrt(peak**2 + 2 * NEGLIGIBLE_EXPONENT) - u)
    rho = first[:, None] + (last - first)[:, None] * QUADRATURE_POINTS
    density = np.exp((peak[:, None] - u[:, None] - rho) * (peak[:, None] + u[:, None] + rho) / 2)
    gain = -np.expm1(-rho * s[:, None] * (w[:, None] - s[:, None] * rho / 2))
    total = (last - first) * ((density * gain) @ QUADRATURE_WEIGHTS)
    return np.asarray(np.minimum(np.log(total) - peak**2 / 2 - LOG_ROOT_2PI, 0.0))


class ObjectiveLoss(NamedTuple):
    """The loss, given z: normal with mean Az² + Bz + C and deviation |offset +
    stretch·z|·spread.
    """

    A: Floats
    B: Floats
    C: Floats
    offset: Floats
    stretch: Floats
    spread: Floats


def objective_log_delta(
    leverage: ArrayLike,
    residual: ArrayLike,
    square: ArrayLike,
    reach: ArrayLike,
    sigma: float,
    epsilon: ArrayLike,
) -> tuple[Floats, Floats]:
    """Return log δ(ε) for adding and for removing a record: ridge regression with Gaussian noise
    in its objective.
    """
    given = broadcast_floats(leverage, residual, square, reach, epsilon)
    mu, r, xx, gg, at = (values.ravel() for values in given)
    answers = np.full((2, mu.size), -math.inf)
    for start in range(0, mu.size, INTEGRAL_CHUNK):
        part = slice(start, start + INTEGRAL_CHUNK)
        for answer, removing in zip(answers, (False, True), strict=True):
            answer[part] = _integrate_loss(
                make_objective_loss(mu[part], r[part], xx[part], gg[part], sigma, removing),
                at[part],
            )
    return answers[0].reshape(given[0].shape), answers[1].reshape(given[0].shape)


def make_objective_loss(
    mu: Floats, r: Floats, xx: Floats, gg: Floats, sigma: float, removing: bool
) -> ObjectiveLoss:
    """z is the part of b along g.

    Given z the other part of xᵀb is normal, and the loss is linear in it.
    """
    if removing:
        sign, with_it = (-1.0, 1 + mu)
    else:
        sign, with_it = (1.0, np.ones_like(mu))
    g = np.sqrt(gg) / with_it
    r = r / with_it
    along = np.divide(
        mu, np.sqrt(gg), out=np.zeros_like(mu), where=gg > 0
    )  # xᵀg/‖g‖, the same with and without
    A = sign * along * g + xx * g**2 / 2
    B = sign * r * along / sigma + xx * r * g / sigma
    C = -sign * np.log1p(mu) + xx * r**2 / (2 * sigma**2)
    return ObjectiveLoss(A, B, C, r, sigma * g, np.sqrt(np.maximum(xx - along**2, 0.0)) / sigma)


def _integrate_loss(loss: ObjectiveLoss, epsilon: Floats) -> Floats:
    """log E(1 − e^(ε−L))₊, with the line cut where the mean of L passes ε and where its deviation
    is 0.
    """
    cuts = _find_cuts(loss, epsilon)
    total = np.zeros_like(epsilon)
    column = ObjectiveLoss(*(part[:, None] for part in loss))
    for left, right in pairwise(cuts):
        z = left[:, None] + (right - left)[:, None] * QUADRATURE_POINTS
        mean = (column.A * z + column.B) * z + column.C - epsilon[:, None]
        gain = _compute_gain(mean, np.abs(column.offset + column.stretch * z) * column.spread)
        total += (right - left) * ((np.exp(-z * z / 2 - LOG_ROOT_2PI) * gain) @ QUADRATURE_WEIGHTS)
    with np.errstate(divide="ignore"):
        return np.log(total)


def _find_cuts(loss: ObjectiveLoss, epsilon: Floats) -> Floats:
    half = loss.B / 2
    C = loss.C - epsilon
    root = np.sqrt(np.maximum(half**2 - loss.A * C, 0.0))
    q = -(half + np.where(half < 0, -root, root))  # neither root is a difference
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.stack([q / loss.A, C / q, -loss.offset / loss.stretch, np.zeros_like(q)])
    inner = np.clip(np.nan_to_num(inner, nan=0.0), -MAX_DEVIATIONS, MAX_DEVIATIONS)
    ends = np.full((1, len(epsilon)), MAX_DEVIATIONS)
    return np.sort(np.concatenate([-ends, inner, ends]), axis=0)


def _compute_gain(mean: Floats, deviation: Floats) -> Floats:
    """Return E(1 − e^−L)₊ for L normal."""
    certain = deviation <= 1e-12 * np.abs(mean)
    tau = np.where(certain, 1.0, deviation)
    t = -mean / tau
    left = np.maximum(t, EXPM1_BELOW)
    usual = np.exp(-left * left / 2 - LOG_ROOT_2PI) * compute_mills(left, tau)[0]
    value = np.where(t < EXPM1_BELOW, _compute_gain_left(np.minimum(t, EXPM1_BELOW), tau), usual)
    return np.where(certain, -np.expm1(-np.maximum(mean, 0.0)), value)


def _compute_gain_left(t: Floats, tau: Floats) -> Floats:
    y = tau * (t + tau / 2)
    small = -np.expm1(np.minimum(y, 0.0)) * ndtr(-t - tau) + (ndtr(-t) - ndtr(-t - tau))
    large = ndtr(-t) - np.exp(np.minimum(y + log_ndtr(-t - tau), 0.0))
    return np.asarray(np.where(y < 0, small, large))
