# SPDX-License-Identifier: Apache-2.0
"""The command `sottovoce`: its verbs, and nothing of what they do.

Whatever is heavy is imported inside the command that needs it, so that help comes at once.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sottovoce import __version__
from sottovoce.cli.audit import audit
from sottovoce.cli.demo import demo
from sottovoce.cli.ledger import ledger_app
from sottovoce.cli.market import market
from sottovoce.cli.predict import predict
from sottovoce.cli.questions import plan_app, release_app
from sottovoce.cli.reproduce import reproduce
from sottovoce.cli.schema import schema_app
from sottovoce.cli.serve import serve
from sottovoce.cli.voice import plainly, say

VERBS = ("plan", "release", "explain", "predict", "audit", "market", "ledger", "serve", "reproduce", "schema", "demo")


class Verbs(TyperGroup):
    """The commands, in the order in which they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names for the help page."""
        return list(VERBS)


# Pretty tracebacks print local variables, which hold data.
app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="rich",
)
app.add_typer(plan_app, name="plan")
app.add_typer(release_app, name="release")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sottovoce {__version__}")
        raise typer.Exit()


@app.callback()
def sottovoce(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Personalised differential privacy: everybody sets their own ε, and every one of those promises is kept."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ε shows a question mark, not an error


@app.command()
@plainly()
def explain(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A JSON file written by `sottovoce release`.")],
) -> None:
    """Say in plain words what a release tells and what it promises."""
    from sottovoce.cli.files import load_release

    say(load_release(release).explain())


app.command()(predict)
app.command()(audit)
app.command()(market)
app.command()(serve)
app.command()(reproduce)
app.add_typer(ledger_app, name="ledger")
app.add_typer(schema_app, name="schema")
app.command()(demo)
