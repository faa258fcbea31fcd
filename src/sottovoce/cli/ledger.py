# SPDX-License-Identifier: Apache-2.0
"""`sottovoce ledger`: books of everybody's budget, from the first grant to a statement that anybody can check.

Books are made by `init` and by nothing else. What is said about entries is public; what is said about a person is for
that person and the curator.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli import words
from sottovoce.cli.voice import console, harmless, plainly, say

if TYPE_CHECKING:
    from sottovoce.ledger import Entry
    from sottovoce.session import Session

#: The words of the command line for what the library calls otherwise.
CURRENCIES = {"epsilon": "pure epsilon", "rho": "zCDP rho", "epsilon-delta": "epsilon, delta"}
NEIGHBOURS = {"replace": "replace", "labels": "replace labels", "zero-out": "zero out"}
#: Digits of a digest that tell it from others, where it is not to be copied.
SHOWN = 16

Person = Annotated[str, typer.Option("--person", help="The person, by the name that the tables use.")]

ledger_app = typer.Typer(no_args_is_help=True)
witness_app = typer.Typer(no_args_is_help=True)
ledger_app.add_typer(witness_app, name="witness")

Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="file:PATH, log:FOLDER, sqlite:///PATH or postgresql://….")
]


@ledger_app.callback()
def ledger() -> None:
    """Keep books of everybody's budget, and prove to each what was spent."""
    from sottovoce.cli.closed import close_memory

    close_memory()  # it holds the key


@ledger_app.command()
@plainly()
def init(
    place: Annotated[
        str,
        typer.Argument(metavar="BOOKS", envvar="SOTTOVOCE_LEDGER", help="A file, sqlite:///… or postgresql://…."),
    ],
    keys: words.Keys = None,
) -> None:
    """Begin new books."""
    from sottovoce.cli.books import files_of
    from sottovoce.cli.closed import refuse_open_password
    from sottovoce.errors import InvalidParameter
    from sottovoce.ledgers.opened import opened
    from sottovoce.session import Session

    refuse_open_password(place)
    session = Session(ledger=opened(place, keys, begin=True))
    if len(list(session.ledger.entries())) > 1:
        raise InvalidParameter("There are books at this place already.", "", "Go on with them, or name another place.")
    names = ", ".join(path.name for path in files_of(session, place, keys) if path.suffix in (".key", ".heads"))
    say(f"Ledger {session.ledger.identity}")
    say(
        f"Beside it are, or will be: {names}. Without the key nobody's account can be found: keep a copy of it, but "
        "not with copies of the books. The heads tell whether somebody puts older books in place.",
        stderr=True,
    )


@ledger_app.command()
@plainly()
@words.reads_text
def grant(
    grants: Annotated[
        str, typer.Argument(metavar="GRANTS", help="CSV or Parquet with the columns person (or seller) and epsilon.")
    ],
    text: Any,
    ledger: words.Ledger = None,
    keys: words.Keys = None,
    person_column: Annotated[str | None, typer.Option(help="The column of people, if it has another name.")] = None,
    budget_column: Annotated[str | None, typer.Option(help="The column of amounts, if it has another name.")] = None,
    currency: Annotated[str, typer.Option(help="What amounts count: epsilon, rho, or epsilon-delta.")] = "epsilon",
    neighbours: Annotated[str, typer.Option(help="The account: replace, labels, or zero-out.")] = "replace",
    delta: Annotated[float | None, typer.Option(help="With epsilon-delta: the δ that each allows in all.")] = None,
) -> None:
    """Set what each person allows in all in one account, that of --currency and --neighbours.

    It is the total and not an addition. Lowered below what is spent, it undoes nothing and freezes the account.
    """
    from sottovoce.cli.books import chosen, opened, read_grants

    counted, related = chosen("--currency", currency, CURRENCIES), chosen("--neighbours", neighbours, NEIGHBOURS)
    _refuse_stray_delta(counted, delta)
    session = opened(ledger, keys)
    amounts = read_grants(grants, person_column, budget_column, text)
    session.grant(amounts, currency=counted, neighbours=related, delta=delta)
    entry = _last(session)
    say(f"Granted by {len(amounts):,} people: entry {entry.number}, head {entry.digest.hex()}.")


@ledger_app.command()
@plainly()
def balance(person: Person, ledger: words.Ledger = None, keys: words.Keys = None) -> None:
    """Show what a person allows, has spent and has left, account by account."""
    from sottovoce.cli.books import opened
    from sottovoce.cli.pictures import table
    from sottovoce.pages.statement import accounts
    from sottovoce.pages.statement_page import account_cells

    held = accounts(opened(ledger, keys).history(person))
    say(f"{person}, with all their rows:")
    console().print(table(["account", "allowed in all", "spent", "left"], list(map(account_cells, held)), words=1))


@ledger_app.command()
@plainly()
def history(
    person: Annotated[str | None, typer.Option(help="One person; without it, all entries, which name nobody.")] = None,
    ledger: words.Ledger = None,
    keys: words.Keys = None,
) -> None:
    """Show what was written: about one person, or all entries."""
    from sottovoce.cli.books import opened
    from sottovoce.cli.pictures import table
    from sottovoce.pages.statement_page import line_cells

    session = opened(ledger, keys)
    if person is not None:
        lines = [list(map(harmless, line_cells(line))) for line in session.history(person)]
        console().print(table(["entry", "what was written", "amount"], lines, words=2))
        return
    heads = ["entry", "when", "what", "key", "digest", "lines"]
    console().print(table(heads, [_entry_cells(entry) for entry in session.ledger.entries()], words=5))


@ledger_app.command()
@plainly()
def verify(
    releases: Annotated[
        list[Path] | None, typer.Argument(metavar="[RELEASE]...", help="Releases that must be in these books.")
    ] = None,
    ledger: words.Ledger = None,
    keys: words.Keys = None,
) -> None:
    """Compute every balance and digest again, and look for releases in the books.

    A release whose entry is not in the books seals them: they are older than it, or not the same.
    """
    from sottovoce.cli.books import books_of, opened
    from sottovoce.cli.files import load_release

    session, files = opened(ledger, keys), releases or []
    session.verify(*map(load_release, files))
    for path in files:
        _refuse_other_bytes(session, path)
    entry = _last(session)
    also = f", and {len(files):,} of {len(files):,} releases are in them" if files else ""
    say(f"The books add up{also}: {entry.number + 1:,} entries, head {entry.digest.hex()}.")
    books = books_of(session)
    if books.witnesses:
        reached = len(books.witnesses) - len(books.unreached)
        say(f"{reached} of {len(books.witnesses)} witnesses were asked, and know no other copy.")
    if books.signed_from:
        say(f"Entries before {books.signed_from} were not signed when they were made (`ledger upgrade`).", stderr=True)


@ledger_app.command()
@plainly()
def export(
    out: Annotated[Path, typer.Option(help="The file of JSON lines to write.")],
    force: words.Force = False,
    ledger: words.Ledger = None,
    keys: words.Keys = None,
) -> None:
    """Write all entries and lines for whoever wants to check them; people are digests, without names."""
    from sottovoce.cli.books import books_of, exported, files_of, opened
    from sottovoce.cli.files import refuse_unwritable, writing

    session = opened(ledger, keys)
    refuse_unwritable(out, *files_of(session, ledger, keys), force=force)
    with writing(out, force=force) as file:
        for line in exported(books_of(session)):
            file.content.write(line.encode() + b"\n")
    say(
        f"Written to {file.path}. Amounts are in it, under digests that only the ledger's key can tell from names.",
        stderr=True,
    )


@ledger_app.command()
@plainly()
def statement(
    person: Person,
    out: Annotated[Path, typer.Option(help="The HTML page to write.")],
    force: words.Force = False,
    ledger: words.Ledger = None,
    keys: words.Keys = None,
) -> None:
    """Write a page for one person: all that the books say about them, with a proof that anybody can check."""
    from sottovoce.cli.books import books_of, files_of, opened
    from sottovoce.cli.files import refuse_unwritable, write_whole
    from sottovoce.pages.statement import Statement
    from sottovoce.pages.statement_page import page

    session = opened(ledger, keys)
    refuse_unwritable(out, *files_of(session, ledger, keys), force=force)
    made = Statement.of(books_of(session), person)
    out = write_whole(out, page(made), force=force)
    say(f"Head {made.head}")
    say(f"Written to {out}: about one person, and for that person.", stderr=True)


@ledger_app.command()
@plainly()
def check(
    page: Annotated[Path, typer.Argument(metavar="STATEMENT", help="A page of `sottovoce ledger statement`.")],
    head: Annotated[
        str | None, typer.Option(help="A head that the curator has published, 64 hexadecimal digits.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="The public key that the curator has published, 64 hexadecimal digits.")
    ] = None,
) -> None:
    """Check a statement against a published head or the public key, without the books and their secret.

    What came after that head was published is not shown, because nothing confirms it yet. The public key alone
    confirms everything up to the last entry.
    """
    from sottovoce.cli.pictures import table
    from sottovoce.errors import InvalidParameter
    from sottovoce.pages.statement import accounts
    from sottovoce.pages.statement_page import account_cells, read

    if head is None and key is None:
        raise InvalidParameter(
            "There is nothing to check the statement against.",
            "It must lead to a head, or be signed with a key, that the curator has published.",
            "Pass --head, --key or both.",
        )
    made = read(_text(page))
    if key is not None:
        made.refuse_other_key(key)
    last = made.entries[-1].number
    number = last if head is None else made.confirm_head(head)
    if head is None:
        say(f"This statement holds: the books have signed entry {last}, which confirms what came before it.")
    else:
        say(f"This statement holds: the head is that of entry {number}, which confirms what came before it.")
    if number < last:
        say(f"Not confirmed by this head, because they came later: entries {number + 1} to {last}.", style="yellow")
    rows = [account_cells(account) for account in accounts(line for line in made.lines() if line.number <= number)]
    console().print(table(["account", "allowed in all", "spent", "left"], rows, words=1))


@ledger_app.command()
@plainly()
def key(ledger: words.Ledger = None, keys: words.Keys = None) -> None:
    """Print the public key with which anybody can check what these books have signed; publish it."""
    from sottovoce.cli.books import books_of, opened
    from sottovoce.ledgers.signing import fingerprint, read_key

    public = books_of(opened(ledger, keys)).public_key
    say(public)
    say(f"Fingerprint {fingerprint(read_key(public))}", stderr=True)


@ledger_app.command()
@plainly()
def check_release(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release, as JSON.")],
    key: Annotated[
        str | None, typer.Option(help="The public key that the curator has published, 64 hexadecimal digits.")
    ] = None,
) -> None:
    """Check the signature of a release, without the books and their secret.

    Without --key a release vouches for itself alone: compare the fingerprint with the one that was published.
    """
    from sottovoce.cli.files import load_release
    from sottovoce.ledgers import signing

    load_release(release)
    public = signing.check_release(_text(release), key)
    say(f"This release is as it was signed. Fingerprint of the key: {signing.fingerprint(public)}.")
    if key is None:
        say("Compare it with the fingerprint that the curator has published.", stderr=True, style="yellow")


@ledger_app.command()
@plainly()
def upgrade(ledger: words.Ledger = None, keys: words.Keys = None) -> None:
    """Begin to sign books that an earlier version has written; they are verified first."""
    from sottovoce.cli.books import books_of, opened

    session = opened(ledger, keys)
    first = books_of(session).upgrade()
    entry = _last(session)
    say(f"Upgraded: signed from entry {first}, head {entry.digest.hex()}.")
    say(
        f"Entries 0 to {first - 1} add up and hold together, but were not signed when they were made. Whoever could "
        "write to the database before this upgrade could have written them anew, with grants and charges as they "
        "liked; only heads and certificates that were published before can tell. From now on nobody can who has not "
        "the key.",
        stderr=True,
    )


@ledger_app.command()
@plainly()
def roles(
    reader: Annotated[str, typer.Option(help="The role that sees balances and verifies.")],
    granter: Annotated[str, typer.Option(help="The role that writes grants, and what was spent outside.")],
    writer: Annotated[str, typer.Option(help="The role that releases.")],
) -> None:
    """Print the SQL that gives three roles of PostgreSQL what each needs in the books, and nothing else."""
    from sottovoce.ledgers.postgres import grant_rights

    for line in grant_rights(reader, granter, writer).splitlines():
        say(line, whole=True)


@ledger_app.command()
@plainly()
def unseal(
    reason: Annotated[str, typer.Option(help="Why these books are good, or the best there are; it is entered.")],
    ledger: words.Ledger = None,
    keys: words.Keys = None,
) -> None:
    """Go on with sealed books. Then lower the grants by what people may have spent, before anything is released."""
    from sottovoce.cli.books import books_of, opened
    from sottovoce.errors import InvalidParameter

    session = opened(ledger, keys)
    if not books_of(session).sealed or not reason.strip():
        raise InvalidParameter(
            "These books are not sealed, or there is no reason.", "", "Pass --reason for sealed books."
        )
    books_of(session).unseal(reason)
    entry = _last(session)
    say(f"Unsealed: entry {entry.number}, head {entry.digest.hex()}.")


@witness_app.callback()
def witness() -> None:
    """Let others keep the heads of the books, so that no copy of them is spent again."""


@witness_app.command()
@plainly()
def add(address: Address, ledger: words.Ledger = None, keys: words.Keys = None) -> None:
    """Add a witness: a file on a share, a second database, or an append-only log."""
    from sottovoce.cli.books import books_of, opened
    from sottovoce.cli.closed import refuse_open_password

    refuse_open_password(address)
    books = books_of(opened(ledger, keys))
    books.add_witness(address)
    say(
        f"Heads are kept by {len(books.witnesses)} from now on; sessions that are open learn of it when they open next."
    )


@witness_app.command("list")
@plainly()
def list_(ledger: words.Ledger = None, keys: words.Keys = None) -> None:
    """List the witnesses, without passwords."""
    from sottovoce.cli.books import books_of, opened

    for number, name in enumerate(books_of(opened(ledger, keys)).witnesses, 1):
        say(f"{number} {name}")


@witness_app.command()
@plainly()
def remove(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="The address, or its number in the list.")],
    ledger: words.Ledger = None,
    keys: words.Keys = None,
) -> None:
    """Go on without a witness; what it holds stays there."""
    from sottovoce.cli.books import books_of, opened

    books = books_of(opened(ledger, keys))
    books.remove_witness(address)
    say(f"Heads are kept by {len(books.witnesses)} from now on.")


@witness_app.command("check")
@plainly()
def check_all(ledger: words.Ledger = None, keys: words.Keys = None) -> None:
    """Ask every witness for all that it holds; fails if the books are sealed by it, or one could not be asked."""
    from sottovoce.cli.books import books_of, opened
    from sottovoce.errors import LedgerUnavailable
    from sottovoce.ledgers.books import sealed

    books = books_of(opened(ledger, keys))
    told = books.check_witnesses()
    for name, said in told.items():
        say(f"{name}: {said}")
    if books.sealed:
        raise sealed(books.why_sealed)
    if books.unreached:
        raise LedgerUnavailable("Not every witness could be asked.", "", "Make it reachable, or remove it.")


def _last(session: Session) -> Entry:
    return list(session.ledger.entries())[-1]


def _entry_cells(entry: Entry) -> list[str]:
    at = entry.at.replace("T", " ").removesuffix("+00:00")
    return [str(entry.number), at, entry.what, harmless(entry.key), entry.digest.hex()[:SHOWN], f"{entry.lines:,}"]


def _refuse_other_bytes(session: Session, path: Path) -> None:
    """Refuses a release that was changed after it was published: its certificate alone does not tell."""
    from sottovoce.cli.files import load_release
    from sottovoce.errors import InvalidRelease
    from sottovoce.ledgers.chain import of_text

    number = (load_release(path).certificate.ledger or {})["entry"]
    entries = list(session.ledger.entries())
    roots = [entry.root for entry in entries if entry.what == "publish" and entry.key == entries[number].key]
    if of_text(_text(path)) not in roots:
        raise InvalidRelease(
            "A release is not what was published under its entry: it was changed.",
            "The books hold a digest of the bytes.",
            "Ask again under its key for the bytes that were published.",
        )


def _refuse_stray_delta(currency: str, delta: float | None) -> None:
    from sottovoce.errors import InvalidParameter

    if delta is not None and currency != CURRENCIES["epsilon-delta"]:
        raise InvalidParameter(
            "Only an account of ε at δ has a δ.", "", "Pass --currency epsilon-delta, or no --delta."
        )


def _text(path: Path) -> str:
    from sottovoce.errors import InvalidParameter

    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        pass  # raised below: the reason may quote the file
    raise InvalidParameter("There is no such file, or it is not text.", "", "Check the path.")
