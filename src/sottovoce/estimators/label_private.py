# SPDX-License-Identifier: Apache-2.0
"""Linear regression with public features and private labels (docs/theory/labels.md).

symbol        name
X̃             design: a column of ones (with fit_intercept), then the features; n×d
C, C·X̃ = I    linear_map_, public
σ²            noise_variance
K, d×n        grid.map, whole numbers; C = K·2^grid.map_exponent is the map
z_i in 0 … N  labels on a grid (grid.values), N = grid.values.cells
S = K·z       the exact statistic; ⌊S/2^t⌋ after the shift by t bits
D_l           reach: how far K·z moves in the ℓ1 norm with the labels of person l, a cell each
b             scale of the discrete Laplace noise, in shifted units

Where σ² is not declared and budgets are ample, a small share of everybody's buys it for intervals:
the mean squared residual of the released model, as a Mean would be released
(docs/theory/model-intervals.md).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from sottovoce import units
from sottovoce.arrays import (
    ColumnLike,
    Floats,
    Integers,
    TableLike,
    check_same_length,
    list_feature_names,
    to_matrix,
    to_numbers,
)
from sottovoce.budgets import BudgetGroups, BudgetLike, Budgets
from sottovoce.data.encoding import Label
from sottovoce.data.engine import (
    Dataset,
    GroupLookup,
    as_array,
    as_floats,
    get_default_engine,
    get_table_label,
)
from sottovoce.data.kernels import PIECE_ROWS, exact_dot
from sottovoce.data.source import UNOPENED, DataSource
from sottovoce.errors import (
    InvalidBounds,
    InvalidBudget,
    InvalidData,
    InvalidParameter,
    MissingValues,
)
from sottovoce.estimator import get_owners, make_budgets, make_release, read_source
from sottovoce.estimators import mean
from sottovoce.estimators.base import LinearModel, RegressorMixin
from sottovoce.estimators.column import LoadableEstimator
from sottovoce.estimators.curvature import BoughtShare
from sottovoce.estimators.model_intervals import (
    EARLIER,
    UNEQUAL_SPREAD,
    Ends,
    clip_to_label,
    compute_sum_half_width,
    join_prediction_ends,
    name_ends,
    widen_variance,
)
from sottovoce.guarantee import Guarantee
from sottovoce.noise import source
from sottovoce.noise.source import Grid, MeanGrid, exponent_below, power_of_two
from sottovoce.plan import ASSOCIATION, ExpectedError, Plan, Theorem, least_squares
from sottovoce.release import Intervals, Release
from sottovoce.schema import (
    BoundsLike,
    Interval,
    Schema,
    check_flag,
    check_interval_share,
    check_missing_constant,
    is_between,
    is_one_of,
    to_interval,
)
from sottovoce.solvers import label_map as solver
from sottovoce.solvers.sensitivity import compute_entrywise_norms, compute_norms
from sottovoce.units import format_number
from sottovoce.weights import Weights

VALUE = "value"
PERSON = "person"
ROW = "row"
SOLVERS = {"exact": solver.solve_exact, "entrywise": solver.solve_entrywise}
#: Beyond these the square of a feature, or of the labels' range, leaves the doubles.
MAX_MAGNITUDE = 1e100
MIN_MAGNITUDE = 1e-100
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


class LabelPrivateRegression(LoadableEstimator, RegressorMixin, LinearModel):
    """Linear regression where features are public and labels are private, each person with an ε of
    their own.

    **Question.** Which linear function of the (public) features predicts the (private) label?
    Labels lie in ``bounds``; values beyond are clipped.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their *labels*, exact arithmetic. Features, and who owns which row, are not
    protected.

    **Formula.** C·y + Laplace(b) on every coefficient, with the public map C, C·X̃ = I, that
    minimises σ²·‖C‖² + 2d·b², where b = max_l Δ_l/ε_l and Δ_l = (hi − lo)·max_{|δ|≤1} ‖C_l·δ‖₁
    (docs/theory/labels.md).

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 4000)[:, None]
    >>> model = sv.LabelPrivateRegression(bounds=(0, 1)).fit(
    ...     x, 0.5 + 0.3 * x[:, 0], epsilon=2.0
    ... )
    >>> design = np.column_stack([np.ones(4000), x])
    >>> bool(np.abs(model.linear_map_ @ design - np.eye(2)).max() < 1e-9)
    True
    >>> bool(abs(model.coef_[0] - 0.3) < 0.1)
    True

    **Limits.** The design must have full column rank. The noise is the same on every coefficient,
    so features should have like sizes: they are public, and scaling them by what is seen in them is
    free. ``noise_variance`` is a public guess: it tunes C and the expected error, never the
    promise.

    Parameters
    ----------
    label_bounds :
        The same as ``bounds``, which it was called before; one of the two.
    noise_variance :
        Public guess of the labels' variance around the model; default a quarter of the squared
        range.
    fit_intercept :
        Whether the design begins with a column of ones.
    sensitivity :
        "exact", or "entrywise" as published (Σ|C_ji| over a person's rows).
    missing :
        Public constant between the labels' bounds that stands for missing labels; without it they
        are refused.
    interval_share :
        Share of everybody's ε that buys the labels' variance for intervals; if not given, chosen
        from public numbers where noise_variance is not declared. 0 buys nothing.
    bounds :
        (low, high) of the labels, Bounds with a label, or a Schema, from public knowledge.
    """

    needs_rows = True  # in memory, because every row has its own part in the map
    intercept_: float
    bounds: BoundsLike | None = None  # models that were kept before it was a parameter lack it

    def __init__(
        self,
        label_bounds: BoundsLike | None = None,
        noise_variance: float | None = None,
        fit_intercept: bool = True,
        sensitivity: str = "exact",
        missing: float | None = None,
        interval_share: float | None = None,
        bounds: BoundsLike | None = None,
    ) -> None:
        self.label_bounds = label_bounds
        self.bounds = bounds
        self.noise_variance = noise_variance
        self.fit_intercept = fit_intercept
        self.sensitivity = sensitivity
        self.missing = missing
        self.interval_share = interval_share

    # What older books do not know about a question.
    later = ("missing", "interval_share", "bounds")

    def asked_parameters(self) -> dict[str, Any]:
        """Return the parameters that a request is remembered by.

        Returns
        -------
        dict[str, Any]
            Parameters by name; bounds under the name that older books know.
        """
        given = self.get_params(deep=False)
        return {**given, "label_bounds": self._get_declared(), "bounds": None}

    def _get_declared(self) -> BoundsLike | None:
        """The bounds, by either name."""
        if self.bounds is not None and self.label_bounds is not None:
            raise InvalidParameter(
                "Bounds of the labels are given twice, as bounds and as label_bounds.",
                "They are one thing with two names.",
                "Pass bounds alone.",
                parameter="bounds",
            )
        if self.bounds is not None:
            return self.bounds
        return self.label_bounds

    def fit(
        self,
        X: TableLike,
        y: ColumnLike | None = None,
        epsilon: BudgetLike | None = None,
        groups: ColumnLike | None = None,
    ) -> Self:
        """Fit the private labels y on the public features X.

        A table of any engine is read into memory: every row has its own part in the map.

        Parameters
        ----------
        X : TableLike
            Features: a table in memory, or one that lives elsewhere (a path, a DuckDB relation, a
            dataset of Arrow, a data frame of Spark or Dask), of which y, groups and epsilon then
            name columns.
        y : ColumnLike, optional
            Labels, or the name of their column; a schema may name it.
        epsilon : BudgetLike, optional
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.

        Returns
        -------
        Self
            The fitted estimator.

        Raises
        ------
        InvalidInput
            Something cannot be used; nobody is charged.
        ReleaseFailed
            Reading the rows failed; what was charged stays charged.
        """
        source = DataSource.of(self, X, y, epsilon, groups).load()
        plan, release = make_release(self, read_source(self, source))
        if isinstance(y, str):
            release = replace(release, column=y, table=get_table_label(X))
        self.release_ = release
        validate_data(
            self, source.table, skip_check_array=True
        )  # keeps the number of features and their names
        self.guarantee_ = plan.guarantee
        self.linear_map_ = np.ldexp(plan.grid.map.astype(np.float64), plan.grid.map_exponent)
        value: dict[str, Any] = self.release_.value  # type: ignore[assignment]
        self.intercept_ = float(value["intercept"])
        self.coef_ = np.array(list(value["coefficients"].values()), dtype=np.float64)
        return self

    def predict(self, X: TableLike) -> Floats:
        """Return intercept + features·coefficients; public features cost nothing.

        Predictions are clipped to the range that was declared for the label.

        Parameters
        ----------
        X : TableLike
            Features of new rows, with the columns that were declared.

        Returns
        -------
        Floats
            One prediction a row.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        """
        check_is_fitted(self, "coef_")
        rows = _check_finite(to_matrix(X, None))
        validate_data(self, X, reset=False, skip_check_array=True)
        return clip_to_label(np.asarray(self.intercept_ + rows @ self.coef_), self.release_)

    def plan(self, X: TableLike, epsilon: BudgetLike, groups: ColumnLike | None = None) -> Plan:
        """Return what a fit will cost whom, and how accurate it will be; no value is needed.

        Parameters
        ----------
        X : TableLike
            The public features.
        epsilon : BudgetLike
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.

        Returns
        -------
        Plan
            What it will cost whom, and how accurate it will be.

        Raises
        ------
        InvalidInput
            A budget, bound or parameter cannot be used.
        """
        source = DataSource.of_columns(self, X, None, epsilon, groups)
        design = self._make_design(source.table)
        budgets = make_budgets(source.epsilon, source.owners, len(design.rows))
        return self._make_plan(_split_groups(budgets, len(design.rows)), design)

    def validate(self) -> None:
        """Refuses bounds of labels and parameters that are wrong for any people."""
        low, high = self._get_bounds()
        self._get_missing_constant(low, high)
        self._get_variance(high - low)
        check_flag(self.fit_intercept, "fit_intercept")
        self._check_sensitivity()

    def read_arrays(self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None) -> Dataset:
        """Returns the budgets, one kind a person, and the rows of public features and private
        labels.
        """
        X, y = data
        low, high = self._get_bounds()
        design = self._make_design(X)
        labels = to_numbers(y, "labels")
        constant = self._get_missing_constant(low, high)
        if constant is not None:
            labels = np.where(np.isnan(labels), constant, labels)
        n = len(design.rows)
        check_same_length(n, y=labels, groups=groups)
        budgets = _split_groups(make_budgets(epsilon, groups, n), n)
        engine = get_default_engine().of_columns(
            {VALUE: labels, PERSON: _list_owners(budgets), ROW: np.arange(n)}
        )
        label = Label(VALUE, low, high)
        return Dataset(engine, VALUE, GroupLookup(PERSON), design, label, budgets=budgets)

    def read_table(self, table: DataSource) -> Dataset:
        """Refuses a table that was not loaded, because every row has its own part in the map."""
        raise InvalidParameter(
            "The table is not in memory.",
            "Every row has its own part in the map.",
            "Use fit.",
            parameter="X",
        )

    def read_public(self, table: DataSource) -> Dataset:
        """Return the budgets and the public features of a table, and read no label.

        Parameters
        ----------
        table : DataSource
            The table, by the names of its columns.

        Returns
        -------
        Dataset
            Budgets, one kind a person, and the features, which a plan needs.

        Raises
        ------
        InvalidInput
            A feature is no number, or a budget cannot be used.
        """
        public = table.load_rows(labels=False)
        design = self._make_design(public.table)
        n = len(design.rows)
        budgets = _split_groups(make_budgets(public.epsilon, public.owners, n), n)
        return Dataset(UNOPENED, VALUE, GroupLookup(PERSON), design, budgets=budgets)

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets and the public features that come with the rows."""
        if rows is None:
            raise InvalidParameter(
                "The features are not given.",
                "They are public, and plans need them.",
                "Pass X.",
                parameter="X",
            )
        return self._make_plan(_split_groups(budgets, len(rows.features.rows)), rows.features)

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the labels once, adds noise, and returns the release."""
        statistic = rows.engine.fold(MapSums(rows.value, ROW, plan.grid))
        values = draw_noisy_values(plan, statistic)
        if plan.parameters["fit_intercept"]:
            intercept = values.pop(0)
        else:
            intercept = 0.0
        coefficients = dict(zip(plan.parameters["features"], values, strict=True))
        answer: dict[str, Any] = {"intercept": intercept, "coefficients": coefficients}
        if plan.bought is None:
            return Release.of(plan, answer)
        fitted = rows.features.rows @ np.array(_list_all(plan.parameters, answer))
        kernel = ResidualSquares(rows.value, ROW, rows.owner, plan.bought, rows.label, fitted)
        (noisy,) = mean.draw_noisy_values(plan.bought, rows.engine.fold(kernel))
        bought = {"variance": noisy, "scale": plan.bought.noise["scale"]}
        return Release.of(plan, answer, bought)

    def _compute_intervals(self, release: Release, level: float) -> Intervals | None:
        d = len(release.parameters["features"]) + bool(release.parameters["fit_intercept"])
        value: dict[str, Any] = release.value  # type: ignore[assignment]
        names = list(value["coefficients"])
        ends = find_map_ends(release, np.eye(d), level)
        if isinstance(ends, str) or release.parameters["fit_intercept"]:
            return name_ends(names, ends, level)
        return name_ends(names, ends.with_known_intercept(), level)

    def _compute_prediction_intervals(
        self, release: Release, level: float, X: TableLike
    ) -> Floats | None:
        rows = _check_finite(to_matrix(X, None))
        validate_data(self, X, reset=False, skip_check_array=True)
        if release.parameters["fit_intercept"]:
            rows = np.column_stack([np.ones(len(rows)), rows])
        return join_prediction_ends(find_map_ends(release, rows, level), 0.0)

    def _plan_variance(self, budgets: Budgets) -> VariancePlan | None:
        """How σ² is bought; None where it is declared, or could not be told from noise."""
        check_interval_share(self.interval_share)
        if self.noise_variance is not None and self.interval_share is None:
            return None
        low, high = self._get_bounds()
        return plan_variance(budgets, (high - low) ** 2, self.interval_share)

    def _make_plan(self, budgets: Budgets, design: Design) -> Plan:
        low, high = self._get_bounds()
        (_, d) = design.rows.shape
        owner = _list_owners(budgets)
        variance = self._get_variance(high - low)
        worth = 2 * d * (high - low) ** 2  # of one unit of the solver's objective
        bought = self._plan_variance(budgets)
        if bought is None:
            left = budgets
        else:
            rest = budgets.kinds.epsilon - bought.part.epsilon
            left = replace(budgets, kinds=replace(budgets.kinds, epsilon=rest))
        solution = self._solve_map(left, design, owner, variance / worth)
        K, exponent = round_map(solution.map, owner)
        D, exact = compute_reach(K, owner, self.sensitivity)
        found = calibrate_noise(K, exponent, D, left, low, high)
        if bought is not None:
            found = replace(found, charges=found.charges + bought.charges)
        words = describe_reach(self.sensitivity, exact, solution.held)
        return Plan(
            question="label-private regression",
            parameters={
                "label": [low, high],
                "noise_variance": variance,
                "fit_intercept": check_flag(self.fit_intercept, "fit_intercept"),
                "sensitivity": self.sensitivity,
                "features": design.names,
                "protects": "labels only; features, and who owns which row, are public",
                "interval_share": self.interval_share,
                "variance_declared": self.noise_variance is not None,
            },
            budgets=budgets,
            weights=_make_weights(D, found, budgets),
            guarantee=replace(Guarantee.of(budgets, found.charges), neighbours="replace labels"),
            noise={
                "distribution": "discrete Laplace",
                "scale": found.noise,
                "integer_scale": found.scale,
                "sensitivity": words,
                "certificate": _describe_optimality(solution, worth),
                "map_products": compute_map_products(K, exponent, owner).tolist(),
            },
            bought=bought,
            grid=found.grid,
            theorem=THEOREM,
            error=estimate_error(
                design.rows,
                np.ldexp(K.astype(np.float64), exponent),
                found.noise,
                variance,
                words,
                bool(self.fit_intercept),
            ),
        )

    def _solve_map(
        self, budgets: Budgets, design: Design, owner: Integers, ratio: float
    ) -> solver.Solution:
        """The best map; rows of people who grant nothing are not in it."""
        self._check_sensitivity()
        granted = budgets.kinds.epsilon
        if not granted.any():
            raise InvalidBudget(
                "Nobody grants anything.",
                "Somebody's ε must be at least 1e-9.",
                "Wait for grants.",
                parameter="epsilon",
            )
        participating = granted > 0
        rows = participating[owner]
        number = np.cumsum(participating) - 1
        solution = SOLVERS[self.sensitivity](
            design.rows[rows], number[owner[rows]], units.to_epsilon(granted[participating]), ratio
        )
        C = np.zeros(design.rows.shape[::-1])
        C[:, rows] = solution.map
        return replace(solution, map=C)

    def _check_sensitivity(self) -> None:
        if not is_one_of(self.sensitivity, SOLVERS):
            raise InvalidParameter(
                "There is no such sensitivity.",
                f"There are {' and '.join(SOLVERS)}.",
                "Choose one.",
                parameter="sensitivity",
            )

    def _make_design(self, X: TableLike) -> Design:
        rows = _check_finite(to_matrix(X, None))
        names = list_feature_names(X) or []
        if len(set(names)) != rows.shape[1]:
            names = [f"x{j}" for j in range(rows.shape[1])]
        if not rows.size:
            raise InvalidData(
                "There are 0 rows or 0 feature(s).",
                "A regression needs both.",
                "Ask for a mean instead.",
                parameter="X",
            )
        if check_flag(self.fit_intercept, "fit_intercept"):
            rows = np.column_stack([np.ones(len(rows)), rows])
        return Design(rows, names)

    def _get_bounds(self) -> Interval:
        low, high = to_interval(self._get_declared())
        if not MIN_MAGNITUDE < high - low < MAX_MAGNITUDE:
            raise InvalidBounds(
                "The range of the labels is larger than doubles can calculate with.",
                "",
                "Change the unit of the labels.",
                parameter="bounds",
            )
        return low, high

    def _get_missing_constant(self, low: float, high: float) -> float | None:
        schema = self._get_declared()
        if isinstance(schema, Schema):
            own = schema.columns[schema.require_label()].missing
        else:
            own = None
        return check_missing_constant(self.missing if own is None else own, low, high)

    def _get_variance(self, span: float) -> float:
        given: Any = self.noise_variance
        if given is None:
            variance = (span / 2) ** 2
        else:
            variance = given
        if not (is_between(variance, -math.inf, math.inf) and 0 <= variance <= span**2):
            raise InvalidParameter(
                "noise_variance is not a possible variance.",
                "It is at least 0 and not above the squared range of the labels.",
                "Pass a public guess, or nothing for the most it can be.",
                parameter="noise_variance",
            )
        return float(variance)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.regressor_tags.poor_score = True  # on a few dozen rows noise is all there is
        return tags


#: The share of everybody's budget that buys σ², where it buys at least LEAST_VARIANCE units of ε
#: in all.
VARIANCE_SHARE = 0.03
LEAST_VARIANCE = 30.0


@dataclass(frozen=True, eq=False)
class VariancePlan:
    """How the labels' variance around the model is bought: as the mean of squared residuals."""

    share: float
    part: BudgetGroups  # that share of everybody's
    weights: Weights
    grid: MeanGrid
    noise: dict[str, float]
    charges: units.Units

    def describe(self) -> str:
        """What is bought, in words."""
        return BoughtShare(self.share, "how far labels vary around the model").describe()


def plan_variance(budgets: Budgets, most: float, wanted: float | None) -> VariancePlan | None:
    """Returns the plan of a mean of squares between 0 and ``most``, from the share of budgets that
    is wanted, or a small one; None where that could not tell it from noise.
    """
    kinds = budgets.kinds
    total = float((units.to_epsilon(kinds.epsilon) * kinds.people).sum())
    if wanted is not None:
        share = float(wanted)
    elif VARIANCE_SHARE * total < LEAST_VARIANCE:
        share = 0.0
    else:
        share = VARIANCE_SHARE
    part = replace(kinds, epsilon=np.floor(kinds.epsilon * share).astype(np.int64))
    if not part.epsilon.any():
        return None
    weights = Weights.solve(part, A=0.0)
    grid, scale, charges = mean.calibrate_noise(weights, part, 0.0, most)
    noise = {
        "scale": mean.compute_noise_scale(grid.values, grid.shift, scale, weights),
        "integer_scale": scale,
    }
    return VariancePlan(share, part, weights, grid, noise, charges)


@dataclass(frozen=True, eq=False)
class ResidualSquares:
    """Σ weight·(label − fitted)², in whole cells of a grid; ``fitted`` belongs to public rows and a
    released model.
    """

    value: str
    row: str
    owner: GroupLookup
    bought: VariancePlan
    label: Label
    fitted: Floats

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return (self.value, self.row, *self.owner.columns)

    def zero(self) -> int:
        """The sum over no rows."""
        return 0

    def __call__(self, batch: Any) -> int:
        """Returns the exact sum over the batch; rows that buy nothing are not read."""
        weights = self.bought.weights.row[self.owner.kinds(batch)]
        participating = weights > 0
        labels = as_floats(batch.column(self.value))[participating]
        fitted = self.fitted[as_array(batch.column(self.row))][participating]
        apart = np.clip(labels, self.label.low, self.label.high) - np.clip(
            fitted, self.label.low, self.label.high
        )
        z = self.bought.grid.values.integers(apart**2)
        w = weights[participating]
        return sum(
            exact_dot(w[at : at + PIECE_ROWS], z[at : at + PIECE_ROWS])
            for at in range(0, len(z), PIECE_ROWS)
        )


def compute_map_products(K: Integers, exponent: int, owner: Integers) -> Floats:
    """Returns Σ_i s·C_iC_iᵀ over rows, s how many rows their person has: what labels that vary
    alike, those of one person together, move coefficients by.
    """
    C = np.ldexp(K.astype(np.float64), exponent)
    count = np.bincount(owner)[owner]
    return np.asarray((C * count) @ C.T, dtype=np.float64)


def find_map_ends(release: Release, functions: Floats, level: float) -> Ends | str:
    """Returns the ends of the intervals of these functions of the coefficients; or why there are
    none.

    A coefficient's error is that of the labels, C·e, and Laplace noise, both independent of each
    other; both laws are known but for the labels' variance.
    """
    given = release.parameters
    noise = release.noise
    if "map_products" not in noise:
        return EARLIER
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    low, high = given["label"]
    most = (high - low) ** 2 / 4
    if release.bought is not None:
        wide = widen_variance(release.bought["variance"], release.bought["scale"], level)
        variance = min(UNEQUAL_SPREAD * wide, most)
        told = "the bought variance of labels, times 1.8 for rows of unequal spread"
    elif given["variance_declared"]:
        variance = given["noise_variance"]
        told = "noise_variance, as it was declared"
    else:
        variance = most
        told = "the bounds: labels vary by at most half their range"
    deviation = np.sqrt(
        variance
        * np.einsum("ij,jk,ik->i", functions, np.array(noise["map_products"]), functions).clip(0)
    )
    scales = functions * noise["scale"]
    both, alone, rows = (
        np.array(
            [compute_sum_half_width(level, b, s) for b, s in zip(noises, spreads, strict=True)]
        )
        for noises, spreads in (
            (scales, deviation),
            (scales, 0 * deviation),
            (0 * scales, deviation),
        )
    )
    middle = functions @ np.array(_list_all(given, value))
    of = "the coefficients of the labels' expectations, given these features"
    return Ends(middle - both, middle + both, alone, rows, sampling_from=told, of=of)


def _list_all(given: dict[str, Any], value: dict[str, Any]) -> list[float]:
    """The coefficients in the order of the design's columns."""
    slopes = list(value["coefficients"].values())
    if given["fit_intercept"]:
        return [value["intercept"], *slopes]
    return slopes


def estimate_error(
    rows: Floats, C: Floats, noise: float, variance: float, words: str, fit_intercept: bool
) -> ExpectedError:
    """Returns what predictions for the public rows miss of least squares: their noise, and (C −
    X⁺)·(labels' noise).

    Both maps have C·X = I, so nothing is held back; the features are public, so nothing is assumed
    about them.
    """
    n = len(rows)
    D = C - np.linalg.pinv(rows)
    apart = math.sqrt(
        max(float(np.sum((rows.T @ rows) * (D @ D.T))), 0.0)
    )  # ‖X·D‖, without a matrix of n columns
    return ExpectedError(
        classical=least_squares(fit_intercept),
        unit="in units of the label",
        noise=math.sqrt(2 * float(np.square(rows).sum()) / n) * noise,
        sampling=math.sqrt(variance / n) * apart,
        bias=ASSOCIATION * math.sqrt(variance) * apart,
        assumed=f"Assumed: labels spread by {format_number(math.sqrt(variance))} around the best "
        f"linear function. Noise by {words}.",
    )


def _check_finite(rows: Floats) -> Floats:
    """Refuses public features that are missing, infinite, or too large or small to be squared."""
    if not np.isfinite(rows).all():
        raise MissingValues(
            "The features have missing or infinite values (NaN, inf).",
            "Features are public, and every one must be a finite number.",
            "Fill them in as you like: that costs nothing.",
            parameter="X",
        )
    size = np.abs(rows)
    if np.any((size > MAX_MAGNITUDE) | ((size > 0) & (size < MIN_MAGNITUDE))):
        raise InvalidData(
            "A feature is larger than doubles can calculate with.",
            "",
            "Change its unit.",
            parameter="X",
        )
    return rows


def _split_groups(budgets: Budgets, n: int) -> Budgets:
    """Returns the budgets with one kind a person: here people with equal ε and rows differ by their
    features.
    """
    get_owners(budgets)  # refuses those that do not say whose a row is
    check_same_length(n, epsilon=budgets.row_codes())
    kinds = budgets.kinds
    people = budgets.n_people
    ones = np.ones(people, dtype=np.int64)
    return replace(
        budgets,
        kinds=BudgetGroups(kinds.epsilon[budgets.codes], kinds.rows[budgets.codes], ones),
        codes=np.arange(people),
    )


def _list_owners(budgets: Budgets) -> Integers:
    if budgets.owner is None:
        return np.arange(budgets.n_people)
    return budgets.owner


def _make_weights(D: Integers, found: Calibration, budgets: Budgets) -> Weights:
    """How loud each person takes part: how far their labels reach, as a share of everybody's."""
    spare = max(sum(D.tolist()).bit_length() - TOTAL_BITS, 0)
    person = D >> spare
    row = person // budgets.kinds.rows
    total = int(person.sum())
    return Weights(
        row,
        person,
        total,
        found.loudest >> spare,
        found.charges,
        float(np.square(person / total).sum()),
    )


def _describe_optimality(solution: solver.Solution, worth: float) -> dict[str, Any]:
    """What is known of the map's optimality, in the units of the squared error; public JSON."""
    return {
        "value": worth * solution.value,
        "bound": worth * solution.bound,
        "gap": solution.gap if math.isfinite(solution.gap) else None,
        "steps": solution.steps,
        "held_by_a_bound": solution.held,
    }


#: Entries of the map are whole numbers of at most this many bits, and nobody's add up to 2^53:
#: doubles count them.
MAP_BITS = 42
SUM_BITS = 52
#: Labels are rounded to at least 2^20 cells, and to 2^-7 of the noise where that is finer.
MIN_BITS = 20
MAX_BITS = 32
SPARE_BITS = 7
#: The statistic is shifted until the noise has about this scale: fine steps, and far from int64's
#: end.
SCALE_BITS = 40
#: Answers are multiples of a power of two below a thousandth of the noise.
ANSWER_BITS = 10

THEOREM = Theorem(
    "Public linear map of labels with Laplace noise: each person l loses at most (D_l·N/2^t + d)/b "
    "about their labels, and nothing is promised about features (pure ε, replace)",
    "docs/theory/labels.md",
)


@dataclass(frozen=True, eq=False)
class MapGrid:
    """Where labels, map, statistic and answer live."""

    values: Grid
    map: Integers
    map_exponent: int
    shift: int
    answer_exponent: int

    def to_dict(self) -> dict[str, Any]:
        """The grid as public JSON; of the map its fingerprint."""
        return {
            **self.values.to_dict(),
            "map_step": math.ldexp(1.0, self.map_exponent),
            "map_sha256": hashlib.sha256(np.ascontiguousarray(self.map).data).hexdigest(),
            "shift": self.shift,
            "answer_step": math.ldexp(1.0, self.answer_exponent),
        }


def round_map(C: Floats, owner: Integers) -> tuple[Integers, int]:
    """Returns K and e with C ≈ K·2^e, |K_ji| ≤ 2^42, and Σ|K_ji| < 2^53 over the rows of each
    person.
    """
    order, starts = _sort_by_owner(owner)
    largest = math.frexp(float(np.abs(C).max()))[1]  # below 2^largest
    fullest = math.frexp(float(compute_entrywise_norms(C.T[order], starts).max()))[1]
    exponent = max(largest - MAP_BITS, fullest - SUM_BITS)
    return np.rint(np.ldexp(C, -exponent)).astype(np.int64), exponent


def compute_reach(
    K: Integers, owner: Integers, sensitivity: str
) -> tuple[Integers, NDArray[np.bool_]]:
    """Returns D_l = max ‖K_l·δ‖₁ over |δ_i| ≤ 1 or a whole number above it, and who has it exactly.

    K is that of `round_map`, so doubles hold every sum exactly. "entrywise" is Σ|K_ji| for
    everybody.
    """
    order, starts = _sort_by_owner(owner)
    rows = K.T[order].astype(np.float64)
    if sensitivity == "entrywise":
        return compute_entrywise_norms(rows, starts).astype(np.int64), np.zeros(
            len(starts), dtype=bool
        )
    upper, exact = compute_norms(rows, starts)
    return np.ceil(upper).astype(np.int64), exact


def _sort_by_owner(owner: Integers) -> tuple[Integers, Integers]:
    """Returns an order in which everybody's rows lie together, and where each person's begin."""
    order = np.argsort(owner, kind="stable")
    return order, np.flatnonzero(np.diff(owner[order], prepend=-1))


@dataclass(frozen=True, eq=False)
class Calibration:
    """The noise, what it protects from, and what it costs everybody."""

    grid: MapGrid
    scale: float  # b
    loudest: int  # a whole number with D_l·10⁹/granted ≤ heaviest for everybody
    charges: units.Units
    noise: float  # scale of the noise on a coefficient, in units of the label


def calibrate_noise(
    K: Integers, exponent: int, D: Integers, budgets: Budgets, low: float, high: float
) -> Calibration:
    """Returns grid, noise scale and charges such that everybody's loss (D_l·N/2^t + κd)/b is within
    their grant.

    Shifting a coordinate by t bits moves the difference of two neighbouring statistics by less than
    1, so that of all d by less than d, hence κd (κ = 1 if t > 0); b covers it for the smallest ε.
    """
    granted = budgets.kinds.epsilon
    participating = D > 0
    ratio = float((D[participating] / granted[participating]).max())
    loudest = math.ceil(
        ratio * units.UNITS_PER_EPSILON * (1 + 2.0**-48)
    )  # the factor covers the roundings of the quotient
    widest = float(np.abs(K).astype(np.float64).sum(axis=1).max())
    bits = math.ceil(math.log2(widest / loudest)) + SPARE_BITS
    values = Grid.cover(low, high, min(max(bits, MIN_BITS), MAX_BITS))
    sensitivity = loudest * values.cells  # the statistic moves by at most this much times ε_l
    shift = max(sensitivity.bit_length() - SCALE_BITS, 0)
    if shift:
        rounding = len(K)
    else:
        rounding = 0
    scale = -(-sensitivity // 2**shift) + -(
        -rounding * units.UNITS_PER_EPSILON // int(granted[participating].min())
    )
    moved = np.where(participating, D * (values.cells / 2.0**shift) + rounding, 0.0)
    charges = units.check_within_grant(units.round_up(moved / scale), granted)
    noise = scale * 2.0**shift * float(values.step) * 2.0**exponent
    coarsest = exponent_below(math.ulp(max(abs(low), abs(high)) * widest * 2.0**exponent)) + 1
    answer = max(exponent_below(noise * 2.0**-ANSWER_BITS), coarsest)
    return Calibration(
        MapGrid(values, K, exponent, shift, answer), float(scale), loudest, charges, noise
    )


@dataclass(frozen=True, eq=False)
class MapSums:
    """S = K·z, exactly; ``row`` is the column that says which column of K a row of the batch
    belongs to.
    """

    value: str
    row: str
    grid: MapGrid

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a batch must have."""
        return (self.value, self.row)

    def zero(self) -> NDArray[Any]:
        """The sums over no rows, as Python integers."""
        return np.zeros(len(self.grid.map), dtype=object)

    def __call__(self, batch: Any) -> NDArray[Any]:
        """Returns the sums over the batch; labels that the map does not hear are not read."""
        K = self.grid.map[:, as_array(batch.column(self.row))]
        participating = K.any(axis=0)
        z = self.grid.values.integers(as_floats(batch.column(self.value))[participating])
        return np.array(multiply_exactly(K[:, participating], z), dtype=object)


def multiply_exactly(K: Integers, z: Floats) -> list[int]:
    """Returns Σ_i K_ji·z_i for every j, exactly, for |K_ji| ≤ 2^42 and whole z_i in 0 … 2^32."""
    return [sum(_multiply_pieces(row, z)) for row in K]


def _multiply_pieces(row: Integers, z: Floats) -> Iterator[int]:
    for first in range(0, len(z), PIECE_ROWS):
        k = row[first : first + PIECE_ROWS]
        part = z[first : first + PIECE_ROWS]
        yield exact_dot(np.maximum(k, 0), part) - exact_dot(np.maximum(-k, 0), part)


def draw_noisy_values(plan: Plan, statistic: NDArray[Any]) -> list[float]:
    """Returns the noisy coefficients: 2^e·(K·(lo, …, lo) + step·(2^t·(⌊S/2^t⌋ + Z) + (2^t − 1)/2)),
    snapped.
    """
    grid: MapGrid = plan.grid
    unit = power_of_two(grid.map_exponent)
    step = power_of_two(grid.answer_exponent)
    middle = Fraction(2**grid.shift - 1, 2)  # the shift rounds down; on average by this much
    base = multiply_exactly(grid.map, np.ones(grid.map.shape[1]))
    noise = source.draw_laplace(plan.noise["integer_scale"], len(statistic))
    answers = []
    for lows, S, z in zip(base, statistic, noise, strict=True):
        moved = (((int(S) >> grid.shift) + z) << grid.shift) + middle
        value = unit * (lows * Fraction(grid.values.low) + moved * grid.values.step)
        answers.append(float(round(value / step) * step))
    return answers


def describe_reach(sensitivity: str, exact: Any, held: int) -> str:
    """Says how people's reach was found."""
    if sensitivity == "entrywise":
        return "entrywise sensitivity, as published"
    if exact.all():
        told = "exact sensitivity"
    else:
        told = f"exact sensitivity of {int(exact.sum())} of {len(exact)}, else a bound"
    if not held:
        return told
    return f"{told}; the map was sought with {held} of them held by an upper bound of it"
