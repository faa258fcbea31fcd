# SPDX-License-Identifier: Apache-2.0
"""How much privacy is bought from whom, at a given total: exactly, from sorted virtual costs and
their sums.

Minimise (μ‖ε‖ + σ)/η + γ·Σ Ψ_iε_i subject to Σε = η and 0 ≤ ε_i ≤ b_i (docs/theory/market.md,
Theorem 1):

    ε_i = min(b_i, (τ − βψ_i)₊),    Σ ε_i = η,    β·r = ‖ε‖,    r = μ/(γ·η·unit)

Sellers of one class (same law of costs, same limit) differ by their price alone, so they are counts
on a list of prices. Virtual costs are whole numbers ψ of a public unit, which makes every sum
exact: what is computed for a seller depends on the others' reports and on the price in question, to
the last bit, and on nothing else.

    symbol   name
    ψ_k      Supply.psi         Ψ_k = low + unit·ψ_k
    b        Supply.caps        by class, in billionths of ε, at most share·η
    n, S₁, S₂    PartialSums    number, sum and sum of squares of ψ over sellers strictly between 0
                                and their limit
    B₁, B₂, P    PartialSums    sums of b, b² and bψ over sellers at their limit

The optimum without limits and without a grid of totals, in one sort: for comparison with the
published rule.

At the total η only the n cheapest sell, n falling as η grows, and the least value is
(docs/theory/market.md, Theorem 2)

    γη·mean_n + √(μ²/n − γ²η²·var_n) + σ/η
    while ‖(Ψ_n − Ψ_j)_{j<n}‖ < μ/(γη) ≤ ‖(Ψ_{n+1} − Ψ_j)_{j≤n}‖

with at most one local minimum for each n. Uncapped optima buy ε of ten and more from a few: Market
has caps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sottovoce import units
from sottovoce.arrays import Floats
from sottovoce.errors import InvalidParameter

Whole = NDArray[np.int64]

#: The totals that can be bought: this many points a decade from the smallest on, the same in all
#: markets.
POINTS_PER_DECADE = 64
SMALLEST_TOTAL = 1e-6
#: Virtual costs have so many bits that the sum of their squares over all sellers has 62.
PSI_BITS = 20
SQUARES_BITS = 62
#: Steps of a search by Newton's, which halves its interval where they leave it, and from the 24th
#: on every other time. A dozen is usual.
MAX_STEPS = 200
HALVING_STEP = 24
#: r is at least this times √(sellers): what is added to the value is below 10⁻⁸ of what is paid.
SHARPEST = 1e-5
#: A total is taken as reached, and a value as not above another, up to this share.
TINY = 1e-12


@dataclass(frozen=True)
class Buyer:
    """What the buyer wants: all of it public, and fixed before anybody reports."""

    mu: float
    sigma: float
    trade_off: float
    share: float | None = None  # nobody has more than this part of the total


@dataclass(frozen=True, eq=False)
class Supply:
    """How many sellers of each class offer at each price."""

    psi: Whole  # class × price
    caps: Floats  # by class, whole billionths
    counts: Whole  # class × price
    unit: float
    low: float

    @classmethod
    def of(cls, virtual: Floats, caps: Floats, counts: Whole) -> Supply:
        """Return the supply with virtual costs as whole numbers.

        An infinite one must have no sellers.
        """
        finite = np.isfinite(virtual)
        if finite.any():
            low, high = (float(virtual[finite].min()), float(virtual[finite].max()))
        else:
            low, high = (0.0, 0.0)
        bits = min(PSI_BITS, (SQUARES_BITS - max(1, int(counts.sum())).bit_length()) // 2)
        unit = (high - low) / 2**bits or 1.0
        psi = np.rint((np.where(finite, virtual, high) - low) / unit).astype(np.int64)
        return cls(psi, caps, counts, unit, low)

    @cached_property
    def sums(self) -> list[Whole]:
        """Number of sellers, sum of their ψ and of its squares, below each place of a class's
        list.
        """
        powers = (self.counts * self.psi**p for p in range(3))
        return [np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0))) for values in powers]

    @cached_property
    def keys(self) -> Floats:
        """ψ in doubles, which count it exactly."""
        return self.psi.astype(np.float64)

    def select_reachable(self, buyer: Buyer, totals: Floats) -> Floats:
        """Return the totals that limits allow."""
        many = self.counts.sum(axis=1)
        most = sum(
            int(k) * compute_limits(buyer, cap, totals)
            for k, cap in zip(many, self.caps, strict=True)
        )
        return np.asarray(totals[most >= totals * units.UNITS_PER_EPSILON * (1 - TINY)])


@dataclass(frozen=True, eq=False)
class Subproblems:
    """Problems side by side: a total each, and optionally one seller of a class moved from one ψ to
    another.
    """

    eta: Floats
    whose: Whole | None = None
    away: Floats | None = None
    to: Floats | None = None

    def at(self, which: Any) -> Subproblems:
        """Return some of the problems."""
        if self.whose is None or self.away is None or self.to is None:
            return Subproblems(self.eta[which])
        return Subproblems(self.eta[which], self.whose[which], self.away[which], self.to[which])


@dataclass(eq=False)
class PartialSums:
    """Sums over sellers between their limits (n, s1, s2) and over sellers at their limit, problem
    by problem.
    """

    n: Any
    s1: Any
    s2: Any
    full: Any
    squares: Any
    moment: Any

    @classmethod
    def empty(cls, size: int) -> PartialSums:
        """Return sums over nobody."""
        whole, floats = (np.zeros((3, size), dtype=kind) for kind in (np.int64, np.float64))
        return cls(*whole, *floats)

    def at(self, which: Any) -> PartialSums:
        """Return some of the problems."""
        return PartialSums(*(getattr(self, field.name)[which] for field in fields(self)))

    def assign(self, which: Any, other: PartialSums) -> None:
        """Overwrites some of the problems."""
        for field in fields(self):
            getattr(self, field.name)[which] = getattr(other, field.name)

    def spread(self) -> Floats:
        """Return Σ(ψ − mean)² over sellers between their limits, with no digit lost."""
        n = np.maximum(self.n, 1)
        middle, rest = np.divmod(self.s1, n)
        return np.asarray(
            (self.s2 - 2 * middle * self.s1 + middle * middle * self.n) - rest * (rest / n)
        )

    def compute_remainder(self, eta: Floats) -> Floats:
        """Return what the total leaves for sellers between their limits."""
        return np.asarray(np.where(self.n > 0, eta * units.UNITS_PER_EPSILON - self.full, 0.0))


@dataclass(frozen=True, eq=False)
class Solutions:
    """Solved problems: the value of each, and what it buys at any virtual cost."""

    asked: Subproblems
    tau: Floats
    beta: Floats
    cell: PartialSums
    value: Floats

    def at(self, which: Any) -> Solutions:
        """Return some of the problems."""
        return Solutions(
            self.asked.at(which),
            self.tau[which],
            self.beta[which],
            self.cell.at(which),
            self.value[which],
        )

    def compute_sales(self, psi: Any, cap: Any) -> Floats:
        """Return ε in billionths for a seller at ψ with a limit, problem by problem."""
        n = np.maximum(self.cell.n, 1)
        middle, rest = np.divmod(self.cell.s1, n)
        between = self.cell.compute_remainder(self.asked.eta) / n + self.beta * (
            (middle - psi) + rest / n
        )
        theta = self.tau / self.beta
        at_limit = psi <= theta - cap / self.beta
        return np.asarray(
            np.where(at_limit, cap, np.where(psi < theta, np.clip(between, 0.0, cap), 0.0))
        )


def compute_limits(buyer: Buyer, cap: Any, eta: Floats) -> Any:
    """Return the limit of a seller at each total, in billionths."""
    if buyer.share is None:
        return cap
    return np.minimum(cap, buyer.share * eta * units.UNITS_PER_EPSILON)


def make_totals(largest: float) -> Floats:
    """Return the public grid of totals, up to the largest one that anything allows."""
    last = math.floor(POINTS_PER_DECADE * math.log10(max(largest, SMALLEST_TOTAL)) + 1e-9)
    return np.asarray(
        10.0
        ** (
            np.arange(round(POINTS_PER_DECADE * math.log10(SMALLEST_TOTAL)), last + 1)
            / POINTS_PER_DECADE
        )
    )


def solve_subproblems(
    supply: Supply, buyer: Buyer, asked: Subproblems, start: tuple[Floats, Floats] | None = None
) -> Solutions:
    """Return the exact minimisers at the totals asked for.

    ``start`` are τ and β of problems nearby.
    """
    r = _compute_sharpness(supply, buyer, asked.eta)
    low, high = _bracket_beta(supply, buyer, asked.eta, r)
    if start is None:
        beta = np.sqrt(low * high)
        if asked.to is None or asked.away is None:
            moved: Floats | int = 0
        else:
            moved = asked.to - asked.away
        tau = (
            asked.eta * units.UNITS_PER_EPSILON + beta * (int(supply.sums[1][:, -1].sum()) + moved)
        ) / supply.counts.sum()
    else:
        tau = start[0].copy()
        beta = np.clip(start[1], low, high)
    cell = PartialSums.empty(len(beta))
    todo = np.arange(len(beta))
    for step in range(MAX_STEPS):
        part = asked.at(todo)
        tau[todo], found = _solve_tau(supply, buyer, part, tau[todo], beta[todo])
        cell.assign(todo, found)
        jump = _update_beta(
            found,
            part.eta,
            beta[todo],
            r[todo],
            low,
            high,
            todo,
            step < HALVING_STEP or step % 2 == 0,
        )
        moved = (jump != beta[todo]) & (high[todo] > low[todo] * (1 + 1e-15))
        todo = todo[moved]
        if not todo.size:
            break
        beta[todo] = jump[moved]
        tau[todo] = _update_tau(found.at(moved), part.eta[moved], beta[todo], tau[todo])
    return Solutions(asked, tau, beta, cell, _compute_value(supply, buyer, asked.eta, cell, beta))


def _compute_sharpness(supply: Supply, buyer: Buyer, eta: Floats) -> Floats:
    """Return r, with a μ that is a little larger where prices are told apart by less than doubles
    can hold.
    """
    least = SHARPEST * math.sqrt(supply.counts.sum())
    return np.asarray(np.maximum(buyer.mu / (buyer.trade_off * eta * supply.unit), least))


def _bracket_beta(supply: Supply, buyer: Buyer, eta: Floats, r: Floats) -> tuple[Floats, Floats]:
    """Return bounds of β: the norm is least where all sell alike, and largest where few sell all
    they may.
    """
    total = eta * units.UNITS_PER_EPSILON
    most = np.minimum(compute_limits(buyer, float(supply.caps.max()), eta), total)
    return total / (math.sqrt(supply.counts.sum()) * r) * (1 - TINY), np.sqrt(total * most) / r * (
        1 + TINY
    )


def _update_beta(
    cell: PartialSums,
    eta: Any,
    beta: Any,
    r: Any,
    low: Floats,
    high: Floats,
    todo: Any,
    patient: bool,
) -> Floats:
    """Returns the β that is right if nobody reaches or leaves a limit on the way, else the middle
    of its bounds.
    """
    base = cell.squares + cell.compute_remainder(eta) ** 2 / np.maximum(cell.n, 1)
    spread = cell.spread()
    small = base + beta**2 * spread > (beta * r) ** 2
    low[todo] = np.where(small, beta, low[todo])
    high[todo] = np.where(small, high[todo], beta)
    with np.errstate(divide="ignore", invalid="ignore"):
        jump = np.sqrt(base / (r**2 - spread))
    inside = (jump > low[todo]) & (jump < high[todo]) & patient
    return np.asarray(np.where(inside | (jump == beta), jump, np.sqrt(low[todo] * high[todo])))


def _update_tau(cell: PartialSums, eta: Floats, beta: Floats, tau: Floats) -> Floats:
    aimed = (cell.compute_remainder(eta) + beta * cell.s1) / np.maximum(cell.n, 1)
    return np.asarray(np.where(cell.n > 0, aimed, tau))


def _solve_tau(
    supply: Supply, buyer: Buyer, asked: Subproblems, tau: Floats, beta: Floats
) -> tuple[Floats, PartialSums]:
    """Returns, at given β, the τ at which sales add up to the total, and the sums there."""
    eta = asked.eta * units.UNITS_PER_EPSILON
    low = np.zeros_like(tau)
    high = beta * float(supply.psi.max()) + float(supply.caps.max()) * (1 + TINY)
    tau, cell, todo = np.clip(tau, low, high), PartialSums.empty(len(tau)), np.arange(len(tau))
    for count in range(MAX_STEPS):
        now = tau[todo]
        part = asked.at(todo)
        found = _compute_sums(supply, buyer, part, now, beta[todo])
        cell.assign(todo, found)
        step = (eta[todo] - found.full + beta[todo] * found.s1) / np.maximum(found.n, 1)
        short = found.n * now - beta[todo] * found.s1 + found.full < eta[todo]
        low[todo] = np.where(short, now, low[todo])
        high[todo] = np.where(short, high[todo], now)
        inside = (
            (found.n > 0)
            & (step > low[todo])
            & (step < high[todo])
            & (count < HALVING_STEP or count % 2 == 0)
        )
        exact = np.where(
            found.n > 0, step == now, np.abs(found.full - eta[todo]) <= TINY * eta[todo]
        )
        going = ~exact & (high[todo] > low[todo] * (1 + 1e-15))
        todo = todo[going]
        inside = inside[going]
        step = step[going]
        if not todo.size:
            break
        tau[todo] = np.where(inside, step, (low[todo] + high[todo]) / 2)
    return tau, cell


def _compute_sums(
    supply: Supply, buyer: Buyer, asked: Subproblems, tau: Floats, beta: Floats
) -> PartialSums:
    """Return the sums over sellers, those at ψ < τ/β selling and those at ψ ≤ (τ − b)/β at their
    limit.
    """
    cell = PartialSums.empty(len(tau))
    theta = tau / beta
    for c in range(len(supply.psi)):
        cap = compute_limits(buyer, supply.caps[c], asked.eta)
        edge = theta - cap / beta
        some = np.searchsorted(supply.keys[c], theta, side="left")
        full = np.minimum(np.searchsorted(supply.keys[c], edge, side="right"), some)
        sums = [(a[c][some] - a[c][full], a[c][full]) for a in supply.sums]
        (n, at_limit), (s1, moment), (s2, _) = _move_seller_sums(sums, asked, c, theta, edge)
        cell.n += n
        cell.s1 += s1
        cell.s2 += s2
        cell.full += at_limit * cap
        cell.squares += at_limit * cap**2
        cell.moment += moment * cap
    return cell


def _move_seller_sums(sums: Any, asked: Subproblems, c: int, theta: Floats, edge: Floats) -> Any:
    """Return the sums with one seller of this class taken away at one ψ and put back at another."""
    if asked.whose is None or asked.away is None or asked.to is None:
        return sums
    mine = (asked.whose == c).astype(np.int64)
    for psi, sign in ((asked.to, mine), (asked.away, -mine)):
        full = (psi <= edge) & (psi < theta)
        some = sign * ((psi < theta) & ~full)
        whole = psi.astype(np.int64)
        sums = [(a + some * whole**p, b + sign * full * whole**p) for p, (a, b) in enumerate(sums)]
    return sums


def _compute_value(
    supply: Supply, buyer: Buyer, eta: Floats, cell: PartialSums, beta: Floats
) -> Floats:
    """Return (μ‖ε‖ + σ)/η + γ·Σ Ψε."""
    left = cell.compute_remainder(eta)
    spread = cell.spread()
    n = np.maximum(cell.n, 1)
    norm = np.sqrt(cell.squares + left**2 / n + beta**2 * spread) / units.UNITS_PER_EPSILON
    cost = (cell.s1 * (left / n) - beta * spread + cell.moment) / units.UNITS_PER_EPSILON
    paid = supply.unit * cost + supply.low * eta
    price = buyer.trade_off * supply.unit * _compute_sharpness(supply, buyer, eta)  # μ/η
    return np.asarray(price * norm + buyer.sigma / eta + buyer.trade_off * paid)


#: Halvings of an interval, and the smallest total that is looked at.
HALVINGS = 80
SMALLEST_STEP = 1e-12


def continuous(
    virtual: ArrayLike, mu: float, sigma: float, trade_off: float
) -> tuple[Floats, float]:
    """Return the ε ≥ 0 that minimise (μ‖ε‖ + σ)/Σε + γΣΨε, and the least value.

    Parameters
    ----------
    virtual : ArrayLike
        Ψ by seller.
    mu : float
        μ of the bound.
    sigma : float
        σ of the bound.
    trade_off : float
        γ > 0.

    Returns
    -------
    tuple[Floats, float]
        ε by seller, and the value.

    Raises
    ------
    InvalidParameter
        A number cannot be used.

    Examples
    --------
    >>> epsilon, value = continuous([1.0, 1.0], mu=0.5, sigma=2.0, trade_off=1.0)
    >>> [round(e, 6) for e in epsilon.tolist()]
    [0.707107, 0.707107]
    """
    psi = np.asarray(virtual, dtype=np.float64).ravel()
    if not (
        psi.size and np.all(np.isfinite(psi)) and psi.min() > 0 and min(mu, sigma, trade_off) > 0
    ):
        raise InvalidParameter(
            "A virtual cost or a constant of the buyer is not positive.",
            "",
            "Pass positive, finite numbers.",
        )
    pieces = _OptimumPieces.of(np.sort(psi), mu, sigma, trade_off).select_promising()
    eta = pieces.find_minima()
    value = pieces.value(eta)
    best = int(np.argmin(value))
    return float(eta[best]) * pieces.weights(psi, best, float(eta[best])), float(value[best])


@dataclass(frozen=True, eq=False)
class _OptimumPieces:
    """For every n: the n cheapest sell at totals between low and high; s is γη throughout."""

    n: NDArray[np.int64]
    mean: Floats
    var: Floats
    low: Floats
    high: Floats
    mu: float
    sigma: float
    gamma: float

    @classmethod
    def of(cls, psi: Floats, mu: float, sigma: float, gamma: float) -> _OptimumPieces:
        n = np.arange(1, len(psi) + 1)
        above = psi - psi[0]
        s1 = np.cumsum(above)
        s2 = np.cumsum(above**2)
        mean = s1 / n
        var = np.maximum(s2 / n - (s1 / n) ** 2, 0.0)
        reach = np.maximum.accumulate(np.sqrt(np.maximum(n * above**2 - 2 * above * s1 + s2, 0.0)))
        # Where nothing limits a total from above, it is past the minimum of σ/η + γη·mean.
        most = np.maximum(
            4 * np.sqrt(sigma / (gamma * (mean + psi[0]))), 2 * mu / (gamma * max(reach[-1], 1e-9))
        )
        with np.errstate(divide="ignore"):
            edges = np.minimum(mu / gamma / reach, most.max())
        return cls(
            n, mean + psi[0], var, np.append(edges[1:], SMALLEST_STEP), edges, mu, sigma, gamma
        )

    def select_promising(self) -> _OptimumPieces:
        """Return the pieces that may hold the minimum: all but σ/η grows with η."""
        start = self.value(self.low)
        some = self.low < self.high
        least = start - self.sigma / self.low + self.sigma / self.high
        kept = some & (least <= start[some].min())
        return replace(
            self,
            **{name: getattr(self, name)[kept] for name in ("n", "mean", "var", "low", "high")},
        )

    def find_minima(self) -> Floats:
        """Return the first local minimum of each piece, or where its slope is largest."""
        peak = _bisect(self._is_steeper, self.low, self.high)
        return _bisect(lambda eta: self._compute_slope(eta) < 0, self.low, peak)

    def value(self, eta: Floats) -> Floats:
        """Return the least value at a total of each piece."""
        return np.asarray(self.gamma * eta * self.mean + self._compute_root(eta) + self.sigma / eta)

    def weights(self, psi: Floats, piece: int, eta: float) -> Floats:
        """Return a in the order of psi, at a total of a piece."""
        n = int(self.n[piece])
        s = self.gamma * eta
        tilt = s / (n * math.sqrt(max(self.mu**2 / n - s**2 * self.var[piece], 1e-300)))
        weights = np.maximum(1 / n - tilt * (psi - self.mean[piece]), 0.0)
        weights[np.argsort(psi, kind="stable")[n:]] = 0.0
        return np.asarray(weights / weights.sum())

    def _compute_root(self, eta: Floats) -> Any:
        return np.sqrt(np.maximum(self.mu**2 / self.n - (self.gamma * eta) ** 2 * self.var, 1e-300))

    def _compute_slope(self, eta: Floats) -> Any:
        """η² times the derivative: rises up to one point, then falls."""
        bend = self.gamma**2 * eta**3 * self.var / self._compute_root(eta)
        return self.gamma * self.mean * eta**2 - bend - self.sigma

    def _is_steeper(self, eta: Floats) -> Any:
        y2 = np.minimum((self.gamma * eta) ** 2 * self.var * self.n / self.mu**2, 1 - 1e-15)
        bend = self.gamma * eta * self.var * np.sqrt(self.n) / self.mu
        return 2 * self.mean > bend * (3 - 2 * y2) / (1 - y2) ** 1.5


def _bisect(holds: Callable[[Floats], Any], low: Floats, high: Floats) -> Floats:
    """Return the point up to which a condition holds, entry by entry.

    It holds up to one point and not beyond.
    """
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        yes = holds(middle)
        low = np.where(yes, middle, low)
        high = np.where(yes, high, middle)
    return np.asarray(np.sqrt(low * high))
