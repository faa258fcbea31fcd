# SPDX-License-Identifier: Apache-2.0
"""Logistic regression with a budget a person (docs/theory/logistic.md).

Minimise Σ a_i·log(1 + e^(−y_iφ_iᵀw)) + ½wᵀΛw + bᵀw, density of b ∝ exp(−½η_n·N(b)), over rows φ of
the unit ball or of a box; several classes by one softmax objective. logistic_tuning.py chooses ball
or box, Λ and the rest; logistic_mechanism.py has the weights, the rate and the charges, and the
fit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, softmax
from sklearn.utils.validation import check_is_fitted

from sottovoce.arrays import Array, ColumnLike, Floats, TableLike, check_same_length, to_matrix
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.encoding import (
    VALUE,
    CentredBox,
    ClassLabel,
    EncodedReader,
    Reader,
    Recoding,
    UnitBall,
    UnitBallReader,
    count_declared_columns,
    describe_model,
)
from sottovoce.data.engine import Dataset
from sottovoce.data.source import DataSource, describe_rows
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import load_matrix, make_budgets
from sottovoce.estimators import logistic_descent, logistic_mechanism, logistic_tuning
from sottovoce.estimators.base import (
    ClassifierMixin,
    ModelEstimator,
    get_association,
    get_owners,
    predict_linear,
)
from sottovoce.estimators.column import LoadableEstimator
from sottovoce.estimators.curvature import (
    CLASS_PULL_UNITS,
    BoughtShare,
    Equation,
    choose_interval_share,
)
from sottovoce.estimators.erm import find_descent_ends
from sottovoce.estimators.erm_mechanism import PERSON
from sottovoce.estimators.logistic_descent import TWO_CLASSES, DescentSteps
from sottovoce.estimators.logistic_mechanism import LABELS, NoisyObjective, PersonWeights
from sottovoce.estimators.model_intervals import (
    EARLIER,
    Ends,
    IntervalsByFunction,
    bound_probabilities,
    list_coefficient_functions,
    list_prediction_functions,
    name_ends,
)
from sottovoce.guarantee import Guarantee, Neighbours
from sottovoce.plan import Plan
from sottovoce.release import Intervals, Release
from sottovoce.schema import (
    Bounds,
    BoundsLike,
    Classes,
    check_flag,
    check_interval_share,
    is_measurable,
    is_one_of,
)

NEIGHBOURS: dict[str, Neighbours] = {"replace": "replace", "labels": "replace labels"}
ACCOUNTANTS = ("kappa", "exact")
#: How classes are told apart, as a release says it.
SOFTMAX = "softmax"
ONE_AGAINST_OTHERS = "one against the others"


class LogisticRegression(
    DescentSteps, IntervalsByFunction, LoadableEstimator, ClassifierMixin, ModelEstimator
):
    """Logistic regression, each person with the weight that their own ε allows.

    **Question.** Which linear function of the features tells the classes apart? Features lie in
    ``bounds``; values beyond are clipped. Classes are declared, never read off the labels.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, features and label, or of their labels alone
    (``neighbours="labels"``); floating arithmetic.

    **Formula.** Objective perturbation with public weights, in the unit ball, charged by the κ
    accountant (docs/theory/kappa.md), or, where budgets are ample, in the box of the bounds;
    several classes by one softmax objective. In the ball rows far from the middle of the bounds are
    shortened in the fit, and a share of budgets buys the intercept anew; log-odds are ``intercept_
    + X @ coef_.T`` always.

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 4000)[:, None]
    >>> model = sv.LogisticRegression(bounds=sv.Bounds(features=(-1, 1))).fit(
    ...     x, x[:, 0] > 0, epsilon=1.0
    ... )
    >>> bool(np.all(model.guarantee_.epsilon <= 1.0)), bool(model.score(x, x[:, 0] > 0) > 0.9)
    (True, True)

    **Limits.** Shrunk towards even odds while budgets are small; a chosen λ is undone in part,
    which leaves decisions as they are. Which classes there are, the number of rows a person and the
    budgets are public.

    Parameters
    ----------
    bounds :
        Bounds with features (a box, or norm= for rows that are used as they are), or a Schema.
    classes :
        The possible labels; if not given, those of the schema, of the public rows, the label's
        bounds, or (0, 1).
    public :
        (X, y), rows that need no protection, for scaling and for choosing λ only.
    alpha :
        Regularisation λ of the mean loss of rows in the unit ball; a public number. None: chosen,
        as is whether rows lie in the ball or in a box.
    fit_intercept :
        Whether there is a constant term; it is regularised like the slopes.
    neighbours :
        "replace", or "labels" to protect labels alone, at half the noise.
    accountant :
        "kappa", or "exact" for the charge without the κ table.
    missing :
        Public constant between the bounds of all features that stands for missing ones; a schema
        declares one for each column. A missing class is refused.
    association :
        How far the log-odds of people with one budget may lie from everybody's, as a share of
        their spread: a public guess. The larger it is, the more evenly people count and the less
        the open ones spend. None: 0, as for a model that is right for everybody.
    interval_share :
        Share of everybody's ε that buys what intervals of two classes need, where nothing is cut;
        if not given, chosen from public numbers. 0 buys nothing, and intervals are of a fit that is
        shrunk as strongly.
    delta :
        The δ of every promise. With it the plan chooses, for two classes, between pure ε and noisy
        gradient descent in ρ of zCDP, which tells classes apart better where features are many and
        people neither few nor very many (docs/theory/logistic-delta.md). None: pure ε always.
    """

    later = (
        "missing",
        "association",
        "interval_share",
        "delta",
    )  # what older books do not know about a question

    delta: float | None = None  # of estimators that an earlier version pickled
    intercept_: Floats
    classes_: Array

    def __init__(
        self,
        bounds: BoundsLike | None = None,
        *,
        classes: ColumnLike | None = None,
        public: Any = None,
        alpha: float | None = None,
        fit_intercept: bool = True,
        neighbours: str = "replace",
        accountant: str = "kappa",
        missing: float | None = None,
        association: float | None = None,
        interval_share: float | None = None,
        delta: float | None = None,
    ) -> None:
        self.bounds = bounds
        self.classes = classes
        self.public = public
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.neighbours = neighbours
        self.accountant = accountant
        self.missing = missing
        self.association = association
        self.interval_share = interval_share
        self.delta = delta

    def validate(self) -> None:
        """Refuses bounds, classes and parameters that are wrong for any people."""
        count_declared_columns(self.bounds, self.missing)
        self._get_classes()
        self._refuse_unknown()
        check_flag(self.fit_intercept, "fit_intercept")

    def read_arrays(self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None) -> Dataset:
        """Returns the budgets and rows of features and classes in memory, the rows in the ball or
        box, or recoded.
        """
        X, y = data
        recoding = self._make_recoding(X)
        classes = self._get_classes()
        raw = to_matrix(X, recoding)
        codes = classes.find_codes(y)
        check_same_length(len(raw), y=codes, groups=groups)
        budgets = make_budgets(epsilon, groups, len(codes))
        label = ClassLabel(VALUE, classes, coded=True)
        reader: Reader = EncodedReader(recoding)
        if self._descends(budgets, recoding):
            people = {PERSON: get_owners(budgets)}
            return load_matrix(recoding.encode(raw), reader, codes, label, budgets, people)
        setting = self._choose_tuning(self._make_weights(budgets, recoding), recoding)
        if setting.threshold > 0:  # which is bought for rows as they are, and not as they were cut
            return load_matrix(recoding.encode(raw), reader, codes, label, budgets)
        body = setting.mechanism.body
        reader = UnitBallReader(body, recoding)
        return load_matrix(body.encode(raw, recoding), reader, codes, label, budgets)

    def read_table(self, table: DataSource) -> Dataset:
        """Returns the features and the classes that are read of a table."""
        recoding = self._make_recoding(table.list_features(self.bounds))
        return describe_rows(ClassLabel(table.find_label(), self._get_classes()), recoding)

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows, draws the noise, and returns the release."""
        given = plan.parameters
        recoding = Recoding.from_dict(given["features"])
        if "steps" in given:
            return self._release_descent(plan, rows, recoding)
        mechanism = self._read_mechanism(given, recoding)
        problems = logistic_mechanism.Problems(
            rows, mechanism, self._make_weights(plan.budgets, recoding), plan.noise["rate"]
        )
        if mechanism.several:
            fitted = dict(enumerate(problems.fit(0)))
        else:
            positives = _list_positive_classes(given["classes"])
            fitted = {positive: problems.fit(positive)[0] for positive in positives}
        largest = float(problems.person_weights.row.max())
        models = {}
        moved = 0.0
        for positive, theta in fitted.items():
            intercept, slopes = mechanism.body.to_original_units(theta * given["stretch"])
            # What the fit released: the intercept is bought anew around it.
            model: dict[str, Any] = {"fitted": theta.tolist(), "largest_weight": largest}
            if given["threshold"] > 0:
                chosen = problems.choose_threshold(intercept, slopes, given["threshold"])
                moved = (chosen - intercept) / self._find_intercept_unit(given, mechanism)
                intercept = chosen
            name = str(given["classes"][positive])
            models[name] = {**describe_model(recoding, intercept, slopes), **model}
        if plan.bought is None:
            equation = problems.make_equation(np.concatenate(list(fitted.values())), moved)
        else:
            ((positive, theta),) = fitted.items()
            equation = problems.buy_equation(positive, theta, plan.bought.share)
        return Release.of(plan, {"models": models}, equation.to_dict())

    def _find_intercept_unit(self, given: dict[str, Any], mechanism: NoisyObjective) -> float:
        """By how much the intercept moves with the first coordinate of a fit."""
        first = np.zeros(mechanism.body.width)
        first[0] = given["stretch"]
        return float(mechanism.body.to_original_units(first)[0])

    def _compute_intervals(self, release: Release, level: float) -> Intervals | None:
        classes = release.parameters["classes"]
        if len(classes) == 2 or release.bought is None:
            return super()._compute_intervals(release, level)
        recoding = Recoding.from_dict(release.parameters["features"])
        functions = self._list_functions(release, recoding)
        by_class = {
            str(name): name_ends(
                recoding.names, self._find_ends_of_class(release, functions, place, level), level
            )
            for place, name in enumerate(classes)
        }
        first = next(iter(by_class.values()))
        return replace(
            first,
            low={name: one.low for name, one in by_class.items()},
            high={name: one.high for name, one in by_class.items()},
            noise={name: one.noise for name, one in by_class.items()},
            sampling={name: one.sampling for name, one in by_class.items()},
        )

    def _compute_prediction_intervals(
        self, release: Release, level: float, X: TableLike
    ) -> Floats | None:
        classes = release.parameters["classes"]
        if len(classes) == 2:
            odds = super()._compute_prediction_intervals(release, level, X)
            if odds is None:
                return None
            return np.asarray(expit(odds), dtype=np.float64)
        raw = to_matrix(X, self._recoding, expected=self.n_features_in_)
        coefficients = self._list_functions(release, self._recoding)
        functions = list_prediction_functions(self._recoding, raw, coefficients)
        # All functions are within their ends at once, so that probabilities are.
        each = 1 - (1 - level) / len(classes)
        ends = [
            self._find_ends_of_class(release, functions, place, each)
            for place in range(len(classes))
        ]
        low = np.column_stack([one.low for one in ends])
        high = np.column_stack([one.high for one in ends])
        if release.parameters.get("objective") != SOFTMAX:
            low, high = log_expit(low), log_expit(high)
        return bound_probabilities(low, high)

    def _list_functions(self, release: Release, recoding: Recoding) -> Floats:
        given = release.parameters
        if "steps" in given:
            return list_coefficient_functions(recoding, 1.0)
        mechanism = self._read_mechanism(given, recoding)
        columns = []
        for unit in np.eye(mechanism.body.width) * given["stretch"]:
            intercept, slopes = recoding.to_original_units(*mechanism.body.to_original_units(unit))
            columns.append(np.concatenate([[intercept], slopes]))
        return np.column_stack(columns)

    def _get_middle(self, release: Release) -> float:
        return 0.0

    def _find_ends(self, release: Release, functions: Floats, level: float) -> Ends | str:
        if "steps" in release.parameters:
            return find_descent_ends(release, functions, level, 1.0)
        if release.bought is not None:
            return Equation.from_dict(release.bought).find_ends(functions, level)
        return EARLIER

    def _find_ends_of_class(
        self, release: Release, functions: Floats, place: int, level: float
    ) -> Ends:
        """The ends of functions of one class among several."""
        assert release.bought is not None
        width = functions.shape[1]
        own = np.zeros((len(functions), len(release.bought["theta"])))
        own[:, place * width : (place + 1) * width] = functions
        return Equation.from_dict(release.bought).find_ends(own, level)

    def _choose_interval_share(
        self, setting: logistic_tuning.TuningChoice, person_weights: PersonWeights, slopes: int
    ) -> float:
        """The share of everybody's ε that buys intervals: of two classes, where rows are as they
        are.
        """
        mechanism = setting.mechanism
        if (
            not isinstance(mechanism.body, CentredBox)
            or not (mechanism.body.intercept and slopes)
            or mechanism.accountant == LABELS
            or mechanism.several
        ):
            return 0.0
        return choose_interval_share(
            person_weights.total, slopes, self.interval_share, CLASS_PULL_UNITS
        )

    def decision_function(self, X: TableLike) -> Floats:
        """Return log-odds of the second class, or the function of each of several classes.

        It is intercept + X·coef for every row within the bounds. Releases of version 0.1 cut rows
        that are longer than a radius, as their fits did.

        Parameters
        ----------
        X : TableLike
            Features of new rows, with the columns that were declared.

        Returns
        -------
        Floats
            A number a row, or a column a class where there are several.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        """
        check_is_fitted(self, "coef_")
        recoding = self._recoding
        raw = to_matrix(X, recoding, expected=self.n_features_in_)
        models = zip(self.intercept_, self.coef_, strict=True)
        if "ball" in self.release_.parameters:
            ball = UnitBall.from_dict(self.release_.parameters["ball"])
            Z = recoding.encode(raw)
            columns = [
                ball.margins(Z, *recoding.to_encoded_units(float(intercept), slopes))
                for intercept, slopes in models
            ]
        else:
            columns = [
                predict_linear(recoding, raw, float(intercept), slopes)
                for intercept, slopes in models
            ]
        if len(columns) == 1:
            return columns[0]
        return np.column_stack(columns)

    def predict(self, X: TableLike) -> NDArray[Any]:
        """Return the class with the highest odds for each row.

        Parameters
        ----------
        X : TableLike
            Features of new rows, with the columns that were declared.

        Returns
        -------
        NDArray[Any]
            One prediction a row.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        """
        odds = self.decision_function(X)
        if odds.ndim == 2:
            which = odds.argmax(axis=1)
        else:
            which = (odds > 0).astype(np.int64)
        return np.asarray(self.classes_[which])

    def predict_proba(self, X: TableLike) -> Floats:
        """Return a probability for each class; they add up to one.

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
        odds = self.decision_function(X)
        if odds.ndim == 1:
            return np.column_stack([expit(-odds), expit(odds)])
        if self.release_.parameters.get("objective") != SOFTMAX:
            odds = log_expit(odds)
        return np.asarray(softmax(odds, axis=1), dtype=np.float64)

    def _make_plan(self, budgets: Budgets, recoding: Recoding) -> Plan:
        if self._descends(budgets, recoding):
            return self._plan_descent(budgets, recoding)
        plan = self._plan_objective(budgets, recoding)
        if self.delta is None:
            return plan
        return replace(plan, parameters={**plan.parameters, "delta": float(self.delta)})

    def _plan_objective(self, budgets: Budgets, recoding: Recoding) -> Plan:
        classes = self._get_classes()
        person_weights = self._make_weights(budgets, recoding)
        setting = self._choose_tuning(person_weights, recoding)
        mechanism = setting.mechanism
        share = self._choose_interval_share(setting, person_weights, recoding.width)
        bought = None
        if share > 0:
            bought = BoughtShare(share, "how columns spread and classes vary")
        rate = person_weights.find_rate(mechanism, setting.threshold + share)
        charges = person_weights.charges(mechanism, rate, setting.threshold, share)
        noise: dict[str, Any] = {
            "distribution": "radial noise in the objective",
            "rate": rate,
            "root_mean_square": math.sqrt(
                mechanism.freedoms * float((mechanism.deviations(rate) ** 2).sum())
            ),
            "output_noise": logistic_mechanism.compute_output_noise(
                person_weights, mechanism, rate
            ),
        }
        if isinstance(mechanism.body, CentredBox):
            noise["distribution"] = "box noise in the objective"
        if setting.threshold > 0:
            noise["threshold_scale"] = person_weights.find_threshold_scale(setting.threshold)
        return Plan(
            question="logistic regression",
            parameters={
                "classes": list(classes.values),
                "features": recoding.to_dict(),
                "neighbours": self.neighbours,
                "accountant": self.accountant,
                "association": get_association(self.association),
                "interval_share": self.interval_share,
                "alpha": setting.alpha,
                **_describe_body(mechanism),
                "stretch": setting.stretch,
                "threshold": setting.threshold,
                "objective": self._name_objective(),
                "problems": self._count_problems(),
                "public_rows": 0 if self.public is None else len(self.public[1]),
            },
            budgets=budgets,
            weights=person_weights.weights,
            guarantee=replace(
                Guarantee.of(budgets, charges, arithmetic="floating"),
                neighbours=NEIGHBOURS[self.neighbours],
            ),
            noise=noise,
            bought=bought,
            grid=logistic_mechanism.make_answer_grid(mechanism, rate),
            theorem=logistic_tuning.state_theorem(setting, NEIGHBOURS[self.neighbours]),
            error=logistic_tuning.estimate_error(
                setting,
                rate,
                recoding,
                budgets,
                person_weights.weights,
                get_association(self.association),
            ),
            risk=partial(
                logistic_mechanism.compute_error_bound,
                person_weights=person_weights,
                mechanism=mechanism,
                rate=rate,
            ),
        )

    def _name_objective(self) -> str:
        if len(self._get_classes().values) == 2:
            return TWO_CLASSES
        if self._labels_only:
            return ONE_AGAINST_OTHERS
        return SOFTMAX

    def _count_problems(self) -> int:
        if self._name_objective() == ONE_AGAINST_OTHERS:
            return len(self._get_classes().values)
        return 1

    def _get_accountant(self) -> str:
        if self._labels_only:
            return LABELS
        return self.accountant

    def _count_together(self) -> int:
        """How many classes one objective tells apart."""
        if self._name_objective() == SOFTMAX:
            return len(self._get_classes().values)
        return 2

    def _read_mechanism(self, given: dict[str, Any], recoding: Recoding) -> NoisyObjective:
        """The mechanism that a plan describes."""
        content = given["rows"]
        body: UnitBall | CentredBox
        if content["kind"] == "ball":
            body = UnitBall.from_dict(content)
        else:
            body = CentredBox.from_dict(content)
        ridge = np.full(body.width, given["alpha"])
        share = 0.0
        if isinstance(body, CentredBox) and body.intercept:
            ridge[0] = given["intercept_alpha"]
            share = given["intercept_share"]
        return NoisyObjective(body, ridge, self._get_accountant(), self._count_together(), share)

    @property
    def _labels_only(self) -> bool:
        return self.neighbours == "labels"

    def _make_weights(self, budgets: Budgets, recoding: Recoding) -> PersonWeights:
        self._refuse_unknown()
        coordinates = recoding.width + check_flag(self.fit_intercept, "fit_intercept")
        return PersonWeights.of(
            budgets.kinds,
            coordinates,
            len(self._get_classes().values),
            self._labels_only,
            get_association(self.association),
        )

    def _choose_tuning(
        self, person_weights: PersonWeights, recoding: Recoding
    ) -> logistic_tuning.TuningChoice:
        scale = logistic_tuning.BudgetScale(
            person_weights.total,
            recoding.width,
            check_flag(self.fit_intercept, "fit_intercept"),
            self._get_accountant(),
            self._count_together(),
        )
        if self.public is not None:
            public = logistic_tuning.PublicRows.of(self.public, recoding, self._get_classes())
            return logistic_tuning.choose_with_public_rows(scale, public, self.alpha)
        if isinstance(self.bounds, Bounds):
            norm = self.bounds.norm
        else:
            norm = None
        return logistic_tuning.choose_without_public_rows(scale, recoding, norm, self.alpha)

    def _get_classes(self) -> Classes:
        pair = isinstance(self.public, tuple | list) and len(self.public) == 2
        if pair:
            labels = self.public[1]
        else:
            labels = None
        return Classes.from_declaration(self.classes, self.bounds, labels)

    def _refuse_unknown(self) -> None:
        check_interval_share(self.interval_share)
        logistic_descent.check_delta(self.delta)
        for name, value, known in (
            ("neighbours", self.neighbours, NEIGHBOURS),
            ("accountant", self.accountant, ACCOUNTANTS),
        ):
            if not is_one_of(value, known):
                raise InvalidParameter(
                    f"This value of {name} is not known.",
                    f"Known: {', '.join(known)}.",
                    "Choose one.",
                    parameter=name,
                )
        if self.alpha is not None and not is_measurable(self.alpha):
            raise InvalidParameter(
                "alpha is not a positive number that doubles can calculate with.",
                "Without regularisation there is no promise.",
                "Give a positive number, or none to have it chosen.",
                parameter="alpha",
            )
        get_association(self.association)


def _list_positive_classes(classes: Any) -> tuple[int, ...]:
    """Returns which classes are told from the others: the second of two, each of several."""
    if len(classes) == 2:
        return (1,)
    return tuple(range(len(classes)))


def _describe_body(mechanism: NoisyObjective) -> dict[str, Any]:
    """Where the rows lie, as public JSON."""
    body = mechanism.body
    if isinstance(body, UnitBall):
        return {"rows": {"kind": "ball", "pulled": body.shortens, **body.to_dict()}}
    told: dict[str, Any] = {"rows": {"kind": "box", **body.to_dict()}}
    if body.intercept:
        told["intercept_alpha"] = float(mechanism.ridge[0])
        told["intercept_share"] = mechanism.share
    return told
