# SPDX-License-Identifier: Apache-2.0
"""From the words of a question to a plan or a release.

A plan reads the columns of people and budgets; the columns in question are looked for in the header and
not read. A release goes on from there, through a session where there are books, in the order of steps that
every answer follows. Bad parameters are refused before the table is opened, and a place that cannot be
written to before anybody is charged.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sottovoce.cli.public import public_rows
from sottovoce.cli.voice import console, hand_over, say
from sottovoce.cli.words import Said

if TYPE_CHECKING:
    from sottovoce.bounds import Schema
    from sottovoce.budgets import Budgets
    from sottovoce.engine import Engine, Rows, Watch
    from sottovoce.features import ClassLabel, Label
    from sottovoce.plan import Plan
    from sottovoce.question import Question
    from sottovoce.release import Release
    from sottovoce.session import Session
    from sottovoce.statistics import Owner


def question(name: str, said: Said, **parameters: Any) -> Question:
    """Returns the question by its public name; its parameters are refused now if they are wrong."""
    import sottovoce as sv

    given = {word: value for word, value in parameters.items() if value is not None}
    if said.features is None:
        given |= {"bounds": said.bounds, "missing": said.missing}
    else:
        given |= {"bounds": said.features}  # which declares its own constants for missing values
    asked: Question = getattr(sv, name)(**given)
    with suppress(sv.errors.WeakRegularisation):  # a λ that is too weak for two people may be right for many
        asked.plan_for(sv.Budgets.of(1.0, rows=2))  # a plan for nobody: better to stumble here than after a long census
    # Public rows are checked as they are read, and not part of the trial, which would be slow with them.
    return asked if said.public is None else getattr(sv, name)(**given, public=public_rows(said))


def planned(said: Said, asked: Question, watch: Watch | None = None) -> Plan:
    """Returns the plan, from the columns of people and budgets alone."""
    _, budgets, _ = census(said, watch, values=False)
    return asked.plan_for(budgets)


def answered(said: Said, asked: Question, watch: Watch | None = None, session: Session | None = None) -> Release:
    """Returns the release, made through this session, or without books if everybody grants what the table says."""
    from sottovoce.question import refuse_unfit, run

    engine, budgets, owner = census(said, watch, values=True)
    about = rows(said, engine, owner)
    if session is not None:
        return session.release_rows(asked, budgets, about, said.key)
    # Books that end with the process need no accounts: people are counted and protected, but not named.
    plan = asked.plan_for(replace(budgets, people=None), about)
    refuse_unfit(asked, plan, about)
    return run(asked, plan, about)


def rows(said: Said, engine: Engine, owner: Owner) -> Rows:
    """Returns the rows in question: of one column, or of a label and its features."""
    from sottovoce.engine import Rows
    from sottovoce.features import Named
    from sottovoce.recoding import Recoding

    column = str(said.column)
    if said.features is None:
        return Rows(engine, column, owner)
    return Rows(engine, column, owner, Named(Recoding.of_schema(said.features)), label(said, said.features))


def label(said: Said, schema: Schema) -> Label | ClassLabel:
    """Returns how the label is read: a factor as classes, else as a number."""
    from sottovoce.features import ClassLabel, Label

    column = str(said.column)
    if said.classes is not None:
        return ClassLabel(column, said.classes)
    low, high = schema.interval(column)
    return Label(column, low, high, said.missing)


def census(said: Said, watch: Watch | None, *, values: bool) -> tuple[Engine, Budgets, Owner]:
    """Opens the table and counts who takes part; only a release declares the values to be numbers."""
    from sottovoce.census import take_census
    from sottovoce.engine import named, require_columns

    budget = () if said.tiers or said.budget is None else (said.budget,)
    engine = named("arrow").open_table(said.table, (*budget, *(said.asked_numbers if values else ())), watch)
    require_columns(engine, *said.asked_about, said.budget, said.person)
    budgets, owner = take_census(
        engine, epsilon=said.epsilon, budget=said.budget, person=said.person, tiers=said.tiers or None
    )
    return engine, budgets, owner


def run_release(said: Said, asked: Question) -> None:
    """Makes a release, writes it, and says what it means."""
    from sottovoce.cli.files import refuse_unwritable, write_whole
    from sottovoce.cli.progress import RowsDone

    refuse_unwritable(said.out, *said.inputs)
    with RowsDone(console(stderr=True)) as watch:
        made = answered(said, asked, watch)
    if said.out is None:
        hand_over(made.to_json())
    else:
        write_whole(said.out, made.to_json())
    say(made.explain(), stderr=True)
    if "advice" in made.parameters:
        say(f"Planned as: {made.parameters['advice']}", stderr=True)
    say("No ledger remembers this release: asking again spends everybody's ε again.", stderr=True, style="dim")
    if said.out is not None:
        say(f"Written to {said.out}.", stderr=True)


def run_plan(said: Said, asked: Question) -> None:
    """Makes a plan, and shows it."""
    from sottovoce.cli.files import refuse_unwritable, write_whole
    from sottovoce.cli.pictures import plan_json, show_plan
    from sottovoce.cli.progress import RowsDone

    refuse_unwritable(said.out, *said.inputs)
    with RowsDone(console(stderr=True)) as watch:
        made = planned(said, asked, watch)
    show_plan(made)
    if said.out is not None:
        write_whole(said.out, plan_json(made))
        say(f"Written to {said.out}.", stderr=True)
