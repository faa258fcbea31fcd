# SPDX-License-Identifier: Apache-2.0
"""The words of a question: the options of `plan` and `release`, which are the same, and where they
are booked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sottovoce.asked import TableOptions

Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="CSV or Parquet: a file, a folder, or a pattern in quotes; or base.duckdb#table.",
    ),
]
ColumnName = Annotated[
    str | None, typer.Option("--column", help="The column of numbers that the question is about.")
]
Limits = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--bounds",
        metavar="LOW HIGH",
        help="The lowest and highest possible value, from public knowledge, never from the data.",
    ),
]
BudgetColumn = Annotated[
    str | None, typer.Option(help="The column with everybody's own ε (or tier, with a schema).")
]
BudgetsTable = Annotated[
    str | None,
    typer.Option(
        "--budgets",
        metavar="TABLE",
        help="A table of its own with a column of people, called as in TABLE, and one of their "
        "budgets (epsilon, or as --budget-column says).",
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="What reads the table: arrow, duckdb, spark or dask. If not given, what suits it.",
    ),
]
Epsilon = Annotated[float | None, typer.Option(help="One ε for everybody, instead of a column.")]
PersonColumn = Annotated[
    str | None,
    typer.Option(
        help="The column that says whose row it is; without it, here or in the schema, each row is "
        "a person. The word rows asks for that although the schema names one."
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema", help="A TOML file with what is not said here: see `sottovoce schema draft`."
    ),
]
Missing = Annotated[
    float | None,
    typer.Option(
        help="A public constant that stands for missing values; without it they are refused."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(help="The name of the release in the books: one key, one release, for ever."),
]
Ledger = Annotated[
    str | None,
    typer.Option(
        metavar="BOOKS",
        envvar="SOTTOVOCE_LEDGER",
        help="The books: a file, sqlite:///… or postgresql://….",
    ),
]
Keys = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="For books in PostgreSQL: the folder of their key and heads."
    ),
]
Short = Annotated[
    str,
    typer.Option(
        help="With --ledger, if somebody has not enough left: leave-out (of this release), or "
        "refuse it."
    ),
]
Out = Annotated[Path | None, typer.Option(help="The JSON file to write.")]
TableLabel = Annotated[
    str | None,
    typer.Option(
        help="What the table is called in the release; if not given, its file without folder and "
        "ending."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")]
PublicTable = Annotated[
    str | None,
    typer.Option(
        "--public",
        metavar="TABLE",
        help="A table with the same features and label, of people who need no protection: it helps "
        "to scale and to choose λ, and tells the error to expect.",
    ),
]
Described = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        help="A TOML file with label, features, people and budgets: see `sottovoce schema draft`. "
        "Needed.",
    ),
]

Delimiter = Annotated[
    str | None,
    typer.Option(
        help="What stands between cells of text files, such as ; or tab; if not given, the header "
        "tells."
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="The encoding of text files, such as latin-1; if not given, UTF-8."),
]
Decimal = Annotated[
    str, typer.Option(metavar="SIGN", help="The sign before decimals in text files: . or ,")
]


def make_text_format(
    delimiter: Delimiter = None, encoding: Encoding = None, decimal: Decimal = "."
) -> Any:
    """Returns how text files are written, as a TextFormat."""
    from sottovoce.data.engine import TextFormat

    return TextFormat("\t" if delimiter in ("tab", "\\t") else delimiter, encoding, decimal)


def add_text_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options that say how text files are written, and hands it what they say
    as ``text``.
    """
    options = inspect.signature(make_text_format, eval_str=True).parameters

    @wraps(command)
    def reading(**given: Any) -> None:
        command(text=make_text_format(**{name: given.pop(name) for name in options}), **given)

    own = inspect.signature(command, eval_str=True)
    others = [parameter for name, parameter in own.parameters.items() if name != "text"]
    signature = own.replace(parameters=[*others, *options.values()])
    reading.__signature__ = signature  # type: ignore[attr-defined]  # typer reads it
    return reading


@dataclass(frozen=True)
class LedgerOptions:
    """Where a release is booked, and what becomes of people who have not enough left; a plan looks
    there too.
    """

    place: str
    keys: Path | None = None
    short: str = "leave-out"

    def refuse_unbookable(self, said: TableOptions, *, key: bool) -> None:
        """Refuses rows that are nobody's, and a release without a key, before a table is opened."""
        from sottovoce.errors import InvalidParameter

        if key and not said.key:
            raise InvalidParameter(
                "A release from books has no key.",
                "A key stands for one release, for ever; asked again, it gives the same bytes "
                "and costs nothing.",
                "Pass --key, such as --key mean-of-May.",
            )
        if said.person is None:
            raise InvalidParameter(
                "Rows do not say whose they are.",
                "Accounts in the books belong to people.",
                "Pass --person-column, or name it in the schema.",
            )
