# SPDX-License-Identifier: Apache-2.0
"""From a released model and its rows to what the mechanism saw: its coordinates, its rounding, everybody's weight.

Weights come from planning again with the same budgets; the plan's fingerprint must be the one in the release's
certificate, so a release is never audited with other people's budgets.

question                     method                   coordinates of a row
posterior sample             (fixed or adaptive λ)    φ of the unit ball
ridge                        output-tight             (½, z), on the grid of the sums
ridge                        output                   (1, z + ½), on the grid of the sums

The smallest eigenvalue of XᵀX, which an adaptive posterior sample releases first, without a row that is u in the
eigenvectors: the root t of Σ u_k²/(λ_k − t) = 1 below λ_1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.audit import rebuilding
from sottovoce.audit.mechanisms import Mechanism, Radial, Sample
from sottovoce.audit.setting import Domain, Setting
from sottovoce.budgets import Budgets
from sottovoce.columns import schema_of
from sottovoce.engine import Rows
from sottovoce.errors import InvalidParameter
from sottovoce.estimators.regression import output
from sottovoce.estimators.regression.sums import UNIT, whole_numbers
from sottovoce.estimators.samples import gram
from sottovoce.estimators.samples.drawn import Posterior
from sottovoce.features import InBall, Label, Reader
from sottovoce.plan import Plan
from sottovoce.question import gathered, refuse_unfit
from sottovoce.recoding import Recoding, UnitBall
from sottovoce.release import Release
from sottovoce.statistics import Owner, unfit

Floats = NDArray[np.float64]

#: Halvings of an interval, down to the last digit of a double, and rows that are worked on at a time.
HALVINGS, CHUNK = 60, 8192


def smallest_moved(rows: Floats) -> Floats:
    """Returns λ_1 − t for each row: between 0 and the squared length of the row."""
    values, vectors = np.linalg.eigh(rows.T @ rows)
    parts = [rows[at : at + CHUNK] @ vectors for at in range(0, len(rows), CHUNK)]
    return np.concatenate([_moved(part**2, values) for part in parts])


def _moved(square: Floats, values: Floats) -> Floats:
    """Σ u_k²/(gap_k + s) falls with the distance s; the halving keeps the root between low and high."""
    gaps = values - values[0]
    low, high = np.zeros(len(square)), np.asarray(square.sum(axis=1), dtype=np.float64)
    for _ in range(HALVINGS):
        s = (low + high) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            more = (square / (gaps + s[:, None])).sum(axis=1) > 1
        low, high = np.where(more, s, low), np.where(more, high, s)
    return high


def read(est: Any, X: Any, y: Any, epsilon: Any, groups: Any) -> Setting:
    """Returns the setting of a fitted estimator, or of a release, and of the rows it was made from."""
    release, model = rebuilding.released(est)
    own = epsilon is None and schema_of(model).budget is not None  # then everybody's is in the table
    granted = getattr(model, "epsilon", None) if epsilon is None and isinstance(est, Posterior) else epsilon
    if equal(release) != (granted is None and not own):
        raise _budgets_unused() if equal(release) else _no_budgets()
    # Where there are no budgets, any number stands for them.
    stated = None if own else (1.0 if granted is None else granted)
    return read_rows(release, model, *gathered(model, X, y, epsilon=stated, groups=groups))


def read_rows(release: Release, model: Any, budgets: Budgets, rows: Rows) -> Setting:
    """Returns the setting of rows wherever they live, under the budgets of the release."""
    plan = _planned(release, model, budgets, rows)
    values, labels, kinds, owner = _collected(release, budgets, rows)
    weights = np.ones(len(budgets.kinds)) if plan is None else _weights(release, plan)
    root = np.sqrt(weights[kinds])
    X, y = _seen(release, values, labels, root)
    promise = getattr(model, "guarantee_", None) if plan is None else plan.guarantee
    mechanism, ridge = _mechanism(release)
    setting = Setting(
        mechanism, X, y, root, ridge, _domain(release), partial(prepared, release, model),
        promised=_most(release, len(y)) if promise is None else promise.amounts[kinds],
        neighbours=release.guarantee["neighbours"], owner=owner, people=budgets.people,
    )  # fmt: skip
    return replace(setting, earlier=_earlier(release, setting))


def _seen(release: Release, values: Floats, labels: Floats, root: Floats) -> tuple[Floats, Floats]:
    """Returns √w·x and √w·y; who was left out is not looked at."""
    X, y = _coordinates(release, values, labels)
    X[root == 0], y[root == 0] = 0.0, 0.0
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise unfit()
    return X * root[:, None], y * root


def _mechanism(release: Release) -> tuple[Mechanism, float]:
    if release.question == "ridge":
        return Radial(release.noise["rate"]), float(release.parameters["alpha"])
    gamma = float(release.noise["gamma"])
    if "alpha" in release.parameters:
        return Sample(gamma), float(release.parameters["alpha"])
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    return Sample(gamma, "; given the eigenvalue that was released before it"), float(value["regularisation"])


def _earlier(release: Release, setting: Setting) -> Floats | None:
    spread = release.noise.get("eigenvalue_standard_deviation")
    return None if spread is None else smallest_moved(setting.rows) / float(spread)


def _domain(release: Release) -> Domain:
    given = release.parameters
    low, high = given["label"]
    if release.question == "ridge":
        d = Recoding.from_dict(given["features"]).width + 1
        return Domain(math.sqrt(d) / (1 if given["method"] == "output" else 2), 1.0, False)
    every = rebuilding.norm_of(release) is not None and not given["fit_intercept"] and low == -high
    return Domain(1.0, 1.0, every and all("levels" not in f and f["low"] < f["high"] for f in given["features"]))


def _coordinates(release: Release, values: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """Returns x and y as the mechanism has them, from what readers gave: rows of the ball, or recoded features."""
    given = release.parameters
    if release.question == "ridge":
        whole = whole_numbers(values, labels) / UNIT
        change = output.coordinates(given["method"], whole.shape[1] - 1)
        return whole[:, :-1] @ change.T, whole[:, -1].copy()
    (low, high), (middle, half) = given["label"], gram.label_scale(tuple(given["label"]), given["fit_intercept"])
    own = (low + high) / 2 + (high - low) / 2 * labels
    return values.copy(), np.clip((own - middle) / half, -1.0, 1.0)


def prepared(release: Release, model: Any, X: Any, y: Any) -> tuple[Floats, Floats]:
    """Returns x and y of rows that take no part, as the mechanism would have them."""
    alone = len(y) == 1  # a question is about two rows at least, so one comes twice
    X, y = (_twice(X), np.repeat(y, 2)) if alone else (X, y)
    _, rows = model.gather(X, y, epsilon=1.0, groups=None)
    values, labels, *_ = _collected(release, None, rows)
    X, y = _coordinates(release, values, labels)
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise unfit()
    return (X[:1], y[:1]) if alone else (X, y)


def _twice(X: Any) -> Any:
    return X.take([0, 0]) if hasattr(X, "column_names") else np.repeat(np.asarray(X), 2, axis=0)


def _planned(release: Release, model: Any, budgets: Budgets, rows: Rows) -> Plan | None:
    """Returns the plan of the release, or None where every row weighs one."""
    if equal(release):
        if budgets.n_rows != _people(release, budgets):
            raise _other_rows()
        return None
    for candidate in rebuilding.candidates(release, model):
        plan: Plan = candidate.plan_for(budgets, rows)
        if plan.digest == release.certificate.plan_digest:
            refuse_unfit(model, plan, rows)
            return plan
    raise InvalidParameter(
        "These budgets, rows or columns are not those that the release was planned with.",
        "Everybody's weight follows from them, and the plan's fingerprint is in the release.",
        "Give the budgets, the people and the table as they were then, with the same version of sottovoce.",
    )


def _weights(release: Release, plan: Plan) -> Floats:
    unit = release.parameters.get("weight_unit", 1 / plan.weights.total)
    return np.asarray(plan.weights.row * unit, dtype=np.float64)


def equal(release: Release) -> bool:
    """Whether every row weighs one, with no budgets behind it."""
    return bool(release.parameters.get("weight_unit") == 1.0)


def _people(release: Release, budgets: Budgets) -> int:
    """How many rows the release is about, as far as it says."""
    return int(release.guarantee["people"]) if release.guarantee["unit"] == "row" else budgets.n_rows


def _most(release: Release, rows: int) -> Floats:
    return np.full(rows, float(release.guarantee["epsilon"]["most"]))


@dataclass(frozen=True, eq=False)
class _Collect:
    """The kernel that hands over features, labels, kinds and owners, batch by batch in their order."""

    reader: Reader
    label: Label
    owner: Owner
    person: Owner | None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        owners = np.zeros(0, dtype=np.int64) if self.person is None else self.person.kinds(batch)
        return [(self.reader.matrix(batch), self.label.values(batch), self.owner.kinds(batch), owners)]


def _collected(release: Release, budgets: Budgets | None, rows: Rows) -> tuple[Floats, Floats, Any, Any]:
    reader, person = rows.features, None
    if isinstance(release.parameters.get("ball"), dict) and not isinstance(reader, InBall):
        reader = InBall(UnitBall.from_dict(release.parameters["ball"]), reader.recoding, reader)
    streamed = budgets is not None and budgets.unit == "person" and budgets.owner is None
    if streamed:  # in a file a row's person is found by name
        person = replace(rows.owner, codes=None)
    parts = rows.engine.fold(_Collect(reader, rows.label, rows.owner, person))
    values, labels, kinds, owners = (np.concatenate(part) for part in zip(*parts, strict=True))
    held = None if budgets is None else budgets.owner
    return values, labels, kinds, owners.astype(np.int64) if streamed else held


def _no_budgets() -> InvalidParameter:
    return InvalidParameter(
        "Budgets are missing.",
        "Everybody's weight in this release follows from what they granted.",
        "Give the budgets (and the people, if rows have owners) as they were then.",
    )


def _budgets_unused() -> InvalidParameter:
    return InvalidParameter(
        "This release was made without budgets.", "Every row weighs one in it.", "Leave epsilon= out."
    )


def _other_rows() -> InvalidParameter:
    return InvalidParameter(
        "The table has another number of rows than the release is about.",
        "An audit looks at the rows that the release was made from.",
        "Pass the same table.",
    )
