"""Nobody loses more to a table than they are charged, exactly, and somebody loses nearly that."""

from __future__ import annotations

import math

import pytest

from cases import strictest_and_loosest
from table_audits import PEOPLE, audit_table, every_table_case

#: Rounding of the test's own division; what is charged is rounded up to a billionth.
OWN_ERROR = 1e-9
#: The share of the charge that the worst pair reaches. Products are bounded by a norm that a pair
#: of rows with equal squares reaches in part.
TIGHT = {"covariance": 0.5}


@every_table_case
@pytest.mark.parametrize("people", PEOPLE, ids=repr)
def test_no_exact_loss_exceeds_the_charge_and_the_worst_comes_close(case, people):
    owners = dict.fromkeys([*strictest_and_loosest(people), people.owners[-1], people.owners[4]])
    for owner in owners:
        loss, charge = audit_table(case, people, owner)
        granted = people.epsilon[people.owners == owner][0]
        assert loss <= charge * (1 + OWN_ERROR)
        assert charge <= granted
        assert loss >= TIGHT.get(case.name, 0.999) * charge - 2e-9
        assert math.isfinite(loss)
