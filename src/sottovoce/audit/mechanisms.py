# SPDX-License-Identifier: Apache-2.0
"""Mechanisms whose per-instance loss is known, each a formula of one record's change (docs/theory/per-instance.md).

mechanism          releases                                                 ε at δ
Sample             θ̃ ~ N(θ̂, H⁻¹/γ)                                         exact, theorem 3
Radial             θ̂ + Z, density of Z ∝ exp(−η‖z‖)                         exact pure ε, η‖θ − θ'‖, theorem 2
GaussianOutput     θ̂ + N(0, σ²A⁻¹), A a fixed matrix                        exact, theorem 1
GaussianObjective  the minimiser of ½‖y − Xθ‖² + ½λ‖θ‖² + bᵀθ, b ~ N(0, σ²I)  exact, an integral (theorem 7)

    symbol   name
    μ, r     leverage xᵀH⁻¹x and residual y − xᵀθ where the record is absent
    ‖x‖², ‖g‖²   square, and reach: of g = H⁻¹x where the record is absent
    λ, σ, A  alpha, sigma, metric
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit import curves
from sottovoce.bounds import Bounds
from sottovoce.errors import InvalidParameter
from sottovoce.solvers import profiles, renyi, suprema
from sottovoce.solvers.leverages import Fit
from sottovoce.solvers.suprema import Supremum

Floats = NDArray[np.float64]
METRICS = ("identity", "hessian")
CHUNK = 8192


class Change(NamedTuple):
    """What records change, one entry each: μ, r, ‖θ − θ'‖ in the mechanism's metric, ‖x‖² and ‖g‖²."""

    leverage: Floats
    residual: Floats
    distance: Floats
    square: Floats
    reach: Floats

    def select(self, which: Any) -> Change:
        """The same for some of the records."""
        return Change(*(field[which] for field in self))


def change(fit: Fit, rows: Floats, labels: Floats, metric: Floats, *, present: bool) -> Change:
    """Returns what leaving each row out would change, or, where it is not present, what adding it would."""
    records = fit.left_out(rows, labels) if present else fit.added(rows, labels)
    with np.errstate(invalid="ignore"):
        moved = (fit.moved_by_leaving if present else fit.moved_by_adding)(rows, labels, metric)
    turned = fit.inverse_root.T @ fit.inverse_root
    reach = np.concatenate([np.square(part @ turned).sum(axis=1) for part in _parts(rows)] or [np.empty(0)])
    if present:  # H⁻¹x of the others is 1 + μ times that of all
        reach = reach * (1 + records.leverage) ** 2
    return Change(records.leverage, records.residual, moved, np.square(rows).sum(axis=1), reach)


def _parts(rows: Floats) -> list[Floats]:
    return [rows[at : at + CHUNK] for at in range(0, len(rows), CHUNK)]


class Mechanism(Protocol):
    """What an audit asks of a mechanism."""

    @property
    def exactness(self) -> str:
        """In words, whether the losses are exact."""

    def compute_metric(self, fit: Fit) -> Floats:
        """A, the matrix in which distances are measured."""

    def epsilon(self, moved: Change, delta: float) -> Floats:
        """Returns ε at δ, one a record."""

    def curve(self, moved: Change) -> Floats:
        """Returns D_α at renyi.ORDERS, one row a record, the larger direction."""

    def supremum(self, fit: Fit, delta: float, norm: float, label: float) -> Supremum:
        """Returns the largest ε of a record with ‖x‖ ≤ norm, |y| ≤ label that may be added."""


@dataclass(frozen=True)
class Sample:
    """One sample of a posterior, θ̃ ~ N(θ̂, H⁻¹/γ)."""

    gamma: float
    given: str = ""  # what the loss is conditional on, in words

    @property
    def exactness(self) -> str:
        """Both directions, theorem 3."""
        return f"exact at δ, the worse of adding and removing the row{self.given}"

    def compute_metric(self, fit: Fit) -> Floats:
        """H itself: distances do not matter here beyond μ and r."""
        return fit.metric("identity")

    def epsilon(self, moved: Change, delta: float) -> Floats:
        """The exact profile."""
        return profiles.posterior_epsilon(moved.leverage, math.sqrt(self.gamma) * moved.residual, delta)

    def curve(self, moved: Change) -> Floats:
        """The exact curve, of the direction that dominates."""
        return renyi.posterior(moved.leverage, math.sqrt(self.gamma) * moved.residual)

    def supremum(self, fit: Fit, delta: float, norm: float, label: float) -> Supremum:
        """By a search along one curve."""
        return suprema.posterior(fit.hessian, fit.theta, self.gamma, delta, norm, label)


@dataclass(frozen=True)
class Radial:
    """The solution with noise of density ∝ exp(−η‖z‖₂) in the coordinates in which it was solved."""

    rate: float
    exactness: ClassVar[str] = "exact and pure, whatever δ is: no smaller ε holds without a δ"

    def compute_metric(self, fit: Fit) -> Floats:
        """The identity."""
        return fit.metric("identity")

    def epsilon(self, moved: Change, delta: float) -> Floats:
        """η‖θ − θ'‖."""
        return np.asarray(self.rate * moved.distance)

    def curve(self, moved: Change) -> Floats:
        """The largest curve that a pure ε allows."""
        return curves.pure(self.rate * moved.distance)

    def supremum(self, fit: Fit, delta: float, norm: float, label: float) -> Supremum:
        """The largest distance times η."""
        most = suprema.displacement(fit.hessian, fit.theta, self.compute_metric(fit), norm, label)
        return most._replace(value=self.rate * most.value, bound=self.rate * most.bound)


@dataclass(frozen=True)
class GaussianOutput:
    """The description of a mechanism: a ridge solution with Gaussian noise, θ̂ + N(0, σ²A⁻¹).

    ``alpha`` is λ, and ``metric`` A: the identity, or this data's XᵀX + λI taken as a fixed matrix. Noise whose shape
    follows the data is another mechanism: for that, use sv.PosteriorSample(gamma=1/sigma²). With ``bounds`` rows and
    labels beyond are brought back to them, and ``for_all`` is over what they allow.
    """

    sigma: float
    alpha: float
    metric: str = "identity"
    bounds: Bounds | None = None
    exactness: ClassVar[str] = "exact at δ, the same for adding and removing the row"

    def __post_init__(self) -> None:
        _refuse_unknown(self.sigma, self.alpha)
        if self.metric not in METRICS:
            raise InvalidParameter("The metric is not known.", f"There are {' and '.join(METRICS)}.", "Choose one.")

    def compute_metric(self, fit: Fit) -> Floats:
        """A."""
        return fit.metric(self.metric)

    def epsilon(self, moved: Change, delta: float) -> Floats:
        """The exact profile of Gaussian noise."""
        return profiles.gaussian_epsilon(moved.distance / self.sigma, delta)

    def curve(self, moved: Change) -> Floats:
        """αD²/2."""
        return renyi.gaussian(moved.distance / self.sigma)

    def supremum(self, fit: Fit, delta: float, norm: float, label: float) -> Supremum:
        """That of the distance, which ε grows with."""
        most = suprema.displacement(fit.hessian, fit.theta, self.compute_metric(fit), norm, label)
        value, bound = profiles.gaussian_epsilon(np.array([most.value, most.bound]) / self.sigma, delta)
        return most._replace(value=float(value), bound=float(bound))


@dataclass(frozen=True)
class GaussianObjective:
    """The description of a mechanism: ridge regression with Gaussian noise in its objective.

    Released is the minimiser of ½‖y − Xθ‖² + ½λ‖θ‖² + bᵀθ, b ~ N(0, σ²I); ``alpha`` is λ. About 100 records a second.
    """

    sigma: float
    alpha: float
    bounds: Bounds | None = None
    exactness: ClassVar[str] = "exact at δ to nine digits, by an integral; the worse of adding and removing the row"

    def __post_init__(self) -> None:
        _refuse_unknown(self.sigma, self.alpha)

    def compute_metric(self, fit: Fit) -> Floats:
        """The identity."""
        return fit.metric("identity")

    def epsilon(self, moved: Change, delta: float) -> Floats:
        """The root of an integral."""
        return curves.objective_epsilon(moved.leverage, moved.residual, moved.square, moved.reach, self.sigma, delta)

    def curve(self, moved: Change) -> Floats:
        """The exact curve: the loss is quadratic in two normal variables."""
        return curves.objective(moved.leverage, moved.residual, moved.square, moved.reach, self.sigma)

    def supremum(self, fit: Fit, delta: float, norm: float, label: float) -> Supremum:
        """Refuses: no proof covers it."""
        raise InvalidParameter(
            "The worst record of a domain is not known for noise in the objective.",
            "Only for posterior samples and noise on the solution is there a proof.",
            "Look at .epsilon, or try records of your own with .for_one.",
        )


def _refuse_unknown(sigma: Any, alpha: Any) -> None:
    try:
        fine = 0 < float(sigma) < math.inf and 0 <= float(alpha) < math.inf
    except Exception:  # whatever somebody else's number raises
        fine = False
    if not fine:
        raise InvalidParameter(
            "sigma is not positive and finite, or alpha is negative or not finite.",
            "They are the spread of the noise and the regularisation λ.",
            "Pass public numbers, such as sigma=4.0 and alpha=1.0.",
        )
