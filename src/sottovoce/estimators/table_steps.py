# SPDX-License-Identifier: Apache-2.0
"""The steps that questions about tables have in common: which cells are asked about, which columns
are read, and the table that a release holds.

``by`` and ``where`` are public: they become cells (data/cells.py) before a table is opened. A
question without both is about all rows, which is one cell.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sottovoce.arrays import (
    ColumnLike,
    check_same_length,
    get_named_column,
    list_feature_names,
    to_numbers,
)
from sottovoce.budgets import BudgetLike
from sottovoce.data.cells import Cells, make_cells
from sottovoce.data.encoding import KIND, VALUE, Label
from sottovoce.data.engine import Dataset, GroupLookup, get_default_engine
from sottovoce.data.source import DataSource, describe_cells, find_schema
from sottovoce.errors import InvalidBounds, InvalidParameter, MissingColumn, WrongType
from sottovoce.estimator import make_budgets, make_column_label
from sottovoce.estimators.column import ColumnEstimator, LoadableEstimator
from sottovoce.release import Release
from sottovoce.schema import Schema, is_between

if TYPE_CHECKING:
    from sottovoce.estimators.table_result import Table


#: A cell's share among people with one budget may lie so far from everybody's, in units of
#: √(p(1 − p)): .02 for a share of a half, as the mean of a column of zeros and ones has it.
SHARE_ASSOCIATION = 1 / 25
#: Bounds of what is squared reach no further than this, and lie no nearer to each other.
LARGEST_BOUND = 1e60
SMALLEST_WIDTH = 1e-60


class TableEstimator(LoadableEstimator, ColumnEstimator):
    """A question about the cells of a table; a subclass says what it plans and answers."""

    by: Any
    where: str | None
    schema: Schema | None
    has_values = True  # whether a column of numbers is summed
    reads_cells = True
    table_: Table

    def _make_cells(self) -> Cells:
        return make_cells_of(self)

    def _check_column(self, column: str | None) -> None:
        self._make_cells()
        if self.has_values:
            make_column_label(self, column)

    def read_arrays(
        self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None, column: str | None = None
    ) -> Dataset:
        """Returns the budgets and rows of a table in memory."""
        return load_cells(self, *data, epsilon=epsilon, groups=groups, column=column)

    def read_table(self, table: DataSource) -> Dataset:
        """Returns the columns that are read of a table."""
        return describe_columns(self, table)

    def _set_value(self, release: Release) -> None:
        self.release_ = release
        set_table(self, release)

    def _set_fitted(self, release: Release) -> None:
        self._set_value(release)

    def _is_consistent_with(self, release: Release) -> bool:
        return is_consistent_table(release)

    @classmethod
    def _adapt_arguments(cls, arguments: dict[str, Any], release: Release) -> dict[str, Any]:
        return adapt_cells(arguments, release)


def make_cells_of(question: Any) -> Cells:
    """Returns the cells that a question asks about."""
    if isinstance(question.by, Cells):
        return question.by
    return make_cells(question.by, question.where, find_schema(question))


def set_table(question: Any, release: Release) -> None:
    """Keeps the table of a release, or its number where it is about all rows."""
    from sottovoce.estimators.table_result import Table

    if isinstance(release.value, dict):
        question.table_ = Table(release)
        question.value_ = question.table_.values
    else:
        question.value_ = float(release.value)  # type: ignore[arg-type]


def adapt_cells(arguments: dict[str, Any], release: Release) -> dict[str, Any]:
    """Returns the arguments of the estimator that made a release, with its cells."""
    if "by" in release.parameters:
        arguments["by"] = Cells.from_dict(release.parameters["by"])
        arguments.pop("where", None)
    return arguments


def is_consistent_table(release: Release) -> bool:
    """Whether every part of a released table has a number for each of its cells, or says that there
    are too few rows.
    """
    size = Cells.from_dict(release.parameters["by"]).size
    slots = size * len(release.grid["parts"])
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    if len(value["noisy"]) != slots or release.noise["slots"] != slots:
        return False
    columns = [numbers for name, numbers in value.items() if name != "noisy"]
    if any(len(numbers) != size for numbers in columns):
        return False
    told = [number for numbers in columns for number in numbers if number is not None]
    return bool(np.isfinite(np.array([*told, *value["noisy"]], dtype=np.float64)).all())


def load_cells(
    question: Any,
    table: Any,
    values: Any = None,
    *,
    epsilon: BudgetLike,
    groups: ColumnLike | None,
    column: str | None = None,
) -> Dataset:
    """Returns the budgets and rows of a table in memory: the columns of its cells, and the one that
    is summed.
    """
    cells = make_cells_of(question)
    label = None
    if question.has_values and values is None:
        values = _find_values(question, table, column)
    held = take_columns(table, cells.columns)
    if question.has_values:
        value = find_free_name(VALUE, held)
        label = replace(make_column_label(question, column), column=value)
        held[value] = pa.array(to_numbers(values))
    rows = len(next(iter(held.values()), table))
    budgets = make_budgets(epsilon, groups, rows)
    kinds = budgets.row_codes()
    check_same_length(rows, epsilon=kinds, groups=groups, **held)
    owner = find_free_name(KIND, held)
    held[owner] = pa.array(kinds)
    engine = get_default_engine().of_table(pa.table(held))
    described = describe_cells(cells, label)
    described.refuse_wrong_kinds(engine.columns())
    return replace(described, engine=engine, owner=GroupLookup(owner), budgets=budgets)


def _find_values(question: Any, table: Any, column: str | None) -> Any:
    """Returns the column that is summed: the one that is named, or the values alone, without a
    table around them.
    """
    name = column or find_schema(question).label
    if name is not None and name in (list_feature_names(table) or []):
        return get_named_column(table, name)
    return table


def find_free_name(name: str, taken: dict[str, Any]) -> str:
    """Returns a name that no column has yet."""
    while name in taken:
        name += "_"
    return name


def take_columns(table: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Returns columns of a table in memory as Arrow has them, in its order of rows."""
    if not names:
        return {}
    known = list_feature_names(table)
    if known is None:
        raise MissingColumn(
            "This is no table whose columns have names.",
            "The columns of cells and filters are looked up by their names.",
            "Pass a data frame or an Arrow table.",
            parameter="by",
        )
    for name in names:
        if known.count(name) != 1:
            raise MissingColumn(
                f"The table has no column {name!r}, or has it twice.",
                "The columns of cells and filters are looked up by their names.",
                "Pass a data frame or an Arrow table with it, once.",
                parameter="by",
            )
    with suppress(Exception):  # raised below: the reason may quote a cell
        if isinstance(table, pa.Table):
            taken = table.select(list(names))
        elif hasattr(table, "to_arrow"):  # polars
            taken = table.select(list(names)).to_arrow()
        else:
            taken = pa.Table.from_pandas(table[list(names)], preserve_index=False)
        return {name: taken.column(name) for name in names}
    raise WrongType(
        "A column of the cells holds several kinds of things.",
        "It has levels, numbers or dates.",
        "Convert it.",
        parameter="by",
    )


def describe_columns(question: Any, source: DataSource) -> Dataset:
    """Returns what is read of a table by the names of its columns."""
    label: Label | None = None
    if question.has_values:
        label = make_column_label(question, source.find_column())
    return describe_cells(make_cells_of(question), label)


def count_expected(cells: Cells) -> int:
    """Returns over how many cells rows are expected to spread evenly: the declared ones, and twice
    as many with a filter.
    """
    declared = int(np.prod([len(axis.values) for axis in cells.axes], dtype=np.int64))
    if cells.where is not None:
        return 2 * declared
    return declared


def describe_expected(cells: Cells) -> str:
    """Returns what is assumed about how rows spread over cells, in words."""
    declared = int(np.prod([len(axis.values) for axis in cells.axes], dtype=np.int64))
    if cells.where is None and declared == 1:
        return "every row is counted"
    if cells.where is None:
        return f"rows spread evenly over the {declared:,} declared cells"
    if declared == 1:
        return "half of the rows satisfy the filter"
    return f"half of the rows satisfy the filter and spread evenly over {declared:,} cells"


def refuse_extreme_bounds(low: float, high: float) -> None:
    """Refuses bounds whose fourth powers doubles do not hold: variances are of squares."""
    if max(abs(low), abs(high)) > LARGEST_BOUND:
        raise InvalidBounds(
            "Bounds are too far from zero.",
            f"Of sums, means by group, variances and covariances they reach to {LARGEST_BOUND:g}.",
            "Change the unit of the column.",
            parameter="bounds",
        )
    if high - low < SMALLEST_WIDTH:
        raise InvalidBounds(
            "Bounds are too close to each other.",
            f"Of sums, means by group, variances and covariances they are {SMALLEST_WIDTH:g} apart "
            "or more.",
            "Change the unit of the column.",
            parameter="bounds",
        )


def get_share_association(given: Any, usual: float) -> float:
    """Returns how far what people with one budget have may lie from everybody's; what is usual
    unless it is given.
    """
    if given is None:
        return usual
    if not is_between(given, -1e-300, 1e300):
        raise InvalidParameter(
            "association is not a number from 0 on.",
            "It says how far people with one budget may differ from everybody, on average.",
            "Pass a public guess, 0 if budgets go along with nothing, or nothing.",
            parameter="association",
        )
    return float(given)
