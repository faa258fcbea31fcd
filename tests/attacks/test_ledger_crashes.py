"""kill −9 at every labelled step and at any instant: no acknowledged spend is lost, and no release
is free.

A child makes releases and tells of each value it is about to read and of each release that it gave
out. After its death the books must add up, and hold a charge for all of the first and the exact
bytes of all of the second.
"""

from __future__ import annotations

import os
import signal
from itertools import count

import numpy as np
import pytest

from ledgers.crashes import Trace, lost_or_free, run_and_die
from ledgers.places import Child, Place, release
from sottovoce import errors
from sottovoce.ledgers import postgres, sqlite

#: The steps of one release in their order.
STEPS = [
    "reserve: charged",
    "written",
    "reserve: committed",
    "reserve: witnessed",
    "written",
    "publish: committed",
]
#: The longest that a kill waits after an acknowledgement, in seconds: a few releases.
LONGEST = 0.03


def killed_at_any_instant(place: Place, runs: int, seed: int) -> list[Trace]:
    rng = np.random.default_rng(seed)
    return [
        run_and_die(
            place,
            f"i{run}",
            acknowledged=int(rng.integers(0, 4)),
            delay=float(rng.uniform(0, LONGEST)),
        )
        for run in range(runs)
    ]


def hold(place: Place, traces: list[Trace]) -> None:
    """Every child was killed, some in the middle of a release, and nothing is lost or free."""
    assert all(trace.killed for trace in traces)
    assert lost_or_free(place, traces) == []
    release(place.session(), "afterwards")
    place.session().verify()


def test_killed_at_every_labelled_step(place):
    place.granted()
    traces = [run_and_die(place, f"s{step}", step=step) for step in range(2 * len(STEPS))]
    assert traces[-1].steps == STEPS * 2
    assert [len(trace.made) for trace in traces] == [0] * len(STEPS) + [1] * len(STEPS)
    hold(place, traces)
    session = place.session()
    for step in range(4):  # a key that was reserved and never published stays spent, and says so
        key = f"s{step}-0"
        if step < 2:  # killed before the commit: nothing was charged, and the key is free
            assert session.ledger.find(key) is None
            release(session, key)
        else:
            with pytest.raises(errors.ReleaseFailed):
                release(session, key)
    assert release(session, "s5-0").to_json() == session.ledger.find("s5-0").release


def test_killed_at_any_instant_in_a_file(in_file):
    in_file.granted()
    hold(in_file, killed_at_any_instant(in_file, 40, seed=1))


def test_killed_at_any_instant_on_a_server(on_server):
    on_server.granted()
    hold(on_server, killed_at_any_instant(on_server, 8, seed=2))


@pytest.mark.long
@pytest.mark.parametrize("part", range(19))
def test_killed_a_thousand_times_in_a_file(in_file, part):
    in_file.granted()
    hold(in_file, killed_at_any_instant(in_file, 50, seed=100 + part))


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_killed_two_hundred_times_on_a_server(on_server, part):
    on_server.granted()
    hold(on_server, killed_at_any_instant(on_server, 50, seed=200 + part))


def test_killed_while_new_books_are_made(place):
    """At every statement that makes them: the next who comes finds them whole, or makes them."""
    if place.server:
        transaction = postgres._PostgresTransaction
    else:
        transaction = sqlite._SqliteTransaction
    original = transaction.run
    ended = []

    def live_until(step: int) -> None:
        left = count(-step)

        def run(self, statement, *values):
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(self, statement, *values)

        transaction.run = run
        place.open()

    while 0 not in ended:
        child = Child(lambda tell: live_until(len(ended)))
        list(child.told())
        ended.append(child.end())
    assert set(ended[:-1]) == {-signal.SIGKILL}
    books = place.open()
    assert not books.sealed
    books.verify()
