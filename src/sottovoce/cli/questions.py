# SPDX-License-Identifier: Apache-2.0
"""`sottovoce plan` and `sottovoce release`, and the questions that both take with the same words.

The verb is kept in the context when its name is read, and a question hands itself to the verb: so no
word can be understood by one and not by the other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Annotated, Any

import typer

from sottovoce.asked import Said
from sottovoce.cli import words
from sottovoce.cli.answers import question, run_plan, run_release
from sottovoce.cli.voice import plainly

release_app = typer.Typer(no_args_is_help=True)
plan_app = typer.Typer(no_args_is_help=True)


@release_app.callback()
def release(context: typer.Context) -> None:
    """Answer a question about a table, and keep everybody's promise.

    The release is written to --out, or to standard output; what it says in plain words, to standard error.
    """
    context.obj = run_release


@plan_app.callback()
def plan(context: typer.Context) -> None:
    """Show who pays what and the error to expect, without reading what the question is about.

    The words are those of `release`. With --out the plan is also written as JSON.
    """
    context.obj = run_plan


def asked(words_of_question: Callable[..., None]) -> Callable[..., None]:
    """Makes a question a command of both verbs, and adds the words that are the same for all."""
    for verb in (release_app, plan_app):
        verb.command()(plainly()(_with_usual_words(words_of_question)))
    return words_of_question


def _with_usual_words(words_of_question: Callable[..., None]) -> Callable[..., None]:
    usual = inspect.signature(_usual, eval_str=True).parameters

    @wraps(words_of_question)
    def command(context: typer.Context, **given: Any) -> None:
        said, booking = _usual(**{name: given.pop(name) for name in usual})
        if booking is not None:
            context.obj = partial(context.obj, booking=booking)
        words_of_question(context, said, **given)

    own = inspect.signature(words_of_question, eval_str=True)
    table, *others = usual.values()
    context, _, *options = own.parameters.values()
    parameters = [context, table, *options, *others]
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it
    return command


def _usual(
    table: words.Table,
    budget_column: words.BudgetColumn = None,
    budgets: words.BudgetsTable = None,
    epsilon: words.Epsilon = None,
    person_column: words.PersonColumn = None,
    engine: words.EngineName = None,
    key: words.Key = None,
    out: words.Out = None,
    force: words.Force = False,
    table_label: words.TableLabel = None,
    ledger: words.Ledger = None,
    keys: words.Keys = None,
    short: words.Short = "leave-out",
    delimiter: words.Delimiter = None,
    encoding: words.Encoding = None,
    decimal: words.Decimal = ".",
) -> tuple[Said, words.Booking | None]:
    """The words of every question: whose rows, whose budgets, read by what, and where the answer goes."""
    said = Said(
        table,
        budget=budget_column,
        epsilon=epsilon,
        person=person_column,
        key=key,
        out=out,
        force=force,
        name=table_label,
        budgets=budgets,
        engine=engine,
        text=words.text_format(delimiter, encoding, decimal),
    )
    return said, None if ledger is None else words.Booking(ledger, keys, short)


@asked
def mean(
    context: typer.Context,
    said: Said,
    column: words.ColumnName = None,
    bounds: words.Limits = None,
    schema: words.SchemaFile = None,
    missing: words.Missing = None,
    spread: Annotated[
        float | None,
        typer.Option(help="A public guess of the standard deviation; half the range if not given."),
    ] = None,
) -> None:
    """The mean of a column."""
    said = replace(said, column=column, bounds=bounds, schema=schema, missing=missing).complete()
    context.obj(said, question("Mean", said, spread=spread))


@asked
def quantile(
    context: typer.Context,
    said: Said,
    q: Annotated[
        list[float] | None,
        typer.Option("--q", help="A share of the rows, 0 to 1 (if not given: 0.5). Several split the budget evenly."),
    ] = None,
    column: words.ColumnName = None,
    bounds: words.Limits = None,
    schema: words.SchemaFile = None,
    missing: words.Missing = None,
    spread: Annotated[
        float | None,
        typer.Option(help="A public guess of the share of the bounds that values fill, for the expected error only."),
    ] = None,
    method: Annotated[str | None, typer.Option(help="permute-and-flip (if not given) or exponential.")] = None,
    cells: Annotated[int | None, typer.Option(help="Steps of the grid of possible answers.")] = None,
) -> None:
    """Quantiles of a column: the median, quartiles, any share of the rows."""
    said = replace(said, column=column, bounds=bounds, schema=schema, missing=missing).complete()
    context.obj(said, question("Quantile", said, q=q or [0.5], spread=spread, method=method, cells=cells))


@asked
def ridge(
    context: typer.Context,
    said: Said,
    schema: words.Described = None,
    method: Annotated[
        str | None,
        typer.Option(help="objective (if not given), statistics, output-tight, or output (as published)."),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="Regularisation, a public number; if not given, the plan chooses it from public numbers."),
    ] = None,
    loss: Annotated[str | None, typer.Option(help="soft (if not given) or huber, for the default method.")] = None,
    label_scale: Annotated[
        float | None,
        typer.Option(help="A public guess of the label's standard deviation; saves the ε that would buy it."),
    ] = None,
) -> None:
    """A linear model of the label on the features that the schema describes."""
    said = replace(said, schema=schema).for_regression()
    context.obj(said, question("Ridge", said, method=method, alpha=alpha, loss=loss, label_scale=label_scale))


@asked
def logistic(
    context: typer.Context,
    said: Said,
    schema: words.Described = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="Regularisation λ, a public number; if not given, chosen from the budgets."),
    ] = None,
    neighbours: Annotated[
        str | None,
        typer.Option(help="replace (if not given), or labels to protect labels alone, at half the noise."),
    ] = None,
    public: words.PublicTable = None,
) -> None:
    """A classifier: the odds of the label's classes, given the features that the schema describes."""
    said = replace(said, schema=schema, public=public).for_classification()
    context.obj(said, question("LogisticRegression", said, alpha=alpha, neighbours=neighbours))


@asked
def posterior(
    context: typer.Context,
    said: Said,
    schema: words.Described = None,
    gamma: Annotated[
        float | None, typer.Option(help="How concentrated the sample is, a public number (if not given: 1.0).")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Regularisation λ, a public number (if not given: 1.0).")] = None,
    delta: Annotated[float | None, typer.Option(help="The δ of every promise (if not given: 1e-6).")] = None,
) -> None:
    """A linear model as one sample from a posterior, whose losses can be audited exactly."""
    said = replace(said, schema=schema).for_regression()
    context.obj(said, question("PosteriorSample", said, gamma=gamma, alpha=alpha, delta=delta, fit_intercept=True))
