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
    why            where there is no interval: why not, in words

An end that is None is not known: nothing that the release says leaves any number out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.errors import InvalidParameter

#: The level of the interval that every release carries.
LEVEL = 0.95

#: Below this a deviation is none.
TINY = 1e-12
#: How often a range is halved to find a number in it.
HALVINGS = 60
MARGIN_HALVINGS = 14
#: Into how many parts of equal probability a law is cut, and how many variances are tried.
NODES = 800
VARIANCES = 40

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
    why: str | None = None

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
            A pair, a list of pairs, or a dict of pairs by name; infinite where an end is not known.
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


def no_interval_error(why: str | None = None) -> InvalidParameter:
    """The refusal of an interval where none is known that keeps its level."""
    return InvalidParameter(
        why or "This estimator has no interval.",
        "An interval follows from the release alone, and keeps its level whatever the rows are.",
        "Use the expected error of the release, which says how far the answer is typically off.",
    )


def _join_ends(low: Any, high: Any) -> Any:
    if isinstance(low, dict):
        return {name: _join_ends(low[name], high[name]) for name in low}
    if isinstance(low, list):
        return [_join_ends(a, b) for a, b in zip(low, high, strict=True)]
    return (-math.inf if low is None else low, math.inf if high is None else high)


def compute_half_width(level: float, laplace: float, deviation: float) -> float:
    """Returns x with P(|L + G| ≤ x) = level, L of Laplace's law and G normal, independent."""
    from scipy.optimize import brentq  # here and below: a release opens without SciPy
    from scipy.special import ndtri

    if laplace <= 0:
        return deviation * float(ndtri(0.5 + level / 2))
    ratio = np.float64(deviation / laplace)
    top = -math.log((1 - level) / 2) + float(ratio) * float(-ndtri((1 - level) / 4))
    return laplace * float(
        brentq(lambda x: float(compute_miss(x, ratio)) - (1 - level), 0.0, top, rtol=1e-12)
    )


def compute_miss(x: Any, deviation: Any) -> Floats:
    """Returns P(|L + G| > x), L of Laplace's law with scale 1 and G normal, independent.

    P(L + G > x) = Φ̄(z) + ½·[e^(r²/2 − rz)·Φ(z − r) − e^(r²/2 + rz)·Φ̄(z + r)] for the deviation r
    and z = x/r; e^(a²/2)·Φ̄(a) is written as one function, which does not overflow.
    """
    from scipy.special import erfcx, ndtr

    r = np.maximum(deviation, TINY)
    z = x / r
    density = np.exp(-(z**2) / 2) / 2
    inner = density * erfcx(np.maximum(r - z, 0.0) / math.sqrt(2))
    outer = np.exp(np.minimum(r**2 / 2 - x, 0.0)) * ndtr(z - r)
    near = np.where(z < r, inner, outer)
    far = density * erfcx((r + z) / math.sqrt(2))
    return np.asarray(2 * ndtr(-z) + near - far, dtype=np.float64)


def _find_half_widths(level: float, deviation: Floats) -> Floats:
    """Returns x with P(|L + G| ≤ x) = level for each deviation, L of scale 1; by halving."""
    from scipy.special import ndtri

    tail = 1 - level
    low = np.zeros_like(deviation)
    high = -math.log(tail / 2) + deviation * float(-ndtri(tail / 4))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        misses = compute_miss(middle, deviation) > tail
        low = np.where(misses, middle, low)
        high = np.where(misses, high, middle)
    return high


@lru_cache(maxsize=256)
def calibrate_margin(level: float, laplace: float, scale: float) -> float:
    """Returns what must be added to a variance that was released with Laplace noise of this scale,
    so that the interval made of it misses no more often than it says, whatever the variance is.

    The answer is off by L + G, L with the scale ``laplace`` and G normal with the variance s². Of
    s² + N is known, N with the scale ``scale``. The interval has the half-width x(s² + N + m) at
    the level. How often it misses is an integral over N, computed for every s², and m is the
    smallest number for which none is above 1 − level (docs/theory/mean.md).
    """
    unit = max(laplace, math.sqrt(scale) * 1e-3)
    c = scale / unit**2
    share = (np.arange(NODES) + 0.25) / NODES
    noise = c * np.where(share < 0.5, np.log(2 * share), -np.log(2 - 2 * share))
    variance = c * np.geomspace(1e-3, 1e3, VARIANCES)
    known = np.geomspace(1e-6 * min(c, 1.0), 1e4 * c + 1, 400)
    widths = _find_half_widths(level, np.sqrt(known))

    def misses_too_often(margin: float) -> bool:
        told = np.maximum(variance[:, None] + noise + margin, 0.0)
        reach = np.interp(told, known, widths)
        deviation = np.sqrt(variance)[:, None] * np.ones_like(told)
        often = compute_miss(reach, deviation).mean(axis=1)
        return bool(often.max() > 1 - level)

    low = 0.0
    high = -c * math.log(1 - level)
    for _ in range(MARGIN_HALVINGS):
        middle = (low + high) / 2
        if misses_too_often(middle):
            low = middle
        else:
            high = middle
    return high * unit**2


def find_rank_margin(level: float, candidates: int, scale: float, deviation: float) -> float:
    """Returns how much rank a chosen interval must aim at on either side, so that it misses the
    population's quantile no more often than 1 − level.

    Of these many candidates one is chosen whose rank on the worse side is below x with a
    probability of at most candidates·e^(−(t − x)/scale) if t is aimed at; the sample's rank of the
    quantile is off by a normal G. So it misses with a probability of at most E min(1,
    candidates·e^(−(t − |G|)/scale)), which falls in t (docs/theory/quantile.md).
    """
    from scipy.special import ndtri

    share = (np.arange(NODES) + 0.5) / NODES
    off = deviation * -ndtri(share / 2)

    def miss(aim: float) -> float:
        worst = np.log(candidates) - (aim - off) / scale
        return float(np.exp(np.minimum(worst, 0.0)).mean())

    low = 0.0
    high = deviation * 10 + scale * math.log(2 * candidates / (1 - level))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if miss(middle) > 1 - level:
            low = middle
        else:
            high = middle
    return high
