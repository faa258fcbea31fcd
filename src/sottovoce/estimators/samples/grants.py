# SPDX-License-Identifier: Apache-2.0
"""Who is heard how loudly in a posterior sample, from public numbers (docs/theory/posterior.md, section 5).

Everybody is as loud as their grant allows: ε_l(W_l; S) = ε_l, where ε_l is what concentration.py says. At a fixed
γ and λ the sum S is the root of ΣW_l(S) = S, which is unique because all W_l(S) fall with S; where λ answers to the
data, γ is such that S is about the number of rows.

    symbol     name
    W_l        weight of a person; weights of rows are the same for all rows of a person
    S          total
    σ₁         spread, n/Σ_l D_l: at weights σ₁D_l, adding up to n, everybody's share of ε pays for the eigenvalue
    h          floor
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from sottovoce import units
from sottovoce.budgets import Kinds
from sottovoce.errors import BudgetExceeded, InvalidBudget, InvalidParameter, WeakRegularisation
from sottovoce.estimators.samples.concentration import Account, Adaptive, Fixed
from sottovoce.weights import Weights

Floats = NDArray[np.float64]

#: Grants are filled up to one part in a billion less than they hold: more than doubles can have got wrong.
SPARE = 1e-9
#: What the search for the best order may differ by from one weight to the next.
SEARCHED = 1e-5
#: Beyond this many different grants they are rounded down to powers of 2^(1/64) while weights are sought.
MANY, FINE = 256, 64
#: Weights are first looked for among these multiples of h, then on so many rungs for each octave that is needed.
OCTAVES, RUNGS = 2.0 ** np.arange(-48, 21), 8
#: Halvings of one rung, of which 2⁻²⁴ is left.
HALVINGS = 24
#: A floor that is too low is raised by a quarter at a time.
RAISE = 1.25
#: Roots are sought within e^±FARTHEST of a first guess.
FARTHEST = 100.0
#: Beyond, whole numbers of units do not reach; and it would be no promise.
LARGEST = 1e9


@dataclass(frozen=True, eq=False)
class Voices:
    """Who is heard how loudly, under which account, and what each is promised."""

    weights: Weights
    unit: float  # the weight that a whole number stands for
    account: Any  # the Account that charges follow from
    charges: units.Units

    @property
    def total(self) -> float:
        """S."""
        return self.weights.total * self.unit

    @property
    def row(self) -> Floats:
        """The weight of one row, by kind."""
        return np.asarray(self.weights.row * self.unit, dtype=np.float64)

    @classmethod
    def equal(cls, kinds: Kinds, account: Account) -> Voices:
        """Every row has weight one; what that costs is what is promised."""
        weights = Weights.from_integers(kinds, np.ones_like(kinds.rows))
        losses = account.epsilon(kinds.rows.astype(np.float64), float(weights.total), kinds.rows == 1)
        return cls(weights, 1.0, account, _charged(losses))

    @classmethod
    def of(cls, kinds: Kinds, weight: Floats, account: Account) -> Voices:
        """Weights of people made whole numbers, rounded down, and charged by what they then are."""
        per_row = weight / kinds.rows
        if not 0 < per_row.max() < math.inf:
            raise InvalidParameter(
                "gamma or alpha is so large that nobody's grant buys a weight.",
                "Somebody must be heard.",
                "Choose smaller ones, such as 1 for both.",
            )
        weights = Weights.from_row_weights(kinds, per_row / per_row.max())
        unit = float(per_row.max()) / int(weights.row.max())
        person = np.asarray(weights.person * unit, dtype=np.float64)
        losses = account.epsilon(person, weights.total * unit, kinds.rows == 1)
        charges = np.where(weights.person > 0, _charged(losses), 0)
        if np.any(charges > kinds.epsilon * (1 + SEARCHED) + 1):
            raise _overspent()
        # Weights and their sum were rounded down, so the order that kept the grant still does: the smaller is a bound.
        return cls(weights, unit, account, np.minimum(charges, kinds.epsilon))


def _overspent() -> BudgetExceeded:
    return BudgetExceeded(
        "Weights were found that cost somebody more than they granted.",
        "Nobody pays more than their grant.",
        "This is an error of the library: nothing was read, and nothing is charged.",
    )


def _charged(losses: Floats) -> units.Units:
    if losses.max() > LARGEST:
        raise InvalidParameter(
            "An ε would be larger than a billion, which promises nothing.",
            "A posterior that is this concentrated protects nobody.",
            "Choose a smaller gamma or a larger alpha.",
        )
    # At least one unit: who takes part is not somebody who was left out.
    return np.maximum(units.charge(losses * (1 + SPARE / 4)), 1)


@dataclass(frozen=True, eq=False)
class Grants:
    """The different grants among people, a little less than they hold, and how many people gave each."""

    epsilon: Floats
    single: NDArray[np.bool_]  # whether those people own one row
    people: Floats
    where: NDArray[np.int64]  # kind → grant; people left out come after all

    @classmethod
    def of(cls, kinds: Kinds) -> Grants:
        """The grants of these kinds of people; refuses if nobody grants anything."""
        granted, heard = units.epsilon(kinds.epsilon) * (1 - SPARE), kinds.epsilon > 0
        if not heard.any():
            raise InvalidBudget("Nobody grants anything.", "Somebody's ε must be above 0.", "Give people a positive ε.")
        if len(np.unique(granted)) > MANY:
            granted[heard] = 2.0 ** (np.floor(np.log2(granted[heard]) * FINE) / FINE)
        pairs, code = np.unique(np.stack([granted, kinds.rows == 1])[:, heard], axis=1, return_inverse=True)
        where = np.full(len(kinds), pairs.shape[1])
        where[heard] = code.ravel()
        return cls(pairs[0], pairs[1] > 0, np.bincount(code.ravel(), kinds.people[heard]).astype(np.float64), where)

    def about(self, account: Account, total: float) -> float:
        """Returns about what everybody together may weigh, where it is taken to be ``total``."""
        found = np.zeros(len(self.epsilon))
        for single, weight, losses in self._list_ladders(account, total):
            logs = np.log(np.maximum(losses, 1e-12))
            found[single] = np.exp(np.interp(np.log(self.epsilon[single]), logs, np.log(weight)))
        return float(found @ self.people)

    def fill_weights(self, account: Account, total: float) -> Floats:
        """Returns the largest weights whose ε is not above the grants, where all together weigh ``total``."""
        low, high = np.zeros(len(self.epsilon)), np.zeros(len(self.epsilon))
        for single, weight, losses in self._list_ladders(account, total):
            rung = np.searchsorted(losses, self.epsilon[single], side="right")
            low[single] = np.concatenate([[0.0], weight])[rung]
            high[single] = np.concatenate([weight, weight[-1:]])[rung]
        for _ in range(HALVINGS):
            middle = np.sqrt(low * high)
            fits = account.epsilon(middle, total, self.single) <= self.epsilon
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return low

    def by_group(self, weight: Floats) -> Floats:
        """Spreads one weight a grant over the kinds; people left out weigh nothing."""
        return np.concatenate([weight, [0.0]])[self.where]

    def _list_ladders(self, account: Account, total: float) -> Iterator[tuple[NDArray[np.bool_], Floats, Floats]]:
        """Weights up to ``total`` and what they cost at most, for people with one row and for those with several."""
        for kind in (True, False):
            single = self.single == kind
            if single.any():
                rungs, losses = _climbed(account, np.minimum(account.floor * OCTAVES, total), total, kind)
                low, high = np.searchsorted(losses, [self.epsilon[single].min(), self.epsilon[single].max()])
                ends = rungs[max(low - 1, 0)], rungs[min(high, len(rungs) - 1)]
                yield single, *_climbed(account, np.geomspace(*ends, RUNGS * int(high - low + 1) + 1), total, kind)


def _climbed(account: Account, weight: Floats, total: float, single: bool) -> tuple[Floats, Floats]:
    losses = account.epsilon(weight, total, np.full(len(weight), single))
    return weight, np.maximum.accumulate(losses)


def personal(kinds: Kinds, account: Fixed) -> Voices:
    """Everybody as loud as their grant allows at this γ and λ."""
    return _settled(kinds, Grants.of(kinds), account)


def _settled(kinds: Kinds, grants: Grants, account: Account) -> Voices:
    """Weights at the root S of ΣW_l(S) = S."""
    total = _root(lambda s: grants.about(account, s) / s, account.floor)
    weight = grants.fill_weights(account, total)
    if weight @ grants.people > total:  # with a larger S everybody is quieter, so this sum is not above it
        weight = grants.fill_weights(account, float(weight @ grants.people))
    return Voices.of(kinds, grants.by_group(weight), account)


def adaptive(kinds: Kinds, account: Adaptive, share: float, floor: float | None) -> Voices:
    """Everybody as loud as their grant allows, with the γ at which weights add up to about the number of rows.

    σ₁ is such that the share of everybody's ε would pay for the eigenvalue alone. ``account.floor`` is raised until
    half of the rest pays for what people change in H, unless a floor is given.
    """
    grants, rows = Grants.of(kinds), float(kinds.rows @ kinds.people)
    size = _largest_distance(account, grants.epsilon * share)
    account = replace(account, spread=rows / float(size @ grants.people))
    affordable = partial(_affordable, grants, size * account.spread, rows, (1 + share) / 2)
    least = _least_floor(account, affordable)
    account = replace(account, floor=least if floor is None else floor)
    if floor is not None and grants.about(account, rows) <= rows:
        raise _too_low(least)
    gamma = _root(lambda g: grants.about(replace(account, gamma=g), rows) / rows, account.floor / rows)
    return _settled(kinds, grants, replace(account, gamma=gamma))


def _affordable(grants: Grants, weight: Floats, rows: float, share: float, account: Adaptive) -> bool:
    return bool(np.all(account.epsilon(weight, rows, grants.single) <= share * grants.epsilon))


def _least_floor(account: Adaptive, affordable: Callable[[Adaptive], bool]) -> float:
    while not affordable(account):
        account = replace(account, floor=account.floor * RAISE)
    return account.floor


def _too_low(least: float) -> WeakRegularisation:
    return WeakRegularisation(
        "At this floor what one person changes in the posterior's shape costs more than somebody grants.",
        "Eigenvalues must be kept larger for these budgets, whatever the noise.",
        f"Pass floor={least:.3g} or more, or leave floor=None.",
        smallest=least,
    )


def _largest_distance(account: Adaptive, epsilon: Floats) -> Floats:
    """Returns D_l, entry by entry: the most that ε allows somebody to move the eigenvalue, in units of σ₁."""
    low, high = np.full_like(epsilon, 1e-15), np.sqrt(2 * epsilon) + 20.0
    for _ in range(32):
        middle = np.sqrt(low * high)
        fits = account.eigenvalue(middle) <= epsilon
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low


def _root(ratio: Callable[[float], float], start: float) -> float:
    """Returns about where a falling function is one, or the end of what is searched."""

    def height(log_x: float) -> float:
        return math.log(max(ratio(math.exp(log_x)), 1e-300))

    low = high = math.log(start)
    while height(low) < 0 and low > math.log(start) - FARTHEST:
        low -= 4
    while height(high) > 0 and high < math.log(start) + FARTHEST:
        high += 4
    return math.exp(brentq(height, low, high, xtol=1e-4)) if height(low) > 0 > height(high) else math.exp(low)
