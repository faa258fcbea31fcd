"""Exact losses of tables: what noise was added to, on two tables that differ in one person's rows.

The law of the noise is known, so that the largest log ratio over all outputs is a norm of the
difference of the two statistics; nothing here is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sottovoce as sv
from cases import PEOPLE, People
from seams import Silent
from sottovoce.estimators import count, covariance, group_means, table_sums, variance
from sottovoce.noise import source

GROUPS = {"g": ["a", "b", "c"]}
#: More cells than noise that sums to zero is drawn for.
MANY = {"g": [f"level {k}" for k in range(80)] + ["a", "b", "c"]}
BOUNDS = (0.0, 10.3)


@dataclass(frozen=True)
class TableCase:
    """A question about a table, and the file in which its noise is drawn."""

    name: str
    make: Callable[[], Any]
    module: Any = table_sums
    column: str | None = "y"

    def __repr__(self) -> str:
        return self.name


TABLE_CASES = [
    TableCase("count", lambda: sv.Count(by=GROUPS), count, None),
    TableCase("count of many cells", lambda: sv.Count(by=MANY), count, None),
    TableCase("mean by group", lambda: sv.Mean(BOUNDS, by=GROUPS), group_means),
    TableCase("sum of all rows", lambda: sv.Sum(BOUNDS)),
    TableCase("sum of many groups", lambda: sv.Sum(BOUNDS, by=MANY)),
    TableCase("variance by group", lambda: sv.Variance(BOUNDS, by=GROUPS), variance),
    TableCase("covariance", lambda: sv.Covariance({"x": (0, 1), "y": BOUNDS}), covariance, None),
    TableCase(
        "mean by group with squares",
        lambda: sv.Mean(BOUNDS, by=GROUPS, interval_share=0.05),
        group_means,
    ),
]
every_table_case = pytest.mark.parametrize("case", TABLE_CASES, ids=repr)


def capture(case: TableCase, table: pa.Table, people: People) -> tuple[Any, list[int], list[Any]]:
    """Returns the plan, the exact statistic, and the scales of the noise that is then drawn."""
    seen: list[Any] = []
    name = "draw_noisy_entries" if case.name == "covariance" else "draw_noisy_values"
    original = getattr(case.module, name)

    def spy(plan: Any, statistic: Any) -> Any:
        seen.append((plan, [int(entry) for entry in statistic]))
        return original(plan, statistic)

    seam = Laws()
    with pytest.MonkeyPatch.context() as patch, source._seam(seam):
        patch.setattr(case.module, name, spy)
        estimator = case.make()
        if case.column is None:
            estimator.fit(table, epsilon=people.epsilon, groups=people.groups)
        elif getattr(estimator, "by", None) is None:
            estimator.fit(
                table.column("y").to_numpy(), epsilon=people.epsilon, groups=people.groups
            )
        else:
            estimator.fit(table, column="y", epsilon=people.epsilon, groups=people.groups)
    ((plan, statistic),) = seen
    return plan, statistic, seam.asked


class Laws(Silent):
    """No noise; remembers which law and scale were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, float]] = []

    def integers(self, law: str, scale: float, size: int) -> list[int]:
        self.asked.append((law, scale))
        return [0] * size


def compute_loss(one: Any, two: Any) -> float:
    """The largest log ratio of the two laws of the answer."""
    assert one[0].digest == two[0].digest
    assert one[2] == two[2]
    apart = [abs(a - b) for a, b in zip(one[1], two[1], strict=True)]
    laws = one[2]
    if laws[0][0] == "zero sum":
        assert sum(one[1]) == sum(two[1])
        return sum(apart) / (2 * laws[0][1])
    if len(laws) == len(apart):  # entries of their own scales
        return sum(a / scale for a, (_, scale) in zip(apart, laws, strict=True))
    return sum(apart) / laws[0][1]


def make_tables(people: People, owner: Any) -> list[tuple[pa.Table, pa.Table]]:
    """Tables that differ in one owner's rows: in cell, in value, in both, in whether there is one,
    and spread over several cells.
    """
    n = len(people.epsilon)
    mine = people.owners == owner
    first = np.where(np.arange(n) % 2, "a", "b").astype(object)
    ends = [
        ("a", 0.0, "b", 10.3),
        ("a", 0.0, "a", 1e308),
        ("a", 10.3, "unknown", -5.0),
        ("c", np.nan, "b", 10.3),
        (None, 4.0, "c", np.nan),
    ]
    pairs = []
    for g_one, y_one, g_two, y_two in ends:
        tables = []
        for g, y in ((g_one, y_one), (g_two, y_two)):
            groups = first.copy()
            values = np.linspace(0, 10, n)
            x = np.linspace(1, 0, n)
            groups[mine] = g
            values[mine] = y
            x[mine] = 0.0 if y == y_one else 1.0
            tables.append(pa.table({"g": groups.tolist(), "y": values, "x": x}))
        pairs.append((tables[0], tables[1]))
    spread = first.copy()
    spread[mine] = np.resize(np.array(["a", "b", "c"], dtype=object), int(mine.sum()))
    other = first.copy()
    other[mine] = "elsewhere"
    y = np.linspace(0, 10, n)
    x = np.linspace(1, 0, n)
    pairs.append(
        tuple(pa.table({"g": g.tolist(), "y": y, "x": x}) for g in (spread, other))  # type: ignore
    )
    return pairs


def audit_table(case: TableCase, people: People, owner: Any) -> tuple[float, float]:
    """Returns (largest exact loss over hard neighbours, charge) of one owner."""
    losses = []
    charge = np.inf
    names = np.unique(people.owners)
    for first, second in make_tables(people, owner):
        one = capture(case, first, people)
        two = capture(case, second, people)
        losses.append(compute_loss(one, two))
        charge = float(one[0].charges[int(np.flatnonzero(names == owner)[0])])
    return max(losses), charge


__all__ = ["PEOPLE", "TABLE_CASES", "audit_table", "every_table_case"]
