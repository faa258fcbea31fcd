# SPDX-License-Identifier: Apache-2.0
"""Estimator, the contract of estimators/, and make_release, the order of steps of every release.

    validate → plan → check rows → reserve → run → publish

An estimator plans from budgets alone, and answers from rows under a plan. Everything a caller can
get wrong is refused before people are charged; once rows are being read for the answer, every
failure looks the same from outside, because why it failed may depend on the data.

Two contracts are called from here although what keeps them lies above: Estimator (estimators/), and
Payer (booking.py), what pays for a release.

What a fitted model keeps: its release, and what follows from the release alone. Nothing un-noised.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from sottovoce.arrays import (
    Array,
    Floats,
    check_same_length,
    count_dimensions,
    list_feature_names,
    to_matrix,
    to_numbers,
)
from sottovoce.budgets import Budgets
from sottovoce.data.encoding import Recoding
from sottovoce.data.engine import Dataset, Watch, get_default_engine, is_external_table
from sottovoce.data.kernels import GroupLookup, HasInvalidValues, invalid_values_error
from sottovoce.data.readers import MATRIX_COLUMN, EncodedReader, HasInvalidRows, Label, Reader
from sottovoce.data.source import DataSource, is_rows_marker, owners_missing_error
from sottovoce.errors import (
    InvalidBounds,
    InvalidParameter,
    ReleaseFailed,
)
from sottovoce.guarantee import Guarantee
from sottovoce.intervals import LEVEL, Intervals
from sottovoce.plan import Plan
from sottovoce.release import Release
from sottovoce.schema import Bounds, Schema, encode_bounds, to_interval

VALUE = "value"
KIND = "kind"
#: More features than this are a mistake.
MAX_FEATURES = 10**6


class Estimator(Protocol):
    """What can be asked of people's rows."""

    missing: float | None  # the public constant that stands for missing values

    def get_params(self) -> dict[str, Any]:
        """The public parameters, by name."""

    def validate(self) -> None:
        """Refuses parameters and bounds that are wrong whoever the people are."""

    def read_arrays(self, *data: Any, epsilon: Any, groups: Any) -> Dataset:
        """Returns the budgets and rows of data in memory; a question about one column also takes
        its name, column=.
        """

    def read_table(self, table: DataSource) -> Dataset:
        """Returns what is read of a table by the names of its columns; nothing is read yet."""

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """Returns the plan, from public facts alone; ``rows`` tell no more than which columns there
        are.
        """

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows, draws the noise, and returns what may be published.

        One that works in steps also takes ``progress``, which is told how many are done.
        """


@dataclass(frozen=True)
class Payment:
    """What came of a reservation: people are charged now, or were when the stored release was
    made.
    """

    stored: Release | None = None
    receipt: Any = None  # what the payer needs to publish


class Payer(Protocol):
    """What pays for a release: a session with its ledger, or nobody."""

    def plan(self, estimator: Estimator, dataset: Dataset) -> tuple[Plan, Dataset]:
        """Returns a plan that everybody who takes part can pay for, and their rows."""

    def reserve(self, plan: Plan) -> Payment | None:
        """Charges everybody as planned; None where somebody cannot pay any more, and another plan
        is needed.
        """

    def publish(self, release: Release, payment: Payment) -> Release:
        """Stores the release that was paid for, and returns it as it is stored."""


class NoCharge:
    """The payer of a release that no ledger remembers: nobody is charged, nothing is stored."""

    def plan(self, estimator: Estimator, dataset: Dataset) -> tuple[Plan, Dataset]:
        """Returns the plan for everybody in the rows."""
        return plan_dataset(estimator, dataset), dataset

    def reserve(self, plan: Plan) -> Payment:
        """Charges nobody."""
        return Payment()

    def publish(self, release: Release, payment: Payment) -> Release:
        """Returns the release as it is."""
        return release


def plan_dataset(estimator: Estimator, dataset: Dataset) -> Plan:
    """Returns the plan for everybody in these rows."""
    return estimator.plan_for(get_budgets(dataset), dataset)


def get_budgets(dataset: Dataset) -> Budgets:
    """Returns the budgets of rows whose people were counted."""
    if dataset.budgets is None:
        raise InvalidParameter(
            "These rows come without budgets.",
            "A plan follows from what people allow.",
            "Read the rows from a source that knows its people and their budgets.",
        )
    return dataset.budgets


def make_budgets(
    epsilon: Any, groups: Any = None, rows: int | None = None, schema: Schema | None = None
) -> Budgets:
    """Returns budgets as they are, or made from ε and the rows' owners.

    A plan has no table, so it passes the ``schema``: where that names people, it must be told whose
    the rows are.
    """
    told = groups is not None or (isinstance(epsilon, Budgets) and epsilon.unit == "person")
    if schema is not None and schema.person is not None and not told:
        raise owners_missing_error(schema)
    if is_rows_marker(groups):
        groups = None
    if isinstance(groups, str):
        raise InvalidParameter(
            "The owners of rows are a name.",
            "There is no table here in which a column could be looked up.",
            "Pass the column itself as groups=.",
            parameter="groups",
        )
    if isinstance(epsilon, Budgets):
        if groups is not None:
            raise InvalidParameter(
                "Budgets already say whose each row is.",
                "Two answers to that question could disagree.",
                "Pass groups= when building the Budgets, and not again.",
                parameter="groups",
            )
        return epsilon
    return Budgets.of(epsilon, groups, rows)


def check_missing_constant(missing: Any, low: float, high: float) -> float | None:
    """Returns the constant that stands for missing values, or None; refuses what is no number
    between the bounds.
    """
    if missing is None:
        return None
    try:
        constant = float(missing)
    except Exception:  # what is no number, in whatever way
        constant = math.nan
    if not math.isfinite(constant):
        raise InvalidParameter(
            "What should stand for missing values is not a finite number.",
            "",
            "Choose a public constant, or none.",
            parameter="missing",
        )
    if not low <= constant <= high:
        raise InvalidParameter(
            "What should stand for missing values lies outside the bounds of a column.",
            "It stands for values, and these lie between the bounds.",
            "Choose a constant between them; columns with constants of their own are declared in "
            "a schema.",
            parameter="missing",
        )
    return constant


def make_column_label(question: Any, column: str | None = None) -> Label:
    """Returns how a question about one column reads it: by its bounds, or as its schema describes
    the column.
    """
    bounds = question.bounds
    if column is not None and not isinstance(column, str):
        raise _not_a_name_error()
    if not isinstance(bounds, Schema):
        low, high = to_interval(bounds)
        return Label(
            column or VALUE, low, high, check_missing_constant(question.missing, low, high)
        )
    name = column or bounds.require_label()
    low, high = bounds.interval(name)
    if question.missing is None:
        own = bounds.columns[name].missing
    else:
        own = question.missing
    return Label(column or VALUE, low, high, check_missing_constant(own, low, high))


def _not_a_name_error() -> InvalidParameter:
    return InvalidParameter(
        "The column in question is not a name.",
        "It names a column of the table that comes first.",
        "Pass the values alone, or a table and the name.",
        parameter="column",
    )


def make_label(question: Any, column: str = VALUE) -> Label:
    """Returns how a regression reads its label; a constant that the schema declares for it goes
    before ``missing``.
    """
    low, high = to_interval(question.bounds)
    if isinstance(question.bounds, Schema):
        own = question.bounds.columns[question.bounds.require_label()].missing
    else:
        own = None
    return Label(
        column,
        low,
        high,
        check_missing_constant(question.missing if own is None else own, low, high),
    )


def make_recoding(bounds: Any, X: Any, missing: Any = None) -> Recoding:
    """Returns the recoding of the features as declared; X, a table or a number, only tells how many
    there are.

    ``missing`` stands for missing numbers in features for which a schema declares no constant of
    their own.
    """
    return _set_missing_constant(_make_recoding(bounds, X), missing)


def count_declared_columns(bounds: Any, missing: Any = None) -> int:
    """Returns how many recoded columns a schema describes; 0 with Bounds, where a table tells.

    Refuses bounds of features that no table could make right.
    """
    if isinstance(bounds, Schema):
        return make_recoding(bounds, None, missing).width
    if not isinstance(bounds, Bounds):
        raise _no_bounds_error()
    return 0


def _no_bounds_error() -> InvalidBounds:
    return InvalidBounds(
        "Bounds are missing.",
        "Limits of the features are needed, from public knowledge, and of a label that is a "
        "number.",
        "Pass bounds=sv.Bounds(features=(low, high), label=(lo, hi)), or a Schema.",
        parameter="bounds",
    )


def _set_missing_constant(recoding: Recoding, missing: Any) -> Recoding:
    if missing is None:
        return recoding
    return Recoding(
        tuple(
            feature
            if feature.levels or feature.missing is not None
            else replace(
                feature, missing=check_missing_constant(missing, feature.low, feature.high)
            )
            for feature in recoding.features
        )
    )


def _make_recoding(bounds: Any, X: Any) -> Recoding:
    if isinstance(bounds, Schema):
        return Recoding.of_schema(bounds)
    if not isinstance(bounds, Bounds):
        raise _no_bounds_error()
    if isinstance(X, tuple):  # the names of columns, of a table that lives elsewhere
        return Recoding.of_bounds(bounds, list(X), len(X))
    return Recoding.of_bounds(bounds, list_feature_names(X), _count_features(X, bounds))


def _count_features(X: Any, bounds: Bounds) -> int:
    if isinstance(X, Integral):
        count = int(X)
        if not 0 < count < MAX_FEATURES:
            raise InvalidParameter(
                "n_features is not a number of features.",
                "",
                "Pass a whole number above 0.",
                parameter="n_features",
            )
        return count
    if X is not None:
        if count_dimensions(X) == 2:
            return int(np.shape(X)[1])
        return int(to_matrix(X, None).shape[1])
    sizes = [np.size(limit) for limit in bounds.features or () if np.ndim(limit)]
    if not sizes:
        raise InvalidParameter(
            "The number of features is not known.",
            "",
            "Pass n_features=, or bounds for each feature.",
            parameter="n_features",
        )
    return int(sizes[0])


def load_column(values: Any, *, epsilon: Any, groups: Any, label: Label | None = None) -> Dataset:
    """Returns the budgets and rows of one column in memory."""
    column = to_numbers(values)
    if groups is not None:
        check_same_length(len(column), groups=groups)
    budgets = make_budgets(epsilon, groups, len(column))
    kinds = budgets.row_codes()
    check_same_length(len(column), epsilon=kinds)
    engine = get_default_engine().of_columns({VALUE: column, KIND: kinds})
    return Dataset(engine, VALUE, GroupLookup(KIND), label=label, budgets=budgets)


def load_regression(
    raw: Floats, recoding: Recoding, values: Any, label: Label, epsilon: Any, groups: Any
) -> Dataset:
    """Returns the budgets and rows of a regression in memory, with the features recoded once."""
    column = to_numbers(values, "labels")
    recoded = recoding.encode(raw)
    check_same_length(len(recoded), y=column, groups=groups)
    budgets = make_budgets(epsilon, groups, len(column))
    return load_matrix(recoded, EncodedReader(recoding), column, label, budgets)


def load_matrix(
    rows: Floats, reader: Reader, column: Floats, label: Any, budgets: Budgets
) -> Dataset:
    """Returns the rows of a matrix and of a column of labels that lie in memory as the readers
    expect them.
    """
    kinds = budgets.row_codes()
    check_same_length(len(column), epsilon=kinds)
    columns: dict[str, Array] = {VALUE: column, KIND: kinds}
    if rows.shape[1]:
        columns[MATRIX_COLUMN] = rows
    engine = get_default_engine().of_columns(columns)
    return Dataset(engine, VALUE, GroupLookup(KIND), reader, label, budgets=budgets)


def refuse_invalid_rows(question: Estimator, plan: Plan, rows: Dataset) -> None:
    """Refuses rows with missing or infinite values, before anything is charged."""
    participating = plan.budgets.kinds.epsilon > 0
    if rows.features is None:
        if rows.label is None:
            missing = question.missing
        else:
            missing = rows.label.missing
        if rows.engine.fold(HasInvalidValues(rows.value, rows.owner, participating, missing)):
            raise invalid_values_error()
        return
    features, label = rows.engine.fold(
        HasInvalidRows(rows.features, rows.label, rows.owner, participating)
    ).tolist()
    if features or label:
        raise rows.label.refusal() if label else invalid_values_error()


def make_release(
    estimator: Estimator, dataset: Dataset, *, payer: Payer | None = None, progress: Any = None
) -> tuple[Plan, Release]:
    """Make a release of these rows: validate, plan, check the rows, reserve, run, publish.

    This order exists here and nowhere else: whatever makes a release, makes it by this function.

    Parameters
    ----------
    estimator :
        what is asked.
    dataset :
        the budgets and the rows that it is asked about.
    payer :
        what charges people and keeps the release; None: nobody is charged.
    progress :
        for an estimator that works in steps: what is told how many are done.

    Returns
    -------
    plan, release :
        the plan under which the release was made, and the release, or the one that the payer has
        stored.

    Raises
    ------
    SottovoceError
        before anybody is charged, for whatever can be known by then.
    ReleaseFailed
        after people were charged, whatever went wrong with the rows.
    """
    payer = payer or NoCharge()
    estimator.validate()
    payment = None
    while payment is None:  # somebody paid for another release meanwhile: plan again
        plan, affordable = payer.plan(estimator, dataset)
        refuse_invalid_rows(estimator, plan, affordable)
        payment = payer.reserve(plan)
    if payment.stored is not None:
        return plan, payment.stored
    return plan, payer.publish(_run_mechanism(estimator, plan, affordable, progress), payment)


def _run_mechanism(
    estimator: Estimator, plan: Plan, dataset: Dataset, progress: Any = None
) -> Release:
    """Returns the answer with what it is about and its date, or the one failure that tells
    nothing.
    """
    if progress is None:
        options = {}
    else:
        options = {"progress": progress}
    # Before rows are read: how long an answer takes may depend on them.
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        about = describe_estimator(estimator, plan, dataset)
        release = estimator.release_under(plan, dataset, **options)
        told = replace(release.with_subject(dataset.subject, date), estimator=about)
        return replace(told, intervals=attach_intervals(estimator, told))
    except Exception:
        pass  # raised below, outside the handler, so that nothing of the cause is carried along
    raise ReleaseFailed()


def compute_intervals(estimator: Any, release: Release, level: float) -> Intervals | None:
    """Returns the intervals of a release at a level, from the release alone; None where there are
    none.

    Null records in the place of dropped people pull an answer to where no interval reaches.
    """
    own = getattr(estimator, "_compute_intervals", None)
    if own is None or "sampled" in release.parameters:
        return None
    intervals: Intervals | None = own(release, level)
    return intervals


def attach_intervals(estimator: Any, release: Release) -> dict[str, Any] | None:
    """Returns the intervals that a release carries, as JSON.

    They follow from the release, which is paid for: what goes wrong with them must not cost it.
    """
    with suppress(Exception):
        intervals = compute_intervals(estimator, release, LEVEL)
        if intervals is not None:
            return intervals.to_dict()
    return None


def describe_estimator(estimator: Estimator, plan: Plan, rows: Dataset) -> dict[str, Any]:
    """Return what a release says about the estimator that made it: its class and its bounds.

    Parameters
    ----------
    estimator :
        the estimator.
    plan :
        of the release.
    rows :
        what it reads; their values are not looked at.

    Returns
    -------
    dict
        public facts, from which the estimator can be rebuilt together with its parameters.
    """
    bounds = getattr(estimator, "bounds", None)
    if rows.features is None and rows.label is not None:
        bounds = (rows.label.low, rows.label.high)
    features = plan.parameters.get("features", ())
    names = {name["name"] for name in features if isinstance(name, dict)}
    about: dict[str, Any] = {"name": type(estimator).__name__}
    if isinstance(bounds, Schema):
        names.add(bounds.label)
    if bounds is not None:
        about["bounds"] = encode_bounds(bounds, names)
    missing = getattr(estimator, "missing", None)
    if missing is not None:
        about["missing"] = float(missing)
    return about


def read_source(estimator: Estimator, source: DataSource, watch: Watch | None = None) -> Dataset:
    """Read the budgets and rows of a source as an estimator needs them.

    Parameters
    ----------
    estimator :
        says what it reads.
    source :
        columns in memory, or a table by the names of its columns, wherever it lives.
    watch :
        is told how many rows of a table were read.

    Returns
    -------
    dataset :
        the budgets and the rows, with what they are called; of the rows of a table nothing is read
        but people and budgets.

    Raises
    ------
    InvalidInput
        if columns are missing or do not fit the estimator.
    """
    if not source.in_memory:
        return source.read(estimator.read_table(source), watch)
    if getattr(estimator, "one_column", False):
        dataset = _read_one_column(estimator, source)
    elif source.labels is None:
        raise InvalidParameter(
            "There are no labels.",
            "A model is fitted to a label for each row.",
            "Pass y, the values or the name of their column, or a schema that names the label of "
            "a table.",
            parameter="y",
        )
    else:
        dataset = estimator.read_arrays(
            source.table, source.labels, epsilon=source.epsilon, groups=source.owners
        )
    return replace(dataset, subject=source.subject)


def _read_one_column(estimator: Any, source: DataSource) -> Dataset:
    if source.labels is None:
        values = source.table
    elif source.column is None:
        raise _not_a_name_error()
    else:
        values = source.labels
    dataset: Dataset = estimator.read_arrays(
        values, epsilon=source.epsilon, groups=source.owners, column=source.column
    )
    return dataset


def set_fitted_attributes(
    model: Any, release: Release, guarantee: Guarantee | None = None, X: Any = None
) -> None:
    """Keeps a release and, as scikit-learn has them, coefficients, classes, and names of the
    features of X.
    """
    model.release_ = release
    if guarantee is not None:
        model.guarantee_ = guarantee
    model._recoding = Recoding.from_dict(release.parameters["features"])
    model.n_features_in_ = len(model._recoding.features)
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    if "models" in value:
        fits = list(value["models"].values())
    else:
        fits = [value]
    intercept = np.array([fit["intercept"] for fit in fits])
    slopes = np.array([list(fit["coefficients"].values()) for fit in fits])
    if "models" in value:  # classifiers: a row a model
        model.classes_ = np.array(release.parameters["classes"])
        model.intercept_ = intercept
        model.coef_ = slopes
    else:
        model.intercept_ = fits[0]["intercept"]
        model.coef_ = slopes[0]
    if X is not None and (is_external_table(X) or list_feature_names(X) is not None):
        model.feature_names_in_ = np.array(
            [feature.name for feature in model._recoding.features], dtype=object
        )
