# SPDX-License-Identifier: Apache-2.0
"""Books as the command line meets them: opened and never made by mistake, granted from a table, written out for others.

Where books are asked for and none are there, they are not made: a slip of the pen must not open new ones, in which
everybody's budget would be whole again. An address is never repeated, because it may hold a password.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sottovoce.cli.closed import refuse_open_password
from sottovoce.cli.voice import say
from sottovoce.engine import USUAL_TEXT, TextFormat, named
from sottovoce.errors import (
    InconsistentBudget,
    InvalidData,
    InvalidParameter,
    MissingColumn,
    TooFewRows,
    UnknownPeople,
    WrongType,
)
from sottovoce.ledgers.books import Books
from sottovoce.ledgers.opened import SQLITE, own_folder
from sottovoce.ledgers.opened import opened as opened_books
from sottovoce.pages.market_told import guarded
from sottovoce.session import Session
from sottovoce.statistics import as_floats

EXPORT_FORMAT = "sottovoce.ledger/1"
SHORT = {"leave-out": "leave out", "refuse": "refuse"}
#: Who grants is called person; in the allocation of a market, seller.
PEOPLE, AMOUNTS = ("person", "seller"), ("epsilon",)
#: The column by which an allocation of a market is known; names in it are guarded against spreadsheets.
PAYMENT = "payment"
#: What the ledger, the page and SQLite keep beside the file of the books; the first four also for books on a server.
ENDINGS = (".key", ".heads", ".codes", ".witnesses", "-wal", "-shm")


def opened(place: str | None, keys: Path | None, short: str = "leave-out") -> Session:
    """Returns a session on books that are there; says so if they are sealed."""
    if place is None:
        raise InvalidParameter(
            "No books are named.",
            "",
            "Pass --ledger, or set SOTTOVOCE_LEDGER; `sottovoce ledger init` begins new books.",
        )
    refuse_open_password(place)
    how = chosen("--short", short, SHORT)
    session = Session(ledger=opened_books(place, keys, begin=False), short=how)
    books = books_of(session)
    if books.sealed:
        say(f"These books are sealed: {books.why_sealed}", stderr=True, style="yellow")
    for name, why in books.unreached.items():
        say(f"Not asked, because {why}: the witness {name}", stderr=True, style="yellow")
    if books.signed_from is None:
        say("An earlier version wrote these books: `sottovoce ledger upgrade` before anything is written.", stderr=True)
    return session


def books_of(session: Session) -> Books:
    """Returns the books of a session that was opened here."""
    if not isinstance(session.ledger, Books):
        raise TypeError("only books in a database are opened here")
    return session.ledger


def file_of(place: str) -> Path | None:
    """Returns the file behind an address; None for books on a server, or of a kind that is refused later."""
    return Path(place.removeprefix(SQLITE)) if place.startswith(SQLITE) or "://" not in place else None


def files_of(session: Session, place: str | None, keys: Path | None) -> list[Path]:
    """Returns the files of the books, which nothing else may be written over."""
    path = file_of(place or "")
    if path is not None:
        return [path, *(path.with_name(path.name + ending) for ending in ENDINGS)]
    folder = own_folder() if keys is None else keys
    return [folder / (session.ledger.identity + ending) for ending in ENDINGS[:4]]


def chosen(option: str, word: str, meanings: Mapping[str, str]) -> Any:
    """Returns what a word of the command line means."""
    if word not in meanings:
        raise InvalidParameter(f"{option} does not know this word.", f"It knows: {', '.join(meanings)}.", "Choose one.")
    return meanings[word]


def read_grants(path: str, person: str | None, amount: str | None, text: TextFormat = USUAL_TEXT) -> dict[str, float]:
    """Reads who allows how much; a person in several lines must say the same in all of them."""
    there = named("arrow").open_table(path, text=text).columns()
    person, amount = _found(there, person, PEOPLE), _found(there, amount, AMOUNTS)
    allocated = PAYMENT in there and PAYMENT not in (person, amount)
    grants: dict[str, float] = {}
    for names, amounts in _read(path, person, amount, text):
        for name, given in zip(names, amounts, strict=True):
            name = _as_reported(name) if allocated else name
            if name in grants and grants[name] != given:
                raise InconsistentBudget("A person grants two different amounts.", "", "Keep one line a person.")
            grants[name] = given
    if not grants:
        raise TooFewRows("Nobody grants anything: the table has no lines.", "", "Write a line for each person.")
    return grants


def _found(there: Mapping[str, str], said: str | None, usual: tuple[str, ...]) -> str:
    names = usual if said is None else (said,)
    found = [name for name in names if name in there]
    if len(found) != 1:
        raise MissingColumn(
            f"The table has no column {' or '.join(map(repr, names))}, or has both.",
            f"Its columns are: {', '.join(there)}.",
            "Name one with --person-column and --budget-column.",
        )
    return found[0]


@dataclass(frozen=True)
class _Lines:
    """The kernel that keeps names and amounts."""

    columns: tuple[str, str]

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        person, amount = (batch.column(name) for name in self.columns)
        return [(_names(person), as_floats(amount).tolist())]


def _names(column: Any) -> list[str]:
    if column.null_count:
        raise UnknownPeople("A grant names nobody.", "Every line says who grants.", "Fill the column of people in.")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not any(kind(column.type) for kind in (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)):
        raise _unreadable()
    names: list[str] = column.cast(pa.string()).to_pylist()
    return names


def _read(path: str, person: str, amount: str, text: TextFormat) -> list[Any]:
    if person == amount:
        raise InvalidParameter("One column is named for two purposes.", "", "Name different columns.")
    try:
        return named("arrow").open_table(path, (amount,), text=text).fold(_Lines((person, amount)))
    except InvalidData:
        pass  # raised below, in the words of grants
    raise _unreadable()


def _unreadable() -> WrongType:
    return WrongType(
        "A line cannot be read as a grant.",
        "People are text or whole numbers, and amounts numbers with a point, such as 0.5.",
        "Check both columns; for decimal commas pass --decimal , and for text that is not UTF-8 --encoding.",
    )


def _as_reported(name: str) -> str:
    """Takes off the apostrophe that keeps a spreadsheet from reading a seller's name as a formula."""
    return name[1:] if name.startswith("'") and guarded(name[1:]) == name else name


def exported(books: Books) -> Iterator[str]:
    """Returns the books as lines of JSON: each entry, and after it its lines as they were hashed."""
    yield json.dumps({"format": EXPORT_FORMAT, "ledger": books.identity, "key": books.public_key})
    for entry in books.entries():
        told = {**entry.__dict__, "root": entry.root.hex(), "digest": entry.digest.hex()}
        signature = books.signature(entry.number)
        if signature is not None:
            told["signature"] = signature
        yield json.dumps({"entry": told}, ensure_ascii=False)
        if entry.lines:
            packed = books.lines(entry.number)
            raw, size = packed.tobytes().hex(), 2 * packed.itemsize
            yield from (f'{{"line": "{raw[start : start + size]}"}}' for start in range(0, len(raw), size))
