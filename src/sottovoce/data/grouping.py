# SPDX-License-Identifier: Apache-2.0
"""How a database may group the rows of a table before a kernel sees them.

A kernel that allows it has ``make_grouping``, which says by what, and ``of_groups``, which takes a
batch of groups: the keys under the names of their columns, and the columns named below. One entry
stands for all of a group that the kernel cannot tell apart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GroupKey:
    """A column by which a database may group rows before a kernel sees them.

    ``by`` is "value", or "day" for dates, or "points" for numbers: rows whose numbers lie on the
    same side of each of the ``points`` are one group, and any number of theirs stands for them.
    """

    column: str
    by: str = "value"
    points: tuple[float, ...] = ()


@dataclass(frozen=True)
class GroupedSum:
    """A column of numbers that a database may put on a grid and sum by group."""

    column: str
    low: float
    high: float
    exponent: int
    with_squares: bool = False


@dataclass(frozen=True)
class Grouping:
    """How rows may be grouped before a kernel sees them: the keys, and what is summed beside the
    count of rows.
    """

    keys: tuple[GroupKey, ...]
    summed: GroupedSum | None = None


#: The columns of a batch of groups, besides the keys: rows, those with a value, and the sums of
#: their integers and of the squares of these, each in two parts of 32 bits.
GROUP_ROWS = "rows in the group"
GROUP_VALUES = "values in the group"
GROUP_SUMS = (("upper sum", "lower sum"), ("upper squares", "lower squares"))
#: Bits of the lower part.
GROUP_BITS = 32
