"""Tables of a regression whose rows are in a ball, for tests of what a fit loses: two columns are
numbers, which the ball is for, and one has two levels and stays in its box.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import sottovoce as sv
from sottovoce.data.feature_ball import FeatureBall

BOUNDS = sv.Schema.loads("""
label = "y"
[columns.a]
kind = "number"
low = 0
high = 1
[columns.level]
kind = "factor"
levels = ["no", "yes"]
[columns.b]
kind = "number"
low = 0
high = 1
[columns.y]
kind = "number"
low = -1
high = 1
""")
NUMBERS = np.array([0, 2])
BALL = FeatureBall(NUMBERS, np.array([0.1, -0.3]), 0.2)
ONE_ROW = (np.repeat([0.1, 0.5, 2.0], [10, 12, 8]), None)
MANY = (
    np.repeat([0.1, 2.0, 0.5, 0.1, 2.0, 0.5], [1, 1, 4, 6, 9, 3]),
    np.repeat(list("abcdef"), [1, 1, 4, 6, 9, 3]),
)
every_people = pytest.mark.parametrize("people", [ONE_ROW, MANY], ids=["one row", "many rows"])
which_person = pytest.mark.parametrize(
    "which", [np.argmin, np.argmax], ids=["strictest", "loosest"]
)
#: In units of the box: on the surface of the ball towards (1, 1), inside of it, and far outside.
SURFACE = BALL.centre + 0.2 / math.sqrt(2)
INSIDE = BALL.centre
CORNER = np.array([0.5, 0.5])


def owners(people):
    if people[1] is None:
        return np.arange(len(people[0]))
    return people[1]


def make_rows(numbers, level, labels, people):
    """Rows of the question, from recoded numbers."""
    numbers = np.broadcast_to(numbers, (len(people[0]), 2)) + 0.5
    levels = np.where(np.broadcast_to(level, len(people[0])), "yes", "no")
    frame = pd.DataFrame({"a": numbers[:, 0], "level": levels, "b": numbers[:, 1]})
    ridge = sv.Ridge(bounds=BOUNDS)
    return ridge.read_arrays(frame, labels, epsilon=people[0], groups=people[1])


def list_pairs(people, owner):
    """Tables that differ in one owner's rows: everybody aligned on the surface, with pulls against
    each other and with curvature, rows outside of the ball, and random ones.
    """
    rng = np.random.default_rng(0)
    n = len(people[0])
    mine = owners(people) == owner
    for place, first, second in [
        (SURFACE, (SURFACE, -1.0), (SURFACE, 1.0)),
        (SURFACE, (SURFACE, -0.2), (SURFACE, 1.0)),
        (SURFACE, (INSIDE, -1.0), (SURFACE, 1.0)),
        (SURFACE, (CORNER, -0.2), (CORNER, 1.0)),
        (CORNER, (CORNER, -1.0), (CORNER, 1.0)),
        (CORNER, (-CORNER, 1.0), (CORNER, -1.0)),
    ]:
        tables = []
        for where, label in (first, second):
            numbers = np.tile(place, (n, 1))
            labels = np.ones(n)
            numbers[mine] = where
            labels[mine] = label
            tables.append((numbers, np.zeros(n, dtype=bool), labels))
        yield tables
    for _ in range(6):
        one = [rng.uniform(-0.5, 0.5, (n, 2)), rng.random(n) < 0.5, rng.uniform(-1, 1, n)]
        two = [part.copy() for part in one]
        two[0][mine] = rng.uniform(-0.5, 0.5, (mine.sum(), 2))
        two[1][mine] = rng.random(mine.sum()) < 0.5
        two[2][mine] = rng.uniform(-1, 1, mine.sum())
        yield one, two
