# SPDX-License-Identifier: Apache-2.0
"""Linear regression by one sample from a posterior, with a budget a person (docs/theory/posterior.md).

θ̃ ~ N(θ̂, H⁻¹/γ), H = Σ wφφᵀ + λI, over rows φ of the unit ball and labels in [−1, 1]. concentration.py says what a
weight costs, grants.py has the weights and γ, gram.py the way into the ball, the sums and the draw.

    symbol   name
    γ        gamma; larger is closer to θ̂
    λ        alpha, or λ_n = max(0, h + W_max + σ₁z − λ̃)
    λ̃        noisy_eigenvalue_, the smallest of Σ wφφᵀ with noise of spread σ₁
    h        floor
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.bounds import MEASURE, between, measurable
from sottovoce.budgets import Kinds
from sottovoce.errors import InvalidParameter
from sottovoce.estimators.samples import concentration, gram, grants
from sottovoce.estimators.samples.drawn import Posterior
from sottovoce.estimators.samples.grants import Voices
from sottovoce.guarantee import Guarantee
from sottovoce.noise.grid import AnswerGrid
from sottovoce.noise.precise import Reals
from sottovoce.plan import Plan, Theorem
from sottovoce.release import Release

Floats = NDArray[np.float64]

PAGE = "docs/theory/posterior.md"
ACCOUNTS: dict[str, type[concentration.Adaptive]] = {
    "renyi": concentration.Adaptive,
    "simple": concentration.Simple,
}


@dataclass(frozen=True)
class GridWithEigenvalue(AnswerGrid):
    """The grid of θ̃, and that of λ̃."""

    eigenvalue: AnswerGrid

    def to_dict(self) -> dict[str, Any]:
        """Both as public JSON."""
        return {**super().to_dict(), "eigenvalue_step": self.eigenvalue.to_dict()["answer_step"]}


#: A floor under eigenvalues is no higher: against it one row is still seen in doubles.
HIGHEST = 1e12


class PosteriorSample(Posterior):
    """One sample from the posterior of a linear regression, each person heard as loudly as their own (ε, δ) allows.

    **Question.** Which linear function of the features predicts the label? Rows longer than the norm in ``bounds`` are
    scaled back to it, labels are clipped.

    **Promise.** (ε_l, δ) for each person l (each row, without ``groups``), neighbours by zeroing out all their rows:
    the answer is nearly as likely without them. Floating arithmetic. Never added to an account of replaced rows.

    **Formula.** θ̃ ~ N(θ̂, H⁻¹/γ), H = Σ wφφᵀ + λI; D_α ≤ D_α(μ = W_l/λ, a = √(γW_l)·R_l)  (docs/theory/posterior.md,
    theorem 1). Without ``epsilon`` every row weighs 1 and the promise follows; with it, weights follow from it.

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 2000)[:, None]
    >>> model = sv.PosteriorSample(gamma=5.0, alpha=50.0, bounds=sv.Bounds(norm=1.0, label=(-1, 1)), delta=1e-6)
    >>> fitted = model.fit(x, x[:, 0] / 2, epsilon=1.0)
    >>> bool(np.all(fitted.guarantee_.epsilon <= 1.0)), fitted.predict(x).shape
    (True, (2000,))

    **Limits.** λ is what protects people whose row lies in a direction of its own: with a small one ε is large, or
    weights are small; and the smaller the weights, the more λ shrinks.

    Parameters
    ----------
    gamma : how concentrated the sample is around the ridge solution; a public number.
    alpha : regularisation λ, for rows in the unit ball and labels in [−1, 1]; a public number.
    bounds : Bounds with the norm of rows or a box of features, and the label's range; or a Schema.
    delta : the δ of every promise, far below one over the number of people, and at least 10⁻¹⁵.
    fit_intercept : whether there is a constant term; it is regularised, and counts in the norm.
    missing : public constant between all bounds that stands for missing values; a schema declares one for each column.
    """

    question = "posterior sample"
    theorem = Theorem(
        "Posterior sample: each person l loses at most a row of leverage W_l/λ and residual √γW_l·R_l does "
        "(ε at δ, zero out)",
        PAGE,
    )

    def __init__(
        self,
        gamma: float = 1.0,
        alpha: float = 1.0,
        bounds: Any = None,
        *,
        delta: float = 1e-6,
        fit_intercept: bool = False,
        missing: float | None = None,
    ) -> None:
        self.gamma = gamma
        self.alpha = alpha
        self.bounds = bounds
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.missing = missing

    def _make_weights(self, kinds: Kinds, columns: int, granted: bool) -> Voices:
        account = concentration.Fixed(float(self.gamma), float(self.alpha), self._sure_delta)
        return grants.personal(kinds, account) if granted else Voices.equal(kinds, account)

    def _list_parameters(self, voices: Voices) -> dict[str, Any]:
        return {"gamma": float(self.gamma), "alpha": float(self.alpha)}

    def _describe_noise(self, voices: Voices) -> dict[str, Any]:
        return {"gamma": float(self.gamma)}

    def _get_ridge_and_gamma(self, voices: Voices, smallest: float) -> tuple[float, float]:
        return float(self.alpha), float(self.gamma)

    def _bound_eigenvalue(self, voices: Voices) -> float:
        return voices.total + float(self.alpha)

    def _draw_sample(self, plan: Plan, total: Reals, cross: Reals) -> tuple[Floats, dict[str, Any]]:
        return plan.grid.nearest(gram.sample(total, cross, plan.parameters["alpha"], plan.noise["gamma"])), {}

    def _refuse_unknown(self) -> None:
        super()._refuse_unknown()
        if not (measurable(self.gamma) and measurable(self.alpha)):
            raise InvalidParameter(
                f"gamma or alpha is not between {1 / MEASURE:g} and {MEASURE:g}.",
                "Without regularisation a single row can move the sample without limit, and there is no promise.",
                "Give public numbers, such as 1 for both.",
            )


class AdaptivePosteriorSample(Posterior):
    """One posterior sample that regularises only as much as the data need, at a given (ε, δ) for each person.

    **Question.** As in PosteriorSample, without a λ to choose: the smallest eigenvalue of Σ wφφᵀ is released with
    noise, and λ is what is missing to the floor h.

    **Promise.** (ε_l, δ) for each person l (each row, without ``groups``) for both releases together, neighbours by
    zeroing out all their rows. Floating arithmetic. Never added to an account of replaced rows.

    **Formula.** D_α ≤ αW_l²/(2σ₁²) + D_α(μ = W_l/h, a = √(γW_l)·(1 + √((S−W_l)/h))), read at δ − δ₃
    (docs/theory/posterior.md, theorem 2); σ₁, h and γ by the public rule of section 5.

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 2000)[:, None]
    >>> model = sv.AdaptivePosteriorSample(epsilon=1.0, delta=1e-6, bounds=sv.Bounds(norm=1.0, label=(-1, 1)))
    >>> fitted = model.fit(x, x[:, 0] / 2)
    >>> bool(np.all(fitted.guarantee_.epsilon <= 1.0)), bool(0.2 < fitted.coef_[0] < 0.4)  # half, shrunk by the floor
    (True, True)

    **Limits.** Made for many rows of well-spread features: where h is above what the data have, the model is shrunk.
    The number of rows is public.

    Parameters
    ----------
    epsilon : what each grants, unless fit, or a schema with a column of budgets, says otherwise.
    delta : the δ of every promise, far below one over the number of people, and at least 10⁻¹⁵.
    bounds : Bounds with the norm of rows or a box of features, and the label's range; or a Schema.
    calibration : "renyi", or "simple" to add up the exact ε of the two releases.
    condition : how many times smaller than the mean the smallest eigenvalue is expected to be: h = n/(d·condition).
    floor : h itself; None: chosen, and raised if budgets are too small for it.
    share : the part of ε that would pay for the eigenvalue alone.
    fit_intercept : whether there is a constant term; it counts in the norm.
    missing : public constant between all bounds that stands for missing values; a schema declares one for each column.
    """

    question = "adaptive posterior sample"
    theorem = Theorem(
        "Adaptive posterior sample: each person l loses at most what Gaussian noise on an eigenvalue and a row of "
        "leverage W_l/h do (ε at δ, zero out)",
        PAGE,
    )

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: Any = None,
        *,
        calibration: str = "renyi",
        condition: float = 2.0,
        floor: float | None = None,
        share: float = 0.2,
        fit_intercept: bool = False,
        missing: float | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.calibration = calibration
        self.condition = condition
        self.floor = floor
        self.share = share
        self.fit_intercept = fit_intercept
        self.missing = missing

    def _make_weights(self, kinds: Kinds, columns: int, granted: bool) -> Voices:
        floor = float(kinds.rows @ kinds.people) / (columns * self.condition)
        account = ACCOUNTS[self.calibration](0.0, floor, self._sure_delta, 1.0)
        return grants.adaptive(kinds, account, float(self.share), None if self.floor is None else float(self.floor))

    def _list_parameters(self, voices: Voices) -> dict[str, Any]:
        return {"calibration": self.calibration, "condition": float(self.condition), "share": float(self.share)}

    def _describe_noise(self, voices: Voices) -> dict[str, Any]:
        account = voices.account
        loudest = float((voices.weights.person * voices.unit).max())
        return {
            "gamma": account.gamma,
            "floor": account.floor,
            "eigenvalue_standard_deviation": account.spread,
            "margin": account.margin(loudest, voices.total),
        }

    def _bound_eigenvalue(self, voices: Voices) -> float:
        return float(voices.total + voices.account.floor + self._describe_noise(voices)["margin"])

    def _make_grid(self, voices: Voices) -> AnswerGrid:
        return GridWithEigenvalue(super()._make_grid(voices).exponent, AnswerGrid.below(voices.account.spread))

    def _get_ridge_and_gamma(self, voices: Voices, smallest: float) -> tuple[float, float]:
        noise = self._describe_noise(voices)
        return max(noise["floor"] + noise["margin"] - smallest, 0.0), float(noise["gamma"])

    def _draw_sample(self, plan: Plan, total: Reals, cross: Reals) -> tuple[Floats, dict[str, Any]]:
        noise = plan.noise
        drawn = gram.noisy_smallest(total, noise["eigenvalue_standard_deviation"])
        # Rounded before anything rests on it: λ_n follows from the number that is published.
        noisy = float(plan.grid.eigenvalue.nearest([drawn])[0])
        ridge = float(gram.lacking(noisy, noise["floor"], noise["margin"]))
        theta = plan.grid.nearest(gram.sample(total, cross, ridge, noise["gamma"]))
        return theta, {"noisy_eigenvalue": noisy, "regularisation": ridge}

    def _set_fitted(self, release: Release, guarantee: Guarantee | None = None, X: Any = None) -> None:
        super()._set_fitted(release, guarantee, X)
        value: dict[str, Any] = release.value  # type: ignore[assignment]
        self.noisy_eigenvalue_, self.regularisation_ = value["noisy_eigenvalue"], value["regularisation"]

    def _refuse_unknown(self) -> None:
        super()._refuse_unknown()
        if self.calibration not in ACCOUNTS:
            raise InvalidParameter(
                "The calibration is not known.", f"There are {' and '.join(ACCOUNTS)}.", "Choose one of them."
            )
        if not (measurable(self.condition) and between(self.share, 0, 1)):
            raise InvalidParameter(
                "condition is not positive, or share not between 0 and 1.", "", "Pass public numbers such as 2 and 0.2."
            )
        if self.floor is not None and not between(self.floor, 0, HIGHEST):
            raise InvalidParameter(
                f"The floor is not positive and below {HIGHEST:g}.", "", "Pass a public number, or None."
            )
