# SPDX-License-Identifier: Apache-2.0
"""`sottovoce schema draft`: the public description of a table, with everything public left to fill in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli import words
from sottovoce.cli.voice import hand_over, plainly, say

WHY = """\
Ranges are left blank on purpose: a range read off the data would publish its largest and smallest values.
Fill in what a value can be, from knowledge outside the table, and name the columns of people and budgets.
Kinds were guessed from the types of the columns (in CSV, from the beginning of the file): check them."""

schema_app = typer.Typer(no_args_is_help=True)


@schema_app.callback()
def schema() -> None:
    """Write down what is public about a table."""


@schema_app.command()
@plainly()
@words.reads_text
def draft(
    table: words.Table,
    text: Any,
    out: Annotated[Path | None, typer.Option(help="The TOML file to write; standard output if not given.")] = None,
    force: words.Force = False,
) -> None:
    """Write the names and kinds of the columns as TOML, with the ranges left blank."""
    from sottovoce.bounds import Schema
    from sottovoce.cli.files import refuse_unwritable, write_whole
    from sottovoce.engine import in_memory

    refuse_unwritable(out, table, force=force, public=True)
    engines = in_memory()
    drafted = Schema.draft(engines.infer_kinds(table, text))
    if out is None:
        hand_over(drafted)
    else:
        out = write_whole(out, drafted, force=force, public=True)
    say(WHY if out is None else f"{WHY}\nWritten to {out}.", stderr=True)
