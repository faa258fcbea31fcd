# SPDX-License-Identifier: Apache-2.0
"""A table by the names of its columns: which one is asked about, whose rows they are, and where
budgets are found.

Names come from the caller, and what they leave out from a schema. Nothing but the header is read
here; the census reads people and budgets, and the question reads the rest when it has been paid
for. Where a schema names a column of people, the promise is to people: that each row counts as a
person of its own has to be asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from sottovoce.arrays import count_dimensions, get_named_column, list_feature_names
from sottovoce.budgets import Budgets, series_to_mapping
from sottovoce.data.budget_table import Grants
from sottovoce.data.census import take_census
from sottovoce.data.encoding import Recoding
from sottovoce.data.engine import (
    Dataset,
    Engine,
    Watch,
    is_external_table,
    open_engine,
    require_columns,
)
from sottovoce.data.kernels import GroupLookup
from sottovoce.data.readers import ClassLabel, ColumnReader, Label
from sottovoce.errors import InvalidParameter, MissingColumn
from sottovoce.schema import Bounds, Schema

#: What ``groups`` says where each row is to count as a person of its own, although a schema names
#: people.
ROWS_MARKER = "rows"


def find_schema(question: Any) -> Schema:
    """Returns the schema that a question, or one inside it, has as its bounds; an empty one where
    there is none.
    """
    while question is not None:
        for name in ("bounds", "label_bounds"):
            bounds = getattr(question, name, None)
            if isinstance(bounds, Schema):
                return bounds
        question = getattr(question, "estimator", None)
    return Schema()


def is_read_by_names(
    schema: Schema, table: Any, y: Any = None, epsilon: Any = None, groups: Any = None
) -> bool:
    """Whether a table is read by the names of its columns: it lives elsewhere, or is in memory and
    all are named.
    """
    if is_external_table(table):
        return True
    names = list_feature_names(table)
    if names is None or any(map(_is_values, (y, epsilon, groups))):
        return False
    said = any(
        isinstance(word, str) and not (word is groups and is_rows_marker(groups))
        for word in (y, epsilon, groups)
    )
    return said or (y is None and schema.label in names)


def is_rows_marker(groups: Any) -> bool:
    """Whether each row is asked for as a person of its own."""
    return isinstance(groups, str) and groups == ROWS_MARKER


def _is_values(word: Any) -> bool:
    """Whether this is a column itself (or Budgets, which know their rows), and neither a name nor a
    number.
    """
    if word is None or isinstance(word, str | Mapping) or _is_table(word):
        return False
    return isinstance(word, Budgets) or count_dimensions(word) > 0


def find_owner_column(schema: Schema, columns: Collection[str] | None, groups: Any) -> str | None:
    """Returns the column of people: the one that was named, or the schema's; None: each row is a
    person of its own.

    ``columns`` are the table's, None where they have no names.
    """
    if columns is None:
        there: Collection[str] = ()
    else:
        there = columns
    if is_rows_marker(groups):
        if ROWS_MARKER in there:
            raise InvalidParameter(
                "It is not clear whether a column is meant, or rows: the table has a column "
                "called 'rows'.",
                "The word 'rows' asks for each row as a person of its own.",
                "Rename the column, or name it as person in the schema and leave groups out.",
                parameter="groups",
            )
        return None
    if groups is not None:
        return str(groups)
    if schema.person is not None and schema.person not in there:
        raise MissingColumn(
            f"The schema names a column of people, {schema.person!r}, that this table does not "
            "have.",
            "A promise is made to people where a schema names them.",
            "Say whose the rows are, with groups; the word 'rows' there makes each row a person "
            "of its own.",
            parameter="groups",
        )
    return schema.person


def owners_missing_error(schema: Schema) -> InvalidParameter:
    """What is said where people are named by a schema, and nothing tells whose rows are whose."""
    return InvalidParameter(
        f"The schema names a column of people, {schema.person!r}, and it is not said whose the "
        "rows are.",
        "A promise is made to people where a schema names them.",
        "Pass groups= with the owner of each row, or groups='rows' if each row is a person of "
        "its own.",
        parameter="groups",
    )


@dataclass(frozen=True, eq=False)
class Values:
    """What a question is asked about rows in memory, with columns in the place of their names."""

    X: Any
    y: Any
    epsilon: Any
    groups: Any
    column: str | None = None  # the name of y, where it was named

    @classmethod
    def of(
        cls, question: Any, X: Any, y: Any = None, epsilon: Any = None, groups: Any = None
    ) -> Values:
        """Looks up what is named by the caller, or by the question's schema."""
        if isinstance(X, pa.RecordBatch):
            X = pa.Table.from_batches([X])
        schema = find_schema(question)
        names = list_feature_names(X)
        if names is None:
            _refuse_names(y, None if is_rows_marker(groups) else groups)
        if y is None and names is not None and schema.label in names:
            y = schema.label
        if isinstance(y, str):
            column = y
        else:
            column = None
        person = _find_owners(schema, names, epsilon, groups)
        budget = _find_budget_column(schema, names, epsilon)
        _refuse_one_column_twice(column, person, budget)
        if isinstance(person, str):
            owners = get_named_column(X, person)
        else:
            owners = person
        _refuse_another_order(epsilon, owners, X, y)
        if budget is not None:
            epsilon = _convert_tiers(get_named_column(X, budget), _select_tiers(schema, budget))
        elif _is_table(epsilon) and not isinstance(epsilon, str):
            grants = Grants.from_source(
                epsilon,
                person if isinstance(person, str) else schema.person,
                None,
                schema.tiers,
                None,
            )
            epsilon = grants.to_mapping()
        if column is None:
            values = y
        else:
            values = get_named_column(X, column)
        return cls(
            _drop_used_columns(question, X, names, y, (column, person, budget)),
            values,
            epsilon,
            owners,
            column,
        )


def _refuse_names(*said: Any) -> None:
    if any(isinstance(word, str) for word in said):
        raise InvalidParameter(
            "A column is named, but the table has no names.",
            "Names are looked up in a data frame, an Arrow table, or a table that lives elsewhere.",
            "Pass such a table, or the columns themselves.",
            parameter="column",
        )


def _refuse_another_order(epsilon: Any, owners: Any, *tables: Any) -> None:
    """Refuses a Series of ε by row whose index says that it is in another order, or that it is by
    person.
    """
    given = series_to_mapping(epsilon)
    indices = [table.index for table in tables if hasattr(getattr(table, "index", None), "equals")]
    if given is None or not indices or any(epsilon.index.equals(index) for index in indices):
        return
    by_name = owners is None and all(isinstance(name, str) for name in given)
    if by_name or any(len(index) == len(given) and set(index) == set(given) for index in indices):
        raise InvalidParameter(
            "It is not clear which ε belongs to which row: the Series has another index than the "
            "table.",
            "Budgets by row are in the order of the rows; budgets by person need the owner of "
            "each row.",
            "Pass epsilon.to_numpy() if it is in the order of the rows, or groups= with the "
            "owners.",
            parameter="epsilon",
        )


def _refuse_one_column_twice(*said: Any) -> None:
    names = [name for name in said if isinstance(name, str)]
    if len(set(names)) < len(names):
        raise InvalidParameter(
            "One column is named for two purposes.",
            "Values, budgets and people are in columns of their own.",
            "Name different columns.",
            parameter="column",
        )


def _find_owners(schema: Schema, names: list[str] | None, epsilon: Any, groups: Any) -> Any:
    """Returns the owners, or the name of their column; refuses to take rows for people where nobody
    asked for that.
    """
    if groups is not None and not isinstance(groups, str):
        return groups
    if groups is None and isinstance(epsilon, Budgets):
        if epsilon.unit == "row" and schema.person is not None:
            raise owners_missing_error(schema)
        return None
    return find_owner_column(schema, names, groups)


def _find_budget_column(schema: Schema, names: list[str] | None, epsilon: Any) -> str | None:
    if isinstance(epsilon, str) and names is not None:
        return epsilon
    if epsilon is not None or schema.budget is None:
        return None
    if names is None or schema.budget not in names:
        raise MissingColumn(
            f"The schema names a column of budgets, {schema.budget!r}, that this table does not "
            "have.",
            "Everybody's own ε is in that column.",
            "Pass a table that has it, or pass epsilon=.",
            parameter="epsilon",
        )
    return schema.budget


def _select_tiers(schema: Schema, budget: Any) -> Mapping[str, float]:
    """Returns the price list: it is that of the schema's own column of budgets, not of another that
    was named.
    """
    if isinstance(budget, str) and schema.budget not in (None, budget):
        return {}
    return schema.tiers


def _convert_tiers(column: Any, tiers: Mapping[str, float]) -> Any:
    """Returns a column of budgets as ε; where there are tiers, the column names them."""
    if tiers:
        return Budgets.tiers(tiers, column).epsilon
    return column


def _drop_used_columns(
    question: Any, X: Any, names: list[str] | None, y: Any, said: tuple[Any, ...]
) -> Any:
    """Returns the table without the columns that have another purpose, unless a schema says which
    are features.
    """
    schema = find_schema(question)
    used = {
        name
        for name in (*said, schema.person, schema.budget, schema.label)
        if isinstance(name, str)
    }
    if names is None or not used or isinstance(getattr(question, "bounds", None), Schema):
        return X
    others = [name for name in names if name not in used]
    if not isinstance(y, str) and getattr(y, "name", None) in others:
        raise InvalidParameter(
            "The label is given as values, and a column of its name is left among the features.",
            "With Bounds every column without another purpose is a feature.",
            "Name the label by its column, or leave that column out of the table.",
            parameter="y",
        )
    if isinstance(X, pa.Table):
        return X.select(others)
    return X[others]


@dataclass(frozen=True, eq=False)
class DataSource:
    """A table and what its columns are for."""

    source: Any
    header: Engine  # tells which columns there are
    value: str | None  # the label, or the one column in question
    person: str | None
    budget: Any  # ε for all, the name of a column, a mapping from person, or another table
    tiers: Mapping[str, float]
    others: tuple[str, ...]  # every other column, in the table's order
    engine: str | None = None
    watch: Watch | None = None

    @classmethod
    def of(
        cls,
        source: Any,
        value: Any,
        budget: Any,
        person: Any,
        bounds: Any,
        engine: str | None = None,
        watch: Watch | None = None,
    ) -> DataSource:
        """The table with what was said about its columns, completed from a schema."""
        if isinstance(bounds, Schema):
            schema = bounds
        else:
            schema = Schema()
        by_person = series_to_mapping(budget)  # these rows have no order that a column could follow
        if by_person is not None:
            budget = by_person
        _refuse_columns_themselves(value, person, budget)
        header = open_engine(source, engine)
        names = (
            schema.label if value is None else value,
            find_owner_column(schema, header.columns(), person),
        )
        if budget is None:
            budget = schema.budget
        _refuse_one_column_twice(*names, budget)
        require_columns(header, *names, budget if isinstance(budget, str) else None)
        used = {*names, budget if isinstance(budget, str) else None}
        others = tuple(name for name in header.columns() if name not in used)
        return cls(
            source,
            header,
            names[0],
            names[1],
            budget,
            _select_tiers(schema, budget),
            others,
            engine,
            watch,
        )

    def find_column(self) -> str:
        """The column in question, where there is one only: the one that was named, or the only one
        that is left.
        """
        if self.value is None and len(self.others) != 1:
            raise InvalidParameter(
                "It is not clear which column is asked about.",
                "The table has several that are neither people nor budgets.",
                "Name it with column=.",
                parameter="column",
            )
        if self.value is None:
            return self.others[0]
        return self.value

    def label(self) -> str:
        """The label of a regression, which has to be named."""
        if self.value is None:
            raise InvalidParameter(
                "It is not said which column is the label.",
                "",
                'Pass its name as y, or a schema with label = "...".',
                parameter="schema.label",
            )
        return self.value

    def features(self, bounds: Any) -> tuple[str, ...]:
        """The columns that bounds are for, in the table's order (a schema names its own)."""
        if isinstance(bounds, Bounds) and bounds.features is None:
            raise InvalidParameter(
                "A norm alone bounds rows of a table.",
                "Columns that are read by name need a range each.",
                "Pass Bounds with features=(low, high), or a Schema.",
                parameter="bounds",
            )
        return self.others

    def column(self) -> Dataset:
        """What a question about one column reads."""
        return Dataset(self.header, self.find_column(), GroupLookup())

    def regression(self, recoding: Recoding, label: Label | ClassLabel) -> Dataset:
        """What a regression or a classifier reads."""
        return Dataset(self.header, label.column, GroupLookup(), ColumnReader(recoding), label)

    def read(self, rows: Dataset) -> tuple[Budgets, Dataset]:
        """Takes the census, and returns the budgets and the rows with their owners, columns of
        numbers as such.
        """
        numbers = _list_number_columns(rows)
        if isinstance(self.budget, str) and not self.tiers:
            own: tuple[str, ...] = (self.budget,)
        else:
            own = ()
        engine = open_engine(self.source, self.engine, (*own, *numbers), self.watch)
        require_columns(
            engine, rows.value, *(() if rows.features is None else rows.features.columns)
        )
        budgets, owner = take_census(engine, person=self.person, **self._locate_budgets())
        return budgets, replace(rows, engine=engine, owner=owner)

    def _locate_budgets(self) -> dict[str, Any]:
        """Where the census finds budgets."""
        if isinstance(self.budget, str):
            return {"budget": self.budget, "tiers": self.tiers or None}
        if isinstance(self.budget, Mapping):
            return {"grants": Grants.of_mapping(self.budget)}
        if _is_table(self.budget):
            return {
                "grants": Grants.from_source(
                    self.budget, self.person, None, self.tiers, self.engine
                )
            }
        return {"epsilon": self.budget}


def load_values(question: Any, X: Any, y: Any, epsilon: Any, groups: Any) -> Values:
    """Returns the same in memory where it is a table by names, for a question that cannot do with
    less.
    """
    schema = find_schema(question)
    if not is_read_by_names(schema, X, y, epsilon, groups):
        return Values.of(question, X, y, epsilon, groups)
    table = DataSource.of(X, y, epsilon, groups, schema)
    named = [name for name in (table.value, table.budget, table.person) if isinstance(name, str)]
    if table.tiers:
        priced = None
    else:
        priced = table.budget
    numbers = tuple(name for name in (*table.others, table.value, priced) if isinstance(name, str))
    whole = read_columns(open_engine(X, numbers=numbers), (*table.others, *named))
    label, owners = (
        None if name is None else whole.column(name) for name in (table.value, table.person)
    )
    budget = table.budget
    if isinstance(budget, str):
        budget = _convert_tiers(whole.column(budget), table.tiers)
    elif _is_table(budget):
        budget = Grants.from_source(budget, table.person, None, table.tiers, None).to_mapping()
    return Values(whole.select(list(table.others)), label, budget, owners, table.value)


def _is_table(budget: Any) -> bool:
    return is_external_table(budget) or list_feature_names(budget) is not None


def read_columns(engine: Engine, columns: tuple[str, ...]) -> pa.Table:
    """Returns columns of a table in memory, for what cannot do with less."""
    require_columns(engine, *columns)
    batches = engine.fold(_BatchCollector(columns))
    if batches:
        return pa.Table.from_batches(batches)
    return pa.table({name: pa.array([], pa.null()) for name in columns})


@dataclass(frozen=True)
class _BatchCollector:
    """Keeps the batches."""

    columns: tuple[str, ...]

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        return [batch.select(list(self.columns))]


def _list_number_columns(rows: Dataset) -> tuple[str, ...]:
    """The columns that are read as numbers, which text files have to be told."""
    if rows.features is None:
        return (rows.value,)
    features = tuple(
        feature.name for feature in rows.features.recoding.features if not feature.levels
    )
    if hasattr(rows.label, "low"):
        return (rows.value, *features)
    return features


def _refuse_columns_themselves(*said: Any) -> None:
    *names, budget = said
    if _is_values(budget) or not all(name is None or isinstance(name, str) for name in names):
        raise InvalidParameter(
            "Columns of a table that is read by names are given as values.",
            "Its rows have no order that values could follow.",
            "Name the columns; budgets may also be a number, a mapping from person, or another "
            "table.",
            parameter="column",
        )
