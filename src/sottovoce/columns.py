# SPDX-License-Identifier: Apache-2.0
"""A table by the names of its columns: which one is asked about, whose rows they are, and where budgets are found.

Names come from the caller, and what they leave out from a schema. Nothing but the header is read here; the census
reads people and budgets, and the question reads the rest when it has been paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sottovoce import units
from sottovoce.bounds import Bounds, Schema
from sottovoce.budgets import Budgets
from sottovoce.census import take_census
from sottovoce.engine import Engine, Rows, Watch, is_elsewhere, over, require_columns
from sottovoce.errors import InvalidParameter
from sottovoce.features import ClassLabel, Label, Named
from sottovoce.grants import Grants
from sottovoce.recoding import Recoding
from sottovoce.statistics import Owner
from sottovoce.table import feature_names


def by_names(table: Any, *said: Any) -> bool:
    """Whether a table is read by the names of its columns: it lives elsewhere, or one of its columns was named."""
    return is_elsewhere(table) or (feature_names(table) is not None and any(isinstance(word, str) for word in said))


@dataclass(frozen=True, eq=False)
class Table:
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
    ) -> Table:
        """The table with what was said about its columns, completed from a schema."""
        schema = bounds if isinstance(bounds, Schema) else Schema()
        names = (value or schema.label, person or schema.person)
        _refuse_columns_themselves(*names, budget)
        budget = schema.budget if budget is None else budget
        header = over(source, engine)
        require_columns(header, *names, budget if isinstance(budget, str) else None)
        used = {*names, budget if isinstance(budget, str) else None}
        others = tuple(name for name in header.columns() if name not in used)
        return cls(source, header, names[0], names[1], budget, schema.tiers, others, engine, watch)

    def asked_about(self) -> str:
        """The column in question, where there is one only: the one that was named, or the only one that is left."""
        if self.value is None and len(self.others) != 1:
            raise InvalidParameter(
                "It is not clear which column is asked about.",
                "The table has several that are neither people nor budgets.",
                "Name it with column=.",
            )
        return self.others[0] if self.value is None else self.value

    def label(self) -> str:
        """The label of a regression, which has to be named."""
        if self.value is None:
            raise InvalidParameter(
                "It is not said which column is the label.", "", 'Pass its name as y, or a schema with label = "...".'
            )
        return self.value

    def features(self, bounds: Any) -> tuple[str, ...]:
        """The columns that bounds are for, in the table's order (a schema names its own)."""
        if isinstance(bounds, Bounds) and bounds.features is None:
            raise InvalidParameter(
                "A norm alone bounds rows of a table.",
                "Columns that are read by name need a range each.",
                "Pass Bounds with features=(low, high), or a Schema.",
            )
        return self.others

    def column(self) -> Rows:
        """What a question about one column reads."""
        return Rows(self.header, self.asked_about(), Owner())

    def regression(self, recoding: Recoding, label: Label | ClassLabel) -> Rows:
        """What a regression or a classifier reads."""
        return Rows(self.header, label.column, Owner(), Named(recoding), label)

    def read(self, rows: Rows) -> tuple[Budgets, Rows]:
        """Takes the census, and returns the budgets and the rows with their owners, columns of numbers as such."""
        numbers = _numbers(rows)
        own = (self.budget,) if isinstance(self.budget, str) and not self.tiers else ()
        engine = over(self.source, self.engine, (*own, *numbers), self.watch)
        require_columns(engine, rows.value, *(() if rows.features is None else rows.features.columns))
        budgets, owner = take_census(engine, person=self.person, **self._granted())
        return budgets, replace(rows, engine=engine, owner=owner)

    def _granted(self) -> dict[str, Any]:
        """Where the census finds budgets."""
        if isinstance(self.budget, str):
            return {"budget": self.budget, "tiers": self.tiers or None}
        if isinstance(self.budget, Mapping):
            return {"grants": Grants.of_mapping(self.budget)}
        if _is_table(self.budget):
            return {"grants": Grants.read(self.budget, self.person, None, self.tiers, self.engine)}
        return {"epsilon": self.budget}


def loaded(X: Any, y: Any, epsilon: Any, groups: Any) -> tuple[Any, Any, Any, Any]:
    """Returns the same in memory where it is a table by names, for a question that cannot do with less."""
    if not by_names(X, y, epsilon, groups):
        return X, y, epsilon, groups
    table = Table.of(X, y, epsilon, groups, None)
    named = [name for name in (table.value, table.budget, table.person) if isinstance(name, str)]
    numbers = tuple(name for name in (*table.others, table.value, table.budget) if isinstance(name, str))
    whole = kept(over(X, numbers=numbers), (*table.others, *named))
    label, owners = (None if name is None else whole.column(name) for name in (table.value, table.person))
    budget = table.budget
    if isinstance(budget, str):
        budget = whole.column(budget)
    elif _is_table(budget):
        grants = Grants.read(budget, table.person, None, None, None)
        budget = dict(zip(grants.people.tolist(), units.epsilon(grants.granted).tolist(), strict=True))
    return whole.select(list(table.others)), label, budget, owners


def _is_table(budget: Any) -> bool:
    return is_elsewhere(budget) or feature_names(budget) is not None


def kept(engine: Engine, columns: tuple[str, ...]) -> pa.Table:
    """Returns columns of a table in memory, for what cannot do with less."""
    require_columns(engine, *columns)
    batches = engine.fold(_Kept(columns))
    return pa.Table.from_batches(batches) if batches else pa.table({name: pa.array([], pa.null()) for name in columns})


@dataclass(frozen=True)
class _Kept:
    """Keeps the batches."""

    columns: tuple[str, ...]

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        return [batch.select(list(self.columns))]


def _numbers(rows: Rows) -> tuple[str, ...]:
    """The columns that are read as numbers, which text files have to be told."""
    if rows.features is None:
        return (rows.value,)
    features = tuple(feature.name for feature in rows.features.recoding.features if not feature.levels)
    return (rows.value, *features) if hasattr(rows.label, "low") else features


def _refuse_columns_themselves(*said: Any) -> None:
    if any(isinstance(word, Budgets | np.ndarray | list | tuple | pa.Array | pa.ChunkedArray) for word in said):
        raise InvalidParameter(
            "Columns of a table that is read by names are given as values.",
            "Its rows have no order that values could follow.",
            "Name the columns; budgets may also be a number, a mapping from person, or another table.",
        )
