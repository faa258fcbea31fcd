# SPDX-License-Identifier: Apache-2.0
"""per_instance: what each person in the data really lost, exactly, for the curator
(docs/theory/per-instance.md).

A promise holds for every table and everybody in it. A per-instance loss is for this table and this
row: with it or without it, everything else the same. It is often a hundred times smaller, and never
public: it depends on everybody.

    symbol   name
    ε_i      epsilon, at δ; the worse of adding and removing the row, other weights unchanged
    μ_i      leverage xᵀH⁻¹x of the row, where it is absent
    r_i      residual y − xᵀθ, where it is absent; both in the mechanism's coordinates and with the
             row's weight

The summary of losses, and who is least protected and why, depend on everybody's data, and are as
confidential as the losses. Who is least protected is told by rank, with names for whoever asks for
them by hand. What sets somebody apart is told as a multiple of the median: how unlike the others'
their features are (leverage), how badly the others foretell their label (residual), how strongly
they take part (weight) and how many rows they own.

Several rows at once are one replaced by another, a group that enters row by row, or all rows of a
person. Where person l is present with rows X_l: S = X_l H⁻¹ X_lᵀ and errors e. Without them θ moves
by H⁻¹X_lᵀ(I − S)⁻¹e. In the eigenvectors of S a posterior sample's loss is that of as many
independent records, of leverages h/(1 − h): Rényi curves add up, exactly.

Several releases about the same people lose, person by person, what theorem 10 says. Rényi curves
add up over releases that were not chosen in view of one another, and are read at δ in the end;
where adding the exact ε at equal parts of δ gives less, that is taken. An adaptive posterior sample
counts with both its releases, the second given what the first turned out to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from sottovoce.accounting import profiles, renyi
from sottovoce.accounting.profiles import one_probability
from sottovoce.arrays import ColumnLike, Floats, TableLike
from sottovoce.audit import inputs
from sottovoce.audit.confidential import (
    STAMP,
    ConfidentialArray,
    ConfidentialObject,
    draw_losses,
)
from sottovoce.audit.inputs import AuditInput, WorstRecord, read_described_input
from sottovoce.audit.leverages import SINGULAR_BELOW, RidgeFit
from sottovoce.audit.mechanisms import (
    GaussianObjective,
    GaussianOutput,
    LeaveOneOutChange,
    PosteriorMechanism,
    RadialOutput,
)
from sottovoce.budgets import BudgetLike
from sottovoce.errors import InvalidInput, InvalidParameter
from sottovoce.units import format_count

if TYPE_CHECKING:
    from sottovoce.audit.realised import RealisedLosses
    from sottovoce.estimators.posterior import Posterior


@overload
def per_instance(
    est: GaussianOutput | GaussianObjective | Posterior,
    X: TableLike,
    y: ColumnLike | None = None,
    delta: float = 1e-6,
    *,
    epsilon: BudgetLike | None = None,
    groups: ColumnLike | None = None,
) -> PerInstance: ...


@overload
def per_instance(
    est: object,
    X: TableLike,
    y: ColumnLike | None = None,
    delta: float = 1e-6,
    *,
    epsilon: BudgetLike | None = None,
    groups: ColumnLike | None = None,
) -> PerInstance | RealisedLosses: ...


def per_instance(
    est: object,
    X: TableLike,
    y: ColumnLike | None = None,
    delta: float = 1e-6,
    *,
    epsilon: BudgetLike | None = None,
    groups: ColumnLike | None = None,
) -> PerInstance | RealisedLosses:
    """Return what each row lost to a release, confidentially.

    Parameters
    ----------
    est :
        A fitted estimator of this library, a Release of one, or a description: GaussianOutput or
        GaussianObjective.
    X :
        The features, or the one column, that were fitted; a table whose column y names, too.
    y :
        The labels that were fitted.
    delta : float
        δ at which losses are told, where they are an ε at δ.
    epsilon :
        Budgets, as they were given to fit.
    groups :
        Owners of rows, as they were given to fit.

    Returns
    -------
    PerInstance or RealisedLosses
        The losses, for the curator alone: exact at δ for posterior samples and for noise on the
        solution; the loss of this very release for all others.

    Raises
    ------
    InvalidInput
        The model, the rows or δ cannot be used.
    InvalidRelease
        The release cannot be audited.

    Examples
    --------
    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 500)[:, None]
    >>> model = sv.PosteriorSample(
    ...     gamma=1.0, alpha=5.0, bounds=sv.Bounds(norm=1.0, label=(-1, 1))
    ... ).fit(x, x[:, 0] / 2)
    >>> audit = sv.audit.per_instance(model, x, x[:, 0] / 2)
    >>> audit
    <PerInstance of 500 rows: CONFIDENTIAL, for the curator alone>
    >>> bool(audit.epsilon.max() <= float(audit.for_all()) <= model.guarantee_.epsilon[0])
    True
    """
    level = one_probability(delta)
    if isinstance(est, GaussianOutput | GaussianObjective):
        return PerInstance(read_described_input(est, X, _require(y), epsilon, groups), level)
    release, _ = inputs.find_release(est)
    if inputs.has_known_law(release):
        return PerInstance(inputs.read_audit_input(est, X, _require(y), epsilon, groups), level)
    from sottovoce.audit.realised import read_realised  # which stands on this file

    return read_realised(est, X, y, level, epsilon, groups)


def _require(y: Any) -> Any:
    if y is None:
        raise InvalidParameter(
            "There are no labels.",
            "An audit of a model looks at features and labels.",
            "Pass y.",
            parameter="y",
        )
    return y


class PerInstance(ConfidentialObject):
    """One exact ε a row, where they come from, and what they say about all. Confidential."""

    def __init__(self, setting: AuditInput, delta: float) -> None:
        super().__init__()
        self.delta = delta
        self._setting = setting
        self._fit: RidgeFit = setting.fit()
        self._change: LeaveOneOutChange = setting.compute_changes(
            self._fit, setting.rows, setting.labels, present=True
        )

    def __len__(self) -> int:
        return len(self._setting.labels)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<PerInstance of {format_count(len(self), 'row')}: {STAMP}>"

    __str__ = __repr__

    @cached_property
    def epsilon(self) -> ConfidentialArray:
        """ε_i at δ, one a row."""
        return ConfidentialArray.of(self._setting.mechanism.epsilon(self._change, self.delta))

    @property
    def leverage(self) -> ConfidentialArray:
        """μ_i; a row with a large one has features unlike everybody else's."""
        return ConfidentialArray.of(self._change.leverage)

    @property
    def residual(self) -> ConfidentialArray:
        """r_i; a row with a large one has a label that the others do not foretell."""
        return ConfidentialArray.of(self._change.residual)

    @property
    def told_as(self) -> str:
        """What kind of number a loss is, in words."""
        return f"as ε at δ = {self.delta:g}"

    @property
    def exactness(self) -> str:
        """Whether these numbers are exact, in words."""
        several = isinstance(self._setting.mechanism, PosteriorMechanism) and self.unit == "people"
        more = (
            "; several rows of a person together, read off an exact Rényi curve, about a tenth "
            "too large"
        )
        return self._setting.mechanism.exactness + (more if several else "")

    @property
    def unit(self) -> str:
        """Whose losses ``by_person`` tells: "rows" or "people"."""
        if self._setting.owner is None:
            return "rows"
        return "people"

    @property
    def neighbours(self) -> str:
        """The neighbours of the promise, as in its guarantee.

        Empty for a mechanism that is only described.
        """
        return self._setting.neighbours

    @property
    def promised_delta(self) -> float | None:
        """The δ of the promise; None where it is pure."""
        return self._setting.promised_delta

    @property
    def promised(self) -> ConfidentialArray | None:
        """What each row's person was promised, by row, for all tables.

        None for a mechanism that is only described.
        """
        if self._setting.promised is None:
            return None
        return ConfidentialArray.of(self._setting.promised)

    @cached_property
    def eigenvalue(self) -> ConfidentialArray | None:
        """ε at δ of what an adaptive posterior sample released first, its noisy eigenvalue, by
        itself; else None.
        """
        moved = self._setting.earlier
        if moved is None:
            return None
        return ConfidentialArray.of(profiles.gaussian_epsilon(moved, self.delta))

    def at(self, delta: float) -> PerInstance:
        """Return the same losses at another δ.

        Parameters
        ----------
        delta : float
            δ > 0, the probability that the statement leaves out.

        Returns
        -------
        PerInstance
            The losses at that δ.
        """
        return PerInstance(self._setting, one_probability(delta))

    def by_person(self) -> ConfidentialArray:
        """Return ε of all rows of each person together, people in sorted order.

        Exact for noise on the solution. For a posterior sample it is exact for who owns one row,
        and read off the exact Rényi curve, about a tenth too large, for who owns people.

        Returns
        -------
        ConfidentialArray
            ε by person; without ``groups`` the same as ``epsilon``.
        """
        if self._setting.owner is None:
            return self.epsilon
        return ConfidentialArray.of(
            compute_person_losses(self._setting, self._fit, self._change, self.delta)
        )

    def for_all(self) -> WorstRecord:
        """Return the most that any record could lose with these rows.

        An added record has the weight of the heaviest row. Float it for the number; ``x`` and ``y``
        say which record.

        Returns
        -------
        WorstRecord
            The worst record of the domain if added, or of the rows if removed.
        """
        return inputs.find_worst_record(self._setting, self._fit, self.epsilon, self.delta)

    def for_one(
        self, z: tuple[Any, Any], datasets: Iterable[tuple[TableLike, ColumnLike]]
    ) -> ConfidentialArray:
        """Return ε of one record by being added to each of several data sets.

        Parameters
        ----------
        z :
            The record (x, y).
        datasets : Iterable[tuple[Any, Any]]
            Pairs (X, y), in the units of fit.

        Returns
        -------
        ConfidentialArray
            ε for each data set.
        """
        return ConfidentialArray.of(
            inputs.compute_record_losses(self._setting, z, datasets, self.delta)
        )

    def replaced(self, i: int, z: tuple[Any, Any]) -> float:
        """Return ε between these rows and the same with row i replaced by a record.

        Parameters
        ----------
        i : int
            The number of the row.
        z :
            The record (x, y) in its place.

        Returns
        -------
        float
            ε; known for noise on the solution only.

        Raises
        ------
        InvalidParameter
            The loss is not known, or there is no such row.
        """
        setting = self._setting
        if not isinstance(setting.mechanism, RadialOutput | GaussianOutput):
            raise InvalidParameter(
                "There is no closed form for replacing a row here.",
                "There is one for noise on the solution: Ridge with an output method, and "
                "GaussianOutput.",
                "Add up what removing the one row and adding the other cost.",
            )
        return compute_replacement_loss(setting, self._fit, i, z, self.delta)

    def group(self, rows: ColumnLike) -> tuple[float, float]:
        """Return (ε, δ) of several rows together, as they enter one by one (theorem 11).

        Parameters
        ----------
        rows :
            The numbers of the rows.

        Returns
        -------
        tuple[float, float]
            ε and δ.
        """
        return compute_group_loss(self._setting, rows, self.delta)

    def generalisation_bound(self, *, simple: bool = False) -> float:
        """Return the bound on how far a loss in [0, 1] on these rows is from that on fresh ones.

        The theorem takes means over data sets and records; here the people in the data stand for
        them, so this is an estimate of the bound (Proposition 9 of the paper, corrected;
        ``simple``: Corollary 12).

        Parameters
        ----------
        simple : bool
            Corollary 12 in place of the corrected Proposition 9.

        Returns
        -------
        float
            The bound, in expectation.
        """
        epsilon = np.asarray(self.epsilon)
        with np.errstate(over="ignore", invalid="ignore"):
            if simple:
                bound = renyi.simple_generalisation(epsilon, self.delta)
            else:
                bound = renyi.generalisation(epsilon, np.full(len(epsilon), self.delta))
        if bound == bound:
            return min(bound, 1.0)
        return 1.0

    def curves(self, part: slice) -> Floats:
        """Return D_α at renyi.ORDERS for some rows, what was released before included.

        Parameters
        ----------
        part : slice
            Which rows.

        Returns
        -------
        Floats
            One row for each.
        """
        total = self._setting.mechanism.curve(self._change.select(part))
        moved = self._setting.earlier
        if moved is None:
            return total
        return total + renyi.compute_gaussian_curve(moved[part])

    def summary(self) -> Summary:
        """Return quantiles and moments, beside what was promised and the worst record.

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
        return rank_least_protected(self, count)

    def picture(self) -> str:
        """Draw the losses as a histogram on a logarithmic axis, with worst record and promise.

        Returns
        -------
        str
            SVG, confidential.
        """
        return draw_losses(self.epsilon, self.summary(), standalone=True)


#: Less than so many times the median sets nobody apart.
NOTABLE_MULTIPLE = 1.5
FACT_WORDS = {
    "leverage": "features unlike the others' (leverage {} times the median)",
    "residual": "a label that the others do not foretell (residual {} times the median)",
    "weight": "a larger weight than most ({} times the median)",
    "rows": "more rows than most ({} times the median)",
}
SUMMARY_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


class Summary(ConfidentialObject):
    """Quantiles and moments of ε over the people in the data. ``print`` it to read it."""

    def __init__(self, audit: Any) -> None:
        super().__init__()
        losses = np.asarray(audit.epsilon)
        self.rows = len(losses)
        self.delta = audit.delta
        self.told_as = audit.told_as
        self.exactness = audit.exactness
        self.quantiles = dict(
            zip(
                SUMMARY_SHARES,
                np.quantile(losses, SUMMARY_SHARES, method="inverted_cdf").tolist(),
                strict=True,
            )
        )
        self.median = self.quantiles[0.5]
        self.largest = self.quantiles[1.0]
        self.mean = float(losses.mean())
        self.mean_square = float(np.square(losses).mean())
        promised = audit.promised
        if promised is None:
            self.promised = None
        else:
            self.promised = (float(promised.min()), float(promised.max()))
        self.promised_delta = audit.promised_delta
        self.neighbours = audit.neighbours
        if audit.eigenvalue is None:
            self.eigenvalue = None
        else:
            self.eigenvalue = float(audit.eigenvalue.max())
        self.for_all = _find_worst_bound(audit)

    def __str__(self) -> str:
        lines = [
            STAMP,
            f"What {format_count(self.rows, 'row')} lost, {self.told_as} ({self.exactness}).",
            "  "
            + ", ".join(
                f"{_name_quantile(share)} {value:.3g}" for share, value in self.quantiles.items()
            ),
            f"  mean {self.mean:.3g}, root mean square {self.mean_square**0.5:.3g}",
        ]
        if self.eigenvalue is not None:
            lines.append(
                f"  before it, the noisy eigenvalue cost {self.eigenvalue:.3g} at most, by itself"
            )
        if self.for_all is not None:
            lines.append(
                f"Any record that bounds allow, with these rows: {self.for_all:.3g} at most."
            )
        if self.promised is not None:
            at = ""
            if self.promised_delta is not None:
                at = f" at δ = {self.promised_delta:g}"
            lines.append(
                f"Promised, for every table (neighbours by {self.neighbours}): "
                f"{_format_range(*self.promised)}{at}."
            )
        return "\n".join(lines)


def _find_worst_bound(audit: Any) -> float | None:
    if not isinstance(audit, PerInstance):
        return None
    try:
        return audit.for_all().bound
    except InvalidInput:  # no domain, or no proof
        return None


def _name_quantile(share: float) -> str:
    return {0.0: "smallest", 0.5: "median", 1.0: "largest"}.get(share, f"{share:.0%}")


def _format_range(low: float, high: float) -> str:
    if low == high:
        return f"{high:.3g}"
    return f"{low:.3g} to {high:.3g}"


class ExposedPerson(ConfidentialObject):
    """One of the least protected: rank (1 is the least), ε, what sets them apart, and who it is.

    Confidential.
    """

    def __init__(self, rank: int, epsilon: float, multiples: dict[str, float], who: Any) -> None:
        super().__init__()
        self.rank = rank
        self.epsilon = epsilon
        self.multiples = multiples
        self.who = who

    def __repr__(self) -> str:
        return f"<Place {self.rank}: {STAMP}>"

    __str__ = __repr__

    def why(self) -> str:
        """What sets them apart, in words, the most telling first."""
        apart = sorted(
            ((m, name) for name, m in self.multiples.items() if m >= NOTABLE_MULTIPLE), reverse=True
        )
        told = "; ".join(FACT_WORDS[name].format(_format_multiple(m)) for m, name in apart)
        return told or "nothing stands out"


def rank_least_protected(audit: PerInstance, count: int) -> list[ExposedPerson]:
    """Return the people (rows, without groups) who lost most, the worst first."""
    losses = np.asarray(audit.by_person())
    setting = audit._setting
    if setting.owner is None:
        owner = np.arange(len(losses))
    else:
        owner = setting.owner
    if setting.people is None:
        names = list(range(len(losses)))
    else:
        names = np.asarray(setting.people).tolist()
    facts = _compute_facts(audit, owner, len(losses))
    worst = np.argsort(-losses, kind="stable")[:count]
    return [
        ExposedPerson(
            rank, float(losses[i]), {name: float(of[i]) for name, of in facts.items()}, names[i]
        )
        for rank, i in enumerate(worst, start=1)
    ]


def _compute_facts(audit: PerInstance, owner: NDArray[np.int64], people: int) -> dict[str, Floats]:
    """Each fact as a multiple of its median: the mean over a person's rows, and how many there
    are.
    """
    weight = np.square(audit._setting.root)
    participating = np.where(weight > 0, weight, 1.0)
    rows = np.bincount(owner, minlength=people).astype(np.float64)
    by_row = {
        "leverage": np.asarray(audit.leverage) / participating,
        "residual": np.abs(np.asarray(audit.residual)) / np.sqrt(participating),
        "weight": weight,
    }
    means = {
        name: np.bincount(owner, values, minlength=people) / np.maximum(rows, 1)
        for name, values in by_row.items()
    }
    return {name: divide_by_median(values) for name, values in {**means, "rows": rows}.items()}


def divide_by_median(values: Floats) -> Floats:
    """Returns numbers as multiples of their median; ones where that is 0."""
    middle = float(np.median(values))
    if 0 < middle < np.inf:
        return values / middle
    return np.ones_like(values)


def _format_multiple(value: float) -> str:
    if value < 9.95:
        return f"{value:.1f}"
    return f"{value:,.0f}"


Indices = NDArray[np.int64]
#: People that are worked on at a time.
PEOPLE_CHUNK = 256


def compute_replacement_loss(
    setting: AuditInput, fit: RidgeFit, i: int, z: tuple[Any, Any], delta: float
) -> float:
    """Return ε between the rows and the same with row i replaced by z, for noise on the
    solution.
    """
    i = _check_row_numbers(setting, [i])[0]
    old = setting.rows[i : i + 1], setting.labels[i : i + 1]
    moved = fit.moved_by_replacing(old, setting.read_record(z, float(setting.root[i])))[0]
    return float(
        setting.mechanism.epsilon(
            make_distance_change(_measure_length(moved, setting.mechanism.compute_metric(fit))),
            delta,
        )[0]
    )


def compute_group_loss(setting: AuditInput, rows: ColumnLike, delta: float) -> tuple[float, float]:
    """Return (ε, δ) of a group: its rows are taken out of the table one by one, each at what it
    then costs.
    """
    out = _check_row_numbers(setting, rows)
    keep = np.ones(len(setting.labels), dtype=np.bool_)
    costs = []
    for i in reversed(out):
        fit = setting.fit(setting.rows[keep], setting.labels[keep])
        moved = setting.compute_changes(
            fit, setting.rows[i : i + 1], setting.labels[i : i + 1], present=True
        )
        costs.append(float(setting.mechanism.epsilon(moved, delta)[0]))
        keep[i] = False
    return renyi.group(costs[::-1], np.full(len(costs), delta))


def make_distance_change(distance: Floats) -> LeaveOneOutChange:
    """A change of which only the distance matters."""
    nothing = np.zeros_like(distance)
    return LeaveOneOutChange(nothing, nothing, distance, nothing, nothing)


def _measure_length(moved: Floats, metric: Floats) -> Floats:
    return np.sqrt(np.maximum([moved @ metric @ moved], 0.0))


def _check_row_numbers(setting: AuditInput, rows: ColumnLike) -> list[int]:
    places = [int(i) for i in np.atleast_1d(np.asarray(rows))]
    if (
        not places
        or len(set(places)) < len(places)
        or not all(0 <= i < len(setting.labels) for i in places)
    ):
        raise InvalidParameter(
            "A row number is not among the rows, or is given twice.",
            "Rows are counted from 0.",
            "Correct it.",
            parameter="rows",
        )
    return places


class _PeopleBlock(NamedTuple):
    """Some people who own equally many rows: who they are, H⁻¹X_lᵀ, shares h and vectors of S, and
    errors in these.
    """

    people: Indices
    turned: Floats
    shares: Floats
    vectors: Floats
    errors: Floats


def compute_person_losses(
    setting: AuditInput, fit: RidgeFit, change: LeaveOneOutChange, delta: float
) -> Floats:
    """Return ε of all rows of each person, in the order of people."""
    assert setting.owner is not None
    mechanism = setting.mechanism
    counts = np.bincount(setting.owner).astype(np.int64)
    order = np.argsort(setting.owner, kind="stable").astype(np.int64)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    found = np.zeros(len(counts))
    single = order[first[counts == 1]]
    found[counts == 1] = mechanism.epsilon(change.select(single), delta)
    for block in _iterate_blocks(setting, fit, counts, order, first):
        if isinstance(mechanism, RadialOutput | GaussianOutput):
            distance = _measure_moves(block, mechanism.compute_metric(fit))
            found[block.people] = mechanism.epsilon(make_distance_change(distance), delta)
        elif isinstance(mechanism, PosteriorMechanism):
            found[block.people] = renyi.convert_to_epsilon(
                _sum_posterior_curves(block, mechanism.gamma), delta
            )
        else:
            raise InvalidParameter(
                "Several rows of a person together are not known for noise in the objective.",
                "",
                "Use .group(rows).",
                parameter="groups",
            )
    return found


def _iterate_blocks(
    setting: AuditInput, fit: RidgeFit, counts: Indices, order: Indices, first: Indices
) -> Iterator[_PeopleBlock]:
    inverse = fit.inverse_root.T @ fit.inverse_root
    for count in np.unique(counts[counts > 1]):
        everybody = np.flatnonzero(counts == count)
        for at in range(0, len(everybody), PEOPLE_CHUNK):
            people = everybody[at : at + PEOPLE_CHUNK]
            places = order[first[people][:, None] + np.arange(count)]
            X = setting.rows[places]
            y = setting.labels[places]
            turned = X @ inverse
            shares, vectors = np.linalg.eigh(turned @ X.transpose(0, 2, 1))
            errors = np.einsum("pij,pi->pj", vectors, y - X @ fit.theta)
            yield _PeopleBlock(people, turned, np.maximum(shares, 0.0), vectors, errors)


def _leave_people_out(block: _PeopleBlock) -> tuple[Floats, Floats]:
    """h/(1−h) and e/(1−h); ∞ where the fit needs these rows."""
    rest = 1 - block.shares
    safe = np.where(rest > SINGULAR_BELOW, rest, 1.0)
    return (
        np.where(rest > SINGULAR_BELOW, block.shares / safe, np.inf),
        np.where(rest > SINGULAR_BELOW, block.errors / safe, np.inf),
    )


def _measure_moves(block: _PeopleBlock, metric: Floats) -> Floats:
    """‖H⁻¹X_lᵀ(I − S)⁻¹e‖ in the metric."""
    residual = _leave_people_out(block)[1]
    finite = np.isfinite(residual).all(axis=1)
    back = np.einsum("pij,pj->pi", block.vectors, np.where(np.isfinite(residual), residual, 0.0))
    moved = np.einsum("pij,pi->pj", block.turned, back)
    length = np.sqrt(np.maximum(np.einsum("pi,ij,pj->p", moved, metric, moved), 0.0))
    return np.where(finite, length, np.inf)


def _sum_posterior_curves(block: _PeopleBlock, gamma: float) -> Floats:
    mu, r = _leave_people_out(block)
    return np.asarray(renyi.compute_posterior_curve(mu, np.sqrt(gamma) * r).sum(axis=1))


COMPOSITION_CHUNK = 2048


class Composed(ConfidentialObject):
    """What several releases together cost each row, at one δ. Confidential."""

    def __init__(self, epsilon: Floats, delta: float, releases: int) -> None:
        super().__init__()
        self.epsilon = ConfidentialArray.of(epsilon)
        self.delta = delta
        self.releases = releases

    def __repr__(self) -> str:
        return f"<Composed losses of {len(self.epsilon)} rows to {self.releases} releases: {STAMP}>"

    __str__ = __repr__


def compose(audits: Sequence[PerInstance], delta: float = 1e-6) -> Composed:
    """Return what several releases cost each row together.

    Parameters
    ----------
    audits : Sequence[PerInstance]
        Audits of the same rows in the same order.
    delta : float
        δ at which losses are told.

    Returns
    -------
    Composed
        The losses together, confidential.

    Raises
    ------
    InvalidParameter
        The audits are not of the same rows.
    """
    listed: list[PerInstance] = []
    if isinstance(audits, Sequence):
        listed = list(audits)
    level = one_probability(delta)
    sizes = {len(audit) for audit in listed if isinstance(audit, PerInstance)}
    if not listed or len(sizes) != 1 or not all(isinstance(audit, PerInstance) for audit in listed):
        raise InvalidParameter(
            "There is nothing to add up, or not about the same rows.",
            "Losses add up person by person.",
            "Pass audits of the same rows in the same order, as sv.audit.per_instance returns "
            "them.",
            parameter="audits",
        )
    added = _compose_renyi(listed, level)
    summed = np.sum(
        [_compute_exact_epsilon(audit, level / _count_releases(listed)) for audit in listed], axis=0
    )
    return Composed(np.minimum(added, summed), level, len(listed))


def _count_releases(audits: list[PerInstance]) -> int:
    return sum(1 if audit.eigenvalue is None else 2 for audit in audits)


def _compute_exact_epsilon(audit: PerInstance, delta: float) -> Floats:
    """The exact ε at this δ, what was released before included."""
    again = audit.at(delta)
    if again.eigenvalue is None:
        before: Floats | float = 0.0
    else:
        before = np.asarray(again.eigenvalue)
    return np.asarray(again.epsilon) + before


def _compose_renyi(audits: list[PerInstance], delta: float) -> Floats:
    rows = len(audits[0])
    parts = [slice(at, at + COMPOSITION_CHUNK) for at in range(0, rows, COMPOSITION_CHUNK)]
    return np.concatenate(
        [
            renyi.convert_to_epsilon(sum(audit.curves(part) for audit in audits), delta)
            for part in parts
        ]
    )


def pdp_to_dp(audit: PerInstance) -> float:
    """Return an ε that covers every record of the domain with these rows.

    It is a promise for this table only. A promise for all tables is the guarantee of the release.

    Parameters
    ----------
    audit : PerInstance
        What each row lost.

    Returns
    -------
    float
        The bound of ``for_all``.

    Raises
    ------
    InvalidParameter
        This is no audit.
    """
    if not isinstance(audit, PerInstance):
        raise InvalidParameter(
            "This is no audit.", "", "Pass what sv.audit.per_instance returned.", parameter="audit"
        )
    return audit.for_all().bound
