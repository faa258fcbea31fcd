# SPDX-License-Identifier: Apache-2.0
"""Question, the contract of estimators/, and the order of steps that every answer follows.

    budgets → plan_for → (the ledger writes the charges) → fit to be read? → answer → Release

A question plans from budgets alone, and answers from rows under a plan. Everything a caller can get
wrong is refused before the plan is paid for; once rows are being read for the answer, every failure
looks the same from outside, because why it failed may depend on the data.

What a fitted model keeps: its release, and what follows from the release alone. Nothing un-noised.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, is_dataclass, replace
from datetime import UTC, datetime
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from sottovoce.arrays import (
    Array,
    Floats,
    check_same_length,
    count_dimensions,
    get_column_name,
    list_column_names,
    list_feature_names,
    to_matrix,
    to_numbers,
)
from sottovoce.budgets import Budgets
from sottovoce.data.encoding import Recoding
from sottovoce.data.engine import Dataset, get_default_engine, get_table_label, is_external_table
from sottovoce.data.kernels import GroupLookup, HasInvalidValues, invalid_values_error
from sottovoce.data.readers import MATRIX_COLUMN, EncodedReader, HasInvalidRows, Label, Reader
from sottovoce.data.source import (
    DataSource,
    Values,
    find_schema,
    is_read_by_names,
    is_rows_marker,
    owners_missing_error,
)
from sottovoce.errors import (
    InvalidBounds,
    InvalidParameter,
    ReleaseFailed,
)
from sottovoce.guarantee import Guarantee
from sottovoce.plan import Plan
from sottovoce.release import Release
from sottovoce.schema import Bounds, Schema, Subject, encode_bounds, to_interval

VALUE = "value"
KIND = "kind"
#: More features than this are a mistake.
MAX_FEATURES = 10**6
#: Fields of a schema and of its columns that name things for people.
UNHASHED_FIELDS = ("name", "unit")


class Estimator(Protocol):
    """What can be asked of people's rows."""

    missing: float | None  # the public constant that stands for missing values

    def get_params(self) -> dict[str, Any]:
        """The public parameters, by name."""

    def gather(self, *data: Any, epsilon: Any, groups: Any) -> tuple[Budgets, Dataset]:
        """Returns the budgets and rows of data in memory; a question about one column also takes
        its name, column=.
        """

    def rows_of(self, table: DataSource) -> Dataset:
        """Returns what is read of a table by the names of its columns; nothing is read yet."""

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """Returns the plan, from public facts alone; ``rows`` tell no more than which columns there
        are.
        """

    def answer(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows, draws the noise, and returns what may be published."""


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
        )
    if isinstance(epsilon, Budgets):
        if groups is not None:
            raise InvalidParameter(
                "Budgets already say whose each row is.",
                "Two answers to that question could disagree.",
                "Pass groups= when building the Budgets, and not again.",
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
        )
    if not low <= constant <= high:
        raise InvalidParameter(
            "What should stand for missing values lies outside the bounds of a column.",
            "It stands for values, and these lie between the bounds.",
            "Choose a constant between them; columns with constants of their own are declared in "
            "a schema.",
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
        raise InvalidBounds(
            "Bounds are missing.",
            "Limits of the features are needed, from public knowledge, and of a label that is a "
            "number.",
            "Pass bounds=sv.Bounds(features=(low, high), label=(lo, hi)), or a Schema.",
        )
    if isinstance(X, tuple):  # the names of columns, of a table that lives elsewhere
        return Recoding.of_bounds(bounds, list(X), len(X))
    return Recoding.of_bounds(bounds, list_feature_names(X), _count_features(X, bounds))


def _count_features(X: Any, bounds: Bounds) -> int:
    if isinstance(X, Integral):
        count = int(X)
        if not 0 < count < MAX_FEATURES:
            raise InvalidParameter(
                "n_features is not a number of features.", "", "Pass a whole number above 0."
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
        )
    return int(sizes[0])


def load_column(
    values: Any, *, epsilon: Any, groups: Any, label: Label | None = None
) -> tuple[Budgets, Dataset]:
    """Returns the budgets and rows of one column in memory."""
    column = to_numbers(values)
    if groups is not None:
        check_same_length(len(column), groups=groups)
    budgets = make_budgets(epsilon, groups, len(column))
    kinds = budgets.row_codes()
    check_same_length(len(column), epsilon=kinds)
    engine = get_default_engine().of_columns({VALUE: column, KIND: kinds})
    return budgets, Dataset(engine, VALUE, GroupLookup(KIND), label=label)


def load_regression(
    raw: Floats, recoding: Recoding, values: Any, label: Label, epsilon: Any, groups: Any
) -> tuple[Budgets, Dataset]:
    """Returns the budgets and rows of a regression in memory, with the features recoded once."""
    column = to_numbers(values, "labels")
    recoded = recoding.encode(raw)
    check_same_length(len(recoded), y=column, groups=groups)
    budgets = make_budgets(epsilon, groups, len(column))
    return budgets, load_matrix(recoded, EncodedReader(recoding), column, label, budgets)


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
    return Dataset(
        get_default_engine().of_columns(columns), VALUE, GroupLookup(KIND), reader, label
    )


def refuse_invalid_rows(question: Estimator, plan: Plan, rows: Dataset) -> None:
    """Refuses rows with missing or infinite values, before anything is charged."""
    heard = plan.budgets.kinds.epsilon > 0
    if rows.features is None:
        if rows.label is None:
            missing = question.missing
        else:
            missing = rows.label.missing
        if rows.engine.fold(HasInvalidValues(rows.value, rows.owner, heard, missing)):
            raise invalid_values_error()
        return
    features, label = rows.engine.fold(
        HasInvalidRows(rows.features, rows.label, rows.owner, heard)
    ).tolist()
    if features or label:
        raise rows.label.refusal() if label else invalid_values_error()


def run_release(question: Estimator, plan: Plan, rows: Dataset, *watch: Any) -> Release:
    """Returns the answer with what it is about and its date, or the one failure that tells
    nothing.
    """
    # Before rows are read: how long an answer takes may depend on them.
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = describe_estimator(question, plan, rows)
    try:
        release = question.answer(plan, rows, *watch).with_subject(rows.subject, date)
        return replace(release, estimator=about)
    except Exception:
        pass  # raised below, outside the handler, so that nothing of the cause is carried along
    raise ReleaseFailed()


def describe_estimator(question: Estimator, plan: Plan, rows: Dataset) -> dict[str, Any]:
    """Return what a release says about the estimator that made it: its class and its bounds.

    Parameters
    ----------
    question :
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
    bounds = getattr(question, "bounds", None)
    if rows.features is None and rows.label is not None:
        bounds = (rows.label.low, rows.label.high)
    features = plan.parameters.get("features", ())
    names = {name["name"] for name in features if isinstance(name, dict)}
    about: dict[str, Any] = {"name": type(question).__name__}
    if isinstance(bounds, Schema):
        names.add(bounds.label)
    if bounds is not None:
        about["bounds"] = encode_bounds(bounds, names)
    missing = getattr(question, "missing", None)
    if missing is not None:
        about["missing"] = float(missing)
    return about


def read_source(
    question: Estimator,
    X: Any,
    y: Any = None,
    *,
    epsilon: Any,
    groups: Any,
    engine: str | None = None,
) -> tuple[Budgets, Dataset]:
    """Returns the budgets and rows of data in memory, or of a table wherever it lives, by the names
    of its columns.
    """
    schema = find_schema(question)
    if is_read_by_names(schema, X, y, epsilon, groups):
        table = DataSource.of(X, y, epsilon, groups, schema, engine)
        budgets, rows = table.read(question.rows_of(table))
        return budgets, replace(
            rows, subject=_make_subject(question, rows.value, get_table_label(X))
        )
    given = Values.of(question, X, y, epsilon, groups)
    return read_values(question, given, given.epsilon, given.groups)


def read_values(
    question: Estimator, given: Values, epsilon: Any, groups: Any
) -> tuple[Budgets, Dataset]:
    """Returns the budgets and rows of columns in memory, for these budgets and owners."""
    if getattr(question, "one_column", False):
        if given.y is not None and given.column is None:
            raise _not_a_name_error()
        if given.y is None:
            values = given.X
        else:
            values = given.y
        budgets, rows = question.gather(values, epsilon=epsilon, groups=groups, column=given.column)  # type: ignore[call-arg]
    elif given.y is None:
        raise InvalidParameter(
            "There are no labels.",
            "A model is fitted to a label for each row.",
            "Pass y, the values or the name of their column, or a schema that names the label of "
            "a table.",
        )
    else:
        budgets, rows = question.gather(given.X, given.y, epsilon=epsilon, groups=groups)
    return budgets, replace(rows, subject=describe_subject(question, given))


def describe_subject(question: Estimator, given: Values) -> Subject:
    """Returns what a question about data in memory is about, by the names that the data and a
    schema have.
    """
    return _make_subject(
        question, given.column or get_column_name(given.X if given.y is None else given.y), None
    )


def _make_subject(question: Estimator, column: str | None, table: str | None) -> Subject:
    schema = find_schema(question)
    return Subject(column or schema.label, schema.name or table, schema.units)


def make_release(
    question: Estimator, X: Any, y: Any = None, *, epsilon: Any, groups: Any
) -> tuple[Plan, Release]:
    """Plans and answers a question about data in memory or a table."""
    return release_dataset(question, *read_source(question, X, y, epsilon=epsilon, groups=groups))


def release_dataset(question: Estimator, budgets: Budgets, rows: Dataset) -> tuple[Plan, Release]:
    """Plans and answers a question about these rows."""
    plan = question.plan_for(budgets, rows)
    refuse_invalid_rows(question, plan, rows)
    return plan, run_release(question, plan, rows)


@dataclass(frozen=True, eq=False)
class Request:
    """What a key stands for, for ever: a question, the columns it is about, of whom, and at which
    price.

    Values of the data are not in it: to look an answer up by private data would itself be an
    answer.
    """

    question: Estimator
    columns: list[Any]  # names of features and label, or how many there are where they have none
    people: Array
    facts: tuple[Array, ...]  # whole numbers by row or by person: whose each row is, and prices
    # what versions whose requests did not cover the names of columns put in place of these two
    earlier: Any = ""
    earlier_facts: tuple[Array, ...] = ()
    features: list[str] | None = (
        None  # what a release calls the features; None: nothing that could be compared
    )

    def fingerprint(self) -> str:
        """Returns a fingerprint of all of it: the same key must always mean the same request."""
        asked = encode_question(self.question, self.columns)
        digest = hashlib.sha256(
            json.dumps(asked, sort_keys=True, default=_encode_parameter).encode()
        )
        for part in (repr(self.people.tolist()).encode(), *map(_to_int64_bytes, self.facts)):
            digest.update(
                len(part).to_bytes(8, "big")
            )  # so that no two lists of parts run together
            digest.update(part)
        return digest.hexdigest()

    def earlier_fingerprint(self) -> str:
        """Returns the fingerprint that is in books of versions whose requests did not cover the
        names of columns.
        """
        return compute_earlier_fingerprint(
            encode_question(self.question, self.earlier), self.people, *self.earlier_facts
        )

    def contradicts(self, release: Release) -> bool:
        """Whether a stored release is about other features than the request."""
        told = release.parameters.get("features")
        if self.features is None or not isinstance(told, list):
            return False
        return [name if isinstance(name, str) else name["name"] for name in told] != self.features


def encode_question(question: Estimator, about: Any = "") -> list[Any]:
    """Returns a question as a request is remembered by, so that requests in older books keep their
    fingerprint.

    A default that changed is written as it used to be; a parameter that came later is left out
    unless it is given.
    """
    told: dict[str, Any] = getattr(question, "asked_parameters", question.get_params)()
    later = getattr(question, "later", ())
    given = {name: value for name, value in told.items() if name not in later or value is not None}
    return [type(question).__name__, given, about]


def compute_earlier_fingerprint(asked: list[Any], people: Array, *others: Array) -> str:
    """Returns a fingerprint as earlier versions made it; it recognises requests that are in books
    already.
    """
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=_encode_parameter).encode())
    digest.update(repr(people.tolist()).encode())
    for array in others:
        digest.update(_to_int64_bytes(array))
    return digest.hexdigest()


def name_columns(question: Estimator, values: Values) -> tuple[list[Any], list[str] | None]:
    """Returns the names of data in memory for a request, and the names of features as a release
    tells them.
    """
    data = [part for part in (values.X, values.y) if part is not None]
    names = [list_column_names(part) for part in data]
    if values.column is not None:
        names[-1] = [values.column]
    if len(data) < 2:
        return names, None
    if isinstance(getattr(question, "bounds", None), Schema):
        # It names the features, whatever else the table holds, and is a parameter of the question.
        return [None, *names[1:]], None
    if isinstance(names[0], int):
        count = names[0]
    else:
        count = len(names[0])
    return names, list_feature_names(data[0]) or [f"x{j}" for j in range(count)]


def _to_int64_bytes(array: Array) -> bytes:
    return np.ascontiguousarray(array, dtype=np.int64).tobytes()


def _encode_parameter(parameter: Any) -> Any:
    # Arrays in full: NumPy's own repr leaves out the middle of long ones.
    if isinstance(parameter, np.ndarray | np.generic):
        return parameter.tolist()
    if hasattr(parameter, "to_numpy"):  # data frames, whose repr leaves it out too
        return [
            list(parameter.columns) if hasattr(parameter, "columns") else [],
            parameter.to_numpy().tolist(),
        ]
    if not is_dataclass(parameter):
        return repr(parameter)
    # What a table or a unit is called is told to people, and is no part of what is asked.
    return {name: value for name, value in vars(parameter).items() if name not in UNHASHED_FIELDS}


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
