# SPDX-License-Identifier: Apache-2.0
"""What a buyer types for a market, from fields to terms and reports; what is wrong is a sentence
next to its field.

The budget, or what money is worth, is a number and a slider around it, so that one form serves
small and large markets.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from typing import Any

from sottovoce.errors import SottovoceError
from sottovoce.market.market import MAX_EPSILON
from sottovoce.market.prior import HIGHEST_PRICE
from sottovoce.market.terms import (
    FROM_FILE,
    LAW_KINDS,
    MarketTerms,
    Sellers,
    parse_law,
    read_sellers,
)
from sottovoce.web.question_form import Fields
from sottovoce.web.workspace import Workspace

#: The slider: so many steps to either side, each a twentieth of a power of ten.
SLIDER_STEPS = 30
STEPS_PER_DECADE = 20
#: Sellers that may be typed in by hand, and letters of all their lines; more come in a file.
MOST_TYPED = 200
LETTERS = 20_000
#: Beyond this no amount of money and no cost is meant.
LARGEST = HIGHEST_PRICE
#: The largest number of features, and bound on coefficients, that somebody may mean.
MOST_FEATURES = 100_000
LARGEST_NORM = 1e6
#: The column of costs in the table of an earlier market.
EARLIER_COLUMN = "cost"
#: What the form begins with.
DEFAULTS = {
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
LAW_CHOICES = (
    ("uniform", "uniform: all equally likely"),
    ("normal", "normal: around a mean"),
    ("exponential", "exponential: with a scale"),
    ("lognormal", "lognormal: around a median"),
    (FROM_FILE, "as in an earlier market"),
)
BUDGET_CHOICES = (("budget", "a budget, paid at most"), ("trade_off", "γ, the worth of money"))
RULE_CHOICES = (
    ("ceiling", "ceiling: a limit on all ε"),
    ("scaling", "scaling: sales are shrunk"),
)
#: The fields of the form by the parameters of the library that they set.
FIELDS_OF_PARAMETERS = {
    "budget": "amount",
    "cap": "cap",
    "caps": "cost",
    "coin": "coin",
    "column": "cost",
    "cost_range": "low",
    "costs": "cost",
    "deviation": "deviation",
    "dimension": "features",
    "features": "features",
    "mean": "middle",
    "median": "middle",
    "norm": "norm",
    "prior.parameters": "middle",
    "prior": "prior",
    "reserve": "reserve",
    "rule": "rule",
    "scale": "middle",
    "seller": "seller",
    "sellers": "cost",
    "trade_off": "amount",
}


@dataclass(frozen=True)
class MarketForm:
    """Terms with the slider in its middle, where it is, and where the reports are."""

    table: str
    columns: tuple[str, str]
    terms: MarketTerms
    slide: int

    def at(self, slide: int) -> MarketTerms:
        """The terms with the budget, or the worth of money, moved by so many steps."""
        if self.terms.budget is None:
            moved = "trade_off"
        else:
            moved = "budget"
        return replace(
            self.terms, **{moved: getattr(self.terms, moved) * 10.0 ** (slide / STEPS_PER_DECADE)}
        )

    def read_reports(self, workspace: Workspace) -> Sellers:
        """Reads the sellers' names, costs and caps, once while the slider moves."""
        path = str(workspace.get_table(self.table).path)
        read = workspace.get_cached(
            ("sellers", self.table, self.columns), lambda: read_sellers(path, *self.columns, None)
        )
        reports: Sellers = read
        return reports


def read_market_form(workspace: Workspace, fields: Fields) -> MarketForm | None:
    """Reads the form; None where something is missing or wrong, which is among the complaints
    then.
    """
    table = fields.choice("table", workspace.tables)
    columns = [
        fields.choice(name, workspace.tables[table].columns if table else ())
        for name in ("seller", "cost")
    ]
    terms = _read_terms(workspace, fields)
    slide = fields.number("slide", least=-SLIDER_STEPS, most=SLIDER_STEPS)
    if terms is None or fields.complaints or table is None or slide is None:
        return None
    return MarketForm(table, (str(columns[0]), str(columns[1])), terms, int(slide))


def _read_terms(workspace: Workspace, fields: Fields) -> MarketTerms | None:
    prior = _read_prior(workspace, fields)
    by = fields.choice("by", [key for key, _ in BUDGET_CHOICES])
    numbers: dict[str, Any] = {
        str(by): fields.number("amount", least=0, most=LARGEST, above=True),
        "cap": fields.number("cap", least=0, most=MAX_EPSILON, above=True),
        "features": int(fields.number("features", least=1, most=MOST_FEATURES) or 1),
        "norm": fields.number("norm", least=0, most=LARGEST_NORM, above=True),
        "coin": fields.number("coin", needed=False, least=0, most=LARGEST, above=True),
        "reserve": fields.number("reserve", needed=False, least=0, most=LARGEST, above=True),
    }
    rule = fields.choice("rule", [key for key, _ in RULE_CHOICES])
    if by == "trade_off" and numbers["reserve"] is not None:
        fields.complain(
            "reserve", "A reserve price goes with a budget: leave it empty, or choose a budget."
        )
    if prior is None or fields.complaints:
        return None
    try:
        return MarketTerms(prior, rule=rule if by == "budget" else None, **numbers)
    except SottovoceError as error:
        fields.complain_about(error, FIELDS_OF_PARAMETERS)
    return None


def _read_prior(workspace: Workspace, fields: Fields) -> Any:
    """Reads the law of costs, with those numbers that its kind needs, or the table of an earlier
    market.
    """
    kind = str(fields.choice("prior", (*LAW_KINDS, FROM_FILE)))
    if kind == FROM_FILE:
        return _read_earlier_prior(workspace, fields)
    low, high = (fields.number(end, least=0, most=LARGEST) for end in ("low", "high"))
    middle = fields.number(
        "middle", needed=kind in LAW_KINDS and kind != "uniform", least=0, most=LARGEST
    )
    deviation = fields.number(
        "deviation", needed=kind in ("normal", "lognormal"), least=0, most=LARGEST, above=True
    )
    if low is not None and high is not None and not low < high:
        fields.complain("high", "The highest cost lies above the lowest.")
    if fields.complaints:
        return None
    own = {"uniform": (), "exponential": (middle,)}.get(kind, (middle, deviation))
    try:
        return parse_law(":".join([kind, *(repr(number) for number in (*own, low, high))]), "", "")
    except SottovoceError as error:
        fields.complain_about(error, FIELDS_OF_PARAMETERS)
    return None


def _read_earlier_prior(workspace: Workspace, fields: Fields) -> Any:
    """Reads the costs of an earlier market, which lie in another table in the workspace."""
    earlier = fields.choice("earlier", workspace.tables)
    reports = workspace.tables.get(fields.get_typed("table"))
    if earlier is None or reports is None:
        return None
    words = f"{FROM_FILE}:{workspace.get_table(earlier).path}"
    paid = str(reports.path)
    try:
        return workspace.get_cached(
            ("earlier", words, paid), lambda: parse_law(words, paid, EARLIER_COLUMN)
        )
    except SottovoceError as error:
        fields.complain_about(error, {"prior": "earlier"})
    return None


def read_typed_sellers(fields: Fields) -> io.BytesIO | None:
    """Returns typed lines as a CSV file; a line that cannot be read is named by its number."""
    text = fields.get_typed("typed")
    lines = [
        [cell.strip() for cell in line] for line in csv.reader(text[:LETTERS].splitlines()) if line
    ]
    wrong = [
        number for number, line in enumerate(lines, 1) if len(line) not in (2, 3) or not all(line)
    ]
    if not lines:
        fields.complain("file", "Choose a file, or type reports below.")
    elif len(lines) > MOST_TYPED or len(text) > LETTERS:
        fields.complain("typed", f"At most {MOST_TYPED} lines can be typed: send more as a file.")
    elif wrong:
        fields.complain(
            "typed", f"Line {wrong[0]} is not a name and a cost, or a name, a cost and a cap."
        )
    elif len(set(map(len, lines))) > 1:
        fields.complain(
            "typed", "Some lines have a cap and some have none: write it in all, or in none."
        )
    if fields.complaints:
        return None
    written = io.StringIO()
    csv.writer(written).writerows([["seller", "cost", "cap"][: len(lines[0])], *lines])
    return io.BytesIO(written.getvalue().encode())
