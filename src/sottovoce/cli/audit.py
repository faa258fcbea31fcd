# SPDX-License-Identifier: Apache-2.0
"""`sottovoce audit`: what each person in a table really lost to a release, as a confidential page
for the curator.

With --mine it is the public calculator: a bound on one's own loss, from a published release and
one's own row alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.audit import audit_from_table, name_past_grants
from sottovoce.cli import options
from sottovoce.cli.console import AnswerOptions, echo, exit_on_error, get_console, list_inputs

if TYPE_CHECKING:
    from sottovoce.data.source import DataSource
    from sottovoce.release import Release

PASSES = ("Counting who takes part", "Checking the rows", "Looking at every row")


@exit_on_error()
@options.add_text_options
def audit(
    text: Any,
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL",
            help="A JSON file that `sottovoce release` wrote.",
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="The table that it was released from.", show_default=False
        ),
    ] = None,
    schema: options.Described = None,
    delta: Annotated[
        float,
        typer.Option(help="The δ at which everybody's ε is told, where a loss is an ε at δ."),
    ] = 1e-6,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Name the people who are least protected.")
    ] = False,
    budget_column: options.BudgetColumn = None,
    budgets: options.BudgetsTable = None,
    unknown: options.Unknown = None,
    spend_left: Annotated[
        bool,
        typer.Option(
            "--spend-left",
            help="With --ledger: the release spent all that each had left there.",
        ),
    ] = False,
    ledger: Annotated[  # not from the environment: most audits need no books
        str | None,
        typer.Option(
            metavar="LEDGER",
            help="The ledger that the release was booked in, if it left out people who had not "
            "enough there, or with --spend-left. It is verified first.",
        ),
    ] = None,
    keys: options.Keys = None,
    epsilon: options.Epsilon = None,
    person_column: options.PersonColumn = None,
    out: Annotated[Path, typer.Option(help="The HTML page to write.")] = Path("audit.html"),
    force: options.Force = False,
    mine: Annotated[
        Path | None,
        typer.Option(
            metavar="RELEASE", help="Instead of all this: a published release, to bound my loss."
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            help="With --mine: a JSON file with my row, a name and a value for each column."
        ),
    ] = None,
    beta: Annotated[
        float, typer.Option(help="With --mine: how often the bound may be wrong.")
    ] = 0.01,
    weight: Annotated[
        float | None,
        typer.Option(help="With --mine: the weight of my row, where people have different ones."),
    ] = None,
    attack: Annotated[
        bool,
        typer.Option(
            "--attack",
            help="Run the question again and again, and measure a lower bound on somebody's ε.",
        ),
    ] = False,
    person: Annotated[
        str | None,
        typer.Option(help="With --attack: whose ε, a name, or the number of a row from 0 on."),
    ] = None,
    runs: Annotated[
        int, typer.Option(help="With --attack: answers of each of two tables, at most.")
    ] = 4000,
    confidence: Annotated[
        float, typer.Option(help="With --attack: how sure the bound is.")
    ] = 0.999,
) -> None:
    """Show what each person really lost to a release: for the curator alone.

    The promise of a release holds for every table and everybody. This looks at the people who are
    in the table. It is confidential, because it depends on everybody's data. With --mine and
    --record nothing confidential is read. With --attack the question is asked again many times, on
    two tables that differ in one person, to see whether the promise is kept; no answer is kept.
    """
    from sottovoce.cli.console import load_release
    from sottovoce.data.source import DataSource

    if mine is not None:
        return _show_own_bound(mine, record, beta, weight)
    if model is None or table is None:
        raise _nothing_to_audit_error()
    if unknown is not None:
        unknown = options.parse_choice("--unknown", unknown, options.UNKNOWN_POLICIES)
    options.refuse_stray_unknown(unknown, budgets, spend_left, ledger)
    said = DataSource(
        table,
        unknown=unknown,
        spend_left=(unknown or "leave-out") if spend_left else None,
        budget=budget_column,
        budgets=budgets,
        epsilon=epsilon,
        person=person_column,
        schema=schema,
        text=text,
    )
    release = load_release(model)
    files = [model, *list_inputs(said)]
    if ledger is not None:
        session = options.open_session(ledger, keys)
        files += options.list_ledger_files(session, ledger, keys)
        said = name_past_grants(release, said, session)
    if attack:
        return _show_attack(release, said, person, runs, confidence)
    _write_page(release, said, AnswerOptions(None, out, force, tuple(files)), delta, reveal)


def _show_attack(
    release: Release, said: DataSource, person: str | None, runs: int, confidence: float
) -> None:
    from rich.progress import Progress

    from sottovoce.audit import attack_from_table

    with Progress(console=get_console(stderr=True), transient=True) as bar:
        task = bar.add_task("Asking again and again", total=runs)
        found = attack_from_table(
            release,
            said,
            person,
            runs,
            confidence,
            lambda done, _: bar.update(task, completed=done),
        )
    echo(found.explain())


def _write_page(
    release: Release, said: DataSource, answer: AnswerOptions, delta: float, reveal: bool
) -> None:
    from sottovoce.cli.console import RowProgress, refuse_unwritable, write_file
    from sottovoce.report.release import make_audit_page

    out = answer.out or Path("audit.html")
    refuse_unwritable(out, *answer.inputs, force=answer.force)
    with RowProgress(get_console(stderr=True), PASSES) as watch:
        looked = audit_from_table(release, said, delta, watch)
    page = make_audit_page(looked, release, reveal=reveal)
    out = write_file(out, page, force=answer.force)
    echo(str(looked.summary()))
    echo(f"Written to {out}: confidential, and to be read by nobody but you.", stderr=True)


def _show_own_bound(path: Path, record: Path | None, beta: float, weight: float | None) -> None:
    from sottovoce.audit import mine
    from sottovoce.audit.public_bounds import refuse_unbounded
    from sottovoce.cli.console import load_release

    release = load_release(path)
    refuse_unbounded(release)  # before a row is asked for that no use could be made of
    echo(mine(release, read_own_row(release, record), beta, weight=weight).explain())


def read_own_row(release: Release, record: Path | None) -> tuple[dict[str, Any], Any]:
    """Reads one's own row: the columns of the release by name, and one more, which is the label."""
    from sottovoce.errors import InvalidData

    content = _read_record(record)
    names = [_find_name(feature) for feature in release.parameters.get("features", ())]
    others = [name for name in content if name not in names]
    if len(others) != 1 or not all(name in content for name in names):
        if release.column is None:
            label = "the label"
        else:
            label = f"the label {release.column!r}"
        raise InvalidData(
            "The record does not have the columns of this release and its label.",
            f"It has {', '.join(names)} and {label}, and nothing else.",
            'Write it as JSON, such as {"age": 40, "smoker": "no", "cost": 1200}.',
            parameter="record",
        )
    return {name: content[name] for name in names}, content[others[0]]


def _find_name(feature: Any) -> str:
    """The name of a feature; of public features that is all that is published."""
    if isinstance(feature, str):
        return feature
    return str(feature["name"])


def _read_record(record: Path | None) -> dict[str, Any]:
    from sottovoce.errors import InvalidData

    try:
        if record is not None:
            content = json.loads(record.read_text(encoding="utf-8"))
        else:
            content = None
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise InvalidData(
            "There is no record, or it cannot be read.",
            "One's own row is a JSON object: a name and a value for each column.",
            "Pass it as --record row.json.",
        )
    return content


def _nothing_to_audit_error() -> Exception:
    from sottovoce.errors import InvalidParameter

    return InvalidParameter(
        "A model or its table is not named.",
        "An audit looks at a release and at the table that it was made from.",
        "Pass MODEL and TABLE, or --mine RELEASE --record ROW for a bound on your own loss.",
    )
