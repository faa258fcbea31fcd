# SPDX-License-Identifier: Apache-2.0
"""DataSource, the one way from data to budgets and rows, wherever the data live.

    arrays, data frames, files, tables of a database or a cluster → DataSource → Dataset

A source says which column is asked about, whose the rows are, and where budgets are found. Names
come from the caller, else from a schema; what is missing or contradictory is refused before a table
is opened. The census reads people and budgets, and an estimator the rest once it is paid for. Where
a schema names people the promise is to people, unless each row is asked for as a person of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from sottovoce.arrays import (
    count_dimensions,
    get_column_name,
    get_named_column,
    list_feature_names,
)
from sottovoce.budgets import Budgets, SupportsSale, refuse_another_order, series_to_mapping
from sottovoce.data.budget_table import Grants
from sottovoce.data.cells import Cells
from sottovoce.data.census import scale_budgets, take_census
from sottovoce.data.encoding import ClassLabel, ColumnReader, Label, Recoding
from sottovoce.data.engine import (
    DEFAULT_TEXT_FORMAT,
    Dataset,
    Engine,
    GroupLookup,
    TextFormat,
    Watch,
    get_engine,
    get_table_label,
    is_external_table,
    open_engine,
    read_columns,
    require_columns,
)
from sottovoce.errors import InvalidBounds, InvalidParameter, MissingColumn
from sottovoce.schema import (
    Bounds,
    Classes,
    Schema,
    Subject,
    choose_budget_column,
    no_label_error,
    refuse_no_classes,
)

#: What ``groups`` says where each row is to count as a person of its own, although a schema names
#: people.
ROWS_MARKER = "rows"
#: Stands for an ε that the ledger tells.
ANY_EPSILON = 1.0
#: The engine of rows that are described and not opened yet.
UNOPENED: Any = None


def find_schema(question: Any) -> Schema:
    """Returns the schema that a question, or one inside it, has as its bounds; an empty one where
    there is none.
    """
    own = getattr(question, "get_schema", None)
    if own is not None:
        found: Schema = own()
        return found
    while question is not None:
        for name in ("bounds", "label_bounds", "schema"):
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
    if word is None or isinstance(word, str | Mapping | SupportsSale) or _is_table(word):
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


def _refuse_names(*said: Any) -> None:
    if any(isinstance(word, str) for word in said):
        raise InvalidParameter(
            "A column is named, but the table has no names.",
            "Names are looked up in a data frame, an Arrow table, or a table that lives elsewhere.",
            "Pass such a table, or the columns themselves.",
            parameter="column",
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


def _drop_used_columns(
    question: Any, X: Any, names: list[str] | None, y: Any, said: tuple[Any, ...]
) -> Any:
    """Returns the table without the columns that have another purpose, unless a schema says which
    are features, or questions name their columns themselves.
    """
    if getattr(question, "one_table", False):
        return X
    schema = find_schema(question)
    used = {
        name
        for name in (*said, schema.person, schema.budget, schema.label)
        if isinstance(name, str)
    }
    if names is None or not used or names_features(question, names):
        return X
    if getattr(question, "reads_cells", False):  # which names its columns
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


def names_features(question: Any, columns: Collection[str] | None) -> bool:
    """Whether the bounds of a question say which of a table's columns are features: a schema, or
    bounds by name; where labels alone are private, all others are.
    """
    if hasattr(question, "label_bounds"):
        return False
    bounds = getattr(question, "bounds", None)
    if isinstance(bounds, Schema):
        return True
    if columns is None or not isinstance(bounds, Bounds) or bounds.names is None:
        return False
    return set(bounds.names) <= set(columns)


def select_tiers(schema: Schema, budget: Any) -> Mapping[str, float]:
    """Returns the price list: it is that of the schema's own column of budgets, not of another that
    was named.
    """
    if isinstance(budget, str) and schema.budget not in (None, budget):
        return {}
    return schema.tiers


def convert_tiers(column: Any, tiers: Mapping[str, float]) -> Any:
    """Returns a column of budgets as ε; where there are tiers, the column names them."""
    if tiers:
        return Budgets.tiers(tiers, column).epsilon
    return column


def describe_rows(label: Label | ClassLabel, recoding: Recoding | None = None) -> Dataset:
    """Returns what is read of a table: one column, or a label and the features of a model."""
    reader = None if recoding is None else ColumnReader(recoding)
    return Dataset(UNOPENED, label.column, GroupLookup(), reader, label)


def describe_cells(cells: Cells, label: Label | None = None, features: Any = None) -> Dataset:
    """Returns what is read of a table by cells: the columns of the cells, and the numbers that are
    summed in them, one as a label or several as features; neither where rows are counted.
    """
    if label is None:
        value = ""
    else:
        value = label.column
    return Dataset(UNOPENED, value, GroupLookup(), features, label, cells=cells)


@dataclass(frozen=True, eq=False)
class DataSource:
    """Where budgets and rows come from: a table, and what its columns are for."""

    table: Any  # a path or a table that lives elsewhere; in memory, the features or one column
    column: str | None = None  # the label, or the one column in question
    bounds: tuple[float, float] | None = None
    budget: str | None = None  # the column with everybody's own ε
    epsilon: Any = None  # one ε for everybody; in memory also by row, by person, or Budgets
    person: str | None = None
    schema: Path | Schema | None = None  # in a file, or as it is
    missing: float | None = None
    tiers: Mapping[str, float] = field(default_factory=dict)
    # for a model: the schema with its label and features, and nothing else
    features: Schema | None = None
    share: float = 1.0  # how much of what everybody grants may be spent
    # whether all that each has left in a ledger is spent: "leave-out" or "refuse", for who has no
    # account there; budgets are not asked for then
    spend_left: str | None = None
    # a table of its own with everybody's budget, a mapping from person, or what was sold
    budgets: Any = None
    # what becomes of people whom that does not name: "leave-out", "refuse"; None: left out of a
    # sale, and refused elsewhere
    unknown: str | None = None
    engine: str | None = None  # what reads the table; None: what suits it
    text: TextFormat | None = None  # how text files are written; None: as their headers tell
    # whether each row was asked for as a person of its own, although the schema names people
    by_row: bool = False
    name: str | None = None  # what the table is called in a release; None: the name of its file
    units: Mapping[str, str] = field(default_factory=dict)  # declared units, by column
    asked: tuple[str, ...] = ()  # the private columns, where questions name them themselves
    others: tuple[str, ...] = ()  # columns without a purpose so far, in the table's order
    in_memory: bool = False  # whether what follows are the columns themselves
    labels: Any = None
    owners: Any = None

    @classmethod
    def of(
        cls,
        question: Any,
        X: Any,
        y: Any = None,
        epsilon: Any = None,
        groups: Any = None,
        engine: str | None = None,
    ) -> Self:
        """Returns the source of what a call in Python was given: columns, or a table and names.

        Parameters
        ----------
        question :
            the estimator; its schema completes what is not said.
        X, y, epsilon, groups :
            as ``fit`` takes them.
        engine :
            what opens a path; None: what suits it.

        """
        if is_read_by_names(find_schema(question), X, y, epsilon, groups):
            return cls.of_table(question, X, y, epsilon, groups, engine)
        return cls.of_columns(question, X, y, epsilon, groups)

    @classmethod
    def of_columns(
        cls, question: Any, X: Any, y: Any = None, epsilon: Any = None, groups: Any = None
    ) -> Self:
        """Returns the source of rows in memory, with columns in the place of their names."""
        if isinstance(X, pa.RecordBatch):
            X = pa.Table.from_batches([X])
        schema = find_schema(question)
        names = list_feature_names(X)
        if names is None:
            _refuse_names(y, None if is_rows_marker(groups) else groups)
        named = names is not None and not getattr(question, "one_table", False)
        if y is None and named and schema.label in (names or ()):
            y = schema.label
        if isinstance(y, str):
            column = y
        else:
            column = None
        person = _find_owners(schema, names, epsilon, groups)
        budget = choose_budget_column(schema, names, epsilon)
        _refuse_one_column_twice(column, person, budget)
        if isinstance(person, str):
            owners = get_named_column(X, person)
        else:
            owners = person
        refuse_another_order(epsilon, owners, X, y)
        if budget is not None:
            epsilon = convert_tiers(get_named_column(X, budget), select_tiers(schema, budget))
        elif _is_table(epsilon) and not isinstance(epsilon, str):
            people = person if isinstance(person, str) else schema.person
            epsilon = Grants.from_source(epsilon, people, None, schema.tiers, None).to_budgets()
        if column is None:
            labels = y
        else:
            labels = get_named_column(X, column)
        return cls(
            _drop_used_columns(question, X, names, y, (column, person, budget)),
            column=column,
            epsilon=epsilon,
            schema=schema,
            name=schema.name,
            units=schema.units,
            in_memory=True,
            labels=labels,
            owners=owners,
        )

    @classmethod
    def of_table(
        cls,
        question: Any,
        table: Any,
        column: Any = None,
        epsilon: Any = None,
        person: Any = None,
        engine: str | None = None,
    ) -> Self:
        """Returns the source of a table by the names of its columns; nothing but the header is
        read.
        """
        schema = find_schema(question)
        by_person = series_to_mapping(epsilon)
        if by_person is not None:  # these rows have no order that a column could follow
            epsilon = by_person
        _refuse_columns_themselves(column, person, epsilon)
        header = open_engine(table, engine)
        by_row = is_rows_marker(person)
        if column is None:
            column = schema.label
        person = find_owner_column(schema, header.columns(), person)
        if epsilon is None:
            epsilon = schema.budget
        budget = epsilon if isinstance(epsilon, str) else None
        _refuse_one_column_twice(column, person, budget)
        require_columns(header, column, person=person, budget=budget)
        apart = budget is None and (
            isinstance(epsilon, Mapping | SupportsSale) or _is_table(epsilon)
        )
        return cls(
            table,
            column=column,
            budget=budget,
            epsilon=None if apart or budget is not None else epsilon,
            person=person,
            schema=schema,
            tiers=select_tiers(schema, epsilon),
            budgets=epsilon if apart else None,
            engine=engine,
            by_row=by_row,
            name=schema.name,
            units=schema.units,
            others=tuple(n for n in header.columns() if n not in {column, person, budget}),
        )

    @property
    def private_columns(self) -> tuple[str, ...]:
        """The private columns: the one in question, if there is one yet, or a label and its
        features.
        """
        if self.asked:
            return self.asked
        if self.features is not None:
            return tuple(self.features.columns)
        if self.column is None:
            return ()
        return (self.column,)

    @property
    def private_numbers(self) -> tuple[str, ...]:
        """Those of them that hold numbers; factors are text."""
        if self.features is None:
            return self.private_columns
        return tuple(
            name for name, column in self.features.columns.items() if column.kind == "number"
        )

    @property
    def subject(self) -> Subject:
        """What the question is about, in public words."""
        column = self.column
        if column is None and self.in_memory:
            column = get_column_name(self.table if self.labels is None else self.labels)
        several = bool(self.asked)  # questions that name their columns themselves
        if column is None and not several and isinstance(self.schema, Schema):
            column = self.schema.label
        return Subject(column, self.name or get_table_label(self.table), self.units)

    @property
    def classes(self) -> Classes | None:
        """The declared classes, where the label is a factor."""
        if self.features is None:
            label = None
        else:
            label = self.features.columns.get(str(self.features.label))
        if label is not None and label.kind == "factor":
            return Classes(label.levels)
        return None

    def require_features(self) -> Schema:
        """Return the label and the features of a completed model."""
        if self.features is None:
            raise no_label_error()
        return self.features

    def for_regression(self) -> Self:
        """Returns the same question, completed, about the label that the schema names and all
        features it describes.
        """
        schema = self._require_schema()
        return self._complete_names(schema)._complete_bounds(schema)._select_features(schema)

    def for_table(self) -> Self:
        """Returns the same question, completed, about columns that its own parameters name."""
        # Without its label: a plan that is shown must be about the same as the one that is made.
        schema = replace(self._load_schema() or Schema(), label=None)
        return replace(self, column=None, schema=schema)._complete_names(schema)

    def load_schema(self) -> Schema | None:
        """Returns the schema that describes the table, if there is one."""
        return self._load_schema()

    def for_classification(self) -> Self:
        """Returns the same for a label that is a factor, whose levels are the classes."""
        schema = self._require_schema()
        refuse_no_classes(str(schema.label), schema.columns.get(str(schema.label)))
        return self._complete_names(schema)._select_features(schema)

    def for_report(self) -> Self:
        """Returns the same table with what the schema adds, for questions that name their columns
        themselves.
        """
        schema = self._load_schema() or Schema()
        return replace(self._complete_names(schema), column=None, schema=schema)

    def complete(self) -> Self:
        """Returns the same question with what the schema adds; refuses it if something is still
        missing.
        """
        schema = self._load_schema() or Schema()
        return self._complete_names(schema)._complete_bounds(schema)

    def find_declared(self) -> Schema | None:
        """The schema that was given, read from its file where it is one."""
        return self._load_schema()

    def _load_schema(self) -> Schema | None:
        if isinstance(self.schema, Path):
            return Schema.load(self.schema)
        return self.schema

    def _require_schema(self) -> Schema:
        schema = self._load_schema()
        if schema is None or schema.label is None:
            raise no_label_error()
        return schema

    def _complete_names(self, schema: Schema) -> Self:
        by_row = self.by_row or is_rows_marker(self.person)
        whole = replace(
            self,
            person=None if by_row else self.person or schema.person,
            by_row=by_row,
            column=self.column or schema.label,
            name=self.name or schema.name,
            units=schema.units,
        )
        whole = whole._complete_budget(schema)
        _refuse_one_column_twice(whole.column, whole.person, whole._budget_column)
        return whole

    def _select_features(self, schema: Schema) -> Self:
        # What names people or budgets, here or in the schema, is no feature; nor is text or a date.
        others = {self.person, self.budget, schema.person, schema.budget}
        kept = {n: c for n, c in schema.columns.items() if n not in others and c.is_feature}
        return replace(self, features=Schema(columns=kept, label=schema.label))

    def _complete_budget(self, schema: Schema) -> Self:
        if self.spend_left is not None:
            if (self.budget, self.budgets, self.epsilon) != (None, None, None):
                raise InvalidParameter(
                    "Budgets are given, and all that is left in the ledger is to be spent.",
                    "One of them says what this release may cost.",
                    "Leave one of them out.",
                    parameter="epsilon",
                )
            return replace(self, epsilon=ANY_EPSILON)
        budget = self.budget or (schema.budget if self.epsilon is None else None)
        if (budget is None and self.budgets is None) == (self.epsilon is None):
            raise InvalidParameter(
                "Budgets are given twice, or not at all.",
                "Either a column with everybody's own ε or one ε for everybody is needed.",
                "Name the column of budgets (here or in the schema), name a table of budgets, or "
                "give one ε; one of them.",
                parameter="epsilon",
            )
        # Tiers are the price list of the schema's own budget column, not of another named on the
        # line.
        tiers = {} if budget is None else select_tiers(schema, budget)
        return replace(self, budget=budget, tiers=tiers)

    def _complete_bounds(self, schema: Schema) -> Self:
        if self.column is None:
            raise InvalidParameter(
                "No column is named.",
                "A question is about one column of numbers.",
                "Name the column, here or as label in the schema.",
                parameter="column",
            )
        if self.bounds is None and self.schema is None:
            raise InvalidBounds(
                "No bounds are given.",
                "A lowest and a highest possible value must be declared from public knowledge.",
                "Give the lowest and the highest value, or a schema that has them; never take "
                "them from the data.",
                parameter="bounds",
            )
        described = schema.columns.get(self.column)
        if self.missing is None and described is not None:
            missing = described.missing_number
        else:
            missing = self.missing
        return replace(self, bounds=self.bounds or schema.interval(self.column), missing=missing)

    def select_people(self) -> Self:
        """Returns the same table about people and their budgets alone, which is all that a plan
        reads of it.
        """
        schema = self._load_schema() or Schema()
        budget = self.budget
        if budget is None and self.epsilon is None:
            budget = schema.budget
        return type(self)(
            self.table,
            budget=budget,
            epsilon=self.epsilon,
            person=self.person or schema.person,
            tiers={} if budget is None else select_tiers(schema, budget),
        )

    def find_column(self) -> str:
        """Returns the column in question, where there is one only: the one that was named, or the
        only one that is left.
        """
        if self.column is not None:
            return self.column
        if len(self.others) != 1:
            raise InvalidParameter(
                "It is not clear which column is asked about.",
                "The table has several that are neither people nor budgets.",
                "Name it with column=.",
                parameter="column",
            )
        return self.others[0]

    def find_label(self) -> str:
        """Returns the label of a regression, which has to be named."""
        if self.column is None:
            raise InvalidParameter(
                "It is not said which column is the label.",
                "",
                'Pass its name as y, or a schema with label = "...".',
                parameter="schema.label",
            )
        return self.column

    def list_features(self, bounds: Any) -> tuple[str, ...]:
        """Returns the columns that bounds are for: those that they name, or all in the table's
        order (a schema names its own).
        """
        if isinstance(bounds, Bounds) and bounds.names is not None:
            return bounds.names
        if isinstance(bounds, Bounds) and bounds.features is None:
            raise InvalidParameter(
                "A norm alone bounds rows of a table.",
                "Columns that are read by name need a range each.",
                "Pass Bounds with features=(low, high), or a Schema.",
                parameter="bounds",
            )
        return self.others

    def read(self, rows: Dataset, watch: Watch | None = None) -> Dataset:
        """Opens the table, counts people and budgets, and returns the rows with both.

        Parameters
        ----------
        rows :
            what is read of the table, as ``describe_rows`` has it.
        watch :
            is told how many rows were read.
        """
        engine = self._open(rows.list_number_columns(), watch)
        rows.refuse_wrong_kinds(engine.columns())
        require_columns(
            engine, *rows.list_columns(), budget=self._budget_column, person=self.person
        )
        budgets, owner = self._count(engine)
        subject = replace(self.subject, column=rows.value or None)
        return replace(
            rows,
            engine=engine,
            owner=owner,
            budgets=budgets,
            subject=subject,
            parses_text=_parses_text(self.table),
        )

    def read_budgets(self, watch: Watch | None = None) -> tuple[Budgets, GroupLookup]:
        """Returns everybody's budget and how to find a row's owner; the columns in question are
        looked for and not read.
        """
        engine = self._open((), watch)
        require_columns(
            engine, *self.private_columns, budget=self._budget_column, person=self.person
        )
        return self._count(engine)

    def load(self) -> Self:
        """Returns the same in memory, for an estimator that cannot do with less."""
        if self.in_memory:
            return self
        budget = self._budget_column
        named = [name for name in (self.column, budget, self.person) if name is not None]
        priced = None if self.tiers else budget
        if self.features is None:
            private: tuple[str | None, ...] = (*self.others, self.column)
        else:
            private = self.private_numbers
        numbers = tuple(n for n in (*private, priced) if n is not None)
        engine = open_engine(self.table, numbers=numbers, text=self.text or DEFAULT_TEXT_FORMAT)
        whole = read_columns(engine, (*self.others, *named))
        epsilon = self.epsilon
        if budget is not None:
            epsilon = convert_tiers(whole.column(budget), self.tiers)
        elif isinstance(self.budgets, Mapping) and self.unknown is None:
            epsilon = self.budgets
        elif self.budgets is not None:
            epsilon = self._read_grants().to_budgets()
        return replace(
            self,
            table=whole.select(list(self.others)),
            epsilon=epsilon,
            budget=None,
            budgets=None,
            in_memory=True,
            labels=None if self.column is None else whole.column(self.column),
            owners=None if self.person is None else whole.column(self.person),
        )

    def load_rows(self, *, labels: bool = True) -> Self:
        """Returns label and features of a model in memory; without ``labels`` its label is not
        read.
        """
        names = tuple(name for name in self.private_columns if name != self.column)
        others = set(names) - set(self.private_numbers)
        if others:
            raise InvalidParameter(
                f"The feature {min(others)!r} is no number.",
                "Public features of this question are numbers.",
                "Leave it out of the schema, or write it as numbers, such as 0 and 1.",
                parameter="schema.columns",
            )
        whole = replace(self, others=names or self.others)
        if labels:
            return whole.load()
        return replace(whole, column=None, features=None).load()

    @property
    def _budget_column(self) -> str | None:
        """The column of budgets in this table; there is none where budgets live elsewhere."""
        if self.budgets is not None:
            return None
        return self.budget

    def _open(self, numbers: tuple[str, ...], watch: Watch | None) -> Engine:
        if self._budget_column is not None and not self.tiers:
            numbers = (self._budget_column, *numbers)
        text = self.text or DEFAULT_TEXT_FORMAT
        engine = open_engine(self.table, self.engine, numbers, watch, text)
        if self.by_row:  # refuses a table in which that could be a column
            find_owner_column(Schema(), engine.columns(), ROWS_MARKER)
        return engine

    def _count(self, engine: Engine) -> tuple[Budgets, GroupLookup]:
        counted = take_census(
            engine,
            epsilon=self.epsilon,
            budget=self._budget_column,
            person=self.person,
            tiers=self.tiers if self._budget_column is not None else None,
            grants=None if self.budgets is None else self._read_grants(),
        )
        return scale_budgets(*counted, self.share)

    def _read_grants(self) -> Grants:
        if isinstance(self.budgets, SupportsSale):
            return Grants.of_sale(self.budgets, self.unknown)
        if isinstance(self.budgets, Mapping):
            return Grants.of_mapping(self.budgets, self.unknown)
        text = self.text or DEFAULT_TEXT_FORMAT
        return Grants.from_source(
            self.budgets,
            self.person,
            self.budget,
            self.tiers or None,
            self.engine,
            text,
            self.unknown,
        )


def _parses_text(table: Any) -> bool:
    """Whether a table lies in text files; these are Arrow's, whichever engine reads them."""
    arrow: Any = get_engine("arrow")
    return bool(arrow.parses_text(table))


def _is_table(budget: Any) -> bool:
    return is_external_table(budget) or list_feature_names(budget) is not None


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
