"""Mistakes of tables, planted on purpose: the exact audits must catch every one of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import sottovoce as sv
from cases import PEOPLE, strictest_and_loosest
from sottovoce import errors
from sottovoce.data.cells import make_cells
from sottovoce.estimators import (
    count,
    group_means,
    mean,
    table_mechanism,
    table_steps,
    table_sums,
    variance,
)
from sottovoce.estimators.table_law import NoiseLaw
from sottovoce.weights import Weights
from table_audits import TABLE_CASES, audit_table, every_table_case

COUNT, MANY, MEANS, *_ = TABLE_CASES
SQUARES = TABLE_CASES[-1]
SEVERAL_ROWS = PEOPLE[1]


def is_caught(case, people, owners=()) -> bool:
    for owner in owners or strictest_and_loosest(people):
        try:
            loss, charge = audit_table(case, people, owner)
        except (errors.SottovoceError, AssertionError):
            return True
        if loss > charge * (1 + 1e-9):
            return True
    return False


def test_nothing_is_caught_where_nothing_is_planted():
    for owners in ((), ["p3", "p4"]):
        assert not is_caught(COUNT, SEVERAL_ROWS, owners)
        assert not is_caught(MEANS, SEVERAL_ROWS, owners)


@every_table_case
def test_rows_counted_instead_of_people_are_caught(case, monkeypatch):
    """Sensitivity by the rows that somebody has, one at a time."""
    original = Weights.from_integers.__func__

    def by_row(cls, kinds, row):
        alone = replace(kinds, rows=np.ones_like(kinds.rows))
        wrong = original(cls, alone, row)
        right = original(cls, kinds, row)
        return replace(right, loudest=wrong.loudest, charges=wrong.charges)

    monkeypatch.setattr(Weights, "from_integers", classmethod(by_row))
    assert is_caught(case, SEVERAL_ROWS, owners=["p3", "p4"])  # who have five rows, and nine


@pytest.mark.parametrize("case", [MANY, TABLE_CASES[4]], ids=repr)
def test_sensitivity_one_for_two_is_caught(case, monkeypatch):
    """Replacing a row takes it out of one cell and puts it into another."""
    monkeypatch.setattr(NoiseLaw, "factor", property(lambda self: 1))
    assert is_caught(case, PEOPLE[0])


@pytest.mark.parametrize("case", [COUNT, MEANS], ids=repr)
def test_levels_read_off_the_data_are_caught(case, monkeypatch):
    """The plan, and the number of answers, then tell which levels there are."""
    original = table_steps.load_cells

    def look(question, table, *rest, **options):
        levels = sorted({g for g in table.column("g").to_pylist() if g is not None})
        question.by = make_cells({"g": levels})
        return original(question, table, *rest, **options)

    for module in (table_steps, mean):
        monkeypatch.setattr(module, "load_cells", look)
    assert is_caught(case, PEOPLE[0])


@pytest.mark.parametrize("case", [COUNT, MEANS], ids=repr)
def test_weights_renormalised_by_what_is_present_are_caught(case, monkeypatch):
    """Dividing by the weight of the rows that have a known level tells how many there are."""
    original = table_mechanism.sum_slots

    def renormalise(plan, rows):
        slots = original(plan, rows)
        parts = len(plan.grid.parts)
        known = slots[: 3 * parts]
        whole = int(slots.sum())
        present = int(known.sum())
        return np.array([int(slot) * whole // present for slot in known] + [0] * 2 * parts)

    for module in (count, group_means, table_sums, variance):
        monkeypatch.setattr(module, "sum_slots", renormalise)
    assert is_caught(case, PEOPLE[0])


def test_squares_with_the_noise_of_sums_are_caught(monkeypatch):
    """What a row adds to three slots together is N², not N."""
    assert not is_caught(SQUARES, PEOPLE[0])
    original = table_mechanism.TableGrid.unit.fget

    def forget(self):
        return original(self) // self.values.cells if self.degree == 2 else original(self)

    monkeypatch.setattr(table_mechanism.TableGrid, "unit", property(forget))
    assert is_caught(SQUARES, PEOPLE[0])


def test_a_middle_slot_of_half_its_size_is_caught(monkeypatch):
    """The slots of a row no longer add up to the same whatever its value is."""
    original = table_mechanism.sum_slots

    def halve(plan, rows):
        slots = original(plan, rows).copy()
        slots[1 :: len(plan.grid.parts)] //= 2
        return slots

    monkeypatch.setattr(group_means, "sum_slots", halve)
    assert is_caught(SQUARES, PEOPLE[0])


def test_a_filter_whose_size_is_told_is_caught(monkeypatch):
    """Rows outside a filter left out of the table: the total is then the size of the group."""
    table = pa.table({"g": ["a", "b"] * 20, "y": np.linspace(0, 1, 40)})
    other = pa.table({"g": ["b", "b", *["a", "b"] * 19], "y": np.linspace(0, 1, 40)})
    asked = sv.Count(where="g == 'a'", schema=SCHEMA)
    right = [sum_exactly(asked, rows) for rows in (table, other)]
    assert right[0].sum() == right[1].sum()
    assert right[0][:-1].sum() != right[1][:-1].sum()


SCHEMA = sv.Schema.loads('[columns.g]\nkind = "factor"\nlevels = ["a", "b"]\n')


def sum_exactly(asked, table):
    rows = asked.read_arrays(table, epsilon=1.0, groups=None)
    return table_mechanism.sum_slots(asked.plan_for(rows.budgets, rows), rows)
