"""Nobody loses more than promised: exact losses, for the strictest and the loosest person apart."""

from __future__ import annotations

import numpy as np
import pytest

from cases import CASES, PEOPLE, audit, every_case, strictest_and_loosest

#: Rounding of the test's own quadrature; losses of the mean are compared as exact ratios.
OWN_ERROR = 1e-9


#: The last question, three quantiles at once, is slow to audit: with two kinds of people every
#: time, with all for long.
EVERY = [
    pytest.param(
        case,
        people,
        id=f"{people!r}-{case!r}",
        marks=pytest.mark.long if case is CASES[-1] and i > 1 else (),
    )
    for case in CASES
    for i, people in enumerate(PEOPLE)
]


@pytest.mark.parametrize(("case", "people"), EVERY)
@pytest.mark.parametrize("which", [0, 1], ids=["strictest", "loosest"])
def test_no_exact_loss_exceeds_the_charge(case, people, which):
    owner = strictest_and_loosest(people)[which]
    loss, charge = audit(case, people, owner)
    granted = people.epsilon[people.owners == owner][0]
    assert loss <= charge * (1 + OWN_ERROR)
    assert charge <= granted


@every_case
def test_the_worst_pair_comes_close_so_the_audit_can_fail(case):
    for owner in strictest_and_loosest(PEOPLE[0]):
        loss, charge = audit(case, PEOPLE[0], owner)
        assert loss >= case.tightness * charge


def test_the_strictest_person_is_not_given_the_average():
    people = PEOPLE[0]
    for case in CASES:
        charges = case.make().plan(epsilon=people.epsilon).charges
        strict, loose = strictest_and_loosest(people)
        assert charges[strict] <= people.epsilon.min() < np.mean(people.epsilon)
        assert charges[strict] < charges[loose]
