# SPDX-License-Identifier: Apache-2.0
"""`sottovoce plan` and `sottovoce release`, and the questions that both take with the same words.

The verb is kept in the context when its name is read, and a question hands itself to the verb: so no
word can be understood by one and not by the other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli import words
from sottovoce.cli.answers import question, run_plan, run_release
from sottovoce.cli.voice import plainly
from sottovoce.cli.words import Said

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
    """Makes a question a command of both verbs, and adds the words of the books, which are the same for all."""
    for verb in (release_app, plan_app):
        verb.command()(plainly()(_with_books(words_of_question)))
    return words_of_question


def _with_books(words_of_question: Callable[..., None]) -> Callable[..., None]:
    @wraps(words_of_question)
    def command(context: typer.Context, ledger: str | None, keys: Path | None, short: str, **rest: Any) -> None:
        if ledger is not None:
            context.obj = partial(context.obj, booking=words.Booking(ledger, keys, short))
        words_of_question(context, **rest)

    own, books = inspect.signature(words_of_question, eval_str=True), inspect.signature(_books, eval_str=True)
    everything = [*own.parameters.values(), *books.parameters.values()]
    command.__signature__ = own.replace(parameters=everything)  # type: ignore[attr-defined]  # typer reads it
    return command


def _books(ledger: words.Ledger = None, keys: words.Keys = None, short: words.Short = "leave-out") -> None:
    """The words of the books."""


@asked
def mean(
    context: typer.Context,
    table: words.Table,
    column: words.ColumnName = None,
    bounds: words.Limits = None,
    budget_column: words.BudgetColumn = None,
    epsilon: words.Epsilon = None,
    person_column: words.PersonColumn = None,
    schema: words.SchemaFile = None,
    missing: words.Missing = None,
    spread: Annotated[
        float | None,
        typer.Option(help="A public guess of the standard deviation; half the range if not given."),
    ] = None,
    key: words.Key = None,
    out: words.Out = None,
) -> None:
    """The mean of a column."""
    said = Said(table, column, bounds, budget_column, epsilon, person_column, schema, missing, key, out).completed()
    context.obj(said, question("Mean", said, spread=spread))


@asked
def quantile(
    context: typer.Context,
    table: words.Table,
    q: Annotated[
        list[float] | None,
        typer.Option("--q", help="A share of the people, 0 to 1 (if not given: 0.5). Several split the budget evenly."),
    ] = None,
    column: words.ColumnName = None,
    bounds: words.Limits = None,
    budget_column: words.BudgetColumn = None,
    epsilon: words.Epsilon = None,
    person_column: words.PersonColumn = None,
    schema: words.SchemaFile = None,
    missing: words.Missing = None,
    spread: Annotated[
        float | None,
        typer.Option(help="A public guess of the share of the bounds that values fill, for the expected error only."),
    ] = None,
    method: Annotated[str | None, typer.Option(help="permute-and-flip (if not given) or exponential.")] = None,
    cells: Annotated[int | None, typer.Option(help="Steps of the grid of possible answers.")] = None,
    key: words.Key = None,
    out: words.Out = None,
) -> None:
    """Quantiles of a column: the median, quartiles, any share of the people."""
    said = Said(table, column, bounds, budget_column, epsilon, person_column, schema, missing, key, out).completed()
    context.obj(said, question("Quantile", said, q=q or [0.5], spread=spread, method=method, cells=cells))


@asked
def ridge(
    context: typer.Context,
    table: words.Table,
    schema: words.Described = None,
    method: Annotated[
        str | None,
        typer.Option(help="objective (if not given), statistics, output-tight, or output (as published)."),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="Regularisation, a public number (if not given: 1.0); the default method chooses its own."),
    ] = None,
    loss: Annotated[str | None, typer.Option(help="soft (if not given) or huber, for the default method.")] = None,
    label_scale: Annotated[
        float | None,
        typer.Option(help="A public guess of the label's standard deviation; saves the ε that would buy it."),
    ] = None,
    budget_column: words.BudgetColumn = None,
    epsilon: words.Epsilon = None,
    person_column: words.PersonColumn = None,
    key: words.Key = None,
    out: words.Out = None,
) -> None:
    """A linear model of the label on the features that the schema describes."""
    said = Said(
        table, budget=budget_column, epsilon=epsilon, person=person_column, schema=schema, key=key, out=out
    ).regressed()
    context.obj(said, question("Ridge", said, method=method, alpha=alpha, loss=loss, label_scale=label_scale))


@asked
def logistic(
    context: typer.Context,
    table: words.Table,
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
    budget_column: words.BudgetColumn = None,
    epsilon: words.Epsilon = None,
    person_column: words.PersonColumn = None,
    key: words.Key = None,
    out: words.Out = None,
) -> None:
    """A classifier: the odds of the label's classes, given the features that the schema describes."""
    said = Said(
        table,
        budget=budget_column,
        epsilon=epsilon,
        person=person_column,
        schema=schema,
        key=key,
        out=out,
        public=public,
    ).classified()
    context.obj(said, question("LogisticRegression", said, alpha=alpha, neighbours=neighbours))


@asked
def posterior(
    context: typer.Context,
    table: words.Table,
    schema: words.Described = None,
    gamma: Annotated[
        float | None, typer.Option(help="How concentrated the sample is, a public number (if not given: 1.0).")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Regularisation λ, a public number (if not given: 1.0).")] = None,
    delta: Annotated[float | None, typer.Option(help="The δ of every promise (if not given: 1e-6).")] = None,
    budget_column: words.BudgetColumn = None,
    epsilon: words.Epsilon = None,
    person_column: words.PersonColumn = None,
    key: words.Key = None,
    out: words.Out = None,
) -> None:
    """A linear model as one sample from a posterior, whose losses can be audited exactly."""
    said = Said(
        table, budget=budget_column, epsilon=epsilon, person=person_column, schema=schema, key=key, out=out
    ).regressed()
    context.obj(said, question("PosteriorSample", said, gamma=gamma, alpha=alpha, delta=delta, fit_intercept=True))
