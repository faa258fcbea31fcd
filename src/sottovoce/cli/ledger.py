# SPDX-License-Identifier: Apache-2.0
"""`sottovoce ledger`: books of everybody's budget, from the first grant to a statement that anybody
can check.

Books are made by `init` and by nothing else. What is said about entries is public; what is said
about a person is for that person and the curator.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli import options
from sottovoce.cli.console import echo, exit_on_error, get_console, strip_control_characters

if TYPE_CHECKING:
    from sottovoce.ledger import Entry, Sale
    from sottovoce.session import Session

#: The words of the command line for what the library calls otherwise.
CURRENCIES = {"epsilon": "pure epsilon", "rho": "zCDP rho", "epsilon-delta": "epsilon, delta"}
NEIGHBOURS = {"replace": "replace", "labels": "replace labels", "zero-out": "zero out"}
#: Digits of a digest that tell it from others, where it is not to be copied.
DIGEST_DIGITS = 16

Person = Annotated[
    str, typer.Option("--person", help="The person, by the name that the tables use.")
]

ledger_app = typer.Typer(no_args_is_help=True)
witness_app = typer.Typer(no_args_is_help=True)
ledger_app.add_typer(witness_app, name="witness")

Address = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS", help="file:PATH, log:FOLDER, sqlite:///PATH or postgresql://…."
    ),
]


@ledger_app.callback()
def ledger() -> None:
    """Keep books of everybody's budget, and prove to each what was spent."""
    from sottovoce.cli.options import close_memory

    close_memory()  # it holds the key


@ledger_app.command()
@exit_on_error()
def init(
    place: Annotated[
        str,
        typer.Argument(
            metavar="LEDGER",
            envvar="SOTTOVOCE_LEDGER",
            help="A file, sqlite:///… or postgresql://….",
        ),
    ],
    keys: options.Keys = None,
) -> None:
    """Begin new books."""
    from sottovoce.cli.options import list_ledger_files, refuse_open_password
    from sottovoce.errors import InvalidParameter
    from sottovoce.ledgers import open_ledger
    from sottovoce.session import Session

    refuse_open_password(place)
    session = Session(ledger=open_ledger(place, keys, begin=True))
    if len(list(session.ledger.entries())) > 1:
        raise InvalidParameter(
            "There is a ledger at this place already.",
            "",
            "Go on with them, or name another place.",
            parameter="place",
        )
    names = ", ".join(
        path.name
        for path in list_ledger_files(session, place, keys)
        if path.suffix in (".key", ".heads")
    )
    echo(f"Ledger {session.ledger.identity}")
    echo(
        f"Beside it are, or will be: {names}. Without the key nobody's account can be found: "
        "keep a copy of it, but "
        "not with copies of the ledger. The heads tell whether somebody puts an older ledger in "
        "place.",
        stderr=True,
    )


@ledger_app.command()
@exit_on_error()
@options.add_text_options
def grant(
    grants: Annotated[
        str,
        typer.Argument(
            metavar="GRANTS", help="CSV or Parquet with the columns person (or seller) and epsilon."
        ),
    ],
    text: Any,
    ledger: options.Ledger = None,
    keys: options.Keys = None,
    person_column: Annotated[
        str | None, typer.Option(help="The column of people, if it has another name.")
    ] = None,
    budget_column: Annotated[
        str | None, typer.Option(help="The column of amounts, if it has another name.")
    ] = None,
    currency: Annotated[
        str, typer.Option(help="What amounts count: epsilon, rho, or epsilon-delta.")
    ] = "epsilon",
    neighbours: Annotated[
        str, typer.Option(help="The account: replace, labels, or zero-out.")
    ] = "replace",
    delta: Annotated[
        float | None, typer.Option(help="With epsilon-delta: the δ that each allows in all.")
    ] = None,
    sale: Annotated[
        bool,
        typer.Option(
            "--sale",
            help="GRANTS is the allocation of a market: what was sold is added to what each "
            "allows, and what was paid (the column payment) is written down.",
        ),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            help="With --sale: what the sale is called; if not given, a name that follows from it."
        ),
    ] = None,
    money: Annotated[
        str, typer.Option(help="With --sale: what the money is called, such as EUR.")
    ] = "",
) -> None:
    """Set what each person allows in all in one account, that of --currency and --neighbours.

    It is the total and not an addition, unless it is a sale (--sale). Lowered below what is spent,
    it undoes nothing and freezes the account.
    """
    from sottovoce.cli.options import open_session, parse_choice, read_grants, read_sale
    from sottovoce.units import format_count

    counted = parse_choice("--currency", currency, CURRENCIES)
    related = parse_choice("--neighbours", neighbours, NEIGHBOURS)
    _refuse_stray_delta(counted, delta)
    _refuse_stray_sale(sale, (counted, related), key, money)
    session = open_session(ledger, keys)
    if sale:
        _record_sale(session, read_sale(grants, person_column, budget_column, money, text), key)
        return
    amounts = read_grants(grants, person_column, budget_column, text)
    session.grant(amounts, currency=counted, neighbours=related, delta=delta)
    entry = _find_last_entry(session)
    echo(
        f"Granted by {format_count(len(amounts), 'person')}: entry {entry.number}, "
        f"head {entry.digest.hex()}."
    )


@ledger_app.command()
@exit_on_error()
def balance(person: Person, ledger: options.Ledger = None, keys: options.Keys = None) -> None:
    """Show what a person allows, has spent and has left, account by account."""
    from sottovoce.cli.console import make_table
    from sottovoce.cli.options import open_session
    from sottovoce.ledgers.statement import sum_accounts
    from sottovoce.report.ledger import explain_sales, make_account_cells

    lines = open_session(ledger, keys).history(person)
    held = sum_accounts(lines)
    echo(f"{person}, with all their rows:")
    get_console().print(
        make_table(
            ["account", "allowed in all", "spent", "left"],
            list(map(make_account_cells, held)),
            words=1,
        )
    )
    for sentence in explain_sales(lines):
        echo(strip_control_characters(sentence))


@ledger_app.command()
@exit_on_error()
def history(
    person: Annotated[
        str | None, typer.Option(help="One person; without it, all entries, which name nobody.")
    ] = None,
    ledger: options.Ledger = None,
    keys: options.Keys = None,
) -> None:
    """Show what was written: about one person, or all entries."""
    from sottovoce.cli.console import make_table
    from sottovoce.cli.options import open_session
    from sottovoce.report.ledger import make_line_cells

    session = open_session(ledger, keys)
    if person is not None:
        lines = [
            list(map(strip_control_characters, make_line_cells(line)))
            for line in session.history(person)
        ]
        get_console().print(make_table(["entry", "what was written", "amount"], lines, words=2))
        return
    heads = ["entry", "when", "what", "key", "digest", "lines"]
    get_console().print(
        make_table(heads, [_make_entry_cells(entry) for entry in session.ledger.entries()], words=5)
    )


@ledger_app.command()
@exit_on_error()
def verify(
    releases: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RELEASE]...", help="Releases that must be in this ledger."),
    ] = None,
    ledger: options.Ledger = None,
    keys: options.Keys = None,
) -> None:
    """Compute every balance and digest again, and look for releases in the books.

    A release whose entry is not in the books seals them: they are older than it, or not the same.
    """
    from sottovoce.cli.console import load_release
    from sottovoce.cli.options import get_sql_ledger, open_session
    from sottovoce.units import format_count

    session = open_session(ledger, keys)
    files = releases or []
    session.verify(*map(load_release, files))
    for path in files:
        _refuse_other_bytes(session, path)
    entry = _find_last_entry(session)
    also = ""
    if len(files) == 1:
        also = ", and the release is in it"
    elif files:
        also = f", and all {len(files):,} releases are in it"
    entries = format_count(entry.number + 1, "entry")
    echo(f"The ledger adds up{also}: {entries}, head {entry.digest.hex()}.")
    books = get_sql_ledger(session)
    if books.witnesses:
        reached = len(books.witnesses) - len(books.unreached)
        echo(f"{reached} of {len(books.witnesses)} witnesses were asked, and know no other copy.")
    if books.signed_from:
        echo(
            f"Entries before {books.signed_from} were not signed when they were made (`ledger "
            "upgrade`).",
            stderr=True,
        )


@ledger_app.command()
@exit_on_error()
def export(
    out: Annotated[Path, typer.Option(help="The file of JSON lines to write.")],
    force: options.Force = False,
    ledger: options.Ledger = None,
    keys: options.Keys = None,
) -> None:
    """Write all entries and lines for whoever wants to check them; people are digests, without
    names.
    """
    from sottovoce.cli.console import open_unfinished, refuse_unwritable
    from sottovoce.cli.options import export_lines, get_sql_ledger, list_ledger_files, open_session

    session = open_session(ledger, keys)
    refuse_unwritable(out, *list_ledger_files(session, ledger, keys), force=force)
    with open_unfinished(out, force=force) as file:
        for line in export_lines(get_sql_ledger(session)):
            file.content.write(line.encode() + b"\n")
    echo(
        f"Written to {file.path}. Amounts are in it, under digests that only the ledger's key "
        "can tell from names.",
        stderr=True,
    )


@ledger_app.command()
@exit_on_error()
def statement(
    person: Person,
    out: Annotated[Path, typer.Option(help="The HTML page to write.")],
    force: options.Force = False,
    ledger: options.Ledger = None,
    keys: options.Keys = None,
) -> None:
    """Write a page for one person: all that the books say about them, with a proof that anybody can
    check.
    """
    from sottovoce.cli.console import refuse_unwritable, write_file
    from sottovoce.cli.options import get_sql_ledger, list_ledger_files, open_session
    from sottovoce.ledgers.statement import Statement
    from sottovoce.report.ledger import make_statement_page

    session = open_session(ledger, keys)
    refuse_unwritable(out, *list_ledger_files(session, ledger, keys), force=force)
    made = Statement.of(get_sql_ledger(session), person)
    out = write_file(out, make_statement_page(made), force=force)
    echo(f"Head {made.head}")
    echo(f"Written to {out}: about one person, and for that person.", stderr=True)


@ledger_app.command()
@exit_on_error()
def check(
    statement_file: Annotated[
        Path, typer.Argument(metavar="STATEMENT", help="A page of `sottovoce ledger statement`.")
    ],
    head: Annotated[
        str | None,
        typer.Option(help="A head that the curator has published, 64 hexadecimal digits."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="The public key that the curator has published, 64 hexadecimal digits."),
    ] = None,
) -> None:
    """Check a statement against a published head or the public key, without the books and their
    secret.

    What came after that head was published is not shown, because nothing confirms it yet. The
    public key alone confirms everything up to the last entry.
    """
    from sottovoce.cli.console import make_table
    from sottovoce.errors import InvalidParameter
    from sottovoce.ledgers.statement import sum_accounts
    from sottovoce.report.ledger import make_account_cells, read_statement

    if head is None and key is None:
        raise InvalidParameter(
            "There is nothing to check the statement against.",
            "It must lead to a head, or be signed with a key, that the curator has published.",
            "Pass --head, --key or both.",
        )
    made = read_statement(_read_text(statement_file))
    if key is not None:
        made.refuse_other_key(key)
    last = made.entries[-1].number
    if head is None:
        number = last
    else:
        number = made.confirm_head(head)
    if head is None:
        echo(
            f"This statement holds: the ledger has signed entry {last}, which confirms what came "
            "before it."
        )
    else:
        echo(
            f"This statement holds: the head is that of entry {number}, which confirms what came "
            "before it."
        )
    if number < last:
        echo(
            f"Not confirmed by this head, because they came later: entries {number + 1} to {last}.",
            style="yellow",
        )
    rows = [
        make_account_cells(account)
        for account in sum_accounts(line for line in made.lines() if line.number <= number)
    ]
    get_console().print(make_table(["account", "allowed in all", "spent", "left"], rows, words=1))


@ledger_app.command()
@exit_on_error()
def key(ledger: options.Ledger = None, keys: options.Keys = None) -> None:
    """Print the public key with which anybody can check what these books have signed; publish
    it.
    """
    from sottovoce.cli.options import get_sql_ledger, open_session
    from sottovoce.ledgers.keyfile import make_fingerprint, read_key

    public = get_sql_ledger(open_session(ledger, keys)).public_key
    echo(public)
    echo(f"Fingerprint {make_fingerprint(read_key(public))}", stderr=True)


@ledger_app.command()
@exit_on_error()
def check_release(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release, as JSON.")],
    key: Annotated[
        str | None,
        typer.Option(help="The public key that the curator has published, 64 hexadecimal digits."),
    ] = None,
) -> None:
    """Check the signature of a release, without the books and their secret.

    Without --key a release vouches for itself alone: compare the fingerprint with the one that was
    published.
    """
    from sottovoce.cli.console import load_release
    from sottovoce.ledgers import keyfile

    load_release(release)
    public = keyfile.check_release(_read_text(release), key)
    echo(
        "This release is as it was signed. Fingerprint of the key: "
        f"{keyfile.make_fingerprint(public)}."
    )
    if key is None:
        echo(
            "Compare it with the fingerprint that the curator has published.",
            stderr=True,
            style="yellow",
        )


@ledger_app.command()
@exit_on_error()
def upgrade(ledger: options.Ledger = None, keys: options.Keys = None) -> None:
    """Begin to sign books that an earlier version has written; they are verified first."""
    from sottovoce.cli.options import get_sql_ledger, open_session

    session = open_session(ledger, keys)
    first = get_sql_ledger(session).upgrade()
    entry = _find_last_entry(session)
    echo(f"Upgraded: signed from entry {first}, head {entry.digest.hex()}.")
    echo(
        f"Entries 0 to {first - 1} add up and hold together, but were not signed when they were "
        "made. Whoever could write to the database before this upgrade could have written them "
        "anew, with grants and charges as they liked; only heads and certificates that were "
        "published before can tell. From now on nobody can who has not the key.",
        stderr=True,
    )


@ledger_app.command()
@exit_on_error()
def roles(
    reader: Annotated[str, typer.Option(help="The role that sees balances and verifies.")],
    granter: Annotated[
        str, typer.Option(help="The role that writes grants, and what was spent outside.")
    ],
    writer: Annotated[str, typer.Option(help="The role that releases.")],
) -> None:
    """Print the SQL that gives three roles of PostgreSQL what each needs in the books, and nothing
    else.
    """
    from sottovoce.ledgers.postgres import write_role_sql

    for line in write_role_sql(reader, granter, writer).splitlines():
        echo(line, whole=True)


@ledger_app.command()
@exit_on_error()
def unseal(
    reason: Annotated[
        str, typer.Option(help="Why this ledger is good, or the best there is; it is entered.")
    ],
    ledger: options.Ledger = None,
    keys: options.Keys = None,
) -> None:
    """Go on with sealed books. Then lower the grants by what people may have spent, before anything
    is released.
    """
    from sottovoce.cli.options import get_sql_ledger, open_session
    from sottovoce.errors import InvalidParameter

    session = open_session(ledger, keys)
    if not get_sql_ledger(session).sealed or not reason.strip():
        raise InvalidParameter(
            "This ledger is not sealed, or there is no reason.",
            "",
            "Pass --reason for a sealed ledger.",
        )
    get_sql_ledger(session).unseal(reason)
    entry = _find_last_entry(session)
    echo(f"Unsealed: entry {entry.number}, head {entry.digest.hex()}.")


@witness_app.callback()
def witness() -> None:
    """Let others keep the heads of the books, so that no copy of them is spent again."""


@witness_app.command()
@exit_on_error()
def add(address: Address, ledger: options.Ledger = None, keys: options.Keys = None) -> None:
    """Add a witness: a file on a share, a second database, or an append-only log."""
    from sottovoce.cli.options import get_sql_ledger, open_session, refuse_open_password

    refuse_open_password(address)
    books = get_sql_ledger(open_session(ledger, keys))
    books.add_witness(address)
    echo(
        f"Heads are kept by {len(books.witnesses)} from now on; sessions that are open learn of "
        "it when they open next."
    )


@witness_app.command("list")
@exit_on_error()
def list_(ledger: options.Ledger = None, keys: options.Keys = None) -> None:
    """List the witnesses, without passwords."""
    from sottovoce.cli.options import get_sql_ledger, open_session

    for number, name in enumerate(get_sql_ledger(open_session(ledger, keys)).witnesses, 1):
        echo(f"{number} {name}")


@witness_app.command()
@exit_on_error()
def remove(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="The address, or its number in the list.")
    ],
    ledger: options.Ledger = None,
    keys: options.Keys = None,
) -> None:
    """Go on without a witness; what it holds stays there."""
    from sottovoce.cli.options import get_sql_ledger, open_session

    books = get_sql_ledger(open_session(ledger, keys))
    books.remove_witness(address)
    echo(f"Heads are kept by {len(books.witnesses)} from now on.")


@witness_app.command("check")
@exit_on_error()
def check_all(ledger: options.Ledger = None, keys: options.Keys = None) -> None:
    """Ask every witness for all that it holds; fails if the books are sealed by it, or one could
    not be asked.
    """
    from sottovoce.cli.options import get_sql_ledger, open_session
    from sottovoce.errors import LedgerUnavailable
    from sottovoce.ledgers.sql_ledger import sealed_error

    books = get_sql_ledger(open_session(ledger, keys))
    told = books.check_witnesses()
    for name, said in told.items():
        echo(f"{name}: {said}")
    if books.sealed:
        raise sealed_error(books.why_sealed)
    if books.unreached:
        raise LedgerUnavailable(
            "Not every witness could be asked.", "", "Make it reachable, or remove it."
        )


def _find_last_entry(session: Session) -> Entry:
    return list(session.ledger.entries())[-1]


def _make_entry_cells(entry: Entry) -> list[str]:
    at = entry.at.replace("T", " ").removesuffix("+00:00")
    return [
        str(entry.number),
        at,
        entry.what,
        strip_control_characters(entry.key),
        entry.digest.hex()[:DIGEST_DIGITS],
        f"{entry.lines:,}",
    ]


def _refuse_other_bytes(session: Session, path: Path) -> None:
    """Refuses a release that was changed after it was published: its certificate alone does not
    tell.
    """
    from sottovoce.cli.console import load_release
    from sottovoce.errors import InvalidRelease
    from sottovoce.ledgers.hash_chain import digest_text

    number = (load_release(path).certificate.ledger or {})["entry"]
    entries = list(session.ledger.entries())
    roots = [
        entry.root
        for entry in entries
        if entry.what == "publish" and entry.key == entries[number].key
    ]
    if digest_text(_read_text(path)) not in roots:
        raise InvalidRelease(
            "A release is not what was published under its entry: it was changed.",
            "The ledger holds a digest of the bytes.",
            "Ask again under its key for the bytes that were published.",
            parameter="releases",
        )


def _refuse_stray_delta(currency: str, delta: float | None) -> None:
    from sottovoce.errors import InvalidParameter

    if delta is not None and currency != CURRENCIES["epsilon-delta"]:
        raise InvalidParameter(
            "Only an account of ε at δ has a δ.",
            "",
            "Pass --currency epsilon-delta, or no --delta.",
        )


def _refuse_stray_sale(sale: bool, promise: tuple[str, str], key: str | None, money: str) -> None:
    from sottovoce.budgets import SOLD_PROMISE
    from sottovoce.errors import InvalidParameter

    if not sale and (key is not None or money):
        raise InvalidParameter(
            "A key or a money is given, and it is no sale.", "", "Pass --sale, or neither of them."
        )
    if sale and promise != SOLD_PROMISE:
        raise InvalidParameter(
            "A sale is recorded in another account than that of what was sold.",
            f"Sellers have sold {' by '.join(SOLD_PROMISE)} of all their rows, and nothing else.",
            "Leave --currency and --neighbours out.",
        )


def _record_sale(session: Session, sale: Sale, key: str | None) -> None:
    from sottovoce.report.ledger import format_money
    from sottovoce.units import format_count

    made = session.record_sale(sale, key=key)
    sold = int((sale.amounts.units > 0).sum())
    if not made.fresh:
        echo(
            f"This sale is in the ledger already, as entry {made.number}: nothing was added. For a "
            "second sale of the same amounts pass another --key.",
            stderr=True,
            style="yellow",
        )
        return
    paid = format_money(sum(sale.coins.tolist()) * sale.coin, sale.money)
    echo(
        f"Sold by {format_count(sold, 'person')} for {paid}, under the key {made.key!r}: "
        f"entry {made.number}, head {made.head}."
    )


def _read_text(path: Path) -> str:
    from sottovoce.errors import InvalidParameter

    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        pass  # raised below: the reason may quote the file
    raise InvalidParameter(
        "There is no such file, or it is not text.", "", "Check the path.", parameter="path"
    )
