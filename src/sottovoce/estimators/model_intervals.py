# SPDX-License-Identifier: Apache-2.0
"""Intervals of coefficients and of expected labels, from what releases of models say
(docs/theory/model-intervals.md).

A release of a model holds θ, or statistics from which it follows; what people quote are linear
functions cᵀθ: a coefficient in its own unit, or the expected label of a row. An interval of cᵀθ*,
θ* the coefficients of the whole population, follows from the equation that the release solves.

    symbol     name
    c          function    of θ; a row of a matrix of them
    θ*         the population's coefficients: those of least squares, or of the loss that is fitted
    S          the sum of the population's pulls over the rows: sampling, of mean zero
    E, b, Z    the noise, whose law is public; E on moments, b in an objective, Z on a solution

Noisy moments give ĉ − Ĝθ* = S + e − Eθ* (`find_moment_ends`), so θ* is where noise and sampling
can explain what is left. A map of labels gives θ̂ − θ* = C·(labels' noise) + e, which is read off
(`label_private.py`). Where only a bound on the smallest eigenvalue of the curvature is known, ends
come from it (`EigenvalueBound`). Where nothing is known of it, they are of what the same fit,
shrunk as strongly, gives on the whole population (`ShrunkFit`, `find_added_noise_ends`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy  # whose parts are loaded where they are used

from sottovoce.arrays import Floats, TableLike, to_matrix
from sottovoce.data.encoding import Recoding
from sottovoce.release import Intervals, Release

#: Rows may vary more where they count most: this many times the variance that rows of equal spread
#: would give.
UNEQUAL_SPREAD = 1.8
#: What intervals cover where nothing else is said.
LEAST_SQUARES = "the coefficients of least squares on the whole population"
#: What those from noisy statistics cover.
EVEN_LEAST_SQUARES = (
    "the coefficients of least squares on the whole population, if residuals vary at most 1.8 "
    "times as much where rows count most as they do on average"
)
FROM_MOMENTS = "the released variance of residuals, times 1.8 for rows of unequal spread"
#: Where nothing that was released tells by how much λ shrinks.
SHRUNK = (
    "the coefficients that the same fit, shrunk as strongly, gives on the whole population; those "
    "without shrinkage may lie outside"
)
FROM_BOUNDS = "the bounds: labels vary by at most half their range"
EARLIER = "This release was made by an earlier version, which did not tell what intervals need."
#: Frequencies of a law's Fourier series, over a period of so many standard deviations.
FREQUENCIES = np.arange(1, 2049)
#: They are looked at in blocks, up to where a law has none that count.
BLOCK_FREQUENCIES = 64
NEGLIGIBLE_HEIGHT = 1e-13
PERIOD = 60.0
#: An end is sought in so many steps, each relative to the last; beyond, there is none.
STEPS = 20
STEP_TOLERANCE = 1e-4
FARTHEST = 1e9


@dataclass(frozen=True)
class Ends:
    """Both ends of the intervals of several functions, half the widths of their two parts, and
    where sampling is known from.
    """

    low: Floats
    high: Floats
    noise: Floats
    sampling: Floats
    sampling_from: str
    of: str = LEAST_SQUARES

    def with_known_intercept(self) -> Ends:
        """The same, behind an intercept that is 0 by the model."""
        low, high, noise, sampling = (
            np.array([0.0, *part]) for part in (self.low, self.high, self.noise, self.sampling)
        )
        return Ends(low, high, noise, sampling, self.sampling_from, self.of)


def compute_sum_half_width(
    level: float, scales: Any, deviation: float, power: float = 1.0
) -> float:
    """Returns x with P(|Σ L_k + G| ≤ x) = level, L_k of Laplace's law with these scales, each so
    many times as ``power`` says, and G normal, all independent.

    By the Fourier series of the law on a period that it hardly ever leaves: its characteristic
    function is e^(−s²t²/2)·Π (1 + b_k²t²)^−power, which is one for every power above 0.
    """
    b = np.abs(np.asarray(scales, dtype=np.float64))
    total = math.sqrt(2 * power * float(b @ b) + deviation**2)
    if total == 0:
        return 0.0
    half = PERIOD / 2
    unit = b[b > 0] / total
    blocks = []
    for at in range(0, len(FREQUENCIES), BLOCK_FREQUENCIES):
        frequencies = FREQUENCIES[at : at + BLOCK_FREQUENCIES]
        t = frequencies * (math.pi / half)
        logs = -power * np.log1p(np.square(np.outer(unit, t))).sum(axis=0)
        logs -= (deviation / total * t) ** 2 / 2
        blocks.append(np.exp(logs))
        if blocks[-1][-1] < NEGLIGIBLE_HEIGHT:  # it falls, so that all others are smaller
            break
    heights = np.concatenate(blocks)
    which = FREQUENCIES[: len(heights)]
    heights /= which
    t = which * (math.pi / half)

    def exceeds(x: float) -> float:
        return x / half + 2 / math.pi * float(heights @ np.sin(t * x)) - level

    return total * float(scipy.optimize.brentq(exceeds, 0.0, half, xtol=1e-9))


def widen_variance(noisy: float, scale: float, level: float) -> float:
    """Returns the variance to be used in the place of one that was released with Laplace noise of
    this scale.

    With so many scales more than what was released, intervals cover at least as often as those that
    know the variance, whatever it is: what they lose where noise is negative, they gain where it is
    not (docs/theory/model-intervals.md).
    """
    return max(noisy, 0.0) + scale * max(1.0, -math.log1p(-level) / 3)


def list_coefficient_functions(recoding: Recoding, half: float) -> Floats:
    """Returns the functions of θ, a row each, that are intercept and coefficients in their own
    units, but for the middle of the label's range; θ belongs to rows (½, z) and labels in [−1, 1].
    """
    columns = []
    for j in range(recoding.width + 1):
        unit = np.zeros(recoding.width + 1)
        unit[j] = half
        intercept, coefficients = recoding.to_original_units(unit[0] / 2, unit[1:])
        columns.append(np.concatenate([[intercept], coefficients]))
    return np.column_stack(columns)


def list_prediction_functions(recoding: Recoding, raw: Floats, functions: Floats) -> Floats:
    """Returns the functions of θ, a row each, that are expected labels, from those that are
    intercept and coefficients.
    """
    columns = [predict_linear(recoding, raw, own[0], own[1:]) for own in functions.T]
    return np.column_stack(columns)


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """Second moments of (1, 2z, y) as they were released, and the laws of their noise and
    sampling.
    """

    gram: Floats
    cross: Floats
    square: float  # of the labels
    scale: float  # of the noise on a product: Laplace's, or a normal deviation
    square_factor: float  # of the noise on a square, in units of that on a product
    normal: bool
    concentration: float  # Σ W_l² over people

    @property
    def solution(self) -> Floats:
        """What the moments say without any shrinkage."""
        return np.asarray(np.linalg.solve(self.gram, self.cross), dtype=np.float64)

    def bound_second_order(self) -> float:
        """Returns 1 + (‖E‖/λ_min)², about: a = Ĝ⁻¹c has noise of its own, which (2) leaves out."""
        smallest = float(np.abs(np.linalg.eigvalsh(self.gram)).min())
        entry = self.scale
        if not self.normal:
            entry = math.sqrt(2) * entry
        return 1 + (2 * entry * math.sqrt(len(self.gram)) / smallest) ** 2

    def list_noise(self, a: Floats, theta: Floats) -> Floats:
        """Returns the sizes of the independent noises whose sum aᵀ(e − Eθ) is."""
        i, k = np.triu_indices(len(a), 1)
        products = a[i] * theta[k] + a[k] * theta[i]
        squares = self.square_factor * a[1:] * theta[1:]
        return self.scale * np.concatenate([products, squares, a])

    def widen_residual_square(self, theta: Floats, level: float) -> float:
        """Returns the mean squared residual, widened for its noise; never above 1, the square of
        half the range.
        """
        left = self.square - 2 * float(theta @ self.cross) + float(theta @ self.gram @ theta)
        i, k = np.triu_indices(len(theta), 1)
        factor = self.square_factor
        sizes = self.scale * np.concatenate(
            [2 * theta[i] * theta[k], factor * theta[1:] ** 2, 2 * theta, [factor]]
        )
        noise = float(np.linalg.norm(sizes))
        if self.normal:
            noise = noise / math.sqrt(2)
        return min(widen_variance(left, noise, level), 1.0)

    def find_half_width(self, level: float, sizes: Floats, deviation: float) -> float:
        """Returns what the sum of such noises and of sampling stays below."""
        if self.normal:
            return compute_sum_half_width(level, [], math.hypot(deviation, np.linalg.norm(sizes)))
        return compute_sum_half_width(level, sizes, deviation)


def find_moment_ends(moments: NoisyMoments, functions: Floats, level: float) -> Ends:
    """Returns the ends for functions of the solution of noisy moments; ±∞ where noise leaves
    nothing out.

    With a = Ĝ⁻¹c, cᵀ(θ̂ − θ*) = aᵀ(S + e − Eθ*): the noise depends on θ* itself. An end is the t
    that noise of the size it would have at cᵀθ* = t just reaches (Fieller 1954), among θ* the one
    that is nearest to θ̂.
    """
    theta = moments.solution
    left = moments.widen_residual_square(theta, level)
    sampling = UNEQUAL_SPREAD * left * moments.concentration
    inverse = np.linalg.inv(moments.gram)
    second = moments.bound_second_order()
    spread = inverse @ _sum_covariance(moments, theta, sampling) @ inverse
    found = []
    for c in functions:
        a = inverse @ c
        deviation = math.sqrt(sampling * max(float(a @ moments.gram @ a), 0.0))
        along = spread @ c
        size = float(c @ along)
        if size > 0:
            along = along / size
        noises = moments.list_noise(a, theta)
        value = float(c @ theta)
        first = moments.find_half_width(level, noises, deviation)  # of the noise at θ̂ itself
        ends = [
            value
            + sign * second * _find_reach(moments, a, theta, sign * along, deviation, level, first)
            for sign in (-1, 1)
        ]
        found.append(
            [
                *ends,
                moments.find_half_width(level, noises, 0.0),
                moments.find_half_width(level, np.zeros(1), deviation),
            ]
        )
    low, high, noise, rows = np.reshape(found, (-1, 4)).T
    return Ends(low, high, noise, rows, FROM_MOMENTS, EVEN_LEAST_SQUARES)


def _sum_covariance(moments: NoisyMoments, theta: Floats, sampling: float) -> Floats:
    """The covariance of S + e − Eθ."""
    d = len(theta)
    square = np.full(d, moments.square_factor**2)
    square[0] = 0.0  # the corner is public
    noise = (
        (1 + theta @ theta) * np.eye(d) + np.outer(theta, theta) + np.diag((square - 2) * theta**2)
    )
    variance = moments.scale**2
    if not moments.normal:
        variance = 2 * variance
    return np.asarray(variance * noise + sampling * moments.gram)


def _find_reach(
    moments: NoisyMoments,
    a: Floats,
    theta: Floats,
    along: Floats,
    deviation: float,
    level: float,
    first: float,
) -> float:
    """Returns how far an end lies from the middle, from a first step towards it; infinite if steps
    only grow.
    """
    reach = 0.0
    for step in range(STEPS):
        farther = first
        if step > 0:
            noises = moments.list_noise(a, theta + reach * along)
            farther = moments.find_half_width(level, noises, deviation)
        if farther <= reach * (1 + STEP_TOLERANCE):
            return farther
        if farther > FARTHEST:
            break
        reach = farther
    return math.inf


@dataclass(frozen=True, eq=False)
class EigenvalueBound:
    """Ends for cᵀθ* where θ* − θ̃ = M⁻¹(λθ̃ − S) − M⁻¹H^½·ξ/√γ and M ⪰ ℓ is all that is known."""

    theta: Floats  # θ̃
    least: float  # ℓ
    ridge: float  # λ
    gamma: float
    pull: float  # S has a covariance of at most this times M
    sampling_from: str

    def find_ends(self, functions: Floats, level: float) -> Ends:
        """Returns the ends.

        For M ⪰ ℓ and any x, cᵀM⁻¹x lies between (cᵀx ± |c||x|)/(2ℓ); M⁻¹HM⁻¹ is at most
        (1 + λ/ℓ)/ℓ.
        """
        length = np.linalg.norm(functions, axis=1)
        noise = length * math.sqrt((1 + self.ridge / self.least) / (self.least * self.gamma))
        sampling = length * math.sqrt(self.pull / self.least)
        z = float(scipy.special.ndtri(0.5 + level / 2))
        reach = z * np.hypot(noise, sampling)
        middle = functions @ self.theta
        back = self.ridge / (2 * self.least)
        size = length * float(np.linalg.norm(self.theta))
        return Ends(
            middle + back * (middle - size) - reach,
            middle + back * (middle + size) + reach,
            z * noise,
            z * sampling,
            sampling_from=self.sampling_from,
        )


def find_added_noise_ends(
    theta: Floats,
    functions: Floats,
    level: float,
    rate: float,
    sampling: float,
) -> Ends:
    """Returns the ends for cᵀθ* where θ̂ is a shrunken solution with noise Z of density ∝ e^(−η|z|)
    added to it.

    cᵀZ has the characteristic function (1 + |c|²t²/η²)^(−(d+1)/2): its law is that of (d + 1)/2
    Laplace variables of scale |c|/η. Sampling is normal with a variance of at most |c|² times
    ``sampling``.
    """
    power = (len(theta) + 1) / 2
    deviation = math.sqrt(sampling)
    length = np.linalg.norm(functions, axis=1)  # the law of a longer function is as much wider
    reach = length * compute_sum_half_width(level, [1 / rate], deviation, power)
    noise = length * compute_sum_half_width(level, [1 / rate], 0.0, power)
    rows = length * compute_sum_half_width(level, [], deviation)
    middle = functions @ theta
    return Ends(middle - reach, middle + reach, noise, rows, FROM_BOUNDS, SHRUNK)


@dataclass(frozen=True, eq=False)
class ShrunkFit:
    """Ends for cᵀθ* where θ̂ and θ* minimise the same loss plus ½‖θ − θ₀‖²_Λ, on the rows and with
    noise b, and on the whole population: (M + Λ)(θ* − θ̂) = b − S, and of M nothing is known but
    that it has no negative eigenvalue.
    """

    theta: Floats
    ridge: Floats  # Λ
    noise: Floats  # E b_j²
    sampling: float  # no cᵀ(M + Λ)⁻¹S varies by more than this times cᵀΛ⁻¹c
    of: str
    sampling_from: str

    def find_ends(self, functions: Floats, level: float) -> Ends:
        """Returns the ends.

        With e = Λ^−½c, cᵀ(M + Λ)⁻¹b = eᵀ(I + N)⁻¹Λ^−½b for some N ⪰ 0.
        """
        root = np.sqrt(self.ridge)
        e = np.asarray(functions, dtype=np.float64) / root
        variance = bound_inverse_noise(e, np.diag(self.noise / self.ridge), 1.0)
        noise = find_log_concave_quantile(level) * np.sqrt(variance)
        length = np.linalg.norm(e, axis=1)
        sampling = float(scipy.special.ndtri(0.5 + level / 2)) * math.sqrt(self.sampling) * length
        middle = np.asarray(functions) @ self.theta
        reach = np.hypot(noise, sampling)
        return Ends(middle - reach, middle + reach, noise, sampling, self.sampling_from, self.of)


@dataclass(frozen=True, eq=False)
class ShrunkSample:
    """Ends for cᵀθ* where θ̃ − θ* = H⁻¹S + H^−½ξ/√γ, H = M + λ, and θ* is shrunk by λ as well."""

    theta: Floats  # θ̃
    ridge: float  # λ
    gamma: float
    pull: float  # S has a covariance of at most this times M

    def find_ends(self, functions: Floats, level: float) -> Ends:
        """Returns the ends: cᵀH⁻¹c ≤ |c|²/λ, and cᵀH⁻¹MH⁻¹c ≤ |c|²/(4λ)."""
        length = np.linalg.norm(functions, axis=1)
        z = float(scipy.special.ndtri(0.5 + level / 2))
        noise = z * length / math.sqrt(self.ridge * self.gamma)
        sampling = z * length * math.sqrt(self.pull / (4 * self.ridge))
        reach = np.hypot(noise, sampling)
        middle = functions @ self.theta
        return Ends(middle - reach, middle + reach, noise, sampling, FROM_BOUNDS, SHRUNK)


def bound_inverse_noise(e: Floats, spread: Floats, least: float) -> Floats:
    """Returns what eᵀR⁻¹YR⁻¹e is at most, for each row of e, where no eigenvalue of R is below
    ``least`` and Y is the covariance of noise.

    For a direction u, R⁻¹u is αu and something at right angles to u: α is 1/ℓ at most, and the
    length of the other 1/(2ℓ).
    """
    length = np.maximum(np.linalg.norm(e, axis=1), 1e-300)
    u = e / length[:, None]
    Yu = u @ spread
    own = np.einsum("ij,ij->i", u, Yu)
    beside = np.linalg.norm(Yu - own[:, None] * u, axis=1)
    largest = float(np.linalg.eigvalsh(spread)[-1])
    alpha = 1 / least
    beta = alpha / 2
    apart = alpha**2 * own + 2 * alpha * beta * beside + beta**2 * largest
    return np.asarray(length**2 * np.minimum(apart, largest * alpha**2), dtype=np.float64)


@cache
def find_log_concave_quantile(level: float) -> float:
    """Returns x with P(|X| ≤ x) ≥ level for every symmetric X of variance 1 with a log-concave
    density.

    Among these, laws that are flat up to some m and fall exponentially beyond are the widest
    (docs/theory/model-intervals.md).
    """
    m = np.linspace(0, 20, 4001)
    deviation = np.sqrt((m**3 / 3 + m**2 + 2 * m + 2) / (m + 1))
    flat = level * (m + 1)
    with np.errstate(divide="ignore"):
        beyond = m - np.log((1 - level) * (m + 1))
    return float(np.max(np.where(flat < m, flat, beyond) / deviation))


def name_ends(names: list[str], ends: Ends | str, level: float, middle: float = 0.0) -> Intervals:
    """Returns the ends by the names of intercept and coefficients, or why there are none;
    ``middle`` is added to the intercept's.
    """
    if isinstance(ends, str):
        return explain_no_interval(level, ends)
    moved = np.zeros(len(names) + 1)
    moved[0] = middle
    names = ["intercept", *names]
    return Intervals(
        level=level,
        low=_by_name(names, ends.low + moved),
        high=_by_name(names, ends.high + moved),
        noise=_by_name(names, ends.noise),
        sampling=_by_name(names, ends.sampling),
        sampling_from=ends.sampling_from,
        of=ends.of,
    )


def join_prediction_ends(ends: Ends | str, middle: float) -> Floats | None:
    """Returns (low, high), a row a function; None where there are none."""
    if isinstance(ends, str):
        return None
    return np.asarray(np.column_stack([ends.low, ends.high]) + middle, dtype=np.float64)


def _by_name(names: list[str], numbers: Floats) -> dict[str, Any]:
    return {
        name: float(number) if math.isfinite(number) else None
        for name, number in zip(names, numbers, strict=True)
    }


def explain_no_interval(level: float, why: str) -> Intervals:
    """Returns intervals without ends, with the reason."""
    return Intervals(
        level=level,
        low={},
        high={},
        noise={},
        sampling={},
        sampling_from="nothing: there is no interval",
        of="the coefficients of the population",
        why=why,
    )


def predict_linear(
    recoding: Recoding, raw: Floats, intercept: float, coefficients: Floats
) -> Floats:
    """Returns intercept + Σ coefficient·feature, numbers clipped to their bounds, levels by their
    own coefficient; rows longer than a declared norm are shortened before, as in fit.
    """
    raw = recoding.shorten(raw)
    total = np.full(len(raw), float(intercept))
    at = 0
    for j, feature in enumerate(recoding.features):
        if feature.levels:
            own = np.append(coefficients[at : at + len(feature.levels)], 0.0)
            known = (raw[:, j] >= 0) & (raw[:, j] < len(feature.levels))
            total += own[np.where(known, raw[:, j], -1).astype(np.int64)]
            at += len(feature.levels)
        else:
            total += coefficients[at] * np.clip(raw[:, j], feature.low, feature.high)
            at += 1
    return total


def clip_to_label(predicted: Floats, release: Release) -> Floats:
    """Returns predictions within the range that a release declares for its label, if it does."""
    label = release.parameters.get("label")
    if label is None:
        return predicted
    low, high = label
    return np.asarray(np.clip(predicted, low, high), dtype=np.float64)


class IntervalsByFunction:
    """Intervals of a model whose coefficients and predictions are linear functions of θ.

    A subclass says which functions, what is added to their values, and finds the ends.
    """

    _recoding: Recoding
    n_features_in_: int

    def _compute_intervals(self, release: Release, level: float) -> Intervals | None:
        recoding = Recoding.from_dict(release.parameters["features"])
        ends = self._find_ends(release, self._list_functions(release, recoding), level)
        return name_ends(recoding.names, ends, level, self._get_middle(release))

    def _compute_prediction_intervals(
        self, release: Release, level: float, X: TableLike
    ) -> Floats | None:
        raw = to_matrix(X, self._recoding, expected=self.n_features_in_)
        return self._compute_row_intervals(release, level, raw)

    def _compute_row_intervals(self, release: Release, level: float, raw: Floats) -> Floats | None:
        """Computes the intervals of the expected labels of rows as ``to_matrix`` reads them."""
        coefficients = self._list_functions(release, self._recoding)
        functions = list_prediction_functions(self._recoding, raw, coefficients)
        ends = self._find_ends(release, functions, level)
        return join_prediction_ends(ends, self._get_middle(release))

    def _list_functions(self, release: Release, recoding: Recoding) -> Floats:
        """The functions of θ, a row each, that are intercept and coefficients."""
        low, high = release.parameters["label"]
        return list_coefficient_functions(recoding, (high - low) / 2)

    def _get_middle(self, release: Release) -> float:
        """What is added to the intercept and to predictions."""
        low, high = release.parameters["label"]
        return float(low + high) / 2

    def _find_ends(self, release: Release, functions: Floats, level: float) -> Ends | str:
        """The ends of intervals of functions of θ, or why there are none."""
        raise NotImplementedError


def bound_probabilities(low: Floats, high: Floats) -> Floats:
    """Returns (low, high) for the probability of each class, where each class's function lies
    between these ends.
    """
    found = []
    for own, others in ((low, high), (high, low)):
        differences = others[:, None, :] - own[:, :, None]
        places = np.arange(low.shape[1])
        differences[:, places, places] = -np.inf
        found.append(scipy.special.expit(-scipy.special.logsumexp(differences, axis=2)))
    return np.stack(found, axis=2)
