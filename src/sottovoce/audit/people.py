# SPDX-License-Identifier: Apache-2.0
"""All rows of a person together (docs/theory/per-instance.md).

Where person l is present with rows X_l: S = X_l H⁻¹ X_lᵀ and errors e. Without them θ moves by H⁻¹X_lᵀ(I − S)⁻¹e. In
the eigenvectors of S a posterior sample's loss is that of as many independent records, of leverages h/(1 − h): Rényi
curves add up, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit.mechanisms import Change, GaussianOutput, Radial, Sample
from sottovoce.audit.setting import Setting
from sottovoce.audit.several import of_distance
from sottovoce.errors import InvalidParameter
from sottovoce.solvers import renyi
from sottovoce.solvers.leverages import SINGULAR, Fit

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
#: People that are worked on at a time.
CHUNK = 256


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
    found[counts == 1] = mechanism.epsilon(change.part(single), delta)
    for block in _blocks(setting, fit, counts, order, first):
        if isinstance(mechanism, Radial | GaussianOutput):
            distance = _moved(block, mechanism.metric_of(fit))
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
