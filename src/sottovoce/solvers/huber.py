# SPDX-License-Identifier: Apache-2.0
"""Two bounded losses for regression: Huber's, and the soft one whose curvature costs nothing.

symbol   meaning
τ        |ψ| never exceeds it
H        Σ_j h_j²/Λ_j, the most that one row of weight 1 can add to the curvature, relative to Λ
soft     ψ' = min(1, (1 − |ψ|/τ)/(2H)), H ≤ ½: quadratic up to t0 = τ(1−2H), then ψ = τ − g·e^(−(a−t0)/g), g = 2Hτ

The soft loss is that of t0 and g as doubles have them, and of τ = t0 + g, so that ψ has no jump at t0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class SoftHuber:
    """The soft Huber loss; twice continuously differentiable."""

    tau: float
    H: float

    def __call__(self, residuals: Any) -> tuple[Any, Any, Any]:
        """Returns (ρ, ψ, ψ') at the residuals, in their own precision."""
        t0, g = self.tau * max(1 - 2 * self.H, 0.0), 2 * self.H * self.tau
        a = np.abs(residuals)
        over = np.maximum(a - t0, 0)
        E = np.exp(-over / g)
        psi = np.where(over > 0, t0 + g * (1 - E), a)
        rho = np.where(over > 0, t0**2 / 2 + (t0 + g) * over - g**2 * (1 - E), a * a / 2)
        return rho, np.copysign(psi, residuals), E


@dataclass(frozen=True)
class Huber:
    """Huber's loss."""

    tau: float

    def __call__(self, residuals: Any) -> tuple[Any, Any, Any]:
        """Returns (ρ, ψ, ψ') at the residuals, in their own precision."""
        a = np.abs(residuals)
        inside = a < self.tau
        rho = np.where(inside, a * a / 2, self.tau * (a - self.tau / 2))
        return rho, np.clip(residuals, -self.tau, self.tau), inside.astype(a.dtype)
