# SPDX-License-Identifier: Apache-2.0
"""What was bought from whom, for how much, and why: the outcome of a market
(docs/theory/market.md).

Everything here follows from reported costs and public numbers. It is not differentially private
about *costs*: who sees a payment can infer the price it was made at.

    symbol   name
    ε_i      epsilon          whole billionths; what may be spent on seller i, all charges included
    t_i      payments         whole coins
    η        total_epsilon    Σ ε_i
    a_i      weights          ε_i/η

What a smaller error costs: the outcomes of one market at several trade-offs, as a table and as a
picture.

Other frontiers can be set beside it, each with a name: other caps, other laws, another mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.arrays import ColumnLike, Floats, TableLike
from sottovoce.budgets import LEAVE_OUT, SOLD_PROMISE, Budgets
from sottovoce.data.source import DataSource, is_rows_marker
from sottovoce.errors import InvalidParameter, UnknownPeople
from sottovoce.estimator import plan_dataset, read_source
from sottovoce.ledger import Amounts, Sale
from sottovoce.market.loss import LINEAR, SellerLoss
from sottovoce.market.optimiser import Buyer, Whole
from sottovoce.market.prior import Prices
from sottovoce.schema import Bounds, Schema
from sottovoce.svg import draw_curves

#: A description lists at most this many groups of sellers, an explanation this many steps of price.
LINES = 8


@dataclass(frozen=True, eq=False)
class Allocation:
    """Budgets and payments of a market's sellers, in the order in which they reported."""

    units: Whole  # billionths of ε, by seller
    coins: Whole | None  # by seller; None where payments were not asked for
    coin: Fraction
    prices: Prices
    step: Whole  # the price that each report was rounded up to; len(prices) where it lies above all
    curves: Whole  # type × price: what would be bought
    code: Whole  # seller → type; -1 above all prices
    buyer: Buyer
    names: tuple[Any, ...] | None = None
    rule: str | None = None
    budget: int | None = None  # in coins
    loss: SellerLoss = LINEAR  # what a seller loses by selling ε, in units of their cost

    @property
    def sold(self) -> tuple[str, str]:
        """What sellers have sold: a currency and a neighbour relation.

        A session grants it in no other account.
        """
        return SOLD_PROMISE

    @property
    def epsilon(self) -> Floats:
        """What may be spent on each seller."""
        return np.asarray(units.to_epsilon(self.units), dtype=np.float64)

    @property
    def losses(self) -> Floats:
        """What each seller loses for each unit of their cost: u(ε)."""
        return self.loss.evaluate(self.epsilon)

    @property
    def payments(self) -> Floats:
        """What each seller is paid, in the money that costs were reported in."""
        return self._to_money(self._coins)

    @property
    def total(self) -> float:
        """What all sellers are paid together."""
        return float(sum(self._coins.tolist()) * self.coin)

    @property
    def total_epsilon(self) -> float:
        """η, the sum of all ε."""
        return float(units.to_epsilon(int(self.units.sum())))

    @property
    def weights(self) -> Floats:
        """How loud each seller takes part: ε as a share of the sum, all 0 where nothing was
        bought.
        """
        return np.asarray(self.units / max(1, int(self.units.sum())), dtype=np.float64)

    @property
    def expected_error(self) -> float:
        """The bound μ‖a‖ + σ/η on what sampling and noise add to the error.

        Infinite where nothing was bought.
        """
        if not self.units.any():
            return math.inf
        return (
            self.buyer.mu * float(np.linalg.norm(self.weights))
            + self.buyer.sigma / self.total_epsilon
        )

    @property
    def unspent(self) -> float | None:
        """What is left of the budget, where there is one."""
        if self.budget is None:
            return None
        return float((self.budget - sum(self._coins.tolist())) * self.coin)

    @property
    def refused(self) -> NDArray[np.bool_]:
        """Whose report lies above the prices that they may be paid: nothing is bought from them."""
        return np.asarray(self.step == len(self.prices))

    def with_budget_rule(self, rule: str, budget: int) -> Allocation:
        """Return the same with the rule that kept it within a budget.

        Parameters
        ----------
        rule : str
            "ceiling" or "scaling".
        budget : int
            The budget in coins.

        Returns
        -------
        Allocation
            The allocation.
        """
        return replace(self, rule=rule, budget=budget)

    def by_person(self, people: ColumnLike | None = None) -> dict[Any, float]:
        """Return ε by seller, for Session.grant.

        Parameters
        ----------
        people :
            Names of the sellers, in their order.

        Returns
        -------
        dict[Any, float]
            ε by name, those of the mapping of costs, or by position.

        Raises
        ------
        InvalidParameter
            There are more or fewer names than sellers.
        """
        if people is None:
            names = self._names
        elif isinstance(people, Iterable):
            names = list(people)
        else:
            names = []
        if len(names) != len(self.units):
            raise InvalidParameter(
                "There are more or fewer names than sellers.",
                "",
                "Pass one name a seller.",
                parameter="people",
            )
        return dict(zip(names, self.epsilon.tolist(), strict=True))

    def to_sale(self, money: str = "") -> Sale:
        """Return what was bought at which payments, as a ledger records it.

        Parameters
        ----------
        money : str
            What the money is called, such as EUR.

        Returns
        -------
        Sale
            For ``Session.record_sale``.

        Raises
        ------
        InvalidParameter
            Payments were not computed.
        """
        account = ", ".join(self.sold)
        return Sale(Amounts(self._names, self.units, account), self._coins, self.coin, money)

    def budgets(self, groups: ColumnLike | None = None) -> Budgets:
        """Return the budgets of rows: row i is seller i's, or ``groups`` name the sellers.

        Whoever sells nothing is left out: their rows are not read.

        Parameters
        ----------
        groups :
            The seller of each row.

        Returns
        -------
        Budgets
            The budgets.
        """
        if groups is None:
            return Budgets.of(self.epsilon, self.names, zero=LEAVE_OUT)
        return Budgets.of(self.by_person(), groups, zero=LEAVE_OUT)

    def train(
        self, model: Any, X: TableLike, y: ColumnLike, groups: ColumnLike | None = None
    ) -> Any:
        """Return a model that is fitted with exactly these budgets.

        Sellers have sold pure ε, by replacement of all their rows. An estimator that promises
        anything else with these numbers (an ε at a δ, ρ, labels alone, zeroing out) is refused
        before a row is read.

        Parameters
        ----------
        model :
            An estimator, or Bounds or a Schema for a logistic regression.
        X :
            Features.
        y :
            Labels.
        groups :
            The seller of each row.

        Returns
        -------
        Any
            The fitted model.

        Raises
        ------
        InvalidParameter
            The model promises something else than was sold.
        """
        from sottovoce.estimators.logistic import (
            LogisticRegression,
        )  # loads scikit-learn, and few markets train

        if isinstance(model, Bounds | Schema):
            estimator = LogisticRegression(bounds=model)
        else:
            estimator = model
        # A schema that names sellers is asked first: without it row i is taken for seller i's.
        if is_rows_marker(groups):
            owners = None
        else:
            owners = DataSource.of_columns(estimator, X, y, 1.0, groups).owners
        budgets = self.budgets(owners)
        promise = _find_promise(estimator, X, y, budgets)
        if promise != SOLD_PROMISE:
            raise InvalidParameter(
                f"This model promises {' by '.join(promise)}."
                if promise
                else "What this model promises is not known.",
                f"Sellers have sold {' by '.join(SOLD_PROMISE)} of all their rows, and nothing "
                "else.",
                "Choose a model that promises that, or agree anew with the sellers, and pass "
                "epsilon=allocation.budgets(groups) to its fit.",
                parameter="model",
            )
        return estimator.fit(
            X, y, epsilon=budgets, groups=groups if is_rows_marker(groups) else None
        )

    def describe(self) -> str:
        """Return the outcome in words.

        Returns
        -------
        str
            How much was bought from how many, for what, and what it is good for.
        """
        sellers = len(self.units)
        buying = int((self.units > 0).sum())
        lines = [
            f"Bought ε = {self.total_epsilon:.6g} in all from {buying:,} of {sellers:,} "
            f"sellers{self._describe_total()}."
        ]
        if self.refused.any():
            lines.append(
                f"Reports above the highest price, which sell nothing: {int(self.refused.sum()):,}."
            )
        if buying:
            lines.append(
                f"Bound on what sampling and noise add to the error: {self.expected_error:.3g}."
            )
            lines += self._tabulate_sellers()
        if self.budget is not None:
            lines.append(
                f"Kept within a budget of {float(self.budget * self.coin):g} by {self.rule}; "
                f"{self.unspent:g} unspent."
            )
        return "\n".join([*lines, "Reported costs are not protected: payments reveal them."])

    def explain(self, seller: object) -> str:
        """Return why a seller is paid this, and why another report would not have paid.

        Parameters
        ----------
        seller :
            A name, or a position.

        Returns
        -------
        str
            Words, with the prices.

        Raises
        ------
        UnknownPeople
            There is no such seller.
        """
        i = self._find_seller(seller)
        if self.code[i] < 0:
            return (
                "The reported cost lies above the highest price, so nothing is bought and nothing "
                "is paid."
            )
        if not self.units[i]:
            return (
                "Others sell at a lower virtual cost: at this price nothing is bought, and "
                "nothing is paid."
            )
        parts = self._split_payment(i)
        price = float(self.prices.values[self.step[i]])
        lines = [
            f"The report was rounded up to the price {price:g}; ε = {self.epsilon[i]:g} is bought"
            + (f" for {float(self.payments[i]):g}." if self.coins is not None else "."),
            f"Each part of {self._name_loss()} is paid the highest price at which the seller would "
            "still have sold it:",
        ]
        what = "ε" if self.loss.is_linear else "the loss"
        lines += [f"  {amount:.6g} of {what} at {at:g}" for amount, at in parts]
        return "\n".join([*lines, *TRUTH_SENTENCES])

    def __repr__(self) -> str:
        sellers = units.format_count(len(self.units), "seller")
        return f"<Allocation of ε = {self.total_epsilon:.6g} over {sellers}>"

    @property
    def _coins(self) -> Whole:
        if self.coins is None:
            raise InvalidParameter(
                "Payments were not computed.", "", "Call allocate() without pay=False."
            )
        return self.coins

    @property
    def _names(self) -> list[Any]:
        if self.names is None:
            return list(range(len(self.units)))
        return list(self.names)

    def _find_seller(self, seller: object) -> int:
        if (
            self.names is None
            and isinstance(seller, int | np.integer)
            and 0 <= seller < len(self.units)
        ):
            return int(seller)
        if self.names is not None and isinstance(seller, Hashable) and seller in self.names:
            return self.names.index(seller)
        raise UnknownPeople(
            "This seller is not in the market.",
            "",
            "Pass a position, or a name of the costs.",
            parameter="seller",
        )

    def _to_money(self, coins: Whole) -> Floats:
        # For cents, and for all parts of a unit, one division gives the double nearest to the exact
        # amount.
        return np.asarray(
            coins * float(self.coin) if self.coin >= 1 else coins / float(1 / self.coin)
        )

    def _describe_total(self) -> str:
        if self.coins is None:
            return ""
        return f" for {self.total:g}"

    def _name_loss(self) -> str:
        if self.loss.is_linear:
            return "it"
        return f"its loss u(ε) = {self.loss.describe()}"

    def _split_payment(self, i: int) -> list[tuple[float, float]]:
        """Return how much of the loss is paid which price, joined where there are many steps."""
        sold = self.curves[self.code[i]]
        if not self.loss.is_linear:
            sold = self.loss.evaluate(sold / units.UNITS_PER_EPSILON) * units.UNITS_PER_EPSILON
        curve = np.append(sold, 0)[self.step[i] :]
        drops = -np.diff(curve)
        at = self.prices.values[self.step[i] :]
        where = np.flatnonzero(drops)
        joined = [part for part in np.array_split(where, LINES) if len(part)]
        return [
            (
                float(drops[p].sum()) / units.UNITS_PER_EPSILON,
                float(drops[p] @ at[p] / drops[p].sum()),
            )
            for p in joined
        ]

    def _tabulate_sellers(self) -> list[str]:
        """One line for each group of sellers, from the cheapest: what they sell and are paid on
        average.
        """
        order = np.argsort(self.step, kind="stable")
        order = order[self.units[order] > 0]
        lines = [f"{'price up to':>12} {'sellers':>9} {'ε each':>12} {'paid each':>12}"]
        for part in (part for part in np.array_split(order, LINES) if len(part)):
            if self.coins is not None:
                paid = f"{float(self.payments[part].mean()):12.6g}"
            else:
                paid = f"{'':12}"
            price = float(self.prices.values[self.step[part[-1]]])
            lines.append(
                f"{price:12.6g} {len(part):9,d} {float(self.epsilon[part].mean()):12.6g} {paid}"
            )
        return lines


def _find_promise(
    estimator: Any, X: TableLike, y: ColumnLike, budgets: Budgets
) -> tuple[str, str] | None:
    """Return the currency and the neighbours of what an estimator promises.

    None if it cannot be planned.
    """
    from sottovoce.estimators.baselines import (
        BaselineWrapper,
        ExternalEstimator,
    )  # loads scikit-learn

    if isinstance(estimator, ExternalEstimator):
        return SOLD_PROMISE  # a function that somebody vouches for, turned into that promise
    # A baseline keeps the kind of promise of what it is around, at one ε. Others that are around an
    # estimator, such as those of scikit-learn, may fit it many times with all that was sold.
    if isinstance(estimator, BaselineWrapper) and estimator.estimator is not None:
        granted = budgets.kinds.epsilon[budgets.row_codes()]
        one = Budgets.of(float(units.to_epsilon(granted[granted > 0].min())), rows=len(granted))
        return _find_promise(estimator.estimator, X, y, one)
    if not hasattr(estimator, "plan_for"):
        return None
    dataset = read_source(estimator, DataSource.of(estimator, X, y, budgets))
    guarantee = plan_dataset(estimator, dataset).guarantee
    return guarantee.currency, guarantee.neighbours


#: Why the truth is the best report, in words.
TRUTH_SENTENCES = (
    "Reporting more would only have lost parts of this sale, each of them paid at least its cost.",
    "Reporting less would have changed no price of these parts, and sold more of ε below its cost.",
)


@dataclass(frozen=True)
class Point:
    """The outcome at one trade-off."""

    trade_off: float
    expected_error: float
    payment: float
    total_epsilon: float


@dataclass(frozen=True)
class Frontier:
    """Outcomes at several trade-offs, in the order in which they were asked for."""

    points: tuple[Point, ...]
    others: tuple[tuple[str, Frontier], ...] = ()

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)

    def beside(self, name: str, other: Frontier) -> Frontier:
        """Return the same with another frontier beside it, in the table and in the picture.

        Parameters
        ----------
        name : str
            What the other is called.
        other : Frontier
            The other.

        Returns
        -------
        Frontier
            Both.
        """
        return replace(self, others=(*self.others, (name, other)))

    def describe(self) -> str:
        """Return the table in words.

        Returns
        -------
        str
            A line a point.
        """
        lines = [
            f"{'trade-off':>12} {'error bound':>12} {'payment':>12} {'total ε':>12}",
            *map(_format_point, self.points),
        ]
        for name, other in self.others:
            lines += [f"{name}:", *map(_format_point, other.points)]
        return "\n".join(lines)

    def svg(self, *, standalone: bool = True) -> str:
        """Draw payments along and bounds on the error upwards, on logarithmic axes.

        Parameters
        ----------
        standalone : bool
            Whether it carries its own style, for a file or a page of your own. The pages of this
            package have that style.

        Returns
        -------
        str
            SVG.
        """
        return draw_curves(
            [("", _list_places(self)), *((name, _list_places(o)) for name, o in self.others)],
            "What a smaller bound on the error costs, on logarithmic axes",
            across="all payments together",
            up="bound on the error",
            standalone=standalone,
        )


def _format_point(p: Point) -> str:
    return f"{p.trade_off:12.4g} {p.expected_error:12.4g} {p.payment:12.6g} {p.total_epsilon:12.6g}"


def _list_places(frontier: Frontier) -> list[tuple[float, float]]:
    """Return what can be shown on logarithmic axes, by payment: whoever buys nothing has no place
    there.
    """
    return sorted(
        (point.payment, point.expected_error)
        for point in frontier.points
        if point.payment > 0 and 0 < point.expected_error < math.inf
    )
