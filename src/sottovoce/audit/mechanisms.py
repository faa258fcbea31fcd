# SPDX-License-Identifier: Apache-2.0
"""Mechanisms whose per-instance loss is known, each a formula of one record's change
(docs/theory/per-instance.md).

mechanism          releases                                       ε at δ
Sample             θ̃ ~ N(θ̂, H⁻¹/γ)                               exact, theorem 3
Radial             θ̂ + Z, density of Z ∝ exp(−η‖z‖)               exact pure ε, η‖θ − θ'‖, theorem
                                                                   2
GaussianOutput     θ̂ + N(0, σ²A⁻¹), A a fixed matrix              exact, theorem 1
GaussianObjective  the minimiser of ½‖y − Xθ‖² + ½λ‖θ‖² + bᵀθ,    exact, an integral, theorem 7
                   b ~ N(0, σ²I)

    symbol   name
    μ, r     leverage xᵀH⁻¹x and residual y − xᵀθ where the record is absent
    ‖x‖², ‖g‖²   square, and reach: of g = H⁻¹x where the record is absent
    λ, σ, A  alpha, sigma, metric

Rényi curves of noise in the objective and of pure losses (docs/theory/per-instance.md, theorem 7).

With noise in the objective of a ridge regression the log-ratio of the two laws is quadratic in two
normal variables,

    L = C + Bz + (offset·spread)·ζ + Az² + (stretch·spread)·zζ,

z along g = H⁻¹x and ζ across it, so that E e^(bL) is a Gaussian integral.

    symbol      name
    μ, r        leverage and residual where the record is absent
    ‖x‖², ‖g‖²   square and reach
    σ           sigma
    b           α − 1
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.accounting import profiles, renyi
from sottovoce.accounting.profiles import check_delta
from sottovoce.accounting.renyi import ORDERS
from sottovoce.arrays import Floats
from sottovoce.audit import leverages
from sottovoce.audit.leverages import RidgeFit, Supremum
from sottovoce.errors import InvalidParameter
from sottovoce.schema import Bounds

METRICS = ("identity", "hessian")
CHUNK = 8192


class LeaveOneOutChange(NamedTuple):
    """What records change, one entry each: μ, r, ‖θ − θ'‖ in the mechanism's metric, ‖x‖² and
    ‖g‖².
    """

    leverage: Floats
    residual: Floats
    distance: Floats
    square: Floats
    reach: Floats

    def select(self, which: Any) -> LeaveOneOutChange:
        """The same for some of the records."""
        return LeaveOneOutChange(*(field[which] for field in self))


def compute_changes(
    fit: RidgeFit, rows: Floats, labels: Floats, metric: Floats, *, present: bool
) -> LeaveOneOutChange:
    """Return what leaving each row out would change, or, where it is not present, what adding it
    would.
    """
    if present:
        records = fit.left_out(rows, labels)
    else:
        records = fit.added(rows, labels)
    with np.errstate(invalid="ignore"):
        moved = (fit.moved_by_leaving if present else fit.moved_by_adding)(rows, labels, metric)
    turned = fit.inverse_root.T @ fit.inverse_root
    reach = np.concatenate(
        [np.square(part @ turned).sum(axis=1) for part in _split_rows(rows)] or [np.empty(0)]
    )
    if present:  # H⁻¹x of the others is 1 + μ times that of all
        reach = reach * (1 + records.leverage) ** 2
    return LeaveOneOutChange(
        records.leverage, records.residual, moved, np.square(rows).sum(axis=1), reach
    )


def _split_rows(rows: Floats) -> list[Floats]:
    return [rows[at : at + CHUNK] for at in range(0, len(rows), CHUNK)]


class Mechanism(Protocol):
    """What an audit asks of a mechanism."""

    @property
    def exactness(self) -> str:
        """In words, whether the losses are exact."""

    def compute_metric(self, fit: RidgeFit) -> Floats:
        """A, the matrix in which distances are measured."""

    def epsilon(self, moved: LeaveOneOutChange, delta: float) -> Floats:
        """Return ε at δ, one a record."""

    def curve(self, moved: LeaveOneOutChange) -> Floats:
        """Return D_α at renyi.ORDERS, one row a record, the larger direction."""

    def supremum(self, fit: RidgeFit, delta: float, norm: float, label: float) -> Supremum:
        """Return the largest ε of a record with ‖x‖ ≤ norm, |y| ≤ label that may be added."""


@dataclass(frozen=True)
class PosteriorMechanism:
    """One sample of a posterior, θ̃ ~ N(θ̂, H⁻¹/γ)."""

    gamma: float
    given: str = ""  # what the loss is conditional on, in words

    @property
    def exactness(self) -> str:
        """Both directions, theorem 3."""
        return f"exact at δ, the worse of adding and removing the row{self.given}"

    def compute_metric(self, fit: RidgeFit) -> Floats:
        """H itself: distances do not matter here beyond μ and r."""
        return fit.metric("identity")

    def epsilon(self, moved: LeaveOneOutChange, delta: float) -> Floats:
        """The exact profile."""
        return profiles.posterior_epsilon(
            moved.leverage, math.sqrt(self.gamma) * moved.residual, delta
        )

    def curve(self, moved: LeaveOneOutChange) -> Floats:
        """The exact curve, of the direction that dominates."""
        return renyi.compute_posterior_curve(moved.leverage, math.sqrt(self.gamma) * moved.residual)

    def supremum(self, fit: RidgeFit, delta: float, norm: float, label: float) -> Supremum:
        """By a search along one curve."""
        return leverages.find_posterior_supremum(
            fit.hessian, fit.theta, self.gamma, delta, norm, label
        )


@dataclass(frozen=True)
class RadialOutput:
    """The solution with noise of density ∝ exp(−η‖z‖₂) in the coordinates in which it was
    solved.
    """

    rate: float
    exactness: ClassVar[str] = "exact and pure, whatever δ is: no smaller ε holds without a δ"

    def compute_metric(self, fit: RidgeFit) -> Floats:
        """The identity."""
        return fit.metric("identity")

    def epsilon(self, moved: LeaveOneOutChange, delta: float) -> Floats:
        """η‖θ − θ'‖."""
        return np.asarray(self.rate * moved.distance)

    def curve(self, moved: LeaveOneOutChange) -> Floats:
        """The largest curve that a pure ε allows."""
        return compute_pure_curve(self.rate * moved.distance)

    def supremum(self, fit: RidgeFit, delta: float, norm: float, label: float) -> Supremum:
        """The largest distance times η."""
        most = leverages.find_displacement_supremum(
            fit.hessian, fit.theta, self.compute_metric(fit), norm, label
        )
        return most._replace(value=self.rate * most.value, bound=self.rate * most.bound)


@dataclass(frozen=True)
class GaussianOutput:
    """The description of a mechanism: a ridge solution with Gaussian noise, θ̂ + N(0, σ²A⁻¹).

    ``alpha`` is λ, and ``metric`` A: the identity, or this data's XᵀX + λI taken as a fixed matrix.
    Noise whose shape follows the data is another mechanism: for that, use
    sv.PosteriorSample(gamma=1/sigma²). With ``bounds`` rows and labels beyond are brought back to
    them, and ``for_all`` is over what they allow.
    """

    sigma: float
    alpha: float
    metric: str = "identity"
    bounds: Bounds | None = None
    exactness: ClassVar[str] = "exact at δ, the same for adding and removing the row"

    def __post_init__(self) -> None:
        _refuse_invalid_noise(self.sigma, self.alpha)
        if self.metric not in METRICS:
            raise InvalidParameter(
                "The metric is not known.",
                f"There are {' and '.join(METRICS)}.",
                "Choose one.",
                parameter="metric",
            )

    def compute_metric(self, fit: RidgeFit) -> Floats:
        """Return the matrix in which distances are measured.

        Parameters
        ----------
        fit : RidgeFit
            The regression of the rows.

        Returns
        -------
        Floats
            A.
        """
        return fit.metric(self.metric)

    def epsilon(self, moved: LeaveOneOutChange, delta: float) -> Floats:
        """Return ε of a record at δ.

        Parameters
        ----------
        moved : LeaveOneOutChange
            What the record changes.
        delta : float
            δ > 0, the probability that the statement leaves out.

        Returns
        -------
        Floats
            ε by the exact profile of Gaussian noise.
        """
        return profiles.gaussian_epsilon(moved.distance / self.sigma, delta)

    def curve(self, moved: LeaveOneOutChange) -> Floats:
        """Return the Rényi curve of a record.

        Parameters
        ----------
        moved : LeaveOneOutChange
            What the record changes.

        Returns
        -------
        Floats
            αD²/2.
        """
        return renyi.compute_gaussian_curve(moved.distance / self.sigma)

    def supremum(self, fit: RidgeFit, delta: float, norm: float, label: float) -> Supremum:
        """Return the largest ε of a record that may be added.

        Parameters
        ----------
        fit : RidgeFit
            The regression of the rows.
        delta : float
            δ > 0, the probability that the statement leaves out.
        norm : float
            Bound on ‖x‖.
        label : float
            Bound on |y|.

        Returns
        -------
        Supremum
            That of the distance, which ε grows with.
        """
        most = leverages.find_displacement_supremum(
            fit.hessian, fit.theta, self.compute_metric(fit), norm, label
        )
        value, bound = profiles.gaussian_epsilon(
            np.array([most.value, most.bound]) / self.sigma, delta
        )
        return most._replace(value=float(value), bound=float(bound))


@dataclass(frozen=True)
class GaussianObjective:
    """The description of a mechanism: ridge regression with Gaussian noise in its objective.

    Released is the minimiser of ½‖y − Xθ‖² + ½λ‖θ‖² + bᵀθ, b ~ N(0, σ²I); ``alpha`` is λ. About 100
    records a second.
    """

    sigma: float
    alpha: float
    bounds: Bounds | None = None
    exactness: ClassVar[str] = (
        "exact at δ to nine digits, by an integral; the worse of adding and removing the row"
    )

    def __post_init__(self) -> None:
        _refuse_invalid_noise(self.sigma, self.alpha)

    def compute_metric(self, fit: RidgeFit) -> Floats:
        """Return the matrix in which distances are measured.

        Parameters
        ----------
        fit : RidgeFit
            The regression of the rows.

        Returns
        -------
        Floats
            The identity.
        """
        return fit.metric("identity")

    def epsilon(self, moved: LeaveOneOutChange, delta: float) -> Floats:
        """Return ε of a record at δ.

        Parameters
        ----------
        moved : LeaveOneOutChange
            What the record changes.
        delta : float
            δ > 0, the probability that the statement leaves out.

        Returns
        -------
        Floats
            ε, the root of an integral.
        """
        return solve_objective_epsilon(
            moved.leverage, moved.residual, moved.square, moved.reach, self.sigma, delta
        )

    def curve(self, moved: LeaveOneOutChange) -> Floats:
        """Return the Rényi curve of a record.

        Parameters
        ----------
        moved : LeaveOneOutChange
            What the record changes.

        Returns
        -------
        Floats
            The exact curve: the loss is quadratic in two normal variables.
        """
        return compute_objective_curve(
            moved.leverage, moved.residual, moved.square, moved.reach, self.sigma
        )

    def supremum(self, fit: RidgeFit, delta: float, norm: float, label: float) -> Supremum:
        """Refuse: no proof covers the largest ε of this mechanism.

        Parameters
        ----------
        fit : RidgeFit
            The regression of the rows.
        delta : float
            δ > 0, the probability that the statement leaves out.
        norm : float
            Bound on ‖x‖.
        label : float
            Bound on |y|.

        Returns
        -------
        Supremum
            Never.

        Raises
        ------
        InvalidParameter
            Always.
        """
        raise InvalidParameter(
            "The worst record of a domain is not known for noise in the objective.",
            "Only for posterior samples and noise on the solution is there a proof.",
            "Look at .epsilon, or try records of your own with .for_one.",
        )


def _refuse_invalid_noise(sigma: Any, alpha: Any) -> None:
    if not 0 < _to_number(sigma) < math.inf:
        raise InvalidParameter(
            "sigma is not positive and finite.",
            "It is the spread of the noise.",
            "Pass a public number, such as sigma=4.0.",
            parameter="sigma",
        )
    if not 0 <= _to_number(alpha) < math.inf:
        raise InvalidParameter(
            "alpha is negative or not finite.",
            "It is the regularisation λ.",
            "Pass a public number, such as alpha=1.0.",
            parameter="alpha",
        )


def _to_number(value: Any) -> float:
    try:
        return float(value)
    except Exception:  # whatever somebody else's number raises
        return math.nan


Bracket = tuple[Floats, Floats, Floats, Floats]
Excess = Callable[[Floats, NDArray[np.int64]], Floats]

#: Steps of the secant; eight are usual.
ILLINOIS_STEPS = 100
#: Roots are found to this share, from above.
ROOT_TOLERANCE = 1e-9
#: Where −log δ is larger, it is taken to be this.
LARGEST_LOG = 1e4


def compute_pure_curve(epsilon: Floats) -> Floats:
    """Return the largest D_α of a loss within ±ε: that of a coin which is told the truth with odds
    e^ε.
    """
    e = epsilon[:, None]
    alpha = ORDERS
    within = (np.logaddexp(alpha * e, (1 - alpha) * e) - np.logaddexp(0.0, e)) / (alpha - 1)
    return np.clip(within, 0.0, e)


def compute_objective_curve(
    leverage: Floats, residual: Floats, square: Floats, reach: Floats, sigma: float
) -> Floats:
    """Return D_α of noise in the objective at ORDERS, the larger direction; ∞ where it is."""
    both = (
        profiles.make_objective_loss(leverage, residual, square, reach, sigma, removing)
        for removing in (False, True)
    )
    return np.maximum(*(_compute_renyi_curve(loss) for loss in both))


def _compute_renyi_curve(loss: profiles.ObjectiveLoss) -> Floats:
    """log E e^(bL)/b: with M = I − 2bQ and l the linear part, log E = bC − ½log det M +
    ½b²·lᵀM⁻¹l.
    """
    q11, l1, c, offset, stretch, spread = (part[:, None] for part in loss)
    l2 = offset * spread
    q12 = stretch * spread
    b = ORDERS - 1
    m11 = 1 - 2 * b * q11
    m12 = -b * q12
    determinant = m11 - m12**2
    finite = (m11 > 0) & (determinant > 0)
    safe = np.where(finite, determinant, 1.0)
    form = (l1**2 - 2 * m12 * l1 * l2 + m11 * l2**2) / safe
    return np.where(finite, np.maximum(c - np.log(safe) / (2 * b) + b * form / 2, 0.0), math.inf)


def solve_objective_epsilon(
    leverage: Floats, residual: Floats, square: Floats, reach: Floats, sigma: float, delta: float
) -> Floats:
    """Return the least ε ≥ 0, to nine digits from above, with δ(ε) ≤ δ in both directions.

    ∞ where μ or r is.
    """
    target = math.log(float(check_delta(delta)))
    finite = np.isfinite(leverage) & np.isfinite(residual)
    given = tuple(part[finite] for part in (leverage, residual, square, reach))
    answer = np.full(len(leverage), math.inf)
    if finite.any():
        answer[finite] = _solve_roots(given, sigma, target)
    else:
        answer[finite] = 0.0
    return answer


def _solve_roots(given: tuple[Floats, ...], sigma: float, target: float) -> Floats:
    """Regula falsi by the rule of Illinois for all records at once, on √−log δ, which is nearly
    linear in ε.
    """

    def excess(epsilon: Floats, which: NDArray[np.int64]) -> Floats:
        mu, r, xx, gg = (field[which] for field in given)
        logs = np.maximum(*profiles.objective_log_delta(mu, r, xx, gg, sigma, epsilon))
        return np.asarray(math.sqrt(-target) - np.sqrt(np.clip(-logs, 0.0, LARGEST_LOG)))

    everybody = np.arange(len(given[0]))
    at_zero = excess(np.zeros(len(everybody)), everybody)
    found = np.zeros(len(everybody))
    on = everybody[at_zero > 0]
    if on.size:
        found[on] = _refine_roots(excess, on, _bracket_roots(excess, on, at_zero[on]))
    return found


def _bracket_roots(excess: Excess, which: NDArray[np.int64], at_zero: Floats) -> Bracket:
    """Return ends between which each root lies, and the heights there."""
    low = np.zeros(len(which))
    above = at_zero.copy()
    high = np.ones(len(which))
    below = excess(high, which)
    while (short := below > 0).any():
        low[short], above[short] = high[short], below[short]
        high[short] *= 4
        below[short] = excess(high[short], which[short])
    return low, high, above, below


def _refine_roots(excess: Excess, which: NDArray[np.int64], bracket: Bracket) -> Floats:
    """An end that stays twice has its height halved, so that it cannot stay for ever."""
    (low, high, f, g) = bracket
    found = np.empty(len(which))
    left = np.arange(len(which))
    side = np.zeros(len(which))  # which end moved last: −1 the high one, 1 the low one
    for _ in range(ILLINOIS_STEPS):
        middle = low + (high - low) * f / (f - g)
        height = excess(middle, which[left])
        off = np.abs(height) * (high - low) / (f - g)  # the next step, about
        found[left] = np.minimum(middle + 2 * off + ROOT_TOLERANCE * middle, high)
        up = height > 0
        on = off > ROOT_TOLERANCE * middle
        low = np.where(up, middle, low)[on]
        high = np.where(up, high, middle)[on]
        f = np.where(up, height, np.where(side < 0, f / 2, f))[on]
        g = np.where(up, np.where(side > 0, g / 2, g), height)[on]
        left = left[on]
        side = np.where(up, 1.0, -1.0)[on]
        if not left.size:
            break
    return found
