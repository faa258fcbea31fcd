# SPDX-License-Identifier: Apache-2.0
"""The command `sottovoce`: its verbs, and nothing of what they do.

`sottovoce schema draft`: the public description of a table, with everything public left to fill in.

Whatever is heavy is imported inside the command that needs it, so that help comes at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sottovoce.cli import options
from sottovoce.cli.audit import audit
from sottovoce.cli.console import begin, echo, exit_on_error, write_stdout
from sottovoce.cli.demo import demo
from sottovoce.cli.ledger import ledger_app
from sottovoce.cli.market import market
from sottovoce.cli.predict import predict
from sottovoce.cli.release import plan_app, release_app
from sottovoce.cli.report import COMMANDS as REPORTS
from sottovoce.cli.report import make_report_command
from sottovoce.cli.reproduce import reproduce
from sottovoce.cli.serve import serve

BLANK_RANGES_NOTE = (
    "Ranges are left blank on purpose: a range read off the data would publish its largest and "
    "smallest values.\n"
    "Fill in what a value can be, from knowledge outside the table, and name the columns of people "
    "and budgets.\n"
    "Kinds were guessed from the types of the columns (in CSV, from the beginning of the file): "
    "check them."
)

schema_app = typer.Typer(no_args_is_help=True)


@schema_app.callback()
def schema() -> None:
    """Write down what is public about a table."""


@schema_app.command()
@exit_on_error()
@options.add_text_options
def draft(
    table: options.Table,
    text: Any,
    out: Annotated[
        Path | None, typer.Option(help="The TOML file to write; standard output if not given.")
    ] = None,
    force: options.Force = False,
) -> None:
    """Write the names and kinds of the columns as TOML, with the ranges left blank."""
    from sottovoce.cli.console import refuse_unwritable, write_file
    from sottovoce.data.engine import get_default_engine
    from sottovoce.schema import Schema

    refuse_unwritable(out, table, force=force, public=True)
    engines = get_default_engine()
    drafted = Schema.draft(engines.infer_kinds(table, text))
    if out is None:
        write_stdout(drafted)
    else:
        out = write_file(out, drafted, force=force, public=True)
    echo(
        BLANK_RANGES_NOTE if out is None else f"{BLANK_RANGES_NOTE}\nWritten to {out}.", stderr=True
    )


COMMANDS = (
    "plan",
    "release",
    "report",
    "sql",
    "explain",
    "predict",
    "audit",
    "market",
    "ledger",
    "serve",
    "reproduce",
    "schema",
    "demo",
)


class OrderedCommands(TyperGroup):
    """The commands, in the order in which they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names for the help page."""
        return list(COMMANDS)


# Pretty tracebacks print local variables, which hold data.
app = typer.Typer(
    name="sottovoce",
    cls=OrderedCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="rich",
)
app.callback()(begin)
app.add_typer(plan_app, name="plan")
app.add_typer(release_app, name="release")
for _name in REPORTS:
    app.command(_name)(exit_on_error()(make_report_command(_name, grouped=False)))


@app.command()
@exit_on_error()
def explain(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="A JSON file written by `sottovoce release`.")
    ],
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="GROUP GROUP",
            help="Instead: two groups of a table by their labels, such as north south; the "
            "difference with its interval.",
        ),
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(help="With --compare: the question of a report, if several have groups."),
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(help="The probability of intervals, such as 0.9; 0.95 if not given."),
    ] = None,
) -> None:
    """Say in plain words what a release tells and what it promises."""
    from sottovoce.cli.console import load_release

    made = load_release(release)
    if compare is None:
        if level is not None:
            from sottovoce.estimators.column import set_level

            made = set_level(made, level)
        echo(made.explain())
        return
    from sottovoce.release import LEVEL
    from sottovoce.report.comparison import FREE, compare_groups

    compared = compare_groups(made, *compare, of=of, level=LEVEL if level is None else level)
    echo("\n".join([*compared.describe(), FREE]))


app.command()(predict)
app.command()(audit)
app.command()(market)
app.command()(serve)
app.command()(reproduce)
app.add_typer(ledger_app, name="ledger")
app.add_typer(schema_app, name="schema")
app.command()(demo)
