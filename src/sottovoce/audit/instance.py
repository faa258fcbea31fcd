# SPDX-License-Identifier: Apache-2.0
"""per_instance: what each person in the data really lost, exactly, for the curator (docs/theory/per-instance.md).

A promise holds for every table and everybody in it. A per-instance loss is for this table and this row: with it or
without it, everything else the same. It is often a hundred times smaller, and never public: it depends on everybody.

    symbol   name
    ε_i      epsilon, at δ; the worse of adding and removing the row, everybody else's weight unchanged
    μ_i      leverage xᵀH⁻¹x of the row, where it is absent
    r_i      residual y − xᵀθ, where it is absent; both in the mechanism's coordinates and with the row's weight
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit import people, picture, reading, setting, told
from sottovoce.audit.mechanisms import Change, GaussianObjective, GaussianOutput, Radial, Sample
from sottovoce.audit.sealed import STAMP, Losses, Sealed
from sottovoce.audit.setting import Setting, Worst, described
from sottovoce.audit.told import Place, Summary
from sottovoce.errors import InvalidParameter
from sottovoce.solvers import profiles, renyi
from sottovoce.solvers.leverages import Fit
from sottovoce.solvers.profiles import one_probability

Floats = NDArray[np.float64]


def per_instance(
    est: Any, X: Any, y: Any, delta: float = 1e-6, *, epsilon: Any = None, groups: Any = None
) -> PerInstance:
    """Returns each row's exact loss to a release, confidentially.

    ``est`` is a fitted PosteriorSample, AdaptivePosteriorSample or Ridge with an output method, a Release of one of
    them, or a description: GaussianOutput or GaussianObjective. ``epsilon`` and ``groups`` as they were given to fit.

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 500)[:, None]
    >>> model = sv.PosteriorSample(gamma=1.0, alpha=5.0, bounds=sv.Bounds(norm=1.0, label=(-1, 1))).fit(x, x[:, 0] / 2)
    >>> audit = sv.audit.per_instance(model, x, x[:, 0] / 2)
    >>> audit
    <PerInstance of 500 rows: CONFIDENTIAL, for the curator alone>
    >>> bool(audit.epsilon.max() <= float(audit.for_all()) <= model.guarantee_.epsilon[0])
    True
    """
    level = one_probability(delta)
    if isinstance(est, GaussianOutput | GaussianObjective):
        return PerInstance(described(est, X, y, epsilon, groups), level)
    return PerInstance(reading.read(est, X, y, epsilon, groups), level)


class PerInstance(Sealed):
    """One exact ε a row, where they come from, and what they say about all. Confidential."""

    def __init__(self, setting: Setting, delta: float) -> None:
        super().__init__()
        self.delta = delta
        self._setting = setting
        self._fit: Fit = setting.fit()
        self._change: Change = setting.compute_changes(self._fit, setting.rows, setting.labels, present=True)

    def __len__(self) -> int:
        return len(self._setting.labels)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<PerInstance of {len(self)} rows: {STAMP}>"

    __str__ = __repr__

    @cached_property
    def epsilon(self) -> Losses:
        """ε_i at δ, one a row."""
        return Losses.of(self._setting.mechanism.epsilon(self._change, self.delta))

    @property
    def leverage(self) -> Losses:
        """μ_i; a row with a large one has features unlike everybody else's."""
        return Losses.of(self._change.leverage)

    @property
    def residual(self) -> Losses:
        """r_i; a row with a large one has a label that the others do not foretell."""
        return Losses.of(self._change.residual)

    @property
    def exactness(self) -> str:
        """Whether these numbers are exact, in words."""
        several = isinstance(self._setting.mechanism, Sample) and self.unit == "people"
        more = "; several rows of a person together, read off an exact Rényi curve, about a tenth too large"
        return self._setting.mechanism.exactness + (more if several else "")

    @property
    def unit(self) -> str:
        """Whose losses ``by_person`` tells: "rows" or "people"."""
        return "rows" if self._setting.owner is None else "people"

    @property
    def neighbours(self) -> str:
        """The neighbours of the promise, as in its guarantee; empty for a mechanism that is only described."""
        return self._setting.neighbours

    @property
    def promised(self) -> Losses | None:
        """What each row's person was promised, by row, for all tables; None for a mechanism that is only described."""
        return None if self._setting.promised is None else Losses.of(self._setting.promised)

    @cached_property
    def eigenvalue(self) -> Losses | None:
        """ε at δ of what an adaptive posterior sample released first, its noisy eigenvalue, by itself; else None."""
        moved = self._setting.earlier
        return None if moved is None else Losses.of(profiles.gaussian_epsilon(moved, self.delta))

    def at(self, delta: float) -> PerInstance:
        """The same at another δ."""
        return PerInstance(self._setting, one_probability(delta))

    def by_person(self) -> Losses:
        """ε of all rows of each person together, people in sorted order; without ``groups`` the same as ``epsilon``.

        Exact for noise on the solution. For a posterior sample it is exact for who owns one row, and read off the exact
        Rényi curve, about a tenth too large, for who owns people.
        """
        if self._setting.owner is None:
            return self.epsilon
        return Losses.of(people.losses(self._setting, self._fit, self._change, self.delta))

    def for_all(self) -> Worst:
        """The most that any record could lose with these rows: one of the domain if added, or one of them if removed.

        An added record has the weight of the loudest row. Float it for the number; ``x`` and ``y`` say which record.
        """
        return setting.worst(self._setting, self._fit, self.epsilon, self.delta)

    def for_one(self, z: Any, datasets: Iterable[tuple[Any, Any]]) -> Losses:
        """ε of one record z = (x, y) by being added to each of these data sets, pairs (X, y) in the units of fit."""
        return Losses.of(setting.one(self._setting, z, datasets, self.delta))

    def replaced(self, i: int, z: Any) -> float:
        """ε between these rows and the same with row i replaced by z = (x, y); for noise on the solution only."""
        setting = self._setting
        if not isinstance(setting.mechanism, Radial | GaussianOutput):
            raise InvalidParameter(
                "There is no closed form for replacing a row here.",
                "There is one for noise on the solution: Ridge with an output method, and GaussianOutput.",
                "Add up what removing the one row and adding the other cost.",
            )
        return people.replaced(setting, self._fit, i, z, self.delta)

    def group(self, rows: Any) -> tuple[float, float]:
        """(ε, δ) of several rows together, as they enter one by one, by what each then costs (theorem 11)."""
        return people.group(self._setting, rows, self.delta)

    def generalisation_bound(self, *, simple: bool = False) -> float:
        """The bound on how far a loss in [0, 1] on these rows is from that on fresh ones, in expectation.

        The theorem takes means over data sets and records; here the people in the data stand for them, so this is an
        estimate of the bound (Proposition 9 of the paper, corrected; ``simple``: Corollary 12).
        """
        epsilon = np.asarray(self.epsilon)
        with np.errstate(over="ignore", invalid="ignore"):
            if simple:
                bound = renyi.simple_generalisation(epsilon, self.delta)
            else:
                bound = renyi.generalisation(epsilon, np.full(len(epsilon), self.delta))
        return min(bound, 1.0) if bound == bound else 1.0

    def curves(self, part: slice) -> Floats:
        """D_α at renyi.ORDERS for some rows, one row each, what was released before included."""
        total = self._setting.mechanism.curve(self._change.select(part))
        moved = self._setting.earlier
        return total if moved is None else total + renyi.gaussian(moved[part])

    def summary(self) -> Summary:
        """Quantiles, moments, and beside them what was promised and the worst record. Confidential too."""
        return Summary(self)

    def least_protected(self, count: int = 10) -> list[Place]:
        """Who lost most, by rank, and what sets them apart. Confidential."""
        return told.least_protected(self, count)

    def picture(self) -> str:
        """The losses as a histogram on a logarithmic axis, with worst record and promise, as SVG. Confidential."""
        return picture.histogram(self)
