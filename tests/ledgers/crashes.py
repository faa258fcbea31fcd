"""Children that make releases and are killed at a labelled step or at any instant, and what must be
true afterwards.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import sottovoce as sv
from ledgers.places import PEOPLE, Child, Place, release
from sottovoce import booking, estimator, ledger


@dataclass
class Trace:
    """What a child told before it died: keys for which values were read, and releases that left the
    library.
    """

    read: list[str] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    killed: bool = False


def run_and_die(
    place: Place, name: str, *, step: int | None = None, acknowledged: int = 0, delay: float = 0
) -> Trace:
    """Lets a child release until it reaches its n-th step, or until so many releases and seconds
    have passed.
    """

    def live(tell) -> None:
        _tell_what_is_read(tell)
        if step is not None:
            _die_at(step, tell)
        own = place.session()
        for number in range(1000):
            key = f"{name}-{number}"
            tell(("asked", key))
            tell((key, release(own, key).to_json()))

    warm()
    child = Child(live)
    trace = Trace()
    for word in child.told():
        _note(trace, word)
        if step is None and len(trace.made) >= acknowledged:
            time.sleep(delay)
            child.kill()
            step = -1
    trace.killed = child.end() == -signal.SIGKILL
    return trace


@cache
def warm() -> None:
    """Loads what a release needs before the fork, so that no child has to."""
    own = sv.Session()
    own.grant(dict.fromkeys(PEOPLE, 1.0))
    release(own, "warm")


def _note(trace: Trace, word) -> None:
    kind, value = word
    if kind == "read":
        trace.read.append(value)
    elif kind == "step":
        trace.steps.append(value)
    elif kind != "asked":
        trace.made[kind] = value


def _tell_what_is_read(tell) -> None:
    """The child says so before it touches a value: afterwards the reservation must be in the
    books.
    """
    run = estimator._run_mechanism
    publishing = []
    reserve = booking.reserve_and_release

    def released(ledger, short, question, key, *rest):
        publishing[:] = [key]
        return reserve(ledger, short, question, key, *rest)

    def reading(*arguments):
        tell(("read", publishing[0]))
        return run(*arguments)

    booking.reserve_and_release = released
    estimator._run_mechanism = reading


def _die_at(step: int, tell) -> None:
    left = [step]

    def reached(name: str) -> None:
        tell(("step", name))
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    ledger.fault_point = reached


def lost_or_free(place: Place, traces: Sequence[Trace]) -> list[str]:
    """Returns keys whose release was acknowledged and is not in the books as it was, or that were
    read for unpaid.
    """
    books = place.open()
    books.verify()
    lines = [line for person in PEOPLE for line in books.history(person) if line.what == "reserve"]
    paid = {line.key for line in lines if line.amount > 0}
    wrong = [
        key for trace in traces for key in trace.read if key not in paid or books.find(key) is None
    ]
    for trace in traces:
        for key, text in trace.made.items():
            kept = books.find(key)
            if key not in paid or kept is None or kept.release != text:
                wrong.append(key)
    return wrong
