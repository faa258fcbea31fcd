# SPDX-License-Identifier: Apache-2.0
"""What a person typed, read field by field: each is a value, or a sentence that stands next to the
field.

    fields = Fields(form)
    share = fields.number("share", least=0, most=1, above=True)
    if fields.complaints: show the page again with them

A sentence says what is needed, and never repeats what was typed: it may be a name, or pasted data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sottovoce.errors import SottovoceError

#: No field holds more characters than this, except those that say otherwise.
MAX_LENGTH = 200
REQUIRED_SENTENCE = "Please fill this in."


@dataclass
class Fields:
    """A form, and what is wrong with it so far: one sentence for each field that cannot be used."""

    form: Mapping[str, Any]
    complaints: dict[str, str] = field(default_factory=dict)

    def get_typed(self, name: str) -> str:
        """Returns what stands in the field without spaces around it; nothing for a file or a
        missing field.
        """
        value = self.form.get(name, "")
        if isinstance(value, str):
            return value.strip()
        return ""

    def text(self, name: str, *, needed: bool = True, longest: int = MAX_LENGTH) -> str | None:
        """Returns the text, or None where there is none."""
        value = self._get_required(name, needed)
        if not value:
            return None
        if len(value) > longest or not value.isprintable():
            self.complain(name, f"At most {longest} letters, digits and signs, on one line.")
            return None
        return value

    def number(
        self,
        name: str,
        *,
        needed: bool = True,
        least: float = -math.inf,
        most: float = math.inf,
        above: bool = False,
    ) -> float | None:
        """Returns the number, within its limits; with ``above`` it is more than the least."""
        value = self._get_required(name, needed)
        if not value:
            return None
        number = _parse_number(value)
        if number is None:
            self.complain(name, "This is not a number. Write it like 12.5, without units.")
            return None
        if number < least or number > most or (above and number == least):
            self.complain(name, read_limits(least, most, above))
            return None
        return number

    def numbers(
        self, name: str, *, needed: bool = True, least: float = -math.inf, most: float = math.inf
    ) -> Any:
        """Returns several numbers, written with spaces or semicolons between them, as a list."""
        value = self._get_required(name, needed)
        if not value:
            return None
        read = [_parse_number(part) for part in value.replace(";", " ").split()]
        if not all(number is not None and least <= number <= most for number in read):
            each = read_limits(least, most, False).removeprefix("Write a number that is ")
            self.complain(name, f"Write numbers with spaces between them, each {each}")
            return None
        return read

    def words(self, name: str, *, needed: bool = True) -> tuple[str, ...] | None:
        """Returns several words, written with commas between them, all different."""
        value = self.text(name, needed=needed, longest=10 * MAX_LENGTH)
        if value is None:
            return None
        parts = tuple(part.strip() for part in value.split(",") if part.strip())
        if len(parts) < 2 or len(set(parts)) < len(parts):
            self.complain(
                name, "Write two or more, all different, with commas between them: yes, no."
            )
            return None
        return parts

    def choice(self, name: str, choices: Collection[str], *, needed: bool = True) -> str | None:
        """Returns one of the choices."""
        value = self._get_required(name, needed)
        if not value:
            return None
        if value in choices:
            return value
        self.complain(name, "Choose one of the list.")
        return None

    def _get_required(self, name: str, needed: bool) -> str:
        value = self.get_typed(name)
        if needed and not value:
            self.complain(name, REQUIRED_SENTENCE)
        return value

    def is_checked(self, name: str) -> bool:
        """Returns whether a box is ticked."""
        return bool(self.get_typed(name))

    def complain(self, name: str, sentence: str) -> None:
        """Records what is wrong with a field; the first sentence stays."""
        self.complaints.setdefault(name, sentence)


def explain_error(error: SottovoceError) -> str:
    """Returns an error as a page says it: options of the command line are fields here."""
    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda found: found[1].replace("-", " "), str(error))


def _parse_number(text: str) -> float | None:
    try:
        number = float(text.replace("\u2212", "-"))
    except ValueError:
        return None
    if math.isfinite(number):
        return number
    return None


def read_limits(least: float, most: float, above: bool) -> str:
    """Returns what a number must be, in words."""
    if above:
        low = f"more than {least:g}"
    else:
        low = f"at least {least:g}"
    if not math.isfinite(most):
        return f"Write a number that is {low}."
    if not math.isfinite(least):
        return f"Write a number that is at most {most:g}."
    return f"Write a number that is {low} and at most {most:g}."
