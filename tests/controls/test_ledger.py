"""Planted ledgers: one that checks and then acts, one that charges after the answer, one that
forgets its chain.

Each is a mistake that ledgers of privacy have been shipped with; the attacks must catch every one
of them.
"""

from __future__ import annotations

import multiprocessing

import pytest

from ledgers.crashes import lost_or_free, run_and_die
from ledgers.places import PROCESSES, race, release
from sottovoce import errors, ledger
from sottovoce.ledgers import sql_reading
from sottovoce.ledgers.keyfile import LedgerKeyFile
from sottovoce.ledgers.sql_ledger import SqlLedger

#: Seconds that 64 processes may take to begin; a busy machine may need minutes for it.
PATIENCE = 600


def plant_check_then_act(monkeypatch, processes: int) -> None:
    """The balance is looked up, and what was found is relied on later: no condition, no CHECK, no
    transaction.
    """
    reserve = SqlLedger.reserve
    everybody = multiprocessing.get_context("fork").Barrier(processes)
    unconditional = sql_reading.CHARGE_SQL.replace(
        "AND accounts.granted - accounts.spent >= staged.amount", ""
    )
    unchecked = unconditional.replace("SET spent", "SET cap = accounts.cap + staged.amount, spent")
    assert sql_reading.CHARGE_SQL != unconditional != unchecked

    def check_then_act(self, key, request, amounts, *, outside=False):
        if any((self.balances(part.people, part.account) < part.units).any() for part in amounts):
            raise errors.BudgetExceeded("Somebody has not enough left for this.")
        if key.endswith("-0"):
            # In between everybody else looks as well: on a busy machine they would, now and then.
            everybody.wait(PATIENCE)
        return reserve(self, key, request, amounts, outside=outside)

    monkeypatch.setattr(SqlLedger, "reserve", check_then_act)
    monkeypatch.setattr(sql_reading, "CHARGE_SQL", unchecked)


def test_a_ledger_that_checks_and_then_acts_is_caught_by_the_race(place, monkeypatch):
    plant_check_then_act(monkeypatch, PROCESSES)
    cap, granted = race(place, attempts=1, cap=40)
    assert granted >= 1.5 * cap
    with pytest.raises(errors.LedgerBroken):
        place.open().verify()


def test_a_ledger_that_charges_after_the_answer_is_caught_by_a_kill(in_file, monkeypatch):
    """The answer is out, the charge is still to come: a kill in between is a free release."""
    reserve = SqlLedger.reserve
    publish = SqlLedger.publish

    def later(self, key, request, amounts, *, outside=False):
        self.owed = (request, amounts)
        return ledger.Reservation(key, request, "reserved", 0, "0" * 64, fresh=True)

    def afterwards(self, key, text):
        reserve(self, key, *self.owed)
        publish(self, key, text)

    monkeypatch.setattr(SqlLedger, "reserve", later)
    monkeypatch.setattr(SqlLedger, "publish", afterwards)
    in_file.granted()
    trace = run_and_die(in_file, "r", step=0)
    assert trace.read
    assert lost_or_free(in_file, [trace])


def test_a_ledger_that_does_not_write_heads_down_is_caught_by_an_older_copy(in_file, monkeypatch):
    record_head = LedgerKeyFile.record_head
    monkeypatch.setattr(
        LedgerKeyFile,
        "record_head",
        lambda own, number, *rest: None if number else record_head(own, number, *rest),
    )
    s = in_file.granted()
    s.ledger._store._close()
    older = in_file.file.read_bytes()
    release(s, "k")
    s.ledger._store._close()
    in_file.file.write_bytes(older)
    assert (
        not in_file.open().sealed
    )  # which tests/attacks/test_ledger_tampering.py would not let pass
