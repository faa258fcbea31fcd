# SPDX-License-Identifier: Apache-2.0
"""What a release will cost whom and how accurate it will be, before a private value is read.

A plan is made of public facts alone (budgets, row counts, bounds, parameters), so it can be shown,
argued about, written into the books and thrown away without costing anybody anything.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from html import escape
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.arrays import Floats
from sottovoce.budgets import Budgets
from sottovoce.errors import InvalidParameter, PlanChanged
from sottovoce.guarantee import MOST_VALUES_LISTED, Guarantee
from sottovoce.schema import Subject
from sottovoce.weights import Weights
from sottovoce.wording import (
    MOST_QUANTILES_TOLD,
    describe_question,
    describe_table,
    describe_unit,
    has_quantiles,
    name_quantiles,
    warn_if_uninformative,
    write_error_sentence,
)

#: The letters of the currencies that amounts are counted in.
SIGNS = {"epsilon": "ε", "rho": "ρ"}
#: People with one budget may differ from everybody by so much of the spread, on average: for the
#: possible bias alone.
ASSOCIATION = 1 / 5
#: Whoever spends less than this share of the grant is said to.
SPENDS_LESS = 0.9
#: Weights that agree so far with equal ones are called equal.
NEARLY_EQUAL = 0.995
#: Below this Σ(c_i − 1/n)² is rounding, and every row counts the same.
NEGLIGIBLE_INEQUALITY = 1e-20
#: The errors of so many cells are told in words.
MOST_CELLS_TOLD = 20
#: Below this a deviation is none.
TINY = 1e-12
#: How often a range is halved to find a number in it.
HALVINGS = 60
#: From here on e^(x²)·erfc(x) is a continued fraction, with so many steps exact to 1e-15.
CONTINUED_FRACTION = 3.0
CONTINUED_STEPS = 60
#: A normal of deviation 1 that is farther out than this has a probability below any double.
FARTHEST_NORMAL = 40.0
STANDARD_NORMAL = NormalDist()
MARGIN_HALVINGS = 14
#: How often a root is stepped towards at most, and the relative step that is none.
MOST_STEPS = 50
SMALLEST_STEP = 1e-15
#: Into how many parts of equal probability a law is cut, and how many variances are tried.
NODES = 800
VARIANCES = 40


@dataclass(frozen=True)
class Theorem:
    """What a guarantee rests on: a sentence, and the page with its proof."""

    statement: str
    page: str


def least_squares(fit_intercept: bool) -> str:
    """Returns the classical answer of a regression in words."""
    return (
        f"the predictions of least squares{'' if fit_intercept else ' without an intercept'}, "
        "over its rows"
    )


@dataclass(frozen=True)
class CellError:
    """What is expected of one cell of a table."""

    name: str
    rows: float  # as guessed
    error: float | None  # None where there will be too few rows to say

    def describe(self) -> str:
        """The cell in words."""
        return f"{self.name} {format_error(self.error or 0.0)} ({self.rows:,.0f} rows)"

    def to_dict(self) -> dict[str, Any]:
        """The cell as public JSON."""
        return {"cell": self.name, "rows": self.rows, "expected_error": self.error}


@dataclass(frozen=True)
class ExpectedError:
    """How far the answer is expected to be from the classical one on the same table, by cause, all
    in one unit.

        total² = noise² + sampling² + shrinkage²

    The classical answer counts every row the same and adds nothing: the plain mean, quantile, least
    squares, maximum likelihood. Each part is a root mean square, from public numbers alone
    (docs/guide/plans.md).
    """

    classical: str  # the classical answer, in words
    unit: str  # of every part, in words
    noise: float  # of what is drawn: noise, or the choice of a point
    sampling: float = (
        0.0  # of weights that differ from one row to another, where budgets go along with nothing
    )
    shrinkage: float = 0.0  # of what regularisation, dropped slopes and clipped pulls hold back
    bias: float = 0.0  # what may come besides: not in the total, because it may as well be nothing
    assumed: str = ""  # what is assumed about the table, where the numbers rest on it
    in_column: float | None = (
        None  # of a quantile: the total in units of the column, if values are spread as assumed
    )
    representative: float | None = None  # 1 − total variation between the weights and equal ones
    too_few_below: float | None = None  # of ratios by group: groups of fewer rows say nothing
    cells: tuple[CellError, ...] = ()  # of a table whose shares are guessed: each cell

    @property
    def total(self) -> float:
        """The root mean square error, possible bias left out."""
        return math.hypot(self.noise, self.sampling, self.shrinkage)

    @property
    def total_with_bias(self) -> float:
        """The root mean square error if the bias is as large as it may be."""
        return math.hypot(self.total, self.bias)

    @property
    def meaning(self) -> str:
        """What the total is, in words."""
        return (
            "root mean square difference from the classical answer on the same table, "
            f"{self.classical}, {self.unit}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The parts as public JSON."""
        parts = (
            "noise",
            "sampling",
            "shrinkage",
            "bias",
            "assumed",
            "in_column",
            "representative",
            "too_few_below",
        )
        told = {name: value for name in parts if (value := getattr(self, name)) not in (None, "")}
        if self.cells:
            told["cells"] = [cell.to_dict() for cell in self.cells]
        return told

    def describe(self, column_unit: str = "units of the column") -> str:
        """The parts in plain words; ``column_unit`` is what numbers of the column are in."""
        parts = {
            "noise": self.noise,
            "unequal weights": self.sampling,
            "shrinkage": self.shrinkage,
        }
        told = (
            "Of it "
            + ", ".join(f"{name} {self.format_part(part)}" for name, part in parts.items())
            + "."
        )
        if self.bias > 0:
            told += (
                f" Besides, up to about {self.format_part(self.bias)} of bias is possible, which "
                "is not in it."
            )
        told += f" {self.assumed}" if self.assumed else ""
        told += self._describe_cells()
        if self.in_column is not None:
            told += f" If so, it is about {format_error(self.in_column)} in {column_unit}."
        return told

    def format_part(self, part: float) -> str:
        """One part to three digits, or as a percentage where it is a share of the rows."""
        if part > 0 and self.unit.startswith("as a share"):
            return units.format_percent(part)
        return format_error(part)

    def _describe_cells(self) -> str:
        """What each cell is expected to have, the largest ones where there are many."""
        if not self.cells:
            return ""
        filled = [cell for cell in self.cells if cell.rows > 0]
        shown = sorted(filled, key=lambda cell: -cell.rows)[:MOST_CELLS_TOLD]
        named = [cell.describe() for cell in shown if cell.error is not None]
        few = [cell.name for cell in shown if cell.error is None]
        told = f" By cell: {', '.join(named)}." if named else ""
        if few:
            told += f" Too few to say: {', '.join(few)}."
        if len(filled) > len(shown):
            told += f" And {len(filled) - len(shown):,} more cells."
        return told


@dataclass(frozen=True, eq=False)
class Plan:
    """Question, weights, noise, charges and expected error, all of them public."""

    question: str
    parameters: dict[str, Any]  # public, as JSON
    budgets: Budgets
    weights: Weights
    guarantee: Guarantee
    noise: dict[str, Any]  # public, as JSON
    grid: Any  # the question's own grid, with a to_dict()
    theorem: Theorem
    error: ExpectedError | tuple[ExpectedError, ...]  # several for several quantiles
    accuracy: Callable[..., float] | None = (
        None  # a published bound on the error, where there is one
    )
    risk: Callable[..., float] | None = (
        None  # a bound on the share of rows misclassified, for classifiers
    )
    subject: Subject = field(default_factory=Subject)  # what people call it; no part of the digest
    bought: Any = None  # what a share of everybody's ε buys for the interval; describe() tells
    rivals: Callable[[], dict[str, ExpectedError]] | None = (
        None  # the errors to expect of other weights, by what they are called
    )
    parts: Mapping[str, Plan] = field(default_factory=dict)  # of a report: those of its questions

    @property
    def expected_error(self) -> float | tuple[float, ...]:
        """The root mean square error of the answer against the classical one on the same table."""
        if isinstance(self.error, ExpectedError):
            return self.error.total
        return tuple(e.total for e in self.error)

    @property
    def errors(self) -> tuple[ExpectedError, ...]:
        """The expected errors by cause, one for each number that is answered."""
        if isinstance(self.error, ExpectedError):
            return (self.error,)
        return self.error

    @property
    def error_is(self) -> str:
        """What the expected error measures, in words."""
        return self.errors[0].meaning

    @property
    def error_unit(self) -> str:
        """The unit of the expected error and of its parts, in words."""
        return self.errors[0].unit

    @property
    def error_parts(self) -> dict[str, Any] | list[dict[str, Any]]:
        """The parts of the expected error as public JSON, a list for several quantiles."""
        if isinstance(self.error, ExpectedError):
            return self.error.to_dict()
        return [e.to_dict() for e in self.error]

    @property
    def charges(self) -> NDArray[np.float64]:
        """What each will spend, ε or ρ by the guarantee's currency: by row without groups, else by
        person, sorted.
        """
        if self.guarantee.reported_currency == "epsilon":
            return self.guarantee.epsilon
        return self.guarantee.rho

    @cached_property
    def digest(self) -> str:
        """A fingerprint of every public fact in the plan, in which nobody can be looked up."""
        facts = {
            "question": self.question,
            "parameters": self.parameters,
            "noise": self.noise,
            "grid": self.grid.to_dict(),
        }
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        for array in (
            self.budgets.kinds.epsilon,
            self.budgets.kinds.rows,
            self.budgets.kinds.people,
            self.weights.row,
        ):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @cached_property
    def agreement(self) -> str:
        """A fingerprint of the plan and of what it is about: another column makes another plan at
        the same price.
        """
        about = json.dumps([self.digest, self.subject.column, self.subject.table])
        return hashlib.sha256(about.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def promise(self) -> dict[str, Any]:
        """The public summary of the guarantee."""
        return self.guarantee.summary()

    def accuracy_bound(self, **assumed: float) -> float:
        """Return the method's published accuracy bound under what is assumed about the data.

        Parameters
        ----------
        **assumed : float
            What is assumed, by name.

        Returns
        -------
        float
            The bound.

        Raises
        ------
        InvalidParameter
            There is none, or it needs other assumptions.
        """
        if self.accuracy is None:
            raise InvalidParameter(
                "This method has no published accuracy bound.",
                "",
                "Use expected_error, or Ridge(method='output').",
                parameter="method",
            )
        return self.accuracy(**assumed)

    def error_bound(self, delta: float = 0.05, **assumed: float) -> float:
        """Return what is added to the objective, in bits, to bound the share misclassified.

        Parameters
        ----------
        delta : float
            δ > 0, the probability that the statement leaves out.
        **assumed : float
            What is assumed, by name.

        Returns
        -------
        float
            Bits, with probability 1 − δ.

        Raises
        ------
        InvalidParameter
            There is none, or it needs other assumptions.
        """
        if self.risk is None:
            raise InvalidParameter(
                "Only classifiers have a bound on the share of rows misclassified.",
                "",
                "Use expected_error.",
            )
        return self.risk(delta, **assumed)

    def who_pays(self) -> list[dict[str, float]]:
        """Return what people pay and weigh, from the most to the least careful.

        Returns
        -------
        list[dict[str, float]]
            A line for each group of people.
        """
        kinds = self.budgets.kinds
        weights = self.weights
        spent = self.guarantee.amounts
        lines = []
        for which in self._list_groups():
            people = kinds.people[which]
            lines.append(
                {
                    "people": int(people.sum()),
                    "rows": int((people * kinds.rows[which]).sum()),
                    "granted": _average_over_people(units.to_epsilon(kinds.epsilon[which]), people),
                    "spent": _average_over_people(spent[which], people),
                    "voice": float((weights.person[which] / weights.total * people).sum()),
                }
            )
        return lines

    def _list_groups(self) -> list[NDArray[np.int64]]:
        """The kinds of each line of ``who_pays``."""
        kinds = self.budgets.kinds
        order = np.lexsort((kinds.rows, kinds.epsilon))
        parts = _split_into_groups(kinds.epsilon[order], kinds.people[order])
        return [order[part] for part in parts]

    def row_weights(self) -> list[float]:
        """Return what a row weighs in each line of ``who_pays``, in the unit of the model.

        Where people in one line differ, it is the largest, and a bound on one's own loss at this
        weight holds for all of them.

        Returns
        -------
        list[float]
            A weight for each group of people.
        """
        unit = self.parameters.get("weight_unit", 1 / self.weights.total)
        return [float(self.weights.row[which].max() * unit) for which in self._list_groups()]

    @cached_property
    def representative(self) -> float:
        """How representative the answer is: 1 where every row counts the same, less elsewhere.

        It is 1 − ½·Σ|W_l − u_l|, u_l what person l would weigh if every row counted the same: the
        share of the weight that lies where it then would.
        """
        kinds = self.budgets.kinds
        person = self.weights.person / self.weights.total
        moved = float(np.abs(person - kinds.rows / self.budgets.n_rows) @ kinds.people)
        nobody = 1 - float(person @ kinds.people)  # of null records
        return 1 - (moved + max(nobody, 0.0)) / 2

    def describe_weights(self) -> list[str]:
        """Return in words who counts how much, who spends less, and what the weights gain.

        Returns
        -------
        list[str]
            Sentences.
        """
        around = describe_baseline(self.parameters)
        told = [*around, describe_representative(self.representative)]
        sign = SIGNS[self.guarantee.reported_currency]
        lines = [line for line in self.who_pays() if line["granted"] > 0]
        if not around and lines and lines[-1]["spent"] < SPENDS_LESS * lines[-1]["granted"]:
            told.append(
                f"Those who grant most, {sign} = {lines[-1]['granted']:.3g}, spend "
                f"{lines[-1]['spent']:.2g}: to count as much as they do takes no more."
            )
        if self.bought is not None:
            told.append(self.bought.describe())
        if self.accuracy is not None:
            bound = self.accuracy(coefficients=1.0, label_noise=0.5)
            told.append(
                "Published bound on the distance of the coefficients, in recoded units, if they "
                f"are no longer than 1 and labels scatter by ½: {format_error(bound)}, except with "
                "a probability of 0.05 (docs/theory/output.md)."
            )
        if self.rivals is not None and self.representative < NEARLY_EQUAL:
            own = self.errors[0]
            told += [
                f"{name} would have an expected error of {error.format_part(error.total)}, and "
                f"{error.format_part(error.total_with_bias)} with the bias that is possible; this "
                f"plan has {own.format_part(own.total)} and "
                f"{own.format_part(own.total_with_bias)}."
                for name, error in self.rivals().items()
            ]
        return told

    def describe_errors(self) -> list[str]:
        """Return what the expected error is made of, equal sentences once.

        Returns
        -------
        list[str]
            A sentence for each number that is answered; of many quantiles, for the largest error.
        """
        column_unit = describe_unit(self)
        errors = self.errors
        if len(errors) > MOST_QUANTILES_TOLD:
            return [max(errors, key=lambda error: error.total).describe(column_unit)]
        told = [error.describe(column_unit) for error in errors]
        if len(told) == 1 or not has_quantiles(self):
            return list(dict.fromkeys(told))
        named: dict[str, list[str]] = {}
        for (name, _), sentence in zip(name_quantiles(self), told, strict=True):
            named.setdefault(sentence, []).append(name)
        return [f"{', '.join(names)}: {sentence}" for sentence, names in named.items()]

    @property
    def size(self) -> str:
        """How many people and rows there are, in words."""
        rows = units.format_count(self.budgets.n_rows, "row")
        if self.guarantee.unit == "row":
            return rows
        return f"{units.format_count(self.budgets.n_people, 'person')}, {rows}"

    def describe(self) -> str:
        """Return the plan in words.

        Returns
        -------
        str
            Who pays what, the error to expect, and what it is made of.
        """
        unit = self.guarantee.unit
        symbol = SIGNS[self.guarantee.reported_currency]
        whose = ""
        if unit == "person":
            whose = f" {'people':>10}"
        lines = [
            f"Plan for {describe_question(self)}{describe_table(self)}: {self.size}.",
            f"Promise: {describe_currency(self.promise)} for each {unit}, neighbours by "
            f"{self.guarantee.neighbours}, {self.guarantee.arithmetic} arithmetic.",
            f"{'granted ' + symbol:>12} {'spent ' + symbol:>12}{whose} {'rows':>10} {'weight':>7}",
        ]
        for line in self.who_pays():
            people = ""
            if unit == "person":
                people = f" {line['people']:10,d}"
            lines.append(
                f"{line['granted']:12.6g} {line['spent']:12.6g}{people} "
                f"{line['rows']:10,d} {line['voice']:7.1%}"
            )
        return "\n".join(
            [
                *lines,
                write_error_sentence(self, beside_parts=True),
                *self.describe_errors(),
                *self.describe_weights(),
                *filter(None, [warn_if_uninformative(self, "will say")]),
            ]
        )

    def _repr_html_(self) -> str:
        """The view of a notebook: the plan in words."""
        return f'<pre style="white-space: pre-wrap">{escape(self.describe())}</pre>'

    def __repr__(self) -> str:
        return (
            f"<Plan for {describe_question(self)}: "
            f"{units.format_count(self.budgets.n_people, self.guarantee.unit)}>"
        )


def describe_baseline(parameters: Mapping[str, Any]) -> list[str]:
    """Returns which baseline goes around the question, in words; nothing where there is none."""
    around = parameters.get("baseline")
    if not isinstance(around, Mapping):
        return []
    epsilon = f"{float(around['epsilon']):g}"
    if around["name"] == "uniform":
        return [f"A baseline: everybody who takes part does so at the smallest ε, {epsilon}."]
    return [
        f"A baseline: whoever grants at least ε = {epsilon} takes part at it, and nobody else does."
    ]


def describe_representative(share: float) -> str:
    """Returns in words how representative an answer is whose weights agree so far with equal
    ones.

    >>> describe_representative(1.0)
    'Representative: every row counts the same (1 of 1).'
    >>> describe_representative(0.42)
    'Representative: 42 % of the weight lies where it would if every row counted the same; those \
who grant more count more.'
    """
    if share >= NEARLY_EQUAL:
        return "Representative: every row counts the same (1 of 1)."
    return (
        f"Representative: {math.floor(100 * share)} % of the weight lies where it would if every "
        "row counted the same; those who grant more count more."
    )


def measure_inequality(budgets: Budgets, weights: Weights) -> tuple[float, float]:
    """Returns Σ(c_i − 1/n)² and Σ|c_i − 1/n| over all rows: how far from every row counting the
    same.
    """
    kinds = budgets.kinds
    rows = kinds.rows * kinds.people
    apart = weights.row / weights.total - 1 / int(rows.sum())
    return float(apart**2 @ rows), float(np.abs(apart) @ rows)


def describe_currency(promise: Mapping[str, Any]) -> str:
    """Returns what the ε or ρ of a promise's summary is, with its δ where it has one."""
    if "delta" not in promise:
        return {"pure epsilon": "pure ε", "zCDP rho": "ρ of zCDP"}[promise["currency"]]
    if promise["currency"] == "zCDP rho":
        behind = ", from ρ of zCDP"
    else:
        behind = ""
    return f"ε at δ = {promise['delta']:g}{behind}"


def format_error(expected: float | Sequence[float]) -> str:
    """Returns the expected error to three digits, several joined by commas."""
    if isinstance(expected, Sequence):
        several = expected
    else:
        several = (expected,)
    return ", ".join(units.format_three_digits(e) for e in several)


def refuse_changed_plan(plan: Plan, agreed: str) -> None:
    """Refuses another plan than was agreed to, by its digest or by its agreement, in which the
    column is named.
    """
    if agreed not in (plan.digest, plan.agreement):
        raise PlanChanged(
            "The plan has changed since it was shown, and nobody was charged.",
            "A release is made under the plan that was agreed to.",
            "Look at the plan as it is now, and release if you still agree.",
        )


def _average_over_people(values: NDArray[np.float64], people: NDArray[np.int64]) -> float:
    if (values == values[0]).all():
        return float(values[0])  # which a division would change in its last digit
    return float((values * people).sum() / people.sum())


def _split_into_groups(epsilon: units.Units, people: NDArray[np.int64]) -> list[slice]:
    """Cuts sorted kinds into their different ε, or into tenths of the people where there are
    many; those who grant nothing are on a line of their own.
    """
    changes = np.flatnonzero(np.diff(epsilon)) + 1
    if len(changes) < MOST_VALUES_LISTED:
        edges = [0, *changes.tolist(), len(epsilon)]
    else:
        nobody = int(np.searchsorted(epsilon, 0, side="right"))
        reached = np.cumsum(people[nobody:])
        ranks = [math.ceil(reached[-1] * tenth / 10) for tenth in range(1, 11)]
        edges = sorted({0, nobody, *(np.searchsorted(reached, ranks) + 1 + nobody).tolist()})
    return [slice(a, b) for a, b in pairwise(edges)]


def compute_half_width(level: float, laplace: float, deviation: float) -> float:
    """Returns x with P(|L + G| ≤ x) = level, L of Laplace's law and G normal, independent."""
    if laplace <= 0:
        return deviation * STANDARD_NORMAL.inv_cdf(0.5 + level / 2)
    return laplace * _find_half_width(level, deviation / laplace)


def _find_half_width(level: float, deviation: float) -> float:
    """Returns x with P(|L + G| ≤ x) = level, L of scale 1; by halving.

    It is _find_half_widths for one deviation, without SciPy, which takes longer to load than the
    plan of a mean takes to make.
    """
    tail = 1 - level
    r = max(deviation, TINY)
    low = 0.0
    high = -math.log(tail / 2) - deviation * STANDARD_NORMAL.inv_cdf(tail / 4)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _compute_single_miss(middle, r) > tail:
            low = middle
        else:
            high = middle
    return high


def _compute_single_miss(x: float, r: float) -> float:
    """Returns what compute_miss does, for one number."""
    z = x / r
    if z > FARTHEST_NORMAL:
        return math.exp(r**2 / 2 - x)
    density = math.exp(-(z**2) / 2) / 2
    if z < r:
        near = density * _scale_erfc((r - z) / math.sqrt(2))
    else:
        near = math.exp(min(r**2 / 2 - x, 0.0)) * math.erfc((r - z) / math.sqrt(2)) / 2
    far = density * _scale_erfc((r + z) / math.sqrt(2))
    return math.erfc(z / math.sqrt(2)) + near - far


def _scale_erfc(x: float) -> float:
    """Returns e^(x²)·erfc(x) for x ≥ 0: itself where both factors are moderate, else Laplace's
    continued fraction.
    """
    if x < CONTINUED_FRACTION:
        return math.exp(x**2) * math.erfc(x)
    below = x
    for step in range(CONTINUED_STEPS, 0, -1):
        below = x + step / 2 / below
    return 1 / (math.sqrt(math.pi) * below)


def compute_miss(x: Any, deviation: Any) -> Floats:
    """Returns P(|L + G| > x), L of Laplace's law with scale 1 and G normal, independent."""
    return _compute_miss_and_density(x, deviation)[0]


def _compute_miss_and_density(x: Any, deviation: Any) -> tuple[Floats, Floats]:
    """Returns P(|L + G| > x) and the density of |L + G| at x.

    P(L + G > x) = Φ̄(z) + ½·[e^(r²/2 − rz)·Φ(z − r) − e^(r²/2 + rz)·Φ̄(z + r)] for the deviation r
    and z = x/r, and the density of L + G is half the sum of the two in brackets; e^(a²/2)·Φ̄(a) is
    written as one function, which does not overflow.
    """
    from scipy.special import erfcx, ndtr

    r = np.maximum(deviation, TINY)
    z = x / r
    density = np.exp(-(z**2) / 2) / 2
    inner = density * erfcx(np.maximum(r - z, 0.0) / math.sqrt(2))
    outer = np.exp(np.minimum(r**2 / 2 - x, 0.0)) * ndtr(z - r)
    near = np.where(z < r, inner, outer)
    far = density * erfcx((r + z) / math.sqrt(2))
    return np.asarray(2 * ndtr(-z) + near - far, dtype=np.float64), np.asarray(near + far)


def _find_half_widths(level: float, deviation: Floats) -> Floats:
    """Returns x with P(|L + G| ≤ x) = level for each deviation, L of scale 1; by Newton's method.

    A sum is no nearer to 0 than either part is (Anderson's inequality), which gives where to begin,
    and P(|L + G| > x) is convex in x, so that no step goes past what is looked for.
    """
    from scipy.special import ndtri

    tail = 1 - level
    x = np.maximum(-math.log(tail), deviation * float(-ndtri(tail / 2)))
    for _ in range(MOST_STEPS):
        miss, density = _compute_miss_and_density(x, deviation)
        step = (miss - tail) / density
        x = x + step
        if not (step > x * SMALLEST_STEP).any():
            break
    return np.asarray(x)


@lru_cache(maxsize=256)
def calibrate_margin(level: float, laplace: float, scale: float) -> float:
    """Returns what must be added to a variance that was released with Laplace noise of this scale,
    so that the interval made of it misses no more often than it says, whatever the variance is.

    The answer is off by L + G, L with the scale ``laplace`` and G normal with the variance s². Of
    s² + N is known, N with the scale ``scale``. The interval has the half-width x(s² + N + m) at
    the level. How often it misses is an integral over N, computed for every s², and m is the
    smallest number for which none is above 1 − level (docs/theory/mean.md).
    """
    unit = max(laplace, math.sqrt(scale) * 1e-3)
    c = scale / unit**2
    share = (np.arange(NODES) + 0.25) / NODES
    noise = c * np.where(share < 0.5, np.log(2 * share), -np.log(2 - 2 * share))
    variance = c * np.geomspace(1e-3, 1e3, VARIANCES)
    known = np.geomspace(1e-6 * min(c, 1.0), 1e4 * c + 1, 400)
    widths = _find_half_widths(level, np.sqrt(known))
    low = 0.0
    high = -c * math.log(1 - level)
    for _ in range(MARGIN_HALVINGS):
        middle = (low + high) / 2
        told = np.maximum(variance[:, None] + noise + middle, 0.0)
        reach = np.interp(told, known, widths)
        often = compute_miss(reach, np.sqrt(variance)[:, None]).mean(axis=1)
        missed = often > 1 - level
        if missed.any():
            low = middle
            variance = variance[missed]  # the others are not missed with a larger margin either
        else:
            high = middle
    return high * unit**2


def find_rank_margin(level: float, odds: float, scale: float, deviation: float) -> float:
    """Returns how much rank a chosen interval must aim at on either side, so that it misses the
    population's quantile no more often than 1 − level.

    One is chosen whose rank on the worse side is below x with a probability of at most y/(1 + y),
    y = odds·e^(−(t − x)/scale), if t is aimed at; the sample's rank of the quantile is off by a
    normal G. So it misses with a probability of at most E y/(1 + y) at x = |G|, which falls in t
    (docs/theory/quantile.md).
    """
    from scipy.special import ndtri

    share = (np.arange(NODES) + 0.5) / NODES
    off = deviation * -ndtri(share / 2)

    def miss(aim: float) -> float:
        worst = np.log(odds) - (aim - off) / scale
        return float((1 / (1 + np.exp(np.minimum(-worst, 700.0)))).mean())

    low = 0.0
    high = deviation * 10 + scale * math.log(2 * max(odds, 1.0) / (1 - level))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if miss(middle) > 1 - level:
            low = middle
        else:
            high = middle
    return high
