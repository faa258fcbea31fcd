# SPDX-License-Identifier: Apache-2.0
"""Several rows at once: one replaced by another, a group that enters row by row, all rows of a person.

Where person l is present with rows X_l: S = X_l H⁻¹ X_lᵀ and errors e. Without them θ moves by H⁻¹X_lᵀ(I − S)⁻¹e. In
the eigenvectors of S a posterior sample's loss is that of as many independent records, of leverages h/(1 − h): Rényi
curves add up, exactly (docs/theory/per-instance.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit.mechanisms import Change, GaussianOutput, Radial, Sample
from sottovoce.audit.setting import Setting
from sottovoce.errors import InvalidParameter
from sottovoce.solvers import renyi
from sottovoce.solvers.leverages import SINGULAR, Fit

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
#: People that are worked on at a time.
CHUNK = 256


def replaced(setting: Setting, fit: Fit, i: int, z: Any, delta: float) -> float:
    """Returns ε between the rows and the same with row i replaced by z, for noise on the solution."""
    i = _places(setting, [i])[0]
    old = setting.rows[i : i + 1], setting.labels[i : i + 1]
    moved = fit.moved_by_replacing(old, setting.read_record(z, float(setting.root[i])))[0]
    return float(setting.mechanism.epsilon(of_distance(_length(moved, setting.mechanism.compute_metric(fit))), delta)[0])


def group(setting: Setting, rows: Any, delta: float) -> tuple[float, float]:
    """Returns (ε, δ) of a group: its rows are taken out of the table one by one, each at what it then costs."""
    out = _places(setting, rows)
    keep, costs = np.ones(len(setting.labels), dtype=np.bool_), []
    for i in reversed(out):
        fit = setting.fit(setting.rows[keep], setting.labels[keep])
        moved = setting.compute_changes(fit, setting.rows[i : i + 1], setting.labels[i : i + 1], present=True)
        costs.append(float(setting.mechanism.epsilon(moved, delta)[0]))
        keep[i] = False
    return renyi.group(costs[::-1], np.full(len(costs), delta))


def of_distance(distance: Floats) -> Change:
    """A change of which only the distance matters."""
    nothing = np.zeros_like(distance)
    return Change(nothing, nothing, distance, nothing, nothing)


def _length(moved: Floats, metric: Floats) -> Floats:
    return np.sqrt(np.maximum([moved @ metric @ moved], 0.0))


def _places(setting: Setting, rows: Any) -> list[int]:
    places = [int(i) for i in np.atleast_1d(np.asarray(rows))]
    if not places or len(set(places)) < len(places) or not all(0 <= i < len(setting.labels) for i in places):
        raise InvalidParameter(
            "A row number is not among the rows, or is given twice.", "Rows are counted from 0.", "Correct it."
        )
    return places


class _Block(NamedTuple):
    """Some people who own equally many rows: who they are, H⁻¹X_lᵀ, shares h and vectors of S, and errors in these."""

    people: Places
    turned: Floats
    shares: Floats
    vectors: Floats
    errors: Floats


def losses(setting: Setting, fit: Fit, change: Change, delta: float) -> Floats:
    """Returns ε of all rows of each person, in the order of people."""
    assert setting.owner is not None
    mechanism = setting.mechanism
    counts = np.bincount(setting.owner).astype(np.int64)
    order = np.argsort(setting.owner, kind="stable").astype(np.int64)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    found = np.zeros(len(counts))
    single = order[first[counts == 1]]
    found[counts == 1] = mechanism.epsilon(change.select(single), delta)
    for block in _blocks(setting, fit, counts, order, first):
        if isinstance(mechanism, Radial | GaussianOutput):
            distance = _moved(block, mechanism.compute_metric(fit))
            found[block.people] = mechanism.epsilon(of_distance(distance), delta)
        elif isinstance(mechanism, Sample):
            found[block.people] = renyi.epsilon(_curve(block, mechanism.gamma), delta)
        else:
            raise InvalidParameter(
                "Several rows of a person together are not known for noise in the objective.", "", "Use .group(rows)."
            )
    return found


def _blocks(setting: Setting, fit: Fit, counts: Places, order: Places, first: Places) -> Iterator[_Block]:
    inverse = fit.inverse_root.T @ fit.inverse_root
    for count in np.unique(counts[counts > 1]):
        everybody = np.flatnonzero(counts == count)
        for at in range(0, len(everybody), CHUNK):
            people = everybody[at : at + CHUNK]
            places = order[first[people][:, None] + np.arange(count)]
            X, y = setting.rows[places], setting.labels[places]
            turned = X @ inverse
            shares, vectors = np.linalg.eigh(turned @ X.transpose(0, 2, 1))
            errors = np.einsum("pij,pi->pj", vectors, y - X @ fit.theta)
            yield _Block(people, turned, np.maximum(shares, 0.0), vectors, errors)


def _absent(block: _Block) -> tuple[Floats, Floats]:
    """h/(1−h) and e/(1−h); ∞ where the fit needs these rows."""
    rest = 1 - block.shares
    safe = np.where(rest > SINGULAR, rest, 1.0)
    return (
        np.where(rest > SINGULAR, block.shares / safe, np.inf),
        np.where(rest > SINGULAR, block.errors / safe, np.inf),
    )


def _moved(block: _Block, metric: Floats) -> Floats:
    """‖H⁻¹X_lᵀ(I − S)⁻¹e‖ in the metric."""
    residual = _absent(block)[1]
    finite = np.isfinite(residual).all(axis=1)
    back = np.einsum("pij,pj->pi", block.vectors, np.where(np.isfinite(residual), residual, 0.0))
    moved = np.einsum("pij,pi->pj", block.turned, back)
    length = np.sqrt(np.maximum(np.einsum("pi,ij,pj->p", moved, metric, moved), 0.0))
    return np.where(finite, length, np.inf)


def _curve(block: _Block, gamma: float) -> Floats:
    mu, r = _absent(block)
    return np.asarray(renyi.posterior(mu, np.sqrt(gamma) * r).sum(axis=1))
