# SPDX-License-Identifier: Apache-2.0
"""Two groups of a released table side by side: their difference with its interval, in words.

It is a function of the released bytes alone, so it is public and costs nobody anything more. The
command line, the page and the JSON name groups as tables do: by labels.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from sottovoce.errors import InvalidParameter
from sottovoce.estimators import load
from sottovoce.estimators.table_result import Table
from sottovoce.release import LEVEL, Release
from sottovoce.units import format_level, round_to_error
from sottovoce.wording import describe_question, get_unit

#: Groups that a refusal lists, at most.
MOST_LISTED = 12


@dataclass(frozen=True)
class GroupComparison:
    """The difference of two groups; None where one of them has too few rows to say, and for an end
    that nothing bounds.
    """

    what: str  # the question, in words
    one: str
    two: str
    difference: float | None
    low: float | None
    high: float | None
    level: float
    unit: str = ""

    def describe(self) -> list[str]:
        """Returns the difference, its interval and what follows from it, as sentences."""
        groups = f"{self.what[:1].upper()}{self.what[1:]}, “{self.one}” minus “{self.two}”"
        if self.difference is None:
            return [f"{groups}: one of the two has too few rows to say."]
        if self.low is None or self.high is None:
            return [f"{groups}: {self._write(self.difference, abs(self.difference))}.", UNBOUNDED]
        width = max(self.high - self.low, 1e-300)
        ends = f"{self._write(self.low, width)} to {self._write(self.high, width)}"
        return [
            f"{groups}: {self._write(self.difference, width)}.",
            f"With a probability of {format_level(self.level)} or more, over the rows drawn and "
            f"the noise, it is {ends} in the population.",
            self._conclude(),
        ]

    def _conclude(self) -> str:
        if self.low is not None and self.low > 0:
            return f"All of this is above 0: it is larger in “{self.one}”."
        if self.high is not None and self.high < 0:
            return f"All of this is below 0: it is larger in “{self.two}”."
        return "0 is among these numbers: it cannot be said in which of the two it is larger."

    def _write(self, number: float, width: float) -> str:
        return f"{round_to_error(number, width or 1.0)} {self.unit}".rstrip()


#: Said beside a comparison.
FREE = "It follows from what was released, and costs nobody anything more."
UNBOUNDED = "Nothing bounds it: one of the two groups is too small for an interval."


def compare_groups(
    release: Release, one: str, two: str, of: str | None = None, level: float = LEVEL
) -> GroupComparison:
    """Returns two groups of a released table side by side.

    Groups are called as the table calls its cells ("north", "north, yes"), or by labels of some
    columns ("region=north"); ``of`` names the question of a report, if it has several tables.
    Raises InvalidParameter, about "one", "two" or "of", for what the release does not have.
    """
    part, table = _find_table(release, of)
    first = _find_group(table, one, "one")
    second = _find_group(table, two, "two")
    told = table.compare(first, second, level)
    ends = [told[end] for end in ("low", "high")]
    low, high = (end if end is not None and math.isfinite(end) else None for end in ends)
    unit = get_unit(part)
    if "bounds" not in part.parameters:  # rows are counted, and no column is summed
        unit = "rows"
    what = describe_question(part)
    return GroupComparison(
        what, one.strip(), two.strip(), told["difference"], low, high, level, unit
    )


def list_compared(release: Release) -> dict[str, list[str]]:
    """Returns the tables of a release that have groups to compare: for each question of a report
    (or for "", where it is no report) what its groups are called.
    """
    parts = release.parts or {"": release}
    found = {}
    for name, part in parts.items():
        table = getattr(load(part), "table_", None)
        if table is not None and len(table) > 1:
            found[name] = [table.name_cell(cell) for cell in range(len(table))]
    return found


def _find_table(release: Release, of: str | None) -> tuple[Release, Table]:
    """Returns the release of one table and the table itself."""
    there = list_compared(release)
    if not there:
        raise InvalidParameter(
            "This release has no groups.",
            "Groups are compared in a table: a count, sum, mean or variance by groups.",
            "Release a question by groups, such as the mean by region.",
            parameter="of",
        )
    parts = release.parts or {"": release}
    if of is None and len(there) == 1:
        of = next(iter(there))
    if of is None or of not in there:
        raise InvalidParameter(
            "It is not clear which table is meant.",
            f"Tables of this report: {', '.join(map(repr, there))}.",
            "Name one of these.",
            parameter="of",
        )
    return parts[of], load(parts[of]).table_


def _find_group(table: Table, text: str, parameter: str) -> Any:
    """Returns the cell that is called so, or labels by column."""
    text = text.strip()
    names = [table.name_cell(cell) for cell in range(len(table))]
    if names.count(text) == 1:
        return names.index(text)
    given = _split_labels(table, text)
    if given is None:
        owners = [axis.column for axis in table.cells.axes if text in axis.labels]
        given = {owners[0]: text} if len(owners) == 1 else None
    try:
        if given is not None and table.find(**given):
            return given
    except InvalidParameter:
        pass  # refused below, in the words of this door
    listed = ", ".join(f"“{name}”" for name in names[:MOST_LISTED])
    more = ", …" if len(names) > MOST_LISTED else ""
    raise InvalidParameter(
        "There is no such group in the table.",
        f"Its groups are: {listed}{more}.",
        "Name two of these, or labels by column, such as region=north.",
        parameter=parameter,
    )


def _split_labels(table: Table, text: str) -> dict[str, str] | None:
    """Returns labels by column from text such as region=north, smoker=yes; None if it is none."""
    columns = "|".join(re.escape(name) for name in table.columns)
    if not columns or not re.match(rf"(?:{columns})\s*=", text):
        return None
    parts = re.split(rf",\s*(?=(?:{columns})\s*=)", text)
    pairs = [part.partition("=") for part in parts]
    return {name.strip(): label.strip() for name, _, label in pairs}
