# SPDX-License-Identifier: Apache-2.0
"""Intervals: between which numbers the value of the population lies, as far as a release tells.

An interval is computed from a release alone, so it costs nobody anything: from the law of the
noise, which is public, and from what is known of the sampling, which is bought, released or bounded
by public numbers. It covers what the answer would be for the whole population of which the rows are
a sample, with at least the stated probability over the rows that were drawn and over the noise.

What budgets may have to do with values is not in it: how far that may move the answer stands apart
(``bias``).

    name           what it is
    level          the probability with which low ≤ value ≤ high, at least
    low, high      the ends: a number, a list (several quantiles), or a dict by coefficient
    noise          half the width that noise alone would have at this level
    sampling       half the width that sampling alone would have at this level
    bias           how far budgets that go along with values may move the answer besides
    sampling_from  where the sampling part comes from, in words
    of             what is covered, in words
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy.optimize import brentq
from scipy.special import erfcx, ndtr, ndtri

from sottovoce.errors import InvalidParameter

#: The level of the interval that every release carries.
LEVEL = 0.95

#: A number, one for each quantile, or one by the name of a coefficient (of a classifier with
#: several functions, by the name of the function first).
Numbers = float | list[float] | dict[str, Any]


@dataclass(frozen=True)
class Intervals:
    """The intervals of a release at one level; each part has the shape of the answer."""

    level: float
    low: Numbers
    high: Numbers
    noise: Numbers
    sampling: Numbers
    sampling_from: str
    of: str
    bias: Numbers | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the intervals as public JSON.

        Returns
        -------
        dict[str, Any]
            Names and numbers; what is not known is left out.
        """
        return {name: value for name, value in self.__dict__.items() if value is not None}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Intervals:
        """Read intervals back.

        Parameters
        ----------
        content : dict[str, Any]
            As ``to_dict`` wrote it.

        Returns
        -------
        Intervals
            The intervals.
        """
        return cls(**content)

    def pairs(self) -> Any:
        """Return (low, high) in the shape of the answer.

        Returns
        -------
        Any
            A pair, a list of pairs, or a dict of pairs by name.
        """
        return _join_ends(self.low, self.high)


def check_level(level: Any) -> float:
    """Returns the level; refuses what is no probability between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise InvalidParameter(
            "The level is not a probability.",
            "It lies above 0 and below 1.",
            "Pass a number such as 0.95.",
            parameter="level",
        )
    return float(level)


def no_interval_error() -> InvalidParameter:
    """The refusal of an interval where none is known that keeps its level."""
    return InvalidParameter(
        "This estimator has no interval.",
        "An interval follows from the release alone, and keeps its level whatever the rows are.",
        "Use the expected error of the release, which says how far the answer is typically off.",
    )


def _join_ends(low: Any, high: Any) -> Any:
    if isinstance(low, dict):
        return {name: _join_ends(low[name], high[name]) for name in low}
    if isinstance(low, list):
        return [_join_ends(a, b) for a, b in zip(low, high, strict=True)]
    return (low, high)


def compute_half_width(level: float, laplace: float, deviation: float) -> float:
    """Returns x with P(|L + G| ≤ x) = level, L of Laplace's law and G normal, independent.

    P(L + G > x) = Φ̄(z) + ½·[e^(r²/2 − rz)·Φ(z − r) − e^(r²/2 + rz)·Φ̄(z + r)] for the scale b, the
    deviation s, z = x/s and r = s/b; e^(a²/2)·Φ̄(a) is written as one function, which does not
    overflow.
    """
    if deviation <= 0 or laplace <= 0:
        alone = -laplace * math.log1p(-level)
        return max(alone, deviation * float(ndtri(0.5 + level / 2)))
    r = deviation / laplace

    def exceeds(x: float) -> float:
        z = x / deviation
        density = math.exp(-(z**2) / 2) / 2
        if z < r:
            near = density * float(erfcx((r - z) / math.sqrt(2)))
        else:
            near = math.exp(r**2 / 2 - r * z) * float(ndtr(z - r))
        far = density * float(erfcx((r + z) / math.sqrt(2)))
        return float(ndtr(-z)) + (near - far) / 2 - (1 - level) / 2

    top = compute_half_width(0.5 + level / 2, laplace, 0.0)
    top += compute_half_width(0.5 + level / 2, 0.0, deviation)
    return float(brentq(exceeds, 0.0, top, xtol=top * 1e-12))
