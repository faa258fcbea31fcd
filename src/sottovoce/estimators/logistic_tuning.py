# SPDX-License-Identifier: Apache-2.0
"""What a classifier settles before it reads a private row: where its rows lie, regularisation, how
much is kept for buying the intercept, and what can be said about its error.

The defaults are functions of public numbers, tuned on synthetic tables only
(docs/theory/logistic.md has them). Public rows, where there are any, replace the guesses: they
centre and scale the columns, and a simulation on them (fits with noise of the size that will be
drawn, judged on rows held out) chooses among a few settings around the defaults.

    symbol   name
    g        each        η/d, budget for each coordinate; of K classes η/(d·√(2K − 2))
    λ                    80/g²·(1 + (20/g)²), or 10/g²·(1 + (57/g)²) where rows are shortened as a
                         whole; at most 3, and no less than 2/η (8/η for several classes), so that
                         nothing is lost in the charge
    R        radius      half of a row's usual length (0.8 of it with public rows), growing with g
                         where slopes alone are shortened
    c        intercept   1.6/√(1.6² + p), the intercept's column (2 in the place of 1.6 with public
                         rows); of whole rows as long as 1.7 deviations of a column
    g*                   from this g on rows lie in their box and nothing is cut: 400 where columns
                         are numbers, 30 where they are factors
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np
import scipy  # whose parts are loaded where they are used

from sottovoce.arrays import Floats, check_same_length, to_matrix
from sottovoce.budgets import Budgets
from sottovoce.data.encoding import (
    GRID_BITS,
    UNIFORM_DEVIATION,
    CentredBox,
    Recoding,
    UnitBall,
)
from sottovoce.errors import InvalidParameter
from sottovoce.estimators.logistic_mechanism import (
    CURVATURE,
    HALF,
    LABELS,
    LOG_ODDS,
    NoisyObjective,
)
from sottovoce.plan import ASSOCIATION, ExpectedError, Theorem, measure_inequality
from sottovoce.schema import Classes
from sottovoce.solvers import newton
from sottovoce.weights import Weights

#: λ = STRENGTH/g²·(1 + (SCARCE/g)²), within limits.
STRENGTH = 80.0
SCARCE = 20.0
STRONGEST = 3.0
#: The same for two classes without public rows, whose rows are shortened as a whole from this much
#: budget for each coordinate on.
WHOLE_FROM = 75.0
WHOLE_STRENGTH = 10.0
WHOLE_SCARCE = 57.0
#: Shares of a row's usual length √p (in units of the columns' spreads) at which rows are cut.
CUT = 0.5
CUT_WITH_PUBLIC_ROWS = 0.8
#: From this much budget for each coordinate on, rows are cut less and less.
AMPLE_BUDGET = 100.0
AMPLE_WITH_PUBLIC_ROWS = 300.0
#: From these on rows lie in their box, if columns are numbers and if they are factors.
BOX_OF_NUMBERS = 400.0
BOX_OF_FACTORS = 30.0
#: A column of public rows is never taken to be narrower than this share of its bounds.
NARROWEST = 1e-3
INTERCEPT_FACTOR = 1.6
WHOLE_INTERCEPT = 1.7
INTERCEPT_WITH_PUBLIC_ROWS = 2.0
#: So many units of Σε buy an intercept, but no larger a share of budgets than this, and none where
#: all budgets together are smaller.
THRESHOLD_UNITS = 60.0
LARGEST_THRESHOLD = 0.15
FEWEST_FOR_THRESHOLD = 120.0
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
#: What is tried for Λ and α of a box, and how wide columns of numbers may be, as deviations.
RIDGES = np.geomspace(1e-12, 30, 145)
SHARES = (0.05, 0.1, 0.15, 0.25, 0.4)
WIDTHS = np.array([0.9, 0.5, 0.29]) * UNIFORM_DEVIATION
NODES = 40
#: Columns may lie far from the middle of their bounds: log-odds there, which the intercept of a box
#: has to reach, and which part of the curvature is left for it.
FARTHEST = 3 * LOG_ODDS
FAR = 0.05


@dataclass(frozen=True, eq=False)
class TuningChoice:
    """A mechanism and what is done with its coefficients, all public."""

    mechanism: NoisyObjective
    alpha: float  # λ of the ball, or the Λ of the slopes in a box
    #: What coefficients are multiplied with, to undo the shrinkage of a chosen λ.
    stretch: float = 1.0
    threshold: float = 0.0  # the share of everybody's part that buys the intercept
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
    """How much budget there is, over how many coordinates and classes."""

    total: float  # η
    slopes: int  # p
    fit_intercept: bool
    accountant: str = "kappa"
    classes: int = 2  # in one objective

    @property
    def shortens_whole_rows(self) -> bool:
        """Whether rows in the ball are shortened with their constant: for two classes, where the
        side of a plane is all that decides, and where noise leaves enough of the intercept.
        """
        return self.classes == 2 and self.fit_intercept and self.each >= WHOLE_FROM

    @property
    def coordinates(self) -> int:
        """d."""
        return self.slopes + self.fit_intercept

    @property
    def each(self) -> float:
        """g."""
        if self.classes > 2:
            return self.total / (self.coordinates * math.sqrt(2 * self.classes - 2))
        return self.total / self.coordinates

    @property
    def free_rate(self) -> float:
        """The least η·λ at which curvature costs nothing."""
        return 8.0 if self.classes > 2 else 2.0

    def default_lambda(self, times: float = 1.0, whole: bool = False) -> float:
        """λ, or a multiple of it within its limits."""
        g = self.each
        if whole:
            strength = WHOLE_STRENGTH / g**2 * (1 + (WHOLE_SCARCE / g) ** 2)
        else:
            strength = times * STRENGTH / g**2 * (1 + (SCARCE / g) ** 2)
        return max(min(strength, STRONGEST), self.free_rate / self.total)

    def intercept(self, factor: float) -> float:
        """c."""
        if self.fit_intercept:
            return factor / math.sqrt(factor**2 + self.slopes)
        return 0.0

    def make_ball(self, middle: Floats, spread: Floats, radius: float, factor: float) -> UnitBall:
        """A way into the unit ball; no radius beyond the farthest corner of the bounds."""
        ball = UnitBall(middle, spread, radius, self.intercept(factor), GRID_BITS)
        return replace(ball, radius=max(min(radius, ball.longest or 1.0), 1e-9))

    def make_whole_ball(self, spread: Floats) -> UnitBall:
        """A way into the unit ball by shortening rows with their constant."""
        radius = CUT * math.sqrt(self.slopes)
        ball = self.make_ball(np.zeros(self.slopes), spread, radius, WHOLE_INTERCEPT)
        intercept = WHOLE_INTERCEPT / math.hypot(WHOLE_INTERCEPT, ball.radius)
        return replace(ball, intercept=intercept, whole=True)


@lru_cache(maxsize=8)  # the data are gathered by it and the plan is made with it
def choose_without_public_rows(
    scale: BudgetScale, recoding: Recoding, norm: float | None, alpha: float | None
) -> TuningChoice:
    """The defaults: in the ball while budgets are small, in the box from g* on; where a norm is
    promised, rows as they are; where λ is given, always the ball.
    """
    if norm is not None:
        low, high = (
            np.array([getattr(f, side) for f in recoding.features if f.width])
            for side in ("low", "high")
        )
        ball = UnitBall(
            -(low + high) / (2 * (high - low)),
            1 / (high - low),
            norm,
            scale.intercept(INTERCEPT_WITH_PUBLIC_ROWS),
            GRID_BITS,
        )
        return _choose_ball(scale, ball, alpha)
    spread = recoding.estimate_spread()
    if alpha is None and scale.each >= find_box_budget(spread):
        return choose_box(scale, spread, recoding)
    threshold = 0.0
    if alpha is None:
        threshold = choose_threshold_share(scale)
    left = replace(scale, total=scale.total * (1 - threshold))
    if alpha is None and scale.shortens_whole_rows and scale.slopes:
        ball = left.make_whole_ball(spread)
        return replace(_choose_ball(left, ball, alpha), threshold=threshold)
    grown = max(1.0, math.sqrt(left.each / AMPLE_BUDGET))
    ball = left.make_ball(
        np.zeros(scale.slopes),
        spread,
        CUT * grown * math.sqrt(scale.slopes),
        INTERCEPT_FACTOR,
    )
    return replace(_choose_ball(left, ball, alpha), threshold=threshold)


def find_box_budget(spread: Floats) -> float:
    """Returns g*, between that of factors, whose rows are as long as their box allows, and that of
    numbers, whose squared length is a third of it.
    """
    if not len(spread):
        return 0.0
    filled = float(np.square(spread / HALF).mean())
    part = min(max((1 - filled) * 1.5, 0.0), 1.0)
    return float(BOX_OF_FACTORS * (BOX_OF_NUMBERS / BOX_OF_FACTORS) ** part)


def choose_threshold_share(scale: BudgetScale) -> float:
    """Returns the share of budgets that buys the intercept: where rows are cut, and columns may be
    anywhere in their bounds, the intercept of the fit is drawn to the middle of the bounds.
    """
    if (
        scale.classes > 2
        or not (scale.fit_intercept and scale.slopes)
        or scale.total < FEWEST_FOR_THRESHOLD
    ):
        return 0.0
    return min(THRESHOLD_UNITS / scale.total, LARGEST_THRESHOLD)


def choose_box(scale: BudgetScale, spread: Floats, recoding: Recoding) -> TuningChoice:
    """The Λ, and the part α of the noise that the intercept has of its own, with the smallest
    expected error.
    """
    widths = list_widths(recoding, spread)
    body = CentredBox(scale.slopes, scale.fit_intercept)
    best = None
    shares: tuple[float, ...] = SHARES
    if not scale.fit_intercept:
        shares = (0.0,)
    elif not scale.slopes:
        shares = (1.0,)
    for share, ridge in product(shares, RIDGES):
        # H̄ = Σ h²/Λ ≤ η/2: what the slopes leave of it is the intercept's.
        rest = scale.total / scale.free_rate * (1 - 1e-9) / HALF**2 - scale.slopes / ridge
        if rest <= 0:
            continue
        ridges = np.full(body.width, ridge)
        if scale.fit_intercept:
            ridges[0] = 1 / rest
        mechanism = NoisyObjective(body, ridges, scale.accountant, scale.classes, share)
        error = float(
            np.sum([measure_log_odds(mechanism, scale.total, own, 1.0)[1:] for own in widths])
        )
        if scale.fit_intercept:
            bend = CURVATURE * HALF**2 * FAR
            error += (FARTHEST * ridges[0] / (bend + ridges[0])) ** 2
        if best is None or error < best[0]:
            best = (error, mechanism)
    assert best is not None  # the largest Λ leaves the intercept nearly all
    return TuningChoice(best[1], float(best[1].ridge[-1]))


def list_widths(recoding: Recoding, spread: Floats) -> list[Floats]:
    """Returns deviations of the columns that are thought possible: numbers may fill a part of their
    bounds alone, levels of factors are all there.
    """
    factor = np.array([bool(f.levels) for f in recoding.features for _ in range(f.width)])
    return [np.where(factor, spread, width) for width in WIDTHS] if len(spread) else [spread]


def measure_log_odds(
    mechanism: NoisyObjective, rate: float, width: Floats, stretch: float
) -> Floats:
    """Returns (what is kept of log-odds; the mean square of noise; that of shrinkage) in units of
    log-odds, if columns have these deviations and lie round the middle.
    """
    body = mechanism.body
    noise = mechanism.deviations(rate)
    curvature = CURVATURE
    curvature_of_constant = CURVATURE
    if isinstance(body, UnitBall):
        share = math.sqrt(1 - body.intercept**2)
        scale = share / (body.radius * body.spread)
        length = math.sqrt(float(np.square(width / body.spread).sum()))
        cut = min(1.0, body.radius / length) if length else 1.0
        constant = body.intercept
        if body.whole:
            cut = min(1.0, 1 / math.hypot(constant, share * length / body.radius))
            curvature_of_constant = curvature * cut**2
    else:
        scale = np.ones(len(width))
        cut = 1.0
        constant = HALF * body.intercept
    first = body.width - len(width)
    ridge = mechanism.ridge[first:]
    bend = curvature * np.square(cut * scale * width)
    kept = stretch / cut * bend / (bend + ridge)
    slopes = np.square(stretch * scale * width * noise[first:] / (bend + ridge)).sum()
    if first:
        slopes += (
            stretch
            * constant
            * noise[0]
            / (curvature_of_constant * constant**2 + mechanism.ridge[0])
        ) ** 2
    mean = float(kept.mean()) if len(kept) else 1.0
    lost = LOG_ODDS**2 * float(np.square(1 - kept).mean()) if len(kept) else 0.0
    return np.array([mean, float(slopes), lost])


@lru_cache(maxsize=8)
def choose_with_public_rows(
    scale: BudgetScale, public: PublicRows, alpha: float | None
) -> TuningChoice:
    """The best of a few settings in a simulation on public rows."""
    middle = public.Z.mean(axis=0)
    spread = np.maximum(public.Z.std(axis=0), NARROWEST)
    usual = math.sqrt(scale.slopes) * max(1.0, (scale.each / AMPLE_WITH_PUBLIC_ROWS) ** 0.25)
    tried = []
    for cut, intercept, times in (
        CANDIDATES if alpha is None else [t for t in CANDIDATES if t[2] == 1.0]
    ):
        ball = scale.make_ball(
            middle,
            spread,
            CUT_WITH_PUBLIC_ROWS * cut * usual,
            INTERCEPT_WITH_PUBLIC_ROWS * intercept,
        )
        one = _choose_ball(scale, ball, alpha, times)
        rate = one.mechanism.find_linear_rate(scale.total)
        tried.append(replace(one, expected=simulate_error(one, public, rate)))
    return min(tried, key=lambda setting: setting.expected or 0.0)


def _choose_ball(
    scale: BudgetScale, ball: UnitBall, alpha: float | None, times: float = 1.0
) -> TuningChoice:
    stretch = 1.0
    if alpha is None:
        ridge = scale.default_lambda(times, ball.whole)
        stretch += ridge / SMALLEST_CURVATURE
    else:
        ridge = float(alpha)
    ridges = np.full(ball.width, ridge)
    mechanism = NoisyObjective(ball, ridges, scale.accountant, scale.classes)
    return TuningChoice(mechanism, ridge, stretch)


def simulate_error(setting: TuningChoice, public: PublicRows, rate: float) -> float:
    """Returns the share of held-out public rows that fits with simulated noise misclassify."""
    ball = setting.mechanism.body
    assert isinstance(ball, UnitBall)
    rows = ball.rows(public.Z[:MOST_ROWS])
    plain = ball.rows(public.Z[:MOST_ROWS], cut=False)
    codes = public.codes[:MOST_ROWS]
    mechanism = setting.mechanism
    size = mechanism.freedoms * rows.shape[1]
    noises = make_noise_directions(size) * (mechanism.doubt / max(rate, SMALLEST_RATE))
    wrong = []
    for held, noise in product(range(FOLDS), noises):
        out = np.arange(len(rows)) % FOLDS == held
        if mechanism.several:
            fitted = _fit_classes_roughly(rows[~out], codes[~out], mechanism, noise)
        else:
            signs = [np.where(codes[~out] == k, 1.0, -1.0) for k in _list_positive_codes(codes)]
            fitted = np.array(
                [fit_roughly(rows[~out], each, setting.alpha, noise) for each in signs]
            )
        margins = fitted @ plain[out].T
        if len(margins) > 1:
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
    normal = scipy.special.ndtri((words.astype(np.float64) + 0.5) * 2.0**-64).reshape(NOISES, d)
    return np.asarray(
        2 * d * normal / np.linalg.norm(normal, axis=1, keepdims=True), dtype=np.float64
    )


def fit_roughly(rows: Floats, signs: Floats, ridge: float, tilt: Floats) -> Floats:
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

    return _run_roughly(terms, np.full(rows.shape[1], ridge), tilt)


def _fit_classes_roughly(
    rows: Floats, codes: Floats, mechanism: NoisyObjective, noise: Floats
) -> Floats:
    """Returns the same for several classes in one objective, a line a class."""
    K = mechanism.classes
    d = rows.shape[1]
    basis = np.eye(K)[:, : K - 1] - 1 / K
    basis = np.linalg.qr(basis)[0]
    truth = np.eye(K)[codes.astype(np.int64)]

    def terms(theta: Any, extended: bool) -> tuple[float, Any, Any]:
        margins = rows @ theta.reshape(K, d).T
        chances = scipy.special.softmax(margins, axis=1)
        bend = np.zeros((K, d, K, d))
        for k, other in product(range(K), range(K)):
            share = chances[:, k] * ((k == other) - chances[:, other])
            bend[k, :, other] = (rows * share[:, None]).T @ rows / len(rows)
        loss = np.log(np.maximum((chances * truth).sum(axis=1), 1e-300))
        return (
            -float(loss.mean()),
            ((truth - chances).T @ rows / len(rows)).ravel(),
            bend.reshape(K * d, K * d),
        )

    tilt = (basis @ noise.reshape(K - 1, d)).ravel()
    return _run_roughly(terms, np.tile(mechanism.ridge, K), tilt).reshape(K, d)


def _run_roughly(terms: Any, ridge: Floats, tilt: Floats) -> Floats:
    problem = newton.Problem(terms, ridge, np.zeros(len(ridge)), tilt, 0.0, 0.0, 0.0)
    return newton.run_newton(problem)


def estimate_error(
    setting: TuningChoice,
    rate: float,
    recoding: Recoding,
    budgets: Budgets,
    weights: Weights,
    association: float,
) -> ExpectedError:
    """Returns what predicted probabilities are expected to miss of those of maximum likelihood.

    Log-odds of maximum likelihood are taken to spread by LOG_ODDS, and the log-likelihood of a row
    to bend by CURVATURE; columns of numbers are taken to fill nearly all, a half or a third of
    their bounds, or, where there are public rows, as much as those do.
    """
    mechanism = setting.mechanism
    if setting.expected is None:
        widths = list_widths(recoding, recoding.estimate_spread())
    else:
        assert isinstance(mechanism.body, UnitBall)
        widths = [mechanism.body.spread]
    measured = [measure_log_odds(mechanism, rate, own, setting.stretch) for own in widths]
    squares, moved = measure_inequality(budgets, weights)
    parts = []
    for kept, noise, lost in measured:
        sampling = min(kept, 1.0) * math.sqrt(mechanism.body.width * squares / CURVATURE)
        shrunk = math.sqrt(lost) / LOG_ODDS
        parts.append(
            (
                estimate_probability_error(1.0, math.sqrt(noise)),
                estimate_probability_error(1.0, sampling),
                estimate_probability_error(1 - shrunk if kept <= 1 else 1 + shrunk, 0.0),
            )
        )
    noise, sampling, shrinkage = np.sqrt(np.mean(np.square(parts), axis=0)).tolist()
    assumed = f"Assumed: log-odds of maximum likelihood spread by {LOG_ODDS:g}."
    if setting.expected is not None:
        assumed += (
            f" In a simulation on the public rows {setting.expected:.1%} of them were "
            "misclassified."
        )
    return ExpectedError(
        classical="the probabilities of maximum likelihood, over its rows",
        unit="as a probability",
        noise=noise,
        sampling=sampling,
        shrinkage=shrinkage,
        bias=max(association, ASSOCIATION) / 2 * moved,
        assumed=assumed,
    )


def estimate_probability_error(kept: float, noise: float) -> float:
    """Returns the root mean square difference of probabilities whose log-odds are f, and kept·f +
    noise.
    """
    nodes, mass = np.polynomial.hermite_e.hermegauss(NODES)
    mass = mass / mass.sum()
    f = LOG_ODDS * nodes[:, None]
    apart = scipy.special.expit(f) - scipy.special.expit(kept * f + noise * nodes[None, :])
    return math.sqrt(float(mass @ apart**2 @ mass))


def state_theorem(setting: TuningChoice, neighbours: str) -> Theorem:
    """Returns what the promise rests on."""
    return Theorem(
        f"Objective perturbation: each person l loses {_describe_charge(setting)} "
        f"(pure ε, neighbours by {neighbours})",
        "docs/theory/logistic.md",
    )


def _describe_charge(setting: TuningChoice) -> str:
    mechanism = setting.mechanism
    bought = ""
    if setting.threshold > 0:
        bought = ", and 2W_l over the scale of the choice of an intercept"
    if mechanism.accountant == LABELS:
        return f"at most W_l·η/2 and ε_out for each problem{bought}"
    if mechanism.several:
        return "at most max_v ½W_lη(1+v) + W_l·T(v)·H̄, T the most curvature at doubt v, and ε_out"
    exact = "max_s ½W_lη(1+s) + r_l·log(1 + W_l·s(1−s)·H̄/r_l)"
    if mechanism.uses_kappa:
        return f"at most the smaller of κ(λ, ηλ)·W_l·η and {exact}, and ε_out{bought}"
    return f"at most {exact}, and ε_out{bought}"
