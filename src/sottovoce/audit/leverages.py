# SPDX-License-Identifier: Apache-2.0
"""Every record's leave-one-out fit from one factorisation: ridge regression
(docs/theory/per-instance.md, theorem 8).

    symbol   name
    H        hessian, XᵀX + λI of the rows that were fitted; L its Cholesky factor, θ the minimiser
    h, e     share xᵀH'⁻¹x and error y − xᵀθ', where the record is present
    μ, r     leverage xᵀH⁻¹x and residual y − xᵀθ, where it is absent
             μ = h/(1−h), r = e/(1−h), and back h = μ/(1+μ), e = r/(1+μ)

Rows with weights w count as √w·(x, y), in every result. No matrix is larger than the rows times
their columns.

The most that any record of a domain could lose by being added to some rows
(docs/theory/per-instance.md, theorem 9).

The domain is ‖x‖ ≤ B, |y| ≤ Y. A supremum comes as a record that attains ``value``, and as a
``bound`` that is proved by cutting a line into cells, bounding each, and cutting the promising ones
again until value and bound agree.

    symbol     name
    H, θ       hessian and theta of the rows; λ_k, b_k = |θ_k| in the eigenvectors of H
    B, Y       norm and label
    m, c       xᵀH⁻¹x and xᵀθ of a record; the worst label is y = −Y·sign(c), its residual Y + |c|
    s          (λ_min + t)/λ_min on the curve x(t) ∝ (I + tH⁻¹)⁻¹θ, from 1 (x along θ) to 0 (the
               weakest direction)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from sottovoce.accounting.profiles import posterior_epsilon
from sottovoce.arrays import Floats
from sottovoce.errors import InvalidParameter

CHUNK = 8192
#: 1 − h below this is 0: without its record the fit has no unique minimiser.
SINGULAR_BELOW = 1e-13


class RecordInfluences(NamedTuple):
    """h, e where each record is present, μ, r where it is absent.

    μ = r = ∞ if the fit needs the record.
    """

    share: Floats
    error: Floats
    leverage: Floats
    residual: Floats


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """A ridge regression: ½‖y − Xθ‖² + ½λ‖θ‖² at its minimum."""

    hessian: Floats
    ridge: float
    theta: Floats
    inverse_root: Floats  # L⁻¹, H = L·Lᵀ: small and triangular, so rows can be multiplied by it

    def left_out(
        self, X: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None
    ) -> RecordInfluences:
        """Return h, e, μ, r of rows that were fitted: what each would see if it alone were left
        out.
        """
        h, e = self._get_leverage_and_residual(X, y, weights)
        rest = 1 - h
        kept = rest > SINGULAR_BELOW
        safe = np.where(kept, rest, 1.0)
        return RecordInfluences(
            h, e, np.where(kept, h / safe, np.inf), np.where(kept, e / safe, np.inf)
        )

    def added(
        self, X: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None
    ) -> RecordInfluences:
        """Return h, e, μ, r of rows that were not fitted: what each would change if it alone were
        added.
        """
        mu, r = self._get_leverage_and_residual(X, y, weights)
        return RecordInfluences(mu / (1 + mu), r / (1 + mu), mu, r)

    def moved_by_leaving(
        self, X: ArrayLike, y: ArrayLike, metric: ArrayLike, weights: ArrayLike | None = None
    ) -> Floats:
        """Return ‖θ − θ₋ᵢ‖_A for rows that were fitted, A = ``metric``."""
        return np.asarray(
            np.abs(self.left_out(X, y, weights).residual) * self._measure_reach(X, metric, weights)
        )

    def moved_by_adding(
        self, X: ArrayLike, y: ArrayLike, metric: ArrayLike, weights: ArrayLike | None = None
    ) -> Floats:
        """Return ‖θ' − θ‖_A for rows that were not fitted, A = ``metric``."""
        return np.asarray(
            np.abs(self.added(X, y, weights).error) * self._measure_reach(X, metric, weights)
        )

    def moved_by_replacing(
        self, old: tuple[ArrayLike, ArrayLike], new: tuple[ArrayLike, ArrayLike]
    ) -> Floats:
        """Return θ_new − θ, a row for each pair: row i of ``old`` was fitted, row i of ``new``
        takes its place.
        """
        (A, b), (X, y) = (
            tuple(np.asarray(part, dtype=np.float64) for part in pair) for pair in (old, new)
        )
        first, second = (rows @ self.inverse_root.T @ self.inverse_root for rows in (A, X))
        gone = self.left_out(A, b)
        c = np.einsum("ij,ij->i", first, X)
        rest = 1 - gone.share
        mu = np.einsum("ij,ij->i", second, X) + c * c / rest
        r = y - X @ self.theta + c * gone.residual
        turned = second + first * (c / rest)[:, None]
        return np.asarray(turned * (r / (1 + mu))[:, None] - first * gone.residual[:, None])

    def metric(self, kind: str) -> Floats:
        """Return a matrix A: the identity, this fit's hessian H, or its gram matrix XᵀX."""
        identity = np.eye(len(self.theta))
        return {
            "identity": identity,
            "hessian": self.hessian,
            "gram": self.hessian - self.ridge * identity,
        }[kind]

    def _get_leverage_and_residual(
        self, X: ArrayLike, y: ArrayLike, weights: ArrayLike | None
    ) -> tuple[Floats, Floats]:
        """xᵀH⁻¹x and y − xᵀθ with this fit's own H and θ."""
        rows = np.asarray(X, dtype=np.float64)
        labels = np.asarray(y, dtype=np.float64)
        height = np.empty(len(labels))
        error = np.empty(len(labels))
        for part in _split_rows(len(labels)):
            Z = rows[part] @ self.inverse_root.T
            height[part] = np.einsum("ij,ij->i", Z, Z)
            error[part] = labels[part] - rows[part] @ self.theta
        if weights is None:
            return height, error
        w = np.asarray(weights, dtype=np.float64)
        return height * w, error * np.sqrt(w)

    def _measure_reach(self, X: ArrayLike, metric: ArrayLike, weights: ArrayLike | None) -> Floats:
        """√(xᵀH⁻¹AH⁻¹x)."""
        rows = np.asarray(X, dtype=np.float64)
        A = np.asarray(metric, dtype=np.float64)
        inverse = self.inverse_root.T @ self.inverse_root
        length = np.empty(len(rows))
        for part in _split_rows(len(rows)):
            G = rows[part] @ inverse
            length[part] = np.einsum("ij,ij->i", G @ A, G)
        length = np.sqrt(np.maximum(length, 0.0))
        if weights is None:
            return length
        return length * np.sqrt(np.asarray(weights, dtype=np.float64))


def fit_ridge(
    X: ArrayLike, y: ArrayLike, ridge: float, weights: ArrayLike | None = None
) -> RidgeFit:
    """Return the ridge regression of these rows, by one Cholesky factorisation.

    Parameters
    ----------
    X : ArrayLike
        Features, a row each.
    y : ArrayLike
        Labels.
    ridge : float
        λ > 0.
    weights : ArrayLike, optional
        Weights of rows; 1 if not given.

    Returns
    -------
    RidgeFit
        The fit, with what each row changes in it.

    Raises
    ------
    InvalidParameter
        The numbers cannot be used.
    """
    rows = np.asarray(X, dtype=np.float64)
    labels = np.asarray(y, dtype=np.float64)
    d = rows.shape[1]
    gram = np.zeros((d, d))
    pull = np.zeros(d)
    for part in _split_rows(len(labels)):
        if weights is None:
            scaled = rows[part]
        else:
            scaled = rows[part] * np.asarray(weights, float)[part, None]
        gram += scaled.T @ rows[part]
        pull += scaled.T @ labels[part]
    hessian = gram + ridge * np.eye(d)
    inverse = _invert_root(hessian)
    return RidgeFit(hessian, ridge, inverse.T @ (inverse @ pull), inverse)


def compute_leverages(
    X: ArrayLike, y: ArrayLike, ridge: float, weights: ArrayLike | None = None
) -> RecordInfluences:
    """Return h, e, μ, r of every row, from one fit of all of them."""
    return fit_ridge(X, y, ridge, weights).left_out(X, y, weights)


def _invert_root(hessian: Floats) -> Floats:
    try:
        root = np.linalg.cholesky(hessian)
    except np.linalg.LinAlgError:
        root = None
    if root is None:
        raise InvalidParameter(
            "XᵀX + λI is singular.",
            "It must be positive definite.",
            "Use a larger ridge λ.",
            parameter="hessian",
        )
    return np.asarray(solve_triangular(root, np.eye(len(root)), lower=True))


def _split_rows(rows: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, rows, CHUNK))


#: Value and bound agree to this share.
AGREEMENT = 1e-7
ROUNDS = 60
SPLITS = 4
#: With more cells than this the search ends early; the bound is valid, though not as close.
MAX_CELLS = 200_000
#: Coefficients of θ are raised to this share of its length, so that the curve reaches every m;
#: bounds only grow by it.
COEFFICIENT_FLOOR = 1e-12
#: ε grows with the leverage, however large, for every δ below ½(1 − 1/φ), φ the golden ratio
#: (theorem 5).
LARGEST_DELTA = (3 - math.sqrt(5)) / 4
CURVE_POINTS = np.append(np.geomspace(1.0, 1e-16, 65), 0.0)
#: Multipliers are found by halving intervals of this length in their logarithm; whatever is found,
#: the bound is valid.
LOG_RANGE = 80.0
HALVINGS = 46


#: Values at some records, where these are, and upper bounds over the cells.
CellValues = tuple[Floats, Floats, Floats]


class Supremum(NamedTuple):
    """The record (x, y) attains ``value``; no record of the domain exceeds ``bound``."""

    value: float
    bound: float
    x: Floats
    y: float


class _Axes(NamedTuple):
    """The problem in the eigenvectors of H, in rising order of their eigenvalues."""

    values: Floats
    vectors: Floats
    theta: Floats  # signed
    b: Floats  # its size, raised a little
    norm: float
    label: float

    def record(self, x: Floats) -> tuple[Floats, float]:
        """Return x ≥ 0 of these axes in the user's, and its worst label."""
        turned = self.vectors @ (np.where(self.theta < 0, -x, x))
        return turned, -self.label


def find_posterior_supremum(
    hessian: ArrayLike,
    theta: ArrayLike,
    gamma: float,
    delta: float,
    norm: float = 1.0,
    label: float = 1.0,
) -> Supremum:
    """Return the largest ε at δ of one posterior sample, over all records of the domain that may
    be added.
    """
    axes = _diagonalise(hessian, theta, norm, label)
    if delta >= LARGEST_DELTA:
        raise InvalidParameter(
            "δ is 0.19 or more.",
            "Losses need not grow with leverage there.",
            "Use a smaller δ.",
            parameter="delta",
        )

    def loss(m: Floats, c: Floats) -> Floats:
        return posterior_epsilon(m, math.sqrt(gamma) * (label + c), delta)

    def look(cells: Floats) -> CellValues:
        (m_right, c_right), (m_left, c_left) = (
            _evaluate_on_curve(axes, ends) for ends in cells
        )  # m falls, c rises with s
        both = np.concatenate([loss(m_right, c_right), loss(m_left, c_left)])
        return both, np.concatenate(cells)[:, None], loss(m_left, c_right)

    value, bound, best = _search_cells(
        np.stack([CURVE_POINTS[:-1], CURVE_POINTS[1:]]), look, evenly=False
    )
    x, y = axes.record(_trace_curve(axes, best)[0])
    return Supremum(
        _compute_attained_epsilon(hessian, theta, gamma, delta, x, y), max(bound, value), x, y
    )


def find_displacement_supremum(
    hessian: ArrayLike, theta: ArrayLike, metric: ArrayLike, norm: float = 1.0, label: float = 1.0
) -> Supremum:
    """Return the largest ‖θ' − θ‖_A over all records of the domain that may be added.

    A commutes with H.

    Divided by σ it is the D of Gaussian noise, times η it is the ε of radial noise.
    """
    axes = _diagonalise(hessian, theta, norm, label)
    weights = _weigh_axes(axes, metric)
    if not weights.any() or not (label or np.any(axes.theta)):
        return Supremum(
            0.0, 0.0, np.zeros_like(axes.theta), -label
        )  # nothing moves, or no record pulls

    def look(cells: Floats) -> CellValues:
        most, x = _bound_cells(axes, weights, cells)
        return np.exp(_compute_log_displacement(axes, weights, x)), x, np.exp(most)

    whole = np.array([[0.0], [norm**2 / axes.values[0]]])
    value, bound, best = _search_cells(_split_cells(whole, evenly=True), look, evenly=True)
    return Supremum(value, bound, *axes.record(best))


def _search_cells(
    cells: Floats, look: Callable[[Floats], CellValues], evenly: bool
) -> tuple[float, float, Floats]:
    """Return the largest value seen, a bound on all values, and where the value was seen."""
    value = -math.inf
    bound = math.inf
    best = np.empty(0)
    for _ in range(ROUNDS):
        here, places, most = look(cells)
        if here.max() > value:
            value = float(here.max())
            best = places[here.argmax()]
        bound = max(value, float(most.max()))
        cells = _split_cells(cells[:, most > value * (1 + AGREEMENT)], evenly)
        if not 0 < cells.size < MAX_CELLS:
            break
    return value, bound, best


def _diagonalise(hessian: ArrayLike, theta: ArrayLike, norm: float, label: float) -> _Axes:
    values, vectors = np.linalg.eigh(np.asarray(hessian, dtype=np.float64))
    if not (values[0] > 0 and norm > 0 and label >= 0):
        raise InvalidParameter(
            "The domain is empty or the hessian singular.",
            "H > 0, norm > 0, label ≥ 0.",
            "Use a larger ridge λ.",
        )
    turned = vectors.T @ np.asarray(theta, dtype=np.float64)
    floor = COEFFICIENT_FLOOR * (float(np.linalg.norm(turned)) + (label + 1) / norm)
    return _Axes(values, vectors, turned, np.maximum(np.abs(turned), floor), norm, label)


def _split_cells(cells: Floats, evenly: bool) -> Floats:
    """Cuts each cell into pieces: evenly, or evenly in the logarithm (a cell that ends in 0, by
    halving the end).
    """
    first, last = cells
    steps = np.arange(SPLITS + 1)[:, None] / SPLITS
    ratio = np.where(last > 0, last, 1e-4 * first) / np.where(first > 0, first, 1.0)
    if evenly:
        edges = first + (last - first) * steps
    else:
        edges = first * ratio**steps
    edges[-1] = last
    return np.stack([edges[:-1].ravel(), edges[1:].ravel()])


def _trace_curve(axes: _Axes, s: Floats) -> Floats:
    """x on the sphere for each s.

    The eigenvalues' differences are taken first, so small s lose nothing.
    """
    lowest = axes.values[0]
    apart = (axes.values - lowest)[None, :] + (s * lowest)[:, None]
    with np.errstate(divide="ignore"):
        x = np.where(apart > 0, axes.b * axes.values / apart, math.inf)
    weakest = np.isinf(x)
    x = np.where(weakest.any(axis=1, keepdims=True), np.where(weakest, axes.b, 0.0), x)
    return np.asarray(axes.norm * x / np.linalg.norm(x, axis=1, keepdims=True))


def _evaluate_on_curve(axes: _Axes, s: Floats) -> tuple[Floats, Floats]:
    x = _trace_curve(axes, s)
    return x**2 @ (1 / axes.values), x @ axes.b


def _compute_attained_epsilon(
    hessian: ArrayLike, theta: ArrayLike, gamma: float, delta: float, x: Floats, y: float
) -> float:
    m = float(x @ np.linalg.solve(np.asarray(hessian, dtype=np.float64), x))
    return float(
        posterior_epsilon(
            m, math.sqrt(gamma) * abs(y - x @ np.asarray(theta, dtype=np.float64)), delta
        )
    )


def _weigh_axes(axes: _Axes, metric: ArrayLike) -> Floats:
    """A_k/λ_k²: ‖H⁻¹x‖²_A = Σ of these times x_k²."""
    turned = axes.vectors.T @ np.asarray(metric, dtype=np.float64) @ axes.vectors
    diagonal = np.diag(turned)
    if np.abs(turned - np.diag(diagonal)).max() > 1e-8 * np.abs(diagonal).max():
        raise InvalidParameter(
            "A does not commute with H.",
            "A = I, H or XᵀX, for instance.",
            "Change the metric.",
            parameter="metric",
        )
    return np.asarray(np.maximum(diagonal, 0.0) / axes.values**2)


def _compute_log_displacement(axes: _Axes, weights: Floats, x: Floats) -> Floats:
    square = x**2
    residual = axes.label + x @ np.abs(axes.theta)
    return np.asarray(
        np.log(residual) + np.log(square @ weights) / 2 - np.log1p(square @ (1 / axes.values))
    )


def _bound_cells(axes: _Axes, weights: Floats, cells: Floats) -> tuple[Floats, Floats]:
    """Return upper bounds of log displacement over records with m in each cell, and a good record
    for each.

    −log(1+m) lies below its chord over the cell, the logarithms of the other two factors below
    their tangents at 1/p₁, 1/p₂, and the quadratic that is left is bounded with a multiplier ν of
    the norm. Any p₁, p₂, ν give a valid bound; it is convex in them, and halving its derivatives
    finds the best (theorem 9).
    """
    low, high = cells
    slope = (np.log1p(high) - np.log1p(low)) / (high - low)
    left = np.zeros(len(low))
    right = np.full(len(low), LOG_RANGE)
    for _ in range(HALVINGS):
        p2 = np.exp((left + right) / 2) / (axes.norm**2 * weights.max())
        _, _, x = _solve_multipliers(axes, weights, slope, p2)
        more = p2 * (x**2 @ weights) < 1
        left, right = (
            np.where(more, (left + right) / 2, left),
            np.where(more, right, (left + right) / 2),
        )
    p1, nu, x = _solve_multipliers(axes, weights, slope, p2)
    most = axes.label * p1 - np.log(p1) - 1 - np.log(p2) / 2 - 0.5 + slope * low - np.log1p(low)
    most += nu * axes.norm**2 + p1 * (x @ axes.b) / 2
    return most, _scale_to_best_length(axes, x)


def _scale_to_best_length(axes: _Axes, x: Floats) -> Floats:
    """Along a ray (Y + τc)·τ/(1 + τ²m) grows up to τ = (c + √(c² + Y²m))/(Ym), and falls from
    there.
    """
    c = x @ np.abs(axes.theta)
    m = x**2 @ (1 / axes.values)
    Y = axes.label
    longest = axes.norm / np.linalg.norm(x, axis=1)
    best = (c + np.hypot(c, Y * np.sqrt(m))) / np.maximum(Y * m, 1e-300)
    return np.asarray(x * np.minimum(longest, best)[:, None])


def _solve_multipliers(
    axes: _Axes, weights: Floats, slope: Floats, p2: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the best p₁ and ν for given p₂, and their x = b·p₁/(2(ν − bends)): ‖x‖ = B, or ν is
    nearly 0.
    """
    bends = p2[:, None] * weights / 2 - slope[:, None] / axes.values
    least = np.maximum(bends.max(axis=1), 0.0)
    # subtracted before anything small is added
    apart = least[:, None] - bends
    scale = p2 * weights.max()
    low = np.full(len(p2), -LOG_RANGE)
    high = np.full(len(p2), LOG_RANGE)
    for _ in range(HALVINGS):
        more = scale * np.exp((low + high) / 2)
        p1, x = _solve_first_multiplier(axes, apart + more[:, None])
        long = np.linalg.norm(x, axis=1) > axes.norm
        low, high = np.where(long, (low + high) / 2, low), np.where(long, high, (low + high) / 2)
    return p1, least + more, x


def _solve_first_multiplier(axes: _Axes, gaps: Floats) -> tuple[Floats, Floats]:
    """The best p₁ given ν − bends: Y·p₁ − log p₁ + ¼T·p₁² is least, T = Σ b²/gaps."""
    T = (axes.b**2 / gaps).sum(axis=1)
    p1 = 2 / (axes.label + np.sqrt(axes.label**2 + 2 * T))
    return p1, axes.b * p1[:, None] / (2 * gaps)
