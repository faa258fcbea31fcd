# SPDX-License-Identifier: Apache-2.0
"""Estimator, the contract of estimators/, the steps that its kinds have in common, and
make_release, the order of steps of every release.

    validate → plan → check rows → reserve → run → publish

An estimator plans from budgets alone, and answers from rows under a plan. Everything a caller can
get wrong is refused before people are charged; once rows are being read for the answer, every
failure looks the same from outside, because why it failed may depend on the data.

Two contracts are called from here although what keeps them lies above: Estimator (estimators/), and
Payer (booking.py), what pays for a release.

    class             the steps of
    ColumnSteps       a question about one column
    ModelSteps        a model of labels by features within declared bounds
    RegressionSteps   a model whose label is a number

What models have of scikit-learn is added in estimators/base.py. What a fitted model keeps: its
release, and what follows from the release alone. Nothing un-noised.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, Self

import numpy as np

from sottovoce.arrays import (
    Array,
    ColumnLike,
    Floats,
    TableLike,
    check_same_length,
    count_rows,
    get_named_column,
    list_feature_names,
    to_numbers,
)
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.census import scale_budgets
from sottovoce.data.encoding import (
    KIND,
    MATRIX_COLUMN,
    VALUE,
    EncodedReader,
    HasInvalidRows,
    Label,
    RawReader,
    Reader,
    Recoding,
    encode_numbers,
    make_label,
    make_recoding,
)
from sottovoce.data.engine import (
    Dataset,
    Engine,
    GroupLookup,
    Watch,
    get_default_engine,
    is_external_table,
)
from sottovoce.data.kernels import ColumnScan, HasInvalidValues, invalid_values_error
from sottovoce.data.shared_fold import fold_together
from sottovoce.data.source import (
    DataSource,
    describe_rows,
    find_schema,
    is_rows_marker,
    owners_missing_error,
)
from sottovoce.errors import (
    InvalidParameter,
    ReleaseFailed,
)
from sottovoce.guarantee import Guarantee
from sottovoce.plan import Plan
from sottovoce.release import LEVEL, Intervals, Release
from sottovoce.schema import (
    BoundsLike,
    Schema,
    check_missing_constant,
    encode_bounds,
    is_between,
    to_interval,
)


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
        """Returns the plan, from public facts alone; ``rows`` only tell which columns there are."""

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows, draws the noise, and returns what may be published.

        One that works in steps also takes ``progress``, which is told how many are done.
        """


@dataclass(frozen=True)
class Payment:
    """What came of a reservation: a charge now, or the release that was paid for before."""

    stored: Release | None = None
    receipt: Any = None  # what the payer needs to publish


class Payer(Protocol):
    """What pays for a release: a session with its ledger, or nobody."""

    def plan(self, estimator: Estimator, dataset: Dataset) -> tuple[Plan, Dataset]:
        """Returns a plan that everybody who takes part can pay for, and their rows."""

    def reserve(self, plan: Plan) -> Payment | None:
        """Charges everybody as planned; None where another plan is needed."""

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
    budgets = get_budgets(dataset)
    plan = estimator.plan_for(budgets, dataset)
    refuse_unsold(budgets, plan.guarantee)
    return plan


def plan_budgets(estimator: Estimator, budgets: Budgets, rows: Dataset | None = None) -> Plan:
    """Returns the plan for these budgets, before there are rows; ``rows`` are public features,
    where a plan needs them.
    """
    if rows is None:
        plan = estimator.plan_for(budgets)
    else:
        plan = estimator.plan_for(budgets, rows)
    refuse_unsold(budgets, plan.guarantee)
    return plan


def refuse_unsold(budgets: Budgets, guarantee: Guarantee) -> None:
    """Refuses to spend what was sold on another promise than was sold."""
    promised = (guarantee.currency, guarantee.neighbours)
    if budgets.sold is not None and budgets.sold != promised:
        raise InvalidParameter(
            f"This question promises {' by '.join(promised)}.",
            f"Sellers have sold {' by '.join(budgets.sold)} of all their rows, and nothing else.",
            "Choose a question that promises that, or agree anew with the sellers and pass what "
            "they then allow as a mapping from person.",
            parameter="epsilon",
        )


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


def make_column_label(question: Any, column: str | None = None) -> Label:
    """Returns how a question about one column reads it, by its bounds or its schema."""
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
    constant = check_missing_constant(own, low, high)
    return Label(column or VALUE, low, high, constant, bounds.columns[name].step)


def _not_a_name_error() -> InvalidParameter:
    return InvalidParameter(
        "The column in question is not a name.",
        "It names a column of the table that comes first.",
        "Pass the values alone, or a table and the name.",
        parameter="column",
    )


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


def load_named_columns(table: Any, described: Dataset, epsilon: Any, groups: Any) -> Dataset:
    """Returns the budgets and rows of a table in memory whose columns are found by their names."""
    if list_feature_names(table) is None:
        raise InvalidParameter(
            "The table has no names.",
            "Questions find their columns by name.",
            "Pass a data frame or an Arrow table.",
            parameter="table",
        )
    names = described.list_columns()
    for name in names:
        get_named_column(table, name)  # which refuses one that is not there, or twice
    n_rows = count_rows(table, "table")
    if groups is not None:
        check_same_length(n_rows, groups=groups)
    budgets = make_budgets(epsilon, groups, n_rows)
    kinds = budgets.row_codes()
    check_same_length(n_rows, epsilon=kinds)
    beside = KIND
    while beside in names:  # a column of the table may have this name, too
        beside += "_"
    engine = get_default_engine().of_named_columns(table, names, {beside: kinds})
    described.refuse_wrong_kinds(engine.columns())
    return replace(described, engine=engine, owner=GroupLookup(beside), budgets=budgets)


def load_regression(
    raw: Floats,
    recoding: Recoding,
    values: Any,
    label: Label,
    epsilon: Any,
    groups: Any,
    *,
    rounded: bool = False,
    once: bool = False,
    others: Callable[[Budgets], Mapping[str, Array]] | None = None,
) -> Dataset:
    """Returns the budgets and rows of a regression in memory, with the features recoded once, and
    rounded where it reads them so; ``once`` where it reads them once, and recodes them then;
    ``others`` makes further columns from the budgets.
    """
    column = to_numbers(values, "labels")
    check_same_length(len(raw), y=column, groups=groups)
    budgets = make_budgets(epsilon, groups, len(column))
    further = None
    if others is not None:
        further = others(budgets)
    if once:
        recoding.refuse_wrong_width(raw)
        return load_matrix(raw, RawReader(recoding), column, label, budgets, further)
    recoded = encode_numbers(raw, recoding, rounded=rounded)
    reader = EncodedReader(recoding, rounded)
    return load_matrix(recoded, reader, column, label, budgets, further)


def load_matrix(
    rows: Floats,
    reader: Reader,
    column: Floats,
    label: Any,
    budgets: Budgets,
    others: Mapping[str, Array] | None = None,
) -> Dataset:
    """Returns rows in memory as readers expect them: a recoded matrix, labels, and other columns by
    name.
    """
    kinds = budgets.row_codes()
    check_same_length(len(column), epsilon=kinds)
    columns: dict[str, Array] = {VALUE: column, KIND: kinds, **(others or {})}
    if rows.shape[1]:
        columns[MATRIX_COLUMN] = rows
    engine = get_default_engine().of_columns(columns)
    return Dataset(engine, VALUE, GroupLookup(KIND), reader, label, budgets=budgets)


def refuse_invalid_rows(question: Estimator, plan: Plan, rows: Dataset) -> None:
    """Refuses rows with missing or infinite values, before anything is charged."""
    if rows.parts:
        asked: Any = question
        checks = [
            partial(_refuse_invalid_part, part, plan.parts[name], rows.select_part(name))
            for name, part in asked.list_parts().items()
        ]
        fold_together(rows.engine, checks)
        return
    participating = _find_participants(question, plan)
    if rows.cells is not None and not getattr(question, "refuses_missing", False):
        # A row without a value has a cell, and values beyond the bounds are clipped; but a text
        # file may hold something else where numbers are declared.
        if rows.parses_text and rows.list_number_columns():
            rows.engine.fold(ColumnScan(rows.list_number_columns()))
        return
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


def _find_participants(question: Estimator, plan: Plan) -> Array:
    """Returns which kinds of people take part; a question may leave some of them out."""
    own = getattr(question, "find_participants", None)
    if own is not None:
        return np.asarray(own(plan))
    return plan.budgets.kinds.epsilon > 0


def _refuse_invalid_part(question: Estimator, plan: Plan, rows: Dataset, engine: Engine) -> None:
    refuse_invalid_rows(question, plan, replace(rows, engine=engine))


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
    """Returns the answer, or the one failure that tells nothing."""
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


def name_class(estimator: Any) -> str:
    """Returns the name of an estimator's class, as books and releases know it: that of the public
    class, if it is the core of one.
    """
    kind = type(estimator)
    name: str = vars(kind).get("stands_for", kind.__name__)  # a subclass has a name of its own
    return name


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
    elif rows.cells is not None:  # what is read besides one column is among the parameters
        bounds = None
    features = plan.parameters.get("features", ())
    names = {name["name"] for name in features if isinstance(name, dict)}
    # what goes around an estimator is among the parameters
    about: dict[str, Any] = {"name": getattr(estimator, "recorded_class", name_class(estimator))}
    if rows.parts:  # each has its own
        return about
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
    if not source.in_memory and getattr(estimator, "needs_rows", False):
        dataset = read_source(estimator, source.load_rows(), watch)
        return _spend_share(replace(dataset, subject=source.subject), source.share)
    if not source.in_memory:
        return source.read(estimator.read_table(source), watch)
    if getattr(estimator, "reads_cells", False):
        dataset = _read_cells(estimator, source)
    elif getattr(estimator, "one_column", False):
        dataset = _read_one_column(estimator, source)
    elif getattr(estimator, "one_table", False):
        dataset = estimator.read_arrays(source.table, epsilon=source.epsilon, groups=source.owners)
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
    if dataset.parts:
        return replace(dataset, subject=replace(source.subject, column=None))
    return replace(dataset, subject=source.subject)


def read_public(estimator: Estimator, source: DataSource) -> Dataset | None:
    """Return what the plan of a table needs besides budgets: public features, of an estimator whose
    labels alone are private; None of every other.

    Parameters
    ----------
    estimator :
        says whether it has a method for that.
    source :
        the table, by the names of its columns.
    """
    if not hasattr(estimator, "read_public"):
        return None
    dataset: Dataset = estimator.read_public(source)
    return _spend_share(replace(dataset, subject=source.subject), source.share)


def _spend_share(dataset: Dataset, share: float) -> Dataset:
    """Returns the same rows of people who spend a share of what they grant."""
    budgets, owner = scale_budgets(get_budgets(dataset), dataset.owner, share)
    return replace(dataset, budgets=budgets, owner=owner)


def _read_cells(estimator: Any, source: DataSource) -> Dataset:
    dataset: Dataset = estimator.read_arrays(
        source.table,
        source.labels,
        epsilon=source.epsilon,
        groups=source.owners,
        column=source.column,
    )
    return dataset


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
    """Keeps a release, and what scikit-learn expects of a fitted model."""
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


def make_estimator(
    make: Callable[..., Estimator], source: DataSource, **parameters: Any
) -> Estimator:
    """Return an estimator of this class for a source.

    Parameters
    ----------
    make :
        the class of the estimator, such as ``sv.Mean``.
    source :
        a completed source, which has the bounds.
    parameters :
        of the estimator; those that are None are left out.

    Raises
    ------
    InvalidParameter, InvalidBounds, InvalidSchema
        if they are wrong whoever the people are; no table is opened for that.
    """
    given = {word: value for word, value in parameters.items() if value is not None}
    takes = inspect.signature(make).parameters
    if source.features is None:
        declared = {"bounds": source.bounds, "missing": source.missing}
        if "step" not in given and "cells" not in given:
            declared["step"] = _find_declared_step(source)
        given |= {word: value for word, value in declared.items() if word in takes}
        # Columns of cells and filters, and several columns, are described by the schema alone.
        by_schema = "by" in given or "where" in given or source.column is None
        if "schema" in takes and by_schema:
            given |= {"schema": source.load_schema()}
    else:
        given |= {"bounds": source.features}  # which declares its own constants for missing values
    estimator = make(**given)
    estimator.validate()
    return estimator


def _find_declared_step(source: DataSource) -> float | None:
    """The step of the column in question, where the schema declares one."""
    schema = source.load_schema()
    described = None if schema is None else schema.columns.get(source.column or "")
    return None if described is None else described.step


def release_unbooked(
    source: DataSource, estimator: Estimator, watch: Watch | None = None
) -> Release:
    """Return the release from a table that no ledger remembers: everybody grants what it says.

    Parameters
    ----------
    source :
        the table.
    estimator :
        what is asked.
    watch :
        is told how many rows were read.

    Returns
    -------
    Release
        what may be published.

    Raises
    ------
    SottovoceError
        if something is wrong, or reading the rows failed.
    """
    dataset = read_source(estimator, source, watch)
    # No accounts are needed: people are counted and protected, but not named.
    nameless = replace(get_budgets(dataset), people=None)
    return make_release(estimator, replace(dataset, budgets=nameless))[1]


def get_association(given: Any) -> float:
    """Returns how far models of people with one budget may lie apart, as a share of a spread; 0
    unless it is given.
    """
    if given is None:
        return 0.0
    if not is_between(given, -1e-300, 1e9):
        raise InvalidParameter(
            "association is not a number from 0 on.",
            "It says how far people with one budget may differ from everybody, as a share of the "
            "spread.",
            "Pass a public guess such as 0.2, 0 if budgets go along with nothing, or nothing.",
            parameter="association",
        )
    return float(given)


def get_owners(budgets: Budgets) -> Array:
    """Returns the person of every row; refuses budgets that do not know."""
    if budgets.codes is None or (budgets.unit == "person" and budgets.owner is None):
        raise InvalidParameter(
            "These budgets do not say which row is whose.",
            "",
            "Build them with Budgets.of.",
            parameter="epsilon",
        )
    if budgets.owner is None:
        return np.arange(budgets.n_people)
    return budgets.owner


class ColumnSteps(Estimator):
    """The steps of a question about one column; a subclass says what it asks, plans and answers."""

    release_: Release
    guarantee_: Guarantee
    bounds: BoundsLike | None
    one_column = True

    def fit(
        self,
        y: TableLike,
        epsilon: BudgetLike | None = None,
        groups: ColumnLike | None = None,
        column: str | None = None,
    ) -> Self:
        """Answer about a column.

        Parameters
        ----------
        y : TableLike
            The column: values in memory, or a table that lives elsewhere (a path, a DuckDB
            relation, a dataset of Arrow, a data frame of Spark or Dask), of which column, groups
            and epsilon then name columns.
        epsilon : BudgetLike, optional
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.
        column : str, optional
            The name of the column in question, where y is a table.

        Returns
        -------
        Self
            The fitted estimator.

        Raises
        ------
        InvalidInput
            Something cannot be used; nobody is charged.
        ReleaseFailed
            Reading the rows failed; what was charged stays charged.
        """
        self._check_column(column)  # bad bounds are refused before anything else is looked at
        dataset = read_source(self, DataSource.of(self, y, column, epsilon, groups))
        plan, self.release_ = make_release(self, dataset)
        self.guarantee_ = plan.guarantee
        self._set_value(self.release_)
        return self

    def plan(
        self, epsilon: BudgetLike, groups: ColumnLike | None = None, rows: int | None = None
    ) -> Plan:
        """Return what an answer will cost whom, and how accurate it will be; no value is needed.

        Parameters
        ----------
        epsilon : BudgetLike
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.
        rows : int, optional
            How many rows there are, where neither epsilon nor groups tells.

        Returns
        -------
        Plan
            What it will cost whom, and how accurate it will be.

        Raises
        ------
        InvalidInput
            A budget, bound or parameter cannot be used.
        """
        return self.plan_for(make_budgets(epsilon, groups, rows, find_schema(self)))

    def read_arrays(
        self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None, column: str | None = None
    ) -> Dataset:
        """Returns the budgets and rows of one column in memory."""
        (values,) = data
        return load_column(
            values,
            epsilon=epsilon,
            groups=groups,
            label=replace(make_column_label(self, column), column=VALUE),
        )

    def read_table(self, table: DataSource) -> Dataset:
        """Returns the column that is read of a table."""
        return describe_rows(make_column_label(self, table.find_column()))

    def _check_column(self, column: str | None) -> None:
        """Refuses bounds that are wrong whatever the values are."""
        make_column_label(self, column)

    def _get_label(self, rows: Dataset | None) -> Label:
        """How the column is read: as these rows say, or as it was declared."""
        if rows is None or rows.label is None:
            return make_column_label(self)
        label: Label = rows.label
        return label

    def _set_value(self, release: Release) -> None:
        """Keeps the answer as ``value_``."""
        raise NotImplementedError


class ModelSteps(Estimator):
    """The steps of a model of labels by features; a subclass says what it plans and answers."""

    bounds: BoundsLike | None
    later: tuple[str, ...] = ("missing",)  # what older books do not know about a question
    _recoding: Recoding

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of the constructor by name; scikit-learn's own, where a model has it."""
        given = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in sorted(given)}

    def fit(
        self,
        X: TableLike,
        y: ColumnLike | None = None,
        epsilon: BudgetLike | None = None,
        groups: ColumnLike | None = None,
    ) -> Self:
        """Fit the labels y on the features X.

        Parameters
        ----------
        X : TableLike
            Features: a table in memory, or one that lives elsewhere (a path, a DuckDB relation, a
            dataset of Arrow, a data frame of Spark or Dask), of which y, groups and epsilon then
            name columns.
        y : ColumnLike, optional
            Labels, or the name of their column; a schema may name it.
        epsilon : BudgetLike, optional
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.

        Returns
        -------
        Self
            The fitted estimator.

        Raises
        ------
        InvalidInput
            Something cannot be used; nobody is charged.
        ReleaseFailed
            Reading the rows failed; what was charged stays charged.
        """
        dataset = self._read_rows(X, y, epsilon, groups)
        plan, release = make_release(self, dataset)
        self._set_fitted(release, plan.guarantee, X)
        return self

    def plan(
        self,
        epsilon: BudgetLike,
        groups: ColumnLike | None = None,
        rows: int | None = None,
        n_features: int | None = None,
    ) -> Plan:
        """Return what a fit will cost whom, and how accurate it will be; no value is needed.

        Parameters
        ----------
        epsilon : BudgetLike
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.
        rows : int, optional
            How many rows there are, where neither epsilon nor groups tells.
        n_features : int, optional
            How many features there are, where the bounds do not tell.

        Returns
        -------
        Plan
            What it will cost whom, and how accurate it will be.

        Raises
        ------
        InvalidInput
            A budget, bound or parameter cannot be used.
        """
        budgets = make_budgets(epsilon, groups, rows, find_schema(self))
        return self._make_plan(budgets, self._make_recoding(n_features))

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan; without rows the bounds must tell how many features there are."""
        if rows is None:
            recoding = self._make_recoding(None)
        else:
            recoding = rows.features.recoding
        return self._make_plan(budgets, recoding)

    def _read_rows(
        self,
        X: TableLike,
        y: ColumnLike | None,
        epsilon: BudgetLike | None,
        groups: ColumnLike | None,
    ) -> Dataset:
        return read_source(self, DataSource.of(self, X, y, epsilon, groups))

    def _make_recoding(self, X: TableLike | int | None) -> Recoding:
        """The recoding, from what was declared (X only tells how many columns there are)."""
        return make_recoding(self.bounds, X, self.missing)

    def _make_plan(self, budgets: Budgets, recoding: Recoding) -> Plan:
        raise NotImplementedError

    def _set_fitted(
        self, release: Release, guarantee: Guarantee | None = None, X: TableLike | None = None
    ) -> None:
        set_fitted_attributes(self, release, guarantee, X)


class RegressionSteps(ModelSteps):
    """The steps of a model whose label is a number."""

    def read_table(self, table: DataSource) -> Dataset:
        """Returns the features and the label that are read of a table."""
        label, recoding = self._make_label_and_recoding(table.list_features(self.bounds))
        return describe_rows(replace(label, column=table.find_label()), recoding)

    def _make_recoding(self, X: TableLike | int | None) -> Recoding:
        return self._make_label_and_recoding(X)[1]

    def _make_label_and_recoding(self, X: TableLike | int | None) -> tuple[Label, Recoding]:
        """The label and the recoding as declared; X only tells how many columns there are."""
        label = make_label(self)
        return label, make_recoding(self.bounds, X, self.missing)
