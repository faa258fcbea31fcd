# SPDX-License-Identifier: Apache-2.0
"""Books as the command line meets them: opened and never made by mistake, granted from a table,
written out for others.

Where books are asked for and none are there, they are not made: a slip of the pen must not open new
ones, in which everybody's budget would be whole again. An address is never repeated, because it may
hold a password.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sottovoce.cli.console import echo
from sottovoce.cli.hardening import refuse_open_password
from sottovoce.data.engine import DEFAULT_TEXT_FORMAT, TextFormat, get_engine
from sottovoce.data.kernels import as_floats
from sottovoce.errors import (
    InconsistentBudget,
    InvalidData,
    InvalidParameter,
    MissingColumn,
    TooFewRows,
    UnknownPeople,
    WrongType,
)
from sottovoce.ledgers.opened import SQLITE, get_key_folder
from sottovoce.ledgers.opened import open_ledger as opened_books
from sottovoce.ledgers.sql_ledger import SqlLedger
from sottovoce.report.market import guard_formula
from sottovoce.session import Session

EXPORT_FORMAT = "sottovoce.ledger/1"
SHORT_POLICIES = {"leave-out": "leave out", "refuse": "refuse"}
#: Who grants is called person; in the allocation of a market, seller.
PERSON_COLUMNS = ("person", "seller")
AMOUNT_COLUMNS = ("epsilon",)
#: The column by which an allocation of a market is known; names in it are guarded against
#: spreadsheets.
PAYMENT_COLUMN = "payment"
#: What the ledger, the page and SQLite keep beside the file of the books; the first four also for
#: books on a server.
ENDINGS = (".key", ".heads", ".codes", ".witnesses", "-wal", "-shm")


def open_session(place: str | None, keys: Path | None, short: str = "leave-out") -> Session:
    """Returns a session on books that are there; says so if they are sealed."""
    if place is None:
        raise InvalidParameter(
            "No books are named.",
            "",
            "Pass --ledger, or set SOTTOVOCE_LEDGER; `sottovoce ledger init` begins new books.",
        )
    refuse_open_password(place)
    how = parse_choice("--short", short, SHORT_POLICIES)
    session = Session(ledger=opened_books(place, keys, begin=False), short=how)
    books = get_sql_ledger(session)
    if books.sealed:
        echo(f"These books are sealed: {books.why_sealed}", stderr=True, style="yellow")
    for name, why in books.unreached.items():
        echo(f"Not asked, because {why}: the witness {name}", stderr=True, style="yellow")
    if books.signed_from is None:
        echo(
            "An earlier version wrote these books: `sottovoce ledger upgrade` before anything is "
            "written.",
            stderr=True,
        )
    return session


def get_sql_ledger(session: Session) -> SqlLedger:
    """Returns the books of a session that was opened here."""
    if not isinstance(session.ledger, SqlLedger):
        raise TypeError("only books in a database are opened here")
    return session.ledger


def find_ledger_file(place: str) -> Path | None:
    """Returns the file behind an address; None for books on a server, or of a kind that is refused
    later.
    """
    if place.startswith(SQLITE) or "://" not in place:
        return Path(place.removeprefix(SQLITE))
    return None


def list_ledger_files(session: Session, place: str | None, keys: Path | None) -> list[Path]:
    """Returns the files of the books, which nothing else may be written over."""
    path = find_ledger_file(place or "")
    if path is not None:
        return [path, *(path.with_name(path.name + ending) for ending in ENDINGS)]
    if keys is None:
        folder = get_key_folder()
    else:
        folder = keys
    return [folder / (session.ledger.identity + ending) for ending in ENDINGS[:4]]


def parse_choice(option: str, word: str, meanings: Mapping[str, str]) -> Any:
    """Returns what a word of the command line means."""
    if word not in meanings:
        raise InvalidParameter(
            f"{option} does not know this word.", f"It knows: {', '.join(meanings)}.", "Choose one."
        )
    return meanings[word]


def read_grants(
    path: str, person: str | None, amount: str | None, text: TextFormat = DEFAULT_TEXT_FORMAT
) -> dict[str, float]:
    """Reads who allows how much; a person in several lines must say the same in all of them."""
    there = get_engine("arrow").open_table(path, text=text).columns()
    person = _find_column(there, person, PERSON_COLUMNS)
    amount = _find_column(there, amount, AMOUNT_COLUMNS)
    allocated = PAYMENT_COLUMN in there and PAYMENT_COLUMN not in (person, amount)
    grants: dict[str, float] = {}
    for names, amounts in _read_lines(path, person, amount, text):
        for name, given in zip(names, amounts, strict=True):
            if allocated:
                name = _strip_guard(name)
            if name in grants and grants[name] != given:
                raise InconsistentBudget(
                    "A person grants two different amounts.", "", "Keep one line a person."
                )
            grants[name] = given
    if not grants:
        raise TooFewRows(
            "Nobody grants anything: the table has no lines.", "", "Write a line for each person."
        )
    return grants


def _find_column(there: Mapping[str, str], said: str | None, usual: tuple[str, ...]) -> str:
    if said is None:
        names = usual
    else:
        names = (said,)
    found = [name for name in names if name in there]
    if len(found) != 1:
        raise MissingColumn(
            f"The table has no column {' or '.join(map(repr, names))}, or has both.",
            f"Its columns are: {', '.join(there)}.",
            "Name one with --person-column and --budget-column.",
        )
    return found[0]


@dataclass(frozen=True)
class _GrantCollector:
    """The kernel that keeps names and amounts."""

    columns: tuple[str, str]

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        person, amount = (batch.column(name) for name in self.columns)
        return [(_read_names(person), as_floats(amount).tolist())]


def _read_names(column: Any) -> list[str]:
    if column.null_count:
        raise UnknownPeople(
            "A grant names nobody.", "Every line says who grants.", "Fill the column of people in."
        )
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not any(
        kind(column.type)
        for kind in (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)
    ):
        raise _unreadable_grant_error()
    names: list[str] = column.cast(pa.string()).to_pylist()
    return names


def _read_lines(path: str, person: str, amount: str, text: TextFormat) -> list[Any]:
    if person == amount:
        raise InvalidParameter(
            "One column is named for two purposes.", "", "Name different columns."
        )
    try:
        return (
            get_engine("arrow")
            .open_table(path, (amount,), text=text)
            .fold(_GrantCollector((person, amount)))
        )
    except InvalidData:
        pass  # raised below, in the words of grants
    raise _unreadable_grant_error()


def _unreadable_grant_error() -> WrongType:
    return WrongType(
        "A line cannot be read as a grant.",
        "People are text or whole numbers, and amounts numbers with a point, such as 0.5.",
        "Check both columns; for decimal commas pass --decimal , and for text that is not UTF-8 "
        "--encoding.",
    )


def _strip_guard(name: str) -> str:
    """Takes off the apostrophe that keeps a spreadsheet from reading a seller's name as a
    formula.
    """
    if name.startswith("'") and guard_formula(name[1:]) == name:
        return name[1:]
    return name


def export_lines(books: SqlLedger) -> Iterator[str]:
    """Returns the books as lines of JSON: each entry, and after it its lines as they were
    hashed.
    """
    yield json.dumps({"format": EXPORT_FORMAT, "ledger": books.identity, "key": books.public_key})
    for entry in books.entries():
        told = {**entry.__dict__, "root": entry.root.hex(), "digest": entry.digest.hex()}
        signature = books.signature(entry.number)
        if signature is not None:
            told["signature"] = signature
        yield json.dumps({"entry": told}, ensure_ascii=False)
        if entry.lines:
            packed = books.lines(entry.number)
            raw = packed.tobytes().hex()
            size = 2 * packed.itemsize
            yield from (
                f'{{"line": "{raw[start : start + size]}"}}' for start in range(0, len(raw), size)
            )
