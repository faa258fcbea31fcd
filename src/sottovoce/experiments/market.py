# SPDX-License-Identifier: Apache-2.0
"""What the market of *Striking a Balance* gets wrong, measured: privacy, truth, its bound; and its Figures 3 to 5.

Each study is a function that returns numbers. Draws come from fixed seeds, except the noise of our own releases.
The mechanism as printed is in market_as_published.py; Figure 2 is in market_worth.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import beta

import sottovoce as sv
from sottovoce.experiments import market_as_published as paper
from sottovoce.experiments.market_worth import seeded

Floats = NDArray[np.float64]

#: Appendix C: x = (1, −1), y = (1, −1), costs .1 and .6 uniform in [0, 1]. Its neighbour: the second label is 1.
X, LABELS, NEIGHBOUR = np.array([[1.0], [-1.0]]), np.array([1, -1]), np.array([1, 1])
TWO_COSTS, RANGE = np.array([0.1, 0.6]), (0.0, 1.0)
#: Its hyperparameters and grid, of which it says nothing; λ is above its own condition for convexity, which is 0.19.
TRADE_OFF, MU, SIGMA = 0.1, 0.1, 1.0
RIDGE, AVERAGES = 3.0, (0.125, 0.25, 0.375, 0.5)
#: Where w is looked for, and the width of a bin of events: twenty steps of that grid.
PLACES, BIN = np.linspace(-6, 6, 2401), 0.1
#: A bound on a loss fails with at most this probability on each side.
CONFIDENCE = 1e-8


@dataclass(frozen=True)
class Audit:
    """Counts of one event under two neighbours, a bound that the loss exceeds, and what was promised."""

    draws: int
    hits: int
    others: int
    loss: float
    promised: float

    @property
    def is_refuted(self) -> bool:
        """Whether the promise is broken, except with probability 2·10⁻⁸."""
        return self.loss > self.promised


def audit(first: Floats, second: Floats, promised: float) -> Audit:
    """Returns the audit of the best event: half of the draws choose it, the other half count it."""
    half, edges = len(first) // 2, np.arange(-1000, 1001) * BIN
    ones, twos = (np.histogram(np.clip(x[:half], -99, 99), edges)[0] for x in (first, second))
    events = [ones > math.exp(share * promised) * (twos + 1) for share in (0.0, 0.5, 1.0)]
    event = max(events, key=lambda bins: _bound(ones[bins].sum(), twos[bins].sum(), half))
    ones, twos = (np.histogram(np.clip(x[half:], -99, 99), edges)[0] for x in (first, second))
    hits, others = int(ones[event].sum()), int(twos[event].sum())
    return Audit(len(first) - half, hits, others, _bound(hits, others, len(first) - half), promised)


def _bound(hits: int, others: int, n: int) -> float:
    """Returns the logarithm of a lower over an upper bound on the two probabilities (Clopper and Pearson)."""
    low = beta.ppf(CONFIDENCE, hits, n - hits + 1) if hits else 0.0
    high = beta.ppf(1 - CONFIDENCE, others + 1, n - others) if others < n else 1.0
    return math.log(low / high) if low > 0 else -math.inf


def two_sellers_as_published(labels: NDArray[np.int64]) -> paper.Line:
    """Returns the exact joint minimum of Appendix C's example, for every noise."""
    virtual = (2 * TWO_COSTS - RANGE[0])[None]
    problem = paper.Problems(labels[:, None] * X, virtual, np.zeros((1, 1)), TRADE_OFF, MU, SIGMA, RIDGE)
    return paper.exact_minimum_in_one_dimension(problem, AVERAGES, PLACES)


def audit_as_published(draws: int = 1_000_000, seed: int = 0) -> Audit:
    """Audits the second seller's promise, the largest it makes to them on either data set, with its own ∆ on top."""
    lines = [two_sellers_as_published(labels) for labels in (LABELS, NEIGHBOUR)]
    rng = seeded(seed)
    noises = [rng.gamma(1.0, size=draws) * rng.choice([-1.0, 1.0], draws) for _ in lines]
    ends = [line.coefficient[line.choose_corners(b)] for line, b in zip(lines, noises, strict=True)]
    epsilon = max(float(line.epsilon[:, 1].max()) for line in lines)
    return audit(ends[0], ends[1], epsilon + 2 * math.log1p(1 / RIDGE))  # a ≤ 1


def audit_certified(draws: int = 2000, louder: float = 1.0) -> Audit:
    """Audits the certified market and our logistic regression on the same two data sets; ``louder`` plants a bug."""
    deal = sv.market.Market(TWO_COSTS, cost_range=RANGE, trade_off=TRADE_OFF, mu=MU, sigma=SIGMA).allocate()
    ask = sv.LogisticRegression(bounds=sv.Bounds(norm=1.0), fit_intercept=False, alpha=RIDGE, classes=(-1, 1))
    ends = [
        np.array([ask.fit(X, labels, epsilon=deal.epsilon * louder).coef_[0, 0] for _ in range(draws)])
        for labels in (LABELS, NEIGHBOUR)
    ]
    return audit(ends[0], ends[1], float(deal.epsilon[1]))


@dataclass(frozen=True)
class Liars:
    """How many sellers gain by some report, how many sell when all tell the truth, and the largest gain in money."""

    gaining: int
    selling: int
    largest_gain: float


#: What a seller may say instead, times the true cost, up to the ends of the range; and ε that is a sale.
LIES, SOLD = (0.8, 0.95, 1.05, 1.3), 1e-9
LIARS_RANGE, LIARS_MU, LIARS_SIGMA = (1.0, 5.0), 20.0, 500.0


def _population(sellers: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """Returns rows, true costs, and reports: the truth, and for each lie one line for each seller who tells it."""
    rows, costs = synthetic(sellers, 2, seed)[0], seeded(seed).uniform(*LIARS_RANGE, sellers)
    reports = [costs[None]]
    for times in LIES:
        lines = np.tile(costs, (sellers, 1))
        np.fill_diagonal(lines, np.clip(times * costs, *LIARS_RANGE))
        reports.append(lines)
    return rows, costs, np.concatenate(reports)


def liars_as_published(sellers: int = 30, trade_off: float = 0.01, seed: int = 0) -> Liars:
    """Counts who gains by lying about costs where the paper's mechanism pays Ψ·ε, rows and noise fixed."""
    rows, costs, reports = _population(sellers, seed)
    noise, start = (np.tile(seeded(seed + k).normal(size=rows.shape[1]), (len(reports), 1)) for k in (1, 2))
    virtual = 2 * reports - LIARS_RANGE[0]
    problems = paper.Problems(rows, virtual, noise, trade_off, LIARS_MU, LIARS_SIGMA, ridge=0.1)
    grid = np.geomspace(0.1, 1.0, 6)
    deal = paper.market_as_published_not_private(problems, grid, start, step=paper.exact_step, steps=200)
    return _liars(paper.payments_as_printed(virtual, deal.epsilon) - costs * deal.epsilon, deal.epsilon[0])


def liars_certified(sellers: int = 30, trade_off: float = 0.01, seed: int = 0) -> Liars:
    """Counts who gains a coin or more by the same lies in the certified market."""
    _, costs, reports = _population(sellers, seed)
    deals = [
        sv.market.Market(
            report, cost_range=LIARS_RANGE, trade_off=trade_off, mu=LIARS_MU, sigma=LIARS_SIGMA, cap=1.0
        ).allocate()
        for report in reports
    ]
    utility = np.array([deal.payments - costs * deal.epsilon for deal in deals])
    return _liars(utility, deals[0].epsilon, float(deals[0].coin))


def _liars(utility: Floats, sold: Floats, coin: float = 1e-9) -> Liars:
    lying = utility[1:].reshape(len(LIES), len(sold), len(sold))
    gain = np.diagonal(lying, axis1=1, axis2=2).max(axis=0) - utility[0]
    return Liars(int(np.sum(gain >= coin)), int(np.sum(sold > SOLD)), max(0.0, float(gain.max())))


@dataclass(frozen=True)
class Asymptotic:
    """The limit of Theorem 3.4: its least value, and the bound as (12) and as (29) print it."""

    floor: float  # p·γ
    least: float
    bound_12: float
    bound_29: float


def theorem_3_4(floors: Sequence[float] = (1e-7, 1e-6, 1e-5), dimension: int = 5) -> list[Asymptotic]:
    """Minimises log(1 + e^(−δβ)) + (σ + 2β‖b‖)/η + γpη over β and η, δ = ½, where the sellers' number has no end.

    σ is the paper's, and ‖b‖ is what it is on average, the dimension.
    """
    sigma, noise = paper.constants_as_published(dimension, 5.0)[1], float(dimension)
    found = []
    for floor in floors:

        def value(log_beta: float, floor: float = floor) -> float:
            b = math.exp(log_beta)
            return math.log1p(math.exp(-b / 2)) + 2 * math.sqrt((sigma + 2 * b * noise) * floor)  # the best η

        first = math.log1p(math.exp(-0.5 / math.sqrt(floor)))
        root = math.sqrt(sigma * floor + 2 * noise * math.sqrt(floor))
        least = minimize_scalar(value, bounds=(-20, 20), method="bounded").fun
        found.append(Asymptotic(floor, float(least), first + 2 * root, first + root))
    return found


def many_sellers(counts: Sequence[int] = (100, 10_000, 1_000_000)) -> list[tuple[int, float]]:
    """Returns the exact least value of μ‖a‖ + σ/η + γη·Ψᵀa over 2√(σγp), costs uniform in [1, 5]: it tends to 1."""
    mu, sigma = sv.market.constants(30, norm=5.0)
    found = []
    for m in counts:
        costs = seeded(m).uniform(*LIARS_RANGE, m)
        value = sv.market.continuous(2 * costs - LIARS_RANGE[0], mu, sigma, 1e-4)[1]
        found.append((m, value / (2 * math.sqrt(sigma * 1e-4 * LIARS_RANGE[0]))))
    return found


def synthetic(rows: int, columns: int, seed: int) -> tuple[Floats, Floats]:
    """Returns y·x for training and for testing: normal x scaled into the unit ball, y by a separator through 0."""
    rng = seeded(seed)
    x, separator = rng.normal(size=(2 * rows, columns)), rng.normal(size=columns)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), math.sqrt(columns))
    signed = x * np.sign(x @ separator)[:, None]
    return signed[:rows], signed[rows:]


@dataclass(frozen=True)
class Place:
    """One place of a figure: what is varied, and means over draws."""

    varied: float
    train_error: float
    test_error: float
    loss: float


def _places(varied: float, deal: paper.Outcome, train: Floats, test: Floats) -> Place:
    margins = deal.coefficients @ train.T
    train_error, test_error = (float(np.mean(m <= 0)) for m in (margins, deal.coefficients @ test.T))
    loss = float(np.sum(deal.weights * np.logaddexp(0, -margins), axis=1).mean())
    return Place(varied, train_error, test_error, loss)


def _noises(draws: int, columns: int, seed: int) -> Floats:
    rng = seeded(seed)
    direction = rng.normal(size=(draws, columns))
    length = rng.gamma(columns, size=(draws, 1))
    return np.asarray(direction / np.linalg.norm(direction, axis=1, keepdims=True) * length)


def figure_3(
    mus: Sequence[float] = (0.1, 1.0, 10.0, 100.0), sellers: int = 100, draws: int = 10, steps: int = 400
) -> list[Place]:
    """Errors and empirical loss against μ: logistic regression (3) at given ε, uniform in [0.1, 1], a ≤ ε/η."""
    (train, test), epsilon = synthetic(sellers, 5, 3), seeded(3).uniform(0.1, 1.0, (draws, sellers))
    eta = 0.8 * epsilon.sum(axis=1)  # with all of it the weights could only be ε/η
    ceiling, noise = epsilon / eta[:, None], _noises(draws, 5, 3)
    found = []
    for mu in mus:
        problems = paper.Problems(train, np.zeros((draws, sellers)), noise, 0.0, mu, 0.0, 0.01)
        deal = paper.joint_descent_as_published_not_private(
            problems, eta, np.zeros((draws, 5)), ceiling=ceiling, projection=paper.normalised, steps=steps
        )
        found.append(_places(mu, deal, train, test))
    return found


def figure_4(widths: Sequence[float] = (0.0, 1.0, 2.0, 4.0), sellers: int = 200) -> list[tuple[float, float]]:
    """Variance of the weights against that of the costs, uniform within a width around 3."""
    (train, _), noise, found = synthetic(sellers, 5, 4), _noises(1, 5, 4), []
    for width in widths:
        costs = 3 + width * (seeded(4).uniform(size=(1, sellers)) - 0.5)
        virtual = 2 * costs - (3 - width / 2)
        problems = paper.Problems(train, virtual, noise, 0.01, 5.0, 500.0, 0.1)
        deal = paper.market_as_published_not_private(
            problems, (0.1, 0.3, 1.0), np.zeros((1, 5)), step=paper.exact_step, steps=300
        )
        found.append((float(costs.var()), float(deal.weights.var())))
    return found


def figure_5(
    averages: Sequence[float] = (0.03, 0.1, 0.3, 1.0), sellers: int = 200, draws: int = 20, steps: int = 500
) -> list[Place]:
    """Errors against ε_avg at equal weights; μ of 10⁶ makes them equal."""
    (train, test), found = synthetic(sellers, 5, 5), []
    problems = paper.Problems(train, np.zeros((draws, sellers)), _noises(draws, 5, 5), 0.0, 1e6, 0.0, 0.01)
    for average in averages:
        eta, start = np.full(draws, average * sellers), np.zeros((draws, 5))
        deal = paper.joint_descent_as_published_not_private(problems, eta, start, step=paper.exact_step, steps=steps)
        found.append(_places(average, deal, train, test))
    return found
