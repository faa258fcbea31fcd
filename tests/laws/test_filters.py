"""The filter, exactly: all ways that an adaptive sequence of questions can go, with the books
deciding who takes part.

Each question is a randomised answer about one bit a person, whose loss is known exactly, and its
price depends on the answers before. Every path is followed to its end through real books, and the
largest difference between neighbours over the whole tree is compared with what the person granted
(docs/theory/composition.md, theorems 5 and 6).
"""

from __future__ import annotations

import math
from itertools import count

import numpy as np
import pytest

from sottovoce import units
from sottovoce.errors import BudgetExceeded
from sottovoce.ledger import Amounts
from sottovoce.ledgers import open_ledger

GRANTED = {"strict": 0.5, "loose": 2.0}
#: Prices of the next question, by how the answers before went: what an adaptive curator might do.
PRICES = {0: 0.2, 1: 0.35, 2: 0.9}
#: Enough questions that nobody can pay for all of them.
QUESTIONS = 6
DELTA = 0.01
DELTA_IN_ALL = 0.025
fresh_key = count()


class Path:
    """One sequence of answers, with books of its own."""

    def __init__(self, person, accounts):
        self.person = person
        self.ledger = open_ledger(None)
        self.accounts = accounts
        allowed = [
            units.round_down([GRANTED[person]]),
            np.array([int(units.round_down_delta(DELTA_IN_ALL))]),
        ]
        self.grants = [
            Amounts([person], amount, account)
            for amount, account in zip(allowed, accounts, strict=False)
        ]
        self.ledger.grant(self.grants)

    def pays(self, price):
        """Whether the person takes part at this price."""
        amounts = [units.round_up_decimal([price]), np.array([int(units.round_up_delta(DELTA))])]
        asked = [
            Amounts([self.person], amount, name)
            for amount, name in zip(amounts, self.accounts, strict=False)
        ]
        try:
            self.ledger.reserve(f"q{next(fresh_key)}", "", asked)
        except BudgetExceeded:
            return False
        return True


def followed(person, accounts, answers, pays=Path.pays):
    """Probabilities of every sequence of answers under bit 0 and under bit 1."""
    found = []
    waiting = [((), 1.0, 1.0)]
    while waiting:
        past, zero, one = waiting.pop()
        if len(past) == QUESTIONS:
            found.append((zero, one))
            continue
        path = Path(person, accounts)
        price = None
        part = False
        for k in range(len(past) + 1):  # the books are led along the same path again
            price = PRICES[sum(past[:k]) % 3]
            part = pays(path, price)
        for answer, (p, q) in enumerate(answers(price) if part else [(0.5, 0.5), (0.5, 0.5)]):
            waiting.append(((*past, answer), zero * p, one * q))
    return np.array(found)


def response(price):
    """Randomised response with loss ε: the truth with odds e^ε."""
    p = 1 / (1 + math.exp(-price))
    return [(p, 1 - p), (1 - p, p)]


def leaking(price):
    """The worst that an ε at δ allows: with probability δ the bit itself, else randomised
    response.
    """
    return [
        (DELTA, 0.0),
        *((p * (1 - DELTA), q * (1 - DELTA)) for p, q in response(price)),
        (0.0, DELTA),
    ]


def unpaid(path, price):
    """A planted bug: whoever could pay once goes on taking part."""
    path.pays(price)
    return True


@pytest.mark.parametrize("person", GRANTED)
def test_pure_epsilon_never_exceeds_the_cap_and_comes_close(person):
    zero, one = followed(person, ["pure epsilon, replace"], response).T
    assert zero.sum() == pytest.approx(1)
    worst = np.abs(np.log(zero / one)).max()
    assert 0.69 * GRANTED[person] < worst <= GRANTED[person] + 1e-9


@pytest.mark.parametrize("person", GRANTED)
def test_rho_never_exceeds_the_cap(person):
    """Randomised response of ε is ε²/2-zCDP; here the prices are ρ, so the answers have ε =
    √(2ρ).
    """
    zero, one = followed(person, ["zCDP rho, replace"], lambda rho: response(math.sqrt(2 * rho))).T
    for order in (1.5, 2.0, 8.0, 64.0):
        divergence = math.log(float((zero**order * one ** (1 - order)).sum())) / (order - 1)
        assert divergence <= order * GRANTED[person]


@pytest.mark.parametrize("person", GRANTED)
def test_epsilon_at_delta_keeps_both_sums(person, monkeypatch):
    monkeypatch.setitem(globals(), "QUESTIONS", 4)
    accounts = ["epsilon at delta, zero out", "delta, zero out"]
    zero, one = followed(person, accounts, leaking).T
    lost = np.maximum(zero - math.exp(GRANTED[person]) * one, 0).sum()
    assert 0 < lost <= DELTA_IN_ALL


@pytest.mark.parametrize("person", GRANTED)
def test_people_who_are_not_left_out_are_caught(person):
    zero, one = followed(person, ["pure epsilon, replace"], response, unpaid).T
    assert np.abs(np.log(zero / one)).max() > 1.2 * GRANTED[person]
