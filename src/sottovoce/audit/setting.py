# SPDX-License-Identifier: Apache-2.0
"""What an audit looks at: rows as the mechanism saw them, the fit, and the domain from which records come.

Rows of a mechanism that is only described are taken as they are, or brought back to the bounds that were declared. Of
records that are not in the data: the worst of a domain, and one record in many data sets.

symbol   name
√w       root, by which a row and its label are multiplied: everybody's own weight
H, θ     of the fit, over all rows
B, Y     norm and label of the domain, times the largest root of a weight
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit.mechanisms import Change, GaussianObjective, GaussianOutput, Mechanism, change
from sottovoce.audit.sealed import STAMP, Sealed
from sottovoce.bounds import Bounds
from sottovoce.errors import InvalidBounds, InvalidParameter, TooFewRows, WrongType
from sottovoce.estimators.samples.gram import shortened
from sottovoce.solvers import leverages
from sottovoce.solvers.leverages import Fit
from sottovoce.statistics import unfit
from sottovoce.table import doubles, factorise, matrix, numbers, same_length

Floats = NDArray[np.float64]
#: H with a smallest eigenvalue below this share of the largest is singular, whatever Cholesky's method says.
SINGULAR = 1e-13


class Domain(NamedTuple):
    """‖x‖ ≤ norm, |y| ≤ label; ``whole`` if all such records are possible, and not only some of them."""

    norm: float
    label: float
    whole: bool


@dataclass(frozen=True, eq=False)
class Setting:
    """Rows in the mechanism's own coordinates, everybody's weights, and what was promised."""

    mechanism: Mechanism
    rows: Floats  # √w·x
    labels: Floats  # √w·y
    root: Floats
    ridge: float
    domain: Domain | None
    prepared: Callable[[Any, Any], tuple[Floats, Floats]]  # features and labels as people know them → x, y
    promised: Floats | None = None  # one a row: what its person was promised
    neighbours: str = ""  # of that promise
    owner: NDArray[np.int64] | None = None  # row → person; None where each row is a person
    people: Any = None  # their names in order, where they have any
    earlier: Floats | None = None  # how far each row moves what was released before, in its noise's deviations

    def fit(self, rows: Floats | None = None, labels: Floats | None = None) -> Fit:
        """Returns the ridge regression of these rows, or of all; refuses one that has no single solution."""
        fitted = leverages.fit(
            self.rows if rows is None else rows, self.labels if labels is None else labels, self.ridge
        )
        eigenvalues = np.linalg.eigvalsh(fitted.hessian)
        if eigenvalues[0] <= SINGULAR * eigenvalues[-1]:
            raise InvalidParameter(
                "XᵀX + λI is singular.", "It must be positive definite.", "Use a larger ridge λ (alpha)."
            )
        return fitted

    def compute_changes(self, fit: Fit, rows: Floats, labels: Floats, *, present: bool) -> Change:
        """What leaving rows out, or adding them, changes in the mechanism's metric."""
        return change(fit, rows, labels, self.mechanism.compute_metric(fit), present=present)

    def read_record(self, z: Any, root: float) -> tuple[Floats, Floats]:
        """Returns one record z = (x, y) in the mechanism's coordinates and with its weight, as arrays of one row."""
        x, y = pair(z, "z=")
        rows, labels = self.prepared(one_row(x), np.atleast_1d(np.asarray(y)))
        return rows[:1] * root, labels[:1] * root

    def require_domain(self) -> Domain:
        """Returns the domain; refuses where none is declared."""
        if self.domain is None:
            raise InvalidBounds(
                "No domain is declared.",
                "The worst record is sought among those that public bounds allow.",
                "Describe the mechanism with bounds=sv.Bounds(norm=1.0, label=(-1, 1)).",
            )
        return self.domain


def pair(record: Any, called: str = "") -> tuple[Any, Any]:
    """Returns the features and the label of a record."""
    with suppress(TypeError, ValueError):  # raised below, outside the handler: what is wrong may be data
        x, y = record
        return x, y
    raise InvalidParameter("The record is not a pair.", "", f"Pass {called}(x, y): features and label.")


def one_row(x: Any) -> Any:
    """One record's features as a table of one row."""
    if not hasattr(x, "keys"):
        return np.atleast_2d(doubles(x, "A feature"))
    import pyarrow as pa

    try:
        return pa.table({name: [x[name]] for name in x.keys()})  # noqa: SIM118 (a pandas Series has keys too)
    except Exception:
        pass  # raised below, outside the handler, so that nothing of the cause is carried along
    raise WrongType("The features are not one row.", "A row has a name and a cell for each column.", "Pass a mapping.")


class Worst(Sealed):
    """The record that loses most. ``float`` of it is its ε.

    ``x`` and ``y`` are in the mechanism's own coordinates. ``added``: it is not in the data, and would be added; else
    it is row ``row``, by being removed. ``bound`` is proved: nobody loses more. ``attained``: the domain has such a
    record; otherwise only some of the records that were searched are in it, and ``epsilon`` is no more than a bound.
    """

    def __init__(self, epsilon: float, bound: float, x: Floats, y: float, row: int | None, attained: bool) -> None:
        super().__init__()
        self.epsilon, self.bound, self.x, self.y = epsilon, bound, x, y
        self.added, self.row, self.attained = row is None, row, attained

    def __float__(self) -> float:
        return self.epsilon

    def __repr__(self) -> str:
        return f"<Worst record: {STAMP}>"

    __str__ = __repr__


def worst(setting: Setting, fit: Fit, losses: Floats, delta: float) -> Worst:
    """Returns the worst record of all: over the domain for being added, over the rows for being removed."""
    domain, loudest = setting.require_domain(), float(setting.root.max())
    found = setting.mechanism.supremum(fit, delta, domain.norm * loudest, domain.label * loudest)
    i = int(np.argmax(losses))
    if losses[i] > found.value:
        root = float(setting.root[i])
        row, label = setting.rows[i] / root, float(setting.labels[i]) / root
        return Worst(float(losses[i]), max(float(losses[i]), found.bound), row, label, i, True)
    return Worst(found.value, found.bound, found.x / loudest, found.y / loudest, None, domain.whole)


def one(setting: Setting, z: Any, datasets: Iterable[tuple[Any, Any]], delta: float) -> Floats:
    """Returns ε of adding z to each data set; weights are by place, and z has that of the loudest row."""
    x, y = setting.read_record(z, float(setting.root.max()))
    return np.array([_added(setting, x, y, *setting.prepared(*dataset), delta) for dataset in datasets], dtype=float)


def _added(setting: Setting, x: Floats, y: Floats, rows: Floats, labels: Floats, delta: float) -> float:
    root = setting.root
    if np.ptp(root) == 0:
        root = np.full(len(labels), root[0])
    if len(root) != len(labels):
        raise InvalidParameter(
            "A data set has another number of rows than the audited one.",
            "Rows have weights of their own here, by their place.",
            "Pass data sets of the same length.",
        )
    fit = setting.fit(rows * root[:, None], labels * root)
    return float(setting.mechanism.epsilon(setting.compute_changes(fit, x, y, present=False), delta)[0])


def described(est: GaussianOutput | GaussianObjective, X: Any, y: Any, epsilon: Any, groups: Any) -> Setting:
    """Returns the setting of rows under a described mechanism; every row weighs one."""
    if epsilon is not None:
        raise InvalidParameter("A described mechanism has no budgets.", "Every row weighs one.", "Leave epsilon= out.")
    rows, labels = prepared(est.bounds, X, y)
    same_length(len(labels), groups=groups)
    if not len(labels):
        raise TooFewRows("The table is empty.", "", "Pass the rows that the mechanism saw.")
    people, owner = (None, None) if groups is None else factorise(groups)
    return Setting(
        est, rows, labels, np.ones(len(labels)), float(est.alpha), domain(est.bounds, rows.shape[1]),
        partial(prepared, est.bounds), owner=owner, people=people,
    )  # fmt: skip


def prepared(bounds: Bounds | None, X: Any, y: Any) -> tuple[Floats, Floats]:
    """Returns features and labels as numbers, those beyond the bounds brought back to them."""
    rows, labels = matrix(X, None).astype(np.float64), numbers(y, "labels")
    same_length(len(rows), y=labels)
    if not (np.isfinite(rows).all() and np.isfinite(labels).all()):
        raise unfit()
    if bounds is not None and bounds.features is not None:
        rows = np.clip(rows, *bounds.features)
    if bounds is not None and bounds.norm is not None:
        rows = shortened(rows, bounds.norm)
    return rows, labels if bounds is None or bounds.label is None else np.clip(labels, *bounds.label)


def domain(bounds: Bounds | None, columns: int) -> Domain | None:
    """Returns the records that bounds allow, or None where they say nothing about rows or label."""
    if bounds is None or bounds.label is None or (bounds.norm is None and bounds.features is None):
        return None
    low, high = bounds.label
    corner = np.inf
    if bounds.features is not None:
        sides = np.maximum(np.abs(bounds.features[0]), np.abs(bounds.features[1]))
        corner = float(np.linalg.norm(np.broadcast_to(sides, (columns,))))
    whole = bounds.features is None and low == -high
    return Domain(min(bounds.norm or np.inf, corner), max(abs(low), abs(high)), whole)
