# SPDX-License-Identifier: Apache-2.0
"""Errata of the papers: ``python -m sottovoce.papers.errata > docs/theory/errata.md``.

Every number in its tables is computed, and a test holds docs/theory/errata.md against what this
file makes. For `sottovoce reproduce` the same tables are an experiment of each paper, such as
instance/errata.

Lines of the paper on per-instance privacy are in instance_claims.py, those of the others in
errata_tables.py.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from string import ascii_lowercase

from sottovoce.papers import errata_tables, instance_claims
from sottovoce.papers.instance_claims import Erratum, describe_cause
from sottovoce.papers.plots import Outcome, Reason, ResultColumn, ResultTable
from sottovoce.papers.report import Task

#: Significant digits of a number, and of a δ that only shows how far off an ε is.
DIGITS = 5
ROUGHLY = 3
#: A smaller δ is not worth its digits.
TINY = 1e-99

#: A line «name» stands for the table that the function of this name in instance_claims.py or
#: errata_tables.py makes.
PAGE = Path(__file__).with_name("errata_template.md").read_text("utf-8")
TABLE = re.compile(r"^«(\w+)»$", re.MULTILINE)
#: A table with the heading that it is under.
HEADED = re.compile(r"^#+ ([^\n]+)\n(?:(?!#)[^\n]*\n)*?«(\w+)»$", re.MULTILINE)
#: The paper that a table is about, by the name under which its experiments are called.
PAPER_OF = {
    name: next(
        (paper for paper in ("ridge", "market", "users") if name.startswith(paper)), "instance"
    )
    for name in TABLE.findall(PAGE)
}


def compute_errata() -> dict[str, list[Erratum]]:
    """Return every erratum, in the order of the page, by the function that computes it."""
    return {name: compute_table(name) for name in TABLE.findall(PAGE)}


@cache
def compute_table(name: str) -> list[Erratum]:
    """Return the lines of one table."""
    make = getattr(instance_claims, name, None) or getattr(errata_tables, name)
    found: list[Erratum] = make()
    return found


def make_errata_page() -> str:
    """Return the page as Markdown."""
    found = compute_errata()
    return TABLE.sub(lambda match: _write_table(found[match[1]]), PAGE)


def _write_table(lines: list[Erratum]) -> str:
    with_delta = any(line.true_delta is not None for line in lines)
    with_formula = any(line.formula for line in lines)
    optional = {"true δ": with_delta, "printed by": with_formula}
    names = [
        "where",
        "setting",
        "quantity",
        "printed",
        "right",
        "true δ",
        "printed by",
        "`sottovoce reproduce`",
    ]
    kept = [place for place, name in enumerate(names) if optional.get(name, True)]
    rows = [[word.replace("|", r"\|") for word in _write_cells(line)] for line in lines]
    picked = ([words[place] for place in kept] for words in (names, ["---"] * len(names), *rows))
    return "\n".join(f"| {' | '.join(words)} |" for words in picked)


def _write_cells(line: Erratum) -> list[str]:
    if line.true_delta is None:
        delta = ""
    else:
        delta = format_digits(line.true_delta, ROUGHLY)
    numbers = [_write_printed(line), format_digits(line.exact), delta]
    return [
        line.place,
        line.setting,
        line.quantity,
        *numbers,
        f"`{line.formula}`",
        f"`{line.command}`",
    ]


def _write_printed(line: Erratum) -> str:
    if line.printed is None:
        return "no number"
    if line.promised:
        return f"{format_digits(line.printed)}, promised"
    return format_digits(line.printed)


def outcome(task: Task) -> Outcome:
    """The errata of one paper as an experiment; which paper, the name says."""
    titles = {match[2]: match[1] for match in HEADED.finditer(PAGE)}
    names = [name for name in titles if PAPER_OF[name] == task.name.partition("/")[0]]
    found = {name: compute_table(name) for name in names}
    tables = tuple(_compare_errata(titles[name], lines) for name, lines in found.items())
    settings = [
        f"{label}: {one.quantity} for {one.setting}."
        for lines in found.values()
        for label, one in _label_errata(lines)
    ]
    return Outcome(task.name, task.size, tables, (), tuple(settings))


def _label_errata(found: list[Erratum]) -> list[tuple[str, Erratum]]:
    """Return each erratum with a label of its own: its place in the paper, and a letter where it
    has several.
    """
    places = [one.place for one in found]
    letters = [f" {ascii_lowercase[places[:at].count(place)]}" for at, place in enumerate(places)]
    return [
        (one.place + letter * (places.count(one.place) > 1), one)
        for one, letter in zip(found, letters, strict=True)
    ]


def _compare_errata(title: str, found: list[Erratum]) -> ResultTable:
    lines = _label_errata(found)
    column = ResultColumn(
        "right", tuple(one.exact for one in found), tuple(one.printed for one in found)
    )
    deltas = ResultColumn("true δ at the printed ε", tuple(one.true_delta for one in found))
    reasons = tuple(Reason("right", _explain_erratum(one), (label,)) for label, one in lines)
    if any(deltas.ours):
        columns: tuple[ResultColumn, ...] = (column, deltas)
    else:
        columns = (column,)
    return ResultTable(title, "where", tuple(label for label, _ in lines), columns, reasons)


def _explain_erratum(one: Erratum) -> str:
    if one.formula:
        return f"Print is wrong: {describe_cause(one.formula)}"
    if one.printed is None:
        return f"Print has no number here; see {one.command}."
    if one.promised:
        return f"Print promises this, and does not keep it; see {one.command}."
    return f"Print is wrong or loose; see {one.command}."


def format_digits(value: float, significant: int = DIGITS) -> str:
    """Return a number with so many significant digits.

    >>> [format_digits(value) for value in (2436.87079, 1.27684e7, -1 / 3, 2.6e-309)]
    ['2436.9', '1.2768e7', '−0.33333', 'below 1e-99']
    """
    if 0 < value < TINY:
        return f"below {TINY:g}"
    mantissa, _, exponent = f"{abs(value):.{significant}g}".partition("e")
    return ("−" if value < 0 else "") + (f"{mantissa}e{int(exponent)}" if exponent else mantissa)


if __name__ == "__main__":
    sys.stdout.buffer.write(make_errata_page().encode("utf-8"))
