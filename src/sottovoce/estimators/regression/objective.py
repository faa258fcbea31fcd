# SPDX-License-Identifier: Apache-2.0
"""Regression by objective perturbation in stages, the default of Ridge (docs/theory/objective.md).

A stage minimises Σ v_i ρ(y_i − φ_iᵀθ) + ½‖θ − θ₀‖²_Λ + bᵀ(θ − θ₀) around a released θ₀ with a share of
everybody's budget; with the soft Huber loss person l spends exactly W_l = Σ v_i over their rows, however
many. Every later choice depends on the data only through what earlier stages released, so shares add up.

    symbol   name            S = Σ_l ε_l, labels scaled to [−1, 1] (so Y = 1), slopes recoded to [−½, ½]
    v_l      loudness        share·ε_l − ε_out, spread evenly over a person's rows
    s        scale           spread of the labels around wherever they are, bought first
    τ = k·s  threshold       no row pulls harder than this
    ε_out    slack           pays for what the solver left undone (solvers/newton.py)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.budgets import Budgets, Kinds
from sottovoce.engine import Rows
from sottovoce.estimators.regression.sums import ResidualHistogram, audible
from sottovoce.features import NoFeatures, Reader
from sottovoce.noise import choose, radial
from sottovoce.noise.grid import Grid
from sottovoce.solvers import huber, newton, proxy
from sottovoce.terms import HuberTerms
from sottovoce.weights import Weights

Floats = NDArray[np.float64]

#: Below this much budget in all, only a constant is worth fitting.
CONSTANT_ONLY = 150.0
#: From here on the scale is read at a higher quantile, which is sharper but needs more budget.
PLENTY = 400.0
#: Candidates for the scale: an eighth of the range, halved seven times; around a first fit, halved nine times.
LABEL_SCALES, RESIDUAL_SCALES = 8, 10
#: The proxy's value from which slopes cannot pay for their noise, and below which a second fit pays.
HOPELESS, WORTH_REFITTING = 0.6, 0.005
#: The share of everybody's part in a stage that pays for the solver's last digits.
SLACK = 1e-3
#: Solver tolerance relative to the threshold, but for rounding; what is left is covered by noise paid from the slack.
TOLERANCE = 1e-12
CELLS_BITS = 15
#: How far the intercept may lie from the centre, squared: in units of s² where a location is known, of the half-range
#: squared where it is not. A location is bought with this threshold.
KNOWN_SIZE, UNKNOWN_SIZE, LOCATION_THRESHOLD = 0.3, 0.16, 1 / 8


@dataclass(frozen=True)
class Part:
    """One stage: what it is for and its share of everybody's budget."""

    purpose: str
    share: float


@dataclass(frozen=True)
class Course:
    """What will be done once the scale is known (or from the start, if none is bought)."""

    scale: float
    parts: tuple[Part, ...]
    slopes: proxy.Choice | None  # None: a constant only
    constant: float  # threshold of a constant-only answer, 0 if slopes are fitted
    expected: float  # the proxy, in units of the label's squared scale
    intercept_size: float


@dataclass(frozen=True)
class Purse:
    """Budgets as numbers: S = Σε and Σε² over people, by what the kinds say."""

    total: float
    squares: float

    @classmethod
    def of(cls, kinds: Kinds) -> Purse:
        """Adds everybody up; squares count rows (a person's loudness is spread over theirs)."""
        epsilon = units.epsilon(kinds.epsilon)
        return cls(float((epsilon * kinds.people).sum()), float((epsilon**2 / kinds.rows * kinds.people).sum()))


def scale_share(purse: Purse) -> tuple[float, float, float]:
    """Returns (share, quantile, factor) of the stage that buys the scale."""
    if purse.total < PLENTY:
        return max(30 / purse.total, 0.02), 0.5, 1.48
    return max(40 / purse.total, 0.005), 0.7, 0.965


def course(purse: Purse, slopes: int, scale: float, left: float) -> Course:
    """Chooses what to do with the rest of the budget, from public numbers and the released scale alone."""
    location = max(30 / purse.total, 0.02)
    options = [_option(purse, slopes, scale, left, bought) for bought in (0.0, location)]
    return min(options, key=lambda option: option.expected)


def _option(purse: Purse, slopes: int, scale: float, left: float, location: float) -> Course:
    rest = left - location
    size = KNOWN_SIZE if location else max(KNOWN_SIZE, UNKNOWN_SIZE / scale**2)
    parts = (Part("location", location),) if location else ()
    choice = sized(purse, slopes, rest, size) if slopes else None
    if choice is None or choice.expected >= HOPELESS:
        constant = proxy.best_constant(rest * purse.total, rest**2 * purse.squares, size, 2.0)
        expected = HOPELESS + constant.expected
        return Course(scale, (*parts, Part("constant", rest)), None, 2 * scale, expected, size)
    if choice.expected < WORTH_REFITTING:
        again = max(40 / purse.total, 0.005)
        more = (Part("first fit", 0.35 * rest), Part("scale of residuals", again), Part("fit", 0.65 * rest - again))
        return Course(scale, (*parts, *more), choice, 0.0, choice.expected, size)
    return Course(scale, (*parts, Part("fit", rest)), choice, 0.0, choice.expected, size)


def sized(purse: Purse, slopes: int, share: float, intercept_size: float) -> proxy.Choice:
    """The proxy's choice for this share, assuming modest slopes, or full-sized ones where these are affordable."""
    amounts = share * purse.total, share**2 * purse.squares
    choice = proxy.best(slopes, *amounts, intercept_size, 0.6)
    return proxy.best(slopes, *amounts, intercept_size, 1.0) if choice.expected / 0.6 < 0.4 else choice


@dataclass(frozen=True, eq=False)
class Fit:
    """The stages, run on rows; every method returns something that may be released."""

    rows: Rows
    budgets: Budgets
    loss: str  # "soft" or "huber"

    def scale(self, share: float, quantile: float, candidates: Floats, theta: Floats, reader: Reader) -> float:
        """Buys the smallest candidate g such that a window of half-width g holds that share of everybody's budget."""
        kinds = self.budgets.kinds
        part = replace(kinds, epsilon=np.floor(kinds.epsilon * share).astype(np.int64))
        weights = Weights.solve(part, A=0.0)
        reach = 4 * float(candidates[0])
        grid = Grid.cover(-reach, reach, CELLS_BITS)
        kernel = ResidualHistogram(reader, self.rows.label, self.rows.owner, weights.row, grid, theta)
        heard = np.concatenate([[0], np.cumsum(self.rows.engine.fold(kernel))])
        fullest = [_fullest(heard, max(round(2 * g / float(grid.step)), 1)) for g in candidates]
        target = round(quantile * weights.total)
        scores = np.array([abs(f - target) for f in fullest], dtype=np.int64)
        return float(candidates[choose.permute_and_flip(scores, 2 * weights.loudest)])

    def constant(self, share: float, threshold: float, size: float, centre: Floats) -> Floats:
        """Fits the intercept alone; the answer is clipped to the label's range, which is free."""
        purse = Purse.of(self.budgets.kinds)
        choice = proxy.best_constant(share * purse.total, share**2 * purse.squares, size, 1.0)
        fitted = self._minimise_perturbed(share, threshold, choice, NoFeatures(), centre[:1])
        return np.concatenate([np.clip(fitted, -2, 2), centre[1:]])

    def slopes(self, share: float, threshold: float, choice: proxy.Choice, centre: Floats) -> Floats:
        """Fits intercept and slopes."""
        return self._minimise_perturbed(share, threshold, choice, self.rows.features, centre)

    def _minimise_perturbed(self, share: float, tau: float, choice: proxy.Choice, reader: Reader, centre: Floats) -> Floats:
        p = reader.width
        H = proxy.regularity(p, choice.ridge, choice.intercept_ridge) * (1 + 1e-12)
        ridge = np.concatenate([[choice.intercept_ridge], np.full(p, choice.ridge)])
        loudness, slack = self._compute_row_weights(share, H, p)
        heard = float((loudness * self.budgets.kinds.rows * self.budgets.kinds.people).sum())  # Σv over all rows
        loss = huber.SoftHuber(tau, H) if self.loss == "soft" else huber.Huber(tau)
        problem = newton.Problem(
            terms=self._make_terms(reader, loudness, loss),
            ridge=ridge,
            centre=centre,
            tilt=(Fraction(tau) * radial.between(p, *choice.norm)).astype(np.float64),  # 2·h·τ = τ, as h = ½
            smoothness=heard * H,
            pull=heard * tau * math.sqrt(H),
            error=newton.rounding(self.budgets.n_rows, p + 1, tau) * heard * math.sqrt(H),
        )
        tolerance = newton.tolerance(problem.error, least=TOLERANCE * tau)
        theta = newton.minimise(problem, tolerance)
        distance = tolerance + rounding_of_tilt(tau, choice.norm, ridge)
        return radial.cover(theta, slack / (2 * distance), ridge)

    def _make_terms(self, reader: Reader, loudness: Floats, loss: Any) -> Any:
        def terms(theta: Any, extended: bool) -> tuple[float, Any, Any]:
            kernel = HuberTerms(
                reader=reader,
                label=self.rows.label,
                owner=self.rows.owner,
                loudness=loudness,
                loss=loss,
                theta=theta,
                extended=extended,
            )
            return kernel.floats(self.rows.engine.fold(kernel))

        return terms

    def _compute_row_weights(self, share: float, H: float, slopes: int) -> tuple[Floats, float]:
        """Returns the loudness of a row, by kind, and ε_out; together they cost each person share·ε_l at most."""
        kinds = self.budgets.kinds
        heard = audible(kinds)
        epsilon = share * units.epsilon(kinds.epsilon) * (1 - 1e-12)
        slack = SLACK * float(epsilon[heard].min())
        person = np.where(heard, epsilon - slack, 0.0)
        if self.loss == "huber":
            person = affordable_under_huber(person, H, np.minimum(kinds.rows, slopes + 1))
        return person / kinds.rows, slack


def rounding_of_tilt(tau: float, norm: tuple[float, float], ridge: Floats) -> float:
    """Returns what rounding b to doubles moves the minimiser by at most, in the norm of Λ: ‖b̃ − b‖_{Λ⁻¹}.

    N(b) is Gamma(p+1), above 2(p+1) + 1000 with probability below e^−500; |b₀| ≤ τN/α₁ and |b_j| ≤ τN/(1−α₂).
    """
    largest = tau * radial.never_exceeded(len(ridge)) / np.array([norm[0], *[1 - norm[1]] * (len(ridge) - 1)])
    return 2.0**-53 * float(np.sqrt(np.sum(largest**2 / ridge)))


def least_deviation(purse: Purse, slopes: int, chosen: Course) -> float:
    """Returns about the least that noise moves a coefficient of the last fit by: the size of b_j over Λ_j + V/4."""
    share = chosen.parts[-1].share
    V = share * purse.total
    if chosen.slopes is None:
        constant = proxy.best_constant(V, share**2 * purse.squares, chosen.intercept_size, 1.0)
        return chosen.constant * math.sqrt(2) / (constant.intercept_ridge + V / 4)
    choice = chosen.slopes
    intercept, slope = np.sqrt(proxy.noise_moments(slopes, *choice.norm))
    moved = min(intercept / (choice.intercept_ridge + V / 4), slope / (choice.ridge + V / 4))
    return choice.threshold * chosen.scale * float(moved)


def affordable_under_huber(epsilon: Floats, H: float, rank: Any) -> Floats:
    """Returns the largest W with W + r·log(1 + W·H/r) ≤ ε: what Huber's loss leaves of a budget."""
    low, high = np.zeros_like(epsilon), epsilon.copy()
    for _ in range(200):
        middle = (low + high) / 2
        fits = middle + rank * np.log1p(middle * H / rank) <= epsilon
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low


def _fullest(heard: NDArray[np.int64], cells: int) -> int:
    """Returns the largest weight that a window of so many cells holds, from cumulative weights."""
    cells = min(cells, len(heard) - 1)
    return int((heard[cells:] - heard[:-cells]).max())


def halvings(largest: float, count: int) -> Floats:
    """Returns the largest candidate and its halves."""
    return np.asarray(largest * 0.5 ** np.arange(count), dtype=np.float64)


def threshold_of_small_budgets(total: float) -> float:
    """The threshold of a constant fitted without knowing the scale, where S is small."""
    return max(0.2, total / 300)


def run(fit: Fit, scale: float | None) -> Floats:
    """Runs the recipe and returns (intercept, slopes) for labels in [−1, 1]; ``scale`` is a public guess if given."""
    purse, p = Purse.of(fit.budgets.kinds), fit.rows.features.width
    centre = np.zeros(p + 1)
    if purse.total < CONSTANT_ONLY:
        tau = threshold_of_small_budgets(purse.total)
        return fit.constant(1.0, tau, max(KNOWN_SIZE, UNKNOWN_SIZE / tau**2), centre)
    left = 1.0
    if scale is None:
        share, quantile, factor = scale_share(purse)
        scale = factor * fit.scale(share, quantile, halvings(0.25, LABEL_SCALES), np.zeros(1), NoFeatures())
        left -= share
    return follow(fit, course(purse, p, scale, left), centre)


def follow(fit: Fit, chosen: Course, centre: Floats) -> Floats:
    """Runs the rest of the recipe."""
    purse, p = Purse.of(fit.budgets.kinds), fit.rows.features.width
    scale = chosen.scale
    for part in chosen.parts:
        if part.purpose == "location":
            centre = fit.constant(part.share, LOCATION_THRESHOLD, UNKNOWN_SIZE / LOCATION_THRESHOLD**2, centre)
        elif part.purpose == "constant":
            centre = fit.constant(part.share, chosen.constant, chosen.intercept_size, centre)
        elif part.purpose == "scale of residuals":
            candidates = halvings(scale, RESIDUAL_SCALES)
            scale = 0.965 * fit.scale(part.share, 0.7, candidates, centre, fit.rows.features)
        else:
            refit = len(chosen.parts) > 1 and part.purpose == "fit" and scale is not chosen.scale
            size = KNOWN_SIZE if refit else chosen.intercept_size
            choice = sized(purse, p, part.share, size)
            fitted = fit.slopes(part.share, choice.threshold * scale, choice, centre)
            centre = shrunk(fitted, centre, choice, scale, part.share * purse.total, part.share**2 * purse.squares)
    return centre


def shrunk(fitted: Floats, centre: Floats, choice: proxy.Choice, scale: float, total: float, squares: float) -> Floats:
    """Returns the fit with its slopes drawn back to the centre as far as they look like noise; free.

    James and Stein's factor 1 − p·σ²/‖slopes‖², with σ² the variance that public numbers predict for noise
    alone and features spread evenly: where there is nothing to learn, next to nothing is claimed.
    """
    p, C, kappa = len(fitted) - 1, proxy.MOMENTS[0], math.erf(choice.threshold / math.sqrt(2))
    stiffness = kappa * total * C + choice.ridge
    noise = proxy.noise_moments(p, *choice.norm)[1] * choice.threshold**2 + 0.4 * kappa * squares * C
    slopes = fitted[1:] - centre[1:]
    size = float(slopes @ slopes)
    factor = max(0.0, 1 - p * noise * scale**2 / stiffness**2 / size) if size > 0 else 0.0
    return np.concatenate([fitted[:1], centre[1:] + factor * slopes])
