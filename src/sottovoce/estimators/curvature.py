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
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy  # whose parts are loaded where they are used

from sottovoce.arrays import Floats, combine_columns
from sottovoce.budgets import BudgetGroups
from sottovoce.data.encoding import Recoding, round_to_grid
from sottovoce.data.engine import Dataset
from sottovoce.data.loss_kernels import (
    SQUARE_BITS,
    BentSums,
    Description,
    MeasuredTerms,
    RowTerms,
    join_parts,
    keep_measured,
    weigh_parts,
)
from sottovoce.estimators.model_intervals import (
    SHRUNK,
    Ends,
    ShrunkFit,
    bound_inverse_noise,
    find_log_concave_quantile,
    widen_variance,
)
from sottovoce.noise import continuous
from sottovoce.noise.source import AnswerGrid
from sottovoce.weights import Weights

#: Rows are whole multiples of 2 to minus this.
GRID_BITS = 24
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
#: This share of everybody's budget buys them, where that is as much; else up to twice that, and
#: not less than this part of them.
MOST_SHARE = 0.03
LARGEST_SHARE = 0.06
LEAST_PART = 1 / 3
#: Then means, spreads, pulls and shape get these parts: noise on means counts squared.
SCARCE_PARTS = (0.4, 0.2, 0.15, 0.25)
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
FROM_PULLS = "the threshold of the loss, within which at least half of the rows are taken to lie"
FROM_PROBABILITIES = "the model's own probabilities, times {:g} where they are not right"


def list_units(slopes: int, pulls: float) -> tuple[float, float, float, float]:
    """Returns how many units of ε in all the four steps need."""
    d = slopes + 1
    return (MEANS_UNITS * d, SPREADS_UNITS * d, pulls, SHAPE_UNITS * d)


def choose_interval_share(
    total: float, slopes: int, wanted: float | None, pulls: float = PULL_UNITS
) -> float:
    """Returns the share of everybody's budget that buys intervals: what is wanted, or else from S =
    Σε; 0 where it would have to be too large.

    3 % where that is as much as is needed; else up to 6 %, down to a third of what is needed, where
    intervals are wider.
    """
    if wanted is not None:
        return float(wanted)
    needed = sum(list_units(slopes, pulls))
    share = min(max(MOST_SHARE, needed / total), LARGEST_SHARE)
    if share * total < LEAST_PART * needed:
        return 0.0
    return share


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
    terms: RowTerms | MeasuredTerms  # which row pulls and bends how strongly, at the released θ
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
        """Of each step; where there are fewer units than are needed, means come first."""
        needed = np.array(list_units(self.slopes, self.pulls))
        parts = needed / needed.sum()
        if self.share / self.weights.ratio < (1 - 1e-9) * needed.sum():
            parts = np.array(SCARCE_PARTS)
        return np.asarray(self.share * parts)

    def buy(self) -> dict[str, Any]:
        """Returns what the four steps release, as public JSON."""
        if isinstance(self.terms, MeasuredTerms):
            return self._buy_steps()
        engine, terms = keep_measured(self.rows.engine, self.terms)
        return replace(self, rows=replace(self.rows, engine=engine), terms=terms)._buy_steps()

    def _buy_steps(self) -> dict[str, Any]:
        p = self.slopes
        first, second, third, fourth = map(float, self.shares)
        bend, *pulled = self._add_box_noise(self._fold(DescribeMeans(self.most_bend)), first)
        bend = max(float(bend), self._find_deviation(p + 1, first))
        means = round_to_grid(np.clip(np.array(pulled) / bend, -0.5, 0.5))
        spreading = DescribeSpreads(means, self.most_bend)
        found = self._add_box_noise(self._fold(spreading), second)
        spreads = np.maximum(found, self._find_deviation(p, second)) * spreading.widths / bend
        metric = bend * spreads**2 * list_square_factors(self.recoding)
        describe = DescribeShape(means, metric, self.most_pull, self.most_bend)
        sums = self._fold(describe)
        pull, far = self._add_box_noise(sums[:2], third)
        R = sums[2:].reshape(p, p)  # over ρ
        if find_matrix_noise(p, fourth / self.weights.ratio) <= MATRIX_NOISE:
            shape = self._buy_matrix(R, fourth)
        else:
            shape = self._buy_eigenvalue(R, fourth)
        return {
            "bend": bend,
            "means": means.tolist(),
            "mean_deviation": self._find_deviation(p + 1, first),
            "squares": metric.tolist(),
            "pull": float(pull),
            "far_pull": float(far) * describe.farthest / p,
            "far_deviation": self._find_deviation(2, third) * describe.farthest / p,
            "pull_scale": self._find_deviation(2, third) / math.sqrt(2),
            **shape,
        }

    def _fold(self, describe: Description) -> Any:
        """Σ w·(what is described) as fractions."""
        weights = self.weights.weights
        kernel = BentSums(self.terms, weights.row, describe, self.slopes)
        return describe.to_fractions(self.rows.engine.fold(kernel)) / weights.total

    def _find_deviation(self, dimension: int, share: float) -> float:
        """Of a coordinate of box noise of width one."""
        return find_box_deviation(dimension, self.weights.ratio / share)

    def _add_box_noise(self, sums: Any, share: float) -> Floats:
        """Returns sums of entries that no person moves by more than their weight, with noise that
        costs everybody this share.
        """
        return add_box_noise(sums, self.weights.ratio / share)

    def _buy_matrix(self, exact: Any, share: float) -> dict[str, Any]:
        """Returns R with radial noise, from R/ρ: entries beside the diagonal are in it twice."""
        p = len(exact)
        longest = find_longest(p)
        rate = share / (math.sqrt(2) * self.weights.ratio * (1 + 2.0**-40))
        i, k = np.triu_indices(p)
        twice = np.array([Fraction(1) if same else ROOT_OF_HALF for same in i == k], dtype=object)
        noise = continuous.draw_l2(rate, len(i)) * twice
        grid = AnswerGrid.below(1 / rate)
        drawn = longest * grid.nearest(exact[i, k] + noise)
        R = np.zeros((p, p))
        R[i, k] = R[k, i] = drawn
        moved = find_matrix_noise(p, share / self.weights.ratio)
        return {"matrix": R.tolist(), "matrix_noise": moved}

    def _buy_eigenvalue(self, exact: Any, share: float) -> dict[str, Any]:
        """Returns the smallest eigenvalue of R with noise, from R/ρ, and the scale of that."""
        longest = find_longest(len(exact))
        R = longest * exact.astype(np.float64)
        smallest = Fraction(float(np.linalg.eigvalsh(R)[0]))
        wrong = 2 * EIGENVALUE_ERROR * longest
        scale = (longest * self.weights.ratio + wrong / self.weights.strictest) / share
        grid = AnswerGrid.below(math.sqrt(2) * scale)
        noisy = float(grid.nearest(smallest + continuous.draw_box([scale]))[0])
        return {"eigenvalue": noisy, "eigenvalue_scale": scale}


def find_box_deviation(dimension: int, scale: float) -> float:
    """Returns the standard deviation of a coordinate of noise in a box of this half-width."""
    return scale * math.sqrt((dimension + 1) * (dimension + 2) / 3)


def add_box_noise(sums: Any, scale: float) -> Floats:
    """Returns sums with noise of density ∝ exp(−max_j |b_j|/scale), rounded to a public grid after
    it: somebody who moves each sum by at most s loses s/scale.
    """
    noise = continuous.draw_box(np.full(len(sums), scale))
    grid = AnswerGrid.below(find_box_deviation(len(sums), scale))
    return grid.nearest(sums + noise)


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


def pad(numbers: Floats, rows: Floats) -> Floats:
    """Returns a number for each column of rows, 0 for those before slopes: rows that lie one after
    another are worked on faster than a part of each.
    """
    return np.concatenate([np.zeros(rows.shape[1] - len(numbers)), numbers])


@dataclass(frozen=True)
class DescribeMeans:
    """(ψ', ψ'z_j) of each row: the first between 0 and 1, the others within ±½."""

    most_bend: float

    def __call__(self, rows: Floats, pull: Floats, bend: Floats, weights: Floats) -> Floats:
        """Returns their weighted sums."""
        parts = weigh_parts(np.minimum(bend / self.most_bend, 1.0), weights)
        return np.column_stack([parts.sum(axis=1), parts @ rows * 2.0**GRID_BITS]).ravel()

    def to_fractions(self, total: Any) -> Any:
        """Returns the sums over all rows in units of one."""
        found = join_parts(total)
        found[1:] /= 2**GRID_BITS
        return found


@dataclass(frozen=True, eq=False)
class DescribeSpreads:
    """ψ'|z_j − μ_j|/m_j of each row, all between 0 and 1."""

    means: Floats  # on the grid of rows
    most_bend: float
    whole_rows = True  # entries before slopes are passed over

    @property
    def widths(self) -> Floats:
        """m_j."""
        return np.asarray(0.5 + np.abs(self.means))

    def __call__(self, rows: Floats, pull: Floats, bend: Floats, weights: Floats) -> Floats:
        """Returns their weighted sums, but for m_j."""
        parts = weigh_parts(np.minimum(bend / self.most_bend, 1.0), weights)
        apart = combine_columns(np.subtract, rows, pad(self.means, rows), np.empty(rows.shape))
        sums = parts @ np.abs(apart, out=apart)
        return (sums[:, -len(self.means) :] * 2.0**GRID_BITS).ravel()

    def to_fractions(self, total: Any) -> Any:
        """Returns the sums over all rows in units of one."""
        widths = [2**GRID_BITS * Fraction(width) for width in self.widths]
        return join_parts(total) / np.array(widths, dtype=object)


@dataclass(frozen=True, eq=False)
class DescribeShape:
    """(ψ/τ)² of each row, the same as far as the row lies from the middle, since rows that are far
    out may pull harder; and the products of g/√ρ: recentred, in the metric that was released, no
    longer than 1.
    """

    means: Floats
    metric: Floats
    most_pull: float
    most_bend: float
    whole_rows = True

    @property
    def farthest(self) -> float:
        """The squared length from which on the pull of a row counts in full."""
        return 2 * find_longest(len(self.metric))

    def __call__(self, rows: Floats, pull: Floats, bend: Floats, weights: Floats) -> Floats:
        """Returns their weighted sums."""
        apart = combine_columns(np.subtract, rows, pad(self.means, rows), np.empty(rows.shape))
        combine_columns(np.multiply, apart, pad(1 / np.sqrt(self.metric), rows), apart)
        square = np.einsum("ij,ij->i", apart, apart)
        pulls = np.minimum((pull / self.most_pull) ** 2, 1.0)
        far = pulls * np.minimum(square / self.farthest, 1.0)
        sums = [weigh_parts(part, weights).sum(axis=1) for part in (pulls, far)]
        # Towards zero, which makes no row longer.
        apart *= (self._scale_rows(square, bend) * np.sqrt(weights))[:, None]
        whole = np.trunc(apart, out=apart)
        slopes = (whole.T @ whole)[-len(self.means) :, -len(self.means) :]
        return np.concatenate([np.column_stack(sums).ravel(), slopes.ravel()])

    def _scale_rows(self, square: Floats, bend: Floats) -> Floats:
        """Returns what makes g/√ρ of rows of this squared length, in units of their sums."""
        root = np.sqrt(np.minimum(bend / self.most_bend, 1.0) / find_longest(len(self.metric)))
        shortened = (1 - 2.0**-40) / np.maximum(root * np.sqrt(square), 1.0)
        return np.asarray(root * shortened * 2.0**SQUARE_BITS)

    def to_fractions(self, total: Any) -> Any:
        """Returns the sums over all rows in units of one."""
        squares = [Fraction(int(one), 4**SQUARE_BITS) for one in total[4:]]
        return np.concatenate([join_parts(total[:4]), np.array(squares, dtype=object)])


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
    bought: dict[str, Any]  # nothing, where nothing was
    #: Where nothing was bought: E ψ²φφᵀ is taken to be at most so many times E ψ'φφᵀ, in the units
    #: in which the total bends; and why.
    ratio: float | None = None
    told: str = FROM_PULLS
    #: φᵀΛ⁻¹φ is at most this; None for rows (½, z) of the box.
    longest: float | None = None

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

    def find_ends(self, functions: Floats, level: float) -> Ends:
        """Returns the ends for functions of θ*; where nothing was bought, or nothing that can be
        told from noise, those of a fit that is shrunk as strongly.
        """
        ends = None
        if self.bought:
            ends = self._find_bought_ends(functions, level)
        if ends is None:
            ends = self._find_shrunk_ends(functions, level)
        moved = np.asarray(functions)[:, 0] * self.moved
        return replace(
            ends,
            low=ends.low + np.minimum(moved, 0.0),
            high=ends.high + np.maximum(moved, 0.0),
        )

    def _find_shrunk_ends(self, functions: Floats, level: float) -> Ends:
        """Sampling is bounded by how hard a row can pull, cᵀ(M + Λ)⁻¹S varying by Σ W_l²·τ²·H times
        cᵀΛ⁻¹c at most, or by what a right model says, since m/(m + Λ)² ≤ 1/(4Λ).
        """
        most = self.squares * self.most_pull**2 * float(np.sum(0.25 / self.ridge))
        if self.longest is not None:
            most = self.squares * self.most_pull**2 * self.longest
        if self.ratio is not None:
            most = min(most, self.ratio * self.squares / (4 * self.total))
        shrunk = ShrunkFit(self.theta, self.ridge, self.noise, most, SHRUNK, self.told)
        return shrunk.find_ends(functions, level)

    def _find_bought_ends(self, functions: Floats, level: float) -> Ends | None:
        """None where what was bought cannot be told from noise.

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
            return None
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
        sampling = float(scipy.special.ndtri(0.5 + level / 2)) * np.sqrt(
            self.squares * variance * size
        )
        sampling = sampling / self.total
        middle = functions @ self.theta + shifted / self.total
        reach = wide / self.total + np.hypot(noise, sampling)
        told = FROM_CURVATURE.format(self.unequal)
        return Ends(middle - reach, middle + reach, noise, sampling, told, self.of)


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
        """By the smallest eigenvalue."""
        return bound_inverse_noise(e, spread, self.least)


def make_shape(bought: dict[str, Any], coupled: float) -> Shape:
    """Returns what is known of R once the constant is taken out of slopes."""
    if "matrix" in bought:
        return KnownMatrix(np.array(bought["matrix"]), bought["matrix_noise"] + coupled**2)
    slack = SAFE_SCALES * bought["eigenvalue_scale"]
    return KnownEigenvalue(bought["eigenvalue"] - slack - coupled**2)


FITTED_LOSS = (
    "the coefficients that the loss which was fitted gives on the whole population, in which no "
    "residual counts for more than its threshold; of least squares if residuals beyond it lie "
    "evenly on both sides, and not where most of them lie on one"
)


def make_centred_inverse(means: Floats) -> Floats:
    """Returns B⁻¹, where rows (½, z) are B·(1, z − μ)."""
    inverse = np.eye(len(means) + 1)
    inverse[0, 0] = 2.0
    inverse[1:, 0] = -2 * means
    return inverse
