# SPDX-License-Identifier: Apache-2.0
"""`sottovoce plan` and `sottovoce release`: a command for each question of the registry.

Both take the same options, because both are made from the same entry. Which of the two runs is
kept in the context when its name is read.

Bad parameters are refused before the table is opened, and a place that cannot be written to before
anybody is charged. A release that is cut short says what was charged by then.

Public rows are read from a table of their own into memory before the private one is opened, and
refused in the same words, with a word in front that says which of the two tables is meant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

import typer
from typer.core import TyperGroup

from sottovoce.cli import options as options_module
from sottovoce.cli.console import (
    AnswerOptions,
    echo,
    exit_on_error,
    get_console,
    list_inputs,
    show_tables,
    write_stdout,
)
from sottovoce.cli.options import LedgerOptions
from sottovoce.cli.report import COMMANDS as REPORTS
from sottovoce.cli.report import make_report_command
from sottovoce.cli.start import load_arrow
from sottovoce.estimators import Parameter, Question, list_questions
from sottovoce.estimators.baseline_options import (
    BOOKED_PARAMETERS,
    PARAMETERS,
    plan_baseline,
    release_baseline,
    wrap,
)

if TYPE_CHECKING:
    from sottovoce.data.source import DataSource
    from sottovoce.estimator import Estimator
    from sottovoce.estimators.baselines import Baseline
    from sottovoce.release import Release
    from sottovoce.session import Session


class QuestionCommands(TyperGroup):
    """The commands of the questions, made from the registry when they are looked up."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names for the help page."""
        return [*list_questions(), *REPORTS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a question, or None if there is no such question."""
        question = list_questions().get(cmd_name)
        if question is not None:
            command = make_command(question)
        elif cmd_name in REPORTS:
            command = make_report_command(cmd_name, grouped=True)
        else:
            return None
        single = typer.Typer(add_completion=False, rich_markup_mode="rich")
        single.command(cmd_name)(exit_on_error()(command))
        return typer.main.get_command(single)


release_app = typer.Typer(cls=QuestionCommands, no_args_is_help=True)
plan_app = typer.Typer(cls=QuestionCommands, no_args_is_help=True)


@release_app.callback()
def release(context: typer.Context) -> None:
    """Answer a question about a table, and keep everybody's promise.

    The release is written to --out, or to standard output; what it says in plain words, to standard
    error.
    """
    context.obj = run_release


@plan_app.callback()
def plan(context: typer.Context) -> None:
    """Show who pays what and the error to expect, without reading what the question is about.

    The options are those of `release`. With --out the plan is also written as JSON.
    """
    context.obj = run_plan


def make_command(question: Question) -> Callable[..., None]:
    """Return the command of a question: a function whose signature has its options.

    Parameters
    ----------
    question :
        the entry of the registry.

    Returns
    -------
    Callable
        the function that typer makes a command of.
    """
    common = inspect.signature(read_common_options, eval_str=True).parameters
    reading = _list_reading_options(question)
    baselines: tuple[Parameter, ...] = PARAMETERS
    if question.reads == "table":  # rows of several columns are not picked
        baselines = BOOKED_PARAMETERS

    def command(context: typer.Context, **given: Any) -> None:
        said, answer, booking = read_common_options(**{name: given.pop(name) for name in common})
        run = context.obj
        if booking is not None:
            run = partial(run, booking=booking)
        said = replace(said, **{option.name: given.pop(option.name) for option in reading})
        public = [given.pop(one.name) for one in question.parameters if one.kind == "table"]
        around = {one.name: given.pop(one.name) for one in baselines}
        said, asked = prepare_question(question, said, given, *public)
        if any(value is not None for value in around.values()):
            _refuse_other_choices(baselines, around)
            asked = wrap_question(question, asked, around, booking)
        run(said, asked, replace(answer, inputs=list_inputs(said, *public)))

    table, *others = common.values()
    context = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    own = [_make_option(parameter) for parameter in (*question.parameters, *baselines)]
    signature = inspect.Signature([context, table, *reading, *own, *others])
    command.__signature__ = signature  # type: ignore[attr-defined]  # typer reads it
    command.__doc__ = question.summary
    return command


def _list_reading_options(question: Question) -> list[inspect.Parameter]:
    """The options that say which columns are read."""
    if question.predicts:
        return [_make_parameter("schema", options_module.Described)]
    if question.reads == "table":
        return [_make_parameter("schema", options_module.SchemaFile)]
    return [
        _make_parameter("column", options_module.ColumnName),
        _make_parameter("bounds", options_module.Limits),
        _make_parameter("schema", options_module.SchemaFile),
        _make_parameter("missing", options_module.Missing),
    ]


def _make_parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation
    )


def _make_option(parameter: Parameter) -> inspect.Parameter:
    """The option of a question's parameter."""
    kinds: dict[str, Any] = {
        "number": float,
        "whole": int,
        "numbers": list[float],
        "texts": list[str],
    }
    if parameter.kind == "table":
        shown = typer.Option(parameter.option, metavar="TABLE", help=parameter.help)
    elif parameter.kind == "choice":
        usual, *rest = parameter.values
        choices = ", ".join([f"{usual} (if not given)", *rest])
        shown = typer.Option(parameter.option, help=f"{parameter.help} One of: {choices}.")
    else:
        shown = typer.Option(parameter.option, help=parameter.help)
    kind = kinds.get(parameter.kind, str)
    if parameter.words:
        kind = list[str]
    return _make_parameter(parameter.name, Annotated[kind | None, shown])


def prepare_question(
    question: Question, said: DataSource, given: dict[str, Any], public: str | None = None
) -> tuple[DataSource, Estimator]:
    """Return the table, completed from the schema, and the estimator.

    Parameters
    ----------
    question :
        the entry of the registry.
    said :
        the table, as far as options name it.
    given :
        the question's own parameters; None where one is not given.
    public :
        a table of rows that need no protection, for a question that takes one.

    Returns
    -------
    tuple
        source and estimator.

    Raises
    ------
    InvalidInput
        if something is missing or wrong.
    """
    from sottovoce.estimator import make_estimator

    _refuse_other_choices(question.parameters, given)
    given = {**given, **_read_numbers_or_words(question.parameters, given)}
    said = question.complete_options(said)
    parameters = question.complete_parameters(given)
    asked: Any = make_estimator(question.load_core(), said, **parameters)
    # Public rows are checked as they are read, and not part of the trial, which would be slow with
    # them.
    if public is not None:
        asked.public = read_public_rows(said, public)
    return said, asked


def wrap_question(
    question: Question, asked: Any, around: dict[str, Any], booking: LedgerOptions | None
) -> Any:
    """Return the baseline that options ask for around a question, or the question itself.

    Parameters
    ----------
    question :
        the entry of the registry.
    asked :
        the estimator.
    around :
        the options of baselines; None where one is not given.
    booking :
        the ledger, if there is one.

    Raises
    ------
    InvalidInput
        if there is no such baseline, or a ledger would have to remember it.
    """
    from sottovoce.errors import InvalidParameter

    wrapped = wrap(question, asked, around)
    if picks_rows(wrapped) and booking is not None:
        raise InvalidParameter(
            "A ledger was named together with a baseline that picks rows.",
            "Its releases are booked in no ledger: they are there to compare with.",
            "Leave --ledger out, or choose the baseline uniform or threshold.",
        )
    return wrapped


def picks_rows(asked: object) -> TypeGuard[Baseline]:
    """Whether this is a baseline that picks rows, as ``wrap`` makes it, and no question."""
    return not hasattr(asked, "plan_for")


def _refuse_other_choices(parameters: Iterable[Parameter], given: dict[str, Any]) -> None:
    from sottovoce.errors import InvalidParameter

    for parameter in parameters:
        value = given.get(parameter.name)
        if parameter.kind == "choice" and value is not None and value not in parameter.values:
            raise InvalidParameter(
                f"{parameter.option} is none of its choices.",
                f"Choices: {', '.join(parameter.values)}.",
                "Choose one of these.",
            )


def _read_numbers_or_words(
    parameters: Iterable[Parameter], given: dict[str, Any]
) -> dict[str, Any]:
    """Return the options that are several numbers, or one word in place of them."""
    from sottovoce.errors import InvalidParameter

    found: dict[str, Any] = {}
    for parameter in parameters:
        texts = given.get(parameter.name)
        if not parameter.words or not texts:
            continue
        if len(texts) == 1 and texts[0] in parameter.words:
            found[parameter.name] = texts[0]
            continue
        with suppress(ValueError):  # raised below
            found[parameter.name] = [float(text) for text in texts]
        if parameter.name not in found:
            raise InvalidParameter(
                f"{parameter.option} is not a number.",
                parameter.describe_limits(),
                "Name the option once for each number.",
            )
    return found


def read_common_options(
    table: options_module.Table,
    budget_column: options_module.BudgetColumn = None,
    budgets: options_module.BudgetsTable = None,
    unknown: options_module.Unknown = None,
    spend_left: options_module.SpendLeft = False,
    epsilon: options_module.Epsilon = None,
    person_column: options_module.PersonColumn = None,
    engine: options_module.EngineName = None,
    key: options_module.Key = None,
    out: options_module.Out = None,
    force: options_module.Force = False,
    kind: options_module.Format = None,
    table_label: options_module.TableLabel = None,
    ledger: options_module.Ledger = None,
    keys: options_module.Keys = None,
    short: options_module.Short = "leave-out",
    delimiter: options_module.Delimiter = None,
    encoding: options_module.Encoding = None,
    decimal: options_module.Decimal = ".",
) -> tuple[Any, AnswerOptions, LedgerOptions | None]:
    """The options of every question: whose rows, whose budgets, read by what, and where the
    answer goes.
    """
    load_arrow()
    from sottovoce.data.engine import TextFormat
    from sottovoce.data.source import DataSource

    if unknown is not None:
        unknown = options_module.parse_choice("--unknown", unknown, options_module.UNKNOWN_POLICIES)
    if unknown is not None or spend_left:
        options_module.refuse_stray_unknown(unknown, budgets, spend_left, ledger)
    said = DataSource(
        table,
        unknown=unknown,
        spend_left=(unknown or "leave-out") if spend_left else None,
        budget=budget_column,
        epsilon=epsilon,
        person=person_column,
        name=table_label,
        budgets=budgets,
        engine=engine,
        text=TextFormat.of_options(delimiter, encoding, decimal),
    )
    booking = None if ledger is None else LedgerOptions(ledger, keys, short)
    _refuse_other_formats(kind)
    return said, AnswerOptions(key, out, force, kind=kind), booking


def _refuse_other_formats(kind: str | None) -> None:
    from sottovoce.errors import InvalidParameter

    known = ("json", "csv", "md", "html")
    if kind is not None and kind not in known:
        raise InvalidParameter(
            "--format is none of its choices.", f"Choices: {', '.join(known)}.", "Choose one."
        )


NO_LEDGER = "No ledger remembers this release: asking again spends everybody's ε again."
NOTHING_SPENT = "Nobody spends anything: the answer is public."
REPEATED_KEY = (
    "The key {key!r} is in the ledger: these are the bytes that were released under it, and nobody "
    "was charged."
)
RESERVED = (
    "The key {key!r} is reserved, and what was reserved stays spent: it cannot be known whether "
    "anything was learnt. Nothing is stored under it. Ask again under a new key."
)
ELSEWHERE = " The file that was to be written appeared meanwhile, and was left as it is."
KEPT = (
    "The release is in the ledger: asking again under the key {key!r} gives it, and costs nothing."
)


def run_release(
    said: DataSource, asked: Estimator, answer: AnswerOptions, booking: LedgerOptions | None = None
) -> None:
    """Makes a release, writes it, and says what it means and what it cost whom."""
    from sottovoce.cli.console import RowProgress, refuse_unwritable
    from sottovoce.estimator import release_unbooked

    for path in (answer.out, answer.beside):
        refuse_unwritable(path, *answer.inputs, force=answer.force, public=True)
    if booking is not None:
        return _run_with_ledger(said, asked, answer, booking)
    if picks_rows(asked):
        return _show_release(answer, release_baseline(said, asked), NO_LEDGER, style="dim")
    with RowProgress(get_console(stderr=True)) as watch:
        made = release_unbooked(said, asked, watch)
    costs = "epsilon" not in made.guarantee or made.guarantee["epsilon"]["most"] > 0
    return _show_release(answer, made, NO_LEDGER if costs else NOTHING_SPENT, style="dim")


def _open_session(
    said: DataSource, answer: AnswerOptions, booking: LedgerOptions, *, key: bool = False
) -> Session:
    """Returns a session on the books, over which the answer is not to be written."""
    from sottovoce.cli.console import refuse_unwritable
    from sottovoce.cli.options import list_ledger_files, open_session

    booking.refuse_unbookable(said, answer, key=key)
    session = open_session(booking.place, booking.keys, booking.short)
    for path in (answer.out, answer.beside):
        refuse_unwritable(
            path,
            *list_ledger_files(session, booking.place, booking.keys),
            force=answer.force,
            public=True,
        )
    return session


def _run_with_ledger(
    said: DataSource, asked: Estimator, answer: AnswerOptions, booking: LedgerOptions
) -> None:
    from sottovoce.cli.console import RowProgress
    from sottovoce.session import release_from_table

    session = _open_session(said, answer, booking, key=True)
    key = str(answer.key)
    known = session.ledger.find(key)
    with _report_charges_on_failure(session, key):
        with RowProgress(get_console(stderr=True)) as watch:
            made = release_from_table(said, asked, watch, session, key=key)
        if known is not None:
            cost = REPEATED_KEY.format(key=key)
        elif said.budgets is None and said.spend_left is None:
            cost = describe_booking(session, made, key)
        else:
            cost = describe_booking(session, made, key, "have no budget, or had not enough left")
        _show_release(answer, made, cost)


def _show_release(
    answer: AnswerOptions, made: Release, cost: str, style: str | None = None
) -> None:
    written = _write_release(answer, made)
    with suppress(Exception):  # the release is paid for and written: a picture must not spoil it
        show_tables(made)
    echo(made.explain(), stderr=True)
    if "advice" in made.parameters:
        echo(f"Planned as: {made.parameters['advice']}", stderr=True)
    echo(cost, stderr=True, style=style)
    if written is not None:
        echo(f"Written to {written}.{'' if written == answer.out else ELSEWHERE}", stderr=True)


def _write_release(answer: AnswerOptions, made: Release) -> Path | None:
    """Writes the release, or hands it over; one that is paid for is handed over also where it
    cannot be written.
    """
    from sottovoce.cli.console import RELEASE_IS_MADE, write_file
    from sottovoce.errors import InvalidParameter

    if answer.out is None:
        write_stdout(_format_release(answer, made))
        return None
    try:
        if answer.beside is not None:  # first what cannot be had again for nothing
            write_file(answer.beside, made.to_json(), force=answer.force, public=True)
        return write_file(
            answer.out, _format_release(answer, made), force=answer.force, public=True
        )
    except InvalidParameter as error:
        refused = error
    write_stdout(made.to_json())
    raise InvalidParameter(refused.found, RELEASE_IS_MADE, "Keep it from there.")


def _format_release(answer: AnswerOptions, made: Release) -> str:
    if answer.format == "json":
        return made.to_json()
    from sottovoce.report.answers import write_release

    return write_release(made, answer.format)


def describe_booking(
    session: Session, made: Release, key: str, lacking: str = "had not enough left"
) -> str:
    """Returns what the books say about a new release: entry, head, and how many people were left
    out, with the reason ``lacking``.
    """
    paper = made.certificate.ledger or {}
    entry = next(entry for entry in session.ledger.entries() if entry.number == paper["entry"])
    # An ε at δ is charged to two accounts of everybody.
    paid = entry.lines // (2 if made.guarantee["currency"] == "epsilon, delta" else 1)
    out = made.guarantee["people"] - paid
    if out:
        short = f" {out:,} of {made.guarantee['people']:,} people {lacking}, and were left out."
    else:
        short = ""
    return (
        f"Booked under the key {key!r}: entry {entry.number}, head {paper['head']}.{short} "
        "Asking again under this key gives the same bytes and costs nothing."
    )


@contextmanager
def _report_charges_on_failure(session: Session, key: str) -> Iterator[None]:
    """If a release under a new key is cut short, says what was charged by then."""
    new = session.ledger.find(key) is None
    try:
        yield
    except BaseException as error:
        if new:
            told = _describe_charges(session, key)
        else:
            told = ""
        if told or isinstance(error, KeyboardInterrupt):
            echo(told or "Nobody was charged by this attempt.", stderr=True, style="yellow")
        raise


def _describe_charges(session: Session, key: str) -> str:
    from sottovoce.errors import SottovoceError

    try:
        now = session.ledger.find(key)
    except SottovoceError:  # books that are out of reach are a reason to stop, and to say so
        return (
            f"The ledger cannot be asked about the key {key!r}. Ask again under the same key: it "
            "is charged once."
        )
    if now is None:
        return ""
    return (KEPT if now.state == "published" else RESERVED).format(key=key)


def run_plan(
    said: DataSource, asked: Estimator, answer: AnswerOptions, booking: LedgerOptions | None = None
) -> None:
    """Makes a plan, and shows it; with books, as the release would be made now."""
    from sottovoce.cli.console import (
        RowProgress,
        make_plan_json,
        refuse_unwritable,
        show_plan,
        write_file,
    )
    from sottovoce.session import plan_from_table

    refuse_unwritable(answer.out, *answer.inputs, force=answer.force, public=True)
    if booking is None:
        session = None
    else:
        session = _open_session(said, answer, booking)
    if picks_rows(asked):
        made = plan_baseline(said, asked)
    else:
        with RowProgress(get_console(stderr=True)) as watch:
            made = plan_from_table(said, asked, watch, session)
    show_plan(made)
    if answer.out is not None:
        written = write_file(answer.out, make_plan_json(made), force=answer.force, public=True)
        echo(f"Written to {written}.", stderr=True)


def read_public_rows(said: DataSource, public: str) -> tuple[Any, list[str]]:
    """Returns the features of the public table, as an Arrow table, and the class of each row."""
    from sottovoce.data.engine import DEFAULT_TEXT_FORMAT, get_engine, read_columns
    from sottovoce.errors import TooFewRows

    _refuse_the_private_table(said, public)
    with _name_public_rows():
        engine = get_engine("arrow").open_table(
            public, said.private_numbers, text=said.text or DEFAULT_TEXT_FORMAT
        )
        table = read_columns(engine, said.private_columns)
        if len(table) < 2:
            raise TooFewRows(
                "The table is empty or has one row.",
                "",
                "Name a larger one, or leave --public out.",
                parameter="public",
            )
        features = table.drop_columns([str(said.column)])
        _refuse_gaps(said, features)
        return features, _read_classes(said, table)


def _refuse_the_private_table(said: DataSource, public: str) -> None:
    from sottovoce.errors import InvalidParameter

    other = Path(public)
    private = Path(said.table)
    if other.exists() and private.exists() and other.samefile(private):
        raise InvalidParameter(
            "The public rows are the private table itself.",
            "Public rows are of other people, and need no protection: nothing is promised about "
            "them.",
            "Name another table, or leave --public out.",
            parameter="public",
        )


def _refuse_gaps(said: DataSource, features: Any) -> None:
    import numpy as np

    from sottovoce.arrays import to_matrix
    from sottovoce.data.encoding import Recoding
    from sottovoce.data.kernels import invalid_values_error

    recoding = Recoding.of_schema(said.features)  # type: ignore[arg-type]
    if not np.isfinite(to_matrix(features, recoding)).all():
        raise invalid_values_error()


def _read_classes(said: DataSource, table: Any) -> list[str]:
    import numpy as np

    from sottovoce.data.encoding import number_levels
    from sottovoce.schema import Classes, undeclared_class_error

    classes: Classes = said.classes  # type: ignore[assignment]
    codes = number_levels(table.column(str(said.column)).combine_chunks(), classes.levels)
    if (codes < 0).any():
        raise undeclared_class_error(classes)
    return list(np.array(classes.levels)[codes.astype(np.int64)].tolist())


@contextmanager
def _name_public_rows() -> Iterator[None]:
    from sottovoce.errors import InvalidData

    try:
        yield
    except InvalidData as error:
        found = f"In the public rows: {error.found[0].lower()}{error.found[1:]}"
        raise type(error)(found, error.required, error.remedy, parameter="public") from None
