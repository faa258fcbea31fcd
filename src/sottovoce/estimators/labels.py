# SPDX-License-Identifier: Apache-2.0
"""Linear regression with public features and private labels (docs/theory/labels.md).

symbol        name
X̃             design: a column of ones (with fit_intercept), then the features; n×d
C, C·X̃ = I    linear_map_, public
σ²            noise_variance
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from sottovoce import units
from sottovoce.bounds import Interval, Schema, between, flag, interval, is_one_of
from sottovoce.budgets import Budgets, Kinds
from sottovoce.columns import Table, Values, loaded
from sottovoce.engine import Rows, in_memory, label_of
from sottovoce.errors import InvalidBounds, InvalidBudget, InvalidData, InvalidParameter, MissingValues
from sottovoce.estimators import linear_map
from sottovoce.estimators.linear_map import THEOREM, Calibration, Integers, MapSums, calibrated, reach, whole_numbers
from sottovoce.features import Label
from sottovoce.guarantee import Guarantee
from sottovoce.plan import ASSOCIATION, ExpectedError, Plan, least_squares
from sottovoce.question import answered, budgets_of, gathered_values, public_constant
from sottovoce.release import Release
from sottovoce.rounding import plain
from sottovoce.solvers import labels as solver
from sottovoce.solvers.scaled import Solution
from sottovoce.statistics import Owner
from sottovoce.table import Floats, feature_names, matrix, numbers, same_length
from sottovoce.weights import Weights

VALUE, PERSON, ROW = "value", "person", "row"
SOLVERS = {"exact": solver.exact, "entrywise": solver.entrywise}
#: Beyond these the square of a feature, or of the labels' range, leaves the doubles.
LARGEST, SMALLEST = 1e100, 1e-100
#: Weights of people are published as shares of a total below 2^62.
TOTAL_BITS = 62


@dataclass(frozen=True, eq=False)
class Design:
    """The public features: known before any batch is read, so a batch holds none of them."""

    rows: Floats  # X̃
    names: list[str]
    width: int = 0
    columns: tuple[str, ...] = ()

    def matrix(self, batch: Any) -> Floats:
        """Returns no columns."""
        return np.empty((len(batch), 0))


class LabelPrivateRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Linear regression where features are public and labels are private, each person with an ε of their own.

    **Question.** Which linear function of the (public) features predicts the (private) label? Labels lie in
    ``label_bounds``; values beyond are clipped.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by replacement of all
    their *labels*, exact arithmetic. Features, and who owns which row, are not protected.

    **Formula.** C·y + Laplace(b) on every coefficient, with the public map C, C·X̃ = I, that minimises
    σ²·‖C‖² + 2d·b², where b = max_l Δ_l/ε_l and Δ_l = (hi − lo)·max_{|δ|≤1} ‖C_l·δ‖₁ (docs/theory/labels.md).

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 4000)[:, None]
    >>> model = sv.LabelPrivateRegression(label_bounds=(0, 1)).fit(x, 0.5 + 0.3 * x[:, 0], epsilon=2.0)
    >>> design = np.column_stack([np.ones(4000), x])
    >>> bool(np.abs(model.linear_map_ @ design - np.eye(2)).max() < 1e-9), bool(abs(model.coef_[0] - 0.3) < 0.1)
    (True, True)

    **Limits.** The design must have full column rank. The noise is the same on every coefficient, so features
    should have like sizes: they are public, and scaling them by what is seen in them is free. ``noise_variance``
    is a public guess: it tunes C and the expected error, never the promise.

    Parameters
    ----------
    label_bounds : (low, high) or Bounds with a label, from public knowledge.
    noise_variance : public guess of the labels' variance around the model; default a quarter of the squared range.
    fit_intercept : whether the design begins with a column of ones.
    sensitivity : "exact", or "entrywise" as published (Σ|C_ji| over a person's rows).
    missing : public constant between the labels' bounds that stands for missing labels; without it they are refused.
    """

    def __init__(
        self,
        label_bounds: Any = None,
        noise_variance: float | None = None,
        fit_intercept: bool = True,
        sensitivity: str = "exact",
        missing: float | None = None,
    ) -> None:
        self.label_bounds = label_bounds
        self.noise_variance = noise_variance
        self.fit_intercept = fit_intercept
        self.sensitivity = sensitivity
        self.missing = missing

    later = ("missing",)  # what older books do not know about a question

    def fit(self, X: Any, y: Any = None, epsilon: Any = None, groups: Any = None) -> LabelPrivateRegression:
        """Fits the labels y on the features X; ε is a number, an array by row, a mapping from person, or Budgets.

        A table of any engine, with columns by name, is read into memory: every row has its own part in the map.
        """
        named: dict[str, Any] = {"column": y, "table": label_of(X)} if isinstance(y, str) else {}
        given = loaded(self, X, y, epsilon, groups)
        plan, release = answered(self, *gathered_values(self, given, given.epsilon, given.groups))
        self.release_ = replace(release, **named)
        validate_data(self, given.X, skip_check_array=True)  # keeps the number of features and their names
        self.guarantee_ = plan.guarantee
        self.linear_map_ = np.ldexp(plan.grid.map.astype(np.float64), plan.grid.map_exponent)
        value: dict[str, Any] = self.release_.value  # type: ignore[assignment]
        self.intercept_ = float(value["intercept"])
        self.coef_ = np.array(list(value["coefficients"].values()), dtype=np.float64)
        return self

    def predict(self, X: Any) -> Floats:
        """Returns intercept + features·coefficients; public features cost nothing."""
        check_is_fitted(self, "coef_")
        rows = _finite(matrix(X, None))
        validate_data(self, X, reset=False, skip_check_array=True)
        return np.asarray(self.intercept_ + rows @ self.coef_)

    def plan(self, X: Any, epsilon: Any, groups: Any = None) -> Plan:
        """What it will cost whom, and how accurate it will be; features are public, and no label is needed."""
        given = Values.of(self, X, None, epsilon, groups)
        design = self._make_design(given.X)
        budgets = budgets_of(given.epsilon, given.groups, len(design.rows))
        return self._make_plan(_apart(budgets, len(design.rows)), design)

    def gather(self, *data: Any, epsilon: Any, groups: Any) -> tuple[Budgets, Rows]:
        """Returns the budgets, one kind a person, and the rows of public features and private labels."""
        X, y = data
        low, high = self._get_bounds()
        design, labels, constant = self._make_design(X), numbers(y, "labels"), self._get_missing_constant(low, high)
        if constant is not None:
            labels = np.where(np.isnan(labels), constant, labels)
        n = len(design.rows)
        same_length(n, y=labels, groups=groups)
        budgets = _apart(budgets_of(epsilon, groups, n), n)
        engine = in_memory().of_columns({VALUE: labels, PERSON: _owner(budgets), ROW: np.arange(n)})
        return budgets, Rows(engine, VALUE, Owner(PERSON), design, Label(VALUE, low, high))

    def rows_of(self, table: Table) -> Rows:
        """Refuses what ``fit`` would load."""
        raise InvalidParameter("The table is not in memory.", "Every row has its own part in the map.", "Use fit.")

    def plan_for(self, budgets: Budgets, rows: Rows | None = None) -> Plan:
        """The plan for these budgets and the public features that come with the rows."""
        if rows is None:
            raise InvalidParameter("The features are not given.", "They are public, and plans need them.", "Pass X.")
        return self._make_plan(budgets, rows.features)

    def answer(self, plan: Plan, rows: Rows) -> Release:
        """Reads the labels once, adds noise, and returns the release."""
        statistic = rows.engine.fold(MapSums(rows.value, ROW, plan.grid))
        values = linear_map.published(plan, statistic)
        intercept = values.pop(0) if plan.parameters["fit_intercept"] else 0.0
        coefficients = dict(zip(plan.parameters["features"], values, strict=True))
        return Release.of(plan, {"intercept": intercept, "coefficients": coefficients})

    def _make_plan(self, budgets: Budgets, design: Design) -> Plan:
        low, high = self._get_bounds()
        (_, d), owner, variance = design.rows.shape, _owner(budgets), self._get_variance(high - low)
        worth = 2 * d * (high - low) ** 2  # of one unit of the solver's objective
        solution = self._solve_map(budgets, design, owner, variance / worth)
        K, exponent = whole_numbers(solution.map, owner)
        D, exact = reach(K, owner, self.sensitivity)
        found = calibrated(K, exponent, D, budgets, low, high)
        words = linear_map.in_words(self.sensitivity, exact, solution.held)
        return Plan(
            question="label-private regression",
            parameters={
                "label": [low, high],
                "noise_variance": variance,
                "fit_intercept": flag(self.fit_intercept, "fit_intercept"),
                "sensitivity": self.sensitivity,
                "features": design.names,
                "protects": "labels only; features, and who owns which row, are public",
            },
            budgets=budgets,
            weights=_weights(D, found, budgets),
            guarantee=replace(Guarantee.of(budgets, found.charges), neighbours="replace labels"),
            noise={
                "distribution": "discrete Laplace",
                "scale": found.noise,
                "integer_scale": found.scale,
                "sensitivity": words,
                "certificate": _certificate(solution, worth),
            },
            grid=found.grid,
            theorem=THEOREM,
            error=expected_error(
                design.rows,
                np.ldexp(K.astype(np.float64), exponent),
                found.noise,
                variance,
                words,
                bool(self.fit_intercept),
            ),
        )

    def _solve_map(self, budgets: Budgets, design: Design, owner: Integers, ratio: float) -> Solution:
        """The best map; rows of people who grant nothing are not in it."""
        if not is_one_of(self.sensitivity, SOLVERS):
            raise InvalidParameter(
                "There is no such sensitivity.", f"There are {' and '.join(SOLVERS)}.", "Choose one."
            )
        granted = budgets.kinds.epsilon
        if not granted.any():
            raise InvalidBudget("Nobody grants anything.", "Somebody's ε must be at least 1e-9.", "Wait for grants.")
        heard = granted > 0
        rows, number = heard[owner], np.cumsum(heard) - 1
        solution = SOLVERS[self.sensitivity](
            design.rows[rows], number[owner[rows]], units.epsilon(granted[heard]), ratio
        )
        C = np.zeros(design.rows.shape[::-1])
        C[:, rows] = solution.map
        return replace(solution, map=C)

    def _make_design(self, X: Any) -> Design:
        rows = _finite(matrix(X, None))
        names = feature_names(X) or []
        if len(set(names)) != rows.shape[1]:
            names = [f"x{j}" for j in range(rows.shape[1])]
        if not rows.size:
            raise InvalidData(
                "There are 0 rows or 0 feature(s).", "A regression needs both.", "Ask for a mean instead."
            )
        if flag(self.fit_intercept, "fit_intercept"):
            rows = np.column_stack([np.ones(len(rows)), rows])
        return Design(rows, names)

    def _get_bounds(self) -> Interval:
        low, high = interval(self.label_bounds)
        if not SMALLEST < high - low < LARGEST:
            raise InvalidBounds(
                "The range of the labels is larger than doubles can calculate with.",
                "",
                "Change the unit of the labels.",
            )
        return low, high

    def _get_missing_constant(self, low: float, high: float) -> float | None:
        schema = self.label_bounds
        own = schema.columns[schema.require_label()].missing if isinstance(schema, Schema) else None
        return public_constant(self.missing if own is None else own, low, high)

    def _get_variance(self, span: float) -> float:
        given: Any = self.noise_variance
        variance = (span / 2) ** 2 if given is None else given
        if not (between(variance, -math.inf, math.inf) and 0 <= variance <= span**2):
            raise InvalidParameter(
                "noise_variance is not a possible variance.",
                "It is at least 0 and not above the squared range of the labels.",
                "Pass a public guess, or nothing for the most it can be.",
            )
        return float(variance)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.regressor_tags.poor_score = True  # on a few dozen rows noise is all there is
        return tags


def expected_error(
    rows: Floats, C: Floats, noise: float, variance: float, words: str, fit_intercept: bool
) -> ExpectedError:
    """Returns what predictions for the public rows miss of least squares: their noise, and (C − X⁺)·(labels' noise).

    Both maps have C·X = I, so nothing is held back; the features are public, so nothing is assumed about them.
    """
    n, D = len(rows), C - np.linalg.pinv(rows)
    apart = math.sqrt(max(float(np.sum((rows.T @ rows) * (D @ D.T))), 0.0))  # ‖X·D‖, without a matrix of n columns
    return ExpectedError(
        classical=least_squares(fit_intercept),
        unit="in units of the label",
        noise=math.sqrt(2 * float(np.square(rows).sum()) / n) * noise,
        sampling=math.sqrt(variance / n) * apart,
        bias=ASSOCIATION * math.sqrt(variance) * apart,
        assumed=f"Assumed: labels spread by {plain(math.sqrt(variance))} around the best linear function. "
        f"Noise by {words}.",
    )


def _finite(rows: Floats) -> Floats:
    """Refuses public features that are missing, infinite, or too large or small to be squared."""
    if not np.isfinite(rows).all():
        raise MissingValues(
            "The features have missing or infinite values (NaN, inf).",
            "Features are public, and every one must be a finite number.",
            "Fill them in as you like: that costs nothing.",
        )
    size = np.abs(rows)
    if np.any((size > LARGEST) | ((size > 0) & (size < SMALLEST))):
        raise InvalidData("A feature is larger than doubles can calculate with.", "", "Change its unit.")
    return rows


def _apart(budgets: Budgets, n: int) -> Budgets:
    """Returns the budgets with one kind a person: here people with equal ε and rows differ by their features."""
    if budgets.codes is None or (budgets.unit == "person" and budgets.owner is None):
        raise InvalidParameter("These budgets do not say which row is whose.", "", "Build them with Budgets.of.")
    same_length(n, epsilon=budgets.row_codes())
    kinds, people = budgets.kinds, budgets.n_people
    ones = np.ones(people, dtype=np.int64)
    return replace(
        budgets, kinds=Kinds(kinds.epsilon[budgets.codes], kinds.rows[budgets.codes], ones), codes=np.arange(people)
    )


def _owner(budgets: Budgets) -> Integers:
    return np.arange(budgets.n_people) if budgets.owner is None else budgets.owner


def _weights(D: Integers, found: Calibration, budgets: Budgets) -> Weights:
    """How loud each person is heard: how far their labels reach, as a share of everybody's."""
    spare = max(sum(D.tolist()).bit_length() - TOTAL_BITS, 0)
    person = D >> spare
    row, total = person // budgets.kinds.rows, int(person.sum())
    return Weights(row, person, total, found.loudest >> spare, found.charges, float(np.square(person / total).sum()))


def _certificate(solution: Solution, worth: float) -> dict[str, Any]:
    """What is known of the map's optimality, in the units of the squared error; public JSON."""
    return {
        "value": worth * solution.value,
        "bound": worth * solution.bound,
        "gap": solution.gap if math.isfinite(solution.gap) else None,
        "steps": solution.steps,
        "held_by_a_bound": solution.held,
    }
