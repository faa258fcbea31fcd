# SPDX-License-Identifier: Apache-2.0
"""Plans and releases at a terminal: made, shown, written, and owned up to where they are cut short.

Bad parameters are refused before the table is opened, and a place that cannot be written to before anybody is
charged. What becomes of the words of a question is in asked.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sottovoce import asked as core
from sottovoce.asked import Said, answered, planned
from sottovoce.cli.public import public_rows
from sottovoce.cli.voice import console, hand_over, say
from sottovoce.cli.words import Booking

if TYPE_CHECKING:
    from sottovoce.question import Question
    from sottovoce.release import Release
    from sottovoce.session import Session

NO_BOOKS = "No ledger remembers this release: asking again spends everybody's ε again."
ONCE_MORE = "The key {key!r} is in the books: these are the bytes that were released under it, and nobody was charged."
RESERVED = (
    "The key {key!r} is reserved, and what was reserved stays spent: it cannot be known whether anything was learnt. "
    "Nothing is stored under it. Ask again under a new key."
)
ELSEWHERE = " The file that was to be written appeared meanwhile, and was left as it is."
KEPT = "The release is in the books: asking again under the key {key!r} gives it, and costs nothing."


def question(name: str, said: Said, **parameters: Any) -> Question:
    """Returns the question by its public name, with public rows where a table of them is named."""
    asked: Any = core.question(name, said, **parameters)
    # Public rows are checked as they are read, and not part of the trial, which would be slow with them.
    return asked if said.public is None else asked.set_params(public=public_rows(said))  # type: ignore[no-any-return]


def run_release(said: Said, asked: Question, booking: Booking | None = None) -> None:
    """Makes a release, writes it, and says what it means and what it cost whom."""
    from sottovoce.cli.files import refuse_unwritable

    refuse_unwritable(said.out, *said.inputs, force=said.force, public=True)
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
    refuse_unwritable(said.out, *files_of(session, booking.place, booking.keys), force=said.force, public=True)
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
    written = _written(said, made)
    say(made.explain(), stderr=True)
    if "advice" in made.parameters:
        say(f"Planned as: {made.parameters['advice']}", stderr=True)
    say(cost, stderr=True, style=style)
    if written is not None:
        say(f"Written to {written}.{'' if written == said.out else ELSEWHERE}", stderr=True)


def _written(said: Said, made: Release) -> Path | None:
    """Writes the release, or hands it over; one that is paid for is handed over also where it cannot be written."""
    from sottovoce.cli.files import write_whole
    from sottovoce.errors import InvalidParameter

    if said.out is None:
        hand_over(made.to_json())
        return None
    try:
        return write_whole(said.out, made.to_json(), force=said.force, public=True)
    except InvalidParameter as error:
        refused = error
    hand_over(made.to_json())
    raise InvalidParameter(refused.found, "The release was made, and is on standard output.", "Keep it from there.")


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

    refuse_unwritable(said.out, *said.inputs, force=said.force, public=True)
    session = None if booking is None else _looked_into(said, booking)
    with RowsDone(console(stderr=True)) as watch:
        made = planned(said, asked, watch, session)
    show_plan(made)
    if said.out is not None:
        written = write_whole(said.out, plan_json(made), force=said.force, public=True)
        say(f"Written to {written}.", stderr=True)
