# SPDX-License-Identifier: Apache-2.0
"""The fit of a classifier with noise in its objective, and what can be said about its error
beforehand.

symbol   name
Φ, a     rows of the unit ball, and their weights, which add up to one
b        density ∝ exp(−η_n‖b‖/2)
ν        output noise, density ∝ exp(−ε_out·√λ‖ν‖/(2t)): covers what the solver left undone
         (docs/theory/solver.md)

What a classifier settles before it reads a private row: regularisation, and how rows enter the unit
ball.

The defaults are functions of public numbers, tuned on synthetic tables only. Public rows, where
there are any, replace the guesses: they centre and scale the columns, and a simulation on them
(fits with noise of the size that will be drawn, judged on rows held out) chooses among a few
settings around the defaults.

    symbol   name
    g        η/d, budget for each coordinate
    λ        50/g², at most 3, and at least 2/η so that nothing is lost in the charge
    R        radius: 0.6 (0.8 with public rows) of a row's usual length; grows from g = 300 on,
             until nothing is cut
    c        2/√(4+p), the intercept's column

How loud each takes part by a classifier, how much noise there is, and what each is charged: public
numbers alone.

Weights and noise minimise the bound μ‖a‖ + σ/η on the misclassification error
(docs/theory/logistic.md):

    u_l = min(e_l, h·s_l),    W_l = u_l/η,    η = Σ u_l,
    h the root of Σ u_l(h − u_l/s_l) = (σ/μ)·√(Σ u_l²/s_l)

    symbol   name
    s_l      rows of person l
    e_l      left              what l has for one problem, after the solver's slack
    P_l      problems          how many of the one-against-the-others problems l can change
    η        total             W_l·η ≤ e_l for everybody who takes part
    η_n      rate              of the noise drawn: density of b ∝ exp(−η_n‖b‖/2)
    λ        ridge
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaincinv, ndtr, ndtri

from sottovoce import units
from sottovoce.accounting import kappa
from sottovoce.arrays import Floats, check_same_length, to_matrix
from sottovoce.budgets import BudgetGroups, Budgets, has_usable_budget
from sottovoce.data.encoding import GRID_BITS, MATRIX_COLUMN, Recoding, UnitBall, UnitBallReader
from sottovoce.data.engine import Dataset, Engine, GroupLookup, get_default_engine
from sottovoce.data.loss_kernels import LogisticTerms, RowBlock
from sottovoce.errors import InvalidBudget, InvalidParameter, WeakRegularisation
from sottovoce.noise import continuous
from sottovoce.noise.source import AnswerGrid
from sottovoce.plan import ASSOCIATION, ExpectedError, measure_inequality
from sottovoce.schema import Classes, is_between
from sottovoce.solvers import newton
from sottovoce.weights import Weights

#: Solver tolerance of the gradient; what is left is covered by noise paid from the slack.
TOLERANCE = 1e-15
#: What is assumed for the expected error: how far log-odds spread, and how much the log-likelihood
#: of a row bends.
LOG_ODDS = 2.0
CURVATURE = 0.15
NODES = 40
#: From this many rows on a first guess comes from a sixteenth of them, and never from many more
#: than so many.
MANY_ROWS = 2**16
SAMPLE_RATE = 1 / 16
ROUGH_TOLERANCE = 1e-3
#: Multiples of it are spread evenly over [0, 1).
GOLDEN = (math.sqrt(5) - 1) / 2
#: Columns of the rows that a first guess comes from.
VALUE = "value"
KIND = "kind"


@dataclass(frozen=True, eq=False)
class Problems:
    """The problems of one release: the same rows and weights, one class after the other."""

    rows: Dataset
    ball: UnitBall
    person_weights: PersonWeights
    ridge: float
    rate: float

    def fit_class(self, positive: int) -> Floats:
        """Returns the noisy minimiser for one class against the others, on the public grid; fresh
        noise each time.
        """
        d = self.ball.width
        ridge = self.ridge
        problem = newton.Problem(
            terms=_sum_over_engine(self.rows.engine, self._make_kernel(positive)),
            ridge=np.full(d, ridge),
            centre=np.zeros(d),
            tilt=continuous.draw_l2(self.rate / 2, d).astype(np.float64),
            smoothness=1 / (4 * ridge),
            pull=1 / math.sqrt(ridge),
            error=bound_gradient_rounding(self.person_weights, ridge),
        )
        theta = newton.minimise(
            problem,
            compute_tolerance(self.person_weights, ridge),
            self._find_start(problem, positive),
        )
        rate = 1 / compute_output_scale(self.person_weights, ridge, self.rate)
        return make_answer_grid(d, ridge, self.rate).nearest(
            continuous.add_output_noise(theta, rate, np.ones(d))
        )

    def _make_kernel(self, positive: int) -> LogisticTerms:
        reader = self.rows.features
        return LogisticTerms(
            reader=reader
            if isinstance(reader, UnitBallReader)
            else UnitBallReader(self.ball, reader.recoding, reader),
            label=self.rows.label,
            owner=self.rows.owner,
            row_weights=self.person_weights.row,
            positive=positive,
            theta=np.zeros(self.ball.width),
        )

    def _find_start(self, problem: newton.Problem, positive: int) -> Floats | None:
        """Where Newton begins: at the minimiser of a part of the rows, where there are many."""
        rows = count_rows(self.person_weights)
        if rows < MANY_ROWS:
            return None
        rate = min(SAMPLE_RATE, MANY_ROWS / rows)
        kernel = replace(self._make_kernel(positive), row_weights=self.person_weights.row / rate)
        chosen = self.rows.engine.fold(Sample(kernel, rate))
        v, phi, y = (np.concatenate(column) for column in zip(*chosen, strict=True))
        if (
            not 0.5 < len(v) / (rate * rows) < 2
        ):  # few different rows, so that the choice between them was unlucky
            return None
        engine = get_default_engine().of_columns(
            {MATRIX_COLUMN: phi, VALUE: np.where(y > 0, positive, -1.0), KIND: np.arange(len(v))}
        )
        label = replace(self.rows.label, column=VALUE, coded=True)
        reader = UnitBallReader(self.ball, self.rows.features.recoding)
        few = replace(kernel, reader=reader, label=label, owner=GroupLookup(KIND), row_weights=v)
        return newton.run_newton(
            replace(problem, terms=_sum_over_engine(engine, few)), negligible=ROUGH_TOLERANCE
        )


@dataclass(frozen=True, eq=False)
class Sample:
    """Some of the rows that a kernel reads, at this rate, for a first guess; its content decides,
    not its place.
    """

    kernel: LogisticTerms
    rate: float

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return self.kernel.columns

    def zero(self) -> list[RowBlock]:
        """No rows."""
        return []

    def __call__(self, batch: Any) -> list[RowBlock]:
        """Returns the chosen rows of the batch."""
        return [self._select_rows(*self.kernel.read(batch))]

    def _select_rows(self, v: Floats, phi: Floats, y: Floats) -> RowBlock:
        # Entries are on a grid, so their sum is exact in any order; the golden section scatters it
        # over [0, 1).
        scattered = phi @ np.full(phi.shape[1], 2.0**GRID_BITS) * GOLDEN
        chosen = scattered - np.floor(scattered) < self.rate
        return v[chosen], phi[chosen], y[chosen]


def _sum_over_engine(
    engine: Engine, kernel: LogisticTerms
) -> Callable[[Any, bool], tuple[float, Any, Any]]:
    """The terms of a problem over the rows of an engine."""

    def terms(theta: Any, extended: bool) -> tuple[float, Any, Any]:
        at = replace(kernel, theta=theta, extended=extended)
        return at.floats(engine.fold(at))

    return terms


def count_rows(person_weights: PersonWeights) -> int:
    """The number of rows, which is public."""
    return int(person_weights.kinds.rows @ person_weights.kinds.people)


def bound_gradient_rounding(person_weights: PersonWeights, ridge: float) -> float:
    """Returns what the exact gradient may be wrong by, in the norm of Λ⁻¹, whatever the data, b and
    w.
    """
    return newton.bound_rounding(
        count_rows(person_weights), person_weights.coordinates, 1.0
    ) / math.sqrt(ridge)


def compute_tolerance(person_weights: PersonWeights, ridge: float) -> float:
    """Returns t, the distance to the minimiser, in the norm of Λ, that the solver reaches; a public
    number.
    """
    return newton.find_tolerance(
        bound_gradient_rounding(person_weights, ridge), least=TOLERANCE / math.sqrt(ridge)
    )


def bound_norm(tilt: float, ridge: float) -> float:
    """Returns what ‖w‖ cannot exceed at the minimiser where ‖b‖ = tilt: J(w) ≤ J(0) gives ½λ‖w‖² ≤
    ln 2 + ‖b‖‖w‖.
    """
    return (tilt + math.sqrt(tilt**2 + 2 * ridge * math.log(2))) / ridge


def compute_output_scale(person_weights: PersonWeights, ridge: float, rate: float) -> float:
    """Returns 2t/(ε_out·√λ): the density of ν is ∝ exp(−‖ν‖/scale); t holds the solver's error and
    b's rounding.
    """
    distance = compute_tolerance(person_weights, ridge) + bound_tilt_rounding(
        person_weights.coordinates, ridge, rate
    )
    return 2 * distance / (person_weights.slack * math.sqrt(ridge))


def bound_tilt_rounding(d: int, ridge: float, rate: float) -> float:
    """Returns what rounding b to doubles moves the minimiser by at most, in the norm of Λ, but with
    chance e^−500.
    """
    return 2.0**-53 * (2 / rate) * continuous.bound_gamma(d) / math.sqrt(ridge)


def make_answer_grid(d: int, ridge: float, rate: float) -> AnswerGrid:
    """Returns the grid of w: noise moves a coordinate by at least that of b, 2√(d+1)/η, over λ +
    ¼.
    """
    return AnswerGrid.below(2 * math.sqrt(d + 1) / (rate * (ridge + 0.25)))


def compute_output_noise(person_weights: PersonWeights, ridge: float, rate: float) -> float:
    """Returns the root mean square length of ν."""
    d = person_weights.coordinates
    return math.sqrt(d * (d + 1)) * compute_output_scale(person_weights, ridge, rate)


def estimate_error(
    setting: TuningChoice, rate: float, budgets: Budgets, weights: Weights
) -> ExpectedError:
    """Returns what predicted probabilities are expected to miss of those of maximum likelihood.

    Log-odds of maximum likelihood are taken to spread by LOG_ODDS. A row of the ball spreads by 1/d
    in each of d directions, where the log-likelihood bends by CURVATURE: a direction is stiff by
    CURVATURE/d + λ.
    """
    d = setting.ball.width
    stiff = CURVATURE / d + setting.ridge
    kept = min(setting.stretch * CURVATURE / d / stiff, 1.0)
    noise = setting.stretch * 2 * math.sqrt(d + 1) / (rate * stiff)
    squares, moved = measure_inequality(budgets, weights)
    sampling = kept * math.sqrt(d * squares / CURVATURE)
    assumed = f"Assumed: log-odds of maximum likelihood spread by {LOG_ODDS:g}."
    if setting.expected is not None:
        assumed += (
            f" In a simulation on the public rows {setting.expected:.1%} of them were "
            "misclassified."
        )
    return ExpectedError(
        classical="the probabilities of maximum likelihood, over its rows",
        unit="as a probability",
        noise=estimate_probability_error(1.0, noise),
        sampling=estimate_probability_error(1.0, sampling),
        shrinkage=math.hypot(
            estimate_probability_error(kept, 0.0),
            estimate_probability_error(1.0, LOG_ODDS * estimate_cut_effect(setting.ball)),
        ),
        bias=ASSOCIATION / 2 * moved,
        assumed=assumed,
    )


def estimate_cut_effect(ball: UnitBall) -> float:
    """Returns how much log-odds change, relative to their size, because rows longer than the radius
    are cut to it.

    The squared length of a row of p columns that fill their bounds evenly has mean p and variance
    .8p in units of their spreads, so lengths vary by √(.2/p) of themselves. Cut to one length, rows
    lose that variation.
    """
    p = len(ball.spread)
    if p:
        return math.sqrt(0.2 / p) * float(ndtr((math.sqrt(p) - ball.radius) / math.sqrt(0.2)))
    return 0.0


def estimate_probability_error(kept: float, noise: float) -> float:
    """Returns the root mean square difference of probabilities whose log-odds are f, and kept·f +
    noise.
    """
    nodes, mass = np.polynomial.hermite_e.hermegauss(NODES)
    mass = mass / mass.sum()
    f = LOG_ODDS * nodes[:, None]
    apart = expit(f) - expit(kept * f + noise * nodes[None, :])
    return math.sqrt(float(mass @ apart**2 @ mass))


def compute_error_bound(
    delta: float = 0.05,
    norm: float | None = None,
    *,
    person_weights: PersonWeights,
    ridge: float,
    rate: float,
) -> float:
    """Returns μ‖a‖ + σ/η: with probability 1 − δ over rows and noise, every w of this norm
    misclassifies at most J(w)/ln 2 plus this, J the noisy objective; without a norm, one that the
    released w certainly has.
    """
    if not is_between(delta, 0, 1):
        raise InvalidParameter(
            "δ is not between 0 and 1.", "", "Pass delta=0.05.", parameter="delta"
        )
    if norm is not None and not is_between(norm, 0, math.inf):
        raise InvalidParameter(
            "The norm is not positive.", "", "Pass a public norm, or none.", parameter="norm"
        )
    delta = float(delta)
    q = float(gammaincinv(person_weights.coordinates, 1 - delta / 2))
    beta = float(norm or 0) or bound_norm(2 * q / rate, ridge) + q * compute_output_scale(
        person_weights, ridge, rate
    )
    mu = beta / math.log(2) * (2 + math.sqrt(math.log(2 / delta) / 2))
    return mu * math.sqrt(person_weights.weights.concentration) + 2 * beta * q / (
        rate * math.log(2)
    )


#: λ = STRENGTH/g², within limits.
STRENGTH = 50.0
STRONGEST = 3.0
#: Shares of a row's usual length √p (in units of the columns' spreads) at which rows are cut.
CUT = 0.6
CUT_WITH_PUBLIC_ROWS = 0.8
#: From this much budget for each coordinate on, rows are cut less and less.
AMPLE_BUDGET = 300.0
#: A column of public rows is never taken to be narrower than this share of its bounds.
NARROWEST = 1e-3
INTERCEPT_FACTOR = 2.0
#: What is tried on public rows, as multiples of the defaults of R, c and λ.
CANDIDATES = tuple(product((0.6, 1.0, 1.5), (0.15, 0.5, 1.0), (0.25, 1.0, 4.0)))
FOLDS = 4
NOISES = 4
MOST_ROWS = 512
#: At a λ that is too weak for any noise the simulation has next to infinite noise; the plan refuses
#: it afterwards.
SMALLEST_RATE = 1e-9
#: The flattest curvature that a direction of much influence has, for undoing the shrinkage of λ.
SMALLEST_CURVATURE = 1 / 8


@dataclass(frozen=True, eq=False)
class TuningChoice:
    """A regularisation and a way into the unit ball, all public."""

    ridge: float
    ball: UnitBall
    stretch: float = (
        1.0  # what coefficients are multiplied with, to undo the shrinkage of a chosen λ
    )
    expected: float | None = None  # misclassification rate in the simulation on public rows


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Recoded rows and codes of their classes, which belong to nobody who must be protected."""

    Z: Floats
    codes: Floats

    @classmethod
    def of(cls, public: Any, recoding: Recoding, classes: Classes) -> PublicRows:
        """Reads a pair of features and labels; refuses what is not one, or not complete."""
        if isinstance(public, tuple | list) and len(public) == 2:
            rows = recoding.encode(to_matrix(public[0], recoding))
            codes = classes.codes(public[1])
            check_same_length(len(rows), **{"labels of the public rows": codes})
            if len(rows) >= 2 and np.isfinite(rows).all():
                return cls(rows, codes)
        raise InvalidParameter(
            "The public rows are not a pair of features and labels, too few, or have missing "
            "values.",
            "public=(X, y) has at least two complete rows.",
            "Pass complete rows, or none.",
            parameter="public",
        )

    @cached_property
    def _content(self) -> bytes:
        return self.Z.tobytes() + self.codes.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicRows) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)


@dataclass(frozen=True)
class BudgetScale:
    """How much budget there is, over how many coordinates."""

    total: float  # η
    slopes: int  # p
    fit_intercept: bool

    @property
    def coordinates(self) -> int:
        """d."""
        return self.slopes + self.fit_intercept

    @property
    def each(self) -> float:
        """g."""
        return self.total / self.coordinates

    def default_lambda(self, times: float = 1.0) -> float:
        """λ, or a multiple of it within its limits."""
        return max(min(times * STRENGTH / self.each**2, STRONGEST), 2 / self.total)

    def intercept(self, times: float = 1.0) -> float:
        """c, or what belongs to a multiple of the intercept's column."""
        one = INTERCEPT_FACTOR * times
        if self.fit_intercept:
            return one / math.sqrt(one**2 + self.slopes)
        return 0.0

    def cut_radius(self, share: float) -> float:
        """R for columns of spread 1."""
        return max(
            share * math.sqrt(self.slopes) * float(max(1.0, (self.each / AMPLE_BUDGET) ** 0.25)),
            1e-9,
        )


def choose_without_public_rows(
    scale: BudgetScale, recoding: Recoding, norm: float | None, alpha: float | None
) -> TuningChoice:
    """The defaults: columns fill their bounds evenly; or, where a norm is promised, rows as they
    are.
    """
    if norm is not None:
        low, high = (
            np.array([getattr(f, side) for f in recoding.features if f.width])
            for side in ("low", "high")
        )
        ball = UnitBall(
            -(low + high) / (2 * (high - low)), 1 / (high - low), norm, scale.intercept(), GRID_BITS
        )
    else:
        spread = recoding.estimate_spread()
        longest = math.sqrt(float(np.square(0.5 / spread).sum())) or 1.0
        ball = UnitBall(
            np.zeros(scale.slopes),
            spread,
            min(scale.cut_radius(CUT), longest),
            scale.intercept(),
            GRID_BITS,
        )
    return _make_choice(scale, ball, alpha)


@lru_cache(maxsize=8)  # the data are gathered by it and the plan is made with it
def choose_with_public_rows(
    scale: BudgetScale, public: PublicRows, alpha: float | None, accountant: str
) -> TuningChoice:
    """The best of a few settings in a simulation on public rows."""
    middle = public.Z.mean(axis=0)
    spread = np.maximum(public.Z.std(axis=0), NARROWEST)
    tried = []
    for cut, intercept, times in (
        CANDIDATES if alpha is None else [t for t in CANDIDATES if t[2] == 1.0]
    ):
        ball = UnitBall(
            middle,
            spread,
            scale.cut_radius(CUT_WITH_PUBLIC_ROWS * cut),
            scale.intercept(intercept),
            GRID_BITS,
        )
        one = _make_choice(scale, ball, alpha, times)
        tried.append(
            replace(
                one,
                expected=simulate_error(
                    one, public, find_linear_rate(scale.total, one.ridge, accountant)
                ),
            )
        )
    return min(tried, key=lambda setting: setting.expected or 0.0)


def _make_choice(
    scale: BudgetScale, ball: UnitBall, alpha: float | None, times: float = 1.0
) -> TuningChoice:
    if alpha is None:
        ridge = scale.default_lambda(times)
    else:
        ridge = float(alpha)
    return TuningChoice(ridge, ball, 1 + ridge / SMALLEST_CURVATURE if alpha is None else 1.0)


def simulate_error(setting: TuningChoice, public: PublicRows, rate: float) -> float:
    """Returns the share of held-out public rows that fits with simulated noise misclassify."""
    rows = setting.ball.rows(public.Z[:MOST_ROWS])
    codes = public.codes[:MOST_ROWS]
    wrong = []
    for held, noise in product(
        range(FOLDS), make_noise_directions(rows.shape[1]) / max(rate, SMALLEST_RATE)
    ):
        out = np.arange(len(rows)) % FOLDS == held
        signs = [np.where(codes[~out] == k, 1.0, -1.0) for k in _list_positive_codes(codes)]
        margins = np.array(
            [rows[out] @ _fit_roughly(rows[~out], each, setting.ridge, noise) for each in signs]
        )
        if len(signs) > 1:
            guessed = margins.argmax(axis=0)
        else:
            guessed = (margins[0] > 0).astype(np.int64)
        wrong.append(float(np.mean(guessed != codes[out])) if out.any() else 0.0)
    return float(np.mean(wrong))


def _list_positive_codes(codes: Floats) -> Iterator[int]:
    most = int(codes.max(initial=1))
    return iter(range(most + 1) if most > 1 else (1,))


def make_noise_directions(d: int) -> Floats:
    """Returns a few vectors of the length that radial noise of rate ½ has on average; the same
    every time.

    They come from a hash, because a plan of the same facts must be the same plan; nothing private
    is protected by them.
    """
    words = np.frombuffer(hashlib.shake_256(b"sottovoce").digest(8 * NOISES * d), dtype=np.uint64)
    normal = ndtri((words.astype(np.float64) + 0.5) * 2.0**-64).reshape(NOISES, d)
    return np.asarray(
        2 * d * normal / np.linalg.norm(normal, axis=1, keepdims=True), dtype=np.float64
    )


def _fit_roughly(rows: Floats, signs: Floats, ridge: float, tilt: Floats) -> Floats:
    """Returns the minimiser for rows of equal weight, near enough for a simulation."""

    def terms(theta: Any, extended: bool) -> tuple[float, Any, Any]:
        margin = signs * (rows @ theta)
        doubt = 1 / (1 + np.exp(np.clip(margin, -700, 700)))
        rooted = rows * np.sqrt(doubt * (1 - doubt))[:, None]
        return (
            float(np.logaddexp(0, -margin).mean()),
            (doubt * signs) @ rows / len(rows),
            rooted.T @ rooted / len(rows),
        )

    d = rows.shape[1]
    return newton.run_newton(
        newton.Problem(terms, np.full(d, ridge), np.zeros(d), tilt, 0.0, 0.0, 0.0)
    )


#: The share of everybody's part in a problem that pays for the solver's last digits.
SLACK = 1e-3
#: The probability with which the bound that weights minimise may fail, once for the sample and once
#: for the noise.
FAILURE = 0.05
#: Who protects labels alone needs no accountant: W·η/2 at any λ.
LABELS = "labels"
#: From η·λ = 2 on the exact charge has no slack at all.
FREE_RATE = 2.0


@dataclass(frozen=True, eq=False)
class PersonWeights:
    """Who takes part how strongly, before λ is known."""

    kinds: BudgetGroups
    weights: Weights
    left: Floats  # e_l, by kind; 0 for those who are left out
    problems: NDArray[np.int64]  # P_l, by kind
    slack: float  # ε_out of one problem
    coordinates: int  # d
    labels_only: bool

    @classmethod
    def of(
        cls, kinds: BudgetGroups, coordinates: int, classes: int, labels_only: bool
    ) -> PersonWeights:
        """Solves for the weights of people; whoever grants next to nothing is left out."""
        problems = count_changed_problems(kinds.rows, classes, labels_only)
        participating = has_usable_budget(kinds)
        part = np.where(
            participating, units.to_epsilon(kinds.epsilon) / problems * (1 - 1e-12), 0.0
        )
        if not part.any():
            raise InvalidBudget(
                "Nobody grants anything.",
                "Somebody's ε must be above 0.",
                "Give people a positive ε.",
                parameter="epsilon",
            )
        slack = SLACK * float(part[participating].min())
        left = np.where(participating, part - slack, 0.0)
        person_weights = np.minimum(
            left / kinds.rows,
            solve_saturation(left, kinds.rows, kinds.people, compute_noise_price(coordinates)),
        )
        weights = Weights.from_row_weights(kinds, person_weights / person_weights.max())
        return cls(kinds, weights, left, problems, slack, coordinates, labels_only)

    @property
    def person(self) -> Floats:
        """W_l by kind; they add up to one over people."""
        return np.asarray(self.weights.person / self.weights.total, dtype=np.float64)

    @property
    def row(self) -> Floats:
        """a_i by kind."""
        return np.asarray(self.weights.row / self.weights.total, dtype=np.float64)

    @property
    def total(self) -> float:
        """The largest η with W_l·η ≤ e_l for everybody."""
        participating = self.weights.person > 0
        return float((self.left[participating] / self.person[participating]).min()) * (1 - 1e-12)

    @property
    def ranks(self) -> NDArray[np.int64]:
        """How many directions each can add to the curvature: rows, at most the number of
        coordinates.
        """
        return np.minimum(self.kinds.rows, self.coordinates)

    def rate(self, ridge: float, accountant: str) -> float:
        """Returns the largest η_n at which nobody pays more than they have; refuses a λ at which
        there is none.
        """
        rate = find_linear_rate(self.total, ridge, self._get_accountant(accountant))
        if self.labels_only:
            return rate
        if (
            rate * ridge < FREE_RATE
        ):  # few people, or little regularisation: the exact charge may be the smaller one
            rate = max(
                rate,
                _find_largest(
                    lambda eta: self._is_affordable(eta, ridge, accountant), 4 * self.total
                ),
            )
        if rate <= 0:
            raise self._weak_regularisation_error()
        return rate

    def charges(self, ridge: float, rate: float, accountant: str) -> units.Units:
        """Returns what each kind of people pays for all problems together, the solver's slack
        included.
        """
        once = np.where(
            self.weights.person > 0,
            self._charge_per_problem(rate, ridge, accountant) + self.slack,
            0.0,
        )
        return units.check_within_grant(units.round_up(once * self.problems), self.kinds.epsilon)

    def _get_accountant(self, accountant: str) -> str:
        if self.labels_only:
            return LABELS
        return accountant

    def _charge_per_problem(self, rate: float, ridge: float, accountant: str) -> Floats:
        if self.labels_only:
            return self.person * rate / 2
        if accountant == "kappa":
            price = kappa.bound_charges
        else:
            price = kappa.compute_exact_charges
        return np.asarray(price(self.person, self.ranks, rate, ridge), dtype=np.float64)

    def _is_affordable(self, rate: float, ridge: float, accountant: str) -> bool:
        return bool(np.all(self._charge_per_problem(rate, ridge, accountant) <= self.left))

    def _weak_regularisation_error(self) -> WeakRegularisation:
        smallest = FREE_RATE / self.total
        return WeakRegularisation(
            "At this λ what one row adds to the curvature costs more than somebody grants, "
            "whatever the noise.",
            "The smaller the budgets are together, the larger λ must be.",
            f"Take an alpha of {smallest:.3g} or more, or none to have it chosen.",
            smallest=smallest,
            parameter="alpha",
        )


def count_changed_problems(
    rows: NDArray[np.int64], classes: int, labels_only: bool
) -> NDArray[np.int64]:
    """Returns how many of the problems, one class against the others, a person can change.

    Two classes make one problem. A row that changes changes all of them; a label that changes, the
    two whose classes it leaves and enters.
    """
    if classes == 2:
        return np.ones_like(rows)
    if labels_only:
        return np.minimum(2 * rows, classes)
    return np.full_like(rows, classes)


def compute_noise_price(coordinates: int) -> float:
    """Returns σ/μ = 2q/(2 + √(ln(1/δ)/2)), q the Gamma(d) quantile at 1 − δ: what noise weighs
    against sampling.
    """
    q = float(gammaincinv(coordinates, 1 - FAILURE))
    return 2 * q / (2 + math.sqrt(math.log(1 / FAILURE) / 2))


def solve_saturation(left: Floats, rows: Any, people: Any, price: float) -> float:
    """Returns h, the root of Σ u(h − u/s) = price·√(Σ u²/s) with u = min(e, h·s); the largest e/s
    if there is none.
    """

    def is_saturated(h: float) -> bool:
        u = np.minimum(left, h * rows)
        return float((people * u * (h - u / rows)).sum()) >= price * math.sqrt(
            float((people * u * u / rows).sum())
        )

    low = 0.0
    high = float((left / rows).max())
    if not is_saturated(high):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        if is_saturated(middle):
            low, high = (low, middle)
        else:
            low, high = (middle, high)
    return high


def find_linear_rate(total: float, ridge: float, accountant: str) -> float:
    """Returns the largest rate at which a charge that is linear in W stays within W·total; 0 if
    there is none.
    """
    if accountant == LABELS:
        return 2 * total

    def fits(rate: float) -> bool:
        if accountant == "kappa":
            return rate * kappa.kappa(ridge, rate * ridge) <= total
        return rate * kappa.bound_linear(rate * ridge) <= total

    return _find_largest(fits, 4 * total)


def _find_largest(fits: Any, high: float) -> float:
    """Returns the largest number below ``high`` that fits, by bisection of its logarithm; 0 if none
    does.
    """
    low = high * 1e-12
    if not fits(low):
        return 0.0
    for _ in range(100):
        middle = math.sqrt(low * high)
        if fits(middle):
            low, high = (middle, high)
        else:
            low, high = (low, middle)
    return low
