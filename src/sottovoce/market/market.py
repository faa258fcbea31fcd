# SPDX-License-Identifier: Apache-2.0
"""Market: a buyer, sellers with reported costs, and what is bought from whom at which payment.

The rule (docs/theory/market.md) looks at reports and at public numbers alone, never at data, so
what it decides is public and costs nobody privacy. μ, σ, trade-off, limits, prices, laws and totals
are fixed before reports are seen.

    symbol   name
    c_i      costs              reported: money for each unit of ε that is spent on seller i
    γ        trade_off          how much error a unit of money is worth
    μ, σ     mu, sigma          of the bound μ‖a‖ + σ/η on the error, a = ε/η, η = Σε
    b_i      cap
    k        largest_share      nobody has more than k/m of the total, m all sellers
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from sottovoce import units
from sottovoce.arrays import ColumnLike, Floats, check_same_length, to_doubles, to_numbers
from sottovoce.errors import InvalidBounds, InvalidParameter, MissingValues
from sottovoce.market.allocation import Allocation, Frontier, Point
from sottovoce.market.loss import LINEAR, SellerLoss, refuse_steep
from sottovoce.market.optimiser import Buyer, continuous
from sottovoce.market.optimiser import make_totals as public_totals
from sottovoce.market.payments import Offers
from sottovoce.market.prior import Prices, Prior, to_number, uniform, virtual_costs
from sottovoce.schema import is_one_of

#: Nobody sells more than this: what is beyond is no protection, and money adds up in 64 bits up to
#: here.
MAX_EPSILON = 100.0
#: Caps that sellers may choose, where no menu is given: some twenty in each power of ten.
MENU_STEPS = (
    1,
    1.1,
    1.2,
    1.4,
    1.5,
    1.6,
    1.8,
    2,
    2.2,
    2.5,
    2.8,
    3,
    3.5,
    4,
    4.5,
    5,
    5.5,
    6,
    7,
    7.5,
    8,
    9,
)
MENU = np.outer(10.0 ** np.arange(-6, 3), MENU_STEPS).ravel()
#: How many prices there are, where nobody says so.
DEFAULT_PRICES = 128
CONVEX_PRICES = 32
#: Money is worth no more error than this, and no less than one over it; budgets lie in the same
#: range.
LARGEST_AMOUNT = 1e30
#: A coin, where none is named, is this part of the power of ten below the highest price.
COIN_FRACTION = Fraction(1, 10**9)


@dataclass(frozen=True, eq=False)
class Market:
    """Buys privacy at truthful prices: nobody gains by reporting anything but their own cost.

    >>> import numpy as np
    >>> from sottovoce.market import Market
    >>> market = Market([1.0, 2.0, 3.5], cost_range=(0, 4), trade_off=0.01, mu=1.0, sigma=1.0)
    >>> deal = market.allocate()
    >>> bool(np.all(deal.payments >= deal.epsilon * [1.0, 2.0, 3.5]))
    True
    >>> bool(np.all(np.diff(deal.epsilon) <= 0))
    True

    Parameters
    ----------
    costs :
        Reported cost of a unit of ε, one a seller, or a mapping from seller to cost.
    cost_range :
        (low, high), where costs lie; a report above buys nothing. If not given: the support of the
        prior.
    trade_off :
        γ > 0, error for a unit of money.
    mu, sigma :
        Of the bound on the error; if not given, of the corrected bound from ``dimension`` and
        ``norm``.
    dimension :
        Number of coefficients, the intercept included.
    norm :
        Bound β on the length of the coefficients.
    failure :
        Probability with which the bound may fail, once for the sample and once for the noise.
    cap :
        The most ε that may be bought from a seller; one number, or one a seller, as they report it.
    menu :
        The caps that sellers may choose; a reported cap is rounded down to one of them.
    prior :
        Law of costs, one for all or one a seller; if not given, uniform on the range.
    prices :
        How many prices there are, or the list of them; if not given, 128, or 32 where the loss is
        not linear.
    coin :
        The smallest amount of money; payments are whole numbers of coins.
    largest_share :
        k, to buy at most k/m of the total from anybody.
    loss :
        u, of which a seller loses their cost times u(ε): one of sv.market.loss; ε itself if not
        given.
    """

    costs: Mapping[Any, float] | ColumnLike
    _: KW_ONLY
    cost_range: tuple[float, float] | None = None
    trade_off: float
    mu: float | None = None
    sigma: float | None = None
    dimension: int | None = None
    norm: float = 1.0
    failure: float = 0.05
    cap: ArrayLike = 1.0
    menu: ArrayLike | None = None
    prior: Prior | Sequence[Prior] | None = None
    prices: int | ArrayLike | None = None
    coin: float | None = None
    largest_share: float | None = None
    loss: SellerLoss = LINEAR

    def __post_init__(self) -> None:
        if not isinstance(self.loss, SellerLoss):
            raise InvalidParameter(
                "This is no loss.",
                "A loss is a public function of ε that increases and is convex.",
                "Pass one of sv.market.loss, such as sv.market.loss.power(2).",
                parameter="loss",
            )
        self._buyer, self._coin, self._offers  # refuses what cannot be used  # noqa: B018

    def __repr__(self) -> str:
        return f"<Market of {units.format_count(len(self._reports), 'seller')}>"

    def allocate(self, pay: bool = True) -> Allocation:
        """Return what is bought from whom.

        Parameters
        ----------
        pay : bool
            Whether payments are computed.

        Returns
        -------
        Allocation
            The allocation.
        """
        return self._offers.allocate(self._buyer, self._totals(), self._coin, pay)

    def within(
        self, budget: float, rule: str = "ceiling", reserve: float | None = None
    ) -> Allocation:
        """Return what is bought if payments may not exceed a budget.

        Parameters
        ----------
        budget : float
            Money.
        rule : str
            "ceiling": the total ε is at most budget/(highest price). "scaling": everybody's sale is
            scaled down by a factor that their own report cannot move.
        reserve : float, optional
            A lower highest price, above which nothing is bought.

        Returns
        -------
        Allocation
            The allocation; the truth stays everybody's best report.

        Raises
        ------
        InvalidParameter
            Budget, rule or reserve cannot be used.
        """
        if not is_one_of(rule, ("ceiling", "scaling")):
            raise InvalidParameter(
                "This rule is not known.",
                "Known: 'ceiling' and 'scaling'.",
                "Choose one of the two.",
                parameter="rule",
            )
        coins = self._coins(budget)
        if reserve is None:
            book = self._offers
        else:
            book = self._make_offers(self._price_list.up_to(reserve))
        if not self.loss.is_linear:
            deal = book.allocate_convex(self._buyer, self._coin, coins, rule)
            return deal.with_budget_rule(rule, coins)
        if rule == "ceiling":
            totals = book.limit_totals(coins, self._coin, self._totals())
            return book.allocate(self._buyer, totals, self._coin).with_budget_rule(rule, coins)
        return book.allocate_scaled(
            self._buyer, self._totals(), self._coin, coins
        ).with_budget_rule(rule, coins)

    def frontier(self, trade_offs: ArrayLike) -> Frontier:
        """Return error bound, payment and total ε at several trade-offs.

        Beside it: what the published objective would buy if it saw no data and everybody told it
        the truth, without caps and for Ψ·ε, and its naive variant, μ = σ = 0, which then buys
        nothing.

        Parameters
        ----------
        trade_offs :
            Values of γ.

        Returns
        -------
        Frontier
            What a smaller error costs.

        Raises
        ------
        InvalidParameter
            A trade-off is not above 0.
        """
        own = []
        published = []
        naive = []
        for trade_off in to_doubles(trade_offs, "trade_offs", "trade_offs").ravel().tolist():
            deal = self._with_trade_off(trade_off).allocate()
            own.append(Point(trade_off, deal.expected_error, deal.total, deal.total_epsilon))
            published.append(self._solve_published(trade_off))
            naive.append(Point(trade_off, math.inf, 0.0, 0.0))
        frontier = Frontier(tuple(own)).beside(
            "as published, if nobody lied", Frontier(tuple(published))
        )
        return frontier.beside("naive", Frontier(tuple(naive)))

    def _solve_published(self, trade_off: float) -> Point:
        step = self._price_list.step(self._reports)
        laws = self._laws
        tables = [np.append(virtual_costs(law, self._price_list), math.inf) for law in laws]
        if len(laws) == 1:
            psi = tables[0][step]
        else:
            psi = np.array([t[k] for t, k in zip(tables, step, strict=True)])
        psi = psi[np.isfinite(psi) & (psi > 0)]
        (mu, sigma) = self._find_constants()
        if not (psi.size and sigma > 0 and self.loss.is_linear):
            return Point(trade_off, math.inf, 0.0, 0.0)
        epsilon, _ = continuous(psi, mu, sigma, trade_off)
        total = float(epsilon.sum())
        return Point(
            trade_off,
            (mu * float(np.linalg.norm(epsilon)) + sigma) / total,
            float(psi @ epsilon),
            total,
        )

    def _with_trade_off(self, trade_off: float) -> Market:
        given = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "_"}
        return Market(given.pop("costs"), **(given | {"trade_off": trade_off}))

    @cached_property
    def _reports(self) -> Floats:
        costs = to_numbers(
            list(self.costs.values()) if isinstance(self.costs, Mapping) else self.costs, "costs"
        )
        if not costs.size:
            raise InvalidParameter(
                "There are no sellers.",
                "A market has at least one.",
                "Pass their reported costs.",
                parameter="costs",
            )
        if not np.all(np.isfinite(costs)):
            raise MissingValues(
                "A cost is missing or not finite.",
                "Every seller reports a number.",
                "Leave sellers without a report out, or take a number above the range: it sells "
                "nothing.",
                parameter="costs",
            )
        if costs.min() < 0:
            raise InvalidParameter(
                "A cost is negative.",
                "A cost of privacy is at least 0.",
                "Ask that seller for a cost again.",
                parameter="costs",
            )
        return costs

    @cached_property
    def _laws(self) -> list[Prior]:
        """The law of every seller, or one for all."""
        if self.prior is None and self.cost_range is None:
            raise InvalidBounds(
                "Neither a range nor a law of costs is given.",
                "What costs can be must be known before anybody reports.",
                "Pass cost_range=(low, high) from public knowledge, or prior=.",
                parameter="cost_range",
            )
        if self.prior is None or isinstance(self.prior, Prior):
            return [self.prior or uniform(*self._range)]
        check_same_length(len(self._reports), prior=self.prior)
        if not all(isinstance(law, Prior) for law in self.prior):
            raise InvalidParameter(
                "A prior is no law of costs.",
                "",
                "Pass one of sv.market.prior, or one a seller.",
                parameter="prior",
            )
        return list(self.prior)

    @property
    def _range(self) -> tuple[float, float]:
        if self.cost_range is None:
            laws = self._laws
            return min(law.low for law in laws), max(law.high for law in laws)
        try:
            low, high = self.cost_range
        except Exception:  # whatever somebody else's pair raises
            low = high = math.nan  # which no range has
        return to_number(low), to_number(high)

    @cached_property
    def _price_list(self) -> Prices:
        prices: Any = self.prices
        if prices is None:
            prices = DEFAULT_PRICES if self.loss.is_linear else CONVEX_PRICES
        if np.ndim(prices):
            return Prices.from_values(prices)
        return Prices.between(*self._range, prices)

    @cached_property
    def _limits(self) -> Floats:
        """Limits in billionths, rounded down, one a seller.

        Those that sellers report also to the menu.
        """
        cap: Any = self.cap
        if np.ndim(cap):
            cap = to_numbers(cap, "cap")
        limits = units.round_down(cap, zero_allowed=True)
        if limits.ndim:
            check_same_length(len(self._reports), cap=limits)
            menu = np.append(0, np.sort(units.round_down(MENU if self.menu is None else self.menu)))
            limits = menu[np.searchsorted(menu, limits, side="right") - 1]
        if limits.max() > MAX_EPSILON * units.UNITS_PER_EPSILON or limits.max() < 1:
            raise InvalidParameter(
                "The largest cap is zero, or beyond all protection.",
                f"Nobody sells more than {MAX_EPSILON:g}, and somebody sells something.",
                "Pass caps in that range; 1 is what is promised by default.",
                parameter="cap",
            )
        return np.broadcast_to(limits.astype(np.float64), self._reports.shape)

    @cached_property
    def _buyer(self) -> Buyer:
        mu, sigma, gamma = (to_number(value) for value in (*self._find_constants(), self.trade_off))
        if self.largest_share is None:
            largest = math.inf
        else:
            largest = to_number(self.largest_share)
        if not _is_plausible(gamma):
            raise InvalidParameter(
                "trade_off is not a positive number.",
                f"It is at most {LARGEST_AMOUNT:g}, and at least one over that.",
                "Without a price on money everything would be bought: say how much error a unit "
                "of money is worth.",
                parameter="trade_off",
            )
        ranges = {
            "mu": (0 < mu < math.inf, "It is positive and finite."),
            "sigma": (0 <= sigma < math.inf, "It is at least 0 and finite."),
            "largest_share": (largest >= 1, "It is at least 1."),
        }
        for name, (fine, required) in ranges.items():
            if not fine:
                raise InvalidParameter(
                    f"{name} is not a number in its range.",
                    required,
                    "Pass such a number, or nothing.",
                    parameter=name,
                )
        return Buyer(
            mu, sigma, gamma, None if self.largest_share is None else largest / len(self._reports)
        )

    def _find_constants(self) -> tuple[float, float]:
        if self.mu is not None and self.sigma is not None:
            return self.mu, self.sigma
        if self.dimension is None:
            raise InvalidParameter(
                "The bound on the error is not known.",
                "A buyer weighs money against μ‖a‖ + σ/η.",
                "Pass dimension= (and norm=), or mu= and sigma=.",
                parameter="dimension",
            )
        mu, sigma = constants(self.dimension, self.norm, self.failure)
        return mu if self.mu is None else self.mu, sigma if self.sigma is None else self.sigma

    @cached_property
    def _coin(self) -> Fraction:
        if self.coin is None:
            return (
                Fraction(10) ** math.floor(math.log10(self._price_list.values[-1])) * COIN_FRACTION
            )
        if not _is_plausible(to_number(self.coin)):
            raise InvalidParameter(
                "The coin is not positive, or too large or small.",
                f"A coin is an amount of money from {1 / LARGEST_AMOUNT:g} to {LARGEST_AMOUNT:g}.",
                "Pass coin=0.01 for cents.",
                parameter="coin",
            )
        return Fraction(str(self.coin))

    def _coins(self, budget: float) -> int:
        if not _is_plausible(to_number(budget)):
            raise InvalidParameter(
                "The budget is not positive, or too large or small.",
                f"It is an amount of money from {1 / LARGEST_AMOUNT:g} to {LARGEST_AMOUNT:g}.",
                "Pass an amount of money.",
                parameter="budget",
            )
        return math.floor(Fraction(str(float(budget))) / self._coin)

    def _totals(self) -> Floats:
        """The public grid: the same in all markets, and what is bought where all sell up to one
        public cap.
        """
        sellers = len(self._reports)
        totals = public_totals(sellers * MAX_EPSILON)
        if np.ndim(self.cap):
            return totals
        return np.union1d(totals, sellers * self._limits[0] / units.UNITS_PER_EPSILON)

    @cached_property
    def _offers(self) -> Offers:
        return self._make_offers(self._price_list)

    def _make_offers(self, prices: Prices) -> Offers:
        if isinstance(self.costs, Mapping):
            names = tuple(self.costs)
        else:
            names = None
        # Where sellers report caps, the largest that anybody may report is public, and theirs not.
        if np.ndim(self.cap):
            most = MAX_EPSILON
        else:
            most = float(self._limits[0]) / units.UNITS_PER_EPSILON
        refuse_steep(self.loss, float(self._limits.max()) / units.UNITS_PER_EPSILON)
        return Offers.of(prices, self._reports, self._limits, self._laws, names, self.loss, most)


def _is_plausible(money: float) -> bool:
    return 1 / LARGEST_AMOUNT <= money <= LARGEST_AMOUNT


def constants(dimension: int, norm: float = 1.0, failure: float = 0.05) -> tuple[float, float]:
    """Return μ and σ of the bound on the misclassification error (docs/theory/logistic.md).

    Parameters
    ----------
    dimension : int
        Number of coefficients, the intercept included.
    norm : float
        Bound β on the length of the coefficients.
    failure : float
        Probability with which the bound may fail.

    Returns
    -------
    tuple[float, float]
        μ and σ (Theorem 3).

    Raises
    ------
    InvalidParameter
        A number cannot be used.

    Examples
    --------
    >>> [round(constant) for constant in constants(30, norm=5.0)]
    [23, 570]
    """
    if not to_number(dimension) >= 1:
        raise InvalidParameter(
            "The dimension is below 1.",
            "",
            "Pass the number of coefficients.",
            parameter="dimension",
        )
    if not 0 < to_number(norm) < math.inf:
        raise InvalidParameter(
            "The norm is not positive and finite.",
            "",
            "Pass a bound on the length of the coefficients.",
            parameter="norm",
        )
    if not 0 < to_number(failure) < 1:
        raise InvalidParameter(
            "The failure is not a probability.",
            "It lies between 0 and 1.",
            "Pass a small one, such as 0.05.",
            parameter="failure",
        )
    norm = to_number(norm)
    failure = to_number(failure)
    q = float(scipy.special.gammaincinv(to_number(dimension), 1 - failure))
    return norm / math.log(2) * (2 + math.sqrt(math.log(1 / failure) / 2)), 2 * norm * q / math.log(
        2
    )
