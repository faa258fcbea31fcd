# SPDX-License-Identifier: Apache-2.0
"""The window of a mean: where in its bounds a column lies, bought with a share of everybody's ε
(docs/theory/mean-window.md).

symbol   name
j        level: a window of level j is 2⁻ʲ of the bounds wide
core     the middle half of a window: what must hold nearly everything
O        weight outside of a core, in whole numbers
γ        REWARD: a window half as wide may have so many units of budget more outside
c        units of budget that the choice has, 1/max_l(W_l/ε_l)

Level 0 is the bounds themselves; nothing is outside. A window is chosen by permute-and-flip on
O − γ·j. Noise and squares of the mean are then those of the window, with the same whole numbers as
for the bounds: only the step is 2⁻ʲ of what it was, so that charges do not depend on the choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy  # whose parts are loaded where they are used
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.arrays import Floats, Integers
from sottovoce.data.engine import Dataset
from sottovoce.data.kernels import VALUE_BITS, WeightedHistogram
from sottovoce.errors import InvalidParameter
from sottovoce.noise import source
from sottovoce.noise.source import MIN_EXPONENT, Grid
from sottovoce.weights import Weights

#: The choice has so many units of budget at least, or so large a share of them; where that would be
#: more than the last, nothing is bought.
UNITS = 50.0
LEAST_SHARE = 0.03
MOST_SHARE = 0.1001
#: What half the width is worth, in units of budget.
REWARD = 4.5
#: A wrong window loses all the units but what it is rewarded with: so many must be left.
KEPT_UNITS = 35.0
MOST_LEVELS = 6
#: Values are counted in at most 2^10 cells.
COUNT_BITS = 10
#: Values are taken to spread by a tenth of the window that will be chosen.
SPREADS = 10.0
#: A plan that may choose buys a window where the expected error is at most this part of the error
#: on the bounds.
LEAST_GAIN = 0.8
CHOICES = ("bounds", "bought")


def check_scale(scale: Any, by_groups: bool) -> None:
    """Refuses what is no way to a scale, and a bought one where there are groups."""
    if scale is not None and not (isinstance(scale, str) and scale in CHOICES):
        raise InvalidParameter(
            "There is no such way to find the scale of a column.",
            f"It is one of: {', '.join(CHOICES)}.",
            'Pass scale="bought", or nothing for the bounds.',
            parameter="scale",
        )
    if scale == "bought" and by_groups:
        raise InvalidParameter(
            "A window cannot be bought for means by group.",
            'scale="bought" is for the mean of one column.',
            "Leave scale out, or by and where.",
            parameter="scale",
        )


#: What the error of a window rests on, and what is said where nothing is bought.
ASSUMED = "Assumed: hardly any values lie beyond the window."
TOO_LITTLE = (
    "No window is bought: that takes at least 500 units of ε from all together, as far as they "
    "count."
)


#: What is said where the plan buys a window without being asked.
CHOSEN = (
    "A window is bought because the declared spread is small: if values spread more than declared, "
    "the answer may be far off, and the bounds are the better scale."
)


def count_safe_levels(spread: float, width: float, noise: float) -> int:
    """Returns the deepest level of window in which no column with at most this standard deviation
    is moved by more than about the noise that it would have on its bounds.

    Clipping to a window of width W whose core holds the share 1 − q of the weight moves the mean by
    at most σ²/((1 − q)·W) (docs/theory/mean-window.md, lemma).
    """
    if noise <= 0:
        return 0
    levels = math.log2(noise) + math.log2(width) - 2 * math.log2(spread)
    return math.floor(min(max(levels, 0.0), MOST_LEVELS))


def choose_share(weights: Weights) -> float | None:
    """Returns the share of everybody's ε that buys a window; None where too little is granted."""
    share = max(UNITS * weights.noise_ratio, LEAST_SHARE)
    if share > MOST_SHARE:
        return None
    return share


def list_window_levels(level: int) -> tuple[Floats, Floats]:
    """Returns where cores of this level begin, and their windows, as shares of the bounds."""
    core = 0.5 ** (level + 1)
    starts = np.arange(2 ** (level + 3) - 3) * (core / 4)
    windows = np.clip(starts - core / 2, 0.0, 1 - 2 * core)
    return starts, windows


@dataclass(frozen=True, eq=False)
class WindowPurchase:
    """What is set aside for a window, how windows are scored, and what is bought inside of it."""

    purchase: Any  # of the share: what is taken, what is left, and weights
    grid: Grid
    levels: int
    moment: Any = None  # the mean square in the window, for the interval

    @classmethod
    def of(
        cls, purchase: Any, low: float, high: float, most_levels: int = MOST_LEVELS
    ) -> WindowPurchase:
        """Returns it with as many levels as what is taken can tell apart, at most those given."""
        grid = Grid.cover(low, high, COUNT_BITS)
        bought = 1 / purchase.weights.noise_ratio
        levels = min(math.floor((bought - KEPT_UNITS) / REWARD), most_levels)
        finest = Grid.cover(low, high, VALUE_BITS).exponent - MIN_EXPONENT
        # A window has doubles enough inside, and a step that is one.
        doubles = math.frexp((high - low) / math.ulp(max(abs(low), abs(high))))[1] - VALUE_BITS // 2
        return cls(purchase, grid, max(min(levels, finest, doubles), 0))

    @property
    def weights(self) -> Weights:
        """The weights of rows in the choice."""
        weights: Weights = self.purchase.weights
        return weights

    @property
    def charges(self) -> units.Units:
        """What everybody pays for the choice."""
        return self.weights.charges

    @property
    def units(self) -> float:
        """The units of budget that the choice has."""
        return 1 / self.weights.noise_ratio

    @property
    def scale(self) -> int:
        """The scale of the choice: scores that move by W cost 2W over it."""
        return 2 * self.weights.loudest

    @cached_property
    def level(self) -> Integers:
        """The level of every window, the bounds last."""
        counts = [len(list_window_levels(j)[0]) for j in range(1, self.levels + 1)]
        return np.append(np.repeat(np.arange(1, self.levels + 1), counts), 0)

    @cached_property
    def start(self) -> Floats:
        """Where every window begins, as a share of the bounds."""
        parts = [list_window_levels(j)[1] for j in range(1, self.levels + 1)]
        return np.concatenate([*parts, [0.0]])

    @cached_property
    def cores(self) -> tuple[Integers, Integers]:
        """The first and the last cell of every core; all cells for the bounds."""
        starts = np.concatenate(
            [*(list_window_levels(j)[0] for j in range(1, self.levels + 1)), [0.0]]
        )
        widths = np.where(self.level > 0, 0.5 ** (self.level + 1.0), 1.0)
        cells = self.grid.cells
        return (
            np.rint(starts * cells).astype(np.int64),
            np.rint((starts + widths) * cells).astype(np.int64),
        )

    @cached_property
    def rewards(self) -> Integers:
        """By how much the score of every window is lowered for being narrow."""
        reward = round(REWARD * self.weights.loudest)
        return np.asarray(self.level * reward, dtype=np.int64)

    def score(self, histogram: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns O − γ·j of every window: somebody who weighs W moves each by at most W."""
        reached = np.concatenate([[0], np.cumsum(histogram)])
        first, last = self.cores
        outside = reached[-1] - (reached[last + 1] - reached[first])
        return np.asarray(outside - self.rewards, dtype=np.int64)

    def choose(self, rows: Dataset, missing: float | None) -> ChosenWindow:
        """Counts the rows, and chooses a window."""
        which = source.permute_and_flip(self.score(self.count(rows, missing)), self.scale)
        return self.place(which)

    def count(self, rows: Dataset, missing: float | None) -> NDArray[np.int64]:
        """Returns the weight in every cell, exactly."""
        kernel = WeightedHistogram(rows.value, self.grid, rows.owner, self.weights.row, missing)
        return rows.engine.fold(kernel)

    def place(self, which: int) -> ChosenWindow:
        """Returns the window of this number, in units of the column."""
        level = int(self.level[which])
        width = self.grid.high - self.grid.low
        low = self.grid.low + float(self.start[which]) * width
        if level == 0:
            return ChosenWindow(which, 0, self.grid.low, self.grid.high)
        return ChosenWindow(which, level, low, min(low + width * 0.5**level, self.grid.high))

    def predict(self, spread: float) -> tuple[float, float]:
        """Returns the root mean square of the window's width over that of the bounds, and the root
        mean square of what clipping moves, in units of the column, if values are normal around the
        middle.

        With the law of the exponential mechanism, which permute-and-flip is close to.
        """
        width = self.grid.high - self.grid.low
        sigma = spread / width
        first, last = self.cores
        ends = np.array([first, last]) / self.grid.cells
        inside = scipy.special.ndtr((ends[1] - 0.5) / sigma) - scipy.special.ndtr(
            (ends[0] - 0.5) / sigma
        )
        inside[-1] = 1.0
        score = (1 - inside) * self.units - REWARD * self.level
        chances = np.exp(-(score - score.min()) / 2)
        chances /= chances.sum()
        widths = 0.5**self.level
        moved = compute_clipped_mean((self.start - 0.5) / sigma, sigma)
        moved -= compute_clipped_mean((0.5 - self.start - widths) / sigma, sigma)
        moved[-1] = 0.0
        return (
            math.sqrt(float(chances @ widths**2)),
            math.sqrt(float(chances @ moved**2)) * width,
        )

    def tell(self, bounds_error: float) -> dict[str, Any]:
        """What is bought, as public JSON for the plan, with the error if the bounds are chosen."""
        return {
            "share": self.purchase.share,
            "levels": self.levels,
            "reward": REWARD,
            "bounds_error": bounds_error,
        }

    def describe(self) -> str:
        """What is bought, in words."""
        told = (
            f"{self.purchase.describe()} buys a window in which nearly all values lie, between "
            f"the bounds and {0.5**self.levels:.3g} of them; noise is that of the window, values "
            "beyond count as its ends, and the charges include it."
        )
        if self.moment is not None:
            told += f" {self.moment.describe()}"
        return told


def compute_clipped_mean(threshold: Floats, sigma: float) -> Floats:
    """Returns σ·E(t − X)₊ of a normal X: what clipping below t adds to a mean."""
    density = np.exp(-(threshold**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(
        sigma * (threshold * scipy.special.ndtr(threshold) + density), dtype=np.float64
    )


@dataclass(frozen=True)
class ChosenWindow:
    """A window that was released: its number among the candidates, its level and its ends."""

    which: int
    level: int
    low: float
    high: float

    def shrink(self, grid: Grid) -> Grid:
        """Returns the grid of the bounds on the window: a step of 2⁻ʲ, and no more cells."""
        exponent = grid.exponent - self.level
        high = self.high
        cells = round(math.ldexp(high - self.low, -exponent))
        while cells > grid.cells:  # doubles near the bounds may be further apart than cells
            high = math.nextafter(high, self.low)
            cells = round(math.ldexp(high - self.low, -exponent))
        return Grid(self.low, high, exponent, max(cells, 1))

    def tell(self) -> dict[str, Any]:
        """The window as public JSON for the release."""
        return {"window": [self.low, self.high], "level": self.level, "choice": self.which}

    def move(self, plan: Any, answer_exponent: int) -> Any:
        """Returns the plan with the noise, grids and error of this window."""
        smaller = 0.5**self.level
        bought = plan.bought.moment
        if bought is not None:
            bought = replace(bought, grid=self.shrink(bought.grid))
        return replace(
            plan,
            grid=replace(
                plan.grid, values=self.shrink(plan.grid.values), answer_exponent=answer_exponent
            ),
            noise={**plan.noise, "scale": plan.noise["scale"] * smaller},
            error=replace(
                plan.error,
                noise=plan.noise["window"]["bounds_error"] * smaller,
                shrinkage=0.0,
                assumed=ASSUMED,
            ),
            bought=bought,
        )
