# SPDX-License-Identifier: Apache-2.0
"""From the words of a question to a plan or a release.

A plan reads the columns of people and budgets; the columns in question are looked for in the header and
not read. A release goes on from there, through a session where there are books, in the order of steps that
every answer follows. Bad parameters are refused before the table is opened, and a place that cannot be
written to before anybody is charged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sottovoce.cli.public import public_rows
from sottovoce.cli.voice import console, hand_over, say
from sottovoce.cli.words import Booking, Said

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

NO_BOOKS = "No ledger remembers this release: asking again spends everybody's ε again."
ONCE_MORE = "The key {key!r} is in the books: these are the bytes that were released under it, and nobody was charged."
RESERVED = (
    "The key {key!r} is reserved, and what was reserved stays spent: it cannot be known whether anything was learnt. "
    "Nothing is stored under it. Ask again under a new key."
)
KEPT = "The release is in the books: asking again under the key {key!r} gives it, and costs nothing."


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


def planned(said: Said, asked: Question, watch: Watch | None = None, session: Session | None = None) -> Plan:
    """Returns the plan, from the columns of people and budgets alone, and from what the session's people have left."""
    _, budgets, _ = census(said, watch, values=False)
    return asked.plan_for(budgets) if session is None else session.plan_rows(asked, budgets)


def answered(said: Said, asked: Question, watch: Watch | None = None, session: Session | None = None) -> Release:
    """Returns the release, made through this session, or without books if everybody grants what the table says."""
    from sottovoce.question import refuse_unfit, run

    engine, budgets, owner = census(said, watch, values=True)
    about = rows(said, engine, owner)
    if session is not None:
        return session.release_rows(asked, budgets, about, str(said.key))
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


def run_release(said: Said, asked: Question, booking: Booking | None = None) -> None:
    """Makes a release, writes it, and says what it means and what it cost whom."""
    from sottovoce.cli.files import refuse_unwritable

    refuse_unwritable(said.out, *said.inputs)
    if booking is None:
        _tell(said, _made(said, asked), NO_BOOKS, style="dim")
    else:
        _run_booked(said, asked, booking)


def _looked_into(said: Said, booking: Booking, *, key: bool = False) -> Session:
    """Returns a session on the books, over which the answer is not to be written."""
    from sottovoce.cli.books import files_of, opened
    from sottovoce.cli.files import refuse_unwritable

    booking.refuse_unbookable(said, key=key)
    session = opened(booking.place, booking.keys, booking.short)
    refuse_unwritable(said.out, *files_of(session, booking.place, booking.keys))
    return session


def _run_booked(said: Said, asked: Question, booking: Booking) -> None:
    session, key = _looked_into(said, booking, key=True), str(said.key)
    known = session.ledger.find(key)
    with _owning_up(session, key):
        made = _made(said, asked, session)
        _tell(said, made, booked(session, made, key) if known is None else ONCE_MORE.format(key=key))


def _made(said: Said, asked: Question, session: Session | None = None) -> Release:
    from sottovoce.cli.progress import RowsDone

    with RowsDone(console(stderr=True)) as watch:
        return answered(said, asked, watch, session)


def _tell(said: Said, made: Release, cost: str, style: str | None = None) -> None:
    from sottovoce.cli.files import write_whole

    if said.out is None:
        hand_over(made.to_json())
    else:
        write_whole(said.out, made.to_json())
    say(made.explain(), stderr=True)
    if "advice" in made.parameters:
        say(f"Planned as: {made.parameters['advice']}", stderr=True)
    say(cost, stderr=True, style=style)
    if said.out is not None:
        say(f"Written to {said.out}.", stderr=True)


def booked(session: Session, made: Release, key: str) -> str:
    """Returns what the books say about a new release: entry, head, and how many people had not enough left."""
    paper = made.certificate.ledger or {}
    entry = next(entry for entry in session.ledger.entries() if entry.number == paper["entry"])
    # An ε at δ is charged to two accounts of everybody.
    paid = entry.lines // (2 if made.guarantee["currency"] == "epsilon, delta" else 1)
    out = made.guarantee["people"] - paid
    short = f" {out:,} of {made.guarantee['people']:,} people had not enough left, and were left out." if out else ""
    return (
        f"Booked under the key {key!r}: entry {entry.number}, head {paper['head']}.{short} "
        "Asking again under this key gives the same bytes and costs nothing."
    )


@contextmanager
def _owning_up(session: Session, key: str) -> Iterator[None]:
    """If a release under a new key is cut short, says what was charged by then."""
    new = session.ledger.find(key) is None
    try:
        yield
    except BaseException as error:
        told = _charged_by_then(session, key) if new else ""
        if told or isinstance(error, KeyboardInterrupt):
            say(told or "Nobody was charged by this attempt.", stderr=True, style="yellow")
        raise


def _charged_by_then(session: Session, key: str) -> str:
    from sottovoce.errors import SottovoceError

    try:
        now = session.ledger.find(key)
    except SottovoceError:  # books that are out of reach are a reason to stop, and to say so
        return f"The books cannot be asked about the key {key!r}. Ask again under the same key: it is charged once."
    if now is None:
        return ""
    return (KEPT if now.state == "published" else RESERVED).format(key=key)


def run_plan(said: Said, asked: Question, booking: Booking | None = None) -> None:
    """Makes a plan, and shows it; with books, as the release would be made now."""
    from sottovoce.cli.files import refuse_unwritable, write_whole
    from sottovoce.cli.pictures import plan_json, show_plan
    from sottovoce.cli.progress import RowsDone

    refuse_unwritable(said.out, *said.inputs)
    session = None if booking is None else _looked_into(said, booking)
    with RowsDone(console(stderr=True)) as watch:
        made = planned(said, asked, watch, session)
    show_plan(made)
    if said.out is not None:
        write_whole(said.out, plan_json(made))
        say(f"Written to {said.out}.", stderr=True)
