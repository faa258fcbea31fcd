# SPDX-License-Identifier: Apache-2.0
"""What a seller loses by selling ε: c·u(ε), with a public function u that increases, is convex, and
is 0 at 0.

    linear        u = ε
    power         u = ε^p, p ≥ 1
    exponential   u = (e^(rε) − 1)/r, r > 0
    piecewise     straight lines between public points, of which the slopes increase

What is declared is u on the grid of billionths of ε, rounded up to whole units of 10⁻¹²: payments
are exact in these units (docs/theory/market.md, Theorem 8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sottovoce import units
from sottovoce.arrays import Floats, to_doubles
from sottovoce.errors import InvalidParameter

#: Whole units of a loss that are one.
UNITS_PER_LOSS = 10**12
#: No loss at the largest ε that is sold is larger.
LARGEST_LOSS = 1e9
LARGEST_EXPONENT = 16.0
#: Steps of Newton's method for one sale; six are usual.
MAX_NEWTON = 80


@dataclass(frozen=True)
class SellerLoss:
    """A public function from the ε that is sold to what a seller loses, in units of their cost.

    >>> power(2.0).evaluate([0.5, 1.0]).tolist()
    [0.25, 1.0]
    """

    kind: str = "linear"
    parameters: tuple[float, ...] = ()

    @property
    def is_linear(self) -> bool:
        """Whether the loss is ε itself."""
        return self.kind == "linear"

    def evaluate(self, epsilon: ArrayLike) -> Floats:
        """Return the loss at each ε.

        Parameters
        ----------
        epsilon : ArrayLike
            Amounts of ε, at least 0.

        Returns
        -------
        Floats
            A loss each.
        """
        e = np.asarray(epsilon, dtype=np.float64)
        if self.kind == "power":
            return np.asarray(e ** self.parameters[0])
        if self.kind == "exponential":
            (rate,) = self.parameters
            return np.asarray(np.expm1(rate * e) / rate)
        if self.kind == "piecewise":
            knots, widths, slopes = self._split_pieces()
            parts = np.clip(e[..., None] - knots, 0.0, widths)
            return np.asarray((parts * slopes).sum(axis=-1))
        return e

    def describe(self) -> str:
        """Return the function in words.

        Returns
        -------
        str
            Such as "ε^2".
        """
        if self.kind == "power":
            return f"ε^{self.parameters[0]:g}"
        if self.kind == "exponential":
            return f"(e^({self.parameters[0]:g}·ε) − 1)/{self.parameters[0]:g}"
        if self.kind == "piecewise":
            points = np.reshape(self.parameters, (-1, 2)).tolist()
            return "lines through " + ", ".join(f"({e:g}, {loss:g})" for e, loss in points)
        return "ε"

    def count(self, sold: Any) -> Any:
        """Return the declared losses of whole billionths of ε, as whole numbers of 10⁻¹².

        Parameters
        ----------
        sold :
            Whole billionths of ε.

        Returns
        -------
        Any
            A whole number each, in an array of the same shape.
        """
        if self.is_linear:
            return np.asarray(sold, dtype=object) * (UNITS_PER_LOSS // units.UNITS_PER_EPSILON)
        whole = np.asarray(sold)
        distinct, places = np.unique(whole, return_inverse=True)
        lost = self.evaluate(units.to_epsilon(distinct))
        counted = np.array([_count_up(value) for value in lost.tolist()], dtype=object)
        return counted[places].reshape(whole.shape)

    def solve_sale(self, tau: Any, weight: Any, price: Any, most: Any) -> tuple[Floats, Floats]:
        """Return the s in [0, most] at which weight·s + price·u'(s) reaches τ, and ds/dτ.

        Parameters
        ----------
        tau, weight, price, most :
            Numbers or arrays that broadcast; ``weight`` is above 0 and ``price`` at least 0.

        Returns
        -------
        tuple[Floats, Floats]
            What is sold, and how fast it grows with τ.
        """
        if self.kind == "piecewise":
            return self._solve_pieces(tau, weight, price, most)
        if self.is_linear:
            inside = (tau - price) / weight
            rate = 1.0 / weight
        else:
            inside, rate = self._solve_smooth(tau, weight, price, most)
        s = np.clip(inside, 0.0, most)
        return s, np.where((inside > 0) & (inside < most), rate, 0.0)

    def _solve_smooth(self, tau: Any, weight: Any, price: Any, most: Any) -> tuple[Any, Any]:
        """Newton's method between bounds that close in: where a step leaves them, they are
        halved. A root beyond ``most`` counts as most.
        """
        tau, weight, price, most = np.broadcast_arrays(tau, weight, price, most)
        beyond = weight * most + price * self._compute_slope(most)[0] <= tau
        high = np.minimum(self._bound_root(tau, weight, price), most)
        low = np.zeros(high.shape)
        s = high
        for _ in range(MAX_NEWTON):
            slope, bend = self._compute_slope(s)
            above = weight * s + price * slope - tau
            high = np.where(above > 0, s, high)
            low = np.where(above > 0, low, s)
            step = s - above / (weight + price * bend)
            inside = (step > low) & (step < high)
            after = np.where(inside, step, np.where(above == 0, s, (low + high) / 2))
            done = np.abs(after - s) <= 1e-15 * most
            s = after
            if done.all():
                break
        starts_above = price * self._compute_slope(np.zeros(1))[0] >= tau
        root = np.where(beyond, most, np.where(starts_above, 0.0, s))
        return root, 1.0 / (weight + price * self._compute_slope(s)[1])

    def _bound_root(self, tau: Any, weight: Any, price: Any) -> Any:
        """A bound of the root from above: neither of the two terms is larger than τ there."""
        positive = np.maximum(tau, 1e-300)
        with np.errstate(divide="ignore", over="ignore"):
            if self.kind == "exponential":
                (rate,) = self.parameters
                ratio = np.maximum(positive / np.maximum(price, 1e-300), 1.0)
                return np.minimum(positive / weight, np.log(ratio) / rate)
            (p,) = self.parameters
            root = (positive / np.maximum(price * p, 1e-300)) ** (1 / (p - 1))
            return np.minimum(positive / weight, root)

    def _compute_slope(self, s: Any) -> tuple[Any, Any]:
        """Returns u' and u''."""
        if self.kind == "exponential":
            (rate,) = self.parameters
            slope = np.exp(np.minimum(rate * s, 700.0))
            return slope, rate * slope
        (p,) = self.parameters
        positive = np.maximum(s, 1e-300)
        return p * s ** (p - 1), p * (p - 1) * positive ** (p - 2)

    def _split_pieces(self) -> tuple[Floats, Floats, Floats]:
        """Returns where pieces begin, how wide they are, and their slopes; the last has no end."""
        points = np.vstack([[0.0, 0.0], np.reshape(self.parameters, (-1, 2))])
        slopes = np.diff(points[:, 1]) / np.diff(points[:, 0])
        widths = np.diff(points[:, 0])
        widths[-1] = np.inf
        return points[:-1, 0], widths, slopes

    def _solve_pieces(self, tau: Any, weight: Any, price: Any, most: Any) -> tuple[Floats, Floats]:
        knots, widths, slopes = self._split_pieces()
        tau, weight, price, most = np.broadcast_arrays(tau, weight, price, most)
        s = np.zeros(tau.shape)
        moves = np.zeros(tau.shape, dtype=bool)
        for knot, width, slope in zip(knots, widths, slopes, strict=True):
            part = (tau - price * slope) / weight - knot
            s = s + np.clip(part, 0.0, width)
            moves |= (part > 0) & (part < width)
        return np.minimum(s, most), np.where(moves & (s < most), 1.0 / weight, 0.0)


#: The loss where none is named.
LINEAR = SellerLoss()


def _count_up(value: float) -> int:
    # Both are exact: a double is a fraction with a power of two below.
    numerator, denominator = value.as_integer_ratio()
    return -(-numerator * UNITS_PER_LOSS // denominator)


def linear() -> SellerLoss:
    """Return the loss u(ε) = ε.

    Returns
    -------
    SellerLoss
        The function.
    """
    return SellerLoss()


def power(exponent: float) -> SellerLoss:
    """Return the loss u(ε) = ε^exponent.

    Parameters
    ----------
    exponent : float
        At least 1 and at most 16.

    Returns
    -------
    SellerLoss
        The function.

    Raises
    ------
    InvalidParameter
        The exponent is out of range.
    """
    p = _to_number(exponent)
    if not 1 <= p <= LARGEST_EXPONENT:
        raise InvalidParameter(
            "The exponent of the loss is out of range.",
            f"It is at least 1, where a loss is convex, and at most {LARGEST_EXPONENT:g}.",
            "Pass such a number; 1 is the linear loss.",
            parameter="loss",
        )
    if p == 1:
        return SellerLoss()
    return SellerLoss("power", (p,))


def exponential(rate: float) -> SellerLoss:
    """Return the loss u(ε) = (e^(rate·ε) − 1)/rate, which is ε for small ε.

    Parameters
    ----------
    rate : float
        Above 0.

    Returns
    -------
    SellerLoss
        The function.

    Raises
    ------
    InvalidParameter
        The rate is not above 0.
    """
    r = _to_number(rate)
    if not 0 < r < 1e3:
        raise InvalidParameter(
            "The rate of the loss is not above 0, or 1,000 or more.",
            "It says how fast the loss of a further unit of ε grows.",
            "Pass a number such as 1.",
            parameter="loss",
        )
    return SellerLoss("exponential", (r,))


def piecewise(points: Sequence[tuple[float, float]] | ArrayLike) -> SellerLoss:
    """Return the loss that is linear between points, and goes on with the last slope.

    Parameters
    ----------
    points :
        Pairs (ε, loss), without (0, 0), in the order of ε.

    Returns
    -------
    SellerLoss
        The function.

    Raises
    ------
    InvalidParameter
        The points do not describe a loss that increases and is convex.

    Examples
    --------
    >>> piecewise([(0.5, 0.25), (1.0, 1.0)]).evaluate([0.25, 0.75, 2.0]).tolist()
    [0.125, 0.625, 2.5]
    """
    table = to_doubles(points, "points", "loss")
    fine = table.ndim == 2 and table.shape[1] == 2 and len(table) and np.all(np.isfinite(table))
    if fine:
        steps = np.diff(np.vstack([[0.0, 0.0], table]), axis=0)
        fine = bool(np.all(steps > 0))
    if fine:
        slopes = steps[:, 1] / steps[:, 0]
        fine = bool(np.all(np.diff(slopes) >= -1e-12 * slopes[1:]))
    if not fine:
        raise InvalidParameter(
            "The points of the loss do not increase, or their slopes fall.",
            "A loss begins at 0, increases with ε, and by ever larger steps: it is convex.",
            "Pass pairs (ε, loss) in the order of ε, without (0, 0), such as 0.5 0.25 and 1 1.",
            parameter="loss",
        )
    return SellerLoss("piecewise", tuple(table.ravel().tolist()))


def refuse_steep(loss: SellerLoss, most: float) -> None:
    """Refuses a loss that is too large at the largest ε that may be sold."""
    with np.errstate(over="ignore"):
        largest = float(loss.evaluate(np.array(most)))
    if not largest <= LARGEST_LOSS:
        raise InvalidParameter(
            "The loss at the largest cap is too large.",
            f"It is at most {LARGEST_LOSS:g}.",
            "Choose a smaller cap, or a loss that grows more slowly.",
            parameter="loss",
        )


def _to_number(value: Any) -> float:
    try:
        return float(value)
    except Exception:  # whatever somebody else's number raises
        return math.nan
