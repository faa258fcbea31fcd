# SPDX-License-Identifier: Apache-2.0
"""How far to go from a quantile for its interval, bought with a share of everybody's ε
(docs/theory/quantile.md, the interval).

One of a few half-widths in steps of a fourth root of 2 is chosen, by the rank that it covers with
weights of its own. A wider one is favoured over a narrower one by a public factor, so that it does
not matter how many narrower ones there are.

And how far one quantile is expected to be off, as a share of the rows (accuracy, on the same page).
Those of several that are chosen together are in joint_quantiles.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import scipy  # whose parts are loaded where they are used
from numpy.typing import NDArray

from sottovoce.budgets import Budgets
from sottovoce.estimators.mean import Purchase
from sottovoce.noise import source
from sottovoce.plan import ExpectedError, Plan, find_rank_margin, measure_inequality
from sottovoce.release import LEVEL
from sottovoce.weights import Weights

#: Half-widths grow by this factor from one candidate to the next, and begin at so much of what even
#: values would need.
STEP = 2**0.25
NARROWEST = 1 / 32
#: How much likelier than the next narrower one a half-width is beforehand; all narrower ones
#: together are then so likely, over it.
FAVOUR = 1.3
ODDS = 1 / (FAVOUR - 1)
#: Up to a scale of so many rows the ranks are added up one by one, so many rows to each side.
FEW_ROWS = 8
REACH = 400


@dataclass(frozen=True, eq=False)
class RankReach:
    """How far to go from each answer for the interval: candidates, the rank that is aimed at on
    either side, and what it costs.
    """

    purchase: Purchase
    candidates: tuple[NDArray[np.int64], ...]  # half-widths in steps of the grid, for each q
    aims: tuple[float, ...]  # ranks
    noise: tuple[float, ...]  # ranks that noise alone would need
    sampling: tuple[float, ...]  # ranks that sampling alone would need
    bias: tuple[float, ...]  # ranks by which budgets that go along with values may move it

    @classmethod
    def of(
        cls,
        purchase: Purchase,
        budgets: Budgets,
        targets: list[float],
        associations: list[float],
        cells: int,
    ) -> RankReach:
        """Returns it with what is set aside for it."""
        people = purchase.weights.measure_people_concentration(budgets.kinds)
        scale = 2 * purchase.weights.noise_ratio
        moved = measure_inequality(budgets, purchase.weights)[1]
        certain = float(scipy.special.ndtri(0.5 + LEVEL / 2))
        found = [_choose_candidates(q, people, scale, cells) for q in targets]
        return cls(
            purchase,
            tuple(steps for steps, _ in found),
            tuple(aim for _, aim in found),
            (find_rank_margin(LEVEL, ODDS, scale, 0.0),) * len(found),
            tuple(certain * math.sqrt(q * (1 - q) * people) for q in targets),
            tuple(beta * moved for beta in associations),
        )

    @property
    def weights(self) -> Weights:
        """The weights of rows in it."""
        return self.purchase.weights

    @property
    def scale(self) -> float:
        """The scale of the choice among half-widths, as a rank."""
        return 2 * self.weights.noise_ratio

    def describe(self) -> str:
        """What is bought, in words."""
        return (
            f"{self.purchase.describe()} buys how wide the interval must be; the charges include "
            "it."
        )


def _choose_candidates(
    q: float, people: float, scale: float, cells: int
) -> tuple[NDArray[np.int64], float]:
    """Half-widths in steps of the grid, and the rank that is aimed at; the last one is the whole
    grid, and covers whatever the rows are.
    """
    aim = find_rank_margin(LEVEL, ODDS, scale, math.sqrt(q * (1 - q) * people)) + people
    narrowest = max(min(NARROWEST * aim, 0.5) * cells, 1.0)
    powers = np.arange(math.ceil(math.log(cells / narrowest, STEP)))
    steps = np.unique(np.append(np.rint(narrowest * STEP**powers), cells).astype(np.int64))
    return steps, aim


def draw_reaches(plan: Plan, histogram: NDArray[np.int64], values: list[float]) -> dict[str, Any]:
    """Returns how far to go from each answer, as public JSON, in units of the column."""
    bought: RankReach = plan.bought
    grid = plan.grid.points
    chosen = []
    for place, (q, value) in enumerate(zip(plan.parameters["q"], values, strict=True)):
        scores = score_reaches(
            histogram,
            q,
            min(round((Fraction(value) - Fraction(grid.low)) / grid.step), grid.cells),
            bought.candidates[place],
            bought.aims[place],
        )
        scores = scores + list_handicaps(len(scores), 2 * bought.weights.loudest)
        which = source.permute_and_flip(scores, 2 * bought.weights.loudest)
        # values were rounded by at most half a step
        chosen.append(float((int(bought.candidates[place][which]) + Fraction(1, 2)) * grid.step))
    return {
        "reach": chosen,
        "noise": _take_shares(chosen, bought.noise, bought.aims),
        "sampling": _take_shares(chosen, bought.sampling, bought.aims),
        "bias": list(bought.bias),
        "level": LEVEL,
    }


def list_handicaps(candidates: int, scale: int) -> NDArray[np.int64]:
    """Returns what is added to the scores: each half-width is less likely than the next wider one,
    by the factor ``FAVOUR``. They are public, so that nobody pays for them.
    """
    each = math.ceil(scale * math.log(FAVOUR))
    return each * np.arange(candidates - 1, -1, -1, dtype=np.int64)


def _take_shares(
    reaches: list[float], parts: tuple[float, ...], aims: tuple[float, ...]
) -> list[float]:
    """Which part of each half-width a cause alone would need, as ranks go."""
    together = zip(reaches, parts, aims, strict=True)
    return [reach * min(part / aim, 1.0) for reach, part, aim in together]


def score_reaches(
    histogram: NDArray[np.int64], q: float, index: int, steps: NDArray[np.int64], aim: float
) -> NDArray[np.int64]:
    """Returns, for every half-width, how far the rank it covers is from what is aimed at.

    It covers F(upper) − q above and q − F(lower−) below, or everything where it ends at the bounds;
    the smaller of the two counts. What is aimed at lies between what the next narrower one covers
    and what this one does for exactly one of them, whose score is 0. A person of weight W moves
    each by at most W, exactly.
    """
    cells = len(histogram) - 1
    at_or_below = np.concatenate([[0], np.cumsum(histogram)])  # [i]: below the point i
    total = int(at_or_below[-1])
    target = round(Fraction(q) * total)
    upper = np.minimum(index + steps, cells)
    lower = np.maximum(index - steps, 0)
    above = np.where(upper == cells, total, at_or_below[upper + 1] - target)
    below = np.where(lower == 0, total, target - at_or_below[lower])
    covered = np.minimum(above, below)
    narrower = np.concatenate([[-total], covered[:-1]])
    aimed = min(round(Fraction(aim) * total), total)
    scores: NDArray[np.int64] = np.maximum(aimed - covered, narrower - aimed)
    return np.maximum(scores, 0, out=scores)


def estimate_rank_error(
    q: float,
    association: float,
    budgets: Budgets,
    weights: Weights,
    spread: float,
    width: float,
    noise: float,
) -> ExpectedError:
    """Root mean square of F(t) − q, F the plain share of rows at or below t, and what it is made
    of.

    Values are taken as spread evenly over a part of the bounds; the theory page has the sums and
    integrals.
    """
    squares, moved = measure_inequality(budgets, weights)
    error = ExpectedError(
        classical="the plain quantile",
        unit="as a share of the rows (rank)",
        noise=noise,
        sampling=math.sqrt(q * (1 - q) * squares),
        bias=association * moved,
        assumed=f"Assumed: values spread evenly over {spread:.0%} of the bounds.",
        representative=1 - moved / 2,
    )
    return replace(error, in_column=error.total * spread * width)


def estimate_rank_noise(q: float, scale: float, spread: float, concentration: float) -> float:
    """Returns the root mean square rank error that the choice of a point makes.

    The chosen t has rank p with density ∝ exp(−|p − q|/scale) over the part that values fill, and
    two lumps at rank 0 and 1 for the points outside it. Ranks are multiples of one row's weight,
    which shows where the scale is no more than a few rows; gaps between neighbours vary as those of
    random values do, which adds 3/16 of a row over the scale.
    """
    rows = max(round(1 / concentration), 1)
    uneven = 1 + 3 / 16 / max(scale * rows, 1.0)
    if scale * rows < FEW_ROWS:
        ranks = (
            np.arange(
                max(math.floor(q * rows) - REACH, 0), min(math.ceil(q * rows) + REACH, rows) + 1
            )
            / rows
        )
        apart = np.concatenate([np.abs(ranks - q), [q, 1 - q]])
        size = np.append(np.full(len(ranks), spread / rows), [(1 - spread) / 2] * 2)
        likely = size * np.exp((apart.min() - apart) / scale)
        return min(math.sqrt(uneven * float(likely @ apart**2) / float(likely.sum())), 1.0)
    mass = second = 0.0
    for side in (q, 1 - q):
        tail = math.exp(-side / scale)
        mass += spread * scale * -math.expm1(-side / scale) + (1 - spread) / 2 * tail
        # ∫₀^side x²·e^(−x/scale) dx, by the incomplete gamma function: the plain form cancels for
        # large scales.
        inside = 2 * scale**3 * float(scipy.special.gammainc(3, side / scale))
        second += spread * inside + (1 - spread) / 2 * tail * side**2
    return min(math.sqrt(uneven * second / mass), 1.0)
