# SPDX-License-Identifier: Apache-2.0
"""From a release, or a fitted estimator, to the estimator that an audit plans with again.

What is rebuilt from a release is checked against the plan's fingerprint by who uses it.

From a released model and its rows to what the mechanism saw: its coordinates, its rounding,
everybody's weight.

Weights come from planning again with the same budgets; the plan's fingerprint must be the one in
the release's certificate, so a release is never audited with other people's budgets.

question                     method                   coordinates of a row
posterior sample             (fixed or adaptive λ)    φ of the unit ball
ridge                        output-tight             (½, z), on the grid of the sums
ridge                        output                   (1, z + ½), on the grid of the sums
ridge without an intercept   output-tight, output     z, or 2z, on the grid of the sums

The smallest eigenvalue of XᵀX, which an adaptive posterior sample releases first, without a row
that is u in the eigenvectors: the root t of Σ u_k²/(λ_k − t) = 1 below λ_1.

What an audit looks at: rows as the mechanism saw them, the fit, and the domain from which records
come.

Rows of a mechanism that is only described are taken as they are, or brought back to the bounds that
were declared. Of records that are not in the data: the worst of a domain, and one record in many
data sets.

symbol   name
√w       root, by which a row and its label are multiplied: everybody's own weight
H, θ     of the fit, over all rows
B, Y     norm and label of the domain, times the largest root of a weight
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from sottovoce.arrays import (
    ColumnLike,
    Floats,
    TableLike,
    check_same_length,
    factorise,
    to_doubles,
    to_matrix,
    to_numbers,
)
from sottovoce.audit import leverages
from sottovoce.audit.confidential import STAMP, ConfidentialObject
from sottovoce.audit.leverages import RidgeFit
from sottovoce.audit.mechanisms import (
    GaussianObjective,
    GaussianOutput,
    LeaveOneOutChange,
    Mechanism,
    PosteriorMechanism,
    RadialOutput,
    compute_changes,
)
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.encoding import (
    Label,
    Reader,
    Recoding,
    UnitBall,
    UnitBallReader,
    make_recoding,
)
from sottovoce.data.engine import Dataset, GroupLookup
from sottovoce.data.kernels import invalid_values_error
from sottovoce.data.regression_kernels import UNIT, to_whole_numbers
from sottovoce.data.source import DataSource, find_schema
from sottovoce.errors import InvalidBounds, InvalidParameter, TooFewRows, WrongType
from sottovoce.estimator import get_budgets, read_source, refuse_invalid_rows
from sottovoce.estimators import (
    find_question,
    find_recorded,
    is_audited,
    load,
    posterior_mechanism,
    ridge_output,
)
from sottovoce.estimators.baseline_questions import BASELINE
from sottovoce.estimators.baselines import Threshold, Uniform
from sottovoce.estimators.column import find_norm
from sottovoce.estimators.posterior import Posterior
from sottovoce.estimators.posterior_mechanism import shorten_rows
from sottovoce.plan import Plan
from sottovoce.release import Release
from sottovoce.schema import Bounds

#: Parameters that a plan chooses where they are not given, and a release tells either way.
CHOSEN_PARAMETERS = ("alpha", "noise_variance")


def find_release(est: object) -> tuple[Release, Any]:
    """Return the release and the estimator of a fitted estimator or of a release.

    Refuses what cannot be audited.
    """
    if isinstance(est, Release):
        return est, rebuild_estimator(est)
    question = find_question(type(est))
    inside = getattr(est, "estimator_", None)
    if question is None and inside is not None and not hasattr(est, "threshold"):
        return find_release(inside)  # a baseline that gives its estimator other budgets
    if question is None or (question.audited is None and question.replay is None):
        raise unauditable_error()
    release: Any = getattr(est, "release_", None)
    if release is None:
        raise InvalidParameter(
            "The model has not been fitted.",
            "An audit is of a release.",
            "Call fit first.",
            parameter="est",
        )
    # A model that was read back from a release of an earlier version has no bounds of its own.
    if getattr(est, "bounds", getattr(est, "label_bounds", None)) is None:
        return release, rebuild_estimator(release)
    _refuse_unauditable(release)
    return release, est


def _refuse_unauditable(release: object) -> None:
    if not isinstance(release, Release) or not is_audited(release):
        raise unauditable_error()


def rebuild_estimator(release: Release) -> Any:
    """Return the estimator that made this release."""
    _refuse_unauditable(release)
    return load(release)


def has_known_law(release: Release) -> bool:
    """Whether the law of everybody's loss is known exactly, and not only what it was."""
    question = find_recorded(release.question)
    return question is not None and question.is_audited(release.parameters)


def has_posterior_noise(release: Release) -> bool:
    """Whether the release is a sample from a posterior, of a concentration γ."""
    return "gamma" in release.noise


def iterate_candidates(release: Release, model: Any) -> Iterator[Any]:
    """Yield the estimator, and, as a release does not say whether a number was given or chosen, the
    same with the other of both.
    """
    yield model
    if getattr(model, "has_released_numbers", False):  # whatever was chosen, these are the numbers
        return
    if getattr(model, "floor", 0.0) is None:
        yield clone(model).set_params(floor=float(release.noise["floor"]))
    for name in CHOSEN_PARAMETERS:
        if getattr(model, name, None) is not None:
            yield clone(model).set_params(**{name: None})
    if getattr(model, "cells", 0) is None and "cells" in release.grid:
        yield clone(model).set_params(cells=int(release.grid["cells"]))


def unauditable_error() -> InvalidParameter:
    """The refusal of models whose per-instance loss is not known."""
    return InvalidParameter(
        "The loss of each person to this release is not known, or this library did not make it.",
        "It is known for every question of the library, and for the Gaussian mechanisms that it "
        "describes; not for samples of people, whose dropping is secret.",
        "Audit one of these; what any other release promises is written in it.",
        parameter="release",
    )


#: Halvings of an interval, down to the last digit of a double, and rows that are worked on at a
#: time.
HALVINGS = 60
CHUNK = 8192


def compute_eigenvalue_moves(rows: Floats) -> Floats:
    """Return λ_1 − t for each row: between 0 and the squared length of the row."""
    values, vectors = np.linalg.eigh(rows.T @ rows)
    parts = [rows[at : at + CHUNK] @ vectors for at in range(0, len(rows), CHUNK)]
    return np.concatenate([_solve_eigenvalue_moves(part**2, values) for part in parts])


def _solve_eigenvalue_moves(square: Floats, values: Floats) -> Floats:
    """Σ u_k²/(gap_k + s) falls with the distance s.

    The halving keeps the root between low and high.
    """
    gaps = values - values[0]
    low = np.zeros(len(square))
    high = np.asarray(square.sum(axis=1), dtype=np.float64)
    for _ in range(HALVINGS):
        s = (low + high) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            more = (square / (gaps + s[:, None])).sum(axis=1) > 1
        low = np.where(more, s, low)
        high = np.where(more, high, s)
    return high


def read_audit_input(
    est: object, X: TableLike, y: ColumnLike, epsilon: BudgetLike | None, groups: ColumnLike | None
) -> AuditInput:
    """Return the setting of a fitted estimator, or of a release, and of the rows it was made
    from.
    """
    release, model = find_release(est)
    own = (
        epsilon is None and find_schema(model).budget is not None
    )  # then everybody's is in the table
    if epsilon is None and isinstance(est, Posterior):
        granted = getattr(model, "epsilon", None)
    else:
        granted = epsilon
    if has_equal_weights(release) != (granted is None and not own):
        raise _unused_budgets_error() if has_equal_weights(release) else _missing_budgets_error()
    # Where there are no budgets, any number stands for them.
    if own:
        stated = None
    elif granted is None:
        stated = 1.0
    else:
        stated = granted
    source = DataSource.of(model, X, y, stated, groups)
    return read_rows_input(release, model, read_source(model, source))


def read_rows_input(release: Release, model: Any, rows: Dataset) -> AuditInput:
    """Return the setting of rows wherever they live, under the budgets of the release."""
    budgets = get_budgets(rows)
    plan = _find_plan(release, model, budgets, rows)
    values, labels, kinds, owner = _collect_rows(release, budgets, rows)
    if plan is None:
        weights = np.ones(len(budgets.kinds))
    else:
        weights = _compute_weights(release, plan)
    root = np.sqrt(weights[kinds])
    X, y = _weight_rows(release, values, labels, root)
    if plan is None:
        promise = getattr(model, "guarantee_", None)
    else:
        promise = plan.guarantee
    mechanism, ridge = _read_mechanism(release)
    setting = AuditInput(
        mechanism,
        X,
        y,
        root,
        ridge,
        _read_release_domain(release),
        partial(prepare_rows, release, model),
        promised=_fill_largest_epsilon(release, len(y))
        if promise is None
        else promise.amounts[kinds],
        promised_delta=release.guarantee.get("delta"),
        neighbours=release.guarantee["neighbours"],
        owner=owner,
        people=budgets.people,
    )
    return replace(setting, earlier=_compute_eigenvalue_distances(release, setting))


def _weight_rows(
    release: Release, values: Floats, labels: Floats, root: Floats
) -> tuple[Floats, Floats]:
    """Return √w·x and √w·y; who was left out is not looked at."""
    X, y = _transform_rows(release, values, labels)
    X[root == 0] = 0.0
    y[root == 0] = 0.0
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise invalid_values_error()
    return X * root[:, None], y * root


def _read_mechanism(release: Release) -> tuple[Mechanism, float]:
    if not has_posterior_noise(release):
        return RadialOutput(release.noise["rate"]), float(release.parameters["alpha"])
    gamma = float(release.noise["gamma"])
    if "alpha" in release.parameters:
        return PosteriorMechanism(gamma), float(release.parameters["alpha"])
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    return PosteriorMechanism(gamma, "; given the eigenvalue that was released before it"), float(
        value["regularisation"]
    )


def _compute_eigenvalue_distances(release: Release, setting: AuditInput) -> Floats | None:
    spread = release.noise.get("eigenvalue_standard_deviation")
    if spread is None:
        return None
    return compute_eigenvalue_moves(setting.rows) / float(spread)


def _read_release_domain(release: Release) -> Domain:
    given = release.parameters
    low, high = given["label"]
    if not has_posterior_noise(release):
        d = Recoding.from_dict(given["features"]).width + has_constant(given)
        return Domain(math.sqrt(d) / (1 if given["method"] == "output" else 2), 1.0, False)
    every = find_norm(release) is not None and not given["fit_intercept"] and low == -high
    return Domain(
        1.0,
        1.0,
        every and all("levels" not in f and f["low"] < f["high"] for f in given["features"]),
    )


def _transform_rows(release: Release, values: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """Return x and y as the mechanism has them, from what readers gave: rows of the ball, or
    recoded features.
    """
    given = release.parameters
    if not has_posterior_noise(release):
        whole = to_whole_numbers(values, labels) / UNIT
        own = whole[:, int(not has_constant(given)) : -1]
        change = ridge_output.make_coordinates(
            given["method"], own.shape[1], fit_intercept=has_constant(given)
        )
        return own @ change.T, whole[:, -1].copy()
    (low, high) = given["label"]
    (middle, half) = posterior_mechanism.get_label_scale(
        tuple(given["label"]), given["fit_intercept"]
    )
    own = (low + high) / 2 + (high - low) / 2 * labels
    return values.copy(), np.clip((own - middle) / half, -1.0, 1.0)


def has_constant(given: Mapping[str, Any]) -> bool:
    """Whether a regression has an intercept; only those without one say so."""
    return bool(given.get("fit_intercept", True))


def prepare_rows(release: Release, model: Any, X: TableLike, y: Any) -> tuple[Floats, Floats]:
    """Return x and y of rows that take no part, as the mechanism would have them."""
    alone = len(y) == 1  # a question is about two rows at least, so one comes twice
    if alone:
        X, y = (_repeat_row(X), np.repeat(y, 2))
    else:
        X, y = (X, y)
    rows = model.read_arrays(X, y, epsilon=1.0, groups=None)
    values, labels, *_ = _collect_rows(release, None, rows)
    X, y = _transform_rows(release, values, labels)
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise invalid_values_error()
    if alone:
        return (X[:1], y[:1])
    return (X, y)


def _repeat_row(X: Any) -> Any:
    if hasattr(X, "column_names"):
        return X.take([0, 0])
    return np.repeat(np.asarray(X), 2, axis=0)


def _find_plan(release: Release, model: Any, budgets: Budgets, rows: Dataset) -> Plan | None:
    """Return the plan of the release, or None where every row weighs one."""
    if has_equal_weights(release):
        if budgets.n_rows != _count_rows(release, budgets):
            raise _other_rows_error()
        return None
    return find_plan(release, model, budgets, rows)[1]


def find_plan(release: Release, model: Any, budgets: Budgets, rows: Dataset) -> tuple[Any, Plan]:
    """Return the estimator and the plan of a release that was planned with budgets."""
    told = json.dumps(release.parameters, sort_keys=True)
    for candidate in iterate_candidates(release, model):
        asked = restore_baseline(release, candidate)
        plan: Plan = asked.plan_for(budgets, rows)
        same = json.dumps(plan.parameters, sort_keys=True) == told
        if same and plan.digest == release.certificate.plan_digest:
            refuse_invalid_rows(asked, plan, rows)
            if asked is not candidate:  # rows are looked at as the question inside has them
                plan = asked.plan_inside(budgets, rows)
            return candidate, plan
    raise _other_plan_error()


def restore_baseline(release: Release, model: Any) -> Any:
    """Return the question of a release: the model, or the baseline around it that the release
    tells.
    """
    told = release.parameters.get(BASELINE)
    if not isinstance(told, dict):
        return model
    if told.get("name") == "uniform":
        return Uniform(model).to_question()
    return Threshold(model, threshold=told.get("epsilon")).to_question()


def _other_plan_error() -> InvalidParameter:
    return InvalidParameter(
        "These budgets, rows or columns are not those that the release was planned with.",
        "Everybody's weight follows from them, and the plan's fingerprint is in the release.",
        "Give the budgets, the people and the table as they were then, with the same version of "
        "sottovoce.",
        parameter="epsilon",
    )


@dataclass(frozen=True, eq=False)
class _OwnerCollector:
    """The kernel that hands over kinds and owners of rows, batch by batch in their order."""

    owner: GroupLookup
    person: GroupLookup | None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.owner.columns

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        kinds = np.asarray(self.owner.kinds(batch))
        if self.person is None:
            return [(kinds, np.zeros(0, dtype=np.int64))]
        return [(kinds, np.asarray(self.person.kinds(batch)))]


def collect_owners(budgets: Budgets, rows: Dataset) -> tuple[Any, Any]:
    """Return the kind of each row's person, and who that is; None where rows are the people."""
    person = None
    streamed = budgets.unit == "person" and budgets.owner is None
    if streamed:  # in a file a row's person is found by name
        person = replace(rows.owner, codes=None)
    parts = rows.engine.fold(_OwnerCollector(rows.owner, person))
    kinds, owners = (np.concatenate(part).astype(np.int64) for part in zip(*parts, strict=True))
    if streamed:
        return kinds, owners
    return kinds, budgets.owner


def _compute_weights(release: Release, plan: Plan) -> Floats:
    unit = release.parameters.get("weight_unit", 1 / plan.weights.total)
    return np.asarray(plan.weights.row * unit, dtype=np.float64)


def has_equal_weights(release: Release) -> bool:
    """Whether every row weighs one, with no budgets behind it."""
    return bool(release.parameters.get("weight_unit") == 1.0)


def _count_rows(release: Release, budgets: Budgets) -> int:
    """How many rows the release is about, as far as it says."""
    if release.guarantee["unit"] == "row":
        return int(release.guarantee["people"])
    return budgets.n_rows


def _fill_largest_epsilon(release: Release, rows: int) -> Floats:
    return np.full(rows, float(release.guarantee["epsilon"]["most"]))


@dataclass(frozen=True, eq=False)
class _RowCollector:
    """The kernel that hands over features, labels, kinds and owners, batch by batch in their
    order.
    """

    reader: Reader
    label: Label
    owner: GroupLookup
    person: GroupLookup | None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.label.column, *self.reader.columns, *self.owner.columns)))

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        if self.person is None:
            owners = np.zeros(0, dtype=np.int64)
        else:
            owners = self.person.kinds(batch)
        return [
            (self.reader.matrix(batch), self.label.values(batch), self.owner.kinds(batch), owners)
        ]


def _collect_rows(
    release: Release, budgets: Budgets | None, rows: Dataset
) -> tuple[Floats, Floats, Any, Any]:
    reader = rows.features
    person = None
    if isinstance(release.parameters.get("ball"), dict) and not isinstance(reader, UnitBallReader):
        reader = UnitBallReader(
            UnitBall.from_dict(release.parameters["ball"]), reader.recoding, reader
        )
    streamed = budgets is not None and budgets.unit == "person" and budgets.owner is None
    if streamed:  # in a file a row's person is found by name
        person = replace(rows.owner, codes=None)
    parts = rows.engine.fold(_RowCollector(reader, rows.label, rows.owner, person))
    values, labels, kinds, owners = (np.concatenate(part) for part in zip(*parts, strict=True))
    if budgets is None:
        held = None
    else:
        held = budgets.owner
    return values, labels, kinds, owners.astype(np.int64) if streamed else held


def _missing_budgets_error() -> InvalidParameter:
    return InvalidParameter(
        "Budgets are missing.",
        "Everybody's weight in this release follows from what they granted.",
        "Give the budgets (and the people, if rows have owners) as they were then.",
        parameter="epsilon",
    )


def _unused_budgets_error() -> InvalidParameter:
    return InvalidParameter(
        "This release was made without budgets.",
        "Every row weighs one in it.",
        "Leave epsilon= out.",
        parameter="epsilon",
    )


def _other_rows_error() -> InvalidParameter:
    return InvalidParameter(
        "The table has another number of rows than the release is about.",
        "An audit looks at the rows that the release was made from.",
        "Pass the same table.",
        parameter="X",
    )


#: H with a smallest eigenvalue below this share of the largest is singular, whatever Cholesky's
#: method says.
SINGULAR = 1e-13


class Domain(NamedTuple):
    """‖x‖ ≤ norm, |y| ≤ label.

    ``whole`` if all such records are possible, and not only some of them.
    """

    norm: float
    label: float
    whole: bool


@dataclass(frozen=True, eq=False)
class AuditInput:
    """Rows in the mechanism's own coordinates, everybody's weights, and what was promised."""

    mechanism: Mechanism
    rows: Floats  # √w·x
    labels: Floats  # √w·y
    root: Floats
    ridge: float
    domain: Domain | None
    prepared: Callable[
        [Any, Any], tuple[Floats, Floats]
    ]  # features and labels as people know them → x, y
    promised: Floats | None = None  # one a row: what its person was promised
    promised_delta: float | None = None  # at which δ, where the promise has one
    neighbours: str = ""  # of that promise
    owner: NDArray[np.int64] | None = None  # row → person; None where each row is a person
    people: Any = None  # their names in order, where they have any
    earlier: Floats | None = (
        None  # how far each row moves what was released before, in its noise's deviations
    )

    def fit(self, rows: Floats | None = None, labels: Floats | None = None) -> RidgeFit:
        """Return the ridge regression of these rows, or of all.

        Refuses one that has no single solution.
        """
        fitted = leverages.fit_ridge(
            self.rows if rows is None else rows,
            self.labels if labels is None else labels,
            self.ridge,
        )
        eigenvalues = np.linalg.eigvalsh(fitted.hessian)
        if eigenvalues[0] <= SINGULAR * eigenvalues[-1]:
            raise InvalidParameter(
                "XᵀX + λI is singular.",
                "It must be positive definite.",
                "Use a larger ridge λ (alpha).",
                parameter="alpha",
            )
        return fitted

    def compute_changes(
        self, fit: RidgeFit, rows: Floats, labels: Floats, *, present: bool
    ) -> LeaveOneOutChange:
        """What leaving rows out, or adding them, changes in the mechanism's metric."""
        return compute_changes(
            fit, rows, labels, self.mechanism.compute_metric(fit), present=present
        )

    def read_record(self, z: Any, root: float) -> tuple[Floats, Floats]:
        """Return one record z = (x, y) in the mechanism's coordinates and with its weight, as
        arrays of one row.
        """
        x, y = split_record(z, "z=")
        rows, labels = self.prepared(make_row(x), np.atleast_1d(np.asarray(y)))
        return rows[:1] * root, labels[:1] * root

    def require_domain(self) -> Domain:
        """Returns the domain; refuses where none is declared."""
        if self.domain is None:
            raise InvalidBounds(
                "No domain is declared.",
                "The worst record is sought among those that public bounds allow.",
                "Describe the mechanism with bounds=sv.Bounds(norm=1.0, label=(-1, 1)).",
                parameter="bounds",
            )
        return self.domain


def split_record(record: Any, called: str = "") -> tuple[Any, Any]:
    """Return the features and the label of a record."""
    with suppress(
        TypeError, ValueError
    ):  # raised below, outside the handler: what is wrong may be data
        x, y = record
        return x, y
    raise InvalidParameter(
        "The record is not a pair.",
        "",
        f"Pass {called}(x, y): features and label.",
        parameter="record",
    )


def make_row(x: Any) -> Any:
    """One record's features as a table of one row."""
    if not hasattr(x, "keys"):
        return np.atleast_2d(to_doubles(x, "A feature", "record"))
    import pyarrow as pa

    try:
        names = list(x.keys())  # a pandas Series has them too
        return pa.table({name: [x[name]] for name in names})
    except Exception:
        pass  # raised below, outside the handler, so that nothing of the cause is carried along
    raise WrongType(
        "The features are not one row.",
        "A row has a name and a cell for each column.",
        "Pass a mapping.",
        parameter="record",
    )


class WorstRecord(ConfidentialObject):
    """The record that loses most. ``float`` of it is its ε.

    ``x`` and ``y`` are in the mechanism's own coordinates. ``added``: it is not in the data, and
    would be added; else it is row ``row``, by being removed. ``bound`` is proved: nobody loses
    more. ``attained``: the domain has such a record; otherwise only some of the records that were
    searched are in it, and ``epsilon`` is no more than a bound.
    """

    def __init__(
        self, epsilon: float, bound: float, x: Floats, y: float, row: int | None, attained: bool
    ) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.bound = bound
        self.x = x
        self.y = y
        self.added = row is None
        self.row = row
        self.attained = attained

    def __float__(self) -> float:
        return self.epsilon

    def __repr__(self) -> str:
        return f"<Worst record: {STAMP}>"

    __str__ = __repr__


def find_worst_record(
    setting: AuditInput, fit: RidgeFit, losses: Floats, delta: float
) -> WorstRecord:
    """Return the worst record of all: over the domain for being added, over the rows for being
    removed.
    """
    domain = setting.require_domain()
    loudest = float(setting.root.max())
    found = setting.mechanism.supremum(fit, delta, domain.norm * loudest, domain.label * loudest)
    i = int(np.argmax(losses))
    if losses[i] > found.value:
        root = float(setting.root[i])
        row = setting.rows[i] / root
        label = float(setting.labels[i]) / root
        return WorstRecord(
            float(losses[i]), max(float(losses[i]), found.bound), row, label, i, True
        )
    return WorstRecord(
        found.value, found.bound, found.x / loudest, found.y / loudest, None, domain.whole
    )


def compute_record_losses(
    setting: AuditInput, z: Any, datasets: Iterable[tuple[Any, Any]], delta: float
) -> Floats:
    """Return ε of adding z to each data set.

    Weights are by place, and z has that of the heaviest row.
    """
    x, y = setting.read_record(z, float(setting.root.max()))
    return np.array(
        [
            _compute_added_loss(setting, x, y, *setting.prepared(*dataset), delta)
            for dataset in datasets
        ],
        dtype=float,
    )


def _compute_added_loss(
    setting: AuditInput, x: Floats, y: Floats, rows: Floats, labels: Floats, delta: float
) -> float:
    root = setting.root
    if np.ptp(root) == 0:
        root = np.full(len(labels), root[0])
    if len(root) != len(labels):
        raise InvalidParameter(
            "A data set has another number of rows than the audited one.",
            "Rows have weights of their own here, by their place.",
            "Pass data sets of the same length.",
            parameter="X",
        )
    fit = setting.fit(rows * root[:, None], labels * root)
    return float(
        setting.mechanism.epsilon(setting.compute_changes(fit, x, y, present=False), delta)[0]
    )


def read_described_input(
    est: GaussianOutput | GaussianObjective,
    X: TableLike,
    y: ColumnLike,
    epsilon: BudgetLike | None,
    groups: ColumnLike | None,
) -> AuditInput:
    """Return the setting of rows under a described mechanism; every row weighs one."""
    if epsilon is not None:
        raise InvalidParameter(
            "A described mechanism has no budgets.",
            "Every row weighs one.",
            "Leave epsilon= out.",
            parameter="epsilon",
        )
    rows, labels = clip_rows(est.bounds, X, y)
    check_same_length(len(labels), groups=groups)
    if not len(labels):
        raise TooFewRows(
            "The table is empty.", "", "Pass the rows that the mechanism saw.", parameter="X"
        )
    if groups is None:
        people, owner = (None, None)
    else:
        people, owner = factorise(groups)
    return AuditInput(
        est,
        rows,
        labels,
        np.ones(len(labels)),
        float(est.alpha),
        read_bounds_domain(est.bounds, rows.shape[1]),
        partial(clip_rows, est.bounds),
        owner=owner,
        people=people,
    )


def clip_rows(bounds: Bounds | None, X: TableLike, y: ColumnLike) -> tuple[Floats, Floats]:
    """Return features and labels as numbers, those beyond the bounds brought back to them."""
    if bounds is not None and bounds.names is not None:
        rows = to_matrix(X, make_recoding(bounds, X)).astype(np.float64)
    else:
        rows = to_matrix(X, None).astype(np.float64)
    labels = to_numbers(y, "labels")
    check_same_length(len(rows), y=labels)
    if not (np.isfinite(rows).all() and np.isfinite(labels).all()):
        raise invalid_values_error()
    if bounds is not None and bounds.box is not None:
        rows = np.clip(rows, *bounds.box)
    if bounds is not None and bounds.norm is not None:
        rows = shorten_rows(rows, bounds.norm)
    return rows, labels if bounds is None or bounds.label is None else np.clip(
        labels, *bounds.label
    )


def read_bounds_domain(bounds: Bounds | None, columns: int) -> Domain | None:
    """Return the records that bounds allow, or None where they say nothing about rows or label."""
    if bounds is None or bounds.label is None or (bounds.norm is None and bounds.features is None):
        return None
    low, high = bounds.label
    corner = np.inf
    if bounds.box is not None:
        sides = np.maximum(np.abs(bounds.box[0]), np.abs(bounds.box[1]))
        corner = float(np.linalg.norm(np.broadcast_to(sides, (columns,))))
    whole = bounds.features is None and low == -high
    return Domain(min(bounds.norm or np.inf, corner), max(abs(low), abs(high)), whole)
