# SPDX-License-Identifier: Apache-2.0
"""Long work beside the page: begun, watched, and given up before anybody is charged, not after.

    working → done | failed | cancelled

Work calls ``job.watch`` with the rows it has read, and ``job.commit`` right before the reservation. A cancelled job
stops at the next of these calls. Once committed it cannot be cancelled: what is reserved stays spent, so the answer
may as well be had. A job ends at fixed steps of time, because how long work took may depend on the data.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from sottovoce.errors import InvalidParameter, SottovoceError
from sottovoce.web.forms import in_words

State = Literal["working", "done", "failed", "cancelled"]

#: Seconds between the moments at which a job may end.
STEP = 0.25
#: Jobs at once; the others wait for their turn. Two keep the machine responsive beside the page.
AT_ONCE = 2
#: Jobs that are remembered; the oldest that have ended are forgotten.
REMEMBERED = 100
#: Letters of a job's name, in bytes of randomness: not to be guessed.
NAME = 16
UNFORESEEN = (
    "Something went wrong that sottovoce did not foresee. If the key is in the ledger, what it cost stays spent. "
    "Please report what you did, without the data."
)
TOO_LATE = "It is too late to cancel: everybody has been charged, and what is charged stays spent."


class Cancelled(Exception):
    """The work was given up before anybody was charged."""


@dataclass(eq=False)
class Job:
    """One piece of work, as far as it has come."""

    what: str
    rows: int = 0
    state: State = "working"
    sentence: str = ""  # what went wrong, in words without data
    result: Any = None
    cancelled: bool = False
    committed: bool = False
    began: float = field(default_factory=time.monotonic)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, rows: int) -> None:
        """Notes how many rows were read, and stops the work if it was cancelled before the reservation."""
        self.rows = rows
        if self.cancelled and not self.committed:
            raise Cancelled

    def commit(self) -> None:
        """Says that people are about to be charged; from now on nobody can cancel."""
        with self._turn:
            if self.cancelled:
                raise Cancelled
            self.committed = True

    def cancel(self) -> None:
        """Gives the work up, or says why that is too late."""
        with self._turn:
            if self.committed or self.state != "working":
                raise InvalidParameter(
                    TOO_LATE if self.committed else "This work has ended already.", "", "Look at what came of it."
                )
            self.cancelled = True

    def run(self, work: Callable[[Job], Any]) -> None:
        """Does the work, and keeps what came of it: a result or a sentence, never a traceback."""
        ended: tuple[State, str] = ("done", "")
        try:
            self.watch(0)
            self.result = work(self)
        except Cancelled:
            ended = ("cancelled", "Cancelled before anybody was charged.")
        except SottovoceError as error:
            ended = ("failed", in_words(error))
        except Exception:  # not even the kind of error is told: after rows have been read it may depend on them
            ended = ("failed", UNFORESEEN)
        time.sleep(until_the_next(STEP, time.monotonic() - self.began))
        self.state, self.sentence = ended


class Jobs:
    """All work beside the page, by names that cannot be guessed."""

    def __init__(self) -> None:
        self._known: dict[str, Job] = {}
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sottovoce-job")

    def start(self, work: Callable[[Job], Any], what: str = "") -> str:
        """Begins the work, and returns the name under which it is found."""
        job, name = Job(what), secrets.token_urlsafe(NAME)  # a name, not noise: no answer depends on it
        self._forget()
        self._known[name] = job
        self._pool.submit(job.run, work)
        return name

    def find(self, name: str) -> Job | None:
        """Returns the job of this name, if it is remembered."""
        return self._known.get(name)

    def close(self) -> None:
        """Cancels what can be cancelled, and waits for what cannot."""
        for job in self._known.values():
            if job.state == "working" and not job.committed:
                job.cancelled = True
        self._pool.shutdown(wait=True)

    def _forget(self) -> None:
        ended = [name for name, job in self._known.items() if job.state != "working"]
        for name in ended[: max(len(self._known) - REMEMBERED + 1, 0)]:
            del self._known[name]


def until_the_next(step: float, passed: float) -> float:
    """Returns how long it is until the next whole number of steps."""
    return max(math.ceil(passed / step) * step - passed, 0.0)
