# SPDX-License-Identifier: Apache-2.0
"""Empirical risk minimisation by noisy gradient descent, with a budget a person
(docs/theory/erm.md).

Minimise Σ c_i·ℓ(φ_iᵀθ, y_i) over a ball or a box. erm_mechanism.py has the steps, the weights and
what they cost, and how far and how fast to go; solvers/losses.py has losses. The plan is public:

    grants (ε_l, δ) → weight → weights → clip, steps, stride → whole numbers, σ → charges
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy  # whose parts are loaded where they are used
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sottovoce import units
from sottovoce.accounting import subsampled
from sottovoce.arrays import (
    Array,
    ColumnLike,
    Floats,
    TableLike,
    check_same_length,
    to_matrix,
    to_numbers,
)
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.encoding import (
    KIND,
    MATRIX_COLUMN,
    VALUE,
    ClassLabel,
    EncodedReader,
    Label,
    Recoding,
    count_declared_columns,
    describe_model,
    make_label,
)
from sottovoce.data.engine import Dataset, GroupLookup, get_default_engine
from sottovoce.data.regression_kernels import MOST_COLUMNS, scale_constant
from sottovoce.data.source import DataSource, describe_rows
from sottovoce.errors import InvalidData, InvalidParameter
from sottovoce.estimator import get_association, get_owners, make_budgets, make_release
from sottovoce.estimators import erm_mechanism
from sottovoce.estimators.base import ModelEstimator
from sottovoce.estimators.column import LoadableEstimator
from sottovoce.estimators.erm_mechanism import (
    CONSTANT,
    PERSON,
    Accountant,
    Descent,
    FullBatchAccountant,
    People,
    Progress,
    RowSizes,
    SubsampledAccountant,
    find_least_scale,
    make_person_lookup,
    replace_budgets,
    report_steps,
    round_weights,
)
from sottovoce.estimators.model_intervals import (
    EARLIER,
    Ends,
    IntervalsByFunction,
    clip_to_label,
    list_coefficient_functions,
    predict_linear,
)
from sottovoce.noise.source import RATE_BITS
from sottovoce.plan import ASSOCIATION, ExpectedError, Plan, Theorem, measure_inequality
from sottovoce.release import Release
from sottovoce.schema import MEASURE, BoundsLike, Classes, is_between, is_one_of
from sottovoce.solvers import losses
from sottovoce.units import format_number
from sottovoce.weights import Weights, solve_row_weights


def _classifies(erm: ERM) -> bool:
    return losses.get_shape(losses.get_loss(erm.loss)).classifies


def _has_odds(erm: ERM) -> bool:
    return isinstance(losses.get_loss(erm.loss), losses.LogisticLoss)


class ERM(IntervalsByFunction, LoadableEstimator, ModelEstimator):
    """Empirical risk minimisation, each person with the weight that their own (ε, δ) allows.

    **Question.** Which linear function of the features has the smallest mean loss? Features (and
    the label of a regression) lie in ``bounds``; values beyond are clipped. Classes are declared,
    never read off the labels.

    **Promise.** (ε_l, δ) for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, features and label; exact arithmetic. In ρ of zCDP where
    everybody takes part in every step.

    **Formula.** T projected steps along Σ_l clip(g_l) + noise, g_l the gradient of all rows of
    person l, clipped at W_l·L and cut to whole numbers, discrete Gaussian noise; ρ_l =
    T(2W_lL)²/(2σ²)  (docs/theory/erm.md, equation 3).

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 4000)[:, None]
    >>> erm = sv.ERM("logistic", bounds=sv.Bounds(features=(-1, 1)), delta=1e-6).fit(
    ...     x, x[:, 0] > 0, epsilon=1.0
    ... )
    >>> bool(np.all(erm.guarantee_.epsilon <= 1.0)), bool(erm.score(x, x[:, 0] > 0) > 0.9)
    (True, True)

    **Limits.** Rows are read once a step, wherever they live. Steps, stride and clip are chosen by
    public rules of thumb; with little budget the model stays close to a constant. The number of
    rows of each person is not hidden.

    Parameters
    ----------
    loss :
        "logistic", "hinge", "squared", "huber", or an object with ``value`` and ``derivative``
        (solvers/losses.py).
    bounds :
        Bounds with features (and, for a regression, the label), or a Schema.
    delta :
        The δ of every promise, far below one over the number of people.
    constraint :
        "ball" or "box", in which the coefficients of the recoded features stay.
    radius :
        Of the ball, or half the side of the box; a public number. None: chosen.
    clip :
        The length L at which a person's mean gradient is clipped; a public number. None: chosen.
    steps :
        Number of steps T. None: chosen.
    sampling :
        The rate at which people are drawn in each step; None: everybody takes part in every step.
    iterate :
        "average" of the later half of the iterates, or the "last" one.
    classes :
        The two possible labels; if not given, those of the schema, the label's bounds, or (0, 1).
    missing :
        Public constant between all bounds that stands for missing values; a schema declares one for
        each column.
    association :
        How far the model of people with one budget may lie from everybody's, as a share of the
        spread of decision values or predictions: a public guess. The larger it is, the more evenly
        people count and the less the open ones spend. None: 0, as for a model that is right for
        everybody.
    """

    later = ("missing", "association")  # what older books do not know about a question

    intercept_: float | Floats
    classes_: Array

    def __init__(
        self,
        loss: Any = "logistic",
        *,
        bounds: BoundsLike | None = None,
        delta: float | None = None,
        constraint: str = "ball",
        radius: float | None = None,
        clip: float | None = None,
        steps: int | None = None,
        sampling: float | None = None,
        iterate: str = "average",
        classes: ColumnLike | None = None,
        missing: float | None = None,
        association: float | None = None,
    ) -> None:
        self.loss = loss
        self.bounds = bounds
        self.delta = delta
        self.constraint = constraint
        self.radius = radius
        self.clip = clip
        self.steps = steps
        self.sampling = sampling
        self.iterate = iterate
        self.classes = classes
        self.missing = missing
        self.association = association

    def fit(
        self,
        X: TableLike,
        y: ColumnLike | None = None,
        epsilon: BudgetLike | None = None,
        groups: ColumnLike | None = None,
        progress: Progress = False,
    ) -> Self:
        """Fit y on the features X.

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
        progress :
            Shows the steps done, and nothing else: True for a bar, or a function of their number.

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
        dataset = self._read_rows(X, y, epsilon, groups)
        plan, release = make_release(self, dataset, progress=progress)
        self._set_fitted(release, plan.guarantee, X)
        return self

    def validate(self) -> None:
        """Refuses a loss, bounds and parameters that are wrong for any people."""
        width = count_declared_columns(self.bounds, self.missing)
        self._make_label()
        _refuse_unknown(self.get_params(deep=False), width)

    def read_arrays(self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None) -> Dataset:
        """Returns the budgets and rows of features and label in memory, with the owner of each
        row.
        """
        X, y = data
        recoding = self._make_recoding(X)
        label = self._make_label()
        recoded = recoding.encode(to_matrix(X, recoding))
        if isinstance(label, ClassLabel):
            column = label.classes.find_codes(y)
        else:
            column = to_numbers(y, "labels")
        check_same_length(len(recoded), y=column, groups=groups)
        budgets = make_budgets(epsilon, groups, len(column))
        columns: dict[str, Array] = {
            VALUE: column,
            KIND: budgets.row_codes(),
            PERSON: get_owners(budgets),
        }
        check_same_length(len(column), epsilon=columns[KIND])
        if recoded.shape[1]:
            columns[MATRIX_COLUMN] = recoded
        if np.any(
            np.diff(columns[PERSON]) < 0
        ):  # a person's rows together, so that no step has to sort them
            order = np.argsort(columns[PERSON], kind="stable")
            columns = {name: array[order] for name, array in columns.items()}
        return Dataset(
            get_default_engine().of_columns(columns),
            VALUE,
            GroupLookup(KIND),
            EncodedReader(recoding),
            label,
            budgets=budgets,
        )

    def read_table(self, table: DataSource) -> Dataset:
        """Returns the features and the label that are read of a table."""
        recoding = self._make_recoding(table.list_features(self.bounds))
        label = replace(self._make_label(), column=table.find_label())
        if isinstance(label, ClassLabel):
            label = replace(label, coded=False)
        return describe_rows(label, recoding)

    def plan_for(self, budgets: Budgets, rows: Dataset | None = None) -> Plan:
        """The plan for these budgets; refuses to draw among people who cannot be told apart."""
        plan = super().plan_for(budgets, rows)
        if (
            rows is not None
            and plan.parameters["sampling"] is not None
            and make_person_lookup(rows.owner) is None
        ):
            raise InvalidParameter(
                "People are to be drawn, but rows do not say whose they are.",
                "A row that is not in memory and has no owner cannot be told from others when it "
                "is read again.",
                "Name the column of people, or leave sampling out.",
                parameter="groups",
            )
        return plan

    def release_under(self, plan: Plan, rows: Dataset, progress: Progress = False) -> Release:
        """Reads the rows, draws the noise, and returns the release."""
        with report_steps(progress, plan.parameters["steps"]) as watch:
            theta = run_erm(self, plan, rows, watch)
        recoding = Recoding.from_dict(plan.parameters["features"])
        if "classes" in plan.parameters:
            model = describe_model(recoding, theta[0] / 2, theta[1:])
            return Release.of(plan, {"models": {str(plan.parameters["classes"][1]): model}})
        low, high = plan.parameters["label"]
        half = (high - low) / 2
        middle = (high + low) / 2
        model = describe_model(recoding, middle + half * theta[0] / 2, half * theta[1:])
        return Release.of(plan, model)

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def decision_function(self, X: TableLike) -> Floats:
        """Return the linear function of the features: above 0 means the second class.

        Parameters
        ----------
        X : TableLike
            Features of new rows, with the columns that were declared.

        Returns
        -------
        Floats
            A number a row; for "logistic" its log-odds.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        """
        return self._compute_decisions(X)

    @available_if(_has_odds)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: TableLike) -> Floats:
        """Return the probability of each class, by the log-odds.

        Parameters
        ----------
        X : TableLike
            Features of new rows, with the columns that were declared.

        Returns
        -------
        Floats
            A column a class.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        """
        odds = self._compute_decisions(X)
        return np.column_stack([scipy.special.expit(-odds), scipy.special.expit(odds)])

    def predict(self, X: TableLike) -> Array:
        """Return classes, or predictions in the label's units; features are clipped as in fit.

        Predictions of a number are clipped to the range that was declared for the label.

        Parameters
        ----------
        X : TableLike
            Features of new rows, with the columns that were declared.

        Returns
        -------
        Array
            One prediction a row.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        """
        values = self._compute_decisions(X)
        if not hasattr(self, "classes_"):
            return clip_to_label(values, self.release_)
        return np.asarray(self.classes_[(values > 0).astype(np.int64)])

    def score(self, X: TableLike, y: ColumnLike, sample_weight: Any = None) -> float:
        """Return the share of right classes, or R² of a regression.

        Parameters
        ----------
        X : TableLike
            Features of new rows, with the columns that were declared.
        y : ColumnLike
            Their labels.
        sample_weight :
            Their weights.

        Returns
        -------
        float
            The score.
        """
        if _classifies(self):
            measure = accuracy_score
        else:
            measure = r2_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    @classmethod
    def _adapt_arguments(cls, arguments: dict[str, Any], release: Release) -> dict[str, Any]:
        """A loss of one's own is not in the release; one that predicts alike stands for it."""
        loss = arguments["loss"]
        if loss not in losses.LOSSES:
            loss = "logistic" if "classes" in release.parameters else "squared"
        return {**arguments, "loss": loss}

    def _compute_decisions(self, X: TableLike) -> Floats:
        check_is_fitted(self, "coef_")
        raw = to_matrix(X, self._recoding, expected=self.n_features_in_)
        return predict_linear(
            self._recoding, raw, float(np.ravel(self.intercept_)[0]), np.ravel(self.coef_)
        )

    def _describe_label(self) -> dict[str, Any]:
        label = self._make_label()
        if isinstance(label, ClassLabel):
            return {"classes": list(label.classes.values)}
        return {"label": [label.low, label.high]}

    def _make_label(self) -> Label | ClassLabel:
        """What the labels are, from what was declared."""
        if _classifies(self):
            classes = Classes.from_declaration(self.classes, self.bounds)
            if len(classes.values) > 2:
                raise InvalidParameter(
                    "There are more than two classes.",
                    "This estimator tells two apart.",
                    "Use sv.LogisticRegression.",
                    parameter="classes",
                )
            return ClassLabel(VALUE, classes, coded=True)
        return make_label(self)

    def _list_functions(self, release: Release, recoding: Recoding) -> Floats:
        return list_coefficient_functions(recoding, self._get_half(release))

    def _get_half(self, release: Release) -> float:
        """Half the label's range, in which a regression counts; 1 for log-odds."""
        if "label" not in release.parameters:
            return 1.0
        low, high = release.parameters["label"]
        return float(high - low) / 2

    def _get_middle(self, release: Release) -> float:
        if "label" not in release.parameters:
            return 0.0
        return super()._get_middle(release)

    def _find_ends(self, release: Release, functions: Floats, level: float) -> Ends | str:
        return find_descent_ends(release, functions, level, self._get_half(release))

    def _compute_row_intervals(self, release: Release, level: float, raw: Floats) -> Floats | None:
        ends = super()._compute_row_intervals(release, level, raw)
        if ends is None or not _has_odds(self):
            return ends
        return np.asarray(scipy.special.expit(ends), dtype=np.float64)

    def _make_plan(self, budgets: Budgets, recoding: Recoding) -> Plan:
        return make_erm_plan(self, budgets, recoding, self._describe_label())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.non_deterministic = True
        shape = getattr(
            losses.LOSSES.get(self.loss, self.loss) if isinstance(self.loss, str) else self.loss,
            "shape",
            None,
        )
        if getattr(shape, "classifies", False):
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(poor_score=True, multi_class=False)
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags(poor_score=True)
        return tags


#: Squared sampling error of a gradient, as a share of L²; the constant A of the weights is this/d.
GRADIENT_VARIANCE = 1 / 4
FULL_RATE = 2**RATE_BITS

FULL_BATCH_THEOREM = Theorem(
    "Noisy gradient descent: each person l loses at most ρ = T·(2P_l)²/(2σ²), P_l the most that "
    "their rows add to a sum (zCDP, replace), read at δ on the curve of Gaussian noise",
    "docs/theory/erm.md",
)
SAMPLED_THEOREM = Theorem(
    "Noisy gradient descent over sampled people: each person l loses at most what T pairs "
    "(1−q)·N(0, σ²) + q·N(±P_l, σ²) lose together (ε at δ, replace)",
    "docs/theory/erm.md",
)


@dataclass(frozen=True)
class GradientGrid:
    """Where clipped gradients live: whole numbers of one step."""

    step: float

    def to_dict(self) -> dict[str, Any]:
        """The grid as public JSON."""
        return {"gradient_step": self.step}


def make_erm_plan(
    erm: ERM,
    budgets: Budgets,
    recoding: Recoding,
    label: dict[str, Any],
    schedule: Callable[[losses.LossShape, RowSizes, float], erm_mechanism.StepSchedule]
    | None = None,
) -> Plan:
    """The plan; ``label`` says what the labels are, as public JSON, and ``schedule`` how far to go
    where a clip is given.
    """
    settings = ERMSettings.of(erm, recoding.width)
    kinds = budgets.kinds
    d = recoding.width + 1
    account = settings.account
    single = account.single_step_sensitivity(kinds.epsilon)
    participating = replace_budgets(kinds, single)
    # In units of the heaviest: A·Σc² + (max W/m)² has the same weights as A·m²_max·Σc² + (max
    # W·m_max/m)².
    loudest = float(single.max()) ** 2
    A = GRADIENT_VARIANCE / d * loudest
    # A model of decision values that lie β spreads apart has a gradient that lies β·L apart.
    B = get_association(erm.association) ** 2 / d * loudest
    person_weights = solve_row_weights(
        participating.epsilon / float(participating.epsilon.max()), kinds.rows, kinds.people, A, B
    )
    noise = _compute_single_noise(person_weights, kinds.rows, kinds.people, single)
    sizes = RowSizes(recoding.width, recoding.fills_ball)
    clip = settings.clip
    if clip is None:
        clip = erm_mechanism.choose_clip(settings.shape, sizes, noise, settings.steps)
    if schedule is None:
        way = erm_mechanism.choose_schedule(settings.shape, sizes, clip * noise, settings.steps)
    else:
        way = schedule(settings.shape, sizes, noise)
    clipping = erm_mechanism.estimate_clipping_error(settings.shape, sizes, clip)
    way = replace(way, unlearnt=math.hypot(way.unlearnt, math.sqrt(clipping)))
    least = find_least_scale(
        d * way.steps, float(units.to_epsilon(kinds.epsilon).max()), settings.delta
    )
    weights, scale = round_weights(
        kinds, person_weights, account.per_step_sensitivity(single, way.steps), least
    )
    guarantee = account.guarantee(budgets, weights.person / scale, way.steps)
    rate = math.ldexp(settings.rate, -RATE_BITS)
    return Plan(
        question="risk minimisation",
        parameters={
            "loss": losses.get_name(settings.loss),
            **label,
            "features": recoding.to_dict(),
            "delta": settings.delta,
            "constraint": erm.constraint,
            "radius": settings.radius,
            "clip": clip,
            "steps": way.steps,
            "stride": way.stride,
            "sampling": None if settings.rate == FULL_RATE else rate,
            "iterate": erm.iterate,
            **_describe_association(erm),
            **_describe_constant(sizes),
        },
        budgets=budgets,
        weights=weights,
        guarantee=guarantee,
        noise={
            "distribution": "discrete Gaussian",
            "integer_scale": scale,
            "gradient_standard_deviation": clip * scale / weights.total / rate,
            "people_concentration": weights.measure_people_concentration(kinds),
            "most_rows": int(kinds.rows[weights.person > 0].max()),
        },
        grid=GradientGrid(clip / weights.total),
        theorem=FULL_BATCH_THEOREM if settings.rate == FULL_RATE else SAMPLED_THEOREM,
        error=_estimate_error(settings.shape, way, label, budgets, weights),
    )


def find_descent_ends(release: Release, functions: Floats, level: float, half: float) -> Ends | str:
    """Returns the ends of the intervals of these functions of θ, of what the same descent gives on
    the whole population; or why there are none (docs/theory/model-intervals.md).
    """
    given = release.parameters
    noise = release.noise
    if "people_concentration" not in noise:
        return EARLIER
    if given["sampling"] is not None:
        return (
            "People were drawn anew for each step, and how far that moves a model which bends is "
            "not known. Without sampling there is an interval."
        )
    recoding = Recoding.from_dict(given["features"])
    sizes = RowSizes(recoding.width, recoding.fills_ball)
    refused = erm_mechanism.explain_unsteady_steps(
        given["loss"], given["clip"], given["stride"], sizes, noise["most_rows"]
    )
    if refused:
        return refused
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    if "models" in value:
        (model,) = value["models"].values()
    else:
        model = value
    slopes = np.array([model["coefficients"][name] for name in recoding.names])
    middle = 0.0
    if "label" in given:
        middle = (given["label"][0] + given["label"][1]) / 2
    constant, encoded = recoding.to_encoded_units(model["intercept"] - middle, slopes)
    # Of rows whose constant is not ½.
    longer = 2 * given.get("constant", CONSTANT)
    functions = functions * np.concatenate([[longer], np.ones(recoding.width)])
    descent = erm_mechanism.SteadyDescent(
        theta=np.concatenate([[2 * constant / longer], encoded]) / half,
        steps=given["steps"],
        stride=given["stride"],
        average=given["iterate"] == "average",
        noise=noise["gradient_standard_deviation"],
        concentration=noise["people_concentration"],
        unequal=erm_mechanism.bound_pull_ratio(given["loss"], given["clip"], sizes),
    )
    return descent.find_ends(functions, level)


def _describe_association(erm: ERM) -> dict[str, float]:
    """The bound on association as public JSON, where there is one."""
    if erm.association is None:
        return {}
    return {"association": get_association(erm.association)}


def _describe_constant(sizes: RowSizes) -> dict[str, float]:
    """The constant of rows as public JSON, where it is not ½."""
    if sizes.constant == CONSTANT:
        return {}
    return {"constant": sizes.constant}


def run_erm(erm: ERM, plan: Plan, rows: Dataset, watch: Callable[[int], None]) -> Floats:
    """Reads the rows and returns θ for recoded features, (½, z), and labels in [−1, 1]."""
    descent = make_descent(erm, plan)
    theta = descent.run(People.of(rows, plan.budgets, plan.weights), watch)
    return scale_constant(theta, 2 * descent.constant)


def make_descent(erm: ERM, plan: Plan) -> Descent:
    """The run that a plan describes."""
    given = plan.parameters
    return Descent(
        loss=losses.get_loss(erm.loss),
        clip=given["clip"],
        steps=given["steps"],
        stride=given["stride"],
        radius=given["radius"],
        box=given["constraint"] == "box",
        average=given["iterate"] == "average",
        rate=FULL_RATE
        if given["sampling"] is None
        else int(math.ldexp(given["sampling"], RATE_BITS)),
        scale=plan.noise["integer_scale"],
        total=plan.weights.total,
        constant=given.get("constant", CONSTANT),
    )


@dataclass(frozen=True, eq=False)
class ERMSettings:
    """The parameters, checked, with defaults in their place."""

    loss: losses.RowLoss
    shape: losses.LossShape
    delta: float
    radius: float
    clip: float | None
    steps: int | None
    rate: int  # in units of 2⁻³²

    @classmethod
    def of(cls, erm: ERM, slopes: int) -> ERMSettings:
        """Refuses what is not known or out of range."""
        given: dict[str, Any] = erm.get_params(deep=False)
        _refuse_unknown(given, slopes)
        loss = losses.get_loss(erm.loss)
        shape = losses.get_shape(loss)
        box = erm.constraint == "box"
        if given["radius"] is None:
            radius = erm_mechanism.choose_radius(slopes, box)
        else:
            radius = float(given["radius"])
        if given["clip"] is None:
            clip = None
        else:
            clip = float(given["clip"])
        if given["sampling"] is None:
            rate = FULL_RATE
        else:
            rate = int(math.ldexp(float(given["sampling"]), RATE_BITS))
        if given["steps"] is None:
            steps = None
        else:
            steps = int(given["steps"])
        if steps is None and rate < FULL_RATE:
            steps = erm_mechanism.count_sampled_steps(math.ldexp(rate, -RATE_BITS))
        return cls(loss, shape, float(given["delta"]), radius, clip, steps, rate)

    @property
    def account(self) -> Accountant:
        """Who says what a grant allows."""
        if self.rate == FULL_RATE or self.steps is None:
            return FullBatchAccountant(self.delta)
        return SubsampledAccountant(
            subsampled.SampledSteps(math.ldexp(self.rate, -RATE_BITS), self.steps, self.delta)
        )


def _refuse_unknown(given: dict[str, Any], slopes: int) -> None:
    for name, known in (("constraint", ("ball", "box")), ("iterate", ("average", "last"))):
        if not is_one_of(given[name], known):
            raise InvalidParameter(
                f"The {name} is not known.",
                f"There are {' and '.join(known)}.",
                "Choose one.",
                parameter=name,
            )
    if not is_between(given["delta"], 1 / MEASURE, 1):
        raise InvalidParameter(
            "δ is missing, or not between 0 and 1.",
            "Every promise here is an ε at a δ, the same for all.",
            "Pass delta=, far below one over the number of people.",
            parameter="delta",
        )
    for name in ("radius", "clip"):
        if given[name] is not None and not is_between(given[name], 1e-9, 1e9):
            raise InvalidParameter(
                f"The {name} is not a number between 1e-9 and 1e9.",
                "",
                f"Pass a public {name}, or nothing.",
                parameter=name,
            )
    steps = given["steps"]
    if steps is not None and not (isinstance(steps, Integral) and is_between(steps, 0, 1e6 + 1)):
        raise InvalidParameter(
            "steps is not a whole number from 1 to a million.",
            "",
            "Pass one, or nothing.",
            parameter="steps",
        )
    get_association(given["association"])
    if slopes >= MOST_COLUMNS:
        raise InvalidData(
            "There are too many columns.",
            f"Fewer than {MOST_COLUMNS:,} are covered by the proof.",
            "Use fewer.",
            parameter="X",
        )
    if given["sampling"] is not None:
        _refuse_sampling(given["sampling"], given["delta"])


def _refuse_sampling(rate: Any, delta: float) -> None:
    if not is_between(rate, 0, math.inf) or not 2.0**-RATE_BITS <= rate <= 1:
        raise InvalidParameter(
            "sampling is not a rate.",
            "It lies above 0 and is at most 1.",
            "Pass such a rate, or nothing for everybody.",
            parameter="sampling",
        )
    if delta < subsampled.SMALLEST_DELTA and rate < 1:
        raise InvalidParameter(
            "δ is too small for people who are sampled.",
            "Losses are composed numerically, which is good down to δ = "
            f"{subsampled.SMALLEST_DELTA:g}.",
            "Choose a larger δ, or leave sampling out.",
            parameter="delta",
        )


def _compute_single_noise(person_weights: Floats, rows: Any, people: Any, single: Floats) -> float:
    """Returns max_l W_l/m_l, the weights summing to one."""
    person = person_weights * rows
    ratio = np.divide(person, single, out=np.zeros_like(person), where=single > 0)
    return float(ratio.max() / (person @ people))


def _estimate_error(
    shape: losses.LossShape,
    way: erm_mechanism.StepSchedule,
    label: dict[str, Any],
    budgets: Budgets,
    weights: Weights,
) -> ExpectedError:
    if "label" in label:
        half = float(label["label"][1] - label["label"][0]) / 2
    else:
        half = 1.0
    size = math.sqrt(shape.size)
    (squares, moved) = measure_inequality(budgets, weights)
    if shape.classifies:
        of = "decision values"
    else:
        of = "predictions"
    return ExpectedError(
        classical=f"the {of} of the minimiser without noise, over its rows",
        unit="in decision values (log-odds, for the logistic loss)"
        if shape.classifies
        else "in units of the label",
        noise=way.noise * half,
        sampling=size * math.sqrt(squares) * half,
        shrinkage=way.unlearnt * half,
        bias=ASSOCIATION * size * half * moved,
        assumed=f"Assumed: {of} of the best model spread by {format_number(size * half)}.",
    )
