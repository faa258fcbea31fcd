# SPDX-License-Identifier: Apache-2.0
"""What a regression is expected to miss of least squares on the same table (docs/theory/errors.md).

The error is the root mean square difference of predictions over the rows of the table. It depends
on facts that only the table knows, so a plan takes typical ones, the same for every method; labels
are scaled to [−1, 1]:

    symbol  name
    s       spread of the labels: a tenth of their range, or what was declared
    ψ       the share of the labels' variance that slopes explain, .6
    m₂      the squared distance of the labels' mean from the middle of their range, .16
    C, μ²   variance and squared mean of a recoded column: one of three kinds of column, each as
            likely
    q²      ψs²/(pC), the squared slope that explains its part of ψs²
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sottovoce.budgets import Budgets
from sottovoce.data.encoding import Recoding
from sottovoce.plan import ASSOCIATION, ExpectedError, least_squares, measure_inequality
from sottovoce.rounding import format_number
from sottovoce.weights import Weights

#: s, ψ and m₂ where nothing is declared.
SPREAD = 0.2
EXPLAINED = 0.6
OFFSET = 0.16
#: Kinds of columns: (variance, squared mean) in units of the variance of a column that fills its
#: bounds evenly.
COLUMNS = ((1.0, 0.0), (0.4, 0.6), (0.15, 1.2))


@dataclass(frozen=True)
class SquaredErrorParts:
    """Squared parts of an expected error, in units of half the label's range."""

    noise: float
    sampling: float
    shrinkage: float

    @property
    def total(self) -> float:
        """The expected squared error."""
        return self.noise + self.sampling + self.shrinkage

    @classmethod
    def mean(cls, parts: list[SquaredErrorParts]) -> SquaredErrorParts:
        """The geometric mean of several, part by part: they differ by factors, not by amounts."""
        columns = (
            [getattr(part, name) for part in parts] for name in ("noise", "sampling", "shrinkage")
        )
        return cls(
            *(
                float(np.exp(np.mean(np.log(column)))) if min(column) > 0 else 0.0
                for column in columns
            )
        )

    def scale_by(self, factor: float) -> SquaredErrorParts:
        """The same in another unit."""
        return SquaredErrorParts(
            self.noise * factor, self.sampling * factor, self.shrinkage * factor
        )


@dataclass(frozen=True)
class PublicFacts:
    """The public facts, and the typical ones in the place of what only the table knows."""

    slopes: int  # p
    even: float  # variance of a recoded column whose values fill their bounds evenly, on average
    squares: float  # Σ(c_i − 1/n)²
    spread: float = SPREAD

    @classmethod
    def of(cls, recoding: Recoding, budgets: Budgets, weights: Weights) -> PublicFacts:
        """From what a plan knows."""
        spreads = recoding.estimate_spread()
        if len(spreads):
            even = float(np.square(spreads).mean())
        else:
            even = 1 / 12
        return cls(recoding.width, even, measure_inequality(budgets, weights)[0])

    @property
    def columns(self) -> list[tuple[float, float, float]]:
        """C, μ² and q² of each kind of column."""
        kinds = [(self.even * C, self.even * m) for C, m in COLUMNS]
        return [(C, m, self.explained_variance / (max(self.slopes, 1) * C)) for C, m in kinds]

    @property
    def explained_variance(self) -> float:
        """ψs², the variance that slopes explain; nothing without slopes."""
        if self.slopes:
            return EXPLAINED * self.spread**2
        return 0.0

    @property
    def residual(self) -> float:
        """The variance that slopes leave."""
        return self.spread**2 - self.explained_variance


def make_expected_error(
    parts: SquaredErrorParts,
    facts: PublicFacts,
    budgets: Budgets,
    weights: Weights,
    half: float,
    more: str = "",
    besides: float = 0.0,
) -> ExpectedError:
    """Returns the expected error of a regression in the label's own unit; ``besides`` is added to
    the possible bias.
    """
    assumed = (
        f"Assumed: labels spread by {format_number(facts.spread * half)}, of whose variance "
        "slopes explain 60 %."
    )
    return ExpectedError(
        classical=least_squares(fit_intercept=True),
        unit="in units of the label",
        noise=math.sqrt(parts.noise) * half,
        sampling=math.sqrt(parts.sampling) * half,
        shrinkage=math.sqrt(parts.shrinkage) * half,
        bias=(ASSOCIATION * facts.spread * measure_inequality(budgets, weights)[1] + besides)
        * half,
        assumed=f"{assumed} {more}".strip(),
    )


def estimate_ridge_error(
    facts: PublicFacts,
    ridge: float,
    intercept: float,
    moved: float,
    coordinate_noise: float,
    posterior_noise: float = 0.0,
) -> SquaredErrorParts:
    """Returns the parts for a ridge solution with noise: of one variance on every coordinate, or by
    inverse moments.

    Rows are (i, z + v): i is the ``intercept`` column and v, ``moved``, the same for every column.
    Columns have the mean μ in random directions, so that the second moments of a row have one block
    of two coordinates (the intercept, and the direction of all columns' means) and C in every
    other:

        B = [[i², i|m|], [i|m|, C + |m|²]],   |m|² = p·(μ² + v²)

    λ(B + λ)⁻¹ of the coefficients is lost, whose intercept makes the prediction at the mean of the
    columns √m₂.
    """
    kinds = []
    for C, mu, q in facts.columns:
        p = facts.slopes
        m = math.sqrt(facts.slopes * (mu + moved**2))
        B = np.array([[intercept**2, intercept * m], [intercept * m, C + m * m]])
        i = intercept or 1.0
        size = np.array([[(OFFSET + m * m * q) / i**2, -m * q / i], [-m * q / i, q]])
        there = np.ix_(*[[place for place, has in enumerate((intercept > 0, p > 0)) if has]] * 2)
        B = B[there]
        size = size[there]
        stiff = np.linalg.inv(B + ridge * np.eye(len(B)))
        lost = ridge * stiff
        rest = max(p - 1, 0)
        left = ridge / (C + ridge)
        freedom = float(np.trace(B @ stiff @ B @ stiff)) + rest * (C / (C + ridge)) ** 2
        kinds.append(
            SquaredErrorParts(
                coordinate_noise * (float(np.trace(B)) + rest * C)
                + posterior_noise * (float(np.trace(B @ stiff)) + rest * C / (C + ridge)),
                facts.residual * facts.squares * freedom,
                float(np.trace(B @ lost @ size @ lost.T)) + rest * C * left**2 * q,
            )
        )
    return SquaredErrorParts.mean(kinds)
