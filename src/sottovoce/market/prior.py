# SPDX-License-Identifier: Apache-2.0
"""What is known about costs before anybody reports one: the list of prices, and the law that costs
follow.

A report is rounded up to the next price of a public list, and what a step of that list costs the
buyer on average is its virtual cost (docs/theory/market.md, Theorem 4): the slope of the lower
convex hull of the points (F(g_k), g_k·F(g_k)), which needs no density and irons by itself wherever
the law is irregular.

    symbol   name
    g_k      Prices.values      ascending; the last one is the highest price that anybody is paid
    F        Prior.cdf          the law of costs, public
    Ψ_k      virtual_costs      nondecreasing; infinite above the law's support
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from sottovoce.arrays import Floats, to_doubles
from sottovoce.errors import InvalidBounds, InvalidParameter

#: Prices are whole multiples of a power of two with this many bits, so that money adds up exactly
#: in 64 bits.
PRICE_BITS = 25
#: No unit of ε costs more, and the dearest costs no less than one over it.
HIGHEST_PRICE = 1e15

_LAWS: dict[str, Callable[..., Any]] = {
    "uniform": lambda x: x,
    "normal": lambda x, mean, deviation: scipy.special.ndtr((x - mean) / deviation),
    "exponential": lambda x, scale: -np.expm1(-x / scale),
    "lognormal": lambda x, median, deviation: scipy.special.ndtr(
        (np.log(np.maximum(x, 1e-300)) - np.log(median)) / deviation
    ),
    "empirical": lambda x, *seen: np.searchsorted(seen, x, side="right") / len(seen),
    "given": lambda x, function: function(x),
}


@dataclass(frozen=True)
class Prior:
    """The law of a seller's cost on [low, high], known before anybody reports.

    >>> uniform(0.0, 2.0).cdf([0.5, 3.0]).tolist()
    [0.25, 1.0]
    """

    kind: str
    parameters: tuple[Any, ...]
    low: float
    high: float

    def __post_init__(self) -> None:
        _refuse_range(self.low, self.high)
        if not self._compute_mass() > 0:
            raise InvalidParameter(
                "The law gives no probability to its range.",
                "Costs between low and high must be possible.",
                "Widen the range, or choose another law.",
                parameter="prior.parameters",
            )

    def cdf(self, cost: ArrayLike) -> Floats:
        """Return the probability of a cost of at most this, given that it lies in the range.

        Parameters
        ----------
        cost : ArrayLike
            Costs.

        Returns
        -------
        Floats
            A probability each.
        """
        x = np.clip(np.asarray(cost, dtype=np.float64), self._lower_edge, self.high)
        return np.asarray(
            np.clip(
                (self._evaluate_law(x) - self._evaluate_law(self._lower_edge))
                / self._compute_mass(),
                0.0,
                1.0,
            )
        )

    @property
    def _lower_edge(self) -> float:
        # Just below the range, so that what lies exactly at its lower end counts.
        return float(np.nextafter(self.low, -math.inf))

    def _evaluate_law(self, x: Any) -> Any:
        with np.errstate(over="ignore"):  # far outside a law all is 0 or 1
            return _LAWS[self.kind](x, *self.parameters)

    def _compute_mass(self) -> float:
        return float(self._evaluate_law(self.high) - self._evaluate_law(self._lower_edge))


def to_number(value: Any) -> float:
    """Return a number as a float, and NaN, which no range holds, for anything else."""
    try:
        return float(value)
    except Exception:  # whatever somebody else's number raises
        return math.nan


def uniform(low: float, high: float) -> Prior:
    """Return the law by which every cost between low and high is equally likely.

    Parameters
    ----------
    low : float
        The lowest cost.
    high : float
        The highest cost.

    Returns
    -------
    Prior
        The law of costs.

    Raises
    ------
    InvalidInput
        A number cannot be used.
    """
    return Prior("uniform", (), to_number(low), to_number(high))


def normal(mean: float, deviation: float, low: float, high: float) -> Prior:
    """Return a normal law, cut to the range.

    Parameters
    ----------
    mean : float
        The middle before the cut.
    deviation : float
        The standard deviation before the cut.
    low : float
        The lowest cost.
    high : float
        The highest cost.

    Returns
    -------
    Prior
        The law of costs.

    Raises
    ------
    InvalidInput
        A number cannot be used.
    """
    _refuse_unless(math.isfinite(to_number(mean)), "mean", "finite")
    _refuse_unless(to_number(deviation) > 0, "deviation")
    return Prior("normal", (to_number(mean), to_number(deviation)), to_number(low), to_number(high))


def exponential(scale: float, low: float, high: float) -> Prior:
    """Return an exponential law, cut to the range.

    Parameters
    ----------
    scale : float
        The mean before the cut.
    low : float
        The lowest cost.
    high : float
        The highest cost.

    Returns
    -------
    Prior
        The law of costs.

    Raises
    ------
    InvalidInput
        A number cannot be used.
    """
    _refuse_unless(to_number(scale) > 0, "scale")
    return Prior("exponential", (to_number(scale),), to_number(low), to_number(high))


def lognormal(median: float, deviation: float, low: float, high: float) -> Prior:
    """Return a law whose logarithm is normal, cut to the range.

    Parameters
    ----------
    median : float
        The median before the cut.
    deviation : float
        The standard deviation of the logarithm.
    low : float
        The lowest cost.
    high : float
        The highest cost.

    Returns
    -------
    Prior
        The law of costs.

    Raises
    ------
    InvalidInput
        A number cannot be used.
    """
    _refuse_unless(to_number(median) > 0, "median")
    _refuse_unless(to_number(deviation) > 0, "deviation")
    return Prior(
        "lognormal", (to_number(median), to_number(deviation)), to_number(low), to_number(high)
    )


def empirical(seen: ArrayLike, high: float | None = None) -> Prior:
    """Return the law of costs seen before: never the reports that are to be paid.

    Parameters
    ----------
    seen : ArrayLike
        Costs in an earlier market.
    high : float, optional
        The highest cost; that of those seen if not given.

    Returns
    -------
    Prior
        The law of costs.

    Raises
    ------
    InvalidInput
        A number cannot be used.

    Examples
    --------
    >>> empirical([1.0, 2.0, 2.0, 4.0]).cdf([1.0, 2.0, 3.0, 4.0]).tolist()
    [0.25, 0.75, 0.75, 1.0]
    """
    costs = np.sort(to_doubles(seen, "seen", "seen").ravel())
    if not (len(costs) and np.all(np.isfinite(costs))):
        raise InvalidParameter(
            "There are no costs seen before, or one is not finite.",
            "The law of costs is made from them.",
            "Pass finite numbers.",
            parameter="seen",
        )
    return Prior(
        "empirical",
        tuple(costs.tolist()),
        float(costs[0]),
        to_number(costs[-1] if high is None else high),
    )


def given(cdf: Callable[[Any], Any], low: float, high: float) -> Prior:
    """Return any law, by its distribution function, cut to the range.

    Parameters
    ----------
    cdf : Callable[[Any], Any]
        The distribution function.
    low : float
        The lowest cost.
    high : float
        The highest cost.

    Returns
    -------
    Prior
        The law of costs.

    Raises
    ------
    InvalidInput
        A number cannot be used.
    """
    if not callable(cdf):
        raise InvalidParameter(
            "The law of costs is not a function.",
            "It is a distribution function.",
            "Pass one that can be called.",
            parameter="cdf",
        )
    return Prior("given", (cdf,), to_number(low), to_number(high))


@dataclass(frozen=True, eq=False)
class Prices:
    """The public list of prices for a unit of ε: whole numbers of 2^exponent, ascending."""

    whole: NDArray[np.int64]
    exponent: int

    @classmethod
    def between(cls, low: float, high: float, steps: int) -> Prices:
        """Return prices in equal distances, above low and up to high.

        Parameters
        ----------
        low : float
            Below the first.
        high : float
            The last.
        steps : int
            How many.

        Returns
        -------
        Prices
            The prices.

        Raises
        ------
        InvalidParameter
            A number cannot be used.
        InvalidBounds
            The highest is too large or too small for exact sums.
        """
        _refuse_range(low, high)
        if not (isinstance(steps, int | np.integer) and 1 <= steps <= 2**14):
            raise InvalidParameter(
                "The number of prices is not a whole number between 1 and 16384.",
                "",
                "Pass prices=128, or a list.",
                parameter="prices",
            )
        _refuse_highest(high)  # before a product with it overflows
        return cls.from_values(low + (high - low) * np.arange(1, steps + 1) / steps)

    @classmethod
    def from_values(cls, prices: ArrayLike) -> Prices:
        """Return prices as given, each rounded up by less than a 2^24th of the highest.

        Parameters
        ----------
        prices : ArrayLike
            The prices.

        Returns
        -------
        Prices
            The prices.

        Raises
        ------
        InvalidParameter
            They are not positive and rising.
        InvalidBounds
            The highest is too large or too small for exact sums.
        """
        values = to_doubles(prices, "prices", "prices").ravel()
        if not (values.size and np.all(np.isfinite(values)) and values[0] >= 0 and values[-1] > 0):
            raise _unordered_prices_error()
        _refuse_highest(float(values[-1]))
        exponent = math.frexp(float(values[-1]))[1] - PRICE_BITS
        whole = np.ceil(np.ldexp(values, -exponent)).astype(np.int64)
        if np.any(np.diff(whole) <= 0):
            raise _unordered_prices_error()
        return cls(whole, exponent)

    def __len__(self) -> int:
        return len(self.whole)

    @property
    def values(self) -> Floats:
        """The prices, exactly."""
        return np.ldexp(self.whole.astype(np.float64), self.exponent)

    def up_to(self, limit: float) -> Prices:
        """Return the prices up to a limit, which becomes the last unless it lies above all.

        Parameters
        ----------
        limit : float
            The limit.

        Returns
        -------
        Prices
            The prices.

        Raises
        ------
        InvalidParameter
            The limit cannot be used.
        """
        values = self.values
        limit = to_number(limit)
        if not limit > 0:
            raise InvalidParameter(
                "The reserve price is not positive.",
                "",
                "Pass a price, or none.",
                parameter="reserve",
            )
        if limit >= values[-1]:
            return self
        return Prices.from_values(np.append(values[values < limit], limit))

    def step(self, costs: Floats) -> NDArray[np.int64]:
        """Return for each report the first price that is not below it.

        Parameters
        ----------
        costs : Floats
            The reports.

        Returns
        -------
        NDArray[np.int64]
            Numbers of prices; len(self) where there is none.
        """
        return np.searchsorted(self.values, costs, side="left").astype(np.int64)


def virtual_costs(prior: Prior, prices: Prices) -> Floats:
    """Return Ψ, ironed: what a unit of ε bought at each price costs on average.

    For a uniform law it is g_k + g_{k−1} − low, the middle of a step's 2c − low.

    Parameters
    ----------
    prior : Prior
        The law of costs.
    prices : Prices
        The prices.

    Returns
    -------
    Floats
        Ψ by price, payments for lower costs included.

    Examples
    --------
    >>> virtual_costs(uniform(1.0, 2.0), Prices.from_values([1.25, 1.5, 1.75, 2.0])).round(
    ...     9
    ... ).tolist()
    [1.25, 1.75, 2.25, 2.75]
    """
    share = prior.cdf(prices.values)
    price = prices.values
    before = np.append(0.0, share[:-1])
    x, y = _find_hull(share, price * share)
    # A price that no cost leads to is treated like the next one that a cost leads to.
    edge = np.where(
        share > before, np.searchsorted(x, share), np.searchsorted(x, share, side="right")
    )
    slopes = np.append(np.diff(y) / np.diff(x), math.inf)
    return np.asarray(np.maximum.accumulate(slopes[edge - 1]), dtype=np.float64)


def is_regular(prior: Prior, prices: Prices) -> bool:
    """Whether virtual costs rise with the price by themselves, so that nothing had to be ironed."""
    share = prior.cdf(prices.values)
    price = prices.values
    kept = np.diff(np.append(0.0, share)) > 0
    slopes = np.diff(np.append(0.0, (price * share)[kept])) / np.diff(np.append(0.0, share[kept]))
    return bool(np.all(np.diff(slopes) >= -1e-9 * price[-1]))


def _find_hull(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the corners of the lower convex hull of the origin and the points.

    The first of equal x counts.
    """
    corners = [(0.0, 0.0)]
    for point in zip(x.tolist(), y.tolist(), strict=True):
        if point[0] <= corners[-1][0]:
            continue
        while len(corners) > 1 and _lies_above(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    hull = np.array(corners)
    return hull[:, 0], hull[:, 1]


def _lies_above(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


def _refuse_highest(price: float) -> None:
    if not 1 / HIGHEST_PRICE <= price <= HIGHEST_PRICE:
        raise InvalidBounds(
            f"The highest price of a unit of ε lies above {HIGHEST_PRICE:g} or below "
            f"{1 / HIGHEST_PRICE:g}.",
            "Sums of so large or so small amounts would not be exact.",
            "Count in a larger or smaller unit of money.",
            parameter="cost_range",
        )


def _refuse_range(low: float, high: float) -> None:
    if not (0 <= low < high < math.inf):
        raise InvalidBounds(
            "The range of costs is missing, reversed, empty, negative or not finite.",
            "Costs of a unit of ε lie between a low and a higher number, both public.",
            "Pass cost_range=(low, high), from public knowledge and not from the reports.",
            parameter="cost_range",
        )


def _refuse_unless(fine: bool, parameter: str, needed: str = "positive") -> None:
    if not fine:
        raise InvalidParameter(
            f"The {parameter} of the law of costs is not {needed}.",
            "",
            "Correct it, from public knowledge.",
            parameter=parameter,
        )


def _unordered_prices_error() -> InvalidParameter:
    return InvalidParameter(
        "The prices do not ascend, or are too close to each other.",
        "Prices are finite, at least 0, and more than a 2^24th of the highest apart.",
        "Pass fewer prices, or a wider range of costs.",
        parameter="prices",
    )
