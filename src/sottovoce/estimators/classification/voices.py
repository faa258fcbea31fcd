# SPDX-License-Identifier: Apache-2.0
"""How loud each is heard by a classifier, how much noise there is, and what each is charged: public numbers alone.

Weights and noise minimise the bound μ‖a‖ + σ/η on the misclassification error (docs/theory/logistic.md):

    u_l = min(e_l, h·s_l),    W_l = u_l/η,    η = Σ u_l,    h the root of Σ u_l(h − u_l/s_l) = (σ/μ)·√(Σ u_l²/s_l)

    symbol   name
    s_l      rows of person l
    e_l      left              what l has for one problem, after the solver's slack
    P_l      problems          how many of the one-against-the-others problems l can change
    η        total             W_l·η ≤ e_l for everybody who is heard
    η_n      rate              of the noise drawn: density of b ∝ exp(−η_n‖b‖/2)
    λ        ridge
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from sottovoce import units
from sottovoce.budgets import Kinds
from sottovoce.errors import InvalidBudget, WeakRegularisation
from sottovoce.estimators.regression.sums import audible
from sottovoce.solvers import kappa
from sottovoce.weights import Weights

Floats = NDArray[np.float64]

#: The share of everybody's part in a problem that pays for the solver's last digits.
SLACK = 1e-3
#: The probability with which the bound that weights minimise may fail, once for the sample and once for the noise.
FAILURE = 0.05
#: Who protects labels alone needs no accountant: W·η/2 at any λ.
LABELS = "labels"
#: From η·λ = 2 on the exact charge has no slack at all.
FREE = 2.0


@dataclass(frozen=True, eq=False)
class Voices:
    """Who is heard how loudly, before λ is known."""

    kinds: Kinds
    weights: Weights
    left: Floats  # e_l, by kind; 0 for those who are not heard
    problems: NDArray[np.int64]  # P_l, by kind
    slack: float  # ε_out of one problem
    coordinates: int  # d
    labels_only: bool

    @classmethod
    def of(cls, kinds: Kinds, coordinates: int, classes: int, labels_only: bool) -> Voices:
        """Solves for the weights of people; whoever grants next to nothing is not heard."""
        problems = problems_changed(kinds.rows, classes, labels_only)
        heard = audible(kinds)
        part = np.where(heard, units.epsilon(kinds.epsilon) / problems * (1 - 1e-12), 0.0)
        if not part.any():
            raise InvalidBudget("Nobody grants anything.", "Somebody's ε must be above 0.", "Give people a positive ε.")
        slack = SLACK * float(part[heard].min())
        left = np.where(heard, part - slack, 0.0)
        voices = np.minimum(left / kinds.rows, saturation(left, kinds.rows, kinds.people, noise_price(coordinates)))
        weights = Weights.from_row_weights(kinds, voices / voices.max())
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
        heard = self.weights.person > 0
        return float((self.left[heard] / self.person[heard]).min()) * (1 - 1e-12)

    @property
    def ranks(self) -> NDArray[np.int64]:
        """How many directions each can add to the curvature: rows, at most the number of coordinates."""
        return np.minimum(self.kinds.rows, self.coordinates)

    def rate(self, ridge: float, accountant: str) -> float:
        """Returns the largest η_n at which nobody pays more than they have; refuses a λ at which there is none."""
        rate = linear_rate(self.total, ridge, self._get_accountant(accountant))
        if self.labels_only:
            return rate
        if rate * ridge < FREE:  # few people, or little regularisation: the exact charge may be the smaller one
            rate = max(rate, _largest(lambda eta: self._is_affordable(eta, ridge, accountant), 4 * self.total))
        if rate <= 0:
            raise self._weak_regularisation_error()
        return rate

    def charges(self, ridge: float, rate: float, accountant: str) -> units.Units:
        """Returns what each kind of people pays for all problems together, the solver's slack included."""
        once = np.where(self.weights.person > 0, self._charge_per_problem(rate, ridge, accountant) + self.slack, 0.0)
        return units.within(units.charge(once * self.problems), self.kinds.epsilon)

    def _get_accountant(self, accountant: str) -> str:
        return LABELS if self.labels_only else accountant

    def _charge_per_problem(self, rate: float, ridge: float, accountant: str) -> Floats:
        if self.labels_only:
            return self.person * rate / 2
        price = kappa.charges if accountant == "kappa" else kappa.person_charge
        return np.asarray(price(self.person, self.ranks, rate, ridge), dtype=np.float64)

    def _is_affordable(self, rate: float, ridge: float, accountant: str) -> bool:
        return bool(np.all(self._charge_per_problem(rate, ridge, accountant) <= self.left))

    def _weak_regularisation_error(self) -> WeakRegularisation:
        smallest = FREE / self.total
        return WeakRegularisation(
            "At this λ what one row adds to the curvature costs more than somebody grants, whatever the noise.",
            "The smaller the budgets are together, the larger λ must be.",
            f"Take an alpha of {smallest:.3g} or more, or none to have it chosen.",
            smallest=smallest,
        )


def problems_changed(rows: NDArray[np.int64], classes: int, labels_only: bool) -> NDArray[np.int64]:
    """Returns how many of the problems, one class against the others, a person can change.

    Two classes make one problem. A row that changes changes all of them; a label that changes, the two
    whose classes it leaves and enters.
    """
    if classes == 2:
        return np.ones_like(rows)
    return np.minimum(2 * rows, classes) if labels_only else np.full_like(rows, classes)


def noise_price(coordinates: int) -> float:
    """Returns σ/μ = 2q/(2 + √(ln(1/δ)/2)), q the Gamma(d) quantile at 1 − δ: what noise weighs against sampling."""
    q = float(gammaincinv(coordinates, 1 - FAILURE))
    return 2 * q / (2 + math.sqrt(math.log(1 / FAILURE) / 2))


def saturation(left: Floats, rows: Any, people: Any, price: float) -> float:
    """Returns h, the root of Σ u(h − u/s) = price·√(Σ u²/s) with u = min(e, h·s); the largest e/s if there is none."""

    def saturated(h: float) -> bool:
        u = np.minimum(left, h * rows)
        return float((people * u * (h - u / rows)).sum()) >= price * math.sqrt(float((people * u * u / rows).sum()))

    low, high = 0.0, float((left / rows).max())
    if not saturated(high):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if saturated(middle) else (middle, high)
    return high


def linear_rate(total: float, ridge: float, accountant: str) -> float:
    """Returns the largest rate at which a charge that is linear in W stays within W·total; 0 if there is none."""
    if accountant == LABELS:
        return 2 * total
    factor = kappa.kappa if accountant == "kappa" else lambda _, rho: kappa.linear(rho)
    return _largest(lambda rate: rate * factor(ridge, rate * ridge) <= total, 4 * total)


def _largest(fits: Any, high: float) -> float:
    """Returns the largest number below ``high`` that fits, by bisection of its logarithm; 0 if none does."""
    low = high * 1e-12
    if not fits(low):
        return 0.0
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
