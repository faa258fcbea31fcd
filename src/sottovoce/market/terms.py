# SPDX-License-Identifier: Apache-2.0
"""What a buyer declares before any report is seen, and the reports of sellers, both as they are
typed and sent.

Whatever is wrong is refused in the words of the command line, and no message repeats a seller's
name or report.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce.arrays import Floats, to_numbers
from sottovoce.data.engine import (
    DEFAULT_TEXT_FORMAT,
    TextFormat,
    Watch,
    get_engine,
    read_columns,
    require_columns,
)
from sottovoce.errors import (
    DuplicatePeople,
    InvalidBounds,
    InvalidBudget,
    InvalidData,
    InvalidParameter,
    MissingValues,
    TooFewRows,
    UnknownPeople,
    WrongType,
)
from sottovoce.market import Allocation, Frontier, Market, Prior, SellerLoss
from sottovoce.market import loss as losses
from sottovoce.market import prior as laws
from sottovoce.market.loss import LINEAR

if TYPE_CHECKING:
    import pyarrow as pa


#: Laws that are said in numbers, and the one that is read from a file.
LAW_KINDS = ("uniform", "normal", "exponential", "lognormal")
FROM_FILE = "empirical"
#: Losses that are said in numbers, and the one that is read from a file with these columns.
LOSS_WORDS = "linear, power:exponent, exponential:rate, piecewise:ε:loss:ε:loss…, table:FILE"
LOSS_FILE = "table"
LOSS_COLUMNS = ("epsilon", "loss")
#: The column of limits, where none is named.
CAP_COLUMN = "cap"
#: With a budget and no trade-off, spending all of it counts like this much error. With 455 sellers
#: and even costs nine tenths of it are then spent (less where caps bind), and the bound is a
#: hundredth above the least that it can buy.
DEFAULT_WORTH = 0.1
#: The trade-offs of a frontier, as multiples of the buyer's own.
FRONTIER_FACTORS = 10.0 ** np.linspace(-1.5, 1.5, 7)
#: Coins finer than this part of the highest price would not add up in 64 bits.
FINEST = 1e-10

#: Numbers that must be positive and finite, and what to do where they are not.
POSITIVE = {
    "trade_off": "Say how much error a unit of money is worth; at 0, everything would be bought.",
    "budget": "Name an amount of money: privacy is not given away.",
    "reserve": "Name a price above which nothing is bought, or leave it out.",
    "cap": "Name the most ε that may be bought from anybody, such as 1.",
    "features": "Name the number of features of the model, at least 1.",
    "norm": "Name a bound on the length of the model's coefficients, such as 1.",
    "coin": "Name the smallest amount of money, such as 0.01.",
    "mu": "Name the μ of the bound, or leave it out: then it follows from the model.",
    "sigma": "Name the σ of the bound, or leave it out: then it follows from the model.",
}


@dataclass(frozen=True, eq=False)
class Sellers:
    """Who reports which cost, and which limit of their own."""

    names: tuple[str, ...]
    costs: Floats
    caps: Floats | None = None

    def find_seller(self, seller: str) -> int:
        """Return where a seller is in the table."""
        if seller not in self.names:
            raise UnknownPeople(
                "This seller is not in the table.",
                "",
                "Pass a name as it is written in the column of sellers.",
                parameter="explain",
            )
        return self.names.index(seller)


@dataclass(frozen=True)
class MarketTerms:
    """What is declared beforehand: the law of costs, what money is worth, and limits."""

    prior: Prior
    trade_off: float | None = None
    budget: float | None = None
    rule: str | None = None
    reserve: float | None = None
    cap: float = 1.0
    features: int = 10
    norm: float = 1.0
    coin: float | None = None
    mu: float | None = None
    sigma: float | None = None
    loss: SellerLoss = LINEAR

    def __post_init__(self) -> None:
        for name, remedy in POSITIVE.items():
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InvalidParameter(
                    f"The {name.replace('_', '-')} is not a positive and finite number.",
                    "",
                    remedy,
                    parameter=name,
                )
        self._refuse_contradictions()

    @property
    def worth(self) -> float:
        """γ, how much error a unit of money is worth."""
        if self.trade_off is not None:
            return self.trade_off
        return DEFAULT_WORTH / float(self.budget or 1)

    def make_market(self, sellers: Sellers) -> Market:
        """Return the market of these sellers."""
        return Market(
            dict(zip(sellers.names, sellers.costs.tolist(), strict=True)),
            prior=self.prior,
            trade_off=self.worth,
            dimension=self.features + 1,  # and an intercept
            norm=self.norm,
            cap=self.compute_limits(sellers),
            coin=self.coin,
            mu=self.mu,
            sigma=self.sigma,
            loss=self.loss,
        )

    def allocate(self, sellers: Sellers) -> Allocation:
        """Return what is bought from whom at which payment.

        Refuses a law under which nobody could sell.
        """
        market = self.make_market(sellers)
        if self.budget is None:
            deal = market.allocate()
        else:
            deal = market.within(self.budget, self.rule or "ceiling", self.reserve)
        if deal.refused.all():
            raise _contradiction_error()
        return deal

    def frontier(self, sellers: Sellers) -> Frontier:
        """Return what a smaller error would have cost, without a budget."""
        return self.make_market(sellers).frontier(self.worth * FRONTIER_FACTORS)

    def compute_limits(self, sellers: Sellers) -> Any:
        """The most ε that may be bought from each: one number, or one a seller where they have
        limits of their own.
        """
        if sellers.caps is None:
            return self.cap
        return np.minimum(sellers.caps, self.cap)

    def _refuse_contradictions(self) -> None:
        if self.trade_off is None and self.budget is None:
            raise InvalidParameter(
                "Neither a trade-off nor a budget is given.",
                "A buyer says what money is worth, or how much of it there is.",
                "Pass one of them, or both.",
                parameter="budget",
            )
        for name in ("rule", "reserve"):
            if self.budget is None and getattr(self, name) is not None:
                raise InvalidParameter(
                    f"A {name} is given without a budget.",
                    "It says how payments are kept within one.",
                    "Give a budget, too, or leave it out.",
                    parameter=name,
                )
        if self.coin is not None and self.coin < FINEST * self.prior.high:
            raise InvalidParameter(
                "The coin is too fine for these prices.",
                "",
                "Leave it out: then it is a billionth of the price's size.",
                parameter="coin",
            )


def read_sellers(
    path: str,
    seller: str,
    cost: str,
    cap: str | None,
    watch: Watch | None = None,
    text: TextFormat = DEFAULT_TEXT_FORMAT,
) -> Sellers:
    """Reads names, reported costs and limits, these from a column called cap if there is one and no
    other is named.
    """
    if cap is None and CAP_COLUMN in get_engine("arrow").open_table(path, text=text).columns():
        cap = CAP_COLUMN
    table = _read_columns(path, (seller,), (cost, *(() if cap is None else (cap,))), watch, text)
    names = _read_names(table[seller])
    if not names:
        raise TooFewRows(
            "There are no sellers in the table.",
            "A market has at least one.",
            "Add their reports.",
            parameter="sellers",
        )
    if len(set(names)) < len(names):
        raise DuplicatePeople(
            "A seller is listed twice.",
            "Everybody reports once.",
            "Keep one line a seller.",
            parameter="sellers",
        )
    return Sellers(
        names, to_numbers(table[cost], "costs"), None if cap is None else _read_caps(table[cap])
    )


def _read_caps(column: Any) -> Floats:
    caps = to_numbers(column, "caps")
    if not (np.all(np.isfinite(caps)) and caps.min() >= 0):
        raise InvalidBudget(
            "A seller's cap is missing, negative or not finite.",
            "It is the most ε that may be bought from them, and nobody can guess it.",
            "Ask that seller again; a cap of 0 sells nothing.",
            parameter="caps",
        )
    return caps


def parse_law(words: str, sellers: str, cost: str, text: TextFormat = DEFAULT_TEXT_FORMAT) -> Prior:
    """Return the law of costs that words like ``uniform:1:5`` or ``empirical:past.csv`` name."""
    kind, _, rest = words.partition(":")
    if kind == FROM_FILE and rest:
        return _read_earlier_costs(rest, sellers, cost, text)
    if kind in LAW_KINDS:
        made = getattr(laws, kind)
    else:
        made = None
    try:
        given = [float(number) for number in rest.split(":")]
    except ValueError:
        given = []
    if made is None or len(given) != len(inspect.signature(made).parameters):
        raise _unknown_law_error()
    if not 0 <= given[-2] < given[-1] < math.inf:
        raise InvalidBounds(
            "The range of the prior is reversed, empty, negative or not finite.",
            "A prior ends with the lowest and the highest cost that there can be.",
            "Write both from public knowledge and not from the reports, such as uniform:1:5.",
            parameter="cost_range",
        )
    prior: Prior = made(*given)
    return prior


def parse_loss(words: str, text: TextFormat = DEFAULT_TEXT_FORMAT) -> SellerLoss:
    """Return the loss that words like ``power:2`` or ``table:points.csv`` name."""
    kind, _, rest = words.partition(":")
    if kind == "linear" and not rest:
        return losses.linear()
    if kind == LOSS_FILE and rest:
        columns = _read_numbers(rest, LOSS_COLUMNS, "table of losses", "loss", text)
        points = np.column_stack(columns)
        return losses.piecewise(points[points.any(axis=1)])  # (0, 0) may be written, and is known
    try:
        given = [float(number) for number in rest.split(":")]
    except ValueError:
        given = []
    if kind in ("power", "exponential") and len(given) == 1:
        made: SellerLoss = getattr(losses, kind)(given[0])
        return made
    if kind == "piecewise" and given and len(given) % 2 == 0:
        return losses.piecewise(np.reshape(given, (-1, 2)))
    raise InvalidParameter(
        "The loss is not known, or its numbers are not.",
        f"Known: {LOSS_WORDS}.",
        "Choose one from what sellers have agreed to, such as power:2.",
        parameter="loss",
    )


def _read_earlier_costs(path: str, sellers: str, cost: str, text: TextFormat) -> Prior:
    if Path(path).exists() and Path(sellers).exists() and Path(path).samefile(sellers):
        raise InvalidParameter(
            "The prior is read from the reports that are to be paid.",
            "Who can move the law of costs by a report gains by lying.",
            "Name a file with costs of an earlier market, or another law.",
            parameter="prior",
        )
    (costs,) = _read_numbers(path, (cost,), "costs seen before", "prior", text)
    if not (costs.size and np.all(np.isfinite(costs)) and costs.min() >= 0):
        raise MissingValues(
            "A cost seen before is missing, negative or not finite, or there is none.",
            "The law of costs is made from numbers that are at least 0.",
            "Leave such lines out of the file.",
            parameter="prior",
        )
    if costs.min() == costs.max():
        raise InvalidBounds(
            "All costs seen before are the same.",
            "They must tell a range in which costs lie.",
            "Name another file, or a range by hand, such as uniform:1:5.",
            parameter="prior",
        )
    return laws.empirical(costs)


def _read_numbers(
    path: str, columns: tuple[str, ...], called: str, parameter: str, text: TextFormat
) -> list[Floats]:
    """Returns columns of a file that is no report; what is wrong there is said of the parameter."""
    try:
        table = _read_columns(path, (), columns, text=text)
        return [to_numbers(table[name], name) for name in columns]
    except InvalidData as error:
        found = error
    told = f"In the {called}: {found.found[0].lower()}{found.found[1:]}"
    raise type(found)(told, found.required, found.remedy, parameter=parameter)


def _read_columns(
    path: str,
    words: tuple[str, ...],
    amounts: tuple[str, ...],
    watch: Watch | None = None,
    text: TextFormat = DEFAULT_TEXT_FORMAT,
) -> pa.Table:
    columns = (*words, *amounts)
    require_columns(get_engine("arrow").open_table(path, text=text), *columns)
    if len(set(columns)) < len(columns):
        raise InvalidParameter(
            "One column is named for two purposes.",
            "",
            "Name different columns.",
            parameter="costs",
        )
    try:
        return read_columns(get_engine("arrow").open_table(path, amounts, watch, text), columns)
    except InvalidData:
        pass  # raised below, in the words of reports
    raise WrongType(
        "A cost, a cap or a loss is not a number.",
        "They are columns of numbers, with a cell in every line.",
        "Write numbers with a point and without a currency, such as 2.5.",
        parameter="costs",
    )


def _read_names(column: Any) -> tuple[str, ...]:
    import pyarrow as pa

    try:
        names = tuple(column.cast(pa.string()).to_pylist())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        names = None
    if names is None:
        raise WrongType(
            "The column of sellers is neither text nor numbers.",
            "",
            "Name sellers by text or numbers.",
            parameter="seller",
        )
    if None in names or "" in names:
        raise UnknownPeople(
            "A report has no seller.",
            "Every line names who reports.",
            "Fill the column in.",
            parameter="seller",
        )
    return names


def _unknown_law_error() -> InvalidParameter:
    spelt = [
        ":".join((kind, *inspect.signature(getattr(laws, kind)).parameters)) for kind in LAW_KINDS
    ]
    return InvalidParameter(
        "The prior is not known, or its numbers are not.",
        f"Known: {', '.join(spelt)} and {FROM_FILE}:FILE.",
        "Choose one from public knowledge, such as uniform:1:5.",
        parameter="prior",
    )


def _contradiction_error() -> InvalidParameter:
    return InvalidParameter(
        "Every report lies above all prices that the prior and the reserve price allow.",
        "Nothing could be bought from anybody.",
        "Check that both are in the same money. A prior that is chosen after reports were seen "
        "invites lies.",
        parameter="cost_range",
    )
