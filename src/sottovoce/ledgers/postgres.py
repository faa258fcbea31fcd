# SPDX-License-Identifier: Apache-2.0
"""Books in PostgreSQL, for several machines (extra ``postgres``: psycopg 3).

Writers take one lock a database, in the order in which they come: the chain has one end, so they
could not overlap anyway, and with one lock there is no order of rows to get wrong. What a server
refuses for the sake of serialisation is tried again, with the same key. The tables are in the
schema ``sottovoce``.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sottovoce import ledger
from sottovoce.errors import LedgerBroken, LedgerUnavailable, SottovoceError, UnsupportedLedger
from sottovoce.ledgers import sql_reading
from sottovoce.ledgers.hash_chain import PERSON_BYTES
from sottovoce.ledgers.sql_ledger import SqlLedger
from sottovoce.ledgers.sql_reading import Transaction
from sottovoce.ledgers.witness import silence_driver

Result = TypeVar("Result")

#: Times that a transaction is tried which the server refused for the sake of others.
ATTEMPTS = 20
#: Any number will do, if all agree on it.
LOCK = 0x736F74746F
#: Seconds to wait for a server.
CONNECT_TIMEOUT = 15
#: What a connection asks of the server: who waits for another writer, takes longer than any charge,
#: or holds a transaction open without a word, is told so and lets others in.
SETTINGS = {
    "search_path": "sottovoce",
    "synchronous_commit": "on",
    "lock_timeout": "60s",
    "statement_timeout": "15min",
    "idle_in_transaction_session_timeout": "5min",
}
#: Half of each page is left for the next version of its rows, so that a charge finds room and
#: leaves the index alone.
FILLFACTOR = " WITH (fillfactor = 45)"
#: PostgreSQL's binary format for COPY: a signature, flags, no extension; each row the number and
#: sizes of fields.
HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
COPY_ROW = np.dtype(
    [
        ("fields", ">i2"),
        ("person_size", ">i4"),
        ("person", "u1", PERSON_BYTES),
        ("account_size", ">i4"),
        ("account", ">i8"),
        ("amount_size", ">i4"),
        ("amount", ">i8"),
    ]
)
#: A part of all accounts by one statement, as one value: a row for each takes four times as long.
READ_BALANCES = f"""
    SELECT string_agg(person || int8send({sql_reading.REMAINING}), ''::bytea ORDER BY person)
    FROM accounts
    WHERE account = %s AND person >= %s AND person < %s AND octet_length(person) = {PERSON_BYTES}"""
BALANCE_RECORD = np.dtype([("person", "u1", PERSON_BYTES), ("left", ">i8")])
#: The table of the version of all others.
VERSION = "version"
#: What a table is, as the server describes it: kind, columns, conditions, indexes, triggers, rules,
#: policies, parents.
_TABLE = (
    "JOIN pg_class ON pg_class.oid = {0} WHERE pg_class.relnamespace = ({{0}}) AND "
    "pg_class.relname = ANY(?)"
)
CATALOG_QUERIES = (
    "relname, relkind, relpersistence = 'u', relrowsecurity, relforcerowsecurity FROM pg_class"
    " WHERE relnamespace = ({0}) AND relname = ANY(?)",
    "relname, attname, attnum, format_type(atttypid, atttypmod), attcollation, attnotnull, "
    "attidentity, attgenerated,"
    " pg_get_expr(adbin, adrelid) FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid "
    "AND adnum = attnum " + _TABLE.format("attrelid") + " AND attnum > 0 AND NOT attisdropped",
    "relname, conname, contype, convalidated, condeferrable, "
    "pg_get_constraintdef(pg_constraint.oid) FROM pg_constraint " + _TABLE.format("conrelid"),
    "relname, replace(replace(pg_get_indexdef(indexrelid), ' ON pg_temp.', ' ON '), ' ON "
    "sottovoce.', ' ON '),"
    " indisunique, indisprimary, indisvalid FROM pg_index " + _TABLE.format("indrelid"),
    "relname, tgname FROM pg_trigger " + _TABLE.format("tgrelid") + " AND NOT tgisinternal",
    "relname, rulename FROM pg_rewrite " + _TABLE.format("ev_class"),
    "relname, polname FROM pg_policy " + _TABLE.format("polrelid"),
    "relname, inhparent FROM pg_inherits " + _TABLE.format("inhrelid"),
    "relname, inhrelid FROM pg_inherits " + _TABLE.format("inhparent"),
)


def open_postgres(url: str, keys: Path, *, begin: bool | None = None) -> SqlLedger:
    """Return the books in this database; their key and heads are in the folder ``keys``.

    New books are begun where there are no tables, unless ``begin`` is False; if it is True, in
    empty ones too.
    """
    return SqlLedger(_PostgresStore(url, keys), begin=begin)


class _PostgresStore:
    """The store behind books in PostgreSQL."""

    def __init__(self, url: str, keys: Path) -> None:
        self._url = url
        self._keys = keys
        self._lock = threading.RLock()
        self._psycopg = _import_psycopg()
        self._connection: Any = None
        self._process = 0
        _STORES.add(self)

    def reset_lock(self) -> None:
        """Lets a child in, which has none of its parent's threads."""
        self._lock = threading.RLock()

    def get_key_stem(self, identity: str) -> Path:
        """The key and the heads have the number of the books for a name."""
        return self._keys / identity

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Runs the work alone and commits it, or raises and leaves everything as it was."""

        def alone(transaction: _PostgresTransaction) -> Result:
            transaction.run("SELECT pg_advisory_xact_lock(?)", LOCK)
            result = work(transaction)
            ledger.fault_point("written")
            return result

        return self._run_with_retries(alone, "READ COMMITTED")

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Runs the work on one unchanging state of the books."""
        return self._run_with_retries(work, "REPEATABLE READ")

    def check(self) -> None:
        """Raise unless the tables are as they were made; the server checks itself."""
        # It is told how large the tables are, for the long questions that follow.
        self._run_with_retries(
            lambda transaction: transaction.run("ANALYZE accounts, entries, lines"),
            "READ COMMITTED",
        )
        if not self._run_with_retries(
            lambda transaction: transaction.has_expected_tables(), "READ COMMITTED"
        ):
            raise LedgerBroken(
                "The tables of the ledger are not as they were made: a column, a condition, an "
                "index, a trigger or a rule was changed or added.",
                "What the database enforces stands behind every charge.",
                "Stop releasing, find out who changed them, and move to a copy that verifies.",
            )

    def _run_with_retries(
        self, work: Callable[[_PostgresTransaction], Result], isolation: str
    ) -> Result:
        errors = self._psycopg.errors
        problem = _unreachable_error()
        with self._lock, silence_driver():
            for _ in range(ATTEMPTS):
                try:
                    return self._run_once(work, isolation)
                except (errors.SerializationFailure, errors.DeadlockDetected):
                    continue
                except (
                    errors.LockNotAvailable,
                    errors.QueryCanceled,
                    errors.IdleInTransactionSessionTimeout,
                ):
                    self._close()
                    problem = _timeout_error()
                    break
                except errors.InsufficientPrivilege:
                    problem = _permission_error()
                    break
                except self._psycopg.OperationalError:
                    self._close()
                    break
                except self._psycopg.Error:
                    break
        # outside the handler: the message of the server may quote what was being written
        raise problem

    def _run_once(self, work: Callable[[_PostgresTransaction], Result], isolation: str) -> Result:
        connection = self._open()
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
            return work(_PostgresTransaction(cursor))

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _open(self) -> Any:
        """One connection a process."""
        if self._connection is None or self._connection.closed or self._process != os.getpid():
            self._connection = self._psycopg.connect(
                self._url,
                autocommit=True,  # transactions are begun by name
                connect_timeout=CONNECT_TIMEOUT,
                client_encoding="UTF8",
                options=" ".join(f"-c {name}={value}" for name, value in SETTINGS.items()),
            )
            self._process = os.getpid()
            # Not __del__: in a cycle of objects the connection could be given up before its server.
            weakref.finalize(self, _close_own, self._connection, self._process)
            self._refuse_other_encodings()
        return self._connection

    def _refuse_other_encodings(self) -> None:
        """Raise unless the database keeps every letter: a charge must not fail after it was
        made.
        """
        if self._connection.info.parameter_status("server_encoding") == "UTF8":
            return
        self._close()
        raise UnsupportedLedger(
            "This database does not keep texts in UTF-8.",
            "Keys and releases hold any letters, and must come back as they were.",
            "Make a database with ENCODING 'UTF8' (TEMPLATE template0), and name it; nothing was "
            "written.",
            parameter="ledger",
        )


def _close_own(connection: Any, process: int) -> None:
    """Close a connection of this process; after a fork it is the parent's."""
    if process == os.getpid():
        connection.close()


#: A child has none of the threads that may hold a lock of its parent.
_STORES: weakref.WeakSet[_PostgresStore] = weakref.WeakSet()


def _after_fork() -> None:
    for server in list(_STORES):
        server.reset_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _PostgresTransaction:
    """One transaction of PostgreSQL."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows that a statement answers, if it answers any."""
        self._cursor.execute(statement.replace("?", "%s"), values)
        if self._cursor.description:
            return list(self._cursor.fetchall())
        return []

    def count(self, statement: str) -> int:
        """Return how many rows a statement has changed."""
        self._cursor.execute(statement)
        return int(self._cursor.rowcount)

    def stage(self, lines: Any) -> None:
        """Fills the temporary table ``staged`` in bulk."""
        self.run(
            "CREATE TEMP TABLE IF NOT EXISTS staged (person BYTEA, account BIGINT, amount "
            "BIGINT) ON COMMIT DELETE ROWS"
        )
        self.run("DELETE FROM staged")
        with self._cursor.copy("COPY staged FROM STDIN WITH (FORMAT BINARY)") as copy:
            copy.write(encode_copy(lines))
        self.run("ANALYZE staged")

    def read_balances(self, account: int, accounts: int) -> tuple[bytes, Any]:
        """Return everybody who has this account, in order of their digests, and what is left of
        it.
        """
        found = b""
        for low, high in sql_reading.split_ranges(accounts):
            self._cursor.execute(READ_BALANCES, (account, low, high), binary=True)
            found += self._cursor.fetchone()[0] or b""
        records = np.frombuffer(found, dtype=BALANCE_RECORD)
        return records["person"].tobytes(), records["left"].astype(np.int64)

    def version(self) -> int:
        """Return the version of the tables; 0 where there are none."""
        # Asked of the table of tables: to_regclass may not know yet what another has made since
        # this transaction began.
        if not self.run(
            "SELECT 1 FROM pg_tables WHERE schemaname = 'sottovoce' AND tablename = 'version'"
        ):
            return 0
        ((number,),) = self.run("SELECT MAX(number) FROM version")
        if number is None:
            raise sql_reading.broken_ledger_error()  # tables that would otherwise be made once more
        return int(number)

    def define(self, statements: Sequence[str], version: int) -> None:
        """Makes or changes tables, and notes their version."""
        self.run("CREATE SCHEMA IF NOT EXISTS sottovoce")
        self._create_tables(statements, version)

    def _create_tables(self, statements: Sequence[str], version: int) -> None:
        self.run(f"CREATE TABLE IF NOT EXISTS {VERSION} (number BIGINT PRIMARY KEY)")
        for statement in statements:
            room = FILLFACTOR * statement.startswith("CREATE TABLE accounts")
            self.run(statement.replace("INTEGER", "BIGINT").replace("BLOB", "BYTEA") + room)
        self.run(f"INSERT INTO {VERSION} VALUES (?)", version)

    def has_expected_tables(self) -> bool:
        """Whether the tables are those that would be made now, as temporary ones that are thrown
        away again.
        """
        names = [
            VERSION,
            *(
                name
                for step in sql_reading.MIGRATIONS
                for name in re.findall(r"CREATE TABLE (\w+)", " ".join(step))
            ),
        ]
        there = self._describe_tables(
            "SELECT oid FROM pg_namespace WHERE nspname = 'sottovoce'", names
        )
        with self._cursor.connection.transaction(force_rollback=True):
            self.run("SET LOCAL search_path = pg_temp")
            for number, step in enumerate(sql_reading.MIGRATIONS, 1):
                self._create_tables(step, number)
            return there == self._describe_tables("SELECT pg_my_temp_schema()", names)

    def _describe_tables(self, namespace: str, names: Sequence[str]) -> list[list[tuple[Any, ...]]]:
        return [
            self.run(f"SELECT {question.format(namespace)} ORDER BY 1, 2", list(names))
            for question in CATALOG_QUERIES
        ]


def encode_copy(lines: Any) -> bytes:
    """Return lines (person, account, amount) in PostgreSQL's binary format for COPY."""
    rows = np.zeros(len(lines), dtype=COPY_ROW)
    rows["fields"] = 3
    rows["person_size"] = PERSON_BYTES
    rows["account_size"] = 8
    rows["amount_size"] = 8
    for name in ("person", "account", "amount"):
        rows[name] = lines[name]
    return HEADER + rows.tobytes() + TRAILER


def _import_psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        pass  # raised below
    else:
        return psycopg
    raise UnsupportedLedger(
        "A ledger in PostgreSQL needs psycopg, which is not installed.",
        "",
        "Run: pip install 'sottovoce[postgres]'.",
        parameter="ledger",
    )


def write_role_sql(reader: str, granter: str, writer: str) -> str:
    """Return the SQL that gives three roles what each needs, and nothing else.

    The owner of the books runs it.

    A reader sees balances and verifies. A granter writes grants, and what was spent outside. A
    writer releases: it cannot raise a grant, and nobody can change or delete an entry.
    """
    read, grant, write = ('"' + name.replace('"', '""') + '"' for name in (reader, granter, writer))
    entries = "sottovoce.entries, sottovoce.lines, sottovoce.signatures"
    return "\n".join(
        [
            "REVOKE ALL ON ALL TABLES IN SCHEMA sottovoce FROM PUBLIC;",
            f"GRANT USAGE ON SCHEMA sottovoce TO {read}, {grant}, {write};",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA sottovoce TO {read}, {grant}, {write};",
            f"GRANT INSERT ON {entries} TO {grant}, {write};",
            f"GRANT INSERT, UPDATE (granted, cap, spent) ON sottovoce.accounts TO {grant};",
            f"GRANT UPDATE (spent) ON sottovoce.accounts TO {write};",
            f"GRANT INSERT ON sottovoce.releases TO {write};",
        ]
    )


def _timeout_error() -> SottovoceError:
    return LedgerUnavailable(
        "The server of the ledger gave up waiting: another writer did not come to an end, or this "
        "took too long.",
        f"Nobody waits longer than {SETTINGS['lock_timeout']} for another writer.",
        "Ask again under the same key; if it lasts, look for a session that holds a transaction "
        "open.",
    )


def _permission_error() -> SottovoceError:
    return LedgerUnavailable(
        "The role of this connection may not do this in the ledger.",
        "A reader writes nothing, a granter releases nothing, and a writer grants nothing.",
        "Connect with the role that may, or let the owner of the ledger give it rights "
        "(`sottovoce ledger roles`).",
    )


def _unreachable_error() -> SottovoceError:
    return LedgerUnavailable(
        "The server of the ledger cannot be reached, or refused the transaction.",
        "A charge is written before a private value is read.",
        "Check the address and that the server runs, then ask again under the same key.",
    )
