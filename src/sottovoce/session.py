# SPDX-License-Identifier: Apache-2.0
"""Session, the one door: holds the engine and the ledger, and keeps the order of the steps.

    plan → is the table fit to be read? → reserve → run → publish

People who cannot afford a release are left out before it is planned for good (or the release is
refused, if the session was told so); their rows are not read. Who was left out depends only on
budgets and on earlier charges, which are public, so it tells nothing (docs/theory/composition.md).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from sottovoce import units
from sottovoce.budgets import LEAVE_OUT, Budgets
from sottovoce.engine import KINDS, Rows
from sottovoce.errors import (
    BudgetExceeded,
    IncompatibleGuarantees,
    InvalidParameter,
    KeyReused,
    ReleaseFailed,
    UnsupportedLedger,
)
from sottovoce.ledger import Entry, Ledger
from sottovoce.ledgers.memory import MemoryLedger
from sottovoce.plan import Plan
from sottovoce.question import Question, refuse_unfit, run
from sottovoce.release import Release
from sottovoce.table import Array, factorise


class Session:
    """Grants, charges and releases against one set of books.

    >>> import sottovoce as sv
    >>> session = sv.Session()
    >>> session.grant({"ada": 1.0, "ben": 0.2})
    >>> release = session.release(sv.Mean(bounds=(0, 1)), [0.2, 0.9], groups=["ada", "ben"], epsilon=0.2, key="first")
    >>> session.balance("ben"), session.release(sv.Mean(bounds=(0, 1)), [0.2, 0.9], groups=["ada", "ben"],
    ...     epsilon=0.2, key="first") == release
    (0.0, True)
    """

    def __init__(self, ledger: str | Ledger | None = None, engine: str = "arrow", short: str = LEAVE_OUT) -> None:
        if engine not in KINDS or short not in (LEAVE_OUT, "refuse"):
            raise InvalidParameter(
                "The session does not know this engine, or this way to treat people short of budget.",
                f"Engines: {', '.join(KINDS)}; short is 'leave out' or 'refuse'.",
                "Choose among these.",
            )
        self.engine, self.short = engine, short
        self._ledger: Ledger = MemoryLedger() if ledger is None else _ledger(ledger)

    def grant(self, budgets: Mapping[Any, float] | Budgets) -> None:
        """Sets what each person allows in all, over everything this ledger will ever see."""
        if isinstance(budgets, Budgets):
            names = _names(budgets)
            self._ledger.grant(dict(zip(names, budgets.by_person(budgets.kinds.epsilon).tolist(), strict=True)))
            return
        amounts = units.grant(list(budgets.values()), zero_allowed=True).tolist()
        self._ledger.grant(dict(zip(budgets.keys(), amounts, strict=True)))

    def charge(self, amounts: Mapping[Any, float], key: str) -> None:
        """Writes down what something outside this library cost; rounds up; the same key again changes nothing."""
        charges = dict(zip(amounts, units.declared(list(amounts.values())).tolist(), strict=True))
        entry = self._ledger.find(key)
        if entry is None:
            self._ledger.reserve(key, "", charges)
        elif dict(entry.charges) != charges:
            raise _another(key)

    def balance(self, person: Any) -> float:
        """What a person has left, as ε."""
        return float(units.epsilon(self._ledger.balance(person)))

    def release(
        self, question: Question, X: Any, y: Any = None, *, groups: Any, key: str, epsilon: Any = None
    ) -> Release:
        """Answers a question about data in memory (one column, or features and label), and charges its people.

        ``epsilon`` is what this release may cost each (number or mapping); without it, all that each has left.
        """
        people, owner = factorise(groups)
        request = _request(question, epsilon, people, owner)
        entry = self._ledger.find(key)
        if entry is not None:  # looked up before balances are: what it cost then is not asked for again
            return self._again(entry, request)
        balances = {person: self._ledger.balance(person) for person in people.tolist()}
        wanted = self._affordable(epsilon, balances)
        data = (X,) if y is None else (X, y)
        budgets, rows = question.gather(*data, epsilon=Budgets.of(wanted, groups, zero=LEAVE_OUT), groups=None)
        return self.release_rows(question, budgets, rows, key, request)

    def release_rows(
        self, question: Question, budgets: Budgets, rows: Rows, key: str, request: str | None = None
    ) -> Release:
        """Answers a question about rows wherever they live; people without names have no account to charge.

        People with names need a grant first.
        """
        plan = question.plan_for(budgets, rows)
        request = plan.digest if request is None else request
        entry = self._ledger.find(key)
        if entry is not None:
            return self._again(entry, request)
        refuse_unfit(question, plan, rows)
        self._ledger.reserve(key, request, self._charges(plan))
        release = run(question, plan, rows)
        self._ledger.publish(key, release.to_json())
        return release

    def verify(self) -> None:
        """Checks that the books add up; raises if they do not."""
        self._ledger.verify()

    def _affordable(self, epsilon: Any, balances: Mapping[Any, int]) -> dict[Any, float]:
        """What each may be charged now: what is asked where they can pay it, else zero, which leaves them out."""
        if epsilon is None:
            return {person: units.epsilon(left) for person, left in balances.items()}
        if np.ndim(epsilon):
            raise InvalidParameter(
                "A session is told by person what a release may cost, not by row.",
                "",
                "Pass one ε for everybody, or a mapping from person to ε.",
            )
        asked = _checked(epsilon if isinstance(epsilon, Mapping) else dict.fromkeys(balances, epsilon))
        short = [
            person
            for person in balances
            if int(units.grant(asked.get(person, 0.0), zero_allowed=True)) > balances[person]
        ]
        if short and self.short == "refuse":
            raise BudgetExceeded(
                "Somebody has not enough left for this.",
                "This session was told to refuse rather than to leave people out.",
                "Ask for less, or open the session with short='leave out'.",
            )
        return {person: 0.0 if person in set(short) else asked.get(person, 0.0) for person in balances}

    def _charges(self, plan: Plan) -> dict[Any, int]:
        if (plan.guarantee.currency, plan.guarantee.neighbours) != ("pure epsilon", "replace"):
            raise IncompatibleGuarantees(
                "This ledger counts pure ε under replacement of whole rows, and the question spends something else.",
                "ρ of zCDP, and promises about labels alone, do not add up with that.",
                "Ask the question outside this session.",
            )
        if plan.budgets.people is None:
            return {}
        amounts = zip(plan.budgets.people.tolist(), plan.guarantee.units.tolist(), strict=True)
        return {person: amount for person, amount in amounts if amount}

    def _again(self, entry: Entry, request: str) -> Release:
        if entry.request != request:
            raise _another(entry.key)
        if entry.release is None:
            raise ReleaseFailed()
        return Release.from_json(entry.release)


def _request(question: Question, epsilon: Any, people: Array, owner: Array) -> str:
    """A fingerprint of what was asked, of whom, at which price: the same key must always mean the same request."""
    price = sorted(map(repr, epsilon.items())) if isinstance(epsilon, Mapping) else repr(epsilon)
    asked = [type(question).__name__, question.get_params(), price]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=_spelt).encode())
    digest.update(repr(people.tolist()).encode())
    digest.update(np.ascontiguousarray(owner).data)
    return digest.hexdigest()


def _spelt(parameter: Any) -> Any:
    # Arrays in full: NumPy's own repr leaves out the middle of long ones.
    if isinstance(parameter, np.ndarray | np.generic):
        return parameter.tolist()
    if hasattr(parameter, "to_numpy"):  # data frames, whose repr leaves it out too
        return [list(parameter.columns) if hasattr(parameter, "columns") else [], parameter.to_numpy().tolist()]
    return vars(parameter) if is_dataclass(parameter) else repr(parameter)


def _another(key: str) -> KeyReused:
    return KeyReused(
        f"The key {key!r} stands for another release already.", "One key, one release, for ever.", "Choose a new key."
    )


def _checked(amounts: Mapping[Any, float]) -> Mapping[Any, float]:
    units.grant(list(amounts.values()), zero_allowed=True)
    return amounts


def _names(budgets: Budgets) -> list[Any]:
    if budgets.people is None:
        raise InvalidParameter(
            "These budgets do not name people.", "An account belongs to a person.", "Build them with groups=."
        )
    return list(budgets.people.tolist())


def _ledger(ledger: str | Ledger) -> Ledger:
    if not isinstance(ledger, str):
        return ledger
    raise UnsupportedLedger(
        "This version keeps its books in memory only.",
        "",
        "Open the session with ledger=None, or pass an object with the methods of sottovoce.ledger.Ledger.",
    )
