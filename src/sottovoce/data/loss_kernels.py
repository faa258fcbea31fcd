# SPDX-License-Identifier: Apache-2.0
"""What regressions and classifiers sum over rows at a point θ: loss, gradient and curvature,
exactly.

The same rows give the same whole numbers, in whatever order, batches and partitions they come.
Entries of a row are whole multiples of 2⁻²⁴, and vectors are cut into limbs of so few bits that
doubles hold every partial sum of a product: then BLAS adds without an error, in any order. What a
row adds is computed entry by entry, and rounded to a unit that public numbers fix; pieces are added
as integers (docs/theory/solver.md, section on rounding).

Residuals are counted exactly too: a row's own does not depend on where the row stands.

A regression has two bounded losses: Huber's, and the soft one whose curvature costs nothing. The
soft loss is that of t0 and g as doubles have them, and of τ = t0 + g, so that ψ has no jump at t0.

symbol        name
φ             a row: (½, z) for a regression, a point of the unit ball for a classifier
v_i           weight of a row, by kind
ρ, ψ, ψ'      loss of a residual, its derivative, its curvature
τ             |ψ| never exceeds it
H             Σ_j h_j²/Λ_j, the most that one row of weight 1 can add to the curvature, relative to
              Λ
soft          ψ' = min(1, (1 − |ψ|/τ)/(2H)), H ≤ ½: quadratic up to t0 = τ(1−2H), then ψ = τ −
              g·e^(−(a−t0)/g), g = 2Hτ
s             σ(−y·φᵀθ), how much a classifier doubts the label
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Array, Floats
from sottovoce.data.encoding import (
    KIND,
    VALUE,
    ClassLabel,
    EmptyReader,
    Label,
    Reader,
    ScaledLabel,
    round_to_grid,
)
from sottovoce.data.engine import Engine, GroupLookup, as_floats, cut_batch, get_default_engine
from sottovoce.data.pairs import Pair, SoftPulls, add_exactly, clip_pairs, multiply_pairs
from sottovoce.errors import ReleaseFailed

#: Rows that are worked on at a time, so that the work stays in the cache; each sum over them is at
#: most 2^54.
PIECE_BITS = 13
PIECE = 2**PIECE_BITS
#: So many pieces are added in 64 bits before Python's integers take over: 2^54·2^8 = 2^62.
BLOCK = PIECE * 2**8
#: Entries of a row are multiples of 2^−24 and at most ½, or multiples of 2^−23 and at most 1: 23
#: bits and a sign.
ROW_BITS = 23
GRID_STEP = 2.0**-24
#: Bits of θ that are kept for Newton's steps in doubles. For the certificate θ is exact, and all of
#: its bits are.
PLAIN_BITS = 50
#: An exact θ is coarse down to 2^−22 and fine below: coarse parts are added without an error, in
#: doubles even, up to predictions of 2^6. So a residual is right to a unit in its own last place,
#: and not in that of θ.
COARSE_BITS = 22
#: What is finer than this is lost in the last places of what is added to it.
FINE_BITS = 2 * COARSE_BITS
#: Bits of a row's pull in one limb, and how many limbs there are of them: 51 bits in doubles, 85
#: where it is extended.
LIMB = 53 - ROW_BITS - PIECE_BITS
COARSE_LIMBS = 1
PLAIN_LIMBS = 3
EXTENDED_LIMBS = 5
#: ψ of a soft loss is computed in pairs of doubles where g is at least this part of t0; in long
#: floats else.
LEAST_SCALE = 2.0**-20
#: The column of what a double does not hold of what slopes leave of a label.
TAIL = "tail"
#: Where losses are not asked for.
NO_LOSS = np.zeros(0)
#: A θ whose entries are all below 2 to this is cut as if they were not.
SMALLEST_EXPONENT = -500
#: A row's loss has two limbs of so many bits; a row times the root of its curvature has ROOT_BITS:
#: 20 + 20 + 13 = 53.
VALUE_LIMB = 40
ROOT_BITS = 20

RowBlock = tuple[Floats, Floats, Floats]


@dataclass(frozen=True, eq=False, kw_only=True)
class RowTerms(ABC):
    """Sums over rows of v times loss, pull·φ and bend·φφᵀ, each a function of a row's prediction
    φᵀθ and its label.

    ``extended`` sums the pull alone, in the longest float there is, at a θ of exact fractions;
    without ``curved`` the pull alone is summed in doubles, in a third of the time. ``coarse``
    leaves losses out, for first steps, and rounds pulls to one limb if they are summed alone: a
    step with a fresh curvature gains more than one limb holds. A subclass knows rows, labels
    and the loss: entries of φ times the root of bend are at most ½.
    """

    reader: Reader
    label: Any
    owner: GroupLookup
    row_weights: Floats  # of one row, by kind
    theta: Array
    extended: bool = False
    curved: bool = True
    coarse: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> Array:
        """Sums over no rows."""
        return np.zeros(self._count_sums(), dtype=object)

    def _count_sums(self) -> int:
        d = self._fitted
        pulls = self._limbs * d
        if self._pulls_alone:
            return pulls
        return 2 + pulls + d * d

    @property
    def _fitted(self) -> int:
        """How many coordinates sums are made for: all of θ."""
        return len(self.theta)

    @property
    def _pulls_alone(self) -> bool:
        return self.extended or not self.curved

    def __call__(self, batch: Any) -> Array:
        """Returns the sums over the batch as Python's integers, one after another; ``floats`` reads
        them.
        """
        blocks = (batch.slice(at, BLOCK) for at in range(0, len(batch), BLOCK))
        return sum((self._sum_block(block).astype(object) for block in blocks), start=self.zero())

    def _sum_block(self, batch: Any) -> NDArray[np.int64]:
        """A cacheful of rows at a time."""
        total = np.zeros(self._count_sums(), dtype=np.int64)
        for piece in cut_batch(batch, PIECE):
            total += self.sum_piece(*self.read(piece))
        return total

    def read(self, batch: Any) -> RowBlock:
        """Returns weight, rows and labels; rows of people left out are not read."""
        v = self.row_weights[self.owner.kinds(batch)]
        rows = self.reader.matrix(batch)
        labels = self._read_labels(batch)
        if self._everybody:
            return (v, rows, labels)
        participating = v > 0
        return (v[participating], rows[participating], labels[participating])

    def read_rows(self, batch: Any) -> tuple[Floats, Floats]:
        """Returns rows on their grid, and labels, of everybody."""
        return self._round_rows(self.reader.matrix(batch)), self._read_labels(batch)

    def read_features(self, batch: Any, participating: NDArray[np.bool_]) -> Floats:
        """Returns rows on their grid; only those that take part."""
        rows = self.reader.matrix(batch)
        if not participating.all():
            rows = rows[participating]
        return self._round_rows(rows)

    def measure(
        self, batch: Any, participating: NDArray[np.bool_]
    ) -> tuple[Floats, Floats, Floats]:
        """Returns rows on their grid, and the pull and bend of each; only of rows that take
        part.
        """
        labels = self._read_labels(batch)
        if not participating.all():
            labels = labels[participating]
        rows = self.read_features(batch, participating)
        pull, bend = self._compute_pulls(rows, labels)
        return rows, pull, bend

    def sum_piece(self, v: Floats, rows: Floats, labels: Floats) -> NDArray[np.int64]:
        """Returns the sums over at most 2^13 rows."""
        rows = self._round_rows(rows)
        if self.extended:
            weighed = self._weigh_exactly(v, rows, labels)
            limbs = split_pairs(weighed, self._pull_exponent, self._limbs)
            return to_whole(self._sum_gradients(limbs, rows).ravel())
        if self.coarse and self.curved:
            pull, bend = self._compute_pulls(rows, labels)
            loss = NO_LOSS
        else:
            loss, pull, bend = self._compute_losses(rows, labels)
        limbs = split_pulls(v * pull, self._pull_exponent, self._limbs)
        gradient = self._sum_gradients(limbs, rows).ravel()
        if self._pulls_alone:
            return to_whole(gradient)
        values = self._sum_values(v, loss)
        root = np.sqrt(v * bend * math.ldexp(1.0, 2 * ROOT_BITS + 2 - self._exponent))
        return to_whole(
            np.concatenate(
                [values / self._value_units, gradient, self._sum_curvatures(root, rows).ravel()]
            )
        )

    def _weigh_exactly(self, v: Floats, rows: Floats, labels: Floats) -> Pair:
        """Returns the pull of each row, times its weight, for a certificate."""
        _, pull, _ = self._compute_losses(rows, labels)
        return cut_long(v * pull)

    def _sum_values(self, v: Floats, loss: Array) -> Floats:
        """Returns Σ of losses in two limbs."""
        if self.coarse:
            return np.zeros(2)
        limbs = split_limbs(v * loss, self._value_exponent, VALUE_LIMB, 2)
        return np.array([part.sum() for part in limbs])

    def _sum_gradients(self, limbs: Floats, rows: Floats) -> Floats:
        """Returns Σ pull·φ for each limb of the pulls, in units of its last bit and of the grid."""
        slopes = limbs @ rows
        if slopes.shape[1] < len(self.theta):
            slopes = np.column_stack([limbs.sum(axis=1) / 2, slopes])
        return np.asarray(slopes / GRID_STEP)

    def _sum_curvatures(self, root: Floats, rows: Floats) -> Floats:
        """Returns Σ of squares of rows times the root of their curvature, whole numbers all."""
        rooted = rows * root[:, None]
        slopes = (
            np.rint(rooted, out=rooted).T @ rooted
        )  # with its own transpose, which takes half the work
        if len(slopes) == len(self.theta):
            return slopes
        constant = np.rint(root / 2)
        squares = np.empty((len(self.theta), len(self.theta)))
        squares[0, 0] = constant @ constant
        squares[1:, 1:] = slopes
        squares[0, 1:] = squares[1:, 0] = constant @ rooted
        return squares

    def floats(self, sums: Array) -> tuple[float, Array, Floats]:
        """Returns (Σvρ, Σvψφ, Σvψ'φφᵀ) from the sums over all rows, each rounded once; Σvψφ
        exactly, if extended.
        """
        d = self._fitted
        limbs = self._limbs
        pulls = (sums if self._pulls_alone else sums[2 : 2 + limbs * d]).reshape(limbs, d)
        total = sum(
            (pulls[k] << (LIMB * (limbs - 1 - k)) for k in range(limbs)),
            start=np.zeros(d, dtype=object),
        )
        last = self._pull_exponent - LIMB * limbs - 24
        if self.extended:
            return (
                0.0,
                np.array([pull * Fraction(2) ** last for pull in total], dtype=object),
                np.zeros((d, d)),
            )
        gradient = np.array([math.ldexp(float(pull), last) for pull in total])
        if self._pulls_alone:
            return 0.0, gradient, np.zeros((d, d))
        bends = sums[2 + limbs * d :].reshape(d, d).astype(np.float64) * 2.0 ** (
            self._exponent - 2 * ROOT_BITS - 2
        )
        value = float((sums[0] << VALUE_LIMB) + sums[1]) * float(self._value_units[1])
        return value, gradient, bends

    @cached_property
    def _limbs(self) -> int:
        if self.extended:
            return EXTENDED_LIMBS
        if self.coarse and not self.curved:
            return COARSE_LIMBS
        return PLAIN_LIMBS

    @cached_property
    def _everybody(self) -> bool:
        """Whether nobody is left out."""
        return bool(self.row_weights.min() > 0)

    @cached_property
    def _plain_limbs(self) -> Floats:
        return split_plainly(self.theta)

    @cached_property
    def _exact_parts(self) -> ExactParts:
        """θ in limbs."""
        return ExactParts.of(self.theta)

    @cached_property
    def _exponent(self) -> int:
        """No row's weight reaches 2 to this."""
        return math.frexp(float(self.row_weights.max()))[1]

    @cached_property
    def _pull_exponent(self) -> int:
        return math.frexp(float(self.row_weights.max()) * self._max_slope())[1]

    @cached_property
    def _value_exponent(self) -> int:
        return (
            self._exponent
            + math.frexp(self._max_slope() * (2 + float(np.abs(self.theta).sum())))[1]
        )

    @cached_property
    def _value_units(self) -> Floats:
        return np.array([math.ldexp(1.0, self._value_exponent - VALUE_LIMB * k) for k in (1, 2)])

    @abstractmethod
    def _round_rows(self, rows: Floats) -> Floats:
        """Returns φ on its grid, without its ½ if it has one."""

    @abstractmethod
    def _read_labels(self, batch: Any) -> Floats:
        """Returns labels."""

    @abstractmethod
    def get_sample_label(self, column: str) -> Any:
        """Returns the label for a column that holds labels as they were read once."""

    def _subtract_predictions(self, start: Any, rows: Floats) -> Array:
        """Returns start − φᵀθ of each row."""
        if self.extended:
            return compute_residuals(start, rows, self._exact_parts)
        left: Array = start - add_limbs(rows, self._plain_limbs)
        return left

    @abstractmethod
    def _compute_losses(self, rows: Floats, labels: Floats) -> tuple[Array, Array, Array]:
        """Returns loss, pull and bend of each row."""

    def _compute_pulls(self, rows: Floats, labels: Floats) -> tuple[Array, Array]:
        """Returns pull and bend of each row."""
        _, pull, bend = self._compute_losses(rows, labels)
        return pull, bend

    @abstractmethod
    def _max_slope(self) -> float:
        """No pull is larger, and no loss is larger than it times (2 + Σ|θ_j|)."""


@dataclass(frozen=True)
class SoftHuber:
    """The soft Huber loss; twice continuously differentiable."""

    tau: float
    H: float

    def __call__(self, residuals: Any) -> tuple[Any, Any, Any]:
        """Return (ρ, ψ, ψ') at the residuals, in their own precision."""
        t0 = self.tau * max(1 - 2 * self.H, 0.0)
        g = 2 * self.H * self.tau
        a = np.abs(residuals)
        over = np.maximum(a - t0, 0)
        E = np.exp(-over / g)
        psi = np.where(over > 0, t0 + g * (1 - E), a)
        rho = np.where(over > 0, t0**2 / 2 + (t0 + g) * over - g**2 * (1 - E), a * a / 2)
        return rho, np.copysign(psi, residuals), E

    def pull_and_bend(self, residuals: Array) -> tuple[Array, Array]:
        """Return (ψ, ψ') at the residuals, in their own precision."""
        t0 = self.tau * max(1 - 2 * self.H, 0.0)
        g = 2 * self.H * self.tau
        size = np.abs(residuals)
        over = np.maximum(size - t0, 0)
        far = over > 0
        over /= -g
        E = np.exp(over, out=over)
        psi = np.where(far, t0 + g * (1 - E), size)
        return np.copysign(psi, residuals, out=psi), E

    def pull(self, residuals: Array) -> Array:
        """Return ψ at the residuals, in their own precision."""
        if residuals.dtype == np.float64:
            return self.pull_and_bend(residuals)[0]
        t0 = self.tau * max(1 - 2 * self.H, 0.0)
        # Long floats take long: most rows are within t0, where nothing is to be computed.
        far = np.flatnonzero(np.abs(residuals.astype(np.float64, copy=False)) >= t0)
        psi = residuals.copy()
        some = residuals[far]
        over = np.maximum(np.abs(some) - t0, 0)  # 0 only by a last bit, and then ψ is t0 itself
        g = 2 * self.H * self.tau
        psi[far] = np.copysign(t0 + g * (1 - np.exp(-over / g)), some)
        return psi

    @cached_property
    def pull_pairs(self) -> Callable[[Pair], Pair] | None:
        """What makes ψ of residuals in pairs; None where g is too small beside t0 for it."""
        t0 = self.tau * max(1 - 2 * self.H, 0.0)
        g = 2 * self.H * self.tau
        if g < LEAST_SCALE * t0:
            return None
        return SoftPulls(t0, g)


@dataclass(frozen=True)
class ClassicHuber:
    """Huber's loss."""

    tau: float

    def __call__(self, residuals: Any) -> tuple[Any, Any, Any]:
        """Return (ρ, ψ, ψ') at the residuals, in their own precision."""
        a = np.abs(residuals)
        inside = a < self.tau
        rho = np.where(inside, a * a / 2, self.tau * (a - self.tau / 2))
        return rho, np.clip(residuals, -self.tau, self.tau), inside.astype(a.dtype)

    def pull_and_bend(self, residuals: Array) -> tuple[Array, Array]:
        """Return (ψ, ψ') at the residuals, in their own precision."""
        _, psi, bend = self(residuals)
        return psi, bend

    def pull(self, residuals: Array) -> Array:
        """Return ψ at the residuals, in their own precision."""
        return np.asarray(np.clip(residuals, -self.tau, self.tau))

    def pull_pairs(self, residuals: Pair) -> Pair:
        """Return ψ of residuals in pairs."""
        return clip_pairs(residuals, self.tau)


@dataclass(frozen=True, eq=False, kw_only=True)
class HuberTerms(RowTerms):
    """The data's part of a regression's objective."""

    label: Label | ScaledLabel
    loss: SoftHuber | ClassicHuber

    def get_sample_label(self, column: str) -> ScaledLabel:
        """Returns the label between −1 and 1, which it is scaled to."""
        return ScaledLabel(column)

    def _round_rows(self, rows: Floats) -> Floats:
        if getattr(self.reader, "rounded", False):
            return rows
        return round_to_grid(rows)

    def _read_labels(self, batch: Any) -> Floats:
        return self.label.values(batch)

    def _compute_losses(self, rows: Floats, labels: Floats) -> tuple[Array, Array, Array]:
        residuals = self._subtract_predictions(labels, rows)
        if self._pulls_alone:
            pull = self.loss.pull(residuals)
            return pull, pull, pull
        rho, psi, bend = self.loss(residuals)
        return rho, psi, bend

    def _compute_pulls(self, rows: Floats, labels: Floats) -> tuple[Array, Array]:
        return self.loss.pull_and_bend(self._subtract_predictions(labels, rows))

    def _weigh_exactly(self, v: Floats, rows: Floats, labels: Floats) -> Pair:
        pull = self.loss.pull_pairs
        if pull is None:
            return super()._weigh_exactly(v, rows, labels)
        residuals = self._find_residual_pairs(labels, rows)
        return multiply_pairs(v, pull(residuals), math.frexp(self._max_slope())[1])

    def _find_residual_pairs(self, labels: Floats, rows: Floats) -> Pair:
        return compute_residual_pairs(labels, rows, self._exact_parts)

    def _max_slope(self) -> float:
        return float(self.loss.tau)  # ρ(r) ≤ τ|r|


@dataclass(frozen=True, eq=False, kw_only=True)
class InterceptTerms(HuberTerms):
    """The data's part of the objective of the intercept alone; θ holds slopes that stay behind it.

    What the slopes leave of a label is the same at every look, so where rows are in memory it is
    computed once, as a pair of doubles, and kept instead of the rows. Rows elsewhere are read at
    every look, and give the same numbers.
    """

    @property
    def _fitted(self) -> int:
        return 1

    def _sum_gradients(self, limbs: Floats, rows: Floats) -> Floats:
        return np.asarray(limbs.sum(axis=1) / (2 * GRID_STEP))

    def _sum_curvatures(self, root: Floats, rows: Floats) -> Floats:
        constant = np.rint(root / 2)
        return np.array([constant @ constant])

    def subtract_slopes(self, labels: Any, rows: Floats) -> Pair:
        """Returns what the slopes leave of each label."""
        return compute_residual_pairs(labels, rows, self._held_parts)

    def _subtract_predictions(self, start: Any, rows: Floats) -> Array:
        if self.extended:
            head, tail = self._find_residual_pairs(start, rows)
            return np.asarray(head.astype(np.longdouble) + tail)
        left = self.subtract_slopes(start, rows).head
        return np.asarray(left - float(self.theta[0]) / 2)

    def _find_residual_pairs(self, labels: Any, rows: Floats) -> Pair:
        left = self.subtract_slopes(labels, rows)
        constant = Fraction(self.theta[0]) / 2
        head = float(constant)
        total, lost = add_exactly(left.head, np.full(1, -head))
        lost += left.tail - float(constant - Fraction(head))
        return add_exactly(total, lost)

    @cached_property
    def _held_parts(self) -> ExactParts:
        return ExactParts.of(np.array([Fraction(slope) for slope in self.theta[1:]], dtype=object))

    def keep(self, engine: Engine) -> Engine:
        """Returns an engine over what slopes leave of the labels of those who take part, for
        kernels that ``adapt`` makes.
        """
        return get_default_engine().of_batches(engine.fold(_LeftOver(self)))

    def adapt(self) -> KeptInterceptTerms:
        """Returns the same sums over what was kept."""
        given = {name: part for name, part in self.__dict__.items() if not name.startswith("_")}
        given |= {
            "reader": EmptyReader(),
            "label": ScaledLabel(VALUE),
            "owner": GroupLookup(KIND),
        }
        return KeptInterceptTerms(**given)


@dataclass(frozen=True, eq=False, kw_only=True)
class KeptInterceptTerms(InterceptTerms):
    """The same where what slopes leave of labels lies in memory."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What is left, in two columns, and kinds."""
        return (VALUE, TAIL, KIND)

    def read(self, batch: Any) -> RowBlock:
        """Returns weight, no features, and what slopes leave, a pair."""
        left: Any = Pair(as_floats(batch.column(VALUE)), as_floats(batch.column(TAIL)))
        return self.row_weights[self.owner.kinds(batch)], np.empty((len(batch), 0)), left

    def subtract_slopes(self, labels: Any, rows: Floats) -> Pair:
        """Returns what was kept."""
        kept: Pair = labels
        return kept


@dataclass(frozen=True, eq=False)
class _LeftOver:
    """What slopes leave of labels, and kinds, in batches; of those who take part."""

    terms: InterceptTerms

    @property
    def columns(self) -> tuple[str, ...]:
        return self.terms.columns

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        pieces = [self._subtract(piece) for piece in cut_batch(batch, PIECE)]
        kinds = self.terms.owner.kinds(batch)
        participating = self.terms.row_weights[kinds] > 0
        if not participating.all():
            kinds = kinds[participating]
        columns: dict[str, Array] = {
            VALUE: np.concatenate([np.empty(0), *(pair.head for pair in pieces)]),
            TAIL: np.concatenate([np.empty(0), *(pair.tail for pair in pieces)]),
            KIND: kinds,
        }
        return [get_default_engine().to_batch(columns)]

    def _subtract(self, batch: Any) -> Pair:
        _, rows, labels = self.terms.read(batch)
        return self.terms.subtract_slopes(labels, self.terms._round_rows(rows))


@dataclass(frozen=True)
class SignLabel:
    """Labels of two classes in a column of +1 and −1."""

    column: str

    def signs(self, batch: Any, positive: int) -> Floats:
        """Returns them."""
        return as_floats(batch.column(self.column))


@dataclass(frozen=True, eq=False, kw_only=True)
class LogisticTerms(RowTerms):
    """Σ v·log(1+e^(−yφᵀθ)), minus its gradient, and its curvature, for one class against the
    others.
    """

    label: ClassLabel | SignLabel
    positive: int  # the class that counts as +1

    def _round_rows(self, rows: Floats) -> Floats:
        return rows  # the unit ball is on a grid already

    def _read_labels(self, batch: Any) -> Floats:
        return self.label.signs(batch, self.positive)

    def get_sample_label(self, column: str) -> SignLabel:
        """Returns the label that is +1 or −1."""
        return SignLabel(column)

    def _compute_losses(self, rows: Floats, labels: Floats) -> tuple[Array, Array, Array]:
        margin, small, doubt = self._compute_doubts(rows, labels)
        # The logarithm of the loss would take as long as all the rest.
        if self._pulls_alone:
            loss = margin
        else:
            loss = np.log1p(small) + np.maximum(-margin, 0)
        return loss, labels * doubt, doubt * (1 - doubt)

    def _compute_pulls(self, rows: Floats, labels: Floats) -> tuple[Array, Array]:
        _, _, doubt = self._compute_doubts(rows, labels)
        return labels * doubt, doubt * (1 - doubt)

    def _compute_doubts(self, rows: Floats, labels: Floats) -> tuple[Array, Array, Array]:
        """Returns the margin m of each row, e^(−|m|), and how much the label is doubted."""
        margin = -labels * self._subtract_predictions(0.0, rows)
        small = np.exp(-np.abs(margin))  # never overflows
        return margin, small, np.where(margin > 0, small, 1) / (1 + small)

    def _max_slope(self) -> float:
        return 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class SoftmaxTerms(RowTerms):
    """Σ v·(log Σ_k e^(φᵀθ_k) − φᵀθ_y), minus its gradient, and its curvature, for several classes
    at once; θ holds the classes one after the other.

    The curvature is Σ_{k<l} of P_kP_l·φφᵀ in the blocks of two classes: sums of squares, so that
    rounding leaves it positive semidefinite, and flat where the loss is.
    """

    label: ClassLabel
    classes: int

    def _count_sums(self) -> int:
        pulls = self._limbs * len(self.theta)
        if self._pulls_alone:
            return pulls
        return 2 + pulls + len(self._pairs) * self._width**2

    def sum_piece(self, v: Floats, rows: Floats, labels: Floats) -> NDArray[np.int64]:
        """Returns the sums over at most 2^13 rows."""
        codes = labels.astype(np.int64)
        margins = self._compute_margins(rows)
        chances = np.exp(margins)
        total = chances.sum(axis=1)
        chances /= total[:, None]
        pulls = -chances
        pulls[np.arange(len(codes)), codes] += 1
        limbs = split_pulls((v[:, None] * pulls).T, self._pull_exponent, self._limbs)
        gradient = (limbs.reshape(-1, len(v)) @ rows / GRID_STEP).ravel()
        if self._pulls_alone:
            return to_whole(gradient)
        values = self._sum_values(v, np.log(total) - margins[np.arange(len(codes)), codes])
        scale = math.ldexp(1.0, 2 * ROOT_BITS + 2 - self._exponent)
        bends = []
        for k, other in self._pairs:
            rooted = rows * np.sqrt(v * chances[:, k] * chances[:, other] * scale)[:, None]
            bends.append((np.rint(rooted, out=rooted).T @ rooted).ravel())
        return to_whole(np.concatenate([values / self._value_units, gradient, *bends]))

    def floats(self, sums: Array) -> tuple[float, Array, Floats]:
        """Returns loss, gradient and curvature from the sums over all rows."""
        if self._pulls_alone:
            return super().floats(sums)
        size = 2 + self._limbs * len(self.theta)
        d = self._width
        none = np.zeros(len(self.theta) ** 2, dtype=object)
        value, gradient, bend = super().floats(np.concatenate([sums[:size], none]))
        found = sums[size:].reshape(-1, d, d).astype(np.float64)
        found *= 2.0 ** (self._exponent - 2 * ROOT_BITS - 2)
        blocks = bend.reshape(self.classes, d, self.classes, d)
        for (k, other), one in zip(self._pairs, found, strict=True):
            blocks[k, :, k] += one
            blocks[other, :, other] += one
            blocks[k, :, other] -= one
            blocks[other, :, k] -= one
        return value, gradient, bend

    def _compute_margins(self, rows: Floats) -> Array:
        """Returns φᵀ(θ_k − θ_r) with r the class of the largest prediction, so that nothing
        overflows and large predictions that are close to each other keep their difference.
        """
        parts = self.theta.reshape(self.classes, self._width)
        rough = np.column_stack(
            [compute_predictions(rows, part.astype(np.float64)) for part in parts]
        )
        largest = rough.argmax(axis=1)
        if not self.extended:
            return np.asarray(rough - rough[np.arange(len(rows)), largest][:, None])
        margins = np.zeros(rough.shape, dtype=np.longdouble)
        for reference in np.unique(largest):
            which = largest == reference
            for k in range(self.classes):
                if k != reference:
                    apart = self._find_differences(int(reference), k)
                    margins[which, k] = compute_residuals(0.0, rows[which], apart)
        return margins

    def _find_differences(self, reference: int, other: int) -> ExactParts:
        """θ_r − θ_k in limbs, cut once for all pieces."""
        parts = self.theta.reshape(self.classes, self._width)
        if (reference, other) not in self._differences:
            self._differences[reference, other] = ExactParts.of(parts[reference] - parts[other])
        return self._differences[reference, other]

    @cached_property
    def _differences(self) -> dict[tuple[int, int], ExactParts]:
        return {}

    @cached_property
    def _width(self) -> int:
        return len(self.theta) // self.classes

    @cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        return list(combinations(range(self.classes), 2))

    @cached_property
    def _pull_exponent(self) -> int:
        return self._exponent

    def _round_rows(self, rows: Floats) -> Floats:
        return rows  # rows of a classifier are on a grid already

    def _read_labels(self, batch: Any) -> Floats:
        return self.label.codes(batch)

    def get_sample_label(self, column: str) -> ClassLabel:
        """Returns the label that is the number of its class."""
        return replace(self.label, column=column, coded=True)

    def _compute_losses(self, rows: Floats, labels: Floats) -> tuple[Array, Array, Array]:
        raise NotImplementedError  # a row has one pull for each class

    def _max_slope(self) -> float:
        return 2.0 + math.log(self.classes)  # the loss is at most log K + 2·Σ|θ|


@dataclass(frozen=True, eq=False, kw_only=True)
class ThresholdErrors:
    """For each of some intercepts, the weight of rows that are wrongly said to be of the second
    class, and wrongly not, as whole numbers.
    """

    reader: Reader  # of recoded rows
    label: ClassLabel
    owner: GroupLookup
    weights: NDArray[np.int64]  # of one row, by kind
    slopes: Floats
    intercepts: Floats  # rising

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> NDArray[np.int64]:
        """No rows, no errors."""
        return np.zeros((2, len(self.intercepts)), dtype=np.int64)

    def __call__(self, batch: Any) -> NDArray[np.int64]:
        """Returns both weights for each intercept."""
        v = self.weights[self.owner.kinds(batch)]
        positive = self.label.codes(batch) == 1
        scores = compute_predictions(round_to_grid(self.reader.matrix(batch)), self.slopes)
        # A row is said to be of the second class from the first intercept above −score on.
        first = np.searchsorted(self.intercepts, -scores, side="right")
        count = len(self.intercepts) + 1
        said = [_sum_by_place(v, first, which, count) for which in (~positive, positive)]
        wrongly = np.cumsum(said[0])[:-1]
        missed = said[1].sum() - np.cumsum(said[1])[:-1]
        return np.array([wrongly, missed])


def _sum_by_place(
    v: NDArray[np.int64], place: NDArray[np.int64], which: NDArray[np.bool_], count: int
) -> NDArray[np.int64]:
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, place[which], v[which])
    return sums


@dataclass(frozen=True, eq=False)
class ResidualSizes:
    """Cells of residuals by their size: cell j holds those above bound j − 1 and up to bound j."""

    bounds: Floats  # ascending

    @property
    def cells(self) -> int:
        """The number of bounds; one cell more holds what is above all of them."""
        return len(self.bounds)

    def integers(self, values: Floats) -> NDArray[np.int64]:
        """Returns the cell of each residual."""
        return np.searchsorted(self.bounds, np.abs(values))


@dataclass(frozen=True, eq=False)
class ResidualHistogram:
    """Σ weight over rows whose residual y − φᵀθ falls in each cell of a public grid; exact whole
    numbers.
    """

    reader: Reader
    label: Label
    owner: GroupLookup
    weights: NDArray[np.int64]  # of one row, by kind; they must add up to less than 2^62
    grid: Any  # a Grid, or ResidualSizes
    theta: NDArray[np.float64]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> NDArray[np.int64]:
        """The histogram of no rows."""
        return np.zeros(self.grid.cells + 1, dtype=np.int64)

    def __call__(self, batch: Any) -> NDArray[np.int64]:
        """Returns the exact weight in each cell."""
        total = self.zero()
        for piece in cut_batch(batch, PIECE):
            self._add(piece, total)
        return total

    @cached_property
    def _limbs(self) -> Floats:
        """θ in limbs, cut once for all pieces."""
        return split_plainly(self.theta)

    def _add(self, batch: Any, total: NDArray[np.int64]) -> None:
        weights = self.weights[self.owner.kinds(batch)]
        rows = self.reader.matrix(batch)
        if not getattr(self.reader, "rounded", False):
            rows = round_to_grid(rows)
        residuals = self.label.values(batch)
        residuals -= add_limbs(rows, self._limbs)
        if not weights.all():
            residuals = residuals[weights > 0]
            weights = weights[weights > 0]
        np.add.at(total, self.grid.integers(residuals).astype(np.int64), weights)


def compute_predictions(rows: Floats, theta: Floats) -> Floats:
    """Returns φᵀθ, with θ cut to PLAIN_BITS and no other error than that of adding a few limbs.

    Where θ is longer than a row by one, φ = (½, row).
    """
    return add_limbs(rows, split_plainly(theta))


def split_plainly(theta: Floats) -> Floats:
    """Returns θ, cut to PLAIN_BITS, in limbs, a column each, whose products with rows doubles
    hold.
    """
    bits = choose_limb_bits(len(theta))
    top = max(math.frexp(float(np.abs(theta).max()))[1], SMALLEST_EXPONENT)
    limbs = list(split_limbs(theta, top, bits, -(-PLAIN_BITS // bits)))
    while len(limbs) > 1 and not limbs[-1].any():
        limbs.pop()  # a θ of few bits has one limb
    return np.column_stack(limbs)


def add_limbs(rows: Floats, limbs: Floats) -> Floats:
    """Returns φᵀθ from the limbs of θ."""
    first, *others = _multiply_limbs(rows, limbs)
    for product in others:
        first += product
    return np.asarray(first)


def compute_residuals(start: Any, rows: Floats, theta: ExactParts) -> Array:
    """Returns start − φᵀθ in the longest float, for an exact θ of any size and |start| ≤ 1.

    It is wrong by a few units in the last place of itself and of d·2⁻²² (docs/theory/solver.md).
    """
    left, first, finest = _subtract_parts(start, rows, theta)
    residuals = left.astype(np.longdouble)
    residuals += first
    residuals += finest
    return residuals


def compute_residual_pairs(start: Any, rows: Floats, theta: ExactParts) -> Pair:
    """Returns the same as pairs of doubles, which are wrong by less."""
    left, first, finest = _subtract_parts(start, rows, theta)
    total, lost = add_exactly(left, first)
    lost += finest
    return add_exactly(total, lost)


def _subtract_parts(start: Any, rows: Floats, theta: ExactParts) -> tuple[Floats, Floats, Floats]:
    """Returns three doubles that add up to start − φᵀθ: coarse parts are subtracted with what is
    lost kept, which is nothing up to 2⁶; fine ones come to less than d·2⁻²² together, and all but
    the first of them to so little that doubles do (docs/theory/solver.md).
    """
    products = _multiply_limbs(rows, theta.limbs)
    left = np.broadcast_to(np.asarray(start, dtype=np.float64), (len(rows),))
    first = np.zeros(len(rows))
    finest = np.zeros(len(rows))
    for bits, product in zip(theta.bits, products, strict=True):
        if bits <= COARSE_BITS:
            left, rounded = _subtract_exactly(left, product)
            finest += rounded
        elif bits <= FINE_BITS:
            first, rounded = _subtract_exactly(first, product)
            finest += rounded
        else:
            finest -= product
    return left, first, finest


@dataclass(frozen=True, eq=False)
class ExactParts:
    """An exact θ in limbs whose products with rows doubles hold, and how many bits after the point
    each has.
    """

    bits: list[int]
    limbs: Floats  # a column each

    @classmethod
    def of(cls, theta: Array) -> ExactParts:
        """Cuts fractions over powers of two."""
        if choose_limb_bits(len(theta)) >= COARSE_BITS:
            bits = COARSE_BITS
        else:
            bits = COARSE_BITS // 2
        parts = list(split_exactly(theta, bits))
        limbs = np.empty((len(theta), 0))
        if parts:
            limbs = np.column_stack([limb for _, limb in parts])
        return cls([bits * place for place, _ in parts], limbs)


def _subtract_exactly(a: Floats, b: Floats) -> Pair:
    """Returns a − b, rounded, and what was rounded off, exactly."""
    return add_exactly(a, -b)


def choose_limb_bits(coordinates: int) -> int:
    """Returns how many bits a limb of θ may have, so that doubles hold its product with a row."""
    return 53 - ROW_BITS - (coordinates - 1).bit_length()


def split_exactly(theta: Array, bits: int) -> Iterator[tuple[int, Floats]]:
    """Yields fractions over powers of two in parts that add up to them: (k, whole multiples of
    2^(−bits·k)), k rising.

    What is left after part k is at most half its unit.
    """
    last = max(number.denominator for number in theta).bit_length() - 1
    rest = np.array([int(number * 2**last) for number in theta], dtype=object)
    place = 1 - -(-(int(np.abs(rest).max()).bit_length() - last) // bits)
    while rest.any():
        drop = last - bits * place
        if drop <= 0:
            part = rest * 2**-drop
        else:
            part = (rest + 2 ** (drop - 1)) // 2**drop
        yield place, np.array([math.ldexp(number, -bits * place) for number in part])
        if drop > 0:
            rest = rest - part * 2**drop
        else:
            rest = 0 * rest
        place += 1


def _multiply_limbs(rows: Floats, columns: Floats) -> Floats:
    """Returns φᵀ(limb of θ) for each limb, a column each, exactly; where θ is longer than a row by
    one, φ = (½, row).
    """
    first = len(columns) - rows.shape[1]
    products = rows @ columns[first:]
    if first:
        products += columns[:first].sum(axis=0) / 2
    return np.asarray(products.T)


def split_limbs(vector: Array, top: int, bits: int, count: int) -> Iterator[Floats]:
    """Yields a vector of numbers below 2^top in parts: whole multiples of 2^(top−bits), of
    2^(top−2·bits), …
    """
    rest = vector
    for cut in range(1, count + 1):
        part = np.rint(rest * math.ldexp(1.0, bits * cut - top)) * math.ldexp(1.0, top - bits * cut)
        yield part.astype(np.float64, copy=False)
        if cut < count:
            rest = rest - part


def split_pulls(pulls: Array, top: int, count: int) -> Floats:
    """Returns pulls below 2^top, in doubles or in the longest float, as whole numbers in limbs of
    LIMB bits, the first limb first: whole multiples of 2^(top − LIMB·count), nearest to them.
    """
    if count > PLAIN_LIMBS:
        return split_pairs(cut_long(pulls), top, count)
    parts = np.empty((count, *pulls.shape))
    whole = pulls.astype(np.float64, copy=False) * math.ldexp(1.0, LIMB * count - top)
    _cut_whole(np.rint(whole, out=whole), parts)
    return parts


def split_pairs(pulls: Pair, top: int, count: int) -> Floats:
    """Returns the same for pulls in pairs, in more limbs than doubles fill."""
    parts = np.empty((count, *pulls.head.shape))
    whole = pulls.head * math.ldexp(1.0, LIMB * PLAIN_LIMBS - top)
    np.rint(whole, out=whole)
    # No rounding: bits fall away.
    rest = pulls.head - whole * math.ldexp(1.0, top - LIMB * PLAIN_LIMBS)
    rest += pulls.tail
    rest *= math.ldexp(1.0, LIMB * count - top)
    _cut_whole(np.rint(rest, out=rest), parts[PLAIN_LIMBS:])
    _cut_whole(whole, parts[:PLAIN_LIMBS])
    return parts


def cut_long(numbers: Array) -> Pair:
    """Returns long floats as pairs of doubles."""
    head = numbers.astype(np.float64, copy=False)
    return Pair(head, (numbers - head).astype(np.float64))


def _cut_whole(whole: Floats, parts: Floats) -> None:
    """Cuts whole numbers into limbs of LIMB bits, the first limb first."""
    for place in range(len(parts) - 1):
        unit = math.ldexp(1.0, LIMB * (len(parts) - 1 - place))
        part = np.multiply(whole, 1 / unit, out=parts[place])
        np.rint(part, out=part)
        whole -= part * unit
    parts[-1] = whole


def to_whole(sums: Floats) -> NDArray[np.int64]:
    """Returns sums that are whole numbers as such; a row that is no number after all ends the
    release.
    """
    if not np.isfinite(sums).all():
        raise ReleaseFailed()
    return sums.astype(np.int64)


#: Rows that are described at a time. A weight times a number between 0 and 1 is a whole multiple of
#: 2^−8, of two limbs of 17 bits; entries of at most 1 on the grid have 24, and 17 + 24 + 12 = 53.
DESCRIBED_ROWS = 2**12
PART_BITS = 8
PART_LIMB = 17
#: Bits after the point of a row times the root of its weight: 13 + 7 = 20, and 20 + 20 + 12 = 52.
SQUARE_BITS = 7


class Description(Protocol):
    """What is summed of each row by its entries, its pull, its bend and its weight."""

    def __call__(self, rows: Floats, pull: Floats, bend: Floats, weights: Floats) -> Floats:
        """Returns sums over at most 2^12 rows: whole numbers of at most 53 bits."""

    def to_fractions(self, total: Array) -> Array:
        """Returns the sums over all rows in units of one."""


#: Columns of pulls and bends that were computed once.
PULL = "pull"
BEND = "bend"


@dataclass(frozen=True, eq=False)
class MeasuredTerms:
    """Pulls and bends of rows at a θ, where they lie in memory beside the rows."""

    terms: RowTerms

    @property
    def owner(self) -> GroupLookup:
        """Whose rows they are."""
        return self.terms.owner

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return (*dict.fromkeys((*self.terms.reader.columns, *self.owner.columns)), PULL, BEND)

    def read_features(self, batch: Any, participating: NDArray[np.bool_]) -> Floats:
        """Returns rows on their grid; only those that take part."""
        return self.terms.read_features(batch, participating)

    def measure(
        self, batch: Any, participating: NDArray[np.bool_]
    ) -> tuple[Floats, Floats, Floats]:
        """Returns what the terms do, from memory."""
        pull = as_floats(batch.column(PULL))
        bend = as_floats(batch.column(BEND))
        if not participating.all():
            pull = pull[participating]
            bend = bend[participating]
        return self.read_features(batch, participating), pull, bend


def keep_measured(engine: Engine, terms: RowTerms) -> tuple[Engine, RowTerms | MeasuredTerms]:
    """Returns rows in memory with their pulls and bends beside them, and what reads these; rows
    elsewhere, or not kept as they are in a ball, as they are.
    """
    if not getattr(engine, "in_memory", False) or hasattr(terms, "keep"):
        return engine, terms
    kernel = _Measure(MeasuredTerms(terms))
    return get_default_engine().of_batches(engine.fold(kernel)), kernel.kept


@dataclass(frozen=True, eq=False)
class _Measure:
    """Batches with pulls and bends beside their rows; of people left out they are 0."""

    kept: MeasuredTerms

    @property
    def columns(self) -> tuple[str, ...]:
        return self.kept.terms.columns

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        terms = self.kept.terms
        pulls = np.zeros(len(batch))
        bends = np.zeros(len(batch))
        at = 0
        for piece in cut_batch(batch, DESCRIBED_ROWS):
            participating = terms.row_weights[terms.owner.kinds(piece)] > 0
            which = slice(at, at + len(participating))
            _, pull, bend = terms.measure(piece, participating)
            pulls[which][participating] = pull
            bends[which][participating] = bend
            at += len(participating)
        kept = batch.select([name for name in self.kept.columns if name not in (PULL, BEND)])
        return [kept.append_column(PULL, pulls).append_column(BEND, bends)]


@dataclass(frozen=True, eq=False)
class BentSums:
    """Exact sums over rows of what is described of each by its entries, its pull and its bend at a
    θ.
    """

    terms: RowTerms | MeasuredTerms
    weights: NDArray[np.int64]  # of one row, by kind, below 2^26
    describe: Description
    slopes: int  # of a row, so many columns are described: its last

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return self.terms.columns

    def zero(self) -> Any:
        """The sum over no rows."""
        return 0

    def __call__(self, batch: Any) -> Any:
        """Returns the exact sums over the batch, as Python's integers."""
        pieces = (self._sum_piece(piece) for piece in cut_batch(batch, DESCRIBED_ROWS))
        # 2^18 rows of a batch are 2^6 pieces: 53 + 6 bits.
        total: Any = sum(pieces, start=np.int64(0))
        return total.astype(object) if len(batch) else 0

    def _sum_piece(self, batch: Any) -> NDArray[np.int64]:
        weights = self.weights[self.terms.owner.kinds(batch)].astype(np.float64)
        participating = weights > 0
        if getattr(self.describe, "features_alone", False):
            rows = self.terms.read_features(batch, participating)
            pull = bend = NO_LOSS
        else:
            rows, pull, bend = self.terms.measure(batch, participating)
        if not getattr(self.describe, "whole_rows", False):
            rows = rows[:, rows.shape[1] - self.slopes :]
        if not participating.all():
            weights = weights[participating]
        return to_whole(self.describe(rows, pull, bend, weights))


def weigh_parts(part: Floats, weights: Floats) -> Floats:
    """Returns weights times numbers between 0 and 1, as two limbs of whole multiples of 2^−8: none
    is more than the weight.
    """
    whole = np.rint(part * weights * 2.0**PART_BITS)
    high = np.floor(whole * 2.0**-PART_LIMB)
    return np.array([high, whole - high * 2.0**PART_LIMB])


def join_parts(total: Array) -> Array:
    """Returns sums of both limbs, one after the other, as fractions in units of one."""
    high, low = total.reshape(2, -1)
    return np.array(
        [Fraction(int(one), 2**PART_BITS) for one in (high << PART_LIMB) + low], dtype=object
    )
