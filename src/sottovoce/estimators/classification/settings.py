# SPDX-License-Identifier: Apache-2.0
"""What a classifier settles before it reads a private row: regularisation, and how rows enter the unit ball.

The defaults are functions of public numbers, tuned on synthetic tables only. Public rows, where there are any,
replace the guesses: they centre and scale the columns, and a simulation on them (fits with noise of the size that
will be drawn, judged on rows held out) chooses among a few settings around the defaults.

    symbol   name
    g        η/d, budget for each coordinate
    λ        50/g², at most 3, and at least 2/η so that nothing is lost in the charge
    R        radius: 0.6 (0.8 with public rows) of a row's usual length; grows from g = 300 on, until nothing is cut
    c        2/√(4+p), the intercept's column
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sottovoce.classes import Classes
from sottovoce.errors import InvalidParameter
from sottovoce.estimators.classification.voices import linear_rate
from sottovoce.recoding import GRID_BITS, Recoding, UnitBall
from sottovoce.solvers import newton
from sottovoce.table import matrix, same_length

Floats = NDArray[np.float64]

#: λ = STRENGTH/g², within limits.
STRENGTH, STRONGEST = 50.0, 3.0
#: Shares of a row's usual length √p (in units of the columns' spreads) at which rows are cut.
CUT, CUT_WITH_PUBLIC_ROWS = 0.6, 0.8
#: From this much budget for each coordinate on, rows are cut less and less.
PLENTY = 300.0
#: A column of public rows is never taken to be narrower than this share of its bounds.
NARROWEST = 1e-3
INTERCEPT = 2.0
#: What is tried on public rows, as multiples of the defaults of R, c and λ.
TRIED = tuple(product((0.6, 1.0, 1.5), (0.15, 0.5, 1.0), (0.25, 1.0, 4.0)))
FOLDS, NOISES, MOST_ROWS = 4, 4, 512
#: At a λ that is too weak for any noise the simulation has next to infinite noise; the plan refuses it afterwards.
TINY = 1e-9
#: The flattest curvature that a direction of much influence has, for undoing the shrinkage of λ.
CURVATURE = 1 / 8


@dataclass(frozen=True, eq=False)
class Setting:
    """A regularisation and a way into the unit ball, all public."""

    ridge: float
    ball: UnitBall
    stretch: float = 1.0  # what coefficients are multiplied with, to undo the shrinkage of a chosen λ
    expected: float | None = None  # misclassification rate in the simulation on public rows


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Recoded rows and codes of their classes, which belong to nobody who must be protected."""

    Z: Floats
    codes: Floats

    @classmethod
    def of(cls, public: Any, recoding: Recoding, classes: Classes) -> PublicRows:
        """Reads a pair of features and labels; refuses what is not one, or not complete."""
        if isinstance(public, tuple | list) and len(public) == 2:
            rows, codes = recoding.encode(matrix(public[0], recoding)), classes.codes(public[1])
            same_length(len(rows), **{"labels of the public rows": codes})
            if len(rows) >= 2 and np.isfinite(rows).all():
                return cls(rows, codes)
        raise InvalidParameter(
            "The public rows are not a pair of features and labels, too few, or have missing values.",
            "public=(X, y) has at least two complete rows.",
            "Pass complete rows, or none.",
        )

    @cached_property
    def _content(self) -> bytes:
        return self.Z.tobytes() + self.codes.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicRows) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)


@dataclass(frozen=True)
class Scale:
    """How much budget there is, over how many coordinates."""

    total: float  # η
    slopes: int  # p
    fit_intercept: bool

    @property
    def coordinates(self) -> int:
        """d."""
        return self.slopes + self.fit_intercept

    @property
    def each(self) -> float:
        """g."""
        return self.total / self.coordinates

    def default_lambda(self, times: float = 1.0) -> float:
        """λ, or a multiple of it within its limits."""
        return max(min(times * STRENGTH / self.each**2, STRONGEST), 2 / self.total)

    def intercept(self, times: float = 1.0) -> float:
        """c, or what belongs to a multiple of the intercept's column."""
        one = INTERCEPT * times
        return one / math.sqrt(one**2 + self.slopes) if self.fit_intercept else 0.0

    def cut_radius(self, share: float) -> float:
        """R for columns of spread 1."""
        return max(share * math.sqrt(self.slopes) * float(max(1.0, (self.each / PLENTY) ** 0.25)), 1e-9)


def without_public_rows(scale: Scale, recoding: Recoding, norm: float | None, alpha: float | None) -> Setting:
    """The defaults: columns fill their bounds evenly; or, where a norm is promised, rows as they are."""
    if norm is not None:
        low, high = (np.array([getattr(f, side) for f in recoding.features if f.width]) for side in ("low", "high"))
        ball = UnitBall(-(low + high) / (2 * (high - low)), 1 / (high - low), norm, scale.intercept(), GRID_BITS)
    else:
        spread = recoding.estimate_spread()
        longest = math.sqrt(float(np.square(0.5 / spread).sum())) or 1.0
        ball = UnitBall(np.zeros(scale.slopes), spread, min(scale.cut_radius(CUT), longest), scale.intercept(), GRID_BITS)
    return _settled(scale, ball, alpha)


@lru_cache(maxsize=8)  # the data are gathered by it and the plan is made with it
def with_public_rows(scale: Scale, public: PublicRows, alpha: float | None, accountant: str) -> Setting:
    """The best of a few settings in a simulation on public rows."""
    middle, spread = public.Z.mean(axis=0), np.maximum(public.Z.std(axis=0), NARROWEST)
    tried = []
    for cut, intercept, times in TRIED if alpha is None else [t for t in TRIED if t[2] == 1.0]:
        ball = UnitBall(middle, spread, scale.cut_radius(CUT_WITH_PUBLIC_ROWS * cut), scale.intercept(intercept), GRID_BITS)
        one = _settled(scale, ball, alpha, times)
        tried.append(
            replace(one, expected=simulated_error(one, public, linear_rate(scale.total, one.ridge, accountant)))
        )
    return min(tried, key=lambda setting: setting.expected or 0.0)


def _settled(scale: Scale, ball: UnitBall, alpha: float | None, times: float = 1.0) -> Setting:
    ridge = scale.default_lambda(times) if alpha is None else float(alpha)
    return Setting(ridge, ball, 1 + ridge / CURVATURE if alpha is None else 1.0)


def simulated_error(setting: Setting, public: PublicRows, rate: float) -> float:
    """Returns the share of held-out public rows that fits with simulated noise misclassify."""
    rows, codes = setting.ball.rows(public.Z[:MOST_ROWS]), public.codes[:MOST_ROWS]
    wrong = []
    for held, noise in product(range(FOLDS), directions(rows.shape[1]) / max(rate, TINY)):
        out = np.arange(len(rows)) % FOLDS == held
        signs = [np.where(codes[~out] == k, 1.0, -1.0) for k in _positives(codes)]
        margins = np.array([rows[out] @ _fitted(rows[~out], each, setting.ridge, noise) for each in signs])
        guessed = margins.argmax(axis=0) if len(signs) > 1 else (margins[0] > 0).astype(np.int64)
        wrong.append(float(np.mean(guessed != codes[out])) if out.any() else 0.0)
    return float(np.mean(wrong))


def _positives(codes: Floats) -> Iterator[int]:
    most = int(codes.max(initial=1))
    return iter(range(most + 1) if most > 1 else (1,))


def directions(d: int) -> Floats:
    """Returns a few vectors of the length that radial noise of rate ½ has on average; the same every time.

    They come from a hash, because a plan of the same facts must be the same plan; nothing private is protected by them.
    """
    words = np.frombuffer(hashlib.shake_256(b"sottovoce").digest(8 * NOISES * d), dtype=np.uint64)
    normal = ndtri((words.astype(np.float64) + 0.5) * 2.0**-64).reshape(NOISES, d)
    return np.asarray(2 * d * normal / np.linalg.norm(normal, axis=1, keepdims=True), dtype=np.float64)


def _fitted(rows: Floats, signs: Floats, ridge: float, tilt: Floats) -> Floats:
    """Returns the minimiser for rows of equal weight, near enough for a simulation."""

    def terms(theta: Any, extended: bool) -> tuple[float, Any, Any]:
        margin = signs * (rows @ theta)
        doubt = 1 / (1 + np.exp(np.clip(margin, -700, 700)))
        rooted = rows * np.sqrt(doubt * (1 - doubt))[:, None]
        return float(np.logaddexp(0, -margin).mean()), (doubt * signs) @ rows / len(rows), rooted.T @ rooted / len(rows)

    d = rows.shape[1]
    return newton.near(newton.Problem(terms, np.full(d, ridge), np.zeros(d), tilt, 0.0, 0.0, 0.0))
