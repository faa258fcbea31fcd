# SPDX-License-Identifier: Apache-2.0
"""What each person lost to this very release, stage by stage, for the curator
(docs/theory/per-instance.md, section on realised losses).

A realised loss is the log-ratio of how likely what was released is with a row and without it,
everything public unchanged. It is a number about one outcome of the noise: the promise bounds it
for every outcome, and its law over fresh noise gives an ε at δ, which refitting bounds with a
confidence.

    symbol   name
    L_i      losses: Σ over the stages whose laws are known, with its sign
             bound: what the other stages add at most
    ε_i      epsilon: |L_i| and the bound together; never above what was charged
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from sottovoce.accounting.profiles import one_probability
from sottovoce.arrays import ColumnLike, Floats, Integers, TableLike, list_feature_names
from sottovoce.audit import inputs
from sottovoce.audit.confidential import STAMP, ConfidentialArray, ConfidentialObject, draw_losses
from sottovoce.audit.instance_losses import ExposedPerson, Summary, divide_by_median
from sottovoce.audit.laws import AuditUnits
from sottovoce.audit.measured_losses import PlannedOnce
from sottovoce.audit.replays import Replayed, StageLoss
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.engine import Dataset
from sottovoce.data.source import DataSource
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import get_budgets, make_release, read_source
from sottovoce.estimators import find_recorded
from sottovoce.release import Release
from sottovoce.schema import is_between
from sottovoce.units import format_count

#: Refits by which the law of a loss is bounded, and how sure the bound is, for each person.
REFITS = 300
CONFIDENCE = 0.99


class RealisedLosses(ConfidentialObject):
    """What each row lost to one release, by stages, and what that says about all. Confidential."""

    eigenvalue = None

    def __init__(self, made: Replayed, stages: list[StageLoss], people: AuditPeople) -> None:
        super().__init__()
        self.delta = made.delta
        self._made = made
        self._stages = stages
        self._people = people

    def __len__(self) -> int:
        return len(self._made.kinds)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<RealisedLosses of {format_count(len(self), 'row')}: {STAMP}>"

    __str__ = __repr__

    @cached_property
    def losses(self) -> ConfidentialArray:
        """L_i of the stages whose laws are known, one a row, with its sign."""
        return ConfidentialArray.of(self._add_stages(self._rows, exact=True))

    @cached_property
    def bound(self) -> ConfidentialArray:
        """What the other stages add to |L_i| at most, one a row."""
        return ConfidentialArray.of(self._add_stages(self._rows, exact=False))

    @cached_property
    def epsilon(self) -> ConfidentialArray:
        """|L_i| and the bound together, one a row."""
        return ConfidentialArray.of(np.abs(np.asarray(self.losses)) + np.asarray(self.bound))

    @property
    def stages(self) -> dict[str, ConfidentialArray]:
        """What each stage cost each row, by its place and name; with its sign where it is exact."""
        return {
            f"{place} {stage.name}": ConfidentialArray.of(self._restore(stage.compute(self._rows)))
            for place, stage in enumerate(self._stages, start=1)
        }

    @property
    def unit(self) -> str:
        """Whose losses ``by_person`` tells: "rows" or "people"."""
        if self._people.owner is None:
            return "rows"
        return "people"

    @property
    def neighbours(self) -> str:
        """The neighbours of the promise, as in its guarantee."""
        return self._made.plan.guarantee.neighbours

    @property
    def promised_delta(self) -> float | None:
        """The δ of the promise; None where it is pure."""
        return self._made.plan.guarantee.delta

    @property
    def promised(self) -> ConfidentialArray:
        """What each row's person was promised, by row, for all tables and all noise."""
        amounts = self._made.plan.guarantee.amounts[self._made.kinds]
        return ConfidentialArray.of(self._restore(amounts))

    @property
    def told_as(self) -> str:
        """What kind of number a loss is, in words."""
        if any(stage.exact for stage in self._stages):
            return "as the log-ratio of this very release"
        return f"as ε at δ = {self.delta:g}"

    @property
    def exactness(self) -> str:
        """Whether these numbers are exact, in words."""
        exact = [stage.name for stage in self._stages if stage.exact]
        rest = [stage.name for stage in self._stages if not stage.exact]
        if not exact:
            return f"an upper bound ({', '.join(dict.fromkeys(rest))})"
        told = f"the realised loss of {', '.join(dict.fromkeys(exact))}"
        if rest:
            told += f", and at most for {', '.join(dict.fromkeys(rest))}"
        return f"{told}; a row that is taken out leaves everything public as it is"

    def by_person(self) -> ConfidentialArray:
        """Return |L| and the bound for all rows of each person together, people in sorted order.

        Returns
        -------
        ConfidentialArray
            By person; without ``groups`` the same as ``epsilon``.
        """
        if self._people.owner is None:
            return self.epsilon
        return self._by_person

    @cached_property
    def _by_person(self) -> ConfidentialArray:
        units = self._people.units
        return ConfidentialArray.of(
            np.abs(self._add_stages(units, exact=True)) + self._add_stages(units, exact=False)
        )

    def losses_by_person(self) -> ConfidentialArray:
        """Return L of all rows of each person together, with its sign.

        Returns
        -------
        ConfidentialArray
            By person; without ``groups`` the same as ``realised``.
        """
        if self._people.owner is None:
            return self.losses
        return ConfidentialArray.of(self._add_stages(self._people.units, exact=True))

    def at_delta(
        self,
        delta: float,
        *,
        draws: int = REFITS,
        confidence: float = CONFIDENCE,
        watch: Callable[[int], Any] | None = None,
    ) -> RefitBound:
        """Return a bound on everybody's ε at δ, over fresh noise, from refitting with it.

        The mechanism is run again and again on the same rows; no answer of it leaves. A bound
        holds with this confidence for each person by themselves. Small δ need many draws: below
        about 5 over their number a bound comes close to what was charged.

        Parameters
        ----------
        delta : float
            δ > 0, the probability that the statement leaves out.
        draws : int
            How many times the mechanism is run.
        confidence : float
            With which each bound holds.
        watch :
            Is told how many draws are done.

        Returns
        -------
        RefitBound
            By person (by row, without ``groups``), confidential.

        Raises
        ------
        InvalidParameter
            δ, draws or the confidence cannot be used.
        """
        level = one_probability(delta)
        if not (isinstance(draws, int) and draws >= 1):
            raise InvalidParameter(
                "draws is not a whole number from 1 on.", "", "Pass draws=300.", parameter="draws"
            )
        if not is_between(confidence, 0, 1):
            raise InvalidParameter(
                "The confidence is not between 0 and 1.",
                "",
                "Pass confidence=0.99.",
                parameter="confidence",
            )
        made = self._made
        found = []
        payer = PlannedOnce(made.plan)
        for done in range(1, draws + 1):
            release = make_release(made.model, made.rows, payer=payer)[1]
            again = replace(made, release=release)
            stages = find_stages(again)
            losses = RealisedLosses(again, stages, self._people)
            found.append(np.asarray(losses.losses_by_person()))
            if watch is not None:
                watch(done)
        units = self._people.units
        amounts = made.plan.guarantee.amounts[made.kinds]
        charged = np.zeros(units.count)
        np.maximum.at(charged, units.codes, amounts)
        rest = self._add_stages(units, exact=False)
        bounds = bound_epsilon(np.array(found), charged, level, float(confidence))
        return RefitBound(np.minimum(bounds + rest, charged), level, draws, float(confidence))

    def summary(self) -> Summary:
        """Return quantiles and moments, beside what was promised.

        Returns
        -------
        Summary
            The summary, confidential too.
        """
        return Summary(self)

    def least_protected(self, count: int = 10) -> list[ExposedPerson]:
        """Return who lost most, by rank, and what sets them apart.

        Parameters
        ----------
        count : int
            How many.

        Returns
        -------
        list[ExposedPerson]
            The people, confidential.
        """
        losses = np.asarray(self.by_person())
        units = self._people.units
        weight = self._made.plan.weights.row[self._made.kinds].astype(np.float64)
        rows = units.sizes.astype(np.float64)
        facts = {
            "weight": divide_by_median(units.add(weight) / np.maximum(rows, 1)),
            "rows": divide_by_median(rows),
        }
        if self._people.owner is None:
            facts = {name: self._restore(values) for name, values in facts.items()}
        names = self._people.names(len(losses))
        worst = np.argsort(-losses, kind="stable")[:count]
        return [
            ExposedPerson(
                rank, float(losses[i]), {name: float(of[i]) for name, of in facts.items()}, names[i]
            )
            for rank, i in enumerate(worst, start=1)
        ]

    def picture(self) -> str:
        """Draw the losses as a histogram on a logarithmic axis, with the promise.

        Returns
        -------
        str
            SVG, confidential.
        """
        return draw_losses(self.epsilon, self.summary(), standalone=True)

    @property
    def _rows(self) -> AuditUnits:
        return AuditUnits.rows(len(self))

    def _add_stages(self, units: AuditUnits, *, exact: bool) -> Floats:
        total = np.zeros(units.count)
        for stage in self._stages:
            if stage.exact == exact:
                total = total + stage.compute(units)
        if units.single and self._people.owner is None:
            return self._restore(total)
        if units.count == len(self) and units is not self._people.units:
            return self._restore(total)
        return total

    def _restore(self, by_row: Floats) -> Floats:
        """Rows in the order in which they were given."""
        order = self._people.order
        if order is None:
            return by_row
        found = np.empty_like(by_row)
        found[order] = by_row
        return found


class AuditPeople:
    """Whose the rows are, as the mechanism had them."""

    def __init__(self, owner: Integers | None, people: Any, rows: int, order: Any = None) -> None:
        self.owner = owner
        self.people = people
        self.order = order
        if owner is None:
            self.units = AuditUnits.rows(rows)
        else:
            self.units = AuditUnits(owner, int(owner.max()) + 1)

    def names(self, count: int) -> list[Any]:
        """Names in order; numbers where there are none."""
        if self.people is None:
            return list(range(count))
        return list(np.asarray(self.people).tolist())


class RefitBound(ConfidentialObject):
    """Bounds on everybody's ε at δ, from refitting. Confidential."""

    def __init__(self, epsilon: Floats, delta: float, draws: int, confidence: float) -> None:
        super().__init__()
        self.epsilon = ConfidentialArray.of(epsilon)
        self.delta = delta
        self.draws = draws
        self.confidence = confidence

    def __repr__(self) -> str:
        return f"<Bounds of {len(self.epsilon)} at δ = {self.delta:g}: {STAMP}>"

    __str__ = __repr__


def bound_epsilon(
    losses: NDArray[np.float64], charged: Floats, delta: float, confidence: float
) -> Floats:
    """Return ε with δ(ε) ≤ δ in both directions, with this confidence for each column of losses.

    Of M draws the k + 1 largest is exceeded with probability at most p_k (Clopper and Pearson), k
    fixed before the draws are seen; beyond it no loss is above what was charged, c, so that
    δ(ε) ≤ p_k·(1 − e^(ε−c)) one way and p_k·(e^c − e^ε) the other.
    """
    draws = len(losses)
    failure = (1 - confidence) / 2
    limits = np.array([_bound_share(k, draws, failure) for k in range(draws)])
    fitting = np.flatnonzero(limits <= delta)
    k = max([0, *fitting.tolist()])
    p = float(limits[k])
    ordered = np.sort(losses, axis=0)
    upper = ordered[draws - 1 - k]
    lower = -ordered[k]
    if p <= delta:
        # One way δ(ε) ≤ P(L > ε); the other way it is weighted by e^−L ≤ e^c.
        added = np.maximum(upper, 0.0)
    else:
        added = np.maximum(upper, charged + math.log1p(-delta / p))
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.log(np.maximum(np.exp(np.minimum(charged, 700.0)) - delta / p, 1.0))
    removed = np.maximum(lower, np.where(charged > 700, charged, rest))
    return np.asarray(np.clip(np.maximum(added, removed), 0.0, charged))


def _bound_share(k: int, draws: int, failure: float) -> float:
    """The largest probability at which so few exceed with at least this chance."""
    if k >= draws:
        return 1.0
    return float(betaincinv(k + 1, draws - k, 1 - failure))


def find_stages(made: Replayed) -> list[StageLoss]:
    """Return the stages of a release, by the replay that the registry names."""
    question = find_recorded(made.release.question)
    assert question is not None
    stages: list[StageLoss] = question.load_replay().stages(made)
    return stages


def read_realised(
    est: object,
    X: TableLike,
    y: ColumnLike | None,
    delta: float,
    epsilon: BudgetLike | None,
    groups: ColumnLike | None,
) -> RealisedLosses:
    """Return the losses of a fitted estimator, or of a release, and of the rows it was made from.

    Budgets that are not those of the plan may be those of a baseline that gives everybody the
    smallest: then that is tried.
    """
    release, model = prepare_model(est)
    if y is None and release.column in (list_feature_names(X) or []):
        y = release.column  # of a table, the release says which column it is about
    dataset = read_source(model, DataSource.of(model, X, y, epsilon, groups))
    try:
        return read_dataset(release, model, dataset, delta)
    except InvalidParameter as error:
        least = _find_smallest(get_budgets(dataset))
        if error.parameter != "epsilon" or least is None:
            raise
    return read_dataset(
        release, model, read_source(model, DataSource.of(model, X, y, least, groups)), delta
    )


def prepare_model(est: object) -> tuple[Release, Any]:
    """Return the release, and the estimator that its rows are read and planned with."""
    release, model = inputs.find_release(est)
    question = find_recorded(release.question)
    assert question is not None
    prepare = question.load_replay().prepare
    if prepare is None:
        return release, model
    return release, prepare(release, model)


def _find_smallest(budgets: Budgets) -> float | None:
    granted = budgets.kinds.epsilon[budgets.kinds.epsilon > 0]
    if not len(granted) or int(granted.min()) == int(granted.max()):
        return None
    return float(granted.min()) / 1e9


def read_dataset(release: Release, model: Any, rows: Dataset, delta: float) -> RealisedLosses:
    """Return the losses of rows wherever they live, under the budgets of the release."""
    question = find_recorded(release.question)
    assert question is not None
    method = question.load_replay()
    budgets = get_budgets(rows)
    candidate, plan = inputs.find_plan(release, model, budgets, rows)
    kinds, owner = inputs.collect_owners(budgets, rows)
    order = None
    if method.sorted and budgets.owner is not None:
        order = np.argsort(budgets.owner, kind="stable")
        owner = budgets.owner[order]
    made = Replayed(release, candidate, plan, rows, kinds, delta)
    people = AuditPeople(owner, budgets.people, len(kinds), order)
    return RealisedLosses(made, find_stages(made), people)
