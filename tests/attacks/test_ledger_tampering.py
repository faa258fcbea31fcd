"""One byte changed anywhere, an older copy put in place, a chain computed anew: found out, by
opening or by verify.

Which edits matter is not decided here but by a dump of everything in the tables: if it differs,
somebody must notice.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from ledgers.places import PEOPLE, TABLES, Place, release
from sottovoce import errors
from sottovoce.ledger import ACCOUNTS, Amounts

#: What is changed to find a row again.
KEYS = {
    "accounts": ("person", "account"),
    "entries": ("number",),
    "lines": ("number", "person", "account"),
}
COLUMNS = {
    "accounts": ("person", "account", "granted", "cap", "spent"),
    "entries": ("number", "what", "key", "request", "at", "lines", "root", "digest"),
    "lines": ("number", "person", "account", "amount"),
    "releases": ("number", "text"),
    "signatures": ("number", "signature"),
}


def full_books(place: Place) -> None:
    """Some of everything: grants, a lowered cap, several kinds of accounts, releases, charges, a
    crash, a reason.
    """
    session = place.granted()
    session.grant(dict.fromkeys(PEOPLE, 0.5), currency="zCDP rho")
    session.grant(dict.fromkeys(PEOPLE, 0.5), currency="epsilon, delta", delta=1e-6)
    release(session, "one")
    session.charge({"cleo": 0.25}, key="survey")
    session.grant({"cleo": 0.1})
    session.ledger.reserve("crashed", "", [Amounts(["ada-lovelace"], np.array([7]), ACCOUNTS[1])])
    release(session, "two")
    session.ledger.unseal("moved to another machine")
    session.verify()
    session.ledger._store._close()


def noticed(place: Place) -> bool:
    """Whether opening or verifying raises one of the errors for books that are not right."""
    try:
        place.open().verify()
    except (
        errors.LedgerBroken,
        errors.LedgerSealed,
        errors.WrongLedgerKey,
        errors.UnsupportedLedger,
    ):
        return True
    return False


def changed(value, rng: np.random.Generator):
    """The value with one byte of it changed."""
    if isinstance(value, int):
        return changed_bytes(
            value.to_bytes(8, "big", signed=True), rng, lambda raw: int.from_bytes(raw, signed=True)
        )
    if isinstance(value, str):
        return changed_bytes(
            value.encode() or b"\0", rng, lambda raw: raw.decode("utf-8", "surrogateescape")
        )
    return changed_bytes(bytes(value), rng, bytes)


def changed_bytes(raw: bytes, rng, back):
    place = int(rng.integers(len(raw)))
    other = int(rng.integers(1, 256))
    return back(raw[:place] + bytes([raw[place] ^ other]) + raw[place + 1 :])


def an_edit(rows, rng) -> tuple[str, tuple]:
    """One cell of any table, any column, any row, with one byte changed: a statement and its
    values.
    """
    table = str(rng.choice(TABLES))
    row = rows[table][int(rng.integers(len(rows[table])))]
    names = COLUMNS[table]
    column = int(rng.integers(len(names)))
    keys = KEYS.get(table, ("number",))
    where = " AND ".join(f"{key} = ?" for key in keys)
    value = changed(row[column], rng)
    return f"UPDATE {table} SET {names[column]} = ? WHERE {where}", (
        value,
        *(row[names.index(key)] for key in keys),
    )


def stored(value):
    """What is no text in UTF-8 goes into the column of texts all the same, as whoever edits a file
    can put it there.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return value


def edited(path: Path, statement: str, values: tuple) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("ignore_check_constraints = 1", "synchronous = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    if isinstance(values[0], str):
        statement = statement.replace("= ? WHERE", "= CAST(? AS TEXT) WHERE")
    try:
        assert connection.execute(statement, tuple(map(stored, values))).rowcount == 1
    finally:
        connection.close()


def dump(path: Path) -> list:
    """Everything in the file, texts as bytes; an error is a difference too."""
    connection = sqlite3.connect(path)
    connection.text_factory = bytes
    try:
        asked = ["SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"]
        asked += [f"SELECT * FROM {table} ORDER BY 1, 2, 3" for table in TABLES[:3]]
        asked += [f"SELECT * FROM {table} ORDER BY 1" for table in TABLES[3:]]
        return [connection.execute(statement).fetchall() for statement in asked]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return [str(error)]
    finally:
        connection.close()


def put(place: Place, content: bytes) -> None:
    place.file.write_bytes(content)
    for ending in ("-wal", "-shm"):
        place.file.with_name(place.file.name + ending).unlink(missing_ok=True)


def tampered_cells(place: Place, edits: int, seed: int) -> tuple[int, int]:
    """Returns how many edits changed what is in the tables, and how many of these were noticed."""
    full_books(place)
    content = place.file.read_bytes()
    rows = place.rows()
    before = dump(place.file)
    rng = np.random.default_rng(seed)
    mattered = 0
    found = 0
    while mattered < edits:
        put(place, content)
        with suppress(sqlite3.IntegrityError):  # there is such a row already: no edit
            edited(place.file, *an_edit(rows, rng))
        if dump(place.file) != before:
            mattered += 1
            found += noticed(place)
    put(place, content)
    assert not noticed(place)
    return mattered, found


def tampered_bytes(place: Place, edits: int, seed: int) -> tuple[int, int, int]:
    """Returns how many bytes of the file were changed, how many of these mattered, and how many of
    those got by.
    """
    full_books(place)
    content = place.file.read_bytes()
    before = dump(place.file)
    rng = np.random.default_rng(seed)
    mattered = 0
    missed = 0
    for _ in range(edits):
        put(place, changed_bytes(content, rng, bytes))
        if dump(place.file) != before:
            mattered += 1
            missed += not noticed(place)
        put(place, content)
    return edits, mattered, missed


def test_every_edited_cell_is_noticed(in_file):
    assert tampered_cells(in_file, 1000, seed=1) == (1000, 1000)


def test_every_edited_byte_of_the_file_that_matters_is_noticed(in_file):
    edits, mattered, missed = tampered_bytes(in_file, 600, seed=2)
    assert missed == 0
    assert mattered > edits / 20  # most of a small file is empty pages


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 14))
def test_a_thousand_edits_in_cells_and_in_bytes(in_file, seed):
    assert tampered_cells(in_file, 1000, seed) == (1000, 1000)
    in_file.file.with_name("books.db.heads").unlink()
    in_file.file.unlink()
    assert tampered_bytes(in_file, 3000, seed)[2] == 0


def test_every_edited_cell_on_a_server_is_noticed(on_server):
    import psycopg

    full_books(on_server)
    rows = on_server.rows()
    rng = np.random.default_rng(3)
    mattered = 0
    for table in TABLES:
        on_server.ask(f"CREATE TABLE kept_{table} AS SELECT * FROM {table}")
    while mattered < 40:
        # A server takes no other texts, and what its conditions refuse is no edit.
        with suppress(psycopg.IntegrityError, psycopg.DataError, UnicodeEncodeError):
            statement, values = an_edit(rows, rng)
            on_server.ask(statement, *values)
        if on_server.rows() != rows:
            mattered += 1
            assert noticed(on_server), statement
            together(
                on_server,
                [f"DELETE FROM {t}; INSERT INTO {t} SELECT * FROM kept_{t}" for t in TABLES],
            )
    assert not noticed(on_server)


#: Edits of several cells that leave every balance and every leaf as they were, or touch what no
#: balance is made of.
SEVERAL = {
    "an account of the same last byte": [
        "UPDATE lines SET account = account + 256 WHERE account = 1",
        "UPDATE accounts SET account = account + 256 WHERE account = 1",
    ],
    "a line under an entry that has none": [
        "INSERT INTO lines SELECT number, person, 0, 5 FROM entries, (SELECT person FROM accounts "
        "LIMIT 1) AS one WHERE what = 'publish'"
    ],
    "a release for a reservation that crashed": [
        "INSERT INTO releases SELECT number, '{}' FROM entries WHERE key = 'crashed'"
    ],
    "somebody's account gone": [
        "DELETE FROM accounts WHERE person = (SELECT person FROM accounts LIMIT 1)"
    ],
    "the last entry gone": ["DELETE FROM entries WHERE number = (SELECT MAX(number) FROM entries)"],
    "a release gone": ["DELETE FROM releases WHERE number = (SELECT MIN(number) FROM releases)"],
    "two releases exchanged": [
        "CREATE TEMP TABLE two AS SELECT number, text FROM releases",
        "UPDATE releases SET text = (SELECT text FROM two WHERE two.number <> releases.number)",
    ],
}
OF_THE_FILE = {
    "a trigger": [
        "CREATE TRIGGER t AFTER UPDATE ON accounts BEGIN UPDATE accounts SET spent = 0; END"
    ],
    "an index gone": ["DROP INDEX one_reservation"],
    "a condition gone": [
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_schema SET sql = replace(sql, 'spent <= cap', 'spent <= cap + 9') WHERE "
        "name = 'accounts'",
    ],
}


def together(place: Place, statements: list[str]) -> None:
    """All of them in one connection, around the library."""
    if place.server:
        place.ask("; ".join(statements))
        return
    connection = sqlite3.connect(place.file, isolation_level=None)
    connection.execute("PRAGMA ignore_check_constraints = 1")
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("statements", SEVERAL.values(), ids=SEVERAL)
def test_edits_that_agree_with_one_another_are_noticed(place, statements):
    full_books(place)
    together(place, statements)
    assert noticed(place)


@pytest.mark.parametrize("statements", OF_THE_FILE.values(), ids=OF_THE_FILE)
def test_edits_of_the_tables_themselves_are_noticed(in_file, statements):
    full_books(in_file)
    together(in_file, statements)
    assert noticed(in_file)


def test_people_whose_bytes_were_shifted_are_noticed(in_file):
    """The first person of an entry loses the last byte to the next: one after the other they read
    as before.
    """
    full_books(in_file)
    (first,), (second,) = in_file.ask(
        "SELECT DISTINCT person FROM lines WHERE number = 1 ORDER BY person LIMIT 2"
    )
    for table in ("lines", "accounts"):
        together(
            in_file,
            [f"UPDATE {table} SET person = {literal(first[:-1])} WHERE person = {literal(first)}"],
        )
        together(
            in_file,
            [
                f"UPDATE {table} SET person = {literal(first[-1:] + second)} WHERE person = "
                f"{literal(second)}"
            ],
        )
    assert noticed(in_file)


def literal(raw: bytes) -> str:
    return f"x'{raw.hex()}'"


def test_a_key_changed_in_the_file_of_the_key_is_noticed(place):
    full_books(place)
    (key,) = place.keys.glob("*.key")
    key.write_bytes(bytes([key.read_bytes()[0] ^ 1]) + key.read_bytes()[1:])
    assert noticed(place)
