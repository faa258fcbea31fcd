"""Budgets as whole numbers, from everything people hand over."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce import arrays, errors, units
from sottovoce.arrays import number_distinct


@given(st.floats(1e-9, 1e6))
def test_grants_round_down_and_the_double_never_exceeds_what_was_given(epsilon):
    granted = int(units.round_down(epsilon))
    assert units.to_epsilon(granted) <= epsilon
    assert Fraction(granted) >= Fraction(epsilon) * 10**9 - 1 - Fraction(epsilon) * 2


@given(st.integers(1, 10**15))
def test_a_decimal_with_nine_places_is_granted_exactly(nano):
    assert int(units.round_down(nano / 10**9)) == nano


@given(st.floats(0, 1e6))
def test_charges_round_up(loss):
    charged = int(units.round_up(np.array([loss]))[0])
    assert Fraction(charged) >= Fraction(loss) * 10**9
    assert Fraction(charged) <= Fraction(loss) * 10**9 * (1 + Fraction(1, 2**40)) + 1


@given(st.floats(0, 1e6))
def test_declared_losses_round_up_and_decimals_stay_what_they_are(loss):
    assert units.to_epsilon(int(units.round_up_decimal(loss))) >= loss
    assert int(units.round_up_decimal(int(units.round_up_decimal(loss)) / 10**9)) == int(
        units.round_up_decimal(loss)
    )


@pytest.mark.parametrize(
    "epsilon", [0, -1, np.nan, np.inf, -np.inf, 1e-10, 1.1e6, 1e300, "much", None, [0.1, np.nan]]
)
def test_what_is_no_budget_is_refused(epsilon):
    with pytest.raises(errors.InvalidBudget):
        units.round_down(epsilon)


EPSILON = [0.1, 2.0, 0.1, 0.5]
OWNERS = ["b", "a", "b", "c"]


@pytest.mark.parametrize(
    "column",
    [list, np.array, pd.Series, pl.Series, pa.array, lambda x: pa.chunked_array([x[:2], x[2:]])],
)
def test_every_kind_of_column_gives_the_same_budgets(column):
    budgets = sv.Budgets.of(column(EPSILON), groups=column(OWNERS))
    assert budgets.people.tolist() == ["a", "b", "c"]
    assert budgets.epsilon.tolist() == [2.0, 0.1, 0.5]
    assert budgets.kinds.rows[budgets.codes].tolist() == [1, 2, 1]
    assert budgets.n_rows == 4
    assert budgets.n_people == 3


def test_mappings_series_tiers_and_numbers():
    by_name = {"a": 2.0, "b": 0.1, "c": 0.5, "who owns no row": 1.0}
    assert sv.Budgets.of(by_name, groups=OWNERS).epsilon.tolist() == [2.0, 0.1, 0.5]
    assert sv.Budgets.listed(list(by_name), list(by_name.values()), OWNERS).epsilon.tolist() == [
        2.0,
        0.1,
        0.5,
    ]
    assert sv.Budgets.of(0.3, groups=OWNERS).epsilon.tolist() == [0.3] * 3
    assert sv.Budgets.of(0.3, rows=2).epsilon.tolist() == [0.3] * 2
    tiers = sv.Budgets.tiers(
        {"open": 1.0, "shy": 0.1}, ["open", "shy", "open", "shy"], groups=[1, 2, 1, 3]
    )
    assert tiers.epsilon.tolist() == [1.0, 0.1, 0.1]


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0.1, 0.5])), min_size=2, max_size=40))
def test_kinds_count_everybody_once(rows):
    owners = [owner for owner, _ in rows]
    own = dict(rows)  # the last mention decides
    budgets = sv.Budgets.of([own[o] for o in owners], groups=owners)
    assert budgets.epsilon.tolist() == [own[o] for o in sorted(set(owners))]
    assert budgets.kinds.rows[budgets.codes].tolist() == [
        owners.count(o) for o in sorted(set(owners))
    ]
    assert budgets.n_people == len(set(owners))
    assert np.array_equal(budgets.people[budgets.owner], owners)
    assert len(
        set(zip(budgets.kinds.epsilon.tolist(), budgets.kinds.rows.tolist(), strict=True))
    ) == len(budgets.kinds)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"epsilon": [0.1, 0.2], "groups": ["a", "a"]}, errors.InconsistentBudget),
        ({"epsilon": {"a": 0.1}, "groups": ["a", "b"]}, errors.UnknownPeople),
        (
            {"epsilon": pd.Series({"a": 0.1, "c": 0.2}), "groups": ["a", "b", "a"]},
            errors.UnknownPeople,
        ),
        ({"epsilon": pd.Series({"a": 0.1, "c": 0.2}), "groups": ["a", "b"]}, errors.UnknownPeople),
        ({"epsilon": pd.Series({7: 0.1, 8: 0.2}), "groups": [8, 7]}, errors.InvalidParameter),
        ({"epsilon": pd.Series([0.1, 0.2]), "groups": [8, 7, 8]}, errors.UnequalLengths),
        (
            {"epsilon": pd.Series([0.1, pd.NA], dtype="Float64"), "groups": [1, 0]},
            errors.InvalidBudget,
        ),
        ({"epsilon": {"a": 0.1}}, errors.InvalidParameter),
        ({"epsilon": 0.1}, errors.InvalidParameter),
        ({"epsilon": [0.1, 0.2, 0.3], "rows": 2}, errors.UnequalLengths),
        ({"epsilon": [0.1, 0.2, 0.3], "groups": ["a", "b"]}, errors.UnequalLengths),
        ({"epsilon": 0.1, "groups": ["a", "b"], "rows": 3}, errors.UnequalLengths),
        ({"epsilon": 0.1, "groups": ["a", None]}, errors.UnknownPeople),
        ({"epsilon": 0.1, "groups": [1.0, np.nan]}, errors.UnknownPeople),
        ({"epsilon": 0.1, "groups": np.array([1, "a"], dtype=object)}, errors.UnknownPeople),
        ({"epsilon": [[0.1, 0.2], [0.1, 0.2]]}, errors.WrongType),
        ({"epsilon": [], "rows": 0}, errors.TooFewRows),
        ({"epsilon": [0.1]}, errors.TooFewRows),
        ({"epsilon": [0.0, 0.1]}, errors.InvalidBudget),
        ({"epsilon": 0.1, "rows": 3, "zero": "perhaps"}, errors.InvalidParameter),
    ],
)
def test_bad_budgets_are_named_errors(arguments, error):
    with pytest.raises(error):
        sv.Budgets.of(**arguments)


def test_a_series_is_a_column_whatever_its_index():
    """A frame sorted by id: the index must not be taken for people, or somebody gets another's
    ε.
    """
    shuffled = pd.Series([0.5, 1.0, 2.0, 0.1], index=[3, 2, 1, 4])
    assert sv.Budgets.of(shuffled, groups=pd.Series([3, 2, 1, 4])).epsilon.tolist() == [
        2.0,
        1.0,
        0.5,
        0.1,
    ]


def test_a_person_listed_twice():
    with pytest.raises(errors.DuplicatePeople):
        sv.Budgets.listed(["a", "a"], [0.1, 0.2], groups=["a", "a"])


def test_budgets_and_groups_together_are_refused():
    with pytest.raises(errors.InvalidParameter):
        sv.Mean(bounds=(0, 1)).fit(
            [0.1, 0.2], epsilon=sv.Budgets.of(0.1, rows=2), groups=["a", "a"]
        )


def test_people_who_grant_nothing_are_left_out_when_told_so():
    budgets = sv.Budgets.of([0.0, 0.4, 0.4], zero="leave out")
    secret = np.array(
        [np.nan, 1.0, 1.0]
    )  # not even the missing value of somebody left out is looked at
    mean = sv.Mean(bounds=(0, 2)).fit(secret, epsilon=budgets)
    assert mean.guarantee_.epsilon.tolist() == [0.0, 0.4, 0.4]


def test_a_charge_is_cut_by_roundings_and_by_nothing_else():
    granted = np.array([5, 10**9, 10**15])
    assert units.check_within_grant(granted + 1, granted).tolist() == granted.tolist()
    assert units.check_within_grant(granted - 1, granted).tolist() == (granted - 1).tolist()
    for who in range(3):
        charged = granted.copy()
        charged[who] = granted[who] * 1.000001 + 3
        with pytest.raises(errors.BudgetExceeded):
            units.check_within_grant(charged, granted)


@given(st.floats(0, 1))
def test_a_delta_is_granted_downwards_and_charged_upwards_to_the_next_unit(delta):
    granted = int(units.round_down_delta(delta))
    charged = int(units.round_up_delta(delta))
    assert granted / 10**15 <= delta <= charged / 10**15
    assert charged - granted <= 1
    assert (granted == charged) == (granted / 10**15 == delta)


@pytest.mark.parametrize(
    "delta", [-1e-20, 1.5, np.nan, np.inf, "much", None, [0.1, np.nan], 10**400]
)
def test_what_is_no_delta_is_refused(delta):
    for rounded in (units.round_down_delta, units.round_up_delta):
        with pytest.raises(errors.InvalidBudget):
            rounded(delta)


@given(
    st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 5), max_size=40),
    st.integers(0, 61),
)
def test_distinct_numbers_are_those_of_numpy(numbers, shift):
    """However large they are, and whether or not a number and its place fit into one word."""
    array = np.array(numbers, dtype=np.int64) >> shift
    expected = np.unique(array, return_inverse=True, return_counts=True)
    for ours, theirs in zip(number_distinct(array), expected, strict=True):
        assert ours.tolist() == theirs.tolist()


def test_names_that_arrow_cuts_into_chunks_are_those_of_one_piece(monkeypatch):
    """Arrow cuts long columns of text; ten million names are one."""
    names = np.array(["b", "a", "c", "a", "d", "b"])
    expected = arrays.factorise(names)
    make_array = pa.array

    def cut(array, **options):
        if array is not names:
            return make_array(array, **options)
        return pa.chunked_array([make_array(part, **options) for part in (array[:3], array[3:])])

    monkeypatch.setattr(pa, "array", cut)
    for found, wanted in zip(arrays.factorise(names), expected, strict=True):
        assert found.tolist() == wanted.tolist()
