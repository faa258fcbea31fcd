# SPDX-License-Identifier: Apache-2.0
"""The classes of a label, declared from public knowledge and never read off the labels.

Which classes occur is a fact about the data: a rare diagnosis that one person has would publish that
person. So classes are declared, and a label that is none of them is refused before anything is charged.

    code      0, 1, … in the order of declaration; with two classes the second is the positive one
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.bounds import Bounds, Schema
from sottovoce.errors import InvalidBounds, InvalidData, InvalidParameter
from sottovoce.table import Array, Floats, column, is_missing

#: What two classes are called where nobody says otherwise.
USUAL = (0, 1)


@dataclass(frozen=True)
class Classes:
    """The possible labels, in order; ``values`` are numbers or text.

    >>> Classes(("no", "yes")).codes(["yes", "no"]).tolist()
    [1.0, 0.0]
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2 or len(set(map(spelt, self.values))) < len(self.values):
            raise InvalidParameter(
                "Fewer than two different classes are declared.",
                "A label that can have one value only has nothing to predict.",
                "Pass classes=(first, second, …), all different.",
            )

    @classmethod
    def from_declaration(cls, classes: Any = None, bounds: Any = None, public_labels: Any = None) -> Classes:
        """The classes as passed; else those of the schema, of public rows, the label's two bounds, or (0, 1)."""
        if classes is not None:
            return cls(tuple(column(classes, "classes").tolist()))
        if isinstance(bounds, Schema):
            return cls(_levels(bounds))
        if public_labels is not None:
            return cls(tuple(sorted(set(column(public_labels, "public labels").tolist()))))
        ends = bounds.label if isinstance(bounds, Bounds) and bounds.label is not None else USUAL
        return cls(tuple(int(end) if float(end).is_integer() else end for end in ends))

    @property
    def levels(self) -> tuple[str, ...]:
        """The classes as text, as they stand in a file."""
        return tuple(map(spelt, self.values))

    def find_codes(self, labels: Any) -> Floats:
        """Returns the number of each label's class, NaN for a label that is not declared."""
        given = column(labels, "labels")
        return self._find_number_codes(given) if given.dtype.kind in "buif" else self._find_text_codes(given)

    def codes(self, labels: Any) -> Floats:
        """Returns the number of each label's class; refuses a label that is not declared, without repeating it."""
        found = self.find_codes(labels)
        if np.isnan(found).any():
            raise undeclared(self)
        return found

    def decode(self, codes: Any) -> Array:
        """Returns the classes with these numbers."""
        return np.array(self.values)[np.asarray(codes, dtype=np.int64)]

    def _find_number_codes(self, given: Array) -> Floats:
        found = np.full(len(given), math.nan)
        for code, level in enumerate(self.levels):
            number = _number(level)
            if number is not None:
                found[given == number] = code
        return found

    def _find_text_codes(self, given: Array) -> Floats:
        place = {level: float(code) for code, level in enumerate(self.levels)}
        found = [math.nan if is_missing(label) else place.get(spelt(label), math.nan) for label in given.tolist()]
        return np.array(found, dtype=np.float64)


def undeclared(classes: Classes) -> InvalidData:
    """The refusal of a label that is none of the declared classes."""
    return InvalidData(
        "A label is none of the declared classes.",
        f"Declared are: {', '.join(classes.levels)}.",
        "Declare every class that can occur, from public knowledge, or correct the labels.",
    )


def spelt(value: Any) -> str:
    """Returns a class as text; a number without a fraction is written without one, as 1.0 and 1 are one class."""
    if isinstance(value, bool | np.bool_):
        value = int(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _number(level: str) -> float | None:
    try:
        return float(level)
    except ValueError:
        return None


def _levels(schema: Schema) -> tuple[str, ...]:
    entry = None if schema.label is None else schema.columns.get(schema.label)
    if entry is None or entry.kind != "factor" or not entry.levels:
        raise InvalidBounds(
            "The schema does not list the classes of the label.",
            "A label to classify is a factor with levels.",
            'Add label = "…" and its levels to the schema, or pass classes=.',
        )
    return tuple(entry.levels)
