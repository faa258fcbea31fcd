# SPDX-License-Identifier: Apache-2.0
"""What a person of some weight loses to one sample of a posterior (docs/theory/posterior.md).

Public numbers alone. A person of weight W_l, where everybody together weighs S, changes the law of
one sample from N(θ̂, H⁻¹/γ), H ⪰ h·I, no more than one row of leverage W_l/h with a residual R_l
would:

    μ = W_l/h,    a = √(γW_l)·R_l,      into the exact profile (one row) or into Rényi's curve
                                        (several)

    symbol     name
    W_l, S     weight, total
    h          floor           on the eigenvalues of H; λ where that is fixed
    R_l        residual        1 + ½√((S−W)/h) at a fixed λ, 1 + √((S−W)/h) where λ answers to the
                               data
    σ₁         spread          of the noise on the smallest eigenvalue
    δ₃         missed          the probability that the floor is missed

Weighted sums of squares over rows of the unit ball, and one draw from the posterior that they make.

How rows and labels come to length 1 at most is public (docs/theory/posterior.md, section 1). With
an intercept, numbers are centred in their bounds and φ = (1, v)/√(1 + r²), r the largest possible
‖v‖; without one nothing is centred.

    symbol   name
    φ, y     a row of the unit ball, and its label in [−1, 1]
    w        weight of a row, by kind
    H        Σ wφφᵀ + λI
    θ̂        H⁻¹Σ wφy
    L        lower triangular, H = LLᵀ; L⁻ᵀz has covariance H⁻¹

Who takes part how strongly in a posterior sample, from public numbers (docs/theory/posterior.md,
section 5).

Everybody is with as much weight as their grant allows: ε_l(W_l; S) = ε_l, where ε_l is what such a
weight costs. At a fixed γ and λ the sum S is the root of ΣW_l(S) = S, which is unique because all
W_l(S) fall with S; where λ answers to the data, γ is such that S is about the number of rows.

    symbol     name
    W_l        weight of a person; weights of rows are the same for all rows of a person
    S          total
    σ₁         spread, n/Σ_l D_l: at weights σ₁D_l, adding up to n, everybody's share of ε pays for
               the eigenvalue
    h          floor
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri

from sottovoce import units
from sottovoce.accounting import profiles, renyi
from sottovoce.accounting.renyi import zcdp_epsilon
from sottovoce.arrays import Array, Floats
from sottovoce.budgets import BudgetGroups
from sottovoce.data.encoding import (
    Feature,
    Label,
    Reader,
    Recoding,
    UnitBall,
    UnitBallReader,
    make_contrasts,
)
from sottovoce.data.engine import Dataset, GroupLookup
from sottovoce.data.loss_kernels import BLOCK, PIECE, to_whole
from sottovoce.errors import BudgetExceeded, InvalidBudget, InvalidParameter, WeakRegularisation
from sottovoce.noise import continuous, source
from sottovoce.noise.source import ANSWER_BITS, Reals
from sottovoce.schema import Interval
from sottovoce.weights import Weights

#: Below this δ the exact ε grows with any leverage, else up to the golden ratio (theorem 5 of
#: per-instance.md).
MONOTONE_DELTA = 0.19
GOLDEN = (1 + math.sqrt(5)) / 2
#: Orders are sought on so many grids, each around the best of the last one; the first goes from −34
#: to FARTHEST.
LEVELS = 4
GRID = np.arange(-10, 11)
STEP = 2.4
START = -10.0
#: What LAPACK's smallest eigenvalue of a matrix of at most 1,024 columns may be wrong by, as a part
#: of its trace.
EIGENVALUE_ERROR = 2.0**-40
#: Closer to the end of the finite orders 1 − (α−1)μ would lose digits; orders closer to 1 would
#: lose α − 1.
FARTHEST = 14.0
SMALLEST = 1e-9


class PosteriorAccountant(Protocol):
    """What a person of some weight loses."""

    @property
    def floor(self) -> float:
        """h."""

    def epsilon(self, weight: Floats, total: float, single: NDArray[np.bool_]) -> Floats:
        """Returns ε, entry by entry, for people of these weights who own a single row, or
        several.
        """


@dataclass(frozen=True)
class FixedRidgeAccountant:
    """λ = h is a public number: Theorem 1."""

    gamma: float
    floor: float
    delta: float

    def epsilon(self, weight: Floats, total: float, single: NDArray[np.bool_]) -> Floats:
        """ε of one sample at δ."""
        others = np.maximum(total - weight, 0.0)
        longest = np.where(
            others >= self.floor, np.sqrt(others / self.floor) / 2, others / (others + self.floor)
        )
        return _bound_sample_epsilon(
            weight / self.floor, np.sqrt(self.gamma * weight) * (1 + longest), self.delta, single
        )


@dataclass(frozen=True)
class AdaptiveRidgeAccountant:
    """λ answers to a noisy smallest eigenvalue: Theorem 2, both releases counted by Rényi's
    divergence.
    """

    gamma: float
    floor: float
    delta: float
    spread: float

    #: The share of δ that δ₃ is.
    missing = 1 / 10

    @property
    def failure_delta(self) -> float:
        """δ₃."""
        return self.delta * self.missing

    def epsilon(self, weight: Floats, total: float, single: NDArray[np.bool_]) -> Floats:
        """ε of both releases at δ − δ₃."""
        mu, a = self._get_leverage_and_residual(weight, total)
        return _compute_renyi_epsilon(
            mu, a, self._bound_distance(weight, total) ** 2 / 2, self.delta - self.failure_delta
        )

    def eigenvalue(self, distance: Floats) -> Floats:
        """ε of the noisy eigenvalue by itself, for people who can move it by so many times σ₁."""
        return zcdp_epsilon(distance**2 / 2, self.delta - self.failure_delta)

    def margin(self, loudest: float, total: float) -> float:
        """Returns what must be added to the floor so that it is missed with probability δ₃ at most.

        W_max + σ₁z, half a step of the grid that λ̃ is rounded to, and the error of the computed
        eigenvalue.
        """
        rounded = self.spread * 2.0 ** -(ANSWER_BITS + 1) + EIGENVALUE_ERROR * total
        return loudest - self.spread * float(ndtri(self.failure_delta)) + rounded

    def _bound_distance(self, weight: Floats, total: float) -> Floats:
        """How far somebody moves the eigenvalue as it is computed, at most, in units of σ₁."""
        return np.asarray((weight + 2 * EIGENVALUE_ERROR * total) / self.spread, dtype=np.float64)

    def _get_leverage_and_residual(self, weight: Floats, total: float) -> tuple[Floats, Floats]:
        longest = np.sqrt(np.maximum(total - weight, 0.0) / self.floor)
        return weight / self.floor, np.sqrt(self.gamma * weight) * (1 + longest)


@dataclass(frozen=True)
class SimpleAdaptiveAccountant(AdaptiveRidgeAccountant):
    """The same with the ε of each release by itself, added up: Theorem 3."""

    missing = 1 / 3

    def epsilon(self, weight: Floats, total: float, single: NDArray[np.bool_]) -> Floats:
        """ε₁ and ε₂, each at half of δ − δ₃."""
        sample = _bound_sample_epsilon(
            *self._get_leverage_and_residual(weight, total), self._each, single
        )
        return np.asarray(
            self.eigenvalue(self._bound_distance(weight, total)) + sample, dtype=np.float64
        )

    def eigenvalue(self, distance: Floats) -> Floats:
        """The exact ε of Gaussian noise."""
        return profiles.gaussian_epsilon(distance, self._each)

    @property
    def _each(self) -> float:
        return (self.delta - self.failure_delta) / 2


def _bound_sample_epsilon(mu: Floats, a: Floats, delta: float, single: NDArray[np.bool_]) -> Floats:
    """Returns ε of one posterior sample: the exact one where it grows with the leverage, else
    Rényi's bound.
    """
    grows = (mu > 0) & ((mu <= GOLDEN) | (delta < MONOTONE_DELTA))
    mu, a, exact = np.broadcast_arrays(mu, a, single & grows)
    found = np.zeros(mu.shape)
    if exact.any():
        found[exact] = profiles.posterior_epsilon(mu[exact], a[exact], delta)
    if not exact.all():
        found[~exact] = _compute_renyi_epsilon(
            mu[~exact], a[~exact], np.zeros(int((~exact).sum())), delta
        )
    return found


def _compute_renyi_epsilon(mu: Floats, a: Floats, rho: Floats, delta: float) -> Floats:
    """Returns the least ε at δ over orders α of the curve αρ + D_α(μ, a), which is finite for (α −
    1)μ < 1.

    (α − 1)μ = 1/(1 + e^−x), and x is sought on finer and finer grids; whatever order is found gives
    a bound.
    """
    participating = np.where(mu > 0, mu, 1.0)
    centre = np.full((len(participating), 1), START)
    step = STEP
    for _ in range(LEVELS):
        x = np.minimum(centre + step * GRID, FARTHEST)
        alpha = np.maximum(1 + 1 / (participating[:, None] * (1 + np.exp(-x))), 1 + SMALLEST)
        curve = rho[:, None] * alpha + renyi.compute_posterior_curve(participating, a, alpha)
        bound = renyi.convert_to_epsilon(curve[..., None], delta, alpha[..., None])
        centre = np.take_along_axis(x, bound.argmin(axis=1)[:, None], axis=1)
        step *= 2 / len(GRID)
    return np.where(mu > 0, bound.min(axis=1), 0.0)


#: Entries of a row, times the root of its weight, have two limbs of so many bits: over the 2^13
#: rows of a piece every partial sum of their products is at most 2^(20+20+13) = 2^53, and a product
#: in doubles is exact in any order.
BITS = 20


def make_unit_ball(recoding: Recoding, norm: float | None, fit_intercept: bool) -> UnitBall:
    """Returns the public way of recoded rows into the unit ball."""
    columns = [f for f in recoding.features if f.width]
    if norm is not None:  # rows as they are, shortened to the norm
        middle, spread = zip(*(_scale_without_centring(f, 1.0) for f in columns), strict=True)
        return UnitBall(
            np.concatenate(middle), np.concatenate(spread), norm, math.sqrt(0.5) * fit_intercept
        )
    sides = [
        (np.zeros(f.width), np.full(f.width, 0.5))
        if fit_intercept
        else _scale_without_centring(f, _get_max_size(f))
        for f in columns
    ]
    longest = math.sqrt(sum(_get_max_length(f) ** 2 for f in columns))
    return UnitBall(
        np.concatenate([np.empty(0), *(middle for middle, _ in sides)]),
        np.concatenate([np.empty(0), *(spread for _, spread in sides)]),
        max(longest, 1.0),
        1 / math.sqrt(1 + longest**2) if fit_intercept else 0.0,
    )


def _scale_without_centring(feature: Feature, size: float) -> tuple[Floats, Floats]:
    """The middle and spread in z that stand for x/size; a factor's contrasts are centred anyway."""
    if feature.levels:
        return np.zeros(feature.width), np.full(feature.width, 0.5)
    width = feature.high - feature.low
    return np.array([-(feature.low + feature.high) / (2 * width)]), np.array([size / width])


def _get_max_size(feature: Feature) -> float:
    return max(abs(feature.low), abs(feature.high))


def _get_max_length(feature: Feature) -> float:
    """What a feature adds to ‖v‖ at most: 1 for a number, a little more for a factor of many
    levels.
    """
    if feature.levels:
        return 2 * float(np.linalg.norm(make_contrasts(len(feature.levels)), axis=1).max())
    return 1.0


def shorten_rows(raw: Floats, norm: float) -> Floats:
    """Returns rows with those that are longer than ``norm`` scaled back to it; rows that are not
    finite stay.
    """
    largest = np.abs(raw).max(axis=1, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0)
    rows = raw.copy()
    units = raw[usable] / largest[usable, None]
    length = np.linalg.norm(units, axis=1)
    long = length > norm / largest[usable]
    rows[np.flatnonzero(usable)[long]] = units[long] * (norm / length[long])[:, None]
    return rows


def get_label_scale(label: Interval, fit_intercept: bool) -> tuple[float, float]:
    """Returns the middle and half-range by which labels come into [−1, 1]; without an intercept not
    centred.
    """
    low, high = label
    if fit_intercept:
        return ((low + high) / 2, (high - low) / 2)
    return (0.0, max(abs(low), abs(high)))


@dataclass(frozen=True, eq=False)
class Gram:
    """Σ w(φ, y)(φ, y)ᵀ over the rows, the same whole numbers in whatever order, batches and
    partitions they come.

    What is cut off, 2⁻⁴⁰ of the heaviest at most, makes rows and labels shorter: theorems hold for
    what is left.
    """

    reader: Reader
    label: Label
    owner: GroupLookup
    weights: Floats  # of one row, by kind
    scale: tuple[float, float]  # middle and half-range of the label

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> Array:
        """Sums over no rows."""
        return np.zeros((2 * self.reader.width + 2, 2 * self.reader.width + 2), dtype=object)

    def __call__(self, batch: Any) -> Array:
        """Returns the sums over the batch as Python's integers; ``decimals`` reads them."""
        return sum(
            (self._sum_block(batch.slice(at, BLOCK)) for at in range(0, len(batch), BLOCK)),
            start=self.zero(),
        )

    def _sum_block(self, batch: Any) -> Array:
        """A cacheful of rows at a time."""
        total = np.zeros(self.zero().shape, dtype=np.int64)
        for at in range(0, len(batch), PIECE):
            total += self._sum_piece(batch.slice(at, PIECE))
        return total.astype(object)

    def _sum_piece(self, batch: Any) -> NDArray[np.int64]:
        w = self.weights[self.owner.kinds(batch)]
        participating = w > 0  # rows of people left out are not read
        root = np.sqrt(w[participating] * math.ldexp(1.0, 2 * BITS - self._exponent))
        rooted = root[:, None] * np.column_stack(
            [self.reader.matrix(batch)[participating], self._read_labels(batch)[participating]]
        )
        high = np.trunc(rooted)
        limbs = np.hstack(
            [high, np.trunc((rooted - high) * 2.0**BITS)]
        )  # towards zero, which makes no row longer
        return to_whole(limbs.T @ limbs)

    def decimals(self, sums: Array) -> Reals:
        """Returns the sums over all rows, with more digits than they have."""
        d = self.reader.width + 1
        crossed = sums[:d, d:] + sums[d:, :d]
        total = (sums[:d, :d] << (2 * BITS)) + (crossed << BITS) + sums[d:, d:]
        unit = Decimal(math.ldexp(1.0, self._exponent - 4 * BITS))
        with localcontext(source.DECIMALS):
            return np.array(
                [Decimal(int(entry)) * unit for entry in total.ravel()], dtype=object
            ).reshape(d, d)

    @cached_property
    def _exponent(self) -> int:
        """No row weighs 2 to this."""
        return math.frexp(float(self.weights.max()))[1]

    def _read_labels(self, batch: Any) -> Floats:
        (middle, half) = self.scale
        label = self.label
        values = (label.low + label.high) / 2 + (label.high - label.low) / 2 * label.values(batch)
        return np.clip((values - middle) / half, -1.0, 1.0)


def compute_gram(
    rows: Dataset, ball: UnitBall, weights: Floats, scale: tuple[float, float]
) -> tuple[Reals, Reals]:
    """Returns Σ wφφᵀ and Σ wφy, as decimals that no rounding has reached."""
    if isinstance(rows.features, UnitBallReader):
        reader = rows.features
    else:
        reader = UnitBallReader(ball, rows.features.recoding, rows.features)
    kernel = Gram(reader, rows.label, rows.owner, weights, scale)
    total = kernel.decimals(rows.engine.fold(kernel))
    return total[:-1, :-1], total[:-1, -1]


def draw_sample(gram: Any, cross: Any, ridge: float, gamma: float) -> Reals:
    """Returns one draw from N(θ̂, H⁻¹/γ), H = gram + ridge·I, θ̂ = H⁻¹·cross, to some 100
    digits.
    """
    with localcontext(source.DECIMALS):
        L = factorise_decimals(source.to_decimals(gram) + np.diag([Decimal(ridge)] * len(cross)))
        noise = np.array(
            [Decimal(z) / source.ONE for z in continuous.draw_standard_normals(len(cross))],
            dtype=object,
        )
        whitened = solve_lower(L, source.to_decimals(cross)) + noise / Decimal(gamma).sqrt()
        return solve_lower(L[::-1, ::-1].T, whitened[::-1])[::-1]


def factorise_decimals(H: Reals) -> Reals:
    """Returns the lower triangular L with H = LLᵀ, for decimals."""
    L = np.full(H.shape, Decimal(0), dtype=object)
    for j in range(len(H)):
        column = H[j:, j] - L[j:, :j] @ L[j, :j]
        L[j:, j] = column / column[0].sqrt()
    return L


def solve_lower(L: Reals, b: Reals) -> Reals:
    """Returns x with Lx = b for a lower triangular L of decimals."""
    x = b.copy()
    for j in range(len(b)):
        x[j] = (b[j] - L[j, :j] @ x[:j]) / L[j, j]
    return x


def add_eigenvalue_noise(gram: Any, spread: float) -> Fraction:
    """Returns λ_min(gram), as doubles give it, and spread·N(0, 1), added exactly."""
    smallest = float(np.linalg.eigvalsh(np.asarray(gram, dtype=np.float64))[0])
    return Fraction(smallest) + Fraction(spread) * Fraction(
        continuous.draw_standard_normals(1)[0], source.ONE
    )


def compute_missing_ridge(noisy: Any, floor: float, margin: float) -> Any:
    """Returns λ_n, what is added so that no eigenvalue lies below the floor: max(0, floor + margin
    − λ̃).
    """
    return np.maximum(0.0, floor + margin - noisy)


#: Grants are filled up to one part in a billion less than they hold: more than doubles can have got
#: wrong.
SPARE = 1e-9
#: What the search for the best order may differ by from one weight to the next.
SEARCH_TOLERANCE = 1e-5
#: Beyond this many different grants they are rounded down to powers of 2^(1/64) while weights are
#: sought.
MANY_GRANTS = 256
FINE = 64
#: Weights are first looked for among these multiples of h, then on so many rungs for each octave
#: that is needed.
OCTAVES = 2.0 ** np.arange(-48, 21)
RUNGS = 8
#: Halvings of one rung, of which 2⁻²⁴ is left.
HALVINGS = 24
#: A floor that is too low is raised by a quarter at a time.
FLOOR_FACTOR = 1.25
#: Roots are sought within e^±FARTHEST of a first guess.
FARTHEST_MULTIPLE = 100.0
#: Beyond, whole numbers of units do not reach; and it would be no promise.
MAX_LOSS = 1e9


@dataclass(frozen=True, eq=False)
class PosteriorWeights:
    """Who takes part how strongly, under which account, and what each is promised."""

    weights: Weights
    unit: float  # the weight that a whole number stands for
    account: Any  # the Account that charges follow from
    charges: units.Units

    @property
    def total(self) -> float:
        """S."""
        return self.weights.total * self.unit

    @property
    def row(self) -> Floats:
        """The weight of one row, by kind."""
        return np.asarray(self.weights.row * self.unit, dtype=np.float64)

    @property
    def loudest(self) -> float:
        """The largest weight that a person has."""
        return float((self.weights.person * self.unit).max())

    @classmethod
    def equal(cls, kinds: BudgetGroups, account: PosteriorAccountant) -> PosteriorWeights:
        """Every row has weight one; what that costs is what is promised."""
        weights = Weights.from_integers(kinds, np.ones_like(kinds.rows))
        losses = account.epsilon(
            kinds.rows.astype(np.float64), float(weights.total), kinds.rows == 1
        )
        return cls(weights, 1.0, account, _round_up_losses(losses))

    @classmethod
    def of(
        cls, kinds: BudgetGroups, weight: Floats, account: PosteriorAccountant
    ) -> PosteriorWeights:
        """Weights of people made whole numbers, rounded down, and charged by what they then are."""
        per_row = weight / kinds.rows
        if not 0 < per_row.max() < math.inf:
            raise InvalidParameter(
                "gamma or alpha is so large that nobody's grant buys a weight.",
                "Somebody must take part.",
                "Choose smaller ones, such as 1 for both.",
                parameter="gamma",
            )
        weights = Weights.from_row_weights(kinds, per_row / per_row.max())
        unit = float(per_row.max()) / int(weights.row.max())
        person = np.asarray(weights.person * unit, dtype=np.float64)
        losses = account.epsilon(person, weights.total * unit, kinds.rows == 1)
        charges = np.where(weights.person > 0, _round_up_losses(losses), 0)
        if np.any(charges > kinds.epsilon * (1 + SEARCH_TOLERANCE) + 1):
            raise _overspent_error()
        # Weights and their sum were rounded down, so the order that kept the grant still does: the
        # smaller is a bound.
        return cls(weights, unit, account, np.minimum(charges, kinds.epsilon))


def _overspent_error() -> BudgetExceeded:
    return BudgetExceeded(
        "Weights were found that cost somebody more than they granted.",
        "Nobody pays more than their grant.",
        "This is an error of the library: nothing was read, and nothing is charged.",
    )


def _round_up_losses(losses: Floats) -> units.Units:
    if losses.max() > MAX_LOSS:
        raise InvalidParameter(
            "An ε would be larger than a billion, which promises nothing.",
            "A posterior that is this concentrated protects nobody.",
            "Choose a smaller gamma or a larger alpha.",
            parameter="gamma",
        )
    # At least one unit: who takes part is not somebody who was left out.
    return np.maximum(units.round_up(losses * (1 + SPARE / 4)), 1)


@dataclass(frozen=True, eq=False)
class DistinctGrants:
    """The different grants among people, a little less than they hold, and how many people gave
    each.
    """

    epsilon: Floats
    single: NDArray[np.bool_]  # whether those people own one row
    people: Floats
    where: NDArray[np.int64]  # kind → grant; people left out come after all

    @classmethod
    def of(cls, kinds: BudgetGroups) -> DistinctGrants:
        """The grants of these kinds of people; refuses if nobody grants anything."""
        granted = units.to_epsilon(kinds.epsilon) * (1 - SPARE)
        participating = kinds.epsilon > 0
        if not participating.any():
            raise InvalidBudget(
                "Nobody grants anything.",
                "Somebody's ε must be above 0.",
                "Give people a positive ε.",
                parameter="epsilon",
            )
        if len(np.unique(granted)) > MANY_GRANTS:
            granted[participating] = 2.0 ** (
                np.floor(np.log2(granted[participating]) * FINE) / FINE
            )
        pairs, code = np.unique(
            np.stack([granted, kinds.rows == 1])[:, participating], axis=1, return_inverse=True
        )
        where = np.full(len(kinds), pairs.shape[1])
        where[participating] = code.ravel()
        return cls(
            pairs[0],
            pairs[1] > 0,
            np.bincount(code.ravel(), kinds.people[participating]).astype(np.float64),
            where,
        )

    def about(self, account: PosteriorAccountant, total: float) -> float:
        """Returns about what everybody together may weigh, where it is taken to be ``total``."""
        found = np.zeros(len(self.epsilon))
        for single, weight, losses in self._list_ladders(account, total):
            logs = np.log(np.maximum(losses, 1e-12))
            found[single] = np.exp(np.interp(np.log(self.epsilon[single]), logs, np.log(weight)))
        return float(found @ self.people)

    def fill_weights(self, account: PosteriorAccountant, total: float) -> Floats:
        """Returns the largest weights whose ε is not above the grants, where all together weigh
        ``total``.
        """
        low = np.zeros(len(self.epsilon))
        high = np.zeros(len(self.epsilon))
        for single, weight, losses in self._list_ladders(account, total):
            rung = np.searchsorted(losses, self.epsilon[single], side="right")
            low[single] = np.concatenate([[0.0], weight])[rung]
            high[single] = np.concatenate([weight, weight[-1:]])[rung]
        for _ in range(HALVINGS):
            middle = np.sqrt(low * high)
            fits = account.epsilon(middle, total, self.single) <= self.epsilon
            low = np.where(fits, middle, low)
            high = np.where(fits, high, middle)
        return low

    def by_group(self, weight: Floats) -> Floats:
        """Spreads one weight a grant over the kinds; people left out weigh nothing."""
        return np.concatenate([weight, [0.0]])[self.where]

    def _list_ladders(
        self, account: PosteriorAccountant, total: float
    ) -> Iterator[tuple[NDArray[np.bool_], Floats, Floats]]:
        """Weights up to ``total`` and what they cost at most, for people with one row and for those
        with several.
        """
        for kind in (True, False):
            single = self.single == kind
            if single.any():
                rungs, losses = _compute_ladder(
                    account, np.minimum(account.floor * OCTAVES, total), total, kind
                )
                low, high = np.searchsorted(
                    losses, [self.epsilon[single].min(), self.epsilon[single].max()]
                )
                ends = rungs[max(low - 1, 0)], rungs[min(high, len(rungs) - 1)]
                yield (
                    single,
                    *_compute_ladder(
                        account, np.geomspace(*ends, RUNGS * int(high - low + 1) + 1), total, kind
                    ),
                )


def _compute_ladder(
    account: PosteriorAccountant, weight: Floats, total: float, single: bool
) -> tuple[Floats, Floats]:
    losses = account.epsilon(weight, total, np.full(len(weight), single))
    return weight, np.maximum.accumulate(losses)


def solve_personal_weights(kinds: BudgetGroups, account: FixedRidgeAccountant) -> PosteriorWeights:
    """Everybody with as much weight as their grant allows at this γ and λ."""
    return _solve_total_weight(kinds, DistinctGrants.of(kinds), account)


def _solve_total_weight(
    kinds: BudgetGroups, grants: DistinctGrants, account: PosteriorAccountant
) -> PosteriorWeights:
    """Weights at the root S of ΣW_l(S) = S."""
    total = _find_root(lambda s: grants.about(account, s) / s, account.floor)
    weight = grants.fill_weights(account, total)
    if (
        weight @ grants.people > total
    ):  # with a larger S everybody is quieter, so this sum is not above it
        weight = grants.fill_weights(account, float(weight @ grants.people))
    return PosteriorWeights.of(kinds, grants.by_group(weight), account)


def solve_adaptive_weights(
    kinds: BudgetGroups, account: AdaptiveRidgeAccountant, share: float, floor: float | None
) -> PosteriorWeights:
    """Everybody with as much weight as their grant allows, with the γ at which weights add up to
    about the number of rows.

    σ₁ is such that the share of everybody's ε would pay for the eigenvalue alone. ``account.floor``
    is raised until half of the rest pays for what people change in H, unless a floor is given.
    """
    grants = DistinctGrants.of(kinds)
    rows = float(kinds.rows @ kinds.people)
    size = _find_largest_distance(account, grants.epsilon * share)
    account = replace(account, spread=rows / float(size @ grants.people))
    affordable = partial(_is_affordable, grants, size * account.spread, rows, (1 + share) / 2)
    least = _find_least_floor(account, affordable)
    account = replace(account, floor=least if floor is None else floor)
    if floor is not None and grants.about(account, rows) <= rows:
        raise _low_floor_error(least)
    gamma = _find_root(
        lambda g: grants.about(replace(account, gamma=g), rows) / rows, account.floor / rows
    )
    return _solve_total_weight(kinds, grants, replace(account, gamma=gamma))


def _is_affordable(
    grants: DistinctGrants,
    weight: Floats,
    rows: float,
    share: float,
    account: AdaptiveRidgeAccountant,
) -> bool:
    return bool(np.all(account.epsilon(weight, rows, grants.single) <= share * grants.epsilon))


def _find_least_floor(
    account: AdaptiveRidgeAccountant, affordable: Callable[[AdaptiveRidgeAccountant], bool]
) -> float:
    while not affordable(account):
        account = replace(account, floor=account.floor * FLOOR_FACTOR)
    return account.floor


def _low_floor_error(least: float) -> WeakRegularisation:
    return WeakRegularisation(
        "At this floor what one person changes in the posterior's shape costs more than somebody "
        "grants.",
        "Eigenvalues must be kept larger for these budgets, whatever the noise.",
        f"Pass floor={least:.3g} or more, or leave floor=None.",
        smallest=least,
        parameter="floor",
    )


def _find_largest_distance(account: AdaptiveRidgeAccountant, epsilon: Floats) -> Floats:
    """Returns D_l, entry by entry: the most that ε allows somebody to move the eigenvalue, in units
    of σ₁.
    """
    low = np.full_like(epsilon, 1e-15)
    high = np.sqrt(2 * epsilon) + 20.0
    for _ in range(32):
        middle = np.sqrt(low * high)
        fits = account.eigenvalue(middle) <= epsilon
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle)
    return low


def _find_root(ratio: Callable[[float], float], start: float) -> float:
    """Returns about where a falling function is one, or the end of what is searched."""

    def height(log_x: float) -> float:
        return math.log(max(ratio(math.exp(log_x)), 1e-300))

    low = high = math.log(start)
    while height(low) < 0 and low > math.log(start) - FARTHEST_MULTIPLE:
        low -= 4
    while height(high) > 0 and high < math.log(start) + FARTHEST_MULTIPLE:
        high += 4
    if height(low) > 0 > height(high):
        return math.exp(brentq(height, low, high, xtol=1e-4))
    return math.exp(low)
