# SPDX-License-Identifier: Apache-2.0
"""μ, σ and λ from public rows, before anybody reports: a rehearsal of the whole market.

As in *Striking a Balance*, 4.2 and 4.3, numbers that theory leaves open are the best of a few on
rows that need no protection. Nothing here is random: costs are the quantiles of their law, noise
has directions from a hash, and so everybody who has the public rows finds the same numbers.

    for each (μ, σ):   costs at the quantiles of the law → what is bought, what is paid
    for each λ:        fits on public rows with noise of that size, and what they misclassify
    the best           share misclassified + γ·payments

The declared ranges may be narrowed by the public rows, to the mean ± √3 standard deviations, which
an even spread of that deviation fills: rows beyond are clipped, and a narrow range needs less
noise.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from sottovoce.arrays import ColumnLike, Floats, TableLike, to_matrix
from sottovoce.data.encoding import UnitBall, make_recoding
from sottovoce.errors import InvalidParameter
from sottovoce.market.allocation import Allocation
from sottovoce.market.loss import LINEAR, SellerLoss
from sottovoce.market.market import Market
from sottovoce.market.prior import Prior
from sottovoce.schema import Bounds, Classes, Schema

#: What is tried.
MUS = (1.0,)
SIGMAS = (2.0, 4.0, 8.0, 16.0, 32.0)
ALPHAS = (None, 10.0)
#: Ranges reach so many standard deviations of the public rows to either side of their mean.
SPREAD = math.sqrt(3)
#: How many draws of noise judge a combination, and on how many public rows at most.
NOISES = 64
MOST_ROWS = 512
#: Halvings that find a quantile.
HALVINGS = 60


@dataclass(frozen=True)
class Trial:
    """One combination that was tried, and how it did on public rows."""

    mu: float
    sigma: float
    alpha: float | None
    error: float
    payment: float
    overall: float


@dataclass(frozen=True, eq=False)
class Tuning:
    """What was chosen on public rows: constants of the market, λ of the model, and ranges."""

    mu: float
    sigma: float
    alpha: float | None  # None: what the model itself chooses from the budgets
    bounds: Bounds | Schema
    trade_off: float
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The trial that was chosen."""
        return min(self.trials, key=lambda trial: trial.overall)

    def describe(self) -> str:
        """Return what was chosen, in one sentence.

        Returns
        -------
        str
            The constants, and how they did on public rows.
        """
        best = self.best
        if self.alpha is None:
            chosen = "the λ that the model chooses"
        else:
            chosen = f"λ = {self.alpha:g}"
        return (
            f"Chosen on public rows: μ = {self.mu:g}, σ = {self.sigma:g} and {chosen}. There "
            f"{best.error:.1%} are misclassified and {best.payment:.3g} is paid: error + "
            f"{self.trade_off:g}·payment = {best.overall:.3f}."
        )


def tune(
    X: TableLike,
    y: ColumnLike,
    *,
    bounds: Bounds | Schema,
    sellers: int,
    prior: Prior,
    trade_off: float,
    budget: float | None = None,
    rule: str = "ceiling",
    reserve: float | None = None,
    cap: float = 1.0,
    loss: SellerLoss | None = None,
    mus: Sequence[float] = MUS,
    sigmas: Sequence[float] = SIGMAS,
    alphas: Sequence[float | None] = ALPHAS,
    narrow: bool = True,
) -> Tuning:
    """Choose μ, σ and λ on public rows, before anybody reports; the same rows give the same choice.

    Parameters
    ----------
    X :
        Features of the public rows, of people who need no protection.
    y :
        Their classes, two of them.
    bounds :
        The declared ranges, or a schema whose label has two levels.
    sellers : int
        How many sellers there will be.
    prior : Prior
        The law of their costs.
    trade_off : float
        γ > 0, error for a unit of money.
    budget, rule, reserve :
        As ``Market.within`` takes them; without a budget nothing limits payments.
    cap, loss :
        As the market takes them.
    mus, sigmas, alphas :
        What is tried; None among alphas is the λ that the model chooses.
    narrow : bool
        Whether ranges are narrowed to what the public rows say.

    Returns
    -------
    Tuning
        What to pass to the market (mu, sigma) and to the model (alpha, bounds).

    Raises
    ------
    InvalidParameter
        The rows, or what is to be tried, cannot be used.
    """
    if not (mus and sigmas and alphas) or not sellers >= 1:
        raise InvalidParameter(
            "There is nothing to try, or nobody sells.",
            "A rehearsal has at least one μ, σ, λ and seller.",
            "Pass them.",
            parameter="sigmas",
        )
    if narrow:
        bounds = narrow_bounds(bounds, X)
    judge = PublicJudge.of(X, y, bounds)
    costs = compute_quantiles(prior, int(sellers))
    trials = []
    for mu, sigma in product(mus, sigmas):
        market = Market(
            costs,
            prior=prior,
            trade_off=trade_off,
            mu=mu,
            sigma=sigma,
            cap=cap,
            loss=loss or LINEAR,
        )
        if budget is None:
            deal = market.allocate()
        else:
            deal = market.within(budget, rule, reserve)
        for alpha in alphas:
            error = judge.measure_error(deal, alpha)
            overall = error + trade_off * deal.total
            trials.append(Trial(mu, sigma, alpha, error, deal.total, overall))
    best = min(trials, key=lambda trial: trial.overall)
    return Tuning(best.mu, best.sigma, best.alpha, bounds, trade_off, tuple(trials))


def compute_quantiles(prior: Prior, sellers: int) -> Floats:
    """Return the costs of so many sellers as their law has them: its quantiles at (i − ½)/m."""
    wanted = (np.arange(sellers) + 0.5) / sellers
    low = np.full(sellers, prior.low)
    high = np.full(sellers, prior.high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = prior.cdf(middle) < wanted
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    return np.asarray(high)


def narrow_bounds(bounds: Bounds | Schema, X: TableLike) -> Bounds | Schema:
    """Return ranges no wider than public rows say.

    They are the mean ± √3 standard deviations, within those that were declared.

    Parameters
    ----------
    bounds :
        The declared ranges, or a schema.
    X :
        Features of public rows.

    Returns
    -------
    Bounds or Schema
        The same with narrower ranges of numbers.

    Raises
    ------
    InvalidParameter
        The bounds have no ranges of features.
    """
    if isinstance(bounds, Schema):
        return _narrow_schema(bounds, X)
    if bounds.box is None:
        raise InvalidParameter(
            "The bounds have no ranges of features.",
            "Ranges are narrowed column by column.",
            "Pass Bounds(features=(low, high)), or narrow=False.",
            parameter="bounds",
        )
    if bounds.names is not None:
        rows = to_matrix(X, make_recoding(bounds, X))
        low, high = _narrow_range(rows, *bounds.box)
        named = zip(bounds.names, zip(low.tolist(), high.tolist(), strict=True), strict=True)
        return replace(bounds, features=dict(named))
    rows = np.asarray(X, dtype=np.float64)
    low, high = _narrow_range(rows, *bounds.box)
    return replace(bounds, features=(low, high))


def _narrow_schema(schema: Schema, X: TableLike) -> Schema:
    columns = dict(schema.columns)
    recoding = make_recoding(schema, None)
    rows = to_matrix(X, recoding)
    for place, feature in enumerate(recoding.features):
        column = columns[feature.name]
        if column.kind == "number":
            ends = _narrow_range(rows[:, place : place + 1], column.low, column.high)
            low, high = (float(end[0]) for end in ends)
            columns[feature.name] = replace(column, low=low, high=high)
    return replace(schema, columns=columns)


def _narrow_range(rows: Floats, low: Any, high: Any) -> tuple[Floats, Floats]:
    mean = rows.mean(axis=0)
    reach = SPREAD * rows.std(axis=0)
    lower = np.maximum(mean - reach, low)
    upper = np.minimum(mean + reach, high)
    flat = ~(lower < upper)  # a column that does not vary, or lies beyond what was declared
    return np.where(flat, low, lower), np.where(flat, high, upper)


@dataclass(frozen=True, eq=False)
class PublicJudge:
    """Public rows as the model reads them, and what fits with noise misclassify among them."""

    public: Any
    recoding: Any

    @classmethod
    def of(cls, X: TableLike, y: ColumnLike, bounds: Bounds | Schema) -> PublicJudge:
        """Return the judge; refuses rows that are not complete, and more than two classes."""
        from sottovoce.estimators.logistic_tuning import PublicRows  # loads scikit-learn

        recoding = make_recoding(bounds, X)
        classes = Classes.from_declaration(None, bounds, np.asarray(y))
        if len(classes.levels) != 2:
            raise InvalidParameter(
                "The label has more than two classes.",
                "A market buys for a model of two.",
                "Declare a label with two levels.",
                parameter="y",
            )
        return cls(PublicRows.of((X, y), recoding, classes), recoding)

    def measure_error(self, deal: Allocation, alpha: float | None) -> float:
        """Return the share of public rows that is misclassified with what was bought; a half where
        nothing was.
        """
        from sottovoce.estimators import logistic_tuning as tuning

        if not deal.units.any():
            return 0.5
        scale = tuning.BudgetScale(deal.total_epsilon, self.recoding.width, True)
        setting = tuning.choose_without_public_rows(scale, self.recoding, None, alpha)
        if not isinstance(setting.mechanism.body, UnitBall):
            return float(tuning.choose_with_public_rows(scale, self.public, alpha).expected or 0.0)
        rate = setting.mechanism.find_linear_rate(scale.total * (1 - setting.threshold))
        return self._simulate(setting, max(rate, tuning.SMALLEST_RATE))

    def _simulate(self, setting: Any, rate: float) -> float:
        """Return the share that fits of all public rows with simulated noise misclassify.

        They are fitted and judged on the same rows: what is compared is noise against λ, and few
        rows held out would add more chance than they take away.
        """
        from sottovoce.estimators.logistic_tuning import fit_roughly

        body = setting.mechanism.body
        Z = self.public.Z[:MOST_ROWS]
        rows = body.rows(Z)
        plain = body.rows(Z, cut=False)
        signs = np.where(self.public.codes[:MOST_ROWS] == 1, 1.0, -1.0)
        noises = make_noises(rows.shape[1]) * (setting.mechanism.doubt / rate)
        wrong = [
            np.mean(signs * (plain @ fit_roughly(rows, signs, setting.alpha, noise)) <= 0)
            for noise in noises
        ]
        return float(np.mean(wrong))


def make_noises(d: int) -> Floats:
    """Return vectors with the law of radial noise of rate ½, the same every time: they come from a
    hash, and protect nobody.
    """
    size = 8 * NOISES * (d + 1)
    words = np.frombuffer(hashlib.shake_256(b"sottovoce market").digest(size), dtype=np.uint64)
    uniform = ((words.astype(np.float64) + 0.5) * 2.0**-64).reshape(NOISES, d + 1)
    normal = scipy.special.ndtri(uniform[:, 1:])
    length = 2 * scipy.special.gammaincinv(d, uniform[:, :1])
    return np.asarray(length * normal / np.linalg.norm(normal, axis=1, keepdims=True))


def convexity_threshold(norm: float = 1.0, base: float = math.e) -> float:
    """Return λ_conv of *Striking a Balance*, Theorem 4.1.

    From it on the objective is convex in (w, log a) where Σa ≤ 1. It is
    ‖x‖²·max_s [s²/(−ln(1 − s)) − s(1 − s)]/ln(base), over s = σ(−y·wᵀx) between 0 and 1
    (docs/theory/market.md).

    Parameters
    ----------
    norm : float
        A bound on the length of rows.
    base : float
        Of the logarithm in the loss; the paper's is 2.

    Returns
    -------
    float
        The least λ of (λ/2)‖w‖².

    Raises
    ------
    InvalidParameter
        A number cannot be used.

    Examples
    --------
    >>> round(convexity_threshold(), 4), round(convexity_threshold(base=2), 4)
    (0.262, 0.378)
    """
    if not (0 < norm < math.inf and 1 < base < math.inf):
        raise InvalidParameter(
            "The norm is not positive, or the base of the logarithm not above 1.",
            "",
            "Pass a bound on the length of rows.",
            parameter="norm",
        )

    def lack(s: ArrayLike) -> Any:
        return -(np.square(s) / -np.log1p(-np.asarray(s)) - np.asarray(s) * (1 - np.asarray(s)))

    grid = np.linspace(1e-6, 1 - 1e-6, 4001)
    best = int(np.argmin(lack(grid)))
    ends = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = scipy.optimize.minimize_scalar(
        lack, bounds=ends, method="bounded", options={"xatol": 1e-10}
    )
    return norm**2 * -float(found.fun) / math.log(base)
