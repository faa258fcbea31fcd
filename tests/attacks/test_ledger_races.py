"""64 processes against one cap, and many against one key: what is granted equals the cap, and a key
is charged once.

Nothing here depends on timing: whatever the order, the sums must be exact.
"""

from __future__ import annotations

import pytest

from ledgers.places import (
    ATTEMPTS,
    GRANT,
    MEAN,
    OWNERS,
    PEOPLE,
    PRICE,
    VALUES,
    add_up,
    ask_again,
    left,
    race,
    release,
    together,
)
from sottovoce import errors

#: 64 processes take the best part of a minute when each tries a hundred times: a server more so
#: than a file.
SOME = 10
FEW = 3


def test_64_processes_against_one_cap_in_a_file(in_file):
    cap, granted = race(in_file, SOME)
    assert granted == cap
    add_up(in_file, cap)


@pytest.mark.long
def test_64_processes_a_hundred_times_in_a_file(in_file):
    cap, granted = race(in_file, ATTEMPTS)
    assert granted == cap
    add_up(in_file, cap)


def test_64_processes_against_one_cap_on_a_server(on_server):
    cap, granted = race(on_server, FEW)
    assert granted == cap
    add_up(on_server, cap)


@pytest.mark.long
def test_64_processes_a_hundred_times_on_a_server(on_server):
    cap, granted = race(on_server, ATTEMPTS)
    assert granted == cap
    add_up(on_server, cap)


def test_a_key_that_is_asked_for_a_thousand_times_is_charged_once(place):
    session = place.granted()
    first = release(session, "k").to_json()
    paid = [left(session.ledger, person) for person in PEOPLE]
    assert all(round(GRANT * 1e9) - units <= round(PRICE * 1e9) for units in paid)
    (answers,) = ask_again(place, ["k"], times=125, processes=4)
    for _ in range(500):
        answers.add(release(session, "k").to_json())
    assert answers == {first}
    assert [left(session.ledger, person) for person in PEOPLE] == paid
    with pytest.raises(errors.KeyReused):
        session.release(MEAN, VALUES, groups=OWNERS, epsilon=PRICE / 2, key="k")
    session.verify()


def test_many_who_ask_for_a_new_key_at_once_get_the_same_bytes(place):
    keys = [f"k{number}" for number in range(4)]
    place.granted()
    answers = ask_again(place, keys, times=4, processes=12)
    session = place.session()
    assert answers == [{release(session, key).to_json()} for key in keys]
    assert sum(entry.what == "reserve" for entry in session.ledger.entries()) == len(keys)
    session.verify()


def test_releases_that_compete_for_a_budget_leave_people_out_and_never_overspend(place):
    """Six at once, of which the budget pays four; a session leaves out who is short, so the others
    find nobody.
    """
    place.granted(4 * PRICE)

    def runner(number: int) -> bool:
        try:
            return bool(release(place.session(), f"k{number}"))
        except errors.BudgetExceeded:  # nobody was left who could pay
            return False

    assert sum(together(6, runner)) == 4
    books = place.open()
    assert max(left(books, person) for person in PEOPLE) < round(PRICE * 1e9)
    books.verify()
