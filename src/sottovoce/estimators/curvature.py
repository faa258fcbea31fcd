# SPDX-License-Identifier: Apache-2.0
"""What intervals of a model with noise in its objective need to know, bought with a small share of
everybody's budget (docs/theory/model-intervals.md).

A fit θ̂ solves Σ v_i·ψ_i·φ_i = Λ(θ̂ − θ₀) + b, and the population's θ* has pulls of mean zero, so

    M(θ* − θ̂) = Λ(θ̂ − θ₀) + b − S,     M = Σ v_i·ψ'_i·φ_iφ_iᵀ,   S = Σ v_i·ψ_i(θ*)·φ_i

The right side is known but for noise of public law and for S. M is bought, as far as intervals need
it, in four steps, each a share of everybody's ε, around what the steps before released:

    step         what is released with noise                           how far person l moves it
    means        Σ wψ', Σ wψ'z_j                                       W_l each (box noise)
    spreads      Σ wψ'|z_j − μ_j|                                      W_l·m_j (box noise)
    pulls        Σ w(ψ/τ)², Σ w(ψ/τ)²·min(1, ‖g‖²/(2ρψ'))             W_l each (box noise)
    shape        R = Σ w·ggᵀ, ‖g‖² ≤ ρ, where its noise would be small  W_l·√2·ρ (radial noise)
                 else its smallest eigenvalue                          W_l·ρ (Laplace)

with public weights w ∝ ε that add up to one, W_l those of a person, m_j = ½ + |μ_j|, and rows g =
√ψ'·(z_j − μ_j)/√D_j, D_j about Σ wψ'(z_j − μ_j)² as the spread tells it, shortened to length √ρ:
shortening lowers the eigenvalue, never raises it. Deviations are bought rather than their squares,
which have more noise where columns are bunched; that D is not exact makes intervals wider, and not
wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
from scipy.special import ndtri

from sottovoce.arrays import Floats
from sottovoce.budgets import BudgetGroups
from sottovoce.data.encoding import Recoding
from sottovoce.data.engine import Dataset
from sottovoce.data.loss_kernels import BentSums, RowTerms
from sottovoce.estimators.model_intervals import Ends, widen_variance
from sottovoce.noise import continuous
from sottovoce.noise.source import AnswerGrid
from sottovoce.weights import Weights

#: Whole-number weights have so many bits, for sums of products in doubles.
WEIGHT_BITS = 26
#: So many units of ε in all, for each coefficient, buy means, spreads and shape; and so many the
#: size of pulls.
MEANS_UNITS = 30.0
SPREADS_UNITS = 25.0
SHAPE_UNITS = 25.0
PULL_UNITS = 150.0
#: Of a classifier, whose pulls are about as large as they can be, fewer do.
CLASS_PULL_UNITS = 30.0
#: This share of everybody's budget buys them, where that is as much.
MOST_SHARE = 0.03
#: Rows far out that pull harder than others, beyond what noise may have made of it, count so many
#: times: they need not be far out in every column.
FAR_FACTOR = 2.0
ROOT_OF_HALF = Fraction(math.isqrt(2**399), 2**200)
#: The whole of R is bought where noise is expected to move its eigenvalues by at most this.
MATRIX_NOISE = 0.1
#: What LAPACK's smallest eigenvalue of so small a matrix may be wrong by, as a part of the largest.
EIGENVALUE_ERROR = 2.0**-38
#: So many scales of its noise the eigenvalue is taken to be below what was released.
SAFE_SCALES = 1.5
#: How far the constant goes along with slopes is at most so many times what noise on means is
#: expected to make it, squared.
COUPLING_FACTOR = 2.0
#: The variance of a column over its squared mean deviation: of two levels 1, of numbers 4/3 (even)
#: to π/2 (normal).
LEVELS_FACTOR = 1.0
NUMBERS_FACTOR = 4 / 3
#: Below this part of what rows of uncorrelated columns have, an eigenvalue tells nothing.
LEAST_EIGENVALUE = 0.1
FROM_CURVATURE = "the bought variance of residuals, times {:g} for rows of unequal spread"


def list_units(slopes: int, pulls: float) -> tuple[float, float, float, float]:
    """Returns how many units of ε in all the four steps need."""
    d = slopes + 1
    return (MEANS_UNITS * d, SPREADS_UNITS * d, pulls, SHAPE_UNITS * d)


def choose_interval_share(
    total: float, slopes: int, wanted: float | None, pulls: float = PULL_UNITS
) -> float:
    """Returns the share of everybody's budget that buys intervals: what is wanted, or else from S =
    Σε; 0 where it would have to be too large.
    """
    if wanted is not None:
        return float(wanted)
    if MOST_SHARE * total < sum(list_units(slopes, pulls)):
        return 0.0
    return MOST_SHARE


def explain_too_little(slopes: int, pulls: float = PULL_UNITS) -> str:
    """Says how much budget intervals need."""
    needed = sum(list_units(slopes, pulls)) / MOST_SHARE
    return (
        f"There is too little budget for intervals with {slopes} slopes: the ε of all people "
        f"together would have to be {math.ceil(needed):,} or more, or a larger share of it must "
        "buy them (interval_share)."
    )


@dataclass(frozen=True)
class BoughtShare:
    """What a plan says about the share of everybody's ε that buys what intervals need."""

    share: float
    what: str

    def describe(self) -> str:
        """What is bought, in words."""
        return f"{self.share:.1%} of everybody's ε buys {self.what}, for intervals."


@dataclass(frozen=True, eq=False)
class PurchaseWeights:
    """How strongly each takes part in what is bought, and what that costs them."""

    weights: Weights
    ratio: float  # at least W_l/ε_l for everybody, W adding up to one
    strictest: float  # the smallest ε of those who take part

    @classmethod
    def of(cls, kinds: BudgetGroups, row: Floats, granted: Floats) -> PurchaseWeights:
        """Weights in proportion to those of the fit, as whole numbers of 26 bits; ``granted`` is
        the ε of each kind.
        """
        whole = np.floor(row / row.max() * (2**WEIGHT_BITS - 1)).astype(np.int64)
        weights = Weights.from_integers(kinds, whole)
        participating = weights.person > 0
        person = weights.person[participating] / weights.total
        ratio = float((person / granted[participating]).max()) * (1 + 2.0**-40)
        return cls(weights, ratio, float(granted[participating].min()))

    def charge(self, share: float) -> Floats:
        """Returns what each kind of people pays for a purchase at this share."""
        return np.asarray(self.weights.person / self.weights.total * (share / self.ratio))


@dataclass(frozen=True, eq=False)
class CurvaturePurchase:
    """The four steps, on rows at a released θ."""

    rows: Dataset
    terms: RowTerms  # which row pulls and bends how strongly, at the released θ
    recoding: Recoding
    weights: PurchaseWeights
    share: float
    most_pull: float  # τ
    most_bend: float = 1.0
    pulls: float = PULL_UNITS

    @property
    def slopes(self) -> int:
        """p."""
        return self.recoding.width

    @property
    def shares(self) -> Floats:
        """Of each step."""
        needed = np.array(list_units(self.slopes, self.pulls))
        return np.asarray(self.share * needed / needed.sum())

    def buy(self) -> dict[str, Any]:
        """Returns what the four steps release, as public JSON."""
        p = self.slopes
        first, second, third, fourth = map(float, self.shares)
        bend, *pulled = self._add_box_noise(self._fold(DescribeMeans(self.most_bend)), first)
        bend = max(float(bend), self._find_deviation(p + 1, first))
        means = np.clip(np.array(pulled) / bend, -0.5, 0.5)
        widths = 0.5 + np.abs(means)
        found = self._add_box_noise(
            self._fold(DescribeSpreads(means, widths, self.most_bend)), second
        )
        spreads = np.maximum(found, self._find_deviation(p, second)) * widths / bend
        metric = bend * spreads**2 * list_square_factors(self.recoding)
        describe = DescribePulls(means, metric, self.most_pull)
        pull, far = self._add_box_noise(self._fold(describe), third)
        if find_matrix_noise(p, fourth / self.weights.ratio) <= MATRIX_NOISE:
            shape = self._buy_matrix(means, metric, fourth)
        else:
            shape = self._buy_eigenvalue(means, metric, fourth)
        return {
            "bend": bend,
            "means": means.tolist(),
            "mean_deviation": self._find_deviation(p + 1, first),
            "squares": metric.tolist(),
            "pull": float(pull),
            "far_pull": float(far) * describe.longest / p,
            "far_deviation": self._find_deviation(2, third) * describe.longest / p,
            "pull_scale": self._find_deviation(2, third) / math.sqrt(2),
            **shape,
        }

    def _fold(self, describe: Callable[..., Floats], *, squared: bool = False) -> Any:
        """Σ w·(what is described) as fractions, or that of its squares; all entries lie within
        ±1.
        """
        weights = self.weights.weights
        kernel = BentSums(self.terms, weights.row, describe, self.slopes, squared)
        return kernel.to_fractions(self.rows.engine.fold(kernel)) / weights.total

    def _find_deviation(self, dimension: int, share: float) -> float:
        """Of a coordinate of box noise of width one."""
        one = self.weights.ratio / share
        return one * math.sqrt((dimension + 1) * (dimension + 2) / 3)

    def _add_box_noise(self, sums: Any, share: float) -> Floats:
        """Returns sums of entries that no person moves by more than their weight, with noise that
        costs everybody this share.
        """
        scale = self.weights.ratio / share
        noise = continuous.draw_box(np.full(len(sums), scale))
        grid = AnswerGrid.below(self._find_deviation(len(sums), share))
        return grid.nearest(sums + noise)

    def _sum_shape(self, means: Floats, metric: Floats) -> Any:
        """R/ρ, exactly."""
        describe = DescribeRows(means, metric, find_longest(len(metric)), self.most_bend)
        return self._fold(describe, squared=True).reshape(len(metric), len(metric))

    def _buy_matrix(self, means: Floats, metric: Floats, share: float) -> dict[str, Any]:
        """Returns R with radial noise: entries beside the diagonal are in it twice."""
        p = len(metric)
        longest = find_longest(p)
        rate = share / (math.sqrt(2) * self.weights.ratio * (1 + 2.0**-40))
        i, k = np.triu_indices(p)
        twice = np.array([Fraction(1) if same else ROOT_OF_HALF for same in i == k], dtype=object)
        noise = continuous.draw_l2(rate, len(i)) * twice
        grid = AnswerGrid.below(1 / rate)
        drawn = longest * grid.nearest(self._sum_shape(means, metric)[i, k] + noise)
        R = np.zeros((p, p))
        R[i, k] = R[k, i] = drawn
        moved = find_matrix_noise(p, share / self.weights.ratio)
        return {"matrix": R.tolist(), "matrix_noise": moved}

    def _buy_eigenvalue(self, means: Floats, metric: Floats, share: float) -> dict[str, Any]:
        """Returns the smallest eigenvalue of R with noise, and the scale of that."""
        longest = find_longest(len(metric))
        R = longest * self._sum_shape(means, metric).astype(np.float64)
        smallest = Fraction(float(np.linalg.eigvalsh(R)[0]))
        wrong = 2 * EIGENVALUE_ERROR * longest
        scale = (longest * self.weights.ratio + wrong / self.weights.strictest) / share
        grid = AnswerGrid.below(math.sqrt(2) * scale)
        noisy = float(grid.nearest(smallest + continuous.draw_box([scale]))[0])
        return {"eigenvalue": noisy, "eigenvalue_scale": scale}


def find_longest(slopes: int) -> float:
    """Returns ρ: rows of few columns vary more in length; p is what they have on average."""
    return slopes * (1 + 2 / math.sqrt(slopes))


def find_matrix_noise(slopes: int, budget: float) -> float:
    """Returns by how much noise is expected to move eigenvalues of R, where so many units of ε buy
    it.
    """
    entries = slopes * (slopes + 1) / 2
    radius = math.sqrt(2) * find_longest(slopes) * entries / budget
    return radius * min(1.0, 2 / math.sqrt(slopes + 1))


def list_square_factors(recoding: Recoding) -> Floats:
    """Returns how many times its squared mean deviation the variance of a column usually is: once
    for levels, more for numbers.
    """
    return np.array(
        [
            LEVELS_FACTOR if f.levels else NUMBERS_FACTOR
            for f in recoding.features
            for _ in range(f.width)
        ]
    )


@dataclass(frozen=True)
class DescribeMeans:
    """(ψ', ψ'z_j) of each row."""

    most_bend: float

    def __call__(self, rows: Floats, pull: Floats, bend: Floats) -> Floats:
        """Returns them; the first between 0 and 1, the others within ±½."""
        part = np.minimum(bend / self.most_bend, 1.0)
        return np.column_stack([part, rows * part[:, None]])


@dataclass(frozen=True, eq=False)
class DescribeSpreads:
    """ψ'|z_j − μ_j|/m_j of each row."""

    means: Floats
    widths: Floats  # m_j
    most_bend: float

    def __call__(self, rows: Floats, pull: Floats, bend: Floats) -> Floats:
        """Returns them, all between 0 and 1."""
        part = np.minimum(bend / self.most_bend, 1.0)
        spreads = np.abs(rows - self.means) * (part[:, None] / self.widths)
        return np.minimum(spreads, 1.0)


@dataclass(frozen=True, eq=False)
class DescribePulls:
    """(ψ/τ)² of each row, and the same as far as the row lies from the middle: rows that are far
    out may pull harder.
    """

    means: Floats
    metric: Floats
    most_pull: float

    @property
    def longest(self) -> float:
        """The squared length from which on a row counts in full."""
        return 2 * find_longest(len(self.metric))

    def __call__(self, rows: Floats, pull: Floats, bend: Floats) -> Floats:
        """Returns them, all between 0 and 1."""
        pulls = np.minimum((pull / self.most_pull) ** 2, 1.0)
        squares = np.square(rows - self.means) @ (1 / self.metric)
        return np.column_stack([pulls, pulls * np.minimum(squares / self.longest, 1.0)])


@dataclass(frozen=True, eq=False)
class DescribeRows:
    """g/√ρ of each row: recentred, in the metric that was released, no longer than 1."""

    means: Floats
    metric: Floats
    longest: float  # ρ
    most_bend: float

    def __call__(self, rows: Floats, pull: Floats, bend: Floats) -> Floats:
        """Returns them."""
        root = np.sqrt(np.minimum(bend / self.most_bend, 1.0) / self.longest)
        g = (rows - self.means) / np.sqrt(self.metric) * root[:, None]
        length = np.sqrt(np.einsum("ij,ij->i", g, g))
        return np.asarray(g * ((1 - 2.0**-40) / np.maximum(length, 1.0))[:, None])


@dataclass(frozen=True, eq=False)
class Equation:
    """What a fit solved, and what was bought about it; enough for intervals at any level."""

    theta: Floats  # θ̂, before anything was held back
    centre: Floats
    ridge: Floats
    noise: Floats  # E b_j²
    total: float  # Σ v over rows, times the most that a row's loss bends
    squares: float  # Σ W_l² over people
    most_pull: float
    unequal: float  # rows may vary so many times as much where they count most
    moved: float  # by how much the published intercept was moved after the fit
    of: str  # what is covered, in words
    bought: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """As public JSON."""
        return {
            name: part.tolist() if isinstance(part, np.ndarray) else part
            for name, part in self.__dict__.items()
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Equation:
        """As it was written."""
        arrays = ("theta", "centre", "ridge", "noise")
        return cls(**{**content, **{name: np.array(content[name]) for name in arrays}})

    def find_ends(self, functions: Floats, level: float) -> Ends | str:
        """Returns the ends for functions of θ*; or why there are none.

        With e = D^−½B⁻¹c and y = D^−½B⁻¹x, cᵀM⁻¹x = eᵀR⁻¹y/V, where B takes recentred rows to rows
        and R has ones on its diagonal, a small coupling k of the constant with slopes, and slopes
        of whose part a matrix or a spectrum is known.
        """
        bought = self.bought
        roots = np.sqrt(np.array([bought["bend"], *bought["squares"]]))
        means = np.array(bought["means"])
        moved = bought["mean_deviation"] ** 2 * (means**2 + 1) / roots[1:] ** 2
        coupled = math.sqrt(COUPLING_FACTOR * float(moved.sum()) / bought["bend"])
        inverse = make_shape(bought, coupled)
        if inverse.least < LEAST_EIGENVALUE:
            return (
                "What was bought for intervals cannot be told from noise: columns go along with "
                "each other too closely for these budgets."
            )
        into = make_centred_inverse(means) / roots[:, None]
        e = np.asarray(functions, dtype=np.float64) @ into.T
        slopes = e[:, 1:]
        constant = np.abs(e[:, 0])
        length = np.linalg.norm(slopes, axis=1)

        back = into @ (self.ridge * (self.theta - self.centre))
        first = abs(float(back[0]))
        rest = float(np.linalg.norm(back[1:]))
        shifted = e[:, 0] * back[0] + inverse.find_middle(slopes, back[1:])
        wide = inverse.apart * length * rest + coupled / inverse.least * (
            constant * rest + first * length + coupled * constant * first
        )

        spread = into @ (self.noise[:, None] * into.T)
        beside = coupled * constant / inverse.least
        noise = (
            np.sqrt(inverse.bound_noise(slopes, spread[1:, 1:]))
            + beside * math.sqrt(float(np.linalg.eigvalsh(spread[1:, 1:])[-1]))
            + (constant + coupled * (length / inverse.least + beside))
            * math.sqrt(float(spread[0, 0]))
        )
        pulls = widen_variance(bought["pull"], bought["pull_scale"], level)
        far = FAR_FACTOR * (bought["far_pull"] - bought["far_deviation"])
        pulls = max(self.unequal * pulls / bought["bend"], far)
        variance = pulls * self.most_pull**2
        size = (
            constant**2
            + (
                np.sqrt(inverse.bound_square(slopes))
                + coupled * constant / math.sqrt(inverse.least)
            )
            ** 2
        )
        noise = find_log_concave_quantile(level) * noise / self.total
        sampling = float(ndtri(0.5 + level / 2)) * np.sqrt(self.squares * variance * size)
        sampling = sampling / self.total
        middle = functions @ self.theta + shifted / self.total
        reach = wide / self.total + np.hypot(noise, sampling)
        moved = np.asarray(functions)[:, 0] * self.moved
        told = FROM_CURVATURE.format(self.unequal)
        low = middle - reach + np.minimum(moved, 0.0)
        high = middle + reach + np.maximum(moved, 0.0)
        return Ends(low, high, noise, sampling, told, self.of)


class Shape(Protocol):
    """What is known of R⁻¹ for slopes, from above."""

    @property
    def least(self) -> float:
        """No eigenvalue of R is smaller."""

    @property
    def apart(self) -> float:
        """No further than this, as an operator, is R⁻¹ from its middle."""

    def find_middle(self, e: Floats, y: Floats) -> Floats:
        """Returns eᵀR⁻¹y in the middle of what it may be, for each row of e."""

    def bound_square(self, e: Floats) -> Floats:
        """Returns what eᵀR⁻¹e is at most."""

    def bound_noise(self, e: Floats, spread: Floats) -> Floats:
        """Returns what eᵀR⁻¹YR⁻¹e is at most, Y the covariance of the noise."""


@dataclass(frozen=True, eq=False)
class KnownMatrix:
    """R as it was released, and what is surely left of it."""

    matrix: Floats
    lowered: float

    @cached_property
    def least(self) -> float:
        """The smallest eigenvalue of what is left."""
        return float(np.linalg.eigvalsh(self.matrix)[0]) - self.lowered

    @property
    def apart(self) -> float:
        """How far the two inverses are from each other."""
        return 1 / self.least - 1 / (self.least + self.lowered)

    @cached_property
    def _inverse(self) -> Floats:
        left = self.matrix - self.lowered * np.eye(len(self.matrix))
        return np.asarray(np.linalg.inv(left), dtype=np.float64)

    def find_middle(self, e: Floats, y: Floats) -> Floats:
        """By the matrix as it was released."""
        return np.asarray(e @ np.linalg.solve(self.matrix, y), dtype=np.float64)

    def bound_square(self, e: Floats) -> Floats:
        """By what is left."""
        return np.asarray(np.einsum("ij,jk,ik->i", e, self._inverse, e))

    def bound_noise(self, e: Floats, spread: Floats) -> Floats:
        """By what is left."""
        both = self._inverse @ spread @ self._inverse
        return np.asarray(np.einsum("ij,jk,ik->i", e, both, e))


@dataclass(frozen=True, eq=False)
class KnownEigenvalue:
    """No eigenvalue of R is smaller than a number."""

    least: float

    @property
    def apart(self) -> float:
        """Half of what the inverse's eigenvalues may span."""
        return 1 / (2 * self.least)

    def find_middle(self, e: Floats, y: Floats) -> Floats:
        """By a multiple of the identity."""
        return np.asarray(self.apart * (e @ y), dtype=np.float64)

    def bound_square(self, e: Floats) -> Floats:
        """By the smallest eigenvalue."""
        return np.asarray(np.einsum("ij,ij->i", e, e) / self.least)

    def bound_noise(self, e: Floats, spread: Floats) -> Floats:
        """R⁻¹u is αu and something at right angles to u, of length β at most, for a direction u."""
        length = np.maximum(np.linalg.norm(e, axis=1), 1e-300)
        u = e / length[:, None]
        Yu = u @ spread
        own = np.einsum("ij,ij->i", u, Yu)
        beside = np.linalg.norm(Yu - own[:, None] * u, axis=1)
        largest = float(np.linalg.eigvalsh(spread)[-1])
        alpha = 1 / self.least
        beta = self.apart
        apart = alpha**2 * own + 2 * alpha * beta * beside + beta**2 * largest
        return np.asarray(length**2 * np.minimum(apart, largest * alpha**2), dtype=np.float64)


def make_shape(bought: dict[str, Any], coupled: float) -> Shape:
    """Returns what is known of R once the constant is taken out of slopes."""
    if "matrix" in bought:
        return KnownMatrix(np.array(bought["matrix"]), bought["matrix_noise"] + coupled**2)
    slack = SAFE_SCALES * bought["eigenvalue_scale"]
    return KnownEigenvalue(bought["eigenvalue"] - slack - coupled**2)


FITTED_LOSS = (
    "the coefficients that the loss which was fitted gives on the whole population: those of least "
    "squares, unless residuals are skewed beyond its threshold"
)


def make_centred_inverse(means: Floats) -> Floats:
    """Returns B⁻¹, where rows (½, z) are B·(1, z − μ)."""
    inverse = np.eye(len(means) + 1)
    inverse[0, 0] = 2.0
    inverse[1:, 0] = -2 * means
    return inverse


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
