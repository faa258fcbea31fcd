# SPDX-License-Identifier: Apache-2.0
"""GROUP BY in DuckDB before a kernel sees the rows, for tables.

A group has columns as the table has them, and one entry stands for all that the kernel cannot tell
apart, so that the kernel finds the cell of a group as it finds that of a row. What is computed in
SQL is exact and the same as in NumPy: comparisons, and for sums the steps of a grid, each of which
is one operation of doubles; adding and subtracting 3·2^51 rounds a number below 2^51 to the nearest
whole number, ties to even, as rint does. Sums are of whole numbers of 128 bits. Columns of types
that are not listed here are read row by row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sottovoce.data.kernels import (
    GROUP_BITS,
    GROUP_ROWS,
    GROUP_SUMS,
    GROUP_VALUES,
    GroupedSum,
    Grouping,
    GroupKey,
)

WHOLE_TYPES = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
)
FLOAT_TYPES = ("FLOAT", "DOUBLE")
#: Adding and subtracting it rounds to a whole number.
ROUNDING = 3.0 * 2.0**51


@dataclass(frozen=True)
class GroupQuery:
    """What is selected, and by what it is grouped."""

    expressions: str
    keys: str


def quote_name(name: str) -> str:
    """Returns the name of a column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def write_group_query(grouping: Grouping, types: dict[str, str]) -> GroupQuery | None:
    """Returns the query of the groups; None where a column is of a type that SQL might treat in
    another way.
    """
    keys = [_write_key(key, types.get(key.column, "")) for key in grouping.keys]
    summed = ["count(*)::BIGINT AS " + quote_name(GROUP_ROWS)]
    if grouping.summed is not None:
        sums = _write_sums(grouping.summed, types.get(grouping.summed.column, ""))
        if sums is None:
            return None
        summed += sums
    written = [key for key in keys if key is not None]
    if len(written) < len(keys):
        return None
    named = [
        f"{expression} AS {quote_name(key.column)}"
        for key, expression in zip(grouping.keys, written, strict=True)
    ]
    return GroupQuery(", ".join([*named, *summed]), ", ".join(written))


def _write_key(key: GroupKey, kind: str) -> str | None:
    name = quote_name(key.column)
    if key.by == "day":
        return {"DATE": name, "TIMESTAMP": f"CAST({name} AS DATE)"}.get(kind)
    if key.by == "points":
        return _write_points(name, kind, key.points)
    if kind == "VARCHAR":
        return f"({name} COLLATE C)"  # a column or a connection may have another order
    if kind in (*WHOLE_TYPES, "DOUBLE", "BOOLEAN", "DATE") or kind.startswith("ENUM"):
        return name
    return None


def _write_number(name: str, kind: str) -> str | None:
    """Returns a number as a double, null where it is NaN."""
    number = f"CAST({name} AS DOUBLE)"
    if kind in FLOAT_TYPES:
        return f"CASE WHEN isnan({name}) THEN NULL ELSE {number} END"
    if kind in WHOLE_TYPES:
        return number
    return None


def _write_points(name: str, kind: str, points: tuple[float, ...]) -> str | None:
    """Returns a number that lies on the same side of every point."""
    number = _write_number(name, kind)
    if number is None:
        return None
    if not points:
        return f"CASE WHEN ({number}) IS NULL THEN NULL ELSE CAST(0 AS DOUBLE) END"
    cases = [f"WHEN ({number}) IS NULL THEN NULL"]
    below = math.nextafter(points[0], -math.inf)
    for point in points:
        cases.append(f"WHEN ({number}) < {_write_double(point)} THEN {_write_double(below)}")
        cases.append(f"WHEN ({number}) = {_write_double(point)} THEN {_write_double(point)}")
        below = math.nextafter(point, math.inf)
    return f"CASE {' '.join(cases)} ELSE {_write_double(below)} END"


def _write_double(number: float) -> str:
    return f"CAST('{number!r}' AS DOUBLE)"


def _write_sums(summed: GroupedSum, kind: str) -> list[str] | None:
    """Returns the number of values, and the sums of their integers on the grid in two parts."""
    number = _write_number(quote_name(summed.column), kind)
    if number is None:
        return None
    low = _write_double(summed.low)
    clipped = f"least(greatest({number}, {low}), {_write_double(summed.high)})"
    scaled = f"({clipped} - {low}) * {_write_double(math.ldexp(1.0, -summed.exponent))}"
    rounded = f"(({scaled}) + {_write_double(ROUNDING)}) - {_write_double(ROUNDING)}"
    # The least and the greatest of a null and a number are the number.
    integer = f"CASE WHEN ({number}) IS NULL THEN NULL ELSE CAST({rounded} AS BIGINT) END"
    terms = [integer]
    if summed.with_squares:
        terms.append(f"({integer}) * ({integer})")
    sums = [f"count({number})::BIGINT AS {quote_name(GROUP_VALUES)}"]
    for term, (upper, lower) in zip(terms, GROUP_SUMS, strict=False):
        total = f"coalesce(sum({term}), 0)::HUGEINT"
        sums.append(f"({total} >> {GROUP_BITS})::BIGINT AS {quote_name(upper)}")
        sums.append(f"({total} & {2**GROUP_BITS - 1})::BIGINT AS {quote_name(lower)}")
    return sums
