# SPDX-License-Identifier: Apache-2.0
"""What is promised to whom, and how promises add up (docs/theory/composition.md).

A guarantee is never a bare number. It has a unit (row or person), a neighbour relation (replace:
that unit's rows are exchanged for others, everything public stays), a currency (pure ε; ρ of zCDP,
with or without a δ at which to read it; or ε at one δ) and one value for each person. Only promises
of the same kind to the same people can be added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.accounting import renyi
from sottovoce.arrays import Array
from sottovoce.budgets import Budgets, Unit
from sottovoce.errors import IncompatibleGuarantees, InvalidParameter
from sottovoce.schema import is_between

Currency = Literal["pure epsilon", "zCDP rho", "epsilon, delta"]
Arithmetic = Literal["exact", "floating"]
#: "replace labels": only the labels are exchanged, and only they are protected. "zero out": rows
#: leave all sums.
Neighbours = Literal["replace", "replace labels", "zero out"]

#: Up to this many different values a published guarantee lists them all; beyond, it shows deciles.
MOST_VALUES_LISTED = 12


@dataclass(frozen=True, eq=False)
class Guarantee:
    """One promise a person. ``spent`` is in units of a billionth, one entry a kind of people."""

    spent: units.Units
    counts: NDArray[np.int64]
    unit: Unit
    codes: Array | None = None
    people: Array | None = None
    neighbours: Neighbours = "replace"
    currency: Currency = "pure epsilon"
    arithmetic: Arithmetic = "exact"
    delta: float | None = (
        None  # the δ that belongs to ε; for ρ of zCDP, the δ at which it is read as an ε
    )
    gaussian: bool = (
        False  # ρ is that of one release with Gaussian noise, whose ε at each δ is known exactly
    )

    def __repr__(self) -> str:
        """The unit, how many there are, the neighbours and the currency; nobody is named."""
        people = units.format_count(int(self.counts.sum()), self.unit)
        at = ""
        if self.delta is not None:
            at = f" at δ = {self.delta:g}"
        return (
            f"<Guarantee of {people}: {self.currency}{at}, neighbours by {self.neighbours}, "
            f"{self.arithmetic} arithmetic>"
        )

    @classmethod
    def of(
        cls, budgets: Budgets, spent: units.Units, arithmetic: Arithmetic = "exact"
    ) -> Guarantee:
        """Return the promise that each kind of people loses at most what is spent.

        Parameters
        ----------
        budgets : Budgets
            Who takes part.
        spent : units.Units
            Whole units, one a kind.
        arithmetic : Arithmetic
            Whether noise is drawn in exact or floating arithmetic.

        Returns
        -------
        Guarantee
            The promise.
        """
        return cls(
            spent,
            budgets.kinds.people,
            budgets.unit,
            budgets.codes,
            budgets.people,
            arithmetic=arithmetic,
        )

    @property
    def units(self) -> units.Units:
        """What each is promised in whole units, in the order of ``epsilon``."""
        if self.codes is None:
            return self.spent
        return self.spent[self.codes]

    @property
    def reported_currency(self) -> Literal["epsilon", "rho"]:
        """What each is told: an ε where there is one, pure or at the guarantee's δ, else ρ."""
        if self.currency == "zCDP rho" and self.delta is None:
            return "rho"
        return "epsilon"

    @cached_property
    def amounts(self) -> NDArray[np.float64]:
        """What each kind of people is promised, in what is shown."""
        if self.currency == "zCDP rho" and self.delta is not None:
            return self._convert_rho(self.delta, self.spent)
        return np.asarray(units.to_epsilon(self.spent), dtype=np.float64)

    @property
    def epsilon(self) -> NDArray[np.float64]:
        """What each is promised: by row without groups, else by person in sorted order (by kind if
        streamed).
        """
        if self.reported_currency != "epsilon":
            raise IncompatibleGuarantees(
                "This guarantee is counted in ρ of zCDP.",
                "It has no pure ε.",
                "Use .rho, or .approximate(delta).",
            )
        if self.codes is None:
            return self.amounts
        return self.amounts[self.codes]

    @property
    def rho(self) -> NDArray[np.float64]:
        """What each is promised in ρ of zCDP; a pure ε is worth ρ = min(ε²/2, ε), rounded up."""
        return np.asarray(units.to_epsilon(self.as_zcdp().units), dtype=np.float64)

    def as_zcdp(self) -> Guarantee:
        """Return the same promise in ρ: ε-DP implies ε²/2-zCDP (Bun and Steinke 2016, 1.4).

        Returns
        -------
        Guarantee
            The promise in ρ.

        Raises
        ------
        IncompatibleGuarantees
            It is an ε at a δ.
        """
        if self.currency == "zCDP rho":
            return self
        if self.currency == "epsilon, delta":
            raise IncompatibleGuarantees(
                "This guarantee is an ε at one δ.",
                "It says nothing about ρ.",
                "Use .epsilon, with .delta beside it.",
            )
        epsilon = np.asarray(units.to_epsilon(self.spent))
        rho = units.round_up(np.minimum(epsilon**2 / 2, epsilon))
        return replace(self, spent=rho, currency="zCDP rho")

    def approximate(self, delta: float) -> NDArray[np.float64]:
        """Return each person's ε at this δ.

        Parameters
        ----------
        delta : float
            δ > 0, the probability that the statement leaves out.

        Returns
        -------
        NDArray[np.float64]
            ε by (2) of docs/theory/composition.md, or exactly where noise was Gaussian.

        Raises
        ------
        InvalidParameter
            Δ is not between 0 and 1.
        """
        if not is_between(delta, 0, 1):
            raise InvalidParameter(
                "δ is not between 0 and 1.",
                "",
                "Pass a small δ, far below one over the number of people.",
                parameter="delta",
            )
        if self.currency == "epsilon, delta":
            return self._get_epsilon_above(delta)
        return self._convert_rho(delta, self.as_zcdp().units)

    def _convert_rho(self, delta: float, rho: NDArray[np.int64]) -> NDArray[np.float64]:
        values, where = np.unique(rho, return_inverse=True)
        if self.gaussian:
            read = renyi.gaussian_epsilon
        else:
            read = renyi.zcdp_epsilon
        return np.asarray(read(units.to_epsilon(values), delta)[where], dtype=np.float64)

    def _get_epsilon_above(self, delta: float) -> NDArray[np.float64]:
        if self.delta is None or delta < self.delta:
            raise IncompatibleGuarantees(
                "This guarantee is an ε at a larger δ.",
                "It says nothing about smaller ones.",
                "Plan with that δ.",
            )
        return self.epsilon

    def __add__(self, other: Guarantee) -> Guarantee:
        """What both releases together cost each person: in one currency the losses of a person add
        up.
        """
        self._refuse_other_kinds(other)
        left, right = self._to_one_currency(other)
        arithmetic: Arithmetic = (
            "exact" if self.arithmetic == other.arithmetic == "exact" else "floating"
        )
        left = replace(
            left, arithmetic=arithmetic, delta=_combine_deltas(left, right), gaussian=False
        )
        if (
            left.codes is right.codes and left.counts is right.counts
        ):  # the same kinds of the same people
            return replace(left, spent=left.spent + right.spent)
        spent = left.units + right.units
        counts = np.broadcast_to(np.int64(1), spent.shape)
        return replace(left, spent=spent, counts=counts, codes=None)

    def _names_everybody(self) -> bool:
        # In a streamed table without people only kinds are known, and two tables of kinds cannot be
        # matched.
        return self.codes is not None or bool(np.all(self.counts == 1))

    def _to_one_currency(self, other: Guarantee) -> tuple[Guarantee, Guarantee]:
        if self.currency == other.currency:
            return self, other
        return (
            self.as_zcdp(),
            other.as_zcdp(),
        )  # which refuses an ε at one δ: with anything else it adds up to nothing

    def _refuse_other_kinds(self, other: Guarantee) -> None:
        same_people = (self.people is None) == (other.people is None) and (
            self.people is other.people
            or np.array_equal(np.asarray(self.people), np.asarray(other.people))
        )
        if (
            (self.unit, self.neighbours) != (other.unit, other.neighbours)
            or not same_people
            or len(self.units) != len(other.units)
            or not (
                self.counts is other.counts
                or (self._names_everybody() and other._names_everybody())
            )
        ):
            raise IncompatibleGuarantees(
                "These guarantees protect different units, neighbours or people.",
                "Only promises of one kind to the same people add up.",
                "Compose releases about the same people with the same unit and neighbour relation.",
            )

    def summary(self) -> dict[str, Any]:
        """Return the public account: unit, neighbours, currency, and how ε is distributed.

        Returns
        -------
        dict[str, Any]
            JSON; never who has which ε.
        """
        spent = self.spent
        counts = self.counts
        if np.any(
            spent[1:] < spent[:-1]
        ):  # kinds come in order of ε, and then so does what they spend
            order = np.argsort(spent)
            spent = spent[order]
            counts = counts[order]
        told: dict[str, Any] = {
            "unit": self.unit,
            "neighbours": self.neighbours,
            "currency": self.currency,
            "arithmetic": self.arithmetic,
            "people": int(counts.sum()),
        }
        if self.currency == "zCDP rho":
            told["rho"] = _summarise_amounts(spent, counts, "rho")
        if self.delta is not None:
            told["delta"] = self.delta
        if self.reported_currency == "epsilon":
            told["epsilon"] = _summarise_amounts(
                replace(self, spent=spent)._units_of_epsilon(), counts, "epsilon"
            )
        return told

    def _units_of_epsilon(self) -> NDArray[np.int64]:
        if self.currency == "zCDP rho":
            return units.round_up_decimal(self.amounts)
        return self.spent


def _combine_deltas(left: Guarantee, right: Guarantee) -> float | None:
    """Returns the δ of two promises together: of ε at δ the sum, of ρ the one at which both are
    read.
    """
    given = [promise.delta for promise in (left, right) if promise.delta is not None]
    if left.currency == "epsilon, delta":
        return sum(given)
    if len(set(given)) == 1:
        return given[0]
    return None


def _summarise_amounts(
    spent: units.Units, counts: NDArray[np.int64], symbol: str
) -> dict[str, Any]:
    return {
        "least": float(units.to_epsilon(int(spent[0]))),
        "most": float(units.to_epsilon(int(spent[-1]))),
        "distribution": summarise_distribution(spent, counts, symbol),
    }


def summarise_distribution(
    spent: units.Units, counts: NDArray[np.int64], symbol: str
) -> list[dict[str, float]]:
    """Returns how many people have each value, given in order; deciles where there are more than a
    dozen values.
    """
    changes = spent[1:] != spent[:-1]
    if np.count_nonzero(changes) < MOST_VALUES_LISTED:
        start = np.concatenate([[0], np.flatnonzero(changes) + 1])
        values = spent[start]
        totals = np.add.reduceat(counts, start)
        return [
            {symbol: float(units.to_epsilon(int(v))), "people": int(c)}
            for v, c in zip(values, totals, strict=True)
        ]
    reached = np.cumsum(counts)
    ranks = [math.ceil(reached[-1] * tenth / 10) for tenth in range(1, 11)]
    deciles = spent[np.searchsorted(reached, ranks)]
    return [
        {symbol: float(units.to_epsilon(int(v))), "share_at_or_below": tenth / 10}
        for tenth, v in enumerate(deciles, start=1)
    ]
