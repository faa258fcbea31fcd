"""A thousand schedules of faults on both databases: 0 violations in 100,000 operations; and planted
bugs are found.
"""

from __future__ import annotations

from collections import Counter

import pytest

from ledgers.places import Place
from ledgers.simulator import WEIGHTS, Simulation, Violation
from sottovoce import errors
from sottovoce.ledgers import sql_reading
from sottovoce.ledgers.keyfile import LedgerKeyFile
from sottovoce.ledgers.sql_ledger import SqlLedger

#: Schedules that run every time, and for long, with so many operations each.
OFTEN_IN_FILE = 42
OFTEN_ON_SERVER = 8
SHORT = 20
PARTS = 20
EACH = 25
LONG = 100


def places(request, tmp_path, number: int):
    """New places for books, of one kind."""
    for run in range(number):
        if request.node.callspec.params["kind"] == "on_server":
            request.getfixturevalue("on_server").ask("DROP SCHEMA IF EXISTS sottovoce CASCADE")
            yield Place(request.getfixturevalue("server"), tmp_path / f"keys {run}")
        else:
            folder = tmp_path / f"books {run}"
            folder.mkdir()
            yield Place(f"sqlite:///{folder}/books.db", folder)


def simulate(places, first: int, operations: int) -> Counter:
    """Runs a schedule for each place, with seeds from the first on; a violation names its seed."""
    done: Counter = Counter()
    for seed, place in enumerate(places, first):
        try:
            done += Simulation(place, seed, operations).run()
        except (Violation, errors.SottovoceError) as error:
            raise Violation(f"seed {seed}: {type(error).__name__}: {error}") from error
    return done


@pytest.mark.parametrize("kind", ["in_file", "on_server"])
def test_fifty_schedules_of_faults(request, tmp_path, kind):
    if kind == "in_file":
        runs = OFTEN_IN_FILE
    else:
        runs = OFTEN_ON_SERVER
    done = simulate(places(request, tmp_path, runs), 0, SHORT)
    assert sum(done.values()) == runs * SHORT
    assert kind == "on_server" or set(done) == set(WEIGHTS)  # each operation and each fault came up


@pytest.mark.long
@pytest.mark.parametrize("kind", ["in_file", "on_server"])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_thousand_schedules_of_faults(request, tmp_path, kind, part):
    done = simulate(places(request, tmp_path, EACH), 1000 * (part + 1), LONG)
    print(f"{sum(done.values()):,} operations, 0 violations: {dict(done)}")
    assert sum(done.values()) == EACH * LONG


def charge_without_a_condition(monkeypatch) -> None:
    planted = sql_reading.CHARGE_SQL.replace(
        "AND accounts.granted - accounts.spent >= staged.amount", ""
    )
    planted = planted.replace("SET spent", "SET cap = accounts.cap + staged.amount, spent")
    monkeypatch.setattr(sql_reading, "CHARGE_SQL", planted)


def write_no_heads(monkeypatch) -> None:
    write = LedgerKeyFile.write
    monkeypatch.setattr(
        LedgerKeyFile, "write", lambda own, lines: None if lines[0][1] else write(own, lines)
    )


def sign_nothing(monkeypatch) -> None:
    monkeypatch.setattr(SqlLedger, "_refuse_unsigned", lambda *arguments: None)
    monkeypatch.setattr(SqlLedger, "_are_signed", lambda *arguments: True)


def compare_no_accounts(monkeypatch) -> None:
    monkeypatch.setattr("sottovoce.ledgers.sql_reading.Accounts.equals", lambda *arguments: True)


def refuse_the_truth(monkeypatch) -> None:
    """A loss from outside is refused where somebody is short, as it once was."""
    monkeypatch.setattr(sql_reading, "CHARGE_OUTSIDE", sql_reading.CHARGE_SQL)


def answer_before_the_commit(monkeypatch) -> None:
    """A reservation is acknowledged, and only then written: here, never."""
    reserve = SqlLedger.reserve

    def hasty(self, key, request, amounts, *, outside=False):
        if int(key.split()[1]) % 3:
            made = None
        else:
            made = self.find(key)
        if int(key.split()[1]) % 3 or made is not None:
            return reserve(self, key, request, amounts, outside=outside)
        return sql_reading.Reservation(key, request, "reserved", 1, "0" * 64, fresh=True)

    monkeypatch.setattr(SqlLedger, "reserve", hasty)


PLANTED = [
    charge_without_a_condition,
    write_no_heads,
    sign_nothing,
    compare_no_accounts,
    refuse_the_truth,
    answer_before_the_commit,
]


@pytest.mark.parametrize("kind", ["in_file"])
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_simulator_finds_planted_bugs(request, tmp_path, monkeypatch, kind, plant):
    plant(monkeypatch)
    with pytest.raises(Violation):
        simulate(places(request, tmp_path, 40), 0, 40)
