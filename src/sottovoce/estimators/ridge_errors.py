# SPDX-License-Identifier: Apache-2.0
"""What a regression is expected to miss of least squares on the same table (docs/theory/errors.md).

The error is the root mean square difference of predictions over the rows of the table. It depends
on facts that only the table knows, so a plan takes typical ones, the same for every method; labels
are scaled to [−1, 1]:

    symbol  name
    s       spread of the labels: a tenth of their range, or what was declared
    ψ       the share of the labels' variance that slopes explain, .6
    m₂      the squared distance of the labels' mean from the middle of their range, .16
    C, μ²   variance and squared mean of a recoded column: one of three kinds of column, each as
            likely
    q²      ψs²/(pC), the squared slope that explains its part of ψs²

The public proxy of a regression's expected error, which chooses its parameters before data is
read.

In units of the label's squared scale s², for p recoded slopes with second moment C and threshold τ
= k·s:

    L = Σ_j avg_C [(Λ²ψ/p + C·N + .4κV₂C²)/(κVC + Λ)²] + (Λ₀²m₂ + C₀N₀ + .4κV₂C₀²)/(κVC₀ + Λ₀)²

    V, V₂    Σv and Σv² over rows
    κ        erf(k/√2), the share of rows inside the threshold
    N, N₀    second moments of the noise
    ψ, m₂    assumed size of slopes and of the intercept

A planning number, good for on/off decisions and within a factor of three; never an accuracy
promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import scipy  # whose parts are loaded where they are used

from sottovoce.budgets import Budgets
from sottovoce.data.encoding import Recoding
from sottovoce.plan import (
    ASSOCIATION,
    ExpectedError,
    format_error,
    least_squares,
    measure_inequality,
)
from sottovoce.weights import Weights

#: s, ψ and m₂ where nothing is declared.
SPREAD = 0.2
EXPLAINED = 0.6
OFFSET = 0.16
#: Kinds of columns: (variance, squared mean) in units of the variance of a column that fills its
#: bounds evenly.
COLUMNS = ((1.0, 0.0), (0.4, 0.6), (0.15, 1.2))


@dataclass(frozen=True)
class SquaredErrorParts:
    """Squared parts of an expected error, in units of half the label's range."""

    noise: float
    sampling: float
    shrinkage: float

    @property
    def total(self) -> float:
        """The expected squared error."""
        return self.noise + self.sampling + self.shrinkage

    @classmethod
    def mean(cls, parts: list[SquaredErrorParts]) -> SquaredErrorParts:
        """The geometric mean of several, part by part: they differ by factors, not by amounts."""
        columns = (
            [getattr(part, name) for part in parts] for name in ("noise", "sampling", "shrinkage")
        )
        return cls(
            *(
                float(np.exp(np.mean(np.log(column)))) if min(column) > 0 else 0.0
                for column in columns
            )
        )

    def scale_by(self, factor: float) -> SquaredErrorParts:
        """The same in another unit."""
        return SquaredErrorParts(
            self.noise * factor, self.sampling * factor, self.shrinkage * factor
        )


@dataclass(frozen=True)
class PublicFacts:
    """The public facts, and the typical ones in the place of what only the table knows."""

    slopes: int  # p
    even: float  # variance of a recoded column whose values fill their bounds evenly, on average
    squares: float  # Σ(c_i − 1/n)²
    spread: float = SPREAD

    @classmethod
    def of(cls, recoding: Recoding, budgets: Budgets, weights: Weights) -> PublicFacts:
        """From what a plan knows."""
        spreads = recoding.estimate_spread()
        if len(spreads):
            even = float(np.square(spreads).mean())
        else:
            even = 1 / 12
        return cls(recoding.width, even, measure_inequality(budgets, weights)[0])

    @property
    def columns(self) -> list[tuple[float, float, float]]:
        """C, μ² and q² of each kind of column."""
        kinds = [(self.even * C, self.even * m) for C, m in COLUMNS]
        return [(C, m, self.explained_variance / (max(self.slopes, 1) * C)) for C, m in kinds]

    @property
    def explained_variance(self) -> float:
        """ψs², the variance that slopes explain; nothing without slopes."""
        if self.slopes:
            return EXPLAINED * self.spread**2
        return 0.0

    @property
    def residual(self) -> float:
        """The variance that slopes leave."""
        return self.spread**2 - self.explained_variance


def make_expected_error(
    parts: SquaredErrorParts,
    facts: PublicFacts,
    budgets: Budgets,
    weights: Weights,
    half: float,
    more: str = "",
    besides: float = 0.0,
) -> ExpectedError:
    """Returns the expected error of a regression in the label's own unit; ``besides`` is added to
    the possible bias.
    """
    assumed = (
        f"Assumed: labels spread by {format_error(facts.spread * half)}, of whose variance "
        "slopes explain 60 %."
    )
    return ExpectedError(
        classical=least_squares(fit_intercept=True),
        unit="in units of the label",
        noise=math.sqrt(parts.noise) * half,
        sampling=math.sqrt(parts.sampling) * half,
        shrinkage=math.sqrt(parts.shrinkage) * half,
        bias=(ASSOCIATION * facts.spread * measure_inequality(budgets, weights)[1] + besides)
        * half,
        assumed=f"{assumed} {more}".strip(),
    )


def estimate_ridge_error(
    facts: PublicFacts,
    ridge: float,
    intercept: float,
    moved: float,
    coordinate_noise: float,
    posterior_noise: float = 0.0,
) -> SquaredErrorParts:
    """Returns the parts for a ridge solution with noise: of one variance on every coordinate, or by
    inverse moments.

    Rows are (i, z + v): i is the ``intercept`` column and v, ``moved``, the same for every column.
    Columns have the mean μ in random directions, so that the second moments of a row have one block
    of two coordinates (the intercept, and the direction of all columns' means) and C in every
    other:

        B = [[i², i|m|], [i|m|, C + |m|²]],   |m|² = p·(μ² + v²)

    λ(B + λ)⁻¹ of the coefficients is lost, whose intercept makes the prediction at the mean of the
    columns √m₂.
    """
    kinds = []
    for C, mu, q in facts.columns:
        p = facts.slopes
        m = math.sqrt(facts.slopes * (mu + moved**2))
        B = np.array([[intercept**2, intercept * m], [intercept * m, C + m * m]])
        i = intercept or 1.0
        size = np.array([[(OFFSET + m * m * q) / i**2, -m * q / i], [-m * q / i, q]])
        there = np.ix_(*[[place for place, has in enumerate((intercept > 0, p > 0)) if has]] * 2)
        B = B[there]
        size = size[there]
        stiff = np.linalg.inv(B + ridge * np.eye(len(B)))
        lost = ridge * stiff
        rest = max(p - 1, 0)
        left = ridge / (C + ridge)
        freedom = float(np.trace(B @ stiff @ B @ stiff)) + rest * (C / (C + ridge)) ** 2
        kinds.append(
            SquaredErrorParts(
                coordinate_noise * (float(np.trace(B)) + rest * C)
                + posterior_noise * (float(np.trace(B @ stiff)) + rest * C / (C + ridge)),
                facts.residual * facts.squares * freedom,
                float(np.trace(B @ lost @ size @ lost.T)) + rest * C * left**2 * q,
            )
        )
    return SquaredErrorParts.mean(kinds)


#: Regularisation in 97 steps a quarter of a power of two apart; a coarser grid chooses badly.
RIDGES = 2.0 ** np.linspace(-1, 23, 97)
#: Thresholds in units of the label's scale, with a small penalty for the bias of the narrow ones.
THRESHOLDS = ((0.75, 0.010), (1.0, 0.007), (1.5, 0.003), (2.5, 0.001))
#: How far such a threshold draws the fit from the mean to the median, in units of the scale: where
#: labels are skewed as those of a gamma law of shape 4, and where they are as skewed as exponential
#: ones (docs/theory/errors.md).
SKEWED_LABEL_BIAS = {
    0.75: (0.15, 0.47),
    1.0: (0.13, 0.43),
    1.5: (0.09, 0.32),
    2.0: (0.05, 0.23),
    2.5: (0.025, 0.16),
}
#: Noise norms max(α₁a + (1−α₁)m, α₂a + (1−α₂)m) between joint (1, 0) and separate (α, α) intercept
#: noise.
NORMS = (
    (1.0, 0.0),
    *((a, a) for a in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)),
    *((1.0, a) for a in (0.05, 0.1, 0.2, 0.3)),
    *((a, 0.0) for a in (0.3, 0.5, 0.7)),
)
#: Moments of the noise for each of these, and few slopes.
MOMENTS_FILE = "noise_moments.csv"
#: The same for Gaussian noise: the intercept's part.
GAUSSIAN_PARTS = tuple((a, a) for a in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7))
#: The most that the loss is bent where noise is Gaussian: rows up to ¾ of the threshold are not.
MOST_SOFTNESS = 1 / 8
#: Second moments that a recoded feature may have: spread evenly, bunched, nearly constant.
FEATURE_MOMENTS = (1 / 12, 1 / 30, 1 / 100)
INTERCEPT_MOMENT = 1 / 4  # the squared intercept column
#: Of the squared radius of a ball so much is the mean squared length of rows in it; and how it may
#: be divided among directions, in parts of an equal share: more where columns go together.
BALL_FILLED = 0.65
BALL_PARTS = (1.5, 0.8, 0.25)
#: Deviations of a normal law that a window with half of it reaches to either side. Plans for small
#: budgets need no other: SciPy's functions take longer to load than such a plan takes to make.
HALF_REACH = 0.6744897501960817


@dataclass(frozen=True)
class StageParameters:
    """The parameters of one stage and the proxy's value for them."""

    expected: float  # L, in units of s²
    threshold: float  # k
    ridge: float
    intercept_ridge: float
    norm: tuple[float, float]
    rounded: int = 0  # so many of the slopes are of columns in a ball
    gaussian: bool = False  # Gaussian noise; the norm is the intercept's part, twice

    def compute_regularity(self, slopes: int) -> float:
        """Returns H of the stage, for so many slopes."""
        return compute_regularity(slopes, self.ridge, self.intercept_ridge, self.rounded)

    def compute_softness(self, slopes: int) -> float:
        """Returns the H of the soft Huber loss: that of the stage, or, as Gaussian noise does not
        need it, one that bends few rows.
        """
        H = self.compute_regularity(slopes)
        if self.gaussian:
            return min(H, MOST_SOFTNESS)
        return H

    def compute_noise(self, slopes: int) -> tuple[float, float, float]:
        """Returns E b² in units of τ²: of the intercept, of a slope in the box, and of one whose
        column is in the ball.
        """
        if self.gaussian:
            intercept, slope = compute_gaussian_moments(slopes, self.rounded, self.norm[0])
        else:
            intercept, slope = compute_noise_moments(slopes, *self.norm)
        return intercept, slope, slope * compare_ball_noise(self.rounded, self.gaussian)


@dataclass(frozen=True)
class ColumnGroup:
    """Slopes that are alike to the proxy."""

    count: int
    moments: tuple[float, ...]  # second moments that such a column may have
    noise: float  # E b_j² of its slopes over that of a column in a box


@dataclass(frozen=True)
class Terms:
    """The terms of L, in units of s²."""

    noise: float
    sampling: float
    shrinkage: float


def compute_regularity(
    slopes: int, ridge: float, intercept_ridge: float, rounded: int = 0
) -> float:
    """Returns H, the most that φᵀΛ⁻¹φ can be: Σ_j h_j²/Λ_j for p slopes and the intercept, all of
    half-width ½; those in a ball of radius ½ count once together.
    """
    return _count_sides(slopes, rounded) / (4 * ridge) + 1 / (4 * intercept_ridge)


def _count_sides(slopes: int, rounded: int) -> int:
    return slopes - rounded + int(rounded > 0)


def compare_ball_noise(rounded: int, gaussian: bool) -> float:
    """Returns E b_j² of a slope whose column is in a ball over that of one in the box."""
    if gaussian or not rounded:
        return 1.0
    return 3 / (rounded + 2)


def compute_gaussian_moments(slopes: int, rounded: int, part: float) -> tuple[float, float]:
    """Returns E b₀² and E b_j² of Gaussian noise in units of (2hτ)², where the intercept has this
    part: no row is then longer than ½ in deviations over τ (docs/theory/gaussian-objective.md).
    """
    return 1 / part, _count_sides(slopes, rounded) / (1 - part)


def list_groups(slopes: int, rounded: int, gaussian: bool) -> list[ColumnGroup]:
    """Returns the groups of slopes: in a box, and in a ball, whose rows have the squared length
    of a public guess.
    """
    groups = []
    if slopes > rounded:
        groups.append(ColumnGroup(slopes - rounded, FEATURE_MOMENTS, 1.0))
    if rounded:
        each = BALL_FILLED / (4 * rounded)
        moments = tuple(each * part for part in BALL_PARTS)
        groups.append(ColumnGroup(rounded, moments, compare_ball_noise(rounded, gaussian)))
    return groups


@cache
def choose_parameters(
    slopes: int,
    total: float,
    squares: float,
    intercept_size: float,
    slope_size: float,
    regularity: float = 0.5,
    rounded: int = 0,
    gaussian: bool = False,
) -> StageParameters:
    """Returns the choice with the smallest proxy among all grids, subject to H ≤ ``regularity``,
    which is at most ½; so many slopes are of columns in a ball.
    """
    if gaussian:
        norms = GAUSSIAN_PARTS
    else:
        norms = NORMS
    candidates = [
        _choose_on_grid(
            slopes,
            total,
            squares,
            intercept_size,
            slope_size,
            k,
            penalty,
            norm,
            regularity,
            rounded,
            gaussian,
        )
        for k, penalty in THRESHOLDS
        for norm in norms
    ]
    return min(candidates, key=lambda choice: choice.expected)


def _choose_on_grid(
    p: int,
    V: float,
    V2: float,
    m2: float,
    psi: float,
    k: float,
    penalty: float,
    norm: tuple[float, float],
    regularity: float,
    rounded: int,
    gaussian: bool,
) -> StageParameters:
    kappa = math.erf(k / math.sqrt(2))
    grid = RIDGES
    if gaussian:
        moments = compute_gaussian_moments(p, rounded, norm[0])
    else:
        moments = compute_noise_moments(p, *norm)
    N0, N = (k * k * moment for moment in moments)
    slope = np.zeros(len(grid))
    for group in list_groups(p, rounded, gaussian):
        slope += group.count * np.mean(
            [
                (grid**2 * psi / p + C * N * group.noise + 0.4 * kappa * V2 * C * C)
                / (kappa * V * C + grid) ** 2
                for C in group.moments
            ],
            axis=0,
        )
    intercept = _estimate_intercept_error(grid, m2, N0, kappa, V, V2)
    total = np.where(
        _count_sides(p, rounded) / (4 * grid[:, None]) + 1 / (4 * grid) <= regularity,
        slope[:, None] + intercept,
        np.inf,
    )
    i, j = np.unravel_index(int(np.argmin(total)), total.shape)
    return StageParameters(
        float(total[i, j]) + penalty, k, float(grid[i]), float(grid[j]), norm, rounded, gaussian
    )


def split_error(
    slopes: int,
    total: float,
    squares: float,
    intercept_size: float,
    slope_size: float,
    choice: StageParameters,
) -> Terms:
    """Returns L by its terms, for a choice: of slopes and intercept, or of a constant only (an
    infinite ridge).
    """
    p = slopes
    V = total
    V2 = squares
    k = choice.threshold
    kappa = math.erf(k / math.sqrt(2))
    C0 = INTERCEPT_MOMENT
    constant = math.isinf(choice.ridge)
    if constant:
        N0, N = (2.0, 0.0)
    else:
        N0, N, _ = choice.compute_noise(p)
    stiff = (kappa * V * C0 + choice.intercept_ridge) ** 2
    terms = (
        np.array(
            [
                C0 * N0 * k * k,
                0.4 * kappa * V2 * C0 * C0,
                choice.intercept_ridge**2 * intercept_size,
            ]
        )
        / stiff
    )
    if constant:
        return Terms(*map(float, terms))
    for group in list_groups(p, choice.rounded, choice.gaussian):
        columns = [
            np.array(
                [
                    C * N * group.noise * k * k,
                    0.4 * kappa * V2 * C * C,
                    choice.ridge**2 * slope_size / p,
                ]
            )
            / (kappa * V * C + choice.ridge) ** 2
            for C in group.moments
        ]
        terms = terms + group.count * np.mean(columns, axis=0)
    return Terms(*map(float, terms))


def choose_constant_parameters(
    total: float,
    squares: float,
    intercept_size: float,
    threshold: float,
    regularity: float = 0.5,
) -> StageParameters:
    """Returns the best intercept ridge when only a constant is fitted (its noise is Laplace)."""
    grid = RIDGES[1 / (4 * regularity) <= RIDGES]
    expected = _estimate_intercept_error(
        grid, intercept_size, 2 * threshold**2, math.erf(threshold / math.sqrt(2)), total, squares
    )
    j = int(np.argmin(expected))
    return StageParameters(float(expected[j]), threshold, math.inf, float(grid[j]), (1.0, 0.0))


def _estimate_intercept_error(
    grid: np.ndarray, m2: float, N0: float, kappa: float, V: float, V2: float
) -> np.ndarray:
    C0 = INTERCEPT_MOMENT
    return (grid**2 * m2 + C0 * N0 + 0.4 * kappa * V2 * C0 * C0) / (kappa * V * C0 + grid) ** 2


@cache
def compute_noise_moments(slopes: int, a1: float, a2: float) -> tuple[float, float]:
    """Returns E b₀² and E b_j² in units of (2hτ)², by quadrature over the ratio t =
    |b₀|/max|b_j|; without slopes b₀ is Laplace.
    """
    if slopes == 0:
        return 2.0, 0.0
    known = read_known_moments().get((slopes, a1, a2))
    if known is not None:
        return known
    return integrate_noise_moments(slopes, a1, a2)


@cache
def read_known_moments() -> dict[tuple[int, float, float], tuple[float, float]]:
    """Returns what integrate_noise_moments does for up to 32 slopes and each of NORMS: a plan then
    does not load what integrates.
    """
    text = resources.files(__package__).joinpath(MOMENTS_FILE).read_text(encoding="utf-8")
    known = {}
    for line in text.splitlines()[1:]:
        slopes, a1, a2, intercept, slope = line.split(",")
        known[int(slopes), float(a1), float(a2)] = (float(intercept), float(slope))
    return known


def integrate_noise_moments(slopes: int, a1: float, a2: float) -> tuple[float, float]:
    """Returns E b₀² and E b_j² of at least one slope, by quadrature."""
    p = slopes
    least = 1 - a2  # n(0); divided by it, high powers neither overflow nor vanish

    def n(t: float) -> float:
        return max(a1 * t + 1 - a1, a2 * t + 1 - a2) / least

    def integral(power: float, t_power: int) -> float:
        inner = scipy.integrate.quad(lambda t: t**t_power * n(t) ** -power, 0, 1)[0]
        outer = scipy.integrate.quad(lambda u: u ** (-t_power - 2) * n(1 / u) ** -power, 0, 1)[0]
        return float(inner + outer)

    mass = integral(p + 1, 0)
    scale = (p + 1) * (p + 2) / mass / least**2
    return scale * integral(p + 3, 2), scale * integral(p + 3, 0) * (p + 2) / (3 * p)


def count_deviations(part: float) -> float:
    """Returns how many deviations to either side a window with this part of a normal law has."""
    if part == 0.5:
        return HALF_REACH
    return float(scipy.special.ndtri((1 + part) / 2))
