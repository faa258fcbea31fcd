# SPDX-License-Identifier: Apache-2.0
"""How much privacy is bought from whom, at a given total: exactly, from sorted virtual costs and their sums.

Minimise (μ‖ε‖ + σ)/η + γ·Σ Ψ_iε_i subject to Σε = η and 0 ≤ ε_i ≤ b_i (docs/theory/market.md, Theorem 1):

    ε_i = min(b_i, (τ − βψ_i)₊),    Σ ε_i = η,    β·r = ‖ε‖,    r = μ/(γ·η·unit)

Sellers of one class (same law of costs, same limit) differ by their price alone, so they are counts on a list of
prices. Virtual costs are whole numbers ψ of a public unit, which makes every sum exact: what is computed for
a seller depends on the others' reports and on the price in question, to the last bit, and on nothing else.

    symbol   name
    ψ_k      Supply.psi         Ψ_k = low + unit·ψ_k
    b        Supply.caps        by class, in billionths of ε, at most share·η
    n, S₁, S₂    Cell           number, sum and sum of squares of ψ over sellers strictly between 0 and their limit
    B₁, B₂, P    Cell           sums of b, b² and bψ over sellers at their limit
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

#: The totals that can be bought: this many points a decade from the smallest on, the same in all markets.
POINTS, SMALLEST = 64, 1e-6
#: Virtual costs have so many bits that the sum of their squares over all sellers has 62.
PSI_BITS, SQUARES_BITS = 20, 62
#: Steps of a search by Newton's, which halves its interval where they leave it, and from the 24th on every other time.
#: A dozen is usual.
STEPS, PATIENCE = 200, 24
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
        """Returns the supply with virtual costs as whole numbers; an infinite one must have no sellers."""
        finite = np.isfinite(virtual)
        low, high = (float(virtual[finite].min()), float(virtual[finite].max())) if finite.any() else (0.0, 0.0)
        bits = min(PSI_BITS, (SQUARES_BITS - max(1, int(counts.sum())).bit_length()) // 2)
        unit = (high - low) / 2**bits or 1.0
        psi = np.rint((np.where(finite, virtual, high) - low) / unit).astype(np.int64)
        return cls(psi, caps, counts, unit, low)

    @cached_property
    def sums(self) -> list[Whole]:
        """Number of sellers, sum of their ψ and of its squares, below each place of a class's list."""
        powers = (self.counts * self.psi**p for p in range(3))
        return [np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0))) for values in powers]

    @cached_property
    def keys(self) -> Floats:
        """ψ in doubles, which count it exactly."""
        return self.psi.astype(np.float64)

    def select_reachable(self, buyer: Buyer, totals: Floats) -> Floats:
        """Returns the totals that limits allow."""
        many = self.counts.sum(axis=1)
        most = sum(int(k) * limits(buyer, cap, totals) for k, cap in zip(many, self.caps, strict=True))
        return np.asarray(totals[most >= totals * units.NANO * (1 - TINY)])


@dataclass(frozen=True, eq=False)
class Asked:
    """Problems side by side: a total each, and optionally one seller of a class moved from one ψ to another."""

    eta: Floats
    whose: Whole | None = None
    away: Floats | None = None
    to: Floats | None = None

    def at(self, which: Any) -> Asked:
        """Returns some of the problems."""
        if self.whose is None or self.away is None or self.to is None:
            return Asked(self.eta[which])
        return Asked(self.eta[which], self.whose[which], self.away[which], self.to[which])


@dataclass(eq=False)
class Cell:
    """Sums over sellers between their limits (n, s1, s2) and over sellers at their limit, problem by problem."""

    n: Any
    s1: Any
    s2: Any
    full: Any
    squares: Any
    moment: Any

    @classmethod
    def empty(cls, size: int) -> Cell:
        """Returns sums over nobody."""
        whole, floats = (np.zeros((3, size), dtype=kind) for kind in (np.int64, np.float64))
        return cls(*whole, *floats)

    def at(self, which: Any) -> Cell:
        """Returns some of the problems."""
        return Cell(*(getattr(self, field.name)[which] for field in fields(self)))

    def assign(self, which: Any, other: Cell) -> None:
        """Overwrites some of the problems."""
        for field in fields(self):
            getattr(self, field.name)[which] = getattr(other, field.name)

    def spread(self) -> Floats:
        """Returns Σ(ψ − mean)² over sellers between their limits, with no digit lost."""
        n = np.maximum(self.n, 1)
        middle, rest = np.divmod(self.s1, n)
        return np.asarray((self.s2 - 2 * middle * self.s1 + middle * middle * self.n) - rest * (rest / n))

    def compute_remainder(self, eta: Floats) -> Floats:
        """Returns what the total leaves for sellers between their limits."""
        return np.asarray(np.where(self.n > 0, eta * units.NANO - self.full, 0.0))


@dataclass(frozen=True, eq=False)
class Deals:
    """Solved problems: the value of each, and what it buys at any virtual cost."""

    asked: Asked
    tau: Floats
    beta: Floats
    cell: Cell
    value: Floats

    def at(self, which: Any) -> Deals:
        """Returns some of the problems."""
        return Deals(self.asked.at(which), self.tau[which], self.beta[which], self.cell.at(which), self.value[which])

    def compute_sales(self, psi: Any, cap: Any) -> Floats:
        """Returns ε in billionths for a seller at ψ with a limit, problem by problem."""
        n = np.maximum(self.cell.n, 1)
        middle, rest = np.divmod(self.cell.s1, n)
        between = self.cell.compute_remainder(self.asked.eta) / n + self.beta * ((middle - psi) + rest / n)
        theta = self.tau / self.beta
        at_limit = psi <= theta - cap / self.beta
        return np.asarray(np.where(at_limit, cap, np.where(psi < theta, np.clip(between, 0.0, cap), 0.0)))


def limits(buyer: Buyer, cap: Any, eta: Floats) -> Any:
    """Returns the limit of a seller at each total, in billionths."""
    return cap if buyer.share is None else np.minimum(cap, buyer.share * eta * units.NANO)


def totals(largest: float) -> Floats:
    """Returns the public grid of totals, up to the largest one that anything allows."""
    last = math.floor(POINTS * math.log10(max(largest, SMALLEST)) + 1e-9)
    return np.asarray(10.0 ** (np.arange(round(POINTS * math.log10(SMALLEST)), last + 1) / POINTS))


def solve(supply: Supply, buyer: Buyer, asked: Asked, start: tuple[Floats, Floats] | None = None) -> Deals:
    """Returns the exact minimisers at the totals asked for; ``start`` are τ and β of problems nearby."""
    r = _sharpness(supply, buyer, asked.eta)
    low, high = _brackets(supply, buyer, asked.eta, r)
    if start is None:
        beta = np.sqrt(low * high)
        moved = 0 if asked.to is None or asked.away is None else asked.to - asked.away
        tau = (asked.eta * units.NANO + beta * (int(supply.sums[1][:, -1].sum()) + moved)) / supply.counts.sum()
    else:
        tau, beta = start[0].copy(), np.clip(start[1], low, high)
    cell, todo = Cell.empty(len(beta)), np.arange(len(beta))
    for step in range(STEPS):
        part = asked.at(todo)
        tau[todo], found = _settled(supply, buyer, part, tau[todo], beta[todo])
        cell.assign(todo, found)
        jump = _jump(found, part.eta, beta[todo], r[todo], low, high, todo, step < PATIENCE or step % 2 == 0)
        moved = (jump != beta[todo]) & (high[todo] > low[todo] * (1 + 1e-15))
        todo = todo[moved]
        if not todo.size:
            break
        beta[todo] = jump[moved]
        tau[todo] = _aimed(found.at(moved), part.eta[moved], beta[todo], tau[todo])
    return Deals(asked, tau, beta, cell, _value(supply, buyer, asked.eta, cell, beta))


def _sharpness(supply: Supply, buyer: Buyer, eta: Floats) -> Floats:
    """Returns r, with a μ that is a little larger where prices are told apart by less than doubles can hold."""
    least = SHARPEST * math.sqrt(supply.counts.sum())
    return np.asarray(np.maximum(buyer.mu / (buyer.trade_off * eta * supply.unit), least))


def _brackets(supply: Supply, buyer: Buyer, eta: Floats, r: Floats) -> tuple[Floats, Floats]:
    """Returns bounds of β: the norm is least where all sell alike, and largest where few sell all they may."""
    total = eta * units.NANO
    most = np.minimum(limits(buyer, float(supply.caps.max()), eta), total)
    return total / (math.sqrt(supply.counts.sum()) * r) * (1 - TINY), np.sqrt(total * most) / r * (1 + TINY)


def _jump(cell: Cell, eta: Any, beta: Any, r: Any, low: Floats, high: Floats, todo: Any, patient: bool) -> Floats:
    """Returns the β that is right if nobody reaches or leaves a limit on the way, else the middle of its bounds."""
    base, spread = cell.squares + cell.compute_remainder(eta) ** 2 / np.maximum(cell.n, 1), cell.spread()
    small = base + beta**2 * spread > (beta * r) ** 2
    low[todo], high[todo] = np.where(small, beta, low[todo]), np.where(small, high[todo], beta)
    with np.errstate(divide="ignore", invalid="ignore"):
        jump = np.sqrt(base / (r**2 - spread))
    inside = (jump > low[todo]) & (jump < high[todo]) & patient
    return np.asarray(np.where(inside | (jump == beta), jump, np.sqrt(low[todo] * high[todo])))


def _aimed(cell: Cell, eta: Floats, beta: Floats, tau: Floats) -> Floats:
    aimed = (cell.compute_remainder(eta) + beta * cell.s1) / np.maximum(cell.n, 1)
    return np.asarray(np.where(cell.n > 0, aimed, tau))


def _settled(supply: Supply, buyer: Buyer, asked: Asked, tau: Floats, beta: Floats) -> tuple[Floats, Cell]:
    """Returns, at given β, the τ at which sales add up to the total, and the sums there."""
    eta = asked.eta * units.NANO
    low = np.zeros_like(tau)
    high = beta * float(supply.psi.max()) + float(supply.caps.max()) * (1 + TINY)
    tau, cell, todo = np.clip(tau, low, high), Cell.empty(len(tau)), np.arange(len(tau))
    for count in range(STEPS):
        now, part = tau[todo], asked.at(todo)
        found = _cell(supply, buyer, part, now, beta[todo])
        cell.assign(todo, found)
        step = (eta[todo] - found.full + beta[todo] * found.s1) / np.maximum(found.n, 1)
        short = found.n * now - beta[todo] * found.s1 + found.full < eta[todo]
        low[todo], high[todo] = np.where(short, now, low[todo]), np.where(short, high[todo], now)
        inside = (found.n > 0) & (step > low[todo]) & (step < high[todo]) & (count < PATIENCE or count % 2 == 0)
        exact = np.where(found.n > 0, step == now, np.abs(found.full - eta[todo]) <= TINY * eta[todo])
        going = ~exact & (high[todo] > low[todo] * (1 + 1e-15))
        todo, inside, step = todo[going], inside[going], step[going]
        if not todo.size:
            break
        tau[todo] = np.where(inside, step, (low[todo] + high[todo]) / 2)
    return tau, cell


def _cell(supply: Supply, buyer: Buyer, asked: Asked, tau: Floats, beta: Floats) -> Cell:
    """Returns the sums over sellers, those at ψ < τ/β selling and those at ψ ≤ (τ − b)/β at their limit."""
    cell, theta = Cell.empty(len(tau)), tau / beta
    for c in range(len(supply.psi)):
        cap = limits(buyer, supply.caps[c], asked.eta)
        edge = theta - cap / beta
        some = np.searchsorted(supply.keys[c], theta, side="left")
        full = np.minimum(np.searchsorted(supply.keys[c], edge, side="right"), some)
        sums = [(a[c][some] - a[c][full], a[c][full]) for a in supply.sums]
        (n, at_limit), (s1, moment), (s2, _) = _moved(sums, asked, c, theta, edge)
        cell.n += n
        cell.s1 += s1
        cell.s2 += s2
        cell.full += at_limit * cap
        cell.squares += at_limit * cap**2
        cell.moment += moment * cap
    return cell


def _moved(sums: Any, asked: Asked, c: int, theta: Floats, edge: Floats) -> Any:
    """Returns the sums with one seller of this class taken away at one ψ and put back at another."""
    if asked.whose is None or asked.away is None or asked.to is None:
        return sums
    mine = (asked.whose == c).astype(np.int64)
    for psi, sign in ((asked.to, mine), (asked.away, -mine)):
        full = (psi <= edge) & (psi < theta)
        some, whole = sign * ((psi < theta) & ~full), psi.astype(np.int64)
        sums = [(a + some * whole**p, b + sign * full * whole**p) for p, (a, b) in enumerate(sums)]
    return sums


def _value(supply: Supply, buyer: Buyer, eta: Floats, cell: Cell, beta: Floats) -> Floats:
    """Returns (μ‖ε‖ + σ)/η + γ·Σ Ψε."""
    left, spread, n = cell.compute_remainder(eta), cell.spread(), np.maximum(cell.n, 1)
    norm = np.sqrt(cell.squares + left**2 / n + beta**2 * spread) / units.NANO
    cost = (cell.s1 * (left / n) - beta * spread + cell.moment) / units.NANO
    paid = supply.unit * cost + supply.low * eta
    price = buyer.trade_off * supply.unit * _sharpness(supply, buyer, eta)  # μ/η
    return np.asarray(price * norm + buyer.sigma / eta + buyer.trade_off * paid)
