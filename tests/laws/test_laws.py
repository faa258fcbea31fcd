"""What every estimator obeys, whatever the budgets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import HIGH, LOW, PEOPLE, every_case, every_people
from seams import silent
from sottovoce import Budgets

grants = st.floats(1e-6, 50, allow_nan=False)


def planned(case, people):
    return case.make().plan(epsilon=people.epsilon, groups=people.groups)


def granted(people):
    _, first = np.unique(people.owners, return_index=True)
    return people.epsilon[first]


@every_case
@pytest.mark.parametrize("rows", [2, 100, 12345])
@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 7.0])
def test_equal_budgets_give_the_classical_mechanism_with_its_noise_scale(case, rows, epsilon):
    plan = case.make().plan(epsilon=epsilon, rows=rows)
    # Shares of a budget are rounded down to whole units: a third of 0.001 loses a millionth of it.
    assert plan.noise["scale"] == pytest.approx(case.classical_scale(rows, epsilon), rel=2e-6)
    assert np.all(plan.charges <= epsilon)
    assert plan.charges == pytest.approx(epsilon, rel=1e-5)


@every_case
@every_people
def test_charges_never_exceed_grants_in_integers(case, people):
    plan = planned(case, people)
    budgets = Budgets.of(people.epsilon, people.groups)
    assert np.all(plan.guarantee.units <= budgets.by_person(budgets.kinds.epsilon))
    assert plan.guarantee.units.dtype == np.int64


@every_case
@every_people
def test_the_person_with_the_smallest_epsilon_gets_it(case, people):
    spent = planned(case, people).charges
    own = granted(people)
    strict = int(np.argmin(own))
    assert spent[strict] <= own[strict]
    if (
        people.groups is None
    ):  # with one row each the strictest is always among those who pay in full
        assert spent[strict] == pytest.approx(own[strict], rel=1e-4)


@every_case
@every_people
def test_what_was_planned_is_what_was_spent(case, people):
    estimator = case.make().fit(
        np.linspace(LOW, HIGH, len(people.epsilon)), people.epsilon, people.groups
    )
    assert np.array_equal(planned(case, people).charges, estimator.guarantee_.epsilon)
    assert estimator.release_.certificate.plan_digest == planned(case, people).digest


@every_case
@every_people
def test_permuting_people_permutes_nothing_else(case, people):
    values = np.linspace(LOW, HIGH, len(people.epsilon)) ** 1.3
    order = np.random.default_rng(5).permutation(len(values))
    if people.groups is None:
        shuffled_groups = None
    else:
        shuffled_groups = people.groups[order]
    with silent():
        one = case.make().fit(values, people.epsilon, people.groups)
    with silent():
        two = case.make().fit(values[order], people.epsilon[order], shuffled_groups)
    assert np.array_equal(one.value_, two.value_)
    if people.groups is None:
        expected = one.guarantee_.epsilon[order]
    else:
        expected = one.guarantee_.epsilon
    assert np.array_equal(two.guarantee_.epsilon, expected)


@every_case
@every_people
def test_the_expected_error_falls_when_everybody_grants_more(case, people):
    richer = case.make().plan(epsilon=people.epsilon * 2, groups=people.groups).expected_error
    assert np.all(
        np.asarray(richer) <= np.asarray(planned(case, people).expected_error) * (1 + 1e-9)
    )


@every_case
@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.lists(grants, min_size=2, max_size=12), raised=st.floats(1.01, 20), data=st.data()
)
def test_raising_one_budget_never_lowers_that_voice_nor_breaks_a_promise(
    case, epsilon, raised, data
):
    who = data.draw(st.integers(0, len(epsilon) - 1))
    before = np.array(epsilon)
    after = before.copy()
    after[who] *= raised
    one = case.make().plan(epsilon=before)
    two = case.make().plan(epsilon=after)
    assert person_weight(two, who) >= person_weight(one, who) * (1 - 1e-9)
    assert np.all(two.charges <= after)


def person_weight(plan, who):
    return plan.budgets.by_person(plan.weights.person)[who] / plan.weights.total


@every_case
def test_a_plan_needs_no_values_and_names_unit_neighbours_and_currency(case):
    text = planned(case, PEOPLE[1]).describe()
    assert all(word in text for word in ("pure ε", "person", "replace", "granted", "spent"))
