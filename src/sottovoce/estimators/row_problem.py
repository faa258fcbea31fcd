# SPDX-License-Identifier: Apache-2.0
"""What a solver asks of the rows of a fit, wherever they live."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.data.engine import Engine
from sottovoce.data.loss_kernels import RowTerms
from sottovoce.data.row_sample import ChosenRows, choose_rows
from sottovoce.solvers import newton


@dataclass(frozen=True, eq=False)
class RowProblem:
    """Sums over the rows of an engine at any θ, behind which come coefficients that stay."""

    engine: Engine
    kernel: RowTerms
    held: Floats = field(default_factory=lambda: np.zeros(0))

    def terms(self, theta: Any, extended: bool) -> tuple[float, Any, Any]:
        """Returns loss, pulls and curvature, as ``newton.Problem`` wants them."""
        held: Any = self.held
        if extended:
            held = newton.to_fractions(held)
        return self._sum(theta=np.concatenate([theta, held]), extended=extended)

    def pulls(self, theta: Floats) -> Floats:
        """Returns the pulls alone, in doubles."""
        whole = np.concatenate([theta, self.held])
        return np.asarray(self._sum(theta=whole, curved=False)[1])

    def rough(self, theta: Floats, curved: bool) -> tuple[Floats, Floats]:
        """Returns pulls of few bits, and the curvature if asked for."""
        whole = np.concatenate([theta, self.held])
        _, pulls, bend = self._sum(theta=whole, curved=curved, coarse=True)
        return np.asarray(pulls), bend

    def keep_rows(self, kept: dict[Any, Engine] | None = None) -> Self:
        """Returns the same with rows kept as the kernel makes them, where it makes them anew at
        every look and they are in memory anyway; ``kept`` has those of other fits.
        """
        if not hasattr(self.kernel, "keep") or not getattr(self.engine, "in_memory", False):
            return self
        kernel: Any = self.kernel
        ball = getattr(kernel, "ball", None)
        if kept is None or ball is None:
            kept = {}
        if ball not in kept:
            at = replace(kernel, theta=np.concatenate([kernel.theta, self.held]))
            kept[ball] = at.keep(self.engine)
        return replace(self, engine=kept[ball], kernel=kernel.adapt())

    def _sum(self, **options: Any) -> tuple[float, Any, Any]:
        at = replace(self.kernel, **options)
        return at.floats(self.engine.fold(at))

    def guess(
        self,
        problem: newton.Problem,
        rows: int,
        chosen: dict[int, ChosenRows | None] | None = None,
    ) -> newton.Guess | None:
        """Returns what some of the rows say, where there are many; ``chosen`` keeps them, by the
        width of a row, for other fits with the same labels.
        """
        if chosen is None:
            chosen = {}
        width = self.kernel.reader.width
        if width not in chosen:
            chosen[width] = choose_rows(self.engine, self.kernel, rows)
        some = chosen[width]
        if some is None:
            return None
        few = replace(self, engine=some.engine, kernel=some.adapt(self.kernel)).keep_rows()
        return newton.guess_from(replace(problem, terms=few.terms, pulls=few.pulls))


@dataclass(frozen=True, eq=False)
class OriginProblem(RowProblem):
    """The same for slopes alone: the constant column is read with a coefficient 0."""

    def terms(self, theta: Any, extended: bool) -> tuple[float, Any, Any]:
        """Returns loss, pulls and curvature of slopes."""
        constant: Any = np.zeros(1)
        if extended:
            constant = newton.to_fractions(constant)
        value, pull, bend = super().terms(np.concatenate([constant, theta]), extended)
        return value, pull[1:], bend[1:, 1:]

    def pulls(self, theta: Floats) -> Floats:
        """Returns the pulls of slopes alone, in doubles."""
        return super().pulls(np.concatenate([np.zeros(1), theta]))[1:]

    def rough(self, theta: Floats, curved: bool) -> tuple[Floats, Floats]:
        """Returns pulls of slopes alone, of few bits, and their curvature if asked for."""
        pulls, bend = super().rough(np.concatenate([np.zeros(1), theta]), curved)
        return pulls[1:], bend[1:, 1:]
