# SPDX-License-Identifier: Apache-2.0
"""What a buyer types for a market, from fields to terms and reports; what is wrong is a sentence next to its field.

The budget, or what money is worth, is a number and a slider around it, so that one form serves small and large markets.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from typing import Any

from sottovoce.errors import SottovoceError
from sottovoce.market.market import MOST
from sottovoce.market.prior import DEAREST
from sottovoce.pages.market_terms import FROM_FILE, KINDS, Sellers, Terms, law, read_sellers
from sottovoce.web.desk import Desk
from sottovoce.web.forms import Fields, in_words

#: The slider: so many steps to either side, each a twentieth of a power of ten.
STEPS, POWER = 30, 20
#: Sellers that may be typed in by hand, and letters of all their lines; more come in a file.
MOST_TYPED, LETTERS = 200, 20_000
#: Beyond this no amount of money and no cost is meant.
LARGEST = DEAREST
#: The largest number of features, and bound on coefficients, that somebody may mean.
MOST_FEATURES, LARGEST_NORM = 100_000, 1e6
#: The column of costs in the table of an earlier market.
EARLIER = "cost"
#: What the form begins with.
USUAL = {
    "prior": "uniform",
    "by": "budget",
    "slide": "0",
    "rule": "ceiling",
    "cap": "1",
    "features": "10",
    "norm": "1",
    "seller": "seller",
    "cost": "cost",
}
LAWS = (
    ("uniform", "uniform: all equally likely"),
    ("normal", "normal: around a mean"),
    ("exponential", "exponential: with a scale"),
    ("lognormal", "lognormal: around a median"),
    (FROM_FILE, "as in an earlier market"),
)
BY = (("budget", "a budget, paid at most"), ("trade_off", "γ, the worth of money"))
RULES = (
    ("ceiling", "ceiling: a limit on all ε"),
    ("scaling", "scaling: sales are shrunk"),
)


@dataclass(frozen=True)
class Asked:
    """Terms with the slider in its middle, where it is, and where the reports are."""

    table: str
    columns: tuple[str, str]
    terms: Terms
    slide: int

    def at(self, slide: int) -> Terms:
        """The terms with the budget, or the worth of money, moved by so many steps."""
        moved = "trade_off" if self.terms.budget is None else "budget"
        return replace(self.terms, **{moved: getattr(self.terms, moved) * 10.0 ** (slide / POWER)})

    def read_reports(self, desk: Desk) -> Sellers:
        """Reads the sellers' names, costs and caps, once while the slider moves."""
        path = str(desk.get_table(self.table).path)
        read = desk.get_cached(("sellers", self.table, self.columns), lambda: read_sellers(path, *self.columns, None))
        reports: Sellers = read
        return reports


def asked(desk: Desk, fields: Fields) -> Asked | None:
    """Reads the form; None where something is missing or wrong, which is among the complaints then."""
    table = fields.choice("table", desk.tables)
    columns = [fields.choice(name, desk.tables[table].columns if table else ()) for name in ("seller", "cost")]
    terms, slide = _terms(desk, fields), fields.number("slide", least=-STEPS, most=STEPS)
    if terms is None or fields.complaints or table is None or slide is None:
        return None
    return Asked(table, (str(columns[0]), str(columns[1])), terms, int(slide))


def _terms(desk: Desk, fields: Fields) -> Terms | None:
    prior, by = _prior(desk, fields), fields.choice("by", [key for key, _ in BY])
    numbers: dict[str, Any] = {
        str(by): fields.number("amount", least=0, most=LARGEST, above=True),
        "cap": fields.number("cap", least=0, most=MOST, above=True),
        "features": int(fields.number("features", least=1, most=MOST_FEATURES) or 1),
        "norm": fields.number("norm", least=0, most=LARGEST_NORM, above=True),
        "coin": fields.number("coin", needed=False, least=0, most=LARGEST, above=True),
        "reserve": fields.number("reserve", needed=False, least=0, most=LARGEST, above=True),
    }
    rule = fields.choice("rule", [key for key, _ in RULES])
    if by == "trade_off" and numbers["reserve"] is not None:
        fields.complain("reserve", "A reserve price goes with a budget: leave it empty, or choose a budget.")
    if prior is None or fields.complaints:
        return None
    try:
        return Terms(prior, rule=rule if by == "budget" else None, **numbers)
    except SottovoceError as error:
        fields.complain("coin", in_words(error))
    return None


def _prior(desk: Desk, fields: Fields) -> Any:
    """Reads the law of costs, with those numbers that its kind needs, or the table of an earlier market."""
    kind = str(fields.choice("prior", (*KINDS, FROM_FILE)))
    if kind == FROM_FILE:
        return _earlier(desk, fields)
    low, high = (fields.number(end, least=0, most=LARGEST) for end in ("low", "high"))
    middle = fields.number("middle", needed=kind in KINDS and kind != "uniform", least=0, most=LARGEST)
    deviation = fields.number("deviation", needed=kind in ("normal", "lognormal"), least=0, most=LARGEST, above=True)
    if low is not None and high is not None and not low < high:
        fields.complain("high", "The highest cost lies above the lowest.")
    if fields.complaints:
        return None
    own = {"uniform": (), "exponential": (middle,)}.get(kind, (middle, deviation))
    try:
        return law(":".join([kind, *(repr(number) for number in (*own, low, high))]), "", "")
    except SottovoceError as error:
        fields.complain("middle" if own else "low", in_words(error))
    return None


def _earlier(desk: Desk, fields: Fields) -> Any:
    """Reads the costs of an earlier market, which lie in another table on the desk."""
    earlier, reports = fields.choice("earlier", desk.tables), desk.tables.get(fields.get_typed("table"))
    if earlier is None or reports is None:
        return None
    words, paid = f"{FROM_FILE}:{desk.get_table(earlier).path}", str(reports.path)
    try:
        return desk.get_cached(("earlier", words, paid), lambda: law(words, paid, EARLIER))
    except SottovoceError as error:
        fields.complain("earlier", in_words(error))
    return None


def typed(fields: Fields) -> io.BytesIO | None:
    """Returns typed lines as a CSV file; a line that cannot be read is named by its number."""
    text = fields.get_typed("typed")
    lines = [[cell.strip() for cell in line] for line in csv.reader(text[:LETTERS].splitlines()) if line]
    wrong = [number for number, line in enumerate(lines, 1) if len(line) not in (2, 3) or not all(line)]
    if not lines:
        fields.complain("file", "Choose a file, or type reports below.")
    elif len(lines) > MOST_TYPED or len(text) > LETTERS:
        fields.complain("typed", f"At most {MOST_TYPED} lines can be typed: send more as a file.")
    elif wrong:
        fields.complain("typed", f"Line {wrong[0]} is not a name and a cost, or a name, a cost and a cap.")
    elif len(set(map(len, lines))) > 1:
        fields.complain("typed", "Some lines have a cap and some have none: write it in all, or in none.")
    if fields.complaints:
        return None
    written = io.StringIO()
    csv.writer(written).writerows([["seller", "cost", "cap"][: len(lines[0])], *lines])
    return io.BytesIO(written.getvalue().encode())
