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
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.arrays import ColumnLike, Floats, TableLike
from sottovoce.budgets import LEAVE_OUT, Budgets
from sottovoce.data.source import Values, is_rows_marker
from sottovoce.errors import InvalidParameter, UnknownPeople
from sottovoce.estimator import read_source
from sottovoce.market.optimiser import Buyer, Whole
from sottovoce.market.prior import Prices
from sottovoce.schema import Bounds, Schema

#: A description lists at most this many groups of sellers, an explanation this many steps of price.
LINES = 8
#: What sellers sell: a currency and a neighbour relation.
SOLD_PROMISE = ("pure epsilon", "replace")


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
        """How loud each seller is heard: ε as a share of the sum, all 0 where nothing was
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
                "There are more or fewer names than sellers.", "", "Pass one name a seller."
            )
        return dict(zip(names, self.epsilon.tolist(), strict=True))

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
            owners = Values.of(estimator, X, y, 1.0, groups).groups
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
            "Each part of it is paid the highest price at which the seller would still have sold "
            "it:",
        ]
        lines += [f"  {amount:.6g} of ε at {at:g}" for amount, at in parts]
        return "\n".join([*lines, *TRUTH_SENTENCES])

    def __repr__(self) -> str:
        return f"<Allocation of ε = {self.total_epsilon:.6g} over {len(self.units)} sellers>"

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
            "This seller is not in the market.", "", "Pass a position, or a name of the costs."
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

    def _split_payment(self, i: int) -> list[tuple[float, float]]:
        """Return how much of ε is paid which price, joined where there are many steps."""
        curve = np.append(self.curves[self.code[i]], 0)[self.step[i] :]
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
    guarantee = estimator.plan_for(
        *read_source(estimator, X, y, epsilon=budgets, groups=None)
    ).guarantee
    return guarantee.currency, guarantee.neighbours


#: Why the truth is the best report, in words.
TRUTH_SENTENCES = (
    "Reporting more would only have lost parts of this sale, each of them paid at least its cost.",
    "Reporting less would have changed no price of these parts, and sold more of ε below its cost.",
)


#: The picture in its own units: margins, the field, and room for words.
LEFT = 70
WIDE = 560
HIGH = 260
ABOVE = 24
BELOW = 56

FRONTIER_STYLE = """\
svg.frontier { --ink: #23211d; --soft: #6a655c; --line: #dedad0; --own: #1f6f78;
  --other: #a8622a; font: 14px Georgia, "Times New Roman", serif; }
@media (prefers-color-scheme: dark) {
  svg.frontier { --ink: #e8e5de; --soft: #a09a8e; --line: #38383a; --own: #5fb8c2;
    --other: #d99a63; }
}
svg.frontier text { fill: var(--soft); }
svg.frontier polyline { stroke: var(--own); fill: none; stroke-width: 1.5; }
svg.frontier circle { fill: var(--own); }
svg.frontier polyline.other { stroke: var(--other); stroke-dasharray: 5 4; }
svg.frontier circle.other { fill: var(--other); }
svg.frontier line { stroke: var(--line); }"""


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

    def svg(self) -> str:
        """Draw payments along and bounds on the error upwards, on logarithmic axes.

        Returns
        -------
        str
            SVG.
        """
        curves = [
            ("", _take_logarithms(self)),
            *((name, _take_logarithms(other)) for name, other in self.others),
        ]
        title = "What a smaller bound on the error costs, on logarithmic axes"
        return (
            f'<svg class="frontier" viewBox="0 0 {LEFT + WIDE + 30} {ABOVE + HIGH + BELOW}" '
            'role="img" '
            'xmlns="http://www.w3.org/2000/svg" '
            f'aria-label="{escape(title)}">\n<style>{FRONTIER_STYLE}</style>\n'
            + "\n".join(_draw_curves([(name, places) for name, places in curves if places]))
            + "\n</svg>"
        )


def _format_point(p: Point) -> str:
    return f"{p.trade_off:12.4g} {p.expected_error:12.4g} {p.payment:12.6g} {p.total_epsilon:12.6g}"


def _take_logarithms(frontier: Frontier) -> list[tuple[float, float]]:
    """Return what can be shown on logarithmic axes, by payment: whoever buys nothing has no place
    there.
    """
    shown = sorted(
        (p.payment, p.expected_error)
        for p in frontier.points
        if p.payment > 0 and p.expected_error > 0
    )
    return [(math.log10(x), math.log10(y)) for x, y in shown if math.isfinite(y)]


def _draw_curves(curves: list[tuple[str, list[tuple[float, float]]]]) -> list[str]:
    if not curves:
        return []
    across, up = (_find_ends([p[axis] for _, places in curves for p in places]) for axis in (0, 1))
    return [
        *_draw_axes(across, up),
        *(_draw_curve(name, places, across, up) for name, places in curves),
    ]


def _draw_curve(
    name: str,
    shown: list[tuple[float, float]],
    across: tuple[float, float],
    up: tuple[float, float],
) -> str:
    """Return one curve; those beside the first are dashed and named at their last place."""
    places = [
        (LEFT + WIDE * _scale_to_unit(x, across), ABOVE + HIGH * (1 - _scale_to_unit(y, up)))
        for x, y in shown
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    if name:
        kind = ' class="other"'
    else:
        kind = ""
    dots = "\n".join(f'<circle{kind} cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in places)
    x, y = places[-1]
    if name:
        word = f'\n<text x="{x:.1f}" y="{y - 10:.1f}" text-anchor="end">{escape(name)}</text>'
    else:
        word = ""
    return f'<polyline{kind} points="{line}"/>\n{dots}{word}'


def _find_ends(values: list[float]) -> tuple[float, float]:
    room = max(0.05 * (max(values) - min(values)), 0.05)
    return min(values) - room, max(values) + room


def _scale_to_unit(value: float, ends: tuple[float, float]) -> float:
    return (value - ends[0]) / (ends[1] - ends[0])


def _draw_axes(across: tuple[float, float], up: tuple[float, float]) -> list[str]:
    bottom = ABOVE + HIGH
    parts = [f'<line x1="{LEFT}" x2="{LEFT + WIDE}" y1="{bottom}" y2="{bottom}"/>']
    for value in np.linspace(*across, 5)[1:-1]:
        x = LEFT + WIDE * _scale_to_unit(float(value), across)
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 22}" text-anchor="middle">{10**value:.3g}</text>'
        )
    for value in np.linspace(*up, 5)[1:-1]:
        y = ABOVE + HIGH * (1 - _scale_to_unit(float(value), up))
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDE}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">{10**value:.3g}</text>'
        )
    words = (
        f'<text x="{LEFT + WIDE / 2}" y="{bottom + 46}" text-anchor="middle">all payments '
        "together</text>"
    )
    return [
        *parts,
        words,
        f'<text x="{LEFT - 8}" y="{ABOVE - 8}" text-anchor="start">bound on the error</text>',
    ]
