# SPDX-License-Identifier: Apache-2.0
"""`sottovoce report` and `sottovoce sql`: several questions about a table on one budget, from a
file of questions or from a statement of SQL.

Both take the options of `release`. `sottovoce plan report …` and `--plan` show who pays what and
the errors to expect, and read nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli import options
from sottovoce.cli.console import list_inputs

if TYPE_CHECKING:
    from sottovoce.data.source import DataSource
    from sottovoce.schema import Schema

Questions = Annotated[
    Path,
    typer.Argument(
        metavar="QUESTIONS", help="A TOML file with an entry for each question: see the guide."
    ),
]
Statement = Annotated[
    str,
    typer.Argument(
        metavar="STATEMENT",
        help='One SELECT, such as "SELECT region, COUNT(*) FROM patients GROUP BY region".',
    ),
]
PlanFlag = Annotated[
    bool,
    typer.Option(
        "--plan", help="Show who pays what and the errors to expect; no answer, no charge."
    ),
]


def prepare_report(path: Path, said: DataSource) -> tuple[Any, Any]:
    """Returns the table, completed from the schema, and the report of a file of questions."""
    from sottovoce.estimators.report import Report

    whole = said.for_report()
    schema: Schema = whole.schema  # type: ignore[assignment]  # it was loaded
    return whole, Report.load(path, schema if schema.columns else None)


def prepare_statement(text: str, said: DataSource) -> tuple[Any, Any]:
    """Returns the table that a statement is about, and its questions as a report."""
    from sottovoce.estimators.sql import name_table, read_statement

    said = replace(said, table=name_table(text, str(said.table)))
    whole = said.for_report()
    schema: Schema = whole.schema  # type: ignore[assignment]  # it was loaded
    return whole, read_statement(text, schema, whole.subject.table)


#: What is asked, by the name of the command: its argument, which is named as the parameter that
#: errors speak of, how it becomes a report, and its help.
COMMANDS: dict[str, tuple[str, Any, Callable[..., tuple[Any, Any]], str]] = {
    "report": (
        "questions",
        Questions,
        prepare_report,
        "Several questions about a table: one plan, one charge, one release, one page.",
    ),
    "sql": (
        "statement",
        Statement,
        prepare_statement,
        "Questions about a table in a small part of SQL, answered on one budget.",
    ),
}


def make_report_command(name: str, *, grouped: bool) -> Callable[..., None]:
    """Returns one of the commands; ``grouped`` where `plan` or `release` stands before it, which
    says which of the two is run.
    """
    from sottovoce.cli.release import read_common_options, run_plan, run_release

    argument, kind, prepare, summary = COMMANDS[name]
    common = inspect.signature(read_common_options, eval_str=True).parameters

    def command(context: typer.Context, **given: Any) -> None:
        said, answer, booking = read_common_options(**{key: given.pop(key) for key in common})
        run: Any = context.obj
        if not grouped:
            run = run_plan if given.pop("plan") else run_release
        if booking is not None:
            run = partial(run, booking=booking)
        asked = given.pop(argument)
        said = replace(said, schema=given.pop("schema"))
        files = [str(asked)] if isinstance(asked, Path) else []
        inputs = list_inputs(said, *files)
        said, report = prepare(asked, said)
        report.validate()
        said = replace(said, asked=report.read_table(said).list_columns())
        run(said, report, replace(answer, inputs=inputs))

    table, *others = common.values()
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [
        inspect.Parameter("context", keyword, annotation=typer.Context),
        inspect.Parameter(argument, keyword, annotation=kind),
        table,
        inspect.Parameter("schema", keyword, default=None, annotation=options.SchemaFile),
    ]
    if not grouped:
        own.append(inspect.Parameter("plan", keyword, default=False, annotation=PlanFlag))
    signature = inspect.Signature([*own, *others])
    command.__signature__ = signature  # type: ignore[attr-defined]  # typer reads it
    command.__doc__ = summary
    return command
