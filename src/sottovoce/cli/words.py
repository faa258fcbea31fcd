# SPDX-License-Identifier: Apache-2.0
"""The words of a question: the options of `plan` and `release`, which are the same.

Said holds them as they were said, and then completed from the schema; what is said on the line wins.
Whatever is missing or contradictory is refused here, in the words of the command line, before a table
is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sottovoce.bounds import Column, Schema
    from sottovoce.classes import Classes

Table = Annotated[
    str, typer.Argument(metavar="TABLE", help="CSV or Parquet: a file, a folder, or a pattern in quotes.")
]
ColumnName = Annotated[str | None, typer.Option("--column", help="The column of numbers that the question is about.")]
Limits = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--bounds",
        metavar="LOW HIGH",
        help="The lowest and highest possible value, from public knowledge, never from the data.",
    ),
]
BudgetColumn = Annotated[str | None, typer.Option(help="The column with everybody's own ε (or tier, with a schema).")]
Epsilon = Annotated[float | None, typer.Option(help="One ε for everybody, instead of a column.")]
PersonColumn = Annotated[
    str | None, typer.Option(help="The column that says whose row it is; without it, each row is a person.")
]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="A TOML file with what is not said here: see `sottovoce schema draft`.")
]
Missing = Annotated[
    float | None, typer.Option(help="A public constant that stands for missing values; without it they are refused.")
]
Key = Annotated[str | None, typer.Option(help="The name of the release in the books: one key, one release, for ever.")]
Ledger = Annotated[
    str | None,
    typer.Option(metavar="BOOKS", envvar="SOTTOVOCE_LEDGER", help="The books: a file, sqlite:///… or postgresql://…."),
]
Keys = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="For books in PostgreSQL: the folder of their key and heads.")
]
Short = Annotated[
    str, typer.Option(help="With --ledger, if somebody has not enough left: leave-out (of this release), or refuse it.")
]
Out = Annotated[Path | None, typer.Option(help="The JSON file to write.")]
PublicTable = Annotated[
    str | None,
    typer.Option(
        "--public",
        metavar="TABLE",
        help="A table with the same features and label, of people who need no protection: it helps to scale and to "
        "choose λ, and tells the error to expect.",
    ),
]
Described = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        help="A TOML file with label, features, people and budgets: see `sottovoce schema draft`. Needed.",
    ),
]


@dataclass(frozen=True)
class Said:
    """One question about one column of one table, as far as it has been said."""

    table: str
    column: str | None = None
    bounds: tuple[float, float] | None = None
    budget: str | None = None
    epsilon: float | None = None
    person: str | None = None
    schema: Path | None = None
    missing: float | None = None
    key: str | None = None
    out: Path | None = None
    tiers: Mapping[str, float] = field(default_factory=dict)
    features: Schema | None = None  # for a model: the schema with its label and features, and nothing else
    public: str | None = None  # for a classifier: a table of rows that need no protection

    @property
    def asked_about(self) -> tuple[str, ...]:
        """The private columns: the one in question, or a label and its features."""
        return (str(self.column),) if self.features is None else tuple(self.features.columns)

    @property
    def asked_numbers(self) -> tuple[str, ...]:
        """Those of them that hold numbers; factors are text."""
        if self.features is None:
            return self.asked_about
        return tuple(name for name, column in self.features.columns.items() if column.kind == "number")

    @property
    def classes(self) -> Classes | None:
        """The declared classes, where the label is a factor."""
        from sottovoce.classes import Classes

        label = None if self.features is None else self.features.columns.get(str(self.features.label))
        return Classes(label.levels) if label is not None and label.kind == "factor" else None

    @property
    def inputs(self) -> tuple[str | Path, ...]:
        """The files that are read, so that none is written over."""
        return tuple(path for path in (self.table, self.schema, self.public) if path is not None)

    def regressed(self) -> Said:
        """Returns the same question, completed, about the label that the schema names and all features it describes."""
        schema = self._described()
        return self._named(schema)._bounded(schema)._modelled(schema)

    def classified(self) -> Said:
        """Returns the same for a label that is a factor, whose levels are the classes."""
        schema = self._described()
        _refuse_no_classes(str(schema.label), schema.columns.get(str(schema.label)))
        return self._named(schema)._modelled(schema)

    def completed(self) -> Said:
        """Returns the same question with what the schema adds; refuses it if something is still missing."""
        from sottovoce.bounds import Schema

        schema = Schema() if self.schema is None else Schema.load(self.schema)
        return self._named(schema)._bounded(schema)

    def _described(self) -> Schema:
        from sottovoce.bounds import Schema

        if self.schema is None or (schema := Schema.load(self.schema)).label is None:
            raise _no_label()
        return schema

    def _named(self, schema: Schema) -> Said:
        whole = replace(self, person=self.person or schema.person, column=self.column or schema.label)
        whole = whole._budgeted(schema)
        whole._refuse_one_column_twice()
        return whole

    def _modelled(self, schema: Schema) -> Said:
        from sottovoce.bounds import Schema

        # What names people or budgets, here or in the schema, is no feature; neither is text.
        others = {self.person, self.budget, schema.person, schema.budget}
        kept = {n: c for n, c in schema.columns.items() if n not in others and c.kind != "text"}
        return replace(self, features=Schema(columns=kept, label=schema.label))

    def _budgeted(self, schema: Schema) -> Said:
        from sottovoce.errors import InvalidParameter

        budget = self.budget or (schema.budget if self.epsilon is None else None)
        if (budget is None) == (self.epsilon is None):
            raise InvalidParameter(
                "Budgets are given twice, or not at all.",
                "Either a column with everybody's own ε or one ε for everybody is needed.",
                "Pass --budget-column (or name it in the schema), or --epsilon; one of the two.",
            )
        # Tiers are the price list of the schema's own budget column, not of another named on the line.
        listed = budget is not None and schema.budget in (None, budget)
        return replace(self, budget=budget, tiers=schema.tiers if listed else {})

    def _bounded(self, schema: Schema) -> Said:
        from sottovoce.errors import InvalidBounds, InvalidParameter

        if self.column is None:
            raise InvalidParameter(
                "No column is named.",
                "A question is about one column of numbers.",
                "Pass --column, or name it as label in the schema.",
            )
        if self.bounds is None and self.schema is None:
            raise InvalidBounds(
                "No bounds are given.",
                "A lowest and a highest possible value must be declared from public knowledge.",
                "Pass --bounds LOW HIGH, or a --schema that has them; never take them from the data.",
            )
        described = schema.columns.get(self.column)
        missing = described.missing if self.missing is None and described is not None else self.missing
        return replace(self, bounds=self.bounds or schema.interval(self.column), missing=missing)

    def _refuse_one_column_twice(self) -> None:
        from sottovoce.errors import InvalidParameter

        names = [name for name in (self.column, self.budget, self.person) if name is not None]
        if len(set(names)) < len(names):
            raise InvalidParameter(
                "One column is named for two purposes.",
                "Values, budgets and people are in columns of their own.",
                "Name different columns.",
            )


@dataclass(frozen=True)
class Booking:
    """Where a release is booked, and what becomes of people who have not enough left; a plan looks there too."""

    place: str
    keys: Path | None = None
    short: str = "leave-out"

    def refuse_unbookable(self, said: Said, *, key: bool) -> None:
        """Refuses rows that are nobody's, and a release without a key, before a table is opened."""
        from sottovoce.errors import InvalidParameter

        if key and not said.key:
            raise InvalidParameter(
                "A release from books has no key.",
                "A key stands for one release, for ever; asked again, it gives the same bytes and costs nothing.",
                "Pass --key, such as --key mean-of-May.",
            )
        if said.person is None:
            raise InvalidParameter(
                "Rows do not say whose they are.",
                "Accounts in the books belong to people.",
                "Pass --person-column, or name it in the schema.",
            )


def _no_label() -> Exception:
    from sottovoce.errors import InvalidSchema

    return InvalidSchema(
        "There is no schema, or it does not say which column is the label.",
        "A model needs a label and features with their ranges or levels, from public knowledge.",
        'Write one with `sottovoce schema draft`, fill it in, add label = "...", and pass it as --schema.',
    )


def _refuse_no_classes(label: str, described: Column | None) -> None:
    from sottovoce.classes import spelt
    from sottovoce.errors import InvalidSchema

    levels = () if described is None or described.kind != "factor" else described.levels
    if len(set(map(spelt, levels))) < max(len(levels), 2):
        raise InvalidSchema(
            f"The schema does not give {label!r} two or more levels, all different.",
            "A label to classify is a factor, and its levels are the classes that can occur, from public knowledge.",
            f'Write kind = "factor" and levels = ["...", "..."] under [columns.{label}].',
        )
