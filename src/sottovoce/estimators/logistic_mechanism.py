# SPDX-License-Identifier: Apache-2.0
"""A classifier with noise in its objective: how loud each takes part, how much noise there is, what
each is charged, and the fit (docs/theory/logistic.md).

symbol   name
Φ, a     rows of a ball or a box, and their weights, which add up to one
Λ        ridge             one number for each coordinate
H̄        1/stiffness       the most that φᵀΛ⁻¹φ can be: 1/λ in the unit ball, Σ h_j²/Λ_j in a box
b        tilt              density ∝ exp(−½η_n·N(b)), N the norm whose unit ball the rows fill
ν        output noise, density ∝ exp(−ε_out‖ν‖_Λ/(2t)): covers what the solver left undone
         (docs/theory/solver.md)
s_l      rows of person l
e_l      left              what l has for one problem, after the solver's slack
P_l      problems          how many of the one-against-the-others problems l can change
η        total             W_l·η ≤ e_l for everybody who takes part
η_n      rate              of the noise drawn
f        threshold         the share of e_l that buys the intercept anew

Weights minimise what noise, sampling and, where budgets may go along with classes, association add
to the squared error of log-odds: A·Σc² + (max W_l/e_l)² + B·(Σ|W_l − u_l|)²
(docs/theory/weights.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy  # whose parts are loaded where they are used
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.accounting import kappa
from sottovoce.arrays import Floats
from sottovoce.budgets import BudgetGroups, has_usable_budget
from sottovoce.data.encoding import (
    CentredBox,
    Reader,
    UnitBall,
    UnitBallReader,
)
from sottovoce.data.engine import Dataset
from sottovoce.data.loss_kernels import LogisticTerms, SoftmaxTerms, ThresholdErrors
from sottovoce.errors import InvalidBudget, InvalidParameter, WeakRegularisation
from sottovoce.estimators.curvature import (
    CLASS_PULL_UNITS,
    FROM_PROBABILITIES,
    CurvaturePurchase,
    Equation,
    PurchaseWeights,
)
from sottovoce.estimators.row_problem import RowProblem
from sottovoce.noise import continuous, source
from sottovoce.noise.source import AnswerGrid
from sottovoce.schema import is_between
from sottovoce.solvers import newton
from sottovoce.weights import Weights, solve_row_weights

#: Solver tolerance of the gradient; what is left is covered by noise paid from the slack.
TOLERANCE = 1e-15
#: The share of everybody's part in a problem that pays for the solver's last digits.
SLACK = 1e-3
#: Who protects labels alone needs no accountant: W·η/2 at any λ.
LABELS = "labels"
#: From η/H̄ = 2 on the exact charge of two classes has no slack at all.
FREE_RATE = 2.0
#: Half the side of the box of recoded rows.
HALF = 0.5
#: What is assumed for weights and for the expected error: how far log-odds spread, and how much the
#: log-likelihood of a row bends.
LOG_ODDS = 2.0
CURVATURE = 0.15
#: Intercepts that can be bought lie so many norms of the slopes apart, and another than that of
#: the fit has to be better by so many powers of e.
THRESHOLD_STEP = 0.05
THRESHOLD_PENALTY = 3.0
#: Rows of a classifier vary as much as its probabilities say, where it is right; where it is not,
#: up to so many times as much.
UNEQUAL_CLASSES = 1.25


@dataclass(frozen=True, eq=False)
class NoisyObjective:
    """The public numbers of one objective: where rows lie, Λ, and how the noise is shaped."""

    body: UnitBall | CentredBox
    ridge: Floats  # Λ of one function, by coordinate; in the ball they are all the same
    accountant: str  # "kappa", "exact" or LABELS
    classes: int = 2  # in one objective; several are softmax
    share: float = 0.0  # α, the part of the noise's norm that the intercept of a box has of its own

    @property
    def several(self) -> bool:
        """Whether it is softmax."""
        return self.classes > 2

    @property
    def functions(self) -> int:
        """How many linear functions are fitted."""
        if self.several:
            return self.classes
        return 1

    @property
    def freedoms(self) -> int:
        """m: of K functions that add up to nothing, K − 1 are free."""
        return max(self.functions - 1, 1)

    @property
    def doubt(self) -> float:
        """The norm that the derivative of a row's loss by its log-odds stays below: 1, or √2."""
        return math.sqrt(min(self.functions, 2))

    @property
    def flattest(self) -> float:
        """The most that a row's loss bends: ¼, or ½."""
        return 0.25 * min(self.functions, 2)

    @cached_property
    def stiffness(self) -> float:
        """1/H̄, rounded down."""
        if isinstance(self.body, UnitBall):
            return float(self.ridge[0])
        return (1 - 2.0**-48) / (HALF**2 * float((1 / self.ridge).sum()))

    @property
    def free_rate(self) -> float:
        """The η/H̄ from which on curvature costs nothing on top."""
        if self.several:
            return kappa.SOFTMAX_FREE
        return FREE_RATE

    @property
    def uses_kappa(self) -> bool:
        """Whether the table of κ applies: two classes in the ball."""
        return self.accountant == "kappa" and isinstance(self.body, UnitBall) and not self.several

    def bound_factor(self, rate: float) -> float:
        """Returns a number c such that nobody is charged more than c·W·η_n."""
        rho = rate * self.stiffness
        if self.accountant == LABELS:
            return 0.5
        if self.several:
            return kappa.bound_softmax(rho, self.classes)
        if self.uses_kappa:
            return kappa.kappa(self.stiffness, rho)
        return kappa.bound_linear(rho)

    def charge(self, person: Floats, ranks: NDArray[np.int64], rate: float) -> Floats:
        """Returns what people with these weights lose by one problem."""
        if self.accountant == LABELS:
            return person * rate / 2
        if self.several:
            return np.asarray(person * (rate * self.bound_factor(rate) * kappa.ROUND_UP))
        if self.uses_kappa:
            return kappa.bound_charges(person, ranks, rate, self.stiffness)
        return kappa.compute_exact_charges(person, ranks, rate, self.stiffness)

    def find_linear_rate(self, total: float) -> float:
        """Returns the largest rate at which a charge that is linear in W stays within W·total; 0 if
        there is none.
        """
        if self.accountant == LABELS:
            return 2 * total
        return find_largest(lambda rate: rate * self.bound_factor(rate) <= total, 4 * total)

    def draw_tilt(self, rate: float) -> Floats:
        """Returns b, function by function, of density ∝ exp(−η_n·N(b)/(2·doubt))."""
        rate /= 2 * self.doubt
        width = self.body.width
        if isinstance(self.body, UnitBall):
            drawn = continuous.draw_l2(rate, self.freedoms * width).reshape(self.freedoms, width)
        else:
            columns = continuous.draw_columns(self.body.slopes, self.freedoms, self.share)
            drawn = columns.T * Fraction(HALF / rate)
        if self.several:
            drawn = make_basis(self.classes) @ drawn
        return np.asarray(drawn, dtype=np.float64).ravel()

    def deviations(self, rate: float) -> Floats:
        """Returns the standard deviation of b by coordinate, of one of the free functions."""
        scale = 2 * self.doubt / rate
        m = self.freedoms
        d = self.body.width
        if isinstance(self.body, UnitBall):
            return np.full(d, scale * math.sqrt(m * d + 1))
        p = self.body.slopes
        found = np.full(d, math.sqrt((p * m + 1) * (p * m + 2) / (m + 2)) / (1 - self.share or 1))
        if self.body.intercept:
            found[0] = math.sqrt(m + 1) / self.share
        return found * scale * HALF


def make_basis(classes: int) -> NDArray[np.object_]:
    """Returns K−1 orthonormal columns that are orthogonal to (1, …, 1), as fractions."""
    basis = scipy.linalg.helmert(classes).T
    return np.array([[Fraction(entry) for entry in row] for row in basis.tolist()], dtype=object)


@dataclass(frozen=True, eq=False)
class Problems:
    """The problems of one release: the same rows and weights, one class after the other, or all
    classes at once.
    """

    rows: Dataset
    mechanism: NoisyObjective
    person_weights: PersonWeights
    rate: float

    def fit(self, positive: int) -> Floats:
        """Returns the noisy minimiser, a line for each function, on the public grid; fresh noise
        each time. ``positive`` is the class that is told from the others, where there is one
        function.
        """
        mechanism = self.mechanism
        ridge = np.tile(mechanism.ridge, mechanism.functions)
        summed = RowProblem(self.rows.engine, self._make_kernel(positive))
        problem = newton.Problem(
            terms=summed.terms,
            pulls=summed.pulls,
            rough=summed.rough,
            ridge=ridge,
            centre=np.zeros(len(ridge)),
            tilt=mechanism.draw_tilt(self.rate),
            smoothness=mechanism.flattest / mechanism.stiffness,
            pull=mechanism.doubt / math.sqrt(mechanism.stiffness),
            error=bound_gradient_rounding(self.person_weights, mechanism),
        )
        theta = newton.minimise(
            problem,
            compute_tolerance(self.person_weights, mechanism),
            summed.guess(problem, count_rows(self.person_weights)),
        )
        rate = 1 / compute_output_scale(self.person_weights, mechanism, self.rate)
        found = make_answer_grid(mechanism, self.rate).nearest(
            continuous.add_output_noise(theta, rate, ridge)
        )
        return found.reshape(mechanism.functions, -1)

    def choose_threshold(self, intercept: float, slopes: Floats, share: float) -> float:
        """Returns the intercept anew, for slopes of recoded columns that were released: by
        permute-and-flip, that of the fit or one beside it, by the heavier of both kinds of errors.
        """
        intercepts, own = list_intercepts(intercept, slopes)
        weights = self.person_weights.weights
        kernel = ThresholdErrors(
            reader=_get_recoded_reader(self.rows.features),
            label=self.rows.label,
            owner=self.rows.owner,
            weights=weights.row,
            slopes=slopes,
            intercepts=intercepts,
        )
        errors = self.rows.engine.fold(kernel).max(axis=0)
        scale = self.person_weights.find_threshold_scale(share)
        penalty = math.ceil(THRESHOLD_PENALTY * scale)
        scores = errors + np.where(np.arange(len(intercepts)) == own, 0, penalty)
        return float(intercepts[source.permute_and_flip(scores, scale)])

    def make_equation(self, fitted: Floats, moved: float) -> Equation:
        """Returns what a fit, of one function or of several one after the other, solved; ``moved``
        is by how much the first coordinate of what is published differs.
        """
        mechanism = self.mechanism
        people = self.person_weights
        copies = len(fitted) // mechanism.body.width
        return Equation(
            theta=fitted,
            centre=np.zeros(len(fitted)),
            ridge=np.tile(mechanism.ridge, copies),
            noise=np.tile(mechanism.deviations(self.rate) ** 2, copies),
            total=mechanism.flattest,
            squares=float(people.person**2 @ people.kinds.people),
            most_pull=mechanism.doubt,
            unequal=UNEQUAL_CLASSES,
            moved=moved,
            of="the coefficients of logistic regression on the whole population",
            bought={},
            ratio=UNEQUAL_CLASSES * mechanism.flattest,
            told=FROM_PROBABILITIES.format(UNEQUAL_CLASSES),
            longest=1 / mechanism.stiffness,
        )

    def buy_equation(self, positive: int, theta: Floats, share: float) -> Equation:
        """Buys what intervals of a fit in the box need, at what it released."""
        people = self.person_weights
        terms = replace(self._make_kernel(positive), theta=theta)
        purchase = CurvaturePurchase(
            self.rows,
            terms,
            self.rows.features.recoding,
            people.purchase_weights,
            share,
            most_pull=1.0,
            most_bend=self.mechanism.flattest,
            pulls=CLASS_PULL_UNITS,
        )
        return replace(self.make_equation(theta, 0.0), bought=purchase.buy())

    def _make_kernel(self, positive: int) -> LogisticTerms | SoftmaxTerms:
        reader = self.rows.features
        if not isinstance(reader, UnitBallReader):
            reader = UnitBallReader(self.mechanism.body, reader.recoding, reader)
        common: dict[str, Any] = {
            "reader": reader,
            "label": self.rows.label,
            "owner": self.rows.owner,
            "row_weights": self.person_weights.row,
            "theta": np.zeros(self.mechanism.functions * self.mechanism.body.width),
        }
        if self.mechanism.several:
            return SoftmaxTerms(**common, classes=self.mechanism.classes)
        return LogisticTerms(**common, positive=positive)


def _get_recoded_reader(reader: Any) -> Reader:
    """The reader of recoded rows; those that were brought into the ball on entry are no more."""
    if isinstance(reader, UnitBallReader):
        assert reader.inner is not None  # rows in memory stay recoded where a threshold is bought
        reader = reader.inner
    return cast(Reader, reader)


def list_intercepts(intercept: float, slopes: Floats) -> tuple[Floats, int]:
    """Returns intercepts in rising order, and the place of the fit's own among them: all that lie a
    whole number of steps from it and could tell any two rows in the bounds apart.
    """
    step = THRESHOLD_STEP * float(np.linalg.norm(slopes))
    farthest = HALF * float(np.abs(slopes).sum())
    if not step > 0:
        return np.array([intercept]), 0
    first = math.ceil((-farthest - intercept) / step)
    last = math.floor((farthest - intercept) / step)
    places = np.union1d(np.arange(first, last + 1), 0)
    return intercept + step * places, int(np.searchsorted(places, 0))


def count_rows(person_weights: PersonWeights) -> int:
    """The number of rows, which is public."""
    return int(person_weights.kinds.rows @ person_weights.kinds.people)


def bound_gradient_rounding(person_weights: PersonWeights, mechanism: NoisyObjective) -> float:
    """Returns what the exact gradient may be wrong by, in the norm of Λ⁻¹, whatever the data, b and
    w.

    Several classes have as many pulls, and in each a sum over as many exponentials.
    """
    functions = mechanism.functions
    one = newton.bound_rounding(count_rows(person_weights), mechanism.body.width, 1.0)
    if functions > 1:
        one *= 1 + functions / 16
    return one * math.sqrt(functions / mechanism.stiffness)


def compute_tolerance(person_weights: PersonWeights, mechanism: NoisyObjective) -> float:
    """Returns t, the distance to the minimiser, in the norm of Λ, that the solver reaches; a public
    number.
    """
    return newton.find_tolerance(
        bound_gradient_rounding(person_weights, mechanism),
        least=TOLERANCE / math.sqrt(mechanism.stiffness),
    )


def bound_norm(tilt: float, ridge: float) -> float:
    """Returns what ‖w‖ cannot exceed at the minimiser where ‖b‖ = tilt: J(w) ≤ J(0) gives ½λ‖w‖² ≤
    ln 2 + ‖b‖‖w‖.
    """
    return (tilt + math.sqrt(tilt**2 + 2 * ridge * math.log(2))) / ridge


def compute_output_scale(
    person_weights: PersonWeights, mechanism: NoisyObjective, rate: float
) -> float:
    """Returns 2t/ε_out: the density of ν is ∝ exp(−‖ν‖_Λ/scale); t holds the solver's error and b's
    rounding.
    """
    distance = compute_tolerance(person_weights, mechanism) + bound_tilt_rounding(mechanism, rate)
    return 2 * distance / person_weights.slack


def bound_tilt_rounding(mechanism: NoisyObjective, rate: float) -> float:
    """Returns what rounding b to doubles moves the minimiser by at most, in the norm of Λ, but with
    chance e^−500.

    The basis of several classes is rounded too, each entry of it once.
    """
    size = mechanism.freedoms * mechanism.body.width + 1
    least = 1.0
    if isinstance(mechanism.body, CentredBox) and 0 < mechanism.share < 1:
        least = min(mechanism.share, 1 - mechanism.share)
    roundings = 1 + 2 * (mechanism.functions - 1)
    longest = 2 * mechanism.doubt / rate * continuous.bound_gamma(size) / least
    return 2.0**-53 * roundings * longest / math.sqrt(mechanism.stiffness)


def make_answer_grid(mechanism: NoisyObjective, rate: float) -> AnswerGrid:
    """Returns the grid of w: noise moves a coordinate by at least that of b over the steepest
    curvature there is.
    """
    steepest = float(mechanism.ridge.max()) + mechanism.flattest * mechanism.body.squared_length
    least = float(mechanism.deviations(rate).min())
    if mechanism.several:
        least *= math.sqrt(1 - 1 / mechanism.classes)
    return AnswerGrid.below(least / steepest)


def compute_output_noise(
    person_weights: PersonWeights, mechanism: NoisyObjective, rate: float
) -> float:
    """Returns the root mean square length of ν."""
    size = mechanism.functions * mechanism.body.width
    inverse = float((1 / mechanism.ridge).mean())
    scale = compute_output_scale(person_weights, mechanism, rate)
    return math.sqrt(size * (size + 1) * inverse) * scale


def compute_error_bound(
    delta: float = 0.05,
    norm: float | None = None,
    *,
    person_weights: PersonWeights,
    mechanism: NoisyObjective,
    rate: float,
) -> float:
    """Returns μ‖a‖ + σ/η: with probability 1 − δ over rows and noise, every w of this norm
    misclassifies at most J(w)/ln 2 plus this, J the noisy objective of two classes; without a norm,
    one that the released w certainly has.
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
    length = math.sqrt(mechanism.body.squared_length)
    tilt = _bound_tilt(mechanism, rate, delta / 2)
    ridge = float(mechanism.ridge.min())
    beta = float(norm or 0)
    if not beta:
        output = float(
            scipy.special.gammaincinv(mechanism.functions * mechanism.body.width, 1 - delta / 2)
        )
        scale = compute_output_scale(person_weights, mechanism, rate)
        beta = bound_norm(tilt, ridge) + output * scale / math.sqrt(ridge)
    mu = beta * length / math.log(2) * (2 + math.sqrt(math.log(2 / delta) / 2))
    return mu * math.sqrt(person_weights.weights.concentration) + beta * tilt / math.log(2)


def _bound_tilt(mechanism: NoisyObjective, rate: float, delta: float) -> float:
    """Returns what ‖b‖ exceeds with probability δ at most."""
    if isinstance(mechanism.body, UnitBall):
        size = mechanism.freedoms * mechanism.body.width
        return 2 * mechanism.doubt / rate * float(scipy.special.gammaincinv(size, 1 - delta))
    # E‖b‖² is known, and Markov's inequality does for a bound that is for comparing plans.
    return math.sqrt(mechanism.freedoms * float((mechanism.deviations(rate) ** 2).sum()) / delta)


@dataclass(frozen=True, eq=False)
class PersonWeights:
    """Who takes part how strongly, before Λ is known."""

    kinds: BudgetGroups
    weights: Weights
    left: Floats  # e_l, by kind; 0 for those who are left out
    problems: NDArray[np.int64]  # P_l, by kind
    slack: float  # ε_out of one problem
    coordinates: int  # d

    @classmethod
    def of(
        cls,
        kinds: BudgetGroups,
        coordinates: int,
        classes: int,
        labels_only: bool,
        association: float = 0.0,
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
        sampling, bias = compute_prices(coordinates, classes, labels_only, association)
        row = solve_row_weights(left, kinds.rows, kinds.people, sampling, bias)
        weights = Weights.from_row_weights(kinds, row)
        return cls(kinds, weights, left, problems, slack, coordinates)

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

    def find_rate(self, mechanism: NoisyObjective, threshold: float = 0.0) -> float:
        """Returns the largest η_n at which nobody pays more than they have; refuses a Λ at which
        there is none. ``threshold`` is the share that is kept for buying the intercept.
        """
        total = self.total * (1 - threshold)
        rate = mechanism.find_linear_rate(total)
        if mechanism.accountant == LABELS:
            return rate
        # Few people, or little regularisation: the exact charge may be the smaller one.
        if rate * mechanism.stiffness < mechanism.free_rate:
            left = self.left * (1 - threshold)
            rate = max(rate, self._find_exact_rate(mechanism, left, 4 * total))
        if rate <= 0:
            smallest = mechanism.free_rate / total
            raise WeakRegularisation(
                "At this λ what one row adds to the curvature costs more than somebody grants, "
                "whatever the noise.",
                "The smaller the budgets are together, the larger λ must be.",
                f"Take an alpha of {smallest:.3g} or more, or none to have it chosen.",
                smallest=smallest,
                parameter="alpha",
            )
        return rate

    def _find_exact_rate(self, mechanism: NoisyObjective, left: Floats, high: float) -> float:
        """Returns the largest η_n below ``high`` at which nobody is charged more than they have
        left; 0 if there is none.

        A charge over W falls as W grows, so most people never decide: somebody of the same rank,
        no heavier and with no more left for each unit of weight, is stopped first.
        """
        person = self.person
        ranks = self.ranks
        some = list_binding(person, ranks, left)

        def fits(rate: float, who: Any = slice(None)) -> bool:
            return bool(np.all(mechanism.charge(person[who], ranks[who], rate) <= left[who]))

        rate = find_largest(lambda rate: fits(rate, some), high)
        if rate > 0 and not fits(rate):  # by a last bit
            return find_largest(fits, high)
        return rate

    @cached_property
    def purchase_weights(self) -> PurchaseWeights:
        """How strongly each takes part in what is bought for intervals, from what they have left
        for one problem.
        """
        return PurchaseWeights.of(self.kinds, self.row, self.left)

    def find_threshold_scale(self, threshold: float) -> int:
        """Returns the whole number of the choice of an intercept at which nobody pays more than
        this share: scores move by at most a person's weight, which costs 2·weight/scale.
        """
        participating = self.weights.person > 0
        ratio = self.weights.person[participating] / (threshold * self.left[participating])
        return math.ceil(2 * float(ratio.max()) * (1 + 2.0**-48))

    def charges(
        self, mechanism: NoisyObjective, rate: float, threshold: float = 0.0, intervals: float = 0.0
    ) -> units.Units:
        """Returns what each kind of people pays for all problems together, the solver's slack, the
        choice of an intercept, and the share that buys intervals included.
        """
        once = mechanism.charge(self.person, self.ranks, rate) + self.slack
        if intervals > 0:
            once = once + self.purchase_weights.charge(intervals)
        if threshold > 0:
            once = once + 2 * self.weights.person / self.find_threshold_scale(threshold)
        once = np.where(self.weights.person > 0, once, 0.0)
        return units.check_within_grant(units.round_up(once * self.problems), self.kinds.epsilon)


def count_changed_problems(
    rows: NDArray[np.int64], classes: int, labels_only: bool
) -> NDArray[np.int64]:
    """Returns how many of the problems a person can change.

    Two classes, and several in one objective, make one problem. Where labels alone are protected,
    each of several classes is told from the others, and a label that changes changes two of these
    problems: those whose classes it leaves and enters.
    """
    if classes == 2 or not labels_only:
        return np.ones_like(rows)
    return np.minimum(2 * rows, classes)


def compute_prices(
    coordinates: int, classes: int, labels_only: bool, association: float
) -> tuple[float, float]:
    """Returns A and B: what sampling and association weigh against the noise.

    In squared log-odds, where curvature is CURVATURE in every direction of rows that fill the ball
    evenly: noise (2√(d+1)·d/CURVATURE)² over η², sampling d·Σc²/CURVATURE, association
    (β·LOG_ODDS·Σ|W − u|)².
    """
    d = coordinates
    noise = 4 * (d + 1) * d**2 / CURVATURE**2
    if labels_only:
        noise /= 4
    elif classes > 2:
        noise *= 2 * (classes - 1)
    return d / CURVATURE / noise, (association * LOG_ODDS) ** 2 / noise


def list_binding(person: Floats, ranks: NDArray[np.int64], left: Floats) -> NDArray[np.intp]:
    """Returns the places of people of whom one is the first who cannot pay as the rate grows, if a
    charge over the weight never grows with the weight: of each rank those who have less for a unit
    of weight than everybody lighter.
    """
    found = []
    for rank in np.unique(ranks[person > 0]):
        which = np.flatnonzero((ranks == rank) & (person > 0))
        order = which[np.argsort(person[which], kind="stable")]
        part = left[order] / person[order]
        least = np.minimum.accumulate(part)
        found.append(order[np.append(True, part[1:] < least[:-1])])
    return np.concatenate(found)


def find_largest(fits: Any, high: float) -> float:
    """Returns the largest number below ``high`` that fits, by bisection of its logarithm; 0 if none
    does.
    """
    low = high * 1e-12
    if not fits(low):
        return 0.0
    for _ in range(100):
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        if fits(middle):
            low, high = (middle, high)
        else:
            low, high = (low, middle)
    return low
