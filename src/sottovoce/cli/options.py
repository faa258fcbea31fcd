# SPDX-License-Identifier: Apache-2.0
"""What a command is told: options of questions, and the ledger that they name.

`plan` and `release` take the same options. Where a ledger is asked for and none is there, none is
made: a slip of the pen must not open a new one, in which everybody's budget would be whole again.
An address is never repeated, because it may hold a password; one in the command line, which
everybody on the machine can read while the command runs, is refused.

Nor can others read the memory of a running command: no core file is written, and on Linux no other
process of this user, a debugger included, can look into it. What is written to swap is not
covered: Python and the libraries under it copy what they work on, so memory cannot be pinned piece
by piece. Encrypt the swap, or have none.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.console import AnswerOptions, echo
from sottovoce.errors import (
    InconsistentBudget,
    InvalidData,
    InvalidParameter,
    MissingColumn,
    TooFewRows,
    UnknownPeople,
    WrongType,
)

if TYPE_CHECKING:
    from sottovoce.data.engine import TextFormat
    from sottovoce.data.source import DataSource
    from sottovoce.ledger import Sale
    from sottovoce.ledgers.sql_ledger import SqlLedger
    from sottovoce.session import Session

#: The number of PR_SET_DUMPABLE in linux/prctl.h.
SET_DUMPABLE = 4
#: The names under which PostgreSQL takes a password from the end of an address.
PASSWORDS = frozenset({"password", "sslpassword"})


def close_memory() -> None:
    """Keeps the memory of this process from core files and, on Linux, from other processes of the
    same user.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        # The limit does not hold where core files go to a program, as on most systems today; this
        # does.
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(SET_DUMPABLE, 0, 0, 0, 0)


def refuse_open_password(address: str) -> None:
    """Refuses a password in the command line, where everybody on the machine can read it."""
    if any(address in word for word in sys.argv) and _has_password(address):
        raise InvalidParameter(
            "An address in the command line holds a password.",
            "Everybody on this machine can read command lines.",
            "Change the password, and keep the new one in PostgreSQL's file of passwords "
            "(~/.pgpass); or set the whole address of the ledger as SOTTOVOCE_LEDGER.",
            parameter="ledger",
        )


def _has_password(address: str) -> bool:
    from urllib.parse import parse_qs, urlsplit

    try:
        parts = urlsplit(address)
        return parts.password is not None or not PASSWORDS.isdisjoint(parse_qs(parts.query))
    except ValueError:  # not an address that anybody could use
        return False


Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="CSV or Parquet: a file, a folder, or a pattern in quotes; or base.duckdb#table.",
    ),
]
ColumnName = Annotated[
    str | None, typer.Option("--column", help="The column of numbers that the question is about.")
]
Limits = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--bounds",
        metavar="LOW HIGH",
        help="The lowest and highest possible value, from public knowledge, never from the data.",
    ),
]
BudgetColumn = Annotated[
    str | None, typer.Option(help="The column with everybody's own ε (or tier, with a schema).")
]
BudgetsTable = Annotated[
    str | None,
    typer.Option(
        "--budgets",
        metavar="TABLE",
        help="A table of its own with a column of people, called as in TABLE or person or seller, "
        "and one of their budgets (epsilon, or as --budget-column says): also the allocation of "
        "`sottovoce market`.",
    ),
]
Unknown = Annotated[
    str | None,
    typer.Option(
        help="With --budgets or --spend-left: whether people without a line or an account, or with "
        "ε = 0, are left out (leave-out) or the release is refused (refuse). If not given: left "
        "out where the table is the allocation of a market, and refused elsewhere."
    ),
]
SpendLeft = Annotated[
    bool,
    typer.Option(
        "--spend-left",
        help="With --ledger: spend all that each has left there, such as all that was sold, "
        "instead of budgets from a table.",
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="What reads the table: arrow, duckdb, spark or dask. If not given, what suits it.",
    ),
]
Epsilon = Annotated[float | None, typer.Option(help="One ε for everybody, instead of a column.")]
PersonColumn = Annotated[
    str | None,
    typer.Option(
        help="The column that says whose row it is; without it, here or in the schema, each row is "
        "a person. The word rows asks for that although the schema names one."
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema", help="A TOML file with what is not said here: see `sottovoce schema draft`."
    ),
]
Missing = Annotated[
    float | None,
    typer.Option(
        help="A public constant that stands for missing values; without it they are refused."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(help="The name of the release in the ledger: one key, one release, for ever."),
]
Ledger = Annotated[
    str | None,
    typer.Option(
        metavar="LEDGER",
        envvar="SOTTOVOCE_LEDGER",
        help="The ledger: a file, sqlite:///… or postgresql://….",
    ),
]
Keys = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="For a ledger in PostgreSQL: the folder of its key and heads."
    ),
]
Short = Annotated[
    str,
    typer.Option(
        help="With --ledger, if somebody has not enough left: leave-out (of this release), or "
        "refuse it."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="The file to write. In another format than JSON, the release itself is written "
        "beside it, as .json."
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="How the answer is written: json (the release itself), csv, md or html. If not given, "
        "what the ending of --out says.",
    ),
]
TableLabel = Annotated[
    str | None,
    typer.Option(
        help="What the table is called in the release; if not given, its file without folder and "
        "ending."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")]
PublicTable = Annotated[
    str | None,
    typer.Option(
        "--public",
        metavar="TABLE",
        help="A table with the same features and label, of people who need no protection: it helps "
        "to scale and to choose λ, and tells the error to expect.",
    ),
]
Described = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        help="A TOML file with label, features, people and budgets: see `sottovoce schema draft`. "
        "Needed.",
    ),
]

Delimiter = Annotated[
    str | None,
    typer.Option(
        help="What stands between cells of text files, such as ; or tab; if not given, the header "
        "tells."
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="The encoding of text files, such as latin-1; if not given, UTF-8."),
]
Decimal = Annotated[
    str, typer.Option(metavar="SIGN", help="The sign before decimals in text files: . or ,")
]


def make_text_format(
    delimiter: Delimiter = None, encoding: Encoding = None, decimal: Decimal = "."
) -> Any:
    """Returns how text files are written, as a TextFormat."""
    from sottovoce.data.engine import TextFormat

    return TextFormat.of_options(delimiter, encoding, decimal)


def add_text_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options that say how text files are written, and hands it what they say
    as ``text``.
    """
    options = inspect.signature(make_text_format, eval_str=True).parameters

    @wraps(command)
    def reading(**given: Any) -> None:
        command(text=make_text_format(**{name: given.pop(name) for name in options}), **given)

    own = inspect.signature(command, eval_str=True)
    others = [parameter for name, parameter in own.parameters.items() if name != "text"]
    signature = own.replace(parameters=[*others, *options.values()])
    reading.__signature__ = signature  # type: ignore[attr-defined]  # typer reads it
    return reading


@dataclass(frozen=True)
class LedgerOptions:
    """Where a release is booked, and what becomes of people who have not enough left."""

    place: str
    keys: Path | None = None
    short: str = "leave-out"

    def refuse_unbookable(self, said: DataSource, answer: AnswerOptions, *, key: bool) -> None:
        """Refuses rows that are nobody's, and a release without a key, before a table is opened."""
        from sottovoce.errors import InvalidParameter

        if key and not answer.key:
            raise InvalidParameter(
                "A release from a ledger has no key.",
                "A key stands for one release, for ever; asked again, it gives the same bytes "
                "and costs nothing.",
                "Pass --key, such as --key mean-of-May.",
            )
        if said.person is None:
            raise InvalidParameter(
                "Rows do not say whose they are.",
                "Accounts in the ledger belong to people.",
                "Pass --person-column, or name it in the schema.",
            )


EXPORT_FORMAT = "sottovoce.ledger/1"
SHORT_POLICIES = {"leave-out": "leave out", "refuse": "refuse"}
UNKNOWN_POLICIES = {"leave-out": "leave-out", "refuse": "refuse"}
AMOUNT_COLUMNS = ("epsilon",)
#: Decimals of a payment beyond these are no money.
MAX_DECIMALS = 15
#: What the ledger, the page and SQLite keep beside the file of the books; the first four also for
#: books on a server.
ENDINGS = (".key", ".heads", ".codes", ".witnesses", "-wal", "-shm")


def open_session(place: str | None, keys: Path | None, short: str = "leave-out") -> Session:
    """Returns a session on books that are there; says so if they are sealed."""
    from sottovoce.ledgers import open_ledger
    from sottovoce.session import Session

    if place is None:
        raise InvalidParameter(
            "No ledger is named.",
            "",
            "Pass --ledger, or set SOTTOVOCE_LEDGER; `sottovoce ledger init` begins a new ledger.",
        )
    refuse_open_password(place)
    how = parse_choice("--short", short, SHORT_POLICIES)
    session = Session(ledger=open_ledger(place, keys, begin=False), short=how)
    books = get_sql_ledger(session)
    if books.sealed:
        echo(f"This ledger is sealed: {books.why_sealed}", stderr=True, style="yellow")
    for name, why in books.unreached.items():
        echo(f"Not asked, because {why}: the witness {name}", stderr=True, style="yellow")
    if books.signed_from is None:
        echo(
            "An earlier version wrote this ledger: `sottovoce ledger upgrade` before anything is "
            "written.",
            stderr=True,
        )
    return session


def get_sql_ledger(session: Session) -> SqlLedger:
    """Returns the books of a session that was opened here."""
    from sottovoce.ledgers.sql_ledger import SqlLedger

    if not isinstance(session.ledger, SqlLedger):
        raise TypeError("only a ledger in a database is opened here")
    return session.ledger


def find_ledger_file(place: str) -> Path | None:
    """Returns the file behind an address; None for books on a server, or of a kind that is refused
    later.
    """
    from sottovoce.ledgers import SQLITE

    if place.startswith(SQLITE) or "://" not in place:
        return Path(place.removeprefix(SQLITE))
    return None


def list_ledger_files(session: Session, place: str | None, keys: Path | None) -> list[Path]:
    """Returns the files of the books, which nothing else may be written over."""
    from sottovoce.ledgers import get_key_folder

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


def refuse_stray_unknown(
    unknown: str | None, budgets: str | None, spend_left: bool, ledger: str | None
) -> None:
    """Refuses --unknown where everybody's budget is in the table, and --spend-left without a
    ledger.
    """
    if spend_left and ledger is None:
        raise InvalidParameter(
            "All that is left is to be spent, and no ledger says how much that is.",
            "",
            "Pass --ledger, or budgets in place of --spend-left.",
            parameter="spend_left",
        )
    if unknown is not None and budgets is None and not spend_left:
        raise InvalidParameter(
            "--unknown says what becomes of people without a budget, and none can be missing.",
            "Budgets of the table itself, or one ε for all, name everybody.",
            "Leave it out, or pass --budgets or --spend-left.",
            parameter="unknown",
        )


def read_grants(
    path: str, person: str | None, amount: str | None, text: TextFormat | None = None
) -> dict[str, float]:
    """Reads who allows how much; a person in several lines must say the same in all of them."""
    from sottovoce.arrays import strip_formula_guard
    from sottovoce.data.budget_table import PAYMENT_COLUMN, PERSON_COLUMNS
    from sottovoce.data.engine import DEFAULT_TEXT_FORMAT, get_engine

    text = text or DEFAULT_TEXT_FORMAT
    there = get_engine("arrow").open_table(path, text=text).columns()
    person = _find_column(there, person, PERSON_COLUMNS)
    amount = _find_column(there, amount, AMOUNT_COLUMNS)
    allocated = PAYMENT_COLUMN in there and PAYMENT_COLUMN not in (person, amount)
    grants: dict[str, float] = {}
    for names, amounts in _read_lines(path, text, person, amount):
        for name, given in zip(names, amounts, strict=True):
            if allocated:
                name = strip_formula_guard(name)
            if name in grants and grants[name] != given:
                raise InconsistentBudget(
                    "A person grants two different amounts.",
                    "",
                    "Keep one line a person.",
                    parameter="grants",
                )
            grants[name] = given
    if not grants:
        raise TooFewRows(
            "Nobody grants anything: the table has no lines.",
            "",
            "Write a line for each person.",
            parameter="grants",
        )
    return grants


def read_sale(
    path: str, person: str | None, amount: str | None, money: str, text: TextFormat | None = None
) -> Sale:
    """Reads who has sold how much for what: the allocation of a market, one line a seller."""
    from sottovoce.arrays import strip_formula_guard
    from sottovoce.budgets import SOLD_PROMISE
    from sottovoce.data.budget_table import PAYMENT_COLUMN, PERSON_COLUMNS
    from sottovoce.data.engine import DEFAULT_TEXT_FORMAT, get_engine
    from sottovoce.errors import DuplicatePeople
    from sottovoce.ledger import Amounts, Sale
    from sottovoce.units import round_down

    text = text or DEFAULT_TEXT_FORMAT
    there = get_engine("arrow").open_table(path, text=text).columns()
    person = _find_column(there, person, PERSON_COLUMNS)
    amount = _find_column(there, amount, AMOUNT_COLUMNS)
    payment = _find_column(there, None, (PAYMENT_COLUMN,))
    lines = [
        (strip_formula_guard(name), sold, paid)
        for names, amounts, payments in _read_lines(path, text, person, amount, payment)
        for name, sold, paid in zip(names, amounts, payments, strict=True)
    ]
    names = [name for name, _, _ in lines]
    if len(set(names)) < len(names):
        raise DuplicatePeople(
            "A seller is listed twice.",
            "Everybody sells once in a sale.",
            "Keep one line a seller.",
            parameter="grants",
        )
    units = round_down([sold for _, sold, _ in lines], zero_allowed=True)
    coins, coin = _count_coins([paid for _, _, paid in lines])
    return Sale(Amounts(names, units, ", ".join(SOLD_PROMISE)), coins, coin, money)


def _count_coins(payments: list[float]) -> tuple[Any, Any]:
    """Returns payments as whole numbers of the smallest coin that they are written in, and it."""
    import math
    from decimal import Decimal
    from fractions import Fraction

    import numpy as np

    if not all(map(math.isfinite, payments)):
        raise _unreadable_grant_error()
    exact = [Decimal(repr(paid)).normalize() for paid in payments]
    places = max((max(0, -int(paid.as_tuple().exponent)) for paid in exact), default=0)
    coins = [int(paid.scaleb(places)) for paid in exact]
    if places > MAX_DECIMALS or any(abs(count) > 10**MAX_DECIMALS for count in coins):
        raise InvalidParameter(
            "A payment has too many digits.",
            f"Payments are whole numbers of a coin, of at most {MAX_DECIMALS} digits.",
            "Make the market with a larger --coin, such as 0.01.",
            parameter="payments",
        )
    return np.array(coins, dtype=np.int64), Fraction(1, 10**places)


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

    columns: tuple[str, ...]

    def zero(self) -> list[Any]:
        return []

    def __call__(self, batch: Any) -> list[Any]:
        from sottovoce.data.engine import as_floats

        person, *amounts = (batch.column(name) for name in self.columns)
        return [(_read_names(person), *(as_floats(amount).tolist() for amount in amounts))]


def _read_names(column: Any) -> list[str]:
    import pyarrow as pa

    if column.null_count:
        raise UnknownPeople(
            "A grant names nobody.",
            "Every line says who grants.",
            "Fill the column of people in.",
            parameter="grants",
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


def _read_lines(path: str, text: TextFormat, person: str, *amounts: str) -> list[Any]:
    from sottovoce.data.engine import get_engine

    if len({person, *amounts}) <= len(amounts):
        raise InvalidParameter(
            "One column is named for two purposes.",
            "",
            "Name different columns.",
            parameter="budget",
        )
    try:
        return (
            get_engine("arrow")
            .open_table(path, amounts, text=text)
            .fold(_GrantCollector((person, *amounts)))
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
        parameter="grants",
    )


def export_lines(books: SqlLedger) -> Iterator[str]:
    """Returns the ledger as lines of JSON: each entry, and then its lines as hashed."""
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
