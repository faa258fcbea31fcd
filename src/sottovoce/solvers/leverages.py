# SPDX-License-Identifier: Apache-2.0
"""Every record's leave-one-out fit from one factorisation: ridge regression (docs/theory/per-instance.md, theorem 8).

    symbol   name
    H        hessian, XᵀX + λI of the rows that were fitted; L its Cholesky factor, θ the minimiser
    h, e     share xᵀH'⁻¹x and error y − xᵀθ', where the record is present
    μ, r     leverage xᵀH⁻¹x and residual y − xᵀθ, where it is absent
             μ = h/(1−h), r = e/(1−h), and back h = μ/(1+μ), e = r/(1+μ)

Rows with weights w count as √w·(x, y), in every result. No matrix is larger than the rows times their columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from sottovoce.errors import InvalidParameter

Floats = NDArray[np.float64]

CHUNK = 8192
#: 1 − h below this is 0: without its record the fit has no unique minimiser.
SINGULAR = 1e-13


class Records(NamedTuple):
    """h, e where each record is present, μ, r where it is absent; μ = r = ∞ if the fit needs the record."""

    share: Floats
    error: Floats
    leverage: Floats
    residual: Floats


@dataclass(frozen=True, eq=False)
class Fit:
    """A ridge regression: ½‖y − Xθ‖² + ½λ‖θ‖² at its minimum."""

    hessian: Floats
    ridge: float
    theta: Floats
    inverse_root: Floats  # L⁻¹, H = L·Lᵀ: small and triangular, so rows can be multiplied by it

    def left_out(self, X: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None) -> Records:
        """Returns h, e, μ, r of rows that were fitted: what each would see if it alone were left out."""
        h, e = self._get_leverage_and_residual(X, y, weights)
        rest = 1 - h
        kept = rest > SINGULAR
        safe = np.where(kept, rest, 1.0)
        return Records(h, e, np.where(kept, h / safe, np.inf), np.where(kept, e / safe, np.inf))

    def added(self, X: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None) -> Records:
        """Returns h, e, μ, r of rows that were not fitted: what each would change if it alone were added."""
        mu, r = self._get_leverage_and_residual(X, y, weights)
        return Records(mu / (1 + mu), r / (1 + mu), mu, r)

    def moved_by_leaving(
        self, X: ArrayLike, y: ArrayLike, metric: ArrayLike, weights: ArrayLike | None = None
    ) -> Floats:
        """Returns ‖θ − θ₋ᵢ‖_A for rows that were fitted, A = ``metric``."""
        return np.asarray(np.abs(self.left_out(X, y, weights).residual) * self._measure_reach(X, metric, weights))

    def moved_by_adding(
        self, X: ArrayLike, y: ArrayLike, metric: ArrayLike, weights: ArrayLike | None = None
    ) -> Floats:
        """Returns ‖θ' − θ‖_A for rows that were not fitted, A = ``metric``."""
        return np.asarray(np.abs(self.added(X, y, weights).error) * self._measure_reach(X, metric, weights))

    def moved_by_replacing(self, old: tuple[ArrayLike, ArrayLike], new: tuple[ArrayLike, ArrayLike]) -> Floats:
        """Returns θ_new − θ, a row for each pair: row i of ``old`` was fitted, row i of ``new`` takes its place."""
        (A, b), (X, y) = (tuple(np.asarray(part, dtype=np.float64) for part in pair) for pair in (old, new))
        first, second = (rows @ self.inverse_root.T @ self.inverse_root for rows in (A, X))
        gone = self.left_out(A, b)
        c = np.einsum("ij,ij->i", first, X)
        rest = 1 - gone.share
        mu = np.einsum("ij,ij->i", second, X) + c * c / rest
        r = y - X @ self.theta + c * gone.residual
        turned = second + first * (c / rest)[:, None]
        return np.asarray(turned * (r / (1 + mu))[:, None] - first * gone.residual[:, None])

    def metric(self, kind: str) -> Floats:
        """Returns a matrix A: the identity, this fit's hessian H, or its gram matrix XᵀX."""
        identity = np.eye(len(self.theta))
        return {"identity": identity, "hessian": self.hessian, "gram": self.hessian - self.ridge * identity}[kind]

    def _get_leverage_and_residual(self, X: ArrayLike, y: ArrayLike, weights: ArrayLike | None) -> tuple[Floats, Floats]:
        """xᵀH⁻¹x and y − xᵀθ with this fit's own H and θ."""
        rows, labels = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        height, error = np.empty(len(labels)), np.empty(len(labels))
        for part in _parts(len(labels)):
            Z = rows[part] @ self.inverse_root.T
            height[part] = np.einsum("ij,ij->i", Z, Z)
            error[part] = labels[part] - rows[part] @ self.theta
        if weights is None:
            return height, error
        w = np.asarray(weights, dtype=np.float64)
        return height * w, error * np.sqrt(w)

    def _measure_reach(self, X: ArrayLike, metric: ArrayLike, weights: ArrayLike | None) -> Floats:
        """√(xᵀH⁻¹AH⁻¹x)."""
        rows, A = np.asarray(X, dtype=np.float64), np.asarray(metric, dtype=np.float64)
        inverse = self.inverse_root.T @ self.inverse_root
        length = np.empty(len(rows))
        for part in _parts(len(rows)):
            G = rows[part] @ inverse
            length[part] = np.einsum("ij,ij->i", G @ A, G)
        length = np.sqrt(np.maximum(length, 0.0))
        return length if weights is None else length * np.sqrt(np.asarray(weights, dtype=np.float64))


def fit(X: ArrayLike, y: ArrayLike, ridge: float, weights: ArrayLike | None = None) -> Fit:
    """Returns the ridge regression of these rows, by one Cholesky factorisation."""
    rows, labels = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    d = rows.shape[1]
    gram, pull = np.zeros((d, d)), np.zeros(d)
    for part in _parts(len(labels)):
        scaled = rows[part] if weights is None else rows[part] * np.asarray(weights, float)[part, None]
        gram += scaled.T @ rows[part]
        pull += scaled.T @ labels[part]
    hessian = gram + ridge * np.eye(d)
    inverse = _inverse_root(hessian)
    return Fit(hessian, ridge, inverse.T @ (inverse @ pull), inverse)


def leverages(X: ArrayLike, y: ArrayLike, ridge: float, weights: ArrayLike | None = None) -> Records:
    """Returns h, e, μ, r of every row, from one fit of all of them."""
    return fit(X, y, ridge, weights).left_out(X, y, weights)


def _inverse_root(hessian: Floats) -> Floats:
    try:
        root = np.linalg.cholesky(hessian)
    except np.linalg.LinAlgError:
        root = None
    if root is None:
        raise InvalidParameter("XᵀX + λI is singular.", "It must be positive definite.", "Use a larger ridge λ.")
    return np.asarray(solve_triangular(root, np.eye(len(root)), lower=True))


def _parts(rows: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, rows, CHUNK))
