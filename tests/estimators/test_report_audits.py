"""What a report costs the strictest and the loosest, measured over all its answers together; and
bugs that the measurement, or a law, catches.

False alarms: a bound on a loss is wrong with probability 4e-8 (two directions of 2e-8).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import sottovoce as sv
from measurement import lower_bound_on_loss
from sottovoce.budgets import Budgets
from sottovoce.data.kernels import WeightedSum
from sottovoce.errors import BudgetExceeded
from sottovoce.estimators import mean, report, report_shares
from sottovoce.guarantee import Guarantee

GRANTS = np.array([0.1] * 8 + [0.5] * 8 + [2.0] * 8)
DRAWS = 10_000
STRICTEST = 0
LOOSEST = len(GRANTS) - 1


def make_report() -> sv.Report:
    """Two means that the same person moves; their answers together tell more than each."""
    question = {"association": 0.0, "interval_share": 0.0, "spread": 0.01}
    return sv.Report(
        {
            "one": (sv.Mean(bounds=(0, 1), **question), "x"),
            "two": (sv.Mean(bounds=(0, 1), **question), "y"),
        },
        shares={"one": 1, "two": 1},
    )


def draw(person: int, high: bool) -> tuple[np.ndarray, object]:
    """Returns the smaller of both answers, each over its noise scale, for many draws of the noise,
    and the plan.
    """
    values = np.full(len(GRANTS), 0.5)
    values[person] = float(high)
    question = make_report()
    rows = question.read_arrays(pa.table({"x": values, "y": values}), epsilon=GRANTS, groups=None)
    plan = question.plan_for(rows.budgets, rows)
    answers = []
    for name, part in plan.parts.items():
        own = rows.select_part(name)
        kernel = WeightedSum(own.value, part.grid.values, own.owner, part.weights.row)
        drawn = mean.draw_noisy_values(part, own.engine.fold(kernel), DRAWS)
        answers.append((np.array(drawn) - 0.5) / part.noise["scale"])
    return np.minimum(*answers), plan


def measure_loss(person: int) -> tuple[float, float]:
    """Returns a lower bound on what a person loses to both answers, and what they are charged."""
    one, plan = draw(person, True)
    two, _ = draw(person, False)
    loss = max(lower_bound_on_loss(one, two), lower_bound_on_loss(two, one))
    return loss, float(plan.charges[person])


def test_neither_the_strictest_nor_the_loosest_loses_more_than_they_are_charged():
    loss, charge = measure_loss(STRICTEST)
    assert loss <= charge <= GRANTS[STRICTEST]
    loss, charge = measure_loss(LOOSEST)
    assert loss <= charge <= GRANTS[LOOSEST]
    assert loss > 0.5 * charge  # so that a bug of half a budget shows


def test_a_part_that_nobody_is_charged_for_is_caught(monkeypatch):
    def forget(left: Guarantee, right: Guarantee) -> Guarantee:
        return left

    monkeypatch.setattr(report, "add", forget)
    loss, charge = measure_loss(LOOSEST)
    assert loss > charge


def test_shares_that_add_up_to_more_than_one_are_refused(monkeypatch):
    monkeypatch.setattr(
        report, "normalise_shares", lambda given: dict.fromkeys(given, report_shares.WHOLE)
    )
    with pytest.raises(BudgetExceeded):
        make_report().plan(epsilon=GRANTS)


def test_shares_that_slip_through_are_refused_by_what_they_cost(monkeypatch):
    def give_everybody_everything(budgets: Budgets, shares: list[int]) -> list[Budgets]:
        return [replace(budgets) for _ in shares]

    monkeypatch.setattr(report, "divide_budgets", give_everybody_everything)
    with pytest.raises(BudgetExceeded):
        make_report().plan(epsilon=GRANTS)


def test_a_part_that_is_charged_twice_is_refused(monkeypatch):
    monkeypatch.setattr(
        report,
        "add",
        lambda left, right: replace(left, spent=left.spent + 2 * right.spent),
    )
    with pytest.raises(BudgetExceeded):
        make_report().plan(epsilon=GRANTS)


def test_the_parts_draw_their_noise_apart():
    """The same noise in both answers would let their difference tell the exact one."""
    table = pa.table({"x": [0.5] * 24, "y": [0.5] * 24})
    pairs = [make_report().fit(table, epsilon=GRANTS).value_ for _ in range(12)]
    assert any(pair["one"] != pair["two"] for pair in pairs)
