# SPDX-License-Identifier: Apache-2.0
"""Noisy gradient descent over people, on whole numbers (docs/theory/erm.md).

In every step each person's mean gradient is clipped to length L, scaled so that L becomes their
whole-number weight P_l, and cut off to whole numbers; the sum over people is exact, and discrete
Gaussian noise is added to it. Everything else here is a function of those noisy sums and of public
numbers. Rows are read where they live, once a step (gradients.py).

    symbol        name
    φ_i = (½, z)  rows            P_l  weight, of a person      M = ΣP  total
    ∇ = ℓ'·φ      the gradient    L    clip                     q       rate
    η             stride          B    radius                   T       steps

How loud each person may take part under Gaussian noise, and what it costs them
(docs/theory/erm.md).

A person's weight is K_l/σ: how far, in standard deviations of the noise, they can move the sum of
one step. Two accounts say which weight a grant (ε_l, δ) allows:
`FullBatchAccountant`, where all take part in every step, and `SubsampledAccountant`, where
everybody takes part in a step with probability q.

    symbol      name
    m_l         single, the weight that the grant would allow if all T steps were one
    m_l/(q√T)   the weight in each step
    P_l, σ      weights.person, scale: whole numbers with P_l/σ ≤ m_l/(q√T) for everybody

How far, how fast and within which limits gradient descent goes, from public numbers alone
(docs/theory/erm.md).

Descent with T steps of stride η has gone the way c = ηT. A direction in which the risk has
curvature h is then learnt up to e^(−ch), and has gathered noise of variance σ₁²·c·(1 −
e^(−2ch))/(2h), whatever T is. The way is the one with the smallest expected error of a prediction
for columns and coefficients of the usual size. The constants were chosen on synthetic tables.

    symbol   name
    σ₁       clip · the noise of one release of the gradient, for each coordinate
    C        usual second moments of a recoded column, SPREADS; ¼ for the intercept's
    h = κC   κ = shape.curvature
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import scipy  # whose parts are loaded where they are used
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.accounting.renyi import LATTICE_DELTA, LATTICE_EPSILON, gaussian_rho
from sottovoce.accounting.subsampled import SampledSteps
from sottovoce.arrays import Floats, Integers
from sottovoce.budgets import BudgetGroups, Budgets
from sottovoce.data import regression_kernels
from sottovoce.data.engine import Dataset, GroupLookup
from sottovoce.errors import InvalidBudget
from sottovoce.estimators.model_intervals import FROM_BOUNDS, Ends
from sottovoce.guarantee import Guarantee
from sottovoce.noise import source
from sottovoce.solvers.losses import LOSSES, LossShape, RowLoss
from sottovoce.weights import Weights

#: False, True for a bar at the terminal, or a function that is called with the number of steps
#: done.
Progress = bool | Callable[[int], None]

#: In memory this column says whose each row is.
PERSON = "person"
#: Noise is drawn for so many steps in one call, which costs as much as thirty draws.
STEPS_PER_DRAW = 64
#: All weights together are at most this, so that sums of whole numbers are exact in doubles
#: whatever their order.
LARGEST_TOTAL = 2**52


def make_person_lookup(owner: GroupLookup) -> GroupLookup | None:
    """Returns how the place of a row's owner among people is found; None where rows are nobody's in
    particular.
    """
    if owner.column is None:
        return None
    if owner.keys is None:  # in memory, where a column of its own has the place
        return GroupLookup(PERSON)
    if owner.codes is None:
        return None
    return replace(owner, codes=None)


@dataclass(frozen=True, eq=False)
class People:
    """Rows where they live, and public facts about the people whose they are."""

    rows: Dataset
    kinds: Floats  # P_l by kind, whole numbers
    weight: Floats  # P_l by person (by kind where rows are nobody's in particular)
    counts: Integers  # s_l, likewise

    @classmethod
    def of(cls, rows: Dataset, budgets: Budgets, weights: Weights) -> People:
        """The people of a plan."""
        kinds = weights.person.astype(np.float64)
        return cls(rows, kinds, budgets.by_person(kinds), budgets.by_person(budgets.kinds.rows))

    @property
    def coordinates(self) -> int:
        """d: the columns, and the intercept."""
        return int(self.rows.features.width) + 1

    @property
    def most(self) -> int:
        """The most rows that one person has."""
        return int(self.counts.max())


@dataclass(frozen=True, eq=False)
class Descent:
    """The public settings of a run."""

    loss: RowLoss
    clip: float
    steps: int
    stride: float
    radius: float
    box: bool
    average: bool
    rate: int  # of drawing a person, in units of 2⁻³²
    scale: float  # σ of the noise, in units of clip/weight
    total: int
    constant: float = 0.5  # of rows (constant, z), for which θ is

    def run(self, people: People, watch: Callable[[int], None]) -> Floats:
        """Returns the average of the later half of the iterates, or the last; reports each step
        done.
        """
        theta = np.zeros(people.coordinates)
        kept = np.zeros_like(theta)
        unit = (
            self.clip / self.total / math.ldexp(self.rate, -source.RATE_BITS)
        )  # never the number who were drawn
        for step, noise in enumerate(self.noise(len(theta))):
            noisy = self.exact_sum(people, theta, self.choose_people(len(people.weight))) + noise
            theta = self.project(theta - self.stride * unit * noisy)
            kept += theta * (step >= self.steps // 2)
            watch(step + 1)
        if self.average:
            return kept / (self.steps - self.steps // 2)
        return theta

    def noise(self, coordinates: int) -> Iterator[Floats]:
        """Yields fresh noise for each step, drawn for several steps at a time, whoever takes part
        in them.
        """
        for done in range(0, self.steps, STEPS_PER_DRAW):
            count = min(STEPS_PER_DRAW, self.steps - done)
            drawn = np.array(
                source.draw_gaussian(self.scale, count * coordinates), dtype=np.float64
            )
            yield from drawn.reshape(count, coordinates)

    def choose_people(self, people: int) -> NDArray[np.bool_] | None:
        """Returns who takes part in a step, by coins of their own; None where everybody does."""
        if self.rate == 2**source.RATE_BITS:
            return None
        return source.sample_at_rate(people, self.rate)

    def exact_sum(
        self, people: People, theta: Floats, chosen: NDArray[np.bool_] | None = None
    ) -> Floats:
        """Returns Σ_l clipped(g_l) over the chosen people: whole numbers, at most 2^52 in all."""
        rows, place = people.rows, make_person_lookup(people.rows.owner)
        common: dict[str, Any] = {"reader": rows.features, "label": rows.label, "loss": self.loss}
        common |= {"theta": theta, "clip": self.clip, "constant": self.constant}
        if people.most == 1:
            kernel = regression_kernels.RowSums(
                **common, owner=rows.owner, weights=people.kinds, place=place, chosen=chosen
            )
            return rows.engine.fold(kernel).astype(np.float64)
        assert place is not None  # rows of one person have a column that says so
        if chosen is None:
            participating = people.weight > 0
        else:
            participating = chosen & (people.weight > 0)
        lines = np.where(participating, np.cumsum(participating) - 1, -1)
        by_person = regression_kernels.PersonSums(
            **common, place=place, lines=lines, most=people.most
        )
        sums = rows.engine.fold(by_person).dense()
        return self.sum_over_people(
            sums, by_person.unit / people.counts[participating], people.weight[participating]
        )

    def sum_over_people(self, sums: Integers, scale: Floats, weight: Floats) -> Floats:
        """Returns the sum of clipped means, a cacheful of people at a time."""
        total = np.zeros(sums.shape[1])
        size = regression_kernels.GRADIENT_PIECE
        for at in range(0, len(sums), size):
            means = sums[at : at + size] * scale[at : at + size, None]
            total += np.ones(len(means)) @ regression_kernels.clip_gradients(
                means, weight[at : at + size], self.clip
            )
        return total

    def project(self, theta: Floats) -> Floats:
        """Returns the nearest point of the box or ball."""
        if self.box:
            return np.clip(theta, -self.radius, self.radius)
        return theta * min(1.0, self.radius / max(float(np.linalg.norm(theta)), 1e-300))


@contextmanager
def report_steps(progress: Progress, steps: int) -> Iterator[Callable[[int], None]]:
    """Returns what is called with the number of steps done; they are public, and nothing else is
    shown.
    """
    if progress is not True:
        yield progress if callable(progress) else lambda step: None
        return
    from rich.progress import Progress as Bar  # half a tenth of a second, and seldom wanted

    with Bar(transient=True) as bar:
        task = bar.add_task("Descending", total=steps)
        yield lambda step: bar.update(task, completed=step)


#: Noise is scaled to at most this, far from the end of the sampler's whole numbers.
SCALE_BITS = 43
#: Loudness, as whole numbers, for the weights; its unit does not matter.
SENSITIVITY_UNITS = 2.0**40


class Accountant(Protocol):
    """Turns grants into weight, and weight into what was spent."""

    def single_step_sensitivity(self, granted: units.Units) -> Floats:
        """Returns m_l for each grant."""

    def per_step_sensitivity(self, single: Floats, steps: int) -> Floats:
        """Returns the weight in each of so many steps."""

    def guarantee(self, budgets: Budgets, row_weights: Floats, steps: int) -> Guarantee:
        """The promise to kinds of people who are this loud in each of so many steps."""


@dataclass(frozen=True)
class FullBatchAccountant:
    """All take part in every step: ρ_l = T·(2K_l)²/(2σ²), by docs/theory/erm.md (3)."""

    delta: float

    def single_step_sensitivity(self, granted: units.Units) -> Floats:
        """Returns √(ρ/2), with ρ the most that (ε, δ) allows Gaussian noise."""
        return np.asarray(np.sqrt(units.to_epsilon(self._rho(granted)) / 2), dtype=np.float64)

    def per_step_sensitivity(self, single: Floats, steps: int) -> Floats:
        """Returns m/√T."""
        return single / math.sqrt(steps)

    def guarantee(self, budgets: Budgets, row_weights: Floats, steps: int) -> Guarantee:
        """ρ = 2T·weight², read at δ; rounded up, and never above what the grant is worth."""
        spent = units.check_within_grant(
            units.round_up(2 * steps * row_weights**2), self._rho(budgets.kinds.epsilon)
        )
        return replace(
            Guarantee.of(budgets, spent), currency="zCDP rho", delta=self.delta, gaussian=True
        )

    def _rho(self, granted: units.Units) -> units.Units:
        values, where = np.unique(granted, return_inverse=True)
        return gaussian_rho(units.to_epsilon(values), self.delta)[where]


@dataclass(frozen=True)
class SubsampledAccountant:
    """Everybody takes part in a step with probability q: ε at δ by composition, docs/theory/erm.md
    (5).
    """

    account: SampledSteps

    def single_step_sensitivity(self, granted: units.Units) -> Floats:
        """Returns q·√T times the weight that (ε, δ) allows."""
        return self.account.sensitivity_of(units.to_epsilon(granted)) * self._factor

    def per_step_sensitivity(self, single: Floats, steps: int) -> Floats:
        """Returns m/(q√T)."""
        return single / self._factor

    def guarantee(self, budgets: Budgets, row_weights: Floats, steps: int) -> Guarantee:
        """ε at δ; rounded up, and never above the grant, which covers everybody's weight."""
        spent = np.minimum(
            units.round_up(self.account.epsilon_of(row_weights)), budgets.kinds.epsilon
        )
        return replace(
            Guarantee.of(budgets, spent), currency="epsilon, delta", delta=self.account.delta
        )

    @property
    def _factor(self) -> float:
        return self.account.rate * math.sqrt(self.account.steps)


def replace_budgets(kinds: BudgetGroups, row_weights: Floats) -> BudgetGroups:
    """Returns the kinds with their weight, as whole numbers, in the place of ε."""
    most = float(row_weights.max(initial=0.0))
    if not most > 0:
        raise InvalidBudget(
            "Nobody grants enough to take part at this δ.",
            "What (ε, δ) allows is counted in billionths of ρ, and nobody has one.",
            "Wait for larger grants, or choose a larger δ.",
            parameter="epsilon",
        )
    return BudgetGroups(
        np.floor(row_weights / most * SENSITIVITY_UNITS).astype(np.int64), kinds.rows, kinds.people
    )


def round_weights(
    kinds: BudgetGroups, person_weights: Floats, row_weights: Floats, least: float
) -> tuple[Weights, float]:
    """Returns whole-number weights and σ ≥ ``least``, a whole number, with P_l/σ ≤ weight for
    everybody who takes part.

    ``weights`` are the weights of rows, the largest 1. All weights together are at most 2^52, and σ
    at most 2^44.
    """
    person = person_weights * kinds.rows
    noise = float(
        np.divide(person, row_weights, out=np.zeros_like(person), where=row_weights > 0).max()
    )
    bits = math.floor(
        min(math.log2(LARGEST_TOTAL / float(person @ kinds.people)), SCALE_BITS - math.log2(noise))
    )
    row = np.floor(np.where(row_weights > 0, person_weights, 0.0) * 2.0**bits).astype(np.int64)
    weights = Weights.from_integers(replace_budgets(kinds, row_weights), row)
    sums = np.divide(weights.person, row_weights, out=np.zeros_like(person), where=row_weights > 0)
    return weights, float(max(math.ceil(float(sums.max()) * (1 + 2.0**-45)), math.ceil(least)))


def find_least_scale(coordinates: int, epsilon: float, delta: float) -> float:
    """Returns a σ from which on noise on a lattice is covered by what `conversion` sets aside
    (lemma 3).
    """
    tail = math.log(2 / (LATTICE_DELTA * delta)) + epsilon
    radius = math.sqrt(coordinates) * (1 + 1e-3) + math.sqrt(2 * tail)
    return math.sqrt((coordinates / 24 + radius**2 / 8) / (LATTICE_EPSILON / 2)) + 1e3


#: Second moments of a column in [−½, ½] that fills it evenly, less, and much less.
SPREADS = (1 / 12, 1 / 30, 1 / 100)
INTERCEPT_MOMENT = 1 / 4
#: Of rows whose length is declared, at most ½ together: the mean square of it in parts of the most,
#: and how it may be divided among directions, in parts of an equal share.
LENGTH_FILLED = 0.65
LENGTH_PARTS = (1.5, 0.8, 0.25)
#: Where it is declared, clips begin at this part of the usual length of a gradient (chosen on made
#: tables): rows are about equally long, so that clipping bends less.
LEAST_CLIP = 0.5
#: And the constant of a row is shorter than in a box, so that more of the gradient is for slopes.
CONSTANT = 0.5
CONSTANT_IN_BALL = 0.25
#: Ways that are considered.
PATH_LENGTHS = np.geomspace(1e-2, 1e6, 321)
MIN_STEPS = 20
MAX_STEPS = 300
#: Sampled people: a step needs its own noise, so there are as many steps as hear everybody so
#: often.
SAMPLED_ROUNDS = 10
MIN_SAMPLED_STEPS = 100
MAX_SAMPLED_STEPS = 1000
#: Clips that are considered, and the part of the variance of predictions by which clipping at the
#: usual length moves them, squared (measured on tables with skewed and with even labels).
CLIPS = 9
CLIPPING_BIAS = 0.1
#: Coordinates lie within ±RADIUS, or θ in a ball that a box of that size just fits into.
RADIUS = 5.0


@dataclass(frozen=True)
class RowSizes:
    """How long rows (constant, z) are, from what is declared: z in a box, or in a ball of radius
    ½.
    """

    slopes: int
    in_ball: bool = False

    @property
    def constant(self) -> float:
        """Of each row."""
        if self.in_ball:
            return CONSTANT_IN_BALL
        return CONSTANT

    @property
    def spreads(self) -> tuple[float, ...]:
        """Second moments that columns may have."""
        if self.in_ball:
            each = LENGTH_FILLED / (4 * self.slopes)
            return tuple(each * part for part in LENGTH_PARTS)
        return SPREADS

    @property
    def usual(self) -> float:
        """The length of rows at which clips begin: of columns that fill their bounds evenly."""
        if self.in_ball:
            return LEAST_CLIP * math.hypot(self.constant, math.sqrt(LENGTH_FILLED) / 2)
        return math.sqrt(INTERCEPT_MOMENT + self.slopes * SPREADS[0])

    @property
    def longest_square(self) -> float:
        """The squared length of a row in a corner, or on the surface of the ball."""
        if self.in_ball:
            return self.constant**2 + INTERCEPT_MOMENT
        return INTERCEPT_MOMENT * (self.slopes + 1)

    @property
    def longest(self) -> float:
        """The length of such a row."""
        return math.sqrt(self.longest_square)


@dataclass(frozen=True)
class StepSchedule:
    """Steps and stride, and the error of a prediction that was expected of them."""

    steps: int
    stride: float
    noise: float  # expected root mean square of a prediction's noise
    unlearnt: float  # and of what is not learnt yet

    @property
    def squared_error(self) -> float:
        """Both together."""
        return self.noise**2 + self.unlearnt**2


def choose_clip(shape: LossShape, rows: RowSizes, noise: float, steps: int | None) -> float:
    """L: from the usual length of a gradient, where noise is large, to the longest there is, where
    it is not; ``noise`` is that of a mean gradient for each unit of L.
    """
    clips = np.geomspace(shape.slope * rows.usual, shape.steepest * rows.longest, CLIPS)
    errors = [
        choose_schedule(shape, rows, clip * noise, steps).squared_error
        + estimate_clipping_error(shape, rows, clip)
        for clip in clips
    ]
    return float(clips[int(np.argmin(errors))])


def estimate_clipping_error(shape: LossShape, rows: RowSizes, clip: float) -> float:
    """The mean square error of a prediction that clipping adds: none where nothing is clipped."""
    usual = shape.slope * rows.usual
    longest = shape.steepest * rows.longest
    if clip >= longest:
        return 0.0
    return CLIPPING_BIAS * shape.size * min(math.log(longest / clip) / math.log(longest / usual), 1)


def choose_radius(slopes: int, box: bool) -> float:
    """B, of the box or of the ball around it."""
    if box:
        return RADIUS
    return RADIUS * math.sqrt(slopes + 1)


def count_sampled_steps(rate: float) -> int:
    """How many steps hear everybody often enough."""
    return min(max(math.ceil(SAMPLED_ROUNDS / rate), MIN_SAMPLED_STEPS), MAX_SAMPLED_STEPS)


def choose_schedule(
    shape: LossShape, rows: RowSizes, noise: float, steps: int | None
) -> StepSchedule:
    """The way with the smallest expected error, in as many steps as keep a quadratic risk from
    overshooting.
    """
    longest = 2 / (shape.curvature * rows.longest_square)
    ways = PATH_LENGTHS[longest * (MAX_STEPS if steps is None else steps) >= PATH_LENGTHS]
    if not len(ways):
        ways = PATH_LENGTHS[:1]
    errors = sum(estimate_squared_errors(shape, rows, noise, ways))
    best = int(np.argmin(errors))
    way = float(ways[best])
    if steps is None:
        taken = min(max(math.ceil(way / longest), MIN_STEPS), MAX_STEPS)
    else:
        taken = steps
    unlearnt, drawn = (
        float(part[best]) for part in estimate_squared_errors(shape, rows, noise, ways)
    )
    return StepSchedule(taken, way / taken, math.sqrt(drawn), math.sqrt(unlearnt))


def estimate_squared_errors(
    shape: LossShape, rows: RowSizes, noise: float, ways: np.ndarray
) -> np.ndarray:
    """Returns, for each way, the mean square error of a prediction: what is not learnt yet, and
    noise.
    """
    over_spreads = [
        _estimate_column_error(shape, spread, noise, ways, rows.slopes) for spread in rows.spreads
    ]
    parts = _estimate_column_error(shape, rows.constant**2, noise, ways, 1) + (
        np.mean(over_spreads, axis=0) if rows.slopes else 0.0
    )
    return np.asarray(parts)


def _estimate_column_error(
    shape: LossShape, spread: float, noise: float, ways: np.ndarray, count: int
) -> np.ndarray:
    """Columns of one spread that share the usual variance of a prediction among them."""
    bend = shape.curvature * spread
    left = np.exp(-2 * ways * bend)
    return np.asarray(
        [shape.size * left, count * spread * noise**2 * ways * (1 - left) / (2 * bend)]
    )


#: The most that losses of these names bend; a corner bends without limit.
MOST_BEND = {"logistic": 0.25, "squared": 1.0, "huber": 1.0}
#: A step is steady up to this stride times the most that the risk can bend: beyond 2 it would
#: overshoot if nearly all rows lay in two opposite corners, which is taken not to be.
STEADY = 2.5
#: E ψ²φφᵀ is at most so many times E ψ'φφᵀ: of a model that is right 1; clipped rows do not bend,
#: and at least half of the curvature is taken to be left.
UNCLIPPED_RATIO = 1.8
CLIPPED_RATIO = 3.6
#: The largest of (1 − e^−x)²/x.
MOST_LEARNT = 0.4073
SAME_DESCENT = (
    "the coefficients that the same descent gives on the whole population, in the middle over its "
    "noise; those of the minimum may lie outside"
)


def explain_unsteady_steps(
    loss: str, clip: float, stride: float, rows: RowSizes, most_rows: int
) -> str:
    """Returns why two runs of a descent may drift apart by themselves; nothing where they cannot.

    A step along the gradient of a convex function that bends by at most 2/stride moves no two
    points apart. Clipping a row leaves its loss convex; clipping the mean of several rows does not.
    """
    if loss not in MOST_BEND:
        return "Intervals are known for losses without corners: logistic, squared and huber."
    if stride * MOST_BEND[loss] * rows.longest_square > STEADY:
        return "Steps are so long that noise may grow from step to step: there is no interval."
    if most_rows > 1 and clip < find_longest_gradient(loss, rows):
        return (
            "The gradients of people with several rows were clipped, and clipped means do not "
            "belong to a convex risk: there is no interval. A larger clip has one."
        )
    return ""


def find_longest_gradient(loss: str, rows: RowSizes) -> float:
    """Returns about how long the gradient of a row can be."""
    shape = LOSSES[loss].shape
    return float(shape.steepest * rows.longest)


def bound_pull_ratio(loss: str, clip: float, rows: RowSizes) -> float:
    """Returns how many times as much as the curvature pulls of rows vary, at most."""
    if clip * (1 + 1e-9) >= find_longest_gradient(loss, rows):
        return UNCLIPPED_RATIO
    return CLIPPED_RATIO


@dataclass(frozen=True, eq=False)
class SteadyDescent:
    """Ends for what a descent gives on the whole population, where no step moves two points
    apart.

    θ_T is a function of all noise that has a Lipschitz constant, so that it lies from its median as
    a normal variable with that deviation does, or closer (Borell, Sudakov and Tsirelson).
    """

    theta: Floats
    steps: int
    stride: float
    average: bool
    noise: float  # the deviation of an entry of a mean gradient
    concentration: float  # Σ W_l² over people
    unequal: float

    def find_ends(self, functions: Floats, level: float) -> Ends:
        """Returns the ends."""
        length = np.linalg.norm(functions, axis=1)
        z = float(scipy.special.ndtri(0.5 + level / 2))
        noise = z * length * self.noise * self.stride * math.sqrt(self._count_steps())
        way = self.stride * self.steps
        variance = self.unequal * self.concentration * MOST_LEARNT * way
        sampling = z * length * math.sqrt(variance)
        reach = np.hypot(noise, sampling)
        middle = functions @ self.theta
        return Ends(middle - reach, middle + reach, noise, sampling, FROM_BOUNDS, SAME_DESCENT)

    def _count_steps(self) -> float:
        """Σ_t s_t², s_t the part of the averaged iterates that come after the noise of step t."""
        if not self.average:
            return float(self.steps)
        first = self.steps // 2
        after = np.minimum(self.steps - np.arange(self.steps), self.steps - first)
        return float(np.sum((after / (self.steps - first)) ** 2))
