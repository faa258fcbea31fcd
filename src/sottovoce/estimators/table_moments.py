# SPDX-License-Identifier: Apache-2.0
"""What the slots of a cell say of its values: sums of linear functions and of squares, and how far
an interval must reach (docs/theory/tables.md, section on intervals).

A value u of [0, 1] adds (u, 1 − u) to two slots, or (u², 2u(1 − u), (1 − u)²) to three: Bernstein's
polynomials, which are not negative and sum to one. A linear function f is Σ f(k/d)·slot on d + 1
slots; a square (u − m)² is known where there are three of them. Three slots cost nobody more ε, and
sums and means a little more noise: at a mean of m, (1 − m)² + (½ − m)² + m² for (1 − m)² + m².

    symbol    name
    T(m)      Σ c_i·(u_i − m) over a cell, 0 on average at the population's mean m
    Q(m)      Σ c_i·(u_i − m)², of which a noisy number is known
    d_e       people of a group that count: its share over Σ W_l²
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.budgets import BudgetGroups
from sottovoce.data.cells import Cells
from sottovoce.data.encoding import Label
from sottovoce.estimators.table_law import INDEPENDENT_SCALE, NoiseLaw
from sottovoce.estimators.table_mechanism import (
    SPARE_BITS,
    NoisyTable,
    TableGrid,
    calibrate_table,
    list_parts,
)
from sottovoce.noise.zero_sum import MOST_CELLS
from sottovoce.release import LEVEL
from sottovoce.weights import Weights

#: What a margin is calibrated by: nodes of each slot's noise on either side, variances that are
#: tried, and how much of a miss is left to the quadrature.
NODES = 7
VARIANCES = 18
MARGIN_HALVINGS = 9
QUADRATURE = 0.01
#: How well squares are known, in units of the noise of a sum: within these limits.
LEAST_KNOWN = 2.0**-3
MOST_KNOWN = 2.0**12
#: Squares are worth their slots where the expected interval becomes so much narrower, and the error
#: against the population grows by no more than this.
NARROWER = 0.85
MOST_ERROR = 1.075
#: Values of sums and means whose slots hold squares are rounded to 2^-14 of the noise, as squares:
#: a mean is then off by less than a twentieth of its error, whatever its values are.
SQUARE_SPARE_BITS = 14


def plan_slots(
    kinds: BudgetGroups,
    cell: ExpectedCell,
    spreads: tuple[float, float],
    cells: Cells,
    label: Label,
    squares: bool | None = None,
) -> tuple[Weights, TableGrid]:
    """Returns weights and grid of sums and means: of slots that hold squares too, where the plan
    prefers that.

    Parameters are the deviation of what a row adds and how far people with one budget may lie from
    everybody's; ``squares`` is whether squares are wanted, None for what public numbers suggest.
    """
    deviation, association = spreads

    def calibrate(degree: int) -> tuple[Weights, TableGrid]:
        law = choose_law(cells, label.missing, degree)
        noise = law.compute_variance(*expand_linear(degree, cell.at_one, cell.at_zero))
        return calibrate_table(
            kinds,
            deviation**2 / noise,
            association**2 / noise,
            cells,
            degree,
            (label.low, label.high),
            label.missing,
            SQUARE_SPARE_BITS if degree == 2 else SPARE_BITS,
        )

    weights, grid = calibrate(1)
    if squares is None:
        squares = prefers_squares(
            cell,
            (choose_law(cells, label.missing, 1), choose_law(cells, label.missing, 2)),
            weights.noise_ratio,
            weights.measure_people_concentration(kinds),
            float(weights.person.max() / weights.total),
        )
    if squares:
        return calibrate(2)
    return weights, grid


def describe_squares(grid: TableGrid) -> str:
    """Returns where intervals will know from how far values spread, in words."""
    if grid.degree == 2:
        return (
            " The slots hold squares too, at no cost in ε: intervals will know from them how far "
            "values spread."
        )
    return " Intervals will take from the bounds how far values may spread."


def name_sampling_source(table: NoisyTable, otherwise: str) -> str:
    """Returns what the sampling part of an interval rests on, in words."""
    if get_degree(table) == 2:
        return "squares that are in the same noisy slots, at no cost"
    return otherwise


def choose_law(cells: Cells, missing: float | None, degree: int = 1) -> NoiseLaw:
    """Returns the law of the noise of a table's slots."""
    return NoiseLaw.choose(cells.size * len(list_parts(degree, missing)))


def expand_linear(degree: int, at_one: float, at_zero: float) -> tuple[float, ...]:
    """Returns the coefficients of a linear function of u on the slots of a cell.

    >>> expand_linear(2, 1.0, 0.0)
    (1.0, 0.5, 0.0)
    """
    if degree == 1:
        return (at_one, at_zero)
    return (at_one, at_one / 2 + at_zero / 2, at_zero)


def expand_square(at_one: float, at_zero: float) -> tuple[float, float, float]:
    """Returns the coefficients on three slots of the square of a linear function of u."""
    return (at_one**2, at_one * at_zero, at_zero**2)


def get_degree(table: NoisyTable) -> int:
    """Returns of which degree the slots of a table are."""
    return table.value_parts - 1


def apply_to_slots(shares: Floats, coefficients: tuple[float, ...]) -> Floats:
    """Returns Σ coefficient·slot by cell, over the slots of rows with a value."""
    return np.asarray(shares[:, : len(coefficients)] @ np.array(coefficients))


def find_square_margin(
    ratio: float, people: float, level: float, at_one: float, at_zero: float
) -> float:
    """Returns what is added to the noisy mean square of a linear function, so that the interval
    made of it misses no more often than it says, whatever the variance is.
    """
    size = max(abs(at_one), abs(at_zero))
    # What is added grows a little faster than this number, so that the next larger one serves.
    known = size * people / ratio
    power = math.ceil(2 * math.log2(min(max(known, LEAST_KNOWN), MOST_KNOWN)))
    one, zero = sorted((abs(at_one) / size, abs(at_zero) / size), reverse=True)
    sign = math.copysign(1.0, at_one) * math.copysign(1.0, at_zero)
    return size**2 * ratio * _calibrate_margin(level, 2.0 ** (power / 2), one, sign * zero)


@lru_cache(maxsize=512)
def _calibrate_margin(level: float, known: float, at_one: float, at_zero: float) -> float:
    """Returns the smallest margin, in units of ρ, for which no variance is missed too often.

    In these units T is off by Σ t_j·Z_j + G, Z of Laplace's law with the scale 2 and G normal with
    the variance s², and of s² is known what ``known``·(Σ q_j·Z_j + margin) makes of it: the same
    three numbers. How often the interval misses is an integral over them, computed for every s².
    """
    from scipy.special import ndtr

    Z, masses = _list_noise_nodes(level)
    linear = expand_linear(2, at_one, at_zero)
    off = Z @ np.array(linear)
    apart = known * (Z @ np.array(expand_square(at_one, at_zero)))
    unit = max(known, 1.0)
    variance = unit * np.geomspace(3e-3, 3e2, VARIANCES)
    grid = np.concatenate([[0.0], unit * np.geomspace(1e-4, 1e4, 300)])
    widths = NoiseLaw(MOST_CELLS + 1, False).find_half_widths(level, np.sqrt(grid), *linear)

    def misses_too_often(margin: float) -> bool:
        for s2 in variance:
            reach = np.interp(np.maximum(s2 + apart + known * margin, 0.0), grid, widths)
            deviation = math.sqrt(s2)
            often = ndtr((off - reach) / deviation) + ndtr((-off - reach) / deviation)
            if float(often @ masses) > (1 - level) * (1 + QUADRATURE):
                return True
        return False

    low = 0.0
    high = -8 * math.log(1 - level)
    for _ in range(MARGIN_HALVINGS):
        middle = (low + high) / 2
        if misses_too_often(middle):
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=8)
def _list_noise_nodes(level: float) -> tuple[Floats, Floats]:
    """Returns triples of independent Laplace numbers of scale 2 with their masses, finer where one
    of them is as large as the level leaves out.
    """
    places = (np.arange(NODES) + 0.5) / NODES
    power = math.log(10 / (1 - level)) / math.log(2 * NODES)
    tails = (1 - places) ** power
    masses = power * (1 - places) ** (power - 1)
    masses = np.concatenate([masses[::-1], masses])
    masses /= masses.sum()
    sizes = -INDEPENDENT_SCALE * np.log(tails)
    numbers = np.concatenate([-sizes[::-1], sizes])
    Z = np.stack(np.meshgrid(numbers, numbers, numbers, indexing="ij"), axis=-1).reshape(-1, 3)
    together = masses[:, None, None] * masses[None, :, None] * masses[None, None, :]
    return Z, np.asarray(together.ravel())


def widen_as_student(level: float, freedom: Any) -> Floats:
    """Returns by how much a variance that so many people tell is raised, as Student's law has it
    for means of normal values.
    """
    from scipy.special import ndtri, stdtrit

    degrees = np.maximum(freedom, 1.0)
    ratio = stdtrit(degrees, 0.5 + level / 2) / float(ndtri(0.5 + level / 2))
    return np.asarray(ratio**2 * (degrees + 1) / degrees)


def find_steps(table: NoisyTable, square: Floats, most: Any) -> Floats:
    """Returns half a step of a sum, because people come whole: half the heaviest weight where
    values are at one end or the other, less where their mean square is less than that.
    """
    share = np.clip(square / np.maximum(most, 1e-300), 0.0, 1.0)
    return np.asarray(table.heaviest / 2 * share)


@dataclass(frozen=True)
class ExpectedCell:
    """What is expected of a cell, in public numbers: its share of the rows, and the mean of a
    linear function f of u in it, with the deviation of f.
    """

    share: float
    at_one: float  # f of the upper bound
    at_zero: float
    mean: float
    spread: float
    centred: bool  # whether f is 0 on average by itself, as T(m) is

    @property
    def square(self) -> float:
        """The mean square of f over rows that are in the cell, and 0 for others."""
        return self.share * (self.mean**2 + self.spread**2)

    @property
    def bound(self) -> float:
        """What that mean square is at most, by the bounds and the mean alone."""
        place = (self.mean - self.at_zero) / (self.at_one - self.at_zero)
        return self.share * (place * self.at_one**2 + (1 - place) * self.at_zero**2)

    @property
    def taken(self) -> float:
        """What is taken off a mean square to make it a variance."""
        return 0.0 if self.centred else (self.share * self.mean) ** 2


def prefers_squares(
    cell: ExpectedCell,
    laws: tuple[NoiseLaw, NoiseLaw],
    ratio: float,
    people: float,
    heaviest: float,
) -> bool:
    """Whether three slots make the expected interval so much narrower than two with bounds do, and
    the error hardly larger; from public numbers.
    """
    two, three = laws
    linear = [expand_linear(degree, cell.at_one, cell.at_zero) for degree in (1, 2)]
    sampling = people * (cell.square - cell.taken)
    errors = [
        np.sqrt(ratio**2 * law.compute_variance(*line) + sampling)
        for law, line in zip(laws, linear, strict=True)
    ]
    if errors[1] > MOST_ERROR * errors[0]:
        return False
    bound = people * max(cell.bound - cell.taken, 0.0)
    free = two.find_half_widths(LEVEL, np.sqrt([bound]) / ratio, *linear[0])
    margin = find_square_margin(ratio, people, LEVEL, cell.at_one, cell.at_zero)
    margin += heaviest * max(cell.at_one**2, cell.at_zero**2)
    known = three.find_half_widths(LEVEL, np.sqrt([sampling + people * margin]) / ratio, *linear[1])
    return bool(known[0] <= NARROWER * free[0])
