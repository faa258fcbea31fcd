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
    from sottovoce.bounds import Schema

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
Key = Annotated[str, typer.Option(help="The name of the release in the books: one key, one release.")]
Out = Annotated[Path | None, typer.Option(help="The JSON file to write.")]
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
    key: str = "release"
    out: Path | None = None
    tiers: Mapping[str, float] = field(default_factory=dict)
    features: Schema | None = None  # for a regression: the schema with its label and features, and nothing else

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

    def regressed(self) -> Said:
        """Returns the same question, completed, about the label that the schema names and all features it describes."""
        from sottovoce.bounds import Schema

        if self.schema is None or (schema := Schema.load(self.schema)).label is None:
            raise _no_label()
        whole = self.completed()
        # What names people or budgets, here or in the schema, is no feature; neither is text.
        others = {whole.person, whole.budget, schema.person, schema.budget}
        kept = {n: c for n, c in schema.columns.items() if n not in others and c.kind != "text"}
        return replace(whole, features=Schema(columns=kept, label=schema.label))

    def completed(self) -> Said:
        """Returns the same question with what the schema adds; refuses it if something is still missing."""
        from sottovoce.bounds import Schema

        schema = Schema() if self.schema is None else Schema.load(self.schema)
        whole = replace(self, person=self.person or schema.person, column=self.column or schema.label)
        whole = whole._budgeted(schema)._bounded(schema)
        whole._refuse_one_column_twice()
        return whole

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


def _no_label() -> Exception:
    from sottovoce.errors import InvalidSchema

    return InvalidSchema(
        "There is no schema, or it does not say which column is the label.",
        "A regression needs a label and features with their ranges or levels, from public knowledge.",
        'Write one with `sottovoce schema draft`, fill it in, add label = "...", and pass it as --schema.',
    )
