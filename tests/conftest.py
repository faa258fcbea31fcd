"""Where books can be kept: a file, and a private server that starts when the first test asks for it."""

from __future__ import annotations

import pytest

from ledgers.places import Place
from servers import postgres


@pytest.fixture(scope="session")
def server():
    """The address of an empty database; one server a test process."""
    with postgres() as url:
        yield url


@pytest.fixture
def on_server(server, tmp_path) -> Place:
    """No books yet, in PostgreSQL."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute("DROP SCHEMA IF EXISTS sottovoce CASCADE")
    return Place(server, tmp_path / "keys")


@pytest.fixture
def in_file(tmp_path) -> Place:
    """No books yet, in SQLite."""
    (tmp_path / "books").mkdir()
    return Place(f"sqlite:///{tmp_path}/books/books.db", tmp_path / "books")


@pytest.fixture(params=["in_file", "on_server"])
def place(request) -> Place:
    """No books yet, in either."""
    return request.getfixturevalue(request.param)
