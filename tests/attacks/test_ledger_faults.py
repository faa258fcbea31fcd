"""Sixty injected faults and more: every error at every labelled step, at every statement, and in
the files beside.

Whatever fails: the books add up, nothing that was given out is missing from them, nothing was read
unpaid, no message names anybody or denies a charge, and the session goes on.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from ledgers.crashes import Trace, lost_or_free
from ledgers.places import PEOPLE, release
from sottovoce import errors, estimator, ledger

STEPS = 6
#: More statements than a release takes on either store.
STATEMENTS = 70


def of_sqlite(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(
        "ada-lovelace: what the database says may quote what was written"
    )
    error.sqlite_errorcode = code
    return error


def of_server(kind: str) -> Exception:
    return getattr(pytest.importorskip("psycopg").errors, kind)("ada-lovelace")


EVERYWHERE: dict[str, Callable[[], BaseException]] = {
    "disk": lambda: OSError(errno.ENOSPC, "ada-lovelace"),
    "interrupt": KeyboardInterrupt,
    "memory": MemoryError,
}
IN_FILE = EVERYWHERE | {
    "trouble": lambda: of_sqlite(sqlite3.SQLITE_FULL),
    "io": lambda: of_sqlite(sqlite3.SQLITE_IOERR),
    "busy": lambda: of_sqlite(sqlite3.SQLITE_BUSY),
}
ON_SERVER = EVERYWHERE | {
    "trouble": lambda: of_server("OperationalError"),
    "serial": lambda: of_server("SerializationFailure"),
}


def faults_of(place) -> dict[str, Callable[[], BaseException]]:
    if place.server:
        return ON_SERVER
    return IN_FILE


def endure(place, monkeypatch, faults) -> list[bool]:
    """Runs one release in the way of each fault, and checks the books after it; returns which came
    through.
    """
    own = place.granted()
    struck = []
    for number, (fault, arm) in enumerate(faults):
        trace = Trace()
        with monkeypatch.context() as patched:
            came = attempt(own, f"k{number}", fault, arm, patched, trace)
            own.ledger._store._close()  # with what was armed
        struck.append(came is not None)
        if "nothing was charged" in str(came):
            assert own.ledger.find(f"k{number}") is None
        trace.made[f"after {number}"] = release(own, f"after {number}").to_json()
        assert lost_or_free(place, [trace]) == []
    own.verify()
    return struck


def attempt(own, key, fault, arm, patched, trace) -> BaseException | None:
    """One release with a fault in its way; returns what came through."""
    run = estimator._run_mechanism

    def reading(*arguments):
        trace.read.append(key)
        return run(*arguments)

    patched.setattr(estimator, "_run_mechanism", reading)
    own.ledger._store._close()
    arm(patched, fault)
    try:
        trace.made[key] = release(own, key).to_json()
    except BaseException as error:
        if not isinstance(error, errors.SottovoceError | type(fault())):
            raise
        came = error
    else:
        return None
    if isinstance(came, errors.SottovoceError):
        told = f"{came}{came.__context__}{came.__cause__}"
    else:
        told = ""
    assert not any(name in told for name in PEOPLE)
    return came


def nth(number: int, fault, original):
    """The original, which raises at its n-th call."""
    calls = count()

    def called(*arguments, **options):
        if next(calls) == number:
            raise fault()
        return original(*arguments, **options)

    return called


def at_step(number):
    return lambda patched, fault: patched.setattr(
        ledger, "fault_point", nth(number, fault, ledger.fault_point)
    )


def test_every_fault_at_every_step(place, monkeypatch):
    faults = [
        (fault, at_step(step)) for step in range(STEPS) for fault in faults_of(place).values()
    ]
    struck = endure(place, monkeypatch, faults)
    # What the server refuses for the sake of others is tried again: at the three steps within a
    # transaction.
    assert sum(struck) == len(faults) - 3 * place.server


def test_who_is_charged_and_gets_no_release_is_not_told_otherwise(in_file, monkeypatch):
    """The fault is in the write of the release, after that of the charge."""
    own = in_file.granted()
    with monkeypatch.context() as patched:
        at_step(STEPS - 2)(patched, partial(OSError, errno.ENOSPC, "full"))
        with pytest.raises(errors.LedgerUnavailable) as caught:
            release(own, "k")
    assert "stays spent" in str(caught.value)
    assert "nothing was charged" not in str(caught.value)
    assert own.ledger.find("k").state == "reserved"
    with pytest.raises(errors.ReleaseFailed, match="choose a new key"):
        release(own, "k")


def at_statement(number, server):
    """A fault at the n-th statement, BEGIN, COMMIT and ROLLBACK among them where they are
    statements.
    """
    if server:
        execute = pytest.importorskip("psycopg").Cursor.execute
        return lambda patched, fault: patched.setattr(
            "psycopg.Cursor.execute", nth(number, fault, execute)
        )

    def arm(patched, fault):
        calls = count()
        connect = sqlite3.connect

        class Faulty(sqlite3.Connection):
            def execute(self, *arguments):
                if next(calls) == number:
                    raise fault()
                return super().execute(*arguments)

        patched.setattr(sqlite3, "connect", partial(connect, factory=Faulty))

    return arm


@pytest.mark.parametrize("kind", ["trouble", "interrupt", "memory"])
def test_every_fault_at_every_statement(place, monkeypatch, kind):
    fault = faults_of(place)[kind]
    if place.server:
        stride = 6
    else:
        stride = 2
    faults = [
        (fault, at_statement(number, place.server)) for number in range(0, STATEMENTS, stride)
    ]
    struck = endure(place, monkeypatch, faults)
    reached = sum(struck)
    assert struck == [True] * reached + [False] * (
        len(struck) - reached
    )  # to the last statement, and beyond it
    assert 3 < reached < len(struck)


@pytest.mark.parametrize("call", ["fsync", "open", "fdopen"])
@pytest.mark.parametrize("fault", EVERYWHERE.values(), ids=EVERYWHERE)
def test_every_fault_in_the_file_of_heads(in_file, monkeypatch, call, fault):
    def arm(number):
        return lambda patched, fault: patched.setattr(
            os, call, nth(number, fault, getattr(os, call))
        )

    assert endure(in_file, monkeypatch, [(fault, arm(0)), (fault, arm(1))]) == [True, True]
