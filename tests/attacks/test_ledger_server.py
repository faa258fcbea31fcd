"""A server that keeps other letters, that makes people wait, that is asked by roles with few
rights, or that logs.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest

import sottovoce as sv
from ledgers.places import PEOPLE, Place, allow, left, release, spend
from sottovoce import errors
from sottovoce.ledger import MAX_KEY_BYTES, MAX_KEY_CHARACTERS, Amounts
from sottovoce.ledgers import open_ledger, postgres


def administer(address: str, *statements: str) -> None:
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP", "SQL_ASCII"])
def test_a_database_of_other_letters_is_refused_before_anything_is_written(
    on_server, tmp_path, encoding
):
    name = f"other_{encoding.lower()}"
    administer(
        on_server.address,
        f"DROP DATABASE IF EXISTS {name}",
        f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' "
        "LC_CTYPE 'C'",
    )
    address = on_server.address.replace("/postgres?", f"/{name}?")
    with pytest.raises(errors.UnsupportedLedger, match="UTF-8"):
        sv.Session(address, keys=tmp_path / "keys")
    assert not (tmp_path / "keys").exists()
    other = Place(address, tmp_path)
    assert other.ask("SELECT COUNT(*) FROM pg_namespace WHERE nspname = 'sottovoce'") == [(0,)]


def test_a_client_of_other_letters_speaks_utf8_to_the_server(on_server, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    books = on_server.open()
    allow(books, 5, "ada")
    spend(books, "κλειδί 🔑", 1, "ada")
    assert on_server.open().find("κλειδί 🔑").state == "reserved"


def test_who_waits_for_another_writer_is_told_so(on_server, monkeypatch):
    import psycopg

    session = on_server.granted()
    monkeypatch.setitem(postgres.SETTINGS, "lock_timeout", "50ms")
    again = on_server.session()
    with psycopg.connect(on_server.address) as busy:
        busy.execute("SELECT pg_advisory_xact_lock(%s)", (postgres.LOCK,))
        with pytest.raises(
            errors.LedgerUnavailable, match="another writer did not come to an end"
        ) as caught:
            release(again, "k")
        assert caught.value.__cause__ is caught.value.__context__ is None
    release(again, "k")
    session.verify()


def test_a_statement_that_takes_too_long_is_told_so(on_server, monkeypatch):
    on_server.granted()
    # Long enough that no other statement takes so long, however busy the machine is.
    monkeypatch.setitem(postgres.SETTINGS, "statement_timeout", "3s")
    books = on_server.open()
    with pytest.raises(errors.LedgerUnavailable, match="gave up waiting"):
        books._store.read(lambda transaction: transaction.run("SELECT pg_sleep(600)"))
    assert left(books, "cleo") > 0


def test_who_holds_a_transaction_open_lets_others_in(on_server, monkeypatch):
    on_server.granted()
    # Long enough that this process is not kept waiting so long between two statements.
    monkeypatch.setitem(postgres.SETTINGS, "idle_in_transaction_session_timeout", "3s")
    sleeper = on_server.open()
    monkeypatch.undo()
    slept: list[str] = []

    def sleep(step: str) -> None:
        if step == "reserve: charged" and not slept:
            slept.append(step)
            release(on_server.session(), "meanwhile")  # waits until the server has ended the other

    monkeypatch.setattr("sottovoce.ledger.fault_point", sleep)
    with pytest.raises(errors.LedgerUnavailable):
        spend(sleeper, "asleep", 1, "cleo")
    books = on_server.open()
    assert books.find("asleep") is None
    assert books.find("meanwhile").release is not None
    books.verify()


@pytest.mark.parametrize(
    "key", ["k" * (MAX_KEY_CHARACTERS + 1), "🔑" * (MAX_KEY_BYTES // 4 + 1)], ids=["signs", "bytes"]
)
def test_a_key_that_an_index_cannot_hold_is_refused_before_anybody_is_charged(place, key):
    session = place.granted()
    before = place.rows()
    with pytest.raises(errors.InvalidParameter, match="too long"):
        release(session, key)
    with pytest.raises(errors.InvalidParameter, match="too long"):
        session.charge({"cleo": 0.1}, key=key)
    assert place.rows() == before
    longest = "é" * MAX_KEY_CHARACTERS
    assert release(session, longest) == release(place.session(), longest)


def test_neither_host_nor_user_is_logged(on_server, caplog, tmp_path):
    """The driver names both in what it logs about connections, at least at DEBUG and where a
    rollback fails.
    """
    import psycopg

    with caplog.at_level(logging.DEBUG, logger="psycopg"):
        session = on_server.granted()
        session.ledger.add_witness(on_server.address)
        release(session, "k")
        with pytest.raises(errors.LedgerUnavailable):
            open_ledger(f"postgresql://tester@/none?host={tmp_path}", tmp_path / "keys")
        assert caplog.records == []
        on_server.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
        caplog.clear()
        with pytest.raises(errors.LedgerUnavailable) as caught:
            session.grant({"cleo": 1.0})
        assert caplog.records == []
        assert not any(
            name in str(caught.value)
            for name in ("tester", on_server.address.partition("host=")[2])
        )
        psycopg.connect(on_server.address).close()  # by somebody else, whose logs are their own
    host = on_server.address.partition("host=")[2]
    assert any(host in record.getMessage() for record in caplog.records)
    on_server.ask("DROP TABLE public.sottovoce_heads")


@pytest.fixture
def roles(on_server):
    """Books of an owner, and the addresses of three roles with the rights that the library
    proposes.
    """
    on_server.granted(1.0)
    names = {role: f"books_{role}" for role in ("reader", "granter", "writer")}
    for name in names.values():
        administer(
            on_server.address,
            f"DO $$ BEGIN IF EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN DROP "
            f"OWNED BY {name}; DROP ROLE {name}; END IF; END $$",
            f"CREATE ROLE {name} LOGIN",
        )
    administer(on_server.address, postgres.write_role_sql(**names))
    return {
        role: Place(on_server.address.replace("tester@", f"{name}@"), on_server.keys)
        for role, name in names.items()
    }


def test_every_role_can_do_its_own_and_nothing_else(on_server, roles):
    reader, granter, writer = (roles[role].session() for role in ("reader", "granter", "writer"))
    made = release(writer, "k")
    granter.grant(dict.fromkeys(PEOPLE, 2.0))
    granter.charge({"cleo": 0.5}, key="outside")
    assert reader.balance("cleo") == 2.0 - 0.5 - 0.001
    assert release(reader, "k") == made  # stored bytes are for every reader
    reader.verify(made)
    writer.verify()
    refused = {
        "a reader grants": lambda: reader.grant({"cleo": 9.0}),
        "a reader releases": lambda: release(reader, "new"),
        "a writer grants": lambda: writer.grant({"cleo": 9.0}),
        "a writer charges from outside": lambda: writer.charge({"cleo": 0.1}, key="elsewhere"),
        "a granter publishes": lambda: release(granter, "new"),
    }
    for what, attempt in refused.items():
        with pytest.raises(errors.LedgerUnavailable, match="role of this connection"):
            attempt()
        assert what
    on_server.open().verify()


STATEMENTS = {
    "reader": [
        "INSERT INTO lines VALUES (1, '', 0, 1)",
        "UPDATE accounts SET granted = 9",
        "CREATE TABLE t (a INT)",
    ],
    "granter": [
        "DELETE FROM entries",
        "UPDATE entries SET key = ''",
        "UPDATE lines SET amount = 0",
    ],
    "writer": [
        "UPDATE accounts SET granted = 9",
        "UPDATE accounts SET cap = 9",
        "INSERT INTO accounts VALUES ('', 0, 9, 9, 0)",
    ],
}
EVERYBODY = [
    "DELETE FROM accounts",
    "TRUNCATE lines",
    "DROP TABLE releases",
    "UPDATE releases SET text = ''",
]


@pytest.mark.parametrize("role", STATEMENTS)
def test_no_role_can_rewrite_the_books(roles, role):
    import psycopg

    for statement in [*STATEMENTS[role], *EVERYBODY]:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            roles[role].ask(statement)


def test_a_name_of_a_role_is_quoted():
    assert '"a""; DROP TABLE x; --"' in postgres.write_role_sql('a"; DROP TABLE x; --', "b", "c")


def test_what_was_spent_outside_is_never_refused(place):
    """A loss that has happened is written down: whoever is short has nothing left, and nobody else
    is left out.
    """
    session = place.granted(1.0)
    with pytest.warns(errors.OverdrawnWarning, match="Of 2 accounts"):
        session.charge({"ada-lovelace": 5.0, "ben-trovato": 0.25, "never seen": 0.5}, key="a leak")
    assert [session.balance(name) for name in ("ada-lovelace", "ben-trovato", "never seen")] == [
        0.0,
        0.75,
        0.0,
    ]
    session.charge(
        {"ada-lovelace": 5.0, "ben-trovato": 0.25, "never seen": 0.5}, key="a leak"
    )  # known: no warning
    session.verify()
    with pytest.raises(errors.BudgetExceeded):
        session.ledger.reserve("more", "", [Amounts(["ada-lovelace"], np.array([1]))])
    session.grant({"ada-lovelace": 6.0})
    assert session.balance("ada-lovelace") == 1.0
    place.session().verify()
